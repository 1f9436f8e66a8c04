//! Capabilities of files that are open here: what is used of them, what the server asks back, what it is told, and what is given back.
//!
//! One [`Open`] belongs to an inode, for all handles on it. The session counts handles; those who read and write count their calls, and
//! may begin one only with the capability that it needs. What the server asks back is given when no call uses it any more, and in the
//! same message it is told what was written: who is given it next knows that.

use super::{Session, State};
use bytes::Bytes;
use client::{Error, SnapContext};
use messages::fs::{
    CapItem, CapRecord, CapStat, FileLock, InodeStat, MClientCapRelease, MClientCaps, cap, cap_op,
};
use messages::mon::Body;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use types::{Errno, Utime};

/// So long what was written is known here alone, if nobody asks.
const TELL_EVERY: Duration = Duration::from_secs(5);

/// What a handle is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    Read,
    Write,
    Both,
}

impl Use {
    pub fn reads(self) -> bool {
        self != Self::Write
    }

    pub fn writes(self) -> bool {
        self != Self::Read
    }
}

/// An inode that is open, as far as the server has said, and what it was not told.
#[derive(Debug, Clone, Default)]
pub struct Open {
    cap_id: u64,
    seq: u32,
    issue_seq: u32,
    mseq: u32,
    /// The server has not asked it back.
    pub issued: u32,
    pub max_size: u64,
    /// With what was written here.
    pub size: u64,
    pub truncate_seq: u32,
    pub truncate_size: u64,
    /// Handles that read, and that write.
    readers: u32,
    writers: u32,
    /// Those that do both: a kernel may have the file mapped by one of these.
    pub both: u32,
    /// Calls that read, and that write.
    pub reading: u32,
    pub writing: u32,
    /// Something was asked back and is still used.
    pub owes: bool,
    /// When it was written last, if the server was not told.
    pub written: Option<Utime>,
    pub snaps: SnapContext,
    follows: u64,
    /// How often snapshots came or went, and when `snaps` was heard.
    pub snap_changes: u64,
    snaps_heard: Option<u64>,
    /// Bytes of it are locked from here.
    pub locked: bool,
    /// A handle was closed.
    left: bool,
    /// The session was lost.
    pub lost: bool,
}

/// Both sides change it, for a moment at a time, and hear of changes.
pub type Shared = Arc<watch::Sender<Open>>;

impl Open {
    fn new(t: &InodeStat) -> Self {
        Self {
            size: t.size,
            truncate_seq: t.truncate_seq,
            truncate_size: t.truncate_size,
            ..Self::default()
        }
    }

    pub fn leave(&mut self, used: Use) {
        self.count(used, -1);
        self.left = true;
    }

    pub fn knows_snaps(&self) -> bool {
        self.snaps_heard == Some(self.snap_changes)
    }

    /// What was asked after so many changes.
    pub fn hear_snaps(&mut self, snaps: SnapContext, follows: u64, changes: u64) {
        if self.snaps_heard.is_none_or(|heard| heard <= changes) {
            (self.snaps, self.follows, self.snaps_heard) = (snaps, follows, Some(changes));
        }
    }

    fn count(&mut self, by: Use, n: i32) {
        if by.reads() {
            self.readers = self.readers.saturating_add_signed(n);
        }
        if by.writes() {
            self.writers = self.writers.saturating_add_signed(n);
        }
        if by == Use::Both {
            self.both = self.both.saturating_add_signed(n);
        }
    }

    fn is_idle(&self) -> bool {
        self.readers == 0 && self.writers == 0
    }

    fn wanted(&self) -> u32 {
        let read = if self.readers > 0 { cap::PIN | cap::FR } else { 0 };
        let write = cap::PIN | cap::AS | cap::FX | cap::FW;
        read | if self.writers > 0 { write } else { 0 }
    }

    fn used(&self) -> u32 {
        let read = if self.reading > 0 { cap::FR } else { 0 };
        read | if self.writing > 0 { cap::FW } else { 0 }
    }

    /// A call that goes on uses what was asked back.
    pub fn is_held_up(&self) -> bool {
        self.used() & !self.issued != 0
    }

    /// Where the server says nothing else, a file that was cut has a new number.
    fn hear_size(&mut self, size: u64, truncate_seq: u32, truncate_size: u64) {
        if truncate_seq > self.truncate_seq {
            (self.size, self.truncate_seq, self.truncate_size) = (size, truncate_seq, truncate_size);
        } else {
            self.size = self.size.max(size);
        }
    }

