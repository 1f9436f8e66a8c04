//! The engine without network: 4 KiB durable random overwrites and reads, with CPU per operation.
//!
//! `cargo run --release -p store --example bench -- DIR [MIB] [SECONDS] [DEPTHS]`, for instance
//! `bench /var/tmp/b 256 5 1,32`. DIR is made anew and stays. Figures of one run on a shared machine: compare
//! ratios of runs side by side. With `objects=N` as a fifth argument, it makes N small objects instead. With `raw`, a plain file beside it is overwritten with
//! one write and one fdatasync per operation first, as the yardstick.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::disallowed_macros)]

use bytes::Bytes;
use io::disk::{Disk, DiskFile, HostDisk, ReadQueue, Space, Write};
use std::collections::VecDeque;
use std::io::{IoSlice, Result};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};
use store::{Options, Store};
use types::{EVersion, HObject, NOSNAP, ObjectId, Op, PgId, SPgId, Transaction};

const BLOCK: u64 = 4096;
const OBJECT: u64 = 4 << 20;

fn oid(n: u64) -> ObjectId {
    let name = Bytes::from(format!("rbd_data.10226b8b4567.{n:016x}"));
    let hash = (n as u32).wrapping_mul(0x9e37_79b9);
    ObjectId::replicated(HObject::new(1, hash, Bytes::new(), Bytes::new(), name, NOSNAP))
}

/// Microseconds of CPU this process has used.
fn cpu_us() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks: f64 = fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap();
    ticks * 10_000.0
}

/// Bytes handed to write calls on the store's files. (The process's own counter counts whole pieces of the
/// page cache at their first touch, and so far too much.)
static WRITTEN: AtomicU64 = AtomicU64::new(0);

fn disk_bytes() -> u64 {
    WRITTEN.load(Ordering::Relaxed)
}

#[derive(Debug)]
struct Counting(HostDisk);
#[derive(Debug)]
struct CountingFile(Arc<dyn DiskFile>);

impl Disk for Counting {
    fn name(&self) -> String {
        self.0.name()
    }
    fn exists(&self, file: &str) -> Result<bool> {
        self.0.exists(file)
    }
    fn open(&self, file: &str) -> Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(CountingFile(self.0.open(file)?)))
    }
    fn open_data(&self, file: &str) -> Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(CountingFile(self.0.open_data(file)?)))
    }
    fn create(&self, file: &str) -> Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(CountingFile(self.0.create(file)?)))
    }
    fn remove(&self, file: &str) -> Result<()> {
        self.0.remove(file)
    }
    fn sync(&self) -> Result<()> {
        self.0.sync()
    }
    fn space(&self) -> Result<Space> {
        self.0.space()
    }
}

impl DiskFile for CountingFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.0.read_at(buf, offset)
    }
    fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        WRITTEN.fetch_add(data.len() as u64, Ordering::Relaxed);
        self.0.write_at(data, offset)
    }
    fn write_vectored_at(&self, data: &[IoSlice<'_>], offset: u64) -> Result<()> {
        WRITTEN.fetch_add(data.iter().map(|s| s.len() as u64).sum(), Ordering::Relaxed);
        self.0.write_vectored_at(data, offset)
    }
    fn write_all(&self, writes: &[Write<'_>]) -> Result<()> {
        let n: usize = writes.iter().flat_map(|w| w.data).map(|s| s.len()).sum();
        WRITTEN.fetch_add(n as u64, Ordering::Relaxed);
        self.0.write_all(writes)
    }
    fn read_queue(&self) -> Result<Option<Box<dyn ReadQueue>>> {
        self.0.read_queue()
    }
    fn is_direct(&self) -> bool {
        self.0.is_direct()
    }
    fn flush(&self) -> Result<()> {
        self.0.flush()
    }
    fn punch_hole(&self, offset: u64, len: u64) -> Result<()> {
        self.0.punch_hole(offset, len)
    }
    fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        self.0.allocate(offset, len)
    }
    fn uncache(&self, offset: u64, len: u64) {
        self.0.uncache(offset, len);
    }
    fn set_len(&self, len: u64) -> Result<()> {
        self.0.set_len(len)
    }
    fn len(&self) -> Result<u64> {
        self.0.len()
    }
    fn try_lock(&self) -> Result<bool> {
        self.0.try_lock()
    }
}

