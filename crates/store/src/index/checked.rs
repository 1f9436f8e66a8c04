//! Checksums below the index library: every page of its file is verified whenever it is read.
//!
//! The library keeps checksums of its pages, but compares them only in a check of the whole file: a flipped bit
//! would be served as a wrong row, a missing object, or lead it astray. This is a file as the library sees it
//! (*logical* pages of 4096 bytes), laid out in the real one with a *sum page* before every 1024 of them, which
//! holds a `u32` for each: CRC-32C of the page, XORed with that of a page of zeros, so that pages never written
//! need no entry.
//!
//! Why cuts do no harm: the library never changes a page that its last durable commit refers to, and flushes
//! what a new commit refers to before it writes the file's head. A sum page is written before that same flush,
//! and its sectors only change in entries of pages that the old commit does not need. So of what a cut leaves,
//! every page that can be reached matches its entry. Logical page 0, the head, is written in place: it is the
//! library's own to verify, and is not compared here.
//!
//! Memory: 4 KiB for each 4 MiB of the file. Not here: repair.

use io::disk::DiskFile;
use std::collections::BTreeMap;
use std::io::{Error, ErrorKind, IoSlice, Result};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use types::checksum::crc32c;

const PAGE: u64 = 4096;
/// Logical pages behind one sum page: as many as it has entries.
const GROUP: u64 = PAGE / 4;
const _: () = assert!(GROUP == 1024 && GROUP * size_of::<u32>() as u64 == PAGE);
const ZEROS: [u8; PAGE as usize] = [0; PAGE as usize];

#[derive(Debug)]
struct Sums {
    entries: Vec<u32>,
    dirty: bool,
}

#[derive(Debug)]
pub struct Checked {
    file: Arc<dyn DiskFile>,
    of_zeros: u32,
    /// In logical bytes.
    len: AtomicU64,
    /// By group, those met so far.
    sums: Mutex<BTreeMap<u64, Sums>>,
}

/// Where a logical page lies.
fn place(page: u64) -> u64 {
    page / GROUP * (GROUP + 1) + 1 + page % GROUP
}

/// The real length of a file of `len` logical bytes.
fn real_len(len: u64) -> u64 {
    match len {
        0 => 0,
        _ => place((len - 1) / PAGE) * PAGE + (len - 1) % PAGE + 1,
    }
}

fn logical_len(real: u64) -> u64 {
    let (groups, rest) = (real / ((GROUP + 1) * PAGE), real % ((GROUP + 1) * PAGE));
    groups * GROUP * PAGE + rest.saturating_sub(PAGE)
}

impl Checked {
    pub fn over(file: Arc<dyn DiskFile>) -> Result<Self> {
        let len = logical_len(file.len()?);
        Ok(Self {
            file,
            of_zeros: crc32c(!0, &ZEROS),
            len: AtomicU64::new(len),
            sums: Mutex::default(),
        })
    }

    fn logical(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }

    fn sum(&self, page: &[u8]) -> u32 {
        crc32c(!0, page) ^ self.of_zeros
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Sums>> {
        self.sums.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn entries<'a>(&self, sums: &'a mut BTreeMap<u64, Sums>, group: u64) -> Result<&'a mut Sums> {
        use std::collections::btree_map::Entry;
        match sums.entry(group) {
            Entry::Occupied(e) => Ok(e.into_mut()),
            Entry::Vacant(e) => {
                let mut raw = ZEROS;
                let at = group * (GROUP + 1) * PAGE;
                if self.file.len()? >= at + PAGE {
                    self.file.read_at(&mut raw, at)?;
                }
                let entries = raw.chunks_exact(4);
                let entries = entries.map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]));
                Ok(e.insert(Sums {
                    entries: entries.collect(),
                    dirty: false,
                }))
            }
        }
    }

    /// Whole logical pages, from `first` on, verified.
    fn read_pages(&self, first: u64, out: &mut [u8]) -> Result<()> {
        let mut page = first;
        for part in Self::by_group(first, out) {
            self.file.read_at(part, place(page) * PAGE)?;
            let mut sums = self.lock();
            let entries = &self.entries(&mut sums, page / GROUP)?.entries;
            for bytes in part.chunks_exact(PAGE as usize) {
                if page > 0 && entries[(page % GROUP) as usize] != self.sum(bytes) {
                    let why = format!("page {page} of the index is damaged: its checksum differs");
                    return Err(Error::new(ErrorKind::InvalidData, why));
                }
                page += 1;
            }
        }
        Ok(())
    }

    /// Cuts whole pages from `first` on where a sum page lies between them.
    fn by_group(first: u64, out: &mut [u8]) -> impl Iterator<Item = &mut [u8]> {
        let mut rest = out;
        let mut page = first;
        std::iter::from_fn(move || {
            let n = ((GROUP - page % GROUP) * PAGE).min(rest.len() as u64);
            let (part, behind) = std::mem::take(&mut rest).split_at_mut(n as usize);
            rest = behind;
            page += n / PAGE;
            (!part.is_empty()).then_some(part)
        })
    }

    fn write_pages(&self, first: u64, data: &[u8]) -> Result<()> {
        let mut at = 0;
        while at < data.len() {
            let page = first + at as u64 / PAGE;
            let n = ((GROUP - page % GROUP) * PAGE).min((data.len() - at) as u64) as usize;
            let part = &data[at..at + n];
            self.file.write_at(part, place(page) * PAGE)?;
            let mut sums = self.lock();
            let sums = self.entries(&mut sums, page / GROUP)?;
            sums.dirty = true;
            for (i, bytes) in part.chunks_exact(PAGE as usize).enumerate() {
                sums.entries[(page % GROUP) as usize + i] = self.sum(bytes);
            }
            at += n;
        }
        self.len
            .fetch_max(first * PAGE + data.len() as u64, Ordering::AcqRel);
        Ok(())
    }

    /// The pages that hold the range, as they are now, and where in them it begins; zeros behind the end.
    fn around(&self, offset: u64, len: usize, verified: bool) -> Result<(u64, Vec<u8>, usize)> {
        let (first, end) = (offset / PAGE, (offset + len as u64).div_ceil(PAGE));
        let there = self.logical().div_ceil(PAGE).clamp(first, end);
        let mut pages = vec![0; ((end - first) * PAGE) as usize];
        let known = &mut pages[..((there - first) * PAGE) as usize];
        if verified {
            self.read_pages(first, known)?;
        } else {
            let mut page = first;
            for part in Self::by_group(first, known) {
                self.file.read_at(part, place(page) * PAGE)?;
                page += part.len() as u64 / PAGE;
            }
        }
        Ok((first, pages, (offset % PAGE) as usize))
    }

    /// Entries of pages behind the end: a file that grows again has zeros there.
    fn forget_behind(&self, len: u64) -> Result<()> {
        let mut sums = self.lock();
        let first = len.div_ceil(PAGE);
        let groups = first / GROUP..=self.logical().div_ceil(PAGE) / GROUP;
        for group in groups {
            let sums = self.entries(&mut sums, group)?;
            let from = first.saturating_sub(group * GROUP).min(GROUP) as usize;
            sums.dirty |= sums.entries[from..].iter().any(|s| *s != 0);
            sums.entries[from..].fill(0);
        }
        Ok(())
    }
}

impl DiskFile for Checked {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let end = offset.checked_add(buf.len() as u64);
        if end.is_none_or(|end| end > self.logical()) {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        if offset.is_multiple_of(PAGE) && (buf.len() as u64).is_multiple_of(PAGE) {
            return self.read_pages(offset / PAGE, buf);
        }
        let (_, pages, skip) = self.around(offset, buf.len(), true)?;
        buf.copy_from_slice(&pages[skip..skip + buf.len()]);
        Ok(())
    }

    fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        if data.is_empty() {
            return Ok(());
        }
        if offset.is_multiple_of(PAGE) && (data.len() as u64).is_multiple_of(PAGE) {
            return self.write_pages(offset / PAGE, data);
        }
        // Of pages other than the head the library writes all; what a cut tore may lie beside the head's part.
        let (first, mut pages, skip) = self.around(offset, data.len(), offset / PAGE > 0)?;
        pages[skip..skip + data.len()].copy_from_slice(data);
        self.write_pages(first, &pages)
    }

    fn write_vectored_at(&self, data: &[IoSlice<'_>], offset: u64) -> Result<()> {
        let whole: Vec<u8> = data.iter().flat_map(|s| s.iter().copied()).collect();
        self.write_at(&whole, offset)
    }

    fn flush(&self) -> Result<()> {
        let mut sums = self.lock();
        let end = self.file.len()?;
        for (group, s) in sums.iter_mut().filter(|(_, s)| s.dirty) {
            let at = group * (GROUP + 1) * PAGE;
            // Nothing is left of a group that lies behind the end.
            if at + PAGE < end {
                let raw: Vec<u8> = s.entries.iter().flat_map(|v| v.to_le_bytes()).collect();
                self.file.write_at(&raw, at)?;
            }
            s.dirty = false;
        }
        drop(sums);
        self.file.flush()
    }

    /// The index never does: its library keeps what it frees.
    fn punch_hole(&self, _offset: u64, _len: u64) -> Result<()> {
        Ok(())
    }

    fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        self.file.allocate(0, real_len(offset + len))?;
        self.len.fetch_max(offset + len, Ordering::AcqRel);
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<()> {
        if len < self.logical() {
            self.forget_behind(len)?;
        }
        let len = len.next_multiple_of(PAGE);
        self.file.set_len(real_len(len))?;
        self.len.store(len, Ordering::Release);
        Ok(())
    }

    fn len(&self) -> Result<u64> {
        Ok(self.logical())
    }

    fn try_lock(&self) -> Result<bool> {
        self.file.try_lock()
    }

    fn is_read_only(&self) -> bool {
        self.file.is_read_only()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use io::disk::Disk;
    use io::disk::sim::SimDisk;

    fn made() -> (SimDisk, Arc<dyn DiskFile>) {
        let disk = SimDisk::new();
        let file = disk.create("f").unwrap();
        (disk, Arc::new(Checked::over(file).unwrap()))
    }

    fn read(f: &Arc<dyn DiskFile>, offset: u64, len: usize) -> Result<Vec<u8>> {
        let mut out = vec![9; len];
        f.read_at(&mut out, offset).map(|()| out)
    }

    #[test]
    fn lengths_go_there_and_back() {
        for len in [0, 1, 4096, 1024 * 4096, 1024 * 4096 + 1, 5000 * 4096] {
            assert_eq!(logical_len(real_len(len)), len);
        }
        assert_eq!((place(0), place(1023), place(1024)), (1, 1024, 1026));
    }

    #[test]
    fn what_is_written_is_read_after_a_restart_and_over_groups() {
        let (disk, f) = made();
        let data: Vec<u8> = (0..2100 * 4096).map(|i| (i / 4096 % 251) as u8).collect();
        f.write_at(&data, 0).unwrap();
        f.write_at(&[77; 300], 1023 * 4096 + 4000).unwrap();
        f.flush().unwrap();
        let again: Arc<dyn DiskFile> = Arc::new(Checked::over(disk.open("f").unwrap()).unwrap());
        assert_eq!(again.len().unwrap(), data.len() as u64);
        assert_eq!(read(&again, 1024 * 4096, 204).unwrap(), [77; 204]);
        assert_eq!(
            read(&again, 1022 * 4096, 4096).unwrap(),
            data[1022 * 4096..1023 * 4096]
        );
        assert_eq!(
            read(&again, 1500 * 4096 + 5, 8000).unwrap(),
            data[1500 * 4096 + 5..1500 * 4096 + 8005]
        );
        assert!(read(&again, 2100 * 4096, 1).is_err());
    }

    #[test]
    fn a_flipped_bit_is_an_error_but_in_the_head() {
        let (disk, f) = made();
        f.write_at(&[5; 3 * 4096], 0).unwrap();
        f.flush().unwrap();
        disk.flip("f", place(2) * PAGE + 100, 2);
        assert_eq!(read(&f, 4096, 4096).unwrap(), [5; 4096]);
        assert_eq!(read(&f, 8192, 4096).unwrap_err().kind(), ErrorKind::InvalidData);
        assert_eq!(read(&f, 8000, 200).unwrap_err().kind(), ErrorKind::InvalidData);
        // Written anew it is whole again.
        f.write_at(&[6; 4096], 8192).unwrap();
        assert_eq!(read(&f, 8192, 4096).unwrap(), [6; 4096]);
        disk.flip("f", place(0) * PAGE, 1);
        assert_eq!(read(&f, 0, 2).unwrap(), [7, 5]);
    }

    #[test]
    fn what_was_cut_off_reads_as_zeros_when_the_file_grows() {
        let (disk, f) = made();
        f.write_at(&[5; 3 * 4096], 0).unwrap();
        f.set_len(4096).unwrap();
        f.set_len(4 * 4096).unwrap();
        f.flush().unwrap();
        let again: Arc<dyn DiskFile> = Arc::new(Checked::over(disk.open("f").unwrap()).unwrap());
        assert_eq!(read(&again, 4096, 3 * 4096).unwrap(), [0; 3 * 4096]);
    }
}
