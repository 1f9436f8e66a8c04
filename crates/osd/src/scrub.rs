//! When the PGs that this OSD leads are scrubbed, and how fast.
//!
//! Vocabulary: a *wish* is a scrub that an operator asked for: a key in the cluster state, taken away when it was done. The
//! *promise* is `osd_deep_scrub_interval`: within it every PG is read whole.
//!
//! Invariants: a scheduled scrub begins in a time that is the PG's own, so that they do not all begin at once, and so
//! early that the promise holds; it keeps to the hours and days that the operator gives, until `osd_scrub_max_interval` is
//! over. How the rate yields to clients is [`crate::pace`]'s.
//!
//! Bounds: `rounds::ASKED_MAX` wishes and `osd_max_scrubs` others at a time.

mod rounds;

use crate::pace::Pace;
use pg::{ScrubOrder, ScrubView};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use types::pool::{PgPool, PoolOption, PoolOptions};
use types::{PgId, SPgId, Utime};

/// Errors up to which `osd_scrub_auto_repair` repairs by itself, unless the option says another number.
const AUTO_REPAIR_ERRORS: u32 = 5;
const DAY: u64 = 86_400;

/// What the operator has set.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    min_interval: f64,
    max_interval: f64,
    deep_interval: f64,
    randomize: f64,
    hours: (u64, u64),
    days: (u64, u64),
    scrubs: usize,
    auto_repair: bool,
    auto_repair_errors: u32,
}

impl Options {
    pub fn of(said: impl Fn(&str) -> Option<String>) -> Self {
        let real = |name: &str, default: f64| said(name).and_then(|v| v.parse().ok()).unwrap_or(default);
        let whole = |name: &str, default: u64| said(name).and_then(|v| v.parse().ok()).unwrap_or(default);
        let errors = whole("osd_scrub_auto_repair_num_errors", u64::from(AUTO_REPAIR_ERRORS));
        Self {
            min_interval: real("osd_scrub_min_interval", DAY as f64),
            max_interval: real("osd_scrub_max_interval", 7.0 * DAY as f64),
            deep_interval: real("osd_deep_scrub_interval", 7.0 * DAY as f64),
            randomize: real("osd_scrub_interval_randomize_ratio", 0.5),
            hours: (whole("osd_scrub_begin_hour", 0), whole("osd_scrub_end_hour", 0)),
            days: (
                whole("osd_scrub_begin_week_day", 0),
                whole("osd_scrub_end_week_day", 0),
            ),
            scrubs: whole("osd_max_scrubs", 1) as usize,
            auto_repair: said("osd_scrub_auto_repair").is_some_and(|v| v == "true" || v == "1"),
            auto_repair_errors: u32::try_from(errors).unwrap_or(u32::MAX),
        }
    }

    /// Name and value of each, as `config show` has them.
    pub fn shown(&self) -> Vec<(&'static str, String)> {
        let real = |v: f64| format!("{v:.6}");
        vec![
            ("osd_deep_scrub_interval", real(self.deep_interval)),
            ("osd_max_scrubs", self.scrubs.to_string()),
            ("osd_scrub_auto_repair", self.auto_repair.to_string()),
            (
                "osd_scrub_auto_repair_num_errors",
                self.auto_repair_errors.to_string(),
            ),
            ("osd_scrub_begin_hour", self.hours.0.to_string()),
            ("osd_scrub_begin_week_day", self.days.0.to_string()),
            ("osd_scrub_end_hour", self.hours.1.to_string()),
            ("osd_scrub_end_week_day", self.days.1.to_string()),
            ("osd_scrub_interval_randomize_ratio", real(self.randomize)),
            ("osd_scrub_max_interval", real(self.max_interval)),
            ("osd_scrub_min_interval", real(self.min_interval)),
        ]
    }

    /// With what the pool has set for itself.
    fn for_pool(&self, pool: &PgPool) -> Self {
        let own =
            |name: &str, all: f64| match PoolOptions::lookup(name).and_then(|(n, _)| pool.opts.0.get(&n)) {
                Some(PoolOption::Double(v)) if *v > 0.0 => *v,
                _ => all,
            };
        Self {
            min_interval: own("scrub_min_interval", self.min_interval),
            max_interval: own("scrub_max_interval", self.max_interval),
            deep_interval: own("deep_scrub_interval", self.deep_interval),
            ..self.clone()
        }
    }

    /// Whether scheduled scrubs may begin at this hour and day (UTC).
    fn permits(&self, now: Utime) -> bool {
        let days = u64::from(now.sec) / DAY;
        let hour = u64::from(now.sec) % DAY / 3600;
        // The first day of the epoch was a Thursday; weeks begin with Sunday.
        let day = (days + 4) % 7;
        within(hour, self.hours) && within(day, self.days)
    }
}

/// `begin..end` on a circle; equal: always.
fn within(n: u64, (begin, end): (u64, u64)) -> bool {
    match begin.cmp(&end) {
        std::cmp::Ordering::Equal => true,
        std::cmp::Ordering::Less => (begin..end).contains(&n),
        std::cmp::Ordering::Greater => n >= begin || n < end,
    }
}

/// A number from 0 to 1 that is this PG's for this round.
fn share_of(pg: PgId, round: Utime) -> f64 {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&pg.pool.to_le_bytes());
    bytes[8..12].copy_from_slice(&pg.seed.to_le_bytes());
    bytes[12..].copy_from_slice(&round.sec.to_le_bytes());
    f64::from(types::checksum::crc32c(0, &bytes)) / f64::from(u32::MAX)
}

