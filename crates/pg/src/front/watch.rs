//! Watches and notifies of a PG (docs/protocol/ceph/04-osd.md, section 12).
//!
//! Vocabulary: a *watch* is registered by a client on an object under a cookie; its record lives in the
//! object info, its connection and deadline here. A *notify* runs from NOTIFY until every watcher has
//! acknowledged, lost its watch, or the timeout has passed.
//!
//! The table holds every record of every object that was loaded since the start: a record found in the store
//! is adopted as disconnected, with its timeout running since the PG was loaded (and is void when that is over).
//!
//! Not here: changing the records (execution), writing them (the PG).

use crate::api::{ConnId, Output};
use crate::exec::known::Watches;
use crate::exec::notifies::{NotifyBytes, NotifyCharge};
use crate::exec::ops::watch::{TIMEOUT_DEFAULT_S, WATCH_TIMEOUT_MAX_S};
use crate::exec::work::NotifyRequest;
use crate::front::locks::{LockSeen, Locks};
use crate::pool::Blocklist;
use crate::state::object_info::{WatchKey, WatchRecord, key_of};
use bytes::Bytes;
use denc::Writer;
use messages::osd::{MWatchNotify, WatchEvent};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;
use types::{EntityAddr, Errno, HObject};

/// The longest that a client may ask for. The real OSD has no bound: notifications of a client that says 2^32 s stay
/// for as long as a watcher does not answer.
pub(crate) const NOTIFY_TIMEOUT_MAX_S: u32 = 300;
/// Running notifies per object.
const NOTIFIES_MAX: usize = 1024;

#[derive(Debug)]
struct Watch {
    conn: Option<ConnId>,
    timeout: Duration,
    deadline: Duration,
    addr: EntityAddr,
}

#[derive(Debug)]
struct Notify {
    conn: ConnId,
    cookie: u64,
    gid: u64,
    payload: Bytes,
    ver: u64,
    began: Duration,
    deadline: Duration,
    waiting: BTreeSet<WatchKey>,
    replies: BTreeMap<WatchKey, Bytes>,
    /// Its own, and those of the answers.
    charges: Vec<NotifyCharge>,
}

#[derive(Debug, Default)]
struct Watched {
    watches: BTreeMap<WatchKey, Watch>,
    notifies: BTreeMap<u64, Notify>,
}

/// Who watches what, as it is told of.
#[derive(Debug, Clone)]
pub struct Watcher {
    pub object: HObject,
    pub client: i64,
    pub cookie: u64,
    pub timeout: Duration,
    pub addr: EntityAddr,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    Watch(WatchKey),
    Notify(u64),
}

#[derive(Debug, Default)]
pub(crate) struct WatchTable {
    pub bytes: NotifyBytes,
    objects: HashMap<HObject, Watched>,
    timers: BTreeSet<(Duration, HObject, Timer)>,
    /// Locks of watched objects, where there is something to tell.
    pub locks: Locks,
}

/// What a client asks for, 0 being the default, and at most `max`.
fn timeout(seconds: u32, max: u32) -> Duration {
    let seconds = if seconds == 0 { TIMEOUT_DEFAULT_S } else { seconds };
    Duration::from_secs(u64::from(seconds.min(max)))
}

fn event(kind: WatchEvent, cookie: u64, conn: ConnId) -> (ConnId, MWatchNotify) {
    let event = MWatchNotify {
        event: kind,
        cookie,
        ver: 0,
        notify_id: 0,
        payload: Bytes::new(),
        return_code: 0,
        notifier_gid: 0,
        data: Bytes::new(),
    };
    (conn, event)
}

fn send((conn, event): (ConnId, MWatchNotify)) -> Output {
    Output::Send { conn, event }
}

impl Notify {
    fn event_for(&self, id: u64, cookie: u64, conn: ConnId) -> Output {
        let (conn, mut e) = event(WatchEvent::Notify, cookie, conn);
        e.ver = self.ver;
        e.notify_id = id;
        e.payload = self.payload.clone();
        e.notifier_gid = self.gid;
        send((conn, e))
    }

