//! A connection that we dial and whose messages go both ways at any time: how OSDs talk to each other.
//!
//! A task reads and writes; the owner queues messages without waiting and hears of everything on a channel, under
//! the name it gave the connection.
//!
//! Invariants: [`DialEvent::Ready`] comes before messages, [`DialEvent::Ended`] last and always, also when there never
//! was a session. Messages queued before the session is open are refused. [`ClientError::Closed`] is the peer's FIN, and never
//! anything else: it is the first that a read says once the stream has ended. Bound: [`DialOptions::output_max`].
//!
//! Not here: dialling again.

use crate::accounts::Perf;
use crate::client::ClientError;
use crate::lanes::{self, Ends, Lane, Lanes, Offer};
use crate::write::write_some;
use account::Account;
use auth::ClientAuth;
use bytes::BufMut;
use io::socket::Stream;
use msgr::{ClientConfig, ClientConnection, ClientEvent, FLAG_LIFELINE, Message};
use std::cell::{Cell, OnceCell, RefCell};
use std::fmt;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, mpsc};
use types::{EntityAddr, Utime};

/// What is known of an open session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Session {
    /// The server keeps lifelines.
    pub lifelines: bool,
    /// The server sees the connection come from where it begins: nobody between them ends it on one side and begins it on the
    /// other, as a proxy does.
    pub direct: bool,
}

#[derive(Debug)]
pub enum DialEvent {
    Ready(Session),
    Message(Message),
    Ended(ClientError),
}

/// What a dialled connection is charged to, and what it counts.
#[derive(Debug, Clone)]
pub struct Meter {
    /// What waits to be written.
    pub output: Arc<Account>,
    pub perf: Arc<Perf>,
}

impl Default for Meter {
    fn default() -> Self {
        Self {
            output: Account::alone(u64::MAX),
            perf: Arc::default(),
        }
    }
}

#[derive(Debug, Clone)]
pub struct DialOptions {
    /// From the first packet to the open session.
    pub handshake_timeout: Duration,
    /// Output waiting at which the connection is ended: the peer does not read.
    pub output_max: usize,
    /// A lifeline is asked for: nothing may be sent on it.
    pub lifeline: bool,
    /// After so long without a packet the kernels ask each other whether the connection still is.
    pub keep_alive: Option<Duration>,
    pub meter: Meter,
    /// An OSD's: messages go through memory where the other end is in this process.
    pub lanes: Option<Lanes>,
}

struct Shared<A> {
    proto: RefCell<ClientConnection<A>>,
    /// Set before `open`, if it ever is.
    lane: OnceCell<Lane>,
    open: Cell<bool>,
    lifeline: bool,
    output_max: usize,
    meter: Meter,
    /// Bytes of the output that are charged.
    charged: Cell<usize>,
    wake: Notify,
    cancel: Notify,
}

impl<A: ClientAuth> Shared<A> {
    fn queued_bytes(&self) -> usize {
        let lane = self.lane.get().map_or(0, Lane::queued_bytes);
        self.proto.borrow_mut().output().len() + lane
    }

    /// Queues a message; false if it cannot be sent.
    fn queue(&self, m: Message) -> bool {
        let size = m.size();
        if self.queued_bytes() + size > self.output_max {
            return false;
        }
        let Some(lane) = self.lane.get() else {
            let sent = self.proto.borrow_mut().send(m).is_ok();
            self.wake.notify_one();
            return sent;
        };
        lane.send(m);
        self.meter.perf.msgr_send_bytes.add(size as u64);
        true
    }
}

impl<A> Shared<A> {
    /// The output is so long now.
    fn charge(&self, bytes: usize) {
        let before = self.charged.replace(bytes);
        let account = &self.meter.output;
        account.set((account.bytes() + bytes as u64).saturating_sub(before as u64));
    }
}

impl<A> Drop for Shared<A> {
    fn drop(&mut self) {
        self.charge(0);
    }
}

/// The owner's end. Dropping it ends the connection.
pub struct Dialled<A> {
    shared: Rc<Shared<A>>,
}

