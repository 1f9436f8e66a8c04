//! The maps of file systems: [`MdsMap`] (one file system and its metadata servers), [`FsMap`] (all of them) and
//! [`FsMapUser`] (their names; docs/protocol/ceph/02-monitor.md, section 11).
//!
//! Plain data: who may hold which rank, and what follows what, is decided in `cluster::files`.

use crate::{EntityAddrVec, Epoch, PoolId, Utime};
use bytes::Bytes;
use denc::{Decode, Encode, Reader, Result, Writer};
use std::collections::{BTreeMap, BTreeSet};

/// Version of the extension behind the fixed part of [`MdsMap`].
const EXTENSION: u16 = 16;
/// What the map of no file system calls itself.
const NO_NAME: &str = "cephfs";

/// One set of named feature bits; the mask is stored beside the names.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FeatureSet {
    pub mask: u64,
    pub names: BTreeMap<u64, String>,
}
denc::plain_denc!(FeatureSet { mask, names });

impl FeatureSet {
    pub fn of(names: &[(u64, &str)]) -> Self {
        Self {
            mask: names.iter().fold(0, |m, (bit, _)| m | 1 << (bit & 63)),
            names: names.iter().map(|(b, n)| (*b, (*n).to_string())).collect(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CompatSet {
    pub compat: FeatureSet,
    pub ro_compat: FeatureSet,
    pub incompat: FeatureSet,
}
denc::plain_denc!(CompatSet {
    compat,
    ro_compat,
    incompat
});

/// Incompatible features of Ceph 16 file systems.
pub const MDS_INCOMPAT: [(u64, &str); 10] = [
    (1, "base v0.20"),
    (2, "client writeable ranges"),
    (3, "default file layouts on dirs"),
    (4, "dir inode in separate object"),
    (5, "mds uses versioned encoding"),
    (6, "dirfrag is stored in omap"),
    (7, "mds uses inline data"),
    (8, "no anchor table"),
    (9, "file layout v2"),
    (10, "snaprealm v2"),
];

impl CompatSet {
    /// The default of a new map of file systems: all but inline data.
    pub fn fs_default() -> Self {
        let bits: Vec<(u64, &str)> = MDS_INCOMPAT.into_iter().filter(|(b, _)| *b != 7).collect();
        Self {
            incompat: FeatureSet::of(&bits),
            ..Self::default()
        }
    }
}

/// What a metadata server does (docs/protocol/ceph/02-monitor.md, 11.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(i32)]
pub enum MdsState {
    Null = -10,
    StandbyReplay = -8,
    Starting = -7,
    Creating = -6,
    Standby = -5,
    Boot = -4,
    Stopped = -1,
    Dne = 0,
    Replay = 8,
    Resolve = 9,
    Reconnect = 10,
    Rejoin = 11,
    ClientReplay = 12,
    Active = 13,
    Stopping = 14,
    Damaged = 15,
}

impl MdsState {
    const ALL: [(Self, &str); 16] = [
        (Self::Null, "null"),
        (Self::StandbyReplay, "up:standby-replay"),
        (Self::Starting, "up:starting"),
        (Self::Creating, "up:creating"),
        (Self::Standby, "up:standby"),
        (Self::Boot, "up:boot"),
        (Self::Stopped, "down:stopped"),
        (Self::Dne, "down:dne"),
        (Self::Replay, "up:replay"),
        (Self::Resolve, "up:resolve"),
        (Self::Reconnect, "up:reconnect"),
        (Self::Rejoin, "up:rejoin"),
        (Self::ClientReplay, "up:clientreplay"),
        (Self::Active, "up:active"),
        (Self::Stopping, "up:stopping"),
        (Self::Damaged, "down:damaged"),
    ];

    /// As Ceph prints it.
    pub fn name(self) -> &'static str {
        Self::ALL
            .iter()
            .find(|(state, _)| *state == self)
            .map_or("???", |(_, name)| name)
    }
}

impl std::fmt::Display for MdsState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl Encode for MdsState {
    fn encode(&self, w: &mut Writer) {
        w.i32(*self as i32);
    }
}

impl Decode for MdsState {
    const MIN_SIZE: usize = 4;
    fn decode(r: &mut Reader) -> Result<Self> {
        let number = r.i32()?;
        let known = Self::ALL.iter().find(|(state, _)| *state as i32 == number);
        known
            .map(|(state, _)| *state)
            .ok_or_else(|| r.invalid("state of a metadata server"))
    }
}

/// Flags of an [`MdsMap`].
pub mod mds_flag {
    pub const NOT_JOINABLE: u32 = 1;
    pub const ALLOW_SNAPS: u32 = 1 << 1;
    pub const ALLOW_MULTIMDS_SNAPS: u32 = 1 << 4;
    pub const ALLOW_STANDBY_REPLAY: u32 = 1 << 5;
    pub const REFUSE_CLIENT_SESSION: u32 = 1 << 6;
}

/// `mds_info_t` (docs/protocol/ceph/02-monitor.md, 11.2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MdsInfo {
    pub gid: u64,
    pub name: String,
    pub rank: i32,
    pub incarnation: i32,
    pub state: MdsState,
    pub state_seq: u64,
    pub addrs: EntityAddrVec,
    pub laggy_since: Utime,
    pub standby_for_rank: i32,
    pub standby_for_name: String,
    pub export_targets: BTreeSet<i32>,
    pub mds_features: u64,
    pub join_fscid: i32,
    pub standby_replay: bool,
    pub flags: u64,
    pub compat: CompatSet,
}
denc::envelope_denc!(MdsInfo, 10, 4, {
    gid,
    name,
    rank,
    incarnation,
    state,
    state_seq,
    addrs,
    laggy_since,
    standby_for_rank,
    standby_for_name,
    export_targets,
    mds_features,
    join_fscid,
    standby_replay,
    flags,
    compat,
});

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MdsMap {
    pub epoch: Epoch,
    pub flags: u32,
    pub last_failure: Epoch,
    pub root: i32,
    pub session_timeout: u32,
    pub session_autoclose: u32,
    pub max_file_size: u64,
    pub max_mds: i32,
    pub mds_info: BTreeMap<u64, MdsInfo>,
    pub data_pools: Vec<PoolId>,
    pub cas_pool: PoolId,
    pub compat: CompatSet,
    pub metadata_pool: PoolId,
    pub created: Utime,
    pub modified: Utime,
    pub tableserver: i32,
    /// Ranks, their incarnations, and the daemons that hold them.
    pub in_ranks: BTreeSet<i32>,
    pub inc: BTreeMap<i32, i32>,
    pub up: BTreeMap<i32, u64>,
    pub failed: BTreeSet<i32>,
    pub stopped: BTreeSet<i32>,
    pub last_failure_osd_epoch: Epoch,
    pub ever_allowed_features: u8,
    pub explicitly_allowed_features: u8,
    pub inline_data_enabled: bool,
    pub enabled: bool,
    pub fs_name: String,
    pub damaged: BTreeSet<i32>,
    pub balancer: String,
    pub standby_count_wanted: i32,
    pub old_max_mds: i32,
    pub min_compat_client: u8,
    /// Feature bits, little-endian.
    pub required_client_features: Bytes,
}

impl Default for MdsMap {
    /// The map that a client gets when there is no file system.
    fn default() -> Self {
        Self {
            epoch: 0,
            flags: mds_flag::ALLOW_SNAPS | mds_flag::ALLOW_MULTIMDS_SNAPS,
            last_failure: 0,
            root: 0,
            session_timeout: 60,
            session_autoclose: 300,
            max_file_size: 1 << 40,
            max_mds: 1,
            mds_info: BTreeMap::new(),
            data_pools: Vec::new(),
            cas_pool: -1,
            compat: CompatSet::default(),
            metadata_pool: -1,
            created: Utime::ZERO,
            modified: Utime::ZERO,
            tableserver: 0,
            in_ranks: BTreeSet::new(),
            inc: BTreeMap::new(),
            up: BTreeMap::new(),
            failed: BTreeSet::new(),
            stopped: BTreeSet::new(),
            last_failure_osd_epoch: 0,
            ever_allowed_features: 0,
            explicitly_allowed_features: 0,
            inline_data_enabled: false,
            enabled: false,
            fs_name: NO_NAME.into(),
            damaged: BTreeSet::new(),
            balancer: String::new(),
            standby_count_wanted: -1,
            old_max_mds: 0,
            min_compat_client: 0,
            required_client_features: Bytes::new(),
        }
    }
}

impl Encode for MdsMap {
    fn encode(&self, w: &mut Writer) {
        w.envelope(5, 4, |w| {
            w.u32(self.epoch);
            w.u32(self.flags);
            w.u32(self.last_failure);
            w.i32(self.root);
            w.u32(self.session_timeout);
            w.u32(self.session_autoclose);
            w.u64(self.max_file_size);
            w.i32(self.max_mds);
            w.put(&self.mds_info);
            w.put(&self.data_pools);
            w.i64(self.cas_pool);
            self.encode_extension(w);
        });
    }
}

impl MdsMap {
    /// Daemons that follow the journal of a rank that another holds.
    pub fn followers(&self) -> impl Iterator<Item = &MdsInfo> {
        self.mds_info
            .values()
            .filter(|i| i.state == MdsState::StandbyReplay)
    }

    pub fn follower(&self, rank: i32) -> Option<&MdsInfo> {
        self.followers().find(|i| i.rank == rank)
    }

    fn encode_extension(&self, w: &mut Writer) {
        w.u16(EXTENSION);
        w.put(&self.compat);
        w.i64(self.metadata_pool);
        w.put(&self.created);
        w.put(&self.modified);
        w.i32(self.tableserver);
        w.put(&self.in_ranks);
        w.put(&self.inc);
        w.put(&self.up);
        w.put(&self.failed);
        w.put(&self.stopped);
        w.u32(self.last_failure_osd_epoch);
        w.u8(self.ever_allowed_features);
        w.u8(self.explicitly_allowed_features);
        w.bool(self.inline_data_enabled);
        w.bool(self.enabled);
        w.string(&self.fs_name);
        w.put(&self.damaged);
        w.string(&self.balancer);
        w.i32(self.standby_count_wanted);
        w.i32(self.old_max_mds);
        w.u8(self.min_compat_client);
        w.put(&self.required_client_features);
    }
}

impl Decode for MdsMap {
    fn decode(r: &mut Reader) -> Result<Self> {
        r.envelope(5, |_, r| {
            let fixed = Self {
                epoch: r.u32()?,
                flags: r.u32()?,
                last_failure: r.u32()?,
                root: r.i32()?,
                session_timeout: r.u32()?,
                session_autoclose: r.u32()?,
                max_file_size: r.u64()?,
                max_mds: r.i32()?,
                mds_info: r.get()?,
                data_pools: r.get()?,
                cas_pool: r.i64()?,
                ..Self::default()
            };
            if r.u16()? < EXTENSION {
                return Err(r.invalid("MDS map older than Ceph 16"));
            }
            Ok(Self {
                compat: r.get()?,
                metadata_pool: r.i64()?,
                created: r.get()?,
                modified: r.get()?,
                tableserver: r.i32()?,
                in_ranks: r.get()?,
                inc: r.get()?,
                up: r.get()?,
                failed: r.get()?,
                stopped: r.get()?,
                last_failure_osd_epoch: r.u32()?,
                ever_allowed_features: r.u8()?,
                explicitly_allowed_features: r.u8()?,
                inline_data_enabled: r.bool()?,
                enabled: r.bool()?,
                fs_name: r.string()?,
                damaged: r.get()?,
                balancer: r.string()?,
                standby_count_wanted: r.i32()?,
                old_max_mds: r.i32()?,
                min_compat_client: r.u8()?,
                required_client_features: r.get()?,
                ..fixed
            })
        })
    }
}

/// One file system in an [`FsMap`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filesystem {
    pub fscid: i32,
    pub mds_map: MdsMap,
    /// Mirroring state, encoded (its own envelope).
    pub mirror: Mirror,
}

/// Mirroring: whether it is on; the peers are kept unread.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Mirror {
    pub mirrored: bool,
    pub peers: Bytes,
}

