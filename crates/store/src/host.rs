//! What the host of a store's directory has: space, a device in place of a file, and whose store it is.

use crate::{Error, Identity, Options, Result, open};
use io::disk::{Disk, HostDisk, ReadOnlyDisk};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Size of the file system that holds `dir`.
pub fn host_bytes(dir: &Path) -> Result<u64> {
    let disk = HostDisk::new(dir);
    let space = disk.space();
    let space = space.map_err(|e| Error::io(&disk.name(), "ask for the host's free space", e))?;
    Ok(space.total)
}

/// What the host has left on the file system of `dir`, and what the data file of the store there takes of it, holes left
/// out.
pub fn host_use(dir: &Path) -> Result<(u64, u64)> {
    let disk = HostDisk::new(dir);
    let failed = |e| Error::io(&disk.name(), "ask for the host's free space", e);
    let space = disk.space().map_err(failed)?;
    let taken = io::files::allocated_bytes(&dir.join(open::DATA_FILE)).map_err(failed)?;
    Ok((space.available, taken))
}

/// The block device that the store in `dir` has its data on, if it does.
pub fn device_of(dir: &Path) -> Option<PathBuf> {
    let path = dir.join(open::DATA_FILE).canonicalize().ok()?;
    io::disk::is_device(&path).then_some(path)
}

/// Whose store is in `dir`, and which format and features it has. Nothing is locked and nothing changed, so it may be served meanwhile. One that this
/// program would not open is an error that says why.
pub fn look(dir: &Path, options: &Options) -> Result<Identity> {
    open::look(Arc::new(ReadOnlyDisk::new(dir)), options)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::superblock::{FORMAT, SIZE, Superblock};

    fn any() -> Options {
        Options {
            osd_id: Options::ANY_OSD,
            ..Options::default()
        }
    }

    #[test]
    fn a_store_that_another_has_locked_is_looked_at() {
        let dir = tempfile::tempdir().unwrap();
        let host = HostDisk::new(dir.path());
        let options = Options::default();
        open::mkfs(&host, &options).unwrap();
        let serving = host.open(open::DATA_FILE).unwrap();
        assert!(serving.try_lock().unwrap());
        let found = look(dir.path(), &any()).unwrap();
        assert_eq!(found, Superblock::new(&options).identity);
        // Of a newer format: said, by its number.
        let mut newer = Superblock::new(&options);
        newer.identity.format = FORMAT + 1;
        for copy in 0..2 {
            serving.write_at(&newer.encode(), copy * SIZE as u64).unwrap();
        }
        assert!(matches!(
            look(dir.path(), &any()),
            Err(Error::NewerFormat { found, .. }) if found == FORMAT + 1
        ));
    }
}
