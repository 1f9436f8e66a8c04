//! The metadata server of a node, as a role: it waits until there is a file system, then it is a standby or holds a rank.

use crate::role::{Plan, Role, Running};
use crate::{AuthMode, Error, monitor};
use auth::{AllowNone, Authenticator, ConMode, Context, CryptoKey, TicketVerifier};
use cluster::ClusterState;
use cluster::files::MdsDaemon;
use io::group::Group;
use io::task;
use mds::membership::{Assigned, Lost, MdsState, Membership, Presence, Settings};
use mds::meters::Meters;
use metastore::ClusterHandle;
use metastore::lease::{Lease, LeaseTimes};
use msgr::{ModeSwitch, Modes};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use types::{AuthName, EntityAddr, EntityKind, Epoch, Errno, Utime};

/// Memory for rows that nobody uses.
const CACHE_BYTES: usize = 256 << 20;
/// Messages and answers under way.
const NET_BYTES: usize = 128 << 20;
const LEASE: LeaseTimes = LeaseTimes {
    ttl: Duration::from_secs(4),
    margin: Duration::from_millis(500),
};
/// Daemons of one process: each has a rank at most.
const DAEMONS_MAX: usize = 16;
/// A daemon that lost its place waits so long before it asks for another.
const AGAIN_AFTER: Duration = Duration::from_millis(500);
/// Gids that JSON readers take as they are.
const GID_MASK: u64 = (1 << 52) - 1;

/// With its key, and how many others there are of the process.
type Recipe = Arc<dyn Fn(Option<CryptoKey>, usize) -> mds::Config + Send + Sync>;

/// Who the metadata servers of this process are to the cluster.
#[derive(Clone)]
struct Identity {
    name: AuthName,
    auth: AuthMode,
}

impl Identity {
    /// Its key, which it is given when it first needs one.
    async fn key(
        &self,
        cluster: &ClusterHandle,
        platform: &crate::platform::Platform,
    ) -> Result<Option<CryptoKey>, Lost> {
        if self.auth == AuthMode::None {
            return Ok(None);
        }
        let entropy = platform.entropy();
        let cx = Context {
            now: Utime::from_unix(platform.clock.wall()),
            entropy: &*entropy,
        };
        let new = cluster::new_entity(&cx, &cluster::MDS_CAPS);
        cluster.daemon_key(&self.name, &new).await.map(Some).map_err(lost)
    }

    /// Turns true with `stop`, and when this key opens nothing new any more.
    fn until(
        &self,
        key: Option<CryptoKey>,
        cluster: ClusterHandle,
        mut stop: watch::Receiver<bool>,
    ) -> watch::Receiver<bool> {
        let (tell, told) = watch::channel(false);
        let name = self.name.clone();
        task::spawn_local(async move {
            tokio::select! {
                _ = stop.wait_for(|s| *s) => {}
                () = cluster.key_replaced(&name, key.as_ref()) => {}
                // The daemon has ended.
                () = tell.closed() => {}
            }
            let _ = tell.send(true);
        });
        told
    }
}

struct MdsRole {
    name: String,
    identity: Identity,
    recipe: Recipe,
    cluster: ClusterHandle,
    platform: crate::platform::Platform,
}

pub(crate) fn roles(plan: &Plan<'_>) -> Result<Vec<Box<dyn Role>>, Error> {
    let name = plan.settings.mon_name();
    let auth = authenticator(plan);
    let (settings, cluster, platform) = (plan.settings.clone(), plan.cluster.clone(), plan.platform.clone());
    let modes = ModeSwitch::new(Modes::default());
    let short = name.clone();
    let identity = Identity {
        name: AuthName::new(EntityKind::Mds, name.clone()),
        auth: settings.auth,
    };
    let entity = identity.name.clone();
    let registries = plan.registries.clone();
    let recipe = move |key, index| {
        let state = cluster.state();
        let name = match index {
            0 => short.clone(),
            n => format!("{short}.{}", n + 1),
        };
        mds::Config {
            meters: Meters::new(&registries.of(&format!("mds.{name}"))),
            name,
            bind: SocketAddr::new(settings.bind, 0),
            nonce: platform.random.u32().max(1),
            hostname: platform.hostname.clone(),
            auth: auth.clone(),
            modes: modes.clone(),
            entropy: platform.entropy(),
            clock: platform.clock.clone(),
            random: platform.random.clone(),
            rados: rados(&settings, &state, &entity, key),
            net: net::Accounts::alone(NET_BYTES),
            cache_bytes: CACHE_BYTES,
        }
    };
    Ok(vec![Box::new(MdsRole {
        name: format!("mds.{name}"),
        identity,
        recipe: Arc::new(recipe),
        cluster: plan.cluster.clone(),
        platform: plan.platform.clone(),
    })])
}

/// The pools' client of this process.
fn rados(
    settings: &crate::Settings,
    state: &ClusterState,
    name: &AuthName,
    key: Option<CryptoKey>,
) -> client::Conf {
    let mut mons: Vec<EntityAddr> = state.monmap.by_rank().map(|m| m.addrs.first()).collect();
    if mons.is_empty() {
        mons.push(monitor::addr(settings));
    }
    client::Conf::new(name.clone(), mons, key)
}

