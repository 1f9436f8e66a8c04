//! What the store holds as its owner sees it: index, frozen and active generation on top of each other,
//! and the transaction in the making.
//!
//! A transaction works on copies of the object records it touches, and on everything else in place with
//! an undo list: [`State::commit`] publishes the copies, [`State::rollback`] walks the list back. The log's
//! replay uses the same steps (`steps`), so there is one way to change the state.
//!
//! Invariants: lookups ask transaction, active, frozen, cache, index in this order; the cache holds only
//! what the present index snapshot holds.

use crate::alloc::{Allocator, GROUP};
use crate::block_row::{BlockRow, CRC_BYTES, REGION};
use crate::broken::{self, Rule};
use crate::cache::BlockCache;
use crate::compress::{Blob, Codecs, Compression};
use crate::direct::{Direct, Inflight};
use crate::generation::{Collection, Dirty, Generation, OmapDelta};
use crate::index::{Snapshot, Table};
use crate::onode::{BLOCK, Onode};
use crate::own::detach_oid;
use crate::prefetch::Prefetches;
use crate::values::{PoolUsage, Seq};
use crate::{Error, Result, key};
use bytes::Bytes;
use io::disk::DiskFile;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use types::numbers::NumberMap;
use types::{EVersion, ObjectId, PoolId, SPgId};

/// Decoded rows of the index, bounded by weight; half is dropped when full.
#[derive(Debug, Default)]
struct Cache {
    onodes: HashMap<ObjectId, Option<Arc<Onode>>>,
    onode_bytes: u64,
    rows: NumberMap<u64, BlockRow>,
    bytes_max: u64,
}

/// Records to be laid out anew that are remembered; others are met again.
const OVERSIZED_MAX: usize = 64;

/// An object's name and its place in a map, roughly.
const ENTRY_WEIGHT: u64 = 384;
/// A cached row with its place in the map.
const ROW_WEIGHT: u64 = 2 * CRC_BYTES as u64;

impl Cache {
    fn put_onode(&mut self, oid: &ObjectId, o: Option<Arc<Onode>>) {
        let weight = |o: &Option<Arc<Onode>>| ENTRY_WEIGHT + o.as_ref().map_or(0, |o| o.weight() as u64);
        self.onode_bytes += weight(&o);
        // A copy of its own: the name at hand may be a slice of a whole message.
        if let Some(old) = self.onodes.insert(detach_oid(oid), o) {
            self.onode_bytes -= weight(&old).min(self.onode_bytes);
        }
        if self.onode_bytes > self.bytes_max / 2 {
            let (mut odd, mut kept) = (false, 0);
            self.onodes.retain(|_, o| {
                odd = !odd;
                if odd {
                    kept += weight(o);
                }
                odd
            });
            self.onode_bytes = kept;
        }
    }

    fn put_row(&mut self, region: u64, row: BlockRow) {
        self.rows.insert(region, row);
        if self.rows.len() as u64 * ROW_WEIGHT > self.bytes_max / 2 {
            let mut odd = false;
            self.rows.retain(|_, _| {
                odd = !odd;
                odd
            });
        }
    }
}

#[derive(Debug)]
pub struct TxObject {
    pub oid: ObjectId,
    original: Option<Arc<Onode>>,
    pub current: Option<Arc<Onode>>,
}

#[derive(Debug)]
enum Undo {
    Block(u64, Option<Dirty>),
    Refs(u64, Option<u32>),
    Took(u64, u64),
    OmapRow(u64, Bytes, Option<Option<Bytes>>),
    OmapDelta(u64, Option<OmapDelta>),
    Collection(SPgId, Option<Collection>),
    Log(u64, usize),
}

/// The transaction in the making.
#[derive(Debug, Default)]
pub struct Tx {
    pub objects: Vec<TxObject>,
    /// Index of the object that steps apply to.
    pub current: Option<usize>,
    pub record: Vec<u8>,
    pub directs: Vec<Direct>,
    undo: Vec<Undo>,
    freed_len: usize,
    dead_len: usize,
    numbers: (u64, u64),
    /// Blocks taken less blocks freed.
    allocated: Vec<(PoolId, i64)>,
    /// Blobs made less blobs freed: their blocks, their bytes.
    blobs: Vec<(PoolId, i64, i64)>,
}

impl Tx {
    /// Whether it made blobs, or freed some.
    pub fn has_blobs(&self) -> bool {
        !self.blobs.is_empty()
    }
}

