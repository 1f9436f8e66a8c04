//! Units of one shard that cannot be read, or are others than the code says, are written anew out of the other shards, in place.
//!
//! The object keeps its attributes and its version: what is written is what should be there. So a repair that is interrupted has done
//! no harm. Where attributes or size are bad, or the object is not there, a scrub has it made anew as a *whole*, in one transaction: a
//! member's with the attributes that are here, the own one with those of a member.
//!
//! Invariant: nothing changes the object meanwhile, but the PG's own writes, after which a piece is given up.
//!
//! Bounds: [`REPAIRS_MAX`]; those of this OSD take turns with other PGs' (`PullTurns`); one piece on its way.
//!
//! Not here: whole objects ([`super::whole`]).

use super::Shards;
use crate::backend::digest::version_now;
use crate::backend::erasure::cut::object_on;
use crate::backend::erasure::reads::What;
use crate::backend::pull_turns::{AGAIN, PullTurn};
use crate::backend::{Anew, Lent, TurnId};
use crate::state::versions::list_versions;
use crate::store::{Seq, Ticket};
use bytes::Bytes;
use messages::osd::peer::PeerBody;
use std::collections::VecDeque;
use std::time::Duration;
use types::{EVersion, HObject, Op, OsdId, SPgId, Transaction};

const REPAIRS_MAX: usize = 16;
/// After a repair that came to nothing the object's operations get their error at once for so long.
const GIVEN_UP_REST: Duration = Duration::from_secs(10);
const GIVEN_UP_MAX: usize = 1024;
/// Of a shard's units in one piece.
const PIECE_BYTES: u64 = 1 << 20;
const UNIT_MAX: usize = 1024;
/// In which the store keeps data.
const BLOCK: u64 = 4096;

/// For whom it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    /// A read that met it.
    Read,
    /// The scrub's check of this token, whose turn it uses.
    Check(u64),
}

/// How much of its objects is written anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Extent {
    Units,
    Whole,
}

#[derive(Debug)]
pub(super) struct Item {
    pub object: HObject,
    pub version: EVersion,
    pub size: u64,
    /// The next one.
    stripe: u64,
    /// Of a whole object: what it is made with.
    pub attrs: Option<Vec<(Bytes, Bytes)>>,
    pub done: bool,
}

impl Item {
    pub fn new(object: HObject, version: EVersion, size: u64) -> Self {
        Self {
            object,
            version,
            size,
            stripe: 0,
            attrs: None,
            done: false,
        }
    }
}

#[derive(Debug)]
pub(super) struct Repair {
    pub head: HObject,
    pub place: usize,
    owner: Owner,
    pub extent: Extent,
    /// Whose shard is good.
    pub good: Option<OsdId>,
    /// Who tells what the objects are, where that is not known here.
    pub source: Option<OsdId>,
    /// He has answered.
    pub told: bool,
    /// What answers about the object waited for when it began.
    pub since: Seq,
    /// The front's, once it has begun; a check has its own.
    turn: Option<TurnId>,
    begun: bool,
    pub left: VecDeque<Item>,
    pub reading: Option<Ticket>,
    pub sent: Option<u64>,
    /// The newest transaction here.
    written: Option<Seq>,
    pub made: Vec<HObject>,
    pub well: bool,
    /// Of this OSD's turns.
    pull: Option<PullTurn>,
}

impl Shards {
    /// True if it is on its way.
    pub(crate) fn begin_repair(
        &mut self,
        head: HObject,
        place: usize,
        (owner, extent): (Owner, Extent),
        ctx: &mut Lent<'_>,
    ) -> bool {
        let same = |r: &Repair| r.head == head && r.place == place && r.owner == owner;
        if self.repairs.values().any(same) {
            return true;
        }
        // Others than the one that is to be repaired.
        let can = self.could_be_active() && self.readable() > self.coding.layout.k();
        let known = place == self.own || self.group.holder(place).is_some();
        let resting = self.given_up.get(&(head.clone(), place));
        let rests = owner == Owner::Read && resting.is_some_and(|until| *until > ctx.now);
        if self.repairs.len() >= REPAIRS_MAX || !can || !known || rests {
            return false;
        }
        let id = self.next_number();
        let repair = Repair {
            head: head.clone(),
            place,
            owner,
            extent,
            good: None,
            source: None,
            told: true,
            since: ctx.front.last_write(&head, ctx.pg),
            turn: None,
            begun: false,
            left: VecDeque::new(),
            reading: None,
            sent: None,
            written: None,
            made: Vec::new(),
            well: true,
            pull: None,
        };
        self.repairs.insert(id, repair);
        // A check has its turn, and begins all of its repairs at once.
        if owner == Owner::Read {
            ctx.front.wait_first(head, id);
        }
        true
    }

