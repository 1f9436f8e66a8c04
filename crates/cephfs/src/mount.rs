//! What a mount can be asked: names, attributes.

use crate::options::Options;
use crate::session::ranges::LOCKERS_MAX;
use crate::session::{Ask, REQUESTS_MAX, Session, Shared, Told, Use};
use bytes::Bytes;
use client::{Client, Error, IoCtx, SnapContext};
use denc::{Decode, Reader};
use messages::fs::{
    Args, FilePath, InodeStat, MClientReply, MClientRequest, Realm, SetAttr, Xattrs, cap, op, xattr_flag,
};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::sync::{Semaphore, SemaphorePermit, mpsc, oneshot};
use types::Errno;

const ROOT: u64 = 1;

/// In whose name something is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct By {
    pub uid: u32,
    pub gid: u32,
}

struct Inner {
    client: Client,
    options: Options,
    asks: mpsc::Sender<Ask>,
    told: Told,
    room: Semaphore,
    lockers: Semaphore,
}

/// A session with a file system. Clones are the same one.
#[derive(Clone)]
pub struct Mount {
    inner: Arc<Inner>,
}

impl std::fmt::Debug for Mount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "mount of {}", self.inner.options.fs)
    }
}

impl Mount {
    /// Begins a session; an error where there is no such file system, or it refuses us. The client goes on when this ends.
    pub async fn connect(client: &Client, options: Options) -> crate::Result<Self> {
        let (asks, asked) = mpsc::channel(REQUESTS_MAX);
        let told = Told::default();
        let session = Session::new(client.clone(), options.clone(), asked, told.clone());
        let thread = io::task::spawn_beside("cephfs", move || session.run());
        // It ends with the last handle.
        drop(thread.map_err(|e| Error::Conf(format!("no thread for the mount: {e}")))?);
        let mount = Self {
            inner: Arc::new(Inner {
                client: client.clone(),
                options,
                asks,
                told,
                room: Semaphore::new(REQUESTS_MAX),
                lockers: Semaphore::new(LOCKERS_MAX),
            }),
        };
        mount.stat(mount.inner.options.root.trim_matches('/')).await?;
        Ok(mount)
    }

    /// Gives the session back; [`Self::sync`] says whether all is durable. What is asked after that is told [`Error::Closed`].
    pub async fn close(&self) {
        let (done, closed) = oneshot::channel();
        if self.inner.asks.send(Ask::Close(done)).await.is_ok() {
            let _ = closed.await;
        }
    }

    /// No call will ever be answered again: the server refuses us, or the session was closed.
    pub fn is_over(&self) -> bool {
        self.inner.told.refused.load(Ordering::Acquire) || self.inner.asks.is_closed()
    }

    /// A command to the metadata server, as JSON.
    pub async fn command(&self, cmd: &str) -> crate::Result<Bytes> {
        let (reply, told) = oneshot::channel();
        let cmd = cmd.to_string();
        self.tell(Ask::Command { cmd, reply }).await?;
        told.await.unwrap_or(Err(Error::Closed))
    }

    pub fn client(&self) -> &Client {
        &self.inner.client
    }

    pub(crate) async fn tell(&self, ask: Ask) -> crate::Result<()> {
        self.inner.asks.send(ask).await.map_err(|_| Error::Closed)
    }

    /// Not waited for.
    pub(crate) fn hint(&self, ask: Ask) -> bool {
        self.inner.asks.try_send(ask).is_ok()
    }

