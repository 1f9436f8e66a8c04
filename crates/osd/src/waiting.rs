//! Operations that wait before they reach a PG: for a newer map, or for the lease.
//!
//! Invariants: those of one connection keep their order, also against its later ones ([`Waiting::holds`]). Nothing is
//! looked at again before what it waits for has come ([`Waiting::may_go`]), however many wait.
//!
//! Bounds: [`WAITING_MAX`] of all connections together. With one more, all of the connection that has most of them go, and
//! it is closed: whoever says that he has the maps of tomorrow takes places from himself. One that waits for a map while
//! this OSD serves is closed after [`MAP_MAX`]: no such map is on its way, and a true client sends again.

use net::ConnId;
use pg::ClientOp;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;
use types::Epoch;

/// Each holds one operation of a client.
const WAITING_MAX: usize = 4096;
/// Ten times what a map takes from the monitor to an OSD that has its lease.
const MAP_MAX: Duration = Duration::from_secs(10);

/// What an operation waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    Epoch(Epoch),
    Lease,
    /// An earlier one of its connection has gone.
    Earlier,
}

#[derive(Debug)]
pub struct Parked {
    pub op: ClientOp,
    pub since: Duration,
    until: Until,
}

#[derive(Debug, Default)]
pub struct Waiting {
    ops: VecDeque<Parked>,
    by_conn: BTreeMap<u64, usize>,
    waits_for_lease: bool,
    /// The lowest that any waits for.
    epoch: Option<Epoch>,
    /// Connections that are being closed, since earlier ones of theirs are lost: what still comes of them must not overtake
    /// those, which the client sends again.
    shut: BTreeSet<u64>,
}

impl Waiting {
    /// An operation of this connection waits already: later ones must queue behind it.
    pub fn holds(&self, conn: ConnId) -> bool {
        self.by_conn.contains_key(&conn.0)
    }

    /// This connection is being closed: nothing of it counts any more.
    pub fn is_shut(&self, conn: ConnId) -> bool {
        self.shut.contains(&conn.0)
    }

    /// Keeps an operation. The connection whose operations had to go instead, perhaps its own, is to be closed.
    pub fn park(&mut self, op: ClientOp, since: Duration, until: Until) -> Option<ConnId> {
        let mut greedy = None;
        if self.ops.len() >= WAITING_MAX {
            let most = self.by_conn.iter().max_by_key(|(_, n)| **n);
            let conn = ConnId(most.map_or(op.conn, |(conn, _)| *conn));
            self.shut(conn);
            greedy = Some(conn);
            if conn.0 == op.conn {
                return greedy;
            }
        }
        *self.by_conn.entry(op.conn).or_default() += 1;
        match until {
            Until::Epoch(e) => self.epoch = Some(self.epoch.map_or(e, |low| low.min(e))),
            Until::Lease => self.waits_for_lease = true,
            Until::Earlier => {}
        }
        self.ops.push_back(Parked { op, since, until });
        greedy
    }

    /// Whether any of them may go on under this map, by an OSD that serves.
    pub fn may_go(&self, epoch: Epoch) -> bool {
        self.waits_for_lease || self.epoch.is_some_and(|e| e <= epoch)
    }

    /// All of them, in order; those that have to wait on are parked again by the caller.
    pub fn take(&mut self) -> VecDeque<Parked> {
        (self.waits_for_lease, self.epoch) = (false, None);
        self.by_conn.clear();
        std::mem::take(&mut self.ops)
    }

    /// A connection is gone.
    pub fn forget(&mut self, conn: ConnId) {
        self.shut.remove(&conn.0);
        self.drop_all(conn);
    }

    fn shut(&mut self, conn: ConnId) {
        self.drop_all(conn);
        self.shut.insert(conn.0);
    }

    fn drop_all(&mut self, conn: ConnId) {
        if self.by_conn.remove(&conn.0).is_some() {
            self.ops.retain(|p| p.op.conn != conn.0);
        }
    }

