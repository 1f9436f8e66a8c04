//! Copy on write: what a snapshot shows stays as it was when that changes.
//!
//! Vocabulary: a snapshot *covers* an inode if it may be seen in it: it is one of the inode, or of a directory above it since the inode is
//! below that, or of one that it was below before (`past_snaps`). A *version* is how an inode or a name was, from its `first` up to a last
//! snapshot, under which its row lies; the row of now has the rest.
//!
//! Invariants: [`Machine::keep_versions`] sees every transaction, so that nothing can change without leaving its version; where
//! directories above are not in memory every snapshot counts as covering, which keeps too much and never too little. Each version has one
//! row [`Key::Old`] under its last snapshot, so that the removal of a snapshot finds all that it was the last to show.
//!
//! Not here: what snapshots show (`requests::snapshots`), versions that go (`trims`).

use super::{Machine, Tx};
use crate::row::{Inode, Key, NOSNAP, Row, Sums};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

type Links = [(u64, Bytes)];
/// What [`Tx::versions`] has of an inode.
type Begun = BTreeMap<u64, (Vec<(u64, u64)>, u64)>;

impl Machine {
    /// Snapshots that may show what is in these directories; None: not all above is in memory.
    fn covering_links(&self, links: &Links, since: u64) -> Option<BTreeSet<u64>> {
        let mut all = BTreeSet::new();
        let mut seen = BTreeSet::new();
        let mut todo: Vec<(u64, u64)> = links.iter().map(|(dir, _)| (*dir, since)).collect();
        while let Some((dir, since)) = todo.pop() {
            if !seen.insert((dir, since)) {
                continue;
            }
            let inode = self.cached(dir)?;
            all.extend(self.own_covering(&inode).filter(|s| *s >= since));
            let since = since.max(inode.kept.since);
            todo.extend(inode.links.iter().map(|(above, _)| (*above, since)));
        }
        Some(all)
    }

    fn own_covering<'a>(&'a self, inode: &'a Inode) -> impl Iterator<Item = u64> + 'a {
        let all = inode.snaps.keys().chain(&inode.past_snaps).copied();
        all.filter(|s| self.snaps.contains_key(s))
    }

    pub(crate) fn covering(&self, inode: &Inode) -> Option<BTreeSet<u64>> {
        let mut all = self.covering_links(&inode.links, inode.kept.since)?;
        all.extend(self.own_covering(inode));
        Some(all)
    }

    /// The same; every snapshot where not all above is in memory.
    pub(crate) fn covering_or_all(&self, inode: &Inode) -> BTreeSet<u64> {
        let all = || self.snaps.keys().copied().collect();
        self.covering(inode).unwrap_or_else(all)
    }

    /// Directories above, by all names, that are not in memory.
    pub(crate) fn missing_above(&self, inode: &Inode) -> Vec<Key> {
        let mut seen = BTreeSet::new();
        self.missing_above_but(inode, &mut seen)
    }

    /// `seen`: directories that were looked at before.
    pub(crate) fn missing_above_but(&self, inode: &Inode, seen: &mut BTreeSet<u64>) -> Vec<Key> {
        let mut missing = Vec::new();
        let mut todo: Vec<u64> = inode.links.iter().map(|(dir, _)| *dir).collect();
        while let Some(dir) = todo.pop() {
            if !seen.insert(dir) {
                continue;
            }
            match self.cached(dir) {
                Some(above) => todo.extend(above.links.iter().map(|(d, _)| *d)),
                None if self.table.contains(&Key::inode(dir)) => {}
                None => missing.push(Key::inode(dir)),
            }
        }
        missing
    }

    /// The newest snapshot between `first` and `limit` that shows it.
    fn newest_covering(&self, inode: &Inode, first: u64, limit: u64) -> Option<u64> {
        if first > limit {
            return None;
        }
        self.snaps.range(first..=limit).next()?;
        let all = self.covering_or_all(inode);
        all.range(first..=limit).next_back().copied()
    }

    /// Adds to a transaction what snapshots need of what it changes.
    pub(crate) fn keep_versions(&mut self, tx: &mut Tx) {
        if self.snaps.is_empty() && tx.versions.is_empty() {
            return;
        }
        let mut more = Vec::new();
        let mut old_names: BTreeMap<u64, u64> = BTreeMap::new();
        let mut begun: Begun = std::mem::take(&mut tx.versions);
        for (key, change) in &mut tx.changes {
            match key {
                Key::Inode { ino, snap: NOSNAP } => {
                    let limit = tx.follows.get(ino).copied().unwrap_or(NOSNAP);
                    self.keep_inode_version(*ino, change, limit, &mut begun, &mut more);
                }
                Key::Dentry {
                    dir,
                    hash,
                    name,
                    snap: NOSNAP,
                } if self.keep_name_version((*dir, *hash, name), change, &mut more) => {
                    *old_names.entry(*dir).or_default() += 1;
                }
                _ => {}
            }
        }
        tx.changes.append(&mut more);
        for (dir, n) in old_names {
            self.count_old_names(tx, dir, n);
        }
    }

