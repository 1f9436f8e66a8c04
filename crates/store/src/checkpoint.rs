//! A checkpoint: one frozen generation goes to its places, then the log's tail moves.
//!
//! Order, and why:
//! 1. The generation's last transaction and a marker behind it are durable in the log. So whatever step 2
//!    tears can be rebuilt, and replay need not verify blocks that step 2 overwrites.
//! 2. Blocks are written to their places, merged into runs, in bounded pieces: through the page cache with a
//!    flush each, so that a commit's flush never waits behind a mountain of write-back; direct writes leave no
//!    mountain, and one flush ends them.
//! 3. One durable commit of the index: rows, and the log position to replay from. This is the moment.
//! 4. Holes are punched where much was freed, beyond a stock that stays in the file. Only after this does the owner reuse freed blocks.
//!
//! A cut before 3 leaves the old index and a log that rebuilds everything; after 3 the new index.
//!
//! The owner is never held: all of this runs beside it, one [`Checkpoint::step`] at a time.

use crate::alloc::GROUP;
use crate::block_row::{BlockRow, REGION};
use crate::broken::{self, Rule};
use crate::codec::{Decoded, Input, put_bytes, put_u, put_version};
use crate::committer::Committer;
use crate::generation::{Collection, Generation};
use crate::index::{Change, Index, Table};
use crate::onode::BLOCK;
use crate::values::{PoolUsage, Seq};
use crate::{Error, Result, key};
use bytes::Bytes;
use io::disk::{DiskFile, Write};
use std::collections::{BTreeMap, BTreeSet};
use std::io::IoSlice;
use std::sync::Arc;
use types::{EVersion, PoolId, SPgId};

/// One write of merged blocks through the page cache; see `zeros` for why it is small.
const CACHED_RUN_BLOCKS: usize = 16;
/// Direct writes may be longer.
const DIRECT_RUN_BLOCKS: usize = 128;
/// Written back in one step; through the page cache, with a flush behind it.
const STEP_BLOCKS: usize = 256;
/// Freed runs of this many blocks are given back to the host.
pub const PUNCH_BLOCKS: u64 = 64;
/// A log block of the index takes more entries until it has this size.
const LOG_BLOCK_BYTES: usize = 32 << 10;

const META_KEY: &[u8] = b"checkpoint";
const META_V1: u8 = 1;
/// With what is compressed; written only where something is.
const META_V2: u8 = 2;

/// The row that makes a checkpoint: where replay begins, and the counters as of then.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Meta {
    pub position: u64,
    pub batch: u64,
    pub incarnation: u64,
    pub seq: Seq,
    pub next_nid: u64,
    pub next_cid: u64,
    pub usage: BTreeMap<PoolId, PoolUsage>,
}

impl Meta {
    pub fn encode(&self) -> Vec<u8> {
        let has_blobs = self.usage.values().any(PoolUsage::has_blobs);
        let mut out = vec![if has_blobs { META_V2 } else { META_V1 }];
        let numbers = [
            self.position,
            self.batch,
            self.incarnation,
            self.seq,
            self.next_nid,
            self.next_cid,
            self.usage.len() as u64,
        ];
        numbers.iter().for_each(|v| put_u(&mut out, *v));
        for (pool, u) in &self.usage {
            put_u(&mut out, *pool as u64);
            for v in [u.objects, u.stored, u.allocated, u.omap_keys, u.omap_bytes] {
                put_u(&mut out, v);
            }
            if has_blobs {
                for v in [u.compressed, u.compressed_allocated, u.compressed_original] {
                    put_u(&mut out, v);
                }
            }
        }
        out
    }

    pub fn decode(raw: Bytes) -> Decoded<Self> {
        let r = &mut Input::new(raw);
        let has_blobs = match r.u8()? {
            META_V1 => false,
            META_V2 => true,
            _ => return Err(crate::codec::Bad("checkpoint row of unknown version")),
        };
        let mut m = Self {
            position: r.u()?,
            batch: r.u()?,
            incarnation: r.u()?,
            seq: r.u()?,
            next_nid: r.u()?,
            next_cid: r.u()?,
            usage: BTreeMap::new(),
        };
        for _ in 0..r.u()? {
            let pool = r.u()? as PoolId;
            let mut usage = PoolUsage {
                objects: r.u()?,
                stored: r.u()?,
                allocated: r.u()?,
                omap_keys: r.u()?,
                omap_bytes: r.u()?,
                ..PoolUsage::default()
            };
            if has_blobs {
                usage.compressed = r.u()?;
                usage.compressed_allocated = r.u()?;
                usage.compressed_original = r.u()?;
            }
            m.usage.insert(pool, usage);
        }
        Ok(m)
    }

