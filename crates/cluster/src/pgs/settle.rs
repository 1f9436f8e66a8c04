//! Settling: what an OSD map change means for the configurations, decided from maps alone (rules 4, 5, 7 and 8 of
//! docs/internals/replication.md).

use super::{CHUNK, PgConfig, PgConfigs, PgProposal};
use crate::broken::{self, Rule};
use crate::rows::Write;
use std::collections::BTreeSet;
use types::osdmap::{Incremental, OsdMap};
use types::{OsdId, PgId, PoolId};

impl PgConfigs {
    /// Carries out `proposals` (each of them acceptable: [`PgConfigs::refuses`]) and settles the PGs of `next`, the
    /// map that `inc` leads to from `old`: completes `inc` with the temporary placements that are needed, and
    /// appends what changed here to `ops`. True if `inc` changed.
    pub fn settle(
        &mut self,
        old: &OsdMap,
        next: &OsdMap,
        inc: &mut Incremental,
        proposals: &[PgProposal],
        ops: &mut Vec<Write>,
    ) -> bool {
        let mut dirty = BTreeSet::new();
        for p in proposals {
            self.0.insert(p.pg, p.config(next.epoch));
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
        let up = next.pg_to_up_acting(pg).up;
        let known = self.0.get(&pg).cloned();
        let began = known.clone().or_else(|| self.first_config(old, next, pg, &up));
        let Some(began) = began else { return false };
        let config = settled(&began, &up, old, next, min_size(next, pg));
        if known.as_ref() != Some(&config) {
            self.0.insert(pg, config.clone());
            dirty.insert(row_of(pg));
        }
        let home = config.in_sync;
        let temp = next.pg_temp.get(&pg);
        let want = (up != home && !broken::is(Rule::TempSaysWhere)).then_some(&home);
        // A home that is down stays the home: the PG waits for it. The map need not say so.
        let asleep = temp.is_none() && home.iter().all(|o| !next.is_up(*o));
        if temp == want || asleep {
            return false;
        }
        inc.new_pg_temp.insert(pg, want.cloned().unwrap_or_default());
        true
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
    /// says. `None` while no OSD is up for it.
    fn first_config(&self, old: &OsdMap, next: &OsdMap, pg: PgId, up: &[OsdId]) -> Option<PgConfig> {
        if let Some(pool) = old.pool(pg.pool)
            && pg.seed >= pool.pg_num
            && !broken::is(Rule::LikeItsAncestor)
        {
            let ancestor = PgId::new(pg.pool, pool.raw_to_pg(pg.seed));
            return self.0.get(&ancestor).map(|c| PgConfig {
                interval: next.epoch,
                created: next.epoch,
                ..c.clone()
            });
        }
        let in_sync: Vec<OsdId> = up.iter().copied().filter(|o| *o != crush::ITEM_NONE).collect();
        let primary = *in_sync.first()?;
        Some(PgConfig {
            interval: next.epoch,
            in_sync,
            primary,
            created: next.epoch,
        })
    }
}

fn row_of(pg: PgId) -> (PoolId, u32) {
    (pg.pool, pg.seed / CHUNK)
}

pub(super) fn min_size(map: &OsdMap, pg: PgId) -> usize {
    map.pool(pg.pool).map_or(1, |p| usize::from(p.min_size).max(1))
}

/// The configuration that `c` becomes with the OSDs that are up in `next`.
fn settled(c: &PgConfig, up: &[OsdId], old: &OsdMap, next: &OsdMap, min_size: usize) -> PgConfig {
    let is_up = |o: &OsdId| next.is_up(*o);
    if !c.in_sync.iter().any(is_up) {
        // Each of them may be the one that comes back.
        return c.clone();
    }
    let mut in_sync = c.in_sync.clone();
    let least = min_size - usize::from(broken::is(Rule::KeepsMinSize));
    while in_sync.len() > least.max(1)
        && let Some(at) = in_sync.iter().rposition(|o| !is_up(o))
    {
        in_sync.remove(at);
    }
    let first = || {
        if broken::is(Rule::PrimaryInSync) {
            return up.iter().find(|o| is_up(o));
        }
        let member = |o: &&OsdId| is_up(o) && in_sync.contains(o);
        up.iter()
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
        created: c.created,
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
