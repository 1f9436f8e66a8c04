//! A shard's objects made anew as a whole, with attributes and size, for a scrub that found them bad or missing.
//!
//! A member's are made with what is here. The own ones are made with what a member tells: which objects there are, and each one's
//! attributes. Each object is one transaction.
//!
//! Invariant: what is written is of the version that the object has when it is written: a write of the PG's own in between ends it.

use super::Shards;
use super::repair::{Extent, Item};
use crate::backend::Lent;
use crate::backend::digest::version_now;
use crate::backend::erasure::cut::object_on;
use crate::backend::erasure::fill::fill;
use crate::backend::erasure::reads::What;
use messages::osd::peer::PeerBody;
use messages::osd::peer_scrub::{Outline, Part, ScrubBody};
use types::{Op, OsdId, Transaction};

/// Of a shard's units in one transaction.
pub(super) const WHOLE_BYTES_MAX: u64 = 12 << 20;

impl Shards {
    /// A member that has everything is asked what there is of the unit. False: nobody can be.
    pub(super) fn ask_outline(&mut self, id: u64, ctx: &mut Lent<'_>) -> bool {
        let full = self
            .members
            .iter()
            .find(|(osd, m)| m.is_full() && self.group.is_in_sync(**osd));
        let (Some(osd), Some(repair)) = (full.map(|(osd, _)| *osd), self.repairs.get_mut(&id)) else {
            return false;
        };
        // One that the scrub has found good.
        let osd = repair
            .good
            .filter(|g| self.members.get(g).is_some_and(|m| m.is_full()))
            .unwrap_or(osd);
        repair.source = Some(osd);
        repair.told = false;
        let body = ScrubBody::Outline {
            token: id,
            from: repair.head.with_snap(0),
            to: repair.head.clone(),
        };
        self.send_to(osd, PeerBody::Scrub(body), ctx);
        true
    }

    /// What a member tells for a repair; given back if it is for the scrub.
    pub(super) fn scrub_told(
        &mut self,
        from: OsdId,
        body: ScrubBody,
        ctx: &mut Lent<'_>,
    ) -> Option<ScrubBody> {
        match body {
            ScrubBody::Outlined {
                token,
                result,
                outline,
            } => self.outlined(from, token, (result == 0).then_some(outline), ctx),
            ScrubBody::Pieced {
                token, result, txn, ..
            } => self.attrs_came(from, token, (result == 0).then_some(txn), ctx),
            body => return Some(body),
        }
        None
    }

    fn outlined(&mut self, from: OsdId, id: u64, outline: Option<Outline>, ctx: &mut Lent<'_>) {
        let waits = self.repairs.get_mut(&id);
        let Some(repair) = waits.filter(|r| r.source == Some(from) && !r.told) else {
            return;
        };
        repair.told = true;
        match outline {
            Some(outline) => {
                let head = repair.head.clone();
                let ours = outline.items.into_iter().filter(|i| i.object.head() == head);
                repair
                    .left
                    .extend(ours.map(|i| Item::new(i.object, i.version, i.size)));
            }
            None => repair.well = false,
        }
        self.repair_on(id, ctx);
    }

    fn attrs_came(&mut self, from: OsdId, id: u64, txn: Option<Transaction>, ctx: &mut Lent<'_>) {
        let waits = self.repairs.get_mut(&id);
        let Some(repair) = waits.filter(|r| r.source == Some(from) && !r.told) else {
            return;
        };
        repair.told = true;
        let attrs = txn.and_then(|txn| {
            txn.ops.into_iter().find_map(|op| match op {
                Op::SetAttrs { attrs, .. } => Some(attrs),
                _ => None,
            })
        });
        match (attrs, repair.left.front_mut()) {
            (Some(attrs), Some(item)) => item.attrs = Some(attrs),
            _ => repair.well = false,
        }
        self.repair_on(id, ctx);
    }

    /// What the object is made with, then its units.
    pub(super) fn whole_on(&mut self, id: u64, ctx: &mut Lent<'_>) {
        let Some(repair) = self.repairs.get_mut(&id) else {
            return;
        };
        let Some(item) = repair.left.front_mut() else {
            return;
        };
        let layout = self.coding.layout;
        if layout.shard_size(repair.place, item.size) > WHOLE_BYTES_MAX {
            tracing::error!("pg {}: {}: is too large to be made anew", ctx.pg.id, item.object);
            repair.well = false;
            return self.repair_on(id, ctx);
        }
        if item.attrs.is_none() {
            if let Some(osd) = repair.source {
                repair.told = false;
                let body = ScrubBody::Piece {
                    token: id,
                    object: item.object.clone(),
                    version: item.version,
                    part: Part::Attrs,
                };
                return self.send_to(osd, PeerBody::Scrub(body), ctx);
            }
            match ctx.store.attrs(&ctx.pg.object_id(item.object.clone())) {
                Ok(attrs) => item.attrs = Some(attrs),
                Err(e) => {
                    tracing::error!("pg {}: {}: cannot be repaired: {e}", ctx.pg.id, item.object);
                    repair.well = false;
                    return self.repair_on(id, ctx);
                }
            }
        }
        if item.size == 0 {
            return self.whole_read(id, Vec::new(), ctx);
        }
        let what = What {
            oid: ctx.pg.object_id(item.object.clone()),
            version: item.version,
            stripes: layout.stripes(0, item.size),
            wanted: vec![repair.place],
            without: vec![repair.place],
        };
        let ticket = self.reads.begin_units(what, ctx.store);
        if let Some(repair) = self.repairs.get_mut(&id) {
            repair.reading = Some(ticket);
        }
        self.go_on_reading(ctx);
    }

    /// All of its units are here.
    pub(super) fn whole_read(&mut self, id: u64, units: Vec<u8>, ctx: &mut Lent<'_>) {
        let Some(repair) = self.repairs.get_mut(&id) else {
            return;
        };
        let place = repair.place;
        let Some(item) = repair.left.front_mut() else {
            return;
        };
        item.done = true;
        let oid = ctx.pg.object_id(item.object.clone());
        // Of the own one what is here tells nothing.
        let stands = match place == self.own {
            true => ctx.front.last_write(&repair.head, ctx.pg) <= repair.since,
            false => version_now(&oid, ctx.store) == item.version,
        };
        let Some(attrs) = item.attrs.take().filter(|_| stands) else {
            // Whoever meets it again begins anew.
            repair.well = false;
            return self.repair_on(id, ctx);
        };
        let object = item.object.clone();
        let ops = fill(
            &object_on(&object, place),
            place,
            &self.coding,
            item.size,
            units,
            attrs,
        );
        repair.made.push(object);
        self.write_repaired(id, ops, ctx);
        self.repair_on(id, ctx);
    }

    /// Its connection is lost: what was sent there, or asked, has no answer.
    pub(super) fn repairs_lose(&mut self, osd: OsdId, ctx: &mut Lent<'_>) {
        let place = self.members.get(&osd).map(|m| m.place);
        let mut ended = Vec::new();
        for (id, r) in &mut self.repairs {
            let sent = r.sent.is_some() && Some(r.place) == place;
            if sent || r.source == Some(osd) && !r.told {
                (r.sent, r.told, r.well) = (None, true, false);
                ended.push(*id);
            }
        }
        ended.into_iter().for_each(|id| self.repair_on(id, ctx));
    }

    /// It waits for the word of a member.
    pub(super) fn waits_for_source(&self, id: u64) -> bool {
        let repair = self.repairs.get(&id);
        repair.is_some_and(|r| r.extent == Extent::Whole && r.source.is_some() && !r.told)
    }
}
