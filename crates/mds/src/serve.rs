//! A metadata server's life: become a standby, be given a rank, read what is there, serve, stop.
//!
//! Invariants: nothing is served without a live lease ([`Membership::lease_until`]); what the machine wants said leaves in its order; what
//! it wants done in the pools runs beside it, and comes back as an event.

use crate::follow::Followed;
use crate::keeper::Keeper;
use crate::machine::{Effect, Event, Machine, Now, Options};
use crate::membership::{Assigned, Lost, MdsState, Membership, Presence};
use crate::meters::Meters;
use crate::{Config, Error};
use client::Client;
use io::task;
use messages::fs::MClientRequest;
use messages::mon::Body;
use msgr::ServerConfig;
use net::{ConnId, Connections, Listener, NetEvent};
use std::collections::BTreeMap;
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use types::{EntityAddr, EntityAddrVec, EntityKind, EntityName, Utime};

/// Messages of all connections that may wait for the loop.
const NET_QUEUE: usize = 1024;
/// Messages applied in one turn.
const TURN_MAX: usize = 256;
const TICK: Duration = Duration::from_millis(250);
/// How often who follows a rank looks for what is new in its journal.
const FOLLOW_EVERY: Duration = Duration::from_secs(1);
/// Of the cache's bytes, one in so many for the journal that is followed.
const FOLLOWED_SHARE: u64 = 4;
/// What is under way may take so long when the daemon is stopped.
const FAREWELL: Duration = Duration::from_secs(10);

/// Serves until `stop` turns true. `ready` is told the address when it is known as a standby.
pub async fn serve<M: Membership + 'static>(
    c: Config,
    membership: M,
    ready: oneshot::Sender<EntityAddr>,
    mut stop: watch::Receiver<bool>,
) -> Result<(), Error> {
    let failed = |source| Error::Listen { addr: c.bind, source };
    let listener = Listener::bind(c.bind).map_err(failed)?;
    let addr = EntityAddr::msgr2(listener.local_addr().map_err(failed)?, c.nonce);
    let membership = Rc::new(membership);
    let connecting = Client::connect_with(
        c.rados.clone(),
        client::Platform {
            clock: c.clock.clone(),
            random: c.random.clone(),
        },
    );
    let rados = tokio::select! {
        biased;
        _ = stop.wait_for(|s| *s) => return Ok(()),
        connected = connecting => connected?,
    };
    let served = standby(&c, &membership, addr, listener, &rados, ready, stop).await;
    rados.shutdown().await;
    served
}

/// What it says of itself.
fn presence(c: &Config, addr: EntityAddr, rados: &Client) -> Presence {
    Presence {
        addr,
        rados_nonce: rados.nonce(),
        metadata: BTreeMap::from([
            ("hostname".to_string(), c.hostname.clone()),
            ("addr".to_string(), addr.to_string()),
            (
                "ceph_version".to_string(),
                types::release::VERSION_FACTS[0].1.to_string(),
            ),
        ]),
    }
}

async fn standby<M: Membership + 'static>(
    c: &Config,
    membership: &Rc<M>,
    addr: EntityAddr,
    listener: Listener,
    rados: &Client,
    ready: oneshot::Sender<EntityAddr>,
    mut stop: watch::Receiver<bool>,
) -> Result<(), Error> {
    membership.boot(presence(c, addr, rados)).await?;
    // Whoever waited for it may have gone.
    let _ = ready.send(addr);
    tracing::info!("mds.{}: standby at {addr}", c.name);
    let mut places = membership.file_system();
    let Some((place, followed)) = wait_for_rank(c, rados, &**membership, &mut places, &mut stop).await?
    else {
        return leave(c, &**membership).await;
    };
    let starting = begin(c, rados, &place, followed);
    let (keeper, machine) = tokio::select! {
        biased;
        _ = stop.wait_for(|s| *s) => return leave(c, &**membership).await,
        started = alive(&**membership, starting) => match started {
            Err(e @ Error::Damaged { .. }) => {
                // Nobody is given the rank before somebody has looked.
                membership.report(MdsState::Damaged).await?;
                return Err(e);
            }
            started => started?,
        },
    };
    let (conns, net) = listen(c, listener, addr, place.rank)?;
    let (events_tx, events) = mpsc::unbounded_channel();
    let (reports, reported) = mpsc::unbounded_channel();
    let shell = Shell {
        name: c.name.clone(),
        clock: c.clock.clone(),
        membership: membership.clone(),
        keeper,
        conns,
        events: events_tx,
        reports,
        rados: rados.clone(),
        meters: c.meters.clone(),
        pools: BTreeMap::new(),
    };
    let reporting = task::spawn_local(report(membership.clone(), reported, shell.events.clone()));
    let conns = shell.conns.clone();
    let served = shell.run(machine, place, places, net, events, stop).await;
    reporting.abort();
    // Its clients look for another one; nobody would hear them here.
    conns.shutdown();
    if let Err(Error::Damaged { .. }) = &served {
        // As at the start; or the next one would find the same, and end by it, and so on.
        membership.report(MdsState::Damaged).await?;
    }
    served
}

