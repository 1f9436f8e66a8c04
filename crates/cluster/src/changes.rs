//! What a decision wants changed: at most one OSD map increment, and any number of other facts.
//!
//! All of it is committed together or not at all. Bounds: what fits one transaction of the store.

use crate::files::MdsDaemon;
use crate::pgs::{PgMerge, PgProposal};
use crate::scrubs::ScrubWish;
use crate::state::{ClusterState, HealthMute};
use auth::EntityAuth;
use bytes::Bytes;
use std::collections::BTreeMap;
use types::clusterlog::LogEntry;
use types::fsmap::FsMap;
use types::mgrmap::MgrMap;
use types::monmap::MonMap;
use types::osdmap::Incremental;
use types::{AuthName, EntityAddr, Epoch, OsdId, PoolId, Utime};

/// One changed fact outside the OSD map.
#[derive(Debug, Clone)]
pub enum Change {
    /// `who` with its masks, as `osd/class:ssd`.
    ConfigSet {
        who: String,
        name: String,
        value: String,
    },
    ConfigRm {
        who: String,
        name: String,
    },
    ConfigKeySet {
        key: String,
        value: Bytes,
    },
    ConfigKeyRm {
        key: String,
    },
    AuthPut {
        name: AuthName,
        entity: EntityAuth,
    },
    AuthRm {
        name: AuthName,
    },
    /// Persisted state of the key server (rotating secrets of every service).
    Rotating(Box<auth::ServiceSecrets>),
    /// The epoch is set by the commit.
    MonMap(Box<MonMap>),
    /// The epoch is set by the commit.
    MgrMap(Box<MgrMap>),
    /// The epochs are set by the commit: of the whole, and of each file system that is not as before.
    FsMap(Box<FsMap>),
    /// None: it is no more.
    MdsDaemon {
        gid: u64,
        daemon: Option<MdsDaemon>,
    },
    Mute(HealthMute),
    Unmute {
        code: String,
    },
    /// An operator wants the OSD down, in the life that began in this epoch; None: no more. It says so itself, or its
    /// lease ends: only then is it sure to serve no more.
    AskDown {
        id: OsdId,
        up_from: Option<Epoch>,
    },
    /// Replaces all facts about one OSD; empty removes them.
    OsdMetadata {
        id: OsdId,
        metadata: BTreeMap<String, String>,
    },
    /// The number in the log is set by the commit.
    Log(LogEntry),
    /// A line of the channel `audit`.
    Audit(LogEntry),
    /// Somebody made a self-managed snapshot.
    SnapMade {
        pool: PoolId,
        snap: u64,
        owner: AuthName,
    },
    SnapRemoved {
        pool: PoolId,
        snap: u64,
    },
    GlobalIdLimit(u64),
    /// An entry of the blocklist has fenced these, too; see [`crate::fences`].
    Fence {
        entry: EntityAddr,
        ids: Vec<u64>,
    },
    /// Wishes for PGs of one pool, by seed; None: it was done.
    Scrubs {
        pool: PoolId,
        wishes: Vec<(u32, Option<ScrubWish>)>,
    },
}

#[derive(Debug, Clone, Default)]
pub struct Changes {
    /// Made by [`Incremental::next_after`] the state's map; the commit adds `pg_temp` entries that keep data
    /// reachable, and the checksum.
    pub osdmap: Option<Box<Incremental>>,
    pub list: Vec<Change>,
    /// Configurations that their primaries want changed; only such as the state does not refuse
    /// ([`crate::pgs::PgConfigs::refuses`]).
    pub pgs: Vec<PgProposal>,
    /// PGs that are merged by `osdmap`, at most one of a pool; see [`ClusterState::accept_merge`].
    pub merges: Vec<PgMerge>,
    /// Commit only if these OSDs hold no lease: they surely no longer serve. Otherwise the commit fails.
    pub unleased: Vec<OsdId>,
    /// The same for metadata servers, by gid.
    pub unleased_mds: Vec<u64>,
}

impl Changes {
    pub fn none() -> Self {
        Self::default()
    }
    pub fn one(change: Change) -> Self {
        Self {
            list: vec![change],
            ..Self::default()
        }
    }
    pub fn map(inc: Incremental) -> Self {
        Self {
            osdmap: Some(Box::new(inc)),
            ..Self::default()
        }
    }
    pub fn is_empty(&self) -> bool {
        self.osdmap.is_none() && self.list.is_empty() && self.pgs.is_empty()
    }
    pub fn push(&mut self, change: Change) {
        self.list.push(change);
    }
    /// The OSD map increment being built, begun behind `state`'s map if there is none.
    pub fn inc(&mut self, state: &ClusterState, now: Utime) -> &mut Incremental {
        self.osdmap
            .get_or_insert_with(|| Box::new(Incremental::next_after(&state.osdmap, now)))
    }
}