    pub fn put(&self, change: &mut dyn Change) -> Result<()> {
        change.put(Table::Meta, META_KEY, &self.encode())
    }

    pub fn key() -> &'static [u8] {
        META_KEY
    }
}

pub fn encode_collection(c: &Collection) -> Vec<u8> {
    let mut out = Vec::with_capacity(32 + c.meta.len());
    put_u(&mut out, c.cid);
    put_version(&mut out, c.head);
    put_version(&mut out, c.trimmed);
    put_bytes(&mut out, &c.meta);
    out
}

pub fn decode_collection(raw: Bytes) -> Decoded<Collection> {
    let r = &mut Input::new(raw);
    Ok(Collection {
        cid: r.u()?,
        head: r.version()?,
        trimmed: r.version()?,
        meta: r.bytes()?,
    })
}

/// What a step left to do.
#[derive(Debug, PartialEq, Eq)]
pub enum Progress {
    /// The marker is not durable yet.
    Waiting,
    More,
    /// Done: the log is needed from this position on, and these runs went back to the host.
    Done {
        position: u64,
        punched: Vec<(u64, u64)>,
    },
}

#[derive(Debug)]
enum Phase {
    Marker,
    WriteBack {
        blocks: Vec<(u64, Bytes)>,
        next: usize,
        unflushed: bool,
    },
    Commit,
    Punch(usize),
}

#[derive(Debug)]
pub struct Checkpoint {
    pub path: String,
    pub file: Arc<dyn DiskFile>,
    pub index: Arc<dyn Index>,
    pub committer: Arc<Committer>,
    pub generation: Arc<Generation>,
    pub marker: u64,
    /// Allocation rows as the generation leaves them.
    pub taken: Vec<(u32, Vec<u8>)>,
    pub collections: Vec<(SPgId, Option<Collection>)>,
    /// All but the position.
    pub meta: Meta,
    /// Freed blocks that stay in the file.
    stock: u64,
    /// Freed runs, joined; from the punching on those that go back to the host.
    merged: Vec<(u64, u64)>,
    phase: Phase,
}

impl Checkpoint {
    #[allow(clippy::too_many_arguments)]
    pub fn new(
        path: &str,
        file: Arc<dyn DiskFile>,
        index: Arc<dyn Index>,
        committer: Arc<Committer>,
        generation: Arc<Generation>,
        marker: u64,
        taken: Vec<(u32, Vec<u8>)>,
        collections: Vec<(SPgId, Option<Collection>)>,
        meta: Meta,
        stock: u64,
    ) -> Self {
        Self {
            path: path.to_owned(),
            file,
            index,
            committer,
            generation,
            marker,
            taken,
            collections,
            meta,
            stock,
            merged: Vec::new(),
            phase: Phase::Marker,
        }
    }

    /// One bounded piece of the work; with `block`, the marker is waited for.
    pub fn step(&mut self, block: bool) -> Result<Progress> {
        match &mut self.phase {
            Phase::Marker => {
                let end = if block {
                    self.committer.wait_marker(self.marker)?
                } else {
                    self.committer.marker_end(self.marker)?
                };
                let Some(end) = end else {
                    return Ok(Progress::Waiting);
                };
                self.meta.position = end;
                // Before the index is changed: what is freed twice would be used twice.
                let mut freed = self.generation.freed.clone();
                freed.sort_unstable();
                self.merged = merge(freed);
                let all = self.generation.blocks.iter();
                let mut blocks: Vec<_> = all.filter_map(|(b, d)| Some((*b, d.data.clone()?))).collect();
                blocks.sort_unstable_by_key(|(b, _)| *b);
                self.phase = Phase::WriteBack {
                    blocks,
                    next: 0,
                    unflushed: false,
                };
            }
            Phase::WriteBack { .. } => self.write_back()?,
            Phase::Commit => {
                self.commit()?;
                self.phase = Phase::Punch(0);
            }
            Phase::Punch(next) => {
                let from = *next;
                let Some(to) = self.punch(from)? else {
                    return Ok(Progress::Done {
                        position: self.meta.position,
                        punched: std::mem::take(&mut self.merged),
                    });
                };
                self.phase = Phase::Punch(to);
            }
        }
        Ok(Progress::More)
    }

