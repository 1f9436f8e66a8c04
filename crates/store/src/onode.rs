//! An object's record: size, where its blocks are, attributes, and what it has of omap.
//!
//! Vocabulary: a *block* is 4 KiB; a *logical* block counts from the object's start, a *physical* one
//! from the data file's. An *extent* maps a run of logical blocks to a run of physical ones; what no
//! extent maps is a hole.
//!
//! Invariants: extents ascend, do not overlap, and none lies behind the block that holds the last byte;
//! bytes behind the object's end inside its last block are zeros on the disk. An extent without the
//! `shared` mark has no other owner; one with it may have. An extent of compressed data is a part of a *blob*
//! (`compress`): it names all of the blob's blocks, and is one reference to them. What attributes and the omap's header take of the record is
//! bounded ([`INLINE_BYTES_MAX`]), since each change of the object writes it anew and each look at the object reads it:
//! larger values are rows of their own ([`Value::Row`]).

use crate::codec::{Bad, Decoded, Input, put_bytes, put_u};
use crate::compress::Blob;
use crate::key;
use crate::own::detach;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

pub const BLOCK: u64 = 4096;
// What is on disks counts in these, and O_DIRECT writes them whole.
const _: () = assert!(BLOCK == 4096);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    pub at: u64,
    /// Of a blob, its first block, whichever part of it this is.
    pub phys: u64,
    pub len: u64,
    pub shared: bool,
    /// The blob that it is a part of; None: the blocks are what they hold.
    pub blob: Option<Blob>,
}
// Records of objects are kept in memory, and most have no blob: they take no more for it.
const _: () = assert!(size_of::<Extent>() == 32);

impl Extent {
    fn end(&self) -> u64 {
        self.at + self.len
    }

    /// The part within `[from, to)`, which must overlap.
    fn clip(&self, from: u64, to: u64) -> Self {
        let at = self.at.max(from);
        let skip = at - self.at;
        Self {
            at,
            phys: self.phys + if self.blob.is_some() { 0 } else { skip },
            len: self.end().min(to) - at,
            shared: self.shared,
            blob: self.blob.map(|b| b.behind(skip as u8)),
        }
    }

    /// The blocks of the file that it refers to.
    pub fn disk(&self) -> Range<u64> {
        let blocks = self.blob.map_or(self.len, |b| b.disk_blocks());
        self.phys..self.phys + blocks
    }
}

/// What lies at a logical block, and for how many blocks on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    Hole {
        len: u64,
    },
    Mapped {
        phys: u64,
        len: u64,
        shared: bool,
    },
    /// Part of a blob, which cannot be changed in place.
    Compressed {
        len: u64,
    },
}

/// Shared between the versions of a record: most writes go where the object's blocks are, and change none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Extents(Arc<Vec<Extent>>);

impl Extents {
    pub fn iter(&self) -> impl Iterator<Item = &Extent> {
        self.0.iter()
    }

    /// Blocks of the object that are not holes.
    pub fn blocks(&self) -> u64 {
        self.0.iter().map(|e| e.len).sum()
    }

    /// Those of them that are parts of blobs.
    pub fn compressed(&self) -> u64 {
        let parts = self.0.iter().filter(|e| e.blob.is_some());
        parts.map(|e| e.len).sum()
    }

    /// Blobs that they are parts of, each once, by their first blocks.
    pub fn blobs(&self) -> BTreeMap<u64, Blob> {
        let parts = self.0.iter().filter_map(|e| Some((e.phys, e.blob?)));
        parts.collect()
    }

    /// Blocks of the file that they refer to; those of a blob once, however many parts of it there are.
    pub fn disk_blocks(&self) -> u64 {
        let blobs: u64 = self.blobs().values().map(Blob::disk_blocks).sum();
        self.blocks() - self.compressed() + blobs
    }

    /// Panics unless they ascend without overlapping.
    pub fn check(&self) {
        for pair in self.0.windows(2) {
            assert!(
                pair[0].end() <= pair[1].at,
                "extents of an object ascend and do not overlap: {:?}, then {:?}",
                pair[0],
                pair[1]
            );
        }
    }

    /// Index of the first extent that ends behind `block`.
    fn position(&self, block: u64) -> usize {
        self.0.partition_point(|e| e.end() <= block)
    }

