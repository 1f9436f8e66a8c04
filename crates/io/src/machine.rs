//! What a machine is like as far as a store cares: its clock, its memory, the devices under a path. Nothing is changed.

use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

/// The disk under a path, as the kernel describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    pub name: String,
    pub spins: Option<bool>,
    /// Its own cache loses what it holds when the power goes, and is emptied by flushes. None: the kernel does not say.
    pub volatile_cache: Option<bool>,
}

/// The disk of a block device, or of the file system that `path` lies on. None: it has none of this machine, as a file system in
/// memory or over the network.
pub fn device(path: &Path) -> Option<Device> {
    let dir = queue_of(path)?;
    let say = |what: &str| fs::read_to_string(dir.join("queue").join(what)).ok();
    let spins = say("rotational");
    let cache = say("write_cache");
    Some(Device {
        name: dir.file_name()?.to_string_lossy().into_owned(),
        spins: spins.and_then(|s| match s.trim() {
            "0" => Some(false),
            "1" => Some(true),
            _ => None,
        }),
        volatile_cache: cache.and_then(|s| match s.trim() {
            "write back" => Some(true),
            "write through" => Some(false),
            _ => None,
        }),
    })
}

/// The folder of sysfs that describes the disk. A partition has no queue of its own: that is its disk's.
pub(crate) fn queue_of(path: &Path) -> Option<PathBuf> {
    use std::os::unix::fs::{FileTypeExt, MetadataExt};
    let meta = fs::metadata(path).ok()?;
    let dev = match meta.file_type().is_block_device() {
        true => meta.rdev(),
        false => meta.dev(),
    };
    let (major, minor) = (rustix::fs::major(dev), rustix::fs::minor(dev));
    let device = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    let disk = device.parent().map(Path::to_path_buf);
    [Some(device), disk]
        .into_iter()
        .flatten()
        .find(|d| d.join("queue").is_dir())
}

/// The type of the file system that `path` lies on, as mounts name it.
pub fn file_system_type(path: &Path) -> Option<String> {
    let path = fs::canonicalize(path).ok()?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    // id parent major:minor root mount-point options [fields] - type source
    let parts = mounts.lines().filter_map(|line| {
        let (mount, what) = line.split_once(" - ")?;
        let at = mount.split(' ').nth(4)?.replace("\\040", " ");
        Some((at, what.split(' ').next()?.to_string()))
    });
    // Of two at one place the later one hides the other.
    let above = parts.filter(|(at, _)| path.starts_with(at));
    above.max_by_key(|(at, _)| at.len()).map(|(_, kind)| kind)
}

/// Whether a time service keeps the kernel's clock; None: it does not say.
#[allow(unsafe_code)]
pub fn clock_is_kept() -> Option<bool> {
    const NOT_SYNCHRONISED: i32 = 0x40;
    // SAFETY: zeros are a value of the struct that asks for nothing to be changed (modes 0), and the kernel fills it.
    let mut now: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: it points to a timex that lives through the call.
    let state = unsafe { libc::adjtimex(&mut now) };
    (state >= 0).then_some(now.status & NOT_SYNCHRONISED == 0)
}

/// Memory that new work may take, in bytes.
pub fn available_memory() -> Option<u64> {
    let said = fs::read_to_string("/proc/meminfo").ok()?;
    let line = said.lines().find_map(|l| l.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

/// Whether a server could listen there now.
pub fn may_listen(addr: SocketAddr) -> io::Result<()> {
    crate::socket::Listener::bind(addr).map(drop)
}

/// Whether the address is one of this machine's.
pub fn has_address(addr: IpAddr) -> bool {
    may_listen(SocketAddr::new(addr, 0)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_described() {
        assert!(available_memory().is_some_and(|m| m > 1 << 20));
        assert_eq!(file_system_type(Path::new("/proc")).as_deref(), Some("proc"));
        assert!(has_address([127, 0, 0, 1].into()) && !has_address([192, 0, 2, 77].into()));
        assert_eq!(device(Path::new("/proc")), None);
        let taken = crate::socket::Listener::bind(([127, 0, 0, 1], 0).into()).unwrap();
        let at = taken.local_addr().unwrap();
        assert_eq!(may_listen(at).unwrap_err().kind(), io::ErrorKind::AddrInUse);
    }
}
