//! An open file: reads and writes in its objects, under the capabilities of its inode that are kept until it is closed.
//!
//! Nothing is buffered: what a write wrote is durable at the OSDs when it returns; that the file is larger, and when it was written,
//! the server hears at [`File::sync`], when it asks, at the end, and every few seconds. Until then nobody else is told an older size,
//! because whoever asks has the server ask us.
//!
//! A file that lost its last name works as long as it is open.

use crate::layout::{extents, object_name};
use crate::mount::{By, Mount, target_of};
use crate::safety::Followed;
use crate::session::{Ask, Open, Shared, Use};
use bytes::{Bytes, BytesMut};
use client::{Error, IoCtx, Operation, SnapContext};
use messages::fs::{Args, FilePath, InodeStat, Layout, MClientRequest, cap, op, open_flag};
use messages::osd::{ExtentArg, OpCode, OsdOp, code};
use std::time::Duration;
use tokio::sync::oneshot;
use types::{Errno, Utime};

/// That the server gives what a call needs.
const GRANT_MAX: Duration = Duration::from_secs(120);
/// Asked again so often, as what was asked before may be lost.
const ASK_EVERY: Duration = Duration::from_secs(5);

/// One handle. Calls may run side by side.
pub struct File {
    mount: Mount,
    used: Use,
    ino: u64,
    layout: Layout,
    pool_ns: String,
    open: Shared,
    followed: Followed,
}

impl std::fmt::Debug for File {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "open file {:x}", self.ino)
    }
}

/// Of the flags of OPEN.
fn use_of(flags: u32) -> Use {
    match flags & open_flag::ACCMODE {
        open_flag::WRONLY => Use::Write,
        open_flag::RDWR => Use::Both,
        _ => Use::Read,
    }
}

/// A call under way uses a capability until this is dropped.
pub(crate) struct Using<'a> {
    file: &'a File,
    writes: bool,
}

impl Drop for Using<'_> {
    fn drop(&mut self) {
        let mut owes = false;
        self.file.open.send_if_modified(|o| {
            match self.writes {
                true => o.writing = o.writing.saturating_sub(1),
                false => o.reading = o.reading.saturating_sub(1),
            }
            owes = o.owes && !o.is_held_up();
            false
        });
        if owes {
            // Where there is no room the session looks by itself before long.
            self.file.mount.hint(Ask::Settle { ino: self.file.ino });
        }
    }
}

impl Mount {
    pub(crate) async fn open_as(
        &self,
        by: By,
        request: MClientRequest,
        flags: u32,
    ) -> crate::Result<(InodeStat, File)> {
        let used = use_of(flags);
        let (reply, open) = self.ask_to_hold(by, request, Some(used)).await?;
        let stat = target_of(reply)?;
        let open = open.ok_or_else(|| Error::Malformed("an answer that opens nothing".into()))?;
        let file = File {
            mount: self.clone(),
            used,
            ino: stat.ino,
            layout: stat.layout,
            pool_ns: stat.pool_ns.clone(),
            open,
            followed: self.follow(stat.ino),
        };
        Ok((stat, file))
    }

    /// `flags`: [`open_flag`].
    pub async fn open_ino(&self, by: By, ino: u64, flags: u32) -> crate::Result<(InodeStat, File)> {
        let words = [flags, 0, 0, 0, 0, u32::MAX, 0];
        let request = MClientRequest {
            op: op::OPEN,
            path: FilePath::new(ino, Bytes::new()),
            args: Args::words(&words),
            ..MClientRequest::default()
        };
        self.open_as(by, request, flags).await
    }
}

impl File {
    pub fn ino(&self) -> u64 {
        self.ino
    }

    /// Bytes of it are locked by somebody here.
    pub fn is_locked(&self) -> bool {
        self.open.borrow().locked
    }

    pub(crate) fn mount(&self) -> &Mount {
        &self.mount
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.open
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// None: the objects may not have all that is in the file. Others tell only who reads of what they have not written yet; and what is
    /// written through a mapping, which takes a handle here that reads and writes, a kernel keeps as long as it likes.
    pub(crate) async fn begin_look(&self) -> crate::Result<Option<Using<'_>>> {
        if !self.used.reads() || self.open.borrow().both > 0 {
            return Ok(None);
        }
        Ok(Some(self.begin(false, 0).await?.0))
    }