    fn hear_caps(&mut self, caps: u32) {
        self.owes |= self.issued & !caps & !cap::PIN != 0;
        self.issued = caps;
    }

    /// What the server does not know yet.
    pub(super) fn complete(&self, t: &mut InodeStat) {
        if t.truncate_seq == self.truncate_seq {
            t.size = t.size.max(self.size);
        }
        if let Some(at) = self.written {
            t.mtime = t.mtime.max(at);
            t.ctime = t.ctime.max(at);
        }
    }
}

/// What a write has changed.
#[derive(Debug, Clone, Copy)]
struct Dirty {
    size: u64,
    truncate_seq: u32,
    truncate_size: u64,
    mtime: Utime,
    follows: u64,
}

pub(super) struct Holding {
    pub(super) open: Shared,
    /// What the server was told, and has not confirmed; in order.
    flushes: VecDeque<Flush>,
    /// Of owners here, as the server has answered ([`super::locks`]).
    pub(super) locks: Vec<FileLock>,
}

struct Flush {
    tid: u64,
    dirty: Dirty,
    waiting: Vec<oneshot::Sender<crate::Result<()>>>,
}

pub(super) fn lost() -> Error {
    Error::invalid(Errno::ESTALE, "the session with the metadata server was lost")
}

impl Holding {
    pub(super) fn lose(mut self, why: &Error) {
        self.open.send_modify(|o| o.lost = true);
        let waiting = self.flushes.drain(..).flat_map(|f| f.waiting);
        waiting.for_each(|w| drop(w.send(Err(why.clone()))));
    }
}

fn update(ino: u64, o: &Open) -> MClientCaps {
    let mut m = MClientCaps {
        op: cap_op::UPDATE,
        ino,
        realm: 1,
        cap_id: o.cap_id,
        seq: o.seq,
        issue_seq: o.issue_seq,
        // What a call uses is given back when it has ended.
        caps: o.issued | o.used(),
        wanted: o.wanted(),
        mseq: o.mseq,
        inline_version: u64::MAX,
        inline_data: Bytes::new(),
        ..MClientCaps::default()
    };
    m.body.size = o.size;
    m.body.truncate_seq = o.truncate_seq;
    m.body.truncate_size = o.truncate_size;
    m
}

impl Session {
    /// A handle on the inode of this answer.
    pub(super) fn hold(&mut self, t: &InodeStat, by: Use, snaps: Option<(SnapContext, u64)>) -> Shared {
        let holding = self.held.entry(t.ino).or_insert_with(|| Holding {
            open: Arc::new(watch::channel(Open::new(t)).0),
            flushes: VecDeque::new(),
            locks: Vec::new(),
        });
        let open = holding.open.clone();
        open.send_modify(|o| {
            o.count(by, 1);
            o.max_size = o.max_size.max(t.max_size);
            if let Some((snaps, follows)) = snaps {
                o.hear_snaps(snaps, follows, o.snap_changes);
            }
        });
        open
    }

    /// An answer shows an inode.
    pub(super) fn shown(&mut self, ino: u64, c: CapStat, size: (u64, u32, u64)) {
        let Some(h) = self.held.get(&ino) else {
            return self.releases.push(CapItem {
                ino,
                cap_id: c.id,
                mseq: c.mseq,
                issue_seq: c.seq,
            });
        };
        h.open.send_modify(|o| {
            (o.cap_id, o.seq, o.issue_seq, o.mseq) = (c.id, c.seq, c.seq, c.mseq);
            o.hear_caps(c.caps);
            o.hear_size(size.0, size.1, size.2);
        });
        self.settle(ino);
    }

    /// A larger bound for sizes.
    pub(super) fn grow(&mut self, ino: u64, size: u64) {
        if let (Some(h), State::Open) = (self.held.get(&ino), self.state) {
            let mut m = update(ino, &h.open.borrow());
            m.body.max_size = size;
            self.send(m.message(0));
        }
    }

