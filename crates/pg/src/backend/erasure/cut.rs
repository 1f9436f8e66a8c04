//! A transaction of the PG, cut into one for each shard.
//!
//! What changes an object's bytes changes whole stripes: what a stripe keeps of its old bytes is read ([`Before`]), parity is
//! computed from the whole, and each shard writes what is new to it. Attributes, clones, log and metadata go to every shard as
//! they are. Steps see the effects of those before them, as in a store.
//!
//! Invariants: after the transaction each shard holds its units of the object as the PG means it, and nothing but zeros behind
//! them. A shard whose units do not change writes no data.

pub(crate) use crate::coding::Coding;

use crate::stored::IoError;
use bytes::Bytes;
use erasure::Layout;
use std::collections::BTreeMap;
use std::ops::Range;
use types::{HObject, ObjectId, Op, SPgId, Transaction};

/// The objects as they are before the transaction.
pub(crate) trait Before {
    /// None: there is no such object.
    fn size(&mut self, oid: &ObjectId) -> Result<Option<u64>, IoError>;
    /// The bytes of a stripe, whole: zeros behind the object's end.
    fn stripe(&mut self, oid: &ObjectId, stripe: u64) -> Result<Vec<u8>, IoError>;
}

/// An object in the midst of a transaction, and behind it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Written {
    /// None: there is no such object.
    pub size: Option<u64>,
    /// What was there before it, and how much of that still shows; behind that it is zeros.
    pub base: Option<(ObjectId, u64)>,
    /// Stripes that differ; None: zeros.
    pub changed: BTreeMap<u64, Option<Vec<u8>>>,
}

/// A transaction that was cut.
#[derive(Debug)]
pub(crate) struct Shares {
    /// One for each shard, in their order.
    pub shards: Vec<Transaction>,
    /// The objects whose data it changes.
    pub written: BTreeMap<ObjectId, Written>,
}

/// One transaction for each shard, in their order.
#[cfg(test)]
pub(crate) fn cut(
    txn: &Transaction,
    coding: &Coding,
    before: &mut dyn Before,
) -> Result<Vec<Transaction>, IoError> {
    cut_all(txn, coding, before).map(|cut| cut.shards)
}

pub(crate) fn cut_all(
    txn: &Transaction,
    coding: &Coding,
    before: &mut dyn Before,
) -> Result<Shares, IoError> {
    let shard = |n: usize| Transaction::new(of_shard(txn.collection, n));
    let mut cutter = Cutter {
        coding,
        before,
        now: BTreeMap::new(),
        out: (0..coding.layout.shards()).map(shard).collect(),
    };
    for op in &txn.ops {
        cutter.step(op)?;
    }
    Ok(Shares {
        shards: cutter.out,
        written: cutter.now,
    })
}

fn of_shard(id: SPgId, shard: usize) -> SPgId {
    SPgId {
        shard: shard as i8,
        ..id
    }
}

/// The same object on another shard.
pub(crate) fn on_shard(oid: &ObjectId, shard: usize) -> ObjectId {
    ObjectId {
        shard: shard as i8,
        object: oid.object.clone(),
    }
}

/// An object as it is named on a shard.
pub(crate) fn object_on(object: &HObject, shard: usize) -> ObjectId {
    on_shard(&ObjectId::replicated(object.clone()), shard)
}

struct Cutter<'a> {
    coding: &'a Coding,
    before: &'a mut dyn Before,
    now: BTreeMap<ObjectId, Written>,
    out: Vec<Transaction>,
}