fn authenticator(plan: &Plan<'_>) -> Arc<dyn Authenticator> {
    if plan.settings.auth == AuthMode::None {
        return Arc::new(AllowNone);
    }
    let secrets = |s: &ClusterState| s.rotating.get(EntityKind::Mds).cloned().unwrap_or_default();
    let state = plan.cluster.state();
    let modes = vec![ConMode::Secure, ConMode::Crc];
    let verifier = Arc::new(TicketVerifier::new(EntityKind::Mds, modes, secrets(&state)));
    verifier.set_entities(state.auth.clone(), state.version);
    let (mut states, mut stop, updated) = (
        plan.cluster.subscribe_state(),
        plan.stopped.clone(),
        verifier.clone(),
    );
    task::spawn_local(async move {
        loop {
            tokio::select! {
                _ = stop.wait_for(|s| *s) => return,
                changed = states.changed() => if changed.is_err() { return },
            }
            let state = states.borrow_and_update().clone();
            updated.update(secrets(&state));
            updated.set_entities(state.auth.clone(), state.version);
        }
    });
    verifier
}

impl Role for MdsRole {
    fn name(&self) -> &str {
        &self.name
    }

    fn start(
        &self,
        group: &Group,
        ready: oneshot::Sender<()>,
        stop: watch::Receiver<bool>,
    ) -> std::io::Result<Running> {
        let (recipe, cluster, platform) = (self.recipe.clone(), self.cluster.clone(), self.platform.clone());
        let identity = self.identity.clone();
        task::spawn_group(group, &self.name, move || async move {
            // Without a file system there is nothing to wait for.
            let _ = ready.send(());
            Daemons {
                identity,
                recipe,
                cluster,
                platform,
                stop,
                count: Rc::default(),
            }
            .run()
            .await
        })
    }
}

/// The daemons of one run: as many as there are file systems.
struct Daemons {
    identity: Identity,
    recipe: Recipe,
    cluster: ClusterHandle,
    platform: crate::platform::Platform,
    stop: watch::Receiver<bool>,
    count: Rc<Cell<usize>>,
}

impl Daemons {
    async fn run(self) -> Result<(), String> {
        let mut states = self.cluster.subscribe_state();
        let mut stop = self.stop.clone();
        let (tell, mut failed) = mpsc::channel(DAEMONS_MAX);
        let mut running: BTreeMap<usize, task::TaskHandle<()>> = BTreeMap::new();
        loop {
            let wanted = states.borrow_and_update().fsmap.filesystems.len();
            running.retain(|_, daemon| !daemon.is_finished());
            while running.len() < wanted.min(DAEMONS_MAX)
                && let Some(index) = (0..DAEMONS_MAX).find(|i| !running.contains_key(i))
            {
                running.insert(index, self.spawn(index, tell.clone()));
                self.count.set(self.count.get() + 1);
            }
            tokio::select! {
                biased;
                _ = stop.wait_for(|s| *s) => break,
                Some(why) = failed.recv() => return Err(why),
                changed = states.changed() => changed.map_err(|_| "the cluster's state has ended".to_string())?,
            }
        }
        for (_, daemon) in running {
            // What it had to say it has told.
            let _ = daemon.await;
        }
        Ok(())
    }

    /// Serves until the node stops, or until a file system that it served is gone. One that has lost its rank comes back as a standby, another daemon as far as anybody knows.
    fn spawn(&self, index: usize, tell: mpsc::Sender<String>) -> task::TaskHandle<()> {
        let (recipe, cluster, platform) = (self.recipe.clone(), self.cluster.clone(), self.platform.clone());
        let (mut stop, count) = (self.stop.clone(), self.count.clone());
        let identity = self.identity.clone();
        task::spawn_local(async move {
            while !*stop.borrow() {
                let served = match identity.key(&cluster, &platform).await {
                    Ok(key) => {
                        let until = identity.until(key.clone(), cluster.clone(), stop.clone());
                        let config = recipe(key, index);
                        let (up, _) = oneshot::channel();
                        let gid = platform.random.u64() & GID_MASK;
                        let place =
                            Place::new(gid, config.name.clone(), cluster.clone(), platform.clock.clone());
                        mds::serve(config, place, up, until).await
                    }
                    Err(lost) => Err(lost.into()),
                };
                match served {
                    Ok(()) if *stop.borrow() => return,
                    Ok(()) => {
                        tracing::info!(
                            "metadata server: {} has another key; beginning anew",
                            identity.name
                        );
                    }
                    Err(mds::Error::Lost(_)) if count.get() > cluster.state().fsmap.filesystems.len() => {
                        count.set(count.get() - 1);
                        return;
                    }
                    Err(mds::Error::Lost(why)) => tracing::warn!("metadata server: {why}; beginning anew"),
                    // A monitor that does not know its key yet.
                    Err(mds::Error::Rados(e)) if e.errno() == Errno::EACCES => {
                        tracing::warn!("metadata server: {e}; beginning anew");
                    }
                    // The rank is marked so; this daemon goes on as a standby.
                    Err(e @ mds::Error::Damaged { .. }) => tracing::error!("metadata server: {e}"),
                    Err(e) => {
                        // The run ends by it; if it has ended already nobody is left to be told.
                        let _ = tell.send(e.to_string()).await;
                        return;
                    }
                }
                tokio::select! {
                    _ = stop.wait_for(|s| *s) => return,
                    () = task::sleep(AGAIN_AFTER) => {}
                }
            }
        })
    }
}

