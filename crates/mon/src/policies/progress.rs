//! How far healing is: one event from the first copy that lacks to the last one made, with rate and end time.
//!
//! Beside it: since when each placement group is inactive or lacks copies, for the health checks.
//!
//! Every monitor watches for itself, from what the OSDs report; nothing is stored. An event begins when copies
//! lack or lie in the wrong place, and its total grows if more come to lack: then it honestly falls back.
//! The end is reckoned from the last [`WINDOW_SEC`] seconds, not from the beginning, so it follows a changed pace.
//!
//! Bounds: [`SAMPLES_MAX`] samples of the present event, [`DONE_MAX`] past events, one entry for each PG.

use crate::format::units;
use crate::policies::reports::newest_reports;
use cluster::{ClusterState, ClusterStats};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, VecDeque};
use types::osdmap::OsdMap;
use types::pgstats::pg_state;
use types::pool::AUTOSCALE_ON;
use types::{OsdId, PgId, PoolId, Utime};

const WINDOW_SEC: f64 = 30.0;
const SAMPLES_MAX: usize = 64;
const DONE_MAX: usize = 50;
/// Width of the bar.
const BAR: usize = 28;
/// An event this young shows no end time: its pace says nothing yet.
const SETTLED_SEC: f64 = 3.0;
/// A change of the map counts as the cause of what begins within this many seconds.
const CAUSE_SEC: f64 = 60.0;

/// Copies that have to be made, by the primaries' reports.
pub fn copies_left(stats: &ClusterStats) -> u64 {
    let of = |s: &types::pgstats::PgStat| {
        let sum = &s.stats.sum;
        sum.num_objects_degraded.max(0) as u64 + sum.num_objects_misplaced.max(0) as u64
    };
    stats.pgs().map(|(_, _, s)| of(s)).sum()
}

/// Healing in the course.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// As `progress json` names it: unique among this monitor's events.
    pub id: String,
    /// Why it began, as far as the map tells.
    pub message: String,
    pub started: Utime,
    pub total: u64,
    pub left: u64,
    /// Newest last.
    samples: VecDeque<(Utime, u64)>,
}

/// An event that ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Finished {
    pub id: String,
    pub message: String,
    pub started: Utime,
    pub finished: Utime,
}

/// A pool on its way to another number of placement groups, since this monitor sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct Scaling {
    pub id: String,
    pub pool: PoolId,
    pub started: Utime,
    from: u32,
    now: u32,
    to: u32,
    by_itself: bool,
}

impl Scaling {
    pub fn message(&self) -> String {
        let (pool, from, to) = (self.pool, self.from, self.to);
        let way = if to > from { "increasing" } else { "decreasing" };
        match self.by_itself {
            true => format!("PG autoscaler {way} pool {pool} PGs from {from} to {to}"),
            false => format!("{way} pool {pool} PGs from {from} to {to}"),
        }
    }

    pub fn fraction(&self) -> f64 {
        let (done, all) = (self.from.abs_diff(self.now), self.from.abs_diff(self.to));
        f64::from(done) / f64::from(all.max(1))
    }
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Progress {
    pub now: Option<Event>,
    pub done: VecDeque<Finished>,
    pub scaling: BTreeMap<PoolId, Scaling>,
    /// Who was in when last looked, for the cause.
    known_in: Option<Vec<OsdId>>,
    cause: Option<(Utime, String)>,
    count: u64,
    /// PGs that are not well, and since when this monitor sees it.
    inactive: BTreeMap<PgId, Utime>,
    undersized: BTreeMap<PgId, Utime>,
}

impl Event {
    /// Copies per second over the last seconds, if that can be told.
    pub fn pace(&self) -> Option<f64> {
        let (first, last) = (self.samples.front()?, self.samples.back()?);
        let seconds = units::seconds_between(first.0, last.0);
        let made = first.1.checked_sub(last.1)?;
        (seconds > 0.0 && made > 0).then(|| made as f64 / seconds)
    }

    pub fn remaining_sec(&self) -> Option<u64> {
        let (first, last) = (self.samples.front()?, self.samples.back()?);
        if units::seconds_between(first.0, last.0) < SETTLED_SEC {
            return None;
        }
        Some((self.left as f64 / self.pace()?).ceil() as u64)
    }

    pub fn fraction(&self) -> f64 {
        match self.total {
            0 => 0.0,
            total => 1.0 - self.left.min(total) as f64 / total as f64,
        }
    }

