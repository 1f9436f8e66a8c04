//! Commands to a monitor (docs/protocol/ceph/02-monitor.md, 8.1). Input and output are the data segment.

use super::{PaxosHeader, plain_body};
use bytes::Bytes;
use types::Uuid;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MMonCommand {
    pub paxos: PaxosHeader,
    pub fsid: Uuid,
    /// Concatenated they are one JSON object.
    pub cmd: Vec<String>,
    pub input: Bytes,
}
plain_body!(MMonCommand, 50, 1, 1, { paxos, fsid, cmd }, data input);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MMonCommandAck {
    pub paxos: PaxosHeader,
    /// 0 or a negative errno.
    pub code: i32,
    pub status: String,
    /// Copy of the request's.
    pub cmd: Vec<String>,
    pub output: Bytes,
}
plain_body!(MMonCommandAck, 51, 1, 1, { paxos, code, status, cmd }, data output);
