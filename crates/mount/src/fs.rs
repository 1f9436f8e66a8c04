//! The kernel's operations, each a task of its own: one that waits holds no other up.

use crate::attr;
use crate::dir::{Dir, Listing};
use crate::locks;
use crate::room::Room;
use bytes::Bytes;
use cephfs::{By, File, Mount, Name};
use fuser::{
    Errno, FileHandle, Filesystem, FopenFlags, Generation, INodeNo, InitFlags, KernelConfig, LockOwner,
    OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry,
    ReplyLock, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use io::task::Background;
use messages::fs::{InodeStat, open_flag};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

/// The kernel's number of what is mounted.
const ROOT: u64 = 1;
/// Nothing is trusted without asking: nobody tells the kernel of what others change.
const TTL: Duration = Duration::ZERO;
/// The largest write of one operation.
const WRITE_MAX: u32 = 1 << 20;
/// Reads ahead, and reads and writes past the page cache, under way at once.
const BACKGROUND_MAX: u16 = 64;
/// Zeros of one step, between which others get the file.
const ZERO_MAX: u64 = 64 << 20;
const NAME_MAX: u32 = 255;
const STATFS_BLOCK: u32 = 4096;

/// Of fallocate(2).
const KEEP_SIZE: i32 = 1;
const PUNCH_HOLE: i32 = 2;
const ZERO_RANGE: i32 = 0x10;

/// Of lseek(2).
const SEEK_DATA: i32 = 3;
const SEEK_HOLE: i32 = 4;

enum Handle {
    File(Arc<File>),
    Dir(Arc<Dir>),
}

/// What tasks share.
pub struct Shared {
    pub mount: Mount,
    /// The server's number of what is mounted.
    pub root: u64,
    handles: Mutex<HashMap<u64, Handle>>,
    last: AtomicU64,
    lockers: locks::Owners,
}

pub struct Files {
    shared: Arc<Shared>,
    background: Background,
    room: Room,
}

type Answer<T> = Result<T, Errno>;

fn errno(e: client::Error) -> Errno {
    let number = e.errno();
    if matches!(number.0, 5 | 107 | 108 | 110 | 116) {
        tracing::warn!("the file system: {e}");
    }
    // A number that says what happened to a session means something else to who opens files, or looks whether a mount is dead.
    Errno::from_i32(match number.0 {
        107 | 116 => 5,
        n => n,
    })
}

fn by(req: &Request) -> By {
    By {
        uid: req.uid(),
        gid: req.gid(),
    }
}

impl Shared {
    pub fn new(mount: Mount, root: u64) -> Arc<Self> {
        Arc::new(Self {
            mount,
            root,
            handles: Mutex::default(),
            last: AtomicU64::new(0),
            lockers: locks::Owners::default(),
        })
    }

    fn ours(&self, ino: INodeNo) -> u64 {
        if ino.0 == ROOT { self.root } else { ino.0 }
    }

    fn theirs(&self, ino: u64) -> u64 {
        if ino == self.root { ROOT } else { ino }
    }

    fn attr(&self, s: &InodeStat) -> fuser::FileAttr {
        attr::of_stat(s, self.theirs(s.ino))
    }

    fn name(&self, dir: INodeNo, name: &OsStr) -> Name {
        Name::new(self.ours(dir), name.as_bytes())
    }

    fn handles(&self) -> MutexGuard<'_, HashMap<u64, Handle>> {
        self.handles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, handle: Handle) -> FileHandle {
        let n = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        self.handles().insert(n, handle);
        FileHandle(n)
    }

    fn file(&self, fh: FileHandle) -> Answer<Arc<File>> {
        match self.handles().get(&fh.0) {
            Some(Handle::File(f)) => Ok(f.clone()),
            _ => Err(Errno::EBADF),
        }
    }

    fn dir(&self, fh: FileHandle) -> Answer<Arc<Dir>> {
        match self.handles().get(&fh.0) {
            Some(Handle::Dir(d)) => Ok(d.clone()),
            _ => Err(Errno::EBADF),
        }
    }

    /// Who took a lock by this handle, and is not known to have closed it, has it no more.
    async fn unlock_all(&self, file: &File, owners: std::collections::BTreeSet<u64>) {
        for owner in owners {
            if file.is_locked()
                && let Err(e) = self.mount.lock(file.ino(), &locks::all_of(owner)).await
            {
                tracing::warn!("a lock of inode {:x} cannot be given back: {e}", file.ino());
            }
        }
    }

    fn drop_handle(&self, fh: FileHandle) {
        // The file is closed outside of the lock.
        let gone = self.handles().remove(&fh.0);
        drop(gone);
    }

    /// The kernel is gone.
    pub fn close_all(&self) {
        let all = std::mem::take(&mut *self.handles());
        drop(all);
    }

    async fn space(&self) -> Answer<(u64, u64)> {
        let stat = self.mount.getattr(self.root).await.map_err(errno)?;
        if stat.quota.max_bytes > 0 {
            let all = stat.quota.max_bytes as u64;
            return Ok((all, all.saturating_sub(stat.rbytes)));
        }
        let pool = i64::from(stat.layout.pool);
        let pool = (stat.layout.is_set() && pool > 0).then_some(pool);
        let told = self.mount.client().statfs(pool).await.map_err(errno)?;
        Ok(((told.kb_used + told.kb_avail) * 1024, told.kb_avail * 1024))
    }

    async fn zero(&self, file: &File, offset: u64, length: u64, extends: bool) -> Answer<()> {
        let mut done = 0;
        while done < length {
            let n = (length - done).min(ZERO_MAX);
            file.zero(offset + done, n, extends).await.map_err(errno)?;
            done += n;
            let end = self.mount.getattr(file.ino()).await.map_err(errno)?.size;
            if !extends && offset + done >= end {
                break;
            }
        }
        Ok(())
    }
}

