//! The shell: sockets and timers round the monitor's and the manager's state machines.
//!
//! One task waits for the next event (`select`), then applies it; a change of the cluster is committed before
//! the next event is taken, so requests are decided in the order in which they came. Runs in a `LocalSet` of
//! the thread that owns the monitor.
//!
//! Bounds: connections, bytes and messages in flight are the messenger's (`net`); [`EVENTS_MAX`] events wait.

use crate::ask::{self, Ask, Asks};
use crate::auto_out::DownWatch;
use crate::commands::MonInfo;
use crate::manager::Manager;
use crate::monitor::{Effect, MessageEnv, Monitor};
use crate::requests::{Reply, Request};
use crate::upkeep::{self, Silence};
use auth::{
    AllowNone, AuthMethod, Authenticator, ConMode, Entropy, KeyServer, KeyServerConfig, TicketVerifier,
};
use io::{Clock, Random};
use metastore::{Change, Changes, ClusterHandle, ClusterState, ClusterStats, MonReport};
use msgr::{Message, ServerConfig};
use net::{ConnId, Connections, Listener, NetEvent, Options};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use types::mgrmap::{MgrMap, Standby};
use types::{EntityAddr, EntityAddrVec, EntityKind, EntityName, Errno, Utime};

/// Events of the messenger that may wait for the monitor.
const EVENTS_MAX: usize = 256;
const TICK: Duration = Duration::from_secs(1);
/// Global ids taken from the cluster state at once, and how few may be left before more are taken.
const GLOBAL_IDS_PER_RANGE: u64 = 10_000;
const GLOBAL_IDS_LOW: u64 = 5_000;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("monitor cannot listen on {addr}: {source}")]
    Bind {
        addr: SocketAddr,
        source: std::io::Error,
    },
    #[error("the monitor's address names no socket")]
    NoAddress,
    #[error(transparent)]
    Cluster(#[from] metastore::Error),
    #[error("the messenger of the {0} ended")]
    Net(&'static str),
}

/// What one monitor, with the manager beside it, is given.
#[derive(Clone)]
pub struct MonConfig {
    pub name: String,
    pub mgr_name: String,
    /// Where clients find the monitor: in their configuration and in the monitor map. The nonce is 0.
    pub addr: EntityAddr,
    /// Where the manager listens; port 0 takes a free one.
    pub mgr_bind: SocketAddr,
    /// False: everybody may everything. Only ever by an explicit option, and on loopback.
    pub cephx: bool,
    /// Connection modes allowed with cephx, and lifetimes of tickets (short ones in tests); methods are set
    /// from `cephx`.
    pub tickets: KeyServerConfig,
    pub hostname: String,
    pub cluster: ClusterHandle,
    pub clock: Arc<dyn Clock>,
    pub random: Arc<dyn Random>,
}

/// Where a monitor that is ready serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ready {
    pub mon: SocketAddr,
    pub mgr: SocketAddr,
}

/// Which of the two front doors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Port {
    Mon,
    Mgr,
}

enum Event {
    Net(Port, NetEvent),
    State,
    Stats,
    Tick,
    Ask(Ask),
    Followed(Result<(), metastore::Error>),
    Stop,
}

struct Front {
    events: mpsc::Receiver<NetEvent>,
    connections: Connections,
}

/// A monitor that listens and is named in the maps.
pub struct MonServer {
    cluster: ClusterHandle,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    entropy: Arc<dyn Entropy>,
    keys: Arc<KeyServer>,
    /// Opens tickets at the manager's door; none without cephx.
    verifier: Option<Arc<TicketVerifier>>,
    monitor: Monitor,
    manager: Manager,
    mon: Front,
    mgr: Front,
    silence: Silence,
    down: DownWatch,
    /// What this monitor says of itself to the others.
    report: MonReport,
    asks: Option<Asks>,
    at: Ready,
}

/// Binds, publishes, says that it is ready, and serves until `stop` becomes true. Must run in a `LocalSet`.
pub async fn serve(
    config: MonConfig,
    ready: oneshot::Sender<Ready>,
    stop: watch::Receiver<bool>,
) -> Result<(), Error> {
    serve_asked(config, None, ready, stop).await
}

