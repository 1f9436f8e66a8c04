//! One accepted connection: a task that reads, writes and hands on until something ends it.
//!
//! The protocol machine is borrowed only between waits, never across one, so the owner's `send` and this
//! task cannot collide.

use crate::budget::{Body, Budget};
use crate::connections::{ConnId, NetEvent, Options, Shared};
use crate::guesses::Guesses;
use crate::lanes::{self, Ends, Lane};
use crate::outputs;
use crate::places::NoPlace;
use crate::write::write_some;
use bytes::BufMut;
use io::socket::Stream;
use msgr::{Accepted, BODY_SLICE, Event, Message, Peer};
use std::cell::{Cell, OnceCell, RefCell};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, mpsc};
use types::{EntityKind, Utime};

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum End {
    #[error("closed by peer")]
    PeerClosed,
    #[error("{0}")]
    Io(#[from] std::io::Error),
    #[error("{0}")]
    Protocol(#[from] msgr::Error),
    #[error("no session within the time for a handshake")]
    HandshakeTimeout,
    #[error("{0}")]
    Cut(&'static str),
    #[error("the owner has gone")]
    OwnerGone,
    #[error("no place for it: {0}")]
    NoPlace(#[from] NoPlace),
    /// No end: the stream goes on as a lifeline of this peer.
    #[error("it is a lifeline from now on")]
    Lifeline(Arc<Peer>),
}

impl End {
    /// Peers that hang up, at any point, are everyday.
    fn is_ordinary(&self) -> bool {
        match self {
            End::PeerClosed | End::OwnerGone => true,
            End::Protocol(msgr::Error::Elsewhere(_) | msgr::Error::Closed | msgr::Error::Displaced) => true,
            End::Cut(why) => ![SLOW_READER, STALLED, SILENT].contains(why),
            End::Io(e) => matches!(e.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe),
            _ => false,
        }
    }
}

pub(crate) const SLOW_READER: &str = "peer does not read: too much output is waiting";
pub(crate) const STALLED: &str = "its message does not go on, and others wait for the memory";
/// Of a new connection that gives way.
pub(crate) const SILENT: &str = "too many connections without a session: the oldest goes";
/// Of an open one.
pub(crate) const GIVES_WAY: &str = "too many connections: the longest silent of those with the most goes";

pub(crate) struct Connection {
    id: ConnId,
    sock: SocketAddr,
    proto: RefCell<Accepted>,
    /// Set before the owner hears of the connection, if it ever is.
    lane: OnceCell<Lane>,
    pub peer: RefCell<Option<Arc<Peer>>>,
    budget: Rc<Budget>,
    pub output: outputs::Output,
    guesses: Rc<RefCell<Guesses>>,
    /// A refusal in the output waits.
    held: Cell<bool>,
    /// Something to write.
    wake: Notify,
    /// Output went below the mark at which reading pauses.
    drained: Notify,
    cancel: Notify,
    why: Cell<&'static str>,
    /// Sweeps since the peer's last byte.
    pub idle_sweeps: Cell<u32>,
}

impl Connection {
    pub fn new(
        id: ConnId,
        sock: SocketAddr,
        proto: Accepted,
        budget: Rc<Budget>,
        output: outputs::Output,
        guesses: Rc<RefCell<Guesses>>,
    ) -> Rc<Self> {
        Rc::new(Self {
            id,
            sock,
            proto: RefCell::new(proto),
            lane: OnceCell::new(),
            peer: RefCell::new(None),
            budget,
            output,
            guesses,
            held: Cell::new(false),
            wake: Notify::new(),
            drained: Notify::new(),
            cancel: Notify::new(),
            why: Cell::new(""),
            idle_sweeps: Cell::new(0),
        })
    }

    pub fn queued_bytes(&self) -> usize {
        let lane = self.lane.get().map_or(0, Lane::queued_bytes);
        self.proto.borrow_mut().output().len() + lane
    }

    /// Counts what waits to be written.
    fn count_output(&self) -> usize {
        let bytes = self.queued_bytes();
        self.output.is_queued(bytes);
        bytes
    }

    pub fn send(&self, m: Message, output_max: usize) -> bool {
        if !self.why.get().is_empty() {
            return false;
        }
        // One answer may be beyond it: a whole object, while something else still waits. A lossless session has a bound of its own.
        if self.queued_bytes() > output_max && self.session().is_none() {
            self.cut(SLOW_READER);
            return false;
        }
        if let Some(lane) = self.lane.get() {
            lane.send(m);
            self.count_output();
            return true;
        }
        if let Err(e) = self.proto.borrow_mut().send(m) {
            tracing::warn!(conn = self.id.0, peer = %self.sock, "message not sent: {e}");
            return false;
        }
        self.count_output();
        self.wake.notify_one();
        true
    }

    /// The lossless session that it carries.
    fn session(&self) -> Option<u64> {
        self.proto.borrow().session()
    }

    /// How the owner calls it.
    fn owners_id(&self) -> ConnId {
        self.session().map_or(self.id, ConnId)
    }

    pub fn is_cut(&self) -> bool {
        !self.why.get().is_empty()
    }

    pub fn has_lane(&self) -> bool {
        self.lane.get().is_some()
    }

    /// Its output is part of the total.
    pub fn is_counted(&self) -> bool {
        self.why.get().is_empty() && !self.budget.is_peer.get()
    }

    pub fn cut(&self, why: &'static str) {
        self.why.set(why);
        self.cancel.notify_one();
    }

    /// Runs the connection to its end and tells the owner, if it ever opened.
    pub async fn run(
        self: Rc<Self>,
        stream: Stream,
        shared: Rc<Shared>,
        clock: Arc<dyn io::Clock>,
        events: mpsc::Sender<NetEvent>,
    ) {
        let options = &shared.options;
        let end = tokio::select! {
            biased;
            () = self.cancel.notified() => End::Cut(self.why.get()),
            () = self.budget.stalled.notified() => End::Cut(STALLED),
            e = self.write_loop(&stream, &shared, &events) => e,
            e = self.read_loop(&stream, &shared, &*clock, &events) => e,
            e = self.handshake_deadline(options) => e,
        };
        self.output.set_gone();
        if let End::Lifeline(peer) = end {
            return self.become_lifeline(stream, options, &peer);
        }
        // Nothing may be queued any more.
        if self.why.get().is_empty() {
            self.why.set("closed");
        }
        drop(stream);
        self.log(&end, clock.monotonic());
        if let (Some(lossless), Some(session)) = (&shared.lossless, self.session()) {
            // It waits for the client to come back. What was taken from the socket is heard, if there is an owner.
            lossless.sessions.borrow_mut().left(session, self.id.0);
            drop(lossless.deliver(session, &events).await);
            return;
        }
        if self.peer.borrow().is_some() {
            // The owner may be gone; then nobody is left to be told.
            let _ = events.send(NetEvent::Closed { conn: self.id }).await;
        }
    }

    /// The peer learns by the last packet of the handshake that it has a lifeline: it is kept before that leaves.
    fn become_lifeline(&self, stream: Stream, options: &Options, peer: &Peer) {
        let tell = |stream: &Stream| {
            // A few bytes into a stream that was empty: all at once, or something is wrong with it.
            self.write_some(stream).is_ok() && self.queued_bytes() == 0
        };
        if options.lifelines.keep(peer.auth_name.clone(), stream, tell) {
            tracing::debug!(conn = self.id.0, peer = %self.sock, "lifeline of {}", peer.auth_name);
        } else {
            tracing::warn!(conn = self.id.0, peer = %self.sock, "{}: no lifeline for it", peer.auth_name);
        }
    }

    fn log(&self, end: &End, now: Duration) {
        let who = match &*self.peer.borrow() {
            Some(p) => format!("{} ({})", p.name, p.auth_name),
            None => "unauthenticated".to_string(),
        };
        let (conn, peer) = (self.id.0, self.sock);
        if end.is_ordinary() {
            tracing::debug!(conn, %peer, "{who}: connection ended: {end}");
        } else {
            io::log::refused(
                now,
                format_args!("{who}: connection closed: {end} conn={conn} peer={peer}"),
            );
        }
    }

    async fn handshake_deadline(&self, options: &Options) -> End {
        tokio::time::sleep(options.handshake_timeout).await;
        if self.peer.borrow().is_none() {
            return End::HandshakeTimeout;
        }
        std::future::pending().await
    }

    async fn write_loop(&self, stream: &Stream, shared: &Shared, events: &mpsc::Sender<NetEvent>) -> End {
        let options = &shared.options;
        loop {
            if self.held.get() {
                self.wake.notified().await;
                continue;
            }
            match self.write_some(stream) {
                Ok(0) => tokio::select! {
                    () = self.wake.notified() => {}
                    () = lanes::drained(self.lane.get()) => {
                        self.count_output();
                    }
                },
                Ok(n) => {
                    options.accounts.perf.msgr_send_bytes.add(n as u64);
                    self.output.has_written(n);
                    self.count_output();
                    if self.has_room(shared) && events.send(NetEvent::Drained).await.is_err() {
                        return End::OwnerGone;
                    }
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    if let Err(e) = stream.writable().await {
                        return e.into();
                    }
                }
                Err(e) => return e.into(),
            }
            if self.queued_bytes() < options.output_pause {
                self.drained.notify_one();
            }
        }
    }

    /// What was written made room for an answer that had found none.
    fn has_room(&self, shared: &Shared) -> bool {
        let own = self.output.choked.get() && self.output.waiting() <= shared.options.output_pause / 2;
        let all = shared.outputs.starved.get() && shared.outputs.has_room();
        if own {
            self.output.choked.set(false);
        }
        if all {
            shared.outputs.starved.set(false);
        }
        own || all
    }

    fn write_some(&self, stream: &Stream) -> std::io::Result<usize> {
        write_some(stream, self.proto.borrow_mut().output())
    }

    async fn read_loop(
        &self,
        stream: &Stream,
        shared: &Shared,
        clock: &dyn io::Clock,
        events: &mpsc::Sender<NetEvent>,
    ) -> End {
        // The large frame that is being received.
        let mut body: Option<Body> = None;
        loop {
            if let Err(e) = self.hand_on(stream, shared, clock, events, &mut body).await {
                return e;
            }
            let large = self.proto.borrow().large_body();
            let mut max = usize::MAX;
            if let Some((received, need)) = large {
                let body = body.get_or_insert_with(|| Body::begin(&self.budget, need));
                body.room(received, need.min(received - received % BODY_SLICE + BODY_SLICE))
                    .await;
                max = body.held() - received;
            }
            let readable = tokio::select! {
                biased;
                () = lanes::news(self.lane.get()) => {
                    self.idle_sweeps.set(0);
                    continue;
                }
                readable = stream.readable() => readable,
            };
            if let Err(e) = readable {
                return e.into();
            }
            match self.read_some(stream, max) {
                Ok(0) => return self.hear_out(shared, events).await,
                Ok(n) => {
                    shared.options.accounts.perf.msgr_recv_bytes.add(n as u64);
                    self.idle_sweeps.set(0);
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                Err(e) => return e.into(),
            }
        }
    }

    fn read_some(&self, stream: &Stream, most: usize) -> std::io::Result<usize> {
        let mut proto = self.proto.borrow_mut();
        let (buf, max) = proto.read_target();
        stream.try_read(&mut buf.limit(max.min(most)))
    }

    /// Lets the peer wait for the refusal that is in the output.
    async fn refused(&self, why: &str, clock: &dyn io::Clock) {
        let (conn, peer, now) = (self.id.0, self.sock, clock.monotonic());
        io::log::refused(now, format_args!("access denied: {why} conn={conn} peer={peer}"));
        let wait = self.guesses.borrow_mut().failed(peer.ip(), now);
        self.held.set(true);
        tokio::time::sleep(wait).await;
        self.held.set(false);
        self.wake.notify_one();
    }

    /// Hands on everything that the bytes received so far hold, as fast as the owner lets us.
    async fn hand_on(
        &self,
        stream: &Stream,
        shared: &Shared,
        clock: &dyn io::Clock,
        events: &mpsc::Sender<NetEvent>,
        body: &mut Option<Body>,
    ) -> Result<(), End> {
        loop {
            io::panics::point("net");
            if body.is_none() {
                self.budget.room().await;
            }
            self.output_taken(stream, shared).await;
            let now = Utime::from_unix(clock.wall());
            let event = self.proto.borrow_mut().next(now)?;
            if let Some(Event::Denied(why)) = event {
                self.refused(&why, clock).await;
                continue;
            }
            // Handshake frames and keepalives are answered by the machine itself.
            if self.count_output() > 0 {
                self.wake.notify_one();
            }
            // A body that has ended without a message was given up by its sender.
            let ended = match body.is_some() && self.proto.borrow().large_body().is_none() {
                true => body.take(),
                false => None,
            };
            let event = match event.or_else(|| self.received(shared).map(Event::Message)) {
                None => return Ok(()),
                // Above.
                Some(Event::Denied(_)) => continue,
                Some(Event::Ready(peer)) if peer.lifeline => return Err(End::Lifeline(peer)),
                Some(Event::Ready(peer)) => self.opened(shared, peer)?,
                Some(Event::Resumed(peer)) => {
                    self.resumed(shared, peer)?;
                    // What the connection before had taken comes first.
                    self.deliver(shared, events).await?;
                    continue;
                }
                Some(Event::Message(msg)) => {
                    shared.options.accounts.perf.msgr_recv_messages.inc();
                    let permit = match ended {
                        Some(body) => body.into_permit(msg.size()),
                        None => self.budget.take(msg.size()),
                    };
                    NetEvent::Message {
                        conn: self.owners_id(),
                        msg,
                        permit,
                    }
                }
            };
            self.tell(shared, events, event).await?;
        }
    }

    fn opened(&self, shared: &Shared, peer: Arc<Peer>) -> Result<NetEvent, End> {
        if let Err(e) = self.take_place(shared, &peer) {
            // Its owner never heard of it.
            shared.end_session(self.session());
            return Err(e.into());
        }
        self.take_lane(shared, &peer);
        *self.peer.borrow_mut() = Some(peer.clone());
        shared.settle_sessions();
        Ok(NetEvent::Opened {
            conn: self.owners_id(),
            peer,
        })
    }

    fn resumed(&self, shared: &Shared, peer: Arc<Peer>) -> Result<(), End> {
        shared.settle_sessions();
        self.take_place(shared, &peer)?;
        tracing::debug!(conn = self.id.0, peer = %self.sock, "{}: its session goes on", peer.name);
        *self.peer.borrow_mut() = Some(peer);
        Ok(())
    }

    async fn tell(
        &self,
        shared: &Shared,
        events: &mpsc::Sender<NetEvent>,
        event: NetEvent,
    ) -> Result<(), End> {
        match (&shared.lossless, self.session()) {
            (Some(lossless), Some(session)) => {
                lossless.put(session, event);
                self.deliver(shared, events).await
            }
            _ => events.send(event).await.map_err(|_| End::OwnerGone),
        }
    }

    async fn deliver(&self, shared: &Shared, events: &mpsc::Sender<NetEvent>) -> Result<(), End> {
        match (&shared.lossless, self.session()) {
            (Some(lossless), Some(session)) => {
                let delivered = lossless.deliver(session, events).await;
                delivered.map_err(|_| End::OwnerGone)
            }
            _ => Ok(()),
        }
    }

    /// Nothing more is taken from a peer that leaves its answers, or whose answers lie with too many others. Beside a lane nothing is
    /// written, which would show that the peer is gone: there it has to be read.
    async fn output_taken(&self, stream: &Stream, shared: &Shared) {
        loop {
            let waiting = self.queued_bytes();
            let is_peer = self.budget.is_peer.get();
            let full = waiting > 0 && !is_peer && shared.outputs.is_full();
            if waiting < shared.options.output_pause && !full {
                return;
            }
            tokio::select! {
                () = self.drained.notified() => {}
                _ = stream.readable(), if self.has_lane() => return,
            }
        }
    }

    /// What was said on a lane before the end is heard before it. What the peer has not taken is waited for no more: nobody will.
    async fn hear_out(&self, shared: &Shared, events: &mpsc::Sender<NetEvent>) -> End {
        while self.has_lane() {
            self.budget.room().await;
            let Some(msg) = self.received(shared) else { break };
            shared.options.accounts.perf.msgr_recv_messages.inc();
            let (conn, permit) = (self.id, self.budget.take(msg.size()));
            if events
                .send(NetEvent::Message { conn, msg, permit })
                .await
                .is_err()
            {
                return End::OwnerGone;
            }
        }
        End::PeerClosed
    }

    fn received(&self, shared: &Shared) -> Option<Message> {
        let m = self.lane.get()?.receive()?;
        let perf = &shared.options.accounts.perf;
        perf.msgr_recv_bytes.add(m.size() as u64);
        Some(m)
    }

    /// The dialler hears of the end of the handshake later, by what is in the output now.
    fn take_lane(&self, shared: &Shared, peer: &Peer) {
        let Some((lanes, here)) = &shared.options.lanes else {
            return;
        };
        let offered = self.budget.is_peer.get().then(|| Ends::of(peer, *here)).flatten();
        if let Some(lane) = offered.and_then(|ends| lanes.take(&ends)) {
            tracing::debug!(conn = self.id.0, "{}: in this process", peer.auth_name);
            // The first, since a handshake ends once.
            let _ = self.lane.set(lane);
        }
    }

    fn take_place(&self, shared: &Shared, peer: &Peer) -> Result<(), NoPlace> {
        let is_peer = peer.auth_name.kind == EntityKind::Osd && peer.name.kind == EntityKind::Osd as u8;
        if is_peer {
            self.budget.is_peer.set(true);
            self.output.set_peer();
        }
        shared.take_place(self.id, self.sock.ip(), peer)
    }
}
