//! Snapshots: made, removed, named, listed; and what is seen in them.
//!
//! Vocabulary: in a directory below that of which a snapshot `s` was made it is called `_s_<number of that directory>`.

use super::paths::{At, Below};
use super::readdir::{Limits, flags};
use super::{Answer, Request};
use crate::access::Wish;
use crate::machine::reply::{listing, stat_of};
use crate::machine::{Machine, Result, Stop, Tx};
use crate::row::{Dentry, Inode, Job, Key, NOSNAP, Row, SnapInfo, job, name_hash};
use crate::table::Position;
use bytes::Bytes;
use denc::{Decode, Reader};
use messages::fs::{CapStat, DirStat, InodeStat, LeaseStat, Trace, TraceDentry, cap, readdir_flag, snap_op};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use types::Errno;

/// Snapshots of one directory.
pub(crate) const SNAPS_MAX: usize = 100;
/// Of a snapshot's name: what is behind and before it in a directory below has to fit, too.
const NAME_MAX: usize = 240;
const METADATA_MAX: usize = 64 << 10;

const SNAPSHOT: Wish = Wish {
    write: true,
    policy: false,
    snapshot: true,
};

/// What nobody changes any more may be kept for ever.
const FOR_EVER: LeaseStat = LeaseStat {
    mask: 3,
    duration_ms: u32::MAX,
    seq: 0,
    alternate_name: Bytes::new(),
};

impl Machine {
    // Which there are

    /// A directory, and a name in its `.snap`.
    fn snap_place(&mut self, path: &messages::fs::FilePath) -> Result<(Arc<Inode>, Bytes)> {
        let cut = path.path.iter().rposition(|b| *b == b'/');
        let Some(cut) = cut else {
            return Err(Errno::EINVAL.into());
        };
        let above = path.path.slice(..cut);
        let dir = self.at(&messages::fs::FilePath::new(path.ino, above))?;
        Self::is_live(dir.snap)?;
        if !dir.inode.is_dir() {
            return Err(Errno::ENOTDIR.into());
        }
        Ok((dir.inode, path.path.slice(cut + 1..)))
    }

    /// Snapshots that a directory is in, and what they are called there.
    fn snaps_seen(&mut self, dir: &Inode) -> Result<BTreeMap<u64, Bytes>> {
        self.realms_of(dir)?;
        let mut seen = BTreeMap::new();
        for id in self.covering_or_all(dir) {
            if let Some(own) = dir.snaps.get(&id) {
                seen.insert(id, own.name.clone());
            } else if id >= dir.born()
                && let Some(of) = self.snaps.get(&id).copied()
            {
                let of = self.inode(of)?;
                if let Some(info) = of.snaps.get(&id) {
                    seen.insert(id, name_below(&info.name, of.ino));
                }
            }
        }
        Ok(seen)
    }

    fn snap_info(&mut self, id: u64) -> Result<SnapInfo> {
        let of = self.snaps.get(&id).copied().ok_or(Errno::ENOENT)?;
        let of = self.inode(of)?;
        Ok(of.snaps.get(&id).cloned().ok_or(Errno::ENOENT)?)
    }

    fn snap_by_name(&mut self, dir: &Inode, name: &Bytes) -> Result<u64> {
        let own = dir.snaps.iter().find(|(_, i)| i.name == *name);
        if let Some((id, _)) = own {
            return Ok(*id);
        }
        if !name.starts_with(b"_") {
            return Err(Errno::ENOENT.into());
        }
        let seen = self.snaps_seen(dir)?;
        let found = seen.into_iter().find(|(_, n)| n == name);
        Ok(found.ok_or(Errno::ENOENT)?.0)
    }

    /// A snapshot of a directory that is looked into.
    pub(crate) fn enter_snap(&mut self, at: &At, name: &Bytes) -> Result<At> {
        if at.snap != NOSNAP {
            return Err(Errno::ENOENT.into());
        }
        if !at.inode.is_dir() {
            return Err(Errno::ENOTDIR.into());
        }
        let snap = self.snap_by_name(&at.inode, name)?;
        let info = self.snap_info(snap)?;
        let below = Below {
            dir: at.inode.clone(),
            path: Vec::new(),
            info: Arc::new(info),
        };
        Ok(At {
            inode: self.inode_in_snap(at.inode.ino, snap)?,
            snap,
            below: Some(below),
        })
    }