    /// One of those who may wait for an answer at once.
    pub(crate) async fn room(&self) -> crate::Result<SemaphorePermit<'_>> {
        self.inner.room.acquire().await.map_err(|_| Error::Closed)
    }

    /// Calls that wait for locks are counted apart: they wait for as long as others like.
    pub(crate) fn lockers(&self) -> &Semaphore {
        &self.inner.lockers
    }

    /// The number of the last change that was lost.
    pub(crate) fn losses(&self) -> u64 {
        self.inner.told.losses.load(Ordering::Acquire)
    }

    /// No file is larger.
    pub fn max_file_size(&self) -> u64 {
        match self.inner.told.max_file_size.load(Ordering::Relaxed) {
            0 => u64::MAX,
            max => max,
        }
    }

    /// Of an operation that writes data.
    pub(crate) fn write_flags(&self) -> u32 {
        match self.inner.options.full_fails {
            true => messages::osd::flag::FULL_TRY,
            false => 0,
        }
    }

    pub(crate) fn own_by(&self) -> By {
        let o = &self.inner.options;
        By {
            uid: o.uid,
            gid: o.gid,
        }
    }

    pub(crate) async fn ask(&self, request: MClientRequest) -> crate::Result<MClientReply> {
        self.ask_by(self.own_by(), request).await
    }

    pub(crate) async fn ask_by(&self, by: By, request: MClientRequest) -> crate::Result<MClientReply> {
        self.ask_to_hold(by, request, None).await.map(|(reply, _)| reply)
    }

    /// `hold`: the answer opens its target.
    pub(crate) async fn ask_to_hold(
        &self,
        by: By,
        request: MClientRequest,
        hold: Option<Use>,
    ) -> crate::Result<(MClientReply, Option<Shared>)> {
        let _room = self.room().await?;
        self.ask_at_once(by, request, hold).await
    }

    /// The same whatever is under way: how much that may be is the caller's to bound.
    pub(crate) async fn ask_at_once(
        &self,
        by: By,
        request: MClientRequest,
        hold: Option<Use>,
    ) -> crate::Result<(MClientReply, Option<Shared>)> {
        let what = String::from_utf8_lossy(&request.path.path).into_owned();
        let (reply, told) = oneshot::channel();
        let request = Box::new(MClientRequest {
            uid: by.uid,
            gid: by.gid,
            ..request
        });
        self.tell(Ask::Request { request, hold, reply }).await?;
        let (reply, open) = told.await.unwrap_or(Err(Error::Closed))?;
        match reply.result {
            r if r < 0 => Err(Error::refused(r, format!("'/{what}'"))),
            _ => Ok((reply, open)),
        }
    }

    pub(crate) async fn target(&self, request: MClientRequest) -> crate::Result<InodeStat> {
        target_of(self.ask(request).await?)
    }

    async fn change(&self, request: MClientRequest) -> crate::Result<()> {
        self.ask(request).await.map(drop)
    }

    // Names

    /// All attributes, exact.
    pub async fn stat(&self, path: impl AsRef<[u8]>) -> crate::Result<InodeStat> {
        let mask = cap::PIN | cap::AS | cap::LS | cap::XS | cap::FS | cap::FA;
        self.target(MClientRequest {
            args: Args::words(&[mask]),
            ..about(op::GETATTR, path)
        })
        .await
    }

    /// None: there is none.
    pub async fn find(&self, path: impl AsRef<[u8]>) -> crate::Result<Option<InodeStat>> {
        match self.stat(path).await {
            Ok(stat) => Ok(Some(stat)),
            Err(e) if e.is_not_found() => Ok(None),
            Err(e) => Err(e),
        }
    }

    pub async fn mkdir(&self, path: impl AsRef<[u8]>, mode: u32) -> crate::Result<()> {
        self.change(MClientRequest {
            args: Args::words(&[mode]),
            ..about(op::MKDIR, path)
        })
        .await
    }

    /// Makes a directory and those above it that are not there; they may be.
    pub async fn mkdirs(&self, path: impl AsRef<[u8]>, mode: u32) -> crate::Result<()> {
        let path = path.as_ref();
        let mut ends: Vec<usize> = path
            .iter()
            .enumerate()
            .filter(|(_, b)| **b == b'/')
            .map(|(i, _)| i)
            .collect();
        ends.push(path.len());
        for end in ends {
            match self.mkdir(&path[..end], mode).await {
                Err(e) if e.errno() == Errno::EEXIST => {}
                done => done?,
            }
        }
        Ok(())
    }

    /// An empty file, which is not there yet.
    pub async fn create(&self, path: impl AsRef<[u8]>, mode: u32) -> crate::Result<()> {
        const REGULAR: u32 = 0o100_000;
        self.change(MClientRequest {
            op: op::MKNOD,
            path: self.named(path.as_ref()).await?,
            args: Args::words(&[REGULAR | mode & 0o7777, 0]),
            ..MClientRequest::default()
        })
        .await
    }

    pub async fn symlink(&self, path: impl AsRef<[u8]>, to: impl AsRef<[u8]>) -> crate::Result<()> {
        self.change(MClientRequest {
            path2: FilePath::new(0, Bytes::copy_from_slice(to.as_ref())),
            ..about(op::SYMLINK, path)
        })
        .await
    }

    pub async fn readlink(&self, path: impl AsRef<[u8]>) -> crate::Result<Bytes> {
        let stat = self.stat(path).await?;
        match stat.mode & 0o170_000 {
            0o120_000 => Ok(stat.symlink),
            _ => Err(Error::invalid(Errno::EINVAL, "not a symbolic link")),
        }
    }

    /// By its number alone: of a path ceph-mds 16.2 takes only where it begins, where the attribute is one of its own (`ceph.quota`).
    async fn itself(&self, path: &[u8]) -> crate::Result<FilePath> {
        let ino = match path.is_empty() {
            true => ROOT,
            false => self.stat(path).await?.ino,
        };
        Ok(FilePath::new(ino, Bytes::new()))
    }

    /// A name in its directory: what is about two names wants them so.
    async fn named(&self, path: &[u8]) -> crate::Result<FilePath> {
        let (dir, name) = match path.iter().rposition(|b| *b == b'/') {
            Some(at) => (&path[..at], &path[at + 1..]),
            None => (&path[..0], path),
        };
        let ino = match dir.is_empty() {
            true => ROOT,
            false => self.stat(dir).await?.ino,
        };
        Ok(FilePath::new(ino, Bytes::copy_from_slice(name)))
    }

    /// A further name for a file.
    pub async fn link(&self, path: impl AsRef<[u8]>, ino: u64) -> crate::Result<()> {
        self.change(MClientRequest {
            op: op::LINK,
            path: self.named(path.as_ref()).await?,
            path2: FilePath::new(ino, Bytes::new()),
            ..MClientRequest::default()
        })
        .await
    }

    pub async fn rename(&self, from: impl AsRef<[u8]>, to: impl AsRef<[u8]>) -> crate::Result<()> {
        let (path2, path) = (self.named(from.as_ref()).await?, self.named(to.as_ref()).await?);
        self.change(MClientRequest {
            op: op::RENAME,
            path,
            path2,
            ..MClientRequest::default()
        })
        .await
    }

    pub async fn unlink(&self, path: impl AsRef<[u8]>) -> crate::Result<()> {
        self.change(about(op::UNLINK, path)).await
    }

    pub async fn rmdir(&self, path: impl AsRef<[u8]>) -> crate::Result<()> {
        self.change(about(op::RMDIR, path)).await
    }

    // Attributes

    /// What [`SetAttr::mask`] names.
    pub async fn setattr(&self, path: impl AsRef<[u8]>, set: &SetAttr) -> crate::Result<()> {
        self.change(MClientRequest {
            args: Args::of_setattr(set),
            ..about(op::SETATTR, path)
        })
        .await
    }

    /// A larger file ends in zeros.
    pub async fn truncate(&self, path: impl AsRef<[u8]>, size: u64) -> crate::Result<()> {
        let set = SetAttr {
            size,
            old_size: self.stat(path.as_ref()).await?.size,
            mask: messages::fs::setattr::SIZE,
            ..SetAttr::default()
        };
        self.setattr(path, &set).await
    }

    pub async fn xattrs(&self, path: impl AsRef<[u8]>) -> crate::Result<Xattrs> {
        Ok(self.stat(path).await?.xattrs.unwrap_or_default())
    }

    /// None: it has no such attribute. Names under `ceph.` are in [`Self::stat`].
    pub async fn getxattr(&self, path: impl AsRef<[u8]>, name: &str) -> crate::Result<Option<Bytes>> {
        Ok(self.xattrs(path).await?.remove(name.as_bytes()))
    }

    pub async fn setxattr(
        &self,
        path: impl AsRef<[u8]>,
        name: &str,
        value: impl Into<Bytes>,
    ) -> crate::Result<()> {
        self.set_xattr(path, name, value.into(), 0).await
    }

    /// `flags` as setxattr(2): 1 it is not there yet, 2 it is.
    pub async fn set_xattr(
        &self,
        path: impl AsRef<[u8]>,
        name: &str,
        data: Bytes,
        flags: u32,
    ) -> crate::Result<()> {
        let flags = flags & (xattr_flag::CREATE | xattr_flag::REPLACE);
        // Layouts name pools: those that we know of.
        let epoch = self.inner.client.map()?.epoch;
        self.change(MClientRequest {
            op: op::SETXATTR,
            path: self.itself(path.as_ref()).await?,
            args: Args::words(&[flags, epoch]),
            path2: FilePath::new(0, Bytes::copy_from_slice(name.as_bytes())),
            data,
            ..MClientRequest::default()
        })
        .await
    }

    pub async fn removexattr(&self, path: impl AsRef<[u8]>, name: &str) -> crate::Result<()> {
        self.change(MClientRequest {
            op: op::RMXATTR,
            path: self.itself(path.as_ref()).await?,
            path2: FilePath::new(0, Bytes::copy_from_slice(name.as_bytes())),
            ..MClientRequest::default()
        })
        .await
    }

    // Data

    /// Where a file's bytes lie; writes keep what snapshots show.
    pub(crate) fn pool_of(&self, stat: &InodeStat, snaps: SnapContext) -> IoCtx {
        let mut io = self.inner.client.pool_by_id(i64::from(stat.layout.pool));
        io.set_namespace(stat.pool_ns.clone().into_bytes());
        io.set_snap_context(snaps);
        io
    }
}

