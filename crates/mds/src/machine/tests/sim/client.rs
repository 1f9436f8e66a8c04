//! A client that does one thing at a time: it keeps its capabilities honestly, trusts what they allow it to, writes under them
//! and tells of that later, and says all of it again to the next server.
//!
//! Not here: when what comes and goes (`super::run`); several requests under way at once, snapshots.

use super::history::History;
use super::model::{Names, Said, What};
use crate::machine::Conn;
use crate::machine::tests::cache::{Cache, entries};
use crate::row::{NOSNAP, S_IFDIR, S_IFMT};
use denc::Decode;
use messages::fs::{
    Args, CapBody, CapItem, CapRecord, Created, Features, FileLock, FilePath, InodeStat, MClientCapRelease,
    MClientCaps, MClientLease, MClientReconnect, MClientReply, MClientRequest, MClientSession, SetAttr, cap,
    cap_op, lease_action, lock, op, open_flag, request_flag, session_op, setattr,
};
use messages::mon::Body;
use msgr::Message;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use types::Utime;

/// What was cached is trusted for so long without a word of the server: less than it takes a server to give up a client, counted
/// from when the one before had to be gone.
const TRUST_US: u64 = 40_000_000;

/// In numbers of operations.
const CHANGES: u32 = 0x1000;
/// What a kernel wants of a directory in which it makes names; of files nobody wants just that.
const OPS: u32 = cap::FC | cap::FR;
const WANTED: u32 = cap::EXCL | OPS | cap::FA | cap::FL;
/// Of a server: clients give numbers to files.
const DELEGATES: u32 = 13;

/// As newer clients name owners of locks.
const OWNER_BIT: u64 = 1 << 63;

/// What the server does not know yet.
#[derive(Debug, Clone, Default)]
struct Dirty {
    bits: u32,
    size: u64,
    /// How often the file had been cut then.
    cuts: u32,
    mode: u32,
    /// Operations that are settled when it does.
    ops: Vec<usize>,
}

#[derive(Default)]
pub struct Client {
    pub id: u64,
    pub conn: Option<Conn>,
    /// The server that it speaks with.
    pub life: u64,
    pub has_session: bool,
    pub is_open: bool,
    /// Its server lets it give numbers to files; these.
    delegates: bool,
    numbers: VecDeque<u64>,
    /// Its server has ended its session.
    pub is_over: bool,
    pub caps: BTreeMap<u64, CapRecord>,
    /// Of each capability the last message, and the last answer that showed it.
    seqs: BTreeMap<u64, (u32, u32)>,
    room: BTreeMap<u64, u64>,
    cuts: BTreeMap<u64, u32>,
    cache: Cache,
    dirty: BTreeMap<u64, Dirty>,
    flushing: BTreeMap<u64, (u64, Dirty)>,
    last_flush: u64,
    last_tid: u64,
    last_renewal: u64,
    asked: BTreeMap<u64, (MClientRequest, Option<usize>)>,
    /// When each request was sent to the server that answers.
    sent: BTreeMap<u64, u64>,
    unsafes: BTreeMap<u64, u64>,
    /// What it was answered early, and is refused now.
    pub refused: Option<String>,
    /// The request that it waits for.
    current: Option<u64>,
    renewed: u64,
    /// When it said its first words to this server.
    greeted: u64,
    renewals: BTreeMap<u64, u64>,
    pub out: Vec<Message>,
    pub now: u64,
}

fn is_async(m: &MClientRequest) -> bool {
    m.flags & request_flag::ASYNC != 0
}

pub fn name(n: u8) -> String {
    format!("n{n}")
}

fn number(name: &[u8]) -> Option<u8> {
    std::str::from_utf8(name.get(1..)?).ok()?.parse().ok()
}

impl Client {
    pub fn new(id: u64) -> Self {
        Self {
            id,
            ..Self::default()
        }
    }

    /// It waits for nothing.
    pub fn is_idle(&self) -> bool {
        self.current.is_none()
    }

    /// It was answered what is not durable yet.
    pub fn has_unsafe(&self) -> bool {
        !self.unsafes.is_empty()
    }

