//! Where the time of operations went, and the likeliest reason for each part, out of what the OSDs counted. Pure.

use super::seen::{Row, Seen, Sum};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use types::OsdId;

/// Parts below this share of the time are not told.
const TOLD_FROM: f64 = 0.05;
const TOLD_MAX: usize = 6;
/// Above this a loop keeps what comes waiting.
const BUSY: f64 = 0.8;
/// A reason accounts for a part if it is so much of it.
const ACCOUNTS: f64 = 0.5;
/// Bytes per second of recovery or scrub that are worth a word.
const MOVES: f64 = 1e6;

/// A place where operations wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// Until its group at this OSD has it.
    Queue(OsdId),
    /// In its group, until it is executed.
    ReadTurn(OsdId),
    WriteTurn(OsdId),
    /// Until the disk of this OSD, where the group is led, has it.
    Own(OsdId),
    /// Until the other OSD says that it has it: led by, other.
    Other(OsdId, OsdId),
}

impl Place {
    /// The OSD at which something is to be looked at.
    pub fn osd(self) -> OsdId {
        match self {
            Self::Queue(o) | Self::ReadTurn(o) | Self::WriteTurn(o) | Self::Own(o) | Self::Other(_, o) => o,
        }
    }
}

/// One part of the time.
#[derive(Debug, Clone, PartialEq)]
pub struct Cause {
    /// Of all the time of these operations.
    pub share: f64,
    /// Seconds for each operation that waited there.
    pub mean: f64,
    pub what: String,
    /// What accounts for it, with figures; empty: nothing that is counted does.
    pub why: Vec<String>,
    pub next: Option<String>,
}

