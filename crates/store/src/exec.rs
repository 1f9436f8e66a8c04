//! Operations of a transaction, resolved into steps: here and only here decisions are taken (which blocks,
//! in place or fresh, shared or copied).
//!
//! Rules: `Touch`, `Write` and clone destinations create a missing object; all other operations need it.
//! A write's whole blocks go to fresh extents when they are many (direct), else their content rides in the
//! record; parts of blocks are completed to whole ones. A block that a clone shares is never changed in
//! place, nor is a blob: where the owner wants compression, runs of whole blocks become blobs, written like direct data.

use crate::alloc::For;
use crate::block_row::block_crc;
use crate::compress::{BLOB_BLOCKS_MAX, Compression};
use crate::onode::{BLOCK, Extent, Onode, Place};
use crate::own::{detach, detach_oid};
use crate::record::{self, Run, Step};
use crate::state::State;
use crate::{Error, Result};
use bytes::Bytes;
use std::ops::Range;
use types::{ObjectId, Op, PoolId, SPgId, Transaction};

/// Object names, locator keys and namespaces together.
const NAME_BYTES_MAX: u64 = 4096;
const ATTR_NAME_BYTES_MAX: u64 = 1024;
const OMAP_KEY_BYTES_MAX: u64 = 64 << 10;
/// A collection's metadata, an attribute, an omap value or header, a log entry.
const VALUE_BYTES_MAX: u64 = 64 << 20;
/// What a record needs beside the bytes it carries, for each operation: names, tags, two completed blocks.
const OP_BYTES: u64 = 256 + 2 * (BLOCK + 32);
/// The same for an operation on attributes of the object that the one before had, too: no name, no block.
const ATTRS_BYTES: u64 = 64;

/// The object whose attributes an operation changes.
fn attrs_of(op: &Op) -> Option<&ObjectId> {
    match op {
        Op::SetAttrs { oid, .. } | Op::RemoveAttr { oid, .. } => Some(oid),
        _ => None,
    }
}

fn limit(what: &'static str, size: u64, limit: u64) -> Result<()> {
    if size > limit {
        return Err(Error::TooBig { what, size, limit });
    }
    Ok(())
}

impl State {
    /// The most bytes the transaction's record can take.
    pub fn record_bound(&self, t: &Transaction) -> u64 {
        let pair = |(a, b): &(Bytes, Bytes)| 16 + a.len() as u64 + b.len() as u64;
        let mut sum = 64u64;
        let mut before = None;
        for op in &t.ops {
            let oid = attrs_of(op);
            let beside = match oid.is_some() && oid == before {
                true => ATTRS_BYTES,
                false => OP_BYTES,
            };
            before = oid;
            let bytes = match op {
                Op::Write { data, .. } => {
                    let len = data.len() as u64;
                    if len / BLOCK > self.direct_blocks {
                        // Checksums, and runs if the free space is in pieces.
                        len / BLOCK * 32
                    } else {
                        len + len / BLOCK * 24
                    }
                }
                Op::SetAttrs { attrs, .. } => attrs.iter().map(pair).sum(),
                Op::RemoveAttr { name, .. } => name.len() as u64,
                Op::OmapSet { entries, .. } => entries.iter().map(pair).sum(),
                Op::OmapRemove { keys, .. } => keys.iter().map(|k| k.len() as u64 + 16).sum(),
                Op::OmapRemoveRange { first, last, .. } => (first.len() + last.len()) as u64,
                Op::OmapSetHeader { header, .. } => header.len() as u64,
                Op::SetMeta { meta } => meta.len() as u64,
                Op::LogAppend { entry, .. } => entry.len() as u64,
                // Sources that do not share block borders, or overlap, are copied.
                Op::CloneRange {
                    src,
                    dst,
                    len,
                    src_offset,
                    dst_offset,
                } if src == dst || (src_offset ^ dst_offset) % BLOCK != 0 => {
                    len.saturating_add(len / BLOCK * 24)
                }
                _ => 0,
            };
            sum = bytes.saturating_add(sum).saturating_add(beside);
        }
        sum
    }

