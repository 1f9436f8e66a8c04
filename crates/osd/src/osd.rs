//! The shell round the placement groups: routes, lends the store, carries out.

use crate::bench::Bench;
use crate::disk_time::DiskTime;
use crate::event::StateReply;
use crate::fences::Fences;
use crate::fetches::Fetches;
use crate::images::{self, Images};
use crate::links::Links;
use crate::maps;
use crate::membership::Membership;
use crate::merging::Merges;
use crate::meters::Meters;
use crate::ops::stages::{Passed, Stages, Whose};
use crate::ops::traces::Tracer;
use crate::ops::{InList, LiveOp, Ops};
use crate::pace::Latency;
use crate::peering::Ahead;
use crate::peers::{Copied, Peers};
use crate::placement::Placement;
use crate::pulse::Beating;
use crate::qos::{self, Qos};
use crate::reaper::Reaper;
use crate::recovery::Recovery;
use crate::scrub::Scrubs;
use crate::sessions::Sessions;
use crate::slot::Slot;
use crate::store_view::StoreView;
use crate::turns::{self, Turns};
use crate::waiting::Until;
use cluster::PgProposal;
use io::{Clock, Random};
use messages::osd::peer::KIND as PEER;
use messages::osd::{MCommand, MOSDOp, MOSDOpReply, flag, kind};
use metastore::ClusterHandle;
use msgr::Message;
use net::{ConnId, Connections, NetEvent};
use pg::{ClientOp, Input, Output, Permit};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use types::{Epoch, Errno, OsdId, SPgId, Utime};

/// What rides with a client's operation until it is answered.
pub struct InFlight {
    _permit: net::Permit,
    /// Room for the answer, where it is large.
    pub promise: Option<net::Promise>,
    since: Duration,
    flags: u32,
    /// Data that its operations brought.
    in_bytes: u32,
    /// From its decoding on.
    listed: Option<InList>,
    /// Whose data it is about.
    image: Option<images::Key>,
    /// What was charged for a read, where it is limited.
    pub charged: Option<qos::Charged>,
    /// It goes ahead of others, within a reservation.
    pub ahead: bool,
}

/// An answer to [`Event::Fetched`](crate::event::Event::Fetched), on its way back into the loop.
///
/// Not bounded by itself: each entry belongs to a client's operation in flight, of which `net` has a budget.
pub type FetchedSender = mpsc::UnboundedSender<(SPgId, u64, Copied)>;

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
    pub spare: Option<Spare>,
    pub meters: Meters,
    pub sessions: Sessions,
    pub links: Links,
    pub membership: Membership,
    /// Its pulse, once it is started.
    pub beating: Option<Beating>,
    /// What clients' operations take; recovery and scrub yield to that.
    pub clients: Latency,
    pub recovery: Recovery,
    pub disk_time: DiskTime,
    pub scrubs: Scrubs,
    pub pull_turns: pg::PullTurns,
    pub notify_bytes: pg::NotifyBytes,
    pub ops: Ops,
    pub images: Images,
    pub stages: Stages,
    pub tracer: Tracer,
    pub qos: Qos,
    pub bench: Option<Box<Bench>>,
    /// What somebody told this run of the OSD to go by, whatever the central configuration says.
    pub told_options: BTreeMap<String, String>,
    pub fences: Fences,
    pub fetches: Fetches,
    reaper: Reaper,
    pub slots: BTreeMap<SPgId, Slot>,
    /// PGs whose answers wait for a flush.
    pub uncommitted: BTreeSet<SPgId>,
    pub timers: BTreeSet<(Duration, SPgId)>,
    /// The connection that each other OSD has made to this one.
    pub inbound: BTreeMap<OsdId, ConnId>,
    pub ahead: VecDeque<Ahead>,
    /// Configurations that PGs want, to be committed; at most one for each.
    pub wishes: BTreeMap<SPgId, PgProposal>,
    pub proposing: bool,
    pub merges: Merges,
    /// Answers of an interval that may not leave now; each holds its client's permit.
    pub held: Vec<(SPgId, Epoch, Output)>,
    pub fetched: FetchedSender,
    /// One message for each thing asked of the cluster state, of which few are on their way.
    pub state_replies: mpsc::UnboundedSender<StateReply>,
    pub out: Vec<Output>,
    pub turns: Turns,
}

