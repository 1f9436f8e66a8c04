//! MAuth and MAuthReply: authentication inside an open monitor session, where clients renew their tickets.
//! The fronts of message types 17 and 18 (docs/protocol/ceph/01-messenger.md, 6.7).

use denc::{Bytes, Decode, Encode, Reader, Writer};

/// Message type of MAuth; header version 1.
pub const MAUTH: u16 = 17;
/// Message type of MAuthReply; header version 1, priority 196, the request's tid.
pub const MAUTH_REPLY: u16 = 18;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MAuth {
    pub protocol: u32,
    pub payload: Bytes,
    pub monmap_epoch: u32,
}

impl Encode for MAuth {
    fn encode(&self, w: &mut Writer) {
        w.u64(0);
        w.u16(u16::MAX);
        w.u64(0);
        w.u32(self.protocol);
        w.blob(&self.payload);
        w.u32(self.monmap_epoch);
    }
}
impl Decode for MAuth {
    fn decode(r: &mut Reader) -> denc::Result<Self> {
        r.skip(18)?;
        Ok(Self {
            protocol: r.u32()?,
            payload: r.blob()?,
            monmap_epoch: if r.is_empty() { 0 } else { r.u32()? },
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MAuthReply {
    pub protocol: u32,
    pub result: i32,
    pub global_id: u64,
    pub payload: Bytes,
    pub message: String,
}

impl Encode for MAuthReply {
    fn encode(&self, w: &mut Writer) {
        w.u32(self.protocol);
        w.i32(self.result);
        w.u64(self.global_id);
        w.blob(&self.payload);
        w.string(&self.message);
    }
}
impl Decode for MAuthReply {
    fn decode(r: &mut Reader) -> denc::Result<Self> {
        Ok(Self {
            protocol: r.u32()?,
            result: r.i32()?,
            global_id: r.u64()?,
            payload: r.blob()?,
            message: r.string()?,
        })
    }
}
