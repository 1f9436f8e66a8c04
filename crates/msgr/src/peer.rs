//! The authenticated peer of an open session.

use crate::Message;
use auth::{AuthError, AuthMethod, Context, Identity, KeyServer, MAUTH_REPLY, PeerCaps};
use denc::Encode;
use std::net::SocketAddr;
use types::{AuthName, EntityAddrVec, EntityName};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// `client.<global id>` for clients; daemons say their number themselves.
    pub name: EntityName,
    pub auth_name: AuthName,
    pub global_id: u64,
    pub caps: PeerCaps,
    /// Of the key behind its credentials, as in [`Identity::key_epoch`].
    pub key_epoch: Option<u64>,
    /// What the peer calls itself; the first one is its identity for blocklists, watches and locks.
    pub addrs: EntityAddrVec,
    /// Where its packets come from: for capabilities with a network, since `addrs` is only its word.
    pub sock: SocketAddr,
    /// Features that both sides have; encodings depend on them.
    pub features: u64,
    pub method: AuthMethod,
    pub secure: bool,
    /// The monitor's challenge of this connection, which renewals must answer again.
    pub server_challenge: Option<u64>,
    /// An OSD's lifeline: a connection on which neither side says anything more.
    pub lifeline: bool,
    /// What is said to it outlives its connections, until the session is ended with what waits ([`crate::Sessions`]).
    pub lossless: bool,
    /// At a monitor, over messenger v1: the monitor map that the client has, 0 for none. A newer one is sent to it unasked; over
    /// v2 clients ask.
    pub monmap_epoch: Option<u32>,
}

impl Peer {
    pub fn identity(&self) -> Identity {
        Identity {
            name: self.auth_name.clone(),
            global_id: self.global_id,
            caps: self.caps.clone(),
            key_epoch: self.key_epoch,
            server_challenge: self.server_challenge,
        }
    }
}

/// Priority of replies from the monitor.
const PRIORITY_HIGH: u16 = 196;

/// The reply to MAuth (message type 17), by which clients renew tickets on an open monitor session. The
/// error, if there is one, is for the log: the reply carries its number.
pub fn answer_mauth(
    server: &KeyServer,
    peer: &Peer,
    request: &Message,
    cx: &Context,
) -> (Message, Option<AuthError>) {
    let (reply, error) = server.answer_mauth(&peer.identity(), &request.front, cx);
    let message = Message {
        kind: MAUTH_REPLY,
        version: 1,
        compat: 1,
        priority: PRIORITY_HIGH,
        tid: request.tid,
        front: reply.to_bytes(),
        ..Message::default()
    };
    (message, error)
}
