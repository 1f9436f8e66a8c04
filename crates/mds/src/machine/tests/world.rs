//! A machine, a pool in memory that keeps what was written, and clients that answer as real ones do.

use super::cache::{Cache, entries};
use crate::journal::{self, Head};
use crate::machine::parts::early::Broken;
use crate::machine::*;
use crate::membership::{Assigned, MdsState, Settings};
use crate::place::{self, Fragment};
use crate::row::{Job, Key, NOSNAP, ROOT, Row, job};
use auth::{AuthMethod, PeerCaps};
use bytes::Bytes;
use denc::{Decode, Encode};
use messages::fs::{
    Args, CapRecord, Features, FilePath, MClientCaps, MClientLease, MClientReconnect, MClientReply,
    MClientRequest, MClientSession, MClientSnap, Release, SetAttr, cap_op, lease_action, op, request_flag,
    session_op, setattr,
};
use messages::mon::Body;
use messages::osd;
use msgr::{Message, Peer};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use types::{AuthName, EntityAddr, EntityAddrVec, EntityKind, EntityName, Utime};

/// A client's connection has its number, and another one of it that and this.
const AGAIN: u64 = 1000;
/// Keys of one page.
const OLDS_PAGE: usize = 3;

/// What a pool keeps, also when its users die.
#[derive(Debug, Default, Clone)]
pub struct Pool {
    pub rows: BTreeMap<String, BTreeMap<Bytes, Bytes>>,
    pub segments: BTreeMap<u64, Vec<u8>>,
    pub head: Option<Bytes>,
    pub jobs: Vec<Job>,
    pub traces: BTreeMap<u64, Trace>,
    /// Snapshots that the data pools were told of.
    pub dropped: std::collections::BTreeSet<u64>,
}

impl Pool {
    pub fn write(&mut self, w: Write) {
        let rows = self.rows.entry(w.object).or_default();
        rows.extend(w.set);
        rows.retain(|k, _| !w.remove.contains(k));
    }

    /// The names of a fragment go into its halves.
    pub fn split(&mut self, dir: u64, fragment: Fragment) {
        let old = self.rows.get(&fragment.object(dir)).cloned();
        let [low, high] = fragment.halves();
        let is_upper = |k: &Bytes| match place::parse_dentry(dir, k) {
            Some(Key::Dentry { hash, .. }) => low.end().is_some_and(|end| hash >= end),
            other => panic!("{other:?} in a directory"),
        };
        let all = old.unwrap_or_default().into_iter();
        let (upper, lower) = all.partition(|(k, _)| is_upper(k));
        self.rows.insert(low.object(dir), lower);
        self.rows.insert(high.object(dir), upper);
    }

    pub fn start(&self) -> Start {
        let head = self.head.as_ref().map(|h| Head::from_bytes(h).unwrap());
        let mut start = Start {
            next_segment: head.map_or(1, |h| h.first_segment),
            next_tx: head.map_or(1, |h| h.next_tx),
            is_new: head.is_none() && self.segments.is_empty(),
            ..Start::default()
        };
        for object in place::WHOLE {
            for (k, v) in self.rows.get(object).into_iter().flatten() {
                let key = place::key_of(object, k).unwrap();
                let row = Row::from_bytes(&key, v).unwrap();
                start.tables.push((key, row));
            }
        }
        while let Some(s) = self.segments.get(&start.next_segment) {
            let all = journal::parse(&Bytes::from(s.clone())).unwrap();
            let first = all.first().map_or(start.next_tx, |a| a.0);
            let mut next = first;
            for (n, _) in &all {
                let jumps = *n > next && n & (journal::LIFE - 1) != 0;
                assert!(*n == next || jumps, "numbers go on without a gap, but for starts");
                next = *n + 1;
            }
            start.next_tx = start.next_tx.max(next);
            start.segments.push((start.next_segment, s.len() as u64, first));
            start.journal.extend(all);
            start.next_segment += 1;
        }
        start
    }

    fn get(&self, object: &str, key: &Bytes) -> Option<Bytes> {
        self.rows.get(object)?.get(key).cloned()
    }
}