#[derive(Debug)]
pub struct State {
    pub path: String,
    pub file: Arc<dyn DiskFile>,
    pub snapshot: Box<dyn Snapshot>,
    pub active: Generation,
    pub frozen: Option<Arc<Generation>>,
    pub alloc: Allocator,
    pub collections: BTreeMap<SPgId, Collection>,
    pub usage: BTreeMap<PoolId, PoolUsage>,
    pub next_nid: u64,
    pub next_cid: u64,
    pub inflight: Inflight,
    pub tx: Tx,
    /// Blocks that writes leave free.
    pub reserve: u64,
    /// Writes of this many aligned blocks go to fresh extents.
    pub direct_blocks: u64,
    pub object_bytes_max: u64,
    /// The host has too little space left for anything that grows.
    pub host_low: bool,
    cache: RefCell<Cache>,
    /// Records of older builds that were met in the index and are to be laid out anew.
    oversized: RefCell<Vec<ObjectId>>,
    pub blocks: RefCell<BlockCache>,
    pub reads: Prefetches,
    /// What data of the transaction in the making is to be compressed by.
    pub compression: Option<Compression>,
    pub codecs: RefCell<Codecs>,
    /// The blob that was unpacked last, and its first block: whoever reads a part of it often reads the next one, too.
    pub unpacked: RefCell<Option<(u64, Blob, Bytes)>>,
}

impl State {
    /// Memory of overlay, caches and reads, roughly; the index library's own cache is not known.
    pub fn memory_bytes(&self) -> u64 {
        let frozen = self.frozen.as_ref().map_or(0, |g| g.bytes());
        let cache = self.cache.borrow();
        let records = cache.onode_bytes + cache.rows.len() as u64 * ROW_WEIGHT;
        let unpacked = self.unpacked.borrow();
        let records = records + unpacked.as_ref().map_or(0, |(_, _, data)| data.len() as u64);
        self.active.bytes() + frozen + records + self.blocks.borrow().bytes() + self.reads.bytes()
    }

    pub fn new(path: &str, file: Arc<dyn DiskFile>, snapshot: Box<dyn Snapshot>, alloc: Allocator) -> Self {
        Self {
            path: path.to_owned(),
            file,
            snapshot,
            active: Generation::default(),
            frozen: None,
            alloc,
            collections: BTreeMap::new(),
            usage: BTreeMap::new(),
            next_nid: 1,
            next_cid: 1,
            inflight: Inflight::default(),
            tx: Tx::default(),
            reserve: 0,
            direct_blocks: u64::MAX,
            object_bytes_max: u64::MAX,
            host_low: false,
            cache: RefCell::default(),
            oversized: RefCell::default(),
            blocks: RefCell::default(),
            reads: Prefetches::default(),
            compression: None,
            codecs: RefCell::default(),
            unpacked: RefCell::default(),
        }
    }

    pub fn set_cache_bytes(&mut self, bytes: u64) {
        self.cache.borrow_mut().bytes_max = bytes;
    }

    pub fn damaged(&self, why: impl std::fmt::Display) -> Error {
        Error::Index {
            path: self.path.clone(),
            why: why.to_string(),
        }
    }

    /// The published record: what reads see.
    pub fn object(&self, oid: &ObjectId) -> Result<Option<Arc<Onode>>> {
        if let Some(o) = self.active.objects.get(oid) {
            return Ok(o.clone());
        }
        if let Some(o) = self.frozen.as_ref().and_then(|f| f.objects.get(oid)) {
            return Ok(o.clone());
        }
        if let Some(o) = self.cache.borrow().onodes.get(oid) {
            return Ok(o.clone());
        }
        let row = self.snapshot.get(Table::Objects, &key::object(oid))?;
        let o = match row {
            Some(raw) => Some(Arc::new(Onode::decode(raw).map_err(|e| self.damaged(e.0))?)),
            None => None,
        };
        if o.as_ref().is_some_and(|o| o.is_oversized()) {
            let mut found = self.oversized.borrow_mut();
            if found.len() < OVERSIZED_MAX && !found.contains(oid) {
                found.push(detach_oid(oid));
            }
        }
        self.cache.borrow_mut().put_onode(oid, o.clone());
        Ok(o)
    }

    fn row(&self, block: u64) -> Result<BlockRow> {
        let region = block / REGION;
        if let Some(r) = self.cache.borrow().rows.get(&region) {
            return Ok(r.clone());
        }
        let raw = self.snapshot.get(Table::Blocks, &(region as u32).to_be_bytes())?;
        let row = match raw {
            Some(raw) => BlockRow::new(raw).map_err(|e| self.damaged(e.0))?,
            None => BlockRow::default(),
        };
        self.cache.borrow_mut().put_row(region, row.clone());
        Ok(row)
    }

