//! A store in memory for tests: a transaction is applied to a copy and swapped in whole. It counts what is
//! submitted; durability is what the test says. `fail_next` makes the next submit fail. With [`Cold`] its data
//! lies on a disk as slow as the test likes.

use crate::store::{IoError, ObjectReads, ObjectStat, ObjectStore, OmapPage, Seq, Ticket};
use bytes::{Bytes, BytesMut};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use types::{EVersion, Errno, ObjectId, Op, SPgId, Transaction};

#[derive(Debug, Clone, Default)]
struct Object {
    data: BytesMut,
    attrs: BTreeMap<Bytes, Bytes>,
    header: Bytes,
    omap: BTreeMap<Bytes, Bytes>,
    /// Blocks whose checksum does not fit.
    bad: BTreeSet<u64>,
    /// Omap and its header cannot be read.
    bad_rows: bool,
}

impl Object {
    fn is_bad(&self, start: u64, end: u64) -> bool {
        start < end
            && self
                .bad
                .range(start / BLOCK..end.div_ceil(BLOCK))
                .next()
                .is_some()
    }

    fn rows(&self) -> Result<(), IoError> {
        match self.bad_rows {
            true => Err(IoError("an omap cannot be read".into())),
            false => Ok(()),
        }
    }

    /// The range gets new content: whole blocks forget what they were, parts of bad ones cannot be completed.
    fn overwrite(&mut self, start: u64, end: u64) -> Result<(), Errno> {
        let size = self.data.len() as u64;
        let whole = |b: &u64| start <= b * BLOCK && end >= ((b + 1) * BLOCK).min(size);
        let hit: Vec<u64> = self
            .bad
            .range(start / BLOCK..end.div_ceil(BLOCK))
            .copied()
            .collect();
        if start < end && !hit.iter().all(whole) {
            return Err(Errno::EIO);
        }
        self.bad.retain(|b| start >= end || !hit.contains(b));
        Ok(())
    }
}

#[derive(Debug, Clone, Default)]
struct Collection {
    meta: Option<Bytes>,
    log: BTreeMap<EVersion, Bytes>,
    /// The newest entry that there ever was: none that is older comes after it.
    head: EVersion,
}

#[derive(Debug, Clone, Default)]
pub struct MemoryStore {
    objects: BTreeMap<ObjectId, Object>,
    collections: BTreeMap<SPgId, Collection>,
    pub seq: Seq,
    pub fail_next: Option<Errno>,
    /// Transactions behind this number fail.
    pub refuse_from: Option<Seq>,
    /// No room for data: whatever writes some is refused.
    pub full: bool,
    /// Steps of the last transaction, for tests that look at its shape.
    pub last: Vec<Op>,
    /// Reads of objects fail while it is set.
    pub unreadable: bool,
    /// Rows that are handed on where they lie end in an error behind so many.
    pub rows_until: Option<usize>,
    pub cold: Option<Cold>,
}

#[derive(Debug, Clone)]
struct Prefetch {
    oid: ObjectId,
    first: u64,
    end: u64,
    ended: bool,
}

/// No data is in memory but what a prefetch that has ended brought, until it is released.
#[derive(Debug, Clone, Default)]
pub struct Cold {
    last: Ticket,
    held: BTreeMap<Ticket, Prefetch>,
    lucky: u64,
    asked: u64,
    /// Reads that had to wait for the disk since their range was not prefetched.
    pub blocked: usize,
}

impl Cold {
    /// Of `lucky` prefetches one finds its range in memory after all; 0: none does.
    pub fn new(lucky: u64) -> Self {
        Self {
            lucky,
            ..Self::default()
        }
    }

    /// Prefetches that have not ended.
    pub fn reading(&self) -> Vec<Ticket> {
        let mut reading: Vec<Ticket> = self.held.keys().copied().collect();
        reading.retain(|t| !self.held[t].ended);
        reading
    }

    /// Prefetches that were not released.
    pub fn held(&self) -> usize {
        self.held.len()
    }

    pub fn end(&mut self, ticket: Ticket) {
        if let Some(p) = self.held.get_mut(&ticket) {
            p.ended = true;
        }
    }

    fn begin(&mut self, oid: &ObjectId, first: u64, end: u64) -> Option<Ticket> {
        self.asked += 1;
        if first >= end || self.lucky > 0 && self.asked.is_multiple_of(self.lucky) {
            return None;
        }
        self.last += 1;
        let prefetch = Prefetch {
            oid: oid.clone(),
            first,
            end,
            ended: false,
        };
        self.held.insert(self.last, prefetch);
        Some(self.last)
    }

