//! Replies: what a message's outcome looks like to the client (docs/protocol/ceph/04-osd.md, sections 4, 7.3, 8.1).

use crate::Pg;
use crate::api::ClientOp;
use crate::broken::{self, Rule};
use crate::exec::Ran;
use crate::state::log::LogEntry;
use crate::state::object::ObjectState;
use crate::store::Seq;
use bytes::Bytes;
use messages::osd::{MOSDOp, MOSDOpReply, flag};
use types::EVersion;

/// The version fields of a reply.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Versions {
    pub replay: EVersion,
    pub bad_replay: EVersion,
    pub user: u64,
}

impl Versions {
    /// Of a write that is remembered by this entry.
    pub fn of(entry: &LogEntry) -> Self {
        Self {
            replay: entry.version,
            bad_replay: EVersion::new(entry.version.epoch, entry.user_version),
            user: entry.user_version,
        }
    }
}

fn completed(m: &MOSDOp, epoch: u32, result: i32, v: Versions) -> MOSDOpReply {
    let mut reply = MOSDOpReply::to(m, epoch, result);
    reply.flags = i64::from(m.flags & !flag::ONNVRAM | flag::ACK | flag::ONDISK);
    reply.replay_version = v.replay;
    reply.bad_replay_version = v.bad_replay;
    reply.user_version = v.user;
    reply
}

fn fill(reply: &mut MOSDOpReply, results: impl IntoIterator<Item = (i32, Bytes)>) {
    for (op, (rval, out)) in reply.ops.iter_mut().zip(results) {
        op.rval = rval;
        op.outdata = out;
    }
}

impl Pg {
    pub(crate) fn read_reply(&self, c: &ClientOp, old: &ObjectState, ran: Ran) -> MOSDOpReply {
        let user = old.info.user_version;
        let versions = Versions {
            replay: EVersion::default(),
            bad_replay: EVersion::new(0, user),
            user,
        };
        let mut reply = completed(&c.op, self.state.pool.epoch, ran.result, versions);
        fill(&mut reply, ran.results);
        reply
    }

    /// A write that succeeded: result 0 and no output, but under RETURNVEC.
    pub(crate) fn write_reply(&self, c: &ClientOp, ran: Ran, v: Versions) -> MOSDOpReply {
        let vector = c.op.has(flag::RETURNVEC);
        let result = if vector { ran.result } else { 0 };
        let mut reply = completed(&c.op, self.state.pool.epoch, result, v);
        let keep = |(rval, out)| (rval, if vector { out } else { Bytes::new() });
        fill(&mut reply, ran.results.into_iter().map(keep));
        reply
    }

    pub(crate) fn failure_reply(&self, c: &ClientOp, ran: Ran, v: Versions) -> MOSDOpReply {
        let mut reply = completed(&c.op, self.state.pool.epoch, ran.result, v);
        fill(&mut reply, ran.results);
        reply
    }

    /// If the write was executed before: its answer, and what that must wait for.
    pub(crate) fn duplicate(&self, c: &ClientOp) -> Option<(Seq, MOSDOpReply)> {
        let reqid = c.op.effective_reqid(c.client.name);
        let known = self.state.log.find(reqid, c.client.instance)?;
        let result = if broken::is(Rule::DuplicateFails) {
            0
        } else {
            known.result
        };
        let mut reply = MOSDOpReply::to(&c.op, self.state.pool.epoch, result);
        reply.replay_version = known.version;
        reply.bad_replay_version = EVersion::new(known.version.epoch, known.user_version);
        reply.user_version = known.user_version + u64::from(broken::is(Rule::DuplicateVersion));
        if let (true, Some(returns)) = (c.op.has(flag::RETURNVEC), &known.returns) {
            fill(&mut reply, returns.iter().cloned());
        }
        Some((known.seq, reply))
    }
}