/// The file system that an OSD shares with its host.
#[derive(Debug, Clone)]
pub struct Spare {
    pub dir: PathBuf,
    /// What stays free there.
    pub reserve: u64,
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
    pub spare: Option<Spare>,
    pub meters: Meters,
    pub fetched: FetchedSender,
    pub state_replies: mpsc::UnboundedSender<StateReply>,
    pub links: Links,
    pub membership: Membership,
}

fn listed(permit: &Permit) -> Option<&InList> {
    let flight = permit.rider.as_ref()?.downcast_ref::<InFlight>()?;
    flight.listed.as_ref()
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
            spare: p.spare,
            pull_turns: pg::PullTurns::within(p.meters.net.peers.bytes_max()),
            notify_bytes: pg::NotifyBytes::new(p.meters.notifies.bytes_max() as usize),
            meters: p.meters,
            sessions: Sessions::default(),
            links: p.links,
            membership: p.membership,
            beating: None,
            clients: Latency::default(),
            recovery: Recovery::default(),
            disk_time: DiskTime::default(),
            scrubs: Scrubs::default(),
            ops: Ops::default(),
            images: Images::default(),
            stages: Stages::default(),
            tracer: Tracer::default(),
            qos: Qos::default(),
            bench: None,
            told_options: BTreeMap::new(),
            fences: Fences::default(),
            fetches: Fetches::default(),
            reaper: Reaper::default(),
            slots: BTreeMap::new(),
            uncommitted: BTreeSet::new(),
            timers: BTreeSet::new(),
            inbound: BTreeMap::new(),
            ahead: VecDeque::new(),
            wishes: BTreeMap::new(),
            proposing: false,
            merges: Merges::default(),
            held: Vec::new(),
            fetched: p.fetched,
            state_replies: p.state_replies,
            out: Vec::new(),
            turns: turns::watch(),
        }
    }

    pub fn wall(&self) -> Utime {
        Utime::from_unix(self.clock.wall())
    }

    // --- events ---------------------------------------------------------------------------------------

    pub fn on_net(&mut self, event: NetEvent) {
        match event {
            NetEvent::Opened { conn, peer } => {
                if !self.sessions.opened(conn, &peer) {
                    return self.close(conn, "its key is gone");
                }
                match self.sessions.osd(conn) {
                    Some(osd) => self.peer_opened(osd, conn),
                    None => self.meet_session(conn),
                }
            }
            NetEvent::Message { conn, msg, permit } => {
                let since = self.clock.monotonic();
                let in_flight = InFlight {
                    _permit: permit,
                    promise: None,
                    since,
                    flags: 0,
                    in_bytes: 0,
                    listed: None,
                    image: None,
                    charged: None,
                    ahead: false,
                };
                self.on_message(conn, msg, Permit::new(in_flight));
            }
            // What waits for room is looked at at the end of the turn.
            NetEvent::Drained => {}
            NetEvent::Closed { conn } => {
                if let Some(osd) = self.sessions.osd(conn) {
                    self.peer_closed(osd, conn);
                }
                self.sessions.closed(conn);
                self.qos.closed(conn);
                let ids: Vec<SPgId> = self.slots.keys().copied().collect();
                for pg in ids {
                    self.drive(pg, Input::ConnectionClosed(conn.0));
                }
            }
        }
    }

    /// An operation of a client has its answer.
    pub fn answered(&mut self, permit: &Permit, reply: &MOSDOpReply) {
        if let Some(op) = permit.rider.as_ref().and_then(|p| p.downcast_ref::<InFlight>()) {
            let now = self.clock.monotonic();
            let took = now.saturating_sub(op.since);
            if let Some(listed) = &op.listed {
                listed.answered(op.since, permit.executed, now);
            }
            self.clients.answered(now, took);
            let out_bytes = reply.ops.iter().map(|o| o.outdata.len() as u64).sum();
            self.meters.osd.answered(op.flags, op.in_bytes, out_bytes, took);
            if let Some(charged) = op.charged {
                self.qos.answered(charged, out_bytes);
            }
            if op.ahead {
                self.qos.limits.shares.answered(now, took);
            }
            if self.stages.is_on() || self.tracer.is_on() {
                let bytes = u64::from(op.in_bytes) + out_bytes;
                self.tell_stages(op, permit, (bytes, reply.result), now);
            }
            if let Some(image) = &op.image {
                let done = images::Done {
                    flags: op.flags,
                    in_bytes: u64::from(op.in_bytes),
                    out_bytes,
                    took,
                };
                if !self.images.count(image, done, now) {
                    self.meters.osd.image_ops_uncounted.inc();
                }
            }
        }
    }

    /// To whoever has asked where operations spend their time, and to the collector of traces.
    fn tell_stages(&mut self, op: &InFlight, permit: &Permit, (bytes, result): (u64, i32), now: Duration) {
        let Some(listed) = &op.listed else { return };
        let Some(reached_pg) = listed.look(|live| live.reached_pg) else {
            return;
        };
        let passed = Passed {
            bytes,
            since: op.since,
            reached_pg,
            executed: permit.executed,
            answered: now,
            last: permit.last,
        };
        self.trace(listed, op.image.as_ref(), passed, result);
        if self.stages.is_on() {
            let is_write = op.flags & flag::WRITE != 0;
            let of = |live: &LiveOp| {
                let whose = Whose::of(live.pg.pool, op.image.as_ref(), live.client.name, is_write);
                (whose, live.client.addr)
            };
            if let Some((whose, addr)) = listed.look(of) {
                self.stages.count(whose, addr, &passed);
            }
        }
    }

    /// The store flushed: answers may go. Or it read from the disk: operations that waited for that may go on.
    pub fn on_store(&mut self) {
        self.store.engine.turned();
        let durable = self.store.engine.durable();
        self.disk_time.durable(durable, || self.clock.monotonic());
        self.release(durable);
        self.on_reads();
    }

    /// Everything up to `durable` is: answers that waited for it leave, in the order of their PGs.
    pub fn release(&mut self, durable: u64) {
        for pg in std::mem::take(&mut self.uncommitted) {
            self.turn_at(pg, durable, |role, ctx| role.committed(durable, ctx));
        }
    }

    fn on_reads(&mut self) {
        for (ticket, pg) in self.store.prefetched() {
            self.turn(pg, |role, ctx| role.prefetched(ticket, ctx));
        }
    }

    /// The cluster state moved on: new roles and configurations, new and gone PGs, operations that waited for the map.
    pub fn on_cluster(&mut self) {
        self.heed_operator();
        self.heed_compression();
        let state = self.cluster.state();
        for conn in self.sessions.heed(&state) {
            self.close(conn, "its key is gone");
        }
        if state.osdmap.epoch == self.placement.epoch() && Arc::ptr_eq(&state.pgs, &self.placement.state.pgs)
        {
            self.heed_qos(false);
            return;
        }
        self.note_clean();
        self.placement = self.placement.next(state);
        let fenced = self.mark_fenced();
        self.want_peers();
        if self.settle_slots() {
            self.update_maps();
        }
        self.end_fenced(fenced);
        self.release_moved();
        self.hear_early();
        self.scan_for_leftovers();
        self.route_waiting();
        self.come_up();
        self.begin_merges();
    }

    /// Collections that nobody has a use for are the reaper's.
    pub fn scan_for_leftovers(&mut self) {
        let kept = self.bench_runs().then_some(crate::bench::POOL);
        self.reaper.scan(&self.store, &self.placement, kept);
    }

    /// Connections to those with whom this OSD has to do.
    pub fn want_peers(&mut self) {
        let map = self.placement.state.osdmap.clone();
        let mut wanted = self.placement.peers();
        wanted.extend(self.fetches.sources());
        let up = |o: OsdId| Some((o, map.osd(o).filter(|_| map.is_up(o))?));
        let wanted: BTreeMap<OsdId, _> = wanted.into_iter().filter_map(up).collect();
        if let Some(beating) = &self.beating {
            // An earlier version has its heartbeats where it has everything, and no pulse.
            let pulses = wanted.iter().filter(|(_, o)| o.hb_back_addrs != o.cluster_addrs);
            beating.want(pulses.map(|(id, o)| (*id, o.hb_back_addrs.clone())).collect());
        }
        let wanted: BTreeMap<_, _> = wanted
            .into_iter()
            .map(|(id, o)| (id, o.cluster_addrs.clone()))
            .collect();
        for osd in self.links.want(&wanted) {
            self.peer_down(osd);
        }
        self.links.step();
    }

    /// Operations that waited for a newer map or for the lease.
    fn route_waiting(&mut self) {
        for parked in self.sessions.waiting.take() {
            self.route_since(parked.op, Some(parked.since));
        }
    }

    /// At the end of each turn of the loop: what waits for the lease, what is to be committed together.
    pub fn end_turn(&mut self) {
        let may_go = self.sessions.waiting.may_go(self.placement.epoch());
        if (may_go || !self.held.is_empty()) && self.serving() {
            self.release_held();
            self.route_waiting();
        }
        if self.sessions.has_choked() {
            self.admit_choked();
        }
        self.flush_wishes();
        // Asked for only when it counts: the store's answer takes a lock that its committer wants, too.
        if self.disk_time.is_armed() {
            let (queued, durable) = (self.store.engine.queued(), self.store.engine.durable());
            self.disk_time.watch(queued, durable, || self.clock.monotonic());
        }
        if cfg!(debug_assertions) {
            self.tell_probe();
        }
    }

    pub fn on_tick(&mut self) {
        self.note_clean();
        self.remember_ops();
        self.images.forget(self.clock.monotonic());
        self.stages.turn(self.clock.monotonic());
        self.end_deaf();
        self.measure();
        self.share_memory();
        self.trim_logs();
        self.tell_fenced();
        if self.serving() {
            for conn in self.sessions.waiting.overdue(self.clock.monotonic()) {
                self.close(conn, "its operations wait for a map that does not come");
            }
        }
        self.store.engine.tick(self.clock.monotonic());
        self.on_store();
        self.reaper.step(&mut self.store, &self.placement);
    }

    /// When [`Osd::on_timer`] is to be called next.
    pub fn next_timer(&self) -> Option<Duration> {
        let pgs = self.timers.first().map(|(at, _)| *at);
        [
            pgs,
            self.links.next_timer(),
            self.recovery_timer(),
            self.scrub_timer(),
            self.bench_timer(),
            self.qos.next_timer(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    // --- messages -------------------------------------------------------------------------------------

    fn on_message(&mut self, conn: ConnId, msg: Message, permit: Permit) {
        self.turns.about().message = Some(msg.kind);
        self.turns.brought(msg.size());
        match msg.kind {
            kind::OSD_OP => self.on_op(conn, &msg, permit),
            PEER => match self.sessions.osd(conn) {
                Some(from) => self.on_request(conn, from, &msg, permit),
                None => self.close(conn, "not an OSD, but speaks as one"),
            },
            kind::PING => {}
            kind::OSD_BACKOFF => self.on_backoff(conn, &msg),
            kind::COMMAND => match MCommand::from_message(&msg) {
                Ok(command) => self.command(conn, &command),
                Err(e) => self.close(conn, &format!("malformed command: {e}")),
            },
            other => tracing::debug!("message {other} is not for an OSD, ignored"),
        }
    }

    fn on_op(&mut self, conn: ConnId, msg: &Message, mut permit: Permit) {
        let op = match MOSDOp::from_message(msg) {
            Ok(op) => op,
            Err(e) => {
                let now = self.clock.monotonic();
                io::log::refused(now, format_args!("conn {}: malformed operation: {e}", conn.0));
                let refusal = MOSDOpReply::refusal(msg.tid, self.placement.epoch(), Errno::EINVAL);
                self.conns.send(conn, refusal.to_message());
                return;
            }
        };
        let Some(session) = self.sessions.get_mut(conn) else {
            return;
        };
        session.epoch = session.epoch.max(op.epoch);
        let client = session.client.clone();
        if let Some(flight) = permit.rider.as_mut().and_then(|p| p.downcast_mut::<InFlight>()) {
            flight.listed = Some(self.list_op(flight.since, &client, &op));
            flight.flags = op.flags;
            flight.image = images::Key::of(&op);
            flight.in_bytes = op.ops.iter().map(|o| o.indata.len() as u32).sum();
        }
        self.admit(ClientOp {
            conn: conn.0,
            client,
            op,
            permit,
        });
    }

    /// To the PG that the operation is for now; it waits where its sender's map is newer than ours, and while
    /// this OSD may not serve.
    pub fn route(&mut self, op: ClientOp) {
        self.route_since(op, None);
    }

    /// `since`: when it began to wait, if it has waited.
    fn route_since(&mut self, mut op: ClientOp, since: Option<Duration>) {
        let conn = ConnId(op.conn);
        let epoch = self.placement.epoch();
        if self.sessions.waiting.is_shut(conn) {
            return;
        }
        let until = match () {
            () if self.sessions.waiting.holds(conn) => Some(Until::Earlier),
            () if op.op.epoch > epoch => Some(Until::Epoch(op.op.epoch)),
            () if !self.serving() => Some(Until::Lease),
            () => None,
        };
        if let Some(until) = until {
            if matches!(until, Until::Epoch(_)) && since.is_none() {
                self.meters.osd.messages_delayed_for_map.inc();
            }
            let since = since.unwrap_or_else(|| self.clock.monotonic());
            if let Some(greedy) = self.sessions.waiting.park(op, since, until) {
                self.close(greedy, "too many operations wait for a newer map or the lease");
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
            if self.read_copy(pg, op) {
                return;
            }
            // The client sends again when the map that tells it where the PG is has reached it.
            tracing::debug!("operation for {pg}, which is not served here: dropped");
            return;
        }
        let slot = self.leading(pg).or_else(|| self.retry_load(pg));
        let Some(slot) = slot else {
            return self.cannot_load(&op, epoch);
        };
        let led_after = self.slots.get(&slot).map_or(0, |s| s.led_after);
        if op.op.epoch <= led_after {
            tracing::debug!(
                "operation for {pg} from before epoch {led_after}, when it was led elsewhere: dropped"
            );
            return;
        }
        if let Some(listed) = listed(&op.permit) {
            listed.reached_pg(self.clock.monotonic());
        }
        if !self.is_within_limits(slot, &mut op) {
            return;
        }
        self.drive(slot, Input::ClientOp(Box::new(op)));
    }

    /// Pushes the newest map to all clients: what they wait for may have another primary, and a client that waits
    /// does not ask for maps by itself.
    fn update_maps(&mut self) {
        let epoch = self.placement.epoch();
        for conn in self.sessions.with_maps().collect::<Vec<_>>() {
            self.update_map(conn, epoch);
        }
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

    pub fn close(&self, conn: ConnId, why: &str) {
        let now = self.clock.monotonic();
        io::log::refused(now, format_args!("conn {}: {why}: closed", conn.0));
        self.conns.close(conn);
    }
}
