//! Positions: which of a PG's OSDs stands where, and so which shard of it each one holds.
//!
//! A *hole* is a position that nobody in sync has. Copies are all alike: there a position says nothing, and is kept in
//! the same way.
//!
//! Invariants of [`positions`]: every OSD in sync has exactly one position, and nobody else has one; one below the
//! pool's size does not change while its OSD stays in sync; there are no more than size of them, or as many as there are
//! OSDs in sync, where those are more.

use denc::{Error, Reader, Result, Writer};
use std::collections::BTreeSet;
use types::OsdId;

/// The positions of a new PG: CRUSH's.
pub(super) fn first_positions(up: &[OsdId]) -> Vec<Option<OsdId>> {
    types::places::listed(up)
}

/// The positions after a change of who is in sync. Who left leaves a hole. Who joined takes its place in *up* if that is
/// free, else the first hole, else a new position at the end; so does who stood behind the pool's size.
pub(super) fn positions(
    old: &[Option<OsdId>],
    in_sync: &[OsdId],
    up: &[OsdId],
    size: usize,
) -> Vec<Option<OsdId>> {
    let stays = |(at, o): (usize, &Option<OsdId>)| {
        o.filter(|o| in_sync.contains(o) && !old[..at].contains(&Some(*o)))
    };
    let mut acting: Vec<Option<OsdId>> = old.iter().enumerate().map(stays).collect();
    let behind = acting.split_off(size.min(acting.len())).into_iter().flatten();
    let mut joining: Vec<OsdId> = behind.collect();
    let new = |o: &&OsdId| !acting.contains(&Some(**o)) && !joining.contains(o);
    let new: Vec<OsdId> = in_sync.iter().filter(new).copied().collect();
    joining.extend(new);
    // Nobody takes a hole that is another one's place.
    joining.retain(|o| !take_place(&mut acting, *o, &up[..size.min(up.len())]));
    for o in joining {
        match acting.iter().position(Option::is_none) {
            Some(hole) => acting[hole] = Some(o),
            None => acting.push(Some(o)),
        }
    }
    acting
}

/// True if `osd` has got its place in `up`.
fn take_place(acting: &mut Vec<Option<OsdId>>, osd: OsdId, up: &[OsdId]) -> bool {
    let Some(at) = up.iter().position(|o| *o == osd) else {
        return false;
    };
    if acting.len() <= at {
        acting.resize(at + 1, None);
    }
    let free = acting[at].is_none();
    if free {
        acting[at] = Some(osd);
    }
    free
}

/// In `in_sync`'s order, without holes: what configurations of before had.
pub(super) fn in_order(in_sync: &[OsdId]) -> Vec<Option<OsdId>> {
    in_sync.iter().copied().map(Some).collect()
}

/// The position of each of `in_sync`, if positions have a form in which they are written: each of them has one of its own, nobody
/// else has one, and a pool's size is a byte.
fn written(acting: &[Option<OsdId>], in_sync: &[OsdId]) -> Option<(u8, Vec<u8>)> {
    let at = |o: &OsdId| acting.iter().position(|a| *a == Some(*o));
    let places: Vec<u8> = in_sync
        .iter()
        .map(|o| u8::try_from(at(o)?).ok())
        .collect::<Option<_>>()?;
    let unique = places.iter().collect::<BTreeSet<_>>().len() == places.len();
    let nobody_else = acting.iter().flatten().count() == places.len();
    let len = u8::try_from(acting.len()).ok()?;
    (unique && nobody_else).then_some((len, places))
}

/// True if [`encode`] writes these positions, and not what stands in for them.
pub(super) fn can_be_written(acting: &[Option<OsdId>], in_sync: &[OsdId]) -> bool {
    written(acting, in_sync).is_some()
}

/// One byte: the number of positions, 0 if they are `in_sync` in order; else the position of each of `in_sync` in one
/// byte. So a large pool's rows stay small.
///
/// What has no such form is written as the order of those in sync, which can be read again: of copies, to which positions say
/// nothing. Shards never come to that: settling has asked [`can_be_written`].
pub(super) fn encode(acting: &[Option<OsdId>], in_sync: &[OsdId], w: &mut Writer) {
    match written(acting, in_sync) {
        Some((len, places)) if acting != in_order(in_sync) => {
            w.u8(len);
            places.into_iter().for_each(|at| w.u8(at));
        }
        _ => w.u8(0),
    }
}

pub(super) fn decode(in_sync: &[OsdId], r: &mut Reader) -> Result<Vec<Option<OsdId>>> {
    let len = r.u8()?;
    if len == 0 {
        return Ok(in_order(in_sync));
    }
    let mut acting = vec![None; usize::from(len)];
    for o in in_sync {
        let at = r.position();
        match acting.get_mut(usize::from(r.u8()?)) {
            Some(free @ None) => *free = Some(*o),
            _ => {
                return Err(Error::Invalid {
                    at,
                    what: "a position that is not there or taken",
                });
            }
        }
    }
    Ok(acting)
}

#[cfg(test)]
mod tests {
    use super::super::PgConfig;
    use super::super::tests::Dice;
    use super::*;
    use crush::ITEM_NONE;
    use denc::{Decode, Encode};

    /// `0 1 - 3`: a dash is a hole.
    fn acting(text: &str) -> Vec<Option<OsdId>> {
        text.split_whitespace().map(|w| w.parse().ok()).collect()
    }

    fn osds(text: &str) -> Vec<OsdId> {
        let of = |w: &str| w.parse().unwrap_or(ITEM_NONE);
        text.split_whitespace().map(of).collect()
    }

