//! The shell: sockets and timers round the monitor's and the manager's state machines.
//!
//! One task waits for the next event (`select`), then applies it and never waits: changes of the cluster are committed
//! beside it (`commits`, `chores`), so that a cluster state without a majority keeps nobody from reading what was known
//! last. Runs in a `LocalSet` of the thread that owns the monitor.
//!
//! Bounds: connections, bytes and messages in flight are the messenger's (`net`); [`listen::EVENTS_MAX`] events wait.

use crate::commands::context::MonInfo;
use crate::commands::{asked_of_volumes, wanted_image};
use crate::policies::INSECURE_RECLAIM;
use crate::policies::auto_out::DownWatch;
use crate::policies::chores::{Chores, GLOBAL_IDS_PER_RANGE, Rotation};
use crate::policies::evening::Evening;
use crate::policies::lag::{Admission, LagWatch, Stance};
use crate::policies::upkeep::Silence;
use crate::shell::ask;
use crate::shell::ask::Asks;
use crate::shell::audit::{AuditFile, Records};
use crate::shell::commits::{Asked, Commits, Outcome, OwnEnv, WAITING_MAX};
use crate::shell::lookups::{self, Images, Volumes};
use crate::shell::manager::Manager;
use crate::shell::meters::Meters;
use crate::shell::monitor::{Effect, MessageEnv, Monitor};
use crate::shell::others::Others;
use crate::shell::requests::{Action, Reply, Request};
use crate::shell::turns::{self, Turns};
use auth::{Entropy, KeyServer, TicketVerifier};
use cluster::{ClusterState, MonReport};
use event::Event;
use facts::metadata;
pub use given::{Error, MonConfig};
use io::{Clock, Random};
use listen::{Front, key_server, manager_auth, modes_of, publish};
use metastore::ClusterHandle;
use msgr::{Message, ModeSwitch, ServerConfig};
use net::{ConnId, Doors, Msgr1, NetEvent};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use types::{AuthName, EntityAddrVec, EntityKind, EntityName, Errno, Utime};

const TICK: Duration = Duration::from_secs(1);
/// A change that is under way for so long: the cluster state cannot be changed, and health says so.
const STALLED_AFTER: Duration = Duration::from_secs(5);

mod event;
mod facts;
mod given;
mod listen;
mod turn;

/// Where a monitor that is ready serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ready {
    pub mon: SocketAddr,
    pub mgr: SocketAddr,
}

/// Which of the two listeners.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Port {
    Mon,
    Mgr,
}

/// A round of chores, on its way.
type Round = io::task::TaskHandle<(Box<Chores>, Result<(), metastore::Error>)>;

/// The round's end.
async fn ended(round: &mut Option<(Duration, Round)>) -> Option<(Box<Chores>, Result<(), metastore::Error>)> {
    let Some((_, task)) = round else {
        return std::future::pending().await;
    };
    let done = task.await.ok();
    *round = None;
    done
}

/// A monitor that listens and is named in the maps.
pub struct MonServer {
    cluster: ClusterHandle,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    entropy: Arc<dyn Entropy>,
    keys: Arc<KeyServer>,
    /// Opens tickets at the manager's listener; none without cephx.
    verifier: Option<Arc<TicketVerifier>>,
    /// Of the monitor's port and the manager's, and whose options hold for them.
    modes: [(Arc<ModeSwitch>, AuthName); 2],
    monitor: Monitor,
    meters: Meters,
    manager: Manager,
    /// Global ids of the monitor's open connections.
    ids: BTreeMap<u64, u64>,
    mon: Front,
    mgr: Front,
    commits: Commits<Port>,
    /// None while a round of them is under way.
    chores: Option<Box<Chores>>,
    round: Option<(Duration, Round)>,
    lag: LagWatch,
    admission: Arc<Admission>,
    /// None while they are being asked.
    others: Option<Box<Others>>,
    asking: Option<turn::Asking>,
    name: String,
    asks: Option<Asks>,
    images: Option<Images>,
    looked_up: lookups::Queue<Port>,
    volumes: Option<Volumes>,
    carried_out: lookups::Queue<Port>,
    records: Records,
    turns: Turns,
    at: Ready,
}