    /// Gives what was asked back, once nobody uses it.
    pub(super) fn settle(&mut self, ino: u64) {
        let Some(h) = self.held.get(&ino) else { return };
        let (owes, gives) = {
            let o = h.open.borrow();
            (o.owes, o.owes && !o.is_held_up() && self.state == State::Open)
        };
        if owes && !gives {
            self.owing.insert(ino);
        }
        if !gives {
            return;
        }
        let mut tells = false;
        h.open.send_if_modified(|o| {
            o.owes = false;
            tells = o.written.is_some() && o.issued & cap::FW == 0;
            false
        });
        match tells {
            true => self.tell(ino),
            false => self.send(update(ino, &h.open.borrow()).message(0)),
        }
    }

    /// Calls may have ended since.
    pub(super) fn settle_all(&mut self) {
        for ino in std::mem::take(&mut self.owing) {
            self.settle(ino);
        }
    }

    /// What was written goes to the server.
    fn tell(&mut self, ino: u64) {
        let Some(h) = self.held.get_mut(&ino) else { return };
        let mut dirty = None;
        h.open.send_if_modified(|o| {
            dirty = o.written.take().map(|mtime| Dirty {
                size: o.size,
                truncate_seq: o.truncate_seq,
                truncate_size: o.truncate_size,
                mtime,
                follows: o.follows,
            });
            false
        });
        let Some(dirty) = dirty else { return };
        self.last_tid += 1;
        let tid = self.last_tid;
        h.flushes.push_back(Flush {
            tid,
            dirty,
            waiting: Vec::new(),
        });
        self.send_flush(ino, tid);
    }

    fn send_flush(&self, ino: u64, tid: u64) {
        if self.state != State::Open {
            // When it is open again.
            return;
        }
        let oldest = self.held.values().filter_map(|h| h.flushes.front());
        let oldest = oldest.map(|f| f.tid).min().unwrap_or_default();
        let Some(h) = self.held.get(&ino) else { return };
        let Some(flush) = h.flushes.iter().find(|f| f.tid == tid) else {
            return;
        };
        let mut m = update(ino, &h.open.borrow());
        m.dirty = cap::FW;
        m.snap_follows = flush.dirty.follows;
        m.body.size = flush.dirty.size;
        m.body.truncate_seq = flush.dirty.truncate_seq;
        m.body.truncate_size = flush.dirty.truncate_size;
        m.body.mtime = flush.dirty.mtime;
        m.body.atime = flush.dirty.mtime;
        m.body.ctime = self.wall();
        m.oldest_flush_tid = oldest;
        // Somebody waits for it.
        m.flags = 1;
        self.send(m.message(tid));
    }

    /// What is said again to a server that did not confirm it.
    pub(super) fn send_flushes(&self) {
        let all = self
            .held
            .iter()
            .flat_map(|(ino, h)| h.flushes.iter().map(|f| (f.tid, *ino)));
        let mut all: Vec<(u64, u64)> = all.collect();
        all.sort_unstable();
        all.into_iter().for_each(|(tid, ino)| self.send_flush(ino, tid));
    }

    /// The answer comes when all that was written is durable at the server. `open`: what a handle holds, which may be of a session that
    /// was lost.
    pub(super) fn flush(&mut self, ino: u64, open: &Shared, reply: oneshot::Sender<crate::Result<()>>) {
        let is_held = |h: &Holding| Arc::ptr_eq(&h.open, open);
        if self.held.get(&ino).is_some_and(is_held) {
            self.tell(ino);
        }
        match self.held.get_mut(&ino).filter(|h| is_held(h)) {
            None => drop(reply.send(Err(lost()))),
            Some(h) => match h.flushes.back_mut() {
                Some(last) => last.waiting.push(reply),
                None => drop(reply.send(Ok(()))),
            },
        }
    }

    /// Handles may have been closed.
    pub(super) fn let_go(&mut self, ino: u64) {
        let Some(h) = self.held.get(&ino) else { return };
        let (mut left, mut is_idle, mut tells) = (false, false, false);
        h.open.send_if_modified(|o| {
            left = std::mem::take(&mut o.left);
            is_idle = o.is_idle();
            tells = o.written.is_some() && o.writers == 0;
            if left && is_idle {
                o.issued &= cap::PIN;
                o.owes = false;
            }
            false
        });
        match left {
            false => {}
            true if tells => self.tell(ino),
            true if is_idle => self.release_idle(ino),
            true if self.state == State::Open => self.send(update(ino, &h.open.borrow()).message(0)),
            true => {}
        }
    }

