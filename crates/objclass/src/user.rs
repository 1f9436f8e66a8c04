//! Class `user`: the buckets of a user of radosgw, and their sums (docs/protocol/classes.md, "user").
//!
//! A row is a bucket's name and its entry; the omap's header has the sums over those entries that are *counted*, and when they
//! were last brought up to date.

use crate::context::Result;
use crate::input::Input;
use crate::method::Method;
use crate::object::{Object, Scan, done, list_max, out, stored};
use bytes::Bytes;
use denc::{Decode, Encode, Reader, Writer, envelope_denc};
use types::Utime;

pub const METHODS: &[Method] = &[
    Method::rw("set_buckets_info", set_buckets_info),
    Method::rw("complete_stats_sync", complete_stats_sync),
    Method::rw("remove_bucket", remove_bucket),
    Method::r("list_buckets", list_buckets),
    Method::r("get_header", get_header),
    Method::rw("reset_user_stats", reset_user_stats),
    Method::rw("reset_user_stats2", reset_user_stats2),
];

/// Buckets that one call lists, or adds up.
const LISTED_MAX: usize = 1000;

#[derive(Debug, Clone)]
struct Entry {
    size: u64,
    /// Seconds of the creation, of older writers.
    created_s: u32,
    count: u64,
    bucket: Bucket,
    size_rounded: u64,
    counted: bool,
    created: Utime,
}

/// Of which name and id alone are looked at.
#[derive(Debug, Clone)]
struct Bucket {
    name: Bytes,
    marker: (Bytes, Bytes),
    id: Bytes,
    more: (Bytes, Bytes),
}
envelope_denc!(Bucket, 7, 3, { name, marker, id, more });

impl Encode for Entry {
    fn encode(&self, w: &mut Writer) {
        w.envelope(9, 5, |w| {
            w.u32(0);
            w.u64(self.size);
            w.u32(self.created.sec);
            w.u64(self.count);
            w.put(&self.bucket);
            w.u64(self.size_rounded);
            w.bool(self.counted);
            w.put(&self.created);
        });
    }
}

impl Decode for Entry {
    const MIN_SIZE: usize = 45;
    fn decode(r: &mut Reader) -> denc::Result<Self> {
        r.envelope(9, |version, r| {
            if version < 7 {
                return Err(r.invalid("entry of a bucket from before 16.2"));
            }
            r.blob()?;
            let mut entry = Self {
                size: r.u64()?,
                created_s: r.u32()?,
                count: r.u64()?,
                bucket: r.get()?,
                size_rounded: r.u64()?,
                counted: r.bool()?,
                created: Utime::ZERO,
            };
            entry.created = match version {
                7 => Utime {
                    sec: entry.created_s,
                    nsec: 0,
                },
                _ => r.get()?,
            };
            Ok(entry)
        })
    }
}

