//! What OSDs and monitors report about themselves: numbers for people, never for decisions about data.
//!
//! Reports live under leased keys, so those of a dead OSD vanish.

use crate::images::{ImageKey, ImageSum};
use crate::services::ServiceMap;
use denc::{Decode, Encode, Reader, Result, Writer};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use types::pgstats::{HeldLock, NoRoom, ObjectStatSum, OsdStat, PgStat, PoolStat};
use types::{EntityAddrVec, IntervalSet, OsdId, PgId, PoolId, Utime};

/// Reports closer together give no rate.
pub(crate) const MIN_RATE_SECONDS: f64 = 0.1;

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
    /// Peers that it does not hear.
    pub silent: Vec<OsdId>,
    /// Where it lives in what its host can spare.
    pub spare: Option<SpareSpace>,
    /// Locks on objects of these PGs, where somebody should know of them; at most `HELD_LOCKS_MAX`.
    pub locks: Vec<HeldLock>,
    /// Members of these PGs whose disks have no room.
    pub no_room: BTreeMap<PgId, Vec<NoRoom>>,
    /// What clients did to images here; at most [`crate::IMAGES_MAX`].
    pub images: BTreeMap<ImageKey, ImageSum>,
}
denc::envelope_denc!(OsdReport, 5, 5, { stamp, stat, pgs, purged_snaps, silent, spare, locks, no_room, images });

/// What a living monitor says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MonReport {
    pub name: String,
    /// When it began to serve.
    pub started: Utime,
    /// The manager's front of the same process: name, identity, addresses.
    pub mgr_name: String,
    pub mgr_gid: u64,
    pub mgr_addrs: EntityAddrVec,
    /// Facts for `mon metadata`.
    pub metadata: BTreeMap<String, String>,
    /// Who has registered with that manager.
    pub services: ServiceMap,
}

impl Encode for MonReport {
    fn encode(&self, w: &mut Writer) {
        w.envelope(2, 1, |w| {
            w.put(&self.name);
            w.put(&self.started);
            w.put(&self.mgr_name);
            w.put(&self.mgr_gid);
            w.put(&self.mgr_addrs);
            w.put(&self.metadata);
            w.put(&self.services);
        });
    }
}

impl Decode for MonReport {
    fn decode(r: &mut Reader) -> Result<Self> {
        r.envelope(2, |version, r| {
            Ok(Self {
                name: r.get()?,
                started: r.get()?,
                mgr_name: r.get()?,
                mgr_gid: r.get()?,
                mgr_addrs: r.get()?,
                metadata: r.get()?,
                // An older monitor does not say it.
                services: if version >= 2 {
                    r.get()?
                } else {
                    ServiceMap::default()
                },
            })
        })
    }
}

/// What an OSD may use of a file system that it shares with its host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SpareSpace {
    /// Bytes that it may hold in all, as things stand: what it takes now, and what is free beyond the reserve; less, where
    /// the host has less free than that.
    pub usable: u64,
    /// What shall stay free for the host, and what is free.
    pub reserve: u64,
    pub host_free: u64,
}
denc::plain_denc!(SpareSpace {
    usable,
    reserve,
    host_free
});

/// The latest reports of all OSDs.
#[derive(Debug, Clone, Default)]
pub struct ClusterStats {
    /// Counts changes of the reports; "stats version" on the wire.
    pub version: u64,
    pub osds: BTreeMap<OsdId, Arc<OsdReport>>,
    /// The ones before them: rates are the difference.
    pub previous: BTreeMap<OsdId, Arc<OsdReport>>,
    /// Living monitors by name.
    pub mons: BTreeMap<String, MonReport>,
    /// The OSDs that hold a lease: any other surely does not serve.
    pub leased: Arc<BTreeSet<OsdId>>,
    /// The metadata servers that hold one, by gid.
    pub leased_mds: Arc<BTreeSet<u64>>,
}

/// Client I/O per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct IoRates {
    pub read_bytes: u64,
    pub write_bytes: u64,
    pub read_ops: u64,
    pub write_ops: u64,
}

/// What is copied to members that lack it, per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RecoveryRates {
    pub bytes: u64,
    pub objects: u64,
    pub keys: u64,
    /// Of which the rates are: what was copied between the last two reports.
    pub bytes_done: u64,
    pub objects_done: u64,
    pub keys_done: u64,
}

impl ClusterStats {
    /// Takes over an OSD's new report.
    pub fn note(&mut self, id: OsdId, report: OsdReport) {
        if let Some(old) = self.osds.insert(id, Arc::new(report)) {
            self.previous.insert(id, old);
        }
    }

    /// Its lease has ended.
    pub fn forget(&mut self, id: OsdId) {
        self.osds.remove(&id);
        self.previous.remove(&id);
    }

    /// What clients do per second, in one pool or in all, between the last two reports of each OSD.
    pub fn io_rates(&self, pool: Option<PoolId>) -> IoRates {
        let mut out = IoRates::default();
        self.each_delta(pool, |sum, seconds| {
            out.read_bytes += per_second(sum.num_rd_kb.saturating_mul(1024), seconds);
            out.write_bytes += per_second(sum.num_wr_kb.saturating_mul(1024), seconds);
            out.read_ops += per_second(sum.num_rd, seconds);
            out.write_ops += per_second(sum.num_wr, seconds);
        });
        out
    }

