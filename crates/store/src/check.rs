//! Offline verification: every object record, extent, reference count, checksum, omap row and counter
//! against each other.
//!
//! It loads the store as `open` does (so the log is replayed in memory) and writes nothing to it. Memory: two
//! bytes a block of the file, and eight for each object with omap. Not here: repair.

use crate::alloc::Allocator;
use crate::index::{RedbIndex, Table};
use crate::onode::{BLOCK, Onode};
use crate::open;
use crate::state::State;
use crate::store::Store;
use crate::values::PoolUsage;
use crate::{Error, Identity, Options, Result, key};
use bytes::Bytes;
use io::disk::{Disk, ReadOnlyDisk};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use types::{HObject, ObjectId, PoolId};

/// Kept; further problems are only counted.
const PROBLEMS_MAX: usize = 1000;
const PAGE: usize = 1024;
/// Blocks read at once.
const RUN_BLOCKS: u64 = 64;

/// What a check found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    pub identity: Option<Identity>,
    pub objects: u64,
    /// Bytes of object data that were read and compared, a shared block once for each owner.
    pub bytes: u64,
    /// Blocks that belong to objects.
    pub blocks: u64,
    pub omap_keys: u64,
    pub collections: u64,
    pub log_entries: u64,
    /// Transactions that were only in the log.
    pub replayed: u64,
    pub problems: Vec<String>,
    pub problem_count: u64,
    /// The index or the log is so damaged that not everything could be looked at.
    pub incomplete: bool,
}

/// How far a check is; the totals are what the store's own counters say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    pub objects: u64,
    pub objects_total: u64,
    pub bytes: u64,
    pub bytes_total: u64,
}

impl Report {
    pub fn is_clean(&self) -> bool {
        self.problem_count == 0
    }

    fn problem(&mut self, text: String) {
        self.problem_count += 1;
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(text);
        }
    }

    /// True for damage, which is then a problem of this report; other errors end the check.
    fn take(&mut self, e: Error) -> Result<()> {
        match e {
            Error::Index { .. } | Error::LogDamaged { .. } => {
                self.problem(e.to_string());
                self.incomplete = true;
                Ok(())
            }
            e => Err(e),
        }
    }
}

impl Store {
    /// Verifies the store in `dir`, which nobody may serve meanwhile. Nothing of it is changed.
    pub fn check(dir: &Path, options: &Options) -> Result<Report> {
        Self::check_with(dir, options, &mut |_| {})
    }

    /// Like [`Store::check`]; `progress` is called many times a second. The index's own checksums first.
    pub fn check_with(dir: &Path, options: &Options, progress: &mut dyn FnMut(Progress)) -> Result<Report> {
        let disk = open::unsealed(Arc::new(ReadOnlyDisk::new(dir)), options)?;
        let mut report = Report::default();
        // Its lock holds until the end, so that nobody starts to serve the store in between.
        let (lock, superblock) = open::identify(&*disk, options)?;
        report.identity = Some(superblock.identity);
        let index = open::open_index_file(&*disk, &superblock)?;
        match RedbIndex::verify(&disk.name(), index, options.index_cache_bytes) {
            Ok(()) => walk(&*disk, options, &mut report, progress)?,
            Err(e) => report.take(e)?,
        }
        drop(lock);
        Ok(report)
    }

    /// Verifies what a disk of any kind holds, but not the index's own checksums.
    pub fn check_on(disk: Arc<dyn Disk>, options: &Options) -> Result<Report> {
        let disk = open::unsealed(disk, options)?;
        let mut report = Report::default();
        walk(&*disk, options, &mut report, &mut |_| {})?;
        Ok(report)
    }
}

fn walk(
    disk: &dyn Disk,
    options: &Options,
    report: &mut Report,
    progress: &mut dyn FnMut(Progress),
) -> Result<()> {
    let loaded = match open::load(disk, options) {
        Ok(l) => l,
        Err(e) => return report.take(e),
    };
    report.identity = Some(loaded.superblock.identity);
    report.replayed = loaded.replayed;
    let usage = loaded.state.usage.values();
    let total = |f: fn(&PoolUsage) -> u64| usage.clone().map(f).sum();
    let blocks = loaded.state.alloc.blocks();
    let walk = Walk {
        s: &loaded.state,
        report,
        first: loaded.superblock.data_offset / BLOCK,
        owners: Owners::new(blocks),
        with_omap: BTreeSet::new(),
        usage: BTreeMap::new(),
        blobs: (0, 0),
        done: Progress {
            objects_total: total(|u| u.objects),
            bytes_total: total(|u| u.stored),
            ..Progress::default()
        },
        progress,
    };
    walk.run()
}

