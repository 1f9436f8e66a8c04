//! A directory of the host of which nothing is changed: for looking at the disk of a server that has ended.
//!
//! Files are opened for reading alone, so this works on a file system that is mounted so. The lock is a shared
//! one: several readers go together, none beside a process that has the file for itself.
//!
//! Invariant: every call that would change something fails with `ReadOnlyFilesystem`.

use super::host::lock;
use super::{Disk, DiskFile, HostDisk, Space};
use rustix::fs::FlockOperation;
use std::fs::File;
use std::io::{ErrorKind, IoSlice, Result};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

#[derive(Debug)]
pub struct ReadOnlyDisk {
    dir: PathBuf,
    host: HostDisk,
}

impl ReadOnlyDisk {
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        let dir = dir.into();
        Self {
            host: HostDisk::new(dir.clone()),
            dir,
        }
    }
}

fn refused<T>() -> Result<T> {
    Err(ErrorKind::ReadOnlyFilesystem.into())
}

impl Disk for ReadOnlyDisk {
    fn name(&self) -> String {
        self.host.name()
    }
    fn exists(&self, file: &str) -> Result<bool> {
        self.host.exists(file)
    }
    fn open(&self, file: &str) -> Result<Arc<dyn DiskFile>> {
        let file = File::open(self.dir.join(file))?;
        Ok(Arc::new(ReadOnlyFile { file }))
    }
    fn create(&self, _file: &str) -> Result<Arc<dyn DiskFile>> {
        refused()
    }
    fn remove(&self, _file: &str) -> Result<()> {
        refused()
    }
    fn sync(&self) -> Result<()> {
        refused()
    }
    fn space(&self) -> Result<Space> {
        self.host.space()
    }
}

#[derive(Debug)]
struct ReadOnlyFile {
    file: File,
}

impl DiskFile for ReadOnlyFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.file.read_exact_at(buf, offset)
    }
    fn write_at(&self, _data: &[u8], _offset: u64) -> Result<()> {
        refused()
    }
    fn write_vectored_at(&self, _data: &[IoSlice<'_>], _offset: u64) -> Result<()> {
        refused()
    }
    fn flush(&self) -> Result<()> {
        refused()
    }
    fn punch_hole(&self, _offset: u64, _len: u64) -> Result<()> {
        refused()
    }
    fn allocate(&self, _offset: u64, _len: u64) -> Result<()> {
        refused()
    }
    fn set_len(&self, _len: u64) -> Result<()> {
        refused()
    }
    fn len(&self) -> Result<u64> {
        super::host::length(&self.file)
    }
    fn try_lock(&self) -> Result<bool> {
        lock(&self.file, FlockOperation::NonBlockingLockShared)
    }
    fn is_read_only(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_can_be_changed() {
        let dir = tempfile::tempdir().unwrap();
        let host = HostDisk::new(dir.path());
        let f = host.create("a").unwrap();
        f.write_at(b"abc", 0).unwrap();
        f.flush().unwrap();
        let disk = ReadOnlyDisk::new(dir.path());
        let r = disk.open("a").unwrap();
        let mut b = [0; 3];
        r.read_at(&mut b, 0).unwrap();
        assert_eq!(&b, b"abc");
        for done in [
            r.write_at(b"x", 0),
            r.write_vectored_at(&[IoSlice::new(b"x")], 0),
            r.flush(),
            r.punch_hole(0, 1),
            r.allocate(0, 9),
            r.set_len(0),
            disk.create("b").map(drop),
            disk.remove("a"),
            disk.sync(),
        ] {
            assert_eq!(done.unwrap_err().kind(), ErrorKind::ReadOnlyFilesystem);
        }
        f.read_at(&mut b, 0).unwrap();
        assert_eq!(
            (&b, f.len().unwrap(), disk.exists("b").unwrap()),
            (b"abc", 3, false)
        );
    }

    #[test]
    fn readers_share_the_lock_and_a_writer_excludes_them() {
        let dir = tempfile::tempdir().unwrap();
        let writer = HostDisk::new(dir.path()).create("a").unwrap();
        let disk = ReadOnlyDisk::new(dir.path());
        let (a, b) = (disk.open("a").unwrap(), disk.open("a").unwrap());
        assert!(a.try_lock().unwrap() && b.try_lock().unwrap());
        assert!(!writer.try_lock().unwrap());
        drop((a, b));
        assert!(writer.try_lock().unwrap());
        assert!(!disk.open("a").unwrap().try_lock().unwrap());
    }
}
