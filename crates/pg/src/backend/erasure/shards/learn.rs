//! A learner is brought up object by object: those that its log lacks, or all of them, compared by their versions.
//!
//! Vocabulary: as in [`crate::backend::replicated`]'s catching up: *dirty* objects may differ; all before the *cursor* are the same or
//! dirty. A learner counts as incomplete from its beginning to its end: one that is interrupted is compared, and its log tells nothing.
//!
//! Invariants: the learner's log is not touched before nothing is dirty. A write goes to it only if its object is neither dirty nor behind the
//! cursor nor being copied, and without anything set aside: it can take nothing back (see `joins_at` of [`super::member`]).
//!
//! Bounds: a few objects at a time ([`super::learning`]), a piece of each ([`super::make`]); [`STRETCH`] and [`DIRTY_LOW`].

use super::Shards;
use super::learning::{Copy, Copying, Learning};
use super::make::{Making, Next};
use super::member::{Member, Phase};
use crate::api::Output;
use crate::backend::reports::CopyNeed;
use crate::backend::steps::clear_log;
use crate::backend::{Lent, TurnId};
use crate::state::log::{EntryKind, LogEntry};
use crate::state::meta::PgMeta;
use crate::state::versions::{Versions, list_versions};
use crate::store::{IoError, Ticket};
use denc::{Decode, Encode};
use messages::osd::peer::PeerBody;
use std::collections::{BTreeMap, BTreeSet};
use types::{EVersion, HObject, ObjectId, Op, OsdId, SPgId, Transaction};

/// Objects compared at a time, and how few may be dirty before the next are.
const STRETCH: usize = 256;
const DIRTY_LOW: usize = 16;
/// Versions of one object.
const UNIT_MAX: u32 = 1024;
/// Log entries in one transaction.
const ENTRIES_MAX: usize = 256;

impl Shards {
    fn learning(&mut self, osd: OsdId) -> Option<&mut Learning> {
        match self.members.get_mut(&osd).map(|m| &mut m.phase) {
            Some(Phase::Learning(learning)) => Some(&mut **learning),
            _ => None,
        }
    }

    /// How to begin depends on what it has.
    pub(super) fn begin_learning(&mut self, osd: OsdId, ctx: &mut Lent<'_>) {
        let (last, head) = (ctx.pg.last_seq, ctx.pg.log.head());
        let empty = ctx.pg.log.len() == 0 && ctx.pg.meta.stats.version == 0;
        let Some(m) = self.members.get_mut(&osd) else {
            return;
        };
        let Phase::Heard(info) = &m.phase else { return };
        let whole = info.exists && info.complete && info.dirty.is_empty() && !m.lost;
        if whole && info.head == head && (ctx.pg.log.len() > 0 || empty) {
            return m.become_full(last, head);
        }
        let shared = ctx.pg.log.at_or_before(info.head);
        match shared.filter(|v| whole && info.tail <= *v) {
            Some(to) => self.undo(osd, PeerBody::Learn { to }, Some(to), ctx),
            None if info.exists && !info.complete && info.head == EVersion::default() => {
                let cursor = ctx.pg.range.start_cursor(ctx.pg.pool.id).with_snap(0);
                self.start_learning(osd, Learning::backfill(cursor), ctx);
            }
            None => self.undo(osd, PeerBody::Reset, None, ctx),
        }
    }

    /// It has gone back to `since`, and says of itself that it is incomplete.
    pub(super) fn learn_by_log(&mut self, osd: OsdId, since: EVersion, ctx: &mut Lent<'_>) {
        let entries = match ctx.pg.log_since(Some(since), ctx.store) {
            Ok(entries) if ctx.pg.log.reaches(since) => entries,
            Ok(_) => return,
            Err(e) => return tracing::error!("pg {}: {e}", ctx.pg.id),
        };
        let removals = entries.iter().filter(|e| e.kind == EntryKind::Delete);
        let removed = removals.map(|e| e.object.clone()).collect();
        let range = ctx.pg.range;
        let changed = entries.into_iter().map(|e| e.object);
        let dirty = changed.filter(|o| range.contains(o.hash)).collect();
        self.start_learning(osd, Learning::by_log(since, dirty, removed), ctx);
    }

