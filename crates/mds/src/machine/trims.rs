//! A snapshot is gone: versions that it was the last to show go, or become those of the one before.
//!
//! A job ([`crate::row::job::TRIM`]) from the transaction that removes the snapshot on; one at a time, some versions in a step, so that it goes
//! on where it was after a restart. At its end the data pools are told, and OSDs remove what only that snapshot needed.

use super::parts::trim::Trim;
use super::{Effect, Machine, Tx};
use crate::place;
use crate::row::{Inode, Job, Key, Row, job};
use bytes::Bytes;
use std::collections::BTreeMap;

/// Versions of one transaction.
const STEP: usize = 64;

impl Machine {
    /// False: another one is under way.
    pub(crate) fn begin_trim(&mut self, id: u64, snap: u64) -> bool {
        if self.trim.is_some() {
            return false;
        }
        self.trim = Some(Trim {
            job: id,
            snap,
            shard: 0,
            after: place::olds_of(snap),
            at: None,
            reading: false,
            ending: false,
        });
        true
    }

    pub(crate) fn listed_olds(&mut self, snap: u64, keys: Vec<Bytes>, end: bool) {
        let Some(trim) = self.trim.as_mut().filter(|t| t.snap == snap) else {
            return;
        };
        trim.reading = false;
        trim.at = None;
        match (end, keys.last()) {
            (false, Some(last)) => trim.after = last.clone(),
            _ => {
                trim.shard += 1;
                trim.after = place::olds_of(snap);
            }
        }
        for key in keys.iter().filter_map(place::parse_old) {
            self.table.fill(key, Some(Row::Mark));
        }
    }

    /// A step, if what it needs is in memory.
    pub(crate) fn go_on_trimming(&mut self) {
        let Some(trim) = self.trim.as_ref().filter(|t| !t.reading && !t.ending) else {
            return;
        };
        if self.wb.is_full() || self.state != crate::membership::MdsState::Active {
            return;
        }
        let (snap, shard, after) = (trim.snap, trim.shard, trim.after.clone());
        let batch = self.table.olds(snap, trim.at.as_ref(), STEP);
        if let Some(last) = batch.last().cloned() {
            let missing: Vec<Key> = batch.iter().flat_map(|k| self.needed_to_trim(k)).collect();
            if !missing.is_empty() {
                return self.prefetch(missing);
            }
            self.trim_step(&batch);
            if let Some(t) = &mut self.trim {
                t.at = Some(last);
            }
            return;
        }
        let Some(trim) = &mut self.trim else { return };
        if shard < place::OLDS {
            trim.reading = true;
            self.push(Effect::Olds { snap, shard, after });
            return;
        }
        trim.ending = true;
        let (id, pools) = (trim.job, self.place.data_pools.clone());
        self.push(Effect::DropSnap { id, snap, pools });
    }

    fn needed_to_trim(&self, key: &Key) -> Vec<Key> {
        let Key::Old { snap, ino, .. } = key else {
            return Vec::new();
        };
        let live = Key::inode(*ino);
        if !self.table.contains(&live) {
            return vec![live];
        }
        let Some(inode) = self.cached(*ino) else {
            return Vec::new();
        };
        let mut needed = self.missing_above(&inode);
        needed.extend(version_of(key, *snap).filter(|k| !self.table.contains(k)));
        needed
    }

    fn trim_step(&mut self, batch: &[Key]) {
        let mut tx = Tx::default();
        let mut changed: BTreeMap<u64, Inode> = BTreeMap::new();
        for key in batch {
            self.trim_version(&mut tx, key, &mut changed);
            tx.remove(key.clone());
        }
        for (_, inode) in changed {
            let left = !inode.kept.olds.is_empty() || inode.kept.old_names > 0;
            if !inode.kept.dead || left {
                tx.versions
                    .insert(inode.ino, (inode.kept.olds.clone(), inode.first));
                tx.inode(inode);
                continue;
            }
            tx.remove(Key::inode(inode.ino));
            if inode.is_dir() {
                let purge = Job {
                    kind: job::PURGE_DIR,
                    ino: inode.ino,
                    bits: inode.bits,
                    split: inode.split,
                    ..Job::default()
                };
                self.new_job(&mut tx, purge);
            }
        }
        self.commit(tx);
        self.start_jobs();
    }

    fn trim_version(&mut self, tx: &mut Tx, key: &Key, changed: &mut BTreeMap<u64, Inode>) {
        let Key::Old { snap, ino, name, .. } = key else {
            return;
        };
        let (Some(version), Some(inode)) = (version_of(key, *snap), self.cached(*ino)) else {
            // The inode has gone with all that belonged to it.
            version_of(key, *snap).into_iter().for_each(|k| tx.remove(k));
            return;
        };
        let row = self.table.peek(&version).cloned();
        let first = match &row {
            Some(Row::Inode(i)) => i.first,
            Some(Row::Dentry(d)) => d.first,
            _ => *snap,
        };
        let covering = self.covering_or_all(&inode);
        let before = covering.range(first..*snap).next_back().copied();
        let inode = changed.entry(*ino).or_insert_with(|| Inode::clone(&inode));
        let was_there = row.is_some();
        tx.remove(version);
        if let (Some(before), Some(row)) = (before, row) {
            tx.put(version_of(key, before).unwrap_or_else(|| key.clone()), row);
            tx.put(listed(key, before), Row::Mark);
        }
        if name.is_empty() {
            let moved = before.filter(|_| was_there);
            inode.kept.olds.retain(|(_, last)| last != snap);
            inode.kept.olds.extend(moved.map(|last| (first, last)));
            inode.kept.olds.sort_unstable();
        } else if before.is_none() && was_there {
            inode.kept.old_names = inode.kept.old_names.saturating_sub(1);
        }
    }
}

/// The row of the version, were `snap` its last snapshot.
fn version_of(key: &Key, snap: u64) -> Option<Key> {
    let Key::Old { ino, hash, name, .. } = key else {
        return None;
    };
    Some(match name.is_empty() {
        true => Key::version(*ino, snap),
        false => Key::Dentry {
            dir: *ino,
            hash: *hash,
            name: name.clone(),
            snap,
        },
    })
}

fn listed(key: &Key, last: u64) -> Key {
    let mut key = key.clone();
    if let Key::Old { snap, .. } = &mut key {
        *snap = last;
    }
    key
}