/// How many extents each block was found in, and whether one of them says that it is the only one.
struct Owners {
    /// `u8::MAX`: the number is in `many`.
    counts: Vec<u8>,
    many: BTreeMap<u64, u32>,
    alone: Vec<u64>,
}

impl Owners {
    fn new(blocks: u64) -> Self {
        Self {
            counts: vec![0; blocks as usize],
            many: BTreeMap::new(),
            alone: vec![0; blocks.div_ceil(64) as usize],
        }
    }

    fn blocks(&self) -> u64 {
        self.counts.len() as u64
    }

    fn add(&mut self, block: u64, shared: bool) {
        let n = &mut self.counts[block as usize];
        if *n < u8::MAX - 1 {
            *n += 1;
        } else {
            *n = u8::MAX;
            *self.many.entry(block).or_insert(u32::from(u8::MAX) - 1) += 1;
        }
        if !shared {
            self.alone[(block / 64) as usize] |= 1 << (block % 64);
        }
    }

    fn of(&self, block: u64) -> u32 {
        let n = u32::from(self.counts[block as usize]);
        self.many.get(&block).copied().unwrap_or(n)
    }

    fn says_alone(&self, block: u64) -> bool {
        self.alone[(block / 64) as usize] >> (block % 64) & 1 == 1
    }
}

struct Walk<'a> {
    s: &'a State,
    report: &'a mut Report,
    /// The first block behind the log.
    first: u64,
    owners: Owners,
    /// Numbers of the objects that have omap.
    with_omap: BTreeSet<u64>,
    usage: BTreeMap<PoolId, PoolUsage>,
    /// What the blobs that were met take of the disk, and their bytes; each once.
    blobs: (u64, u64),
    done: Progress,
    progress: &'a mut dyn FnMut(Progress),
}

