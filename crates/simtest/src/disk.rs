//! The work of a store's threads on virtual time: how long flushes and reads take, and a disk that hangs.
//!
//! Invariants: between the write of a batch and its flush time passes, so that a kill finds some of it, all or nothing. A
//! read beside its owner sees the disk as it is when the read ends.
//!
//! Not here: what a disk loses (`io::disk::sim`); reads that their owner waits for take no time.

use bytes::Bytes;
use io::disk::sim::SimDisk;
use io::disk::{AlignedVec, DiskFile, ReadDone, ReadQueue, WriteDone, WriteQueue};
use io_sim::Dice;
use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use store::{Background, Driver, Waker};
use tokio::sync::{Notify, watch};
use tokio::time::sleep;

/// The log of each store.
pub const LOG_BYTES: u64 = 64 << 20;

/// A disk that has all that a host's may have; a driver uses it or not.
pub fn new() -> SimDisk {
    let disk = SimDisk::new();
    disk.offer_queues();
    disk
}

/// How a disk behaves; changed while it runs.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    pub flush_us: (u64, u64),
    pub hangs: bool,
}

impl Pace {
    pub const FAST: Self = Self {
        flush_us: (500, 4000),
        hangs: false,
    };
}

/// One disk's pace, and the dice that it is drawn with; clones are the same.
#[derive(Debug, Clone)]
pub struct Pacing {
    pace: Arc<watch::Sender<Pace>>,
    dice: Arc<Mutex<Dice>>,
    reads: Arc<Mutex<Dice>>,
}

/// How long a read takes.
const READ_US: (u64, u64) = (100, 3000);

impl Pacing {
    pub fn new(dice: Dice, reads: Dice) -> Self {
        Self {
            pace: Arc::new(watch::channel(Pace::FAST).0),
            dice: Arc::new(Mutex::new(dice)),
            reads: Arc::new(Mutex::new(reads)),
        }
    }

    pub fn set(&self, pace: Pace) {
        self.pace.send_replace(pace);
    }

    fn dice(&self) -> MutexGuard<'_, Dice> {
        lock(&self.dice)
    }

    async fn flush(&self) {
        let (least, most) = self.pace.borrow().flush_us;
        let us = least + self.dice().below(most - least + 1);
        self.take(us).await;
    }

    async fn read(&self) {
        let (least, most) = READ_US;
        let us = least + lock(&self.reads).below(most - least + 1);
        self.take(us).await;
    }

    async fn take(&self, us: u64) {
        sleep(Duration::from_micros(us)).await;
        // The sender lives in `self`.
        let _ = self.pace.subscribe().wait_for(|p| !p.hangs).await;
    }
}

fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Drives one life of one store, in the process that opens it.
#[derive(Debug)]
pub struct SimDriver {
    pacing: Pacing,
    log: Arc<Notify>,
    helper: Arc<Notify>,
    slow_reads: bool,
}

impl SimDriver {
    pub fn new(pacing: Pacing, slow_reads: bool) -> Arc<Self> {
        Arc::new(Self {
            pacing,
            slow_reads,
            log: Arc::new(Notify::new()),
            helper: Arc::new(Notify::new()),
        })
    }
}

impl Driver for SimDriver {
    fn start(&self, work: Background) {
        let (pacing, log, helper) = (self.pacing.clone(), self.log.clone(), self.helper.clone());
        let (more, committer) = (self.helper.clone(), work.clone());
        tokio::task::spawn_local(async move {
            loop {
                while committer.begin_log() {
                    pacing.flush().await;
                    committer.end_log();
                    more.notify_one();
                }
                log.notified().await;
            }
        });
        let pacing = self.pacing.clone();
        tokio::task::spawn_local(async move {
            loop {
                while work.step_helper() {
                    pacing.flush().await;
                }
                helper.notified().await;
            }
        });
    }

    fn wake(&self) {
        self.log.notify_one();
        self.helper.notify_one();
    }

