//! Where the time of operations went, and the likeliest reason for each part, out of what the OSDs counted. Pure.

use super::seen::{Row, Seen, Sum, Word};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use types::OsdId;

/// Places below this share of the time are told together.
const TOLD_FROM: f64 = 0.05;
const TOLD_MAX: usize = 6;
/// So many OSDs are told one by one.
const FEW: f64 = 4.0;
/// Above this a thread keeps what comes waiting.
pub const BUSY: f64 = 0.8;
/// A reason accounts for a part if it is so much of it.
const ACCOUNTS: f64 = 0.5;
/// Bytes per second of recovery or scrub that are worth a word.
const MOVES: f64 = 1e6;

/// What operations wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// Until their group has them.
    Queue,
    /// In their group, until they are executed.
    ReadTurn,
    WriteTurn,
    /// Until they are durable there.
    Durable,
    /// Until somebody who did not answer counted no more.
    Change,
}

/// One part of the time.
#[derive(Debug, Clone, PartialEq)]
pub struct Cause {
    /// Of all the time of these operations.
    pub share: f64,
    /// Seconds for each operation that waited there.
    pub mean: f64,
    /// Where that is, if it is one OSD.
    pub osd: Option<OsdId>,
    pub what: String,
    /// What accounts for it, with figures; empty: nothing that is counted does.
    pub why: Vec<String>,
    pub next: Option<String>,
}

impl Cause {
    pub fn json(&self) -> Value {
        json!({"share": self.share, "mean_seconds": self.mean, "osd": self.osd, "where": self.what, "because": self.why, "next": self.next})
    }
}

/// Sums over rows.
pub fn sum<'a>(rows: impl IntoIterator<Item = &'a Row>) -> Sum {
    let mut all = Sum::default();
    for row in rows {
        all.add(&row.sum);
    }
    all
}

#[derive(Debug, Clone, Copy, Default)]
struct Part {
    ops: f64,
    seconds: f64,
    /// Who leads the groups of most of it, and how much that is.
    leads: (OsdId, f64),
}

impl Part {
    fn add(&mut self, ops: f64, seconds: f64, leads: OsdId) {
        self.ops += ops;
        self.seconds += seconds;
        if seconds > self.leads.1 {
            self.leads = (leads, seconds);
        }
    }

    fn mean(&self) -> f64 {
        self.seconds / self.ops.max(1.0)
    }
}

/// By what is waited for, and the OSD where it is.
fn places<'a>(rows: impl Iterator<Item = &'a Row>) -> BTreeMap<(Kind, OsdId), Part> {
    let mut all: BTreeMap<(Kind, OsdId), Part> = BTreeMap::new();
    for row in rows {
        let turn = match row.of.write {
            true => Kind::WriteTurn,
            false => Kind::ReadTurn,
        };
        let mut add = |kind, osd, ops, seconds| {
            all.entry((kind, osd)).or_default().add(ops, seconds, row.osd);
        };
        add(Kind::Queue, row.osd, row.sum.ops, row.sum.queue);
        add(turn, row.osd, row.sum.ops, row.sum.turn);
        for (by, last) in &row.last {
            let (kind, osd) = match by {
                Word::Disk => (Kind::Durable, row.osd),
                Word::Osd(osd) => (Kind::Durable, *osd),
                Word::Change => (Kind::Change, row.osd),
            };
            add(kind, osd, last.ops, last.seconds);
        }
    }
    all
}

