//! A source of format 1: its header as it lies on the disk (docs/protocol/ceph/05-rbd.md, 1.4), and its name in the directory.

use crate::header::{Fixed, Header, Snap, UNPROTECTED, ask};
use crate::image::open::Use;
use crate::image::{Image, Inner, locked};
use crate::{Error, Layout, Result, error, names};
use bytes::Bytes;
use client::{IoCtx, Operation};
use denc::{Reader, Writer};
use objclass::rbd::types::SnapshotNamespace;
use std::sync::Arc;
use types::Errno;

const PREFIX_AT: usize = 40;
const PREFIX_LEN: usize = 24;
const ORDER_AT: usize = 76;
const SIZE_AT: usize = 80;
/// Of the fixed part.
const LENGTH: usize = 112;
/// Of a header with as many snapshots as one may have.
const LENGTH_MAX: u64 = 16 << 20;
/// A command for a trivial map.
const SET: u8 = b's';

pub(super) async fn open(io: &IoCtx, name: &str, snap: u64, read_only: bool) -> Result<Image> {
    let (fixed, header) = read(io, name).await?;
    let mut inner = Inner::closed(io.clone(), String::new(), fixed, snap, Use::migration(read_only));
    inner.header_oid = names::old_header(name);
    let view = inner.make_view(header, None).await?;
    *locked(&inner.view) = Arc::new(view);
    Ok(Image {
        inner: Arc::new(inner),
    })
}

async fn read(io: &IoCtx, name: &str) -> Result<(Fixed, Header)> {
    let raw = io.read(names::old_header(name), 0, LENGTH_MAX).await?;
    parse(&raw).ok_or_else(|| {
        Error::refused(
            Errno::EIO,
            format!("image '{name}': a damaged header of format 1"),
        )
    })
}

fn parse(raw: &Bytes) -> Option<(Fixed, Header)> {
    let head = raw.get(..LENGTH)?;
    let u64_at = |at: usize| Some(u64::from_le_bytes(raw.get(at..at + 8)?.try_into().ok()?));
    let prefix = head.get(PREFIX_AT..PREFIX_AT + PREFIX_LEN)?;
    let prefix = prefix.split(|b| *b == 0).next()?;
    let fixed = Fixed {
        prefix: String::from_utf8(prefix.to_vec()).ok()?,
        is_old: true,
        data_pool: None,
        layout: Layout::new(head[ORDER_AT], 0, 0).ok()?,
    };
    let mut rest = Reader::new(raw.slice(SIZE_AT..));
    let (size, snap_seq): (u64, u64) = (rest.u64().ok()?, rest.u64().ok()?);
    let count = rest.u32().ok()? as usize;
    let names_at = LENGTH.checked_add(count.checked_mul(16)?)?;
    let mut names = raw.get(names_at..)?.split(|b| *b == 0);
    let mut snaps = Vec::new();
    for n in 0..count {
        let at = LENGTH + 16 * n;
        snaps.push(Snap {
            id: u64_at(at)?,
            size: u64_at(at + 8)?,
            name: String::from_utf8_lossy(names.next()?).into_owned(),
            namespace: SnapshotNamespace::User,
            flags: 0,
            protection: UNPROTECTED,
            overlap: 0,
            child_count: 0,
        });
    }
    let header = Header {
        size,
        features: 0,
        op_features: 0,
        flags: 0,
        snap_seq,
        snaps,
        parent: None,
    };
    Some((fixed, header))
}

/// It has its name again in the directory.
pub(super) async fn enter(io: &IoCtx, name: &str) -> Result<()> {
    let mut w = Writer::new();
    w.u8(SET);
    w.string(name);
    w.string("");
    let op = Operation::new().update_tmap(w.finish());
    ask(io, names::DIRECTORY, op).await.map(drop)
}

/// Removes its snapshots and data, then the header: as long as that is there, an earlier attempt can be gone on with.
pub(super) async fn remove(
    image: &Image,
    name: &str,
    progress: &(dyn Fn(u64, u64) + Send + Sync),
) -> Result<()> {
    let inner = &image.inner;
    let view = inner.seen();
    for snap in view.header.snaps.iter().rev() {
        let gone = view.beneath.remove_selfmanaged_snap(snap.id).await;
        error::or_missing(gone.map_err(Into::into))?;
        let op = Operation::new().call("rbd", "snap_remove", &named(&snap.name), true);
        error::or_missing(ask(&inner.io, &inner.header_oid, op).await.map(drop))?;
    }
    let end = inner.fixed.layout.objects(view.header.size);
    inner.remove_data_objects(&view, end, progress).await?;
    let header = inner.io.remove(names::old_header(name)).await;
    error::or_missing(header.map_err(Into::into))
}

fn named(name: &str) -> Bytes {
    let mut w = Writer::new();
    w.string(name);
    w.finish()
}