    /// A block's newest entry above the index.
    pub fn dirty(&self, block: u64) -> Option<&Dirty> {
        let newer = self.active.blocks.get(&block);
        newer.or_else(|| self.frozen.as_ref().and_then(|f| f.blocks.get(&block)))
    }

    pub fn crc(&self, block: u64) -> Result<u32> {
        match self.dirty(block) {
            Some(d) => Ok(d.crc),
            None => Ok(self.row(block)?.crc(block)),
        }
    }

    /// References of a block beyond the first.
    pub fn refs(&self, block: u64) -> Result<u32> {
        if let Some(n) = self.active.refs.get(&block) {
            return Ok(*n);
        }
        if let Some(n) = self.frozen.as_ref().and_then(|f| f.refs.get(&block)) {
            return Ok(*n);
        }
        Ok(self.row(block)?.refs(block))
    }

    pub fn omap_row(&self, nid: u64, key: &[u8]) -> Result<Option<Bytes>> {
        for g in [Some(&self.active), self.frozen.as_deref()].into_iter().flatten() {
            if let Some(d) = g.omap.get(&nid) {
                if let Some(v) = d.rows.get(key) {
                    return Ok(v.clone());
                }
                if d.cleared {
                    return Ok(None);
                }
            }
        }
        self.snapshot.get(Table::Omap, &key::omap(nid, key))
    }

    // --- the transaction ---

    pub fn begin(&mut self, collection: &SPgId) {
        let tx = &mut self.tx;
        tx.objects.clear();
        tx.undo.clear();
        tx.directs.clear();
        tx.allocated.clear();
        tx.blobs.clear();
        tx.current = None;
        tx.freed_len = self.active.freed.len();
        tx.dead_len = self.active.dead_cids.len();
        tx.numbers = (self.next_nid, self.next_cid);
        crate::record::start(&mut tx.record, collection);
    }

    /// The object's slot in the transaction, loaded at first use.
    pub fn slot(&mut self, oid: &ObjectId) -> Result<usize> {
        if let Some(i) = self.tx.objects.iter().position(|t| t.oid == *oid) {
            return Ok(i);
        }
        let original = self.object(oid)?;
        self.tx.objects.push(TxObject {
            oid: oid.clone(),
            current: original.clone(),
            original,
        });
        Ok(self.tx.objects.len() - 1)
    }

    /// Gives one record of an older build, whose values are all in it, rows for what is too large; the next checkpoint writes
    /// them. Not in the log: it says the same in another form, and is done again if it is lost.
    pub fn lay_out_oversized(&mut self) {
        let Some(oid) = self.oversized.get_mut().pop() else {
            return;
        };
        let Ok(Some(o)) = self.object(&oid) else { return };
        if !o.is_oversized() {
            return;
        }
        let mut o = (*o).clone();
        self.lay_out(&mut o);
        self.tx.undo.clear();
        self.active.meta_bytes += ENTRY_WEIGHT + o.weight() as u64;
        self.active.objects.insert(oid, Some(Arc::new(o)));
    }