    fn reads(&self, file: &Arc<dyn DiskFile>, done: &Waker) -> Option<Box<dyn ReadQueue>> {
        let shared = Arc::new(Reads {
            pacing: self.pacing.clone(),
            file: file.clone(),
            wake: Wake(done.clone()),
            queue: Mutex::default(),
        });
        self.slow_reads
            .then(|| Box::new(SimReads(shared)) as Box<dyn ReadQueue>)
    }

    /// A host that reads beside the owner writes beside it, too.
    fn writes(&self, file: &Arc<dyn DiskFile>, done: &Waker) -> Option<Box<dyn WriteQueue>> {
        let queue = file.write_queue().ok()?.filter(|_| self.slow_reads)?;
        Some(Box::new(SimWrites {
            pacing: self.pacing.clone(),
            queue,
            wake: Wake(done.clone()),
            begun: 0,
            due: Arc::default(),
        }))
    }
}

/// Writes of the log beside a store's owner: on the disk in part until the time of a flush has passed.
#[derive(Debug)]
struct SimWrites {
    pacing: Pacing,
    queue: Box<dyn WriteQueue>,
    wake: Wake,
    /// So many writes were begun; the last one's time has passed.
    begun: u64,
    due: Arc<AtomicU64>,
}

impl WriteQueue for SimWrites {
    fn begin(&mut self, data: AlignedVec, offset: u64) {
        self.queue.begin(data, offset);
        self.begun += 1;
        let (pacing, due, wake, number) = (
            self.pacing.clone(),
            self.due.clone(),
            self.wake.clone(),
            self.begun,
        );
        tokio::task::spawn_local(async move {
            pacing.flush().await;
            due.fetch_max(number, Ordering::Relaxed);
            (wake.0)();
        });
    }

    fn ended(&mut self) -> Option<WriteDone> {
        let due = self.due.load(Ordering::Relaxed) >= self.begun;
        due.then(|| self.queue.ended()).flatten()
    }

    /// Nobody lets time pass while the owner waits.
    fn wait(&mut self) -> std::io::Result<()> {
        self.due.store(self.begun, Ordering::Relaxed);
        self.queue.wait()
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// Wakes the store's owner.
#[derive(Clone)]
struct Wake(Waker);

impl std::fmt::Debug for Wake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Wake")
    }
}

#[derive(Debug, Default)]
struct Queue {
    /// Taken and not begun, in order.
    waiting: Vec<u64>,
    /// All that have not ended: where, and how much.
    open: BTreeMap<u64, (u64, usize)>,
    done: Vec<ReadDone>,
}

#[derive(Debug)]
struct Reads {
    pacing: Pacing,
    file: Arc<dyn DiskFile>,
    wake: Wake,
    queue: Mutex<Queue>,
}

impl Reads {
    /// Reads now, unless that was done before.
    fn end(&self, token: u64) {
        let mut queue = lock(&self.queue);
        if let Some((offset, len)) = queue.open.remove(&token) {
            let mut buf = vec![0; len];
            let data = self.file.read_at(&mut buf, offset).map(|()| Bytes::from(buf));
            queue.done.push(ReadDone { token, data });
        }
    }
}

/// Reads beside a store's owner, each a task of its process.
#[derive(Debug)]
struct SimReads(Arc<Reads>);

impl ReadQueue for SimReads {
    fn push(&mut self, token: u64, offset: u64, len: usize) {
        let mut queue = lock(&self.0.queue);
        queue.waiting.push(token);
        queue.open.insert(token, (offset, len));
    }

    fn submit(&mut self) {
        for token in std::mem::take(&mut lock(&self.0.queue).waiting) {
            let reads = self.0.clone();
            tokio::task::spawn_local(async move {
                reads.pacing.read().await;
                reads.end(token);
                (reads.wake.0)();
            });
        }
    }

    fn completed(&mut self, out: &mut Vec<ReadDone>) {
        self.submit();
        out.append(&mut lock(&self.0.queue).done);
    }

    /// Nobody lets time pass while the owner waits.
    fn wait(&mut self) -> std::io::Result<()> {
        let open: Vec<u64> = lock(&self.0.queue).open.keys().copied().collect();
        open.into_iter().for_each(|token| self.0.end(token));
        Ok(())
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