    /// All that it did is where no death undoes it.
    pub fn is_quiet(&self) -> bool {
        self.is_idle() && self.asked.is_empty() && self.dirty.is_empty() && self.flushing.is_empty()
    }

    /// Inodes of which it holds these bits.
    pub fn holding(&self, bits: u32) -> Vec<u64> {
        let held = self.caps.iter().filter(|(_, c)| c.issued & bits == bits);
        held.map(|(ino, _)| *ino).collect()
    }

    fn may(&self, ino: u64, bits: u32) -> bool {
        self.caps.get(&ino).is_some_and(|c| c.issued & bits == bits)
    }

    fn stamp(&self) -> Utime {
        Utime {
            sec: 100 + (self.now / 1_000_000) as u32,
            nsec: (self.now % 1_000_000) as u32 * 1000,
        }
    }

    // Servers

    /// It has a connection to this server: what it says first.
    pub fn connected(&mut self, conn: Conn, life: u64) {
        (self.conn, self.life, self.is_open) = (Some(conn), life, false);
        self.greeted = self.now;
        if !self.has_session {
            let m = MClientSession::long(session_op::REQUEST_OPEN, Features::of(0x7_ffff));
            return self.out.push(m.message(0));
        }
        // The stock ends with the server.
        self.numbers.clear();
        for (tid, (m, _)) in &self.asked {
            let mut m = m.clone();
            m.retries = 1;
            match self.unsafes.get(tid) {
                Some(ino) => (m.flags, m.ino) = (m.flags | request_flag::REPLAY, *ino),
                None if is_async(&m) => {}
                None => continue,
            }
            self.out.push(m.message(*tid));
        }
        self.seqs.values_mut().for_each(|s| *s = (0, 0));
        // What belongs to a capability that it has given back since goes before what it holds.
        self.flush_again(|held, dirty| held & dirty != dirty);
        let m = MClientReconnect {
            caps: self.caps.values().cloned().collect(),
            realms: Vec::new(),
            more: false,
        };
        self.out.push(m.message(0));
    }

    /// What was not acknowledged, chosen by what it holds of an inode and all that it changed there, and in its order.
    fn flush_again(&mut self, which: impl Fn(u32, u32) -> bool) {
        let held = |ino: &u64| self.caps.get(ino).map_or(0, |c| c.issued);
        let mut changed: BTreeMap<u64, u32> = BTreeMap::new();
        for (ino, d) in self.flushing.values() {
            *changed.entry(*ino).or_default() |= d.bits;
        }
        let chosen = self
            .flushing
            .iter()
            .filter(|(_, (ino, _))| which(held(ino), changed[ino]));
        let tids: Vec<u64> = chosen.map(|(tid, _)| *tid).collect();
        tids.into_iter()
            .for_each(|tid| self.say_flush(tid, cap_op::FLUSH));
    }

    fn opened(&mut self) {
        let again = self.has_session;
        (self.has_session, self.is_open) = (true, true);
        self.renewed = self.renewed.max(self.greeted);
        if again {
            self.flush_again(|held, dirty| held & dirty == dirty);
        }
        let rest: Vec<(u64, MClientRequest)> = self
            .asked
            .iter()
            .filter(|(tid, (m, _))| !(self.unsafes.contains_key(*tid) || again && is_async(m)))
            .map(|(tid, (m, _))| (*tid, m.clone()))
            .collect();
        for (tid, mut m) in rest {
            m.retries = m.retries.saturating_add(1);
            self.sent.insert(tid, self.now);
            self.out.push(m.message(tid));
        }
    }

    pub fn renew(&mut self) {
        if self.is_open {
            self.last_renewal += 1;
            self.renewals.insert(self.last_renewal, self.now);
            let m = MClientSession::short(session_op::REQUEST_RENEWCAPS, self.last_renewal);
            self.out.push(m.message(0));
        }
    }

