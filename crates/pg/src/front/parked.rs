//! What cannot be executed yet: its data is on its way from the disk, an object of another OSD is (COPY_FROM),
//! or something earlier on the same object waits for such.
//!
//! Vocabulary: a [`Job`] is a message (or another OSD's wish for an object) that waits here. Jobs of one object
//! take *turns* as at a fair lock of readers and writers: a job that changes nothing has its turn together with
//! others like it, one that may change something has it alone, and who comes later never has it earlier. A job
//! is *ready* when it has its turn and nothing that it asked for is missing.
//!
//! Reads among each other may so be executed, and answered, in any order. In docs/protocol/ceph/04-osd.md, 7.5,
//! answers came in the order of arrival where writes were among them; a client tells answers apart by their tid,
//! librados promises no order between reads, and a virtual machine's disk has dozens of them in flight on one object. A
//! read never passes a write, nor a write a read. A client that wants more says RWORDERED and has its turn alone.
//!
//! Invariants: a job asks the disk when it comes, and again where its execution lacked data; its tickets are released once, when it ends
//! or is dropped. Nothing here recurses: a thousand jobs behind one are a loop.
//!
//! A source that cannot be had now is asked for again every [`FETCH_AGAIN`], and the message keeps its turn: told to try again,
//! its client would send it under a new number, behind what it has sent since.
//!
//! Bound: the shell's permits; a connection has a limited number of operations in a PG, and an OSD a limited
//! number of wishes ([`Job`] holds one of either).
//!
//! Not here: what is done with a job that is ready, or that nobody wants any more (`jobs`).

use crate::api::{ClientOp, ObjectCopy};
use crate::front::checks::{Class, Verdict};
use crate::store::{ObjectStore, Ticket};
use messages::osd::{MOSDOp, code, flag};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;
use types::numbers::NumberMap;
use types::{Errno, HObject, OsdId};

pub(crate) type JobId = u64;

/// What another OSD gave.
pub(crate) type Fetched = Result<Box<ObjectCopy>, Errno>;

/// Fetched objects by the index of the operation that wants them.
pub(crate) type Copies = HashMap<usize, Fetched>;

/// After this a source that could not be had (EAGAIN: its PG has no primary now, or that is busy) is asked for again.
const FETCH_AGAIN: Duration = Duration::from_millis(100);

/// Executions of one job, each of which lacked something: what changes the object meanwhile are few changes of the PG's own.
pub(crate) const ROUNDS_MAX: u32 = 16;

/// What a job that was ready waits for after all.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    /// Objects of other OSDs that were asked for.
    pub fetching: usize,
    /// It has lacked data: what was asked for, to be released; none: it is tried again.
    pub brought: Option<Vec<Ticket>>,
}

/// How a job stands to the others of its object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// Waits for no one and no one for it: exports. Two OSDs that copy from each other would else wait for ever.
    Free,
    /// Changes nothing.
    Shared,
    /// May change the object, its watches, or tell someone.
    Exclusive,
}

impl Order {
    /// Of a message that the PG's checks take for this.
    pub fn of(m: &MOSDOp, verdict: Verdict) -> Self {
        let tells = |c| matches!(c, code::WATCH | code::NOTIFY | code::NOTIFY_ACK);
        match verdict {
            // Nothing comes of it but an answer.
            Verdict::Refuse(_) | Verdict::Drop(_) => Self::Shared,
            Verdict::Go(Class::Write) => Self::Exclusive,
            Verdict::Go(_) if m.has(flag::RWORDERED) => Self::Exclusive,
            Verdict::Go(_) if m.ops.iter().any(|op| tells(op.code)) => Self::Exclusive,
            Verdict::Go(_) => Self::Shared,
        }
    }
}

#[derive(Debug)]
pub(crate) enum Task {
    Message(Box<ClientOp>),
    Export {
        token: u64,
        object: HObject,
    },
    /// The object is copied to a member: its turn lasts until the member has it.
    Copy {
        member: OsdId,
        token: u64,
    },
    /// A bad copy is made good.
    Repair {
        id: u64,
    },
    /// The copies are compared: its turn lasts until they are found the same, or repaired.
    Check {
        token: u64,
    },
}

#[derive(Debug)]
pub(crate) struct Job {
    pub task: Task,
    /// The object that it is about.
    pub head: HObject,
    pub order: Order,
    /// What the disk was asked for, to be released.
    pub tickets: Vec<Ticket>,
    /// Objects of other OSDs, as far as they came.
    pub copies: Copies,
    /// It met a damaged copy before, and a repair was tried.
    pub repaired: bool,
    /// Executions that lacked something.
    pub rounds: u32,
    has_turn: bool,
    /// Tickets whose read has not ended.
    reading: usize,
    /// Objects that other OSDs were asked for and that have not come.
    fetching: usize,
    /// Until then nobody is asked for those that could not be had.
    pausing: bool,
}

