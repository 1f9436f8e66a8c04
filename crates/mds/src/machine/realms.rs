//! Realms: by which clients know what snapshots and quotas what they hold is under.
//!
//! Vocabulary: a realm begins at a directory with snapshots or a quota, and at an inode whose snapshots are not those of its first
//! directory: one that was moved, a file with several names. A *chain* is the realms from an inode up to the root.
//!
//! Order: what a realm is now is durable before clients hear of it; a client that hears of a snapshot keeps what it has not written yet
//! for it ([`super::flush_snap`]).

use super::{Answer, ClientId, Machine, Result, Stop};
use crate::row::{Inode, ROOT};
use bytes::Bytes;
use denc::Encode;
use messages::fs::{MClientSnap, Realm, snap_op};
use messages::mon::Body;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The first sequence: of realms without snapshots.
const FIRST_SEQ: u64 = 1;

/// What one client is told of a realm.
#[derive(Debug, Default)]
struct Below {
    /// What it holds that is in the realm itself.
    inos: Vec<u64>,
    /// Realms that begin right below it.
    realms: BTreeSet<u64>,
}

impl Machine {
    fn has_realms(&self) -> bool {
        !self.realms.is_empty() || !self.snaps.is_empty()
    }

    /// The directories above are in memory, if any realm begins somewhere.
    pub(crate) fn realms_of(&mut self, inode: &Inode) -> Result<()> {
        if !self.has_realms() {
            return Ok(());
        }
        let missing = self.missing_above(inode);
        match missing.is_empty() {
            true => Ok(()),
            false => Err(Stop::Load(missing)),
        }
    }

