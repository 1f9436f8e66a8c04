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
    let id = directory::id_of(io, name).await?;
    let image = open_whole(io, &id).await;
    let image = image.map_err(|e| e.about(&format!("image '{name}'")))?;
    let (inner, name) = (image.inner.clone(), name.to_string());
    let moved = detached(async move { inner.lose_name(&name).await }).await;
    let closed = image.close().await;
    moved.and(closed)
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
                trash::mark(&io, &id, STATE_NORMAL, STATE_RESTORING).await?;
                Err(e)
            }
        }
    })
    .await
}

async fn give_name(io: &IoCtx, id: &str, name: &str) -> Result<()> {
    match directory::id_of(io, name).await {
        // An attempt before came as far as that, and perhaps further.
        Ok(there) if there == id => match directory::add_name(io, name, id).await {
            Err(e) if e.errno() == Errno::EEXIST => directory::name_of(io, id).await.map(drop),
            done => done,
        },
        Ok(_) => Err(Error::refused(
            Errno::EEXIST,
            format!("image '{name}' exists already"),
        )),
        Err(e) if e.is_not_found() => {
            let op = Operation::new()
                .create(true)
                .rbd_write("set_id", |w| w.string(id));
            ask(io, &names::id_object(name), op).await?;
            let added = directory::add_name(io, name, id).await;
            if added.is_err() {
                let _ = io.remove(names::id_object(name)).await;
            }
            added
        }
        Err(e) => Err(e),
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
                if there.source != SOURCE_USER || there.state != STATE_MOVING {
                    return Err(e);
                }
            }
            done => drop(done?),
        }
        or_missing(self.io.remove(names::id_object(name)).await.map_err(Into::into))?;
        or_missing(directory::remove_name(&self.io, name, &self.id).await)?;
        trash::mark(&self.io, &self.id, STATE_NORMAL, STATE_MOVING).await
    }
}
