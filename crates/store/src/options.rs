//! Who a store belongs to, its bounds, and what it reports.

use crate::background::Background;
use bytes::Bytes;
use io::disk::{Disk, DiskFile, ReadQueue};
use std::fmt::Debug;
use std::path::PathBuf;
use std::sync::Arc;
use types::{OsdId, Uuid};

/// A transaction's place in the store's order; 0 is "before the first".
pub type Seq = u64;

/// Called from a helper thread whenever [`durable`](crate::Store::durable) advanced, a checkpoint ended
/// or the store failed; it should only wake the owner.
pub type Waker = Arc<dyn Fn() + Send + Sync>;

/// Who does the work beside the owner where there are no threads for it ([`Options::threads`]): a simulation, which
/// lets time pass in it.
pub trait Driver: Debug + Send + Sync {
    /// A store was opened: it may have work from now on.
    fn start(&self, work: Background);
    /// There is work. Called from within the store: it must only note it.
    fn wake(&self);
    /// Reads of the data file that go on beside the owner, who is told by `done`. None: time stands while the owner reads.
    fn reads(&self, _file: &Arc<dyn DiskFile>, _done: &Waker) -> Option<Box<dyn ReadQueue>> {
        None
    }
}

/// A read of the disk under way, see [`Store::prefetch`](crate::Store::prefetch). Never used twice.
pub type Ticket = u64;

const MIB: u64 = 1 << 20;
const INDEX_SLACK_BYTES_MAX: u64 = 64 * MIB;

#[derive(Debug, Clone)]
pub struct Options {
    /// [`Options::ANY_OSD`] at open accepts any.
    pub osd_id: OsdId,
    /// The cluster; nil at open accepts any.
    pub fsid: Uuid,
    /// This OSD's own id; nil at open accepts any.
    pub osd_uuid: Uuid,
    /// Block device that `mkfs` puts log and data on; None: a file in the directory.
    pub device: Option<PathBuf>,
    /// Size of the log ring; fixed by `mkfs`.
    pub log_bytes: u64,
    /// The most the data file may grow to; None: what the host has.
    pub max_bytes: Option<u64>,
    /// What is left free on the host's file system.
    pub host_reserve_bytes: u64,
    /// Held behind the index's end, for when others have taken the host's file system to its last byte; 0: nothing.
    pub index_slack_bytes: u64,
    /// Step in which the data file grows and is zeroed.
    pub grow_bytes: u64,
    /// Data and metadata that may wait in memory for a checkpoint, in each of two generations (the one that
    /// gathers and the one being written). Half of it starts a checkpoint.
    pub overlay_bytes: u64,
    /// Log records and direct data that may wait for a flush.
    pub waiting_bytes: u64,
    /// Cache of data blocks for reads.
    pub block_cache_bytes: u64,
    /// Prefetches under way, and what they brought.
    pub read_bytes: u64,
    /// Cache inside the index library.
    pub index_cache_bytes: u64,
    /// Caches of decoded object records and checksum rows.
    pub record_cache_bytes: u64,
    /// Aligned writes from this size on go straight to fresh extents.
    pub direct_bytes: u64,
    pub object_bytes_max: u64,
    /// How the data file is used.
    pub disk_io: io::disk::Mode,
    /// A checkpoint starts when the oldest change that waits for one is this old.
    pub checkpoint_after: std::time::Duration,
    /// False: helper threads are not started, and the owner drives all work itself through
    /// [`pump`](crate::Store::pump). For simulation.
    pub threads: bool,
    /// Without threads: who does their work in the owner's place.
    pub driver: Option<Arc<dyn Driver>>,
    /// In place of the directory: for simulation.
    pub disk: Option<Arc<dyn Disk>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            osd_id: 0,
            fsid: Uuid::default(),
            osd_uuid: Uuid::default(),
            device: None,
            log_bytes: 64 * MIB,
            max_bytes: None,
            host_reserve_bytes: 256 * MIB,
            index_slack_bytes: 0,
            grow_bytes: 32 * MIB,
            overlay_bytes: 16 * MIB,
            waiting_bytes: 32 * MIB,
            block_cache_bytes: 8 * MIB,
            read_bytes: 16 * MIB,
            index_cache_bytes: 8 * MIB,
            record_cache_bytes: 4 * MIB,
            direct_bytes: 64 << 10,
            object_bytes_max: 1 << 40,
            disk_io: io::disk::Mode::Auto,
            checkpoint_after: std::time::Duration::from_secs(5),
            threads: true,
            driver: None,
            disk: None,
        }
    }
}

impl Options {
    /// As `osd_id` at open: whichever it is.
    pub const ANY_OSD: OsdId = -1;
    /// The least budget that [`Options::for_memory`] takes.
    pub const MEMORY_MIN: u64 = 48 * MIB;

    /// Caches and queues so that all of them together, full, stay within `budget` bytes (at least
    /// [`Options::MEMORY_MIN`] is used).
    pub fn for_memory(budget: u64) -> Self {
        let budget = budget.max(Self::MEMORY_MIN);
        Self {
            overlay_bytes: budget / 8,
            // Both generations, if all of them were changes of a block each: a page of the index for every one.
            index_slack_bytes: (budget / 4).min(INDEX_SLACK_BYTES_MAX),
            waiting_bytes: budget / 16,
            block_cache_bytes: budget / 4,
            read_bytes: budget / 16,
            index_cache_bytes: budget / 8,
            record_cache_bytes: budget / 8,
            ..Self::default()
        }
    }
}

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
