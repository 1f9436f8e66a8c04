//! Clones: made, read through, cut loose (docs/protocol/ceph/05-rbd.md, 10.5 and 11). New ones are of the second kind ("v2"), which
//! need no protected snapshot.

use super::object::Change;
use super::{Image, Inner, View, detached};
use crate::calls::Calls;
use crate::directory::{self, NewImage};
use crate::header::{Parent, ask};
use crate::image::ImageOptions;
use crate::{Error, Result, features, names, together};
use bytes::{Bytes, BytesMut};
use client::{IoCtx, Operation};
use objclass::rbd::object_map::{CLEAN, EXISTS};
use objclass::rbd::types::{ChildSpec, ParentSpec};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use types::{Errno, NOSNAP};

/// Objects that a flatten has under way.
const BATCH: u64 = 256;

/// A new image that reads from a snapshot of another one; its id. Its size is the snapshot's, whatever `new` says.
pub async fn clone_image(
    from: &IoCtx,
    parent: &str,
    snap: &str,
    to: &IoCtx,
    name: &str,
    new: &NewImage,
) -> Result<String> {
    let options = ImageOptions {
        read_only: true,
        snap: Some(snap.to_string()),
        encrypted: true,
    };
    let parent = Image::open(from, parent, &options).await?;
    let (id, snap) = (parent.inner.id.clone(), parent.inner.snap);
    let view = parent.inner.seen();
    if !view.header.has(features::LAYERING) || new.features & features::LAYERING == 0 {
        return Err(Error::refused(
            Errno::EINVAL,
            "parent and clone need the layering feature",
        ));
    }
    let new = NewImage {
        size: view.header.size_at(snap),
        ..new.clone()
    };
    let child = directory::create(to, name, &new).await?;
    let spec = ParentSpec {
        pool: from.pool_id(),
        pool_namespace: from.namespace().clone(),
        image_id: id.clone().into(),
        snap_id: snap,
    };
    let attached = attach(to, &child, &spec, new.size, from).await;
    if let Err(e) = attached {
        // It would be an image of zeros.
        let _ = super::remove(to, name, &|_, _| {}).await;
        return Err(e);
    }
    Ok(child)
}

async fn attach(to: &IoCtx, child: &str, spec: &ParentSpec, size: u64, from: &IoCtx) -> Result<()> {
    if size == 0 {
        return Err(Error::refused(Errno::EINVAL, "a clone of an empty snapshot"));
    }
    let op = Operation::new().rbd_write("parent_attach", |w| {
        w.put(spec);
        w.u64(size);
        w.bool(false);
    });
    ask(to, &names::header(child), op).await?;
    let op = Operation::new().rbd_write("op_features_set", |w| {
        w.u64(features::OP_CLONE_CHILD);
        w.u64(features::OP_CLONE_CHILD);
    });
    ask(to, &names::header(child), op).await?;
    let id = String::from_utf8_lossy(&spec.image_id).into_owned();
    let op = Operation::new().rbd_write("child_attach", |w| {
        w.u64(spec.snap_id);
        w.put(&child_spec(to, child));
    });
    ask(from, &names::header(&id), op).await.map(drop)
}

fn child_spec(io: &IoCtx, id: &str) -> ChildSpec {
    ChildSpec {
        pool: io.pool_id(),
        pool_namespace: io.namespace().clone(),
        image_id: Bytes::copy_from_slice(id.as_bytes()),
    }
}

impl Image {
    /// Copies what is still read from the parent, and leaves it.
    pub async fn flatten(&self) -> Result<()> {
        self.flatten_telling(|_, _| {}).await
    }

    /// The same; `progress` is told how many objects of how many are done.
    pub async fn flatten_telling(&self, progress: impl Fn(u64, u64) + Send + 'static) -> Result<()> {
        let inner = self.inner.clone();
        detached(async move {
            let _alone = inner.alone().await?;
            let view = inner.seen();
            let Some(parent) = view.header.parent.clone() else {
                return Err(Error::refused(Errno::EINVAL, "the image has no parent"));
            };
            inner.copy_all_up(&view, &progress).await?;
            inner.leave_parent(&parent).await?;
            let op = Operation::new().rbd_write("parent_detach", |_| {});
            ask(&inner.io, &inner.header_oid, op).await?;
            inner.changed().await
        })
        .await
    }
}

impl Inner {
    /// What the parent has in the place of a part of an object, as `snap` sees it; zeros may be missing at the end.
    pub(super) async fn read_parent(
        &self,
        view: &Arc<View>,
        snap: u64,
        object: u64,
        offset: u64,
        length: u64,
    ) -> Result<Bytes> {
        let below = self.fixed.layout.used(object, view.header.overlap_at(snap));
        let end = below.min(offset + length);
        match offset < end {
            true => self.parent_bytes(view, object, offset, end - offset).await,
            false => Ok(Bytes::new()),
        }
    }

