//! Group commit: batches of records go to the log with one write and one flush each.
//!
//! The owner appends records to the *open* batch; the committer (a thread, or the owner itself in
//! simulation) takes everything that gathered while it flushed the batch before. Direct extents of a
//! batch are covered by the same flush. While the committer is busy with one batch, the *data thread* writes direct
//! extents of those behind it: nothing refers to them before their record, so they may be written any time.
//!
//! Invariants: a batch's records go to the log only after the flush of the batch before, and are flushed only when
//! all of its direct extents are written; a failed write or flush is final, and no record is written after it.
//! `head - tail` never exceeds the ring.
//!
//! Bounds: [`Committer::fits`] says whether a record of some size still fits into the ring.

mod batch;
mod inner;
mod owner;

pub use owner::OwnerWrites;

use crate::broken::{self, Rule};
use crate::direct::Direct;
use crate::ring::{HEADER, Header, Ring, padded};
use crate::values::{Counters, Seq, Waker};
use crate::zeros::write_zeros;
use crate::{Error, Result};
use batch::{Batch, Data, Work};
use inner::{Inner, Owner, ZERO_BYTES};
use io::disk::{DiskFile, write_slices};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use types::checksum::crc32c;

/// A batch closes at this size.
const BATCH_BYTES: usize = 4 << 20;
/// Direct data in one batch: closes it as well.
const BATCH_DIRECT_BYTES: u64 = 8 << 20;
/// A transaction with so much direct data begins at once, without a kick: it is worth a flush of its own.
const EAGER_BYTES: u64 = 1 << 20;
/// One write of direct data through the page cache; see `zeros` for why pieces are small.
const CACHED_WRITE_BYTES: usize = 64 << 10;

pub struct Committer {
    path: String,
    file: Arc<dyn DiskFile>,
    ring: Ring,
    tag: u64,
    incarnation: u64,
    waker: Waker,
    /// Without threads: called when a batch waits.
    caller: Option<Waker>,
    inner: Mutex<Inner>,
    work: Condvar,
    /// For the data thread.
    data: Condvar,
    /// The data thread has ended what it took.
    written: Condvar,
    done: Condvar,
    durable: AtomicU64,
    /// There is a `failed`: read without the lock, which the threads want when the owner asks.
    has_failed: AtomicBool,
}

impl std::fmt::Debug for Committer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Committer({})", self.path)
    }
}

/// What the log looked like when it was opened.
#[derive(Debug, Clone, Copy)]
pub struct Start {
    pub head: u64,
    pub tail: u64,
    pub batch: u64,
    pub incarnation: u64,
    pub seq: Seq,
}

/// Held by a thread of the store while it runs: should it panic, the store fails, so that nobody waits for it for ever.
pub struct OnPanic<'a> {
    pub committer: &'a Committer,
    pub thread: &'static str,
}

impl Drop for OnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.committer.fail(Error::Panicked {
                path: self.committer.path.clone(),
                thread: self.thread,
            });
        }
    }
}

