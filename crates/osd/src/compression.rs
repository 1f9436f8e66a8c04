//! Whose data is compressed: by pool, by the options that hold for pools that say nothing, and by what clients say of their
//! objects.
//!
//! The modes are Ceph's: `none`; `passive`, what a client calls compressible; `aggressive`, all but what a client calls
//! incompressible; `force`, all. Each OSD decides for its own store, and compresses there: copies are equal in what they
//! read, not in how they lie on a disk (docs/decisions/0030-compression.md).
//!
//! Invariant: where no pool compresses, a write costs one look at an empty map.

use pg::inspect;
use std::collections::BTreeMap;
use store::{Algorithm, Compression};
use types::pool::{PgPool, PoolOption};
use types::{ObjectId, Op, PoolId, Transaction};

/// Flags of SETALLOCHINT.
const COMPRESSIBLE: u32 = 256;
const INCOMPRESSIBLE: u32 = 512;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Passive,
    Aggressive,
    Force,
}

impl Mode {
    fn named(name: &str) -> Option<Self> {
        match name {
            "passive" => Some(Self::Passive),
            "aggressive" => Some(Self::Aggressive),
            "force" => Some(Self::Force),
            _ => None,
        }
    }

    fn takes(self, hint: u32) -> bool {
        match self {
            Self::Passive => hint & COMPRESSIBLE != 0,
            Self::Aggressive => hint & INCOMPRESSIBLE == 0,
            Self::Force => true,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Policy {
    mode: Mode,
    compression: Compression,
}

/// Options for pools without settings of their own, with their defaults (those of Ceph 16.2).
const MODE: (&str, &str) = ("bluestore_compression_mode", "none");
const ALGORITHM: (&str, &str) = ("bluestore_compression_algorithm", "snappy");
const RATIO: (&str, f64) = ("bluestore_compression_required_ratio", 0.875);
const MIN_BLOB: (&str, u64) = ("bluestore_compression_min_blob_size", 8 << 10);
const MAX_BLOB: (&str, u64) = ("bluestore_compression_max_blob_size", 64 << 10);

const BLOCK: u64 = 4096;
const BLOB_BYTES_MAX: u64 = store::BLOB_BLOCKS_MAX * BLOCK;

/// The options that hold for all pools.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    mode: String,
    algorithm: String,
    ratio: f64,
    min_blob: u64,
    max_blob: u64,
}

impl Options {
    pub fn of(option: impl Fn(&str) -> Option<String>) -> Self {
        let text = |(name, default): (&str, &str)| option(name).unwrap_or_else(|| default.to_owned());
        // 0 is Ceph's word for the default of the kind of disk, which is the same for all.
        let size = |(name, default)| {
            let set = option(name).and_then(|v| v.parse().ok());
            set.filter(|n| *n > 0).unwrap_or(default)
        };
        Self {
            mode: text(MODE),
            algorithm: text(ALGORITHM),
            ratio: option(RATIO.0).and_then(|v| v.parse().ok()).unwrap_or(RATIO.1),
            min_blob: size(MIN_BLOB),
            max_blob: size(MAX_BLOB),
        }
    }

    /// Name and value of each, as `config show` has them.
    pub fn shown(self) -> [(&'static str, String); 5] {
        [
            (MODE.0, self.mode),
            (ALGORITHM.0, self.algorithm),
            (RATIO.0, format!("{:.6}", self.ratio)),
            (MIN_BLOB.0, self.min_blob.to_string()),
            (MAX_BLOB.0, self.max_blob.to_string()),
        ]
    }

    /// None: nothing of the pool is compressed.
    fn policy(&self, pool: &PgPool) -> Option<Policy> {
        let text = |name, default: &str| match pool.opts.get(name) {
            Some(PoolOption::Str(v)) => v.clone(),
            _ => default.to_owned(),
        };
        let size = |name, default| match pool.opts.get(name) {
            Some(PoolOption::Int(n)) if *n > 0 => *n as u64,
            _ => default,
        };
        let ratio = match pool.opts.get("compression_required_ratio") {
            Some(PoolOption::Double(d)) => *d,
            _ => self.ratio,
        };
        // What is too short to be compressed is never more than what is compressed together.
        let min_blob = size("compression_min_blob_size", self.min_blob).min(BLOB_BYTES_MAX);
        let max_blob = size("compression_max_blob_size", self.max_blob).max(min_blob.next_multiple_of(BLOCK));
        Some(Policy {
            mode: Mode::named(&text("compression_mode", &self.mode))?,
            compression: Compression {
                // "none" and "" are names of no algorithm.
                algorithm: Algorithm::named(&text("compression_algorithm", &self.algorithm))?,
                min_blob,
                max_blob,
                required_ratio: ratio,
            },
        })
    }
}

/// The pools that compress. Bounded by the pools that there are.
#[derive(Debug, Default)]
pub struct Policies(BTreeMap<PoolId, Policy>);

impl Policies {
    pub fn new<'a>(options: &Options, pools: impl Iterator<Item = (&'a PoolId, &'a PgPool)>) -> Self {
        let policies = pools.filter_map(|(id, pool)| Some((*id, options.policy(pool)?)));
        Self(policies.collect())
    }

    /// The same for all of these pools, whatever is said of objects.
    #[cfg(test)]
    pub fn forced(compression: Option<Compression>, pools: std::ops::Range<PoolId>) -> Self {
        let policy = compression.map(|compression| Policy {
            mode: Mode::Force,
            compression,
        });
        Self(pools.filter_map(|id| Some((id, policy?))).collect())
    }

    /// What the transaction's data is to be compressed by. `stored`: the object's info as the store has it.
    pub fn for_transaction(
        &self,
        txn: &Transaction,
        stored: impl FnOnce(&ObjectId) -> Option<bytes::Bytes>,
    ) -> Option<Compression> {
        if self.0.is_empty() {
            return None;
        }
        let policy = self.0.get(&txn.collection.pg.pool)?;
        let object = txn.ops.iter().find_map(|op| match op {
            Op::Write { oid, data, .. } if policy.compression.takes(data.len() as u64) => Some(oid),
            _ => None,
        })?;
        if policy.mode == Mode::Force {
            return Some(policy.compression);
        }
        let info = txn.ops.iter().rev().find_map(|op| match op {
            Op::SetAttrs { oid, attrs } if oid == object => {
                let info = attrs.iter().find(|(n, _)| n.as_ref() == inspect::INFO);
                info.map(|(_, v)| v.clone())
            }
            _ => None,
        });
        let info = info.or_else(|| stored(object));
        let hint = info.map_or(0, |i| inspect::alloc_hint(&i));
        policy.mode.takes(hint).then_some(policy.compression)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use types::{HObject, NOSNAP, PgId, SPgId};

    fn pool(settings: &[(&str, PoolOption)]) -> PgPool {
        let mut pool = PgPool::default();
        for (name, value) in settings {
            assert!(pool.opts.set(name, value.clone()), "{name}");
        }
        pool
    }

    fn text(v: &str) -> PoolOption {
        PoolOption::Str(v.into())
    }

    fn write(bytes: usize) -> Transaction {
        let mut t = Transaction::new(SPgId::replicated(PgId::new(1, 0)));
        let object = HObject::new(1, 7, Bytes::new(), Bytes::new(), "o".into(), NOSNAP);
        t.ops.push(Op::Write {
            oid: ObjectId::replicated(object),
            offset: 0,
            data: vec![0; bytes].into(),
        });
        t
    }

    /// Ceph's rule: what a pool says counts for more than what is set for all.
    #[test]
    fn a_pool_s_settings_go_before_those_for_all() {
        let none = |_: &str| None;
        let all = |name: &str| match name {
            "bluestore_compression_mode" => Some("aggressive".into()),
            "bluestore_compression_algorithm" => Some("lz4".into()),
            "bluestore_compression_max_blob_size" => Some("131072".into()),
            _ => None,
        };
        assert_eq!(Options::of(none).policy(&pool(&[])), None);
        let p = Options::of(none).policy(&pool(&[("compression_mode", text("force"))]));
        let p = p.unwrap();
        assert_eq!(
            (p.mode, p.compression.algorithm),
            (Mode::Force, Algorithm::Snappy)
        );
        assert_eq!((p.compression.min_blob, p.compression.max_blob), (8192, 65_536));
        let all = Options::of(all);
        let p = all.policy(&pool(&[])).unwrap();
        assert_eq!(
            (p.mode, p.compression.algorithm),
            (Mode::Aggressive, Algorithm::Lz4)
        );
        assert_eq!(p.compression.max_blob, 131_072);
        assert_eq!(all.policy(&pool(&[("compression_mode", text("none"))])), None);
        assert_eq!(
            all.policy(&pool(&[("compression_algorithm", text("none"))])),
            None
        );
        let own = [
            ("compression_algorithm", text("zstd")),
            ("compression_required_ratio", PoolOption::Double(0.5)),
            ("compression_max_blob_size", PoolOption::Int(32_768)),
        ];
        let c = all.policy(&pool(&own)).unwrap().compression;
        assert_eq!(
            (c.algorithm, c.required_ratio, c.max_blob),
            (Algorithm::Zstd, 0.5, 32_768)
        );
    }

    /// Else nothing would be compressed, and nobody told.
    #[test]
    fn what_is_compressed_together_is_long_enough_to_be() {
        let sizes = |min: i64, max: i64| {
            let settings = [
                ("compression_mode", text("force")),
                ("compression_min_blob_size", PoolOption::Int(min)),
                ("compression_max_blob_size", PoolOption::Int(max)),
            ];
            let policy = Options::of(|_| None).policy(&pool(&settings)).unwrap();
            (policy.compression.min_blob, policy.compression.max_blob)
        };
        assert_eq!(sizes(16_384, 65_536), (16_384, 65_536));
        assert_eq!(sizes(131_072, 65_536), (131_072, 131_072));
        assert_eq!(sizes(10_000, 8192), (10_000, 12_288));
        assert_eq!(sizes(1 << 30, 65_536), (512 << 10, 512 << 10));
    }

    #[test]
    fn what_a_client_says_of_an_object_counts() {
        let none = Options::of(|_| None);
        let check = |mode: &str, hint: Option<u32>, want: bool| {
            let pools = [(1, pool(&[("compression_mode", text(mode))]))];
            let policies = Policies::new(&none, pools.iter().map(|(id, p)| (id, p)));
            let info = hint.map(pg::inspect::info_with_hint);
            // In the store's record; and newer, in the transaction itself.
            let stored = policies.for_transaction(&write(65_536), |_| info.clone());
            assert_eq!(stored.is_some(), want, "{mode} {hint:?}");
            let mut t = write(65_536);
            if let (Some(info), Op::Write { oid, .. }) = (info, &t.ops[0]) {
                let (oid, attrs) = (oid.clone(), vec![(Bytes::from_static(inspect::INFO), info)]);
                t.ops.push(Op::SetAttrs { oid, attrs });
                let said = policies.for_transaction(&t, |_| panic!("it is in the transaction"));
                assert_eq!(said.is_some(), want, "{mode} {hint:?}");
            }
            // Too little to be looked at.
            let never = policies.for_transaction(&write(4096), |_| panic!("nothing to ask for"));
            assert_eq!(never, None);
        };
        for hint in [None, Some(0), Some(1), Some(COMPRESSIBLE), Some(INCOMPRESSIBLE)] {
            check("none", hint, false);
            check("passive", hint, hint == Some(COMPRESSIBLE));
            check("aggressive", hint, hint != Some(INCOMPRESSIBLE));
            check("force", hint, true);
        }
    }
}
