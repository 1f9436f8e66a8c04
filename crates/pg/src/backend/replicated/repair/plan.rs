//! The plan of a unit that is made in scratch objects: which objects in which order, and what of the present one is missing.
//!
//! Clones come before the head, each begun as a copy of the scratch object of its older neighbour where the snapset says that
//! they share, so that what was made shares as the originals do.
//!
//! Invariants: a part is done with only when what came covers all of it, without a gap, and touches the object alone.
//! Pure: whoever drives it asks, reads and writes ([`super::steps`]).

use super::piece::decode_snapset;
use super::scratch::{moved, scratch};
use crate::state::intervals::Intervals;
use crate::state::snapset::SnapSet;
use messages::osd::peer_scrub::{Outline, OutlineItem, Part};
use std::collections::VecDeque;
use types::{HObject, ObjectId, Op};

#[derive(Debug)]
pub(super) struct Plan {
    shard: i8,
    pub items: Vec<OutlineItem>,
    snapset: SnapSet,
    /// The object that is being made.
    at: usize,
    /// What of it is missing.
    todo: VecDeque<Part>,
    /// Steps that begin it: they go with its first part.
    first: Vec<Op>,
}

impl Plan {
    /// Err: what somebody said of the objects from `from` up to and with `to` cannot be.
    pub fn new(shard: i8, from: &HObject, to: &HObject, outline: Outline) -> Result<Self, String> {
        let Outline { items, snapset } = outline;
        let inside = |o: &HObject| from <= o && o <= to && o.head() == to.head();
        let ordered = items.windows(2).all(|w| w[0].object < w[1].object);
        if items.last().is_none_or(|i| i.object != *to)
            || !ordered
            || !items.iter().all(|i| inside(&i.object))
        {
            return Err("an outline of something else".into());
        }
        let snapset = decode_snapset(&snapset).map_err(|e| format!("its snapset does not decode: {e}"))?;
        let mut plan = Self {
            shard,
            items,
            snapset,
            at: 0,
            todo: VecDeque::new(),
            first: Vec::new(),
        };
        plan.enter(0);
        Ok(plan)
    }

    pub fn id(&self, object: &HObject) -> ObjectId {
        ObjectId {
            shard: self.shard,
            object: object.clone(),
        }
    }

    /// The next part that is missing, and of which object; None: all is made.
    pub fn next(&mut self) -> Option<(OutlineItem, Part)> {
        if self.todo.is_empty() && self.at + 1 < self.items.len() {
            self.enter(self.at + 1);
        }
        let part = self.todo.front()?.clone();
        Some((self.items[self.at].clone(), part))
    }

    /// Objects of which there is a scratch object, if what was given out was written.
    pub fn begun(&self) -> Vec<ObjectId> {
        let n = self.at + usize::from(self.first.is_empty());
        self.items[..n].iter().map(|i| self.id(&i.object)).collect()
    }

    fn enter(&mut self, at: usize) {
        self.at = at;
        let item = &self.items[at];
        let oid = self.id(&item.object);
        let made = || scratch(&oid);
        let shared = self.shared(at);
        let size = item.size;
        self.first = match &shared {
            Some((older, _)) => vec![
                Op::Clone {
                    src: scratch(older),
                    dst: made(),
                },
                Op::RemoveAttrs { oid: made() },
                Op::OmapClear { oid: made() },
                Op::Truncate { oid: made(), size },
            ],
            // There may be one of a repair that did not end.
            None => vec![
                Op::Touch { oid: made() },
                Op::Remove { oid: made() },
                Op::Touch { oid: made() },
                Op::Truncate { oid: made(), size },
            ],
        };
        let same = shared.map(|(_, same)| same).unwrap_or_default();
        let missing = Intervals::range(0, size).minus(&same);
        let data = missing.intervals().iter().map(|(start, end)| Part::Data {
            offset: *start,
            len: end - start,
        });
        self.todo = data.chain([Part::Omap { after: None }, Part::Attrs]).collect();
    }

    /// The next older clone, and the ranges in which the object at `at` is the same.
    fn shared(&self, at: usize) -> Option<(ObjectId, Intervals)> {
        let object = &self.items[at].object;
        let older = &self.items.get(at.checked_sub(1)?)?.object;
        let clones = &self.snapset.clones;
        let n = clones.iter().position(|c| c.id == older.snap)?;
        // What a snapset says is said of clones that follow one another.
        let next = clones.get(n + 1).map_or(types::NOSNAP, |c| c.id);
        let same = clones[n].overlap.clone();
        (next == object.snap && !same.is_empty()).then(|| (self.id(older), same))
    }

    /// Somebody gave the next part, and says what is left of it: the steps on scratch objects, if it fits.
    pub fn given(&mut self, ops: Vec<Op>, next: Option<Part>) -> Result<Vec<Op>, String> {
        let (Some(part), Some(item)) = (self.todo.front(), self.items.get(self.at)) else {
            return Err("nobody asked for it".into());
        };
        covers(part, &ops, next.as_ref())?;
        let oid = self.id(&item.object);
        let to = scratch(&oid);
        let moved: Option<Vec<Op>> = ops.into_iter().map(|op| moved(op, &oid, &to)).collect();
        let moved = moved.ok_or("it came with steps that do not belong to it")?;
        self.todo.pop_front();
        next.into_iter().for_each(|p| self.todo.push_front(p));
        let mut steps = std::mem::take(&mut self.first);
        steps.extend(moved);
        Ok(steps)
    }
}

