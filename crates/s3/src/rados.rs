//! A pool as this crate uses it: a few operations that every OSD has, so that the same code runs before our OSDs, before those
//! of a Ceph, and in tests over a pool in memory that fails when told to.
//!
//! Contract: a [`Change`] is applied as a whole or not at all. Whoever drops the future, or gets an error that is no answer of
//! the OSD (no answer in time), does not know which.

use crate::amount::Amount;
use crate::{Error, Result};
use bytes::Bytes;
use client::{Cmp, IoCtx, Operation};
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;

/// Rows of one page.
pub const PAGE: u64 = 1000;

/// What is read of an object's omap, at one moment.
#[derive(Debug, Clone, Default)]
pub struct Look {
    pub keys: BTreeSet<Bytes>,
    pub page: Option<Span>,
    /// Another, at the same moment.
    pub beside: Option<Span>,
    /// As it is now: not what is remembered of it.
    pub fresh: bool,
}

/// Rows above `after` that begin with `prefix`, at most `max`.
#[derive(Debug, Clone)]
pub struct Span {
    pub after: Bytes,
    pub prefix: Bytes,
    pub max: u64,
}

#[derive(Debug, Clone, Default)]
pub struct Seen {
    pub values: BTreeMap<Bytes, Bytes>,
    pub rows: Vec<(Bytes, Bytes)>,
    pub more: bool,
    /// Of the page beside.
    pub beside: (Vec<(Bytes, Bytes)>, bool),
    /// Of the object: it grows with every change.
    pub version: u64,
}

/// What is changed of an object, all together, if all that is expected is so.
#[derive(Debug, Clone, Default)]
pub struct Change {
    /// Makes the object, which must not be there.
    pub create: bool,
    /// The object's version.
    pub version: Option<u64>,
    /// Values of its rows; an empty one: there is no such row.
    pub expect: BTreeMap<Bytes, Bytes>,
    pub set: BTreeMap<Bytes, Bytes>,
    pub unset: BTreeSet<Bytes>,
    /// What a bucket holds more, or less, with it.
    pub counted: Amount,
    /// Rows from the first up to the second are removed.
    pub unset_ranges: Vec<(Bytes, Bytes)>,
}

pub trait Pool: Clone + Send + Sync + 'static {
    fn look(&self, oid: &str, look: Look) -> impl Future<Output = Result<Seen>> + Send;
    fn change(&self, oid: &str, change: Change) -> impl Future<Output = Result<()>> + Send;
    /// Fewer bytes at the object's end.
    fn read(&self, oid: &str, offset: u64, length: u64) -> impl Future<Output = Result<Bytes>> + Send;
    /// The whole object.
    fn write(&self, oid: &str, data: Bytes) -> impl Future<Output = Result<()>> + Send;
    /// False: there was none.
    fn remove(&self, oid: &str) -> impl Future<Output = Result<bool>> + Send;
}

impl Span {
    pub fn new(after: &Bytes, prefix: &Bytes, max: u64) -> Self {
        Self {
            after: after.clone(),
            prefix: prefix.clone(),
            max,
        }
    }
}

impl Look {
    pub fn widen(&mut self, further: Self) {
        self.keys.extend(further.keys);
        self.page = further.page.or(self.page.take());
    }

    pub fn keys<const N: usize>(keys: [&Bytes; N]) -> Self {
        Self {
            keys: keys.into_iter().cloned().collect(),
            ..Self::default()
        }
    }

    /// The same, as it is now.
    pub fn fresh(mut self) -> Self {
        self.fresh = true;
        self
    }

    pub fn rows(after: &Bytes, prefix: &Bytes, max: u64) -> Self {
        Self {
            page: Some(Span::new(after, prefix, max)),
            ..Self::default()
        }
    }
}

impl Change {
    pub fn expecting(mut self, key: &Bytes, value: Option<&Bytes>) -> Self {
        self.expect
            .insert(key.clone(), value.cloned().unwrap_or_default());
        self
    }

    pub fn setting(mut self, key: &Bytes, value: Bytes) -> Self {
        self.set.insert(key.clone(), value);
        self
    }

    pub fn unsetting(mut self, key: &Bytes) -> Self {
        self.unset.insert(key.clone());
        self
    }

    fn operation(self) -> Operation {
        let mut op = Operation::new();
        if self.create {
            op = op.create(true);
        }
        if let Some(version) = self.version {
            op = op.assert_version(version);
        }
        if !self.expect.is_empty() {
            let equal = |(k, v)| (k, (v, Cmp::Eq));
            op = op.cmp_omap(&self.expect.into_iter().map(equal).collect());
        }
        for (from, to) in &self.unset_ranges {
            op = op.remove_omap_range(from, to);
        }
        if !self.unset.is_empty() {
            op = op.remove_omap_keys(&self.unset);
        }
        if !self.set.is_empty() {
            op = op.set_omap(&self.set);
        }
        op
    }
}

impl Pool for IoCtx {
    async fn look(&self, oid: &str, look: Look) -> Result<Seen> {
        let mut op = Operation::new().omap_values_by_keys(&look.keys);
        for span in look.page.iter().chain(&look.beside) {
            op = op.omap_values(&span.after, &span.prefix, span.max);
        }
        let done = self.operate(oid, op).await?.done()?;
        let mut seen = Seen {
            values: done.step(0)?.values()?,
            version: done.version,
            ..Seen::default()
        };
        if look.page.is_some() {
            let page = done.step(1)?.omap_values()?;
            seen.rows = page.items;
            seen.more = page.more;
        }
        if look.beside.is_some() {
            let page = done.step(1 + usize::from(look.page.is_some()))?.omap_values()?;
            seen.beside = (page.items, page.more);
        }
        Ok(seen)
    }

    async fn change(&self, oid: &str, change: Change) -> Result<()> {
        self.operate(oid, change.operation()).await?.done()?;
        Ok(())
    }

    async fn read(&self, oid: &str, offset: u64, length: u64) -> Result<Bytes> {
        Ok(IoCtx::read(self, oid, offset, length).await?)
    }

    async fn write(&self, oid: &str, data: Bytes) -> Result<()> {
        Ok(IoCtx::write_full(self, oid, data).await?)
    }

    async fn remove(&self, oid: &str) -> Result<bool> {
        match IoCtx::remove(self, oid).await {
            Ok(()) => Ok(true),
            Err(e) if e.is_not_found() => Ok(false),
            Err(e) => Err(Error::Rados(e)),
        }
    }
}
