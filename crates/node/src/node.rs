//! One running node: start in order, serve, stop in reverse order.

use crate::admin::AdminContext;
use crate::supervise;
use crate::{AuthMode, DataDir, Error, FORMAT, KeepFree, Settings, clients};
use auth::{AllowNone, Authenticator, ConMode, Entropy, TicketVerifier};
use io::files::LockFile;
use io::{Clock, Random, SystemClock, SystemRandom, task};
use metastore::cluster::{CreateOptions, create_cluster};
use metastore::{ClusterHandle, Embedded};
use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use tokio::sync::watch;
use types::{EntityAddr, EntityKind, Uuid};

const MON_PORT: u16 = 3300;
const OSDS: u32 = 3;

/// What the command line may say; most of it only at the first start.
#[derive(Debug, Clone, Default)]
pub struct StartOptions {
    pub osds: Option<u32>,
    /// Block devices of OSD 0, 1 and so on; those behind them have files.
    pub devices: Vec<PathBuf>,
    pub bind: Option<IpAddr>,
    pub mon_port: Option<u16>,
    pub auth: Option<AuthMode>,
    pub osd_size: Option<u64>,
    pub osd_memory: Option<u64>,
    pub keep_free: Option<KeepFree>,
    pub disk_io: io::disk::Mode,
}

pub struct Node {
    settings: Settings,
    mon_addr: EntityAddr,
    stop: watch::Sender<bool>,
    osds: Vec<JoinHandle<()>>,
    mon: JoinHandle<Result<(), String>>,
    /// Ends when the monitor's thread did.
    mon_ended: watch::Receiver<bool>,
    dir: DataDir,
    _lock: LockFile,
}

/// What every role is given.
#[derive(Clone)]
struct Platform {
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    hostname: String,
}

impl Platform {
    fn entropy(&self) -> Arc<dyn Entropy> {
        let random = self.random.clone();
        Arc::new(move |buf: &mut [u8]| random.fill(buf))
    }
}

