//! The real disk: a directory of the host, through pread, pwrite, fdatasync and fallocate.
//!
//! All calls block; the callers choose the thread. Not here: O_DIRECT and io_uring, which will be other
//! implementations of the same traits.

use super::{Disk, DiskFile, Space};
use rustix::fs::{FallocateFlags, FlockOperation};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, IoSlice, Result};
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Slices per vectored write: Linux' IOV_MAX.
const SLICES_MAX: usize = 1024;

#[derive(Debug)]
pub struct HostDisk {
    dir: PathBuf,
}

impl HostDisk {
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into() }
    }

    /// Makes the directory and what leads to it.
    pub fn create_dir(&self) -> Result<()> {
        std::fs::create_dir_all(&self.dir)
    }

    fn path(&self, file: &str) -> PathBuf {
        self.dir.join(file)
    }
}

impl Disk for HostDisk {
    fn name(&self) -> String {
        self.dir.display().to_string()
    }

    fn exists(&self, file: &str) -> Result<bool> {
        self.path(file).try_exists()
    }

    fn open(&self, file: &str) -> Result<Arc<dyn DiskFile>> {
        let file = OpenOptions::new().read(true).write(true).open(self.path(file))?;
        Ok(Arc::new(HostFile { file }))
    }

    fn create(&self, file: &str) -> Result<Arc<dyn DiskFile>> {
        let path: &Path = &self.path(file);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(path)?;
        Ok(Arc::new(HostFile { file }))
    }

    fn remove(&self, file: &str) -> Result<()> {
        std::fs::remove_file(self.path(file))
    }

    fn sync(&self) -> Result<()> {
        File::open(&self.dir)?.sync_all()
    }

    fn space(&self) -> Result<Space> {
        let s = rustix::fs::statvfs(&self.dir)?;
        Ok(Space {
            total: s.f_blocks * s.f_frsize,
            available: s.f_bavail * s.f_frsize,
        })
    }
}

#[derive(Debug)]
struct HostFile {
    file: File,
}

impl DiskFile for HostFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.file.read_exact_at(buf, offset)
    }

    fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        self.file.write_all_at(data, offset)
    }

    fn write_vectored_at(&self, data: &[IoSlice<'_>], offset: u64) -> Result<()> {
        let mut at = offset;
        for part in data.chunks(SLICES_MAX) {
            let whole: usize = part.iter().map(|s| s.len()).sum();
            let mut done = match rustix::io::pwritev(&self.file, part, at) {
                Ok(n) => n,
                Err(Errno::INTR) => 0,
                Err(e) => return Err(e.into()),
            };
            // A short write (a signal, a full disk) goes on slice by slice.
            if done < whole {
                let mut start = 0;
                for s in part {
                    let skip = done.saturating_sub(start).min(s.len());
                    self.file.write_all_at(&s[skip..], at + (start + skip) as u64)?;
                    start += s.len();
                }
                done = whole;
            }
            at += done as u64;
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        self.file.sync_data()
    }

    fn punch_hole(&self, offset: u64, len: u64) -> Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match rustix::fs::fallocate(&self.file, flags, offset, len) {
            Err(e) if unsupported(e) => Ok(()),
            other => Ok(other?),
        }
    }

    fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        match rustix::fs::fallocate(&self.file, FallocateFlags::empty(), offset, len) {
            Err(e) if unsupported(e) => {
                if self.len()? < offset + len {
                    self.set_len(offset + len)?;
                }
                Ok(())
            }
            other => Ok(other?),
        }
    }

    fn uncache(&self, offset: u64, len: u64) {
        // A hint: that it failed changes nothing.
        let _ = rustix::fs::fadvise(
            &self.file,
            offset,
            NonZeroU64::new(len),
            rustix::fs::Advice::DontNeed,
        );
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.file.set_len(len)
    }

    fn len(&self) -> Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn try_lock(&self) -> Result<bool> {
        match rustix::fs::flock(&self.file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(true),
            Err(e) if std::io::Error::from(e).kind() == ErrorKind::WouldBlock => Ok(false),
            Err(e) => Err(e.into()),
        }
    }
}

fn unsupported(e: Errno) -> bool {
    matches!(e, Errno::OPNOTSUPP | Errno::NOSYS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_back_what_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let disk = HostDisk::new(dir.path());
        let f = disk.create("a").unwrap();
        assert!(disk.create("a").is_err());
        f.write_at(b"abc", 10).unwrap();
        f.write_vectored_at(&[IoSlice::new(b"de"), IoSlice::new(b""), IoSlice::new(b"f")], 13)
            .unwrap();
        f.flush().unwrap();
        let mut b = [0; 8];
        f.read_at(&mut b, 8).unwrap();
        assert_eq!(&b, b"\0\0abcdef");
        assert!(f.read_at(&mut b, 12).is_err(), "end of file inside the buffer");
        f.allocate(0, 1 << 16).unwrap();
        f.punch_hole(8192, 4096).unwrap();
        assert_eq!(f.len().unwrap(), 1 << 16);
        disk.sync().unwrap();
        assert!(disk.space().unwrap().available > 0);
    }

    #[test]
    fn many_slices_in_one_write() {
        let dir = tempfile::tempdir().unwrap();
        let f = HostDisk::new(dir.path()).create("a").unwrap();
        let bytes: Vec<u8> = (0..3000u32).map(|i| i as u8).collect();
        let slices: Vec<_> = bytes.chunks(1).map(IoSlice::new).collect();
        f.write_vectored_at(&slices, 5).unwrap();
        let mut back = vec![0; 3000];
        f.read_at(&mut back, 5).unwrap();
        assert_eq!(back, bytes);
    }

    #[test]
    fn a_lock_is_exclusive_per_open_file() {
        let dir = tempfile::tempdir().unwrap();
        let disk = HostDisk::new(dir.path());
        let a = disk.create("a").unwrap();
        assert!(a.try_lock().unwrap());
        let b = disk.open("a").unwrap();
        assert!(!b.try_lock().unwrap());
        drop(a);
        assert!(b.try_lock().unwrap());
    }
}
