//! `pg_pool_t`: what the OSD map says about a pool (docs/protocol/ceph/03-placement.md, section 2).
//!
//! Invariants that the owner of the map keeps: `1 <= pgp_num <= pg_num`; ids are never reused; once `snap_seq`
//! is above 0 one of the two snapshot flags is set; any change to a pool sends the whole struct with its
//! counters. Tiering fields exist since they are part of the encoding; this server never sets them.

mod codec;
mod options;

pub use options::{OptionKind, POOL_OPTIONS, PoolOption, PoolOptions};

use crate::{EVersion, Epoch, IntervalSet, PgId, PoolId, Utime};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};

/// Bits of `PgPool::flags`.
pub mod pool_flag {
    pub const HASHPSPOOL: u64 = 1 << 0;
    /// Writes pause.
    pub const FULL: u64 = 1 << 1;
    pub const EC_OVERWRITES: u64 = 1 << 2;
    pub const INCOMPLETE_CLONES: u64 = 1 << 3;
    pub const NODELETE: u64 = 1 << 4;
    pub const NOPGCHANGE: u64 = 1 << 5;
    pub const NOSIZECHANGE: u64 = 1 << 6;
    pub const WRITE_FADVISE_DONTNEED: u64 = 1 << 7;
    pub const NOSCRUB: u64 = 1 << 8;
    pub const NODEEP_SCRUB: u64 = 1 << 9;
    /// Set together with FULL when a quota is exceeded.
    pub const FULL_QUOTA: u64 = 1 << 10;
    pub const NEARFULL: u64 = 1 << 11;
    pub const BACKFILLFULL: u64 = 1 << 12;
    pub const SELFMANAGED_SNAPS: u64 = 1 << 13;
    pub const POOL_SNAPS: u64 = 1 << 14;
    pub const CREATING: u64 = 1 << 15;
    pub const EIO: u64 = 1 << 16;
    pub const BULK: u64 = 1 << 17;
    pub const CRIMSON: u64 = 1 << 18;

    /// Bit -> name, in bit order.
    pub const NAMES: [(u64, &str); 19] = [
        (HASHPSPOOL, "hashpspool"),
        (FULL, "full"),
        (EC_OVERWRITES, "ec_overwrites"),
        (INCOMPLETE_CLONES, "incomplete_clones"),
        (NODELETE, "nodelete"),
        (NOPGCHANGE, "nopgchange"),
        (NOSIZECHANGE, "nosizechange"),
        (WRITE_FADVISE_DONTNEED, "write_fadvise_dontneed"),
        (NOSCRUB, "noscrub"),
        (NODEEP_SCRUB, "nodeep-scrub"),
        (FULL_QUOTA, "full_quota"),
        (NEARFULL, "nearfull"),
        (BACKFILLFULL, "backfillfull"),
        (SELFMANAGED_SNAPS, "selfmanaged_snaps"),
        (POOL_SNAPS, "pool_snaps"),
        (CREATING, "creating"),
        (EIO, "eio"),
        (BULK, "bulk"),
        (CRIMSON, "crimson"),
    ];

    /// `hashpspool,selfmanaged_snaps`
    pub fn names(flags: u64) -> String {
        let set: Vec<&str> = NAMES
            .iter()
            .filter(|(bit, _)| flags & bit != 0)
            .map(|(_, n)| *n)
            .collect();
        set.join(",")
    }

    pub fn from_name(name: &str) -> Option<u64> {
        NAMES.iter().find(|(_, n)| *n == name).map(|(bit, _)| *bit)
    }
}

pub const POOL_TYPE_REPLICATED: u8 = 1;
pub const POOL_TYPE_ERASURE: u8 = 3;

/// Values of `PgPool::object_hash`.
pub const OBJECT_HASH_LINUX: u8 = 1;
pub const OBJECT_HASH_RJENKINS: u8 = 2;

/// Values of `PgPool::pg_autoscale_mode`.
pub const AUTOSCALE_OFF: u8 = 0;
pub const AUTOSCALE_WARN: u8 = 1;
pub const AUTOSCALE_ON: u8 = 2;

pub fn autoscale_mode_name(mode: u8) -> &'static str {
    match mode {
        AUTOSCALE_OFF => "off",
        AUTOSCALE_WARN => "warn",
        AUTOSCALE_ON => "on",
        _ => "???",
    }
}

pub fn cache_mode_name(mode: u8) -> &'static str {
    match mode {
        0 => "none",
        1 => "writeback",
        2 => "forward",
        3 => "readonly",
        4 => "readforward",
        5 => "readproxy",
        6 => "proxy",
        _ => "unknown",
    }
}

