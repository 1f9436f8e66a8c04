//! Tokens of one limit: they come by the second, and are spent by what is let through.
//!
//! What costs more than there is goes when there is anything at all, and is paid off afterwards: no operation is too large for
//! its limit, and what is owed is never more than what was let through last.

use cluster::qos::{Kind, Rate};
use std::time::Duration;

/// So long may tokens gather while nobody wants them, where no burst is granted: an operation that comes a little late
/// finds what it missed.
const SLACK: f64 = 0.1;
/// After a change of the limit nothing longer than this is owed from before.
const DEBT_SECONDS_MAX: f64 = 1.0;

/// What an operation costs, or several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cost {
    pub ops: u32,
    pub reads: u32,
    pub writes: u32,
    pub read_bytes: u64,
    pub write_bytes: u64,
}

impl Cost {
    pub fn plus(self, o: Self) -> Self {
        Self {
            ops: self.ops + o.ops,
            reads: self.reads + o.reads,
            writes: self.writes + o.writes,
            read_bytes: self.read_bytes.saturating_add(o.read_bytes),
            write_bytes: self.write_bytes.saturating_add(o.write_bytes),
        }
    }

    /// What is left of it without another, of each kind.
    pub fn less(self, o: &Self) -> Self {
        Self {
            ops: self.ops.saturating_sub(o.ops),
            reads: self.reads.saturating_sub(o.reads),
            writes: self.writes.saturating_sub(o.writes),
            read_bytes: self.read_bytes.saturating_sub(o.read_bytes),
            write_bytes: self.write_bytes.saturating_sub(o.write_bytes),
        }
    }

    /// Tokens of such a limit; None: it does not count this.
    pub fn of(&self, kind: Kind) -> Option<f64> {
        // What is left of a cost may be bytes alone.
        let bytes = |ops: u32, bytes: u64| (ops > 0 || bytes > 0, bytes);
        let (touches, amount) = match kind {
            Kind::Iops => (self.ops > 0, u64::from(self.ops)),
            Kind::ReadIops => (self.reads > 0, u64::from(self.reads)),
            Kind::WriteIops => (self.writes > 0, u64::from(self.writes)),
            Kind::Bps => bytes(self.ops, self.read_bytes.saturating_add(self.write_bytes)),
            Kind::ReadBps => bytes(self.reads, self.read_bytes),
            Kind::WriteBps => bytes(self.writes, self.write_bytes),
        };
        touches.then_some(amount as f64)
    }
}

#[derive(Debug, Clone)]
pub struct Bucket {
    pub kind: Kind,
    /// The burst, not the limit itself.
    pub peak: bool,
    per_second: f64,
    capacity: f64,
    level: f64,
    at: Duration,
}

impl Bucket {
    /// The share of a limit, and that of its burst if it has one.
    pub fn of(kind: Kind, rate: Rate, share: f64, now: Duration) -> Vec<Self> {
        let limit = rate.limit as f64 * share;
        let saved = match rate.burst > rate.limit {
            true => (rate.burst - rate.limit) as f64 * rate.burst_seconds.max(1) as f64 * share,
            false => 0.0,
        };
        let bucket = |peak, per_second: f64, saved: f64| {
            let capacity = (per_second * SLACK).max(1.0) + saved;
            Self {
                kind,
                peak,
                per_second,
                capacity,
                level: capacity,
                at: now,
            }
        };
        let mut all = vec![bucket(false, limit, saved)];
        if saved > 0.0 {
            all.push(bucket(true, rate.burst as f64 * share, 0.0));
        }
        all
    }

    /// The share of a reservation; what was not used within a second is no longer kept.
    pub fn reserved(kind: Kind, amount: u64, share: f64, now: Duration) -> Self {
        let per_second = amount as f64 * share;
        let capacity = per_second.max(1.0);
        Self {
            kind,
            peak: false,
            per_second,
            capacity,
            level: capacity,
            at: now,
        }
    }

    /// Goes on from where another stood.
    pub fn inherit(&mut self, old: &Self) {
        let full = old.level >= old.capacity;
        self.level = match full {
            true => self.capacity,
            false => old
                .level
                .clamp(-self.per_second * DEBT_SECONDS_MAX, self.capacity),
        };
        self.at = old.at;
    }

