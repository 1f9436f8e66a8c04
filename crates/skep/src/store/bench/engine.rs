//! The engine under load: one thread that owns a store and keeps it busy, as an OSD's does.
//!
//! Every measurement has a bound in time, and ends early when the user interrupts.

use super::disk::Counting;
use super::measure::{Bell, Dice, Latencies, Shuffled, Used, peak_bytes, reset_peak};
use super::report::Measured;
use crate::store::outcome::Fail;
use ::store::{Options, Seq, Store, Ticket, View};
use ::types::{EVersion, HObject, NOSNAP, ObjectId, Op, PgId, SPgId, Transaction};
use bytes::Bytes;
use io::disk::Disk;
use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub const BLOCK: u64 = 4096;
pub const OBJECT: u64 = 4 << 20;
/// Of 4 MiB operations, under way at once.
const LARGE_DEPTH: usize = 4;
/// What is read again and again for warm reads.
const WARM_BYTES: u64 = 16 << 20;
/// As an OSD keeps them.
const LOG_MIN: u64 = 3000;
const LOG_TRIM: u64 = 100;
/// What an OSD keeps with an object, and of a write in the PG's log.
const INFO_BYTES: usize = 270;
const ENTRY_BYTES: usize = 180;
/// Objects listed at once.
const LIST_PAGE: usize = 1000;

pub struct Engine {
    disk: Arc<Counting>,
    options: Options,
    store: Store,
    bell: Arc<Bell>,
    stop: Arc<AtomicBool>,
    dice: Dice,
    version: u64,
    /// Of 4 MiB.
    objects: u64,
    data: Bytes,
    start: Instant,
}

/// What is measured besides the operations, from its beginning on.
struct Meter {
    start: Instant,
    used: Used,
    written: u64,
    counters: ::store::Counters,
    latencies: Latencies,
}

fn collection() -> SPgId {
    SPgId::replicated(PgId::new(1, 0))
}

fn oid(n: u64) -> ObjectId {
    let name = Bytes::from(format!("rbd_data.10226b8b4567.{n:016x}"));
    let hash = (n as u32).wrapping_mul(0x9e37_79b9);
    ObjectId::replicated(HObject::new(1, hash, Bytes::new(), Bytes::new(), name, NOSNAP))
}

fn transaction(ops: Vec<Op>) -> Transaction {
    Transaction {
        collection: collection(),
        ops,
    }
}

fn info(oid: &ObjectId, data: &Bytes) -> Op {
    Op::SetAttrs {
        oid: oid.clone(),
        attrs: vec![(Bytes::from_static(b"i"), data.slice(..INFO_BYTES))],
    }
}

/// Not all alike, and no block of zeros.
fn pattern(len: u64) -> Bytes {
    let byte = |i: u64| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8 | 1;
    (0..len).map(byte).collect()
}

fn open(disk: &Arc<Counting>, options: &Options, bell: &Arc<Bell>) -> Result<Store, Fail> {
    let ring = bell.clone();
    let store = Store::open_on(disk.clone(), options, Arc::new(move || ring.ring()))?;
    Ok(store)
}

