//! Steps: the only way to change the state, for new transactions and for the log's replay alike.
//!
//! Invariants: a step is deterministic; it takes blocks only where its run says so. Refusals leave the
//! transaction to be rolled back whole.

use crate::block_row::block_crc;
use crate::broken::{self, Rule};
use crate::compress::Blob;
use crate::direct::Direct;
use crate::generation::{Collection, Dirty};
use crate::onode::{BLOCK, Extent, Onode, Place, Removed, Value};
use crate::record::{Run, Step};
use crate::state::State;
use crate::{Error, Result, key};
use bytes::Bytes;
use std::ops::Bound;
use std::sync::Arc;
use types::{EVersion, ObjectId, PoolId, SPgId};

/// Rows handled at a time where an omap is walked whole.
const OMAP_PAGE: usize = 256;

impl State {
    /// Applies one step of a record that was durable.
    pub fn replay(&mut self, collection: &SPgId, step: Step) -> Result<()> {
        let end = match &step {
            Step::Inline(run, _) | Step::Direct(run, _) => run.phys.saturating_add(run.len),
            Step::Blob(run, blob, _) => run.phys.saturating_add(blob.disk_blocks()),
            _ => 0,
        };
        if end > self.alloc.blocks() {
            return Err(self.damaged("the log names a block behind the file's end"));
        }
        match step {
            Step::Inline(run, data) => {
                let mut whole = data.to_vec();
                whole.resize((run.len * BLOCK) as usize, 0);
                self.with_current(|s, o, pool| {
                    s.place(o, pool, run, false)?;
                    s.fill(run.phys, &whole);
                    Ok(())
                })
            }
            Step::Direct(run, crcs) => self.with_current(|s, o, pool| {
                s.place(o, pool, run, false)?;
                s.fill_direct(run.phys, &crcs);
                Ok(())
            }),
            Step::Blob(run, blob, crcs) => self.with_current(|s, o, pool| {
                if broken::is(Rule::ReplayTakes) {
                    // Left for others.
                } else if !s.alloc.mark(run.phys, blob.disk_blocks()) {
                    return Err(s.damaged("the log takes a block that is taken"));
                }
                s.place_blob(o, pool, run, blob, &crcs)
            }),
            other => self.step(collection, other),
        }
    }

    /// Writes a step into the record and applies it.
    pub fn emit(&mut self, collection: &SPgId, step: Step) -> Result<()> {
        step.put(&mut self.tx.record);
        self.step(collection, step)
    }

    /// Applies a step; data steps go through [`State::replay`].
    pub fn step(&mut self, collection: &SPgId, step: Step) -> Result<()> {
        match step {
            Step::Object(oid) => self.make_current(&oid),
            Step::Size(size) => self.with_current(|_, o, _| {
                o.size = size;
                Ok(())
            }),
            Step::Unmap(from, to) => self.with_current(|s, o, pool| s.unmap(o, pool, from, to)),
            Step::Remove => self.remove(),
            Step::SetAttr(n, v) => self.with_current(|s, o, _| {
                s.set_attr(o, n, v);
                Ok(())
            }),
            Step::RemoveAttr(n) => self.with_current(|s, o, _| {
                s.drop_value(o.values, o.attr(&n), || key::attr_value(&n));
                o.remove_attr(&n);
                Ok(())
            }),
            Step::RemoveAttrs => self.with_current(|s, o, _| {
                for (n, v) in std::mem::take(&mut o.attrs) {
                    s.drop_value(o.values, Some(&v), || key::attr_value(&n));
                }
                Ok(())
            }),
            Step::OmapSet(k, v) => self.with_current(|s, o, _| s.omap_set(o, k, v)),
            Step::OmapRemove(k) => self.with_current(|s, o, _| s.omap_remove(o, k)),
            Step::OmapRemoveRange(a, b) => self.with_current(|s, o, _| s.omap_remove_range(o, a, b)),
            Step::OmapClear => self.with_current(|s, o, _| {
                s.omap_clear(o);
                s.set_header(o, Bytes::new());
                Ok(())
            }),
            Step::OmapHeader(h) => self.with_current(|s, o, _| {
                s.set_header(o, h);
                Ok(())
            }),
            Step::CloneFrom(src) => self.clone_from(&src),
            Step::Share { src, from, to, len } => self.share(&src, from, to, len),
            Step::Rename(dst) => self.rename(&dst),
            Step::CreateCollection => self.create_collection(collection),
            Step::RemoveCollection => self.remove_collection(collection),
            Step::SetMeta(meta) => self.edit_collection(collection, |c| c.meta = meta),
            Step::LogAppend(v, e) => self.append_log(collection, v, e),
            Step::LogTrim(to) => self.log_trim(collection, to),
            Step::Inline(..) | Step::Direct(..) | Step::Blob(..) => {
                Err(self.damaged("a data step out of place"))
            }
        }
    }

