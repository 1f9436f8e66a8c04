//! What a back end tells of the PG's OSDs.

use std::collections::BTreeSet;
use std::time::Duration;
use types::OsdId;

/// What a PG still has to copy, for the shell that shares out the bandwidth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyNeed {
    /// Copies that exist of what is to be copied: the fewer, the more urgent.
    pub in_sync: usize,
    pub backfill: bool,
    /// Objects that could be taken on now.
    pub objects: usize,
}

/// A member as reports show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberState {
    pub osd: OsdId,
    pub in_sync: bool,
    /// away, asked, resync, recovering, full, failed.
    pub state: &'static str,
    /// Objects known to differ.
    pub dirty: usize,
    /// All objects behind a cursor are missing, too.
    pub backfill: bool,
    /// Its disk has no room for what was written.
    pub no_room: bool,
    /// Changes of the log that it has not confirmed.
    pub lacks: usize,
}

/// Who was a full member of a PG, and a mark that changes when one of them falls away.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Kin {
    pub(super) full: BTreeSet<OsdId>,
    pub(super) mark: (Duration, u64),
}

impl Kin {
    pub fn has(&self, osd: OsdId) -> bool {
        self.full.contains(&osd)
    }
}