fn memory_mib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap() / 1024.0
}

struct Random(u64);
impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

/// Wakes the bench's loop, as an OSD's event loop would be woken.
#[derive(Default)]
struct Bell(Mutex<bool>, Condvar);
impl Bell {
    fn ring(&self) {
        *self.0.lock().unwrap() = true;
        self.1.notify_one();
    }
    fn wait(&self) {
        let mut rung = self.0.lock().unwrap();
        while !*rung {
            rung = self.1.wait_timeout(rung, Duration::from_millis(100)).unwrap().0;
        }
        *rung = false;
    }
}

struct Bench {
    store: Store,
    bell: Arc<Bell>,
    random: Random,
    version: u64,
    objects: u64,
    data: Bytes,
}

impl Bench {
    /// What an OSD queues for a 4 KiB client write: data, the object's info, a log entry.
    fn write(&mut self) -> Transaction {
        let o = oid(self.random.below(self.objects));
        let at = self.random.below(OBJECT / BLOCK) * BLOCK;
        let skip = self.random.below(4096) as usize;
        self.version += 1;
        let mut t = Transaction::new(SPgId::replicated(PgId::new(1, 0)));
        t.ops = vec![
            Op::Write {
                oid: o.clone(),
                offset: at,
                data: self.data.slice(skip..skip + BLOCK as usize),
            },
            Op::SetAttrs {
                oid: o,
                attrs: vec![(Bytes::from_static(b"_"), self.data.slice(..270))],
            },
            Op::LogAppend {
                version: EVersion::new(1, self.version),
                entry: self.data.slice(..180),
            },
        ];
        if self.version.is_multiple_of(100) && self.version > 3000 {
            t.ops.push(Op::LogTrim {
                to: EVersion::new(1, self.version - 3000),
            });
        }
        t
    }

    fn fill(&mut self) {
        let mut t = Transaction::new(SPgId::replicated(PgId::new(1, 0)));
        t.ops.push(Op::CreateCollection);
        self.store.queue(t).unwrap();
        let data: Bytes = vec![7u8; OBJECT as usize].into();
        let start = Instant::now();
        let (cpu, disk) = (cpu_us(), disk_bytes());
        for n in 0..self.objects {
            let mut t = Transaction::new(SPgId::replicated(PgId::new(1, 0)));
            t.ops.push(Op::Write {
                oid: oid(n),
                offset: 0,
                data: data.clone(),
            });
            self.store.queue(t).unwrap();
            self.store.kick();
        }
        self.store.wait(self.store.queued()).unwrap();
        let mib = (self.objects * OBJECT) as f64 / 1048576.0;
        println!(
            "4 MiB writes: {:.0} MiB/s, {:.0} us CPU each, {:.3} bytes written per byte",
            mib / start.elapsed().as_secs_f64(),
            (cpu_us() - cpu) / self.objects as f64,
            (disk_bytes() - disk) as f64 / (self.objects * OBJECT) as f64
        );
    }

    fn overwrite(&mut self, depth: usize, time: Duration) {
        let mut waiting: VecDeque<(u64, Instant)> = VecDeque::new();
        let mut latency: Vec<u32> = Vec::new();
        let before = self.store.counters();
        let (cpu, disk, start) = (cpu_us(), disk_bytes(), Instant::now());
        let mut queue_time = Duration::ZERO;
        let mut ops = 0u64;
        while start.elapsed() < time || !waiting.is_empty() {
            if start.elapsed() < time && waiting.len() < depth {
                while waiting.len() < depth {
                    let t = self.write();
                    let at = Instant::now();
                    waiting.push_back((self.store.queue(t).unwrap(), at));
                    queue_time += at.elapsed();
                }
                self.store.kick();
            }
            self.bell.wait();
            let durable = self.store.durable();
            while waiting.front().is_some_and(|(s, _)| *s <= durable) {
                let (_, at) = waiting.pop_front().unwrap();
                latency.push(at.elapsed().as_micros() as u32);
                ops += 1;
            }
            if ops.is_multiple_of(1024) {
                self.store.tick(start.elapsed());
            }
        }
        let took = start.elapsed();
        let used = cpu_us() - cpu;
        // What waits for its write-back is part of the price.
        self.store.checkpoint().unwrap();
        let with_checkpoint = cpu_us() - cpu;
        let c = self.store.counters();
        latency.sort_unstable();
        let p = |q: f64| latency[((latency.len() - 1) as f64 * q) as usize];
        println!(
            "4 KiB overwrite, depth {depth}: {:.0}/s, latency us p50 {} p99 {} max {}; CPU us per op {:.1} ({:.1} with the last checkpoint), owner {:.1}; {:.2} bytes written per byte; {} flushes, {} checkpoints, {} stalls; {:.0} MiB",
            ops as f64 / took.as_secs_f64(),
            p(0.5),
            p(0.99),
            p(1.0),
            used / ops as f64,
            with_checkpoint / ops as f64,
            queue_time.as_micros() as f64 / ops as f64,
            (disk_bytes() - disk) as f64 / (ops * BLOCK) as f64,
            c.flushes - before.flushes,
            c.checkpoints - before.checkpoints,
            c.stalls - before.stalls,
            memory_mib(),
        );
    }

