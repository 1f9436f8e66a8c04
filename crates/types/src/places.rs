//! Places of an erasure-coded PG: which OSD has which shard, and which one learns which.
//!
//! Vocabulary: a *place* is a position of `acting`, and the shard that lies there; *up* is where CRUSH wants each shard. An OSD
//! that is in sync *keeps* its place, also if CRUSH lists it at another: what it has is that shard. A *learner* is to hold a place
//! and does not have everything of it yet.
//!
//! Invariants: the answer follows from what is given, whoever asks. An OSD has one place. A learner that joins at its place
//! leaves the places of the others as they are, so that each may join for itself.

use crate::OsdId;

/// *Up* as CRUSH lists it, with [`crush::ITEM_NONE`] for a hole.
pub fn listed(up: &[OsdId]) -> Vec<Option<OsdId>> {
    let is_osd = |o: &OsdId| *o >= 0 && *o != crush::ITEM_NONE;
    up.iter().map(|o| Some(*o).filter(is_osd)).collect()
}

/// Of each place the OSD that shall learn it: none where who has it stays, or where nobody is left.
pub fn learners(acting: &[Option<OsdId>], in_sync: &[OsdId], up: &[Option<OsdId>]) -> Vec<Option<OsdId>> {
    let has = |osd: OsdId| in_sync.contains(&osd) && acting.contains(&Some(osd));
    let stays = |osd: OsdId| has(osd) && up.contains(&Some(osd));
    let mut wanted: Vec<bool> = (0..up.len())
        .map(|n| !acting.get(n).copied().flatten().is_some_and(stays))
        .collect();
    let mut learn = vec![None; up.len()];
    let mut others = Vec::new();
    for (place, osd) in up.iter().enumerate() {
        let Some(osd) = osd.filter(|osd| !has(*osd)) else {
            continue;
        };
        if learn.contains(&Some(osd)) || others.contains(&osd) {
            continue;
        }
        match wanted[place] {
            true => (learn[place], wanted[place]) = (Some(osd), false),
            // Who is there stays: another place is free for it.
            false => others.push(osd),
        }
    }
    let mut free = (0..up.len()).filter(|n| wanted[*n]);
    for osd in others {
        if let Some(place) = free.next() {
            learn[place] = Some(osd);
        }
    }
    learn
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
    let mut named: Vec<Option<OsdId>> = acting.iter().map(|o| o.filter(|o| in_sync.contains(o))).collect();
    named.resize(up.len().max(named.len()), None);
    named[place] = Some(osd);
    Some(named)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
