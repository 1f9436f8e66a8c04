//! What radosgw has to remove later, as it was kept before there was the class `rgw_gc`: a row for each tag, and one for the
//! time of each.

use crate::context::Result;
use crate::input::Input;
use crate::object::{Object, Scan, done, key, list_max, out, stored};
use crate::opaque::Opaque;
use crate::rgw_gc::{Entry, Listed};
use bytes::Bytes;
use denc::{Decode, Encode};
use types::{Errno, Utime};

const BY_TAG: &[u8] = b"0_";
const BY_TIME: &[u8] = b"1_";
const LISTED_MAX: usize = 1000;

fn time_key(time: Utime) -> Bytes {
    let text = format!("{:011}.{:09}", time.sec, time.nsec);
    key(BY_TIME, text.as_bytes())
}

fn set(object: &mut Object<'_>, tag: Bytes, chain: Opaque, after_s: u32) -> Result<()> {
    let now = object.now();
    let time = Utime {
        sec: now.sec.saturating_add(after_s),
        ..now
    };
    // Of an entry that this message has set already the row by its time must go, too.
    if let Some(old) = object.latest::<Entry>(&key(BY_TAG, &tag))? {
        let at = time_key(old.time);
        if at != time_key(time) {
            object.unset(&at)?;
        }
    }
    let entry = Entry { tag, chain, time };
    let value = entry.to_bytes();
    object.set_rows(vec![
        (key(BY_TAG, &entry.tag), value.clone()),
        (time_key(time), value),
    ])
}

pub fn set_entry(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let (after_s, entry) = input.envelope(<(u32, Entry)>::decode)?;
    set(object, entry.tag, entry.chain, after_s)?;
    done()
}

/// ENOENT: there is no such tag.
pub fn defer_entry(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let (after_s, tag) = input.envelope(<(u32, Bytes)>::decode)?;
    let entry = object.latest::<Entry>(&key(BY_TAG, &tag))?;
    let entry = entry.ok_or(Errno::ENOENT)?;
    if entry.tag != tag {
        return Err(Errno::EIO);
    }
    set(object, entry.tag, entry.chain, after_s)?;
    done()
}

/// By time, from behind a marker.
pub fn list(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let (marker, max, due_only) = input.versioned(2, |version, r| {
        let (marker, max) = (r.blob()?, r.u32()?);
        Ok((marker, max, if version >= 2 { r.bool()? } else { true }))
    })?;
    let max = list_max(max.into()).min(LISTED_MAX);
    let end = time_key(object.now());
    let mut listed = Listed {
        entries: Vec::new(),
        next_marker: Bytes::new(),
        truncated: false,
    };
    let mut last = Bytes::new();
    object.scan(BY_TIME, &marker, |rest, value| {
        let at = key(BY_TIME, rest);
        if due_only && at > end {
            return Ok(Scan::Stop);
        }
        if listed.entries.len() == max {
            listed.truncated = true;
            return Ok(Scan::Stop);
        }
        listed.entries.push(stored::<Entry>(value)?.to_bytes());
        last = at;
        Ok(Scan::Next)
    })?;
    if listed.truncated {
        listed.next_marker = last;
    }
    out(&listed)
}

/// Unknown tags are passed over.
pub fn remove(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let tags: Vec<Bytes> = input.envelope(Vec::decode)?;
    let mut gone = Vec::new();
    for tag in tags {
        let at = key(BY_TAG, &tag);
        if let Some(entry) = object.latest::<Entry>(&at)? {
            gone.extend([at, time_key(entry.time)]);
        }
    }
    object.unset_keys(gone)?;
    done()
}
