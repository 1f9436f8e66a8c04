//! One client's session with the monitor: who it is, what it may, what it wants to be told.

use crate::pools::SnapRights;
use crate::requests::{Action, Request};
use crate::subscriptions::Subscriptions;
use auth::caps::{MgrNeed, MonNeed};
use auth::{Access, AuthMethod, KeyDb, MgrCaps, MonCaps, OsdCaps, PeerCaps};
use msgr::Peer;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use types::EntityAddr;
use types::pool::PgPool;

/// Number of a session within this process.
pub type SessionId = u64;

/// Bytes of the host name that a client tells.
pub const HOSTNAME_BYTES_MAX: usize = 256;

#[derive(Debug)]
pub struct Session {
    pub peer: Arc<Peer>,
    mon_caps: MonCaps,
    mgr_caps: MgrCaps,
    osd_caps: OsdCaps,
    pub subscriptions: Subscriptions,
    pub hostname: String,
    /// The configuration that was sent last.
    pub config_sent: Option<BTreeMap<String, String>>,
}

impl Session {
    /// Capabilities that do not parse (an older version accepted them) grant nothing.
    pub fn new(peer: Arc<Peer>) -> Self {
        let caps = &peer.caps;
        let all = *caps == PeerCaps::AllowAll;
        let text = |service: &str| caps.text(service).unwrap_or_default().to_string();
        Self {
            mon_caps: if all {
                MonCaps::allow_all()
            } else {
                MonCaps::parse(&text("mon")).unwrap_or_default()
            },
            mgr_caps: if all {
                MgrCaps::allow_all()
            } else {
                MgrCaps::parse(&text("mgr")).unwrap_or_default()
            },
            osd_caps: if all {
                OsdCaps::allow_all()
            } else {
                OsdCaps::parse(&text("osd")).unwrap_or_default()
            },
            peer,
            subscriptions: Subscriptions::default(),
            hostname: String::new(),
            config_sent: None,
        }
    }

    pub fn addr(&self) -> EntityAddr {
        self.peer.addrs.first()
    }

    /// A request of this session.
    pub fn request(&self, tid: u64, action: Action) -> Request {
        Request {
            tid,
            who: self.peer.auth_name.clone(),
            global_id: self.peer.global_id,
            addr: self.addr(),
            sock: self.peer.sock,
            action,
        }
    }

    fn ip(&self) -> Option<IpAddr> {
        // Where its packets come from: what it says about itself proves nothing.
        Some(self.peer.sock.ip())
    }

    /// May it do what a message (not a command) asks of `service`?
    pub fn may(&self, service: &str, access: Access) -> bool {
        let args = BTreeMap::new();
        self.mon_caps.allows(&MonNeed {
            service,
            command: "",
            args: &args,
            access,
            peer: self.ip(),
        })
    }

    pub fn may_command(
        &self,
        service: &str,
        command: &str,
        args: &BTreeMap<String, String>,
        access: Access,
    ) -> bool {
        self.mon_caps.allows(&MonNeed {
            service,
            command,
            args,
            access,
            peer: self.ip(),
        })
    }

    /// The same at the manager's door. `module` is "" for the manager's own commands.
    pub fn may_mgr_command(
        &self,
        service: &str,
        module: &str,
        command: &str,
        args: &BTreeMap<String, String>,
        access: Access,
    ) -> bool {
        self.mgr_caps.allows(&MgrNeed {
            service: if module.is_empty() { service } else { "" },
            module,
            command,
            args,
            access,
            peer: self.ip(),
        })
    }

    /// At the manager's port: a ticket for the manager says nothing of the monitor's capabilities, so they are taken
    /// from the key database as it is now. An entity that is not there any more has none.
    pub fn look_up_mon_caps(&mut self, keys: &KeyDb) {
        if self.peer.method == AuthMethod::None {
            return;
        }
        let text = keys.get(&self.peer.auth_name).and_then(|e| e.caps.get("mon"));
        self.mon_caps = text.and_then(|t| MonCaps::parse(t).ok()).unwrap_or_default();
    }

    /// The pool's self-managed snapshots are open to whoever may write in it, in whatever namespace; of others' only to
    /// who may write everywhere in it.
    pub fn snap_rights(&self, name: &str, pool: &PgPool) -> Option<SnapRights> {
        let applications = &pool.application_metadata;
        let (some, all) = self.osd_caps.writes_in_pool(name, applications, self.ip());
        match (some, all) {
            (_, true) => Some(SnapRights::Pool),
            (true, false) => Some(SnapRights::Own),
            _ => None,
        }
    }
}
