//! What a client of the tests takes for true without asking, as real ones do: attributes by its capabilities, names by Fs of their
//! directory, or by leases. [`World::stale`] finds what is not true any more.

use super::world::World;
use crate::machine::Machine;
use crate::membership::MdsState;
use crate::row::{Inode, Key, NOSNAP, Row, S_IFMT};
use bytes::Bytes;
use messages::fs::{
    CapRecord, InodeStat, LeaseStat, MClientCaps, MClientReply, MClientRequest, Xattrs, cap, op, readdir_flag,
};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use types::Utime;

/// Each group of attributes as it was last told.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Seen {
    auth: (u32, u32, u32),
    links: u32,
    xattrs: Option<Xattrs>,
    file: (u64, Utime, u64, u64),
    /// By who has all of them.
    ctime: Utime,
}

#[derive(Debug, Default)]
pub struct Cache {
    seen: BTreeMap<u64, Seen>,
    /// None: there is no such name.
    names: BTreeMap<(u64, Bytes), Option<u64>>,
    /// Of these directories all names are known.
    complete: BTreeSet<u64>,
    /// Names by leases, and until when.
    leased: BTreeMap<(u64, Bytes), (Option<u64>, Duration)>,
}

const ALL: u32 = cap::AS | cap::LS | cap::XS | cap::FS;

/// Entries of a listing, and its flags.
pub fn entries(reply: &MClientReply) -> (Vec<(Bytes, InodeStat)>, u16) {
    let (all, flags) = leased_entries(reply);
    (
        all.into_iter().map(|(name, _, stat)| (name, stat)).collect(),
        flags,
    )
}

fn leased_entries(reply: &MClientReply) -> (Vec<(Bytes, LeaseStat, InodeStat)>, u16) {
    if reply.op != op::READDIR || reply.result != 0 || reply.extra.is_empty() {
        return (Vec::new(), 0);
    }
    let mut r = denc::Reader::new(reply.extra.clone());
    let _: messages::fs::DirStat = r.get().unwrap();
    let n = r.u32().unwrap();
    let flags = r.u16().unwrap();
    let mut all = Vec::new();
    for _ in 0..n {
        let name = r.blob().unwrap();
        let lease: LeaseStat = r.get().unwrap();
        let stat: InodeStat = r.get().unwrap();
        if stat.snapid == NOSNAP {
            all.push((name, lease, stat));
        }
    }
    (all, flags)
}

impl Cache {
    pub fn see_stat(&mut self, s: &InodeStat) {
        let seen = Seen {
            auth: (s.mode, s.uid, s.gid),
            links: s.nlink,
            xattrs: s.xattrs.clone(),
            file: (s.size, s.mtime, s.files, s.subdirs),
            ctime: s.ctime,
        };
        self.seen.insert(s.ino, seen);
    }

    pub fn see_caps(&mut self, m: &MClientCaps) {
        let Some(seen) = self.seen.get_mut(&m.ino) else {
            return;
        };
        seen.auth = (m.mode, m.uid, m.gid);
        seen.links = m.nlink;
        seen.file = (m.body.size, m.body.mtime, m.files, m.subdirs);
        seen.ctime = m.body.ctime;
        if let Some(xattrs) = &m.xattrs {
            seen.xattrs = Some(xattrs.clone());
        }
    }

    /// What was learned of names before Fs came is not trusted.
    pub fn gained(&mut self, ino: u64, had: u32, has: u32) {
        if had & cap::FS == 0 && has & cap::FS != 0 {
            self.lost(ino, 0);
        }
    }

    pub fn lost(&mut self, ino: u64, has: u32) {
        if has & cap::FS == 0 {
            self.names.retain(|(dir, _), _| *dir != ino);
            self.complete.remove(&ino);
        }
    }

