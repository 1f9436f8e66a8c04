//! How a pool keeps its objects: as copies, or coded in k data and m parity shards.
//!
//! The numbers of a coded pool are those of its profile, which does not change as long as a pool was made by it; its size is k + m.

use super::{ErasureProfile, OsdMap};
use crate::pool::PgPool;

/// Shards of data, and of parity, that a code may have (docs/internals/erasure.md).
pub const DATA_SHARDS_MAX: u8 = 32;
pub const PARITY_SHARDS_MAX: u8 = 16;

/// Data and parity shards of a code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Code {
    pub k: u8,
    pub m: u8,
}

impl Code {
    /// As a profile says; None if it says no numbers that a pool can have.
    pub fn of(profile: &ErasureProfile) -> Option<Self> {
        let number = |key: &str| profile.get(key)?.parse::<u8>().ok();
        let (k, m) = (number("k")?, number("m")?);
        let fits = (1..=DATA_SHARDS_MAX).contains(&k) && (1..=PARITY_SHARDS_MAX).contains(&m);
        fits.then_some(Self { k, m })
    }

    pub fn size(self) -> u8 {
        self.k + self.m
    }

    /// What a pool is made with: one failure more can be borne, where the code has one to spare.
    pub fn min_size(self) -> u8 {
        self.k + u8::from(self.m > 1)
    }
}

impl OsdMap {
    /// The code of a pool; None of copies, and where the profile is not there or another one's.
    pub fn code_of(&self, pool: &PgPool) -> Option<Code> {
        if !pool.is_erasure() {
            return None;
        }
        let code = Code::of(self.erasure_code_profiles.get(&pool.erasure_code_profile)?)?;
        (code.size() == pool.size).then_some(code)
    }

    /// How many of a group's copies or shards have all of its objects together: 1, or k. Where nobody knows k, min_size is no
    /// less.
    pub fn enough(&self, pool: &PgPool) -> u8 {
        match (pool.is_erasure(), self.code_of(pool)) {
            (false, _) => 1,
            (true, Some(code)) => code.k,
            (true, None) => pool.min_size.max(1),
        }
    }

    /// Raw bytes for each byte of an object: as many as there are copies, or (k + m) / k.
    pub fn raw_rate(&self, pool: &PgPool) -> f64 {
        let size = f64::from(pool.size.max(1));
        self.code_of(pool).map_or(size, |code| size / f64::from(code.k))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::POOL_TYPE_ERASURE;

    fn profile(words: &[(&str, &str)]) -> ErasureProfile {
        words
            .iter()
            .map(|(k, v)| (k.to_string(), v.to_string()))
            .collect()
    }

    #[test]
    fn a_profile_gives_a_code_or_none() {
        let code = |k, m| Code::of(&profile(&[("k", k), ("m", m), ("plugin", "jerasure")]));
        assert_eq!(code("4", "2"), Some(Code { k: 4, m: 2 }));
        assert_eq!(code("4", "2").map(|c| (c.size(), c.min_size())), Some((6, 5)));
        assert_eq!(code("2", "1").map(|c| (c.size(), c.min_size())), Some((3, 2)));
        assert_eq!(code("32", "16"), Some(Code { k: 32, m: 16 }));
        for (k, m) in [
            ("33", "1"),
            ("2", "17"),
            ("0", "2"),
            ("2", "0"),
            ("x", "1"),
            ("300", "1"),
            ("", ""),
        ] {
            assert_eq!(code(k, m), None, "{k}+{m}");
        }
        assert_eq!(Code::of(&profile(&[("k", "2")])), None);
    }

    #[test]
    fn what_is_enough_and_what_it_takes() {
        let mut map = OsdMap::empty(crate::Uuid([7; 16]));
        let copies = PgPool {
            size: 3,
            ..PgPool::default()
        };
        assert_eq!((map.enough(&copies), map.raw_rate(&copies)), (1, 3.0));
        map.erasure_code_profiles
            .insert("p".into(), profile(&[("k", "4"), ("m", "2")]));
        let mut coded = PgPool {
            kind: POOL_TYPE_ERASURE,
            size: 6,
            min_size: 5,
            erasure_code_profile: "p".into(),
            ..PgPool::default()
        };
        assert_eq!((map.enough(&coded), map.raw_rate(&coded)), (4, 1.5));
        // The name is another profile's by now: nothing is given up for that.
        coded.size = 5;
        assert_eq!(map.code_of(&coded), None);
        assert_eq!((map.enough(&coded), map.raw_rate(&coded)), (5, 5.0));
    }
}
