//! One running node: start in order, serve, stop in reverse order.

use crate::admin::AdminContext;
use crate::supervise;
use crate::{AuthMode, DataDir, Error, Settings, StartOptions, clients, copies, osds, state};
use auth::{AllowNone, Authenticator, ConMode, Entropy, TicketVerifier};
use io::files::LockFile;
use io::{Clock, Random, SystemClock, SystemRandom, task};
use metastore::ClusterHandle;
use mon::audit::AuditFile;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::watch;
use types::{AuthName, EntityAddr, EntityKind};

/// What a stopping node waits for the cluster state before it goes without.
const LEAVE_MAX: Duration = Duration::from_secs(10);

/// Time between two looks whether the OSDs have ended.
const LOOK_EVERY: Duration = Duration::from_millis(500);

pub struct Node {
    settings: Settings,
    mon_addr: EntityAddr,
    stop: watch::Sender<bool>,
    osds: Vec<JoinHandle<()>>,
    mon: JoinHandle<Result<(), String>>,
    /// Ends when the monitor's thread did.
    mon_ended: watch::Receiver<bool>,
    dir: DataDir,
    cluster: ClusterHandle,
    _lock: LockFile,
}

/// What every role is given.
#[derive(Clone)]
pub(crate) struct Platform {
    pub clock: Arc<dyn Clock>,
    pub random: Arc<dyn Random>,
    pub hostname: String,
    /// Descriptors that this process may have.
    pub descriptors: u64,
}

/// Descriptors of each OSD and of everything else, apart from connections of clients.
const OWN_DESCRIPTORS: u64 = 256;
/// Connections of each listener, however few descriptors there are.
const CONNECTIONS_MIN: u64 = 128;

impl Platform {
    pub fn system() -> Self {
        Self {
            clock: SystemClock::shared(),
            random: SystemRandom::shared(),
            hostname: io::files::hostname(),
            descriptors: io::socket::raise_descriptors(),
        }
    }

    /// Connections of each listener: of the OSDs, the monitor and the manager.
    pub fn connections_max(&self, settings: &Settings) -> usize {
        let listeners = u64::from(settings.osds) + 2;
        let fair = (self.descriptors / listeners).saturating_sub(OWN_DESCRIPTORS);
        let most = fair.clamp(CONNECTIONS_MIN, net::CONNECTIONS_MAX as u64);
        if most < 1024 {
            tracing::warn!(
                "{} descriptors are allowed (ulimit -n): at most {most} connections to each OSD and monitor",
                self.descriptors
            );
        }
        most as usize
    }

    pub fn entropy(&self) -> Arc<dyn Entropy> {
        let random = self.random.clone();
        Arc::new(move |buf: &mut [u8]| random.fill(buf))
    }
}

