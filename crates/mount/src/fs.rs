//! The kernel's operations, each a task of its own: one that waits holds no other up.

use crate::attr;
use crate::locks;
use crate::room::Room;
use crate::shared::{Answer, Opened, Shared, TTL, by, empty, entry, errno, give, numbered};
use bytes::Bytes;
use cephfs::By;
use fuser::{
    Errno, FileHandle, Filesystem, FopenFlags, Generation, INodeNo, InitFlags, KernelConfig, LockOwner,
    OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry,
    ReplyLock, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use io::task::Background;
use messages::fs::open_flag;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

/// The largest write of one operation.
const WRITE_MAX: u32 = 1 << 20;
/// Reads ahead, and reads and writes past the page cache, under way at once.
const BACKGROUND_MAX: u16 = 64;
const NAME_MAX: u32 = 255;
const STATFS_BLOCK: u32 = 4096;

/// Of fallocate(2).
const KEEP_SIZE: i32 = 1;
const PUNCH_HOLE: i32 = 2;
const ZERO_RANGE: i32 = 0x10;

/// Of lseek(2).
const SEEK_DATA: i32 = 3;
const SEEK_HOLE: i32 = 4;

pub struct Files {
    shared: Arc<Shared>,
    background: Background,
    room: Room,
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

/// From a name to another; of a snapshot within its directory's `.snap`.
async fn rename(
    s: &Shared,
    by: By,
    from: (INodeNo, &OsStr),
    to: (INodeNo, &OsStr),
    flags: RenameFlags,
) -> Answer<()> {
    if !flags.is_empty() && flags != RenameFlags::RENAME_NOREPLACE {
        return Err(Errno::EINVAL);
    }
    let places = (s.snap_name(from.0, from.1)?, s.snap_name(to.0, to.1)?);
    let done = match places {
        (Some(a), Some(b)) if a.dir != b.dir => return Err(Errno::EXDEV),
        // No snapshot takes another's place, whatever the flags.
        (Some(a), Some(b)) => s.mount.rename_snap(by, a.dir, &a.path, &b.path).await,
        _ => {
            let (from, to) = (s.name(from.0, from.1)?, s.name(to.0, to.1)?);
            match flags.is_empty() {
                true => s.mount.rename_name(by, &from, &to).await,
                false => s.mount.rename_to_free(by, &from, &to).await,
            }
        }
    };
    done.map_err(errno)
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
        // The kernel obeys access control lists; who inherits which is for us, and so are umasks.
        let acls = InitFlags::FUSE_POSIX_ACL | InitFlags::FUSE_DONT_MASK;
        let has_acls = config.add_capabilities(acls).is_ok();
        self.shared.has_acls.store(has_acls, Ordering::Relaxed);
        let _ = config.set_max_write(WRITE_MAX);
        let _ = config.set_max_background(BACKGROUND_MAX);
        Ok(())
    }

    fn lookup(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let (by, name) = (by(req), name.to_owned());
        self.run(0, |s| async move {
            numbered(reply, s.look_up(by, parent, &name).await);
        });
    }

    fn forget(&self, _: &Request, ino: INodeNo, times: u64) {
        self.shared.snaps.forget(ino.0, times);
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        self.run(0, |s| async move {
            match s.stat(ino).await {
                Ok(stat) => reply.attr(&TTL, &attr::of_stat(&stat, ino.0)),
                Err(e) => reply.error(e),
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
            match s.set_attr(by, ino, &set).await {
                Ok(stat) => reply.attr(&TTL, &attr::of_stat(&stat, ino.0)),
                Err(e) => reply.error(e),
            }
        });
    }

    fn readlink(&self, _: &Request, ino: INodeNo, reply: ReplyData) {
        self.run(0, |s| async move {
            match s.stat(ino).await {
                Ok(stat) => reply.data(&stat.symlink),
                Err(e) => reply.error(e),
            }
        });
    }

    fn mknod(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let (by, name) = (by(req), name.to_owned());
        self.run(0, |s| async move {
            let made = async {
                let name = s.name(parent, &name)?;
                let (mode, xattrs) = s.fresh(name.dir, mode, umask, false).await?;
                let made = s.mount.make_node(by, &name, (mode, &xattrs), rdev).await;
                made.map_err(errno)
            };
            entry(&s, reply, made.await);
        });
    }

    fn mkdir(&self, req: &Request, parent: INodeNo, name: &OsStr, mode: u32, umask: u32, reply: ReplyEntry) {
        let (by, name) = (by(req), name.to_owned());
        self.run(0, |s| async move {
            let made = async {
                if let Some(place) = s.snap_name(parent, &name)? {
                    let done = s.mount.make_snap(by, place.dir, &place.path).await;
                    done.map_err(errno)?;
                    return s.in_snap(place).await;
                }
                let name = s.name(parent, &name)?;
                let (mode, xattrs) = s.fresh(name.dir, mode, umask, true).await?;
                let made = s.mount.make_dir(by, &name, (mode, &xattrs)).await;
                let stat = made.map_err(errno)?;
                Ok((s.theirs(stat.ino), stat))
            };
            numbered(reply, made.await);
        });
    }

    fn unlink(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (by, name) = (by(req), name.to_owned());
        self.run(0, |s| async move {
            let done = async {
                let name = s.name(parent, &name)?;
                s.mount.remove_name(by, &name).await.map_err(errno)
            };
            empty(reply, done.await);
        });
    }

    fn rmdir(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (by, name) = (by(req), name.to_owned());
        self.run(0, |s| async move {
            let done = async {
                let done = match s.snap_name(parent, &name)? {
                    Some(place) => s.mount.remove_snap(by, place.dir, &place.path).await,
                    None => s.mount.remove_dir(by, &s.name(parent, &name)?).await,
                };
                done.map_err(errno)
            };
            empty(reply, done.await);
        });
    }

    fn symlink(&self, req: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let (by, name) = (by(req), name.to_owned());
        let target = target.as_os_str().as_bytes().to_vec();
        self.run(0, |s| async move {
            let made = async {
                let name = s.name(parent, &name)?;
                s.mount.make_symlink(by, &name, &target).await.map_err(errno)
            };
            entry(&s, reply, made.await);
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
        let (name, newname) = (name.to_owned(), newname.to_owned());
        self.run(0, |s| async move {
            let done = rename(&s, by, (parent, &name), (newparent, &newname), flags).await;
            empty(reply, done);
        });
    }

    fn link(&self, req: &Request, ino: INodeNo, newparent: INodeNo, newname: &OsStr, reply: ReplyEntry) {
        let (by, name) = (by(req), newname.to_owned());
        self.run(0, |s| async move {
            let made = async {
                let (name, ino) = (s.name(newparent, &name)?, s.live(ino)?);
                s.mount.make_link(by, &name, ino).await.map_err(errno)
            };
            entry(&s, reply, made.await);
        });
    }

    fn open(&self, req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let by = by(req);
        self.run(0, |s| async move {
            let flags = flags.0 as u32 & open_flag::ACCMODE;
            match s.open(by, ino, flags).await {
                Ok(fh) => reply.opened(fh, FopenFlags::empty()),
                Err(e) => reply.error(e),
            }
        });
    }

    fn create(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let (by, name) = (by(req), name.to_owned());
        self.run(0, |s| async move {
            let flags = flags as u32 & (open_flag::ACCMODE | open_flag::EXCL | open_flag::TRUNC);
            let made = async {
                let name = s.name(parent, &name)?;
                let (mode, xattrs) = s.fresh(name.dir, mode & 0o7777, umask, false).await?;
                let made = s.mount.create_file_with(by, &name, (mode, &xattrs), flags).await;
                made.map_err(errno)
            };
            match made.await {
                Ok((stat, file)) => {
                    let attr = attr::of_stat(&stat, s.theirs(stat.ino));
                    reply.created(&TTL, &attr, Generation(0), s.add_file(file), FopenFlags::empty());
                }
                Err(e) => reply.error(e),
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
            match s.read(fh, offset, u64::from(size)).await {
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
    /// the server ask us. Who never locked is not to wait for a server that is away.
    fn flush(&self, _: &Request, _: INodeNo, fh: FileHandle, owner: LockOwner, reply: ReplyEmpty) {
        let may_hold = self.shared.lockers.closes(fh.0, owner.0);
        let file = match self.shared.file(fh) {
            Ok(file) if may_hold && file.is_locked() => file,
            _ => return reply.ok(),
        };
        self.run(0, |_| async move {
            let done = file.lock(&locks::all_of(owner.0)).await;
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
            let found = async {
                let ino = s.live(ino)?;
                s.mount.lock_in_the_way(ino, &wish).await.map_err(errno)
            };
            match found.await {
                Ok(found) => {
                    let client = s.mount.client().global_id();
                    let (start, end, typ, pid) = locks::shown(found.as_ref(), client);
                    reply.locked(start, end, typ, pid);
                }
                Err(e) => reply.error(e),
            }
        });
    }

    fn setlk(
        &self,
        req: &Request,
        _: INodeNo,
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
            let done = async {
                let file = s.file(fh)?;
                locks::set(&file, &wish, thread, &s.waiting).await.map_err(errno)
            };
            empty(reply, done.await);
        });
    }

    fn fsync(&self, _: &Request, _: INodeNo, fh: FileHandle, _: bool, reply: ReplyEmpty) {
        self.run(0, |s| async move {
            let done = match s.opened(fh) {
                Ok(Opened::Now(file)) => file.sync().await.map_err(errno),
                Ok(Opened::Old(_)) => Ok(()),
                Err(e) => Err(e),
            };
            empty(reply, done);
        });
    }

    fn opendir(&self, _: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.shared.open_dir(ino) {
            Ok(fh) => reply.opened(fh, FopenFlags::empty()),
            Err(e) => reply.error(e),
        }
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
        if self.shared.refuses(name) {
            return reply.error(Errno::EOPNOTSUPP);
        }
        let (by, name) = (by(req), name.as_bytes().to_vec());
        let value = Bytes::copy_from_slice(value);
        self.run(value.len() as u64, |s| async move {
            empty(reply, s.put_xattr(by, ino, &name, value, flags as u32).await);
        });
    }

    fn getxattr(&self, _: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        if self.shared.refuses(name) {
            // The kernel asks before each write: no server is asked.
            return reply.error(match name.as_bytes() {
                b"security.capability" => Errno::ENODATA,
                _ => Errno::EOPNOTSUPP,
            });
        }
        let name = name.as_bytes().to_vec();
        self.run(0, |s| async move {
            match s.xattrs(ino).await {
                Ok(all) => match all.get(&name[..]) {
                    Some(value) => give(reply, size, value),
                    None => reply.error(Errno::ENODATA),
                },
                Err(e) => reply.error(e),
            }
        });
    }

    fn listxattr(&self, _: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        self.run(0, |s| async move {
            match s.xattrs(ino).await {
                Ok(names) => {
                    let list: Vec<u8> = names.keys().flat_map(|n| [&n[..], b"\0"].concat()).collect();
                    give(reply, size, &list);
                }
                Err(e) => reply.error(e),
            }
        });
    }

    fn removexattr(&self, req: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        if self.shared.refuses(name) {
            return reply.error(Errno::EOPNOTSUPP);
        }
        let (by, name) = (by(req), name.as_bytes().to_vec());
        self.run(0, |s| async move {
            empty(reply, s.drop_xattr(by, ino, &name).await);
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
    fn lseek(&self, _: &Request, _: INodeNo, fh: FileHandle, offset: i64, whence: i32, reply: ReplyLseek) {
        let data = match whence {
            SEEK_DATA => true,
            SEEK_HOLE => false,
            _ => return reply.error(Errno::EINVAL),
        };
        let Ok(offset) = u64::try_from(offset) else {
            return reply.error(Errno::ENXIO);
        };
        self.run(0, |s| async move {
            match s.seek(fh, offset, data).await.map(i64::try_from) {
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
