//! The life of an operation: submitted, placed, sent, sent again where it has to be, answered
//! (docs/protocol/ceph/04-osd.md, 4.3, 7.4 and 7.7).
//!
//! Sent again under the same tid, with the attempt counted up: when the map changes the target, when the connection breaks, when a
//! backoff ends. Under a new tid: when the OSD answers EAGAIN, that it was not done. Held back: by flags of map and pool,
//! backoffs, and while nobody could take it.

use super::inflight::{Op, Owner, Request, State};
use super::mon::{Asker, Question};
use super::op::{Outcome, Served};
use super::session::Session;
use super::target::{Need, Target, Way};
use super::{Answer, Core, Effect, OpId, Tid};
use crate::{Error, Result};
use messages::mon::MOsdMap;
use messages::osd::{BackoffOp, MOSDBackoff, MOSDOp, MOSDOpReply, flag};
use std::collections::BTreeSet;
use std::time::Duration;
use types::{EntityAddr, Epoch, Errno, NOSNAP, OsdId, OsdReqId, Utime};

/// Before what was told EAGAIN is sent again.
const AGAIN: Duration = Duration::from_millis(100);
/// Without an answer for so long there may be a newer map.
pub(super) const LAGGY: Duration = Duration::from_secs(10);

impl Core {
    pub(super) fn submit(&mut self, id: OpId, request: Request) {
        if let Err(e) = check(&request) {
            return self.tell(id, Err(e));
        }
        if request.operation.is_empty() {
            let nothing = Outcome {
                result: 0,
                version: 0,
                steps: Vec::new(),
                served: Served::default(),
            };
            return self.tell(id, Ok(Answer::Outcome(nothing)));
        }
        if !self.has_room(request.operation.cost()) {
            return self.tell(id, Err(Error::Busy));
        }
        let tid = self.prepare(Owner::User(id), request, true);
        self.go(tid);
    }

    /// Begins one that does not count against the limits.
    pub(super) fn start(&mut self, owner: Owner, request: Request) -> Tid {
        let tid = self.prepare(owner, request, false);
        self.go(tid);
        tid
    }

    fn prepare(&mut self, owner: Owner, request: Request, counted: bool) -> Tid {
        let now = self.now;
        let writes = request.operation.writes();
        let flags = request.operation.flags;
        let mtime = match (request.operation.mtime, owner) {
            (Some(t), _) => t,
            (None, Owner::Ping(_)) => Utime::ZERO,
            (None, _) if writes => now.wall,
            _ => Utime::ZERO,
        };
        let deadline = request.timeout.map(|t| now.mono + t);
        if let Some(at) = deadline {
            self.wake_at(at);
        }
        let any = flags & (flag::BALANCE_READS | flag::LOCALIZE_READS) != 0;
        let op = Op {
            owner,
            counted,
            need: Need {
                writes,
                though_full: !counted || flags & (flag::FULL_TRY | flag::FULL_FORCE) != 0,
                any: (any && !writes).then(|| self.draw()),
            },
            mtime,
            cost: request.operation.cost(),
            request,
            target: None,
            state: State::Homeless,
            sends: 0,
            since: now.mono,
            deadline,
        };
        self.watch_lag();
        self.inflight.insert(op)
    }

    fn draw(&self) -> u64 {
        let mut b = [0; 8];
        self.entropy.fill(&mut b);
        u64::from_le_bytes(b)
    }

    fn way(&mut self, tid: Tid) -> Option<Way> {
        let op = self.inflight.get(tid)?;
        let map = self.maps.now()?;
        Some(self.placements.way(map, &op.request.place, op.need))
    }

    /// Brings an operation to where it has to be now, and sends it if it can be.
    pub(super) fn go(&mut self, tid: Tid) {
        self.leave_session(tid);
        let way = self.way(tid);
        let Some(op) = self.inflight.get_mut(tid) else {
            return;
        };
        op.target = None;
        match way {
            None => op.state = State::Homeless,
            Some(Way::To(target)) => {
                op.target = Some(target.clone());
                op.state = State::Session { sent: false };
                self.enter_session(tid, &target);
            }
            Some(Way::Paused | Way::NoPrimary) => {
                op.state = State::Homeless;
                self.want_map();
            }
            Some(Way::NoPool) => self.poolless(tid),
            Some(Way::Refused(e)) => self.finish(tid, Err(e)),
        }
    }

