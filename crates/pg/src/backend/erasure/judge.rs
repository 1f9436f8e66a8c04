//! Which shards of an object are good, and what is wrong with the others: a pure judgement over digests.
//!
//! Invariants: a shard with a fault of its own is never good. Of the others those that are of one version, size and attributes are one
//! *party*; the largest is right, the primary's of equal ones, if it has the k shards that an object needs. Where all of it was read
//! (a deep look) the sums of its units have to be what the code makes of one another: a shard is named as bad where those that are left
//! without it are more than k and fit. Where none can be named each may be the bad one: that is told of the object, and nothing is good.
//!
//! Not here: making a shard good.

use super::cut::Coding;
use crate::backend::findings::{Inconsistent, Side, deep_errors, object_error, own_errors, shard_error};
use messages::osd::peer_scrub::ObjectDigest;
use types::{HObject, OsdId};

/// What one shard has.
pub(crate) struct Found<'a> {
    pub osd: OsdId,
    pub shard: usize,
    /// None: nothing.
    pub digest: Option<&'a ObjectDigest>,
}

/// How a shard stands to the party that is right.
fn differences(good: &ObjectDigest, d: &ObjectDigest) -> u64 {
    let mut out = 0;
    let mut set = |bit: u64, on: bool| out |= if on { bit } else { 0 };
    set(object_error::SIZE, good.size != d.size);
    set(object_error::ATTR_NAME, good.names != d.names);
    set(
        object_error::ATTR_VALUE,
        good.names == d.names && good.attrs != d.attrs && good.version == d.version,
    );
    set(object_error::INFO, good.version != d.version);
    out
}

/// What the code says of the sums of some shards.
#[derive(Debug, PartialEq, Eq)]
enum Fit {
    All,
    /// These do not fit, and all others do.
    Without(Vec<usize>),
    Nobody,
}

/// `sums`: of whole shards.
fn fit(coding: &Coding, sums: &[(usize, u64)]) -> Fit {
    let k = coding.layout.k();
    let fits = |left: &[(usize, u64)]| {
        let bytes: Vec<(usize, [u8; 8])> = left.iter().map(|(n, s)| (*n, s.to_le_bytes())).collect();
        let present: Vec<(usize, &[u8])> = bytes.iter().take(k).map(|(n, s)| (*n, &s[..])).collect();
        let wanted: Vec<usize> = left.iter().skip(k).map(|(n, _)| *n).collect();
        let made = coding.code.rebuild(&present, &wanted);
        made.is_ok_and(|made| {
            made.iter()
                .zip(bytes.iter().skip(k))
                .all(|(m, (_, s))| m[..] == s[..])
        })
    };
    if fits(sums) {
        return Fit::All;
    }
    let without = |bad: &[usize]| -> Vec<(usize, u64)> {
        let left = sums.iter().filter(|(n, _)| !bad.contains(n));
        left.copied().collect()
    };
    // Any k fit one another: there has to be one more.
    let tells = |bad: &Vec<usize>| sums.len() - bad.len() > k && fits(&without(bad));
    let one = sums.iter().map(|(n, _)| vec![*n]);
    let ones: Vec<Vec<usize>> = one.filter(tells).collect();
    if let [bad] = &ones[..] {
        return Fit::Without(bad.clone());
    }
    let pairs = sums.iter().enumerate().flat_map(|(at, (a, _))| {
        let behind = sums.iter().skip(at + 1);
        behind.map(move |(b, _)| vec![*a, *b])
    });
    let twos: Vec<Vec<usize>> = pairs.filter(|_| ones.is_empty()).filter(tells).collect();
    match &twos[..] {
        [bad] => Fit::Without(bad.clone()),
        _ => Fit::Nobody,
    }
}