/// Of the rows that are asked about; by share, the largest first.
pub fn causes(seen: &Seen) -> Vec<Cause> {
    let mine = || seen.rows.iter().filter(|r| r.mine);
    let total = sum(mine()).all();
    if total <= 0.0 {
        return Vec::new();
    }
    let mut all: Vec<Cause> = Vec::new();
    let mut rest: BTreeMap<Kind, (Part, usize)> = BTreeMap::new();
    let places = places(mine());
    // Of many OSDs those that have much more of it than the others.
    let of_kind = |kind: Kind| {
        let parts = places.iter().filter(|((k, _), _)| *k == kind);
        parts.fold((0.0, 0.0), |(n, sum), (_, part)| (n + 1.0, sum + part.seconds))
    };
    for ((kind, osd), part) in &places {
        let (kind, osd) = (*kind, *osd);
        let share = part.seconds / total;
        let (count, sum) = of_kind(kind);
        let stands_out = count <= FEW || part.seconds >= 2.0 * sum / count;
        if share < TOLD_FROM || !stands_out {
            let (sum, osds) = rest.entry(kind).or_default();
            sum.add(part.ops, part.seconds, osd);
            *osds += 1;
            continue;
        }
        let (what, mut why, next) = explain(kind, osd, part, seen);
        why.extend(also(osd, seen));
        let osd = Some(osd);
        all.push(Cause {
            share,
            mean: part.mean(),
            osd,
            what,
            why,
            next,
        });
    }
    for (kind, (part, osds)) in rest {
        let share = part.seconds / total;
        if share >= TOLD_FROM {
            let what = format!(
                "{}, spread over {osds} OSDs, none of them with much more than the others",
                words(kind)
            );
            all.push(Cause {
                share,
                mean: part.mean(),
                osd: None,
                what,
                why: Vec::new(),
                next: None,
            });
        }
    }
    all.sort_by(|a, b| b.share.total_cmp(&a.share));
    all.truncate(TOLD_MAX);
    all
}

pub fn ms(seconds: f64) -> String {
    match seconds * 1000.0 {
        ms if ms >= 100.0 => format!("{ms:.0} ms"),
        ms if ms >= 10.0 => format!("{ms:.1} ms"),
        ms => format!("{ms:.2} ms"),
    }
}

fn words(kind: Kind) -> &'static str {
    match kind {
        Kind::Queue => {
            "before the placement group has it (a newer map, the OSD's lease, room for the answer)"
        }
        Kind::ReadTurn => {
            "reads, in the group: from the disk, behind a write of the object, or until the group is active"
        }
        Kind::WriteTurn => {
            "writes, in the group: behind others of the same object, for what they read, or until the group is active"
        }
        Kind::Durable => "until writes are durable",
        Kind::Change => "until an OSD that did not answer counted no more",
    }
}

type Told = (String, Vec<String>, Option<String>);

fn explain(kind: Kind, osd: OsdId, part: &Part, seen: &Seen) -> Told {
    let found = match kind {
        Kind::Durable => disk(osd, part.mean(), seen)
            .or_else(|| way(part.leads.0, osd, part.mean(), seen))
            .or_else(|| thread(osd, seen))
            .or_else(|| thread(part.leads.0, seen)),
        Kind::Queue | Kind::ReadTurn | Kind::WriteTurn => thread(osd, seen),
        Kind::Change => None,
    };
    let what = match kind {
        Kind::Durable => format!(
            "until osd.{osd} has it durable, and osd.{}, which leads most of the groups, knows",
            part.leads.0
        ),
        kind => format!("{}, at osd.{osd}", words(kind)),
    };
    let what = match kind {
        Kind::Durable if part.leads.0 == osd => format!("until osd.{osd} has it durable"),
        _ => what,
    };
    let otherwise = match kind {
        Kind::Queue | Kind::WriteTurn | Kind::ReadTurn => {
            Some("`skep doctor`: groups that are not active, disks without room".to_string())
        }
        Kind::Change => {
            Some("`skep doctor`, `ceph osd tree`: an OSD hung or went down meanwhile".to_string())
        }
        Kind::Durable => None,
    };
    match found {
        Some((why, next)) => (what, vec![why], Some(next)),
        None => (what, Vec::new(), otherwise),
    }
}

/// The thread of an OSD accounts for it.
fn thread(osd: OsdId, seen: &Seen) -> Option<(String, String)> {
    let busy = seen.thread_busy(osd);
    (busy >= BUSY).then(|| {
        let why = format!("the thread of osd.{osd} works {:.0} % of the time", busy * 100.0);
        let next = "more OSDs, threads (--osd-threads) or processors, or fewer operations: `skep why` without a name shows whose they are";
        (why, next.to_string())
    })
}