#[derive(Debug, Default)]
pub struct FakeClient {
    pub caps: BTreeMap<u64, CapRecord>,
    pub seqs: BTreeMap<u64, u32>,
    /// First answers.
    pub replies: BTreeMap<u64, MClientReply>,
    /// What was asked and has no safe answer.
    pub asked: BTreeMap<u64, MClientRequest>,
    /// Of these, what was answered as unsafe, with the inode that was made.
    pub unsafes: BTreeMap<u64, u64>,
    /// What was answered as safe.
    pub safe: BTreeMap<u64, i32>,
    pub next_tid: u64,
    pub counted: u64,
    pub closed: bool,
    /// What it was told of realms.
    pub snaps: Vec<MClientSnap>,
    /// The last request, to be sent again.
    pub last: Option<Message>,
    /// It does not give back what it is asked for.
    pub stubborn: bool,
    pub cache: Cache,
    /// How many capabilities it was asked to keep.
    pub recalled: Option<u32>,
    /// When each request was sent.
    pub sent: BTreeMap<u64, Duration>,
    /// What it was told of leases.
    pub leases: Vec<MClientLease>,
}

pub struct World {
    pub m: Machine,
    pub pool: Pool,
    pub effects: VecDeque<Effect>,
    pub clients: BTreeMap<u64, FakeClient>,
    pub states: Vec<MdsState>,
    pub done: usize,
    pub fenced: Vec<ClientId>,
    /// Answers to commands.
    pub told: Vec<osd::MCommandReply>,
    pub clock: u64,
    /// And so many milliseconds.
    pub millis: u64,
    /// Requests take no time.
    pub still: bool,
    /// Appends take longer than all else.
    pub slow: bool,
    /// What clients take for true is looked at in each step.
    pub watched: bool,
    /// What a client took for true when it was not any more.
    pub stale: Option<String>,
    options: Options,
}

pub fn place() -> Assigned {
    Assigned {
        fscid: 1,
        name: "fs".into(),
        rank: 0,
        follows: false,
        incarnation: 1,
        metadata_pool: 1,
        data_pools: vec![2],
        fresh: true,
        osd_epoch: 0,
        epoch: 5,
        settings: Settings::default(),
    }
}

pub fn peer(client: u64) -> Arc<Peer> {
    Arc::new(Peer {
        name: EntityName::client(client),
        auth_name: AuthName::new(EntityKind::Client, "a"),
        global_id: client,
        caps: PeerCaps::AllowAll,
        key_epoch: None,
        addrs: EntityAddrVec::one(EntityAddr::msgr2(([127, 0, 0, 1], 1).into(), client as u32)),
        sock: ([127, 0, 0, 1], 1).into(),
        features: u64::MAX,
        method: AuthMethod::None,
        secure: false,
        server_challenge: None,
        lifeline: false,
        lossless: true,
        monmap_epoch: None,
    })
}

impl World {
    pub fn new(options: Options) -> Self {
        let pool = Pool::default();
        let mut w = Self {
            m: Machine::new(options.clone(), place(), pool.start()),
            pool,
            effects: VecDeque::new(),
            clients: BTreeMap::new(),
            states: Vec::new(),
            done: 0,
            fenced: Vec::new(),
            told: Vec::new(),
            clock: 100,
            millis: 0,
            still: false,
            slow: false,
            watched: false,
            stale: None,
            options,
        };
        let now = w.now();
        w.effects.extend(w.m.begin(now));
        w
    }

    pub fn now(&self) -> Now {
        Now {
            monotonic: Duration::from_secs(self.clock) + Duration::from_millis(self.millis),
            wall: Utime {
                sec: self.clock as u32,
                nsec: 0,
            },
        }
    }

    pub fn apply(&mut self, event: Event) {
        let now = self.now();
        let effects = self.m.apply(now, event);
        self.effects.extend(effects);
    }

    /// Everything that is under way.
    pub fn settle(&mut self) {
        while self.step() {}
    }

