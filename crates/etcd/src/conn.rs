//! Calls to etcd: one endpoint at a time, the next when it fails, until there is an answer.
//!
//! Invariants: a call ends only with etcd's answer, with an error that another try would not mend, or because the process
//! stops ([`Conn::close`]). All answers come from one etcd cluster whose revision never goes back; anything else
//! (an endpoint of another cluster, a member restored from a backup) ends this store's use for good.
//! What etcd has against our certificate or password is an answer at the first call, for whoever set it so; later it is
//! waited out, since somebody is changing it: the lease of a running OSD is worth more than a quick error.
//! Waiting is never silent: a line after [`QUIET`], and again every [`REMIND`].
//!
//! Not here: what a repeated call does (`session.rs` makes transactions safe against it).

use crate::options::Options;
use etcd_client::{Client, ConnectOptions, Error as EtcdError, ResponseHeader};
use io::Clock;
use metastore::kv::{Error, Result};
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

/// One attempt; a transaction that only takes longer is asked for again.
const CALL_MAX: Duration = Duration::from_secs(5);
const CONNECT_MAX: Duration = Duration::from_secs(2);
/// HTTP/2 pings: an endpoint that vanished without a word is noticed after both.
const PING_EVERY: Duration = Duration::from_secs(1);
const PING_MAX: Duration = Duration::from_secs(2);
/// Wait between attempts, doubled from the first to the longest.
const RETRY_FIRST: Duration = Duration::from_millis(20);
const RETRY_MAX: Duration = Duration::from_secs(1);
/// Trouble shorter than this is not worth a line in the log.
const QUIET: Duration = Duration::from_secs(1);
const REMIND: Duration = Duration::from_secs(10);
/// Bytes one answer may have: a page of a range, or what a watch missed.
pub(crate) const ANSWER_BYTES_MAX: usize = 256 << 20;

/// What an error of etcd means for who called.
pub(crate) enum Failed {
    /// Ask again, elsewhere: nothing is known about what happened.
    Again(String),
    NoLease,
    /// The revision asked for is no longer kept.
    Compacted,
    Final(String),
}

impl Failed {
    /// For who does not ask again.
    pub fn into_error(self) -> Error {
        match self {
            Failed::Again(why) | Failed::Final(why) => Error::Storage(why),
            Failed::NoLease => Error::Storage("etcd does not know the lease".into()),
            Failed::Compacted => Error::Storage("etcd no longer has the revision".into()),
        }
    }
}

pub(crate) struct Conn {
    options: Options,
    clock: Arc<dyn Clock>,
    current: Mutex<Current>,
    /// Identity of the etcd cluster; 0 until the first answer.
    cluster: AtomicU64,
    /// Highest revision that any answer named.
    seen: AtomicU64,
    closing: watch::Sender<bool>,
    failed: watch::Sender<Option<String>>,
}

struct Current {
    endpoint: usize,
    client: Option<Client>,
    /// Counts changes of the client: who saw it fail later than another changes nothing.
    turn: u64,
    /// Since when nothing answers, and when that was last said.
    trouble: Option<(Duration, Duration)>,
}

impl Conn {
    pub fn new(options: Options, clock: Arc<dyn Clock>) -> Self {
        Self {
            options,
            clock,
            current: Mutex::new(Current {
                endpoint: 0,
                client: None,
                turn: 0,
                trouble: None,
            }),
            cluster: AtomicU64::new(0),
            seen: AtomicU64::new(0),
            closing: watch::Sender::new(false),
            failed: watch::Sender::new(None),
        }
    }

    pub fn close(&self) {
        self.closing.send_replace(true);
    }

    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    pub fn seen(&self) -> u64 {
        self.seen.load(Ordering::Acquire)
    }

    /// Fails if this store must not be used any more.
    fn usable(&self) -> Result<()> {
        match &*self.failed.borrow() {
            Some(why) => Err(Error::Storage(why.clone())),
            None => Ok(()),
        }
    }