    pub fn heard(&mut self, m: &Message, h: &mut History) {
        match m.kind {
            MClientReply::KIND => self.heard_reply(m, h),
            MClientCaps::KIND => self.heard_caps(m, h),
            MClientLease::KIND => self.heard_lease(m),
            MClientSession::KIND => {
                let s = MClientSession::from_message(m).unwrap();
                match s.op {
                    session_op::OPEN => {
                        self.delegates = s.features.has(DELEGATES);
                        self.opened();
                    }
                    session_op::CLOSE => self.is_over = true,
                    // It tries again.
                    session_op::REJECT => self.conn = None,
                    session_op::RENEWCAPS => {
                        let sent = self.renewals.remove(&s.seq).unwrap_or_default();
                        self.renewed = self.renewed.max(sent);
                    }
                    _ => {}
                }
            }
            _ => {}
        }
    }

    // Requests

    /// Begins an operation that the server is asked for.
    pub fn ask(&mut self, what: &What, h: &mut History) {
        let number = h.begin(self.id, what.clone(), false);
        let mut m = request(what);
        self.choose_async(&mut m);
        self.send_request(m, Some(number));
    }

    /// In a directory of its own it need not wait; it says so first, and waits for the first file.
    fn choose_async(&mut self, m: &mut MClientRequest) {
        let dir = m.path.ino;
        if !self.delegates || !self.is_open || !matches!(m.op, op::CREATE | op::UNLINK) {
            return;
        }
        match self.caps.get_mut(&dir) {
            Some(record) if record.wanted == WANTED => {}
            Some(record) => {
                record.wanted = WANTED;
                return self.tell(dir, cap_op::UPDATE);
            }
            None => return,
        }
        let bit = if m.op == op::CREATE { cap::FC } else { cap::FR };
        if !self.may(dir, cap::FX | bit) {
            return;
        }
        if m.op == op::CREATE {
            let Some(ino) = self.numbers.pop_front() else {
                return;
            };
            m.ino = ino;
        }
        m.flags |= request_flag::ASYNC | request_flag::WANT_DENTRY;
    }

    /// Opens a file, which changes nothing that others see.
    pub fn open_file(&mut self, ino: u64, flags: u32) {
        let m = MClientRequest {
            op: op::OPEN,
            path: FilePath::new(ino, String::new()),
            args: Args::words(&[flags]),
            ..MClientRequest::default()
        };
        self.send_request(m, None);
    }

    fn send_request(&mut self, mut m: MClientRequest, number: Option<usize>) {
        self.last_tid += 1;
        let tid = self.last_tid;
        m.oldest_tid = self.asked.keys().next().copied().unwrap_or(tid);
        m.stamp = self.stamp();
        if m.op & CHANGES != 0 && tid.is_multiple_of(2) {
            // Others go on trusting them.
            self.cache.end_lease(m.path.ino, &m.path.path);
            self.cache.end_lease(m.path2.ino, &m.path2.path);
        }
        self.asked.insert(tid, (m.clone(), number));
        self.sent.insert(tid, self.now);
        self.current = Some(tid);
        if self.is_open {
            self.out.push(m.message(tid));
        }
    }

    fn heard_reply(&mut self, m: &Message, h: &mut History) {
        let reply = MClientReply::from_message(m).unwrap();
        let Some((asked, number)) = self.asked.get(&m.tid).cloned() else {
            return;
        };
        let was_unsafe = self.unsafes.contains_key(&m.tid);
        if !was_unsafe {
            let sent = self.sent.get(&m.tid).copied().unwrap_or_default();
            self.see(&reply, &asked, sent);
        } else if reply.result != 0 {
            let (id, tid, result) = (self.id, m.tid, reply.result);
            self.refused = Some(format!(
                "client {id}: request {tid} was answered, and is refused now: {result}"
            ));
        }
        if reply.safe {
            self.asked.remove(&m.tid);
            self.sent.remove(&m.tid);
            self.unsafes.remove(&m.tid);
        } else {
            let target = reply.trace.target.as_ref().map_or(0, |t| t.ino);
            self.unsafes.insert(m.tid, target);
        }
        if let Some(number) = number {
            if !was_unsafe {
                let what = &h.ops[number].what;
                self.locked(what, reply.result);
                let said = self.said(what, &reply);
                h.said(number, said);
            }
            if reply.safe {
                h.settled(number);
            }
        }
        if self.current == Some(m.tid) {
            self.current = None;
        }
    }

