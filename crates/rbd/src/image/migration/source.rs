//! The source as the target needs it: open at each of its snapshots and at its head, and asked for what an object of the target holds at one of
//! these moments. The layouts of the two may differ.

use super::content::{Content, joined, kept};
use super::{At, Place, Record, Use, old};
use crate::image::diff::state_at;
use crate::image::{Image, Inner};
use crate::{Error, Layout, Result, together};
use client::Client;
use client::core::SnapSet;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use types::NOSNAP;

pub(super) struct Source {
    /// In the order of [`super::times::Times::moments`].
    views: Vec<Arc<Inner>>,
    /// Of the target.
    layout: Layout,
    /// Bytes of the source that the target's head still reads from it; less than it had, where the target was shrunk.
    overlap: AtomicU64,
    /// The target leaves the source's parent: what was read from that is copied, too.
    flatten: bool,
    /// The target reads from the source's parent: an object without data hides that.
    hides: bool,
}

/// Objects of the source that hold what one of the target shall, with their snapsets.
pub(super) type Under = BTreeMap<u64, SnapSet>;

/// What tells an object's state at a moment from that at another one.
pub(super) type Key = Vec<Option<u64>>;

impl Source {
    pub async fn open(client: &Client, place: &Place, record: &Record, target: &Inner) -> Result<Self> {
        let io = place.io(client);
        let mut views = Vec::new();
        for snap in record.snap_seqs.keys().copied().chain([NOSNAP]) {
            let opened = match (place.is_old(), snap) {
                (true, snap) => old::open(&io, &place.name, snap, true).await,
                (false, NOSNAP) => {
                    Image::open_at(io.clone(), place.id.clone(), At::Head, Use::migration(true)).await
                }
                (false, snap) => {
                    let at = At::Snap(snap);
                    Image::open_at(io.clone(), place.id.clone(), at, Use::migration(true)).await
                }
            };
            let opened = opened.map_err(|e| e.about(&format!("the source '{}'", place.name)))?;
            views.push(opened.inner);
        }
        let has_parent = views.iter().any(|v| v.seen().header.parent.is_some());
        Ok(Self {
            views,
            layout: target.fixed.layout,
            overlap: AtomicU64::new(record.overlap),
            flatten: record.flatten && has_parent,
            hides: target.seen().header.parent.is_some(),
        })
    }

    /// As the target's record has it now.
    pub fn set_overlap(&self, overlap: u64) {
        self.overlap.store(overlap, Ordering::Release);
    }

    /// Objects that the target may need.
    pub fn objects(&self) -> u64 {
        let sizes = self.views.iter().map(|v| v.seen().header.size_at(v.snap));
        self.layout.objects(sizes.max().unwrap_or(0))
    }

    pub fn head(&self) -> Result<&Arc<Inner>> {
        let head = self.views.last();
        head.ok_or_else(|| Error::refused(types::Errno::EIO, "a source without a head"))
    }

    /// Bytes of the object at the moment.
    fn used(&self, object: u64, moment: usize) -> u64 {
        let view = &self.views[moment];
        let size = view.seen().header.size_at(view.snap);
        let most = match view.snap {
            NOSNAP => size.min(self.overlap.load(Ordering::Acquire)),
            _ => size,
        };
        self.layout.used(object, most)
    }

    /// None: the source has nothing there at any moment.
    pub async fn under(&self, object: u64) -> Result<Option<Under>> {
        let most = (0..self.views.len())
            .map(|m| self.used(object, m))
            .max()
            .unwrap_or(0);
        let head = self.head()?;
        let data = &head.seen().beneath;
        let ranges = self.layout.ranges(object, 0, most);
        let extents = ranges
            .iter()
            .flat_map(|(at, n)| head.fixed.layout.extents(*at, *n));
        let mut names: Vec<u64> = extents.map(|e| e.object).collect();
        names.sort_unstable();
        names.dedup();
        let asked = names.into_iter().map(|o| async move {
            match data.list_snaps(head.data_oid(o)).await {
                Ok(set) => Ok(Some((o, set))),
                Err(e) if e.is_not_found() => Ok(None),
                Err(e) => Err(Error::from(e)),
            }
        });
        let under: Under = together::all(asked).await?.into_iter().flatten().collect();
        Ok((self.flatten && most > 0 || !under.is_empty()).then_some(under))
    }

    /// Two moments with the same key have the same content.
    pub fn key(&self, object: u64, moment: usize, under: &Under) -> Key {
        let view = &self.views[moment];
        let mut key: Key = under.values().map(|set| state_at(set, view.snap)).collect();
        let overlap = view.seen().header.overlap_at(view.snap);
        key.extend([Some(self.used(object, moment)), Some(overlap)]);
        key
    }

    pub async fn content(&self, object: u64, moment: usize, under: &Under) -> Result<Content> {
        let view = &self.views[moment];
        let is_there = under.values().any(|set| state_at(set, view.snap).is_some());
        if !is_there && !self.flatten {
            return Ok(None);
        }
        let used = self.used(object, moment);
        if used == 0 {
            return Ok(None);
        }
        let (seen, ranges) = (view.seen(), self.layout.ranges(object, 0, used));
        let seen = &seen;
        let reads = ranges.into_iter().map(|(at, n)| view.read_range(seen, at, n));
        Ok(kept(
            &joined(together::all(reads).await?),
            true,
            is_there && self.hides,
        ))
    }
}
