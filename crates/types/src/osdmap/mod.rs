//! The OSD map: which OSDs and pools there are, and where placement groups live, one version per epoch
//! (docs/protocol/ceph/03-placement.md, sections 1 and 6).
//!
//! Vocabulary: a map changes only by applying the [`Incremental`] of the next epoch; *up* is what CRUSH and the
//! overrides of the map ask for, less what is down; *acting* is who serves now (`pg_temp` wins over up); *in*
//! means a reweight above 0, which has nothing to do with the CRUSH weight.
//!
//! Invariants: `osds`, `osd_weight` have exactly `max_osd` entries, `primary_affinity` has none or as many;
//! `pools` and `pool_names` have the same keys; `pool_max` never goes down. Both are part of the wire
//! protocol: clients crash on a map that breaks them, so the decoder refuses such maps.
//!
//! Not here: who may change the map and when (the monitor), and the JSON dump (the monitor's commands).

mod apply;
mod blocklist;
mod build;
mod code;
mod codec;
mod incremental;
mod needs;
mod placement;

pub use apply::ApplyError;
pub use build::{NewCluster, NewPool, OsdBoot};
pub use code::{Code, DATA_SHARDS_MAX, PARITY_SHARDS_MAX};
pub use incremental::{Incremental, StretchChange};
pub use placement::{Mapping, UpActing};

use crate::pool::PgPool;
use crate::{EntityAddr, EntityAddrVec, Epoch, IntervalSet, OsdId, PgId, PoolId, Utime, Uuid};
use crush::CrushMap;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Slots that a map may have. Ceph has no such limit, but one field of an incremental could otherwise make
/// this program allocate without bound.
pub const MAX_OSD_LIMIT: usize = 1 << 16;

/// The primary affinity that all OSDs have by default, and the reweight of an OSD that is fully in.
pub const AFFINITY_DEFAULT: u32 = 0x1_0000;
pub const WEIGHT_IN: u32 = 0x1_0000;
pub const WEIGHT_OUT: u32 = 0;

/// Bits of `OsdMap::flags`.
pub mod map_flag {
    pub const NEARFULL: u32 = 1 << 0;
    pub const FULL: u32 = 1 << 1;
    pub const PAUSERD: u32 = 1 << 2;
    pub const PAUSEWR: u32 = 1 << 3;
    pub const PAUSEREC: u32 = 1 << 4;
    pub const NOUP: u32 = 1 << 5;
    pub const NODOWN: u32 = 1 << 6;
    pub const NOOUT: u32 = 1 << 7;
    pub const NOIN: u32 = 1 << 8;
    pub const NOBACKFILL: u32 = 1 << 9;
    pub const NORECOVER: u32 = 1 << 10;
    pub const NOSCRUB: u32 = 1 << 11;
    pub const NODEEP_SCRUB: u32 = 1 << 12;
    pub const NOTIERAGENT: u32 = 1 << 13;
    pub const NOREBALANCE: u32 = 1 << 14;
    pub const SORTBITWISE: u32 = 1 << 15;
    pub const RECOVERY_DELETES: u32 = 1 << 19;
    pub const PURGED_SNAPDIRS: u32 = 1 << 20;
    pub const NOSNAPTRIM: u32 = 1 << 21;
    pub const PGLOG_HARDLIMIT: u32 = 1 << 22;
    /// Obsolete bits that a decoder clears.
    pub const REQUIRE_OLD_RELEASES: u32 = 0b111 << 16;
    /// What every map of this server carries.
    pub const ALWAYS: u32 = SORTBITWISE | RECOVERY_DELETES | PURGED_SNAPDIRS | PGLOG_HARDLIMIT;

