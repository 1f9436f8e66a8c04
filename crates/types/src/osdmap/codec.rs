//! Encodings of the OSD map and its incrementals (docs/protocol/ceph/03-placement.md, 1.1 to 1.4).
//!
//! One encoding serves every client from Ceph 14 on: the monitor must refuse older ones (they lack
//! [`crate::release::feature::SERVER_NAUTILUS`]). The only difference left is `osd_xinfo_t`, older for peers
//! without the octopus bit. Checksums are computed when encoding and verified when decoding.

use super::*;
use crate::checksum::crc32c;
use crate::release::{NO_CHANGE, feature};
use bytes::Bytes;
use denc::{Decode, Encode, Reader, Result, Writer};

const OUTER_VERSION: u8 = 8;
const OUTER_COMPAT: u8 = 7;
/// Client section: 10 only when upmap primaries exist (Ceph 18).
const CLIENT_VERSION: u8 = 9;
const CLIENT_VERSION_UPMAP_PRIMARY: u8 = 10;
const CLIENT_OLDEST: u8 = 8;
const INC_CLIENT_VERSION: u8 = 8;
const INC_CLIENT_VERSION_UPMAP_PRIMARY: u8 = 9;
const INC_CLIENT_OLDEST: u8 = 7;
/// OSD section: more when the map has what came later.
const OSD_VERSION: u8 = 9;
const OSD_VERSION_STRETCH: u8 = 10;
const OSD_VERSION_RANGES: u8 = 11;
const OSD_VERSION_CRIMSON: u8 = 12;
const OSD_OLDEST: u8 = 8;

impl Encode for OsdInfo {
    fn encode(&self, w: &mut Writer) {
        w.u8(1);
        for e in [
            self.last_clean_begin,
            self.last_clean_end,
            self.up_from,
            self.up_thru,
            self.down_at,
            self.lost_at,
        ] {
            w.u32(e);
        }
    }
}

impl Decode for OsdInfo {
    const MIN_SIZE: usize = 25;
    fn decode(r: &mut Reader) -> Result<Self> {
        r.skip(1)?;
        Ok(Self {
            last_clean_begin: r.u32()?,
            last_clean_end: r.u32()?,
            up_from: r.u32()?,
            up_thru: r.u32()?,
            down_at: r.u32()?,
            lost_at: r.u32()?,
        })
    }
}

impl Encode for OsdXInfo {
    fn encode(&self, w: &mut Writer) {
        let recent = w.has(feature::SERVER_OCTOPUS);
        w.envelope(if recent { 4 } else { 3 }, 1, |w| {
            w.put(&self.down_stamp);
            w.u32(self.laggy_probability);
            w.u32(self.laggy_interval);
            w.u64(self.features);
            w.u32(self.old_weight);
            if recent {
                w.put(&self.last_purged_snaps_scrub);
                w.u32(self.dead_epoch);
            }
        });
    }
}

impl Decode for OsdXInfo {
    const MIN_SIZE: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self> {
        r.envelope(4, |v, r| {
            let mut x = Self {
                down_stamp: r.get()?,
                laggy_probability: r.u32()?,
                laggy_interval: r.u32()?,
                features: if v >= 2 { r.u64()? } else { 0 },
                old_weight: if v >= 3 { r.u32()? } else { 0 },
                ..Self::default()
            };
            if v >= 4 {
                x.last_purged_snaps_scrub = r.get()?;
                x.dead_epoch = r.u32()?;
            }
            Ok(x)
        })
    }
}

/// A CRUSH map as a blob inside another encoding.
fn put_crush(w: &mut Writer, map: &CrushMap) {
    w.sized(|w| w.put(map));
}

/// Writes the outer envelope of a map: two sections, then the checksum over everything before it and whatever
/// `tail` writes after it. Returns the checksum.
fn put_summed(w: &mut Writer, sections: impl FnOnce(&mut Writer), tail: Option<u32>) -> u32 {
    let start = w.len();
    w.u8(OUTER_VERSION);
    w.u8(OUTER_COMPAT);
    w.u32(0);
    sections(w);
    let tail_len = if tail.is_some() { 4 } else { 0 };
    let len = w.len() + 4 + tail_len - (start + 6);
    w.patch_u32(start + 2, len as u32);
    let mut crc = crc32c(u32::MAX, &w.as_slice()[start..]);
    if let Some(t) = tail {
        crc = crc32c(crc, &t.to_le_bytes());
    }
    w.u32(crc);
    if let Some(t) = tail {
        w.u32(t);
    }
    crc
}