    /// Applies one operation to the transaction in the making.
    pub fn exec(&mut self, c: &SPgId, op: &Op) -> Result<()> {
        if !matches!(op, Op::CreateCollection) && !self.collections.contains_key(c) {
            return Err(Error::NoCollection(*c));
        }
        match op {
            Op::Touch { oid } => self.select(c, oid, true),
            Op::Write { oid, offset, data } => {
                self.select(c, oid, true)?;
                self.write(c, *offset, data)
            }
            Op::Zero { oid, offset, len } => {
                self.select(c, oid, false)?;
                self.zero(c, *offset, *len)
            }
            Op::Truncate { oid, size } => {
                self.select(c, oid, false)?;
                self.truncate(c, *size)
            }
            Op::Remove { oid } => {
                self.select(c, oid, false)?;
                self.emit(c, Step::Remove)
            }
            Op::Clone { src, dst } => self.clone_object(c, src, dst),
            Op::CloneRange {
                src,
                dst,
                src_offset,
                len,
                dst_offset,
            } => self.clone_range(c, src, dst, *src_offset, *len, *dst_offset),
            Op::Rename { src, dst } => {
                check_name(dst)?;
                self.select(c, src, false)?;
                self.emit(c, Step::Rename(detach_oid(dst)))
            }
            Op::SetAttrs { .. } | Op::RemoveAttr { .. } | Op::RemoveAttrs { .. } => self.exec_attrs(c, op),
            Op::OmapSet { .. }
            | Op::OmapRemove { .. }
            | Op::OmapRemoveRange { .. }
            | Op::OmapClear { .. }
            | Op::OmapSetHeader { .. } => self.exec_omap(c, op),
            _ => self.exec_collection(c, op),
        }
    }

    fn exec_attrs(&mut self, c: &SPgId, op: &Op) -> Result<()> {
        match op {
            Op::SetAttrs { oid, attrs } => {
                self.select(c, oid, false)?;
                for (n, v) in attrs {
                    limit("an attribute's name", n.len() as u64, ATTR_NAME_BYTES_MAX)?;
                    limit("an attribute", v.len() as u64, VALUE_BYTES_MAX)?;
                    // The record of an object copies the name where it is new.
                    self.emit(c, Step::SetAttr(n.clone(), detach(v)))?;
                }
                Ok(())
            }
            Op::RemoveAttr { oid, name } => {
                self.select(c, oid, false)?;
                self.emit(c, Step::RemoveAttr(detach(name)))
            }
            Op::RemoveAttrs { oid } => {
                self.select(c, oid, false)?;
                self.emit(c, Step::RemoveAttrs)
            }
            _ => Ok(()),
        }
    }

    fn exec_omap(&mut self, c: &SPgId, op: &Op) -> Result<()> {
        match op {
            Op::OmapSet { oid, entries } => {
                self.select(c, oid, false)?;
                for (k, v) in entries {
                    limit("an omap key", k.len() as u64, OMAP_KEY_BYTES_MAX)?;
                    limit("an omap value", v.len() as u64, VALUE_BYTES_MAX)?;
                    self.emit(c, Step::OmapSet(detach(k), detach(v)))?;
                }
                Ok(())
            }
            Op::OmapRemove { oid, keys } => {
                self.select(c, oid, false)?;
                keys.iter()
                    .try_for_each(|k| self.emit(c, Step::OmapRemove(detach(k))))
            }
            Op::OmapRemoveRange { oid, first, last } => {
                self.select(c, oid, false)?;
                self.emit(c, Step::OmapRemoveRange(detach(first), detach(last)))
            }
            Op::OmapClear { oid } => {
                self.select(c, oid, false)?;
                self.emit(c, Step::OmapClear)
            }
            Op::OmapSetHeader { oid, header } => {
                self.select(c, oid, false)?;
                limit("an omap header", header.len() as u64, VALUE_BYTES_MAX)?;
                self.emit(c, Step::OmapHeader(detach(header)))
            }
            _ => Ok(()),
        }
    }

    fn exec_collection(&mut self, c: &SPgId, op: &Op) -> Result<()> {
        match op {
            Op::CreateCollection => self.emit(c, Step::CreateCollection),
            Op::RemoveCollection => self.emit(c, Step::RemoveCollection),
            Op::SetMeta { meta } => {
                limit("collection metadata", meta.len() as u64, VALUE_BYTES_MAX)?;
                self.emit(c, Step::SetMeta(detach(meta)))
            }
            Op::LogAppend { version, entry } => {
                limit("a log entry", entry.len() as u64, VALUE_BYTES_MAX)?;
                self.emit(c, Step::LogAppend(*version, detach(entry)))
            }
            Op::LogTrim { to } => self.emit(c, Step::LogTrim(*to)),
            _ => Ok(()),
        }
    }