    pub(crate) fn lssnap(&mut self, r: &mut Request) -> Result<Answer> {
        let dir = self.live(r)?;
        if !dir.is_dir() {
            return Err(Errno::ENOTDIR.into());
        }
        self.check_access(r, &dir, None, super::READ)?;
        let seen = self.snaps_seen(&dir)?;
        let (limits, last) = (Limits::of(r), r.m.path2.path.clone());
        let behind = seen.iter().find(|(_, n)| **n == last).map(|(id, _)| *id);
        let mut entries = Vec::new();
        let (mut bytes, mut end) = (0, true);
        for (id, name) in seen.range(behind.map_or(0, |b| b + 1)..) {
            if limits.are_reached(entries.len(), bytes) {
                end = false;
                break;
            }
            let info = self.snap_info(*id)?;
            let inode = match self.inode_in_snap(dir.ino, *id) {
                Err(Stop::Error(Errno::ENOENT)) => continue,
                found => found?,
            };
            bytes += limits.cost(name);
            // A name may be another snapshot's soon.
            entries.push((
                name.clone(),
                LeaseStat::default(),
                stat_in(&inode, *id, &info, true),
            ));
        }
        let mut answer = self.target(r, &dir);
        let begin = behind.is_none();
        let mut flags = if end { readdir_flag::FRAG_END } else { 0 };
        if begin && end {
            flags |= readdir_flag::FRAG_COMPLETE;
        }
        answer.extra = listing(&entries, flags);
        Ok(answer)
    }

    pub(crate) fn lookupsnap(&mut self, r: &mut Request) -> Result<Answer> {
        let (dir, name) = self.snap_place(&r.m.path.clone())?;
        self.check_access(r, &dir, None, super::READ)?;
        let at = At {
            inode: dir,
            snap: NOSNAP,
            below: None,
        };
        let at = self.enter_snap(&at, &name)?;
        Ok(self.snap_target(&at))
    }

    // Changes

    /// The directory of a request that changes its snapshots, and the name that it is about.
    fn dir_to_change(&mut self, r: &mut Request) -> Result<(Arc<Inode>, Bytes)> {
        let (dir, name) = self.snap_place(&r.m.path.clone())?;
        self.check_access(r, &dir, None, SNAPSHOT)?;
        if dir.nlink == 0 {
            return Err(Errno::ENOENT.into());
        }
        self.realms_of(&dir)?;
        Ok((dir, name))
    }

    pub(crate) fn mksnap(&mut self, r: &mut Request) -> Result<Answer> {
        let (dir, name) = self.dir_to_change(r)?;
        if !self.place.settings.allow_snaps {
            return Err(Errno::EPERM.into());
        }
        check_name(&name)?;
        if dir.snaps.values().any(|i| i.name == name) {
            return Err(Errno::EEXIST.into());
        }
        if dir.snaps.len() >= SNAPS_MAX {
            return Err(Errno::EMLINK.into());
        }
        if self.ancestors(&dir)?.iter().any(|d| d.is_subvolume) {
            return Err(Errno::EPERM.into());
        }
        let metadata = metadata_of(&r.m.data)?;
        self.load_above_held()?;
        // What was written until now is in its sums.
        self.tell_sums();
        let dir = self.inode(dir.ino)?;
        let id = self.counters.last_snap + 1;
        let info = SnapInfo {
            name,
            stamp: r.stamp(),
            metadata,
        };
        let mut tx = Tx::default();
        let new_realm = !self.realms.contains(&dir.ino);
        tx.put(Key::Snap(id), Row::Snap(dir.ino));
        let mut changed = Inode::clone(&dir);
        changed.snaps.insert(id, info.clone());
        self.change_realm(&mut tx, r, changed);
        self.commit_request(r, tx, 0);
        self.snaps.insert(id, dir.ino);
        let op = if new_realm {
            snap_op::SPLIT
        } else {
            snap_op::UPDATE
        };
        self.tell_realm(dir.ino, op);
        self.tell_many_named(id);
        let at = At {
            inode: self.inode(dir.ino)?,
            snap: id,
            below: Some(Below {
                dir,
                path: Vec::new(),
                info: Arc::new(info),
            }),
        };
        Ok(self.snap_target(&at))
    }

