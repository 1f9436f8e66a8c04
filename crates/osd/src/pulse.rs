//! The pulse: what has to go on while the loop works. It renews the lease, and speaks heartbeats with other pulses, beside the loop and on
//! connections of its own, so that an OSD that is busy is neither fenced nor called silent.
//!
//! Vocabulary: the loop *turns*, idle or not, with every beat at least, and says so by [`Pulse::turned`]. It is *stuck* when it has not
//! turned for [`STUCK`]. A peer is *heard* when its pulse has answered lately.
//!
//! Invariants: the pulse speaks for its loop, never for itself. While the loop is stuck the lease is not renewed, no heartbeat is
//! answered, and the OSD is *fenced*: it serves nothing (the loop finds that out when it goes on), and once every check that the loop may have
//! made before is older than the lease's margin the OSD is marked down, so that another serves in its place. The fence falls when the loop turns again
//! and that marking has ended, not before. It shares with the loop a few words and no data of clients.
//!
//! Bounds: [`CONNECTIONS_MAX`] connections from others, each with little memory; one to each peer that is wanted.
//!
//! Not here: what follows from silence (`links`, `membership`), the lifelines, getting a lease.

use crate::links::{BEAT, Heard, LinkId, LinkParts, Links};
use crate::peer_auth;
use auth::{AuthMethod, Authenticator, Entropy};
use io::Clock;
use io::task::{Beside, MissedTickBehavior};
use messages::osd::peer::{KIND, PeerMsg};
use metastore::ClusterHandle;
use metastore::lease::Lease;
use msgr::{ModeSwitch, ServerConfig};
use net::{ConnId, Connections, DialEvent, Doors, NetEvent};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use types::{EntityAddrVec, EntityName, Epoch, OsdId};

/// A loop without a turn for so long hangs, as a disk does that does not end a flush.
pub const STUCK: Duration = Duration::from_secs(3);
/// It goes on when its last turn is no older than this.
const MOVES: Duration = Duration::from_millis(500);
/// The cluster state is asked again after an error.
const ASK_AGAIN: Duration = Duration::from_millis(500);
/// Every other OSD, and some that just connect anew.
const CONNECTIONS_MAX: usize = 2048;
const MESSAGE_BYTES_MAX: usize = 16 << 10;
const TOTAL_BYTES_MAX: usize = 4 << 20;
const OUTPUT_MAX: usize = 64 << 10;
/// Messages that may wait for the pulse.
const QUEUE: usize = 256;

/// What the loop and its pulse share.
#[derive(Debug, Default)]
pub struct Pulse {
    /// When the loop turned last, in nanoseconds of the OSD's clock.
    turned: AtomicU64,
    fenced: AtomicBool,
    ended: AtomicBool,
    lease: Mutex<Option<Lease>>,
    heard: Mutex<BTreeSet<OsdId>>,
}

impl Pulse {
    /// The loop turns.
    pub fn turned(&self, now: Duration) {
        io::panics::point("loop");
        self.turned.store(now.as_nanos() as u64, Ordering::Relaxed);
    }

    /// True: the loop was stuck, and others may serve in its place.
    pub fn is_fenced(&self) -> bool {
        self.fenced.load(Ordering::Acquire)
    }

    /// It ended without being told to.
    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// From now on this lease is renewed.
    pub fn hold(&self, lease: &Lease) {
        *self.lease.lock().unwrap_or_else(PoisonError::into_inner) = Some(lease.clone());
    }

