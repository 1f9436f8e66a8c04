//! What a store is opened with: who it belongs to, and its bounds.

use crate::background::Driver;
use io::disk::Disk;
use io::key_file::KeyFile;
use std::path::PathBuf;
use std::sync::Arc;
use types::{OsdId, Uuid};

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
    /// The owner calls [`turned`](crate::Store::turned) when [`log_fd`](crate::Store::log_fd) turns readable. So it may write small batches
    /// itself, where the disk can; false: all are written beside it, and the waker says so.
    pub own_log: bool,
    /// Keys for stores that are encrypted where they lie; one that is made gets encrypted where there are any.
    pub keys: Option<KeyFile>,
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
            own_log: false,
            keys: None,
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