impl Node {
    /// Starts everything; returns when clients are served. `progress` is told what is being waited for.
    pub async fn start(dir: &DataDir, options: StartOptions, progress: &dyn Fn(&str)) -> Result<Self, Error> {
        let lock = dir.lock()?;
        dir.tighten()?;
        let mut platform = Platform::system();
        let (mut settings, cluster) = state::open(dir, &options, &platform, progress).await?;
        if options.allow_pool_delete {
            state::allow_pool_delete(&cluster).await?;
        }
        if let Some(host) = &settings.host {
            platform.hostname = host.clone();
        }
        check_modes(&settings, &cluster)?;
        osds::take_ids(dir, &mut settings, &cluster, &platform).await?;
        let verifier_modes = vec![ConMode::Secure, ConMode::Crc];
        let mon_addr = EntityAddr::msgr2(SocketAddr::new(settings.bind, settings.mon_port), 0);
        let (stop, stopped) = watch::channel(false);
        let osd_auth = osd_authenticator(&settings, &cluster, verifier_modes, stopped.clone());
        let peers = osd::Peers::default();
        let recipes: Vec<(i32, supervise::MakeConfig)> = osds::places(&settings)
            .map(|(index, id)| {
                let made = osds::osd_config(
                    dir, index, &settings, &cluster, &osd_auth, &peers, &platform, &options,
                );
                made.map(|recipe| (id, recipe))
            })
            .collect::<Result<_, Error>>()?;
        // The monitor comes last: clients that waited for a restart get one map in which all OSDs are up,
        // not the first of many, after which they would ask again only some seconds later.
        let (osds, failed) = start_osds(&cluster, recipes, &stopped, progress).await?;
        let (asker, asks) = mon::ask::door();
        let audit = AuditFile::start(&dir.audit_path()).map_err(|source| Error::Io {
            what: "thread of the audit file".into(),
            source,
        })?;
        let inside = mon::Inside {
            asks: Some(asks),
            audit: Some(audit.clone()),
        };
        let started = match failed {
            Some(e) => Err(e),
            None => {
                progress("starting the monitor");
                start_mon(&settings, mon_addr, &cluster, &platform, inside, stopped.clone()).await
            }
        };
        let (mon, mon_ended) = match started {
            Ok(running) => running,
            Err(e) => {
                let _ = stop.send(true);
                for thread in osds {
                    join(thread).await;
                }
                return Err(e);
            }
        };
        clients::write(dir, &settings, &cluster.state())?;
        task::spawn_local(clients::keep(dir.clone(), settings.clone(), cluster.clone()));
        let osd_dirs = settings
            .osd_ids()
            .into_iter()
            .map(|id| dir.osd_path(id))
            .collect();
        task::spawn_local(copies::keep(osd_dirs, cluster.clone()));
        let node = Self {
            settings,
            mon_addr,
            stop,
            osds,
            mon,
            mon_ended,
            dir: dir.clone(),
            cluster,
            _lock: lock,
        };
        node.open_admin_socket(asker, audit)?;
        Ok(node)
    }

    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    pub fn mon_addr(&self) -> EntityAddr {
        self.mon_addr
    }

    /// Serves until `until` completes; says what ended it.
    pub async fn serve(
        &self,
        until: impl Future<Output = std::io::Result<&'static str>>,
    ) -> Result<&'static str, Error> {
        let mut mon_ended = self.mon_ended.clone();
        tokio::select! {
            () = self.all_removed() => Ok("the OSDs of this machine were removed from the cluster"),
            signal = until => signal.map_err(|source| Error::Io { what: "signals".into(), source }),
            _ = mon_ended.wait_for(|e| *e) => Err(Error::Mon("ended by itself".into())),
        }
    }

    /// Waits until no OSD runs any more: each ends by itself once it is removed from the cluster.
    async fn all_removed(&self) {
        while !self.osds.iter().all(JoinHandle::is_finished) {
            task::sleep(LOOK_EVERY).await;
        }
    }

    /// OSDs first, so that they can leave the map; then the monitor. A cluster state that is away is not waited for
    /// long: the others find out by the leases' end.
    pub async fn stop(self) {
        let _ = self.stop.send(true);
        let cluster = self.cluster.clone();
        task::spawn_local(async move {
            task::sleep(LEAVE_MAX).await;
            cluster.close();
        });
        for thread in self.osds {
            join(thread).await;
        }
        if let Some(Err(e)) = join(self.mon).await {
            tracing::error!("monitor: {e}");
        }
        let _ = io::files::remove(&self.dir.admin_path());
    }

    fn open_admin_socket(&self, asker: mon::ask::Asker, audit: AuditFile) -> Result<(), Error> {
        let path = self.dir.admin_path();
        let listener = io::admin::bind(&path).map_err(|source| Error::Io {
            what: path.display().to_string(),
            source,
        })?;
        let context = AdminContext {
            dir: self.dir.clone(),
            cluster: self.cluster.clone(),
            asker,
            audit,
            osds: self.settings.osd_ids(),
            mon_addr: self.mon_addr.to_string(),
            version: env!("CARGO_PKG_VERSION"),
        };
        task::spawn_local(io::admin::serve(listener, move |request| {
            let context = context.clone();
            async move { context.answer(request).await }
        }));
        Ok(())
    }
}

/// Waits for a thread without blocking this one.
async fn join<T: Send + 'static>(thread: JoinHandle<T>) -> Option<T> {
    while !thread.is_finished() {
        task::sleep(std::time::Duration::from_millis(5)).await;
    }
    thread.join().ok()
}