/// Its place, as the cluster's state has it.
struct Place {
    gid: u64,
    name: String,
    cluster: ClusterHandle,
    clock: Arc<dyn io::Clock>,
    lease: RefCell<Option<Lease>>,
}

impl Place {
    fn new(gid: u64, name: String, cluster: ClusterHandle, clock: Arc<dyn io::Clock>) -> Self {
        Self {
            gid,
            name,
            cluster,
            clock,
            lease: RefCell::new(None),
        }
    }
}

fn lost(why: impl ToString) -> Lost {
    Lost(why.to_string())
}

/// What the map says of a daemon.
fn assigned(state: &ClusterState, gid: u64) -> Option<Assigned> {
    let fs = state
        .fsmap
        .filesystems
        .iter()
        .find(|fs| fs.mds_map.mds_info.contains_key(&gid))?;
    let map = &fs.mds_map;
    let info = map.mds_info.get(&gid)?;
    let follows = info.state == MdsState::StandbyReplay;
    if !follows && map.up.get(&info.rank) != Some(&gid) {
        // Whatever it is there for, the rank is not its own.
        return None;
    }
    Some(Assigned {
        fscid: fs.fscid,
        name: map.fs_name.clone(),
        rank: info.rank,
        follows,
        incarnation: info.incarnation,
        metadata_pool: map.metadata_pool,
        data_pools: map.data_pools.clone(),
        fresh: info.state == MdsState::Creating,
        osd_epoch: map.last_failure_osd_epoch,
        epoch: map.epoch,
        settings: Settings {
            session_timeout: Duration::from_secs(map.session_timeout.into()),
            session_autoclose: Duration::from_secs(map.session_autoclose.into()),
            max_file_size: map.max_file_size,
            allow_snaps: map.flags & types::fsmap::mds_flag::ALLOW_SNAPS != 0,
            refuse_sessions: map.flags & types::fsmap::mds_flag::REFUSE_CLIENT_SESSION != 0,
        },
    })
}

impl Membership for Place {
    async fn boot(&self, presence: Presence) -> Result<(), Lost> {
        let lease = self
            .cluster
            .mds_lease(self.gid, &self.name, LEASE)
            .await
            .map_err(lost)?;
        *self.lease.borrow_mut() = Some(lease);
        let mut rados = presence.addr;
        if let Some(sock) = &mut rados.sock {
            sock.set_port(0);
        }
        rados.nonce = presence.rados_nonce;
        let daemon = MdsDaemon {
            rados,
            metadata: presence.metadata,
        };
        let booted = self
            .cluster
            .mds_boot(self.gid, &self.name, presence.addr, &daemon)
            .await;
        booted.map_err(lost)?.map_err(Lost)
    }

    fn file_system(&self) -> watch::Receiver<Option<Assigned>> {
        let mut states = self.cluster.subscribe_state();
        let gid = self.gid;
        let first = assigned(&states.borrow_and_update(), gid);
        let (tell, told) = watch::channel(first);
        task::spawn_local(async move {
            loop {
                let (known, now) = {
                    let state = states.borrow_and_update();
                    (state.fsmap.info(gid).is_some(), assigned(&state, gid))
                };
                if !known {
                    // It was failed, or another took its name: it hears that by the end of this.
                    return;
                }
                let changed = tell.send_if_modified(|was| {
                    let changed = *was != now;
                    *was = now;
                    changed
                });
                if changed && tell.is_closed() || states.changed().await.is_err() {
                    return;
                }
            }
        });
        told
    }

    async fn report(&self, state: MdsState) -> Result<(), Lost> {
        let said = self.cluster.mds_report(self.gid, state).await;
        said.map_err(lost)?.map_err(Lost)
    }

    fn lease_until(&self) -> Duration {
        let lease = self.lease.borrow();
        lease.as_ref().map_or(Duration::ZERO, Lease::valid_until)
    }

    fn alive(&self) {
        if let Some(lease) = &*self.lease.borrow() {
            lease.touch();
        }
        let _ = &self.clock;
    }

    async fn fence(&self, client: EntityAddr) -> Result<Epoch, Lost> {
        self.cluster.fence_client(client).await.map_err(lost)
    }

    async fn leave(&self) {
        if let Err(e) = self.cluster.mds_leave(self.gid).await {
            tracing::warn!("mds.{}: its lease is left to end by itself: {e}", self.name);
        }
    }
}
