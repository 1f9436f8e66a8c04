//! Listing: a walk over a pool's objects in the order of their reversed hashes, PG by PG
//! (docs/protocol/ceph/04-osd.md, section 13).
//!
//! A [`Cursor`] is a place in that order, not in a PG: it stays good when PGs split, and slices of a pool may be listed side by
//! side. An object that stays is listed once; one that comes or goes meanwhile may be listed or not.

use super::target::Place;
use crate::{Error, Result};
use bytes::Bytes;
use denc::{Decode, Encode, Reader};
use messages::osd::{OsdOp, PgListArg, code, flag};
use std::fmt;
use types::{Errno, HObject, NOSNAP, PoolId};

use super::op::{Operation, Outcome};

/// What one answer holds at most; OSDs give no more.
pub const PAGE_MAX: u64 = 1024;

/// A place in the order of a pool's objects.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cursor(HObject);

impl Cursor {
    pub fn begin(pool: PoolId) -> Self {
        Self::at_hash(pool, 0)
    }

    pub fn end() -> Self {
        Self(HObject::max())
    }

    pub fn is_end(&self) -> bool {
        self.0.max
    }

    /// Before the first object whose reversed hash is at least this.
    pub fn at_reversed(pool: PoolId, reversed: u32) -> Self {
        Self::at_hash(pool, reversed.reverse_bits())
    }

    fn at_hash(pool: PoolId, hash: u32) -> Self {
        let none = Bytes::new();
        Self(HObject::new(pool, hash, none.clone(), none.clone(), none, NOSNAP))
    }

    /// Begin and end of slice `n` of `of`, which are of the same size.
    pub fn slice(pool: PoolId, n: u32, of: u32) -> Result<(Self, Self)> {
        if n >= of {
            return Err(Error::invalid(Errno::EINVAL, "a slice beyond the last"));
        }
        let at = |i: u32| ((u64::from(i) << 32) / u64::from(of)) as u32;
        let end = match n + 1 == of {
            true => Self::end(),
            false => Self::at_reversed(pool, at(n + 1)),
        };
        Ok((Self::at_reversed(pool, at(n)), end))
    }

    /// For keeping it: read again by [`Self::from_bytes`].
    pub fn to_bytes(&self) -> Bytes {
        self.0.to_bytes()
    }

    pub fn from_bytes(raw: &Bytes) -> Result<Self> {
        Ok(Self(HObject::from_bytes(raw)?))
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// An object as listings name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub nspace: Bytes,
    pub oid: Bytes,
    /// Its locator; empty: none.
    pub key: Bytes,
}

/// Which namespaces are listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Spaces {
    All,
    One(Bytes),
}

/// On the wire: all of them.
const ALL_SPACES: &[u8] = &[1];

/// Which objects are listed of those that there are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct XattrIs {
    pub name: Bytes,
    pub value: Bytes,
}

/// One question of a walk. `epoch`: of the map by which it is asked.
pub fn question(
    pool: PoolId,
    spaces: &Spaces,
    from: &Cursor,
    max: u64,
    epoch: u32,
    filter: Option<&XattrIs>,
) -> (Place, Operation) {
    let nspace = match spaces {
        Spaces::All => Bytes::from_static(ALL_SPACES),
        Spaces::One(n) => n.clone(),
    };
    let place = Place {
        pool,
        nspace,
        key: Bytes::new(),
        oid: Bytes::new(),
        of_pg: Some(from.0.hash),
    };
    let arg = PgListArg {
        count: max.min(PAGE_MAX),
        start_epoch: epoch,
    };
    let (what, mut data) = match filter {
        None => (code::PGNLS, Vec::new()),
        Some(f) => (code::PGNLS_FILTER, filter_bytes(f)),
    };
    data.extend_from_slice(&from.0.to_bytes());
    let step = OsdOp::new(what).with_pg_list(arg).with_data(data);
    (place, Operation::new().raw(step).flags(flag::IGNORE_OVERLAY))
}

fn filter_bytes(f: &XattrIs) -> Vec<u8> {
    let mut w = denc::Writer::new();
    ["pg", "filter", "plain"].iter().for_each(|s| w.string(s));
    // A user's attribute, as the store calls it.
    w.blob(&[b"_", &f.name[..]].concat());
    w.blob(&f.value);
    w.finish().to_vec()
}

/// The entries of an answer that lie before `end`, and where to go on. `hash`: of an object in the pool.
pub fn answer(
    outcome: &Outcome,
    from: &Cursor,
    end: &Cursor,
    hash: impl Fn(&Entry) -> u32,
) -> Result<(Vec<Entry>, Cursor)> {
    let r = &mut Reader::new(outcome.step(0)?.data.clone());
    let (next, mut entries) = r.envelope(1, |_, r| {
        let next: HObject = r.get()?;
        let n = r.count(12)?;
        let mut entries = Vec::with_capacity(n);
        for _ in 0..n {
            entries.push(Entry {
                nspace: r.blob()?,
                oid: r.blob()?,
                key: r.blob()?,
            });
        }
        Ok((next, entries))
    })?;
    let next = Cursor(next);
    // A walk that goes back, or stands without an entry, would never end.
    if next < *from || (next == *from && entries.is_empty() && !next.is_end()) {
        return Err(Error::Malformed("a listing that does not go on".into()));
    }
    if next < *end {
        return Ok((entries, next));
    }
    if !end.is_end() {
        let at = |e: &Entry| {
            let (nspace, key, oid) = (e.nspace.clone(), e.key.clone(), e.oid.clone());
            HObject::new(end.0.pool, hash(e), nspace, key, oid, NOSNAP)
        };
        entries.retain(|e| at(e) < end.0);
    }
    Ok((entries, end.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_touch_and_cover_all() {
        let mut from = Cursor::begin(3);
        for n in 0..7 {
            let (begin, end) = Cursor::slice(3, n, 7).unwrap();
            assert_eq!(begin, from);
            assert!(begin < end);
            from = end;
        }
        assert!(from.is_end());
        assert!(Cursor::slice(3, 7, 7).is_err());
        assert_eq!(Cursor::slice(3, 0, 1).unwrap(), (Cursor::begin(3), Cursor::end()));
    }

    #[test]
    fn a_cursor_is_kept_as_bytes() {
        let c = Cursor::at_reversed(3, 0x8000_0000);
        assert_eq!(Cursor::from_bytes(&c.to_bytes()), Ok(c));
    }
}
