//! Writes that a learner gets later: when every OSD of `in_sync` has them.
//!
//! A learner that is caught up by its log has objects that are newer than its log says. The next primary, which may lack
//! what was never durable on all of `in_sync`, looks at that log alone: it would never learn that such a write has to be
//! undone there. So what goes to a learner without its log entry is what no later primary takes back.
//!
//! Bound: writes that are not durable everywhere; clients' budgets bound them.

use crate::store::Seq;
use messages::osd::SharedTxn;
use std::collections::VecDeque;
use types::{EVersion, Op};

#[derive(Debug, Default)]
pub(super) struct Uncommitted {
    /// In order. None: its object is not the same there yet and is copied after it.
    pub writes: VecDeque<(Seq, Option<SharedTxn>)>,
}

impl Uncommitted {
    pub fn push(&mut self, seq: Seq, txn: Option<SharedTxn>) {
        self.writes.push_back((seq, txn));
    }

    pub fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    /// Each of them can go there as it is.
    pub fn are_all_whole(&self) -> bool {
        self.writes.iter().all(|(_, txn)| txn.is_some())
    }

    /// The first log entry among them.
    pub fn first_version(&self) -> Option<EVersion> {
        let ops = self.writes.iter().filter_map(|(_, txn)| txn.as_ref());
        ops.flat_map(|txn| &txn.ops).find_map(|op| match op {
            Op::LogAppend { version, .. } => Some(*version),
            _ => None,
        })
    }

    /// The next one, if it is one of those up to there.
    pub fn pop_up_to(&mut self, committed: Seq) -> Option<Option<SharedTxn>> {
        let is_due = self.writes.front().is_some_and(|(seq, _)| *seq <= committed);
        is_due
            .then(|| self.writes.pop_front())
            .flatten()
            .map(|(_, txn)| txn)
    }
}
