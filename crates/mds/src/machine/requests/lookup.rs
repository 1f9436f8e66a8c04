//! LOOKUP, GETATTR, and finding inodes by number.

use super::paths::Named;
use super::{Answer, READ, Request};
use crate::machine::{Machine, Result};
use crate::row::{Inode, NOSNAP, ROOT};
use messages::fs::{cap, request_flag};
use types::Errno;

/// Below are numbers that clients take for the server's own.
const PRIVATE_BELOW: u64 = 0x1000;

impl Machine {
    /// What the mask asks for is exact: who may change it in its cache gives it back first.
    pub(crate) fn exact(&mut self, r: &mut Request, inode: &Inode, mask: u32) -> Result<()> {
        let mut back = 0;
        for (want, holds) in [(cap::AS, cap::AX), (cap::LS, cap::LX), (cap::XS, cap::XX)] {
            if mask & want != 0 {
                back |= holds;
            }
        }
        if mask & (cap::FS | cap::FR) != 0 {
            back |= match inode.is_file() {
                true => cap::FX | cap::FW | cap::FB,
                false => cap::FX | cap::FC | cap::FR,
            };
        }
        // Most requests are answered in this turn: nothing has to be kept back for them.
        if self.have_others(r.client, inode.ino, back) {
            self.withhold(r, inode.ino, back, Some(r.client))?;
        }
        if back & cap::FW != 0 && self.probing(inode.ino) && !r.is_replay {
            // Its writer is gone, and how far it wrote has still to be found.
            return self.wait_at(r, inode.ino);
        }
        Ok(())
    }

    pub(crate) fn lookup(&mut self, r: &mut Request) -> Result<Answer> {
        let named = self.named(&r.m.path.clone())?;
        self.check_at(r, &named.dir, Some(&named.name), READ)?;
        let Some(dentry) = named.dentry else {
            return self.absent(r, &named);
        };
        if named.dir.snap != NOSNAP {
            return self.lookup_in_snap(r, &named.dir, &named.name);
        }
        let inode = self.inode(dentry.ino)?;
        self.realms_of(&inode)?;
        self.exact(r, &inode, r.m.args.u32_at(0))?;
        let inode = self.inode(dentry.ino)?;
        Ok(self.dentry_answer(r, &named.dir.inode, &named.name, Some(&inode)))
    }

    pub(crate) fn getattr(&mut self, r: &mut Request) -> Result<Answer> {
        let at = self.at(&r.m.path.clone())?;
        self.check_at(r, &at, None, READ)?;
        if at.snap != NOSNAP {
            return self.getattr_in_snap(r, &at);
        }
        self.realms_of(&at.inode)?;
        self.exact(r, &at.inode, r.m.args.u32_at(0))?;
        let inode = self.inode(at.inode.ino)?;
        Ok(self.target(r, &inode))
    }

    pub(crate) fn lookup_ino(&mut self, r: &mut Request) -> Result<Answer> {
        let ino = r.m.path.ino;
        if ino < PRIVATE_BELOW && ino != ROOT {
            return Err(Errno::ESTALE.into());
        }
        let inode = self.inode(ino)?;
        if inode.nlink == 0 {
            return Err(Errno::ESTALE.into());
        }
        self.check_access(r, &inode, None, READ)?;
        self.realms_of(&inode)?;
        let snap = r.m.args.u64_at(4);
        if snap != 0 && snap < NOSNAP - 1 {
            let at = self.inode_at(ino, snap)?;
            return Ok(self.snap_target(&at));
        }
        self.exact(r, &inode, r.m.args.u32_at(0))?;
        let inode = self.inode(ino)?;
        Ok(self.target(r, &inode))
    }

    pub(crate) fn lookup_parent(&mut self, r: &mut Request) -> Result<Answer> {
        let inode = self.live(r)?;
        if inode.ino == ROOT {
            return Err(Errno::EINVAL.into());
        }
        let parent = inode.parent().ok_or(Errno::ESTALE)?;
        let parent = self.inode(parent)?;
        self.check_access(r, &parent, None, READ)?;
        self.realms_of(&parent)?;
        Ok(self.target(r, &parent))
    }

    /// The name of an inode, in the given directory if there is one.
    pub(crate) fn lookup_name(&mut self, r: &mut Request) -> Result<Answer> {
        let inode = self.inode(r.m.path2.ino)?;
        let dir = r.m.path.ino;
        let found = inode.links.iter().find(|(d, _)| dir == 0 || *d == dir).cloned();
        let (dir, name) = found.ok_or(Errno::ENOENT)?;
        let dir = self.inode(dir)?;
        self.check_access(r, &dir, Some(&name), READ)?;
        self.realms_of(&inode)?;
        Ok(self.dentry_answer(r, &dir, &name, Some(&inode)))
    }

    /// That there is no such name is told with what lets the client trust it, where it wants that.
    fn absent(&mut self, r: &Request, named: &Named) -> Result<Answer> {
        let dir = &named.dir;
        let wants = r.m.flags & request_flag::WANT_DENTRY != 0;
        if dir.snap != NOSNAP || dir.inode.nlink == 0 || !wants || !self.gives_leases() {
            return Err(Errno::ENOENT.into());
        }
        self.realms_of(&dir.inode)?;
        let mut answer = self.dentry_answer(r, &dir.inode, &named.name, None);
        answer.result = Errno::ENOENT.code();
        Ok(answer)
    }
}