/// Those without errors of their own that are like one another.
fn largest_party(found: &[Found<'_>], own: &[u64]) -> Vec<usize> {
    let whole = |at: usize| found[at].digest.filter(|_| own[at] == 0);
    let like = |at: usize| -> Vec<usize> {
        let Some(d) = whole(at) else { return Vec::new() };
        let same = |o: &usize| whole(*o).is_some_and(|x| differences(d, x) == 0);
        (0..found.len()).filter(same).collect()
    };
    let all = (0..found.len()).map(like);
    all.reduce(|a, b| if b.len() > a.len() { b } else { a })
        .unwrap_or_default()
}

/// Judges one object; None: all shards are of one version and whole. `found`: every shard that there should be, the primary's first.
pub(crate) fn judge(object: &HObject, coding: &Coding, found: &[Found<'_>]) -> Option<Inconsistent> {
    let mut own: Vec<u64> = found.iter().map(|f| own_errors(f.digest)).collect();
    let party = largest_party(found, &own);
    let right = party.first().and_then(|at| found[*at].digest);
    let mut errors = 0;
    let mut fits = true;
    let sums: Option<Vec<(usize, u64)>> = party
        .iter()
        .map(|at| Some((found[*at].shard, found[*at].digest?.units?)))
        .collect();
    if let Some(sums) = sums.filter(|s| s.len() > coding.layout.k()) {
        match fit(coding, &sums) {
            Fit::All => {}
            Fit::Without(bad) => {
                for (f, own) in found.iter().zip(&mut own).filter(|(f, _)| bad.contains(&f.shard)) {
                    *own |= shard_error::EC_HASH;
                    tracing::error!("{object}: what shard {} has does not fit the others", f.shard);
                }
            }
            Fit::Nobody => {
                fits = false;
                errors |= object_error::DATA_DIGEST;
            }
        }
    }
    let mut sides = Vec::with_capacity(found.len());
    let (mut shallow, mut deep) = (0, u32::from(!fits));
    for (f, own) in found.iter().zip(&own) {
        let differs = match (right, f.digest) {
            (Some(r), Some(d)) => differences(r, d),
            _ => 0,
        };
        errors |= differs;
        shallow += u32::from(own & !deep_errors() != 0 || differs != 0);
        deep += u32::from(own & deep_errors() != 0);
        sides.push(Side {
            osd: f.osd,
            shard: f.shard as i8,
            digest: f.digest.cloned(),
            errors: *own,
            bad: *own != 0 || differs != 0 || !fits,
        });
    }
    if fits && sides.iter().all(|s| !s.bad) {
        return None;
    }
    let good = sides.iter().filter(|s| !s.bad).count();
    let enough = fits && good >= coding.layout.k();
    Some(Inconsistent {
        object: object.clone(),
        errors,
        good: sides.iter().find(|s| !s.bad && enough).map(|s| s.osd),
        sides,
        shallow,
        deep,
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use messages::osd::peer_scrub::fault;
    use types::EVersion;

    fn object() -> HObject {
        let oid = Bytes::from_static(b"a");
        HObject::new(1, 2, Bytes::new(), Bytes::new(), oid, types::NOSNAP)
    }

    fn coding(k: usize, m: usize) -> Coding {
        Coding::new(k, m, 8).unwrap()
    }

    /// Digests of whole shards, as a deep look tells them.
    fn whole(c: &Coding) -> Vec<Option<ObjectDigest>> {
        let data: Vec<Vec<u8>> = (0..c.layout.k()).map(|n| vec![n as u8 * 3 + 1; 64]).collect();
        let units: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
        let parity = c.code.encode(&units).unwrap();
        let digest = |bytes: &Vec<u8>| {
            let mut sum = erasure::Sum::default();
            sum.add(bytes);
            Some(ObjectDigest {
                version: EVersion::new(1, 2),
                size: 5,
                attrs: 7,
                names: 8,
                data: Some(u32::from(bytes[0])),
                omap: Some(0),
                units: Some(sum.value()),
                ..ObjectDigest::of(object())
            })
        };
        data.iter().chain(&parity).map(digest).collect()
    }

    fn check(c: &Coding, digests: &[Option<ObjectDigest>]) -> Option<Inconsistent> {
        let found: Vec<Found<'_>> = digests
            .iter()
            .enumerate()
            .map(|(shard, digest)| Found {
                osd: 10 + shard as OsdId,
                shard,
                digest: digest.as_ref(),
            })
            .collect();
        judge(&object(), c, &found)
    }

    fn bad(w: &Inconsistent) -> Vec<i8> {
        w.sides.iter().filter(|s| s.bad).map(|s| s.shard).collect()
    }

    #[test]
    fn shards_that_fit_are_no_case_and_none_is_like_another() {
        for (k, m) in [(2, 1), (4, 2), (1, 2)] {
            let c = coding(k, m);
            assert_eq!(check(&c, &whole(&c)), None);
            let light: Vec<_> = whole(&c)
                .into_iter()
                .map(|d| {
                    d.map(|d| ObjectDigest {
                        units: None,
                        data: None,
                        ..d
                    })
                })
                .collect();
            assert_eq!(check(&c, &light), None);
        }
    }

    #[test]
    fn faults_and_differences_name_the_shard() {
        let c = coding(2, 2);
        type Change = (fn(&mut ObjectDigest), u64, u64, (u32, u32));
        let changes: [Change; 4] = [
            (|d| d.faults = fault::READ, shard_error::READ, 0, (0, 1)),
            (|d| d.size = 9, 0, object_error::SIZE, (1, 0)),
            (|d| d.attrs = 9, 0, object_error::ATTR_VALUE, (1, 0)),
            (|d| d.version = EVersion::new(1, 1), 0, object_error::INFO, (1, 0)),
        ];
        for shard in 0..4 {
            for (change, own, errors, counts) in &changes {
                let mut all = whole(&c);
                all[shard].iter_mut().for_each(change);
                let w = check(&c, &all).unwrap();
                assert_eq!(
                    (bad(&w), w.union_errors(), w.errors),
                    (vec![shard as i8], *own, *errors)
                );
                assert_eq!((w.shallow, w.deep), *counts);
                assert_eq!(w.good, Some(if shard == 0 { 11 } else { 10 }));
            }
            let mut all = whole(&c);
            all[shard] = None;
            let w = check(&c, &all).unwrap();
            assert_eq!(
                (bad(&w), w.union_errors()),
                (vec![shard as i8], shard_error::MISSING)
            );
        }
    }

    /// Nothing can be read, and nothing tells but the others.
    #[test]
    fn parity_names_what_others_can_prove() {
        for (k, m) in [(2, 2), (4, 2), (4, 3), (1, 2), (8, 4)] {
            let c = coding(k, m);
            for shard in 0..k + m {
                let mut all = whole(&c);
                all[shard]
                    .iter_mut()
                    .for_each(|d| d.units = d.units.map(|u| u ^ 0x5500));
                let w = check(&c, &all).unwrap();
                assert_eq!(
                    (bad(&w), w.union_errors()),
                    (vec![shard as i8], shard_error::EC_HASH),
                    "{k} + {m}"
                );
                assert_eq!((w.shallow, w.deep, w.good.is_some()), (0, 1, true));
            }
        }
        let c = coding(4, 3);
        for (a, b) in [(0, 1), (0, 6), (3, 4), (5, 6)] {
            let mut all = whole(&c);
            all[a].iter_mut().for_each(|d| d.units = d.units.map(|u| u ^ 1));
            all[b].iter_mut().for_each(|d| d.units = d.units.map(|u| u ^ 77));
            let w = check(&c, &all).unwrap();
            assert_eq!((bad(&w), w.deep), (vec![a as i8, b as i8], 2));
        }
    }

    /// With k + 1 shards one that is wrong shows, and not which.
    #[test]
    fn what_nobody_can_prove_names_nobody() {
        for (k, m, lost) in [(2, 1, None), (4, 1, None), (2, 2, Some(3))] {
            let c = coding(k, m);
            let mut all = whole(&c);
            all[0].iter_mut().for_each(|d| d.units = d.units.map(|u| u ^ 1));
            if let Some(lost) = lost {
                all[lost] = None;
            }
            let w = check(&c, &all).unwrap();
            assert_eq!((w.good, w.errors), (None, object_error::DATA_DIGEST));
            assert_eq!(bad(&w), (0..(k + m) as i8).collect::<Vec<_>>(), "each may be it");
            assert_eq!(w.union_errors(), lost.map_or(0, |_| shard_error::MISSING));
            assert_eq!(w.deep, 1);
        }
    }

    /// Those that are left are too few to make the others of.
    #[test]
    fn fewer_than_an_object_needs_are_not_good() {
        let c = coding(3, 2);
        let mut all = whole(&c);
        all[..3].iter_mut().for_each(|d| *d = None);
        let w = check(&c, &all).unwrap();
        assert_eq!((bad(&w), w.good), (vec![0, 1, 2], None));
        let mut all = whole(&c);
        all[..2].iter_mut().for_each(|d| *d = None);
        assert_eq!(check(&c, &all).unwrap().good, Some(12));
    }
}
