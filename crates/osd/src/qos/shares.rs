//! How much everybody else may do while somebody who has a reservation is at work: the clients without one, recovery and scrub.
//!
//! Nothing is held while the operations that go ahead take what they take on their own. What that is is measured, since it depends
//! on what is asked for: of every [`PROBE_EVERY`] of the wall clock the others go at their floor for a [`PROBE`], at all OSDs at once
//! (as far as their clocks agree), since an operation waits for the disks of several. When operations that go ahead take a tenth
//! longer than then, or more of them are late (`tail`), beyond what chance explains, the others get less, in steps; when they do
//! not, they get more, until nothing is held, or until they come near to what was too much before ([`ROOM`]): there they stay, and
//! what is seen meanwhile is taken together. From time to time a little more is tried, ever more seldom while it is too much
//! again ([`TRY_MIN`]). How much is one number for all classes: the part of what the others did when they were free, and of the rates of recovery
//! and scrub.
//!
//! Invariants: nobody gets less than [`FLOOR`] of what he had; nothing is held a second after the last operation that
//! went ahead; whoever shows nothing holds nobody for long ([`UNSURE`]); a floor that does not help is found at the next probe,
//! which measures the others' floor, too. Means are geometric, as in `pace`. Nothing is allocated, and there is no timer while
//! nobody with a reservation is at work.

use crate::qos::bucket::Cost;
use crate::qos::tail::{Late, Tail};
use std::time::Duration;

/// So long after its last operation a reservation is in use.
const ACTIVE: Duration = Duration::from_secs(1);
/// How often the share is decided: at whole windows of the wall clock.
const WINDOW: Duration = Duration::from_millis(250);
/// A twentieth of the time is what others pay for the measure.
pub const PROBE_EVERY: Duration = Duration::from_secs(10);
/// Two windows, so that one can be compared with the other.
pub const PROBE: Duration = Duration::from_millis(500);
/// A probe goes on while what the others had under way when it began is still being served, as long as this: slow disks.
const PROBE_MAX: Duration = Duration::from_secs(3);
/// Where nothing is known, or nothing newer than [`STALE`], the next whole second is time for a probe.
const PROBE_FIRST: Duration = Duration::from_secs(1);
const STALE: Duration = Duration::from_secs(60);
/// Operations from which a mean is taken, and which somebody must have done before others are held for a probe.
const ENOUGH: u64 = 16;
/// Operations from which a difference is seen at all, if it is large.
const FEW: u64 = 4;
/// A tenth, as a binary logarithm.
const SLOWER: f64 = 0.1375;
/// Standard errors within which a difference may be chance: there are four decisions a second.
const CHANCE: f64 = 3.0;
/// Windows without a decision after which the others get more: those that go ahead are too few to show anything.
const UNSURE: u32 = 8;
pub const FLOOR: f64 = 1.0 / 32.0;
/// Of what they have, the others get so much more at a time, and of what they had free at least so much, or where nothing shows;
/// after [`CAREFUL`] times in a row ever more.
const MORE: f64 = 0.125;
const MORE_MIN: f64 = 1.0 / 256.0;
const MORE_UNSURE: f64 = 1.0 / 32.0;
const CAREFUL: u32 = 2;
const LESS: f64 = 0.7;
/// Where it is not clear whether it is too much, and something is held already.
const LESS_UNCLEAR: f64 = 0.9;
/// Of what was too much the others get so much.
const ROOM: f64 = 0.75;
/// After so many windows there they get a quarter more: twice as many after each time that it was too much, half as many after each
/// time that it was not.
const TRY_MIN: u32 = 4;
const TRY_FIRST: u32 = 40;
const TRY_MAX: u32 = 480;
const TRY_MORE: f64 = 1.25;
/// Of so many operations in one place the older ones begin to count for less.
const KEPT: u64 = 8192;
/// What the others did is forgotten so slowly, each window.
const FADES: f64 = 0.98;
/// Units per second that the others are taken to be able to do at least, so that their floor lets things end.
const PEAK_MIN: f64 = 2048.0;
/// Bytes that count as much as an operation.
const UNIT: f64 = 65_536.0;
/// So long may the others' tokens gather.
const SLACK: f64 = 0.02;
/// What they owe is forgiven beyond this when their ceiling falls; and how often it is looked whether they may go.
const DEBT_SECONDS_MAX: f64 = 1.0;
/// Batches of theirs are so much shorter than those under a limit.
const BATCHES: f64 = 10.0;