    fn write_back(&mut self) -> Result<()> {
        let path = &self.path;
        let Phase::WriteBack {
            blocks,
            next,
            unflushed,
        } = &mut self.phase
        else {
            return Ok(());
        };
        let io = |action| move |e| Error::io(path, action, e);
        let rest = &blocks[*next..];
        if rest.is_empty() {
            if *unflushed && !broken::is(Rule::WrittenBackFirst) {
                self.file.flush().map_err(io("flush data"))?;
            }
            self.phase = Phase::Commit;
            return Ok(());
        }
        let step = &rest[..rest.len().min(STEP_BLOCKS)];
        let direct = self.file.is_direct();
        let longest = if direct {
            DIRECT_RUN_BLOCKS
        } else {
            CACHED_RUN_BLOCKS
        };
        let slices: Vec<IoSlice<'_>> = step.iter().map(|(_, d)| IoSlice::new(d)).collect();
        let mut writes = Vec::new();
        let mut at = 0;
        while at < step.len() {
            let first = step[at].0;
            let numbers = step[at..].iter().map(|(b, _)| *b);
            let run = (first..)
                .zip(numbers)
                .take(longest)
                .take_while(|(a, b)| a == b)
                .count();
            writes.push(Write {
                offset: first * BLOCK,
                data: &slices[at..at + run],
            });
            at += run;
        }
        self.file.write_all(&writes).map_err(io("write data"))?;
        *next += step.len();
        *unflushed = direct;
        if !direct && !broken::is(Rule::WrittenBackFirst) {
            self.file.flush().map_err(io("flush data"))?;
        }
        Ok(())
    }

    fn commit(&self) -> Result<()> {
        let (g, path) = (&self.generation, &self.path);
        self.index.commit(&mut |w| {
            self.follows_the_last(w)?;
            for (oid, o) in &g.objects {
                let k = key::object(oid);
                if let Some(o) = o {
                    o.extents.check();
                }
                match o {
                    Some(o) => w.put(Table::Objects, &k, &o.encode())?,
                    None => w.delete(Table::Objects, &k)?,
                }
            }
            put_omap(g, w)?;
            put_blocks(g, w, path)?;
            drop_regions(g, &self.taken, w)?;
            for (group, row) in &self.taken {
                w.put(Table::Taken, &group.to_be_bytes(), row)?;
            }
            for (c, value) in &self.collections {
                match value {
                    Some(v) => w.put(Table::Collections, &key::collection(c), &encode_collection(v))?,
                    None => w.delete(Table::Collections, &key::collection(c))?,
                }
            }
            self.put_logs(w)?;
            self.meta.put(w)
        })
    }

    /// Panics unless this checkpoint is of a later state than the one that it replaces.
    fn follows_the_last(&self, w: &mut dyn Change) -> Result<()> {
        let Some(raw) = w.get(Table::Meta, META_KEY)? else {
            return Ok(());
        };
        let last = Meta::decode(raw).map_err(|e| self.damaged(e.0))?;
        let place = |m: &Meta| [m.position, m.batch, m.seq, m.next_nid, m.next_cid];
        let (old, new) = (place(&last), place(&self.meta));
        assert!(
            old.iter().zip(&new).all(|(old, new)| old <= new),
            "a checkpoint follows the last one in position, batch, sequence, numbers of objects and of collections: \
             {old:?}, then {new:?}"
        );
        Ok(())
    }