    /// Makes an object the one that steps apply to.
    fn select(&mut self, c: &SPgId, oid: &ObjectId, create: bool) -> Result<()> {
        if let Some(t) = self.tx.current.map(|i| &self.tx.objects[i])
            && t.oid == *oid
            && t.current.is_some()
        {
            return Ok(());
        }
        let slot = self.slot(oid)?;
        let missing = self.tx.objects[slot].current.is_none();
        if missing && !create {
            return Err(Error::no_object(oid));
        }
        if missing {
            check_name(oid)?;
            self.tx.objects[slot].oid = detach_oid(oid);
        }
        record::put_object(&mut self.tx.record, oid);
        if missing {
            let oid = self.tx.objects[slot].oid.clone();
            self.step(c, Step::Object(oid))?;
        } else {
            self.tx.current = Some(slot);
        }
        Ok(())
    }

    fn set_size(&mut self, c: &SPgId, size: u64) -> Result<()> {
        limit("an object of this size", size, self.object_bytes_max)?;
        if self.with_current(|_, o, _| Ok(o.size))? != size {
            self.emit(c, Step::Size(size))?;
        }
        Ok(())
    }

    fn write(&mut self, c: &SPgId, offset: u64, data: &Bytes) -> Result<()> {
        let end = end_of(offset, data.len() as u64)?;
        limit("an object of this size", end, self.object_bytes_max)?;
        if data.is_empty() {
            return Ok(());
        }
        let size = self.with_current(|s, o, pool| {
            s.write_data(o, pool, offset, data)?;
            Ok(o.size.max(end))
        })?;
        self.set_size(c, size)
    }

    fn write_data(&mut self, o: &mut Onode, pool: PoolId, offset: u64, data: &Bytes) -> Result<()> {
        let (mut at, end) = (offset, offset + data.len() as u64);
        let part = |from: u64, to: u64| data.slice((from - offset) as usize..(to - offset) as usize);
        if at % BLOCK != 0 {
            let to = end.min(at.next_multiple_of(BLOCK));
            self.patch(o, pool, at, &part(at, to))?;
            at = to;
        }
        let whole = end / BLOCK * BLOCK;
        if at < whole {
            let (block, blocks) = (at / BLOCK, (whole - at) / BLOCK);
            let direct = blocks >= self.direct_blocks && self.room() >= blocks;
            match self.compression.filter(|c| c.takes(whole - at)) {
                Some(c) => self.write_compressed(o, pool, block, &part(at, whole), &c, direct)?,
                None => self.write_raw(o, pool, block, &part(at, whole), direct)?,
            }
            at = whole;
        }
        if at < end {
            self.patch(o, pool, at, &part(at, end))?;
        }
        Ok(())
    }

    fn write_raw(
        &mut self,
        o: &mut Onode,
        pool: PoolId,
        first: u64,
        data: &Bytes,
        direct: bool,
    ) -> Result<()> {
        match direct {
            true => self.write_fresh(o, pool, first, data),
            false => self.write_inline(o, pool, first, data),
        }
    }

    /// Whole blocks, in blobs as far as that saves enough. Blobs begin at multiples of their length, so that data written over
    /// with the same pattern leaves no parts of blobs behind. None is made where a part of another is left: so at most one blob
    /// ever stands for a block of the object, and what it keeps for nothing is bounded.
    fn write_compressed(
        &mut self,
        o: &mut Onode,
        pool: PoolId,
        first: u64,
        data: &Bytes,
        c: &Compression,
        direct: bool,
    ) -> Result<()> {
        let end = first + data.len() as u64 / BLOCK;
        let byte = |block: u64| ((block - first) * BLOCK) as usize;
        let part = |from: u64, to: u64| data.slice(byte(from)..byte(to));
        let step = c.blob_blocks();
        let (mut at, mut raw) = (first, first);
        while at < end {
            let to = ((at / step + 1) * step).min(end);
            let free = c.takes((to - at) * BLOCK) && !keeps_blob(o, at..to, first..end);
            if free && self.write_blob(o, pool, at, &part(at, to), c)? {
                if raw < at {
                    self.write_raw(o, pool, raw, &part(raw, at), direct)?;
                }
                raw = to;
            }
            at = to;
        }
        match raw < end {
            true => self.write_raw(o, pool, raw, &part(raw, end), direct),
            false => Ok(()),
        }
    }

