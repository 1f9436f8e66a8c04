//! Messages between OSDs: to whom they go, and from whom they are taken.
//!
//! Requests of our primaries go out on the connection that we dialled to a member ([`crate::links`]), answers of our
//! members on the one that the primary dialled to us. So a message's direction says which role it is for. The shard in
//! it is the member's, -1 of copies: a request is for the slot of that shard, an answer for the one that leads the PG.
//!
//! Invariants: what a peer asks is taken in order. A request of a configuration that this OSD has not seen yet waits
//! for the cluster state: [`AHEAD_MAX`] of them, each for [`AHEAD_TIME`] at most. Not here: what is in the messages.

use crate::osd::Osd;
use crate::slot::Role;
use cluster::{PgConfig, PgProposal};
use messages::osd::peer::{PeerBody, PeerMsg};
use msgr::Message;
use net::{ConnId, DialEvent};
use pg::{Input, Permit, Proposal};
use std::time::Duration;
use types::{Epoch, OsdId, SPgId};

/// Requests that may wait for the cluster state; one more ends its connection, and the peer begins anew.
const AHEAD_MAX: usize = 1024;
/// After this a request is dropped; the peer asks again.
const AHEAD_TIME: Duration = Duration::from_secs(5);

/// A request that is ahead of our view of the cluster.
#[derive(Debug)]
pub struct Ahead {
    since: Duration,
    from: OsdId,
    conn: ConnId,
    pg: SPgId,
    interval: Epoch,
    body: PeerBody,
    _permit: Permit,
}

impl Osd {
    // --- connections that we dialled ------------------------------------------------------------------

    pub fn on_link(&mut self, id: crate::links::LinkId, event: DialEvent) {
        use crate::links::Heard;
        match self.links.on_event(id, event) {
            Heard::Nothing => {}
            Heard::Up(osd) => self.peer_up(osd),
            Heard::Down(osd) => self.peer_down(osd),
            Heard::Gone(osd) => {
                tracing::info!("osd.{}: the process of osd.{osd} is gone", self.id);
                self.heed_gone();
            }
            Heard::Message(osd, m) => {
                self.turns.about().message = Some(m.kind);
                self.turns.brought(m.size());
                return self.on_answer(osd, &m);
            }
        }
        self.links.step();
    }

    /// The PGs that this OSD leads. They hear of every connection: any OSD may become a member.
    fn led_slots(&self) -> Vec<SPgId> {
        self.pgs().map(|(pg, _)| pg).collect()
    }

    fn peer_up(&mut self, osd: OsdId) {
        for pg in self.led_slots() {
            self.drive(pg, Input::PeerUp(osd));
        }
        self.send_fetches(osd);
    }

    pub fn peer_down(&mut self, osd: OsdId) {
        for pg in self.led_slots() {
            self.drive(pg, Input::PeerDown(osd));
        }
        self.fetches_lost(osd);
    }

    fn on_answer(&mut self, from: OsdId, m: &Message) {
        match PeerMsg::from_message(m) {
            Ok(PeerMsg::Pong { stamp, .. }) => self.links.pong(from, stamp),
            Ok(PeerMsg::Pg { pg, interval, body }) => {
                // Of a PG that another OSD leads by now: nobody waits for it.
                if let Some(slot) = self.leading(pg.pg) {
                    self.on_pg_answer(slot, (from, pg.shard), interval, body);
                }
            }
            Ok(PeerMsg::Fetched { id, result, copy }) => self.on_peer_fetched(id, result, &copy),
            Ok(_) => tracing::warn!("osd.{from}: a request where an answer belongs, ignored"),
            Err(e) => tracing::warn!("osd.{from}: malformed message: {e}"),
        }
    }

    // --- connections that others dialled --------------------------------------------------------------

    /// Another OSD has connected; an earlier connection of its has ended for us, known or not.
    pub fn peer_opened(&mut self, osd: OsdId, conn: ConnId) {
        if let Some(old) = self.inbound.insert(osd, conn) {
            self.conns.close(old);
        }
        self.forget_answers(osd);
    }

