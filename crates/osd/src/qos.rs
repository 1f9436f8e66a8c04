//! Limits of what clients may do per second, enforced where their operations arrive: at the primary of each object.
//!
//! Each OSD goes by its share of a limit: as many parts of it as it leads placement groups of those that the limit is about. An
//! operation without tokens does not wait here. It is dropped, with its message and its permit, and its client is told
//! to hold back what it has for that object until there are tokens (MOSDBackoff; docs/decisions/0049-backoff.md). What is kept of it is a
//! record (`table`). Only what its client may do is charged; other OSDs, metadata servers and monitors are not limited.
//!
//! Not here: what the limits are (`cluster::qos`), who may set them (`mon`).

mod bucket;
mod cost;
mod limits;
mod table;

use crate::osd::{InFlight, Osd};
use crate::placement::Placement;
use bucket::Cost;
use bytes::Bytes;
use cluster::qos::{self, Subject};
use limits::{Ids, Limits, Place};
use messages::osd::{BackoffOp, MOSDBackoff};
use msgr::features::SERVER_LUMINOUS;
use net::ConnId;
use pg::ClientOp;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use table::{Arrival, Era, Notice, Table, Verdict};
use types::{EntityKind, NOSNAP, PoolId, SPgId};

#[derive(Debug, Default)]
pub struct Qos {
    limits: Limits,
    table: Table,
    /// The keys that the limits were read from last.
    seen: Option<Arc<BTreeMap<String, Bytes>>>,
}

/// What a read was charged before it was known what there is to read.
#[derive(Debug, Clone, Copy)]
pub struct Charged {
    ids: Ids,
    bytes: u64,
}

impl Qos {
    /// There are no limits, and nobody is held.
    fn is_idle(&self) -> bool {
        self.limits.is_empty() && self.table.is_empty()
    }

    pub fn next_timer(&self) -> Option<Duration> {
        self.table.next_timer()
    }

    pub fn closed(&mut self, conn: ConnId) {
        self.table.closed(conn, &mut self.limits);
    }

    /// Goes by what the state says. `moved`: what this OSD leads may have changed.
    fn heed(
        &mut self,
        placement: &Placement,
        keys: &Arc<BTreeMap<String, Bytes>>,
        moved: bool,
        now: Duration,
    ) {
        let same = self.seen.as_ref().is_some_and(|seen| Arc::ptr_eq(seen, keys));
        if same && (!moved || self.limits.is_empty()) {
            return;
        }
        self.seen = Some(keys.clone());
        let rows = qos::rows(keys);
        if rows.is_empty() && self.limits.is_empty() {
            return;
        }
        let led = led(placement);
        let part = |(mine, all): (usize, u32)| mine as f64 / f64::from(all.max(1));
        let everywhere = led.values().fold((0, 0), |(a, b), (c, d)| (a + c, b + d));
        let share = |pool: Option<PoolId>| match pool {
            Some(pool) => led.get(&pool).map_or(0.0, |of| part(*of)),
            None => part(everywhere),
        };
        self.limits.set(rows, share, now);
        self.table.look(now);
    }

    /// A read has its answer, of so many bytes.
    pub fn answered(&mut self, charged: Charged, bytes: u64) {
        self.limits.settle(charged.ids, charged.bytes, bytes);
    }

    fn dump(&self, now: Duration) -> Value {
        let limits = self.limits.all().map(|limit| {
            let buckets = limit.buckets.iter().map(|b| {
                json!({
                    "kind": b.kind.name(),
                    "burst": b.peak,
                    "per_second": b.per_second(),
                    "tokens": b.level().round(),
                })
            });
            let words: Map<String, Value> = limit.words().json();
            json!({
                "subject": limit.subject.word(),
                "of": of_subject(&limit.subject),
                "limits": words,
                "share": limit.share,
                "tokens": buckets.collect::<Vec<_>>(),
                "ops": limit.served,
                "held_back": limit.held,
                "not_held": limit.unheld,
            })
        });
        let (waiting, since) = self.table.held();
        json!({
            "limits": limits.collect::<Vec<_>>(),
            "records": self.table.len(),
            "objects_waiting": waiting,
            "longest_wait": since.map_or(0.0, |s| now.saturating_sub(s).as_secs_f64()),
        })
    }
}

fn of_subject(subject: &Subject) -> Value {
    match subject {
        Subject::Pool(pool) => json!({ "pool": pool }),
        Subject::Namespace(pool, namespace) => json!({"pool": pool, "namespace": namespace}),
        Subject::Image(i) => json!({"pool": i.pool, "namespace": i.namespace, "id": i.id}),
        Subject::User(name) => json!({ "user": name }),
    }
}

/// Of each pool, how many placement groups this OSD leads, and how many there are.
fn led(placement: &Placement) -> BTreeMap<PoolId, (usize, u32)> {
    let pools = placement.state.osdmap.pools.iter();
    let mut all: BTreeMap<PoolId, (usize, u32)> = pools.map(|(id, p)| (*id, (0, p.pg_num))).collect();
    for slot in placement.groups().keys().filter(|slot| placement.leads(**slot)) {
        if let Some((mine, _)) = all.get_mut(&slot.pg.pool) {
            *mine += 1;
        }
    }
    all
}

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
        if moved && !self.qos.table.is_empty() {
            let mut out = Vec::new();
            let Qos { table, limits, .. } = &mut self.qos;
            table.moved(|pg| Self::era(placement, pg), limits, now, &mut out);
            self.unblock(out);
        }
    }

    /// What an operation falls under, if it is one that its client may do.
    fn limits_of(&mut self, slot: SPgId, op: &ClientOp) -> Option<(Ids, Cost)> {
        let is_client = op.client.name.kind == EntityKind::Client as u8;
        let cost = cost::of(&op.op).filter(|_| is_client && !self.qos.limits.is_empty())?;
        let ids = self.ids_of(op)?;
        let may = self.led(slot).is_some_and(|pg| pg.lets_in(op, &self.placement));
        may.then_some((ids, cost))
    }

    fn ids_of(&mut self, op: &ClientOp) -> Option<Ids> {
        let place = Place {
            pool: op.op.pgid.pg.pool,
            namespace: &op.op.oloc.nspace,
            oid: &op.op.oid,
        };
        let session = self.sessions.get_mut(ConnId(op.conn))?;
        let ids = self.qos.limits.of(&place, session.entity());
        (!ids.is_empty()).then_some(ids)
    }

    /// A read that asks for any copy, of what is limited, goes to the primary.
    pub fn is_limited_copy_read(&mut self, op: &ClientOp) -> bool {
        !self.qos.limits.is_empty() && cost::of(&op.op).is_some() && self.ids_of(op).is_some()
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
            pg: slot,
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
        match table.arrive(&arrival, limits, now) {
            Verdict::Go => {
                let flight = op
                    .permit
                    .rider
                    .as_mut()
                    .and_then(|p| p.downcast_mut::<InFlight>());
                if let Some(flight) = flight.filter(|_| cost.reads > 0 && !ids.is_empty()) {
                    flight.charged = Some(Charged {
                        ids,
                        bytes: cost.read_bytes,
                    });
                }
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
        let now = self.clock.monotonic();
        if self.qos.next_timer().is_some_and(|at| at <= now) {
            let mut out = Vec::new();
            let Qos { table, limits, .. } = &mut self.qos;
            table.step(limits, now, &mut out);
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

#[cfg(test)]
mod tests;
