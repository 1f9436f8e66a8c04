//! The store with a memory: whether anything that was asked of one object could not be read.
//!
//! Errors turn into numbers on their way through operations and class methods; this sees them before they do.

use crate::store::{IoError, ObjectReads, ObjectStat, ObjectStore, OmapPage, Seq, Ticket};
use bytes::Bytes;
use std::cell::Cell;
use std::ops::Bound;
use types::{EVersion, Errno, HObject, ObjectId, SPgId, Transaction};

/// A store that is lent for one message about `head` and its clones.
pub(crate) struct Watched<'a> {
    store: &'a mut dyn ObjectStore,
    head: &'a HObject,
    failed: &'a Cell<bool>,
}

impl<'a> Watched<'a> {
    pub fn new(store: &'a mut dyn ObjectStore, head: &'a HObject, failed: &'a Cell<bool>) -> Self {
        Self { store, head, failed }
    }

    fn note<T>(&self, oid: &ObjectId, r: Result<T, IoError>) -> Result<T, IoError> {
        if r.is_err() && oid.object.head() == *self.head {
            self.failed.set(true);
        }
        r
    }
}

impl ObjectReads for Watched<'_> {
    fn stat(&mut self, oid: &ObjectId) -> Result<Option<ObjectStat>, IoError> {
        let r = self.store.stat(oid);
        self.note(oid, r)
    }

    fn read(&mut self, oid: &ObjectId, offset: u64, len: u64) -> Result<Bytes, IoError> {
        let r = self.store.read(oid, offset, len);
        self.note(oid, r)
    }

    fn read_pieces(&mut self, oid: &ObjectId, offset: u64, len: u64) -> Result<Vec<Bytes>, IoError> {
        let r = self.store.read_pieces(oid, offset, len);
        self.note(oid, r)
    }

    fn uncache(&mut self, oid: &ObjectId, offset: u64, len: u64) {
        self.store.uncache(oid, offset, len);
    }

    fn prefetch(&mut self, oid: &ObjectId, offset: u64, len: u64) -> Option<Ticket> {
        self.store.prefetch(oid, offset, len)
    }

    fn release(&mut self, ticket: Ticket) {
        self.store.release(ticket);
    }

    fn extents(&mut self, oid: &ObjectId, offset: u64, len: u64) -> Result<Vec<(u64, u64)>, IoError> {
        let r = self.store.extents(oid, offset, len);
        self.note(oid, r)
    }

    fn attr(&mut self, oid: &ObjectId, name: &[u8]) -> Result<Option<Bytes>, IoError> {
        let r = self.store.attr(oid, name);
        self.note(oid, r)
    }

    fn attr_sizes(&mut self, oid: &ObjectId) -> Result<Vec<(Bytes, u64)>, IoError> {
        let r = self.store.attr_sizes(oid);
        self.note(oid, r)
    }

    fn attrs(&mut self, oid: &ObjectId) -> Result<Vec<(Bytes, Bytes)>, IoError> {
        let r = self.store.attrs(oid);
        self.note(oid, r)
    }

    fn omap_header(&mut self, oid: &ObjectId) -> Result<Bytes, IoError> {
        let r = self.store.omap_header(oid);
        self.note(oid, r)
    }

    fn omap_get(&mut self, oid: &ObjectId, keys: &[Bytes]) -> Result<Vec<(Bytes, Bytes)>, IoError> {
        let r = self.store.omap_get(oid, keys);
        self.note(oid, r)
    }

    fn omap_range(
        &mut self,
        oid: &ObjectId,
        from: Bound<&[u8]>,
        max_entries: usize,
        max_bytes: usize,
    ) -> Result<OmapPage, IoError> {
        let r = self.store.omap_range(oid, from, max_entries, max_bytes);
        self.note(oid, r)
    }

    fn omap_each(
        &mut self,
        oid: &ObjectId,
        from: Bound<&[u8]>,
        max_entries: usize,
        max_bytes: usize,
        each: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<bool, IoError> {
        let r = self.store.omap_each(oid, from, max_entries, max_bytes, each);
        self.note(oid, r)
    }

    fn list(&mut self, from: &ObjectId, max: usize) -> Result<Vec<ObjectId>, IoError> {
        self.store.list(from, max)
    }

    fn list_within(&mut self, from: &ObjectId, to: &ObjectId, max: usize) -> Result<Vec<ObjectId>, IoError> {
        self.store.list_within(from, to, max)
    }

    fn meta(&mut self, collection: SPgId) -> Result<Option<Bytes>, IoError> {
        self.store.meta(collection)
    }

    fn log_entries(&mut self, collection: SPgId) -> Result<Vec<(EVersion, Bytes)>, IoError> {
        self.store.log_entries(collection)
    }

    fn has_collection(&mut self, collection: SPgId) -> Result<bool, IoError> {
        self.store.has_collection(collection)
    }
}

impl ObjectStore for Watched<'_> {
    /// A store reads the rest of a block that is written in part: that may fail like any other read.
    fn submit(&mut self, txn: &Transaction) -> Result<Seq, Errno> {
        let r = self.store.submit(txn);
        if r == Err(Errno::EIO) {
            self.failed.set(true);
        }
        r
    }

    fn submitted(&self) -> Seq {
        self.store.submitted()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryStore;
    use types::{NOSNAP, Op, PgId};

    fn oid(name: &'static str) -> ObjectId {
        let none = Bytes::new();
        ObjectId::replicated(HObject::new(7, 1, none.clone(), none, name.into(), NOSNAP))
    }

    fn with_rows(of: &[&ObjectId]) -> MemoryStore {
        let mut store = MemoryStore::default();
        let mut ops = vec![Op::CreateCollection];
        for &oid in of {
            ops.push(Op::Touch { oid: oid.clone() });
            ops.push(Op::OmapSet {
                oid: oid.clone(),
                entries: vec![("a".into(), "1".into()), ("b".into(), "2".into())],
            });
        }
        let collection = SPgId::replicated(PgId::new(7, 0));
        store.submit(&Transaction { collection, ops }).unwrap();
        store
    }

    #[test]
    fn an_error_behind_rows_is_noted() {
        let (a, b) = (oid("a"), oid("b"));
        let mut store = with_rows(&[&a, &b]);
        // Of the other object it is nothing to the message.
        for (of, until, noted) in [(&a, Some(1), true), (&b, Some(1), false), (&a, None, false)] {
            store.rows_until = until;
            let failed = Cell::new(false);
            let mut watched = Watched::new(&mut store, &a.object, &failed);
            let mut rows = 0;
            let mut count = |_: &[u8], _: &[u8]| {
                rows += 1;
                true
            };
            let read = watched.omap_each(of, Bound::Unbounded, 9, 999, &mut count);
            assert_eq!(read.ok(), until.is_none().then_some(false));
            assert_eq!((rows, failed.get()), (until.unwrap_or(2), noted));
        }
    }
}
