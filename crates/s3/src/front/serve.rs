//! The socket: connections in, requests to s3s, answers out; and what goes on beside that: splitting what has grown, collecting.
//!
//! Bounds: [`CONNECTIONS_MAX`] connections; a TLS handshake as [`net::tls`] bounds it; a head of [`BUFFER_BYTES`] within [`HEAD_WITHIN`]; XML of [`super::raw::XML_BYTES`]; bodies as
//! `data` takes them, at a pace (`pace`). A client that takes nothing for [`net::http::STALLED`] is cut off.

use super::caller::Peer;
use super::entrance::Entrance;
use super::hosts::Hosts;
use super::{Front, Swift};
use crate::buckets::Buckets;
use crate::counts::{Counter, FLUSH_EVERY};
use crate::courier::Courier;
use crate::data::DataStore;
use crate::gc::Collector;
use crate::index::Index;
use crate::keystone;
use crate::master::Masters;
use crate::rados::Pool;
use crate::usage::{self, Usage};
use hyper::header::HeaderValue;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use io::socket::{Acceptor, Stream};
use io::task::{self, TaskHandle};
use net::http::{Timer, Wire};
use net::tls::Certificate;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, watch};

const CONNECTIONS_MAX: usize = 1024;
const BUFFER_BYTES: usize = 128 << 10;
const HEAD_WITHIN: Duration = Duration::from_secs(60);
/// What requests under way have to end when the gateway stops.
const STOP_WITHIN: Duration = Duration::from_secs(5);
/// After an error of accepting, such as that of too many open files.
const PAUSE: Duration = Duration::from_secs(1);
/// How often is looked for buckets that want to be counted.
const COUNT_EVERY: Duration = Duration::from_secs(60);
/// How often is looked for days of the usage log that are old enough to go.
const EXPIRE_EVERY: Duration = Duration::from_secs(60 * 60);
/// How often is looked for access logs that are to become objects.
const ROLL_TICK: Duration = Duration::from_secs(1);
/// How often is looked for shards that have grown, and for claims that nobody takes.
const TEND_EVERY: Duration = Duration::from_millis(250);

/// How a gateway behaves.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Data that nobody refers to any more stay so long for readers that have begun.
    pub gc_wait: Duration,
    /// Keys of a shard of an index.
    pub split_at: u64,
    /// A day, as lifecycles count; tests have shorter ones.
    pub day: Duration,
    /// Names below which buckets are hosts, as [`super::domain`] takes them.
    pub domains: Vec<String>,
    /// And names below which buckets are websites.
    pub sites: Vec<String>,
    /// Days that the usage log is kept; None: there is none.
    pub usage_keep: Option<u64>,
    /// Keys of clients are taken without TLS, too.
    pub plain_keys: bool,
    /// Keys of the gateway's own.
    pub masters: Masters,
    /// Whether S3 is served at all.
    pub s3: bool,
    /// Swift, too; None: it is not.
    pub swift: Option<Swift>,
    /// Hosts that events may be sent to; empty: all but what is a machine's own.
    pub endpoints: Vec<String>,
    /// How often access logs become objects.
    pub log_every: Duration,
    /// Users of it are users here, too.
    pub keystone: Option<keystone::Settings>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            gc_wait: Duration::from_secs(15 * 60),
            split_at: crate::index::SPLIT_AT,
            day: Duration::from_millis(crate::lifecycle::DAY),
            domains: Vec::new(),
            sites: Vec::new(),
            usage_keep: None,
            plain_keys: false,
            masters: Masters::default(),
            s3: true,
            swift: None,
            endpoints: Vec::new(),
            log_every: Duration::from_secs(300),
            keystone: None,
        }
    }
}

/// Where clients come in: with TLS, if there is a certificate.
pub type Door = (Acceptor, Option<Certificate>);

/// Names of buckets and of websites; and whether S3 is served.
type Served = ([Hosts; 2], bool);