    /// Bit -> name, in bit order.
    pub const NAMES: [(u32, &str); 20] = [
        (NEARFULL, "nearfull"),
        (FULL, "full"),
        (PAUSERD, "pauserd"),
        (PAUSEWR, "pausewr"),
        (PAUSEREC, "pauserec"),
        (NOUP, "noup"),
        (NODOWN, "nodown"),
        (NOOUT, "noout"),
        (NOIN, "noin"),
        (NOBACKFILL, "nobackfill"),
        (NORECOVER, "norecover"),
        (NOSCRUB, "noscrub"),
        (NODEEP_SCRUB, "nodeep-scrub"),
        (NOTIERAGENT, "notieragent"),
        (NOREBALANCE, "norebalance"),
        (SORTBITWISE, "sortbitwise"),
        (RECOVERY_DELETES, "recovery_deletes"),
        (PURGED_SNAPDIRS, "purged_snapdirs"),
        (NOSNAPTRIM, "nosnaptrim"),
        (PGLOG_HARDLIMIT, "pglog_hardlimit"),
    ];

    /// Names of the set bits, in bit order.
    pub fn names(flags: u32) -> Vec<&'static str> {
        NAMES
            .iter()
            .filter(|(bit, _)| flags & bit != 0)
            .map(|(_, n)| *n)
            .collect()
    }

    pub fn from_name(name: &str) -> Option<u32> {
        NAMES.iter().find(|(_, n)| *n == name).map(|(bit, _)| *bit)
    }
}

/// Bits of `OsdSlot::state`.
pub mod osd_state {
    pub const EXISTS: u32 = 1 << 0;
    pub const UP: u32 = 1 << 1;
    pub const AUTOOUT: u32 = 1 << 2;
    pub const NEW: u32 = 1 << 3;
    pub const FULL: u32 = 1 << 4;
    pub const NEARFULL: u32 = 1 << 5;
    pub const BACKFILLFULL: u32 = 1 << 6;
    pub const DESTROYED: u32 = 1 << 7;
    pub const NOUP: u32 = 1 << 8;
    pub const NODOWN: u32 = 1 << 9;
    pub const NOIN: u32 = 1 << 10;
    pub const NOOUT: u32 = 1 << 11;
    pub const STOP: u32 = 1 << 12;

    pub const NAMES: [(u32, &str); 13] = [
        (EXISTS, "exists"),
        (UP, "up"),
        (AUTOOUT, "autoout"),
        (NEW, "new"),
        (FULL, "full"),
        (NEARFULL, "nearfull"),
        (BACKFILLFULL, "backfillfull"),
        (DESTROYED, "destroyed"),
        (NOUP, "noup"),
        (NODOWN, "nodown"),
        (NOIN, "noin"),
        (NOOUT, "noout"),
        (STOP, "stop"),
    ];

    pub fn names(state: u32) -> Vec<&'static str> {
        NAMES
            .iter()
            .filter(|(bit, _)| state & bit != 0)
            .map(|(_, n)| *n)
            .collect()
    }
}

/// `osd_info_t`: epochs in an OSD's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OsdInfo {
    pub last_clean_begin: Epoch,
    pub last_clean_end: Epoch,
    pub up_from: Epoch,
    pub up_thru: Epoch,
    pub down_at: Epoch,
    pub lost_at: Epoch,
}

/// `osd_xinfo_t`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OsdXInfo {
    pub down_stamp: Utime,
    /// Times 0xffffffff.
    pub laggy_probability: u32,
    pub laggy_interval: u32,
    /// Connection features of the OSD.
    pub features: u64,
    /// The weight to go back to after an automatic out.
    pub old_weight: u32,
    pub last_purged_snaps_scrub: Utime,
    pub dead_epoch: Epoch,
}

/// Everything per OSD except weight and affinity, which placement wants as plain arrays.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OsdSlot {
    /// [`osd_state`].
    pub state: u32,
    pub client_addrs: EntityAddrVec,
    pub cluster_addrs: EntityAddrVec,
    pub hb_back_addrs: EntityAddrVec,
    pub hb_front_addrs: EntityAddrVec,
    pub uuid: Uuid,
    pub info: OsdInfo,
    pub xinfo: OsdXInfo,
}

