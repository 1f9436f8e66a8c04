//! Removal of an image (docs/protocol/ceph/05-rbd.md, 10.3): it goes to the trash first, so that what is left of an interrupted
//! one can be found and removed by anybody.

use super::{Image, ImageOptions, Inner, View, detached, locked};
use crate::calls::Calls;
use crate::error::or_missing;
use crate::header::ask;
use crate::trash::{self, SOURCE_MIGRATION, SOURCE_REMOVING, STATE_NORMAL};
use crate::{Error, Result, directory, features, names};
use client::{IoCtx, Operation};
use denc::Encode;
use objclass::rbd::types::TrashImage;
use std::sync::Arc;
use types::{Errno, NOSNAP, Utime};

/// Objects between two reports of progress.
const BATCH: u64 = 4096;

/// Told how many objects of how many are done.
pub type Progress<'a> = &'a (dyn Fn(u64, u64) + Send + Sync);

/// Removes an image that nobody has open and that has no snapshots.
pub async fn remove(io: &IoCtx, name: &str, progress: Progress<'_>) -> Result<()> {
    let id = directory::id_of(io, name).await?;
    let image = open_whole(io, &id).await;
    let image = image.map_err(|e| e.about(&format!("image '{name}'")))?;
    let removed = image.inner.remove_all(name, progress).await;
    if removed.is_err() {
        let _ = image.close().await;
    }
    removed
}

/// Removes an image that is in the trash, whoever put it there; the rules of [`remove`] hold. One that is not
/// there is not touched, nor one that somebody restores: EBUSY. From when data go on nobody can restore it, and not before.
pub async fn remove_trashed(io: &IoCtx, id: &str, progress: Progress<'_>) -> Result<()> {
    if trash::get(io, id).await?.source == SOURCE_MIGRATION {
        let what = format!("image '{id}' in the trash is the source of a migration");
        return Err(Error::refused(Errno::EBUSY, what));
    }
    let image = match open_whole(io, id).await {
        Ok(image) => image,
        // An earlier removal came as far as that.
        Err(e) if e.is_not_found() && !has_header(io, id).await? => {
            trash::mark_removing(io, id).await?;
            or_missing(io.remove(names::object_map(id, NOSNAP)).await.map_err(Into::into))?;
            return leave_trash(io, id).await;
        }
        Err(e) => return Err(e.about(&format!("image '{id}' in the trash"))),
    };
    let inner = image.inner.clone();
    let removed = match inner.removable(id).await {
        Ok(_alone) => inner.remove_data(progress).await,
        Err(e) => Err(e),
    };
    if removed.is_err() {
        let _ = image.close().await;
    }
    removed
}

/// What is missing may be the image's parent.
async fn has_header(io: &IoCtx, id: &str) -> Result<bool> {
    match io.stat(names::header(id)).await {
        Err(e) if e.errno() == Errno::ENOENT => Ok(false),
        Err(e) => Err(e.into()),
        Ok(_) => Ok(true),
    }
}

pub(super) async fn open_whole(io: &IoCtx, id: &str) -> Result<Image> {
    let options = ImageOptions {
        encrypted: true,
        ..ImageOptions::default()
    };
    Image::open_id(io, id, &options).await
}

pub(super) async fn leave_trash(io: &IoCtx, id: &str) -> Result<()> {
    let op = Operation::new().rbd_write("trash_remove", |w| w.string(id));
    or_missing(ask(io, names::TRASH, op).await.map(drop))
}

impl Inner {
    async fn remove_all(self: &Arc<Self>, name: &str, progress: Progress<'_>) -> Result<()> {
        let _alone = self.begin_removal(name).await?;
        self.remove_data(progress).await
    }

    /// Of one that is in the trash, and nowhere else.
    pub(super) async fn remove_data(self: &Arc<Self>, progress: Progress<'_>) -> Result<()> {
        trash::mark_removing(&self.io, &self.id).await?;
        let view = self.seen();
        let end = self.fixed.layout.objects(view.header.size);
        self.remove_data_objects(&view, end, progress).await?;
        let inner = self.clone();
        detached(async move { inner.end_removal().await }).await
    }

    /// The first `end` of them.
    pub(super) async fn remove_data_objects(
        &self,
        view: &Arc<View>,
        end: u64,
        progress: Progress<'_>,
    ) -> Result<()> {
        let mut from = 0;
        while from < end {
            let to = end.min(from + BATCH);
            self.remove_objects(view, from, to).await?;
            progress(to, end);
            from = to;
        }
        Ok(())
    }

    /// Everything that can stand against it.
    async fn removable(&self, name: &str) -> Result<tokio::sync::OwnedRwLockWriteGuard<()>> {
        let alone = self.alone().await?;
        let busy = |what: &str| Err(Error::refused(Errno::EBUSY, format!("image '{name}': {what}")));
        let view = self.seen();
        if !view.header.snaps.is_empty() {
            let what = format!("image '{name}' has snapshots");
            return Err(Error::refused(Errno::ENOTEMPTY, what));
        }
        if view.header.op_features & features::OP_GROUP != 0 {
            return busy("it is in a group");
        }
        if self.io.watchers(&self.header_oid).await?.len() > 1 {
            return busy("somebody has it open");
        }
        Ok(alone)
    }

    /// The same, then the name goes.
    async fn begin_removal(&self, name: &str) -> Result<tokio::sync::OwnedRwLockWriteGuard<()>> {
        let alone = self.removable(name).await?;
        let now = Utime::from_unix(self.io.client().platform().clock.wall());
        let trash = TrashImage {
            source: SOURCE_REMOVING,
            name: name.to_string().into(),
            deletion_time: now,
            deferment_end_time: now,
            // While it has its name others may remove it by that, which the mark would forbid.
            state: STATE_NORMAL,
        };
        let op = Operation::new().rbd_write("trash_add", |w| {
            w.string(&self.id);
            trash.encode(w);
        });
        match ask(&self.io, names::TRASH, op).await {
            // That of an earlier removal, which was cut short.
            Err(e) if e.errno() == Errno::EEXIST => {
                if trash::get(&self.io, &self.id).await?.source != SOURCE_REMOVING {
                    return Err(e);
                }
            }
            done => drop(done?),
        }
        or_missing(self.io.remove(names::id_object(name)).await.map_err(Into::into))?;
        or_missing(directory::remove_name(&self.io, name, &self.id).await)?;
        Ok(alone)
    }

    /// The data are gone: what names them goes, the trash entry last.
    async fn end_removal(&self) -> Result<()> {
        let view = self.seen();
        if let Some(parent) = &view.header.parent {
            self.leave_parent(parent).await?;
        }
        let _ = self.unlock_map().await;
        self.end_watch().await;
        *locked(&self.held) = None;
        let remove = async |oid: String| or_missing(self.io.remove(oid).await.map_err(Into::into));
        remove(names::object_map(&self.id, NOSNAP)).await?;
        remove(self.header_oid.clone()).await?;
        leave_trash(&self.io, &self.id).await
    }
}
