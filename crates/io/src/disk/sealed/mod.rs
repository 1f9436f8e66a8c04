//! A disk whose files are encrypted where they lie: a layer over any other disk.
//!
//! Each byte stays at its place, so formats, lengths and holes are those of the layer above; what was never written reads as zeros. Sectors have the file and
//! their number as tweak: the same bytes look different at each place, and whoever sees the disk at two times sees which [`UNIT`]s of 16 bytes
//! differ.
//!
//! Invariant: of a write no byte is changed outside of the units that it touches, so a torn one tears what a plain disk would tear, rounded to units.
//!
//! Bounds: a write is sealed in pieces of [`AT_ONCE`] bytes, writes that go at once in groups of as many.
//!
//! Not here: files other than those of a store (`seal` itself is plain); proof against who changes the disk.

mod envelope;
mod queues;
mod xts;

pub use envelope::FILE;

use super::{AlignedBuf, Disk, DiskFile, ReadQueue, Space, Write, WriteQueue};
use crate::key_file::KeyFile;
use queues::{Reads, Writes};
use std::io::{Error, ErrorKind, IoSlice, Result};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use xts::{SECTOR, UNIT, Xts};

const AT_ONCE: usize = 1 << 20;
/// Of a data file, looked at for whether a store is in it.
const BEGIN: usize = 64 << 10;
/// Files that are encrypted, and their numbers in tweaks: these never change.
const FILES: [(&str, u64); 2] = [("block", 0), ("index", 1)];

/// The disk as it is to be used: with its seal, if it has one, which `keys` have to open.
pub fn over(disk: Arc<dyn Disk>, keys: Option<&KeyFile>) -> Result<Arc<dyn Disk>> {
    match disk.exists(FILE)? {
        false => Ok(disk),
        true => {
            let key = envelope::read(&*disk, keys)?;
            sealed(disk, key)
        }
    }
}

/// The same for a disk on which a store is to be made: it gets a seal where there are keys and no store is there yet.
pub fn make(disk: Arc<dyn Disk>, keys: Option<&KeyFile>) -> Result<Arc<dyn Disk>> {
    match keys {
        Some(keys) if !disk.exists(FILE)? && is_unused(&*disk)? => {
            let key = envelope::make(&*disk, keys)?;
            sealed(disk, key)
        }
        keys => over(disk, keys),
    }
}

/// A store's first bytes are written last: before that they are zeros, with and without a seal.
fn is_unused(disk: &dyn Disk) -> Result<bool> {
    let (data, _) = FILES[0];
    if !disk.exists(data)? {
        return Ok(true);
    }
    let file = disk.open_data(data)?;
    let mut begin = AlignedBuf::new(BEGIN.min(file.len()? as usize / SECTOR * SECTOR));
    file.read_at(&mut begin, 0)?;
    Ok(begin.iter().all(|b| *b == 0))
}

fn sealed(disk: Arc<dyn Disk>, key: [u8; xts::KEY_BYTES]) -> Result<Arc<dyn Disk>> {
    let xts = Arc::new(Xts::new(key)?);
    Ok(Arc::new(SealedDisk { disk, xts }))
}

#[derive(Debug)]
struct SealedDisk {
    disk: Arc<dyn Disk>,
    xts: Arc<Xts>,
}

impl SealedDisk {
    fn file(&self, name: &str, file: Arc<dyn DiskFile>) -> Result<Arc<dyn DiskFile>> {
        let number = FILES.iter().find(|(known, _)| *known == name).map(|(_, number)| *number);
        let number = number.ok_or_else(|| Error::new(ErrorKind::Unsupported, format!("no sealed file is called '{name}'")))?;
        let place = Place {
            xts: self.xts.clone(),
            file: u128::from(number) << 64,
        };
        Ok(Arc::new(SealedFile {
            file,
            place,
            parts: Mutex::new(()),
        }))
    }
}

