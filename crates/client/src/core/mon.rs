//! The session with a monitor: hunting for one, subscriptions, questions, the renewal of tickets
//! (docs/protocol/ceph/02-monitor.md, sections 2, 4, 6 and 8; docs/protocol/ceph/01-messenger.md, 6.7).
//!
//! Monitors are dialled [`HUNT_PARALLEL`] at a time; the first that opens is kept. It is asked for its newest OSD map every
//! [`PING_EVERY`]: that keeps the session, tells of new maps, and an answer that does not come within [`SILENT_MAX`] ends
//! it. Questions without an answer are asked again, under the same tid, of the next monitor.
//!
//! Invariants: at most one open session; at most [`QUESTIONS_MAX`] questions.
//!
//! Not here: what the answers are waited for (`links`).

use super::ids::{ConnId, OpId, Tid};
use crate::{Error, Result};
use auth::{CephxClient, Context, MAUTH, MAuth, NoneClient};
use bytes::Bytes;
use denc::Encode;
use messages::mon::{
    Body, MGetPoolStats, MMonCommand, MMonGetMap, MMonGetVersion, MMonSubscribe, MPoolOp, MStatfs,
    PaxosHeader, PoolOpKind, SUBSCRIBE_ONETIME, SubscribeItem,
};
use msgr::Message;
use std::collections::BTreeMap;
use std::time::Duration;
use types::{AddrKind, EntityAddr, EntityKind, Epoch, MonMap, PoolId, Utime, Uuid};

pub const HUNT_PARALLEL: usize = 3;
const HUNT_MIN: Duration = Duration::from_secs(3);
const HUNT_MAX: Duration = Duration::from_secs(30);
/// After all were tried and refused at once.
const HUNT_PAUSE: Duration = Duration::from_millis(250);
pub const PING_EVERY: Duration = Duration::from_secs(10);
pub const SILENT_MAX: Duration = Duration::from_secs(30);
pub const QUESTIONS_MAX: usize = 1024;
/// Between two requests for tickets while no answer comes.
const RENEW_AGAIN: Duration = Duration::from_secs(1);
/// The services whose tickets are renewed: those that the handshake brings, too.
const SERVICES: u32 =
    EntityKind::Mon as u32 | EntityKind::Osd as u32 | EntityKind::Mgr as u32 | EntityKind::Mds as u32;

/// Every manager map from now on.
const MGR_MAP: (&str, SubscribeItem) = ("mgrmap", SubscribeItem { start: 0, flags: 0 });

/// Who we are to the servers.
#[derive(Debug, Clone)]
pub enum Credentials {
    None(NoneClient),
    Cephx(CephxClient),
}

impl Credentials {
    /// 0 until a monitor gave one.
    pub fn global_id(&self) -> u64 {
        match self {
            Self::None(c) => c.global_id,
            Self::Cephx(c) => c.global_id,
        }
    }
}

/// What a monitor can be asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Question {
    /// One JSON object.
    Command {
        cmd: String,
        input: Bytes,
    },
    /// The newest version of "osdmap" or another map.
    Version {
        what: String,
    },
    PoolOp {
        op: PoolOpKind,
        pool: PoolId,
        name: String,
        snap: u64,
    },
    /// Usage of the cluster, or as far as it concerns a pool.
    Statfs {
        pool: Option<PoolId>,
    },
    PoolStats {
        pools: Vec<String>,
    },
}

/// Who asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asker {
    User(OpId),
    /// A user who wants to have the newest map.
    Latest(OpId),
    /// Ourselves: whether there is a newer map.
    Ping,
    /// Ourselves: is what the map lacks, a pool or an OSD, gone?
    Missing,
}

#[derive(Debug)]
pub struct Asked {
    pub asker: Asker,
    pub question: Question,
    pub deadline: Option<Duration>,
}

