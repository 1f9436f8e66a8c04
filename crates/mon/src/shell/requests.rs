//! What a session asks that may change the cluster, who asked and by which route. It is decided by `decisions`.

use crate::commands::command::Command;
use crate::commands::context::{MonInfo, SessionInfo, Target};
use crate::policies::pool_change::PoolError;
use crate::policies::pools::SnapRights;
use crate::policies::progress::Progress;
use bytes::Bytes;
use cluster::ClusterStats;
use io::Random;
use messages::mon::MPoolOp;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use types::clusterlog::LogEntry;
use types::{AuthName, EntityAddr, Errno, Utime};

/// Cluster log entries that one LOG message may add; the rest is not acknowledged and comes again.
pub const LOG_ENTRIES_PER_MESSAGE_MAX: usize = 50;

/// How a command came, and so how it is answered.
#[derive(Debug, Clone)]
pub enum Route {
    /// MON_COMMAND: the answer repeats the request.
    Mon { cmd: Vec<String> },
    /// COMMAND to the monitor.
    Tell,
    /// COMMAND to the manager.
    MgrTell,
    /// MGR_COMMAND.
    Mgr,
}

impl Route {
    pub fn target(&self) -> Target {
        match self {
            Self::Mon { .. } => Target::Mon,
            Self::Tell => Target::TellMon,
            Self::MgrTell | Self::Mgr => Target::Mgr,
        }
    }
}

#[derive(Debug, Clone)]
pub enum Action {
    Command { route: Route, command: Command },
    PoolOp { op: MPoolOp, rights: SnapRights },
    Log { entries: Vec<LogEntry> },
}

/// What somebody had when a request was permitted.
#[derive(Debug, PartialEq, Eq)]
pub struct Rights {
    pub key_epoch: u64,
    pub caps: BTreeMap<String, String>,
}

#[derive(Debug, Clone)]
pub struct Request {
    pub tid: u64,
    pub who: AuthName,
    pub global_id: u64,
    /// It is not carried out when they are others by then. None: no entity's key stands behind the session.
    pub rights: Option<Arc<Rights>>,
    /// What it says its address is, and where its packets come from.
    pub addr: EntityAddr,
    pub sock: SocketAddr,
    pub action: Action,
}

/// What the shell lends to a decision.
pub struct Env<'a> {
    pub now: Utime,
    pub random: &'a dyn Random,
    pub info: &'a MonInfo,
    pub progress: &'a Progress,
    pub stats: &'a ClusterStats,
    pub sessions: &'a [SessionInfo],
}

/// The answer before it is put into a message.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reply {
    /// 0 or a negative errno.
    pub code: i32,
    pub status: String,
    pub data: Bytes,
}

impl Reply {
    pub fn error(errno: Errno, status: impl Into<String>) -> Self {
        Self {
            code: errno.code(),
            status: status.into(),
            data: Bytes::new(),
        }
    }
}

impl From<PoolError> for Reply {
    fn from(e: PoolError) -> Self {
        Self::error(e.errno, e.text)
    }
}
