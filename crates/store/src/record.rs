//! A log record: one transaction as *steps*, each already resolved to what it does to the store, so that
//! replaying it takes no decision again (above all: no allocation).
//!
//! Layout: the collection, then steps to the record's end. A step is a tag byte and its fields; integers
//! are LEB128, byte strings length-prefixed (see `codec`). Steps on objects apply to the *current* object,
//! which the step `Object` names.
//!
//! Data steps speak of whole 4 KiB blocks: `Inline` carries their full new content (trailing zeros left
//! out), never a part of a block. So a block that a power cut tears while a checkpoint writes it back in
//! place is always rebuilt from the log without reading what is on the disk. `Direct` carries only the
//! checksums of blocks that were written to fresh extents under the same flush; `Blob` those of the blocks that a run of
//! the object's blocks is compressed in.

use crate::codec::{Bad, Decoded, Input, put_bytes, put_collection, put_oid, put_u, put_version};
use crate::compress::Blob;
use crate::onode::BLOCK;
use bytes::Bytes;
use types::{EVersion, ObjectId, SPgId};

/// A run of blocks: logical, physical, count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    pub at: u64,
    pub phys: u64,
    pub len: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Makes the object current, creating it if it is missing.
    Object(ObjectId),
    Size(u64),
    Inline(Run, Bytes),
    Direct(Run, Vec<u32>),
    /// The run's blocks, all of them in one blob; checksums of the blob's blocks.
    Blob(Run, Blob, Vec<u32>),
    /// Makes `[from, to)` a hole, in blocks.
    Unmap(u64, u64),
    /// Removes the current object.
    Remove,
    SetAttr(Bytes, Bytes),
    RemoveAttr(Bytes),
    RemoveAttrs,
    OmapSet(Bytes, Bytes),
    OmapRemove(Bytes),
    OmapRemoveRange(Bytes, Bytes),
    OmapClear,
    OmapHeader(Bytes),
    /// The current object becomes a copy of that one; it was removed before if it existed.
    CloneFrom(ObjectId),
    /// Shares `len` blocks of that object from `from`, at the current object's block `to` on (a hole).
    Share {
        src: ObjectId,
        from: u64,
        to: u64,
        len: u64,
    },
    /// The current object gets this name.
    Rename(ObjectId),
    CreateCollection,
    RemoveCollection,
    SetMeta(Bytes),
    LogAppend(EVersion, Bytes),
    LogTrim(EVersion),
}

/// The most blocks one step may speak of: what the largest transaction could hold.
const RUN_BLOCKS_MAX: u64 = 1 << 40;

mod tag {
    pub const OBJECT: u8 = 1;
    pub const SIZE: u8 = 2;
    pub const INLINE: u8 = 3;
    pub const DIRECT: u8 = 4;
    pub const UNMAP: u8 = 5;
    pub const REMOVE: u8 = 6;
    pub const SET_ATTR: u8 = 7;
    pub const REMOVE_ATTR: u8 = 8;
    pub const REMOVE_ATTRS: u8 = 9;
    pub const OMAP_SET: u8 = 10;
    pub const OMAP_REMOVE: u8 = 11;
    pub const OMAP_REMOVE_RANGE: u8 = 12;
    pub const OMAP_CLEAR: u8 = 13;
    pub const OMAP_HEADER: u8 = 14;
    pub const CLONE_FROM: u8 = 15;
    pub const SHARE: u8 = 16;
    pub const RENAME: u8 = 17;
    pub const CREATE_COLLECTION: u8 = 18;
    pub const REMOVE_COLLECTION: u8 = 19;
    pub const SET_META: u8 = 20;
    pub const LOG_APPEND: u8 = 21;
    pub const LOG_TRIM: u8 = 22;
    pub const BLOB: u8 = 23;
}

pub fn start(out: &mut Vec<u8>, collection: &SPgId) {
    out.clear();
    put_collection(out, collection);
}

fn put_run(out: &mut Vec<u8>, r: Run) {
    put_u(out, r.at);
    put_u(out, r.phys);
    put_u(out, r.len);
}

/// The hot data step, encoded without a copy of its own; `data` is `run.len` whole blocks.
pub fn put_inline(out: &mut Vec<u8>, run: Run, data: &[u8]) {
    out.push(tag::INLINE);
    put_run(out, run);
    // Zeros are cut off by eights: objects' tails are mostly zeros, and the search must be cheap.
    let zeros = data.rchunks_exact(8).take_while(|c| **c == [0; 8]).count() * 8;
    put_bytes(out, &data[..data.len() - zeros]);
}

pub fn put_direct(out: &mut Vec<u8>, run: Run, crcs: &[u32]) {
    out.push(tag::DIRECT);
    put_run(out, run);
    put_crcs(out, crcs);
}

