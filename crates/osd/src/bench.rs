//! `ceph tell osd.N bench`: how fast this OSD's store takes writes, without network and copies.
//!
//! It runs in steps between the loop's other work: a step queues a few writes, and none is begun while too much waits to be
//! durable. What it writes lies in a collection of a pool that no map has, and is removed before the answer; what a
//! kill leaves behind the reaper removes, as it does for every pool that is gone.
//!
//! Bounds: one at a time; how much may be written is the real one's bound: what the options `osd_bench_*` give for half a
//! minute. Of the room that the disk has, a twentieth stays free.

mod run;

use crate::asker::Asker;
use bytes::Bytes;
use pg::ObjectStore;
use std::collections::VecDeque;
use std::time::Duration;
use types::{Errno, HObject, NOSNAP, ObjectId, Op, PgId, PoolId, SPgId, Transaction};

/// No map has a pool below 0.
pub const POOL: PoolId = -3;
/// Writes and bytes of one step; a larger block is written in several.
const STEP_WRITES: u64 = 64;
const STEP_BYTES: u64 = 4 << 20;
/// What may wait to be durable.
const WAITING_BYTES_MAX: u64 = 32 << 20;
const REMOVED_IN_STEP: u64 = 256;

/// What an operator allows.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    seconds: u64,
    small_iops: u64,
    large_bytes: u64,
    block: u64,
}

impl Limits {
    const OPTIONS: [&str; 4] = [
        "osd_bench_duration",
        "osd_bench_small_size_max_iops",
        "osd_bench_large_size_max_throughput",
        "osd_bench_max_block_size",
    ];
    /// No block is larger, whatever the options say: it is held in memory.
    const BLOCK_MAX: u64 = 64 << 20;

    pub fn of(set: impl Fn(&str) -> Option<String>) -> Self {
        let said = Self::OPTIONS.map(|name| set(name).and_then(|v| v.parse().ok()));
        Self {
            seconds: said[0].unwrap_or(30),
            small_iops: said[1].unwrap_or(100),
            large_bytes: said[2].unwrap_or(100 << 20),
            block: said[3].unwrap_or(Self::BLOCK_MAX).min(Self::BLOCK_MAX),
        }
    }

    /// Name and value of each, as `config show` has them.
    pub fn shown(&self) -> [(&'static str, String); 4] {
        let values = [self.seconds, self.small_iops, self.large_bytes, self.block];
        std::array::from_fn(|i| (Self::OPTIONS[i], values[i].to_string()))
    }

    /// The bounds of the real one, in its words.
    fn check(&self, asked: &Asked) -> Result<(), String> {
        let (bytes, block) = (asked.bytes, asked.block);
        if block > self.block {
            return Err(format!(
                "block 'size' values are capped at {}. If you wish to use a higher value, please adjust \
                 'osd_bench_max_block_size'",
                size(self.block)
            ));
        }
        let is_small = block < 1 << 20;
        let (most, rate, option) = match is_small {
            true => (
                block.saturating_mul(self.small_iops),
                format!("{} IOPS", self.small_iops),
                "osd_bench_small_size_max_iops",
            ),
            false => (
                self.large_bytes,
                format!("{}/s", size(self.large_bytes)),
                "osd_bench_large_size_max_throughput",
            ),
        };
        let most = most.saturating_mul(self.seconds);
        if bytes > most {
            return Err(format!(
                "'count' values greater than {most} for a block size of {}, assuming {rate}, for {} seconds, can cause \
                 ill effects on osd.  Please adjust '{option}' with a higher value if you wish to use a higher 'count'.",
                size(block),
                self.seconds
            ));
        }
        Ok(())
    }
}

/// `4 KiB`, as Ceph rounds it.
fn size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let power = (bytes.max(1).ilog2() / 10) as usize;
    if power == 0 {
        return format!("{bytes} B");
    }
    let unit = UNITS[power - 1];
    let v = bytes as f64 / (1u64 << (10 * power)) as f64;
    match v.fract() != 0.0 && v < 9.95 {
        true => format!("{v:.1} {unit}"),
        false => format!("{v:.0} {unit}"),
    }
}

/// What shall be written.
#[derive(Debug, Clone, PartialEq)]
pub struct Asked {
    pub bytes: u64,
    pub block: u64,
    /// Where both are given, blocks go to random places in so many objects of this size; else each is an object.
    pub object: u64,
    pub objects: u64,
}

impl Asked {
    fn is_random(&self) -> bool {
        self.object > 0 && self.objects > 0
    }

    /// How much may lie on the disk at its end.
    fn room(&self) -> u64 {
        match self.is_random() {
            true => self
                .bytes
                .min(self.object.max(self.block).saturating_mul(self.objects)),
            false => self.bytes,
        }
    }
}

/// One that runs.
#[derive(Debug)]
pub struct Bench {
    asked: Asked,
    asker: Asker,
    began: Duration,
    data: Bytes,
    /// Whole blocks, and bytes of the one that is being written.
    blocks: u64,
    of_block: u64,
    written: u64,
    /// Numbers and sizes of what waits to be durable.
    waiting: VecDeque<(u64, u64)>,
    waiting_bytes: u64,
    ended: Option<Result<Duration, Errno>>,
    /// Objects that are removed already.
    removed: u64,
    collection_removed: bool,
}

impl Bench {
    fn collection() -> SPgId {
        SPgId::replicated(PgId::new(POOL, 0))
    }

