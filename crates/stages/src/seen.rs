//! What the OSDs counted between two answers to `dump_op_stages`.

use serde_json::Value;
use std::collections::BTreeMap;
use types::OsdId;

/// What one client did to one image (or to a pool's other objects), at one OSD.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    pub osd: OsdId,
    pub of: Subject,
    pub addr: String,
    pub sum: Sum,
    /// The last stage of what waited for it, by whose word it ended.
    pub last: BTreeMap<Word, Last>,
    /// It is asked about.
    pub mine: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Subject {
    pub pool: i64,
    pub namespace: String,
    /// Its id; empty: of no image.
    pub image: String,
    pub client: String,
    pub write: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Word {
    /// That of the row's own OSD's disk.
    Disk,
    Osd(OsdId),
    /// Nobody's: the group's members changed.
    Change,
}

/// Seconds of all operations together.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Sum {
    pub ops: f64,
    pub bytes: f64,
    pub queue: f64,
    pub turn: f64,
    pub durable: f64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Last {
    pub ops: f64,
    pub seconds: f64,
}

/// One OSD, by itself.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Host {
    /// Between the two answers, by its own clock.
    pub seconds: f64,
    /// Mean time until a write is on its disk; None: too few were looked at.
    pub commit: Option<f64>,
    /// How much of the time its loop did not wait, and the thread that it shares with others.
    pub busy: f64,
    pub thread: String,
    pub recovery: f64,
    pub scrub: f64,
    pub in_flight: u64,
    pub trips: BTreeMap<OsdId, f64>,
    pub held: Vec<Held>,
}

/// What a limit of `ceph qos` held back.
#[derive(Debug, Clone, PartialEq)]
pub struct Held {
    /// As `dump_qos` names its subject.
    pub of: Value,
    pub limits: Value,
    pub times: f64,
}

#[derive(Debug, Default)]
pub struct Seen {
    pub rows: Vec<Row>,
    pub osds: BTreeMap<OsdId, Host>,
    /// OSDs of which nothing is known, and why.
    pub silent: Vec<(OsdId, String)>,
    /// Operations beyond the rows that an OSD keeps.
    pub uncounted: f64,
}

impl Sum {
    pub fn all(&self) -> f64 {
        self.queue + self.turn + self.durable
    }

    pub fn add(&mut self, other: &Self) {
        self.ops += other.ops;
        self.bytes += other.bytes;
        self.queue += other.queue;
        self.turn += other.turn;
        self.durable += other.durable;
    }

    fn of(row: &Value) -> Self {
        let number = |name: &str| row[name].as_f64().unwrap_or(0.0);
        Self {
            ops: number("ops"),
            bytes: number("bytes"),
            queue: number("queue"),
            turn: number("turn"),
            durable: number("durable"),
        }
    }

    fn since(&self, before: &Self) -> Self {
        let less = |now: f64, then: f64| (now - then).max(0.0);
        Self {
            ops: less(self.ops, before.ops),
            bytes: less(self.bytes, before.bytes),
            queue: less(self.queue, before.queue),
            turn: less(self.turn, before.turn),
            durable: less(self.durable, before.durable),
        }
    }
}

fn text(v: &Value) -> String {
    v.as_str().unwrap_or_default().to_string()
}

fn row(osd: OsdId, v: &Value) -> Row {
    let one = |l: &Value| {
        let by = match (l["by"].as_i64(), l["by"].as_str()) {
            (Some(osd), _) => Word::Osd(osd as OsdId),
            (None, Some("disk")) => Word::Disk,
            _ => Word::Change,
        };
        let ops = l["ops"].as_f64().unwrap_or(0.0);
        let seconds = l["seconds"].as_f64().unwrap_or(0.0);
        (by, Last { ops, seconds })
    };
    Row {
        osd,
        of: Subject {
            pool: v["pool"].as_i64().unwrap_or(-1),
            namespace: text(&v["namespace"]),
            image: text(&v["image"]),
            client: text(&v["client"]),
            write: v["write"] == true,
        },
        addr: text(&v["addr"]),
        sum: Sum::of(v),
        last: v["last"].as_array().into_iter().flatten().map(one).collect(),
        mine: false,
    }
}