pub fn put_blob(out: &mut Vec<u8>, run: Run, blob: Blob, crcs: &[u32]) {
    out.push(tag::BLOB);
    put_run(out, run);
    blob.put(out);
    put_crcs(out, crcs);
}

fn put_crcs(out: &mut Vec<u8>, crcs: &[u32]) {
    for c in crcs {
        out.extend_from_slice(&c.to_le_bytes());
    }
}

pub fn put_attr(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    put_two(out, tag::SET_ATTR, name, value);
}

pub fn put_omap(out: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    put_two(out, tag::OMAP_SET, key, value);
}

pub fn put_log(out: &mut Vec<u8>, version: EVersion, entry: &[u8]) {
    out.push(tag::LOG_APPEND);
    put_version(out, version);
    put_bytes(out, entry);
}

pub fn put_object(out: &mut Vec<u8>, oid: &ObjectId) {
    out.push(tag::OBJECT);
    put_oid(out, oid);
}

fn put_one(out: &mut Vec<u8>, tag: u8, b: &[u8]) {
    out.push(tag);
    put_bytes(out, b);
}

fn put_two(out: &mut Vec<u8>, tag: u8, a: &[u8], b: &[u8]) {
    put_one(out, tag, a);
    put_bytes(out, b);
}

impl Step {
    pub fn put(&self, out: &mut Vec<u8>) {
        match self {
            Step::Object(oid) => put_object(out, oid),
            Step::Size(n) => {
                out.push(tag::SIZE);
                put_u(out, *n);
            }
            Step::Inline(run, data) => put_inline(out, *run, data),
            Step::Direct(run, crcs) => put_direct(out, *run, crcs),
            Step::Blob(run, blob, crcs) => put_blob(out, *run, *blob, crcs),
            Step::Unmap(from, to) => {
                out.push(tag::UNMAP);
                put_u(out, *from);
                put_u(out, *to);
            }
            Step::Remove => out.push(tag::REMOVE),
            Step::SetAttr(n, v) => put_attr(out, n, v),
            Step::RemoveAttr(n) => put_one(out, tag::REMOVE_ATTR, n),
            Step::RemoveAttrs => out.push(tag::REMOVE_ATTRS),
            Step::OmapSet(k, v) => put_omap(out, k, v),
            Step::OmapRemove(k) => put_one(out, tag::OMAP_REMOVE, k),
            Step::OmapRemoveRange(a, b) => put_two(out, tag::OMAP_REMOVE_RANGE, a, b),
            Step::OmapClear => out.push(tag::OMAP_CLEAR),
            Step::OmapHeader(h) => put_one(out, tag::OMAP_HEADER, h),
            Step::CloneFrom(oid) => {
                out.push(tag::CLONE_FROM);
                put_oid(out, oid);
            }
            Step::Share { src, from, to, len } => {
                out.push(tag::SHARE);
                put_oid(out, src);
                [from, to, len].iter().for_each(|v| put_u(out, **v));
            }
            Step::Rename(oid) => {
                out.push(tag::RENAME);
                put_oid(out, oid);
            }
            Step::CreateCollection => out.push(tag::CREATE_COLLECTION),
            Step::RemoveCollection => out.push(tag::REMOVE_COLLECTION),
            Step::SetMeta(m) => put_one(out, tag::SET_META, m),
            Step::LogAppend(v, e) => put_log(out, *v, e),
            Step::LogTrim(v) => {
                out.push(tag::LOG_TRIM);
                put_version(out, *v);
            }
        }
    }

    pub fn get(r: &mut Input) -> Decoded<Self> {
        Ok(match r.u8()? {
            tag::OBJECT => Step::Object(r.oid()?),
            tag::SIZE => Step::Size(r.u()?),
            tag::INLINE => {
                let run = get_run(r)?;
                let data = r.bytes()?;
                if data.len() as u64 > run.len * BLOCK {
                    return Err(Bad("data behind its run"));
                }
                Step::Inline(run, data)
            }
            tag::DIRECT => {
                let run = get_run(r)?;
                Step::Direct(run, get_crcs(r, run.len)?)
            }
            tag::BLOB => {
                let run = get_run(r)?;
                let blob = Blob::get(r, run.len)?;
                if blob.skip != 0 || u64::from(blob.blocks) != run.len {
                    return Err(Bad("part of a blob"));
                }
                Step::Blob(run, blob, get_crcs(r, blob.disk_blocks())?)
            }
            tag::UNMAP => Step::Unmap(r.u()?, r.u()?),
            tag::REMOVE => Step::Remove,
            tag::SET_ATTR => Step::SetAttr(r.bytes()?, r.bytes()?),
            tag::REMOVE_ATTR => Step::RemoveAttr(r.bytes()?),
            tag::REMOVE_ATTRS => Step::RemoveAttrs,
            tag::OMAP_SET => Step::OmapSet(r.bytes()?, r.bytes()?),
            tag::OMAP_REMOVE => Step::OmapRemove(r.bytes()?),
            tag::OMAP_REMOVE_RANGE => Step::OmapRemoveRange(r.bytes()?, r.bytes()?),
            tag::OMAP_CLEAR => Step::OmapClear,
            tag::OMAP_HEADER => Step::OmapHeader(r.bytes()?),
            tag::CLONE_FROM => Step::CloneFrom(r.oid()?),
            tag::SHARE => Step::Share {
                src: r.oid()?,
                from: r.u()?,
                to: r.u()?,
                len: r.u()?,
            },
            tag::RENAME => Step::Rename(r.oid()?),
            tag::CREATE_COLLECTION => Step::CreateCollection,
            tag::REMOVE_COLLECTION => Step::RemoveCollection,
            tag::SET_META => Step::SetMeta(r.bytes()?),
            tag::LOG_APPEND => Step::LogAppend(r.version()?, r.bytes()?),
            tag::LOG_TRIM => Step::LogTrim(r.version()?),
            _ => return Err(Bad("unknown step")),
        })
    }
}