    fn keep_inode_version(
        &self,
        ino: u64,
        change: &mut Option<Row>,
        limit: u64,
        begun: &mut Begun,
        more: &mut Vec<(Key, Option<Row>)>,
    ) {
        let Some(old) = self.cached(ino).filter(|o| !o.kept.dead) else {
            return;
        };
        let begun = begun
            .entry(ino)
            .or_insert_with(|| (old.kept.olds.clone(), old.first));
        let changed = match change {
            Some(Row::Inode(new)) => !shows_same(&old, new),
            _ => true,
        };
        if changed && let Some(last) = self.newest_covering(&old, begun.1, limit) {
            more.push(version_row(&old, begun.1, last));
            more.push((Key::old_inode(ino, last), Some(Row::Mark)));
            begun.0.push((begun.1, last));
            begun.1 = last + 1;
        }
        let left = |inode: &mut Inode| {
            inode.kept.born = old.born();
            (inode.kept.olds, inode.first) = begun.clone();
        };
        match change {
            Some(Row::Inode(new)) => {
                let new = Arc::make_mut(new);
                left(new);
                self.keep_past(&old, new);
            }
            _ if !begun.0.is_empty() || old.kept.old_names > 0 => {
                let mut rest = Inode::clone(&old);
                left(&mut rest);
                rest.past_snaps = self.covering_or_all(&old).into_iter().collect();
                rest.links.clear();
                (rest.nlink, rest.untold) = (0, Sums::default());
                rest.kept.dead = true;
                *change = Some(Row::Inode(Arc::new(rest)));
            }
            _ => {}
        }
    }

    /// Where it was before it had other names.
    fn keep_past(&self, old: &Inode, new: &mut Inode) {
        new.past_snaps.retain(|s| self.snaps.contains_key(s));
        if same_dirs(&old.links, &new.links) {
            return;
        }
        let before = self.covering_links(&old.links, old.kept.since);
        let after = self.covering_links(&new.links, new.kept.since);
        if before == after && before.is_some() {
            return;
        }
        new.past_snaps = self.covering_or_all(old).into_iter().collect();
        new.past_snaps.retain(|s| !new.snaps.contains_key(s));
        new.kept.since = self.counters.last_snap + 1;
    }

    /// True: there is a version more.
    fn keep_name_version(
        &self,
        (dir, hash, name): (u64, u32, &Bytes),
        change: &Option<Row>,
        more: &mut Vec<(Key, Option<Row>)>,
    ) -> bool {
        let key = |snap| Key::Dentry {
            dir,
            hash,
            name: name.clone(),
            snap,
        };
        let Some(Row::Dentry(old)) = self.table.peek(&key(NOSNAP)) else {
            return false;
        };
        let same = matches!(change, Some(Row::Dentry(new)) if new.ino == old.ino && new.first == old.first);
        let Some(inode) = self.cached(dir).filter(|_| !same) else {
            return false;
        };
        let Some(last) = self.newest_covering(&inode, old.first, NOSNAP) else {
            return false;
        };
        more.push((key(last), Some(Row::Dentry(*old))));
        let listed = Key::Old {
            snap: last,
            ino: dir,
            hash,
            name: name.clone(),
        };
        more.push((listed, Some(Row::Mark)));
        true
    }

    fn count_old_names(&self, tx: &mut Tx, dir: u64, n: u64) {
        let changed = tx.changes.iter_mut().rev().find_map(|(key, row)| match row {
            Some(Row::Inode(inode)) if *key == Key::inode(dir) => Some(inode),
            _ => None,
        });
        if let Some(inode) = changed {
            Arc::make_mut(inode).kept.old_names += n;
        } else if let Some(inode) = self.cached(dir) {
            let mut inode = Inode::clone(&inode);
            inode.kept.old_names += n;
            tx.inode(inode);
        }
    }
}

/// The row of a version. What it has not told stays with what is now.
pub(crate) fn version_row(old: &Inode, first: u64, last: u64) -> (Key, Option<Row>) {
    let mut version = old.clone();
    version.first = first;
    version.untold = Sums::default();
    version.kept.olds = Vec::new();
    (Key::version(old.ino, last), Some(Row::Inode(Arc::new(version))))
}

fn same_dirs(a: &Links, b: &Links) -> bool {
    let dirs = |links: &Links| links.iter().map(|(d, _)| *d).collect::<BTreeSet<u64>>();
    dirs(a) == dirs(b)
}

/// Nothing differs that a snapshot shows.
fn shows_same(a: &Inode, b: &Inode) -> bool {
    let mut c = b.clone();
    (c.version, c.max_size, c.untold) = (a.version, a.max_size, a.untold);
    (c.first, c.bits, c.split, c.kept) = (a.first, a.bits, a.split, a.kept.clone());
    (c.snaps, c.past_snaps) = (a.snaps.clone(), a.past_snaps.clone());
    (c.realm_seq, c.realm_created) = (a.realm_seq, a.realm_created);
    c == *a
}
