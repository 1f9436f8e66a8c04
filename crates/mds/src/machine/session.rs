//! Sessions of clients: opening, renewing, closing; who is silent; what comes in on which connection.
//!
//! Vocabulary: a session belongs to a client's number in the cluster, not to a connection; what is *counted* (capabilities, leases,
//! snapshots, quotas) is what a client compares when it closes.

use super::parts::caps::CLIENT_MAX;
use super::parts::early::may_be_unsafe;
use super::parts::held::Said;
use super::parts::sessions::{Session, State};
use super::{ClientId, Conn, Effect, Machine, Tx};
use crate::access::Access;
use crate::membership::MdsState;
use crate::row::{Key, Row, SessionRow};
use messages::fs::{
    Features, MClientCapRelease, MClientCaps, MClientLease, MClientReclaim, MClientReclaimReply,
    MClientReconnect, MClientRequest, MClientSession, session_op,
};
use messages::mon::Body;
use messages::osd;
use msgr::{Message, Peer};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use types::{EntityAddr, EntityAddrVec};

/// Features 0 to 12: replies in envelopes, reconnects in parts, reclaim; no delegated numbers, no metrics.
pub(crate) const FEATURES: u64 = 0x1fff;
/// Replies in envelopes: without it nothing that we send can be read.
const FEATURE_ENCODING: u32 = 9;
const FEATURE_NOTIFY: u32 = 16;
/// Requests of one client that may be under way; one that has more is cut.
const REQUESTS_MAX: usize = 16 << 10;

/// What a capability counts, with the inode that it keeps in memory.
pub(crate) const CAP_BYTES: usize = 1024;
/// Trimming takes a client a second or so.
const RECALL_EVERY: Duration = Duration::from_secs(2);

impl Machine {
    pub(crate) fn opened(&mut self, conn: Conn, peer: &Arc<Peer>) {
        let client = peer.global_id;
        self.sessions.conns.insert(conn, (client, peer.clone()));
        let before = self.sessions.get(client).and_then(|s| s.conn);
        if before.is_some_and(|c| c != conn) {
            self.sessions.lose(client, before);
        }
        if let Some(s) = self.sessions.get_mut(client)
            && s.state != State::Evicted
        {
            s.conn = Some(conn);
            s.from = Some(peer.sock.ip().to_canonical());
        }
    }

    pub(crate) fn closed(&mut self, conn: Conn) {
        if let Some((client, _)) = self.sessions.client_of(conn) {
            self.sessions.lose(client, Some(conn));
        }
        self.sessions.conns.remove(&conn);
    }

    pub(crate) fn message(&mut self, conn: Conn, m: &Message) {
        let Some((client, peer)) = self.sessions.client_of(conn) else {
            return;
        };
        let done = match m.kind {
            MClientSession::KIND => {
                MClientSession::from_message(m).map(|s| self.session_message(conn, client, &peer, &s))
            }
            MClientReconnect::KIND => {
                MClientReconnect::from_message(m).map(|r| self.client_reconnect(conn, client, r))
            }
            osd::kind::COMMAND => self.command(conn, &peer, m),
            MClientReclaim::KIND => MClientReclaim::from_message(m).map(|r| self.reclaim(conn, client, &r)),
            // It will be told with its answer to what it says that it holds.
            MClientCaps::KIND | MClientCapRelease::KIND
                if self.reconnecting.is_some() && !self.speaks(client) =>
            {
                return;
            }
            // What was under way when its session ended is no reason to cut it off.
            MClientLease::KIND | MClientCapRelease::KIND if !self.speaks(client) => return,
            _ if !self.speaks(client) => return self.without_session(conn),
            MClientRequest::KIND => MClientRequest::from_message(m).map(|r| self.request(client, m.tid, r)),
            MClientCaps::KIND => {
                MClientCaps::from_message(m).map(|c| self.said(conn, client, Said::caps(c, m)))
            }
            MClientCapRelease::KIND => MClientCapRelease::from_message(m).map(|r| {
                for item in r.items {
                    self.said(conn, client, Said::Release(item));
                }
            }),
            MClientLease::KIND => MClientLease::from_message(m).map(|l| self.client_lease(client, &l)),
            // Metrics, and what is newer than we are.
            _ => return,
        };
        if let Err(e) = done {
            tracing::warn!(
                "client.{client}: a message of kind {} that cannot be read: {e}",
                m.kind
            );
            self.push_now(Effect::Close {
                conn,
                why: "a message that cannot be read",
            });
        }
    }