/// Opens the outer envelope, lets `sections` read, verifies the checksum, and gives the bytes behind it too.
fn get_summed<T>(r: &mut Reader, sections: impl FnOnce(&mut Reader) -> Result<T>) -> Result<(T, Bytes)> {
    let mut begin = r.clone();
    r.envelope(OUTER_VERSION, |_, r| {
        let out = sections(r)?;
        let head = begin.bytes(r.position() - begin.position())?;
        let want = r.u32()?;
        let tail = r.rest();
        if crc32c(crc32c(u32::MAX, &head), &tail) != want {
            return Err(r.invalid("bad checksum of the OSD map"));
        }
        Ok((out, tail))
    })
}

impl OsdMap {
    fn osd_section_version(&self) -> u8 {
        if self.allow_crimson {
            OSD_VERSION_CRIMSON
        } else if !self.range_blocklist.is_empty() {
            OSD_VERSION_RANGES
        } else if self.stretch.enabled {
            OSD_VERSION_STRETCH
        } else {
            OSD_VERSION
        }
    }

    fn column(&self, w: &mut Writer, put: impl Fn(&mut Writer, &OsdSlot)) {
        w.u32(self.osds.len() as u32);
        self.osds.iter().for_each(|o| put(w, o));
    }

    fn encode_client_section(&self, version: u8, w: &mut Writer) {
        w.put(&self.fsid);
        w.u32(self.epoch);
        w.put(&self.created);
        w.put(&self.modified);
        w.put(&self.pools);
        w.put(&self.pool_names);
        w.i32(self.pool_max);
        w.u32(self.flags);
        w.i32(self.max_osd());
        self.column(w, |w, o| w.u32(o.state));
        w.put(&self.osd_weight);
        self.column(w, |w, o| w.put(&o.client_addrs));
        w.put(&self.pg_temp);
        w.put(&self.primary_temp);
        w.put(&self.primary_affinity);
        put_crush(w, &self.crush);
        w.put(&self.erasure_code_profiles);
        w.put(&self.pg_upmap);
        w.put(&self.pg_upmap_items);
        w.u32(self.crush_version);
        w.put(&self.new_removed_snaps);
        w.put(&self.new_purged_snaps);
        w.put(&self.last_up_change);
        w.put(&self.last_in_change);
        if version >= CLIENT_VERSION_UPMAP_PRIMARY {
            w.put(&self.pg_upmap_primaries);
        }
    }

    fn encode_osd_section(&self, version: u8, w: &mut Writer) {
        self.column(w, |w, o| w.put(&o.hb_back_addrs));
        self.column(w, |w, o| w.put(&o.info));
        w.put(&self.blocklist);
        self.column(w, |w, o| w.put(&o.cluster_addrs));
        w.u32(self.cluster_snapshot_epoch);
        w.string(&self.cluster_snapshot);
        self.column(w, |w, o| w.put(&o.uuid));
        self.column(w, |w, o| w.put(&o.xinfo));
        self.column(w, |w, o| w.put(&o.hb_front_addrs));
        w.put(&self.nearfull_ratio);
        w.put(&self.full_ratio);
        w.put(&self.backfillfull_ratio);
        w.u8(self.require_min_compat_client);
        w.u8(self.require_osd_release);
        w.put(&self.removed_snaps_queue);
        w.put(&self.crush_node_flags);
        w.put(&self.device_class_flags);
        if version >= OSD_VERSION_STRETCH {
            w.bool(self.stretch.enabled);
            w.u32(self.stretch.bucket_count);
            w.u32(self.stretch.degraded);
            w.u32(self.stretch.recovering);
            w.i32(self.stretch.bucket);
        }
        if version >= OSD_VERSION_RANGES {
            w.put(&self.range_blocklist);
        }
        if version >= OSD_VERSION_CRIMSON {
            w.bool(self.allow_crimson);
        }
    }

    /// The encoding for a peer with `features`, and its checksum.
    pub fn encode_for(&self, features: u64) -> (Bytes, u32) {
        let mut w = Writer::with_features(features);
        let crc = self.put(&mut w);
        (w.finish(), crc)
    }