impl Disk for SealedDisk {
    fn name(&self) -> String {
        self.disk.name()
    }
    fn exists(&self, file: &str) -> Result<bool> {
        self.disk.exists(file)
    }
    fn open(&self, file: &str) -> Result<Arc<dyn DiskFile>> {
        self.file(file, self.disk.open(file)?)
    }
    fn open_data(&self, file: &str) -> Result<Arc<dyn DiskFile>> {
        self.file(file, self.disk.open_data(file)?)
    }
    fn create(&self, file: &str) -> Result<Arc<dyn DiskFile>> {
        self.file(file, self.disk.create(file)?)
    }
    fn create_on(&self, file: &str, device: &Path) -> Result<()> {
        self.disk.create_on(file, device)
    }
    fn remove(&self, file: &str) -> Result<()> {
        self.disk.remove(file)
    }
    fn sync(&self) -> Result<()> {
        self.disk.sync()
    }
    fn space(&self) -> Result<Space> {
        self.disk.space()
    }
}

/// The key, and which file it is for.
#[derive(Debug, Clone)]
struct Place {
    xts: Arc<Xts>,
    file: u128,
}

impl Place {
    fn tweak(&self, offset: u64) -> u128 {
        self.file | u128::from(offset / SECTOR as u64)
    }

    /// In place, from a sector's start.
    fn seal(&self, offset: u64, data: &mut [u8]) -> Result<()> {
        self.xts.seal(self.tweak(offset), data)
    }

    fn open(&self, offset: u64, data: &mut [u8]) -> Result<()> {
        self.xts.open(self.tweak(offset), data)
    }
}

fn is_whole(offset: u64, len: usize) -> bool {
    offset % SECTOR as u64 == 0 && len % SECTOR == 0
}

#[derive(Debug)]
struct SealedFile {
    file: Arc<dyn DiskFile>,
    place: Place,
    /// Held while parts of sectors are completed by what is around them.
    parts: Mutex<()>,
}

/// From `offset` to `end`, rounded to sectors.
fn around(offset: u64, end: u64) -> (u64, u64) {
    let sector = SECTOR as u64;
    (offset / sector * sector, end.next_multiple_of(sector))
}

fn whole_units(len: u64) -> Result<()> {
    match len % UNIT as u64 {
        0 => Ok(()),
        _ => Err(Error::new(ErrorKind::InvalidInput, "a sealed file has whole units of 16 bytes")),
    }
}

impl SealedFile {
    /// What is there from `from` on, a sector's start, to `to` or the end of the file.
    fn read_around(&self, from: u64, to: u64) -> Result<Vec<u8>> {
        let end = to.min(self.file.len()?).max(from);
        let mut data = vec![0; (end - from) as usize];
        self.file.read_at(&mut data, from)?;
        self.place.open(from, &mut data)?;
        Ok(data)
    }

    fn write_part(&self, data: &[u8], offset: u64) -> Result<()> {
        let _one = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let (unit, end) = (UNIT as u64, offset + data.len() as u64);
        let (first, last) = (offset / unit * unit, end.next_multiple_of(unit));
        let (from, to) = around(offset, end);
        let mut sectors = self.read_around(from, to)?;
        // Behind the end of the file.
        let wanted = (last - from) as usize;
        if sectors.len() < wanted {
            sectors.resize(wanted, 0);
        }
        sectors[(offset - from) as usize..][..data.len()].copy_from_slice(data);
        self.place.seal(from, &mut sectors)?;
        self.file.write_at(&sectors[(first - from) as usize..wanted], first)
    }

    /// Sealed copies of writes of whole sectors.
    fn sealed<'a>(&self, writes: impl Iterator<Item = (u64, &'a [u8])>) -> Result<Vec<(u64, AlignedBuf)>> {
        let one = |(offset, data): (u64, &[u8])| {
            let mut buf = AlignedBuf::for_read(data.len());
            buf[..data.len()].copy_from_slice(data);
            self.place.seal(offset, &mut buf[..data.len()])?;
            Ok((offset, buf))
        };
        writes.map(one).collect()
    }

    fn write_sealed(&self, sealed: &[(u64, AlignedBuf)]) -> Result<()> {
        let slices: Vec<[IoSlice<'_>; 1]> = sealed.iter().map(|(_, buf)| [IoSlice::new(buf)]).collect();
        let writes: Vec<Write<'_>> = sealed
            .iter()
            .zip(&slices)
            .map(|((offset, _), data)| Write { offset: *offset, data })
            .collect();
        self.file.write_all(&writes)
    }
}

