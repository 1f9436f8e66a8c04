//! A set of numbers as half-open intervals: snapshot ids, and byte ranges of an object.
//! Invariant: ascending, not empty, not touching.

use denc::{Decode, Encode, Reader, Writer};

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Intervals(Vec<(u64, u64)>);

impl Intervals {
    pub fn new() -> Self {
        Self::default()
    }

    /// `first..end`.
    pub fn range(first: u64, end: u64) -> Self {
        let mut out = Self::new();
        out.insert(first, end);
        out
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// `(first, end)` pairs.
    pub fn intervals(&self) -> &[(u64, u64)] {
        &self.0
    }

    /// How many numbers it holds.
    pub fn total(&self) -> u64 {
        self.0.iter().map(|(f, e)| e - f).sum()
    }

    pub fn contains(&self, n: u64) -> bool {
        let i = self.0.partition_point(|(_, end)| *end <= n);
        self.0.get(i).is_some_and(|(first, _)| *first <= n)
    }

    pub fn insert(&mut self, first: u64, end: u64) {
        if first >= end {
            return;
        }
        let from = self.0.partition_point(|(_, e)| *e < first);
        let to = self.0.partition_point(|(f, _)| *f <= end);
        let merged = self.0[from..to]
            .iter()
            .fold((first, end), |(f, e), (g, h)| (f.min(*g), e.max(*h)));
        self.0.splice(from..to, [merged]);
    }

    pub fn union(&mut self, other: &Self) {
        other.0.iter().for_each(|(f, e)| self.insert(*f, *e));
    }

    /// What is in `self` and not in `other`.
    pub fn minus(&self, other: &Self) -> Self {
        let mut out = Vec::new();
        for &(mut first, end) in &self.0 {
            let i = other.0.partition_point(|(_, e)| *e <= first);
            for &(f, e) in &other.0[i..] {
                if f >= end {
                    break;
                }
                if f > first {
                    out.push((first, f));
                }
                first = first.max(e);
            }
            if first < end {
                out.push((first, end));
            }
        }
        Self(out)
    }

    /// What is in both.
    pub fn and(&self, other: &Self) -> Self {
        self.minus(&self.minus(other))
    }
}

impl Encode for Intervals {
    fn encode(&self, w: &mut Writer) {
        w.put(&self.0);
    }
}
impl Decode for Intervals {
    const MIN_SIZE: usize = 4;
    fn decode(r: &mut Reader) -> denc::Result<Self> {
        let mut out = Self::new();
        let pairs: Vec<(u64, u64)> = r.get()?;
        pairs.iter().for_each(|(f, e)| out.insert(*f, *e));
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_join_and_subtract() {
        let mut s = Intervals::new();
        for (f, e) in [(5, 7), (1, 2), (7, 8), (3, 4), (2, 3)] {
            s.insert(f, e);
        }
        assert_eq!(s.intervals(), [(1, 4), (5, 8)]);
        let check = |n, want| assert_eq!(s.contains(n), want, "{n}");
        check(0, false);
        check(1, true);
        check(3, true);
        check(4, false);
        check(7, true);
        check(8, false);
        let t = Intervals::range(2, 6);
        assert_eq!(s.minus(&t).intervals(), [(1, 2), (6, 8)]);
        assert_eq!(t.minus(&s).intervals(), [(4, 5)]);
        assert_eq!(s.and(&t).intervals(), [(2, 4), (5, 6)]);
        assert!(s.minus(&s).is_empty());
        assert_eq!(s.total(), 6);
    }

    #[test]
    fn they_agree_with_a_bitmap() {
        use proptest::prelude::*;
        let runs = proptest::collection::vec((0u64..60, 0u64..60), 0..12);
        proptest!(|(a in runs.clone(), b in runs)| {
            let set = |v: &[(u64, u64)]| {
                let mut s = Intervals::new();
                v.iter().for_each(|(f, e)| s.insert(*f, *e));
                s
            };
            let bit = |v: &[(u64, u64)], n| v.iter().any(|(f, e)| (*f..*e).contains(&n));
            let (x, y) = (set(&a), set(&b));
            for n in 0..61 {
                prop_assert_eq!(x.contains(n), bit(&a, n));
                prop_assert_eq!(x.minus(&y).contains(n), bit(&a, n) && !bit(&b, n));
                prop_assert_eq!(x.and(&y).contains(n), bit(&a, n) && bit(&b, n));
            }
            prop_assert!(x.intervals().windows(2).all(|w| w[0].1 < w[1].0));
        });
    }
}