    fn put(&self, w: &mut Writer) -> u32 {
        let client = if self.pg_upmap_primaries.is_empty() {
            CLIENT_VERSION
        } else {
            CLIENT_VERSION_UPMAP_PRIMARY
        };
        let osd = self.osd_section_version();
        let sections = |w: &mut Writer| {
            w.envelope(client, 1, |w| self.encode_client_section(client, w));
            w.envelope(osd, 1, |w| self.encode_osd_section(osd, w));
        };
        put_summed(w, sections, None)
    }

    /// Writes down what `inc` leads to: the full map, and the incremental with the map's checksum in it.
    /// Returns (map, encoded map, encoded incremental).
    pub fn seal(
        &self,
        inc: &mut Incremental,
        features: u64,
    ) -> std::result::Result<(OsdMap, Bytes, Bytes), ApplyError> {
        let mut next = self.clone();
        next.apply(inc)?;
        let (full, crc) = next.encode_for(features);
        inc.full_crc = crc;
        let mut w = Writer::with_features(features);
        w.put(inc);
        Ok((next, full, w.finish()))
    }
}

impl Encode for OsdMap {
    fn encode(&self, w: &mut Writer) {
        self.put(w);
    }
}

/// Per-OSD vectors as they stand in the encoding, before they are put together.
#[derive(Default)]
struct Columns {
    state: Vec<u32>,
    client: Vec<EntityAddrVec>,
    cluster: Vec<EntityAddrVec>,
    hb_back: Vec<EntityAddrVec>,
    hb_front: Vec<EntityAddrVec>,
    info: Vec<OsdInfo>,
    xinfo: Vec<OsdXInfo>,
    uuid: Vec<Uuid>,
}

impl Columns {
    fn into_slots(self, max_osd: usize) -> Option<Vec<OsdSlot>> {
        let lengths = [
            self.state.len(),
            self.client.len(),
            self.cluster.len(),
            self.hb_back.len(),
            self.hb_front.len(),
            self.info.len(),
            self.xinfo.len(),
            self.uuid.len(),
        ];
        if lengths.iter().any(|n| *n != max_osd) {
            return None;
        }
        let addrs = self
            .client
            .into_iter()
            .zip(self.cluster)
            .zip(self.hb_back)
            .zip(self.hb_front);
        let rest = self
            .state
            .into_iter()
            .zip(self.info)
            .zip(self.xinfo)
            .zip(self.uuid);
        let slot = |((((client, cluster), back), front), (((state, info), xinfo), uuid))| OsdSlot {
            state,
            client_addrs: client,
            cluster_addrs: cluster,
            hb_back_addrs: back,
            hb_front_addrs: front,
            uuid,
            info,
            xinfo,
        };
        Some(addrs.zip(rest).map(slot).collect())
    }
}

impl OsdMap {
    /// Reads the client section; the number of OSD slots comes back beside it.
    fn decode_client_section(&mut self, c: &mut Columns, r: &mut Reader) -> Result<usize> {
        r.envelope(CLIENT_VERSION_UPMAP_PRIMARY, |v, r| {
            if v < CLIENT_OLDEST {
                return Err(r.invalid("OSD map older than Ceph 14"));
            }
            self.fsid = r.get()?;
            self.epoch = r.u32()?;
            self.created = r.get()?;
            self.modified = r.get()?;
            self.pools = r.get()?;
            self.pool_names = r.get()?;
            if !self.pools.keys().eq(self.pool_names.keys()) {
                return Err(r.invalid("pools and pool names differ"));
            }
            self.pool_max = r.i32()?;
            self.flags = r.u32()? & !map_flag::REQUIRE_OLD_RELEASES;
            let max_osd = r.u32()? as usize;
            if max_osd > MAX_OSD_LIMIT {
                return Err(r.invalid("too many OSDs"));
            }
            c.state = r.get()?;
            self.osd_weight = r.get()?;
            c.client = r.get()?;
            self.pg_temp = r.get()?;
            self.primary_temp = r.get()?;
            self.primary_affinity = r.get()?;
            self.crush = Arc::new(CrushMap::from_bytes(&r.blob()?)?);
            self.erasure_code_profiles = r.get()?;
            self.pg_upmap = r.get()?;
            self.pg_upmap_items = r.get()?;
            self.crush_version = r.u32()?;
            self.new_removed_snaps = r.get()?;
            self.new_purged_snaps = r.get()?;
            if v >= 9 {
                self.last_up_change = r.get()?;
                self.last_in_change = r.get()?;
            }
            if v >= CLIENT_VERSION_UPMAP_PRIMARY {
                self.pg_upmap_primaries = r.get()?;
            }
            Ok(max_osd)
        })
    }

