//! What the OSDs report about themselves: numbers for people, never for decisions about data.
//!
//! Reports live under leased keys, so those of a dead OSD vanish. Bounds: [`PGS_PER_REPORT_MAX`].

use std::collections::BTreeMap;
use std::sync::Arc;
use types::pgstats::{ObjectStatSum, OsdStat, PgStat, PoolStat};
use types::{IntervalSet, OsdId, PgId, PoolId, Utime};

/// Placement groups one OSD may report.
pub const PGS_PER_REPORT_MAX: usize = 65_536;

/// One OSD's report.
#[derive(Debug, Clone, Default)]
pub struct OsdReport {
    pub stamp: Utime,
    pub stat: OsdStat,
    /// PGs of which this OSD is the primary.
    pub pgs: BTreeMap<PgId, PgStat>,
    /// Of these PGs: snapshots of the map's `removed_snaps_queue` whose clones are all gone. When every PG of
    /// a pool says so, the monitor takes the snapshot off the queue.
    pub purged_snaps: BTreeMap<PgId, IntervalSet>,
}
denc::envelope_denc!(OsdReport, 1, 1, { stamp, stat, pgs, purged_snaps });

/// The latest reports of all OSDs.
#[derive(Debug, Clone, Default)]
pub struct ClusterStats {
    /// Counts changes of the reports; "stats version" on the wire.
    pub version: u64,
    pub osds: BTreeMap<OsdId, Arc<OsdReport>>,
}

impl ClusterStats {
    /// All placement groups that were reported, with the OSD that did.
    pub fn pgs(&self) -> impl Iterator<Item = (OsdId, PgId, &PgStat)> {
        self.osds
            .iter()
            .flat_map(|(osd, r)| r.pgs.iter().map(|(pg, s)| (*osd, *pg, s)))
    }

    pub fn pg(&self, pg: PgId) -> Option<&PgStat> {
        self.osds
            .values()
            .filter_map(|r| r.pgs.get(&pg))
            .max_by_key(|s| s.reported_epoch)
    }

    /// The snapshots of `pool` that all of its PGs (`pg_num` of them) have purged.
    pub fn purged_everywhere(&self, pool: PoolId, pg_num: u32, queue: &IntervalSet) -> IntervalSet {
        let mut rest = queue.clone();
        let mut seen = std::collections::BTreeSet::new();
        for report in self.osds.values() {
            for (pg, purged) in report
                .purged_snaps
                .range(PgId::new(pool, 0)..=PgId::new(pool, u32::MAX))
            {
                seen.insert(pg.seed);
                let mut missing = rest.clone();
                missing.subtract(purged);
                rest.subtract(&missing);
            }
        }
        if (0..pg_num).all(|seed| seen.contains(&seed)) {
            rest
        } else {
            IntervalSet::new()
        }
    }

    /// Sums over one pool's PGs.
    pub fn pool_sum(&self, pool: PoolId) -> ObjectStatSum {
        self.pool_stat(pool).stats.sum
    }

    /// One pool's figures as clients get them.
    pub fn pool_stat(&self, pool: PoolId) -> PoolStat {
        let mut stat = PoolStat::default();
        for report in self.osds.values() {
            for (_, pg) in report.pgs.range(PgId::new(pool, 0)..=PgId::new(pool, u32::MAX)) {
                stat.add_pg(pg);
            }
            if let Some(store) = report.stat.pool_statfs.get(&pool) {
                stat.store_stats += *store;
                stat.num_store_stats += 1;
            }
        }
        stat
    }
}