    fn leave_session(&mut self, tid: Tid) {
        let osd = self
            .inflight
            .get(tid)
            .and_then(|op| op.target.as_ref())
            .map(|t| t.osd);
        if let Some(session) = osd.and_then(|o| self.sessions.of_mut(o)) {
            session.ops.remove(&tid);
        }
    }

    fn enter_session(&mut self, tid: Tid, target: &Target) {
        self.session_at(target.osd, target.addr).ops.insert(tid);
        self.dial_osd(target.osd);
        self.send_op(tid);
    }

    /// The session with an OSD that is at `addr` now.
    pub(super) fn session_at(&mut self, osd: OsdId, addr: EntityAddr) -> &mut Session {
        let (_, old) = self.sessions.get(osd, addr);
        if let Some(conn) = old {
            self.hang_up(conn);
            self.unsent(osd);
        }
        self.sessions.get(osd, addr).0
    }

    /// Nothing of what is in the session is on its present connection.
    pub(super) fn unsent(&mut self, osd: OsdId) {
        self.commands.unsent(osd);
        let tids: Vec<Tid> = self
            .sessions
            .of(osd)
            .map_or_else(Vec::new, |s| s.ops.iter().copied().collect());
        for tid in tids {
            if let Some(op) = self.inflight.get_mut(tid) {
                op.state = State::Session { sent: false };
            }
        }
    }

    /// Sends it on its session, if that is open and the OSD wants to hear of it.
    pub(super) fn send_op(&mut self, tid: Tid) {
        let Some(op) = self.inflight.get_mut(tid) else {
            return;
        };
        let (Some(target), State::Session { .. }) = (&op.target, op.state) else {
            return;
        };
        let Some(session) = self.sessions.of(target.osd) else {
            return;
        };
        let Some(conn) = session.open() else { return };
        let object = op.request.place.hobject(target.hash);
        if session.backoffs.blocks(&target.pg, &object) {
            op.state = State::Session { sent: false };
            return;
        }
        op.sends += 1;
        op.state = State::Session { sent: true };
        let Some(map) = self.maps.now() else { return };
        let (seq, snaps) = match map.pool(op.request.place.pool) {
            Some(p) if op.need.writes && p.is_pool_snaps_mode() => p.snap_context(),
            _ => (op.request.context.seq(), op.request.context.snaps().to_vec()),
        };
        tracing::debug!(
            "#{tid} try {}: {} of {} to osd.{}",
            op.sends - 1,
            op.request.place.oid.escape_ascii(),
            target.pg,
            target.osd
        );
        let message = encode(tid, op, target, map.epoch, seq, snaps).to_message();
        self.send(conn, message);
    }

    fn poolless(&mut self, tid: Tid) {
        let epoch = self.maps.epoch();
        let Some(op) = self.inflight.get_mut(tid) else {
            return;
        };
        match op.state {
            State::Poolless(Some(newest)) if epoch >= newest => {
                let gone = Error::refused(Errno::ENOENT.code(), "the pool does not exist");
                self.finish(tid, Err(gone));
            }
            State::Poolless(Some(_)) => self.want_map(),
            _ => {
                op.state = State::Poolless(None);
                if !self.mon.is_asking(Asker::Missing) {
                    let what = "osdmap".to_string();
                    self.ask(Asker::Missing, Question::Version { what }, None);
                }
            }
        }
    }

    /// The newest map there is: pools that are not in it are gone.
    pub(super) fn pools_as_of(&mut self, newest: Epoch) {
        for tid in self.inflight.which(|o| o.state == State::Poolless(None)) {
            if let Some(op) = self.inflight.get_mut(tid) {
                op.state = State::Poolless(Some(newest));
            }
            self.go(tid);
        }
    }

    // Answers

