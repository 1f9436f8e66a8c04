//! Units of one object on their way here: whom to ask, and what the answers give.
//!
//! The shards that are wanted are asked themselves where that is possible; else as many others as give them. A shard that cannot
//! be read, or has another version of the object, is replaced by one that was not asked yet. Units are never mixed of two versions.
//!
//! Bounds: each shard is asked once, but for one whose answer was lost.

use super::cut::Coding;
use bytes::Bytes;
use std::collections::BTreeSet;
use std::ops::Range;
use types::EVersion;

/// Not enough shards can be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("shards {failed:?} cannot be read, and the others are too few for {wanted:?}")]
pub(crate) struct TooFew {
    failed: Vec<usize>,
    wanted: Vec<usize>,
}

#[derive(Debug)]
pub(crate) struct Collect {
    version: EVersion,
    stripes: Range<u64>,
    wanted: Vec<usize>,
    asked: BTreeSet<usize>,
    here: Vec<(usize, Vec<u8>)>,
    failed: BTreeSet<usize>,
}

impl Collect {
    /// What the shards `wanted` have of these stripes of an object that has this version.
    pub fn new(version: EVersion, stripes: Range<u64>, wanted: Vec<usize>) -> Self {
        Self {
            version,
            stripes,
            wanted,
            asked: BTreeSet::new(),
            here: Vec::new(),
            failed: BTreeSet::new(),
        }
    }

    /// The data shards that have a range of the object.
    #[cfg(test)]
    pub fn of_range(version: EVersion, coding: &Coding, offset: u64, len: u64) -> Self {
        let layout = coding.layout;
        // A range of a whole stripe lies on all.
        let first = layout.pieces(offset, len.min(layout.stripe()));
        let wanted: BTreeSet<usize> = first.map(|p| p.shard).collect();
        let stripes = layout.stripes(offset, len);
        Self::new(version, stripes, wanted.into_iter().collect())
    }

    /// What is to be read of each shard, as offset and length.
    pub fn extent(&self, coding: &Coding) -> (u64, u64) {
        coding.layout.extent_on_shard(&self.stripes)
    }

    fn is_here(&self, shard: usize) -> bool {
        self.here.iter().any(|(n, _)| *n == shard)
    }

    /// Whom to ask now, out of those that can be (who answers fastest first). Empty: answers are on their way, or all have come.
    pub fn ask(&mut self, coding: &Coding, can: &[usize]) -> Result<Vec<usize>, TooFew> {
        let failed = &self.failed;
        let good = |n: &usize| !failed.contains(n) && (can.contains(n) || self.is_here(*n));
        let need = match self.wanted.iter().all(good) {
            true => self.wanted.clone(),
            false => {
                // What is here or under way costs nothing.
                let here = self.here.iter().map(|(n, _)| *n);
                let open = self
                    .asked
                    .iter()
                    .copied()
                    .filter(|n| good(n) && !self.is_here(*n));
                let more = can.iter().copied().filter(|n| good(n) && !self.asked.contains(n));
                let all: Vec<usize> = here.chain(open).chain(more).collect();
                let recipe = coding.code.recipe(&all, &self.wanted);
                let too_few = |_| TooFew {
                    failed: self.failed.iter().copied().collect(),
                    wanted: self.wanted.clone(),
                };
                recipe.map_err(too_few)?.from().to_vec()
            }
        };
        let new: Vec<usize> = need.into_iter().filter(|n| self.asked.insert(*n)).collect();
        Ok(new)
    }

    /// This one is not asked at all.
    pub fn leave_out(&mut self, shard: usize) {
        self.failed.insert(shard);
    }

    /// Its answer will not come: it may be asked again.
    pub fn forget(&mut self, shard: usize) {
        if !self.is_here(shard) {
            self.asked.remove(&shard);
        }
    }

    /// Whether it comes to an end if all of these could be asked.
    pub fn may_come(&self, coding: &Coding, all: &[usize]) -> bool {
        let here = self.here.iter().map(|(n, _)| *n);
        let good = all.iter().copied().filter(|n| !self.failed.contains(n));
        let good: BTreeSet<usize> = here.chain(good).collect();
        let good: Vec<usize> = good.into_iter().collect();
        self.wanted.iter().all(|n| good.contains(n)) || coding.code.recipe(&good, &self.wanted).is_ok()
    }

    /// An answer: the version that the shard has, and its bytes, cut off at the shard's end. None: they cannot be read.
    pub fn came(&mut self, coding: &Coding, shard: usize, version: EVersion, bytes: Option<Bytes>) {
        let len = self.extent(coding).1 as usize;
        let bytes = bytes.filter(|b| version == self.version && b.len() <= len);
        match bytes {
            _ if !self.asked.contains(&shard) || self.is_here(shard) || self.failed.contains(&shard) => {}
            Some(bytes) => {
                let mut units = bytes.to_vec();
                units.resize(len, 0);
                self.here.push((shard, units));
            }
            None => {
                self.failed.insert(shard);
            }
        }
    }

