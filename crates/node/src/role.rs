//! Roles as values: what a node runs is a list of these.
//!
//! A new role is a crate of its own, a file here that implements [`Role`], and one line of [`KINDS`].
//! Not here: when a role is started, and started again (`supervise`).

use crate::monitor::Doors;
use crate::node::Platform;
use crate::settle::StartOptions;
use crate::{DataDir, Error, Settings, monitor, osds};
use io::group::Group;
use metastore::ClusterHandle;
use mon::audit::AuditFile;
use std::future::Future;
use std::pin::Pin;
use std::thread::JoinHandle;
use tokio::sync::{oneshot, watch};

/// The main thread of a run, and how the run ended; None where a panic ended it.
pub(crate) type Running = JoinHandle<Option<Result<(), String>>>;

pub(crate) type Done<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// One server of this process. It can be started again whenever nothing of its last run is left.
pub(crate) trait Role {
    /// As the maps, the log and `skep status` call it: `osd.3`.
    fn name(&self) -> &str;

    /// Begins a run: its main thread is one of `group`, and so are all that it starts. It ends when `stop` turns true, or
    /// with what went wrong. `ready` is told once it serves.
    fn start(
        &self,
        group: &Group,
        ready: oneshot::Sender<()>,
        stop: watch::Receiver<bool>,
    ) -> std::io::Result<Running>;

    /// Turns true when it is to stop: with the node, if it has no reason of its own.
    fn stop(&self, node: &watch::Receiver<bool>) -> watch::Receiver<bool> {
        node.clone()
    }

    /// A run has failed, and nothing of it is left: tells the cluster, where somebody may wait for it.
    fn failed(&self) -> Done<'_> {
        Box::pin(async {})
    }
}

/// What roles are made from.
pub(crate) struct Plan<'a> {
    pub dir: &'a DataDir,
    pub settings: &'a Settings,
    pub options: &'a StartOptions,
    pub cluster: &'a ClusterHandle,
    pub platform: &'a Platform,
    /// Turns true when the node stops.
    pub stopped: &'a watch::Receiver<bool>,
    pub audit: &'a AuditFile,
    /// For questions of this process.
    pub doors: &'a Doors,
}

type Make = fn(&Plan<'_>) -> Result<Vec<Box<dyn Role>>, Error>;

/// Roles of one sort.
pub(crate) struct Kind {
    /// As `--roles` names it.
    pub name: &'static str,
    pub make: Make,
    /// All of them, in a sentence.
    pub all: &'static str,
    /// What it means that they have stopped while the node did not.
    pub stopped: &'static str,
}

pub(crate) const OSD: &str = "osd";
pub(crate) const MON: &str = "mon";

/// In the order of their start. The monitor comes last: clients that waited for a restart get one map in which all OSDs are
/// up, not the first of many, after which they would ask again only some seconds later.
pub(crate) const KINDS: &[Kind] = &[
    Kind {
        name: OSD,
        make: osds::roles,
        all: "the OSDs of this machine",
        stopped: "the OSDs of this machine were removed from the cluster",
    },
    Kind {
        name: MON,
        make: monitor::roles,
        all: "the monitor",
        stopped: "the monitor has stopped",
    },
];

/// Names of all roles of this build, in the order of their start.
pub fn role_names() -> Vec<&'static str> {
    KINDS.iter().map(|k| k.name).collect()
}

/// What `--roles` named, each once, in the order of their start.
pub(crate) fn chosen(names: &[String]) -> Result<Vec<String>, Error> {
    let known = role_names();
    if let Some(other) = names.iter().find(|n| !known.contains(&n.as_str())) {
        return Err(Error::Usage(format!(
            "--roles: {other:?} is none of this program's roles, which are {}",
            known.join(", ")
        )));
    }
    if names.is_empty() {
        return Err(Error::Usage(format!(
            "no role is named: this program has {}",
            known.join(", ")
        )));
    }
    let named = |name: &&str| names.iter().any(|n| n == name);
    Ok(known.into_iter().filter(named).map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_are_chosen_by_name() {
        let check = |said: &[&str], want: Option<&[&str]>| {
            let said: Vec<String> = said.iter().map(|s| s.to_string()).collect();
            let found = chosen(&said).ok();
            let found: Option<Vec<&str>> = found.as_ref().map(|f| f.iter().map(String::as_str).collect());
            assert_eq!(found.as_deref(), want, "{said:?}");
        };
        check(&["mon", "osd", "mon"], Some(&["osd", "mon"]));
        check(&["mon"], Some(&["mon"]));
        check(&["mds"], None);
        check(&["osd", ""], None);
        check(&[], None);
    }
}
