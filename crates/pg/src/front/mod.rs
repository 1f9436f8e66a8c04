//! The front: what a client may ask, and in which order. Admission, duplicates, the order of each object's messages,
//! what waits, watches and notifies, locks, answers.

pub(crate) mod ahead;
pub(crate) mod checks;
pub(crate) mod commit;
pub(crate) mod execute;
pub(crate) mod fetch;
pub(crate) mod list;
pub(crate) mod locks;
pub(crate) mod parked;
pub(crate) mod reply;
pub(crate) mod watch;
pub(crate) mod write;

use crate::state::object::ObjectCache;
use commit::Commits;
use parked::Parked;
use std::time::Duration;
use watch::WatchTable;

/// What the front keeps.
#[derive(Debug)]
pub(crate) struct Front {
    pub cache: ObjectCache,
    pub commits: Commits,
    pub watches: WatchTable,
    pub notify_id: u32,
    pub parked: Parked,
}

impl Front {
    pub fn new(now: Duration) -> Self {
        Self {
            cache: ObjectCache::default(),
            commits: Commits::default(),
            watches: WatchTable::default(),
            // Not the ids of the life before, in the same epoch.
            notify_id: now.as_micros() as u32,
            parked: Parked::new(now.as_micros() as u64),
        }
    }
}