    /// The last extent that starts before `block`, and the first that starts at or behind it.
    pub fn neighbours(&self, block: u64) -> (Option<&Extent>, Option<&Extent>) {
        let i = self.0.partition_point(|e| e.at < block);
        (i.checked_sub(1).and_then(|j| self.0.get(j)), self.0.get(i))
    }

    pub fn find(&self, block: u64) -> Place {
        match self.0.get(self.position(block)) {
            Some(e) if e.at <= block && e.blob.is_some() => Place::Compressed { len: e.end() - block },
            Some(e) if e.at <= block => Place::Mapped {
                phys: e.phys + (block - e.at),
                len: e.end() - block,
                shared: e.shared,
            },
            Some(e) => Place::Hole { len: e.at - block },
            None => Place::Hole {
                len: u64::MAX - block,
            },
        }
    }

    /// The parts of extents within `[from, to)`.
    pub fn within(&self, from: u64, to: u64) -> impl Iterator<Item = Extent> + '_ {
        self.0[self.position(from)..]
            .iter()
            .take_while(move |e| e.at < to)
            .map(move |e| e.clip(from, to))
    }

    /// Makes `[from, to)` a hole.
    pub fn remove(&mut self, from: u64, to: u64, out: &mut Removed) {
        let first = self.position(from);
        let last = first + self.0[first..].partition_point(|e| e.at < to);
        if first == last {
            return;
        }
        let mut keep = Vec::new();
        for e in &self.0[first..last] {
            let (head, tail) = (e.at < from, e.end() > to);
            let split = head && tail && e.blob.is_some();
            if split {
                out.split.push(*e);
            } else if e.blob.is_none() || !(head || tail) {
                out.gone.push(e.clip(from, to));
            }
            let mut keep = |part: Extent| {
                keep.push(Extent {
                    shared: part.shared || split,
                    ..part
                });
            };
            if head {
                keep(e.clip(e.at, from));
            }
            if tail {
                keep(e.clip(to, e.end()));
            }
        }
        Arc::make_mut(&mut self.0).splice(first..last, keep);
    }

    /// Maps a run that must be a hole, merging it with neighbours that continue it.
    pub fn insert(&mut self, new: Extent) {
        let i = self.position(new.at);
        let next = self.0.get(i);
        assert!(
            new.len > 0 && next.is_none_or(|e| e.at >= new.end()),
            "a new extent fills a hole: {new:?} meets {next:?}"
        );
        // Parts of a blob stay apart: each is a reference to it.
        let joins = |a: &Extent, b: &Extent| {
            a.end() == b.at
                && a.phys + a.len == b.phys
                && a.shared == b.shared
                && a.blob.is_none()
                && b.blob.is_none()
        };
        let with_next = self.0.get(i).is_some_and(|e| joins(&new, e));
        let with_last = i > 0 && joins(&self.0[i - 1], &new);
        let all = Arc::make_mut(&mut self.0);
        match (with_last, with_next) {
            (true, true) => {
                all[i - 1].len += new.len + all[i].len;
                all.remove(i);
            }
            (true, false) => all[i - 1].len += new.len,
            (false, true) => {
                let e = &mut all[i];
                (e.at, e.phys, e.len) = (new.at, new.phys, e.len + new.len);
            }
            (false, false) => all.insert(i, new),
        }
    }

    /// Marks every extent overlapping `[from, to)` as shared.
    pub fn share(&mut self, from: u64, to: u64) {
        let first = self.position(from);
        let all = Arc::make_mut(&mut self.0);
        for e in all[first..].iter_mut().take_while(|e| e.at < to) {
            e.shared = true;
        }
    }
}

/// What a removal leaves to be done about blocks of the file.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// One reference to the blocks of each is gone. Of a blob of which something is left, none is.
    pub gone: Vec<Extent>,
    /// Parts of blobs that fell into two: one more reference.
    pub split: Vec<Extent>,
}

/// A value longer than this is a row of its own.
pub const INLINE_VALUE_MAX: usize = 4 << 10;
/// Values of one record together; what comes beyond goes to rows of its own.
pub const INLINE_BYTES_MAX: usize = 16 << 10;

/// An attribute's value, or the omap's header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    Inline(Bytes),
    /// In a row of the table `Omap` under the record's number for such rows; how long it is.
    Row(u64),
}

impl Default for Value {
    fn default() -> Self {
        Self::Inline(Bytes::new())
    }
}