fn rows(osd: OsdId, told: &Value) -> impl Iterator<Item = Row> {
    told["rows"]
        .as_array()
        .into_iter()
        .flatten()
        .map(move |v| row(osd, v))
}

impl Row {
    fn since(mut self, before: &Self) -> Self {
        self.sum = self.sum.since(&before.sum);
        for (by, last) in &mut self.last {
            if let Some(then) = before.last.get(by) {
                last.ops = (last.ops - then.ops).max(0.0);
                last.seconds = (last.seconds - then.seconds).max(0.0);
            }
        }
        self
    }
}

impl Seen {
    /// Two answers of one OSD, in their order.
    pub fn add(&mut self, osd: OsdId, before: &Value, after: &Value) {
        if before["number"] != after["number"] {
            let why = "it was restarted, or forgot what it had counted: ask again";
            return self.silent.push((osd, why.into()));
        }
        let old: BTreeMap<Subject, Row> = rows(osd, before).map(|row| (row.of.clone(), row)).collect();
        for row in rows(osd, after) {
            let row = match old.get(&row.of) {
                Some(b) => row.since(b),
                None => row,
            };
            if row.sum.ops > 0.0 {
                self.rows.push(row);
            }
        }
        let others = |v: &Value| v["others"]["ops"].as_f64().unwrap_or(0.0);
        self.uncounted += (others(after) - others(before)).max(0.0);
        self.osds.insert(osd, host(before, after));
    }

    /// What limits held back at all OSDs, of subjects that are wanted.
    pub fn held(&self, wanted: impl Fn(&Value) -> bool) -> Vec<Held> {
        let mut all: Vec<Held> = Vec::new();
        for h in self
            .osds
            .values()
            .flat_map(|host| &host.held)
            .filter(|h| wanted(&h.of))
        {
            match all.iter_mut().find(|a| a.of == h.of) {
                Some(a) => a.times += h.times,
                None => all.push(h.clone()),
            }
        }
        all
    }

    /// How much of the time the thread of an OSD worked, for all OSDs that share it.
    pub fn thread_busy(&self, osd: OsdId) -> f64 {
        let Some(host) = self.osds.get(&osd) else {
            return 0.0;
        };
        let same = self.osds.values().filter(|h| h.thread == host.thread);
        same.map(|h| h.busy).sum::<f64>().min(1.0)
    }

    /// The median of what the other OSDs have, of those that have it.
    pub fn median(&self, of: impl Fn(&Host) -> Option<f64>, but: OsdId) -> Option<f64> {
        let others = self.osds.iter().filter(|(osd, _)| **osd != but);
        let mut all: Vec<f64> = others.filter_map(|(_, host)| of(host)).collect();
        all.sort_by(f64::total_cmp);
        all.get(all.len() / 2).copied()
    }

    /// Operations per second, each OSD by its own time between the answers.
    pub fn rate(&self, row: &Row) -> f64 {
        self.osds.get(&row.osd).map_or(0.0, |h| row.sum.ops / h.seconds)
    }
}

fn host(before: &Value, after: &Value) -> Host {
    let here = |v: &Value, path: &str| v.pointer(path).and_then(Value::as_f64).unwrap_or(0.0);
    let more = |path: &str| (here(after, path) - here(before, path)).max(0.0);
    let seconds = more("/now").max(1e-3);
    let samples = more("/here/commits/samples");
    let trip = |t: &Value| Some((t["osd"].as_i64()? as OsdId, t["seconds"].as_f64()?));
    let trips = after.pointer("/here/round_trips").and_then(Value::as_array);
    Host {
        seconds,
        commit: (samples >= 3.0).then(|| more("/here/commits/seconds") / samples),
        busy: (more("/here/loop_seconds") / seconds).min(1.0),
        thread: text(&after["here"]["thread"]),
        recovery: more("/here/recovery_bytes") / seconds,
        scrub: more("/here/scrub_bytes") / seconds,
        in_flight: here(after, "/here/in_flight") as u64,
        trips: trips.into_iter().flatten().filter_map(trip).collect(),
        held: held(before, after),
    }
}