impl<A> fmt::Debug for Dialled<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dialled")
            .field("open", &self.shared.open.get())
            .finish()
    }
}

impl<A> Drop for Dialled<A> {
    fn drop(&mut self) {
        self.shared.cancel.notify_one();
    }
}

impl<A: ClientAuth> Dialled<A> {
    /// Queues a message; false if there is no session, or none any more, or if it is a lifeline. Messages queued in one go leave in one
    /// write.
    pub fn send(&self, m: Message) -> bool {
        let s = &self.shared;
        if !s.open.get() || s.lifeline {
            return false;
        }
        if !s.queue(m) {
            s.open.set(false);
            s.cancel.notify_one();
            return false;
        }
        s.charge(s.queued_bytes());
        s.meter.perf.msgr_send_messages.inc();
        true
    }

    /// Bytes that wait to be written, or for the other end to take them.
    pub fn queued_bytes(&self) -> usize {
        self.shared.queued_bytes()
    }
}

/// Dials `addr`; what happens comes to `events` under `name`. Inside a `LocalSet`.
pub fn dial<A: ClientAuth + 'static, N: Copy + 'static>(
    addr: SocketAddr,
    mut config: ClientConfig,
    auth: A,
    options: DialOptions,
    clock: Arc<dyn io::Clock>,
    name: N,
    events: mpsc::Sender<(N, DialEvent)>,
) -> Dialled<A> {
    if options.lifeline {
        config.flags |= FLAG_LIFELINE;
    }
    let (target, osd) = (config.target, config.gid);
    let shared = Rc::new(Shared {
        proto: RefCell::new(ClientConnection::new(config, auth)),
        lane: OnceCell::new(),
        open: Cell::new(false),
        lifeline: options.lifeline,
        output_max: options.output_max,
        meter: options.meter.clone(),
        charged: Cell::new(0),
        wake: Notify::new(),
        cancel: Notify::new(),
    });
    let task = Task {
        shared: shared.clone(),
        clock,
        name,
        events,
        options,
        target,
        osd,
    };
    io::task::spawn_local(task.run(addr));
    Dialled { shared }
}

struct Task<A, N> {
    shared: Rc<Shared<A>>,
    clock: Arc<dyn io::Clock>,
    name: N,
    events: mpsc::Sender<(N, DialEvent)>,
    options: DialOptions,
    target: EntityAddr,
    osd: i64,
}

impl<A: ClientAuth, N: Copy> Task<A, N> {
    async fn run(self, addr: SocketAddr) {
        let end = tokio::select! {
            biased;
            () = self.shared.cancel.notified() => ClientError::GivenUp,
            () = self.deadline(self.options.handshake_timeout) => {
                let why = "no session within the time for a handshake";
                ClientError::Io(std::io::Error::new(ErrorKind::TimedOut, why))
            }
            e = self.talk(addr) => e,
        };
        self.shared.open.set(false);
        // The owner may be gone; then nobody is left to be told.
        let _ = self.events.send((self.name, DialEvent::Ended(end))).await;
    }

    async fn deadline(&self, timeout: Duration) {
        io::task::sleep(timeout).await;
        if self.shared.open.get() {
            std::future::pending().await
        }
    }

    async fn talk(&self, addr: SocketAddr) -> ClientError {
        let stream = match Stream::connect(addr).await {
            Ok(stream) => stream,
            Err(e) => return e.into(),
        };
        if let Some(idle) = self.options.keep_alive
            && let Err(e) = stream.keep_alive(idle)
        {
            return e.into();
        }
        let offer = self.offer(&stream);
        tokio::select! {
            biased;
            e = self.write_loop(&stream) => e,
            e = self.read_loop(&stream, offer) => e,
        }
    }

    fn offer(&self, stream: &Stream) -> Option<Offer> {
        let lanes = self.options.lanes.as_ref().filter(|_| !self.shared.lifeline)?;
        let osd = self.osd.try_into().ok()?;
        Some(lanes.offer(Ends::new(stream.local_addr().ok()?, self.target, osd)))
    }

