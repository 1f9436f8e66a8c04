//! Reads of what is visible: data with holes, attributes, omap, lists, collections.
//!
//! Invariants: every block that comes from the disk is checked against its checksum before any of it is
//! given out. Nothing here changes the state.

use crate::block_row::block_crc;
use crate::codec::Input;
use crate::compress::Blob;
use crate::generation::OmapDelta;
use crate::index::{Each, Table};
use crate::onode::{BLOCK, Extent, Onode, Value};
use crate::state::State;
use crate::values::{OmapPage, Stat, Ticket};
use crate::{Error, Result, key};
use bytes::{Bytes, BytesMut};
use io::disk::page_of;
use std::collections::{BTreeMap, BTreeSet};
use std::iter::Peekable;
use std::ops::Bound;
use std::sync::Arc;
use types::{EVersion, ObjectId, SPgId};

/// Longer runs are not kept: whoever reads so much reads it once.
const CACHED_READ_BYTES: u64 = 64 << 10;

impl State {
    fn need(&self, oid: &ObjectId) -> Result<Arc<Onode>> {
        self.object(oid)?.ok_or_else(|| Error::no_object(oid))
    }

    pub fn stat(&self, oid: &ObjectId) -> Result<Stat> {
        let o = self.need(oid)?;
        Ok(Stat {
            size: o.size,
            allocated: o.extents.blocks() * BLOCK,
            omap_keys: o.omap_keys,
            omap_bytes: o.omap_bytes,
            weight: o.weight() as u64,
        })
    }

    pub fn read(&self, oid: &ObjectId, offset: u64, len: u64) -> Result<Bytes> {
        let o = self.need(oid)?;
        self.read_onode(&o, offset, len).map_err(|e| match e {
            Error::Corrupt { offset, .. } => Error::Corrupt {
                object: oid.object.to_string(),
                offset,
            },
            e => e,
        })
    }

    /// Like `read`, in as many pieces as it lies in memory: without a copy where a prefetch brought it.
    pub fn read_pieces(&self, oid: &ObjectId, offset: u64, len: u64) -> Result<Vec<Bytes>> {
        let o = self.need(oid)?;
        let end = offset.saturating_add(len).min(o.size);
        let kept = match offset < end {
            true => self.read_kept(&o, offset / BLOCK, end.div_ceil(BLOCK))?,
            false => None,
        };
        let Some(mut pieces) = kept else {
            return Ok(vec![self.read(oid, offset, len)?]);
        };
        // Whole blocks were read: what is before and behind the range goes.
        if let Some(first) = pieces.first_mut() {
            *first = first.slice((offset % BLOCK) as usize..);
        }
        let behind = end.next_multiple_of(BLOCK) - end;
        if let Some(last) = pieces.last_mut() {
            last.truncate(last.len() - behind as usize);
        }
        Ok(pieces)
    }

    /// Like `read`, for a record at hand.
    pub fn read_onode(&self, o: &Onode, offset: u64, len: u64) -> Result<Bytes> {
        let end = offset.saturating_add(len).min(o.size);
        if offset >= end {
            return Ok(Bytes::new());
        }
        let (first, last) = (offset / BLOCK, end.div_ceil(BLOCK));
        let skip = (offset - first * BLOCK) as usize;
        let wanted = skip..skip + (end - offset) as usize;
        match self.read_kept(o, first, last)?.as_deref() {
            Some([whole]) => return Ok(whole.slice(wanted)),
            Some(pieces) => return Ok(Bytes::from(pieces.concat()).slice(wanted)),
            None => {}
        }
        let mut out = BytesMut::zeroed(((last - first) * BLOCK) as usize);
        self.read_blocks(o, first, &mut out)?;
        Ok(out.freeze().slice(wanted))
    }

