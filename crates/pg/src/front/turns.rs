//! What the front does for the back end ([`Turns`]). What that sets going waits in a queue until the back end's call is over.
//!
//! Bound: what one call sets going; the queue is empty between inputs.

use super::Front;
use super::parked::{Job, JobId, Order, Task, release};
use crate::api::Output;
use crate::backend::{TurnId, Turns};
use crate::state::pg::PgState;
use crate::store::{ObjectStore, Seq, Ticket};
use types::{HObject, OsdId};

/// Something that can go on.
#[derive(Debug)]
pub(crate) enum Wake {
    /// A job is ready.
    Start(JobId),
    /// A turn on the object has ended.
    Pump(HObject),
    /// The object cannot be read here.
    Damaged(HObject),
}

impl Front {
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

    fn damaged(&mut self, object: &HObject) {
        self.wakes.push_back(Wake::Damaged(object.clone()));
    }

    fn confirm(&mut self, seq: Seq, out: &mut Vec<Output>) {
        self.commits.advance(seq, out);
    }

    fn last_write(&self, object: &HObject, pg: &PgState) -> Seq {
        self.last_write_of(object, pg)
    }

    fn answers_wait(&self) -> bool {
        self.commits.is_waiting()
    }

    fn has_messages(&self) -> bool {
        self.parked.has_messages()
    }

    fn is_idle(&self) -> bool {
        self.parked.is_empty()
    }
}
