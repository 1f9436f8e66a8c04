//! Executing a message that has its turn: its object and what it reads are gathered, and what comes of it is carried out.

use crate::Pg;
use crate::api::{ClientOp, ConnId, Context, ObjectCopy, Output};
use crate::backend::replicated::May;
use crate::backend::{Backend, Lack};
use crate::exec::gathered::{Gathered, Read};
use crate::exec::ops::copy;
use crate::exec::plan::{plan, widened};
use crate::exec::work::{Effect, Note};
use crate::exec::{Fail, Missing, Outcome, Request, Results, execute};
use crate::front::checks::Class;
use crate::front::index::Index;
use crate::front::messages::Damage;
use crate::front::parked::Copies;
use crate::front::watched::Watched;
use crate::state::object::ObjectState;
use crate::state::snapset::{Resolved, SnapSet};
use crate::store::Seq;
use messages::osd::{MOSDOpReply, flag};
use std::cell::Cell;
use std::collections::HashMap;
use types::{EntityName, Errno, HObject, NOSNAP, ObjectId, SNAPDIR};

/// Executions of one message: after the first few what is missing is taken for all of the object, so this is never
/// reached.
const ROUNDS_MAX: usize = 8;

/// Why something was not executed. Nothing has happened.
#[derive(Debug)]
pub(crate) enum Stop {
    /// This is the answer.
    Refused(Errno),
    /// It is executed when this has come.
    Lacks(Vec<Lack>),
}

impl From<Errno> for Stop {
    fn from(e: Errno) -> Self {
        Self::Refused(e)
    }
}

/// A message that its execution gives back. Nothing has happened.
#[derive(Debug)]
pub(crate) struct Again {
    pub c: Box<ClientOp>,
    /// What had been fetched for it, where it lacks something else.
    pub copies: Copies,
    pub why: Why,
}

#[derive(Debug)]
pub(crate) enum Why {
    /// Its copy here is damaged and on the way to be repaired.
    Repair,
    Lacks(Vec<Lack>),
}

impl Again {
    pub fn new(c: Box<ClientOp>, why: Why) -> Self {
        let copies = Copies::default();
        Self { c, copies, why }
    }
}

/// Data of one object; not at all where some of it has to be brought first.
fn gather(
    oid: &ObjectId,
    reads: &[Read],
    backend: &dyn Backend,
    ctx: &mut Context<'_>,
    into: &mut Gathered,
) -> Result<(), Stop> {
    backend.gather(oid, reads, ctx.store, into);
    let lacking = into.take_lacking();
    if lacking.is_empty() {
        return Ok(());
    }
    let lack = |r: Read| Lack {
        oid: oid.clone(),
        offset: r.offset,
        len: r.len,
    };
    Err(Stop::Lacks(lacking.into_iter().map(lack).collect()))
}

/// Plans the message, gathers what it reads, and executes it.
pub(crate) fn run(
    request: &Request<'_>,
    backend: &dyn Backend,
    ctx: &mut Context<'_>,
) -> Result<Outcome, Stop> {
    let plan = plan(request, &mut Index(ctx.store))?;
    let mut gathered = Gathered::default();
    gather(request.source, &plan.reads, backend, ctx, &mut gathered)?;
    for round in 0..ROUNDS_MAX {
        match execute(
            request,
            plan.cost,
            &gathered,
            &mut Index(ctx.store),
            &mut *ctx.random,
        ) {
            Ok(outcome) => return Ok(outcome),
            Err(Missing(read)) => {
                let read = widened(read, round, request.old.size);
                gather(request.source, &[read], backend, ctx, &mut gathered)?;
            }
        }
    }
    let object = &request.source.object;
    tracing::error!("{object}: a message still lacks data after {ROUNDS_MAX} executions");
    Err(Errno::EIO.into())
}

/// What came of a read.
enum Answer {
    Reply(MOSDOpReply),
    Not(Why),
}

impl Pg {
    /// Finds the object and runs the message on it.
    pub(crate) fn execute(
        &mut self,
        c: Box<ClientOp>,
        class: Class,
        head: HObject,
        fetched: Copies,
        may_repair: bool,
        ctx: &mut Context<'_>,
    ) -> Option<Again> {
        let head = self.state.object_id(head);
        match self.take(&head, ctx) {
            Ok(state) => self.execute_on(c, class, (head, state), fetched, may_repair, ctx),
            Err(e) => {
                tracing::error!("pg {}: {e}", self.state.id);
                self.refuse_unless_repaired(c, &head.object, may_repair, ctx)
            }
        }
    }

