//! Statistics of placement groups, pools and OSDs: what OSDs report, what `df`, `pg dump`, statfs and the pool
//! statistics are added up from (docs/protocol/ceph/02-monitor.md, 6.1, 6.2, 13.3, 13.9).
//!
//! [`ObjectStatSum`], [`ObjectStatCollection`], [`StoreStatfs`] and [`PoolStat`] travel to clients and have
//! Ceph's encoding. [`PgStat`] and [`OsdStat`] stay among our own daemons: their encoding is ours.

use crate::{EVersion, EntityAddr, Epoch, OsdId, PgId, PoolId, Utime};
use denc::{Decode, Encode, Reader, Result, Writer};
use std::collections::BTreeMap;
use std::ops::{Add, AddAssign, Sub};

macro_rules! object_stat_sum {
    ($($f:ident: $t:ty = $json:literal),* $(,)?) => {
        /// `object_stat_sum_t`: counters over objects.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct ObjectStatSum { $(pub $f: $t,)* }

        impl ObjectStatSum {
            /// Name in JSON output, and value, in the order of the encoding.
            pub fn fields(&self) -> Vec<(&'static str, i64)> {
                vec![$(($json, i64::from(self.$f))),*]
            }
        }
        impl AddAssign for ObjectStatSum {
            fn add_assign(&mut self, o: Self) { $(self.$f = self.$f.saturating_add(o.$f);)* }
        }
        impl Sub for ObjectStatSum {
            type Output = Self;
            fn sub(self, o: Self) -> Self { Self { $($f: self.$f.saturating_sub(o.$f)),* } }
        }
        denc::envelope_denc!(ObjectStatSum, 20, 14, { $($f),* });
    };
}

object_stat_sum! {
    num_bytes: i64 = "num_bytes",
    num_objects: i64 = "num_objects",
    num_object_clones: i64 = "num_object_clones",
    num_object_copies: i64 = "num_object_copies",
    num_objects_missing_on_primary: i64 = "num_objects_missing_on_primary",
    num_objects_degraded: i64 = "num_objects_degraded",
    num_objects_unfound: i64 = "num_objects_unfound",
    num_rd: i64 = "num_read",
    num_rd_kb: i64 = "num_read_kb",
    num_wr: i64 = "num_write",
    num_wr_kb: i64 = "num_write_kb",
    num_scrub_errors: i64 = "num_scrub_errors",
    num_objects_recovered: i64 = "num_objects_recovered",
    num_bytes_recovered: i64 = "num_bytes_recovered",
    num_keys_recovered: i64 = "num_keys_recovered",
    num_shallow_scrub_errors: i64 = "num_shallow_scrub_errors",
    num_deep_scrub_errors: i64 = "num_deep_scrub_errors",
    num_objects_dirty: i64 = "num_objects_dirty",
    num_whiteouts: i64 = "num_whiteouts",
    num_objects_omap: i64 = "num_objects_omap",
    num_objects_hit_set_archive: i64 = "num_objects_hit_set_archive",
    num_objects_misplaced: i64 = "num_objects_misplaced",
    num_bytes_hit_set_archive: i64 = "num_bytes_hit_set_archive",
    num_flush: i64 = "num_flush",
    num_flush_kb: i64 = "num_flush_kb",
    num_evict: i64 = "num_evict",
    num_evict_kb: i64 = "num_evict_kb",
    num_promote: i64 = "num_promote",
    num_flush_mode_high: i32 = "num_flush_mode_high",
    num_flush_mode_low: i32 = "num_flush_mode_low",
    num_evict_mode_some: i32 = "num_evict_mode_some",
    num_evict_mode_full: i32 = "num_evict_mode_full",
    num_objects_pinned: i64 = "num_objects_pinned",
    num_objects_missing: i64 = "num_objects_missing",
    num_legacy_snapsets: i64 = "num_legacy_snapsets",
    num_large_omap_objects: i64 = "num_large_omap_objects",
    num_objects_manifest: i64 = "num_objects_manifest",
    num_omap_bytes: i64 = "num_omap_bytes",
    num_omap_keys: i64 = "num_omap_keys",
    num_objects_repaired: i64 = "num_objects_repaired",
}

