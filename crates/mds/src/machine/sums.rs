//! What is under directories: bytes, files, subdirectories. A change is told to the directory above within a second or so; what is not
//! told yet is kept with the inode, so that nothing is lost or told twice. And quotas, which are looked at by these sums.

use super::{ClientId, Machine, Result, Tx};
use crate::row::{Inode, Key, Row, Sums};
use messages::fs::MClientQuota;
use messages::mon::Body;
use std::collections::BTreeMap;
use std::sync::Arc;
use types::Errno;

/// Inodes of one round, and rounds of one turn: a directory's depth.
const ROUND_MAX: usize = 1000;
const ROUNDS_MAX: usize = 256;

impl Machine {
    /// Tells directories above what changed below.
    pub(crate) fn tell_sums(&mut self) {
        for _ in 0..ROUNDS_MAX {
            let round: Vec<u64> = self.untold.iter().take(ROUND_MAX).copied().collect();
            self.untold.retain(|i| !round.contains(i));
            let mut changed: BTreeMap<u64, Inode> = BTreeMap::new();
            let mut later = Vec::new();
            for ino in round {
                if let Some(missing) = self.tell(ino, &mut changed) {
                    later.push(ino);
                    self.prefetch(vec![missing]);
                }
            }
            let mut tx = Tx::default();
            let told: Vec<u64> = changed.keys().copied().collect();
            changed.into_values().for_each(|inode| tx.inode(inode));
            self.commit(tx);
            self.untold.extend(later);
            for ino in &told {
                self.tell_quota_here(*ino);
            }
            if told.is_empty() {
                break;
            }
        }
    }

    /// As this round has left it, or as it is.
    fn in_round(
        &mut self,
        ino: u64,
        changed: &BTreeMap<u64, Inode>,
    ) -> std::result::Result<Option<Inode>, Key> {
        if let Some(inode) = changed.get(&ino) {
            return Ok(Some(inode.clone()));
        }
        match self.table.get(&Key::inode(ino)) {
            Some(Some(Row::Inode(i))) => Ok(Some(Inode::clone(i))),
            Some(_) => Ok(None),
            None => Err(Key::inode(ino)),
        }
    }

    /// A row that has to be read before.
    fn tell(&mut self, ino: u64, changed: &mut BTreeMap<u64, Inode>) -> Option<Key> {
        let mut inode = match self.in_round(ino, changed) {
            Ok(Some(i)) if !i.untold.is_zero() => i,
            Ok(_) => return None,
            Err(missing) => return Some(missing),
        };
        let news = std::mem::take(&mut inode.untold);
        if let Some(above) = inode.parent() {
            let mut dir = match self.in_round(above, changed) {
                Ok(Some(d)) => d,
                Ok(None) => return None,
                Err(missing) => return Some(missing),
            };
            dir.sums.add(&news);
            dir.untold.add(&news);
            if dir.parent().is_none() {
                dir.untold = Sums::default();
            }
            changed.insert(above, dir);
        }
        changed.insert(ino, inode);
        None
    }

    // Quotas

    /// The nearest directory with a quota, the inode itself included.
    pub(crate) fn quota_root(&mut self, inode: &Inode) -> Result<Option<Arc<Inode>>> {
        if self.realms.is_empty() {
            return Ok(None);
        }
        if inode.has_quota() {
            return Ok(Some(Arc::new(inode.clone())));
        }
        let above = self.ancestors(inode)?;
        Ok(above.into_iter().find(|d| d.has_quota()))
    }

    /// Clients look themselves; this is for those that do not.
    pub(crate) fn check_quota(&mut self, inode: &Inode, bytes: u64, files: i64) -> Result<()> {
        if self.realms.is_empty() {
            return Ok(());
        }
        let mut all = self.ancestors(inode)?;
        all.push(Arc::new(inode.clone()));
        for dir in all.iter().filter(|d| d.has_quota()) {
            let (q, s) = (dir.quota, dir.sums);
            let bytes_over = bytes > 0 && q.max_bytes > 0 && s.bytes + bytes as i64 > q.max_bytes;
            let files_over = files > 0 && q.max_files > 0 && s.files + s.subdirs + files > q.max_files;
            if bytes_over || files_over {
                return Err(Errno::EDQUOT.into());
            }
        }
        Ok(())
    }

    /// Nothing moves from under one quota to under another; out of all quotas it may, as subvolumes do on their way to the trash.
    pub(crate) fn same_quota_root(&mut self, inode: &Inode, dir: &Inode) -> Result<()> {
        if self.realms.is_empty() {
            return Ok(());
        }
        let above = self.ancestors(inode)?;
        let from = above.iter().find(|d| d.has_quota()).map(|d| d.ino);
        let to = self.quota_root(dir)?.map(|d| d.ino);
        let own = inode.is_dir() && inode.has_quota();
        match from == to || to.is_none() || own && from.is_none() {
            true => Ok(()),
            false => Err(Errno::EXDEV.into()),
        }
    }

    /// Holders of the quota's directory hear how full it is.
    pub(crate) fn tell_quota(&mut self, ino: u64) {
        if self.realms.is_empty() {
            return;
        }
        let Some(inode) = self.cached(ino) else { return };
        if let Ok(Some(root)) = self.quota_root(&inode) {
            self.tell_quota_here(root.ino);
        }
    }

    fn tell_quota_here(&mut self, ino: u64) {
        if self.realms.is_empty() {
            return;
        }
        if let Some(dir) = self.cached(ino).filter(|d| d.has_quota()) {
            self.send_quota(&dir);
        }
    }

    /// All who hold the directory hear of its quota, also when it has none any more.
    pub(crate) fn send_quota(&mut self, dir: &Inode) {
        let ino = dir.ino;
        let holders: Vec<ClientId> = match self.caps.get(&ino) {
            Some(ic) => ic.holders.keys().copied().collect(),
            None => return,
        };
        let m = MClientQuota {
            ino,
            rctime: dir.ctime.max(dir.sums.ctime),
            rbytes: dir.sums.bytes.max(0) as u64,
            rfiles: dir.sums.files.max(0) as u64,
            rsubdirs: dir.sums.subdirs.max(0) as u64,
            quota: dir.quota,
        };
        for client in holders {
            self.send_counted(client, m.message(0));
        }
    }
}