/// Serves until `stop` turns true.
pub async fn serve<P: Pool>(
    (acceptor, certificate): Door,
    (front, (hosts, s3), (usage_keep, log_every)): (Front<P>, Served, (Option<u64>, Duration)),
    (collector, courier): (Collector<P>, Courier<P>),
    mut stop: watch::Receiver<bool>,
) {
    let data = collector.data.clone();
    let tending = task::spawn_local(tend(collector.index.clone(), data.clone()));
    let counting = task::spawn_local(count(front.counter.clone(), collector.buckets.clone()));
    let flushing = task::spawn_local(flush(front.counter.clone()));
    let (last, usage) = (front.counter.clone(), front.usage.clone());
    let writing = usage.clone().map(|usage| {
        let keep = usage_keep.unwrap_or(u64::MAX);
        (
            task::spawn_local(write_down(usage.clone(), stop.clone())),
            task::spawn_local(expire(usage, keep)),
        )
    });
    let logs = (
        task::spawn_local(roll(front.clone(), log_every, stop.clone())),
        front.clone(),
    );
    let (gatherer, rest) = (courier.gatherer().clone(), courier.gatherer().clone());
    let gathering = task::spawn_local(async move { gatherer.run().await });
    let telling = task::spawn_local(async move { courier.run().await });
    let collector = Arc::new(collector);
    let collecting = task::spawn_local(collect(collector.clone()));
    let expiring = task::spawn_local(end_terms(collector));
    let entrance = Entrance::new(front, hosts, s3);
    let stopped = stop.clone();
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        tokio::select! {
            biased;
            _ = stop.wait_for(|s| *s) => break,
            () = accept((&acceptor, &certificate), &room, &entrance, &stopped) => {}
        }
    }
    tending.abort();
    telling.abort();
    collecting.abort();
    expiring.abort();
    counting.abort();
    flushing.abort();
    // A write of the usage log that is under way comes to its end: what is not heard of is not written again.
    let writing = writing.map(|(writing, expiring)| {
        expiring.abort();
        writing
    });
    drop(acceptor);
    let ended = room.acquire_many(CONNECTIONS_MAX as u32);
    if task::timeout(STOP_WITHIN, ended).await.is_err() {
        tracing::info!("s3: requests under way are cut off");
    }
    gathering.abort();
    if task::timeout(STOP_WITHIN, rest.rest()).await.is_err() {
        tracing::info!("s3: events are left for another gateway");
    }
    last_writes((last, data), logs, writing.zip(usage)).await;
}

/// What was gathered of requests that have ended, and what was made for others.
async fn last_writes<P: Pool>(
    (counter, data): (Counter<P>, DataStore<P>),
    (mut rolling, front): (TaskHandle<()>, Front<P>),
    usage: Option<(TaskHandle<()>, Usage<P>)>,
) {
    // The objects that it puts are counted.
    if task::timeout(STOP_WITHIN, &mut rolling).await.is_err() {
        rolling.abort();
    }
    if task::timeout(STOP_WITHIN, front.roll_out()).await.is_err() {
        tracing::warn!("s3: access logs that were not put in time are lost");
    }
    if task::timeout(STOP_WITHIN, data.release(true)).await.is_err() {
        tracing::debug!("s3: claims that nobody has taken are left to end");
    }
    if let Ok(Err(e)) = task::timeout(STOP_WITHIN, counter.flush()).await {
        tracing::warn!("s3: counts of buckets: {e}");
    }
    let Some((mut writing, usage)) = usage else { return };
    if task::timeout(STOP_WITHIN, &mut writing).await.is_err() {
        writing.abort();
    }
    if let Ok(Err(e)) = task::timeout(STOP_WITHIN, usage.flush()).await {
        tracing::warn!("s3: the usage log: {e}");
    }
}

async fn accept<P: Pool>(
    (acceptor, certificate): (&Acceptor, &Option<Certificate>),
    room: &Arc<Semaphore>,
    entrance: &Entrance<P>,
    stop: &watch::Receiver<bool>,
) {
    let Ok(permit) = room.clone().acquire_owned().await else {
        return;
    };
    match acceptor.accept().await {
        Ok((stream, peer)) => {
            let peer = Peer {
                ip: peer.ip().to_canonical(),
                tls: certificate.is_some(),
            };
            let served = connection(
                (stream, certificate.clone()),
                peer,
                entrance.clone(),
                stop.clone(),
            );
            drop(task::spawn_local(async move {
                if let Err(e) = served.await {
                    tracing::debug!("s3: {e}");
                }
                drop(permit);
            }));
        }
        Err(e) => {
            tracing::warn!("s3: {e}");
            task::sleep(PAUSE).await;
        }
    }
}