    fn refill(&mut self, now: Duration) {
        let gone = now.saturating_sub(self.at).as_secs_f64();
        self.level = (self.level + gone * self.per_second).min(self.capacity);
        self.at = now;
    }

    /// How long until something may go; zero: now.
    pub fn wait(&mut self, now: Duration) -> Duration {
        self.refill(now);
        match self.level > 0.0 {
            true => Duration::ZERO,
            // A share of nothing is looked at again with the next state.
            false if self.per_second <= 0.0 => Duration::from_secs(3600),
            false => {
                let wait = (-self.level / self.per_second).min(3600.0);
                Duration::from_secs_f64(wait) + Duration::from_micros(1)
            }
        }
    }

    /// Negative: some come back.
    pub fn take(&mut self, tokens: f64) {
        self.level = (self.level - tokens).min(self.capacity);
    }

    /// How long its tokens take to come.
    pub fn seconds_of(&self, tokens: f64) -> f64 {
        tokens / self.per_second.max(f64::MIN_POSITIVE)
    }

    pub fn per_second(&self) -> f64 {
        self.per_second
    }

    pub fn level(&self) -> f64 {
        self.level
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(limit: u64, burst: u64, burst_seconds: u64) -> Rate {
        Rate {
            limit,
            burst,
            burst_seconds,
        }
    }

    /// What a greedy client gets in each of these seconds after a long rest.
    fn greedy(rate: Rate, share: f64, seconds: u64) -> Vec<u64> {
        let mut buckets = Bucket::of(Kind::Iops, rate, share, Duration::ZERO);
        let start = 3_600_000_u64;
        let mut out = vec![0; seconds as usize];
        for ms in start..start + seconds * 1000 {
            let now = Duration::from_millis(ms);
            while buckets.iter_mut().all(|b| b.wait(now).is_zero()) {
                buckets.iter_mut().for_each(|b| b.take(1.0));
                out[((ms - start) / 1000) as usize] += 1;
            }
        }
        out
    }

    #[test]
    fn what_is_let_through_in_a_second_is_the_limit() {
        for (limit, share) in [(100, 1.0), (100, 0.5), (7, 1.0), (5000, 0.25)] {
            let want = limit as f64 * share;
            let got = greedy(rate(limit, 0, 0), share, 10);
            let all: u64 = got.iter().sum();
            let most = want * 10.0 + (want * SLACK).max(1.0) + 1.0;
            assert!(
                (all as f64) >= want * 10.0 - 1.0 && (all as f64) <= most,
                "{limit}: {got:?}"
            );
        }
    }

    #[test]
    fn a_burst_lasts_as_long_as_it_says() {
        let got = greedy(rate(100, 300, 2), 1.0, 6);
        for (second, want) in [(0, 300), (1, 300), (3, 100), (4, 100), (5, 100)] {
            let n = got[second];
            assert!(n.abs_diff(want) <= 32, "second {second}: {got:?}");
        }
    }

    #[test]
    fn an_operation_larger_than_a_second_of_its_limit_goes_and_is_paid_off() {
        let now = Duration::ZERO;
        let mut b = Bucket::of(Kind::Bps, rate(1 << 20, 0, 0), 1.0, now).remove(0);
        assert!(b.wait(now).is_zero());
        b.take(f64::from(4 << 20));
        let wait = b.wait(now).as_secs_f64();
        assert!((3.8..4.0).contains(&wait), "{wait}");
        // Half of it was not read after all.
        b.take(-f64::from(2 << 20));
        assert!((1.8..2.0).contains(&b.wait(now).as_secs_f64()));
    }

    #[test]
    fn a_new_limit_forgives_old_debts() {
        let now = Duration::from_secs(9);
        let mut old = Bucket::of(Kind::Bps, rate(1000, 0, 0), 1.0, now).remove(0);
        old.take(1_000_000.0);
        let mut new = Bucket::of(Kind::Bps, rate(5000, 0, 0), 1.0, now).remove(0);
        new.inherit(&old);
        let wait = new.wait(now).as_secs_f64();
        assert!((0.99..1.01).contains(&wait), "{wait}");
    }
}
