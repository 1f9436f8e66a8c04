//! Offline verification: every object record, extent, reference count, checksum, omap row and counter
//! against each other.
//!
//! It loads the store as `open` does (so the log is replayed in memory) and writes nothing to it. Memory: 4
//! bytes a block of the file. Not here: repair.

use crate::alloc::Allocator;
use crate::onode::{BLOCK, Onode};
use crate::open;
use crate::options::PoolUsage;
use crate::state::State;
use crate::store::Store;
use crate::{Error, Options, Result};
use io::disk::{Disk, HostDisk};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use types::{HObject, ObjectId, PoolId};

/// Kept; further problems are only counted.
const PROBLEMS_MAX: usize = 1000;
const PAGE: usize = 1024;

/// What a check found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    pub objects: u64,
    pub blocks: u64,
    pub omap_keys: u64,
    pub collections: u64,
    pub log_entries: u64,
    /// Transactions that were only in the log.
    pub replayed: u64,
    pub problems: Vec<String>,
    pub problem_count: u64,
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
}

impl Store {
    /// Verifies the store in `dir`, which must not be open.
    pub fn check(dir: &Path, options: &Options) -> Result<Report> {
        Self::check_on(Arc::new(HostDisk::new(dir)), options)
    }

    pub fn check_on(disk: Arc<dyn Disk>, options: &Options) -> Result<Report> {
        let loaded = open::load(&*disk, options)?;
        let mut report = Report {
            replayed: loaded.replayed,
            ..Report::default()
        };
        let first = loaded.superblock.data_offset / BLOCK;
        Walk {
            s: &loaded.state,
            report: &mut report,
            first,
            counts: vec![0; loaded.state.alloc.blocks() as usize],
            unshared: Vec::new(),
            usage: BTreeMap::new(),
        }
        .run()?;
        Ok(report)
    }
}

struct Walk<'a> {
    s: &'a State,
    report: &'a mut Report,
    first: u64,
    /// References found, by block.
    counts: Vec<u32>,
    /// Runs whose extents say that nobody shares them.
    unshared: Vec<(u64, u64)>,
    usage: BTreeMap<PoolId, PoolUsage>,
}

impl Walk<'_> {
    fn run(mut self) -> Result<()> {
        let mut from = ObjectId {
            shard: i8::MIN,
            object: HObject::min(),
        };
        let mut skip = None;
        loop {
            let page = self.s.list(&from, PAGE)?;
            for oid in page.iter().filter(|o| skip.as_ref() != Some(*o)) {
                let Some(o) = self.s.object(oid)? else {
                    self.report
                        .problem(format!("{}: listed, but has no record", oid.object));
                    continue;
                };
                self.object(oid, &o)?;
            }
            match page.last() {
                Some(last) if page.len() == PAGE => (from, skip) = (last.clone(), Some(last.clone())),
                _ => break,
            }
        }
        self.blocks()?;
        self.counters();
        for c in self.s.collections.keys() {
            self.report.collections += 1;
            let entries = self.s.log_entries(c)?;
            self.report.log_entries += entries.len() as u64;
            if !entries.is_sorted_by(|a, b| a.0 < b.0) {
                self.report
                    .problem(format!("collection {c}: its log does not ascend"));
            }
        }
        Ok(())
    }

    fn object(&mut self, oid: &ObjectId, o: &Onode) -> Result<()> {
        self.report.objects += 1;
        let mut end = 0;
        for e in o.extents.iter() {
            if e.at < end || e.len == 0 || e.at + e.len > o.size.div_ceil(BLOCK) {
                self.report.problem(format!(
                    "{}: extent at block {} out of order or behind the end",
                    oid.object, e.at
                ));
            }
            end = e.at + e.len;
            if e.phys < self.first || e.phys + e.len > self.counts.len() as u64 {
                self.report.problem(format!(
                    "{}: extent at block {} lies outside the data",
                    oid.object, e.at
                ));
                continue;
            }
            for b in e.phys..e.phys + e.len {
                self.counts[b as usize] += 1;
            }
            if !e.shared {
                self.unshared.push((e.phys, e.len));
            }
            self.content(oid, o, e.at, e.len)?;
        }
        self.omap(oid, o)?;
        let u = self.usage.entry(oid.object.pool).or_default();
        u.objects += 1;
        u.stored += o.stored();
        u.omap_keys += o.omap_keys;
        u.omap_bytes += o.omap_bytes;
        Ok(())
    }

    /// Reads every block; the read path compares the checksums.
    fn content(&mut self, oid: &ObjectId, o: &Onode, at: u64, len: u64) -> Result<()> {
        for block in at..at + len {
            let mut out = [0; BLOCK as usize];
            match self.s.read_blocks(o, block, &mut out) {
                Ok(()) => {}
                Err(Error::Corrupt { .. } | Error::Io { .. }) => {
                    self.report
                        .problem(format!("{}: bad block at byte {}", oid.object, block * BLOCK));
                    continue;
                }
                Err(e) => return Err(e),
            }
            let used = o.size.saturating_sub(block * BLOCK).min(BLOCK) as usize;
            if out[used..].iter().any(|b| *b != 0) {
                self.report
                    .problem(format!("{}: data behind its end", oid.object));
            }
        }
        Ok(())
    }

    fn omap(&mut self, oid: &ObjectId, o: &Onode) -> Result<()> {
        let (mut keys, mut bytes) = (0, 0);
        let mut from = Bound::Unbounded;
        loop {
            let page = self.s.omap_page(
                o.nid,
                from.as_ref().map(|k: &bytes::Bytes| k.as_ref()),
                PAGE,
                usize::MAX,
            )?;
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

    fn blocks(&mut self) -> Result<()> {
        let mut freed = Allocator::new(0, self.counts.len() as u64);
        for (start, len) in &self.s.active.freed {
            if !freed.mark(*start, *len) {
                self.report.problem(format!("block {start} was freed twice"));
            }
        }
        for b in self.first..self.counts.len() as u64 {
            let n = self.counts[b as usize];
            let taken = self.s.alloc.is_taken(b) && !freed.is_taken(b);
            self.report.blocks += u64::from(n > 0);
            if n == 0 && taken {
                self.report
                    .problem(format!("block {b} is taken, but no object has it"));
            }
            if n > 0 && !taken {
                self.report
                    .problem(format!("block {b} belongs to an object, but counts as free"));
            }
            if n > 0 && self.s.refs(b)? != n - 1 {
                self.report.problem(format!(
                    "block {b} has {n} owners, its count says {}",
                    self.s.refs(b)? + 1
                ));
            }
        }
        for (start, len) in std::mem::take(&mut self.unshared) {
            for b in start..start + len {
                if self.counts[b as usize] > 1 {
                    self.report
                        .problem(format!("block {b} is shared, but an extent says it is not"));
                }
            }
        }
        Ok(())
    }

    fn counters(&mut self) {
        for (pool, kept) in &self.s.usage {
            let mut found = self.usage.remove(pool).unwrap_or_default();
            // Which pool a shared block is counted for is not in the records; the sum is compared below.
            found.allocated = kept.allocated;
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
        let kept = self
            .s
            .usage
            .values()
            .fold(0u64, |sum, u| sum.wrapping_add(u.allocated));
        if kept != self.report.blocks * BLOCK {
            self.report.problem(format!(
                "pools say {kept} bytes are allocated, their objects have {}",
                self.report.blocks * BLOCK
            ));
        }
    }
}
