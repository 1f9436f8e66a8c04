//! `interval_set` of snapshot ids: disjoint ranges, ascending, never adjacent
//! (docs/protocol/ceph/03-placement.md, section 0).

use denc::{Decode, Encode, Reader, Result, Writer};
use std::collections::BTreeMap;

/// A set of `u64`, kept as start -> length.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct IntervalSet(BTreeMap<u64, u64>);

impl IntervalSet {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Ranges as (start, length).
    pub fn ranges(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.0.iter().map(|(s, n)| (*s, *n))
    }

    /// Number of members.
    pub fn count(&self) -> u64 {
        self.0.values().fold(0, |a, n| a.saturating_add(*n))
    }

    pub fn contains(&self, v: u64) -> bool {
        self.0.range(..=v).next_back().is_some_and(|(s, n)| v - s < *n)
    }

    pub fn insert(&mut self, v: u64) {
        self.insert_range(v, 1);
    }

    /// Adds `start..start + len`, merging with what it touches. A range past the end of `u64` is cut there.
    pub fn insert_range(&mut self, start: u64, len: u64) {
        if len == 0 {
            return;
        }
        let (mut start, mut end) = (start, start.saturating_add(len));
        if let Some((s, n)) = self.0.range(..=start).next_back()
            && s + n >= start
        {
            (start, end) = (*s, end.max(s + n));
        }
        while let Some((s, n)) = self.0.range(start..=end).next() {
            end = end.max(s + n);
            let s = *s;
            self.0.remove(&s);
        }
        self.0.insert(start, end - start);
    }

    pub fn remove(&mut self, v: u64) {
        self.remove_range(v, 1);
    }

    /// Takes `start..start + len` out; members or not.
    pub fn remove_range(&mut self, start: u64, len: u64) {
        let end = start.saturating_add(len);
        let touched: Vec<(u64, u64)> = self
            .0
            .range(..end)
            .rev()
            .take_while(|(s, n)| *s + *n > start)
            .map(|(s, n)| (*s, *n))
            .collect();
        for (s, n) in touched {
            self.0.remove(&s);
            if s < start {
                self.0.insert(s, start - s);
            }
            if s + n > end {
                self.0.insert(end, s + n - end);
            }
        }
    }

    pub fn union(&mut self, other: &Self) {
        for (s, n) in other.ranges() {
            self.insert_range(s, n);
        }
    }

    pub fn subtract(&mut self, other: &Self) {
        for (s, n) in other.ranges() {
            self.remove_range(s, n);
        }
    }
}

impl FromIterator<u64> for IntervalSet {
    fn from_iter<I: IntoIterator<Item = u64>>(iter: I) -> Self {
        let mut set = Self::new();
        iter.into_iter().for_each(|v| set.insert(v));
        set
    }
}

/// `[1~3,7~1]`, the form in Ceph's text output.
impl std::fmt::Display for IntervalSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("[")?;
        for (i, (s, n)) in self.ranges().enumerate() {
            write!(f, "{}{s:x}~{n:x}", if i > 0 { "," } else { "" })?;
        }
        f.write_str("]")
    }
}

impl Encode for IntervalSet {
    fn encode(&self, w: &mut Writer) {
        w.put(&self.0);
    }
}

impl Decode for IntervalSet {
    const MIN_SIZE: usize = 4;
    fn decode(r: &mut Reader) -> Result<Self> {
        let n = r.count(16)?;
        let mut set = Self::new();
        for _ in 0..n {
            let (start, len) = (r.u64()?, r.u64()?);
            if start.checked_add(len).is_none() {
                return Err(r.invalid("interval past the end"));
            }
            set.insert_range(start, len);
        }
        Ok(set)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(set: &IntervalSet, want: &[(u64, u64)]) {
        assert_eq!(set.ranges().collect::<Vec<_>>(), want);
    }

    #[test]
    fn ranges_merge_and_split() {
        let mut s = IntervalSet::new();
        s.insert(5);
        s.insert(7);
        check(&s, &[(5, 1), (7, 1)]);
        s.insert(6);
        check(&s, &[(5, 3)]);
        s.insert_range(1, 2);
        s.insert_range(2, 10);
        check(&s, &[(1, 11)]);
        s.remove(4);
        check(&s, &[(1, 3), (5, 7)]);
        s.remove_range(2, 4);
        check(&s, &[(1, 1), (6, 6)]);
        assert!(s.contains(1) && s.contains(11) && !s.contains(12) && !s.contains(2));
        assert_eq!(s.count(), 7);
        s.remove_range(0, u64::MAX);
        assert!(s.is_empty());
    }
}
