//! Watches and notifies: operations that outlive their reply (docs/protocol/ceph/04-osd.md, section 12).
//!
//! A *watch* is registered at its object's primary, pinged every [`PING_EVERY`], and registered again (RECONNECT, with a new
//! generation) when the PG moves or the connection breaks. A *notify* is one until its NOTIFY_COMPLETE comes; it is sent again
//! in the same cases, so watchers may see it twice.
//!
//! Invariants: at most [`LINGERS_MAX`]; each has at most one registration and one ping under way; after
//! [`WatchEvent::Lost`] nothing more comes of a watch.

use super::ids::{OpId, Tid, WatchId};
use super::inflight::Request;
use super::op::{Operation, WatchOp};
use super::snap::SnapContext;
use super::target::{Place, Target};
use bytes::Bytes;
use denc::Reader;
use messages::osd::MWatchNotify;
use std::collections::BTreeMap;
use std::time::Duration;
use types::{Errno, NOSNAP};

pub const LINGERS_MAX: usize = 65_536;
pub const PING_EVERY: Duration = Duration::from_secs(5);

/// What a watcher hears.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchEvent {
    Notify {
        notify_id: u64,
        /// The notifier's global id.
        notifier: u64,
        payload: Bytes,
    },
    /// The watch is gone: the object was removed, or the OSD took the watch for dead. Notifies may have been missed.
    Lost(Errno),
}

/// What came of a notify.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Notified {
    /// Global id, cookie and reply of each watcher that answered.
    pub replies: Vec<(u64, u64, Bytes)>,
    /// Global id and cookie of those that did not in time.
    pub missed: Vec<(u64, u64)>,
}

impl Notified {
    pub fn decode(data: &Bytes) -> denc::Result<Self> {
        let r = &mut Reader::new(data.clone());
        if r.is_empty() {
            return Ok(Self::default());
        }
        let n = r.count(20)?;
        let mut replies = Vec::with_capacity(n);
        for _ in 0..n {
            replies.push((r.u64()?, r.u64()?, r.blob()?));
        }
        let n = r.count(16)?;
        let mut missed = Vec::with_capacity(n);
        for _ in 0..n {
            missed.push((r.u64()?, r.u64()?));
        }
        Ok(Self { replies, missed })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// `timeout` in seconds, 0: the server's default.
    Watch {
        timeout: u32,
    },
    Notify {
        payload: Bytes,
        timeout: u32,
    },
}

#[derive(Debug)]
pub struct Linger {
    pub place: Place,
    pub kind: Kind,
    /// Who waits for the registration, or for the notify to complete.
    pub waiter: Option<OpId>,
    /// The OSD has it, or had it.
    pub registered: bool,
    /// Registrations after the first.
    pub generation: u32,
    /// Where it is registered.
    pub target: Option<Target>,
    /// Its registration under way.
    pub registering: Option<Tid>,
    pub ping: Option<Tid>,
    pub ping_at: Duration,
    /// When the last ping that was answered was sent.
    pub confirmed: Duration,
    pub ping_sent: Duration,
}

impl Linger {
    pub fn is_watch(&self) -> bool {
        matches!(self.kind, Kind::Watch { .. })
    }

    fn request(&self, operation: Operation) -> Request {
        Request {
            place: self.place.clone(),
            operation,
            snap: NOSNAP,
            context: SnapContext::default(),
            timeout: None,
        }
    }

    /// What registers it, now that it is sent once more.
    pub fn registration(&self, cookie: u64) -> Request {
        let op = Operation::new();
        self.request(match &self.kind {
            Kind::Notify { payload, timeout } => op.notify(cookie, *timeout, payload),
            Kind::Watch { timeout } => {
                let what = match self.registered {
                    true => WatchOp::Reconnect,
                    false => WatchOp::Watch,
                };
                op.watch(what, cookie, self.generation, *timeout)
            }
        })
    }

    pub fn pinging(&self, cookie: u64) -> Request {
        let op = Operation::new().watch(WatchOp::Ping, cookie, self.generation, 0);
        self.request(op)
    }

    pub fn ack(&self, cookie: u64, notify_id: u64, reply: &[u8]) -> Request {
        self.request(Operation::new().notify_ack(notify_id, cookie, reply))
    }

    pub fn end(&self, cookie: u64) -> Request {
        self.request(Operation::new().watch(WatchOp::Unwatch, cookie, self.generation, 0))
    }
}

/// What was heard of a linger, for its owner.
#[derive(Debug, PartialEq, Eq)]
pub enum Heard {
    Event(WatchEvent),
    Completed(Option<OpId>, crate::Result<Notified>),
}

#[derive(Debug, Default)]
pub struct Lingers {
    all: BTreeMap<WatchId, Linger>,
    last: u64,
}

impl Lingers {
    /// Its cookie is another one for each; None: there are too many.
    pub fn add(&mut self, linger: Linger) -> Option<WatchId> {
        if self.all.len() >= LINGERS_MAX {
            return None;
        }
        self.last += 1;
        let id = WatchId(self.last);
        self.all.insert(id, linger);
        Some(id)
    }

    pub fn get(&self, id: WatchId) -> Option<&Linger> {
        self.all.get(&id)
    }

    pub fn get_mut(&mut self, id: WatchId) -> Option<&mut Linger> {
        self.all.get_mut(&id)
    }

    pub fn remove(&mut self, id: WatchId) -> Option<Linger> {
        self.all.remove(&id)
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub fn which(&self, f: impl Fn(&Linger) -> bool) -> Vec<WatchId> {
        let found = self.all.iter().filter(|(_, l)| f(l));
        found.map(|(id, _)| *id).collect()
    }

    pub fn waits(&self, id: OpId) -> Option<WatchId> {
        self.which(|l| l.waiter == Some(id)).first().copied()
    }

    /// An event of the OSD; None: it is about nothing that is ours.
    pub fn hear(&mut self, m: MWatchNotify) -> Option<(WatchId, Heard)> {
        use messages::osd::WatchEvent as On;
        let id = WatchId(m.cookie);
        let linger = self.all.get(&id)?;
        match (m.event, linger.is_watch()) {
            (On::Notify, true) => {
                let event = WatchEvent::Notify {
                    notify_id: m.notify_id,
                    notifier: m.notifier_gid,
                    payload: m.payload,
                };
                Some((id, Heard::Event(event)))
            }
            (On::Disconnect, true) => Some((id, Heard::Event(WatchEvent::Lost(Errno::ENOTCONN)))),
            (On::NotifyComplete, false) => {
                let waiter = self.all.remove(&id)?.waiter;
                // Those who did not answer are in the list: that is no failure of the notify.
                let told = match m.return_code {
                    r if r < 0 && r != Errno::ETIMEDOUT.code() => Err(crate::Error::refused(r, "notify")),
                    _ => Notified::decode(&m.data).map_err(Into::into),
                };
                Some((id, Heard::Completed(waiter, told)))
            }
            _ => None,
        }
    }
}