    fn objects(&self) -> u64 {
        match self.asked.is_random() {
            true => self.asked.objects.min(self.blocks + 1),
            false => self.blocks + 1,
        }
    }

    fn object(n: u64) -> ObjectId {
        let name = Bytes::from(format!("bench_{n}").into_bytes());
        let object = HObject::new(POOL, n as u32, Bytes::new(), Bytes::new(), name, NOSNAP);
        ObjectId {
            shard: Self::collection().shard,
            object,
        }
    }

    /// Where a block goes: an object, and an offset in it.
    fn place(&self, block: u64) -> (u64, u64) {
        if !self.asked.is_random() {
            return (block, 0);
        }
        let slots = (self.asked.object / self.asked.block.max(1)).max(1);
        // Spread without order: the multiplier is odd, so a round visits every slot of a power of two.
        let slot = block.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
        (block % self.asked.objects, slot % slots * self.asked.block)
    }

    fn is_filled(&self) -> bool {
        self.written >= self.asked.bytes || self.ended.is_some()
    }

    fn durable(&mut self, durable: u64) {
        while let Some((seq, bytes)) = self.waiting.front().copied()
            && seq <= durable
        {
            self.waiting.pop_front();
            self.waiting_bytes -= bytes;
        }
    }

    /// Whether there is something to do now.
    pub fn is_due(&self, durable: u64) -> bool {
        let first = self.waiting.front().is_none_or(|(seq, _)| *seq <= durable);
        first || !self.is_filled() && self.waiting_bytes < WAITING_BYTES_MAX
    }

    /// Queues the next writes.
    fn fill(&mut self, store: &mut dyn ObjectStore) -> Result<(), Errno> {
        let mut queued = 0;
        for _ in 0..STEP_WRITES {
            if self.is_filled() || queued >= STEP_BYTES || self.waiting_bytes >= WAITING_BYTES_MAX {
                break;
            }
            let left = (self.asked.bytes - self.written).min(self.asked.block - self.of_block);
            let len = left.min(STEP_BYTES);
            let (object, offset) = self.place(self.blocks);
            let from = self.of_block as usize;
            let write = Op::Write {
                oid: Self::object(object),
                offset: offset + self.of_block,
                data: self.data.slice(from..from + len as usize),
            };
            let seq = submit(store, vec![write])?;
            self.waiting.push_back((seq, len));
            self.waiting_bytes += len;
            (queued, self.written, self.of_block) = (queued + len, self.written + len, self.of_block + len);
            if self.of_block >= self.asked.block {
                (self.blocks, self.of_block) = (self.blocks + 1, 0);
            }
        }
        Ok(())
    }

    /// Removes some of what it wrote, at the end the collection.
    fn clean(&mut self, store: &mut dyn ObjectStore) -> Result<(), Errno> {
        let last = self.objects().min(self.removed + REMOVED_IN_STEP);
        let mut ops = Vec::new();
        for n in self.removed..last {
            let oid = Self::object(n);
            if store.stat(&oid).is_ok_and(|s| s.is_some()) {
                ops.push(Op::Remove { oid });
            }
        }
        self.removed = last;
        if last == self.objects() {
            ops.push(Op::RemoveCollection);
            self.collection_removed = true;
        }
        if !ops.is_empty() {
            let seq = submit(store, ops)?;
            self.waiting.push_back((seq, 0));
        }
        Ok(())
    }
}

fn submit(store: &mut dyn ObjectStore, ops: Vec<Op>) -> Result<u64, Errno> {
    let mut txn = Transaction::new(Bench::collection());
    txn.ops = ops;
    store.submit(&txn)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(bytes: u64, block: u64) -> Asked {
        Asked {
            bytes,
            block,
            object: 0,
            objects: 0,
        }
    }

    #[test]
    fn the_bounds_are_the_real_ones() {
        let limits = Limits::of(|_| None);
        let check = |bytes, block, want: Option<&str>| {
            let got = limits.check(&asked(bytes, block)).err();
            assert_eq!(
                got.as_deref()
                    .map(|t| t.split(", can").next().unwrap_or_default()),
                want,
                "{bytes} in {block}"
            );
        };
        check(1 << 30, 4 << 20, None);
        check(12_288_000, 4096, None);
        check(
            12_288_001,
            4096,
            Some(
                "'count' values greater than 12288000 for a block size of 4 KiB, assuming 100 IOPS, for 30 seconds",
            ),
        );
        check(
            1 << 40,
            1 << 20,
            Some(
                "'count' values greater than 3145728000 for a block size of 1 MiB, assuming 100 MiB/s, for 30 seconds",
            ),
        );
        check(
            1,
            (64 << 20) + 1,
            Some(
                "block 'size' values are capped at 64 MiB. If you wish to use a higher value, please adjust \
                 'osd_bench_max_block_size'",
            ),
        );
        check(0, 0, None);
        check(
            4096,
            0,
            Some("'count' values greater than 0 for a block size of 0 B, assuming 100 IOPS, for 30 seconds"),
        );
    }

    #[test]
    fn sizes_are_rounded_as_ceph_does() {
        for (bytes, want) in [
            (0, "0 B"),
            (5000, "4.9 KiB"),
            (1_000_000, "977 KiB"),
            ((1 << 20) - 1, "1024 KiB"),
            (64 << 20, "64 MiB"),
        ] {
            assert_eq!(size(bytes), want);
        }
    }
}