    fn start_learning(&mut self, osd: OsdId, learning: Learning, ctx: &mut Lent<'_>) {
        tracing::debug!(
            "pg {}: osd.{osd} learns its shard by {}",
            ctx.pg.id,
            if learning.is_backfill() { "backfill" } else { "log" }
        );
        if let Some(m) = self.members.get_mut(&osd) {
            m.phase = Phase::Learning(Box::new(learning));
        }
    }

    /// Ends all copying to the member; what it has stays there.
    pub(super) fn stop_learning(&mut self, osd: OsdId, ctx: &mut Lent<'_>) {
        let Some(m) = self.members.get_mut(&osd).filter(|m| m.is_learning()) else {
            return;
        };
        let Phase::Learning(learning) = std::mem::replace(&mut m.phase, Phase::Away) else {
            return;
        };
        for (token, copy) in learning.copies {
            match copy.state {
                Copying::Parked => ctx.front.give_up(token, ctx.store),
                Copying::Asked(turn) => ctx.front.end(turn, ctx.store),
                Copying::Making(turn, making) => {
                    making
                        .reading
                        .into_iter()
                        .for_each(|t| self.reads.release(t, ctx.store));
                    ctx.front.end(turn, ctx.store);
                }
            }
        }
    }

    /// PGs were split off: what was begun counts for the old one.
    pub(super) fn restart_learning(&mut self, ctx: &mut Lent<'_>) {
        let learns = |(_, m): &(&OsdId, &Member)| m.is_learning();
        let begun: Vec<OsdId> = self.members.iter().filter(learns).map(|(o, _)| *o).collect();
        for osd in begun {
            self.connected_again(osd, ctx);
        }
    }

    // --- the steps ------------------------------------------------------------------------------------

    pub(super) fn go_on_learning(&mut self, ctx: &mut Lent<'_>) {
        let learns = |(_, m): &(&OsdId, &Member)| m.is_learning();
        let ids: Vec<OsdId> = self.members.iter().filter(learns).map(|(o, _)| *o).collect();
        for osd in ids {
            self.scan_on(osd, ctx);
            self.copy_on(osd, ctx);
            self.finish_if_done(osd, ctx);
        }
    }

    /// What it wants to copy and waits to be granted.
    pub(super) fn copies_wanted(&self) -> Option<CopyNeed> {
        let mut need: Option<CopyNeed> = None;
        for (osd, m) in &self.members {
            let Phase::Learning(l) = &m.phase else { continue };
            let objects = l.room().saturating_sub(l.granted);
            if objects == 0 || self.group.is_in_sync(*osd) {
                continue;
            }
            let n = need.get_or_insert(CopyNeed {
                in_sync: self.group.in_sync.len(),
                backfill: true,
                objects: 0,
            });
            n.objects += objects;
            n.backfill &= l.is_backfill();
        }
        need
    }

    pub(super) fn copies_granted(&mut self, mut objects: usize, ctx: &mut Lent<'_>) {
        for m in self.members.values_mut() {
            if let Phase::Learning(l) = &mut m.phase {
                let take = l.room().saturating_sub(l.granted).min(objects);
                l.granted += take;
                objects -= take;
            }
        }
        self.review(ctx);
    }

    /// Compares the next stretch when little is left to copy.
    fn scan_on(&mut self, osd: OsdId, ctx: &mut Lent<'_>) {
        let token = self.last_number + 1;
        let Some(l) = self.learning(osd) else { return };
        let Some(from) = l.cursor.clone() else { return };
        if l.scanning.is_some() || l.dirty.len() > DIRTY_LOW {
            return;
        }
        l.scanning = Some(token);
        self.last_number = token;
        let body = PeerBody::Scan {
            token,
            from,
            to: ctx.pg.range.end_cursor(ctx.pg.pool.id),
            max: STRETCH as u32,
        };
        self.send_to(osd, body, ctx);
    }

    pub(super) fn listed(
        &mut self,
        from: OsdId,
        token: u64,
        items: Versions,
        next: Option<HObject>,
        ctx: &mut Lent<'_>,
    ) {
        let Some(l) = self.learning(from) else { return };
        if l.scanning == Some(token) {
            l.scanning = None;
            if let Err(e) = self.compare(from, items, next, ctx) {
                tracing::error!("pg {}: {e}", ctx.pg.id);
                self.fail(from, "cannot be compared with what cannot be read here", ctx);
            }
        } else if l.copies.contains_key(&token) {
            self.begin_making(from, token, items, ctx);
        }
    }

