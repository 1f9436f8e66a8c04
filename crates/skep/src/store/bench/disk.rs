//! The host's disk with a count of what is written to it where it enters: every byte that the engine hands to a
//! write of one of its files, log and index and zeros included.

use io::disk::{Disk, DiskFile, HostDisk, Mode, ReadQueue, Space, Write};
use std::io::{IoSlice, Result};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug)]
pub struct Counting {
    host: HostDisk,
    written: Arc<AtomicU64>,
}

impl Counting {
    pub fn new(dir: &Path, mode: Mode) -> Self {
        Self {
            host: HostDisk::with_mode(dir, mode),
            written: Arc::default(),
        }
    }

    /// Bytes written so far.
    pub fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    pub fn create_dir(&self) -> Result<()> {
        self.host.create_dir()
    }

    fn count(&self, file: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        Arc::new(CountingFile {
            file,
            written: self.written.clone(),
        })
    }
}

impl Disk for Counting {
    fn name(&self) -> String {
        self.host.name()
    }
    fn exists(&self, file: &str) -> Result<bool> {
        self.host.exists(file)
    }
    fn open(&self, file: &str) -> Result<Arc<dyn DiskFile>> {
        Ok(self.count(self.host.open(file)?))
    }
    fn open_data(&self, file: &str) -> Result<Arc<dyn DiskFile>> {
        Ok(self.count(self.host.open_data(file)?))
    }
    fn create(&self, file: &str) -> Result<Arc<dyn DiskFile>> {
        Ok(self.count(self.host.create(file)?))
    }
    fn create_on(&self, file: &str, device: &Path) -> Result<()> {
        self.host.create_on(file, device)
    }
    fn remove(&self, file: &str) -> Result<()> {
        self.host.remove(file)
    }
    fn sync(&self) -> Result<()> {
        self.host.sync()
    }
    fn space(&self) -> Result<Space> {
        self.host.space()
    }
}

#[derive(Debug)]
struct CountingFile {
    file: Arc<dyn DiskFile>,
    written: Arc<AtomicU64>,
}

impl CountingFile {
    fn add(&self, data: &[IoSlice<'_>]) {
        let bytes = data.iter().map(|s| s.len() as u64).sum();
        self.written.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// Every method of the trait, those with a default too: a default would hide what the host's file does.
impl DiskFile for CountingFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.file.read_at(buf, offset)
    }
    fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        self.add(&[IoSlice::new(data)]);
        self.file.write_at(data, offset)
    }
    fn write_vectored_at(&self, data: &[IoSlice<'_>], offset: u64) -> Result<()> {
        self.add(data);
        self.file.write_vectored_at(data, offset)
    }
    fn write_all(&self, writes: &[Write<'_>]) -> Result<()> {
        writes.iter().for_each(|w| self.add(w.data));
        self.file.write_all(writes)
    }
    fn read_queue(&self) -> Result<Option<Box<dyn ReadQueue>>> {
        self.file.read_queue()
    }
    fn is_device(&self) -> bool {
        self.file.is_device()
    }
    fn is_direct(&self) -> bool {
        self.file.is_direct()
    }
    fn flush(&self) -> Result<()> {
        self.file.flush()
    }
    fn punch_hole(&self, offset: u64, len: u64) -> Result<()> {
        self.file.punch_hole(offset, len)
    }
    fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        self.file.allocate(offset, len)
    }
    fn reserve(&self, offset: u64, len: u64) -> Result<()> {
        self.file.reserve(offset, len)
    }
    fn uncache(&self, offset: u64, len: u64) {
        self.file.uncache(offset, len);
    }
    fn set_len(&self, len: u64) -> Result<()> {
        self.file.set_len(len)
    }
    fn len(&self) -> Result<u64> {
        self.file.len()
    }
    fn is_empty(&self) -> Result<bool> {
        self.file.is_empty()
    }
    fn try_lock(&self) -> Result<bool> {
        self.file.try_lock()
    }
    fn is_read_only(&self) -> bool {
        self.file.is_read_only()
    }
}
