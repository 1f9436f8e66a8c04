//! The in-sync set of one PG with one object, on three OSDs: who decides, who acknowledges, who reads.
//!
//! Vocabulary: as in docs/internals/replication.md. An [`Entry`] names an interval and a client's write; an OSD's
//! *content* is the entry whose bytes the object has there. *Exposed* is the longest log prefix that any client
//! saw, by an answer to a write or by a read. *Serving* is an OSD that would answer a read.
//!
//! Taken from the model `lease`: nobody is marked down while it believes in its lease. So a lease is one bit here,
//! it ends at any moment, and only an OSD without it is marked down.
//!
//! Properties ([`check`]): see the names that it gives. And none of the reachable states is a dead end: with all OSDs
//! that are not lost for good back, all writes can be acknowledged.
//!
//! Not here: more than one object, backfill by scan, bytes; see docs/internals/replication-model.md.

mod actions;
mod cluster;
mod messages;
mod state;

pub use actions::Action;
pub use state::{Budget, Config, Entry, Flight, Log, Node, OSDS, State, Status, View};

use crate::search::Model;
use state::{bit, is_in, ups};

/// The rules under test: the default is the contract, each field breaks one rule of it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Rules {
    /// Rule 1: a member that has a write only queued counts.
    pub ack_before_durable: bool,
    /// An OSD is marked down for being silent, whatever its lease.
    pub down_before_lease_end: bool,
    /// Rule 3: the first OSD of *up* becomes primary, in sync or not.
    pub primary_outside_in_sync: bool,
    /// Rule 4, 5: the in-sync set shrinks to what is up.
    pub shrink_below_min_size: bool,
    /// Rule 4: a learner is proposed as soon as it is connected.
    pub add_before_full: bool,
    /// A learner is proposed when the entries it lacked are durable there, whatever was acknowledged meanwhile.
    pub add_when_caught_up_once: bool,
    /// Rule 1: an OSD counts when its addition is committed, not from the proposal on.
    pub count_after_commit: bool,
    /// Not broken, another contract: a primary begins at once with its own log, and members are undone to it (in whole
    /// steps). The contract is that it hears all of the in-sync set first, and that the longest log leads.
    pub trust_own_log: bool,
    /// A member of the in-sync set is caught up like a learner: rewound, object before log.
    pub rewind_in_sync: bool,
    /// A primary that boots keeps its interval.
    pub keep_interval_at_boot: bool,
    /// The old primary goes on reading while its hand-over is under way.
    pub read_during_hand_over: bool,
    /// `Info` tells of what is not durable yet.
    pub info_before_durable: bool,
    /// A member sends its answer on whatever connection it has to the primary now, not on that of the request.
    pub answer_on_any_connection: bool,
    /// A hand-over is committed though its new primary was marked down since it was proposed.
    pub commit_a_primary_that_is_down: bool,
}

/// A model: rules, and the bounds within which every behaviour is looked at.
#[derive(Debug, Clone)]
pub struct Replication {
    pub rules: Rules,
    pub min_size: usize,
    /// Writes of the clients, at most `LOG_MAX`.
    pub writes: u8,
    /// Where CRUSH wants the PG, first before and then after each change of the map that the budget allows.
    pub places: Vec<Vec<usize>>,
    /// In sync at first; its first is the primary.
    pub in_sync: Vec<usize>,
    /// Faults of each kind.
    pub budget: Budget,
}

impl Replication {
    /// With fewer in sync a primary takes and acknowledges nothing; the variant that lets the set shrink goes on.
    fn in_sync_min(&self) -> usize {
        if self.rules.shrink_below_min_size {
            1
        } else {
            self.min_size
        }
    }

    fn up(&self, place: u8, up: u8) -> impl Iterator<Item = usize> + '_ {
        let place = &self.places[place as usize % self.places.len()];
        place.iter().copied().filter(move |o| is_in(up, *o))
    }

    fn up_set(&self, place: u8, up: u8) -> u8 {
        self.up(place, up).fold(0, |set, o| set | bit(o))
    }
}

impl Model for Replication {
    type State = State;
    type Action = Action;

    fn initial(&self) -> State {
        State::new(self)
    }

    fn next(&self, s: &State, out: &mut Vec<(Action, State)>) {
        if s.broken.is_none() {
            actions::all(self, s, out);
        }
    }

    fn check(&self, s: &State) -> Result<(), &'static str> {
        check(self, s)
    }

    fn goal(&self, s: &State) -> bool {
        s.exposed.len() == self.writes as usize
    }

    fn is_fault(&self, action: Action) -> bool {
        action.is_fault()
    }
}

/// The properties, by name.
pub const ONE_SERVES: &str = "at most one OSD answers reads";
pub const READS_ARE_NEW: &str = "a read shows every earlier write and read";
pub const READS_ARE_THE_LOG: &str = "a read shows what the log says";
pub const PRIMARY_HAS_ALL: &str = "a serving primary's log has every acknowledged write";
pub const IN_SYNC_HAVE_ALL: &str = "every OSD of in_sync holds every acknowledged write";
pub const IN_SYNC_ARE_WHOLE: &str = "the object of an OSD of in_sync is what its log says";
pub const IN_SYNC_ARE_A_CHAIN: &str = "the logs of in_sync are prefixes of one another";
pub const ONE_HISTORY: &str = "answers agree on one order of writes";
pub const MIN_SIZE_COPIES: &str = "an acknowledged write is durable on min_size OSDs";
pub const EQUAL_VERSIONS: &str = "equal versions in sync are equal writes";

fn check(model: &Replication, s: &State) -> Result<(), &'static str> {
    if let Some(property) = s.broken {
        return Err(property);
    }
    let serving = |i: &usize| s.nodes[*i].serves(*i);
    if (0..OSDS).filter(serving).count() > 1 {
        return Err(ONE_SERVES);
    }
    for i in (0..OSDS).filter(serving) {
        let node = &s.nodes[i];
        if !s.exposed.is_prefix_of(&node.log) {
            return Err(match node.reads() {
                true => READS_ARE_NEW,
                false => PRIMARY_HAS_ALL,
            });
        }
        if node.reads() && node.content != node.log.last() {
            return Err(READS_ARE_THE_LOG);
        }
    }
    for i in ups(s.config.in_sync) {
        let node = &s.nodes[i];
        let has_all = s.exposed.is_prefix_of(&node.durable_log) && s.exposed.is_prefix_of(&node.log);
        if !has_all && !model.rules.ack_before_durable {
            return Err(IN_SYNC_HAVE_ALL);
        }
        let whole = node.content == node.log.last() && node.durable_content == node.durable_log.last();
        if !whole && !model.rules.rewind_in_sync {
            return Err(IN_SYNC_ARE_WHOLE);
        }
        for j in ups(s.config.in_sync) {
            if node.log.same_version_other_write(&s.nodes[j].log) {
                return Err(EQUAL_VERSIONS);
            }
            let other = &s.nodes[j].log;
            if !model.rules.trust_own_log && !node.log.is_prefix_of(other) && !other.is_prefix_of(&node.log) {
                return Err(IN_SYNC_ARE_A_CHAIN);
            }
        }
    }
    Ok(())
}