    fn complete(self, id: u64) -> Output {
        let mut w = Writer::new();
        w.u32(self.replies.len() as u32);
        for ((client, cookie), reply) in &self.replies {
            w.i64(*client);
            w.u64(*cookie);
            w.blob(reply);
        }
        w.u32(self.waiting.len() as u32);
        for (client, cookie) in &self.waiting {
            w.i64(*client);
            w.u64(*cookie);
        }
        let (conn, mut e) = event(WatchEvent::NotifyComplete, self.cookie, self.conn);
        e.ver = self.ver;
        e.notify_id = id;
        e.notifier_gid = self.gid;
        e.return_code = if self.waiting.is_empty() {
            0
        } else {
            Errno::ETIMEDOUT.code()
        };
        e.data = w.finish();
        send((conn, e))
    }
}

/// A notification that somebody has not answered: for an RBD image, the holder of its lock was asked for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unanswered {
    pub object: HObject,
    /// Who asked, by global id.
    pub by: u64,
    pub began: Duration,
    /// The watchers that have not answered: client's number, address, and whether it is connected.
    pub watchers: Vec<(i64, EntityAddr, bool)>,
}

impl WatchTable {
    /// Who watches what, at most `max`.
    pub fn watchers(&self, max: usize) -> Vec<Watcher> {
        let of = |(object, watched): (&HObject, &Watched)| -> Vec<Watcher> {
            let watches = watched.watches.iter().map(|(key, w)| Watcher {
                object: object.clone(),
                client: key.0,
                cookie: key.1,
                timeout: w.timeout,
                addr: w.addr,
            });
            watches.collect()
        };
        let mut all: Vec<Watcher> = self.objects.iter().flat_map(of).take(max).collect();
        all.sort_by(|a, b| (&a.object, a.client, a.cookie).cmp(&(&b.object, b.client, b.cookie)));
        all
    }

    /// Notifications that began at `before` or earlier and wait for somebody, at most `max`.
    pub fn unanswered(&self, before: Duration, max: usize) -> Vec<Unanswered> {
        let of = |(object, watched): (&HObject, &Watched)| -> Vec<Unanswered> {
            let late = watched.notifies.values().filter(|n| n.began <= before);
            let who = |n: &Notify| {
                let watch = |k: &WatchKey| watched.watches.get(k).map(|w| (k.0, w.addr, w.conn.is_some()));
                n.waiting.iter().filter_map(watch).collect()
            };
            late.map(|n| Unanswered {
                object: object.clone(),
                by: n.gid,
                began: n.began,
                watchers: who(n),
            })
            .collect()
        };
        self.objects.iter().flat_map(of).take(max).collect()
    }

    /// Holders of locks whom somebody waits for, or who are lost, at most `max`.
    pub fn locks_seen(&self, now: Duration, max: usize) -> Vec<LockSeen> {
        self.locks.seen(now, max, |object, client| {
            let watched = self.objects.get(object)?;
            let its = watched.watches.range((client, 0)..=(client, u64::MAX));
            its.map(|(_, w)| w.conn.is_some()).max()
        })
    }

    pub fn next_timer(&self) -> Option<Duration> {
        self.timers.first().map(|t| t.0)
    }

    /// Makes the records of an object read from the store known. Those known already stay as they are; those
    /// whose time was over since the PG was loaded are taken out of `records`.
    pub fn adopt(
        &mut self,
        object: &HObject,
        records: &mut Vec<WatchRecord>,
        since: Duration,
        now: Duration,
    ) {
        records.retain(|r| {
            let known = self.objects.get(object);
            if known.is_some_and(|o| o.watches.contains_key(&key_of(r))) {
                return true;
            }
            let timeout = timeout(r.timeout_s, WATCH_TIMEOUT_MAX_S);
            let deadline = since + timeout;
            if deadline <= now {
                return false;
            }
            let watch = Watch {
                conn: None,
                timeout,
                deadline,
                addr: r.addr,
            };
            let watched = self.objects.entry(object.clone()).or_default();
            watched.watches.insert(key_of(r), watch);
            self.timers
                .insert((deadline, object.clone(), Timer::Watch(key_of(r))));
            true
        });
    }