    /// The client of the present endpoint and its turn.
    pub async fn client(&self) -> std::result::Result<(Client, u64), (EtcdError, u64)> {
        let (endpoint, turn) = {
            let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(client) = &current.client {
                return Ok((client.clone(), current.turn));
            }
            (self.options.endpoints[current.endpoint].clone(), current.turn)
        };
        // Connects only where it has to log in; otherwise with the first call.
        let options = match self.connect_options() {
            Ok(options) => options,
            Err(why) => return Err((EtcdError::EndpointError(why), turn)),
        };
        let connect = Client::connect([endpoint], Some(options));
        // A login costs etcd a slow hash, and on a busy machine that takes its time.
        let limit = if self.options.user.is_some() {
            CALL_MAX
        } else {
            CONNECT_MAX
        };
        let client = match io::task::timeout(limit, connect).await {
            Ok(Ok(client)) => client,
            Ok(Err(e)) => return Err((e, turn)),
            Err(_) => return Err((EtcdError::EndpointError("no answer".into()), turn)),
        };
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.turn == turn {
            current.client = Some(client.clone());
        }
        Ok((client, turn))
    }

    fn connect_options(&self) -> std::result::Result<ConnectOptions, String> {
        let mut o = ConnectOptions::new()
            .with_connect_timeout(CONNECT_MAX)
            .with_keep_alive(PING_EVERY, PING_MAX)
            .with_keep_alive_while_idle(true)
            .with_require_leader(true)
            .with_auto_token_refresh(true);
        if let Some((user, password)) = &self.options.user {
            o = o.with_user(user, password()?);
        }
        if let Some(tls) = &self.options.tls {
            o = o.with_tls(tls.client());
        }
        Ok(o)
    }

    /// The client of turn `turn` failed: the next endpoint's takes its place.
    pub fn next_endpoint(&self, turn: u64) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.turn == turn {
            current.turn += 1;
            current.endpoint = (current.endpoint + 1) % self.options.endpoints.len();
            current.client = None;
        }
    }

    /// Calls etcd until it answers; `Ok(Err)` is an answer, too.
    pub async fn call<T, F, Fut>(&self, call: F) -> Result<std::result::Result<T, Failed>>
    where
        F: Fn(Client) -> Fut,
        Fut: Future<Output = std::result::Result<T, EtcdError>>,
    {
        let mut wait = RETRY_FIRST;
        loop {
            self.usable()?;
            let why = match self.attempt(CALL_MAX, &call).await {
                Ok(answer) => return Ok(Ok(answer)),
                Err(Failed::Again(why)) => why,
                Err(answer) => return Ok(Err(answer)),
            };
            self.trouble(&why);
            wait = self.pause(wait).await?;
        }
    }

    /// One attempt at the present endpoint, which loses its place if it fails.
    pub async fn attempt<T, F, Fut>(&self, max: Duration, call: F) -> std::result::Result<T, Failed>
    where
        F: Fn(Client) -> Fut,
        Fut: Future<Output = std::result::Result<T, EtcdError>>,
    {
        let (client, turn) = match self.client().await {
            Ok(found) => found,
            Err((e, turn)) => return Err(self.judge(e, turn)),
        };
        match io::task::timeout(max, call(client)).await {
            Ok(Ok(answer)) => {
                self.answered();
                Ok(answer)
            }
            Ok(Err(e)) => Err(self.judge(e, turn)),
            Err(_) => {
                self.next_endpoint(turn);
                Err(Failed::Again(format!("no answer within {} ms", max.as_millis())))
            }
        }
    }

    fn judge(&self, e: EtcdError, turn: u64) -> Failed {
        let known = self.cluster.load(Ordering::Acquire) != 0;
        let failed = judge(e, known);
        if matches!(failed, Failed::Again(_)) {
            self.next_endpoint(turn);
        }
        failed
    }

    /// Waits before the next attempt; gives the wait after that.
    pub async fn pause(&self, wait: Duration) -> Result<Duration> {
        let mut closing = self.closing.subscribe();
        if *closing.borrow_and_update() {
            return Err(Error::Closed);
        }
        // An error would mean that the sender is gone, which is `self`'s.
        let _ = io::task::timeout(wait, closing.changed()).await;
        Ok((wait * 2).min(RETRY_MAX))
    }

    /// Says in the log what is waited for.
    pub fn trouble(&self, why: &str) {
        let now = self.clock.monotonic();
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let (since, said) = current.trouble.unwrap_or((now, Duration::ZERO));
        let due = now - since >= QUIET && (said.is_zero() || now - said >= REMIND);
        current.trouble = Some((since, if due { now } else { said }));
        drop(current);
        if due {
            let names = self.options.endpoints.join(", ");
            let seconds = (now - since).as_secs();
            tracing::warn!("waiting for etcd ({names}) since {seconds} s: {why}");
        }
    }

    fn answered(&self) {
        let trouble = {
            let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
            current.trouble.take()
        };
        if let Some((since, said)) = trouble
            && !said.is_zero()
        {
            let seconds = (self.clock.monotonic() - since).as_secs();
            tracing::info!("etcd answers again after {seconds} s");
        }
    }

    /// Takes note of an answer's head; `seen` is [`Conn::seen`] from before the call. Gives its revision.
    pub fn note(&self, header: Option<&ResponseHeader>, seen: u64) -> Result<u64> {
        let header = header.ok_or_else(|| Error::Storage("etcd's answer has no header".into()))?;
        let known =
            self.cluster
                .compare_exchange(0, header.cluster_id(), Ordering::AcqRel, Ordering::Acquire);
        let revision = header.revision().max(0) as u64;
        let why = match known {
            Err(id) if id != header.cluster_id() => format!(
                "the endpoints {} belong to different etcd clusters ({id:x} and {:x})",
                self.options.endpoints.join(", "),
                header.cluster_id()
            ),
            _ if revision < seen => format!(
                "etcd's revision went back from {seen} to {revision}: it lost what it had acknowledged, \
                 or was restored from a backup"
            ),
            _ => {
                self.seen.fetch_max(revision, Ordering::AcqRel);
                return Ok(revision);
            }
        };
        tracing::error!("{why}");
        self.failed.send_replace(Some(why.clone()));
        Err(Error::Storage(why))
    }
}