impl Cause {
    pub fn json(&self) -> Value {
        json!({"share": self.share, "mean_seconds": self.mean, "where": self.what, "because": self.why, "next": self.next})
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

fn places<'a>(rows: impl Iterator<Item = &'a Row>) -> BTreeMap<Place, (f64, f64)> {
    let mut all: BTreeMap<Place, (f64, f64)> = BTreeMap::new();
    let mut add = |place, ops, seconds| {
        let (n, s) = all.entry(place).or_default();
        (*n, *s) = (*n + ops, *s + seconds);
    };
    for row in rows {
        let turn = match row.write {
            true => Place::WriteTurn(row.osd),
            false => Place::ReadTurn(row.osd),
        };
        add(Place::Queue(row.osd), row.sum.ops, row.sum.queue);
        add(turn, row.sum.ops, row.sum.turn);
        for (by, last) in &row.last {
            let place = by.map_or(Place::Own(row.osd), |by| Place::Other(row.osd, by));
            add(place, last.ops, last.seconds);
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
    for (place, (ops, seconds)) in places(mine()) {
        let (share, mean) = (seconds / total, seconds / ops.max(1.0));
        if share >= TOLD_FROM {
            let (what, mut why, next) = explain(place, mean, seen);
            why.extend(also(place.osd(), seen));
            all.push(Cause { share, mean, what, why, next });
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

type Told = (String, Vec<String>, Option<String>);

fn explain(place: Place, mean: f64, seen: &Seen) -> Told {
    let busy = |osd: OsdId| seen.osds.get(&osd).map_or(0.0, |h| h.busy);
    let loop_of = |osd: OsdId| {
        (busy(osd) >= BUSY).then(|| {
            let why = format!("the thread of osd.{osd} works {:.0} % of the time", busy(osd) * 100.0);
            let next = "more OSDs or processors, or fewer operations: `skep why` without a name shows whose they are";
            (why, next.to_string())
        })
    };
    match place {
        Place::Queue(osd) => {
            let what = format!("before the placement group at osd.{osd} has it");
            match loop_of(osd) {
                Some((why, next)) => (what, vec![why], Some(next)),
                None => {
                    let next = "`skep doctor`: groups that are not active, disks without room; clients whose answers are not taken";
                    (what, Vec::new(), Some(next.into()))
                }
            }
        }
        Place::ReadTurn(osd) => {
            let what = format!("reads, at osd.{osd}: from the disk, or behind a write of the object that is not durable yet");
            let (why, next) = loop_of(osd).unzip();
            (what, why.into_iter().collect(), next)
        }
        Place::WriteTurn(osd) => {
            let what = format!("writes, at osd.{osd}: behind others of the same object, or reads that they need");
            let (why, next) = loop_of(osd).unzip();
            (what, why.into_iter().collect(), next)
        }
        Place::Own(osd) => {
            let what = format!("until osd.{osd}, which leads, has it on its disk");
            let (why, next) = disk(osd, mean, seen).or_else(|| loop_of(osd)).unzip();
            (what, why.into_iter().collect(), next)
        }
        Place::Other(leads, osd) => {
            let what = format!("until osd.{osd} has told osd.{leads} that it has it");
            let found = disk(osd, mean, seen)
                .or_else(|| way(leads, osd, mean, seen))
                .or_else(|| loop_of(osd))
                .or_else(|| loop_of(leads));
            let (why, next) = found.unzip();
            (what, why.into_iter().collect(), next)
        }
    }
}

/// The disk accounts for it.
fn disk(osd: OsdId, mean: f64, seen: &Seen) -> Option<(String, String)> {
    let commit = seen.osds.get(&osd)?.commit.filter(|c| *c >= mean * ACCOUNTS)?;
    let others = match seen.median(|h| h.commit, osd) {
        Some(other) => format!("; on the other OSDs {}", ms(other)),
        None => String::new(),
    };
    let why = format!("a flush of osd.{osd}'s disk takes {}{others}", ms(commit));
    let next = format!("what else writes to the disk of osd.{osd}; `skep preflight` on its machine measures it");
    Some((why, next))
}

/// The network accounts for it.
fn way(from: OsdId, to: OsdId, mean: f64, seen: &Seen) -> Option<(String, String)> {
    let trips = &seen.osds.get(&from)?.trips;
    let trip = trips.get(&to).filter(|t| **t >= mean * ACCOUNTS)?;
    let why = format!("a round trip from osd.{from} to osd.{to} takes {}", ms(*trip));
    Some((why, "the network between the two machines: `ceph tell osd.N dump_osd_network 0`".into()))
}

/// What else goes on there.
fn also(osd: OsdId, seen: &Seen) -> Vec<String> {
    let mut all = Vec::new();
    let Some(host) = seen.osds.get(&osd) else {
        return all;
    };
    let megabytes = |n: f64| format!("{:.0} MB/s", n / 1e6);
    if host.recovery >= MOVES {
        all.push(format!("recovery moves {} at osd.{osd}", megabytes(host.recovery)));
    }
    if host.scrub >= MOVES {
        all.push(format!("a scrub reads {} at osd.{osd}", megabytes(host.scrub)));
    }
    let here = |mine: bool| seen.rows.iter().filter(move |r| r.osd == osd && r.mine == mine);
    let mine = sum(here(true));
    let theirs = sum(here(false));
    if theirs.ops > mine.ops || theirs.bytes > mine.bytes {
        let most = here(false).max_by(|a, b| a.sum.bytes.total_cmp(&b.sum.bytes));
        let of_all = theirs.ops / (theirs.ops + mine.ops).max(1.0) * 100.0;
        if let Some(most) = most {
            all.push(format!(
                "others do {of_all:.0} % of the operations at osd.{osd} that osd.{osd} answers, most bytes {} ({})",
                most.client, most.addr
            ));
        }
    }
    all
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
        let last = json!([{"osd": null, "ops": 10, "seconds": 0.01}, {"osd": 2, "ops": 90, "seconds": 0.9}]);
        let seen = seen(&[
            (0, json!([one(1, 100, 0.91, last)]), (50, 0.05)),
            (1, json!([]), (50, 0.05)),
            (2, json!([]), (50, 0.45)),
        ]);
        let all = causes(&seen);
        assert_eq!(all.len(), 1, "{all:?}");
        assert!(all[0].share > 0.9 && (all[0].mean - 0.01).abs() < 1e-9);
        assert_eq!(all[0].what, "until osd.2 has told osd.0 that it has it");
        assert_eq!(all[0].why, ["a flush of osd.2's disk takes 9.00 ms; on the other OSDs 1.00 ms"]);
    }

    #[test]
    fn a_long_way_is_named_where_no_disk_is_slow() {
        let last = json!([{"osd": 2, "ops": 100, "seconds": 0.03}]);
        let mut seen = seen(&[(0, json!([one(1, 100, 0.03, last)]), (50, 0.005)), (2, json!([]), (50, 0.005))]);
        let near = causes(&seen);
        let place = "until osd.2 has told osd.0 that it has it";
        let of = |all: &[Cause]| all.iter().find(|c| c.what == place).map(|c| c.why.clone());
        assert_eq!(of(&near), Some(vec!["a round trip from osd.0 to osd.2 takes 0.20 ms".to_string()]));
        // Neither: that is said, too.
        if let Some(host) = seen.osds.get_mut(&0) {
            host.trips.clear();
        }
        let none = causes(&seen);
        assert_eq!(of(&none), Some(vec![]));
    }

    #[test]
    fn a_neighbour_and_a_busy_thread_are_named() {
        let own = |n: u64| json!([{"osd": null, "ops": n, "seconds": n as f64 * 0.01}]);
        let rows = json!([one(1, 10, 0.1, own(10)), one(2, 990, 9.9, own(990))]);
        let mut seen = seen(&[(0, rows, (50, 0.005))]);
        if let Some(host) = seen.osds.get_mut(&0) {
            host.busy = 0.97;
        }
        for row in &mut seen.rows {
            row.mine = row.client == "client.1";
        }
        let all = causes(&seen);
        assert_eq!(all[0].why[0], "the thread of osd.0 works 97 % of the time");
        assert!(all[0].why[1].starts_with("others do 99 % of the operations"), "{all:?}");
        assert!(all[0].why[1].contains("client.2 (10.0.0.7:0/1)"), "{all:?}");
    }

    #[test]
    fn nothing_done_has_no_cause() {
        let seen = seen(&[(0, json!([]), (0, 0.0))]);
        assert_eq!(causes(&seen), vec![]);
    }
}
