//! What is wrong with an object, as a scrub tells it. Names and bits of errors are Ceph's (docs/protocol/osd.md).

use messages::osd::peer_scrub::{ObjectDigest, fault};
use types::{EVersion, HObject, OsdId};

/// Bits of what is wrong with one copy (*shard* in Ceph's words).
pub mod shard_error {
    pub const MISSING: u64 = 1 << 1;
    pub const STAT: u64 = 1 << 2;
    pub const READ: u64 = 1 << 3;
    pub const DATA_DIGEST_INFO: u64 = 1 << 9;
    pub const OMAP_DIGEST_INFO: u64 = 1 << 10;
    pub const SIZE_INFO: u64 = 1 << 11;
    /// What a shard has does not fit the others.
    pub const EC_HASH: u64 = 1 << 12;
    pub const INFO_MISSING: u64 = 1 << 14;
    pub const INFO_CORRUPTED: u64 = 1 << 15;
    pub const SNAPSET_MISSING: u64 = 1 << 16;
    pub const SNAPSET_CORRUPTED: u64 = 1 << 17;
}

/// Bits of how the copies of an object disagree.
pub mod object_error {
    pub const INFO: u64 = 1 << 1;
    pub const DATA_DIGEST: u64 = 1 << 4;
    pub const OMAP_DIGEST: u64 = 1 << 5;
    pub const SIZE: u64 = 1 << 6;
    pub const ATTR_VALUE: u64 = 1 << 7;
    pub const ATTR_NAME: u64 = 1 << 8;
}

/// What is wrong with a copy, or a shard, by itself.
pub(crate) fn own_errors(d: Option<&ObjectDigest>) -> u64 {
    let Some(d) = d else {
        return shard_error::MISSING;
    };
    [
        (fault::READ, shard_error::READ),
        (fault::STAT, shard_error::STAT),
        (fault::INFO_MISSING, shard_error::INFO_MISSING),
        (fault::INFO_CORRUPTED, shard_error::INFO_CORRUPTED),
        (fault::SNAPSET_MISSING, shard_error::SNAPSET_MISSING),
        (fault::SNAPSET_CORRUPTED, shard_error::SNAPSET_CORRUPTED),
        (fault::SIZE_INFO, shard_error::SIZE_INFO),
    ]
    .iter()
    .filter(|(f, _)| d.faults & f != 0)
    .fold(0, |all, (_, e)| all | e)
}

/// Of these what only a deep look finds.
pub(crate) fn deep_errors() -> u64 {
    let digests = shard_error::DATA_DIGEST_INFO | shard_error::OMAP_DIGEST_INFO;
    shard_error::READ | shard_error::EC_HASH | digests
}

/// One copy, or shard, as it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Side {
    pub osd: OsdId,
    /// -1: a copy.
    pub shard: i8,
    /// None: missing there.
    pub digest: Option<ObjectDigest>,
    pub errors: u64,
    /// It differs from the good copy, or has an error of its own.
    pub bad: bool,
}

/// An object whose copies are not all the same and whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inconsistent {
    pub object: HObject,
    /// How copies disagree.
    pub errors: u64,
    pub sides: Vec<Side>,
    /// Whose copy is right; None: nobody's.
    pub good: Option<OsdId>,
    /// Nothing is wrong with the good copies, and so many copies are not like them.
    pub shallow: u32,
    pub deep: u32,
}

impl Inconsistent {
    pub fn bad(&self) -> impl Iterator<Item = OsdId> + '_ {
        self.sides.iter().filter(|s| s.bad).map(|s| s.osd)
    }

    /// Where no copy is whole: those of one version that together may hold all of it, since each of them only has parts
    /// that cannot be read. The largest party of them, the primary's of equal ones; a party of one is none.
    pub fn partly(&self) -> Vec<OsdId> {
        if self.good.is_some() {
            return Vec::new();
        }
        let parts = fault::READ | fault::STAT;
        let some = |s: &&Side| {
            let d = s.digest.as_ref();
            d.is_some_and(|d| d.version != EVersion::default() && d.faults & !parts == 0)
        };
        let what = |s: &Side| s.digest.as_ref().map(|d| (d.version, d.size, d.names, d.attrs));
        let sides: Vec<&Side> = self.sides.iter().filter(some).collect();
        let party = |one: &Side| -> Vec<OsdId> {
            let same = sides.iter().filter(|s| what(s) == what(one));
            same.map(|s| s.osd).collect()
        };
        let parties = sides.iter().map(|s| party(s)).filter(|p| p.len() > 1);
        parties
            .reduce(|a, b| if b.len() > a.len() { b } else { a })
            .unwrap_or_default()
    }

    pub fn union_errors(&self) -> u64 {
        self.sides.iter().fold(0, |all, s| all | s.errors)
    }
}
