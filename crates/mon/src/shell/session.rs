//! One client's session with the monitor: who it is, what it may, what it wants to be told.

use crate::policies::pools::SnapRights;
use crate::shell::requests::{Action, Request, Rights};
use crate::shell::subscriptions::Subscriptions;
use auth::caps::{MgrNeed, MonNeed};
use auth::{Access, AuthMethod, KeyDb, MgrCaps, MonCaps, OsdCaps, PeerCaps};
use cluster::ClusterState;
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
    /// What the capabilities below are from.
    pub rights: Option<Arc<Rights>>,
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
        let mut session = Self {
            mon_caps: MonCaps::default(),
            mgr_caps: MgrCaps::default(),
            osd_caps: OsdCaps::default(),
            peer: peer.clone(),
            rights: None,
            subscriptions: Subscriptions::default(),
            hostname: String::new(),
            config_sent: None,
        };
        match &peer.caps {
            PeerCaps::AllowAll => {
                session.mon_caps = MonCaps::allow_all();
                session.mgr_caps = MgrCaps::allow_all();
                session.osd_caps = OsdCaps::allow_all();
            }
            PeerCaps::Texts(texts) => session.grant(texts),
        }
        session
    }

    fn grant(&mut self, texts: &BTreeMap<String, String>) {
        let text = |service: &str| texts.get(service).map(String::as_str).unwrap_or_default();
        self.mon_caps = MonCaps::parse(text("mon")).unwrap_or_default();
        self.mgr_caps = MgrCaps::parse(text("mgr")).unwrap_or_default();
        self.osd_caps = OsdCaps::parse(text("osd")).unwrap_or_default();
    }

    /// Brings its rights up to what the state says. False: its key is gone, and so shall it be.
    pub fn heed(&mut self, state: &ClusterState) -> bool {
        // No entity's key behind it, or one that was made after this state.
        let Some(key_epoch) = self.peer.key_epoch.filter(|e| *e <= state.version) else {
            return true;
        };
        match state.auth.current(&self.peer.auth_name, key_epoch) {
            Some(entity) => {
                self.grant(&entity.caps);
                self.rights = Some(Arc::new(Rights {
                    key_epoch,
                    caps: entity.caps.clone(),
                }));
                true
            }
            None => false,
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
            rights: self.rights.clone(),
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

    /// Whether it is shown a file system.
    pub fn sees(&self, file_system: &str) -> bool {
        self.mon_caps.shows_file_system(file_system)
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

    /// `allow *`: what it takes to tell the monitor itself something.
    pub fn may_all(&self) -> bool {
        self.mon_caps.allows_all(self.ip())
    }

    /// The same by the manager's route. `module` is "" for the manager's own commands.
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

#[cfg(test)]
mod tests {
    use crate::shell::monitor::Effect;
    use crate::tests::Rig;
    use auth::{AuthMethod, CryptoKey, EntityAuth, Expiry, PeerCaps};
    use cluster::{Change, Changes, ClusterState};
    use msgr::Peer;
    use std::sync::Arc;
    use types::{AuthName, EntityAddrVec, EntityKind, EntityName, Utime};

    fn name() -> AuthName {
        AuthName::new(EntityKind::Client, "x")
    }

    fn put(rig: &mut Rig, key: u8, caps: &str) -> Vec<Effect> {
        let entity = EntityAuth::new(CryptoKey::new([key; 16], Utime::ZERO)).with_cap("mon", caps);
        rig.changed(|_| {
            Changes::one(Change::AuthPut {
                name: name(),
                entity: entity.clone(),
            })
        })
    }

    fn peer(state: &ClusterState) -> Arc<Peer> {
        let known = state.auth.get(&name()).unwrap();
        Arc::new(Peer {
            name: EntityName::client(4100),
            auth_name: name(),
            global_id: 4100,
            caps: PeerCaps::Texts(known.caps.clone()),
            key_epoch: Some(known.epoch),
            addrs: EntityAddrVec::default(),
            sock: ([127, 0, 0, 1], 4000).into(),
            features: u64::MAX,
            method: AuthMethod::Cephx,
            secure: false,
            server_challenge: Some(1),
            lifeline: false,
            lossless: false,
            monmap_epoch: None,
        })
    }

    fn closed(effects: &[Effect]) -> Vec<u64> {
        let id = |e: &Effect| match e {
            Effect::Close(id, _) => Some(*id),
            _ => None,
        };
        effects.iter().filter_map(id).collect()
    }

    fn edit(rig: &mut Rig, change: impl Fn(&mut EntityAuth)) -> Vec<u64> {
        let effects = rig.changed(|state| {
            let mut entity = state.auth.get(&name()).unwrap().clone();
            change(&mut entity);
            let name = name();
            Changes::one(Change::AuthPut { name, entity })
        });
        closed(&effects)
    }

    #[test]
    fn a_session_outlives_the_replacement_of_its_key_but_not_its_time() {
        const NONE: [u64; 0] = [];
        let mut rig = Rig::new();
        put(&mut rig, 1, "allow *");
        assert!(rig.monitor.opened(1, peer(&rig.state())));
        let new = CryptoKey::new([2; 16], Utime::ZERO);
        assert_eq!(edit(&mut rig, |e| e.pending = Some(new.clone())), NONE);
        assert!(rig.monitor.opened(2, peer(&rig.state())));
        assert_eq!(edit(&mut rig, |e| e.key = new.clone()), NONE);
        assert_eq!(edit(&mut rig, |e| e.pending = None), NONE);
        let at = Utime::ZERO;
        assert_eq!(
            edit(&mut rig, |e| e.expiry = Some(Expiry { at, ended: false })),
            NONE
        );
        let late = peer(&rig.state());
        let mut ended = edit(&mut rig, |e| e.expiry = Some(Expiry { at, ended: true }));
        ended.sort_unstable();
        assert_eq!(ended, [1, 2]);
        assert!(!rig.monitor.opened(3, late), "a handshake that was under way");
    }

    /// A removed client made itself an administrator's key over the session that it had.
    #[test]
    fn a_removed_clients_session_ends_at_once_and_its_waiting_command_is_refused() {
        const SET: &str =
            r#"{"prefix": "config set", "who": "global", "name": "osd_pool_default_size", "value": "2"}"#;
        let mut rig = Rig::new();
        put(&mut rig, 1, "allow *");
        let old = peer(&rig.state());
        assert!(rig.monitor.opened(1, old.clone()));
        let waiting = rig.decision(1, SET).unwrap();
        // Fewer rights: the session stays, what waits is not done, what comes is judged anew.
        assert!(closed(&put(&mut rig, 1, "allow r")).is_empty());
        assert!(
            rig.decide(&waiting).is_err(),
            "the command waited while the capabilities went"
        );
        assert!(rig.decision(1, SET).is_none(), "refused at once");
        assert!(closed(&put(&mut rig, 1, "allow *")).is_empty());
        let waiting = rig.decision(1, SET).unwrap();
        assert!(rig.decide(&waiting).is_ok());
        let waiting = rig.decision(1, SET).unwrap();
        let effects = rig.changed(|_| Changes::one(Change::AuthRm { name: name() }));
        assert_eq!(closed(&effects), [1]);
        assert!(rig.decision(1, SET).is_none(), "nobody is there any more");
        assert!(rig.decide(&waiting).is_err());
        // Made anew, with the same key: neither what waited nor the old handshake comes back to life.
        put(&mut rig, 1, "allow *");
        assert!(rig.decide(&waiting).is_err());
        assert!(!rig.monitor.opened(2, old));
        assert!(rig.monitor.opened(3, peer(&rig.state())));
        assert_eq!(closed(&put(&mut rig, 2, "allow *")), [3], "another key");
    }
}
