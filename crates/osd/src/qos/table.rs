//! Which client was told to hold back operations on which object, and whose turn it is when there are tokens.
//!
//! A record is made when an operation finds no tokens: the operation is dropped, its client is told to send none on that
//! object (BLOCK), says that it has heard it (ACK), and sends them all again when it is told to (UNBLOCK).
//!
//! Invariants: from BLOCK until UNBLOCK nothing of that client on that object is let through, since what it sent before it
//! heard BLOCK may still be on its way, and would overtake what was dropped; so UNBLOCK follows the ACK, behind which nothing of
//! the kind can come. UNBLOCK also follows the answers to the reads that were let through before: a client sends again whatever of
//! the object it has no answer to, and does not look at the answer to the first sending any more; the read that is done anew
//! would find what was written behind it. Tokens are taken before UNBLOCK is sent: whoever waited does not wait twice. Within one
//! flow (a connection under the same limits, its reads or its writes) objects have their turns in order; flows take turns. For the
//! sake of who has a reservation nobody waits longer than [`HELD_MAX`].
//!
//! Bounds: [`PER_SESSION_MAX`] records of a connection, [`RECORDS_MAX`] in all; [`NAMES_MAX`] bytes of names of a connection, and
//! [`ALL_NAMES_MAX`] in all. Beyond them operations are let through, and charged: to
//! refuse them would be an error to a client that did nothing wrong, and to read no more from the connection would hold up what is
//! not limited.

use crate::qos::bucket::Cost;
use crate::qos::limits::{Ids, Limits, Passes};
use bytes::Bytes;
use net::ConnId;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;
use types::{Epoch, HObject, PgId, SPgId};

/// As many operations as a stock client has in flight to all OSDs.
pub const PER_SESSION_MAX: usize = 1024;
pub const RECORDS_MAX: usize = 16_384;
pub const NAMES_MAX: usize = 256 << 10;
pub const ALL_NAMES_MAX: usize = 2 << 20;
/// So much of what is held on one object goes at once, in the time that its tokens take: each operation that has to be sent
/// again and again costs its data each time.
const BATCH_SECONDS: f64 = 0.5;
/// Tokens are handed out no more often, so that several operations on an object go together.
const STEP: Duration = Duration::from_millis(5);
/// A client that has not come for its tokens by then loses them.
const CLAIM_WITHIN: Duration = Duration::from_secs(2);
/// A client that has not said by then that it heard BLOCK never will.
const ACK_WITHIN: Duration = Duration::from_secs(60);

/// Nobody is held longer than this for the sake of who has a reservation.
const HELD_MAX: Duration = Duration::from_secs(10);

/// Where and when a record's PG was what it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Era {
    pub interval: Epoch,
    pub pg_num: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// For tokens.
    Waits,
    /// It has them; the ACK is not here yet, or the answer to a read.
    Granted,
    /// UNBLOCK was sent: so many operations come, which are paid.
    Open {
        left: u32,
        unspent: Cost,
        until: Duration,
    },
    /// It ends without tokens as soon as the ACK is here.
    Leaves,
}

#[derive(Debug)]
struct Record {
    conn: ConnId,
    client: u64,
    pg: SPgId,
    object: HObject,
    era: Era,
    ids: Ids,
    writes: bool,
    /// Of what was dropped and goes at once.
    cost: Cost,
    acked: bool,
    since: Duration,
    /// Its tokens are of a reservation.
    ahead: bool,
    phase: Phase,
}

type Flow = (ConnId, Ids, bool);

/// A limited operation, or any other of a client that is held somewhere.
#[derive(Debug)]
pub struct Arrival<'a> {
    pub conn: ConnId,
    /// Of the client: `pg::Client::instance`.
    pub client: u64,
    pub pg: SPgId,
    /// The PG by the client's own map.
    pub named: SPgId,
    pub era: Era,
    pub object: &'a HObject,
    /// What it falls under whoever else is at work; none: it is not limited.
    pub ids: Ids,
    /// Of no operations: it is none of those that are limited.
    pub cost: Cost,
    pub writes: bool,
    /// The client knows what BLOCK means.
    pub can_be_held: bool,
}

impl Arrival<'_> {
    /// How it is let through, if it is.
    pub fn passes(&self, ahead: bool) -> Passes {
        match (ahead, self.can_be_held) {
            (true, _) => Passes::Ahead,
            (false, true) => Passes::Other,
            (false, false) => Passes::Unheld,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It goes on.
    Go,
    /// It goes on, within a reservation: what it takes from now on decides what is left for others.
    Ahead,
    /// It is dropped: its client holds the object, or will.
    Drop,
    /// It is dropped, and its client is told so under this number.
    Block(u64),
}

impl Verdict {
    fn go(ahead: bool) -> Self {
        match ahead {
            true => Self::Ahead,
            false => Self::Go,
        }
    }
}

/// What a client is told about an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    pub conn: ConnId,
    pub pg: SPgId,
    pub id: u64,
    pub object: HObject,
}

