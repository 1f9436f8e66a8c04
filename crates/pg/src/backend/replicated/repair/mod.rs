//! Making bad copies good: the primary's own from a member (*pull*), a member's from the primary (*push*).
//!
//! Vocabulary: a [`Repair`] is a list of [`Fix`]es for one object (a head with its clones) whose writes wait meanwhile. A
//! *read repair* is begun by an operation that met an unreadable copy here: the operation has its turn behind it. What one
//! transaction takes goes over as one; what is larger, and what no single copy can give, is made in pieces ([`rebuild`]).
//!
//! Invariants: what takes the place of a copy comes from ones that could be read, and is of the version that the
//! bad one is of; it takes its place in ONE transaction, so a member of `in_sync` is never half-written. After a pull the
//! object is read again. Of a push nothing is believed before a new look at it (`check`).
//!
//! Bounds: [`PULLS_MAX`] at a time, and those of all PGs of an OSD by [`crate::backend::pull_turns`]; [`FIX_BYTES_MAX`] in one transaction.

pub(super) mod fixes;
pub(crate) mod piece;
mod plan;
mod rebuild;
pub(crate) mod scratch;
mod state;
mod steps;
mod take;

pub(super) use state::{Owner, Repairs};

use super::copy::{anew_steps, is_large};
use crate::backend::pull_turns::{AGAIN, PullTurns};
use crate::backend::replicated::Replicated;
use crate::backend::{Lent, TurnId};
use crate::store::Ticket;
use fixes::Fix;
use messages::osd::peer::PeerBody;
use messages::osd::peer_scrub::{Outline, Part, ScrubBody};
use piece::FIX_BYTES_MAX;
use rebuild::{Halt, Rebuild};
use state::{Doing, Repair};
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;
use types::{Errno, HObject, ObjectId, OsdId, Transaction};

/// Copies made good here at a time; more wait.
const PULLS_MAX: usize = 4;
/// A member of `in_sync` that is away may come back with a good copy: operations wait so long for that.
const PATIENCE: Duration = Duration::from_secs(20);
/// After a repair that failed the object's operations get its error at once for so long.
const GIVEN_UP_REST: Duration = Duration::from_secs(10);
const GIVEN_UP_MAX: usize = 1024;
/// Times that a copy is asked for again because it did not fit.
const OUTRUN_MAX: u32 = 4;

/// The whole object: its clones come before the head.
fn unit(head: &HObject) -> (HObject, HObject) {
    (head.with_snap(0), head.clone())
}

impl Replicated {
    /// From now on it repairs its own copies in turn with the other PGs that share these.
    pub(super) fn take_turns_of(&mut self, turns: PullTurns) {
        self.repairs.turns = turns;
    }

    pub(super) fn copies_repaired(&self) -> u64 {
        self.repairs.repaired
    }

    pub(super) fn is_repairing(&self) -> bool {
        !self.repairs.all.is_empty()
    }

    /// Something of the object cannot be read here. True if a repair is on its way: who met the error tries once more
    /// when that has ended.
    pub(super) fn repair_for_read(&mut self, head: &HObject, ctx: &mut Lent<'_>) -> bool {
        if crate::broken::is(crate::broken::Rule::ReadRepair) {
            return false;
        }
        let others = self.group.in_sync.len() > 1;
        let of_head = |r: &Repair| r.head == *head && r.owner == Owner::Read;
        if self.repairs.all.values().any(of_head) {
            return true;
        }
        let resting = self.repairs.given_up.get(head).is_some_and(|at| *at > ctx.now);
        if !others || resting || !self.group.is_primary() {
            return false;
        }
        tracing::error!(
            "pg {}: {head}: the copy here is damaged: it is fetched from another OSD",
            ctx.pg.id
        );
        let (from, to) = unit(head);
        let fix = Fix::Pull {
            from,
            to,
            sources: None,
            pieces: false,
        };
        let id = self.add_repair(head.clone(), Owner::Read, VecDeque::from([fix]), ctx);
        ctx.front.wait_first(head.clone(), id);
        true
    }

    pub(crate) fn add_repair(
        &mut self,
        head: HObject,
        owner: Owner,
        todo: VecDeque<Fix>,
        ctx: &mut Lent<'_>,
    ) -> u64 {
        let id = self.next_number();
        let repair = Repair {
            head,
            owner,
            since: ctx.now,
            job: None,
            todo,
            doing: None,
            failed: BTreeSet::new(),
            asked: Vec::new(),
            outrun: 0,
            until: None,
        };
        self.repairs.all.insert(id, repair);
        id
    }

