//! Histograms over two axes, as Ceph's: how long operations of which size took.
//!
//! Bucket 0 is below the axis, 1 is below one quantum, each further one twice as wide as the one before; the last has no end.

use crate::add::add;
use crate::spec::{Cell, Kind, Value};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

pub const BUCKETS: usize = 32;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Axis {
    pub name: &'static str,
    pub quantum: u64,
}

impl Axis {
    pub fn bucket(&self, value: u64) -> usize {
        match (value / self.quantum).checked_ilog2() {
            None => 1,
            Some(log) => (2 + log as usize).min(BUCKETS - 1),
        }
    }

    /// First and last value of a bucket; None where it has no such end.
    pub fn range(&self, bucket: usize) -> (Option<u64>, Option<i64>) {
        let start = |b: usize| self.quantum << (b - 2);
        match bucket {
            0 => (None, Some(-1)),
            1 => (Some(0), Some(self.quantum as i64 - 1)),
            b if b == BUCKETS - 1 => (Some(start(b)), None),
            b => (Some(start(b)), Some(start(b + 1) as i64 - 1)),
        }
    }
}

/// Latency in microseconds and size in bytes, with Ceph's quanta.
#[derive(Debug)]
pub struct Histogram {
    counts: Box<[[AtomicU64; BUCKETS]; BUCKETS]>,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            counts: Box::new(std::array::from_fn(|_| {
                std::array::from_fn(|_| AtomicU64::new(0))
            })),
        }
    }
}

impl Histogram {
    pub const LATENCY: Axis = Axis {
        name: "Latency (usec)",
        quantum: 100_000,
    };
    pub const SIZE: Axis = Axis {
        name: "Request size (bytes)",
        quantum: 512,
    };

    pub fn add(&self, us: u64, bytes: u64) {
        add(
            &self.counts[Self::LATENCY.bucket(us)][Self::SIZE.bucket(bytes)],
            1,
        );
    }

    pub fn count(&self, latency: usize, size: usize) -> u64 {
        self.counts[latency][size].load(Relaxed)
    }
}

impl Cell for Histogram {
    const KIND: Kind = Kind::Histogram;
    fn reset(&self) {
        self.counts.iter().flatten().for_each(|c| c.store(0, Relaxed));
    }
    fn read(&self) -> Value<'_> {
        Value::Histogram(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The ranges that a real OSD shows (16.2.15).
    #[test]
    fn buckets_are_cephs() {
        let a = Histogram::LATENCY;
        assert_eq!(a.range(0), (None, Some(-1)));
        assert_eq!(a.range(1), (Some(0), Some(99_999)));
        assert_eq!(a.range(3), (Some(200_000), Some(399_999)));
        assert_eq!(a.range(31), (Some(53_687_091_200_000), None));
        for (value, bucket) in [(0, 1), (99_999, 1), (100_000, 2), (399_999, 3), (u64::MAX, 31)] {
            assert_eq!(a.bucket(value), bucket, "{value}");
        }
        let h = Histogram::default();
        h.add(150_000, 4096);
        assert_eq!(h.count(2, Histogram::SIZE.bucket(4096)), 1);
        assert_eq!(Histogram::SIZE.range(5), (Some(4096), Some(8191)));
        assert_eq!(Histogram::SIZE.bucket(4096), 5);
    }
}
