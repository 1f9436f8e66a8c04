//! The metadata server without I/O: what clients say, what was read and what became durable goes in; messages, reads, appends and work
//! on objects come out.
//!
//! Vocabulary: a *request* is what a client asks for; it is carried out in one go once all that it needs is in memory and no client holds
//! what stands against it, and begins again from its start until then. A *transaction* is the rows that it leaves.
//!
//! Invariants: nothing leaves before every transaction that it may depend on is durable: each effect waits for the last one made before it
//! ([`Machine::push`]), in order. So whoever hears of a change hears of one that stays. Nobody but a client itself gives up its
//! capabilities, except when it was fenced.
//!
//! Not here: sockets, clocks, the pools (`crate::serve`, `crate::keeper`).

pub(crate) mod caps;
mod evict;
pub(crate) mod flocks;
mod load;
mod reconnect;
pub(crate) mod reply;
pub(crate) mod requests;
mod session;
mod sums;
mod write_back;

#[cfg(test)]
mod tests;

pub use load::{PageRead, Read};
pub use write_back::Write;

use crate::journal::{Batch, Change};
use crate::membership::{Assigned, MdsState};
use crate::place::Fragment;
use crate::row::{Counters, Inode, Job, Key, Row};
use crate::table::Table;
use bytes::Bytes;
use caps::InodeCaps;
use flocks::FileLocks;
use load::Loads;
use msgr::{Message, Peer};
use requests::{Request, RequestId};
use session::{Session, Sessions};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use types::{EntityAddr, Epoch, Utime};
use write_back::WriteBack;

/// A connection, by the shell's number.
pub type Conn = u64;
/// A client's number in the cluster.
pub type ClientId = u64;

#[derive(Debug)]
pub enum Event {
    Opened {
        conn: Conn,
        peer: Arc<Peer>,
    },
    Closed {
        conn: Conn,
    },
    Message {
        conn: Conn,
        message: Message,
    },
    /// Rows that were asked for.
    Loaded {
        id: u64,
        rows: Vec<Option<Bytes>>,
    },
    /// A page of names; `end`: there are no more in the object.
    Paged {
        id: u64,
        rows: Vec<(Bytes, Bytes)>,
        end: bool,
    },
    /// All transactions up to this one are durable.
    Appended {
        last_tx: u64,
    },
    Flushed {
        id: u64,
    },
    /// The names of this directory's fragment are in both its halves.
    Split {
        dir: u64,
    },
    Trimmed,
    /// `size`: what a probe found.
    JobDone {
        id: u64,
        size: Option<u64>,
    },
    Fenced {
        client: ClientId,
        epoch: Epoch,
    },
    Assigned(Assigned),
    Pools(BTreeMap<i64, String>),
    /// Once or more in a second.
    Tick,
}

#[derive(Debug)]
pub enum Effect {
    Send {
        conn: Conn,
        message: Message,
    },
    Close {
        conn: Conn,
        why: &'static str,
    },
    Load {
        id: u64,
        reads: Vec<Read>,
    },
    Page {
        id: u64,
        read: PageRead,
    },
    /// `new`: the segment begins with it.
    Append {
        segment: u64,
        new: bool,
        bytes: Bytes,
        last_tx: u64,
    },
    Flush {
        id: u64,
        writes: Vec<Write>,
    },
    /// Copies the names of a fragment, as they are in the pool, to its halves.
    Split {
        dir: u64,
        fragment: Fragment,
    },
    /// Segments below `first` are needed no more.
    Trim {
        first: u64,
        next_tx: u64,
        gone: Vec<u64>,
    },
    Job {
        id: u64,
        job: Arc<Job>,
    },
    Fence {
        client: ClientId,
        addr: EntityAddr,
    },
    Report(MdsState),
}

/// Now, as the shell sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Now {
    pub monotonic: Duration,
    pub wall: Utime,
}

/// What may be chosen.
#[derive(Debug, Clone)]
pub struct Options {
    /// Rows that nobody uses are kept in so much memory.
    pub cache_bytes: usize,
    /// Clients cache what they may; false: they ask each time.
    pub caching: bool,
    /// How long clients may take to come back after a restart.
    pub reconnect: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            cache_bytes: 256 << 20,
            caching: false,
            reconnect: Duration::from_secs(45),
        }
    }
}

/// Why a request is not carried out now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stop {
    Error(types::Errno),
    /// Rows have to be read.
    Load(Vec<Key>),
    Page(PageRead),
    /// It was registered where it waits.
    Wait,
}

impl From<types::Errno> for Stop {
    fn from(e: types::Errno) -> Self {
        Self::Error(e)
    }
}

pub(crate) type Result<T> = std::result::Result<T, Stop>;

/// What is to become true, all at once.
#[derive(Debug, Default)]
pub(crate) struct Tx {
    pub changes: Vec<Change>,
}