    /// False: it would save too little, or there is no run of free blocks for it.
    fn write_blob(
        &mut self,
        o: &mut Onode,
        pool: PoolId,
        at: u64,
        data: &[u8],
        c: &Compression,
    ) -> Result<bool> {
        if self.room() == 0 {
            return Ok(false);
        }
        let packed = self.codecs.get_mut().pack(c, data);
        let Some((blob, packed)) = packed else {
            return Ok(false);
        };
        let Some(phys) = self.take_whole(o, at, blob.disk_blocks()) else {
            return Ok(false);
        };
        let run = Run {
            at,
            phys,
            len: data.len() as u64 / BLOCK,
        };
        let crcs: Vec<u32> = packed.chunks_exact(BLOCK as usize).map(block_crc).collect();
        self.place_blob(o, pool, run, blob, &crcs)?;
        record::put_blob(&mut self.tx.record, run, blob, &crcs);
        self.write_direct(phys, packed.into());
        Ok(true)
    }

    /// A run of just so many free blocks; behind what the object has before it, if it can.
    fn take_whole(&mut self, o: &Onode, at: u64, len: u64) -> Option<u64> {
        if len > self.room() {
            return None;
        }
        let before = o.extents.neighbours(at).0.filter(|e| e.blob.is_some());
        if let Some(hint) = before.map(|e| e.disk().end) {
            match self.alloc.take_at(hint, len, For::LargeWrite) {
                n if n == len => return Some(hint),
                0 => {}
                n => self.alloc.clear(hint, n),
            }
        }
        let (start, n) = self.alloc.take(len, For::LargeWrite)?;
        if n == len {
            return Some(start);
        }
        self.alloc.clear(start, n);
        None
    }

    /// Blocks that writes may still take.
    pub fn room(&self) -> u64 {
        if self.host_low {
            return 0;
        }
        self.alloc.free().saturating_sub(self.reserve)
    }

    /// Writes part of one block: completes it with what is there.
    fn patch(&mut self, o: &mut Onode, pool: PoolId, offset: u64, data: &[u8]) -> Result<()> {
        let (block, skip) = (offset / BLOCK, (offset % BLOCK) as usize);
        let mut image = [0; BLOCK as usize];
        let valid = o.size.saturating_sub(block * BLOCK).min(BLOCK) as usize;
        let covered = skip == 0 && data.len() >= valid;
        if !covered {
            self.read_blocks(o, block, &mut image)?;
        }
        image[skip..skip + data.len()].copy_from_slice(data);
        self.write_inline(o, pool, block, &image)
    }

    /// Whole blocks whose content rides in the record: in place where the block is the object's alone.
    fn write_inline(&mut self, o: &mut Onode, pool: PoolId, first: u64, data: &[u8]) -> Result<()> {
        let blocks = data.len() as u64 / BLOCK;
        let mut i = 0;
        while i < blocks {
            let at = first + i;
            let (phys, len, fresh) = match o.extents.find(at) {
                Place::Mapped { phys, len, shared } => {
                    let (own, len) = self.ownership(phys, len.min(blocks - i), shared)?;
                    if own {
                        (phys, len, false)
                    } else {
                        let (phys, len) = self.take_for(o, pool, at, len, For::SmallWrite)?;
                        (phys, len, true)
                    }
                }
                Place::Hole { len } | Place::Compressed { len } => {
                    let (phys, len) = self.take_for(o, pool, at, len.min(blocks - i), For::SmallWrite)?;
                    (phys, len, true)
                }
            };
            let run = Run { at, phys, len };
            if fresh {
                self.place(o, pool, run, true)?;
            }
            let part = &data[(i * BLOCK) as usize..((i + len) * BLOCK) as usize];
            record::put_inline(&mut self.tx.record, run, part);
            self.fill(phys, part);
            i += len;
        }
        Ok(())
    }

    /// Whether the first of these blocks belongs to the object alone, and how many after it agree.
    fn ownership(&self, phys: u64, len: u64, shared: bool) -> Result<(bool, u64)> {
        if !shared {
            return Ok((true, len));
        }
        let own = self.refs(phys)? == 0;
        let mut n = 1;
        while n < len && (self.refs(phys + n)? == 0) == own {
            n += 1;
        }
        Ok((own, n))
    }