    pub(crate) fn pool(&self, snaps: SnapContext) -> IoCtx {
        let mut io = self.mount.client().pool_by_id(i64::from(self.layout.pool));
        io.set_namespace(self.pool_ns.clone().into_bytes());
        io.set_snap_context(snaps);
        io
    }

    /// What was written under a session that was lost, others may not see, or have written over.
    fn check(&self) -> crate::Result<()> {
        match self.open.borrow().lost {
            true => Err(Error::invalid(Errno::ESTALE, "the session was lost")),
            false => Ok(()),
        }
    }

    /// Waits until the server lets a call read or write, up to `end`.
    async fn begin(&self, writes: bool, end: u64) -> crate::Result<(Using<'_>, Open)> {
        let bit = if writes { cap::FW } else { cap::FR };
        let is_ready = |o: &Open| o.lost || o.issued & bit != 0 && (!writes || o.max_size >= end);
        let clock = &self.mount.client().platform().clock;
        let until = clock.monotonic() + GRANT_MAX;
        loop {
            let mut got = None;
            self.open.send_if_modified(|o| {
                if is_ready(o) && !o.lost {
                    match writes {
                        true => o.writing += 1,
                        false => o.reading += 1,
                    }
                    got = Some(o.clone());
                }
                false
            });
            if let Some(open) = got {
                return Ok((Using { file: self, writes }, open));
            }
            self.check()?;
            if clock.monotonic() >= until {
                return Err(Error::TimedOut);
            }
            if writes && self.open.borrow().max_size < end {
                let ask = Ask::Grow {
                    ino: self.ino,
                    size: end,
                };
                self.mount.tell(ask).await?;
            }
            let mut view = self.open.subscribe();
            let _ = io::task::timeout(ASK_EVERY, view.wait_for(is_ready)).await;
        }
    }

    /// Fewer bytes at the file's end.
    pub async fn read(&self, offset: u64, length: u64) -> crate::Result<Bytes> {
        if !self.used.reads() {
            return Err(Error::invalid(Errno::EBADF, "not opened to read"));
        }
        let (using, mut open) = self.begin(false, 0).await?;
        let end = offset.saturating_add(length);
        if end > open.size && open.issued & (cap::FS | cap::FX) == 0 {
            // Somebody else may have made it larger; he is asked, with what he holds, so not while we hold anything up.
            drop(using);
            self.mount.getattr(self.ino).await?;
            let again = self.begin(false, 0).await?;
            open = again.1;
            return self.read_held(again.0, &open, offset, length).await;
        }
        self.read_held(using, &open, offset, length).await
    }

    async fn read_held(
        &self,
        _using: Using<'_>,
        open: &Open,
        offset: u64,
        length: u64,
    ) -> crate::Result<Bytes> {
        let length = length.min(open.size.saturating_sub(offset));
        let io = self.pool(SnapContext::default());
        let mut out = BytesMut::new();
        for e in extents(&self.layout, offset, length)? {
            let read = Operation::new().raw(ranged(code::READ, e.offset, e.length, open));
            let name = object_name(self.ino, e.object);
            let data = match io.operate(name, read).await?.done() {
                Ok(done) => done.step(0)?.data.clone(),
                // A hole.
                Err(err) if err.is_not_found() => Bytes::new(),
                Err(err) => return Err(err),
            };
            if e.length == length && data.len() as u64 == length {
                return Ok(data);
            }
            let end = out.len() + e.length as usize;
            out.extend_from_slice(&data[..data.len().min(e.length as usize)]);
            out.resize(end, 0);
        }
        Ok(out.freeze())
    }

    /// All of it, or an error; then some of it may be written.
    pub async fn write(&self, offset: u64, data: Bytes) -> crate::Result<()> {
        let length = data.len() as u64;
        let steps = |done: u64, n: u64| {
            let data = data.slice(done as usize..(done + n) as usize);
            (code::WRITE, Some(data))
        };
        self.change(offset, length, true, steps).await
    }

    /// Zeros in the place of what is there; of whole blocks nothing stays.
    pub async fn zero(&self, offset: u64, length: u64, extends: bool) -> crate::Result<()> {
        self.change(offset, length, extends, |_, _| (code::ZERO, None))
            .await
    }

