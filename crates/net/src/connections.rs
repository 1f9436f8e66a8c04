//! The owner's handle on its open connections, and what it is told.

use crate::budget::{Permit, TotalBudget};
use crate::connection::Connection;
use crate::guesses::Guesses;
use crate::lifelines::Door;
use msgr::{Message, Peer};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

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
}

/// The bounds of one listener.
#[derive(Debug, Clone)]
pub struct Options {
    /// Connections at once; one more is closed on arrival.
    pub connections_max: usize,
    pub handshake_timeout: Duration,
    /// Without a byte from the peer for this long, a connection is closed.
    pub idle_timeout: Duration,
    /// In flight per connection.
    pub messages_max: usize,
    pub message_bytes_max: usize,
    /// In flight over all connections.
    pub total_bytes_max: usize,
    /// Output waiting from which on a connection's messages are no longer taken.
    pub output_pause: usize,
    /// Output waiting at which a peer that does not read is cut.
    pub output_max: usize,
    /// Where lifelines go; to be open where [`msgr::ServerConfig::lifelines`] says that they are kept.
    pub lifelines: Door,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            connections_max: 4096,
            handshake_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(900),
            messages_max: 256,
            message_bytes_max: 100 << 20,
            total_bytes_max: 512 << 20,
            output_pause: 16 << 20,
            output_max: 512 << 20,
            lifelines: Door::default(),
        }
    }
}

pub(crate) struct Shared {
    pub options: Options,
    pub conns: RefCell<HashMap<ConnId, Rc<Connection>>>,
    pub total: Rc<TotalBudget>,
    pub next_id: Cell<u64>,
    pub stop: Notify,
    pub stopped: Cell<bool>,
    pub hesitation: Cell<Duration>,
    pub guesses: Rc<RefCell<Guesses>>,
}

/// Cheap to clone; for the thread that serves.
#[derive(Clone)]
pub struct Connections {
    pub(crate) shared: Rc<Shared>,
}

impl Connections {
    pub(crate) fn new(options: Options) -> Self {
        let total = TotalBudget::new(options.total_bytes_max);
        Self {
            shared: Rc::new(Shared {
                options,
                conns: RefCell::new(HashMap::new()),
                total,
                next_id: Cell::new(1),
                stop: Notify::new(),
                stopped: Cell::new(false),
                hesitation: Cell::new(Duration::ZERO),
                guesses: Rc::default(),
            }),
        }
    }

    fn get(&self, conn: ConnId) -> Option<Rc<Connection>> {
        self.shared.conns.borrow().get(&conn).cloned()
    }

    /// Queues a message; false if the connection is gone (then so is its session). Messages queued in one
    /// go leave in one write.
    pub fn send(&self, conn: ConnId, m: Message) -> bool {
        self.get(conn)
            .is_some_and(|c| c.send(m, self.shared.options.output_max))
    }

    /// Ends a connection; `Closed` follows. What is queued may be lost.
    pub fn close(&self, conn: ConnId) {
        if let Some(c) = self.get(conn) {
            c.cut("closed by us");
        }
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
