//! The shell round the placement groups: routes, lends the store, carries out.

use crate::maps;
use crate::memory::Memory;
use crate::peers::{Copied, FetchRequest, Peers};
use crate::placement::Placement;
use crate::reaper::Reaper;
use crate::sessions::Sessions;
use crate::store_view::StoreView;
use bytes::Bytes;
use io::{Clock, Random};
use messages::osd::{MCommand, MOSDOp, MOSDOpReply, kind};
use metastore::ClusterHandle;
use msgr::Message;
use net::{ConnId, Connections, NetEvent};
use pg::{ClientOp, Context, Input, Output, Permit, Pg};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use types::{EVersion, Errno, OsdId, PgId, SPgId, Utime};

/// One placement group in service, and when it wants to be woken.
struct Slot {
    pg: Pg,
    timer: Option<Duration>,
}

/// The answer to an operation that does not decode: all that is known of it is its number.
fn refusal(tid: u64, epoch: u32) -> MOSDOpReply {
    MOSDOpReply {
        tid,
        oid: Bytes::new(),
        pgid: PgId::new(0, 0),
        flags: 0,
        result: Errno::EINVAL.code(),
        bad_replay_version: EVersion::default(),
        epoch,
        ops: Vec::new(),
        retry_attempt: 0,
        replay_version: EVersion::default(),
        user_version: 0,
    }
}

/// An answer to [`Event::Fetched`](crate::event::Event::Fetched), on its way back into the loop.
///
/// Not bounded by itself: each entry belongs to a client's operation in flight, of which `net` has a budget.
pub type FetchedSender = mpsc::UnboundedSender<(PgId, u64, Copied)>;

pub struct Osd {
    pub id: OsdId,
    pub store: StoreView,
    pub placement: Placement,
    pub cluster: ClusterHandle,
    pub conns: Connections,
    pub peers: Peers,
    pub clock: Arc<dyn Clock>,
    pub random: Arc<dyn Random>,
    pub disk_share: u32,
    pub memory: Memory,
    pub sessions: Sessions,
    reaper: Reaper,
    slots: HashMap<PgId, Slot>,
    /// PGs whose answers wait for a flush.
    uncommitted: HashSet<PgId>,
    timers: BTreeSet<(Duration, PgId)>,
    exports: HashMap<u64, oneshot::Sender<Copied>>,
    next_export: u64,
    fetched: FetchedSender,
    out: Vec<Output>,
}

/// What an OSD is made of.
pub struct Parts {
    pub id: OsdId,
    pub store: StoreView,
    pub cluster: ClusterHandle,
    pub conns: Connections,
    pub peers: Peers,
    pub clock: Arc<dyn Clock>,
    pub random: Arc<dyn Random>,
    pub disk_share: u32,
    pub memory: Memory,
    pub fetched: FetchedSender,
}

impl Osd {
    pub fn new(p: Parts) -> Self {
        let placement = Placement::new(p.id, p.cluster.state());
        Self {
            id: p.id,
            store: p.store,
            placement,
            cluster: p.cluster,
            conns: p.conns,
            peers: p.peers,
            clock: p.clock,
            random: p.random,
            disk_share: p.disk_share,
            memory: p.memory,
            sessions: Sessions::default(),
            reaper: Reaper::default(),
            slots: HashMap::new(),
            uncommitted: HashSet::new(),
            timers: BTreeSet::new(),
            exports: HashMap::new(),
            next_export: 1,
            fetched: p.fetched,
            out: Vec::new(),
        }
    }

    pub fn wall(&self) -> Utime {
        Utime::from_unix(self.clock.wall())
    }

    // --- events ---------------------------------------------------------------------------------------

