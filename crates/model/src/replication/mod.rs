//! The in-sync set of one PG with one object, on three OSDs: who decides, who acknowledges, who reads.
//!
//! Vocabulary: as in docs/internals/replication.md. An [`Entry`] names an interval and a client's write; an OSD's
//! *content* is the entry whose bytes the object has there. *Exposed* is the longest log prefix that any client
//! saw, by an answer to a write or by a read. *Serving* is an OSD that would answer a read.
//!
//! Taken from the model `lease`: nobody is marked down while it believes in its lease. So a lease is one bit here,
//! it ends at any moment, and only an OSD without it is marked down.
//!
//! Properties ([`properties`]): see the names that it gives. And none of the reachable states is a dead end: with all OSDs
//! that are not lost for good back, all writes can be acknowledged.
//!
//! Not here: more than one object, backfill by scan, bytes; see docs/internals/replication-model.md.

mod actions;
mod cluster;
mod log;
mod messages;
pub mod properties;
mod rules;
mod state;
mod wire;

pub use actions::Action;
pub use log::{Entry, Log};
pub use rules::{Replication, Rules};
pub use state::{Budget, Config, Flight, Node, OSDS, State, Status, View};

use crate::search::Model;

impl Model for Replication {
    type State = State;
    type Action = Action;

    fn initial(&self) -> State {
        assert!(self.writes as usize <= log::LOG_MAX);
        State::new(&self.in_sync, self.budget)
    }

    fn next(&self, s: &State, out: &mut Vec<(Action, State)>) {
        if s.broken.is_none() {
            actions::all(self, s, out);
        }
    }

    fn check(&self, s: &State) -> Result<(), &'static str> {
        properties::check(self, s)
    }

    fn goal(&self, s: &State) -> bool {
        s.exposed.len() == self.writes as usize
    }

    fn is_fault(&self, action: Action) -> bool {
        action.is_fault()
    }
}
