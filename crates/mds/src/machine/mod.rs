//! The metadata server without I/O: what clients say, what was read and what became durable goes in; messages, reads, appends and work
//! on objects come out.
//!
//! Vocabulary: a *request* is what a client asks for; it is carried out in one go once all that it needs is in memory and no client holds
//! what stands against it, and begins again from its start until then. A *transaction* is the rows that it leaves.
//!
//! Invariants: nothing leaves before every transaction that it may depend on is durable: each effect waits for the last one made before it
//! ([`Machine::push`]), in order. So whoever hears of a change hears of one that stays. Answers leave earlier where they depend on nothing
//! that could be lost for their client (`early`). Nobody but a client itself gives up its
//! capabilities, except when it was fenced.
//!
//! Not here: sockets, clocks, the pools (`crate::serve`, `crate::keeper`).

mod caps;
mod delegated;
mod early;
mod evict;
mod flocks;
mod flush_snap;
mod leases;
mod load;
pub(crate) mod parts;
mod realms;
mod reconnect;
mod replays;
mod reply;
mod requests;
mod session;
mod state;
mod sums;
mod told;
mod traces;
mod trims;
mod versions;
mod write_back;

#[cfg(test)]
mod tests;

pub use parts::caps::Caching;
pub use parts::events::{Effect, Event, Now, Options};
pub use parts::loads::{PageRead, Read};
pub use parts::traces::Trace;
pub use parts::tx::{ClientId, Conn, Start};
pub use parts::writes::Write;
pub use state::Machine;

pub(crate) use parts::request::{Answer, Phase, Request, RequestId};
pub(crate) use parts::tx::{Result, Stop, Tx, all};

use crate::journal;
use crate::membership::{Assigned, MdsState};
use crate::row::{Key, Row};

impl Machine {
    /// `start`: the tables that are read whole, and what the journal says, in order.
    pub fn new(options: Options, place: Assigned, start: Start) -> Self {
        let mut m = Self::empty(options, place, &start);
        m.replay(start);
        m
    }

    fn replay(&mut self, start: Start) {
        self.tx = start.next_tx.saturating_sub(1);
        for (key, row) in start.tables {
            self.table.fill(key, Some(row));
        }
        for (tx, changes) in start.journal {
            self.tx = self.tx.max(tx);
            for (key, row) in changes {
                self.table.put(tx, key, row);
            }
        }
        // Somebody may have been told the version of a change that is not here, and takes no attributes of an older one.
        self.tx += if self.tx > 0 { journal::LIFE } else { 0 };
        self.committed = self.tx;
        self.table.owners.durable(self.tx);
        self.recover();
        self.early.made_ino = self.counters.next_ino;
        self.early.durable_ino = self.counters.next_ino;
        self.expect_replays();
    }

    /// What the rows say that are always in memory.
    fn recover(&mut self) {
        let whole: Vec<(Key, Row)> = self.table.rows().map(|(k, r)| (k.clone(), r.clone())).collect();
        for (key, row) in whole {
            match (key, row) {
                (Key::Counters, Row::Counters(c)) => self.counters = c,
                (Key::Session(id), Row::Session(row)) => self.sessions.restore(id, row),
                (Key::Done { client, tid }, Row::Done(ino)) => self.sessions.restore_done(client, tid, ino),
                (Key::Flushed { client, tid }, _) => self.sessions.restore_flushed(client, tid),
                (Key::Job(n), Row::Job(j)) => {
                    if j.kind == crate::row::job::PROBE {
                        self.probes.insert(j.ino, n);
                    }
                    self.jobs_waiting.push_back(n);
                }
                (Key::Stray(ino), _) => drop(self.strays.insert(ino)),
                (Key::Snap(id), Row::Snap(dir)) => drop(self.snaps.insert(id, dir)),
                (Key::Realm(ino), _) => drop(self.realms.insert(ino)),
                (Key::Writing(ino), _) => drop(self.writing.insert(ino)),
                (Key::Trace(ino), _) => self.traces.mark(ino, self.now.monotonic),
                (Key::Inode { ino, .. }, Row::Inode(i)) if !i.untold.is_zero() => {
                    self.untold.insert(ino);
                }
                _ => {}
            }
        }
    }