    /// Peers whose pulses answer.
    pub fn heard(&self) -> BTreeSet<OsdId> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn lease(&self) -> Option<Lease> {
        self.lease.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

pub struct PulseParts {
    pub me: OsdId,
    pub cluster: ClusterHandle,
    pub auth: Arc<dyn Authenticator>,
    /// How connections are protected: as those of the OSD itself.
    pub modes: Arc<ModeSwitch>,
    pub clock: Arc<dyn Clock>,
    pub entropy: Arc<dyn Entropy>,
    pub nonce: u32,
    /// For heartbeats alone.
    pub doors: Doors,
    pub addrs: EntityAddrVec,
    /// Of the lease: how old what the loop has looked at may be when it acts.
    pub margin: Duration,
    pub shared: Arc<Pulse>,
}

/// The loop's hold on its pulse. Dropped, the pulse ends, and nothing of it is left.
#[derive(Debug)]
pub struct Beating {
    wanted: watch::Sender<BTreeMap<OsdId, EntityAddrVec>>,
    stop: Option<oneshot::Sender<()>>,
    part: Option<Beside>,
}

impl Beating {
    /// The peers whose pulses are to be heard, and where they are.
    pub fn want(&self, wanted: BTreeMap<OsdId, EntityAddrVec>) {
        self.wanted.send_if_modified(|before| {
            let other = *before != wanted;
            *before = wanted;
            other
        });
    }
}

impl Drop for Beating {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(part) = self.part.take() {
            part.join();
        }
    }
}

/// Starts the pulse of an OSD. Nothing is renewed before a lease is held.
pub fn start(p: PulseParts) -> std::io::Result<Beating> {
    let (wanted, wants) = watch::channel(BTreeMap::new());
    let (stop, stopped) = oneshot::channel();
    p.shared.turned(p.clock.monotonic());
    let name = format!("osd.{}-pulse", p.me);
    let part = io::task::spawn_beside(&name, move || async move {
        let guard = Ended(p.shared.clone());
        run(p, wants, stopped).await;
        drop(guard);
    })?;
    Ok(Beating {
        wanted,
        stop: Some(stop),
        part: Some(part),
    })
}

/// Says that it has ended, also by a panic.
struct Ended(Arc<Pulse>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.ended.store(true, Ordering::Release);
    }
}

async fn run(
    p: PulseParts,
    mut wants: watch::Receiver<BTreeMap<OsdId, EntityAddrVec>>,
    mut stop: oneshot::Receiver<()>,
) {
    let (net_tx, mut net_rx) = mpsc::channel(QUEUE);
    let (link_tx, mut link_rx) = mpsc::channel(QUEUE);
    let mut config = ServerConfig::new(
        EntityName::osd(p.me),
        p.addrs.clone(),
        p.auth.clone(),
        p.entropy.clone(),
    );
    config.lifelines = false;
    config.modes = p.modes;
    let options = net::Options {
        connections_max: CONNECTIONS_MAX,
        message_bytes_max: MESSAGE_BYTES_MAX,
        accounts: net::Accounts::alone(TOTAL_BYTES_MAX),
        output_pause: OUTPUT_MAX / 2,
        output_max: OUTPUT_MAX,
        ..net::Options::default()
    };
    let conns = match net::serve(p.doors, Arc::new(config), options, p.clock.clone(), net_tx) {
        Ok(conns) => conns,
        Err(e) => return tracing::error!("osd.{}: cannot listen for heartbeats: {e}", p.me),
    };
    let links = Links::new(LinkParts {
        me: p.me,
        cluster: p.cluster.clone(),
        without_auth: p.auth.methods().contains(&AuthMethod::None),
        clock: p.clock.clone(),
        entropy: p.entropy.clone(),
        nonce: p.nonce,
        output_max: OUTPUT_MAX,
        meter: net::Meter::default(),
        // Sockets, for all of them: what the kernel does not carry is not heard.
        lanes: net::Lanes::default(),
        events: link_tx,
    });
    let mut heart = Heart {
        me: p.me,
        cluster: p.cluster,
        clock: p.clock,
        margin: p.margin,
        shared: p.shared,
        conns,
        links,
        touched: Duration::ZERO,
        marking: Rc::default(),
    };
    let mut beat = io::task::interval(BEAT);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let now = heart.clock.monotonic();
        let timer = heart.links.next_timer().map(|at| at.saturating_sub(now));
        tokio::select! {
            biased;
            _ = &mut stop => break,
            _ = beat.tick() => heart.beat(),
            Ok(()) = wants.changed() => heart.want(&wants.borrow_and_update()),
            Some((id, event)) = link_rx.recv() => heart.on_link(id, event),
            Some(event) = net_rx.recv() => heart.on_net(event),
            () = io::task::sleep(timer.unwrap_or(BEAT)) => heart.links.step(),
        }
    }
    heart.conns.shutdown();
}

struct Heart {
    me: OsdId,
    cluster: ClusterHandle,
    clock: Arc<dyn Clock>,
    margin: Duration,
    shared: Arc<Pulse>,
    conns: Connections,
    links: Links,
    /// The lease was last asked to be renewed.
    touched: Duration,
    /// This OSD is being marked down.
    marking: Rc<Cell<bool>>,
}