fn get_crcs(r: &mut Input, n: u64) -> Decoded<Vec<u32>> {
    let raw = r.take(usize::try_from(n * 4).map_err(|_| Bad("run"))?)?;
    let crcs = raw
        .chunks_exact(4)
        .map(|c| u32::from_le_bytes([c[0], c[1], c[2], c[3]]));
    Ok(crcs.collect())
}

fn get_run(r: &mut Input) -> Decoded<Run> {
    let run = Run {
        at: r.u()?,
        phys: r.u()?,
        len: r.u()?,
    };
    let sane = [run.at, run.phys, run.len]
        .iter()
        .all(|v| *v <= RUN_BLOCKS_MAX << 12);
    if run.len > RUN_BLOCKS_MAX || !sane {
        return Err(Bad("run"));
    }
    Ok(run)
}

/// Splits a batch's records: `u32` length and that many bytes, each.
pub fn split(batch: Bytes) -> impl Iterator<Item = Decoded<Bytes>> {
    let mut r = Input::new(batch);
    std::iter::from_fn(move || {
        if r.is_empty() {
            return None;
        }
        Some(r.u32().and_then(|n| r.take(n as usize)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::HObject;

    #[test]
    fn steps_come_back() {
        let oid = ObjectId::replicated(HObject::new(
            3,
            9,
            Bytes::from("n"),
            Bytes::from("k"),
            Bytes::from("o"),
            types::NOSNAP,
        ));
        let b = |s: &'static str| Bytes::from(s);
        let run = Run {
            at: 1,
            phys: 200,
            len: 2,
        };
        let v = EVersion::new(7, 8);
        let steps = [
            Step::Object(oid.clone()),
            Step::Size(1 << 40),
            Step::Inline(run, b("12345678")),
            Step::Direct(run, vec![1, u32::MAX]),
            Step::Blob(run, Blob::new(crate::compress::Algorithm::Zstd, 2, 77), vec![9]),
            Step::Unmap(3, 4),
            Step::Remove,
            Step::SetAttr(b("a"), b("")),
            Step::RemoveAttr(b("a")),
            Step::RemoveAttrs,
            Step::OmapSet(b("k"), b("v")),
            Step::OmapRemove(b("k")),
            Step::OmapRemoveRange(b("a"), b("z")),
            Step::OmapClear,
            Step::OmapHeader(b("h")),
            Step::CloneFrom(oid.clone()),
            Step::Share {
                src: oid.clone(),
                from: 1,
                to: 2,
                len: 3,
            },
            Step::Rename(oid),
            Step::CreateCollection,
            Step::RemoveCollection,
            Step::SetMeta(b("m")),
            Step::LogAppend(v, b("e")),
            Step::LogTrim(v),
        ];
        let mut out = Vec::new();
        steps.iter().for_each(|s| s.put(&mut out));
        let whole = Bytes::from(out);
        let mut r = Input::new(whole.clone());
        for s in &steps {
            assert_eq!(Step::get(&mut r).as_ref(), Ok(s));
        }
        assert!(r.is_empty());
        for cut in 0..whole.len() {
            let mut r = Input::new(whole.slice(..cut));
            while Step::get(&mut r).is_ok() {}
        }
    }

    #[test]
    fn trailing_zeros_are_cut() {
        let mut data = vec![0; 4096];
        data[100] = 1;
        let mut out = Vec::new();
        let run = Run {
            at: 0,
            phys: 0,
            len: 1,
        };
        put_inline(&mut out, run, &data);
        assert!(out.len() < 120);
    }
}
