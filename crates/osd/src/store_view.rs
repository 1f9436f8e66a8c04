//! The object store as a PG sees it, over crate `store`: a missing object is empty rather than an error, and
//! the store's refusals become error numbers.

use bytes::Bytes;
use pg::{IoError, ObjectReads, ObjectStat, ObjectStore, Seq};
use std::ops::Bound;
use store::{Error, Store};
use types::{EVersion, Errno, ObjectId, SPgId, Transaction};

#[derive(Debug)]
pub struct StoreView(pub Store);

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
        match self.0.stat(oid) {
            Ok(s) => Ok(Some(ObjectStat { size: s.size })),
            Err(Error::NoObject(_)) => Ok(None),
            Err(e) => Err(IoError(e.to_string())),
        }
    }

    fn read(&mut self, oid: &ObjectId, offset: u64, len: u64) -> Result<Bytes, IoError> {
        or_default(self.0.read(oid, offset, len))
    }

    fn extents(&mut self, oid: &ObjectId, offset: u64, len: u64) -> Result<Vec<(u64, u64)>, IoError> {
        or_default(self.0.allocated(oid, offset, len))
    }

    fn attr(&mut self, oid: &ObjectId, name: &[u8]) -> Result<Option<Bytes>, IoError> {
        or_default(self.0.attr(oid, name))
    }

    fn attrs(&mut self, oid: &ObjectId) -> Result<Vec<(Bytes, Bytes)>, IoError> {
        or_default(self.0.attrs(oid))
    }

    fn omap_header(&mut self, oid: &ObjectId) -> Result<Bytes, IoError> {
        or_default(self.0.omap_header(oid))
    }

    fn omap_get(&mut self, oid: &ObjectId, keys: &[Bytes]) -> Result<Vec<(Bytes, Bytes)>, IoError> {
        or_default(self.0.omap_get(oid, keys))
    }

    fn omap_range(
        &mut self,
        oid: &ObjectId,
        from: Bound<&[u8]>,
        max_entries: usize,
        max_bytes: usize,
    ) -> Result<Vec<(Bytes, Bytes)>, IoError> {
        or_default(self.0.omap_range(oid, from, max_entries, max_bytes)).map(|page| page.entries)
    }

    fn list(&mut self, from: &ObjectId, max: usize) -> Result<Vec<ObjectId>, IoError> {
        or_default(self.0.list(from, max))
    }

    fn meta(&mut self, collection: SPgId) -> Result<Option<Bytes>, IoError> {
        let meta = or_default(self.0.meta(&collection))?;
        Ok(if meta.is_empty() { None } else { Some(meta) })
    }

    fn log_entries(&mut self, collection: SPgId) -> Result<Vec<(EVersion, Bytes)>, IoError> {
        or_default(self.0.log_entries(&collection))
    }

    fn has_collection(&mut self, collection: SPgId) -> Result<bool, IoError> {
        Ok(self.0.collections().contains(&collection))
    }
}

impl ObjectStore for StoreView {
    fn submitted(&self) -> Seq {
        self.0.queued()
    }

    fn submit(&mut self, txn: Transaction) -> Result<Seq, Errno> {
        self.0.queue(txn).map_err(|e| {
            match &e {
                Error::NoSpace { .. } => tracing::warn!("write refused: {e}"),
                _ => tracing::error!("write refused: {e}"),
            }
            e.errno()
        })
    }
}
