//! Figures over placement groups and OSDs, from the map and the OSDs' reports: the base of `status`, `df`, `pg *`.
//!
//! A PG's figures count only when the OSD that reports them is the PG's acting primary now. A PG without a
//! primary is "down"; one whose primary has not reported yet is "unknown".

use super::Context;
use std::collections::BTreeMap;
use types::osdmap::UpActing;
use types::pgstats::{ObjectStatSum, PgStat, StoreStatfs, pg_state};
use types::{OsdId, PgId, PoolId};

pub struct Figures {
    /// Every PG of the map.
    pub pgs: BTreeMap<PgId, PgStat>,
    /// Disk figures of the OSDs that are in and report.
    pub disks: BTreeMap<OsdId, StoreStatfs>,
    pub total: StoreStatfs,
}

impl Figures {
    pub fn of(ctx: &Context<'_>) -> Self {
        let map = ctx.map();
        let mut pgs = BTreeMap::new();
        for pg in map.pgs() {
            pgs.insert(pg, stat_of(ctx, pg, &map.pg_to_up_acting(pg)));
        }
        let mut disks = BTreeMap::new();
        let mut total = StoreStatfs::default();
        for (id, report) in &ctx.stats.osds {
            if map.is_in(*id) {
                disks.insert(*id, report.stat.statfs);
                total += report.stat.statfs;
            }
        }
        Self { pgs, disks, total }
    }

    /// State text and number of PGs, the most frequent first (then by name, descending, as the real one does).
    pub fn by_state(&self) -> Vec<(String, usize)> {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for s in self.pgs.values() {
            *counts.entry(pg_state::names(s.state)).or_default() += 1;
        }
        let mut out: Vec<_> = counts.into_iter().collect();
        out.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| b.0.cmp(&a.0)));
        out
    }

    pub fn sum(&self) -> ObjectStatSum {
        sum(self.pgs.values())
    }

    pub fn pool_sum(&self, pool: PoolId) -> ObjectStatSum {
        sum(self.pool_pgs(pool))
    }

    pub fn pool_pgs(&self, pool: PoolId) -> impl Iterator<Item = &PgStat> {
        self.pgs.values().filter(move |s| s.pgid.pool == pool)
    }

    /// PGs that each OSD has in its acting set, and how many of them as primary.
    pub fn per_osd(&self) -> BTreeMap<OsdId, (u32, u32)> {
        let mut out: BTreeMap<OsdId, (u32, u32)> = BTreeMap::new();
        for s in self.pgs.values() {
            for osd in &s.acting {
                out.entry(*osd).or_default().0 += 1;
            }
            if s.acting_primary >= 0 {
                out.entry(s.acting_primary).or_default().1 += 1;
            }
        }
        out
    }

    pub fn inactive(&self) -> usize {
        self.pgs
            .values()
            .filter(|s| s.state & (pg_state::ACTIVE) == 0)
            .count()
    }

    pub fn unknown(&self) -> usize {
        self.pgs.values().filter(|s| s.state == pg_state::UNKNOWN).count()
    }

    pub fn remapped(&self) -> usize {
        self.pgs
            .values()
            .filter(|s| s.state & pg_state::REMAPPED != 0 || s.up != s.acting)
            .count()
    }
}

fn sum<'a>(pgs: impl Iterator<Item = &'a PgStat>) -> ObjectStatSum {
    let mut out = ObjectStatSum::default();
    for s in pgs {
        out += s.stats.sum;
    }
    out
}

fn stat_of(ctx: &Context<'_>, pg: PgId, sets: &UpActing) -> PgStat {
    let reporter = ctx.stats.osds.get(&sets.acting_primary);
    let mut stat = match reporter.and_then(|r| r.pgs.get(&pg)) {
        Some(s) if sets.acting_primary >= 0 => s.clone(),
        _ => {
            let mut unknown = PgStat::unknown(pg);
            if sets.acting_primary < 0 {
                unknown.state = pg_state::DOWN;
            }
            unknown
        }
    };
    stat.up = sets.up.clone();
    stat.up_primary = sets.up_primary;
    stat.acting = sets.acting.clone();
    stat.acting_primary = sets.acting_primary;
    stat
}

/// A counter that is never negative in a sane report, for output.
pub fn count(v: i64) -> u64 {
    v.max(0) as u64
}