/// Starts all OSDs at once and waits for each: their threads, and the first failure.
async fn start_osds(
    cluster: &ClusterHandle,
    recipes: Vec<(i32, supervise::MakeConfig)>,
    stopped: &watch::Receiver<bool>,
    progress: &dyn Fn(&str),
) -> Result<(Vec<JoinHandle<()>>, Option<Error>), Error> {
    let mut threads = Vec::new();
    let mut firsts = Vec::new();
    for (id, make) in recipes {
        let stop = osds::stop_of(id, cluster, stopped);
        let (thread, first) = supervise::run(id, make, stop).map_err(|source| Error::Io {
            what: format!("thread of osd.{id}"),
            source,
        })?;
        threads.push(thread);
        firsts.push((id, first));
    }
    for (id, first) in firsts {
        progress(&format!("waiting for osd.{id}"));
        let what = match first.await {
            Ok(Ok(_)) => continue,
            Ok(Err(what)) => what,
            Err(_) => "ended without a word".to_string(),
        };
        return Ok((threads, Some(Error::Osd { id, what })));
    }
    Ok((threads, None))
}

/// A running monitor: its thread, and a flag that turns true when it has ended.
type Running = (JoinHandle<Result<(), String>>, watch::Receiver<bool>);

async fn start_mon(
    settings: &Settings,
    addr: EntityAddr,
    cluster: &ClusterHandle,
    platform: &Platform,
    inside: mon::Inside,
    stop: watch::Receiver<bool>,
) -> Result<Running, Error> {
    let name = settings.mon_name();
    let config = mon::MonConfig {
        mgr_name: match settings.etcd {
            Some(_) => name.clone(),
            None => "x".into(),
        },
        name: name.clone(),
        addr,
        mgr_bind: SocketAddr::new(settings.bind, 0),
        cephx: settings.auth == AuthMode::Cephx,
        tickets: auth::KeyServerConfig::default(),
        hostname: platform.hostname.clone(),
        connections_max: platform.connections_max(settings),
        cluster: cluster.clone(),
        clock: platform.clock.clone(),
        random: platform.random.clone(),
    };
    let (ready_tx, ready_rx) = tokio::sync::oneshot::channel();
    let (ended_tx, ended) = watch::channel(false);
    let thread = task::spawn_role(&format!("mon.{name}"), move || async move {
        let done = mon::serve_inside(config, inside, ready_tx, stop)
            .await
            .map_err(|e| e.to_string());
        let _ = ended_tx.send(true);
        done
    })
    .map_err(|source| Error::Io {
        what: "thread of the monitor".into(),
        source,
    })?;
    if ready_rx.await.is_err() {
        return Err(Error::Mon(match join(thread).await {
            Some(Err(e)) => e,
            _ => "ended before it was ready".into(),
        }));
    }
    Ok((thread, ended))
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

/// Checks clients' tickets with the secrets that the cluster state holds now and later.
fn osd_authenticator(
    settings: &Settings,
    cluster: &ClusterHandle,
    modes: Vec<ConMode>,
    stop: watch::Receiver<bool>,
) -> Arc<dyn Authenticator> {
    if settings.auth == AuthMode::None {
        return Arc::new(AllowNone);
    }
    let secrets = |c: &ClusterHandle| {
        c.state()
            .rotating
            .get(EntityKind::Osd)
            .cloned()
            .unwrap_or_default()
    };
    let verifier = Arc::new(TicketVerifier::new(EntityKind::Osd, modes, secrets(cluster)));
    let state = cluster.state();
    verifier.set_entities(state.auth.clone(), state.version);
    let (handle, updated) = (cluster.clone(), verifier.clone());
    let (mut changes, mut stop) = (cluster.subscribe_state(), stop);
    task::spawn_local(async move {
        let mut known = secrets(&handle);
        let mut entities = state.auth.clone();
        loop {
            tokio::select! {
                _ = stop.wait_for(|s| *s) => return,
                changed = changes.changed() => if changed.is_err() { return },
            }
            let now = secrets(&handle);
            if now != known {
                updated.update(now.clone());
                known = now;
            }
            let state = handle.state();
            if !Arc::ptr_eq(&entities, &state.auth) {
                entities = state.auth.clone();
                updated.set_entities(entities.clone(), state.version);
            }
        }
    });
    verifier
}
