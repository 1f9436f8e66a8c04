//! How a migration ends (docs/protocol/ceph/05-rbd.md, 10.3): the target is an image like others and the source goes, or the
//! other way round. Each can be begun again at any point.

use super::execute::{not_gone, open_target};
use super::migration::{open_end, same_source};
use super::open::{At, Mode};
use super::removal::leave_trash;
use super::{Image, Inner, Progress};
use crate::error::or_missing;
use crate::migration::{self, End, Ends, Migration};
use crate::{Error, Result, directory, names, trash};
use std::sync::Arc;
use types::{Errno, NOSNAP};

/// The target needs its source no more, which goes. EINVAL: not all was copied.
pub async fn commit(ends: &Ends, progress: Progress<'_>) -> Result<()> {
    match open_target(ends).await {
        Ok(target) => {
            let left = target.inner.leave_source(ends).await;
            let closed = target.close().await;
            left.and(closed)?;
        }
        // Somebody removed it since; its source is left.
        Err(e) if e.is_not_found() => {}
        Err(e) => return Err(e),
    }
    remove_source(ends, progress).await.map_err(not_gone)
}

/// The target goes, with all that was written to it; its source is what it was.
pub async fn abort(ends: &Ends, progress: Progress<'_>) -> Result<()> {
    let target = match open_target(ends).await {
        Ok(target) => target,
        // Its header goes last.
        Err(e) if e.is_not_found() => {
            let map = names::object_map(&ends.target.id, NOSNAP);
            return or_missing(ends.target.io.remove(map).await.map_err(Into::into));
        }
        Err(e) => return Err(e),
    };
    let done = target.inner.abort(ends, progress).await;
    if done.is_err() {
        let _ = target.close().await;
    }
    done.map_err(not_gone)
}

fn not_migrating() -> Error {
    Error::refused(Errno::EINVAL, "the image is not the target of this migration")
}

impl Inner {
    async fn leave_source(&self, ends: &Ends) -> Result<()> {
        let _alone = self.alone().await?;
        self.refresh().await?;
        let view = self.seen();
        // An earlier run came as far as that.
        let Some(record) = view.header.source() else {
            return Ok(());
        };
        if record.state != migration::EXECUTED {
            let what = "not all of the image was copied yet";
            return Err(Error::refused(Errno::EINVAL, what));
        }
        ends.target.remove_record().await?;
        self.changed().await
    }

    async fn abort(self: &Arc<Self>, ends: &Ends, progress: Progress<'_>) -> Result<()> {
        self.begin_abort(ends).await?;
        self.drop_all_snaps().await?;
        let name = &ends.target.name;
        let _alone = self.removable(name).await?;
        self.remove_all_objects(progress).await?;
        // Both may have the same name.
        directory::take_name(&self.io, name, &self.id).await?;
        restore(&ends.source).await?;
        self.end_removal().await
    }

    async fn begin_abort(&self, ends: &Ends) -> Result<()> {
        let _alone = self.alone().await?;
        self.refresh().await?;
        let view = self.seen();
        let record = view.header.source().ok_or_else(not_migrating)?;
        let source = &ends.source;
        if source.name.as_bytes() != &record.image_name[..] || source.id.as_bytes() != &record.image_id[..] {
            return Err(not_migrating());
        }
        if self.io.watchers(&self.header_oid).await?.len() > 1 {
            let what = format!("image '{}': somebody has it open", ends.target.name);
            return Err(Error::refused(Errno::EBUSY, what));
        }
        if self.has_clones().await? {
            let what = "not supported: it has clones; a client can abort its migration (rbd migration abort)";
            return Err(Error::unsupported(what));
        }
        // If it is gone already, or has been given back, an earlier run did that.
        or_no_record(source.set_state(migration::ABORTING, "").await)?;
        ends.target.set_state(migration::ABORTING, "").await
    }
}

/// Not in the midst of a migration any more.
fn or_no_record(done: Result<()>) -> Result<()> {
    match done {
        Err(e) if e.errno() == Errno::EINVAL => Ok(()),
        other => other,
    }
}

/// Gives the source its name back, and its data to whoever wants to write them.
async fn restore(source: &End) -> Result<()> {
    match source.is_old() {
        true => directory::give_old_name(&source.io, &source.name).await?,
        false => trash::restore(&source.io, &source.id, &source.name).await?,
    }
    source.remove_record().await
}

async fn remove_source(ends: &Ends, progress: Progress<'_>) -> Result<()> {
    let source = &ends.source;
    match source.record().await {
        Ok(record) if is_source_of(&record, &ends.target) => {}
        // Its header has gone: the trash may know of it still.
        Err(e) if e.is_not_found() => return forget(source).await,
        Ok(_) => return Err(not_migrating()),
        Err(e) => return Err(e),
    }
    if source.is_old() {
        return remove_old(source, progress).await;
    }
    if let Err(e) = trash::get(&source.io, &source.id).await {
        let what = "the source of the migration is not in the trash any more";
        let gone = e.is_not_found();
        return Err(if gone {
            Error::refused(Errno::EINVAL, what)
        } else {
            e
        });
    }
    let image = open_source(source).await?;
    let removed = async {
        // First of all: who restored it would miss its snapshots.
        trash::mark_removing(&source.io, &source.id).await?;
        let _alone = image.inner.removable_source(source).await?;
        image.inner.remove_data(progress).await
    };
    let removed = removed.await;
    if removed.is_err() {
        let _ = image.close().await;
    }
    removed
}

fn is_source_of(record: &Migration, target: &End) -> bool {
    let there = Migration {
        pool: target.io.pool_id(),
        pool_namespace: target.io.namespace().clone(),
        image_id: target.id.clone().into(),
        image_name: record.image_name.clone(),
        ..record.clone()
    };
    record.header_type == Migration::SOURCE && same_source(record, &there)
}

async fn open_source(source: &End) -> Result<Image> {
    let mode = Mode {
        read_only: false,
        migrates: true,
        depth: 0,
    };
    let image = open_end(source, At::Head, mode).await?;
    image.inner.begin_watch().await?;
    Ok(image)
}

/// What an earlier removal left of it.
async fn forget(source: &End) -> Result<()> {
    if source.is_old() {
        return Ok(());
    }
    let map = names::object_map(&source.id, NOSNAP);
    or_missing(source.io.remove(map).await.map_err(Into::into))?;
    leave_trash(&source.io, &source.id).await
}

async fn remove_old(source: &End, progress: Progress<'_>) -> Result<()> {
    let image = open_source(source).await?;
    let removed = async {
        let inner = &image.inner;
        let _alone = inner.removable_source(source).await?;
        inner.remove_all_objects(progress).await?;
        inner.end_watch().await;
        or_missing(source.io.remove(source.header()).await.map_err(Into::into))
    };
    let removed = removed.await;
    if removed.is_err() {
        let _ = image.close().await;
    }
    removed
}

impl Inner {
    async fn removable_source(&self, source: &End) -> Result<tokio::sync::OwnedRwLockWriteGuard<()>> {
        self.drop_all_snaps().await?;
        self.removable(&source.name).await
    }
}
