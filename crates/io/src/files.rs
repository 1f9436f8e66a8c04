//! Small configuration files and the lock of a data directory. (Object data goes through `disk`.)

use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// What only the owner may read and write.
pub const PRIVATE_FILE: u32 = 0o600;
pub const PRIVATE_DIR: u32 = 0o700;
/// How deep [`tighten`] goes: a data directory has two levels.
const TIGHTEN_DEPTH_MAX: u32 = 8;

/// From now on this process makes no file or socket that others can open, whatever it was started with.
pub fn set_private_umask() {
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
}

/// Makes the file for the owner alone, if it does not exist: for libraries that create theirs as the umask says.
pub fn create_private(path: &Path) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options
        .write(true)
        .create(true)
        .truncate(false)
        .mode(PRIVATE_FILE);
    options.open(path).map(drop)
}

/// Takes `dir` and what lies in it away from others: directories, files and sockets get [`PRIVATE_DIR`] and
/// [`PRIVATE_FILE`] where they were looser. Symbolic links stay, and what they point to. Gives the paths that could not
/// be changed (another's).
pub fn tighten(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut failed = Vec::new();
    let closed = |path: &Path, mode: u32, wanted: u32| {
        mode & 0o077 == 0 || fs::set_permissions(path, fs::Permissions::from_mode(wanted)).is_ok()
    };
    if !closed(dir, fs::metadata(dir)?.permissions().mode(), PRIVATE_DIR) {
        failed.push(dir.to_path_buf());
    }
    let mut todo = vec![(dir.to_path_buf(), 0)];
    while let Some((at, depth)) = todo.pop() {
        for entry in fs::read_dir(&at)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_symlink() {
                continue;
            }
            let path = entry.path();
            let wanted = if kind.is_dir() { PRIVATE_DIR } else { PRIVATE_FILE };
            let mode = entry.metadata()?.permissions().mode();
            if !closed(&path, mode, wanted) {
                failed.push(path);
            } else if kind.is_dir() && depth < TIGHTEN_DEPTH_MAX {
                todo.push((path, depth + 1));
            }
        }
    }
    Ok(failed)
}

/// A configuration file larger than this is not one.
const FILE_MAX: u64 = 16 << 20;

/// The file's text; `None` if it does not exist.
pub fn read(path: &Path) -> io::Result<Option<String>> {
    let file = match File::open(path) {
        Ok(f) => f,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e),
    };
    let mut text = String::new();
    file.take(FILE_MAX).read_to_string(&mut text)?;
    Ok(Some(text))
}

/// The file's bytes, at most `max` of them; `None` if it does not exist. A longer one is an error.
pub fn read_bytes(path: &Path, max: u64) -> io::Result<Option<Vec<u8>>> {
    let file = match File::open(path) {
        Ok(f) => f,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e),
    };
    bytes_of(file, max).map(Some)
}

fn bytes_of(file: File, max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(max + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > max {
        true => Err(io::Error::other("too large")),
        false => Ok(bytes),
    }
}

/// Whether anybody may read or change the file but its owner.
pub fn is_open_to_others(path: &Path) -> io::Result<bool> {
    Ok(fs::metadata(path)?.permissions().mode() & 0o077 != 0)
}

/// [`read_bytes`] of a file with secrets: an error if anybody may read or change it but its owner, who has to be root or who runs
/// this.
pub fn read_private(path: &Path, max: u64) -> io::Result<Option<Vec<u8>>> {
    let mut options = OpenOptions::new();
    // A pipe would keep us waiting for whoever writes to it.
    let at_once = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let file = match options.read(true).custom_flags(at_once).open(path) {
        Ok(f) => f,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e),
    };
    let about = file.metadata()?;
    if !about.is_file() {
        return Err(io::Error::other("it is no file"));
    }
    let owner = about.uid();
    if owner != 0 && owner != rustix::process::geteuid().as_raw() {
        let why = format!("it is another user's (uid {owner})");
        return Err(io::Error::other(why));
    }
    let mode = about.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        let why = format!("others than its owner may open it (mode {mode:03o}); chmod 600 it");
        return Err(io::Error::other(why));
    }
    bytes_of(file, max).map(Some)
}

