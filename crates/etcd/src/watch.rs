//! Changes of a range, as etcd streams them; a broken stream is taken up behind the last change that was seen.
//!
//! Invariants: one message of etcd holds whole revisions (fragments are not asked for), so a batch does, too. A
//! reader that lags holds the stream back, not memory: etcd keeps what it did not send, until it is
//! compacted away, which the reader is told as [`Error::Compacted`].

use crate::calls::Inner;
use crate::conn::{ANSWER_BYTES_MAX, Conn, Failed};
use etcd_client::{EventType, WatchOptions, WatchResponse, WatchStream};
use io::task::Background;
use metastore::kv::{BoxFuture, Error, Event, Range, Result, Revision, Watch};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// A stream must begin within this time.
const BEGIN_MAX: Duration = Duration::from_secs(5);
const RETRY_FIRST: Duration = Duration::from_millis(20);
/// Batches that wait for the reader.
const WATCH_BATCHES: usize = 64;

type Batch = Result<Vec<Event>>;

struct EtcdWatch {
    batches: mpsc::Receiver<Batch>,
}

impl Watch for EtcdWatch {
    fn next(&mut self) -> BoxFuture<'_, Batch> {
        Box::pin(async move { self.batches.recv().await.unwrap_or(Err(Error::Closed)) })
    }
}

pub(crate) fn start(
    runtime: &Background,
    inner: Arc<Inner>,
    range: Range,
    after: Revision,
) -> Box<dyn Watch> {
    let (tx, batches) = mpsc::channel(WATCH_BATCHES);
    let mut follower = Follower {
        inner,
        range,
        after,
        tx,
    };
    drop(runtime.spawn(async move {
        if let Err(e) = follower.run().await {
            // The reader may be gone: nobody to tell then.
            let _ = follower.tx.send(Err(e)).await;
        }
    }));
    Box::new(EtcdWatch { batches })
}

struct Follower {
    inner: Arc<Inner>,
    range: Range,
    after: Revision,
    tx: mpsc::Sender<Batch>,
}

impl Follower {
    fn conn(&self) -> &Conn {
        &self.inner.conn
    }

    /// Until the reader is gone, or the error that it has to know.
    async fn run(&mut self) -> Result<()> {
        let mut wait = RETRY_FIRST;
        loop {
            let before = self.after;
            let (why, turn) = match self.begin().await? {
                Ok((mut stream, turn)) => match self.forward(&mut stream).await? {
                    Some(why) => (why, turn),
                    None => return Ok(()),
                },
                Err(why) => (why, 0),
            };
            if turn != 0 {
                self.conn().next_endpoint(turn - 1);
            }
            self.conn().trouble(&format!("watching: {why}"));
            if self.after > before {
                wait = RETRY_FIRST;
            }
            wait = self.conn().pause(wait).await?;
        }
    }

    /// A stream that begins behind what was seen; with it the turn of its client, counted from 1.
    async fn begin(&self) -> Result<std::result::Result<(WatchStream, u64), String>> {
        let turn = self.conn().client().await.map_or(0, |(_, turn)| turn + 1);
        let (first, end) = self.inner.space.range(&self.range);
        let begun = self
            .conn()
            .attempt(BEGIN_MAX, |c| {
                let (first, end, from) = (first.clone(), end.clone(), self.after as i64 + 1);
                let options = WatchOptions::new()
                    .with_range(end)
                    .with_start_revision(from)
                    .with_progress_notify();
                let mut watcher = c.watch_client().max_decoding_message_size(ANSWER_BYTES_MAX);
                async move { watcher.watch(first, Some(options)).await }
            })
            .await;
        match begun {
            Ok(stream) => Ok(Ok((stream, turn))),
            Err(Failed::Again(why)) => Ok(Err(why)),
            Err(failed) => Err(failed.into_error()),
        }
    }

    /// Passes changes on until the stream breaks (and why), or the reader is gone (None).
    async fn forward(&mut self, stream: &mut WatchStream) -> Result<Option<String>> {
        loop {
            let message = tokio::select! {
                message = stream.message() => message,
                () = self.tx.closed() => return Ok(None),
            };
            let message = match message {
                Ok(Some(message)) => message,
                Ok(None) => return Ok(Some("the stream ended".into())),
                Err(e) => return Ok(Some(e.to_string())),
            };
            if message.compact_revision() > 0 {
                return Err(Error::Compacted(self.after));
            }
            if message.canceled() {
                return Ok(Some(message.cancel_reason().to_string()));
            }
            let events = self.events(&message)?;
            if let Some(last) = events.last() {
                self.after = last.revision;
                self.conn().note(message.header(), 0)?;
                if self.tx.send(Ok(events)).await.is_err() {
                    return Ok(None);
                }
            } else if !message.created() {
                // Progress: nothing of the range changed up to here.
                let revision = message.header().map_or(0, |h| h.revision());
                self.after = self.after.max(revision.max(0) as Revision);
            }
        }
    }

    fn events(&self, message: &WatchResponse) -> Result<Vec<Event>> {
        let mut events = Vec::with_capacity(message.events().len());
        for event in message.events() {
            let Some(kv) = event.kv() else { continue };
            let value = match event.event_type() {
                EventType::Put => Some(kv.value().to_vec().into()),
                EventType::Delete => None,
            };
            events.push(Event {
                revision: kv.mod_revision() as Revision,
                key: self.inner.space.own(kv.key())?,
                value,
            });
        }
        Ok(events)
    }
}
