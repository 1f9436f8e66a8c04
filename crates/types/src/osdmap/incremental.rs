//! The difference between two epochs of the OSD map (docs/protocol/ceph/03-placement.md, 1.3).
//!
//! A field that carries no change is empty or `None`. Traps of the format: `new_state` is XORed into the state,
//! so sending "down" twice brings an OSD up again; an OSD in `new_up_client` must also be in both heartbeat
//! maps; a changed pool is sent whole.

use super::{Blocklist, ErasureProfile, OsdXInfo};
use crate::pool::PgPool;
use crate::{EntityAddr, EntityAddrVec, Epoch, IntervalSet, OsdId, PgId, PoolId, Utime, Uuid};
use bytes::Bytes;
use crush::CrushMap;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A change of stretch mode; the field order differs from that of the full map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StretchChange {
    pub bucket_count: u32,
    pub degraded: u32,
    pub recovering: u32,
    pub bucket: i32,
    pub enabled: bool,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Incremental {
    pub fsid: Uuid,
    /// The epoch that this leads to.
    pub epoch: Epoch,
    pub modified: Utime,
    pub new_pool_max: Option<i32>,
    /// Replaces all flags.
    pub new_flags: Option<u32>,
    /// A whole encoded map that replaces everything; nothing else is applied with it.
    pub fullmap: Option<Bytes>,
    pub crush: Option<Arc<CrushMap>>,
    pub new_max_osd: Option<i32>,
    pub new_pools: BTreeMap<PoolId, PgPool>,
    pub new_pool_names: BTreeMap<PoolId, String>,
    pub old_pools: BTreeSet<PoolId>,
    /// OSDs that booted, with their client addresses.
    pub new_up_client: BTreeMap<OsdId, EntityAddrVec>,
    /// XOR masks; 0 stands for "up".
    pub new_state: BTreeMap<OsdId, u32>,
    pub new_weight: BTreeMap<OsdId, u32>,
    /// An empty list removes the entry.
    pub new_pg_temp: BTreeMap<PgId, Vec<OsdId>>,
    /// -1 removes the entry.
    pub new_primary_temp: BTreeMap<PgId, OsdId>,
    pub new_primary_affinity: BTreeMap<OsdId, u32>,
    pub new_erasure_code_profiles: BTreeMap<String, ErasureProfile>,
    pub old_erasure_code_profiles: Vec<String>,
    pub new_pg_upmap: BTreeMap<PgId, Vec<OsdId>>,
    pub old_pg_upmap: BTreeSet<PgId>,
    pub new_pg_upmap_items: BTreeMap<PgId, Vec<(OsdId, OsdId)>>,
    pub old_pg_upmap_items: BTreeSet<PgId>,
    pub new_removed_snaps: BTreeMap<PoolId, IntervalSet>,
    pub new_purged_snaps: BTreeMap<PoolId, IntervalSet>,
    /// Zero: no change.
    pub new_last_up_change: Utime,
    pub new_last_in_change: Utime,
    pub new_pg_upmap_primary: BTreeMap<PgId, OsdId>,
    pub old_pg_upmap_primary: BTreeSet<PgId>,

    pub new_hb_back_up: BTreeMap<OsdId, EntityAddrVec>,
    pub new_up_thru: BTreeMap<OsdId, Epoch>,
    pub new_last_clean_interval: BTreeMap<OsdId, (Epoch, Epoch)>,
    pub new_lost: BTreeMap<OsdId, Epoch>,
    pub new_blocklist: Blocklist,
    pub old_blocklist: Vec<EntityAddr>,
    pub new_up_cluster: BTreeMap<OsdId, EntityAddrVec>,
    pub cluster_snapshot: String,
    pub new_uuid: BTreeMap<OsdId, Uuid>,
    pub new_xinfo: BTreeMap<OsdId, OsdXInfo>,
    pub new_hb_front_up: BTreeMap<OsdId, EntityAddrVec>,
    /// The features that the encoding was made for; filled in by [`Incremental::next_after`].
    pub encode_features: u64,
    pub new_nearfull_ratio: Option<f32>,
    pub new_full_ratio: Option<f32>,
    pub new_backfillfull_ratio: Option<f32>,
    pub new_require_min_compat_client: Option<u8>,
    pub new_require_osd_release: Option<u8>,
    /// 0 removes the entry.
    pub new_crush_node_flags: BTreeMap<i32, u32>,
    pub new_device_class_flags: BTreeMap<i32, u32>,
    pub stretch: Option<StretchChange>,
    pub new_range_blocklist: Blocklist,
    pub old_range_blocklist: Vec<EntityAddr>,
    /// 0 no change, 1 set, 2 clear.
    pub mutate_allow_crimson: u8,
    /// Checksum of the full map that results; [`super::OsdMap::seal`] fills it in.
    pub full_crc: u32,
}

impl Incremental {
    /// An incremental without a change, leading from `map` to the next epoch.
    pub fn next_after(map: &super::OsdMap, modified: Utime) -> Self {
        Self {
            fsid: map.fsid,
            epoch: map.epoch + 1,
            modified,
            encode_features: crate::release::feature::OSDMAP_SIGNIFICANT,
            ..Self::default()
        }
    }

    /// The pool as it is after this incremental so far: what further changes in the same epoch start from.
    pub fn pool_mut(&mut self, map: &super::OsdMap, id: PoolId) -> Option<&mut PgPool> {
        match self.new_pools.entry(id) {
            Entry::Occupied(e) => Some(e.into_mut()),
            Entry::Vacant(e) => Some(e.insert(map.pool(id)?.clone())),
        }
    }
}