    /// Registers a watch or takes it over on another connection; events of running notifies follow.
    pub fn connect(&mut self, object: &HObject, r: &WatchRecord, conn: ConnId, now: Duration) -> Vec<Output> {
        let key = key_of(r);
        let timeout = timeout(r.timeout_s, WATCH_TIMEOUT_MAX_S);
        let watched = self.objects.entry(object.clone()).or_default();
        let deadline = now + timeout;
        let new = Watch {
            conn: Some(conn),
            timeout,
            deadline,
            addr: r.addr,
        };
        let before = watched.watches.insert(key, new);
        if let Some(w) = &before {
            self.timers
                .remove(&(w.deadline, object.clone(), Timer::Watch(key)));
        }
        self.timers.insert((deadline, object.clone(), Timer::Watch(key)));
        if before.is_none_or(|w| w.conn == Some(conn)) {
            return Vec::new();
        }
        let missed = watched.notifies.iter().filter(|(_, n)| n.waiting.contains(&key));
        missed.map(|(id, n)| n.event_for(*id, key.1, conn)).collect()
    }

    /// A watch was heard of over its connection: its time begins anew.
    pub fn ping(&mut self, object: &HObject, key: WatchKey, conn: ConnId, now: Duration) {
        let watched = self.objects.get_mut(object);
        let watch = watched.and_then(|o| o.watches.get_mut(&key));
        let Some(watch) = watch.filter(|w| w.conn == Some(conn)) else {
            return;
        };
        let timer = Timer::Watch(key);
        self.timers
            .remove(&(watch.deadline, object.clone(), timer.clone()));
        watch.deadline = now + watch.timeout;
        self.timers.insert((watch.deadline, object.clone(), timer));
    }

    /// Takes one watch away. With `tell` its client gets a DISCONNECT. Notifies stop waiting for it.
    pub fn remove(&mut self, object: &HObject, key: WatchKey, tell: bool) -> Vec<Output> {
        let mut out = Vec::new();
        let Some(watched) = self.objects.get_mut(object) else {
            return out;
        };
        if let Some(w) = watched.watches.remove(&key) {
            self.timers
                .remove(&(w.deadline, object.clone(), Timer::Watch(key)));
            if let (true, Some(conn)) = (tell, w.conn) {
                out.push(send(event(WatchEvent::Disconnect, key.1, conn)));
            }
        }
        for n in watched.notifies.values_mut() {
            n.waiting.remove(&key);
        }
        self.finish_notifies(object, |n| n.waiting.is_empty(), &mut out);
        out
    }

    /// Ends the notifies of an object that are `done`; forgets an object without anything left.
    fn finish_notifies(&mut self, object: &HObject, done: impl Fn(&Notify) -> bool, out: &mut Vec<Output>) {
        let Some(watched) = self.objects.get_mut(object) else {
            return;
        };
        let ids: Vec<u64> = watched
            .notifies
            .iter()
            .filter(|(_, n)| done(n))
            .map(|(id, _)| *id)
            .collect();
        for id in ids {
            if let Some(n) = watched.notifies.remove(&id) {
                self.timers
                    .remove(&(n.deadline, object.clone(), Timer::Notify(id)));
                out.push(n.complete(id));
            }
        }
        if watched.watches.is_empty() && watched.notifies.is_empty() {
            self.objects.remove(object);
        }
    }

    /// Starts a notify: the events to the connected watchers, and the completion if nobody watches.
    pub fn notify(&mut self, object: &HObject, r: NotifyRequest, now: Duration) -> Vec<Output> {
        let watched = self.objects.entry(object.clone()).or_default();
        let n = Notify {
            conn: r.conn,
            cookie: r.cookie,
            gid: r.gid,
            payload: r.payload,
            ver: r.ver,
            began: now,
            deadline: now + timeout(r.timeout_s, NOTIFY_TIMEOUT_MAX_S),
            waiting: watched.watches.keys().copied().collect(),
            replies: BTreeMap::new(),
            charges: vec![r.charge],
        };
        let mut out: Vec<Output> = watched
            .watches
            .iter()
            .filter_map(|(key, w)| Some(n.event_for(r.id, key.1, w.conn?)))
            .collect();
        self.timers
            .insert((n.deadline, object.clone(), Timer::Notify(r.id)));
        watched.notifies.insert(r.id, n);
        self.finish_notifies(object, |n| n.waiting.is_empty(), &mut out);
        out
    }

