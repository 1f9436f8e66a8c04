//! What is varied from model to model: the rules that hold, and the bounds.

use super::state::{Budget, bit, is_in};

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
    pub fn in_sync_min(&self) -> usize {
        if self.rules.shrink_below_min_size {
            1
        } else {
            self.min_size
        }
    }

    pub fn up(&self, place: u8, up: u8) -> impl Iterator<Item = usize> + '_ {
        let place = &self.places[place as usize % self.places.len()];
        place.iter().copied().filter(move |o| is_in(up, *o))
    }

    pub fn up_set(&self, place: u8, up: u8) -> u8 {
        self.up(place, up).fold(0, |set, o| set | bit(o))
    }
}
