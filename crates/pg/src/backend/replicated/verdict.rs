//! Which copy of an object is good, and what is wrong with the others: a pure judgement over digests.
//!
//! Invariants: a copy with a fault of its own is never good. Among the others those that are the same are one *party*;
//! the largest is right, the primary's of equal ones. Names and bits of errors are Ceph's (docs/protocol/osd.md).

use crate::backend::findings::{Inconsistent, Side, deep_errors, object_error, own_errors};
use messages::osd::peer_scrub::ObjectDigest;
use types::{HObject, OsdId};

/// What only a deep look finds.
const DEEP_OBJECT: u64 = object_error::DATA_DIGEST | object_error::OMAP_DIGEST;

/// How a copy differs from the good one.
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
    let both = |a: Option<u32>, b: Option<u32>| matches!((a, b), (Some(a), Some(b)) if a != b);
    set(object_error::DATA_DIGEST, both(good.data, d.data));
    set(object_error::OMAP_DIGEST, both(good.omap, d.omap));
    out
}

/// Judges one object; None: all copies are the same and whole. `sides`: every copy that there should be, the
/// primary's first.
pub fn judge(object: &HObject, sides: &[(OsdId, Option<&ObjectDigest>)]) -> Option<Inconsistent> {
    let own: Vec<u64> = sides.iter().map(|(_, d)| own_errors(*d)).collect();
    let whole = |at: usize| if own[at] == 0 { sides[at].1 } else { None };
    let same = |a: &ObjectDigest, b: &ObjectDigest| a == b;
    let party = |at: usize| {
        let Some(d) = whole(at) else { return 0 };
        let other = |o: &usize| whole(*o).is_some_and(|x| same(d, x));
        (0..sides.len()).filter(other).count()
    };
    // Of equal parties the first one's: the primary's, if it is whole.
    let good = (0..sides.len())
        .filter(|at| whole(*at).is_some())
        .max_by_key(|at| (party(*at), std::cmp::Reverse(*at)));
    let mut errors = 0;
    let mut out = Vec::with_capacity(sides.len());
    let (mut shallow, mut deep) = (0, 0);
    for (at, (osd, digest)) in sides.iter().enumerate() {
        let differs = match (good.and_then(whole), digest) {
            (Some(g), Some(d)) => differences(g, d),
            _ => 0,
        };
        let bad = own[at] != 0 || differs != 0;
        errors |= differs;
        if bad {
            let light = own[at] & !deep_errors() != 0 || differs & !DEEP_OBJECT != 0;
            shallow += u32::from(light);
            deep += u32::from(own[at] & deep_errors() != 0 || differs & DEEP_OBJECT != 0);
        }
        out.push(Side {
            osd: *osd,
            shard: -1,
            digest: digest.cloned(),
            errors: own[at],
            bad,
        });
    }
    if !out.iter().any(|s| s.bad) {
        return None;
    }
    Some(Inconsistent {
        object: object.clone(),
        errors,
        sides: out,
        good: good.map(|at| sides[at].0),
        shallow,
        deep,
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::backend::findings::shard_error;
    use bytes::Bytes;
    use messages::osd::peer_scrub::fault;
    use types::EVersion;

    fn digest(data: u32) -> ObjectDigest {
        ObjectDigest {
            version: EVersion::new(1, 2),
            size: 5,
            data: Some(data),
            omap: Some(0),
            ..ObjectDigest::of(object())
        }
    }

    fn object() -> HObject {
        let oid = Bytes::from_static(b"a");
        HObject::new(1, 2, Bytes::new(), Bytes::new(), oid, types::NOSNAP)
    }

    fn check(copies: &[Option<ObjectDigest>]) -> Option<Inconsistent> {
        let sides: Vec<_> = (0..).zip(copies.iter().map(Option::as_ref)).collect();
        judge(&object(), &sides)
    }

    #[test]
    fn copies_that_are_the_same_and_whole_are_no_case() {
        assert_eq!(check(&[Some(digest(1)), Some(digest(1))]), None);
    }

    #[test]
    fn the_majority_is_right_and_the_primary_of_equals() {
        let v = check(&[Some(digest(1)), Some(digest(2)), Some(digest(2))]).unwrap();
        assert_eq!((v.good, v.bad().collect::<Vec<_>>()), (Some(1), vec![0]));
        assert_eq!((v.errors, v.shallow, v.deep), (object_error::DATA_DIGEST, 0, 1));
        let v = check(&[Some(digest(1)), Some(digest(2))]).unwrap();
        assert_eq!((v.good, v.bad().collect::<Vec<_>>()), (Some(0), vec![1]));
    }

    #[test]
    fn a_copy_with_a_fault_is_never_good() {
        let broken = ObjectDigest {
            faults: fault::READ,
            data: None,
            ..digest(1)
        };
        let v = check(&[Some(broken.clone()), Some(digest(1)), Some(broken.clone())]).unwrap();
        assert_eq!((v.good, v.bad().collect::<Vec<_>>()), (Some(1), vec![0, 2]));
        assert_eq!((v.union_errors(), v.errors), (shard_error::READ, 0));
        let v = check(&[Some(broken.clone()), Some(broken)]).unwrap();
        assert_eq!(v.good, None);
    }

    /// Copies of one version that only have blocks which cannot be read make a whole one together.
    #[test]
    fn copies_that_are_damaged_in_parts_may_make_a_whole() {
        let part = |f: fn(&mut ObjectDigest)| {
            let mut d = ObjectDigest {
                faults: fault::READ,
                data: None,
                ..digest(1)
            };
            f(&mut d);
            Some(d)
        };
        let partly = |copies: &[Option<ObjectDigest>]| check(copies).unwrap().partly();
        let (same, older) = (part(|_| ()), part(|d| d.version = EVersion::new(1, 1)));
        let unknown = part(|d| d.faults |= fault::INFO_MISSING);
        assert_eq!(partly(&[same.clone(), None, same.clone()]), [0, 2]);
        assert_eq!(partly(&[older.clone(), same.clone(), same.clone()]), [1, 2]);
        assert_eq!(partly(&[unknown, same.clone(), older]), [0; 0]);
        assert_eq!(
            partly(&[same.clone(), same, Some(digest(1))]),
            [0; 0],
            "one is whole"
        );
    }

    #[test]
    fn a_missing_copy_is_bad_whatever_the_primary_has() {
        let v = check(&[None, Some(digest(1)), None]).unwrap();
        assert_eq!((v.good, v.bad().collect::<Vec<_>>()), (Some(1), vec![0, 2]));
        assert_eq!((v.shallow, v.deep), (2, 0));
        assert_eq!(v.union_errors(), shard_error::MISSING);
    }

    #[test]
    fn differences_have_their_names() {
        let other = |f: fn(&mut ObjectDigest)| {
            let mut d = digest(1);
            f(&mut d);
            check(&[Some(digest(1)), Some(d)]).unwrap().errors
        };
        assert_eq!(other(|d| d.attrs = 9), object_error::ATTR_VALUE);
        assert_eq!(other(|d| (d.attrs, d.names) = (9, 9)), object_error::ATTR_NAME);
        assert_eq!(other(|d| d.omap = Some(9)), object_error::OMAP_DIGEST);
        assert_eq!(other(|d| d.size = 9), object_error::SIZE);
        assert_eq!(other(|d| d.version = EVersion::new(1, 1)), object_error::INFO);
    }
}