/// Names that are no one's to keep: access control lists would not be obeyed, nor capabilities of programs.
fn is_refused(name: &OsStr) -> bool {
    let name = name.as_bytes();
    name.starts_with(b"system.") || name == b"security.capability"
}

fn give(reply: ReplyXattr, size: u32, value: &[u8]) {
    if size == 0 {
        reply.size(value.len() as u32);
    } else if value.len() > size as usize {
        reply.error(Errno::ERANGE);
    } else {
        reply.data(value);
    }
}

fn entry(shared: &Shared, reply: ReplyEntry, told: cephfs::Result<InodeStat>) {
    match told {
        Ok(stat) => reply.entry(&TTL, &shared.attr(&stat), Generation(0)),
        Err(e) => reply.error(errno(e)),
    }
}

fn empty(reply: ReplyEmpty, done: Answer<()>) {
    match done {
        Ok(()) => reply.ok(),
        Err(e) => reply.error(e),
    }
}

impl Files {
    pub fn new(shared: Arc<Shared>, background: Background) -> Self {
        Self {
            shared,
            background,
            room: Room::default(),
        }
    }

    /// `bytes`: of data that it carries.
    fn run<F>(&self, bytes: u64, task: impl FnOnce(Arc<Shared>) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let share = self.room.enter(bytes);
        let task = task(self.shared.clone());
        drop(self.background.spawn(async move {
            task.await;
            drop(share);
        }));
    }
}

