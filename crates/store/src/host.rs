//! What the host of a store's directory has: space, and a device in place of a file.

use crate::{Error, Result, open};
use io::disk::{Disk, HostDisk};
use std::path::{Path, PathBuf};

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
