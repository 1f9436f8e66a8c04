//! The store of many machines: keys in etcd (3.4 or newer), shared with whoever else uses that etcd.
//!
//! One thread with a runtime of its own ([`io::task::Background`]) talks to etcd for all roles of the process; what a role
//! awaits is only that thread's answer. Dropping what it awaits takes nothing back: a transaction that
//! began goes to its end.
//!
//! Layout: every key lies below `PREFIX/state/`; `PREFIX/session/` is this implementation's own (`session.rs`).
//!
//! Bounds: a page of a range has [`PAGE_KEYS`] keys; a watch that is not read holds [`WATCH_BATCHES`] answers;
//! changes are kept for [`Options::keep_changes`], then compacted away, by whichever process comes to it. That
//! compacts the whole etcd, whose other users must not need older revisions.
//!
//! Not here: running etcd, its backups, its defragmentation.

mod conn;
mod hold;
mod session;
#[cfg(test)]
mod tests;
mod watch;

use conn::{ANSWER_BYTES_MAX, Conn, Failed};
use etcd_client::{Certificate, GetOptions, Identity, KeyValue, TlsOptions};
use io::Clock;
use io::task::Background;
use metastore::kv::*;
use metastore::lease::{Lease, LeaseTimes};
use session::{Session, txn_error};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

const PAGE_KEYS: i64 = 128;
const WATCH_BATCHES: usize = 64;
/// How often a process looks whether something is to be compacted, at most this share of what is kept.
const COMPACT_LOOKS: u32 = 8;
/// etcd's shortest lease is 2 s with its default settings.
const TTL_MIN: Duration = Duration::from_secs(2);

/// The password as it is now, asked for at every login: it may be changed while this runs. Or why there is none.
pub type Password = Arc<dyn Fn() -> std::result::Result<String, String> + Send + Sync>;

/// Where etcd is, and who we are to it.
#[derive(Clone)]
pub struct Options {
    /// `http://host:2379` or `https://...`, at least one.
    pub endpoints: Vec<String>,
    pub tls: Option<Tls>,
    pub user: Option<(String, Password)>,
    /// First part of all keys, for several clusters on one etcd.
    pub prefix: String,
    /// How long a watcher may be away without having to read everything again.
    pub keep_changes: Duration,
}

impl Options {
    pub const PREFIX: &str = "skep";
    pub const KEEP_CHANGES: Duration = Duration::from_secs(600);

    pub fn new(endpoints: Vec<String>) -> Self {
        Self {
            endpoints,
            tls: None,
            user: None,
            prefix: Self::PREFIX.into(),
            keep_changes: Self::KEEP_CHANGES,
        }
    }

    fn check(&self) -> Result<()> {
        let bad = |why: String| Err(Error::Open(why));
        if self.endpoints.is_empty() {
            return bad("no endpoint of etcd is named".into());
        }
        for e in &self.endpoints {
            let secure = e.starts_with("https://");
            if !secure && !e.starts_with("http://") {
                return bad(format!(
                    "endpoint {e:?} of etcd: write http://HOST:PORT or https://HOST:PORT"
                ));
            }
            if secure != self.tls.is_some() {
                return bad(match secure {
                    true => format!("endpoint {e} of etcd needs the certificate of its authority"),
                    false => {
                        format!("endpoint {e} of etcd is not encrypted: https is needed for certificates")
                    }
                });
            }
        }
        match self.prefix.is_empty() || self.prefix.contains('/') || !self.prefix.is_ascii() {
            true => bad(format!(
                "{:?} cannot be the first part of etcd's keys",
                self.prefix
            )),
            false => Ok(()),
        }
    }
}

/// Certificates and key in PEM.
#[derive(Clone)]
pub struct Tls {
    /// Of the authority that signed etcd's certificate.
    pub authority: Vec<u8>,
    /// Our certificate and its key, where etcd asks for one.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl Tls {
    fn client(&self) -> TlsOptions {
        let o = TlsOptions::new().ca_certificate(Certificate::from_pem(&self.authority));
        match &self.identity {
            Some((cert, key)) => o.identity(Identity::from_pem(cert, key)),
            None => o,
        }
    }
}

/// From our keys to etcd's and back.
#[derive(Clone)]
struct Keyspace {
    prefix: Arc<str>,
    /// Bytes before our own key.
    state_len: usize,
}

