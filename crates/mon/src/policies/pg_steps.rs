//! A pool on its way to the number of placement groups that the autoscaler wants: in steps that move a bounded part of
//! the cluster's objects each, one after the other.
//!
//! The goal stands in the map, as in Ceph: `pg_num_target`, `pgp_num_target`. Growing, `pg_num` goes up to it, and new groups
//! are placed by themselves at once. Shrinking, `pgp_num` goes down to it: each group above it has the place of the one that it
//! becomes part of, and the OSDs merge them (docs/internals/merging.md). What an operator asks for takes no steps.

use crate::policies::survey::Survey;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use types::osdmap::{Incremental, OsdMap};
use types::pool::PgPool;
use types::{Epoch, PoolId};

/// Of how many steps a change consists at most: beyond that, a step moves more.
const STEPS_MAX: u32 = 64;

/// True if a pool is on its way.
pub fn are_due(map: &OsdMap) -> bool {
    map.pools.values().any(is_on_its_way)
}

pub fn is_on_its_way(p: &PgPool) -> bool {
    p.pg_num != p.pg_num_target || p.pgp_num != p.pgp_num_target
}

/// Sets the goal; the first step comes with it.
pub fn aim(p: &mut PgPool, goal: u32) {
    p.pg_num_target = goal;
    p.pgp_num_target = goal;
}

/// What the next step of a pool is, if it may move `part` of all objects, of which it has `share`: pg_num and pgp_num.
pub fn next(p: &PgPool, share: f64, part: f64) -> Option<(u32, u32)> {
    let goal = p.pg_num_target;
    let groups = |of: u32, span: u32| {
        // Each of `of` groups has the same part of the pool.
        let free = share <= 0.0 || !share.is_finite();
        let fit = if free {
            span
        } else {
            (part / share * f64::from(of)) as u32
        };
        fit.max(span / STEPS_MAX).min(span).max(1)
    };
    if goal > p.pg_num {
        // A group that is split is split once in a step.
        let span = (goal - p.pg_num).min(p.pg_num);
        let n = p.pg_num + groups(p.pg_num, span);
        return Some((n, n));
    }
    // The groups of the step before are merged first.
    if p.pg_num != p.pgp_num.max(goal) {
        return None;
    }
    let places = p.pgp_num_target;
    match p.pgp_num.cmp(&places) {
        Ordering::Equal => None,
        Ordering::Greater => {
            let span = p.pgp_num - places;
            Some((p.pg_num, p.pgp_num - groups(p.pgp_num, span)))
        }
        // It was on its way down, and is wanted larger than it had become: groups get places of their own again.
        Ordering::Less => {
            let span = places - p.pgp_num;
            Some((p.pg_num, p.pgp_num + groups(p.pg_num, span)))
        }
    }
}

/// The next step of each pool that is on its way, of which all together move `part` of the objects at most, or one group.
pub fn take(map: &OsdMap, survey: &Survey, mut part: f64, inc: &mut Incremental) {
    let epoch = map.epoch + 1;
    let all: u64 = survey.groups.values().map(|g| g.objects).sum();
    let mut shares: BTreeMap<PoolId, u64> = BTreeMap::new();
    for (pg, g) in &survey.groups {
        *shares.entry(pg.pool).or_default() += g.objects;
    }
    for (id, pool) in map.pools.iter().filter(|(_, p)| is_on_its_way(p)) {
        let objects = shares.get(id).copied().unwrap_or(0);
        let share = objects as f64 / all.max(1) as f64;
        if part <= 0.0 && share > 0.0 {
            continue;
        }
        let Some((pg_num, pgp_num)) = next(pool, share, part) else {
            continue;
        };
        let moved = pg_num.abs_diff(pool.pg_num).max(pgp_num.abs_diff(pool.pgp_num));
        part -= share * f64::from(moved) / f64::from(pool.pgp_num.max(1));
        if let Some(p) = inc.pool_mut(map, *id) {
            step(p, pg_num, pgp_num, epoch);
        }
        if pool.pg_num_target < pool.pg_num {
            cluster::share_places(map, *id, pgp_num.max(pool.pg_num_target), inc);
        }
    }
}