    /// An acknowledgement, with room for what it says; unknown and late ones are ignored.
    pub fn ack(
        &mut self,
        object: &HObject,
        id: u64,
        key: WatchKey,
        (reply, charge): (Bytes, Option<NotifyCharge>),
    ) -> Vec<Output> {
        let mut out = Vec::new();
        let notify = self.objects.get_mut(object).and_then(|o| o.notifies.get_mut(&id));
        if let Some(n) = notify
            && n.waiting.remove(&key)
        {
            n.replies.insert(key, reply);
            n.charges.extend(charge);
            self.finish_notifies(object, |n| n.waiting.is_empty(), &mut out);
        }
        out
    }

    /// A connection is gone: its watches wait for their clients, its notifies end without a word.
    pub fn connection_closed(&mut self, conn: ConnId, now: Duration) {
        for (object, watched) in &mut self.objects {
            for (key, w) in watched.watches.iter_mut().filter(|(_, w)| w.conn == Some(conn)) {
                self.timers
                    .remove(&(w.deadline, object.clone(), Timer::Watch(*key)));
                w.conn = None;
                w.deadline = now + w.timeout;
                self.timers
                    .insert((w.deadline, object.clone(), Timer::Watch(*key)));
            }
            watched.notifies.retain(|id, n| {
                if n.conn == conn {
                    self.timers
                        .remove(&(n.deadline, object.clone(), Timer::Notify(*id)));
                }
                n.conn != conn
            });
        }
        self.objects
            .retain(|_, o| !o.watches.is_empty() || !o.notifies.is_empty());
    }

    /// Watches whose time is over. They stay in the table until [`WatchTable::remove`]; their timer moves on
    /// by their timeout, so that a removal that fails is tried again. Notifies whose time is over end.
    pub fn expired(&mut self, now: Duration, out: &mut Vec<Output>) -> Vec<(HObject, WatchKey)> {
        let mut due = Vec::new();
        while let Some((at, ..)) = self.timers.first()
            && *at <= now
            && let Some((at, object, timer)) = self.timers.pop_first()
        {
            match timer {
                Timer::Notify(_) => self.finish_notifies(&object, |n| n.deadline <= at, out),
                Timer::Watch(key) => {
                    let watch = self
                        .objects
                        .get_mut(&object)
                        .and_then(|o| o.watches.get_mut(&key));
                    if let Some(w) = watch {
                        w.deadline = now + w.timeout;
                        self.timers
                            .insert((w.deadline, object.clone(), Timer::Watch(key)));
                        due.push((object, key));
                    }
                }
            }
        }
        due
    }

    /// Drops objects that went to another PG, without a word to anyone.
    pub fn retain(&mut self, keep: impl Fn(&HObject) -> bool) {
        self.objects.retain(|o, _| keep(o));
        self.timers.retain(|(_, o, _)| keep(o));
        self.locks.retain(keep);
    }

    /// Watches of clients that are blocked now.
    pub fn blocked(&self, list: &Blocklist) -> Vec<(HObject, WatchKey)> {
        let all = self
            .objects
            .iter()
            .flat_map(|(o, w)| w.watches.iter().map(move |(k, w)| (o, k, w)));
        all.filter(|(_, k, w)| list.has_id(k.0 as u64) || list.entry_for(&w.addr, None).is_some())
            .map(|(o, k, _)| (o.clone(), *k))
            .collect()
    }
}

impl Watches for WatchTable {
    fn check(&self, object: &HObject, key: WatchKey, conn: ConnId) -> Result<(), Errno> {
        let watch = self.objects.get(object).and_then(|o| o.watches.get(&key));
        match watch.ok_or(Errno::ENOTCONN)?.conn == Some(conn) {
            true => Ok(()),
            false => Err(Errno::ETIMEDOUT),
        }
    }

    fn can_notify(&self, object: &HObject) -> bool {
        self.objects
            .get(object)
            .is_none_or(|o| o.notifies.len() < NOTIFIES_MAX)
    }

    fn room_for_notify(&self, client: u64, payload: usize) -> Result<NotifyCharge, Errno> {
        self.bytes.take(client, payload)
    }

    fn room_for_reply(
        &self,
        object: &HObject,
        id: u64,
        key: WatchKey,
        bytes: usize,
    ) -> Result<Option<NotifyCharge>, Errno> {
        let notify = self.objects.get(object).and_then(|o| o.notifies.get(&id));
        let waits = notify.filter(|n| n.waiting.contains(&key));
        waits.map(|n| self.bytes.take_more(n.gid, bytes)).transpose()
    }
}
