//! How fast work in the background may go while clients are served: a budget of bytes per second that yields to them.
//!
//! What clients' operations take depends on what they ask for, and that changes while the work goes on. So the two are
//! compared all the time: of every second of the wall clock (on all hosts the same, where their clocks agree) the work
//! rests for a quarter, and what operations take then is what they take without it ([`Latency`], [`Pace::step`]).
//!
//! Invariants: while operations take twice as long as in the last rest, the rate is halved, to 1/16 at least; it grows
//! back when they do not, and when there are none. Means are geometric: one operation that waited for a lease or for a dead
//! peer says nothing about the load. Bound: the budget does not pile up beyond what [`BURST`] of the rate covers.

use std::time::Duration;

/// Time between two rounds of grants.
pub const STEP: Duration = Duration::from_millis(50);
const BURST: Duration = Duration::from_millis(250);
/// Parts of the rate.
pub const SHARES: u32 = 16;
/// The work stops, and what is under way ends; then it rests, and operations are timed; then it goes on.
const CYCLE_MS: u128 = 1000;
const ENDING_MS: u128 = 100;
const RESTING_MS: u128 = 250;
/// Operations from which a mean is taken.
const ENOUGH: u64 = 16;
/// Without an answer for so long clients ask for nothing.
const QUIET: Duration = Duration::from_millis(500);

/// What operations of clients take, from their arrival to their answer.
#[derive(Debug, Default, Clone, Copy)]
pub struct Latency {
    /// Sum of the binary logarithms of microseconds, and how many: what lies between two moments is a difference.
    logs: f64,
    count: u64,
    last: Option<Duration>,
}

impl Latency {
    pub fn answered(&mut self, now: Duration, after: Duration) {
        let us = after.as_nanos() as f64 / 1000.0;
        self.logs += us.max(1.0).log2();
        self.count += 1;
        self.last = Some(now);
    }

    fn is_quiet(&self, now: Duration) -> bool {
        self.last.is_none_or(|at| at + QUIET <= now)
    }

    fn since(&self, then: &Latency) -> Sum {
        Sum {
            logs: self.logs - then.logs,
            count: self.count - then.count,
        }
    }
}

/// Operations of one kind of moment.
#[derive(Debug, Default, Clone, Copy)]
struct Sum {
    logs: f64,
    count: u64,
}

impl Sum {
    fn add(&mut self, other: Sum) {
        self.logs += other.logs;
        self.count += other.count;
    }

    /// Their mean, as a logarithm, and begins anew; None: there are not enough yet.
    fn take(&mut self) -> Option<f64> {
        let enough = self.count >= ENOUGH;
        enough.then(|| {
            let all = std::mem::take(self);
            all.logs / all.count as f64
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Ending,
    Resting,
    Working,
}

/// The budget of one kind of work.
#[derive(Debug)]
pub struct Pace {
    /// Bytes that may be used now; below zero after a large object.
    budget: i64,
    filled: Duration,
    /// 16ths of the rate.
    share: u32,
    /// No more of them than this, whatever operations take: somebody has a reservation.
    most: u32,
    phase: Phase,
    /// As it was a step ago.
    seen: Latency,
    resting: Sum,
    working: Sum,
    /// Logarithm of what operations take without the work.
    usual: Option<f64>,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            budget: 0,
            filled: Duration::ZERO,
            share: SHARES,
            most: SHARES,
            phase: Phase::Working,
            seen: Latency::default(),
            resting: Sum::default(),
            working: Sum::default(),
            usual: None,
        }
    }
}

impl Pace {
    pub fn used(&mut self, bytes: u64) {
        self.budget -= bytes as i64;
    }

    pub fn budget(&self) -> i64 {
        self.budget
    }

    /// Sixteenths of the rate that it gets from now on at most, one at least (`qos::shares`).
    pub fn at_most(&mut self, sixteenths: u32) {
        self.most = sixteenths.clamp(1, SHARES);
    }

    /// There is nothing to do: this is how fast clients are without.
    pub fn idle(&mut self, clients: &Latency) {
        self.resting.add(clients.since(&self.seen));
        self.usual = self.resting.take().or(self.usual);
        (self.seen, self.working) = (*clients, Sum::default());
        (self.share, self.phase) = (SHARES, Phase::Ending);
    }

    /// Once in a [`STEP`] while there is work: fills the budget for it. False: it rests. `wall`: since 1970.
    pub fn step(&mut self, now: Duration, wall: Duration, clients: &Latency, rate: u64) -> bool {
        let works = self.judge(now, wall, clients);
        self.fill(now, rate);
        works
    }

    /// Work that clients' operations do not slow down: always, at the full rate.
    pub fn step_regardless(&mut self, now: Duration, rate: u64) {
        (self.share, self.most) = (SHARES, SHARES);
        self.fill(now, rate);
    }

