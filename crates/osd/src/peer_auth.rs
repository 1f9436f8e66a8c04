//! How one OSD proves to another that it is one: whoever has the services' rotating secrets may make tickets, and OSDs
//! have them from the cluster state.

use auth::{
    AuthError, AuthMethod, AuthTicket, CephxClient, ClientAuth, ClientDone, ConMode, Context, CryptoKey,
    Entropy, GrantedTicket, NoneClient, SessionTicket,
};
use bytes::Bytes;
use metastore::ClusterHandle;
use std::time::Duration;
use types::{AuthName, EntityKind, OsdId, Utime};

/// A ticket is used at once; this leaves room for clocks that differ.
const VALID: Duration = Duration::from_secs(3600);

/// Credentials of one connection.
#[derive(Debug, Clone)]
pub enum PeerAuth {
    Cephx(CephxClient),
    None(NoneClient),
}

impl PeerAuth {
    /// For a cluster whose authentication is off.
    pub fn none(me: OsdId) -> Self {
        Self::None(NoneClient {
            name: name(me),
            global_id: me as u64,
        })
    }
}

fn name(me: OsdId) -> AuthName {
    AuthName::new(EntityKind::Osd, me.to_string())
}

/// Which OSD an authenticated peer is; None: it is none.
pub fn osd_of(name: &AuthName) -> Option<OsdId> {
    match name.kind {
        // Only as it is written: `osd.07` and `osd.+7` are entities of their own, with keys of their own.
        EntityKind::Osd => name
            .id
            .parse()
            .ok()
            .filter(|id: &OsdId| *id >= 0 && id.to_string() == name.id),
        _ => None,
    }
}

/// A client of OSDs with a ticket of its own making. None: the cluster has no secrets yet.
pub fn ticket(me: OsdId, cluster: &ClusterHandle, now: Utime, entropy: &dyn Entropy) -> Option<CephxClient> {
    let secrets = cluster.service_secrets(EntityKind::Osd);
    let (id, secret) = secrets.current()?;
    let cx = Context { now, entropy };
    let session_key: CryptoKey = cx.key();
    let ticket = SessionTicket {
        key_epoch: None,
        ticket: AuthTicket {
            name: name(me),
            global_id: me as u64,
            created: now,
            expires: Utime::from_unix(now.to_duration() + VALID),
            allow_all: true,
            caps: None,
        },
        session_key: session_key.clone(),
    };
    let mut client = CephxClient::new(name(me), session_key.clone());
    client.global_id = me as u64;
    client.tickets.insert(
        EntityKind::Osd as u32,
        GrantedTicket {
            service: EntityKind::Osd as u32,
            session_key,
            validity: Utime::from_unix(VALID),
            blob: ticket.seal(EntityKind::Osd, id, &secret.key, &cx),
        },
    );
    Some(client)
}

impl ClientAuth for PeerAuth {
    fn method(&self) -> AuthMethod {
        match self {
            Self::Cephx(c) => c.method(),
            Self::None(c) => c.method(),
        }
    }
    fn request(&mut self, peer: EntityKind, cx: &Context) -> Result<Bytes, AuthError> {
        match self {
            Self::Cephx(c) => c.request(peer, cx),
            Self::None(c) => c.request(peer, cx),
        }
    }
    fn more(&mut self, payload: &Bytes, cx: &Context) -> Result<Bytes, AuthError> {
        match self {
            Self::Cephx(c) => c.more(payload, cx),
            Self::None(c) => c.more(payload, cx),
        }
    }
    fn done(&mut self, global_id: u64, mode: ConMode, payload: &Bytes) -> Result<ClientDone, AuthError> {
        match self {
            Self::Cephx(c) => c.done(global_id, mode, payload),
            Self::None(c) => c.done(global_id, mode, payload),
        }
    }
}