    /// With the snapshots that there are.
    async fn begin_change(&self, bound: u64) -> crate::Result<(Using<'_>, Open)> {
        loop {
            self.with_snaps().await?;
            let begun = self.begin(true, bound).await?;
            if begun.1.knows_snaps() {
                return Ok(begun);
            }
        }
    }

    async fn change(
        &self,
        offset: u64,
        length: u64,
        extends: bool,
        steps: impl Fn(u64, u64) -> (OpCode, Option<Bytes>),
    ) -> crate::Result<()> {
        if !self.used.writes() {
            return Err(Error::invalid(Errno::EBADF, "not opened to write"));
        }
        let end = offset.checked_add(length);
        let end = end.filter(|end| *end <= self.mount.max_file_size());
        let end = end.ok_or_else(|| Error::invalid(Errno::EFBIG, "an offset"))?;
        let bound = if extends { end } else { 0 };
        let mut begun = self.begin_change(bound).await?;
        if !extends && end > begun.1.size && begun.1.issued & (cap::FS | cap::FX) == 0 {
            // As a read does.
            drop(begun);
            self.mount.getattr(self.ino).await?;
            begun = self.begin_change(bound).await?;
        }
        let (_using, open) = begun;
        // What lies behind the end is nothing, and stays so.
        let length = match extends {
            true => length,
            false => length.min(open.size.saturating_sub(offset)),
        };
        let io = self.pool(open.snaps.clone());
        let mut done = 0;
        for e in extents(&self.layout, offset, length)? {
            let (code, data) = steps(done, e.length);
            let mut step = ranged(code, e.offset, e.length, &open);
            if let Some(data) = data {
                step = step.with_data(data);
            }
            let name = object_name(self.ino, e.object);
            let operation = Operation::new().raw(step).flags(self.mount.write_flags());
            let outcome = io.operate(name, operation).await.and_then(|o| o.done());
            match outcome {
                Err(e) if e.is_not_found() && code == code::ZERO => {}
                outcome => drop(outcome?),
            }
            done += e.length;
            self.wrote(if extends { offset + done } else { 0 });
        }
        self.check()
    }

    /// Before the call ends, so that it is told with what is given back.
    fn wrote(&self, end: u64) {
        let wall = self.mount.client().platform().clock.wall();
        self.open.send_if_modified(|o| {
            o.size = o.size.max(end);
            o.written = Some(Utime::from_unix(wall).max(o.written.unwrap_or_default()));
            false
        });
    }

    /// Which snapshots there are is asked anew where some came or went.
    async fn with_snaps(&self) -> crate::Result<()> {
        loop {
            let (knows, changes) = {
                let o = self.open.borrow();
                (o.knows_snaps(), o.snap_changes)
            };
            if knows {
                return Ok(());
            }
            let (snaps, follows) = self.mount.snaps_of_ino(self.ino).await?;
            self.open.send_if_modified(|o| {
                o.hear_snaps(snaps, follows, changes);
                false
            });
        }
    }

    /// All that was written before is durable, with size and time, and so are changes of names and attributes. An error is also that
    /// of a change that was answered before, and lost.
    pub async fn sync(&self) -> crate::Result<()> {
        self.check()?;
        let (reply, done) = oneshot::channel();
        let ask = Ask::Flush {
            ino: self.ino,
            open: self.open.clone(),
            reply,
        };
        self.mount.tell(ask).await?;
        match io::task::timeout(GRANT_MAX, done).await {
            Ok(Ok(done)) => done.and_then(|()| self.check())?,
            Ok(Err(_)) => return Err(Error::Closed),
            Err(_) => return Err(Error::TimedOut),
        }
        self.mount.sync_of(&self.followed).await
    }
}

impl Drop for File {
    fn drop(&mut self) {
        self.open.send_if_modified(|o| {
            o.leave(self.used);
            false
        });
        // Where there is no room the session looks by itself before long.
        self.mount.hint(Ask::LetGo { ino: self.ino });
    }
}

/// With the file's truncations, so that an OSD knows what is older than the last one.
fn ranged(code: OpCode, offset: u64, length: u64, open: &Open) -> OsdOp {
    let (truncate_size, truncate_seq) = match open.truncate_seq {
        0 | 1 => (0, 0),
        seq => (open.truncate_size, seq),
    };
    OsdOp::new(code).with_extent(ExtentArg {
        offset,
        length,
        truncate_size,
        truncate_seq,
    })
}
