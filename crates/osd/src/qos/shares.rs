//! How much everybody else may do while somebody who has a reservation is at work: the clients without one, recovery and scrub.
//!
//! Nothing is held while the operations that go ahead take what they take on their own. What that is is measured, since it depends on
//! what is asked for: of every [`PROBE_EVERY`] the others go at their floor for a [`PROBE`]. When operations that go ahead
//! take a tenth longer than then, the others get less, in steps; when they do not, they get more, until nothing is held. How much is
//! one number for all classes: the part of what the others did when they were free, and of the rates of recovery and scrub.
//!
//! Invariants: nobody gets less than [`FLOOR`] of what he had; nothing is held a second after the last operation that
//! went ahead; a floor that does not help is found at the next probe, which measures the others' floor, too. Means are geometric, as
//! in `pace`. Nothing is allocated, and there is no timer while nobody with a reservation is at work.

use crate::qos::bucket::Cost;
use std::time::Duration;

/// So long after its last operation a reservation is in use.
const ACTIVE: Duration = Duration::from_secs(1);
/// How often the share is decided.
const WINDOW: Duration = Duration::from_millis(250);
pub const PROBE_EVERY: Duration = Duration::from_secs(10);
pub const PROBE: Duration = Duration::from_millis(500);
/// What the others had under way when a probe began ends first.
const DRAIN: Duration = Duration::from_millis(100);
/// Operations from which a mean is taken.
const ENOUGH: u64 = 32;
/// A tenth, as a binary logarithm.
const SLOWER: f64 = 0.1375;
pub const FLOOR: f64 = 1.0 / 16.0;
const MORE: f64 = 1.0 / 32.0;
const LESS: f64 = 0.7;
/// What the others did is forgotten so slowly, each window.
const FADES: f64 = 0.98;
/// Units per second that the others are taken to be able to do at least, so that their floor lets things end.
const PEAK_MIN: f64 = 1024.0;
/// Bytes that count as much as an operation.
const UNIT: f64 = 65_536.0;
/// So long may the others' tokens gather.
const SLACK: f64 = 0.02;
/// What they owe is forgiven beyond this.
const DEBT_SECONDS_MAX: f64 = 1.0;
/// Batches of theirs are so much shorter than those under a limit.
const BATCHES: f64 = 10.0;

fn units(cost: &Cost) -> f64 {
    f64::from(cost.ops) + (cost.read_bytes as f64 + cost.write_bytes as f64) / UNIT
}

/// Logarithms of what operations took.
#[derive(Debug, Default, Clone, Copy)]
struct Sum {
    logs: f64,
    count: u64,
}

impl Sum {
    fn add(&mut self, took: Duration) {
        let us = took.as_nanos() as f64 / 1000.0;
        self.logs += us.max(1.0).log2();
        self.count += 1;
    }

    /// Their mean, and begins anew; None: there are not enough yet.
    fn take(&mut self) -> Option<f64> {
        let enough = self.count >= ENOUGH;
        enough.then(|| {
            let all = std::mem::take(self);
            all.logs / all.count as f64
        })
    }
}

/// The others go at their floor.
#[derive(Debug, Clone, Copy)]
struct Probe {
    counts_from: Duration,
    ends: Duration,
}

#[derive(Debug)]
pub struct Shares {
    /// There are reservations.
    on: bool,
    /// When the share is decided next; None: nobody with a reservation is at work.
    due: Option<Duration>,
    active_until: Duration,
    /// Of what the others could do; 1: they are free.
    open: f64,
    /// Units per second that they did when they were free.
    peak: f64,
    /// Units of theirs since `counted`, while they are free.
    passed: f64,
    counted: Duration,
    /// Their tokens, while they are not.
    level: f64,
    filled: Duration,
    /// Somebody waits for them.
    short: bool,
    working: Sum,
    probed: Sum,
    /// What operations take that go ahead of nobody.
    usual: Option<f64>,
    probe: Option<Probe>,
    next_probe: Duration,
    /// Operations that went ahead; how often one of the others was held back; those of them that were let through
    /// although there were no tokens.
    pub ahead: u64,
    pub held: u64,
    pub unheld: u64,
}

impl Default for Shares {
    fn default() -> Self {
        Self {
            on: false,
            due: None,
            active_until: Duration::ZERO,
            open: 1.0,
            peak: PEAK_MIN,
            passed: 0.0,
            counted: Duration::ZERO,
            level: 0.0,
            filled: Duration::ZERO,
            short: false,
            working: Sum::default(),
            probed: Sum::default(),
            usual: None,
            probe: None,
            next_probe: Duration::ZERO,
            ahead: 0,
            held: 0,
            unheld: 0,
        }
    }
}

impl Shares {
    /// Whether there are reservations at all.
    pub fn set(&mut self, on: bool) {
        if !on && self.on {
            *self = Self::default();
        }
        self.on = on;
    }

    pub fn is_on(&self) -> bool {
        self.on
    }

    pub fn is_active(&self) -> bool {
        self.due.is_some()
    }

    /// What the others get now of what they could do.
    pub fn part(&self) -> f64 {
        match (self.due, self.probe) {
            (None, _) => 1.0,
            (_, Some(_)) => FLOOR,
            (_, None) => self.open,
        }
    }

