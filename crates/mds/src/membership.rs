//! What the daemon knows of its place in the cluster, and how it says where it stands. The cluster's state is behind this seam:
//! `node` implements it over the cluster handle, tests over a variable.
//!
//! Invariants that an implementation keeps: a rank belongs to one daemon at a time; before it goes to another the instance before
//! is fenced (its RADOS client is on the blocklist of an OSD map whose epoch is [`Assigned::osd_epoch`]); what [`Membership::report`]
//! was told is durable when it returns, and clients are told of it in this order.

use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;
use tokio::sync::watch;
use types::{EntityAddr, Epoch, PoolId};

pub use types::fsmap::MdsState;

/// A rank of a file system, and what belongs to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assigned {
    pub fscid: i32,
    pub name: String,
    pub rank: i32,
    /// Another holds the rank: this one reads its journal, writes nothing, and takes the rank over when the other is gone.
    pub follows: bool,
    pub incarnation: i32,
    pub metadata_pool: PoolId,
    /// The first is the default.
    pub data_pools: Vec<PoolId>,
    /// True: nothing was ever written for this file system; the daemon makes its root and reports `Creating`, then `Active`.
    /// False: it reports `Replay`, `Reconnect`, `Rejoin`, `Active`.
    pub fresh: bool,
    /// The OSD map that fences the instance before: nothing is read from the pools before it is there. 0: none.
    pub osd_epoch: Epoch,
    /// The map's epoch in which this stands; clients hear it in replies.
    pub epoch: Epoch,
    pub settings: Settings,
}

/// Of the file system (`ceph fs set`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    pub session_timeout: Duration,
    pub session_autoclose: Duration,
    pub max_file_size: u64,
    pub allow_snaps: bool,
    pub refuse_sessions: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            session_timeout: Duration::from_secs(60),
            session_autoclose: Duration::from_secs(300),
            max_file_size: 1 << 40,
            allow_snaps: true,
            refuse_sessions: false,
        }
    }
}

/// How the daemon presents itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Presence {
    /// Where clients find it: with the nonce of this instance.
    pub addr: EntityAddr,
    /// The nonce of its RADOS client, whose addresses are to be fenced before another takes the rank.
    pub rados_nonce: u32,
    pub metadata: BTreeMap<String, String>,
}

/// The place is not ours any more: the daemon stops at once, and may come back as a standby.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the rank is lost: {0}")]
pub struct Lost(pub String);

pub trait Membership {
    /// Becomes a standby, known by this from now on.
    fn boot(&self, presence: Presence) -> impl Future<Output = Result<(), Lost>>;

    /// None: standby. Changes with the map; another rank or incarnation than before means that the daemon has to begin anew. Closed: the map does
    /// not know it any more.
    fn file_system(&self) -> watch::Receiver<Option<Assigned>>;

    /// Durable in the cluster's state, and published, before it returns.
    fn report(&self, state: MdsState) -> impl Future<Output = Result<(), Lost>>;

    /// Until when it may serve, on the monotonic clock: answers leave only before that. The implementation renews it by itself
    /// as long as [`Membership::alive`] is called every second or so.
    fn lease_until(&self) -> Duration;

    /// The loop turns.
    fn alive(&self);

    /// It stops: another may take the rank at once.
    fn leave(&self) -> impl Future<Output = ()>;

    /// Puts a client's instance on the blocklist. Returns the epoch of the OSD map that has it.
    fn fence(&self, client: EntityAddr) -> impl Future<Output = Result<Epoch, Lost>>;
}
