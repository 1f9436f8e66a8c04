//! A disk whose files are encrypted where they lie: a layer over any other disk.
//!
//! Each byte stays at its place, so formats, lengths and holes are those of the layer above; what was never written reads as zeros. Sectors have the file and
//! their number as tweak: the same bytes look different at each place, and whoever sees the disk at two times sees which [`UNIT`]s of 16 bytes
//! differ.
//!
//! Invariant: of a write no byte is changed outside of the units that it touches, so a torn one tears what a plain disk would tear, rounded to units.
//!
//! Bounds: writes that go at once are sealed in groups of [`AT_ONCE`] bytes, or one that is larger by itself; the memory of [`SPARES_MAX`] groups, at
//! most twice that each, is kept by each file.
//!
//! Not here: files other than those of a store (`seal` itself is plain); proof against who changes the disk.

mod envelope;
mod queues;
mod xts;

pub use envelope::{COPY, FILE, MAGIC, VERSION};

use super::{AlignedVec, Disk, DiskFile, ReadQueue, Space, Write, WriteQueue};
use crate::key_file::KeyFile;
use queues::{Reads, Writes};
use std::io::{Error, ErrorKind, IoSlice, Result};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use xts::{SECTOR, UNIT, Xts};

const AT_ONCE: usize = 4 << 20;
const SPARES_MAX: usize = 2;
/// Files that are encrypted, and their numbers in tweaks: these never change.
const FILES: [(&str, u64); 2] = [("block", 0), ("index", 1)];

/// The disk as it is to be used: with its seal, if it has one, which `keys` have to open. One without a key in it was never used.
pub fn over(disk: Arc<dyn Disk>, keys: Option<&KeyFile>) -> Result<Arc<dyn Disk>> {
    match disk.exists(FILE)? && envelope::has_key(&*disk)? {
        false => Ok(disk),
        true => {
            let key = envelope::read(&*disk, keys)?;
            sealed(disk, key, None)
        }
    }
}

/// The same for a disk that holds nothing yet: it gets a seal. As long as it is there no other process makes one.
pub fn make(disk: Arc<dyn Disk>, keys: &KeyFile) -> Result<Arc<dyn Disk>> {
    if disk.exists(FILE)? && envelope::has_key(&*disk)? {
        return over(disk, Some(keys));
    }
    let (key, lock) = envelope::make(&*disk, keys)?;
    sealed(disk, key, Some(lock))
}

/// Puts the key of the disk (as it is without its seal) under the first of `keys`, if it is sealed and that is not so; its name then. For who has locked what
/// is on the disk.
pub fn renew(disk: &dyn Disk, keys: Option<&KeyFile>) -> Result<Option<String>> {
    match keys {
        Some(keys) if disk.exists(FILE)? => envelope::renew(disk, keys),
        _ => Ok(None),
    }
}

fn sealed(
    disk: Arc<dyn Disk>,
    key: [u8; xts::KEY_BYTES],
    lock: Option<Arc<dyn DiskFile>>,
) -> Result<Arc<dyn Disk>> {
    let xts = Arc::new(Xts::new(key)?);
    Ok(Arc::new(SealedDisk {
        disk,
        xts,
        _lock: lock,
    }))
}

#[derive(Debug)]
struct SealedDisk {
    disk: Arc<dyn Disk>,
    xts: Arc<Xts>,
    /// Of the seal, while it is new.
    _lock: Option<Arc<dyn DiskFile>>,
}

/// The number of a file in tweaks.
fn number_of(name: &str) -> Result<u128> {
    let number = FILES
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, number)| *number);
    let unknown = || {
        Error::new(
            ErrorKind::Unsupported,
            format!("no sealed file is called '{name}'"),
        )
    };
    Ok(u128::from(number.ok_or_else(unknown)?) << 64)
}