impl Cutter<'_> {
    fn step(&mut self, op: &Op) -> Result<(), IoError> {
        match op {
            Op::Touch { oid } => {
                self.now(oid)?.size.get_or_insert(0);
            }
            Op::Write { oid, offset, data } => return self.write(oid, *offset, data),
            Op::Zero { oid, offset, len } => return self.zero(oid, *offset, *len),
            Op::Truncate { oid, size } => return self.truncate(oid, *size),
            Op::Remove { oid } => *self.now(oid)? = Written::default(),
            Op::Clone { src, dst } => {
                let now = self.now(src)?.clone();
                self.now.insert(dst.clone(), now);
            }
            Op::Rename { src, dst } => {
                let now = std::mem::take(self.now(src)?);
                self.now.insert(dst.clone(), now);
            }
            Op::CloneRange {
                src,
                dst,
                src_offset,
                len,
                dst_offset,
            } => {
                // Its place in a stripe may be another one there.
                let end = src_offset
                    .saturating_add(*len)
                    .min(self.now(src)?.size.unwrap_or(0));
                let bytes = self.read(src, *src_offset, end.saturating_sub(*src_offset))?;
                return self.write(dst, *dst_offset, &bytes);
            }
            Op::OmapSet { oid, .. } | Op::OmapSetHeader { oid, .. } => {
                return Err(IoError(format!("{}: shards have no omap", oid.object)));
            }
            Op::SetAttrs { .. }
            | Op::RemoveAttr { .. }
            | Op::RemoveAttrs { .. }
            | Op::OmapRemove { .. }
            | Op::OmapRemoveRange { .. }
            | Op::OmapClear { .. }
            | Op::CreateCollection
            | Op::RemoveCollection
            | Op::SetMeta { .. }
            | Op::LogAppend { .. }
            | Op::LogTrim { .. } => {}
        }
        for (n, txn) in self.out.iter_mut().enumerate() {
            txn.ops.push(moved(op, n));
        }
        Ok(())
    }

    fn now(&mut self, oid: &ObjectId) -> Result<&mut Written, IoError> {
        if !self.now.contains_key(oid) {
            let size = self.before.size(oid)?;
            let now = Written {
                size,
                base: size.map(|size| (oid.clone(), size)),
                changed: BTreeMap::new(),
            };
            self.now.insert(oid.clone(), now);
        }
        Ok(self.now.entry(oid.clone()).or_default())
    }

    /// A stripe as it is now.
    fn stripe(&mut self, oid: &ObjectId, stripe: u64) -> Result<Vec<u8>, IoError> {
        let len = self.coding.layout.stripe();
        let now = self.now(oid)?;
        if let Some(changed) = now.changed.get(&stripe) {
            return Ok(changed.clone().unwrap_or_else(|| vec![0; len as usize]));
        }
        let start = stripe * len;
        let Some((base, shown)) = now.base.clone().filter(|(_, shown)| *shown > start) else {
            return Ok(vec![0; len as usize]);
        };
        let mut bytes = self.before.stripe(&base, stripe)?;
        bytes.resize(len as usize, 0);
        bytes[(shown - start).min(len) as usize..].fill(0);
        Ok(bytes)
    }

    fn read(&mut self, oid: &ObjectId, offset: u64, len: u64) -> Result<Vec<u8>, IoError> {
        let layout = self.coding.layout;
        let stripes = layout.stripes(offset, len);
        let mut all = Vec::new();
        for stripe in stripes.clone() {
            all.extend(self.stripe(oid, stripe)?);
        }
        let skip = (offset - layout.extent(&stripes).0) as usize;
        Ok(all[skip..skip + len as usize].to_vec())
    }

    fn each(&mut self, oid: &ObjectId, op: impl Fn(ObjectId) -> Op) {
        for (n, txn) in self.out.iter_mut().enumerate() {
            txn.ops.push(op(on_shard(oid, n)));
        }
    }

    fn touch(&mut self, oid: &ObjectId) -> Result<u64, IoError> {
        let now = self.now(oid)?;
        if let Some(size) = now.size {
            return Ok(size);
        }
        now.size = Some(0);
        self.each(oid, |oid| Op::Touch { oid });
        Ok(0)
    }

    /// Every shard tells the object's size.
    fn set_size(&mut self, oid: &ObjectId, size: u64) -> Result<(), IoError> {
        self.now(oid)?.size = Some(size);
        self.each(oid, |oid| Op::Truncate { oid, size });
        Ok(())
    }

    fn write(&mut self, oid: &ObjectId, offset: u64, data: &[u8]) -> Result<(), IoError> {
        let size = self.touch(oid)?;
        if data.is_empty() {
            return Ok(());
        }
        let (layout, end) = (self.coding.layout, offset + data.len() as u64);
        let stripes = layout.stripes(offset, data.len() as u64);
        let (start, total) = layout.extent(&stripes);
        let mut all = Vec::with_capacity(total as usize);
        for stripe in stripes.clone() {
            let (first, len) = (stripe * layout.stripe(), layout.stripe());
            // Nothing of what it was is left: it need not be here.
            match offset <= first && (first + len).min(size) <= end {
                true => all.resize(all.len() + len as usize, 0),
                false => all.extend(self.stripe(oid, stripe)?),
            }
        }
        let skip = (offset - start) as usize;
        all[skip..skip + data.len()].copy_from_slice(data);
        let range = offset..end;
        self.write_stripes(oid, &stripes, all, &range, size.max(end))?;
        match end > size {
            true => self.set_size(oid, end),
            false => Ok(()),
        }
    }

    /// These stripes become `all`, of which only `range` differs from what was; the object is then of this size.
    fn write_stripes(
        &mut self,
        oid: &ObjectId,
        stripes: &Range<u64>,
        all: Vec<u8>,
        range: &Range<u64>,
        size: u64,
    ) -> Result<(), IoError> {
        let layout = self.coding.layout;
        let data = layout.cut(&all);
        let units: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
        let unfit = |e| IoError(format!("{}: {e}", oid.object));
        let parity = self.coding.code.encode(&units).map_err(unfit)?;
        let at = layout.extent_on_shard(stripes).0;
        for (shard, column) in data.into_iter().chain(parity).enumerate() {
            let (from, to) = match shard < layout.k() {
                true => touched(&layout, shard, range),
                false => (at, at + column.len() as u64),
            };
            let to = to.min(layout.shard_size(shard, size));
            if from < to {
                self.out[shard].ops.push(Op::Write {
                    oid: on_shard(oid, shard),
                    offset: from,
                    data: Bytes::from(column).slice((from - at) as usize..(to - at) as usize),
                });
            }
        }
        let now = self.now(oid)?;
        for (stripe, bytes) in stripes.clone().zip(all.chunks(layout.stripe() as usize)) {
            now.changed.insert(stripe, Some(bytes.to_vec()));
        }
        Ok(())
    }

    fn zero(&mut self, oid: &ObjectId, offset: u64, len: u64) -> Result<(), IoError> {
        let size = self.touch(oid)?;
        let (layout, end) = (self.coding.layout, offset + len);
        let width = layout.stripe();
        // Behind the end there is nothing but zeros.
        let stop = end.min(size);
        let whole = offset.div_ceil(width)..stop / width;
        if whole.start >= whole.end {
            let len = stop.saturating_sub(offset);
            self.write(oid, offset.min(stop), &vec![0; len as usize])?;
        } else {
            let (from, to) = (whole.start * width, whole.end * width);
            self.write(oid, offset, &vec![0; (from - offset) as usize])?;
            let (offset, len) = layout.extent_on_shard(&whole);
            self.each(oid, |oid| Op::Zero { oid, offset, len });
            let now = self.now(oid)?;
            whole.for_each(|stripe| {
                now.changed.insert(stripe, None);
            });
            self.write(oid, to, &vec![0; (stop - to) as usize])?;
        }
        match len > 0 && end > size {
            true => self.set_size(oid, end),
            false => Ok(()),
        }
    }

    fn truncate(&mut self, oid: &ObjectId, size: u64) -> Result<(), IoError> {
        if self.now(oid)?.size.is_none_or(|old| size >= old) {
            return self.set_size(oid, size);
        }
        let layout = self.coding.layout;
        let last = size / layout.stripe();
        let rest = (size % layout.stripe()) as usize;
        let mut kept = Vec::new();
        if rest > 0 {
            kept = self.stripe(oid, last)?;
            kept[rest..].fill(0);
        }
        for (n, txn) in self.out.iter_mut().enumerate() {
            txn.ops.push(Op::Truncate {
                oid: on_shard(oid, n),
                size: layout.shard_size(n, size),
            });
        }
        let now = self.now(oid)?;
        now.changed.split_off(&last);
        if let Some((_, shown)) = &mut now.base {
            *shown = size.min(*shown);
        }
        if rest > 0 {
            // What is left of the data is as it was; parity is of less than before.
            self.write_stripes(oid, &(last..last + 1), kept, &(size..size), size)?;
        }
        self.set_size(oid, size)
    }
}