    /// Those that could not be read.
    #[cfg(test)]
    pub fn failed(&self) -> &BTreeSet<usize> {
        &self.failed
    }

    /// Units of the wanted shards, in their order; None: not enough has come.
    pub fn units(&self, coding: &Coding) -> Option<Vec<Vec<u8>>> {
        let own = |n: &usize| {
            self.here
                .iter()
                .find(|(here, _)| here == n)
                .map(|(_, u)| u.clone())
        };
        let all: Option<Vec<Vec<u8>>> = self.wanted.iter().map(own).collect();
        all.or_else(|| {
            let present: Vec<(usize, &[u8])> = self.here.iter().map(|(n, u)| (*n, u.as_slice())).collect();
            coding.code.rebuild(&present, &self.wanted).ok()
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const V: EVersion = EVersion { epoch: 3, version: 8 };

    /// Units of all shards, of an object of so many stripes.
    fn shards(coding: &Coding, stripes: u64) -> Vec<Vec<u8>> {
        let bytes: Vec<u8> = (0..stripes * coding.layout.stripe())
            .map(|n| (n * 7 % 251) as u8)
            .collect();
        let mut all = coding.layout.cut(&bytes);
        let data: Vec<&[u8]> = all.iter().map(Vec::as_slice).collect();
        let parity = coding.code.encode(&data).unwrap();
        all.extend(parity);
        all
    }

    #[test]
    fn a_range_asks_the_shards_on_which_it_lies() {
        let coding = Coding::new(4, 2, 8).unwrap();
        let mut c = Collect::of_range(V, &coding, 10, 10);
        assert_eq!(c.ask(&coding, &[0, 1, 2, 3, 4, 5]), Ok(vec![1, 2]));
        assert_eq!(c.ask(&coding, &[0, 1, 2, 3, 4, 5]), Ok(vec![]), "once");
        assert_eq!(c.extent(&coding), (0, 8));
        let mut c = Collect::of_range(V, &coding, 30, 10);
        assert_eq!(
            c.ask(&coding, &[0, 1, 2, 3, 4, 5]),
            Ok(vec![0, 3]),
            "over two stripes"
        );
        assert_eq!(c.extent(&coding), (0, 16));
    }

    #[test]
    fn units_of_another_version_do_not_count() {
        let coding = Coding::new(2, 1, 8).unwrap();
        let all = shards(&coding, 1);
        let mut c = Collect::new(V, 0..1, vec![0]);
        assert_eq!(c.ask(&coding, &[0, 1, 2]), Ok(vec![0]));
        c.came(&coding, 1, V, Some(all[1].clone().into()));
        assert_eq!(c.units(&coding), None, "nobody asked for it");
        c.came(&coding, 0, EVersion::new(3, 7), Some(all[0].clone().into()));
        assert_eq!(c.units(&coding), None);
        assert_eq!(c.ask(&coding, &[0, 1, 2]), Ok(vec![1, 2]));
        c.came(&coding, 1, V, Some(all[1].clone().into()));
        c.came(&coding, 2, V, Some(all[2].clone().into()));
        assert_eq!(c.units(&coding), Some(vec![all[0].clone()]));
    }

    proptest! {
        /// Whoever fails, in whatever order answers come: the right bytes as long as k can be read, an error else.
        #[test]
        fn any_k_are_enough(
            k in 1..=5usize,
            m in 1..=4usize,
            wants in proptest::collection::vec(any::<bool>(), 9),
            fails in proptest::collection::vec(any::<bool>(), 9),
            can in Just((0..9).collect::<Vec<usize>>()).prop_shuffle(),
            picks in proptest::collection::vec(0..9usize, 40),
        ) {
            let coding = Coding::new(k, m, 8).unwrap();
            let all = shards(&coding, 3);
            let can: Vec<usize> = can.into_iter().filter(|n| *n < k + m).collect();
            let wanted: Vec<usize> = (0..k + m).filter(|n| wants[*n]).collect();
            let left = (0..k + m).filter(|n| !fails[*n]).count();
            let mut c = Collect::new(V, 0..3, wanted.clone());
            let (mut open, mut picks) = (Vec::new(), picks.into_iter().cycle());
            let units = loop {
                if let Some(units) = c.units(&coding) {
                    break Some(units);
                }
                match c.ask(&coding, &can) {
                    Ok(more) => open.extend(more),
                    Err(_) => break None,
                }
                prop_assert!(!open.is_empty(), "it waits for somebody");
                let shard = open.remove(picks.next().unwrap() % open.len());
                let bytes = (!fails[shard]).then(|| Bytes::from(all[shard].clone()));
                c.came(&coding, shard, V, bytes);
            };
            let direct = wanted.iter().all(|n| !fails[*n]);
            prop_assert_eq!(units.is_some(), direct || left >= k);
            if let Some(units) = units {
                let want: Vec<Vec<u8>> = wanted.iter().map(|n| all[*n].clone()).collect();
                prop_assert_eq!(units, want);
            }
            prop_assert!(c.failed().iter().all(|n| fails[*n]));
        }
    }
}