    fn make_current(&mut self, oid: &ObjectId) -> Result<()> {
        let slot = self.slot(oid)?;
        self.tx.current = Some(slot);
        if self.tx.objects[slot].current.is_none() {
            let nid = self.draw_nid();
            self.tx.objects[slot].current = Some(Arc::new(Onode::new(nid)));
        }
        Ok(())
    }

    /// Runs `f` on a copy of the current object's record that is the transaction's own.
    pub fn with_current<T>(
        &mut self,
        f: impl FnOnce(&mut Self, &mut Onode, PoolId) -> Result<T>,
    ) -> Result<T> {
        let taken = self.tx.current.and_then(|i| {
            let t = &mut self.tx.objects[i];
            Some((i, t.oid.object.pool, t.current.take()?))
        });
        let Some((i, pool, mut o)) = taken else {
            return Err(self.damaged("a step without an object"));
        };
        let out = f(self, Arc::make_mut(&mut o), pool);
        self.tx.objects[i].current = Some(o);
        out
    }

    // --- blocks ---

    /// Maps the run; blocks already mapped as it says stay. `taken`: the allocator gave the fresh ones
    /// to this transaction already.
    pub fn place(&mut self, o: &mut Onode, pool: PoolId, run: Run, taken: bool) -> Result<()> {
        let mut i = 0;
        while i < run.len {
            let (at, phys, left) = (run.at + i, run.phys + i, run.len - i);
            let n = match o.extents.find(at) {
                Place::Mapped { phys: p, len, .. } if p == phys => {
                    i += len.min(left);
                    continue;
                }
                Place::Mapped { len, .. } | Place::Compressed { len } => {
                    let n = len.min(left);
                    self.unmap(o, pool, at, at + n)?;
                    n
                }
                Place::Hole { len } => len.min(left),
            };
            if !taken {
                if broken::is(Rule::ReplayTakes) {
                    // Left for others.
                } else if !self.alloc.mark(phys, n) {
                    return Err(self.damaged("the log takes a block that is taken"));
                }
                self.took(pool, phys, n);
            }
            o.extents.insert(Extent {
                at,
                phys,
                len: n,
                shared: false,
                blob: None,
            });
            i += n;
        }
        Ok(())
    }

    /// Maps the run to a blob whose blocks the allocator has given to this transaction.
    pub fn place_blob(
        &mut self,
        o: &mut Onode,
        pool: PoolId,
        run: Run,
        blob: Blob,
        crcs: &[u32],
    ) -> Result<()> {
        // First of all: what fails from here on gives them back.
        self.took(pool, run.phys, blob.disk_blocks());
        self.unmap(o, pool, run.at, run.at + run.len)?;
        self.count_blob(pool, &blob, 1);
        self.fill_direct(run.phys, crcs);
        o.extents.insert(Extent {
            at: run.at,
            phys: run.phys,
            len: run.len,
            shared: false,
            blob: Some(blob),
        });
        Ok(())
    }

