//! A member that is not full is caught up object by object: those that the log names, or all of them (backfill).
//!
//! Vocabulary: *dirty* objects (heads, each with its clones) may differ on the member; the *cursor* of a backfill is the
//! object before which all are the same or dirty; an object is *being copied* from when a job for it was
//! parked to when the member has its last transaction durable, and writes to it wait meanwhile.
//!
//! Invariants: the member's log is not touched before nothing is dirty. A write goes to the member only if its object
//! is neither dirty nor behind the cursor nor being copied. A learner whose log is kept gets nothing of an object that is
//! not durable on all of `in_sync` ([`super::uncommitted`]).
//!
//! Bounds: a few objects at a time ([`super::member::catchup`]), [`DIRTY_LOW`] and a stretch of [`STRETCH`] dirty ones in a
//! backfill, the length of the log else.

use super::Replicated;
use super::copy::weight;
use super::member::Phase;
use super::member::catchup::{Catchup, Copy, Copying};
use super::uncommitted::Uncommitted;
use crate::api::Output;
use crate::backend::reports::CopyNeed;
use crate::backend::steps::clear_log;
use crate::backend::{Lent, TurnId};
use crate::broken::{self, Rule};
use crate::state::log::{EntryKind, LogEntry};
use crate::state::meta::PgMeta;
use crate::state::versions::{Versions, list_versions};
use crate::store::{IoError, Seq, Ticket};
use denc::{Decode, Encode};
use messages::osd::peer::{PeerBody, PgInfo};
use std::collections::{BTreeMap, BTreeSet};
use types::{EVersion, HObject, Op, OsdId, Transaction};

/// Objects of a backfill compared at a time, and how few may be dirty before the next are.
const STRETCH: usize = 256;
const DIRTY_LOW: usize = 16;
/// Versions of one object.
const UNIT_MAX: u32 = 1024;
/// Of one object's data read ahead.
const PREFETCH_MAX: u64 = 8 << 20;
/// What a transaction of copied steps may weigh, and how many steps it may have.
const TXN_BYTES_MAX: u64 = 4 << 20;
const TXN_STEPS_MAX: usize = 256;

impl Replicated {
    fn catchup(&mut self, osd: OsdId) -> Option<&mut Catchup> {
        match self.members.get_mut(&osd).map(|m| &mut m.phase) {
            Some(Phase::CatchUp(c)) => Some(&mut **c),
            _ => None,
        }
    }

    /// How to begin depends on what the member has.
    pub(super) fn begin_catching_up(&mut self, osd: OsdId, info: PgInfo, ctx: &mut Lent<'_>) {
        let shared = match info.exists && info.complete {
            true => ctx.pg.log.at_or_before(info.head).filter(|v| info.tail <= *v),
            false => None,
        };
        // A member that never had an entry, and a log here that begins with the first one.
        let fresh = info.exists && info.complete && info.head == EVersion::default();
        let shared = shared.or_else(|| (fresh && ctx.pg.log.reaches(info.head)).then_some(info.head));
        // What is here may be undone when the others of `in_sync` are heard, and nobody can say what of it: one that counts
        // as incomplete until the end holds nothing that would go unnoticed.
        let stays = self.peered || self.group.is_in_sync(osd) || broken::is(Rule::LearnerHasNoMore);
        match shared.filter(|_| stays) {
            Some(v) if v == info.head => self.catch_up_by_log(osd, v, info.dirty, ctx),
            Some(v) => self.undo(osd, PeerBody::Rewind { to: v }, ctx),
            None if info.exists && !info.complete && info.head == EVersion::default() => {
                self.backfill(osd, ctx)
            }
            None => self.undo(osd, PeerBody::Reset, ctx),
        }
    }

    fn undo(&mut self, osd: OsdId, body: PeerBody, ctx: &mut Lent<'_>) {
        if let Some(m) = self.members.get_mut(&osd) {
            m.phase = Phase::Undoing { at: ctx.now };
            self.send_to(osd, body, ctx);
        }
    }

