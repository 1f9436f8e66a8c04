//! What an OSD tells the cluster about itself, for people: usage and the state of its PGs.

use crate::health::PgHealth;
use crate::ops::shown::no_room;
use crate::osd::Osd;
use cluster::{Forced, OsdReport, SpareSpace};
use pg::{Group, Pg, PgStats, SnapIntervals};
use std::collections::BTreeMap;
use types::pgstats::{ObjectStatCollection, ObjectStatSum, OsdStat, PgStat, StoreStatfs, pg_state};
use types::places;
use types::{EVersion, IntervalSet, OsdId, PoolId, SPgId, Utime};

impl Osd {
    pub fn report(&self) -> OsdReport {
        let state = &self.placement.state;
        let up_from = state.osdmap.osd(self.id).map_or(0, |o| o.info.up_from);
        let stamp = self.wall();
        let (slow_ops, slow_ops_count) = self.slow_ops();
        let forced: BTreeMap<PoolId, Forced> = self.cluster.state().all_forced().collect();
        let commit_ns = self.disk_time.latency(self.clock.monotonic()).as_nanos() as u64;
        OsdReport {
            stamp,
            stat: OsdStat {
                osd: self.id,
                up_from,
                seq: u64::from(stamp.sec),
                num_pgs: self.slots.len() as u32,
                hb_peers: self.links.open().collect(),
                commit_latency_ns: commit_ns,
                // What is durable is applied here: one figure, as BlueStore has it.
                apply_latency_ns: commit_ns,
                slow_ops,
                slow_ops_count,
                statfs: self.statfs(),
                pool_statfs: self.pool_statfs(),
            },
            pgs: self
                .pgs()
                .map(|(id, pg)| (id.pg, self.pg_stat(id, pg, forced.get(&id.pg.pool))))
                .collect(),
            purged_snaps: self
                .pgs()
                .map(|(id, pg)| (id.pg, intervals(pg.trimmed_snaps())))
                .collect(),
            silent: self.silent().into_iter().collect(),
            spare: self.spare(),
            locks: self.held_locks(),
            images: self.images.sums(),
            no_room: self
                .pgs()
                .map(|(id, pg)| (id.pg, no_room(pg).collect::<Vec<_>>()))
                .filter(|(_, list)| !list.is_empty())
                .collect(),
        }
    }

    /// What the host lets it have, where it lives in its spare space.
    fn spare(&self) -> Option<SpareSpace> {
        let spare = self.spare.as_ref()?;
        let (host_free, taken) = match store::host_use(&spare.dir) {
            Ok(found) => found,
            Err(e) => {
                tracing::warn!("osd.{}: the host's free space is not known: {e}", self.id);
                return None;
            }
        };
        let fs = self.store.engine.statfs();
        Some(SpareSpace {
            usable: usable(
                taken.saturating_sub(fs.log_bytes),
                host_free,
                spare.reserve,
                self.disk_share,
            ),
            reserve: spare.reserve,
            host_free,
        })
    }

    fn statfs(&self) -> StoreStatfs {
        let fs = self.store.engine.statfs();
        let (mut total, mut available) = space(&fs, self.disk_share);
        if let Some(spare) = self.spare() {
            // Holes in the file are the host's: what lies in them cannot be counted on.
            available = available.min(spare.usable.saturating_sub(fs.used));
            total = total.min(spare.usable.max(fs.used));
        }
        StoreStatfs {
            total: total as i64,
            available: available as i64,
            allocated: fs.used as i64,
            data_stored: fs.stored as i64,
            data_compressed: fs.compressed as i64,
            data_compressed_allocated: fs.compressed_allocated as i64,
            data_compressed_original: fs.compressed_original as i64,
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
            data_compressed: u.compressed as i64,
            data_compressed_allocated: u.compressed_allocated as i64,
            data_compressed_original: u.compressed_original as i64,
            omap_allocated: u.omap_bytes as i64,
            ..StoreStatfs::default()
        };
        // What a bench writes is in no pool.
        let usage = usage.into_iter().filter(|(pool, _)| *pool >= 0);
        usage.map(|(pool, u)| (pool, of(u))).collect()
    }

