//! Rows of omap where they lie.

use super::Store;
use crate::Result;
use std::ops::Bound;
use types::ObjectId;

impl Store {
    /// What [`Store::omap_range`] shows within the same bounds (entries, bytes), each row handed on without a copy; whether others follow.
    pub fn omap_each(
        &self,
        oid: &ObjectId,
        from: Bound<&[u8]>,
        most: (usize, usize),
        each: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<bool> {
        self.state.omap_each(oid, from, most, each)
    }
}
