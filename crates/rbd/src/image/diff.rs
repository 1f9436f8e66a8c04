//! Which data objects may differ between two snapshots, or exist in one: by object maps where they can be believed, else by asking
//! each object for its clones (docs/protocol/ceph/05-rbd.md, 5).
//!
//! An object that is named need not differ; one that is not named does not.

use super::{Image, Inner};
use crate::header::Header;
use crate::{Result, features, together};
use client::core::SnapSet;
use objclass::rbd::object_map::{EXISTS, NONEXISTENT, ObjectMap, PENDING};
use std::collections::BTreeSet;
use types::NOSNAP;

/// Objects that are asked for their clones before the next ones are.
const BATCH: u64 = 4096;

/// How it was found out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Object maps with the feature fast-diff.
    FastDiff,
    /// Each object's clones.
    Clones,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changed {
    pub objects: BTreeSet<u64>,
    pub way: Way,
}

impl Image {
    /// Objects that may differ between the snapshot `from` and the one that is open here, or None: `from` does not help, since it
    /// is gone or sees another part of a parent.
    ///
    /// `rolled_back`: the image may have been rolled back, after `from` was made, to a snapshot older than `from`. A rollback takes
    /// the object map of its snapshot along, in which an object that it has changed may be clean; then maps are not believed.
    pub async fn changed_since(&self, from: u64, rolled_back: bool) -> Result<Option<Changed>> {
        let inner = &self.inner;
        let view = inner.view().await?;
        let (header, to) = (&view.header, inner.snap);
        let known = to != NOSNAP && from < to && header.snap(from).is_some();
        if !known || header.overlap_at(from) != header.overlap_at(to) {
            return Ok(None);
        }
        let rolled_back = rolled_back || header.snaps.iter().any(|s| s.id < from);
        if !rolled_back && let Some(objects) = inner.changed_by_maps(header, from).await? {
            let way = Way::FastDiff;
            return Ok(Some(Changed { objects, way }));
        }
        let most = header.size_at(from).max(header.size_at(to));
        let objects = inner
            .changed_by_clones(&view.data, inner.fixed.layout.objects(most), from)
            .await?;
        let way = Way::Clones;
        Ok(Some(Changed { objects, way }))
    }

    /// Objects of the open snapshot that are not all zeros as far as its object map knows, or None: it has none that can be
    /// believed, or reads from a parent.
    pub async fn existing(&self) -> Result<Option<BTreeSet<u64>>> {
        let inner = &self.inner;
        let view = inner.view().await?;
        let (header, snap) = (&view.header, inner.snap);
        if snap == NOSNAP || header.overlap_at(snap) > 0 {
            return Ok(None);
        }
        let map = inner.believed_map(header, snap).await?;
        let there = |m: &ObjectMap| {
            (0..m.entries())
                .filter(|o| m.get(*o) != Some(NONEXISTENT))
                .collect()
        };
        Ok(map.as_ref().map(there))
    }
}

impl Inner {
    /// None: the snapshot has no map that can be believed.
    async fn believed_map(&self, header: &Header, snap: u64) -> Result<Option<ObjectMap>> {
        let invalid = features::OBJECT_MAP_INVALID | features::FAST_DIFF_INVALID;
        let valid = header.snap(snap).is_some_and(|s| s.flags & invalid == 0);
        if !valid || !header.has(features::OBJECT_MAP) {
            return Ok(None);
        }
        let map = match self.read_map(snap).await {
            Ok(map) => map,
            // The feature is younger than the snapshot.
            Err(e) if e.is_not_found() => return Ok(None),
            Err(e) => return Err(e),
        };
        Ok((map.entries() >= self.fixed.layout.objects(header.size_at(snap))).then_some(map))
    }

    async fn changed_by_maps(&self, header: &Header, from: u64) -> Result<Option<BTreeSet<u64>>> {
        if !header.has(features::FAST_DIFF) {
            return Ok(None);
        }
        let Some(mut before) = self.believed_map(header, from).await? else {
            return Ok(None);
        };
        let mut changed = BTreeSet::new();
        let mut between: Vec<u64> = header.snaps.iter().map(|s| s.id).collect();
        between.retain(|id| (from + 1..=self.snap).contains(id));
        between.sort_unstable();
        for snap in between {
            let Some(map) = self.believed_map(header, snap).await? else {
                return Ok(None);
            };
            changed.extend(differ(&before, &map));
            before = map;
        }
        Ok(Some(changed))
    }