    fn decode_osd_section(&mut self, c: &mut Columns, r: &mut Reader) -> Result<()> {
        r.envelope(OSD_VERSION_CRIMSON, |v, r| {
            if v < OSD_OLDEST {
                return Err(r.invalid("OSD map older than Ceph 14"));
            }
            c.hb_back = r.get()?;
            c.info = r.get()?;
            self.blocklist = r.get()?;
            c.cluster = r.get()?;
            self.cluster_snapshot_epoch = r.u32()?;
            self.cluster_snapshot = r.string()?;
            c.uuid = r.get()?;
            c.xinfo = r.get()?;
            c.hb_front = r.get()?;
            self.nearfull_ratio = r.get()?;
            self.full_ratio = r.get()?;
            self.backfillfull_ratio = r.get()?;
            self.require_min_compat_client = r.u8()?;
            self.require_osd_release = r.u8()?;
            self.removed_snaps_queue = r.get()?;
            self.crush_node_flags = r.get()?;
            if v >= 9 {
                self.device_class_flags = r.get()?;
            }
            if v >= OSD_VERSION_STRETCH {
                self.stretch = StretchMode {
                    enabled: r.bool()?,
                    bucket_count: r.u32()?,
                    degraded: r.u32()?,
                    recovering: r.u32()?,
                    bucket: r.i32()?,
                };
            }
            if v >= OSD_VERSION_RANGES {
                self.range_blocklist = r.get()?;
            }
            if v >= OSD_VERSION_CRIMSON {
                self.allow_crimson = r.bool()?;
            }
            Ok(())
        })
    }

    /// Flags that a release implies are set by every decoder, so that all see the same map.
    pub(super) fn imply_flags(&mut self) {
        if self.require_osd_release >= crate::release::LUMINOUS {
            self.flags &= !map_flag::REQUIRE_OLD_RELEASES;
            self.flags |= map_flag::RECOVERY_DELETES;
        }
        if self.require_osd_release >= crate::release::NAUTILUS {
            self.flags |= map_flag::PGLOG_HARDLIMIT;
        }
    }
}

impl Decode for OsdMap {
    fn decode(r: &mut Reader) -> Result<Self> {
        let (mut map, _) = get_summed(r, |r| {
            let mut map = Self::empty(Uuid::default());
            let mut columns = Columns::default();
            let max_osd = map.decode_client_section(&mut columns, r)?;
            map.decode_osd_section(&mut columns, r)?;
            let affinity_fits = map.primary_affinity.is_empty() || map.primary_affinity.len() == max_osd;
            let slots = columns.into_slots(max_osd);
            match slots {
                Some(slots) if affinity_fits && map.osd_weight.len() == max_osd => map.osds = slots,
                _ => return Err(r.invalid("vectors of the OSD map are not max_osd long")),
            }
            Ok(map)
        })?;
        map.imply_flags();
        Ok(map)
    }
}

fn put_ratio(w: &mut Writer, ratio: Option<f32>) {
    w.put(&ratio.unwrap_or(-1.0));
}

fn get_ratio(r: &mut Reader) -> Result<Option<f32>> {
    let v: f32 = r.get()?;
    Ok((v >= 0.0).then_some(v))
}

fn get_release(r: &mut Reader) -> Result<Option<u8>> {
    let v = r.u8()?;
    Ok((v != NO_CHANGE).then_some(v))
}

