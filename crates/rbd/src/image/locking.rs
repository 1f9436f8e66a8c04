//! The gate, and the exclusive lock: taken when something is to be written, handed over when somebody asks. What is done when is
//! decided in [`crate::lock`]; here it is done.

use super::{Inner, locked};
use crate::calls::Calls;
use crate::header::ask;
use crate::lock::{self, Acquisition, Action, Heard, Holder};
use crate::notify::{ClientId, Message, Response};
use crate::{Error, Result, features};
use bytes::Bytes;
use client::Operation;
use denc::{Decode, Encode, Reader};
use io::task;
use objclass::{LockInfo, LockerId};
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard};
use types::{EntityAddr, EntityName, Errno};

/// What watchers get to answer a notify, as with librbd.
const NOTIFY_TIMEOUT: Duration = Duration::from_secs(5);
/// Between two attempts to get the lock, if its release is not heard of.
const PAUSE: Duration = Duration::from_secs(1);
/// A watch that was lost is back by then, or nothing is written.
const WATCH_WAIT: Duration = Duration::from_secs(60);

impl Inner {
    /// For a write: shared with other writes, with the lock held and a view that is not stale.
    pub(super) async fn writing(&self) -> Result<OwnedRwLockReadGuard<()>> {
        self.check_writable()?;
        let shared = self.gate.clone().read_owned().await;
        if self.is_ready() {
            return Ok(shared);
        }
        drop(shared);
        // Kept from here on to the write: the lock is not handed over before at least one was done.
        Ok(self.alone().await?.downgrade())
    }

    /// For whatever changes header or snapshots: no write is under way.
    pub(super) async fn alone(&self) -> Result<OwnedRwLockWriteGuard<()>> {
        self.check_writable()?;
        let alone = self.gate.clone().write_owned().await;
        self.view().await?;
        let view = self.seen();
        if view.header.has(features::EXCLUSIVE_LOCK) && locked(&self.held).is_none() {
            self.acquire().await?;
        }
        Ok(alone)
    }

    fn is_ready(&self) -> bool {
        let has_lock = locked(&self.held).is_some() || !self.seen().header.has(features::EXCLUSIVE_LOCK);
        has_lock && !self.stale.load(Ordering::Acquire)
    }

    pub(super) fn me(&self) -> ClientId {
        ClientId {
            global_id: self.io.client().global_id(),
            cookie: self.cookie.load(Ordering::Acquire),
        }
    }

    pub(super) fn is_me(&self, client: ClientId) -> bool {
        client == self.me()
    }

    async fn watched(&self) -> Result<u64> {
        let present = async {
            loop {
                match self.cookie.load(Ordering::Acquire) {
                    0 => task::sleep(PAUSE / 10).await,
                    cookie => return cookie,
                }
            }
        };
        let told = task::timeout(WATCH_WAIT, present).await;
        told.map_err(|_| Error::refused(Errno::ENOTCONN, "the image's header cannot be watched"))
    }

    /// Called with the gate alone.
    async fn acquire(&self) -> Result<()> {
        let cookie = lock::cookie(self.watched().await?);
        self.take_lock(&cookie).await?;
        *locked(&self.held) = Some(cookie);
        // Whoever had the lock may have changed all of it.
        let ready = async {
            self.refresh().await?;
            let view = self.seen();
            self.load_map(&view.header).await
        };
        if let Err(e) = ready.await {
            let _ = self.give_back().await;
            return Err(e);
        }
        self.tell(Message::AcquiredLock(self.me())).await;
        Ok(())
    }

    async fn take_lock(&self, cookie: &str) -> Result<()> {
        let me = EntityName::client(self.io.client().global_id());
        let mut acquisition = Acquisition::new(me, cookie.to_string());
        let mut action = Action::Read;
        loop {
            let heard = match &action {
                Action::Read => Heard::Lock(self.read_lock().await?),
                Action::Try => {
                    let op = Operation::new().lock(cookie, lock::TAG);
                    let done = ask(&self.io, &self.header_oid, op).await;
                    Heard::Tried(done.map(drop).map_err(|e| e.errno()))
                }
                Action::Watchers(holder) => Heard::Watching(self.is_watching(holder).await?),
                Action::Request => Heard::Answered(self.request_lock().await?),
                Action::Wait => {
                    let _ = task::timeout(PAUSE, self.released.notified()).await;
                    Heard::Done
                }
                Action::Fence(holder) => {
                    self.fence(holder).await?;
                    Heard::Done
                }
                Action::Break(holder) => {
                    self.break_lock(holder).await?;
                    Heard::Done
                }
                Action::Acquired => return Ok(()),
                Action::GiveUp(errno, why) => return Err(Error::refused(*errno, why.clone())),
            };
            action = acquisition.heard(heard);
        }
    }