    /// It has its turn. False: nobody wants it any more.
    pub(crate) fn repair_begins(&mut self, id: u64, job: TurnId) -> bool {
        match self.repairs.all.get_mut(&id) {
            Some(r) => {
                r.job = Some(job);
                true
            }
            None => false,
        }
    }

    /// The object's operations are dropped: it is another PG's now.
    pub(super) fn forget_repair(&mut self, id: u64, ctx: &mut Lent<'_>) {
        if let Some(r) = self.repairs.all.remove(&id) {
            self.drop_doing(r.doing, ctx);
        }
    }

    /// Goes on with all repairs; after anything that may have changed what they wait for.
    pub(crate) fn go_on_repairing(&mut self, ctx: &mut Lent<'_>) {
        let ids: Vec<u64> = self.repairs.all.keys().copied().collect();
        for id in ids {
            let (full, durable) = (self.full_members(), self.durable);
            let is_full = |osd: OsdId| full.contains(&osd);
            if let Some(b) = self.repairs.all.get_mut(&id).and_then(|r| r.rebuild()) {
                b.flushed(|seq| seq <= durable);
            }
            let lost = match self.repairs.all.get_mut(&id).and_then(|r| r.doing.as_mut()) {
                Some(Doing::Pulling { source, .. }) => !is_full(*source),
                Some(Doing::Pushing { member, .. }) => !is_full(*member),
                Some(Doing::Rebuilding(b)) => b.lost(is_full),
                _ => false,
            };
            if lost {
                self.repair_interrupted(id, ctx);
            }
            self.repair_step(id, ctx);
        }
    }

    /// The connection ended on which it waited for something.
    fn repair_interrupted(&mut self, id: u64, ctx: &mut Lent<'_>) {
        let Some(r) = self.repairs.all.get_mut(&id) else {
            return;
        };
        match r.doing.take() {
            Some(Doing::Pulling { fix, .. }) => r.todo.push_front(fix),
            doing @ Some(Doing::Pushing { .. } | Doing::Rebuilding(_)) => {
                self.drop_doing(doing, ctx);
                self.repair_ends(id, false, ctx);
            }
            other => r.doing = other,
        }
    }

    fn repair_step(&mut self, id: u64, ctx: &mut Lent<'_>) {
        while let Some(r) = self.repairs.all.get_mut(&id) {
            if r.rebuild().is_some_and(|b| !b.is_waiting()) {
                self.drive(id, |_, _, _| Ok(()), ctx);
                continue;
            }
            if !r.may_begin() {
                return;
            }
            match r.todo.pop_front() {
                None => return self.repair_ends(id, true, ctx),
                Some(fix @ Fix::Pull { .. }) => {
                    if !self.begin_pull(id, fix, ctx) {
                        return;
                    }
                }
                Some(fix @ Fix::Push { .. }) => self.begin_push(id, fix, ctx),
            }
        }
    }

    /// False: it waits, or has ended.
    fn begin_pull(&mut self, id: u64, fix: Fix, ctx: &mut Lent<'_>) -> bool {
        let Fix::Pull {
            from,
            to,
            sources,
            pieces,
        } = &fix
        else {
            return false;
        };
        let (from, to) = (from.clone(), to.clone());
        let busy = self.repairs.all.values().filter(|r| r.is_pulling()).count() >= PULLS_MAX;
        let (me, token, as_of) = (self.group.me, self.next_number(), ctx.pg.log.head());
        let (named, full) = (self.sources_of(sources.as_deref()), self.full_members());
        let Some(r) = self.repairs.all.get_mut(&id) else {
            return false;
        };
        r.until = None;
        if busy {
            r.todo.push_front(fix);
            return false;
        }
        let Some(turn) = self.repairs.turns.take() else {
            r.until = Some(ctx.now + AGAIN);
            r.todo.push_front(fix);
            return false;
        };
        let (there, away): (Vec<OsdId>, Vec<OsdId>) =
            named.into_iter().partition(|o| *o == me || full.contains(o));
        let fresh = |o: &&OsdId| **o != me && !r.failed.contains(*o);
        let source = there.iter().find(fresh).filter(|_| !pieces).copied();
        if let Some(source) = source {
            r.doing = Some(Doing::Pulling {
                token,
                source,
                as_of,
                fix,
                _turn: turn,
            });
            let body = ScrubBody::Pull { token, from, to };
            self.send_to(source, PeerBody::Scrub(body), ctx);
            return false;
        }
        let others = there.iter().any(|o| *o != me);
        if others && there.iter().any(|o| !r.asked.contains(o)) {
            r.asked.clone_from(&there);
            let rebuild = Rebuild::new(fix, (from, to), None, there).in_turn(turn);
            r.doing = Some(Doing::Rebuilding(Box::new(rebuild)));
            return true;
        }
        // A member that may have a good copy comes back.
        if !away.is_empty() && ctx.now < r.since + PATIENCE {
            r.until = Some(r.since + PATIENCE);
            r.todo.push_front(fix);
            return false;
        }
        self.repair_ends(id, false, ctx);
        false
    }