impl Incremental {
    fn encode_client_section(&self, version: u8, w: &mut Writer) {
        w.put(&self.fsid);
        w.u32(self.epoch);
        w.put(&self.modified);
        w.i64(self.new_pool_max.map_or(-1, i64::from));
        w.i32(self.new_flags.map_or(-1, |f| f as i32));
        w.blob(self.fullmap.as_deref().unwrap_or(&[]));
        match &self.crush {
            Some(map) => put_crush(w, map),
            None => w.u32(0),
        }
        w.i32(self.new_max_osd.unwrap_or(-1));
        w.put(&self.new_pools);
        w.put(&self.new_pool_names);
        w.put(&self.old_pools);
        w.put(&self.new_up_client);
        w.put(&self.new_state);
        w.put(&self.new_weight);
        w.put(&self.new_pg_temp);
        w.put(&self.new_primary_temp);
        w.put(&self.new_primary_affinity);
        w.put(&self.new_erasure_code_profiles);
        w.put(&self.old_erasure_code_profiles);
        w.put(&self.new_pg_upmap);
        w.put(&self.old_pg_upmap);
        w.put(&self.new_pg_upmap_items);
        w.put(&self.old_pg_upmap_items);
        w.put(&self.new_removed_snaps);
        w.put(&self.new_purged_snaps);
        w.put(&self.new_last_up_change);
        w.put(&self.new_last_in_change);
        if version >= INC_CLIENT_VERSION_UPMAP_PRIMARY {
            w.put(&self.new_pg_upmap_primary);
            w.put(&self.old_pg_upmap_primary);
        }
    }

    fn decode_client_section(&mut self, r: &mut Reader) -> Result<()> {
        r.envelope(INC_CLIENT_VERSION_UPMAP_PRIMARY, |v, r| {
            if v < INC_CLIENT_OLDEST {
                return Err(r.invalid("incremental older than Ceph 14"));
            }
            self.fsid = r.get()?;
            self.epoch = r.u32()?;
            self.modified = r.get()?;
            let pool_max = r.i64()?;
            self.new_pool_max = match i32::try_from(pool_max) {
                Ok(-1) => None,
                Ok(n) => Some(n),
                Err(_) => return Err(r.invalid("pool id out of range")),
            };
            let flags = r.i32()?;
            self.new_flags = (flags != -1).then_some(flags as u32);
            let full = r.blob()?;
            self.fullmap = (!full.is_empty()).then_some(full);
            let crush = r.blob()?;
            if !crush.is_empty() {
                self.crush = Some(Arc::new(CrushMap::from_bytes(&crush)?));
            }
            let max_osd = r.i32()?;
            if max_osd > MAX_OSD_LIMIT as i32 {
                return Err(r.invalid("too many OSDs"));
            }
            self.new_max_osd = (max_osd >= 0).then_some(max_osd);
            self.new_pools = r.get()?;
            self.new_pool_names = r.get()?;
            self.old_pools = r.get()?;
            self.new_up_client = r.get()?;
            self.new_state = r.get()?;
            self.new_weight = r.get()?;
            self.new_pg_temp = r.get()?;
            self.new_primary_temp = r.get()?;
            self.new_primary_affinity = r.get()?;
            self.new_erasure_code_profiles = r.get()?;
            self.old_erasure_code_profiles = r.get()?;
            self.new_pg_upmap = r.get()?;
            self.old_pg_upmap = r.get()?;
            self.new_pg_upmap_items = r.get()?;
            self.old_pg_upmap_items = r.get()?;
            self.new_removed_snaps = r.get()?;
            self.new_purged_snaps = r.get()?;
            if v >= 8 {
                self.new_last_up_change = r.get()?;
                self.new_last_in_change = r.get()?;
            }
            if v >= INC_CLIENT_VERSION_UPMAP_PRIMARY {
                self.new_pg_upmap_primary = r.get()?;
                self.old_pg_upmap_primary = r.get()?;
            }
            Ok(())
        })
    }

    fn osd_section_version(&self) -> u8 {
        if self.mutate_allow_crimson != 0 {
            OSD_VERSION_CRIMSON
        } else if !(self.new_range_blocklist.is_empty() && self.old_range_blocklist.is_empty()) {
            OSD_VERSION_RANGES
        } else if self.stretch.is_some() {
            OSD_VERSION_STRETCH
        } else {
            OSD_VERSION
        }
    }