    /// Finds the objects of a stretch that differ, and moves the cursor behind it.
    fn compare(
        &mut self,
        osd: OsdId,
        theirs: Versions,
        their_next: Option<HObject>,
        ctx: &mut Lent<'_>,
    ) -> Result<(), IoError> {
        let end = ctx.pg.range.end_cursor(ctx.pg.pool.id);
        let Some(from) = self.learning(osd).and_then(|l| l.cursor.clone()) else {
            return Ok(());
        };
        let start = ctx.pg.object_id(from.clone());
        let (ours, our_next) = list_versions(&start, &end, STRETCH, ctx.store)?;
        // As far as both lists reach, and never into the middle of an object's clones.
        let stop = match (their_next, our_next) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        let stop = stop.map(|s| s.head().with_snap(0));
        let Some(l) = self.learning(osd) else {
            return Ok(());
        };
        if stop.as_ref().is_some_and(|s| *s <= from) {
            // One object has more clones than a stretch: it is taken for different.
            let head = from.head();
            l.cursor = Some(crate::state::range::behind(&head));
            l.dirty.insert(head);
            return Ok(());
        }
        let within = |o: &HObject| stop.as_ref().is_none_or(|s| o < s);
        let known: BTreeMap<&HObject, EVersion> = theirs.iter().map(|(o, v)| (o, *v)).collect();
        let here: BTreeSet<&HObject> = ours.iter().map(|(o, _)| o).collect();
        let differs = |(o, v): &&(HObject, EVersion)| known.get(o) != Some(v) || *v == EVersion::default();
        let ours = ours.iter().filter(|(o, _)| within(o)).filter(differs);
        let surplus = theirs.iter().filter(|(o, _)| within(o) && !here.contains(o));
        l.dirty.extend(ours.chain(surplus).map(|(o, _)| o.head()));
        l.cursor = stop;
        Ok(())
    }

    /// Takes on dirty objects: all that fit for one of `in_sync`, as many as were granted for others.
    fn copy_on(&mut self, osd: OsdId, ctx: &mut Lent<'_>) {
        let free = self.group.is_in_sync(osd);
        loop {
            let token = self.last_number + 1;
            let Some(l) = self.learning(osd) else { return };
            if l.room() == 0 || (!free && l.granted == 0) {
                return;
            }
            let Some(head) = l.next() else { return };
            l.granted = l.granted.saturating_sub(1);
            let copy = Copy {
                head: head.clone(),
                state: Copying::Parked,
                again: false,
            };
            l.copies.insert(token, copy);
            self.last_number = token;
            ctx.front.wait(head, osd, token, Vec::new());
        }
    }

    /// A turn has begun: no client changes the object until it ends. False: nobody wants it any more.
    pub(super) fn copy_begins(&mut self, osd: OsdId, token: u64, turn: TurnId, ctx: &mut Lent<'_>) -> bool {
        let Some(copy) = self.learning(osd).and_then(|l| l.copies.get_mut(&token)) else {
            return false;
        };
        copy.state = Copying::Asked(turn);
        let head = copy.head.clone();
        let body = PeerBody::Scan {
            token,
            from: head.with_snap(0),
            to: head,
            max: UNIT_MAX,
        };
        self.send_to(osd, body, ctx);
        true
    }

    /// The member has said what it has of the unit.
    fn begin_making(&mut self, osd: OsdId, token: u64, theirs: Versions, ctx: &mut Lent<'_>) {
        let Some(place) = self.members.get(&osd).map(|m| m.place) else {
            return;
        };
        let Some(copy) = self.learning(osd).and_then(|l| l.copies.get_mut(&token)) else {
            return;
        };
        let Copying::Asked(turn) = copy.state else { return };
        // What is written from here on makes it another one.
        copy.again = false;
        let start = ctx.pg.object_id(copy.head.with_snap(0));
        let ours = list_versions(&start, &copy.head, UNIT_MAX as usize, ctx.store);
        let own = |o: &HObject| ctx.pg.object_id(o.clone());
        match ours.and_then(|(ours, _)| Making::of_unit(place, &ours, &theirs, own, ctx.store)) {
            Ok(making) => {
                copy.state = Copying::Making(turn, making);
                self.make_on(osd, token, None, ctx);
            }
            Err(e) => {
                tracing::error!("pg {}: {e}", ctx.pg.id);
                self.fail(osd, "cannot be given what cannot be read here", ctx);
            }
        }
    }

