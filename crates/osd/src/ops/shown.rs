//! What is told of clients' operations: in reports, and to who asks this OSD.

use super::history::{Done, Limits};
use super::stages::Passed;
use super::traces::{self, ImageOf, Trace};
use super::{InList, LiveOp, text};
use crate::images;
use crate::osd::Osd;
use messages::osd::{MOSDOp, OpCode, flag};
use pg::Client;
use serde_json::{Value, json};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use types::pgstats::{HELD_LOCKS_MAX, HeldLock, NoRoom, SLOW_OPS_MAX, SlowOp, Wait, holder, wait};
use types::{EntityAddr, EntityName, OsdId, PgId, Utime};

/// Operations older than this are listed in the report.
const LISTED_AFTER: Duration = Duration::from_secs(1);
/// Ceph's default of `osd_op_complaint_time`: operations older than this are counted as slow.
pub const COMPLAINT: Duration = Duration::from_secs(30);

/// Members of a PG whose disks have no room, this OSD among them.
pub fn no_room(pg: &pg::Pg) -> impl Iterator<Item = NoRoom> {
    let group = pg.group();
    let here = pg.lacks_room().then(|| NoRoom {
        osd: group.me,
        needed: true,
        lacks: pg.held() as u64,
    });
    let few = group.in_sync.len() <= (group.min_size as usize).max(1);
    let without = pg.members().into_iter().filter(|m| m.no_room);
    let there = without.map(move |m| NoRoom {
        osd: m.osd,
        needed: m.in_sync && few,
        lacks: m.lacks as u64,
    });
    here.into_iter().chain(there)
}

impl Osd {
    /// Begins to list an operation that came just now.
    pub fn list_op(&self, since: Duration, client: &Arc<Client>, op: &MOSDOp) -> InList {
        self.ops.begin(LiveOp {
            since,
            client: client.clone(),
            tid: op.tid,
            pg: op.pgid.pg,
            oid: op.oid.clone(),
            first: op.ops.first().map(|o| o.code),
            count: op.ops.len(),
            is_write: op.flags & flag::WRITE != 0,
            reached_pg: None,
        })
    }

    /// Tells the collector of traces of an operation that has its answer just now, if it is to hear of it.
    pub fn trace(&mut self, listed: &InList, image: Option<&images::Key>, passed: Passed, result: i32) {
        if !self.tracer.is_on() {
            return;
        }
        let slow = self.ops.past().limits().slow;
        let took = passed.answered.saturating_sub(passed.since);
        if !self.tracer.wants(took, slow) {
            return;
        }
        let Some(room) = self.tracer.room() else {
            return self.meters.osd.traces_dropped.inc();
        };
        let map = &self.placement.state.osdmap;
        let image = image.map(|key| {
            let (pool, namespace, id) = key.parts();
            ImageOf {
                pool,
                namespace: traces::text(namespace),
                id: traces::text(id),
            }
        });
        let made = listed.look(|op| Trace {
            osd: self.id,
            pg: op.pg,
            pool: traces::text(map.pool_name(op.pg.pool).unwrap_or_default().as_bytes()),
            image,
            client: op.client.name,
            is_write: op.is_write,
            object: traces::text(&op.oid),
            addr: op.client.addr,
            tid: op.tid,
            op: op.first.and_then(OpCode::name).unwrap_or("none"),
            ops: op.count,
            result,
            passed,
            began: self.clock.wall().saturating_sub(took),
            id: u128::from_le_bytes(self.random.bytes()) | 1,
            span: (self.random.u64() | 4) & !3,
        });
        if let Some(trace) = made {
            room.send(trace);
            self.meters.osd.traces.inc();
        }
    }

    /// What an operation waits for, read off the state that it finds.
    fn waits(&self, pg: PgId, is_write: bool) -> Vec<Wait> {
        let on = |kind: u8, osd: OsdId| Wait {
            kind,
            osd,
            who: String::new(),
            since: Utime::ZERO,
        };
        if !self.serving() {
            return vec![on(wait::LEASE, self.id)];
        }
        let map = &self.placement.state.osdmap;
        let Some(of) = map.raw_pg_to_pg(pg).and_then(|pg| self.primary(pg)) else {
            return vec![on(wait::MEMBER, self.id)];
        };
        let no_room: Vec<Wait> = no_room(of)
            .filter(|n| n.needed)
            .map(|n| on(wait::SPACE, n.osd))
            .collect();
        if is_write && !no_room.is_empty() {
            return no_room;
        }
        let health = crate::health::PgHealth::of(of, map);
        if !of.is_active() {
            let blocked: Vec<Wait> = health.blocked_by.iter().map(|o| on(wait::MEMBER, *o)).collect();
            return match blocked.is_empty() {
                true => vec![on(wait::MEMBER, self.id)],
                false => blocked,
            };
        }
        if !is_write {
            return vec![on(wait::DURABLE, self.id)];
        }
        let members = of.members();
        let lacking = members
            .iter()
            .filter(|m| m.in_sync && m.state != "full" && m.osd != self.id);
        let copies: Vec<Wait> = lacking.map(|m| on(wait::COPY, m.osd)).collect();
        if !copies.is_empty() {
            return copies;
        }
        of.group().in_sync.iter().map(|o| on(wait::DURABLE, *o)).collect()
    }

