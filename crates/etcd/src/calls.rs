//! What all handles of a store share, and what they ask of etcd, on its thread.

use crate::conn::{ANSWER_BYTES_MAX, Conn, Failed};
use crate::keyspace::Keyspace;
use crate::options::Options;
use crate::session::{Session, txn_error};
use etcd_client::GetOptions;
use io::Clock;
use metastore::kv::{Error, Kv, LeaseId, Range, Result, Revision, Txn, TxnOutcome};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

pub const PAGE_KEYS: i64 = 128;
/// How often a process looks whether something is to be compacted, at most this share of what is kept.
const COMPACT_LOOKS: u32 = 8;
/// etcd's shortest lease is 2 s with its default settings.
const TTL_MIN: Duration = Duration::from_secs(2);

pub(crate) struct Inner {
    pub conn: Conn,
    pub space: Keyspace,
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

impl Inner {
    pub fn new(options: Options, clock: Arc<dyn Clock>) -> Self {
        Self {
            space: Keyspace::new(&options.prefix),
            keep_changes: options.keep_changes,
            conn: Conn::new(options, clock),
            session: tokio::sync::Mutex::default(),
            compaction: Mutex::default(),
        }
    }

    pub async fn get(&self, key: &str) -> Result<Option<Kv>> {
        let (key, seen) = (self.space.key(key), self.conn.seen());
        let mut answer = self
            .conn
            .call(|c| {
                let key = key.clone();
                async move { big(&c).get(key, None).await }
            })
            .await?
            .map_err(Failed::into_error)?;
        self.conn.note(answer.header(), seen)?;
        answer.take_kvs().pop().map(|kv| self.space.kv(kv)).transpose()
    }

    /// All of a range as of one revision, in pages.
    pub async fn range(&self, range: Range) -> Result<(Vec<Kv>, Revision)> {
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
                    Err(e) => return Err(e.into_error()),
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

    pub async fn txn(&self, txn: Txn) -> Result<TxnOutcome> {
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

    pub async fn grant(&self, ttl: Duration) -> Result<(LeaseId, Duration)> {
        let seconds = ttl.max(TTL_MIN).as_millis().div_ceil(1000) as i64;
        let answer = self
            .conn
            .call(|mut c| async move { c.lease_grant(seconds, None).await })
            .await?
            .map_err(Failed::into_error)?;
        Ok((
            answer.id() as LeaseId,
            Duration::from_secs(answer.ttl().max(0) as u64),
        ))
    }

    pub async fn renew(&self, lease: LeaseId) -> Result<()> {
        let answer = self
            .conn
            .call(|mut c| async move { c.lease_keep_alive(lease as i64).await.map(|_| ()) })
            .await?;
        answer.map_err(|failed| match failed {
            Failed::NoLease => Error::NoLease(lease),
            failed => failed.into_error(),
        })
    }

    pub async fn revoke(&self, lease: LeaseId) -> Result<()> {
        let answer = self
            .conn
            .call(|mut c| async move { c.lease_revoke(lease as i64).await.map(|_| ()) })
            .await?;
        match answer {
            Ok(()) | Err(Failed::NoLease) => Ok(()),
            Err(failed) => Err(failed.into_error()),
        }
    }

    /// The revision that is to be compacted away now, if any.
    pub fn compact_to(&self) -> Option<Revision> {
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

    pub async fn compact(&self, revision: Revision) -> Result<()> {
        let answer = self
            .conn
            .call(|mut c| async move { c.compact(revision as i64, None).await.map(|_| ()) })
            .await?;
        match answer {
            // Another process was faster.
            Ok(()) | Err(Failed::Compacted) => Ok(()),
            Err(failed) => Err(failed.into_error()),
        }
    }
}

/// A client whose answers may be large.
fn big(client: &etcd_client::Client) -> etcd_client::KvClient {
    client.kv_client().max_decoding_message_size(ANSWER_BYTES_MAX)
}