    /// The two lines of `status` (with `indent` 6) or `progress` (4).
    pub fn text(&self, now: Utime, indent: usize) -> String {
        let mut out = bar(&self.message, self.started, now, self.fraction(), indent);
        if let Some(sec) = self.remaining_sec() {
            out.push_str(&format!(" (remaining: {})", span(sec)));
        }
        out
    }
}

/// What it is and for how long, and the bar below.
pub fn bar(message: &str, from: Utime, to: Utime, fraction: f64, indent: usize) -> String {
    let full = ((fraction * BAR as f64) as usize).min(BAR);
    format!(
        "{message} ({})\n{}[{}{}]",
        units::age(from, to),
        " ".repeat(indent),
        "=".repeat(full),
        ".".repeat(BAR - full)
    )
}

/// `12s`, `16m`, `3h`: as ages.
fn span(sec: u64) -> String {
    let base = Utime { sec: 1, nsec: 0 };
    let end = Utime {
        sec: 1u32.saturating_add(u32::try_from(sec).unwrap_or(u32::MAX)),
        nsec: 0,
    };
    units::age(base, end)
}

impl Progress {
    /// Looks at the newest reports. Call it about once a second.
    pub fn observe(&mut self, state: &ClusterState, stats: &ClusterStats, now: Utime) {
        self.notice_cause(state, now);
        self.notice_troubles(stats, now);
        self.notice_scaling(&state.osdmap, now);
        let left = copies_left(stats);
        if left == 0 {
            if let Some(e) = self.now.take() {
                self.ended(e.id, e.message, e.started, now);
            }
            return;
        }
        if self.now.is_none() {
            self.now = Some(self.begin(left, now));
        }
        let Some(event) = &mut self.now else { return };
        event.left = left;
        event.total = event.total.max(left);
        event.samples.push_back((now, left));
        while event.samples.len() > SAMPLES_MAX
            || event
                .samples
                .front()
                .is_some_and(|(t, _)| units::seconds_between(*t, now) > WINDOW_SEC)
        {
            event.samples.pop_front();
        }
    }

    fn ended(&mut self, id: String, message: String, started: Utime, finished: Utime) {
        self.done.push_back(Finished {
            id,
            message,
            started,
            finished,
        });
        self.done.drain(..self.done.len().saturating_sub(DONE_MAX));
    }

    fn notice_scaling(&mut self, map: &OsdMap, now: Utime) {
        let on_its_way = |id: &PoolId| {
            let p = map.pool(*id)?;
            let goal = p.pg_num_target;
            (p.pg_num != goal || p.pgp_num != p.pgp_num_target).then_some((p.pg_num, goal))
        };
        let over: Vec<PoolId> = self
            .scaling
            .iter()
            .filter(|(id, s)| on_its_way(id).is_none_or(|(_, goal)| goal != s.to))
            .map(|(id, _)| *id)
            .collect();
        for s in over
            .iter()
            .filter_map(|id| self.scaling.remove(id))
            .collect::<Vec<_>>()
        {
            self.ended(s.id.clone(), s.message(), s.started, now);
        }
        for id in map.pools.keys() {
            let Some((at, goal)) = on_its_way(id).filter(|(at, goal)| at != goal) else {
                continue;
            };
            let scaling = self.scaling.entry(*id).or_insert_with(|| Scaling {
                id: format!("pgs-{id}-{}", now.sec),
                pool: *id,
                started: now,
                from: at,
                now: at,
                to: goal,
                by_itself: map.pool(*id).is_some_and(|p| p.pg_autoscale_mode == AUTOSCALE_ON),
            });
            scaling.now = at;
        }
    }

    /// Since when a PG is inactive; now, if this monitor has not seen it yet.
    pub fn inactive_since(&self, pg: PgId, now: Utime) -> Utime {
        self.inactive.get(&pg).copied().unwrap_or(now)
    }

    /// Since when a PG has fewer OSDs than copies.
    pub fn undersized_since(&self, pg: PgId, now: Utime) -> Utime {
        self.undersized.get(&pg).copied().unwrap_or(now)
    }

    fn notice_troubles(&mut self, stats: &ClusterStats, now: Utime) {
        let newest = newest_reports(stats);
        let with = |wrong: fn(u64) -> bool, old: &BTreeMap<PgId, Utime>| {
            let bad = newest.iter().filter(|(_, (_, s))| wrong(s.state));
            bad.map(|(pg, _)| (*pg, old.get(pg).copied().unwrap_or(now)))
                .collect()
        };
        self.inactive = with(|s| s & pg_state::ACTIVE == 0, &self.inactive);
        self.undersized = with(|s| s & pg_state::UNDERSIZED != 0, &self.undersized);
    }

    fn begin(&mut self, left: u64, now: Utime) -> Event {
        self.count += 1;
        let cause = self
            .cause
            .take()
            .filter(|(at, _)| units::seconds_between(*at, now) <= CAUSE_SEC);
        Event {
            id: format!("healing-{}-{}", now.sec, self.count),
            message: cause.map_or_else(|| "Global Recovery Event".to_string(), |(_, m)| m),
            started: now,
            total: left,
            left,
            samples: VecDeque::new(),
        }
    }

