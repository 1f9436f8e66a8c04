//! `pool_opts_t`: optional settings of a pool, typed values by number (docs/protocol/ceph/03-placement.md, 2.2).

use denc::{Decode, Encode, Reader, Result, Writer};
use std::collections::BTreeMap;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OptionKind {
    Str,
    Int,
    Double,
}

/// Number, name, type.
pub const POOL_OPTIONS: [(i32, &str, OptionKind); 26] = [
    (0, "scrub_min_interval", OptionKind::Double),
    (1, "scrub_max_interval", OptionKind::Double),
    (2, "deep_scrub_interval", OptionKind::Double),
    (3, "recovery_priority", OptionKind::Int),
    (4, "recovery_op_priority", OptionKind::Int),
    (5, "scrub_priority", OptionKind::Int),
    (6, "compression_mode", OptionKind::Str),
    (7, "compression_algorithm", OptionKind::Str),
    (8, "compression_required_ratio", OptionKind::Double),
    (9, "compression_max_blob_size", OptionKind::Int),
    (10, "compression_min_blob_size", OptionKind::Int),
    (11, "csum_type", OptionKind::Int),
    (12, "csum_max_block", OptionKind::Int),
    (13, "csum_min_block", OptionKind::Int),
    (14, "fingerprint_algorithm", OptionKind::Str),
    (15, "pg_num_min", OptionKind::Int),
    (16, "target_size_bytes", OptionKind::Int),
    (17, "target_size_ratio", OptionKind::Double),
    (18, "pg_autoscale_bias", OptionKind::Double),
    (19, "read_lease_interval", OptionKind::Double),
    (20, "dedup_tier", OptionKind::Int),
    (21, "dedup_chunk_algorithm", OptionKind::Str),
    (22, "dedup_cdc_chunk_size", OptionKind::Int),
    (23, "pg_num_max", OptionKind::Int),
    (24, "read_ratio", OptionKind::Int),
    (25, "pct_update_delay", OptionKind::Double),
];

#[derive(Debug, Clone, PartialEq)]
pub enum PoolOption {
    Str(String),
    Int(i64),
    Double(f64),
}

impl Encode for PoolOption {
    fn encode(&self, w: &mut Writer) {
        match self {
            Self::Str(s) => {
                w.i32(0);
                w.string(s);
            }
            Self::Int(i) => {
                w.i32(1);
                w.i64(*i);
            }
            Self::Double(d) => {
                w.i32(2);
                w.put(d);
            }
        }
    }
}

/// The options that are set, by number. Numbers that this program does not know are kept.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PoolOptions(pub BTreeMap<i32, PoolOption>);

impl PoolOptions {
    pub fn lookup(name: &str) -> Option<(i32, OptionKind)> {
        POOL_OPTIONS
            .iter()
            .find(|(_, n, _)| *n == name)
            .map(|(k, _, t)| (*k, *t))
    }

    pub fn name_of(key: i32) -> Option<&'static str> {
        POOL_OPTIONS
            .iter()
            .find(|(k, _, _)| *k == key)
            .map(|(_, n, _)| *n)
    }

    pub fn get(&self, name: &str) -> Option<&PoolOption> {
        self.0.get(&Self::lookup(name)?.0)
    }

    /// Sets a known option; false if the name is unknown or the value of the wrong type.
    pub fn set(&mut self, name: &str, value: PoolOption) -> bool {
        let Some((key, kind)) = Self::lookup(name) else {
            return false;
        };
        let fits = matches!(
            (&value, kind),
            (PoolOption::Str(_), OptionKind::Str)
                | (PoolOption::Int(_), OptionKind::Int)
                | (PoolOption::Double(_), OptionKind::Double)
        );
        if fits {
            self.0.insert(key, value);
        }
        fits
    }

    pub fn unset(&mut self, name: &str) {
        if let Some((key, _)) = Self::lookup(name) {
            self.0.remove(&key);
        }
    }

    /// Known options that are set, in order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &PoolOption)> {
        self.0.iter().filter_map(|(k, v)| Some((Self::name_of(*k)?, v)))
    }
}

impl Encode for PoolOptions {
    fn encode(&self, w: &mut Writer) {
        w.envelope(2, 1, |w| w.put(&self.0));
    }
}

impl Decode for PoolOptions {
    const MIN_SIZE: usize = 10;
    fn decode(r: &mut Reader) -> Result<Self> {
        r.envelope(2, |v, r| {
            let n = r.count(12)?;
            let mut out = BTreeMap::new();
            for _ in 0..n {
                let key = r.i32()?;
                let value = match r.i32()? {
                    0 => PoolOption::Str(r.string()?),
                    1 if v < 2 => PoolOption::Int(i64::from(r.i32()?)),
                    1 => PoolOption::Int(r.i64()?),
                    2 => PoolOption::Double(r.get()?),
                    _ => return Err(r.invalid("pool option of unknown type")),
                };
                out.insert(key, value);
            }
            Ok(Self(out))
        })
    }
}
