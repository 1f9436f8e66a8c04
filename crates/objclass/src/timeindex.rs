//! Class `timeindex`: values in the order of times, for what is to be done at a time (docs/protocol/classes.md).
//! Rows as in [`crate::timed`]; what tells those of one time apart comes from the client.

use crate::context::Result;
use crate::input::Input;
use crate::method::Method;
use crate::object::{Object, done, out};
use crate::timed::{self, Listing, Marker, PREFIX, ROWS_MAX, Range, key_of};
use bytes::Bytes;
use denc::envelope_denc;
use types::Utime;

pub const METHODS: &[Method] = &[
    Method::rw("add", add),
    Method::r("list", list),
    Method::rw("trim", trim),
];

struct Entry {
    time: Utime,
    ext: Bytes,
    value: Bytes,
}
envelope_denc!(Entry, 1, 1, { time, ext, value });

struct Listed {
    entries: Vec<Entry>,
    marker: Bytes,
    truncated: bool,
}
envelope_denc!(Listed, 1, 1, { entries, marker, truncated });

fn add(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let entries: Vec<Entry> = input.envelope(|r| r.get())?;
    let row = |e: Entry| ([key_of(e.time).as_bytes(), &e.ext].concat().into(), e.value);
    if !entries.is_empty() {
        object.set_rows(entries.into_iter().map(row).collect())?;
    }
    done()
}

/// Time and extension of a key that `add` has made. The microseconds of the key stand where a time has its nanoseconds:
/// clients of 16.2 know them so.
fn parse(key: &Bytes) -> Option<(Utime, Bytes)> {
    let text = &key[PREFIX.len()..];
    let dot = text.iter().position(|b| *b == b'.')?;
    let bar = dot + text[dot..].iter().position(|b| *b == b'_')?;
    let number = |digits: &[u8]| std::str::from_utf8(digits).ok()?.parse::<u32>().ok();
    let (sec, nsec) = (number(&text[..dot])?, number(&text[dot + 1..bar])?);
    Some((Utime { sec, nsec }, key.slice(PREFIX.len() + bar + 1..)))
}

fn list(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let listing = input.envelope(Listing::decode)?;
    let max = usize::try_from(listing.max).unwrap_or(ROWS_MAX).min(ROWS_MAX);
    let end = listing.end();
    let page = object.page(PREFIX, &listing.start(), max)?;
    let mut listed = Listed {
        entries: Vec::new(),
        marker: Bytes::new(),
        truncated: page.more,
    };
    for (key, value) in page.rows {
        if end.as_ref().is_some_and(|end| key >= end.as_bytes()) {
            listed.truncated = false;
            break;
        }
        // What is no entry is passed over.
        if let Some((time, ext)) = parse(&key) {
            listed.entries.push(Entry { time, ext, value });
        }
        listed.marker = key;
    }
    out(&listed)
}

fn trim(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let range = input.envelope(Range::decode)?;
    timed::trim(object, &range, Marker::Prefix)?;
    done()
}
