//! Where clients' operations spend their time, while somebody asks (`dump_op_stages`): sums by image and client.
//!
//! Invariant: where nobody has asked of late, an operation costs one comparison more, and nothing is kept.
//!
//! Bounds: [`ROWS_MAX`] rows, what others do is counted together; a question is remembered for [`KEPT_MAX`] at most.

use crate::images;
use pg::Word;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use types::{EntityAddr, EntityName, PoolId};

pub const ROWS_MAX: usize = 1000;
pub const KEPT_MAX: Duration = Duration::from_secs(600);

/// Who does something to what.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Whose {
    pub pool: PoolId,
    pub namespace: Vec<u8>,
    /// The image's id; empty: of no image.
    pub image: Vec<u8>,
    pub client: EntityName,
    pub is_write: bool,
}

/// What became of one operation. Times are those of the OSD's clock.
#[derive(Debug, Clone, Copy)]
pub struct Passed {
    pub bytes: u64,
    pub since: Duration,
    pub reached_pg: Option<Duration>,
    pub executed: Option<Duration>,
    pub answered: Duration,
    /// What its answer had waited for last; None: it did not wait.
    pub last: Option<Word>,
}

/// The stages of one operation: until its PG has it, until it is executed, until its answer may go.
pub(super) fn stages(p: &Passed) -> [Duration; 3] {
    let reached = p.reached_pg.unwrap_or(p.answered).clamp(p.since, p.answered);
    let executed = p.executed.unwrap_or(p.answered).clamp(reached, p.answered);
    [reached - p.since, executed - reached, p.answered - executed]
}

#[derive(Debug, Default)]
struct Row {
    /// Of the last operation.
    addr: Option<EntityAddr>,
    ops: u64,
    bytes: u64,
    slowest: Duration,
    /// Sums of [`stages`].
    stages: [Duration; 3],
    /// The last stage of those that waited, by what for: how many, and their sum.
    last: BTreeMap<Word, (u64, Duration)>,
}

impl Row {
    fn add(&mut self, p: &Passed) {
        let of = stages(p);
        self.ops += 1;
        self.bytes += p.bytes;
        self.slowest = self.slowest.max(p.answered.saturating_sub(p.since));
        for (sum, one) in self.stages.iter_mut().zip(of) {
            *sum += one;
        }
        if let Some(word) = p.last {
            let last = self.last.entry(word).or_default();
            *last = (last.0 + 1, last.1 + of[2]);
        }
    }

    fn json(&self) -> Value {
        let [queue, turn, durable] = self.stages.map(|d| d.as_secs_f64());
        let last = self.last.iter().map(|(word, (ops, sum))| {
            let by = match word {
                Word::Disk => json!("disk"),
                Word::Osd(osd) => json!(osd),
                Word::Change => json!("change"),
            };
            json!({"by": by, "ops": ops, "seconds": sum.as_secs_f64()})
        });
        json!({
            "ops": self.ops,
            "bytes": self.bytes,
            "slowest": self.slowest.as_secs_f64(),
            "queue": queue,
            "turn": turn,
            "durable": durable,
            "last": last.collect::<Vec<_>>(),
        })
    }
}

#[derive(Debug, Default)]
struct Asked {
    began: Duration,
    until: Duration,
    rows: BTreeMap<Whose, Row>,
    others: Row,
}

#[derive(Debug, Default)]
pub struct Stages(Option<Box<Asked>>);

impl Stages {
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Counts from now on, or goes on counting, for so long.
    pub fn ask(&mut self, now: Duration, long: Duration) {
        self.turn(now);
        let asked = self.0.get_or_insert_with(|| {
            Box::new(Asked {
                began: now,
                ..Asked::default()
            })
        });
        asked.until = asked.until.max(now + long.min(KEPT_MAX));
    }

    /// What nobody has asked about for long is given up. About once a second.
    pub fn turn(&mut self, now: Duration) {
        if self.0.as_ref().is_some_and(|asked| now >= asked.until) {
            self.0 = None;
        }
    }

    pub fn count(&mut self, whose: Whose, addr: EntityAddr, passed: &Passed) {
        let Some(asked) = &mut self.0 else { return };
        let room = asked.rows.len() < ROWS_MAX;
        let row = match asked.rows.get_mut(&whose) {
            Some(row) => row,
            None if room => asked.rows.entry(whose).or_default(),
            None => &mut asked.others,
        };
        row.addr = Some(addr);
        row.add(passed);
    }