    /// The blocks `[first, last)` in pieces, without a copy, if a prefetch brought what is not in memory anyway. None:
    /// the long way, which also finds out what is wrong with a block that does not fit.
    fn read_kept(&self, o: &Onode, first: u64, last: u64) -> Result<Option<Vec<Bytes>>> {
        if self.reads.is_empty() {
            return Ok(None);
        }
        let mut pieces = Vec::new();
        let mut at = first;
        for e in o.extents.within(first, last) {
            if e.at != at || e.blob.is_some() {
                return Ok(None);
            }
            at += e.len;
            let mut done = 0;
            while done < e.len {
                match self.piece(e.phys + done, e.len - done, e.len * BLOCK <= CACHED_READ_BYTES)? {
                    Some(piece) => {
                        done += piece.len() as u64 / BLOCK;
                        pieces.push(piece);
                    }
                    None => return Ok(None),
                }
            }
        }
        Ok((at == last).then_some(pieces))
    }

    /// Blocks from `phys` on that are in memory, in one piece, checked; `max` at most, and at least one.
    fn piece(&self, phys: u64, max: u64, keep: bool) -> Result<Option<Bytes>> {
        let newer = |b: u64| self.dirty(b).and_then(|d| d.data.as_ref());
        if let Some(data) = newer(phys) {
            return Ok(Some(data.clone()));
        }
        let Some((data, alone)) = self.reads.find(phys) else {
            let cached = self.blocks.borrow_mut().page(phys);
            return match cached {
                Some(data) if block_crc(&data) == self.crc(phys)? => Ok(Some(data)),
                _ => Ok(None),
            };
        };
        let mut len = 0;
        for (b, block) in (phys..phys + max).zip(data.chunks_exact(BLOCK as usize)) {
            if len > 0 && newer(b).is_some() {
                break;
            }
            if block_crc(block) != self.crc(b)? {
                return Ok(None);
            }
            if keep {
                let own = if alone { data.clone() } else { page_of(block) };
                self.blocks.borrow_mut().put(b, own);
            }
            len += block.len();
        }
        Ok((len > 0).then(|| data.slice(..len)))
    }

    /// Fills `out` (zeros, whole blocks) with what is mapped from logical block `first` on.
    pub fn read_blocks(&self, o: &Onode, first: u64, out: &mut [u8]) -> Result<()> {
        let last = first + out.len() as u64 / BLOCK;
        for e in o.extents.within(first, last) {
            let at = ((e.at - first) * BLOCK) as usize;
            let out = &mut out[at..at + (e.len * BLOCK) as usize];
            match &e.blob {
                None => self.read_extent(&e, out)?,
                Some(blob) => {
                    let whole = self.unpacked(&e, blob)?;
                    let skip = usize::from(blob.skip) * BLOCK as usize;
                    out.copy_from_slice(&whole[skip..skip + out.len()]);
                }
            }
        }
        Ok(())
    }

    /// What a blob stands for, all of it.
    fn unpacked(&self, e: &Extent, blob: &Blob) -> Result<Bytes> {
        // A damaged record may say something else of the same blocks.
        let blob = &blob.whole();
        if let Some((phys, kept, data)) = self.unpacked.borrow().as_ref()
            && (*phys, kept) == (e.phys, blob)
        {
            return Ok(data.clone());
        }
        let corrupt = || Error::Corrupt {
            object: String::new(),
            offset: e.at * BLOCK,
        };
        let all = Extent {
            len: blob.disk_blocks(),
            blob: None,
            ..*e
        };
        let mut packed = vec![0; (all.len * BLOCK) as usize];
        // Whichever block of it is bad: it is this part of the object that cannot be read.
        self.read_extent(&all, &mut packed).map_err(|e| match e {
            Error::Corrupt { .. } => corrupt(),
            e => e,
        })?;
        let data = self.codecs.borrow_mut().unpack(blob, &packed);
        let data = Bytes::from(data.map_err(|_| corrupt())?);
        *self.unpacked.borrow_mut() = Some((e.phys, *blob, data.clone()));
        Ok(data)
    }

