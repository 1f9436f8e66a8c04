//! An OSD's life: open the store, listen, join the map, run the event loop, stop cleanly.

use crate::event::{Event, StateReply};
use crate::links::{self, LinkId, LinkParts, Links};
use crate::membership::{Membership, MembershipParts};
use crate::memory::Memory;
use crate::meters::Meters;
use crate::modes;
use crate::ops::traces::{Tracer, Traces};
use crate::osd::{Osd, Parts, Spare};
use crate::peers::Peers;
use crate::pulse::{self, Pulse, PulseParts};
use crate::store_view::StoreView;
use crate::turns::Part;
use auth::{AuthMethod, Authenticator, Entropy};
use cluster::OsdBoot;
use io::task::Readable;
use io::{Clock, Random};
use metastore::ClusterHandle;
use metastore::lease::LeaseTimes;
use msgr::{ModeSwitch, ServerConfig};
use net::{DialEvent, Doors, Lifelines, Msgr1, NetEvent};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use store::Store;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use types::{EntityAddr, EntityAddrVec, EntityName, OsdId};

/// Messages of all connections that may wait for the loop.
const NET_QUEUE: usize = 1024;
/// Messages applied in one turn before the store is kicked: bounds the wait of the first of them.
const TURN_MAX: usize = 64;
/// No further one is begun in a turn that has lasted so long: what else waits (the lease, heartbeats) has its turn.
const TURN_TIME_MAX: Duration = Duration::from_millis(20);
/// Times 5 ms that a stopping OSD waits for its last answers to leave.
const LAST_WORDS_MAX: u32 = 200;
/// A stopping OSD does not wait longer for the cluster state: its lease ends by itself.
const FAREWELL_MAX: Duration = Duration::from_secs(5);
/// Ticks between two reports. In a large cluster more, so that the cluster state is not kept busy with them: each is a transaction
/// that every process hears of. Well below what the monitor takes for silence.
const REPORT_EVERY: std::ops::RangeInclusive<u32> = 3..=10;
/// Reports of all OSDs at a tick that make it more.
const REPORTS_MAX: usize = 30;

pub struct Config {
    pub id: OsdId,
    pub dir: PathBuf,
    pub store: store::Options,
    pub memory: Memory,
    /// Where it shows what it counts.
    pub registry: metrics::Registry,
    /// Where to listen; port 0 takes a free one.
    pub bind: SocketAddr,
    /// Messenger v1 for clients, beside v2; other OSDs come by v2 alone.
    pub msgr1: Option<Msgr1>,
    pub auth: Arc<dyn Authenticator>,
    pub cluster: ClusterHandle,
    pub peers: Peers,
    /// Where some operations are told as traces; None: nowhere.
    pub traces: Option<Traces>,
    pub clock: Arc<dyn Clock>,
    pub random: Arc<dyn Random>,
    /// Randomness for handshakes.
    pub entropy: Arc<dyn Entropy>,
    pub hostname: String,
    /// The class that it gets when it is made: hdd, ssd, or empty for none.
    pub device_class: String,
    /// The disk that it lies on, as the kernel calls it; empty where there is none of this machine.
    pub disk: String,
    pub nonce: u32,
    /// OSDs that share the free space of its file system: each reports its part of it.
    pub disk_share: u32,
    /// It lives in space that its host can spare, and says how much that is.
    pub spare: bool,
    /// Connections at once.
    pub connections_max: usize,
    /// How long it may serve without a word from the cluster state.
    pub lease: LeaseTimes,
    /// A flush that takes longer means that the disk hangs.
    pub hung_disk: Duration,
}