impl Node {
    /// Starts everything; returns when clients are served. `progress` is told what is being waited for.
    pub async fn start(dir: &DataDir, options: StartOptions, progress: &dyn Fn(&str)) -> Result<Self, Error> {
        let lock = dir.lock()?;
        let platform = Platform {
            clock: SystemClock::shared(),
            random: SystemRandom::shared(),
            hostname: io::files::hostname(),
        };
        let settings = settle(dir, &options, &*platform.random)?;
        progress("opening the cluster state");
        let (cluster, verifier_modes) = (
            open_cluster(dir, &settings, &platform).await?,
            vec![ConMode::Secure, ConMode::Crc],
        );
        let mon_addr = EntityAddr::msgr2(SocketAddr::new(settings.bind, settings.mon_port), 0);
        let (stop, stopped) = watch::channel(false);
        let osd_auth = osd_authenticator(&settings, &cluster, verifier_modes, stopped.clone());
        let peers = osd::Peers::default();
        let recipes: Vec<supervise::MakeConfig> = (0..settings.osds as i32)
            .map(|id| {
                osd_config(
                    dir, id, &settings, &cluster, &osd_auth, &peers, &platform, &options,
                )
            })
            .collect::<Result<_, Error>>()?;
        // The monitor comes last: clients that waited for a restart get one map in which all OSDs are up,
        // not the first of many, after which they would ask again only some seconds later.
        let (osds, failed) = start_osds(recipes, &stopped, progress).await?;
        let (asker, asks) = mon::ask::door();
        let started = match failed {
            Some(e) => Err(e),
            None => {
                progress("starting the monitor");
                start_mon(&settings, mon_addr, &cluster, &platform, asks, stopped.clone()).await
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
        clients::write(dir, &settings, mon_addr, &cluster.state().auth)?;
        let node = Self {
            settings,
            mon_addr,
            stop,
            osds,
            mon,
            mon_ended,
            dir: dir.clone(),
            _lock: lock,
        };
        node.open_admin_socket(&cluster, asker)?;
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
            signal = until => signal.map_err(|source| Error::Io { what: "signals".into(), source }),
            _ = mon_ended.wait_for(|e| *e) => Err(Error::Mon("ended by itself".into())),
        }
    }

    /// OSDs first, so that they can leave the map; then the monitor.
    pub async fn stop(self) {
        let _ = self.stop.send(true);
        for thread in self.osds {
            join(thread).await;
        }
        if let Some(Err(e)) = join(self.mon).await {
            tracing::error!("monitor: {e}");
        }
        let _ = io::files::remove(&self.dir.admin_path());
    }

    fn open_admin_socket(&self, cluster: &ClusterHandle, asker: mon::ask::Asker) -> Result<(), Error> {
        let path = self.dir.admin_path();
        let listener = io::admin::bind(&path).map_err(|source| Error::Io {
            what: path.display().to_string(),
            source,
        })?;
        let context = AdminContext {
            dir: self.dir.clone(),
            cluster: cluster.clone(),
            asker,
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

/// The settings of this store: read, or chosen and written at the first start.
fn settle(dir: &DataDir, o: &StartOptions, random: &dyn Random) -> Result<Settings, Error> {
    let Some(mut known) = dir.settings()? else {
        let bind = o.bind.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let auth = o.auth.unwrap_or(AuthMode::Cephx);
        if auth == AuthMode::None && !bind.is_loopback() {
            return Err(Error::Usage(format!(
                "--auth none lets anybody in: refused on {bind}, only on loopback"
            )));
        }
        if bind.is_unspecified() {
            return Err(Error::Usage(format!(
                "clients dial the address they are told: name one, not {bind}"
            )));
        }
        let mon_port = free_port(bind, o.mon_port.unwrap_or(MON_PORT))?;
        let fsid = Uuid::from_random(random.bytes()).to_string();
        let osds = o.osds.unwrap_or(match o.devices.len() {
            0 => OSDS,
            n => n as u32,
        });
        let settings = Settings {
            format: FORMAT,
            fsid,
            auth,
            bind,
            mon_port,
            osds,
            osd_size: o.osd_size,
            osd_memory: o.osd_memory,
            keep_free: o.keep_free,
        };
        dir.write_settings(&settings)?;
        return Ok(settings);
    };
    let old = known.clone();
    let fixed = |what: &str, old: String| {
        Err(Error::Usage(format!(
            "{what} was fixed at the first start: {old}"
        )))
    };
    if o.bind.is_some_and(|b| b != known.bind) {
        return fixed("--bind", known.bind.to_string());
    }
    if o.mon_port.is_some_and(|p| p != 0 && p != known.mon_port) {
        return fixed("--mon-port", known.mon_port.to_string());
    }
    if o.auth.is_some_and(|a| a != known.auth) {
        return fixed("--auth", format!("{:?}", known.auth).to_lowercase());
    }
    if o.osd_size.is_some() && o.osd_size != known.osd_size {
        return fixed(
            "--osd-size",
            known
                .osd_size
                .map_or("what the disk has".into(), |b| b.to_string()),
        );
    }
    if let Some(osds) = o.osds {
        if osds < known.osds {
            return Err(Error::Usage(format!(
                "the store has {} OSDs; taking OSDs away is not built yet (their data would have to move first)",
                known.osds
            )));
        }
        known.osds = osds;
    }
    known.osd_memory = o.osd_memory.or(known.osd_memory);
    known.keep_free = o.keep_free.or(known.keep_free);
    if known != old {
        dir.write_settings(&known)?;
    }
    Ok(known)
}

/// `port`, or a free one for 0. A port in use is reported before anything is written.
fn free_port(bind: IpAddr, port: u16) -> Result<u16, Error> {
    let addr = SocketAddr::new(bind, port);
    let listener = net::Listener::bind(addr).map_err(|source| Error::Listen { addr, source })?;
    Ok(listener
        .local_addr()
        .map_err(|source| Error::Listen { addr, source })?
        .port())
}

async fn open_cluster(
    dir: &DataDir,
    settings: &Settings,
    platform: &Platform,
) -> Result<ClusterHandle, Error> {
    let path = dir.cluster_path();
    io::files::make_dir(&path).map_err(|source| Error::DataDir {
        path: path.clone(),
        source,
    })?;
    let bad = |e: metastore::Error| Error::Cluster(e.to_string());
    let store = Arc::new(Embedded::open(&path.join("state.redb"), platform.clock.clone()).map_err(bad)?);
    let fsid = settings.fsid()?;
    let handle = match ClusterHandle::open(store.clone(), platform.clock.clone())
        .await
        .map_err(bad)?
    {
        Some(handle) => handle,
        None => {
            let addr = EntityAddr::msgr2(SocketAddr::new(settings.bind, settings.mon_port), 0);
            let options = CreateOptions::new(fsid, "a", addr);
            create_cluster(&*store, &options, &*platform.clock, &*platform.random)
                .await
                .map_err(bad)?;
            ClusterHandle::open(store, platform.clock.clone())
                .await
                .map_err(bad)?
                .ok_or_else(|| Error::Cluster("created, but not to be found".into()))?
        }
    };
    let found = handle.state().fsid;
    if found != fsid {
        return Err(Error::Cluster(format!(
            "{} belongs to cluster {found}, not to {fsid}",
            path.display()
        )));
    }
    Ok(handle)
}

/// Starts all OSDs at once and waits for each: their threads, and the first failure.
async fn start_osds(
    recipes: Vec<supervise::MakeConfig>,
    stopped: &watch::Receiver<bool>,
    progress: &dyn Fn(&str),
) -> Result<(Vec<JoinHandle<()>>, Option<Error>), Error> {
    let mut threads = Vec::new();
    let mut firsts = Vec::new();
    for (id, make) in (0i32..).zip(recipes) {
        let (thread, first) = supervise::run(id, make, stopped.clone()).map_err(|source| Error::Io {
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
    asks: mon::ask::Asks,
    stop: watch::Receiver<bool>,
) -> Result<Running, Error> {
    let config = mon::MonConfig {
        name: "a".into(),
        mgr_name: "x".into(),
        addr,
        mgr_bind: SocketAddr::new(settings.bind, 0),
        cephx: settings.auth == AuthMode::Cephx,
        tickets: auth::KeyServerConfig::default(),
        hostname: platform.hostname.clone(),
        cluster: cluster.clone(),
        clock: platform.clock.clone(),
        random: platform.random.clone(),
    };
    let (ready_tx, ready_rx) = tokio::sync::oneshot::channel();
    let (ended_tx, ended) = watch::channel(false);
    let thread = task::spawn_role("mon.a", move || async move {
        let done = mon::serve_asked(config, Some(asks), ready_tx, stop)
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
    let (handle, updated) = (cluster.clone(), verifier.clone());
    let (mut changes, mut stop) = (cluster.subscribe_state(), stop);
    task::spawn_local(async move {
        let mut known = secrets(&handle);
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
        }
    });
    verifier
}

/// Makes the OSD's store if there is none, and the recipe for its runs.
fn osd_config(
    dir: &DataDir,
    id: i32,
    settings: &Settings,
    cluster: &ClusterHandle,
    auth: &Arc<dyn Authenticator>,
    peers: &osd::Peers,
    platform: &Platform,
    start: &StartOptions,
) -> Result<supervise::MakeConfig, Error> {
    let path = dir.osd_path(id);
    let bad = |e: store::Error| Error::Osd {
        id,
        what: e.to_string(),
    };
    let memory = osd::Memory::of(settings.osd_memory.unwrap_or(osd::MEMORY_DEFAULT));
    let mut options = store::Options {
        osd_id: id,
        fsid: settings.fsid()?,
        max_bytes: settings.osd_size,
        disk_io: start.disk_io,
        device: start.devices.get(id as usize).cloned(),
        ..store::Options::for_memory(memory.store)
    };
    if let Some(keep) = settings.keep_free {
        let total = store::host_bytes(dir.root()).map_err(bad)?;
        options.host_reserve_bytes = keep.of(total);
    }
    let known = cluster.osdmap().osd(id).is_some_and(|o| !o.uuid.is_nil());
    if known && io::files::list_dir(&path).is_ok_and(|names| names.is_empty()) {
        // A new store in its place would hide the old one's data, and block putting it back.
        let what = format!(
            "{} is missing or empty, but the cluster knows this OSD: put it back",
            path.display()
        );
        return Err(Error::Osd { id, what });
    }
    let uuid = Uuid::from_random(platform.random.bytes());
    match store::Store::mkfs(
        &path,
        &store::Options {
            osd_uuid: uuid,
            ..options.clone()
        },
    ) {
        Ok(()) => tracing::info!("osd.{id}: new store in {}", path.display()),
        Err(store::Error::AlreadyAStore { .. }) => {
            if let Some(device) = &options.device
                && store::device_of(&path) != io::files::canonical(device).ok()
            {
                let what = format!("its store is there already, and not on {}", device.display());
                return Err(Error::Osd { id, what });
            }
        }
        Err(e) => return Err(bad(e)),
    }
    options.osd_uuid = Uuid::default();
    // Without a size of its own an OSD may grow into all free space of the file system, as may its neighbours.
    let disk_share = if settings.osd_size.is_some() || store::device_of(&path).is_some() {
        1
    } else {
        settings.osds.max(1)
    };
    let (bind, cluster, auth, peers, platform) = (
        SocketAddr::new(settings.bind, 0),
        cluster.clone(),
        auth.clone(),
        peers.clone(),
        platform.clone(),
    );
    Ok(Arc::new(move || osd::Config {
        id,
        dir: path.clone(),
        store: options.clone(),
        bind,
        auth: auth.clone(),
        cluster: cluster.clone(),
        peers: peers.clone(),
        clock: platform.clock.clone(),
        random: platform.random.clone(),
        entropy: platform.entropy(),
        hostname: platform.hostname.clone(),
        nonce: platform.random.u32(),
        disk_share,
        memory,
    }))
}