    /// The oldest operations that wait for more than a second, and how many are slow by Ceph's measure.
    pub fn slow_ops(&self) -> (Vec<SlowOp>, u32) {
        let (now, wall) = (self.clock.monotonic(), self.clock.wall());
        let since = |op: &LiveOp| Utime::from_unix(wall.saturating_sub(now.saturating_sub(op.since)));
        let (mut listed, _) = self.ops.older(now, LISTED_AFTER, SLOW_OPS_MAX, |op| {
            let slow = SlowOp {
                since: since(op),
                client: format!("{} {}", op.client.name, op.client.addr),
                what: text(op),
                pg: op.pg,
                object: String::from_utf8_lossy(&op.oid).into_owned(),
                waits: Vec::new(),
            };
            (slow, op.is_write)
        });
        for (slow, is_write) in &mut listed {
            slow.waits = self.waits(slow.pg, *is_write);
        }
        let (_, count) = self.ops.older(now, COMPLAINT, 0, |_| ());
        let mut all: Vec<SlowOp> = listed.into_iter().map(|(s, _)| s).collect();
        all.extend(self.unanswered(SLOW_OPS_MAX - all.len().min(SLOW_OPS_MAX)));
        (all, count as u32)
    }

    /// Clients that wait for an answer of others: of an RBD image, for its exclusive lock. The operation that asked is
    /// answered long since; who has not answered holds what is waited for.
    fn unanswered(&self, max: usize) -> Vec<SlowOp> {
        let (now, wall) = (self.clock.monotonic(), self.clock.wall());
        let at = |t: Duration| Utime::from_unix(wall.saturating_sub(now.saturating_sub(t)));
        let before = now.saturating_sub(LISTED_AFTER);
        let mut out = Vec::new();
        for (id, pg) in self.pgs().map(|(id, pg)| (id.pg, pg)) {
            for n in pg.unanswered(before, max - out.len()) {
                let object = String::from_utf8_lossy(&n.object.oid).into_owned();
                let watcher = |(client, addr, connected): &(i64, EntityAddr, bool)| Wait {
                    kind: wait::WATCHER,
                    osd: -1,
                    who: match connected {
                        true => format!("client.{client} {addr}"),
                        false => format!("client.{client} {addr} (not connected)"),
                    },
                    since: at(n.began),
                };
                out.push(SlowOp {
                    since: at(n.began),
                    client: format!("client.{}", n.by),
                    what: format!("notify of the watchers of {object}"),
                    pg: id,
                    object,
                    waits: n.watchers.iter().map(watcher).collect(),
                });
            }
        }
        out
    }

    /// Locks that somebody was refused, or whose holders are lost.
    pub fn held_locks(&self) -> Vec<HeldLock> {
        let (now, wall) = (self.clock.monotonic(), self.clock.wall());
        let at = |t: Duration| Utime::from_unix(wall.saturating_sub(now.saturating_sub(t)));
        let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
        let mut out = Vec::new();
        for (id, pg) in self.pgs().map(|(id, pg)| (id.pg, pg)) {
            let seen = pg.locks_seen(now, HELD_LOCKS_MAX - out.len());
            out.extend(seen.into_iter().map(|s| HeldLock {
                pg: id,
                nspace: text(&s.object.nspace),
                object: text(&s.object.oid),
                lock: text(&s.lock),
                holder: s.holder.entity.to_string(),
                addr: s.holder.addr,
                cookie: text(&s.holder.cookie),
                watch: match s.watches {
                    None => holder::NO_WATCH,
                    Some(false) => holder::AWAY,
                    Some(true) => holder::CONNECTED,
                },
                lost: s.lost.map_or(Utime::ZERO, at),
                refused: s.refused.as_ref().map_or(0, |r| r.times),
                refused_since: s.refused.as_ref().map_or(Utime::ZERO, |r| at(r.first)),
                refused_last: s.refused.as_ref().map_or(Utime::ZERO, |r| at(r.last)),
                refused_by: s.refused.as_ref().map_or_else(String::new, |r| r.by.to_string()),
            }));
        }
        out
    }

