//! Capabilities: what clients may do with an inode on their own.
//!
//! Vocabulary (docs/protocol/files.md, section 8): *pending* is what a client should have, *issued* what it may still have; what is issued
//! and not pending is being revoked. *Frozen* is what requests that wait, or that are being carried out, keep from being given.
//!
//! Invariants: two clients are never issued what stands against each other ([`against`]); a request goes on when what it froze is
//! issued to nobody, not before; what a client changed is applied before it counts as given back, and acknowledged when durable.

use super::parts::caps::{CLIENT_MAX, Caching, Cap, Frozen, InodeCaps};
use super::replays::was_answered;
use super::session::CAP_BYTES;
use super::{ClientId, Machine, Request, Result, Stop, Tx};
use crate::membership::MdsState;
use crate::row::{Inode, Key, Row};
use messages::fs::{CapBody, CapItem, CapStat, InodeStat, MClientCaps, Release, cap, cap_op};
use messages::mon::Body;

/// What stands for the names of a directory, and for changing them.
pub(crate) const NAMES: u32 = cap::FS | cap::FX | cap::FC | cap::FR;

impl Machine {
    fn inode_caps(&mut self, ino: u64) -> &mut InodeCaps {
        self.caps.entry(ino).or_default()
    }

    /// The client gets, or keeps, a capability, by a reply. `spares`: Fs of a directory is not given anew, but to who has it for itself:
    /// the next who changes it would have to wait for that.
    pub(crate) fn issue(&mut self, r: &Request, inode: &Inode, spares: bool) -> CapStat {
        if self.replays.running {
            return CapStat::default();
        }
        let (ino, client, caching) = (inode.ino, r.client, self.options.caching);
        let unknown = self.unknown(ino) | self.kept_for_quota(inode);
        let ops = self.ops_of(client, inode);
        // What it kept even from its own client is changed by now.
        let changed = self.early.own.is_some();
        let Self {
            caps,
            last_cap_id,
            sessions,
            counters,
            ..
        } = self;
        let Some(session) = sessions.get_mut(client) else {
            return CapStat::default();
        };
        let ic = caps.entry(ino).or_default();
        ic.holders.entry(client).or_insert_with(|| {
            session.caps.insert(ino);
            *last_cap_id += 1;
            Cap::new(*last_cap_id, counters.last_snap)
        });
        ic.shown_to(client);
        let mut frozen = ic.frozen_for(client);
        if changed {
            // But for a directory that has to be trusted anew.
            let stays = if inode.is_dir() { NAMES } else { 0 };
            frozen = ic.frozen_by_others(client, r.id) | frozen & stays;
        }
        let mut allowed = (ic.allowed(client, inode, caching) | ops) & !frozen & !unknown;
        allowed &= !ic.forbidden(client, inode);
        let Some(cap) = ic.holders.get_mut(&client) else {
            return CapStat::default();
        };
        // Looks in a row are no reason to give it to one alone.
        if inode.is_dir() && spares && (!r.changes() || allowed & cap::FX == 0) {
            allowed &= !NAMES | cap.pending;
        }
        allowed = only_with_fx(inode, allowed);
        cap.pending |= allowed & cap.liked(inode) | cap::PIN;
        cap.issued |= cap.pending;
        cap.last_sent += 1;
        cap.last_issue = cap.last_sent;
        cap.show();
        CapStat {
            caps: cap.pending,
            wanted: cap.wanted,
            id: cap.id,
            seq: cap.last_sent,
            mseq: 0,
            realm: 0,
            flags: super::reply::AUTHORITY,
        }
    }

    /// What nobody is told while the end of the file is being found: that it is known.
    fn unknown(&self, ino: u64) -> u32 {
        match self.probing(ino) {
            true => cap::FS | cap::FX | cap::FC,
            false => 0,
        }
    }

    /// Who has Fx makes a file larger without asking.
    fn kept_for_quota(&mut self, inode: &Inode) -> u32 {
        if !inode.is_file() || self.realms.is_empty() {
            return 0;
        }
        let mut is_below = true;
        self.aside(|machine| is_below = !matches!(machine.quota_root(inode), Ok(None)));
        if is_below { cap::FX } else { 0 }
    }

    /// From now on; what nobody may have any more is asked back.
    pub(crate) fn cache(&mut self, caching: Caching) {
        self.options.caching = caching;
        let held: Vec<u64> = self.caps.keys().copied().collect();
        held.into_iter().for_each(|ino| self.settle(ino));
    }

