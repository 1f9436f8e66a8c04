//! What makes new inodes: MKDIR, MKNOD, SYMLINK, CREATE; and OPEN.

use super::paths::Named;
use super::{Answer, READ, Request, WRITE, default_layout, done_before};
use crate::machine::caps::NAMES;
use crate::machine::delegated::is_async;
use crate::machine::{Machine, Result, Stop, Tx, all};
use crate::row::{Dentry, Inode, Key, Row, S_IFDIR, S_IFLNK, S_IFMT, S_IFREG, Sums};
use bytes::Bytes;
use denc::Decode;
use messages::fs::{Layout, Xattrs, cap, op, open_flag, request_flag};
use types::Errno;

const S_ISGID: u32 = 0o2000;
/// Text of a symbolic link; what a kernel takes.
const SYMLINK_MAX: usize = 4096;

/// What the new inode is to be.
pub(crate) struct Making {
    pub mode: u32,
    pub rdev: u32,
    pub symlink: Bytes,
    pub layout: Option<Layout>,
}

impl Making {
    fn of_mode(mode: u32) -> Self {
        Self {
            mode,
            rdev: 0,
            symlink: Bytes::new(),
            layout: None,
        }
    }
}

/// Bits of capabilities that a file opened like this is used with.
fn wanted(flags: u32) -> u32 {
    let read = cap::PIN | cap::FS | cap::FC | cap::FR;
    let write = cap::PIN | cap::AS | cap::AX | cap::XS | cap::XX | cap::FX | cap::FW | cap::FB;
    match flags & open_flag::ACCMODE {
        open_flag::WRONLY => write,
        open_flag::RDWR => read | write,
        _ => read,
    }
}

fn writes(flags: u32) -> bool {
    flags & open_flag::ACCMODE != 0
}

impl Machine {
    pub(crate) fn mkdir(&mut self, r: &mut Request) -> Result<Answer> {
        let mode = S_IFDIR | r.m.args.u32_at(0) & 0o7777;
        self.make(r, Making::of_mode(mode))
    }

    pub(crate) fn mknod(&mut self, r: &mut Request) -> Result<Answer> {
        let mode = r.m.args.u32_at(0);
        let kind = if mode & S_IFMT == 0 {
            S_IFREG
        } else {
            mode & S_IFMT
        };
        if kind == S_IFDIR || kind == S_IFLNK {
            return Err(Errno::EINVAL.into());
        }
        let rdev = r.m.args.u32_at(4);
        let making = Making {
            rdev,
            ..Making::of_mode(kind | mode & 0o7777)
        };
        self.make(r, making)
    }

    pub(crate) fn symlink(&mut self, r: &mut Request) -> Result<Answer> {
        let symlink = r.m.path2.path.clone();
        if symlink.len() > SYMLINK_MAX {
            return Err(Errno::ENAMETOOLONG.into());
        }
        let making = Making {
            symlink,
            ..Making::of_mode(S_IFLNK | 0o777)
        };
        self.make(r, making)
    }

    fn make(&mut self, r: &mut Request, making: Making) -> Result<Answer> {
        let named = self.named_live(&r.m.path.clone())?;
        self.check_access(r, &named.dir.inode, Some(&named.name), WRITE)?;
        if named.dentry.is_some() {
            return Err(Errno::EEXIST.into());
        }
        let ino = self.make_inode(r, &named, making, false)?;
        self.named_answer(r, named.dir.inode.ino, &named.name, Some(ino))
    }

    /// Makes the inode and its name, durable with the answer.
    fn make_inode(&mut self, r: &mut Request, named: &Named, making: Making, opened: bool) -> Result<u64> {
        let dir = named.dir.inode.clone();
        let is_dir = making.mode & S_IFMT == S_IFDIR;
        let layout = match (making.layout, is_dir) {
            (Some(layout), _) => (layout, String::new()),
            (None, true) => (Layout::default(), String::new()),
            (None, false) => self.inherited_layout(&dir)?,
        };
        self.realms_of(&dir)?;
        self.check_one_more(r, &dir)?;
        all([
            self.withhold(r, dir.ino, NAMES, Some(r.client)),
            self.take_names(r, &[(dir.ino, &named.name)], Some(r.client)),
        ])?;
        let first = self.next_snap_of(&dir)?;
        let dir = self.inode(dir.ino)?;
        let xattrs = match r.m.data.is_empty() || !making.symlink.is_empty() {
            true => Xattrs::default(),
            false => Xattrs::from_bytes(&r.m.data).map_err(|_| Errno::EINVAL)?,
        };
        let mut tx = Tx::default();
        let ino = match (r.is_replay, is_async(r)) {
            (true, _) => self.replayed_ino(r.client, r.m.ino)?,
            (false, true) => self.given_ino(r)?,
            (false, false) => self.new_ino(&mut tx),
        };
        let place = (ino, first);
        let mut inode = new_inode(r, &dir, &named.name, making, (layout, xattrs), place);
        let stamp = r.stamp();
        if opened && writes(r.m.args.u32_at(0)) {
            inode.max_size = Self::first_room(&inode);
            self.mark_writing(&mut tx, ino);
        }
        self.keep_inode(&mut tx, &dir)?;
        let mut changed = Inode::clone(&dir);
        add_name(&mut changed, &inode, stamp);
        tx.inode(changed);
        let dentry = Dentry { ino, first, is_dir };
        tx.put(Key::dentry(dir.ino, &named.name), Row::Dentry(dentry));
        self.mark_trace(&mut tx, &inode);
        tx.inode(inode);
        self.restock(r, &mut tx, ino);
        self.commit_request(r, tx, ino);
        if is_dir {
            self.table.is_new_dir(ino);
        }
        self.tell_quota(dir.ino);
        Ok(ino)
    }

