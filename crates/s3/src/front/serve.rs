//! The socket: connections in, requests to s3s, answers out; and what goes on beside that: splitting what has grown, collecting.
//!
//! Bounds: [`CONNECTIONS_MAX`] connections; a head of [`BUFFER_BYTES`] within [`HEAD_WITHIN`]; XML of [`XML_BYTES`]; bodies as
//! `data` takes them, at a pace (`pace`). A client that takes nothing for [`net::http::STALLED`] is cut off.

use super::Front;
use super::chunks::Chunks;
use super::errors::not_built;
use super::pace::Paced;
use crate::Clock;
use crate::gc::Collector;
use crate::index::Index;
use crate::rados::Pool;
use hyper::header::HeaderValue;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use io::socket::{Acceptor, Stream};
use io::task;
use net::http::{Timer, Wire};
use s3s::config::{S3Config, StaticConfigProvider};
use s3s::service::{S3Service, S3ServiceBuilder};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

const CONNECTIONS_MAX: usize = 1024;
const BUFFER_BYTES: usize = 128 << 10;
const HEAD_WITHIN: Duration = Duration::from_secs(60);
/// A list of 10,000 parts with their checksums fits.
const XML_BYTES: usize = 4 << 20;
/// What requests under way have to end when the gateway stops.
const STOP_WITHIN: Duration = Duration::from_secs(5);
/// After an error of accepting, such as that of too many open files.
const PAUSE: Duration = Duration::from_secs(1);
/// How often is looked for shards that have grown.
const TEND_EVERY: Duration = Duration::from_millis(250);

/// How a gateway behaves.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Data that nobody refers to any more stay so long for readers that have begun.
    pub gc_wait: Duration,
    /// Keys of a shard of an index.
    pub split_at: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            gc_wait: Duration::from_secs(15 * 60),
            split_at: crate::index::SPLIT_AT,
        }
    }
}

/// Serves until `stop` turns true.
pub async fn serve<P: Pool>(
    acceptor: Acceptor,
    front: Front<P>,
    collector: Collector<P>,
    mut stop: watch::Receiver<bool>,
) {
    let tending = task::spawn_local(tend(collector.index.clone()));
    let collecting = task::spawn_local(collect(collector));
    let clock = front.clock.clone();
    let service = service(front);
    let stopped = stop.clone();
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        tokio::select! {
            biased;
            _ = stop.wait_for(|s| *s) => break,
            () = accept(&acceptor, &room, (&service, &clock), &stopped) => {}
        }
    }
    tending.abort();
    collecting.abort();
    drop(acceptor);
    let ended = room.acquire_many(CONNECTIONS_MAX as u32);
    if task::timeout(STOP_WITHIN, ended).await.is_err() {
        tracing::info!("s3: requests under way are cut off");
    }
}

fn service<P: Pool>(front: Front<P>) -> S3Service {
    let mut config = S3Config::default();
    config.xml_max_body_size = XML_BYTES;
    // Forms are refused before the library sees them, which would take the file into memory before it asks who sends it.
    config.post_object_max_file_size = 0;
    config.form_max_fields_size = 64 << 10;
    let mut builder = S3ServiceBuilder::new(front.clone());
    builder.set_config(Arc::new(StaticConfigProvider::new(Arc::new(config))));
    builder.set_auth(front.clone());
    builder.set_access(front);
    builder.build()
}

async fn accept(
    acceptor: &Acceptor,
    room: &Arc<Semaphore>,
    (service, clock): (&S3Service, &Clock),
    stop: &watch::Receiver<bool>,
) {
    let Ok(permit) = room.clone().acquire_owned().await else {
        return;
    };
    match acceptor.accept().await {
        Ok((stream, _)) => drop(task::spawn_local(connection(
            stream,
            (service.clone(), clock.clone()),
            stop.clone(),
            permit,
        ))),
        Err(e) => {
            tracing::warn!("s3: {e}");
            task::sleep(PAUSE).await;
        }
    }
}

/// A POST of a browser's form.
fn is_form<B>(request: &hyper::Request<B>) -> bool {
    const FORM: &[u8] = b"multipart/form-data";
    let types = request.headers().get_all(hyper::header::CONTENT_TYPE);
    let starts = |v: &HeaderValue| {
        let kind = v.as_bytes().trim_ascii_start().get(..FORM.len());
        kind.is_some_and(|k| k.eq_ignore_ascii_case(FORM))
    };
    request.method() == hyper::Method::POST && types.iter().any(starts)
}

/// A request as the library shall see it.
fn taken(request: hyper::Request<hyper::body::Incoming>, clock: Clock) -> hyper::Request<s3s::Body> {
    let kind = request.headers().get("x-amz-content-sha256");
    let chunked = kind.is_some_and(|k| k.as_bytes().starts_with(b"STREAMING-"));
    request.map(|body| match Paced::new(body, clock) {
        body if chunked => s3s::Body::http_body(Chunks::new(body)),
        body => s3s::Body::http_body(body),
    })
}

async fn connection(
    stream: Stream,
    (service, clock): (S3Service, Clock),
    mut stop: watch::Receiver<bool>,
    permit: OwnedSemaphorePermit,
) {
    let answer = service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
        // A task of its own: what has begun to be committed, or to be given up, is not left when the client goes.
        let (service, clock) = (service.clone(), clock.clone());
        let answered = task::spawn_local(async move {
            match is_form(&request) {
                true => not_built("POST forms")
                    .to_http_response()
                    .map_err(|e| s3s::HttpError::new(Box::new(e))),
                false => service.call(taken(request, clock)).await,
            }
        });
        async move {
            let mut answer = answered.await.map_err(|e| s3s::HttpError::new(Box::new(e)))??;
            answer
                .headers_mut()
                .insert("server", HeaderValue::from_static("skep"));
            Ok::<_, s3s::HttpError>(answer)
        }
    });
    let served = http1::Builder::new()
        .timer(Timer)
        .header_read_timeout(HEAD_WITHIN)
        .max_buf_size(BUFFER_BYTES)
        .serve_connection(Wire::new(stream), answer);
    let mut served = pin!(served);
    let done = tokio::select! {
        done = &mut served => done,
        _ = stop.wait_for(|s| *s) => {
            served.as_mut().graceful_shutdown();
            served.await
        }
    };
    if let Err(e) = done {
        tracing::debug!("s3: {e}");
    }
    drop(permit);
}

async fn tend<P: Pool>(index: Index<P>) {
    loop {
        task::sleep(TEND_EVERY).await;
        while let Some(shard) = index.grown() {
            if let Err(e) = index.tend(&shard).await {
                tracing::warn!("s3: splitting {shard}: {e}");
            }
        }
    }
}

async fn collect<P: Pool>(collector: Collector<P>) {
    let every =
        Duration::from_millis(collector.wait / 2).clamp(Duration::from_secs(1), Duration::from_secs(60));
    loop {
        task::sleep(every).await;
        match collector.round().await {
            Ok(round) => tracing::debug!("s3: collected {round:?}"),
            Err(e) => tracing::warn!("s3: collecting: {e}"),
        }
    }
}