    /// Changes its state by one event. What is to be done comes out in order.
    pub fn apply(&mut self, now: Now, event: Event) -> Vec<Effect> {
        self.now = now;
        match event {
            Event::Opened { conn, peer } => self.opened(conn, &peer),
            Event::Closed { conn } => self.closed(conn),
            Event::Message { conn, message } => self.message(conn, &message),
            Event::Loaded { id, rows } => self.loaded(id, rows),
            Event::Paged { id, rows, end } => self.paged(id, rows, end),
            Event::Olds { snap, keys, end } => self.listed_olds(snap, keys, end),
            Event::Appended { last_tx } => self.appended(last_tx),
            Event::Flushed { id } => self.flushed(id),
            Event::Split { dir } => self.has_split(dir),
            Event::Trimmed => self.wb.trimming = false,
            Event::JobDone { id, size } => self.job_done(id, size),
            Event::Traced { ino } => self.traced(ino),
            Event::Fenced { client, epoch } => self.fenced(client, epoch),
            Event::Assigned(place) => self.place = place,
            Event::Pools(names) => self.pool_names = names,
            Event::Nudge => self.nudged(),
            Event::Tick => self.tick(),
        }
        self.run_requests();
        while self.hear_asked_back() {
            self.run_requests();
        }
        self.go_on_trimming();
        self.append();
        std::mem::take(&mut self.out)
    }

    /// The OSD map as our own client has it.
    pub fn saw_osd_epoch(&mut self, epoch: types::Epoch) {
        self.osd_epoch = self.osd_epoch.max(epoch);
    }

    /// To be called once, before any event: says where it stands.
    pub fn begin(&mut self, now: Now) -> Vec<Effect> {
        self.now = now;
        if self.is_new {
            self.create();
        } else {
            self.begin_reconnect();
        }
        self.append();
        std::mem::take(&mut self.out)
    }

    /// A file system of which nothing is there yet.
    fn create(&mut self) {
        self.state = MdsState::Creating;
        self.push(Effect::Report(MdsState::Creating));
        let mut tx = Tx::default();
        tx.inode(requests::root(&self.place, self.now.wall));
        tx.put(Key::Counters, Row::Counters(self.counters));
        self.table.is_new_dir(crate::row::ROOT);
        self.commit(tx);
        self.become_active();
    }

    pub(crate) fn become_active(&mut self) {
        self.state = MdsState::Active;
        self.push(Effect::Report(MdsState::Active));
        let all: Vec<RequestId> = self.requests.keys().copied().collect();
        self.runnable.extend(all);
        self.start_jobs();
    }

    /// One append for all that waits.
    fn append(&mut self) {
        if self.appending || self.batch.is_empty() || self.gathers() {
            return;
        }
        self.early.appending_ino = self.early.made_ino;
        self.appending = true;
        let (bytes, first_tx, last_tx) = self.batch.take();
        let (segment, new) = self.wb.segment_for(bytes.len() as u64, first_tx);
        self.push_now(Effect::Append {
            segment,
            new,
            bytes,
            last_tx,
        });
    }

    fn appended(&mut self, last_tx: u64) {
        self.appending = false;
        self.committed = last_tx;
        self.table.owners.durable(last_tx);
        self.early.durable_ino = self.early.appending_ino;
        while let Some((effect, safe_for)) = self.outbox.pop(last_tx) {
            self.out.push(effect);
            if let Some(client) = safe_for {
                self.is_safe(client);
            }
        }
        self.write_back();
    }

    fn tick(&mut self) {
        self.tell_sums();
        self.look_after_sessions();
        self.look_after_leases();
        self.recall();
        self.look_after_reconnect();
        self.look_after_replays();
        self.look_after_traces();
        self.write_back();
        self.evict();
    }
}