fn after(stamp: Utime, seconds: f64, now: Utime) -> bool {
    f64::from(now.sec) >= f64::from(stamp.sec) + seconds
}

/// What a PG is due for by its stamps.
fn due(pg: PgId, view: &ScrubView, o: &Options, now: Utime, light: bool, deep: bool) -> Option<ScrubOrder> {
    let s = view.stamps;
    if !view.ready || view.running.is_some() || s.at.is_zero() {
        return None;
    }
    let order = |deep| Some(ScrubOrder { deep, repair: false });
    let permits = o.permits(now);
    // The last third of the period is a reserve: a scrub takes a while, and others are due, too.
    let early = 0.66 - 0.33 * share_of(pg, s.deep_at);
    let broken = after(s.deep_at, o.deep_interval, now);
    if deep && (broken || (permits && after(s.deep_at, o.deep_interval * early.max(0.0), now))) {
        return order(true);
    }
    let later = o.min_interval * (1.0 + o.randomize * share_of(pg, s.at));
    let must = after(s.at, o.max_interval, now);
    if light && (must || (permits && after(s.at, later, now))) {
        return order(false);
    }
    None
}

#[derive(Debug)]
struct Running {
    order: ScrubOrder,
    /// The wish that it carries out.
    wish: Option<u64>,
}

#[derive(Debug, Default)]
pub struct Scrubs {
    running: BTreeMap<SPgId, Running>,
    /// Scrubbed, found bad, and to be repaired without being asked.
    to_repair: BTreeSet<SPgId>,
    /// Asked for at this OSD, and whether to be read whole; at most one for each group.
    asked: BTreeMap<SPgId, bool>,
    options: Option<Options>,
    pace: Pace,
    next: Option<Duration>,
    look_at: Duration,
}

impl Scrubs {
    /// Somebody told this OSD to scrub a group; forgotten when it ends or the group moves.
    pub fn ask(&mut self, pg: SPgId, deep: bool) {
        *self.asked.entry(pg).or_default() |= deep;
        self.look_at = Duration::ZERO;
        self.next = None;
    }

    /// How many run.
    pub fn count(&self) -> usize {
        self.running.len()
    }

    pub fn scrubbed(&mut self, bytes: u64) {
        self.pace.used(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pg::ScrubStamps;

    fn options() -> Options {
        Options {
            min_interval: DAY as f64,
            max_interval: 7.0 * DAY as f64,
            deep_interval: 7.0 * DAY as f64,
            randomize: 0.5,
            hours: (0, 0),
            days: (0, 0),
            scrubs: 1,
            auto_repair: false,
            auto_repair_errors: AUTO_REPAIR_ERRORS,
        }
    }

    fn at(sec: u64) -> Utime {
        Utime {
            sec: sec as u32,
            nsec: 0,
        }
    }

    fn view(scrub: u64, deep: u64) -> ScrubView {
        ScrubView {
            stamps: ScrubStamps {
                at: at(scrub),
                deep_at: at(deep),
                ..ScrubStamps::default()
            },
            running: None,
            wants_grant: false,
            repaired: 0,
            ready: true,
        }
    }

    #[test]
    fn every_group_is_read_whole_within_the_promise_and_not_all_at_once() {
        let start = 1_000 * DAY;
        let mut days = BTreeSet::new();
        for seed in 0..256 {
            let pg = PgId::new(1, seed);
            let deep_on = |day: f64| {
                let now = at(start + (day * DAY as f64) as u64);
                let v = view(u64::from(now.sec), start);
                due(pg, &v, &options(), now, true, true).is_some_and(|o| o.deep)
            };
            let first = (0..70).find(|d| deep_on(f64::from(*d) / 10.0));
            assert!(first.is_some_and(|d| d <= 50), "{pg}: {first:?}");
            days.insert(first.map(|d| d / 5));
        }
        assert!(days.len() >= 4, "{days:?}");
    }

    #[test]
    fn flags_hours_and_what_runs_are_honoured() {
        let (pg, start) = (PgId::new(1, 1), 1_000 * DAY);
        let now = at(start + 10 * DAY + 5 * 3600);
        let old = view(start, start);
        let check = |o: &Options, v: &ScrubView, light, deep| due(pg, v, o, now, light, deep).map(|o| o.deep);
        assert_eq!(check(&options(), &old, true, true), Some(true));
        assert_eq!(check(&options(), &old, true, false), Some(false));
        assert_eq!(check(&options(), &old, false, false), None);
        let busy = ScrubView { ready: false, ..old };
        assert_eq!(check(&options(), &busy, true, true), None);
        // Outside of its hours only what is overdue.
        let night = Options {
            hours: (22, 4),
            ..options()
        };
        assert_eq!(check(&night, &old, true, true), Some(true));
        let fresh = view(start + 8 * DAY, start + 8 * DAY);
        assert_eq!(check(&options(), &fresh, true, true), Some(false));
        assert_eq!(check(&night, &fresh, true, true), None);
        assert!(night.permits(at(23 * 3600)) && night.permits(at(3 * 3600)) && !night.permits(at(4 * 3600)));
        // 1970-01-01 was a Thursday.
        let weekend = Options {
            days: (6, 1),
            ..options()
        };
        assert!(!weekend.permits(at(0)) && weekend.permits(at(2 * DAY)) && weekend.permits(at(3 * DAY)));
    }
}