    /// The next step of one copy; `units`: those of a piece that has come.
    fn make_on(&mut self, osd: OsdId, token: u64, units: Option<Vec<u8>>, ctx: &mut Lent<'_>) {
        let (id, coding) = (ctx.pg.id, self.coding.clone());
        let Some(copy) = self.learning(osd).and_then(|l| l.copies.get_mut(&token)) else {
            return;
        };
        let Copying::Making(turn, making) = &mut copy.state else {
            return;
        };
        let turn = *turn;
        let own = |object: &HObject| ObjectId {
            shard: id.shard,
            object: object.clone(),
        };
        let next = match units {
            Some(units) => making.came(&coding, units, own, ctx.store),
            None => making.next(&coding, own, ctx.store),
        };
        match next {
            Ok(Next::Wait) => {}
            Ok(Next::Read(what)) => {
                let ticket = self.reads.begin_units(what, ctx.store);
                if let Some(making) = self.making(osd, token) {
                    making.reading = Some(ticket);
                }
                self.go_on_reading(ctx);
            }
            Ok(Next::Send(ops)) => self.send_made(osd, token, ops, ctx),
            Ok(Next::Done) => self.copy_done(osd, token, turn, ctx),
            Ok(Next::Changed) => {
                if let Some(copy) = self.learning(osd).and_then(|l| l.copies.get_mut(&token)) {
                    copy.again = true;
                }
                self.copy_done(osd, token, turn, ctx);
            }
            Err(e) => {
                tracing::error!("pg {id}: {e}");
                self.fail(osd, "cannot be given what cannot be read here", ctx);
            }
        }
    }

    fn making(&mut self, osd: OsdId, token: u64) -> Option<&mut Making> {
        match self.learning(osd)?.copies.get_mut(&token).map(|c| &mut c.state) {
            Some(Copying::Making(_, making)) => Some(making),
            _ => None,
        }
    }

    fn send_made(&mut self, osd: OsdId, token: u64, ops: Vec<Op>, ctx: &mut Lent<'_>) {
        let seq = self.next_number();
        let Some(place) = self.members.get(&osd).map(|m| m.place) else {
            return;
        };
        if let Some(making) = self.making(osd, token) {
            making.sent = Some(seq);
        }
        let bytes = ops.iter().map(weight).sum();
        let txn = of_shard(ctx.pg.id, place, ops);
        ctx.out.push(Output::Copied { bytes });
        let txn = txn.into();
        self.send_to(osd, PeerBody::Apply { seq, txn }, ctx);
    }

    /// A read has ended; true if it was a copy's.
    pub(super) fn copy_read(&mut self, ticket: Ticket, ctx: &mut Lent<'_>) -> bool {
        let of_ticket = |(token, copy): (&u64, &Copy)| match &copy.state {
            Copying::Making(_, making) if making.reading == Some(ticket) => Some(*token),
            _ => None,
        };
        let found = self.members.iter().find_map(|(osd, m)| match &m.phase {
            Phase::Learning(l) => Some((*osd, l.copies.iter().find_map(of_ticket)?)),
            _ => None,
        });
        let Some((osd, token)) = found else { return false };
        let units = self.reads.take_units(ticket);
        self.reads.release(ticket, ctx.store);
        if let Some(making) = self.making(osd, token) {
            making.reading = None;
        }
        match units.and_then(|mut all| all.pop()) {
            Some(units) => self.make_on(osd, token, Some(units), ctx),
            // It has changed meanwhile, or too few can be read.
            None => match self.copy_turn(osd, token) {
                Some(turn) if self.has_changed(osd, token) => self.copy_done(osd, token, turn, ctx),
                _ => self.fail(osd, "cannot be given what too few shards have", ctx),
            },
        }
        true
    }

