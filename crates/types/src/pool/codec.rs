//! The encoding of [`PgPool`]: version 29, or 30 for a pool in stretch mode. Decodes from version 24 on.

use super::*;
use denc::{Decode, Encode, Reader, Result, Writer};

const VERSION: u8 = 29;
const VERSION_STRETCH: u8 = 30;
const COMPAT: u8 = 5;
/// Ceph 12 (luminous) wrote 26; nothing older can reach this program.
const OLDEST_DECODED: u8 = 24;

impl Encode for HitSetParams {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.u8(self.kind);
            w.raw(&self.body);
        });
    }
}

impl Decode for HitSetParams {
    const MIN_SIZE: usize = 7;
    fn decode(r: &mut Reader) -> Result<Self> {
        r.envelope(1, |_, r| {
            Ok(Self {
                kind: r.u8()?,
                body: r.rest(),
            })
        })
    }
}

impl Encode for PgPool {
    fn encode(&self, w: &mut Writer) {
        let version = match self.stretch {
            Some(_) => VERSION_STRETCH,
            None => VERSION,
        };
        w.envelope(version, COMPAT, |w| {
            self.encode_core(w);
            self.encode_tiering(w);
            self.encode_recent(w);
            if let Some(s) = &self.stretch {
                w.put(s);
            }
        });
    }
}

impl PgPool {
    fn encode_core(&self, w: &mut Writer) {
        w.u8(self.kind);
        w.u8(self.size);
        w.u8(self.crush_rule);
        w.u8(self.object_hash);
        w.u32(self.pg_num);
        w.u32(self.pgp_num);
        w.u32(self.lpg_num);
        w.u32(self.lpgp_num);
        w.u32(self.last_change);
        w.u64(self.snap_seq);
        w.u32(self.snap_epoch);
        w.put(&self.snaps);
        w.put(&self.removed_snaps);
        w.u64(self.auid);
        w.u64(self.flags);
        w.u32(self.crash_replay_interval);
        w.u8(self.min_size);
        w.u64(self.quota_max_bytes);
        w.u64(self.quota_max_objects);
    }

    fn encode_tiering(&self, w: &mut Writer) {
        w.put(&self.tiers);
        w.i64(self.tier_of);
        w.u8(self.cache_mode);
        w.i64(self.read_tier);
        w.i64(self.write_tier);
        w.put(&self.properties);
        w.put(&self.hit_set_params);
        w.u32(self.hit_set_period);
        w.u32(self.hit_set_count);
        w.u32(self.stripe_width);
        w.u64(self.target_max_bytes);
        w.u64(self.target_max_objects);
        w.u32(self.cache_target_dirty_ratio_micro);
        w.u32(self.cache_target_full_ratio_micro);
        w.u32(self.cache_min_flush_age);
        w.u32(self.cache_min_evict_age);
        w.string(&self.erasure_code_profile);
        w.u32(self.last_force_op_resend_preluminous);
        w.u32(self.min_read_recency_for_promote);
        w.u64(self.expected_num_objects);
        w.u32(self.cache_target_dirty_high_ratio_micro);
        w.u32(self.min_write_recency_for_promote);
        w.bool(self.use_gmt_hitset);
        w.bool(self.fast_read);
        w.u32(self.hit_set_grade_decay_rate);
        w.u32(self.hit_set_search_last_n);
    }

    fn encode_recent(&self, w: &mut Writer) {
        w.put(&self.opts);
        w.u32(self.last_force_op_resend_prenautilus);
        w.put(&self.application_metadata);
        w.put(&self.create_time);
        w.u32(self.pg_num_target);
        w.u32(self.pgp_num_target);
        w.u32(self.pg_num_pending);
        w.zeros(8); // two fields that no release uses any more
        w.u32(self.last_force_op_resend);
        w.u8(self.pg_autoscale_mode);
        w.put(&self.last_pg_merge_meta);
    }

