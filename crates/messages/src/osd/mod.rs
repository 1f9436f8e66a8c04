//! The messages between a client and an OSD (docs/protocol/ceph/04-osd.md, sections 1 to 5, 7.6, 12.1, 15).
//!
//! Each body has `from_message` and `to_message`. What the frame carries (the transaction id) is a field of
//! the body here, so that a body alone says everything about the request.
//!
//! Invariants: decoding takes memory bounded by the message's own size, in-data comes out as slices of the
//! received buffer, and what `to_message` writes is byte for byte what 16.2 writes.
//!
//! Not here: what the operations mean (`pg`), MOSDMap (family `mon`).

mod backoff;
mod command;
mod op;
mod opcode;
pub mod peer;
pub mod peer_scrub;
mod peer_txn;
mod reply;
mod request;
mod watch_notify;

pub use backoff::{BackoffOp, MOSDBackoff};
pub use command::{MCommand, MCommandReply};
pub use op::{
    AllocHintArg, ChecksumArg, CopyFromArg, ExtentArg, OsdOp, PgListArg, WatchArg, WriteSameArg, XattrArg,
};
pub use opcode::{OpClass, OpCode, code, op_flag};
pub use peer_txn::SharedTxn;
pub use reply::{MOSDOpReply, ReplyOp};
pub use request::{MOSDOp, flag};
pub use watch_notify::{MWatchNotify, WatchEvent};

/// Message numbers of the family.
pub mod kind {
    pub const PING: u16 = 2;
    pub const OSD_OP: u16 = 42;
    pub const OSD_OPREPLY: u16 = 43;
    pub const WATCH_NOTIFY: u16 = 44;
    pub const OSD_BACKOFF: u16 = 61;
    pub const COMMAND: u16 = 97;
    pub const COMMAND_REPLY: u16 = 98;
}

/// Header priority of requests, and of what an OSD sends.
const PRIORITY_REQUEST: u16 = 63;
const PRIORITY_REPLY: u16 = 127;

/// MPing: nothing but its number. A client with slow or watch operations sends one every 5 s.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MPing;

impl MPing {
    pub fn to_message(self) -> msgr::Message {
        msgr::Message {
            kind: kind::PING,
            version: 1,
            compat: 1,
            priority: PRIORITY_REQUEST,
            ..Default::default()
        }
    }
}

/// One buffer out of the ops' buffers; no copy where at most one of them holds anything.
fn join<'a>(parts: impl Iterator<Item = &'a bytes::Bytes> + Clone) -> bytes::Bytes {
    let mut filled = parts.filter(|p| !p.is_empty());
    match (filled.next(), filled.clone().next()) {
        (None, _) => bytes::Bytes::new(),
        (Some(one), None) => one.clone(),
        (Some(first), Some(_)) => {
            let mut all = bytes::BytesMut::from(first.as_ref());
            filled.for_each(|p| all.extend_from_slice(p));
            all.freeze()
        }
    }
}

#[cfg(test)]
mod tests;
