//! The moments whose states an object of the target gets, one after the other, and the snap context of each. Pure.
//!
//! The first state is written as before all snapshots, each later one in the context of the snapshot before it, so that the OSD keeps what
//! was there for the snapshots in between. The numbers of the contexts are those of the record: a snapshot that was removed at the target meanwhile
//! has no name in any context, and its number still tells how far an object is.

use crate::Result;
use client::SnapContext;
use client::core::SnapSet;
use std::collections::BTreeMap;
use types::NOSNAP;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Times {
    /// The newest snapshot of the record; 0: it has none.
    pub cut: u64,
    /// Oldest first; the last one is the head.
    pub moments: Vec<Moment>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Moment {
    /// The target's snapshot that sees this state, if it is there still; the head: [`NOSNAP`].
    pub snap: Option<u64>,
    pub context: SnapContext,
}

impl Times {
    /// `seqs`: the source's snapshots to the target's; `there`: snapshots of the target, newest first.
    pub fn new(seqs: &BTreeMap<u64, u64>, there: &[u64]) -> Result<Self> {
        let mut moments = Vec::new();
        let mut seq = 0;
        for snap in seqs.values().copied().chain([NOSNAP]) {
            let before = there.iter().copied().filter(|s| *s <= seq).collect();
            moments.push(Moment {
                snap: (snap == NOSNAP || there.contains(&snap)).then_some(snap),
                context: SnapContext::new(seq, before)?,
            });
            seq = snap;
        }
        let cut = seqs.values().copied().max().unwrap_or(0);
        Ok(Self { cut, moments })
    }

    /// An object of the target with this snapset has all of the source's states: nobody writes in a context as new as the cut before.
    pub fn is_whole(&self, set: &SnapSet) -> bool {
        match self.cut {
            0 => set.seq > 0 || has_head(set),
            cut => set.seq >= cut,
        }
    }
}

pub(super) fn has_head(set: &SnapSet) -> bool {
    set.clones.iter().any(|c| c.id == NOSNAP)
}

#[cfg(test)]
mod tests {
    use super::*;
    use client::core::CloneInfo;

    fn seqs(pairs: &[(u64, u64)]) -> BTreeMap<u64, u64> {
        pairs.iter().copied().collect()
    }

    fn set(seq: u64, clones: &[u64]) -> SnapSet {
        let clone = |id: &u64| CloneInfo {
            id: *id,
            snaps: Vec::new(),
            overlap: Vec::new(),
            size: 1,
        };
        SnapSet {
            clones: clones.iter().map(clone).collect(),
            seq,
        }
    }

    fn shown(t: &Times) -> Vec<(Option<u64>, u64, Vec<u64>)> {
        let one = |m: &Moment| (m.snap, m.context.seq(), m.context.snaps().to_vec());
        t.moments.iter().map(one).collect()
    }

    #[test]
    fn each_state_is_written_in_the_context_of_the_snapshot_before() {
        let t = Times::new(&seqs(&[(1, 11), (2, 12)]), &[12, 11]).unwrap();
        let head = Some(NOSNAP);
        assert_eq!(
            shown(&t),
            [
                (Some(11), 0, vec![]),
                (Some(12), 11, vec![11]),
                (head, 12, vec![12, 11])
            ]
        );
        // One more was made at the target: it sees the head's state, which is as old as the cut.
        let more = Times::new(&seqs(&[(1, 11), (2, 12)]), &[15, 12, 11]).unwrap();
        assert_eq!(shown(&more), shown(&t));
        let none = Times::new(&seqs(&[]), &[15]).unwrap();
        assert_eq!((none.cut, shown(&none)), (0, vec![(head, 0, vec![])]));
    }

    /// A copy was cut short behind the first state, then somebody removed the newest snapshot of the target: what its header names was all
    /// copied, the source's newer states were not.
    #[test]
    fn a_snapshot_that_was_removed_at_the_target_still_counts() {
        let t = Times::new(&seqs(&[(1, 11), (2, 12), (3, 13)]), &[12, 11]).unwrap();
        assert_eq!(t.cut, 13);
        assert!(!t.is_whole(&set(11, &[11, NOSNAP])));
        assert!(!t.is_whole(&set(12, &[11, 12, NOSNAP])));
        assert!(t.is_whole(&set(13, &[11, 12, NOSNAP])));
        assert_eq!(
            shown(&t)[2..],
            [(None, 12, vec![12, 11]), (Some(NOSNAP), 13, vec![12, 11])]
        );
        // All of them.
        let bare = Times::new(&seqs(&[(1, 11), (2, 12)]), &[]).unwrap();
        assert_eq!(
            shown(&bare),
            [(None, 0, vec![]), (None, 11, vec![]), (Some(NOSNAP), 12, vec![])]
        );
        assert!(!bare.is_whole(&set(0, &[NOSNAP])));
    }

    #[test]
    fn without_snapshots_an_object_is_whole_when_it_is_there() {
        let t = Times::new(&seqs(&[]), &[]).unwrap();
        assert!(t.is_whole(&set(0, &[NOSNAP])));
        // Removed under a snapshot of the target's own, which lives on.
        assert!(t.is_whole(&set(15, &[15])));
        assert!(t.is_whole(&set(15, &[15, NOSNAP])));
    }
}