impl Walk<'_> {
    fn run(mut self) -> Result<()> {
        if let Err(e) = self.objects() {
            self.report.take(e)?;
        }
        // Of objects that could not be read nobody knows what belongs to them.
        if !self.report.incomplete {
            self.blocks()?;
            self.counters();
            self.orphans()?;
        }
        for c in self.s.collections.keys() {
            self.report.collections += 1;
            let entries = match self.s.log_entries(c) {
                Ok(entries) => entries,
                Err(e) => {
                    self.report.take(e)?;
                    continue;
                }
            };
            self.report.log_entries += entries.len() as u64;
            if !entries.is_sorted_by(|a, b| a.0 < b.0) {
                self.report
                    .problem(format!("collection {c}: its log does not ascend"));
            }
        }
        Ok(())
    }

    fn objects(&mut self) -> Result<()> {
        let mut from = ObjectId {
            shard: i8::MIN,
            object: HObject::min(),
        };
        let mut skip = None;
        loop {
            let page = self.s.list(&from, PAGE)?;
            for oid in page.iter().filter(|o| skip.as_ref() != Some(*o)) {
                match self.s.object(oid) {
                    Ok(Some(o)) => self.object(oid, &o)?,
                    Ok(None) => self
                        .report
                        .problem(format!("{}: listed, but has no record", oid.object)),
                    Err(e) => self.report.take(e)?,
                }
            }
            match page.last() {
                Some(last) if page.len() == PAGE => (from, skip) = (last.clone(), Some(last.clone())),
                _ => return Ok(()),
            }
        }
    }

    fn object(&mut self, oid: &ObjectId, o: &Onode) -> Result<()> {
        self.report.objects += 1;
        self.done.objects += 1;
        let mut end = 0;
        for e in o.extents.iter() {
            // What a damaged record says may be any number.
            let blocks = e.blob.map_or(e.len, |b| b.disk_blocks());
            let (stop, phys_stop) = (e.at.saturating_add(e.len), e.phys.saturating_add(blocks));
            if e.at < end || e.len == 0 || stop > o.size.div_ceil(BLOCK) {
                self.report.problem(format!(
                    "{}: extent at block {} out of order or behind the end",
                    oid.object, e.at
                ));
            }
            end = stop;
            if e.phys < self.first || phys_stop > self.owners.blocks() {
                self.report.problem(format!(
                    "{}: extent at block {} lies outside the data",
                    oid.object, e.at
                ));
                continue;
            }
            if stop > u64::MAX / BLOCK {
                continue;
            }
            if let Some(blob) = &e.blob
                && self.owners.of(e.phys) == 0
            {
                self.blobs.0 = self.blobs.0.wrapping_add(blob.disk_blocks() * BLOCK);
                self.blobs.1 = self.blobs.1.wrapping_add(blob.bytes());
            }
            (e.phys..phys_stop).for_each(|b| self.owners.add(b, e.shared));
            self.content(oid, o, e.at, e.len)?;
        }
        (self.progress)(self.done);
        self.omap(oid, o)?;
        self.values(oid, o)?;
        let u = self.usage.entry(oid.object.pool).or_default();
        u.objects += 1;
        u.stored += o.stored();
        u.compressed_original += o.extents.compressed() * BLOCK;
        u.omap_keys += o.omap_keys;
        u.omap_bytes += o.omap_bytes;
        Ok(())
    }

    /// Reads every block; the read path compares the checksums.
    fn content(&mut self, oid: &ObjectId, o: &Onode, at: u64, len: u64) -> Result<()> {
        let mut buffer = vec![0; (RUN_BLOCKS.min(len) * BLOCK) as usize];
        let mut first = at;
        while first < at + len {
            let blocks = RUN_BLOCKS.min(at + len - first);
            let out = &mut buffer[..(blocks * BLOCK) as usize];
            match self.s.read_blocks(o, first, out) {
                Ok(()) => self.behind_the_end(oid, o, first, out),
                Err(Error::Corrupt { .. } | Error::Io { .. }) => {
                    // Some of them: which, one by one.
                    for b in first..first + blocks {
                        let out = &mut buffer[..BLOCK as usize];
                        match self.s.read_blocks(o, b, out) {
                            Ok(()) => self.behind_the_end(oid, o, b, out),
                            Err(Error::Corrupt { .. }) => self.report.problem(format!(
                                "{}: bad block at byte {}",
                                oid.object,
                                b * BLOCK
                            )),
                            Err(Error::Io { source, .. }) => self.report.problem(format!(
                                "{}: block at byte {} cannot be read: {source}",
                                oid.object,
                                b * BLOCK
                            )),
                            Err(e) => return Err(e),
                        }
                    }
                }
                Err(e) => return Err(e),
            }
            first += blocks;
            let used = o
                .size
                .saturating_sub((first - blocks) * BLOCK)
                .min(blocks * BLOCK);
            self.report.bytes += used;
            self.done.bytes += used;
            (self.progress)(self.done);
        }
        Ok(())
    }

    fn behind_the_end(&mut self, oid: &ObjectId, o: &Onode, first: u64, data: &[u8]) {
        let used = o.size.saturating_sub(first * BLOCK).min(data.len() as u64) as usize;
        if data[used..].iter().any(|b| *b != 0) {
            self.report
                .problem(format!("{}: data behind its end", oid.object));
        }
    }

    /// Values that are not in the record.
    fn values(&mut self, oid: &ObjectId, o: &Onode) -> Result<()> {
        if o.values != 0 && !self.with_omap.insert(o.values) {
            self.report.problem(format!(
                "{}: another object has its number {}",
                oid.object, o.values
            ));
        }
        let read = self.s.attrs(oid).and_then(|_| self.s.omap_header(oid));
        if o.has_rows()
            && let Err(e) = read
        {
            self.report.problem(format!("{}: {e}", oid.object));
        }
        if o.values == 0 {
            return Ok(());
        }
        let page = self.s.omap_page(o.values, Bound::Unbounded, PAGE, usize::MAX)?;
        let known = o.value_rows();
        if page.entries.iter().any(|(k, _)| !known.contains(k)) {
            self.report
                .problem(format!("{}: a row that none of its values has", oid.object));
        }
        Ok(())
    }

    fn omap(&mut self, oid: &ObjectId, o: &Onode) -> Result<()> {
        if o.omap_keys > 0 && !self.with_omap.insert(o.nid) {
            self.report
                .problem(format!("{}: another object has its number {}", oid.object, o.nid));
        }
        let (mut keys, mut bytes) = (0, 0);
        let mut from = Bound::Unbounded;
        loop {
            let page =
                self.s
                    .omap_page(o.nid, from.as_ref().map(|k: &Bytes| k.as_ref()), PAGE, usize::MAX)?;
            keys += page.entries.len() as u64;
            bytes += page
                .entries
                .iter()
                .map(|(k, v)| (k.len() + v.len()) as u64)
                .sum::<u64>();
            match page.entries.last() {
                Some((k, _)) if page.more => from = Bound::Excluded(k.clone()),
                _ => break,
            }
        }
        self.report.omap_keys += keys;
        if (keys, bytes) != (o.omap_keys, o.omap_bytes) {
            self.report.problem(format!(
                "{}: {keys} omap keys of {bytes} bytes, its record says {} of {}",
                oid.object, o.omap_keys, o.omap_bytes
            ));
        }
        Ok(())
    }

    /// Omap rows of objects that do not exist.
    fn orphans(&mut self) -> Result<()> {
        let mut from = key::omap(0, b"");
        loop {
            let mut rows = self
                .s
                .snapshot
                .range(Table::Omap, Bound::Included(&from), Bound::Unbounded)?;
            let Some((k, _)) = rows.next().transpose()? else {
                return Ok(());
            };
            drop(rows);
            let Some(nid) = k.first_chunk().map(|b| u64::from_be_bytes(*b)) else {
                self.report.problem("an omap row without an object number".into());
                return Ok(());
            };
            // Rows that only wait for the next checkpoint to go are not seen through the layers above.
            if !self.with_omap.contains(&nid)
                && !self
                    .s
                    .omap_page(nid, Bound::Unbounded, 1, usize::MAX)?
                    .entries
                    .is_empty()
            {
                self.report
                    .problem(format!("omap rows of object number {nid}, which does not exist"));
            }
            let Some(next) = nid.checked_add(1) else {
                return Ok(());
            };
            from = key::omap(next, b"");
        }
    }

    fn blocks(&mut self) -> Result<()> {
        let mut freed = Allocator::new(0, self.owners.blocks());
        for (start, len) in &self.s.active.freed {
            if !freed.mark(*start, *len) {
                self.report.problem(format!("block {start} was freed twice"));
            }
        }
        for b in self.first..self.owners.blocks() {
            let n = self.owners.of(b);
            let taken = self.s.alloc.is_taken(b) && !freed.is_taken(b);
            self.report.blocks += u64::from(n > 0);
            if n == 0 && taken {
                self.report
                    .problem(format!("block {b} is taken, but no object has it"));
            }
            if n == 0 {
                continue;
            }
            if !taken {
                self.report
                    .problem(format!("block {b} belongs to an object, but counts as free"));
            }
            let refs = self.s.refs(b)?;
            if refs != n - 1 {
                self.report.problem(format!(
                    "block {b} has {n} owners, its count says {}",
                    u64::from(refs) + 1
                ));
            }
            if n > 1 && self.owners.says_alone(b) {
                self.report
                    .problem(format!("block {b} is shared, but an extent says it is not"));
            }
        }
        Ok(())
    }

    fn counters(&mut self) {
        for (pool, kept) in &self.s.usage {
            let mut found = self.usage.remove(pool).unwrap_or_default();
            // Which pool a shared block is counted for is not in the records; the sum is compared below.
            found.allocated = kept.allocated;
            found.compressed = kept.compressed;
            found.compressed_allocated = kept.compressed_allocated;
            if found != *kept {
                self.report.problem(format!(
                    "pool {pool}: counters say {kept:?}, its objects {found:?}"
                ));
            }
        }
        for pool in self.usage.keys() {
            self.report
                .problem(format!("pool {pool} has objects, but no counters"));
        }
        let sum = |f: fn(&PoolUsage) -> u64| {
            let all = self.s.usage.values().map(f);
            all.fold(0u64, u64::wrapping_add)
        };
        let blobs = (sum(|u| u.compressed_allocated), sum(|u| u.compressed));
        let kept = sum(|u| u.allocated);
        if blobs != self.blobs {
            self.report.problem(format!(
                "pools say that blobs take {} bytes for {} of theirs, those of their objects take {} for {}",
                blobs.0, blobs.1, self.blobs.0, self.blobs.1
            ));
        }
        if kept != self.report.blocks * BLOCK {
            self.report.problem(format!(
                "pools say {kept} bytes are allocated, their objects have {}",
                self.report.blocks * BLOCK
            ));
        }
    }
}

#[cfg(test)]
mod tests;
