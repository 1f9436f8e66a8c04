//! The object store as a PG sees it, over crate `store`: a missing object is empty rather than an error, the
//! store's refusals become error numbers, and it knows for which PG the disk is reading.
//!
//! Invariant: a ticket is known here from the prefetch that gave it to its release.

#[cfg(test)]
mod tests;

use crate::compression::Policies;
use bytes::Bytes;
use pg::{IoError, ObjectReads, ObjectStat, ObjectStore, OmapPage, Seq, Ticket};
use std::ops::Bound;
use store::{Error, Store};
use types::numbers::NumberMap;
use types::{EVersion, Errno, ObjectId, PgId, SPgId, Transaction};

#[derive(Debug)]
pub struct StoreView {
    pub engine: Store,
    /// The PG that it is lent to.
    borrower: SPgId,
    /// Prefetches that were not released. Bounded by the operations in flight, of which `net` has a budget, and
    /// the ranges that a PG asks for on behalf of one.
    prefetches: NumberMap<Ticket, SPgId>,
    /// Whose data is compressed.
    pub compression: Policies,
}

impl StoreView {
    pub fn new(engine: Store) -> Self {
        Self {
            engine,
            borrower: SPgId::replicated(PgId::new(0, 0)),
            prefetches: NumberMap::default(),
            compression: Policies::default(),
        }
    }

    /// What is asked of it from now on is asked by this PG.
    pub fn lend(&mut self, pg: SPgId) {
        self.borrower = pg;
    }

    /// How many there are that were not released.
    #[cfg(test)]
    pub fn held(&self) -> usize {
        self.prefetches.len()
    }

    /// Prefetches that ended, and whose they are.
    pub fn prefetched(&mut self) -> Vec<(Ticket, SPgId)> {
        let ended = self.engine.prefetched().into_iter();
        // One that was released while it was under way is nobody's.
        ended
            .filter_map(|t| Some((t, *self.prefetches.get(&t)?)))
            .collect()
    }
}

/// A missing object or collection reads as `T::default()`; everything else is an I/O error.
fn or_default<T: Default>(r: store::Result<T>) -> Result<T, IoError> {
    match r {
        Ok(v) => Ok(v),
        Err(Error::NoObject(_) | Error::NoCollection(_)) => Ok(T::default()),
        Err(e) => {
            tracing::error!("read: {e}");
            Err(IoError(e.to_string()))
        }
    }
}

impl ObjectReads for StoreView {
    fn stat(&mut self, oid: &ObjectId) -> Result<Option<ObjectStat>, IoError> {
        match self.engine.stat(oid) {
            Ok(s) => Ok(Some(ObjectStat {
                size: s.size,
                omap_keys: s.omap_keys,
                omap_bytes: s.omap_bytes,
                weight: s.weight,
            })),
            Err(Error::NoObject(_)) => Ok(None),
            Err(e) => Err(IoError(e.to_string())),
        }
    }

    fn read(&mut self, oid: &ObjectId, offset: u64, len: u64) -> Result<Bytes, IoError> {
        or_default(self.engine.read(oid, offset, len))
    }

    fn read_pieces(&mut self, oid: &ObjectId, offset: u64, len: u64) -> Result<Vec<Bytes>, IoError> {
        or_default(self.engine.read_pieces(oid, offset, len))
    }

    fn uncache(&mut self, oid: &ObjectId, offset: u64, len: u64) {
        // An index that cannot be read says so to the read that follows.
        let _ = self.engine.uncache(oid, offset, len);
    }

    fn prefetch(&mut self, oid: &ObjectId, offset: u64, len: u64) -> Option<Ticket> {
        match self.engine.prefetch(oid, offset, len) {
            Ok(ticket) => {
                self.prefetches.extend(ticket.map(|t| (t, self.borrower)));
                ticket
            }
            Err(e) => {
                // The read that follows fails for the same reason, and is answered.
                tracing::debug!("prefetch: {e}");
                None
            }
        }
    }

    fn release(&mut self, ticket: Ticket) {
        if self.prefetches.remove(&ticket).is_some() {
            self.engine.release(ticket);
        }
    }

    fn extents(&mut self, oid: &ObjectId, offset: u64, len: u64) -> Result<Vec<(u64, u64)>, IoError> {
        or_default(self.engine.allocated(oid, offset, len))
    }

    fn attr(&mut self, oid: &ObjectId, name: &[u8]) -> Result<Option<Bytes>, IoError> {
        or_default(self.engine.attr(oid, name))
    }

    fn attr_sizes(&mut self, oid: &ObjectId) -> Result<Vec<(Bytes, u64)>, IoError> {
        or_default(self.engine.attr_sizes(oid))
    }

    fn attrs(&mut self, oid: &ObjectId) -> Result<Vec<(Bytes, Bytes)>, IoError> {
        or_default(self.engine.attrs(oid))
    }

    fn omap_header(&mut self, oid: &ObjectId) -> Result<Bytes, IoError> {
        or_default(self.engine.omap_header(oid))
    }

    fn omap_get(&mut self, oid: &ObjectId, keys: &[Bytes]) -> Result<Vec<(Bytes, Bytes)>, IoError> {
        or_default(self.engine.omap_get(oid, keys))
    }

    fn omap_range(
        &mut self,
        oid: &ObjectId,
        from: Bound<&[u8]>,
        max_entries: usize,
        max_bytes: usize,
    ) -> Result<OmapPage, IoError> {
        let page = or_default(self.engine.omap_range(oid, from, max_entries, max_bytes))?;
        Ok(OmapPage {
            rows: page.entries,
            more: page.more,
        })
    }

    fn omap_each(
        &mut self,
        oid: &ObjectId,
        from: Bound<&[u8]>,
        max_entries: usize,
        max_bytes: usize,
        each: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<bool, IoError> {
        or_default(self.engine.omap_each(oid, from, (max_entries, max_bytes), each))
    }

    fn list(&mut self, from: &ObjectId, max: usize) -> Result<Vec<ObjectId>, IoError> {
        or_default(self.engine.list(from, max))
    }

    fn list_within(&mut self, from: &ObjectId, to: &ObjectId, max: usize) -> Result<Vec<ObjectId>, IoError> {
        or_default(self.engine.list_within(from, to, max))
    }

    fn meta(&mut self, collection: SPgId) -> Result<Option<Bytes>, IoError> {
        let meta = or_default(self.engine.meta(&collection))?;
        Ok(if meta.is_empty() { None } else { Some(meta) })
    }

    fn log_entries(&mut self, collection: SPgId) -> Result<Vec<(EVersion, Bytes)>, IoError> {
        or_default(self.engine.log_entries(&collection))
    }

    fn has_collection(&mut self, collection: SPgId) -> Result<bool, IoError> {
        Ok(self.engine.collections().contains(&collection))
    }
}

impl ObjectStore for StoreView {
    fn submitted(&self) -> Seq {
        self.engine.queued()
    }

    fn submit(&mut self, txn: &Transaction) -> Result<Seq, Errno> {
        let engine = &self.engine;
        let stored = |oid: &ObjectId| engine.attr(oid, pg::inspect::INFO).ok().flatten();
        let compression = self.compression.for_transaction(txn, stored);
        self.engine.queue_compressed(txn, compression).map_err(|e| {
            match &e {
                Error::NoSpace { .. } => tracing::warn!("write refused: {e}"),
                _ => tracing::error!("write refused: {e}"),
            }
            e.errno()
        })
    }
}
