//! Settling: what an OSD map change means for the configurations, decided from maps alone (rules 4, 5, 7 and 8 of
//! docs/internals/replication.md).

use super::acting::{can_be_written, first_positions, positions};
use super::needs::Needs;
use super::{CHUNK, Life, PgConfig, PgConfigs, PgMerge, PgProposal};
use crate::broken::{self, Rule};
use crate::rows::Write;
use std::collections::BTreeSet;
use types::osdmap::{Incremental, OsdMap, UpActing};
use types::places;
use types::{Epoch, OsdId, PgId, PoolId};

impl PgConfigs {
    /// Carries out `merges` and `proposals` (each of them acceptable: [`PgConfigs::refuses`]) and settles the PGs of `next`, the
    /// map that `inc` leads to from `old`: completes `inc` with the temporary placements that are needed, and
    /// appends what changed here to `ops`. True if `inc` changed.
    pub fn settle(
        &mut self,
        old: &OsdMap,
        next: &OsdMap,
        inc: &mut Incremental,
        (proposals, merges): (&[PgProposal], &[PgMerge]),
        ops: &mut Vec<Write>,
    ) -> bool {
        let mut dirty = BTreeSet::new();
        for m in merges {
            if let Some(now) = self.0.get_mut(&m.target) {
                *now = m.config(now, next.epoch);
                dirty.insert(row_of(m.target));
            }
        }
        for p in proposals {
            let mut config = p.config(next.epoch);
            if let Some(now) = self.0.get(&p.pg) {
                if p.acting.is_none() {
                    config.acting.clone_from(&now.acting);
                }
                config.life.clone_from(&now.life);
            }
            self.0.insert(p.pg, config);
            dirty.insert(row_of(p.pg));
        }
        let mut pinned = false;
        if moves_pgs(inc) {
            self.drop_gone(next, &mut dirty);
            for pg in next.pgs() {
                pinned |= self.settle_one(old, next, pg, inc, &mut dirty);
            }
        } else {
            let temps = inc.new_pg_temp.keys().copied();
            let some: BTreeSet<PgId> = proposals.iter().map(|p| p.pg).chain(temps).collect();
            for pg in some {
                pinned |= self.settle_one(old, next, pg, inc, &mut dirty);
            }
        }
        ops.extend(dirty.into_iter().map(|(pool, chunk)| self.op(pool, chunk)));
        pinned
    }

    fn settle_one(
        &mut self,
        old: &OsdMap,
        next: &OsdMap,
        pg: PgId,
        inc: &mut Incremental,
        dirty: &mut BTreeSet<(PoolId, u32)>,
    ) -> bool {
        let sets = next.pg_to_up_acting(pg);
        let needs = Needs::of(next, pg);
        let known = self.0.get(&pg).cloned();
        let began = known.clone().or_else(|| self.first_config(old, next, pg, &sets));
        let Some(began) = began else { return false };
        let mut config = settled(&began, &sets.up, old, next, &needs);
        config.acting = positions(&began.acting, &config.in_sync, &sets.up, needs.size);
        if needs.coded && config.acting.len() < needs.size {
            config.acting.resize(needs.size, None);
        }
        check(pg, &began, &config, &needs, next.epoch);
        assert!(
            !needs.coded || !is_sound(&config) || can_be_written(&config.acting, &config.in_sync),
            "{pg}: each of those in sync has a shard of its own, and nobody else has one: {config:?}"
        );
        if known.as_ref() != Some(&config) {
            self.0.insert(pg, config.clone());
            dirty.insert(row_of(pg));
        }
        let (temp, pinned) = pin(next, pg, &sets, &config, needs.coded, inc);
        // Clients of copies go to the first of those that are there: that is the primary, unless an operator says otherwise.
        pinned | (needs.coded && pin_primary(next, pg, &sets, temp.as_deref(), config.primary, inc))
    }

    fn drop_gone(&mut self, next: &OsdMap, dirty: &mut BTreeSet<(PoolId, u32)>) {
        self.0.retain(|pg, _| {
            let stays = next.pool(pg.pool).is_some_and(|p| pg.seed < p.pg_num);
            if !stays {
                dirty.insert(row_of(*pg));
            }
            stays
        });
    }

    /// Where a PG without a configuration begins: with its ancestor if its pool was split, else where CRUSH
    /// says. `None` while no OSD is up for it, or fewer than its shards have to be written to.
    fn first_config(&self, old: &OsdMap, next: &OsdMap, pg: PgId, sets: &UpActing) -> Option<PgConfig> {
        if let Some(pool) = old.pool(pg.pool)
            && pg.seed >= pool.pg_num
            && !broken::is(Rule::LikeItsAncestor)
        {
            let ancestor = PgId::new(pg.pool, pool.raw_to_pg(pg.seed));
            return self.0.get(&ancestor).map(|c| PgConfig {
                interval: next.epoch,
                created: next.epoch,
                life: Life::begun(next.epoch),
                ..c.clone()
            });
        }
        let up = &sets.up;
        let mut in_sync: Vec<OsdId> = up.iter().copied().filter(|o| *o != crush::ITEM_NONE).collect();
        let needs = Needs::of(next, pg);
        if needs.coded {
            if in_sync.len() < needs.least {
                return None;
            }
            // The map's own primary leads: the positions stay, the order of those in sync begins with it.
            in_sync.sort_by_key(|o| *o != sets.up_primary);
        }
        let primary = *in_sync.first()?;
        Some(PgConfig {
            interval: next.epoch,
            in_sync,
            primary,
            acting: first_positions(up),
            created: next.epoch,
            life: Life::default(),
        })
    }
}

