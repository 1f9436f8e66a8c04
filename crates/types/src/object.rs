//! Object identity and its order (docs/protocol/ceph/04-osd.md, sections 0 and 13.2).

use bytes::Bytes;
use denc::{Decode, Encode, Reader, Result, Writer};
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

/// "The head": not a snapshot.
pub const NOSNAP: u64 = 0xffff_ffff_ffff_fffe;
/// "The directory of snapshots": only LIST_SNAPS reads it.
pub const SNAPDIR: u64 = 0xffff_ffff_ffff_ffff;

/// `hobject_t`. Identity is (pool, nspace, key, oid, snap); `hash` follows from key or oid.
///
/// Order: `max` last of all, then pool, bit-reversed hash, nspace, effective key, oid, snap. In this order
/// the objects of one PG are one contiguous range of their pool, for any pg_num, since a PG is a suffix of
/// the hash's bits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HObject {
    pub key: Bytes,
    pub oid: Bytes,
    pub snap: u64,
    pub hash: u32,
    pub max: bool,
    pub nspace: Bytes,
    pub pool: i64,
}

impl HObject {
    /// Before every object: Ceph's default-constructed value.
    pub fn min() -> Self {
        Self {
            key: Bytes::new(),
            oid: Bytes::new(),
            snap: 0,
            hash: 0,
            max: false,
            nspace: Bytes::new(),
            pool: i64::MIN,
        }
    }

    /// Behind every object.
    pub fn max() -> Self {
        Self {
            max: true,
            ..Self::min()
        }
    }

    /// The object for (pool, hash), with a key equal to the oid dropped, as it counts as empty.
    pub fn new(pool: i64, hash: u32, nspace: Bytes, key: Bytes, oid: Bytes, snap: u64) -> Self {
        let key = if key == oid { Bytes::new() } else { key };
        Self {
            key,
            oid,
            snap,
            hash,
            max: false,
            nspace,
            pool,
        }
    }

    pub fn with_snap(&self, snap: u64) -> Self {
        Self { snap, ..self.clone() }
    }

    pub fn head(&self) -> Self {
        self.with_snap(NOSNAP)
    }

    pub fn is_head(&self) -> bool {
        self.snap == NOSNAP
    }

    /// What places the object: the locator key, or the name where there is none.
    pub fn effective_key(&self) -> &Bytes {
        if self.key.is_empty() { &self.oid } else { &self.key }
    }

    pub fn reversed_hash(&self) -> u32 {
        self.hash.reverse_bits()
    }
}

/// Without what hardly ever tells objects of one table apart: they are looked up several times for each operation.
impl Hash for HObject {
    fn hash<H: Hasher>(&self, h: &mut H) {
        h.write_u64(self.snap ^ u64::from(self.hash));
        h.write(&self.oid);
    }
}

impl Ord for HObject {
    fn cmp(&self, o: &Self) -> Ordering {
        self.max
            .cmp(&o.max)
            .then_with(|| self.pool.cmp(&o.pool))
            .then_with(|| self.reversed_hash().cmp(&o.reversed_hash()))
            .then_with(|| self.nspace.cmp(&o.nspace))
            .then_with(|| {
                if self.key.is_empty() && o.key.is_empty() {
                    Ordering::Equal
                } else {
                    self.effective_key().cmp(o.effective_key())
                }
            })
            .then_with(|| self.oid.cmp(&o.oid))
            .then_with(|| self.snap.cmp(&o.snap))
    }
}
impl PartialOrd for HObject {
    fn partial_cmp(&self, o: &Self) -> Option<Ordering> {
        Some(self.cmp(o))
    }
}

impl Encode for HObject {
    fn encode(&self, w: &mut Writer) {
        w.envelope(4, 3, |w| {
            w.blob(&self.key);
            w.blob(&self.oid);
            w.u64(self.snap);
            w.u32(self.hash);
            w.bool(self.max);
            w.blob(&self.nspace);
            w.i64(self.pool);
        });
    }
}
impl Decode for HObject {
    const MIN_SIZE: usize = 39;
    fn decode(r: &mut Reader) -> Result<Self> {
        r.envelope(4, |v, r| {
            let mut o = Self {
                key: r.blob()?,
                oid: r.blob()?,
                snap: r.u64()?,
                hash: r.u32()?,
                max: r.bool()?,
                nspace: Bytes::new(),
                pool: -1,
            };
            if v >= 4 {
                o.nspace = r.blob()?;
                o.pool = r.i64()?;
            }
            Ok(o)
        })
    }
}

/// For people: `pool/nspace/oid@snap`, bytes that are not text escaped.
impl fmt::Display for HObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.max {
            return f.write_str("MAX");
        }
        write!(
            f,
            "{}/{}/{}",
            self.pool,
            self.nspace.escape_ascii(),
            self.oid.escape_ascii()
        )?;
        if !self.key.is_empty() {
            write!(f, "(key {})", self.key.escape_ascii())?;
        }
        match self.snap {
            NOSNAP => Ok(()),
            snap => write!(f, "@{snap:x}"),
        }
    }
}

/// `object_locator_t`: where a client's object lives; `hash` -1 is "not given".
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ObjectLocator {
    pub pool: i64,
    pub key: Bytes,
    pub nspace: Bytes,
    pub hash: i64,
}

impl Encode for ObjectLocator {
    fn encode(&self, w: &mut Writer) {
        w.envelope(6, if self.hash == -1 { 3 } else { 6 }, |w| {
            w.i64(self.pool);
            w.i32(-1);
            w.blob(&self.key);
            w.blob(&self.nspace);
            w.i64(self.hash);
        });
    }
}
impl Decode for ObjectLocator {
    const MIN_SIZE: usize = 34;
    fn decode(r: &mut Reader) -> Result<Self> {
        r.envelope(6, |v, r| {
            let pool = r.i64()?;
            r.skip(4)?;
            let key = r.blob()?;
            let nspace = if v >= 5 { r.blob()? } else { Bytes::new() };
            let hash = if v >= 6 { r.i64()? } else { -1 };
            Ok(Self {
                pool,
                key,
                nspace,
                hash,
            })
        })
    }
}