    /// That a quota allows it; what is carried out again was allowed before.
    pub(crate) fn check_one_more(&mut self, r: &Request, dir: &Inode) -> Result<()> {
        match r.is_replay {
            true => Ok(()),
            false => self.check_quota(dir, 0, 1),
        }
    }

    /// Of the nearest directory above that has one.
    pub(crate) fn inherited_layout(&mut self, dir: &Inode) -> Result<(Layout, String)> {
        if dir.layout.is_set() {
            return Ok((dir.layout, dir.pool_ns.clone()));
        }
        for above in self.ancestors(dir)? {
            if above.layout.is_set() {
                return Ok((above.layout, above.pool_ns.clone()));
            }
        }
        Ok((default_layout(&self.place), String::new()))
    }

    /// A layout as a request wants it, over what would be inherited.
    fn wanted_layout(&mut self, r: &Request, dir: &Inode) -> Result<Option<Layout>> {
        let a = r.m.args;
        let (unit, count, size, pool) = (a.u32_at(8), a.u32_at(12), a.u32_at(16), a.u32_at(20) as i32);
        if unit == 0 && count == 0 && size == 0 && pool < 0 {
            return Ok(None);
        }
        let (mut layout, _) = self.inherited_layout(dir)?;
        let set = |field: &mut u32, v: u32| {
            if v != 0 {
                *field = v;
            }
        };
        set(&mut layout.stripe_unit, unit);
        set(&mut layout.stripe_count, count);
        set(&mut layout.object_size, size);
        if pool >= 0 {
            layout.pool = pool as u32;
        }
        self.check_layout(&layout)?;
        Ok(Some(layout))
    }

    pub(crate) fn create_file(&mut self, r: &mut Request) -> Result<Answer> {
        let named = self.named_live(&r.m.path.clone())?;
        let flags = r.m.args.u32_at(0);
        self.check_access(r, &named.dir.inode, Some(&named.name), WRITE)?;
        if let Some(dentry) = named.dentry {
            if flags & open_flag::EXCL != 0 {
                return Err(Errno::EEXIST.into());
            }
            let ino = dentry.ino;
            self.open_inode(r, ino, flags)?;
            return self.named_answer(r, named.dir.inode.ino, &named.name, Some(ino));
        }
        let layout = self.wanted_layout(r, &named.dir.inode)?;
        let mode = S_IFREG | r.m.args.u32_at(4) & 0o7777;
        let making = Making {
            layout,
            ..Making::of_mode(mode)
        };
        let ino = self.make_inode(r, &named, making, true)?;
        self.want(r.client, ino, wanted(flags));
        if is_async(r) {
            self.as_made_by(r.client, ino);
        }
        let mut answer = self.named_answer(r, named.dir.inode.ino, &named.name, Some(ino))?;
        answer.extra = Bytes::copy_from_slice(&ino.to_le_bytes());
        Ok(answer)
    }

    pub(crate) fn open_file(&mut self, r: &mut Request) -> Result<Answer> {
        let flags = r.m.args.u32_at(0);
        let at = self.at(&r.m.path.clone())?;
        let changes = writes(flags) || flags & open_flag::TRUNC != 0;
        if changes {
            Self::is_live(at.snap)?;
        }
        self.check_at(r, &at, None, if changes { WRITE } else { READ })?;
        if at.snap != crate::row::NOSNAP {
            return self.getattr_in_snap(r, &at);
        }
        self.open_inode(r, at.inode.ino, flags)?;
        let inode = self.inode(at.inode.ino)?;
        if r.m.flags & request_flag::WANT_DENTRY != 0 && !r.m.path.path.is_empty() {
            // The name that was asked for: a kernel takes whichever comes for that.
            let named = self.named(&r.m.path.clone())?;
            return self.named_answer(r, named.dir.inode.ino, &named.name, Some(inode.ino));
        }
        Ok(self.target(r, &inode))
    }