    fn read(&mut self, time: Duration) {
        for depth in [1usize, 32] {
            let (cpu, start) = (cpu_us(), Instant::now());
            let (mut ops, mut hits) = (0u64, 0u64);
            let mut open = std::collections::HashMap::new();
            while start.elapsed() < time || !open.is_empty() {
                while start.elapsed() < time && open.len() < depth {
                    let at = self.random.below(OBJECT / BLOCK) * BLOCK;
                    let o = oid(self.random.below(self.objects));
                    match self.store.prefetch(&o, at, BLOCK).unwrap() {
                        Some(t) => drop(open.insert(t, (o, at))),
                        None => {
                            assert_eq!(self.store.read(&o, at, BLOCK).unwrap().len(), BLOCK as usize);
                            hits += 1;
                            ops += 1;
                        }
                    }
                }
                self.store.kick();
                self.store.wait_reads().unwrap();
                for t in self.store.prefetched() {
                    let (o, at) = open.remove(&t).unwrap();
                    assert_eq!(self.store.read(&o, at, BLOCK).unwrap().len(), BLOCK as usize);
                    self.store.release(t);
                    ops += 1;
                }
            }
            println!(
                "4 KiB read, depth {depth}: {:.0}/s, {hits} from memory, CPU us per op {:.1}",
                ops as f64 / start.elapsed().as_secs_f64(),
                (cpu_us() - cpu) / ops as f64
            );
        }
    }
}

/// Many small objects: memory, a kill with a full log, opening, listing.
fn many(dir: &Path, options: &Options, mut store: Store, n: u64) {
    let data: Bytes = vec![5u8; 4096].into();
    let c = SPgId::replicated(PgId::new(1, 0));
    let mut t = Transaction::new(c);
    t.ops.push(Op::CreateCollection);
    store.queue(t).unwrap();
    let start = Instant::now();
    let cpu = cpu_us();
    for i in 0..n {
        let mut t = Transaction::new(c);
        t.ops = vec![
            Op::Write {
                oid: oid(i),
                offset: 0,
                data: data.clone(),
            },
            Op::SetAttrs {
                oid: oid(i),
                attrs: vec![(Bytes::from_static(b"_"), data.slice(..270))],
            },
        ];
        store.queue(t).unwrap();
        if i % 32 == 31 {
            store.kick();
        }
    }
    store.wait(store.queued()).unwrap();
    println!(
        "{n} objects of 4 KiB: {:.0}/s, CPU us each {:.1}; {:.0} MiB; {:?}",
        n as f64 / start.elapsed().as_secs_f64(),
        (cpu_us() - cpu) / n as f64,
        memory_mib(),
        store.statfs()
    );
    drop(store);
    let start = Instant::now();
    let mut store = Store::open(dir, options, Arc::new(|| {})).unwrap();
    println!(
        "open after a kill: {} ms; {:.0} MiB",
        start.elapsed().as_millis(),
        memory_mib()
    );
    let start = Instant::now();
    let mut from = ObjectId {
        shard: -1,
        object: HObject::min(),
    };
    let mut found = 0;
    loop {
        let page = store.list(&from, 1001).unwrap();
        found += page.len().min(1000);
        match page.get(1000) {
            Some(next) => from = next.clone(),
            None => break,
        }
    }
    assert_eq!(found as u64, n);
    println!("list of all in pages of 1000: {} ms", start.elapsed().as_millis());
    store.checkpoint().unwrap();
    println!("at rest: {:.0} MiB", memory_mib());
    let start = Instant::now();
    store.close().unwrap();
    let closed = start.elapsed();
    let store = Store::open(dir, options, Arc::new(|| {})).unwrap();
    println!(
        "close {} ms, open {} ms",
        closed.as_millis(),
        (start.elapsed() - closed).as_millis()
    );
    drop(store);
}

