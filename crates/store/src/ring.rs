//! The log ring's format and how it is read after a start.
//!
//! Vocabulary: a *batch* is what one write and one flush put into the log: a 64-byte header and the
//! records of some transactions, padded to whole blocks. A *position* counts bytes ever laid into the
//! ring; its place is the remainder by the ring's length. A batch never wraps: one that does not fit
//! before the ring's end lies at its start. A *marker* is a batch without records.
//!
//! Header, little-endian:
//!
//! | at | size | what |
//! |---|---|---|
//! | 0 | 8 | magic `SKEPLOG1` |
//! | 8 | 8 | first half of the OSD's uuid: a batch of another store is none |
//! | 16 | 8 | batch number, ascending by one |
//! | 24 | 8 | incarnation: ascends with every open |
//! | 32 | 8 | number of its first transaction |
//! | 40 | 4 | count of transactions |
//! | 44 | 4 | bytes of records |
//! | 48 | 4 | CRC-32C of the records |
//! | 52 | 8 | zeros |
//! | 60 | 4 | CRC-32C of the header before |
//!
//! Then the records, each a `u32` length and that many bytes (see `record`).
//!
//! Invariants: batch n+1 is written only after the flush of batch n completed. So every batch that has a
//! successor was durable, and only the last one may be incomplete: torn, or without the direct extents
//! that the same flush was to cover. The first batch after an open is a flushed marker of a new
//! incarnation, so nothing that an earlier life left behind the log's end is ever taken for its
//! continuation.

use crate::broken::{self, Rule};
use crate::onode::BLOCK;
use crate::{Error, Result};
use bytes::Bytes;
use io::disk::DiskFile;
use std::cell::RefCell;
use std::sync::Arc;
use types::checksum::crc32c;

pub const HEADER: usize = 64;
const MAGIC: u64 = u64::from_le_bytes(*b"SKEPLOG1");

/// Where each field of the header lies, and that they follow one another.
mod at {
    pub const MAGIC: usize = 0;
    pub const TAG: usize = 8;
    pub const BATCH: usize = 16;
    pub const INCARNATION: usize = 24;
    pub const FIRST_SEQ: usize = 32;
    pub const COUNT: usize = 40;
    pub const LEN: usize = 44;
    pub const RECORDS_CRC: usize = 48;
    /// Behind 8 bytes of zeros.
    pub const CRC: usize = 60;
}

const _: () = assert!(at::TAG == at::MAGIC + size_of::<u64>());
const _: () = assert!(at::BATCH == at::TAG + size_of::<u64>());
const _: () = assert!(at::INCARNATION == at::BATCH + size_of::<u64>());
const _: () = assert!(at::FIRST_SEQ == at::INCARNATION + size_of::<u64>());
const _: () = assert!(at::COUNT == at::FIRST_SEQ + size_of::<u64>());
const _: () = assert!(at::LEN == at::COUNT + size_of::<u32>());
const _: () = assert!(at::RECORDS_CRC == at::LEN + size_of::<u32>());
const _: () = assert!(at::CRC == at::RECORDS_CRC + size_of::<u32>() + 8);
const _: () = assert!(HEADER == at::CRC + size_of::<u32>() && BLOCK.is_multiple_of(HEADER as u64));

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    pub tag: u64,
    pub batch: u64,
    pub incarnation: u64,
    pub first_seq: u64,
    pub count: u32,
    pub len: u32,
    pub crc: u32,
}

impl Header {
    pub fn encode(&self) -> [u8; HEADER] {
        let mut b = [0; HEADER];
        let mut put = |at: usize, v: &[u8]| b[at..at + v.len()].copy_from_slice(v);
        put(at::MAGIC, &MAGIC.to_le_bytes());
        put(at::TAG, &self.tag.to_le_bytes());
        put(at::BATCH, &self.batch.to_le_bytes());
        put(at::INCARNATION, &self.incarnation.to_le_bytes());
        put(at::FIRST_SEQ, &self.first_seq.to_le_bytes());
        put(at::COUNT, &self.count.to_le_bytes());
        put(at::LEN, &self.len.to_le_bytes());
        put(at::RECORDS_CRC, &self.crc.to_le_bytes());
        let crc = crc32c(!0, &b[..at::CRC]);
        b[at::CRC..].copy_from_slice(&crc.to_le_bytes());
        b
    }

    pub fn decode(b: &[u8]) -> Option<Self> {
        let b = b.get(..HEADER)?;
        let u32_at = |at: usize| u32::from_le_bytes(b[at..at + 4].try_into().unwrap_or_default());
        let u64_at = |at: usize| u64::from_le_bytes(b[at..at + 8].try_into().unwrap_or_default());
        if u64_at(at::MAGIC) != MAGIC || u32_at(at::CRC) != crc32c(!0, &b[..at::CRC]) {
            return None;
        }
        Some(Self {
            tag: u64_at(at::TAG),
            batch: u64_at(at::BATCH),
            incarnation: u64_at(at::INCARNATION),
            first_seq: u64_at(at::FIRST_SEQ),
            count: u32_at(at::COUNT),
            len: u32_at(at::LEN),
            crc: u32_at(at::RECORDS_CRC),
        })
    }
}

/// Bytes that a batch of `len` bytes of records takes in the ring.
pub fn padded(len: usize) -> u64 {
    ((HEADER + len) as u64).next_multiple_of(BLOCK)
}

/// Where the ring lies.
#[derive(Debug, Clone, Copy)]
pub struct Ring {
    pub offset: u64,
    pub len: u64,
}

impl Ring {
    /// The position at which `need` bytes go when the log ends at `head`.
    pub fn place(&self, head: u64, need: u64) -> u64 {
        let left = self.len - head % self.len;
        if need > left { head + left } else { head }
    }

