//! READDIR: a page of names with their inodes, in the order of their hashes.

use super::{Answer, READ, Request};
use crate::machine::reply::listing;
use crate::machine::{Caching, Machine, Result, Stop};
use crate::row::{Inode, Key, NOSNAP, Row, name_hash};
use crate::table::Position;
use bytes::Bytes;
use messages::fs::{InodeStat, LeaseStat, cap, readdir_flag};
use types::Errno;

/// About what the real server sends in one page.
const BYTES_MAX: usize = 512 << 10;
/// Of an entry, besides its name.
const ENTRY_BYTES: usize = 360;
const ENTRIES_MAX: usize = 2048;

type Entry = (Bytes, LeaseStat, InodeStat);

/// Names of a page, and whether there are more.
pub(crate) struct Names {
    pub entries: Vec<(Bytes, u64)>,
    pub end: bool,
}

/// How many fit.
pub(crate) struct Limits {
    entries: usize,
    bytes: usize,
}

impl Limits {
    pub fn of(r: &Request) -> Self {
        let or = |n: u32, most: usize| match n as usize {
            0 => most,
            n => n.min(most),
        };
        Self {
            entries: or(r.m.args.u32_at(4), ENTRIES_MAX),
            bytes: or(r.m.args.u32_at(8), BYTES_MAX),
        }
    }

    /// What an entry takes of the bytes.
    pub fn cost(&self, name: &Bytes) -> usize {
        ENTRY_BYTES + name.len()
    }

    /// It is full with so much in it; one entry always fits.
    pub fn are_reached(&self, entries: usize, bytes: usize) -> bool {
        entries > 0 && (entries >= self.entries || bytes + ENTRY_BYTES > self.bytes)
    }
}

/// Where a page begins: behind a name, or at a hash.
pub(crate) fn start(r: &Request) -> Position {
    let name = &r.m.path2.path;
    if !name.is_empty() {
        return Some((name_hash(name), name.clone()));
    }
    match r.m.args.u32_at(14) & 0xff_ffff {
        0 => None,
        hash => Some((hash, Bytes::new())),
    }
}

impl Machine {
    pub(crate) fn readdir(&mut self, r: &mut Request) -> Result<Answer> {
        let at = self.at(&r.m.path.clone())?;
        if !at.inode.is_dir() {
            return Err(Errno::ENOTDIR.into());
        }
        self.check_at(r, &at, None, READ)?;
        let (from, limits) = (start(r), Limits::of(r));
        if at.snap != NOSNAP {
            return self.readdir_in_snap(&at, from, &limits);
        }
        self.realms_of(&at.inode)?;
        if from.is_none() {
            self.exact(r, &at.inode, cap::FS)?;
            self.may_lend(r, at.inode.ino)?;
        }
        let names = self.live_names(at.inode.ino, &from, &limits)?;
        let missing: Vec<Key> = names
            .entries
            .iter()
            .map(|(_, ino)| Key::inode(*ino))
            .filter(|k| !self.table.contains(k))
            .collect();
        if !missing.is_empty() {
            return Err(Stop::Load(missing));
        }
        let mut entries = self.list(r, &at.inode, names.entries)?;
        let mut answer = self.target(r, &at.inode);
        if from.is_none()
            && let Some(stat) = &mut answer.trace.target
        {
            self.lend_listing(r.client, stat);
        }
        if let Some(dir) = &answer.trace.target {
            self.lease_listed(r, dir, &mut entries);
        }
        answer.extra = listing(&entries, flags(from.is_none(), names.end));
        Ok(answer)
    }

    /// Each with a capability, so that a stat of it asks nobody, as far as there is room.
    fn list(&mut self, r: &Request, dir: &Inode, names: Vec<(Bytes, u64)>) -> Result<Vec<Entry>> {
        let realm = self.realm_cached(dir);
        let mut room = self.room_for_caps(r.client);
        let (mut entries, mut kept) = (Vec::with_capacity(names.len()), Vec::new());
        for (name, ino) in names {
            let inode = self.inode(ino)?;
            let held = self.sessions.get(r.client).is_some_and(|s| s.caps.contains(&ino));
            // The realm of one that has its own is not told with this answer.
            let gives = self.options.caching != Caching::Nothing
                && (held || room > 0)
                && self.realm_cached(&inode) == realm;
            room -= usize::from(gives && !held);
            let stat = self.stat_listed(r, &inode, gives);
            if gives && inode.is_dir() && stat.cap.caps & cap::FS == 0 {
                kept.push(ino);
            }
            entries.push((name, LeaseStat::default(), stat));
        }
        // Who was alone with it is not any more.
        kept.into_iter().for_each(|ino| self.settle(ino));
        Ok(entries)
    }

    /// Where the directory's names cannot be trusted together: each for a while.
    fn lease_listed(&mut self, r: &Request, dir: &InodeStat, entries: &mut [Entry]) {
        for (name, lease, stat) in entries {
            if stat.cap.caps != 0 {
                let inode = self.cached(stat.ino);
                *lease = self.lease(r, dir, name, inode.as_deref());
            }
        }
    }

    /// A page of names that are in memory; what is missing is read first.
    fn live_names(&mut self, dir: u64, from: &Position, limits: &Limits) -> Result<Names> {
        let inode = self.inode(dir)?;
        let Some(known) = self.table.known_around(dir, from) else {
            return Err(Stop::Page(Self::page_of(&inode, from)));
        };
        let mut names = Names {
            entries: Vec::new(),
            end: known.to.is_none(),
        };
        let mut bytes = 0;
        for (key, row) in self.table.names(dir, from) {
            let (Key::Dentry { hash, name, snap, .. }, Row::Dentry(d)) = (key, row) else {
                continue;
            };
            if *snap != NOSNAP {
                continue;
            }
            let place = Some((*hash, name.clone()));
            if known.to.is_some() && place > known.to {
                break;
            }
            if limits.are_reached(names.entries.len(), bytes) {
                names.end = false;
                return Ok(names);
            }
            bytes += ENTRY_BYTES + name.len();
            names.entries.push((name.clone(), d.ino));
        }
        match known.to {
            Some(to) if names.entries.is_empty() => Err(Stop::Page(Self::page_of(&inode, &Some(to)))),
            _ => Ok(names),
        }
    }
}

pub(crate) fn flags(begin: bool, end: bool) -> u16 {
    let mut flags = readdir_flag::HASH_ORDER | readdir_flag::OFFSET_HASH;
    if end {
        flags |= readdir_flag::FRAG_END;
    }
    if begin && end {
        flags |= readdir_flag::FRAG_COMPLETE;
    }
    flags
}