#[derive(Debug)]
pub struct Mon {
    pub credentials: Credentials,
    addrs: Vec<EntityAddr>,
    next_addr: usize,
    trying: BTreeMap<ConnId, EntityAddr>,
    open: Option<ConnId>,
    pub map: Option<MonMap>,
    hunt_wait: Duration,
    /// When to try others than those that are being tried.
    pub hunt_at: Option<Duration>,
    asked: BTreeMap<Tid, Asked>,
    last_tid: Tid,
    /// Of the last answer of whatever kind.
    heard: Duration,
    ping_at: Duration,
    /// A newer OSD map is subscribed to, once.
    wanted: bool,
    /// The manager map is subscribed to, for good.
    mgr_wanted: bool,
    /// When the AUTH ticket, which renews the others, is to be renewed itself: that takes a handshake.
    handshake_at: Option<Duration>,
    renew_at: Option<Duration>,
}

/// Messages to be sent, in order.
pub type Sends = Vec<Message>;

impl Mon {
    /// `first`: a random number, so that clients spread over the monitors.
    pub fn new(addrs: Vec<EntityAddr>, credentials: Credentials, first: u32) -> Self {
        Self {
            credentials,
            next_addr: first as usize % addrs.len().max(1),
            addrs,
            trying: BTreeMap::new(),
            open: None,
            map: None,
            hunt_wait: HUNT_MIN,
            hunt_at: Some(Duration::ZERO),
            asked: BTreeMap::new(),
            last_tid: 0,
            heard: Duration::ZERO,
            ping_at: Duration::MAX,
            wanted: true,
            mgr_wanted: false,
            handshake_at: None,
            renew_at: None,
        }
    }

    pub fn fsid(&self) -> Option<Uuid> {
        self.map.as_ref().map(|m| m.fsid)
    }

    pub fn open_conn(&self) -> Option<ConnId> {
        self.open
    }

    pub fn is_ours(&self, conn: ConnId) -> bool {
        self.open == Some(conn) || self.trying.contains_key(&conn)
    }

    pub fn conns(&self) -> Vec<ConnId> {
        self.trying.keys().copied().chain(self.open).collect()
    }

    // Hunting

    /// Those to be dialled now, and those to be given up.
    pub fn hunt(&mut self, now: Duration) -> (Vec<EntityAddr>, Vec<ConnId>) {
        if self.open.is_some() {
            self.hunt_at = None;
            return Default::default();
        }
        if self.hunt_at.is_none_or(|at| now < at) {
            return Default::default();
        }
        let given_up = std::mem::take(&mut self.trying).into_keys().collect();
        self.hunt_at = Some(now + self.hunt_wait);
        self.hunt_wait = (self.hunt_wait * 3 / 2).min(HUNT_MAX);
        let n = HUNT_PARALLEL.min(self.addrs.len());
        let mut dial = Vec::with_capacity(n);
        for _ in 0..n {
            dial.push(self.addrs[self.next_addr % self.addrs.len()]);
            self.next_addr = (self.next_addr + 1) % self.addrs.len();
        }
        (dial, given_up)
    }

    pub fn trying(&mut self, conn: ConnId, addr: EntityAddr) {
        self.trying.insert(conn, addr);
    }

    /// A session is open: the others are given up.
    pub fn opened(&mut self, conn: ConnId, now: Duration) -> Vec<ConnId> {
        self.trying.remove(&conn);
        let others = std::mem::take(&mut self.trying).into_keys().collect();
        self.open = Some(conn);
        self.hunt_at = None;
        self.hunt_wait = HUNT_MIN;
        self.heard = now;
        self.ping_at = now + PING_EVERY;
        others
    }

    /// True if there is no session and nobody is being tried any more.
    pub fn ended(&mut self, conn: ConnId, now: Duration) -> bool {
        self.trying.remove(&conn);
        if self.open == Some(conn) {
            self.open = None;
            self.hunt_at = Some(now);
            return true;
        }
        if self.open.is_none() && self.trying.is_empty() {
            self.hunt_at = Some(now + HUNT_PAUSE);
            return true;
        }
        false
    }

    /// A monitor map: from now on its monitors are those to be tried. True: it is newer.
    pub fn take_map(&mut self, map: MonMap) -> Result<bool> {
        if let Some(old) = &self.map {
            if old.fsid != map.fsid {
                return Err(Error::Malformed(format!("monitor map of cluster {}", map.fsid)));
            }
            if old.epoch >= map.epoch {
                return Ok(false);
            }
        }
        let all = map.by_rank().flat_map(|m| m.addrs.0.iter().copied());
        let addrs: Vec<EntityAddr> = all.filter(|a| a.kind == AddrKind::Msgr2).collect();
        if !addrs.is_empty() {
            self.addrs = addrs;
            self.next_addr %= self.addrs.len();
        }
        self.map = Some(map);
        Ok(true)
    }

