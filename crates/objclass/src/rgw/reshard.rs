//! Buckets whose index is to have another number of shards: the list of them, and the mark in an index that is being moved.

use super::header::{load_header, save_header};
use super::types::Resharding;
use crate::context::Result;
use crate::input::Input;
use crate::object::{Object, Scan, done, list_max, out, stored};
use bytes::Bytes;
use denc::{Decode, envelope_denc};
use types::{Errno, Utime};

const LISTED_MAX: usize = 1000;
/// State of an index that is not being moved.
const NOT: u8 = 0;
/// Numbers that are errors (radosgw's own are of 2000 and more).
const ERRNO_MAX: i32 = 4096;

struct Entry {
    time: Utime,
    tenant: Bytes,
    bucket: Bytes,
    bucket_id: Bytes,
    new_instance: Bytes,
    shards: u32,
    new_shards: u32,
}
envelope_denc!(Entry, 1, 1, { time, tenant, bucket, bucket_id, new_instance, shards, new_shards });

struct Wrapped {
    entry: Entry,
}
envelope_denc!(Wrapped, 1, 1, { entry });

fn row(tenant: &[u8], bucket: &[u8]) -> Bytes {
    [tenant, b":", bucket].concat().into()
}

pub fn add(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let entry: Entry = input.envelope(Entry::decode)?;
    object.set(&row(&entry.tenant, &entry.bucket), &entry)?;
    done()
}

pub fn get(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let asked: Entry = input.envelope(Entry::decode)?;
    let entry = object.need(&row(&asked.tenant, &asked.bucket))?;
    out(&Wrapped { entry })
}

struct Listed {
    entries: Vec<Entry>,
    truncated: bool,
}
envelope_denc!(Listed, 1, 1, { entries, truncated });

pub fn list(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let (max, marker) = input.envelope(<(u32, Bytes)>::decode)?;
    let max = list_max(max.into()).min(LISTED_MAX);
    let mut listed = Listed {
        entries: Vec::new(),
        truncated: false,
    };
    object.scan(b"", &marker, |_, value| {
        if listed.entries.len() == max {
            listed.truncated = true;
            return Ok(Scan::Stop);
        }
        listed.entries.push(stored(value)?);
        Ok(Scan::Next)
    })?;
    out(&listed)
}

/// ENOENT: it is not in the list. One of another id stays.
pub fn remove(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let (tenant, bucket, id) = input.envelope(|r| Ok((r.blob()?, r.blob()?, r.blob()?)))?;
    let at = row(&tenant, &bucket);
    let entry: Entry = object.need(&at)?;
    if id.is_empty() || entry.bucket_id == id {
        object.unset(&at)?;
    }
    done()
}

pub fn set_bucket(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let entry: Resharding = input.envelope(Resharding::decode)?;
    let mut header = load_header(object)?;
    header.resharding = entry;
    save_header(object, &mut header)?;
    done()
}

pub fn clear_bucket(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    input.envelope(|_| Ok(()))?;
    let mut header = load_header(object)?;
    header.resharding = Resharding {
        shards: header.resharding.shards,
        ..Resharding::default()
    };
    save_header(object, &mut header)?;
    done()
}

/// The caller's own error, if the index is being moved.
pub fn guard_bucket(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let code = input.envelope(i32::decode)?;
    if load_header(object)?.resharding.state != NOT {
        let code = code.checked_neg().filter(|c| (1..ERRNO_MAX).contains(c));
        return Err(code.map_or(Errno::EINVAL, Errno));
    }
    done()
}

struct State {
    entry: Resharding,
}
envelope_denc!(State, 1, 1, { entry });

pub fn get_bucket(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    input.envelope(|_| Ok(()))?;
    let entry = load_header(object)?.resharding;
    out(&State { entry })
}
