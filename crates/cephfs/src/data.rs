//! Files' bytes: read and written in their objects, under a capability that is held for the call.
//!
//! A write waits until the server lets it write and the size may grow that far, then writes objects, then tells the server size and time; it
//! is durable when that is answered. What reads or writes takes what others hold away from them, so all see one file.

use crate::layout::{extents, object_name};
use crate::mount::{Mount, about, snaps_of};
use crate::session::{Ask, Dirty, Held};
use crate::snap::is_snapped;
use bytes::{Bytes, BytesMut};
use client::{Error, Operation, SnapContext};
use messages::fs::{Args, InodeStat, MClientRequest, cap, op, open_flag};
use messages::osd::{ExtentArg, OpCode, OsdOp, code};
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use types::{Errno, Utime};

/// More is read or written part by part.
pub const CHUNK: u64 = 8 << 20;
/// Of [`Mount::read_all`] and [`Mount::write_all`].
const WHOLE_MAX: u64 = 64 << 20;
const GRANT_MAX: Duration = Duration::from_secs(90);

struct Opened {
    stat: InodeStat,
    view: watch::Receiver<Held>,
    snaps: SnapContext,
    follows: u64,
}

impl Mount {
    /// Fewer bytes at the file's end.
    pub async fn read(&self, path: impl AsRef<[u8]>, offset: u64, length: u64) -> crate::Result<Bytes> {
        let path = path.as_ref();
        let mut out = BytesMut::new();
        while (out.len() as u64) < length {
            let n = (length - out.len() as u64).min(CHUNK);
            let part = self.read_part(path, offset + out.len() as u64, n).await?;
            let is_last = (part.len() as u64) < n;
            out.extend_from_slice(&part);
            if is_last {
                break;
            }
        }
        Ok(out.freeze())
    }

    /// A whole file, up to 64 MiB.
    pub async fn read_all(&self, path: impl AsRef<[u8]>) -> crate::Result<Bytes> {
        let path = path.as_ref();
        if self.stat(path).await?.size > WHOLE_MAX {
            return Err(Error::invalid(Errno::EFBIG, "a file read whole"));
        }
        self.read(path, 0, WHOLE_MAX).await
    }

    pub async fn write(&self, path: impl AsRef<[u8]>, offset: u64, data: Bytes) -> crate::Result<()> {
        let path = path.as_ref();
        let mut done = 0;
        while done < data.len() {
            let n = (data.len() - done).min(CHUNK as usize);
            let part = data.slice(done..done + n);
            self.write_part(path, offset + done as u64, part).await?;
            done += n;
        }
        Ok(())
    }

    /// Makes a file of this content, or puts it in place of the one that is there: whoever looks sees the one or the other.
    pub async fn write_all(&self, path: impl AsRef<[u8]>, mode: u32, data: Bytes) -> crate::Result<()> {
        let path = path.as_ref();
        let fresh = [path, b".tmp"].concat();
        match self.unlink(&fresh).await {
            Err(e) if e.is_not_found() => {}
            done => done?,
        }
        self.create(&fresh, mode).await?;
        self.write(&fresh, 0, data).await?;
        self.rename(&fresh, path).await
    }

    async fn open(&self, path: &[u8], flags: u32) -> crate::Result<Opened> {
        let words = [flags, 0, 0, 0, 0, u32::MAX, 0];
        let (sender, view) = watch::channel(Held::default());
        let request = MClientRequest {
            args: Args::words(&words),
            ..about(op::OPEN, path)
        };
        let reply = self.ask(request, Some(sender)).await?;
        let (snaps, follows) = snaps_of(&reply)?;
        let stat = reply.trace.target.map(|t| *t);
        let stat = stat.ok_or_else(|| Error::Malformed("an answer without its inode".into()))?;
        Ok(Opened {
            stat,
            view,
            snaps,
            follows,
        })
    }

    /// Waits for what the server has yet to give.
    async fn granted(&self, f: &mut Opened, ready: impl Fn(&Held) -> bool) -> crate::Result<Held> {
        let come = f.view.wait_for(|h| h.lost || ready(h));
        let held = match io::task::timeout(GRANT_MAX, come).await {
            Ok(Ok(held)) => *held,
            Ok(Err(_)) => return Err(Error::Closed),
            Err(_) => return Err(Error::TimedOut),
        };
        match held.lost {
            true => Err(Error::invalid(Errno::ESTALE, "the session was lost")),
            false => Ok(held),
        }
    }