    // Subscriptions and questions

    /// What a new session begins with.
    pub fn greeting(&self, epoch: Epoch) -> Sends {
        let mut out = vec![MMonGetMap {}.message(0), self.subscription(epoch, true)];
        // Questions carry the cluster's name, which the map brings.
        if self.map.is_some() {
            out.extend(self.asked.iter().map(|(tid, a)| self.question(*tid, a)));
        }
        out
    }

    /// All questions, once the first map is there.
    pub fn questions(&self) -> Sends {
        self.asked.iter().map(|(tid, a)| self.question(*tid, a)).collect()
    }

    /// Something is to be asked of the manager.
    pub fn want_mgr_map(&mut self) -> Option<Message> {
        if std::mem::replace(&mut self.mgr_wanted, true) {
            return None;
        }
        self.open?;
        let body = MMonSubscribe {
            what: BTreeMap::from([(MGR_MAP.0.to_string(), MGR_MAP.1)]),
            hostname: String::new(),
        };
        Some(body.message(0))
    }

    fn subscription(&self, epoch: Epoch, all: bool) -> Message {
        let mut what = BTreeMap::new();
        if all {
            let start = self.map.as_ref().map_or(0, |m| u64::from(m.epoch) + 1);
            what.insert("monmap".to_string(), SubscribeItem { start, flags: 0 });
            if self.mgr_wanted {
                what.insert(MGR_MAP.0.to_string(), MGR_MAP.1);
            }
        }
        if self.wanted || epoch == 0 {
            let start = match epoch {
                0 => 0,
                have => u64::from(have) + 1,
            };
            let flags = SUBSCRIBE_ONETIME;
            what.insert("osdmap".to_string(), SubscribeItem { start, flags });
        }
        let body = MMonSubscribe {
            what,
            hostname: String::new(),
        };
        body.message(0)
    }

    /// Something waits for a newer OSD map than `epoch`.
    pub fn want_map(&mut self, epoch: Epoch) -> Option<Message> {
        if std::mem::replace(&mut self.wanted, true) {
            return None;
        }
        self.open?;
        Some(self.subscription(epoch, false))
    }

    /// The subscription is used up.
    pub fn map_came(&mut self) {
        self.wanted = false;
    }

    pub fn ask(
        &mut self,
        asker: Asker,
        question: Question,
        deadline: Option<Duration>,
    ) -> Result<Option<Message>> {
        if self.asked.len() >= QUESTIONS_MAX {
            return Err(Error::Busy);
        }
        self.last_tid += 1;
        let asked = Asked {
            asker,
            question,
            deadline,
        };
        let ready = self.open.is_some() && self.map.is_some();
        let message = ready.then(|| self.question(self.last_tid, &asked));
        self.asked.insert(self.last_tid, asked);
        Ok(message)
    }

    pub fn is_asking(&self, asker: Asker) -> bool {
        self.asked.values().any(|a| a.asker == asker)
    }

    pub fn answered(&mut self, tid: Tid) -> Option<Asked> {
        self.asked.remove(&tid)
    }

    pub fn peek(&self, tid: Tid) -> Option<&Asked> {
        self.asked.get(&tid)
    }

    pub fn forget(&mut self, id: OpId) {
        self.asked
            .retain(|_, a| a.asker != Asker::User(id) && a.asker != Asker::Latest(id));
    }

    /// Questions whose time is over.
    pub fn overdue(&mut self, now: Duration) -> Vec<Asked> {
        let late = |a: &Asked| a.deadline.is_some_and(|d| d <= now);
        let tids: Vec<Tid> = self
            .asked
            .iter()
            .filter(|(_, a)| late(a))
            .map(|(t, _)| *t)
            .collect();
        tids.iter().filter_map(|t| self.asked.remove(t)).collect()
    }