impl Value {
    pub fn len(&self) -> u64 {
        match self {
            Self::Inline(v) => v.len() as u64,
            Self::Row(len) => *len,
        }
    }

    /// What it takes of the record.
    fn inline(&self) -> usize {
        match self {
            Self::Inline(v) => v.len(),
            Self::Row(_) => 0,
        }
    }

    pub fn is_row(&self) -> bool {
        matches!(self, Self::Row(_))
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Onode {
    /// Names the object's omap rows; unique in the store's life, kept over renames.
    pub nid: u64,
    pub size: u64,
    pub extents: Extents,
    /// By name.
    pub attrs: Vec<(Bytes, Value)>,
    pub omap_header: Value,
    /// Names the rows of values that are not in the record; drawn like `nid`, 0 as long as there was none.
    pub values: u64,
    pub omap_keys: u64,
    /// Keys and values together.
    pub omap_bytes: u64,
}

/// Versions of the record's encoding: the second has values in rows of their own, the third blobs, too. A record without such
/// is written as the first, which older builds read.
const ONODE_V1: u8 = 1;
const ONODE_V2: u8 = 2;
const ONODE_V3: u8 = 3;
/// How a value stands in a record of the second version.
const INLINE: u8 = 0;
const ROW: u8 = 1;

impl Onode {
    pub fn new(nid: u64) -> Self {
        Self {
            nid,
            ..Self::default()
        }
    }

    /// Size less holes.
    pub fn stored(&self) -> u64 {
        let whole = self.extents.blocks() * BLOCK;
        let tail = self.size % BLOCK;
        match self.extents.0.last() {
            Some(e) if tail != 0 && e.end() * BLOCK > self.size => whole - (BLOCK - tail),
            _ => whole,
        }
    }

    pub fn attr(&self, name: &[u8]) -> Option<&Value> {
        let i = self.attrs.binary_search_by(|(n, _)| n.as_ref().cmp(name)).ok()?;
        Some(&self.attrs[i].1)
    }

    /// Whether a value of this length may stand in the record in the place of `before`.
    pub fn takes(&self, len: usize, before: Option<&Value>) -> bool {
        len <= INLINE_VALUE_MAX && self.inline() - before.map_or(0, Value::inline) + len <= INLINE_BYTES_MAX
    }

    /// Whether a value of it is in a row of its own now.
    pub fn has_rows(&self) -> bool {
        self.omap_header.is_row() || self.attrs.iter().any(|(_, v)| v.is_row())
    }

    /// The keys of these rows.
    pub fn value_rows(&self) -> Vec<Bytes> {
        let rows = self.attrs.iter().filter(|(_, v)| v.is_row());
        let header = self
            .omap_header
            .is_row()
            .then(|| Bytes::from_static(key::HEADER_VALUE));
        rows.map(|(n, _)| key::attr_value(n)).chain(header).collect()
    }

    /// What values take of the record.
    fn inline(&self) -> usize {
        self.omap_header.inline() + self.attrs.iter().map(|(_, v)| v.inline()).sum::<usize>()
    }

    /// Holds what an older build put into the record, and this one would not.
    pub fn is_oversized(&self) -> bool {
        self.inline() > INLINE_BYTES_MAX
    }

    /// The name may be a slice of a message: it is copied where it is new.
    pub fn set_attr(&mut self, name: &Bytes, value: Value) {
        match self.attrs.binary_search_by(|(n, _)| n.cmp(name)) {
            Ok(i) => self.attrs[i].1 = value,
            Err(i) => self.attrs.insert(i, (detach(name), value)),
        }
    }

    pub fn remove_attr(&mut self, name: &[u8]) {
        self.attrs.retain(|(n, _)| n != name);
    }

    /// Rough memory, for bounds.
    pub fn weight(&self) -> usize {
        let attrs: usize = self.attrs.iter().map(|(n, v)| n.len() + v.inline() + 128).sum();
        192 + self.extents.0.len() * size_of::<Extent>() + attrs + self.omap_header.inline()
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.weight() / 2);
        let has_blobs = self.extents.iter().any(|e| e.blob.is_some());
        let has_rows = self.values != 0 || has_blobs;
        out.push(match (has_blobs, has_rows) {
            (true, _) => ONODE_V3,
            (_, true) => ONODE_V2,
            _ => ONODE_V1,
        });
        for v in [self.nid, self.size, self.omap_keys, self.omap_bytes] {
            put_u(&mut out, v);
        }
        if has_rows {
            put_u(&mut out, self.values);
        }
        let put_value = |out: &mut Vec<u8>, v: &Value| match v {
            Value::Inline(v) => {
                if has_rows {
                    out.push(INLINE);
                }
                put_bytes(out, v);
            }
            Value::Row(len) => {
                out.push(ROW);
                put_u(out, *len);
            }
        };
        put_value(&mut out, &self.omap_header);
        put_u(&mut out, self.attrs.len() as u64);
        for (n, v) in &self.attrs {
            put_bytes(&mut out, n);
            put_value(&mut out, v);
        }
        put_u(&mut out, self.extents.0.len() as u64);
        let mut end = 0;
        for e in self.extents.iter() {
            put_u(&mut out, e.at - end);
            let marks = e.len << 1 | u64::from(e.shared);
            match has_blobs {
                true => put_u(&mut out, marks << 1 | u64::from(e.blob.is_some())),
                false => put_u(&mut out, marks),
            }
            put_u(&mut out, e.phys);
            if let Some(blob) = e.blob {
                blob.put(&mut out);
            }
            end = e.end();
        }
        out
    }

    pub fn decode(row: Bytes) -> Decoded<Self> {
        let r = &mut Input::new(row);
        let (has_rows, has_blobs) = match r.u8()? {
            ONODE_V1 => (false, false),
            ONODE_V2 => (true, false),
            ONODE_V3 => (true, true),
            _ => return Err(Bad("object record of unknown version")),
        };
        let mut o = Self {
            nid: r.u()?,
            size: r.u()?,
            omap_keys: r.u()?,
            omap_bytes: r.u()?,
            values: if has_rows { r.u()? } else { 0 },
            ..Self::default()
        };
        let value = |r: &mut Input| match has_rows {
            false => Ok(Value::Inline(r.bytes()?)),
            true => match r.u8()? {
                INLINE => Ok(Value::Inline(r.bytes()?)),
                ROW => Ok(Value::Row(r.u()?)),
                _ => Err(Bad("value of unknown kind")),
            },
        };
        o.omap_header = value(r)?;
        for _ in 0..r.u()? {
            o.attrs.push((r.bytes()?, value(r)?));
        }
        let mut end = 0u64;
        let extents = Arc::make_mut(&mut o.extents.0);
        for _ in 0..r.u()? {
            let (gap, mut len, phys) = (r.u()?, r.u()?, r.u()?);
            let at = end.checked_add(gap).ok_or(Bad("extent"))?;
            let mut blob = None;
            if has_blobs {
                let marked = len & 1 == 1;
                len >>= 1;
                if marked {
                    blob = Some(Blob::get(r, len >> 1)?);
                }
            }
            let e = Extent {
                at,
                phys,
                len: len >> 1,
                shared: len & 1 == 1,
                blob,
            };
            end = at.checked_add(e.len).ok_or(Bad("extent"))?;
            extents.push(e);
        }
        Ok(o)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ext(at: u64, phys: u64, len: u64) -> Extent {
        Extent {
            at,
            phys,
            len,
            shared: false,
            blob: None,
        }
    }

    #[test]
    fn runs_that_continue_each_other_merge() {
        let mut x = Extents::default();
        x.insert(ext(0, 100, 2));
        x.insert(ext(4, 104, 1));
        x.insert(ext(2, 102, 2));
        assert_eq!(*x.0, vec![ext(0, 100, 5)]);
        x.insert(ext(5, 200, 1));
        assert_eq!(x.0.len(), 2);
    }

    #[test]
    fn removing_splits() {
        let mut x = Extents::default();
        x.insert(ext(0, 100, 10));
        let mut out = Removed::default();
        x.remove(3, 5, &mut out);
        assert_eq!((out.gone.as_slice(), out.split.len()), (&[ext(3, 103, 2)][..], 0));
        assert_eq!(*x.0, vec![ext(0, 100, 3), ext(5, 105, 5)]);
        assert_eq!(x.find(3), Place::Hole { len: 2 });
        assert_eq!(
            x.find(6),
            Place::Mapped {
                phys: 106,
                len: 4,
                shared: false
            }
        );
        assert_eq!(
            x.within(2, 6).collect::<Vec<_>>(),
            vec![ext(2, 102, 1), ext(5, 105, 1)]
        );
        x.remove(0, 100, &mut out);
        assert_eq!(x, Extents::default());
    }

    #[test]
    fn parts_of_a_blob_name_all_of_it() {
        let blob = Blob::new(crate::compress::Algorithm::Lz4, 16, 9000);
        let part = |at, len, skip, shared| Extent {
            shared,
            blob: Some(blob.behind(skip)),
            ..ext(at, 500, len)
        };
        let mut x = Extents::default();
        x.insert(part(32, 16, 0, false));
        assert_eq!(x.find(40), Place::Compressed { len: 8 });
        // An end of it goes: the blob stays.
        let mut out = Removed::default();
        x.remove(30, 34, &mut out);
        assert_eq!(out, Removed::default());
        assert_eq!(*x.0, vec![part(34, 14, 2, false)]);
        // The middle: two parts, each with a reference of its own.
        x.remove(36, 40, &mut out);
        assert_eq!((out.gone.len(), out.split.len()), (0, 1));
        assert_eq!(*x.0, vec![part(34, 2, 2, true), part(40, 8, 8, true)]);
        assert_eq!((x.blocks(), x.compressed(), x.disk_blocks()), (10, 10, 3));
        // What lies between them does not make them one.
        x.insert(ext(36, 900, 4));
        assert_eq!(x.0.len(), 3);
        let mut o = Onode::new(1);
        (o.size, o.extents) = (48 * BLOCK, x.clone());
        assert_eq!(o.encode()[0], ONODE_V3);
        assert_eq!(Onode::decode(o.encode().into()), Ok(o.clone()));
        o.set_attr(&Bytes::from("a"), Value::Inline(Bytes::from("1")));
        (o.values, o.omap_header) = (7, Value::Row(9));
        assert_eq!(Onode::decode(o.encode().into()), Ok(o.clone()));
        let raw = o.encode();
        for cut in 0..raw.len() {
            assert!(Onode::decode(raw[..cut].to_vec().into()).is_err(), "{cut}");
        }
        out = Removed::default();
        x.remove(0, u64::MAX, &mut out);
        assert_eq!((out.gone.len(), out.split.len()), (3, 0));
        assert_eq!(out.gone[0].disk(), 500..503);
    }

    /// Any bytes in the place of a record are refused or are a record; none makes it panic.
    #[test]
    fn any_bytes_in_the_place_of_a_record() {
        let mut dice = io::disk::sim::Dice::new(3);
        let mut o = Onode::new(1);
        o.size = 64 * BLOCK;
        let blob = Some(Blob::new(crate::compress::Algorithm::Zstd, 16, 9000));
        for (at, phys) in [(0, 100), (16, 200), (40, 300)] {
            o.extents.insert(Extent {
                blob,
                ..ext(at, phys, 16)
            });
        }
        let whole = o.encode();
        let mut refused = 0;
        for _ in 0..20_000 {
            let mut raw = whole.clone();
            for _ in 0..1 + dice.below(3) {
                let at = dice.below(raw.len() as u64) as usize;
                raw[at] = dice.below(256) as u8;
            }
            match Onode::decode(raw.into()) {
                Ok(o) => o.extents.iter().for_each(|e| {
                    let Some(b) = e.blob else { return };
                    assert!(u64::from(b.skip) + e.len <= u64::from(b.blocks));
                }),
                Err(_) => refused += 1,
            }
        }
        assert!(refused > 1000, "{refused}");
    }

    #[test]
    fn the_record_comes_back() {
        let mut o = Onode::new(7);
        o.size = 10_000;
        let inline = |v: &'static str| Value::Inline(Bytes::from(v));
        o.set_attr(&Bytes::from("b"), inline("2"));
        o.set_attr(&Bytes::from("a"), inline("1"));
        o.extents.insert(ext(0, 9, 1));
        o.extents.insert(Extent {
            shared: true,
            ..ext(2, 5, 1)
        });
        o.omap_header = inline("h");
        assert_eq!(o.encode()[0], ONODE_V1);
        assert_eq!(Onode::decode(o.encode().into()), Ok(o.clone()));
        let mut with_rows = o.clone();
        with_rows.values = 8;
        with_rows.set_attr(&Bytes::from("large"), Value::Row(1 << 20));
        assert_eq!(Onode::decode(with_rows.encode().into()), Ok(with_rows));
        assert_eq!(o.stored(), 4096 + 10_000 - 8192);
    }
}