/// What one connection holds back.
#[derive(Debug, Default)]
struct OfSession {
    /// By the PG as the client names it: in another it sends everything anew, whatever it was told of the first.
    objects: BTreeMap<(SPgId, HObject), u64>,
    names: usize,
}

#[derive(Debug, Default)]
pub struct Table {
    records: BTreeMap<u64, Record>,
    by_object: BTreeMap<ConnId, OfSession>,
    /// Bytes of the names of all objects.
    names: usize,
    flows: BTreeMap<Flow, VecDeque<u64>>,
    /// Flows that wait, in the order of their turns.
    turns: VecDeque<Flow>,
    /// Records whose tokens are to be claimed, by when.
    open: BTreeSet<(Duration, u64)>,
    /// When tokens may be there for somebody.
    due: Option<Duration>,
    /// Records that have tokens and their ACK: nothing but the answers to reads is in their way.
    ready: BTreeSet<u64>,
    /// When to look at those.
    ready_due: Option<Duration>,
    last: u64,
}

impl Table {
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    pub fn len(&self) -> usize {
        self.records.len()
    }

    fn find(&self, a: &Arrival<'_>) -> Option<u64> {
        let of = self.by_object.get(&a.conn)?;
        of.objects.get(&(a.named, a.object.clone())).copied()
    }

    pub fn arrive(&mut self, a: &Arrival<'_>, limits: &mut Limits, now: Duration) -> Verdict {
        if let Some(id) = self.find(a)
            && let Some(verdict) = self.again(id, a, limits, now)
        {
            return verdict;
        }
        let (ids, wait, ahead) = limits.admit(a.ids, &a.cost, now);
        if wait.is_zero() {
            limits.charge(ids, &a.cost, a.passes(ahead), now);
            limits.count(ids, |l| l.served += 1);
            return Verdict::go(ahead);
        }
        // A second record of an object whose tokens are being claimed would share its name.
        let known = self.find(a);
        if let Some(id) = known {
            self.end(id, limits);
        }
        if !a.can_be_held || !self.has_room(a) {
            limits.charge(ids, &a.cost, Passes::Unheld, now);
            limits.count(ids, |l| l.served += 1);
            limits.unheld(ids);
            return Verdict::Go;
        }
        limits.held(ids);
        Verdict::Block(self.hold(a, ids, wait, now))
    }

    /// An operation on an object of which there is a record; None: that does not speak for it.
    fn again(&mut self, id: u64, a: &Arrival<'_>, limits: &mut Limits, now: Duration) -> Option<Verdict> {
        let record = self.records.get_mut(&id)?;
        let (ids, ahead) = (record.ids, record.ahead);
        let same = a.cost.ops > 0 && a.ids == ids.always();
        match &mut record.phase {
            Phase::Waits => {
                let with = record.cost.plus(a.cost);
                if same && limits.seconds_of(ids, &with) <= BATCH_SECONDS {
                    record.cost = with;
                }
                limits.held(if same { ids } else { a.ids });
                Some(Verdict::Drop)
            }
            Phase::Granted | Phase::Leaves => Some(Verdict::Drop),
            Phase::Open { left, unspent, .. } => {
                if !same {
                    return None;
                }
                // What comes may be more than what was counted when it came first.
                limits.charge(ids, &a.cost.less(unspent), a.passes(ahead), now);
                *unspent = unspent.less(&a.cost);
                *left = left.saturating_sub(1);
                if *left == 0 {
                    self.end(id, limits);
                }
                limits.count(ids, |l| l.served += 1);
                Some(Verdict::go(ahead))
            }
        }
    }

    fn has_room(&self, a: &Arrival<'_>) -> bool {
        let of = self.by_object.get(&a.conn);
        let (objects, names) = of.map_or((0, 0), |of| (of.objects.len(), of.names));
        let name = name_bytes(a.object);
        objects < PER_SESSION_MAX
            && names + name <= NAMES_MAX
            && self.records.len() < RECORDS_MAX
            && self.names + name <= ALL_NAMES_MAX
    }