impl Tx {
    pub fn put(&mut self, key: Key, row: Row) {
        self.changes.push((key, Some(row)));
    }

    pub fn remove(&mut self, key: Key) {
        self.changes.push((key, None));
    }

    pub fn inode(&mut self, inode: Inode) {
        self.put(Key::inode(inode.ino), Row::Inode(Arc::new(inode)));
    }
}

pub struct Machine {
    pub(crate) options: Options,
    pub(crate) now: Now,
    pub(crate) place: Assigned,
    pub(crate) state: MdsState,
    pub(crate) table: Table,
    pub(crate) counters: Counters,
    /// Of the last transaction made, and of the last durable one.
    pub(crate) tx: u64,
    pub(crate) committed: u64,
    is_new: bool,
    batch: Batch,
    appending: bool,
    pub(crate) wb: WriteBack,
    outbox: VecDeque<(u64, Effect)>,
    out: Vec<Effect>,
    pub(crate) sessions: Sessions,
    pub(crate) caps: BTreeMap<u64, InodeCaps>,
    pub(crate) flocks: BTreeMap<u64, FileLocks>,
    pub(crate) requests: BTreeMap<RequestId, Request>,
    pub(crate) last_request: RequestId,
    /// To be tried again in this turn.
    pub(crate) runnable: VecDeque<RequestId>,
    pub(crate) loads: Loads,
    pub(crate) jobs: BTreeMap<u64, RequestId>,
    pub(crate) jobs_running: BTreeSet<u64>,
    pub(crate) jobs_waiting: VecDeque<u64>,
    /// Files whose size is being found, and by which job.
    pub(crate) probes: BTreeMap<u64, u64>,
    pub(crate) untold: BTreeSet<u64>,
    /// Inodes without names that clients held.
    pub(crate) strays: BTreeSet<u64>,
    pub(crate) realms: BTreeSet<u64>,
    pub(crate) writing: BTreeSet<u64>,
    pub(crate) reconnecting: Option<reconnect::Reconnecting>,
    /// When clients were last asked to give back.
    pub(crate) recalled: Duration,
    /// As the OSD map has them.
    pub(crate) pool_names: BTreeMap<i64, String>,
    pub(crate) last_cap_id: u64,
    /// Sessions that are ended so that another takes their place, and who asked.
    pub(crate) reclaiming: BTreeMap<ClientId, Conn>,
    /// Clients are told to have this OSD map before they trust what they are given.
    pub(crate) osd_barrier: Epoch,
}

impl Machine {
    /// `rows`: the tables that are read whole, and then what the journal says, in order.
    pub fn new(options: Options, place: Assigned, start: Start) -> Self {
        let mut m = Self {
            options,
            now: Now::default(),
            state: MdsState::Replay,
            table: Table::default(),
            counters: Counters {
                next_ino: crate::row::FIRST_INO,
                next_job: 1,
                last_snap: 1,
            },
            tx: 0,
            committed: 0,
            is_new: start.is_new,
            batch: Batch::default(),
            appending: false,
            wb: WriteBack::new(&start),
            outbox: VecDeque::new(),
            out: Vec::new(),
            sessions: Sessions::default(),
            caps: BTreeMap::new(),
            flocks: BTreeMap::new(),
            requests: BTreeMap::new(),
            last_request: 0,
            runnable: VecDeque::new(),
            loads: Loads::default(),
            jobs: BTreeMap::new(),
            jobs_running: BTreeSet::new(),
            jobs_waiting: VecDeque::new(),
            probes: BTreeMap::new(),
            untold: BTreeSet::new(),
            strays: BTreeSet::new(),
            realms: BTreeSet::new(),
            writing: BTreeSet::new(),
            reconnecting: None,
            recalled: Duration::ZERO,
            pool_names: BTreeMap::new(),
            last_cap_id: 0,
            reclaiming: BTreeMap::new(),
            osd_barrier: place.osd_epoch,
            place,
        };
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
        self.committed = self.tx;
        self.recover();
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
                (Key::Realm(ino), _) => drop(self.realms.insert(ino)),
                (Key::Writing(ino), _) => drop(self.writing.insert(ino)),
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
            Event::Appended { last_tx } => self.appended(last_tx),
            Event::Flushed { id } => self.flushed(id),
            Event::Split { dir } => self.has_split(dir),
            Event::Trimmed => self.wb.trimming = false,
            Event::JobDone { id, size } => self.job_done(id, size),
            Event::Fenced { client, epoch } => self.fenced(client, epoch),
            Event::Assigned(place) => self.place = place,
            Event::Pools(names) => self.pool_names = names,
            Event::Tick => self.tick(),
        }
        self.run_requests();
        self.append();
        std::mem::take(&mut self.out)
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

    /// Leaves when all that was changed before is durable.
    pub(crate) fn push(&mut self, effect: Effect) {
        if self.outbox.is_empty() && self.committed >= self.tx {
            self.out.push(effect);
        } else {
            self.outbox.push_back((self.tx, effect));
        }
    }

