//! The contract of the cluster-state store, which `embedded` and `etcd` keep.
//!
//! Contract that every implementation keeps, and [`crate::conformance`] checks:
//! - A committed transaction is durable when its future resolves, except for leased keys, which live as long
//!   as their lease and need not survive a restart of the store.
//! - Transactions are serializable; each commit that changes anything has a revision of its own, larger than
//!   every earlier one.
//! - A watch sees every change after its revision once and in order, or fails with [`Error::Compacted`];
//!   it never skips silently.
//! - An error other than [`Error::Unknown`] means that nothing was changed.
//! - A transaction with comparisons is applied once or not at all; one that ended as [`Error::Unknown`] may also be
//!   applied later, as long as its comparisons hold. One without comparisons may be applied again, and later, when the
//!   store's answer was lost, so it must say the same twice and never undo what came after it (the reports of OSDs).
//! - A store that cannot be reached is waited for, with a log line; [`Metastore::close`] ends the waiting.
//!
//! Keys are text with `/` between parts; ranges are half-open over byte order.

use crate::lease::{Lease, LeaseTimes};
use bytes::Bytes;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

/// Number of a committed transaction; 0 is "never".
pub type Revision = u64;
/// Handle of a lease; never 0.
pub type LeaseId = u64;

/// Operations one transaction may hold. Far above etcd's default limit of 128: that counts what stands side by side, and
/// transactions may stand in transactions (the crate `etcd` does that).
pub const TXN_OPS_MAX: usize = 2400;
/// Comparisons one transaction may hold: they stand side by side.
pub const TXN_COMPARES_MAX: usize = 24;
/// Bytes one value may have.
pub const VALUE_BYTES_MAX: usize = 1 << 20;
/// Bytes that keys and values of one transaction may have together; etcd refuses requests above 1.5 MiB.
pub const TXN_BYTES_MAX: usize = 1400 << 10;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{0} operations in one transaction, at most {TXN_OPS_MAX} are possible")]
    TooManyOps(usize),
    #[error("{0} comparisons in one transaction, at most {TXN_COMPARES_MAX} are possible")]
    TooManyCompares(usize),
    #[error("value of key {key} has {len} bytes, at most {VALUE_BYTES_MAX} are possible")]
    ValueTooLarge { key: String, len: usize },
    #[error("{0} bytes in one transaction, at most {TXN_BYTES_MAX} are possible")]
    TooManyBytes(usize),
    #[error("lease {0} has ended or never was")]
    NoLease(LeaseId),
    #[error("changes after revision {0} are no longer kept")]
    Compacted(Revision),
    /// The store was asked but did not say whether it committed.
    #[error("outcome unknown: {0}")]
    Unknown(String),
    #[error("{0}")]
    Open(String),
    /// A commit that needs an OSD's lease to have ended found it alive.
    #[error("osd.{0} still holds its lease")]
    LeaseHeld(i32),
    /// The same of a metadata server, by its gid.
    #[error("the metadata server of gid {0} still holds its lease")]
    MdsLives(u64),
    #[error("cluster state: {0}")]
    Storage(String),
    #[error("cluster state holds a bad value under {key}: {why}")]
    BadValue { key: String, why: String },
    #[error("cluster state store is closed")]
    Closed,
}

pub type Result<T> = std::result::Result<T, Error>;
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// One key as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kv {
    pub key: String,
    pub value: Bytes,
    /// Revision of the last change of this key.
    pub revision: Revision,
    /// Set for keys that vanish with a lease.
    pub lease: Option<LeaseId>,
}

/// Half-open range of keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Range {
    pub start: String,
    /// None: to the end of the key space.
    pub end: Option<String>,
}

impl Range {
    /// All keys that begin with `prefix`.
    pub fn prefix(prefix: &str) -> Self {
        // Keys are ASCII by convention, so the successor of the last byte is again a valid string.
        let mut end = prefix.as_bytes().to_vec();
        let end = loop {
            match end.pop() {
                None => break None,
                Some(b) if b < 0x7f => {
                    end.push(b + 1);
                    break String::from_utf8(end).ok();
                }
                Some(_) => {}
            }
        };
        Self {
            start: prefix.to_string(),
            end,
        }
    }

