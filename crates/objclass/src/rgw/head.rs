//! Objects with versions: their logical heads, and the lists of their versions.
//!
//! The logical head names the current version. What a change of it asks of the head object in the data pool is noted in its
//! *log*, by the head's epoch; the client reads it there, does it, and trims the log.
//!
//! A version without an instance is the object as it was before there were versions, or as it is written while they are suspended.
//! Its delete marker has an instance row of its own, so that the object's row is there until the object is gone.

use super::header::{load_header, save_header};
use super::keys;
use super::log::{self, COMPLETE};
use super::types::{
    CURRENT, DELETE_MARKER, DirEntry, EntryVersion, HeadChange, HeadLog, Header, KeyAndTag, LINK, LogEntry,
    LogicalHead, Meta, ObjKey, PLACEHOLDER, REMOVE_INSTANCE, Trace, UNLINK, VERSIONED,
};
use crate::context::Result;
use crate::input::Input;
use crate::object::{Object, Scan, done, out, stored};
use bytes::Bytes;
use denc::{Decode, envelope_denc};
use types::{Errno, Utime};

/// Changes that may wait in a log, and epochs that one call reads.
const LOG_MAX: usize = 4000;
const READ_MAX: usize = 1000;
/// Kinds of entries of the index's log.
const LOGS_LINK: u8 = 4;
const LOGS_LINK_MARKER: u8 = 5;
const LOGS_UNLINK: u8 = 6;
/// As a bit of their flags.
const LOG_VERSIONED: u16 = 1;

struct Given {
    key: ObjKey,
    head_tag: Bytes,
    delete_marker: bool,
    op_tag: Bytes,
    meta: Meta,
    epoch: u64,
    logged: bool,
    log_flags: u16,
    /// A version that is not older than this stays the current one.
    unless_since: Utime,
    precise: bool,
    trace: Trace,
}

/// A version's entry, and where its instance row is.
#[derive(Clone)]
struct Version {
    at: Bytes,
    entry: DirEntry,
}

impl Version {
    fn find(object: &mut Object<'_>, at: Bytes) -> Result<Option<Self>> {
        Ok(object.get(&at)?.map(|entry| Self { at, entry }))
    }

    fn is_listed(&self) -> bool {
        self.entry.epoch > 0
    }

    fn save_instance(&self, object: &mut Object<'_>) -> Result<()> {
        object.set(&self.at, &self.entry)
    }

    /// Writes both rows.
    fn save(&self, object: &mut Object<'_>) -> Result<()> {
        self.save_instance(object)?;
        object.set(&keys::listed(&self.entry), &self.entry)
    }
}

/// The head of an object, as it is changed by one call.
struct Head {
    at: Bytes,
    value: LogicalHead,
    found: bool,
}

impl Head {
    fn load(object: &mut Object<'_>, name: &Bytes) -> Result<Self> {
        let at = keys::head(name);
        let value: Option<LogicalHead> = object.get(&at)?;
        let new = LogicalHead {
            epoch: 1,
            ..LogicalHead::default()
        };
        Ok(Self {
            at,
            found: value.is_some(),
            value: value.unwrap_or(new),
        })
    }

    /// ECANCELED: there is none, or it is another object's of the name.
    fn must_have(object: &mut Object<'_>, of: &KeyAndTag) -> Result<Self> {
        let head = Self::load(object, &of.key.name)?;
        match head.found && head.value.tag == of.tag {
            true => Ok(head),
            false => Err(Errno::ECANCELED),
        }
    }

    fn note(&mut self, epoch: u64, op: u8, op_tag: &Bytes, key: &ObjKey, delete_marker: bool) -> Result<()> {
        if self.value.log.values().map(Vec::len).sum::<usize>() >= LOG_MAX {
            return Err(Errno::EBUSY);
        }
        let change = HeadChange {
            epoch,
            op,
            op_tag: op_tag.clone(),
            key: key.clone(),
            delete_marker,
        };
        self.value.log.entry(self.value.epoch).or_default().push(change);
        Ok(())
    }

    fn stand_for(&mut self, key: &ObjKey, delete_marker: bool) {
        self.value.exists = true;
        self.value.pending_removal = false;
        self.value.key = key.clone();
        self.value.delete_marker = delete_marker;
    }

    /// The epoch of a change: as asked for, or the next.
    fn epoch_of(&self, asked: u64) -> u64 {
        match asked {
            0 => self.value.epoch.saturating_add(1),
            asked => asked,
        }
    }