    fn put_logs(&self, w: &mut dyn Change) -> Result<()> {
        let zero = EVersion::default();
        for cid in &self.generation.dead_cids {
            w.delete_range(Table::Logs, &key::log(*cid, zero), &key::log(cid + 1, zero))?;
        }
        for (_, c) in &self.collections {
            let Some(c) = c else { continue };
            let (from, to) = (key::log(c.cid, zero), key::log(c.cid + 1, zero));
            while let Some((k, raw)) = w.first(Table::Logs, &from, &to)? {
                let last = Input::new(raw).version().map_err(|e| self.damaged(e.0))?;
                if last > c.trimmed {
                    break;
                }
                w.delete(Table::Logs, &k)?;
            }
            let all = self.generation.logs.get(&c.cid).into_iter().flatten();
            let mut new = all.filter(|(v, _)| *v > c.trimmed).peekable();
            let Some((first, _)) = new.peek() else { continue };
            let mut k = Bytes::copy_from_slice(&key::log(c.cid, *first));
            let mut old = Bytes::new();
            if let Some((last_key, raw)) = w.last(Table::Logs, &from, &to)?
                && raw.len() < LOG_BLOCK_BYTES
            {
                let mut r = Input::new(raw);
                r.version().map_err(|e| self.damaged(e.0))?;
                (k, old) = (last_key, r.rest());
            }
            let mut entries = old.to_vec();
            let mut last = zero;
            for (v, e) in new {
                assert!(*v > last, "entries of a log ascend: {v} comes after {last}");
                put_version(&mut entries, *v);
                put_bytes(&mut entries, e);
                last = *v;
            }
            let mut row = Vec::with_capacity(entries.len() + 16);
            put_version(&mut row, last);
            row.extend_from_slice(&entries);
            w.put(Table::Logs, &k, &row)?;
        }
        Ok(())
    }

    fn damaged(&self, why: &str) -> Error {
        Error::Index {
            path: self.path.clone(),
            why: why.to_owned(),
        }
    }

    /// Gives back the next large freed run; None: there is none.
    fn punch(&mut self, from: usize) -> Result<Option<usize>> {
        if from == 0 {
            let mut stock = self.stock;
            self.merged.retain(|(_, len)| {
                let stays = stock > 0;
                stock = stock.saturating_sub(*len);
                *len >= PUNCH_BLOCKS && !stays
            });
        }
        let Some(run) = self.merged.get(from) else {
            return Ok(None);
        };
        self.file
            .punch_hole(run.0 * BLOCK, run.1 * BLOCK)
            .map_err(|e| Error::io(&self.path, "punch a hole", e))?;
        Ok(Some(from + 1))
    }
}

fn merge(runs: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    let mut out: Vec<(u64, u64)> = Vec::new();
    for (start, len) in runs {
        match out.last_mut() {
            Some(last) if last.0 + last.1 >= start => {
                assert_eq!(
                    last.0 + last.1,
                    start,
                    "blocks are freed once: run {last:?} overlaps the one of {len} at {start}"
                );
                last.1 += len;
            }
            _ => out.push((start, len)),
        }
    }
    out
}

fn put_omap(g: &Generation, w: &mut dyn Change) -> Result<()> {
    let mut nids: Vec<_> = g.omap.iter().collect();
    nids.sort_unstable_by_key(|(nid, _)| **nid);
    for (nid, d) in nids {
        if d.cleared {
            w.delete_range(Table::Omap, &key::omap(*nid, b""), &key::omap(nid + 1, b""))?;
        }
        for (k, v) in &d.rows {
            match v {
                Some(v) => w.put(Table::Omap, &key::omap(*nid, k), v)?,
                None => w.delete(Table::Omap, &key::omap(*nid, k))?,
            }
        }
    }
    Ok(())
}

fn put_blocks(g: &Generation, w: &mut dyn Change, path: &str) -> Result<()> {
    let numbers: BTreeSet<u64> = g.blocks.keys().chain(g.refs.keys()).copied().collect();
    let mut numbers = numbers.into_iter().peekable();
    while let Some(first) = numbers.peek().copied() {
        let region = first / REGION;
        let k = (region as u32).to_be_bytes();
        let old = match w.get(Table::Blocks, &k)? {
            Some(raw) => BlockRow::new(raw).map_err(|e| Error::Index {
                path: path.to_owned(),
                why: e.0.to_owned(),
            })?,
            None => BlockRow::default(),
        };
        let mut row = old.values();
        while let Some(b) = numbers.next_if(|b| b / REGION == region) {
            let i = (b % REGION) as usize;
            if let Some(d) = g.blocks.get(&b) {
                row.crcs[i] = d.crc;
            }
            if let Some(n) = g.refs.get(&b) {
                row.refs[i] = *n;
            }
        }
        w.put(Table::Blocks, &k, &row.encode())?;
    }
    Ok(())
}

