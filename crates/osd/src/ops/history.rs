//! Clients' operations that have their answers: the slowest of the last minutes, and the last ones that were slow by an
//! operator's measure. Both under Ceph's options, with Ceph's defaults.
//!
//! Invariant: nothing is allocated or moved for an operation that neither list keeps ([`History::wants`]).
//!
//! Bounds: [`KEPT_MAX`] in each list, whatever the options say.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::Duration;
use types::{EntityAddr, EntityName};

pub const KEPT_MAX: usize = 1000;

/// What an operator can set.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    /// How many of the slowest are kept, and for how long.
    pub size: usize,
    pub age: Duration,
    /// How many of the slow ones are kept, and what is slow.
    pub slow_size: usize,
    pub slow: Duration,
}

impl Limits {
    pub const OPTIONS: [&str; 4] = [
        "osd_op_history_size",
        "osd_op_history_duration",
        "osd_op_history_slow_op_size",
        "osd_op_history_slow_op_threshold",
    ];

    pub fn of(set: impl Fn(&str) -> Option<String>) -> Self {
        let [size, age, slow_size, slow] = Self::OPTIONS.map(set);
        let number = |v: Option<String>, default: usize| {
            v.and_then(|v| v.parse().ok()).unwrap_or(default).min(KEPT_MAX)
        };
        let seconds = |v: Option<String>, default: f64| {
            let said = v.and_then(|v| v.parse().ok());
            Duration::try_from_secs_f64(said.unwrap_or(default)).unwrap_or(Duration::MAX)
        };
        Self {
            size: number(size, 20),
            age: seconds(age, 600.0),
            slow_size: number(slow_size, 20),
            slow: seconds(slow, 10.0),
        }
    }

    /// Name and value of each, as `config show` has them.
    pub fn shown(&self) -> [(&'static str, String); 4] {
        let [size, age, slow_size, slow] = Self::OPTIONS;
        [
            (size, self.size.to_string()),
            (age, self.age.as_secs().to_string()),
            (slow_size, self.slow_size.to_string()),
            (slow, format!("{:.6}", self.slow.as_secs_f64())),
        ]
    }
}

/// One that has its answer. Times are those of the OSD's clock.
#[derive(Debug, Clone)]
pub struct Done {
    pub text: String,
    pub who: EntityName,
    pub addr: EntityAddr,
    pub tid: u64,
    pub is_write: bool,
    pub since: Duration,
    pub steps: Steps,
}

/// What became of it, and when.
#[derive(Debug, Clone, Copy, Default)]
pub struct Steps {
    pub reached_pg: Option<Duration>,
    pub executed: Option<Duration>,
    pub answered: Duration,
}

impl Done {
    pub fn took(&self) -> Duration {
        self.steps.answered.saturating_sub(self.since)
    }

    pub fn is_from(&self, ip: IpAddr) -> bool {
        self.addr.sock.is_some_and(|s| s.ip() == ip)
    }
}

#[derive(Debug)]
pub struct History {
    limits: Limits,
    /// The version of the cluster's state that they are from.
    version: Option<u64>,
    /// In the order of their answers.
    slowest: Vec<Done>,
    /// What the fastest of `slowest` took, where no more fit.
    least: Option<Duration>,
    slow: VecDeque<Done>,
}

impl Default for History {
    fn default() -> Self {
        Self {
            limits: Limits::of(|_| None),
            version: None,
            slowest: Vec::new(),
            least: None,
            slow: VecDeque::new(),
        }
    }
}

impl History {
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Whether one that took so long is kept.
    pub fn wants(&self, took: Duration) -> bool {
        let is_slow = took >= self.limits.slow && self.limits.slow_size > 0;
        is_slow || self.limits.size > 0 && self.least.is_none_or(|least| took > least)
    }

    pub fn add(&mut self, done: Done) {
        let (now, took) = (done.steps.answered, done.took());
        if took >= self.limits.slow {
            self.slow.push_back(done.clone());
        }
        self.slowest.push(done);
        self.cut(now);
    }

    /// Once a second: what is too old goes, and so does what new limits do not allow. They are asked for where the cluster's
    /// state has another version than before.
    pub fn turn(&mut self, now: Duration, version: u64, limits: impl FnOnce() -> Limits) {
        if self.version != Some(version) {
            (self.version, self.limits) = (Some(version), limits());
        }
        self.cut(now);
    }

