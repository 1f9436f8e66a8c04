//! The store of many machines: keys in etcd (3.4 or newer), shared with whoever else uses that etcd.
//!
//! One thread with a runtime of its own ([`io::task::Background`]) talks to etcd for all roles of the process; what a role
//! awaits is only that thread's answer. Dropping what it awaits takes nothing back: a transaction that
//! began goes to its end.
//!
//! Layout: every key lies below `PREFIX/state/`; `PREFIX/session/` is this implementation's own (`session.rs`).
//!
//! Bounds: a page of a range has `calls::PAGE_KEYS` keys; a watch that is not read holds `watch::WATCH_BATCHES` answers;
//! changes are kept for [`Options::keep_changes`], then compacted away, by whichever process comes to it. That
//! compacts the whole etcd, whose other users must not need older revisions.
//!
//! Not here: running etcd, its backups, its defragmentation.

mod calls;
mod conn;
mod hold;
mod keyspace;
mod options;
mod session;
#[cfg(test)]
mod tests;
mod watch;

use calls::Inner;
use io::Clock;
use io::task::Background;
use metastore::kv::*;
use metastore::lease::{Lease, LeaseTimes};
use std::sync::Arc;
use std::time::Duration;

pub use options::{Options, Password, Tls};

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
        let etcd = Self {
            inner: Arc::new(Inner::new(options, clock)),
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
