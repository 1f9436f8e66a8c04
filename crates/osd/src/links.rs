//! Connections that this OSD dials to other OSDs: requests of its primaries go out on them, answers come back,
//! and heartbeats tell who is silent. Beside each link goes a [`Lifeline`], which tells who is gone.
//!
//! A link is silent when nothing came on it for as long as its [`Patience`] goes, and the peer's pulse is not heard either; nothing on it for
//! [`HEARD_MAX`] heartbeats is the end of it in any case.
//!
//! Invariants: at most one link per peer, with one lifeline; [`Heard::Up`] and [`Heard::Down`] of a peer alternate; what is heard of an
//! earlier connection to it is dropped. Bounds: [`OUTPUT_MAX`] bytes wait for a peer, then the link is ended.
//!
//! Not here: what the messages mean (`peering`), who is wanted (`placement`), what follows from silence (`membership`).

use crate::lifeline::{KEEP_ALIVE, Lifeline};
use crate::modes;
use crate::patience::Patience;
use crate::peer_auth::{self, PeerAuth};
use auth::{ConMode, Entropy};
use io::Clock;
use messages::osd::peer::PeerMsg;
use metastore::ClusterHandle;
use msgr::{ClientConfig, Message};
use net::{DialEvent, DialOptions, Dialled, Lanes, Meter};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use types::{EntityAddr, EntityAddrVec, EntityKind, Epoch, OsdId, Utime};

/// Time between two heartbeats.
pub const BEAT: Duration = Duration::from_millis(200);
/// Heartbeats without a word before a peer whose pulse is heard is silent all the same: the connection is dead. Longer than a loop may stand still.
const HEARD_MAX: u32 = 20;
/// Without a connection for so long a peer is called silent, if it is not heard.
const LOST: Duration = Duration::from_secs(1);
/// Bytes that may wait for one peer: more than all clients together may have in flight.
pub const OUTPUT_MAX: usize = 256 << 20;
const HANDSHAKE: Duration = Duration::from_secs(1);
const BACKOFF_MIN: Duration = Duration::from_millis(50);
const BACKOFF_MAX: Duration = Duration::from_secs(1);
/// Of the handshake of a lifeline.
const LIFELINE_OUTPUT_MAX: usize = 64 << 10;
/// Messages of all links that may wait for the loop.
pub const QUEUE: usize = 1024;

/// Names one connection to a peer; never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkId {
    pub osd: OsdId,
    run: u64,
}

/// What a link's event means.
#[derive(Debug)]
pub enum Heard {
    Nothing,
    Up(OsdId),
    Down(OsdId),
    /// Its process is gone; as long as it is wanted [`Links::gone`] has it.
    Gone(OsdId),
    Message(OsdId, Message),
}

#[derive(Debug)]
enum State {
    /// Dialled again at this time.
    Waiting(Duration),
    Dialling(Dialled<PeerAuth>),
    Open(Dialled<PeerAuth>),
}

#[derive(Debug)]
struct Link {
    addrs: EntityAddrVec,
    run: u64,
    state: State,
    backoff: Duration,
    /// Heartbeats since the last word.
    quiet: u32,
    patience: Patience,
    lifeline: Lifeline,
    /// Without a connection since then.
    lost: Option<Duration>,
    /// Smoothed round trip of heartbeats.
    rtt: Option<Duration>,
}

pub struct Links {
    me: OsdId,
    cluster: ClusterHandle,
    /// Authentication is off in this cluster.
    without_auth: bool,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    nonce: u32,
    output_max: usize,
    meter: Meter,
    lanes: Lanes,
    events: mpsc::Sender<(LinkId, DialEvent)>,
    links: BTreeMap<OsdId, Link>,
    runs: u64,
}

pub struct LinkParts {
    pub me: OsdId,
    pub cluster: ClusterHandle,
    pub without_auth: bool,
    pub clock: Arc<dyn Clock>,
    pub entropy: Arc<dyn Entropy>,
    pub nonce: u32,
    /// Bytes that may wait for one peer.
    pub output_max: usize,
    pub meter: Meter,
    pub lanes: Lanes,
    pub events: mpsc::Sender<(LinkId, DialEvent)>,
}

impl Links {
    pub fn new(p: LinkParts) -> Self {
        Self {
            me: p.me,
            cluster: p.cluster,
            without_auth: p.without_auth,
            clock: p.clock,
            entropy: p.entropy,
            nonce: p.nonce,
            output_max: p.output_max,
            meter: p.meter,
            lanes: p.lanes,
            events: p.events,
            links: BTreeMap::new(),
            runs: 0,
        }
    }