    /// New content for physical blocks from `phys` on, to be written by a checkpoint.
    pub fn fill(&mut self, phys: u64, data: &[u8]) {
        for (b, block) in (phys..).zip(data.chunks_exact(BLOCK as usize)) {
            let entry = Dirty {
                crc: block_crc(block),
                data: Some(io::disk::page_of(block)),
            };
            self.set_block(b, Some(entry));
        }
    }

    pub fn fill_direct(&mut self, phys: u64, crcs: &[u32]) {
        for (b, crc) in (phys..).zip(crcs) {
            self.set_block(
                b,
                Some(Dirty {
                    crc: *crc,
                    data: None,
                }),
            );
        }
    }

    /// Adds fresh whole blocks that go to the disk with the batch.
    pub fn write_direct(&mut self, phys: u64, data: Bytes) {
        self.tx.directs.push(Direct {
            offset: phys * BLOCK,
            data,
        });
    }

    pub fn unmap(&mut self, o: &mut Onode, pool: PoolId, from: u64, to: u64) -> Result<()> {
        let mut out = Removed::default();
        o.extents.remove(from, to, &mut out);
        for e in out.split.iter().filter(|_| !broken::is(Rule::PartsCount)) {
            self.refer(e)?;
        }
        out.gone.into_iter().try_for_each(|e| self.release(pool, e))
    }

    /// One more reference to each block of an extent.
    fn refer(&mut self, e: &Extent) -> Result<()> {
        for b in e.disk() {
            let n = self.refs(b)?;
            self.set_refs(b, n + 1);
        }
        Ok(())
    }

    /// Gives up one reference to each block of an extent.
    fn release(&mut self, pool: PoolId, e: Extent) -> Result<()> {
        if let Some(blob) = e.blob {
            return self.release_blob(pool, &e, &blob);
        }
        if !e.shared {
            self.free(pool, e.phys, e.len);
            return Ok(());
        }
        for b in e.phys..e.phys + e.len {
            match self.refs(b)? {
                0 => self.free(pool, b, 1),
                n => self.set_refs(b, n - 1),
            }
        }
        Ok(())
    }

    /// All blocks of a blob have as many references: it is there as a whole, or not at all.
    fn release_blob(&mut self, pool: PoolId, e: &Extent, blob: &Blob) -> Result<()> {
        if e.shared && self.refs(e.phys)? > 0 {
            for b in e.disk() {
                let n = self.refs(b)?;
                if n == 0 {
                    return Err(self.damaged("a blob's blocks have different counts of references"));
                }
                self.set_refs(b, n - 1);
            }
            return Ok(());
        }
        if !broken::is(Rule::LastPartFrees) {
            self.free(pool, e.phys, blob.disk_blocks());
            self.count_blob(pool, blob, -1);
        }
        Ok(())
    }

    fn remove(&mut self) -> Result<()> {
        self.with_current(|s, o, pool| {
            s.unmap(o, pool, 0, u64::MAX)?;
            s.omap_clear(o);
            if o.values != 0 {
                s.clear_omap(o.values);
            }
            Ok(())
        })?;
        if let Some(i) = self.tx.current.take() {
            self.tx.objects[i].current = None;
        }
        Ok(())
    }

    /// The record of an object that a step copies from.
    fn source(&mut self, oid: &ObjectId) -> Result<(usize, Arc<Onode>)> {
        let i = self.slot(oid)?;
        match &self.tx.objects[i].current {
            Some(o) => Ok((i, o.clone())),
            None => Err(Error::no_object(oid)),
        }
    }

    fn clone_from(&mut self, src: &ObjectId) -> Result<()> {
        let (from, mut source) = self.source(src)?;
        Arc::make_mut(&mut source).extents.share(0, u64::MAX);
        self.tx.objects[from].current = Some(source.clone());
        source.extents.iter().try_for_each(|e| self.refer(e))?;
        self.copy_omap(&source)?;
        let values = self.copy_values(&source)?;
        self.with_current(|_, o, _| {
            *o = Onode {
                nid: o.nid,
                values,
                ..(*source).clone()
            };
            Ok(())
        })
    }

