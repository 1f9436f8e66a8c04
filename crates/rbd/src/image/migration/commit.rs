//! The target goes on without its source, which is removed.
//!
//! Order: the target's record goes first, which is the moment of the commit; then the source's snapshots, its data, its header, its place in the trash.
//! What was cut short behind the first step is found by the source's record, which names the target.

use super::{EXECUTED, Migration, Record, closed, forget, old, open_watched, record_of};
use crate::error::or_missing;
use crate::header::{UNPROTECTED, UNPROTECTING};
use crate::image::removal::leave_trash;
use crate::image::{Image, Inner};
use crate::trash::{self, SOURCE_MIGRATION};
use crate::{Error, Result, names};
use client::Client;
use std::sync::Arc;
use types::{Errno, NOSNAP};

type Progress<'a> = &'a (dyn Fn(u64, u64) + Send + Sync);

pub async fn commit(client: &Client, migration: &Migration, progress: Progress<'_>) -> Result<()> {
    let (source, target) = (&migration.source, &migration.target);
    let unready = || {
        Error::refused(
            Errno::EINVAL,
            format!("image '{}' has not completed migration", target.name),
        )
    };
    let record = migration.target_record(client).await?;
    if record.as_ref().is_some_and(|r| r.state != EXECUTED) {
        return Err(unready());
    }
    if record.as_ref().is_some_and(|r| r.mirroring) {
        let what =
            "not supported: its mirroring has to be enabled again: run 'rbd migration commit' with a client";
        return Err(Error::unsupported(what));
    }
    let io = source.io(client);
    let of_source = record_of(&io, &source.header()).await?;
    match &of_source {
        Some(r) if r.header_type != Record::SOURCE || r.image_id != target.id || r.state != EXECUTED => {
            return Err(unready());
        }
        // It is gone, all but its place in the trash.
        None if record.is_none() => return remove_rest(migration, client).await,
        None => {}
        Some(_) => {}
    }
    let image = match source.is_old() {
        true => old::open(&io, &source.name, NOSNAP, false).await?,
        false => open_watched(io.clone(), source.id.clone()).await?,
    };
    let done = async {
        if image.inner.seen().header.snaps.iter().any(|s| s.child_count > 0) {
            return Err(Error::refused(Errno::EBUSY, "the source has clones"));
        }
        if record.is_some() {
            forget(&target.io(client), &target.header()).await?;
        }
        match source.is_old() {
            true => old::remove(&image, &source.name, progress).await,
            false => remove_source(&image, progress).await,
        }
    };
    let done = done.await;
    closed(image, done).await
}

async fn remove_source(image: &Image, progress: Progress<'_>) -> Result<()> {
    let inner = &image.inner;
    let _alone = inner.alone().await?;
    if inner.io.watchers(&inner.header_oid).await?.len() > 1 {
        return Err(Error::refused(Errno::EBUSY, "somebody has the source open"));
    }
    remove_snaps(inner).await?;
    inner.remove_data(progress).await
}

/// All of them, protected or not; the caller has the gate alone.
pub(super) async fn remove_snaps(inner: &Arc<Inner>) -> Result<()> {
    for snap in inner.seen().header.snaps.iter().rev() {
        if snap.protection != UNPROTECTED {
            inner.set_protection(snap.id, UNPROTECTING).await?;
            inner.set_protection(snap.id, UNPROTECTED).await?;
        }
        inner.drop_snap(snap.id).await?;
        inner.refresh().await?;
    }
    Ok(())
}

/// An earlier commit came as far as the source's header.
async fn remove_rest(migration: &Migration, client: &Client) -> Result<()> {
    let (io, id) = (migration.source.io(client), &migration.source.id);
    if migration.source.is_old() {
        return Ok(());
    }
    match trash::get(&io, id).await {
        Ok(entry) if entry.source == SOURCE_MIGRATION => {}
        // Another one's, or gone.
        Ok(_) => return Ok(()),
        Err(e) => return or_missing(Err(e)),
    }
    if crate::directory::exists(&io, &names::header(id)).await? {
        let what = format!("image '{id}' in the trash says nothing of a migration");
        return Err(Error::refused(Errno::EINVAL, what));
    }
    trash::mark_removing(&io, id).await?;
    or_missing(io.remove(names::object_map(id, NOSNAP)).await.map_err(Into::into))?;
    leave_trash(&io, id).await
}