/// A pool snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolSnap {
    pub id: u64,
    pub stamp: Utime,
    pub name: String,
}
denc::envelope_denc!(PoolSnap, 2, 2, { id, stamp, name });

/// Parameters of hit sets (tiering): kind 0 is none, else the body is kept unread.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HitSetParams {
    pub kind: u8,
    pub body: Bytes,
}

/// `pg_merge_meta_t`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PgMergeMeta {
    pub source: PgId,
    pub ready_epoch: Epoch,
    pub last_epoch_started: Epoch,
    pub last_epoch_clean: Epoch,
    pub source_version: EVersion,
    pub target_version: EVersion,
}
denc::envelope_denc!(PgMergeMeta, 1, 1, {
    source,
    ready_epoch,
    last_epoch_started,
    last_epoch_clean,
    source_version,
    target_version,
});

impl Default for PgMergeMeta {
    fn default() -> Self {
        Self {
            source: PgId::new(0, 0),
            ready_epoch: 0,
            last_epoch_started: 0,
            last_epoch_clean: 0,
            source_version: EVersion::default(),
            target_version: EVersion::default(),
        }
    }
}

/// Fields of pools in stretch mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolStretch {
    pub bucket_count: u32,
    pub bucket_target: u32,
    pub bucket_barrier: u32,
    pub mandatory_member: i32,
}
denc::plain_denc!(PoolStretch {
    bucket_count,
    bucket_target,
    bucket_barrier,
    mandatory_member
});

pub type Application = BTreeMap<String, String>;

/// `pg_pool_t`. The field order is that of the encoding.
#[derive(Debug, Clone, PartialEq)]
pub struct PgPool {
    /// [`POOL_TYPE_REPLICATED`] or [`POOL_TYPE_ERASURE`].
    pub kind: u8,
    /// Replicas, or k + m.
    pub size: u8,
    pub crush_rule: u8,
    pub object_hash: u8,
    pub pg_num: u32,
    /// PGs for the purpose of placement.
    pub pgp_num: u32,
    pub lpg_num: u32,
    pub lpgp_num: u32,
    /// Epoch of the last change of this struct; applying an incremental sets it.
    pub last_change: Epoch,
    /// The newest snapshot id given out.
    pub snap_seq: u64,
    pub snap_epoch: Epoch,
    /// Pool snapshots by id.
    pub snaps: BTreeMap<u64, PoolSnap>,
    pub removed_snaps: IntervalSet,
    pub auid: u64,
    /// [`pool_flag`].
    pub flags: u64,
    pub crash_replay_interval: u32,
    /// Replicas needed for I/O.
    pub min_size: u8,
    /// 0: none.
    pub quota_max_bytes: u64,
    pub quota_max_objects: u64,
    pub tiers: BTreeSet<u64>,
    pub tier_of: PoolId,
    pub cache_mode: u8,
    pub read_tier: PoolId,
    pub write_tier: PoolId,
    pub properties: BTreeMap<String, String>,
    pub hit_set_params: HitSetParams,
    pub hit_set_period: u32,
    pub hit_set_count: u32,
    /// k x stripe unit; 0 in replicated pools.
    pub stripe_width: u32,
    pub target_max_bytes: u64,
    pub target_max_objects: u64,
    pub cache_target_dirty_ratio_micro: u32,
    pub cache_target_full_ratio_micro: u32,
    pub cache_min_flush_age: u32,
    pub cache_min_evict_age: u32,
    pub erasure_code_profile: String,
    pub last_force_op_resend_preluminous: Epoch,
    pub min_read_recency_for_promote: u32,
    pub expected_num_objects: u64,
    pub cache_target_dirty_high_ratio_micro: u32,
    pub min_write_recency_for_promote: u32,
    pub use_gmt_hitset: bool,
    pub fast_read: bool,
    pub hit_set_grade_decay_rate: u32,
    pub hit_set_search_last_n: u32,
    pub opts: PoolOptions,
    pub last_force_op_resend_prenautilus: Epoch,
    /// Application -> key -> value.
    pub application_metadata: BTreeMap<String, Application>,
    pub create_time: Utime,
    /// The wanted numbers; equal to the present ones unless a split or merge is under way.
    pub pg_num_target: u32,
    pub pgp_num_target: u32,
    pub pg_num_pending: u32,
    pub last_force_op_resend: Epoch,
    pub pg_autoscale_mode: u8,
    pub last_pg_merge_meta: PgMergeMeta,
    /// Present only in stretch mode.
    pub stretch: Option<PoolStretch>,
}

