//! Rows of an index as they are, for those who copy or repair it.

use super::index::scan_entries;
use super::keys;
use super::types::{ObjKey, Row};
use crate::context::Result;
use crate::input::Input;
use crate::object::{Object, Scan, done, key, list_max, out};
use bytes::Bytes;
use denc::{Decode, Encode, Writer};
use types::Errno;

const PLAIN: u8 = 1;
const INSTANCE: u8 = 2;
const HEAD: u8 = 3;
const LISTED_MAX: usize = 1000;

/// A row as inputs and outputs wrap it.
struct Wrapped(Row);

impl Encode for Wrapped {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| w.put(&self.0));
    }
}

pub fn get(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let (of, kind) = input.envelope(<(ObjKey, u8)>::decode)?;
    let at = match kind {
        PLAIN => of.name,
        INSTANCE => keys::entry(&of),
        HEAD => keys::head(&of.name),
        _ => return Err(Errno::EINVAL),
    };
    let value = object.raw(&at)?.ok_or(Errno::ENOENT)?;
    out(&Wrapped(Row { kind, key: at, value }))
}

pub fn put(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let row: Row = input.envelope(Row::decode)?;
    if row.key.is_empty() {
        return Err(Errno::EINVAL);
    }
    object.set_raw(&row.key, row.value)?;
    done()
}

struct Listed {
    rows: Vec<Row>,
    truncated: bool,
}
denc::envelope_denc!(Listed, 1, 1, { rows, truncated });

struct Walk {
    listed: Listed,
    max: usize,
}

impl Walk {
    fn take(&mut self, kind: u8, key: &Bytes, value: &Bytes) -> Scan {
        if self.listed.rows.len() == self.max {
            self.listed.truncated = true;
            return Scan::Stop;
        }
        self.listed.rows.push(Row {
            kind,
            key: key.clone(),
            value: value.clone(),
        });
        Scan::Next
    }

    /// The rows of a special kind whose names begin so.
    fn special(
        &mut self,
        object: &mut Object<'_>,
        kind: u8,
        prefix: &[u8],
        name: &[u8],
        marker: &[u8],
    ) -> Result<()> {
        let of = key(prefix, name);
        object.scan(&of, marker, |rest, value| {
            Ok(self.take(kind, &key(&of, rest), value))
        })
    }
}

/// Rows of objects, of instances and of logical heads behind a marker, in the order of their keys; of one object alone if it is
/// named.
pub fn list(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let (max, name, marker) = input.envelope(|r| Ok((r.u32()?, r.blob()?, r.blob()?)))?;
    let mut walk = Walk {
        listed: Listed {
            rows: Vec::new(),
            truncated: false,
        },
        max: list_max(max.into()).min(LISTED_MAX),
    };
    let mut behind_special = false;
    if marker.first().is_none_or(|b| *b < keys::SPECIAL) || marker[..] >= *keys::BEHIND_SPECIAL {
        behind_special = marker[..] >= *keys::BEHIND_SPECIAL;
        plain(object, &mut walk, &name, &marker, behind_special)?;
    }
    if !walk.listed.truncated && !behind_special {
        walk.special(object, INSTANCE, keys::INSTANCE, &name, &marker)?;
    }
    if !walk.listed.truncated && !behind_special {
        walk.special(object, HEAD, keys::HEAD, &name, &marker)?;
    }
    if !walk.listed.truncated && !behind_special {
        plain(object, &mut walk, &name, keys::BEHIND_SPECIAL, true)?;
    }
    out(&walk.listed)
}

/// Rows of names below the special ones, or behind them.
fn plain(object: &mut Object<'_>, walk: &mut Walk, name: &[u8], marker: &[u8], behind: bool) -> Result<()> {
    scan_entries(object, name, marker, |key, value| {
        if !behind && key[0] > keys::SPECIAL {
            return Ok(Scan::Stop);
        }
        Ok(walk.take(PLAIN, key, value))
    })
}