    fn read(&mut self, oid: &ObjectId, mut at: u64, end: u64) {
        while at < end {
            let brought = |p: &&Prefetch| p.ended && p.oid == *oid && p.first <= at && at < p.end;
            match self.held.values().find(brought) {
                Some(p) => at = p.end,
                None => {
                    self.blocked += 1;
                    return;
                }
            }
        }
    }
}

const BLOCK: u64 = 4096;

/// A real store bounds a transaction by its bytes; this is below what that comes to.
const OPS_MAX: usize = 1000;

/// A real store allows more; a test that makes such an object has gone wrong.
const OBJECT_BYTES_MAX: u64 = 1 << 30;

type Step = Result<(), Errno>;

impl MemoryStore {
    pub fn object_count(&self) -> usize {
        self.objects.len()
    }

    /// The block at `offset` cannot be read any more.
    pub fn spoil(&mut self, oid: &ObjectId, offset: u64) {
        if let Some(o) = self.objects.get_mut(oid) {
            o.bad.insert(offset / BLOCK);
        }
    }

    /// Omap and its header cannot be read any more.
    pub fn spoil_rows(&mut self, oid: &ObjectId) {
        if let Some(o) = self.objects.get_mut(oid) {
            o.bad_rows = true;
        }
    }

    /// A byte is another one, and nothing tells.
    pub fn alter(&mut self, oid: &ObjectId, offset: usize) {
        if let Some(b) = self.objects.get_mut(oid).and_then(|o| o.data.get_mut(offset)) {
            *b ^= 0xff;
        }
    }

    pub fn lose(&mut self, oid: &ObjectId) {
        self.objects.remove(oid);
    }

    pub fn lose_attr(&mut self, oid: &ObjectId, name: &[u8]) {
        if let Some(o) = self.objects.get_mut(oid) {
            o.attrs.remove(name);
        }
    }

    pub fn put_row(&mut self, oid: &ObjectId, key: &'static [u8]) {
        if let Some(o) = self.objects.get_mut(oid) {
            o.omap
                .insert(Bytes::from_static(key), Bytes::from_static(b"stray"));
        }
    }

    fn object(&mut self, oid: &ObjectId) -> Result<&mut Object, Errno> {
        self.objects.get_mut(oid).ok_or(Errno::ENOENT)
    }

    fn make(&mut self, oid: &ObjectId) -> &mut Object {
        self.objects.entry(oid.clone()).or_default()
    }

    fn write(&mut self, oid: &ObjectId, offset: u64, data: &[u8]) -> Step {
        let end = offset.checked_add(data.len() as u64);
        if end.is_none_or(|end| end > OBJECT_BYTES_MAX) {
            return Err(Errno::EFBIG);
        }
        let o = self.make(oid);
        if data.is_empty() {
            return Ok(());
        }
        o.overwrite(offset, offset + data.len() as u64)?;
        let (start, end) = (offset as usize, offset as usize + data.len());
        if o.data.len() < end {
            o.data.resize(end, 0);
        }
        o.data[start..end].copy_from_slice(data);
        Ok(())
    }

    /// A real store reads the rest of a block that is changed in part.
    fn complete(&mut self, op: &Op) {
        let mut parts: Vec<(ObjectId, u64)> = Vec::new();
        let mut part = |oid: &ObjectId, at: u64| {
            if !at.is_multiple_of(BLOCK) {
                parts.push((oid.clone(), at / BLOCK * BLOCK));
            }
        };
        let size = |oid: &ObjectId| self.objects.get(oid).map_or(0, |o| o.data.len() as u64);
        match op {
            Op::Write { oid, offset, data } => {
                part(oid, *offset);
                let end = offset.saturating_add(data.len() as u64);
                if end < size(oid) {
                    part(oid, end);
                }
            }
            Op::Zero { oid, offset, len } => {
                part(oid, *offset);
                part(oid, offset.saturating_add(*len));
            }
            Op::Truncate { oid, size: to } if *to < size(oid) => part(oid, *to),
            Op::CloneRange { src, len, .. } => part(src, *len),
            _ => {}
        }
        for (oid, block) in parts {
            let end = block.saturating_add(BLOCK).min(size(&oid));
            if let Some(cold) = &mut self.cold {
                cold.read(&oid, block, end);
            }
        }
    }