    fn hold(&mut self, a: &Arrival<'_>, ids: Ids, wait: Duration, now: Duration) -> u64 {
        self.last += 1;
        let id = self.last;
        // Nothing of the message that it came with.
        let object = owned(a.object);
        let of = self.by_object.entry(a.conn).or_default();
        of.objects.insert((a.named, object.clone()), id);
        of.names += name_bytes(&object);
        self.names += name_bytes(&object);
        let record = Record {
            conn: a.conn,
            client: a.client,
            pg: a.pg,
            object,
            era: a.era,
            ids,
            writes: a.writes,
            cost: a.cost,
            acked: false,
            since: now,
            ahead: false,
            phase: Phase::Waits,
        };
        let flow = record.flow();
        self.records.insert(id, record);
        let queue = self.flows.entry(flow).or_default();
        if queue.is_empty() {
            self.turns.push_back(flow);
        }
        queue.push_back(id);
        self.wake(now + wait.max(STEP));
        id
    }

    fn wake(&mut self, at: Duration) {
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }

    /// Limits have changed: looks at who may go now.
    pub fn look(&mut self, now: Duration) {
        if !self.turns.is_empty() {
            self.wake(now);
        }
    }

    pub fn next_timer(&self) -> Option<Duration> {
        let claims = self.open.first().map(|(at, _)| *at);
        [self.due, self.ready_due, claims].into_iter().flatten().min()
    }

    /// Hands out the tokens that there are. Those clients that may send again go to `out`; `is_read`: whether a client waits for the answer to a read of
    /// an object.
    pub fn step(
        &mut self,
        limits: &mut Limits,
        is_read: impl Fn(u64, PgId, &Bytes) -> bool,
        now: Duration,
        out: &mut Vec<Notice>,
    ) {
        self.hand_out(limits, now, out);
        if self.ready_due.is_none_or(|due| due > now) {
            return;
        }
        self.ready_due = None;
        for id in std::mem::take(&mut self.ready) {
            let Some(record) = self.records.get_mut(&id) else {
                continue;
            };
            if is_read(record.client, record.pg.pg, &record.object.oid) {
                self.ready.insert(id);
                self.ready_due = Some(now + STEP * 4);
                continue;
            }
            let until = now + CLAIM_WITHIN;
            record.phase = Phase::Open {
                left: record.cost.ops,
                unspent: record.cost,
                until,
            };
            out.push(record.notice(id));
            self.open.insert((until, id));
        }
    }

    fn hand_out(&mut self, limits: &mut Limits, now: Duration, out: &mut Vec<Notice>) {
        while let Some((until, id)) = self.open.first().copied()
            && until <= now
        {
            self.end(id, limits);
        }
        if self.due.is_none_or(|due| due > now) {
            return;
        }
        self.due = None;
        limits.nobody_is_short();
        let mut stopped: VecDeque<Flow> = VecDeque::new();
        while let Some(flow) = self.turns.pop_front() {
            let head = self.flows.get(&flow).and_then(|queue| queue.front().copied());
            let Some((id, record)) = head.and_then(|id| Some((id, self.records.get_mut(&id)?))) else {
                self.flows.remove(&flow);
                continue;
            };
            let (wait, ahead) = record.turn(limits, now);
            if !wait.is_zero() {
                self.wake(now + wait.max(STEP));
                stopped.push_back(flow);
                continue;
            }
            let passes = match ahead {
                true => Passes::Ahead,
                false => Passes::Other,
            };
            if ahead {
                (record.ids, record.ahead) = (record.ids.always(), true);
            }
            limits.charge(record.ids, &record.cost, passes, now);
            record.phase = Phase::Granted;
            self.unqueue(flow, id);
            if self.flows.contains_key(&flow) {
                self.turns.push_back(flow);
            }
            self.open_if_acked(id, now, out);
        }
        // Who could not go is first the next time.
        self.turns = stopped;
    }

    fn unqueue(&mut self, flow: Flow, id: u64) {
        if let Some(queue) = self.flows.get_mut(&flow) {
            queue.retain(|other| *other != id);
            if queue.is_empty() {
                self.flows.remove(&flow);
            }
        }
    }

    fn open_if_acked(&mut self, id: u64, now: Duration, out: &mut Vec<Notice>) {
        let Some(record) = self.records.get_mut(&id).filter(|r| r.acked) else {
            return;
        };
        match record.phase {
            Phase::Granted => {
                self.ready.insert(id);
                self.ready_due = Some(self.ready_due.map_or(now, |due| due.min(now)));
            }
            Phase::Leaves => {
                out.push(record.notice(id));
                self.remove(id);
            }
            Phase::Waits | Phase::Open { .. } => {}
        }
    }

    /// The client has heard BLOCK.
    pub fn acked(&mut self, conn: ConnId, id: u64, now: Duration, out: &mut Vec<Notice>) {
        if let Some(record) = self.records.get_mut(&id).filter(|r| r.conn == conn) {
            record.acked = true;
            self.open_if_acked(id, now, out);
        }
    }