    /// One effect; false: there is none.
    pub fn step(&mut self) -> bool {
        for (ino, ic) in &self.m.caps {
            assert_eq!(ic.conflict(), None, "of inode {ino:x}: {ic:?}");
        }
        let stale = if self.watched { self.stale() } else { None };
        assert!(
            stale.is_none()
                || matches!(
                    self.m.early.broken,
                    Some(Broken::Rash | Broken::Trusted | Broken::Oblivious)
                ),
            "{stale:?}"
        );
        self.stale = self.stale.take().or(stale);
        let is_slow = |e: &Effect| matches!(e, Effect::Append { .. } | Effect::Nudge { .. });
        let quick = self.effects.iter().position(|e| !is_slow(e));
        let next = quick.filter(|_| self.slow).unwrap_or(0);
        let Some(effect) = self.effects.remove(next) else {
            return false;
        };
        self.done += 1;
        match effect {
            Effect::Send { conn, message } => self.heard(conn, &message),
            Effect::Close { .. } => {}
            Effect::Load { id, reads } => {
                let rows = reads.iter().map(|r| self.pool.get(&r.object, &r.key)).collect();
                self.apply(Event::Loaded { id, rows });
            }
            Effect::Page { id, read } => {
                let all = self.pool.rows.get(&read.object);
                let behind = |(k, _): &(&Bytes, &Bytes)| **k > read.key;
                let rows: Vec<_> = all.into_iter().flatten().filter(behind).collect();
                let end = rows.len() as u64 <= read.max;
                let rows = rows.into_iter().take(read.max as usize);
                let rows = rows.map(|(k, v)| (k.clone(), v.clone())).collect();
                self.apply(Event::Paged { id, rows, end });
            }
            Effect::Olds { snap, shard, after } => {
                let all = self.pool.rows.get(&place::olds(shard));
                let of_snap = place::olds_of(snap);
                let is = |k: &&Bytes| k.starts_with(&of_snap) && **k > after;
                let keys: Vec<Bytes> = all
                    .into_iter()
                    .flat_map(BTreeMap::keys)
                    .filter(is)
                    .cloned()
                    .collect();
                let end = keys.len() <= OLDS_PAGE;
                let keys = keys.into_iter().take(OLDS_PAGE).collect();
                self.apply(Event::Olds { snap, keys, end });
            }
            Effect::DropSnap { id, snap, .. } => {
                self.pool.dropped.insert(snap);
                self.apply(Event::JobDone { id, size: None });
            }
            Effect::Append {
                segment,
                new,
                bytes,
                last_tx,
            } => {
                assert_eq!(new, !self.pool.segments.contains_key(&segment));
                self.pool.segments.entry(segment).or_default().extend(&bytes);
                self.apply(Event::Appended { last_tx });
            }
            Effect::Flush { id, writes } => {
                writes.into_iter().for_each(|w| self.pool.write(w));
                self.apply(Event::Flushed { id });
            }
            Effect::Split { dir, fragment } => {
                self.pool.split(dir, fragment);
                self.apply(Event::Split { dir });
            }
            Effect::Trim { first, next_tx, gone } => {
                let head = Head {
                    first_segment: first,
                    next_tx,
                };
                self.pool.head = Some(head.to_bytes());
                gone.iter().for_each(|n| drop(self.pool.segments.remove(n)));
                self.apply(Event::Trimmed);
            }
            Effect::Job { id, job } => {
                self.pool.jobs.push(Job::clone(&job));
                if job.kind == job::DROP {
                    let gone = Fragment {
                        bits: job.bits,
                        value: job.split,
                    };
                    self.pool.rows.remove(&gone.object(job.ino));
                }
                if job.kind == job::PURGE_DIR {
                    let names = format!("skep.dir.{:x}.", job.ino);
                    self.pool.rows.retain(|object, _| !object.starts_with(&names));
                }
                let size = (job.kind == job::PROBE).then_some(job.from);
                self.apply(Event::JobDone { id, size });
            }
            Effect::Trace(t) => {
                let ino = t.ino;
                self.pool.traces.insert(ino, *t);
                self.apply(Event::Traced { ino });
            }
            Effect::Fence { client, .. } => {
                self.fenced.push(client);
                self.apply(Event::Fenced { client, epoch: 9 });
            }
            Effect::Report(state) => self.states.push(state),
            Effect::Nudge { .. } => self.apply(Event::Nudge),
        }
        true
    }

    /// The server dies, and another is started on what the pool has.
    pub fn restart(&mut self) {
        self.restart_as(false);
    }

