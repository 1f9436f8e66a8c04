//! What a mount can be asked by inode number and name, in anybody's name: for kernels, which know inodes and not paths.

use crate::file::File;
use crate::mount::{By, Mount, snaps_of, target_of};
use bytes::Bytes;
use client::{Error, SnapContext};
use denc::Encode;
use messages::fs::{
    Args, FilePath, InodeStat, MClientRequest, SetAttr, Xattrs, cap, op, open_flag, xattr_flag,
};
use types::Errno;

/// All attributes, exact.
const ALL: u32 = cap::PIN | cap::AS | cap::LS | cap::XS | cap::FS | cap::FA;

/// Of a mode.
const KIND: u32 = 0o170_000;
const DIRECTORY: u32 = 0o040_000;

/// A directory, and a name in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name {
    pub dir: u64,
    pub name: Bytes,
}

impl Name {
    pub fn new(dir: u64, name: impl AsRef<[u8]>) -> Self {
        Self {
            dir,
            name: Bytes::copy_from_slice(name.as_ref()),
        }
    }

    fn path(&self) -> FilePath {
        FilePath::new(self.dir, self.name.clone())
    }
}

fn of_name(op: u32, name: &Name) -> MClientRequest {
    MClientRequest {
        op,
        path: name.path(),
        ..MClientRequest::default()
    }
}

/// Attributes that something is made with.
fn with(xattrs: &Xattrs) -> Bytes {
    match xattrs.is_empty() {
        true => Bytes::new(),
        false => xattrs.to_bytes(),
    }
}

fn of_ino(op: u32, ino: u64) -> MClientRequest {
    MClientRequest {
        op,
        path: FilePath::new(ino, Bytes::new()),
        ..MClientRequest::default()
    }
}

impl Mount {
    async fn target_by(&self, by: By, request: MClientRequest) -> crate::Result<InodeStat> {
        target_of(self.ask_by(by, request).await?)
    }

    pub async fn getattr(&self, ino: u64) -> crate::Result<InodeStat> {
        let request = MClientRequest {
            args: Args::words(&[ALL]),
            ..of_ino(op::GETATTR, ino)
        };
        self.target_by(self.own_by(), request).await
    }

    /// Nothing else of it has to be exact, so nobody is asked for what he has changed.
    pub async fn xattrs_of(&self, ino: u64) -> crate::Result<Xattrs> {
        let request = MClientRequest {
            args: Args::words(&[cap::PIN | cap::XS]),
            ..of_ino(op::GETATTR, ino)
        };
        let stat = self.target_by(self.own_by(), request).await?;
        Ok(stat.xattrs.unwrap_or_default())
    }

    pub(crate) async fn snaps_of_ino(&self, ino: u64) -> crate::Result<(SnapContext, u64)> {
        let request = MClientRequest {
            args: Args::words(&[cap::PIN]),
            ..of_ino(op::GETATTR, ino)
        };
        snaps_of(&self.ask(request).await?)
    }

    pub async fn lookup(&self, by: By, name: &Name) -> crate::Result<InodeStat> {
        let request = MClientRequest {
            args: Args::words(&[ALL]),
            ..of_name(op::LOOKUP, name)
        };
        self.target_by(by, request).await
    }

    pub async fn setattr_of(&self, by: By, ino: u64, set: &SetAttr) -> crate::Result<InodeStat> {
        let request = MClientRequest {
            args: Args::of_setattr(set),
            ..of_ino(op::SETATTR, ino)
        };
        self.target_by(by, request).await
    }

    /// `mode` with the kind; no directory, no link.
    pub async fn make_node(
        &self,
        by: By,
        name: &Name,
        (mode, xattrs): (u32, &Xattrs),
        rdev: u32,
    ) -> crate::Result<InodeStat> {
        let request = MClientRequest {
            args: Args::words(&[mode, rdev]),
            data: with(xattrs),
            ..of_name(op::MKNOD, name)
        };
        self.target_by(by, request).await
    }