impl Keyspace {
    fn new(prefix: &str) -> Self {
        Self {
            prefix: prefix.into(),
            state_len: prefix.len() + "/state/".len(),
        }
    }
    fn key(&self, key: &str) -> Vec<u8> {
        format!("{}/state/{key}", self.prefix).into_bytes()
    }
    fn session(&self, lease: i64) -> Vec<u8> {
        format!("{}/session/{lease:016x}", self.prefix).into_bytes()
    }
    /// First key and the one behind the last.
    fn range(&self, range: &Range) -> (Vec<u8>, Vec<u8>) {
        let end = match &range.end {
            Some(end) => self.key(end),
            // '0' follows '/'.
            None => format!("{}/state0", self.prefix).into_bytes(),
        };
        (self.key(&range.start), end)
    }
    fn own(&self, key: &[u8]) -> Result<String> {
        let own = key.get(self.state_len..).unwrap_or_default();
        String::from_utf8(own.to_vec())
            .map_err(|_| Error::Storage(format!("etcd holds the key {}, not text", key.escape_ascii())))
    }
    fn kv(&self, kv: KeyValue) -> Result<Kv> {
        let key = self.own(kv.key())?;
        let (revision, lease) = (kv.mod_revision() as Revision, kv.lease());
        Ok(Kv {
            key,
            value: kv.into_key_value().1.into(),
            revision,
            lease: (lease != 0).then_some(lease as LeaseId),
        })
    }
}

fn final_error(failed: Failed) -> Error {
    match failed {
        Failed::Again(why) | Failed::Final(why) => Error::Storage(why),
        Failed::NoLease => Error::Storage("etcd does not know the lease".into()),
        Failed::Compacted => Error::Storage("etcd no longer has the revision".into()),
    }
}

struct Inner {
    conn: Conn,
    space: Keyspace,
    session: tokio::sync::Mutex<Session>,
    keep_changes: Duration,
    compaction: Mutex<Compaction>,
}

/// Revisions that were the newest some time ago, oldest first.
#[derive(Default)]
struct Compaction {
    noted: VecDeque<(Duration, Revision)>,
    done: Revision,
}

/// A handle; clones share the connection.
#[derive(Clone)]
pub struct Etcd {
    inner: Arc<Inner>,
    runtime: Arc<Background>,
}

impl Etcd {
    /// Connects: waits for etcd if it is not there yet, and fails if it refuses us.
    pub async fn open(options: Options, clock: Arc<dyn Clock>) -> Result<Self> {
        options.check()?;
        let runtime = Background::start("etcd").map_err(|e| Error::Open(format!("thread for etcd: {e}")))?;
        let inner = Inner {
            space: Keyspace::new(&options.prefix),
            keep_changes: options.keep_changes,
            conn: Conn::new(options, clock),
            session: tokio::sync::Mutex::default(),
            compaction: Mutex::default(),
        };
        let etcd = Self {
            inner: Arc::new(inner),
            runtime: Arc::new(runtime),
        };
        etcd.get("version").await.map_err(|e| match e {
            Error::Storage(why) => Error::Open(why),
            e => e,
        })?;
        Ok(etcd)
    }

    /// Runs `work` on etcd's thread.
    fn run<T, F, Fut>(&self, work: F) -> BoxFuture<'static, Result<T>>
    where
        T: Send + 'static,
        F: FnOnce(Arc<Inner>) -> Fut,
        Fut: Future<Output = Result<T>> + Send + 'static,
    {
        let work = work(self.inner.clone());
        let task = self.runtime.spawn(async move {
            io::panics::point("etcd");
            work.await
        });
        Box::pin(async move { task.await.unwrap_or(Err(Error::Closed)) })
    }
}

impl Inner {
    async fn get(&self, key: &str) -> Result<Option<Kv>> {
        let (key, seen) = (self.space.key(key), self.conn.seen());
        let mut answer = self
            .conn
            .call(|c| {
                let key = key.clone();
                async move { big(&c).get(key, None).await }
            })
            .await?
            .map_err(final_error)?;
        self.conn.note(answer.header(), seen)?;
        answer.take_kvs().pop().map(|kv| self.space.kv(kv)).transpose()
    }