/// Stretch mode; this server never turns it on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StretchMode {
    pub enabled: bool,
    pub bucket_count: u32,
    pub degraded: u32,
    pub recovering: u32,
    /// A bucket type.
    pub bucket: i32,
}

pub type ErasureProfile = BTreeMap<String, String>;
pub type Blocklist = BTreeMap<EntityAddr, Utime>;

#[derive(Debug, Clone, PartialEq)]
pub struct OsdMap {
    pub fsid: Uuid,
    pub epoch: Epoch,
    /// Time of epoch 1, and of this one.
    pub created: Utime,
    pub modified: Utime,
    pub pools: BTreeMap<PoolId, PgPool>,
    pub pool_names: BTreeMap<PoolId, String>,
    /// The highest pool id ever used.
    pub pool_max: i32,
    /// [`map_flag`].
    pub flags: u32,
    pub osds: Vec<OsdSlot>,
    /// Reweights, 16.16: 0 is out.
    pub osd_weight: Vec<u32>,
    /// Empty: all have the default.
    pub primary_affinity: Vec<u32>,
    pub pg_temp: BTreeMap<PgId, Vec<OsdId>>,
    pub primary_temp: BTreeMap<PgId, OsdId>,
    pub crush: Arc<CrushMap>,
    pub erasure_code_profiles: BTreeMap<String, ErasureProfile>,
    pub pg_upmap: BTreeMap<PgId, Vec<OsdId>>,
    pub pg_upmap_items: BTreeMap<PgId, Vec<(OsdId, OsdId)>>,
    /// Ceph 18 and later; understood, never made here.
    pub pg_upmap_primaries: BTreeMap<PgId, OsdId>,
    pub crush_version: u32,
    /// Snapshots queued for removal, and those whose removal ended, in this very epoch.
    pub new_removed_snaps: BTreeMap<PoolId, IntervalSet>,
    pub new_purged_snaps: BTreeMap<PoolId, IntervalSet>,
    pub last_up_change: Utime,
    pub last_in_change: Utime,

    /// Fenced client addresses (all of kind "any") and until when.
    pub blocklist: Blocklist,
    /// Fenced networks (kind "cidr"; the nonce is the prefix length).
    pub range_blocklist: Blocklist,
    pub cluster_snapshot_epoch: Epoch,
    pub cluster_snapshot: String,
    pub nearfull_ratio: f32,
    pub full_ratio: f32,
    pub backfillfull_ratio: f32,
    pub require_min_compat_client: u8,
    pub require_osd_release: u8,
    /// All snapshots removed and not yet purged.
    pub removed_snaps_queue: BTreeMap<PoolId, IntervalSet>,
    /// OSD state bits NOUP..NOOUT set on a CRUSH node, or on a device class.
    pub crush_node_flags: BTreeMap<i32, u32>,
    pub device_class_flags: BTreeMap<i32, u32>,
    pub stretch: StretchMode,
    pub allow_crimson: bool,
}

impl OsdMap {
    /// The map before the first epoch: nothing in it.
    pub fn empty(fsid: Uuid) -> Self {
        Self {
            fsid,
            epoch: 0,
            created: Utime::ZERO,
            modified: Utime::ZERO,
            pools: BTreeMap::new(),
            pool_names: BTreeMap::new(),
            pool_max: 0,
            flags: 0,
            osds: Vec::new(),
            osd_weight: Vec::new(),
            primary_affinity: Vec::new(),
            pg_temp: BTreeMap::new(),
            primary_temp: BTreeMap::new(),
            crush: Arc::new(CrushMap::default()),
            erasure_code_profiles: BTreeMap::new(),
            pg_upmap: BTreeMap::new(),
            pg_upmap_items: BTreeMap::new(),
            pg_upmap_primaries: BTreeMap::new(),
            crush_version: 1,
            new_removed_snaps: BTreeMap::new(),
            new_purged_snaps: BTreeMap::new(),
            last_up_change: Utime::ZERO,
            last_in_change: Utime::ZERO,
            blocklist: BTreeMap::new(),
            range_blocklist: BTreeMap::new(),
            cluster_snapshot_epoch: 0,
            cluster_snapshot: String::new(),
            nearfull_ratio: 0.0,
            full_ratio: 0.0,
            backfillfull_ratio: 0.0,
            require_min_compat_client: 0,
            require_osd_release: 0,
            removed_snaps_queue: BTreeMap::new(),
            crush_node_flags: BTreeMap::new(),
            device_class_flags: BTreeMap::new(),
            stretch: StretchMode::default(),
            allow_crimson: false,
        }
    }

