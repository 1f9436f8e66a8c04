//! Files: the access to the disk.
//!
//! Vocabulary: a *disk* is one directory that belongs to one process; a *file* in it is addressed by a
//! plain name. A *flush* makes everything written to the file before it survive a power cut
//! (`fdatasync`); what was written and not flushed may survive in any part or not at all.
//!
//! Invariants: `read_at` fills its whole buffer or fails; writing behind the end extends the file with
//! zeros. A failed flush is never followed by another try on the same file: what it left on the disk is
//! unknown (the callers' duty).
//!
//! Ways to a host's disk, chosen when a file is opened (see `host`): direct (past the page cache) or through
//! it; many requests at once by io_uring, or plain calls and a few threads.
//!
//! Not here: formats, caches, retries. [`sim`] is the same interface over a disk that can lose power.

mod buffer;
mod host;
mod pool;
mod readonly;
pub mod sealed;
pub mod sim;
mod uring;
mod uring_writes;

pub use buffer::{ALIGN, AlignedBuf, AlignedVec, cool_pages, page_of};
pub use host::{HostDisk, Mode, is_device};
pub use readonly::ReadOnlyDisk;
pub use uring::works as has_io_uring;

use bytes::Bytes;
use rustix::fd::BorrowedFd;
use std::fmt::Debug;
use std::io::{ErrorKind, IoSlice, Result};
use std::path::Path;
use std::sync::Arc;

/// What the file system that holds a disk has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    pub total: u64,
    /// What an unprivileged process may still take.
    pub available: u64,
}

/// One directory.
pub trait Disk: Debug + Send + Sync {
    /// What people call it: its path.
    fn name(&self) -> String;
    fn exists(&self, file: &str) -> Result<bool>;
    /// Opens an existing file for reading and writing.
    fn open(&self, file: &str) -> Result<Arc<dyn DiskFile>>;
    /// Opens the file that holds a store's data: reads and writes in whole blocks of [`ALIGN`] bytes, and
    /// past the host's page cache where it can.
    fn open_data(&self, file: &str) -> Result<Arc<dyn DiskFile>> {
        self.open(file)
    }
    /// Makes a file that must not exist yet; its name survives a power cut after [`Disk::sync`].
    fn create(&self, file: &str) -> Result<Arc<dyn DiskFile>>;
    /// Lets the name stand for a whole block device of the host.
    fn create_on(&self, _file: &str, _device: &Path) -> Result<()> {
        Err(ErrorKind::Unsupported.into())
    }
    fn remove(&self, file: &str) -> Result<()>;
    /// Makes creations and removals durable.
    fn sync(&self) -> Result<()>;
    fn space(&self) -> Result<Space>;
}

/// One write of several that may go in any order: the slices one behind the other, from `offset` on.
#[derive(Debug, Clone, Copy)]
pub struct Write<'a> {
    pub offset: u64,
    pub data: &'a [IoSlice<'a>],
}