/// As [`serve`], with a door for questions of the own process.
pub async fn serve_asked(
    config: MonConfig,
    asks: Option<Asks>,
    ready: oneshot::Sender<Ready>,
    stop: watch::Receiver<bool>,
) -> Result<(), Error> {
    let mut server = MonServer::bind(config).await?;
    server.asks = asks;
    // Nobody may be waiting.
    let _ = ready.send(server.at);
    server.run(stop).await
}

fn listen(addr: SocketAddr) -> Result<(Listener, SocketAddr), Error> {
    let bound = Listener::bind(addr).and_then(|l| l.local_addr().map(|at| (l, at)));
    bound.map_err(|source| Error::Bind { addr, source })
}

fn nonce_addr(sock: SocketAddr, nonce: u32) -> EntityAddrVec {
    EntityAddrVec::one(EntityAddr::msgr2(sock, nonce))
}

impl MonServer {
    /// Listens on both ports and publishes them in the maps. Must run in a `LocalSet`.
    pub async fn bind(config: MonConfig) -> Result<Self, Error> {
        let MonConfig {
            cluster,
            clock,
            random,
            ..
        } = config.clone();
        let dialled = config.addr.sock.ok_or(Error::NoAddress)?;
        let (mon_listener, mon_addr) = listen(dialled)?;
        let (mgr_listener, mgr_addr) = listen(config.mgr_bind)?;
        let now = Utime::from_unix(clock.wall());
        let ids = cluster.reserve_global_ids(GLOBAL_IDS_PER_RANGE).await?;
        let mgr_gid = ids.start;
        let mon_addrs = nonce_addr(mon_addr, 0);
        // A nonce of its own: clients drop what they knew of an earlier manager on this port.
        let mgr_addrs = nonce_addr(mgr_addr, random.u32().max(1));
        publish(&cluster, &config, &mon_addrs, &mgr_addrs, mgr_gid, now).await?;

        let entropy = net::entropy(random.clone());
        let state = cluster.state();
        let keys = Arc::new(key_server(&config, &state));
        keys.grant_global_ids(ids.start + 1, ids.end);
        let (mgr_auth, verifier) = manager_auth(&config, &state);
        let rank = state.monmap.rank_of(&config.name).unwrap_or(0) as i64;
        let facts = metadata(&config, &mon_addrs);
        let report = MonReport {
            name: config.name.clone(),
            started: now,
            mgr_name: config.mgr_name.clone(),
            mgr_gid,
            mgr_addrs: mgr_addrs.clone(),
            metadata: facts.clone(),
        };
        // Before anybody is served: who asks for the quorum finds this monitor in it.
        cluster.publish_mon(&report).await?;
        let info = MonInfo {
            metadata: facts,
            name: config.name,
            rank: rank as i32,
            mgr_name: config.mgr_name,
            hostname: config.hostname,
            started: now,
        };
        let mon_name = EntityName::new(EntityKind::Mon, rank);
        let mgr_name = EntityName::new(EntityKind::Mgr, mgr_gid as i64);
        let mon = front(
            mon_listener,
            ServerConfig::new(mon_name, mon_addrs, keys.clone(), entropy.clone()),
            &clock,
        )?;
        let mgr = front(
            mgr_listener,
            ServerConfig::new(mgr_name, mgr_addrs, mgr_auth, entropy.clone()),
            &clock,
        )?;
        let monitor = Monitor::new(info, state, cluster.stats());
        Ok(Self {
            cluster,
            clock,
            random,
            entropy,
            keys,
            verifier,
            monitor,
            manager: Manager::default(),
            mon,
            mgr,
            silence: Silence::default(),
            down: DownWatch::default(),
            report,
            asks: None,
            at: Ready {
                mon: mon_addr,
                mgr: mgr_addr,
            },
        })
    }

    pub fn at(&self) -> Ready {
        self.at
    }