/// The primary is the first of those in sync, and each is there once.
fn is_sound(c: &PgConfig) -> bool {
    let unique: BTreeSet<_> = c.in_sync.iter().collect();
    c.in_sync.first() == Some(&c.primary) && unique.len() == c.in_sync.len()
}

/// Panics where settling would make a PG's configuration one by which data could be lost. What was not sound before stays
/// as it is: it came from the store, and a process that ends says no more about it.
fn check(pg: PgId, before: &PgConfig, after: &PgConfig, needs: &Needs, epoch: Epoch) {
    let min_size = needs.least;
    if before == after || !is_sound(before) {
        return;
    }
    assert!(
        is_sound(after),
        "{pg}: the primary is the first of in_sync, in which each OSD is once: {after:?} after {before:?}"
    );
    assert!(
        broken::is(Rule::PrimaryInSync) || after.in_sync.iter().all(|o| before.in_sync.contains(o)),
        "{pg}: only a proposal adds OSDs to in_sync: {after:?} after {before:?}"
    );
    assert!(
        broken::is(Rule::KeepsMinSize) || after.in_sync.len() >= before.in_sync.len().min(min_size),
        "{pg}: in_sync does not fall below min_size, which is {min_size}: {after:?} after {before:?}"
    );
    assert!(
        before.interval <= after.interval && after.interval <= epoch.max(before.interval),
        "{pg}: intervals rise, up to the epoch, which is {epoch}: {after:?} after {before:?}"
    );
    assert!(
        broken::is(Rule::PrimaryIsNew) || after.primary == before.primary || after.interval == epoch,
        "{pg}: another primary begins an interval of its own: {after:?} after {before:?}"
    );
    let keeps = |(at, o): (usize, &Option<OsdId>)| {
        o.is_none_or(|o| !after.in_sync.contains(&o) || after.acting.get(at) == Some(&Some(o)))
    };
    assert!(
        !needs.coded || before.acting.iter().enumerate().all(keeps),
        "{pg}: who is in sync keeps its shard: {after:?} after {before:?}"
    );
}

fn row_of(pg: PgId) -> (PoolId, u32) {
    (pg.pool, pg.seed / CHUNK)
}

/// Makes the map say where the PG is, if CRUSH says otherwise. Gives the set that it then has for it, and true if `inc` changed.
fn pin(
    next: &OsdMap,
    pg: PgId,
    sets: &UpActing,
    config: &PgConfig,
    coded: bool,
    inc: &mut Incremental,
) -> (Option<Vec<OsdId>>, bool) {
    let home: Vec<OsdId> = match coded {
        false => config.in_sync.clone(),
        true => places::to_set(&config.acting),
    };
    let temp = next.pg_temp.get(&pg);
    let want = (sets.up != home && !broken::is(Rule::TempSaysWhere)).then_some(home);
    // A home that is down stays the home: the PG waits for it. The map need not say so.
    let asleep = temp.is_none() && config.in_sync.iter().all(|o| !next.is_up(*o));
    if asleep || temp == want.as_ref() {
        return (temp.cloned(), false);
    }
    inc.new_pg_temp.insert(pg, want.clone().unwrap_or_default());
    (want, true)
}

/// Makes the map say who leads a PG of shards, whose set has the order of the shards: clients go to the first that is up of
/// `temp`, else where CRUSH says. True if `inc` changed.
fn pin_primary(
    next: &OsdMap,
    pg: PgId,
    sets: &UpActing,
    temp: Option<&[OsdId]>,
    primary: OsdId,
    inc: &mut Incremental,
) -> bool {
    let by_itself = match temp {
        Some(temp) => temp.iter().copied().find(|o| next.is_up(*o)),
        None => Some(sets.up_primary),
    };
    // Never one that is down: clients would send to it.
    let want = (next.is_up(primary) && by_itself != Some(primary)).then_some(primary);
    if next.primary_temp.get(&pg).copied() == want {
        return false;
    }
    inc.new_primary_temp.insert(pg, want.unwrap_or(-1));
    true
}