    pub(super) fn reply(&mut self, from: OsdId, m: &msgr::Message) {
        let fits = |op: &Op| {
            let here = op.target.as_ref().is_some_and(|t| t.osd == from);
            here && op.state == State::Session { sent: true }
        };
        let Some(op) = self.inflight.get(m.tid).filter(|op| fits(op)) else {
            return;
        };
        let Some(target) = &op.target else { return };
        let reply = match MOSDOpReply::from_message(m) {
            Ok(reply) => reply,
            Err(e) => return self.finish(m.tid, Err(e.into())),
        };
        if reply.retry_attempt >= 0 && reply.retry_attempt != op.sends - 1 {
            return;
        }
        if reply.result == Errno::EAGAIN.code() {
            return self.again(m.tid);
        }
        let outcome = Outcome::of(reply, target);
        self.finish(m.tid, Ok(outcome));
    }

    /// It was not done: once more under another tid. A read of any copy goes to the primary at once.
    fn again(&mut self, tid: Tid) {
        let Some(mut op) = self.take(tid) else { return };
        let from_copy = op.need.any.take().is_some();
        op.request.operation.flags &= !(flag::BALANCE_READS | flag::LOCALIZE_READS);
        op.target = None;
        let at = self.now.mono + if from_copy { Duration::ZERO } else { AGAIN };
        op.state = State::Again(at);
        let owner = op.owner;
        let tid = self.inflight.insert(op);
        self.renamed(owner, tid);
        match from_copy {
            true => self.go(tid),
            false => self.wake_at(at),
        }
    }

    /// Takes it out of everything; nobody is told.
    pub(super) fn take(&mut self, tid: Tid) -> Option<Op> {
        self.leave_session(tid);
        self.inflight.remove(tid)
    }

    pub(super) fn finish(&mut self, tid: Tid, told: Result<Outcome>) {
        let Some(op) = self.take(tid) else { return };
        match op.owner {
            Owner::User(id) => self.tell(id, told.map(Answer::Outcome)),
            Owner::Linger(watch) => self.registered(watch, told.and_then(Outcome::done), op.target),
            Owner::Ping(watch) => self.pinged(watch, told.and_then(Outcome::done)),
            Owner::Nobody => {}
        }
    }

    // Backoffs

    pub(super) fn backoff(&mut self, osd: OsdId, m: &msgr::Message) {
        let Ok(mut b) = MOSDBackoff::from_message(m) else {
            return;
        };
        let Some(session) = self.sessions.of_mut(osd) else {
            return;
        };
        let Some(conn) = session.open() else { return };
        match b.op {
            BackoffOp::Block => {
                if !session
                    .backoffs
                    .block(&b.pgid, b.id, b.begin.clone(), b.end.clone())
                {
                    return self.lost(osd);
                }
                b.op = BackoffOp::AckBlock;
                b.epoch = self.maps.epoch();
                self.send(conn, b.to_message());
            }
            BackoffOp::Unblock => {
                let Some((begin, end)) = session.backoffs.unblock(&b.pgid, b.id) else {
                    return;
                };
                let tids: Vec<Tid> = session.ops.iter().copied().collect();
                // What it had when it said BLOCK it has dropped.
                for tid in tids {
                    let covered = self.inflight.get(tid).is_some_and(|op| {
                        let on = op.target.as_ref().filter(|t| t.pg == b.pgid);
                        let object = on.map(|t| op.request.place.hobject(t.hash));
                        object.is_some_and(|o| o == begin || (begin <= o && o < end))
                    });
                    if covered {
                        self.send_op(tid);
                    }
                }
            }
            BackoffOp::AckBlock => {}
        }
    }

    // Maps

