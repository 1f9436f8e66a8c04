//! The work beside a store's owner, for who lets time pass in it: a simulation.
//!
//! A batch of the log is begun (written, not flushed) and ended (flushed, and told of); between the two it may be lost,
//! as with the committer's thread. The owner's own pumping, where it has to wait, ends what was begun.
//!
//! Not here: when, and how long it takes ([`crate::Driver`]).

use crate::committer::Committer;
use crate::helper::Helper;
use std::sync::Arc;

#[derive(Debug, Clone)]
pub struct Background {
    committer: Arc<Committer>,
    helper: Arc<Helper>,
}

impl Background {
    pub(crate) fn new(committer: Arc<Committer>, helper: Arc<Helper>) -> Self {
        Self { committer, helper }
    }

    /// Writes what was kicked to the log. False: nothing waits, or the store has failed.
    pub fn begin_log(&self) -> bool {
        self.committer.begin()
    }

    /// Flushes what was begun, if the owner has not done so; its transactions are durable then.
    pub fn end_log(&self) {
        self.committer.end();
    }

    /// One step of a checkpoint or a growth. False: there is none, or it waits for the log.
    pub fn step_helper(&self) -> bool {
        self.helper.pump()
    }
}
