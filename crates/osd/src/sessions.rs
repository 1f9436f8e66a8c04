//! Clients' connections: who they are, which map they have, and their operations that wait.

use crate::caps::ClientCaps;
use crate::peer_auth;
use crate::waiting::Waiting;
use auth::{OsdCaps, PeerCaps};
use msgr::Peer;
use net::ConnId;
use pg::Client;
use std::collections::BTreeMap;
use std::sync::Arc;
use types::{EntityKind, Epoch, OsdId};

#[derive(Debug)]
pub struct Session {
    pub client: Arc<Client>,
    /// Commands (`ceph tell`) are for those who may do everything.
    may_command: bool,
    /// The OSD that it is, if it proved to be one.
    pub osd: Option<OsdId>,
    /// The newest epoch that the client is known to have, by its own word or because we sent it.
    pub epoch: Epoch,
}

#[derive(Debug, Default)]
pub struct Sessions {
    open: BTreeMap<ConnId, Session>,
    pub waiting: Waiting,
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
            addr: peer.addrs.first(),
            features: peer.features,
            caps: Arc::new(caps),
        };
        self.open.insert(
            conn,
            Session {
                client: Arc::new(client),
                may_command,
                osd: peer_auth::osd_of(&peer.auth_name).filter(|_| peer.name.kind == EntityKind::Osd as u8),
                epoch: 0,
            },
        );
    }

    pub fn closed(&mut self, conn: ConnId) {
        self.open.remove(&conn);
        self.waiting.forget(conn);
    }

    /// Clients that have sent operations.
    pub fn with_maps(&self) -> impl Iterator<Item = ConnId> + '_ {
        self.open
            .iter()
            .filter(|(_, s)| s.epoch > 0)
            .map(|(conn, _)| *conn)
    }

    pub fn osd(&self, conn: ConnId) -> Option<OsdId> {
        self.open.get(&conn)?.osd
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
