//! Payloads of the control frames (docs/protocol/ceph/01-messenger.md, 3.6).

use auth::{AuthMethod, ConMode};
use denc::{Bytes, Encode, Writer, plain_denc};
use types::{EntityAddr, EntityAddrVec};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    pub entity_type: u8,
    /// The receiver's address as the sender sees it.
    pub peer_addr: EntityAddr,
}
plain_denc!(Hello {
    entity_type,
    peer_addr
});

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthRequest {
    pub method: u32,
    pub modes: Vec<u32>,
    pub payload: Bytes,
}
plain_denc!(AuthRequest {
    method,
    modes,
    payload
});

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthBadMethod {
    pub method: u32,
    pub result: i32,
    pub methods: Vec<u32>,
    pub modes: Vec<u32>,
}
plain_denc!(AuthBadMethod {
    method,
    result,
    methods,
    modes
});

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthDone {
    pub global_id: u64,
    pub mode: u32,
    pub payload: Bytes,
}
plain_denc!(AuthDone {
    global_id,
    mode,
    payload
});

/// Flag of both idents: the session ends with its connection.
pub(crate) const FLAG_LOSSY: u64 = 1;
/// Of both idents, ours alone and only between OSDs: a client asks for a lifeline, a server says that it keeps them.
pub const FLAG_LIFELINE: u64 = 1 << 32;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientIdent {
    pub addrs: EntityAddrVec,
    /// The server's address as the client took it from a map.
    pub target: EntityAddr,
    pub gid: i64,
    pub global_seq: u64,
    pub supported: u64,
    pub required: u64,
    pub flags: u64,
    pub cookie: u64,
}
plain_denc!(ClientIdent {
    addrs,
    target,
    gid,
    global_seq,
    supported,
    required,
    flags,
    cookie
});

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerIdent {
    pub addrs: EntityAddrVec,
    pub gid: i64,
    pub global_seq: u64,
    pub supported: u64,
    pub required: u64,
    pub flags: u64,
    pub cookie: u64,
}
plain_denc!(ServerIdent {
    addrs,
    gid,
    global_seq,
    supported,
    required,
    flags,
    cookie
});

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reconnect {
    pub addrs: EntityAddrVec,
    pub client_cookie: u64,
    pub server_cookie: u64,
    pub global_seq: u64,
    pub connect_seq: u64,
    pub message_seq: u64,
}
plain_denc!(Reconnect {
    addrs,
    client_cookie,
    server_cookie,
    global_seq,
    connect_seq,
    message_seq
});

/// Numbers of methods, for the wire.
pub(crate) fn method_numbers(m: &[AuthMethod]) -> Vec<u32> {
    m.iter().map(|m| *m as u32).collect()
}

/// Numbers of modes, for the wire.
pub fn con_modes(m: &[ConMode]) -> Vec<u32> {
    m.iter().map(|m| *m as u32).collect()
}

/// A length-prefixed blob alone (AUTH_REPLY_MORE, AUTH_REQUEST_MORE).
pub(crate) fn blob(b: &Bytes) -> Bytes {
    let mut w = Writer::with_capacity(4 + b.len());
    b.encode(&mut w);
    w.finish()
}