    pub async fn make_dir(
        &self,
        by: By,
        name: &Name,
        (mode, xattrs): (u32, &Xattrs),
    ) -> crate::Result<InodeStat> {
        let request = MClientRequest {
            args: Args::words(&[mode]),
            data: with(xattrs),
            ..of_name(op::MKDIR, name)
        };
        self.target_by(by, request).await
    }

    pub async fn make_symlink(&self, by: By, name: &Name, to: &[u8]) -> crate::Result<InodeStat> {
        let request = MClientRequest {
            path2: FilePath::new(0, Bytes::copy_from_slice(to)),
            ..of_name(op::SYMLINK, name)
        };
        self.target_by(by, request).await
    }

    pub async fn make_link(&self, by: By, name: &Name, ino: u64) -> crate::Result<InodeStat> {
        let request = MClientRequest {
            path2: FilePath::new(ino, Bytes::new()),
            ..of_name(op::LINK, name)
        };
        self.target_by(by, request).await
    }

    pub async fn remove_name(&self, by: By, name: &Name) -> crate::Result<()> {
        self.ask_by(by, of_name(op::UNLINK, name)).await.map(drop)
    }

    pub async fn remove_dir(&self, by: By, name: &Name) -> crate::Result<()> {
        self.ask_by(by, of_name(op::RMDIR, name)).await.map(drop)
    }

    pub async fn rename_name(&self, by: By, from: &Name, to: &Name) -> crate::Result<()> {
        let request = MClientRequest {
            path2: from.path(),
            ..of_name(op::RENAME, to)
        };
        self.ask_by(by, request).await.map(drop)
    }

    /// Makes a file, if it is not there, and opens it. `flags`: [`open_flag`].
    pub async fn create_file(
        &self,
        by: By,
        name: &Name,
        mode: u32,
        flags: u32,
    ) -> crate::Result<(InodeStat, File)> {
        let made = (mode, &Xattrs::new());
        self.create_file_with(by, name, made, flags).await
    }

    pub async fn create_file_with(
        &self,
        by: By,
        name: &Name,
        (mode, xattrs): (u32, &Xattrs),
        flags: u32,
    ) -> crate::Result<(InodeStat, File)> {
        let flags = flags | open_flag::CREAT;
        let request = MClientRequest {
            args: Args::words(&[flags, mode, 0, 0, 0, u32::MAX, 0]),
            data: with(xattrs),
            ..of_name(op::CREATE, name)
        };
        self.open_as(by, request, flags).await
    }

    /// `flags` as setxattr(2): 1 it is not there yet, 2 it is.
    pub async fn put_xattr(
        &self,
        by: By,
        ino: u64,
        name: &[u8],
        data: Bytes,
        flags: u32,
    ) -> crate::Result<()> {
        let flags = flags & (xattr_flag::CREATE | xattr_flag::REPLACE);
        // Layouts name pools: those that we know of.
        let epoch = self.client().map()?.epoch;
        let request = MClientRequest {
            args: Args::words(&[flags, epoch]),
            path2: FilePath::new(0, Bytes::copy_from_slice(name)),
            data,
            ..of_ino(op::SETXATTR, ino)
        };
        self.ask_by(by, request).await.map(drop)
    }

    pub async fn remove_xattr(&self, by: By, ino: u64, name: &[u8]) -> crate::Result<()> {
        let request = MClientRequest {
            path2: FilePath::new(0, Bytes::copy_from_slice(name)),
            ..of_ino(op::RMXATTR, ino)
        };
        self.ask_by(by, request).await.map(drop)
    }

    /// Renamed only where nothing has the new name. The server has no such operation: it gets a second name, and loses the first. A
    /// directory has one name only.
    pub async fn rename_to_free(&self, by: By, from: &Name, to: &Name) -> crate::Result<()> {
        let stat = self.lookup(by, from).await?;
        if stat.mode & KIND == DIRECTORY {
            return Err(Error::invalid(Errno::EINVAL, "a directory is not renamed so"));
        }
        self.make_link(by, to, stat.ino).await?;
        let removed = self.remove_name(by, from).await;
        if removed.is_err() {
            // As if nothing had been done.
            let _ = self.remove_name(by, to).await;
        }
        removed
    }
}
