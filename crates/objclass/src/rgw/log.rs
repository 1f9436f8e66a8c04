//! The log of an index: what was changed, for other zones.

use super::header::{load_header, save_header};
use super::keys;
use super::types::{Header, LogEntry};
use crate::context::Result;
use crate::input::Input;
use crate::object::{Object, Scan, done, key, list_max, out, stored};
use crate::opaque::Opaque;
use bytes::Bytes;
use denc::{Decode, Encode, Writer};
use types::Errno;

/// State of an entry.
pub const COMPLETE: u8 = 1;
/// Kinds of entries beside those of changes.
const STOP: u8 = 8;
const RESYNC: u8 = 9;
/// Entries that one call lists or removes.
const PAGE_MAX: usize = 1000;

/// An id that no other entry has, later than those of earlier versions of the index. Those of one version, which one message writes,
/// and so a reader sees all or none of, are in no certain order.
fn id(object: &mut Object<'_>, header: &Header) -> Bytes {
    let (version, nth) = object.serial();
    format!("{:011}.{version}.{nth}", header.ver).into()
}

/// Adds an entry, whose id becomes the header's marker. The header is to be saved.
pub fn append(object: &mut Object<'_>, header: &mut Header, mut entry: LogEntry) -> Result<()> {
    entry.id = id(object, header);
    object.set(&key(keys::LOG, &entry.id), &entry)?;
    header.max_marker = entry.id;
    Ok(())
}

struct Listed {
    entries: Vec<Bytes>,
    truncated: bool,
}

impl Encode for Listed {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.u32(self.entries.len() as u32);
            self.entries.iter().for_each(|e| w.raw(e));
            w.bool(self.truncated);
        });
    }
}

/// Entries behind a marker.
pub fn list(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let (marker, max) = input.envelope(<(Bytes, u32)>::decode)?;
    let max = list_max(max.into()).min(PAGE_MAX);
    let mut listed = Listed {
        entries: Vec::new(),
        truncated: false,
    };
    object.scan(keys::LOG, &key(keys::LOG, &marker), |_, value| {
        if listed.entries.len() == max {
            listed.truncated = true;
            return Ok(Scan::Stop);
        }
        listed.entries.push(stored::<Opaque>(value)?.0);
        Ok(Scan::Next)
    })?;
    out(&listed)
}

/// Removes entries behind one marker up to and with another, an empty one standing for the end. ENODATA: there are none.
pub fn trim(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let (from, to) = input.envelope(<(Bytes, Bytes)>::decode)?;
    let mut gone = Vec::new();
    object.scan(keys::LOG, &key(keys::LOG, &from), |id, _| {
        if !to.is_empty() && *id > to && !id.starts_with(&to) {
            return Ok(Scan::Stop);
        }
        gone.push(key(keys::LOG, id));
        Ok(if gone.len() < PAGE_MAX {
            Scan::Next
        } else {
            Scan::Stop
        })
    })?;
    if gone.is_empty() {
        return Err(Errno::ENODATA);
    }
    object.unset_keys(gone)?;
    done()
}

/// Notes that the log stops, or goes on.
fn turn(object: &mut Object<'_>, op: u8) -> Result<Bytes> {
    let mut header = load_header(object)?;
    let entry = LogEntry {
        mtime: object.now(),
        op,
        state: COMPLETE,
        ..LogEntry::default()
    };
    append(object, &mut header, entry)?;
    header.log_stopped = op == STOP;
    save_header(object, &mut header)?;
    done()
}

pub fn resync(object: &mut Object<'_>, _: &mut Input) -> Result<Bytes> {
    turn(object, RESYNC)
}

pub fn stop(object: &mut Object<'_>, _: &mut Input) -> Result<Bytes> {
    turn(object, STOP)
}
