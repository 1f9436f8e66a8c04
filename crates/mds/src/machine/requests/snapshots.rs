//! Snapshots, and the realms that clients know them and quotas by.
//!
//! Snapshots are refused so far: none can be made, so there is none to look into. Realms are those of quotas.

use super::paths::At;
use super::readdir::Limits;
use super::{Answer, Request};
use crate::machine::{Machine, Result, Tx};
use crate::row::{Dentry, Inode, Key, ROOT};
use crate::table::Position;
use bytes::Bytes;
use denc::Encode;
use messages::fs::{MClientCaps, MClientSnap, Realm, readdir_flag, snap_op};
use messages::mon::Body;
use std::sync::Arc;
use types::Errno;

/// The first sequence: of realms without snapshots.
const FIRST_SEQ: u64 = 1;

impl Machine {
    pub(crate) fn lssnap(&mut self, r: &mut Request) -> Result<Answer> {
        let inode = self.live(r)?;
        if !inode.is_dir() {
            return Err(Errno::ENOTDIR.into());
        }
        self.realms_of(&inode)?;
        let mut answer = self.target(r, &inode);
        let flags = readdir_flag::FRAG_END | readdir_flag::FRAG_COMPLETE;
        answer.extra = crate::machine::reply::listing(&[], flags);
        Ok(answer)
    }

    pub(crate) fn lookupsnap(&mut self, r: &mut Request) -> Result<Answer> {
        self.inode(r.m.path.ino)?;
        Err(Errno::ENOENT.into())
    }

    pub(crate) fn mksnap(&mut self, _: &mut Request) -> Result<Answer> {
        Err(Errno::EPERM.into())
    }

    pub(crate) fn rmsnap(&mut self, _: &mut Request) -> Result<Answer> {
        Err(Errno::ENOENT.into())
    }

    pub(crate) fn renamesnap(&mut self, _: &mut Request) -> Result<Answer> {
        Err(Errno::ENOENT.into())
    }

    pub(crate) fn snap_by_name(&mut self, _: &Inode, _: &Bytes) -> Result<u64> {
        Err(Errno::ENOENT.into())
    }

    pub(crate) fn inode_in_snap(&mut self, _: u64, _: u64) -> Result<Arc<Inode>> {
        Err(Errno::ENOENT.into())
    }

    pub(crate) fn dentry_in_snap(&mut self, _: u64, _: &Bytes, _: u64) -> Result<Option<Dentry>> {
        Ok(None)
    }

    pub(crate) fn snap_dentry(&mut self, _: &At, _: &Bytes, at: &At) -> Answer {
        self.snap_target(at)
    }

    pub(crate) fn snap_target(&mut self, _: &At) -> Answer {
        Answer::default()
    }

    pub(crate) fn readdir_in_snap(&mut self, _: &At, _: Position, _: &Limits) -> Result<Answer> {
        Err(Errno::ENOENT.into())
    }

    /// What snapshots have of an inode is kept before it changes.
    pub(crate) fn keep_inode(&mut self, _: &mut Tx, _: &Inode) -> Result<()> {
        Ok(())
    }

    pub(crate) fn keep_dentry(&mut self, _: &mut Tx, _: &Inode, _: &Bytes) -> Result<()> {
        Ok(())
    }

    pub(crate) fn keep_for_snaps(&mut self, _: &mut Tx, _: &Inode, _: u64) {}

    pub(crate) fn flush_snap(&mut self, _: u64, _: &MClientCaps, _: u64) {}

    /// The first snapshot that may see what is made in this directory now.
    pub(crate) fn next_snap_of(&mut self, _: &Inode) -> Result<u64> {
        Ok(FIRST_SEQ + 1)
    }

    /// The inode's row goes with its last name.
    pub(crate) fn forget_inode(&mut self, tx: &mut Tx, inode: &Inode) {
        tx.remove(Key::inode(inode.ino));
        if self.realms.remove(&inode.ino) {
            tx.remove(Key::Realm(inode.ino));
        }
    }

    pub(crate) fn leave_realm(&mut self, _: &mut Tx, _: &mut Inode, _: &Inode, _: &Inode) -> Result<()> {
        Ok(())
    }

    /// Sequence and snapshots that writes to the file's objects name.
    pub(crate) fn snap_context(&self, _: &Inode) -> (u64, Vec<u64>) {
        (0, Vec::new())
    }

    // Realms

    /// The directories above are in memory, if any realm begins somewhere.
    pub(crate) fn realms_of(&mut self, inode: &Inode) -> Result<()> {
        match self.realms.is_empty() {
            true => Ok(()),
            false => self.ancestors(inode).map(drop),
        }
    }

    /// Realms from the inode up to the root, from what is in memory.
    fn realm_chain(&self, inode: &Inode) -> Vec<Arc<Inode>> {
        let mut chain = Vec::new();
        if self.realms.is_empty() {
            return chain;
        }
        let mut at = Some(Arc::new(inode.clone()));
        while let Some(i) = at {
            if i.ino != ROOT && i.is_realm() {
                chain.push(i.clone());
            }
            at = i.parent().and_then(|p| self.cached(p));
        }
        chain
    }

    pub(crate) fn realm_cached(&self, inode: &Inode) -> u64 {
        self.realm_chain(inode).first().map_or(ROOT, |r| r.ino)
    }

    pub(crate) fn realm_blob(&mut self, ino: u64) -> Bytes {
        let chain = match self.cached(ino) {
            Some(inode) => self.realm_chain(&inode),
            None => Vec::new(),
        };
        realm_bytes(&chain)
    }

    /// Clients hear that a realm begins at this directory.
    pub(crate) fn send_split(&mut self, ino: u64) {
        let Some(inode) = self.cached(ino) else { return };
        let trace = realm_bytes(&self.realm_chain(&inode));
        for (client, split_inos) in self.held_below(ino) {
            let m = MClientSnap {
                op: snap_op::SPLIT,
                split: ino,
                split_inos,
                split_realms: Vec::new(),
                trace: trace.clone(),
            };
            self.send_counted(client, m.message(0));
        }
    }

    /// What each client holds of a realm.
    fn held_below(&self, realm: u64) -> Vec<(u64, Vec<u64>)> {
        let mut by_client: std::collections::BTreeMap<u64, Vec<u64>> = Default::default();
        for (ino, ic) in &self.caps {
            let Some(inode) = self.cached(*ino) else { continue };
            if self.realm_cached(&inode) != realm {
                continue;
            }
            for client in ic.holders.keys() {
                by_client.entry(*client).or_default().push(*ino);
            }
        }
        by_client.into_iter().collect()
    }

    /// An inode is in another realm than before.
    pub(crate) fn moved(&mut self, ino: u64) {
        let Some(inode) = self.cached(ino) else { return };
        if self.realms.is_empty() {
            return;
        }
        let realm = self.realm_cached(&inode);
        self.send_split(realm);
    }
}

fn realm_bytes(chain: &[Arc<Inode>]) -> Bytes {
    let mut w = denc::Writer::new();
    for (i, inode) in chain.iter().enumerate() {
        let realm = Realm {
            ino: inode.ino,
            created: inode.realm_created,
            parent: chain.get(i + 1).map_or(ROOT, |p| p.ino),
            parent_since: inode.realm_created,
            seq: inode.realm_seq,
            ..Realm::default()
        };
        realm.encode(&mut w);
    }
    let root = Realm {
        ino: ROOT,
        parent_since: FIRST_SEQ,
        seq: FIRST_SEQ,
        ..Realm::default()
    };
    root.encode(&mut w);
    w.finish()
}
