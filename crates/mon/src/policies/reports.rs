//! Reports of OSDs about placement groups: which of several counts.

use cluster::ClusterStats;
use std::collections::BTreeMap;
use types::pgstats::PgStat;
use types::{OsdId, PgId};

/// The newest report of each PG, and who made it.
pub fn newest_reports(stats: &ClusterStats) -> BTreeMap<PgId, (OsdId, &PgStat)> {
    let mut out: BTreeMap<PgId, (OsdId, &PgStat)> = BTreeMap::new();
    for (osd, pg, stat) in stats.pgs() {
        let newer = out.get(&pg).is_none_or(|(_, s)| {
            (stat.reported_epoch, stat.reported_seq) > (s.reported_epoch, s.reported_seq)
        });
        if newer {
            out.insert(pg, (osd, stat));
        }
    }
    out
}