/// Deletes the rows of regions that lost their last block: nobody asks for the checksum of a free block, and
/// whoever takes it brings a new one. Else an index keeps a row for each region that ever was in use.
fn drop_regions(g: &Generation, taken: &[(u32, Vec<u8>)], w: &mut dyn Change) -> Result<()> {
    let freed = g.freed.iter();
    let groups: BTreeSet<u64> = freed
        .flat_map(|(start, len)| start / GROUP..=(start + len - 1) / GROUP)
        .collect();
    for (group, row) in taken.iter().filter(|(n, _)| groups.contains(&u64::from(*n))) {
        let base = u64::from(*group) * (GROUP / REGION);
        let key = |region: usize| ((base + region as u64) as u32).to_be_bytes();
        let empty: Vec<bool> = row
            .chunks_exact(REGION as usize / 8)
            .map(|bits| bits.iter().all(|b| *b == 0))
            .collect();
        let mut at = 0;
        for run in empty.chunk_by(|a, b| a == b) {
            if run[0] {
                w.delete_range(Table::Blocks, &key(at), &key(at + run.len()))?;
            }
            at += run.len();
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::{Checked, RedbIndex};
    use crate::{Options, Store};
    use io::disk::Disk;
    use io::disk::sim::SimDisk;
    use std::ops::Bound;
    use types::{HObject, NOSNAP, ObjectId, Op, PgId, Transaction};

    fn oid(name: &'static str) -> ObjectId {
        let o = HObject::new(1, 7, Bytes::new(), Bytes::new(), name.into(), NOSNAP);
        ObjectId::replicated(o)
    }

    fn rows(disk: &SimDisk) -> usize {
        let file = Checked::over(disk.copy().open("index").unwrap()).unwrap();
        let index = RedbIndex::open("test", Arc::new(file), 1 << 20).unwrap();
        let s = index.snapshot().unwrap();
        let rows = s.range(Table::Blocks, Bound::Unbounded, Bound::Unbounded);
        rows.unwrap().count()
    }

    /// Space that was once used left its rows of checksums in the index for good.
    #[test]
    fn regions_without_blocks_have_no_row() {
        let disk = SimDisk::new();
        let options = Options {
            threads: false,
            host_reserve_bytes: 0,
            log_bytes: 1 << 20,
            grow_bytes: 4 << 20,
            ..Options::default()
        };
        Store::mkfs_on(Arc::new(disk.clone()), &options).unwrap();
        let mut store = Store::open_on(Arc::new(disk.clone()), &options, Arc::new(|| {})).unwrap();
        let mut queue = |ops: Vec<Op>| {
            let mut t = Transaction::new(SPgId::replicated(PgId::new(1, 0)));
            t.ops = ops;
            store.queue(t).unwrap();
            store.checkpoint().unwrap();
        };
        let write = |name, data: &[u8]| Op::Write {
            oid: oid(name),
            offset: 0,
            data: Bytes::copy_from_slice(data),
        };
        let remove = |name| Op::Remove { oid: oid(name) };
        queue(vec![Op::CreateCollection, write("small", &[1; 4096])]);
        let alone = rows(&disk);
        assert_eq!(alone, 1);
        queue(vec![write("large", &[2; 3 << 20])]);
        assert!(rows(&disk) >= alone + 11);
        queue(vec![remove("large")]);
        assert_eq!(rows(&disk), alone);
        // Taken again, and taken and freed between two checkpoints.
        queue(vec![write("large", &[3; 3 << 20])]);
        queue(vec![
            write("short", &[4; 1 << 20]),
            remove("short"),
            remove("large"),
        ]);
        assert_eq!(rows(&disk), alone);
        queue(vec![remove("small")]);
        assert_eq!(rows(&disk), 0);
        queue(vec![write("large", &[5; 1 << 20])]);
        assert_eq!(store.read(&oid("large"), 0, 1 << 20).unwrap(), vec![5; 1 << 20]);
    }
}
