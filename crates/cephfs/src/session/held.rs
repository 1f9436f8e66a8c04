//! Capabilities that calls hold while they read or write, and what is given back.

use super::{Session, State};
use bytes::Bytes;
use client::Error;
use messages::fs::{CapItem, CapRecord, CapStat, InodeStat, MClientCapRelease, MClientCaps, cap, cap_op};
use messages::mon::Body;
use tokio::sync::{oneshot, watch};
use types::{Errno, Utime};

/// What a call that reads or writes holds of an inode, as far as the server has said.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Held {
    pub cap_id: u64,
    pub issued: u32,
    seq: u32,
    issue_seq: u32,
    mseq: u32,
    pub max_size: u64,
    pub size: u64,
    pub truncate_seq: u32,
    pub truncate_size: u64,
    /// The session was lost.
    pub lost: bool,
}

/// What a write has changed.
#[derive(Debug, Clone, Copy)]
pub struct Dirty {
    pub size: u64,
    pub mtime: Utime,
}

pub(super) struct Holding {
    pub(super) view: watch::Sender<Held>,
    pub(super) flush: Option<Flush>,
}

pub(super) struct Flush {
    pub(super) tid: u64,
    pub(super) dirty: Dirty,
    pub(super) snap_follows: u64,
    pub(super) reply: oneshot::Sender<crate::Result<()>>,
}

/// What a writer wants.
pub const WRITE_WANTED: u32 = cap::PIN | cap::AS | cap::FW;

pub(super) fn held_of(t: &InodeStat) -> Held {
    Held {
        cap_id: t.cap.id,
        issued: t.cap.caps,
        seq: t.cap.seq,
        issue_seq: t.cap.seq,
        mseq: t.cap.mseq,
        max_size: t.max_size,
        size: t.size,
        truncate_seq: t.truncate_seq,
        truncate_size: t.truncate_size,
        lost: false,
    }
}

fn update(ino: u64, held: &Held, caps: u32) -> MClientCaps {
    let mut m = MClientCaps {
        op: cap_op::UPDATE,
        ino,
        realm: 1,
        cap_id: held.cap_id,
        seq: held.seq,
        issue_seq: held.issue_seq,
        caps,
        mseq: held.mseq,
        inline_version: u64::MAX,
        inline_data: Bytes::new(),
        ..MClientCaps::default()
    };
    m.body.truncate_seq = held.truncate_seq;
    m.body.truncate_size = held.truncate_size;
    m
}

pub(super) fn record(ino: u64, held: &Held) -> CapRecord {
    CapRecord {
        ino,
        cap_id: held.cap_id,
        wanted: held.issued,
        issued: held.issued,
        realm: 1,
        ..CapRecord::default()
    }
}

impl Session {
    pub(super) fn grow(&mut self, ino: u64, size: u64) {
        if let Some(h) = self.held.get(&ino) {
            let held = *h.view.borrow();
            let mut m = update(ino, &held, held.issued);
            m.wanted = WRITE_WANTED;
            m.body.max_size = size;
            self.send(m.message(0));
        }
    }

    pub(super) fn drop_held(
        &mut self,
        ino: u64,
        dirty: Option<Dirty>,
        snap_follows: u64,
        reply: oneshot::Sender<crate::Result<()>>,
    ) {
        let Some(holding) = self.held.get_mut(&ino) else {
            let lost = Error::invalid(Errno::ESTALE, "the session was lost");
            let _ = reply.send(Err(lost));
            return;
        };
        let Some(dirty) = dirty else {
            self.release(ino);
            let _ = reply.send(Ok(()));
            return;
        };
        self.last_tid += 1;
        holding.flush = Some(Flush {
            tid: self.last_tid,
            dirty,
            snap_follows,
            reply,
        });
        if self.state == State::Open {
            self.send_flush(ino);
        }
    }

    pub(super) fn send_flush(&mut self, ino: u64) {
        let wall = self.wall();
        let oldest = self.held.values().filter_map(|h| h.flush.as_ref());
        let oldest = oldest.map(|f| f.tid).min().unwrap_or_default();
        let Some(h) = self.held.get(&ino) else { return };
        let Some(flush) = &h.flush else { return };
        let held = *h.view.borrow();
        let mut m = update(ino, &held, cap::PIN);
        m.dirty = cap::FW;
        m.snap_follows = flush.snap_follows;
        m.body.size = flush.dirty.size;
        m.body.mtime = flush.dirty.mtime;
        m.body.atime = flush.dirty.mtime;
        m.body.ctime = wall;
        m.oldest_flush_tid = oldest;
        // Somebody waits for it.
        m.flags = 1;
        let message = m.message(flush.tid);
        self.send(message);
    }

    pub(super) fn release(&mut self, ino: u64) {
        if let Some(h) = self.held.remove(&ino) {
            let held = *h.view.borrow();
            self.releases.push(CapItem {
                ino,
                cap_id: held.cap_id,
                mseq: held.mseq,
                issue_seq: held.issue_seq,
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

    /// A capability came along.
    pub(super) fn issued(&mut self, ino: u64, c: CapStat) {
        if let Some(h) = self.held.get(&ino) {
            return h.view.send_modify(|v| {
                (v.cap_id, v.issued) = (c.id, c.caps);
                (v.seq, v.issue_seq, v.mseq) = (c.seq, c.seq, c.mseq);
            });
        }
        self.releases.push(CapItem {
            ino,
            cap_id: c.id,
            mseq: c.mseq,
            issue_seq: c.seq,
        });
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
            cap_op::GRANT | cap_op::REVOKE | cap_op::TRUNC => h.view.send_modify(|v| {
                if m.op != cap_op::TRUNC {
                    (v.issued, v.seq) = (m.caps, m.seq);
                }
                v.max_size = m.body.max_size;
                if m.body.truncate_seq >= v.truncate_seq {
                    v.size = m.body.size;
                    (v.truncate_seq, v.truncate_size) = (m.body.truncate_seq, m.body.truncate_size);
                }
            }),
            cap_op::FLUSH_ACK if h.flush.as_ref().is_some_and(|f| f.tid == tid) => {
                if let Some(f) = h.flush.take() {
                    let _ = f.reply.send(Ok(()));
                }
                self.release(m.ino);
            }
            _ => {}
        }
    }
}
