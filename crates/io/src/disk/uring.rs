//! Many writes or reads at once through io_uring.
//!
//! [`Writer`] hands a batch to the kernel with one call and waits for all of it; [`UringReads`] keeps reads
//! under way beside its owner. Bounds: [`WRITE_DEPTH`] and [`READ_DEPTH`] requests in the kernel; a writer
//! copies at most [`SLOTS`] times [`SLOT`] bytes at a time; what waits before the read ring is the caller's bound.
//!
//! Invariants: no buffer is freed or changed while the kernel may use it: a batch ends only when every
//! request of it has ended, and a read ring that is dropped waits for its reads (or leaks their buffers,
//! should the kernel refuse even that).

#![allow(unsafe_code)] // requests carry raw pointers; each use says why they are good

use super::buffer::{ALIGN, AlignedBuf, is_aligned};
use super::{ReadDone, ReadQueue, Write};
use io_uring::{IoUring, opcode, types};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{Error, ErrorKind, Result};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// Requests of one writer in the kernel. A log write of another thread waits behind at most these in the
/// device's queue.
const WRITE_DEPTH: usize = 32;
/// Memory of one writer for data that is not aligned, registered with the kernel: slots that are filled in turn
/// while the disk works on those before.
const SLOTS: usize = 8;
const SLOT: usize = 256 << 10;
/// One request writes at most this much, so that a large write is in flight in several pieces.
const PIECE: usize = 512 << 10;
/// Reads in the kernel.
const READ_DEPTH: usize = 128;

pub(super) fn ring(entries: u32) -> Result<IoUring> {
    // Completions wait until the thread enters the kernel anyway, instead of interrupting it.
    IoUring::builder().setup_coop_taskrun().build(entries)
}

/// True if this host lets this process use io_uring.
pub fn works() -> bool {
    ring(8).is_ok()
}

pub(super) fn retry(e: &Error) -> bool {
    matches!(
        e.kind(),
        ErrorKind::Interrupted | ErrorKind::WouldBlock | ErrorKind::ResourceBusy
    )
}

#[derive(Debug, Clone, Copy)]
struct Piece {
    ptr: *const u8,
    len: usize,
    offset: u64,
    /// The part of the arena that it lies in; None: the caller's memory.
    slot: Option<usize>,
}

pub struct Writer {
    ring: IoUring,
    arena: AlignedBuf,
    registered: bool,
    /// By number: what the kernel has.
    active: Vec<Option<Piece>>,
    free: Vec<usize>,
    /// Not given to the kernel yet.
    gathered: Vec<Piece>,
    /// The arena's slot being filled, how far, and how many pieces of each are gathered or in the kernel.
    slot: usize,
    used: usize,
    pieces_of: [usize; SLOTS],
    failed: Option<Error>,
}

// SAFETY: the pointers in the pieces live only inside `write_all`; ring and arena may move between threads.
unsafe impl Send for Writer {}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Writer")
    }
}

impl Writer {
    pub fn new() -> Result<Self> {
        let ring = ring(WRITE_DEPTH as u32)?;
        let mut arena = AlignedBuf::new(SLOTS * SLOT);
        let iovec = libc::iovec {
            iov_base: arena.as_mut_ptr().cast(),
            iov_len: SLOTS * SLOT,
        };
        // SAFETY: the arena lives as long as the ring: both are fields, and the ring is declared (and so
        // dropped) first. Refused where locked memory is scarce: then the kernel maps it for each request.
        let registered = unsafe { ring.submitter().register_buffers(&[iovec]) }.is_ok();
        Ok(Self {
            ring,
            arena,
            registered,
            active: vec![None; WRITE_DEPTH],
            free: (0..WRITE_DEPTH).collect(),
            gathered: Vec::with_capacity(WRITE_DEPTH),
            slot: 0,
            used: 0,
            pieces_of: [0; SLOTS],
            failed: None,
        })
    }

