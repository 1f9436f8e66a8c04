//! A watch as its owner holds it.

use super::{Client, Command};
use crate::core::watch::WatchEvent;
use crate::core::{Event, WatchId};
use crate::{Error, Result};
use bytes::Bytes;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use types::Errno;

/// Events that wait for the owner. One more, and the watch is lost: it would not know what it missed.
pub(super) const EVENTS_MAX: usize = 256;

/// Dropped: the watch is ended, without waiting for it.
#[derive(Debug)]
pub struct Watch {
    pub(super) client: Client,
    pub(super) id: WatchId,
    pub(super) events: mpsc::Receiver<WatchEvent>,
    pub(super) ended: bool,
}

impl Watch {
    /// By which the OSD tells this client's watches apart.
    pub fn cookie(&self) -> u64 {
        self.id.0
    }

    /// The next event. After [`WatchEvent::Lost`] there are no others: watch anew.
    pub async fn next(&mut self) -> WatchEvent {
        let event = self.events.recv().await;
        event.unwrap_or(WatchEvent::Lost(Errno::ENOTCONN))
    }

    /// Answers a notify; its notifier waits for that.
    pub async fn ack(&self, notify_id: u64, reply: impl Into<Bytes>) -> Result<()> {
        let (watch, reply) = (self.id, reply.into());
        let room = self.client.control_room().await?;
        let acked = self.client.ask(room, None, |id| Event::Ack {
            id,
            watch,
            notify_id,
            reply,
        });
        acked.await.map(drop)
    }

    /// How long ago the OSD was known to have the watch: nothing before that was missed.
    pub async fn confirmed(&self) -> Result<Duration> {
        let (reply, told) = oneshot::channel();
        let command = Command::Confirmed(self.id, reply);
        self.client
            .inner
            .commands
            .send(command)
            .map_err(|_| Error::Closed)?;
        let ago = told.await.map_err(|_| Error::Closed)?;
        ago.ok_or(Error::invalid(Errno::ENOTCONN, "the watch is gone"))
    }

    /// Ends it, and waits for that.
    pub async fn unwatch(mut self) -> Result<()> {
        self.ended = true;
        let watch = self.id;
        let room = self.client.control_room().await?;
        let done = self.client.ask(room, None, |id| {
            let id = Some(id);
            Event::Unwatch { id, watch }
        });
        done.await.map(drop)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if !self.ended {
            let _ = self.client.inner.commands.send(Command::Unwatch(self.id));
        }
    }
}