    /// Publishes the transaction that `seq` names.
    pub fn commit(&mut self, seq: Seq, directs: &[Direct]) {
        for d in directs {
            self.inflight.add(seq, d.offset / BLOCK, d.data.clone());
        }
        for i in 0..self.tx.objects.len() {
            if let Some(o) = self.tx.objects[i].current.take_if(|o| o.is_oversized()) {
                let mut o = Arc::unwrap_or_clone(o);
                self.lay_out(&mut o);
                self.tx.objects[i].current = Some(Arc::new(o));
            }
        }
        for t in self.tx.objects.drain(..) {
            let same = match (&t.original, &t.current) {
                (Some(a), Some(b)) => Arc::ptr_eq(a, b),
                (None, None) => true,
                _ => false,
            };
            if same {
                continue;
            }
            let usage = self.usage.entry(t.oid.object.pool).or_default();
            if let Some(o) = &t.original {
                usage.objects -= 1;
                usage.stored -= o.stored();
                usage.compressed_original -= o.extents.compressed() * BLOCK;
                usage.omap_keys -= o.omap_keys;
                usage.omap_bytes -= o.omap_bytes;
            }
            if let Some(o) = &t.current {
                usage.objects += 1;
                usage.stored += o.stored();
                usage.compressed_original += o.extents.compressed() * BLOCK;
                usage.omap_keys += o.omap_keys;
                usage.omap_bytes += o.omap_bytes;
                self.active.meta_bytes += o.weight() as u64;
            }
            self.active.meta_bytes += ENTRY_WEIGHT;
            self.active.objects.insert(t.oid, t.current);
        }
        for (pool, blocks) in self.tx.allocated.drain(..) {
            let usage = self.usage.entry(pool).or_default();
            usage.allocated = usage.allocated.wrapping_add_signed(blocks * BLOCK as i64);
        }
        for (pool, blocks, bytes) in self.tx.blobs.drain(..) {
            let usage = self.usage.entry(pool).or_default();
            let blocks = blocks * BLOCK as i64;
            usage.compressed_allocated = usage.compressed_allocated.wrapping_add_signed(blocks);
            usage.compressed = usage.compressed.wrapping_add_signed(bytes);
        }
        self.tx.undo.clear();
        if broken::is(Rule::FreedBlocksWait) {
            for (start, len) in self.active.freed.drain(self.tx.freed_len..) {
                self.active.freed_blocks -= len;
                self.alloc.clear(start, len);
            }
        }
    }

    /// Forgets the transaction: as if it had never begun.
    pub fn rollback(&mut self) {
        while let Some(u) = self.tx.undo.pop() {
            match u {
                Undo::Block(b, old) => drop(self.active.set_block(b, old)),
                Undo::Refs(b, Some(old)) => drop(self.active.refs.insert(b, old)),
                Undo::Refs(b, None) => drop(self.active.refs.remove(&b)),
                Undo::Took(start, len) => self.alloc.clear(start, len),
                Undo::OmapRow(nid, key, old) => {
                    let rows = &mut self.active.omap.entry(nid).or_default().rows;
                    match old {
                        Some(v) => drop(rows.insert(key, v)),
                        None => drop(rows.remove(&key)),
                    }
                }
                Undo::OmapDelta(nid, Some(old)) => drop(self.active.omap.insert(nid, old)),
                Undo::OmapDelta(nid, None) => drop(self.active.omap.remove(&nid)),
                Undo::Collection(c, Some(old)) => drop(self.collections.insert(c, old)),
                Undo::Collection(c, None) => drop(self.collections.remove(&c)),
                Undo::Log(cid, len) => self.active.logs.entry(cid).or_default().truncate(len),
            }
        }
        let undone: u64 = self.active.freed.drain(self.tx.freed_len..).map(|(_, n)| n).sum();
        self.active.freed_blocks -= undone;
        self.active.dead_cids.truncate(self.tx.dead_len);
        (self.next_nid, self.next_cid) = self.tx.numbers;
        self.tx.objects.clear();
        self.tx.directs.clear();
        self.tx.current = None;
        // Its blocks may be the next one's.
        self.unpacked.take();
    }

    // --- changes below objects, each with its undo ---

    pub fn set_block(&mut self, block: u64, entry: Option<Dirty>) {
        let old = self.active.set_block(block, entry);
        self.tx.undo.push(Undo::Block(block, old));
    }

    pub fn set_refs(&mut self, block: u64, extra: u32) {
        let old = self.active.refs.insert(block, extra);
        self.tx.undo.push(Undo::Refs(block, old));
    }

    /// Books a run that the allocator has given to this transaction.
    pub fn took(&mut self, pool: PoolId, start: u64, len: u64) {
        self.tx.undo.push(Undo::Took(start, len));
        self.touch_groups(start, len);
        self.count_blocks(pool, len as i64);
    }

    /// Frees a run for good, from the next checkpoint on.
    pub fn free(&mut self, pool: PoolId, start: u64, len: u64) {
        self.active.freed.push((start, len));
        self.active.freed_blocks += len;
        self.touch_groups(start, len);
        self.count_blocks(pool, -(len as i64));
        if !self.active.blocks.is_empty() {
            for b in start..start + len {
                if self.active.blocks.contains_key(&b) {
                    self.set_block(b, None);
                }
            }
        }
    }

    fn touch_groups(&mut self, start: u64, len: u64) {
        for g in start / GROUP..=(start + len - 1) / GROUP {
            self.active.groups.insert(g as u32);
        }
    }

