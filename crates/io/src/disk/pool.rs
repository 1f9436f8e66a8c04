//! Reads beside their owner where the host has no io_uring: a few threads with plain calls.
//!
//! Bound: [`THREADS`]; what waits for them is the caller's bound.

use super::buffer::AlignedBuf;
use super::{ReadDone, ReadQueue};
use bytes::Bytes;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::collections::VecDeque;
use std::fs::File;
use std::io::Result;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

const THREADS: usize = 4;

#[derive(Debug, Default)]
struct Inner {
    waiting: VecDeque<(u64, u64, usize)>,
    done: Vec<ReadDone>,
    /// Handed in and not yet taken out.
    open: usize,
    stop: bool,
}

#[derive(Debug)]
struct Shared {
    file: Arc<File>,
    inner: Mutex<Inner>,
    work: Condvar,
    /// Readable while `done` is not empty.
    bell: OwnedFd,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut inner = self.lock();
        while !inner.stop {
            let Some((token, offset, len)) = inner.waiting.pop_front() else {
                inner = self.work.wait(inner).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            drop(inner);
            let owed = Owed {
                shared: self,
                token: Some(token),
            };
            crate::panics::point("read");
            let mut buf = AlignedBuf::for_read(len);
            let read = self.file.read_exact_at(&mut buf, offset);
            owed.done(read.map(|()| buf.into_read()));
            inner = self.lock();
        }
    }

    fn is_done(&self, token: u64, data: Result<Bytes>) {
        // The bell rings under the lock, as `completed` silences it there: it rings exactly while something is done.
        let mut inner = self.lock();
        inner.done.push(ReadDone { token, data });
        // Cannot fail but for a counter of 2^64: the owner is woken.
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }
}

/// A read that is off the queue: its owner hears of its end, also when the thread panics over it.
struct Owed<'a> {
    shared: &'a Shared,
    token: Option<u64>,
}

impl Owed<'_> {
    fn done(mut self, data: Result<Bytes>) {
        if let Some(token) = self.token.take() {
            self.shared.is_done(token, data);
        }
    }
}

impl Drop for Owed<'_> {
    fn drop(&mut self) {
        if let Some(token) = self.token {
            let why = std::io::Error::other("the thread that read it has panicked");
            self.shared.is_done(token, Err(why));
        }
    }
}

#[derive(Debug)]
pub struct PoolReads {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl PoolReads {
    pub fn new(file: Arc<File>) -> Result<Self> {
        let shared = Arc::new(Shared {
            file,
            inner: Mutex::default(),
            work: Condvar::new(),
            bell: eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?,
        });
        let mut threads = Vec::new();
        for _ in 0..THREADS {
            let shared = shared.clone();
            threads.push(crate::thread::spawn("store-read", move || shared.run())?);
        }
        Ok(Self { shared, threads })
    }
}

impl ReadQueue for PoolReads {
    fn push(&mut self, token: u64, offset: u64, len: usize) {
        let mut inner = self.shared.lock();
        inner.waiting.push_back((token, offset, len));
        inner.open += 1;
        drop(inner);
        self.shared.work.notify_one();
    }

    fn submit(&mut self) {}

    fn completed(&mut self, out: &mut Vec<ReadDone>) {
        let mut inner = self.shared.lock();
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.shared.bell, &mut count);
        inner.open -= inner.done.len();
        out.append(&mut inner.done);
    }

    fn wait(&mut self) -> Result<()> {
        if self.shared.lock().open > 0 {
            let mut fds = [PollFd::new(&self.shared.bell, PollFlags::IN)];
            while let Err(e) = poll(&mut fds, None) {
                if e != rustix::io::Errno::INTR {
                    return Err(e.into());
                }
            }
        }
        Ok(())
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.shared.bell.as_fd())
    }
}

impl Drop for PoolReads {
    fn drop(&mut self) {
        self.shared.lock().stop = true;
        self.shared.work.notify_all();
        for t in self.threads.drain(..) {
            let _ = t.join();
        }
    }
}
