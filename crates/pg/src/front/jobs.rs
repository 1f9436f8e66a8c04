//! What becomes of parked jobs: those that are ready are executed, those that nobody wants any more are dropped.

use crate::Pg;
use crate::api::{ClientOp, Context, Output};
use crate::backend::Whose;
use crate::front::execute::{Again, Why};
use crate::front::parked::{Copies, Fetched, Job, JobId, Order, ROUNDS_MAX, Task, Waits};
use crate::front::wake::Wake;
use crate::store::Ticket;
use std::collections::VecDeque;
use types::{Errno, HObject};

/// How a message stands that is executed now.
struct Stands<'a> {
    id: JobId,
    head: &'a HObject,
    order: Order,
    may_repair: bool,
    may_wait: bool,
}

impl Pg {
    /// Parks it, or runs it at once if it turns out to wait for nothing.
    pub(crate) fn park(&mut self, job: Job, ctx: &mut Context<'_>) {
        let ready = self.front.parked.add(job);
        self.start_ready(ready, ctx);
    }

    /// Parks it before everything that waits for this object. Who calls this pumps.
    pub(crate) fn park_first(&mut self, job: Job) {
        self.front.parked.add_first(job);
    }

    pub(crate) fn prefetched(&mut self, ticket: Ticket, ctx: &mut Context<'_>) {
        if self.scrub_read_ended(ticket, ctx) {
            return;
        }
        self.came(ticket, ctx);
    }

    /// What a ticket stands for is here, or will not be.
    pub(crate) fn came(&mut self, ticket: Ticket, ctx: &mut Context<'_>) {
        let ready = self.front.parked.read_ended(ticket);
        self.start_ready(ready, ctx);
    }

    pub(crate) fn fetched(&mut self, fetch: u64, copy: Fetched, ctx: &mut Context<'_>) {
        let ready = self.front.parked.fetch_ended(fetch, copy, ctx.now);
        self.start_ready(ready, ctx);
    }

    /// Those whose sources could not be had ask for them again, wherever these are now.
    pub(crate) fn fetch_again(&mut self, ctx: &mut Context<'_>) {
        while let Some(id) = self.front.parked.end_pause(ctx.now) {
            let ready = self.front.parked.is_ready(id).then_some(id);
            self.start_ready(ready, ctx);
        }
    }

    pub(crate) fn start_ready(&mut self, ready: Option<JobId>, ctx: &mut Context<'_>) {
        let Some(id) = ready else { return };
        if let Some(head) = self.start(id, ctx) {
            self.pump(&head, ctx);
        }
    }

    /// Runs what is ready now on this object.
    pub(crate) fn pump(&mut self, head: &HObject, ctx: &mut Context<'_>) {
        while let Some(id) = self.front.parked.next_ready(head) {
            self.start(id, ctx);
        }
    }

    /// Executes a ready job. Time has passed: what was checked when it came is checked again, above all that its
    /// client is not blocklisted. Gives the object, if something else may be ready on it now.
    fn start(&mut self, id: JobId, ctx: &mut Context<'_>) -> Option<HObject> {
        let mut job = self.front.parked.take(id)?;
        match job.task {
            Task::Export { token, ref object } => {
                if let Some(lacks) = self.export_now(token, object, job.rounds, ctx) {
                    let brought = Some(self.bring(lacks, ctx));
                    return self.wait_on(id, job, Waits { brought, fetching: 0 });
                }
            }
            Task::Copy { member, token } => {
                if self.turn_begins(Whose::Copy { member, token }, id, ctx) {
                    return self.wait_on(id, job, Waits::default());
                }
            }
            Task::Repair { id: repair } => {
                if self.turn_begins(Whose::Repair(repair), id, ctx) {
                    return self.wait_on(id, job, Waits::default());
                }
            }
            Task::Check { token } => {
                if self.check_begins(token, id, ctx) {
                    return self.wait_on(id, job, Waits::default());
                }
            }
            Task::Message(c) => {
                let stands = Stands {
                    id,
                    head: &job.head,
                    order: job.order,
                    may_repair: !job.repaired,
                    may_wait: job.rounds < ROUNDS_MAX,
                };
                if let Some((c, waits)) = self.start_message(c, &stands, &mut job.copies, ctx) {
                    job.task = Task::Message(c);
                    return self.wait_on(id, job, waits);
                }
            }
        }
        self.release(job.tickets, ctx);
        let others = self.front.parked.end(&job.head, job.order);
        others.then_some(job.head)
    }

    /// A job keeps its turn, and is not ready after all.
    fn wait_on(&mut self, id: JobId, job: Job, waits: Waits) -> Option<HObject> {
        let head = job.head.clone();
        if self.front.parked.put_back(id, job, waits) {
            // Not here: a job that is tried again and again would not come back.
            self.front.wakes.push_back(Wake::Start(id));
        }
        Some(head)
    }