/// `length` bytes of the file from `offset` on; all of them must be there.
pub fn read_range(path: &Path, offset: u64, length: usize) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, offset)?;
    Ok(bytes)
}

/// Replaces the file as a whole: after a crash it holds the old or the new contents. It gets `mode` whatever the umask
/// says.
pub fn replace(path: &Path, contents: impl AsRef<[u8]>, mode: u32) -> io::Result<()> {
    let dir = path
        .parent()
        .ok_or_else(|| io::Error::other("path without a directory"))?;
    let name = path
        .file_name()
        .ok_or_else(|| io::Error::other("path without a name"))?;
    let tmp = dir.join(format!(".{}.new", name.to_string_lossy()));
    let _ = fs::remove_file(&tmp);
    let mut f = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(&tmp)?;
    f.set_permissions(fs::Permissions::from_mode(mode))?;
    f.write_all(contents.as_ref())?;
    f.sync_all()?;
    fs::rename(&tmp, path)?;
    File::open(dir)?.sync_all()
}

/// Makes the directory's entries durable: a file that was just created is found again after power loss.
pub fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// Gives a file another name in its directory, durably.
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    std::fs::rename(from, to)?;
    match to.parent() {
        Some(dir) => sync_dir(dir),
        None => Ok(()),
    }
}