    /// `alone`: nobody has come back yet.
    pub fn restart_as(&mut self, alone: bool) {
        self.effects.clear();
        let place = Assigned {
            fresh: false,
            ..place()
        };
        let broken = self.m.early.broken;
        self.m = Machine::new(self.options.clone(), place, self.pool.start());
        self.m.early.broken = broken;
        let now = self.now();
        let effects = self.m.begin(now);
        self.effects.extend(effects);
        if !alone {
            let clients: Vec<u64> = self.clients.keys().copied().collect();
            clients.into_iter().for_each(|id| self.come_back(id));
        }
    }

    /// A client says to a new server what it holds.
    pub fn come_back(&mut self, id: u64) {
        self.apply(Event::Opened {
            conn: id,
            peer: peer(id),
        });
        self.say_held(id, id);
    }

    pub fn say_held(&mut self, id: u64, conn: Conn) {
        let caps = self.clients[&id].caps.values().cloned().collect();
        let m = MClientReconnect {
            caps,
            realms: Vec::new(),
            more: false,
        };
        let c = self.clients.get_mut(&id).unwrap();
        c.counted = 0;
        // What it had an answer for comes first.
        let replays: Vec<(u64, MClientRequest)> = c
            .unsafes
            .iter()
            .map(|(tid, ino)| {
                let mut m = c.asked[tid].clone();
                (m.flags, m.ino, m.retries) = (m.flags | 1, *ino, 1);
                (*tid, m)
            })
            .collect();
        for (tid, m) in replays {
            self.say(conn, m.message(tid));
        }
        self.say(conn, m.message(0));
    }

    pub fn tick(&mut self, seconds: u64) {
        self.clock += seconds;
        self.apply(Event::Tick);
        self.settle();
    }

    // Clients

    pub fn open(&mut self, id: u64) {
        self.open_as(Peer::clone(&peer(id)), &[]);
    }

    /// Its connections are lossy.
    pub fn open_lossy(&mut self, id: u64) {
        let peer = Peer {
            lossless: false,
            ..Peer::clone(&peer(id))
        };
        self.open_as(peer, &[]);
    }

    /// Of a client that says this and that of itself.
    pub fn open_saying(&mut self, id: u64, metadata: &[(&str, &str)]) {
        self.open_as(Peer::clone(&peer(id)), metadata);
    }

    /// With a key that allows so much of metadata servers, below this directory.
    pub fn open_with(&mut self, id: u64, caps: &str, root: &str) {
        let texts = BTreeMap::from([("mds".to_string(), caps.to_string())]);
        let peer = Peer {
            caps: PeerCaps::Texts(texts),
            ..Peer::clone(&peer(id))
        };
        self.open_as(peer, &[("root", root)]);
    }

    fn open_as(&mut self, peer: Peer, metadata: &[(&str, &str)]) {
        let id = peer.global_id;
        self.clients.insert(
            id,
            FakeClient {
                next_tid: 1,
                ..FakeClient::default()
            },
        );
        let peer = Arc::new(peer);
        self.apply(Event::Opened { conn: id, peer });
        self.say_open(id, metadata);
    }

    pub fn say_open(&mut self, conn: Conn, metadata: &[(&str, &str)]) {
        let mut m = MClientSession::long(session_op::REQUEST_OPEN, Features::of(0x7_ffff));
        let said = metadata.iter().map(|(k, v)| (k.to_string(), v.to_string()));
        m.metadata.extend(said);
        self.say(conn, m.message(0));
    }

    /// Another connection of a client: its number.
    pub fn connect_again(&mut self, id: u64, lossless: bool) -> Conn {
        let peer = Arc::new(Peer {
            lossless,
            ..Peer::clone(&peer(id))
        });
        let conn = id + AGAIN;
        self.apply(Event::Opened { conn, peer });
        conn
    }

    pub fn say(&mut self, conn: Conn, message: Message) {
        self.apply(Event::Message { conn, message });
    }

    /// Time goes by, in which clients say on these connections that they are there.
    pub fn renew_for(&mut self, seconds: u64, conns: &[Conn]) {
        for _ in 0..seconds / 20 {
            self.clock += 20;
            for conn in conns {
                self.say(
                    *conn,
                    MClientSession::short(session_op::REQUEST_RENEWCAPS, 1).message(0),
                );
            }
            self.tick(0);
        }
    }

