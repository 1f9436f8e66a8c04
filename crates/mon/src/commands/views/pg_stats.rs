//! Figures over placement groups and OSDs, from the map and the OSDs' reports: the base of `status`, `df`, `pg *`.
//!
//! Counters are the newest that anybody reported; the state counts only from the PG's acting primary of now. A PG
//! without a primary is "down"; one whose new primary has not reported yet is "peering", or "unknown" if nobody
//! ever reported it. What the map alone says (fewer OSDs than copies, other OSDs than wanted) is true at once,
//! without waiting for a report.

use crate::commands::context::Context;
use crate::format::units;
use crate::policies::places;
use crate::policies::reports::newest_reports;
use cluster::{ClusterState, ClusterStats};
use serde_json::Map;
use serde_json::Value;
use std::collections::BTreeMap;
use std::collections::BTreeSet;
use types::osdmap::UpActing;
use types::pgstats::{ObjectStatSum, PgStat, StoreStatfs, pg_state};
use types::pool::PgPool;
use types::{OsdId, PgId, PoolId};

pub struct Figures {
    /// Every PG of the map.
    pub pgs: BTreeMap<PgId, PgStat>,
    /// Disk figures of the OSDs that are in and report.
    pub disks: BTreeMap<OsdId, StoreStatfs>,
    pub total: StoreStatfs,
    /// What each pool takes of all OSDs that report.
    pub pools: BTreeMap<PoolId, StoreStatfs>,
    /// Pools of shards.
    coded: BTreeSet<PoolId>,
}

impl Figures {
    pub fn of(ctx: &Context<'_>) -> Self {
        Self::new(ctx.state, ctx.stats)
    }

    pub fn new(state: &ClusterState, stats: &ClusterStats) -> Self {
        let map = &*state.osdmap;
        let newest = newest_reports(stats);
        let mut pgs = BTreeMap::new();
        for pg in map.pgs() {
            let sets = map.pg_to_up_acting(pg);
            pgs.insert(pg, stat_of(state, newest.get(&pg).copied(), pg, sets));
        }
        let mut disks = BTreeMap::new();
        let mut total = StoreStatfs::default();
        let mut pools: BTreeMap<PoolId, StoreStatfs> = BTreeMap::new();
        for (id, report) in &stats.osds {
            if map.is_in(*id) {
                disks.insert(*id, report.stat.statfs);
                total += report.stat.statfs;
            }
            for (pool, taken) in &report.stat.pool_statfs {
                *pools.entry(*pool).or_default() += *taken;
            }
        }
        Self {
            pgs,
            disks,
            total,
            pools,
            coded: map
                .pools
                .iter()
                .filter(|(_, p)| p.is_erasure())
                .map(|(id, _)| *id)
                .collect(),
        }
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
        let all = PgId::new(pool, 0)..=PgId::new(pool, u32::MAX);
        self.pgs.range(all).map(|(_, s)| s)
    }