impl Job {
    pub fn new(task: Task, head: HObject, order: Order, tickets: Vec<Ticket>) -> Self {
        Self {
            task,
            head,
            order,
            reading: tickets.len(),
            tickets,
            copies: Copies::default(),
            repaired: false,
            rounds: 0,
            has_turn: false,
            fetching: 0,
            pausing: false,
        }
    }

    fn is_ready(&self) -> bool {
        self.has_turn && self.reading == 0 && self.fetching == 0 && !self.pausing
    }
}

/// The jobs of one object.
#[derive(Debug, Default)]
struct Turns {
    /// Have their turn now.
    now: usize,
    /// The only one of these is exclusive.
    exclusive: bool,
    /// In the order in which they came.
    behind: VecDeque<JobId>,
}

impl Turns {
    fn is_free_for(&self, order: Order) -> bool {
        match order {
            Order::Free => true,
            Order::Shared => !self.exclusive,
            Order::Exclusive => self.now == 0,
        }
    }

    fn give(&mut self, order: Order) {
        self.now += 1;
        self.exclusive = order == Order::Exclusive;
    }
}

#[derive(Debug)]
pub(crate) struct Parked {
    /// Ascending in the order in which they came.
    jobs: BTreeMap<JobId, Job>,
    objects: HashMap<HObject, Turns>,
    reads: NumberMap<Ticket, JobId>,
    /// Fetches under way: whose, and for which of its operations.
    fetches: HashMap<u64, (JobId, usize)>,
    /// Pausing jobs, and until when; ascending. Those that are gone are passed over.
    pauses: VecDeque<(Duration, JobId)>,
    last_job: JobId,
    last_fetch: u64,
}

impl Parked {
    /// Fetches are numbered behind `before`: an answer to the PG's life before must not be taken for one to this.
    pub fn new(before: u64) -> Self {
        Self {
            jobs: BTreeMap::new(),
            objects: HashMap::new(),
            reads: NumberMap::default(),
            fetches: HashMap::new(),
            pauses: VecDeque::new(),
            last_job: 0,
            last_fetch: before,
        }
    }

    /// True if a message of this order need not queue behind another of its object.
    pub fn is_free_for(&self, head: &HObject, order: Order) -> bool {
        let turns = self.objects.get(head);
        turns.is_none_or(|t| t.behind.is_empty() && t.is_free_for(order))
    }

    pub fn has_messages(&self) -> bool {
        self.jobs.values().any(|job| matches!(job.task, Task::Message(_)))
    }

    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// Nothing is left of anything.
    #[cfg(test)]
    pub fn is_idle(&self) -> bool {
        self.jobs.is_empty()
            && self.objects.is_empty()
            && self.reads.is_empty()
            && self.fetches.is_empty()
            && self.pauses.is_empty()
    }

    /// Takes a job in; its number, if it is ready at once.
    pub(super) fn add(&mut self, mut job: Job) -> Option<JobId> {
        self.last_job += 1;
        let id = self.last_job;
        job.has_turn = self.is_free_for(&job.head, job.order) || job.order == Order::Free;
        if job.order != Order::Free {
            let turns = self.objects.entry(job.head.clone()).or_default();
            match job.has_turn {
                true => turns.give(job.order),
                false => turns.behind.push_back(id),
            }
        }
        self.reads.extend(job.tickets.iter().map(|t| (*t, id)));
        let ready = job.is_ready();
        self.jobs.insert(id, job);
        ready.then_some(id)
    }

    /// Takes in a repair, or who waits for one, before all others that have no turn yet; the repair first.
    pub(super) fn add_first(&mut self, job: Job) {
        self.last_job += 1;
        let id = self.last_job;
        let jobs = &self.jobs;
        let is_repair = |id: &JobId| {
            jobs.get(id)
                .is_some_and(|j| matches!(j.task, Task::Repair { .. }))
        };
        let turns = self.objects.entry(job.head.clone()).or_default();
        let repair_at = turns.behind.iter().position(is_repair);
        turns.behind.insert(repair_at.map_or(0, |at| at + 1), id);
        self.jobs.insert(id, job);
    }

    pub(super) fn is_ready(&self, id: JobId) -> bool {
        self.jobs.get(&id).is_some_and(Job::is_ready)
    }