/// It is to stop, and has nothing to end before: others need not wait for the end of its lease.
async fn leave<M: Membership>(c: &Config, membership: &M) -> Result<(), Error> {
    membership.leave().await;
    tracing::info!("mds.{}: stopped", c.name);
    Ok(())
}

/// Until it is given a rank; what it has read of that rank's journal while it followed it goes with it. None: it is to stop.
async fn wait_for_rank<M: Membership>(
    c: &Config,
    rados: &Client,
    membership: &M,
    places: &mut watch::Receiver<Option<Assigned>>,
    stop: &mut watch::Receiver<bool>,
) -> Result<Option<(Assigned, Followed)>, Error> {
    let mut followed = Followed::default();
    let mut of = None;
    loop {
        let place = places.borrow_and_update().clone();
        let now = place.as_ref().map(|p| (p.fscid, p.rank, p.metadata_pool));
        if now.is_none() && of.is_some() {
            // Also where the map does not know it any more: in either case it comes back as a standby.
            return Err(Lost("it follows its rank no more".into()).into());
        }
        if now != of {
            of = now;
            followed = Followed::default();
            if let Some(leader) = place.as_ref().filter(|p| p.follows) {
                tracing::info!(
                    "mds.{}: follows rank {} of '{}'",
                    c.name,
                    leader.rank,
                    leader.name
                );
            }
        }
        let leader = match place {
            Some(place) if !place.follows => return Ok(Some((place, followed))),
            leader => leader,
        };
        tokio::select! {
            biased;
            _ = stop.wait_for(|s| *s) => return Ok(None),
            changed = places.changed() => changed.map_err(|_| unknown())?,
            done = alive(membership, follow(c, rados, leader, &mut followed)) => done?,
        }
    }
}

fn unknown() -> Lost {
    Lost("the map does not know it any more".into())
}

/// Goes on with something while saying that we live.
async fn alive<M: Membership, T>(membership: &M, work: impl Future<Output = T>) -> T {
    let mut work = std::pin::pin!(work);
    let mut tick = task::interval(TICK);
    loop {
        tokio::select! {
            done = &mut work => return done,
            _ = tick.tick() => membership.alive(),
        }
    }
}

/// Reads a leader's journal for as long as nobody cuts it off. What it cannot make sense of it lets go: whoever takes the rank finds
/// it again, and says so.
async fn follow(
    c: &Config,
    rados: &Client,
    leader: Option<Assigned>,
    followed: &mut Followed,
) -> Result<(), Error> {
    let Some(leader) = leader else {
        return std::future::pending().await;
    };
    let keeper = Keeper::new(rados.clone(), leader.metadata_pool);
    let memory_max = c.cache_bytes as u64 / FOLLOWED_SHARE;
    loop {
        match keeper.follow(followed, memory_max).await {
            Err(e @ Error::Damaged { .. }) => {
                tracing::warn!("mds.{}: {e}; it follows no more", c.name);
                *followed = Followed::default();
                return std::future::pending().await;
            }
            done => done?,
        }
        task::sleep(FOLLOW_EVERY).await;
    }
}

/// Reads what is there, once the instance before can write no more.
async fn begin(
    c: &Config,
    rados: &Client,
    place: &Assigned,
    mut followed: Followed,
) -> Result<(Keeper, Machine), Error> {
    while rados.map()?.epoch < place.osd_epoch {
        if rados.latest_map().await?.epoch < place.osd_epoch {
            task::sleep(TICK).await;
        }
    }
    let keeper = Keeper::new(rados.clone(), place.metadata_pool);
    let began = c.clock.monotonic();
    followed.is_still();
    let known = followed.bytes();
    let start = keeper.begin(place.fresh, followed).await?;
    let took = c.clock.monotonic().saturating_sub(began);
    tracing::info!(
        "mds.{}: rank {} of '{}': {} transactions in {} segments of the journal read in {} ms, {known} bytes of them before",
        c.name,
        place.rank,
        place.name,
        start.journal.len(),
        start.segments.len(),
        took.as_millis()
    );
    let options = Options {
        cache_bytes: c.cache_bytes,
        ..Options::default()
    };
    Ok((keeper, Machine::new(options, place.clone(), start)))
}