impl Config {
    /// As long as etcd's shortest; enough for a loop that waits for a processor.
    pub const LEASE: LeaseTimes = LeaseTimes {
        ttl: Duration::from_secs(2),
        margin: Duration::from_millis(300),
    };
    pub const HUNG_DISK: Duration = Duration::from_secs(3);
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{0}")]
    Store(#[from] store::Error),
    #[error("{0}")]
    Bind(#[from] net::NotBound),
    #[error("cannot listen: {0}")]
    Listen(std::io::Error),
    #[error("cannot start its pulse: {0}")]
    Pulse(std::io::Error),
    #[error("its pulse has ended")]
    PulseEnded,
    #[error("cannot wait for the disk: {0}")]
    Disk(std::io::Error),
    #[error("cannot open or close the store beside its loop: {0}")]
    Aside(std::io::Error),
    #[error("cluster state: {0}")]
    Cluster(#[from] metastore::Error),
}

/// Serves until `stop` turns true. `ready` is told the address when the OSD is up in the map.
pub async fn serve(
    c: Config,
    ready: oneshot::Sender<EntityAddr>,
    mut stop: watch::Receiver<bool>,
) -> Result<(), Error> {
    // First made, last dropped, also where something panics: when its lifelines end, nothing of this OSD serves any more.
    let lifelines = Lifelines::default();
    let wake = Arc::new(Notify::new());
    let store = open(&c, wake.clone()).await?;
    let (doors, addrs) = Doors::bind(c.bind, c.msgr1, c.nonce)?;
    let addr = addrs.msgr2_or_first();
    // Heartbeats have a port of their own, which the system chooses.
    let (hb_doors, hb_addrs) = Doors::bind(SocketAddr::new(c.bind.ip(), 0), None, c.nonce)?;
    let (net_tx, net_rx) = mpsc::channel(NET_QUEUE);
    let meters = Meters::new(c.registry.clone(), &c.memory);
    let modes = ModeSwitch::new(modes::of(&c.cluster.state(), c.id));
    let met = net::Options {
        connections_max: c.connections_max,
        accounts: meters.net.clone(),
        lifelines: lifelines.intake(),
        lanes: Some((c.peers.lanes.clone(), addr)),
        ..net::Options::default()
    };
    let config = Arc::new(server_config(&c, addrs.clone(), modes.clone()));
    let conns = net::serve(doors, config, met, c.clock.clone(), net_tx).map_err(Error::Listen)?;
    let fetches = c.peers.register(c.id);
    let (fetched_tx, fetched_rx) = mpsc::unbounded_channel();
    let identity = store.identity();
    let readable = |fd: Option<_>| fd.map(Readable::new).transpose().map_err(Error::Disk);
    let (reads, log) = (readable(store.reads_fd())?, readable(store.log_fd())?);
    let size = crate::report::space(&store.statfs(), c.disk_share).0;
    let (link_tx, link_rx) = mpsc::channel(links::QUEUE);
    let (replies_tx, replies_rx) = mpsc::unbounded_channel();
    let links = links(&c, &meters, link_tx);
    let pulse = Arc::new(Pulse::default());
    let membership = Membership::new(MembershipParts {
        clock: c.clock.clone(),
        pulse: pulse.clone(),
        boot: boot(&c, &addrs, &hb_addrs, identity.osd_uuid, size),
        run: c.nonce,
        times: c.lease,
        hung_after: c.hung_disk,
        ready: Some((ready, addr)),
    });
    let mut osd = Osd::new(Parts {
        id: c.id,
        store: StoreView::new(store),
        cluster: c.cluster.clone(),
        conns,
        peers: c.peers.clone(),
        clock: c.clock.clone(),
        random: c.random.clone(),
        disk_share: c.disk_share,
        spare: c.spare.then(|| Spare {
            dir: c.dir.clone(),
            reserve: c.store.host_reserve_bytes,
        }),
        meters,
        fetched: fetched_tx,
        state_replies: replies_tx,
        links,
        membership,
    });
    let state = c.cluster.subscribe_state();
    let beating = pulse::start(PulseParts {
        me: c.id,
        cluster: c.cluster.clone(),
        auth: c.auth.clone(),
        modes: modes.clone(),
        clock: c.clock.clone(),
        entropy: c.entropy.clone(),
        nonce: c.nonce,
        doors: hb_doors,
        addrs: hb_addrs,
        margin: c.lease.margin,
        shared: pulse.clone(),
    });
    osd.beating = Some(beating.map_err(Error::Pulse)?);
    osd.tracer = Tracer::new(c.traces.clone());
    osd.want_peers();
    osd.settle_slots();
    osd.store.engine.kick();

    let mut sources = Sources {
        state_replies: replies_rx,
        links: link_rx,
        net: net_rx,
        fetches,
        fetched: fetched_rx,
        wake,
        reads,
        log,
    };
    let (mut tick, mut beat) = (every(Duration::from_secs(1)), every(links::BEAT));
    let mut ticks = 0u32;
    // What is rare stays registered over many turns: to register it anew costs as much as a short turn.
    let mut stopped = pin!(stop.wait_for(|s| *s));
    let mut newer = pin!(next_state(state));
    let mut timer = pin!(io::task::sleep(Duration::ZERO));
    let mut armed = None; // what the timer stands at
    loop {
        let now = c.clock.monotonic();
        pulse.turned(now);
        osd.turns.did(Part::Submit as usize, now);
        if let Some(line) = osd.turns.end(now) {
            tracing::warn!("osd.{}: {line}", c.id);
        }
        let want = osd.next_timer();
        if armed != Some(want) {
            armed = Some(want);
            let wait = want.map_or(Duration::from_secs(3600), |at| at.saturating_sub(now));
            timer.set(io::task::sleep(wait));
        }
        // Rare things before the flood: under load `sources` is always ready, and an OSD that hears of no map and
        // sends no report is taken for dead.
        let event = tokio::select! {
            biased;
            _ = &mut stopped => Event::Stop,
            state = &mut newer => {
                newer.set(next_state(state));
                Event::Cluster
            }
            _ = beat.tick() => Event::Beat,
            _ = tick.tick() => Event::Tick,
            event = sources.next() => event,
            () = &mut timer => {
                armed = None;
                Event::Timer
            }
        };
        let began = c.clock.monotonic();
        osd.turns.begin(began);
        let part = event.part();
        match event {
            Event::Stop => break,
            Event::Beat if pulse.has_ended() => return Err(Error::PulseEnded),
            Event::Cluster => modes.set(modes::of(&c.cluster.state(), c.id)),
            Event::Tick => osd.on_timer(),
            _ => {}
        }
        apply(&mut osd, event)?;
        match part {
            Part::Net => apply_more(&mut osd, began, part, &mut sources.net, Osd::on_net),
            Part::Link => apply_more(&mut osd, began, part, &mut sources.links, |osd, (id, event)| {
                osd.on_link(id, event)
            }),
            Part::Tick => report_by_and_by(&mut osd, &mut ticks),
            _ => {}
        }
        osd.turns.did(part as usize, c.clock.monotonic());
        osd.end_turn();
        osd.turns.did(Part::End as usize, c.clock.monotonic());
        osd.store.engine.kick();
        if let Some(e) = osd.store.engine.failed() {
            // What is not durable now will never be acknowledged; a restart goes on from the log.
            tracing::error!("osd.{}: stopping: {e}", c.id);
            return Err(Error::Store(e));
        }
        if cfg!(debug_assertions)
            && let Some(drag) = crate::probe::drag(c.id)
        {
            io::task::sleep(drag).await;
        }
        if matches!(part, Part::Beat | Part::Tick) {
            // Counted from the end of the turn: where turns take longer than a beat, something else has its turn in between.
            beat.reset();
        }
    }
    drop(sources);
    finish(osd, &c).await
}

/// The store, whose log this loop writes where it can. What its log has to say again may take long, and other OSDs may share
/// the thread.
async fn open(c: &Config, wake: Arc<Notify>) -> Result<Store, Error> {
    let options = store::Options {
        own_log: true,
        ..c.store.clone()
    };
    let dir = c.dir.clone();
    let open = move || Store::open(&dir, &options, Arc::new(move || wake.notify_one()));
    let opened = io::task::aside("store-open", open);
    Ok(opened.await.map_err(Error::Aside)??)
}

/// Ticks, the first one at once; one that comes late puts off those behind it.
fn every(period: Duration) -> io::task::Interval {
    let mut interval = io::task::interval(period);
    interval.set_missed_tick_behavior(io::task::MissedTickBehavior::Delay);
    interval
}

/// Ticks between two reports of an OSD where so many are up.
fn report_every(up: usize) -> u32 {
    let (least, most) = REPORT_EVERY.into_inner();
    u32::try_from(up.div_ceil(REPORTS_MAX)).map_or(most, |n| n.clamp(least, most))
}

fn report_by_and_by(osd: &mut Osd, ticks: &mut u32) {
    if ticks.is_multiple_of(report_every(osd.cluster.osdmap().num_up_osds())) {
        osd.flush_report();
    }
    *ticks = ticks.wrapping_add(1);
}

/// How other OSDs are dialled.
fn links(c: &Config, meters: &Meters, events: mpsc::Sender<(LinkId, DialEvent)>) -> Links {
    Links::new(LinkParts {
        me: c.id,
        cluster: c.cluster.clone(),
        without_auth: c.auth.methods().contains(&AuthMethod::None),
        clock: c.clock.clone(),
        entropy: c.entropy.clone(),
        nonce: c.nonce,
        output_max: links::OUTPUT_MAX,
        meter: net::Meter {
            output: meters.net.peers.clone(),
            perf: meters.net.perf.clone(),
        },
        lanes: c.peers.lanes.clone(),
        events,
    })
}

/// How clients and other OSDs are met.
fn server_config(c: &Config, addrs: EntityAddrVec, modes: Arc<ModeSwitch>) -> ServerConfig {
    ServerConfig {
        modes,
        lifelines: true,
        ..ServerConfig::new(EntityName::osd(c.id), addrs, c.auth.clone(), c.entropy.clone())
    }
}

/// What is no more than one call.
fn apply(osd: &mut Osd, event: Event) -> Result<(), Error> {
    match event {
        Event::Store => osd.on_store(),
        Event::StateReply(reply) => osd.on_state_reply(reply)?,
        Event::Beat => {
            osd.disk_time.arm();
            osd.on_beat();
        }
        Event::Cluster => {
            let served = osd.pgs().count();
            osd.on_cluster();
            // New groups are known at once, not only with the next report.
            if osd.pgs().count() != served {
                osd.flush_report();
            }
        }
        Event::Fetch(request) => osd.on_fetch(request),
        Event::Fetched { pg, id, result } => osd.on_fetched(pg, id, result),
        Event::Timer => osd.on_timer(),
        Event::Net(event) => osd.on_net(event),
        Event::Link(id, event) => osd.on_link(id, event),
        Event::Tick => osd.on_tick(),
        Event::Stop => {}
    }
    Ok(())
}

/// The messages that wait behind the first one, until the turn has lasted long enough.
fn apply_more<T>(
    osd: &mut Osd,
    began: Duration,
    part: Part,
    queue: &mut mpsc::Receiver<T>,
    mut apply: impl FnMut(&mut Osd, T),
) {
    for _ in 1..TURN_MAX {
        let now = osd.clock.monotonic();
        if now >= began + TURN_TIME_MAX {
            break;
        }
        let Ok(event) = queue.try_recv() else { break };
        osd.turns.did(part as usize, now);
        apply(osd, event);
    }
}

/// Leaves the map, lets what was accepted become durable and be answered, and closes the store.
async fn finish(mut osd: Osd, c: &Config) -> Result<(), Error> {
    // The loop turns no more: nobody speaks for it.
    osd.beating = None;
    match io::task::timeout(FAREWELL_MAX, c.cluster.osd_down(c.id)).await {
        Ok(Ok(_)) => {}
        Ok(Err(e)) => tracing::warn!("osd.{}: not marked down: {e}", c.id),
        Err(_) => tracing::warn!("osd.{}: not marked down: the cluster state does not answer", c.id),
    }
    let queued = osd.store.engine.queued();
    osd.store.engine.wait(queued)?;
    osd.on_store();
    if let Some(lease) = osd.membership.lease() {
        let ended = io::task::timeout(FAREWELL_MAX, c.cluster.end_lease(lease)).await;
        if !matches!(ended, Ok(Ok(()))) {
            tracing::debug!("osd.{}: its lease is left to end by itself", c.id);
        }
    }
    for _ in 0..LAST_WORDS_MAX {
        if osd.sessions.ids().all(|c| osd.conns.queued_bytes(c) == 0) {
            break;
        }
        io::task::sleep(Duration::from_millis(5)).await;
    }
    osd.conns.shutdown();
    osd.forget_all();
    let engine = osd.store.engine;
    let closed = io::task::aside("store-close", move || engine.close());
    closed.await.map_err(Error::Aside)??;
    tracing::info!("osd.{}: stopped", c.id);
    Ok(())
}

struct Sources {
    state_replies: mpsc::UnboundedReceiver<StateReply>,
    links: mpsc::Receiver<(LinkId, DialEvent)>,
    net: mpsc::Receiver<NetEvent>,
    fetches: mpsc::Receiver<crate::peers::FetchRequest>,
    fetched: mpsc::UnboundedReceiver<(types::SPgId, u64, crate::peers::Copied)>,
    wake: Arc<Notify>,
    /// The disk's reads, where it has any beside the loop.
    reads: Option<Readable>,
    /// The log's writes that the loop has begun.
    log: Option<Readable>,
}

/// There is a newer state; where no more will come: never.
async fn next_state<T>(mut state: watch::Receiver<T>) -> watch::Receiver<T> {
    if state.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
    state
}

/// The disk has read or written something. Without such requests beside the loop: never.
async fn turned(requests: &mut Option<Readable>) {
    let Some(r) = requests else {
        return std::future::pending().await;
    };
    if let Err(e) = r.turned().await {
        // Not to be expected of a descriptor that is open; what waits is looked at once a second then.
        tracing::error!("waiting for the disk: {e}");
        *requests = None;
    }
}

impl Sources {
    /// Flushes and reads first: they free clients that wait.
    async fn next(&mut self) -> Event {
        tokio::select! {
            biased;
            () = self.wake.notified() => Event::Store,
            () = turned(&mut self.log) => Event::Store,
            () = turned(&mut self.reads) => Event::Store,
            Some(reply) = self.state_replies.recv() => Event::StateReply(reply),
            // Answers of members before new work of clients.
            Some((id, event)) = self.links.recv() => Event::Link(id, event),
            Some((pg, id, result)) = self.fetched.recv() => Event::Fetched { pg, id, result },
            Some(event) = self.net.recv() => Event::Net(event),
            Some(request) = self.fetches.recv() => Event::Fetch(request),
        }
    }
}

fn boot(
    c: &Config,
    addrs: &EntityAddrVec,
    hb_addrs: &EntityAddrVec,
    uuid: types::Uuid,
    size: u64,
) -> OsdBoot {
    // Where other OSDs come.
    let cluster_addrs = EntityAddrVec::one(addrs.msgr2_or_first());
    let mut metadata = BTreeMap::from([
        ("id".to_string(), c.id.to_string()),
        ("hostname".to_string(), c.hostname.clone()),
        ("osd_data".to_string(), c.dir.display().to_string()),
        ("osd_objectstore".to_string(), "skep".to_string()),
        ("hb_back_addr".to_string(), hb_addrs.to_string()),
        ("hb_front_addr".to_string(), hb_addrs.to_string()),
        ("front_addr".to_string(), addrs.to_string()),
        ("back_addr".to_string(), cluster_addrs.to_string()),
    ]);
    if !c.disk.is_empty() {
        metadata.insert("devices".to_string(), c.disk.clone());
    }
    let is_sealed = c.dir.join(io::disk::sealed::FILE).exists();
    metadata.insert("encrypted".to_string(), u8::from(is_sealed).to_string());
    let serves = u8::from(crate::placement::SERVES_SHARDS).to_string();
    metadata.insert(cluster::facts::SERVES_SHARDS.to_string(), serves);
    let versions = types::release::VERSION_FACTS;
    metadata.extend(versions.map(|(k, v)| (k.to_string(), v.to_string())));
    OsdBoot {
        id: c.id,
        uuid,
        client_addrs: addrs.clone(),
        cluster_addrs,
        hb_back_addrs: hb_addrs.clone(),
        hb_front_addrs: hb_addrs.clone(),
        size_bytes: size,
        host: c.hostname.clone(),
        device_class: c.device_class.clone(),
        features: msgr::features::SUPPORTED,
        metadata,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn osds_of_a_large_cluster_report_less_often() {
        assert_eq!([1, 3, 90].map(report_every), [3; 3]);
        assert_eq!([91, 120, 121, 300].map(report_every), [4, 4, 5, 10]);
        assert_eq!([301, 10_000, usize::MAX].map(report_every), [10; 3]);
    }
}
