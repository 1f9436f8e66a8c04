//! Directories of this machine as places to mount at.

use rustix::mount::{UnmountFlags, unmount as ask_kernel};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const TABLE: &str = "/proc/self/mountinfo";
/// What unmounts for who is not root.
const HELPERS: [&str; 2] = ["fusermount3", "fusermount"];
/// ENOTCONN: the program that served it has gone.
const NO_SERVER: i32 = 107;

/// What is at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Point {
    /// An empty directory.
    Free,
    Missing,
    NoDirectory,
    NotEmpty,
    /// A file system of this kind.
    Mounted(String),
    /// One whose program has gone.
    Dead(String),
}

/// What the table of mounts says of one.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    id: String,
    device: String,
    kind: String,
    source: String,
}

/// A mount, to know it again: something else may be mounted over it, or in its place.
#[derive(Debug, Clone)]
pub struct Mounted {
    at: PathBuf,
    entry: Entry,
}

impl Mounted {
    /// What was mounted there last, if its source begins so. `path` as [`resolve`] gives it.
    pub fn find(path: &Path, source: &str) -> io::Result<Option<Self>> {
        let entry = entry_at(&std::fs::read_to_string(TABLE)?, path);
        let entry = entry.filter(|e| e.source.starts_with(source));
        Ok(entry.map(|entry| Self {
            at: path.to_path_buf(),
            entry,
        }))
    }

    /// That a path names this one, and not what was mounted there since.
    pub fn check(&self) -> io::Result<()> {
        match entry_at(&std::fs::read_to_string(TABLE)?, &self.at) {
            Some(entry) if entry == self.entry => Ok(()),
            Some(entry) => Err(io::Error::other(format!(
                "another file system is mounted there by now ({}), and is left",
                entry.kind
            ))),
            None => Err(io::Error::other("nothing is mounted there any more")),
        }
    }

    /// Takes it away, if nobody uses it. May wait for what is written back.
    pub fn unmount(&self) -> io::Result<()> {
        self.check()?;
        take(&self.at, UnmountFlags::empty(), &["-u"])
    }

    /// Takes it away at once from all who do not use it yet.
    pub fn detach(&self) -> io::Result<()> {
        self.check()?;
        take(&self.at, UnmountFlags::DETACH, &["-u", "-z"])
    }

    /// What is written to files below it goes to its program.
    pub fn sync(&self) -> io::Result<()> {
        self.check()?;
        sync(&self.at)
    }
}

/// The path as the table of mounts has it; what is mounted at it is not asked.
pub fn resolve(path: &Path) -> io::Result<PathBuf> {
    let whole = std::path::absolute(path)?;
    match (whole.parent(), whole.file_name()) {
        (Some(parent), Some(name)) => Ok(parent.canonicalize()?.join(name)),
        _ => whole.canonicalize(),
    }
}

/// `path` as [`resolve`] gives it.
pub fn look(path: &Path) -> io::Result<Point> {
    let table = std::fs::read_to_string(TABLE)?;
    let kind = entry_at(&table, path).map(|e| e.kind);
    let found = std::fs::symlink_metadata(path);
    let about = match (found, kind) {
        (Err(e), Some(kind)) if e.raw_os_error() == Some(NO_SERVER) => return Ok(Point::Dead(kind)),
        (_, Some(kind)) => return Ok(Point::Mounted(kind)),
        (Err(e), None) if e.kind() == io::ErrorKind::NotFound => return Ok(Point::Missing),
        (found, None) => found?,
    };
    if !about.is_dir() {
        return Ok(Point::NoDirectory);
    }
    match std::fs::read_dir(path)?.next() {
        Some(_) => Ok(Point::NotEmpty),
        None => Ok(Point::Free),
    }
}

/// What was mounted there last.
fn entry_at(table: &str, path: &Path) -> Option<Entry> {
    let at = |line: &&str| line.split(' ').nth(4).map(unescaped).as_deref() == Some(path);
    let line = table.lines().rfind(at)?;
    let mut first = line.split(' ').map(str::to_string);
    let mut rest = line.split(" - ").nth(1)?.split(' ').map(str::to_string);
    Some(Entry {
        id: first.next()?,
        device: first.nth(1)?,
        kind: rest.next()?,
        source: rest.next()?,
    })
}