/// Clients may come from now on.
fn listen(
    c: &Config,
    listener: Listener,
    addr: EntityAddr,
    rank: i32,
) -> Result<(Connections, mpsc::Receiver<NetEvent>), Error> {
    let (net_tx, net) = mpsc::channel(NET_QUEUE);
    let options = net::Options {
        accounts: c.net.clone(),
        lossless: true,
        ..net::Options::default()
    };
    let config = Arc::new(server_config(c, addr, rank));
    let conns = net::serve(listener, config, options, c.clock.clone(), net_tx)
        .map_err(|source| Error::Listen { addr: c.bind, source })?;
    Ok((conns, net))
}

fn server_config(c: &Config, addr: EntityAddr, rank: i32) -> ServerConfig {
    ServerConfig {
        modes: c.modes.clone(),
        ..ServerConfig::new(
            EntityName::new(EntityKind::Mds, i64::from(rank)),
            EntityAddrVec::one(addr),
            c.auth.clone(),
            c.entropy.clone(),
        )
    }
}

type Done = Result<Event, Error>;

/// States are published one after the other.
async fn report<M: Membership>(
    membership: Rc<M>,
    mut states: mpsc::UnboundedReceiver<MdsState>,
    events: mpsc::UnboundedSender<Done>,
) {
    while let Some(state) = states.recv().await {
        if let Err(lost) = membership.report(state).await {
            // The loop ends by it; if it has ended already nobody is left to be told.
            let _ = events.send(Err(lost.into()));
            return;
        }
    }
}

struct Shell<M> {
    name: String,
    clock: Arc<dyn io::Clock>,
    membership: Rc<M>,
    keeper: Keeper,
    conns: Connections,
    events: mpsc::UnboundedSender<Done>,
    reports: mpsc::UnboundedSender<MdsState>,
    rados: Client,
    meters: Meters,
    pools: BTreeMap<i64, String>,
}

