//! Placement-group ids, versions and request ids (docs/protocol/ceph/04-osd.md, section 0).

use crate::EntityName;
use denc::{Decode, Encode, Reader, Result, Writer};
use std::fmt;
use std::str::FromStr;

pub type Epoch = u32;
pub type PoolId = i64;
pub type OsdId = i32;

/// `pg_t`: pool and placement seed. Order: pool, then seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PgId {
    pub pool: PoolId,
    pub seed: u32,
}

impl PgId {
    pub fn new(pool: PoolId, seed: u32) -> Self {
        Self { pool, seed }
    }
}

impl Encode for PgId {
    fn encode(&self, w: &mut Writer) {
        w.u8(1);
        w.i64(self.pool);
        w.u32(self.seed);
        w.i32(-1);
    }
}
impl Decode for PgId {
    const MIN_SIZE: usize = 17;
    fn decode(r: &mut Reader) -> Result<Self> {
        if r.u8()? != 1 {
            return Err(r.invalid("pg id of unknown version"));
        }
        let (pool, seed) = (r.i64()?, r.u32()?);
        r.skip(4)?;
        Ok(Self { pool, seed })
    }
}

/// `2.1f`: pool in decimal, seed in hex.
impl fmt::Display for PgId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:x}", self.pool, self.seed)
    }
}
impl FromStr for PgId {
    type Err = ();
    fn from_str(s: &str) -> std::result::Result<Self, ()> {
        let (pool, seed) = s.split_once('.').ok_or(())?;
        Ok(Self {
            pool: pool.parse().map_err(|_| ())?,
            seed: u32::from_str_radix(seed, 16).map_err(|_| ())?,
        })
    }
}

/// `spg_t`: a PG and the shard of it; -1 for replicated pools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SPgId {
    pub pg: PgId,
    pub shard: i8,
}
denc::envelope_denc!(SPgId, 1, 1, { pg, shard });

impl SPgId {
    pub fn replicated(pg: PgId) -> Self {
        Self { pg, shard: -1 }
    }
}
impl fmt::Display for SPgId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.shard < 0 {
            write!(f, "{}", self.pg)
        } else {
            write!(f, "{}s{}", self.pg, self.shard)
        }
    }
}

/// `eversion_t`: a PG-log version; ordered by epoch, then version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct EVersion {
    pub version: u64,
    pub epoch: Epoch,
}
denc::plain_denc!(EVersion { version, epoch });

impl EVersion {
    pub fn new(epoch: Epoch, version: u64) -> Self {
        Self { version, epoch }
    }
}
impl PartialOrd for EVersion {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for EVersion {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.epoch, self.version).cmp(&(other.epoch, other.version))
    }
}
/// `12'345`, as Ceph prints it.
impl fmt::Display for EVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}'{}", self.epoch, self.version)
    }
}

/// `osd_reqid_t`: identifies one request of one client instance, for at-most-once execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OsdReqId {
    pub name: EntityName,
    pub tid: u64,
    pub inc: i32,
}
denc::envelope_denc!(OsdReqId, 2, 2, { name, tid, inc });

impl fmt::Display for OsdReqId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}:{}", self.name, self.inc, self.tid)
    }
}