    fn decode_core(&mut self, r: &mut Reader) -> Result<()> {
        self.kind = r.u8()?;
        self.size = r.u8()?;
        self.crush_rule = r.u8()?;
        self.object_hash = r.u8()?;
        self.pg_num = r.u32()?;
        self.pgp_num = r.u32()?;
        if self.pg_num == 0 || self.pgp_num == 0 {
            return Err(r.invalid("pool without placement groups"));
        }
        self.lpg_num = r.u32()?;
        self.lpgp_num = r.u32()?;
        self.last_change = r.u32()?;
        self.snap_seq = r.u64()?;
        self.snap_epoch = r.u32()?;
        self.snaps = r.get()?;
        self.removed_snaps = r.get()?;
        self.auid = r.u64()?;
        self.flags = r.u64()?;
        self.crash_replay_interval = r.u32()?;
        self.min_size = r.u8()?;
        self.quota_max_bytes = r.u64()?;
        self.quota_max_objects = r.u64()?;
        Ok(())
    }

    fn decode_tiering(&mut self, r: &mut Reader) -> Result<()> {
        self.tiers = r.get()?;
        self.tier_of = r.i64()?;
        self.cache_mode = r.u8()?;
        self.read_tier = r.i64()?;
        self.write_tier = r.i64()?;
        self.properties = r.get()?;
        self.hit_set_params = r.get()?;
        self.hit_set_period = r.u32()?;
        self.hit_set_count = r.u32()?;
        self.stripe_width = r.u32()?;
        self.target_max_bytes = r.u64()?;
        self.target_max_objects = r.u64()?;
        self.cache_target_dirty_ratio_micro = r.u32()?;
        self.cache_target_full_ratio_micro = r.u32()?;
        self.cache_min_flush_age = r.u32()?;
        self.cache_min_evict_age = r.u32()?;
        self.erasure_code_profile = r.string()?;
        self.last_force_op_resend_preluminous = r.u32()?;
        self.min_read_recency_for_promote = r.u32()?;
        self.expected_num_objects = r.u64()?;
        self.cache_target_dirty_high_ratio_micro = r.u32()?;
        self.min_write_recency_for_promote = r.u32()?;
        self.use_gmt_hitset = r.bool()?;
        self.fast_read = r.bool()?;
        self.hit_set_grade_decay_rate = r.u32()?;
        self.hit_set_search_last_n = r.u32()?;
        Ok(())
    }

    fn decode_recent(&mut self, v: u8, r: &mut Reader) -> Result<()> {
        self.opts = r.get()?;
        self.last_force_op_resend_prenautilus = match v {
            25.. => r.u32()?,
            _ => self.last_force_op_resend_preluminous,
        };
        if v >= 26 {
            self.application_metadata = r.get()?;
        }
        if v >= 27 {
            self.create_time = r.get()?;
        }
        if v >= 28 {
            self.pg_num_target = r.u32()?;
            self.pgp_num_target = r.u32()?;
            self.pg_num_pending = r.u32()?;
            r.skip(8)?;
            self.last_force_op_resend = r.u32()?;
            self.pg_autoscale_mode = r.u8()?;
        } else {
            self.pg_num_target = self.pg_num;
            self.pgp_num_target = self.pgp_num;
            self.pg_num_pending = self.pg_num;
            self.last_force_op_resend = self.last_force_op_resend_prenautilus;
            self.pg_autoscale_mode = u8::MAX;
        }
        if v >= 29 {
            self.last_pg_merge_meta = r.get()?;
        }
        // Releases from 31 on write these fields in another form and always, so only 30 is read.
        if v == VERSION_STRETCH {
            self.stretch = Some(r.get()?);
        }
        Ok(())
    }

    /// A pool whose snapshot mode was never recorded.
    fn infer_snap_mode(&mut self) {
        let modes = pool_flag::SELFMANAGED_SNAPS | pool_flag::POOL_SNAPS;
        if self.snap_seq > 0 && self.flags & modes == 0 {
            self.flags |= if self.removed_snaps.is_empty() {
                pool_flag::POOL_SNAPS
            } else {
                pool_flag::SELFMANAGED_SNAPS
            };
        }
    }
}

impl Decode for PgPool {
    const MIN_SIZE: usize = 200;
    fn decode(r: &mut Reader) -> Result<Self> {
        r.envelope(VERSION_STRETCH, |v, r| {
            if v < OLDEST_DECODED {
                return Err(r.invalid("pool encoding older than Ceph 12"));
            }
            let mut pool = Self::default();
            pool.decode_core(r)?;
            pool.decode_tiering(r)?;
            pool.decode_recent(v, r)?;
            pool.infer_snap_mode();
            Ok(pool)
        })
    }
}