    /// An opening that was carried out, whose answer was lost. It needs one with capabilities: what a client has open it does not
    /// ask for a second time, and its first write would wait for ever.
    pub(crate) fn open_again(&mut self, r: &mut Request, made: u64) -> Result<Answer> {
        let flags = r.m.args.u32_at(0) & !(open_flag::TRUNC | open_flag::EXCL | open_flag::CREAT);
        let named = match r.m.op {
            op::CREATE => match self.named_live(&r.m.path.clone()) {
                // Its directory is gone: what it made is gone as well, or has another name.
                Err(Stop::Error(Errno::ENOENT | Errno::ESTALE)) if made > 0 => None,
                named => Some(named?),
            },
            _ => None,
        };
        let by_name = named.as_ref().and_then(|n| n.dentry).map(|d| d.ino);
        let ino = match (made, &named) {
            (0, None) => self.live(r)?.ino,
            (0, Some(_)) => by_name.ok_or(Errno::ENOENT)?,
            (made, _) => made,
        };
        let Some(inode) = self.inode_opt(ino)?.filter(|i| i.nlink > 0) else {
            return Ok(done_before(made));
        };
        // The client says what it asked before: it may be something else.
        let wish = match r.m.op == op::CREATE || writes(flags) {
            true => WRITE,
            false => READ,
        };
        self.check_access(r, &inode, None, wish)?;
        self.open_inode(r, ino, flags)?;
        let mut answer = match named {
            Some(n) if by_name == Some(ino) => self.named_answer(r, n.dir.inode.ino, &n.name, Some(ino))?,
            _ => {
                let inode = self.inode(ino)?;
                self.target(r, &inode)
            }
        };
        answer.extra = done_before(made).extra;
        Ok(answer)
    }

    /// What opening does: truncation, and what is wanted from now on.
    fn open_inode(&mut self, r: &mut Request, ino: u64, flags: u32) -> Result<()> {
        let inode = self.inode(ino)?;
        self.realms_of(&inode)?;
        let truncates = flags & open_flag::TRUNC != 0;
        if inode.is_dir() && (truncates || writes(flags)) {
            return Err(Errno::EISDIR.into());
        }
        if flags & open_flag::DIRECTORY != 0 && !inode.is_dir() && !inode.is_symlink() {
            return Err(Errno::EINVAL.into());
        }
        if truncates && inode.is_file() {
            self.truncate(r, ino, 0, |_| {})?;
        }
        self.want(r.client, ino, wanted(flags));
        let inode = self.inode(ino)?;
        if inode.is_file() && writes(flags) && inode.max_size <= inode.size {
            let mut changed = Inode::clone(&inode);
            changed.max_size = Self::first_room(&inode);
            let mut tx = Tx::default();
            self.mark_writing(&mut tx, ino);
            tx.inode(changed);
            self.commit(tx);
        }
        // Who cached what this one may change now gives it back.
        self.settle(ino);
        Ok(())
    }
}

/// The inode as it begins; `place`: its number, and the first snapshot that may see it.
fn new_inode(
    r: &Request,
    dir: &Inode,
    name: &Bytes,
    making: Making,
    (layout, xattrs): ((Layout, String), Xattrs),
    (ino, first): (u64, u64),
) -> Inode {
    let is_dir = making.mode & S_IFMT == S_IFDIR;
    let stamp = r.stamp();
    let (uid, gid) = r.m.owner.unwrap_or((r.m.uid, r.m.gid));
    let setgid = dir.mode & S_ISGID != 0;
    Inode {
        ino,
        first,
        mode: making.mode | if setgid && is_dir { S_ISGID } else { 0 },
        uid,
        gid: if setgid { dir.gid } else { gid },
        rdev: making.rdev,
        nlink: 1,
        xattr_version: 1,
        ctime: stamp,
        mtime: stamp,
        atime: stamp,
        btime: stamp,
        truncate_size: u64::MAX,
        truncate_seq: 1,
        layout: layout.0,
        pool_ns: layout.1,
        symlink: making.symlink,
        xattrs,
        pin: -1,
        sums: Sums {
            subdirs: i64::from(is_dir),
            ..Sums::default()
        },
        links: vec![(dir.ino, name.clone())],
        ..Inode::default()
    }
}

/// The directory has one name more.
pub(crate) fn add_name(dir: &mut Inode, inode: &Inode, stamp: types::Utime) {
    count(dir, inode, 1);
    let mut weight = inode.weight();
    weight.ctime = stamp;
    dir.sums.add(&weight);
    dir.untold.add(&weight);
    touch(dir, stamp);
}

pub(crate) fn count(dir: &mut Inode, inode: &Inode, n: i64) {
    let field = match inode.is_dir() {
        true => &mut dir.subdirs,
        false => &mut dir.files,
    };
    *field = field.saturating_add_signed(n);
}

/// Its contents changed.
pub(crate) fn touch(dir: &mut Inode, stamp: types::Utime) {
    dir.mtime = dir.mtime.max(stamp);
    dir.ctime = dir.ctime.max(stamp);
    dir.change_attr += 1;
}