    /// As `ceph tell` does.
    pub fn tell(&mut self, id: u64, command: &str) {
        let c = osd::MCommand {
            tid: 1,
            fsid: types::Uuid::default(),
            cmd: vec![Bytes::copy_from_slice(command.as_bytes())],
            input: Bytes::new(),
        };
        self.say(id, c.to_message());
    }

    fn heard(&mut self, conn: Conn, m: &Message) {
        let id = conn % AGAIN;
        match m.kind {
            MClientReply::KIND => {
                let reply = MClientReply::from_message(m).unwrap();
                let c = self.clients.get_mut(&id).unwrap();
                if self.m.early.is(Broken::SafeAtOnce) && c.safe.contains_key(&m.tid) {
                    return;
                }
                let dir = reply.trace.dentry.as_ref().map(|d| d.dir.clone());
                let target = reply.trace.target.as_deref().cloned();
                let listed = entries(&reply);
                let entries = listed.0.iter().map(|(_, stat)| stat.clone());
                for stat in [dir, target].into_iter().flatten().chain(entries) {
                    if stat.cap.caps != 0 && stat.snapid == NOSNAP {
                        let record = c.caps.entry(stat.ino).or_default();
                        record.ino = stat.ino;
                        record.cap_id = stat.cap.id;
                        record.issued |= stat.cap.caps;
                        record.wanted |= stat.cap.wanted;
                        c.seqs.insert(stat.ino, stat.cap.seq);
                        let (had, has) = (record.issued & !stat.cap.caps, record.issued);
                        c.cache.gained(stat.ino, had, has);
                        c.cache.see_stat(&stat);
                    }
                }
                let sent = c.sent.get(&m.tid).copied().unwrap_or_default();
                c.cache
                    .see_names(&reply, &listed, c.asked.get(&m.tid), &c.caps, sent);
                let target = reply.trace.target.as_ref().map_or(0, |t| t.ino);
                let was_unsafe = match reply.safe {
                    true => {
                        c.asked.remove(&m.tid);
                        c.safe.insert(m.tid, reply.result);
                        c.unsafes.remove(&m.tid).is_some()
                    }
                    false => c.unsafes.insert(m.tid, target).is_some(),
                };
                // A real client does not look at a second one.
                if !was_unsafe {
                    c.replies.insert(m.tid, reply);
                }
            }
            MClientCaps::KIND => {
                let caps = MClientCaps::from_message(m).unwrap();
                let c = self.clients.get_mut(&id).unwrap();
                c.counted += 1;
                let Some(record) = c.caps.get_mut(&caps.ino) else {
                    return;
                };
                c.seqs.insert(caps.ino, caps.seq);
                if matches!(caps.op, cap_op::GRANT | cap_op::REVOKE | cap_op::TRUNC) {
                    c.cache.see_caps(&caps);
                }
                if caps.op == cap_op::REVOKE && !c.stubborn {
                    record.issued &= caps.caps;
                    c.cache.lost(caps.ino, record.issued);
                    let ack = MClientCaps {
                        op: cap_op::UPDATE,
                        ino: caps.ino,
                        cap_id: caps.cap_id,
                        seq: caps.seq,
                        caps: record.issued,
                        wanted: record.wanted,
                        ..MClientCaps::default()
                    };
                    self.say(conn, ack.message(0));
                } else if caps.op == cap_op::GRANT {
                    c.cache.gained(caps.ino, record.issued, caps.caps);
                    record.issued = caps.caps;
                }
            }
            MClientLease::KIND => {
                let lease = MClientLease::from_message(m).unwrap();
                let c = self.clients.get_mut(&id).unwrap();
                c.counted += 1;
                c.leases.push(lease.clone());
                if lease.action == lease_action::REVOKE && !c.stubborn {
                    c.cache.end_lease(lease.ino, &lease.name);
                    let answer = MClientLease {
                        action: lease_action::RELEASE,
                        ..lease
                    };
                    self.say(conn, answer.message(0));
                }
            }
            MClientSnap::KIND => {
                let c = self.clients.get_mut(&id).unwrap();
                c.counted += 1;
                c.snaps.push(MClientSnap::from_message(m).unwrap());
            }
            osd::kind::COMMAND_REPLY => self.told.push(osd::MCommandReply::from_message(m).unwrap()),
            MClientSession::KIND => {
                let s = MClientSession::from_message(m).unwrap();
                if s.op == session_op::RECALL_STATE {
                    self.clients.get_mut(&id).unwrap().recalled = Some(s.max_caps);
                }
                self.clients.get_mut(&id).unwrap().closed |= s.op == session_op::CLOSE;
            }
            _ => {}
        }
    }

