//! What a measurement needs beside the engine: latencies, the process's own usage, a bell, chance.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Latencies in nanoseconds, in buckets 1/32 of their value wide: any number of them in 15 KiB.
#[derive(Debug)]
pub struct Latencies {
    buckets: Vec<u64>,
    count: u64,
    sum: u64,
    max: u64,
}

/// Values below this have a bucket each; above, every power of two has half as many.
const FINE: u64 = 64;

impl Latencies {
    pub fn new() -> Self {
        Self {
            buckets: vec![0; (FINE / 2 * 60) as usize],
            count: 0,
            sum: 0,
            max: 0,
        }
    }

    fn bucket(ns: u64) -> usize {
        if ns < FINE {
            return ns as usize;
        }
        // The value's 6 highest bits, of which the first is 1.
        let shift = 64 - 6 - ns.leading_zeros();
        (u64::from(shift) * (FINE / 2) + (ns >> shift)) as usize
    }

    /// The largest value that the bucket holds.
    fn value(bucket: usize) -> u64 {
        let b = bucket as u64;
        if b < FINE {
            return b;
        }
        let shift = b / (FINE / 2) - 1;
        let high = b % (FINE / 2) + FINE / 2;
        (high << shift) + ((1 << shift) - 1)
    }

    pub fn add(&mut self, latency: Duration) {
        let ns = latency.as_nanos().min(u128::from(u64::MAX)) as u64;
        self.buckets[Self::bucket(ns)] += 1;
        self.count += 1;
        self.sum = self.sum.saturating_add(ns);
        self.max = self.max.max(ns);
    }

    /// Those of another one, too.
    pub fn merge(&mut self, other: &Self) {
        for (mine, other) in self.buckets.iter_mut().zip(&other.buckets) {
            *mine += other;
        }
        self.count += other.count;
        self.sum = self.sum.saturating_add(other.sum);
        self.max = self.max.max(other.max);
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    /// In microseconds; `share` of all are not above.
    pub fn percentile_us(&self, share: f64) -> f64 {
        let wanted = (self.count as f64 * share).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (i, n) in self.buckets.iter().enumerate() {
            seen += n;
            if seen >= wanted {
                return Self::value(i).min(self.max) as f64 / 1000.0;
            }
        }
        self.max_us()
    }

    pub fn max_us(&self) -> f64 {
        self.max as f64 / 1000.0
    }

    pub fn mean_us(&self) -> f64 {
        self.sum as f64 / self.count.max(1) as f64 / 1000.0
    }
}

/// What this process has used so far.
#[derive(Debug, Clone, Copy, Default)]
pub struct Used {
    /// User and system, helper threads included; in steps of the kernel's tick.
    pub cpu: Duration,
    /// What the kernel counts as sent to block devices; whole pages of the page cache at their first touch.
    pub kernel_written: u64,
}

impl Used {
    pub fn now() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let stat = read("/proc/self/stat");
        // Behind the program's name, which may hold anything: fields 14 and 15, ticks of 10 ms.
        let after = stat.rsplit(')').next().unwrap_or_default();
        let ticks: u64 = after
            .split_whitespace()
            .skip(11)
            .take(2)
            .filter_map(|f| f.parse::<u64>().ok())
            .sum();
        let io = read("/proc/self/io");
        let line = io.lines().find_map(|l| l.strip_prefix("write_bytes: "));
        Self {
            cpu: Duration::from_millis(ticks * 10),
            kernel_written: line.and_then(|l| l.parse().ok()).unwrap_or(0),
        }
    }
}

/// The most memory this process had resident since [`reset_peak`].
pub fn peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    let kib = line.and_then(|l| l.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}

/// Where the kernel does not allow it, peaks are those since the start.
pub fn reset_peak() {
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

/// Wakes the measuring loop, as an OSD's event loop would be woken.
#[derive(Debug, Default)]
pub struct Bell {
    rung: Mutex<bool>,
    wake: Condvar,
}

impl Bell {
    pub fn ring(&self) {
        *self.rung.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.wake.notify_one();
    }

    /// Until it rings, or for a tenth of a second.
    pub fn wait(&self) {
        let rung = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self
            .wake
            .wait_timeout_while(rung, Duration::from_millis(100), |rung| !*rung);
        *waited.unwrap_or_else(PoisonError::into_inner).0 = false;
    }
}

/// The same sequence every time.
#[derive(Debug)]
pub struct Dice(u64);

impl Dice {
    pub fn new() -> Self {
        Self(0x9e37_79b9_7f4a_7c15)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n.max(1)
    }
}

/// All numbers below `n`, each once, in no order: so that no block is read a second time from a cache.
#[derive(Debug)]
pub struct Shuffled {
    n: u64,
    /// Half of the bits of the smallest even power of two that is not below `n`.
    half: u32,
    next: u64,
}

impl Shuffled {
    pub fn new(n: u64) -> Self {
        let bits = u64::BITS - n.saturating_sub(1).leading_zeros();
        Self {
            n,
            half: bits.div_ceil(2).max(1),
            next: 0,
        }
    }

    /// A Feistel network: one to one over `2 * half` bits.
    fn mix(&self, x: u64) -> u64 {
        let mask = (1 << self.half) - 1;
        let (mut left, mut right) = (x >> self.half, x & mask);
        for round in 1..=4u64 {
            let f = (right + round).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 29;
            (left, right) = (right, left ^ (f & mask));
        }
        left << self.half | right
    }
}

impl Iterator for Shuffled {
    type Item = u64;
    fn next(&mut self) -> Option<u64> {
        while self.next >> (2 * self.half) == 0 {
            let x = self.mix(self.next);
            self.next += 1;
            if x < self.n {
                return Some(x);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_close_and_in_order() {
        let mut before = 0;
        for ns in (0..70).chain([1000, 123_456, 7_000_000_000, u64::MAX]) {
            let b = Latencies::bucket(ns);
            assert!(b >= before && b < Latencies::new().buckets.len(), "{ns}");
            let v = Latencies::value(b);
            assert!(v >= ns && v - ns <= ns / 32, "{ns} is shown as {v}");
            before = b;
        }
    }

    #[test]
    fn percentiles() {
        let mut l = Latencies::new();
        (1..=100u64).for_each(|us| l.add(Duration::from_micros(us)));
        let close = |a: f64, b: f64| (a - b).abs() <= b / 30.0;
        assert!(close(l.percentile_us(0.5), 50.0), "{}", l.percentile_us(0.5));
        assert!(close(l.percentile_us(0.99), 99.0), "{}", l.percentile_us(0.99));
        assert_eq!((l.max_us(), l.mean_us(), l.count()), (100.0, 50.5, 100));
    }

    #[test]
    fn a_shuffle_has_each_number_once() {
        for n in [1, 2, 3, 1000, 4096] {
            let mut all: Vec<u64> = Shuffled::new(n).collect();
            let sorted: Vec<u64> = (0..n).collect();
            assert!(n < 1000 || all != sorted, "{n} in order");
            all.sort_unstable();
            assert_eq!(all, sorted);
        }
    }

    #[test]
    fn the_kernel_tells_what_was_used() {
        assert!(peak_bytes() > 1 << 20);
        let start = Used::now();
        let mut x = 1u64;
        // Until a tick has passed: it must show.
        while Used::now().cpu == start.cpu {
            x = x.wrapping_mul(3);
        }
        assert!(x != 0);
    }
}