/// Of a data shard the bytes that a range of the object covers; an empty range where it covers none.
fn touched(layout: &Layout, shard: usize, range: &Range<u64>) -> (u64, u64) {
    let pieces = layout.pieces(range.start, range.end - range.start);
    let mut ours = pieces.filter(|p| p.shard == shard);
    let Some(first) = ours.next() else {
        return (0, 0);
    };
    let last = ours.last().unwrap_or(first);
    (first.at, last.at + last.len)
}

/// The same step on another shard's objects.
pub(crate) fn moved(op: &Op, shard: usize) -> Op {
    let mut op = op.clone();
    let there = |oid: &mut ObjectId| oid.shard = shard as i8;
    match &mut op {
        Op::Touch { oid }
        | Op::Write { oid, .. }
        | Op::Zero { oid, .. }
        | Op::Truncate { oid, .. }
        | Op::Remove { oid }
        | Op::SetAttrs { oid, .. }
        | Op::RemoveAttr { oid, .. }
        | Op::RemoveAttrs { oid }
        | Op::OmapSet { oid, .. }
        | Op::OmapRemove { oid, .. }
        | Op::OmapRemoveRange { oid, .. }
        | Op::OmapClear { oid }
        | Op::OmapSetHeader { oid, .. } => there(oid),
        Op::Clone { src, dst } | Op::CloneRange { src, dst, .. } | Op::Rename { src, dst } => {
            there(src);
            there(dst);
        }
        Op::CreateCollection
        | Op::RemoveCollection
        | Op::SetMeta { .. }
        | Op::LogAppend { .. }
        | Op::LogTrim { .. } => {}
    }
    op
}