/// `\040` stands for a blank, and so on.
fn unescaped(text: &str) -> PathBuf {
    let mut out = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, more)) = rest.split_first() {
        let code = match (first, more.get(..3)) {
            (b'\\', Some(digits)) => std::str::from_utf8(digits).ok(),
            _ => None,
        };
        match code.and_then(|c| u8::from_str_radix(c, 8).ok()) {
            Some(byte) => {
                out.push(byte);
                rest = &more[3..];
            }
            None => {
                out.push(*first);
                rest = more;
            }
        }
    }
    PathBuf::from(std::ffi::OsString::from_vec(out))
}

fn take(path: &Path, flags: UnmountFlags, options: &[&str]) -> io::Result<()> {
    match ask_kernel(path, flags) {
        Err(rustix::io::Errno::PERM) => help(path, options),
        done => Ok(done?),
    }
}

fn help(path: &Path, options: &[&str]) -> io::Result<()> {
    for helper in HELPERS {
        let mut command = Command::new(helper);
        command
            .args(options)
            .arg("--")
            .arg(OsStr::from_bytes(path.as_os_str().as_bytes()));
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        match command.status() {
            Ok(status) if status.success() => return Ok(()),
            // It says why on its own; that it is used is the usual reason.
            Ok(_) => return Err(io::Error::from(io::ErrorKind::ResourceBusy)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(e),
        }
    }
    Err(io::Error::from(io::ErrorKind::PermissionDenied))
}

fn sync(path: &Path) -> io::Result<()> {
    let dir = rustix::fs::open(
        path,
        rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC,
        rustix::fs::Mode::empty(),
    )?;
    Ok(rustix::fs::syncfs(&dir)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: &str = "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
        40 22 0:50 / /mnt/a\\040b rw,nosuid shared:3 - fuse.skep skep:files rw,user_id=0\n\
        41 22 0:51 / /mnt/x rw - tmpfs none rw\n\
        42 41 0:52 / /mnt/x rw - fuse.ceph-fuse ceph-fuse rw\n";

    #[test]
    fn the_table_names_what_was_mounted_last() {
        for (path, kind) in [
            ("/mnt/a b", Some("fuse.skep")),
            ("/mnt/x", Some("fuse.ceph-fuse")),
            ("/mnt", None),
            ("/", Some("ext4")),
        ] {
            let found = entry_at(LINES, Path::new(path));
            assert_eq!(found.map(|e| e.kind).as_deref(), kind, "{path}");
        }
        let entry = entry_at(LINES, Path::new("/mnt/a b")).unwrap();
        assert_eq!(
            [&entry.id[..], &entry.device, &entry.source],
            ["40", "0:50", "skep:files"]
        );
        assert_eq!(unescaped("a\\134\\04"), PathBuf::from("a\\\\04"));
    }

    #[test]
    fn what_another_has_mounted_is_not_taken_away() {
        let proc = Path::new("/proc");
        assert!(Mounted::find(proc, "skep:").unwrap().is_none());
        let mut mounted = Mounted::find(proc, "").unwrap().unwrap();
        mounted.check().unwrap();
        mounted.entry.id.push('0');
        let _ = mounted.check().unwrap_err();
        let _ = mounted.detach().unwrap_err();
    }

    #[test]
    fn only_an_empty_directory_is_free() {
        let dir = tempfile::tempdir().unwrap();
        let root = resolve(dir.path()).unwrap();
        assert_eq!(look(&root).unwrap(), Point::Free);
        assert_eq!(look(&root.join("no")).unwrap(), Point::Missing);
        std::fs::write(root.join("f"), "x").unwrap();
        assert_eq!(look(&root).unwrap(), Point::NotEmpty);
        assert_eq!(look(&root.join("f")).unwrap(), Point::NoDirectory);
        assert!(matches!(look(Path::new("/proc")).unwrap(), Point::Mounted(kind) if kind == "proc"));
        let _ = resolve(&root.join("a/b")).unwrap_err();
    }
}
