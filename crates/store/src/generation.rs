//! What changed since a checkpoint: the layer of newer truth above the index.
//!
//! Vocabulary: the *active* generation takes the changes of new transactions; a checkpoint *freezes* it
//! and writes it to its places, while a new one is active. A lookup asks active, frozen, then the index.
//!
//! Invariants: entries are absolute (the newest value, never a difference), so a generation written twice
//! is the same as once. `freed` blocks stay taken until the generation's checkpoint is durable.

use crate::onode::Onode;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use types::numbers::NumberMap;
use types::{EVersion, ObjectId, SPgId};

/// One block's new content or checksum.
#[derive(Debug, Clone)]
pub struct Dirty {
    pub crc: u32,
    /// What a checkpoint must write; None: written already (a direct extent).
    pub data: Option<Bytes>,
}

#[derive(Debug, Clone, Default)]
pub struct OmapDelta {
    /// Nothing below this layer counts.
    pub cleared: bool,
    /// None: removed.
    pub rows: BTreeMap<Bytes, Option<Bytes>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Collection {
    /// Names its log blocks; a collection made again has another.
    pub cid: u64,
    pub meta: Bytes,
    /// Newest log version ever appended.
    pub head: EVersion,
    /// Entries up to this one are gone.
    pub trimmed: EVersion,
}

#[derive(Debug, Default)]
pub struct Generation {
    /// None: removed.
    pub objects: BTreeMap<ObjectId, Option<Arc<Onode>>>,
    pub omap: NumberMap<u64, OmapDelta>,
    /// By physical block.
    pub blocks: NumberMap<u64, Dirty>,
    /// Further references of a block beyond the first, absolute.
    pub refs: NumberMap<u64, u32>,
    /// Runs of physical blocks.
    pub freed: Vec<(u64, u64)>,
    pub freed_blocks: u64,
    /// Allocation groups that changed.
    pub groups: BTreeSet<u32>,
    pub collections: BTreeSet<SPgId>,
    /// Appended entries by collection number.
    pub logs: NumberMap<u64, Vec<(EVersion, Bytes)>>,
    pub dead_cids: Vec<u64>,
    /// Bytes in `blocks`.
    pub data_bytes: u64,
    /// Rough bytes of everything else.
    pub meta_bytes: u64,
}

impl Generation {
    /// Memory held, roughly.
    pub fn bytes(&self) -> u64 {
        self.data_bytes + self.meta_bytes
    }

    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
            && self.omap.is_empty()
            && self.blocks.is_empty()
            && self.collections.is_empty()
            && self.freed.is_empty()
            && self.dead_cids.is_empty()
    }

    /// Replaces a block's entry, keeping `data_bytes` true.
    pub fn set_block(&mut self, block: u64, entry: Option<Dirty>) -> Option<Dirty> {
        let bytes = |d: &Option<Dirty>| {
            d.as_ref()
                .and_then(|d| d.data.as_ref())
                .map_or(0, |b| b.len() as u64)
        };
        self.data_bytes += bytes(&entry);
        let old = match entry {
            Some(d) => self.blocks.insert(block, d),
            None => self.blocks.remove(&block),
        };
        self.data_bytes -= bytes(&old);
        old
    }
}