    /// It has a session; before it came back after a restart what it says belongs to that, too.
    pub(crate) fn speaks(&self, client: ClientId) -> bool {
        self.sessions
            .get(client)
            .is_some_and(|s| s.state != State::Evicted)
    }

    fn without_session(&mut self, conn: Conn) {
        self.push_now(Effect::Close {
            conn,
            why: "a message without a session",
        });
    }

    fn session_message(&mut self, conn: Conn, client: ClientId, peer: &Arc<Peer>, m: &MClientSession) {
        match m.op {
            session_op::REQUEST_OPEN => self.open(conn, client, peer, m),
            session_op::REQUEST_RENEWCAPS => self.renew(client, m.seq),
            session_op::REQUEST_CLOSE => self.close_asked(client, m.seq),
            session_op::REQUEST_FLUSH_MDLOG => self.early.hurry = !self.batch.is_empty(),
            _ => {}
        }
    }

    fn open(&mut self, conn: Conn, client: ClientId, peer: &Arc<Peer>, m: &MClientSession) {
        if let Some(s) = self.sessions.get_mut(client) {
            if s.state != State::Open {
                // Of an earlier instance of this number: it is on its way out.
                return;
            }
            s.conn = Some(conn);
            // It begins anew, and nothing can have been asked back of it.
            s.lost &= !s.caps.is_empty();
            if s.features.has(FEATURE_NOTIFY) {
                let seq = s.pushed;
                self.send_open(client, seq);
            }
            return;
        }
        if let Some(why) = self.refusal(peer, m) {
            let mut reject = MClientSession::long(session_op::REJECT, Features::NONE);
            reject.metadata.insert("error_string".into(), why);
            let message = reject.message(0);
            return self.push(Effect::Send { conn, message });
        }
        let row = Arc::new(SessionRow {
            entity: peer.auth_name.to_string(),
            addr: peer.addrs.first(),
            features: m.features.bits,
            metadata: m.metadata.clone(),
            caps: peer.caps.text("mds").unwrap_or_default().to_string(),
            delegated: Vec::new(),
        });
        let mut session = Session::new(&row, State::Open, self.now.monotonic);
        session.conn = Some(conn);
        session.from = Some(peer.sock.ip().to_canonical());
        self.sessions.all.insert(client, session);
        let mut tx = Tx::default();
        tx.put(Key::Session(client), Row::Session(row));
        self.commit(tx);
        self.send_open(client, 0);
    }

    /// Why there is no session for this client.
    fn refusal(&self, peer: &Peer, m: &MClientSession) -> Option<String> {
        if !m.features.has(FEATURE_ENCODING) {
            return Some("missing required features: clients before Ceph 14 are not served".into());
        }
        if self.state < MdsState::ClientReplay || self.place.settings.refuse_sessions {
            return Some("this file system takes no new clients now".into());
        }
        let access = Access::parse(peer.caps.text("mds").unwrap_or_default());
        if !access.may_mount(&self.place.name, m.metadata.get("root"), peer.sock.ip()) {
            return Some(format!(
                "the key of {} allows nothing in this file system",
                peer.auth_name
            ));
        }
        let uuid = m.metadata.get("uuid").filter(|u| !u.is_empty());
        if uuid.is_some() && self.sessions.iter().any(|(_, s)| s.uuid.as_ref() == uuid) {
            return Some("duplicated session uuid".into());
        }
        None
    }

    pub(crate) fn send_open(&mut self, client: ClientId, seq: u64) {
        let more = u64::from(self.delegates_to(client)) << super::delegated::FEATURE;
        let mut open = MClientSession::long(session_op::OPEN, Features::of(FEATURES | more));
        open.seq = seq;
        open.metrics = Features::of(0);
        self.send(client, open.message(0));
    }

