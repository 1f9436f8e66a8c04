//! The source is again what it was, with what was written to the target's head; the target goes.
//!
//! Order: that the source can have its name again is known before anything changes; then both records say "aborting", so that no client uses either
//! image; then the source takes over what the target has (data, clones, group), the target goes, and the source gets its name. Its record
//! goes last: by it an abort that was cut short is found.

use super::commit::remove_snaps;
use super::{
    ABORTING, Migration, Record, Records, carry, children, closed, forget, old, open_watched, record_of,
    wait_for_owner,
};
use crate::error::or_missing;
use crate::image::removal::leave_trash;
use crate::image::trashing::give_name;
use crate::image::{Image, Inner, locked};
use crate::trash::{self, STATE_NORMAL, STATE_RESTORING};
use crate::{Error, Result, directory, names};
use client::Client;
use types::{Errno, NOSNAP};

type Progress<'a> = &'a (dyn Fn(u64, u64) + Send + Sync);

pub async fn abort(client: &Client, migration: &Migration, progress: Progress<'_>) -> Result<()> {
    let source = &migration.source;
    let io = source.io(client);
    let records = Records::read(client, migration).await?;
    let both = match (&records.target, &records.source) {
        (Some(_), _) => Some(migration.confirm(client, &records).await?),
        (None, Some(s)) if s.state == ABORTING && !records.target_exists => None,
        // Done by somebody else meanwhile, or it never was.
        (None, None) if !records.target_exists => return Ok(()),
        // Once it is committed there is no way back.
        (None, _) => {
            let what = format!("image '{}' is not migrating", migration.target.name);
            return Err(Error::refused(Errno::EINVAL, what));
        }
    };
    if both.as_ref().is_some_and(|(t, s)| t.mirroring || s.mirroring) {
        let what =
            "not supported: its mirroring has to be enabled again: run 'rbd migration abort' with a client";
        return Err(Error::unsupported(what));
    }
    name_is_free(client, migration).await?;
    match &both {
        Some(both) => take_target_down(client, migration, both, progress).await?,
        None => remove_names(client, migration).await?,
    }
    if source.is_old() {
        old::enter(&io, &source.name).await?;
    } else if migration.source_in_trash(client).await? {
        trash::mark(&io, &source.id, STATE_RESTORING, STATE_NORMAL).await?;
        give_name(&io, &source.id, &source.name).await?;
        leave_trash(&io, &source.id).await?;
    }
    match records.source {
        Some(_) => forget(&io, &source.header()).await,
        None => Ok(()),
    }
}

/// Of no other image than the two.
async fn name_is_free(client: &Client, migration: &Migration) -> Result<()> {
    let (source, target) = (&migration.source, &migration.target);
    let io = source.io(client);
    let same_place = (source.pool, &source.namespace) == (target.pool, &target.namespace);
    let taken = match directory::id_of(&io, &source.name).await {
        Ok(id) => id != source.id && !(same_place && id == target.id),
        // By its own header, or by another image of format 1.
        Err(e) if e.errno() == Errno::EOPNOTSUPP => !source.is_old(),
        Err(e) if e.is_not_found() => source.is_old(),
        Err(e) => return Err(e),
    };
    if taken {
        let what = format!(
            "the source cannot have its name '{}' again: another image has it",
            source.name
        );
        return Err(Error::refused(Errno::EEXIST, what));
    }
    if !source.is_old() && !migration.source_in_trash(client).await? {
        // An abort that was cut short has named it already.
        let named = directory::name_of(&io, &source.id).await?;
        if named != source.name {
            return Err(Error::refused(
                Errno::EEXIST,
                format!("the source is named '{named}' by now"),
            ));
        }
    }
    Ok(())
}

async fn take_target_down(
    client: &Client,
    migration: &Migration,
    both: &(Record, Record),
    progress: Progress<'_>,
) -> Result<()> {
    let source = &migration.source;
    let image = match source.is_old() {
        true => old::open(&source.io(client), &source.name, NOSNAP, false).await?,
        false => open_watched(source.io(client), source.id.clone()).await?,
    };
    let done = async {
        let target = migration.open_target(client).await?;
        let done = take_down(client, migration, both, (&image, &target), progress).await;
        closed(target, done).await
    };
    let done = done.await;
    closed(image, done).await?;
    remove_names(client, migration).await
}