    /// PGs that each OSD has in its acting set, and how many of them as primary.
    pub fn per_osd(&self) -> BTreeMap<OsdId, (u32, u32)> {
        let mut out: BTreeMap<OsdId, (u32, u32)> = BTreeMap::new();
        for s in self.pgs.values() {
            for osd in places::present(&s.acting) {
                out.entry(osd).or_default().0 += 1;
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
        let in_place = |s: &&PgStat| places::in_place(&s.up, &s.acting, self.coded.contains(&s.pgid.pool));
        self.pgs
            .values()
            .filter(|s| s.state & pg_state::REMAPPED != 0 || !in_place(s))
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

fn stat_of(state: &ClusterState, newest: Option<(OsdId, &PgStat)>, pg: PgId, sets: UpActing) -> PgStat {
    let map = &*state.osdmap;
    let mut stat = newest.map_or_else(|| PgStat::unknown(pg), |(_, s)| s.clone());
    // The order says who leads, not where data is.
    let about_now = same_osds(&stat.up, &sets.up) && same_osds(&stat.acting, &sets.acting);
    if sets.acting_primary < 0 {
        stat.state = pg_state::DOWN;
        let members = state.pgs.get(pg).map_or(&[][..], |c| &c.in_sync[..]);
        stat.blocked_by = members.iter().copied().filter(|o| !map.is_up(*o)).collect();
    } else if newest.is_some_and(|(by, _)| by != sets.acting_primary) {
        stat.state = pg_state::PEERING;
        stat.blocked_by.clear();
    }
    let pool = map.pool(pg.pool);
    let coded = pool.is_some_and(PgPool::is_erasure);
    if coded && let Some(short) = too_few_shards(state, pg) {
        stat.state = short;
        let members = state.pgs.get(pg).map_or(&[][..], |c| &c.in_sync[..]);
        stat.blocked_by = members.iter().copied().filter(|o| !map.is_up(*o)).collect();
    }
    let size = pool.map_or(0, |p| usize::from(p.size));
    let missing = places::lacking(&sets.acting, size);
    let elsewhere = places::to_come(&sets);
    let in_place = places::in_place(&sets.up, &sets.acting, coded);
    if stat.state & (pg_state::ACTIVE | pg_state::PEERED | pg_state::DOWN) != 0 {
        if missing > 0 && sets.acting_primary >= 0 {
            stat.state |= pg_state::UNDERSIZED | pg_state::DEGRADED;
            stat.state &= !pg_state::CLEAN;
        }
        if !in_place && sets.acting_primary >= 0 {
            stat.state |= pg_state::REMAPPED;
            stat.state &= !pg_state::CLEAN;
        }
    }
    let sum = &mut stat.stats.sum;
    sum.num_object_copies = sum
        .num_object_copies
        .max(sum.num_objects.saturating_mul(size as i64));
    // A report about other sets says nothing of what lacks now: every object does.
    if !about_now {
        sum.num_objects_degraded = sum.num_objects.saturating_mul(missing as i64);
        sum.num_objects_misplaced = match missing {
            0 => sum.num_objects.saturating_mul(elsewhere as i64),
            _ => 0,
        };
    }
    stat.up = sets.up;
    stat.up_primary = sets.up_primary;
    stat.acting = sets.acting;
    stat.acting_primary = sets.acting_primary;
    stat
}

/// What a PG of shards is that has no object, whoever leads it: fewer shards are there than an object has of data. Down where the
/// return of an OSD would help, else incomplete.
fn too_few_shards(state: &ClusterState, pg: PgId) -> Option<u64> {
    let map = &*state.osdmap;
    let enough = usize::from(map.enough(map.pool(pg.pool)?));
    let Some(config) = state.pgs.get(pg) else {
        // It has not begun: there were never enough for it.
        return Some(pg_state::CREATING | pg_state::INCOMPLETE);
    };
    let alive = config.in_sync.iter().filter(|o| map.is_up(**o)).count();
    match config.in_sync.len() < enough {
        _ if alive >= enough => None,
        true => Some(pg_state::INCOMPLETE),
        false => Some(pg_state::DOWN),
    }
}

fn same_osds(a: &[OsdId], b: &[OsdId]) -> bool {
    a.len() == b.len() && a.iter().all(|o| b.contains(o))
}

/// A counter that is never negative in a sane report, for output.
pub fn count(v: i64) -> u64 {
    v.max(0) as u64
}

/// Objects in a bad way, of how many copies: `12/300 objects degraded (4.000%)`.
pub struct Share {
    pub bad: u64,
    pub all: u64,
}

impl Share {
    /// None when there are none.
    pub fn of(bad: i64, all: i64) -> Option<Self> {
        (bad > 0 && all > 0).then(|| Self {
            bad: count(bad),
            all: count(all),
        })
    }

    pub fn degraded(sum: &ObjectStatSum) -> Option<Self> {
        Self::of(sum.num_objects_degraded, sum.num_object_copies)
    }

    pub fn misplaced(sum: &ObjectStatSum) -> Option<Self> {
        Self::of(sum.num_objects_misplaced, sum.num_object_copies)
    }

    /// Unfound objects are counted once, not by copies.
    pub fn unfound(sum: &ObjectStatSum) -> Option<Self> {
        Self::of(sum.num_objects_unfound, sum.num_objects)
    }

    pub fn ratio(&self) -> f64 {
        self.bad as f64 / self.all as f64
    }

    pub fn text(&self, word: &str) -> String {
        format!(
            "{}/{} objects {word} ({:.3}%)",
            self.bad,
            self.all,
            self.ratio() * 100.0
        )
    }
}

/// Objects that lack copies, lie elsewhere, or cannot be found; nothing when all is well.
pub fn add_shares(sum: &ObjectStatSum, to: &mut Map<String, Value>) {
    let shares = [
        ("degraded", Share::degraded(sum)),
        ("misplaced", Share::misplaced(sum)),
        ("unfound", Share::unfound(sum)),
    ];
    for (word, share) in shares {
        let Some(s) = share else { continue };
        to.insert(format!("{word}_objects"), s.bad.into());
        to.insert(format!("{word}_total"), s.all.into());
        to.insert(format!("{word}_ratio"), s.ratio().into());
    }
}

/// The same in words.
pub fn share_texts(sum: &ObjectStatSum) -> Vec<String> {
    let shares = [
        ("degraded", Share::degraded(sum)),
        ("misplaced", Share::misplaced(sum)),
        ("unfound", Share::unfound(sum)),
    ];
    shares
        .iter()
        .filter_map(|(word, s)| Some(s.as_ref()?.text(word)))
        .collect()
}

/// `875 MiB used, 11 GiB / 12 GiB avail`
pub fn usage(figures: &Figures) -> String {
    let t = &figures.total;
    format!(
        "{} used, {} / {} avail",
        units::bytes(count(t.used())),
        units::bytes(count(t.available)),
        units::bytes(count(t.total))
    )
}

/// PGs that need the OSD.
pub fn needed_by(ctx: &Context<'_>, figures: &Figures, osd: OsdId) -> BTreeSet<PgId> {
    let needs = |pg: PgId, s: &PgStat| {
        s.acting.contains(&osd)
            || s.up.contains(&osd)
            || ctx.state.pgs.get(pg).is_some_and(|c| c.in_sync.contains(&osd))
    };
    figures
        .pgs
        .iter()
        .filter(|(pg, s)| needs(**pg, s))
        .map(|(pg, _)| *pg)
        .collect()
}
