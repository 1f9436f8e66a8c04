//! Rows of omap where they lie.

use super::Store;
use crate::Result;
use crate::index::Each;
use std::ops::Bound;
use types::ObjectId;

impl Store {
    /// What [`Store::omap_range`] shows within the same bounds (entries, bytes), each row handed on without a copy until `each` has
    /// enough; whether others follow (false then).
    pub fn omap_each(
        &self,
        oid: &ObjectId,
        from: Bound<&[u8]>,
        most: (usize, usize),
        each: &mut Each<'_>,
    ) -> Result<bool> {
        self.state.omap_each(oid, from, most, each)
    }
}