    /// Where realms begin, from the inode up to the root, from what is in memory.
    fn realm_chain(&self, inode: &Inode) -> Vec<Arc<Inode>> {
        let mut chain = Vec::new();
        if !self.has_realms() {
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

    /// The records of the realms that an inode is in.
    pub(crate) fn trace(&self, inode: &Inode) -> Bytes {
        self.trace_since(inode, 0)
    }

    /// `created`: of the first one, at least.
    fn trace_since(&self, inode: &Inode, created: u64) -> Bytes {
        let chain = self.realm_chain(inode);
        let mut w = denc::Writer::new();
        for (i, realm) in chain.iter().enumerate() {
            let parent = chain.get(i + 1).map_or(ROOT, |p| p.ino);
            let mut record = self.record(realm, parent);
            if i == 0 {
                record.created = record.created.max(created);
            }
            record.encode(&mut w);
        }
        self.root_record().encode(&mut w);
        w.finish()
    }

    pub(crate) fn realm_blob(&mut self, ino: u64) -> Bytes {
        match self.cached(ino) {
            Some(inode) => self.trace(&inode),
            None => self.root_record().to_bytes(),
        }
    }

    /// The realms of all that an answer gives capabilities for.
    pub(crate) fn realms_told(&mut self, answer: &Answer) -> Bytes {
        let Some(ino) = answer.realms_of else {
            return Bytes::new();
        };
        let mut told = self.realm_blob(ino);
        if let Some(dir) = answer.trace.dentry.as_ref().map(|d| d.dir.ino)
            && dir != ino
            && let (Some(dir), Some(inode)) = (self.cached(dir), self.cached(ino))
            && !self.realm_chain(&dir).is_empty()
            && inode.parent() != Some(dir.ino)
        {
            // It lies elsewhere by its first name.
            told = [told, self.trace(&dir)].concat().into();
        }
        told
    }

    fn root_record(&self) -> Realm {
        let root = self.cached(ROOT).filter(|_| self.has_realms());
        Realm {
            ino: ROOT,
            parent_since: FIRST_SEQ,
            seq: root.as_ref().map_or(0, |r| r.realm_seq).max(FIRST_SEQ),
            snaps: root.map_or(Vec::new(), |r| r.snaps.keys().rev().copied().collect()),
            ..Realm::default()
        }
    }

    fn record(&self, inode: &Inode, parent: u64) -> Realm {
        let mut prior: BTreeSet<u64> = inode.past_snaps.iter().copied().collect();
        let mut seq = self.seq_of(inode);
        if inode.links.len() > 1 {
            // Also of the directories of its other names.
            prior.extend(self.covering_or_all(inode));
            for (dir, _) in &inode.links {
                seq = seq.max(self.cached(*dir).map_or(0, |d| self.chain_seq(&d)));
            }
        }
        prior.retain(|s| self.snaps.contains_key(s) && !inode.snaps.contains_key(s));
        let since = inode.kept.since.max(FIRST_SEQ);
        Realm {
            ino: inode.ino,
            created: inode.realm_created.max(since),
            parent,
            parent_since: since,
            seq,
            snaps: inode.snaps.keys().rev().copied().collect(),
            prior_parent_snaps: prior.into_iter().rev().collect(),
        }
    }

    fn seq_of(&self, inode: &Inode) -> u64 {
        let moved = inode.kept.since.saturating_sub(1);
        inode.realm_seq.max(moved).max(FIRST_SEQ)
    }

    /// The highest sequence on the way to the root.
    fn chain_seq(&self, inode: &Inode) -> u64 {
        let chain = self.realm_chain(inode);
        let highest = chain.iter().map(|r| self.seq_of(r)).max();
        highest.unwrap_or(FIRST_SEQ).max(self.root_record().seq)
    }

    /// Sequence and snapshots that writes to the file's objects name.
    pub(crate) fn snap_context(&self, inode: &Inode) -> (u64, Vec<u64>) {
        if self.snaps.is_empty() {
            return (0, Vec::new());
        }
        let all = self.covering_or_all(inode);
        match all.is_empty() {
            true => (0, Vec::new()),
            false => (self.counters.last_snap, all.into_iter().rev().collect()),
        }
    }

    // Clients

    /// Clients hear what the realm at this inode is now.
    pub(crate) fn send_split(&mut self, ino: u64) {
        self.tell_realm(ino, snap_op::SPLIT);
    }

    /// To all that hold something below it.
    pub(crate) fn tell_realm(&mut self, ino: u64, op: u32) {
        let held = match self.cached(ino) {
            // Nothing else is in the realm of a file.
            Some(inode) if !inode.is_dir() => self.held_alone(ino),
            _ => self.held_below(ino),
        };
        self.tell_held(ino, op, held, 0);
    }

    fn tell_held(&mut self, ino: u64, op: u32, held: BTreeMap<ClientId, Below>, created: u64) {
        let Some(inode) = self.cached(ino) else { return };
        let trace = self.trace_since(&inode, created);
        let splits = op == snap_op::SPLIT && ino != ROOT;
        for (client, below) in held {
            let m = MClientSnap {
                // The root's is there from the beginning.
                op: if splits || op != snap_op::SPLIT {
                    op
                } else {
                    snap_op::UPDATE
                },
                split: if splits { ino } else { 0 },
                split_inos: if splits { below.inos } else { Vec::new() },
                split_realms: match splits {
                    true => below.realms.into_iter().collect(),
                    false => Vec::new(),
                },
                trace: trace.clone(),
            };
            self.send_counted(client, m.message(0));
        }
    }

    /// One inode, by who holds it.
    fn held_alone(&self, ino: u64) -> BTreeMap<ClientId, Below> {
        let holders = self.caps.get(&ino).map(|ic| ic.holders.keys());
        let below = || Below {
            inos: vec![ino],
            ..Below::default()
        };
        holders.into_iter().flatten().map(|c| (*c, below())).collect()
    }

    /// What each client holds below a realm's beginning.
    fn held_below(&self, realm: u64) -> BTreeMap<ClientId, Below> {
        let mut by_client: BTreeMap<ClientId, Below> = BTreeMap::new();
        // Of the realms of a directory: whether this is one, and the one right below it on the way.
        let mut known: BTreeMap<u64, Option<Option<u64>>> = BTreeMap::new();
        for (ino, ic) in &self.caps {
            let Some(inode) = self.cached(*ino) else { continue };
            let place = match inode.parent() {
                Some(dir) if !inode.is_realm() => match known.get(&dir) {
                    Some(place) => *place,
                    None => {
                        let place = place_in(&self.realm_chain(&inode), realm);
                        known.insert(dir, place);
                        place
                    }
                },
                _ => place_in(&self.realm_chain(&inode), realm),
            };
            let Some(child) = place else { continue };
            for client in ic.holders.keys() {
                let below = by_client.entry(*client).or_default();
                match child {
                    None => below.inos.push(*ino),
                    Some(child) => drop(below.realms.insert(child)),
                }
            }
        }
        by_client
    }

    /// A snapshot was made: files with several names may be in it by any of them.
    pub(crate) fn tell_many_named(&mut self, snap: u64) {
        let held: Vec<u64> = self.caps.keys().copied().collect();
        for ino in held {
            let Some(inode) = self.cached(ino) else { continue };
            if inode.links.len() > 1 && self.covering_or_all(&inode).contains(&snap) {
                self.send_split(ino);
            }
        }
    }

    /// An inode may be in another realm than before, when its [`Machine::trace`] was this.
    pub(crate) fn moved(&mut self, ino: u64, before: &Bytes) {
        let Some(inode) = self.cached(ino) else { return };
        if !self.has_realms() || self.trace(&inode) == *before {
            return;
        }
        let realm = self.realm_cached(&inode);
        let held = match inode.is_dir() {
            true => self.held_below(realm),
            false => self.held_alone(ino),
        };
        // A client leaves what it holds in the realm that was created later.
        self.tell_held(realm, snap_op::SPLIT, held, self.counters.last_snap + 1);
    }

    /// What clients that came back are to know: they may have missed what was decided last.
    pub(crate) fn tell_all_realms(&mut self) {
        if !self.has_realms() {
            return;
        }
        let mut realms = BTreeSet::new();
        for ino in self.caps.keys() {
            if let Some(inode) = self.cached(*ino) {
                realms.insert(self.realm_cached(&inode));
            }
        }
        realms.into_iter().for_each(|ino| self.send_split(ino));
    }
}

/// None: it is not below; otherwise the realm right below it, if it is in one.
fn place_in(chain: &[Arc<Inode>], realm: u64) -> Option<Option<u64>> {
    let at = match realm {
        ROOT => chain.len(),
        _ => chain.iter().position(|r| r.ino == realm)?,
    };
    Some(at.checked_sub(1).map(|i| chain[i].ino))
}
