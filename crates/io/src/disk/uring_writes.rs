//! Durable writes beside their owner through io_uring: `RWF_DSYNC`, which the kernel completes when the device has the data in
//! stable storage (by a write-through, or by a flush behind the write), without a thread that waits for it.
//!
//! Invariant: the memory of the write under way is kept until its completion was seen; a queue that is dropped waits for it (or
//! leaks the memory, should the kernel refuse even that).

#![allow(unsafe_code)] // requests carry raw pointers; each use says why they are good

use super::buffer::AlignedVec;
use super::uring::{retry, ring};
use super::{WriteDone, WriteQueue};
use io_uring::{IoUring, opcode, squeue, types};
use rustix::fd::{AsRawFd, BorrowedFd};
use std::fs::File;
use std::io::{Error, Result};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

pub struct UringWrites {
    ring: IoUring,
    file: Arc<File>,
    /// What the kernel has.
    active: Option<(AlignedVec, u64)>,
    unsubmitted: bool,
}

impl std::fmt::Debug for UringWrites {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("UringWrites")
    }
}

impl UringWrites {
    /// None: the kernel does not take such writes.
    pub fn new(file: Arc<File>) -> Result<Option<Self>> {
        let mut new = Self {
            ring: ring(1)?,
            file,
            active: None,
            unsubmitted: false,
        };
        new.begin(AlignedVec::default(), 0);
        let result = loop {
            new.wait()?;
            if let Some(c) = new.ring.completion().next() {
                break c.result();
            }
        };
        new.active = None;
        Ok((result == 0).then_some(new))
    }

    fn entry(&self, data: &[u8], offset: u64) -> squeue::Entry {
        opcode::Write::new(types::Fd(self.file.as_raw_fd()), data.as_ptr(), data.len() as u32)
            .offset(offset)
            .rw_flags(libc::RWF_DSYNC)
            .build()
    }

    fn submit(&mut self) {
        if self.unsubmitted {
            // A busy kernel takes it at the next call; what is in the ring is not lost.
            self.unsubmitted = self.ring.submit().is_err();
        }
    }
}

impl WriteQueue for UringWrites {
    fn begin(&mut self, data: AlignedVec, offset: u64) {
        assert!(self.active.is_none(), "one write at a time");
        let entry = self.entry(&data, offset);
        self.active = Some((data, offset));
        // SAFETY: the memory stays in `active` until its completion was seen; the ring has room for the one entry.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        assert!(pushed.is_ok(), "the ring has room for one write");
        self.unsubmitted = true;
        self.submit();
    }

    fn ended(&mut self) -> Option<WriteDone> {
        let Some(c) = self.ring.completion().next() else {
            self.submit();
            return None;
        };
        let (data, offset) = self.active.take()?;
        // Plain calls go on where the kernel gave up, and find out why.
        let plainly = || {
            self.file.write_all_at(&data, offset)?;
            self.file.sync_data()
        };
        let result = match usize::try_from(c.result()) {
            Ok(n) if n == data.len() => Ok(()),
            Ok(_) => plainly(),
            Err(_) => match Error::from_raw_os_error(-c.result()) {
                e if retry(&e) => plainly(),
                e => Err(e),
            },
        };
        Some(WriteDone { data, result })
    }

    fn wait(&mut self) -> Result<()> {
        if self.active.is_none() {
            return Ok(());
        }
        match self.ring.submit_and_wait(1) {
            Err(e) if !retry(&e) => Err(e),
            Err(_) => Ok(()),
            Ok(_) => {
                self.unsubmitted = false;
                Ok(())
            }
        }
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: the ring owns the descriptor and outlives the borrow.
        Some(unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) })
    }
}

impl Drop for UringWrites {
    fn drop(&mut self) {
        while self.active.is_some() {
            if self.wait().is_err() {
                // Better lost memory than memory that the kernel reads after it was given to somebody else.
                std::mem::forget(self.active.take());
            }
            self.ended();
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use crate::disk::{AlignedVec, Disk, HostDisk};

    #[test]
    fn writes_end_with_their_data_in_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let disk = HostDisk::new(dir.path());
        disk.create("a").unwrap().allocate(0, 1 << 20).unwrap();
        let file = disk.open_data("a").unwrap();
        let Some(mut queue) = file.write_queue().unwrap() else {
            assert!(
                !file.is_direct() || !crate::disk::uring::works(),
                "a host with both has it"
            );
            return;
        };
        queue.wait().unwrap();
        assert!(queue.ended().is_none(), "nothing was begun");
        for k in 0..20u8 {
            let mut data = AlignedVec::default();
            data.resize(4096 * (1 + usize::from(k) % 3));
            data.fill(k + 1);
            let (len, at) = (data.len(), u64::from(k) * 16384);
            queue.begin(data, at);
            let done = loop {
                queue.wait().unwrap();
                if let Some(done) = queue.ended() {
                    break done;
                }
            };
            done.result.unwrap();
            assert_eq!(done.data.len(), len);
            let mut back = vec![0; len];
            file.read_at(&mut back, at).unwrap();
            assert!(back.iter().all(|b| *b == k + 1));
        }
        // Dropped with a write under way, which ends all the same.
        let mut data = AlignedVec::default();
        data.resize(4096);
        data.fill(99);
        queue.begin(data, 0);
        drop(queue);
        let mut back = [0; 4096];
        file.read_at(&mut back, 0).unwrap();
        assert!(back.iter().all(|b| *b == 99));
    }

    #[test]
    fn a_write_that_fails_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let disk = HostDisk::new(dir.path());
        disk.create("a").unwrap().allocate(0, 1 << 20).unwrap();
        let file = disk.open_data("a").unwrap();
        let Some(mut queue) = file.write_queue().unwrap() else {
            return;
        };
        let mut data = AlignedVec::default();
        data.resize(4096);
        // Direct writes begin at whole blocks.
        queue.begin(data, 1);
        let done = loop {
            queue.wait().unwrap();
            if let Some(done) = queue.ended() {
                break done;
            }
        };
        assert!(done.result.is_err());
    }
}
