//! The PG against a store in memory. [`Rig`] is one PG (pg_num 1), a store, a clock, and clients.

#![allow(clippy::unwrap_used)]

mod backend;
mod basics;
mod bounds;
mod copies;
mod durability;
mod hostile;
mod joins;
mod locks;
mod model;
mod parking;
mod pieces;
mod pools;
mod replication;
mod scrub;
mod shard_scrub;
mod shards;
mod split_siblings;
mod tmap;
mod vectors;
mod watching;

use crate::memory::{Cold, MemoryStore};
use crate::*;
use bytes::Bytes;
use messages::osd::{MOSDOp, MOSDOpReply, MWatchNotify, OpCode, OsdOp, code, flag};
use std::sync::Arc;
use std::time::Duration;
use types::*;

pub(super) const POOL: i64 = 7;

/// What is allowed, and where.
#[derive(Debug)]
pub(super) struct Caps(pub fn(&Allow<'_>) -> bool, pub fn(&Need<'_>) -> bool);
impl Capabilities for Caps {
    fn allows(&self, need: &Need<'_>, what: Allow<'_>) -> bool {
        (self.0)(&what) && (self.1)(need)
    }
}

/// Objects of pools other than [`POOL`] are elsewhere; pool 99 does not exist. The hash is a toy.
pub(super) struct View;
impl ClusterView for View {
    fn pool(&self, id: PoolId) -> Option<&PoolView> {
        static OTHERS: std::sync::LazyLock<PoolView> = std::sync::LazyLock::new(|| PoolView {
            id: 8,
            name: "others".into(),
            ..pool()
        });
        static OWN: std::sync::LazyLock<PoolView> = std::sync::LazyLock::new(pool);
        match id {
            POOL => Some(&OWN),
            99 => None,
            _ => Some(&OTHERS),
        }
    }

    fn locate(&self, oloc: &ObjectLocator, oid: &Bytes, snap: u64) -> Located {
        let o = HObject::new(
            oloc.pool,
            hash(oid),
            oloc.nspace.clone(),
            oloc.key.clone(),
            oid.clone(),
            snap,
        );
        match oloc.pool {
            POOL => Located::Local(o),
            99 => Located::NoPool,
            _ => Located::Remote(o),
        }
    }
}

pub(super) fn hash(oid: &[u8]) -> u32 {
    checksum::crc32c(0, oid)
}

