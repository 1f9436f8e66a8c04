//! What a turn of a topic has done (`courier`).

use crate::topics::Done;
use std::time::Duration;

/// What a turn has done.
pub struct Tally {
    pub done: Done,
    pub settled: Duration,
    pub old: usize,
    /// One after the other, at last.
    pub failed: usize,
    /// The last failure.
    pub why: Option<String>,
    /// What is left in the queue, as it was seen.
    pub queued: u64,
    /// Something was told.
    pub some: bool,
    /// The queue was taken.
    pub touched: bool,
}

impl Tally {
    pub fn new(now: Duration) -> Self {
        Self {
            done: Done::default(),
            settled: now,
            old: 0,
            failed: 0,
            why: None,
            queued: 0,
            some: false,
            touched: false,
        }
    }

    pub fn fail(&mut self, why: String) {
        self.failed += 1;
        self.why = Some(why);
    }
}