    /// Many whole blocks: to fresh extents, written before the record and covered by the same flush.
    fn write_fresh(&mut self, o: &mut Onode, pool: PoolId, first: u64, data: &Bytes) -> Result<()> {
        let blocks = data.len() as u64 / BLOCK;
        self.unmap(o, pool, first, first + blocks)?;
        let mut i = 0;
        while i < blocks {
            let at = first + i;
            let (phys, len) = self.take_for(o, pool, at, blocks - i, For::LargeWrite)?;
            let run = Run { at, phys, len };
            self.place(o, pool, run, true)?;
            let part = data.slice((i * BLOCK) as usize..((i + len) * BLOCK) as usize);
            let crcs: Vec<u32> = part.chunks_exact(BLOCK as usize).map(block_crc).collect();
            record::put_direct(&mut self.tx.record, run, &crcs);
            self.fill_direct(phys, &crcs);
            self.write_direct(phys, part);
            i += len;
        }
        Ok(())
    }

    /// Takes up to `len` blocks for logical block `at`: where the object's neighbouring extents would go
    /// on if it can, else in a zone of its own for a sparse object, else wherever there is room.
    fn take_for(&mut self, o: &Onode, pool: PoolId, at: u64, len: u64, purpose: For) -> Result<(u64, u64)> {
        let len = len.min(self.room());
        if len == 0 {
            return Err(Error::NoSpace {
                free: self.alloc.free() * BLOCK,
                reserve: self.reserve * BLOCK,
            });
        }
        let (before, behind) = o.extents.neighbours(at);
        // Where a blob lies says nothing of where its object's next block should.
        let raw = |e: &&Extent| e.blob.is_none();
        let hints = [
            before.filter(raw).map(|e| e.phys + (at - e.at)),
            behind.filter(raw).and_then(|e| e.phys.checked_sub(e.at - at)),
        ];
        for hint in hints.into_iter().flatten() {
            let n = self.alloc.take_at(hint, len, purpose);
            if n > 0 {
                self.took(pool, hint, n);
                return Ok((hint, n));
            }
        }
        let sparse = len == 1 && at > 0;
        let run = match sparse.then(|| self.alloc.take_zone(at)).flatten() {
            Some(block) => (block, 1),
            None => self.alloc.take(len, purpose).ok_or(Error::NoSpace {
                free: self.alloc.free() * BLOCK,
                reserve: self.reserve * BLOCK,
            })?,
        };
        self.took(pool, run.0, run.1);
        Ok(run)
    }

    fn zero(&mut self, c: &SPgId, offset: u64, len: u64) -> Result<()> {
        let end = end_of(offset, len)?;
        limit("an object of this size", end, self.object_bytes_max)?;
        if len == 0 {
            return Ok(());
        }
        let size = self.with_current(|_, o, _| Ok(o.size))?;
        self.punch(c, offset, if end >= size { u64::MAX } else { end })?;
        self.set_size(c, size.max(end))
    }

    /// Makes `[offset, end)` read as zeros without touching the size.
    fn punch(&mut self, c: &SPgId, offset: u64, end: u64) -> Result<()> {
        let (first, last) = (offset.div_ceil(BLOCK), end / BLOCK);
        let head_end = end.min(offset.next_multiple_of(BLOCK));
        self.blank(offset, head_end)?;
        if first < last {
            let last = if end == u64::MAX { u64::MAX } else { last };
            let any = self.with_current(|_, o, _| Ok(o.extents.within(first, last).next().is_some()))?;
            if any {
                self.emit(c, Step::Unmap(first, last))?;
            }
        }
        if end != u64::MAX && last * BLOCK >= head_end {
            self.blank(last * BLOCK, end)?;
        }
        Ok(())
    }

    /// Zeros part of one block, if it is not a hole.
    fn blank(&mut self, from: u64, to: u64) -> Result<()> {
        if from >= to {
            return Ok(());
        }
        const ZEROS: [u8; BLOCK as usize] = [0; BLOCK as usize];
        self.with_current(|s, o, pool| match o.extents.find(from / BLOCK) {
            Place::Hole { .. } => Ok(()),
            Place::Mapped { .. } | Place::Compressed { .. } => {
                let mut image = [0; BLOCK as usize];
                s.read_blocks(o, from / BLOCK, &mut image)?;
                let skip = (from % BLOCK) as usize;
                let n = (to - from) as usize;
                image[skip..skip + n].copy_from_slice(&ZEROS[..n]);
                // A block that a clone shares must be copied even when writes find no room.
                let reserve = std::mem::take(&mut s.reserve);
                let low = std::mem::take(&mut s.host_low);
                let out = s.write_inline(o, pool, from / BLOCK, &image);
                (s.reserve, s.host_low) = (reserve, low);
                out
            }
        })
    }

