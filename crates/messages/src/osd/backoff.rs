//! MOSDBackoff (61): "do not send operations in this range for now" (docs/protocol/ceph/04-osd.md, 7.6).
//! Sent where a limit is reached (`osd::qos`); an ACK_BLOCK that comes unasked is ignored.

use crate::osd::{PRIORITY_REPLY, kind};
use denc::{Reader, Result, Writer};
use types::{HObject, SPgId};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum BackoffOp {
    Block = 1,
    AckBlock = 2,
    Unblock = 3,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MOSDBackoff {
    pub pgid: SPgId,
    pub epoch: u32,
    pub op: BackoffOp,
    pub id: u64,
    pub begin: HObject,
    pub end: HObject,
}

impl MOSDBackoff {
    pub fn to_message(&self) -> msgr::Message {
        let mut w = Writer::new();
        w.put(&self.pgid);
        w.u32(self.epoch);
        w.u8(self.op as u8);
        w.u64(self.id);
        w.put(&self.begin);
        w.put(&self.end);
        msgr::Message {
            kind: kind::OSD_BACKOFF,
            version: 1,
            compat: 1,
            priority: PRIORITY_REPLY,
            front: w.finish(),
            ..Default::default()
        }
    }

    pub fn from_message(m: &msgr::Message) -> Result<Self> {
        let r = &mut Reader::new(m.front.clone());
        let (pgid, epoch) = (r.get()?, r.u32()?);
        let op = match r.u8()? {
            1 => BackoffOp::Block,
            2 => BackoffOp::AckBlock,
            3 => BackoffOp::Unblock,
            _ => return Err(r.invalid("unknown backoff operation")),
        };
        Ok(Self {
            pgid,
            epoch,
            op,
            id: r.u64()?,
            begin: r.get()?,
            end: r.get()?,
        })
    }
}