    fn notice_cause(&mut self, state: &ClusterState, now: Utime) {
        let map = &*state.osdmap;
        let inside: Vec<OsdId> = map.osd_ids().filter(|id| map.is_in(*id)).collect();
        if let Some(before) = self.known_in.replace(inside.clone())
            && before != inside
        {
            let gone = before.iter().find(|id| !inside.contains(id));
            let come = inside.iter().find(|id| !before.contains(id));
            let text = match (gone, come) {
                (Some(id), _) => format!("Rebalancing after osd.{id} marked out"),
                (_, Some(id)) => format!("Rebalancing after osd.{id} marked in"),
                _ => return,
            };
            self.cause = Some((now, text));
        }
    }

    /// `progress_events` of `status`.
    pub fn status_json(&self, now: Utime) -> Value {
        let mut m = Map::new();
        if let Some(e) = &self.now {
            m.insert(
                e.id.clone(),
                json!({"message": e.text(now, 6), "progress": e.fraction(), "add_to_ceph_s": true}),
            );
        }
        for s in self.scaling.values() {
            let message = bar(&s.message(), s.started, now, s.fraction(), 6);
            let event = json!({"message": message, "progress": s.fraction(), "add_to_ceph_s": false});
            m.insert(s.id.clone(), event);
        }
        Value::Object(m)
    }

    /// What `progress json` prints; our own keys are the copies.
    pub fn json(&self, now: Utime) -> Value {
        let refs = json!([["global", ""]]);
        let event = |e: &Event| {
            json!({
                "duration": format!("({})", units::age(e.started, now)),
                "id": e.id,
                "message": e.message,
                "progress": e.fraction(),
                "refs": refs,
                "started_at": seconds(e.started),
                "time_remaining": e.remaining_sec(),
                "copies_left": e.left,
                "copies_total": e.total,
                "copies_per_sec": e.pace(),
            })
        };
        let scaling = |s: &Scaling| {
            json!({
                "duration": format!("({})", units::age(s.started, now)),
                "id": s.id,
                "message": s.message(),
                "progress": s.fraction(),
                "refs": [["pool", s.pool.to_string()]],
                "started_at": seconds(s.started),
                "time_remaining": null,
            })
        };
        let done = |f: &Finished| {
            json!({
                // The real one's key does end in a colon.
                "add_to_ceph_s:": true,
                "finished_at": seconds(f.finished),
                "id": f.id,
                "message": f.message,
                "refs": refs,
                "started_at": seconds(f.started),
            })
        };
        json!({
            "completed": self.done.iter().map(done).collect::<Vec<_>>(),
            "events": self.now.iter().map(event).chain(self.scaling.values().map(scaling)).collect::<Vec<_>>(),
        })
    }
}

fn seconds(t: Utime) -> f64 {
    t.to_duration().as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use types::PgId;
    use types::pgstats::PgStat;

    fn at(sec: u32) -> Utime {
        Utime { sec, nsec: 0 }
    }

    fn stats(left: i64) -> ClusterStats {
        let pg = PgId::new(1, 0);
        let mut stat = PgStat::unknown(pg);
        stat.stats.sum.num_objects_degraded = left;
        let mut report = cluster::OsdReport::default();
        report.pgs.insert(pg, stat);
        let mut out = ClusterStats::default();
        out.osds.insert(0, Arc::new(report));
        out
    }

    #[test]
    fn an_event_goes_from_the_first_to_the_last_copy() {
        let cluster = crate::commands::sample::Cluster::new();
        let state = &cluster.state;
        let mut p = Progress::default();
        p.observe(state, &stats(0), at(100));
        assert_eq!(p.now, None);
        for (i, left) in [1000, 900, 800, 700, 600, 500].into_iter().enumerate() {
            p.observe(state, &stats(left), at(101 + i as u32));
        }
        let e = p.now.clone().unwrap();
        assert_eq!((e.total, e.left, e.fraction()), (1000, 500, 0.5));
        assert_eq!((e.pace(), e.remaining_sec()), (Some(100.0), Some(5)));
        assert_eq!(
            e.text(at(106), 6),
            "Global Recovery Event (5s)\n      [==============..............] (remaining: 5s)"
        );
        // More comes to lack: it falls back, and does not end early.
        p.observe(state, &stats(2000), at(107));
        assert_eq!(p.now.as_ref().map(|e| (e.total, e.fraction())), Some((2000, 0.0)));
        p.observe(state, &stats(0), at(110));
        assert_eq!((p.now.is_some(), p.done.len()), (false, 1));
        assert_eq!(p.done[0].finished, at(110));
    }

    #[test]
    fn the_map_tells_the_cause() {
        let mut cluster = crate::commands::sample::Cluster::new();
        let mut p = Progress::default();
        p.observe(&cluster.state, &stats(0), at(100));
        cluster.run(r#"{"prefix":"osd out","ids":["2"]}"#, b"");
        p.observe(&cluster.state, &stats(0), at(101));
        p.observe(&cluster.state, &stats(10), at(102));
        assert_eq!(p.now.unwrap().message, "Rebalancing after osd.2 marked out");
    }
}
