//! How long this OSD's disk takes to make a transaction durable, for people: a few samples a second, and their median.
//!
//! What clients wait for says nothing about a disk: with copies they wait for the slowest one of all. Only what happens
//! between this store and its disk counts here.
//!
//! Bound: [`SAMPLES`] samples; one is taken at a time, at most one for each [`DiskTime::arm`]. The median is not moved by
//! single stalls, and is 0 where nothing was written for [`STALE`].

use std::collections::VecDeque;
use std::time::Duration;

/// At five samples a second: what the last fifteen seconds were like, so that a busy moment of a disk that it shares with
/// others is none of its own.
const SAMPLES: usize = 75;
/// With fewer the median says nothing.
const SAMPLES_MIN: usize = 25;
/// What was measured longer ago says nothing about now.
const STALE: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub struct DiskTime {
    armed: bool,
    /// The transaction that is watched, and since when it waits.
    watched: Option<(u64, Duration)>,
    /// Newest last.
    samples: VecDeque<Duration>,
    ended: Duration,
    /// All samples since the start, and their sum.
    all: (u64, Duration),
}

impl DiskTime {
    /// Samples since the start, and their sum.
    pub fn sampled(&self) -> (u64, Duration) {
        self.all
    }

    /// The next transaction may be watched.
    pub fn arm(&mut self) {
        self.armed = self.watched.is_none();
    }

    pub fn is_armed(&self) -> bool {
        self.armed
    }

    /// Everything behind `durable` up to `queued` waits for the disk, since now at most. If nothing does, what is waited for is
    /// somebody else's disk, and nothing that this one does would end it.
    pub fn watch(&mut self, queued: u64, durable: u64, now: impl FnOnce() -> Duration) {
        if self.armed && queued > durable {
            self.armed = false;
            self.watched = Some((queued, now()));
        }
    }

    /// The transaction that is watched is durable, if it is.
    pub fn durable(&mut self, durable: u64, now: impl FnOnce() -> Duration) {
        let Some((_, since)) = self.watched.filter(|(seq, _)| *seq <= durable) else {
            return;
        };
        let now = now();
        self.watched = None;
        self.ended = now;
        if self.samples.len() == SAMPLES {
            self.samples.pop_front();
        }
        let took = now.saturating_sub(since);
        self.all = (self.all.0 + 1, self.all.1 + took);
        self.samples.push_back(took);
    }

    pub fn latency(&self, now: Duration) -> Duration {
        if self.watched.is_none() && now.saturating_sub(self.ended) > STALE {
            return Duration::ZERO;
        }
        let mut all: Vec<Duration> = self.samples.iter().copied().collect();
        all.sort_unstable();
        let median = all.get(all.len() / 2).filter(|_| all.len() >= SAMPLES_MIN);
        median.copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    /// Commits that take so long, one every 200 ms.
    fn after(all: &[u64]) -> (DiskTime, Duration) {
        let mut disk = DiskTime::default();
        let mut now = Duration::ZERO;
        for (seq, ms) in all.iter().enumerate() {
            now += MS(200);
            disk.arm();
            disk.watch(seq as u64, seq as u64, || panic!("the disk has done all"));
            disk.watch(seq as u64 + 1, seq as u64, || now);
            disk.durable(seq as u64, || panic!("not durable yet"));
            disk.durable(seq as u64 + 1, || now + MS(*ms));
        }
        (disk, now + MS(100))
    }

    #[test]
    fn the_median_of_the_last_commits() {
        let check = |all: &[u64], want| {
            let (disk, now) = after(all);
            assert_eq!(disk.latency(now), MS(want), "{all:?}");
        };
        check(&[], 0);
        check(&[3; SAMPLES_MIN - 1], 0); // too few
        check(&[3; SAMPLES_MIN], 3);
        // One stall is no slow disk; half of all is.
        check(&[&[2; 30][..], &[900; 10], &[2; 20]].concat(), 2);
        check(&[&[2; 30][..], &[90; 40]].concat(), 90);
        // Old samples go.
        check(&[&[50; 20][..], &[1; SAMPLES][..]].concat(), 1);
    }

    #[test]
    fn what_was_long_ago_is_not_told() {
        let (disk, now) = after(&[7; SAMPLES_MIN]);
        assert_eq!(disk.latency(now + STALE - MS(100)), MS(7));
        assert_eq!(disk.latency(now + STALE), Duration::ZERO);
    }

    #[test]
    fn only_one_is_watched_at_a_time() {
        let mut disk = DiskTime::default();
        disk.arm();
        disk.watch(5, 4, || MS(10));
        disk.arm();
        disk.watch(6, 4, || panic!("one is watched already"));
    }
}