    fn pg_stat(&self, id: SPgId, pg: &Pg, forced: Option<&Forced>) -> PgStat {
        let epoch = self.placement.epoch();
        let (now, s) = (self.wall(), pg.stats());
        let health = PgHealth::of(pg, &self.placement.state.osdmap);
        let (up, acting) = self.sets(id, pg.group());
        let interval = pg.group().interval;
        let then = |flag: u64| {
            if health.state & flag != 0 {
                now
            } else {
                Utime::ZERO
            }
        };
        let recovered = self.slots.get(&id).map_or((0, 0), |slot| slot.recovered);
        let scrub = pg.scrub_view();
        let stamps = scrub.stamps;
        let sum = ObjectStatSum {
            num_object_copies: health.copies,
            num_objects_degraded: health.degraded,
            num_objects_misplaced: health.misplaced,
            num_objects_recovered: recovered.0,
            num_bytes_recovered: recovered.1,
            num_scrub_errors: i64::from(stamps.errors()),
            num_shallow_scrub_errors: i64::from(stamps.shallow_errors),
            num_deep_scrub_errors: i64::from(stamps.deep_errors),
            num_objects_repaired: scrub.repaired as i64,
            ..stat_sum(&s)
        };
        PgStat {
            state: health.state | forced.map_or(0, |f| f.flags(id.pg.seed)),
            version: EVersion::new(epoch, s.version),
            reported_seq: u64::from(now.sec),
            reported_epoch: epoch,
            last_fresh: now,
            last_active: then(pg_state::ACTIVE),
            last_peered: then(pg_state::ACTIVE | pg_state::PEERED),
            last_clean: then(pg_state::CLEAN),
            last_unstale: now,
            last_undegraded: if health.state & pg_state::DEGRADED == 0 {
                now
            } else {
                Utime::ZERO
            },
            last_fullsized: if health.state & pg_state::UNDERSIZED == 0 {
                now
            } else {
                Utime::ZERO
            },
            mapping_epoch: interval,
            created: self.placement.state.pgs.get(id.pg).map_or(0, |c| c.created),
            last_epoch_clean: match health.state & pg_state::CLEAN {
                0 => self.slots.get(&id).map_or(0, |slot| slot.last_clean),
                _ => epoch,
            },
            last_scrub: stamps.version,
            last_scrub_stamp: stamps.at,
            last_deep_scrub: stamps.deep_version,
            last_deep_scrub_stamp: stamps.deep_at,
            log_size: pg.log_len() as i64,
            ondisk_log_size: pg.log_len() as i64,
            up_primary: places::listed(&up).into_iter().flatten().next().unwrap_or(-1),
            acting_primary: self.id,
            up,
            acting,
            blocked_by: health.blocked_by,
            stats: ObjectStatCollection { sum },
            ..PgStat::unknown(id.pg)
        }
    }

    /// Where a PG should be and where it is: of shards each in its position, with holes.
    fn sets(&self, id: SPgId, group: &Group) -> (Vec<OsdId>, Vec<OsdId>) {
        if !group.is_coded() {
            return (group.up.clone(), group.in_sync.clone());
        }
        let holders: Vec<_> = (0..group.acting.len()).map(|at| group.holder(at)).collect();
        (self.placement.up(id.pg).to_vec(), places::to_set(&holders))
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

/// Bytes that an OSD may hold which takes `taken` of its host's file system: its part of what is free beyond the
/// reserve, or of what is missing there, counts.
fn usable(taken: u64, host_free: u64, reserve: u64, share: u32) -> u64 {
    let share = u64::from(share.max(1));
    (taken + host_free.saturating_sub(reserve) / share)
        .saturating_sub(reserve.saturating_sub(host_free) / share)
}

fn stat_sum(s: &PgStats) -> ObjectStatSum {
    ObjectStatSum {
        num_bytes: s.bytes,
        num_objects: s.objects,
        num_object_clones: s.clones,
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

#[cfg(test)]
mod tests {
    use super::usable;

    #[test]
    fn what_an_osd_may_hold_in_spare_space() {
        const G: u64 = 1 << 30;
        // Ten taken, fifty free, ten of them the host's.
        assert_eq!(usable(10 * G, 50 * G, 10 * G, 1), 50 * G);
        // It does not matter whose the data is: what it gives up is free then.
        assert_eq!(usable(4 * G, 56 * G, 10 * G, 1), 50 * G);
        // The host has less than it shall have.
        assert_eq!(usable(10 * G, 4 * G, 10 * G, 1), 4 * G);
        assert_eq!(usable(10 * G, 4 * G, 10 * G, 2), 7 * G);
        assert_eq!(usable(G, 0, 10 * G, 1), 0);
    }
}
