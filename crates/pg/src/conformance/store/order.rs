//! The order in which objects are listed, and its bounds.

use super::*;
use crate::store::ObjectReads;

pub fn run<S: Subject>(s: &mut S) {
    let mut case = Case::new(s);
    case.holds(|s| assert!(s.list(&first(), 10).unwrap().is_empty()));
    let all = names();
    let touch = |oid: &ObjectId| Op::Touch { oid: oid.clone() };
    // Half of them are there when the rest comes, and some go again.
    let (early, late): (Vec<_>, Vec<_>) = all.iter().enumerate().partition(|(i, _)| i % 2 == 0);
    case.submit(early.iter().map(|(_, o)| touch(o)).collect::<Vec<_>>());
    case.age();
    case.submit(late.iter().map(|(_, o)| touch(o)).collect::<Vec<_>>());
    case.holds(|s| check(s, &all));
    let (gone, left): (Vec<_>, Vec<_>) = all.into_iter().enumerate().partition(|(i, _)| i % 3 == 0);
    case.submit(
        gone.into_iter()
            .map(|(_, oid)| Op::Remove { oid })
            .collect::<Vec<_>>(),
    );
    let left: Vec<ObjectId> = left.into_iter().map(|(_, o)| o).collect();
    case.holds(|s| check(s, &left));
}

fn first() -> ObjectId {
    let object = HObject::min();
    ObjectId {
        shard: i8::MIN,
        object,
    }
}

/// Ascending. They differ in each part of a name, and in such ways as an encoding may get wrong.
fn names() -> Vec<ObjectId> {
    let mut all = Vec::new();
    for (pool, shard) in [(-3, -1), (1, -1), (1, 0), (1, 5), (256, -1)] {
        for hash in [0, 1, 2, 0x8000_0000, 0xffff_ffff] {
            for (nspace, key, name) in [
                ("", "", "a"),
                ("", "", "a\0"),
                ("", "", "a\0b"),
                ("", "", "ab"),
                ("", "b", "a"),
                ("", "a\u{1}", "c"),
                ("n", "", "a"),
                ("n\0", "", "a"),
                ("", "", "\u{ff}"),
                ("", "", ""),
            ] {
                for snap in [1, 300, NOSNAP] {
                    let object = HObject::new(pool, hash, bytes(nspace), bytes(key), bytes(name), snap);
                    all.push(ObjectId { shard, object });
                }
            }
        }
    }
    all.sort();
    all
}

/// In pages of several sizes each object comes once; a bound is the first one listed, or the last.
pub fn check(s: &mut impl ObjectReads, all: &[ObjectId]) {
    let last = ObjectId::replicated(HObject::max());
    assert_eq!(s.list(&first(), usize::MAX).unwrap(), all);
    assert!(s.list(&first(), 0).unwrap().is_empty());
    assert!(s.list(&last, 9).unwrap().is_empty());
    assert_eq!(s.list_within(&first(), &last, usize::MAX).unwrap(), all);
    let mut at = 0;
    while at < all.len() {
        let most = 1 + at % 7;
        let page = s.list(&all[at], most).unwrap();
        let end = (at + most).min(all.len());
        assert_eq!(page, all[at..end], "from {at}");
        let to = (at + 3).min(all.len() - 1);
        let end = end.min(to + 1);
        assert_eq!(
            s.list_within(&all[at], &all[to], most).unwrap(),
            all[at..end],
            "{at} to {to}"
        );
        if at > 0 {
            assert!(s.list_within(&all[at], &all[at - 1], 9).unwrap().is_empty());
        }
        at += most;
    }
    for (i, o) in all.iter().enumerate().step_by(11) {
        // From names that are not there.
        let mut next = o.clone();
        next.object.oid = [&o.object.oid[..], b"\0\0"].concat().into();
        let expected = all.iter().find(|o| **o >= next).cloned();
        assert_eq!(s.list(&next, 1).unwrap().pop(), expected, "behind {i}");
    }
}
