//! The machine's state: rows in memory, what waits to be durable, and what leaves when it is.

use super::parts::caps::InodeCaps;
use super::parts::early::Early;
use super::parts::events::{Effect, Now, Options};
use super::parts::leases::Leases;
use super::parts::loads::Loads;
use super::parts::locks::FileLocks;
use super::parts::outbox::Outbox;
use super::parts::reconnecting::Reconnecting;
use super::parts::replays::Replays;
use super::parts::request::{Request, RequestId};
use super::parts::sessions::{Session, Sessions};
use super::parts::traces::Traces;
use super::parts::trim::Trim;
use super::parts::tx::{ClientId, Conn, Result, Start, Stop, Tx};
use super::parts::writes::WriteBack;
use crate::journal::Batch;
use crate::membership::{Assigned, MdsState};
use crate::row::{Counters, Dentry, Inode, Job, Key, Row};
use crate::table::Table;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use types::Epoch;

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
    pub(crate) is_new: bool,
    pub(crate) batch: Batch,
    pub(crate) appending: bool,
    pub(crate) wb: WriteBack,
    pub(crate) outbox: Outbox,
    pub(crate) out: Vec<Effect>,
    pub(crate) early: Early,
    pub(crate) replays: Replays,
    pub(crate) sessions: Sessions,
    pub(crate) caps: BTreeMap<u64, InodeCaps>,
    pub(crate) leases: Leases,
    pub(crate) flocks: BTreeMap<u64, FileLocks>,
    pub(crate) requests: BTreeMap<RequestId, Request>,
    pub(crate) last_request: RequestId,
    /// To be tried again in this turn.
    pub(crate) runnable: VecDeque<RequestId>,
    pub(crate) loads: Loads,
    /// Whose request is being carried out.
    pub(crate) serving: Option<ClientId>,
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
    pub(crate) traces: Traces,
    /// Snapshots that exist, and the directory of each.
    pub(crate) snaps: BTreeMap<u64, u64>,
    pub(crate) trim: Option<Trim>,
    pub(crate) reconnecting: Option<Reconnecting>,
    /// When clients were last asked to give back.
    pub(crate) recalled: Duration,
    /// When all that clients hold was last looked through for what is above.
    pub(crate) looked_above: Duration,
    /// As the OSD map has them.
    pub(crate) pool_names: BTreeMap<i64, String>,
    pub(crate) last_cap_id: u64,
    /// Sessions that are ended so that another takes their place, and who asked.
    pub(crate) reclaiming: BTreeMap<ClientId, Conn>,
    /// Answers to commands that wait for sessions to be gone.
    pub(crate) told: Vec<super::told::Waiting>,
    pub(crate) osd_epoch: Epoch,
    /// Clients are told to have this OSD map before they trust what they are given.
    pub(crate) osd_barrier: Epoch,
}

impl Machine {
    /// Before anything is replayed.
    pub(crate) fn empty(options: Options, place: Assigned, start: &Start) -> Self {
        Self {
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
            wb: WriteBack::new(start),
            outbox: Outbox::default(),
            out: Vec::new(),
            early: Early::default(),
            replays: Replays::default(),
            sessions: Sessions::default(),
            caps: BTreeMap::new(),
            leases: Leases::default(),
            flocks: BTreeMap::new(),
            requests: BTreeMap::new(),
            last_request: 0,
            runnable: VecDeque::new(),
            loads: Loads::default(),
            serving: None,
            jobs: BTreeMap::new(),
            jobs_running: BTreeSet::new(),
            jobs_waiting: VecDeque::new(),
            probes: BTreeMap::new(),
            untold: BTreeSet::new(),
            strays: BTreeSet::new(),
            realms: BTreeSet::new(),
            writing: BTreeSet::new(),
            traces: Traces::default(),
            snaps: BTreeMap::new(),
            trim: None,
            reconnecting: None,
            recalled: Duration::ZERO,
            looked_above: Duration::ZERO,
            pool_names: BTreeMap::new(),
            last_cap_id: 0,
            reclaiming: BTreeMap::new(),
            told: Vec::new(),
            osd_epoch: 0,
            osd_barrier: place.osd_epoch,
            place,
        }
    }

    /// Leaves when all that was changed before is durable.
    pub(crate) fn push(&mut self, effect: Effect) {
        if self.outbox.is_empty() && self.committed >= self.tx {
            self.out.push(effect);
        } else {
            self.outbox.add(self.tx, effect);
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
        self.keep_versions(&mut tx);
        self.tx += 1;
        self.table.owners.made();
        self.early.made = self.tx;
        if super::parts::early::is_seen_otherwise(&tx.changes) {
            self.early.floor = self.tx;
        }
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
                self.early.made_ino = c.next_ino;
            }
            self.table.put(self.tx, key.clone(), row.clone());
        }
        self.batch.add(self.tx, &tx.changes);
    }

    /// Bytes and rows in memory, for who looks.
    pub fn usage(&self) -> (usize, usize, usize) {
        (self.table.count(), self.table.bytes(), self.table.dirty_len())
    }

    pub fn state(&self) -> MdsState {
        self.state
    }

    /// Inodes in memory.
    pub fn inodes_len(&self) -> usize {
        self.table.inodes()
    }

    pub fn sessions_len(&self) -> usize {
        self.sessions.len()
    }

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
        let found = self.inode_opt(ino)?.filter(|i| !i.kept.dead);
        found.ok_or(Stop::Error(types::Errno::ESTALE))
    }

    /// What is in memory.
    pub(crate) fn cached(&self, ino: u64) -> Option<Arc<Inode>> {
        match self.table.peek(&Key::inode(ino)) {
            Some(Row::Inode(i)) => Some(i.clone()),
            _ => None,
        }
    }

    pub(crate) fn dentry(&mut self, dir: u64, name: &Bytes) -> Result<Option<Dentry>> {
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
