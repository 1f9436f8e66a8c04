//! Operations under way, in the order of their tids, which is the order in which they were submitted.
//!
//! Invariants: what is sent again is sent in this order, so operations on one object never overtake each other; never more of
//! them or of their bytes than [`super::Limits`] allow (those about watches are not counted, since others may wait for them:
//! they are bounded by the watches, and their acknowledgements by who submits them).

use super::ids::{OpId, Tid, WatchId};
use super::op::Operation;
use super::snap::SnapContext;
use super::target::{Need, Place, Target};
use std::collections::BTreeMap;
use std::time::Duration;
use types::{Epoch, Utime};

/// What is submitted: an operation with all that it needs.
#[derive(Debug, Clone)]
pub struct Request {
    pub place: Place,
    pub operation: Operation,
    /// [`types::NOSNAP`] for writes.
    pub snap: u64,
    pub context: SnapContext,
    /// Given up after so long.
    pub timeout: Option<Duration>,
}

/// Who is told what came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    User(OpId),
    /// The registration of a watch or notify, or its renewal.
    Linger(WatchId),
    Ping(WatchId),
    /// Nobody waits: an acknowledgement, or the end of a watch that its owner dropped.
    Nobody,
}

/// Where an operation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// In the session of its target; `sent` on its present connection.
    Session { sent: bool },
    /// Until the map changes.
    Homeless,
    /// Until it is known whether the pool is gone: it is, if it is not in this epoch.
    Poolless(Option<Epoch>),
    /// Told to try again: not before then.
    Again(Duration),
}

#[derive(Debug)]
pub struct Op {
    pub owner: Owner,
    /// It counts against the limits.
    pub counted: bool,
    pub request: Request,
    pub need: Need,
    pub mtime: Utime,
    pub cost: usize,
    pub target: Option<Target>,
    pub state: State,
    /// Sends so far; what `retry_attempt` counts.
    pub sends: i32,
    pub since: Duration,
    pub deadline: Option<Duration>,
}

#[derive(Debug, Default)]
pub struct Inflight {
    ops: BTreeMap<Tid, Op>,
    by_owner: BTreeMap<OpId, Tid>,
    last_tid: Tid,
    counted: usize,
    bytes: usize,
}

impl Inflight {
    pub fn next_tid(&mut self) -> Tid {
        self.last_tid += 1;
        self.last_tid
    }

    /// Operations of users, and their bytes.
    pub fn load(&self) -> (usize, usize) {
        (self.counted, self.bytes)
    }

    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    pub fn insert(&mut self, op: Op) -> Tid {
        let tid = self.next_tid();
        if let Owner::User(id) = op.owner {
            self.by_owner.insert(id, tid);
        }
        if op.counted {
            self.counted += 1;
            self.bytes += op.cost;
        }
        self.ops.insert(tid, op);
        tid
    }

    pub fn remove(&mut self, tid: Tid) -> Option<Op> {
        let op = self.ops.remove(&tid)?;
        if let Owner::User(id) = op.owner {
            self.by_owner.remove(&id);
        }
        if op.counted {
            self.counted -= 1;
            self.bytes -= op.cost;
        }
        Some(op)
    }

    pub fn get(&self, tid: Tid) -> Option<&Op> {
        self.ops.get(&tid)
    }

    pub fn get_mut(&mut self, tid: Tid) -> Option<&mut Op> {
        self.ops.get_mut(&tid)
    }

    pub fn of(&self, id: OpId) -> Option<Tid> {
        self.by_owner.get(&id).copied()
    }

    pub fn iter(&self) -> impl Iterator<Item = (Tid, &Op)> {
        self.ops.iter().map(|(t, o)| (*t, o))
    }

    /// Those for which `f` is true, in order.
    pub fn which(&self, f: impl Fn(&Op) -> bool) -> Vec<Tid> {
        let found = self.ops.iter().filter(|(_, op)| f(op));
        found.map(|(tid, _)| *tid).collect()
    }
}
