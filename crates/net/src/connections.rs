//! The owner's handle on its open connections, and what it is told.

use crate::accounts::Accounts;
use crate::budget::{Permit, TotalBudget};
use crate::connection::{Connection, GIVES_WAY, SLOW_READER};
use crate::guesses::Guesses;
use crate::lanes::Lanes;
use crate::lifelines::Intake;
use crate::lossless::Lossless;
use crate::outputs::{ANSWER_MAX, Outputs};
use crate::places::{NoPlace, Places};
use auth::{AuthMethod, PeerCaps};
use msgr::{Message, Peer};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use types::numbers::NumberMap;
use types::{AuthName, EntityAddr, EntityKind};

/// Names one connection for as long as the process lives; never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId(pub u64);

impl fmt::Display for ConnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "conn {}", self.0)
    }
}

#[derive(Debug)]
pub enum NetEvent {
    Opened {
        conn: ConnId,
        peer: Arc<Peer>,
    },
    Message {
        conn: ConnId,
        msg: Message,
        permit: Permit,
    },
    Closed {
        conn: ConnId,
    },
    /// An answer for which [`Connections::promise`] had no room may find some now.
    Drained,
}

/// The bounds of one listener.
#[derive(Debug, Clone)]
pub struct Options {
    /// Connections at once. Who gets which of them: `places`.
    pub connections_max: usize,
    pub handshake_timeout: Duration,
    /// Without a byte from the peer for this long, a connection is closed.
    pub idle_timeout: Duration,
    /// In flight per connection.
    pub messages_max: usize,
    pub message_bytes_max: usize,
    /// Output waiting from which on a connection's messages are no longer taken; and what it may be promised at once.
    pub output_pause: usize,
    /// With more output waiting than this a peer that does not read is cut.
    pub output_max: usize,
    /// What bounds all connections together: messages in flight with what is being received, and one message more; output
    /// waiting and promised, and one answer more.
    pub accounts: Accounts,
    /// Who holds memory that others wait for has to go on within this ([`PACE_BYTES_PER_S`]).
    ///
    /// [`PACE_BYTES_PER_S`]: crate::PACE_BYTES_PER_S
    pub stall: Duration,
    /// Where lifelines go; to be open where [`msgr::ServerConfig::lifelines`] says that they are kept.
    pub lifelines: Intake,
    /// Lanes that other OSDs of this process offer, and the address by which these know the listener.
    pub lanes: Option<(Lanes, EntityAddr)>,
    /// Sessions of clients that ask for it outlive their connections: a connection's number then names the session, and `Closed`
    /// says that the session has ended.
    pub lossless: bool,
}

/// How often connections are looked at that hold what others wait for.
pub(crate) const LOOK: Duration = Duration::from_secs(1);
/// Connections of one listener, where the host allows for so many descriptors.
pub const CONNECTIONS_MAX: usize = 16 << 10;

impl Default for Options {
    fn default() -> Self {
        Self {
            connections_max: CONNECTIONS_MAX,
            handshake_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(900),
            messages_max: 256,
            message_bytes_max: 100 << 20,
            output_pause: 16 << 20,
            output_max: ANSWER_MAX + (16 << 20),
            accounts: Accounts::alone(128 << 20),
            stall: Duration::from_secs(2),
            lifelines: Intake::default(),
            lanes: None,
            lossless: false,
        }
    }
}

pub(crate) struct Shared {
    pub options: Options,
    pub conns: RefCell<NumberMap<ConnId, Rc<Connection>>>,
    pub total: Rc<TotalBudget>,
    pub outputs: Rc<Outputs>,
    pub places: RefCell<Places>,
    pub next_id: Cell<u64>,
    pub stop: Notify,
    pub stopped: Cell<bool>,
    pub hesitation: Cell<Duration>,
    /// When [`Shared::look`] was called last.
    looked: Cell<Duration>,
    pub guesses: Rc<RefCell<Guesses>>,
    pub lossless: Option<Lossless<NetEvent>>,
}

/// A session was taken over by another connection of its client, or has ended.
const DISPLACED: &str = "its session has left it";

/// A daemon of the cluster, or an administrator.
fn is_trusted(peer: &Peer) -> bool {
    let admin = AuthName::new(EntityKind::Client, "admin");
    // Without authentication everybody may do everything.
    let all = peer.method == AuthMethod::Cephx && matches!(peer.caps, PeerCaps::AllowAll);
    peer.auth_name.kind != EntityKind::Client || peer.auth_name == admin || all
}

impl Shared {
    /// Connections that carry nothing any more are closed, and the owner hears of sessions that ended.
    pub fn settle_sessions(&self) {
        let Some(lossless) = &self.lossless else { return };
        let (displaced, has_gone) = {
            let mut sessions = lossless.sessions.borrow_mut();
            (sessions.take_displaced(), sessions.has_gone())
        };
        for conn in displaced {
            self.cut(ConnId(conn), DISPLACED);
        }
        if has_gone {
            lossless.news.notify_one();
        }
    }

