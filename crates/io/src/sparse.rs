//! Large files that are mostly holes, as disk images are: read where there are data, written where there are any. And
//! directories that nobody else can look into and that go with their owner.
//!
//! Blocking calls: for tools, on threads of their own.

use crate::files::PRIVATE_FILE;
use crate::random::Random;
use rustix::fs::{Advice, OFlags, SeekFrom, fadvise};
use rustix::io::Errno;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Seek};
use std::os::unix::fs::{DirBuilderExt, FileExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A regular file or a block device.
#[derive(Debug)]
pub struct SparseFile {
    file: File,
    size: u64,
}

impl SparseFile {
    /// For reading. A directory, a pipe and the like are refused.
    pub fn open(path: &Path) -> io::Result<Self> {
        // A pipe without a writer would be waited for.
        let flags = OFlags::NONBLOCK.bits() as i32;
        let mut file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
        let kind = file.metadata()?.file_type();
        if !kind.is_file() && !kind.is_block_device() {
            return Err(io::Error::other("neither a file nor a block device"));
        }
        // The length that a device's metadata give is 0.
        let size = file.seek(io::SeekFrom::End(0))?;
        Ok(Self { file, size })
    }

    /// A new file of this length, one hole, for the owner alone; an error if something has the name.
    pub fn create(path: &Path, size: u64) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(PRIVATE_FILE);
        let file = options.open(path)?;
        match file.set_len(size) {
            Ok(()) => Ok(Self { file, size }),
            Err(e) => {
                let _ = fs::remove_file(path);
                Err(e)
            }
        }
    }

    pub fn size(&self) -> u64 {
        self.size
    }

    /// The first place from `at` on that may hold something else than zeros; None: there is none.
    pub fn data_from(&self, at: u64) -> io::Result<Option<u64>> {
        if at >= self.size {
            return Ok(None);
        }
        match rustix::fs::seek(&self.file, SeekFrom::Data(at)) {
            Ok(data) => Ok((data < self.size).then_some(data.max(at))),
            Err(Errno::NXIO) => Ok(None),
            // A device or a file system that knows no holes.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(Some(at)),
            Err(e) => Err(e.into()),
        }
    }

    /// Fills `buf`; the end of the file is an error.
    pub fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buf, at)
    }

    pub fn write_at(&self, at: u64, data: &[u8]) -> io::Result<()> {
        self.file.write_all_at(data, at)
    }

    /// All that was written is durable; what is read from now on comes from the disk where the kernel lets go of it.
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_all()?;
        // Only advice.
        let _ = fadvise(&self.file, 0, None, Advice::DontNeed);
        Ok(())
    }
}

/// A directory of the owner's alone among the system's temporary files. Dropped: it goes, with what is in it.
#[derive(Debug)]
pub struct PrivateDir(PathBuf);

impl PrivateDir {
    pub fn new(prefix: &str, random: &dyn Random) -> io::Result<Self> {
        let path = std::env::temp_dir().join(format!("{prefix}{:016x}", random.u64()));
        // Not one that somebody else made: that is an error.
        DirBuilder::new().mode(crate::files::PRIVATE_DIR).create(&path)?;
        Ok(Self(path))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for PrivateDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SystemRandom;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    #[test]
    fn holes_are_found_and_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk");
        let file = SparseFile::create(&path, 16 << 20).unwrap();
        assert!(SparseFile::create(&path, 1).is_err(), "it exists");
        file.write_at(8 << 20, b"data").unwrap();
        file.sync().unwrap();
        assert!(fs::metadata(&path).unwrap().blocks() * 512 < 1 << 20);
        let file = SparseFile::open(&path).unwrap();
        assert_eq!(file.size(), 16 << 20);
        let data = file.data_from(0).unwrap().unwrap();
        assert!(data <= 8 << 20, "{data}");
        assert_eq!(file.data_from(8 << 20).unwrap(), Some(8 << 20));
        assert_eq!(file.data_from(16 << 20).unwrap(), None);
        let mut buf = [0; 6];
        file.read_at((8 << 20) - 1, &mut buf).unwrap();
        assert_eq!(&buf, b"\0data\0");
        assert!(file.read_at((16 << 20) - 1, &mut buf).is_err(), "beyond its end");
    }

    #[test]
    fn what_is_no_file_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        assert!(SparseFile::open(dir.path()).is_err());
        assert!(SparseFile::open(Path::new("/dev/null")).is_err());
    }

    #[test]
    fn a_private_directory_goes_with_its_owner() {
        let dir = PrivateDir::new("skep-test-", &SystemRandom).unwrap();
        let path = dir.path().to_path_buf();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        fs::write(path.join("x"), "x").unwrap();
        drop(dir);
        assert!(!path.exists());
    }
}