    fn renew(&mut self, client: ClientId, seq: u64) {
        let now = self.now.monotonic;
        let Some(s) = self.sessions.get_mut(client) else {
            return;
        };
        if s.state != State::Open || s.lost {
            return;
        }
        s.renewed = now;
        self.send(
            client,
            MClientSession::short(session_op::RENEWCAPS, seq).message(0),
        );
    }

    /// Only when the client has seen all that it was told.
    fn close_asked(&mut self, client: ClientId, seq: u64) {
        let agreed = self
            .sessions
            .get(client)
            .is_some_and(|s| s.state == State::Open && s.pushed == seq);
        if !agreed {
            return;
        }
        let conn = self.sessions.get(client).and_then(|s| s.conn);
        self.end_session(client);
        if let Some(conn) = conn {
            let message = MClientSession::short(session_op::CLOSE, 0).message(0);
            self.push(Effect::Send { conn, message });
        }
    }

    /// All that belongs to a session goes.
    pub(crate) fn end_session(&mut self, client: ClientId) {
        let Some(session) = self.sessions.all.remove(&client) else {
            return;
        };
        let mut tx = Tx::default();
        tx.remove(Key::Session(client));
        session
            .done
            .keys()
            .for_each(|tid| tx.remove(Key::Done { client, tid: *tid }));
        for tid in &session.flushed {
            tx.remove(Key::Flushed { client, tid: *tid });
        }
        self.commit(tx);
        self.replays.held.take_all(client);
        for id in session.requests.values() {
            self.abandon(*id);
        }
        self.drop_flocks(client);
        self.end_leases(client);
        for ino in &session.caps {
            self.drop_cap(client, *ino);
        }
    }

    // To clients

    /// To the client, wherever it is now.
    pub(crate) fn send(&mut self, client: ClientId, message: Message) {
        if let Some(conn) = self.sessions.get(client).and_then(|s| s.conn) {
            self.push(Effect::Send { conn, message });
        }
    }

    /// What the client counts.
    pub(crate) fn send_counted(&mut self, client: ClientId, message: Message) {
        if let Some(s) = self.sessions.get_mut(client) {
            s.pushed += 1;
        }
        self.send(client, message);
    }

    // Requests

    fn request(&mut self, client: ClientId, tid: u64, m: MClientRequest) {
        let now = self.now.monotonic;
        let Some(s) = self.sessions.get_mut(client) else {
            return;
        };
        if !s.lost {
            s.renewed = s.renewed.max(now);
        }
        // Who waits in fsync may look at something meanwhile, but changes nothing.
        if may_be_unsafe(&m) && s.quiet.take().is_some() {
            s.waits = false;
        }
        if s.requests.contains_key(&tid) {
            return;
        }
        if s.requests.len() >= REQUESTS_MAX {
            if let Some(conn) = s.conn {
                self.push_now(Effect::Close {
                    conn,
                    why: "too many requests at once",
                });
            }
            return;
        }
        self.begin_request(client, tid, m);
    }

    // Silence

    pub(crate) fn look_after_sessions(&mut self) {
        if !matches!(self.state, MdsState::Active | MdsState::ClientReplay) {
            return;
        }
        let now = self.now.monotonic;
        let settings = &self.place.settings;
        let (stale, close) = (settings.session_timeout, settings.session_autoclose);
        let mut silent = Vec::new();
        for (client, s) in self.sessions.iter() {
            if s.state != State::Open {
                continue;
            }
            let quiet = now.saturating_sub(s.renewed);
            let limit = s.timeout.unwrap_or(close).max(stale);
            if quiet > limit || (quiet > stale && self.is_waited_for(client, now, stale)) {
                silent.push(client);
            }
        }
        for client in silent {
            tracing::warn!("client.{client}: no sign of it: it is evicted");
            self.evict_client(client);
        }
    }

