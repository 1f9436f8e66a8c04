//! A pool's trash: images that are to be removed, by people or by time (docs/protocol/ceph/05-rbd.md, 4.10). Removal, and
//! the ways in and out, are in [`crate::image`].

use crate::calls::Calls;
use crate::header::ask;
use crate::{Error, Result, names};
use bytes::Bytes;
use client::{IoCtx, Operation};
use denc::{Decode, Reader};
use objclass::rbd::types::TrashImage;
use std::collections::BTreeMap;
use types::Errno;

/// Entries in one answer.
const PAGE: u64 = 1024;
/// Of a [`TrashImage`]: a person has put it there; or with its children.
pub(crate) const SOURCE_USER: u8 = 0;
const SOURCE_USER_PARENT: u8 = 4;
/// The source of a migration is there: it is needed.
pub(crate) const SOURCE_MIGRATION: u8 = 2;
/// Of a [`TrashImage`]: a removal under way, or one that was cut short, has put it there.
pub const SOURCE_REMOVING: u8 = 3;
/// Whole, and nobody is at it.
pub(crate) const STATE_NORMAL: u8 = 0;
/// Between its name and the trash, in either direction.
pub(crate) const STATE_MOVING: u8 = 1;
const STATE_REMOVING: u8 = 2;
pub(crate) const STATE_RESTORING: u8 = 3;

/// Whether what is there by this source is there to go.
pub fn is_thrown_away(source: u8) -> bool {
    matches!(source, SOURCE_USER | SOURCE_USER_PARENT)
}

/// One image in the trash.
pub async fn get(io: &IoCtx, id: &str) -> Result<TrashImage> {
    let op = Operation::new().rbd("trash_get", |w| w.string(id));
    match ask(io, names::TRASH, op).await {
        Ok(done) => Ok(TrashImage::from_bytes(&done.step(0)?.data)?),
        Err(e) if e.is_not_found() => Err(Error::refused(
            Errno::ENOENT,
            format!("there is no image of id '{id}' in the trash"),
        )),
        Err(e) => Err(e),
    }
}

/// All images in the trash, by id.
pub async fn list(io: &IoCtx) -> Result<BTreeMap<String, TrashImage>> {
    let mut all = BTreeMap::new();
    let mut after = Bytes::new();
    loop {
        let op = Operation::new().rbd("trash_list", |w| {
            w.blob(&after);
            w.u64(PAGE);
        });
        let done = match ask(io, names::TRASH, op).await {
            Err(e) if e.is_not_found() => return Ok(all),
            other => other?,
        };
        let page: BTreeMap<Bytes, TrashImage> = Reader::new(done.step(0)?.data.clone()).get()?;
        let whole = (page.len() as u64) < PAGE;
        if let Some(last) = page.keys().next_back() {
            after = last.clone();
        }
        let text = |b: Bytes| String::from_utf8_lossy(&b).into_owned();
        all.extend(page.into_iter().map(|(id, image)| (text(id), image)));
        if whole {
            return Ok(all);
        }
    }
}

/// From here on nobody can restore the image. EBUSY: somebody restores it, or is still moving it here.
pub(crate) async fn mark_removing(io: &IoCtx, id: &str) -> Result<()> {
    mark(io, id, STATE_REMOVING, STATE_NORMAL).await
}

/// Another state for one that is in state `from`, or is in that state already. EBUSY: it is in a third one.
pub(crate) async fn mark(io: &IoCtx, id: &str, to: u8, from: u8) -> Result<()> {
    let op = Operation::new().rbd_write("trash_state_set", |w| {
        w.string(id);
        w.u8(to);
        w.u8(from);
    });
    match ask(io, names::TRASH, op).await {
        // The trash says what is missing.
        Err(e) if e.is_not_found() => get(io, id).await.and(Err(e)),
        Err(e) if e.errno() == Errno::ESTALE => Err(Error::refused(
            Errno::EBUSY,
            format!("image '{id}': somebody restores it from the trash, removes it, or moves it there"),
        )),
        done => done.map(drop),
    }
}
