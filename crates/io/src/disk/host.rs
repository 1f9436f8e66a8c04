//! The real disk: a directory of the host.
//!
//! A data file is opened with O_DIRECT where the file system has it, and its requests go through io_uring
//! where the host allows it; else pread, pwrite and a few threads do. Which it is, the log says at open. The
//! other files go through the page cache. All calls but those of a [`ReadQueue`] block; the callers choose the
//! thread.
//!
//! Bound: [`WRITERS`] idle writers are kept, 2 MiB each.

use super::buffer::{ALIGN, AlignedBuf, is_aligned};
use super::pool::PoolReads;
use super::uring::{self, UringReads, Writer};
use super::uring_writes::UringWrites;
use super::{Disk, DiskFile, ReadQueue, Space, Write, WriteQueue};
use rustix::fs::{FallocateFlags, FlockOperation, OFlags};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, IoSlice, Result};
use std::num::NonZeroU64;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A process that was killed holds the lock until the kernel has ended its last requests, and they may still
/// write until then: so a lock that is taken is tried again for a while.
const LOCK_TRIES: u32 = 100;
const LOCK_PAUSE: Duration = Duration::from_millis(20);
/// Copied at a time for a direct write by plain calls.
const COPY_BYTES: usize = 256 << 10;
/// Slices per vectored write: Linux' IOV_MAX.
const SLICES_MAX: usize = 1024;

/// Writers kept for the next batch: as many as there are threads that write.
const WRITERS: usize = 3;

/// How data files are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// O_DIRECT and io_uring, each where the host has it.
    #[default]
    Auto,
    /// Direct, with plain calls.
    Direct,
    /// Plain calls through the page cache.
    Plain,
}

#[derive(Debug)]
pub struct HostDisk {
    dir: PathBuf,
    mode: Mode,
}