    pub fn is_holding(&self) -> bool {
        self.part() < 1.0
    }

    pub fn next_timer(&self) -> Option<Duration> {
        self.due
    }

    fn per_second(&self) -> f64 {
        self.part() * self.peak
    }

    /// Units per second that the others are held to; None: they are free.
    pub fn ceiling(&self) -> Option<f64> {
        self.is_holding().then(|| self.per_second())
    }

    /// An operation goes ahead, within its reservation.
    pub fn goes_ahead(&mut self, now: Duration) {
        self.ahead += 1;
        self.active_until = now + ACTIVE;
        if self.due.is_none() {
            self.roll(now);
            (self.open, self.probe, self.working) = (1.0, None, Sum::default());
            // Nobody knows yet what it takes on its own now.
            (self.due, self.next_probe) = (Some(now), now);
        }
    }

    /// One that went ahead has its answer.
    pub fn answered(&mut self, now: Duration, took: Duration) {
        if self.due.is_none() {
            return;
        }
        match self.probe {
            None => self.working.add(took),
            Some(probe) if now >= probe.counts_from => self.probed.add(took),
            Some(_) => {}
        }
    }

    /// The others are let through: counted while they are free, charged while they are not.
    pub fn charge(&mut self, cost: &Cost, now: Duration) {
        if self.is_holding() {
            self.refill(now);
            self.level -= units(cost);
        } else {
            if self.due.is_none() && now.saturating_sub(self.counted) >= ACTIVE {
                self.roll(now);
            }
            self.passed += units(cost);
        }
    }

    pub fn refund(&mut self, cost: &Cost) {
        if self.is_holding() {
            self.level = (self.level + units(cost)).min(self.capacity());
        }
    }

    fn capacity(&self) -> f64 {
        (self.per_second() * SLACK).max(1.0)
    }

    fn refill(&mut self, now: Duration) {
        let gone = now.saturating_sub(self.filled).as_secs_f64();
        let most = -self.per_second() * DEBT_SECONDS_MAX;
        self.level = (self.level.max(most) + gone * self.per_second()).min(self.capacity());
        self.filled = now;
    }

    /// How long until one of the others may go; zero: now. `new`: it waits behind those that wait already.
    pub fn wait(&mut self, new: bool, now: Duration) -> Duration {
        if !self.is_holding() {
            return Duration::ZERO;
        }
        self.refill(now);
        if self.level > 0.0 {
            return match new && self.short {
                true => Duration::from_nanos(1),
                false => Duration::ZERO,
            };
        }
        self.short = true;
        let wait = (-self.level / self.per_second()).min(DEBT_SECONDS_MAX);
        Duration::from_secs_f64(wait) + Duration::from_micros(1)
    }

    pub fn nobody_is_short(&mut self) {
        self.short = false;
    }

    /// How long so much of the others counts as, when it is decided how much goes at once.
    pub fn seconds_of(&self, cost: &Cost) -> f64 {
        match self.is_holding() {
            true => units(cost) * BATCHES / self.per_second(),
            false => 0.0,
        }
    }

    /// What the others did since the last time, if they were free.
    fn roll(&mut self, now: Duration) {
        let gone = now.saturating_sub(self.counted);
        if !self.is_holding() {
            // A rate of less than that is one of a few operations that came together.
            if gone < WINDOW / 2 {
                return;
            }
            let rate = self.passed / gone.as_secs_f64();
            self.peak = rate.max(self.peak * FADES).max(PEAK_MIN);
        }
        (self.passed, self.counted) = (0.0, now);
    }

    /// Decides how much the others get from now on, when it is time. True: they may get more than before.
    pub fn step(&mut self, now: Duration) -> bool {
        if self.due.is_none_or(|due| due > now) {
            return false;
        }
        let before = self.part();
        self.roll(now);
        if before < 1.0 {
            self.refill(now);
        }
        if now >= self.active_until {
            (self.due, self.probe, self.open, self.level) = (None, None, 1.0, 0.0);
            return before < 1.0;
        }
        self.due = Some(now + WINDOW);
        match self.probe {
            Some(probe) if now >= probe.ends => self.end_probe(now),
            Some(_) => {}
            None => self.judge(now),
        }
        // They begin with what their new ceiling lets gather.
        match before < 1.0 {
            true => self.level = self.level.min(self.capacity()),
            false => (self.level, self.filled) = (self.capacity(), now),
        }
        self.part() > before
    }

    fn end_probe(&mut self, now: Duration) {
        self.usual = self.probed.take().or(self.usual);
        self.probe = None;
        self.working = Sum::default();
        self.next_probe = match self.usual {
            Some(_) => now + PROBE_EVERY,
            None => now + ACTIVE,
        };
    }

    fn judge(&mut self, now: Duration) {
        if let Some(usual) = self.usual
            && let Some(mean) = self.working.take()
        {
            self.open = match mean > usual + SLOWER {
                true => (self.open * LESS).max(FLOOR),
                false => (self.open + MORE).min(1.0),
            };
        }
        if now >= self.next_probe {
            self.probe = Some(Probe {
                counts_from: now + DRAIN,
                ends: now + PROBE,
            });
        }
    }
}
