//! The target goes on without its source, which is removed.
//!
//! Order: the target's record goes first, which is the moment of the commit; then the source's snapshots, its data, its header, its place in the trash.
//! What was cut short behind the first step is found by the source's record, which names the target.

use super::{EXECUTED, Migration, Records, closed, old, open_watched};
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
    let source = &migration.source;
    let records = Records::read(client, migration).await?;
    if !is_to_remove(client, migration, &records).await? {
        return remove_rest(migration, client).await;
    }
    let io = source.io(client);
    let image = match source.is_old() {
        true => old::open(&io, &source.name, NOSNAP, false).await?,
        false => open_watched(io.clone(), source.id.clone()).await?,
    };
    let done = async {
        for snap in &image.inner.seen().header.snaps {
            if snap.child_count > 0 || !source.is_old() && image.inner.has_old_children(snap.id).await? {
                return Err(Error::refused(Errno::EBUSY, "the source has clones"));
            }
        }
        if records.target.is_some() {
            migration.free_target(client, EXECUTED).await?;
        }
        match source.is_old() {
            true => old::remove(&image, &source.name, progress).await,
            false => remove_source(&image, progress).await,
        }
    };
    let done = done.await;
    closed(image, done).await
}

/// False: the source is gone, all but its place in the trash.
async fn is_to_remove(client: &Client, migration: &Migration, records: &Records) -> Result<bool> {
    let target = &migration.target;
    let unready = || {
        Error::refused(
            Errno::EINVAL,
            format!("image '{}' has not completed migration", target.name),
        )
    };
    let of_target = records.target.as_ref();
    if of_target.is_some_and(|r| r.state != EXECUTED)
        || records.source.as_ref().is_some_and(|r| r.state != EXECUTED)
    {
        return Err(unready());
    }
    if of_target.is_some_and(|r| r.mirroring) {
        let what =
            "not supported: its mirroring has to be enabled again: run 'rbd migration commit' with a client";
        return Err(Error::unsupported(what));
    }
    match (of_target, &records.source) {
        // It is gone, all but its place in the trash.
        (Some(_), None) if !records.source_exists => {
            migration.free_target(client, EXECUTED).await?;
            return Ok(false);
        }
        (Some(_), _) => drop(migration.confirm(client, records).await?),
        // What the source held would be nowhere.
        (None, Some(_)) if !records.target_exists => {
            let what = format!(
                "the target '{}' is gone: its source stays in the trash",
                target.name
            );
            return Err(Error::refused(Errno::EINVAL, what));
        }
        (None, Some(_)) if !migration.source_in_trash(client).await? => return Err(unready()),
        (None, Some(_)) => {}
        (None, None) if records.source_exists => return Err(unready()),
        (None, None) => return Ok(false),
    }
    Ok(true)
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
    // One that has got a clone meanwhile stays, and its data with it.
    match inner.seen().header.snaps.first() {
        Some(left) => Err(Error::refused(
            Errno::EBUSY,
            format!("snapshot '{}' has clones", left.name),
        )),
        None => Ok(()),
    }
}

/// An earlier commit came as far as the source's header, which is gone.
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
    trash::mark_removing(&io, id).await?;
    or_missing(io.remove(names::object_map(id, NOSNAP)).await.map_err(Into::into))?;
    leave_trash(&io, id).await
}
