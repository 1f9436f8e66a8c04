//! RENAME: two names, up to two inodes and two directories in one step.

use super::create::{add_name, count, touch};
use super::names::{is_dots, told};
use super::paths::Named;
use super::{Answer, Request, WRITE};
use crate::machine::caps::NAMES;
use crate::machine::{Machine, Result, Tx, all};
use crate::row::{Dentry, Inode, Key, Row};
use bytes::Bytes;
use messages::fs::cap;
use std::collections::BTreeSet;
use std::sync::Arc;
use types::Errno;

/// All that takes part, checked.
struct Move {
    from: Named,
    to: Named,
    moved: Arc<Inode>,
    replaced: Option<Arc<Inode>>,
}

impl Machine {
    pub(crate) fn rename(&mut self, r: &mut Request) -> Result<Answer> {
        let (new, old) = (r.m.path.clone(), r.m.path2.clone());
        if new.path.is_empty() || old.path.is_empty() || is_dots(&new.path) || is_dots(&old.path) {
            return Err(Errno::EBUSY.into());
        }
        let (from, to) = (self.named_live(&old)?, self.named_live(&new)?);
        let source = from.dentry.ok_or(Errno::ENOENT)?;
        let moved = self.inode(source.ino)?;
        let replaced = to.dentry.map(|d| self.inode(d.ino)).transpose()?;
        let m = Move {
            from,
            to,
            moved,
            replaced,
        };
        self.check_access(r, &m.from.dir.inode, Some(&m.from.name), WRITE)?;
        self.check_access(r, &m.to.dir.inode, Some(&m.to.name), WRITE)?;
        if m.replaced.as_ref().is_some_and(|i| i.ino == m.moved.ino) {
            // Two names of one inode: nothing happens. A client takes the old one for gone, as long as it trusts its directory.
            let (from, to) = (m.from.dir.inode.ino, m.to.dir.inode.ino);
            all([
                self.withhold(r, from, NAMES, None),
                self.withhold(r, to, NAMES, None),
                self.take_names(r, &[(from, &m.from.name), (to, &m.to.name)], None),
            ])?;
            return self.named_answer(r, m.to.dir.inode.ino, &m.to.name, Some(m.moved.ino));
        }
        self.check_move(&m)?;
        self.realms_of(&m.moved)?;
        self.realms_of(&m.to.dir.inode)?;
        self.give_back(r, &m)?;
        let answer = self.carry_out_move(r, &m)?;
        // What others ask for below a directory looks at what is above, and may have been answered before: it would be said again behind this.
        // And a client takes other names of a replaced file for gone when it lets go of the request, which is when it is told that
        // this is durable: behind an early answer it would have begun to trust their directories again.
        let has_names = m.replaced.as_ref().is_some_and(|i| i.nlink > 1);
        if m.moved.is_dir() || has_names {
            self.early.made = self.tx;
        }
        Ok(answer)
    }

    fn check_move(&mut self, m: &Move) -> Result<()> {
        if m.moved.is_dir() {
            let above = self.ancestors(&m.to.dir.inode)?;
            let inside = m.to.dir.inode.ino == m.moved.ino || above.iter().any(|d| d.ino == m.moved.ino);
            if inside {
                return Err(Errno::EINVAL.into());
            }
        }
        if let Some(target) = &m.replaced {
            match (m.moved.is_dir(), target.is_dir()) {
                (true, false) => return Err(Errno::ENOTDIR.into()),
                (false, true) => return Err(Errno::EISDIR.into()),
                (true, true) => self.check_empty(target)?,
                (false, false) => {}
            }
        }
        if m.from.dir.inode.ino != m.to.dir.inode.ino {
            self.same_quota_root(&m.moved, &m.to.dir.inode)?;
        }
        Ok(())
    }

