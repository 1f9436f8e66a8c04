//! The network between hosts: byte streams as TCP gives them, which are late, stall, break, or wait for a partition
//! to heal.
//!
//! Vocabulary: a *pipe* is one direction of a connection; a *segment* is what one write put into it. A segment flies for
//! as long as the weather says, never passing an earlier one of its pipe; those of different pipes overtake each other. A
//! link (ordered pair of hosts) that is *blocked* holds what flies on it, as TCP's retransmissions do; a host that is *off*
//! loses what it had and holds what comes. A link with a *firewall* that *rejects* answers what comes by it with a reset,
//! and a request for a connection with a refusal: what is silent lives on.
//!
//! Invariants: inside a stream nothing is lost, doubled or reordered; a stream ends with its last byte (closed, also by the
//! end of its process) or anywhere (reset). It is a reset where something had come that was not read; and what is sent to a socket
//! that is gone is answered with one, which comes behind the end. An end that has been read stays one. Bounds: [`WINDOW_BYTES`] in a pipe,
//! [`BACKLOG_MAX`] connections at a port.
//!
//! Not here: bandwidth, acknowledgements (a link that is blocked one way carries the other way on, until the window).

mod pipe;
mod wire;

use crate::{Dice, Trace};
use pipe::{Pipe, Segment};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{Error, ErrorKind, Result};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;
use wire::{SimPort, SimWire};

/// What one direction of a connection takes before its writer has to wait.
pub const WINDOW_BYTES: usize = 1 << 20;
/// Connections that wait at a port to be accepted.
pub const BACKLOG_MAX: usize = 1024;
/// A retransmission comes at most this long after its link has healed.
const RETRY_MAX: Duration = Duration::from_secs(3);
const FIRST_FREE_PORT: u16 = 40_000;

/// How the network behaves; shares are of a million segments.
#[derive(Debug, Clone, Copy)]
pub struct Weather {
    pub latency_us: (u64, u64),
    /// Segments that take longer by up to `stall_us_max`, and all behind them.
    pub stall_ppm: u64,
    pub stall_us_max: u64,
    /// Segments at which the connection breaks, for both ends.
    pub cut_ppm: u64,
}

impl Weather {
    pub const FAIR: Self = Self {
        latency_us: (50, 400),
        stall_ppm: 0,
        stall_us_max: 0,
        cut_ppm: 0,
    };
}

type PipeId = u64;

/// The pipe of the other direction.
fn back(id: PipeId) -> PipeId {
    id ^ 1
}

#[derive(Debug, Clone, Copy)]
enum Event {
    /// The first segment of a pipe is due.
    Segment(PipeId),
    /// A request for a connection arrives; the pipe is the one towards the listener.
    Syn(PipeId),
    /// Its answer arrives.
    SynAck(PipeId),
    Refused(PipeId),
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<(SimWire, SocketAddr)>,
    waker: Option<Waker>,
}

#[derive(Debug)]
struct State {
    dice: Dice,
    trace: Trace,
    weather: Weather,
    pipes: BTreeMap<PipeId, Pipe>,
    ports: BTreeMap<SocketAddr, Queue>,
    events: BTreeMap<(Instant, u64), Event>,
    /// What was due on a link that was blocked then, by pipe.
    held: BTreeMap<PipeId, Vec<Event>>,
    blocked: BTreeSet<(IpAddr, IpAddr)>,
    off: BTreeSet<IpAddr>,
    unplugged: BTreeSet<IpAddr>,
    /// Between whom a firewall stands, in both orders.
    rejects: BTreeSet<(IpAddr, IpAddr)>,
    next_event: u64,
    next_pipe: PipeId,
    next_port: u16,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    earlier: Notify,
}

/// A handle; clones are the same network.
#[derive(Debug, Clone)]
pub struct SimNet(Arc<Shared>);