impl Default for PgPool {
    /// A replicated pool as the monitor makes it by default (docs/protocol/ceph/03-placement.md, section 8), except
    /// that this server never autoscales.
    fn default() -> Self {
        Self {
            kind: POOL_TYPE_REPLICATED,
            size: 3,
            crush_rule: 0,
            object_hash: OBJECT_HASH_RJENKINS,
            pg_num: 32,
            pgp_num: 32,
            lpg_num: 0,
            lpgp_num: 0,
            last_change: 0,
            snap_seq: 0,
            snap_epoch: 0,
            snaps: BTreeMap::new(),
            removed_snaps: IntervalSet::new(),
            auid: 0,
            flags: pool_flag::HASHPSPOOL,
            crash_replay_interval: 0,
            min_size: 2,
            quota_max_bytes: 0,
            quota_max_objects: 0,
            tiers: BTreeSet::new(),
            tier_of: -1,
            cache_mode: 0,
            read_tier: -1,
            write_tier: -1,
            properties: BTreeMap::new(),
            hit_set_params: HitSetParams::default(),
            hit_set_period: 0,
            hit_set_count: 0,
            stripe_width: 0,
            target_max_bytes: 0,
            target_max_objects: 0,
            cache_target_dirty_ratio_micro: 400_000,
            cache_target_full_ratio_micro: 800_000,
            cache_min_flush_age: 0,
            cache_min_evict_age: 0,
            erasure_code_profile: String::new(),
            last_force_op_resend_preluminous: 0,
            min_read_recency_for_promote: 0,
            expected_num_objects: 0,
            cache_target_dirty_high_ratio_micro: 600_000,
            min_write_recency_for_promote: 0,
            use_gmt_hitset: true,
            fast_read: false,
            hit_set_grade_decay_rate: 0,
            hit_set_search_last_n: 0,
            opts: PoolOptions::default(),
            last_force_op_resend_prenautilus: 0,
            application_metadata: BTreeMap::new(),
            create_time: Utime::ZERO,
            pg_num_target: 32,
            pgp_num_target: 32,
            pg_num_pending: 32,
            last_force_op_resend: 0,
            pg_autoscale_mode: AUTOSCALE_OFF,
            last_pg_merge_meta: PgMergeMeta::default(),
            stretch: None,
        }
    }
}

/// (smallest power of two >= n) - 1.
pub fn pg_mask(n: u32) -> u32 {
    n.checked_next_power_of_two().map_or(u32::MAX, |p| p - 1)
}

/// Maps `x` into 0..n so that growing `n` moves as little as possible; `mask` is [`pg_mask`] of `n`.
pub fn ceph_stable_mod(x: u32, n: u32, mask: u32) -> u32 {
    if x & mask < n { x & mask } else { x & (mask >> 1) }
}

/// The string hash of type `kind`; an unknown type hashes everything to all ones, as clients do.
pub fn string_hash(kind: u8, s: &[u8]) -> u32 {
    match kind {
        OBJECT_HASH_LINUX => string_hash_linux(s),
        OBJECT_HASH_RJENKINS => string_hash_rjenkins(s),
        _ => u32::MAX,
    }
}

pub fn string_hash_linux(s: &[u8]) -> u32 {
    s.iter().fold(0u32, |h, c| {
        let c = u32::from(*c);
        h.wrapping_add(c << 4).wrapping_add(c >> 4).wrapping_mul(11)
    })
}

pub fn string_hash_rjenkins(s: &[u8]) -> u32 {
    crush::string_rjenkins(s)
}

impl PgPool {
    pub fn is_replicated(&self) -> bool {
        self.kind == POOL_TYPE_REPLICATED
    }

    pub fn is_erasure(&self) -> bool {
        self.kind == POOL_TYPE_ERASURE
    }