    /// How many capabilities more a listing may give: what a client caches stays in memory.
    pub(crate) fn room_for_caps(&self, client: ClientId) -> usize {
        let all: usize = self.sessions.iter().map(|(_, s)| s.caps.len()).sum();
        let own = self.sessions.get(client).map_or(0, |s| s.caps.len());
        let room = (self.options.cache_bytes / CAP_BYTES).saturating_sub(all);
        room.min(CLIENT_MAX.saturating_sub(own))
    }

    /// Whoever changes the directory goes first; or who lists it again and again would keep him waiting.
    pub(crate) fn may_lend(&mut self, r: &Request, ino: u64) -> Result<()> {
        match self.caps.get_mut(&ino) {
            Some(ic) if ic.frozen_for(r.client) & cap::FS != 0 => {
                ic.wait(r.id);
                Err(Stop::Wait)
            }
            _ => Ok(()),
        }
    }

    /// A listing begins with Fs, which is taken back behind the answer. A client marks a directory that it has listed as complete, and
    /// only gaining Fs clears that mark: without it ceph-fuse 16.2 aborts where the next listing shows something else.
    pub(crate) fn lend_listing(&mut self, client: ClientId, stat: &mut InodeStat) {
        let Some(ic) = self.caps.get_mut(&stat.ino) else {
            return;
        };
        if ic.others_hold(client, cap::FX | cap::FW | cap::FB) {
            return;
        }
        if let Some(cap) = ic.holders.get_mut(&client) {
            cap.pending |= cap::FS;
            cap.issued |= cap::FS;
            stat.cap.caps |= cap::FS;
        }
    }

    /// Opening says what will be wanted.
    pub(crate) fn want(&mut self, client: ClientId, ino: u64, bits: u32) {
        if self.replays.running {
            return;
        }
        let Self {
            caps,
            last_cap_id,
            sessions,
            counters,
            ..
        } = self;
        let Some(session) = sessions.get_mut(client) else {
            return;
        };
        let cap = caps
            .entry(ino)
            .or_default()
            .holders
            .entry(client)
            .or_insert_with(|| {
                session.caps.insert(ino);
                *last_cap_id += 1;
                Cap::new(*last_cap_id, counters.last_snap)
            });
        cap.wanted |= bits;
    }

    /// Somebody else may still have one of these bits.
    pub(crate) fn have_others(&self, client: ClientId, ino: u64, mask: u32) -> bool {
        let holders = self.caps.get(&ino).map(|ic| ic.holders.iter());
        let mut holders = holders.into_iter().flatten();
        holders.any(|(other, cap)| *other != client && cap.issued & mask != 0)
    }

    /// Nobody but `except` may have these bits from now on, until the request has ended; goes on when nobody has them.
    pub(crate) fn withhold(
        &mut self,
        r: &mut Request,
        ino: u64,
        mask: u32,
        except: Option<ClientId>,
    ) -> Result<()> {
        if mask == 0 {
            return Ok(());
        }
        let request = r.id;
        // Where nobody is excepted, the answer gives the caller nothing of it either.
        if !self.caps.contains_key(&ino) && except.is_some() {
            return Ok(());
        }
        // What the caller holds by now it was given behind what it asked for, if that was answered.
        let except = if was_answered(r) { Some(r.client) } else { except };
        let frozen = Frozen {
            request,
            mask,
            except,
        };
        let now = self.now.monotonic;
        let ic = self.inode_caps(ino);
        if !ic.frozen.contains(&frozen) {
            if mask & cap::FS != 0 {
                ic.taken_back(except, now);
            }
            ic.frozen.push(frozen);
            r.frozen.insert(ino);
        }
        self.settle(ino);
        let held = |(k, c): (&ClientId, &Cap)| Some(*k) != except && c.issued & mask != 0;
        #[cfg(test)]
        if self.early.is(super::parts::early::Broken::Rash) {
            return Ok(());
        }
        let ic = self.inode_caps(ino);
        if ic.holders.iter().any(held) {
            ic.waiting.insert(request);
            return Err(Stop::Wait);
        }
        Ok(())
    }

    /// The request has ended: what it kept back may be given again.
    pub(crate) fn thaw(&mut self, r: &mut Request) {
        self.thaw_names(r);
        for ino in std::mem::take(&mut r.frozen) {
            if let Some(ic) = self.caps.get_mut(&ino) {
                ic.frozen.retain(|f| f.request != r.id);
                ic.waiting.remove(&r.id);
            }
            self.wake(ino);
        }
    }