    pub fn peer_closed(&mut self, osd: OsdId, conn: ConnId) {
        if self.inbound.get(&osd) == Some(&conn) {
            self.inbound.remove(&osd);
            self.forget_answers(osd);
        }
    }

    /// What was asked on an earlier connection is not answered on a later one.
    fn forget_answers(&mut self, osd: OsdId) {
        self.ahead.retain(|a| a.from != osd);
        for slot in self.slots.values_mut() {
            if let Role::Replica(r) = &mut slot.role {
                r.disconnected(osd);
            }
        }
    }

    pub fn on_request(&mut self, conn: ConnId, from: OsdId, m: &Message, permit: Permit) {
        if self.inbound.get(&from) != Some(&conn) {
            return;
        }
        match PeerMsg::from_message(m) {
            Ok(PeerMsg::Ping { stamp, .. }) => {
                let epoch = self.placement.epoch();
                self.answer(conn, &PeerMsg::Pong { stamp, epoch });
            }
            Ok(PeerMsg::Pg { pg, interval, body }) => {
                if matches!(body, PeerBody::Apply { .. }) {
                    let (perf, bytes) = (&self.meters.osd, m.size() as u64);
                    perf.subop.inc();
                    perf.subop_w.inc();
                    perf.subop_in_bytes.add(bytes);
                    perf.subop_w_in_bytes.add(bytes);
                }
                self.on_pg_request(conn, from, pg, interval, body, permit)
            }
            Ok(PeerMsg::Fetch { id, object }) => {
                self.export(crate::fetches::Asker::Peer { conn, id }, object)
            }
            Ok(_) => self.close(conn, "an answer where a request belongs"),
            Err(e) => self.close(conn, &format!("malformed message of osd.{from}: {e}")),
        }
    }

    fn on_pg_request(
        &mut self,
        conn: ConnId,
        from: OsdId,
        pg: SPgId,
        interval: Epoch,
        body: PeerBody,
        permit: Permit,
    ) {
        let in_line = self.ahead.iter().any(|a| a.pg == pg && a.from == from);
        let early = match in_line {
            true => Some(body),
            false => self.take_request(conn, from, pg, interval, body),
        };
        let Some(body) = early else { return };
        if self.ahead.len() >= AHEAD_MAX {
            return self.close(conn, "too many requests wait for a newer map");
        }
        self.ahead.push_back(Ahead {
            since: self.clock.monotonic(),
            from,
            conn,
            pg,
            interval,
            body,
            _permit: permit,
        });
    }

    /// Gives the request back if our state does not know of its configuration yet.
    fn take_request(
        &mut self,
        conn: ConnId,
        from: OsdId,
        pg: SPgId,
        interval: Epoch,
        body: PeerBody,
    ) -> Option<PeerBody> {
        if interval > self.placement.epoch() {
            // What is here may not be what it is to be yet: a PG may have been merged into it.
            return Some(body);
        }
        let known = match self.slots.get(&pg) {
            Some(slot) if matches!(slot.role, Role::Replica(_)) => {
                let durable = self.store.engine.durable();
                if matches!(body, PeerBody::Query) {
                    // What is said of a PG that was split off does not overtake what is said of the one it came from.
                    self.release(durable);
                }
                self.turn_at(pg, durable, |role, ctx| {
                    if let Role::Replica(r) = role {
                        r.peer(from, interval, body, ctx);
                    }
                });
                return None;
            }
            // One who leads in our interval takes itself for the primary: stale, like an older one.
            Some(slot) => slot.group.interval,
            // Not ours, as far as we know; of an interval that is over, or one that may be about to make it ours.
            None => match self.placement.state.pgs.get(pg.pg) {
                Some(config) => config.interval.saturating_sub(1),
                None => 0,
            },
        };
        if interval > known {
            return Some(body);
        }
        let stale = PeerBody::Stale { known };
        self.answer_pg(conn, pg, interval, stale);
        None
    }

