//! Live migration of an image that `rbd migration prepare` has begun: carried out, committed, aborted (docs/internals/rbd.md,
//! Migration; docs/protocol/classes.md has what goes over the wire).
//!
//! Vocabulary: the *source* is in the trash, or is of format 1, and does not change any more; clients use the *target*, which reads from
//! the source what it has not itself. Both headers have a *record* that names the other one. The record of the target says, too, which of its
//! snapshots stands for which of the source; the newest of these is the *cut*: an object whose snapset is not older has all of the source.
//!
//! Invariants: what a client has written to the target is never overwritten: each write of ours is refused by the OSD
//! (`assert_snapc_seq`) if the object is further. Nothing is done by one record alone: the other header has to confirm it ([`records`]). Every step can be done again after it was cut short. Nothing of the source goes before
//! the target's record says that all was copied, nothing of the target before the source's name is known to be free.
//!
//! Not here: `prepare`; images whose source is no image of a pool; mirroring, which has to be switched on again by a client.

mod abort;
mod carry;
mod children;
mod commit;
mod content;
mod execute;
mod group;
mod lookup;
mod old;
mod records;
mod source;
mod times;

pub use abort::abort;
pub use commit::commit;
pub use execute::execute;
pub use group::Unfinished;
pub use lookup::{Standing, find};

use records::{Records, is_another_version, record_of};

use super::Image;
use super::open::{At, Use};
use crate::calls::Calls;
use crate::header::ask;
use crate::notify::Message;
use crate::{Error, Result, names};
use bytes::Bytes;
use client::{Client, IoCtx, Operation};
use denc::Encode;
use objclass::rbd::types::Migration as Record;
use std::time::Duration;
use types::Errno;

/// States of a record.
pub const PREPARED: u8 = 2;
pub const EXECUTING: u8 = 3;
pub const EXECUTED: u8 = 4;
pub const ABORTING: u8 = 5;

/// What watchers get to hear of a changed header, as with librbd.
const NOTIFY_TIMEOUT: Duration = Duration::from_secs(5);

/// An image by all its names; of format 1: without an id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub pool: i64,
    pub namespace: String,
    pub name: String,
    pub id: String,
}

impl Place {
    fn io(&self, client: &Client) -> IoCtx {
        let mut io = client.pool_by_id(self.pool);
        io.set_namespace(self.namespace.clone().into_bytes());
        io
    }

    fn is_old(&self) -> bool {
        self.id.is_empty()
    }

    fn header(&self) -> String {
        match self.is_old() {
            true => names::old_header(&self.name),
            false => names::header(&self.id),
        }
    }

    /// The other side of a record.
    fn of(record: &Record) -> Self {
        let text = |b: &Bytes| String::from_utf8_lossy(b).into_owned();
        Self {
            pool: record.pool,
            namespace: text(&record.pool_namespace),
            name: text(&record.image_name),
            id: text(&record.image_id),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Migration {
    pub source: Place,
    pub target: Place,
}

async fn forget(io: &IoCtx, header: &str) -> Result<()> {
    let op = Operation::new().rbd_write("migration_remove", |_| {});
    ask(io, header, op).await?;
    tell(io, header).await;
    Ok(())
}

/// Somebody keeps the lock: it is waited for, as for one who has the image open.
fn wait_for_owner(e: Error) -> Error {
    match e.errno() {
        Errno::EROFS | Errno::ETIMEDOUT => Error::refused(Errno::EBUSY, e.to_string()),
        _ => e,
    }
}

/// Whoever has the image open reads its header again.
async fn tell(io: &IoCtx, header: &str) {
    let told = io
        .notify(header, Message::HeaderUpdate.to_bytes(), NOTIFY_TIMEOUT)
        .await;
    if let Err(e) = told {
        tracing::debug!(header, error = %e, "notify");
    }
}

impl Migration {
    /// To be closed.
    async fn open_target(&self, client: &Client) -> Result<Image> {
        open_watched(self.target.io(client), self.target.id.clone()).await
    }
}

async fn open_watched(io: IoCtx, id: String) -> Result<Image> {
    let image = Image::open_at(io, id, At::Head, Use::migration(false)).await?;
    image.inner.begin_watch().await?;
    Ok(image)
}

/// What a stock client can prepare, and we do not carry out.
fn check_kind(record: Option<&Record>) -> Result<()> {
    match record {
        Some(r) if !r.source_spec.is_empty() => Err(Error::unsupported(
            "not supported: its source is no image of a pool (prepared with --import-only)",
        )),
        _ => Ok(()),
    }
}

/// Closes `image` whatever came of the work on it; that counts.
async fn closed<T>(image: Image, done: Result<T>) -> Result<T> {
    match (done, image.close().await) {
        (Ok(_), Err(e)) => Err(e),
        (done, _) => done,
    }
}