async fn take_down(
    client: &Client,
    migration: &Migration,
    (record, of_source): &(Record, Record),
    (source, target): (&Image, &Image),
    progress: Progress<'_>,
) -> Result<()> {
    let inner = &target.inner;
    // Before the lock is taken from a client, who is told all the same.
    if is_open(inner).await? {
        return Err(busy());
    }
    let _alone = inner.alone().await.map_err(wait_for_owner)?;
    children::check(client, migration, inner, record).await?;
    shut(client, migration, inner, (record, of_source)).await?;
    let view = inner.seen();
    // As it is now that nobody can change it: somebody may have had the target open in between.
    let record = &record_of(&inner.io, &inner.header_oid).await?.ok_or_else(busy)?;
    let first = |done, all| progress(done, 2 * all);
    carry::carry_back(source, inner, record, &first)
        .await
        .map_err(wait_for_owner)?;
    children::give_back(client, migration, record, &view.header).await?;
    children::change_group(client, migration).await?;
    inner.refresh().await?;
    let sizes = |image: &Image| {
        let header = &image.inner.seen().header;
        let of_snaps = header.snaps.iter().map(|s| s.size).max();
        header.size.max(of_snaps.unwrap_or(0))
    };
    // A copy that was cut short may have left some that only snapshots need.
    let end = inner.fixed.layout.objects(sizes(source).max(sizes(target)));
    remove_snaps(inner).await?;
    let second = |done, all| progress(all + done, 2 * all);
    inner.remove_data_objects(&inner.seen(), end, &second).await?;
    if let Some(parent) = &inner.seen().header.parent {
        inner.leave_parent(parent).await?;
    }
    let _ = inner.unlock_map().await;
    inner.end_watch().await;
    *locked(&inner.held) = None;
    or_missing(
        inner
            .io
            .remove(inner.header_oid.clone())
            .await
            .map_err(Into::into),
    )
}

/// By somebody else.
async fn is_open(inner: &Inner) -> Result<bool> {
    Ok(inner.io.watchers(&inner.header_oid).await?.len() > 1)
}

fn busy() -> Error {
    Error::refused(Errno::EBUSY, "somebody has the target open")
}

/// Both records say "aborting", and nobody has the target open.
async fn shut(
    client: &Client,
    migration: &Migration,
    inner: &Inner,
    (record, of_source): (&Record, &Record),
) -> Result<()> {
    if is_open(inner).await? {
        return Err(busy());
    }
    // The target's first: a commit begins with that one, and so either it or the abort goes on.
    migration
        .change_target(client, &[record.state], ABORTING, "")
        .await?;
    migration
        .change_source(client, &[of_source.state], ABORTING, "")
        .await?;
    // From here on nobody can open it; somebody may have done so before.
    if is_open(inner).await? {
        migration
            .change_source(client, &[ABORTING], of_source.state, "")
            .await?;
        migration
            .change_target(client, &[ABORTING], record.state, "")
            .await?;
        return Err(busy());
    }
    Ok(())
}

/// What is left of a target whose header is gone.
async fn remove_names(client: &Client, migration: &Migration) -> Result<()> {
    let target = &migration.target;
    let io = target.io(client);
    let remove = async |oid: String| or_missing(io.remove(oid).await.map_err(Into::into));
    remove(names::object_map(&target.id, NOSNAP)).await?;
    // It may have been renamed since the record was written.
    let named = match directory::name_of(&io, &target.id).await {
        Ok(name) => Some(name),
        Err(e) if e.is_not_found() => None,
        Err(e) => return Err(e),
    };
    for name in named.iter().chain([&target.name]) {
        match directory::id_of(&io, name).await {
            Ok(id) if id == target.id => remove(names::id_object(name)).await?,
            Ok(_) => {}
            Err(e) if e.is_not_found() || e.errno() == Errno::EOPNOTSUPP => {}
            Err(e) => return Err(e),
        }
    }
    match named {
        Some(name) => or_missing(directory::remove_name(&io, &name, &target.id).await),
        None => Ok(()),
    }
}