    fn encode_osd_section(&self, version: u8, w: &mut Writer) {
        w.put(&self.new_hb_back_up);
        w.put(&self.new_up_thru);
        w.put(&self.new_last_clean_interval);
        w.put(&self.new_lost);
        w.put(&self.new_blocklist);
        w.put(&self.old_blocklist);
        w.put(&self.new_up_cluster);
        w.string(&self.cluster_snapshot);
        w.put(&self.new_uuid);
        w.put(&self.new_xinfo);
        w.put(&self.new_hb_front_up);
        w.u64(self.encode_features);
        put_ratio(w, self.new_nearfull_ratio);
        put_ratio(w, self.new_full_ratio);
        put_ratio(w, self.new_backfillfull_ratio);
        w.u8(self.new_require_min_compat_client.unwrap_or(NO_CHANGE));
        w.u8(self.new_require_osd_release.unwrap_or(NO_CHANGE));
        w.put(&self.new_crush_node_flags);
        w.put(&self.new_device_class_flags);
        if version >= OSD_VERSION_STRETCH {
            w.bool(self.stretch.is_some());
            let s = self.stretch.unwrap_or(StretchChange {
                bucket_count: 0,
                degraded: 0,
                recovering: 0,
                bucket: 0,
                enabled: false,
            });
            w.u32(s.bucket_count);
            w.u32(s.degraded);
            w.u32(s.recovering);
            w.i32(s.bucket);
            w.bool(s.enabled);
        }
        if version >= OSD_VERSION_RANGES {
            w.put(&self.new_range_blocklist);
            w.put(&self.old_range_blocklist);
        }
        if version >= OSD_VERSION_CRIMSON {
            w.u8(self.mutate_allow_crimson);
        }
    }

    fn decode_osd_section(&mut self, r: &mut Reader) -> Result<()> {
        r.envelope(OSD_VERSION_CRIMSON, |v, r| {
            if v < OSD_OLDEST {
                return Err(r.invalid("incremental older than Ceph 14"));
            }
            self.new_hb_back_up = r.get()?;
            self.new_up_thru = r.get()?;
            self.new_last_clean_interval = r.get()?;
            self.new_lost = r.get()?;
            self.new_blocklist = r.get()?;
            self.old_blocklist = r.get()?;
            self.new_up_cluster = r.get()?;
            self.cluster_snapshot = r.string()?;
            self.new_uuid = r.get()?;
            self.new_xinfo = r.get()?;
            self.new_hb_front_up = r.get()?;
            self.encode_features = r.u64()?;
            self.new_nearfull_ratio = get_ratio(r)?;
            self.new_full_ratio = get_ratio(r)?;
            self.new_backfillfull_ratio = get_ratio(r)?;
            self.new_require_min_compat_client = get_release(r)?;
            self.new_require_osd_release = get_release(r)?;
            self.new_crush_node_flags = r.get()?;
            if v >= 9 {
                self.new_device_class_flags = r.get()?;
            }
            if v >= OSD_VERSION_STRETCH {
                let changed = r.bool()?;
                let s = StretchChange {
                    bucket_count: r.u32()?,
                    degraded: r.u32()?,
                    recovering: r.u32()?,
                    bucket: r.i32()?,
                    enabled: r.bool()?,
                };
                self.stretch = changed.then_some(s);
            }
            if v >= OSD_VERSION_RANGES {
                self.new_range_blocklist = r.get()?;
                self.old_range_blocklist = r.get()?;
            }
            if v >= OSD_VERSION_CRIMSON {
                self.mutate_allow_crimson = r.u8()?;
            }
            Ok(())
        })
    }
}

impl Encode for Incremental {
    fn encode(&self, w: &mut Writer) {
        let upmap_primary = !(self.new_pg_upmap_primary.is_empty() && self.old_pg_upmap_primary.is_empty());
        let client = if upmap_primary {
            INC_CLIENT_VERSION_UPMAP_PRIMARY
        } else {
            INC_CLIENT_VERSION
        };
        let osd = self.osd_section_version();
        let sections = |w: &mut Writer| {
            w.envelope(client, 1, |w| self.encode_client_section(client, w));
            w.envelope(osd, 1, |w| self.encode_osd_section(osd, w));
        };
        put_summed(w, sections, Some(self.full_crc));
    }
}

impl Decode for Incremental {
    fn decode(r: &mut Reader) -> Result<Self> {
        let (mut inc, tail) = get_summed(r, |r| {
            let mut inc = Self::default();
            inc.decode_client_section(r)?;
            inc.decode_osd_section(r)?;
            Ok(inc)
        })?;
        inc.full_crc = Reader::new(tail).u32()?;
        Ok(inc)
    }
}