    /// The peers to be connected with, and where they are. Returns those whose connection this ends: gone ones,
    /// and such as run elsewhere now.
    pub fn want(&mut self, wanted: &BTreeMap<OsdId, EntityAddrVec>) -> Vec<OsdId> {
        let now = self.clock.monotonic();
        let mut ended = Vec::new();
        self.links.retain(|osd, link| {
            let stays = wanted.get(osd) == Some(&link.addrs);
            if !stays && matches!(link.state, State::Open(_)) {
                ended.push(*osd);
            }
            stays
        });
        for (osd, addrs) in wanted {
            self.links.entry(*osd).or_insert_with(|| Link {
                addrs: addrs.clone(),
                run: 0,
                state: State::Waiting(now),
                backoff: BACKOFF_MIN,
                quiet: 0,
                patience: Patience::default(),
                lifeline: Lifeline::default(),
                lost: Some(now),
                rtt: None,
            });
        }
        ended
    }

    /// Dials those whose time has come.
    pub fn step(&mut self) {
        let now = self.clock.monotonic();
        let due = |at: Option<Duration>| at.is_some_and(|at| at <= now);
        let links: Vec<OsdId> = self.which(|l| due(l.due()));
        for osd in links {
            self.dial(osd, now);
        }
        let lifelines: Vec<OsdId> = self.which(|l| due(l.lifeline_due()));
        for osd in lifelines {
            self.dial_lifeline(osd, now);
        }
    }

    fn which(&self, f: impl Fn(&Link) -> bool) -> Vec<OsdId> {
        self.links.iter().filter(|(_, l)| f(l)).map(|(o, _)| *o).collect()
    }

    pub fn next_timer(&self) -> Option<Duration> {
        let times = self.links.values().flat_map(|l| [l.due(), l.lifeline_due()]);
        times.flatten().min()
    }

    fn dial(&mut self, osd: OsdId, now: Duration) {
        let dialled = self.connect(osd, false);
        let Some(link) = self.links.get_mut(&osd) else {
            return;
        };
        match dialled {
            Some((run, dialled)) => (link.run, link.state) = (run, State::Dialling(dialled)),
            None => {
                tracing::warn!(
                    "osd.{}: osd.{osd} has no address, or the cluster no secrets",
                    self.me
                );
                link.state = State::Waiting(now + BACKOFF_MAX);
            }
        }
    }

    fn dial_lifeline(&mut self, osd: OsdId, now: Duration) {
        let dialled = self.connect(osd, true);
        let Some(link) = self.links.get_mut(&osd) else {
            return;
        };
        match dialled {
            Some((run, dialled)) => link.lifeline.dialled(run, dialled),
            None => link.lifeline.not_dialled(now),
        }
    }

    /// A connection, and its name.
    fn connect(&mut self, osd: OsdId, lifeline: bool) -> Option<(u64, Dialled<PeerAuth>)> {
        let addrs = &self.links.get(&osd)?.addrs;
        let target = addrs.0.iter().find(|a| a.sock.is_some()).copied()?;
        let wall = Utime::from_unix(self.clock.wall());
        let auth = match self.without_auth {
            true => PeerAuth::none(self.me),
            false => PeerAuth::Cephx(peer_auth::ticket(self.me, &self.cluster, wall, &*self.entropy)?),
        };
        self.runs += 1;
        let id = LinkId { osd, run: self.runs };
        Some((self.runs, self.dial_at(id, target, auth, lifeline)))
    }

    fn dial_at(&self, id: LinkId, target: EntityAddr, auth: PeerAuth, lifeline: bool) -> Dialled<PeerAuth> {
        let config = ClientConfig {
            kind: EntityKind::Osd,
            gid: i64::from(self.me),
            modes: self.modes(),
            ..ClientConfig::new(EntityKind::Osd, target, self.nonce, self.entropy.clone())
        };
        let options = DialOptions {
            handshake_timeout: HANDSHAKE,
            output_max: if lifeline {
                LIFELINE_OUTPUT_MAX
            } else {
                self.output_max
            },
            lifeline,
            keep_alive: lifeline.then_some(KEEP_ALIVE),
            meter: self.meter.clone(),
            lanes: Some(self.lanes.clone()),
        };
        let sock = target.sock.unwrap_or(([0, 0, 0, 0], 0).into());
        net::dial(
            sock,
            config,
            auth,
            options,
            self.clock.clone(),
            id,
            self.events.clone(),
        )
    }

    /// True if nobody has to prove who it is.
    pub fn is_without_auth(&self) -> bool {
        self.without_auth
    }

    /// How connections to other OSDs are to be protected (`ms_cluster_mode`); those that there are stay as they are.
    fn modes(&self) -> Vec<ConMode> {
        if self.without_auth {
            return vec![ConMode::Crc];
        }
        modes::of(&self.cluster.state(), self.me).daemons
    }