    /// Begins a request.
    pub fn ask(&mut self, id: u64, op: u32, path: (u64, &str), path2: (u64, &str), args: Args) -> u64 {
        let c = self.clients.get_mut(&id).unwrap();
        c.next_tid += 1;
        let tid = c.next_tid - 1;
        self.ask_as(id, tid, op, path, path2, args);
        tid
    }

    /// Sets an attribute by its name.
    pub fn ask_xattr(&mut self, id: u64, ino: u64, name: &str, value: String) -> u64 {
        let c = self.clients.get_mut(&id).unwrap();
        c.next_tid += 1;
        let tid = c.next_tid - 1;
        let m = MClientRequest {
            op: op::SETXATTR,
            path: FilePath::new(ino, String::new()),
            path2: FilePath::new(0, name.to_string()),
            data: value.into(),
            ..MClientRequest::default()
        };
        self.ask_of(id, tid, m);
        tid
    }

    /// Sets a mode, and gives up with the request what it has of an inode.
    pub fn ask_mode_giving_up(&mut self, id: u64, ino: u64, mode: u32, given: Release) -> u64 {
        let c = self.clients.get_mut(&id).unwrap();
        c.next_tid += 1;
        let tid = c.next_tid - 1;
        let m = MClientRequest {
            op: op::SETATTR,
            path: FilePath::new(ino, String::new()),
            args: Args::of_setattr(&SetAttr {
                mask: setattr::MODE,
                mode,
                ..SetAttr::default()
            }),
            releases: vec![given],
            ..MClientRequest::default()
        };
        self.ask_of(id, tid, m);
        tid
    }

    /// Asks for a name, and wants to hear also how it may be known that it is not there.
    pub fn look(&mut self, id: u64, dir: u64, name: &str) -> MClientReply {
        let tid = self.ask_flagged(id, request_flag::WANT_DENTRY, op::LOOKUP, (dir, name));
        self.settle();
        self.reply(id, tid).unwrap().clone()
    }

    pub fn ask_flagged(&mut self, id: u64, flags: u32, op: u32, path: (u64, &str)) -> u64 {
        let c = self.clients.get_mut(&id).unwrap();
        c.next_tid += 1;
        let tid = c.next_tid - 1;
        let m = MClientRequest {
            op,
            flags,
            path: FilePath::new(path.0, path.1.to_string()),
            ..MClientRequest::default()
        };
        self.ask_of(id, tid, m);
        tid
    }

    /// Begins a request under a number of the client's choice.
    pub fn ask_as(&mut self, id: u64, tid: u64, op: u32, path: (u64, &str), path2: (u64, &str), args: Args) {
        let m = MClientRequest {
            op,
            path: FilePath::new(path.0, path.1.to_string()),
            path2: FilePath::new(path2.0, path2.1.to_string()),
            args,
            ..MClientRequest::default()
        };
        self.ask_of(id, tid, m);
    }

    pub fn ask_of(&mut self, id: u64, tid: u64, m: MClientRequest) {
        self.clock += u64::from(!self.still);
        let c = &self.clients[&id];
        let oldest = c.asked.keys().next().copied().unwrap_or(u64::MAX);
        let m = MClientRequest {
            oldest_tid: tid.saturating_sub(2).min(oldest),
            stamp: Utime {
                sec: self.clock as u32,
                nsec: 0,
            },
            ..m
        };
        let message = m.message(tid);
        let now = self.now().monotonic;
        let c = self.clients.get_mut(&id).unwrap();
        c.sent.insert(tid, now);
        c.last = Some(message.clone());
        c.asked.insert(tid, m);
        self.say(id, message);
    }

    pub fn reply(&self, id: u64, tid: u64) -> Option<&MClientReply> {
        self.clients[&id].replies.get(&tid)
    }