/// Slices of a write, each with its place, cut into pieces.
fn pieces<'a>(data: &'a [IoSlice<'a>], offset: u64) -> impl Iterator<Item = (u64, &'a [u8])> {
    let mut at = offset;
    data.iter().flat_map(|slice| slice.chunks(AT_ONCE)).map(move |piece| {
        let begin = at;
        at += piece.len() as u64;
        (begin, piece)
    })
}

impl DiskFile for SealedFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        if is_whole(offset, buf.len()) {
            self.file.read_at(buf, offset)?;
            return self.place.open(offset, buf);
        }
        let end = offset + buf.len() as u64;
        let (from, to) = around(offset, end);
        let data = self.read_around(from, to)?;
        let part = data.get((offset - from) as usize..(end - from) as usize);
        buf.copy_from_slice(part.ok_or(ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        self.write_vectored_at(&[IoSlice::new(data)], offset)
    }

    fn write_vectored_at(&self, data: &[IoSlice<'_>], offset: u64) -> Result<()> {
        self.write_all(&[Write { offset, data }])
    }

    fn write_all(&self, writes: &[Write<'_>]) -> Result<()> {
        let mut group: Vec<(u64, &[u8])> = Vec::new();
        let mut bytes = 0;
        for (offset, piece) in writes.iter().flat_map(|w| pieces(w.data, w.offset)) {
            if !is_whole(offset, piece.len()) {
                self.write_part(piece, offset)?;
                continue;
            }
            if bytes + piece.len() > AT_ONCE && bytes > 0 {
                self.write_sealed(&self.sealed(group.drain(..))?)?;
                bytes = 0;
            }
            bytes += piece.len();
            group.push((offset, piece));
        }
        match group.is_empty() {
            true => Ok(()),
            false => self.write_sealed(&self.sealed(group.into_iter())?),
        }
    }

    fn read_queue(&self) -> Result<Option<Box<dyn ReadQueue>>> {
        let queue = self.file.read_queue()?;
        Ok(queue.map(|queue| Box::new(Reads::new(queue, self.place.clone())) as Box<dyn ReadQueue>))
    }

    fn write_queue(&self) -> Result<Option<Box<dyn WriteQueue>>> {
        let queue = self.file.write_queue()?;
        Ok(queue.map(|queue| Box::new(Writes::new(queue, self.place.clone())) as Box<dyn WriteQueue>))
    }

    fn is_device(&self) -> bool {
        self.file.is_device()
    }
    fn is_direct(&self) -> bool {
        self.file.is_direct()
    }
    fn next_data(&self, offset: u64) -> Result<u64> {
        self.file.next_data(offset)
    }
    fn flush(&self) -> Result<()> {
        self.file.flush()
    }
    fn punch_hole(&self, offset: u64, len: u64) -> Result<()> {
        whole_units(offset)?;
        whole_units(len)?;
        self.file.punch_hole(offset, len)
    }
    fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        whole_units(offset + len)?;
        self.file.allocate(offset, len)
    }
    fn reserve(&self, offset: u64, len: u64) -> Result<()> {
        self.file.reserve(offset, len)
    }
    fn uncache(&self, offset: u64, len: u64) {
        self.file.uncache(offset, len);
    }
    fn set_len(&self, len: u64) -> Result<()> {
        whole_units(len)?;
        self.file.set_len(len)
    }
    fn len(&self) -> Result<u64> {
        self.file.len()
    }
    fn try_lock(&self) -> Result<bool> {
        self.file.try_lock()
    }
    fn is_read_only(&self) -> bool {
        self.file.is_read_only()
    }
}

#[cfg(test)]
mod tests;