    pub fn drain(&mut self) -> Vec<Asked> {
        std::mem::take(&mut self.asked).into_values().collect()
    }

    fn question(&self, tid: Tid, asked: &Asked) -> Message {
        let fsid = self.fsid().unwrap_or(Uuid::from_random([0; 16]));
        let paxos = PaxosHeader::default();
        match asked.question.clone() {
            Question::Command { cmd, input } => {
                let cmd = vec![cmd];
                MMonCommand {
                    paxos,
                    fsid,
                    cmd,
                    input,
                }
                .message(tid)
            }
            Question::Version { what } => MMonGetVersion { handle: tid, what }.message(tid),
            Question::PoolOp { op, pool, name, snap } => MPoolOp {
                paxos,
                fsid,
                pool,
                op: op as u32,
                snapid: snap,
                name,
                crush_rule: -1,
            }
            .message(tid),
            Question::Statfs { pool } => MStatfs {
                paxos,
                fsid,
                data_pool: pool,
            }
            .message(tid),
            Question::PoolStats { pools } => MGetPoolStats { paxos, fsid, pools }.message(tid),
        }
    }

    // Time

    pub fn hears(&mut self, now: Duration) {
        self.heard = now;
    }

    /// True: the monitor says nothing any more.
    pub fn is_silent(&self, now: Duration) -> bool {
        self.open.is_some() && now >= self.heard + SILENT_MAX
    }

    /// True once every [`PING_EVERY`] of an open session.
    pub fn pings(&mut self, now: Duration) -> bool {
        let due = self.open.is_some() && now >= self.ping_at;
        if due {
            self.ping_at = now + PING_EVERY;
        }
        due
    }

    /// Fresh tickets were taken: in a `handshake` all of them, else those of services.
    pub fn took_tickets(&mut self, now: Duration, handshake: bool) {
        let Credentials::Cephx(c) = &self.credentials else {
            return;
        };
        let auth = EntityKind::Auth as u32;
        // What may pass before a ticket is renewed.
        let good = |t: &auth::GrantedTicket| t.validity.to_duration() * 3 / 4;
        if handshake {
            self.handshake_at = c.tickets.get(&auth).map(|t| now + good(t));
        }
        let services = c.tickets.iter().filter(|(service, _)| **service != auth);
        let first = services.map(|(_, t)| now + good(t)).min();
        self.renew_at = [first, self.handshake_at].into_iter().flatten().min();
    }

    /// The tickets are worth nothing: an OSD refused them.
    pub fn tickets_refused(&mut self, now: Duration) {
        if let Some(at) = &mut self.renew_at {
            *at = (*at).min(now);
        }
    }

    /// What renews the tickets, if that is due. An error: only a new session helps.
    pub fn renewal(&mut self, now: Duration, cx: &Context) -> Result<Option<Message>> {
        let (Credentials::Cephx(c), Some(at)) = (&self.credentials, self.renew_at) else {
            return Ok(None);
        };
        if self.open.is_none() || now < at {
            return Ok(None);
        }
        self.renew_at = Some(now + RENEW_AGAIN);
        if self.handshake_at.is_none_or(|at| at <= now) {
            return Err(Error::Auth("the AUTH ticket is to be renewed".into()));
        }
        let payload = c.renewal(SERVICES, cx).map_err(|e| Error::Auth(e.to_string()))?;
        let body = MAuth {
            protocol: auth::AuthMethod::Cephx as u32,
            payload,
            monmap_epoch: self.map.as_ref().map_or(0, |m| m.epoch),
        };
        Ok(Some(Message {
            kind: MAUTH,
            version: 1,
            compat: 1,
            priority: messages::mon::PRIORITY_DEFAULT,
            front: body.to_bytes(),
            ..Message::default()
        }))
    }

    pub fn renew_at(&self) -> Option<Duration> {
        self.open.and(self.renew_at)
    }

    pub fn ping_at(&self) -> Option<Duration> {
        self.open.map(|_| self.ping_at)
    }
}

/// Time of a step for what encodes it.
pub fn context<'a>(wall: Utime, entropy: &'a dyn auth::Entropy) -> Context<'a> {
    Context { now: wall, entropy }
}