    fn judge(&mut self, now: Duration, wall: Duration, clients: &Latency) -> bool {
        let passed = clients.since(&self.seen);
        self.seen = *clients;
        if clients.is_quiet(now) {
            self.share = (self.share + 1).min(SHARES);
            return true;
        }
        // What was answered since the last step belongs to the phase of that.
        match self.phase {
            Phase::Ending => {}
            Phase::Resting => self.resting.add(passed),
            Phase::Working => self.working.add(passed),
        }
        self.usual = self.resting.take().or(self.usual);
        if let Some(mean) = self.working.take() {
            let slow = self.usual.is_some_and(|usual| mean > usual + 1.0);
            self.share = match slow {
                true => (self.share / 2).max(1),
                false => (self.share + 1).min(SHARES),
            };
        }
        self.phase = match wall.as_millis() % CYCLE_MS {
            ms if ms < ENDING_MS => Phase::Ending,
            ms if ms < RESTING_MS => Phase::Resting,
            _ => Phase::Working,
        };
        self.phase == Phase::Working
    }

    fn fill(&mut self, now: Duration, rate: u64) {
        let rate = u128::from(rate / u64::from(SHARES) * u64::from(self.share.min(self.most)));
        let of = |time: Duration| (rate * time.as_millis() / 1000) as i64;
        let passed = now.saturating_sub(self.filled).min(BURST);
        self.filled = now;
        self.budget = (self.budget + of(passed)).min(of(BURST).max(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client beside work that costs 1 MiB a piece.
    #[derive(Default)]
    struct Bench {
        pace: Pace,
        clients: Latency,
        now: Duration,
    }

    impl Bench {
        /// For `seconds`, with `rest_us` and `work_us` an operation, 1,000 of them per second. MiB of work that were done.
        fn run(&mut self, seconds: u64, rate: u64, rest_us: u64, work_us: u64) -> u64 {
            let end = self.now + Duration::from_secs(seconds);
            let mut done = 0;
            while self.now < end {
                self.now += STEP;
                let works = self.pace.step(self.now, self.now, &self.clients, rate);
                let us = if works { work_us } else { rest_us };
                for _ in 0..50 * u64::from(us > 0) {
                    self.clients.answered(self.now, Duration::from_micros(us));
                }
                while works && self.pace.budget() > 0 {
                    self.pace.used(1 << 20);
                    done += 1;
                }
            }
            done
        }
    }

    const RATE: u64 = 64 << 20;

    #[test]
    fn without_clients_the_rate_is_kept() {
        let mut b = Bench::default();
        let done = b.run(10, RATE, 0, 0);
        assert!((630..=670).contains(&done), "{done}");
    }

    #[test]
    fn clients_that_do_not_mind_cost_the_rests_only() {
        let mut b = Bench::default();
        b.run(2, RATE, 100, 150);
        let done = b.run(10, RATE, 100, 150);
        assert!((440..=660).contains(&done), "{done}");
    }

    #[test]
    fn it_yields_and_comes_back() {
        let mut b = Bench::default();
        b.run(2, RATE, 100, 900);
        let done = b.run(10, RATE, 100, 900);
        // A sixteenth, for most of the time.
        assert!((25..=45).contains(&done), "{done}");
        // The client asks for larger things, which take longer, whatever is done beside them.
        b.run(2, RATE, 5_000, 6_000);
        let done = b.run(10, RATE, 5_000, 6_000);
        assert!(done > 440, "{done}");
        // It is slowed down again, and then goes away.
        b.run(3, RATE, 100, 900);
        b.run(2, RATE, 0, 0);
        let done = b.run(10, RATE, 0, 0);
        assert!(done > 600, "{done}");
    }

    #[test]
    fn beside_a_reservation_it_keeps_a_sixteenth() {
        let mut b = Bench::default();
        b.pace.at_most(0);
        let done = b.run(10, RATE, 0, 0);
        assert!((39..=46).contains(&done), "{done}");
        // Clients that are slowed down as well take nothing more from it.
        b.run(2, RATE, 100, 900);
        let done = b.run(10, RATE, 100, 900);
        assert!((25..=45).contains(&done), "{done}");
        b.pace.at_most(16);
        b.run(2, RATE, 0, 0);
        let done = b.run(10, RATE, 0, 0);
        assert!(done > 600, "{done}");
    }

    #[test]
    fn one_that_waited_long_says_nothing() {
        let mut b = Bench::default();
        b.run(2, RATE, 100, 120);
        for _ in 0..50 {
            b.clients.answered(b.now, Duration::from_secs(2));
            b.run(1, RATE, 100, 120);
        }
        assert_eq!(b.pace.share, SHARES);
    }
}