    pub fn see_names(
        &mut self,
        reply: &MClientReply,
        (listed, flags): &(Vec<(Bytes, InodeStat)>, u16),
        asked: Option<&MClientRequest>,
        caps: &BTreeMap<u64, CapRecord>,
        sent: Duration,
    ) {
        self.see_leases(reply, asked, sent);
        let trusts = |dir: u64| caps.get(&dir).is_some_and(|c| c.issued & cap::FS != 0);
        let target = reply.trace.target.as_ref().map(|t| t.ino);
        if let Some(d) = &reply.trace.dentry
            && trusts(d.dir.ino)
        {
            self.names.insert((d.dir.ino, d.name.clone()), target);
        }
        if let Some(m) = asked
            && m.op == op::RENAME
            && reply.result == 0
            && trusts(m.path2.ino)
        {
            self.names.insert((m.path2.ino, m.path2.path.clone()), None);
        }
        if reply.op == op::READDIR
            && let Some(dir) = target.filter(|d| trusts(*d))
        {
            for (name, stat) in listed {
                self.names.insert((dir, name.clone()), Some(stat.ino));
            }
            if flags & readdir_flag::FRAG_COMPLETE != 0 {
                self.complete.insert(dir);
            }
        }
    }

    /// It counts from when it asked.
    fn see_leases(&mut self, reply: &MClientReply, asked: Option<&MClientRequest>, sent: Duration) {
        let target = reply.trace.target.as_ref().map(|t| t.ino);
        if let Some(m) = asked
            && m.op == op::RENAME
            && reply.result == 0
            && reply.trace.dentry.is_some()
        {
            // As 16.2 takes them for gone: the old name, and all names of what was replaced.
            let (old, new) = (
                (m.path2.ino, m.path2.path.clone()),
                (m.path.ino, m.path.path.clone()),
            );
            let replaced = self.leased.get(&new).and_then(|l| l.0);
            for (name, (ino, _)) in &mut self.leased {
                if *name == old || replaced.is_some() && *ino == replaced {
                    *ino = None;
                }
            }
        }
        if let Some(d) = &reply.trace.dentry {
            self.see_lease((d.dir.ino, d.name.clone()), target, &d.lease, sent);
        }
        for (name, lease, stat) in leased_entries(reply).0 {
            if let Some(dir) = target {
                self.see_lease((dir, name), Some(stat.ino), &lease, sent);
            }
        }
    }

    fn see_lease(&mut self, name: (u64, Bytes), ino: Option<u64>, lease: &LeaseStat, sent: Duration) {
        let until = sent + Duration::from_millis(u64::from(lease.duration_ms));
        match self.leased.get_mut(&name) {
            // One that it has goes on, whatever the name stands for now.
            Some(known) if lease.mask == 0 => known.0 = ino,
            Some(known) => *known = (ino, until.max(known.1)),
            None if lease.mask == 0 => {}
            None => drop(self.leased.insert(name, (ino, until))),
        }
    }

    /// A lease is asked back.
    pub fn end_lease(&mut self, dir: u64, name: &Bytes) {
        self.leased.remove(&(dir, name.clone()));
    }

    /// It has nothing of the directory any more.
    pub fn forget_dir(&mut self, dir: u64) {
        self.leased.retain(|(d, _), _| *d != dir);
    }

    /// What a name stands for by its lease.
    pub fn leased(&self, dir: u64, name: &str, now: Duration) -> Option<Option<u64>> {
        let known = self.leased.get(&(dir, Bytes::copy_from_slice(name.as_bytes())));
        known.filter(|(_, until)| *until > now).map(|(ino, _)| *ino)
    }

    /// Names that it trusts by leases.
    pub fn leased_names(&self, now: Duration) -> impl Iterator<Item = (u64, &Bytes)> {
        let valid = self.leased.iter().filter(move |(_, (_, until))| *until > now);
        valid.map(|((dir, name), _)| (*dir, name))
    }

    fn stale_lease(&self, m: &Machine, caps: &BTreeMap<u64, CapRecord>, now: Duration) -> Option<String> {
        let mut valid = self
            .leased
            .iter()
            .filter(|((dir, _), (_, until))| *until > now && caps.contains_key(dir));
        valid.find_map(|((dir, name), (ino, until))| {
            let live = match m.table.peek(&Key::dentry(*dir, name)) {
                Some(Row::Dentry(d)) => Some(d.ino),
                _ if m.table.is_complete(*dir) => None,
                // Not in memory.
                _ => return None,
            };
            (live != *ino).then(|| {
                format!("{name:?} of {dir:x} by a lease until {until:?}: {ino:x?}, and it is {live:x?}")
            })
        })
    }

    /// What it was told of the name; the inner None: that there is none.
    pub fn name(&self, dir: u64, name: &str) -> Option<Option<u64>> {
        let known = self.names.get(&(dir, Bytes::copy_from_slice(name.as_bytes())));
        let absent = self.complete.contains(&dir).then_some(None);
        known.copied().or(absent)
    }