    pub fn end_session(&self, session: Option<u64>) {
        if let (Some(lossless), Some(id)) = (&self.lossless, session) {
            lossless.sessions.borrow_mut().end(id);
            self.settle_sessions();
        }
    }

    /// Sessions may have ended; never, where there are none.
    pub async fn session_news(&self) {
        match &self.lossless {
            Some(lossless) => lossless.news.notified().await,
            None => std::future::pending().await,
        }
    }

    pub fn take_place(&self, conn: ConnId, ip: IpAddr, peer: &Peer) -> Result<(), NoPlace> {
        let silence = |c: ConnId| self.conns.borrow().get(&c).map_or(0, |c| c.idle_sweeps.get());
        let mut places = self.places.borrow_mut();
        let gone = places.opened(conn, ip, &peer.auth_name, is_trusted(peer), silence)?;
        if let Some(gone) = gone {
            self.cut(gone, GIVES_WAY);
        }
        Ok(())
    }

    pub fn cut(&self, conn: ConnId, why: &'static str) {
        let conn = self.conns.borrow().get(&conn).cloned();
        if let Some(c) = conn {
            c.cut(why);
        }
    }

    /// The connection with the most output waiting, among those for which `f` holds.
    fn most_output(&self, f: impl Fn(&Connection) -> bool) -> Option<Rc<Connection>> {
        let conns = self.conns.borrow();
        let some = conns.values().filter(|c| c.is_counted() && f(c));
        some.max_by_key(|c| c.output.waiting()).cloned()
    }

    /// To be called about once a second ([`LOOK`]): whoever holds memory that others wait for, and does not go on, is ended.
    pub fn look(&self, now: Duration) {
        let late = self.looked.replace(now).saturating_add(LOOK * 2) < now;
        if late {
            // This thread stood still: what its peers sent lies unread, and it is not they who did not go on.
            self.total.forget();
        } else {
            self.total.look(now);
        }
        if !self.outputs.pressed.replace(false) || late {
            self.conns.borrow().values().for_each(|c| c.output.forget());
            return;
        }
        // All are looked at, or the marks of the rest would be old.
        let stalled: Vec<_> = {
            let conns = self.conns.borrow();
            conns.values().filter(|c| c.output.stalls(now)).cloned().collect()
        };
        if let Some(worst) = stalled
            .into_iter()
            .filter(|c| c.is_counted())
            .max_by_key(|c| c.output.waiting())
        {
            worst.cut(SLOW_READER);
        }
    }
}

/// Room for one answer, until it is queued.
pub struct Promise {
    conn: Rc<Connection>,
    bytes: usize,
}

impl fmt::Debug for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a promise of {} bytes", self.bytes)
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        self.conn.output.keep(self.bytes);
    }
}

/// Cheap to clone; for the thread that serves.
#[derive(Clone)]
pub struct Connections {
    pub(crate) shared: Rc<Shared>,
}

impl Connections {
    pub(crate) fn new(options: Options) -> Self {
        let accounts = &options.accounts;
        let total = TotalBudget::new(accounts.requests.clone(), options.stall);
        let outputs = Outputs::new(accounts.replies.clone(), accounts.peers.clone(), options.stall);
        let connections_max = options.connections_max.min(accounts.connections_max());
        let lossless = options.lossless.then(Lossless::new);
        Self {
            shared: Rc::new(Shared {
                outputs,
                places: RefCell::new(Places::new(connections_max)),
                options,
                conns: RefCell::new(NumberMap::default()),
                total,
                next_id: Cell::new(1),
                stop: Notify::new(),
                stopped: Cell::new(false),
                hesitation: Cell::new(Duration::ZERO),
                looked: Cell::new(Duration::ZERO),
                guesses: Rc::default(),
                lossless,
            }),
        }
    }

    /// The connection; of a session the one that carries it now.
    fn get(&self, conn: ConnId) -> Option<Rc<Connection>> {
        let lossless = self.shared.lossless.as_ref();
        let at = match lossless.map(|l| l.sessions.borrow()) {
            Some(sessions) if sessions.contains(conn.0) => ConnId(sessions.holder(conn.0)?),
            _ => conn,
        };
        self.shared.conns.borrow().get(&at).cloned()
    }

    /// Its session waits for its client to come back: what is queued waits, too. False: there is no such session.
    fn send_later(&self, conn: ConnId, m: &Message) -> bool {
        let Some(lossless) = &self.shared.lossless else {
            return false;
        };
        let kept = lossless.sessions.borrow_mut().push(conn.0, m).is_some();
        self.shared.settle_sessions();
        kept
    }