    pub(crate) fn rmsnap(&mut self, r: &mut Request) -> Result<Answer> {
        let (dir, name) = self.dir_to_change(r)?;
        check_name(&name)?;
        let found = dir.snaps.iter().find(|(_, i)| i.name == name);
        let id = *found.ok_or(Errno::ENOENT)?.0;
        let mut tx = Tx::default();
        tx.remove(Key::Snap(id));
        let mut changed = Inode::clone(&dir);
        changed.snaps.remove(&id);
        let trim = Job {
            kind: job::TRIM,
            ino: dir.ino,
            from: id,
            ..Job::default()
        };
        self.new_job(&mut tx, trim);
        self.change_realm(&mut tx, r, changed);
        self.commit_request(r, tx, 0);
        self.snaps.remove(&id);
        self.tell_realm(dir.ino, snap_op::DESTROY);
        self.start_jobs();
        Ok(Answer::default())
    }

    pub(crate) fn renamesnap(&mut self, r: &mut Request) -> Result<Answer> {
        let (dir, new) = self.dir_to_change(r)?;
        let (from, old) = self.snap_place(&r.m.path2.clone())?;
        if from.ino != dir.ino {
            return Err(Errno::EINVAL.into());
        }
        check_name(&old)?;
        check_name(&new)?;
        let found = dir.snaps.iter().find(|(_, i)| i.name == old);
        let id = *found.ok_or(Errno::ENOENT)?.0;
        if dir.snaps.values().any(|i| i.name == new) {
            return Err(Errno::EEXIST.into());
        }
        let mut changed = Inode::clone(&dir);
        if let Some(info) = changed.snaps.get_mut(&id) {
            info.name = new;
        }
        let mut tx = Tx::default();
        self.change_realm(&mut tx, r, changed);
        self.commit_request(r, tx, 0);
        let dir = self.inode(dir.ino)?;
        Ok(self.target(r, &dir))
    }

    /// The directory with its snapshots as they are now, under the next number.
    fn change_realm(&mut self, tx: &mut Tx, r: &Request, mut dir: Inode) {
        self.counters.last_snap += 1;
        let seq = self.counters.last_snap;
        tx.put(Key::Counters, Row::Counters(self.counters));
        if dir.realm_created == 0 {
            dir.realm_created = seq;
        }
        dir.realm_seq = seq;
        if self.realms.insert(dir.ino) {
            tx.put(Key::Realm(dir.ino), Row::Mark);
        }
        super::attributes::touched(&mut dir, r.stamp());
        tx.inode(dir);
    }

    /// Where everything lies that clients hold: who is below the new snapshot has to hear of it.
    fn load_above_held(&mut self) -> Result<()> {
        let mut seen = BTreeSet::new();
        let mut missing = Vec::new();
        for ino in self.caps.keys() {
            if let Some(inode) = self.cached(*ino) {
                missing.append(&mut self.missing_above_but(&inode, &mut seen));
            }
        }
        match missing.is_empty() {
            true => Ok(()),
            false => Err(Stop::Load(missing)),
        }
    }

    // What is seen

    /// What a client may do at a place, which may be in a snapshot.
    pub(crate) fn check_at(&mut self, r: &Request, at: &At, name: Option<&Bytes>, wish: Wish) -> Result<()> {
        let Some(below) = &at.below else {
            return self.check_access(r, &at.inode, name, wish);
        };
        let text = |b: &Bytes| String::from_utf8_lossy(b).into_owned();
        let above = match self.needs_path(r) {
            true => self.path_of(&below.dir, None)?,
            false => String::new(),
        };
        let mut parts = vec![above];
        parts.extend(below.path.iter().chain(name).map(text));
        parts.retain(|p| !p.is_empty());
        self.check_path(r, &parts.join("/"), wish)
    }

    pub(crate) fn inode_in_snap(&mut self, ino: u64, snap: u64) -> Result<Arc<Inode>> {
        let now = self.inode_opt(ino)?.ok_or(Errno::ENOENT)?;
        let version = now.kept.olds.iter().find(|(f, l)| (*f..=*l).contains(&snap));
        let Some((_, last)) = version else {
            return match !now.kept.dead && now.first <= snap {
                true => Ok(now),
                false => Err(Errno::ENOENT.into()),
            };
        };
        let key = Key::version(ino, *last);
        match self.table.get(&key) {
            Some(Some(Row::Inode(i))) => Ok(i.clone()),
            Some(_) => Err(Errno::ENOENT.into()),
            None => Err(Stop::Load(vec![key])),
        }
    }

