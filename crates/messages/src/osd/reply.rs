//! MOSDOpReply (43): results and output of a request (docs/protocol/ceph/04-osd.md, section 4).

use super::op::{ARG, OP_SIZE};
use crate::osd::{MOSDOp, OpCode, OsdOp, PRIORITY_REPLY, join, kind};
use bytes::Bytes;
use denc::{Reader, Result, Writer};
use types::{EVersion, Errno, PgId};

/// One operation of the reply: the request's, with its return value and output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplyOp {
    pub code: OpCode,
    pub flags: u32,
    pub arg: [u8; ARG],
    pub rval: i32,
    pub outdata: Bytes,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MOSDOpReply {
    pub tid: u64,
    pub oid: Bytes,
    pub pgid: PgId,
    pub flags: i64,
    pub result: i32,
    pub bad_replay_version: EVersion,
    pub epoch: u32,
    pub ops: Vec<ReplyOp>,
    /// Echo of the request's: a client drops a reply to an earlier send.
    pub retry_attempt: i32,
    pub replay_version: EVersion,
    pub user_version: u64,
}

const VERSION: u16 = 8;
const COMPAT: u16 = 2;

impl MOSDOpReply {
    /// A reply to `req` with `result`, all return values 0 and no output: what early errors look like.
    pub fn to(req: &MOSDOp, epoch: u32, result: i32) -> Self {
        Self {
            tid: req.tid,
            oid: req.oid.clone(),
            pgid: req.pgid.pg,
            flags: i64::from(req.flags & !super::flag::ACK),
            result,
            bad_replay_version: EVersion::default(),
            epoch,
            ops: req
                .ops
                .iter()
                .map(|op| ReplyOp {
                    code: op.code,
                    flags: op.flags,
                    arg: op.arg,
                    rval: 0,
                    outdata: Bytes::new(),
                })
                .collect(),
            retry_attempt: req.retry_attempt,
            replay_version: EVersion::default(),
            user_version: 0,
        }
    }

    /// A reply to a request that did not decode: nothing of it can be echoed but its id.
    pub fn refusal(tid: u64, epoch: u32, why: Errno) -> Self {
        Self {
            tid,
            oid: Bytes::new(),
            pgid: PgId::new(0, 0),
            flags: 0,
            result: why.code(),
            bad_replay_version: EVersion::default(),
            epoch,
            ops: Vec::new(),
            // Unknown: the client takes it for an answer to any send of it.
            retry_attempt: -1,
            replay_version: EVersion::default(),
            user_version: 0,
        }
    }

    pub fn to_message(&self) -> msgr::Message {
        let mut w = Writer::with_capacity(128 + self.oid.len() + (OP_SIZE + 4) * self.ops.len());
        w.blob(&self.oid);
        w.put(&self.pgid);
        w.i64(self.flags);
        w.i32(self.result);
        w.put(&self.bad_replay_version);
        w.u32(self.epoch);
        w.u32(self.ops.len() as u32);
        for op in &self.ops {
            OsdOp::encode_head(op.code, op.flags, &op.arg, op.outdata.len(), &mut w);
        }
        w.i32(self.retry_attempt);
        self.ops.iter().for_each(|op| w.i32(op.rval));
        w.put(&self.replay_version);
        w.u64(self.user_version);
        w.bool(false);
        w.zeros(24);
        msgr::Message {
            kind: kind::OSD_OPREPLY,
            version: VERSION,
            compat: COMPAT,
            priority: PRIORITY_REPLY,
            tid: self.tid,
            front: w.finish(),
            data: join(self.ops.iter().map(|o| &o.outdata)),
            ..Default::default()
        }
    }

    pub fn from_message(m: &msgr::Message) -> Result<Self> {
        let r = &mut Reader::new(m.front.clone());
        if m.version != VERSION {
            return Err(r.invalid("MOSDOpReply of a version that is not spoken"));
        }
        let (oid, pgid) = (r.blob()?, r.get()?);
        let (flags, result) = (r.i64()?, r.i32()?);
        let (bad_replay_version, epoch) = (r.get()?, r.u32()?);
        let n = r.count(OP_SIZE + 4)?;
        let mut heads = Vec::with_capacity(n);
        for _ in 0..n {
            heads.push(OsdOp::decode_head(r)?);
        }
        let retry_attempt = r.i32()?;
        let data = &mut Reader::new(m.data.clone());
        let mut ops = Vec::with_capacity(n);
        for (op, payload) in heads {
            ops.push(ReplyOp {
                code: op.code,
                flags: op.flags,
                arg: op.arg,
                rval: r.i32()?,
                outdata: data.bytes(payload)?,
            });
        }
        let (replay_version, user_version) = (r.get()?, r.u64()?);
        if r.bool()? {
            return Err(r.invalid("MOSDOpReply with a redirect"));
        }
        r.skip(24)?;
        Ok(Self {
            tid: m.tid,
            oid,
            pgid,
            flags,
            result,
            bad_replay_version,
            epoch,
            ops,
            retry_attempt,
            replay_version,
            user_version,
        })
    }
}