    /// The parent's first `length` bytes of an object.
    pub(super) async fn read_parent_below(
        &self,
        view: &Arc<View>,
        object: u64,
        length: u64,
    ) -> Result<Bytes> {
        match length {
            0 => Ok(Bytes::new()),
            n => self.parent_bytes(view, object, 0, n).await,
        }
    }

    /// Boxed: the parent may have a parent.
    fn parent_bytes<'a>(
        &'a self,
        view: &'a Arc<View>,
        object: u64,
        offset: u64,
        length: u64,
    ) -> Pin<Box<dyn Future<Output = Result<Bytes>> + Send + 'a>> {
        Box::pin(async move {
            let parent = view.parent.as_ref();
            let parent = parent.ok_or_else(|| Error::refused(Errno::EIO, "a clone without its parent"))?;
            let ranges = self.fixed.layout.ranges(object, offset, length);
            let size = parent.size().await?;
            let reads = ranges.into_iter().map(|(at, n)| async move {
                // A parent can be shorter than the overlap says only if its header is wrong; then zeros are read.
                let n_there = n.min(size.saturating_sub(at));
                let mut data = BytesMut::new();
                if n_there > 0 {
                    let inner = &parent.inner;
                    data.extend_from_slice(&inner.read_range(&inner.seen(), at, n_there).await?);
                }
                data.resize(n as usize, 0);
                Ok::<_, Error>(data)
            });
            let mut parts = together::all(reads).await?;
            let mut all = parts.drain(..1).next().unwrap_or_default();
            parts.iter().for_each(|p| all.extend_from_slice(p));
            Ok(all.freeze())
        })
    }

    async fn copy_all_up(&self, view: &Arc<View>, progress: &(impl Fn(u64, u64) + Send)) -> Result<()> {
        let header = &view.header;
        let snaps = header.snaps.iter().filter(|_| header.has(features::DEEP_FLATTEN));
        let overlap = snaps.map(|s| s.overlap).max().unwrap_or(0);
        let end = self.fixed.layout.objects(overlap.max(header.overlap_at(NOSNAP)));
        let of_image = self.fixed.layout.objects(header.size);
        let mut from = 0;
        while from < end {
            let to = end.min(from + BATCH);
            let missing = (from..to).filter(|o| !matches!(self.known(*o), Some(EXISTS | CLEAN)));
            together::all(missing.map(|o| self.change(view, o, Change::Touch))).await?;
            // Beyond the image's end only snapshots have them.
            together::all((from.max(of_image)..to).map(|o| self.remove_object(view, o))).await?;
            from = to;
            progress(to, end);
        }
        Ok(())
    }

    /// Takes this image off its parent's list of children.
    pub(super) async fn leave_parent(&self, parent: &Parent) -> Result<()> {
        let spec = &parent.spec;
        let mut io = self.io.client().pool_by_id(spec.pool);
        io.set_namespace(spec.pool_namespace.clone());
        let id = String::from_utf8_lossy(&spec.image_id).into_owned();
        let view = self.seen();
        if view.header.op_features & features::OP_CLONE_CHILD == 0 {
            let op = Operation::new().rbd_write("remove_child", |w| {
                w.i64(spec.pool);
                w.blob(&spec.image_id);
                w.u64(spec.snap_id);
                w.string(&self.id);
            });
            let done = ask(&self.io, names::CHILDREN, op).await;
            return crate::error::or_missing(done.map(drop));
        }
        let op = Operation::new().rbd_write("child_detach", |w| {
            w.u64(spec.snap_id);
            w.put(&child_spec(&self.io, &self.id));
        });
        let done = ask(&io, &names::header(&id), op).await;
        crate::error::or_missing(done.map(drop))?;
        sweep(io, id, spec.snap_id).await
    }
}

/// The parent's snapshot goes if its user removed it and no clone needs it any more. Boxed: that opens an image.
fn sweep(io: IoCtx, id: String, snap: u64) -> Pin<Box<dyn Future<Output = Result<()>> + Send>> {
    Box::pin(async move {
        let header = crate::header::read(&io, &names::header(&id)).await?;
        let idle = |s: &crate::header::Snap| s.namespace.is_trash() && s.child_count == 0;
        if !header.snap(snap).is_some_and(idle) {
            return Ok(());
        }
        let options = ImageOptions {
            encrypted: true,
            ..ImageOptions::default()
        };
        let parent = Image::open_id(&io, &id, &options).await?;
        let swept = parent.inner.child_left(snap).await;
        parent.close().await.and(swept)
    })
}