/// The configuration that `c` becomes with the OSDs that are up in `next`.
fn settled(c: &PgConfig, up: &[OsdId], old: &OsdMap, next: &OsdMap, needs: &Needs) -> PgConfig {
    let is_up = |o: &OsdId| next.is_up(*o);
    let alive = c.in_sync.iter().filter(|o| is_up(o)).count();
    if alive == 0 {
        // Each of them may be the one that comes back.
        return c.clone();
    }
    let mut in_sync = c.in_sync.clone();
    let least = needs.least - usize::from(broken::is(Rule::KeepsMinSize));
    // Too few for any object: whoever comes back is needed, and has missed nothing.
    while alive >= needs.enough
        && in_sync.len() > least.max(1)
        && let Some(at) = in_sync.iter().rposition(|o| !is_up(o))
    {
        in_sync.remove(at);
    }
    let first = || {
        if broken::is(Rule::PrimaryInSync) {
            return up.iter().find(|o| is_up(o));
        }
        let member = |o: &&OsdId| is_up(o) && in_sync.contains(o);
        // Of shards the first: clients go there by themselves.
        let in_order = c.acting.iter().flatten().filter(|_| needs.coded);
        in_order
            .chain(up)
            .find(member)
            .or_else(|| in_sync.iter().find(|o| is_up(o)))
    };
    let primary = match is_up(&c.primary) {
        true => c.primary,
        false => first().copied().unwrap_or(c.primary),
    };
    in_sync.retain(|o| *o != primary);
    in_sync.insert(0, primary);
    // One that comes up again begins a new term: it may have forgotten what it had not made durable.
    let returned = !old.is_up(primary) && !broken::is(Rule::ReturnedIsNew);
    let another = primary != c.primary && !broken::is(Rule::PrimaryIsNew);
    let interval = match another || returned {
        true => next.epoch,
        false => c.interval,
    };
    PgConfig {
        interval,
        in_sync,
        primary,
        acting: c.acting.clone(),
        created: c.created,
        life: c.life.clone(),
    }
}

/// True if a map change may move any PG: not if it only says where data is, or who is blocked.
fn moves_pgs(inc: &Incremental) -> bool {
    let i = inc;
    i.fullmap.is_some()
        || i.crush.is_some()
        || i.new_max_osd.is_some()
        || !(i.new_pools.is_empty() && i.old_pools.is_empty())
        || !(i.new_up_client.is_empty() && i.new_state.is_empty() && i.new_weight.is_empty())
        || !i.new_primary_affinity.is_empty()
        || !(i.new_pg_upmap.is_empty() && i.old_pg_upmap.is_empty())
        || !(i.new_pg_upmap_items.is_empty() && i.old_pg_upmap_items.is_empty())
        || !i.new_primary_temp.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(interval: Epoch, in_sync: &[OsdId]) -> PgConfig {
        PgConfig {
            interval,
            in_sync: in_sync.to_vec(),
            primary: in_sync[0],
            acting: Vec::new(),
            created: 1,
            life: Life::default(),
        }
    }

    const COPIES: Needs = Needs {
        size: 3,
        least: 2,
        enough: 1,
        coded: false,
    };

    #[test]
    fn a_shard_that_would_change_hands_is_noticed() {
        let coded = Needs {
            coded: true,
            ..COPIES
        };
        let at = |acting: [OsdId; 3]| PgConfig {
            acting: acting.map(Some).to_vec(),
            ..config(5, &[1, 2, 3])
        };
        let swap = |needs: Needs| {
            let moved = PgConfig {
                in_sync: vec![1, 3, 2],
                ..at([2, 1, 3])
            };
            std::panic::catch_unwind(|| check(PgId::new(1, 0), &at([1, 2, 3]), &moved, &needs, 9))
        };
        assert!(swap(COPIES).is_ok());
        let panic = swap(coded).unwrap_err().downcast::<String>().unwrap();
        assert!(panic.contains("keeps its shard"), "{panic}");
    }

    /// What `after` of a PG on three OSDs, of min_size 2, in epoch 9, is said to break; "" for nothing.
    fn said(after: PgConfig) -> String {
        let before = config(5, &[1, 2, 3]);
        let check = std::panic::catch_unwind(|| check(PgId::new(1, 0), &before, &after, &COPIES, 9));
        let panic = check.err().and_then(|p| p.downcast::<String>().ok());
        panic.map_or_else(String::new, |text| *text)
    }

    #[test]
    fn what_settling_must_not_do_is_noticed() {
        for (after, want) in [
            (config(5, &[1, 2, 3]), ""),
            (config(5, &[1, 2]), ""),
            (config(9, &[2, 3]), ""),
            (config(9, &[2, 2]), "each OSD is once"),
            (
                PgConfig {
                    primary: 3,
                    ..config(9, &[2, 3])
                },
                "the primary is the first of in_sync",
            ),
            (config(9, &[4, 2, 3]), "only a proposal adds OSDs"),
            (config(9, &[2]), "in_sync does not fall below min_size"),
            (config(4, &[1, 2]), "intervals rise"),
            (config(10, &[1, 2]), "intervals rise"),
            (config(6, &[2, 3]), "another primary begins an interval"),
        ] {
            let text = said(after.clone());
            assert!(
                text.contains(want) && text.is_empty() == want.is_empty(),
                "{after:?}: {text}"
            );
        }
    }

    #[test]
    fn what_was_unsound_before_ends_nobody() {
        let odd = PgConfig {
            primary: 9,
            ..config(5, &[1, 2])
        };
        check(PgId::new(1, 0), &odd, &config(4, &[7]), &COPIES, 9);
    }
}
