//! The front: what a client may ask, and in which order. Admission, duplicates, the order of each object's messages,
//! what waits, watches and notifies, locks, answers.

pub(crate) mod ahead;
mod allowance;
pub(crate) mod checks;
pub(crate) mod commit;
pub(crate) mod execute;
pub(crate) mod export;
pub(crate) mod fetch;
pub(crate) mod held;
pub(crate) mod index;
pub(crate) mod jobs;
pub(crate) mod list;
pub(crate) mod locks;
pub(crate) mod messages;
pub(crate) mod parked;
pub(crate) mod reply;
pub(crate) mod turns;
pub(crate) mod wake;
pub(crate) mod watch;
pub(crate) mod watched;
pub(crate) mod write;

use crate::api::{ClientOp, ConnId, Output, Word};
use crate::backend::replicated::Shown;
use crate::exec::notifies::NotifyBytes;
use crate::state::object::ObjectCache;
use crate::state::object_info::WatchKey;
use crate::state::range::HashRange;
use crate::store::Seq;
use commit::Commits;
use parked::Parked;
use std::collections::VecDeque;
use std::time::Duration;
use types::HObject;
use wake::Wake;
use watch::WatchTable;

/// What the front keeps.
#[derive(Debug)]
pub(crate) struct Front {
    cache: ObjectCache,
    commits: Commits,
    watches: WatchTable,
    notify_id: u32,
    parked: Parked,
    /// Only reads are executed, of a member's copy, and only what this lets it show.
    shown: Option<Box<Shown>>,
    /// Clients' operations that wait for the PG to become active.
    held: VecDeque<Box<ClientOp>>,
    /// What the back end has set going.
    wakes: VecDeque<Wake>,
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

    /// Of a PG that only reads: whoever asks knows by other means that what is here is durable.
    pub fn of_reader(now: Duration) -> Self {
        Self {
            commits: Commits::nothing_waits(),
            ..Self::new(now)
        }
    }

    /// From now on its notifications share these bytes with those of the OSD's other PGs.
    pub fn share_notify_bytes(&mut self, bytes: NotifyBytes) {
        self.watches.bytes = bytes;
    }

    /// Answers wait for durability.
    pub fn is_waiting(&self) -> bool {
        self.commits.is_waiting()
    }

    /// Lets answers go that wait for no more than this.
    pub fn confirm(&mut self, seq: Seq, by: Word, out: &mut Vec<Output>) {
        self.commits.advance(seq, by, out);
    }

    /// Answers that will never leave from here.
    pub fn abandon(&mut self) -> impl Iterator<Item = Output> + use<> {
        self.commits.abandon()
    }

    pub fn next_wake(&mut self) -> Option<Wake> {
        self.wakes.pop_front()
    }

    /// When a watch, a notification or a fetch wants a tick.
    pub fn next_timer(&self) -> Option<Duration> {
        [self.watches.next_timer(), self.parked.next_pause()]
            .into_iter()
            .flatten()
            .min()
    }

    pub fn watches(&self) -> &WatchTable {
        &self.watches
    }

    /// Its watches wait for the client to come back.
    pub fn connection_closed(&mut self, conn: ConnId, now: Duration) {
        self.watches.connection_closed(conn, now);
    }

    /// Watches whose time is over; what their clients are told goes to `out`.
    pub fn expired(&mut self, now: Duration, out: &mut Vec<Output>) -> Vec<(HObject, WatchKey)> {
        let mut ended = Vec::new();
        let due = self.watches.expired(now, &mut ended);
        out.append(&mut ended);
        due
    }

    /// What was known of objects, and what answers waited for, does not count any more; who waits goes on waiting.
    pub fn begin_anew(&mut self) {
        self.cache = ObjectCache::default();
        self.commits = Commits::default();
    }

    /// The object is read anew when it is needed next.
    pub fn forget(&mut self, object: &HObject) {
        self.cache.forget(object);
    }

    /// Objects outside of the range are another PG's now. `answers`: those about them are, too.
    pub fn keep(&mut self, range: HashRange, answers: bool) {
        if !answers {
            self.commits.drop_others(|hash| range.contains(hash));
        }
        let ours = |o: &HObject| range.contains(o.hash);
        self.cache.retain(ours);
        self.watches.retain(ours);
    }

    /// From now on it shows a member's copy, as far as this lets it.
    pub fn show(&mut self, shown: Shown) {
        self.shown = Some(Box::new(shown));
    }

    pub fn shown(&mut self) -> &mut Shown {
        self.shown.get_or_insert_default()
    }

    /// Nothing is left of anything that waited.
    #[cfg(test)]
    pub fn is_at_rest(&self) -> bool {
        self.parked.is_idle()
    }
}