    /// What it says of locks at its next reconnect.
    fn locked(&mut self, what: &What, result: i32) {
        let (What::Lock { ino, .. } | What::Unlock { ino, .. }) = what else {
            return;
        };
        let Some(record) = self.caps.get_mut(ino).filter(|_| result == 0) else {
            return;
        };
        record.flock.clear();
        if let What::Lock { by, .. } = *what {
            record.flock.push(FileLock {
                client: by,
                owner: OWNER_BIT | by,
                pid: 1,
                kind: lock::EXCL,
                ..FileLock::default()
            });
        }
    }

    fn see(&mut self, reply: &MClientReply, asked: &MClientRequest, sent: u64) {
        if asked.op == op::CREATE && self.delegates && !reply.extra.is_empty() {
            let made = Created::from_bytes(&reply.extra).unwrap();
            let runs = made.delegated.iter();
            self.numbers.extend(runs.flat_map(|(first, n)| *first..first + n));
        }
        let listed = entries(reply);
        let dir = reply.trace.dentry.as_ref().map(|d| d.dir.clone());
        let target = reply.trace.target.as_deref().cloned();
        let entries = listed.0.iter().map(|(_, stat)| stat.clone());
        for stat in [dir, target].into_iter().flatten().chain(entries) {
            if stat.cap.caps != 0 && stat.snapid == NOSNAP {
                self.see_cap(&stat);
            }
        }
        let sent = Duration::from_micros(sent);
        self.cache
            .see_names(reply, &listed, Some(asked), &self.caps, sent);
        if asked.op & CHANGES != 0 && reply.trace.dentry.is_none() {
            // It was carried out before, and the answer does not show what by now is there.
            self.cache.lost(asked.path.ino, 0);
            self.cache.lost(asked.path2.ino, 0);
            self.cache.forget_dir(asked.path.ino);
            self.cache.forget_dir(asked.path2.ino);
        }
    }

    fn see_cap(&mut self, stat: &InodeStat) {
        let record = self.caps.entry(stat.ino).or_default();
        record.ino = stat.ino;
        record.cap_id = stat.cap.id;
        record.issued |= stat.cap.caps;
        record.wanted |= stat.cap.wanted;
        let (had, has) = (record.issued & !stat.cap.caps, record.issued);
        self.seqs.insert(stat.ino, (stat.cap.seq, stat.cap.seq));
        self.see_room(stat.ino, stat.max_size);
        self.cuts.insert(stat.ino, stat.truncate_seq);
        self.cache.gained(stat.ino, had, has);
        self.cache.see_stat(stat);
        self.complete(stat.ino);
    }

    /// How far it may write, as long as it may.
    fn see_room(&mut self, ino: u64, max_size: u64) {
        if self.may(ino, cap::FW) {
            self.room.insert(ino, max_size);
        } else {
            self.room.remove(&ino);
        }
    }

    /// What the server has shown is completed with what it has not been told.
    fn complete(&mut self, ino: u64) {
        let (mut size, mut mode) = (0, None);
        let cuts = self.cuts.get(&ino).copied().unwrap_or_default();
        // Nobody else changes the mode while it has one of these. Whoever has given both up is told of it by others.
        let held = self.caps.get(&ino).map_or(0, |c| c.issued & (cap::AX | cap::AS));
        let flushing = self.flushing.values().filter(|(i, _)| *i == ino).map(|(_, d)| d);
        for d in flushing.chain(self.dirty.get(&ino)) {
            size = if d.cuts >= cuts { size.max(d.size) } else { size };
            let is_own = held != 0 && d.bits & cap::AX != 0;
            mode = if is_own { Some(d.mode) } else { mode };
        }
        self.cache.changed(ino, size, mode);
    }