    /// Executes a message that is ready. Given back if it is not, after all.
    fn start_message(
        &mut self,
        c: Box<ClientOp>,
        stands: &Stands<'_>,
        copies: &mut Copies,
        ctx: &mut Context<'_>,
    ) -> Option<(Box<ClientOp>, Waits)> {
        let verdict = self.admit(&c, ctx.cluster);
        let (c, class) = self.answer_early(c, verdict, stands.head, ctx)?;
        let fetching = self.fetch_sources(stands.id, &c, copies, ctx);
        if fetching > 0 {
            let brought = None;
            return Some((c, Waits { fetching, brought }));
        }
        let had = std::mem::take(copies);
        let again = self.execute(c, class, stands.head.clone(), had, stands.may_repair, ctx)?;
        match again.why {
            Why::Repair => self.park_behind_repair(again.c, stands.head.clone(), stands.order),
            Why::Lacks(_) if !self.backend.may_read() => self.hold_all(again.c, ctx),
            Why::Lacks(lacks) if stands.may_wait => {
                *copies = again.copies;
                let brought = Some(self.bring(lacks, ctx));
                return Some((again.c, Waits { brought, fetching: 0 }));
            }
            Why::Lacks(lacks) => {
                tracing::error!(
                    "pg {}: {lacks:?} is lacking after {ROUNDS_MAX} executions",
                    self.state.id
                );
                self.refuse(again.c, stands.head, Errno::EIO, ctx);
            }
        }
        None
    }

    /// What becomes of a message that was given back by its execution, and has no job yet. Nobody else has a turn on its object that it
    /// would have to wait for.
    pub(crate) fn park_again(
        &mut self,
        again: Option<Again>,
        head: HObject,
        order: Order,
        ctx: &mut Context<'_>,
    ) {
        let Some(again) = again else { return };
        match again.why {
            Why::Repair => {
                self.park_behind_repair(again.c, head.clone(), order);
                self.pump(&head, ctx);
            }
            Why::Lacks(lacks) => {
                let tickets = self.bring(lacks, ctx);
                let mut job = Job::new(Task::Message(again.c), head, order, tickets);
                job.copies = again.copies;
                job.rounds = 1;
                self.park(job, ctx);
            }
        }
    }

    /// The turn of a copy that has begun is over.
    pub(crate) fn copy_job_ends(&mut self, id: JobId, ctx: &mut Context<'_>) {
        if let Some(job) = self.front.parked.take(id) {
            self.release(job.tickets, ctx);
            self.front.parked.end(&job.head, job.order);
            self.pump(&job.head, ctx);
        }
    }

    /// A message that met a damaged copy: again when the repair has ended.
    pub(crate) fn park_behind_repair(&mut self, c: Box<ClientOp>, head: HObject, order: Order) {
        let mut job = Job::new(Task::Message(c), head, order, Vec::new());
        job.repaired = true;
        self.park_first(job);
    }

    /// A check that has not begun is not wanted any more.
    pub(crate) fn drop_check_job(&mut self, token: u64, ctx: &mut Context<'_>) {
        let of_token = |job: &Job| matches!(&job.task, Task::Check { token: t } if *t == token);
        let gone = self.front.parked.remove(of_token);
        self.drop_jobs(gone, ctx);
    }

    /// Drops the jobs of objects that other PGs have now: their clients send again.
    pub(crate) fn drop_jobs_of_others(&mut self, ctx: &mut Context<'_>) {
        let range = self.state.range;
        let gone = self.front.parked.remove(|job| !range.contains(job.head.hash));
        self.drop_jobs(gone, ctx);
    }

    /// Drops the messages of a connection that is closed: its client sends them again. To execute them would
    /// connect its watches to nobody.
    pub(crate) fn drop_jobs_from(&mut self, conn: crate::ConnId, ctx: &mut Context<'_>) {
        if !self.front.parked.is_empty() {
            let of_conn = |job: &Job| matches!(&job.task, Task::Message(c) if c.conn == conn);
            let gone = self.front.parked.remove(of_conn);
            self.drop_jobs(gone, ctx);
        }
    }

    /// Takes all messages out, in the order in which they came: they are executed later.
    pub(crate) fn take_parked_messages(&mut self, ctx: &mut Context<'_>) -> VecDeque<Box<ClientOp>> {
        let gone = self
            .front
            .parked
            .remove(|job| matches!(job.task, Task::Message(_)));
        let mut messages = VecDeque::new();
        for job in gone {
            self.release(job.tickets, ctx);
            if let Task::Message(c) = job.task {
                messages.push_back(c);
            }
            self.pump(&job.head, ctx);
        }
        messages
    }

    /// The PG ends: nothing that it asked for may stay with the store, and who waits for it is told.
    pub fn leave(mut self, ctx: &mut Context<'_>) {
        let gone = self.front.parked.remove(|_| true);
        self.drop_jobs(gone, ctx);
        self.leave_scrub(ctx);
        self.abandon_answers(ctx);
    }

    /// The clients of all that is parked are sent elsewhere (a member's reads).
    pub(crate) fn refuse_jobs(&mut self, ctx: &mut Context<'_>) {
        for job in self.front.parked.remove(|_| true) {
            self.release(job.tickets, ctx);
            if let Task::Message(c) = job.task {
                self.refuse(c, &job.head, Errno::EAGAIN, ctx);
            }
        }
    }

    fn drop_jobs(&mut self, gone: Vec<Job>, ctx: &mut Context<'_>) {
        for job in gone {
            self.release(job.tickets, ctx);
            if let Task::Export { token, .. } = job.task {
                // The asker's client asks again, and finds the PG that has the object then.
                let result = Err(Errno::EAGAIN);
                ctx.out.push(Output::Exported { token, result });
            }
            match job.task {
                Task::Repair { id } => self.repair(ctx, |b, lent| b.repair_dropped(id, lent)),
                Task::Check { token } => self.check_dropped(token, ctx),
                _ => {}
            }
            self.pump(&job.head, ctx);
        }
    }
}