pub(super) struct Rig {
    pub store: MemoryStore,
    pub pg: Pg,
    pub out: Vec<Output>,
    pub now: Duration,
    /// Report every transaction as durable at once.
    pub auto_commit: bool,
    /// End every read of the disk at once, the newest first.
    pub auto_read: bool,
    pub tid: u64,
    pub gid: u64,
    /// Not the one that goes with the global id.
    pub instance: Option<u64>,
    /// Another address than the one that goes with the global id.
    pub addr: Option<EntityAddr>,
    pub conn: ConnId,
    pub caps: fn(&Allow<'_>) -> bool,
    pub places: fn(&Need<'_>) -> bool,
    pub snapc: (u64, Vec<u64>),
    pub flags: u32,
    pub mtime: Utime,
    /// The shards that lie elsewhere, where the PG has such.
    pub(in crate::tests) far: Option<std::rc::Rc<std::cell::RefCell<backend::Far>>>,
    /// They flush at once.
    pub flush_far: bool,
}

pub(super) fn pool() -> PoolView {
    PoolView {
        epoch: 5,
        id: POOL,
        pg_num: 1,
        ..PoolView::default()
    }
}

impl Rig {
    /// What a walk over all objects counts, whatever the PG has counted.
    pub fn count_objects(&mut self) -> PgStats {
        crate::count::Count::at_once(&self.pg.state, &mut self.store).unwrap()
    }

    pub fn new() -> Self {
        Self::with_pool(pool())
    }

    pub fn with_pool(pool: PoolView) -> Self {
        let mut store = MemoryStore::default();
        let now = Duration::from_secs(1000);
        let id = SPgId::replicated(PgId::new(POOL, 0));
        let pg = Pg::load(id, Arc::new(pool), &mut store, now).unwrap();
        Self {
            store,
            pg,
            out: Vec::new(),
            now,
            auto_commit: true,
            auto_read: true,
            tid: 0,
            gid: 4100,
            instance: None,
            addr: None,
            conn: 1,
            caps: |_| true,
            places: |_| true,
            snapc: (0, Vec::new()),
            flags: 0,
            mtime: Utime { sec: 50, nsec: 6 },
            far: None,
            flush_far: true,
        }
    }

    /// What a restart leaves: the store.
    pub fn restart(&mut self) {
        let pool = self.pg.pool().clone();
        let new = Pg::load(self.pg.id(), pool, &mut self.store, self.now).unwrap();
        let old = std::mem::replace(&mut self.pg, new);
        old.leave(&mut Context {
            store: &mut self.store,
            cluster: &View,
            now: self.now,
            wall: Utime { sec: 1000, nsec: 0 },
            random: &mut || 0,
            out: &mut self.out,
        });
    }

    /// From now on the data lies on a disk; `lucky` as in [`Cold`].
    pub fn cool_down(&mut self, lucky: u64) {
        self.store.cold = Some(Cold::new(lucky));
    }

    pub fn cold(&self) -> &Cold {
        self.store.cold.as_ref().unwrap()
    }

    pub fn end_read(&mut self, ticket: Ticket) {
        self.store.cold.as_mut().unwrap().end(ticket);
        self.step(Input::Prefetched(ticket));
    }

    /// Ends what the disk is reading and what that leads to, each time the one that `pick` chooses of so many.
    pub fn end_reads(&mut self, mut pick: impl FnMut(usize) -> usize) {
        while let Some(cold) = &self.store.cold {
            let reading = cold.reading();
            if reading.is_empty() {
                return;
            }
            self.end_read(reading[pick(reading.len()) % reading.len()]);
        }
    }

    pub fn set_pool(&mut self, pool: PoolView) {
        self.apply(Input::MapChanged(Arc::new(pool)));
    }

    pub fn apply(&mut self, input: Input) {
        self.step(input);
        if self.auto_read {
            self.end_reads(|n| n - 1);
        }
    }

    fn step(&mut self, input: Input) {
        self.apply_one(input);
        self.reach_far();
        if self.auto_commit && self.pg.is_waiting() {
            self.apply_one(Input::Committed(self.store.seq));
        }
    }

    /// What was asked of shards that lie elsewhere comes, and what was sent there is durable.
    fn reach_far(&mut self) {
        let Some(far) = self.far.clone() else { return };
        loop {
            if self.flush_far {
                (1..3).for_each(|osd| far.borrow_mut().flush(osd));
            }
            if far.borrow().held || !self.end_far() {
                return;
            }
        }
    }

    /// The first of what was asked of other shards comes; false: nothing was.
    pub(in crate::tests) fn end_far(&mut self) -> bool {
        let far = self.far.clone();
        let next = far.and_then(|f| f.borrow().asked.keys().next().copied());
        if let Some(ticket) = next {
            self.apply_one(Input::Prefetched(ticket));
        }
        next.is_some()
    }

    fn apply_one(&mut self, input: Input) {
        let mut n = 0u64;
        let mut random = move || {
            n += 1;
            n
        };
        let mut ctx = Context {
            store: &mut self.store,
            cluster: &View,
            now: self.now,
            wall: Utime { sec: 1000, nsec: 0 },
            random: &mut random,
            out: &mut self.out,
        };
        self.pg.apply(input, &mut ctx);
    }

    pub fn request(&mut self, oid: &str, ops: Vec<OsdOp>) -> MOSDOp {
        self.tid += 1;
        MOSDOp {
            tid: self.tid,
            pgid: self.pg.id(),
            hash: hash(oid.as_bytes()),
            epoch: 5,
            flags: self.flags,
            reqid: OsdReqId {
                name: EntityName { kind: 0, num: 0 },
                tid: 0,
                inc: 0,
            },
            trace: [0; 3],
            client_inc: 0,
            mtime: self.mtime,
            oloc: ObjectLocator {
                pool: POOL,
                key: Bytes::new(),
                nspace: Bytes::new(),
                hash: -1,
            },
            oid: Bytes::copy_from_slice(oid.as_bytes()),
            ops,
            snapid: NOSNAP,
            snap_seq: self.snapc.0,
            snaps: self.snapc.1.clone(),
            retry_attempt: 0,
            features: 0,
        }
    }

    pub fn send(&mut self, op: MOSDOp) {
        let client = Arc::new(Client {
            name: EntityName::client(self.gid),
            global_id: self.gid,
            instance: self.instance.unwrap_or(self.gid),
            addr: self
                .addr
                .unwrap_or_else(|| EntityAddr::msgr2("1.2.3.4:5000".parse().unwrap(), self.gid as u32)),
            from: Some("1.2.3.4".parse().unwrap()),
            features: 0,
            caps: Arc::new(Caps(self.caps, self.places)),
            fence: Fence::default(),
        });
        self.apply(Input::ClientOp(Box::new(ClientOp {
            conn: self.conn,
            client,
            op,
            permit: Permit::default(),
        })));
    }

    /// The replies so far; events stay.
    pub fn replies(&mut self) -> Vec<MOSDOpReply> {
        let (replies, rest) = std::mem::take(&mut self.out)
            .into_iter()
            .partition(|o| matches!(o, Output::Reply { .. }));
        self.out = rest;
        let replies: Vec<Output> = replies;
        replies
            .into_iter()
            .map(|o| match o {
                Output::Reply { reply, .. } => reply,
                _ => unreachable!(),
            })
            .collect()
    }

    pub fn events(&mut self) -> Vec<(ConnId, MWatchNotify)> {
        std::mem::take(&mut self.out)
            .into_iter()
            .filter_map(|o| match o {
                Output::Send { conn, event } => Some((conn, event)),
                _ => None,
            })
            .collect()
    }

    pub fn answer(&mut self, op: MOSDOp) -> MOSDOpReply {
        let tid = op.tid;
        self.send(op);
        let mut replies = self.replies();
        assert_eq!(replies.len(), 1, "one answer to one message");
        let reply = replies.remove(0);
        assert_eq!(reply.tid, tid);
        reply
    }

    pub fn run(&mut self, oid: &str, ops: Vec<OsdOp>) -> MOSDOpReply {
        let op = self.request(oid, ops);
        self.answer(op)
    }

    /// Result of a single operation.
    pub fn one(&mut self, oid: &str, op: OsdOp) -> i32 {
        self.run(oid, vec![op]).result
    }

    pub fn at_snap(&mut self, oid: &str, snap: u64, op: OsdOp) -> MOSDOpReply {
        let mut m = self.request(oid, vec![op]);
        m.snapid = snap;
        self.answer(m)
    }

    /// The whole data, or `None` if the object does not exist.
    pub fn data(&mut self, oid: &str, snap: u64) -> Option<Bytes> {
        let r = self.at_snap(oid, snap, read(0, 0));
        match r.result {
            0 => Some(r.ops[0].outdata.clone()),
            e => {
                assert_eq!(e, -2, "reading {oid} at {snap:x}");
                None
            }
        }
    }

    pub fn tick_after(&mut self, d: Duration) {
        self.now += d;
        self.apply(Input::Tick);
    }

    /// Ticks whenever the PG asks for it, for at most `n` times.
    pub fn settle(&mut self, n: usize) {
        for _ in 0..n {
            match self.pg.next_timer() {
                Some(at) => {
                    self.now = self.now.max(at);
                    self.apply(Input::Tick);
                }
                None => return,
            }
        }
    }
}

pub(super) fn op(c: OpCode) -> OsdOp {
    OsdOp::new(c)
}
pub(super) fn read(offset: u64, len: u64) -> OsdOp {
    OsdOp::ranged(code::READ, offset, len)
}
pub(super) fn write(offset: u64, data: &[u8]) -> OsdOp {
    OsdOp::ranged(code::WRITE, offset, data.len() as u64).with_data(data.to_vec())
}
pub(super) fn write_full(data: &[u8]) -> OsdOp {
    OsdOp::ranged(code::WRITEFULL, 0, data.len() as u64).with_data(data.to_vec())
}
pub(super) fn append(data: &[u8]) -> OsdOp {
    OsdOp::ranged(code::APPEND, 0, data.len() as u64).with_data(data.to_vec())
}
pub(super) fn set_xattr(name: &[u8], value: &[u8]) -> OsdOp {
    OsdOp::on_xattr(code::SETXATTR, name, value, 0, 0)
}
pub(super) fn get_xattr(name: &[u8]) -> OsdOp {
    OsdOp::on_xattr(code::GETXATTR, name, b"", 0, 0)
}
pub(super) fn omap_set(rows: &[(&str, &str)]) -> OsdOp {
    let rows: Vec<(String, String)> = rows.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
    op(code::OMAPSETVALS).with_data(denc::Encode::to_bytes(&rows))
}
pub(super) fn excl() -> OsdOp {
    op(code::CREATE).with_flags(messages::osd::op_flag::EXCL)
}
