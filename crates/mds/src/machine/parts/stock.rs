//! Numbers that a client may give to files by itself.

use std::collections::BTreeMap;

/// How many a client has at most, and from how few on it is given more.
pub const STOCK: u64 = 500;
pub const LOW: u64 = 250;

/// Runs of numbers, by their first one: behind each the first that does not belong to it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stock {
    runs: BTreeMap<u64, u64>,
}

impl Stock {
    pub fn of(runs: &[(u64, u64)]) -> Self {
        let mut stock = Self::default();
        for (first, len) in runs {
            stock.add(*first, *len);
        }
        stock
    }

    pub fn len(&self) -> u64 {
        self.runs.iter().map(|(first, end)| end - first).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    pub fn contains(&self, n: u64) -> bool {
        self.runs.range(..=n).next_back().is_some_and(|(_, end)| n < *end)
    }

    pub fn add(&mut self, first: u64, len: u64) {
        if len > 0 {
            self.runs.insert(first, first.saturating_add(len));
        }
    }

    /// It is used.
    pub fn take(&mut self, n: u64) {
        let Some((first, end)) = self.runs.range(..=n).next_back().map(|(f, e)| (*f, *e)) else {
            return;
        };
        if n >= end {
            return;
        }
        self.runs.remove(&first);
        self.add(first, n - first);
        self.add(n + 1, end - n - 1);
    }

    /// First ones and lengths.
    pub fn runs(&self) -> Vec<(u64, u64)> {
        self.runs
            .iter()
            .map(|(first, end)| (*first, end - first))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_is_taken_once() {
        let mut stock = Stock::of(&[(10, 3), (20, 1)]);
        assert_eq!(stock.len(), 4);
        for n in [11, 20, 10, 12] {
            assert!(stock.contains(n));
            stock.take(n);
            assert!(!stock.contains(n));
            stock.take(n);
        }
        assert!(stock.is_empty() && stock.runs().is_empty());
        let mut stock = Stock::of(&[(10, 5)]);
        stock.take(12);
        assert_eq!(stock.runs(), [(10, 2), (13, 2)]);
        assert!(!stock.contains(9) && !stock.contains(15));
    }
}