    pub fn on_net(&mut self, event: NetEvent) {
        match event {
            NetEvent::Opened { conn, peer } => self.sessions.opened(conn, &peer),
            NetEvent::Message { conn, msg, permit } => {
                self.on_message(conn, msg, Permit(Some(Box::new(permit))))
            }
            NetEvent::Closed { conn } => {
                self.sessions.closed(conn);
                let ids: Vec<PgId> = self.slots.keys().copied().collect();
                for pg in ids {
                    self.drive(pg, Input::ConnectionClosed(conn.0));
                }
            }
        }
    }

    /// The store flushed: answers may go. Or it read from the disk: operations that waited for that may go on.
    pub fn on_store(&mut self) {
        let durable = self.store.engine.durable();
        for pg in self.uncommitted.drain().collect::<Vec<_>>() {
            self.drive(pg, Input::Committed(durable));
        }
        self.on_reads();
    }

    fn on_reads(&mut self) {
        for (ticket, pg) in self.store.prefetched() {
            self.drive(pg, Input::Prefetched(ticket));
        }
    }

    /// The cluster state moved on: new views, new and gone PGs, operations that waited for the map.
    pub fn on_cluster(&mut self) {
        let state = self.cluster.state();
        if state.osdmap.epoch == self.placement.epoch() && Arc::ptr_eq(&state.pgs, &self.placement.state.pgs)
        {
            return;
        }
        self.placement = Placement::new(self.id, state);
        self.drop_gone();
        for pg in self.slots.keys().copied().collect::<Vec<_>>() {
            if let Some(view) = self.placement.pool(pg.pool).cloned() {
                self.drive(pg, Input::MapChanged(view));
            }
        }
        self.reaper.scan(&self.store, &self.placement);
        self.load_served();
        for op in self.sessions.take_waiting() {
            self.route(op);
        }
    }

    pub fn on_timer(&mut self) {
        let now = self.clock.monotonic();
        while let Some((at, pg)) = self.timers.first().copied()
            && at <= now
        {
            self.timers.remove(&(at, pg));
            if let Some(slot) = self.slots.get_mut(&pg) {
                slot.timer = None;
            }
            self.drive(pg, Input::Tick);
        }
    }

    pub fn on_tick(&mut self) {
        self.store.engine.tick(self.clock.monotonic());
        self.on_reads();
        self.reaper.step(&mut self.store, &self.placement);
    }

    /// Another OSD wants an object that is (or should be) here.
    pub fn on_fetch(&mut self, request: FetchRequest) {
        let map = &self.placement.state.osdmap;
        let pg = map
            .pool(request.object.pool)
            .map(|p| PgId::new(request.object.pool, p.raw_to_pg(request.object.hash)));
        match pg {
            Some(pg) if self.slots.contains_key(&pg) => {
                let token = self.next_export;
                self.next_export += 1;
                self.exports.insert(token, request.answer);
                self.drive(
                    pg,
                    Input::Export {
                        token,
                        object: request.object,
                    },
                );
            }
            _ => drop(request.answer.send(Err(Errno::EAGAIN))),
        }
    }

    pub fn on_fetched(&mut self, pg: PgId, id: u64, result: Copied) {
        self.drive(pg, Input::Fetched { id, result });
    }

    pub fn next_timer(&self) -> Option<Duration> {
        self.timers.first().map(|(at, _)| *at)
    }

    // --- messages -------------------------------------------------------------------------------------

    fn on_message(&mut self, conn: ConnId, msg: Message, permit: Permit) {
        match msg.kind {
            kind::OSD_OP => self.on_op(conn, &msg, permit),
            kind::PING | kind::OSD_BACKOFF => {}
            kind::COMMAND => match MCommand::from_message(&msg) {
                Ok(command) => {
                    let reply = self.command(conn, &command);
                    self.conns.send(conn, reply.to_message());
                }
                Err(e) => self.close(conn, &format!("malformed command: {e}")),
            },
            other => tracing::debug!("message {other} is not for an OSD, ignored"),
        }
    }