    fn read_extent(&self, e: &Extent, out: &mut [u8]) -> Result<()> {
        let newer = |b: u64| self.dirty(b).and_then(|d| d.data.as_ref());
        let layered = !self.active.blocks.is_empty() || self.frozen.is_some();
        let keep = e.len * BLOCK <= CACHED_READ_BYTES;
        let mut i = 0;
        while i < e.len {
            let block = &mut out[(i * BLOCK) as usize..((i + 1) * BLOCK) as usize];
            if layered && let Some(data) = newer(e.phys + i) {
                block.copy_from_slice(data);
                i += 1;
                continue;
            }
            let cached = self.blocks.borrow_mut().get(e.phys + i, block);
            if cached && block_crc(block) == self.crc(e.phys + i)? {
                i += 1;
                continue;
            }
            let mut n = 1;
            let cache = self.blocks.borrow();
            let empty = cache.is_empty();
            while i + n < e.len
                && (empty || !cache.contains(e.phys + i + n))
                && (!layered || newer(e.phys + i + n).is_none())
            {
                n += 1;
            }
            drop(cache);
            let run = Extent {
                at: e.at + i,
                phys: e.phys + i,
                len: n,
                ..*e
            };
            self.read_run(
                &run,
                &mut out[(i * BLOCK) as usize..((i + n) * BLOCK) as usize],
                keep,
            )?;
            i += n;
        }
        Ok(())
    }

    /// Blocks that only the disk has, checked.
    fn read_run(&self, run: &Extent, out: &mut [u8], keep: bool) -> Result<()> {
        self.read_disk(run.phys, out)?;
        for (j, block) in out.chunks_exact_mut(BLOCK as usize).enumerate() {
            let phys = run.phys + j as u64;
            let crc = self.crc(phys)?;
            if block_crc(block) != crc {
                // Once more, from the disk itself: what came on another way proves nothing against it.
                self.read_device(phys, block)?;
                if block_crc(block) != crc {
                    return Err(Error::Corrupt {
                        object: String::new(),
                        offset: (run.at + j as u64) * BLOCK,
                    });
                }
            }
            if keep {
                self.blocks.borrow_mut().put(phys, page_of(block));
            }
        }
        Ok(())
    }

    fn read_device(&self, phys: u64, out: &mut [u8]) -> Result<()> {
        self.file
            .read_at(out, phys * BLOCK)
            .map_err(|e| Error::io(&self.path, "read data", e))
    }

    /// Begins the reads that a `read` of the range would wait for.
    pub fn prefetch(&mut self, oid: &ObjectId, offset: u64, len: u64) -> Result<Option<Ticket>> {
        if self.reads.is_off() {
            return Ok(None);
        }
        let Some(o) = self.object(oid)? else {
            return Ok(None);
        };
        let end = offset.saturating_add(len).min(o.size);
        if offset >= end {
            return Ok(None);
        }
        let mut runs: Vec<(u64, u64)> = Vec::new();
        let cache = self.blocks.borrow();
        // Each part of a blob names all of its blocks.
        let mut blobs = BTreeSet::new();
        for e in o.extents.within(offset / BLOCK, end.div_ceil(BLOCK)) {
            if e.blob.is_some() && !blobs.insert(e.phys) {
                continue;
            }
            for b in e.disk() {
                let here = self.dirty(b).is_some_and(|d| d.data.is_some())
                    || cache.contains(b)
                    || self.on_the_way(b).is_some();
                match runs.last_mut() {
                    _ if here => {}
                    Some((start, n)) if *start + *n == b => *n += 1,
                    _ => runs.push((b, 1)),
                }
            }
        }
        drop(cache);
        Ok(self.reads.start(&runs))
    }

