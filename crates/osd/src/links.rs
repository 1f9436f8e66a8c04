//! Connections that this OSD dials to other OSDs: requests of its primaries go out on them, answers come back,
//! and heartbeats tell who is silent.
//!
//! Invariants: at most one link per peer; [`Heard::Up`] and [`Heard::Down`] of a peer alternate; what is heard of an
//! earlier connection to it is dropped. Bounds: [`OUTPUT_MAX`] bytes wait for a peer, then the link is ended.
//!
//! Not here: what the messages mean (`peering`), who is wanted (`placement`), what follows from silence (`standing`).

use crate::peer_auth::{self, PeerAuth};
use auth::Entropy;
use io::Clock;
use messages::osd::peer::PeerMsg;
use metastore::ClusterHandle;
use msgr::{ClientConfig, Message};
use net::{ClientError, DialEvent, DialOptions, Dialled};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use types::{EntityAddr, EntityAddrVec, EntityKind, Epoch, OsdId, Utime};

/// Time between two heartbeats.
pub const BEAT: Duration = Duration::from_millis(200);
/// Heartbeats in a row without a word from a peer that make it silent: 1 s.
const QUIET_MAX: u32 = 5;
/// Bytes that may wait for one peer: more than all clients together may have in flight.
const OUTPUT_MAX: usize = 256 << 20;
const HANDSHAKE: Duration = Duration::from_secs(1);
const BACKOFF_MIN: Duration = Duration::from_millis(50);
const BACKOFF_MAX: Duration = Duration::from_secs(1);
/// A refused connection is tried once more after this before it counts.
const REFUSED_AGAIN: Duration = Duration::from_millis(20);
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
    /// Its port refused twice ([`Links::refusing`]).
    Refused,
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
    refused: bool,
    /// Its port refused twice, and it was not reached since.
    gone: bool,
    /// Without a connection since then.
    lost: Option<Duration>,
    /// Smoothed round trip of heartbeats.
    rtt: Option<Duration>,
}

pub struct Links {
    me: OsdId,
    cluster: ClusterHandle,
    /// Authentication is off in this cluster.
    open_door: bool,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    nonce: u32,
    events: mpsc::Sender<(LinkId, DialEvent)>,
    links: BTreeMap<OsdId, Link>,
    runs: u64,
}

pub struct LinkParts {
    pub me: OsdId,
    pub cluster: ClusterHandle,
    pub open_door: bool,
    pub clock: Arc<dyn Clock>,
    pub entropy: Arc<dyn Entropy>,
    pub nonce: u32,
    pub events: mpsc::Sender<(LinkId, DialEvent)>,
}

