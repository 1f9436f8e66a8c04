//! One running node: starts its roles in order, serves, stops them.
//!
//! The threads that belong to no role (this one, the follower of the cluster state, etcd's, the audit file's) are the node's
//! own: a panic in one of them ends the process, whose roles cannot go on without it.

use crate::admin::AdminContext;
use crate::datadir::{MON, OSD};
use crate::kinds::{self, KINDS};
use crate::monitor;
use crate::platform::Platform;
use crate::role::{MonitorAccess, Plan, Registries, Role};
use crate::supervise::{self, Board, Care, Supervised};
use crate::{
    AuthMode, DataDir, Error, Settings, StartOptions, clients, copies, exporter, osds, state, traces,
};
use auth::ConMode;
use io::files::LockFile;
use io::group::{self, Group};
use io::task;
use metastore::ClusterHandle;
use mon::audit::AuditFile;
use std::future::Future;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use types::{AuthName, EntityAddr, EntityKind};

/// What a stopping node waits for the cluster state before it goes without.
const LEAVE_MAX: Duration = Duration::from_secs(10);
/// What those that leave first get of that.
const LEAVE_FIRST_MAX: Duration = Duration::from_secs(5);
/// What it waits for its roles when it stops because something of it has failed.
const FALL_MAX: Duration = Duration::from_secs(20);
/// And for the thread that follows the cluster state, looked at so often.
const FOLLOWER_ENDS_WITHIN: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_millis(5);

pub struct Node {
    settings: Settings,
    stop: watch::Sender<bool>,
    /// For those that leave first, and they.
    first: watch::Sender<bool>,
    leaving_first: Vec<Supervised>,
    roles: Vec<Supervised>,
    board: Board,
    group: Group,
    following: Following,
    dir: DataDir,
    cluster: ClusterHandle,
    _lock: LockFile,
}

impl Node {
    /// Starts everything; returns when clients are served. `progress` is told what is being waited for.
    pub async fn start(
        dir: &DataDir,
        mut options: StartOptions,
        progress: &dyn Fn(&str),
    ) -> Result<Self, Error> {
        let group = own_group();
        options.roles = kinds::chosen(options.roles.as_deref())?;
        let lock = dir.lock()?;
        dir.tighten()?;
        let mut platform = Platform::system();
        let (mut settings, cluster) = state::open(dir, &options, &platform, progress).await?;
        kinds::chosen(settings.roles.as_deref())?;
        if options.allow_pool_delete {
            state::allow_pool_delete(&cluster).await?;
        }
        if let Some(host) = &settings.host {
            platform.hostname = host.clone();
        }
        check_modes(&settings, &cluster)?;
        if settings.runs(OSD) {
            osds::take_ids(dir, &mut settings, &cluster, &platform).await?;
        }
        let following = Following::start(&cluster)?;
        let (stop, stopped) = watch::channel(false);
        let (first, first_stopped) = watch::channel(false);
        let audit = AuditFile::start(&dir.audit_path()).map_err(|source| Error::Io {
            what: "thread of the audit file".into(),
            source,
        })?;
        let access = MonitorAccess::default();
        let registries = Registries::default();
        let traces = match &options.trace_to {
            Some(to) if settings.runs(OSD) => {
                let host = &platform.hostname;
                Some(traces::start(to, host, &stopped, &registries)?)
            }
            _ => None,
        };
        let plan = Plan {
            dir,
            settings: &settings,
            options: &options,
            cluster: &cluster,
            platform: &platform,
            stopped: &stopped,
            audit: &audit,
            access: &access,
            registries: &registries,
            traces,
        };
        let care = Care {
            cluster: cluster.clone(),
            clock: platform.clock.clone(),
            stopped: stopped.clone(),
            board: Board::default(),
            hostname: platform.hostname.clone(),
            random: platform.random.clone(),
        };
        let cares = (
            &care,
            &Care {
                stopped: first_stopped,
                ..care.clone()
            },
        );
        let (mut roles, mut leaving_first) = (Vec::new(), Vec::new());
        if let Err(e) = start_roles(&plan, cares, (&mut roles, &mut leaving_first), progress).await {
            let _ = first.send(true);
            let _ = stop.send(true);
            roles.append(&mut leaving_first);
            for role in roles {
                role.ended().await;
            }
            return Err(e);
        }
        clients::write(dir, &settings, &cluster.state())?;
        task::spawn_local(clients::keep(dir.clone(), settings.clone(), cluster.clone()));
        if settings.runs(OSD) {
            let ids = settings.osd_ids().into_iter();
            let osd_dirs = ids.map(|id| dir.osd_path(id)).collect();
            task::spawn_local(copies::keep(osd_dirs, cluster.clone()));
        }
        let node = Self {
            settings,
            stop,
            first,
            leaving_first,
            roles,
            board: care.board,
            group,
            following,
            dir: dir.clone(),
            cluster,
            _lock: lock,
        };
        if options.metrics_port != 0 {
            let monitor = node.settings.runs(MON).then(|| access.clone());
            exporter::start(options.metrics_port, monitor, registries.clone());
        }
        if node.settings.runs(MON) {
            let (clock, mgr_name) = (platform.clock.clone(), monitor::mgr_name(&node.settings));
            crate::alarms::start(access.clone(), node.cluster.clone(), clock, mgr_name);
        }
        node.open_admin_socket(access, audit, registries)?;
        Ok(node)
    }

    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Where its monitor listens, if it has one.
    pub fn mon_addr(&self) -> Option<EntityAddr> {
        self.settings.runs(MON).then(|| monitor::addr(&self.settings))
    }