    fn catch_up_by_log(&mut self, osd: OsdId, since: EVersion, dirty: Vec<HObject>, ctx: &mut Lent<'_>) {
        let mut entries = match ctx.pg.log_since(Some(since), ctx.store) {
            Ok(entries) => entries,
            Err(e) => return tracing::error!("pg {}: {e}", ctx.pg.id),
        };
        if broken::is(Rule::CatchUpWhole) {
            entries.pop();
        }
        let removals = entries.iter().filter(|e| e.kind == EntryKind::Delete);
        let removed = removals.map(|e| e.object.clone()).collect();
        let changed = entries.into_iter().map(|e| e.object).chain(dirty);
        let range = ctx.pg.range;
        let dirty = changed.filter(|o| range.contains(o.hash)).collect();
        self.start_catching_up(osd, Catchup::by_log(since, dirty, removed), ctx);
    }

    fn backfill(&mut self, osd: OsdId, ctx: &mut Lent<'_>) {
        let cursor = ctx.pg.range.start_cursor(ctx.pg.pool.id).with_snap(0);
        self.start_catching_up(osd, Catchup::backfill(cursor), ctx);
    }

    fn start_catching_up(&mut self, osd: OsdId, c: Catchup, ctx: &mut Lent<'_>) {
        tracing::debug!(
            "pg {}: osd.{osd} is caught up by {}",
            ctx.pg.id,
            if c.is_backfill() { "backfill" } else { "log" }
        );
        if let Some(m) = self.members.get_mut(&osd) {
            m.phase = Phase::CatchUp(Box::new(c));
        }
    }

    /// The PG has become smaller: what was begun for members counts for the old one.
    pub(super) fn restart_catching_up(&mut self, ctx: &mut Lent<'_>) {
        let begun: Vec<OsdId> = self
            .members
            .iter()
            .filter(|(_, m)| matches!(m.phase, Phase::CatchUp(_) | Phase::Resync(_)))
            .map(|(osd, _)| *osd)
            .collect();
        for osd in begun {
            self.connected_again(osd, ctx);
        }
    }

    /// Ends all copying to the member; what it has stays there.
    pub(super) fn stop_catching_up(&mut self, osd: OsdId, ctx: &mut Lent<'_>) {
        let Some(m) = self.members.get_mut(&osd) else {
            return;
        };
        if !matches!(m.phase, Phase::CatchUp(_)) {
            return;
        }
        let Phase::CatchUp(c) = std::mem::replace(&mut m.phase, Phase::Away) else {
            return;
        };
        for (token, copy) in c.copies {
            match copy.state {
                Copying::Parked => ctx.front.give_up(token, ctx.store),
                Copying::Asked(turn) | Copying::Listed(turn, ..) | Copying::Sent(turn, _) => {
                    ctx.front.end(turn, ctx.store)
                }
            }
        }
    }

    // --- the steps ------------------------------------------------------------------------------------

    pub(super) fn go_on_catching_up(&mut self, ctx: &mut Lent<'_>) {
        let ids: Vec<OsdId> = self
            .members
            .iter()
            .filter(|(_, m)| matches!(m.phase, Phase::CatchUp(_)))
            .map(|(osd, _)| *osd)
            .collect();
        self.send_committed(ctx.out);
        for osd in ids {
            self.scan_on(osd, ctx);
            self.copy_on(osd, ctx);
            self.send_listed(osd, ctx);
            self.finish_if_done(osd, ctx);
        }
    }

    /// What it wants to copy and waits to be granted.
    pub(super) fn copies_wanted(&self) -> Option<CopyNeed> {
        let mut need: Option<CopyNeed> = None;
        for (osd, m) in &self.members {
            let Phase::CatchUp(c) = &m.phase else { continue };
            let objects = c.room().saturating_sub(c.granted);
            if objects == 0 || self.group.is_in_sync(*osd) {
                continue;
            }
            let n = need.get_or_insert(CopyNeed {
                in_sync: self.group.in_sync.len(),
                backfill: true,
                objects: 0,
            });
            n.objects += objects;
            n.backfill &= c.is_backfill();
        }
        need
    }

    pub(super) fn copies_granted(&mut self, mut objects: usize, ctx: &mut Lent<'_>) {
        for m in self.members.values_mut() {
            if let Phase::CatchUp(c) = &mut m.phase {
                let take = c.room().saturating_sub(c.granted).min(objects);
                c.granted += take;
                objects -= take;
            }
        }
        self.review(ctx);
    }