    /// Offset in the file.
    pub fn at(&self, position: u64) -> u64 {
        self.offset + position % self.len
    }
}

/// Where reading begins and what must be found there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cursor {
    pub position: u64,
    pub batch: u64,
    pub incarnation: u64,
    pub seq: u64,
}

#[derive(Debug)]
pub struct Found {
    pub header: Header,
    pub records: Bytes,
    /// The cursor behind it.
    pub next: Cursor,
}

/// Read at a time while the log is scanned: one request for many small batches.
const WINDOW_BYTES: u64 = 1 << 20;

#[derive(Debug)]
pub struct Scanner {
    path: String,
    file: Arc<dyn DiskFile>,
    pub ring: Ring,
    tag: u64,
    pub cursor: Cursor,
    /// What was read last: its offset in the file, and the bytes.
    window: RefCell<(u64, Vec<u8>)>,
}

impl Scanner {
    pub fn new(path: &str, file: Arc<dyn DiskFile>, ring: Ring, tag: u64, cursor: Cursor) -> Self {
        Self {
            path: path.to_owned(),
            file,
            ring,
            tag,
            cursor,
            window: RefCell::default(),
        }
    }

    pub fn damaged(&self, at: &Cursor, why: &'static str) -> Error {
        Error::LogDamaged {
            path: self.path.clone(),
            offset: self.ring.at(at.position),
            why,
        }
    }

    /// The next batch, if a whole one follows.
    pub fn next(&mut self) -> Result<Option<Found>> {
        let here = self.cursor.position;
        let start = here + (self.ring.len - here % self.ring.len) % self.ring.len;
        for position in [here, start] {
            if let Some(found) = self.batch_at(position)? {
                self.cursor = found.next;
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    fn batch_at(&self, position: u64) -> Result<Option<Found>> {
        let Some(h) = self.header_at(position)? else {
            return Ok(None);
        };
        let c = &self.cursor;
        let fits = position % self.ring.len + padded(h.len as usize) <= self.ring.len;
        let earlier = h.incarnation < c.incarnation && !broken::is(Rule::LaterLifeOnly);
        if !fits || h.batch != c.batch || earlier || h.first_seq != c.seq {
            return Ok(None);
        }
        let mut records = vec![0; h.len as usize];
        self.read(&mut records, self.ring.at(position) + HEADER as u64)?;
        if crc32c(!0, &records) != h.crc && !broken::is(Rule::TornIsNone) {
            return Ok(None);
        }
        Ok(Some(Found {
            header: h,
            records: records.into(),
            next: Cursor {
                position: position + padded(h.len as usize),
                batch: h.batch + 1,
                incarnation: h.incarnation,
                seq: h.first_seq + u64::from(h.count),
            },
        }))
    }

    fn header_at(&self, position: u64) -> Result<Option<Header>> {
        let mut b = [0; HEADER];
        self.read(&mut b, self.ring.at(position))?;
        Ok(Header::decode(&b).filter(|h| h.tag == self.tag))
    }

    fn read(&self, out: &mut [u8], offset: u64) -> Result<()> {
        let io = |e| Error::io(&self.path, "read the log", e);
        let len = out.len() as u64;
        if len > WINDOW_BYTES / 2 {
            return self.file.read_at(out, offset).map_err(io);
        }
        let (start, bytes) = &mut *self.window.borrow_mut();
        if offset < *start || offset + len > *start + bytes.len() as u64 {
            let end = (offset + WINDOW_BYTES).min(self.ring.offset + self.ring.len);
            let size = (end.max(offset + len) - offset) as usize;
            if bytes.len() != size {
                *bytes = vec![0; size];
            }
            *start = offset;
            if let Err(e) = self.file.read_at(bytes, offset) {
                bytes.clear();
                return Err(io(e));
            }
        }
        let skip = (offset - *start) as usize;
        out.copy_from_slice(&bytes[skip..skip + out.len()]);
        Ok(())
    }

    /// Refuses a log that ends although batches follow its end: those prove that what is unreadable was
    /// durable.
    pub fn check_end(&self) -> Result<()> {
        let mut position = 0;
        while position < self.ring.len {
            // Where nothing was ever written there is no batch.
            let data = self.file.next_data(self.ring.offset + position);
            let data = data.map_err(|e| Error::io(&self.path, "read the log", e))?;
            position = (data - self.ring.offset) / BLOCK * BLOCK;
            if position >= self.ring.len {
                break;
            }
            if let Some(h) = self.header_at(position)?
                && h.batch > self.cursor.batch
                && h.incarnation >= self.cursor.incarnation
            {
                return Err(self.damaged(
                    &self.cursor,
                    "a batch that was durable cannot be read, and later ones follow it",
                ));
            }
            position += BLOCK;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_comes_back_or_is_refused() {
        let h = Header {
            tag: 1,
            batch: 2,
            incarnation: 3,
            first_seq: 4,
            count: 5,
            len: 6,
            crc: 7,
        };
        let mut b = h.encode();
        assert_eq!(Header::decode(&b), Some(h));
        b[20] ^= 1;
        assert_eq!(Header::decode(&b), None);
    }

    #[test]
    fn batches_do_not_wrap() {
        let r = Ring {
            offset: 100,
            len: 3 * BLOCK,
        };
        assert_eq!(r.place(2 * BLOCK, BLOCK), 2 * BLOCK);
        assert_eq!(r.place(2 * BLOCK, 2 * BLOCK), 3 * BLOCK);
        assert_eq!(r.place(3 * BLOCK, 3 * BLOCK), 3 * BLOCK);
        assert_eq!(r.at(4 * BLOCK), 100 + BLOCK);
    }
}