/// The order in which JSON output lists the counters; it differs from the encoding's.
pub const STAT_SUM_JSON_ORDER: [&str; 40] = [
    "num_bytes",
    "num_objects",
    "num_object_clones",
    "num_object_copies",
    "num_objects_missing_on_primary",
    "num_objects_missing",
    "num_objects_degraded",
    "num_objects_misplaced",
    "num_objects_unfound",
    "num_objects_dirty",
    "num_whiteouts",
    "num_read",
    "num_read_kb",
    "num_write",
    "num_write_kb",
    "num_scrub_errors",
    "num_shallow_scrub_errors",
    "num_deep_scrub_errors",
    "num_objects_recovered",
    "num_bytes_recovered",
    "num_keys_recovered",
    "num_objects_omap",
    "num_objects_hit_set_archive",
    "num_bytes_hit_set_archive",
    "num_flush",
    "num_flush_kb",
    "num_evict",
    "num_evict_kb",
    "num_promote",
    "num_flush_mode_high",
    "num_flush_mode_low",
    "num_evict_mode_some",
    "num_evict_mode_full",
    "num_objects_pinned",
    "num_legacy_snapsets",
    "num_large_omap_objects",
    "num_objects_manifest",
    "num_omap_bytes",
    "num_omap_keys",
    "num_objects_repaired",
];

impl ObjectStatSum {
    /// Name and value in the order of JSON output.
    pub fn json_fields(&self) -> Vec<(&'static str, i64)> {
        let by_name: BTreeMap<&str, i64> = self.fields().into_iter().collect();
        STAT_SUM_JSON_ORDER
            .iter()
            .map(|n| (*n, by_name.get(n).copied().unwrap_or(0)))
            .collect()
    }
}

impl Add for ObjectStatSum {
    type Output = Self;
    fn add(mut self, o: Self) -> Self {
        self += o;
        self
    }
}

/// `object_stat_collection_t`: the sum, and categories that no release uses any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ObjectStatCollection {
    pub sum: ObjectStatSum,
}

impl Encode for ObjectStatCollection {
    fn encode(&self, w: &mut Writer) {
        w.envelope(2, 2, |w| {
            w.put(&self.sum);
            w.u32(0);
        });
    }
}

impl Decode for ObjectStatCollection {
    const MIN_SIZE: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self> {
        r.envelope(2, |_, r| Ok(Self { sum: r.get()? }))
    }
}

/// `store_statfs_t`: bytes on the devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StoreStatfs {
    pub total: i64,
    pub available: i64,
    pub internally_reserved: i64,
    pub allocated: i64,
    pub data_stored: i64,
    pub data_compressed: i64,
    pub data_compressed_allocated: i64,
    pub data_compressed_original: i64,
    pub omap_allocated: i64,
    pub internal_metadata: i64,
}
denc::envelope_denc!(StoreStatfs, 1, 1, {
    total,
    available,
    internally_reserved,
    allocated,
    data_stored,
    data_compressed,
    data_compressed_allocated,
    data_compressed_original,
    omap_allocated,
    internal_metadata,
});

impl StoreStatfs {
    pub fn fields(&self) -> [(&'static str, i64); 10] {
        [
            ("total", self.total),
            ("available", self.available),
            ("internally_reserved", self.internally_reserved),
            ("allocated", self.allocated),
            ("data_stored", self.data_stored),
            ("data_compressed", self.data_compressed),
            ("data_compressed_allocated", self.data_compressed_allocated),
            ("data_compressed_original", self.data_compressed_original),
            ("omap_allocated", self.omap_allocated),
            ("internal_metadata", self.internal_metadata),
        ]
    }

    /// Bytes used, everything counted.
    pub fn used(&self) -> i64 {
        self.total - self.available
    }
}

impl AddAssign for StoreStatfs {
    fn add_assign(&mut self, o: Self) {
        self.total += o.total;
        self.available += o.available;
        self.internally_reserved += o.internally_reserved;
        self.allocated += o.allocated;
        self.data_stored += o.data_stored;
        self.data_compressed += o.data_compressed;
        self.data_compressed_allocated += o.data_compressed_allocated;
        self.data_compressed_original += o.data_compressed_original;
        self.omap_allocated += o.omap_allocated;
        self.internal_metadata += o.internal_metadata;
    }
}

/// `pool_stat_t`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PoolStat {
    pub stats: ObjectStatCollection,
    pub log_size: i64,
    pub ondisk_log_size: i64,
    /// Sums over PGs of the sizes of their up and acting sets.
    pub up: i32,
    pub acting: i32,
    pub store_stats: StoreStatfs,
    /// OSDs that hold the pool.
    pub num_store_stats: u32,
}
denc::envelope_denc!(PoolStat, 7, 5, {
    stats,
    log_size,
    ondisk_log_size,
    up,
    acting,
    store_stats,
    num_store_stats,
});