    fn step_data(&mut self, op: &Op) -> Option<Step> {
        Some(match op {
            Op::Touch { oid } => {
                self.make(oid);
                Ok(())
            }
            Op::Write { oid, offset, data } => self.write(oid, *offset, data),
            Op::Zero { oid, len, .. } | Op::Truncate { oid, size: len } if *len > OBJECT_BYTES_MAX => {
                self.object(oid).and(Err(Errno::EFBIG))
            }
            Op::Zero { oid, offset, len } => match self.object(oid) {
                Ok(_) => self.write(oid, *offset, &vec![0; *len as usize]),
                Err(e) => Err(e),
            },
            Op::Truncate { oid, size } => self.object(oid).and_then(|o| {
                let old = o.data.len() as u64;
                o.overwrite(*size, old.max(*size))?;
                o.data.resize(*size as usize, 0);
                Ok(())
            }),
            Op::Remove { oid } => self.objects.remove(oid).map(|_| ()).ok_or(Errno::ENOENT),
            Op::Clone { src, dst } => self.object(src).map(|o| o.clone()).map(|o| {
                self.objects.insert(dst.clone(), o);
            }),
            Op::CloneRange {
                src,
                dst,
                src_offset,
                len,
                dst_offset,
            } => self.object(src).map(|o| o.data.clone()).and_then(|data| {
                let start = (*src_offset as usize).min(data.len());
                let end = start.saturating_add(*len as usize).min(data.len());
                self.write(dst, *dst_offset, &data[start..end])
            }),
            Op::Rename { src, dst } if self.objects.contains_key(dst) => {
                self.object(src).and(Err(Errno::EEXIST))
            }
            Op::Rename { src, dst } => match self.objects.remove(src) {
                Some(o) => {
                    self.objects.insert(dst.clone(), o);
                    Ok(())
                }
                None => Err(Errno::ENOENT),
            },
            _ => return None,
        })
    }

    fn step_rows(&mut self, op: &Op) -> Option<Step> {
        Some(match op {
            Op::SetAttrs { oid, attrs } => self.object(oid).map(|o| o.attrs.extend(attrs.iter().cloned())),
            Op::RemoveAttr { oid, name } => self.object(oid).map(|o| {
                o.attrs.remove(name);
            }),
            Op::RemoveAttrs { oid } => self.object(oid).map(|o| o.attrs.clear()),
            Op::OmapSet { oid, entries } => self.object(oid).map(|o| o.omap.extend(entries.iter().cloned())),
            Op::OmapRemove { oid, keys } => self.object(oid).map(|o| o.omap.retain(|k, _| !keys.contains(k))),
            Op::OmapRemoveRange { oid, first, last } => self
                .object(oid)
                .map(|o| o.omap.retain(|k, _| k < first || k >= last)),
            Op::OmapClear { oid } => self.object(oid).map(|o| {
                o.omap.clear();
                o.header = Bytes::new();
            }),
            Op::OmapSetHeader { oid, header } => self.object(oid).map(|o| o.header = header.clone()),
            _ => return None,
        })
    }

    fn step_collection(&mut self, id: SPgId, op: &Op) -> Step {
        if let Op::CreateCollection = op {
            let new = self.collections.insert(id, Collection::default()).is_none();
            return if new { Ok(()) } else { Err(Errno::EEXIST) };
        }
        if let Op::RemoveCollection = op {
            return self.collections.remove(&id).map(drop).ok_or(Errno::ENOENT);
        }
        let c = self.collections.get_mut(&id).ok_or(Errno::ENOENT)?;
        match op {
            Op::SetMeta { meta } => c.meta = Some(meta.clone()).filter(|m| !m.is_empty()),
            Op::LogAppend { version, entry } => {
                if *version <= c.head {
                    return Err(Errno::EINVAL);
                }
                c.head = *version;
                c.log.insert(*version, entry.clone());
            }
            Op::LogTrim { to } => c.log.retain(|v, _| v > to),
            _ => return Err(Errno::EOPNOTSUPP),
        }
        Ok(())
    }

    fn read_object(&self, oid: &ObjectId) -> Result<Option<&Object>, IoError> {
        if self.unreadable {
            return Err(IoError(format!("{}: unreadable", oid.object)));
        }
        Ok(self.objects.get(oid))
    }
}