    fn give_back(&mut self, r: &mut Request, m: &Move) -> Result<()> {
        // A client takes the other names of a replaced file for gone, as long as it trusts a directory without a pause.
        let pause = m.replaced.as_ref().filter(|i| i.nlink > 1);
        let keeps = pause.is_none().then_some(r.client);
        let (from, to) = (m.from.dir.inode.ino, m.to.dir.inode.ino);
        // The answer shows the one that the name is in now; what the other is like is not known to the client either.
        let dirs = all([
            self.withhold(r, from, NAMES, keeps.filter(|_| from == to)),
            self.withhold(r, to, NAMES, keeps),
        ]);
        let mut names = vec![(from, &m.from.name), (to, &m.to.name)];
        names.extend(pause.iter().flat_map(|i| i.links.iter().map(|l| (l.0, &l.1))));
        let others: BTreeSet<u64> = pause
            .into_iter()
            .flat_map(|i| i.links.iter().map(|l| l.0))
            .collect();
        let others = others
            .into_iter()
            .map(|dir| self.withhold(r, dir, NAMES, None))
            .fold(Ok(()), Result::and);
        let replaced = m.replaced.as_ref().map_or(0, |i| i.ino);
        all([
            dirs,
            others,
            self.withhold(r, m.moved.ino, cap::LS | cap::LX, None),
            match replaced {
                0 => Ok(()),
                ino => self.withhold(r, ino, cap::LS | cap::LX, None),
            },
            self.take_names(r, &names, keeps),
        ])
    }

    fn carry_out_move(&mut self, r: &mut Request, m: &Move) -> Result<Answer> {
        let stamp = r.stamp();
        let (old_dir, new_dir) = (self.inode(m.from.dir.inode.ino)?, self.inode(m.to.dir.inode.ino)?);
        let moved = self.inode(m.moved.ino)?;
        let first = self.next_snap_of(&new_dir)?;
        let mut tx = Tx::default();
        for inode in [&old_dir, &new_dir, &moved] {
            self.keep_inode(&mut tx, inode)?;
        }
        self.keep_dentry(&mut tx, &old_dir, &m.from.name)?;
        self.keep_dentry(&mut tx, &new_dir, &m.to.name)?;
        let same = old_dir.ino == new_dir.ino;
        let mut target_dir = Inode::clone(&new_dir);
        let mut unnamed = None;
        if let Some(replaced) = &m.replaced {
            let replaced = self.inode(replaced.ino)?;
            let before = self.trace(&replaced);
            let gone = self.unname(&mut tx, &mut target_dir, &replaced, &m.to.name, stamp)?;
            unnamed = Some((replaced.ino, gone, before));
        }
        let (mut inode, is_first) = renamed(&moved, (old_dir.ino, &m.from.name), (new_dir.ino, &m.to.name));
        inode.ctime = inode.ctime.max(stamp);
        inode.change_attr += 1;
        if !same {
            let mut source_dir = Inode::clone(&old_dir);
            count(&mut source_dir, &moved, -1);
            if is_first {
                let lost = told(&moved).negated();
                source_dir.sums.add(&lost);
                source_dir.untold.add(&lost);
                inode.untold = Default::default();
                add_name(&mut target_dir, &inode, stamp);
            } else {
                count(&mut target_dir, &moved, 1);
            }
            touch(&mut source_dir, stamp);
            tx.inode(source_dir);
        }
        touch(&mut target_dir, stamp);
        tx.inode(target_dir);
        let dentry = Dentry {
            ino: inode.ino,
            first,
            is_dir: inode.is_dir(),
        };
        tx.remove(Key::dentry(old_dir.ino, &m.from.name));
        tx.put(Key::dentry(new_dir.ino, &m.to.name), Row::Dentry(dentry));
        let (ino, before) = (inode.ino, self.trace(&moved));
        self.put_named(&mut tx, inode, is_first);
        self.commit_request(r, tx, 0);
        match unnamed {
            Some((replaced, true, _)) => self.aside(|m| m.purge_if_stray(replaced)),
            Some((replaced, false, before)) => self.moved(replaced, &before),
            None => {}
        }
        self.moved(ino, &before);
        self.tell_quota(old_dir.ino);
        self.tell_quota(new_dir.ino);
        self.named_answer(r, new_dir.ino, &m.to.name, Some(ino))
    }
}

/// The inode under its new name; whether it was its first one.
fn renamed(moved: &Inode, from: (u64, &Bytes), to: (u64, &Bytes)) -> (Inode, bool) {
    let mut inode = moved.clone();
    let is = |link: &(u64, Bytes), place: (u64, &Bytes)| link.0 == place.0 && link.1 == *place.1;
    let is_first = inode.links.first().is_some_and(|l| is(l, from));
    for link in inode.links.iter_mut().filter(|l| is(l, from)) {
        *link = (to.0, to.1.clone());
    }
    (inode, is_first)
}