    fn said(&self, what: &What, reply: &MClientReply) -> Said {
        if reply.result != 0 {
            return Said::Error(reply.result);
        }
        let target = reply.trace.target.as_deref();
        match what {
            What::Make { .. } => target.map_or(Said::Done, |t| Said::Made(t.ino)),
            What::Lookup(_) => Said::Found(target.map_or(0, |t| t.ino)),
            What::Stat(ino) => {
                // What comes with a capability is in the cache by now, completed.
                let shown = target.filter(|t| t.cap.caps != 0);
                let own = shown.and_then(|_| self.cache.attributes(*ino));
                let stat = target.map(|t| (t.mode, t.nlink, t.size));
                let (mode, links, size) = own.or(stat).unwrap_or_default();
                Said::Attrs {
                    mode: Some(mode & 0o7777),
                    links: Some(links),
                    size: Some(size),
                }
            }
            What::List(_) => {
                let (all, _) = entries(reply);
                let name = |(n, s): &(bytes::Bytes, InodeStat)| {
                    let is_dir = s.mode & S_IFMT == S_IFDIR;
                    number(n).map(|n| (n, (s.ino, is_dir)))
                };
                Said::Names(all.iter().filter_map(name).collect::<Names>())
            }
            _ => Said::Done,
        }
    }

    // Leases

    /// Names that it trusts for a while.
    pub fn leased_names(&self, now: u64) -> Vec<(u64, u8)> {
        let all = self.cache.leased_names(Duration::from_micros(now));
        all.filter_map(|(dir, n)| number(n).map(|n| (dir, n))).collect()
    }

    fn heard_lease(&mut self, m: &Message) {
        let lease = MClientLease::from_message(m).unwrap();
        if lease.action == lease_action::REVOKE {
            self.cache.end_lease(lease.ino, &lease.name);
            let answer = MClientLease {
                action: lease_action::RELEASE,
                ..lease
            };
            self.out.push(answer.message(0));
        }
    }

    // Capabilities

    fn heard_caps(&mut self, m: &Message, h: &mut History) {
        let caps = MClientCaps::from_message(m).unwrap();
        if caps.op == cap_op::FLUSH_ACK {
            if let Some((_, dirty)) = self.flushing.remove(&m.tid) {
                dirty.ops.iter().for_each(|n| h.settled(*n));
            }
            return;
        }
        let Some(record) = self.caps.get_mut(&caps.ino) else {
            return;
        };
        if record.cap_id != caps.cap_id {
            return;
        }
        let had = record.issued;
        let issue = self.seqs.get(&caps.ino).map_or(0, |s| s.1);
        self.seqs.insert(caps.ino, (caps.seq, issue));
        self.cuts.insert(caps.ino, caps.body.truncate_seq);
        match caps.op {
            cap_op::REVOKE => {
                record.issued &= caps.caps | cap::PIN;
                let has = record.issued;
                self.see_room(caps.ino, caps.body.max_size);
                self.cache.see_caps(&caps);
                self.complete(caps.ino);
                self.cache.lost(caps.ino, has);
                self.tell(caps.ino, cap_op::UPDATE);
            }
            cap_op::GRANT => {
                record.issued = caps.caps;
                self.see_room(caps.ino, caps.body.max_size);
                self.cache.gained(caps.ino, had, caps.caps);
                self.cache.see_caps(&caps);
                self.complete(caps.ino);
            }
            cap_op::TRUNC => {
                self.cache.see_caps(&caps);
                self.complete(caps.ino);
            }
            _ => {}
        }
    }

    /// Says what it has of an inode, and what it changed there.
    fn tell(&mut self, ino: u64, op: u32) {
        if let Some(dirty) = self.dirty.remove(&ino) {
            self.last_flush += 1;
            self.flushing.insert(self.last_flush, (ino, dirty));
            return self.say_flush(self.last_flush, op);
        }
        let m = self.caps_message(ino, op);
        self.say(m, 0);
    }

    fn say_flush(&mut self, tid: u64, op: u32) {
        let (ino, dirty) = self.flushing[&tid].clone();
        let mut m = self.caps_message(ino, op);
        m.dirty = dirty.bits;
        m.mode = dirty.mode;
        m.body.size = dirty.size;
        m.body.truncate_seq = dirty.cuts;
        self.say(m, tid);
    }

