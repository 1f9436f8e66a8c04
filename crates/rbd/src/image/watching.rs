//! The watch on the header: hears what other clients say, and answers.

use super::{Image, Inner, locked};
use crate::Result;
use crate::notify::{AsyncId, Message, Response};
use bytes::Bytes;
use client::{Watch, WatchEvent};
use denc::{Decode, Encode};
use io::task;
use objclass::rbd::types::SnapshotNamespace;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::oneshot;
use types::Errno;

/// Between attempts to watch again, at first and at last.
const PAUSE_MIN: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// Work for others under way at once.
const REQUESTS_MAX: usize = 64;

/// ERESTART: librbd takes the lock and does what it has asked for.
const DO_IT_YOURSELF: Errno = Errno::EOLDSNAPC;

/// Dropped: the task ends, and with it the watch.
pub(super) struct Watching {
    stop: oneshot::Sender<()>,
    task: task::TaskHandle<()>,
}

impl Inner {
    pub(super) async fn begin_watch(self: &Arc<Self>) -> Result<()> {
        let watch = self.io.watch(&self.header_oid, None).await?;
        self.cookie.store(watch.cookie(), Ordering::Release);
        // What changed before it was watched was not heard of.
        self.stale.store(true, Ordering::Release);
        let (stop, stopped) = oneshot::channel();
        let task = task::spawn_local(listen(Arc::downgrade(self), watch, stopped));
        *locked(&self.watching) = Some(Watching { stop, task });
        Ok(())
    }

    pub(super) async fn end_watch(&self) {
        let watching = locked(&self.watching).take();
        if let Some(w) = watching {
            drop(w.stop);
            let _ = w.task.await;
        }
        self.cookie.store(0, Ordering::Release);
    }

    /// The answer to what somebody said. Never waits: others wait for it.
    fn heard(self: &Arc<Self>, payload: &Bytes) -> Bytes {
        let Ok(message) = Message::from_bytes(payload) else {
            return Bytes::new();
        };
        tracing::debug!(image = %self.id, ?message, "heard");
        let owner = locked(&self.held).is_some();
        let said = |result: i32| Response { result }.to_bytes();
        match message {
            Message::ReleasedLock(_) => {
                self.released.notify_waiters();
                Bytes::new()
            }
            Message::RequestLock { client, .. } if owner && !self.is_me(client) => {
                self.hand_over();
                said(0)
            }
            Message::HeaderUpdate => {
                self.stale.store(true, Ordering::Release);
                said(0)
            }
            Message::Quiesce(_) | Message::Unquiesce(_) => said(0),
            request if owner => match Work::of(request) {
                // Snapshots would lose what is not copied yet. At EOPNOTSUPP librbd would take the lock and do it by itself.
                Asked::Work(_, Work::Flatten) if self.migrates => said(Errno::EBUSY.code()),
                // Who asks does it himself, with the lock: snapshots need a copy of what is cut off.
                Asked::Work(_, Work::Resize { size, .. })
                    if self.migrates && size < self.seen().header.size =>
                {
                    self.hand_over();
                    said(DO_IT_YOURSELF.code())
                }
                Asked::Work(id, work) => said(self.begin(id, work)),
                Asked::NotOurs => said(Errno::EOPNOTSUPP.code()),
                Asked::Nothing => Bytes::new(),
            },
            _ => Bytes::new(),
        }
    }

    fn hand_over(self: &Arc<Self>) {
        if self.releasing.swap(true, Ordering::AcqRel) {
            return;
        }
        let inner = self.clone();
        task::spawn_local(async move {
            if let Err(e) = inner.release().await {
                tracing::warn!(image = %inner.id, error = %e, "handing over the lock");
            }
        });
    }

    /// Begins work for somebody, unless it is under way already; what he is told.
    fn begin(self: &Arc<Self>, id: AsyncId, work: Work) -> i32 {
        {
            let mut requests = locked(&self.requests);
            if requests.len() >= REQUESTS_MAX {
                return Errno::EBUSY.code();
            }
            if !requests.insert(id) {
                return 0;
            }
        }
        let image = Image { inner: self.clone() };
        task::spawn_local(async move {
            let done = work.run(&image).await;
            let result = done.map_or_else(|e| e.errno().code(), |()| 0);
            image.inner.tell(Message::AsyncComplete { id, result }).await;
            locked(&image.inner.requests).remove(&id);
        });
        0
    }
}

