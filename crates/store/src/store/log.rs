//! The log as the store's owner meets it: lets it be written, hears how far it is durable, waits for it where it must.

use super::Store;
use crate::committer::OwnerWrites;
use crate::{Error, Result, Seq, Waker};
use std::os::fd::BorrowedFd;

impl Store {
    /// The queue for batches that the owner writes itself, where it said that it would and the disk can.
    pub(super) fn own_writes(&self, waker: &Waker) -> Result<Option<OwnerWrites>> {
        let queue = match &self.options.driver {
            Some(driver) if !self.options.threads => driver.writes(&self.file, waker),
            _ if !self.options.own_log => None,
            _ => self
                .file
                .write_queue()
                .map_err(|e| Error::io(&self.path, "set up writes", e))?,
        };
        Ok(queue.map(|q| OwnerWrites::new(q, &self.committer)))
    }

    /// Starts the flush of what was queued, unless one is under way (which then goes on with it), and the
    /// prefetches.
    /// The owner calls it at the end of each loop turn.
    pub fn kick(&mut self) {
        self.state.reads.submit();
        match &mut self.own {
            Some(own) => own.kick(&self.committer),
            None => self.committer.kick(),
        }
    }

    /// Takes in what the log's writes have done; [`Store::durable`] may have moved then. To be called when [`Store::log_fd`] turned
    /// readable or the waker was called, and now and then besides: should the kernel have been too busy for a write, it is offered again.
    pub fn turned(&mut self) {
        if let Some(own) = &mut self.own {
            own.turned(&self.committer);
        }
    }

    /// Turns readable when [`Store::turned`] has something to take in.
    pub fn log_fd(&self) -> Option<BorrowedFd<'_>> {
        self.own.as_ref().and_then(OwnerWrites::fd)
    }

    /// All transactions up to this one are durable.
    pub fn durable(&self) -> Seq {
        self.committer.durable()
    }

    /// The last number given out.
    pub fn queued(&self) -> Seq {
        self.committer.queued()
    }

    pub fn failed(&self) -> Option<Error> {
        self.committer.failed()
    }

    /// Blocks until `seq` is durable (start, stop and tests; never the data path).
    pub fn wait(&mut self, seq: Seq) -> Result<()> {
        self.kick();
        if self.options.threads {
            return self.aside(|s| s.committer.wait_durable(seq));
        }
        while self.durable() < seq {
            if !self.pump_log() {
                return Err(self.failed().unwrap_or_else(|| self.no_space()));
            }
        }
        Ok(())
    }

    /// Blocks in `wait`, during which other threads write all of the log.
    pub(super) fn aside<T>(&mut self, wait: impl FnOnce(&mut Self) -> T) -> T {
        if let Some(own) = &mut self.own {
            own.finish(&self.committer);
            self.committer.owner_is_away(true);
        }
        let out = wait(self);
        if self.own.is_some() {
            self.committer.owner_is_away(false);
        }
        out
    }

    /// Without threads: does one piece of the waiting work, the log's first; false when there is none.
    pub fn pump(&mut self) -> bool {
        self.pump_log() || self.pump_helper()
    }

    pub fn pump_log(&mut self) -> bool {
        let own = self.own.as_mut().is_some_and(|own| own.finish(&self.committer));
        own || self.committer.pump()
    }

    pub fn pump_helper(&mut self) -> bool {
        self.helper.pump()
    }
}
