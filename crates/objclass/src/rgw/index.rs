//! The index of a bucket: its header, and changes that are announced and completed.

use super::header::{load_header, save_header};
use super::keys::{self, BEHIND_SPECIAL, SPECIAL};
use super::log::{self, COMPLETE};
use super::types::{
    DirEntry, EntryVersion, Header, LogEntry, Meta, ObjKey, PLACEHOLDER, Pending, Stats, Trace, VERSIONED,
};
use crate::context::Result;
use crate::input::Input;
use crate::object::{Object, Scan, done, out, stored};
use bytes::Bytes;
use denc::{Decode, Reader, envelope_denc};
use std::collections::{BTreeMap, BTreeSet};
use types::Errno;

/// Kinds of changes.
const ADD: u8 = 0;
const DELETE: u8 = 1;
const CANCEL: u8 = 2;
/// As a bit of `log_flags`: the object has versions.
const LOG_VERSIONED: u16 = 1;
/// Announcements of one object that are not completed: more is refused, so that a row stays small.
const PENDING_MAX: usize = 1000;

pub fn init(object: &mut Object<'_>, _: &mut Input) -> Result<Bytes> {
    let header: Option<Header> = object.omap_header()?;
    if header.is_some() {
        return Err(Errno::EINVAL);
    }
    save_header(object, &mut Header::default())?;
    done()
}

pub fn set_tag_timeout(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let seconds = input.envelope(u64::decode)?;
    let mut header = load_header(object)?;
    header.tag_timeout = seconds;
    save_header(object, &mut header)?;
    done()
}

/// Calls `row` with the rows of objects and of versions whose keys begin with `prefix`, in order, from behind a key.
pub fn scan_entries(
    object: &mut Object<'_>,
    prefix: &[u8],
    after: &[u8],
    mut row: impl FnMut(&Bytes, &Bytes) -> Result<Scan>,
) -> Result<()> {
    let mut at_special = false;
    object.scan_keys(prefix, after, |key, value| {
        at_special = key.first() == Some(&SPECIAL);
        match at_special {
            true => Ok(Scan::Stop),
            false => row(key, value),
        }
    })?;
    match at_special {
        true => object.scan_keys(prefix, after.max(BEHIND_SPECIAL), row),
        false => Ok(()),
    }
}

struct Checked {
    existing: Header,
    calculated: Header,
}
envelope_denc!(Checked, 1, 1, { existing, calculated });

/// The header, and how it should be by what is in the index.
fn calculate(object: &mut Object<'_>) -> Result<Checked> {
    let existing = load_header(object)?;
    let mut calculated = Header {
        stats: BTreeMap::new(),
        ..existing.clone()
    };
    scan_entries(object, b"", b"", |_, value| {
        let entry: DirEntry = stored(value)?;
        if entry.exists {
            calculated.count(&entry.meta);
        }
        Ok(Scan::Next)
    })?;
    Ok(Checked { existing, calculated })
}

pub fn check(object: &mut Object<'_>, _: &mut Input) -> Result<Bytes> {
    out(&calculate(object)?)
}

pub fn rebuild(object: &mut Object<'_>, _: &mut Input) -> Result<Bytes> {
    let mut header = calculate(object)?.calculated;
    save_header(object, &mut header)?;
    done()
}

pub fn update_stats(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let (absolute, stats) = input.envelope(<(bool, BTreeMap<u8, Stats>)>::decode)?;
    let mut header = load_header(object)?;
    for (category, given) in stats {
        let here = header.stats.entry(category).or_default();
        match absolute {
            true => *here = given,
            false => here.add(given),
        }
    }
    save_header(object, &mut header)?;
    done()
}

struct Announced {
    op: u8,
    tag: Bytes,
    locator: Bytes,
    key: ObjKey,
}

impl Announced {
    fn decode(version: u8, r: &mut Reader) -> denc::Result<Self> {
        if version < 5 {
            return Err(r.invalid("announcement of before 16.2"));
        }
        let (op, tag, locator) = (r.u8()?, r.blob()?, r.blob()?);
        r.bool()?;
        Ok(Self {
            op,
            tag,
            locator,
            key: r.get()?,
        })
    }
}

/// Where the entry of an object is, and the entry.
pub fn find(object: &mut Object<'_>, key: &ObjKey) -> Result<(Bytes, Option<DirEntry>)> {
    let at = keys::entry(key);
    let entry: Option<DirEntry> = object.get(&at)?;
    match entry {
        Some(entry) if key.instance.is_empty() && entry.has(PLACEHOLDER) => {
            let at = keys::instance(key);
            let entry = object.get(&at)?;
            Ok((at, entry))
        }
        entry => Ok((at, entry)),
    }
}

pub fn prepare(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let given = input.versioned(7, Announced::decode)?;
    if given.tag.is_empty() {
        return Err(Errno::EINVAL);
    }
    let (at, entry) = find(object, &given.key)?;
    let mut entry = entry.unwrap_or_else(|| DirEntry {
        locator: given.locator,
        ..DirEntry::new(given.key)
    });
    if entry.pending.len() >= PENDING_MAX {
        return Err(Errno::EBUSY);
    }
    let pending = Pending {
        state: 0,
        since: object.now(),
        op: given.op,
    };
    let behind = entry.pending.partition_point(|(tag, _)| *tag <= given.tag);
    entry.pending.insert(behind, (given.tag, pending));
    object.set(&at, &entry)?;
    done()
}

