//! Buckets whose objects expire, and how far their processing is. An entry is a bucket, when its processing began, and a state;
//! a row has the bucket's name. The omap's header has when the last round began, and where it is.

use crate::context::Result;
use crate::input::Input;
use crate::object::{Object, Raw, Scan, done, list_max, out, stored};
use crate::opaque::Opaque;
use bytes::Bytes;
use denc::{Decode, Encode, Writer, envelope_denc};
use types::Errno;

const LISTED_MAX: usize = 1000;

struct Entry {
    bucket: Bytes,
    began: u64,
    state: u32,
}
envelope_denc!(Entry, 1, 1, { bucket, began, state });

/// An entry as outputs wrap it, with the version of the wrapping.
struct Wrapped<T>(u8, u8, T);

impl<T: Encode> Encode for Wrapped<T> {
    fn encode(&self, w: &mut Writer) {
        w.envelope(self.0, self.1, |w| w.put(&self.2));
    }
}

pub fn get_entry(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let bucket: Bytes = input.envelope(Bytes::decode)?;
    let entry: Entry = object.need(&bucket)?;
    out(&Wrapped(1, 1, entry))
}

fn given(input: &mut Input) -> Result<Entry> {
    input.versioned(2, |version, r| match version {
        // Bucket and state alone.
        1 => Err(r.invalid("entry of before 16.2")),
        _ => r.get(),
    })
}

pub fn set_entry(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let entry = given(input)?;
    object.set(&entry.bucket, &entry)?;
    done()
}

/// Removes the row; ENOENT where there is no object.
pub fn rm_entry(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let entry = given(input)?;
    object.must_exist()?;
    object.unset(&entry.bucket)?;
    done()
}

/// The first entry behind a name; an empty one if there is none.
pub fn get_next_entry(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let marker: Bytes = input.envelope(Bytes::decode)?;
    let mut next = Entry {
        bucket: Bytes::new(),
        began: 0,
        state: 0,
    };
    object.scan(b"", &marker, |_, value| {
        next = stored(value)?;
        Ok(Scan::Stop)
    })?;
    out(&Wrapped(2, 2, next))
}

struct Listed {
    entries: Vec<Entry>,
    truncated: bool,
}

impl Encode for Listed {
    fn encode(&self, w: &mut Writer) {
        w.envelope(3, 1, |w| {
            w.put(&self.entries);
            w.bool(self.truncated);
        });
    }
}

pub fn list_entries(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let (marker, max) = input.versioned(3, |_, r| Ok((r.blob()?, r.u32()?)))?;
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

struct Head {
    began: u64,
    marker: Bytes,
}
envelope_denc!(Head, 1, 1, { began, marker });

pub fn put_head(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let head: Opaque = input.envelope(Opaque::decode)?;
    Head::from_bytes(&head.0).map_err(|_| Errno::EINVAL)?;
    object.set_omap_header(&head)?;
    done()
}

pub fn get_head(object: &mut Object<'_>, _: &mut Input) -> Result<Bytes> {
    let head = match object.omap_header::<Raw>()? {
        Some(Raw(head)) => stored::<Opaque>(&head)?,
        None => Opaque(
            Head {
                began: 0,
                marker: Bytes::new(),
            }
            .to_bytes(),
        ),
    };
    out(&Wrapped(1, 1, head))
}
