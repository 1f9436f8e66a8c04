//! The cells: one writing thread each, any number of readers.

use crate::add::add;
use crate::spec::{Cell, Kind, Value};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Only ever grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub fn inc(&self) {
        self.add(1);
    }

    pub fn add(&self, n: u64) {
        add(&self.0, n);
    }

    /// For what is counted elsewhere, and copied here before it is shown.
    pub fn set(&self, n: u64) {
        self.0.store(n, Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

impl Cell for Counter {
    const KIND: Kind = Kind::Counter;
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
    fn read(&self) -> Value<'_> {
        Value::Number(self.get())
    }
}

/// How often something was done, and how long it took in all.
#[derive(Debug, Default)]
pub struct TimeAverage {
    count: AtomicU64,
    sum_ns: AtomicU64,
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
        self.count.load(Relaxed)
    }

    pub fn sum(&self) -> Duration {
        Duration::from_nanos(self.sum_ns.load(Relaxed))
    }
}

impl Cell for TimeAverage {
    const KIND: Kind = Kind::TimeAverage;
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
}

impl Average {
    pub fn add(&self, n: u64) {
        add(&self.count, 1);
        add(&self.sum, n);
    }
}

impl Cell for Average {
    const KIND: Kind = Kind::Average;
    fn read(&self) -> Value<'_> {
        Value::Sum {
            count: self.count.load(Relaxed),
            sum: self.sum.load(Relaxed),
        }
    }
}