    /// Serves until `stop` becomes true, or the cluster state fails.
    pub async fn run(mut self, mut stop: watch::Receiver<bool>) -> Result<(), Error> {
        let mut state = self.cluster.subscribe_state();
        let mut stats = self.cluster.subscribe_stats();
        let follower = self.cluster.clone();
        // A task of its own: it takes the turn to commit now and then, and must go on while an event of this loop
        // waits for that turn.
        let mut follow = io::task::spawn_local(async move { follower.follow().await });
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        // What changed between binding and now.
        self.take_state();
        loop {
            // Rare things first, and always in this order: the same events give the same run.
            let event = tokio::select! {
                biased;
                _ = stop.wait_for(|stop| *stop) => Event::Stop,
                done = &mut follow => Event::Followed(done.unwrap_or(Err(metastore::Error::Closed))),
                _ = tick.tick() => Event::Tick,
                question = ask::next(&mut self.asks) => Event::Ask(question),
                _ = state.changed() => Event::State,
                _ = stats.changed() => Event::Stats,
                event = self.mgr.events.recv() => Event::Net(Port::Mgr, event.ok_or(Error::Net("manager"))?),
                event = self.mon.events.recv() => Event::Net(Port::Mon, event.ok_or(Error::Net("monitor"))?),
            };
            match event {
                Event::Net(port, event) => self.net_event(port, event).await?,
                Event::State => self.take_state(),
                Event::Stats => self.monitor.stats_changed(self.cluster.stats()),
                Event::Tick => self.tick().await?,
                Event::Ask(question) => {
                    let random = self.random.clone();
                    let env = MessageEnv {
                        now: self.now(),
                        random: &*random,
                    };
                    // Who asked may have gone.
                    let _ = question.reply.send(self.monitor.ask(&question.command, &env));
                }
                Event::Followed(done) => {
                    done?;
                    return Err(Error::Cluster(metastore::Error::Closed));
                }
                Event::Stop => {
                    // The others shall not wait for the lease's end; if this fails they do.
                    let _ = self.cluster.mon_gone(&self.report.name).await;
                    self.mon.connections.shutdown();
                    self.mgr.connections.shutdown();
                    return Ok(());
                }
            }
        }
    }

    fn now(&self) -> Utime {
        Utime::from_unix(self.clock.wall())
    }

    /// Serves subscriptions from the newest state, and lets the key server have what it needs of it.
    fn take_state(&mut self) {
        let state = self.cluster.state();
        let old = self.monitor.state().clone();
        if !Arc::ptr_eq(&old.auth, &state.auth) {
            self.keys.set_db((*state.auth).clone());
        }
        if !Arc::ptr_eq(&old.rotating, &state.rotating) {
            self.keys.set_secrets((*state.rotating).clone());
            if let (Some(v), Some(secrets)) = (&self.verifier, state.rotating.get(EntityKind::Mgr)) {
                v.update(secrets.clone());
            }
        }
        for effect in self.monitor.state_changed(state) {
            if let Effect::Send(id, message) = effect {
                self.mon.connections.send(ConnId(id), message);
            }
        }
    }

    async fn net_event(&mut self, port: Port, event: NetEvent) -> Result<(), Error> {
        match (port, event) {
            (Port::Mon, NetEvent::Opened { conn, peer }) => self.monitor.opened(conn.0, peer),
            (Port::Mgr, NetEvent::Opened { conn, peer }) => self.manager.opened(conn.0, peer),
            (Port::Mon, NetEvent::Closed { conn }) => self.monitor.closed(conn.0),
            (Port::Mgr, NetEvent::Closed { conn }) => self.manager.closed(conn.0),
            (Port::Mon, NetEvent::Message { conn, msg, .. }) => {
                let (now, random) = (self.now(), self.random.clone());
                let env = MessageEnv {
                    now,
                    random: &*random,
                };
                let effects = self.monitor.message(conn.0, msg, &env);
                self.carry_out(port, effects).await?;
            }
            (Port::Mgr, NetEvent::Message { conn, msg, .. }) => {
                let state = self.monitor.state().clone();
                let effects = self.manager.message(conn.0, msg, &state);
                self.carry_out(port, effects).await?;
            }
        }
        Ok(())
    }

    fn send(&self, port: Port, id: u64, message: Message) {
        match port {
            Port::Mon => self.mon.connections.send(ConnId(id), message),
            Port::Mgr => self.mgr.connections.send(ConnId(id), message),
        };
    }

    fn close(&self, port: Port, id: u64) {
        match port {
            Port::Mon => self.mon.connections.close(ConnId(id)),
            Port::Mgr => self.mgr.connections.close(ConnId(id)),
        };
    }

