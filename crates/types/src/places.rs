//! Places of an erasure-coded PG: which OSD has which shard, and which one learns which.
//!
//! Vocabulary: a *place* is a position of `acting`, and the shard that lies there; *up* is where CRUSH wants each shard. An OSD
//! that is in sync *keeps* its place, also if CRUSH lists it at another: what it has is that shard. A *learner* is to hold a place
//! and does not have everything of it yet.
//!
//! Invariants: the answer follows from what is given, whoever asks: who proposes, who holds slots, and who fills them. An OSD has one
//! place. Where *up* has an OSD for each place nobody is left in [`target`] whom CRUSH does not want. A learner that joins at its
//! place leaves the places of the others as they are, so that each may join for itself.

use crate::OsdId;

type Place = Option<OsdId>;

/// *Up* as CRUSH lists it, with [`crush::ITEM_NONE`] for a hole.
pub fn listed(up: &[OsdId]) -> Vec<Option<OsdId>> {
    let is_osd = |o: &OsdId| *o >= 0 && *o != crush::ITEM_NONE;
    up.iter().map(|o| Some(*o).filter(is_osd)).collect()
}

/// As the map has it: nobody is [`crush::ITEM_NONE`].
pub fn to_set(places: &[Option<OsdId>]) -> Vec<OsdId> {
    places.iter().map(|o| o.unwrap_or(crush::ITEM_NONE)).collect()
}

/// The places as they should be, from those of now and *up*.
///
/// Who is in sync and wanted keeps its place, also where CRUSH lists it at another: to move it would be to make two shards anew. Who
/// is not wanted keeps it until somebody else can have it. The others of *up* get holes first, then the places of those who are not
/// wanted, and of these where CRUSH lists them, if they can.
pub fn target(acting: &[Option<OsdId>], up: &[Option<OsdId>], size: usize) -> Vec<Option<OsdId>> {
    let place = |at| acting.get(at).copied().flatten();
    let mut target: Vec<Place> = (0..size).map(place).collect();
    let mut new: Vec<(usize, OsdId)> = Vec::new();
    for (at, osd) in up.iter().enumerate().take(size) {
        let Some(osd) = *osd else { continue };
        if !target.contains(&Some(osd)) && !new.iter().any(|(_, n)| *n == osd) {
            new.push((at, osd));
        }
    }
    let wanted = |o: &Place| o.is_some() && up.contains(o);
    let is_hole = |o: &Place| o.is_none();
    // Whoever is listed where nothing can be had looks for a hole before who could take somebody's place.
    let to_holes = take_listed(&mut target, new, is_hole);
    let (settled, mut roaming): (Vec<_>, Vec<_>) =
        to_holes.into_iter().partition(|(at, _)| !wanted(&target[*at]));
    roaming.extend(settled);
    let roaming = take_any(&mut target, roaming, is_hole);
    // No hole is left, or nobody is.
    let is_unwanted = |o: &Place| !wanted(o);
    let rest = take_listed(&mut target, roaming, is_unwanted);
    take_any(&mut target, rest, is_unwanted);
    target
}