    /// A request to its end.
    pub fn call(
        &mut self,
        id: u64,
        op: u32,
        path: (u64, &str),
        path2: (u64, &str),
        args: Args,
    ) -> MClientReply {
        let tid = self.ask(id, op, path, path2, args);
        self.settle();
        self.reply(id, tid)
            .unwrap_or_else(|| panic!("{op:#x} {path:?} is not answered"))
            .clone()
    }

    pub fn make(&mut self, id: u64, dir: u64, name: &str) -> u64 {
        let args = Args::words(&[0o1101, 0o644, 0, 0, 0, u32::MAX]);
        let reply = self.call(id, op::CREATE, (dir, name), (0, ""), args);
        assert_eq!(reply.result, 0, "create {name}");
        reply.trace.target.unwrap().ino
    }

    pub fn mkdir(&mut self, id: u64, dir: u64, name: &str) -> u64 {
        let reply = self.call(id, op::MKDIR, (dir, name), (0, ""), Args::words(&[0o755]));
        assert_eq!(reply.result, 0, "mkdir {name}");
        reply.trace.target.unwrap().ino
    }

    /// A new file in the root that is not durable: its request and its number.
    pub fn make_unsafe(&mut self, id: u64, name: &str) -> (u64, u64) {
        self.slow = true;
        let tid = self.ask(id, op::CREATE, (ROOT, name), (0, ""), super::early::create());
        while self.reply(id, tid).is_none() {
            assert!(self.step());
        }
        self.slow = false;
        let ino = self.reply(id, tid).unwrap().trace.target.as_ref().unwrap().ino;
        assert_eq!(self.clients[&id].unsafes.get(&tid), Some(&ino), "it is safe");
        (tid, ino)
    }

    /// It will say that it holds that.
    pub fn holds(&mut self, id: u64, ino: u64, bits: u32) {
        let record = self.clients.get_mut(&id).unwrap().caps.entry(ino).or_default();
        record.ino = ino;
        record.issued |= bits;
        if record.cap_id == 0 {
            record.cap_id = 1 << 40 | ino;
        }
    }

    /// It keeps so much of what it holds.
    pub fn keeps(&mut self, id: u64, ino: u64, bits: u32) {
        let c = self.clients.get_mut(&id).unwrap();
        let record = c.caps.get_mut(&ino).unwrap();
        record.issued &= bits;
        c.cache.lost(ino, record.issued);
        let m = MClientCaps {
            op: cap_op::UPDATE,
            ino,
            cap_id: record.cap_id,
            seq: c.seqs.get(&ino).copied().unwrap_or_default(),
            caps: record.issued,
            ..MClientCaps::default()
        };
        self.say(id, m.message(0));
    }

    pub fn lookup(&mut self, id: u64, dir: u64, name: &str) -> Option<u64> {
        let reply = self.call(id, op::LOOKUP, (dir, name), (0, ""), Args::default());
        match reply.result {
            0 => Some(reply.trace.target.unwrap().ino),
            -2 => None,
            other => panic!("lookup {name}: {other}"),
        }
    }

    pub fn list(&mut self, id: u64, dir: u64) -> Vec<String> {
        self.list_by(id, dir, 7)
    }

    /// In pages of so many names.
    pub fn list_by(&mut self, id: u64, dir: u64, page: u32) -> Vec<String> {
        let mut all = Vec::new();
        let mut last = String::new();
        loop {
            let reply = self.call(
                id,
                op::READDIR,
                (dir, ""),
                (0, &last.clone()),
                Args::words(&[0, page]),
            );
            assert_eq!(reply.result, 0);
            let mut r = denc::Reader::new(reply.extra);
            let _: messages::fs::DirStat = r.get().unwrap();
            let n = r.u32().unwrap();
            let flags = r.u16().unwrap();
            for _ in 0..n {
                last = String::from_utf8(r.blob().unwrap().to_vec()).unwrap();
                let _: messages::fs::LeaseStat = r.get().unwrap();
                let stat: messages::fs::InodeStat = r.get().unwrap();
                assert_eq!((stat.snapid, stat.cap.flags), (NOSNAP, 1));
                all.push(last.clone());
            }
            assert!(r.is_empty());
            if flags & 1 == 1 {
                return all;
            }
            assert!(n > 0, "a page that is not the last has names");
        }
    }
}