    /// Serves until `until` completes; says what ended it.
    pub async fn serve(
        &mut self,
        until: impl Future<Output = std::io::Result<&'static str>>,
    ) -> Result<&'static str, Error> {
        tokio::select! {
            biased;
            panic = self.group.panicked() => Err(Error::Panicked(panic.to_string())),
            verdict = self.board.verdict(KINDS) => verdict,
            why = self.following.ended() => Err(Error::Cluster(why)),
            signal = until => signal.map_err(|source| Error::Io { what: "signals".into(), source }),
        }
    }

    /// Tells all roles to stop, so that the OSDs can leave the map, and waits for them. A cluster state that is away is not
    /// waited for long: the others find out by the leases' end.
    pub async fn stop(self) {
        let _ = self.first.send(true);
        let cluster = self.cluster.clone();
        task::spawn_local(async move {
            task::sleep(LEAVE_MAX).await;
            cluster.close();
        });
        for role in self.leaving_first {
            // What does not leave in time is cut off from the others.
            let _ = task::timeout(LEAVE_FIRST_MAX, role.ended()).await;
        }
        let _ = self.stop.send(true);
        for role in self.roles {
            role.ended().await;
        }
        self.following.end().await;
        let _ = io::files::remove(&self.dir.admin_path());
    }

    /// Stops after `serve` ended with an error: what still serves leaves in order, if it can within some time.
    pub async fn fall(self) {
        let group = self.group.clone();
        let ended = async {
            self.stop().await;
            group.has_spoken().await;
        };
        if task::timeout(FALL_MAX, ended).await.is_err() {
            tracing::error!("not all roles have stopped within {} s", FALL_MAX.as_secs());
        }
    }

    fn open_admin_socket(
        &self,
        access: MonitorAccess,
        audit: AuditFile,
        registries: Registries,
    ) -> Result<(), Error> {
        let path = self.dir.admin_path();
        let listener = io::admin::bind(&path).map_err(|source| Error::Io {
            what: path.display().to_string(),
            source,
        })?;
        let osds = match self.settings.runs(OSD) {
            true => self.settings.osd_ids(),
            false => Vec::new(),
        };
        let context = AdminContext {
            dir: self.dir.clone(),
            cluster: self.cluster.clone(),
            access,
            audit,
            registries,
            board: self.board.clone(),
            osds,
            mon_addr: self.mon_addr().map(|a| a.to_string()),
            version: env!("CARGO_PKG_VERSION"),
        };
        task::spawn_local(io::admin::serve(listener, move |request| {
            let context = context.clone();
            async move { context.answer(request).await }
        }));
        Ok(())
    }
}

