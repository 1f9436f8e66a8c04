//! Takes what the OSDs of this process tell of operations to a collector of OpenTelemetry: OTLP over HTTP or HTTPS, as JSON
//! (docs/decisions/0067-traces.md).
//!
//! Bounds: [`BATCH_MAX`] traces in a request, at most [`TRIES`] times [`WITHIN`] for each; behind it the queue of the OSDs
//! ([`osd::TRACE_QUEUE`]), who drop what finds no room there. What is on its way when the process stops is lost.

use crate::role::Registries;
use crate::{Error, TraceTo};
use bytes::Bytes;
use hyper::StatusCode;
use io::task;
use metrics::{Counter, spec};
use net::post::{self, Held};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};

const BATCH_MAX: usize = 256;
/// What comes within it goes in one request, where that is not full before.
const GATHER: Duration = Duration::from_millis(500);
const TRIES: u32 = 3;
const WITHIN: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_secs(1);

metrics::table! {
    /// The logger `traces`.
    struct Perf {
        exported: Counter = spec("Operations of requests that the collector of traces has answered with 2xx");
        failed: Counter = spec("Operations of all others, which are lost to it");
        refused_requests: Counter = spec("Requests that it did not answer, or refused");
    }
}

/// Begins to; ends with the node. OSDs put their traces into what is returned.
pub(crate) fn start(
    to: &TraceTo,
    host: &str,
    stopped: &watch::Receiver<bool>,
    registries: &Registries,
) -> Result<osd::Traces, Error> {
    let (out, queue) = mpsc::channel(osd::TRACE_QUEUE);
    let perf = registries.of("traces").make("traces");
    let courier = Courier {
        to: to.clone(),
        host: host.to_string(),
        perf,
        is_silent: false,
    };
    let mut stopped = stopped.clone();
    let work = move || async move {
        tokio::select! {
            () = courier.work(queue) => {}
            _ = stopped.wait_for(|s| *s) => {}
        }
    };
    task::spawn_role("traces", work).map_err(Error::Thread)?;
    tracing::info!(
        "operations are told to a collector of traces: each slow one, and one of {} others",
        osd::TRACED_ONE_OF
    );
    Ok(out)
}

/// What OTLP names as answers after which the same may be sent again. What is refused otherwise would be refused again.
fn passes(status: StatusCode) -> bool {
    matches!(status.as_u16(), 429 | 502..=504)
}

struct Courier {
    to: TraceTo,
    host: String,
    perf: Arc<Perf>,
    /// It was said that the collector takes nothing.
    is_silent: bool,
}

impl Courier {
    async fn work(mut self, mut queue: mpsc::Receiver<osd::Trace>) {
        while let Some(first) = queue.recv().await {
            // With enough for a request already, those behind it would only wait for room.
            if queue.len() < BATCH_MAX {
                task::sleep(GATHER).await;
            }
            let mut batch = vec![first];
            while batch.len() < BATCH_MAX
                && let Ok(more) = queue.try_recv()
            {
                batch.push(more);
            }
            let ended = self.deliver(&batch).await;
            self.note(ended, batch.len() as u64);
        }
    }

    async fn deliver(&self, batch: &[osd::Trace]) -> Result<(), String> {
        let body = Bytes::from(osd::otlp(batch, &self.host));
        let mut said = String::new();
        for nth in 0..TRIES {
            if nth > 0 {
                task::sleep(PAUSE * nth).await;
            }
            let (why, is_passing) = match task::timeout(WITHIN, self.post(body.clone())).await {
                Ok(Ok(status)) if status.is_success() => return Ok(()),
                Ok(Ok(status)) => (format!("it answered {status}"), passes(status)),
                Ok(Err(why)) => (why, true),
                Err(_) => (format!("no answer within {} s", WITHIN.as_secs()), true),
            };
            self.perf.refused_requests.inc();
            said = why;
            if !is_passing {
                break;
            }
        }
        Err(said)
    }

    async fn post(&self, body: Bytes) -> Result<StatusCode, String> {
        let to = post::addresses(&self.to.url).await?;
        let held = Held {
            within: WITHIN,
            trust: self.to.trust.as_ref(),
            to: &to,
            own: true,
        };
        post::status_held(&self.to.url, "application/json", body, &held).await
    }

    /// Said once, until it is otherwise.
    fn note(&mut self, ended: Result<(), String>, n: u64) {
        match ended {
            Ok(()) => {
                self.perf.exported.add(n);
                if std::mem::take(&mut self.is_silent) {
                    tracing::info!("the collector of traces takes them again");
                }
            }
            Err(why) => {
                self.perf.failed.add(n);
                if !std::mem::replace(&mut self.is_silent, true) {
                    tracing::warn!(
                        "the collector of traces takes nothing, and traces are dropped until it does: {why}"
                    );
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_refused_for_good_is_not_sent_again() {
        let again = |code| passes(StatusCode::from_u16(code).unwrap());
        for code in [429, 502, 503, 504] {
            assert!(again(code), "{code}");
        }
        for code in [301, 400, 401, 404, 413, 500, 501, 505] {
            assert!(!again(code), "{code}");
        }
    }

    #[test]
    fn it_is_said_once_and_counted_always() {
        let mut courier = Courier {
            to: TraceTo::parse("http://a").unwrap(),
            host: String::new(),
            perf: Arc::default(),
            is_silent: false,
        };
        courier.note(Err("away".into()), 5);
        assert!(courier.is_silent);
        courier.note(Err("away".into()), 2);
        courier.note(Ok(()), 3);
        assert!(!courier.is_silent);
        assert_eq!((courier.perf.failed.get(), courier.perf.exported.get()), (7, 3));
    }
}
