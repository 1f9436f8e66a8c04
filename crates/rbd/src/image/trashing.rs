//! Into the trash and out of it again (docs/protocol/ceph/05-rbd.md, 10.3): an image loses its name and keeps its data, and gets a
//! name again. A move that was cut short is found by its state, and can be asked for again.

use super::removal::{leave_trash, open_whole};
use super::{Inner, detached};
use crate::calls::Calls;
use crate::error::or_missing;
use crate::header::ask;
use crate::trash::{self, SOURCE_USER, STATE_MOVING, STATE_NORMAL, STATE_RESTORING};
use crate::{Error, Result, directory, features, mirror, names};
use client::{IoCtx, Operation};
use denc::Encode;
use objclass::rbd::types::TrashImage;
use types::{Errno, Utime};

/// Moves an image that nobody has open. Its snapshots go with it.
pub async fn move_to_trash(io: &IoCtx, name: &str) -> Result<()> {
    let id = match directory::id_of(io, name).await {
        Err(e) if e.is_not_found() => half_moved(io, name).await?.ok_or(e)?,
        found => found?,
    };
    let image = open_whole(io, &id).await;
    let image = image.map_err(|e| e.about(&format!("image '{name}'")))?;
    let (inner, name) = (image.inner.clone(), name.to_string());
    let moved = detached(async move { inner.lose_name(&name).await }).await;
    let closed = image.close().await;
    moved.and(closed)
}

/// The image that an earlier move has taken the name from, and not come to its end.
async fn half_moved(io: &IoCtx, name: &str) -> Result<Option<String>> {
    let mut all = trash::list(io).await?.into_iter();
    Ok(all.find(|(_, t)| is_half_moved(t, name)).map(|(id, _)| id))
}

fn is_half_moved(entry: &TrashImage, name: &str) -> bool {
    entry.source == SOURCE_USER && entry.state == STATE_MOVING && entry.name == name
}

/// Gives an image that is in the trash a name, which must be free.
pub async fn restore(io: &IoCtx, id: &str, name: &str) -> Result<()> {
    directory::check_name(name)?;
    if !trash::is_thrown_away(trash::get(io, id).await?.source) {
        let what = format!("image '{id}' in the trash was not put there by a person");
        return Err(Error::refused(Errno::EBUSY, what));
    }
    trash::mark(io, id, STATE_RESTORING, STATE_NORMAL).await?;
    let (io, id, name) = (io.clone(), id.to_string(), name.to_string());
    detached(async move {
        let named = give_name(&io, &id, &name).await;
        match named {
            Ok(()) => leave_trash(&io, &id).await,
            Err(e) => {
                // Whole again only where it has no name: with one it could be removed under those who use it.
                if name_now(&io, &id).await == Ok(None) {
                    trash::mark(&io, &id, STATE_NORMAL, STATE_RESTORING).await?;
                }
                Err(e)
            }
        }
    })
    .await
}

/// As the directory says it.
async fn name_now(io: &IoCtx, id: &str) -> Result<Option<String>> {
    match directory::name_of(io, id).await {
        Ok(name) => Ok(Some(name)),
        Err(e) if e.is_not_found() => Ok(None),
        Err(e) => Err(e),
    }
}

/// An attempt before may have come as far as either of its two steps, or an interrupted move not have taken both back.
pub(super) async fn give_name(io: &IoCtx, id: &str, name: &str) -> Result<()> {
    match directory::id_of(io, name).await {
        Ok(there) if there == id => enter(io, id, name).await,
        Ok(_) => Err(Error::refused(
            Errno::EEXIST,
            format!("image '{name}' exists already"),
        )),
        Err(e) if e.is_not_found() => {
            let op = Operation::new()
                .create(true)
                .rbd_write("set_id", |w| w.string(id));
            ask(io, &names::id_object(name), op).await?;
            let entered = enter(io, id, name).await;
            // Not where it may be in the directory all the same.
            if entered.is_err() && name_now(io, id).await.is_ok_and(|n| n.as_deref() != Some(name)) {
                let _ = io.remove(names::id_object(name)).await;
            }
            entered
        }
        Err(e) => Err(e),
    }
}

/// Into the directory, or it is there by this name already.
async fn enter(io: &IoCtx, id: &str, name: &str) -> Result<()> {
    match directory::add_name(io, name, id).await {
        Ok(()) => Ok(()),
        Err(e) => match name_now(io, id).await? {
            Some(there) if there == name => Ok(()),
            Some(there) => Err(Error::refused(
                Errno::EEXIST,
                format!("an earlier attempt has named image '{id}' '{there}': restore it by that name"),
            )),
            None => Err(e),
        },
    }
}

impl Inner {
    async fn lose_name(&self, name: &str) -> Result<()> {
        let _alone = self.alone().await?;
        let busy = |what: &str| Err(Error::refused(Errno::EBUSY, format!("image '{name}': {what}")));
        if self.seen().header.op_features & features::OP_GROUP != 0 {
            return busy("it is in a group");
        }
        if self.io.watchers(&self.header_oid).await?.len() > 1 {
            return busy("somebody has it open");
        }
        if mirror::of_image(&self.io, &self.id).await?.is_some() {
            return busy("it is mirrored");
        }
        self.still_named(name).await?;
        let now = Utime::from_unix(self.io.client().platform().clock.wall());
        let entry = TrashImage {
            source: SOURCE_USER,
            name: name.to_string().into(),
            deletion_time: now,
            deferment_end_time: now,
            state: STATE_MOVING,
        };
        let op = Operation::new().rbd_write("trash_add", |w| {
            w.string(&self.id);
            entry.encode(w);
        });
        match ask(&self.io, names::TRASH, op).await {
            // That of an earlier move, which was cut short.
            Err(e) if e.errno() == Errno::EEXIST => {
                let there = trash::get(&self.io, &self.id).await?;
                if !is_half_moved(&there, name) {
                    return Err(e);
                }
            }
            done => drop(done?),
        }
        or_missing(self.io.remove(names::id_object(name)).await.map_err(Into::into))?;
        or_missing(directory::remove_name(&self.io, name, &self.id).await)?;
        trash::mark(&self.io, &self.id, STATE_NORMAL, STATE_MOVING).await
    }

    /// Who renamed it, and gave its name to another one, may have been faster than our lock.
    async fn still_named(&self, name: &str) -> Result<()> {
        let gone = match directory::id_of(&self.io, name).await {
            Ok(there) if there == self.id => return Ok(()),
            Ok(_) => Error::refused(Errno::EBUSY, format!("another image is named '{name}' by now")),
            Err(e) => e,
        };
        let half = gone.is_not_found() && half_moved(&self.io, name).await?.as_ref() == Some(&self.id);
        if half { Ok(()) } else { Err(gone) }
    }
}