    pub(super) fn take_maps(&mut self, m: &MOsdMap) {
        let mut moved = BTreeSet::new();
        let mut lingers = BTreeSet::new();
        let mut stepped = false;
        while let Some(step) = self.maps.step(m, self.mon.fsid()) {
            stepped = true;
            let over = matches!(step, super::maps::Stepped::Over(_));
            self.compare(over, &mut moved);
            lingers.extend(self.moved_lingers(over));
        }
        if !stepped {
            // There is more, which this message does not lead to.
            if m.newest > self.maps.epoch() || self.maps.broken {
                self.mon.map_came();
                self.want_map();
            }
            return;
        }
        self.mon.map_came();
        if let Some(map) = self.maps.now().cloned() {
            self.effects.push_back(Effect::Map(map));
        }
        self.drop_dead_sessions();
        for tid in moved {
            self.go_or_register(tid);
        }
        for watch in lingers {
            self.register(watch);
        }
        self.direct_commands();
        self.tell_waiting();
        if m.newest > self.maps.epoch() {
            self.want_map();
        }
    }

    /// Notes operations whose target is another one in the present map, or may have been in one that was never seen.
    fn compare(&mut self, over: bool, moved: &mut BTreeSet<Tid>) {
        let tids = self.inflight.which(|op| !matches!(op.state, State::Again(_)));
        for tid in tids {
            if moved.contains(&tid) {
                continue;
            }
            let way = self.way(tid);
            let now = self.inflight.get(tid).and_then(|op| op.target.clone());
            let same = !over && now.is_some() && way == now.map(Way::To);
            if !same {
                moved.insert(tid);
            }
        }
    }

    /// OSDs that are down or elsewhere: nobody waits for them any more.
    fn drop_dead_sessions(&mut self) {
        let Some(map) = self.maps.now().cloned() else {
            return;
        };
        for osd in self.sessions.ids() {
            let Some(session) = self.sessions.of(osd) else {
                continue;
            };
            let there = map.osd(osd).filter(|_| map.is_up(osd));
            if there.is_some_and(|s| s.client_addrs.0.contains(&session.addr)) {
                continue;
            }
            // Its operations have moved: their target was in the map before.
            if let Some(conn) = self.sessions.remove(osd) {
                self.hang_up(conn);
            }
            self.lost_lingers(osd);
        }
    }

    /// Operations about watches are not repeated as they are: an OSD that answered one before would not look at it.
    pub(super) fn go_or_register(&mut self, tid: Tid) {
        let Some(op) = self.inflight.get(tid) else { return };
        match op.owner {
            Owner::Linger(watch) if op.sends > 0 => {
                self.take(tid);
                self.renamed_none(watch);
                self.register(watch);
            }
            Owner::Ping(watch) => {
                self.take(tid);
                self.ping_dropped(watch);
            }
            _ => self.go(tid),
        }
    }
}

fn check(request: &Request) -> Result<()> {
    request.place.check()?;
    request.operation.check()?;
    if request.operation.writes() && request.snap != NOSNAP {
        return Err(Error::invalid(Errno::EROFS, "a write to a snapshot"));
    }
    Ok(())
}

fn encode(tid: Tid, op: &Op, target: &Target, epoch: Epoch, seq: u64, snaps: Vec<u64>) -> MOSDOp {
    let place = &op.request.place;
    let way = if op.need.writes { flag::WRITE } else { flag::READ };
    let retry = if op.sends > 1 { flag::RETRY } else { 0 };
    MOSDOp {
        tid,
        pgid: target.pg,
        hash: target.hash,
        epoch,
        flags: way | flag::ONDISK | flag::KNOWN_REDIR | retry | op.request.operation.flags,
        reqid: OsdReqId {
            name: types::EntityName { kind: 0, num: 0 },
            tid: 0,
            inc: 0,
        },
        trace: [0; 3],
        client_inc: 0,
        mtime: op.mtime,
        oloc: types::ObjectLocator {
            pool: place.pool,
            key: place.key.clone(),
            nspace: place.nspace.clone(),
            hash: if place.of_pg.is_some() {
                i64::from(target.hash)
            } else {
                -1
            },
        },
        oid: place.oid.clone(),
        ops: op.request.operation.steps.clone(),
        snapid: op.request.snap,
        snap_seq: if op.need.writes { seq } else { 0 },
        snaps: if op.need.writes { snaps } else { Vec::new() },
        retry_attempt: op.sends - 1,
        features: msgr::features::SUPPORTED,
    }
}
