//! Lossless sessions of an accepting side: they outlive the TCP connections that carry them, one after the other
//! (docs/protocol/ceph/01-messenger.md, 3.11). A metadata server keeps them; monitors and OSDs keep none.
//!
//! Vocabulary: a session is *held* by the connection that carries it now, or by none. A message is *unacknowledged* from when it is
//! queued until the client says that it has it; what a new connection is to carry begins with those.
//!
//! Invariants: a number names a session as long as the process lives. What is queued leaves in order, under a sequence number of its own
//! that it keeps, and a client's message is handed on once, whatever was cut in between. Only who authenticated under the number and the
//! name of the client that opened a session takes it over. A connection that a session was taken from gets nothing of it any more.
//!
//! Bounds: [`UNACKED_BYTES_MAX`] for each session, [`TOTAL_BYTES_MAX`] for all, [`SESSIONS_MAX`] sessions: what is beyond is ended,
//! the largest first, or the longest away, and its client told that it is gone when it comes back. Nobody's session gives way to a
//! newcomer's while it is held.

#[cfg(test)]
mod tests;

use crate::{Error, Message, Peer, Reconnect};
use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use types::{AuthName, EntityAddrVec};

/// What one session may have queued that its client has not acknowledged.
pub const UNACKED_BYTES_MAX: usize = 32 << 20;
/// The same of all sessions together.
pub const TOTAL_BYTES_MAX: usize = 128 << 20;
/// Sessions at once, held or not.
pub const SESSIONS_MAX: usize = 16 << 10;

/// Who a session belongs to: the client's number, as authenticated, and what it calls itself.
type Key = (u64, EntityAddrVec);

struct Session {
    key: Key,
    peer: Arc<Peer>,
    client_cookie: u64,
    server_cookie: u64,
    /// Of the client's connection that holds it, or held it last.
    global_seq: u64,
    connect_seq: u64,
    in_seq: u64,
    /// Up to where the client was told that its messages are here.
    told: u64,
    out_seq: u64,
    unacked: VecDeque<(u64, Message)>,
    bytes: usize,
    holder: Option<u64>,
    /// Sweeps since it was held.
    away: u32,
}

/// What a CLIENT_IDENT leads to.
pub(crate) enum Opened {
    New,
    /// The session is the one before: the client did not hear that it has it.
    Again,
    /// A connection that the client has given up.
    Stale,
    /// There are as many as there may be, and all are held.
    Full,
}

/// What a SESSION_RECONNECT leads to.
pub(crate) enum Resumed {
    Reset,
    RetryGlobal(u64),
    Retry(u64),
    /// The session goes on; the last message of the client that is here.
    Ok(u64),
}

/// A session that has ended.
#[derive(Debug)]
pub struct Gone {
    pub id: u64,
    pub peer: Arc<Peer>,
    /// The bound that ended it, if it was one.
    pub over: Option<&'static str>,
}

const OWN: &str = "its client has not acknowledged too much";
const TOTAL: &str = "clients have not acknowledged too much, and it the most";
const MANY: &str = "there are too many, and it is away";
const AWAY: &str = "its client has not come back";

/// All sessions of one listener.
#[derive(Default)]
pub struct Sessions {
    all: BTreeMap<u64, Session>,
    by_key: BTreeMap<Key, u64>,
    bytes: usize,
    gone: Vec<Gone>,
    displaced: Vec<u64>,
}

impl Sessions {
    pub fn len(&self) -> usize {
        self.all.len()
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub fn contains(&self, id: u64) -> bool {
        self.all.contains_key(&id)
    }

    /// The connection that carries it.
    pub fn holder(&self, id: u64) -> Option<u64> {
        self.all.get(&id)?.holder
    }

    /// Bytes of what clients have not acknowledged.
    pub fn unacked_bytes(&self) -> usize {
        self.bytes
    }

    /// Sessions that ended since this was asked last: their owner is to be told.
    pub fn take_gone(&mut self) -> Vec<Gone> {
        std::mem::take(&mut self.gone)
    }

    pub fn has_gone(&self) -> bool {
        !self.gone.is_empty()
    }

    /// Connections that carry nothing any more: to be closed.
    pub fn take_displaced(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.displaced)
    }

