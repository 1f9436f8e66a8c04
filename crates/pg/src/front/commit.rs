//! The commit tracker: holds answers back until what they show is durable.
//!
//! It alone knows what "durable" means: today that the local store says so; with several copies, that all
//! in-sync members have said so. Outputs of one sequence number leave in the order in which they came; since
//! an object's answers never carry descending numbers, they leave in order, too.

use crate::api::Word;
use crate::{Output, Seq};
use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub(crate) struct Commits {
    committed: Seq,
    /// Each with the hash of the object that it is about, where it is a client's answer.
    waiting: BTreeMap<Seq, Vec<(Option<u32>, Output)>>,
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

    /// Something waits that `committed` does not set free.
    pub fn waits_beyond(&self, committed: Seq) -> bool {
        self.waiting
            .last_key_value()
            .is_some_and(|(seq, _)| *seq > committed)
    }

    /// Sends `output` once `seq` is durable.
    pub fn release(&mut self, seq: Seq, output: Output, out: &mut Vec<Output>) {
        self.release_of(seq, None, output, out);
    }

    /// The same for the answer about an object of this hash.
    pub fn release_of(&mut self, seq: Seq, hash: Option<u32>, output: Output, out: &mut Vec<Output>) {
        if seq <= self.committed {
            out.push(output);
        } else {
            // Nearly always the one answer to a write.
            let waiting = self.waiting.entry(seq).or_insert_with(|| Vec::with_capacity(1));
            waiting.push((hash, output));
        }
    }

    /// Drops the answers about objects that are not `ours`.
    pub fn drop_others(&mut self, ours: impl Fn(u32) -> bool) {
        for waiting in self.waiting.values_mut() {
            waiting.retain(|(hash, _)| hash.is_none_or(&ours));
        }
        self.waiting.retain(|_, waiting| !waiting.is_empty());
    }

    /// What will never be sent from here.
    pub fn abandon(&mut self) -> impl Iterator<Item = Output> + use<> {
        let waiting = std::mem::take(&mut self.waiting).into_values().flatten();
        waiting.map(|(_, output)| output)
    }

    /// `by`: who has said so.
    pub fn advance(&mut self, committed: Seq, by: Word, out: &mut Vec<Output>) {
        self.committed = self.committed.max(committed);
        while let Some(e) = self.waiting.first_entry() {
            if *e.key() > self.committed {
                break;
            }
            out.extend(e.remove().into_iter().map(|(_, mut output)| {
                if let Output::Reply { permit, .. } = &mut output {
                    permit.last = Some(by);
                }
                output
            }));
        }
    }
}
