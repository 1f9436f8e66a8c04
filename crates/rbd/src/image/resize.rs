//! Another size.

use super::{Image, Inner, View, detached};
use crate::calls::Calls;
use crate::header::ask;
use crate::{Error, Result, features, layout, together};
use client::Operation;
use objclass::rbd::object_map::{NONEXISTENT, PENDING};
use std::sync::Arc;
use types::Errno;

/// Objects that are removed in one go.
const BATCH: u64 = 1024;

impl Image {
    /// Shrinking removes data for good, and has to be allowed.
    pub async fn resize(&self, size: u64, allow_shrink: bool) -> Result<()> {
        let inner = self.inner.clone();
        detached(async move {
            let _alone = inner.alone().await?;
            let view = inner.seen();
            let (old, objects) = (view.header.size, inner.fixed.layout.objects(size));
            if view.header.has(features::OBJECT_MAP) && objects > layout::OBJECTS_MAX {
                let what = "more objects than an object map can describe";
                return Err(Error::refused(Errno::EINVAL, what));
            }
            if size < old {
                if !allow_shrink {
                    return Err(Error::refused(
                        Errno::EINVAL,
                        "shrinking the image was not allowed",
                    ));
                }
                inner.cut(&view, size).await?;
            } else {
                inner.resize_map(objects).await?;
            }
            let op = Operation::new().rbd_write("set_size", |w| w.u64(size));
            ask(&inner.io, &inner.header_oid, op).await?;
            if size < old {
                inner.resize_map(objects).await?;
            }
            inner.changed().await
        })
        .await
    }
}

impl Inner {
    /// Removes what lies beyond `size`.
    async fn cut(&self, view: &Arc<View>, size: u64) -> Result<()> {
        let layout = &self.fixed.layout;
        let (first, end) = (layout.objects(size), layout.objects(view.header.size));
        self.remove_objects(view, first, end).await?;
        // Of a set of objects several may be cut.
        for object in first.saturating_sub(layout.count())..first {
            let (left, had) = (layout.used(object, size), layout.used(object, view.header.size));
            if left < had {
                self.truncate_object(view, object, left).await?;
            }
        }
        Ok(())
    }

    /// Removes data objects `first..end`; the caller has the gate alone.
    pub(super) async fn remove_objects(&self, view: &Arc<View>, first: u64, end: u64) -> Result<()> {
        let mut from = first;
        while from < end {
            let to = end.min(from + BATCH);
            self.update_map(from, to, PENDING, None).await?;
            let there = (from..to).filter(|o| self.known(*o) != Some(NONEXISTENT));
            together::all(there.map(|object| async move {
                let removed = view.data.remove(self.data_oid(object)).await;
                crate::error::or_missing(removed.map_err(Into::into))
            }))
            .await?;
            self.update_map(from, to, NONEXISTENT, Some(PENDING)).await?;
            from = to;
        }
        Ok(())
    }
}