    /// Number of OSD slots.
    pub fn max_osd(&self) -> i32 {
        self.osds.len() as i32
    }

    pub fn osd(&self, id: OsdId) -> Option<&OsdSlot> {
        self.osds.get(usize::try_from(id).ok()?)
    }

    fn state(&self, id: OsdId) -> u32 {
        self.osd(id).map_or(0, |o| o.state)
    }

    pub fn exists(&self, id: OsdId) -> bool {
        self.state(id) & osd_state::EXISTS != 0
    }

    pub fn is_up(&self, id: OsdId) -> bool {
        const BOTH: u32 = osd_state::EXISTS | osd_state::UP;
        self.state(id) & BOTH == BOTH
    }

    pub fn is_down(&self, id: OsdId) -> bool {
        !self.is_up(id)
    }

    pub fn is_in(&self, id: OsdId) -> bool {
        self.exists(id) && self.weight(id) != WEIGHT_OUT
    }

    /// The reweight; 0 for an id beyond the map.
    pub fn weight(&self, id: OsdId) -> u32 {
        usize::try_from(id)
            .ok()
            .and_then(|i| self.osd_weight.get(i))
            .copied()
            .unwrap_or(0)
    }

    pub fn affinity(&self, id: OsdId) -> u32 {
        usize::try_from(id)
            .ok()
            .and_then(|i| self.primary_affinity.get(i))
            .copied()
            .unwrap_or(AFFINITY_DEFAULT)
    }

    /// Ids of the OSDs that exist, ascending.
    pub fn osd_ids(&self) -> impl Iterator<Item = OsdId> + '_ {
        (0..self.max_osd()).filter(|id| self.exists(*id))
    }

    pub fn num_osds(&self) -> usize {
        self.osd_ids().count()
    }

    pub fn num_up_osds(&self) -> usize {
        self.osd_ids().filter(|id| self.is_up(*id)).count()
    }

    pub fn num_in_osds(&self) -> usize {
        self.osd_ids().filter(|id| self.is_in(*id)).count()
    }

    pub fn has_flag(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    pub fn pool(&self, id: PoolId) -> Option<&PgPool> {
        self.pools.get(&id)
    }

    pub fn pool_name(&self, id: PoolId) -> Option<&str> {
        self.pool_names.get(&id).map(String::as_str)
    }

    pub fn pool_by_name(&self, name: &str) -> Option<PoolId> {
        self.pool_names
            .iter()
            .find(|(_, n)| *n == name)
            .map(|(id, _)| *id)
    }

    /// All PGs of all pools, in order.
    pub fn pgs(&self) -> impl Iterator<Item = PgId> + '_ {
        self.pools
            .iter()
            .flat_map(|(pool, p)| (0..p.pg_num).map(|seed| PgId::new(*pool, seed)))
    }

    /// Gives the map `n` slots; new ones do not exist, lost ones are forgotten. `n` is at most
    /// [`MAX_OSD_LIMIT`]; more is cut.
    pub fn set_max_osd(&mut self, n: usize) {
        let n = n.min(MAX_OSD_LIMIT);
        self.osds.resize_with(n, OsdSlot::default);
        self.osd_weight.resize(n, WEIGHT_OUT);
        if !self.primary_affinity.is_empty() {
            self.primary_affinity.resize(n, AFFINITY_DEFAULT);
        }
    }
}