    pub(crate) fn execute_on(
        &mut self,
        c: Box<ClientOp>,
        class: Class,
        (head, state): (ObjectId, Box<ObjectState>),
        fetched: Copies,
        may_repair: bool,
        ctx: &mut Context<'_>,
    ) -> Option<Again> {
        let shown = self.front.shown.as_deref();
        if shown.is_some_and(|s| s.may(&head.object, ctx.now) != May::Show) {
            // Time has passed since it was admitted.
            self.put_back(head.object.clone(), state);
            self.refuse(c, &head.object, Errno::EAGAIN, ctx);
            return None;
        }
        let met = Cell::new(false);
        let damage = Damage {
            met: &met,
            may_repair,
        };
        let object = head.object.clone();
        let mut store = Watched::new(ctx.store, &object, &met);
        let ctx = &mut Context {
            store: &mut store,
            cluster: ctx.cluster,
            now: ctx.now,
            wall: ctx.wall,
            random: &mut *ctx.random,
            out: &mut *ctx.out,
        };
        match class {
            Class::Write => self.execute_write(c, head, state, fetched, damage, ctx),
            Class::Read | Class::Pg => self.execute_read(c, head, state, damage, ctx),
        }
    }

    /// True if a message met a damaged copy that is on its way to be repaired: it is to be tried again.
    pub(crate) fn is_repaired_first(
        &mut self,
        damage: Damage<'_>,
        head: &HObject,
        ctx: &mut Context<'_>,
    ) -> bool {
        damage.may_repair && damage.met.get() && self.damaged(head, ctx)
    }

    fn execute_read(
        &mut self,
        c: Box<ClientOp>,
        head: ObjectId,
        state: Box<ObjectState>,
        damage: Damage<'_>,
        ctx: &mut Context<'_>,
    ) -> Option<Again> {
        let last_write = state.last_write;
        let snap = c.op.snapid;
        let found = if snap == NOSNAP || snap == SNAPDIR {
            let there = state.exists || (snap == SNAPDIR && !state.snapset.clones.is_empty());
            there.then_some(None)
        } else {
            match self.resolve(&state.snapset, &c) {
                Resolved::Head if state.exists => Some(None),
                Resolved::Clone(id) => Some(Some(id)),
                _ => None,
            }
        };
        let answer = match found {
            None => Answer::Reply(MOSDOpReply::to(
                &c.op,
                self.state.pool.epoch,
                Errno::ENOENT.code(),
            )),
            Some(None) => self.run_read(&c, &head, &head, &state, damage, ctx),
            Some(Some(clone)) => self.read_clone(&c, &head, clone, damage, ctx),
        };
        self.put_back(head.object, state);
        match answer {
            Answer::Reply(reply) => {
                self.reply(c, last_write, reply, ctx);
                None
            }
            Answer::Not(why) => Some(Again::new(c, why)),
        }
    }

    /// What a read's snapshot means for the object.
    pub(crate) fn resolve(&self, snapset: &SnapSet, c: &ClientOp) -> Resolved {
        let snap = c.op.snapid;
        if c.op.has(flag::MAP_SNAP_CLONE) {
            snapset.resolve_exact(snap)
        } else if self.state.meta.removed.contains(snap) {
            Resolved::Absent
        } else {
            snapset.resolve(snap)
        }
    }

    fn read_clone(
        &mut self,
        c: &ClientOp,
        head: &ObjectId,
        clone: u64,
        damage: Damage<'_>,
        ctx: &mut Context<'_>,
    ) -> Answer {
        let source = self.state.object_id(head.object.with_snap(clone));
        let epoch = self.state.pool.epoch;
        match self.take(&source, ctx) {
            Ok(state) if state.exists => {
                let reply = self.run_read(c, head, &source, &state, damage, ctx);
                self.put_back(source.object, state);
                return reply;
            }
            Ok(_) => tracing::error!(
                "{}: the snapset lists a clone that the store does not have",
                source.object
            ),
            Err(e) => tracing::error!("{e}"),
        }
        damage.met.set(true);
        match self.is_repaired_first(damage, &head.object, ctx) {
            true => Answer::Not(Why::Repair),
            false => Answer::Reply(MOSDOpReply::to(&c.op, epoch, Errno::EIO.code())),
        }
    }