    fn caps_message(&self, ino: u64, op: u32) -> MClientCaps {
        let record = self.caps.get(&ino).cloned().unwrap_or_default();
        let (seq, issue_seq) = self.seqs.get(&ino).copied().unwrap_or_default();
        MClientCaps {
            op,
            ino,
            cap_id: record.cap_id,
            seq,
            issue_seq,
            caps: record.issued,
            wanted: record.wanted,
            oldest_flush_tid: self
                .flushing
                .keys()
                .next()
                .copied()
                .unwrap_or(self.last_flush + 1),
            body: CapBody {
                mtime: self.stamp(),
                ctime: self.stamp(),
                ..CapBody::default()
            },
            ..MClientCaps::default()
        }
    }

    /// What has no connection now is said to the next server.
    fn say(&mut self, m: MClientCaps, tid: u64) {
        if self.conn.is_some() {
            self.out.push(m.message(tid));
        }
    }

    // On its own

    /// Writes to the objects up to a size; false: it may not now.
    pub fn write(&mut self, ino: u64, size: u64, h: &mut History) -> bool {
        let room = self.room.get(&ino).copied().unwrap_or_default();
        if !self.may(ino, cap::FW) || size > room {
            return false;
        }
        let op = h.begin(self.id, What::Write { ino, size }, true);
        h.said(op, Said::Done);
        let cuts = self.cuts.get(&ino).copied().unwrap_or_default();
        let dirty = self.dirty.entry(ino).or_default();
        dirty.bits |= cap::FW;
        dirty.cuts = cuts;
        dirty.size = dirty.size.max(size);
        dirty.ops.push(op);
        self.complete(ino);
        true
    }

    /// Changes a mode where it need not ask; false: it may not.
    pub fn change_mode(&mut self, ino: u64, mode: u32, h: &mut History) -> bool {
        if !self.may(ino, cap::AX) {
            return false;
        }
        let op = h.begin(self.id, What::Mode { ino, mode }, true);
        h.said(op, Said::Done);
        let dirty = self.dirty.entry(ino).or_default();
        dirty.bits |= cap::AX;
        dirty.mode = mode;
        dirty.ops.push(op);
        self.complete(ino);
        true
    }

    /// As fsync: what it changed is told.
    pub fn flush(&mut self) {
        let inos: Vec<u64> = self.dirty.keys().copied().collect();
        inos.into_iter().for_each(|ino| self.tell(ino, cap_op::FLUSH));
        if self.is_open {
            self.out
                .push(MClientSession::short(session_op::REQUEST_FLUSH_MDLOG, 0).message(0));
        }
    }

    /// Reads and writes a file no more.
    pub fn close_file(&mut self, ino: u64) {
        if let Some(record) = self.caps.get_mut(&ino) {
            record.wanted = 0;
            record.issued &= !(cap::FW | cap::FB | cap::AX | cap::LX | cap::XX | cap::FX);
            self.tell(ino, cap_op::UPDATE);
        }
    }

    /// Gives a capability up whole, unless there is something to tell of it.
    pub fn release(&mut self, ino: u64) {
        let busy = self.dirty.contains_key(&ino) || self.flushing.values().any(|(i, _)| *i == ino);
        // What is said of locks is said with the capability.
        let used = self
            .caps
            .get(&ino)
            .is_none_or(|c| !matches!(c.wanted, 0 | WANTED) || !c.flock.is_empty());
        if busy || used {
            return;
        }
        let Some(record) = self.caps.remove(&ino) else {
            return;
        };
        self.cache.lost(ino, 0);
        self.cache.forget_dir(ino);
        let item = CapItem {
            ino,
            cap_id: record.cap_id,
            mseq: 0,
            issue_seq: self.seqs.remove(&ino).map_or(0, |s| s.1),
        };
        let m = MClientCapRelease {
            items: vec![item],
            osd_epoch_barrier: 0,
        };
        self.out.push(m.message(0));
    }