    async fn read_lock(&self) -> Result<LockInfo> {
        let done = ask(&self.io, &self.header_oid, Operation::new().lock_info()).await?;
        Ok(Reader::new(done.step(0)?.data.clone()).get()?)
    }

    async fn is_watching(&self, holder: &Holder) -> Result<bool> {
        let cookie = lock::watch_of(&holder.cookie);
        let same = |a: &EntityAddr| (a.sock, a.nonce) == (holder.addr.sock, holder.addr.nonce);
        let watchers = self.io.watchers(&self.header_oid).await?;
        Ok(watchers.iter().any(|w| Some(w.cookie) == cookie && same(&w.addr)))
    }

    /// What the owner said.
    async fn request_lock(&self) -> Result<Option<i32>> {
        let message = Message::RequestLock {
            client: self.me(),
            force: false,
        };
        let told = self
            .io
            .notify(&self.header_oid, message.to_bytes(), NOTIFY_TIMEOUT)
            .await?;
        let answer = |reply: &Bytes| Response::from_bytes(reply).ok().map(|r| r.result);
        let said = told.replies.iter().filter(|(_, _, reply)| !reply.is_empty());
        Ok(said.filter_map(|(_, _, reply)| answer(reply)).next())
    }

    /// Has the cluster refuse everything of a client that is dead, or only seems to be.
    async fn fence(&self, holder: &Holder) -> Result<()> {
        let place = holder.addr.place_and_nonce();
        tracing::warn!(image = %self.id, locker = %holder.entity, addr = %place, "fencing the dead owner of the lock");
        let command = format!(r#"{{"prefix": "osd blocklist", "blocklistop": "add", "addr": "{place}"}}"#);
        let client = self.io.client();
        client.mon_command(&command, Bytes::new()).await?;
        client.latest_map().await?;
        Ok(())
    }

    async fn break_lock(&self, holder: &Holder) -> Result<()> {
        let locker = LockerId {
            entity: holder.entity,
            cookie: holder.cookie.clone(),
        };
        let op = Operation::new().break_lock(&locker);
        let broken = ask(&self.io, &self.header_oid, op).await;
        crate::error::or_missing(broken.map(drop))
    }

    /// Waits for writes under way, then gives the lock back.
    pub(super) async fn release(&self) -> Result<()> {
        let _alone = self.gate.clone().write_owned().await;
        self.releasing.store(false, Ordering::Release);
        if locked(&self.held).is_none() {
            return Ok(());
        }
        let done = self.give_back().await;
        self.tell(Message::ReleasedLock(self.me())).await;
        done
    }

    async fn give_back(&self) -> Result<()> {
        let map = self.unlock_map().await;
        let Some(cookie) = locked(&self.held).take() else {
            return map;
        };
        let done = ask(&self.io, &self.header_oid, Operation::new().unlock(&cookie)).await;
        map.and(crate::error::or_missing(done.map(drop)))
    }

    /// The lock names our watch; this one took the place of another.
    pub(super) async fn rename_lock(&self, watch: u64) {
        let _alone = self.gate.clone().write_owned().await;
        let Some(old) = locked(&self.held).clone() else {
            return;
        };
        let new = lock::cookie(watch);
        let op = Operation::new().set_cookie(&old, &new);
        match ask(&self.io, &self.header_oid, op).await {
            Ok(_) => *locked(&self.held) = Some(new),
            Err(e) => {
                tracing::warn!(image = %self.id, error = %e, "the exclusive lock was lost");
                *locked(&self.held) = None;
                *locked(&self.map) = None;
            }
        }
    }

    /// Tells the other clients; whoever does not answer will read the header again by himself.
    pub(super) async fn tell(&self, message: Message) {
        let told = self
            .io
            .notify(&self.header_oid, message.to_bytes(), NOTIFY_TIMEOUT)
            .await;
        if let Err(e) = told {
            tracing::debug!(image = %self.id, error = %e, "notify");
        }
    }

    /// After a change of the header: reads it again, and tells the others.
    pub(super) async fn changed(&self) -> Result<()> {
        let read = self.refresh().await;
        self.tell(Message::HeaderUpdate).await;
        read
    }
}