    /// Clients that hold more than their share are asked to give some back.
    pub(crate) fn recall(&mut self) {
        let most = self.options.cache_bytes / CAP_BYTES;
        let now = self.now.monotonic;
        let held: usize = self.sessions.iter().map(|(_, s)| s.caps.len()).sum();
        let over_own = self.sessions.iter().any(|(_, s)| s.caps.len() > CLIENT_MAX);
        if held <= most && !over_own || now.saturating_sub(self.recalled) < RECALL_EVERY {
            return;
        }
        self.recalled = now;
        let share = (most / self.sessions.len().max(1)).min(CLIENT_MAX);
        let over = |(_, s): &(ClientId, &Session)| s.caps.len() > share;
        let clients: Vec<ClientId> = self.sessions.iter().filter(over).map(|(id, _)| id).collect();
        for client in clients {
            let mut m = MClientSession::short(session_op::RECALL_STATE, 0);
            m.max_caps = (share - share / 5) as u32;
            self.send(client, m.message(0));
        }
    }

    /// Somebody has asked it to give something back, for as long.
    fn is_waited_for(&self, client: ClientId, now: Duration, long: Duration) -> bool {
        let Some(s) = self.sessions.get(client) else {
            return false;
        };
        s.caps.iter().any(|ino| {
            let held = self.caps.get(ino).and_then(|ic| ic.holders.get(&client));
            held.and_then(|c| c.revoked_at)
                .is_some_and(|at| now.saturating_sub(at) >= long / 2)
        })
    }

    /// Nothing of it is taken from now on; what it holds goes when the OSDs take nothing of it either.
    pub(crate) fn evict_client(&mut self, client: ClientId) {
        let Some(s) = self.sessions.get_mut(client) else {
            return;
        };
        if s.state == State::Evicted {
            return;
        }
        s.state = State::Evicted;
        let (addr, conn) = (s.addr, s.conn.take());
        if let Some(conn) = conn {
            self.push_now(Effect::Close {
                conn,
                why: "the client was evicted",
            });
        }
        self.push(Effect::Fence { client, addr });
    }

    pub(crate) fn fenced(&mut self, client: ClientId, epoch: types::Epoch) {
        self.osd_barrier = self.osd_barrier.max(epoch);
        let writes: Vec<u64> = match self.sessions.get(client) {
            Some(s) => s
                .caps
                .iter()
                .copied()
                .filter(|i| self.writing.contains(i))
                .collect(),
            None => Vec::new(),
        };
        let reclaimers = self.sessions.get(client).and_then(|s| s.uuid.clone());
        let addr = self.sessions.get(client).map(|s| s.addr);
        for ino in writes {
            self.probe(ino);
        }
        self.end_session(client);
        if reclaimers.is_some() {
            self.reclaimed(client, epoch, addr);
        }
        self.go_on_reconnecting();
        self.answer_gone();
    }

    // Reclaim

    fn reclaim(&mut self, conn: Conn, client: ClientId, m: &MClientReclaim) {
        const RESET: u32 = 1;
        const FINISH: u32 = 1 << 31;
        if m.flags & FINISH != 0 {
            return;
        }
        let same = |(id, s): &(ClientId, &Session)| *id != client && s.uuid.as_deref() == Some(&m.uuid);
        let found = self.sessions.iter().find(same).map(|(id, _)| id);
        let mut reply = MClientReclaimReply {
            result: 0,
            epoch: 0,
            addrs: EntityAddrVec::default(),
        };
        if m.flags != RESET {
            reply.result = types::Errno::EINVAL.code();
        } else if let Some(other) = found {
            self.reclaims().insert(other, conn);
            return self.evict_client(other);
        }
        let message = reply.message(0);
        self.push(Effect::Send { conn, message });
    }

    fn reclaimed(&mut self, client: ClientId, epoch: types::Epoch, addr: Option<EntityAddr>) {
        let Some(conn) = self.reclaims().remove(&client) else {
            return;
        };
        let reply = MClientReclaimReply {
            result: 0,
            epoch,
            addrs: addr.map(EntityAddrVec::one).unwrap_or_default(),
        };
        let message = reply.message(0);
        self.push(Effect::Send { conn, message });
    }

    fn reclaims(&mut self) -> &mut BTreeMap<ClientId, Conn> {
        &mut self.reclaiming
    }
}