    /// Something is made here, and goes on with the next flush.
    pub(crate) fn repair_waits_for_flush(&self) -> bool {
        let waits = |r: &Repair| matches!(&r.doing, Some(Doing::Rebuilding(b)) if b.waits_for_flush());
        self.repairs.all.values().any(waits)
    }

    /// When a repair that waits for a member gives up.
    pub(crate) fn repair_timer(&self) -> Option<Duration> {
        self.repairs.all.values().filter_map(|r| r.until).min()
    }

    pub(crate) fn pulled(
        &mut self,
        source: OsdId,
        token: u64,
        result: i32,
        txn: Transaction,
        ctx: &mut Lent<'_>,
    ) {
        let ours = |r: &Repair| matches!(&r.doing, Some(Doing::Pulling { token: t, source: s, .. }) if *t == token && *s == source);
        let Some((id, r)) = self.repairs.all.iter_mut().find(|(_, r)| ours(r)) else {
            return;
        };
        let id = *id;
        let Some(Doing::Pulling { fix, as_of, .. }) = r.doing.take() else {
            return;
        };
        let Fix::Pull { from, to, .. } = &fix else { return };
        let taken = match result {
            0 => self.take_copy((from, to), txn, as_of, ctx),
            e if e == Errno::EFBIG.code() => return self.in_pieces(id, source, fix, ctx),
            e => Err(format!("it cannot be read there either ({e})")),
        };
        match taken {
            Ok(()) => {
                self.repairs.repaired += 1;
                tracing::info!(
                    "pg {}: {to}: the copy here was repaired from osd.{source}",
                    ctx.pg.id
                );
            }
            Err(why) => {
                tracing::error!("pg {}: {to}: not repaired from osd.{source}: {why}", ctx.pg.id);
                if let Some(r) = self.repairs.all.get_mut(&id) {
                    r.outrun += 1;
                    if result != 0 || r.outrun >= OUTRUN_MAX {
                        r.failed.insert(source);
                    }
                    r.todo.push_front(fix);
                }
            }
        }
        self.repair_step(id, ctx);
    }

    // --- in pieces ------------------------------------------------------------------------------------

    /// All of it is too much for one transaction.
    fn in_pieces(&mut self, id: u64, source: OsdId, fix: Fix, ctx: &mut Lent<'_>) {
        if let Some(r) = self.repairs.all.get_mut(&id) {
            tracing::debug!("pg {}: {}: osd.{source} gives it in pieces", ctx.pg.id, r.head);
            r.todo.push_front(fix.in_pieces());
        }
        self.repair_step(id, ctx);
    }