fn units(cost: &Cost) -> f64 {
    f64::from(cost.ops) + (cost.read_bytes as f64 + cost.write_bytes as f64) / UNIT
}

/// How far into a period of the wall clock.
fn into(wall: Duration, period: Duration) -> Duration {
    Duration::from_nanos((wall.as_nanos() % period.as_nanos()) as u64)
}

/// What operations took: logarithms, and how many were late.
#[derive(Debug, Default, Clone, Copy)]
struct Sum {
    logs: f64,
    squares: f64,
    count: u64,
    tail: Tail,
}

impl Sum {
    fn add(&mut self, took: Duration) {
        let us = took.as_nanos() as f64 / 1000.0;
        let log = us.max(1.0).log2();
        self.logs += log;
        self.squares += log * log;
        self.count += 1;
        self.tail.add(took);
    }

    fn plus(&self, other: &Self) -> Self {
        Self {
            logs: self.logs + other.logs,
            squares: self.squares + other.squares,
            count: self.count + other.count,
            tail: self.tail.plus(&other.tail),
        }
    }

    /// What is older counts for less.
    fn halved(&self) -> Self {
        Self {
            logs: self.logs / 2.0,
            squares: self.squares / 2.0,
            count: self.count / 2,
            tail: self.tail.halved(),
        }
    }

    fn is_enough(&self) -> bool {
        self.count >= ENOUGH
    }

    fn mean(&self) -> f64 {
        self.logs / self.count.max(1) as f64
    }

    /// Square of the standard error of the mean.
    fn error(&self) -> f64 {
        let count = self.count.max(2) as f64;
        let variance = self.squares / count - self.mean() * self.mean();
        variance.max(0.0) / (count - 1.0)
    }

    /// It is slower by a tenth, and not by chance.
    fn exceeds(&self, other: &Self) -> bool {
        self.is_apart(other) && self.mean() - other.mean() > SLOWER
    }

    /// The means differ, and not by chance.
    fn is_apart(&self, other: &Self) -> bool {
        let chance = CHANCE * (self.error() + other.error()).sqrt();
        self.count.min(other.count) >= FEW && (self.mean() - other.mean()).abs() > chance
    }

    /// Measured again: the mean is the new one, and what is late is told from the probes before, too, while they say the same.
    fn after(mut self, before: Option<Self>) -> Self {
        let like = |b: &Self| !self.is_apart(b) || (self.mean() - b.mean()).abs() <= SLOWER;
        if let Some(before) = before.filter(like) {
            self.tail = self.tail.plus(&before.tail.faded());
        }
        self
    }
}

/// The others go at their floor.
#[derive(Debug, Clone, Copy)]
struct Probe {
    began: Duration,
    /// Of the window before.
    last: Sum,
    /// Operations that went ahead in it and have no answer.
    waiting: u64,
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
    /// Operations that went ahead since the last rest.
    seen: u64,
    /// What they took since the last decision.
    working: Sum,
    /// Windows since that.
    unsure: u32,
    /// Decisions in a row by which the others got more.
    rises: u32,
    /// The part of the others that was too much; infinite where none is known to be.
    too_much: f64,
    /// Windows near to it, and how many there are to be before more is tried.
    calm: u32,
    try_after: u32,
    /// More was tried, and nothing has shown yet.
    trying: bool,
    probe: Option<Probe>,
    /// In this window of the probe.
    probed: Sum,
    /// In probes that did not have enough.
    sparse: Sum,
    /// What operations take beside the others' floor.
    usual: Option<Sum>,
    /// When the last probe ended.
    probed_at: Option<Duration>,
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
            seen: 0,
            working: Sum::default(),
            unsure: 0,
            rises: 0,
            too_much: f64::INFINITY,
            calm: 0,
            try_after: TRY_FIRST,
            trying: false,
            probe: None,
            probed: Sum::default(),
            sparse: Sum::default(),
            usual: None,
            probed_at: None,
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

