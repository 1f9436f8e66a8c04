//! Transactions that are not durable yet, and what a reader has seen of them.
//!
//! Vocabulary: a transaction is *owned* by the client that was answered before it is durable: should it be lost, that client says it again.
//! What anybody else sees of it, and what its maker sees of one that is owned by nobody, has to wait until it is durable.

use std::cell::Cell;
use std::collections::VecDeque;

#[derive(Debug, Default)]
pub struct Owners {
    durable: u64,
    /// Of the transactions behind that, in order.
    owners: VecDeque<Option<u64>>,
    reader: Option<u64>,
    /// The last transaction that what was read depends on, and that may be lost for the reader.
    seen: Cell<u64>,
}

impl Owners {
    /// All up to this one are durable.
    pub fn durable(&mut self, upto: u64) {
        let n = upto.saturating_sub(self.durable) as usize;
        self.owners.drain(..n.min(self.owners.len()));
        self.durable = upto.max(self.durable);
    }

    /// The next one was made, by nobody in particular.
    pub fn made(&mut self) {
        self.owners.push_back(None);
    }

    pub fn give(&mut self, tx: u64, owner: Option<u64>) {
        let at = tx.checked_sub(self.durable + 1);
        if let Some(slot) = at.and_then(|n| self.owners.get_mut(n as usize)) {
            *slot = owner;
        }
    }

    /// What is read from now on is for this client's eyes.
    pub fn reads(&mut self, reader: u64) {
        self.reader = Some(reader);
        self.seen.set(0);
    }

    /// It read what this transaction left.
    pub fn saw(&self, tx: u64) {
        if tx <= self.durable || tx <= self.seen.get() {
            return;
        }
        let owner = self
            .owners
            .get((tx - self.durable - 1) as usize)
            .copied()
            .flatten();
        if owner.is_none() || owner != self.reader {
            self.seen.set(tx);
        }
    }

    pub fn seen(&self) -> u64 {
        self.seen.get()
    }

    /// Forgets what was seen since `seen` was that.
    pub fn forget_to(&self, seen: u64) {
        self.seen.set(seen);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_own_is_not_waited_for() {
        let mut o = Owners::default();
        o.durable(7);
        (0..3).for_each(|_| o.made());
        o.give(8, Some(1));
        o.reads(1);
        for tx in [0, 7, 8] {
            o.saw(tx);
        }
        assert_eq!(o.seen(), 0);
        o.saw(9);
        assert_eq!(o.seen(), 9, "of nobody");
        o.reads(2);
        o.saw(8);
        assert_eq!(o.seen(), 8, "of another");
        o.durable(8);
        o.reads(2);
        o.saw(8);
        assert_eq!(o.seen(), 0);
        o.saw(10);
        assert_eq!(o.seen(), 10);
        o.give(10, Some(2));
        o.reads(2);
        o.saw(10);
        assert_eq!(o.seen(), 0);
        o.give(10, None);
        o.saw(10);
        assert_eq!(o.seen(), 10, "it was given back");
    }
}