/// Codes of gRPC.
mod code {
    pub const INVALID_ARGUMENT: i32 = 3;
    pub const NOT_FOUND: i32 = 5;
    pub const PERMISSION_DENIED: i32 = 7;
    pub const FAILED_PRECONDITION: i32 = 9;
    pub const OUT_OF_RANGE: i32 = 11;
    pub const UNIMPLEMENTED: i32 = 12;
}

/// What an error means. `known`: this process has had an answer before.
fn judge(e: EtcdError, known: bool) -> Failed {
    let EtcdError::GRpcStatus(status) = &e else {
        return match e {
            EtcdError::InvalidArgs(_) | EtcdError::InvalidUri(_) | EtcdError::InvalidMetadataValue(_) => {
                Failed::Final(e.to_string())
            }
            EtcdError::LeaseKeepAliveError(why) if why.contains("lease not found") => Failed::NoLease,
            e => unreached(with_causes(&e), known),
        };
    };
    let why = status.message().trim_start_matches("etcdserver: ").to_string();
    match status.code() as i32 {
        code::NOT_FOUND if why.contains("lease") => Failed::NoLease,
        code::OUT_OF_RANGE if why.contains("compacted") => Failed::Compacted,
        code::INVALID_ARGUMENT if why.contains("revision of auth store") => Failed::Again(why),
        code::INVALID_ARGUMENT if known && why.contains("authentication failed") => {
            Failed::Again(format!("etcd refuses: {why}"))
        }
        code::PERMISSION_DENIED => Failed::Final(format!("etcd denies its user the keys: {why}")),
        code::INVALID_ARGUMENT if why.contains("user name is empty") => {
            Failed::Final("etcd asks for a user and a password".into())
        }
        code::INVALID_ARGUMENT | code::FAILED_PRECONDITION | code::UNIMPLEMENTED | code::NOT_FOUND => {
            Failed::Final(format!("etcd refuses: {why}"))
        }
        _ => unreached(with_causes(status), known),
    }
}

/// No answer of etcd itself. One side's certificate that the other does not take will not become better by waiting.
fn unreached(why: String, known: bool) -> Failed {
    let certificate = why.to_ascii_lowercase().contains("certificate");
    match certificate && !known {
        true => Failed::Final(format!("no trusted connection with etcd: {why}")),
        false => Failed::Again(why),
    }
}

/// An error with what caused it; tonic's own text is often only "transport error".
fn with_causes(e: &(dyn std::error::Error + 'static)) -> String {
    let mut text = e.to_string();
    let mut cause = match e.downcast_ref::<EtcdError>() {
        Some(EtcdError::TransportError(e)) => std::error::Error::source(e),
        _ => e.source(),
    };
    while let Some(e) = cause {
        let more = e.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = e.source();
    }
    text
}
