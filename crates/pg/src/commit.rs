//! The commit tracker: holds answers back until what they show is durable.
//!
//! It alone knows what "durable" means: today that the local store says so; with several copies, that all
//! in-sync members have said so. Outputs of one sequence number leave in the order in which they came; since
//! an object's answers never carry descending numbers, they leave in order, too.

use crate::{Output, Seq};
use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub(crate) struct Commits {
    committed: Seq,
    waiting: BTreeMap<Seq, Vec<Output>>,
}

impl Commits {
    /// Nothing waits here: whoever asks knows by other means that it is durable.
    pub fn nothing_waits() -> Self {
        Self {
            committed: Seq::MAX,
            waiting: BTreeMap::new(),
        }
    }

    pub fn committed(&self) -> Seq {
        self.committed
    }

    pub fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Sends `output` once `seq` is durable.
    pub fn release(&mut self, seq: Seq, output: Output, out: &mut Vec<Output>) {
        if seq <= self.committed {
            out.push(output);
        } else {
            self.waiting.entry(seq).or_default().push(output);
        }
    }

    /// What will never be sent from here.
    pub fn abandon(&mut self) -> impl Iterator<Item = Output> + use<> {
        std::mem::take(&mut self.waiting).into_values().flatten()
    }

    pub fn advance(&mut self, committed: Seq, out: &mut Vec<Output>) {
        self.committed = self.committed.max(committed);
        while let Some(e) = self.waiting.first_entry() {
            if *e.key() > self.committed {
                break;
            }
            out.extend(e.remove());
        }
    }
}