    /// The same, when writers have said what they wrote before the snapshot.
    fn exact_in_snap(&mut self, r: &mut Request, at: &At) -> Result<At> {
        let ino = at.inode.ino;
        if at.inode.is_file() && self.is_written(ino) {
            self.withhold(r, ino, cap::FX | cap::FW | cap::FB, None)?;
        }
        Ok(At {
            inode: self.inode_in_snap(ino, at.snap)?,
            ..at.clone()
        })
    }

    fn is_written(&self, ino: u64) -> bool {
        let issued = self.caps.get(&ino).map_or(0, |ic| ic.issued());
        issued & (cap::FX | cap::FW | cap::FB) != 0
    }

    pub(crate) fn dentry_in_snap(&mut self, dir: u64, name: &Bytes, snap: u64) -> Result<Option<Dentry>> {
        let inode = self.inode_opt(dir)?.ok_or(Errno::ENOENT)?;
        let hash = name_hash(name);
        if !self.table.knows(dir, hash, name) {
            let before = Some((hash, Bytes::new()));
            return Err(Stop::Page(Self::page_of(&inode, &before)));
        }
        let mut versions = self.table.versions(dir, hash, name);
        Ok(versions.find_map(|(last, row)| shown(last, row, snap)))
    }

    pub(crate) fn lookup_in_snap(&mut self, r: &mut Request, dir: &At, name: &Bytes) -> Result<Answer> {
        let at = self.child(dir, name)?;
        let at = self.exact_in_snap(r, &at)?;
        let mut answer = self.snap_target(&at);
        answer.trace.dentry = self.snap_target(dir).trace.target.map(|stat| {
            Box::new(TraceDentry {
                dir: *stat,
                dir_stat: DirStat::whole(),
                name: name.clone(),
                lease: FOR_EVER,
            })
        });
        Ok(answer)
    }

    pub(crate) fn getattr_in_snap(&mut self, r: &mut Request, at: &At) -> Result<Answer> {
        let at = self.exact_in_snap(r, at)?;
        Ok(self.snap_target(&at))
    }

    pub(crate) fn snap_target(&mut self, at: &At) -> Answer {
        let info = at.below.as_ref().map(|b| b.info.clone()).unwrap_or_default();
        let exact = !self.is_written(at.inode.ino) || !at.inode.is_file();
        let stat = stat_in(&at.inode, at.snap, &info, exact);
        Answer {
            trace: Trace {
                dentry: None,
                target: Some(Box::new(stat)),
            },
            ..Answer::default()
        }
    }

    pub(crate) fn readdir_in_snap(&mut self, at: &At, from: Position, limits: &Limits) -> Result<Answer> {
        let (names, end) = self.names_in_snap(at, &from, limits)?;
        let info = at.below.as_ref().map(|b| b.info.clone()).unwrap_or_default();
        let (mut entries, mut missing, mut lost) = (Vec::new(), Vec::new(), Vec::new());
        for (name, ino) in names {
            match self.inode_in_snap(ino, at.snap) {
                Ok(inode) => {
                    let exact = !inode.is_file() || !self.is_written(ino);
                    entries.push((name, FOR_EVER, stat_in(&inode, at.snap, &info, exact)));
                }
                Err(Stop::Load(mut keys)) => missing.append(&mut keys),
                Err(Stop::Error(Errno::ENOENT)) => lost.push(ino),
                Err(other) => return Err(other),
            }
        }
        if !missing.is_empty() {
            return Err(Stop::Load(missing));
        }
        if let Some(first) = lost.first() {
            // One for a page, however many there are.
            let (n, snap) = (lost.len(), at.snap);
            tracing::warn!(
                "snapshot {snap} names {n} inodes that are not in it, the first of them {first:x}"
            );
        }
        let mut answer = self.snap_target(at);
        answer.extra = listing(&entries, flags(from.is_none(), end));
        Ok(answer)
    }

