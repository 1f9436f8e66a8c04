//! Reads and writes of a sealed file that go on beside their owner.

use super::Place;
use crate::disk::{AlignedBuf, AlignedVec, ReadDone, ReadQueue, WriteDone, WriteQueue};
use bytes::Bytes;
use rustix::fd::BorrowedFd;
use std::collections::BTreeMap;
use std::io::{Error, Result};

/// Opened when the owner takes them.
#[derive(Debug)]
pub struct Reads {
    queue: Box<dyn ReadQueue>,
    place: Place,
    /// Where each begins that is under way; the owner bounds them.
    offsets: BTreeMap<u64, u64>,
}

impl Reads {
    pub fn new(queue: Box<dyn ReadQueue>, place: Place) -> Self {
        Self {
            queue,
            place,
            offsets: BTreeMap::new(),
        }
    }

    fn opened(&self, offset: u64, data: &Bytes) -> Result<Bytes> {
        let mut buf = AlignedBuf::for_read(data.len());
        buf[..data.len()].copy_from_slice(data);
        self.place.open(offset, &mut buf[..data.len()])?;
        Ok(buf.into_read().slice(..data.len()))
    }
}

impl ReadQueue for Reads {
    fn push(&mut self, token: u64, offset: u64, len: usize) {
        self.offsets.insert(token, offset);
        self.queue.push(token, offset, len);
    }
    fn submit(&mut self) {
        self.queue.submit();
    }
    fn completed(&mut self, out: &mut Vec<ReadDone>) {
        let from = out.len();
        self.queue.completed(out);
        for done in &mut out[from..] {
            let offset = self.offsets.remove(&done.token);
            if let Ok(data) = &done.data {
                let lost = || Error::other("a read that nobody asked for");
                done.data = offset
                    .ok_or_else(lost)
                    .and_then(|offset| self.opened(offset, data));
            }
        }
    }
    fn wait(&mut self) -> Result<()> {
        self.queue.wait()
    }
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.queue.fd()
    }
}

/// What is written is a copy: the owner gets back what it gave.
#[derive(Debug)]
pub struct Writes {
    queue: Box<dyn WriteQueue>,
    place: Place,
    plain: AlignedVec,
    /// Memory for the next one.
    spare: AlignedVec,
    /// The write under way could not be sealed, and was never begun.
    failed: Option<Error>,
}

impl Writes {
    pub fn new(queue: Box<dyn WriteQueue>, place: Place) -> Self {
        Self {
            queue,
            place,
            plain: AlignedVec::default(),
            spare: AlignedVec::default(),
            failed: None,
        }
    }
}

impl WriteQueue for Writes {
    fn begin(&mut self, data: AlignedVec, offset: u64) {
        let mut sealed = std::mem::take(&mut self.spare);
        sealed.clear();
        sealed.extend_from_slice(&data);
        self.plain = data;
        match self.place.seal(offset, &mut sealed) {
            Ok(()) => self.queue.begin(sealed, offset),
            Err(e) => self.failed = Some(e),
        }
    }

    fn ended(&mut self) -> Option<WriteDone> {
        let result = match self.failed.take() {
            Some(e) => Err(e),
            None => {
                let done = self.queue.ended()?;
                self.spare = done.data;
                done.result
            }
        };
        Some(WriteDone {
            data: std::mem::take(&mut self.plain),
            result,
        })
    }

    fn wait(&mut self) -> Result<()> {
        match self.failed {
            Some(_) => Ok(()),
            None => self.queue.wait(),
        }
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.queue.fd()
    }
}