    /// Mode, links and size as they were last told.
    pub fn attributes(&self, ino: u64) -> Option<(u32, u32, u64)> {
        self.seen.get(&ino).map(|s| (s.auth.0, s.links, s.file.0))
    }

    /// What it changed itself, and has not told.
    pub fn changed(&mut self, ino: u64, size: u64, mode: Option<u32>) {
        if let Some(seen) = self.seen.get_mut(&ino) {
            seen.file.0 = seen.file.0.max(size);
            seen.auth.0 = mode.map_or(seen.auth.0, |m| seen.auth.0 & S_IFMT | m);
        }
    }

    /// It was told that it has no name any more.
    pub fn is_gone(&self, ino: u64) -> bool {
        self.seen.get(&ino).is_some_and(|s| s.links == 0)
    }

    /// Names that it takes for known in the directory.
    pub fn known(&self, dir: u64) -> usize {
        self.names.keys().filter(|(d, _)| *d == dir).count()
    }

    fn stale(&self, m: &Machine, c: &CapRecord, own: bool) -> Option<String> {
        let (row, seen) = (m.cached(c.ino)?, self.seen.get(&c.ino)?);
        let now = now_of(&row);
        let bit = |bits: u32| c.issued & bits == bits;
        let is = |what: &str| {
            Some(format!(
                "{what} of {:x} with {:x}: {seen:?}, and it is {now:?}",
                c.ino, c.issued
            ))
        };
        if bit(cap::AS) && seen.auth != now.auth {
            return is("mode");
        }
        if bit(cap::LS) && seen.links != now.links {
            return is("links");
        }
        if bit(cap::XS) && seen.xattrs != now.xattrs {
            return is("xattrs");
        }
        // A change of its own that it has not heard of yet.
        if own && row.is_dir() {
            return None;
        }
        if bit(cap::FS) && seen.file != now.file {
            return is("contents");
        }
        if bit(ALL) && seen.ctime != now.ctime {
            return is("ctime");
        }
        if !bit(cap::FS) || !row.is_dir() {
            return None;
        }
        let live = |name: &Bytes| match m.table.peek(&Key::dentry(c.ino, name)) {
            Some(Row::Dentry(d)) => Some(d.ino),
            _ => None,
        };
        let all = m.table.is_complete(c.ino);
        for ((_, name), ino) in self.names.iter().filter(|((d, _), _)| *d == c.ino && all) {
            if live(name) != *ino {
                return is(&format!("the name {name:?}, {ino:x?},"));
            }
        }
        if all && self.complete.contains(&c.ino) {
            let there = m.table.names(c.ino, &None);
            for (key, _) in there {
                let Key::Dentry {
                    name, snap: NOSNAP, ..
                } = key
                else {
                    continue;
                };
                if !self.names.contains_key(&(c.ino, name.clone())) {
                    return is(&format!("that there is no {name:?}"));
                }
            }
        }
        None
    }
}

fn now_of(i: &Inode) -> Seen {
    Seen {
        auth: (i.mode, i.uid, i.gid),
        links: i.nlink,
        xattrs: Some(i.xattrs.clone()),
        file: (
            if i.is_symlink() {
                i.symlink.len() as u64
            } else {
                i.size
            },
            i.mtime,
            i.files,
            i.subdirs,
        ),
        ctime: i.ctime,
    }
}

impl World {
    /// What some client takes for true, and is not.
    pub fn stale(&self) -> Option<String> {
        if self.m.state() != MdsState::Active {
            return None;
        }
        for (id, c) in &self.clients {
            // Who was fenced hears nothing; who has lost an answer with the server asks again.
            if self.fenced.contains(id) || c.closed {
                continue;
            }
            let waits = |tid: &u64| !c.replies.contains_key(tid);
            let own = c.asked.keys().any(waits) || !c.unsafes.is_empty();
            let leased = c.cache.stale_lease(&self.m, &c.caps, self.now().monotonic);
            if let Some(what) = leased.filter(|_| !own) {
                return Some(format!("client {id}: {what}"));
            }
            for record in c.caps.values() {
                if let Some(what) = c.cache.stale(&self.m, record, own) {
                    return Some(format!("client {id}: {what}"));
                }
            }
        }
        None
    }
}
