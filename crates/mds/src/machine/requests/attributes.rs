//! SETATTR: mode, owner, times, size.

use super::{Answer, Request, WRITE};
use crate::machine::{Machine, Result, Tx};
use crate::row::{Inode, S_IFMT};
use messages::fs::{SetAttr, cap, setattr};
use types::{Errno, Utime};

const S_ISUID: u32 = 0o4000;
const S_ISGID: u32 = 0o2000;
const S_IXGRP: u32 = 0o010;
const S_IXUGO: u32 = 0o111;

impl Machine {
    pub(crate) fn setattr(&mut self, r: &mut Request) -> Result<Answer> {
        let inode = self.live(r)?;
        self.check_access(r, &inode, None, WRITE)?;
        let s = r.m.args.setattr();
        self.realms_of(&inode)?;
        if s.mask & setattr::SIZE != 0 {
            if inode.is_dir() {
                return Err(Errno::EISDIR.into());
            }
            if s.size > self.place.settings.max_file_size {
                return Err(Errno::EFBIG.into());
            }
            if s.size > inode.size {
                self.check_quota(&inode, s.size - inode.size, 0)?;
            }
        }
        let mut back = 0;
        if s.mask & (setattr::MODE | setattr::UID | setattr::GID | setattr::BTIME) != 0 || kills(s.mask) {
            back |= cap::AS | cap::AX;
        }
        if s.mask & (setattr::MTIME | setattr::ATIME | setattr::MTIME_NOW | setattr::ATIME_NOW) != 0 {
            back |= cap::FS | cap::FX | cap::FW | cap::FB;
        }
        if back == 0 && s.mask & setattr::SIZE == 0 {
            // Whoever has all shared capabilities trusts its times.
            back = cap::XS | cap::XX;
        }
        self.withhold(r, inode.ino, back, None)?;
        let stamp = r.stamp();
        if s.mask & setattr::SIZE != 0 && inode.is_file() {
            self.truncate(r, inode.ino, s.size, |i| apply(i, &s, stamp))?;
        } else {
            let inode = self.inode(inode.ino)?;
            let mut tx = Tx::default();
            self.keep_inode(&mut tx, &inode)?;
            let mut changed = Inode::clone(&inode);
            apply(&mut changed, &s, stamp);
            touched(&mut changed, stamp);
            tx.inode(changed);
            self.commit_request(r, tx, 0);
        }
        let inode = self.inode(inode.ino)?;
        Ok(self.target(r, &inode))
    }
}

fn kills(mask: u32) -> bool {
    mask & (setattr::KILL_SGUID | setattr::KILL_SUID | setattr::KILL_SGID) != 0
}

pub(crate) fn touched(i: &mut Inode, stamp: Utime) {
    i.ctime = i.ctime.max(stamp);
    i.change_attr += 1;
    i.untold.ctime = i.untold.ctime.max(stamp);
}

fn apply(i: &mut Inode, s: &SetAttr, stamp: Utime) {
    if s.mask & setattr::MODE != 0 {
        i.mode = i.mode & S_IFMT | s.mode & 0o7777;
    } else if s.mask & (setattr::UID | setattr::GID) != 0 && i.is_file() && i.mode & S_IXUGO != 0 {
        drop_set_ids(i, true);
    }
    if s.mask & setattr::KILL_SUID != 0 {
        i.mode &= !S_ISUID;
    }
    if s.mask & (setattr::KILL_SGUID) != 0 {
        i.mode &= !S_ISUID;
    }
    if s.mask & (setattr::KILL_SGID | setattr::KILL_SGUID) != 0 && i.mode & S_IXGRP != 0 {
        i.mode &= !S_ISGID;
    }
    if s.mask & setattr::UID != 0 {
        i.uid = s.uid;
    }
    if s.mask & setattr::GID != 0 {
        i.gid = s.gid;
    }
    if s.mask & setattr::BTIME != 0 {
        i.btime = s.btime;
    }
    let explicit = setattr::MTIME | setattr::ATIME;
    if s.mask & setattr::MTIME != 0 {
        i.mtime = s.mtime;
    } else if s.mask & setattr::MTIME_NOW != 0 {
        i.mtime = stamp;
    }
    if s.mask & setattr::ATIME != 0 {
        i.atime = s.atime;
    } else if s.mask & setattr::ATIME_NOW != 0 {
        i.atime = stamp;
    }
    if s.mask & explicit != 0 {
        i.time_warp_seq += 1;
    }
}

fn drop_set_ids(i: &mut Inode, group_too: bool) {
    i.mode &= !S_ISUID;
    if group_too && i.mode & S_IXGRP != 0 {
        i.mode &= !S_ISGID;
    }
}