/// What other clients ask the owner of the lock to do for them.
enum Work {
    Resize { size: u64, allow_shrink: bool },
    SnapCreate(String),
    SnapRemove(String),
    Protect(String, bool),
    Flatten,
}

enum Asked {
    Work(AsyncId, Work),
    /// A request that we do not serve.
    NotOurs,
    /// No request.
    Nothing,
}

impl Work {
    fn of(message: Message) -> Asked {
        let text = |b: Bytes| String::from_utf8_lossy(&b).into_owned();
        let (id, work) = match message {
            Message::Resize {
                size,
                id,
                allow_shrink,
            } => (id, Self::Resize { size, allow_shrink }),
            Message::SnapCreate {
                name,
                namespace: SnapshotNamespace::User,
                id,
            } => (id, Self::SnapCreate(text(name))),
            Message::SnapRemove {
                name,
                namespace: SnapshotNamespace::User,
                id,
            } => (id, Self::SnapRemove(text(name))),
            Message::SnapProtect { name, id } => (id, Self::Protect(text(name), true)),
            Message::SnapUnprotect { name, id } => (id, Self::Protect(text(name), false)),
            Message::Flatten(id) => (id, Self::Flatten),
            Message::SnapCreate { .. } | Message::SnapRemove { .. } | Message::OtherRequest(_) => {
                return Asked::NotOurs;
            }
            _ => return Asked::Nothing,
        };
        Asked::Work(id, work)
    }

    async fn run(self, image: &Image) -> Result<()> {
        match self {
            Self::Resize { size, allow_shrink } => image.resize(size, allow_shrink).await,
            Self::SnapCreate(name) => image.create_snap(&name).await.map(drop),
            Self::SnapRemove(name) => image.remove_snap(&name).await,
            Self::Protect(name, protect) => image.protect_snap(&name, protect).await,
            Self::Flatten => image.flatten().await,
        }
    }
}

async fn listen(inner: Weak<Inner>, mut watch: Watch, mut stopped: oneshot::Receiver<()>) {
    loop {
        let event = tokio::select! {
            _ = &mut stopped => {
                if let Err(e) = watch.unwatch().await {
                    tracing::debug!(error = %e, "unwatch");
                }
                return;
            }
            event = watch.next() => event,
        };
        match event {
            WatchEvent::Notify {
                notify_id, payload, ..
            } => {
                let Some(inner) = inner.upgrade() else { return };
                let reply = inner.heard(&payload);
                if let Err(e) = watch.ack(notify_id, reply).await {
                    tracing::debug!(image = %inner.id, error = %e, "answer to a notify");
                }
            }
            WatchEvent::Lost(errno) => {
                tokio::select! {
                    _ = &mut stopped => return,
                    again = watch_again(&inner, errno) => match again {
                        Some(again) => watch = again,
                        None => return,
                    },
                }
            }
        }
    }
}

/// None: the image is gone, or nobody uses it any more.
async fn watch_again(inner: &Weak<Inner>, lost: Errno) -> Option<Watch> {
    let mut pause = PAUSE_MIN;
    loop {
        let inner = inner.upgrade()?;
        inner.cookie.store(0, Ordering::Release);
        inner.stale.store(true, Ordering::Release);
        tracing::warn!(image = %inner.id, %lost, "the watch was lost");
        match inner.io.watch(&inner.header_oid, None).await {
            Ok(watch) => {
                let cookie = watch.cookie();
                inner.cookie.store(cookie, Ordering::Release);
                task::spawn_local(async move { inner.rename_lock(cookie).await });
                return Some(watch);
            }
            Err(client::Error::Closed) => return None,
            Err(e) if e.is_not_found() || e.errno() == Errno::EBLOCKLISTED => return None,
            Err(_) => {}
        }
        drop(inner);
        task::sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}