    /// Its turn has begun.
    pub(super) fn repair_begins(&mut self, id: u64, turn: TurnId, ctx: &mut Lent<'_>) -> bool {
        let Some(repair) = self.repairs.get_mut(&id) else {
            return false;
        };
        repair.turn = Some(turn);
        self.start_repair(id, ctx);
        true
    }

    fn start_repair(&mut self, id: u64, ctx: &mut Lent<'_>) {
        let Some(repair) = self.repairs.get_mut(&id) else {
            return;
        };
        if repair.begun {
            return;
        }
        repair.pull = self.turns.take();
        if repair.pull.is_none() {
            self.repair_at = Some(ctx.now + AGAIN);
            return;
        }
        repair.begun = true;
        if repair.extent == Extent::Whole && repair.place == self.own {
            if !self.ask_outline(id, ctx)
                && let Some(repair) = self.repairs.get_mut(&id)
            {
                repair.well = false;
            }
            return self.repair_on(id, ctx);
        }
        let start = ctx.pg.object_id(repair.head.with_snap(0));
        match list_versions(&start, &repair.head, UNIT_MAX, ctx.store) {
            Ok((unit, _)) => {
                for (object, version) in unit.into_iter().filter(|(_, v)| *v != EVersion::default()) {
                    let stat = ctx.store.stat(&ctx.pg.object_id(object.clone()));
                    let size = stat.ok().flatten().map_or(0, |s| s.size);
                    repair.left.push_back(Item::new(object, version, size));
                }
            }
            Err(e) => {
                tracing::error!("pg {}: {}: cannot be repaired: {e}", ctx.pg.id, repair.head);
                repair.well = false;
            }
        }
        self.repair_on(id, ctx);
    }

    /// The next piece, or the end.
    pub(super) fn repair_on(&mut self, id: u64, ctx: &mut Lent<'_>) {
        let coding = self.coding.clone();
        if self.waits_for_source(id) {
            return;
        }
        let Some(repair) = self.repairs.get_mut(&id) else {
            return;
        };
        if repair.reading.is_some() || repair.sent.is_some() {
            return;
        }
        let whole = repair.extent == Extent::Whole;
        let done = |item: &mut Item| item.done || !whole && item.stripe * coding.layout.stripe() >= item.size;
        while repair.left.pop_front_if(done).is_some() {}
        let Some(item) = repair.left.front().filter(|_| repair.well) else {
            return self.end_repair(id, ctx);
        };
        if whole {
            return self.whole_on(id, ctx);
        }
        let pieces = (PIECE_BYTES / coding.layout.unit()).max(1);
        let end = (item.stripe + pieces).min(item.size.div_ceil(coding.layout.stripe()));
        let what = What {
            oid: ctx.pg.object_id(item.object.clone()),
            version: item.version,
            stripes: item.stripe..end,
            wanted: vec![repair.place],
            without: vec![repair.place],
        };
        let ticket = self.reads.begin_units(what, ctx.store);
        if let Some(repair) = self.repairs.get_mut(&id) {
            repair.reading = Some(ticket);
        }
        self.go_on_reading(ctx);
    }

    /// A read has ended; true if it was a repair's.
    pub(super) fn repair_read(&mut self, ticket: Ticket, ctx: &mut Lent<'_>) -> bool {
        let found = self.repairs.iter_mut().find(|(_, r)| r.reading == Some(ticket));
        let Some((id, repair)) = found else { return false };
        let id = *id;
        repair.reading = None;
        let units = self.reads.take_units(ticket).and_then(|mut all| all.pop());
        self.reads.release(ticket, ctx.store);
        match (units, repair.left.front_mut()) {
            (Some(units), Some(_)) if repair.extent == Extent::Whole => {
                self.whole_read(id, units, ctx);
                return true;
            }
            (Some(units), Some(item)) => {
                let oid = ctx.pg.object_id(item.object.clone());
                if version_now(&oid, ctx.store) == item.version {
                    let layout = self.coding.layout;
                    let count = units.len() as u64 / layout.unit();
                    let offset = layout.extent_on_shard(&(item.stripe..item.stripe + count)).0;
                    item.stripe += count;
                    let mut data = units;
                    if item.stripe * layout.stripe() >= item.size {
                        // Zeros behind the end: no block is completed with what cannot be read.
                        let end = (offset + data.len() as u64)
                            .next_multiple_of(BLOCK)
                            .min(item.size);
                        data.resize(end.saturating_sub(offset) as usize, 0);
                    }
                    let data = Bytes::from(data);
                    let oid = object_on(&item.object, repair.place);
                    let op = Op::Write { oid, offset, data };
                    self.write_repaired(id, vec![op], ctx);
                } else {
                    // A write of the PG's own; whoever meets it again begins anew.
                    item.stripe = u64::MAX / self.coding.layout.stripe();
                }
            }
            _ => repair.well = false,
        }
        self.repair_on(id, ctx);
        true
    }

