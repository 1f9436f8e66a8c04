//! Daemons that have registered with the manager as parts of a service (`rbd-mirror` and the like): facts for people and
//! tools. What the active manager knows goes into its monitor's report ([`crate::MonReport`]), so that every monitor can
//! show it; a new manager is told all of it by the daemons themselves.

use std::collections::BTreeMap;
use types::{EntityAddrVec, Utime};

/// What a daemon says, by name.
pub type Facts = BTreeMap<String, String>;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServiceDaemon {
    /// The map's epoch with which it came in, and when.
    pub start_epoch: u64,
    pub start_stamp: Utime,
    /// Its global id and addresses.
    pub gid: u64,
    pub addrs: EntityAddrVec,
    pub metadata: Facts,
    pub task_status: Facts,
    pub status: Facts,
    /// When it said `status`.
    pub status_stamp: Utime,
    pub last_beacon: Utime,
}
denc::plain_denc!(ServiceDaemon {
    start_epoch,
    start_stamp,
    gid,
    addrs,
    metadata,
    task_status,
    status,
    status_stamp,
    last_beacon
});

impl ServiceDaemon {
    /// Bytes of what it has said.
    pub fn size(&self) -> usize {
        [&self.metadata, &self.task_status, &self.status]
            .into_iter()
            .flatten()
            .map(|(k, v)| k.len() + v.len())
            .sum()
    }
}

/// Services by name, their daemons by name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServiceMap {
    /// Counts daemons that come and go.
    pub epoch: u64,
    pub modified: Utime,
    pub services: BTreeMap<String, BTreeMap<String, ServiceDaemon>>,
}
denc::plain_denc!(ServiceMap {
    epoch,
    modified,
    services
});