    #[test]
    fn whatever_is_written_can_be_read() {
        for (acting, in_sync, read) in [
            (vec![None, Some(1)], vec![1], vec![None, Some(1)]),
            // Nobody settles such ones; a row that does not decode would keep the whole cluster from its state.
            (vec![Some(1), None], vec![1, 2], vec![Some(1), Some(2)]),
            (vec![None, Some(1)], vec![1, 1], vec![Some(1), Some(1)]),
            (vec![Some(2), Some(1)], vec![1], vec![Some(1)]),
            (vec![None; 300], vec![1], vec![Some(1)]),
        ] {
            assert_eq!(can_be_written(&acting, &in_sync), acting == read);
            let mut w = Writer::new();
            encode(&acting, &in_sync, &mut w);
            let mut r = Reader::new(w.finish());
            assert_eq!(
                decode(&in_sync, &mut r).unwrap(),
                read,
                "{acting:?} of {in_sync:?}"
            );
        }
    }

    #[test]
    fn who_leaves_makes_a_hole_and_who_joins_takes_one() {
        // (before, in sync, up, after), in a pool of size 4
        let cases = [
            ("0 1 2 3", "0 1 2 3", "0 1 2 3", "0 1 2 3"),
            ("0 1 2 3", "3 1 0 2", "3 1 2 0", "0 1 2 3"),
            ("0 1 2 3", "3 0 2", "0 - 2 3", "0 - 2 3"),
            ("0 1 2 3", "0 1 2", "0 1 2 -", "0 1 2 -"),
            // Its place in up, though there is an earlier hole.
            ("0 - 2 -", "0 2 5", "0 - 2 5", "0 - 2 5"),
            ("0 - 2 -", "0 2 5", "0 7 2 -", "0 5 2 -"),
            // Another one stands there still.
            ("0 1 - 3", "0 1 3 5", "0 5 2 3", "0 1 5 3"),
            // Whoever comes first: 5 has a place, 6 has none.
            ("0 1 - -", "0 1 6 5", "0 1 5 -", "0 1 5 6"),
            ("- 1", "1 5", "1 2 3 5", "- 1 - 5"),
            ("", "2 0", "0 1 2 -", "0 - 2"),
            // Copies, one of which goes when the new one has everything.
            ("0 1 2 3", "0 1 2 3 5", "0 1 5 3", "0 1 2 3 5"),
            ("0 1 2 3 5", "0 1 3 5", "0 1 5 3", "0 1 5 3"),
            ("0 1 2 3 5", "0 1 2 3", "0 1 2 3", "0 1 2 3"),
            // A pool that was larger.
            ("0 1 2 3 5 -", "0 1 2 3 5", "0 1 2 3", "0 1 2 3 5"),
        ];
        for (before, in_sync, up, after) in cases {
            let now = positions(&acting(before), &osds(in_sync), &osds(up), 4);
            assert_eq!(now, acting(after), "{before} -> {in_sync}, up {up}");
        }
        assert_eq!(first_positions(&osds("4 - 1 -")), acting("4 - 1 -"));
    }

    fn some(dice: &mut Dice, holes: bool) -> Vec<OsdId> {
        let mut all: Vec<OsdId> = (0..9).collect();
        let n = dice.roll(7);
        let mut one = || match holes && dice.roll(4) == 0 {
            true => ITEM_NONE,
            false => all.swap_remove(dice.roll(all.len())),
        };
        (0..n).map(|_| one()).collect()
    }

    #[test]
    fn whoever_comes_and_goes_the_positions_are_sound() {
        for seed in 0..500 {
            let mut dice = Dice(seed);
            let mut before: Vec<Option<OsdId>> = first_positions(&some(&mut dice, true));
            for _ in 0..20 {
                let (in_sync, up, size) = (some(&mut dice, false), some(&mut dice, true), 1 + dice.roll(6));
                let now = positions(&before, &in_sync, &up, size);
                let why = format!("{before:?} -> {in_sync:?}, up {up:?}, size {size}: {now:?}");
                let mut standing: Vec<OsdId> = now.iter().copied().flatten().collect();
                let mut all = in_sync.clone();
                standing.sort_unstable();
                all.sort_unstable();
                assert_eq!(standing, all, "each once, and nobody else: {why}");
                for (at, o) in before.iter().enumerate().take(size) {
                    let stays = o.is_some_and(|o| in_sync.contains(&o));
                    assert!(!stays || now.get(at) == Some(o), "{why}");
                }
                assert!(now.len() <= size.max(in_sync.len()), "{why}");
                assert_eq!(positions(&now, &in_sync, &up, size), now, "it is settled: {why}");
                let config = PgConfig {
                    interval: 7,
                    primary: in_sync.first().copied().unwrap_or(-1),
                    in_sync,
                    acting: now.clone(),
                    created: 3,
                    life: Default::default(),
                };
                let back = PgConfig::from_bytes(&config.to_bytes());
                assert!(config.in_sync.is_empty() || back == Ok(config), "{why}: {back:?}");
                before = now;
            }
        }
    }

    #[test]
    fn positions_that_cannot_be_are_refused() {
        for bytes in [&[2, 0, 0][..], &[2, 0, 2], &[1, 0, 1], &[2, 0]] {
            assert!(
                decode(&[4, 5], &mut Reader::from_slice(bytes)).is_err(),
                "{bytes:?}"
            );
        }
        let good = decode(&[4, 5], &mut Reader::from_slice(&[3, 2, 0]));
        assert_eq!(good, Ok(acting("5 - 4")));
    }
}
