//! The front: what a client may ask, and in which order. Admission, duplicates, the order of each object's messages,
//! what waits, watches and notifies, locks, answers.

pub(crate) mod ahead;
pub(crate) mod checks;
pub(crate) mod commit;
pub(crate) mod execute;
pub(crate) mod fetch;
pub(crate) mod held;
pub(crate) mod index;
pub(crate) mod list;
pub(crate) mod locks;
pub(crate) mod parked;
pub(crate) mod reply;
pub(crate) mod turns;
pub(crate) mod watch;
pub(crate) mod watched;
pub(crate) mod write;

use crate::api::ClientOp;
use crate::backend::replicated::Shown;
use crate::state::object::ObjectCache;
use commit::Commits;
use parked::Parked;
use std::collections::VecDeque;
use std::time::Duration;
use turns::Wake;
use watch::WatchTable;

/// What the front keeps.
#[derive(Debug)]
pub(crate) struct Front {
    pub cache: ObjectCache,
    pub commits: Commits,
    pub watches: WatchTable,
    pub notify_id: u32,
    pub parked: Parked,
    /// Only reads are executed, of a member's copy, and only what this lets it show.
    pub shown: Option<Box<Shown>>,
    /// Clients' operations that wait for the PG to become active.
    pub held: VecDeque<Box<ClientOp>>,
    /// What the back end has set going.
    pub wakes: VecDeque<Wake>,
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
            shown: None,
            held: VecDeque::new(),
            wakes: VecDeque::new(),
        }
    }
}