/// Creates the directory and those above it; new ones are for the owner alone.
pub fn make_dir(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Names of the entries, sorted; empty if the directory does not exist.
pub fn list_dir(path: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(path) {
        Ok(e) => e,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(e),
    };
    let mut names = Vec::new();
    for entry in entries {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

pub fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

/// The path without symbolic links and dots; it must exist.
pub fn canonical(path: &Path) -> io::Result<PathBuf> {
    path.canonicalize()
}

/// The file's length in bytes; `None` if it does not exist.
pub fn length(path: &Path) -> io::Result<Option<u64>> {
    match std::fs::metadata(path) {
        Ok(at) => Ok(Some(at.len())),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

/// What a file takes of its file system: holes are not in it.
pub fn allocated_bytes(path: &Path) -> io::Result<u64> {
    use std::os::unix::fs::MetadataExt;
    Ok(std::fs::metadata(path)?.blocks() * 512)
}

/// The number of the file system on which `path` lies.
pub fn file_system(path: &Path) -> io::Result<u64> {
    use std::os::unix::fs::MetadataExt;
    Ok(std::fs::metadata(path)?.dev())
}

/// This machine's name.
pub fn hostname() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Whether this process runs as root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Asks a process to end (SIGTERM).
pub fn terminate(pid: u32) -> io::Result<()> {
    let pid = rustix::process::Pid::from_raw(pid as i32).ok_or(io::ErrorKind::InvalidInput)?;
    Ok(rustix::process::kill_process(pid, rustix::process::Signal::TERM)?)
}

/// Whether there is a process of this number; also where it is another user's.
pub fn is_running(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    let asked = pid.map(rustix::process::test_kill_process);
    asked.is_some_and(|a| a != Err(rustix::io::Errno::SRCH))
}

/// Resident memory of this process in bytes.
pub fn resident_bytes() -> Option<u64> {
    let statm = fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

/// The process that has a file locked by flock, as the kernel lists it; None where nobody has, or where the list
/// does not show it (another pid namespace, a file system with device numbers of its own).
pub fn locked_by(path: &Path) -> Option<u32> {
    listed(path, &["WRITE", "READ"])
}

/// The same of locks of these kinds.
fn listed(path: &Path, kinds: &[&str]) -> Option<u32> {
    use std::os::unix::fs::MetadataExt;
    let meta = fs::metadata(path).ok()?;
    let (major, minor) = (rustix::fs::major(meta.dev()), rustix::fs::minor(meta.dev()));
    // "1: FLOCK  ADVISORY  WRITE 1234 fe:00:5678 0 EOF"
    let file = format!("{major:02x}:{minor:02x}:{}", meta.ino());
    let locks = fs::read_to_string("/proc/locks").ok()?;
    let mut lines = locks.lines().map(|l| l.split_whitespace().collect::<Vec<_>>());
    let line = lines.find(|f| {
        let of_kind = f.get(3).is_some_and(|kind| kinds.contains(kind));
        of_kind && f.get(1) == Some(&"FLOCK") && f.get(5) == Some(&file.as_str())
    })?;
    line.get(4)?.parse().ok().filter(|pid| *pid > 0)
}

/// Who has a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holder {
    Nobody,
    Process(u32),
    /// A process that does not say which it is: its number could not be written, or is not there yet.
    Unknown,
}

/// How often a lock is asked for, and the pause between: who only asks for its holder may have it for a moment.
const TAKE_TRIES: u32 = 4;
const TAKE_AGAIN: std::time::Duration = std::time::Duration::from_millis(10);

/// An exclusive lock on a file that holds the owner's process id; released when dropped or when the
/// process ends, however it ends.
#[derive(Debug)]
pub struct LockFile {
    _file: File,
}

/// Why a lock was not taken.
#[derive(Debug)]
pub enum LockError {
    /// Held by a living process, with its id where it could be read.
    Held(Option<u32>),
    Io(io::Error),
}

impl LockFile {
    pub fn take(path: &Path) -> Result<Self, LockError> {
        let open = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path);
        let mut file = open.map_err(LockError::Io)?;
        let taken = (0..TAKE_TRIES).any(|n| {
            if n > 0 {
                std::thread::sleep(TAKE_AGAIN);
            }
            flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()
        });
        if !taken {
            return Err(LockError::Held(Self::pid(&mut file)));
        }
        // Over what is there: a full disk has no block for it once that was cut off.
        let write = |f: &mut File| -> io::Result<()> {
            let line = format!("{}\n", std::process::id());
            f.rewind()?;
            f.write_all(line.as_bytes())?;
            f.set_len(line.len() as u64)
        };
        match write(&mut file) {
            // It is locked all the same; that its owner cannot be named is no reason not to serve.
            Err(e) if e.kind() != io::ErrorKind::StorageFull => Err(LockError::Io(e)),
            _ => Ok(Self { _file: file }),
        }
    }

    /// Who holds the lock now. The kernel's list is asked first, since that takes no lock for the asking.
    pub fn holder(path: &Path) -> io::Result<Holder> {
        if let Some(pid) = listed(path, &["WRITE"]) {
            return Ok(Holder::Process(pid));
        }
        let mut file = match File::open(path) {
            Ok(f) => f,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Holder::Nobody),
            Err(e) => return Err(e),
        };
        match flock(&file, FlockOperation::NonBlockingLockShared) {
            Ok(()) => Ok(Holder::Nobody),
            Err(e) if e == rustix::io::Errno::WOULDBLOCK => {
                Ok(Self::pid(&mut file).map_or(Holder::Unknown, Holder::Process))
            }
            Err(e) => Err(e.into()),
        }
    }

    fn pid(file: &mut File) -> Option<u32> {
        let mut text = String::new();
        file.take(32).read_to_string(&mut text).ok()?;
        text.trim().parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_with_secrets_are_their_owners() {
        let tmp = tempfile::tempdir().unwrap();
        let path = tmp.path().join("x");
        assert_eq!(read_private(&path, 3).unwrap(), None);
        fs::write(&path, "abc").unwrap();
        for (mode, good) in [
            (0o600, true),
            (0o400, true),
            (0o640, false),
            (0o602, false),
            (0o644, false),
        ] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let read = read_private(&path, 3);
            assert_eq!(read.is_ok(), good, "{mode:o}");
            assert_eq!(is_open_to_others(&path).unwrap(), !good, "{mode:o}");
            if let Err(e) = read {
                assert!(e.to_string().contains(&format!("{mode:o}")));
            }
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(read_private(&path, 3).unwrap(), Some(b"abc".to_vec()));
        assert!(read_private(&path, 2).is_err());
        assert!(read_private(tmp.path(), 3).is_err());
    }

    /// `osd.N/block` of earlier versions could be read by everybody where the directory above could be entered.
    #[test]
    fn what_was_open_to_others_is_closed() {
        use std::os::unix::fs::PermissionsExt;
        let tmp = tempfile::tempdir().unwrap();
        let mode = |p: &Path| fs::symlink_metadata(p).unwrap().permissions().mode() & 0o777;
        let at = |p: &str| tmp.path().join(p);
        fs::create_dir_all(at("osd.0/deep")).unwrap();
        let outside = tempfile::NamedTempFile::new().unwrap();
        fs::set_permissions(outside.path(), fs::Permissions::from_mode(0o644)).unwrap();
        std::os::unix::fs::symlink(outside.path(), at("osd.0/device")).unwrap();
        for file in ["osd.0/block", "osd.0/deep/x", "ceph.conf", "keyring"] {
            fs::write(at(file), "x").unwrap();
            fs::set_permissions(at(file), fs::Permissions::from_mode(0o644)).unwrap();
        }
        for dir in ["osd.0", "osd.0/deep"] {
            fs::set_permissions(at(dir), fs::Permissions::from_mode(0o755)).unwrap();
        }
        assert!(tighten(tmp.path()).unwrap().is_empty());
        let modes = [
            "osd.0",
            "osd.0/deep",
            "osd.0/block",
            "osd.0/deep/x",
            "keyring",
            "ceph.conf",
        ]
        .map(|p| mode(&at(p)));
        assert_eq!(modes, [0o700, 0o700, 0o600, 0o600, 0o600, 0o600]);
        assert_eq!(mode(outside.path()), 0o644, "what a link points to is not ours");
        create_private(&at("new")).unwrap();
        assert_eq!(mode(&at("new")), 0o600);
        replace(&at("ceph.conf"), "y", 0o644).unwrap();
        assert_eq!(mode(&at("ceph.conf")), 0o644);
    }

    #[test]
    fn a_lock_names_its_owner_alone_whatever_was_there() {
        let tmp = tempfile::tempdir().unwrap();
        let path = tmp.path().join("lock");
        replace(&path, "12345678901234\nand more\n", 0o600).unwrap();
        let held = LockFile::take(&path).unwrap();
        assert_eq!(
            fs::read_to_string(&path).unwrap(),
            format!("{}\n", std::process::id())
        );
        assert_eq!(
            LockFile::holder(&path).unwrap(),
            Holder::Process(std::process::id())
        );
        drop(held);
    }

    #[test]
    fn a_lock_has_one_holder() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        assert_eq!(LockFile::holder(&path).unwrap(), Holder::Nobody);
        let held = LockFile::take(&path).unwrap();
        assert_eq!(
            LockFile::holder(&path).unwrap(),
            Holder::Process(std::process::id())
        );
        assert_eq!(locked_by(&path), Some(std::process::id()));
        assert!(matches!(LockFile::take(&path), Err(LockError::Held(Some(p))) if p == std::process::id()));
        drop(held);
        assert_eq!(locked_by(&path), None);
        assert!(LockFile::take(&path).is_ok());
    }

    #[test]
    fn replace_sets_text_and_mode() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keyring");
        assert_eq!(read(&path).unwrap(), None);
        replace(&path, "one", 0o600).unwrap();
        replace(&path, "two", 0o600).unwrap();
        assert_eq!(read(&path).unwrap().as_deref(), Some("two"));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(list_dir(dir.path()).unwrap(), ["keyring"]);
    }
}