    async fn write_loop(&self, stream: &Stream) -> ClientError {
        loop {
            match self.write_some(stream) {
                Ok(0) => self.more_to_write().await,
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    if let Err(e) = stream.writable().await {
                        return e.into();
                    }
                }
                Err(e) => return e.into(),
            }
        }
    }

    /// What the other end takes from a lane is charged no more.
    async fn more_to_write(&self) {
        tokio::select! {
            () = self.shared.wake.notified() => {}
            () = lanes::drained(self.shared.lane.get()) => self.shared.charge(self.shared.queued_bytes()),
        }
    }

    fn write_some(&self, stream: &Stream) -> std::io::Result<usize> {
        let written = write_some(stream, self.shared.proto.borrow_mut().output())?;
        self.shared.charge(self.shared.queued_bytes());
        self.shared.meter.perf.msgr_send_bytes.add(written as u64);
        Ok(written)
    }

    async fn read_loop(&self, stream: &Stream, mut offer: Option<Offer>) -> ClientError {
        loop {
            if let Err(e) = self.hand_on(stream, &mut offer).await {
                return e;
            }
            let readable = tokio::select! {
                biased;
                () = lanes::news(self.shared.lane.get()) => continue,
                readable = stream.readable() => readable,
            };
            if let Err(e) = readable {
                return e.into();
            }
            match self.read_some(stream) {
                // What was said before is heard before.
                Ok(0) => {
                    return self
                        .hand_on(stream, &mut offer)
                        .await
                        .err()
                        .unwrap_or(ClientError::Closed);
                }
                Ok(n) => self.shared.meter.perf.msgr_recv_bytes.add(n as u64),
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                Err(e) => return e.into(),
            }
        }
    }

    fn read_some(&self, stream: &Stream) -> std::io::Result<usize> {
        let mut proto = self.shared.proto.borrow_mut();
        let (buf, max) = proto.read_target();
        if max == 0 {
            // Reading nothing would look like the end of the stream.
            return Err(ErrorKind::InvalidInput.into());
        }
        stream.try_read(&mut buf.limit(max))
    }

    /// Hands on what the bytes received so far hold, as fast as the owner takes it.
    async fn hand_on(&self, stream: &Stream, offer: &mut Option<Offer>) -> Result<(), ClientError> {
        loop {
            let now = Utime::from_unix(self.clock.wall());
            let event = {
                let mut proto = self.shared.proto.borrow_mut();
                let event = proto.next(now)?;
                // Steps of the handshake are answered by the machine itself.
                if !proto.output().is_empty() {
                    self.shared.wake.notify_one();
                }
                event
            };
            let event = match event.or_else(|| self.from_lane().map(ClientEvent::Message)) {
                None => return Ok(()),
                Some(ClientEvent::Ready(ident)) => {
                    if let Some(lane) = offer.take().and_then(Offer::end) {
                        // The first, since a handshake ends once.
                        let _ = self.shared.lane.set(lane);
                        self.shared.wake.notify_one();
                    }
                    self.shared.open.set(true);
                    DialEvent::Ready(Session {
                        lifelines: ident.flags & FLAG_LIFELINE != 0,
                        direct: self.is_direct(stream),
                    })
                }
                Some(ClientEvent::Message(m)) => {
                    self.shared.meter.perf.msgr_recv_messages.inc();
                    DialEvent::Message(m)
                }
            };
            let sent = self.events.send((self.name, event)).await;
            sent.map_err(|_| ClientError::GivenUp)?;
        }
    }

    fn from_lane(&self) -> Option<Message> {
        let m = self.shared.lane.get()?.receive()?;
        self.shared.meter.perf.msgr_recv_bytes.add(m.size() as u64);
        Some(m)
    }

    fn is_direct(&self, stream: &Stream) -> bool {
        let plain = |s: SocketAddr| (s.ip().to_canonical(), s.port());
        let seen = self.shared.proto.borrow().my_sock();
        let here = stream.local_addr().ok();
        here.is_some() && seen.map(plain) == here.map(plain)
    }
}