    /// Something else than the cluster's state says other limits now.
    pub fn limits_changed(&mut self) {
        self.version = None;
    }

    fn cut(&mut self, now: Duration) {
        let l = &self.limits;
        let begin = now.saturating_sub(l.age);
        if l.age < now {
            self.slowest.retain(|d| d.steps.answered >= begin);
        }
        while self.slowest.len() > l.size {
            let took = |(_, d): &(usize, &Done)| d.took();
            let Some((fastest, _)) = self.slowest.iter().enumerate().min_by_key(took) else {
                break;
            };
            self.slowest.remove(fastest);
        }
        let full = self.slowest.len() >= l.size;
        let least = self.slowest.iter().map(Done::took).min();
        self.least = least.filter(|_| full);
        let over = self.slow.len().saturating_sub(l.slow_size);
        self.slow.drain(..over);
    }

    /// The slowest of the last while, in the order in which they came.
    pub fn recent(&self) -> Vec<&Done> {
        let mut all: Vec<&Done> = self.slowest.iter().collect();
        all.sort_by_key(|d| d.since);
        all
    }

    /// The same, the slowest first.
    pub fn by_duration(&self) -> Vec<&Done> {
        let mut all = self.recent();
        all.sort_by_key(|d| std::cmp::Reverse(d.took()));
        all
    }

    /// The last ones that were slow.
    pub fn slow(&self) -> Vec<&Done> {
        self.slow.iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(tid: u64, since_ms: u64, took_ms: u64) -> Done {
        Done {
            text: String::new(),
            who: EntityName::client(1),
            addr: EntityAddr::BLANK,
            tid,
            is_write: true,
            since: Duration::from_millis(since_ms),
            steps: Steps {
                answered: Duration::from_millis(since_ms + took_ms),
                ..Steps::default()
            },
        }
    }

    fn limits(size: &str, slow_size: &str) -> Limits {
        Limits::of(|name| match name {
            "osd_op_history_size" => Some(size.into()),
            "osd_op_history_slow_op_size" => Some(slow_size.into()),
            _ => None,
        })
    }

    fn tids(list: Vec<&Done>) -> Vec<u64> {
        list.iter().map(|d| d.tid).collect()
    }

    #[test]
    fn the_slowest_stay_until_they_are_old() {
        let mut h = History::default();
        h.turn(Duration::ZERO, 1, || limits("3", "20"));
        let took = [5, 9, 2, 7, 3, 1];
        for (tid, took) in took.into_iter().enumerate() {
            let one = done(tid as u64, 1_000_000 + tid as u64, took);
            let fits = h.wants(one.took());
            // A place is free, or somebody was faster.
            assert_eq!(fits, [true, true, true, true, false, false][tid], "{tid}");
            if fits {
                h.add(one);
            }
        }
        assert_eq!(tids(h.recent()), [0, 1, 3]);
        assert_eq!(tids(h.by_duration()), [1, 3, 0]);
        // Ten minutes later all are gone, and whoever comes is the slowest.
        h.turn(Duration::from_secs(1601), 2, || limits("3", "20"));
        assert!(h.recent().is_empty() && h.wants(Duration::ZERO));
    }

    #[test]
    fn slow_ones_are_kept_beside_them() {
        let mut h = History::default();
        h.turn(Duration::ZERO, 3, || limits("0", "2"));
        assert!(!h.wants(Duration::from_secs(9)) && h.wants(Duration::from_secs(10)));
        for tid in 0..4 {
            h.add(done(tid, tid, 10_000));
        }
        assert_eq!((tids(h.slow()), tids(h.recent())), (vec![2, 3], vec![]));
        // They do not age.
        h.turn(Duration::from_secs(1 << 20), 4, || limits("0", "2"));
        assert_eq!(h.slow().len(), 2);
        h.turn(Duration::from_secs(1 << 20), 5, || limits("0", "0"));
        assert!(h.slow().is_empty() && !h.wants(Duration::from_secs(100)));
    }

    #[test]
    fn no_option_makes_it_endless() {
        let l = limits("1000000", "-1");
        assert_eq!((l.size, l.slow_size), (KEPT_MAX, 20));
        assert_eq!(l.shown()[1], ("osd_op_history_duration", "600".to_string()));
    }
}
