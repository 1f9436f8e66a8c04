//! A load test in a process whose memory is limited to the store's budget and a stated overhead.
//!
//! The limit is a cgroup (version 1 or 2) where this process may make one; page cache counts in it, but the
//! kernel takes that back. Where it may not, only the process's own peak (`VmHWM`) is compared, and the output
//! says so. The store lies below `SKEP_MEMORY_IN` (default: the system's directory for temporary files).
//! `SKEP_MEMORY_ROUNDS` lengthens the load.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::disallowed_macros)]

mod common;

use bytes::Bytes;
use common::*;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;
use store::{Options, Store};
use types::{EVersion, HObject, ObjectId, Op, Transaction};

const MIB: u64 = 1 << 20;
const DIR: &str = "SKEP_MEMORY_DIR";
const BUDGET: &str = "SKEP_MEMORY_BUDGET";
const CGROUP: &str = "SKEP_MEMORY_CGROUP";

/// What a process needs beside its store's budget: the program itself, its threads, what the memory
/// allocator keeps, and one request's data in the caller's hands. Measured peaks after three rounds: 79 MiB
/// with a budget of 64, 164 MiB with 256 (which this load does not fill).
const OVERHEAD: u64 = 32 * MIB;
/// Transactions that wait for a flush.
const DEPTH: u64 = 64;
const OBJECTS: u64 = 12_000;

fn rounds() -> u64 {
    let rounds = std::env::var("SKEP_MEMORY_ROUNDS").ok();
    rounds.and_then(|v| v.parse().ok()).unwrap_or(1)
}

fn object(n: u64) -> ObjectId {
    let name = Bytes::from(format!("rbd_data.1234567890ab.{n:016x}"));
    let hash = (n as u32).wrapping_mul(0x9e37_79b9);
    ObjectId::replicated(HObject::new(
        1,
        hash,
        Bytes::new(),
        Bytes::new(),
        name,
        types::NOSNAP,
    ))
}

