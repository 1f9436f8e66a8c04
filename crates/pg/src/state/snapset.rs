//! The snapshots of one object: which clones there are, for which snapshot ids they stand, and what each
//! shares with the next newer version (docs/protocol/ceph/04-osd.md, section 11).
//!
//! Vocabulary: `seq` is the newest snapshot context under which the head was written; a *clone* is the head's
//! state before the first write under a newer context, and its id is that context's `seq`; *overlap* are the
//! byte ranges that a clone has in common with the next newer clone or the head.
//!
//! Invariants: clones ascend by id; a clone's snaps ascend and are at most its id; overlap lies within the
//! clone's size, and is never larger than the truth.

use crate::state::intervals::Intervals;
use bytes::Bytes;
use denc::Writer;
use types::NOSNAP;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CloneInfo {
    pub id: u64,
    pub snaps: Vec<u64>,
    pub size: u64,
    pub overlap: Intervals,
}
denc::plain_denc!(CloneInfo {
    id,
    snaps,
    size,
    overlap
});

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct SnapSet {
    pub seq: u64,
    pub clones: Vec<CloneInfo>,
}
denc::envelope_denc!(SnapSet, 1, 1, { seq, clones });

/// What a snapshot id means for an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Resolved {
    /// Not changed since: the head, if it exists.
    Head,
    /// The clone of this id.
    Clone(u64),
    /// The object did not exist then, or the snapshot is gone.
    Absent,
}

impl SnapSet {
    pub fn is_default(&self) -> bool {
        self.seq == 0 && self.clones.is_empty()
    }

    /// 11.4, without the removed snapshots (those are the pool's).
    pub fn resolve(&self, snap: u64) -> Resolved {
        if snap == NOSNAP || snap > self.seq {
            return Resolved::Head;
        }
        match self.clones.iter().find(|c| c.id >= snap) {
            Some(c) if c.snaps.binary_search(&snap).is_ok() => Resolved::Clone(c.id),
            _ => Resolved::Absent,
        }
    }

    /// Flag MAP_SNAP_CLONE: `snap` is the exact id of a clone, or above all of them.
    pub fn resolve_exact(&self, snap: u64) -> Resolved {
        match self.clones.iter().find(|c| c.id >= snap) {
            Some(c) if c.id == snap => Resolved::Clone(c.id),
            Some(_) => Resolved::Absent,
            None => Resolved::Head,
        }
    }

    /// The snapshots that a clone must stand for if the head (which exists) is written under this context:
    /// empty if none is needed. `snaps` descend.
    pub fn clone_needed(&self, snaps: &[u64]) -> Vec<u64> {
        let newer = snaps.partition_point(|s| *s > self.seq);
        snaps[..newer].iter().rev().copied().collect()
    }

    /// Bytes that the clones hold and do not share.
    pub fn unshared_bytes(&self) -> u64 {
        self.clones.iter().map(|c| c.size - c.overlap.total()).sum()
    }

    /// The head changed in `ranges`.
    pub fn head_changed(&mut self, ranges: &Intervals) {
        if let Some(newest) = self.clones.last_mut() {
            newest.overlap = newest.overlap.minus(ranges);
        }
    }

    /// What the head has in common with clone `id` for certain.
    pub fn common_with_head(&self, id: u64) -> Intervals {
        let mut from = self.clones.iter().skip_while(|c| c.id != id);
        let Some(first) = from.next() else {
            return Intervals::new();
        };
        from.fold(first.overlap.clone(), |all, c| all.and(&c.overlap))
    }

    /// Takes the removed snapshots out; the ids of clones that stand for none any more, which are gone from
    /// the set then. `None` if nothing changes.
    pub fn trim(&self, removed: &Intervals) -> Option<(Self, Vec<u64>)> {
        if !self
            .clones
            .iter()
            .any(|c| c.snaps.iter().any(|s| removed.contains(*s)))
        {
            return None;
        }
        let mut out = Self {
            seq: self.seq,
            clones: Vec::with_capacity(self.clones.len()),
        };
        let mut gone = Vec::new();
        for c in &self.clones {
            let mut c = c.clone();
            c.snaps.retain(|s| !removed.contains(*s));
            if !c.snaps.is_empty() {
                out.clones.push(c);
                continue;
            }
            gone.push(c.id);
            if let Some(older) = out.clones.last_mut() {
                older.overlap = older.overlap.and(&c.overlap);
            }
        }
        Some((out, gone))
    }

