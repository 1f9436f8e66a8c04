//! The monitor of a node, as a role.

use crate::role::{Done, MonitorAccess, Plan, Role, Running};
use crate::{AuthMode, Error, Settings};
use io::group::Group;
use io::task;
use mon::audit::AuditFile;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot, watch};
use types::EntityAddr;

struct MonRole {
    name: String,
    config: mon::MonConfig,
    audit: AuditFile,
    access: MonitorAccess,
}

pub(crate) fn roles(plan: &Plan<'_>) -> Result<Vec<Box<dyn Role>>, Error> {
    let config = config(plan);
    Ok(vec![Box::new(MonRole {
        name: format!("mon.{}", config.name),
        config,
        audit: plan.audit.clone(),
        access: plan.access.clone(),
    })])
}

/// Where the monitor listens.
pub(crate) fn addr(settings: &Settings) -> EntityAddr {
    EntityAddr::msgr2(SocketAddr::new(settings.bind, settings.mon_port), 0)
}

/// How messenger v1 is offered beside.
pub(crate) fn msgr1(plan: &Plan<'_>) -> Option<net::Msgr1> {
    let first = plan.options.msgr1_first;
    plan.settings.msgr1_port().map(|port| net::Msgr1 { port, first })
}

/// The name of the manager front.
pub(crate) fn mgr_name(settings: &Settings) -> String {
    match settings.etcd {
        Some(_) => settings.mon_name(),
        None => "x".into(),
    }
}

fn config(plan: &Plan<'_>) -> mon::MonConfig {
    let (settings, cluster, platform) = (plan.settings, plan.cluster, plan.platform);
    let name = settings.mon_name();
    mon::MonConfig {
        registry: plan.registries.of(&format!("mon.{name}")),
        mgr_name: mgr_name(settings),
        name,
        addr: addr(settings),
        mgr_bind: SocketAddr::new(settings.bind, 0),
        msgr1: msgr1(plan),
        cephx: settings.auth == AuthMode::Cephx,
        tickets: auth::KeyServerConfig::default(),
        hostname: platform.hostname.clone(),
        connections_max: platform.connections_max(settings),
        cluster: cluster.clone(),
        clock: platform.clock.clone(),
        random: platform.random.clone(),
    }
}

impl Role for MonRole {
    fn name(&self) -> &str {
        &self.name
    }

    fn start(
        &self,
        group: &Group,
        ready: oneshot::Sender<()>,
        stop: watch::Receiver<bool>,
    ) -> std::io::Result<Running> {
        let (asker, asks) = mon::ask::channel();
        self.access.set(asker);
        let config = self.config.clone();
        let (live, seen) = watch::channel(Arc::default());
        let (lookups, wanted) = mpsc::channel(rbd_support::LOOKUPS_MAX);
        let (ask_volumes, volume_asks) = mpsc::channel(cluster::volumes::ASKS_MAX);
        let inside = mon::Inside {
            asks: Some(asks),
            audit: Some(self.audit.clone()),
            images: Some(mon::Images { live: seen, lookups }),
            volumes: Some(ask_volumes),
        };
        let images = rbd_support::Config {
            cluster: config.cluster.clone(),
            clock: config.clock.clone(),
            random: config.random.clone(),
            entropy: net::entropy(config.random.clone()),
            mgr_name: config.mgr_name.clone(),
            cephx: config.cephx,
        };
        let volumes = images.clone();
        task::spawn_group(group, &self.name, move || async move {
            // It ends with the monitor, which alone can ask it.
            let work = move || rbd_support::run(images, live, wanted);
            let work_on_volumes = move || volumes::run(volumes, volume_asks);
            let beside = [
                task::spawn_beside("images", work).map_err(|e| e.to_string())?,
                task::spawn_beside("volumes", work_on_volumes).map_err(|e| e.to_string())?,
            ];
            let (up, told) = oneshot::channel();
            task::spawn_local(async move {
                if told.await.is_ok() {
                    let _ = ready.send(());
                }
            });
            let done = mon::serve_inside(config, inside, up, stop).await;
            drop(beside);
            done.map_err(|e| e.to_string())
        })
    }

    /// The others shall not take it for one that serves, and its next run says anew where it listens.
    fn failed(&self) -> Done<'_> {
        Box::pin(async {
            if let Err(e) = self.config.cluster.mon_gone(&self.config.name).await {
                tracing::warn!("{}: its lease is left to end by itself: {e}", self.name);
            }
        })
    }
}