impl Encode for Mirror {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.bool(self.mirrored);
            if self.peers.is_empty() {
                w.u32(0);
            }
            w.raw(&self.peers);
        });
    }
}

impl Decode for Mirror {
    fn decode(r: &mut Reader) -> Result<Self> {
        r.envelope(1, |_, r| {
            let mirrored = r.bool()?;
            let peers = match r.rest() {
                none if none.iter().all(|b| *b == 0) => Bytes::new(),
                some => some,
            };
            Ok(Self { mirrored, peers })
        })
    }
}

impl Encode for Filesystem {
    fn encode(&self, w: &mut Writer) {
        w.envelope(2, 1, |w| {
            w.i32(self.fscid);
            w.sized(|w| w.put(&self.mds_map));
            w.put(&self.mirror);
        });
    }
}

impl Decode for Filesystem {
    const MIN_SIZE: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self> {
        r.envelope(2, |v, r| {
            Ok(Self {
                fscid: r.i32()?,
                mds_map: MdsMap::from_bytes(&r.blob()?)?,
                mirror: if v >= 2 { r.get()? } else { Mirror::default() },
            })
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FsMap {
    pub epoch: Epoch,
    pub next_filesystem_id: u64,
    /// The file system of clients that name none; -1: none.
    pub legacy_client_fscid: i32,
    pub default_compat: CompatSet,
    pub enable_multiple: bool,
    pub filesystems: Vec<Filesystem>,
    pub mds_roles: BTreeMap<u64, i32>,
    pub standby_daemons: BTreeMap<u64, MdsInfo>,
    pub standby_epochs: BTreeMap<u64, Epoch>,
    pub ever_enabled_multiple: bool,
}
denc::envelope_denc!(FsMap, 7, 6, {
    epoch,
    next_filesystem_id,
    legacy_client_fscid,
    default_compat,
    enable_multiple,
    filesystems,
    mds_roles,
    standby_daemons,
    standby_epochs,
    ever_enabled_multiple,
});

impl Default for FsMap {
    /// No file system.
    fn default() -> Self {
        Self {
            epoch: 1,
            next_filesystem_id: 1,
            legacy_client_fscid: -1,
            default_compat: CompatSet::fs_default(),
            enable_multiple: true,
            filesystems: Vec::new(),
            mds_roles: BTreeMap::new(),
            standby_daemons: BTreeMap::new(),
            standby_epochs: BTreeMap::new(),
            ever_enabled_multiple: true,
        }
    }
}

/// Number and name of a file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FsName {
    pub fscid: i32,
    pub name: String,
}
denc::envelope_denc!(FsName, 1, 1, { fscid, name });

/// What clients that only look for names get.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FsMapUser {
    pub epoch: Epoch,
    pub legacy_client_fscid: i32,
    pub filesystems: Vec<FsName>,
}
denc::envelope_denc!(FsMapUser, 1, 1, { epoch, legacy_client_fscid, filesystems });

impl FsMap {
    pub fn by_id(&self, fscid: i32) -> Option<&Filesystem> {
        self.filesystems.iter().find(|fs| fs.fscid == fscid)
    }

    pub fn by_id_mut(&mut self, fscid: i32) -> Option<&mut Filesystem> {
        self.filesystems.iter_mut().find(|fs| fs.fscid == fscid)
    }

    pub fn by_name(&self, name: &str) -> Option<&Filesystem> {
        self.filesystems.iter().find(|fs| fs.mds_map.fs_name == name)
    }

    /// The one of clients that name none.
    pub fn default_fs(&self) -> Option<&Filesystem> {
        self.by_id(self.legacy_client_fscid)
    }

    /// All daemons: those with ranks, then standbys.
    pub fn daemons(&self) -> impl Iterator<Item = &MdsInfo> {
        let with_ranks = self
            .filesystems
            .iter()
            .flat_map(|fs| fs.mds_map.mds_info.values());
        with_ranks.chain(self.standby_daemons.values())
    }

    pub fn info(&self, gid: u64) -> Option<&MdsInfo> {
        self.daemons().find(|i| i.gid == gid)
    }

    /// File systems that use a pool.
    pub fn users_of(&self, pool: PoolId) -> impl Iterator<Item = &Filesystem> {
        self.filesystems
            .iter()
            .filter(move |fs| fs.mds_map.metadata_pool == pool || fs.mds_map.data_pools.contains(&pool))
    }

    pub fn for_users(&self) -> FsMapUser {
        let name_of = |f: &Filesystem| FsName {
            fscid: f.fscid,
            name: f.mds_map.fs_name.clone(),
        };
        FsMapUser {
            epoch: self.epoch,
            legacy_client_fscid: self.legacy_client_fscid,
            filesystems: self.filesystems.iter().map(name_of).collect(),
        }
    }
}