    /// Something changed for those who wait at the inode.
    pub(crate) fn wake(&mut self, ino: u64) {
        if let Some(ic) = self.caps.get_mut(&ino) {
            let waiting = std::mem::take(&mut ic.waiting);
            self.runnable.extend(waiting);
        }
        self.settle(ino);
        self.forget_if_idle(ino);
    }

    fn forget_if_idle(&mut self, ino: u64) {
        if self.caps.get(&ino).is_some_and(InodeCaps::is_idle) {
            self.caps.remove(&ino);
        }
        self.purge_if_stray(ino);
    }

    /// What of an inode the client need not give back.
    fn may_keep(&self, client: ClientId, inode: &Inode, unknown: u32) -> u32 {
        let Some(ic) = self.caps.get(&inode.ino) else {
            return 0;
        };
        let frozen = ic.frozen_for(client);
        if self.state != MdsState::Active {
            return !frozen;
        }
        let all = ic.allowed(client, inode, self.options.caching) | self.ops_of(client, inode);
        only_with_fx(inode, all & !frozen & !unknown)
    }

    /// Revokes what is not to be had any more, and gives what is wanted and may be had. Before it serves it gives nothing, and revokes
    /// what requests wait for.
    pub(crate) fn settle(&mut self, ino: u64) {
        let Some(inode) = self.cached(ino) else { return };
        let serves = self.state == MdsState::Active;
        let unknown = self.unknown(ino) | self.kept_for_quota(&inode);
        let serving = self.serving;
        let Some(ic) = self.caps.get(&ino) else { return };
        let clients: Vec<ClientId> = ic.holders.keys().copied().collect();
        for client in clients {
            let allowed = self.may_keep(client, &inode, unknown);
            let Some(ic) = self.caps.get_mut(&ino) else { return };
            let Some(cap) = ic.holders.get(&client) else {
                continue;
            };
            let revoked = cap.pending & !allowed & !cap::PIN;
            let mut given = allowed & !cap.pending & cap.liked(&inode);
            // That it has no name any more its other users hear by nothing else; who took it away knows.
            let mut awaited = cap.awaited(&inode);
            if inode.nlink == 0 && serving != Some(client) {
                awaited |= cap::LS;
            }
            if serves && given & awaited != 0 {
                given &= !ic.forbidden(client, &inode);
            }
            if !serves || given & awaited == 0 {
                given = 0;
            }
            let Some(cap) = ic.holders.get_mut(&client) else {
                continue;
            };
            let op = if revoked != 0 {
                cap.pending &= !revoked;
                #[cfg(test)]
                if self.early.is(super::parts::early::Broken::Generous) {
                    cap.issued &= !revoked;
                }
                cap.revoked_at.get_or_insert(self.now.monotonic);
                if self.replays.held.has(client, ino) {
                    self.replays.asked_back.push_back((client, ino));
                }
                cap_op::REVOKE
            } else if given != 0 && cap.issued & !cap.pending == 0 {
                cap.pending |= given;
                cap.issued |= given;
                cap_op::GRANT
            } else {
                self.grow(client, ino);
                continue;
            };
            cap.last_sent += 1;
            if op == cap_op::GRANT {
                cap.show();
            }
            let cap = cap.clone();
            self.send_cap(client, &inode, &cap, op);
            self.grow(client, ino);
        }
    }

    /// Tells a client what its capability is now, with all attributes.
    fn send_cap(&mut self, client: ClientId, inode: &Inode, c: &Cap, op: u32) {
        let realm = self.realm_cached(inode);
        let m = MClientCaps {
            op,
            ino: inode.ino,
            realm,
            cap_id: c.id,
            seq: c.last_sent,
            caps: c.pending,
            wanted: c.wanted,
            uid: inode.uid,
            gid: inode.gid,
            mode: inode.mode,
            nlink: inode.nlink,
            xattr_version: inode.xattr_version,
            body: body_of(inode, c),
            inline_version: u64::MAX,
            osd_epoch_barrier: self.osd_barrier,
            pool_ns: inode.pool_ns.clone(),
            btime: inode.btime,
            change_attr: inode.change_attr,
            files: inode.files,
            subdirs: inode.subdirs,
            xattrs: (c.pending & cap::XS != 0 && op == cap_op::GRANT).then(|| inode.xattrs.clone()),
            ..MClientCaps::default()
        };
        self.send_counted(client, m.message(0));
    }