impl Engine {
    /// A new store on the disk.
    pub fn make(disk: Counting, options: &Options, size: u64, stop: Arc<AtomicBool>) -> Result<Self, Fail> {
        let disk = Arc::new(disk);
        Store::mkfs_on(disk.clone(), options)?;
        let bell = Arc::new(Bell::default());
        let mut store = open(&disk, options, &bell)?;
        let seq = store.queue(transaction(vec![Op::CreateCollection]))?;
        store.wait(seq)?;
        Ok(Self {
            store,
            disk,
            options: options.clone(),
            bell,
            stop,
            dice: Dice::new(),
            version: 0,
            objects: (size / OBJECT).max(1),
            data: pattern(OBJECT + BLOCK),
            start: Instant::now(),
        })
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn meter(&self) -> Meter {
        reset_peak();
        Meter {
            start: Instant::now(),
            used: Used::now(),
            written: self.disk.written(),
            counters: self.store.counters(),
            latencies: Latencies::new(),
        }
    }

    /// `took` is the time of the operations; what the engine still does for them afterwards counts for the rest.
    fn measured(&self, m: Meter, name: &'static str, depth: u32, block: u64, took: Duration) -> Measured {
        let (used, c) = (Used::now(), self.store.counters());
        Measured {
            name,
            depth,
            block,
            seconds: took.as_secs_f64(),
            cpu: used.cpu.saturating_sub(m.used.cpu),
            written: self.disk.written() - m.written,
            kernel_written: used.kernel_written - m.used.kernel_written,
            flushes: c.flushes - m.counters.flushes,
            checkpoints: c.checkpoints - m.counters.checkpoints,
            stalls: c.stalls - m.counters.stalls,
            beside: 0,
            peak_bytes: peak_bytes(),
            latencies: m.latencies,
        }
    }

    /// Keeps `depth` transactions of `next` under way until it gives none. Each is durable when it counts.
    fn write(
        &mut self,
        m: &mut Meter,
        depth: usize,
        mut next: impl FnMut(&mut Self) -> Option<Transaction>,
    ) -> Result<Duration, Fail> {
        let mut waiting: VecDeque<(Seq, Instant)> = VecDeque::new();
        let mut more = true;
        let mut tick = Instant::now();
        loop {
            while more && waiting.len() < depth {
                match next(self).filter(|_| !self.stopped()) {
                    Some(t) => {
                        let at = Instant::now();
                        waiting.push_back((self.store.queue(t)?, at));
                    }
                    None => more = false,
                }
            }
            if waiting.is_empty() {
                return Ok(m.start.elapsed());
            }
            self.store.kick();
            self.bell.wait();
            if let Some(e) = self.store.failed() {
                return Err(e.into());
            }
            let durable = self.store.durable();
            while let Some((_, at)) = waiting.pop_front_if(|(seq, _)| *seq <= durable) {
                m.latencies.add(at.elapsed());
            }
            if tick.elapsed() >= Duration::from_secs(1) {
                tick = Instant::now();
                self.store.tick(self.start.elapsed());
            }
        }
    }

    fn large(&self, n: u64) -> Transaction {
        let oid = oid(n);
        // Another pattern at each write.
        let skip = (self.version % BLOCK) as usize;
        let data = self.data.slice(skip..skip + OBJECT as usize);
        transaction(vec![
            Op::Write {
                oid: oid.clone(),
                offset: 0,
                data,
            },
            info(&oid, &self.data),
        ])
    }

    /// Writes every object once, into a file that grows.
    pub fn fill(&mut self) -> Result<Measured, Fail> {
        let mut n = 0;
        let mut m = self.meter();
        let took = self.write(&mut m, LARGE_DEPTH, |e| {
            n += 1;
            (n <= e.objects).then(|| e.large(n - 1))
        })?;
        self.store.checkpoint()?;
        Ok(self.measured(m, "write new", LARGE_DEPTH as u32, OBJECT, took))
    }

    /// Writes the objects again, one behind the other.
    pub fn sequential_write(&mut self, time: Duration) -> Result<Measured, Fail> {
        let mut n = 0;
        let mut m = self.meter();
        let end = m.start + time;
        let took = self.write(&mut m, LARGE_DEPTH, |e| {
            n += 1;
            e.version += 1;
            (Instant::now() < end).then(|| e.large((n - 1) % e.objects))
        })?;
        self.store.checkpoint()?;
        Ok(self.measured(m, "write again", LARGE_DEPTH as u32, OBJECT, took))
    }

    /// What an OSD queues for a 4 KiB write: data, the object's info, a log entry.
    fn small(&mut self) -> Transaction {
        let oid = oid(self.dice.below(self.objects));
        let offset = self.dice.below(OBJECT / BLOCK) * BLOCK;
        let skip = self.dice.below(OBJECT) as usize;
        self.version += 1;
        let mut ops = vec![
            Op::Write {
                oid: oid.clone(),
                offset,
                data: self.data.slice(skip..skip + BLOCK as usize),
            },
            info(&oid, &self.data),
            Op::LogAppend {
                version: EVersion::new(1, self.version),
                entry: self.data.slice(..ENTRY_BYTES),
            },
        ];
        if self.version % LOG_TRIM == 0 && self.version > LOG_MIN {
            ops.push(Op::LogTrim {
                to: EVersion::new(1, self.version - LOG_MIN),
            });
        }
        transaction(ops)
    }

    /// Random overwrites. The write-back of what waits at the end is part of CPU and bytes, not of the rate.
    pub fn overwrite(&mut self, depth: u32, time: Duration) -> Result<Measured, Fail> {
        let mut m = self.meter();
        let end = m.start + time;
        let took = self.write(&mut m, depth as usize, |e| {
            (Instant::now() < end).then(|| e.small())
        })?;
        self.store.checkpoint()?;
        Ok(self.measured(m, "overwrite", depth, BLOCK, took))
    }

    /// Keeps `depth` reads of `next` under way until it gives none; gives also how many of them went on beside
    /// this thread.
    fn read(
        &mut self,
        m: &mut Meter,
        depth: usize,
        mut next: impl FnMut(&mut Self) -> Option<(ObjectId, u64, u64)>,
    ) -> Result<(Duration, u64), Fail> {
        let mut waiting: HashMap<Ticket, (ObjectId, u64, u64, Instant)> = HashMap::new();
        let mut beside = 0;
        // Starts reads until `depth` are under way: false when `next` gives none.
        let mut refill = |e: &mut Self, waiting: &mut HashMap<_, _>, m: &mut Meter| -> Result<bool, Fail> {
            while waiting.len() < depth {
                let Some((oid, offset, len)) = next(e).filter(|_| !e.stopped()) else {
                    return Ok(false);
                };
                let at = Instant::now();
                match e.store.prefetch(&oid, offset, len)? {
                    Some(ticket) => {
                        waiting.insert(ticket, (oid, offset, len, at));
                        beside += 1;
                    }
                    None => {
                        e.take(&oid, offset, len)?;
                        m.latencies.add(at.elapsed());
                    }
                }
            }
            Ok(true)
        };
        let mut more = refill(self, &mut waiting, m)?;
        while !waiting.is_empty() {
            self.store.kick();
            self.store.wait_reads()?;
            for ticket in self.store.prefetched() {
                let Some((oid, offset, len, at)) = waiting.remove(&ticket) else {
                    continue;
                };
                let read = self.take(&oid, offset, len);
                self.store.release(ticket);
                read?;
                m.latencies.add(at.elapsed());
                // One comes as one goes, as with clients that each wait for their own.
                more = more && refill(self, &mut waiting, m)?;
            }
        }
        Ok((m.start.elapsed(), beside))
    }

    fn take(&self, oid: &ObjectId, offset: u64, len: u64) -> Result<(), Fail> {
        let data = self.store.read(oid, offset, len)?;
        if data.len() as u64 != len {
            let text = format!(
                "{}: {} bytes instead of {len} at {offset}",
                oid.object,
                data.len()
            );
            return Err(Fail::Usage(text));
        }
        Ok(())
    }

    /// Random reads, no block twice.
    pub fn read_cold(&mut self, depth: u32, time: Duration) -> Result<Measured, Fail> {
        let per_object = OBJECT / BLOCK;
        let mut blocks = Shuffled::new(self.objects * per_object);
        let mut m = self.meter();
        let end = m.start + time;
        let (took, beside) = self.read(&mut m, depth as usize, |_| {
            let n = blocks.next().filter(|_| Instant::now() < end)?;
            Some((oid(n / per_object), n % per_object * BLOCK, BLOCK))
        })?;
        let measured = self.measured(m, "read cold", depth, BLOCK, took);
        Ok(Measured { beside, ..measured })
    }

    /// Random reads of a part that was read before.
    pub fn read_warm(&mut self, depth: u32, time: Duration) -> Result<Measured, Fail> {
        let objects = (WARM_BYTES / OBJECT).min(self.objects);
        for n in 0..objects {
            for block in 0..OBJECT / BLOCK {
                self.take(&oid(n), block * BLOCK, BLOCK)?;
            }
        }
        let mut m = self.meter();
        let end = m.start + time;
        let (took, beside) = self.read(&mut m, depth as usize, |e| {
            let (n, at) = (e.dice.below(objects), e.dice.below(OBJECT / BLOCK) * BLOCK);
            (Instant::now() < end).then(|| (oid(n), at, BLOCK))
        })?;
        let measured = self.measured(m, "read warm", depth, BLOCK, took);
        Ok(Measured { beside, ..measured })
    }

    /// Every object once, one behind the other, for as long as there is time.
    pub fn sequential_read(&mut self, time: Duration) -> Result<Measured, Fail> {
        let mut n = 0;
        let mut m = self.meter();
        let end = m.start + time;
        let (took, beside) = self.read(&mut m, LARGE_DEPTH, |e| {
            n += 1;
            (n <= e.objects && Instant::now() < end).then(|| (oid(n - 1), 0, OBJECT))
        })?;
        let measured = self.measured(m, "read cold", LARGE_DEPTH as u32, OBJECT, took);
        Ok(Measured { beside, ..measured })
    }

    /// Closes the store, has the host forget what it holds of it, and opens it again: seconds that closing and
    /// opening took.
    pub fn cool(self) -> Result<(Self, f64, f64), Fail> {
        let Self {
            disk,
            options,
            store,
            bell,
            ..
        } = self;
        let start = Instant::now();
        store.close()?;
        let closed = start.elapsed();
        uncache(&disk)?;
        let start = Instant::now();
        let store = open(&disk, &options, &bell)?;
        let opened = start.elapsed();
        let engine = Self {
            disk,
            options,
            store,
            bell,
            ..self
        };
        Ok((engine, closed.as_secs_f64(), opened.as_secs_f64()))
    }

    /// Leaves the store as a kill would and opens it again: seconds, and transactions in the log.
    pub fn crash(self) -> Result<(Self, f64, u64), Fail> {
        let Self {
            disk,
            options,
            store,
            bell,
            ..
        } = self;
        drop(store);
        let dir = disk.name();
        let replayed = View::open(Path::new(&dir), &options)?.replayed();
        uncache(&disk)?;
        let start = Instant::now();
        let store = open(&disk, &options, &bell)?;
        let opened = start.elapsed();
        let engine = Self {
            disk,
            options,
            store,
            bell,
            ..self
        };
        Ok((engine, opened.as_secs_f64(), replayed))
    }

    /// Makes `n` objects of one block.
    pub fn make_small(&mut self, n: u64, depth: u32) -> Result<Measured, Fail> {
        let mut i = 0;
        let mut m = self.meter();
        let took = self.write(&mut m, depth as usize, |e| {
            i += 1;
            (i <= n).then(|| {
                let oid = oid(i - 1);
                let data = e.data.slice(..BLOCK as usize);
                let write = Op::Write {
                    oid: oid.clone(),
                    offset: 0,
                    data,
                };
                transaction(vec![write, info(&oid, &e.data)])
            })
        })?;
        Ok(self.measured(m, "create", depth, BLOCK, took))
    }

    /// Lists everything: seconds and objects.
    pub fn list(&self) -> Result<(f64, u64), Fail> {
        let start = Instant::now();
        let mut from = ObjectId {
            shard: i8::MIN,
            object: HObject::min(),
        };
        let mut found = 0;
        loop {
            let page = self.store.list(&from, LIST_PAGE + 1)?;
            found += page.len().min(LIST_PAGE) as u64;
            match page.into_iter().nth(LIST_PAGE) {
                Some(next) => from = next,
                None => return Ok((start.elapsed().as_secs_f64(), found)),
            }
        }
    }
}

/// Has the host forget what it holds of the store's files, as a hint that it follows where all is flushed.
fn uncache(disk: &Counting) -> Result<(), Fail> {
    for name in ["block", "index"] {
        let file = disk
            .open(name)
            .map_err(|e| Fail::Io(format!("open the file {name}"), e))?;
        file.flush()
            .map_err(|e| Fail::Io(format!("flush the file {name}"), e))?;
        // Length 0: to the end.
        file.uncache(0, 0);
    }
    Ok(())
}
