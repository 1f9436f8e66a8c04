//! Clients' connections: who they are, which map they have, and operations that wait for a newer map.

use crate::caps::ClientCaps;
use crate::peer_auth;
use auth::{OsdCaps, PeerCaps};
use msgr::Peer;
use net::ConnId;
use pg::{Client, ClientOp, Fence};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use types::{EntityName, Epoch, OsdId};

/// Operations of all clients that may wait for a map; one more closes its connection.
const WAITING_MAX: usize = 4096;

#[derive(Debug)]
pub struct Session {
    pub client: Arc<Client>,
    /// Commands (`ceph tell`) are for those who may do everything.
    may_command: bool,
    /// The OSD that it is, if it proved to be one and calls itself so.
    pub osd: Option<OsdId>,
    /// The newest epoch that the client is known to have, by its own word or because we sent it.
    pub epoch: Epoch,
}

#[derive(Debug, Default)]
pub struct Sessions {
    open: BTreeMap<ConnId, Session>,
    waiting: VecDeque<ClientOp>,
    /// Operations whose answers wait for room, of each connection in order (`replies`).
    pub choked: BTreeMap<ConnId, VecDeque<ClientOp>>,
}

impl Sessions {
    pub fn opened(&mut self, conn: ConnId, peer: &Peer) {
        let caps = match &peer.caps {
            PeerCaps::AllowAll => ClientCaps::All,
            texts => ClientCaps::parse(texts.text("osd")),
        };
        let may_command = matches!(caps, ClientCaps::All);
        let client = Client {
            name: peer.name,
            global_id: peer.global_id,
            instance: auth::instance(&peer.auth_name, peer.global_id),
            addr: peer.addrs.first(),
            from: Some(peer.sock.ip().to_canonical()),
            features: peer.features,
            caps: Arc::new(caps),
            fence: Fence::default(),
        };
        self.open.insert(
            conn,
            Session {
                client: Arc::new(client),
                may_command,
                osd: peer_auth::osd_of(&peer.auth_name).filter(|id| peer.name == EntityName::osd(*id)),
                epoch: 0,
            },
        );
    }

    pub fn closed(&mut self, conn: ConnId) {
        self.open.remove(&conn);
        self.choked.remove(&conn);
        self.waiting.retain(|op| op.conn != conn.0);
    }

    /// Clients that have sent operations.
    pub fn with_maps(&self) -> impl Iterator<Item = ConnId> + '_ {
        self.open
            .iter()
            .filter(|(_, s)| s.epoch > 0)
            .map(|(conn, _)| *conn)
    }

    pub fn client(&self, conn: ConnId) -> Option<Arc<Client>> {
        Some(self.open.get(&conn)?.client.clone())
    }

    /// All that are no OSDs.
    pub fn clients(&self) -> Vec<(ConnId, Arc<Client>)> {
        let clients = self.open.iter().filter(|(_, s)| s.osd.is_none());
        clients.map(|(conn, s)| (*conn, s.client.clone())).collect()
    }

    pub fn osd(&self, conn: ConnId) -> Option<OsdId> {
        self.open.get(&conn)?.osd
    }

    pub fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    pub fn get_mut(&mut self, conn: ConnId) -> Option<&mut Session> {
        self.open.get_mut(&conn)
    }

    pub fn may_command(&self, conn: ConnId) -> bool {
        self.open.get(&conn).is_some_and(|s| s.may_command)
    }

    pub fn ids(&self) -> impl Iterator<Item = ConnId> + '_ {
        self.open.keys().copied()
    }

    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// True if an operation of this connection waits already: later ones must queue behind it.
    pub fn is_waiting(&self, conn: ConnId) -> bool {
        self.waiting.iter().any(|op| op.conn == conn.0)
    }

    /// Parks an operation that was sent under a newer map. False: no room.
    pub fn park(&mut self, op: ClientOp) -> bool {
        if self.waiting.len() >= WAITING_MAX {
            return false;
        }
        self.waiting.push_back(op);
        true
    }

    /// All parked operations, in order; those that still have to wait are parked again by the caller.
    pub fn take_waiting(&mut self) -> VecDeque<ClientOp> {
        std::mem::take(&mut self.waiting)
    }
}

impl ClientCaps {
    fn parse(text: Option<&str>) -> Self {
        let Some(text) = text else {
            return Self::Granted(OsdCaps::default());
        };
        if text.trim() == "allow *" {
            return Self::All;
        }
        match OsdCaps::parse(text) {
            Ok(caps) => Self::Granted(caps),
            Err(e) => {
                tracing::warn!("osd capabilities {text:?} do not parse, they grant nothing: {e}");
                Self::Granted(OsdCaps::default())
            }
        }
    }
}