    /// Leaves at once: depends on nothing that was changed.
    pub(crate) fn push_now(&mut self, effect: Effect) {
        self.out.push(effect);
    }

    /// Makes it true in memory, and durable as soon as may be.
    pub(crate) fn commit(&mut self, mut tx: Tx) {
        if tx.changes.is_empty() {
            return;
        }
        self.tx += 1;
        for (key, row) in &mut tx.changes {
            if let Some(Row::Inode(inode)) = row {
                let inode = Arc::make_mut(inode);
                inode.version = self.tx * 2;
                if !inode.untold.is_zero() {
                    self.untold.insert(inode.ino);
                }
                if inode.is_dir() && crate::place::to_split(inode).is_some() {
                    self.wb.crowded.insert(inode.ino);
                }
            }
            if let Some(Row::Counters(c)) = row {
                self.counters = *c;
            }
            self.table.put(self.tx, key.clone(), row.clone());
        }
        self.batch.add(self.tx, &tx.changes);
    }

    /// One append for all that waits.
    fn append(&mut self) {
        if self.appending || self.batch.is_empty() {
            return;
        }
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
        while self.outbox.front().is_some_and(|(tx, _)| *tx <= last_tx) {
            if let Some((_, effect)) = self.outbox.pop_front() {
                self.out.push(effect);
            }
        }
        self.write_back();
    }

    fn tick(&mut self) {
        self.tell_sums();
        self.look_after_sessions();
        self.recall();
        self.look_after_reconnect();
        self.write_back();
        self.evict();
    }

    /// Bytes and rows in memory, for who looks.
    pub fn usage(&self) -> (usize, usize, usize) {
        (self.table.len(), self.table.bytes(), self.table.dirty_len())
    }

    pub fn state(&self) -> MdsState {
        self.state
    }

    pub fn sessions_len(&self) -> usize {
        self.sessions.len()
    }

    // Rows

    pub(crate) fn inode_opt(&mut self, ino: u64) -> Result<Option<Arc<Inode>>> {
        let key = Key::inode(ino);
        match self.table.get(&key) {
            Some(Some(Row::Inode(i))) => {
                let i = i.clone();
                if !i.untold.is_zero() {
                    self.untold.insert(ino);
                }
                Ok(Some(i))
            }
            Some(_) => Ok(None),
            None => Err(Stop::Load(vec![key])),
        }
    }

    /// An inode that has to be there.
    pub(crate) fn inode(&mut self, ino: u64) -> Result<Arc<Inode>> {
        self.inode_opt(ino)?.ok_or(Stop::Error(types::Errno::ESTALE))
    }

    /// What is in memory.
    pub(crate) fn cached(&self, ino: u64) -> Option<Arc<Inode>> {
        match self.table.peek(&Key::inode(ino)) {
            Some(Row::Inode(i)) => Some(i.clone()),
            _ => None,
        }
    }

    pub(crate) fn dentry(&mut self, dir: u64, name: &Bytes) -> Result<Option<crate::row::Dentry>> {
        let key = Key::dentry(dir, name);
        let complete = self.table.is_complete(dir);
        match self.table.get(&key) {
            Some(Some(Row::Dentry(d))) => Ok(Some(*d)),
            Some(_) => Ok(None),
            None if complete => Ok(None),
            None => Err(Stop::Load(vec![key])),
        }
    }

    pub(crate) fn session(&mut self, client: ClientId) -> Option<&mut Session> {
        self.sessions.get_mut(client)
    }

    pub(crate) fn new_ino(&mut self, tx: &mut Tx) -> u64 {
        let ino = self.counters.next_ino;
        self.counters.next_ino += 1;
        tx.put(Key::Counters, Row::Counters(self.counters));
        ino
    }

    /// Work on objects, from when the transaction is durable.
    pub(crate) fn new_job(&mut self, tx: &mut Tx, job: Job) -> u64 {
        let id = self.counters.next_job;
        self.counters.next_job += 1;
        tx.put(Key::Counters, Row::Counters(self.counters));
        tx.put(Key::Job(id), Row::Job(Arc::new(job)));
        self.jobs_waiting.push_back(id);
        id
    }

    /// All that was changed is durable, and what waited for it has left.
    pub fn is_durable(&self) -> bool {
        self.committed >= self.tx && self.outbox.is_empty()
    }
}

/// What was found in the pool.
#[derive(Debug, Default)]
pub struct Start {
    pub tables: Vec<(Key, Row)>,
    pub journal: crate::journal::Replayed,
    /// Segments that are there: number, bytes, and its first transaction.
    pub segments: Vec<(u64, u64, u64)>,
    pub next_segment: u64,
    pub next_tx: u64,
    /// Nothing was ever written.
    pub is_new: bool,
}
