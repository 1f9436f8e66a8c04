//! MCommand (97) and MCommandReply (98): `ceph tell osd.N ...` (docs/protocol/ceph/04-osd.md, section 15).

use crate::osd::{PRIORITY_REPLY, PRIORITY_REQUEST, kind};
use bytes::Bytes;
use denc::{Reader, Result, Writer};
use types::Uuid;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MCommand {
    pub tid: u64,
    pub fsid: Uuid,
    /// Normally one JSON string; raw, since a client may send anything.
    pub cmd: Vec<Bytes>,
    pub input: Bytes,
}

impl MCommand {
    pub fn to_message(&self) -> msgr::Message {
        let mut w = Writer::new();
        w.put(&self.fsid);
        w.put(&self.cmd);
        msgr::Message {
            kind: kind::COMMAND,
            version: 1,
            compat: 1,
            priority: PRIORITY_REQUEST,
            tid: self.tid,
            front: w.finish(),
            data: self.input.clone(),
            ..Default::default()
        }
    }

    pub fn from_message(m: &msgr::Message) -> Result<Self> {
        let r = &mut Reader::new(m.front.clone());
        Ok(Self {
            tid: m.tid,
            fsid: r.get()?,
            cmd: r.get()?,
            input: m.data.clone(),
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MCommandReply {
    pub tid: u64,
    pub result: i32,
    pub status: Bytes,
    pub output: Bytes,
}

impl MCommandReply {
    pub fn to_message(&self) -> msgr::Message {
        let mut w = Writer::new();
        w.i32(self.result);
        w.blob(&self.status);
        msgr::Message {
            kind: kind::COMMAND_REPLY,
            version: 1,
            compat: 1,
            priority: PRIORITY_REPLY,
            tid: self.tid,
            front: w.finish(),
            data: self.output.clone(),
            ..Default::default()
        }
    }

    pub fn from_message(m: &msgr::Message) -> Result<Self> {
        let r = &mut Reader::new(m.front.clone());
        Ok(Self {
            tid: m.tid,
            result: r.i32()?,
            status: r.blob()?,
            output: m.data.clone(),
        })
    }
}
