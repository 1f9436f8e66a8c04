//! Operations that are over a limit, or in the way of who has a reservation, are dropped, and their clients told when to
//! send them (`qos`).

use crate::osd::{InFlight, Osd};
use crate::placement::Placement;
use crate::qos::bucket::Cost;
use crate::qos::limits::{Ids, Passes, Place};
use crate::qos::table::{Arrival, Era, Notice, Verdict};
use crate::qos::{Charged, Qos, cost};
use messages::osd::{BackoffOp, MOSDBackoff};
use msgr::features::SERVER_LUMINOUS;
use net::ConnId;
use pg::ClientOp;
use serde_json::Value;
use types::{EntityKind, NOSNAP, SPgId};

impl Osd {
    fn era(placement: &Placement, slot: SPgId) -> Option<Era> {
        let group = placement.group(slot).filter(|_| placement.leads(slot))?;
        Some(Era {
            interval: group.interval,
            pg_num: placement.pool(slot.pg.pool)?.pg_num,
        })
    }

    /// Limits may have changed; and what this OSD leads, if the state has `moved`.
    pub fn heed_qos(&mut self, moved: bool) {
        let (state, now) = (self.cluster.state(), self.clock.monotonic());
        let placement = &self.placement;
        self.qos.heed(placement, &state.config_keys, moved, now);
        self.ops.count_reads(!self.qos.is_idle());
    }

    /// What is held of PGs that are in another interval now, or led elsewhere, is let go.
    pub fn release_moved(&mut self) {
        if self.qos.table.is_empty() {
            return;
        }
        let (placement, now, mut out) = (&self.placement, self.clock.monotonic(), Vec::new());
        let Qos { table, limits, .. } = &mut self.qos;
        table.moved(|pg| Self::era(placement, pg), limits, now, &mut out);
        self.unblock(out);
    }

    /// What an operation falls under, if it is one that its client may do.
    fn limits_of(&mut self, slot: SPgId, op: &ClientOp) -> Option<(Ids, Cost)> {
        let cost = cost::of(&op.op).filter(|_| !self.qos.limits.is_empty())?;
        let ids = self.ids_of(op)?;
        if ids.is_empty() && !self.qos.limits.shares.is_on() {
            return None;
        }
        let may = self.led(slot).is_some_and(|pg| pg.lets_in(op, &self.placement));
        may.then_some((ids, cost))
    }

    /// None: not of a client.
    fn ids_of(&mut self, op: &ClientOp) -> Option<Ids> {
        let place = Place {
            pool: op.op.pgid.pg.pool,
            namespace: &op.op.oloc.nspace,
            oid: &op.op.oid,
        };
        let session = self.sessions.get_mut(ConnId(op.conn))?;
        // By its key, not by what it calls itself.
        let user = session.entity();
        if user.kind != EntityKind::Client {
            return None;
        }
        Some(self.qos.limits.of(&place, user))
    }

    /// A read that asks for any copy, of what is limited or has a reservation, goes to the primary.
    pub fn is_limited_copy_read(&mut self, op: &ClientOp) -> bool {
        let idle = self.qos.limits.is_empty() || cost::of(&op.op).is_none();
        !idle && self.ids_of(op).is_some_and(|ids| !ids.is_empty())
    }

    /// Whether an operation may go on now. Otherwise it is to be dropped: its client knows, and sends it again.
    pub fn is_within_limits(&mut self, slot: SPgId, op: &mut ClientOp) -> bool {
        if self.qos.is_idle() || op.op.is_pg_op() {
            return true;
        }
        let (ids, cost) = self.limits_of(slot, op).unwrap_or_default();
        let Some(era) = Self::era(&self.placement, slot) else {
            return true;
        };
        let m = &op.op;
        let arrival = Arrival {
            conn: ConnId(op.conn),
            client: op.client.instance,
            pg: slot,
            named: m.pgid,
            era,
            object: &types::HObject::new(
                slot.pg.pool,
                m.hash,
                m.oloc.nspace.clone(),
                m.oloc.key.clone(),
                m.oid.clone(),
                NOSNAP,
            ),
            ids,
            cost,
            writes: cost.writes > 0,
            // One that names the PG by an older map would not find it under the number that it is told.
            can_be_held: op.client.features & SERVER_LUMINOUS != 0 && m.pgid == slot,
        };
        let now = self.clock.monotonic();
        let Qos { table, limits, .. } = &mut self.qos;
        let verdict = table.arrive(&arrival, limits, now);
        match verdict {
            Verdict::Go | Verdict::Ahead => {
                let passes = arrival.passes(verdict == Verdict::Ahead);
                Self::note_charge(op, ids, &cost, passes);
                true
            }
            Verdict::Drop => false,
            Verdict::Block(id) => {
                let notice = Notice {
                    conn: arrival.conn,
                    pg: slot,
                    id,
                    object: arrival.object.clone(),
                };
                self.meters.osd.qos_backoffs.inc();
                self.notify_backoff(&notice, BackoffOp::Block);
                false
            }
        }
    }

    /// What is to be done when the operation has its answer.
    fn note_charge(op: &mut ClientOp, ids: Ids, cost: &Cost, passes: Passes) {
        let flight = op
            .permit
            .rider
            .as_mut()
            .and_then(|p| p.downcast_mut::<InFlight>());
        if let Some(flight) = flight {
            flight.ahead = passes == Passes::Ahead;
            flight.charged = (cost.reads > 0).then_some(Charged {
                ids,
                passes,
                bytes: cost.read_bytes,
            });
        }
    }

    fn notify_backoff(&self, notice: &Notice, op: BackoffOp) {
        let message = MOSDBackoff {
            pgid: notice.pg,
            epoch: self.placement.epoch(),
            op,
            id: notice.id,
            begin: notice.object.clone(),
            end: notice.object.clone(),
        };
        self.conns.send(notice.conn, message.to_message());
    }

    fn unblock(&self, notices: Vec<Notice>) {
        for notice in notices {
            self.notify_backoff(&notice, BackoffOp::Unblock);
        }
    }

    /// A client has heard that it shall hold back an object.
    pub fn on_backoff(&mut self, conn: ConnId, msg: &msgr::Message) {
        let Ok(m) = MOSDBackoff::from_message(msg) else {
            return self.close(conn, "malformed backoff");
        };
        if m.op == BackoffOp::AckBlock {
            let mut out = Vec::new();
            self.qos.table.acked(conn, m.id, self.clock.monotonic(), &mut out);
            self.unblock(out);
        }
    }

    /// Hands out the tokens that have come.
    pub fn qos_step(&mut self) {
        let (now, wall) = (self.clock.monotonic(), self.clock.wall());
        if self.qos.next_timer().is_some_and(|at| at <= now) {
            let mut out = Vec::new();
            let Qos { table, limits, .. } = &mut self.qos;
            if limits.shares.step(now, wall) {
                table.look(now);
            }
            let ops = &self.ops;
            table.step(
                limits,
                |client, pg, oid| ops.has_read(client, pg, oid),
                now,
                &mut out,
            );
            self.unblock(out);
        }
    }

    /// About once a second: clients that do not answer BLOCK.
    pub fn end_deaf(&mut self) {
        if self.qos.table.is_empty() {
            return;
        }
        for conn in self.qos.table.deaf(self.clock.monotonic()) {
            self.close(conn, "it does not answer a backoff");
        }
    }

    pub fn dump_qos(&self) -> Value {
        self.qos.dump(self.clock.monotonic())
    }
}