    /// Kept modulo 2^64: a block that pools share is counted where it was taken and where it was freed, so
    /// that one pool may fall below zero; the sum is always right.
    pub fn count_blocks(&mut self, pool: PoolId, blocks: i64) {
        match self.tx.allocated.iter_mut().find(|(p, _)| *p == pool) {
            Some((_, n)) => *n += blocks,
            None => self.tx.allocated.push((pool, blocks)),
        }
    }

    /// A blob came or went; kept as [`State::count_blocks`] does.
    pub fn count_blob(&mut self, pool: PoolId, blob: &Blob, sign: i64) {
        let (blocks, bytes) = (sign * blob.disk_blocks() as i64, sign * blob.bytes() as i64);
        match self.tx.blobs.iter_mut().find(|(p, _, _)| *p == pool) {
            Some((_, all_blocks, all_bytes)) => {
                *all_blocks += blocks;
                *all_bytes += bytes;
            }
            None => self.tx.blobs.push((pool, blocks, bytes)),
        }
    }

    pub fn set_omap_row(&mut self, nid: u64, key: Bytes, value: Option<Bytes>) {
        self.active.meta_bytes += 64 + key.len() as u64 + value.as_ref().map_or(0, |v| v.len() as u64);
        let rows = &mut self.active.omap.entry(nid).or_default().rows;
        let old = rows.insert(key.clone(), value);
        self.tx.undo.push(Undo::OmapRow(nid, key, old));
    }

    /// Drops all rows of an object, wherever they are.
    pub fn clear_omap(&mut self, nid: u64) {
        let cleared = OmapDelta {
            cleared: true,
            rows: BTreeMap::new(),
        };
        let old = self.active.omap.insert(nid, cleared);
        self.tx.undo.push(Undo::OmapDelta(nid, old));
    }

    pub fn set_collection(&mut self, c: SPgId, value: Option<Collection>) {
        self.active.meta_bytes += 64 + value.as_ref().map_or(0, |v| v.meta.len() as u64);
        self.active.collections.insert(c);
        let old = match value {
            Some(v) => self.collections.insert(c, v),
            None => self.collections.remove(&c),
        };
        self.tx.undo.push(Undo::Collection(c, old));
    }

    /// Appends to a collection's log.
    pub fn append_log(&mut self, collection: &SPgId, version: EVersion, entry: Bytes) -> Result<()> {
        let Some(c) = self.collections.get_mut(collection) else {
            return Err(Error::NoCollection(*collection));
        };
        if version <= c.head {
            return Err(Error::LogOrder {
                collection: *collection,
                version: version.to_string(),
            });
        }
        self.tx.undo.push(Undo::Collection(*collection, Some(c.clone())));
        c.head = version;
        let entries = self.active.logs.entry(c.cid).or_default();
        self.tx.undo.push(Undo::Log(c.cid, entries.len()));
        self.active.meta_bytes += 64 + entry.len() as u64;
        self.active.collections.insert(*collection);
        entries.push((version, entry));
        Ok(())
    }

    // --- checkpoints ---

    /// Makes the active generation the frozen one.
    pub fn freeze(&mut self) -> Arc<Generation> {
        let g = Arc::new(std::mem::take(&mut self.active));
        self.frozen = Some(g.clone());
        g
    }

    /// The frozen generation is durable in the index, of which `snapshot` shows the new state.
    /// `punched` of the runs that it freed went back to the host.
    pub fn thaw(&mut self, snapshot: Box<dyn Snapshot>, punched: Vec<(u64, u64)>) {
        self.snapshot = snapshot;
        self.unpacked.take();
        let Some(g) = self.frozen.take() else { return };
        self.reads.outdated(&g);
        let blocks = self.blocks.get_mut();
        if !blocks.is_empty() {
            let freed = g.freed.iter().flat_map(|(start, len)| *start..start + len);
            g.blocks
                .keys()
                .copied()
                .chain(freed)
                .for_each(|b| blocks.remove(b));
        }
        for (start, len) in &g.freed {
            self.alloc.clear(*start, *len);
        }
        for (start, len) in punched {
            self.alloc.punched(start, len);
        }
        let cache = &mut *self.cache.borrow_mut();
        for b in g.blocks.keys().chain(g.refs.keys()) {
            cache.rows.remove(&(b / REGION));
        }
        for (oid, o) in &g.objects {
            cache.put_onode(oid, o.clone());
        }
    }

    /// Blocks that only wait for a checkpoint to be free.
    pub fn freed_blocks(&self) -> u64 {
        self.active.freed_blocks + self.frozen.as_ref().map_or(0, |f| f.freed_blocks)
    }
}
