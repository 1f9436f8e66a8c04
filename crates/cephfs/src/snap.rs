//! Snapshots of directories, and what is in them.
//!
//! A path with an empty component goes through `.snap`: what follows is a snapshot's name.

use crate::dir::{Cursor, beginning};
use crate::layout::{extents, object_name};
use crate::mount::{By, Mount, about, target_of};
use crate::page::{Entry, Page};
use bytes::{Bytes, BytesMut};
use client::{Error, Operation, SnapContext};
use denc::{Encode, Writer};
use messages::fs::{Args, FilePath, InodeStat, MClientRequest, cap, op, readdir_flag};
use messages::osd::{ExtentArg, OsdOp, code};
use std::collections::BTreeMap;
use types::{Errno, NOSNAP};

/// The path of a directory as a snapshot of it shows it.
pub fn in_snap(dir: &str, name: &str) -> String {
    format!("{dir}//{name}")
}

pub(crate) fn is_snapped(stat: &InodeStat) -> bool {
    stat.snapid != NOSNAP
}

fn at(op: u32, dir: u64, path: &Bytes) -> MClientRequest {
    MClientRequest {
        op,
        path: FilePath::new(dir, path.clone()),
        ..MClientRequest::default()
    }
}

impl Mount {
    async fn snap_path(&self, dir: &str, name: &str) -> crate::Result<FilePath> {
        let ino = self.stat(dir).await?.ino;
        Ok(FilePath::new(ino, Bytes::from(format!("/{name}"))))
    }

    pub async fn mksnap(
        &self,
        dir: &str,
        name: &str,
        metadata: &BTreeMap<String, String>,
    ) -> crate::Result<()> {
        let mut data = Writer::new();
        data.envelope(1, 1, |w| metadata.encode(w));
        let request = MClientRequest {
            op: op::MKSNAP,
            path: self.snap_path(dir, name).await?,
            args: Args::words(&[0o755]),
            data: data.finish(),
            ..MClientRequest::default()
        };
        self.ask(request).await.map(drop)
    }

    pub async fn rmsnap(&self, dir: &str, name: &str) -> crate::Result<()> {
        let request = MClientRequest {
            op: op::RMSNAP,
            path: self.snap_path(dir, name).await?,
            ..MClientRequest::default()
        };
        self.ask(request).await.map(drop)
    }

    /// Snapshots of a directory, the oldest first, also those of directories above it; `max` at most.
    pub async fn snaps(&self, dir: &str, max: usize) -> crate::Result<Vec<Entry>> {
        let (mut all, mut last) = (Vec::<Entry>::new(), Bytes::new());
        loop {
            let request = MClientRequest {
                path2: FilePath::new(0, last.clone()),
                ..about(op::LSSNAP, dir)
            };
            let page = Page::parse(&self.ask(request).await?.extra)?;
            let ends = page.flags & readdir_flag::FRAG_END != 0 || page.entries.is_empty();
            all.extend(page.entries);
            if all.len() > max {
                return Err(Error::Busy);
            }
            match all.last() {
                Some(entry) if !ends => last = entry.name.clone(),
                _ => return Ok(all),
            }
        }
    }

    // By numbers. A path begins with a slash and a snapshot's name in `.snap` of the directory.

    pub async fn stat_snapped(&self, dir: u64, path: &Bytes) -> crate::Result<InodeStat> {
        let stat = target_of(
            self.ask(MClientRequest {
                args: Args::words(&[cap::PIN | cap::AS | cap::LS | cap::XS | cap::FS | cap::FA]),
                ..at(op::GETATTR, dir, path)
            })
            .await?,
        )?;
        match is_snapped(&stat) {
            true => Ok(stat),
            false => Err(Error::invalid(
                Errno::EIO,
                "what is asked of a snapshot is in none",
            )),
        }
    }

    /// The first names of a directory in a snapshot are behind this.
    pub async fn readdir_begin_in(&self, dir: u64, path: &Bytes) -> crate::Result<Cursor> {
        Ok(beginning(&self.stat_snapped(dir, path).await?.fragtree))
    }

    /// Some names of a directory in a snapshot, and where it goes on.
    pub async fn readdir_page_in(
        &self,
        dir: u64,
        path: &Bytes,
        from: &Cursor,
    ) -> crate::Result<(Vec<Entry>, Option<Cursor>)> {
        self.page(at(op::READDIR, dir, path), from).await
    }

    /// Some snapshots that a directory is in, the oldest first.
    pub async fn snaps_page(&self, dir: u64, from: &Cursor) -> crate::Result<(Vec<Entry>, Option<Cursor>)> {
        let request = MClientRequest {
            path2: FilePath::new(0, from.name().clone()),
            ..at(op::LSSNAP, dir, &Bytes::new())
        };
        let page = Page::parse(&self.ask(request).await?.extra)?;
        let ends = page.flags & readdir_flag::FRAG_END != 0;
        let last = page.entries.last().filter(|_| !ends);
        let next = last.map(|e| Cursor::behind(e.name.clone()));
        Ok((page.entries, next))
    }

    pub async fn make_snap(&self, by: By, dir: u64, path: &Bytes) -> crate::Result<()> {
        let mut data = Writer::new();
        data.envelope(1, 1, |w| BTreeMap::<String, String>::new().encode(w));
        let request = MClientRequest {
            args: Args::words(&[0o755]),
            data: data.finish(),
            ..at(op::MKSNAP, dir, path)
        };
        self.ask_by(by, request).await.map(drop)
    }

    pub async fn remove_snap(&self, by: By, dir: u64, path: &Bytes) -> crate::Result<()> {
        self.ask_by(by, at(op::RMSNAP, dir, path)).await.map(drop)
    }

    pub async fn rename_snap(&self, by: By, dir: u64, from: &Bytes, to: &Bytes) -> crate::Result<()> {
        let request = MClientRequest {
            path2: FilePath::new(dir, from.clone()),
            ..at(op::RENAMESNAP, dir, to)
        };
        self.ask_by(by, request).await.map(drop)
    }

    /// Bytes of a file in a snapshot: nobody changes them, so no capability is needed.
    pub async fn read_snapped(&self, stat: &InodeStat, offset: u64, length: u64) -> crate::Result<Bytes> {
        let length = length.min(stat.size.saturating_sub(offset));
        let mut io = self.pool_of(stat, SnapContext::default());
        io.set_read_snap(Some(stat.snapid));
        let mut out = BytesMut::with_capacity(length as usize);
        for e in extents(&stat.layout, offset, length)? {
            let (truncate_size, truncate_seq) = match stat.truncate_seq {
                0 | 1 => (0, 0),
                seq => (stat.truncate_size, seq),
            };
            let step = OsdOp::new(code::READ).with_extent(ExtentArg {
                offset: e.offset,
                length: e.length,
                truncate_size,
                truncate_seq,
            });
            let name = object_name(stat.ino, e.object);
            let data = match io.operate(name, Operation::new().raw(step)).await?.done() {
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
}
