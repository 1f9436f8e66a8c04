//! Work beside the owner: checkpoints and the file's growth, one job after the other.
//!
//! A thread runs the jobs, or, in simulation, the owner does it step by step through [`Helper::pump`]. What
//! ended is an [`Outcome`] for the owner to take. Bound: at most one checkpoint and one growth at a time
//! (the owner's duty).

use crate::checkpoint::{Checkpoint, Progress};
use crate::committer::{Committer, OnPanic};
use crate::values::Waker;
use crate::zeros::write_zeros;
use crate::{Error, Result};
use io::disk::DiskFile;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Zeroed between two flushes while the file grows.
const ZERO_BYTES: u64 = 1 << 20;
#[derive(Debug)]
pub enum Job {
    Checkpoint(Box<Checkpoint>),
    Grow(Grow),
}

#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The log is needed from this position on; these runs of blocks went back to the host.
    Checkpointed { position: u64, punched: Vec<(u64, u64)> },
    /// The file now has this many bytes; `raw`: the new ones were not written.
    Grown { bytes: u64, raw: bool },
    /// The host had no room.
    NotGrown,
}

/// Extends the data file: reserved first, then written with zeros, so that later flushes of small writes do
/// not drag the host's journal along.
#[derive(Debug)]
pub struct Grow {
    pub path: String,
    pub file: Arc<dyn DiskFile>,
    pub from: u64,
    pub to: u64,
    /// Not where large writes fill it at once: those would only be written twice.
    zero: bool,
    reserved: bool,
    next: u64,
}

impl Grow {
    pub fn new(path: &str, file: Arc<dyn DiskFile>, from: u64, to: u64, zero: bool) -> Self {
        Self {
            path: path.to_owned(),
            file,
            from,
            to,
            zero,
            reserved: false,
            next: from,
        }
    }

    fn step(&mut self) -> Result<Option<Outcome>> {
        if !self.reserved {
            self.reserved = true;
            if let Err(e) = self.file.allocate(self.from, self.to - self.from) {
                tracing::warn!(store = %self.path, error = %e, "the data file cannot grow");
                return Ok(Some(Outcome::NotGrown));
            }
            return Ok(None);
        }
        let path = &self.path;
        let io = |action| move |e| Error::io(path, action, e);
        let end = (self.next + ZERO_BYTES).min(self.to);
        if self.zero {
            write_zeros(&*self.file, self.next, end).map_err(io("zero the data file"))?;
        }
        // Also without zeros: the new length must be durable before a record refers to what it holds.
        self.file.flush().map_err(io("flush the data file"))?;
        self.file.uncache(self.next, end - self.next);
        self.next = if self.zero { end } else { self.to };
        let grown = Outcome::Grown {
            bytes: self.to,
            raw: !self.zero,
        };
        Ok((self.next == self.to).then_some(grown))
    }
}

#[derive(Debug, Default)]
struct Inner {
    jobs: VecDeque<Job>,
    done: Vec<Outcome>,
    /// A job is off the queue, in the thread's hands.
    busy: bool,
    stop: bool,
}

pub struct Helper {
    committer: Arc<Committer>,
    waker: Waker,
    /// Without a thread: called when there is work.
    caller: Option<Waker>,
    inner: Mutex<Inner>,
    changed: Condvar,
    news: AtomicBool,
}

/// Held while the thread runs: at its end nobody waits for what it had in hand.
struct Told<'a>(&'a Helper);

impl Drop for Told<'_> {
    fn drop(&mut self) {
        self.0.lock().busy = false;
        self.0.tell();
    }
}

impl std::fmt::Debug for Helper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Helper")
    }
}

impl Helper {
    pub fn new(committer: Arc<Committer>, waker: Waker, caller: Option<Waker>) -> Self {
        Self {
            committer,
            waker,
            caller,
            inner: Mutex::default(),
            changed: Condvar::new(),
            news: AtomicBool::new(false),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn submit(&self, job: Job) {
        self.lock().jobs.push_back(job);
        self.changed.notify_all();
        if let Some(call) = &self.caller {
            call();
        }
    }

    /// What ended since the last call; costs nothing when nothing did.
    pub fn outcomes(&self) -> Vec<Outcome> {
        if !self.news.swap(false, Ordering::Acquire) {
            return Vec::new();
        }
        std::mem::take(&mut self.lock().done)
    }

    /// Blocks until a job ended, the store failed, or nothing is left to wait for.
    pub fn wait(&self) {
        let mut inner = self.lock();
        while inner.done.is_empty() && (inner.busy || !inner.jobs.is_empty()) && !inner.stop {
            if self.committer.failed().is_some() {
                return;
            }
            inner = self.changed.wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub fn stop(&self) {
        self.lock().stop = true;
        self.changed.notify_all();
    }

    /// Wakes who waits for a job. Under the lock: who has just looked and is about to wait would miss it.
    fn tell(&self) {
        let _inner = self.lock();
        self.changed.notify_all();
    }

    /// The thread's body.
    pub fn run(&self) {
        // The second is dropped first: the store has failed when who waits looks again.
        let _told = Told(self);
        let _guard = OnPanic {
            committer: &self.committer,
            thread: "store-helper",
        };
        loop {
            let mut inner = self.lock();
            let job = loop {
                if inner.stop {
                    return;
                }
                if let Some(job) = inner.jobs.pop_front() {
                    inner.busy = true;
                    break job;
                }
                inner = self.changed.wait(inner).unwrap_or_else(PoisonError::into_inner);
            };
            drop(inner);
            let done = self.run_job(job);
            self.lock().busy = false;
            if !done {
                return;
            }
        }
    }

    /// False: the store failed or stops.
    fn run_job(&self, mut job: Job) -> bool {
        while !self.committer.stopping() {
            io::panics::point("helper");
            match Self::step(&mut job, true) {
                Ok(Some(outcome)) => {
                    self.finish(outcome);
                    return true;
                }
                Ok(None) => {}
                Err(e) => {
                    self.fail(e);
                    return false;
                }
            }
        }
        self.tell();
        false
    }

    fn step(job: &mut Job, block: bool) -> Result<Option<Outcome>> {
        match job {
            Job::Grow(g) => g.step(),
            Job::Checkpoint(c) => Ok(match c.step(block)? {
                Progress::Waiting | Progress::More => None,
                Progress::Done { position, punched } => Some(Outcome::Checkpointed { position, punched }),
            }),
        }
    }

    fn finish(&self, outcome: Outcome) {
        self.lock().done.push(outcome);
        self.news.store(true, Ordering::Release);
        self.changed.notify_all();
        (self.waker)();
    }

    fn fail(&self, e: Error) {
        if !matches!(e, Error::Stopped(_)) {
            self.committer.fail(e);
        }
        self.tell();
    }

    /// Without a thread: one step of the oldest job. False: there is none, or it waits for the log.
    pub fn pump(&self) -> bool {
        let Some(mut job) = self.lock().jobs.pop_front() else {
            return false;
        };
        if self.committer.stopping() {
            return false;
        }
        let waits = |c: &Checkpoint| matches!(self.committer.marker_end(c.marker), Ok(None));
        if matches!(&job, Job::Checkpoint(c) if waits(c)) {
            self.lock().jobs.push_front(job);
            return false;
        }
        match Self::step(&mut job, false) {
            Ok(Some(outcome)) => self.finish(outcome),
            Ok(None) => self.lock().jobs.push_front(job),
            Err(e) => self.fail(e),
        }
        true
    }
}