fn held(before: &Value, after: &Value) -> Vec<Held> {
    let limits = |v: &Value| {
        v.pointer("/here/limits")
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default()
    };
    let count = |v: &Value| v["held_back"].as_f64().unwrap_or(0.0);
    let before = limits(before);
    let one = |now: &Value| {
        let then = before.iter().find(|b| b["of"] == now["of"]).map_or(0.0, count);
        let times = count(now) - then;
        (times > 0.0).then(|| Held {
            of: now["of"].clone(),
            limits: now["limits"].clone(),
            times,
        })
    };
    limits(after).iter().filter_map(one).collect()
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use serde_json::json;

    /// An answer, `at` seconds after the OSD's start.
    pub fn told(number: u64, at: f64, rows: Value, commits: (u64, f64)) -> Value {
        json!({
            "number": number, "now": at, "rows": rows, "others": {"ops": 0},
            "here": {
                "commits": {"samples": commits.0, "seconds": commits.1}, "loop_seconds": at / 10.0, "thread": "1 a",
                "recovery_bytes": 0, "scrub_bytes": 0, "in_flight": 1, "round_trips": [{"osd": 2, "seconds": 0.0002}],
            },
        })
    }

    pub fn one(client: u64, ops: u64, durable: f64, last: Value) -> Value {
        json!({
            "pool": 1, "namespace": "", "image": "abc", "client": format!("client.{client}"), "addr": "10.0.0.7:0/1",
            "write": true, "ops": ops, "bytes": ops * 4096, "queue": 0.01, "turn": 0.02, "durable": durable, "last": last,
        })
    }

    #[test]
    fn what_limits_held_back_meanwhile() {
        let answer = |image: u64, pool: u64| {
            let limit = |of: Value, n: u64| json!({"of": of, "limits": {"iops_limit": 10}, "held_back": n});
            let mut v = told(1, 1.0, json!([]), (0, 0.0));
            v["here"]["limits"] = json!([
                limit(json!({"pool": 1, "id": "abc"}), image),
                limit(json!({"pool": 1}), pool)
            ]);
            v
        };
        let held = held(&answer(4, 9), &answer(7, 9));
        assert_eq!(
            (held.len(), held[0].times, &held[0].of["id"]),
            (1, 3.0, &json!("abc"))
        );
    }

    #[test]
    fn what_came_between_two_answers() {
        let last = |ops: u64, seconds: f64| json!([{"by": "disk", "ops": ops, "seconds": seconds}]);
        let before = told(7, 10.0, json!([one(1, 100, 1.0, last(100, 1.0))]), (10, 0.01));
        let rows = json!([one(1, 150, 1.5, last(150, 1.5)), one(2, 5, 0.1, last(5, 0.1))]);
        let after = told(7, 15.0, rows, (30, 0.05));
        let mut seen = Seen::default();
        seen.add(0, &before, &after);
        let [first, second] = &seen.rows[..] else {
            panic!("{:?}", seen.rows)
        };
        assert_eq!(
            (first.sum.ops, first.sum.durable, first.sum.queue),
            (50.0, 0.5, 0.0)
        );
        assert_eq!(
            first.last[&Word::Disk],
            Last {
                ops: 50.0,
                seconds: 0.5
            }
        );
        assert_eq!((second.of.client.as_str(), second.sum.ops), ("client.2", 5.0));
        let host = &seen.osds[&0];
        assert_eq!(
            (host.seconds, host.commit, seen.rate(first)),
            (5.0, Some(0.002), 10.0)
        );
        assert!((host.busy - 0.1).abs() < 1e-9);
        // Two OSDs on one thread.
        seen.add(1, &before, &after);
        assert!((seen.thread_busy(0) - 0.2).abs() < 1e-9);
    }

    #[test]
    fn an_osd_that_began_anew_says_nothing() {
        let last = json!([{"by": "disk", "ops": 50, "seconds": 0.5}]);
        let mut seen = Seen::default();
        let before = told(7, 10.0, json!([]), (10, 0.01));
        seen.add(
            3,
            &before,
            &told(8, 2.0, json!([one(1, 50, 0.5, last)]), (12, 0.02)),
        );
        assert!(seen.rows.is_empty() && seen.osds.is_empty());
        assert_eq!(seen.silent.len(), 1);
    }
}