    /// Lets go of what is kept in memory of the range only to be read faster: the next read asks the disk.
    pub fn uncache(&mut self, oid: &ObjectId, offset: u64, len: u64) -> Result<()> {
        let Some(o) = self.object(oid)? else {
            return Ok(());
        };
        let end = offset.saturating_add(len).min(o.size);
        if offset < end {
            self.unpacked.take();
            let mut blocks = self.blocks.borrow_mut();
            for e in o.extents.within(offset / BLOCK, end.div_ceil(BLOCK)) {
                e.disk().for_each(|b| blocks.remove(b));
            }
        }
        Ok(())
    }

    /// Data from `block` on that need not be read: direct data that is not on the disk yet, of this transaction
    /// or of one before, or what a prefetch brought.
    fn on_the_way(&self, block: u64) -> Option<Bytes> {
        if self.tx.directs.is_empty() && self.inflight.is_empty() && self.reads.is_empty() {
            return None;
        }
        let own = self.tx.directs.iter().find_map(|d| {
            let skip = block.checked_sub(d.offset / BLOCK)? * BLOCK;
            (skip < d.data.len() as u64).then(|| d.data.slice(skip as usize..))
        });
        own.or_else(|| self.inflight.find(block))
            .or_else(|| self.reads.find(block).map(|(data, _)| data))
    }

    /// Physical blocks from the disk, or from writes on their way to it.
    fn read_disk(&self, phys: u64, out: &mut [u8]) -> Result<()> {
        let blocks = out.len() as u64 / BLOCK;
        let mut i = 0;
        while i < blocks {
            let part = &mut out[(i * BLOCK) as usize..];
            if let Some(data) = self.on_the_way(phys + i) {
                let n = data.len().min(part.len());
                part[..n].copy_from_slice(&data[..n]);
                i += n as u64 / BLOCK;
                continue;
            }
            let mut n = 1;
            while i + n < blocks && self.on_the_way(phys + i + n).is_none() {
                n += 1;
            }
            self.read_device(phys + i, &mut part[..(n * BLOCK) as usize])?;
            i += n;
        }
        Ok(())
    }

    pub fn allocated(&self, oid: &ObjectId, offset: u64, len: u64) -> Result<Vec<(u64, u64)>> {
        let o = self.need(oid)?;
        let end = offset.saturating_add(len).min(o.size);
        let mut out: Vec<(u64, u64)> = Vec::new();
        if offset >= end {
            return Ok(out);
        }
        for e in o.extents.within(offset / BLOCK, end.div_ceil(BLOCK)) {
            let from = (e.at * BLOCK).max(offset);
            let to = ((e.at + e.len) * BLOCK).min(end);
            match out.last_mut() {
                Some((at, n)) if *at + *n == from => *n += to - from,
                _ => out.push((from, to - from)),
            }
        }
        Ok(out)
    }

    pub fn attr(&self, oid: &ObjectId, name: &[u8]) -> Result<Option<Bytes>> {
        let o = self.need(oid)?;
        o.attr(name)
            .map(|v| self.value(&o, v, || key::attr_value(name)))
            .transpose()
    }

    /// Names of all attributes, ascending, and how long their values are.
    pub fn attr_sizes(&self, oid: &ObjectId) -> Result<Vec<(Bytes, u64)>> {
        let o = self.need(oid)?;
        Ok(o.attrs.iter().map(|(n, v)| (n.clone(), v.len())).collect())
    }

    pub fn attrs(&self, oid: &ObjectId) -> Result<Vec<(Bytes, Bytes)>> {
        let o = self.need(oid)?;
        let value = |(n, v): &(Bytes, Value)| Ok((n.clone(), self.value(&o, v, || key::attr_value(n))?));
        o.attrs.iter().map(value).collect()
    }

    pub fn omap_header(&self, oid: &ObjectId) -> Result<Bytes> {
        let o = self.need(oid)?;
        self.value(&o, &o.omap_header, || Bytes::from_static(key::HEADER_VALUE))
    }

