//! Who should have which shard of a PG: one answer for who proposes configurations and for who holds slots.
//!
//! Invariants of [`target`]: it has as many positions as the pool has shards; nobody is there twice, and nobody at another position
//! than the one that he is in sync at. Where *up* has an OSD for each position nobody is there whom CRUSH does not want.

use types::OsdId;

/// The positions as they should be, from those of now and *up* (in which [`crush::ITEM_NONE`] is nobody).
///
/// Who is in sync and wanted keeps its position, also where CRUSH lists it at another: to move it would be to make two shards anew. Who
/// is not wanted keeps it until somebody else can have it. The others of *up* get holes first, then the positions of those who are not
/// wanted, and of these where CRUSH lists them, if they can.
pub fn target(acting: &[Option<OsdId>], up: &[OsdId], size: usize) -> Vec<Option<OsdId>> {
    let place = |at| acting.get(at).copied().flatten();
    let mut target: Vec<Option<OsdId>> = (0..size).map(place).collect();
    let mut new: Vec<(usize, OsdId)> = Vec::new();
    for (at, o) in up.iter().copied().enumerate().take(size) {
        let known = target.contains(&Some(o)) || new.iter().any(|(_, n)| *n == o);
        if o != crush::ITEM_NONE && !known {
            new.push((at, o));
        }
    }
    let wanted = |o: &Option<OsdId>| o.is_some_and(|o| up.contains(&o));
    let is_hole = |o: &Option<OsdId>| o.is_none();
    // Whoever is listed where nothing can be had looks for a hole before who could take somebody's place.
    let to_holes = take_listed(&mut target, new, is_hole);
    let (settled, mut roaming): (Vec<_>, Vec<_>) =
        to_holes.into_iter().partition(|(at, _)| !wanted(&target[*at]));
    roaming.extend(settled);
    let roaming = take_any(&mut target, roaming, is_hole);
    // No hole is left, or nobody is.
    let is_unwanted = |o: &Option<OsdId>| !wanted(o);
    let rest = take_listed(&mut target, roaming, is_unwanted);
    take_any(&mut target, rest, is_unwanted);
    target
}

/// Those of `new` that are listed at a position that is free take it; gives the others.
fn take_listed(
    target: &mut [Option<OsdId>],
    new: Vec<(usize, OsdId)>,
    free: impl Fn(&Option<OsdId>) -> bool,
) -> Vec<(usize, OsdId)> {
    let mut rest = new;
    rest.retain(|(at, o)| {
        let takes = free(&target[*at]);
        if takes {
            target[*at] = Some(*o);
        }
        !takes
    });
    rest
}

/// The same at any position.
fn take_any(
    target: &mut [Option<OsdId>],
    new: Vec<(usize, OsdId)>,
    free: impl Fn(&Option<OsdId>) -> bool,
) -> Vec<(usize, OsdId)> {
    let mut rest = new;
    rest.retain(|(_, o)| match target.iter().position(&free) {
        Some(at) => {
            target[at] = Some(*o);
            false
        }
        None => true,
    });
    rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crush::ITEM_NONE;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// `0 1 - 3`: a dash is a hole.
    fn acting(text: &str) -> Vec<Option<OsdId>> {
        text.split_whitespace().map(|w| w.parse().ok()).collect()
    }

    fn osds(text: &str) -> Vec<OsdId> {
        let of = |w: &str| w.parse().unwrap_or(ITEM_NONE);
        text.split_whitespace().map(of).collect()
    }

    #[test]
    fn who_has_a_shard_keeps_it_and_others_take_what_is_free() {
        // (now, up, as it should be), of four shards
        let cases = [
            ("0 1 2 3", "0 1 2 3", "0 1 2 3"),
            // CRUSH turns them round: nobody moves.
            ("0 1 2 3", "1 2 3 0", "0 1 2 3"),
            ("0 1 - 3", "0 1 5 3", "0 1 5 3"),
            ("0 1 - 3", "0 5 1 3", "0 1 5 3"),
            // Nobody is there for it.
            ("0 1 - 3", "0 1 - 3", "0 1 - 3"),
            ("0 1 2 3", "0 1 - 3", "0 1 2 3"),
            ("0 1 2 3", "- - - -", "0 1 2 3"),
            // One is to go.
            ("0 1 2 3", "0 1 5 3", "0 1 5 3"),
            ("0 1 2 3", "0 5 1 3", "0 1 5 3"),
            // A hole before a place that somebody has.
            ("0 1 2 -", "0 5 2 -", "0 1 2 5"),
            ("0 1 2 -", "0 5 2 6", "0 5 2 6"),
            ("0 1 - 3", "0 5 3 6", "0 5 6 3"),
            // All move.
            ("0 1 2 3", "4 5 6 7", "4 5 6 7"),
            ("", "4 5 - 7", "4 5 - 7"),
            ("0 1", "0 1 2 3", "0 1 2 3"),
            // Behind the size is no position.
            ("0 1 2 3 9", "0 1 2 9", "0 1 2 9"),
        ];
        for (now, up, want) in cases {
            assert_eq!(target(&acting(now), &osds(up), 4), acting(want), "{now}, up {up}");
        }
    }

    /// Up to `n` of ten OSDs, each once, and holes.
    fn some(n: usize) -> impl Strategy<Value = Vec<Option<OsdId>>> {
        let order = Just((0..10).collect::<Vec<OsdId>>()).prop_shuffle();
        let holes = prop::collection::vec(any::<bool>(), 0..=n);
        (order, holes).prop_map(|(order, holes)| {
            let one = |(o, there): (OsdId, bool)| there.then_some(o);
            order.into_iter().zip(holes).map(one).collect()
        })
    }

    proptest! {
        #[test]
        fn nobody_is_there_twice_and_nobody_moves(size in 1usize..7, now in some(6), up in some(6)) {
            let up: Vec<OsdId> = up.into_iter().map(|o| o.unwrap_or(ITEM_NONE)).take(size).collect();
            let now: Vec<Option<OsdId>> = now.into_iter().take(size).collect();
            let then = target(&now, &up, size);
            prop_assert_eq!(then.len(), size);
            let all: Vec<OsdId> = then.iter().copied().flatten().collect();
            prop_assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
            prop_assert!(!all.contains(&ITEM_NONE));
            for (at, o) in now.iter().enumerate() {
                let Some(o) = o else { continue };
                prop_assert!(then[at] == Some(*o) || !all.contains(o), "{} moves", o);
                prop_assert!(then[at] == Some(*o) || !up.contains(o), "{} is wanted", o);
                prop_assert!(then[at].is_some(), "nobody leaves for nobody");
            }
            let wanted: Vec<OsdId> = up.iter().copied().filter(|o| *o != ITEM_NONE).collect();
            prop_assert!(wanted.iter().all(|o| all.contains(o)), "each has a position");
            if wanted.len() == size {
                prop_assert!(all.iter().all(|o| up.contains(o)), "and then nobody else");
            }
            // Once it is so, it stays so.
            prop_assert_eq!(target(&then, &up, size), then);
        }
    }
}
