//! What an OSD tells the cluster about itself, for people: usage and the state of its PGs.

use crate::osd::Osd;
use metastore::OsdReport;
use pg::PgStats;
use pg::SnapIntervals;
use std::collections::BTreeMap;
use types::pgstats::{ObjectStatCollection, ObjectStatSum, OsdStat, PgStat, StoreStatfs, pg_state};
use types::{EVersion, IntervalSet, PgId, PoolId};

impl Osd {
    pub fn report(&self) -> OsdReport {
        let state = &self.placement.state;
        let up_from = state.osdmap.osd(self.id).map_or(0, |o| o.info.up_from);
        let stamp = self.wall();
        OsdReport {
            stamp,
            stat: OsdStat {
                osd: self.id,
                up_from,
                seq: u64::from(stamp.sec),
                num_pgs: self.pgs().count() as u32,
                statfs: self.statfs(),
                pool_statfs: self.pool_statfs(),
                ..OsdStat::default()
            },
            pgs: self
                .pgs()
                .map(|(id, pg)| (id, self.pg_stat(id, &pg.stats(), pg.log_len())))
                .collect(),
            purged_snaps: self
                .pgs()
                .map(|(id, pg)| (id, intervals(pg.trimmed_snaps())))
                .collect(),
        }
    }

    fn statfs(&self) -> StoreStatfs {
        let fs = self.store.engine.statfs();
        let (total, available) = space(&fs, self.disk_share);
        StoreStatfs {
            total: total as i64,
            available: available as i64,
            allocated: fs.used as i64,
            data_stored: fs.stored as i64,
            omap_allocated: fs.omap_bytes as i64,
            internal_metadata: (fs.index_bytes + fs.log_bytes) as i64,
            ..StoreStatfs::default()
        }
    }

    fn pool_statfs(&self) -> BTreeMap<PoolId, StoreStatfs> {
        let usage = self.store.engine.usage();
        let of = |u: store::PoolUsage| StoreStatfs {
            allocated: u.allocated as i64,
            data_stored: u.stored as i64,
            omap_allocated: u.omap_bytes as i64,
            ..StoreStatfs::default()
        };
        usage.into_iter().map(|(pool, u)| (pool, of(u))).collect()
    }

    fn pg_stat(&self, id: PgId, s: &PgStats, log_len: usize) -> PgStat {
        let epoch = self.placement.epoch();
        let now = self.wall();
        let sets = self.placement.state.osdmap.pg_to_up_acting(id);
        let remapped = if sets.up == sets.acting {
            0
        } else {
            pg_state::REMAPPED
        };
        let interval = self.placement.state.pgs.get(id).map_or(epoch, |c| c.interval);
        PgStat {
            state: pg_state::ACTIVE | pg_state::CLEAN | remapped,
            version: EVersion::new(epoch, s.version),
            reported_seq: u64::from(now.sec),
            reported_epoch: epoch,
            last_fresh: now,
            last_active: now,
            last_peered: now,
            last_clean: now,
            last_unstale: now,
            last_undegraded: now,
            last_fullsized: now,
            mapping_epoch: interval,
            created: interval,
            last_epoch_clean: epoch,
            log_size: log_len as i64,
            ondisk_log_size: log_len as i64,
            up_primary: sets.up_primary,
            acting_primary: sets.acting_primary,
            up: sets.up,
            acting: sets.acting,
            stats: ObjectStatCollection { sum: stat_sum(s) },
            ..PgStat::unknown(id)
        }
    }

    /// Publishes the report at once; its stamp in nanoseconds serves as a sequence number.
    pub fn flush_report(&self) -> u64 {
        let (cluster, id, report) = (self.cluster.clone(), self.id, self.report());
        let stamp = u64::from(report.stamp.sec) * 1_000_000_000 + u64::from(report.stamp.nsec);
        io::task::spawn_local(async move {
            if let Err(e) = cluster.publish_stats(id, &report).await {
                tracing::warn!("osd.{id}: report not published: {e}");
            }
        });
        stamp
    }
}

/// Total and available bytes, with the free space shared among the OSDs of one file system: the sum over them
/// is then what the file system has.
pub fn space(fs: &store::StatFs, share: u32) -> (u64, u64) {
    let available = fs.available / u64::from(share.max(1));
    (fs.total.saturating_sub(fs.available) + available, available)
}

fn stat_sum(s: &PgStats) -> ObjectStatSum {
    ObjectStatSum {
        num_bytes: s.bytes,
        num_objects: s.objects,
        num_object_clones: s.clones,
        num_object_copies: s.objects,
        num_whiteouts: s.whiteouts,
        num_objects_omap: s.omap_objects,
        num_rd: s.reads as i64,
        num_rd_kb: (s.read_bytes / 1024) as i64,
        num_wr: s.writes as i64,
        num_wr_kb: (s.write_bytes / 1024) as i64,
        ..ObjectStatSum::default()
    }
}

fn intervals(s: &SnapIntervals) -> IntervalSet {
    let mut out = IntervalSet::new();
    s.intervals()
        .iter()
        .for_each(|(first, end)| out.insert_range(*first, end - first));
    out
}