    /// Takes the mark of the current version from the one that the head stands for.
    fn unmark(&self, object: &mut Object<'_>) -> Result<()> {
        let Some(mut old) = Version::find(object, at(&self.value.key, self.value.delete_marker))? else {
            return Ok(());
        };
        old.entry.flags &= !CURRENT;
        match old.is_listed() {
            true => old.save(object),
            false => old.save_instance(object),
        }
    }

    fn save(&self, object: &mut Object<'_>) -> Result<()> {
        object.set(&self.at, &self.value)
    }
}

/// Where the instance row of a version is.
fn at(key: &ObjKey, delete_marker: bool) -> Bytes {
    let at = keys::instance(key);
    match delete_marker && key.instance.is_empty() {
        true => [&at[..], b"\0d"].concat().into(),
        false => at,
    }
}

/// The version that an object of before there were versions becomes, if there is one.
fn converted(object: &mut Object<'_>, head: &Head, name: &Bytes) -> Result<Option<Version>> {
    if head.found {
        return Ok(None);
    }
    let key = ObjKey {
        name: name.clone(),
        instance: Bytes::new(),
    };
    let plain: Option<DirEntry> = object.get(name)?;
    let is_object = |e: &DirEntry| !e.has(PLACEHOLDER) && (e.exists || !e.pending.is_empty());
    Ok(plain.filter(is_object).map(|entry| Version {
        at: keys::instance(&key),
        entry: DirEntry {
            flags: entry.flags | VERSIONED,
            epoch: 1,
            ..entry
        },
    }))
}

/// What stands at a name whose versions are elsewhere.
fn put_placeholder(object: &mut Object<'_>, name: &Bytes) -> Result<()> {
    let key = ObjKey {
        name: name.clone(),
        instance: Bytes::new(),
    };
    let placeholder = DirEntry {
        flags: PLACEHOLDER,
        ..DirEntry::new(key)
    };
    object.set(name, &placeholder)
}

pub fn link(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let given = input.versioned(5, |version, r| {
        if version < 5 {
            return Err(r.invalid("link of before 16.2"));
        }
        Ok(Given {
            key: r.get()?,
            head_tag: r.get()?,
            delete_marker: r.bool()?,
            op_tag: r.get()?,
            meta: r.get()?,
            epoch: r.u64()?,
            logged: r.bool()?,
            log_flags: r.u16()?,
            unless_since: {
                r.u64()?;
                r.get()?
            },
            precise: r.bool()?,
            trace: r.get()?,
        })
    })?;
    let mut head = Head::load(object, &given.key.name)?;
    let before = Before::find(object, &head, &given.key)?;
    let version = before.target(&given)?;
    if is_newer(&version, &given) {
        return done();
    }
    if head.found && head.value.tag != given.head_tag && !head.value.pending_removal {
        return Err(Errno::ECANCELED);
    }
    let epoch = link_version(object, &given, &mut head, &before, version)?;
    let entry = LogEntry {
        mtime: given.meta.mtime,
        op: match given.delete_marker {
            true => LOGS_LINK_MARKER,
            false => LOGS_LINK,
        },
        owner: if given.delete_marker {
            given.meta.owner.clone()
        } else {
            Bytes::new()
        },
        owner_name: if given.delete_marker {
            given.meta.owner_name.clone()
        } else {
            Bytes::new()
        },
        trace: given.trace,
        ..log_entry(&given.key, &given.op_tag, epoch, given.log_flags)
    };
    append(object, given.logged, entry)?;
    done()
}

/// What there is of a version before it is linked or unlinked.
struct Before {
    /// An object of before there were versions.
    converted: Option<Version>,
    /// The version itself; of one without an instance the object.
    version: Option<Version>,
    /// Of one without an instance its delete marker.
    marker: Option<Version>,
}

impl Before {
    fn find(object: &mut Object<'_>, head: &Head, key: &ObjKey) -> Result<Self> {
        let converted = converted(object, head, &key.name)?;
        if !key.instance.is_empty() {
            return Ok(Self {
                converted,
                version: Version::find(object, at(key, false))?,
                marker: None,
            });
        }
        Ok(Self {
            version: match &converted {
                Some(version) => Some(version.clone()),
                None => Version::find(object, at(key, false))?,
            },
            converted,
            marker: Version::find(object, at(key, true))?,
        })
    }

    /// The one that listings show.
    fn listed(&self) -> Option<&Version> {
        self.marker.as_ref().or(self.version.as_ref())
    }

