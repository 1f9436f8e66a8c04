//! Batches that the owner writes itself, between its other work: no thread is called for them and none calls back.
//!
//! Where the disk has a queue for writes that are durable when they end, a batch without direct extents is one such write
//! ([`Inner::next_is_light`](super::inner::Inner::next_is_light)). All others go to who writes beside the owner, with a flush.
//!
//! Invariants: one batch at a time, whoever writes it. An owner that is going to block ends what it has begun and says that it is
//! away; then all batches are written beside it, so nobody waits for an owner that waits for him.

use super::Committer;
use super::batch::Work;
use super::inner::Owner;
use crate::Error;
use io::disk::WriteQueue;
use std::os::fd::BorrowedFd;

#[derive(Debug)]
pub struct OwnerWrites {
    queue: Box<dyn WriteQueue>,
    begun: Option<Work>,
}

impl OwnerWrites {
    pub fn new(queue: Box<dyn WriteQueue>, committer: &Committer) -> Self {
        committer.lock().owner = Owner::Here;
        Self { queue, begun: None }
    }

    /// Begins the next batch, if none is under way and it is the owner's.
    pub fn kick(&mut self, committer: &Committer) {
        let Some(mut work) = committer.take_light() else {
            return;
        };
        let ready = committer.frame(&mut work).and_then(|()| {
            // Of a broken rule: a light batch has none.
            match work.data.is_empty() {
                true => Ok(()),
                false => committer.write_data(&work.data, None),
            }
        });
        if let Err(e) = ready {
            return committer.fail(e);
        }
        committer.call_durable_early(&work.batch);
        let bytes = std::mem::take(&mut work.batch.bytes);
        self.queue.begin(bytes, committer.ring.at(work.position));
        self.begun = Some(work);
    }

    /// Takes in the batch that was begun, if it is durable now, and begins the next. False: nothing has ended.
    pub fn turned(&mut self, committer: &Committer) -> bool {
        let Some(done) = self.queue.ended() else {
            return false;
        };
        let Some(mut work) = self.begun.take() else {
            return false;
        };
        work.batch.bytes = done.data;
        let failed = |e| Error::io(&committer.path, "write the log", e);
        committer.settle(work, done.result.map_err(failed));
        // A checkpoint may wait for it.
        if let Some(call) = &committer.caller {
            call();
        }
        self.kick(committer);
        true
    }

    /// Blocks until nothing is under way any more; false: nothing was.
    pub fn finish(&mut self, committer: &Committer) -> bool {
        let any = self.begun.is_some();
        while self.begun.is_some() {
            if let Err(e) = self.queue.wait() {
                committer.fail(Error::io(&committer.path, "wait for the log", e));
                break;
            }
            self.turned(committer);
        }
        if any {
            // What has become durable here, its owner has not looked at.
            (committer.waker)();
        }
        any
    }

    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.queue.fd()
    }
}

impl Committer {
    /// The next batch, if it is one that the owner writes itself and nobody writes another. One that needs more is left to who
    /// writes beside it, who is called.
    fn take_light(&self) -> Option<Work> {
        let mut inner = self.lock();
        if inner.open.is_empty() && inner.sealed.is_empty() {
            return None;
        }
        inner.kicked = true;
        if inner.busy || inner.stop || inner.failed.is_some() {
            return None;
        }
        if !inner.next_is_light(&self.ring) {
            // Who is called takes the lock first of all.
            drop(inner);
            self.call();
            return None;
        }
        self.take(&mut inner)
    }

    /// The owner is going to block, or has done so.
    pub fn owner_is_away(&self, away: bool) {
        let mut inner = self.lock();
        inner.owner = if away { Owner::Away } else { Owner::Here };
        let waits = !inner.sealed.is_empty() || inner.kicked && !inner.open.is_empty();
        let idle = !inner.busy;
        drop(inner);
        if away && waits && idle {
            self.call();
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::{Committer, Start};
    use super::Owner;
    use crate::onode::BLOCK;
    use crate::ring::Ring;
    use io::disk::Disk;
    use io::disk::sim::SimDisk;
    use std::sync::Arc;

    /// An owner found the log's thread busy with clearing the log for as long as that took, and its batches waited for all of it.
    #[test]
    fn a_batch_does_not_wait_until_the_log_is_cleared() {
        let ring = Ring {
            offset: 0,
            len: 1024 * BLOCK,
        };
        let start = Start {
            head: 0,
            tail: 0,
            batch: 1,
            incarnation: 1,
            seq: 1,
        };
        let file = SimDisk::new().create("block").unwrap();
        let committer = Committer::new("sim", file, ring, 7, Arc::new(|| {}), None, start);
        committer.lock().owner = Owner::Here;
        let mut inner = committer.lock();
        let step = inner.zero_ahead(&committer.ring).unwrap();
        assert!(step.1 < committer.ring.len, "more is to be cleared");
        // What the owner wants meanwhile.
        inner.busy = true;
        drop(inner);
        committer.append(b"record", &mut Vec::new()).unwrap();
        assert!(committer.take_light().is_none(), "somebody is busy");
        let mut inner = committer.lock();
        inner.busy = false;
        assert!(committer.take_between(&mut inner).is_some());
        // Once all is cleared, it is the owner's.
        inner.busy = false;
        while inner.zero_ahead(&committer.ring).is_some() {}
        drop(inner);
        committer.append(b"record", &mut Vec::new()).unwrap();
        assert!(committer.take_between(&mut committer.lock()).is_none());
        assert!(committer.take_light().is_some());
    }
}