impl Heart {
    fn beat(&mut self) {
        io::panics::point("pulse");
        self.watch_loop();
        self.renew();
        self.links.beat(self.epoch(), &BTreeSet::new());
        self.links.step();
        self.tell_heard();
    }

    fn epoch(&self) -> Epoch {
        self.cluster.osdmap().epoch
    }

    /// Since when the loop has not turned.
    fn still(&self) -> Duration {
        let turned = Duration::from_nanos(self.shared.turned.load(Ordering::Relaxed));
        self.clock.monotonic().saturating_sub(turned)
    }

    fn watch_loop(&mut self) {
        let still = self.still();
        let fenced = self.shared.is_fenced();
        if !fenced && still >= STUCK && self.shared.lease().is_some() {
            self.shared.fenced.store(true, Ordering::Release);
            tracing::error!(
                "osd.{}: the loop has not turned for {} ms: it serves no more",
                self.me,
                still.as_millis()
            );
            self.mark_down();
        } else if fenced && still < MOVES && !self.marking.get() {
            tracing::warn!("osd.{}: the loop goes on", self.me);
            self.shared.fenced.store(false, Ordering::Release);
        }
    }

    fn mark_down(&self) {
        self.marking.set(true);
        let (cluster, marking, id) = (self.cluster.clone(), self.marking.clone(), self.me);
        let margin = self.margin;
        io::task::spawn_local(async move {
            // What the loop does now may rest on a look at the lease so long ago, as at the lease's end.
            io::task::sleep(margin).await;
            while let Err(e) = cluster.step_down(id, "its loop hangs").await {
                tracing::warn!("osd.{id}: not marked down: {e}");
                io::task::sleep(ASK_AGAIN).await;
            }
            marking.set(false);
        });
    }

    fn renew(&mut self) {
        if self.still() >= STUCK || self.shared.is_fenced() {
            return;
        }
        let now = self.clock.monotonic();
        let Some(lease) = self.shared.lease().filter(|l| !l.has_ended()) else {
            return;
        };
        if now >= self.touched + lease.ttl() / 5 {
            self.touched = now;
            lease.touch();
        }
    }

    fn want(&mut self, wanted: &BTreeMap<OsdId, EntityAddrVec>) {
        self.links.want(wanted);
        self.links.step();
        self.tell_heard();
    }

    fn on_link(&mut self, id: LinkId, event: DialEvent) {
        match self.links.on_event(id, event) {
            Heard::Message(from, m) => {
                if let Ok(PeerMsg::Pong { stamp, .. }) = PeerMsg::from_message(&m) {
                    self.links.pong(from, stamp);
                }
                return;
            }
            Heard::Up(_) | Heard::Down(_) => self.tell_heard(),
            Heard::Gone(_) | Heard::Nothing => {}
        }
        self.links.step();
    }

    fn tell_heard(&self) {
        let heard: BTreeSet<OsdId> = self.links.open().collect();
        *self.shared.heard.lock().unwrap_or_else(PoisonError::into_inner) = heard;
    }

    fn on_net(&mut self, event: NetEvent) {
        match event {
            NetEvent::Opened { conn, peer } => {
                if peer_auth::osd_of(&peer.auth_name).is_none() {
                    tracing::warn!(
                        "{conn}: {} is no OSD, but wants heartbeats: closed",
                        peer.auth_name
                    );
                    self.conns.close(conn);
                }
            }
            NetEvent::Message { conn, msg, .. } => self.on_message(conn, &msg),
            NetEvent::Drained | NetEvent::Closed { .. } => {}
        }
    }

    fn on_message(&mut self, conn: ConnId, msg: &msgr::Message) {
        let osd = |p: Arc<msgr::Peer>| peer_auth::osd_of(&p.auth_name).is_some();
        if msg.kind != KIND || !self.conns.peer(conn).is_some_and(osd) {
            return self.conns.close(conn);
        }
        match PeerMsg::from_message(msg) {
            Ok(PeerMsg::Ping { stamp, .. }) if !self.is_silent() => {
                let epoch = self.epoch();
                self.conns.send(conn, PeerMsg::Pong { stamp, epoch }.to_message());
            }
            Ok(PeerMsg::Ping { .. }) => {}
            _ => self.conns.close(conn),
        }
    }

    /// Who waits for the loop would wait in vain.
    fn is_silent(&self) -> bool {
        self.still() >= STUCK || self.shared.is_fenced()
    }
}