impl Committer {
    pub fn new(
        path: &str,
        file: Arc<dyn DiskFile>,
        ring: Ring,
        tag: u64,
        waker: Waker,
        caller: Option<Waker>,
        start: Start,
    ) -> Self {
        assert!(
            start.tail <= start.head && start.head - start.tail <= ring.len,
            "a log fits into its ring of {} bytes: from {} to {}",
            ring.len,
            start.tail,
            start.head
        );
        let inner = Inner::new(&ring, &start);
        Self {
            path: path.to_owned(),
            file,
            ring,
            tag,
            incarnation: start.incarnation,
            waker,
            caller,
            inner: Mutex::new(inner),
            work: Condvar::new(),
            data: Condvar::new(),
            written: Condvar::new(),
            done: Condvar::new(),
            durable: AtomicU64::new(start.seq - 1),
            has_failed: AtomicBool::new(false),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(|e| self.half_changed(e))
    }

    /// A thread panicked while it held the lock: what it was changing must not reach the disk.
    fn half_changed<'a>(&self, e: PoisonError<MutexGuard<'a, Inner>>) -> MutexGuard<'a, Inner> {
        let mut inner = e.into_inner();
        self.has_failed.store(true, Ordering::Release);
        inner.failed.get_or_insert_with(|| {
            Arc::new(Error::Panicked {
                path: self.path.clone(),
                thread: "at the log",
            })
        });
        inner
    }

    /// Tells whoever writes batches that one waits.
    fn call(&self) {
        self.work.notify_one();
        if let Some(call) = &self.caller {
            call();
        }
    }

    /// The largest record: so that a checkpoint can always make room for one.
    pub fn record_bytes_max(&self) -> u64 {
        self.ring.len / 4
    }

    /// True if a record of `len` bytes fits into the ring now, with room left for a checkpoint's marker.
    pub fn fits(&self, len: u64) -> bool {
        let inner = self.lock();
        let waiting: u64 = inner.sealed.iter().map(Batch::padded).sum();
        let open = inner.open.padded() + padded(len as usize);
        // Each batch may waste at most its own length at the ring's end, and only one lap can end.
        let waste = inner
            .sealed
            .iter()
            .map(Batch::padded)
            .chain([open])
            .max()
            .unwrap_or(0);
        let markers = 2 * padded(0);
        inner.head - inner.tail + waiting + open + waste + markers <= self.ring.len
    }

    /// Bytes of the ring that wait for a checkpoint.
    pub fn used(&self) -> u64 {
        let inner = self.lock();
        inner.head - inner.tail + inner.open.padded()
    }

    /// Bytes that wait for a flush.
    pub fn waiting_bytes(&self) -> u64 {
        let inner = self.lock();
        let all = inner.sealed.iter().chain([&inner.open]);
        all.map(|b| b.bytes.len() as u64 + b.direct_bytes).sum()
    }

    /// Adds one transaction's record to the open batch.
    pub fn append(&self, record: &[u8], directs: &mut Vec<Direct>) -> Result<Seq> {
        let mut inner = self.lock();
        if let Some(e) = &inner.failed {
            return Err(Error::Stopped(e.clone()));
        }
        let seq = inner.next_seq;
        inner.next_seq += 1;
        let open = &mut inner.open;
        if open.is_empty() {
            open.first_seq = seq;
        }
        open.count += 1;
        open.bytes.extend_from_slice(&(record.len() as u32).to_le_bytes());
        open.bytes.extend_from_slice(record);
        let bytes: u64 = directs.iter().map(|d| d.data.len() as u64).sum();
        open.direct_bytes += bytes;
        if bytes > 0 {
            let data = Data {
                batch: inner.next_batch,
                bytes,
                directs: std::mem::take(directs),
            };
            inner.data.push_back(data);
        }
        inner.counters.transactions += 1;
        let full = inner.open.bytes.len() >= BATCH_BYTES.min(self.ring.len as usize / 8)
            || inner.open.direct_bytes >= BATCH_DIRECT_BYTES;
        if full {
            inner.seal();
        }
        let eager = bytes >= EAGER_BYTES;
        inner.kicked |= eager && !full;
        if (full || eager) && !inner.busy {
            self.call();
        }
        if bytes > 0 && inner.busy {
            self.data.notify_one();
        }
        Ok(seq)
    }

    /// Lets the committer take what gathered, if it is idle.
    pub fn kick(&self) {
        let mut inner = self.lock();
        if inner.open.is_empty() {
            return;
        }
        inner.kicked = true;
        let idle = !inner.busy;
        // Who is called takes the lock first of all.
        drop(inner);
        if idle {
            self.call();
        }
    }

    /// Closes the open batch and puts a marker behind it: once that is durable, so provably is all before
    /// it. Returns its number.
    pub fn mark(&self) -> u64 {
        let mut inner = self.lock();
        if !inner.open.is_empty() {
            inner.seal();
        }
        inner.marker = inner.next_batch;
        inner.seal();
        self.call();
        inner.marker
    }

    pub fn durable(&self) -> Seq {
        self.durable.load(Ordering::Acquire)
    }

    pub fn queued(&self) -> Seq {
        self.lock().next_seq - 1
    }

    pub fn failed(&self) -> Option<Error> {
        if !self.has_failed.load(Ordering::Acquire) {
            return None;
        }
        self.lock().failed.as_deref().cloned()
    }

    /// Stops the store: nothing is written any more.
    pub fn fail(&self, e: Error) {
        let mut inner = self.lock();
        if inner.failed.is_none() {
            tracing::error!(store = %self.path, error = %e, "the store stops");
            inner.failed = Some(Arc::new(e));
            self.has_failed.store(true, Ordering::Release);
        }
        drop(inner);
        self.notify_all();
        (self.waker)();
    }

    fn notify_all(&self) {
        [&self.work, &self.data, &self.written, &self.done]
            .iter()
            .for_each(|c| c.notify_all());
    }

    /// The position behind marker `number`, once it is durable.
    pub fn marker_end(&self, number: u64) -> Result<Option<u64>> {
        let inner = self.lock();
        match &inner.failed {
            Some(e) => Err(Error::Stopped(e.clone())),
            None if inner.durable_batch >= number => Ok(Some(inner.marker_end)),
            None if broken::is(Rule::MarkerFirst) => {
                let waiting: u64 = inner.sealed.iter().map(Batch::padded).sum();
                Ok(Some(inner.head + waiting))
            }
            None => Ok(None),
        }
    }

    /// Blocks until `ready` or until the store failed or stops. Only with a committer thread.
    pub fn wait_marker(&self, number: u64) -> Result<Option<u64>> {
        let mut inner = self.lock();
        loop {
            if let Some(e) = &inner.failed {
                return Err(Error::Stopped(e.clone()));
            }
            if inner.durable_batch >= number {
                return Ok(Some(inner.marker_end));
            }
            if inner.stop {
                return Ok(None);
            }
            inner = self.wait_done(inner);
        }
    }

    pub fn wait_durable(&self, seq: Seq) -> Result<()> {
        let mut inner = self.lock();
        while self.durable() < seq {
            if let Some(e) = &inner.failed {
                return Err(Error::Stopped(e.clone()));
            }
            inner = self.wait_done(inner);
        }
        Ok(())
    }

    fn wait_done<'a>(&'a self, mut inner: MutexGuard<'a, Inner>) -> MutexGuard<'a, Inner> {
        inner.waiters += 1;
        let mut inner = self.done.wait(inner).unwrap_or_else(|e| self.half_changed(e));
        inner.waiters -= 1;
        inner
    }

    /// A durable checkpoint covers everything before `position`.
    pub fn set_tail(&self, position: u64) {
        let mut inner = self.lock();
        assert!(
            inner.tail <= position && position <= inner.head,
            "the log's tail moves forward, to its head at most: from {} to {position}, and the head is {}",
            inner.tail,
            inner.head
        );
        inner.tail = position;
    }

    pub fn counters(&self) -> Counters {
        self.lock().counters
    }

    pub fn stop(&self) {
        self.lock().stop = true;
        self.notify_all();
    }

    pub fn stopping(&self) -> bool {
        let inner = self.lock();
        inner.stop || inner.failed.is_some()
    }

    /// The thread's body.
    pub fn run(&self) {
        let _guard = OnPanic {
            committer: self,
            thread: "store-commit",
        };
        let mut inner = self.lock();
        loop {
            if inner.stop || inner.failed.is_some() {
                return;
            }
            if let Some(work) = self.take_between(&mut inner) {
                drop(inner);
                self.step(work);
                inner = self.lock();
            } else if !inner.busy
                && let Some(zero) = inner.zero_ahead(&self.ring)
            {
                // Nobody writes there before it ends.
                inner.busy = true;
                drop(inner);
                if let Err(e) = self.zero(zero).and_then(|()| self.flush(0)) {
                    self.fail(e);
                }
                inner = self.lock();
                inner.busy = false;
                if inner.kicked && inner.owner == Owner::Here {
                    (self.waker)();
                }
            } else {
                inner = self.work.wait(inner).unwrap_or_else(|e| self.half_changed(e));
            }
        }
    }

    /// Without a thread: writes the batch that was kicked, and leaves its flush to [`Self::end`]. False: there is
    /// none, or one is begun, or the store has failed.
    pub fn begin(&self) -> bool {
        let mut inner = self.lock();
        if inner.stop || inner.failed.is_some() {
            return false;
        }
        let Some(mut work) = self.take_beside(&mut inner) else {
            return false;
        };
        drop(inner);
        let written = self.write(&mut work);
        if let Err(e) = written {
            self.fail(e);
            return false;
        }
        self.lock().begun = Some(work);
        true
    }

    /// Flushes what was begun, if anything was.
    pub fn end(&self) {
        let mut inner = self.lock();
        let begun = inner.begun.take();
        if inner.failed.is_some() {
            return;
        }
        drop(inner);
        if let Some(work) = begun {
            let flushed = self.flush(work.batch.number);
            self.complete(work, flushed);
        }
    }

    /// The data thread's body.
    pub fn run_data(&self) {
        let _guard = OnPanic {
            committer: self,
            thread: "store-data",
        };
        let mut inner = self.lock();
        loop {
            if inner.stop || inner.failed.is_some() {
                return;
            }
            // An idle committer writes a batch's data itself, without a hand-over.
            let data = if inner.busy {
                inner.take_ahead()
            } else {
                Vec::new()
            };
            if data.is_empty() {
                inner = self.data.wait(inner).unwrap_or_else(|e| self.half_changed(e));
                continue;
            }
            drop(inner);
            self.write_ahead(data);
            inner = self.lock();
        }
    }

    fn write_ahead(&self, data: Vec<Data>) {
        io::panics::point("data");
        let result = self.write_data(&data, None);
        drop(data);
        self.lock().ahead = None;
        match result {
            Ok(()) => self.written.notify_all(),
            Err(e) => self.fail(e),
        }
    }

    /// Waits until the data thread has written what it took of this batch or of one before.
    fn wait_ahead(&self, batch: u64) -> Result<()> {
        let mut inner = self.lock();
        while inner.failed.is_none() && inner.ahead.is_some_and(|n| n <= batch) {
            inner = self.written.wait(inner).unwrap_or_else(|e| self.half_changed(e));
        }
        match &inner.failed {
            Some(e) => Err(Error::Stopped(e.clone())),
            None => Ok(()),
        }
    }

    /// Without threads: writes some data ahead or else one batch, if one waits. False: there was none.
    pub fn pump(&self) -> bool {
        self.end();
        let mut inner = self.lock();
        if inner.failed.is_some() || inner.busy {
            return false;
        }
        let data = inner.take_ahead();
        if !data.is_empty() {
            drop(inner);
            self.write_ahead(data);
            return true;
        }
        inner.kicked = true;
        let Some(work) = self.take(&mut inner) else {
            return false;
        };
        drop(inner);
        self.step(work);
        true
    }

    /// For the thread. While it still clears the log it is busy most of the time, and its owner would find no moment between two
    /// steps: until all is cleared, the thread writes whatever waits.
    fn take_between(&self, inner: &mut Inner) -> Option<Work> {
        match !inner.busy && inner.zeroed < self.ring.len {
            true => self.take(inner),
            false => self.take_beside(inner),
        }
    }

    /// For who writes beside the owner: the next batch, unless that is the owner's.
    fn take_beside(&self, inner: &mut Inner) -> Option<Work> {
        let owners = inner.owner == Owner::Here && inner.next_is_light(&self.ring);
        if inner.busy || owners {
            return None;
        }
        self.take(inner)
    }

    fn take(&self, inner: &mut Inner) -> Option<Work> {
        if inner.sealed.is_empty() {
            if inner.open.is_empty() || !inner.kicked {
                return None;
            }
            inner.seal();
        }
        inner.kicked = !inner.open.is_empty();
        let batch = inner.sealed.pop_front()?;
        let early = u64::from(broken::is(Rule::OwnDirects));
        let own = inner
            .data
            .iter()
            .take_while(|d| d.batch + early <= batch.number)
            .count();
        let data = inner.data.drain(..own).collect();
        if !inner.data.is_empty() {
            self.data.notify_one();
        }
        let need = batch.padded();
        let position = self.ring.place(inner.head, need);
        inner.head = position + need;
        let overrun = inner.head - inner.tail > self.ring.len;
        inner.busy = true;
        let end = (position % self.ring.len) + need;
        let zero = (end > inner.zeroed).then(|| {
            let to = (end + ZERO_BYTES).min(self.ring.len);
            let from = std::mem::replace(&mut inner.zeroed, to);
            (from, to)
        });
        Some(Work {
            batch,
            data,
            position,
            zero,
            overrun,
        })
    }

    fn step(&self, mut work: Work) {
        let result = self.write(&mut work);
        // Written and not flushed: as much is under way here as can be.
        io::panics::point("commit");
        let result = result.and_then(|()| self.flush(work.batch.number));
        self.complete(work, result);
    }

    fn complete(&self, work: Work, result: Result<()>) {
        self.settle(work, result);
        (self.waker)();
    }

    /// The batch is durable, or the store fails. The owner is not told.
    fn settle(&self, work: Work, result: Result<()>) {
        let Work { batch, position, .. } = work;
        let mut inner = self.lock();
        inner.busy = false;
        if let Err(e) = result
            && !broken::is(Rule::FailedIsFinal)
        {
            drop(inner);
            return self.fail(e);
        }
        assert_eq!(
            batch.number,
            inner.durable_batch + 1,
            "batches become durable in the order of their numbers"
        );
        inner.durable_batch = batch.number;
        if batch.number == inner.marker {
            inner.marker_end = match broken::is(Rule::BehindTheMarker) {
                true => position,
                false => position + batch.padded(),
            };
        }
        inner.counters.flushes += 1;
        inner.counters.log_bytes += batch.bytes.len() as u64;
        inner.counters.direct_bytes += batch.direct_bytes;
        if batch.count > 0 {
            let last = batch.first_seq + u64::from(batch.count) - u64::from(!broken::is(Rule::DurableExact));
            let before = self.durable();
            assert!(
                last >= before,
                "what is durable stays so: up to {before}, then {last}"
            );
            self.durable.store(last, Ordering::Release);
        }
        // What gathered during the flush goes next, kicked or not.
        inner.kicked = true;
        inner.recycle(batch.bytes);
        let awaited = inner.waiters > 0;
        drop(inner);
        // A call of the kernel, whether somebody waits or not.
        if awaited {
            self.done.notify_all();
        }
    }

    /// Gives the batch its header and makes it whole blocks.
    fn frame(&self, work: &mut Work) -> Result<()> {
        // `fits` has made room; should that ever be wrong, stopping is the only safe answer.
        if work.overrun {
            return Err(Error::LogDamaged {
                path: self.path.clone(),
                offset: self.ring.at(work.position),
                why: "the next batch would overwrite what is still needed",
            });
        }
        let batch = &mut work.batch;
        let records = batch.bytes.len() - HEADER;
        let header = Header {
            tag: self.tag,
            batch: batch.number,
            incarnation: self.incarnation,
            first_seq: batch.first_seq,
            count: batch.count,
            len: records as u32,
            crc: crc32c(!0, &batch.bytes[HEADER..]),
        };
        batch.bytes[..HEADER].copy_from_slice(&header.encode());
        batch.bytes.resize(padded(records) as usize);
        Ok(())
    }

    fn write(&self, work: &mut Work) -> Result<()> {
        self.frame(work)?;
        if let Some(zero) = work.zero {
            self.zero(zero)?;
        }
        let batch = &work.batch;
        let mut data = std::mem::take(&mut work.data);
        if self.lock().ahead.is_some_and(|n| n <= batch.number) {
            self.write_data(&data, None)?;
            data.clear();
            self.wait_ahead(batch.number)?;
        }
        // Data and log in any order: one flush covers both, and replay verifies the last batch's data.
        let log = (self.ring.at(work.position), &batch.bytes[..]);
        self.write_data(&data, Some(log))?;
        self.call_durable_early(batch);
        Ok(())
    }

    fn call_durable_early(&self, batch: &Batch) {
        if broken::is(Rule::FlushedFirst) && batch.count > 0 {
            let last = batch.first_seq + u64::from(batch.count) - 1;
            self.durable.store(last, Ordering::Release);
            (self.waker)();
        }
    }

    fn write_data(&self, data: &[Data], log: Option<(u64, &[u8])>) -> Result<()> {
        let piece = if self.file.is_direct() {
            usize::MAX
        } else {
            CACHED_WRITE_BYTES
        };
        let directs = data.iter().flat_map(|d| &d.directs);
        let parts = directs.flat_map(|d| {
            let piece = piece.min(d.data.len().max(1));
            let parts = d.data.chunks(piece).enumerate();
            parts.map(move |(i, part)| (d.offset + (i * piece) as u64, part))
        });
        write_slices(&*self.file, parts.chain(log))
            .map_err(|e| Error::io(&self.path, "write the log and data", e))
    }

    /// Of this batch; 0: of what no batch speaks of.
    fn flush(&self, batch: u64) -> Result<()> {
        if broken::is(Rule::EveryFlush) && batch % 4 == 3 {
            return Ok(());
        }
        self.file
            .flush()
            .map_err(|e| Error::io(&self.path, "flush the log", e))
    }

    fn zero(&self, (from, to): (u64, u64)) -> Result<()> {
        write_zeros(&*self.file, self.ring.offset + from, self.ring.offset + to)
            .map_err(|e| Error::io(&self.path, "zero the log", e))
    }
}
