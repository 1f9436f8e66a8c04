//! The PG map, the figures of all placement groups and OSDs in one value: what `ceph pg getmap` gives, and `ceph-dencoder
//! type PGMap` reads. Learned from blobs of 16.2.15 beside its `pg dump` (docs/protocol/monitor.md).
//!
//! What nobody measures here stands as empty, zero or false, as `pg dump` shows it: parents of splits, histograms,
//! times of heartbeats.

use crate::pgstats::{OsdStat, PgStat, StoreStatfs};
use crate::{Epoch, OsdId, PgId, PoolId, Utime};
use denc::{Encode, Writer};
use std::collections::BTreeMap;

/// Groups come in the order of their ids, where Ceph's come in no order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PgMap {
    pub version: u64,
    pub stamp: Utime,
    pub pgs: BTreeMap<PgId, PgStat>,
    /// With what pools take of each.
    pub osds: BTreeMap<OsdId, OsdStat>,
}

impl Encode for PgMap {
    fn encode(&self, w: &mut Writer) {
        w.envelope(8, 8, |w| {
            w.u64(self.version);
            w.u32(self.pgs.len() as u32);
            for (id, s) in &self.pgs {
                w.put(id);
                pg(w, s);
            }
            w.u32(self.osds.len() as u32);
            for (id, s) in &self.osds {
                w.i32(*id);
                osd(w, *id, s);
            }
            // Epochs of the OSD map and of a scan that no release counts any more.
            w.put::<[Epoch; 2]>(&[0, 0]);
            w.put(&self.stamp);
            let pools: BTreeMap<(PoolId, OsdId), StoreStatfs> = self.osds.iter().flat_map(taken).collect();
            w.put(&pools);
        });
    }
}

fn taken<'a>(
    (osd, s): (&'a OsdId, &'a OsdStat),
) -> impl Iterator<Item = ((PoolId, OsdId), StoreStatfs)> + 'a {
    s.pool_statfs.iter().map(|(pool, of)| ((*pool, *osd), *of))
}

/// `pg_stat_t`: the state is in two halves, the upper one far behind.
fn pg(w: &mut Writer, s: &PgStat) {
    w.envelope(26, 22, |w| {
        w.put(&s.version);
        w.u64(s.reported_seq);
        w.u32(s.reported_epoch);
        w.u32(s.state as u32);
        w.put(&s.log_start);
        w.put(&s.log_start);
        w.u32(s.created);
        w.u32(s.last_epoch_clean);
        // The parent of a split, and its bits.
        w.put(&PgId { pool: 0, seed: 0 });
        w.u32(0);
        w.put(&s.last_scrub);
        w.put(&s.last_scrub_stamp);
        w.put(&s.stats);
        w.i64(s.log_size);
        w.i64(s.ondisk_log_size);
        w.put(&s.up);
        w.put(&s.acting);
        for t in [
            s.last_fresh,
            s.last_change,
            s.last_active,
            s.last_clean,
            s.last_unstale,
        ] {
            w.put(&t);
        }
        w.u32(s.mapping_epoch);
        w.put(&s.last_deep_scrub);
        w.put(&s.last_deep_scrub_stamp);
        w.bool(false);
        // The last scrub that found nothing; every scrub repairs here.
        w.put(&s.last_scrub_stamp);
        w.put(&s.last_became_active);
        w.bool(false);
        w.i32(s.up_primary);
        w.i32(s.acting_primary);
        w.put(&[false, false]);
        w.put(&s.blocked_by);
        w.put(&s.last_undegraded);
        w.put(&s.last_fullsized);
        w.bool(false);
        w.put(&s.last_peered);
        w.put(&s.last_became_active);
        w.bool(false);
        w.u32(s.snaptrimq_len);
        w.u32((s.state >> 32) as u32);
        // Snapshots just purged, one more flag, and where the objects of a group are that waits.
        w.u32(0);
        w.bool(false);
        w.put(&[0u32, 0]);
    });
}

/// `osd_stat_t`
fn osd(w: &mut Writer, id: OsdId, s: &OsdStat) {
    w.envelope(14, 2, |w| {
        for kb in [s.kb(), s.kb_used(), s.kb_avail()] {
            w.u64(kb);
        }
        // Snapshots that wait to be trimmed, and those that are.
        w.put(&[0u32, 0]);
        w.put(&s.hb_peers);
        w.u32(0);
        w.envelope(1, 1, |w| w.u32(0));
        w.envelope(2, 2, |w| w.put(&[s.commit_latency_ns, s.apply_latency_ns]));
        w.u32(s.up_from);
        w.u64(s.seq);
        w.u32(s.num_pgs);
        for kb in [s.kb_used_data(), s.kb_used_omap(), s.kb_used_meta()] {
            w.u64(kb);
        }
        w.put(&s.statfs);
        // Alerts by OSD: this one has none.
        w.put(&[1u32, id as u32, 0]);
        // Shards repaired; OSDs that these figures are of, that tell pools apart, and their omaps; times of heartbeats.
        w.u64(0);
        w.put(&[1u32, 1, 1, 0]);
    });
}
