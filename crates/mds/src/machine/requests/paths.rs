//! From what a client names to inodes.

use super::Request;
use crate::machine::{Machine, Result, Stop};
use crate::row::{Dentry, Inode, NOSNAP, ROOT, SnapInfo};
use bytes::Bytes;
use messages::fs::FilePath;
use std::sync::Arc;
use types::Errno;

/// A longer name is refused.
const NAME_MAX: usize = 255;
/// Directories above each other.
const DEPTH_MAX: usize = 4096;

/// An inode, and the snapshot in which it is looked at.
#[derive(Debug, Clone)]
pub(crate) struct At {
    pub inode: Arc<Inode>,
    pub snap: u64,
    /// Of what is in a snapshot.
    pub below: Option<Below>,
}

/// The way into a snapshot.
#[derive(Debug, Clone)]
pub(crate) struct Below {
    /// The directory in whose `.snap` it was found.
    pub dir: Arc<Inode>,
    /// Names from there.
    pub path: Vec<Bytes>,
    pub info: Arc<SnapInfo>,
}

/// A name in a directory, and what it stands for.
#[derive(Debug, Clone)]
pub(crate) struct Named {
    pub dir: At,
    pub name: Bytes,
    pub dentry: Option<Dentry>,
}

impl Machine {
    pub(crate) fn at(&mut self, path: &FilePath) -> Result<At> {
        let inode = self.inode(path.ino)?;
        let mut at = At {
            inode,
            snap: NOSNAP,
            below: None,
        };
        let parts: Vec<Bytes> = parts(&path.path).collect();
        let mut parts = parts.into_iter().peekable();
        while let Some(part) = parts.next() {
            if part.is_empty() {
                let Some(name) = parts.next() else { break };
                at = self.enter_snap(&at, &name)?;
                continue;
            }
            at = self.child(&at, &part)?;
        }
        Ok(at)
    }

    pub(crate) fn child(&mut self, at: &At, name: &Bytes) -> Result<At> {
        if !at.inode.is_dir() {
            return Err(Errno::ENOTDIR.into());
        }
        if name.len() > NAME_MAX {
            return Err(Errno::ENAMETOOLONG.into());
        }
        let dentry = self.dentry_at(at, name)?.ok_or(Errno::ENOENT)?;
        let mut child = self.inode_at(dentry.ino, at.snap)?;
        child.below = at.below.clone();
        if let Some(below) = &mut child.below {
            below.path.push(name.clone());
        }
        Ok(child)
    }

    pub(crate) fn inode_at(&mut self, ino: u64, snap: u64) -> Result<At> {
        if snap == NOSNAP {
            let inode = self.inode(ino)?;
            return Ok(At {
                inode,
                snap,
                below: None,
            });
        }
        let inode = self.inode_in_snap(ino, snap)?;
        Ok(At {
            inode,
            snap,
            below: None,
        })
    }

    pub(crate) fn dentry_at(&mut self, at: &At, name: &Bytes) -> Result<Option<Dentry>> {
        match at.snap {
            NOSNAP => self.dentry(at.inode.ino, name),
            snap => self.dentry_in_snap(at.inode.ino, name, snap),
        }
    }

    /// A directory and a name in it, which may stand for nothing.
    pub(crate) fn named(&mut self, path: &FilePath) -> Result<Named> {
        let cut = path.path.iter().rposition(|b| *b == b'/');
        let (above, name) = match cut {
            Some(at) => (path.path.slice(..at), path.path.slice(at + 1..)),
            None => (Bytes::new(), path.path.clone()),
        };
        if cut.is_some() && (above.is_empty() || above.ends_with(b"/")) {
            // Names in `.snap` are no others.
            return Err(Errno::EROFS.into());
        }
        let dir = self.at(&FilePath::new(path.ino, above))?;
        if !dir.inode.is_dir() {
            return Err(Errno::ENOTDIR.into());
        }
        if name.len() > NAME_MAX {
            return Err(Errno::ENAMETOOLONG.into());
        }
        if name.is_empty() || name.contains(&0) {
            return Err(Errno::EINVAL.into());
        }
        let dentry = self.dentry_at(&dir, &name)?;
        Ok(Named { dir, name, dentry })
    }

    /// A name that is to be made or to go.
    pub(crate) fn named_live(&mut self, path: &FilePath) -> Result<Named> {
        let named = self.named(path)?;
        Self::is_live(named.dir.snap)?;
        if named.dir.inode.nlink == 0 {
            return Err(Errno::ENOENT.into());
        }
        Ok(named)
    }

    /// The inode that a request is about, as it is now.
    pub(crate) fn live(&mut self, r: &Request) -> Result<Arc<Inode>> {
        let path = r.m.path.clone();
        let at = self.at(&path)?;
        Self::is_live(at.snap)?;
        Ok(at.inode)
    }

    /// Directories from the one above up to the root. A stray has none.
    pub(crate) fn ancestors(&mut self, inode: &Inode) -> Result<Vec<Arc<Inode>>> {
        let mut all = Vec::new();
        let mut at = inode.parent();
        while let Some(ino) = at {
            let Some(dir) = self.inode_opt(ino)? else { break };
            at = dir.parent();
            all.push(dir);
            if all.len() > DEPTH_MAX {
                return Err(Stop::Error(Errno::EIO));
            }
        }
        Ok(all)
    }

    /// From the root, without a slash in front; `name`: of something in it.
    pub(crate) fn path_of(&mut self, inode: &Inode, name: Option<&Bytes>) -> Result<String> {
        self.ancestors(inode)?;
        let mut path = self.path_cached(inode);
        if let Some(name) = name {
            if !path.is_empty() {
                path.push('/');
            }
            path.push_str(&String::from_utf8_lossy(name));
        }
        Ok(path)
    }

    /// The same from what is in memory.
    pub(crate) fn path_cached(&self, inode: &Inode) -> String {
        let mut parts: Vec<String> = Vec::new();
        let mut link = inode.links.first().cloned();
        while let Some((dir, name)) = link {
            parts.push(String::from_utf8_lossy(&name).into_owned());
            if dir == ROOT || parts.len() > DEPTH_MAX {
                break;
            }
            link = self.cached(dir).and_then(|d| d.links.first().cloned());
        }
        parts.reverse();
        parts.join("/")
    }
}

/// An empty one stands for `.snap`.
fn parts(path: &Bytes) -> impl Iterator<Item = Bytes> + '_ {
    let whole = if path.is_empty() { None } else { Some(path) };
    whole.into_iter().flat_map(|p| {
        p.split(|b| *b == b'/')
            .map(|part| p.slice_ref(part))
            .collect::<Vec<_>>()
    })
}
