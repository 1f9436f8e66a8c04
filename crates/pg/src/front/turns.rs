//! What the front does for the back end ([`Turns`]). What that sets going waits in a queue until the back end's call is over.
//!
//! Bound: what one call sets going; the queue is empty between inputs.

use super::Front;
use super::parked::{Job, Order, Task, release};
use super::wake::Wake;
use crate::backend::{Anew, TurnId, Turns};
use crate::state::object::ObjectState;
use crate::state::pg::PgState;
use crate::store::{IoError, ObjectStore, Seq, Ticket};
use std::time::Duration;
use types::{EVersion, HObject, ObjectId, OsdId};

impl Front {
    /// Takes the object's state out of the cache, or reads it. [`Front::put_back`] ends the use.
    pub fn take(
        &mut self,
        oid: &ObjectId,
        pg: &PgState,
        store: &mut dyn ObjectStore,
        now: Duration,
    ) -> Result<Box<ObjectState>, IoError> {
        if let Some(state) = self.cache.take(&oid.object) {
            return Ok(state);
        }
        let mut state = ObjectState::load(oid, store)?;
        state.last_write = pg.loaded_seq;
        if oid.object.is_head() && self.shown.is_none() {
            self.watches
                .adopt(&oid.object, &mut state.info.watchers, pg.loaded_at, now);
        }
        Ok(Box::new(state))
    }

    pub fn put_back(&mut self, object: HObject, state: Box<ObjectState>) {
        self.cache.put(object, state, self.commits.committed());
    }

    /// The transaction that an answer about this object must wait for.
    pub fn last_write_of(&self, head: &HObject, pg: &PgState) -> Seq {
        self.cache.get(head).map_or(pg.loaded_seq, |s| s.last_write)
    }
}

impl Turns for Front {
    fn wait(&mut self, object: HObject, member: OsdId, token: u64, tickets: Vec<Ticket>) {
        let task = Task::Copy { member, token };
        if let Some(id) = self.parked.add(Job::new(task, object, Order::Shared, tickets)) {
            self.wakes.push_back(Wake::Start(id));
        }
    }

    fn end(&mut self, turn: TurnId, store: &mut dyn ObjectStore) {
        if let Some(job) = self.parked.take(turn) {
            release(job.tickets, store);
            self.parked.end(&job.head, job.order);
            self.wakes.push_back(Wake::Pump(job.head));
        }
    }

    fn give_up(&mut self, token: u64, store: &mut dyn ObjectStore) {
        let of_token = |job: &Job| matches!(&job.task, Task::Copy { token: t, .. } if *t == token);
        for job in self.parked.remove(of_token) {
            release(job.tickets, store);
            self.wakes.push_back(Wake::Pump(job.head));
        }
    }

    fn wait_first(&mut self, object: HObject, repair: u64) {
        let task = Task::Repair { id: repair };
        self.parked
            .add_first(Job::new(task, object.clone(), Order::Exclusive, Vec::new()));
        // Who met the damage may not be a message.
        self.wakes.push_back(Wake::Pump(object));
    }

    fn checked(&mut self, token: u64) {
        self.wakes.push_back(Wake::Checked(token));
    }

    fn reload(&mut self) {
        self.wakes.push_back(Wake::Reload);
    }

    fn came(&mut self, ticket: Ticket) {
        self.wakes.push_back(Wake::Came(ticket));
    }

    fn unreadable(&mut self, object: &HObject) {
        self.wakes.push_back(Wake::Unreadable(object.clone()));
    }

    fn version(&self, object: &HObject) -> Option<EVersion> {
        let state = self.cache.get(object).filter(|s| s.physical)?;
        Some(state.info.version)
    }

    fn replaced(
        &mut self,
        head: &HObject,
        clones: &[HObject],
        seq: Seq,
        ctx: &mut Anew<'_>,
    ) -> Result<(), IoError> {
        clones.iter().for_each(|clone| self.cache.forget(clone));
        // The answer to what finds it waits for the writes that made it, as it did before.
        let last_write = self.last_write_of(head, ctx.pg).max(seq);
        self.cache.forget(head);
        let mut state = self.take(&ctx.pg.object_id(head.clone()), ctx.pg, ctx.store, ctx.now)?;
        state.last_write = last_write;
        self.put_back(head.clone(), state);
        Ok(())
    }

    fn last_write(&self, object: &HObject, pg: &PgState) -> Seq {
        self.last_write_of(object, pg)
    }

    fn answers_wait(&self, confirmed: Seq) -> bool {
        self.commits.waits_beyond(confirmed)
    }

    fn has_messages(&self) -> bool {
        self.parked.has_messages()
    }

    fn is_idle(&self) -> bool {
        self.parked.is_empty()
    }
}