impl PoolStat {
    /// Adds one PG's figures.
    pub fn add_pg(&mut self, pg: &PgStat) {
        self.stats.sum += pg.stats.sum;
        self.log_size += pg.log_size;
        self.ondisk_log_size += pg.ondisk_log_size;
        self.up += pg.up.len() as i32;
        self.acting += pg.acting.len() as i32;
    }
}

/// Bits of `PgStat::state`, in the order of Ceph's text form: bit numbers and names.
pub mod pg_state {
    pub const CREATING: u64 = 1 << 0;
    pub const ACTIVE: u64 = 1 << 1;
    pub const CLEAN: u64 = 1 << 2;
    pub const DOWN: u64 = 1 << 4;
    pub const RECOVERY_UNFOUND: u64 = 1 << 5;
    pub const SCRUBBING: u64 = 1 << 8;
    pub const DEGRADED: u64 = 1 << 10;
    pub const INCONSISTENT: u64 = 1 << 11;
    pub const PEERING: u64 = 1 << 12;
    pub const REPAIR: u64 = 1 << 13;
    pub const RECOVERING: u64 = 1 << 14;
    pub const BACKFILL_WAIT: u64 = 1 << 15;
    pub const INCOMPLETE: u64 = 1 << 16;
    pub const STALE: u64 = 1 << 17;
    pub const REMAPPED: u64 = 1 << 18;
    pub const DEEP_SCRUB: u64 = 1 << 19;
    pub const BACKFILLING: u64 = 1 << 20;
    pub const RECOVERY_WAIT: u64 = 1 << 22;
    pub const UNDERSIZED: u64 = 1 << 23;
    pub const ACTIVATING: u64 = 1 << 24;
    pub const PEERED: u64 = 1 << 25;
    pub const SNAPTRIM: u64 = 1 << 26;
    /// What operators want copied before others.
    pub const FORCED_RECOVERY: u64 = 1 << 30;
    pub const FORCED_BACKFILL: u64 = 1 << 31;
    pub const UNKNOWN: u64 = 0;

    /// Names in the order in which they are joined ("active+undersized+degraded").
    pub const NAMES: [(u64, &str); 24] = [
        (STALE, "stale"),
        (CREATING, "creating"),
        (ACTIVE, "active"),
        (ACTIVATING, "activating"),
        (CLEAN, "clean"),
        (RECOVERY_WAIT, "recovery_wait"),
        (RECOVERING, "recovering"),
        (FORCED_RECOVERY, "forced_recovery"),
        (DOWN, "down"),
        (RECOVERY_UNFOUND, "recovery_unfound"),
        (UNDERSIZED, "undersized"),
        (DEGRADED, "degraded"),
        (REMAPPED, "remapped"),
        (SCRUBBING, "scrubbing"),
        (DEEP_SCRUB, "deep"),
        (INCONSISTENT, "inconsistent"),
        (PEERING, "peering"),
        (REPAIR, "repair"),
        (BACKFILL_WAIT, "backfill_wait"),
        (BACKFILLING, "backfilling"),
        (FORCED_BACKFILL, "forced_backfill"),
        (INCOMPLETE, "incomplete"),
        (PEERED, "peered"),
        (SNAPTRIM, "snaptrim"),
    ];

    /// `active+clean`; `unknown` for none.
    pub fn names(state: u64) -> String {
        let set: Vec<&str> = NAMES
            .iter()
            .filter(|(bit, _)| state & bit != 0)
            .map(|(_, n)| *n)
            .collect();
        if set.is_empty() {
            "unknown".to_string()
        } else {
            set.join("+")
        }
    }
}