    /// Nobody uses it, and nothing is to be told.
    fn release_idle(&mut self, ino: u64) {
        let is_done = |h: &Holding| h.flushes.is_empty() && h.open.borrow().is_idle();
        if !self.held.get(&ino).is_some_and(is_done) {
            return;
        }
        if let Some(h) = self.held.remove(&ino) {
            // What its closing did not give back.
            let owners: BTreeMap<u64, &FileLock> = h.locks.iter().map(|l| (l.owner, l)).collect();
            owners
                .into_values()
                .for_each(|l| self.unlock(ino, &super::ranges::whole(l)));
            let o = h.open.borrow();
            self.releases.push(CapItem {
                ino,
                cap_id: o.cap_id,
                mseq: o.mseq,
                issue_seq: o.issue_seq,
            });
        }
    }

    pub(super) fn give_back(&mut self) {
        if self.releases.is_empty() || !matches!(self.state, State::Open | State::Closing) {
            return;
        }
        let items = std::mem::take(&mut self.releases);
        let m = MClientCapRelease {
            items,
            osd_epoch_barrier: 0,
        };
        self.send(m.message(0));
    }

    pub(super) fn caps(&mut self, tid: u64, m: &MClientCaps) {
        let Some(h) = self.held.get_mut(&m.ino) else {
            if matches!(m.op, cap_op::GRANT | cap_op::REVOKE) {
                self.releases.push(CapItem {
                    ino: m.ino,
                    cap_id: m.cap_id,
                    mseq: m.mseq,
                    issue_seq: m.seq,
                });
            }
            return;
        };
        match m.op {
            cap_op::GRANT | cap_op::REVOKE | cap_op::TRUNC => {
                h.open.send_modify(|o| {
                    if m.op != cap_op::TRUNC {
                        o.seq = m.seq;
                        o.hear_caps(m.caps);
                        o.owes |= m.op == cap_op::REVOKE;
                    }
                    o.max_size = m.body.max_size;
                    o.hear_size(m.body.size, m.body.truncate_seq, m.body.truncate_size);
                });
                self.settle(m.ino);
            }
            cap_op::FLUSH_ACK => {
                while let Some(f) = h.flushes.pop_front_if(|f| f.tid <= tid) {
                    f.waiting.into_iter().for_each(|w| drop(w.send(Ok(()))));
                }
                self.release_idle(m.ino);
            }
            _ => {}
        }
    }

    /// Snapshots came or went. What was written before belongs to those that were there; what is written from now on asks which there are.
    pub(super) fn snaps_changed(&mut self) {
        let inos: Vec<u64> = self.held.keys().copied().collect();
        for ino in inos {
            self.tell(ino);
            if let Some(h) = self.held.get(&ino) {
                h.open.send_modify(|o| o.snap_changes += 1);
            }
        }
    }

    /// What was written some time ago is told, though nobody asks.
    pub(super) fn tell_old(&mut self) {
        let now = self.now();
        if self.state != State::Open || now < self.tell_at {
            return;
        }
        self.tell_at = now + TELL_EVERY;
        self.tell_all();
    }

    pub(super) fn tell_all(&mut self) {
        let inos: Vec<u64> = self.held.keys().copied().collect();
        for ino in inos {
            self.tell(ino);
            self.let_go(ino);
        }
    }

    /// What a server that takes the place of another is told. It numbers its messages anew.
    pub(super) fn records(&mut self) -> Vec<CapRecord> {
        let record = |(ino, h): (&u64, &Holding)| {
            h.open.send_if_modified(|o| {
                (o.seq, o.issue_seq, o.mseq) = (0, 0, 0);
                // The one before had asked it back; this one has not.
                o.owes = false;
                o.issued |= o.used();
                false
            });
            let o = h.open.borrow();
            CapRecord {
                ino: *ino,
                cap_id: o.cap_id,
                wanted: o.wanted(),
                issued: o.issued,
                realm: 1,
                snap_follows: o.follows,
                fcntl: h.locks.clone(),
                ..CapRecord::default()
            }
        };
        self.held.iter().map(record).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_write_uses_is_not_given_back_by_what_is_told_meanwhile() {
        let mut o = Open::default();
        o.hear_caps(cap::PIN | cap::FW);
        o.writing = 1;
        o.hear_caps(cap::PIN);
        assert!(o.owes && o.is_held_up());
        assert_eq!(update(1, &o).caps, cap::PIN | cap::FW);
        o.writing = 0;
        assert!(o.owes && !o.is_held_up());
        assert_eq!(update(1, &o).caps, cap::PIN);
    }
}