    /// Copies the values that are not in `source`'s record; the number of the copies' rows.
    fn copy_values(&mut self, source: &Onode) -> Result<u64> {
        if !source.has_rows() {
            return Ok(0);
        }
        let values = self.draw_nid();
        for k in source.value_rows() {
            let Some(v) = self.omap_row(source.values, &k)? else {
                return Err(self.damaged("a value has no row"));
            };
            self.set_omap_row(values, k, Some(v));
        }
        Ok(values)
    }

    fn draw_nid(&mut self) -> u64 {
        let nid = self.next_nid;
        self.next_nid += 1;
        nid
    }

    // --- values ---

    /// Puts a value into the record, or beside it; `before` is what it replaces.
    fn place_value(
        &mut self,
        o: &mut Onode,
        before: Option<Value>,
        k: impl Fn() -> Bytes,
        v: Bytes,
    ) -> Value {
        if o.takes(v.len(), before.as_ref()) {
            self.drop_value(o.values, before.as_ref(), k);
            return Value::Inline(v);
        }
        if o.values == 0 {
            o.values = self.draw_nid();
        }
        let len = v.len() as u64;
        self.set_omap_row(o.values, k(), Some(v));
        Value::Row(len)
    }

    /// A value is not needed any more: its row goes, where it has one.
    fn drop_value(&mut self, values: u64, value: Option<&Value>, k: impl Fn() -> Bytes) {
        if value.is_some_and(Value::is_row) {
            self.set_omap_row(values, k(), None);
        }
    }

    fn set_attr(&mut self, o: &mut Onode, name: Bytes, value: Bytes) {
        let before = o.attr(&name).cloned();
        let value = self.place_value(o, before, || key::attr_value(&name), value);
        o.set_attr(&name, value);
    }

    fn set_header(&mut self, o: &mut Onode, header: Bytes) {
        let before = Some(o.omap_header.clone());
        o.omap_header = self.place_value(o, before, || Bytes::from_static(key::HEADER_VALUE), header);
    }

    /// Lays out anew what an older build put into the record whole.
    pub fn lay_out(&mut self, o: &mut Onode) {
        let attrs = std::mem::take(&mut o.attrs);
        let header = std::mem::take(&mut o.omap_header);
        // The owner's own come last by name, and into the record first.
        for (name, value) in attrs.into_iter().rev() {
            match value {
                Value::Inline(v) => self.set_attr(o, name, v),
                row => o.set_attr(&name, row),
            }
        }
        match header {
            Value::Inline(v) => self.set_header(o, v),
            row => o.omap_header = row,
        }
    }