impl<M: Membership + 'static> Shell<M> {
    fn now(&self) -> Now {
        Now {
            monotonic: self.clock.monotonic(),
            wall: Utime::from_unix(self.clock.wall()),
        }
    }

    async fn run(
        mut self,
        mut machine: Machine,
        place: Assigned,
        mut places: watch::Receiver<Option<Assigned>>,
        mut net: mpsc::Receiver<NetEvent>,
        mut events: mpsc::UnboundedReceiver<Done>,
        mut stop: watch::Receiver<bool>,
    ) -> Result<(), Error> {
        let _shown = self.meters.shown();
        self.tell_pools(&mut machine);
        let effects = machine.begin(self.now());
        self.carry_out(effects);
        let mut tick = task::interval(TICK);
        tick.set_missed_tick_behavior(task::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                _ = stop.wait_for(|s| *s) => break,
                Some(done) = events.recv() => {
                    self.check_lease()?;
                    self.apply(&mut machine, done?);
                    while let Ok(done) = events.try_recv() {
                        self.apply(&mut machine, done?);
                    }
                }
                changed = places.changed() => {
                    changed.map_err(|_| unknown())?;
                    let now = places.borrow_and_update().clone();
                    self.moved(&mut machine, &place, now)?;
                }
                _ = tick.tick() => {
                    self.membership.alive();
                    self.check_lease()?;
                    self.tell_pools(&mut machine);
                    self.apply(&mut machine, Event::Tick);
                    self.measure(&machine);
                }
                Some(event) = net.recv() => {
                    self.check_lease()?;
                    self.heard(&mut machine, event);
                    for _ in 1..TURN_MAX {
                        let Ok(event) = net.try_recv() else { break };
                        self.heard(&mut machine, event);
                    }
                }
            }
        }
        self.farewell(&mut machine, &mut events).await
    }

    /// What was accepted becomes durable and is answered.
    async fn farewell(
        &mut self,
        machine: &mut Machine,
        events: &mut mpsc::UnboundedReceiver<Done>,
    ) -> Result<(), Error> {
        let until = self.clock.monotonic() + FAREWELL;
        while !machine.is_durable() && self.clock.monotonic() < until {
            match task::timeout(TICK, events.recv()).await {
                Ok(Some(done)) => self.apply(machine, done?),
                Ok(None) => break,
                Err(_) => self.membership.alive(),
            }
        }
        self.conns.shutdown();
        self.membership.leave().await;
        tracing::info!("mds.{}: stopped", self.name);
        Ok(())
    }

    fn check_lease(&self) -> Result<(), Error> {
        match self.clock.monotonic() < self.membership.lease_until() {
            true => Ok(()),
            false => Err(Lost("its lease has ended".into()).into()),
        }
    }

    fn moved(&self, machine: &mut Machine, was: &Assigned, now: Option<Assigned>) -> Result<(), Error> {
        let now = now.filter(|n| (n.fscid, n.rank, n.incarnation) == (was.fscid, was.rank, was.incarnation));
        let Some(now) = now else {
            return Err(Lost("its rank was given to another, or is no more".into()).into());
        };
        let effects = machine.apply(self.now(), Event::Assigned(now));
        self.carry_out(effects);
        Ok(())
    }

    fn tell_pools(&mut self, machine: &mut Machine) {
        let Ok(map) = self.rados.map() else { return };
        machine.saw_osd_epoch(map.epoch);
        let pools: BTreeMap<i64, String> = map.pool_names.iter().map(|(k, v)| (*k, v.clone())).collect();
        if pools != self.pools {
            self.pools = pools.clone();
            self.apply(machine, Event::Pools(pools));
        }
    }

    fn measure(&self, machine: &Machine) {
        let m = &self.meters;
        m.mds.inodes.set(machine.inodes_len() as u64);
        m.sessions.session_count.set(machine.sessions_len() as u64);
        let (reads, writes) = self.rados.submitted();
        m.objecter.op_r.set(reads);
        m.objecter.op_w.set(writes);
    }

    fn heard(&self, machine: &mut Machine, event: NetEvent) {
        let event = match event {
            NetEvent::Opened { conn, peer } => Event::Opened { conn: conn.0, peer },
            NetEvent::Closed { conn } => Event::Closed { conn: conn.0 },
            NetEvent::Message { conn, msg, .. } => {
                if msg.kind == MClientRequest::KIND {
                    self.meters.mds.request.inc();
                    self.meters.server.handle_client_request.inc();
                }
                Event::Message {
                    conn: conn.0,
                    message: msg,
                }
            }
            NetEvent::Drained => return,
        };
        self.apply(machine, event);
    }

    fn apply(&self, machine: &mut Machine, event: Event) {
        let effects = machine.apply(self.now(), event);
        self.carry_out(effects);
    }

    fn carry_out(&self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                // Where the connection has gone, so has its session's need of it.
                Effect::Send { conn, message } => drop(self.conns.send(ConnId(conn), message)),
                Effect::Close { conn, why } => {
                    tracing::info!("mds.{}: connection {conn} is closed: {why}", self.name);
                    self.conns.close(ConnId(conn));
                }
                Effect::Report(state) => drop(self.reports.send(state)),
                other => self.beside(other),
            }
        }
    }

    /// What takes its time runs beside the loop.
    fn beside(&self, effect: Effect) {
        let (keeper, events) = (self.keeper.clone(), self.events.clone());
        let membership = self.membership.clone();
        drop(task::spawn_local(async move {
            let done = match effect {
                Effect::Nudge { after } => {
                    task::sleep(after).await;
                    Ok(Event::Nudge)
                }
                Effect::Load { id, reads } => keeper.load(id, reads).await,
                Effect::Page { id, read } => keeper.page(id, read).await,
                Effect::Olds { snap, shard, after } => keeper.olds(snap, shard, after).await,
                Effect::DropSnap { id, snap, pools } => keeper.drop_snap(id, snap, pools).await,
                Effect::Append {
                    segment,
                    new,
                    bytes,
                    last_tx,
                } => keeper.append(segment, new, bytes, last_tx).await,
                Effect::Flush { id, writes } => keeper.flush(id, writes).await,
                Effect::Split { dir, fragment } => keeper.split(dir, fragment).await,
                Effect::Trim { first, next_tx, gone } => keeper.trim(first, next_tx, gone).await,
                Effect::Job { id, job } => keeper.job(id, job).await,
                Effect::Trace(trace) => keeper.trace(*trace).await,
                Effect::Fence { client, addr } => match membership.fence(addr).await {
                    Ok(epoch) => Ok(Event::Fenced { client, epoch }),
                    Err(lost) => Err(lost.into()),
                },
                Effect::Send { .. } | Effect::Close { .. } | Effect::Report(_) => return,
            };
            // After the loop's end nobody is left to be told.
            let _ = events.send(done);
        }));
    }
}