    /// Sums since it began to count; `number` differs where it began anew in between.
    pub fn json(&self, now: Duration) -> Value {
        let Some(asked) = &self.0 else { return Value::Null };
        let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
        let row = |(whose, row): (&Whose, &Row)| {
            let mut json = row.json();
            json["pool"] = json!(whose.pool);
            json["namespace"] = json!(text(&whose.namespace));
            json["image"] = json!(text(&whose.image));
            json["client"] = json!(whose.client.to_string());
            json["addr"] = json!(row.addr.map(|a| a.place_and_nonce()));
            json["write"] = json!(whose.is_write);
            json
        };
        json!({
            "number": asked.began.as_micros() as u64,
            "seconds": now.saturating_sub(asked.began).as_secs_f64(),
            "rows": asked.rows.iter().map(row).collect::<Vec<_>>(),
            "others": asked.others.json(),
        })
    }
}

impl Whose {
    /// `pool`: of the PG, where the operation is of no image.
    pub fn of(pool: PoolId, image: Option<&images::Key>, client: EntityName, is_write: bool) -> Self {
        let (pool, namespace, id) = match image {
            Some(key) => key.parts(),
            None => (pool, &[][..], &[][..]),
        };
        Self {
            pool,
            namespace: namespace.to_vec(),
            image: id.to_vec(),
            client,
            is_write,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    fn whose(client: u64) -> Whose {
        Whose::of(1, None, EntityName::client(client), true)
    }

    fn passed(at: u64, last: Option<Word>) -> Passed {
        Passed {
            bytes: 4096,
            since: MS(at),
            reached_pg: Some(MS(at + 1)),
            executed: Some(MS(at + 3)),
            answered: MS(at + 10),
            last,
        }
    }

    #[test]
    fn the_stages_of_what_was_counted_add_up() {
        let mut s = Stages::default();
        s.count(whose(1), EntityAddr::BLANK, &passed(0, None));
        assert_eq!(s.json(MS(1)), Value::Null, "nobody has asked");
        s.ask(MS(100), MS(5000));
        s.count(whose(1), EntityAddr::BLANK, &passed(200, Some(Word::Disk)));
        s.count(whose(1), EntityAddr::BLANK, &passed(300, Some(Word::Osd(2))));
        s.count(whose(1), EntityAddr::BLANK, &passed(400, Some(Word::Osd(2))));
        let all = s.json(MS(1100));
        assert_eq!(all["seconds"], 1.0);
        let row = &all["rows"][0];
        assert_eq!(
            (&row["ops"], &row["bytes"], &row["slowest"]),
            (&json!(3), &json!(12288), &json!(0.01))
        );
        assert_eq!(
            (&row["queue"], &row["turn"], &row["durable"]),
            (&json!(0.003), &json!(0.006), &json!(0.021))
        );
        let last = json!([{"by": "disk", "ops": 1, "seconds": 0.007}, {"by": 2, "ops": 2, "seconds": 0.014}]);
        assert_eq!(row["last"], last);
        // One that did not wait has no part in who was waited for.
        s.count(whose(1), EntityAddr::BLANK, &passed(500, None));
        let row = &s.json(MS(1100))["rows"][0];
        assert_eq!((&row["ops"], &row["last"]), (&json!(4), &last));
    }

    #[test]
    fn an_operation_that_was_refused_early_has_one_stage() {
        let p = Passed {
            reached_pg: None,
            executed: None,
            ..passed(0, None)
        };
        assert_eq!(stages(&p), [MS(10), MS(0), MS(0)]);
    }

    #[test]
    fn it_ends_by_itself_and_asking_again_goes_on() {
        let mut s = Stages::default();
        s.ask(MS(0), MS(1000));
        s.count(whose(1), EntityAddr::BLANK, &passed(0, None));
        s.ask(MS(900), MS(1000));
        s.turn(MS(1800));
        assert_eq!(
            s.json(MS(1800))["rows"][0]["ops"],
            1,
            "the first question's sums are kept"
        );
        s.turn(MS(1900));
        assert!(!s.is_on());
        s.ask(MS(2000), Duration::MAX);
        s.turn(MS(2000) + KEPT_MAX);
        assert!(!s.is_on(), "nobody counts for ever");
    }

    #[test]
    fn rows_are_bounded() {
        let mut s = Stages::default();
        s.ask(MS(0), MS(1000));
        for client in 0..ROWS_MAX as u64 + 5 {
            s.count(whose(client), EntityAddr::BLANK, &passed(0, None));
        }
        s.count(whose(0), EntityAddr::BLANK, &passed(0, None));
        let all = s.json(MS(20));
        assert_eq!(all["rows"].as_array().map(Vec::len), Some(ROWS_MAX));
        assert_eq!(all["others"]["ops"], 5);
        assert_eq!(all["rows"][0]["ops"], 2);
    }
}
