//! LINK, UNLINK, RMDIR: names that come and go.

use super::create::{count, touch};
use super::paths::Named;
use super::{Answer, Request, WRITE};
use crate::machine::caps::NAMES;
use crate::machine::{Machine, Result, Tx, all};
use crate::row::{Dentry, Inode, Job, Key, ROOT, Row, Sums, job};
use bytes::Bytes;
use messages::fs::cap;
use std::sync::Arc;
use types::{Errno, Utime};

/// Names of one inode.
const LINKS_MAX: usize = 32_000;

impl Machine {
    pub(crate) fn link(&mut self, r: &mut Request) -> Result<Answer> {
        let named = self.named_live(&r.m.path.clone())?;
        let target = self.at(&r.m.path2.clone())?;
        Self::is_live(target.snap)?;
        let (dir, inode) = (named.dir.inode.clone(), target.inode);
        self.check_access(r, &dir, Some(&named.name), WRITE)?;
        self.check_access(r, &inode, None, WRITE)?;
        if inode.is_dir() {
            return Err(Errno::EPERM.into());
        }
        if named.dentry.is_some() {
            return Err(Errno::EEXIST.into());
        }
        if inode.nlink == 0 {
            return Err(Errno::ENOENT.into());
        }
        if inode.links.len() >= LINKS_MAX {
            return Err(Errno::EMLINK.into());
        }
        self.same_quota_root(&inode, &dir)?;
        self.check_one_more(r, &dir)?;
        self.realms_of(&inode)?;
        self.take_link(r, dir.ino, &named.name, inode.ino)?;
        let first = self.next_snap_of(&dir)?;
        let (dir, inode) = (self.inode(dir.ino)?, self.inode(inode.ino)?);
        let stamp = r.stamp();
        let before = self.trace(&inode);
        let mut tx = Tx::default();
        self.keep_inode(&mut tx, &dir)?;
        self.keep_inode(&mut tx, &inode)?;
        let mut changed = Inode::clone(&dir);
        count(&mut changed, &inode, 1);
        touch(&mut changed, stamp);
        // Its bytes count where its first name is.
        let ctime = Sums {
            ctime: stamp,
            ..Sums::default()
        };
        changed.sums.add(&ctime);
        changed.untold.add(&ctime);
        tx.inode(changed);
        let mut linked = Inode::clone(&inode);
        linked.nlink += 1;
        linked.ctime = linked.ctime.max(stamp);
        linked.change_attr += 1;
        linked.links.push((dir.ino, named.name.clone()));
        let ino = linked.ino;
        tx.inode(linked);
        let dentry = Dentry {
            ino,
            first,
            is_dir: false,
        };
        tx.put(Key::dentry(dir.ino, &named.name), Row::Dentry(dentry));
        self.commit_request(r, tx, 0);
        self.moved(ino, &before);
        self.named_answer(r, dir.ino, &named.name, Some(ino))
    }

    pub(crate) fn unlink(&mut self, r: &mut Request) -> Result<Answer> {
        let (named, inode) = self.what_goes(r)?;
        if inode.is_dir() {
            return Err(Errno::EISDIR.into());
        }
        self.remove(r, &named, &inode)
    }

    pub(crate) fn rmdir(&mut self, r: &mut Request) -> Result<Answer> {
        let (named, inode) = self.what_goes(r)?;
        if !inode.is_dir() {
            return Err(Errno::ENOTDIR.into());
        }
        self.check_empty(&inode)?;
        self.remove(r, &named, &inode)
    }

    pub(crate) fn check_empty(&self, dir: &Inode) -> Result<()> {
        match dir.files + dir.subdirs > 0 || !dir.snaps.is_empty() {
            true => Err(Errno::ENOTEMPTY.into()),
            false => Ok(()),
        }
    }

    fn what_goes(&mut self, r: &mut Request) -> Result<(Named, Arc<Inode>)> {
        let path = r.m.path.clone();
        if path.ino == ROOT && path.path.is_empty() || is_dots(&path.path) {
            return Err(Errno::EBUSY.into());
        }
        let named = self.named_live(&path)?;
        self.check_access(r, &named.dir.inode, Some(&named.name), WRITE)?;
        let dentry = named.dentry.ok_or(Errno::ENOENT)?;
        let inode = self.inode(dentry.ino)?;
        Ok((named, inode))
    }

    /// Nobody else trusts the name, or how many names the inode has.
    fn take_link(&mut self, r: &mut Request, dir: u64, name: &Bytes, ino: u64) -> Result<()> {
        all([
            self.withhold(r, dir, NAMES, Some(r.client)),
            self.withhold(r, ino, cap::LS | cap::LX, None),
            self.take_names(r, &[(dir, name)], Some(r.client)),
        ])
    }

