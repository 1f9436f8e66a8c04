//! A client's message from its arrival to its answer: admission, duplicates, its place among the others of its object.

use crate::Pg;
use crate::api::{ClientOp, ClusterView, Context, Output, Permit};
use crate::broken::{self, Rule};
use crate::front::checks::{self, Class, Verdict};
use crate::front::execute::{Again, Why};
use crate::front::fetch::copies_objects;
use crate::front::parked::{Copies, Job, Order, Task};
use crate::state::object::ObjectState;
use crate::store::{IoError, Seq};
use messages::osd::MOSDOpReply;
use std::cell::Cell;
use types::{Errno, HObject, NOSNAP, ObjectId};

/// Whether a message met something that cannot be read here, and what that leads to.
#[derive(Clone, Copy)]
pub(crate) struct Damage<'a> {
    pub met: &'a Cell<bool>,
    /// No repair was tried for this message yet.
    pub may_repair: bool,
}

impl Pg {
    /// Takes the object's state out of the cache, or reads it. [`Pg::put_back`] ends the use.
    pub(crate) fn take(
        &mut self,
        oid: &ObjectId,
        ctx: &mut Context<'_>,
    ) -> Result<Box<ObjectState>, IoError> {
        self.front.take(oid, &self.state, ctx.store, ctx.now)
    }

    pub(crate) fn put_back(&mut self, object: HObject, state: Box<ObjectState>) {
        self.front.put_back(object, state);
    }

    /// The transaction that an answer about this object must wait for.
    pub(crate) fn last_write(&self, head: &HObject) -> Seq {
        self.front.last_write_of(head, &self.state)
    }

    pub(crate) fn admit(&self, c: &ClientOp, cluster: &dyn ClusterView) -> Verdict {
        checks::admit(c, &self.state.pool, &self.state.range, cluster)
    }

    pub(crate) fn client_op(&mut self, c: Box<ClientOp>, ctx: &mut Context<'_>) {
        let verdict = self.admit(&c, ctx.cluster);
        match verdict {
            Verdict::Drop(why) => return self.drop_message(&c, why, ctx),
            Verdict::Go(Class::Pg) => return self.list(*c, ctx),
            _ => {}
        }
        let head = self.head_of(&c);
        let order = Order::of(&c.op, verdict);
        if !self.front.parked.is_free_for(&head, order) {
            let tickets = match verdict {
                Verdict::Go(class) => self.prefetch_behind(&c, class, &head, ctx),
                _ => Vec::new(),
            };
            return self.park(Job::new(Task::Message(c), head, order, tickets), ctx);
        }
        let Some((c, class)) = self.answer_early(c, verdict, &head, ctx) else {
            return;
        };
        let head = self.state.object_id(head);
        let state = match self.take(&head, ctx) {
            Ok(state) => state,
            Err(e) => {
                tracing::error!("pg {}: {e}", self.state.id);
                let again = self.refuse_unless_repaired(c, &head.object, true, ctx);
                return self.park_again(again, head.object, order, ctx);
            }
        };
        let tickets = self.prefetch(&c, class, &head, &state, ctx);
        if tickets.is_empty() && !copies_objects(&c) {
            let object = head.object.clone();
            let again = self.execute_on(c, class, (head, state), Copies::default(), true, ctx);
            return self.park_again(again, object, order, ctx);
        }
        self.put_back(head.object.clone(), state);
        self.park(Job::new(Task::Message(c), head.object, order, tickets), ctx);
    }

    fn drop_message(&mut self, c: &ClientOp, why: &'static str, ctx: &mut Context<'_>) {
        let (conn, tid) = (c.conn, c.op.tid);
        tracing::warn!(
            "pg {}: operation {tid} of {} dropped: {why}",
            self.state.id,
            c.client.name
        );
        ctx.out.push(Output::Dropped { conn, tid, why });
    }

    /// Answers what needs no look at the object: early errors, and writes that were done before. Gives any other
    /// message back with its class.
    pub(crate) fn answer_early(
        &mut self,
        c: Box<ClientOp>,
        verdict: Verdict,
        head: &HObject,
        ctx: &mut Context<'_>,
    ) -> Option<(Box<ClientOp>, Class)> {
        let class = match verdict {
            Verdict::Drop(why) => {
                self.drop_message(&c, why, ctx);
                return None;
            }
            Verdict::Refuse(e) => {
                self.refuse(c, head, e, ctx);
                return None;
            }
            Verdict::Go(class) => class,
        };
        if class == Class::Write
            && let Some((seq, reply)) = self.duplicate(&c)
        {
            let seq = match broken::is(Rule::DuplicateWaits) {
                true => 0,
                false => seq.max(self.last_write(head)),
            };
            self.reply(c, seq, reply, ctx);
            return None;
        }
        if !checks::snapdir_fits(&c.op) {
            self.refuse(c, head, Errno::EINVAL, ctx);
            return None;
        }
        Some((c, class))
    }

    pub(crate) fn head_of(&self, c: &ClientOp) -> HObject {
        let m = &c.op;
        HObject::new(
            self.state.pool.id,
            m.hash,
            m.oloc.nspace.clone(),
            m.oloc.key.clone(),
            m.oid.clone(),
            NOSNAP,
        )
    }

    /// An early error: return values 0, nothing remembered. Still in order with the object's other answers.
    pub(crate) fn refuse(&mut self, c: Box<ClientOp>, head: &HObject, e: Errno, ctx: &mut Context<'_>) {
        let reply = MOSDOpReply::to(&c.op, self.state.pool.epoch, e.code());
        self.reply(c, self.last_write(head), reply, ctx);
    }

    pub(crate) fn reply(&mut self, c: Box<ClientOp>, seq: Seq, reply: MOSDOpReply, ctx: &mut Context<'_>) {
        let reply = match self.front.shown.is_some() && is_unreadable(&reply) {
            // Only this copy is known to be damaged.
            true => {
                let head = self.head_of(&c);
                self.front.shown.get_or_insert_default().damage.meet(head);
                MOSDOpReply::to(&c.op, self.state.pool.epoch, Errno::EAGAIN.code())
            }
            false => reply,
        };
        let output = Output::Reply {
            conn: c.conn,
            reply,
            permit: Permit {
                executed: Some(ctx.now),
                ..c.permit
            },
        };
        self.front
            .commits
            .release_of(seq, Some(c.op.hash), output, ctx.out);
    }

    /// A message whose object cannot be read: refused, or given back if a repair is on its way.
    pub(crate) fn refuse_unless_repaired(
        &mut self,
        c: Box<ClientOp>,
        head: &HObject,
        may_repair: bool,
        ctx: &mut Context<'_>,
    ) -> Option<Again> {
        if may_repair && self.damaged(head, ctx) {
            return Some(Again::new(c, Why::Repair));
        }
        self.refuse(c, head, Errno::EIO, ctx);
        None
    }
}

/// Something of it could not be read.
fn is_unreadable(reply: &MOSDOpReply) -> bool {
    let eio = Errno::EIO.code();
    reply.result == eio || reply.ops.iter().any(|op| op.rval == eio)
}