impl SealedDisk {
    fn file(&self, number: u128, file: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        let place = Place {
            xts: self.xts.clone(),
            file: number,
        };
        Arc::new(SealedFile {
            file,
            place,
            parts: Mutex::default(),
            spare: Mutex::default(),
        })
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
        let number = number_of(file)?;
        Ok(self.file(number, self.disk.open(file)?))
    }
    fn open_data(&self, file: &str) -> Result<Arc<dyn DiskFile>> {
        let number = number_of(file)?;
        Ok(self.file(number, self.disk.open_data(file)?))
    }
    fn create(&self, file: &str) -> Result<Arc<dyn DiskFile>> {
        let number = number_of(file)?;
        Ok(self.file(number, self.disk.create(file)?))
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
    /// Memory of writes that have ended, for the next ones.
    spare: Mutex<Vec<AlignedVec>>,
}

/// From `offset` to `end`, rounded to sectors.
fn around(offset: u64, end: u64) -> (u64, u64) {
    let sector = SECTOR as u64;
    (offset / sector * sector, end.next_multiple_of(sector))
}

fn whole_units(len: u64) -> Result<()> {
    match len % UNIT as u64 {
        0 => Ok(()),
        _ => Err(Error::new(
            ErrorKind::InvalidInput,
            "a sealed file has whole units of 16 bytes",
        )),
    }
}

impl SealedFile {
    /// What is there from `from` on, a sector's start, to `to` or the end of the file.
    fn read_around(&self, from: u64, to: u64) -> Result<Vec<u8>> {
        let end = to.min(self.file.len()?).max(from);
        let mut data = vec![0; (end - from) as usize];
        if data.is_empty() {
            return Ok(data);
        }
        self.file.read_at(&mut data, from)?;
        // A unit that the file ends in says nothing.
        data.truncate(data.len() / UNIT * UNIT);
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
        self.file
            .write_at(&sectors[(first - from) as usize..wanted], first)
    }

    /// Writes of whole sectors, each as its place and its slices.
    fn write_group(&self, group: &[(u64, &[IoSlice<'_>])]) -> Result<()> {
        let spares = || self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        let mut arena = spares().pop().unwrap_or_default();
        arena.clear();
        let mut places = Vec::with_capacity(group.len());
        for (offset, slices) in group {
            let from = arena.len();
            slices.iter().for_each(|slice| arena.extend_from_slice(slice));
            let to = arena.len();
            self.place.seal(*offset, &mut arena[from..to])?;
            places.push((*offset, from..to));
        }
        let slices: Vec<[IoSlice<'_>; 1]> = places
            .iter()
            .map(|(_, at)| [IoSlice::new(&arena[at.clone()])])
            .collect();
        let writes: Vec<Write<'_>> = places
            .iter()
            .zip(&slices)
            .map(|((offset, _), data)| Write {
                offset: *offset,
                data,
            })
            .collect();
        let done = self.file.write_all(&writes);
        let mut spares = spares();
        // Of a write that was larger than a group nothing is kept.
        if spares.len() < SPARES_MAX && arena.capacity() <= 2 * AT_ONCE {
            spares.push(arena);
        }
        done
    }
}

fn length(slices: &[IoSlice<'_>]) -> usize {
    slices.iter().map(|slice| slice.len()).sum()
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
        let mut group: Vec<(u64, &[IoSlice<'_>])> = Vec::new();
        let mut bytes = 0;
        for w in writes {
            let len = length(w.data);
            if !is_whole(w.offset, len) {
                let mut at = w.offset;
                for slice in w.data.iter().filter(|slice| !slice.is_empty()) {
                    self.write_part(slice, at)?;
                    at += slice.len() as u64;
                }
                continue;
            }
            if bytes + len > AT_ONCE && bytes > 0 {
                self.write_group(&group)?;
                (bytes, group) = (0, Vec::new());
            }
            bytes += len;
            group.push((w.offset, w.data));
        }
        match bytes {
            0 => Ok(()),
            _ => self.write_group(&group),
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