    pub fn on_event(&mut self, id: LinkId, event: DialEvent) -> Heard {
        let now = self.clock.monotonic();
        let Some(link) = self.links.get_mut(&id.osd) else {
            return Heard::Nothing;
        };
        if link.lifeline.is_run(id.run) {
            return match link.lifeline.on_event(id.osd, event, now) {
                true => Heard::Gone(id.osd),
                false => Heard::Nothing,
            };
        }
        if link.run != id.run {
            return Heard::Nothing;
        }
        if link.quiet > 0 {
            link.patience.heard(std::mem::take(&mut link.quiet));
        }
        match event {
            DialEvent::Ready(session) => {
                (link.backoff, link.lost) = (BACKOFF_MIN, None);
                if session.lifelines {
                    link.lifeline.want(now);
                }
                let state = std::mem::replace(&mut link.state, State::Waiting(now));
                if let State::Dialling(dialled) = state {
                    link.state = State::Open(dialled);
                }
                tracing::debug!("osd.{}: connected to osd.{}", self.me, id.osd);
                Heard::Up(id.osd)
            }
            DialEvent::Message(m) => match link.state {
                State::Open(_) => Heard::Message(id.osd, m),
                _ => Heard::Nothing,
            },
            DialEvent::Ended(e) => {
                tracing::debug!("osd.{}: connection to osd.{} ended: {e}", self.me, id.osd);
                link.ended(id.osd, now)
            }
        }
    }

    /// A heartbeat to everyone. Returns peers that have become silent: their connections are ended. The pulses of those in `heard` answer:
    /// what they do not say here they have no time for.
    pub fn beat(&mut self, epoch: Epoch, heard: &BTreeSet<OsdId>) -> Vec<OsdId> {
        let now = self.clock.monotonic();
        let stamp = now.as_nanos() as u64;
        let mut silent = Vec::new();
        for (osd, link) in &mut self.links {
            let State::Open(dialled) = &link.state else {
                continue;
            };
            link.quiet += 1;
            let most = match heard.contains(osd) {
                true => HEARD_MAX,
                false => link.patience.beats(),
            };
            if link.quiet > most {
                tracing::warn!("osd.{}: osd.{osd} is silent", self.me);
                // What this connection still says is nobody's.
                link.run = 0;
                link.lost = Some(now);
                link.state = State::Waiting(now + link.backoff);
                silent.push(*osd);
                continue;
            }
            dialled.send(PeerMsg::Ping { stamp, epoch }.to_message());
        }
        silent
    }

    /// An answered heartbeat.
    pub fn pong(&mut self, osd: OsdId, stamp: u64) {
        let now = self.clock.monotonic();
        let trip = now.saturating_sub(Duration::from_nanos(stamp));
        if let Some(link) = self.links.get_mut(&osd) {
            link.rtt = Some(link.rtt.map_or(trip, |old| (old * 7 + trip) / 8));
        }
    }

    /// Queues a message; false if there is no connection.
    pub fn send(&self, osd: OsdId, m: &PeerMsg) -> bool {
        match self.links.get(&osd).map(|l| &l.state) {
            Some(State::Open(dialled)) => dialled.send(m.to_message()),
            _ => false,
        }
    }

    pub fn is_open(&self, osd: OsdId) -> bool {
        matches!(self.links.get(&osd).map(|l| &l.state), Some(State::Open(_)))
    }

    pub fn open(&self) -> impl Iterator<Item = OsdId> + '_ {
        self.links.keys().copied().filter(|o| self.is_open(*o))
    }

    /// Peers that should be connected, and may be.
    pub fn wanted(&self) -> impl Iterator<Item = OsdId> + '_ {
        self.links.keys().copied()
    }

    /// Peers whose processes are gone, and where they were.
    pub fn gone(&self) -> impl Iterator<Item = (OsdId, &EntityAddrVec)> {
        let gone = self.links.iter().filter(|(_, l)| l.lifeline.has_ended());
        gone.map(|(o, l)| (*o, &l.addrs))
    }

    /// Peers without a connection for a while.
    pub fn silent(&self) -> impl Iterator<Item = OsdId> + '_ {
        let now = self.clock.monotonic();
        let late = move |l: &Link| l.lost.is_some_and(|at| now >= at + LOST);
        self.links.iter().filter(move |(_, l)| late(l)).map(|(o, _)| *o)
    }

    /// The longest smoothed round trip to a peer.
    pub fn slowest(&self) -> Option<(OsdId, Duration)> {
        self.trips().max_by_key(|(_, trip)| *trip)
    }

    /// The smoothed round trips to all peers.
    pub fn trips(&self) -> impl Iterator<Item = (OsdId, Duration)> {
        self.links.iter().filter_map(|(o, l)| Some((*o, l.rtt?)))
    }
}

impl Link {
    /// When it is to be dialled, if it is.
    fn due(&self) -> Option<Duration> {
        match self.state {
            State::Waiting(at) => Some(at),
            _ => None,
        }
    }

    fn lifeline_due(&self) -> Option<Duration> {
        let open = matches!(self.state, State::Open(_));
        self.lifeline.due().filter(|_| open)
    }

    fn ended(&mut self, osd: OsdId, now: Duration) -> Heard {
        if matches!(self.state, State::Open(_)) {
            (self.state, self.lost) = (State::Waiting(now), Some(now));
            return Heard::Down(osd);
        }
        self.state = State::Waiting(now + self.backoff);
        self.backoff = (self.backoff * 2).min(BACKOFF_MAX);
        Heard::Nothing
    }
}
