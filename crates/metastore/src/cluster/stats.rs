//! What the OSDs report about themselves: numbers for people, never for decisions about data.
//!
//! Reports live under leased keys, so those of a dead OSD vanish. Bounds: [`PGS_PER_REPORT_MAX`].

use denc::{Decode, Encode, Reader, Result, Writer};
use std::collections::BTreeMap;
use std::sync::Arc;
use types::pgstats::{ObjectStatSum, PgStat, StoreStatfs};
use types::{OsdId, PgId, PoolId, Utime};

/// Placement groups one OSD may report.
pub const PGS_PER_REPORT_MAX: usize = 65_536;

/// One OSD's report.
#[derive(Debug, Clone, Default)]
pub struct OsdReport {
    pub stamp: Utime,
    pub statfs: StoreStatfs,
    /// PGs of which this OSD is the primary.
    pub pgs: BTreeMap<PgId, PgStat>,
    pub commit_latency_ms: u32,
    pub apply_latency_ms: u32,
}

impl Encode for OsdReport {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.put(&self.stamp);
            w.put(&self.statfs);
            w.put(&self.pgs);
            w.u32(self.commit_latency_ms);
            w.u32(self.apply_latency_ms);
        });
    }
}

impl Decode for OsdReport {
    fn decode(r: &mut Reader) -> Result<Self> {
        r.envelope(1, |_, r| {
            Ok(Self {
                stamp: r.get()?,
                statfs: r.get()?,
                pgs: r.get()?,
                commit_latency_ms: r.u32()?,
                apply_latency_ms: r.u32()?,
            })
        })
    }
}

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

    /// Sums over one pool's PGs.
    pub fn pool_sum(&self, pool: PoolId) -> ObjectStatSum {
        let mut sum = ObjectStatSum::default();
        for (_, pg, stat) in self.pgs() {
            if pg.pool == pool {
                sum.add(&stat.stats);
            }
        }
        sum
    }
}
