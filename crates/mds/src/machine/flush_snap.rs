//! What a client had not told when a snapshot was made.
//!
//! A client that hears of a snapshot sends what it had changed until then by FLUSHSNAP, and may have sent an ordinary flush before it
//! heard. `snap_follows` says up to which snapshot it knew: what it says belongs to the later ones.
//!
//! Invariant: what clients say is taken in its order, without a wait for rows: a reader may go on, and a capability be gone, by the next
//! message. So the versions that a holder may have something to say of stay in memory ([`Machine::may_be_told_of`]).

use super::parts::caps::InodeCaps;
use super::{ClientId, Machine, Tx};
use crate::row::{Inode, Key, Row, S_IFMT};
use messages::fs::{MClientCaps, cap, cap_op};
use messages::mon::Body;
use std::collections::BTreeMap;
use std::sync::Arc;

impl Machine {
    /// The last snapshot that a client's word cannot be about; None: it has nothing to say of the inode.
    fn follows(&self, client: ClientId, m: &MClientCaps) -> Option<u64> {
        let cap = self.caps.get(&m.ino)?.holders.get(&client)?;
        Some(m.snap_follows.max(cap.seen))
    }

    /// Somebody holds the inode since before this snapshot.
    pub(crate) fn may_be_told_of(caps: &BTreeMap<u64, InodeCaps>, ino: u64, snap: u64) -> bool {
        let holders = caps.get(&ino).into_iter().flat_map(|ic| ic.holders.values());
        holders.into_iter().any(|c| c.seen < snap)
    }

    /// An ordinary flush: what it says belongs to snapshots that the client had not heard of, too.
    pub(crate) fn keep_for_snaps(&mut self, tx: &mut Tx, client: ClientId, inode: &Inode, m: &MClientCaps) {
        let Some(follows) = self.follows(client, m).filter(|_| m.snap_follows > 0) else {
            return;
        };
        if self.snaps.range(follows + 1..).next().is_none() {
            return;
        }
        if self.covering_or_all(inode).range(follows + 1..).next().is_none() {
            return;
        }
        tx.follows.insert(inode.ino, follows);
        self.apply_to_versions(tx, inode, m, follows);
    }

    /// Versions that snapshots behind `follows` show.
    fn apply_to_versions(&mut self, tx: &mut Tx, inode: &Inode, m: &MClientCaps, follows: u64) {
        let mut olds = Vec::new();
        for (first, last) in inode.kept.olds.iter().copied() {
            if last <= follows {
                olds.push((first, last));
                continue;
            }
            let Some(Row::Inode(old)) = self.table.peek(&Key::version(inode.ino, last)) else {
                tracing::error!(
                    "inode {:x}: its version of snapshot {last} is not in memory",
                    inode.ino
                );
                olds.push((first, last));
                continue;
            };
            let begins = self.cut_version(tx, old, first, follows, &mut olds);
            let mut changed = Inode::clone(old);
            changed.first = begins;
            apply_snapped(&mut changed, m);
            tx.put(Key::version(inode.ino, last), Row::Inode(Arc::new(changed)));
            olds.push((begins, last));
        }
        tx.versions.insert(inode.ino, (olds, inode.first));
    }

    /// What snapshots up to `follows` show of a version stays as it is. Where the rest begins.
    fn cut_version(
        &self,
        tx: &mut Tx,
        old: &Inode,
        first: u64,
        follows: u64,
        olds: &mut Vec<(u64, u64)>,
    ) -> u64 {
        if first > follows {
            return first;
        }
        let Some((last, _)) = self.snaps.range(first..=follows).next_back() else {
            return first;
        };
        tx.changes.push(super::versions::version_row(old, first, *last));
        tx.put(Key::old_inode(old.ino, *last), Row::Mark);
        olds.push((first, *last));
        last + 1
    }

    pub(crate) fn flush_snap(&mut self, client: ClientId, m: &MClientCaps, tid: u64) {
        let done = self.session(client).is_none_or(|s| s.flushed.contains(&tid));
        if !done && let Some(inode) = self.cached(m.ino) {
            self.store_snap_flush(client, m, tid, &inode);
        }
        let ack = MClientCaps {
            op: cap_op::FLUSHSNAP_ACK,
            ino: m.ino,
            dirty: m.dirty,
            snap_follows: m.snap_follows,
            oldest_flush_tid: m.oldest_flush_tid,
            files: u64::MAX,
            subdirs: u64::MAX,
            osd_epoch_barrier: self.osd_barrier,
            ..MClientCaps::default()
        };
        self.send_counted(client, ack.message(tid));
    }

