//! Limits of what clients may do per second, enforced where their operations arrive: at the primary of each object.
//!
//! Each OSD goes by its share of a limit: as many parts of it as it leads placement groups of those that the limit is about. An
//! operation without tokens does not wait here. It is dropped, with its message and its permit, and its client is told
//! to hold back what it has for that object until there are tokens (MOSDBackoff; docs/decisions/0049-backoff.md). What is kept of it is a
//! record (`table`). Only what its client may do is charged; other OSDs, metadata servers and monitors are not limited.
//!
//! A reservation goes the same way: while somebody who has one is at work, what all others do together, recovery and scrub among
//! them, is held to what leaves his operations as fast as they are on their own (`shares`; docs/decisions/0066-reservations.md).
//!
//! Not here: what the limits are (`cluster::qos`), who may set them (`mon`); what of it is said to clients (`limiting`).

pub mod bucket;
pub mod cost;
pub mod limits;
pub mod shares;
pub mod table;
pub mod tail;

use crate::placement::Placement;
use bytes::Bytes;
use cluster::qos::{self, Subject};
use limits::{Ids, Limits, Passes};
use net::ConnId;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use table::Table;
use types::PoolId;

#[derive(Debug, Default)]
pub struct Qos {
    pub limits: Limits,
    pub table: Table,
    /// The keys that the limits were read from last.
    seen: Option<Arc<BTreeMap<String, Bytes>>>,
}

/// What a read was charged before it was known what there is to read.
#[derive(Debug, Clone, Copy)]
pub struct Charged {
    pub ids: Ids,
    pub passes: Passes,
    pub bytes: u64,
}

impl Qos {
    /// There are no limits, and nobody is held.
    pub fn is_idle(&self) -> bool {
        self.limits.is_empty() && self.table.is_empty()
    }

    pub fn next_timer(&self) -> Option<Duration> {
        let shares = self.limits.shares.next_timer();
        [shares, self.table.next_timer()].into_iter().flatten().min()
    }

    /// Of their rates, what recovery and scrub get beside those who have reservations: in sixteenths, one at least.
    pub fn sixteenths(&self) -> u32 {
        (self.limits.shares.part() * 16.0).round().clamp(1.0, 16.0) as u32
    }

    pub fn closed(&mut self, conn: ConnId) {
        self.table.closed(conn, &mut self.limits);
    }

    /// Goes by what the state says. `moved`: what this OSD leads may have changed.
    pub fn heed(
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
        self.limits
            .settle(charged.ids, charged.passes, charged.bytes, bytes);
    }

    pub fn dump(&self, now: Duration) -> Value {
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
                "ahead": limit.ahead,
            })
        });
        let shares = &self.limits.shares;
        let others = json!({
            "reserved_at_work": shares.is_active(),
            "part": shares.part(),
            "ceiling": shares.ceiling().map(f64::round),
            "ahead": shares.ahead,
            "held_back": shares.held,
            "not_held": shares.unheld,
        });
        let (waiting, since) = self.table.held();
        json!({
            "limits": limits.collect::<Vec<_>>(),
            "others": others,
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

#[cfg(test)]
mod neighbours;
#[cfg(test)]
mod tests;
