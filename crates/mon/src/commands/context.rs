//! What a command may see: the cluster's state and reports, the time, who asks, and what this monitor is by itself.

use crate::policies::lag::Stance;
use crate::policies::progress::Progress;
use cluster::{ClusterState, ClusterStats};
use io::Random;
use std::collections::BTreeMap;
use std::sync::Arc;
use types::osdmap::{Incremental, OsdMap};
use types::{AuthName, EntityAddr, OsdId, Utime};

/// By which route the command came; the same table serves all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// MON_COMMAND on a monitor session.
    Mon,
    /// COMMAND (`ceph tell mon.X`) on a monitor session.
    TellMon,
    /// MGR_COMMAND or COMMAND on the manager's port.
    Mgr,
}

/// One live session of the monitor, for `features` and the like.
#[derive(Debug, Clone)]
pub struct SessionInfo {
    pub name: AuthName,
    pub global_id: u64,
    pub addr: EntityAddr,
    /// Where its packets come from.
    pub from: std::net::IpAddr,
    pub features: u64,
}

impl SessionInfo {
    /// As the blocklist sees it; None: no entry keeps it from anything.
    pub fn instance(&self) -> Option<cluster::Instance> {
        use types::EntityKind::{Mon, Osd};
        let instance = cluster::Instance {
            global_id: self.global_id,
            addr: self.addr,
            from: Some(self.from),
        };
        (!matches!(self.name.kind, Mon | Osd)).then_some(instance)
    }
}

/// What the monitor is by itself, outside the shared state.
#[derive(Debug, Clone)]
pub struct MonInfo {
    /// Monitor's name ("a") and rank in the monmap.
    pub name: String,
    pub rank: i32,
    pub mgr_name: String,
    pub hostname: String,
    /// Clients prove who they are; without that nothing can be encrypted.
    pub cephx: bool,
    /// When this process began to serve (wall clock).
    pub started: Utime,
    /// Since when the cluster state lets nothing be changed, if it does not (wall clock).
    pub stalled: Option<Utime>,
    /// Why, where the cluster state knows: its file on this host.
    pub trouble: Option<String>,
    /// For how long the cluster state has not answered.
    pub behind: std::time::Duration,
    /// What this monitor does with clients because of that.
    pub stance: Stance,
    /// Facts for `mon metadata`/`mgr metadata`: hostname, kernel, cpu, mem...
    pub metadata: BTreeMap<String, String>,
    /// What it counts.
    pub registry: metrics::Registry,
    /// What works on images in this process, as it is now.
    pub images: Arc<cluster::rbd_support::Live>,
}

/// Everything a command may look at.
pub struct Context<'a> {
    pub state: &'a ClusterState,
    pub stats: &'a ClusterStats,
    pub now: Utime,
    pub random: &'a dyn Random,
    pub target: Target,
    pub mon: &'a MonInfo,
    /// Healing as this monitor has seen it.
    pub progress: &'a Progress,
    pub sessions: &'a [SessionInfo],
    /// Who asks.
    pub who: &'a AuthName,
    pub addr: EntityAddr,
}

impl Context<'_> {
    pub(crate) fn map(&self) -> &OsdMap {
        &self.state.osdmap
    }

    /// An increment of the OSD map to fill in.
    pub(crate) fn inc(&self) -> Incremental {
        Incremental::next_after(&self.state.osdmap, self.now)
    }

    /// What is known about an OSD beyond the map.
    pub(crate) fn osd_metadata(&self, id: OsdId) -> Option<&BTreeMap<String, String>> {
        self.state.osd_metadata.get(&id)
    }

    pub(crate) fn osd_host(&self, id: OsdId) -> String {
        self.state.osd_host(id).unwrap_or(&self.mon.hostname).to_string()
    }
}
