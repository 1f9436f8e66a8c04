//! Clients' connections: who they are, which map they have, and their operations that wait.
//!
//! Invariant: a session lasts as long as the key that stands behind its ticket, and may what its entity may now, as far
//! as the newest cluster state that the loop has seen says ([`Sessions::heed`]).

use crate::caps::ClientCaps;
use crate::peer_auth;
use crate::session_caps::SessionCaps;
use crate::waiting::Waiting;
use auth::{KeyDb, OsdCaps, PeerCaps};
use cluster::ClusterState;
use msgr::Peer;
use net::ConnId;
use pg::{Client, ClientOp, Fence};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use types::{AuthName, EntityName, Epoch, OsdId};

#[derive(Debug)]
pub struct Session {
    pub client: Arc<Client>,
    entity: AuthName,
    key_epoch: Option<u64>,
    caps: Arc<SessionCaps>,
    /// The text of `caps`.
    text: Option<String>,
    /// Commands (`ceph tell`) are for those who may do everything.
    may_command: bool,
    /// The OSD that it is, if it proved to be one and calls itself so.
    pub osd: Option<OsdId>,
    /// The newest epoch that the client is known to have, by its own word or because we sent it.
    pub epoch: Epoch,
}

impl Session {
    fn new(peer: &Peer) -> Self {
        let text = peer.caps.text("osd").map(str::to_string);
        let granted = match &peer.caps {
            PeerCaps::AllowAll => ClientCaps::All,
            PeerCaps::Texts(_) => ClientCaps::parse(text.as_deref()),
        };
        let may_command = matches!(granted, ClientCaps::All);
        let caps = Arc::new(SessionCaps::new(granted));
        let client = Client {
            name: peer.name,
            global_id: peer.global_id,
            instance: auth::instance(&peer.auth_name, peer.global_id),
            addr: peer.addrs.first(),
            from: Some(peer.sock.ip().to_canonical()),
            features: peer.features,
            caps: caps.clone(),
            fence: Fence::default(),
        };
        Self {
            client: Arc::new(client),
            entity: peer.auth_name.clone(),
            key_epoch: peer.key_epoch,
            caps,
            text,
            may_command,
            osd: peer_auth::osd_of(&peer.auth_name).filter(|id| peer.name == EntityName::osd(*id)),
            epoch: 0,
        }
    }

    /// Brings its rights up to what the state says. False: its key is gone, and it may nothing any more.
    fn heed(&mut self, entities: &KeyDb, version: u64) -> bool {
        // No entity's key behind it, or one that was made after this state.
        let Some(key_epoch) = self.key_epoch.filter(|e| *e <= version) else {
            return true;
        };
        let Some(entity) = entities.current(&self.entity, key_epoch) else {
            self.grant(None);
            self.osd = None;
            return false;
        };
        let text = entity.caps.get("osd");
        if self.text.as_ref() != text {
            self.grant(text.cloned());
        }
        true
    }

    /// Who it proved to be.
    pub fn entity(&self) -> &AuthName {
        &self.entity
    }

    fn grant(&mut self, text: Option<String>) {
        let caps = ClientCaps::parse(text.as_deref());
        self.may_command = matches!(caps, ClientCaps::All);
        self.caps.set(caps);
        self.text = text;
    }
}

#[derive(Debug, Default)]
pub struct Sessions {
    open: BTreeMap<ConnId, Session>,
    pub waiting: Waiting,
    /// Operations whose answers wait for room, of each connection in order (`replies`).
    pub choked: BTreeMap<ConnId, VecDeque<ClientOp>>,
    /// By what state's keys the sessions were looked at last, and how new that state is.
    heeded: Option<(Arc<KeyDb>, u64)>,
}

impl Sessions {
    /// False: its key was taken from it while it shook hands; close it.
    pub fn opened(&mut self, conn: ConnId, peer: &Peer) -> bool {
        let mut session = Session::new(peer);
        let stays = match &self.heeded {
            Some((entities, version)) => session.heed(entities, *version),
            None => true,
        };
        self.open.insert(conn, session);
        stays
    }

    /// Looks at all sessions if keys or capabilities changed. Those whose keys are gone: what they have sent is refused
    /// from now on; close them.
    pub fn heed(&mut self, state: &ClusterState) -> Vec<ConnId> {
        if let Some((entities, version)) = &mut self.heeded
            && Arc::ptr_eq(entities, &state.auth)
        {
            *version = state.version;
            return Vec::new();
        }
        self.heeded = Some((state.auth.clone(), state.version));
        let gone = |(conn, s): (&ConnId, &mut Session)| {
            let stays = s.heed(&state.auth, state.version);
            (!stays).then_some(*conn)
        };
        self.open.iter_mut().filter_map(gone).collect()
    }

    pub fn closed(&mut self, conn: ConnId) {
        self.open.remove(&conn);
        self.choked.remove(&conn);
        self.waiting.forget(conn);
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