    fn truncate(&mut self, c: &SPgId, size: u64) -> Result<()> {
        limit("an object of this size", size, self.object_bytes_max)?;
        if size < self.with_current(|_, o, _| Ok(o.size))? {
            self.punch(c, size, u64::MAX)?;
        }
        self.set_size(c, size)
    }

    fn clone_object(&mut self, c: &SPgId, src: &ObjectId, dst: &ObjectId) -> Result<()> {
        let from = self.slot(src)?;
        if self.tx.objects[from].current.is_none() {
            return Err(Error::no_object(src));
        }
        if src == dst {
            return Ok(());
        }
        let to = self.slot(dst)?;
        if self.tx.objects[to].current.is_some() {
            self.select(c, dst, false)?;
            self.emit(c, Step::Remove)?;
        }
        self.select(c, dst, true)?;
        self.emit(c, Step::CloneFrom(detach_oid(src)))
    }

    fn clone_range(
        &mut self,
        c: &SPgId,
        src: &ObjectId,
        dst: &ObjectId,
        src_offset: u64,
        len: u64,
        dst_offset: u64,
    ) -> Result<()> {
        let from = self.slot(src)?;
        let Some(source) = self.tx.objects[from].current.clone() else {
            return Err(Error::no_object(src));
        };
        // What lies behind the source's end does not exist and is not copied.
        let len = len.min(source.size.saturating_sub(src_offset));
        let end = end_of(dst_offset, len)?;
        limit("an object of this size", end, self.object_bytes_max)?;
        self.select(c, dst, true)?;
        if len == 0 {
            return Ok(());
        }
        // Never reached by a longer range than the record's bound allowed.
        let overlaps = src == dst && src_offset < end && dst_offset < src_offset + len;
        if !(src_offset ^ dst_offset).is_multiple_of(BLOCK) || overlaps {
            return self.copy_range(c, &source, src_offset, len, dst_offset);
        }
        let first = src_offset.next_multiple_of(BLOCK).min(src_offset + len);
        let last = ((src_offset + len) / BLOCK * BLOCK).max(first);
        let to = |at: u64| at - src_offset + dst_offset;
        self.copy_range(c, &source, src_offset, first - src_offset, dst_offset)?;
        if last > first {
            let (a, b) = (to(first) / BLOCK, to(last) / BLOCK);
            self.emit(c, Step::Unmap(a, b))?;
            self.emit(
                c,
                Step::Share {
                    src: detach_oid(src),
                    from: first / BLOCK,
                    to: a,
                    len: b - a,
                },
            )?;
        }
        self.copy_range(c, &source, last, src_offset + len - last, to(last))?;
        let size = self.with_current(|_, o, _| Ok(o.size.max(end)))?;
        self.set_size(c, size)
    }

    /// Copies bytes; holes of the source become zeros. Bounded by the record's size.
    fn copy_range(&mut self, c: &SPgId, source: &Onode, from: u64, len: u64, to: u64) -> Result<()> {
        if len == 0 {
            return Ok(());
        }
        let data = self.read_onode(source, from, len)?;
        self.write(c, to, &data)
    }
}

/// Whether something is left of a blob that stood for one of `blocks`, once all of `written`, in which they lie, is written over.
fn keeps_blob(o: &Onode, blocks: Range<u64>, written: Range<u64>) -> bool {
    // No blob that reaches `blocks` has a part further away.
    let from = blocks.start.saturating_sub(BLOB_BLOCKS_MAX);
    let mut near = o.extents.within(from, blocks.end + BLOB_BLOCKS_MAX);
    near.any(|e| {
        let stays = e.at < written.start || e.at + e.len > written.end;
        stays
            && e.blob.is_some_and(|b| {
                let (skip, len) = (u64::from(b.skip), u64::from(b.blocks));
                e.at < blocks.end + skip && e.at + len > blocks.start + skip
            })
    })
}

fn end_of(offset: u64, len: u64) -> Result<u64> {
    offset.checked_add(len).ok_or(Error::TooBig {
        what: "an offset",
        size: offset,
        limit: u64::MAX - len,
    })
}

fn check_name(oid: &ObjectId) -> Result<()> {
    let o = &oid.object;
    limit(
        "a name",
        (o.nspace.len() + o.key.len() + o.oid.len()) as u64,
        NAME_BYTES_MAX,
    )?;
    // "Behind every object" is a cursor, not a name.
    limit("the name MAX", u64::from(o.max), 0)
}