/// Binds, publishes, says that it is ready, and serves until `stop` becomes true. Must run in a `LocalSet`.
pub async fn serve(
    config: MonConfig,
    ready: oneshot::Sender<Ready>,
    stop: watch::Receiver<bool>,
) -> Result<(), Error> {
    serve_inside(config, Inside::default(), ready, stop).await
}

/// What the own process gives and takes.
#[derive(Default)]
pub struct Inside {
    /// Where its questions come in.
    pub asks: Option<Asks>,
    /// Where records of what was asked go.
    pub audit: Option<AuditFile>,
    /// Who works on images.
    pub images: Option<Images>,
    /// Who carries out commands about subvolumes.
    pub volumes: Option<Volumes>,
}

/// As [`serve`], with what its own process gives and takes.
pub async fn serve_inside(
    config: MonConfig,
    inside: Inside,
    ready: oneshot::Sender<Ready>,
    stop: watch::Receiver<bool>,
) -> Result<(), Error> {
    let mut server = MonServer::bind(config).await?;
    server.asks = inside.asks;
    server.records.file = inside.audit;
    server.images = inside.images;
    server.volumes = inside.volumes;
    // Nobody may be waiting.
    let _ = ready.send(server.at);
    server.run(stop).await
}

fn sock_of(addrs: &EntityAddrVec) -> Result<SocketAddr, Error> {
    addrs.msgr2_or_first().sock.ok_or(Error::NoAddress)
}

fn report_of(
    config: &MonConfig,
    started: Utime,
    (mgr_gid, mgr_addrs): (u64, &EntityAddrVec),
    facts: &BTreeMap<String, String>,
) -> MonReport {
    MonReport {
        name: config.name.clone(),
        started,
        mgr_name: config.mgr_name.clone(),
        mgr_gid,
        mgr_addrs: mgr_addrs.clone(),
        metadata: facts.clone(),
        services: Default::default(),
    }
}

/// How connections to the monitor and to the manager are protected, and whose options say so.
fn switches(info: &MonInfo, state: &ClusterState) -> [(Arc<ModeSwitch>, AuthName); 2] {
    [(EntityKind::Mon, &info.name), (EntityKind::Mgr, &info.mgr_name)].map(|(kind, id)| {
        let who = AuthName::new(kind, id.as_str());
        (ModeSwitch::new(modes_of(&who, &info.hostname, state)), who)
    })
}