/// Those of `new` that are listed at a place that is free take it; gives the others.
fn take_listed(
    target: &mut [Place],
    new: Vec<(usize, OsdId)>,
    free: impl Fn(&Place) -> bool,
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

/// The same at any place.
fn take_any(
    target: &mut [Place],
    new: Vec<(usize, OsdId)>,
    free: impl Fn(&Place) -> bool,
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

/// The places of those who are in sync, of as many as the pool has.
fn held(acting: &[Option<OsdId>], in_sync: &[OsdId], size: usize) -> Vec<Option<OsdId>> {
    let has = |at| acting.get(at).copied().flatten();
    (0..size)
        .map(|at| has(at).filter(|o| in_sync.contains(o)))
        .collect()
}

/// Of each place the OSD that shall learn it: none where who has it stays, or where nobody is left. As many as *up* has.
pub fn learners(acting: &[Option<OsdId>], in_sync: &[OsdId], up: &[Option<OsdId>]) -> Vec<Option<OsdId>> {
    let now = held(acting, in_sync, up.len());
    let then = target(&now, up, up.len());
    let new = |(then, now): (Place, Place)| then.filter(|_| then != now);
    then.into_iter().zip(now).map(new).collect()
}

/// `acting` with a learner at its place: what a proposal names. None: it learns no place.
pub fn joined(
    acting: &[Option<OsdId>],
    in_sync: &[OsdId],
    up: &[Option<OsdId>],
    osd: OsdId,
) -> Option<Vec<Option<OsdId>>> {
    let place = learners(acting, in_sync, up)
        .iter()
        .position(|o| *o == Some(osd))?;
    let mut named = held(acting, in_sync, up.len().max(acting.len()));
    named[place] = Some(osd);
    Some(named)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// `0 1 - 3`: a dash is a hole.
    fn places(text: &str) -> Vec<Option<OsdId>> {
        text.split_whitespace().map(|w| w.parse().ok()).collect()
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
            assert_eq!(
                target(&places(now), &places(up), 4),
                places(want),
                "{now}, up {up}"
            );
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
            let up: Vec<Option<OsdId>> = up.into_iter().take(size).collect();
            let now: Vec<Option<OsdId>> = now.into_iter().take(size).collect();
            let then = target(&now, &up, size);
            prop_assert_eq!(then.len(), size);
            let all: Vec<OsdId> = then.iter().copied().flatten().collect();
            prop_assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
            for (at, o) in now.iter().enumerate() {
                let Some(o) = o else { continue };
                prop_assert!(then[at] == Some(*o) || !all.contains(o), "{} moves", o);
                prop_assert!(then[at] == Some(*o) || !up.contains(&Some(*o)), "{} is wanted", o);
                prop_assert!(then[at].is_some(), "nobody leaves for nobody");
            }
            let wanted: Vec<OsdId> = up.iter().copied().flatten().collect();
            prop_assert!(wanted.iter().all(|o| all.contains(o)), "each has a position");
            if wanted.len() == size {
                prop_assert!(all.iter().all(|o| up.contains(&Some(*o))), "and then nobody else");
            }
            // Once it is so, it stays so.
            prop_assert_eq!(target(&then, &up, size), then);
        }
    }

    fn check(acting: &[OsdId], in_sync: &[OsdId], up: &[OsdId], want: &[OsdId]) {
        let of = |list: &[OsdId]| list.iter().map(|o| (*o >= 0).then_some(*o)).collect::<Vec<_>>();
        assert_eq!(
            learners(&of(acting), in_sync, &of(up)),
            of(want),
            "{acting:?} {up:?}"
        );
    }

    /// Holes are -1.
    #[test]
    fn who_learns_which_place() {
        check(&[1, 2, 3], &[1, 2, 3], &[1, 2, 3], &[-1, -1, -1]);
        check(&[1, -1, 3], &[1, 3], &[1, 2, 3], &[-1, 2, -1]);
        // One that was in sync and is not any more learns its own place again.
        check(&[1, 2, 3], &[1, 3], &[1, 2, 3], &[-1, 2, -1]);
        // CRUSH lists those that have everything in another order.
        check(&[1, 2, 3], &[1, 2, 3], &[3, 1, 2], &[-1, -1, -1]);
        // 1 keeps its place, so that the newcomer takes the one that is free.
        check(&[1, -1, 3], &[1, 3], &[4, 1, 3], &[-1, 4, -1]);
        // 2 has to leave; the one in its place learns while it still serves.
        check(&[1, 2, 3], &[1, 2, 3], &[1, 4, 3], &[-1, 4, -1]);
        // Two newcomers, of which one stands where somebody stays.
        check(&[1, -1, -1], &[1], &[5, 1, 6], &[-1, 5, 6]);
        // A hole is filled before anybody's place is taken.
        check(&[1, 2, -1], &[1, 2], &[1, 4, -1], &[-1, -1, 4]);
        check(&[], &[], &[1, 2, 3], &[1, 2, 3]);
        check(&[1, -1, 3], &[1, 3], &[1, -1, 3], &[-1, -1, -1]);
    }

    fn configuration() -> impl Strategy<Value = (Vec<Option<OsdId>>, Vec<OsdId>, Vec<Option<OsdId>>)> {
        let some = |list: Vec<OsdId>, holes: Vec<bool>| {
            let pick = |(o, hole): (OsdId, bool)| (!hole).then_some(o);
            list.into_iter().zip(holes).map(pick).collect::<Vec<_>>()
        };
        let list = || Just((0..9).collect::<Vec<OsdId>>()).prop_shuffle();
        let bits = || proptest::collection::vec(any::<bool>(), 5);
        (list(), bits(), bits(), list(), bits()).prop_map(move |(acting, holes, synced, up, gone)| {
            let acting = some(acting, holes);
            let in_sync = acting.iter().zip(synced).filter(|(_, s)| *s);
            let in_sync = in_sync.filter_map(|(o, _)| *o).collect();
            (acting, in_sync, some(up, gone))
        })
    }

    proptest! {
        #[test]
        fn nobody_has_two_places_and_who_has_one_keeps_it((acting, in_sync, up) in configuration()) {
            let learn = learners(&acting, &in_sync, &up);
            let all: Vec<OsdId> = learn.iter().copied().flatten().collect();
            for osd in &all {
                prop_assert_eq!(all.iter().filter(|o| *o == osd).count(), 1);
                prop_assert!(!in_sync.contains(osd) && up.contains(&Some(*osd)));
            }
            // Nobody that CRUSH wants is left without a place.
            for osd in up.iter().copied().flatten() {
                prop_assert!(all.contains(&osd) || in_sync.contains(&osd));
            }
            for (place, osd) in acting.iter().enumerate() {
                let stays = |o: OsdId| in_sync.contains(&o) && up.contains(&Some(o));
                prop_assert!(learn[place].is_none() || !osd.is_some_and(stays));
            }
        }

        /// The lesson of learners that were named without their places: two that join one after the other, in any order, get
        /// the places that they learned.
        #[test]
        fn learners_join_at_the_places_that_they_learned(
            (acting, in_sync, up) in configuration(),
            order in Just((0..9).collect::<Vec<OsdId>>()).prop_shuffle(),
        ) {
            let want = learners(&acting, &in_sync, &up);
            let (mut acting, mut in_sync) = (acting, in_sync);
            for osd in order {
                let Some(place) = want.iter().position(|o| *o == Some(osd)) else { continue };
                let named = joined(&acting, &in_sync, &up, osd).unwrap();
                prop_assert_eq!(named[place], Some(osd));
                // Whoever had the place before leaves the set with that.
                in_sync.retain(|o| named.contains(&Some(*o)));
                in_sync.push(osd);
                acting = named;
            }
            let left = learners(&acting, &in_sync, &up);
            prop_assert!(left.iter().all(Option::is_none));
        }
    }
}
