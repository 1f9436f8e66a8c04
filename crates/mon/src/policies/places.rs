//! Sets of a placement group counted: who is there, who is to come. Sets of shards have holes ([`crush::ITEM_NONE`]), which are nobody.

use types::OsdId;
use types::osdmap::UpActing;

/// Those who are there.
pub fn present(set: &[OsdId]) -> impl Iterator<Item = OsdId> + '_ {
    set.iter().copied().filter(|o| *o != crush::ITEM_NONE)
}

/// Copies or shards of `size` that nobody has.
pub fn lacking(acting: &[OsdId], size: usize) -> usize {
    size.saturating_sub(present(acting).count())
}

/// Those whom CRUSH wants and who do not have it.
pub fn to_come(sets: &UpActing) -> usize {
    present(&sets.up).filter(|o| !sets.acting.contains(o)).count()
}

/// True if nothing is to move. Shards stay with who has them though CRUSH lists it at another one.
pub fn in_place(up: &[OsdId], acting: &[OsdId], coded: bool) -> bool {
    let same = |a: &[OsdId], b: &[OsdId]| present(a).all(|o| b.contains(&o));
    match coded {
        false => up == acting,
        true => same(up, acting) && same(acting, up),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crush::ITEM_NONE;

    #[test]
    fn holes_are_nobody() {
        let sets = UpActing {
            up: vec![4, 1, ITEM_NONE],
            acting: vec![1, ITEM_NONE, 2],
            ..UpActing::default()
        };
        assert_eq!((lacking(&sets.acting, 3), to_come(&sets)), (1, 1));
        assert!(!in_place(&sets.up, &sets.acting, true));
        assert!(in_place(&[2, 1, 0], &[0, 1, 2], true) && !in_place(&[2, 1, 0], &[0, 1, 2], false));
        assert!(in_place(&[0, ITEM_NONE, 2], &[0, ITEM_NONE, 2], true));
        assert!(!in_place(&[0, ITEM_NONE, 2], &[0, 1, 2], true));
    }
}