    fn on_op(&mut self, conn: ConnId, msg: &Message, permit: Permit) {
        let op = match MOSDOp::from_message(msg) {
            Ok(op) => op,
            Err(e) => {
                tracing::warn!("conn {}: malformed operation: {e}", conn.0);
                self.conns
                    .send(conn, refusal(msg.tid, self.placement.epoch()).to_message());
                return;
            }
        };
        let Some(session) = self.sessions.get_mut(conn) else {
            return;
        };
        session.epoch = session.epoch.max(op.epoch);
        let client = session.client.clone();
        self.route(ClientOp {
            conn: conn.0,
            client,
            op,
            permit,
        });
    }

    /// To the PG that the operation is for now; it waits where its sender's map is newer than ours.
    pub fn route(&mut self, op: ClientOp) {
        let conn = ConnId(op.conn);
        let epoch = self.placement.epoch();
        if op.op.epoch > epoch || self.sessions.is_waiting(conn) {
            if !self.sessions.park(op) {
                self.close(conn, "too many operations wait for a newer map");
            }
            return;
        }
        self.update_map(conn, epoch);
        let is_object = !op.op.ops.iter().any(|o| o.code.is_pg());
        let Some(pg) = self.placement.current_pg(op.op.pgid.pg, op.op.hash, is_object) else {
            tracing::debug!(
                "operation for {}, which the map does not have: dropped",
                op.op.pgid.pg
            );
            return;
        };
        if !self.placement.serves(pg) {
            // The client sends again when the map that tells it where the PG is has reached it.
            tracing::debug!("operation for {pg}, which is not served here: dropped");
            return;
        }
        if !self.slots.contains_key(&pg) && !self.load(pg) {
            let reply = MOSDOpReply::to(&op.op, epoch, Errno::EIO.code());
            self.conns.send(conn, reply.to_message());
            return;
        }
        self.drive(pg, Input::ClientOp(Box::new(op)));
    }

    /// Pushes the newest map to a client whose own is older, once for each epoch.
    fn update_map(&mut self, conn: ConnId, epoch: u32) {
        let Some(session) = self.sessions.get_mut(conn) else {
            return;
        };
        if session.epoch < epoch {
            let message = maps::update(&self.placement.state, session.epoch);
            session.epoch = epoch;
            self.conns.send(conn, message);
        }
    }

    fn close(&mut self, conn: ConnId, why: &str) {
        tracing::warn!("conn {}: {why}: closed", conn.0);
        self.conns.close(conn);
    }

    // --- placement groups -----------------------------------------------------------------------------

    /// Loads every PG that is served here and is not loaded yet.
    pub fn load_served(&mut self) {
        for pg in self.placement.served() {
            if !self.slots.contains_key(&pg) {
                self.load(pg);
            }
        }
        let entries = self.memory.log_entries(self.slots.len());
        for slot in self.slots.values_mut() {
            slot.pg.keep_log_entries(entries);
        }
    }

    fn load(&mut self, pg: PgId) -> bool {
        let Some(view) = self.placement.pool(pg.pool).cloned() else {
            return false;
        };
        let now = self.clock.monotonic();
        match Pg::load(SPgId::replicated(pg), view, &mut self.store, now) {
            Ok(loaded) => {
                self.slots.insert(
                    pg,
                    Slot {
                        pg: loaded,
                        timer: None,
                    },
                );
                self.arm(pg);
                true
            }
            Err(e) => {
                tracing::error!("{e}");
                false
            }
        }
    }

    fn forget(&mut self, pg: PgId) {
        self.uncommitted.remove(&pg);
        let Some(slot) = self.slots.remove(&pg) else {
            return;
        };
        if let Some(at) = slot.timer {
            self.timers.remove(&(at, pg));
        }
        let random = self.random.clone();
        slot.pg.leave(&mut Context {
            store: &mut self.store,
            cluster: &self.placement,
            now: self.clock.monotonic(),
            wall: Utime::from_unix(self.clock.wall()),
            random: &mut || random.u64(),
            out: &mut self.out,
        });
        self.carry_out(pg);
    }