/// Makes the calling thread, and those that its runtime starts, the node's own. Call it before the runtime is made.
pub fn watch_this_thread() {
    own_group();
}

fn own_group() -> Group {
    group::watch_panics();
    Group::current().unwrap_or_else(|| {
        let group = Group::new("node");
        group.adopt();
        group
    })
}

/// Starts the roles that the settings choose, all of a kind at once, and waits for each.
/// Of each pair the second is for those that leave first.
async fn start_roles(
    plan: &Plan<'_>,
    cares: (&Care, &Care),
    running: (&mut Vec<Supervised>, &mut Vec<Supervised>),
    progress: &dyn Fn(&str),
) -> Result<(), Error> {
    for kind in KINDS.iter().filter(|k| plan.settings.runs(k.name)) {
        let (care, running) = match kind.leaves_first {
            true => (cares.1, &mut *running.1),
            false => (cares.0, &mut *running.0),
        };
        let first = running.len();
        let make = |role: Box<dyn Role>| supervise::run(role, kind.name, care.clone());
        running.extend((kind.make)(plan)?.into_iter().map(make));
        for role in &running[first..] {
            progress(&format!("waiting for {}", role.name));
            care.board.started(&role.name).await.map_err(|what| Error::Role {
                name: role.name.clone(),
                what,
            })?;
        }
    }
    Ok(())
}

/// Follows the cluster state for all roles, on a thread of its own: no role has to wait for another's.
struct Following {
    ended: oneshot::Receiver<String>,
    /// Dropped with this, which ends the thread.
    alive: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl Following {
    fn start(cluster: &ClusterHandle) -> Result<Self, Error> {
        let (alive, dropped) = oneshot::channel::<()>();
        let (tell, ended) = oneshot::channel();
        let cluster = cluster.clone();
        let follow = move || async move {
            tokio::select! {
                done = cluster.follow() => {
                    let why = done.map_or_else(|e| e.to_string(), |()| "it is followed no more".into());
                    // The node may be gone.
                    let _ = tell.send(why);
                }
                _ = dropped => {}
            }
        };
        let thread = task::spawn_role("follow", follow).map_err(|source| Error::Io {
            what: "thread that follows the cluster state".into(),
            source,
        })?;
        Ok(Self { ended, alive, thread })
    }

    /// Ends the thread, and waits for it: whoever starts the node again in this process finds the cluster state's file free.
    async fn end(self) {
        drop(self.alive);
        let gone = async {
            while !self.thread.is_finished() {
                task::sleep(LOOK_EVERY).await;
            }
        };
        if task::timeout(FOLLOWER_ENDS_WITHIN, gone).await.is_err() {
            tracing::warn!("the thread that follows the cluster state does not end");
        }
    }

    /// Why it does not follow any more. A panic is told of by its group.
    async fn ended(&mut self) -> String {
        match (&mut self.ended).await {
            Ok(why) => why,
            Err(_) => std::future::pending().await,
        }
    }
}

/// Without authentication there are no keys, so a configuration that demands encryption would let nobody in.
fn check_modes(settings: &Settings, cluster: &ClusterHandle) -> Result<(), Error> {
    if settings.auth == AuthMode::Cephx {
        return Ok(());
    }
    let state = cluster.state();
    for kind in [EntityKind::Mon, EntityKind::Osd] {
        let modes = msgr::Modes::of(kind, |name| state.option(&AuthName::new(kind, ""), name));
        if [&modes.clients, &modes.daemons]
            .iter()
            .any(|m| !m.contains(&ConMode::Crc))
        {
            return Err(Error::Usage(format!(
                "{} of the central configuration demand encryption, and --auth none has no keys for it",
                msgr::Modes::options(kind).join(", ")
            )));
        }
    }
    Ok(())
}