impl Filesystem for Files {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        // What an older kernel has not it goes without.
        for flag in [
            InitFlags::FUSE_ASYNC_DIO,
            InitFlags::FUSE_AUTO_INVAL_DATA,
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_POSIX_LOCKS,
        ] {
            let _ = config.add_capabilities(flag);
        }
        let _ = config.set_max_write(WRITE_MAX);
        let _ = config.set_max_background(BACKGROUND_MAX);
        Ok(())
    }

    fn lookup(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let (by, name) = (by(req), self.shared.name(parent, name));
        self.run(
            0,
            |s| async move { entry(&s, reply, s.mount.lookup(by, &name).await) },
        );
    }

    fn forget(&self, _: &Request, _: INodeNo, _: u64) {}

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        self.run(0, |s| async move {
            match s.mount.getattr(s.ours(ino)).await {
                Ok(stat) => reply.attr(&TTL, &s.attr(&stat)),
                Err(e) => reply.error(errno(e)),
            }
        });
    }

    fn setattr(
        &self,
        req: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let (by, set) = (by(req), attr::wished(mode, (uid, gid), size, (atime, mtime)));
        self.run(0, |s| async move {
            let ino = s.ours(ino);
            let told = match set.mask {
                0 => s.mount.getattr(ino).await,
                _ => s.mount.setattr_of(by, ino, &set).await,
            };
            match told {
                Ok(stat) => reply.attr(&TTL, &s.attr(&stat)),
                Err(e) => reply.error(errno(e)),
            }
        });
    }

    fn readlink(&self, _: &Request, ino: INodeNo, reply: ReplyData) {
        self.run(0, |s| async move {
            match s.mount.getattr(s.ours(ino)).await {
                Ok(stat) => reply.data(&stat.symlink),
                Err(e) => reply.error(errno(e)),
            }
        });
    }

    fn mknod(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let (by, name) = (by(req), self.shared.name(parent, name));
        self.run(0, |s| async move {
            entry(&s, reply, s.mount.make_node(by, &name, mode, rdev).await);
        });
    }

    fn mkdir(&self, req: &Request, parent: INodeNo, name: &OsStr, mode: u32, _umask: u32, reply: ReplyEntry) {
        let (by, name) = (by(req), self.shared.name(parent, name));
        self.run(0, |s| async move {
            entry(&s, reply, s.mount.make_dir(by, &name, mode).await);
        });
    }

    fn unlink(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (by, name) = (by(req), self.shared.name(parent, name));
        self.run(0, |s| async move {
            empty(reply, s.mount.remove_name(by, &name).await.map_err(errno));
        });
    }

    fn rmdir(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (by, name) = (by(req), self.shared.name(parent, name));
        self.run(0, |s| async move {
            empty(reply, s.mount.remove_dir(by, &name).await.map_err(errno));
        });
    }

    fn symlink(&self, req: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let (by, name) = (by(req), self.shared.name(parent, name));
        let target = target.as_os_str().as_bytes().to_vec();
        self.run(0, |s| async move {
            entry(&s, reply, s.mount.make_symlink(by, &name, &target).await);
        });
    }

    fn rename(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let by = by(req);
        let (from, to) = (
            self.shared.name(parent, name),
            self.shared.name(newparent, newname),
        );
        self.run(0, |s| async move {
            let done = match flags {
                f if f.is_empty() => s.mount.rename_name(by, &from, &to).await.map_err(errno),
                RenameFlags::RENAME_NOREPLACE => s.mount.rename_to_free(by, &from, &to).await.map_err(errno),
                _ => Err(Errno::EINVAL),
            };
            empty(reply, done);
        });
    }

    fn link(&self, req: &Request, ino: INodeNo, newparent: INodeNo, newname: &OsStr, reply: ReplyEntry) {
        let (by, name) = (by(req), self.shared.name(newparent, newname));
        self.run(0, |s| async move {
            entry(&s, reply, s.mount.make_link(by, &name, s.ours(ino)).await);
        });
    }

    fn open(&self, req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let by = by(req);
        self.run(0, |s| async move {
            let flags = flags.0 as u32 & open_flag::ACCMODE;
            match s.mount.open_ino(by, s.ours(ino), flags).await {
                Ok((_, file)) => reply.opened(s.add(Handle::File(Arc::new(file))), FopenFlags::empty()),
                Err(e) => reply.error(errno(e)),
            }
        });
    }

    fn create(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let (by, name) = (by(req), self.shared.name(parent, name));
        self.run(0, |s| async move {
            let flags = flags as u32 & (open_flag::ACCMODE | open_flag::EXCL | open_flag::TRUNC);
            match s.mount.create_file(by, &name, mode & 0o7777, flags).await {
                Ok((stat, file)) => {
                    let fh = s.add(Handle::File(Arc::new(file)));
                    reply.created(&TTL, &s.attr(&stat), Generation(0), fh, FopenFlags::empty());
                }
                Err(e) => reply.error(errno(e)),
            }
        });
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.run(u64::from(size), |s| async move {
            let read = async { s.file(fh)?.read(offset, u64::from(size)).await.map_err(errno) };
            match read.await {
                Ok(data) => reply.data(&data),
                Err(e) => reply.error(e),
            }
        });
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        fh: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let data = Bytes::copy_from_slice(data);
        let n = data.len() as u32;
        self.run(u64::from(n), |s| async move {
            let write = async { s.file(fh)?.write(offset, data).await.map_err(errno) };
            match write.await {
                Ok(()) => reply.written(n),
                Err(e) => reply.error(e),
            }
        });
    }

    /// Who closes gives his locks back, and has nothing else to wait for: what was written is durable, and whoever asks for the size has
    /// the server ask us.
    fn flush(&self, _: &Request, _: INodeNo, fh: FileHandle, owner: LockOwner, reply: ReplyEmpty) {
        self.shared.lockers.remove(fh.0, owner.0);
        let file = match self.shared.file(fh) {
            Ok(file) if file.is_locked() => file,
            _ => return reply.ok(),
        };
        self.run(0, |s| async move {
            let done = s.mount.lock(file.ino(), &locks::all_of(owner.0)).await;
            empty(reply, done.map_err(errno));
        });
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        fh: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        let owners = self.shared.lockers.take(fh.0);
        match self.shared.file(fh) {
            Ok(file) if file.is_locked() && !owners.is_empty() => self.run(0, |s| async move {
                s.unlock_all(&file, owners).await;
                s.drop_handle(fh);
            }),
            _ => self.shared.drop_handle(fh),
        }
        reply.ok();
    }

    fn getlk(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        owner: LockOwner,
        start: u64,
        end: u64,
        typ: i32,
        pid: u32,
        reply: ReplyLock,
    ) {
        let wish = match locks::wished(owner.0, pid, (start, end), typ) {
            Ok(wish) => wish,
            Err(e) => return reply.error(e),
        };
        self.run(0, |s| async move {
            match s.mount.lock_in_the_way(s.ours(ino), &wish).await {
                Ok(found) => {
                    let client = s.mount.client().global_id();
                    let (start, end, typ, pid) = locks::shown(found.as_ref(), client);
                    reply.locked(start, end, typ, pid);
                }
                Err(e) => reply.error(errno(e)),
            }
        });
    }

    fn setlk(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        owner: LockOwner,
        start: u64,
        end: u64,
        typ: i32,
        pid: u32,
        sleep: bool,
        reply: ReplyEmpty,
    ) {
        let wish = match locks::wished(owner.0, pid, (start, end), typ) {
            Ok(wish) => wish,
            Err(e) => return reply.error(e),
        };
        self.shared.lockers.add(fh.0, owner.0);
        let thread = sleep.then(|| req.pid());
        self.run(0, |s| async move {
            let done = locks::set(&s.mount, s.ours(ino), &wish, thread).await;
            empty(reply, done.map_err(errno));
        });
    }

    fn fsync(&self, _: &Request, _: INodeNo, fh: FileHandle, _: bool, reply: ReplyEmpty) {
        self.run(0, |s| async move {
            let sync = async { s.file(fh)?.sync().await.map_err(errno) };
            empty(reply, sync.await);
        });
    }

    fn opendir(&self, _: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let ino = self.shared.ours(ino);
        let dir = Dir {
            listing: tokio::sync::Mutex::new(Listing::new(ino)),
            followed: self.shared.mount.follow(ino),
        };
        let fh = self.shared.add(Handle::Dir(Arc::new(dir)));
        reply.opened(fh, FopenFlags::empty());
    }

    fn readdir(&self, _: &Request, _: INodeNo, fh: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        self.run(0, |s| async move {
            let dir = match s.dir(fh) {
                Ok(dir) => dir,
                Err(e) => return reply.error(e),
            };
            let mut listing = dir.listing.lock().await;
            match listing.from(&s.mount, offset).await {
                Ok(names) => {
                    for (n, named) in (offset + 1..).zip(names) {
                        let ino = INodeNo(s.theirs(named.ino));
                        if reply.add(ino, n, named.kind, OsStr::from_bytes(&named.name)) {
                            break;
                        }
                    }
                    reply.ok();
                }
                Err(e) => reply.error(errno(e)),
            }
        });
    }

    fn releasedir(&self, _: &Request, _: INodeNo, fh: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        self.shared.drop_handle(fh);
        reply.ok();
    }

    /// What was changed in it may have been answered before it was durable.
    fn fsyncdir(&self, _: &Request, _: INodeNo, fh: FileHandle, _: bool, reply: ReplyEmpty) {
        self.run(0, |s| async move {
            let sync = async {
                let dir = s.dir(fh)?;
                s.mount.sync_of(&dir.followed).await.map_err(errno)
            };
            empty(reply, sync.await);
        });
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        self.run(0, |s| async move {
            match s.space().await {
                Ok((all, free)) => {
                    let block = u64::from(STATFS_BLOCK);
                    let (all, free) = (all / block, free / block);
                    reply.statfs(all, free, free, 0, 0, STATFS_BLOCK, NAME_MAX, STATFS_BLOCK);
                }
                Err(e) => reply.error(e),
            }
        });
    }

    fn setxattr(
        &self,
        req: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        if is_refused(name) {
            return reply.error(Errno::EOPNOTSUPP);
        }
        let (by, name) = (by(req), name.as_bytes().to_vec());
        let value = Bytes::copy_from_slice(value);
        self.run(value.len() as u64, |s| async move {
            let done = s
                .mount
                .put_xattr(by, s.ours(ino), &name, value, flags as u32)
                .await;
            empty(reply, done.map_err(errno));
        });
    }

    fn getxattr(&self, _: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        if is_refused(name) {
            // The kernel asks before each write: no server is asked.
            return reply.error(match name.as_bytes() {
                b"security.capability" => Errno::ENODATA,
                _ => Errno::EOPNOTSUPP,
            });
        }
        let name = name.as_bytes().to_vec();
        self.run(0, |s| async move {
            match s.mount.getattr(s.ours(ino)).await {
                Ok(stat) => match stat.xattrs.unwrap_or_default().get(&name[..]) {
                    Some(value) => give(reply, size, value),
                    None => reply.error(Errno::ENODATA),
                },
                Err(e) => reply.error(errno(e)),
            }
        });
    }

    fn listxattr(&self, _: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        self.run(0, |s| async move {
            match s.mount.getattr(s.ours(ino)).await {
                Ok(stat) => {
                    let names = stat.xattrs.unwrap_or_default();
                    let list: Vec<u8> = names.keys().flat_map(|n| [&n[..], b"\0"].concat()).collect();
                    give(reply, size, &list);
                }
                Err(e) => reply.error(errno(e)),
            }
        });
    }

    fn removexattr(&self, req: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        if is_refused(name) {
            return reply.error(Errno::EOPNOTSUPP);
        }
        let (by, name) = (by(req), name.as_bytes().to_vec());
        self.run(0, |s| async move {
            let done = s.mount.remove_xattr(by, s.ours(ino), &name).await;
            empty(reply, done.map_err(errno));
        });
    }

    /// Room is not kept for anybody, so nobody is told that it was.
    fn fallocate(
        &self,
        _: &Request,
        _: INodeNo,
        fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let extends = match mode {
            m if m == PUNCH_HOLE | KEEP_SIZE || m == ZERO_RANGE | KEEP_SIZE => false,
            ZERO_RANGE => true,
            _ => return reply.error(Errno::EOPNOTSUPP),
        };
        self.run(0, |s| async move {
            let zero = async { s.zero(&*s.file(fh)?, offset, length, extends).await };
            empty(reply, zero.await);
        });
    }

    /// The kernel knows the other ways itself.
    fn lseek(
        &self,
        _: &Request,
        _: INodeNo,
        fh: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let data = match whence {
            SEEK_DATA => true,
            SEEK_HOLE => false,
            _ => return reply.error(Errno::EINVAL),
        };
        let Ok(offset) = u64::try_from(offset) else {
            return reply.error(Errno::ENXIO);
        };
        self.run(0, |s| async move {
            let seek = async { s.file(fh)?.seek(offset, data).await.map_err(errno) };
            match seek.await.map(i64::try_from) {
                Ok(Ok(found)) => reply.offset(found),
                Ok(Err(_)) => reply.error(Errno::EOVERFLOW),
                Err(e) => reply.error(e),
            }
        });
    }

    /// The kernel reads and writes, then.
    fn copy_file_range(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        _: u64,
        _: fuser::CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        reply.error(Errno::ENOSYS);
    }
}
