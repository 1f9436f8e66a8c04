//! Making bad copies good: the primary's own from a member (*pull*), a member's from the primary (*push*).
//!
//! Vocabulary: a [`Repair`] is a list of [`Fix`]es for one object (a head with its clones) whose writes wait meanwhile. A
//! *read repair* is begun by an operation that met an unreadable copy here: the operation has its turn behind it.
//!
//! Invariants: what takes the place of a copy comes from one that could be read whole, and is of the version that the
//! bad one is of; it takes its place in ONE transaction, so a member of `in_sync` is never half-written. After a pull the
//! object is read again. Of a push nothing is believed before a new look at it (`check`).
//!
//! Bounds: [`PULLS_MAX`] at a time, [`FIX_BYTES_MAX`] each; an object too large for one transaction with its clones is
//! repaired version by version, and where one version alone is too large it is left alone, and said so.

use crate::Pg;
use crate::api::Context;
use crate::parked::{Job, JobId, Order, Task};
use crate::replication::anew_steps;
use crate::store::Ticket;
use messages::osd::peer::PeerBody;
use messages::osd::peer_scrub::ScrubBody;
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;
use types::{Errno, HObject, ObjectId, OsdId, Transaction};

/// What one transaction of a repair may weigh; a store takes 16 MiB.
pub(crate) const FIX_BYTES_MAX: u64 = 12 << 20;
/// Objects pulled at a time; more wait.
const PULLS_MAX: usize = 4;
/// A member of `in_sync` that is away may come back with a good copy: operations wait so long for that.
const PATIENCE: Duration = Duration::from_secs(20);
/// After a repair that failed the object's operations get its error at once for so long.
const GIVEN_UP_REST: Duration = Duration::from_secs(10);
const GIVEN_UP_MAX: usize = 1024;
/// Times that a copy is asked for again because it did not fit.
const OUTRUN_MAX: u32 = 4;

/// One bad copy. `split`: the bad versions, if all of the object may go at once.
#[derive(Debug)]
pub(super) enum Fix {
    Pull {
        from: HObject,
        to: HObject,
        split: Vec<HObject>,
        /// None: any full member of `in_sync`.
        sources: Option<Vec<OsdId>>,
    },
    Push {
        member: OsdId,
        from: HObject,
        to: HObject,
        split: Vec<HObject>,
    },
}

#[derive(Debug)]
enum Doing {
    Pulling {
        token: u64,
        source: OsdId,
        fix: Fix,
    },
    /// The disk reads what is to be pushed.
    Reading {
        tickets: Vec<Ticket>,
        left: usize,
        fix: Fix,
    },
    Pushing {
        member: OsdId,
        number: u64,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    /// Clients' operations wait for it.
    Read,
    /// A check of the running scrub, which holds the object.
    Check(u64),
}

#[derive(Debug)]
pub(crate) struct Repair {
    head: HObject,
    owner: Owner,
    since: Duration,
    /// Its turn, if it is one of its own.
    job: Option<JobId>,
    todo: VecDeque<Fix>,
    doing: Option<Doing>,
    /// Members that could not give the object.
    failed: BTreeSet<OsdId>,
    /// Copies that were of another version than the one here: a change of the PG's own had passed by.
    outrun: u32,
    /// It waits for a member, until then.
    until: Option<Duration>,
}

impl Repair {
    fn is_pulling(&self) -> bool {
        matches!(self.doing, Some(Doing::Pulling { .. }))
    }