    /// A page of names as the snapshot shows them, and whether they are the last.
    fn names_in_snap(
        &mut self,
        at: &At,
        from: &Position,
        limits: &Limits,
    ) -> Result<(Vec<(Bytes, u64)>, bool)> {
        let dir = at.inode.ino;
        let inode = self.inode_opt(dir)?.ok_or(Errno::ENOENT)?;
        let Some(known) = self.table.known_around(dir, from) else {
            return Err(Stop::Page(Self::page_of(&inode, from)));
        };
        let mut names: Vec<(Bytes, u64)> = Vec::new();
        let mut bytes = 0;
        for (key, row) in self.table.names(dir, from) {
            let Key::Dentry { hash, name, snap, .. } = key else {
                continue;
            };
            if known.to.is_some() && Some((*hash, name.clone())) > known.to {
                break;
            }
            let again = names.last().is_some_and(|(n, _)| n == name);
            let Some(dentry) = shown(*snap, row, at.snap).filter(|_| !again) else {
                continue;
            };
            if limits.are_reached(names.len(), bytes) {
                return Ok((names, false));
            }
            bytes += limits.cost(name);
            names.push((name.clone(), dentry.ino));
        }
        match known.to {
            Some(to) if names.is_empty() => Err(Stop::Page(Self::page_of(&inode, &Some(to)))),
            to => Ok((names, to.is_none())),
        }
    }

    // As changes are made

    /// The first snapshot that may see what is made in this directory now.
    pub(crate) fn next_snap_of(&mut self, _: &Inode) -> Result<u64> {
        Ok(self.counters.last_snap + 1)
    }

    /// What is above an inode that changes is in memory, so that no more of it is kept than snapshots show.
    pub(crate) fn keep_inode(&mut self, _: &mut Tx, inode: &Inode) -> Result<()> {
        self.realms_of(inode)
    }

    pub(crate) fn keep_dentry(&mut self, _: &mut Tx, dir: &Inode, _: &Bytes) -> Result<()> {
        self.realms_of(dir)
    }

    /// The inode's row goes with its last name.
    pub(crate) fn forget_inode(&mut self, tx: &mut Tx, inode: &Inode) {
        tx.remove(Key::inode(inode.ino));
        if self.realms.remove(&inode.ino) {
            tx.remove(Key::Realm(inode.ino));
        }
    }
}

/// What a version of a name, or what it is now, is to a snapshot.
fn shown(last: u64, row: &Row, snap: u64) -> Option<Dentry> {
    match row {
        Row::Dentry(d) if d.first <= snap && snap <= last => Some(*d),
        _ => None,
    }
}

fn name_below(name: &Bytes, dir: u64) -> Bytes {
    [b"_".as_slice(), name, b"_", dir.to_string().as_bytes()]
        .concat()
        .into()
}

fn check_name(name: &Bytes) -> Result<()> {
    if name.len() > NAME_MAX {
        return Err(Errno::ENAMETOOLONG.into());
    }
    match name.is_empty() || name.starts_with(b"_") || name.contains(&0) || *name == "." || *name == ".." {
        true => Err(Errno::EINVAL.into()),
        false => Ok(()),
    }
}

fn metadata_of(data: &Bytes) -> Result<BTreeMap<String, String>> {
    if data.is_empty() {
        return Ok(BTreeMap::new());
    }
    if data.len() > METADATA_MAX {
        return Err(Errno::E2BIG.into());
    }
    let parsed = Reader::new(data.clone()).envelope(1, |_, r| BTreeMap::decode(r));
    parsed.map_err(|_| Errno::EINVAL.into())
}

/// `exact`: a client may rely on it.
fn stat_in(inode: &Inode, snap: u64, info: &SnapInfo, exact: bool) -> InodeStat {
    let mut caps = cap::PIN | cap::AS | cap::LS | cap::XS;
    if exact {
        caps |= cap::FS;
        if inode.is_file() {
            caps |= cap::FC | cap::FR;
        }
    }
    let cap = CapStat {
        caps,
        wanted: 0,
        id: 1,
        seq: 0,
        mseq: 0,
        realm: 0,
        flags: 1,
    };
    InodeStat {
        max_size: 0,
        snap_btime: info.stamp,
        snap_metadata: info.metadata.clone(),
        ..stat_of(inode, snap, cap)
    }
}