impl ObjectReads for MemoryStore {
    fn stat(&mut self, oid: &ObjectId) -> Result<Option<ObjectStat>, IoError> {
        let o = self.read_object(oid)?;
        let bytes =
            |m: &BTreeMap<Bytes, Bytes>| m.iter().map(|(k, v)| (k.len() + v.len()) as u64).sum::<u64>();
        Ok(o.map(|o| ObjectStat {
            size: o.data.len() as u64,
            omap_keys: o.omap.len() as u64,
            omap_bytes: bytes(&o.omap),
            weight: 256 + bytes(&o.attrs),
        }))
    }

    fn read(&mut self, oid: &ObjectId, offset: u64, len: u64) -> Result<Bytes, IoError> {
        let Some(o) = self.read_object(oid)? else {
            return Ok(Bytes::new());
        };
        let start = (offset as usize).min(o.data.len());
        let end = start.saturating_add(len as usize).min(o.data.len());
        if o.is_bad(start as u64, end as u64) {
            return Err(IoError(format!("{}: a bad block", oid.object)));
        }
        let data = Bytes::copy_from_slice(&o.data[start..end]);
        if let Some(cold) = &mut self.cold {
            cold.read(oid, start as u64, end as u64);
        }
        Ok(data)
    }

    fn prefetch(&mut self, oid: &ObjectId, offset: u64, len: u64) -> Option<Ticket> {
        let size = self.objects.get(oid)?.data.len() as u64;
        let end = offset.saturating_add(len).min(size);
        self.cold.as_mut()?.begin(oid, offset, end)
    }

    fn release(&mut self, ticket: Ticket) {
        let held = self.cold.as_mut().and_then(|c| c.held.remove(&ticket));
        assert!(held.is_some(), "ticket {ticket} released twice, or not ours");
    }

    /// 4 KiB blocks that are not all zeros, as if zeros were never allocated.
    fn extents(&mut self, oid: &ObjectId, offset: u64, len: u64) -> Result<Vec<(u64, u64)>, IoError> {
        let Some(o) = self.read_object(oid)? else {
            return Ok(Vec::new());
        };
        let end = offset.saturating_add(len).min(o.data.len() as u64);
        let mut out: Vec<(u64, u64)> = Vec::new();
        let mut at = offset;
        while at < end {
            let stop = ((at / BLOCK + 1) * BLOCK).min(end);
            let whole =
                (at / BLOCK * BLOCK) as usize..((at / BLOCK + 1) * BLOCK).min(o.data.len() as u64) as usize;
            if o.data[whole].iter().any(|b| *b != 0) {
                match out.last_mut() {
                    Some(last) if last.0 + last.1 == at => last.1 += stop - at,
                    _ => out.push((at, stop - at)),
                }
            }
            at = stop;
        }
        Ok(out)
    }

    fn attr(&mut self, oid: &ObjectId, name: &[u8]) -> Result<Option<Bytes>, IoError> {
        Ok(self.read_object(oid)?.and_then(|o| o.attrs.get(name).cloned()))
    }

    fn attr_sizes(&mut self, oid: &ObjectId) -> Result<Vec<(Bytes, u64)>, IoError> {
        let all = self.attrs(oid)?;
        Ok(all.into_iter().map(|(n, v)| (n, v.len() as u64)).collect())
    }

    fn attrs(&mut self, oid: &ObjectId) -> Result<Vec<(Bytes, Bytes)>, IoError> {
        let o = self.read_object(oid)?;
        Ok(o.map_or_else(Vec::new, |o| o.attrs.clone().into_iter().collect()))
    }

    fn omap_header(&mut self, oid: &ObjectId) -> Result<Bytes, IoError> {
        let o = self.read_object(oid)?;
        o.map_or(Ok(()), Object::rows)?;
        Ok(o.map_or_else(Bytes::new, |o| o.header.clone()))
    }

    fn omap_get(&mut self, oid: &ObjectId, keys: &[Bytes]) -> Result<Vec<(Bytes, Bytes)>, IoError> {
        let Some(o) = self.read_object(oid)? else {
            return Ok(Vec::new());
        };
        let found = keys.iter().filter_map(|k| o.omap.get_key_value(k));
        Ok(found.map(|(k, v)| (k.clone(), v.clone())).collect())
    }

