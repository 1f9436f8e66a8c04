//! A tree is copied: directories, files and symbolic links, with owners, modes, times and attributes of users. As with Ceph, nothing else is.
//!
//! In memory are one page of names for each directory on the way, and one part of a file.

use cephfs::{Cursor, Entry, Mount};
use client::Error;
use messages::fs::{InodeStat, SetAttr, setattr};
use types::Errno;

/// Of a file at a time.
const PART: u64 = 4 << 20;
const DEPTH_MAX: usize = 4096;

/// A directory that is being copied.
struct Frame {
    /// Below both tops.
    path: Vec<u8>,
    next: Option<Cursor>,
    dirs: Vec<Entry>,
    stat: InodeStat,
}

async fn frame(mount: &Mount, from: &[u8], path: Vec<u8>) -> client::Result<Frame> {
    let source = [from, &path].concat();
    Ok(Frame {
        next: Some(mount.readdir_begin(&source).await?),
        dirs: Vec::new(),
        stat: mount.stat(&source).await?,
        path,
    })
}

/// False: it was to stop.
pub async fn tree(
    mount: &Mount,
    from: &[u8],
    to: &[u8],
    goes_on: &impl Fn() -> bool,
) -> client::Result<bool> {
    let mut stack = vec![frame(mount, from, Vec::new()).await?];
    while let Some(top) = stack.last_mut() {
        if !goes_on() {
            return Ok(false);
        }
        if let Some(dir) = top.dirs.pop() {
            let path = [&top.path[..], b"/", &dir.name].concat();
            there(mount.mkdir([to, &path].concat(), 0o700).await)?;
            let below = frame(mount, from, path).await?;
            stack.push(below);
            if stack.len() > DEPTH_MAX {
                return Err(Error::Malformed("directories too deep".into()));
            }
        } else if let Some(cursor) = top.next.take() {
            let (entries, next) = mount.readdir_page([from, &top.path].concat(), &cursor).await?;
            top.next = next;
            for entry in entries {
                let path = [&top.path[..], b"/", &entry.name].concat();
                let (source, target) = ([from, &path].concat(), [to, &path].concat());
                match entry.stat.mode & 0o170_000 {
                    0o040_000 => top.dirs.push(entry),
                    0o100_000 if !file(mount, &source, &target, goes_on).await? => return Ok(false),
                    0o120_000 => link(mount, &entry.stat, &target).await?,
                    _ => {}
                }
            }
        } else if let Some(done) = stack.pop() {
            // What was made in it has changed its time.
            same(mount, &done.stat, &[to, &done.path].concat()).await?;
        }
    }
    Ok(true)
}

fn there(done: client::Result<()>) -> client::Result<()> {
    match done {
        Err(e) if e.errno() == Errno::EEXIST => Ok(()),
        done => done,
    }
}

async fn link(mount: &Mount, stat: &InodeStat, target: &[u8]) -> client::Result<()> {
    there(mount.symlink(target, &stat.symlink).await)?;
    own(mount, stat, target, setattr::UID | setattr::GID).await
}

async fn file(
    mount: &Mount,
    source: &[u8],
    target: &[u8],
    goes_on: &impl Fn() -> bool,
) -> client::Result<bool> {
    let stat = mount.stat(source).await?;
    if let Some(found) = mount.find(target).await? {
        if (found.size, found.mtime) == (stat.size, stat.mtime) {
            return Ok(true);
        }
        mount.unlink(target).await?;
    }
    mount.create(target, 0o600).await?;
    let mut at = 0;
    while at < stat.size {
        if !goes_on() {
            return Ok(false);
        }
        let part = mount.read(source, at, PART.min(stat.size - at)).await?;
        if part.is_empty() {
            break;
        }
        let n = part.len() as u64;
        if part.iter().any(|b| *b != 0) {
            mount.write(target, at, part).await?;
        }
        at += n;
    }
    if mount.stat(target).await?.size != stat.size {
        // It ends in a hole.
        mount.truncate(target, stat.size).await?;
    }
    same(mount, &stat, target).await?;
    Ok(true)
}

/// Attributes as those of the source; the time of change last, by which it is known as whole.
async fn same(mount: &Mount, stat: &InodeStat, target: &[u8]) -> client::Result<()> {
    for (name, value) in stat.xattrs.iter().flatten() {
        let name = String::from_utf8_lossy(name).into_owned();
        mount.setxattr(target, &name, value.clone()).await?;
    }
    own(mount, stat, target, setattr::UID | setattr::GID | setattr::MODE).await?;
    own(mount, stat, target, setattr::MTIME | setattr::ATIME).await
}

async fn own(mount: &Mount, stat: &InodeStat, target: &[u8], mask: u32) -> client::Result<()> {
    let set = SetAttr {
        mode: stat.mode & 0o7777,
        uid: stat.uid,
        gid: stat.gid,
        mtime: stat.mtime,
        atime: stat.atime,
        mask,
        ..SetAttr::default()
    };
    mount.setattr(target, &set).await
}