    /// The session of the client that connection `conn` is of, by its CLIENT_IDENT.
    pub(crate) fn open(
        &mut self,
        peer: &Arc<Peer>,
        client_cookie: u64,
        server_cookie: u64,
        global_seq: u64,
        conn: u64,
    ) -> (u64, Opened) {
        let key = (peer.global_id, peer.addrs.clone());
        if let Some(id) = self.by_key.get(&key).copied()
            && let Some(s) = self.all.get_mut(&id)
        {
            if s.global_seq > global_seq {
                return (id, Opened::Stale);
            }
            if s.client_cookie == client_cookie && s.peer.auth_name == peer.auth_name {
                s.server_cookie = server_cookie;
                s.connect_seq = 0;
                s.in_seq = 0;
                s.told = 0;
                s.out_seq = 0;
                for (seq, _) in &mut s.unacked {
                    s.out_seq += 1;
                    *seq = s.out_seq;
                }
                self.hold(id, conn, global_seq);
                return (id, Opened::Again);
            }
            // The client began anew.
            self.end(id);
        }
        if !self.has_room(peer.global_id) {
            return (conn, Opened::Full);
        }
        let session = Session {
            key: key.clone(),
            peer: peer.clone(),
            client_cookie,
            server_cookie,
            global_seq,
            connect_seq: 0,
            in_seq: 0,
            told: 0,
            out_seq: 0,
            unacked: VecDeque::new(),
            bytes: 0,
            holder: Some(conn),
            away: 0,
        };
        self.all.insert(conn, session);
        self.by_key.insert(key, conn);
        (conn, Opened::New)
    }

    /// For one more of this client. A session of its own gives way first, then the longest away of all.
    fn has_room(&mut self, global_id: u64) -> bool {
        if self.all.len() < SESSIONS_MAX {
            return true;
        }
        let age = |(id, s): &(&u64, &Session)| (s.holder.is_none(), s.away, Reverse(**id));
        let own = self
            .all
            .iter()
            .filter(|(_, s)| s.key.0 == global_id)
            .max_by_key(age);
        let gives_way = own.or_else(|| {
            let away = self.all.iter().filter(|(_, s)| s.holder.is_none());
            away.max_by_key(age)
        });
        let Some(id) = gives_way.map(|(id, _)| *id) else {
            return false;
        };
        self.end_over(id, Some(MANY));
        true
    }

    fn hold(&mut self, id: u64, conn: u64, global_seq: u64) {
        let Some(s) = self.all.get_mut(&id) else { return };
        self.displaced.extend(s.holder.filter(|h| *h != conn));
        s.holder = Some(conn);
        s.global_seq = global_seq;
        s.away = 0;
    }

    /// The session that a client wants to go on with; its number and its peer, where it does.
    pub(crate) fn resume(
        &mut self,
        name: &AuthName,
        global_id: u64,
        r: &Reconnect,
        conn: u64,
    ) -> (Resumed, Option<(u64, Arc<Peer>)>) {
        let id = self.by_key.get(&(global_id, r.addrs.clone())).copied();
        let Some((id, s)) = id.and_then(|id| self.all.get_mut(&id).map(|s| (id, s))) else {
            return (Resumed::Reset, None);
        };
        let cookies = (s.client_cookie, s.server_cookie) == (r.client_cookie, r.server_cookie);
        if !cookies || s.peer.auth_name != *name {
            return (Resumed::Reset, None);
        }
        // Said to have come, and never sent: another state than ours.
        if r.message_seq > s.out_seq {
            return (Resumed::Reset, None);
        }
        if s.global_seq > r.global_seq {
            return (Resumed::RetryGlobal(s.global_seq), None);
        }
        if s.connect_seq > r.connect_seq {
            return (Resumed::Retry(s.connect_seq), None);
        }
        s.connect_seq = r.connect_seq;
        s.told = s.in_seq;
        let (in_seq, peer) = (s.in_seq, s.peer.clone());
        self.acked(id, r.message_seq);
        self.hold(id, conn, r.global_seq);
        (Resumed::Ok(in_seq), Some((id, peer)))
    }