    fn value(&self, o: &Onode, v: &Value, k: impl Fn() -> Bytes) -> Result<Bytes> {
        match v {
            Value::Inline(v) => Ok(v.clone()),
            Value::Row(len) => match self.omap_row(o.values, &k())? {
                Some(v) if v.len() as u64 == *len => Ok(v),
                _ => Err(self.damaged("a value has no row, or a wrong one")),
            },
        }
    }

    pub fn omap_get(&self, oid: &ObjectId, keys: &[Bytes]) -> Result<Vec<(Bytes, Bytes)>> {
        let o = self.need(oid)?;
        let mut out = Vec::new();
        for k in keys {
            if o.omap_keys > 0
                && let Some(v) = self.omap_row(o.nid, k)?
            {
                out.push((k.clone(), v));
            }
        }
        Ok(out)
    }

    pub fn omap_range(
        &self,
        oid: &ObjectId,
        from: Bound<&[u8]>,
        max_entries: usize,
        max_bytes: usize,
    ) -> Result<OmapPage> {
        let o = self.need(oid)?;
        if o.omap_keys == 0 {
            return Ok(OmapPage::default());
        }
        self.omap_page(o.nid, from, max_entries, max_bytes)
    }

    /// The same rows, handed on where they lie until `each` has enough; whether others follow (false then).
    pub fn omap_each(
        &self,
        oid: &ObjectId,
        from: Bound<&[u8]>,
        most: (usize, usize),
        each: &mut Each<'_>,
    ) -> Result<bool> {
        let o = self.need(oid)?;
        if o.omap_keys == 0 {
            return Ok(false);
        }
        self.omap_rows(o.nid, from, most, &mut |row| {
            let (k, v) = row.slices();
            each(k, v)
        })
    }

    /// Some visible rows of object number `nid`, merged from all layers.
    pub fn omap_page(
        &self,
        nid: u64,
        from: Bound<&[u8]>,
        max_entries: usize,
        max_bytes: usize,
    ) -> Result<OmapPage> {
        let mut entries = Vec::new();
        let most = (max_entries, max_bytes);
        let more = self.omap_rows(nid, from, most, &mut |row| {
            entries.push(row.owned());
            true
        })?;
        Ok(OmapPage { entries, more })
    }