    /// The cluster state has moved on: who waited for it is heard again, in order.
    pub fn hear_early(&mut self) {
        for a in std::mem::take(&mut self.ahead) {
            if self.inbound.get(&a.from) == Some(&a.conn) {
                let permit = a._permit;
                self.on_pg_request(a.conn, a.from, a.pg, a.interval, a.body, permit);
            }
        }
    }

    /// Drops what has waited in vain: its sender has an older view than ours. What it would not ask again ends the
    /// connection, with all that waits behind it: a log with one transaction missing would pass for whole.
    pub fn expire_early(&mut self) {
        let now = self.clock.monotonic();
        let late = |a: &Ahead| a.since + AHEAD_TIME <= now;
        let lost: Vec<ConnId> = self
            .ahead
            .iter()
            .filter(|a| late(a) && !matches!(a.body, PeerBody::Query))
            .map(|a| a.conn)
            .collect();
        self.ahead.retain(|a| !late(a) && !lost.contains(&a.conn));
        for conn in lost {
            self.close(conn, "its requests have waited for a map in vain");
        }
    }

    // --- what PGs put out -----------------------------------------------------------------------------

    /// With copies the members' slots have the same id as the primary's.
    /// `shard`: which part of the PG it is about.
    pub fn send_peer(
        &mut self,
        pg: SPgId,
        primary: bool,
        (to, shard): (OsdId, i8),
        interval: Epoch,
        body: PeerBody,
    ) {
        let pg = SPgId { shard, ..pg };
        if primary {
            // Without a connection there is nothing to be sent: the PG hears of its end, or has heard.
            self.links.send(to, &PeerMsg::Pg { pg, interval, body });
        } else if let Some(conn) = self.inbound.get(&to).copied() {
            self.answer_pg(conn, pg, interval, body);
        }
    }

    fn answer_pg(&self, conn: ConnId, pg: SPgId, interval: Epoch, body: PeerBody) {
        self.answer(conn, &PeerMsg::Pg { pg, interval, body });
    }

    pub fn answer(&self, conn: ConnId, m: &PeerMsg) {
        self.conns.send(conn, m.to_message());
    }

    /// Takes down what a PG wants its configuration to be; [`Osd::flush_wishes`] commits it.
    pub fn wish(&mut self, pg: SPgId, p: Proposal) {
        let primary = p.expect.first().copied().unwrap_or(self.id);
        let Some(new_primary) = p.in_sync.first().copied() else {
            tracing::error!("pg {pg}: proposes to be nowhere, ignored");
            return;
        };
        let known = self.placement.state.pgs.get(pg.pg);
        let wish = PgProposal {
            pg: pg.pg,
            expect: PgConfig {
                interval: p.interval,
                in_sync: p.expect,
                primary,
                acting: known.map_or_else(Vec::new, |c| c.acting.clone()),
                created: known.map_or(0, |c| c.created),
                life: known.map_or_else(Default::default, |c| c.life.clone()),
            },
            in_sync: p.in_sync,
            primary: new_primary,
            acting: p.acting,
        };
        self.wishes.insert(pg, wish);
    }

    /// Commits all wishes of this turn in one go; those of the turns meanwhile go with the next.
    pub fn flush_wishes(&mut self) {
        if self.proposing || self.wishes.is_empty() {
            return;
        }
        self.proposing = true;
        let wishes: Vec<PgProposal> = std::mem::take(&mut self.wishes).into_values().collect();
        let (cluster, replies) = (self.cluster.clone(), self.state_replies.clone());
        io::task::spawn_local(async move {
            match cluster.propose(&wishes).await {
                Ok(fates) => {
                    for (pg, refusal) in fates.iter().filter_map(|(pg, r)| Some((pg, (*r)?))) {
                        tracing::debug!("pg {pg}: proposal refused: {refusal}");
                    }
                }
                Err(e) => tracing::warn!("{} proposals not committed: {e}", wishes.len()),
            }
            let _ = replies.send(crate::event::StateReply::Proposed);
        });
    }
}