    /// The disk is done with one read; the job that this makes ready.
    pub(super) fn read_ended(&mut self, ticket: Ticket) -> Option<JobId> {
        let id = self.reads.remove(&ticket)?;
        self.jobs.get_mut(&id)?.reading -= 1;
        self.is_ready(id).then_some(id)
    }

    /// A number for a fetch on behalf of a job's operation.
    pub fn begin_fetch(&mut self, id: JobId, index: usize) -> u64 {
        self.last_fetch += 1;
        self.fetches.insert(self.last_fetch, (id, index));
        self.last_fetch
    }

    /// An object came; the job that this makes ready.
    pub(super) fn fetch_ended(&mut self, fetch: u64, copy: Fetched, now: Duration) -> Option<JobId> {
        let (id, index) = self.fetches.remove(&fetch)?;
        let job = self.jobs.get_mut(&id)?;
        job.fetching -= 1;
        match copy {
            Err(Errno::EAGAIN) => {
                if !std::mem::replace(&mut job.pausing, true) {
                    self.pauses.push_back((now + FETCH_AGAIN, id));
                }
            }
            copy => drop(job.copies.insert(index, copy)),
        }
        self.is_ready(id).then_some(id)
    }

    /// When a job has paused enough.
    pub fn next_pause(&self) -> Option<Duration> {
        self.pauses.front().map(|(until, _)| *until)
    }

    /// A job that has paused enough, ready or not; [`Parked::next_pause`] tells whether there is one.
    pub(super) fn end_pause(&mut self, now: Duration) -> Option<JobId> {
        while let Some((_, id)) = self.pauses.pop_front_if(|(until, _)| *until <= now) {
            if let Some(job) = self.jobs.get_mut(&id) {
                job.pausing = false;
                return Some(id);
            }
        }
        None
    }

    /// Takes a ready job out to be executed. It keeps its turn until [`Parked::end`].
    pub(super) fn take(&mut self, id: JobId) -> Option<Job> {
        self.jobs.remove(&id)
    }

    /// It is not ready after all, and keeps its turn. True if it is: nothing of what it lacked has to be waited for.
    pub(super) fn put_back(&mut self, id: JobId, mut job: Job, waits: Waits) -> bool {
        job.fetching = waits.fetching;
        let mut again = false;
        if let Some(tickets) = waits.brought {
            job.rounds += 1;
            job.reading += tickets.len();
            again = tickets.is_empty();
            self.reads.extend(tickets.iter().map(|t| (*t, id)));
            job.tickets.extend(tickets);
        }
        self.jobs.insert(id, job);
        again
    }

    /// The turn of a job that was taken out is over. False: no other waits for this object, and [`Parked::next_ready`] has nothing
    /// to find.
    pub(super) fn end(&mut self, head: &HObject, order: Order) -> bool {
        if order == Order::Free {
            return true;
        }
        let Some(turns) = self.objects.get_mut(head) else {
            return false;
        };
        turns.now -= 1;
        turns.exclusive = false;
        let others = !turns.behind.is_empty();
        if turns.now == 0 && !others {
            self.objects.remove(head);
        }
        others
    }

    /// Gives turns on the object; the next job that has one and is ready.
    pub(super) fn next_ready(&mut self, head: &HObject) -> Option<JobId> {
        let turns = self.objects.get_mut(head)?;
        while let Some(id) = turns.behind.front().copied() {
            let Some(job) = self.jobs.get_mut(&id) else {
                turns.behind.pop_front();
                continue;
            };
            if !turns.is_free_for(job.order) {
                return None;
            }
            turns.behind.pop_front();
            turns.give(job.order);
            job.has_turn = true;
            if job.is_ready() {
                return Some(id);
            }
        }
        if turns.now == 0 {
            self.objects.remove(head);
        }
        None
    }

    /// Takes out the jobs for which `gone` holds. Their objects want [`Parked::next_ready`] then.
    pub(super) fn remove(&mut self, gone: impl Fn(&Job) -> bool) -> Vec<Job> {
        let out: Vec<Job> = self
            .jobs
            .extract_if(.., |_, job| gone(job))
            .map(|(_, job)| job)
            .collect();
        if out.is_empty() {
            return out;
        }
        let jobs = &self.jobs;
        self.pauses.retain(|(_, id)| jobs.contains_key(id));
        self.reads.retain(|_, id| jobs.contains_key(id));
        self.fetches.retain(|_, (id, _)| jobs.contains_key(id));
        // Queues skip the numbers of those that had no turn yet.
        for job in out.iter().filter(|job| job.has_turn) {
            self.end(&job.head, job.order);
        }
        out
    }
}

pub(super) fn release(tickets: Vec<Ticket>, store: &mut dyn ObjectStore) {
    tickets.into_iter().for_each(|t| store.release(t));
}
