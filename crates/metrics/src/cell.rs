//! The cells: one writing thread each, any number of readers.
//!
//! A reset does not touch what is counted: it is taken down, and subtracted from what is read. So what is counted elsewhere
//! and copied here begins anew, too.

use crate::add::add;
use crate::spec::{Cell, Kind, Value};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Only ever grows.
#[derive(Debug, Default)]
pub struct Counter {
    value: AtomicU64,
    /// What it held when it was reset.
    base: AtomicU64,
}

impl Counter {
    pub fn inc(&self) {
        self.add(1);
    }

    pub fn add(&self, n: u64) {
        add(&self.value, n);
    }

    /// For what is counted elsewhere, and copied here before it is shown.
    pub fn set(&self, n: u64) {
        self.value.store(n, Relaxed);
    }

    pub fn get(&self) -> u64 {
        since(&self.value, &self.base)
    }
}

/// What came since the reset.
fn since(value: &AtomicU64, base: &AtomicU64) -> u64 {
    value.load(Relaxed).saturating_sub(base.load(Relaxed))
}

fn rebase(value: &AtomicU64, base: &AtomicU64) {
    base.store(value.load(Relaxed), Relaxed);
}

impl Cell for Counter {
    const KIND: Kind = Kind::Counter;
    fn reset(&self) {
        rebase(&self.value, &self.base);
    }
    fn read(&self) -> Value<'_> {
        Value::Number(self.get())
    }
}

/// What something is now.
#[derive(Debug, Default)]
pub struct Gauge(AtomicU64);

impl Gauge {
    pub fn set(&self, n: u64) {
        self.0.store(n, Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

impl Cell for Gauge {
    const KIND: Kind = Kind::Gauge;
    /// What something is now stays what it is.
    fn reset(&self) {}
    fn read(&self) -> Value<'_> {
        Value::Number(self.get())
    }
}

/// How often something was done, and how long it took in all.
#[derive(Debug, Default)]
pub struct TimeAverage {
    count: AtomicU64,
    sum_ns: AtomicU64,
    base: [AtomicU64; 2],
}

impl TimeAverage {
    pub fn took(&self, time: Duration) {
        add(&self.count, 1);
        add(&self.sum_ns, time.as_nanos() as u64);
    }

    /// For what is measured elsewhere, and copied here before it is shown.
    pub fn set(&self, count: u64, sum: Duration) {
        self.count.store(count, Relaxed);
        self.sum_ns.store(sum.as_nanos() as u64, Relaxed);
    }

    pub fn count(&self) -> u64 {
        since(&self.count, &self.base[0])
    }

    pub fn sum(&self) -> Duration {
        Duration::from_nanos(since(&self.sum_ns, &self.base[1]))
    }
}

impl Cell for TimeAverage {
    const KIND: Kind = Kind::TimeAverage;
    fn reset(&self) {
        rebase(&self.count, &self.base[0]);
        rebase(&self.sum_ns, &self.base[1]);
    }
    fn read(&self) -> Value<'_> {
        Value::Time {
            count: self.count(),
            sum: self.sum(),
        }
    }
}

/// How often something was done, and the sum of its sizes.
#[derive(Debug, Default)]
pub struct Average {
    count: AtomicU64,
    sum: AtomicU64,
    base: [AtomicU64; 2],
}

impl Average {
    pub fn add(&self, n: u64) {
        add(&self.count, 1);
        add(&self.sum, n);
    }
}

impl Cell for Average {
    const KIND: Kind = Kind::Average;
    fn reset(&self) {
        rebase(&self.count, &self.base[0]);
        rebase(&self.sum, &self.base[1]);
    }
    fn read(&self) -> Value<'_> {
        Value::Sum {
            count: since(&self.count, &self.base[0]),
            sum: since(&self.sum, &self.base[1]),
        }
    }
}
