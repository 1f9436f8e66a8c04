//! Inodes and names as replies show them.

use super::{Answer, Machine, Request, Result};
use crate::row::{Inode, NOSNAP};
use bytes::Bytes;
use denc::Encode;
use messages::fs::{CapStat, DirStat, InodeStat, LeaseStat, Trace, TraceDentry, cap, op};
use std::sync::Arc;

/// The hash by which directories are ordered, as clients name it.
const DIR_HASH: u8 = 2;
/// Flag of a capability in a reply.
pub(crate) const AUTHORITY: u8 = 1;

impl Machine {
    /// As it is now, with a capability.
    pub(crate) fn stat(&mut self, r: &Request, inode: &Inode) -> InodeStat {
        // A look at a directory whose names are told one by one does not bring them all, either; a listing has to.
        let looks = matches!(r.m.op, op::GETATTR | op::LOOKUP);
        let spares = r.changes() || looks && inode.is_dir() && self.tells_by_names(r.client, inode.ino);
        self.stat_sparing(r, inode, spares)
    }

    fn stat_sparing(&mut self, r: &Request, inode: &Inode, spares: bool) -> InodeStat {
        let mut cap = self.issue(r, inode, spares);
        cap.realm = self.realm_cached(inode);
        stat_of(inode, NOSNAP, cap)
    }

    /// Of an entry of a listing; `gives`: with a capability.
    pub(crate) fn stat_listed(&mut self, r: &Request, inode: &Inode, gives: bool) -> InodeStat {
        match gives {
            true => self.stat(r, inode),
            // Said with authority, also without a capability: a client that does not believe it takes its version all the same, and then
            // takes what is said with that version for known.
            false => stat_of(
                inode,
                NOSNAP,
                CapStat {
                    flags: AUTHORITY,
                    ..CapStat::default()
                },
            ),
        }
    }

    pub(crate) fn target(&mut self, r: &Request, inode: &Inode) -> Answer {
        let stat = self.stat(r, inode);
        Answer {
            trace: Trace {
                dentry: None,
                target: Some(Box::new(stat)),
            },
            realms_of: Some(inode.ino),
            ..Answer::default()
        }
    }

    /// A name; without a target it does not exist.
    pub(crate) fn dentry_answer(
        &mut self,
        r: &Request,
        dir: &Inode,
        name: &Bytes,
        target: Option<&Arc<Inode>>,
    ) -> Answer {
        let spares = r.changes() || self.tells_by_names(r.client, dir.ino);
        let dir_stat = self.stat_sparing(r, dir, spares);
        let lease = self.lease(r, &dir_stat, name, target.map(|t| &**t));
        let target = target.map(|t| Box::new(self.stat(r, t)));
        Answer {
            realms_of: Some(target.as_ref().map_or(dir.ino, |t| t.ino)),
            trace: Trace {
                dentry: Some(Box::new(TraceDentry {
                    dir: dir_stat,
                    dir_stat: DirStat::whole(),
                    name: name.clone(),
                    lease,
                })),
                target,
            },
            ..Answer::default()
        }
    }

    /// A name and what it stands for, as both are now.
    pub(crate) fn named_answer(
        &mut self,
        r: &Request,
        dir: u64,
        name: &Bytes,
        ino: Option<u64>,
    ) -> Result<Answer> {
        let dir = self.inode(dir)?;
        let target = ino.map(|i| self.inode(i)).transpose()?;
        Ok(self.dentry_answer(r, &dir, name, target.as_ref()))
    }
}

pub(crate) fn stat_of(i: &Inode, snap: u64, cap: CapStat) -> InodeStat {
    let weight = i.weight();
    let positive = |n: i64| n.max(0) as u64;
    let writes = cap.caps & cap::FW != 0;
    InodeStat {
        ino: i.ino,
        snapid: snap,
        rdev: i.rdev,
        version: i.version,
        xattr_version: i.xattr_version,
        cap,
        layout: i.layout,
        ctime: i.ctime,
        mtime: i.mtime,
        atime: i.atime,
        time_warp_seq: i.time_warp_seq,
        size: if i.is_symlink() {
            i.symlink.len() as u64
        } else {
            i.size
        },
        max_size: if writes { i.max_size } else { 0 },
        truncate_size: i.truncate_size,
        truncate_seq: i.truncate_seq,
        mode: i.mode,
        uid: i.uid,
        gid: i.gid,
        nlink: i.nlink,
        files: i.files,
        subdirs: i.subdirs,
        rbytes: positive(weight.bytes),
        rfiles: positive(weight.files),
        rsubdirs: positive(weight.subdirs),
        rctime: i.ctime.max(i.sums.ctime),
        fragtree: Vec::new(),
        symlink: i.symlink.clone(),
        dir_hash: if i.is_dir() { DIR_HASH } else { 0 },
        xattrs: Some(i.xattrs.clone()),
        inline_version: if i.ino == crate::row::ROOT { 1 } else { u64::MAX },
        inline_data: Bytes::new(),
        quota: i.quota,
        pool_ns: i.pool_ns.clone(),
        btime: i.btime,
        change_attr: i.change_attr,
        dir_pin: if i.is_dir() { i.pin } else { -1 },
        snap_btime: types::Utime::ZERO,
        rsnaps: i.snaps.len() as u64,
        snap_metadata: Default::default(),
        fscrypt: 0,
    }
}

/// A page of names.
pub(crate) fn listing(entries: &[(Bytes, LeaseStat, InodeStat)], flags: u16) -> Bytes {
    let mut w = denc::Writer::with_capacity(entries.len() * 450 + 64);
    w.put(&DirStat::whole());
    w.u32(entries.len() as u32);
    w.u16(flags);
    for (name, lease, stat) in entries {
        w.put(name);
        w.put(lease);
        stat.encode(&mut w);
    }
    w.finish()
}