    /// Copies all rows of `source` to the current object, which has none.
    fn copy_omap(&mut self, source: &Onode) -> Result<()> {
        let mut from = None::<Bytes>;
        let mut more = source.omap_keys > 0;
        while more {
            let bound = from
                .as_ref()
                .map_or(Bound::Unbounded, |k| Bound::Excluded(k.as_ref()));
            let page = self.omap_page(source.nid, bound, OMAP_PAGE, usize::MAX)?;
            more = page.more;
            from = page.entries.last().map(|(k, _)| k.clone());
            self.with_current(|s, o, _| {
                for (k, v) in page.entries {
                    s.set_omap_row(o.nid, k, Some(v));
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    fn share(&mut self, src: &ObjectId, from: u64, to: u64, len: u64) -> Result<()> {
        let (i, mut source) = self.source(src)?;
        Arc::make_mut(&mut source).extents.share(from, from + len);
        let parts: Vec<Extent> = source.extents.within(from, from + len).collect();
        self.tx.objects[i].current = Some(source);
        parts.iter().try_for_each(|e| self.refer(e))?;
        self.with_current(|_, o, _| {
            for e in parts {
                o.extents.insert(Extent {
                    at: e.at - from + to,
                    shared: true,
                    ..e
                });
            }
            Ok(())
        })
    }

    fn rename(&mut self, dst: &ObjectId) -> Result<()> {
        let to = self.slot(dst)?;
        if self.tx.objects[to].current.is_some() {
            return Err(Error::ObjectExists(dst.object.to_string()));
        }
        if let Some(i) = self.tx.current.replace(to) {
            let moved = self.tx.objects[i].current.take();
            let blocks = moved.as_ref().map_or(0, |o| o.extents.disk_blocks()) as i64;
            let from = self.tx.objects[i].oid.object.pool;
            self.count_blocks(from, -blocks);
            self.count_blocks(dst.object.pool, blocks);
            let blobs = moved.as_ref().map(|o| o.extents.blobs()).unwrap_or_default();
            for blob in blobs.values().filter(|_| from != dst.object.pool) {
                self.count_blob(from, blob, -1);
                self.count_blob(dst.object.pool, blob, 1);
            }
            self.tx.objects[to].current = moved;
        }
        Ok(())
    }

    // --- omap ---

    fn omap_old(&self, o: &Onode, key: &[u8]) -> Result<Option<Bytes>> {
        if o.omap_keys == 0 {
            return Ok(None);
        }
        self.omap_row(o.nid, key)
    }

    fn omap_set(&mut self, o: &mut Onode, key: Bytes, value: Bytes) -> Result<()> {
        match self.omap_old(o, &key)? {
            Some(old) => o.omap_bytes -= old.len() as u64,
            None => {
                o.omap_keys += 1;
                o.omap_bytes += key.len() as u64;
            }
        }
        o.omap_bytes += value.len() as u64;
        self.set_omap_row(o.nid, key, Some(value));
        Ok(())
    }

    fn omap_remove(&mut self, o: &mut Onode, key: Bytes) -> Result<()> {
        if let Some(old) = self.omap_old(o, &key)? {
            o.omap_keys -= 1;
            o.omap_bytes -= (key.len() + old.len()) as u64;
            self.set_omap_row(o.nid, key, None);
        }
        Ok(())
    }

    fn omap_remove_range(&mut self, o: &mut Onode, first: Bytes, last: Bytes) -> Result<()> {
        if first >= last {
            return Ok(());
        }
        loop {
            let page = self.omap_page(o.nid, Bound::Included(first.as_ref()), OMAP_PAGE, usize::MAX)?;
            let more = page.more && page.entries.last().is_some_and(|(k, _)| *k < last);
            for (k, v) in page.entries.into_iter().take_while(|(k, _)| *k < last) {
                o.omap_keys -= 1;
                o.omap_bytes -= (k.len() + v.len()) as u64;
                self.set_omap_row(o.nid, k, None);
            }
            if !more {
                return Ok(());
            }
        }
    }

    fn omap_clear(&mut self, o: &mut Onode) {
        if o.omap_keys > 0 {
            self.clear_omap(o.nid);
            (o.omap_keys, o.omap_bytes) = (0, 0);
        }
    }

    // --- collections ---

    fn create_collection(&mut self, c: &SPgId) -> Result<()> {
        if self.collections.contains_key(c) {
            return Err(Error::CollectionExists(*c));
        }
        let cid = self.next_cid;
        self.next_cid += 1;
        let new = Collection {
            cid,
            meta: Bytes::new(),
            head: EVersion::default(),
            trimmed: EVersion::default(),
        };
        self.set_collection(*c, Some(new));
        Ok(())
    }

    fn remove_collection(&mut self, c: &SPgId) -> Result<()> {
        let Some(old) = self.collections.get(c) else {
            return Err(Error::NoCollection(*c));
        };
        self.active.dead_cids.push(old.cid);
        self.set_collection(*c, None);
        Ok(())
    }

    fn edit_collection(&mut self, c: &SPgId, f: impl FnOnce(&mut Collection)) -> Result<()> {
        let mut new = self.collections.get(c).cloned().ok_or(Error::NoCollection(*c))?;
        f(&mut new);
        self.set_collection(*c, Some(new));
        Ok(())
    }

    fn log_trim(&mut self, c: &SPgId, to: EVersion) -> Result<()> {
        self.edit_collection(c, |c| c.trimmed = c.trimmed.max(to.min(c.head)))
    }
}