pub(crate) fn target_of(reply: MClientReply) -> crate::Result<InodeStat> {
    let target = reply.trace.target.map(|t| *t);
    target.ok_or_else(|| Error::Malformed("an answer without its inode".into()))
}

/// A request about a path from the root.
pub(crate) fn about(op: u32, path: impl AsRef<[u8]>) -> MClientRequest {
    MClientRequest {
        op,
        path: FilePath::new(ROOT, Bytes::copy_from_slice(path.as_ref())),
        ..MClientRequest::default()
    }
}

/// Of the realms that came with an answer: with what data is to be written, and what a flush follows.
pub(crate) fn snaps_of(reply: &MClientReply) -> crate::Result<(SnapContext, u64)> {
    let mut r = Reader::new(reply.snap.clone());
    let (mut seq, mut snaps, mut follows) = (0, BTreeSet::new(), None);
    while !r.is_empty() {
        let realm = Realm::decode(&mut r)?;
        follows.get_or_insert(realm.seq);
        seq = realm.seq.max(seq);
        snaps.extend(realm.snaps.into_iter().chain(realm.prior_parent_snaps));
    }
    let snaps: Vec<u64> = snaps.into_iter().rev().collect();
    // A sequence without snapshots is that of a realm that never had one.
    let context = match snaps.is_empty() {
        true => SnapContext::default(),
        false => SnapContext::new(seq, snaps)?,
    };
    Ok((context, follows.unwrap_or_default()))
}