    /// Connections that have waited for a map for too long, to be closed.
    pub fn overdue(&mut self, now: Duration) -> Vec<ConnId> {
        let late = |p: &&Parked| matches!(p.until, Until::Epoch(_)) && now.saturating_sub(p.since) > MAP_MAX;
        let mut conns: Vec<ConnId> = self.ops.iter().filter(late).map(|p| ConnId(p.op.conn)).collect();
        conns.dedup();
        conns.iter().for_each(|conn| self.shut(*conn));
        conns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use messages::osd::MOSDOp;
    use pg::{Client, Permit};
    use std::sync::Arc;
    use types::{EntityAddr, EntityKind, EntityName, ObjectLocator, OsdReqId, PgId, SPgId, Utime};

    #[derive(Debug)]
    struct All;
    impl pg::Capabilities for All {
        fn allows(&self, _: &pg::Need<'_>, _: pg::Allow<'_>) -> bool {
            true
        }
    }

    fn op(conn: u64, tid: u64) -> ClientOp {
        let client = Client {
            name: EntityName::new(EntityKind::Client, conn as i64),
            global_id: conn,
            instance: conn,
            addr: EntityAddr::BLANK,
            from: None,
            features: 0,
            caps: Arc::new(All),
            fence: pg::Fence::default(),
        };
        ClientOp {
            conn,
            client: Arc::new(client),
            op: request(tid),
            permit: Permit::default(),
        }
    }

    fn request(tid: u64) -> MOSDOp {
        MOSDOp {
            tid,
            pgid: SPgId::replicated(PgId::new(1, 0)),
            hash: 0,
            epoch: 0,
            flags: 0,
            reqid: OsdReqId {
                name: EntityName { kind: 0, num: 0 },
                tid: 0,
                inc: 0,
            },
            trace: [0; 3],
            client_inc: 0,
            mtime: Utime::ZERO,
            oloc: ObjectLocator {
                pool: 1,
                key: Bytes::new(),
                nspace: Bytes::new(),
                hash: -1,
            },
            oid: Bytes::new(),
            ops: Vec::new(),
            snapid: 0,
            snap_seq: 0,
            snaps: Vec::new(),
            retry_attempt: 0,
            features: 0,
        }
    }

    const AT: Duration = Duration::from_secs(100);

    #[test]
    fn who_has_maps_of_tomorrow_takes_no_place_from_others() {
        let mut w = Waiting::default();
        for tid in 0..WAITING_MAX as u64 {
            // Of sixteen connections, one has a few more than the others.
            let conn = if tid < 8 { 1 } else { tid % 16 };
            assert_eq!(w.park(op(conn, tid), AT, Until::Epoch(u32::MAX)), None);
        }
        assert_eq!(w.park(op(77, 1), AT, Until::Epoch(9)), Some(ConnId(1)));
        assert!(w.holds(ConnId(77)) && !w.holds(ConnId(1)) && w.holds(ConnId(2)));
        assert!(w.ops.len() < WAITING_MAX);
    }

    #[test]
    fn nobody_is_looked_at_before_his_map_is_there() {
        let mut w = Waiting::default();
        w.park(op(1, 1), AT, Until::Epoch(1000));
        w.park(op(1, 2), AT, Until::Earlier);
        assert!(!w.may_go(999) && w.may_go(1000));
        w.park(op(2, 1), AT, Until::Epoch(12));
        assert!(!w.may_go(11) && w.may_go(12));
        let tids: Vec<u64> = w.take().iter().map(|p| p.op.op.tid).collect();
        assert_eq!(
            (tids, w.may_go(u32::MAX), w.ops.is_empty()),
            (vec![1, 2, 1], false, true)
        );
        w.park(op(1, 1), AT, Until::Lease);
        assert!(w.may_go(0));
        w.forget(ConnId(1));
        assert!(w.ops.is_empty());
    }

    #[test]
    fn a_map_that_does_not_come_is_not_waited_for_long() {
        let mut w = Waiting::default();
        w.park(op(1, 1), AT, Until::Epoch(1000));
        w.park(op(1, 2), AT, Until::Earlier);
        w.park(op(2, 1), AT, Until::Lease);
        assert!(w.overdue(AT + MAP_MAX).is_empty());
        assert_eq!(w.overdue(AT + MAP_MAX + Duration::from_millis(1)), [ConnId(1)]);
        // What is on its way from it must not overtake what it sends again.
        assert!(w.is_shut(ConnId(1)) && !w.is_shut(ConnId(2)) && !w.holds(ConnId(1)));
        w.forget(ConnId(1));
        assert!(!w.is_shut(ConnId(1)));
    }
}
