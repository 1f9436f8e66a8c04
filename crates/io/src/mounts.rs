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
    let kind = kind_at(&table, path);
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

/// The kind of the file system that was mounted there last.
fn kind_at(table: &str, path: &Path) -> Option<String> {
    let at = |line: &&str| line.split(' ').nth(4).map(unescaped).as_deref() == Some(path);
    let line = table.lines().rfind(at)?;
    let mut rest = line.split(" - ").nth(1)?.split(' ');
    rest.next().map(str::to_string)
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

/// Takes it away, if nobody uses it. May wait for what is written back.
pub fn unmount(path: &Path) -> io::Result<()> {
    take(path, UnmountFlags::empty(), &["-u"])
}

/// Takes it away at once from all who do not use it yet.
pub fn detach(path: &Path) -> io::Result<()> {
    take(path, UnmountFlags::DETACH, &["-u", "-z"])
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

/// What is written to files below it goes to its program.
pub fn sync(path: &Path) -> io::Result<()> {
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
            assert_eq!(kind_at(LINES, Path::new(path)).as_deref(), kind, "{path}");
        }
        assert_eq!(unescaped("a\\134\\04"), PathBuf::from("a\\\\04"));
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