fn raw(dir: &Path, mib: u64, time: Duration) {
    use std::os::unix::fs::FileExt;
    let path = dir.join("raw");
    let f = std::fs::File::create(&path).unwrap();
    let chunk = vec![1u8; 1 << 20];
    (0..mib).for_each(|i| f.write_all_at(&chunk, i << 20).unwrap());
    f.sync_all().unwrap();
    let mut random = Random(88172645463325252);
    let mut latency = Vec::new();
    let (cpu, start) = (cpu_us(), Instant::now());
    while start.elapsed() < time {
        let at = Instant::now();
        f.write_all_at(&chunk[..4096], random.below(mib * 256) * BLOCK)
            .unwrap();
        f.sync_data().unwrap();
        latency.push(at.elapsed().as_micros() as u32);
    }
    let n = latency.len();
    let used = cpu_us() - cpu;
    latency.sort_unstable();
    println!(
        "raw file, 4 KiB write + fdatasync: {:.0}/s, latency us p50 {} p99 {}; CPU us per op {:.1}",
        n as f64 / start.elapsed().as_secs_f64(),
        latency[n / 2],
        latency[n * 99 / 100],
        used / n as f64
    );
    drop(f);
    std::fs::remove_file(path).unwrap();
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let dir = Path::new(args.get(1).map_or("bench-store", |s| s));
    let number = |i: usize, or: u64| args.get(i).and_then(|s| s.parse().ok()).unwrap_or(or);
    let (mib, seconds) = (number(2, 256), number(3, 5));
    let depths = args.get(4).map_or("1,32", |s| s);
    let time = Duration::from_secs(seconds);
    std::fs::create_dir_all(dir).unwrap();
    if args.get(5).is_some_and(|s| s == "raw") {
        raw(dir, mib, time);
    }
    for f in ["block", "index"] {
        let _ = std::fs::remove_file(dir.join(f));
    }
    let options = Options {
        host_reserve_bytes: 0,
        ..Options::default()
    };
    let start = Instant::now();
    Store::mkfs(dir, &options).unwrap();
    let made = start.elapsed();
    let bell = Arc::new(Bell::default());
    let ring = bell.clone();
    let disk = Arc::new(Counting(HostDisk::new(dir)));
    let store = Store::open_on(disk, &options, Arc::new(move || ring.ring())).unwrap();
    println!(
        "mkfs {} ms, open {} ms",
        made.as_millis(),
        (start.elapsed() - made).as_millis()
    );
    if let Some(n) = args.get(5).and_then(|s| s.strip_prefix("objects=")) {
        return many(dir, &options, store, n.parse().unwrap());
    }
    let data: Vec<u8> = (0..16384u32)
        .map(|i| (i.wrapping_mul(2654435761) >> 13) as u8)
        .collect();
    let mut bench = Bench {
        store,
        bell,
        random: Random(88172645463325252),
        version: 0,
        objects: (mib << 20) / OBJECT,
        data: data.into(),
    };
    bench.fill();
    for depth in depths.split(',') {
        bench.overwrite(depth.parse().unwrap(), time);
    }
    bench.read(time.min(Duration::from_secs(3)));
    println!("at rest: {:.0} MiB", memory_mib());
    let start = Instant::now();
    let Bench { store, .. } = bench;
    store.close().unwrap();
    let closed = start.elapsed();
    let store = Store::open(dir, &options, Arc::new(|| {})).unwrap();
    println!(
        "close {} ms, open again {} ms",
        closed.as_millis(),
        (start.elapsed() - closed).as_millis()
    );
    drop(store);
}