/// Writes slices to their places, in any order and at once where the host can.
pub fn write_slices<'a>(file: &dyn DiskFile, parts: impl IntoIterator<Item = (u64, &'a [u8])>) -> Result<()> {
    let slices: Vec<(u64, [IoSlice<'a>; 1])> = parts
        .into_iter()
        .map(|(offset, data)| (offset, [IoSlice::new(data)]))
        .collect();
    let writes: Vec<Write<'_>> = slices
        .iter()
        .map(|(offset, data)| Write {
            offset: *offset,
            data,
        })
        .collect();
    file.write_all(&writes)
}

/// A read that ended.
#[derive(Debug)]
pub struct ReadDone {
    pub token: u64,
    pub data: Result<Bytes>,
}

/// Reads that go on beside their owner.
pub trait ReadQueue: Debug + Send {
    /// Takes a read of whole blocks; it begins at the next `submit`, `completed` or `wait`. The owner bounds how
    /// much it has under way.
    fn push(&mut self, token: u64, offset: u64, len: usize);
    fn submit(&mut self);
    /// Appends what has ended.
    fn completed(&mut self, out: &mut Vec<ReadDone>);
    /// Blocks until `completed` has something to give, or nothing is under way.
    fn wait(&mut self) -> Result<()>;
    /// Turns readable when `completed` has something to give; None: its owner is woken by other means.
    fn fd(&self) -> Option<BorrowedFd<'_>>;
}

/// A write of a [`WriteQueue`] that ended, with the memory that it was given.
#[derive(Debug)]
pub struct WriteDone {
    pub data: AlignedVec,
    /// `Ok`: it survives a power cut. After an error any part of it may.
    pub result: Result<()>,
}

/// Writes that are durable when they end, which go on beside their owner; one at a time. What was written before by other means
/// is not flushed by them.
pub trait WriteQueue: Debug + Send {
    /// Begins to write whole blocks; nothing else may be under way.
    fn begin(&mut self, data: AlignedVec, offset: u64);
    /// The write that was begun, if it has ended.
    fn ended(&mut self) -> Option<WriteDone>;
    /// Blocks until `ended` has something to give, or nothing is under way.
    fn wait(&mut self) -> Result<()>;
    /// Turns readable when `ended` has something to give; None: its owner is woken by other means.
    fn fd(&self) -> Option<BorrowedFd<'_>>;
}

/// One open file. All methods may be called from several threads at once.
pub trait DiskFile: Debug + Send + Sync {
    /// Fills `buf` from `offset`; an end of file inside it is an error.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()>;
    fn write_at(&self, data: &[u8], offset: u64) -> Result<()>;
    /// The slices one behind the other, from `offset` on.
    fn write_vectored_at(&self, data: &[IoSlice<'_>], offset: u64) -> Result<()>;
    /// All of the writes, in any order and at once where the host can.
    fn write_all(&self, writes: &[Write<'_>]) -> Result<()> {
        writes
            .iter()
            .try_for_each(|w| self.write_vectored_at(w.data, w.offset))
    }
    /// A queue for reads beside the owner; None: this disk only has `read_at`.
    fn read_queue(&self) -> Result<Option<Box<dyn ReadQueue>>> {
        Ok(None)
    }
    /// A queue for durable writes beside the owner; None: this disk only has writes and flushes.
    fn write_queue(&self) -> Result<Option<Box<dyn WriteQueue>>> {
        Ok(None)
    }
    /// A block device: its length is fixed, and it is never removed.
    fn is_device(&self) -> bool {
        false
    }
    /// True if nothing of it lies in the host's page cache: what was written is on its way to the device.
    fn is_direct(&self) -> bool {
        false
    }
    /// The first byte from `offset` on that may be other than zero; the end of the file, where none may be. A host that does
    /// not know says `offset`.
    fn next_data(&self, offset: u64) -> Result<u64> {
        Ok(offset)
    }
    /// Everything written before is on stable storage when it returns.
    fn flush(&self) -> Result<()>;
    /// Gives the range back to the host; it reads as zeros. The length stays. A host that cannot do
    /// this is no error: then nothing happens.
    fn punch_hole(&self, offset: u64, len: u64) -> Result<()>;
    /// Reserves space for the range and extends the file to hold it. A host that cannot reserve only
    /// extends.
    fn allocate(&self, offset: u64, len: u64) -> Result<()>;
    /// Holds space for the range, for later writes; the length stays. A host that cannot do this is no error.
    fn reserve(&self, _offset: u64, _len: u64) -> Result<()> {
        Ok(())
    }
    /// Tells the host that the range, flushed before, will not be read soon; only a hint.
    fn uncache(&self, _offset: u64, _len: u64) {}
    fn set_len(&self, len: u64) -> Result<()>;
    fn len(&self) -> Result<u64>;
    fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }
    /// Takes the file for this process until it is closed; false where another one has it and keeps it.
    fn try_lock(&self) -> Result<bool>;
    /// True where every change is refused: who must write to read puts a layer of its own above.
    fn is_read_only(&self) -> bool {
        false
    }
}