impl Entry {
    fn stats(&self) -> Stats {
        Stats {
            count: self.count,
            size: self.size,
            size_rounded: self.size_rounded,
        }
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Stats {
    count: u64,
    size: u64,
    size_rounded: u64,
}
envelope_denc!(Stats, 1, 1, { count, size, size_rounded });

impl Stats {
    fn add(&mut self, other: Stats) {
        self.count = self.count.wrapping_add(other.count);
        self.size = self.size.wrapping_add(other.size);
        self.size_rounded = self.size_rounded.wrapping_add(other.size_rounded);
    }

    fn subtract(&mut self, other: Stats) {
        self.count = self.count.wrapping_sub(other.count);
        self.size = self.size.wrapping_sub(other.size);
        self.size_rounded = self.size_rounded.wrapping_sub(other.size_rounded);
    }
}

#[derive(Debug, Default)]
struct Header {
    stats: Stats,
    synced: Utime,
    updated: Utime,
}
envelope_denc!(Header, 1, 1, { stats, synced, updated });

struct Wrapped {
    header: Header,
}
envelope_denc!(Wrapped, 1, 1, { header });

fn load_header(object: &mut Object<'_>) -> Result<Header> {
    Ok(object.omap_header()?.unwrap_or_default())
}

fn set_buckets_info(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let (entries, add, time) = input.envelope(|r| Ok((r.get::<Vec<Entry>>()?, r.bool()?, r.get()?)))?;
    let mut header = load_header(object)?;
    let mut rows = std::collections::BTreeMap::new();
    for given in entries {
        let key = given.bucket.name.clone();
        let old: Option<Entry> = match rows.get(&key) {
            Some(value) => Some(stored(value)?),
            None => object.get(&key)?,
        };
        let mut new = given.clone();
        match old {
            Some(old) => {
                if old.counted {
                    header.stats.subtract(old.stats());
                }
                if add {
                    (new.size, new.count, new.size_rounded) = (old.size, old.count, old.size_rounded);
                } else {
                    new.created = old.created;
                }
                new.bucket = Bucket {
                    id: if add { new.bucket.id } else { old.bucket.id },
                    ..old.bucket
                };
            }
            None if !add => continue,
            None => {}
        }
        new.counted = true;
        header.stats.add(new.stats());
        rows.insert(key, new.to_bytes());
    }
    if !rows.is_empty() {
        object.set_rows(rows.into_iter().collect())?;
    }
    header.updated = header.updated.max(time);
    object.set_omap_header(&header)?;
    done()
}

fn complete_stats_sync(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let time: Utime = input.envelope(Utime::decode)?;
    let mut header = load_header(object)?;
    header.synced = header.synced.max(time);
    object.set_omap_header(&header)?;
    done()
}

fn remove_bucket(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let key: Bytes = input.envelope(|r| r.envelope(7, |_, r| r.blob()))?;
    let mut header = load_header(object)?;
    let Some(entry) = object.get::<Entry>(&key)? else {
        return done();
    };
    if entry.counted {
        header.stats.subtract(entry.stats());
    }
    object.unset(&key)?;
    object.set_omap_header(&header)?;
    done()
}

struct Listed {
    entries: Vec<Entry>,
    marker: Bytes,
    truncated: bool,
}
envelope_denc!(Listed, 1, 1, { entries, marker, truncated });

/// Entries behind `marker` and in front of `end`, and whether there are more.
fn page(object: &mut Object<'_>, marker: &[u8], end: &[u8], max: usize) -> Result<Listed> {
    let mut listed = Listed {
        entries: Vec::new(),
        marker: Bytes::new(),
        truncated: false,
    };
    let mut last = Bytes::new();
    object.scan(b"", marker, |key, value| {
        if !end.is_empty() && key[..] >= *end {
            return Ok(Scan::Stop);
        }
        if listed.entries.len() == max {
            listed.truncated = true;
            return Ok(Scan::Stop);
        }
        listed.entries.push(stored(value)?);
        last = key.clone();
        Ok(Scan::Next)
    })?;
    if listed.truncated {
        listed.marker = last;
    }
    Ok(listed)
}

fn list_buckets(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let (marker, max, end) = input.versioned(2, |version, r| {
        let (marker, max) = (r.blob()?, r.i32()?);
        let end = if version >= 2 { r.blob()? } else { Bytes::new() };
        Ok((marker, max, end))
    })?;
    let max = list_max(u64::try_from(max).unwrap_or(0)).min(LISTED_MAX);
    out(&page(object, &marker, &end, max)?)
}

fn get_header(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    input.envelope(|_| Ok(()))?;
    let header = load_header(object)?;
    out(&Wrapped { header })
}

/// Sums over all entries.
fn reset_user_stats(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let updated: Utime = input.envelope(Utime::decode)?;
    let mut stats = Stats::default();
    object.scan(b"", b"", |_, value| {
        stats.add(stored::<Entry>(value)?.stats());
        Ok(Scan::Next)
    })?;
    object.set_omap_header(&Header {
        stats,
        synced: Utime::ZERO,
        updated,
    })?;
    done()
}

struct Added {
    marker: Bytes,
    stats: Stats,
    truncated: bool,
}
envelope_denc!(Added, 1, 1, { marker, stats, truncated });

/// As above in steps, each of which takes what the last one gave.
fn reset_user_stats2(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let (updated, marker, mut stats) = input.envelope(|r| Ok((r.get()?, r.blob()?, r.get::<Stats>()?)))?;
    let listed = page(object, &marker, b"", LISTED_MAX)?;
    for entry in &listed.entries {
        stats.add(entry.stats());
    }
    if !listed.truncated {
        object.set_omap_header(&Header {
            stats,
            synced: Utime::ZERO,
            updated,
        })?;
    }
    let last = listed.entries.last().map(|e| e.bucket.name.clone());
    out(&Added {
        marker: last.unwrap_or_default(),
        stats,
        truncated: listed.truncated,
    })
}
