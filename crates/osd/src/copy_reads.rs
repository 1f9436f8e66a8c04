//! Reads of clients that asked for any copy of a PG, or for the nearest, where this OSD does not lead it.
//!
//! Invariant: whether this OSD may answer is looked up in the newest cluster state that it has, right before the PG's member
//! gets whatever may make it answer. Not here: grants, and what of a copy may be shown (`pg::replication`).

use crate::osd::Osd;
use crate::slot::Role;
use net::ConnId;
use pg::{ClientOp, ForCopy};
use types::{Errno, PgId, SPgId};

impl Osd {
    /// An operation for a PG that another OSD leads. False: it is none that a copy may see, or there is no copy here.
    pub fn read_copy(&mut self, pg: PgId, op: ClientOp) -> bool {
        let what = ForCopy::of(&op.op);
        let Some(pg) = self.following(pg) else {
            return false;
        };
        let pool = self.placement.pool(pg.pg.pool).cloned();
        let (Some(pool), ForCopy::Refuse | ForCopy::Read) = (pool, what) else {
            return false;
        };
        // A shard by itself answers nobody.
        let what = if pool.erasure { ForCopy::Refuse } else { what };
        self.meters.osd.replica_read.inc();
        // Limits are the primary's to keep.
        let what = match what {
            ForCopy::Read if self.is_limited_copy_read(&op) => ForCopy::Refuse,
            what => what,
        };
        let serving = self.may_answer_for(pg);
        self.turn(pg, |role, ctx| {
            if let Role::Replica(r) = role {
                r.set_serving(serving);
                match what {
                    ForCopy::Read => r.read(Box::new(op), &pool, ctx),
                    _ => pg::refuse_read(op, pool.epoch, ctx),
                }
            }
        });
        true
    }

    /// Whether, as far as anybody can know, this OSD is in the `in_sync` of the interval that its slot goes by, and not
    /// marked down; and its lease lives.
    pub fn may_answer_for(&self, pg: SPgId) -> bool {
        let state = self.cluster.state();
        let known = self.slots.get(&pg).map(|s| match &s.role {
            Role::Primary(p) => p.group().interval,
            Role::Replica(r) => r.group().interval,
        });
        self.serving()
            && state.osdmap.is_up(self.id)
            && state
                .pgs
                .get(pg.pg)
                .is_some_and(|c| c.in_sync.contains(&self.id) && Some(c.interval) == known)
    }

    /// Five times a second: what waits for the primary's word does not wait for ever.
    pub fn look_after_copy_reads(&mut self) {
        let reads = |role: &Role| matches!(role, Role::Replica(r) if r.has_reads());
        let pgs: Vec<SPgId> = self
            .slots
            .iter()
            .filter(|(_, s)| reads(&s.role))
            .map(|(pg, _)| *pg)
            .collect();
        for pg in pgs {
            self.turn(pg, |role, ctx| {
                if let Role::Replica(r) = role {
                    r.look_after_reads(ctx);
                }
            });
        }
    }

    /// The answer of a member that does not lead.
    pub fn copy_answered(&mut self, conn: u64, reply: &messages::osd::MOSDOpReply) {
        match reply.result == Errno::EAGAIN.code() {
            true => self.meters.osd.replica_read_redirected.inc(),
            false => {
                self.meters.osd.replica_read_served.inc();
                let out = reply.ops.iter().map(|o| o.outdata.len() as u64);
                self.meters.osd.replica_read_out_bytes.add(out.sum::<u64>());
            }
        }
        self.conns.send(ConnId(conn), reply.to_message());
    }
}