/// A line of `/proc/self/status`, in bytes.
fn status(field: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find(|l| l.starts_with(field)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

struct Load {
    store: Store,
    dice: io::disk::sim::Dice,
    version: u64,
    block: Bytes,
    large: Bytes,
}

impl Load {
    fn queue(&mut self, mut ops: Vec<Op>) {
        self.version += 1;
        ops.push(Op::LogAppend {
            version: EVersion::new(1, self.version),
            entry: self.block.slice(..200),
        });
        if self.version.is_multiple_of(100) && self.version > 3000 {
            ops.push(Op::LogTrim {
                to: EVersion::new(1, self.version - 3000),
            });
        }
        let seq = self
            .store
            .queue(Transaction {
                collection: coll(0),
                ops,
            })
            .unwrap();
        self.store.kick();
        while self.store.durable() + DEPTH < seq {
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    fn write(&mut self, n: u64, offset: u64, data: Bytes) {
        let oid = object(n);
        self.queue(vec![Op::Write { oid, offset, data }]);
    }

    /// Sixteen reads beside each other, then the data.
    fn read(&mut self) {
        let mut tickets = Vec::new();
        let wanted: Vec<u64> = (0..16).map(|_| self.dice.below(OBJECTS)).collect();
        for n in &wanted {
            tickets.extend(self.store.prefetch(&object(*n), 0, 65_536).unwrap());
        }
        let mut left = tickets.len();
        while left > 0 {
            left -= self.store.prefetched().len();
            std::thread::sleep(Duration::from_micros(20));
        }
        for n in wanted {
            if self.store.exists(&object(n)).unwrap() {
                self.store.read(&object(n), 0, 65_536).unwrap();
            }
        }
        tickets.into_iter().for_each(|t| self.store.release(t));
    }

    fn round(&mut self, round: u64) {
        // Many objects, each a little, then random overwrites of those.
        for n in 0..OBJECTS {
            let offset = round * 4096 + self.dice.below(3) * 1000;
            self.write(n, offset, self.block.clone());
        }
        for i in 0..20_000 {
            let (n, block) = (self.dice.below(OBJECTS), self.dice.below(16));
            self.write(n, block * 4096, self.block.clone());
            if i % 40 == 0 {
                self.read();
            }
        }
        // Large writes, many omap rows on few objects, clones with changes.
        for i in 0..40 {
            self.write(OBJECTS + i, 0, self.large.clone());
        }
        for i in 0..300 {
            let row = |k: u64| {
                (
                    Bytes::from(format!("key{:08}", k * 7919 % 100_000)),
                    self.block.slice(..150),
                )
            };
            let entries = (0..100).map(|k| row(i * 100 + k)).collect();
            self.queue(vec![Op::OmapSet {
                oid: object(i % 4),
                entries,
            }]);
        }
        for n in 0..2000 {
            let (src, dst) = (object(n), object(1_000_000 + n));
            self.queue(vec![Op::Clone { src, dst }]);
            self.write(n, 4096, self.block.clone());
        }
        self.store.checkpoint().unwrap();
        self.scan();
    }

    /// Everything is listed, and read as far as it is long.
    fn scan(&mut self) {
        let start = ObjectId {
            shard: i8::MIN,
            object: HObject::min(),
        };
        let (mut from, mut seen) = (start, 0);
        loop {
            let page = self.store.list(&from, 1000).unwrap();
            for oid in &page[usize::from(seen > 0).min(page.len())..] {
                self.store.read(oid, 0, 4 * MIB).unwrap();
                self.store
                    .omap_range(oid, Bound::Unbounded, 1000, 1 << 20)
                    .unwrap();
                seen += 1;
            }
            match page.last() {
                Some(last) if page.len() == 1000 => from = last.clone(),
                _ => break,
            }
        }
        assert!(seen > OBJECTS, "{seen} objects");
    }
}

/// The loaded process: started by the tests below, does nothing on its own.
#[test]
fn memory_child() {
    let Ok(dir) = std::env::var(DIR) else { return };
    if let Ok(procs) = std::env::var(CGROUP) {
        std::fs::write(procs, std::process::id().to_string()).unwrap();
    }
    let budget: u64 = std::env::var(BUDGET).unwrap().parse().unwrap();
    let before = status("VmHWM");
    let options = Options {
        max_bytes: Some(3 << 30),
        ..Options::for_memory(budget)
    };
    let mut store = Store::open(Path::new(&dir), &options, nobody()).unwrap();
    store.queue(Generator::first()).unwrap();
    let mut load = Load {
        store,
        dice: io::disk::sim::Dice::new(1),
        version: 0,
        block: Bytes::from(vec![7; 4096]),
        large: Bytes::from((0..4 * MIB).map(|i| (i / 4096) as u8).collect::<Vec<_>>()),
    };
    for round in 0..rounds() {
        load.round(round);
        println!("round {round}: {} MiB peak", status("VmHWM") / MIB);
    }
    let (stalls, checkpoints) = (load.store.counters().stalls, load.store.counters().checkpoints);
    load.store.close().unwrap();
    println!(
        "{} transactions, {checkpoints} checkpoints, {stalls} stalls",
        load.version
    );
    println!("peak {} before {before}", status("VmHWM"));
}

/// A memory cgroup of this test; gone when it is dropped.
struct Cgroup {
    dir: PathBuf,
    v2: bool,
}

impl Cgroup {
    /// None where this process may not make one, or the kernel has none.
    fn new(limit: u64) -> Option<Self> {
        let name = format!("skep-store-test-{}-{limit}", std::process::id());
        for (root, v2, file) in [
            ("/sys/fs/cgroup/memory", false, "memory.limit_in_bytes"),
            ("/sys/fs/cgroup", true, "memory.max"),
        ] {
            let c = Self {
                dir: Path::new(root).join(&name),
                v2,
            };
            if std::fs::create_dir(&c.dir).is_ok()
                && std::fs::write(c.dir.join(file), limit.to_string()).is_ok()
            {
                return Some(c);
            }
        }
        None
    }

    /// Times that the kernel killed for lack of memory.
    fn kills(&self) -> u64 {
        let file = if self.v2 {
            "memory.events"
        } else {
            "memory.oom_control"
        };
        let text = std::fs::read_to_string(self.dir.join(file)).unwrap();
        let line = text.lines().find_map(|l| l.strip_prefix("oom_kill "));
        line.map_or(0, |n| n.trim().parse().unwrap())
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.dir);
    }
}

/// Runs the load in a process of its own under that limit.
fn run(budget: u64, limit: u64) -> (Output, Option<Cgroup>) {
    let dir = match std::env::var("SKEP_MEMORY_IN") {
        Ok(parent) => tempfile::tempdir_in(parent).unwrap(),
        Err(_) => tempfile::tempdir().unwrap(),
    };
    Store::mkfs(dir.path(), &Options::for_memory(budget)).unwrap();
    let cgroup = Cgroup::new(limit);
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["memory_child", "--exact", "--nocapture"]);
    command.env(DIR, dir.path()).env(BUDGET, budget.to_string());
    match &cgroup {
        Some(c) => drop(command.env(CGROUP, c.dir.join("cgroup.procs"))),
        None => println!("no memory cgroup can be made here: only the process's own peak is compared"),
    }
    (command.output().unwrap(), cgroup)
}

fn within(budget: u64) {
    let limit = budget + OVERHEAD;
    let (out, cgroup) = run(budget, limit);
    let text = String::from_utf8_lossy(&out.stdout);
    print!("budget {} MiB, limit {} MiB\n{text}", budget / MIB, limit / MIB);
    assert!(
        out.status.success(),
        "{}: {}",
        out.status,
        String::from_utf8_lossy(&out.stderr)
    );
    if let Some(c) = &cgroup {
        assert_eq!(c.kills(), 0);
    }
    let peak = text
        .lines()
        .find_map(|l| l.split_once("peak ")?.1.split_once(" before"));
    let peak: u64 = peak.expect("the child says its peak").0.parse().unwrap();
    assert!(
        peak < limit,
        "{} MiB at its peak, {} allowed",
        peak / MIB,
        limit / MIB
    );
}

/// The limit is a real one: with less than the load needs, the process is killed.
#[test]
fn a_limit_below_the_budget_is_noticed() {
    let (out, cgroup) = run(64 * MIB, 40 * MIB);
    if let Some(c) = cgroup {
        assert!(
            !out.status.success() && c.kills() > 0,
            "{}",
            String::from_utf8_lossy(&out.stdout)
        );
    }
}

#[test]
fn a_budget_of_64_mib_is_kept() {
    within(64 * MIB);
}

#[test]
fn a_budget_of_256_mib_is_kept() {
    within(256 * MIB);
}