async fn connection<P: Pool>(
    (stream, certificate): (Stream, Option<Certificate>),
    peer: Peer,
    entrance: Entrance<P>,
    stop: watch::Receiver<bool>,
) -> Result<(), Box<dyn std::error::Error>> {
    let wire = Wire::new(stream);
    match certificate {
        None => http(wire, peer, entrance, stop).await?,
        Some(certificate) => http(certificate.accept(wire).await?, peer, entrance, stop).await?,
    }
    Ok(())
}

async fn http<P: Pool>(
    wire: impl hyper::rt::Read + hyper::rt::Write + Unpin,
    peer: Peer,
    entrance: Entrance<P>,
    mut stop: watch::Receiver<bool>,
) -> hyper::Result<()> {
    let answer = service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
        // A task of its own: what has begun to be committed, or to be given up, is not left when the client goes.
        let entrance = entrance.clone();
        let answered = task::spawn_local(async move { entrance.answer(request, peer).await });
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
        .serve_connection(wire, answer);
    let mut served = pin!(served);
    tokio::select! {
        done = &mut served => done,
        _ = stop.wait_for(|s| *s) => {
            served.as_mut().graceful_shutdown();
            served.await
        }
    }
}

async fn tend<P: Pool>(index: Index<P>, data: DataStore<P>) {
    loop {
        task::sleep(TEND_EVERY).await;
        while let Some(shard) = index.grown() {
            if let Err(e) = index.tend(&shard).await {
                tracing::warn!("s3: splitting {shard}: {e}");
            }
        }
        data.release(false).await;
    }
}

async fn flush<P: Pool>(counter: Counter<P>) {
    loop {
        task::sleep(FLUSH_EVERY).await;
        if let Err(e) = counter.flush().await {
            tracing::warn!("s3: counts of buckets: {e}");
        }
    }
}

async fn write_down<P: Pool>(usage: Usage<P>, mut stop: watch::Receiver<bool>) {
    while task::timeout(usage::FLUSH_EVERY, stop.wait_for(|s| *s))
        .await
        .is_err()
    {
        if let Err(e) = usage.flush().await {
            tracing::warn!("s3: the usage log: {e}");
        }
    }
}

async fn roll<P: Pool>(front: Front<P>, every: Duration, mut stop: watch::Receiver<bool>) {
    while task::timeout(ROLL_TICK, stop.wait_for(|s| *s)).await.is_err() {
        front.roll(every);
    }
}

async fn expire<P: Pool>(usage: Usage<P>, keep: u64) {
    loop {
        if let Err(e) = usage.expire(keep).await {
            tracing::warn!("s3: removing old days of the usage log: {e}");
        }
        task::sleep(EXPIRE_EVERY).await;
    }
}

/// Beside the collector, for it waits.
async fn count<P: Pool>(counter: Counter<P>, buckets: Buckets<P>) {
    loop {
        if let Err(e) = counter.round(&buckets).await {
            tracing::warn!("s3: counting what buckets hold: {e}");
        }
        task::sleep(COUNT_EVERY).await;
    }
}

/// Between rounds, which each gateway does.
fn every<P>(collector: &Collector<P>) -> Duration {
    Duration::from_millis(collector.wait / 2).clamp(Duration::from_secs(1), Duration::from_secs(60))
}

async fn collect<P: Pool>(collector: Arc<Collector<P>>) {
    loop {
        task::sleep(every(&collector)).await;
        match collector.round().await {
            Ok(round) => tracing::debug!("s3: collected {round:?}"),
            Err(e) => tracing::warn!("s3: collecting: {e}"),
        }
    }
}

/// Beside the collector, for it may take long.
async fn end_terms<P: Pool>(collector: Arc<Collector<P>>) {
    loop {
        task::sleep(every(&collector)).await;
        match collector.lifecycles().await {
            Ok(done) => tracing::debug!("s3: lifecycles {done:?}"),
            Err(e) => tracing::warn!("s3: lifecycles: {e}"),
        }
    }
}
