//! What an execution looks up, from the own store.

use crate::exec::known::Known;
use crate::state::object::ObjectState;
use crate::store::{IoError, ObjectStat, ObjectStore, OmapPage};
use bytes::Bytes;
use std::ops::Bound;
use types::ObjectId;

/// The index of the own store.
pub(crate) struct Index<'a>(pub &'a mut dyn ObjectStore);

impl Known for Index<'_> {
    fn object(&mut self, oid: &ObjectId) -> Result<ObjectState, IoError> {
        ObjectState::load(oid, self.0)
    }

    fn stat(&mut self, oid: &ObjectId) -> Result<Option<ObjectStat>, IoError> {
        self.0.stat(oid)
    }

    fn attr(&mut self, oid: &ObjectId, name: &[u8]) -> Result<Option<Bytes>, IoError> {
        self.0.attr(oid, name)
    }

    fn attr_sizes(&mut self, oid: &ObjectId) -> Result<Vec<(Bytes, u64)>, IoError> {
        self.0.attr_sizes(oid)
    }

    fn attrs(&mut self, oid: &ObjectId) -> Result<Vec<(Bytes, Bytes)>, IoError> {
        self.0.attrs(oid)
    }

    fn omap_header(&mut self, oid: &ObjectId) -> Result<Bytes, IoError> {
        self.0.omap_header(oid)
    }

    fn omap_get(&mut self, oid: &ObjectId, keys: &[Bytes]) -> Result<Vec<(Bytes, Bytes)>, IoError> {
        self.0.omap_get(oid, keys)
    }

    fn omap_range(
        &mut self,
        oid: &ObjectId,
        from: Bound<&[u8]>,
        max_entries: usize,
        max_bytes: usize,
    ) -> Result<OmapPage, IoError> {
        self.0.omap_range(oid, from, max_entries, max_bytes)
    }

    fn omap_each(
        &mut self,
        oid: &ObjectId,
        from: Bound<&[u8]>,
        max_entries: usize,
        max_bytes: usize,
        each: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<bool, IoError> {
        self.0.omap_each(oid, from, max_entries, max_bytes, each)
    }
}