    /// The version as it will be linked. ENOENT: it was not written.
    fn target(&self, given: &Given) -> Result<Version> {
        if !given.delete_marker {
            return self.version.clone().ok_or(Errno::ENOENT);
        }
        let entry = match self.listed() {
            Some(version) => version.entry.clone(),
            None => DirEntry::new(given.key.clone()),
        };
        Ok(Version {
            at: at(&given.key, true),
            entry: DirEntry {
                meta: given.meta.clone(),
                tag: Bytes::from_static(b"delete-marker"),
                pending: Vec::new(),
                ..entry
            },
        })
    }

    /// Writes an object of before there were versions as one of them, in the list unless it is the one that is worked on.
    fn convert(&self, object: &mut Object<'_>, head: &Head, key: &ObjKey) -> Result<()> {
        if head.found {
            return Ok(());
        }
        put_placeholder(object, &key.name)?;
        match &self.converted {
            Some(version) if key.instance.is_empty() => version.save_instance(object),
            Some(version) => version.save(object),
            None => Ok(()),
        }
    }
}

fn is_newer(version: &Version, given: &Given) -> bool {
    if given.unless_since.is_zero() {
        return false;
    }
    let of = |time: Utime| match given.precise {
        true => time,
        false => Utime { nsec: 0, ..time },
    };
    of(version.entry.meta.mtime) >= of(given.unless_since)
}

/// Gives the epoch of the version.
fn link_version(
    object: &mut Object<'_>,
    given: &Given,
    head: &mut Head,
    before: &Before,
    mut version: Version,
) -> Result<u64> {
    let epoch = head.epoch_of(given.epoch);
    before.convert(object, head, &given.key)?;
    let is_old = head.found && epoch < head.value.epoch;
    let wins = !head.found
        || !head.value.exists
        || epoch > head.value.epoch
        || epoch == head.value.epoch && given.key <= head.value.key;
    let promoted = !is_old && wins;
    let entry = &mut version.entry;
    entry.flags = (entry.flags & !(CURRENT | DELETE_MARKER)) | VERSIONED;
    if promoted {
        entry.flags |= CURRENT;
    }
    if given.delete_marker {
        entry.flags |= DELETE_MARKER;
    }
    let was_listed = before.listed().filter(|v| head.found && v.is_listed());
    entry.epoch = epoch;
    if let Some(old) = was_listed
        && old.entry.epoch != epoch
    {
        object.unset(&keys::listed(&old.entry))?;
    }
    if let Some(marker) = before.marker.as_ref().filter(|_| !given.delete_marker) {
        object.unset(&marker.at)?;
    }
    if promoted && head.found && head.value.exists && head.value.key != given.key {
        head.unmark(object)?;
    }
    version.save(object)?;
    if !is_old {
        head.value.epoch = epoch;
        head.value.tag = given.head_tag.clone();
        if promoted {
            head.stand_for(&given.key, given.delete_marker);
        }
        head.note(epoch, LINK, &given.op_tag, &given.key, given.delete_marker)?;
        let object_goes = |v: &Version| v.entry.exists && !v.entry.has(DELETE_MARKER);
        if given.delete_marker && before.version.as_ref().is_some_and(object_goes) {
            head.note(epoch, REMOVE_INSTANCE, &given.op_tag, &given.key, false)?;
        }
        head.save(object)?;
    }
    Ok(epoch)
}

fn log_entry(key: &ObjKey, op_tag: &Bytes, epoch: u64, flags: u16) -> LogEntry {
    LogEntry {
        name: key.name.clone(),
        instance: key.instance.clone(),
        ver: EntryVersion { pool: -1, epoch },
        tag: op_tag.clone(),
        state: COMPLETE,
        flags: flags | LOG_VERSIONED,
        ..LogEntry::default()
    }
}

/// Adds an entry to the index's log, if it is asked for and not stopped.
fn append(object: &mut Object<'_>, logged: bool, entry: LogEntry) -> Result<()> {
    if !logged {
        return Ok(());
    }
    let mut header: Header = load_header(object)?;
    if header.log_stopped {
        return Ok(());
    }
    let index_ver = header.ver;
    log::append(object, &mut header, LogEntry { index_ver, ..entry })?;
    save_header(object, &mut header)
}