    /// One step of a repair in pieces, and as far as it goes on from there.
    fn drive(
        &mut self,
        id: u64,
        step: impl FnOnce(&mut Self, &mut Rebuild, &mut Lent<'_>) -> Result<(), Halt>,
        ctx: &mut Lent<'_>,
    ) {
        let Some(r) = self.repairs.all.get_mut(&id) else {
            return;
        };
        let mut b = match r.doing.take() {
            Some(Doing::Rebuilding(b)) => b,
            other => return r.doing = other,
        };
        let went = match step(self, &mut b, ctx) {
            Ok(()) => self.rebuild_on(&mut b, ctx),
            Err(halt) => Err(halt),
        };
        match (went, self.repairs.all.get_mut(&id)) {
            (Ok(false), Some(r)) => r.doing = Some(Doing::Rebuilding(b)),
            (Ok(true), Some(r)) => {
                let whose = b.whose(self.group.me);
                tracing::info!(
                    "pg {}: {}: the copy on osd.{whose} was made anew",
                    ctx.pg.id,
                    r.head
                );
                self.repairs.repaired += 1;
            }
            (Err(halt), Some(_)) => self.rebuild_halts(id, *b, halt, ctx),
            (_, None) => drop(self.drop_rebuild(*b, ctx)),
        }
    }

    fn rebuild_halts(&mut self, id: u64, b: Rebuild, halt: Halt, ctx: &mut Lent<'_>) {
        let fix = self.drop_rebuild(b, ctx);
        let (me, full) = (self.group.me, self.full_members());
        let Some(r) = self.repairs.all.get_mut(&id) else {
            return;
        };
        // Who is away now may have more to give when it is back.
        r.asked.retain(|o| *o == me || full.contains(o));
        let again = match halt {
            Halt::Outrun => {
                r.outrun += 1;
                tracing::info!(
                    "pg {}: {}: it was written while it was repaired",
                    ctx.pg.id,
                    r.head
                );
                r.outrun < OUTRUN_MAX
            }
            Halt::Failed(why) => {
                tracing::error!("pg {}: not repaired: {why}", ctx.pg.id);
                false
            }
        };
        match fix {
            Fix::Push { .. } if !again => self.repair_ends(id, false, ctx),
            fix => {
                if again {
                    r.asked.clear();
                }
                r.todo.push_front(fix.in_pieces());
            }
        }
    }

    /// Whose repair in pieces is meant; the rest of what is to be done follows.
    fn drive_one(
        &mut self,
        of: impl Fn(&Rebuild) -> bool,
        step: impl FnOnce(&mut Self, &mut Rebuild, &mut Lent<'_>) -> Result<(), Halt>,
        ctx: &mut Lent<'_>,
    ) -> bool {
        let is = |r: &Repair| matches!(&r.doing, Some(Doing::Rebuilding(b)) if of(b));
        let Some(id) = self.repairs.all.iter().find(|(_, r)| is(r)).map(|(id, _)| *id) else {
            return false;
        };
        self.drive(id, step, ctx);
        self.repair_step(id, ctx);
        true
    }

    pub(crate) fn outline_answered(
        &mut self,
        from: OsdId,
        token: u64,
        said: (i32, Outline),
        ctx: &mut Lent<'_>,
    ) {
        let of = |b: &Rebuild| b.waits_for_answer(from, token);
        self.drive_one(of, |pg, b, ctx| pg.outline_came(b, from, said, ctx), ctx);
    }

    pub(crate) fn pieced(
        &mut self,
        from: OsdId,
        token: u64,
        result: i32,
        said: (Transaction, Option<Part>),
        ctx: &mut Lent<'_>,
    ) {
        let of = |b: &Rebuild| b.waits_for_answer(from, token);
        self.drive_one(of, |pg, b, ctx| pg.piece_came(b, from, result, said, ctx), ctx);
    }

    // --- members --------------------------------------------------------------------------------------

    fn begin_push(&mut self, id: u64, fix: Fix, ctx: &mut Lent<'_>) {
        let Fix::Push { from, to, .. } = &fix else { return };
        let start = ctx.pg.object_id(from.clone());
        // What cannot be told by now says so when it is read.
        if is_large(&start, to, FIX_BYTES_MAX, ctx.store).unwrap_or(false) {
            return self.push_in_pieces(id, fix);
        }
        let mut tickets = Vec::new();
        for object in crate::backend::digest::versions_of(&start, to, ctx.store).unwrap_or_default() {
            let oid = ctx.pg.object_id(object);
            tickets.extend(ctx.store.prefetch(&oid, 0, FIX_BYTES_MAX));
        }
        let Some(r) = self.repairs.all.get_mut(&id) else {
            return tickets.into_iter().for_each(|t| ctx.store.release(t));
        };
        let left = tickets.len();
        r.doing = Some(Doing::Reading { tickets, left, fix });
        if left == 0 {
            self.push_now(id, ctx);
        }
    }

    fn push_in_pieces(&mut self, id: u64, fix: Fix) {
        let Fix::Push { member, from, to } = &fix else {
            return;
        };
        let (member, unit, me) = (*member, (from.clone(), to.clone()), self.group.me);
        if let Some(r) = self.repairs.all.get_mut(&id) {
            let rebuild = Rebuild::new(fix, unit, Some(member), vec![me]);
            r.doing = Some(Doing::Rebuilding(Box::new(rebuild)));
        }
    }

    /// A read of the disk has ended; true if it was a repair's.
    pub(crate) fn repair_read_ended(&mut self, ticket: Ticket, ctx: &mut Lent<'_>) -> bool {
        for (id, r) in &mut self.repairs.all {
            if let Some(Doing::Reading { tickets, left, .. }) = &mut r.doing
                && tickets.contains(&ticket)
            {
                *left -= 1;
                let (id, ready) = (*id, *left == 0);
                if ready {
                    self.push_now(id, ctx);
                }
                return true;
            }
        }
        let of = |b: &Rebuild| b.waits_for_disk(ticket);
        self.drive_one(of, |pg, b, ctx| pg.rebuild_read_ended(b, ctx), ctx)
    }

    fn push_now(&mut self, id: u64, ctx: &mut Lent<'_>) {
        let number = self.next_number();
        let Some(r) = self.repairs.all.get_mut(&id) else {
            return;
        };
        let Some(Doing::Reading { tickets, fix, .. }) = r.doing.take() else {
            return;
        };
        let Fix::Push { member, from, to } = &fix else {
            return;
        };
        let (member, to) = (*member, to.clone());
        let start = ObjectId {
            shard: ctx.pg.id.shard,
            object: from.clone(),
        };
        let steps = anew_steps(&start, &to, FIX_BYTES_MAX, ctx.store);
        tickets.into_iter().for_each(|t| ctx.store.release(t));
        match steps {
            Ok(Some(ops)) if !ops.is_empty() => {
                r.doing = Some(Doing::Pushing { member, number });
                let mut txn = Transaction::new(ctx.pg.id);
                txn.ops = ops;
                self.send_to(
                    member,
                    PeerBody::Apply {
                        seq: number,
                        txn: txn.into(),
                    },
                    ctx,
                );
            }
            Ok(None) => self.push_in_pieces(id, fix),
            Ok(Some(_)) => self.repair_ends(id, false, ctx),
            Err(e) => {
                tracing::error!("pg {}: {to}: osd.{member} cannot be given it: {e}", ctx.pg.id);
                self.repair_ends(id, false, ctx);
            }
        }
    }

    /// A member has made a transaction durable.
    pub(crate) fn repair_applied(&mut self, osd: OsdId, number: u64, ctx: &mut Lent<'_>) {
        for r in self.repairs.all.values_mut() {
            if let Some(b) = r.rebuild() {
                // What is behind it goes on with the end of this input.
                b.applied(osd, number);
            }
            if let Some(Doing::Pushing { member, number: n }) = r.doing
                && member == osd
                && n <= number
            {
                r.doing = None;
                self.repairs.repaired += 1;
                tracing::info!("pg {}: {}: the copy on osd.{osd} was replaced", ctx.pg.id, r.head);
            }
        }
    }

    fn repair_ends(&mut self, id: u64, good: bool, ctx: &mut Lent<'_>) {
        let Some(r) = self.repairs.all.remove(&id) else {
            return;
        };
        self.drop_doing(r.doing, ctx);
        match r.owner {
            Owner::Check(token) => {
                // What it came to is looked at; its next reader may try again.
                self.repairs.given_up.remove(&r.head);
                ctx.front.checked(token);
            }
            Owner::Read => {
                if !good {
                    if self.repairs.given_up.len() >= GIVEN_UP_MAX {
                        self.repairs.given_up.pop_first();
                    }
                    self.repairs
                        .given_up
                        .insert(r.head.clone(), ctx.now + GIVEN_UP_REST);
                    ctx.front.unreadable(&r.head);
                }
                if let Some(job) = r.job {
                    ctx.front.end(job, ctx.store);
                }
            }
        }
    }

    pub(crate) fn drop_repairs(&mut self, of: impl Fn(Owner) -> bool, ctx: &mut Lent<'_>) {
        let gone: Vec<Repair> = self
            .repairs
            .all
            .extract_if(.., |_, r| of(r.owner))
            .map(|(_, r)| r)
            .collect();
        gone.into_iter().for_each(|r| self.drop_doing(r.doing, ctx));
    }

    /// The PG ends.
    pub(crate) fn leave_repairs(&mut self, ctx: &mut Lent<'_>) {
        for (_, r) in std::mem::take(&mut self.repairs.all) {
            self.drop_doing(r.doing, ctx);
        }
    }

    fn drop_doing(&mut self, doing: Option<Doing>, ctx: &mut Lent<'_>) {
        match doing {
            Some(Doing::Reading { tickets, .. }) => tickets.into_iter().for_each(|t| ctx.store.release(t)),
            Some(Doing::Rebuilding(b)) => drop(self.drop_rebuild(*b, ctx)),
            Some(Doing::Pulling { .. } | Doing::Pushing { .. }) | None => {}
        }
    }
}