    pub fn type_name(&self) -> &'static str {
        match self.kind {
            POOL_TYPE_REPLICATED => "replicated",
            POOL_TYPE_ERASURE => "erasure",
            _ => "unknown",
        }
    }

    pub fn has(&self, flag: u64) -> bool {
        self.flags & flag != 0
    }

    pub fn pg_num_mask(&self) -> u32 {
        pg_mask(self.pg_num)
    }

    pub fn pgp_num_mask(&self) -> u32 {
        pg_mask(self.pgp_num)
    }

    /// The PG seed for a raw hash.
    pub fn raw_to_pg(&self, raw: u32) -> u32 {
        ceph_stable_mod(raw, self.pg_num, self.pg_num_mask())
    }

    /// The input of CRUSH for a raw hash or a PG seed.
    pub fn raw_to_pps(&self, pool: PoolId, seed: u32) -> u32 {
        let base = ceph_stable_mod(seed, self.pgp_num, self.pgp_num_mask());
        if self.has(pool_flag::HASHPSPOOL) {
            crush::hash2(base, pool as u32)
        } else {
            base.wrapping_add(pool as u32)
        }
    }

    /// The raw hash of an object: of its locator key if there is one, with the namespace in front.
    pub fn object_to_raw(&self, nspace: &[u8], key: &[u8], oid: &[u8]) -> u32 {
        let k = if key.is_empty() { oid } else { key };
        if nspace.is_empty() {
            return string_hash(self.object_hash, k);
        }
        let mut s = Vec::with_capacity(nspace.len() + 1 + k.len());
        s.extend_from_slice(nspace);
        s.push(0x1f);
        s.extend_from_slice(k);
        string_hash(self.object_hash, &s)
    }

    /// The snapshots that a write takes part in when the pool has pool snapshots: newest id, and the existing
    /// ids in descending order.
    pub fn snap_context(&self) -> (u64, Vec<u64>) {
        (self.snap_seq, self.snaps.keys().rev().copied().collect())
    }

    pub fn is_pool_snaps_mode(&self) -> bool {
        self.has(pool_flag::POOL_SNAPS)
    }

    pub fn is_selfmanaged_snaps_mode(&self) -> bool {
        self.has(pool_flag::SELFMANAGED_SNAPS)
    }

    /// Sets the number of PGs and everything that follows from it, in one step (this server neither moves
    /// objects between PGs nor waits for it).
    pub fn set_pg_num(&mut self, pg_num: u32, epoch: Epoch) {
        self.pg_num = pg_num;
        self.pg_num_target = pg_num;
        self.pg_num_pending = pg_num;
        self.last_force_op_resend_preluminous = epoch;
        self.set_pgp_num(pg_num);
    }

    pub fn set_pgp_num(&mut self, pgp_num: u32) {
        self.pgp_num = pgp_num.min(self.pg_num);
        self.pgp_num_target = self.pgp_num;
    }

    /// Where the objects of the last PG go when there is one less.
    pub fn merge_target(&self, source: u32) -> u32 {
        ceph_stable_mod(source, source.max(1), pg_mask(source.max(1)))
    }

    /// Fewer PGs are wanted, at least 1. They go one at a time ([`PgPool::merge_last`]); from now on each has the place of the
    /// one that it becomes part of.
    pub fn shrink_to(&mut self, pg_num: u32) {
        self.pg_num_target = pg_num.max(1);
        self.pgp_num = self.pgp_num.min(self.pg_num_target);
        self.pgp_num_target = self.pgp_num;
    }

    /// There is one PG less.
    pub fn merge_last(&mut self, epoch: Epoch, merge: PgMergeMeta) {
        self.pg_num = self.pg_num.saturating_sub(1).max(1);
        self.pg_num_pending = self.pg_num;
        self.pgp_num = self.pgp_num.min(self.pg_num);
        self.pgp_num_target = self.pgp_num_target.min(self.pg_num);
        self.last_force_op_resend_prenautilus = epoch;
        self.last_pg_merge_meta = merge;
    }

    /// Takes a new id for a self-managed snapshot: the first one of a pool is 2. Errors (pool-snaps mode) are
    /// the caller's to check.
    pub fn new_selfmanaged_snap(&mut self, epoch: Epoch) -> u64 {
        self.snap_seq = self.snap_seq.max(1) + 1;
        self.snap_epoch = epoch;
        self.flags |= pool_flag::SELFMANAGED_SNAPS;
        self.snap_seq
    }

    /// Counts the removal of a self-managed snapshot; the id itself goes into the incremental's
    /// `new_removed_snaps`. `None` if the id was never given out.
    pub fn remove_selfmanaged_snap(&mut self, id: u64, epoch: Epoch) -> Option<()> {
        if id > self.snap_seq {
            return None;
        }
        self.snap_seq += 1;
        self.snap_epoch = epoch;
        Some(())
    }

    pub fn new_pool_snap(&mut self, name: &str, stamp: Utime, epoch: Epoch) -> u64 {
        self.snap_seq += 1;
        self.snap_epoch = epoch;
        self.flags |= pool_flag::POOL_SNAPS;
        let id = self.snap_seq;
        let name = name.to_string();
        self.snaps.insert(id, PoolSnap { id, stamp, name });
        id
    }

    /// Drops a pool snapshot; `None` if there is none of that id.
    pub fn remove_pool_snap(&mut self, id: u64, epoch: Epoch) -> Option<PoolSnap> {
        let snap = self.snaps.remove(&id)?;
        self.snap_seq += 1;
        self.snap_epoch = epoch;
        Some(snap)
    }

    pub fn pool_snap_by_name(&self, name: &str) -> Option<u64> {
        self.snaps.values().find(|s| s.name == name).map(|s| s.id)
    }

    /// Ceph's default for `min_size`: a majority for replicated pools.
    pub fn default_min_size(size: u8) -> u8 {
        size - size / 2
    }
}