fn info_of(config: &MonConfig, metadata: BTreeMap<String, String>, rank: i32, started: Utime) -> MonInfo {
    MonInfo {
        images: Arc::default(),
        metadata,
        name: config.name.clone(),
        rank,
        mgr_name: config.mgr_name.clone(),
        hostname: config.hostname.clone(),
        cephx: config.cephx,
        started,
        stalled: None,
        trouble: None,
        behind: Duration::ZERO,
        stance: Stance::Serving,
        registry: config.registry.clone(),
    }
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
        let (mon_doors, mon_addrs) = Doors::bind(dialled, config.msgr1, 0)?;
        // A nonce of its own: clients drop what they knew of an earlier manager on this port.
        let nonce = random.u32().max(1);
        let (mgr_doors, mgr_addrs) = Doors::bind(config.mgr_bind, config.msgr1.map(Msgr1::anywhere), nonce)?;
        let at = Ready {
            mon: sock_of(&mon_addrs)?,
            mgr: sock_of(&mgr_addrs)?,
        };
        let now = Utime::from_unix(clock.wall());
        let ids = cluster.reserve_global_ids(GLOBAL_IDS_PER_RANGE).await?;
        let mgr_gid = ids.start;
        publish(&cluster, &config, &mon_addrs, &mgr_addrs, mgr_gid, now).await?;

        let entropy = net::entropy(random.clone());
        let state = cluster.state();
        let keys = Arc::new(key_server(&config, &state));
        keys.grant_global_ids(ids.start + 1, ids.end);
        let admission = Arc::new(Admission::new(keys.clone()));
        let (mgr_auth, verifier) = manager_auth(&config, &state);
        let rank = state.monmap.rank_of(&config.name).unwrap_or(0) as i64;
        let facts = metadata(&config.hostname, &mon_addrs);
        let report = report_of(&config, now, (mgr_gid, &mgr_addrs), &facts);
        // Before anybody is served: who asks for the quorum finds this monitor in it.
        cluster.publish_mon(&report).await?;
        let info = info_of(&config, facts, rank as i32, now);
        let meters = Meters::new(&config.registry);
        let mon_name = EntityName::new(EntityKind::Mon, rank);
        let mgr_name = EntityName::new(EntityKind::Mgr, mgr_gid as i64);
        let modes = switches(&info, &state);
        let [mon, mgr] = listen::fronts(
            &config,
            [
                (
                    mon_doors,
                    ServerConfig {
                        modes: modes[0].0.clone(),
                        ..ServerConfig::new(mon_name, mon_addrs, admission.clone(), entropy.clone())
                    },
                ),
                (
                    mgr_doors,
                    ServerConfig {
                        modes: modes[1].0.clone(),
                        ..ServerConfig::new(mgr_name, mgr_addrs, mgr_auth, entropy.clone())
                    },
                ),
            ],
            &meters,
        )?;
        let monitor = Monitor::new(info, state, cluster.stats());
        let chores = Chores {
            cluster: cluster.clone(),
            clock: clock.clone(),
            keys: keys.clone(),
            report,
            sessions: Vec::new(),
            silence: Silence::default(),
            down: DownWatch::default(),
            evening: Evening::default(),
        };
        let others = Others::new(
            config.name.clone(),
            config.cephx,
            clock.clone(),
            entropy.clone(),
            random.u32().max(1),
        );
        Ok(Self {
            lag: LagWatch::new(clock.monotonic()),
            admission,
            others: Some(Box::new(others)),
            asking: None,
            cluster,
            clock,
            random,
            entropy,
            keys,
            verifier,
            modes,
            monitor,
            meters,
            manager: Manager::default(),
            ids: BTreeMap::new(),
            mon,
            mgr,
            commits: Commits::default(),
            chores: Some(Box::new(chores)),
            round: None,
            name: config.name,
            asks: None,
            images: None,
            looked_up: lookups::Queue::default(),
            volumes: None,
            carried_out: lookups::Queue::default(),
            records: Records::default(),
            turns: turns::watch(),
            at,
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
                (asked, done) = self.commits.ended() => Event::Committed(asked.map(Box::new), done),
                done = ended(&mut self.round) => match done {
                    Some((chores, done)) => Event::Chores(chores, done),
                    None => Event::Followed(Err(metastore::Error::Closed)),
                },
                done = turn::heard(&mut self.asking) => match done {
                    Some((others, words)) => {
                        self.others = Some(others);
                        Event::Heard(words)
                    }
                    None => Event::Followed(Err(metastore::Error::Closed)),
                },
                question = ask::next(&mut self.asks) => Event::Ask(question),
                (port, id, request) = self.looked_up.next() => Event::LookedUp(port, id, request),
                (port, id, request) = self.carried_out.next() => Event::LookedUp(port, id, request),
                _ = state.changed() => Event::State,
                _ = stats.changed() => Event::Stats,
                event = self.mgr.events.recv() => Event::Net(Port::Mgr, event.ok_or(Error::Net("manager"))?),
                event = self.mon.events.recv() => Event::Net(Port::Mon, event.ok_or(Error::Net("monitor"))?),
            };
            io::panics::point("loop");
            self.turns.begin(self.clock.monotonic());
            if let Event::Stop = event {
                // The others shall not wait for the lease's end; if this fails they do.
                let _ = self.cluster.mon_gone(&self.name).await;
                self.mon.connections.shutdown();
                self.mgr.connections.shutdown();
                return Ok(());
            }
            let kind = event.kind();
            self.apply(event)?;
            let now = self.clock.monotonic();
            self.turns.did(kind as usize, now);
            if let Some(line) = self.turns.end(now) {
                tracing::warn!("mon.{}: {line}", self.name);
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
            self.keys.set_db(state.auth.clone());
            if let Some(v) = &self.verifier {
                v.set_entities(state.auth.clone(), state.version);
            }
        }
        if !Arc::ptr_eq(&old.config, &state.config) {
            let allow = state.mon_option_bool(INSECURE_RECLAIM, false);
            self.keys.allow_insecure_reclaim(allow);
        }
        if !Arc::ptr_eq(&old.rotating, &state.rotating) {
            self.keys.set_secrets((*state.rotating).clone());
            if let (Some(v), Some(secrets)) = (&self.verifier, state.rotating.get(EntityKind::Mgr)) {
                v.update(secrets.clone());
            }
        }
        if !Arc::ptr_eq(&old.config, &state.config) {
            for (switch, who) in &self.modes {
                switch.set(modes_of(who, &self.monitor.info.hostname, &state));
            }
        }
        if !Arc::ptr_eq(&old.auth, &state.auth) {
            let ended = self.manager.heed_keys(&state);
            self.tell(Port::Mgr, ended);
        }
        let effects = self.monitor.state_changed(state);
        self.tell(Port::Mon, effects);
    }

    /// Sends and closes; whoever is closed has asked in vain.
    fn tell(&mut self, port: Port, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Send(id, message) => self.send(port, id, message),
                Effect::Close(id, why) => {
                    let now = self.clock.monotonic();
                    io::log::refused(now, format_args!("conn {id}: connection closed: {why}"));
                    self.commits.forget(port, id);
                    self.close(port, id);
                }
                Effect::Refused(request, reply) => self.records.refused(&request, &reply, self.now()),
                Effect::Renew(..) | Effect::Decide(..) => {}
            }
        }
    }

    fn net_event(&mut self, port: Port, event: NetEvent) {
        match (port, event) {
            (_, NetEvent::Drained) => {}
            // It was in the handshake when clients were refused.
            (Port::Mon, NetEvent::Opened { conn, peer })
                if self.admission.is_shut() && peer.auth_name.kind != EntityKind::Mon =>
            {
                self.close(port, conn.0);
            }
            (Port::Mon, NetEvent::Opened { conn, peer }) => {
                self.keys.session_opened(peer.global_id, &peer.auth_name);
                self.ids.insert(conn.0, peer.global_id);
                self.meters.mon.session_add.inc();
                if !self.monitor.opened(conn.0, peer) {
                    self.close(port, conn.0);
                } else if let Some(greeting) = self.monitor.greeting(conn.0) {
                    self.send(port, conn.0, greeting);
                }
            }
            (Port::Mgr, NetEvent::Opened { conn, peer }) => {
                let state = self.monitor.state().clone();
                if !self.manager.opened(conn.0, peer, &state) {
                    self.close(port, conn.0);
                }
            }
            (Port::Mon, NetEvent::Closed { conn }) => {
                if let Some(global_id) = self.ids.remove(&conn.0) {
                    self.keys.session_closed(global_id);
                    self.meters.mon.session_rm.inc();
                }
                self.monitor.closed(conn.0);
                self.commits.forget(port, conn.0);
            }
            (Port::Mgr, NetEvent::Closed { conn }) => {
                self.manager.closed(conn.0);
                self.commits.forget(port, conn.0);
            }
            (Port::Mon, NetEvent::Message { conn, msg, .. }) => {
                self.turns.about().message = Some(msg.kind);
                self.turns.brought(msg.size());
                let (now, random) = (self.now(), self.random.clone());
                let env = MessageEnv {
                    now,
                    random: &*random,
                };
                let effects = self.monitor.message(conn.0, msg, &env);
                self.carry_out(port, effects);
            }
            (Port::Mgr, NetEvent::Message { conn, msg, .. }) => {
                self.turns.about().message = Some(msg.kind);
                self.turns.brought(msg.size());
                let state = self.monitor.state().clone();
                let effects = self.manager.message(conn.0, msg, &state, self.now());
                self.carry_out(port, effects);
            }
        }
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

    fn carry_out(&mut self, port: Port, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Send(id, message) => self.send(port, id, message),
                Effect::Close(id, why) => {
                    let now = self.clock.monotonic();
                    io::log::refused(now, format_args!("conn {id}: connection closed: {why}"));
                    self.close(port, id);
                }
                Effect::Refused(request, reply) => self.records.refused(&request, &reply, self.now()),
                Effect::Renew(id, message) => self.renew(id, &message),
                Effect::Decide(id, request) => self.decide(port, id, *request),
            }
        }
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
            let (now, who) = (self.clock.monotonic(), &session.peer.auth_name);
            io::log::refused(now, format_args!("ticket of {who} not renewed: {e}"));
        }
        self.send(Port::Mon, id, reply);
    }

    fn own_env(&self) -> OwnEnv {
        OwnEnv {
            now: self.now(),
            random: self.random.clone(),
            info: self.monitor.info.clone(),
            progress: self.monitor.progress().clone(),
            stats: self.monitor.stats().clone(),
            sessions: self.monitor.session_infos(),
        }
    }

    /// Answers what changes nothing at once; what changes something takes its place in the line.
    fn decide(&mut self, port: Port, id: u64, request: Request) {
        self.turns.about().request(&request);
        let Some(request) = self.look_up(port, id, request) else {
            return;
        };
        if !self.commits.holds(port, id) {
            let state = self.cluster.state();
            let (random, sessions) = (self.random.clone(), self.monitor.session_infos());
            let env = MessageEnv {
                now: self.now(),
                random: &*random,
            };
            let (changes, reply) = request.decide(&state, &self.monitor.env(&env, &sessions));
            if changes.is_empty() {
                self.records.unchanged(&request, &reply, self.now());
                // Who is answered from a state has been told of it.
                self.take_state();
                return self.send(port, id, request.answer(reply, &state));
            }
        }
        let now = self.clock.monotonic();
        if let Err(request) = self.commits.push(port, id, request, now) {
            let text = format!("{WAITING_MAX} changes wait for the cluster state already");
            return self.answer(port, id, &request, Reply::error(Errno::EBUSY, text));
        }
        self.next_commit();
    }

    /// Takes what work on images is under way.
    fn heed_images(&mut self) {
        if let Some(images) = &self.images {
            self.monitor.info.images = images.live.borrow().clone();
        }
    }

    /// None: it is decided when what it is about was looked up.
    fn look_up(&mut self, port: Port, id: u64, request: Request) -> Option<Request> {
        self.heed_images();
        let Action::Command { command, .. } = &request.action else {
            return Some(request);
        };
        if let (Some(asked), Some(volumes)) = (asked_of_volumes(command), &self.volumes) {
            let begun = self.carried_out.begin_volume(volumes, asked, port, id, request);
            if let Err(request) = begun {
                let text = "too many commands about subvolumes wait already";
                self.answer(port, id, &request, Reply::error(Errno::EBUSY, text));
            }
            return None;
        }
        let Some(wanted) = wanted_image(command, self.monitor.state()) else {
            return Some(request);
        };
        let Some(images) = &self.images else {
            return Some(request);
        };
        match self.looked_up.begin(images, wanted, port, id, request) {
            Ok(()) => None,
            Err(request) => {
                let text = "too many images are being looked up already";
                self.answer(port, id, &request, Reply::error(Errno::EBUSY, text));
                None
            }
        }
    }

    fn next_commit(&mut self) {
        let mut commits = std::mem::take(&mut self.commits);
        commits.go_on(&self.cluster, || self.own_env());
        self.commits = commits;
    }

    /// Answers a request that was not carried out. Log entries without an answer come again.
    fn answer(&mut self, port: Port, id: u64, request: &Request, reply: Reply) {
        self.records.unchanged(request, &reply, self.now());
        if !matches!(request.action, Action::Log { .. }) {
            self.send(port, id, request.answer(reply, self.monitor.state()));
        }
    }

    /// A change was carried out: subscribers are told, then whoever asked for it.
    fn committed(&mut self, asked: Option<Box<Asked<Port>>>, done: Outcome) -> Result<(), Error> {
        match (done, asked) {
            (Ok(done), asked) => {
                if done.changed {
                    self.take_state();
                }
                if let Some(a) = asked {
                    self.turns.about().request(&a.request);
                    match done.changed {
                        true => self.records.changed(&a.request, &done.reply, self.now()),
                        false => self.records.unchanged(&a.request, &done.reply, self.now()),
                    }
                    self.send(a.port, a.session, a.request.answer(done.reply, &done.state));
                }
            }
            (Err(e), Some(a)) => self.commit_failed(a.port, a.session, &a.request, e)?,
            (Err(e), None) if is_too_large(&e) || matches!(e, metastore::Error::LeaseHeld(_)) => {}
            (Err(e), None) => return Err(e.into()),
        }
        self.note_stall();
        self.next_commit();
        Ok(())
    }

    /// What is too large is the caller's mistake; anything else ends the monitor.
    fn commit_failed(
        &mut self,
        port: Port,
        id: u64,
        request: &Request,
        e: metastore::Error,
    ) -> Result<(), Error> {
        let too_large = is_too_large(&e);
        // What was decided for OSDs that do not serve, and one of them has its lease again.
        let again = matches!(e, metastore::Error::LeaseHeld(_));
        let errno = match (too_large, again) {
            (true, _) => Errno::E2BIG,
            (_, true) => Errno::EAGAIN,
            _ => Errno::EIO,
        };
        self.answer(port, id, request, Reply::error(errno, e.to_string()));
        match too_large || again {
            true => Ok(()),
            false => Err(e.into()),
        }
    }

    /// About once a second: looks, and lets the chores begin if the last ones have ended.
    fn tick(&mut self) {
        self.heed_images();
        self.monitor.observe(self.now());
        self.meters.measure(self.monitor.state(), &self.cluster.stats());
        self.meters.mon.num_sessions.set(self.ids.len() as u64);
        for (port, id, request, reply) in self.commits.expired(self.clock.monotonic()) {
            self.answer(port, id, &request, reply);
        }
        self.note_stall();
        self.look_around();
        self.manager.tick(self.now());
        let Some(mut chores) = self.chores.take() else {
            return;
        };
        let cx = auth::Context {
            now: self.now(),
            entropy: &*self.entropy,
        };
        let rotation = self.keys.rotated(&cx).map(|secrets| Rotation {
            secrets,
            before: self.monitor.state().rotating.clone(),
        });
        let records = self.records.waiting(self.now());
        chores.sessions = self.monitor.instances();
        chores.report.services = self.manager.services().clone();
        let task = io::task::spawn_local(async move {
            let done = chores.round(rotation, records).await;
            (chores, done)
        });
        self.round = Some((self.clock.monotonic(), task));
    }

    /// Says since when the cluster state lets nothing be changed, if it does not.
    fn note_stall(&mut self) {
        let round = self.round.as_ref().map(|(at, _)| *at);
        let since = [round, self.commits.oldest()].into_iter().flatten().min();
        let age = since.map(|at| self.clock.monotonic().saturating_sub(at));
        let stalled = age.filter(|age| *age >= STALLED_AFTER);
        self.monitor.info.trouble = stalled.and_then(|_| self.cluster.trouble());
        let since = stalled.map(|age| Utime::from_unix(self.clock.wall().saturating_sub(age)));
        match (&self.monitor.info.stalled, &since) {
            (None, Some(_)) => tracing::error!("the cluster state lets nothing be changed"),
            (Some(_), None) => tracing::warn!("the cluster state can be changed again"),
            // The same, to the second.
            (Some(_), Some(_)) => return,
            (None, None) => {}
        }
        self.monitor.info.stalled = since;
    }
}

fn is_too_large(e: &metastore::Error) -> bool {
    matches!(
        e,
        metastore::Error::TooManyOps(_)
            | metastore::Error::TooManyCompares(_)
            | metastore::Error::TooManyBytes(_)
            | metastore::Error::ValueTooLarge { .. }
    )
}