    /// Writes all, in any order. `direct`: memory must be aligned, what is not is copied. After an error the
    /// writer is not used again.
    pub fn write_all(&mut self, file: &File, writes: &[Write<'_>], direct: bool) -> Result<()> {
        self.add_all(file, writes, direct)?;
        self.finish(file)?;
        self.used = 0;
        self.failed.take().map_or(Ok(()), Err)
    }

    fn add_all(&mut self, file: &File, writes: &[Write<'_>], direct: bool) -> Result<()> {
        for w in writes {
            let mut at = w.offset;
            // Slices that touch are joined by copying them: one request for all.
            let alone = w.data.len() == 1;
            for part in w.data.iter() {
                let mut rest: &[u8] = part;
                while !rest.is_empty() {
                    let stays = is_aligned(rest) && at % ALIGN as u64 == 0 && (alone || rest.len() >= SLOT);
                    let n = if !direct || stays {
                        self.borrow(file, rest, at)?
                    } else {
                        self.copy(file, rest, at)?
                    };
                    rest = &rest[n..];
                    at += n as u64;
                }
            }
        }
        Ok(())
    }

    /// Adds a piece that stays where it is.
    fn borrow(&mut self, file: &File, data: &[u8], offset: u64) -> Result<usize> {
        let len = data.len().min(PIECE);
        self.gather(
            file,
            Piece {
                ptr: data.as_ptr(),
                len,
                offset,
                slot: None,
            },
        )?;
        Ok(len)
    }

    /// Copies a piece into the arena, joined with the one before it where they touch. Slots and writes are whole
    /// blocks, so a write is cut at whole blocks only.
    fn copy(&mut self, file: &File, data: &[u8], offset: u64) -> Result<usize> {
        if self.used == SLOT {
            // The disk works on the full slot while the next one is filled.
            self.submit(file)?;
            self.slot = (self.slot + 1) % SLOTS;
            self.used = 0;
        }
        while self.used == 0 && self.pieces_of[self.slot] > 0 {
            self.reap(file)?;
        }
        let slot = self.slot;
        let start = slot * SLOT + self.used;
        let len = data.len().min(SLOT - self.used);
        let joins = |p: &Piece| p.slot == Some(slot) && p.offset + p.len as u64 == offset;
        let joined = self.gathered.last_mut().filter(|p| joins(p));
        if let Some(p) = joined {
            p.len += len;
        } else {
            self.gather(
                file,
                Piece {
                    ptr: self.arena[start..].as_ptr(),
                    len,
                    offset,
                    slot: Some(slot),
                },
            )?;
        }
        self.arena[start..start + len].copy_from_slice(&data[..len]);
        self.used += len;
        Ok(len)
    }

    fn gather(&mut self, file: &File, piece: Piece) -> Result<()> {
        if self.gathered.len() == WRITE_DEPTH {
            self.submit(file)?;
        }
        if let Some(slot) = piece.slot {
            self.pieces_of[slot] += 1;
        }
        self.gathered.push(piece);
        Ok(())
    }

    /// Gives what was gathered to the kernel, waiting for room where there is none.
    fn submit(&mut self, file: &File) -> Result<()> {
        let fd = types::Fd(file.as_raw_fd());
        for piece in std::mem::take(&mut self.gathered) {
            while self.free.is_empty() {
                self.reap(file)?;
            }
            let Some(number) = self.free.pop() else { continue };
            let len = piece.len as u32;
            let entry = if piece.slot.is_some() && self.registered {
                opcode::WriteFixed::new(fd, piece.ptr, len, 0)
                    .offset(piece.offset)
                    .build()
            } else {
                opcode::Write::new(fd, piece.ptr, len)
                    .offset(piece.offset)
                    .build()
            };
            self.active[number] = Some(piece);
            // SAFETY: the memory lives until `write_all` has seen every completion. There is room: the ring has
            // as many entries as there are numbers.
            unsafe { self.ring.submission().push(&entry.user_data(number as u64)) }
                .map_err(|_| Error::other("the ring has no room"))?;
        }
        match self.ring.submit() {
            Err(e) if !retry(&e) => Err(e),
            _ => Ok(()),
        }
    }

    /// Waits for at least one completion and takes all there are.
    fn reap(&mut self, file: &File) -> Result<()> {
        match self.ring.submit_and_wait(1) {
            // The kernel only reads from this memory: returning while it may is safe, and the caller stops
            // after a failed write.
            Err(e) if !retry(&e) => return Err(e),
            _ => {}
        }
        for c in self.ring.completion() {
            let number = c.user_data() as usize;
            let Some(piece) = self.active.get_mut(number).and_then(Option::take) else {
                continue;
            };
            self.free.push(number);
            if let Some(slot) = piece.slot {
                self.pieces_of[slot] -= 1;
            }
            if let Err(e) = finish(file, &piece, c.result()) {
                self.failed.get_or_insert(e);
            }
        }
        Ok(())
    }

    fn finish(&mut self, file: &File) -> Result<()> {
        let idle = self.free.len() == WRITE_DEPTH;
        if let (true, [p]) = (idle, &self.gathered[..]) {
            // SAFETY: `p` points into the arena or into the caller's data, both alive.
            let data = unsafe { std::slice::from_raw_parts(p.ptr, p.len) };
            let written = file.write_all_at(data, p.offset);
            if let Some(slot) = p.slot {
                self.pieces_of[slot] -= 1;
            }
            self.gathered.clear();
            return written;
        }
        self.submit(file)?;
        while self.free.len() < WRITE_DEPTH {
            self.reap(file)?;
        }
        Ok(())
    }
}

/// Judges one completion; a short or interrupted write goes on with plain calls.
fn finish(file: &File, p: &Piece, result: i32) -> Result<()> {
    let done = match usize::try_from(result) {
        Ok(n) => n,
        Err(_) => match Error::from_raw_os_error(-result) {
            e if retry(&e) => 0,
            e => return Err(e),
        },
    };
    if done >= p.len {
        return Ok(());
    }
    // A direct write goes on at a whole sector.
    let done = done / ALIGN * ALIGN;
    // SAFETY: the piece's memory is alive (see `run_pieces`).
    let rest = unsafe { std::slice::from_raw_parts(p.ptr.add(done), p.len - done) };
    file.write_all_at(rest, p.offset + done as u64)
}

#[derive(Debug)]
struct Read {
    token: u64,
    offset: u64,
    buf: AlignedBuf,
}

/// Reads beside their owner; its file descriptor turns readable when some have ended.
pub struct UringReads {
    ring: IoUring,
    file: Arc<File>,
    /// By slot: what the kernel has.
    active: Vec<Option<Read>>,
    free: Vec<usize>,
    waiting: VecDeque<Read>,
    unsubmitted: bool,
}

impl std::fmt::Debug for UringReads {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "UringReads({} waiting)", self.waiting.len())
    }
}