    /// Operations go ahead, within their reservation.
    pub fn go_ahead(&mut self, ops: u32, now: Duration) {
        let ops = u64::from(ops);
        self.ahead += ops;
        self.active_until = now + ACTIVE;
        if self.due.is_none() {
            self.roll(now);
            // What was measured before the rest is kept: there may be one every few seconds.
            (self.due, self.seen) = (Some(now), 0);
        }
        self.seen += ops;
        if let Some(probe) = &mut self.probe {
            probe.waiting += ops;
        }
    }

    /// One that went ahead has its answer.
    pub fn answered(&mut self, now: Duration, took: Duration) {
        if self.due.is_none() {
            return;
        }
        match &mut self.probe {
            None => self.working.add(took),
            // Those that began before it waited behind what the others had under way.
            Some(probe) if now.saturating_sub(took) >= probe.began => {
                probe.waiting = probe.waiting.saturating_sub(1);
                self.probed.add(took);
            }
            Some(_) => {}
        }
    }

    /// The others are let through: counted while they are free, charged while they are not. What cannot wait takes no more than
    /// half of the tokens that there are: those who wait would never have any.
    pub fn charge(&mut self, cost: &Cost, can_wait: bool, now: Duration) {
        if self.is_holding() {
            self.refill(now);
            let most = match can_wait {
                true => f64::INFINITY,
                false => self.level.max(0.0) / 2.0,
            };
            self.level -= units(cost).min(most);
        } else {
            if self.due.is_none() && now.saturating_sub(self.counted) >= ACTIVE {
                self.roll(now);
            }
            self.passed += units(cost);
        }
    }