    fn may_begin(&self) -> bool {
        self.doing.is_none() && (self.job.is_some() || self.owner != Owner::Read)
    }
}

/// The whole object: its clones come before the head.
fn unit(head: &HObject) -> (HObject, HObject) {
    (head.with_snap(0), head.clone())
}

impl Pg {
    /// Something of the object cannot be read here. True if a repair is on its way: who met the error tries once more
    /// when that has ended.
    pub(crate) fn damaged(&mut self, head: &HObject, ctx: &mut Context<'_>) -> bool {
        if crate::broken::is(crate::broken::Rule::ReadRepair) {
            return false;
        }
        let others = self.repl.group.in_sync.len() > 1;
        let of_head = |r: &Repair| r.head == *head && r.owner == Owner::Read;
        if self.scrub.repairs.values().any(of_head) {
            return true;
        }
        let resting = self.scrub.given_up.get(head).is_some_and(|at| *at > ctx.now);
        if !others || resting || !self.repl.group.is_primary() {
            return false;
        }
        tracing::error!(
            "pg {}: {head}: the copy here is damaged: it is fetched from another OSD",
            self.id
        );
        let (from, to) = unit(head);
        let fix = Fix::Pull {
            from,
            to,
            split: Vec::new(),
            sources: None,
        };
        let id = self.add_repair(head.clone(), Owner::Read, VecDeque::from([fix]), ctx);
        let job = Job::new(Task::Repair { id }, head.clone(), Order::Exclusive, Vec::new());
        self.park_first(job);
        true
    }

    pub(super) fn add_repair(
        &mut self,
        head: HObject,
        owner: Owner,
        todo: VecDeque<Fix>,
        ctx: &mut Context<'_>,
    ) -> u64 {
        let id = self.repl.number();
        let repair = Repair {
            head,
            owner,
            since: ctx.now,
            job: None,
            todo,
            doing: None,
            failed: BTreeSet::new(),
            outrun: 0,
            until: None,
        };
        self.scrub.repairs.insert(id, repair);
        id
    }

    /// It has its turn. False: nobody wants it any more.
    pub(crate) fn repair_begins(&mut self, id: u64, job: JobId) -> bool {
        match self.scrub.repairs.get_mut(&id) {
            Some(r) => {
                r.job = Some(job);
                true
            }
            None => false,
        }
    }

    /// The object's operations are dropped: it is another PG's now.
    pub(crate) fn repair_dropped(&mut self, id: u64, ctx: &mut Context<'_>) {
        if let Some(r) = self.scrub.repairs.remove(&id) {
            release(r.doing, ctx);
        }
    }

    /// Goes on with all repairs; after anything that may have changed what they wait for.
    pub(super) fn go_on_repairing(&mut self, ctx: &mut Context<'_>) {
        let ids: Vec<u64> = self.scrub.repairs.keys().copied().collect();
        for id in ids {
            let lost = match self.scrub.repairs.get(&id).and_then(|r| r.doing.as_ref()) {
                Some(Doing::Pulling { source, .. }) => !self.repl.is_full(*source),
                Some(Doing::Pushing { member, .. }) => !self.repl.is_full(*member),
                _ => false,
            };
            if lost {
                self.repair_interrupted(id, ctx);
            }
            self.repair_step(id, ctx);
        }
    }

    /// The connection ended on which it waited for something.
    fn repair_interrupted(&mut self, id: u64, ctx: &mut Context<'_>) {
        let Some(r) = self.scrub.repairs.get_mut(&id) else {
            return;
        };
        match r.doing.take() {
            Some(Doing::Pulling { fix, .. }) => r.todo.push_front(fix),
            Some(Doing::Pushing { .. }) => self.repair_ends(id, false, ctx),
            other => r.doing = other,
        }
    }