    fn remove(&mut self, r: &mut Request, named: &Named, inode: &Arc<Inode>) -> Result<Answer> {
        let dir = named.dir.inode.ino;
        self.realms_of(&named.dir.inode)?;
        self.take_link(r, dir, &named.name, inode.ino)?;
        let (dir, inode) = (self.inode(dir)?, self.inode(inode.ino)?);
        let stamp = r.stamp();
        let mut tx = Tx::default();
        self.keep_inode(&mut tx, &dir)?;
        self.keep_dentry(&mut tx, &dir, &named.name)?;
        let mut changed = Inode::clone(&dir);
        let before = self.trace(&inode);
        let gone = self.unname(&mut tx, &mut changed, &inode, &named.name, stamp)?;
        touch(&mut changed, stamp);
        tx.inode(changed);
        tx.remove(Key::dentry(dir.ino, &named.name));
        self.commit_request(r, tx, 0);
        match gone {
            true => self.aside(|m| m.purge_if_stray(inode.ino)),
            // What is its first name now may be in another realm.
            false => self.moved(inode.ino, &before),
        }
        self.tell_quota(dir.ino);
        let dir = self.inode(dir.ino)?;
        Ok(self.dentry_answer(r, &dir, &named.name, None))
    }

    /// An inode loses a name; true: its last one. `dir` is the directory, being changed.
    pub(crate) fn unname(
        &mut self,
        tx: &mut Tx,
        dir: &mut Inode,
        inode: &Inode,
        name: &Bytes,
        stamp: Utime,
    ) -> Result<bool> {
        self.keep_inode(tx, inode)?;
        let mut left = Inode::clone(inode);
        let place = (dir.ino, name.clone());
        let was_first = left.links.first() == Some(&place);
        left.links.retain(|l| *l != place);
        left.nlink = left.nlink.saturating_sub(1);
        left.ctime = left.ctime.max(stamp);
        left.change_attr += 1;
        count(dir, inode, -1);
        let mut lost = Sums::default();
        if was_first {
            lost = told(inode).negated();
            left.untold = match left.links.is_empty() {
                true => Sums::default(),
                // Its next name's directory has not been told anything.
                false => inode.weight(),
            };
        }
        lost.ctime = stamp;
        dir.sums.add(&lost);
        dir.untold.add(&lost);
        let gone = left.nlink == 0;
        if gone {
            left.links.clear();
            tx.put(Key::Stray(left.ino), Row::Mark);
            self.strays.insert(left.ino);
        } else if was_first {
            self.mark_trace(tx, &left);
        }
        tx.inode(left);
        Ok(gone)
    }

    /// An inode without names goes when nobody uses it.
    pub(crate) fn purge_if_stray(&mut self, ino: u64) {
        if !self.strays.contains(&ino) || self.caps.contains_key(&ino) || self.reconnecting.is_some() {
            return;
        }
        let Some(inode) = self.cached(ino) else {
            self.prefetch(vec![Key::inode(ino)]);
            return;
        };
        if self.probing(ino) || self.traces.is_running(ino) {
            return;
        }
        let mut tx = Tx::default();
        self.strays.remove(&ino);
        self.writing.remove(&ino);
        tx.remove(Key::Stray(ino));
        tx.remove(Key::Writing(ino));
        self.forget_inode(&mut tx, &inode);
        self.flocks.remove(&ino);
        let (snap_seq, snaps) = self.snap_context(&inode);
        let purge = Job {
            kind: if inode.is_dir() {
                job::PURGE_DIR
            } else {
                job::PURGE
            },
            ino,
            layout: inode.layout,
            pool_ns: inode.pool_ns.clone(),
            from: inode.size.max(inode.max_size),
            snap_seq,
            snaps,
            bits: inode.bits,
            split: inode.split,
            ..Job::default()
        };
        let read_on = inode.is_dir() && inode.kept.old_names > 0;
        if (inode.is_dir() || inode.is_file()) && !read_on {
            self.new_job(&mut tx, purge);
        }
        self.commit(tx);
        self.start_jobs();
    }
}

/// What the directory above has counted of it.
pub(crate) fn told(inode: &Inode) -> Sums {
    let mut sums = inode.weight();
    sums.add(&inode.untold.negated());
    sums
}

pub(crate) fn is_dots(path: &Bytes) -> bool {
    let last = path.rsplit(|b| *b == b'/').next().unwrap_or_default();
    last == b"." || last == b".."
}
