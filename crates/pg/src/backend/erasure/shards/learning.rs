//! How far a member is that learns its shard: what it lacks, and what is being made for it.
//!
//! Bound: [`COPIES_MAX`].

use super::make::Making;
use crate::backend::TurnId;
use std::collections::{BTreeMap, BTreeSet};
use types::{EVersion, HObject};

/// Objects being made for one member at a time.
const COPIES_MAX: usize = 4;

#[derive(Debug)]
pub(super) enum Copying {
    /// Waits for its turn among the object's operations.
    Parked,
    /// The member was asked what it has.
    Asked(TurnId),
    Making(TurnId, Making),
}

#[derive(Debug)]
pub(super) struct Copy {
    pub head: HObject,
    pub state: Copying,
    /// A write of the PG's own passed by: once more.
    pub again: bool,
}

#[derive(Debug)]
pub(super) struct Learning {
    /// Entries behind it are missing in its log; `None`: it has no log any more.
    pub log: Option<EVersion>,
    /// `None`: all objects were compared, or need not be.
    pub cursor: Option<HObject>,
    pub scanning: Option<u64>,
    pub dirty: BTreeSet<HObject>,
    /// Some of them that were removed, to be taken first: that makes room.
    pub removed: Vec<HObject>,
    pub copies: BTreeMap<u64, Copy>,
    /// Objects that the shell lets it take on.
    pub granted: usize,
}

impl Learning {
    /// Its log ends at `since`, and these objects may differ.
    pub fn by_log(since: EVersion, dirty: BTreeSet<HObject>, removed: Vec<HObject>) -> Self {
        Self {
            log: Some(since),
            cursor: None,
            dirty,
            removed,
            ..Self::backfill(HObject::min())
        }
    }

    /// All objects from `cursor` on are compared.
    pub fn backfill(cursor: HObject) -> Self {
        Self {
            log: None,
            cursor: Some(cursor),
            scanning: None,
            dirty: BTreeSet::new(),
            removed: Vec::new(),
            copies: BTreeMap::new(),
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
        self.cursor.as_ref().is_none_or(|c| head < c) && !self.dirty.contains(head)
    }

    pub fn is_done(&self) -> bool {
        self.dirty.is_empty() && self.copies.is_empty() && self.cursor.is_none()
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
