//! A listing page by page.

use super::IoCtx;
use crate::core::list::{self, Cursor, Entry, Spaces, XattrIs};
use crate::{Error, Result};
use types::Errno;

/// Walks from its cursor to its end. Dropping it ends the walk; the cursor may be kept and gone on from later.
#[derive(Debug, Clone)]
pub struct Lister {
    pub(super) io: IoCtx,
    pub(super) spaces: Spaces,
    pub(super) cursor: Cursor,
    pub(super) end: Cursor,
    pub(super) filter: Option<XattrIs>,
}

impl Lister {
    /// Of all namespaces.
    pub fn all_namespaces(mut self) -> Self {
        self.spaces = Spaces::All;
        self
    }

    /// From a kept cursor on, up to another one.
    pub fn between(mut self, from: Cursor, end: Cursor) -> Self {
        (self.cursor, self.end) = (from, end);
        self
    }

    /// Only objects whose attribute has this value.
    pub fn with_xattr(mut self, filter: XattrIs) -> Self {
        self.filter = Some(filter);
        self
    }

    /// Where it goes on.
    pub fn cursor(&self) -> &Cursor {
        &self.cursor
    }

    pub fn is_done(&self) -> bool {
        self.cursor >= self.end
    }

    /// The next objects, about `max` (at most 1024); none only at the end.
    pub async fn page(&mut self, max: u64) -> Result<Vec<Entry>> {
        if max == 0 {
            return Err(Error::invalid(Errno::EINVAL, "a page of no objects"));
        }
        while !self.is_done() {
            let map = self.io.client().map()?;
            let filter = self.filter.as_ref();
            let (place, operation) = list::question(
                self.io.pool_id(),
                &self.spaces,
                &self.cursor,
                max,
                map.epoch,
                filter,
            );
            let outcome = self.io.submit(place, operation).await?.done()?;
            let map = self.io.client().map()?;
            let pool = map.pool(self.io.pool_id());
            let hash = |e: &Entry| pool.map_or(0, |p| p.object_to_raw(&e.nspace, &e.key, &e.oid));
            let (entries, next) = list::answer(&outcome, &self.cursor, &self.end, hash)?;
            self.cursor = next;
            if !entries.is_empty() {
                return Ok(entries);
            }
        }
        Ok(Vec::new())
    }

    /// All the rest. For pools that are known to be small.
    pub async fn collect(mut self) -> Result<Vec<Entry>> {
        let mut all = Vec::new();
        while !self.is_done() {
            all.extend(self.page(list::PAGE_MAX).await?);
        }
        Ok(all)
    }
}
