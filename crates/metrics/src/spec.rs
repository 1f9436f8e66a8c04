//! What is told of a cell beside its value, and the macro that makes a struct of cells from one table.

use crate::histogram::Histogram;
use std::time::Duration;

/// The kinds of cells, as Ceph's bits: 1 time, 2 integer, 4 pair of count and sum, 8 only grows, 16 histogram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    Gauge = 2,
    TimeAverage = 5,
    Average = 6,
    Counter = 10,
    Histogram = 26,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    None,
    Bytes,
}

/// One cell's line in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spec {
    pub name: &'static str,
    pub kind: Kind,
    pub help: &'static str,
    /// A short heading for `ceph daemonperf`; empty: it is not shown there.
    pub nick: &'static str,
    /// Ceph's: 10 critical, 8 interesting, 5 useful, 0 for debugging.
    pub priority: u8,
    pub unit: Unit,
}

pub const fn spec(help: &'static str) -> Spec {
    Spec {
        name: "",
        kind: Kind::Gauge,
        help,
        nick: "",
        priority: 0,
        unit: Unit::None,
    }
}

impl Spec {
    pub const fn named(mut self, name: &'static str, kind: Kind) -> Self {
        (self.name, self.kind) = (name, kind);
        self
    }

    pub const fn nick(mut self, nick: &'static str) -> Self {
        self.nick = nick;
        self
    }

    pub const fn priority(mut self, priority: u8) -> Self {
        self.priority = priority;
        self
    }

    pub const fn bytes(mut self) -> Self {
        self.unit = Unit::Bytes;
        self
    }
}

/// What a cell holds.
#[derive(Debug, Clone, Copy)]
pub enum Value<'a> {
    Number(u64),
    Time { count: u64, sum: Duration },
    Sum { count: u64, sum: u64 },
    Histogram(&'a Histogram),
}

pub trait Cell {
    const KIND: Kind;
    fn read(&self) -> Value<'_>;
    /// Counts anew from now on.
    fn reset(&self);
}