    /// Every message that a new connection is to carry, with its number and the number acknowledged.
    pub(crate) fn unacked(&self, id: u64) -> Vec<(u64, u64, Message)> {
        let Some(s) = self.all.get(&id) else {
            return Vec::new();
        };
        s.unacked
            .iter()
            .map(|(seq, m)| (*seq, s.in_seq, m.clone()))
            .collect()
    }

    /// Queues a message: its number, and the one that it acknowledges. None: there is no such session, or none any more.
    pub fn push(&mut self, id: u64, m: &Message) -> Option<(u64, u64)> {
        let s = self.all.get_mut(&id)?;
        s.out_seq += 1;
        s.told = s.in_seq;
        let numbers = (s.out_seq, s.in_seq);
        s.unacked.push_back((s.out_seq, m.clone()));
        s.bytes += m.size();
        self.bytes += m.size();
        if s.bytes > UNACKED_BYTES_MAX {
            self.end_over(id, Some(OWN));
            return None;
        }
        if self.bytes > TOTAL_BYTES_MAX
            && let Some(most) = self.all.iter().max_by_key(|(_, s)| s.bytes).map(|(id, _)| *id)
        {
            self.end_over(most, Some(TOTAL));
        }
        self.contains(id).then_some(numbers)
    }

    /// The client has all messages up to this one.
    pub(crate) fn acked(&mut self, id: u64, seq: u64) {
        let Some(s) = self.all.get_mut(&id) else { return };
        while let Some((_, m)) = s.unacked.pop_front_if(|(n, _)| *n <= seq) {
            s.bytes -= m.size();
            self.bytes -= m.size();
        }
    }

    /// A connection heard message `seq` of the client: true if it is to be handed on.
    pub(crate) fn received(&mut self, id: u64, conn: u64, seq: u64, ack: u64) -> Result<bool, Error> {
        self.check(id, conn)?;
        self.acked(id, ack);
        let Some(s) = self.all.get_mut(&id) else {
            return Err(Error::Displaced);
        };
        let new = seq > s.in_seq;
        s.in_seq = s.in_seq.max(seq);
        Ok(new)
    }

    pub(crate) fn check(&self, id: u64, conn: u64) -> Result<(), Error> {
        match self.holder(id) {
            Some(holder) if holder == conn => Ok(()),
            _ => Err(Error::Displaced),
        }
    }

    /// What the client is to be told that it was not told yet.
    pub(crate) fn due(&mut self, id: u64, conn: u64) -> Option<u64> {
        let s = self.all.get_mut(&id).filter(|s| s.holder == Some(conn))?;
        let due = (s.told < s.in_seq).then_some(s.in_seq);
        s.told = s.in_seq;
        due
    }

    /// A connection has ended; its session waits for another one.
    pub fn left(&mut self, id: u64, conn: u64) {
        if let Some(s) = self.all.get_mut(&id).filter(|s| s.holder == Some(conn)) {
            s.holder = None;
        }
    }

    /// To be called now and then: sessions that nobody held at so many calls are ended.
    pub fn sweep(&mut self, limit: u32) {
        let mut over = Vec::new();
        for (id, s) in &mut self.all {
            s.away = if s.holder.is_some() { 0 } else { s.away + 1 };
            if s.away > limit {
                over.push(*id);
            }
        }
        over.into_iter().for_each(|id| self.end_over(id, Some(AWAY)));
    }

    /// Ends it: what waits is dropped, and the client that comes back is told so.
    pub fn end(&mut self, id: u64) {
        self.end_over(id, None);
    }

    fn end_over(&mut self, id: u64, over: Option<&'static str>) {
        let Some(s) = self.all.remove(&id) else { return };
        self.by_key.remove(&s.key);
        self.bytes -= s.bytes;
        self.displaced.extend(s.holder);
        self.gone.push(Gone {
            id,
            peer: s.peer,
            over,
        });
    }

    pub fn end_all(&mut self) {
        let all: Vec<u64> = self.all.keys().copied().collect();
        all.into_iter().for_each(|id| self.end(id));
    }
}
