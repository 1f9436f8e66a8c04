//! An open image.
//!
//! An [`Image`] is a handle; clones are the same image. Everything runs in tasks of the caller's `LocalSet`
//! ([`io::task::spawn_local`]): what changes the image goes on to its end even if its future is dropped, since the lock must
//! not be given away while a write is under way.
//!
//! Order of what may be held together, from the outside in: the *gate* (shared by writes, alone for whatever changes the header or
//! the lock), `refreshing`, `copyups`, `marks`; the plain mutexes are innermost and not held while waiting.

mod data;
mod diff;
mod locking;
mod map;
mod metadata;
pub mod migration;
mod mirroring;
mod object;
mod open;
mod parent;
mod removal;
mod resize;
mod snapshots;
mod trashing;
mod watching;

use crate::header::{Fixed, Header};
use crate::{Error, Layout, Result, header, names, notify};
use client::IoCtx;
use io::task;
use objclass::rbd::object_map::ObjectMap;
use std::collections::BTreeSet;
use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Notify, RwLock};
use types::{Errno, NOSNAP};

pub use diff::{Changed, Way};
pub use open::ImageOptions;
pub use parent::clone_image;
pub use removal::{Progress, remove, remove_trashed};
pub use trashing::{move_to_trash, restore};

/// Groups of objects whose changes to the object map, or copy-ups, exclude each other.
const SHARDS: usize = 64;

#[derive(Clone)]
pub struct Image {
    inner: Arc<Inner>,
}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "image {}", self.inner.id)
    }
}

struct Inner {
    /// Where the header is.
    io: IoCtx,
    id: String,
    header_oid: String,
    fixed: Fixed,
    /// What is read: a snapshot, or [`NOSNAP`].
    snap: u64,
    read_only: bool,
    /// Also while it is being migrated.
    migrates: bool,
    /// How many images this one is the parent of a parent of...
    depth: u32,
    view: Mutex<Arc<View>>,
    /// The header changed since the view was read.
    stale: AtomicBool,
    refreshing: tokio::sync::Mutex<()>,
    gate: Arc<RwLock<()>>,
    /// Of the lock that we hold on the header: its cookie.
    held: Mutex<Option<String>>,
    /// A release waits for the gate.
    releasing: AtomicBool,
    /// Only while the lock is held, and while the map can be believed.
    map: Mutex<Option<ObjectMap>>,
    marks: Vec<tokio::sync::Mutex<()>>,
    copyups: Vec<RwLock<()>>,
    /// The present watch's cookie; 0: there is none.
    cookie: AtomicU64,
    watching: Mutex<Option<watching::Watching>>,
    /// Somebody said that he released the lock.
    released: Notify,
    /// Work under way that others asked for.
    requests: Mutex<BTreeSet<notify::AsyncId>>,
}

/// The image as the header said when it was last read.
struct View {
    header: Header,
    /// Reads see the snapshot; writes keep all snapshots.
    data: IoCtx,
    /// Writes as before the first snapshot.
    beneath: IoCtx,
    /// Open at the snapshot that was cloned, if anything is still read from it.
    parent: Option<Image>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `work` to its end, also when the caller no longer waits.
async fn detached<T: 'static>(work: impl Future<Output = Result<T>> + 'static) -> Result<T> {
    let ended = task::spawn_local(work).await;
    ended.unwrap_or_else(|e| Err(Error::refused(Errno::EIO, format!("a task ended early: {e}"))))
}

impl Image {
    pub fn id(&self) -> &str {
        &self.inner.id
    }

    pub fn layout(&self) -> Layout {
        self.inner.fixed.layout
    }

    /// Where its data objects are, if not in the pool of its header.
    pub fn data_pool(&self) -> Option<i64> {
        self.inner.fixed.data_pool
    }

    /// The header as it is now, with sizes, features and snapshots.
    pub async fn header(&self) -> Result<Header> {
        Ok(self.inner.view().await?.header.clone())
    }

    /// In bytes; of the snapshot, if one is open.
    pub async fn size(&self) -> Result<u64> {
        let view = self.inner.view().await?;
        Ok(view.header.size_at(self.inner.snap))
    }

    pub async fn features(&self) -> Result<u64> {
        Ok(self.inner.view().await?.header.features)
    }

    /// We hold the exclusive lock.
    pub fn owns_lock(&self) -> bool {
        locked(&self.inner.held).is_some()
    }

    /// Whether the object map is in use; None without the lock.
    pub fn uses_object_map(&self) -> Option<bool> {
        self.owns_lock().then(|| locked(&self.inner.map).is_some())
    }

    /// Waits for writes under way, gives the lock back, and ends the watch. Without it others take us for dead, and fence
    /// this client, if they want the lock.
    pub async fn close(self) -> Result<()> {
        let inner = self.inner;
        detached(async move {
            let released = inner.release().await;
            inner.end_watch().await;
            released
        })
        .await
    }
}

impl Inner {
    fn seen(&self) -> Arc<View> {
        locked(&self.view).clone()
    }

    /// The newest view; reads the header if somebody said that it changed.
    async fn view(&self) -> Result<Arc<View>> {
        if self.stale.load(Ordering::Acquire) {
            self.refresh().await?;
        }
        Ok(self.seen())
    }

    async fn refresh(&self) -> Result<()> {
        let _one = self.refreshing.lock().await;
        self.stale.store(false, Ordering::Release);
        let read = async {
            let header = header::read(&self.io, &self.header_oid).await?;
            self.make_view(header, Some(&self.seen())).await
        };
        match read.await {
            Ok(view) => {
                *locked(&self.view) = Arc::new(view);
                Ok(())
            }
            Err(e) => {
                self.stale.store(true, Ordering::Release);
                Err(e)
            }
        }
    }

    fn check_writable(&self) -> Result<()> {
        match self.read_only || self.snap != NOSNAP {
            true => Err(Error::refused(Errno::EROFS, "the image is open for reading only")),
            false => Ok(()),
        }
    }

    fn map_oid(&self) -> String {
        names::object_map(&self.id, NOSNAP)
    }

    fn data_oid(&self, object: u64) -> String {
        match self.fixed.is_old {
            true => names::old_data_object(&self.fixed.prefix, object),
            false => names::data_object(&self.fixed.prefix, object),
        }
    }

    fn shard(object: u64) -> usize {
        (object % SHARDS as u64) as usize
    }
}