    async fn carry_out(&mut self, port: Port, effects: Vec<Effect>) -> Result<(), Error> {
        for effect in effects {
            match effect {
                Effect::Send(id, message) => self.send(port, id, message),
                Effect::Close(id, why) => {
                    tracing::warn!(conn = id, "connection closed: {why}");
                    self.close(port, id);
                }
                Effect::Renew(id, message) => self.renew(id, &message),
                Effect::Decide(id, request) => self.decide(port, id, *request).await?,
            }
        }
        Ok(())
    }

    fn renew(&self, id: u64, request: &Message) {
        let Some(session) = self.monitor.session(id) else {
            return;
        };
        let cx = auth::Context {
            now: self.now(),
            entropy: &*self.entropy,
        };
        let (reply, error) = msgr::answer_mauth(&self.keys, &session.peer, request, &cx);
        if let Some(e) = error {
            tracing::warn!(peer = %session.peer.auth_name, "ticket not renewed: {e}");
        }
        self.send(Port::Mon, id, reply);
    }

    /// Commits what the request wants, tells subscribers, answers.
    async fn decide(&mut self, port: Port, id: u64, request: Request) -> Result<(), Error> {
        let random = self.random.clone();
        let now = self.now();
        let done = {
            let sessions = self.monitor.session_infos();
            let env = self.monitor.env(
                &MessageEnv {
                    now,
                    random: &*random,
                },
                &sessions,
            );
            self.cluster.commit(|state| request.decide(state, &env)).await
        };
        let done = match done {
            Ok(done) => done,
            Err(e) => return self.commit_failed(port, id, &request, e),
        };
        if done.changed {
            self.take_state();
        }
        let answer = request.answer(done.reply, &done.state);
        self.send(port, id, answer);
        Ok(())
    }

    /// What is too large is the caller's mistake; anything else ends the monitor.
    fn commit_failed(
        &self,
        port: Port,
        id: u64,
        request: &Request,
        e: metastore::Error,
    ) -> Result<(), Error> {
        let too_large = matches!(
            e,
            metastore::Error::TooManyOps(_)
                | metastore::Error::TooManyBytes(_)
                | metastore::Error::ValueTooLarge { .. }
        );
        // What was decided for OSDs that do not serve, and one of them has its lease again.
        let again = matches!(e, metastore::Error::LeaseHeld(_));
        let errno = match (too_large, again) {
            (true, _) => Errno::E2BIG,
            (_, true) => Errno::EAGAIN,
            _ => Errno::EIO,
        };
        let answer = request.answer(Reply::error(errno, e.to_string()), self.monitor.state());
        self.send(port, id, answer);
        match too_large || again {
            true => Ok(()),
            false => Err(e.into()),
        }
    }

    async fn tick(&mut self) -> Result<(), Error> {
        self.cluster.maintain().await?;
        self.cluster.publish_mon(&self.report).await?;
        self.refill_global_ids().await?;
        self.rotate_secrets().await?;
        self.stand_for_manager().await?;
        let (state, stats, now) = (self.cluster.state(), self.cluster.stats(), self.now());
        self.monitor.observe(now);
        if !self.leads(&state, &stats) {
            self.take_state();
            return Ok(());
        }
        let verdicts = self.down.look(&state, &stats, self.clock.monotonic().as_secs());
        for (osd, why) in &verdicts.kept {
            tracing::warn!(osd, "is down for long and stays in: {why}");
        }
        let out = verdicts.out;
        if !upkeep::due(&state, &stats, &out, now).is_empty() {
            self.cluster
                .commit(|state| (upkeep::due(state, &stats, &out, now), ()))
                .await?;
        }
        let silent = self
            .silence
            .due(&state.osdmap, &stats, self.clock.monotonic().as_secs());
        if !silent.is_empty() {
            tracing::warn!(osds = ?silent, "OSDs that report no more are marked down");
            self.cluster.mark_silent_down(&silent).await?;
        }
        self.cluster.mark_asked_down().await?;
        self.take_state();
        Ok(())
    }