    /// One at a time for an inode: the number is that of its present name.
    async fn read_part(&self, path: &[u8], offset: u64, length: u64) -> crate::Result<Bytes> {
        let stat = self.stat(path).await?;
        if is_snapped(&stat) {
            return self.read_snapped(&stat, offset, length).await;
        }
        let _turn = self.busy(stat.ino).lock().await;
        let mut f = self.open(path, 0).await?;
        let done = self.read_held(&mut f, offset, length).await;
        self.let_go(&f, None).await?;
        done
    }

    async fn read_held(&self, f: &mut Opened, offset: u64, length: u64) -> crate::Result<Bytes> {
        let held = self.granted(f, |h| h.issued & cap::FR != 0).await?;
        let length = length.min(held.size.max(f.stat.size).saturating_sub(offset));
        let io = self.pool_of(&f.stat, SnapContext::default());
        let mut out = BytesMut::with_capacity(length as usize);
        for e in extents(&f.stat.layout, offset, length)? {
            let read = Operation::new().raw(ranged(code::READ, e.offset, e.length, &held));
            let name = object_name(f.stat.ino, e.object);
            let data = match io.operate(name, read).await?.done() {
                Ok(done) => done.step(0)?.data.clone(),
                // A hole.
                Err(err) if err.is_not_found() => Bytes::new(),
                Err(err) => return Err(err),
            };
            let end = out.len() + e.length as usize;
            out.extend_from_slice(&data[..data.len().min(e.length as usize)]);
            out.resize(end, 0);
        }
        Ok(out.freeze())
    }

    async fn write_part(&self, path: &[u8], offset: u64, data: Bytes) -> crate::Result<()> {
        let ino = self.stat(path).await?.ino;
        let _turn = self.busy(ino).lock().await;
        let mut f = self.open(path, open_flag::WRONLY).await?;
        let done = self.write_held(&mut f, offset, data).await;
        let dirty = done.as_ref().ok().copied();
        let flushed = self.let_go(&f, dirty).await;
        done.and(flushed)
    }

    async fn write_held(&self, f: &mut Opened, offset: u64, data: Bytes) -> crate::Result<Dirty> {
        let end = offset
            .checked_add(data.len() as u64)
            .ok_or_else(|| Error::invalid(Errno::EFBIG, "an offset"))?;
        let mut held = self.granted(f, |h| h.issued & cap::FW != 0).await?;
        if held.max_size < end {
            let ino = f.stat.ino;
            self.tell(Ask::Grow { ino, size: end }).await?;
            held = self
                .granted(f, |h| h.issued & cap::FW != 0 && h.max_size >= end)
                .await?;
        }
        let io = self.pool_of(&f.stat, f.snaps.clone());
        let mut done = 0;
        for e in extents(&f.stat.layout, offset, data.len() as u64)? {
            let part = data.slice(done..done + e.length as usize);
            let step = ranged(code::WRITE, e.offset, e.length, &held).with_data(part);
            let name = object_name(f.stat.ino, e.object);
            io.operate(name, Operation::new().raw(step)).await?.done()?;
            done += e.length as usize;
        }
        let size = held.size.max(f.stat.size).max(end);
        let wall = self.client().platform().clock.wall();
        Ok(Dirty {
            size,
            mtime: Utime::from_unix(wall),
        })
    }

    async fn let_go(&self, f: &Opened, dirty: Option<Dirty>) -> crate::Result<()> {
        let (reply, done) = oneshot::channel();
        let ask = Ask::Drop {
            ino: f.stat.ino,
            dirty,
            snap_follows: f.follows,
            reply,
        };
        self.tell(ask).await?;
        match io::task::timeout(GRANT_MAX, done).await {
            Ok(Ok(done)) => done,
            Ok(Err(_)) => Err(Error::Closed),
            Err(_) => Err(Error::TimedOut),
        }
    }
}

/// With the file's truncations, so that an OSD knows what is older than the last one.
fn ranged(code: OpCode, offset: u64, length: u64, held: &Held) -> OsdOp {
    let (truncate_size, truncate_seq) = match held.truncate_seq {
        0 | 1 => (0, 0),
        seq => (held.truncate_size, seq),
    };
    OsdOp::new(code).with_extent(ExtentArg {
        offset,
        length,
        truncate_size,
        truncate_seq,
    })
}