    /// Rows without which a flush of a client that came back cannot be applied.
    pub(crate) fn missing_versions(&self, inode: &Inode) -> Vec<Key> {
        let olds = inode.kept.olds.iter();
        olds.map(|(_, last)| Key::version(inode.ino, *last))
            .filter(|k| !self.table.contains(k))
            .collect()
    }

    fn store_snap_flush(&mut self, client: ClientId, m: &MClientCaps, tid: u64, inode: &Arc<Inode>) {
        let Some(follows) = self.follows(client, m) else {
            return;
        };
        let Some(session) = self.sessions.get_mut(client) else {
            return;
        };
        let mut tx = Tx::default();
        session.forget_flushed(client, m.oldest_flush_tid, &mut tx);
        session.flushed.insert(tid);
        tx.put(Key::Flushed { client, tid }, Row::Mark);
        let by = match m.caller_uid {
            u32::MAX => (0, 0),
            uid => (uid, m.caller_gid),
        };
        let covering = self.covering_or_all(inode);
        let newest = covering.range(follows + 1..).next_back().copied();
        if let Some(newest) = newest
            && self.may_flush(client, inode, by)
        {
            self.apply_to_versions(&mut tx, inode, m, follows);
            if inode.first <= newest && !inode.kept.dead {
                self.begin_version(&mut tx, inode, m, (follows, newest));
            }
            if let Some(now) = told_now(inode, m) {
                tx.inode(now);
            } else if tx.versions.contains_key(&inode.ino) {
                tx.inode(Inode::clone(inode));
            }
        }
        self.commit(tx);
    }

    /// Nothing was changed since the snapshot: what there is now, with what the client says, is its version.
    fn begin_version(&self, tx: &mut Tx, inode: &Inode, m: &MClientCaps, (follows, newest): (u64, u64)) {
        let (mut olds, _) = tx.versions.remove(&inode.ino).unwrap_or_default();
        let begins = self.cut_version(tx, inode, inode.first, follows, &mut olds);
        let mut changed = inode.clone();
        apply_snapped(&mut changed, m);
        tx.changes
            .push(super::versions::version_row(&changed, begins, newest));
        tx.put(Key::old_inode(inode.ino, newest), Row::Mark);
        olds.push((begins, newest));
        tx.versions.insert(inode.ino, (olds, newest + 1));
    }
}

/// A snapshot's version, with what its writer says of it. A file that was not cut only grew.
fn apply_snapped(i: &mut Inode, m: &MClientCaps) {
    let b = &m.body;
    if i.is_file() && m.dirty & (cap::FW | cap::FX | cap::FB) != 0 {
        i.size = i.size.max(b.size);
        i.mtime = i.mtime.max(b.mtime);
    }
    if m.dirty & cap::FX != 0 && b.time_warp_seq >= i.time_warp_seq {
        (i.mtime, i.atime) = (b.mtime, b.atime);
    }
    if m.dirty & cap::AX != 0 {
        (i.uid, i.gid, i.btime) = (m.uid, m.gid, m.btime);
        i.mode = i.mode & S_IFMT | m.mode & 0o7777;
    }
    if m.dirty & cap::XX != 0
        && m.xattr_version > i.xattr_version
        && let Some(xattrs) = &m.xattrs
    {
        i.xattrs = xattrs.clone();
        i.xattr_version = m.xattr_version;
    }
    i.ctime = i.ctime.max(b.ctime);
    i.change_attr = i.change_attr.max(m.change_attr);
}

/// What was written before a snapshot is there now, too, unless the file was cut since.
fn told_now(inode: &Inode, m: &MClientCaps) -> Option<Inode> {
    let grew = m.dirty & (cap::FW | cap::FX | cap::FB) != 0 && m.body.size > inode.size;
    let cut = inode.truncate_seq > 1 && inode.truncate_size != u64::MAX;
    if !inode.is_file() || inode.kept.dead || !grew || cut {
        return None;
    }
    let mut now = inode.clone();
    now.untold.bytes += m.body.size as i64 - inode.size as i64;
    now.size = m.body.size;
    now.mtime = now.mtime.max(m.body.mtime);
    Some(now)
}