    /// Ends a record; tokens that nobody claimed go back.
    fn end(&mut self, id: u64, limits: &mut Limits) {
        let Some(record) = self.remove(id) else { return };
        match record.phase {
            Phase::Granted => limits.refund(record.ids, &record.cost),
            Phase::Open { unspent, .. } => limits.refund(record.ids, &unspent),
            _ => {}
        }
    }

    fn remove(&mut self, id: u64) -> Option<Record> {
        let record = self.records.remove(&id)?;
        if let Phase::Open { until, .. } = record.phase {
            self.open.remove(&(until, id));
        }
        if record.phase == Phase::Waits {
            self.unqueue(record.flow(), id);
        }
        self.ready.remove(&id);
        if let Some(of) = self.by_object.get_mut(&record.conn) {
            of.objects.remove(&(record.pg, record.object.clone()));
            of.names -= name_bytes(&record.object);
            self.names -= name_bytes(&record.object);
            if of.objects.is_empty() {
                self.by_object.remove(&record.conn);
            }
        }
        Some(record)
    }

    fn those(&self, which: impl Fn(&Record) -> bool) -> Vec<u64> {
        let found = self.records.iter().filter(|(_, r)| which(r));
        found.map(|(id, _)| *id).collect()
    }

    pub fn closed(&mut self, conn: ConnId, limits: &mut Limits) {
        let Some(of) = self.by_object.get(&conn) else {
            return;
        };
        for id in of.objects.values().copied().collect::<Vec<_>>() {
            self.end(id, limits);
        }
        self.turns.retain(|flow| self.flows.contains_key(flow));
    }

    /// PGs whose era is another now, or which are not this OSD's any more: what was held of them is let go. A client
    /// that has forgotten it anyhow, or talks to another OSD about it now, passes the word over.
    pub fn moved(
        &mut self,
        era: impl Fn(SPgId) -> Option<Era>,
        limits: &mut Limits,
        now: Duration,
        out: &mut Vec<Notice>,
    ) {
        for id in self.those(|r| era(r.pg) != Some(r.era)) {
            let Some(record) = self.records.get_mut(&id) else {
                continue;
            };
            match record.phase {
                Phase::Open { .. } => self.end(id, limits),
                Phase::Leaves => {}
                Phase::Waits | Phase::Granted => {
                    if record.phase == Phase::Granted {
                        limits.refund(record.ids, &record.cost);
                    }
                    self.ready.remove(&id);
                    let (waited, flow) = (record.phase == Phase::Waits, record.flow());
                    record.phase = Phase::Leaves;
                    if waited {
                        self.unqueue(flow, id);
                    }
                    self.open_if_acked(id, now, out);
                }
            }
        }
        self.turns.retain(|flow| self.flows.contains_key(flow));
    }

    /// Connections that do not answer BLOCK.
    pub fn deaf(&self, now: Duration) -> BTreeSet<ConnId> {
        let deaf = |r: &&Record| !r.acked && now.saturating_sub(r.since) > ACK_WITHIN;
        self.records.values().filter(deaf).map(|r| r.conn).collect()
    }

    /// How many objects are held, and since when the one that waits longest.
    pub fn held(&self) -> (usize, Option<Duration>) {
        let waits = self.records.values().filter(|r| r.phase == Phase::Waits);
        (waits.clone().count(), waits.map(|r| r.since).min())
    }
}

impl Record {
    fn flow(&self) -> Flow {
        (self.conn, self.ids, self.writes)
    }

    /// How long it has still to wait, and whether it goes ahead of others: its reservation's tokens are taken then.
    fn turn(&self, limits: &mut Limits, now: Duration) -> (Duration, bool) {
        let own = self.ids.always();
        let wait = limits.wait(own, &self.cost, false, now);
        if !wait.is_zero() {
            return (wait, false);
        }
        let reserved = limits.go_ahead(own, &self.cost, now);
        if reserved == Some(Duration::ZERO) {
            return (Duration::ZERO, true);
        }
        if !self.ids.is_other() || now.saturating_sub(self.since) >= HELD_MAX {
            return (Duration::ZERO, false);
        }
        let others = limits.shares.wait(false, now);
        (reserved.map_or(others, |wait| wait.min(others)), false)
    }

    fn notice(&self, id: u64) -> Notice {
        Notice {
            conn: self.conn,
            pg: self.pg,
            id,
            object: self.object.clone(),
        }
    }
}

fn name_bytes(object: &HObject) -> usize {
    object.oid.len() + object.key.len() + object.nspace.len()
}

fn owned(object: &HObject) -> HObject {
    let copy = bytes::Bytes::copy_from_slice;
    HObject::new(
        object.pool,
        object.hash,
        copy(&object.nspace),
        copy(&object.key),
        copy(&object.oid),
        object.snap,
    )
}
