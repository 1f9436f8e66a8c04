//! The same objects as all copies have them: the primary's own look and the members' answers, side by side.

use crate::api::Context;
use crate::backend::Backend;
use crate::backend::digest::Walk;
use crate::backend::findings::Inconsistent;
use crate::store::Ticket;
use messages::osd::peer_scrub::ObjectDigest;
use std::collections::{BTreeMap, BTreeSet};
use types::{HObject, OsdId};

/// Digests, and the first object that there was no room for.
pub(super) type Found = (Vec<ObjectDigest>, Option<HObject>);

#[derive(Debug)]
pub(super) enum Own {
    Walking(Box<Walk>),
    Done(Vec<ObjectDigest>, Option<HObject>),
}

/// The same objects on all copies.
#[derive(Debug)]
pub(super) struct Compare {
    pub token: u64,
    pub from: HObject,
    pub to: HObject,
    pub own: Own,
    pub theirs: BTreeMap<OsdId, Option<Found>>,
}

impl Compare {
    pub fn is_done(&self) -> bool {
        matches!(self.own, Own::Done(..)) && self.theirs.values().all(Option::is_some)
    }

    pub fn go_on(&mut self, ctx: &mut Context<'_>) {
        if let Own::Walking(walk) = &mut self.own
            && walk.go_on(ctx.store)
        {
            let done = Own::Done(Vec::new(), None);
            if let Own::Walking(walk) = std::mem::replace(&mut self.own, done) {
                let (items, next) = walk.into_found();
                self.own = Own::Done(items, next);
            }
        }
    }

    pub fn read_ended(&mut self, ticket: Ticket) -> bool {
        match &mut self.own {
            Own::Walking(walk) => walk.ended(ticket),
            Own::Done(..) => false,
        }
    }

    pub fn leave(self, ctx: &mut Context<'_>) {
        if let Own::Walking(walk) = self.own {
            walk.leave(ctx.store);
        }
    }

    /// Everybody's list of what it has, the primary's first; and the first object that somebody had no room for.
    pub fn sides(&self, me: OsdId) -> (Vec<(OsdId, &[ObjectDigest])>, Option<&HObject>) {
        let mut sides: Vec<(OsdId, &[ObjectDigest])> = Vec::new();
        let mut next: Option<&HObject> = None;
        if let Own::Done(items, n) = &self.own {
            sides.push((me, items));
            next = n.as_ref();
        }
        for (osd, answer) in &self.theirs {
            if let Some((items, n)) = answer {
                sides.push((*osd, items));
                next = [next, n.as_ref()].into_iter().flatten().min();
            }
        }
        (sides, next)
    }

    /// What is wrong, and which objects changed under the eyes of somebody.
    pub fn judge(&self, me: OsdId, backend: &dyn Backend) -> (Vec<Inconsistent>, BTreeSet<HObject>) {
        let (sides, _) = self.sides(me);
        let mut objects: BTreeMap<&HObject, Vec<Option<&ObjectDigest>>> = BTreeMap::new();
        for (at, (_, items)) in sides.iter().enumerate() {
            for d in *items {
                objects
                    .entry(&d.object)
                    .or_insert_with(|| vec![None; sides.len()])[at] = Some(d);
            }
        }
        let (mut wrong, mut changed) = (Vec::new(), BTreeSet::new());
        for (object, digests) in objects {
            if digests.iter().flatten().any(|d| d.changed) {
                changed.insert(object.clone());
            }
            let copies: Vec<_> = sides.iter().map(|(osd, _)| *osd).zip(digests).collect();
            wrong.extend(backend.judge(object, &copies));
        }
        (wrong, changed)
    }
}
