//! What the committer, its threads and the owner share, under one lock.

use super::Start;
use super::batch::{Batch, Data, Work};
use crate::Error;
use crate::broken::{self, Rule};
use crate::ring::{HEADER, Ring};
use crate::values::{Counters, Seq};
use io::disk::AlignedVec;
use std::collections::VecDeque;
use std::sync::Arc;

/// The data thread writes at most this much at a time (or one transaction's), so that a batch waits only for its own.
const AHEAD_BYTES: u64 = 4 << 20;
/// Log space that is zeroed at a time, ahead of its first use.
pub const ZERO_BYTES: u64 = 1 << 20;
/// Kept for the next batch: a buffer that grew larger is given back.
const SPARE_BYTES: usize = 1 << 20;

/// Whether the store's owner writes batches itself (`owner`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    Never,
    Here,
    /// It waits for something else: who writes beside it writes all.
    Away,
}

#[derive(Debug)]
pub struct Inner {
    pub open: Batch,
    pub sealed: VecDeque<Batch>,
    /// Of open and sealed batches, in their order: what nobody writes yet.
    pub data: VecDeque<Data>,
    /// The batch of which the data thread writes some.
    pub ahead: Option<u64>,
    pub spare: Vec<AlignedVec>,
    pub next_seq: Seq,
    pub next_batch: u64,
    pub head: u64,
    pub tail: u64,
    /// Places in the ring below this were written or zeroed in this or an earlier lap.
    pub zeroed: u64,
    pub kicked: bool,
    /// A batch is on its way.
    pub busy: bool,
    pub owner: Owner,
    /// Without a thread: the batch that is written and not flushed.
    pub begun: Option<Work>,
    pub stop: bool,
    pub durable_batch: u64,
    pub failed: Option<Arc<Error>>,
    /// Threads that wait for `done`.
    pub waiters: usize,
    /// The newest marker: its number and, once durable, the position behind it.
    pub marker: u64,
    pub marker_end: u64,
    pub counters: Counters,
}

impl Inner {
    pub fn new(ring: &Ring, start: &Start) -> Self {
        let mut inner = Self {
            open: Batch::default(),
            sealed: VecDeque::new(),
            data: VecDeque::new(),
            ahead: None,
            spare: Vec::new(),
            next_seq: start.seq,
            next_batch: start.batch,
            head: start.head,
            tail: start.tail,
            zeroed: if start.head >= ring.len {
                ring.len
            } else {
                start.head
            },
            kicked: false,
            busy: false,
            owner: Owner::Never,
            begun: None,
            stop: false,
            durable_batch: start.batch - 1,
            failed: None,
            waiters: 0,
            marker: 0,
            marker_end: start.tail,
            counters: Counters::default(),
        };
        inner.renew_open();
        inner
    }

    /// Ends the open batch (which may be empty: a marker) and begins the next.
    pub fn seal(&mut self) {
        self.open.number = self.next_batch;
        if self.open.is_empty() {
            self.open.first_seq = self.next_seq;
        }
        assert_eq!(
            self.open.first_seq + u64::from(self.open.count),
            self.next_seq,
            "a batch holds all transactions up to its last, none left out"
        );
        self.next_batch += 1;
        let closed = std::mem::take(&mut self.open);
        self.sealed.push_back(closed);
        self.renew_open();
    }

    /// The next batch is records alone, at a place that was written before: one write makes it durable.
    pub fn next_is_light(&self, ring: &Ring) -> bool {
        let (next, number) = match self.sealed.front() {
            Some(sealed) => (sealed, sealed.number),
            None => (&self.open, self.next_batch),
        };
        let need = next.padded();
        let end = ring.place(self.head, need) % ring.len + need;
        let alone = next.direct_bytes == 0 || broken::is(Rule::AloneIsLight);
        let skipped = broken::is(Rule::EveryFlush) && number % 4 == 3;
        alone && end <= self.zeroed && !skipped
    }

    /// Some of one batch's data, for who writes it ahead of its batch.
    pub fn take_ahead(&mut self) -> Vec<Data> {
        let Some(batch) = self.data.front().map(|d| d.batch) else {
            return Vec::new();
        };
        let mut bytes = 0;
        let some = self.data.iter().take_while(|d| {
            bytes += d.bytes;
            d.batch == batch && (bytes <= AHEAD_BYTES || bytes == d.bytes)
        });
        let count = some.count();
        self.ahead = Some(batch);
        self.data.drain(..count).collect()
    }

    pub fn renew_open(&mut self) {
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.clear();
        bytes.resize(HEADER);
        self.open.bytes = bytes;
    }

    pub fn recycle(&mut self, bytes: AlignedVec) {
        if bytes.capacity() <= SPARE_BYTES && self.spare.len() < 2 {
            self.spare.push(bytes);
        }
    }

    /// In the first lap: the next piece of the ring, which lies ahead of everything written.
    pub fn zero_ahead(&mut self, ring: &Ring) -> Option<(u64, u64)> {
        if self.zeroed >= ring.len {
            return None;
        }
        let from = self.zeroed;
        self.zeroed = (from + ZERO_BYTES).min(ring.len);
        Some((from, self.zeroed))
    }
}
