//! Every placement group at one moment: where the map wants it, what it holds, and whether all is well with it.
//!
//! What evens the cluster out decides by it, and waits while anything heals. A group counts as clean only by a report of
//! the primary that the map names now, about the OSDs that it names now.

use crate::policies::places;
use crate::policies::reports::newest_reports;
use cluster::ClusterStats;
use std::collections::BTreeMap;
use types::osdmap::OsdMap;
use types::pgstats::pg_state;
use types::pool::PgPool;
use types::{OsdId, PgId, PoolId};

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Group {
    /// Where CRUSH and upmaps want it; without the holes that shards may have.
    pub up: Vec<OsdId>,
    /// Of one copy, or shard.
    pub bytes: u64,
    pub objects: u64,
    pub clean: bool,
}

#[derive(Debug, Clone, Default)]
pub struct Survey {
    pub groups: BTreeMap<PgId, Group>,
    pub unknown: usize,
    pub inactive: usize,
    /// Copies of objects: of how many, how many lack, and how many lie elsewhere.
    pub copies: u64,
    pub degraded: u64,
    pub misplaced: u64,
}

const ILL: u64 = pg_state::DEGRADED | pg_state::UNDERSIZED | pg_state::REMAPPED;

impl Survey {
    pub fn of(map: &OsdMap, stats: &ClusterStats) -> Self {
        let newest = newest_reports(stats);
        let mut out = Self::default();
        for pg in map.pgs() {
            let sets = map.pg_to_up_acting(pg);
            let pool = map.pool(pg.pool);
            let size = pool.map_or(0, |p| usize::from(p.size));
            let coded = pool.is_some_and(PgPool::is_erasure);
            let up: Vec<OsdId> = places::present(&sets.up).collect();
            let Some((by, stat)) = newest.get(&pg) else {
                out.unknown += 1;
                let group = Group {
                    up,
                    ..Group::default()
                };
                out.groups.insert(pg, group);
                continue;
            };
            let sum = &stat.stats.sum;
            let objects = sum.num_objects.max(0) as u64;
            let current = *by == sets.acting_primary && stat.up == sets.up && stat.acting == sets.acting;
            let active = current && stat.state & pg_state::ACTIVE != 0;
            out.inactive += usize::from(!active);
            out.copies += objects * size as u64;
            let lacking = objects * places::lacking(&sets.acting, size) as u64;
            out.degraded += lacking.max(sum.num_objects_degraded.max(0) as u64);
            let elsewhere = places::to_come(&sets) as u64;
            out.misplaced += match current {
                true => sum.num_objects_misplaced.max(0) as u64,
                false => objects * elsewhere,
            };
            let clean = active
                && stat.state & pg_state::CLEAN != 0
                && stat.state & ILL == 0
                && places::in_place(&sets.up, &sets.acting, coded)
                && up.len() == size;
            let group = Group {
                up,
                bytes: sum.num_bytes.max(0) as u64 / pool.map_or(1, |p| u64::from(map.enough(p))),
                objects,
                clean,
            };
            out.groups.insert(pg, group);
        }
        out
    }

    pub fn is_clean(&self) -> bool {
        self.groups.values().all(|g| g.clean)
    }

    pub fn misplaced_ratio(&self) -> f64 {
        ratio(self.misplaced, self.copies)
    }

    pub fn degraded_ratio(&self) -> f64 {
        ratio(self.degraded, self.copies)
    }

    pub fn of_pool(&self, pool: PoolId) -> impl Iterator<Item = (&PgId, &Group)> {
        self.groups.range(PgId::new(pool, 0)..=PgId::new(pool, u32::MAX))
    }
}

fn ratio(part: u64, all: u64) -> f64 {
    match all {
        0 => 0.0,
        all => part as f64 / all as f64,
    }
}
