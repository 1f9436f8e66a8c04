//! SETXATTR, RMXATTR and GETVXATTR. Names under `ceph.` are settings: `layouts`.

use super::{Answer, READ, Request, WRITE};
use crate::machine::{Machine, Result, Tx};
use crate::row::Inode;
use bytes::Bytes;
use denc::{Encode, Writer};
use messages::fs::{cap, xattr_flag};
use types::Errno;

/// Names and values of one inode.
const TOTAL_MAX: usize = 64 << 10;

impl Machine {
    pub(crate) fn setxattr(&mut self, r: &mut Request) -> Result<Answer> {
        let name = r.m.path2.path.clone();
        let flags = r.m.args.u32_at(0);
        if name.starts_with(b"ceph.") {
            return self.set_setting(r, &name, Some(r.m.data.clone()));
        }
        if flags & (xattr_flag::REMOVE | xattr_flag::REMOVE2) != 0 {
            return self.rmxattr(r);
        }
        let value = r.m.data.clone();
        self.change_xattrs(r, |i| {
            let there = i.xattrs.contains_key(&name);
            if flags & xattr_flag::CREATE != 0 && there {
                return Err(Errno::EEXIST);
            }
            if flags & xattr_flag::REPLACE != 0 && !there {
                return Err(Errno::ENODATA);
            }
            i.xattrs.insert(name.clone(), value.clone());
            let total: usize = i.xattrs.iter().map(|(k, v)| k.len() + v.len()).sum();
            match total > TOTAL_MAX {
                true => Err(Errno::ENOSPC),
                false => Ok(()),
            }
        })
    }

    pub(crate) fn rmxattr(&mut self, r: &mut Request) -> Result<Answer> {
        let name = r.m.path2.path.clone();
        if name.starts_with(b"ceph.") {
            return self.set_setting(r, &name, None);
        }
        self.change_xattrs(r, |i| match i.xattrs.remove(&name) {
            Some(_) => Ok(()),
            None => Err(Errno::ENODATA),
        })
    }

    fn change_xattrs(
        &mut self,
        r: &mut Request,
        change: impl Fn(&mut Inode) -> std::result::Result<(), Errno>,
    ) -> Result<Answer> {
        let inode = self.live(r)?;
        self.check_access(r, &inode, None, WRITE)?;
        self.realms_of(&inode)?;
        self.withhold(r, inode.ino, cap::XS | cap::XX, None)?;
        let inode = self.inode(inode.ino)?;
        let mut changed = Inode::clone(&inode);
        change(&mut changed)?;
        changed.xattr_version += 1;
        self.commit_changed(r, &inode, changed)
    }

    /// One inode that a request changed, and its answer.
    pub(crate) fn commit_changed(&mut self, r: &mut Request, old: &Inode, changed: Inode) -> Result<Answer> {
        self.commit_changed_with(r, old, changed, Tx::default())
    }

    /// With what else is changed in the same step.
    pub(crate) fn commit_changed_with(
        &mut self,
        r: &mut Request,
        old: &Inode,
        mut changed: Inode,
        mut tx: Tx,
    ) -> Result<Answer> {
        self.keep_inode(&mut tx, old)?;
        super::attributes::touched(&mut changed, r.stamp());
        tx.inode(changed);
        self.commit_request(r, tx, 0);
        let inode = self.inode(old.ino)?;
        Ok(self.target(r, &inode))
    }

    pub(crate) fn getvxattr(&mut self, r: &mut Request) -> Result<Answer> {
        let inode = self.live(r)?;
        self.check_access(r, &inode, None, READ)?;
        let name = String::from_utf8_lossy(&r.m.path2.path).into_owned();
        let value = self.setting_text(&inode, &name)?;
        let mut w = Writer::new();
        w.envelope(1, 1, |w| Bytes::from(value).encode(w));
        Ok(Answer {
            extra: w.finish(),
            ..Answer::default()
        })
    }
}
