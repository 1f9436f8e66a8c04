//! Batches: what one flush makes durable.

use crate::direct::Direct;
use crate::ring::{HEADER, padded};
use crate::values::Seq;
use io::disk::AlignedVec;

/// Direct extents of one transaction.
#[derive(Debug)]
pub struct Data {
    pub batch: u64,
    pub bytes: u64,
    pub directs: Vec<Direct>,
}

#[derive(Debug, Default)]
pub struct Batch {
    pub number: u64,
    pub first_seq: Seq,
    pub count: u32,
    /// Room for the header, then records.
    pub bytes: AlignedVec,
    pub direct_bytes: u64,
}

impl Batch {
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Bytes that it takes in the log.
    pub fn padded(&self) -> u64 {
        padded(self.bytes.len().saturating_sub(HEADER))
    }
}

/// A batch with its place, off the lock.
#[derive(Debug)]
pub struct Work {
    pub batch: Batch,
    pub data: Vec<Data>,
    pub position: u64,
    pub zero: Option<(u64, u64)>,
    /// It would overwrite what is still needed.
    pub overrun: bool,
}