    /// So many bytes were read where others had been charged.
    pub fn settle(&mut self, charged: u64, read: u64) {
        if self.is_holding() {
            let back = (charged as f64 - read as f64) / UNIT;
            self.level = (self.level + back).min(self.capacity());
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
        self.level = (self.level + gone * self.per_second()).min(self.capacity());
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

    /// Decides how much the others get from now on, when it is time. `wall`: since 1970. True: they may get more than before.
    pub fn step(&mut self, now: Duration, wall: Duration) -> bool {
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
            (self.working, self.probed, self.unsure) = (Sum::default(), Sum::default(), 0);
            return before < 1.0;
        }
        self.due = Some(now + WINDOW.saturating_sub(into(wall, WINDOW)));
        match self.probe.take() {
            Some(probe) => self.go_on(probe, now),
            None => {
                self.judge();
                self.begin_probe(now, wall);
            }
        }
        // They begin with what their new ceiling lets gather.
        match before < 1.0 {
            true => self.level = self.level.min(self.capacity()),
            false => (self.level, self.filled) = (self.capacity(), now),
        }
        if self.part() < before {
            self.level = self.level.max(-self.per_second() * DEBT_SECONDS_MAX);
        }
        self.part() > before
    }

    /// In the first window of a period only: all OSDs begin together.
    fn begin_probe(&mut self, now: Duration, wall: Duration) {
        let known = self.probed_at.is_some_and(|at| now.saturating_sub(at) < STALE);
        let every = if known { PROBE_EVERY } else { PROBE_FIRST };
        if self.seen >= ENOUGH && into(wall, every) < WINDOW {
            self.probed = Sum::default();
            self.probe = Some(Probe {
                began: now,
                last: Sum::default(),
                waiting: 0,
            });
        }
    }

    /// A window of a probe has ended.
    fn go_on(&mut self, probe: Probe, now: Duration) {
        let window = std::mem::take(&mut self.probed);
        let long = now.saturating_sub(probe.began);
        let faster = probe.last.exceeds(&window);
        let stuck = window.count == 0 && probe.waiting > 0;
        // A window may be cut a little short by the clocks.
        if long + WINDOW / 2 < PROBE || ((faster || stuck) && long < PROBE_MAX) {
            self.probe = Some(Probe {
                last: window,
                ..probe
            });
            return;
        }
        self.probed_at = Some(now);
        let all = match faster {
            true => window,
            false => self.sparse.plus(&probe.last).plus(&window),
        };
        match all.is_enough() {
            true => {
                if self.usual.as_ref().is_some_and(|usual| all.exceeds(usual)) {
                    // He asks for something else, or it is not the others who slow him down: what was too much says little.
                    self.try_after = TRY_MIN;
                }
                (self.usual, self.sparse) = (Some(all.after(self.usual)), Sum::default());
            }
            false => self.sparse = all,
        }
    }

    fn judge(&mut self) {
        let Some(usual) = &self.usual else { return };
        self.unsure += 1;
        self.calm = self.calm.saturating_add(1);
        let enough = self.working.is_enough();
        let late = self.working.tail.beside(&usual.tail);
        let surely = self.working.exceeds(usual) || late == Late::Surely;
        let slower = surely || late == Late::More && self.is_new() && self.open < 1.0;
        let same = enough && late == Late::Same && self.working.mean() - usual.mean() <= SLOWER;
        // Between more and as many, or by chance.
        let unclear = matches!(late, Late::Unclear | Late::More)
            && self.working.tail.is_enough()
            && usual.tail.is_enough();
        if !slower && !same && self.unsure < UNSURE {
            return;
        }
        if slower {
            self.was_too_much(surely);
        } else if unclear {
            // Where nothing was too much before it is waited for more to be seen.
            if self.is_new() {
                self.less(LESS_UNCLEAR);
            }
        } else {
            self.more(enough);
        }
        self.unsure = 0;
        if !self.is_new() && !slower {
            if self.working.count >= KEPT {
                self.working = self.working.halved();
            }
        } else if slower || enough {
            self.working = Sum::default();
        }
    }

    /// It is not where the others stay because more was too much.
    fn is_new(&self) -> bool {
        self.open >= 1.0 || self.open < self.near()
    }

    /// What the others may have without coming near to what was too much.
    fn near(&self) -> f64 {
        (self.too_much * ROOM).clamp(FLOOR, 1.0)
    }

    fn was_too_much(&mut self, surely: bool) {
        if surely {
            if self.trying {
                self.try_after = (self.try_after * 2).min(TRY_MAX);
            }
            (self.too_much, self.trying) = (self.open.max(FLOOR / ROOM), false);
        }
        self.less(LESS);
    }

    fn less(&mut self, less: f64) {
        let part = if self.open < 1.0 || less <= LESS {
            self.open * less
        } else {
            1.0
        };
        (self.open, self.rises, self.calm) = (part.max(FLOOR), 0, 0);
    }

    fn more(&mut self, enough: bool) {
        if !enough {
            // Nothing shows that it would be.
            self.too_much = f64::INFINITY;
        }
        let near = self.near();
        if self.open < near {
            let least = if enough { MORE_MIN } else { MORE_UNSURE };
            let times = 1 + self.rises.saturating_sub(CAREFUL);
            self.open = (self.open + (self.open * MORE * f64::from(times)).max(least)).min(near);
            (self.rises, self.calm) = (self.rises.saturating_add(1), 0);
        } else if self.open >= 1.0 {
            (self.too_much, self.try_after, self.trying) = (f64::INFINITY, TRY_FIRST, false);
        } else if self.calm >= self.try_after {
            if self.trying {
                self.try_after = (self.try_after / 2).max(TRY_MIN);
            }
            (self.too_much, self.trying, self.calm) = (self.too_much * TRY_MORE, true, 0);
            (self.open, self.working) = (self.near(), Sum::default());
        }
    }
}