struct Completed {
    op: u8,
    meta: Meta,
    tag: Bytes,
    locator: Bytes,
    removed: Vec<ObjKey>,
    ver: EntryVersion,
    logged: bool,
    key: ObjKey,
    log_flags: u16,
    trace: Trace,
}

impl Completed {
    fn decode(version: u8, r: &mut Reader) -> denc::Result<Self> {
        if version < 7 {
            return Err(r.invalid("completion of before 16.2"));
        }
        let op = r.u8()?;
        r.u64()?;
        Ok(Self {
            op,
            meta: r.get()?,
            tag: r.get()?,
            locator: r.get()?,
            removed: r.get()?,
            ver: r.get()?,
            logged: r.bool()?,
            key: r.get()?,
            log_flags: if version >= 8 { r.u16()? } else { 0 },
            trace: if version >= 9 { r.get()? } else { Trace::new() },
        })
    }

    fn log_entry(&self, header: &Header, op: u8) -> LogEntry {
        LogEntry {
            name: self.key.name.clone(),
            mtime: self.meta.mtime,
            ver: self.ver,
            tag: self.tag.clone(),
            op,
            state: COMPLETE,
            index_ver: header.ver,
            instance: self.key.instance.clone(),
            flags: self.log_flags,
            trace: self.trace.clone(),
            ..LogEntry::default()
        }
    }
}

pub fn complete(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let given = input.versioned(9, Completed::decode)?;
    let mut header = load_header(object)?;
    let (at, found) = find(object, &given.key)?;
    let was_there = found.is_some();
    let mut entry = found.unwrap_or_else(|| DirEntry {
        ver: given.ver,
        locator: given.locator.clone(),
        ..DirEntry::new(given.key.clone())
    });
    entry.index_ver = header.ver;
    entry.flags &= VERSIONED;
    if !given.tag.is_empty() {
        let found = entry.pending.iter().position(|(tag, _)| *tag == given.tag);
        entry.pending.remove(found.ok_or(Errno::EINVAL)?);
    }
    let is_old =
        given.ver.pool == entry.ver.pool && given.ver.epoch != 0 && given.ver.epoch <= entry.ver.epoch;
    let op = if is_old { CANCEL } else { given.op };
    entry.ver = given.ver;
    apply(object, &mut header, &at, entry, &given, op, was_there)?;
    let logs = given.logged && !header.log_stopped;
    if logs && op != CANCEL {
        let entry = given.log_entry(&header, op);
        log::append(object, &mut header, entry)?;
    }
    // Rows are read as they were before the call: one that is named twice would be uncounted twice.
    let mut seen = BTreeSet::new();
    for key in given.removed.iter().filter(|key| seen.insert(*key)) {
        remove_other(object, &mut header, key, &given, logs)?;
    }
    save_header(object, &mut header)?;
    done()
}

fn apply(
    object: &mut Object<'_>,
    header: &mut Header,
    at: &Bytes,
    mut entry: DirEntry,
    given: &Completed,
    op: u8,
    was_there: bool,
) -> Result<()> {
    match op {
        ADD => {
            if entry.exists {
                header.uncount(&entry.meta);
            }
            entry.meta = given.meta.clone();
            entry.key = given.key.clone();
            entry.exists = true;
            entry.tag = given.tag.clone();
            header.count(&entry.meta);
            object.set(at, &entry)
        }
        DELETE => {
            if entry.exists {
                header.uncount(&entry.meta);
            }
            if entry.pending.is_empty() {
                return if was_there { object.unset(at) } else { Ok(()) };
            }
            entry.exists = false;
            entry.meta = given.meta.clone();
            object.set(at, &entry)
        }
        _ => match (was_there, entry.exists || !entry.pending.is_empty()) {
            (false, _) => Ok(()),
            (true, true) if given.tag.is_empty() => Ok(()),
            (true, true) => object.set(at, &entry),
            (true, false) => object.unset(at),
        },
    }
}

/// An object that goes with a completed change: parts of an upload.
fn remove_other(
    object: &mut Object<'_>,
    header: &mut Header,
    key: &ObjKey,
    given: &Completed,
    logs: bool,
) -> Result<()> {
    let (at, entry) = find(object, key)?;
    let Some(entry) = entry else { return Ok(()) };
    if entry.exists {
        header.uncount(&entry.meta);
    }
    if logs {
        let entry = LogEntry {
            name: entry.key.name.clone(),
            instance: entry.key.instance.clone(),
            mtime: given.meta.mtime,
            ver: entry.ver,
            tag: given.tag.clone(),
            op: DELETE,
            state: COMPLETE,
            index_ver: header.ver,
            flags: given.log_flags & !LOG_VERSIONED,
            trace: given.trace.clone(),
            ..LogEntry::default()
        };
        log::append(object, header, entry)?;
    }
    object.unset(&at)
}