    /// `dump_ops_in_flight`, and with an age `dump_blocked_ops`; where addresses are given, of clients there only.
    pub fn dump_ops(&self, age: Duration, from: &[IpAddr]) -> Value {
        const DUMPED_MAX: usize = 1000;
        let now = self.clock.monotonic();
        let (ops, count) = self.ops.older(now, age, DUMPED_MAX, |op| {
            let ip = op.client.addr.sock.map(|s| s.ip());
            let wanted = from.is_empty() || ip.is_some_and(|ip| from.contains(&ip));
            wanted.then(|| {
                let mut events = vec![("initiated", op.since)];
                events.extend(op.reached_pg.map(|at| ("reached_pg", at)));
                let point = match op.reached_pg {
                    None => "delayed",
                    Some(_) => "reached pg",
                };
                self.one_op(Told {
                    text: text(op),
                    client: (op.client.name, op.client.addr, op.tid),
                    since: op.since,
                    until: now,
                    point,
                    events,
                })
            })
        });
        let left_out = ops.iter().filter(|op| op.is_none()).count();
        let ops: Vec<Value> = ops.into_iter().flatten().collect();
        json!({"ops": ops, "num_ops": count - left_out})
    }

    fn one_op(&self, told: Told) -> Value {
        let (now, wall) = (self.clock.monotonic(), self.clock.wall());
        let age = now.saturating_sub(told.since);
        let stamp = |at: Duration| Utime::from_unix(wall.saturating_sub(now.saturating_sub(at))).to_string();
        let last = told.events.len().saturating_sub(1);
        let took = |i: usize, at: Duration| match told.events.get(i + 1) {
            Some((_, next)) => next.saturating_sub(at),
            None => told.until.saturating_sub(told.since),
        };
        let event = |(i, (event, at)): (usize, &(&str, Duration))| {
            // As Ceph has it: the last one's is that of all.
            let duration = if i == last && last == 0 {
                Duration::ZERO
            } else {
                took(i, *at)
            };
            json!({"event": event, "time": stamp(*at), "duration": duration.as_secs_f64()})
        };
        let (name, addr, tid) = told.client;
        json!({
            "description": told.text,
            "initiated_at": stamp(told.since),
            "age": age.as_secs_f64(),
            "duration": told.until.saturating_sub(told.since).as_secs_f64(),
            "type_data": {
                "flag_point": told.point,
                "client_info": {
                    "client": name.to_string(), "client_addr": addr.place_and_nonce(), "tid": tid,
                },
                "events": told.events.iter().enumerate().map(event).collect::<Vec<_>>(),
            },
        })
    }

    /// Operations older than Ceph's complaint time.
    pub fn dump_blocked_ops(&self, from: &[IpAddr]) -> Value {
        let mut v = self.dump_ops(COMPLAINT, from);
        let n = v["num_ops"].take();
        json!({
            "ops": v["ops"].take(),
            "complaint_time": COMPLAINT.as_secs(),
            "num_blocked_ops": n,
        })
    }

    /// Once a second: what is kept of the past follows its options.
    pub fn remember_ops(&self) {
        let limits = || Limits::of(|name| self.option(name));
        let version = self.cluster.state().version;
        self.ops.past().turn(self.clock.monotonic(), version, limits);
    }

    /// What is kept of operations that have their answers.
    pub fn dump_past(&self, which: Past, from: &[IpAddr]) -> Value {
        // By the options of now, which may be newer than the last second's.
        self.remember_ops();
        let past = self.ops.past();
        let list = match which {
            Past::Recent => past.recent(),
            Past::ByDuration => past.by_duration(),
            Past::Slow => past.slow(),
        };
        let wanted = |d: &&&Done| from.is_empty() || from.iter().any(|ip| d.is_from(*ip));
        let ops: Vec<Value> = list.iter().filter(wanted).map(|d| self.one_op(told(d))).collect();
        let l = past.limits();
        match which {
            Past::Slow => json!({
                "num to keep": l.slow_size, "threshold to keep": l.slow.as_secs(), "Ops": ops,
            }),
            _ => json!({"size": l.size, "duration": l.age.as_secs(), "ops": ops}),
        }
    }
}

/// Which of the operations that have their answers.
#[derive(Debug, Clone, Copy)]
pub enum Past {
    Recent,
    ByDuration,
    Slow,
}

/// An operation, and the names that Ceph gives to its steps.
struct Told {
    text: String,
    client: (EntityName, EntityAddr, u64),
    since: Duration,
    until: Duration,
    point: &'static str,
    events: Vec<(&'static str, Duration)>,
}

fn told(d: &Done) -> Told {
    let mut events = vec![("initiated", d.since)];
    events.extend(d.steps.reached_pg.map(|at| ("reached_pg", at)));
    events.extend(d.steps.executed.map(|at| ("started", at)));
    events.extend(d.is_write.then_some(("commit_sent", d.steps.answered)));
    events.push(("done", d.steps.answered));
    Told {
        text: d.text.clone(),
        client: (d.who, d.addr, d.tid),
        since: d.since,
        until: d.steps.answered,
        point: match d.is_write {
            true => "commit sent; apply or cleanup",
            false => "started",
        },
        events,
    }
}