impl UringReads {
    pub fn new(file: Arc<File>) -> Result<Self> {
        Ok(Self {
            ring: ring(READ_DEPTH as u32)?,
            file,
            active: (0..READ_DEPTH).map(|_| None).collect(),
            free: (0..READ_DEPTH).rev().collect(),
            waiting: VecDeque::new(),
            unsubmitted: false,
        })
    }

    fn fill(&mut self) {
        let fd = types::Fd(self.file.as_raw_fd());
        while !self.free.is_empty()
            && let Some(mut read) = self.waiting.pop_front()
        {
            let Some(slot) = self.free.pop() else { return };
            let (ptr, len) = (read.buf.as_mut_ptr(), read.buf.len() as u32);
            let entry = opcode::Read::new(fd, ptr, len).offset(read.offset).build();
            self.active[slot] = Some(read);
            // SAFETY: the buffer stays in `active` until its completion was seen; there are as many slots
            // as the ring has entries.
            let pushed = unsafe { self.ring.submission().push(&entry.user_data(slot as u64)) };
            if pushed.is_err() {
                self.free.push(slot);
                self.waiting.extend(self.active[slot].take());
                return;
            }
            self.unsubmitted = true;
        }
    }

    fn in_kernel(&self) -> usize {
        READ_DEPTH - self.free.len()
    }
}

impl ReadQueue for UringReads {
    fn push(&mut self, token: u64, offset: u64, len: usize) {
        let buf = AlignedBuf::for_read(len);
        self.waiting.push_back(Read { token, offset, buf });
    }

    fn submit(&mut self) {
        self.fill();
        if self.unsubmitted {
            // A busy kernel takes them at the next call; what is in the ring is not lost.
            self.unsubmitted = self.ring.submit().is_err();
        }
    }

    fn completed(&mut self, out: &mut Vec<ReadDone>) {
        for c in self.ring.completion() {
            let slot = c.user_data() as usize;
            let Some(Read {
                token,
                offset,
                mut buf,
            }) = self.active.get_mut(slot).and_then(Option::take)
            else {
                continue;
            };
            self.free.push(slot);
            let whole = buf.len();
            let result = match usize::try_from(c.result()) {
                Ok(n) if n == whole => Ok(()),
                // Short: the plain call finds out why.
                Ok(_) => self.file.read_exact_at(&mut buf, offset),
                Err(_) => match Error::from_raw_os_error(-c.result()) {
                    e if retry(&e) => self.file.read_exact_at(&mut buf, offset),
                    e => Err(e),
                },
            };
            out.push(ReadDone {
                token,
                data: result.map(|()| buf.into_read()),
            });
        }
        self.submit();
    }

    fn wait(&mut self) -> Result<()> {
        self.fill();
        if self.in_kernel() == 0 {
            return Ok(());
        }
        self.unsubmitted = false;
        while let Err(e) = self.ring.submit_and_wait(1) {
            if !retry(&e) {
                return Err(e);
            }
        }
        Ok(())
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.as_fd())
    }
}

impl Drop for UringReads {
    fn drop(&mut self) {
        self.waiting.clear();
        let mut done = Vec::new();
        while self.in_kernel() > 0 {
            if self.wait().is_err() {
                // Better lost memory than memory that the kernel writes to after it was given back.
                std::mem::forget(std::mem::take(&mut self.active));
                return;
            }
            self.completed(&mut done);
            done.clear();
        }
    }
}

impl AsFd for UringReads {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the ring owns the descriptor and outlives the borrow.
        unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) }
    }
}