    /// Hands them on one by one, at least one if there is one, then while both bounds (entries, bytes) hold and `each` has not enough;
    /// whether others follow the bounds.
    fn omap_rows(
        &self,
        nid: u64,
        from: Bound<&[u8]>,
        (max_entries, max_bytes): (usize, usize),
        each: &mut dyn FnMut(OmapRow<'_>) -> bool,
    ) -> Result<bool> {
        let newer = self.active.omap.get(&nid);
        let older = self.frozen.as_ref().and_then(|f| f.omap.get(&nid));
        let cut = newer.is_some_and(|d| d.cleared);
        let older = older.filter(|_| !cut);
        let below = !cut && !older.is_some_and(|d| d.cleared);
        let mut layers = Layers {
            newer: delta_rows(newer, from),
            older: delta_rows(older, from),
        };
        let mut filling = Filling {
            max_entries,
            max_bytes,
            entries: 0,
            bytes: 0,
            ended: false,
            more: false,
            each,
        };
        if below {
            let start = match from {
                Bound::Included(k) => Bound::Included(key::omap(nid, k)),
                Bound::Excluded(k) => Bound::Excluded(key::omap(nid, k)),
                Bound::Unbounded => Bound::Included(key::omap(nid, b"")),
            };
            let start = start.as_ref().map(|k| k.as_slice());
            let stop = key::omap(nid + 1, b"");
            let mut take = |k: &[u8], v: &[u8]| layers.over(&k[8..], v, &mut filling);
            self.snapshot
                .each(Table::Omap, start, Bound::Excluded(&stop), &mut take)?;
        }
        layers.rest(&mut filling);
        Ok(filling.more)
    }

    /// Objects from `from` on, merged from all layers.
    pub fn list(&self, from: &ObjectId, max: usize) -> Result<Vec<ObjectId>> {
        self.list_within(from, None, max)
    }

    /// The same up to and with `to`. No record is read, nor anything of what lies behind.
    pub fn list_within(&self, from: &ObjectId, to: Option<&ObjectId>, max: usize) -> Result<Vec<ObjectId>> {
        let mut out = Vec::new();
        if from.object.max || to.is_some_and(|to| to < from) {
            return Ok(out);
        }
        let start = key::object(from);
        let to = to.filter(|to| !to.object.max);
        let stop = to.map(key::object);
        let stop = stop
            .as_ref()
            .map_or(Bound::Unbounded, |k| Bound::Included(k.as_slice()));
        let mut below = self
            .snapshot
            .keys(Table::Objects, Bound::Included(&start), stop)?
            .map(|k| key::parse_object(&k?).map_err(|e| self.damaged(e.0)))
            .peekable();
        let range = || {
            (
                Bound::Included(from),
                to.map_or(Bound::Unbounded, Bound::Included),
            )
        };
        let mut newer = self.active.objects.range::<ObjectId, _>(range()).peekable();
        let nothing = BTreeMap::new();
        let frozen = self.frozen.as_ref().map_or(&nothing, |f| &f.objects);
        let mut older = frozen.range::<ObjectId, _>(range()).peekable();
        while out.len() < max {
            if let Some(Err(e)) = below.peek() {
                return Err(e.clone());
            }
            let disk = below.peek().and_then(|r| r.as_ref().ok());
            let heads = [newer.peek().map(|e| e.0), older.peek().map(|e| e.0), disk];
            let Some(least) = heads.into_iter().flatten().min().cloned() else {
                break;
            };
            let n = newer.next_if(|e| *e.0 == least).map(|e| e.1.is_some());
            let o = older.next_if(|e| *e.0 == least).map(|e| e.1.is_some());
            let d = below
                .next_if(|r| r.as_ref().is_ok_and(|b| *b == least))
                .map(|_| true);
            if n.or(o).or(d) == Some(true) {
                out.push(least);
            }
        }
        Ok(out)
    }

    pub fn meta(&self, c: &SPgId) -> Result<Bytes> {
        let found = self.collections.get(c).ok_or(Error::NoCollection(*c))?;
        Ok(found.meta.clone())
    }

    pub fn log_entries(&self, c: &SPgId) -> Result<Vec<(EVersion, Bytes)>> {
        let c = self.collections.get(c).ok_or(Error::NoCollection(*c))?;
        let mut out = Vec::new();
        let from = key::log(c.cid, EVersion::default());
        let to = key::log(c.cid + 1, EVersion::default());
        let blocks = self
            .snapshot
            .range(Table::Logs, Bound::Included(&from), Bound::Excluded(&to))?;
        for row in blocks {
            let (_, raw) = row?;
            let entries = decode_log_block(raw).map_err(|e| self.damaged(e.0))?;
            out.extend(entries.into_iter().filter(|(v, _)| *v > c.trimmed));
        }
        for g in [self.frozen.as_deref(), Some(&self.active)].into_iter().flatten() {
            let newer = g.logs.get(&c.cid).into_iter().flatten();
            out.extend(newer.filter(|(v, _)| *v > c.trimmed).cloned());
        }
        Ok(out)
    }
}

type DeltaRow<'a> = (&'a Bytes, &'a Option<Bytes>);

fn delta_rows<'a>(
    d: Option<&'a OmapDelta>,
    from: Bound<&[u8]>,
) -> Peekable<impl Iterator<Item = DeltaRow<'a>> + use<'a>> {
    let rows = d.map(|d| d.rows.range::<[u8], _>((from, Bound::Unbounded)));
    rows.into_iter().flatten().peekable()
}