    /// Queues a message; false if the connection is gone (then so is its session). Messages queued in one
    /// go leave in one write.
    pub fn send(&self, conn: ConnId, m: Message) -> bool {
        let s = &self.shared;
        let (perf, size) = (&s.options.accounts.perf, m.size() as u64);
        let sent = match self.get(conn) {
            Some(c) if c.is_cut() => self.send_later(conn, &m),
            Some(c) => {
                perf.msgr_send_bytes.add(if c.has_lane() { size } else { 0 });
                let sent = c.send(m, s.options.output_max);
                if s.lossless.is_some() {
                    s.settle_sessions();
                }
                sent
            }
            None => self.send_later(conn, &m),
        };
        perf.msgr_send_messages.inc();
        if s.outputs.is_far_beyond()
            && let Some(most) = s.most_output(|_| true)
        {
            most.cut(SLOW_READER);
        }
        sent
    }

    /// Room for an answer of about `bytes` that is still to be made. None: there is none now; [`NetEvent::Drained`] tells
    /// when to ask again, and asking again now and then does no harm.
    pub fn promise(&self, conn: ConnId, bytes: usize) -> Option<Promise> {
        let conn = self.get(conn)?;
        let window = self.shared.options.output_pause;
        conn.output
            .promise(bytes, window)
            .then(|| Promise { conn, bytes })
    }

    /// Nothing more is to be made for this connection now: it has something waiting, and all together have as much as they may.
    /// [`NetEvent::Drained`] tells when to ask again.
    pub fn has_to_wait(&self, conn: ConnId) -> bool {
        self.shared.outputs.is_full() && self.get(conn).is_some_and(|c| c.output.has_to_wait())
    }

    /// Bytes of messages that are being received or worked on, over all connections.
    pub fn message_bytes(&self) -> usize {
        self.shared.total.bytes()
    }

    /// Bytes of answers that clients have not taken, over all connections.
    pub fn output_bytes(&self) -> usize {
        self.shared.outputs.bytes()
    }

    /// Ends a connection; `Closed` follows. What is queued may be lost.
    pub fn close(&self, conn: ConnId) {
        if let Some(c) = self.get(conn) {
            c.cut("closed by us");
        }
        self.shared.end_session(Some(conn.0));
    }

    /// From now on nothing is said to a new connection before so much time has passed: who tries several servers at once
    /// gets to another one.
    pub fn hesitate(&self, time: Duration) {
        self.shared.hesitation.set(time);
    }

    /// The peer of an open connection.
    pub fn peer(&self, conn: ConnId) -> Option<Arc<Peer>> {
        self.get(conn)?.peer.borrow().clone()
    }

    /// Bytes waiting to be written to the peer.
    pub fn queued_bytes(&self, conn: ConnId) -> usize {
        self.get(conn).map_or(0, |c| c.queued_bytes())
    }

    /// Connections, those in their handshake included.
    pub fn len(&self) -> usize {
        self.shared.conns.borrow().len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Stops accepting and closes everything; every open connection still gets its `Closed`.
    pub fn shutdown(&self) {
        self.shared.stopped.set(true);
        self.shared.stop.notify_one();
        let all: Vec<_> = self.shared.conns.borrow().values().cloned().collect();
        for c in all {
            c.cut("shutting down");
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::budget::{Body, Budget};

    const BOUND: usize = 1 << 20;

    async fn is_ended(b: &Budget) -> bool {
        let ended = io::task::timeout(Duration::ZERO, b.stalled.notified());
        ended.await.is_ok()
    }

    /// A process that had no processor for seconds ended the connections of all who were sending to it meanwhile.
    #[test]
    fn who_stood_still_itself_blames_nobody() {
        let options = Options {
            accounts: Accounts::alone(BOUND),
            stall: Duration::from_secs(2),
            ..Options::default()
        };
        let shared = Connections::new(options).shared;
        let new = |id| Budget::new(id, 10, BOUND, shared.total.clone());
        // One has all the room, one is beyond it, and one waits.
        let (holds, beyond, waits) = (new(1), new(2), new(3));
        let mut bodies = [&holds, &beyond, &waits].map(|b| Body::begin(b, BOUND));
        let [first, second, third] = &mut bodies;
        io::task::block_on(async {
            first.room(0, BOUND).await;
            second.room(0, BOUND).await;
            let mut third = std::pin::pin!(third.room(0, BOUND));
            assert!(io::task::timeout(Duration::ZERO, &mut third).await.is_err());
            for (at, ended) in [
                (1, false),
                (2, false),
                (60, false),
                (61, false),
                (62, false),
                (63, true),
            ] {
                shared.look(Duration::from_secs(at));
                assert_eq!(is_ended(&holds).await, ended, "{at}");
            }
        })
        .unwrap();
    }
}