pub fn unlink_instance(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let (key, op_tag, asked, logged, log_flags, head_tag, trace) = input.versioned(3, |version, r| {
        if version < 2 {
            return Err(r.invalid("unlink of before 16.2"));
        }
        let (key, op_tag, epoch) = (r.get::<ObjKey>()?, r.blob()?, r.u64()?);
        let (logged, log_flags, head_tag) = (r.bool()?, r.u16()?, r.blob()?);
        let trace = if version >= 3 { r.get()? } else { Trace::new() };
        Ok((key, op_tag, epoch, logged, log_flags, head_tag, trace))
    })?;
    let mut head = Head::load(object, &key.name)?;
    let before = Before::find(object, &head, &key)?;
    let Some(version) = before.listed().cloned() else {
        return done();
    };
    let epoch = head.epoch_of(asked);
    before.convert(object, &head, &key)?;
    let is_current = !head.found || head.value.exists && head.value.key == key;
    if !head.found {
        head.value.tag = head_tag;
    }
    head.value.epoch = head.value.epoch.max(epoch);
    if is_current {
        match next(object, &before, &version)? {
            Some(mut next) => {
                let is_marker = next.entry.has(DELETE_MARKER);
                head.stand_for(&next.entry.key, is_marker);
                head.note(epoch, LINK, &op_tag, &next.entry.key, is_marker)?;
                next.entry.flags |= CURRENT;
                next.save(object)?;
            }
            None => {
                let nothing = ObjKey {
                    name: key.name.clone(),
                    instance: Bytes::new(),
                };
                head.note(epoch, UNLINK, &op_tag, &nothing, false)?;
                head.stand_for(&nothing, false);
                head.value.exists = false;
                head.value.pending_removal = true;
            }
        }
    }
    match version.entry.has(DELETE_MARKER) {
        true => object.unset(&version.at)?,
        false => head.note(epoch, REMOVE_INSTANCE, &op_tag, &key, false)?,
    }
    if head.found && version.is_listed() {
        object.unset(&keys::listed(&version.entry))?;
    }
    head.save(object)?;
    let entry = LogEntry {
        mtime: version.entry.meta.mtime,
        op: LOGS_UNLINK,
        trace,
        ..log_entry(&key, &op_tag, epoch, log_flags)
    };
    append(object, logged, entry)?;
    done()
}

/// The version behind this one in the list, as its instance row has it: what was written of a version since it was linked is only
/// there.
fn next(object: &mut Object<'_>, before: &Before, version: &Version) -> Result<Option<Version>> {
    if let Some(converted) = &before.converted {
        return Ok((converted.at != version.at).then(|| converted.clone()));
    }
    let (prefix, mut listed) = (keys::list_prefix(&version.entry.key.name), None);
    object.scan(&prefix, &keys::listed(&version.entry), |_, value| {
        listed = Some(stored::<DirEntry>(value)?);
        Ok(Scan::Stop)
    })?;
    let Some(listed) = listed else {
        return Ok(None);
    };
    let at = at(&listed.key, listed.has(DELETE_MARKER));
    let entry = match Version::find(object, at.clone())? {
        // A completion forgets that it is a marker.
        Some(version) => DirEntry {
            epoch: listed.epoch,
            flags: version.entry.flags | listed.flags & DELETE_MARKER,
            ..version.entry
        },
        None => listed,
    };
    Ok(Some(Version { at, entry }))
}

struct ReadLog {
    log: HeadLog,
    truncated: bool,
}
envelope_denc!(ReadLog, 1, 1, { log, truncated });

fn key_epoch_tag(input: &mut Input) -> Result<(u64, KeyAndTag)> {
    input.envelope(|r| {
        let (key, epoch) = (r.get()?, r.u64()?);
        Ok((epoch, KeyAndTag { key, tag: r.blob()? }))
    })
}

/// Changes of epochs behind the given one.
pub fn read_log(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let (epoch, of) = key_epoch_tag(input)?;
    let mut log = Head::must_have(object, &of)?.value.log;
    let mut log = match epoch.checked_add(1) {
        Some(from) => log.split_off(&from),
        None => HeadLog::new(),
    };
    let truncated = log.len() > READ_MAX;
    if let Some(end) = log.keys().nth(READ_MAX).copied() {
        log.split_off(&end);
    }
    out(&ReadLog { log, truncated })
}

/// Forgets changes of epochs up to the given one.
pub fn trim_log(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let (epoch, of) = key_epoch_tag(input)?;
    let mut head = Head::must_have(object, &of)?;
    head.value.log.retain(|at, _| *at > epoch);
    head.save(object)?;
    done()
}

/// Removes the head, and the placeholder at the name.
pub fn clear(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let of = input.envelope(KeyAndTag::decode)?;
    let head = Head::must_have(object, &of)?;
    object.unset(&head.at)?;
    let plain: Option<DirEntry> = object.get(&of.key.name)?;
    if plain.is_some_and(|e| e.has(PLACEHOLDER)) {
        object.unset(&of.key.name)?;
    }
    done()
}