fn step(p: &mut PgPool, pg_num: u32, pgp_num: u32, epoch: Epoch) {
    let (goal, places) = (p.pg_num_target, p.pgp_num_target);
    if pg_num > p.pg_num {
        p.set_pg_num(pg_num, epoch);
    }
    p.set_pgp_num(pgp_num);
    (p.pg_num_target, p.pgp_num_target) = (goal, places);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pool(pg_num: u32, goal: u32) -> PgPool {
        let mut p = PgPool {
            pg_num,
            pgp_num: pg_num,
            pg_num_pending: pg_num,
            ..PgPool::default()
        };
        aim(&mut p, goal);
        p
    }

    #[test]
    fn an_empty_pool_doubles_at_once() {
        let p = pool(32, 512);
        assert_eq!(next(&p, 0.0, 0.05), Some((64, 64)));
        assert_eq!(next(&pool(512, 32), 0.0, 0.05), Some((512, 32)));
        assert_eq!(next(&pool(32, 32), 0.5, 0.05), None);
        // There is no such pool; a map that has one ends no monitor.
        assert_eq!(next(&pool(0, 32), 0.5, 0.05), Some((1, 1)));
    }

    #[test]
    fn a_step_moves_a_bounded_part() {
        // All objects in 100 groups: 5 of them.
        assert_eq!(next(&pool(100, 200), 1.0, 0.05), Some((105, 105)));
        assert_eq!(next(&pool(100, 50), 1.0, 0.05), Some((100, 95)));
        // One at least.
        assert_eq!(next(&pool(8, 16), 1.0, 0.05), Some((9, 9)));
        // Not before the last step's are merged.
        let mut p = pool(100, 50);
        p.pgp_num = 95;
        assert_eq!(next(&p, 1.0, 0.05), None);
        p.pg_num = 95;
        assert_eq!(next(&p, 1.0, 0.05), Some((95, 91)));
    }

    #[test]
    fn a_way_down_that_turns_round_gives_places_back() {
        let mut p = pool(8, 8);
        p.pgp_num = 2;
        assert!(is_on_its_way(&p));
        assert_eq!(next(&p, 1.0, 0.25), Some((8, 4)));
        assert_eq!(next(&p, 0.0, 0.25), Some((8, 8)));
        // Those beyond the goal are merged first.
        p.pg_num = 16;
        assert_eq!(next(&p, 1.0, 0.25), None);
    }

    proptest! {
        #[test]
        fn the_goal_is_reached_from_any_place(from in 1u32..300, places in 1u32..300, goal in 1u32..300, share in 0.0f64..1.0) {
            let mut p = pool(from, goal);
            p.pgp_num = places.min(from);
            for _ in 0..4000 {
                p.pg_num = p.pg_num.min(p.pgp_num.max(goal)).max(1);
                let Some((pg_num, pgp_num)) = next(&p, share, 0.05) else { break };
                prop_assert!(pgp_num <= pg_num);
                step(&mut p, pg_num, pgp_num, 7);
            }
            prop_assert!(!is_on_its_way(&p), "{} {} {}", p.pg_num, p.pgp_num, goal);
        }

        #[test]
        fn the_goal_is_reached(from in 1u32..3000, goal in 1u32..3000, share in 0.0f64..1.0, part in 0.001f64..0.1) {
            let mut p = pool(from, goal);
            let mut steps = 0;
            while let Some((pg_num, pgp_num)) = next(&p, share, part) {
                let towards = |now: u32, then: u32| if goal > from { (now..=goal).contains(&then) } else { (goal..=now).contains(&then) };
                prop_assert!(towards(p.pg_num, pg_num) && towards(p.pgp_num, pgp_num));
                prop_assert!(pg_num <= p.pg_num * 2, "a group is split once");
                let moved = pg_num.abs_diff(p.pg_num).max(pgp_num.abs_diff(p.pgp_num));
                let most = (part / share * f64::from(p.pgp_num)).max(1.0).max(f64::from(from.abs_diff(goal) / STEPS_MAX));
                prop_assert!(f64::from(moved) <= most);
                step(&mut p, pg_num, pgp_num, 7);
                // The OSDs merge.
                p.pg_num = p.pg_num.min(p.pgp_num.max(goal)).max(1);
                steps += 1;
                prop_assert!(steps < 4000);
            }
            prop_assert_eq!((p.pg_num, p.pgp_num, p.pg_num_target, p.pgp_num_target), (goal, goal, goal, goal));
            prop_assert!(!is_on_its_way(&p));
        }
    }
}