/// The disk accounts for it.
fn disk(osd: OsdId, mean: f64, seen: &Seen) -> Option<(String, String)> {
    let commit = seen.osds.get(&osd)?.commit.filter(|c| *c >= mean * ACCOUNTS)?;
    let others = match seen.median(|h| h.commit, osd) {
        Some(other) => format!("; on other OSDs {} in the median", ms(other)),
        None => String::new(),
    };
    let why = format!(
        "the disk of osd.{osd} takes {} until a write is durable{others}",
        ms(commit)
    );
    let next =
        format!("what else writes to the disk of osd.{osd}; `skep preflight` on its machine measures it");
    Some((why, next))
}

/// The network accounts for it.
fn way(from: OsdId, to: OsdId, mean: f64, seen: &Seen) -> Option<(String, String)> {
    let trips = &seen.osds.get(&from)?.trips;
    let trip = trips.get(&to).filter(|t| **t >= mean * ACCOUNTS)?;
    let why = format!("a round trip from osd.{from} to osd.{to} takes {}", ms(*trip));
    Some((
        why,
        "the network between the two machines: `ceph tell osd.N dump_osd_network 0`".into(),
    ))
}

/// What else goes on there.
fn also(osd: OsdId, seen: &Seen) -> Vec<String> {
    let mut all = Vec::new();
    let Some(host) = seen.osds.get(&osd) else {
        return all;
    };
    let megabytes = |n: f64| format!("{:.0} MB/s", n / 1e6);
    if host.recovery >= MOVES {
        all.push(format!(
            "recovery moves {} at osd.{osd}",
            megabytes(host.recovery)
        ));
    }
    if host.scrub >= MOVES {
        all.push(format!("a scrub reads {} at osd.{osd}", megabytes(host.scrub)));
    }
    let here = |mine: bool| seen.rows.iter().filter(move |r| r.osd == osd && r.mine == mine);
    let (mine, theirs) = (sum(here(true)), sum(here(false)));
    if theirs.ops > mine.ops || theirs.bytes > mine.bytes {
        let most = here(false).max_by(|a, b| a.sum.bytes.total_cmp(&b.sum.bytes));
        let of_all = theirs.ops / (theirs.ops + mine.ops).max(1.0) * 100.0;
        if let Some(most) = most {
            all.push(format!(
                "others make {of_all:.0} % of the operations that osd.{osd} leads, most bytes {} ({})",
                most.of.client, most.addr
            ));
        }
    }
    all
}