impl HostDisk {
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self::with_mode(dir, Mode::Auto)
    }

    pub fn with_mode(dir: impl Into<PathBuf>, mode: Mode) -> Self {
        Self {
            dir: dir.into(),
            mode,
        }
    }

    /// Makes the directory and what leads to it.
    pub fn create_dir(&self) -> Result<()> {
        crate::files::make_dir(&self.dir)
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
        // A link to a device that is not there just now is a file that is there.
        match std::fs::symlink_metadata(self.path(file)) {
            Ok(_) => Ok(true),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(false),
            Err(e) => Err(e),
        }
    }

    fn open(&self, file: &str) -> Result<Arc<dyn DiskFile>> {
        let file = OpenOptions::new().read(true).write(true).open(self.path(file))?;
        Ok(Arc::new(HostFile::plain(file)))
    }

    fn open_data(&self, file: &str) -> Result<Arc<dyn DiskFile>> {
        let path = self.path(file);
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        let direct = match self.mode {
            Mode::Plain => None,
            _ => open_direct(&path, &mut options),
        };
        let is_direct = direct.is_some();
        let file = match direct {
            Some(file) => file,
            None => OpenOptions::new().read(true).write(true).open(&path)?,
        };
        let uring = self.mode == Mode::Auto && uring::works();
        tracing::info!(
            file = %path.display(),
            cache = if is_direct { "bypassed (O_DIRECT)" } else { "the host's page cache" },
            requests = if uring { "io_uring" } else { "pread and pwrite" },
            "data file open"
        );
        Ok(Arc::new(HostFile {
            file: Arc::new(file),
            direct: is_direct,
            uring,
            writers: Mutex::default(),
        }))
    }

    fn create(&self, file: &str) -> Result<Arc<dyn DiskFile>> {
        let path: &Path = &self.path(file);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(crate::files::PRIVATE_FILE)
            .open(path)?;
        Ok(Arc::new(HostFile::plain(file)))
    }

    fn create_on(&self, file: &str, device: &Path) -> Result<()> {
        if !is_device(device) {
            return Err(std::io::Error::new(
                ErrorKind::InvalidInput,
                format!("{} is not a block device", device.display()),
            ));
        }
        std::os::unix::fs::symlink(device.canonicalize()?, self.path(file))
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

/// None: the file system has no direct I/O, or asks for more than whole blocks of [`ALIGN`].
fn open_direct(path: &Path, options: &mut OpenOptions) -> Option<File> {
    let file = options
        .custom_flags(OFlags::DIRECT.bits() as i32)
        .open(path)
        .ok()?;
    let mut probe = AlignedBuf::new(ALIGN);
    // An empty file gives no bytes, and no error either.
    match file.read_at(&mut probe, 0) {
        Ok(_) => Some(file),
        Err(_) => None,
    }
}

#[derive(Debug)]
struct HostFile {
    file: Arc<File>,
    direct: bool,
    uring: bool,
    writers: Mutex<Vec<Writer>>,
}

impl HostFile {
    fn plain(file: File) -> Self {
        Self {
            file: Arc::new(file),
            direct: false,
            uring: false,
            writers: Mutex::default(),
        }
    }

    fn with_writer<T>(&self, f: impl FnOnce(&mut Writer) -> Result<T>) -> Result<T> {
        let idle = self.writers.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut writer = match idle {
            Some(w) => w,
            None => Writer::new()?,
        };
        let out = f(&mut writer)?;
        // After an error its ring may still hold requests: it goes.
        let mut idle = self.writers.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < WRITERS {
            idle.push(writer);
        }
        Ok(out)
    }

    /// Direct writes are whole blocks: a part of one would have to be read first, which no caller means.
    fn check_blocks(&self, writes: &[Write<'_>]) -> Result<()> {
        let whole = |w: &Write<'_>| {
            let len: usize = w.data.iter().map(|s| s.len()).sum();
            w.offset % ALIGN as u64 == 0 && len % ALIGN == 0
        };
        if self.direct && !writes.iter().all(whole) {
            return Err(std::io::Error::new(
                ErrorKind::InvalidInput,
                "a data file takes whole blocks",
            ));
        }
        Ok(())
    }

    /// Direct I/O from memory of any alignment, by plain calls.
    fn write_around(&self, data: &[IoSlice<'_>], offset: u64) -> Result<()> {
        if let [one] = data
            && is_aligned(one)
        {
            return self.file.write_all_at(one, offset);
        }
        let mut around = AlignedBuf::new(COPY_BYTES);
        let (mut at, mut used) = (offset, 0);
        for mut rest in data.iter().map(|s| &s[..]) {
            while !rest.is_empty() {
                let n = rest.len().min(COPY_BYTES - used);
                around[used..used + n].copy_from_slice(&rest[..n]);
                used += n;
                rest = &rest[n..];
                if used == COPY_BYTES {
                    self.file.write_all_at(&around[..used], at)?;
                    at += used as u64;
                    used = 0;
                }
            }
        }
        match used {
            0 => Ok(()),
            _ => self.file.write_all_at(&around[..used], at),
        }
    }

    /// Direct I/O into memory of any alignment.
    fn read_around(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let start = offset / ALIGN as u64 * ALIGN as u64;
        let skip = (offset - start) as usize;
        let mut around = AlignedBuf::new(skip + buf.len());
        let mut have = 0;
        while have < skip + buf.len() {
            match self.file.read_at(&mut around[have..], start + have as u64) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                // The end of the file is the only place where a read ends inside a block.
                Ok(n) => have += n,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        buf.copy_from_slice(&around[skip..skip + buf.len()]);
        Ok(())
    }
}

impl DiskFile for HostFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        if self.direct && !(is_aligned(buf) && offset % ALIGN as u64 == 0) {
            return self.read_around(buf, offset);
        }
        self.file.read_exact_at(buf, offset)
    }

    fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        self.write_vectored_at(&[IoSlice::new(data)], offset)
    }

    fn write_all(&self, writes: &[Write<'_>]) -> Result<()> {
        if self.uring {
            self.check_blocks(writes)?;
            return self.with_writer(|w| w.write_all(&self.file, writes, self.direct));
        }
        writes
            .iter()
            .try_for_each(|w| self.write_vectored_at(w.data, w.offset))
    }

    fn read_queue(&self) -> Result<Option<Box<dyn ReadQueue>>> {
        if self.uring {
            return Ok(Some(Box::new(UringReads::new(self.file.clone())?)));
        }
        Ok(Some(Box::new(PoolReads::new(self.file.clone())?)))
    }

    fn write_queue(&self) -> Result<Option<Box<dyn WriteQueue>>> {
        // Through the page cache the kernel would hand each write to a thread of its own.
        match self.direct && self.uring {
            true => Ok(UringWrites::new(self.file.clone())?.map(|q| Box::new(q) as Box<dyn WriteQueue>)),
            false => Ok(None),
        }
    }

    fn is_direct(&self) -> bool {
        self.direct
    }

    fn write_vectored_at(&self, data: &[IoSlice<'_>], offset: u64) -> Result<()> {
        if self.direct {
            let one = [Write { offset, data }];
            self.check_blocks(&one)?;
            return self.write_around(data, offset);
        }
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

    fn reserve(&self, offset: u64, len: u64) -> Result<()> {
        if self.is_device() {
            return Ok(());
        }
        match rustix::fs::fallocate(&self.file, FallocateFlags::KEEP_SIZE, offset, len) {
            Err(e) if unsupported(e) => Ok(()),
            other => Ok(other?),
        }
    }

    fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        if self.is_device() {
            let fits = self.len()? >= offset + len;
            return if fits {
                Ok(())
            } else {
                Err(ErrorKind::StorageFull.into())
            };
        }
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
        if self.direct {
            return;
        }
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
        length(&self.file)
    }

    fn is_device(&self) -> bool {
        self.file
            .metadata()
            .is_ok_and(|m| m.file_type().is_block_device())
    }

    fn try_lock(&self) -> Result<bool> {
        lock(&self.file, FlockOperation::NonBlockingLockExclusive)
    }
}

/// False where another process has the lock and keeps it.
pub(super) fn lock(file: &File, operation: FlockOperation) -> Result<bool> {
    let mut tries = 0;
    loop {
        match rustix::fs::flock(file, operation) {
            Ok(()) => return Ok(true),
            Err(e) if std::io::Error::from(e).kind() != ErrorKind::WouldBlock => return Err(e.into()),
            Err(_) if tries == LOCK_TRIES => return Ok(false),
            Err(_) => tries += 1,
        }
        std::thread::sleep(LOCK_PAUSE);
    }
}

/// True if the path names a block device.
pub fn is_device(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|m| m.file_type().is_block_device())
}

/// Of a file or a block device. (Moves the descriptor's position, which nothing here uses.)
pub(super) fn length(file: &File) -> Result<u64> {
    let meta = file.metadata()?;
    if meta.file_type().is_block_device() {
        return Ok(rustix::fs::seek(file, rustix::fs::SeekFrom::End(0))?);
    }
    Ok(meta.len())
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

    /// The same work in every mode gives the same bytes, whatever the host can do.
    #[test]
    fn data_files_in_every_mode() {
        let dir = tempfile::tempdir().unwrap();
        for (i, mode) in [Mode::Auto, Mode::Direct, Mode::Plain].into_iter().enumerate() {
            let disk = HostDisk::with_mode(dir.path(), mode);
            let name = format!("d{i}");
            disk.create(&name).unwrap().allocate(0, 4 << 20).unwrap();
            let f = disk.open_data(&name).unwrap();
            let bytes: Vec<u8> = (0..(3 << 20) + 1).map(|i: u32| ((i * 7) >> 5) as u8).collect();
            // Unaligned memory, many small pieces, one large, slices that join to blocks.
            let mut parts = Vec::new();
            for block in 0..200usize {
                parts.push((
                    block as u64 * 8192,
                    vec![IoSlice::new(&bytes[block + 1..block + 1 + 4096])],
                ));
            }
            let (a, b) = bytes[1..].split_at(1000);
            parts.push((
                2 << 20,
                vec![IoSlice::new(a), IoSlice::new(&b[..(1 << 20) - 1000])],
            ));
            let writes: Vec<Write<'_>> = parts
                .iter()
                .map(|(offset, data)| Write {
                    offset: *offset,
                    data,
                })
                .collect();
            f.write_all(&writes).unwrap();
            f.write_at(&bytes[5..5 + 8192], 3 << 20).unwrap();
            f.flush().unwrap();
            let mut q = f.read_queue().unwrap().unwrap();
            for block in 0..200u64 {
                q.push(block, block * 8192, 4096);
            }
            q.push(1000, 2 << 20, 1 << 20);
            q.submit();
            let mut done = Vec::new();
            while done.len() < 201 {
                q.wait().unwrap();
                q.completed(&mut done);
            }
            for d in done {
                let data = d.data.unwrap();
                let (from, len) = match d.token {
                    1000 => (1, 1 << 20),
                    n => (n as usize + 1, 4096),
                };
                assert!(data[..] == bytes[from..from + len], "{mode:?} {}", d.token);
            }
            let mut back = vec![0; 5000];
            f.read_at(&mut back, (3 << 20) + 100).unwrap();
            assert_eq!(back, bytes[105..5105], "{mode:?}");
            q.push(1, 4 << 20, 4096);
            q.wait().unwrap();
            let mut done = Vec::new();
            q.completed(&mut done);
            assert!(done[0].data.is_err(), "behind the end");
            // Dropped with reads under way.
            (0..50).for_each(|i| q.push(i, i * 4096, 4096));
            q.submit();
            drop(q);
            if f.is_direct() {
                assert_eq!(f.write_at(b"x", 0).unwrap_err().kind(), ErrorKind::InvalidInput);
            }
        }
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