/// A row of omap where it lies.
#[derive(Clone, Copy)]
enum OmapRow<'a> {
    /// In a page of the index.
    Index(&'a [u8], &'a [u8]),
    /// In a layer above it.
    Newer(&'a Bytes, &'a Bytes),
}

impl<'a> OmapRow<'a> {
    fn slices(self) -> (&'a [u8], &'a [u8]) {
        match self {
            Self::Index(k, v) => (k, v),
            Self::Newer(k, v) => (&k[..], &v[..]),
        }
    }

    fn owned(self) -> (Bytes, Bytes) {
        match self {
            Self::Index(k, v) => (Bytes::copy_from_slice(k), Bytes::copy_from_slice(v)),
            Self::Newer(k, v) => (k.clone(), v.clone()),
        }
    }
}

/// A page of rows, up to its bounds.
struct Filling<'a> {
    max_entries: usize,
    max_bytes: usize,
    entries: usize,
    bytes: usize,
    /// No other row is wanted.
    ended: bool,
    /// It is full, and another row follows.
    more: bool,
    each: &'a mut dyn FnMut(OmapRow<'_>) -> bool,
}

impl Filling<'_> {
    /// False: no other row is wanted; perhaps this one was not, since it was full before.
    fn add(&mut self, row: OmapRow<'_>) -> bool {
        let (k, v) = row.slices();
        let bytes = self.bytes + k.len() + v.len();
        if self.entries > 0 && (self.entries >= self.max_entries || bytes > self.max_bytes) {
            (self.ended, self.more) = (true, true);
            return false;
        }
        self.entries += 1;
        self.bytes = bytes;
        self.ended = !(self.each)(row);
        !self.ended
    }
}

/// Rows of the two layers above the index.
struct Layers<I: Iterator> {
    newer: Peekable<I>,
    older: Peekable<I>,
}

impl<'a, I: Iterator<Item = DeltaRow<'a>>> Layers<I> {
    /// The next key with its newest value (None: removed), if it does not come after `end`.
    fn next_up_to(&mut self, end: Option<&[u8]>) -> Option<DeltaRow<'a>> {
        let newer = self.newer.peek().map(|row| row.0);
        let older = self.older.peek().map(|row| row.0);
        let least = match (newer, older) {
            (Some(newer), Some(older)) => newer.min(older),
            (newer, older) => newer.or(older)?,
        };
        if end.is_some_and(|end| &least[..] > end) {
            return None;
        }
        let older = self.older.next_if(|row| row.0 == least);
        self.newer.next_if(|row| row.0 == least).or(older)
    }

    /// The rows before a row of the index, then that, unless one of them is in its place. False: no other is wanted.
    fn over(&mut self, key: &[u8], value: &[u8], page: &mut Filling<'_>) -> bool {
        while let Some((found, now)) = self.next_up_to(Some(key)) {
            if let Some(now) = now
                && !page.add(OmapRow::Newer(found, now))
            {
                return false;
            }
            if found[..] == *key {
                return true;
            }
        }
        page.add(OmapRow::Index(key, value))
    }

    /// Those behind the index's last row.
    fn rest(&mut self, page: &mut Filling<'_>) {
        while !page.ended
            && let Some((key, now)) = self.next_up_to(None)
        {
            if let Some(now) = now {
                page.add(OmapRow::Newer(key, now));
            }
        }
    }
}

/// A row of `Logs`: the last version (for trimming without decoding), then entries to the row's end.
pub fn decode_log_block(raw: Bytes) -> crate::codec::Decoded<Vec<(EVersion, Bytes)>> {
    let mut r = Input::new(raw);
    r.version()?;
    let mut out = Vec::new();
    while !r.is_empty() {
        out.push((r.version()?, r.bytes()?));
    }
    Ok(out)
}
