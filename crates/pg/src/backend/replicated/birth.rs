//! What a PG remembers of how it was made here, and of what was made out of it.

use std::collections::BTreeSet;
use types::{EVersion, Epoch, OsdId};

/// What a PG remembers of its birth in this life.
#[derive(Debug, Default)]
pub(crate) struct Birth {
    /// The map's epoch, and the newest version that was taken over.
    pub at: Option<(Epoch, EVersion)>,
    pub siblings: BTreeSet<OsdId>,
    /// The newest epoch in which others were split off from it.
    pub split: Option<Epoch>,
    /// Members that fell away since the PG was loaded.
    pub falls: u64,
}

impl Birth {
    /// The epoch in which it was made here, if that was in this life.
    pub fn born_in(&self) -> Option<Epoch> {
        Some(self.at?.0)
    }

    pub fn split_in(&self) -> Option<Epoch> {
        self.split
    }

    pub fn forget(&mut self, osd: OsdId) {
        self.siblings.remove(&osd);
    }
}
