//! What all operations of a mount share: numbers and names as the kernel and as the server have them, handles, errors.

use crate::acl::{self, Acl};
use crate::attr;
use crate::dir::{Dir, Listing, Of};
use crate::locks;
use crate::snaps::{self, Place, Snaps};
use bytes::Bytes;
use cephfs::{By, File, Mount, Name};
use fuser::{Errno, FileHandle, Generation, INodeNo, ReplyEmpty, ReplyEntry, ReplyXattr, Request};
use messages::fs::{InodeStat, SetAttr, Xattrs, open_flag, setattr, xattr_flag};
use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The kernel's number of what is mounted.
const ROOT: u64 = 1;
/// Nothing is trusted without asking: nobody tells the kernel of what others change.
pub const TTL: Duration = Duration::ZERO;
/// Zeros of one step, between which others get the file.
const ZERO_MAX: u64 = 64 << 20;

pub type Answer<T> = Result<T, Errno>;

enum Handle {
    File(Arc<File>),
    /// In a snapshot, where nothing changes.
    Old(Arc<InodeStat>),
    Dir(Arc<Dir>),
}

/// What a handle of a file stands for.
pub enum Opened {
    Now(Arc<File>),
    Old(Arc<InodeStat>),
}

/// What tasks share.
pub struct Shared {
    pub mount: Mount,
    /// The server's number of what is mounted.
    root: u64,
    handles: Mutex<HashMap<u64, Handle>>,
    last: AtomicU64,
    pub lockers: locks::Owners,
    pub waiting: locks::Waiting,
    pub snaps: Snaps,
    /// The kernel obeys access control lists, and leaves umasks to us.
    pub has_acls: AtomicBool,
}

/// What chmod sets.
const MODE: u32 = 0o7777;
const SET_GROUP: u32 = 0o2000;