    /// Says one of its capabilities again, so that the client asks for the OSD map of now: where all was started again, OSDs have other
    /// addresses, and one that never spoke with them would find that out only after ten seconds for each.
    pub(crate) fn remind(&mut self, client: ClientId) {
        let held = self.sessions.get(client).and_then(|s| s.caps.first().copied());
        let Some(inode) = held.and_then(|ino| self.cached(ino)) else {
            return;
        };
        let ic = self.caps.get_mut(&inode.ino);
        let Some(cap) = ic.and_then(|ic| ic.holders.get_mut(&client)) else {
            return;
        };
        cap.last_sent += 1;
        let cap = cap.clone();
        self.send_cap(client, &inode, &cap, cap_op::GRANT);
    }

    /// All who hold a capability hear of a new size.
    pub(crate) fn send_truncated(&mut self, ino: u64) {
        let Some(inode) = self.cached(ino) else { return };
        let Some(ic) = self.caps.get_mut(&ino) else { return };
        let mut told = Vec::new();
        for (client, cap) in &mut ic.holders {
            cap.last_sent += 1;
            told.push((*client, cap.clone()));
        }
        for (client, cap) in told {
            self.send_cap(client, &inode, &cap, cap_op::TRUNC);
        }
    }

    // From clients

    pub(crate) fn client_caps(&mut self, client: ClientId, m: &MClientCaps, tid: u64) {
        match m.op {
            cap_op::UPDATE | cap_op::FLUSH | cap_op::RELEASE | cap_op::DROP => self.update(client, m, tid),
            cap_op::FLUSHSNAP => self.flush_snap(client, m, tid),
            _ => {}
        }
    }

    fn update(&mut self, client: ClientId, m: &MClientCaps, tid: u64) {
        let ino = m.ino;
        let Some(cap) = self.caps.get(&ino).and_then(|ic| ic.holders.get(&client)) else {
            return self.flush_of_nobody(client, m, tid);
        };
        if cap.id != m.cap_id {
            return;
        }
        if m.dirty != 0 && tid > 0 {
            self.flush(client, m, tid);
        }
        let Some(cap) = self.caps.get_mut(&ino).and_then(|ic| ic.holders.get_mut(&client)) else {
            return;
        };
        confirm(cap, m.seq, m.caps);
        if m.issue_seq == cap.last_issue {
            cap.wanted = m.wanted;
        } else {
            cap.wanted |= m.wanted;
        }
        // Also in a message that flushes: the client does not ask a second time.
        if m.body.max_size > 0 {
            cap.room = m.body.max_size;
        }
        self.grow(client, ino);
        self.wake(ino);
        self.writers_gone(ino);
    }

    /// A flush that is sent again, whose capability has gone: it was applied, or its client lost it.
    fn flush_of_nobody(&mut self, client: ClientId, m: &MClientCaps, tid: u64) {
        let done = self.session(client).is_some_and(|s| s.flushed.contains(&tid));
        if done {
            self.acknowledge(client, m, tid);
        }
    }

    /// What the client changed in its cache.
    fn flush(&mut self, client: ClientId, m: &MClientCaps, tid: u64) {
        let Some(session) = self.sessions.get_mut(client) else {
            return;
        };
        let mut tx = Tx::default();
        session.forget_flushed(client, m.oldest_flush_tid, &mut tx);
        let again = !session.flushed.insert(tid);
        if !again && let Some(inode) = self.cached(m.ino) {
            tx.put(Key::Flushed { client, tid }, Row::Mark);
            if session_may_write(self, client, &inode, m) {
                self.keep_for_snaps(&mut tx, client, &inode, m);
                let mut changed = Inode::clone(&inode);
                apply_dirty(&mut changed, m);
                tx.inode(changed);
            }
        }
        self.commit(tx);
        self.acknowledge(client, m, tid);
        self.tell_quota(m.ino);
    }

    fn acknowledge(&mut self, client: ClientId, m: &MClientCaps, tid: u64) {
        let ack = MClientCaps {
            op: cap_op::FLUSH_ACK,
            ino: m.ino,
            cap_id: m.cap_id,
            seq: m.seq,
            caps: m.caps,
            dirty: m.dirty,
            snap_follows: m.snap_follows,
            files: u64::MAX,
            subdirs: u64::MAX,
            osd_epoch_barrier: self.osd_barrier,
            ..MClientCaps::default()
        };
        self.send_counted(client, ack.message(tid));
    }

