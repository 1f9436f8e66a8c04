//! How far the catching up of a member is: what it lacks, and what is being copied there.
//!
//! Bound: [`COPIES_MAX`].

use crate::backend::TurnId;
use crate::backend::replicated::uncommitted::Uncommitted;
use crate::broken::{self, Rule};
use crate::state::versions::Versions;
use crate::store::Seq;
use messages::osd::SharedTxn;
use std::collections::{BTreeMap, BTreeSet};
use types::{EVersion, HObject};

/// Objects being copied to one member at a time.
const COPIES_MAX: usize = 4;

#[derive(Debug)]
pub(crate) enum Copying {
    /// Waits for its turn among the object's operations, or for the disk.
    Parked,
    /// The member was asked what it has.
    Asked(TurnId),
    /// It has said so; the object goes there once everything up to here is durable on all of `in_sync`.
    Listed(TurnId, Versions, Seq),
    /// The last transaction that goes there.
    Sent(TurnId, u64),
}

#[derive(Debug)]
pub(crate) struct Copy {
    pub head: HObject,
    pub state: Copying,
    /// A write of the PG's own passed by: it has to be copied once more.
    pub again: bool,
}

#[derive(Debug)]
pub(crate) struct Catchup {
    /// Entries behind it are missing in its log; `None`: it has no log any more.
    pub log: Option<EVersion>,
    /// `None`: all objects were compared, or need not be.
    pub cursor: Option<HObject>,
    pub scanning: Option<u64>,
    pub dirty: BTreeSet<HObject>,
    /// Some of them, to be taken first: they were removed, which makes room on a member that has none.
    pub removed: Vec<HObject>,
    pub copies: BTreeMap<u64, Copy>,
    pub uncommitted: Uncommitted,
    /// Objects that the shell lets it take on.
    pub granted: usize,
}

impl Catchup {
    /// Of a member whose log ends at `since`: these objects may differ.
    pub fn by_log(since: EVersion, dirty: BTreeSet<HObject>, removed: Vec<HObject>) -> Self {
        Self {
            log: Some(since),
            cursor: None,
            scanning: None,
            dirty,
            removed,
            copies: BTreeMap::new(),
            uncommitted: Uncommitted::default(),
            granted: 0,
        }
    }

    /// Of one that has no log: all objects from `cursor` on are compared.
    pub fn backfill(cursor: HObject) -> Self {
        Self {
            log: None,
            cursor: Some(cursor),
            scanning: None,
            dirty: BTreeSet::new(),
            removed: Vec::new(),
            copies: BTreeMap::new(),
            uncommitted: Uncommitted::default(),
            granted: 0,
        }
    }

    pub fn objects(&self) -> usize {
        self.dirty.len() + self.copies.len()
    }

    pub fn is_backfill(&self) -> bool {
        self.log.is_none()
    }

    /// Whether a change of the object's bytes goes there.
    pub fn takes(&mut self, head: &HObject) -> bool {
        if let Some(copy) = self.copies.values_mut().find(|c| c.head == *head) {
            // One that waits for its turn has not looked at the object yet.
            copy.again |= !matches!(copy.state, Copying::Parked);
            return false;
        }
        let dirty = self.dirty.contains(head) && !broken::is(Rule::DirtyWaits);
        self.cursor.as_ref().is_none_or(|c| head < c) && !dirty
    }

    /// A change that goes there when it is durable on all of `in_sync`. `head`: its object, if it is about one.
    pub fn put_off(&mut self, seq: Seq, head: Option<&HObject>, txn: &SharedTxn) {
        let goes = head.is_none_or(|h| self.takes(h));
        self.uncommitted.push(seq, goes.then(|| txn.clone()));
    }

    pub fn waits_for_durability(&self) -> bool {
        let waits = |copy: &Copy| matches!(copy.state, Copying::Listed(..));
        !self.uncommitted.is_empty() || self.copies.values().any(waits)
    }

    pub fn is_done(&self) -> bool {
        let all_same = self.dirty.is_empty() && self.copies.is_empty() && self.cursor.is_none();
        all_same && self.uncommitted.are_all_whole()
    }

    pub fn next(&mut self) -> Option<HObject> {
        while let Some(head) = self.removed.pop() {
            if self.dirty.remove(&head) {
                return Some(head);
            }
        }
        self.dirty.pop_first()
    }

    pub fn room(&self) -> usize {
        COPIES_MAX.saturating_sub(self.copies.len()).min(self.dirty.len())
    }
}