/// What a PG's primary reports about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PgStat {
    pub pgid: PgId,
    /// [`pg_state`].
    pub state: u64,
    pub version: EVersion,
    pub reported_seq: u64,
    pub reported_epoch: Epoch,
    pub last_fresh: Utime,
    pub last_change: Utime,
    pub last_active: Utime,
    pub last_peered: Utime,
    pub last_clean: Utime,
    pub last_became_active: Utime,
    pub last_unstale: Utime,
    pub last_undegraded: Utime,
    pub last_fullsized: Utime,
    pub mapping_epoch: Epoch,
    pub created: Epoch,
    pub last_epoch_clean: Epoch,
    pub log_start: EVersion,
    pub last_scrub: EVersion,
    pub last_scrub_stamp: Utime,
    pub last_deep_scrub: EVersion,
    pub last_deep_scrub_stamp: Utime,
    pub log_size: i64,
    pub ondisk_log_size: i64,
    pub snaptrimq_len: u32,
    pub stats: ObjectStatCollection,
    pub up: Vec<OsdId>,
    pub acting: Vec<OsdId>,
    pub up_primary: OsdId,
    pub acting_primary: OsdId,
    /// OSDs that the PG waits for: it cannot serve, or not heal, until they answer or come back.
    pub blocked_by: Vec<OsdId>,
}
denc::envelope_denc!(PgStat, 2, 2, {
    pgid,
    state,
    version,
    reported_seq,
    reported_epoch,
    last_fresh,
    last_change,
    last_active,
    last_peered,
    last_clean,
    last_became_active,
    last_unstale,
    last_undegraded,
    last_fullsized,
    mapping_epoch,
    created,
    last_epoch_clean,
    log_start,
    last_scrub,
    last_scrub_stamp,
    last_deep_scrub,
    last_deep_scrub_stamp,
    log_size,
    ondisk_log_size,
    snaptrimq_len,
    stats,
    up,
    acting,
    up_primary,
    acting_primary,
    blocked_by,
});

impl PgStat {
    /// A PG that nobody has reported yet.
    pub fn unknown(pgid: PgId) -> Self {
        Self {
            pgid,
            state: pg_state::UNKNOWN,
            version: EVersion::default(),
            reported_seq: 0,
            reported_epoch: 0,
            last_fresh: Utime::ZERO,
            last_change: Utime::ZERO,
            last_active: Utime::ZERO,
            last_peered: Utime::ZERO,
            last_clean: Utime::ZERO,
            last_became_active: Utime::ZERO,
            last_unstale: Utime::ZERO,
            last_undegraded: Utime::ZERO,
            last_fullsized: Utime::ZERO,
            mapping_epoch: 0,
            created: 0,
            last_epoch_clean: 0,
            log_start: EVersion::default(),
            last_scrub: EVersion::default(),
            last_scrub_stamp: Utime::ZERO,
            last_deep_scrub: EVersion::default(),
            last_deep_scrub_stamp: Utime::ZERO,
            log_size: 0,
            ondisk_log_size: 0,
            snaptrimq_len: 0,
            stats: ObjectStatCollection::default(),
            up: Vec::new(),
            acting: Vec::new(),
            up_primary: -1,
            acting_primary: -1,
            blocked_by: Vec::new(),
        }
    }
}

/// What an OSD reports about itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OsdStat {
    pub osd: OsdId,
    pub up_from: Epoch,
    pub seq: u64,
    pub num_pgs: u32,
    pub statfs: StoreStatfs,
    /// Bytes that pools take on this OSD.
    pub pool_statfs: BTreeMap<PoolId, StoreStatfs>,
    pub hb_peers: Vec<OsdId>,
    pub commit_latency_ns: u64,
    pub apply_latency_ns: u64,
    /// Operations that have waited for more than a second, the oldest first, at most [`SLOW_OPS_MAX`] of them.
    pub slow_ops: Vec<SlowOp>,
    /// How many have waited longer than `osd_op_complaint_time`: what the health check counts.
    pub slow_ops_count: u32,
}
denc::envelope_denc!(OsdStat, 2, 2, {
    osd,
    up_from,
    seq,
    num_pgs,
    statfs,
    pool_statfs,
    hb_peers,
    commit_latency_ns,
    apply_latency_ns,
    slow_ops,
    slow_ops_count,
});