    async fn changed_by_clones(
        &self,
        data: &client::IoCtx,
        objects: u64,
        from: u64,
    ) -> Result<BTreeSet<u64>> {
        let mut changed = BTreeSet::new();
        let mut first = 0;
        while first < objects {
            let end = objects.min(first + BATCH);
            let asked = (first..end).map(|o| async move {
                match data.list_snaps(self.data_oid(o)).await {
                    Ok(set) => Ok(state_at(&set, from) != state_at(&set, self.snap)),
                    Err(e) if e.is_not_found() => Ok(false),
                    Err(e) => Err(crate::Error::from(e)),
                }
            });
            let told = together::all(asked).await?;
            changed.extend(
                (first..end)
                    .zip(told)
                    .filter(|(_, differs)| *differs)
                    .map(|(o, _)| o),
            );
            first = end;
        }
        Ok(changed)
    }
}

/// What changed up to the snapshot with the map `after` since the one before it.
fn differ<'a>(before: &'a ObjectMap, after: &'a ObjectMap) -> impl Iterator<Item = u64> + 'a {
    let entries = before.entries().max(after.entries());
    (0..entries).filter(|o| {
        let was = before.get(*o).unwrap_or(NONEXISTENT);
        let is = after.get(*o).unwrap_or(NONEXISTENT);
        matches!(is, EXISTS | PENDING) || (was == NONEXISTENT) != (is == NONEXISTENT)
    })
}

/// Which of an object's states a snapshot sees: that of a clone, or the head's; None: it has none.
pub(super) fn state_at(set: &SnapSet, snap: u64) -> Option<u64> {
    let clones = set.clones.iter().filter(|c| c.id != NOSNAP);
    match clones.filter(|c| c.id >= snap).min_by_key(|c| c.id) {
        Some(clone) => clone.snaps.contains(&snap).then_some(clone.id),
        None if snap > set.seq && set.clones.iter().any(|c| c.id == NOSNAP) => Some(NOSNAP),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use client::core::CloneInfo;
    use objclass::rbd::object_map::CLEAN;

    fn map(states: &[u8]) -> ObjectMap {
        let mut map = ObjectMap::default();
        map.resize(states.len() as u64, NONEXISTENT);
        for (i, state) in (0..).zip(states) {
            map.update(i, i + 1, *state, None);
        }
        map
    }

    #[test]
    fn maps_say_what_changed() {
        let (n, e, p, c) = (NONEXISTENT, EXISTS, PENDING, CLEAN);
        let before = map(&[n, n, e, e, e, c, e, e]);
        let after = map(&[n, e, n, c, e, c, p]);
        // What the smaller map has not is gone.
        assert_eq!(differ(&before, &after).collect::<Vec<_>>(), [1, 2, 4, 6, 7]);
        assert_eq!(differ(&after, &after).collect::<Vec<_>>(), [1, 4, 6]);
    }

    #[test]
    fn clones_say_what_a_snapshot_sees() {
        let clone = |id, snaps: &[u64]| CloneInfo {
            id,
            snaps: snaps.to_vec(),
            overlap: Vec::new(),
            size: 1,
        };
        // Made after 2, cloned for 4 and 5, for 7, and the head.
        let set = SnapSet {
            clones: vec![clone(5, &[4, 5]), clone(7, &[7]), clone(NOSNAP, &[])],
            seq: 7,
        };
        let seen: Vec<_> = [2, 4, 5, 6, 7, 8].map(|s| state_at(&set, s)).into();
        assert_eq!(seen, [None, Some(5), Some(5), None, Some(7), Some(NOSNAP)]);
        let young = SnapSet {
            clones: vec![clone(NOSNAP, &[])],
            seq: 3,
        };
        assert_eq!((state_at(&young, 3), state_at(&young, 4)), (None, Some(NOSNAP)));
        let gone = SnapSet {
            clones: vec![clone(5, &[5])],
            seq: 5,
        };
        assert_eq!((state_at(&gone, 5), state_at(&gone, 9)), (Some(5), None));
    }
}