pub fn errno(e: client::Error) -> Errno {
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

pub fn by(req: &Request) -> By {
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
            waiting: locks::Waiting::default(),
            snaps: Snaps::default(),
            has_acls: AtomicBool::new(false),
        })
    }

    fn ours(&self, ino: INodeNo) -> u64 {
        if ino.0 == ROOT { self.root } else { ino.0 }
    }

    pub fn theirs(&self, ino: u64) -> u64 {
        if ino == self.root { ROOT } else { ino }
    }

    /// Of what may be changed.
    pub fn live(&self, ino: INodeNo) -> Answer<u64> {
        match self.snaps.at(ino.0)? {
            None => Ok(self.ours(ino)),
            Some(_) => Err(Errno::EROFS),
        }
    }

    /// A name that may be made, moved or removed.
    pub fn name(&self, dir: INodeNo, name: &OsStr) -> Answer<Name> {
        match name.as_bytes() {
            snaps::NAME => Err(Errno::EPERM),
            name => Ok(Name::new(self.live(dir)?, name)),
        }
    }

    /// A name in `.snap`: None: somewhere else.
    pub fn snap_name(&self, dir: INodeNo, name: &OsStr) -> Answer<Option<Place>> {
        let place = self.snaps.at(dir.0)?.filter(Place::is_snap_dir);
        place.map(|p| p.child(name.as_bytes())).transpose()
    }

    pub fn of(&self, ino: INodeNo) -> Answer<Of> {
        Ok(match self.snaps.at(ino.0)? {
            None => Of::Now(self.ours(ino)),
            Some(place) => Of::Snap(place),
        })
    }

    pub async fn stat(&self, ino: INodeNo) -> Answer<InodeStat> {
        let told = match self.of(ino)? {
            Of::Now(ino) => self.mount.getattr(ino).await,
            Of::Snap(place) if place.is_snap_dir() => self.mount.getattr(place.dir).await,
            Of::Snap(place) => self.mount.stat_snapped(place.dir, &place.path).await,
        };
        told.map_err(errno)
    }

    /// Nothing else has to be exact, so no writer is asked.
    pub async fn xattrs(&self, ino: INodeNo) -> Answer<Xattrs> {
        match self.of(ino)? {
            Of::Now(ino) => self.mount.xattrs_of(ino).await.map_err(errno),
            Of::Snap(_) => Ok(self.stat(ino).await?.xattrs.unwrap_or_default()),
        }
    }

    /// With the number under which the kernel hears of it.
    pub async fn look_up(&self, by: By, dir: INodeNo, name: &OsStr) -> Answer<(u64, InodeStat)> {
        let name = name.as_bytes();
        let place = match self.of(dir)? {
            Of::Now(dir) if name == snaps::NAME => Place::snap_dir(dir),
            Of::Now(dir) => {
                let told = self.mount.lookup(by, &Name::new(dir, name)).await;
                let stat = told.map_err(errno)?;
                return Ok((self.theirs(stat.ino), stat));
            }
            Of::Snap(place) => place.child(name)?,
        };
        if place.is_snap_dir() {
            let stat = self.mount.getattr(place.dir).await.map_err(errno)?;
            return Ok((self.snaps.tell((place.dir, snaps::ITSELF), place)?, stat));
        }
        self.in_snap(place).await
    }

    pub async fn in_snap(&self, place: Place) -> Answer<(u64, InodeStat)> {
        let told = self.mount.stat_snapped(place.dir, &place.path).await;
        let stat = told.map_err(errno)?;
        Ok((self.snaps.tell((stat.ino, stat.snapid), place)?, stat))
    }

    // Access control lists

    /// The mode and the attributes of what is made in a directory.
    pub async fn fresh(&self, dir: u64, mode: u32, umask: u32, is_dir: bool) -> Answer<(u32, Xattrs)> {
        if !self.has_acls.load(Ordering::Relaxed) {
            // The kernel has taken the umask away.
            return Ok((mode, Xattrs::new()));
        }
        let above = self.mount.xattrs_of(dir).await.map_err(errno)?;
        Ok(acl::fresh(&above, mode, umask, is_dir))
    }

    pub async fn set_attr(&self, by: By, ino: INodeNo, set: &SetAttr) -> Answer<InodeStat> {
        if set.mask == 0 {
            return self.stat(ino).await;
        }
        let ino = self.live(ino)?;
        let stat = self.mount.setattr_of(by, ino, set).await.map_err(errno)?;
        if set.mask & setattr::MODE != 0 {
            self.chmod_list(by, ino, &stat).await?;
        }
        Ok(stat)
    }

    /// A mode was changed, and with it the list: read at the last moment, as another mount may change it; one that it has removed stays
    /// away.
    async fn chmod_list(&self, by: By, ino: u64, stat: &InodeStat) -> Answer<()> {
        if stat
            .xattrs
            .as_ref()
            .is_some_and(|all| !all.contains_key(acl::ACCESS))
        {
            return Ok(());
        }
        let xattrs = self.mount.xattrs_of(ino).await.map_err(errno)?;
        let Some(value) = acl::after_chmod(&xattrs, stat.mode) else {
            return Ok(());
        };
        let done = self
            .mount
            .put_xattr(by, ino, acl::ACCESS, value, xattr_flag::REPLACE);
        match done.await {
            Err(e) if e.errno() == types::Errno::ENODATA => Ok(()),
            done => done.map_err(errno),
        }
    }

    /// The mode says what the list says; a list that a mode can say is none.
    async fn set_access(&self, by: By, ino: u64, value: Bytes, flags: u32) -> Answer<()> {
        let list = Acl::parse(&value)?;
        let stat = self.mount.getattr(ino).await.map_err(errno)?;
        let mut mode = stat.mode & MODE & !0o777 | list.mode();
        if by.uid != 0 && by.gid != stat.gid {
            mode &= !SET_GROUP;
        }
        let set = SetAttr {
            mode,
            mask: setattr::MODE,
            ..SetAttr::default()
        };
        // Where it is interrupted between the two, nobody may do more than before or afterwards.
        if list.is_mode() {
            self.mount.setattr_of(by, ino, &set).await.map_err(errno)?;
            return self.remove_acl(by, ino, acl::ACCESS).await;
        }
        let done = self.mount.put_xattr(by, ino, acl::ACCESS, value, flags).await;
        done.map_err(errno)?;
        self.mount
            .setattr_of(by, ino, &set)
            .await
            .map_err(errno)
            .map(drop)
    }

    /// It may not be there.
    async fn remove_acl(&self, by: By, ino: u64, name: &[u8]) -> Answer<()> {
        match self.mount.remove_xattr(by, ino, name).await {
            Err(e) if e.errno() == types::Errno::ENODATA => Ok(()),
            done => done.map_err(errno),
        }
    }

    pub async fn put_xattr(&self, by: By, ino: INodeNo, name: &[u8], value: Bytes, flags: u32) -> Answer<()> {
        let ino = self.live(ino)?;
        match name {
            acl::ACCESS => return self.set_access(by, ino, value, flags).await,
            acl::DEFAULT => drop(Acl::parse(&value)?),
            _ => {}
        }
        let done = self.mount.put_xattr(by, ino, name, value, flags).await;
        done.map_err(errno)
    }

    pub async fn drop_xattr(&self, by: By, ino: INodeNo, name: &[u8]) -> Answer<()> {
        let ino = self.live(ino)?;
        match name {
            acl::ACCESS | acl::DEFAULT => self.remove_acl(by, ino, name).await,
            _ => self.mount.remove_xattr(by, ino, name).await.map_err(errno),
        }
    }

    /// Names that are no one's to keep: lists that would not be obeyed, capabilities of programs.
    pub fn refuses(&self, name: &OsStr) -> bool {
        match name.as_bytes() {
            acl::ACCESS | acl::DEFAULT => !self.has_acls.load(Ordering::Relaxed),
            name => name.starts_with(b"system.") || name == b"security.capability",
        }
    }

    /// A handle on it.
    pub async fn open(&self, by: By, ino: INodeNo, flags: u32) -> Answer<FileHandle> {
        let handle = match self.of(ino)? {
            Of::Now(ino) => {
                let (_, file) = self.mount.open_ino(by, ino, flags).await.map_err(errno)?;
                Handle::File(Arc::new(file))
            }
            Of::Snap(_) if flags & open_flag::ACCMODE != 0 => return Err(Errno::EROFS),
            Of::Snap(_) => Handle::Old(Arc::new(self.stat(ino).await?)),
        };
        Ok(self.add(handle))
    }

    pub fn open_dir(&self, ino: INodeNo) -> Answer<FileHandle> {
        let of = self.of(ino)?;
        let dir = Dir {
            followed: self.mount.follow(of.ino()),
            listing: tokio::sync::Mutex::new(Listing::new(of)),
        };
        Ok(self.add(Handle::Dir(Arc::new(dir))))
    }

    pub fn add_file(&self, file: File) -> FileHandle {
        self.add(Handle::File(Arc::new(file)))
    }

    fn handles(&self) -> MutexGuard<'_, HashMap<u64, Handle>> {
        self.handles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, handle: Handle) -> FileHandle {
        let n = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        self.handles().insert(n, handle);
        FileHandle(n)
    }

    pub fn opened(&self, fh: FileHandle) -> Answer<Opened> {
        match self.handles().get(&fh.0) {
            Some(Handle::File(f)) => Ok(Opened::Now(f.clone())),
            Some(Handle::Old(s)) => Ok(Opened::Old(s.clone())),
            _ => Err(Errno::EBADF),
        }
    }

    pub fn file(&self, fh: FileHandle) -> Answer<Arc<File>> {
        match self.opened(fh)? {
            Opened::Now(file) => Ok(file),
            Opened::Old(_) => Err(Errno::EBADF),
        }
    }

    pub fn dir(&self, fh: FileHandle) -> Answer<Arc<Dir>> {
        match self.handles().get(&fh.0) {
            Some(Handle::Dir(d)) => Ok(d.clone()),
            _ => Err(Errno::EBADF),
        }
    }

    pub async fn read(&self, fh: FileHandle, offset: u64, length: u64) -> Answer<Bytes> {
        let data = match self.opened(fh)? {
            Opened::Now(file) => file.read(offset, length).await,
            Opened::Old(stat) => self.mount.read_snapped(&stat, offset, length).await,
        };
        data.map_err(errno)
    }

    pub async fn seek(&self, fh: FileHandle, offset: u64, data: bool) -> Answer<u64> {
        match self.opened(fh)? {
            Opened::Now(file) => file.seek(offset, data).await.map_err(errno),
            Opened::Old(stat) if offset >= stat.size => Err(Errno::ENXIO),
            // All of it is taken for data.
            Opened::Old(stat) => Ok(if data { offset } else { stat.size }),
        }
    }

    /// Who took a lock by this handle, and is not known to have closed it, has it no more.
    pub async fn unlock_all(&self, file: &File, owners: BTreeSet<u64>) {
        for owner in owners {
            if file.is_locked()
                && let Err(e) = file.lock(&locks::all_of(owner)).await
            {
                tracing::warn!("a lock of inode {:x} cannot be given back: {e}", file.ino());
            }
        }
    }

    pub fn drop_handle(&self, fh: FileHandle) {
        // The file is closed outside of the lock.
        let gone = self.handles().remove(&fh.0);
        drop(gone);
    }

    /// The kernel is gone.
    pub fn close_all(&self) {
        let all = std::mem::take(&mut *self.handles());
        drop(all);
    }

    pub async fn space(&self) -> Answer<(u64, u64)> {
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

    pub async fn zero(&self, file: &File, offset: u64, length: u64, extends: bool) -> Answer<()> {
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

pub fn give(reply: ReplyXattr, size: u32, value: &[u8]) {
    if size == 0 {
        reply.size(value.len() as u32);
    } else if value.len() > size as usize {
        reply.error(Errno::ERANGE);
    } else {
        reply.data(value);
    }
}

/// Of a live inode.
pub fn entry(shared: &Shared, reply: ReplyEntry, told: Answer<InodeStat>) {
    numbered(reply, told.map(|stat| (shared.theirs(stat.ino), stat)));
}

/// Under the kernel's number.
pub fn numbered(reply: ReplyEntry, told: Answer<(u64, InodeStat)>) {
    match told {
        Ok((number, stat)) => reply.entry(&TTL, &attr::of_stat(&stat, number), Generation(0)),
        Err(e) => reply.error(e),
    }
}

pub fn empty(reply: ReplyEmpty, done: Answer<()>) {
    match done {
        Ok(()) => reply.ok(),
        Err(e) => reply.error(e),
    }
}