    /// The output of LIST_SNAPS (11.6).
    pub fn list(&self, head_size: Option<u64>) -> Bytes {
        let mut w = Writer::with_capacity(64);
        w.envelope(2, 1, |w| {
            w.u32((self.clones.len() + usize::from(head_size.is_some())) as u32);
            for c in &self.clones {
                list_one(c.id, &c.snaps, &c.overlap, c.size, w);
            }
            if let Some(size) = head_size {
                list_one(NOSNAP, &[], &Intervals::new(), size, w);
            }
            w.u64(self.seq);
        });
        w.finish()
    }
}

fn list_one(id: u64, snaps: &[u64], overlap: &Intervals, size: u64, w: &mut Writer) {
    w.envelope(1, 1, |w| {
        w.u64(id);
        w.put(snaps);
        w.u32(overlap.intervals().len() as u32);
        for (first, end) in overlap.intervals() {
            w.u64(*first);
            w.u64(end - first);
        }
        w.u64(size);
    });
}

/// A snapshot context of a write is valid if its snaps strictly descend and none is above its sequence.
pub(crate) fn context_is_valid(seq: u64, snaps: &[u64]) -> bool {
    snaps.first().is_none_or(|s| *s <= seq) && snaps.windows(2).all(|w| w[0] > w[1])
}

#[cfg(test)]
mod tests {
    use super::*;
    use denc::{Decode, Encode};

    fn set() -> SnapSet {
        let clone = |id, snaps: &[u64], size, overlap| CloneInfo {
            id,
            snaps: snaps.to_vec(),
            size,
            overlap,
        };
        SnapSet {
            seq: 6,
            clones: vec![
                clone(3, &[2, 3], 10, Intervals::range(0, 8)),
                clone(5, &[5], 10, Intervals::range(4, 10)),
                clone(6, &[6], 10, Intervals::range(5, 10)),
            ],
        }
    }

    #[test]
    fn a_snapshot_is_the_smallest_clone_at_or_above_it() {
        let s = set();
        let check = |snap, want| assert_eq!(s.resolve(snap), want, "snap {snap}");
        check(1, Resolved::Absent);
        check(2, Resolved::Clone(3));
        check(3, Resolved::Clone(3));
        check(4, Resolved::Absent);
        check(5, Resolved::Clone(5));
        check(7, Resolved::Head);
        check(NOSNAP, Resolved::Head);
        let exact = |snap, want| assert_eq!(s.resolve_exact(snap), want, "snap {snap}");
        exact(3, Resolved::Clone(3));
        exact(2, Resolved::Absent);
        exact(9, Resolved::Head);
    }

    #[test]
    fn contexts() {
        let check =
            |seq, snaps: &[u64], want| assert_eq!(context_is_valid(seq, snaps), want, "{seq} {snaps:?}");
        check(0, &[], true);
        check(9, &[9, 8, 1], true);
        check(9, &[8, 9], false);
        check(9, &[10], false);
        check(9, &[5, 5], false);
        assert_eq!(set().clone_needed(&[9, 8, 6, 2]), [8, 9]);
        assert!(set().clone_needed(&[6, 2]).is_empty());
    }

    #[test]
    fn trimming_merges_overlaps_and_keeps_half_used_clones() {
        let (s, gone) = set().trim(&Intervals::range(5, 6)).unwrap();
        assert_eq!(gone, [5]);
        assert_eq!(s.clones[0].overlap.intervals(), [(4, 8)]);
        let (s, gone) = set().trim(&Intervals::range(2, 3)).unwrap();
        assert!(gone.is_empty());
        assert_eq!(s.clones[0].snaps, [3]);
        assert!(set().trim(&Intervals::range(4, 5)).is_none());
        assert_eq!(set().common_with_head(3).intervals(), [(5, 8)]);
    }

    #[test]
    fn survives_its_encoding() {
        assert_eq!(SnapSet::from_bytes(&set().to_bytes()), Ok(set()));
    }
}