    /// As [`Self::io_rates`], for what is copied to heal.
    pub fn recovery_rates(&self, pool: Option<PoolId>) -> RecoveryRates {
        let mut out = RecoveryRates::default();
        self.each_delta(pool, |sum, seconds| {
            out.bytes += per_second(sum.num_bytes_recovered, seconds);
            out.objects += per_second(sum.num_objects_recovered, seconds);
            out.keys += per_second(sum.num_keys_recovered, seconds);
            out.bytes_done += sum.num_bytes_recovered.max(0) as u64;
            out.objects_done += sum.num_objects_recovered.max(0) as u64;
            out.keys_done += sum.num_keys_recovered.max(0) as u64;
        });
        out
    }

    /// What each OSD's counters gained between its last two reports, and in how many seconds.
    fn each_delta(&self, pool: Option<PoolId>, mut f: impl FnMut(ObjectStatSum, f64)) {
        for (id, now) in &self.osds {
            let Some(before) = self.previous.get(id) else {
                continue;
            };
            let seconds = now
                .stamp
                .to_duration()
                .saturating_sub(before.stamp.to_duration())
                .as_secs_f64();
            if seconds < MIN_RATE_SECONDS {
                continue;
            }
            let mut sum = ObjectStatSum::default();
            let of = match pool {
                Some(p) => now.pgs.range(PgId::new(p, 0)..=PgId::new(p, u32::MAX)),
                None => now.pgs.range(..),
            };
            for (pg, stat) in of {
                // A group that just came to this OSD, or whose counters began anew, has no rate yet.
                if let Some(old) = before.pgs.get(pg) {
                    sum += stat.stats.sum - old.stats.sum;
                }
            }
            f(sum, seconds);
        }
    }

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

fn per_second(n: i64, seconds: f64) -> u64 {
    (n.max(0) as f64 / seconds) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use denc::{Decode, Encode};

    #[test]
    fn a_snapshot_is_purged_when_every_group_says_so() {
        let mut stats = ClusterStats::default();
        let queue: IntervalSet = [2, 3, 7].into_iter().collect();
        let mut report = |osd: OsdId, seeds: &[u32], purged: &[u64]| {
            let mut r = OsdReport::default();
            for seed in seeds {
                r.purged_snaps
                    .insert(PgId::new(1, *seed), purged.iter().copied().collect());
            }
            stats.osds.insert(osd, Arc::new(r));
            stats.purged_everywhere(1, 3, &queue)
        };
        assert!(
            report(0, &[0, 1], &[2, 3, 7]).is_empty(),
            "the third group has not spoken"
        );
        assert_eq!(report(1, &[2], &[3, 9]), [3].into_iter().collect());
        assert_eq!(report(1, &[2], &[2, 3, 7]), queue);
    }

    #[test]
    fn rates_are_the_difference_of_two_reports() {
        let report = |sec: u32, pool: i64, wr: i64, kb: i64| {
            let mut r = OsdReport {
                stamp: Utime { sec, nsec: 0 },
                ..OsdReport::default()
            };
            let mut pg = PgStat::unknown(PgId::new(pool, 0));
            (pg.stats.sum.num_wr, pg.stats.sum.num_wr_kb) = (wr, kb);
            r.pgs.insert(pg.pgid, pg);
            r
        };
        let mut stats = ClusterStats::default();
        stats.note(0, report(10, 1, 100, 1000));
        assert_eq!(stats.io_rates(None), IoRates::default(), "one report is no rate");
        stats.note(0, report(14, 1, 140, 1400));
        stats.note(1, report(10, 2, 0, 0));
        stats.note(1, report(12, 2, 2, 0));
        let rate = |write_bytes, write_ops| IoRates {
            write_bytes,
            write_ops,
            ..IoRates::default()
        };
        assert_eq!(stats.io_rates(None), rate(102_400, 11));
        assert_eq!(stats.io_rates(Some(1)), rate(102_400, 10));
        stats.note(0, report(18, 1, 3, 3));
        assert_eq!(
            stats.io_rates(Some(1)),
            IoRates::default(),
            "counters that began anew"
        );
        stats.forget(1);
        assert_eq!(stats.io_rates(None), IoRates::default());
    }

    #[test]
    fn decoded_reports_are_what_was_sent() {
        let mut report = OsdReport {
            stamp: Utime { sec: 1, nsec: 2 },
            ..OsdReport::default()
        };
        report.stat.statfs.total = 77;
        report
            .purged_snaps
            .insert(PgId::new(1, 2), [5, 6].into_iter().collect());
        let raw = report.to_bytes();
        let again = OsdReport::from_bytes(&raw).unwrap();
        assert_eq!(
            (again.stat, again.purged_snaps),
            (report.stat, report.purged_snaps)
        );
        for len in 0..raw.len() {
            assert!(OsdReport::from_bytes(&raw.slice(..len)).is_err());
        }
    }
}