    pub fn contains(&self, key: &str) -> bool {
        key >= self.start.as_str() && self.end.as_deref().is_none_or(|e| key < e)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Compare {
    /// The key's last change has this revision; 0 means that the key does not exist.
    Revision {
        key: String,
        revision: Revision,
    },
    Value {
        key: String,
        value: Bytes,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TxnOp {
    Put {
        key: String,
        value: Bytes,
        lease: Option<LeaseId>,
    },
    Delete {
        key: String,
    },
}

impl TxnOp {
    pub fn put(key: impl Into<String>, value: impl Into<Bytes>) -> Self {
        Self::Put {
            key: key.into(),
            value: value.into(),
            lease: None,
        }
    }
    pub fn delete(key: impl Into<String>) -> Self {
        Self::Delete { key: key.into() }
    }
    pub fn key(&self) -> &str {
        match self {
            Self::Put { key, .. } | Self::Delete { key } => key,
        }
    }
}

/// All comparisons hold, or nothing happens. A key may appear in one operation only.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Txn {
    pub compares: Vec<Compare>,
    pub ops: Vec<TxnOp>,
}

impl Txn {
    /// What keys and values take together.
    pub fn bytes(&self) -> usize {
        let compares = self.compares.iter().map(|c| match c {
            Compare::Revision { key, .. } => key.len(),
            Compare::Value { key, value } => key.len() + value.len(),
        });
        let ops = self.ops.iter().map(|op| match op {
            TxnOp::Put { key, value, .. } => key.len() + value.len(),
            TxnOp::Delete { key } => key.len(),
        });
        compares.chain(ops).sum()
    }

    /// The limits that every implementation enforces before it does anything.
    pub fn check(&self) -> Result<()> {
        if self.ops.len() > TXN_OPS_MAX {
            return Err(Error::TooManyOps(self.ops.len()));
        }
        if self.compares.len() > TXN_COMPARES_MAX {
            return Err(Error::TooManyCompares(self.compares.len()));
        }
        for op in &self.ops {
            if let TxnOp::Put { key, value, .. } = op
                && value.len() > VALUE_BYTES_MAX
            {
                return Err(Error::ValueTooLarge {
                    key: key.clone(),
                    len: value.len(),
                });
            }
        }
        let bytes = self.bytes();
        match bytes > TXN_BYTES_MAX {
            true => Err(Error::TooManyBytes(bytes)),
            false => Ok(()),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TxnOutcome {
    Committed(Revision),
    /// A comparison failed; nothing changed.
    Conflict,
}

/// One changed key; `value` is None when it was deleted or its lease ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    pub revision: Revision,
    pub key: String,
    pub value: Option<Bytes>,
}

/// Changes in order. `next` waits for at least one and returns all of one or several whole revisions.
pub trait Watch: Send {
    fn next(&mut self) -> BoxFuture<'_, Result<Vec<Event>>>;
}

/// The store. Handles are shared between threads; every method may be called from any of them.
pub trait Metastore: Send + Sync {
    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Kv>>>;

    /// All keys of a range in order, as of one revision, which is returned with them.
    fn range<'a>(&'a self, range: Range) -> BoxFuture<'a, Result<(Vec<Kv>, Revision)>>;

    fn txn(&self, txn: Txn) -> BoxFuture<'_, Result<TxnOutcome>>;

    /// Changes within `range` with a revision above `after`.
    fn watch(&self, range: Range, after: Revision) -> Result<Box<dyn Watch>>;

    /// A lease that ends `ttl` after its last renewal.
    fn lease_grant(&self, ttl: Duration) -> BoxFuture<'_, Result<LeaseId>>;
    fn lease_renew(&self, lease: LeaseId) -> BoxFuture<'_, Result<()>>;
    /// Ends the lease now; its keys are deleted in one revision.
    fn lease_revoke(&self, lease: LeaseId) -> BoxFuture<'_, Result<()>>;

    /// A lease whose owner renews it by [`Lease::touch`] and reads from it until when it may act.
    fn lease_hold(&self, times: LeaseTimes) -> BoxFuture<'_, Result<Lease>>;

    /// Ends leases whose time has come and drops old revisions, where the implementation has to do that
    /// itself. Call it about once a second.
    fn maintain(&self) -> BoxFuture<'_, Result<()>>;

    /// Why the store itself lets what it was asked for wait, if it does and knows.
    fn trouble(&self) -> Option<String> {
        None
    }

    /// The process is going to end: from now on what the store does not answer soon fails with
    /// [`Error::Closed`] instead of being waited for.
    fn close(&self) {}
}