    /// Gives a writer the room that it needs. It asks once, also while it may not write: then it is given the room with the right.
    fn grow(&mut self, client: ClientId, ino: u64) {
        let Some(inode) = self.cached(ino) else { return };
        let limit = self.place.settings.max_file_size;
        let Some(cap) = self.caps.get_mut(&ino).and_then(|ic| ic.holders.get_mut(&client)) else {
            return;
        };
        if cap.room == 0 || cap.pending & cap::FW == 0 {
            return;
        }
        let size = std::mem::take(&mut cap.room);
        if size > limit {
            return;
        }
        // More than it asked for: one that has just that does not ask again after a truncation.
        if inode.max_size <= size {
            let mut changed = Inode::clone(&inode);
            changed.max_size = room_for(&inode, size).min(round_up(limit + 1, &inode));
            let mut tx = Tx::default();
            self.mark_writing(&mut tx, ino);
            tx.inode(changed);
            self.commit(tx);
        }
        let Some(inode) = self.cached(ino) else { return };
        let Some(cap) = self.caps.get_mut(&ino).and_then(|ic| ic.holders.get_mut(&client)) else {
            return;
        };
        cap.last_sent += 1;
        let cap = cap.clone();
        self.send_cap(client, &inode, &cap, cap_op::GRANT);
    }

    pub(crate) fn mark_writing(&mut self, tx: &mut Tx, ino: u64) {
        if self.writing.insert(ino) {
            tx.put(Key::Writing(ino), Row::Mark);
        }
    }

    /// Room in which a writer may write without asking.
    pub(crate) fn first_room(inode: &Inode) -> u64 {
        room_for(inode, inode.size)
    }

    /// Where nobody writes any more the recorded size is the true one.
    pub(crate) fn writers_gone(&mut self, ino: u64) {
        if !self.writing.contains(&ino) || self.reconnecting.is_some() {
            return;
        }
        if let Some(ic) = self.caps.get(&ino)
            && (ic.issued() | ic.wants()) & (cap::FW | cap::FB) != 0
        {
            return;
        }
        self.writing.remove(&ino);
        let mut tx = Tx::default();
        tx.remove(Key::Writing(ino));
        if let Some(inode) = self.cached(ino)
            && inode.nlink > 0
        {
            let mut changed = Inode::clone(&inode);
            changed.max_size = 0;
            tx.inode(changed);
        }
        self.commit(tx);
    }

    pub(crate) fn release(&mut self, client: ClientId, item: &CapItem) {
        let Some(ic) = self.caps.get_mut(&item.ino) else {
            return;
        };
        let Some(cap) = ic.holders.get(&client) else {
            return;
        };
        if cap.id != item.cap_id {
            return;
        }
        if item.issue_seq == cap.last_issue {
            self.drop_cap(client, item.ino);
        } else {
            // Issued again meanwhile; but what was asked back is not there any more.
            self.wake(item.ino);
        }
    }

    /// The client has nothing of the inode any more.
    pub(crate) fn drop_cap(&mut self, client: ClientId, ino: u64) {
        if let Some(ic) = self.caps.get_mut(&ino) {
            ic.holders.remove(&client);
        }
        if let Some(s) = self.sessions.get_mut(client) {
            s.caps.remove(&ino);
        }
        self.writers_gone(ino);
        self.wake(ino);
    }

    /// What the caller gives up with a request.
    pub(crate) fn embedded_releases(&mut self, client: ClientId, releases: &[Release]) {
        for r in releases {
            let Some(cap) = self
                .caps
                .get_mut(&r.ino)
                .and_then(|ic| ic.holders.get_mut(&client))
            else {
                continue;
            };
            if cap.id != r.cap_id {
                continue;
            }
            confirm(cap, r.seq, r.caps);
            if r.issue_seq == cap.last_issue {
                cap.wanted = r.wanted;
            }
            self.wake(r.ino);
        }
    }
}

/// Who has not a directory for itself changes it by asking.
fn only_with_fx(inode: &Inode, bits: u32) -> u32 {
    match inode.is_dir() && bits & cap::FX == 0 {
        true => bits & !(cap::FC | cap::FR),
        false => bits,
    }
}

/// What the client says that it had when it had heard up to `seq`. What it was shown later it may have all the same, and answers when
/// that is asked back; what it gave up by itself, and was not shown since, it does not answer for a second time.
fn confirm(cap: &mut Cap, seq: u32, caps: u32) {
    cap.shown.retain(|(at, _)| *at > seq);
    if seq == cap.last_sent {
        cap.issued &= caps | cap::PIN;
        cap.pending &= caps | cap::PIN;
    } else {
        let unheard = cap.shown.iter().fold(0, |bits, (_, b)| bits | b);
        cap.issued = (cap.issued & (caps | cap::PIN | unheard)) | cap.pending;
    }
    if cap.issued & !cap.pending == 0 {
        cap.revoked_at = None;
    }
}