/// Whether the steps make all of the part but what is left of it.
fn covers(part: &Part, ops: &[Op], next: Option<&Part>) -> Result<(), String> {
    let fits = match (part, next) {
        (Part::Data { offset, len }, next) => {
            let end = offset.saturating_add(*len);
            let reached = match next {
                None => Some(end),
                Some(Part::Data { offset: at, len }) if at.checked_add(*len) == Some(end) => Some(*at),
                Some(_) => None,
            };
            reached.is_some_and(|r| r > *offset && without_gap(ops, *offset) == Some(r))
        }
        (Part::Omap { after }, Some(Part::Omap { after: Some(last) })) => {
            after.as_ref().is_none_or(|a| a < last)
        }
        (Part::Omap { .. }, None) => true,
        (Part::Attrs, None) => matches!(ops, [Op::SetAttrs { .. }]),
        _ => false,
    };
    if fits {
        Ok(())
    } else {
        Err("it does not cover what was asked for".into())
    }
}

/// Up to where the steps write, one behind the other.
fn without_gap(ops: &[Op], from: u64) -> Option<u64> {
    ops.iter().try_fold(from, |at, op| match op {
        Op::Write { offset, data, .. } if *offset == at => at.checked_add(data.len() as u64),
        Op::Zero { offset, len, .. } if *offset == at => at.checked_add(*len),
        _ => None,
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::state::snapset::CloneInfo;
    use bytes::Bytes;
    use denc::Encode;
    use types::{EVersion, NOSNAP};

    fn object(snap: u64) -> HObject {
        let none = Bytes::new();
        HObject::new(3, 8, none.clone(), none, "a".into(), snap)
    }

    fn item(snap: u64, size: u64) -> OutlineItem {
        OutlineItem {
            object: object(snap),
            version: EVersion::new(1, snap.min(99)),
            size,
        }
    }

    fn plan(items: Vec<OutlineItem>, clones: Vec<CloneInfo>) -> Result<Plan, String> {
        let set = SnapSet { seq: 9, clones };
        let snapset = set.to_bytes();
        Plan::new(-1, &object(0), &object(NOSNAP), Outline { items, snapset })
    }

    fn clone(id: u64, overlap: Intervals) -> CloneInfo {
        CloneInfo {
            id,
            snaps: vec![id],
            size: 100,
            overlap,
        }
    }

    fn zero(offset: u64, len: u64) -> Op {
        let oid = ObjectId::replicated(object(NOSNAP));
        Op::Zero { oid, offset, len }
    }

    fn data(offset: u64, len: u64) -> Part {
        Part::Data { offset, len }
    }

    #[test]
    fn what_a_clone_shares_is_not_asked_for() {
        let clones = vec![clone(4, Intervals::range(10, 30)), clone(6, Intervals::new())];
        let mut p = plan(vec![item(4, 100), item(6, 50), item(NOSNAP, 70)], clones).unwrap();
        let mut asked = Vec::new();
        while let Some((i, part)) = p.next() {
            p.todo.pop_front();
            asked.push((i.object.snap, part));
        }
        let rest = |snap| [(snap, Part::Omap { after: None }), (snap, Part::Attrs)];
        let mut want = vec![(4, data(0, 100))];
        want.extend(rest(4));
        want.extend([(6, data(0, 10)), (6, data(30, 20))]);
        want.extend(rest(6));
        want.push((NOSNAP, data(0, 70)));
        want.extend(rest(NOSNAP));
        assert_eq!(asked, want);
    }

    #[test]
    fn a_clone_that_the_snapset_does_not_know_shares_with_nobody() {
        let clones = vec![clone(4, Intervals::range(0, 100))];
        let p = plan(vec![item(4, 100), item(5, 100), item(NOSNAP, 100)], clones).unwrap();
        assert_eq!((p.shared(1), p.shared(2)), (None, None));
    }

    #[test]
    fn an_outline_of_something_else_is_refused() {
        assert!(plan(vec![item(4, 1)], vec![]).is_err(), "no head");
        assert!(plan(vec![item(6, 1), item(4, 1), item(NOSNAP, 1)], vec![]).is_err());
        let mut other = item(4, 1);
        other.object.oid = Bytes::from_static(b"A");
        assert!(plan(vec![other, item(NOSNAP, 1)], vec![]).is_err());
        assert!(plan(vec![item(NOSNAP, 1)], vec![]).is_ok());
    }

    #[test]
    fn a_part_is_done_with_when_it_is_covered() {
        let check = |ops: &[Op], next: Option<Part>, fits: bool| {
            let got = covers(&data(10, 20), ops, next.as_ref());
            assert_eq!(got.is_ok(), fits, "{ops:?} {next:?}");
        };
        check(&[zero(10, 20)], None, true);
        check(&[zero(10, 5), zero(15, 15)], None, true);
        check(&[zero(10, 5)], Some(data(15, 15)), true);
        check(&[zero(10, 5)], None, false);
        check(&[zero(10, 5), zero(16, 14)], None, false);
        check(&[], Some(data(10, 20)), false);
        check(&[zero(10, 5)], Some(data(15, 20)), false);
        check(&[zero(10, 20)], Some(Part::Attrs), false);
        let key = |k: &'static str| Part::Omap {
            after: Some(k.into()),
        };
        assert!(covers(&key("b"), &[], Some(&key("c"))).is_ok());
        assert!(
            covers(&key("b"), &[], Some(&key("b"))).is_err(),
            "it would go on for ever"
        );
        assert!(covers(&Part::Attrs, &[], None).is_err());
    }
}
