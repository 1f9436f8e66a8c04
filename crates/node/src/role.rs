//! Roles as values: what a node runs is a list of these.
//!
//! A new role is a crate of its own, a file here that implements [`Role`], and one line of `kinds::KINDS`.
//! Not here: when a role is started, and started again (`supervise`).

use crate::platform::Platform;
use crate::settle::StartOptions;
use crate::{DataDir, Settings};
use io::group::Group;
use io::task::Main;
use metastore::ClusterHandle;
use metrics::{Registry, Value};
use mon::ask::Asker;
use mon::audit::AuditFile;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{oneshot, watch};

/// The main future of a run, and how the run ended.
pub(crate) type Running = Main<Result<(), String>>;

pub(crate) type Done<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// One server of this process. It can be started again whenever nothing of its last run is left.
pub(crate) trait Role {
    /// As the maps, the log and `skep status` call it: `osd.3`.
    fn name(&self) -> &str;

    /// Begins a run: its main future is one of `group`, and so is all that it starts. It ends when `stop` turns true, or
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
    pub access: &'a MonitorAccess,
    /// Where roles show what they count.
    pub registries: &'a Registries,
    /// Where OSDs tell of operations.
    pub traces: Option<osd::Traces>,
}

/// What the roles of this process count, by the names of the roles. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Registries(Arc<Mutex<BTreeMap<String, Registry>>>);

impl Registries {
    /// The registry of a role, over all its runs.
    pub fn of(&self, role: &str) -> Registry {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.entry(role.to_string()).or_default().clone()
    }

    /// A registry that was made elsewhere, under this name.
    pub fn show(&self, role: &str, registry: Registry) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(role.to_string(), registry);
    }

    /// The sum of one number over all roles.
    pub fn sum(&self, logger: &str, counter: &str) -> u64 {
        let mut sum = 0;
        for registry in self.all().values() {
            registry.visit(&mut |of, spec, value| {
                if let Value::Number(n) = value
                    && of == logger
                    && spec.name == counter
                {
                    sum += n;
                }
            });
        }
        sum
    }

    pub fn all(&self) -> BTreeMap<String, Registry> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Where this process puts questions to its monitor: to the run that serves now.
#[derive(Debug, Clone, Default)]
pub(crate) struct MonitorAccess(Arc<Mutex<Option<Asker>>>);

impl MonitorAccess {
    pub fn set(&self, asker: Asker) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(asker);
    }

    /// None: no monitor runs here.
    pub async fn ask(&self, command: String) -> Option<mon::ask::Answer> {
        let asker = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        asker?.ask(command).await
    }
}
