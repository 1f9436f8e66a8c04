//! Class `log`: entries in the order of their times, which another zone reads and then trims away
//! (docs/protocol/classes.md).
//!
//! Entries are omap rows (see [`crate::timed`]), whose key is the entry's *id* unless the client gives one. The omap's
//! header has the largest key and time. A log that is *monotonic* sorts an entry that is older than that under the
//! largest time, so that who reads behind a marker misses none.

use crate::context::Result;
use crate::input::Input;
use crate::method::Method;
use crate::object::{Object, done, out};
use crate::timed::{self, Listing, Marker, PREFIX, ROWS_MAX, Range, key_of};
use bytes::Bytes;
use denc::{Decode, Encode, Reader, Writer, envelope_denc};
use types::Utime;

pub const METHODS: &[Method] = &[
    Method::rw("add", add),
    Method::r("list", list),
    Method::rw("trim", trim),
    Method::r("info", info),
];

struct Entry {
    section: Bytes,
    name: Bytes,
    time: Utime,
    data: Bytes,
    id: Bytes,
}

impl Encode for Entry {
    fn encode(&self, w: &mut Writer) {
        w.envelope(2, 1, |w| {
            w.put(&self.section);
            w.put(&self.name);
            w.put(&self.time);
            w.put(&self.data);
            w.put(&self.id);
        });
    }
}

impl Decode for Entry {
    const MIN_SIZE: usize = 6 + 3 * 4 + 8;
    fn decode(r: &mut Reader) -> denc::Result<Self> {
        r.envelope(2, |version, r| {
            Ok(Self {
                section: r.get()?,
                name: r.get()?,
                time: r.get()?,
                data: r.get()?,
                id: if version >= 2 { r.get()? } else { Bytes::new() },
            })
        })
    }
}

#[derive(Default)]
struct Header {
    max_marker: Bytes,
    max_time: Utime,
}
envelope_denc!(Header, 1, 1, { max_marker, max_time });

/// What `info` gives.
struct Info {
    header: Header,
}
envelope_denc!(Info, 1, 1, { header });

struct Listed {
    entries: Vec<Entry>,
    marker: Bytes,
    truncated: bool,
}
envelope_denc!(Listed, 1, 1, { entries, marker, truncated });

fn add(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let (entries, monotonic): (Vec<Entry>, bool) = input.versioned(2, |version, r| {
        Ok((r.get()?, if version >= 2 { r.get()? } else { true }))
    })?;
    let mut header: Header = object.omap_header()?.unwrap_or_default();
    let mut rows = Vec::with_capacity(entries.len());
    for mut entry in entries {
        let time = match monotonic {
            true => entry.time.max(header.max_time),
            false => entry.time,
        };
        header.max_time = header.max_time.max(time);
        if entry.id.is_empty() {
            let (version, number) = object.serial();
            entry.id = format!("{}{version}.{number}", key_of(time)).into();
        }
        if entry.id > header.max_marker {
            header.max_marker = entry.id.clone();
        }
        rows.push((entry.id.clone(), entry.to_bytes()));
    }
    object.set_rows(rows)?;
    object.set_omap_header(&header)?;
    done()
}

fn list(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let listing = input.envelope(Listing::decode)?;
    let max = usize::try_from(listing.max).unwrap_or(0);
    let max = if max == 0 { ROWS_MAX } else { max.min(ROWS_MAX) };
    // A listing from the beginning of time goes to the end of it.
    let end = listing.end().filter(|_| !listing.from.is_zero());
    let page = object.page(PREFIX, &listing.start(), max)?;
    let mut listed = Listed {
        entries: Vec::new(),
        marker: Bytes::new(),
        truncated: page.more,
    };
    for (key, value) in page.rows {
        listed.marker = key;
        if end.as_ref().is_some_and(|end| listed.marker >= end.as_bytes()) {
            listed.truncated = false;
            break;
        }
        // What is no entry is passed over.
        listed.entries.extend(Entry::from_bytes(&value));
    }
    out(&listed)
}

fn trim(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let range = input.versioned(2, |version, r| match version {
        1 => Range::decode_times(r),
        _ => Range::decode(r),
    })?;
    timed::trim(object, &range, Marker::Exact)?;
    done()
}

fn info(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    input.envelope(|_| Ok(()))?;
    let header = object.omap_header()?.unwrap_or_default();
    out(&Info { header })
}