    fn copy_turn(&mut self, osd: OsdId, token: u64) -> Option<TurnId> {
        match self.learning(osd)?.copies.get(&token)?.state {
            Copying::Parked => None,
            Copying::Asked(turn) | Copying::Making(turn, _) => Some(turn),
        }
    }

    fn has_changed(&mut self, osd: OsdId, token: u64) -> bool {
        let copy = self.learning(osd).and_then(|l| l.copies.get(&token));
        copy.is_some_and(|c| c.again)
    }

    /// The member has made a transaction durable.
    pub(super) fn copy_applied(&mut self, osd: OsdId, number: u64, ctx: &mut Lent<'_>) {
        let Some(l) = self.learning(osd) else { return };
        let mut on = Vec::new();
        for (token, copy) in &mut l.copies {
            if let Copying::Making(_, making) = &mut copy.state
                && making.sent.is_some_and(|sent| sent <= number)
            {
                making.sent = None;
                on.push(*token);
            }
        }
        for token in on {
            self.make_on(osd, token, None, ctx);
        }
    }

    fn copy_done(&mut self, osd: OsdId, token: u64, turn: TurnId, ctx: &mut Lent<'_>) {
        if let Some(l) = self.learning(osd)
            && let Some(copy) = l.copies.remove(&token)
            && copy.again
        {
            l.dirty.insert(copy.head);
        }
        ctx.front.end(turn, ctx.store);
    }

    /// The log goes there: from here on the member is full.
    fn finish_if_done(&mut self, osd: OsdId, ctx: &mut Lent<'_>) {
        // Nothing is written while one of the set is made anew, and it can take nothing back: the others have all of it first.
        let last = ctx.pg.last_seq;
        let lacks = |(other, m): (&OsdId, &Member)| {
            *other != osd && self.group.is_in_sync(*other) && !m.lost && m.confirmed() < last
        };
        let behind = self.durable < last || self.members.iter().any(lacks);
        let waits = self.group.is_in_sync(osd) && behind;
        let Some(l) = self.learning(osd) else { return };
        if !l.is_done() || waits {
            return;
        }
        let since = l.log;
        let Some(place) = self.members.get(&osd).map(|m| m.place) else {
            return;
        };
        let ops = match log_steps(since, ctx) {
            Ok(ops) => ops,
            Err(e) => return tracing::error!("pg {}: {e}", ctx.pg.id),
        };
        let mut last = 0;
        for ops in ops.chunks(ENTRIES_MAX) {
            last = self.next_number();
            let txn = of_shard(ctx.pg.id, place, ops.to_vec()).into();
            self.send_to(osd, PeerBody::Apply { seq: last, txn }, ctx);
        }
        let (newest, head) = (ctx.pg.last_seq, ctx.pg.log.head());
        if let Some(m) = self.members.get_mut(&osd) {
            m.become_full_with(last, newest, head);
        }
    }
}

fn of_shard(id: SPgId, place: usize, ops: Vec<Op>) -> Transaction {
    Transaction {
        collection: SPgId {
            shard: place as i8,
            ..id
        },
        ops,
    }
}

/// Bytes that a step brings.
fn weight(op: &Op) -> u64 {
    match op {
        Op::Write { data, .. } => data.len() as u64,
        _ => 0,
    }
}

/// Steps that make a log that ends at `since` (`None`: no log) the one here, the metadata last.
fn log_steps(since: Option<EVersion>, ctx: &mut Lent<'_>) -> Result<Vec<Op>, IoError> {
    let mut ops = Vec::new();
    let since = since.filter(|v| ctx.pg.log.reaches(*v));
    if since.is_none() {
        ops.extend(clear_log());
    }
    let bad = |e| IoError(format!("a log entry does not decode: {e}"));
    for (version, entry) in ctx.store.log_entries(ctx.pg.id)? {
        // Not those of PGs that were split off, whose objects are not copied here.
        let ours = || LogEntry::from_bytes(&entry).map(|e| ctx.pg.range.contains(e.object.hash));
        if since.is_none_or(|s| version > s) && ours().map_err(bad)? {
            ops.push(Op::LogAppend { version, entry });
        }
    }
    let meta = PgMeta {
        complete: true,
        dirty: Vec::new(),
        ..ctx.pg.meta.clone()
    };
    ops.push(Op::SetMeta {
        meta: meta.to_bytes(),
    });
    Ok(ops)
}
