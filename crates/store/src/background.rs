//! The work beside a store's owner, for who lets time pass in it: a simulation.
//!
//! A batch of the log is begun (written, not flushed) and ended (flushed, and told of); between the two it may be lost,
//! as with the committer's thread. The owner's own pumping, where it has to wait, ends what was begun.
//!
//! Not here: when, and how long it takes: that is the [`Driver`]'s.

use crate::committer::Committer;
use crate::helper::Helper;
use crate::values::Waker;
use io::disk::{DiskFile, ReadQueue, WriteQueue};
use std::fmt::Debug;
use std::sync::Arc;

/// Who does the work beside the owner where there are no threads for it ([`crate::Options::threads`]): a simulation, which
/// lets time pass in it.
pub trait Driver: Debug + Send + Sync {
    /// A store was opened: it may have work from now on.
    fn start(&self, work: Background);
    /// There is work. Called from within the store: it must only note it.
    fn wake(&self);
    /// Reads of the data file that go on beside the owner, who is told by `done`. None: time stands while the owner reads.
    fn reads(&self, _file: &Arc<dyn DiskFile>, _done: &Waker) -> Option<Box<dyn ReadQueue>> {
        None
    }
    /// Writes of the log that go on beside the owner, who is told by `done`. None: all batches are begun and ended by the driver.
    fn writes(&self, _file: &Arc<dyn DiskFile>, _done: &Waker) -> Option<Box<dyn WriteQueue>> {
        None
    }
}

/// What a driver's store calls when there is work.
pub(crate) fn caller(driver: Option<&Arc<dyn Driver>>) -> Option<Waker> {
    let driver = driver?.clone();
    Some(Arc::new(move || driver.wake()))
}

#[derive(Debug, Clone)]
pub struct Background {
    committer: Arc<Committer>,
    helper: Arc<Helper>,
}

impl Background {
    pub(crate) fn new(committer: Arc<Committer>, helper: Arc<Helper>) -> Self {
        Self { committer, helper }
    }

    /// Writes what was kicked to the log. False: nothing waits, or the store has failed.
    pub fn begin_log(&self) -> bool {
        self.committer.begin()
    }

    /// Flushes what was begun, if the owner has not done so; its transactions are durable then.
    pub fn end_log(&self) {
        self.committer.end();
    }

    /// One step of a checkpoint or a growth. False: there is none, or it waits for the log.
    pub fn step_helper(&self) -> bool {
        self.helper.pump()
    }
}