    /// Compares the next stretch when little is left to copy.
    fn scan_on(&mut self, osd: OsdId, ctx: &mut Lent<'_>) {
        let end = ctx.pg.range.end_cursor(ctx.pg.pool.id);
        let Some(c) = self.catchup(osd) else { return };
        let Some(from) = c.cursor.clone() else { return };
        if c.scanning.is_some() || c.dirty.len() > DIRTY_LOW {
            return;
        }
        let token = self.next_number();
        if let Some(c) = self.catchup(osd) {
            c.scanning = Some(token);
        }
        let body = PeerBody::Scan {
            token,
            from,
            to: end,
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
        if self.resync_listed(from, token, &items) {
            return;
        }
        let Some(c) = self.catchup(from) else { return };
        if c.scanning == Some(token) {
            c.scanning = None;
            if let Err(e) = self.compare(from, items, next, ctx) {
                tracing::error!("pg {}: {e}", ctx.pg.id);
                self.fail(from, "cannot be compared with what cannot be read here", ctx);
            }
        } else if c.copies.contains_key(&token) {
            let newest = ctx.pg.last_seq;
            if let Some(copy) = self.catchup(from).and_then(|c| c.copies.get_mut(&token))
                && let Copying::Asked(turn) = copy.state
            {
                copy.state = Copying::Listed(turn, items, newest);
            }
            self.send_listed(from, ctx);
        }
    }

    /// Sends the objects of which the member has said what it has, if they may go.
    fn send_listed(&mut self, osd: OsdId, ctx: &mut Lent<'_>) {
        // Its own confirmations count where it is in sync: it cannot wait for them.
        let waits = !self.group.is_in_sync(osd);
        let committed = self.committed();
        let Some(c) = self.catchup(osd) else { return };
        let waits = waits && !c.is_backfill() && !broken::is(Rule::LearnerHasNoMore);
        let listed = |(token, copy): (&u64, &Copy)| match &copy.state {
            Copying::Listed(_, _, newest) => Some((*token, copy.head.clone(), *newest)),
            _ => None,
        };
        let listed: Vec<(u64, HObject, Seq)> = c.copies.iter().filter_map(listed).collect();
        for (token, head, newest) in listed {
            if !waits || newest.max(ctx.front.last_write(&head, ctx.pg)) <= committed {
                // Earlier writes to it first.
                self.send_committed(ctx.out);
                self.send_copy(osd, token, ctx);
            }
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
        let Some(from) = self.catchup(osd).and_then(|c| c.cursor.clone()) else {
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
        if let Some(s) = &stop
            && *s <= from
        {
            // One object has more clones than a stretch: it is taken for different.
            let head = from.head();
            if let Some(c) = self.catchup(osd) {
                c.cursor = Some(crate::state::range::behind(&head));
                c.dirty.insert(head);
            }
            return Ok(());
        }
        let within = |o: &HObject| stop.as_ref().is_none_or(|s| o < s);
        let mut dirty = BTreeSet::new();
        let known: BTreeMap<&HObject, EVersion> = theirs.iter().map(|(o, v)| (o, *v)).collect();
        for (object, version) in ours.iter().filter(|(o, _)| within(o)) {
            if known.get(object) != Some(version) || *version == EVersion::default() {
                dirty.insert(object.head());
            }
        }
        let here: BTreeSet<&HObject> = ours.iter().map(|(o, _)| o).collect();
        for (object, _) in theirs.iter().filter(|(o, _)| within(o)) {
            if !here.contains(object) {
                dirty.insert(object.head());
            }
        }
        if let Some(c) = self.catchup(osd) {
            c.dirty.append(&mut dirty);
            c.cursor = stop;
        }
        Ok(())
    }

    /// Takes on dirty objects: all that fit for a member of `in_sync`, as many as were granted for others.
    fn copy_on(&mut self, osd: OsdId, ctx: &mut Lent<'_>) {
        let free = self.group.is_in_sync(osd);
        loop {
            let token = self.next_number();
            let Some(c) = self.catchup(osd) else { return };
            if c.room() == 0 || (!free && c.granted == 0) {
                return;
            }
            let Some(head) = c.next() else { return };
            c.granted = c.granted.saturating_sub(1);
            c.copies.insert(
                token,
                Copy {
                    head: head.clone(),
                    state: Copying::Parked,
                    again: false,
                },
            );
            let tickets = self.prefetch_unit(&head, ctx);
            ctx.front.wait(head, osd, token, tickets);
        }
    }

    /// Starts reading all data of the object and its clones.
    fn prefetch_unit(&mut self, head: &HObject, ctx: &mut Lent<'_>) -> Vec<Ticket> {
        let start = ctx.pg.object_id(head.with_snap(0));
        let Ok((unit, _)) = list_versions(&start, head, UNIT_MAX as usize, ctx.store) else {
            return Vec::new();
        };
        let mut tickets = Vec::new();
        for (object, _) in unit {
            let oid = ctx.pg.object_id(object);
            tickets.extend(ctx.store.prefetch(&oid, 0, PREFETCH_MAX));
        }
        tickets
    }

    /// A turn has begun: nothing changes the object until it ends. False: nobody wants it any more.
    pub(super) fn copy_begins(&mut self, osd: OsdId, token: u64, turn: TurnId, ctx: &mut Lent<'_>) -> bool {
        let Some(copy) = self.catchup(osd).and_then(|c| c.copies.get_mut(&token)) else {
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

    fn send_copy(&mut self, osd: OsdId, token: u64, ctx: &mut Lent<'_>) {
        let Some(copy) = self.catchup(osd).and_then(|c| c.copies.get(&token)) else {
            return;
        };
        let (head, Copying::Listed(turn, theirs, _)) = (copy.head.clone(), &copy.state) else {
            return;
        };
        let (turn, theirs) = (*turn, theirs.clone());
        // The log tells something only about a version that it reaches: most of a backfill needs none of it.
        let known = theirs.iter().find(|(o, _)| *o == head).map(|(_, v)| *v);
        let entries = match known.filter(|v| ctx.pg.log.reaches(*v)) {
            Some(v) => ctx.pg.log_since(Some(v), ctx.store),
            None => Ok(Vec::new()),
        };
        let steps = entries.and_then(|entries| self.copy_steps_for(osd, &head, &theirs, &entries, ctx));
        let steps = match steps {
            Ok(steps) => steps,
            Err(e) => {
                tracing::error!("pg {}: {head}: cannot be copied: {e}", ctx.pg.id);
                self.repair_for_read(&head, ctx);
                return self.fail(osd, "cannot be given what cannot be read here", ctx);
            }
        };
        let bytes = steps.iter().map(weight).sum();
        let last = self.send_steps(osd, steps, ctx);
        ctx.out.push(Output::Copied { bytes });
        match last {
            None => self.copy_done(osd, token, turn, ctx),
            Some(last) => {
                if let Some(copy) = self.catchup(osd).and_then(|c| c.copies.get_mut(&token)) {
                    copy.state = Copying::Sent(turn, last);
                }
            }
        }
    }

    /// In transactions of bounded size; the number of the last.
    pub(super) fn send_steps(&mut self, osd: OsdId, steps: Vec<Op>, ctx: &mut Lent<'_>) -> Option<u64> {
        let mut last = None;
        let mut txn = Transaction::new(ctx.pg.id);
        let mut bytes = 0;
        let mut steps = steps.into_iter().peekable();
        while let Some(op) = steps.next() {
            bytes += weight(&op);
            txn.ops.push(op);
            let next = steps.peek().map_or(u64::MAX, weight);
            if txn.ops.len() >= TXN_STEPS_MAX || bytes.saturating_add(next) > TXN_BYTES_MAX {
                let full = std::mem::replace(&mut txn, Transaction::new(ctx.pg.id));
                let seq = self.next_number();
                self.send_to(
                    osd,
                    PeerBody::Apply {
                        seq,
                        txn: full.into(),
                    },
                    ctx,
                );
                (last, bytes) = (Some(seq), 0);
            }
        }
        last
    }

    /// The member has made a transaction durable: copies that end with it are done.
    pub(super) fn copy_applied(&mut self, osd: OsdId, number: u64, ctx: &mut Lent<'_>) {
        let Some(c) = self.catchup(osd) else { return };
        let ended = |copy: &Copy| match copy.state {
            Copying::Sent(job, last) if last <= number => Some(job),
            _ => None,
        };
        let done: Vec<(u64, TurnId)> = c
            .copies
            .iter()
            .filter_map(|(t, copy)| Some((*t, ended(copy)?)))
            .collect();
        for (token, job) in done {
            self.copy_done(osd, token, job, ctx);
        }
    }

    fn copy_done(&mut self, osd: OsdId, token: u64, turn: TurnId, ctx: &mut Lent<'_>) {
        if let Some(c) = self.catchup(osd)
            && let Some(copy) = c.copies.remove(&token)
            && copy.again
            && !broken::is(Rule::CopiedAgain)
        {
            c.dirty.insert(copy.head);
        }
        ctx.front.end(turn, ctx.store);
    }

    /// The log, and with it the last difference, goes there in one go: from here on the member is full.
    fn finish_if_done(&mut self, osd: OsdId, ctx: &mut Lent<'_>) {
        let Some(c) = self.catchup(osd) else { return };
        if !c.is_done() {
            return;
        }
        let since = c.log;
        let below = c.uncommitted.first_version();
        let ops = match self.log_steps(since, below, ctx) {
            Ok(ops) => ops,
            Err(e) => return tracing::error!("pg {}: {e}", ctx.pg.id),
        };
        let Some(last) = self.send_steps(osd, ops, ctx) else {
            return;
        };
        let mut uncommitted = Uncommitted::default();
        if let Some(m) = self.members.get_mut(&osd) {
            if let Phase::CatchUp(c) = &mut m.phase {
                uncommitted = std::mem::take(&mut c.uncommitted);
            }
            m.become_full_with(last);
        }
        self.send_uncommitted(osd, uncommitted, ctx);
    }

    /// What has become durable on all of `in_sync` goes to the learners that waited for it.
    pub(super) fn send_committed(&mut self, out: &mut Vec<Output>) {
        let committed = self.committed();
        let interval = self.group.interval;
        let number = &mut self.last_number;
        for (osd, m) in &mut self.members {
            let Phase::CatchUp(c) = &mut m.phase else { continue };
            while let Some(txn) = c.uncommitted.pop_up_to(committed) {
                let Some(txn) = txn.map(|txn| super::strip(&txn)) else {
                    continue;
                };
                if txn.ops.is_empty() {
                    continue;
                }
                *number += 1;
                let body = PeerBody::Apply {
                    seq: *number,
                    txn: txn.into(),
                };
                out.push(Output::Peer {
                    to: *osd,
                    shard: -1,
                    interval,
                    body,
                });
            }
        }
    }

    /// The member has become full but for these.
    pub(super) fn send_uncommitted(&mut self, osd: OsdId, uncommitted: Uncommitted, ctx: &mut Lent<'_>) {
        for (seq, txn) in uncommitted.writes {
            let number = self.next_number();
            if let Some(m) = self.members.get_mut(&osd) {
                m.sent(number, seq - 1);
            }
            let Some(txn) = txn.filter(|txn| !txn.ops.is_empty()) else {
                continue;
            };
            self.send_to(osd, PeerBody::Apply { seq: number, txn }, ctx);
        }
    }

    /// Steps that make a log that ends at `since` (`None`: no log) the one here, as far as before `below`, the metadata last.
    pub(super) fn log_steps(
        &self,
        since: Option<EVersion>,
        below: Option<EVersion>,
        ctx: &mut Lent<'_>,
    ) -> Result<Vec<Op>, IoError> {
        let mut ops = Vec::new();
        let since = since.filter(|v| ctx.pg.log.reaches(*v));
        if since.is_none() {
            ops.extend(clear_log());
        }
        let bad = |e| IoError(format!("a log entry does not decode: {e}"));
        for (version, entry) in ctx.store.log_entries(ctx.pg.id)? {
            // Not those of PGs that were split off, whose objects are not copied here.
            let ours = || LogEntry::from_bytes(&entry).map(|e| ctx.pg.range.contains(e.object.hash));
            let wanted = since.is_none_or(|s| version > s) && below.is_none_or(|b| version < b);
            if wanted && ours().map_err(bad)? {
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
}