impl SimNet {
    pub(crate) fn new(dice: Dice, trace: Trace) -> Self {
        let state = State {
            dice,
            trace,
            weather: Weather::FAIR,
            pipes: BTreeMap::new(),
            ports: BTreeMap::new(),
            events: BTreeMap::new(),
            held: BTreeMap::new(),
            blocked: BTreeSet::new(),
            off: BTreeSet::new(),
            unplugged: BTreeSet::new(),
            rejects: BTreeSet::new(),
            next_event: 0,
            next_pipe: 0,
            next_port: FIRST_FREE_PORT,
        };
        Self(Arc::new(Shared {
            state: Mutex::new(state),
            earlier: Notify::new(),
        }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn set_weather(&self, weather: Weather) {
        self.state().weather = weather;
    }

    /// Blocks what goes from one host to another, or lets it through again.
    pub fn block(&self, from: IpAddr, to: IpAddr, blocked: bool) {
        let mut s = self.state();
        match blocked {
            true => s.blocked.insert((from, to)),
            false => s.blocked.remove(&(from, to)),
        };
        s.release();
        self.0.earlier.notify_one();
    }

    /// Pulls a host's cable, or puts it in again.
    pub fn unplug(&self, host: IpAddr, unplugged: bool) {
        let mut s = self.state();
        match unplugged {
            true => s.unplugged.insert(host),
            false => s.unplugged.remove(&host),
        };
        s.release();
        self.0.earlier.notify_one();
    }

    /// Puts a firewall that rejects between two hosts, or takes it away.
    pub fn reject(&self, a: IpAddr, b: IpAddr, rejects: bool) {
        let mut s = self.state();
        for pair in [(a, b), (b, a)] {
            match rejects {
                true => s.rejects.insert(pair),
                false => s.rejects.remove(&pair),
            };
        }
    }

    /// All links carry again, all cables are in, no firewall stands between.
    pub fn heal_links(&self) {
        let mut s = self.state();
        s.blocked.clear();
        s.unplugged.clear();
        s.rejects.clear();
        s.release();
        self.0.earlier.notify_one();
    }

    /// The host loses its power: its connections vanish without a word. To be followed by the kill of its processes.
    pub fn power_off(&self, host: IpAddr) {
        let mut s = self.state();
        s.off.insert(host);
        for pipe in s.pipes.values_mut() {
            if pipe.from.ip() == host {
                pipe.vanish();
            }
            if pipe.to.ip() == host {
                pipe.reader_gone = true;
            }
        }
    }

    pub fn power_on(&self, host: IpAddr) {
        let mut s = self.state();
        s.off.remove(&host);
        s.release();
        self.0.earlier.notify_one();
    }

    /// Breaks every connection between two hosts.
    pub fn cut(&self, a: IpAddr, b: IpAddr) {
        let mut s = self.state();
        let hit: Vec<PipeId> = s
            .pipes
            .iter()
            .filter(|(_, p)| p.from.ip() == a && p.to.ip() == b)
            .map(|(id, _)| *id)
            .collect();
        hit.into_iter().for_each(|id| s.reset(id));
    }

    /// Connections that are open or were not noticed to be gone.
    pub fn connections(&self) -> usize {
        self.state().pipes.len() / 2
    }

    /// The task that lets time pass: hands out what is due.
    pub(crate) async fn deliver(&self) {
        loop {
            let next = self.state().events.keys().next().map(|(at, _)| *at);
            let Some(at) = next else {
                self.0.earlier.notified().await;
                continue;
            };
            tokio::select! {
                biased;
                () = self.0.earlier.notified() => {}
                () = tokio::time::sleep_until(at) => {
                    let mut s = self.state();
                    while let Some(entry) = s.events.first_entry().filter(|e| e.key().0 <= Instant::now()) {
                        let event = entry.remove();
                        self.happen(&mut s, event);
                    }
                }
            }
        }
    }

    fn connect_from(&self, host: IpAddr, to: SocketAddr) -> SimWire {
        let mut s = self.state();
        let from = SocketAddr::new(host, s.free_port());
        let id = s.next_pipe;
        s.next_pipe += 2;
        s.pipes.insert(id, Pipe::new(from, to));
        s.pipes.insert(back(id), Pipe::new(to, from));
        let at = s.arrival(id);
        s.at(at, Event::Syn(id));
        drop(s);
        self.0.earlier.notify_one();
        SimWire::new(self.clone(), back(id), id, from)
    }
}

impl State {
    fn free_port(&mut self) -> u16 {
        self.next_port = self.next_port.checked_add(1).unwrap_or(FIRST_FREE_PORT);
        self.next_port
    }

    fn at(&mut self, at: Instant, event: Event) {
        self.events.insert((at, self.next_event), event);
        self.next_event += 1;
    }

    /// When what is sent now through this pipe arrives.
    fn arrival(&mut self, id: PipeId) -> Instant {
        let w = self.weather;
        let (least, most) = w.latency_us;
        let mut us = least + self.dice.below(most.saturating_sub(least) + 1);
        if self.dice.below(1_000_000) < w.stall_ppm {
            us += self.dice.below(w.stall_us_max + 1);
        }
        let at = Instant::now() + Duration::from_micros(us);
        match self.pipes.get_mut(&id) {
            Some(p) => {
                p.last_due = p.last_due.max(at);
                p.last_due
            }
            None => at,
        }
    }

    fn is_blocked(&self, id: PipeId) -> bool {
        self.pipes.get(&id).is_some_and(|p| {
            let (from, to) = (p.from.ip(), p.to.ip());
            let dead = |host| self.off.contains(host) || self.unplugged.contains(host);
            self.blocked.contains(&(from, to)) || dead(&from) || dead(&to)
        })
    }

    fn is_rejected(&self, id: PipeId) -> bool {
        let pipe = self.pipes.get(&id);
        pipe.is_some_and(|p| self.rejects.contains(&(p.from.ip(), p.to.ip())))
    }

    /// What was held on links that are open again comes after a retransmission's time.
    fn release(&mut self) {
        let free: Vec<PipeId> = self
            .held
            .keys()
            .filter(|id| !self.is_blocked(**id))
            .copied()
            .collect();
        for id in free {
            let events = self.held.remove(&id).unwrap_or_default();
            let wait = self.dice.below(RETRY_MAX.as_micros() as u64);
            let at = Instant::now() + Duration::from_micros(wait);
            if let Some(p) = self.pipes.get_mut(&id) {
                p.last_due = p.last_due.max(at);
            }
            events.into_iter().for_each(|e| self.at(at, e));
        }
    }

    fn segment(&mut self, id: PipeId) {
        let Some(pipe) = self.pipes.get_mut(&id) else {
            return;
        };
        let Some(segment) = pipe.flying.pop_front() else {
            return;
        };
        self.trace
            .note(format_args!("net {} > {} {segment}", pipe.from, pipe.to));
        if pipe.reader_gone && matches!(segment, Segment::Data(_)) {
            return self.refuse(id);
        }
        match segment {
            Segment::Data(data) => pipe.arrive(data),
            Segment::Fin => pipe.end(),
            Segment::Reset => {
                pipe.break_off();
                if let Some(p) = self.pipes.get_mut(&back(id)) {
                    p.break_off();
                }
            }
        }
        self.forget_if_over(id);
    }

    /// Nobody is there to take what came: its host answers with a reset, behind all that was sent before.
    fn refuse(&mut self, id: PipeId) {
        if let Some(pipe) = self.pipes.get_mut(&id)
            && !std::mem::replace(&mut pipe.refused, true)
        {
            wire::push(self, back(id), Segment::Reset);
        }
    }

    /// Both ends find the connection broken.
    fn reset(&mut self, id: PipeId) {
        if let Some(p) = self.pipes.get(&id) {
            self.trace.note(format_args!("net {} > {} broken", p.from, p.to));
        }
        for id in [id, back(id)] {
            if let Some(p) = self.pipes.get_mut(&id) {
                p.break_off();
            }
        }
        self.forget_if_over(id);
    }

    fn opened(&mut self, id: PipeId, how: std::result::Result<(), ErrorKind>) {
        for pipe in [id, back(id)] {
            if let Some(p) = self.pipes.get_mut(&pipe) {
                p.opened = Some(how);
                p.wake();
            }
        }
    }

    /// Nobody holds an end any more.
    fn forget_if_over(&mut self, id: PipeId) {
        let over = |p: &Pipe| p.reader_gone && (p.broken || p.closed) && p.flying.is_empty();
        let both = [id, back(id)].iter().all(|i| self.pipes.get(i).is_none_or(over));
        if both {
            self.pipes.remove(&id);
            self.pipes.remove(&back(id));
        }
    }
}

impl SimNet {
    fn happen(&self, s: &mut State, event: Event) {
        let id = match event {
            Event::Segment(id) | Event::Syn(id) => id,
            Event::SynAck(id) | Event::Refused(id) => back(id),
        };
        if s.is_blocked(id) {
            s.held.entry(id).or_default().push(event);
            return;
        }
        match event {
            Event::Segment(id) if s.is_rejected(id) => s.reset(id),
            Event::Segment(id) => s.segment(id),
            Event::Syn(id) => self.syn(s, id),
            Event::SynAck(id) => s.opened(id, Ok(())),
            Event::Refused(id) => s.opened(id, Err(ErrorKind::ConnectionRefused)),
        }
    }

    /// A request for a connection has arrived: the port answers, or there is none.
    fn syn(&self, s: &mut State, id: PipeId) {
        let Some(pipe) = s.pipes.get(&id) else { return };
        let (from, to) = (pipe.from, pipe.to);
        let free = |q: &Queue| q.waiting.len() < BACKLOG_MAX;
        let open = !s.is_rejected(id) && s.ports.get(&to).is_some_and(free);
        s.trace.note(format_args!(
            "net {from} > {to} connect {}",
            if open { "" } else { "refused" }
        ));
        let at = s.arrival(back(id));
        if !open {
            return s.at(at, Event::Refused(id));
        }
        s.at(at, Event::SynAck(id));
        let wire = SimWire::new(self.clone(), id, back(id), to);
        if let Some(q) = s.ports.get_mut(&to) {
            q.waiting.push_back((wire, from));
            if let Some(w) = q.waker.take() {
                w.wake();
            }
        }
    }

    fn listen(&self, addr: SocketAddr) -> Result<SimPort> {
        let mut s = self.state();
        let port = match addr.port() {
            0 => s.free_port(),
            p => p,
        };
        let at = SocketAddr::new(addr.ip(), port);
        if s.ports.contains_key(&at) {
            return Err(Error::from(ErrorKind::AddrInUse));
        }
        s.ports.insert(at, Queue::default());
        Ok(SimPort::new(self.clone(), at))
    }
}