/// Threads that are too busy to take what comes at once: what waits for them in sockets is in no stage.
pub fn busy(seen: &Seen) -> Vec<(OsdId, f64)> {
    let leads = |osd: OsdId| seen.rows.iter().any(|r| r.mine && r.osd == osd);
    let busy = seen.osds.keys().map(|osd| (*osd, seen.thread_busy(*osd)));
    busy.filter(|(osd, busy)| *busy >= BUSY && leads(*osd)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::seen::tests::{one, told};
    use super::*;

    fn seen(answers: &[(OsdId, Value, (u64, f64))]) -> Seen {
        let mut seen = Seen::default();
        for (osd, rows, commits) in answers {
            let before = told(1, 10.0, json!([]), (0, 0.0));
            seen.add(*osd, &before, &told(1, 20.0, rows.clone(), *commits));
        }
        seen.rows.iter_mut().for_each(|r| r.mine = true);
        seen
    }

    #[test]
    fn a_slow_disk_of_another_is_named() {
        let last = json!([{"by": "disk", "ops": 10, "seconds": 0.01}, {"by": 2, "ops": 90, "seconds": 0.9}]);
        let seen = seen(&[
            (0, json!([one(1, 100, 0.91, last)]), (50, 0.05)),
            (1, json!([]), (50, 0.05)),
            (2, json!([]), (50, 0.45)),
        ]);
        let all = causes(&seen);
        assert_eq!(all.len(), 1, "{all:?}");
        assert!(all[0].share > 0.9 && (all[0].mean - 0.01).abs() < 1e-9);
        assert_eq!(
            all[0].what,
            "until osd.2 has it durable, and osd.0, which leads most of the groups, knows"
        );
        let why =
            "the disk of osd.2 takes 9.00 ms until a write is durable; on other OSDs 1.00 ms in the median";
        assert_eq!(all[0].why, [why]);
    }

    /// Twelve OSDs that lead as much, each with two others; osd.5 takes ten times as long, if it does.
    fn many(slow: bool) -> Seen {
        let answers: Vec<(OsdId, Value, (u64, f64))> = (0..12)
            .map(|osd| {
                let seconds = |by: OsdId| if slow && by == 5 { 1.0 } else { 0.1 };
                let last: Vec<Value> = (0..12)
                    .map(|by| match by == osd {
                        true => json!({"by": "disk", "ops": 10, "seconds": seconds(by)}),
                        false => json!({"by": by, "ops": 10, "seconds": seconds(by)}),
                    })
                    .collect();
                let durable = (0..12).map(seconds).sum();
                let commit = if slow && osd == 5 { 5.0 } else { 0.5 };
                (osd, json!([one(1, 120, durable, json!(last))]), (50, commit))
            })
            .collect();
        seen(&answers)
    }

    #[test]
    fn many_osds_have_a_cause_all_the_same() {
        let all = causes(&many(false));
        let durable: f64 = all
            .iter()
            .filter(|c| c.what.contains("durable"))
            .map(|c| c.share)
            .sum();
        assert!(durable > 0.9 && all.len() == 1, "{all:?}");
        assert!(all[0].what.contains("spread over 12 OSDs"), "{all:?}");
        let all = causes(&many(true));
        let named: Vec<&Cause> = all.iter().filter(|c| c.osd.is_some()).collect();
        assert_eq!((named.len(), named[0].osd), (1, Some(5)), "{all:?}");
        assert!(
            named[0].what.starts_with("until osd.5 has it durable") && named[0].share > 0.4,
            "{all:?}"
        );
        assert!(
            named[0].why[0].starts_with("the disk of osd.5 takes 100 ms"),
            "{all:?}"
        );
    }

    #[test]
    fn a_long_way_is_named_where_no_disk_is_slow() {
        let last = json!([{"by": 2, "ops": 100, "seconds": 0.03}]);
        let mut seen = seen(&[
            (0, json!([one(1, 100, 0.03, last)]), (50, 0.005)),
            (2, json!([]), (50, 0.005)),
        ]);
        let of = |all: &[Cause]| {
            let durable = all.iter().find(|c| c.what.contains("osd.2 has it durable"));
            durable.map(|c| c.why.clone())
        };
        let way = "a round trip from osd.0 to osd.2 takes 0.20 ms".to_string();
        assert_eq!(of(&causes(&seen)), Some(vec![way]));
        // Neither: that is said, too.
        if let Some(host) = seen.osds.get_mut(&0) {
            host.trips.clear();
        }
        assert_eq!(of(&causes(&seen)), Some(vec![]));
    }

    #[test]
    fn who_hung_is_not_blamed_on_who_spoke() {
        let last =
            json!([{"by": "change", "ops": 3, "seconds": 60.0}, {"by": "disk", "ops": 97, "seconds": 0.1}]);
        let seen = seen(&[(0, json!([one(1, 100, 60.1, last)]), (50, 0.05))]);
        let all = causes(&seen);
        assert!(
            all[0].what.starts_with("until an OSD that did not answer") && all[0].mean > 19.0,
            "{all:?}"
        );
        assert_eq!(all.len(), 1, "{all:?}");
    }

    #[test]
    fn a_neighbour_and_a_busy_thread_are_named() {
        let own = |n: u64| json!([{"by": "disk", "ops": n, "seconds": n as f64 * 0.01}]);
        let rows = json!([one(1, 10, 0.1, own(10)), one(2, 990, 9.9, own(990))]);
        let mut seen = seen(&[(0, rows, (50, 0.005))]);
        if let Some(host) = seen.osds.get_mut(&0) {
            host.busy = 0.97;
        }
        for row in &mut seen.rows {
            row.mine = row.of.client == "client.1";
        }
        let all = causes(&seen);
        assert_eq!(all[0].why[0], "the thread of osd.0 works 97 % of the time");
        assert!(
            all[0].why[1].starts_with("others make 99 % of the operations"),
            "{all:?}"
        );
        assert!(all[0].why[1].contains("client.2 (10.0.0.7:0/1)"), "{all:?}");
        assert_eq!(busy(&seen), [(0, 0.97)]);
    }

    #[test]
    fn nothing_done_has_no_cause() {
        let seen = seen(&[(0, json!([]), (0, 0.0))]);
        assert_eq!(causes(&seen), vec![]);
    }
}
