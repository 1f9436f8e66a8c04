//! What goes in and out of a store by value: numbers of its order, what it says of objects, pools, its space and itself.
//!
//! Not here: what a store is opened with ([`crate::Options`]).

use bytes::Bytes;
use std::sync::Arc;
use types::{OsdId, Uuid};

/// A transaction's place in the store's order; 0 is "before the first".
pub type Seq = u64;

/// Called from a helper thread whenever [`durable`](crate::Store::durable) advanced, a checkpoint ended
/// or the store failed; it should only wake the owner.
pub type Waker = Arc<dyn Fn() + Send + Sync>;

/// A read of the disk under way, see [`Store::prefetch`](crate::Store::prefetch). Never used twice.
pub type Ticket = u64;

/// What the superblock says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    pub osd_id: OsdId,
    pub fsid: Uuid,
    pub osd_uuid: Uuid,
    pub format: u32,
    pub features: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stat {
    pub size: u64,
    /// Data that is not hole, in whole blocks, shared or not.
    pub allocated: u64,
    pub omap_keys: u64,
    pub omap_bytes: u64,
    /// Memory of its record, roughly.
    pub weight: u64,
}

/// Some entries of an object's omap, in key order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OmapPage {
    pub entries: Vec<(Bytes, Bytes)>,
    /// Keys follow behind the last entry.
    pub more: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StatFs {
    /// What the data file may grow to.
    pub total: u64,
    /// What the file now takes of the host for data (log and index not included).
    pub used: u64,
    /// What data may still be written (the reserve is not in it).
    pub available: u64,
    /// Bytes of object data.
    pub stored: u64,
    pub omap_bytes: u64,
    /// As in [`PoolUsage`], of all pools.
    pub compressed: u64,
    pub compressed_allocated: u64,
    pub compressed_original: u64,
    /// Size of the index file.
    pub index_bytes: u64,
    pub log_bytes: u64,
}

/// What one pool keeps on this OSD.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PoolUsage {
    pub objects: u64,
    /// Bytes of object data: sizes less holes.
    pub stored: u64,
    /// Bytes of disk, each shared block counted once.
    pub allocated: u64,
    pub omap_keys: u64,
    pub omap_bytes: u64,
    /// Compressed bytes, each shared blob counted once.
    pub compressed: u64,
    /// What they take of the disk, in whole blocks; in `allocated`, too.
    pub compressed_allocated: u64,
    /// Bytes of objects that are read from them; in `stored`, too.
    pub compressed_original: u64,
}

impl PoolUsage {
    /// Whether anything of the pool is compressed.
    pub fn has_blobs(&self) -> bool {
        self.compressed != 0 || self.compressed_allocated != 0 || self.compressed_original != 0
    }
}

/// Counters since open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    pub transactions: u64,
    pub flushes: u64,
    pub log_bytes: u64,
    pub direct_bytes: u64,
    pub checkpoints: u64,
    /// Times that the owner had to wait for room in the log, the overlay or the file.
    pub stalls: u64,
}