    fn run_read(
        &mut self,
        c: &ClientOp,
        head: &ObjectId,
        source: &ObjectId,
        old: &ObjectState,
        damage: Damage<'_>,
        ctx: &mut Context<'_>,
    ) -> Answer {
        let request = Request {
            message: &c.op,
            client: &c.client,
            conn: c.conn,
            pool: &self.state.pool,
            head,
            source,
            old,
            context: None,
            sources: &HashMap::new(),
            watches: &self.front.watches,
            notify_id: self.front.notify_id,
            wall: ctx.wall,
        };
        let epoch = self.state.pool.epoch;
        let mut results = match run(&request, &*self.backend, ctx) {
            Ok(outcome) => outcome.results,
            Err(Stop::Refused(e)) => return Answer::Reply(MOSDOpReply::to(&c.op, epoch, e.code())),
            Err(Stop::Lacks(lacks)) => return Answer::Not(Why::Lacks(lacks)),
        };
        if self.is_repaired_first(damage, &head.object, ctx) {
            return Answer::Not(Why::Repair);
        }
        if self.front.shown.is_some() && damage.met.get() {
            // Whatever an operation or a class method made of it.
            return Answer::Reply(MOSDOpReply::to(&c.op, epoch, Errno::EIO.code()));
        }
        self.state.meta.stats.reads += 1;
        self.state.meta.stats.read_bytes += results.read_bytes;
        self.note(&head.object, &mut results, (c.conn, c.client.name), ctx);
        if results.ran.result >= 0 {
            self.carry_out(&head.object, results.effects, c.conn, old.last_write, ctx);
        }
        Answer::Reply(self.read_reply(c, old, results.ran))
    }

    /// Everything of an object that is here, for another OSD.
    pub(crate) fn exported(&self, object: &HObject, ctx: &mut Context<'_>) -> Result<Box<ObjectCopy>, Stop> {
        let fail = |f: Fail| Stop::Refused(Errno(-f.rval));
        let shard = self.state.id.shard;
        let (oid, state) = copy::resolve(object, shard, &mut Index(ctx.store)).map_err(fail)?;
        let mut gathered = Gathered::default();
        let reads = copy::export_reads(&state);
        gather(&oid, reads.as_slice(), &*self.backend, ctx, &mut gathered)?;
        copy::export(&oid, &state, &gathered, &mut Index(ctx.store)).map_err(fail)
    }

    /// What holds of an execution, failed or not.
    pub(crate) fn note(
        &mut self,
        object: &HObject,
        results: &mut Results,
        (conn, by): (ConnId, EntityName),
        ctx: &Context<'_>,
    ) {
        self.front.notify_id = results.notify_id;
        for note in results.notes.drain(..) {
            let watches = &mut self.front.watches;
            match note {
                Note::Ping(key) => watches.ping(object, key, conn, ctx.now),
                Note::LocksChanged => watches.locks.forget(object),
                Note::LockRefused { lock, holders } => {
                    watches.locks.refused(object, &lock, holders, by, ctx.now);
                }
            }
        }
    }

    /// Watches and notifies change once the message has succeeded; what clients get of it waits like replies.
    pub(crate) fn carry_out(
        &mut self,
        object: &HObject,
        effects: Vec<Effect>,
        conn: ConnId,
        seq: Seq,
        ctx: &mut Context<'_>,
    ) {
        for effect in effects {
            let out: Vec<Output> = match effect {
                Effect::Connect(r) => self.front.watches.connect(object, &r, conn, ctx.now),
                Effect::Remove(key) => self.front.watches.remove(object, key, false),
                Effect::Disconnect(keys) => keys
                    .into_iter()
                    .flat_map(|k| self.front.watches.remove(object, k, true))
                    .collect(),
                Effect::Notify(r) => self.front.watches.notify(object, r, ctx.now),
                Effect::Ack {
                    id,
                    key,
                    reply,
                    charge,
                } => self.front.watches.ack(object, id, key, (reply, charge)),
            };
            for o in out {
                self.front.commits.release(seq, o, ctx.out);
            }
        }
    }
}
