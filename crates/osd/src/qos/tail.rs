//! How many of some operations were late: slower than nineteen of twenty are alone.
//!
//! What a neighbour costs shows in the slowest of a hundred long before it shows in a mean, and a hundredth of what an OSD does
//! in a second is too few to go by. Those beyond the nineteenth of twenty are five times as many, and move together with them.

use std::time::Duration;

/// Steps of an octave: each is longer by a tenth than the one before.
const STEPS: f64 = 8.0;
const OCTAVES: usize = 14;
const COUNTS: usize = OCTAVES * STEPS as usize;
/// The first step ends here: 32 us to half a second are told apart.
const SHORTEST_US: f64 = 32.0;
const LATE_OF: u64 = 20;
/// Operations from which the part of those that are late says something.
const ENOUGH: u64 = 400;
/// So many times as many are late: too many, or no more than there should be.
const WORSE: f64 = 1.15;
const SAME: f64 = 1.1;
/// Standard errors within which a difference may be chance. Fewer than for means: what is decided wrongly here costs others a third
/// for a second.
const CHANCE: f64 = 2.0;
/// And what is hardly chance.
const SURE: f64 = 3.5;

/// How many operations took how long.
#[derive(Debug, Clone, Copy)]
pub struct Tail {
    counts: [u32; COUNTS],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Late {
    Surely,
    /// As one of forty times by chance.
    More,
    Same,
    /// Too few operations, or between the two.
    Unclear,
}

impl Default for Tail {
    fn default() -> Self {
        Self { counts: [0; COUNTS] }
    }
}

impl Tail {
    pub fn add(&mut self, took: Duration) {
        let us = took.as_nanos() as f64 / 1000.0;
        let step = (us / SHORTEST_US).max(1.0).log2() * STEPS;
        let count = &mut self.counts[(step as usize).min(COUNTS - 1)];
        *count = count.saturating_add(1);
    }

    pub fn plus(&self, other: &Self) -> Self {
        let mut sum = *self;
        for (a, b) in sum.counts.iter_mut().zip(&other.counts) {
            *a = a.saturating_add(*b);
        }
        sum
    }

    /// What is older counts for less.
    pub fn halved(&self) -> Self {
        let mut half = *self;
        half.counts.iter_mut().for_each(|c| *c /= 2);
        half
    }

    /// The same, more slowly.
    pub fn faded(&self) -> Self {
        let mut less = *self;
        less.counts.iter_mut().for_each(|c| *c -= c.div_ceil(8));
        less
    }

    pub fn count(&self) -> u64 {
        self.counts.iter().copied().map(u64::from).sum()
    }

    pub fn is_enough(&self) -> bool {
        self.count() >= ENOUGH
    }

    fn from(&self, step: usize) -> u64 {
        self.counts[step..].iter().copied().map(u64::from).sum()
    }

    /// The first step of which all that is longer is one of twenty at most.
    fn late_from(&self) -> usize {
        let most = self.count() / LATE_OF;
        let (mut step, mut longer) = (COUNTS, 0);
        while step > 1 && longer + u64::from(self.counts[step - 1]) <= most {
            step -= 1;
            longer += u64::from(self.counts[step]);
        }
        // What is longer by less than a tenth is not late.
        (step + 1).min(COUNTS - 1)
    }

    /// Whether more of these are late than of those, which were alone.
    pub fn beside(&self, alone: &Self) -> Late {
        let (n, of) = (self.count(), alone.count());
        if n.min(of) < ENOUGH {
            return Late::Unclear;
        }
        let from = alone.late_from();
        // As if one more were late: where none is, nothing is known.
        let part = |late: u64, n: u64| (late as f64 + 1.0) / (n as f64 + 1.0);
        let (is, was) = (part(self.from(from), n), part(alone.from(from), of));
        let error = (was.max(is) * (1.0 / n as f64 + 1.0 / of as f64)).sqrt();
        match is / was {
            ratio if ratio > WORSE && is - was > SURE * error => Late::Surely,
            ratio if ratio > WORSE && is - was > CHANCE * error => Late::More,
            ratio if ratio <= SAME => Late::Same,
            _ => Late::Unclear,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `count` operations, of which one of `every` takes `long`, the others 200 to 400 us.
    fn tail(count: u64, every: u64, long: Duration) -> Tail {
        let mut tail = Tail::default();
        for n in 0..count {
            tail.add(match n % every {
                0 => long,
                at => Duration::from_micros(200 + at * 200 / every),
            });
        }
        tail
    }

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn twice_as_many_late_ones_are_more_and_as_many_are_not() {
        let alone = tail(2000, 25, MS);
        assert_eq!(alone.beside(&alone), Late::Same);
        assert_eq!(tail(2000, 12, MS).beside(&alone), Late::Surely);
        assert_eq!(tail(2000, 16, MS).beside(&alone), Late::More);
        assert_eq!(tail(2000, 22, MS).beside(&alone), Late::Unclear);
        // Fewer are no reason to hold anybody.
        assert_eq!(tail(2000, 100, MS).beside(&alone), Late::Same);
    }

    #[test]
    fn a_few_operations_say_nothing() {
        let alone = tail(2000, 25, MS);
        assert_eq!(tail(ENOUGH - 1, 2, MS).beside(&alone), Late::Unclear);
        assert_eq!(alone.beside(&tail(ENOUGH - 1, 25, MS)), Late::Unclear);
        assert!(!tail(ENOUGH - 1, 2, MS).is_enough() && tail(ENOUGH, 2, MS).is_enough());
    }

    #[test]
    fn operations_that_all_take_the_same_are_late_beyond_a_tenth() {
        let same = |us| tail(1000, 1, Duration::from_micros(us));
        assert_eq!(same(500).beside(&same(500)), Late::Same);
        assert_eq!(same(700).beside(&same(500)), Late::Surely);
    }

    #[test]
    fn what_is_shorter_or_longer_than_all_steps_counts() {
        let mut alone = tail(1000, 1, Duration::ZERO);
        assert_eq!((alone.count(), alone.beside(&alone)), (1000, Late::Same));
        let slow = tail(1000, 1, Duration::from_secs(100));
        assert_eq!(slow.beside(&alone), Late::Surely);
        assert_eq!(slow.beside(&slow), Late::Same);
        alone = alone.plus(&alone).halved();
        assert_eq!(alone.count(), 1000);
        assert_eq!(alone.faded().count(), 875);
    }
}
