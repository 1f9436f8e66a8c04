//! File systems and their metadata servers: who holds which rank, and what becomes of it.
//!
//! Vocabulary: a *daemon* is one run of a metadata server, known by its gid, which never comes again; it is a *standby* until it
//! is given a *rank* of a file system. A rank that was held and is not is *failed*. A *follower* is a standby that reads the journal of a
//! rank that another holds, and gets that rank, and no other, when it is free (docs/decisions/0077-standby-replay.md). A daemon is *alive* while its lease is
//! (`live/mds/<gid>`).
//!
//! All of it stands in the map of file systems, and one row for each daemon with what the map has no field for. Invariants:
//! a rank has one daemon at a time; a daemon that loses a rank, for whatever reason, is on the blocklist in the OSD map of the
//! same transaction (what clients know it by, and its own RADOS client), and [`MdsMap::last_failure_osd_epoch`] names that
//! epoch, which the next holder waits for; only rank 0 exists. Whenever the map changes, free ranks go to standbys
//! ([`settle`]).
//!
//! Each decision is a function of a snapshot. Not here: leases and commits (`metastore`), the words of commands (`mon`).

mod edit;
mod ranks;
#[cfg(test)]
mod tests;

pub use edit::{DEFAULT_STANDBYS, NewFs, create, remove};
pub use ranks::{BLOCKLIST_SECONDS, MdsBoot, boot, fail, leave, report, settle};

use crate::changes::{Change, Changes};
use crate::state::ClusterState;
use std::collections::BTreeMap;
use types::fsmap::FsMap;
use types::{EntityAddr, Utime};

/// Daemons that the map has room for.
pub const DAEMONS_MAX: usize = 1024;
/// The fact of a daemon that can follow a journal. One of an older program would take the rank that it is to follow for its own.
pub const CAN_FOLLOW: &str = "skep_can_follow";
/// File systems that the map has room for.
pub const FILE_SYSTEMS_MAX: usize = 256;
/// Ranks that a file system can have: one, until there are subtrees.
pub const RANKS_MAX: i32 = 1;

/// What is known of a daemon beside its entry in the map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MdsDaemon {
    /// What its RADOS client calls itself.
    pub rados: EntityAddr,
    /// Facts for `mds metadata`.
    pub metadata: BTreeMap<String, String>,
}
denc::envelope_denc!(MdsDaemon, 1, 1, { rados, metadata });

/// Daemons by their gids.
pub type MdsDaemons = BTreeMap<u64, MdsDaemon>;

/// A change of the map of file systems in the making, with what goes with it.
pub struct Draft<'a> {
    state: &'a ClusterState,
    now: Utime,
    pub map: FsMap,
    pub changes: Changes,
    /// Becomes a standby by this change, of which the state knows nothing yet.
    booting: Option<u64>,
}

impl<'a> Draft<'a> {
    pub fn of(state: &'a ClusterState, now: Utime) -> Self {
        Self {
            state,
            now,
            map: (*state.fsmap).clone(),
            changes: Changes::none(),
            booting: None,
        }
    }

    /// Free ranks go to standbys; the changes, which are none if the map is as it was.
    pub fn done(mut self) -> Changes {
        settle(&mut self);
        for fs in &mut self.map.filesystems {
            let before = self.state.fsmap.by_id(fs.fscid);
            if before != Some(fs) {
                fs.mds_map.modified = self.now;
            }
        }
        if self.map != *self.state.fsmap {
            self.changes.push(Change::FsMap(Box::new(self.map)));
        }
        self.changes
    }
}
