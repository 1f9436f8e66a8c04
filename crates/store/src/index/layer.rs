//! A file that must not be changed, with what the index library writes to it kept in memory above it.
//!
//! The library writes even to read: a mark that the file is open, and what a repair after a crash brings.
//!
//! Bound: [`UNWRITTEN_BYTES_MAX`]; a write behind it fails.

use io::disk::DiskFile;
use redb::StorageBackend;
use std::collections::BTreeMap;
use std::io::{Error, ErrorKind, Result};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The mark and a repair's few pages are far below.
const UNWRITTEN_BYTES_MAX: usize = 64 << 20;
const PAGE: u64 = 4096;

/// Pages that were written to a file that must not be changed.
#[derive(Debug)]
struct Unwritten {
    /// What the library takes for the file's length.
    len: u64,
    /// Up to where the file's own content counts: it was never cut below that.
    file_len: u64,
    pages: BTreeMap<u64, Vec<u8>>,
}

#[derive(Debug)]
pub struct Layer {
    file: Arc<dyn DiskFile>,
    unwritten: Mutex<Unwritten>,
}

impl Layer {
    pub fn over(file: Arc<dyn DiskFile>) -> Result<Self> {
        let len = file.len()?;
        let unwritten = Unwritten {
            len,
            file_len: len,
            pages: BTreeMap::new(),
        };
        Ok(Self {
            file,
            unwritten: Mutex::new(unwritten),
        })
    }

    pub fn is_empty(&self) -> bool {
        self.lock().len == 0
    }

    fn lock(&self) -> MutexGuard<'_, Unwritten> {
        self.unwritten.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The part of `[offset, end)` within each page: page, offset in it, offset in the range, length.
    fn parts(offset: u64, end: u64) -> impl Iterator<Item = (u64, usize, usize, usize)> {
        (offset / PAGE..end.div_ceil(PAGE)).map(move |page| {
            let from = offset.max(page * PAGE);
            let to = end.min((page + 1) * PAGE);
            (
                page,
                (from - page * PAGE) as usize,
                (from - offset) as usize,
                (to - from) as usize,
            )
        })
    }

    /// The file's own bytes; zeros where it has none.
    fn below(&self, file_len: u64, offset: u64, out: &mut [u8]) -> Result<()> {
        let there = file_len.saturating_sub(offset).min(out.len() as u64) as usize;
        out[there..].fill(0);
        match there {
            0 => Ok(()),
            n => self.file.read_at(&mut out[..n], offset),
        }
    }
}

impl StorageBackend for Layer {
    fn len(&self) -> Result<u64> {
        Ok(self.lock().len)
    }
    fn read(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let u = self.lock();
        let end = offset.checked_add(out.len() as u64);
        let end = end.filter(|e| *e <= u.len).ok_or(ErrorKind::UnexpectedEof)?;
        self.below(u.file_len, offset, out)?;
        if u.pages.is_empty() {
            return Ok(());
        }
        for (page, skip, at, len) in Self::parts(offset, end) {
            if let Some(p) = u.pages.get(&page) {
                out[at..at + len].copy_from_slice(&p[skip..skip + len]);
            }
        }
        Ok(())
    }
    fn set_len(&self, len: u64) -> Result<()> {
        let mut u = self.lock();
        u.len = len;
        u.file_len = u.file_len.min(len);
        u.pages.retain(|page, p| {
            let keep = len.saturating_sub(page * PAGE).min(PAGE) as usize;
            p[keep..].fill(0);
            keep > 0
        });
        Ok(())
    }
    fn sync_data(&self) -> Result<()> {
        Ok(())
    }
    fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        let mut u = self.lock();
        let end = offset
            .checked_add(data.len() as u64)
            .ok_or(ErrorKind::FileTooLarge)?;
        u.len = u.len.max(end);
        for (page, skip, at, len) in Self::parts(offset, end) {
            if !u.pages.contains_key(&page) {
                if (u.pages.len() + 1) * PAGE as usize > UNWRITTEN_BYTES_MAX {
                    return Err(Error::other("too much to change in memory"));
                }
                let mut p = vec![0; PAGE as usize];
                self.below(u.file_len, page * PAGE, &mut p)?;
                u.pages.insert(page, p);
            }
            if let Some(p) = u.pages.get_mut(&page) {
                p[skip..skip + len].copy_from_slice(&data[at..at + len]);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use io::disk::Disk;
    use io::disk::sim::SimDisk;

    fn read(layer: &Layer, offset: u64, len: usize) -> Result<Vec<u8>> {
        let mut out = vec![9; len];
        layer.read(offset, &mut out).map(|()| out)
    }

    #[test]
    fn what_is_written_is_read_and_the_file_stays() {
        let disk = SimDisk::new();
        let file = disk.create("f").unwrap();
        file.write_at(&[1; 10_000], 0).unwrap();
        let layer = Layer::over(file.clone()).unwrap();
        layer.write(4090, &[2; 12]).unwrap();
        layer.write(9_998, &[3; 4]).unwrap();
        assert_eq!(
            read(&layer, 4088, 16).unwrap(),
            [&[1; 2][..], &[2; 12], &[1; 2]].concat()
        );
        assert_eq!(read(&layer, 9_997, 5).unwrap(), [1, 3, 3, 3, 3]);
        assert!(read(&layer, 9_997, 6).is_err(), "behind the end");
        // What was cut off is gone, also when the file becomes long again.
        layer.set_len(4092).unwrap();
        layer.set_len(8192).unwrap();
        assert_eq!(read(&layer, 4088, 8).unwrap(), [1, 1, 2, 2, 0, 0, 0, 0]);
        assert_eq!(read(&layer, 8000, 4).unwrap(), [0; 4]);
        let mut own = vec![0; 10_000];
        file.read_at(&mut own, 0).unwrap();
        assert!(own.iter().all(|b| *b == 1) && file.len().unwrap() == 10_000);
    }
}