    pub(super) fn write_repaired(&mut self, id: u64, ops: Vec<Op>, ctx: &mut Lent<'_>) {
        let number = self.next_number();
        let Some(repair) = self.repairs.get_mut(&id) else {
            return;
        };
        let place = repair.place;
        let txn = Transaction {
            collection: SPgId {
                shard: place as i8,
                ..ctx.pg.id
            },
            ops,
        };
        if place == self.own {
            match ctx.store.submit(&txn) {
                Ok(seq) => {
                    ctx.pg.last_seq = seq;
                    repair.written = Some(seq);
                }
                Err(e) => {
                    tracing::error!("pg {}: {}: is not repaired: {e}", ctx.pg.id, repair.head);
                    repair.well = false;
                }
            }
            return;
        }
        match self.group.holder(place) {
            Some(osd) if self.members.get(&osd).is_some_and(|m| m.is_full()) => {
                repair.sent = Some(number);
                let txn = txn.into();
                self.send_to(osd, PeerBody::Apply { seq: number, txn }, ctx);
            }
            _ => repair.well = false,
        }
    }

    pub(super) fn repair_applied(&mut self, osd: types::OsdId, number: u64, ctx: &mut Lent<'_>) {
        let Some(place) = self.members.get(&osd).map(|m| m.place) else {
            return;
        };
        let mut on = Vec::new();
        for (id, repair) in &mut self.repairs {
            if repair.place == place && repair.sent.is_some_and(|n| n <= number) {
                repair.sent = None;
                on.push(*id);
            }
        }
        on.into_iter().for_each(|id| self.repair_on(id, ctx));
    }

    fn end_repair(&mut self, id: u64, ctx: &mut Lent<'_>) {
        let Some(repair) = self.repairs.remove(&id) else {
            return;
        };
        let clones: Vec<HObject> = repair.made.into_iter().filter(|o| !o.is_head()).collect();
        if let Some(seq) = repair.written {
            let mut anew = Anew {
                pg: ctx.pg,
                store: ctx.store,
                now: ctx.now,
            };
            if let Err(e) = ctx.front.replaced(&repair.head, &clones, seq, &mut anew) {
                tracing::error!("pg {}: {}: {e}", ctx.pg.id, repair.head);
            }
        }
        match repair.well {
            true => self.repaired += 1,
            false if repair.owner == Owner::Read => {
                self.given_up.retain(|_, until| *until > ctx.now);
                if self.given_up.len() < GIVEN_UP_MAX {
                    let until = ctx.now + GIVEN_UP_REST;
                    self.given_up.insert((repair.head.clone(), repair.place), until);
                }
                ctx.front.unreadable(&repair.head);
            }
            false => {}
        }
        if let Owner::Check(token) = repair.owner
            && !self.is_mending(token)
        {
            ctx.front.checked(token);
        }
        if let Some(turn) = repair.turn {
            ctx.front.end(turn, ctx.store);
        }
        drop(repair.pull);
        self.go_on_repairing(ctx);
    }

    /// Whose shard the check has found good.
    pub(super) fn note_good(&mut self, token: u64, good: Option<OsdId>) {
        for r in self
            .repairs
            .values_mut()
            .filter(|r| r.owner == Owner::Check(token))
        {
            r.good = good;
        }
    }

    pub(crate) fn is_mending(&self, token: u64) -> bool {
        self.repairs.values().any(|r| r.owner == Owner::Check(token))
    }

    /// Those that wait for a turn of this OSD.
    pub(super) fn go_on_repairing(&mut self, ctx: &mut Lent<'_>) {
        let waits = |(id, r): (&u64, &Repair)| {
            (!r.begun && (r.turn.is_some() || r.owner != Owner::Read)).then_some(*id)
        };
        let waiting: Vec<u64> = self.repairs.iter().filter_map(waits).collect();
        waiting.into_iter().for_each(|id| self.start_repair(id, ctx));
    }

    /// They are not wanted any more; their turns end.
    pub(crate) fn drop_repairs(&mut self, gone: impl Fn(Owner) -> bool, ctx: &mut Lent<'_>) {
        let gone: Vec<Repair> = self
            .repairs
            .extract_if(.., |_, r| gone(r.owner))
            .map(|(_, r)| r)
            .collect();
        for repair in gone {
            repair
                .reading
                .into_iter()
                .for_each(|t| self.reads.release(t, ctx.store));
            if let Some(turn) = repair.turn {
                ctx.front.end(turn, ctx.store);
            }
        }
    }

    pub(super) fn forget_repair(&mut self, id: u64, ctx: &mut Lent<'_>) {
        if let Some(repair) = self.repairs.remove(&id) {
            repair
                .reading
                .into_iter()
                .for_each(|t| self.reads.release(t, ctx.store));
        }
    }
}
