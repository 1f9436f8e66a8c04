//! The blob that a real 16.2.15 of one OSD and one placement group gave for `ceph pg getmap`, byte for byte.
#![allow(clippy::unwrap_used)]

use denc::{Encode, Reader, Result};
use std::collections::BTreeMap;
use types::pgmap::PgMap;
use types::pgstats::{ObjectStatCollection, OsdStat, PgStat, StoreStatfs, pg_state};
use types::{EVersion, OsdId, PgId, PoolId};

/// `pg_stat_t`, as far as we keep it.
fn pg(r: &mut Reader, pgid: PgId) -> Result<PgStat> {
    let mut s = PgStat::unknown(pgid);
    s.version = r.get()?;
    s.reported_seq = r.u64()?;
    s.reported_epoch = r.u32()?;
    s.state = u64::from(r.u32()?);
    s.log_start = r.get()?;
    assert_eq!(r.get::<EVersion>()?, s.log_start);
    (s.created, s.last_epoch_clean) = (r.u32()?, r.u32()?);
    r.skip(17 + 4)?;
    (s.last_scrub, s.last_scrub_stamp) = (r.get()?, r.get()?);
    s.stats = r.get::<ObjectStatCollection>()?;
    (s.log_size, s.ondisk_log_size) = (r.i64()?, r.i64()?);
    (s.up, s.acting) = (r.get()?, r.get()?);
    (s.last_fresh, s.last_change, s.last_active) = (r.get()?, r.get()?, r.get()?);
    (s.last_clean, s.last_unstale) = (r.get()?, r.get()?);
    s.mapping_epoch = r.u32()?;
    (s.last_deep_scrub, s.last_deep_scrub_stamp) = (r.get()?, r.get()?);
    r.skip(1 + 8)?;
    s.last_became_active = r.get()?;
    r.skip(1)?;
    (s.up_primary, s.acting_primary) = (r.i32()?, r.i32()?);
    r.skip(2)?;
    s.blocked_by = r.get()?;
    (s.last_undegraded, s.last_fullsized) = (r.get()?, r.get()?);
    r.skip(1)?;
    s.last_peered = r.get()?;
    r.skip(8 + 1)?;
    s.snaptrimq_len = r.u32()?;
    s.state |= u64::from(r.u32()?) << 32;
    Ok(s)
}

/// `osd_stat_t`, as far as we keep it.
fn osd(r: &mut Reader, id: OsdId) -> Result<OsdStat> {
    r.skip(3 * 8 + 2 * 4)?;
    let mut s = OsdStat {
        osd: id,
        hb_peers: r.get()?,
        ..OsdStat::default()
    };
    r.skip(4 + 10)?;
    r.envelope(2, |_, r| {
        (s.commit_latency_ns, s.apply_latency_ns) = (r.u64()?, r.u64()?);
        Ok(())
    })?;
    (s.up_from, s.seq, s.num_pgs) = (r.u32()?, r.u64()?, r.u32()?);
    r.skip(3 * 8)?;
    s.statfs = r.get()?;
    Ok(s)
}

fn read(r: &mut Reader) -> Result<PgMap> {
    r.envelope(8, |_, r| {
        let mut map = PgMap {
            version: r.u64()?,
            ..PgMap::default()
        };
        for _ in 0..r.count(17)? {
            let id: PgId = r.get()?;
            map.pgs.insert(id, r.envelope(26, |_, r| pg(r, id))?);
        }
        for _ in 0..r.count(4)? {
            let id = r.i32()?;
            map.osds.insert(id, r.envelope(14, |_, r| osd(r, id))?);
        }
        assert_eq!(r.u64()?, 0);
        map.stamp = r.get()?;
        for ((pool, osd), taken) in r.get::<BTreeMap<(PoolId, OsdId), StoreStatfs>>()? {
            let of = map.osds.get_mut(&osd).unwrap();
            of.pool_statfs.insert(pool, taken);
        }
        Ok(map)
    })
}

#[test]
fn the_real_ones_bytes() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../vectors/monitor/pgmap.bin");
    let bytes = std::fs::read(file).unwrap();
    let map = read(&mut Reader::from_slice(&bytes)).unwrap();
    // What its `pg dump` of the same version said.
    assert_eq!(map.version, 23);
    let s = &map.pgs[&PgId { pool: 1, seed: 0 }];
    assert_eq!(
        (s.state, s.snaptrimq_len),
        (pg_state::ACTIVE | pg_state::CLEAN, 2)
    );
    assert_eq!((s.stats.sum.num_bytes, s.stats.sum.num_object_clones), (2447, 1));
    assert_eq!((s.version.to_string(), s.acting_primary), ("12'4".into(), 0));
    let of = &map.osds[&0];
    assert_eq!(
        (of.kb_used(), of.kb_used_meta(), of.num_pgs),
        (297_224, 297_088, 1)
    );
    assert_eq!(map.to_bytes(), bytes);
}