    /// The living monitor of the lowest rank does what has to be done once.
    fn leads(&self, state: &ClusterState, stats: &ClusterStats) -> bool {
        let own = &self.report.name;
        let first = state
            .monmap
            .by_rank()
            .find(|i| i.name == *own || stats.mons.contains_key(&i.name));
        first.is_none_or(|i| i.name == *own)
    }

    /// The manager's part goes to the leader when the one that has it lives no more; the others stand by.
    async fn stand_for_manager(&mut self) -> Result<(), Error> {
        let (state, stats, now) = (self.cluster.state(), self.cluster.stats(), self.now());
        // Before the first look at the others nobody is known to be gone.
        if !stats.mons.contains_key(&self.report.name) || !self.leads(&state, &stats) {
            return Ok(());
        }
        let wanted = |state: &ClusterState| managers(&state.mgrmap, &self.report, &stats.mons, now);
        if wanted(&state).is_none() {
            return Ok(());
        }
        self.cluster
            .commit(|state| {
                let change = wanted(state).map(|m| Change::MgrMap(Box::new(m)));
                (change.map_or_else(Changes::none, Changes::one), ())
            })
            .await?;
        self.take_state();
        Ok(())
    }

    async fn refill_global_ids(&self) -> Result<(), Error> {
        if self.keys.remaining_global_ids() < GLOBAL_IDS_LOW {
            let ids = self.cluster.reserve_global_ids(GLOBAL_IDS_PER_RANGE).await?;
            self.keys.grant_global_ids(ids.start, ids.end);
        }
        Ok(())
    }

    /// New secrets are durable before a ticket is made with them.
    async fn rotate_secrets(&mut self) -> Result<(), Error> {
        let cx = auth::Context {
            now: self.now(),
            entropy: &*self.entropy,
        };
        let Some(secrets) = self.keys.rotated(&cx) else {
            return Ok(());
        };
        let before = self.monitor.state().rotating.clone();
        let decide = |state: &ClusterState| {
            // Another monitor may have rotated them: then its secrets count.
            let changes = match *state.rotating == *before {
                true => Changes::one(Change::Rotating(Box::new(secrets.clone()))),
                false => Changes::none(),
            };
            (changes, ())
        };
        self.cluster.commit(decide).await?;
        self.take_state();
        Ok(())
    }
}

fn key_server(config: &MonConfig, state: &ClusterState) -> KeyServer {
    let (methods, modes) = match config.cephx {
        true => (vec![AuthMethod::Cephx], config.tickets.modes.clone()),
        false => (vec![AuthMethod::None], vec![ConMode::Crc]),
    };
    let keys = KeyServerConfig {
        methods,
        modes,
        ..config.tickets.clone()
    };
    KeyServer::new(keys, (*state.auth).clone(), (*state.rotating).clone())
}

type MgrAuth = (Arc<dyn Authenticator>, Option<Arc<TicketVerifier>>);

fn manager_auth(config: &MonConfig, state: &ClusterState) -> MgrAuth {
    if !config.cephx {
        return (Arc::new(AllowNone), None);
    }
    let secrets = state.rotating.get(EntityKind::Mgr).cloned().unwrap_or_default();
    let verifier = Arc::new(TicketVerifier::new(
        EntityKind::Mgr,
        config.tickets.modes.clone(),
        secrets,
    ));
    (verifier.clone(), Some(verifier))
}

fn front(listener: Listener, config: ServerConfig, clock: &Arc<dyn Clock>) -> Result<Front, Error> {
    let (sender, events) = mpsc::channel(EVENTS_MAX);
    let addr = config.addrs.first().sock.ok_or(Error::NoAddress)?;
    let connections = net::serve(
        listener,
        Arc::new(config),
        Options::default(),
        clock.clone(),
        sender,
    )
    .map_err(|source| Error::Bind { addr, source })?;
    Ok(Front { events, connections })
}