fn session_may_write(m: &Machine, client: ClientId, inode: &Inode, message: &MClientCaps) -> bool {
    let by = match message.caller_uid {
        u32::MAX => (0, 0),
        uid => (uid, message.caller_gid),
    };
    m.may_flush(client, inode, by)
}

/// A whole number of stripes.
fn round_up(size: u64, inode: &Inode) -> u64 {
    let set = u64::from(inode.layout.stripe_count).max(1) * u64::from(inode.layout.object_size).max(1);
    size.div_ceil(set).saturating_mul(set)
}

fn room_for(inode: &Inode, size: u64) -> u64 {
    let more = 1024 * u64::from(inode.layout.object_size).max(1);
    let room = (2 * (size + 1)).min(size + more);
    round_up(room, inode)
}

fn body_of(inode: &Inode, c: &Cap) -> CapBody {
    CapBody {
        size: inode.size,
        max_size: if c.pending & cap::FW != 0 {
            inode.max_size
        } else {
            0
        },
        truncate_size: inode.truncate_size,
        truncate_seq: inode.truncate_seq,
        mtime: inode.mtime,
        atime: inode.atime,
        ctime: inode.ctime,
        layout: inode.layout,
        time_warp_seq: inode.time_warp_seq,
    }
}

/// Only what the dirty bits name is valid.
fn apply_dirty(i: &mut Inode, m: &MClientCaps) {
    let b = &m.body;
    if m.dirty & (cap::FW | cap::FX | cap::FB) != 0 && i.is_file() {
        if b.size > i.size && b.truncate_seq >= i.truncate_seq {
            i.untold.bytes += b.size as i64 - i.size as i64;
            i.size = b.size;
        }
        i.mtime = i.mtime.max(b.mtime);
    }
    if m.dirty & cap::FX != 0 && b.time_warp_seq >= i.time_warp_seq {
        (i.mtime, i.atime) = (b.mtime, b.atime);
    }
    if m.dirty & cap::AX != 0 {
        (i.uid, i.gid, i.btime) = (m.uid, m.gid, m.btime);
        i.mode = i.mode & crate::row::S_IFMT | m.mode & 0o7777;
    }
    if m.dirty & cap::XX != 0
        && m.xattr_version > i.xattr_version
        && let Some(xattrs) = &m.xattrs
    {
        i.xattrs = xattrs.clone();
        i.xattr_version = m.xattr_version;
    }
    i.time_warp_seq = i.time_warp_seq.max(b.time_warp_seq);
    i.ctime = i.ctime.max(b.ctime);
    i.change_attr = i.change_attr.max(m.change_attr);
    i.untold.ctime = i.untold.ctime.max(i.ctime);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_message_does_not_give_up_what_was_shown_behind_it() {
        let mut cap = Cap {
            issued: cap::FS | cap::FR | cap::PIN,
            pending: cap::FS | cap::FR | cap::PIN,
            last_sent: 1,
            ..Cap::default()
        };
        // The client gives both up by itself; on the way that meets an answer with Fs, and what asks it back.
        cap.pending = cap::FS | cap::PIN;
        cap.last_sent = 2;
        cap.show();
        cap.pending = cap::PIN;
        cap.last_sent = 3;
        confirm(&mut cap, 1, cap::PIN);
        assert_eq!(cap.issued, cap::FS | cap::PIN);
        confirm(&mut cap, 3, cap::PIN);
        assert_eq!((cap.issued, cap.shown.len()), (cap::PIN, 0));
    }

    #[test]
    fn what_a_silent_client_was_shown_is_bounded_and_not_forgotten() {
        let mut cap = Cap::default();
        for (n, bit) in [cap::FS, cap::FR, cap::FC].iter().cycle().take(1000).enumerate() {
            cap.last_sent = n as u32;
            (cap.pending, cap.issued) = (*bit, cap.issued | bit);
            cap.show();
        }
        assert!(cap.shown.len() <= 16);
        cap.pending = 0;
        confirm(&mut cap, 5, cap::PIN);
        assert_eq!(cap.issued, cap::FS | cap::FR | cap::FC);
    }
}