impl Links {
    pub fn new(p: LinkParts) -> Self {
        Self {
            me: p.me,
            cluster: p.cluster,
            open_door: p.open_door,
            clock: p.clock,
            entropy: p.entropy,
            nonce: p.nonce,
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
                refused: false,
                gone: false,
                lost: Some(now),
                rtt: None,
            });
        }
        ended
    }

    /// Dials those whose time has come.
    pub fn step(&mut self) {
        let now = self.clock.monotonic();
        let due = |l: &Link| matches!(l.state, State::Waiting(at) if at <= now);
        let due: Vec<OsdId> = self
            .links
            .iter()
            .filter(|(_, l)| due(l))
            .map(|(o, _)| *o)
            .collect();
        for osd in due {
            self.dial(osd, now);
        }
    }

    pub fn next_timer(&self) -> Option<Duration> {
        let at = |l: &Link| match l.state {
            State::Waiting(at) => Some(at),
            _ => None,
        };
        self.links.values().filter_map(at).min()
    }

    fn dial(&mut self, osd: OsdId, now: Duration) {
        self.runs += 1;
        let run = self.runs;
        let Some(link) = self.links.get_mut(&osd) else {
            return;
        };
        link.run = run;
        let target = link.addrs.0.iter().find(|a| a.sock.is_some()).copied();
        let wall = Utime::from_unix(self.clock.wall());
        let auth = match self.open_door {
            true => Some(PeerAuth::none(self.me)),
            false => peer_auth::ticket(self.me, &self.cluster, wall, &*self.entropy).map(PeerAuth::Cephx),
        };
        let (Some(target), Some(auth)) = (target, auth) else {
            tracing::warn!(
                "osd.{}: osd.{osd} has no address, or the cluster no secrets",
                self.me
            );
            link.state = State::Waiting(now + BACKOFF_MAX);
            return;
        };
        let dialled = self.dial_at(LinkId { osd, run }, target, auth);
        if let Some(link) = self.links.get_mut(&osd) {
            link.state = State::Dialling(dialled);
        }
    }

    fn dial_at(&self, id: LinkId, target: EntityAddr, auth: PeerAuth) -> Dialled<PeerAuth> {
        let config = ClientConfig {
            kind: EntityKind::Osd,
            gid: i64::from(self.me),
            ..ClientConfig::new(EntityKind::Osd, target, self.nonce, self.entropy.clone())
        };
        let options = DialOptions {
            handshake_timeout: HANDSHAKE,
            output_max: OUTPUT_MAX,
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

    pub fn on_event(&mut self, id: LinkId, event: DialEvent) -> Heard {
        let now = self.clock.monotonic();
        let Some(link) = self.links.get_mut(&id.osd).filter(|l| l.run == id.run) else {
            return Heard::Nothing;
        };
        link.quiet = 0;
        match event {
            DialEvent::Ready => {
                (link.backoff, link.refused, link.lost) = (BACKOFF_MIN, false, None);
                link.gone = false;
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
                link.ended(id.osd, &e, now)
            }
        }
    }

    /// A heartbeat to everyone. Returns peers that have become silent: their connections are ended.
    pub fn beat(&mut self, epoch: Epoch) -> Vec<OsdId> {
        let now = self.clock.monotonic();
        let stamp = now.as_nanos() as u64;
        let mut silent = Vec::new();
        for (osd, link) in &mut self.links {
            let State::Open(dialled) = &link.state else {
                continue;
            };
            link.quiet += 1;
            if link.quiet > QUIET_MAX {
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

    /// Peers whose ports refuse, and where.
    pub fn refusing(&self) -> impl Iterator<Item = (OsdId, &EntityAddrVec)> {
        let gone = self.links.iter().filter(|(_, l)| l.gone);
        gone.map(|(o, l)| (*o, &l.addrs))
    }

    /// Peers without a connection for a while, or whose ports refuse.
    pub fn silent(&self) -> impl Iterator<Item = OsdId> + '_ {
        let now = self.clock.monotonic();
        let late = move |l: &Link| l.gone || l.lost.is_some_and(|at| now >= at + BEAT * QUIET_MAX);
        self.links.iter().filter(move |(_, l)| late(l)).map(|(o, _)| *o)
    }

    /// The longest smoothed round trip to a peer.
    pub fn slowest(&self) -> Option<(OsdId, Duration)> {
        let trips = self.links.iter().filter_map(|(o, l)| Some((*o, l.rtt?)));
        trips.max_by_key(|(_, trip)| *trip)
    }
}

impl Link {
    fn ended(&mut self, osd: OsdId, why: &ClientError, now: Duration) -> Heard {
        let was_open = matches!(self.state, State::Open(_));
        let refused = matches!(why, ClientError::Io(e) if e.kind() == ErrorKind::ConnectionRefused);
        if was_open {
            (self.state, self.lost) = (State::Waiting(now), Some(now));
            return Heard::Down(osd);
        }
        if refused && !self.refused {
            self.refused = true;
            self.state = State::Waiting(now + REFUSED_AGAIN);
            return Heard::Nothing;
        }
        self.refused = false;
        self.gone = refused;
        self.state = State::Waiting(now + self.backoff);
        self.backoff = (self.backoff * 2).min(BACKOFF_MAX);
        match refused {
            true => Heard::Refused,
            false => Heard::Nothing,
        }
    }
}
