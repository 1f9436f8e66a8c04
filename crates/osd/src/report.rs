//! What an OSD tells the cluster about itself, for people: usage and the state of its PGs.

use crate::osd::Osd;
use metastore::OsdReport;
use pg::PgStats;
use std::collections::BTreeMap;
use types::pgstats::{ObjectStatSum, PgStat, StoreStatfs, pg_state};
use types::{EVersion, PgId};

impl Osd {
    pub fn report(&self) -> OsdReport {
        let fs = self.store.0.statfs();
        OsdReport {
            stamp: self.wall(),
            statfs: StoreStatfs {
                total: fs.total as i64,
                available: fs.available as i64,
                allocated: fs.used as i64,
                data_stored: fs.stored as i64,
                omap_allocated: fs.omap_bytes as i64,
                internal_metadata: (fs.index_bytes + fs.log_bytes) as i64,
                ..StoreStatfs::default()
            },
            pgs: self.pgs().map(|(id, pg)| (id, self.pg_stat(id, &pg.stats()))).collect::<BTreeMap<_, _>>(),
            commit_latency_ms: 0,
            apply_latency_ms: 0,
        }
    }

    fn pg_stat(&self, id: PgId, s: &PgStats) -> PgStat {
        let epoch = self.placement.epoch();
        let sets = self.placement.state.osdmap.pg_to_up_acting(id);
        let remapped = if sets.up == sets.acting { 0 } else { pg_state::REMAPPED };
        let interval = self.placement.state.pgs.get(id).map_or(epoch, |c| c.interval);
        PgStat {
            state: pg_state::ACTIVE | pg_state::CLEAN | remapped,
            version: EVersion::new(epoch, s.version),
            reported_epoch: epoch,
            created: interval,
            up_primary: sets.up_primary,
            acting_primary: sets.acting_primary,
            up: sets.up,
            acting: sets.acting,
            stats: types::pgstats::ObjectStatCollection {
                sum: ObjectStatSum {
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
                },
            },
            ..PgStat::default()
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