    /// As the real store: the page ends before the row that would pass `max_bytes`.
    fn omap_range(
        &mut self,
        oid: &ObjectId,
        from: Bound<&[u8]>,
        max_entries: usize,
        max_bytes: usize,
    ) -> Result<OmapPage, IoError> {
        let mut page = OmapPage::default();
        let Some(o) = self.read_object(oid)? else {
            return Ok(page);
        };
        o.rows()?;
        let mut bytes = 0;
        for (k, v) in o.omap.range::<[u8], _>((from, Bound::Unbounded)) {
            bytes += k.len() + v.len();
            if !page.rows.is_empty() && (page.rows.len() >= max_entries || bytes > max_bytes) {
                page.more = true;
                break;
            }
            page.rows.push((k.clone(), v.clone()));
        }
        Ok(page)
    }

    fn omap_each(
        &mut self,
        oid: &ObjectId,
        from: Bound<&[u8]>,
        max_entries: usize,
        max_bytes: usize,
        each: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<bool, IoError> {
        let page = self.omap_range(oid, from, max_entries, max_bytes)?;
        for (n, (k, v)) in page.rows.iter().enumerate() {
            if self.rows_until == Some(n) {
                return Err(IoError(format!("{}: a row cannot be read", oid.object)));
            }
            if !each(k, v) {
                return Ok(false);
            }
        }
        Ok(page.more)
    }

    fn list(&mut self, from: &ObjectId, max: usize) -> Result<Vec<ObjectId>, IoError> {
        Ok(self
            .objects
            .range(from..)
            .take(max)
            .map(|(o, _)| o.clone())
            .collect())
    }

    fn meta(&mut self, collection: SPgId) -> Result<Option<Bytes>, IoError> {
        Ok(self.collections.get(&collection).and_then(|c| c.meta.clone()))
    }

    fn log_entries(&mut self, collection: SPgId) -> Result<Vec<(EVersion, Bytes)>, IoError> {
        let c = self.collections.get(&collection);
        Ok(c.map_or_else(Vec::new, |c| c.log.iter().map(|(v, e)| (*v, e.clone())).collect()))
    }

    fn has_collection(&mut self, collection: SPgId) -> Result<bool, IoError> {
        Ok(self.collections.contains_key(&collection))
    }
}

/// What attributes, rows and log entries of one transaction may take, as in the real store.
const ROW_BYTES_MAX: usize = 16 << 20;

/// Operations that take much of a record: of those on one object's attributes, one behind the other, only the first does.
fn weighty(ops: &[Op]) -> usize {
    let mut before = None;
    let more = |op: &&Op| {
        let oid = match op {
            Op::SetAttrs { oid, .. } | Op::RemoveAttr { oid, .. } => Some(oid.clone()),
            _ => None,
        };
        let same = oid.is_some() && oid == before;
        before = oid;
        !same
    };
    ops.iter().filter(more).count()
}

fn row_bytes(op: &Op) -> usize {
    let rows = |rows: &[(Bytes, Bytes)]| rows.iter().map(|(k, v)| k.len() + v.len() + 16).sum();
    match op {
        Op::SetAttrs { attrs, .. } => rows(attrs),
        Op::OmapSet { entries, .. } => rows(entries),
        Op::OmapSetHeader { header, .. } => header.len(),
        Op::LogAppend { entry, .. } => entry.len(),
        _ => 0,
    }
}

impl ObjectStore for MemoryStore {
    fn submitted(&self) -> Seq {
        self.seq
    }

    fn submit(&mut self, txn: &Transaction) -> Result<Seq, Errno> {
        if let Some(e) = self.fail_next.take() {
            return Err(e);
        }
        if self.refuse_from.is_some_and(|s| self.seq >= s) {
            return Err(Errno::EIO);
        }
        if self.full && txn.ops.iter().any(|op| matches!(op, Op::Write { .. })) {
            return Err(Errno::ENOSPC);
        }
        if weighty(&txn.ops) > OPS_MAX || txn.ops.iter().map(row_bytes).sum::<usize>() > ROW_BYTES_MAX {
            return Err(Errno::EFBIG);
        }
        let mut next = self.clone();
        for op in &txn.ops {
            if !matches!(op, Op::CreateCollection) && !next.collections.contains_key(&txn.collection) {
                return Err(Errno::ENOENT);
            }
            if next.cold.is_some() {
                next.complete(op);
            }
            let step = next.step_data(op).or_else(|| next.step_rows(op));
            step.unwrap_or_else(|| next.step_collection(txn.collection, op))?;
        }
        next.seq += 1;
        next.last = txn.ops.clone();
        *self = next;
        Ok(self.seq)
    }
}