    /// All of a range as of one revision, in pages.
    async fn range(&self, range: Range) -> Result<(Vec<Kv>, Revision)> {
        let (first, end) = self.space.range(&range);
        'anew: loop {
            let (mut start, mut at, mut rows) = (first.clone(), 0i64, Vec::new());
            loop {
                let seen = self.conn.seen();
                let options = GetOptions::new()
                    .with_range(end.clone())
                    .with_limit(PAGE_KEYS)
                    .with_revision(at);
                let answer = self
                    .conn
                    .call(|c| {
                        let (start, options) = (start.clone(), options.clone());
                        async move { big(&c).get(start, Some(options)).await }
                    })
                    .await?;
                let mut answer = match answer {
                    Ok(answer) => answer,
                    Err(Failed::Compacted) => continue 'anew,
                    Err(e) => return Err(final_error(e)),
                };
                let newest = self.conn.note(answer.header(), seen)?;
                if at == 0 {
                    at = newest as i64;
                }
                let more = answer.more();
                for kv in answer.take_kvs() {
                    start = kv.key().to_vec();
                    start.push(0);
                    rows.push(self.space.kv(kv)?);
                }
                if !more {
                    return Ok((rows, at as Revision));
                }
            }
        }
    }

    async fn txn(&self, txn: Txn) -> Result<TxnOutcome> {
        txn.check()?;
        if !txn.compares.is_empty() {
            let mut session = self.session.lock().await;
            return session.txn(&self.conn, &self.space, &txn).await;
        }
        let seen = self.conn.seen();
        let ops = self.space.ops(&txn.ops);
        let request = etcd_client::Txn::new().and_then(ops);
        let answer = self
            .conn
            .call(|mut c| {
                let request = request.clone();
                async move { c.txn(request).await }
            })
            .await?
            .map_err(|failed| txn_error(failed, &txn))?;
        self.conn.note(answer.header(), seen).map(TxnOutcome::Committed)
    }

    async fn grant(&self, ttl: Duration) -> Result<(LeaseId, Duration)> {
        let seconds = ttl.max(TTL_MIN).as_millis().div_ceil(1000) as i64;
        let answer = self
            .conn
            .call(|mut c| async move { c.lease_grant(seconds, None).await })
            .await?
            .map_err(final_error)?;
        Ok((
            answer.id() as LeaseId,
            Duration::from_secs(answer.ttl().max(0) as u64),
        ))
    }

    async fn renew(&self, lease: LeaseId) -> Result<()> {
        let answer = self
            .conn
            .call(|mut c| async move { c.lease_keep_alive(lease as i64).await.map(|_| ()) })
            .await?;
        answer.map_err(|failed| match failed {
            Failed::NoLease => Error::NoLease(lease),
            failed => final_error(failed),
        })
    }

    async fn revoke(&self, lease: LeaseId) -> Result<()> {
        let answer = self
            .conn
            .call(|mut c| async move { c.lease_revoke(lease as i64).await.map(|_| ()) })
            .await?;
        match answer {
            Ok(()) | Err(Failed::NoLease) => Ok(()),
            Err(failed) => Err(final_error(failed)),
        }
    }

    /// The revision that is to be compacted away now, if any.
    fn compact_to(&self) -> Option<Revision> {
        let (now, newest) = (self.conn.clock().monotonic(), self.conn.seen());
        let mut c = self.compaction.lock().unwrap_or_else(PoisonError::into_inner);
        let every = self.keep_changes / COMPACT_LOOKS;
        if c.noted.back().is_some_and(|(at, _)| now - *at < every) {
            return None;
        }
        c.noted.push_back((now, newest));
        let mut old = None;
        while c
            .noted
            .front()
            .is_some_and(|(at, _)| now - *at >= self.keep_changes)
        {
            old = c.noted.pop_front();
        }
        let (_, revision) = old.filter(|(_, r)| *r > c.done)?;
        c.done = revision;
        Some(revision)
    }

    async fn compact(&self, revision: Revision) -> Result<()> {
        let answer = self
            .conn
            .call(|mut c| async move { c.compact(revision as i64, None).await.map(|_| ()) })
            .await?;
        match answer {
            // Another process was faster.
            Ok(()) | Err(Failed::Compacted) => Ok(()),
            Err(failed) => Err(final_error(failed)),
        }
    }
}

/// A client whose answers may be large.
fn big(client: &etcd_client::Client) -> etcd_client::KvClient {
    client.kv_client().max_decoding_message_size(ANSWER_BYTES_MAX)
}

impl Metastore for Etcd {
    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Kv>>> {
        let key = key.to_string();
        self.run(|inner| async move { inner.get(&key).await })
    }

    fn range<'a>(&'a self, range: Range) -> BoxFuture<'a, Result<(Vec<Kv>, Revision)>> {
        self.run(|inner| async move { inner.range(range).await })
    }

    fn txn(&self, txn: Txn) -> BoxFuture<'_, Result<TxnOutcome>> {
        self.run(|inner| async move { inner.txn(txn).await })
    }

    fn watch(&self, range: Range, after: Revision) -> Result<Box<dyn Watch>> {
        Ok(watch::start(&self.runtime, self.inner.clone(), range, after))
    }

    fn lease_grant(&self, ttl: Duration) -> BoxFuture<'_, Result<LeaseId>> {
        self.run(move |inner| async move { inner.grant(ttl).await.map(|(id, _)| id) })
    }

    fn lease_renew(&self, lease: LeaseId) -> BoxFuture<'_, Result<()>> {
        self.run(move |inner| async move { inner.renew(lease).await })
    }

    fn lease_revoke(&self, lease: LeaseId) -> BoxFuture<'_, Result<()>> {
        self.run(move |inner| async move { inner.revoke(lease).await })
    }

    fn lease_hold(&self, times: LeaseTimes) -> BoxFuture<'_, Result<Lease>> {
        let runtime = self.runtime.clone();
        self.run(move |inner| async move { hold::hold(runtime, inner, times).await })
    }

    /// Returns at once; what has to be done is done on etcd's thread.
    fn maintain(&self) -> BoxFuture<'_, Result<()>> {
        if let Some(revision) = self.inner.compact_to() {
            let inner = self.inner.clone();
            drop(self.runtime.spawn(async move {
                match inner.compact(revision).await {
                    Ok(()) => tracing::debug!("etcd: revisions below {revision} compacted away"),
                    Err(e) => tracing::warn!("etcd: not compacted: {e}"),
                }
            }));
        }
        Box::pin(std::future::ready(Ok(())))
    }

    fn close(&self) {
        self.inner.conn.close();
    }
}
