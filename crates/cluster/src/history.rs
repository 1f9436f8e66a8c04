//! The window of OSD map epochs that are kept: every incremental, and now and then a full map.
//!
//! Invariants: `incs` holds every epoch of `first+1 ..= latest`; `fulls` holds `first`, and `latest` is
//! always at hand encoded. So any epoch in the window can be rebuilt, and a client anywhere in it can be
//! brought up by incrementals. Bounds: [`WINDOW_MAX`] epochs.

use bytes::Bytes;
use denc::Decode;
use std::collections::BTreeMap;
use types::Epoch;
use types::osdmap::{Incremental, OsdMap};

/// Epochs that can be asked for.
pub const WINDOW_MAX: u32 = 500;
/// A full map is stored every so many epochs; loading applies at most so many incrementals.
pub const FULL_EVERY: u32 = 32;

#[derive(Debug, Clone, Default)]
pub struct MapHistory {
    pub(crate) incs: BTreeMap<Epoch, Bytes>,
    pub(crate) fulls: BTreeMap<Epoch, Bytes>,
    pub(crate) latest: Epoch,
    pub(crate) latest_full: Bytes,
}

/// What adding an epoch means for the stored keys.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct HistoryStep {
    pub store_full: bool,
    pub drop_incs: Vec<Epoch>,
    pub drop_fulls: Vec<Epoch>,
}

impl MapHistory {
    pub fn first(&self) -> Epoch {
        self.fulls.keys().next().copied().unwrap_or(self.latest)
    }

    pub fn latest(&self) -> Epoch {
        self.latest
    }

    pub fn latest_full(&self) -> Bytes {
        self.latest_full.clone()
    }

    /// The incremental that leads to `epoch`, if it is still kept.
    pub fn incremental(&self, epoch: Epoch) -> Option<Bytes> {
        self.incs.get(&epoch).cloned()
    }

    /// The full map of any epoch in the window, rebuilt if it is not stored.
    pub fn full(&self, epoch: Epoch) -> Option<Bytes> {
        if epoch == self.latest {
            return Some(self.latest_full.clone());
        }
        if epoch > self.latest {
            return None;
        }
        let (base, bytes) = self.fulls.range(..=epoch).next_back()?;
        if *base == epoch {
            return Some(bytes.clone());
        }
        let mut map = OsdMap::from_bytes(bytes).ok()?;
        for e in base + 1..=epoch {
            let inc = Incremental::from_bytes(self.incs.get(&e)?).ok()?;
            map.apply(&inc).ok()?;
        }
        Some(map.encode_for(u64::MAX).0)
    }

    /// Adds the next epoch; says what to write and delete besides the incremental itself.
    pub(crate) fn push(&mut self, epoch: Epoch, inc: Bytes, full: Bytes) -> HistoryStep {
        let mut step = HistoryStep::default();
        self.incs.insert(epoch, inc);
        self.latest = epoch;
        self.latest_full = full.clone();
        if self.fulls.is_empty() || epoch.is_multiple_of(FULL_EVERY) {
            self.fulls.insert(epoch, full);
            step.store_full = true;
        }
        // The window begins at a stored full map: drop the oldest when the second is old enough.
        while let Some(second) = self.fulls.keys().nth(1).copied()
            && epoch - second >= WINDOW_MAX
            && let Some((first, _)) = self.fulls.pop_first()
        {
            step.drop_fulls.push(first);
        }
        let first = self.first();
        while let Some(e) = self.incs.keys().next().copied()
            && e <= first
            && step.drop_incs.len() < FULL_EVERY as usize
        {
            self.incs.remove(&e);
            step.drop_incs.push(e);
        }
        step
    }
}
