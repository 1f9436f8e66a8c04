//! Rows in the order of time, as classes `log` and `timeindex` keep them (docs/protocol/classes.md): their keys are
//! `1_`, ten digits of seconds, `.`, six of microseconds, `_` and what tells rows of one time apart. Beside them an
//! object may have other rows, which neither class lists nor trims.

use crate::context::Result;
use crate::object::Object;
use bytes::Bytes;
use denc::Reader;
use types::{Errno, Utime};

/// What every key begins with.
pub const PREFIX: &[u8] = b"1_";
/// Rows of one listing, and rows that one trim removes: clients go on until all are done.
pub const ROWS_MAX: usize = 1000;

/// What the keys of a time begin with. As text it sorts like the time, to the microsecond.
pub fn key_of(t: Utime) -> String {
    format!("1_{:010}.{:06}_", t.sec, t.nsec / 1000)
}

/// What `list` takes in both classes.
pub struct Listing {
    pub from: Utime,
    /// Where the listing before ended; stands for `from` unless empty.
    pub marker: Bytes,
    pub to: Utime,
    pub max: i32,
}

impl Listing {
    pub fn decode(r: &mut Reader) -> denc::Result<Self> {
        Ok(Self {
            from: r.get()?,
            marker: r.get()?,
            to: r.get()?,
            max: r.i32()?,
        })
    }

    /// Rows lie strictly behind this key.
    pub fn start(&self) -> Bytes {
        if self.marker.is_empty() {
            key_of(self.from).into()
        } else {
            self.marker.clone()
        }
    }

    /// Keys from this on are not listed. None: the listing has no end.
    pub fn end(&self) -> Option<String> {
        (self.to >= self.from).then(|| key_of(self.to))
    }
}

/// The range that `trim` takes in both classes. Both ends, from a marker: behind it, and up to it.
pub struct Range {
    from: Utime,
    to: Utime,
    from_marker: Bytes,
    to_marker: Bytes,
}

impl Range {
    pub fn decode(r: &mut Reader) -> denc::Result<Self> {
        let (from, to) = r.get()?;
        let (from_marker, to_marker) = r.get()?;
        Ok(Self {
            from,
            to,
            from_marker,
            to_marker,
        })
    }

    /// Without markers, as the first version of `log.trim` had it.
    pub fn decode_times(r: &mut Reader) -> denc::Result<Self> {
        let (from, to) = r.get()?;
        Ok(Self {
            from,
            to,
            from_marker: Bytes::new(),
            to_marker: Bytes::new(),
        })
    }
}

/// Whether keys that go on behind the text of a marker lie before it (as those of a time always do).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Marker {
    Exact,
    Prefix,
}

/// Removes the rows of a range, [`ROWS_MAX`] at most; ENODATA if there are none.
pub fn trim(object: &mut Object<'_>, range: &Range, marker: Marker) -> Result<()> {
    let start = if range.from_marker.is_empty() {
        Bytes::from(key_of(range.from))
    } else {
        range.from_marker.clone()
    };
    let (end, prefix) = if range.to_marker.is_empty() {
        (Bytes::from(key_of(range.to)), true)
    } else {
        (range.to_marker.clone(), marker == Marker::Prefix)
    };
    let within = |key: &Bytes| match prefix {
        true => key[..key.len().min(end.len())] <= end[..],
        false => key <= &end,
    };
    let page = object.page(PREFIX, &start, ROWS_MAX)?;
    let keys: Vec<Bytes> = page
        .rows
        .into_iter()
        .map(|(key, _)| key)
        .take_while(within)
        .collect();
    if keys.is_empty() {
        return Err(Errno::ENODATA);
    }
    object.unset_keys(keys)
}