    fn repair_step(&mut self, id: u64, ctx: &mut Context<'_>) {
        while let Some(r) = self.scrub.repairs.get_mut(&id)
            && r.may_begin()
        {
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
    fn begin_pull(&mut self, id: u64, fix: Fix, ctx: &mut Context<'_>) -> bool {
        let Fix::Pull {
            from, to, sources, ..
        } = &fix
        else {
            return false;
        };
        let (from, to) = (from.clone(), to.clone());
        let busy = self.scrub.repairs.values().filter(|r| r.is_pulling()).count() >= PULLS_MAX;
        let token = self.repl.number();
        let group = &self.repl.group;
        let Some(r) = self.scrub.repairs.get_mut(&id) else {
            return false;
        };
        r.until = None;
        let fits = |o: &OsdId| !r.failed.contains(o) && sources.as_ref().is_none_or(|s| s.contains(o));
        let mut left = group.in_sync.iter().filter(|o| **o != group.me && fits(o));
        let source = left.clone().find(|o| self.repl.is_full(**o)).copied();
        match source {
            Some(source) if !busy => {
                r.doing = Some(Doing::Pulling { token, source, fix });
                let body = ScrubBody::Pull { token, from, to };
                self.send_to(source, PeerBody::Scrub(body), ctx);
                false
            }
            // Its turn comes, or a member that may have a good copy comes back.
            Some(_) => {
                r.todo.push_front(fix);
                false
            }
            None if left.next().is_some() && ctx.now < r.since + PATIENCE => {
                r.until = Some(r.since + PATIENCE);
                r.todo.push_front(fix);
                false
            }
            None => {
                self.repair_ends(id, false, ctx);
                false
            }
        }
    }

    /// When a repair that waits for a member gives up.
    pub(crate) fn repair_timer(&self) -> Option<Duration> {
        self.scrub.repairs.values().filter_map(|r| r.until).min()
    }

    pub(super) fn pulled(
        &mut self,
        source: OsdId,
        token: u64,
        result: i32,
        txn: Transaction,
        ctx: &mut Context<'_>,
    ) {
        let ours = |r: &Repair| matches!(&r.doing, Some(Doing::Pulling { token: t, source: s, .. }) if *t == token && *s == source);
        let Some((id, r)) = self.scrub.repairs.iter_mut().find(|(_, r)| ours(r)) else {
            return;
        };
        let id = *id;
        let Some(Doing::Pulling { fix, .. }) = r.doing.take() else {
            return;
        };
        let Fix::Pull {
            from,
            to,
            split,
            sources,
        } = &fix
        else {
            return;
        };
        let taken = match result {
            0 => self.take_copy(from, to, txn, ctx),
            e if e == Errno::EFBIG.code() && from != to => {
                let fixes = self.pull_one_by_one(from, to, split, sources, ctx);
                if let Some(r) = self.scrub.repairs.get_mut(&id) {
                    fixes.into_iter().rev().for_each(|f| r.todo.push_front(f));
                }
                return self.repair_step(id, ctx);
            }
            e if e == Errno::EFBIG.code() => Err("it is too large for one transaction".into()),
            e => Err(format!("it cannot be read there either ({e})")),
        };
        match taken {
            Ok(()) => {
                self.scrub.repaired += 1;
                tracing::info!(
                    "pg {}: {to}: the copy here was repaired from osd.{source}",
                    self.id
                );
            }
            Err(why) => {
                tracing::error!("pg {}: {to}: not repaired from osd.{source}: {why}", self.id);
                if let Some(r) = self.scrub.repairs.get_mut(&id) {
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

    /// All of the object is too much for one transaction: the versions that are bad, else those that are here.
    fn pull_one_by_one(
        &self,
        from: &HObject,
        to: &HObject,
        split: &[HObject],
        sources: &Option<Vec<OsdId>>,
        ctx: &mut Context<'_>,
    ) -> Vec<Fix> {
        let mut objects = split.to_vec();
        if objects.is_empty() {
            let start = self.object_id(from.clone());
            objects = super::digest::versions_of(&start, to, ctx.store).unwrap_or_default();
        }
        let one = |o: HObject| Fix::Pull {
            from: o.clone(),
            to: o,
            split: Vec::new(),
            sources: sources.clone(),
        };
        objects.into_iter().map(one).collect()
    }

    // --- members --------------------------------------------------------------------------------------

    fn begin_push(&mut self, id: u64, fix: Fix, ctx: &mut Context<'_>) {
        let Fix::Push { from, to, .. } = &fix else { return };
        let start = self.object_id(from.clone());
        let mut tickets = Vec::new();
        for object in super::digest::versions_of(&start, to, ctx.store).unwrap_or_default() {
            let oid = self.object_id(object);
            tickets.extend(ctx.store.prefetch(&oid, 0, FIX_BYTES_MAX));
        }
        let Some(r) = self.scrub.repairs.get_mut(&id) else {
            return tickets.into_iter().for_each(|t| ctx.store.release(t));
        };
        let left = tickets.len();
        r.doing = Some(Doing::Reading { tickets, left, fix });
        if left == 0 {
            self.push_now(id, ctx);
        }
    }

    /// A read of the disk has ended; true if it was a repair's.
    pub(super) fn repair_read_ended(&mut self, ticket: Ticket, ctx: &mut Context<'_>) -> bool {
        for (id, r) in &mut self.scrub.repairs {
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
        false
    }

    fn push_now(&mut self, id: u64, ctx: &mut Context<'_>) {
        let number = self.repl.number();
        let Some(r) = self.scrub.repairs.get_mut(&id) else {
            return;
        };
        let Some(Doing::Reading { tickets, fix, .. }) = r.doing.take() else {
            return;
        };
        let Fix::Push {
            member,
            from,
            to,
            split,
        } = fix
        else {
            return;
        };
        let start = ObjectId {
            shard: self.id.shard,
            object: from.clone(),
        };
        let steps = anew_steps(&start, &to, FIX_BYTES_MAX, ctx.store);
        tickets.into_iter().for_each(|t| ctx.store.release(t));
        match steps {
            Ok(Some(ops)) if !ops.is_empty() => {
                r.doing = Some(Doing::Pushing { member, number });
                let mut txn = Transaction::new(self.id);
                txn.ops = ops;
                self.send_to(member, PeerBody::Apply { seq: number, txn }, ctx);
            }
            Ok(None) if from != to => {
                let one = |o: HObject| Fix::Push {
                    member,
                    from: o.clone(),
                    to: o,
                    split: Vec::new(),
                };
                split.into_iter().rev().for_each(|o| r.todo.push_front(one(o)));
            }
            Ok(None) => {
                tracing::error!("pg {}: {to}: too large to be repaired in one step", self.id);
                self.repair_ends(id, false, ctx);
            }
            Ok(Some(_)) => self.repair_ends(id, false, ctx),
            Err(e) => {
                tracing::error!("pg {}: {to}: osd.{member} cannot be given it: {e}", self.id);
                self.repair_ends(id, false, ctx);
            }
        }
    }

    /// A member has made a transaction durable.
    pub(crate) fn repair_applied(&mut self, osd: OsdId, number: u64) {
        for r in self.scrub.repairs.values_mut() {
            if let Some(Doing::Pushing { member, number: n }) = r.doing
                && member == osd
                && n <= number
            {
                r.doing = None;
                self.scrub.repaired += 1;
                tracing::info!("pg {}: {}: the copy on osd.{osd} was replaced", self.id, r.head);
            }
        }
    }

    fn repair_ends(&mut self, id: u64, good: bool, ctx: &mut Context<'_>) {
        let Some(r) = self.scrub.repairs.remove(&id) else {
            return;
        };
        release(r.doing, ctx);
        match r.owner {
            Owner::Check(token) => self.check_repaired(token, ctx),
            Owner::Read => {
                if !good {
                    if self.scrub.given_up.len() >= GIVEN_UP_MAX {
                        self.scrub.given_up.pop_first();
                    }
                    self.scrub
                        .given_up
                        .insert(r.head.clone(), ctx.now + GIVEN_UP_REST);
                    self.note_unreadable(&r.head, ctx);
                }
                if let Some(job) = r.job {
                    self.copy_job_ends(job, ctx);
                }
            }
        }
    }

    /// Ends what belongs to a scrub that is given up.
    pub(super) fn drop_check_repairs(&mut self, ctx: &mut Context<'_>) {
        let gone: Vec<Repair> = self
            .scrub
            .repairs
            .extract_if(.., |_, r| r.owner != Owner::Read)
            .map(|(_, r)| r)
            .collect();
        gone.into_iter().for_each(|r| release(r.doing, ctx));
    }

    /// The PG ends.
    pub(super) fn leave_repairs(&mut self, ctx: &mut Context<'_>) {
        for (_, r) in std::mem::take(&mut self.scrub.repairs) {
            release(r.doing, ctx);
        }
    }
}

fn release(doing: Option<Doing>, ctx: &mut Context<'_>) {
    if let Some(Doing::Reading { tickets, .. }) = doing {
        tickets.into_iter().for_each(|t| ctx.store.release(t));
    }
}