    /// The OSD ends: what its PGs hold of the store goes back.
    pub fn forget_all(&mut self) {
        for pg in self.slots.keys().copied().collect::<Vec<_>>() {
            self.forget(pg);
        }
    }

    fn drop_gone(&mut self) {
        let gone: Vec<PgId> = self
            .slots
            .keys()
            .filter(|pg| !self.placement.serves(**pg))
            .copied()
            .collect();
        for pg in gone {
            self.forget(pg);
        }
    }

    /// One input to one PG, and all that comes of it.
    fn drive(&mut self, pg: PgId, input: Input) {
        let Some(slot) = self.slots.get_mut(&pg) else {
            return;
        };
        self.store.lend(pg);
        let random = self.random.clone();
        let mut random = || random.u64();
        let mut apply = |input, store: &mut StoreView| {
            slot.pg.apply(
                input,
                &mut Context {
                    store,
                    cluster: &self.placement,
                    now: self.clock.monotonic(),
                    wall: Utime::from_unix(self.clock.wall()),
                    random: &mut random,
                    out: &mut self.out,
                },
            );
            slot.pg.is_waiting()
        };
        if apply(input, &mut self.store) {
            // What it waits for may have become durable before it began to wait.
            let durable = self.store.engine.durable();
            if apply(Input::Committed(durable), &mut self.store) {
                self.uncommitted.insert(pg);
            }
        }
        self.arm(pg);
        self.carry_out(pg);
    }

    /// Keeps the timer queue in step with what the PG wants.
    fn arm(&mut self, pg: PgId) {
        let Some(slot) = self.slots.get_mut(&pg) else {
            return;
        };
        let want = slot.pg.next_timer();
        if want == slot.timer {
            return;
        }
        if let Some(at) = slot.timer {
            self.timers.remove(&(at, pg));
        }
        if let Some(at) = want {
            self.timers.insert((at, pg));
        }
        slot.timer = want;
    }

    fn carry_out(&mut self, pg: PgId) {
        for output in std::mem::take(&mut self.out) {
            match output {
                Output::Reply { conn, reply, permit } => {
                    self.conns.send(ConnId(conn), reply.to_message());
                    drop(permit);
                }
                // A PG that was given no group is alone.
                Output::Peer { .. } | Output::Propose(_) | Output::Copied { .. } => {}
                Output::Send { conn, event } => drop(self.conns.send(ConnId(conn), event.to_message())),
                Output::Dropped { conn, tid, why } => {
                    tracing::debug!("conn {conn}: operation {tid} dropped: {why}");
                }
                Output::Close { conn, why } => self.close(ConnId(conn), why),
                Output::FetchObject { id, object } => self.fetch(pg, id, object),
                Output::Exported { token, result } => {
                    if let Some(answer) = self.exports.remove(&token) {
                        drop(answer.send(result));
                    }
                }
            }
        }
    }

    fn fetch(&self, pg: PgId, id: u64, object: types::HObject) {
        let map = &self.placement.state.osdmap;
        let home = map
            .pool(object.pool)
            .map(|p| PgId::new(object.pool, p.raw_to_pg(object.hash)))
            .and_then(|source| self.placement.state.pgs.get(source))
            .map(|config| config.primary);
        let (peers, fetched) = (self.peers.clone(), self.fetched.clone());
        io::task::spawn_local(async move {
            let result = match home {
                Some(osd) => peers.fetch(osd, object).await,
                None => Err(Errno::ENOENT),
            };
            let _ = fetched.send((pg, id, result));
        });
    }

    /// The PGs in service, for reports and commands.
    pub fn pgs(&self) -> impl Iterator<Item = (PgId, &Pg)> {
        self.slots.iter().map(|(id, slot)| (*id, &slot.pg))
    }

    pub fn pg(&self, id: PgId) -> Option<&Pg> {
        self.slots.get(&id).map(|slot| &slot.pg)
    }
}