/// The manager map as it should be, if it is not: the active one lives, and all others that live stand by.
fn managers(
    now_map: &MgrMap,
    own: &MonReport,
    live: &BTreeMap<String, MonReport>,
    now: Utime,
) -> Option<MgrMap> {
    let mut next = now_map.clone();
    let lives = live.values().any(|m| m.mgr_gid == now_map.active_gid);
    if !lives || !now_map.available {
        next = MgrMap::active(0, &own.mgr_name, own.mgr_gid, own.mgr_addrs.clone(), now);
    }
    let standby = |m: &MonReport| Standby {
        gid: m.mgr_gid,
        name: m.mgr_name.clone(),
        old_modules: Default::default(),
        available_modules: Vec::new(),
        mgr_features: now_map.active_mgr_features,
    };
    next.standbys = live
        .values()
        .filter(|m| m.mgr_gid != next.active_gid)
        .map(|m| (m.mgr_gid, standby(m)))
        .collect();
    next.epoch = now_map.epoch;
    (next != *now_map).then_some(next)
}

/// Facts for `mon metadata`.
fn metadata(config: &MonConfig, addrs: &EntityAddrVec) -> BTreeMap<String, String> {
    let facts = [
        ("addrs", addrs.to_string()),
        ("ceph_release", "pacific".to_string()),
        ("ceph_version_short", "16.2.15".to_string()),
        ("hostname", config.hostname.clone()),
    ];
    facts.into_iter().map(|(k, v)| (k.to_string(), v)).collect()
}

/// Puts this monitor's and manager's addresses into the maps.
async fn publish(
    cluster: &ClusterHandle,
    config: &MonConfig,
    mon_addrs: &EntityAddrVec,
    mgr_addrs: &EntityAddrVec,
    mgr_gid: u64,
    now: Utime,
) -> Result<(), Error> {
    let decide = |state: &ClusterState| {
        let mut changes = Changes::none();
        let known = state.monmap.mon_info.get(&config.name);
        if known.is_none_or(|m| m.addrs != *mon_addrs) {
            let mut map = (*state.monmap).clone();
            let fresh = types::monmap::MonMap::new(map.fsid, now, [(config.name.clone(), mon_addrs.clone())]);
            map.mon_info.extend(fresh.mon_info);
            if map.rank_of(&config.name).is_none() {
                map.ranks.push(config.name.clone());
            }
            map.last_changed = now;
            changes.push(Change::MonMap(Box::new(map)));
        }
        // Another monitor's manager stays until it is known to be gone; an earlier run of this one is.
        let old = &state.mgrmap;
        let alone = state.monmap.ranks.iter().all(|name| *name == config.name);
        if alone || !old.available || old.active_name == config.mgr_name {
            let mut map = MgrMap::active(0, &config.mgr_name, mgr_gid, mgr_addrs.clone(), now);
            map.standbys = old.standbys.clone();
            changes.push(Change::MgrMap(Box::new(map)));
        }
        (changes, ())
    };
    cluster.commit(decide).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(name: &str, gid: u64) -> MonReport {
        MonReport {
            name: name.into(),
            mgr_name: format!("mgr-{name}"),
            mgr_gid: gid,
            ..MonReport::default()
        }
    }

    fn live(of: &[&MonReport]) -> BTreeMap<String, MonReport> {
        of.iter().map(|m| (m.name.clone(), (*m).clone())).collect()
    }

    #[test]
    fn the_managers_part_moves_only_when_its_holder_is_gone() {
        let (a, b, c) = (report("a", 10), report("b", 20), report("c", 30));
        let now = Utime { sec: 5, nsec: 0 };
        let first = managers(&MgrMap::default(), &a, &live(&[&a]), now).unwrap();
        assert_eq!((first.active_name.as_str(), first.active_gid), ("mgr-a", 10));
        assert!(first.available);
        // Others stand by; nothing more to change then.
        let three = managers(&first, &a, &live(&[&a, &b, &c]), now).unwrap();
        assert_eq!(three.active_gid, 10);
        assert_eq!(three.standbys.keys().copied().collect::<Vec<_>>(), [20, 30]);
        assert_eq!(managers(&three, &a, &live(&[&a, &b, &c]), now), None);
        // Its holder is gone: the leader that looks takes it.
        let next = managers(&three, &b, &live(&[&b, &c]), now).unwrap();
        assert_eq!((next.active_gid, next.standbys.len()), (20, 1));
        // The old one comes back with a new identity and stands by.
        let back = report("a", 40);
        let last = managers(&next, &back, &live(&[&back, &b, &c]), now).unwrap();
        assert_eq!((last.active_gid, last.standbys.len()), (20, 2));
    }
}