/// Slow operations that one report lists.
pub const SLOW_OPS_MAX: usize = 16;

/// An operation that has waited long, and what for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlowOp {
    /// When it came.
    pub since: Utime,
    /// `client.4123 10.0.0.7:0/3343`
    pub client: String,
    /// As `dump_ops_in_flight` describes it.
    pub what: String,
    pub pg: PgId,
    pub object: String,
    /// All of these must happen before it is answered.
    pub waits: Vec<Wait>,
}
denc::envelope_denc!(SlowOp, 1, 1, { since, client, what, pg, object, waits });

/// Locks that one report names.
pub const HELD_LOCKS_MAX: usize = 16;

/// Who holds a lock (class `lock`) that others were refused, or that its holder does not watch any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldLock {
    pub pg: PgId,
    pub nspace: String,
    pub object: String,
    /// The lock's name: of RBD images `rbd_lock`.
    pub lock: String,
    /// `client.4124`
    pub holder: String,
    pub addr: EntityAddr,
    pub cookie: String,
    /// [`holder`].
    pub watch: u8,
    /// When its watch ended without its doing; zero: it did not, as far as this OSD knows.
    pub lost: Utime,
    /// How often others were refused lately, since when, and who was last, and when; empty: nobody.
    pub refused: u32,
    pub refused_since: Utime,
    pub refused_last: Utime,
    pub refused_by: String,
}
denc::envelope_denc!(HeldLock, 1, 1, {
    pg, nspace, object, lock, holder, addr, cookie, watch, lost, refused, refused_since, refused_last, refused_by
});

/// Whether a lock's holder watches the object.
pub mod holder {
    pub const NO_WATCH: u8 = 0;
    /// It does, and is not connected now.
    pub const AWAY: u8 = 1;
    pub const CONNECTED: u8 = 2;
}

/// A member of a PG whose disk has no room for what the PG wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoRoom {
    pub osd: OsdId,
    /// The PG cannot go on without it: fewer than `min_size` would stay.
    pub needed: bool,
    /// Writes that are not there yet; at least so many.
    pub lacks: u64,
}
denc::envelope_denc!(NoRoom, 1, 1, { osd, needed, lacks });

/// One thing that an operation waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wait {
    /// [`wait`].
    pub kind: u8,
    /// The OSD that is waited for; -1 if it is none.
    pub osd: OsdId,
    /// Who else: a watcher's `client.4124 10.0.0.8:0/77`.
    pub who: String,
    /// Since when it is waited for, or since when a watcher is there; zero if nobody knows.
    pub since: Utime,
}
denc::envelope_denc!(Wait, 1, 1, { kind, osd, who, since });

/// Kinds of [`Wait`].
pub mod wait {
    /// The OSD may not serve: its lease is not renewed.
    pub const LEASE: u8 = 1;
    /// The PG cannot serve until `osd` answers or comes back.
    pub const MEMBER: u8 = 2;
    /// The write is not durable on `osd` (the reporting one: its own disk).
    pub const DURABLE: u8 = 3;
    /// The object is being copied to `osd`.
    pub const COPY: u8 = 4;
    /// A watcher has not answered a notification: for RBD images, the holder of the exclusive lock.
    pub const WATCHER: u8 = 5;
    /// Another operation on the same object.
    pub const ORDER: u8 = 6;
    /// The disk has no room.
    pub const SPACE: u8 = 7;
    /// The map says that clients shall wait (pause, full).
    pub const MAP: u8 = 8;
}

impl OsdStat {
    pub fn kb(&self) -> u64 {
        self.statfs.total.max(0) as u64 / 1024
    }

    pub fn kb_avail(&self) -> u64 {
        self.statfs.available.max(0) as u64 / 1024
    }

    pub fn kb_used(&self) -> u64 {
        self.statfs.used().max(0) as u64 / 1024
    }

    pub fn kb_used_data(&self) -> u64 {
        self.statfs.allocated.max(0) as u64 / 1024
    }

    pub fn kb_used_omap(&self) -> u64 {
        self.statfs.omap_allocated.max(0) as u64 / 1024
    }

    pub fn kb_used_meta(&self) -> u64 {
        self.statfs.internal_metadata.max(0) as u64 / 1024
    }
}