    /// Looks at what it knows; false: it has to ask.
    pub fn look(&mut self, what: &What, h: &mut History) -> bool {
        if self.now.saturating_sub(self.renewed) > TRUST_US || !self.is_open {
            return false;
        }
        let said = match what {
            What::Lookup(at) => {
                let (text, now) = (name(at.1), Duration::from_micros(self.now));
                let leased = self.cache.leased(at.0, &text, now);
                let known = match self.may(at.0, cap::FS) {
                    true => self.cache.name(at.0, &text),
                    false => None,
                };
                match leased.filter(|_| self.caps.contains_key(&at.0)).or(known) {
                    Some(Some(ino)) => Said::Found(ino),
                    Some(None) => Said::Error(-2),
                    None => return false,
                }
            }
            What::Stat(ino) => {
                let Some((mode, links, size)) = self.cache.attributes(*ino) else {
                    return false;
                };
                Said::Attrs {
                    mode: self.may(*ino, cap::AS).then_some(mode & 0o7777),
                    links: self.may(*ino, cap::LS).then_some(links),
                    size: self.may(*ino, cap::FS).then_some(size),
                }
            }
            _ => return false,
        };
        let op = h.begin(self.id, what.clone(), true);
        h.said(op, said);
        h.settled(op);
        true
    }
}

/// Of the whole file, without waiting.
fn lock_args(by: u64, kind: u8) -> Args {
    let mut args = vec![lock::FLOCK, kind];
    args.extend((OWNER_BIT | by).to_le_bytes());
    args.extend(1u64.to_le_bytes());
    // Start, length, and whether it waits.
    args.extend([0; 17]);
    Args::from_slice(&args)
}

/// As it is sent.
fn request(what: &What) -> MClientRequest {
    let path = |at: (u64, u8)| FilePath::new(at.0, name(at.1));
    let of = |ino: u64| FilePath::new(ino, String::new());
    let set = |mask: u32, mode: u32, size: u64| {
        Args::of_setattr(&SetAttr {
            mask,
            mode,
            size,
            ..SetAttr::default()
        })
    };
    let (op, path, path2, args) = match *what {
        What::Make { at, is_dir: true } => (op::MKDIR, path(at), None, Args::words(&[0o755])),
        What::Make { at, is_dir: false } => {
            let flags = open_flag::WRONLY | open_flag::CREAT | open_flag::EXCL;
            let args = Args::words(&[flags, 0o644, 0, 0, 0, u32::MAX]);
            (op::CREATE, path(at), None, args)
        }
        What::Unlink(at) => (op::UNLINK, path(at), None, Args::default()),
        What::Rmdir(at) => (op::RMDIR, path(at), None, Args::default()),
        What::Rename { from, to } => (op::RENAME, path(to), Some(path(from)), Args::default()),
        What::Link { ino, to } => (op::LINK, path(to), Some(of(ino)), Args::default()),
        What::Mode { ino, mode } => (op::SETATTR, of(ino), None, set(setattr::MODE, mode, 0)),
        What::Cut { ino, size } | What::Write { ino, size } => {
            (op::SETATTR, of(ino), None, set(setattr::SIZE, 0, size))
        }
        What::Lock { ino, by } => (op::SETFILELOCK, of(ino), None, lock_args(by, lock::EXCL)),
        What::Unlock { ino, by } => (op::SETFILELOCK, of(ino), None, lock_args(by, lock::UNLOCK)),
        What::Lookup(at) => (op::LOOKUP, path(at), None, Args::default()),
        What::Stat(ino) => (
            op::GETATTR,
            of(ino),
            None,
            Args::words(&[cap::AS | cap::LS | cap::FS]),
        ),
        What::List(dir) => (op::READDIR, of(dir), None, Args::words(&[0, 1000])),
    };
    MClientRequest {
        op,
        flags: match what {
            What::Lookup(_) => request_flag::WANT_DENTRY,
            _ => 0,
        },
        path,
        path2: path2.unwrap_or_else(|| FilePath::new(0, String::new())),
        args,
        ..MClientRequest::default()
    }
}
