//! What is being written back, and the journal's segments.

use super::request::RequestId;
use super::tx::Start;
use crate::journal::{SEGMENT_BYTES, SEGMENTS_MAX};
use crate::row::Key;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};

/// Rows of one object.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Write {
    pub object: String,
    pub set: BTreeMap<Bytes, Bytes>,
    pub remove: BTreeSet<Bytes>,
}

/// Rows of one flush.
pub const FLUSH_ROWS: usize = 4096;
/// Jobs that run at once.
pub const JOBS_MAX: usize = 16;

#[derive(Debug)]
pub struct WriteBack {
    /// Number, bytes, and its first transaction; the last one grows.
    pub segments: Vec<(u64, u64, u64)>,
    pub next_segment: u64,
    pub flushing: Option<(u64, Vec<(Key, u64)>)>,
    pub last_flush: u64,
    pub trimming: bool,
    /// The directory whose fragment becomes two.
    pub splitting: Option<u64>,
    /// The last thing done was that.
    pub has_split: bool,
    /// Directories with too many names to an object.
    pub crowded: BTreeSet<u64>,
    /// Reads that have to end before an object of names may go, by the job.
    pub readers: BTreeMap<u64, u64>,
    /// The last segment is of this run.
    pub grows: bool,
    /// Requests that wait until the journal has room.
    pub waiting: Vec<RequestId>,
    /// Everything is to be written back, because the daemon stops.
    pub drain: bool,
}

impl WriteBack {
    pub fn new(start: &Start) -> Self {
        Self {
            segments: start.segments.clone(),
            next_segment: start.next_segment,
            flushing: None,
            last_flush: 0,
            trimming: false,
            splitting: None,
            has_split: false,
            crowded: BTreeSet::new(),
            readers: BTreeMap::new(),
            grows: false,
            waiting: Vec::new(),
            drain: false,
        }
    }

    /// Where a batch goes. After a start nothing is appended to a segment that was there before.
    pub fn segment_for(&mut self, bytes: u64, first_tx: u64) -> (u64, bool) {
        let own = self.next_segment;
        if let Some((number, held, _)) = self.segments.last_mut()
            && *number + 1 == own
            && *held < SEGMENT_BYTES
            && self.grows
        {
            *held += bytes;
            return (*number, false);
        }
        self.grows = true;
        self.next_segment += 1;
        self.segments.push((own, bytes, first_tx));
        (own, true)
    }

    pub fn is_full(&self) -> bool {
        self.segments.len() >= SEGMENTS_MAX
    }
}
