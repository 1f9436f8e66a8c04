//! The session with the active manager: subscribed to and dialled once there is a command for it.

use super::ids::{ConnId, Tid};
use super::session::Session;
use types::release::feature;
use types::{AddrKind, EntityAddr, MgrMap};

#[derive(Debug, Default)]
pub struct Manager {
    pub map: Option<MgrMap>,
    pub session: Option<Session>,
}

impl Manager {
    pub fn addr(&self) -> Option<EntityAddr> {
        let map = self.map.as_ref().filter(|m| m.available)?;
        let good = |a: &&EntityAddr| a.kind == AddrKind::Msgr2 && a.sock.is_some();
        map.active_addrs.0.iter().find(good).copied()
    }

    /// It takes commands to its modules in a message of their own.
    pub fn is_octopus(&self) -> bool {
        let features = self.map.as_ref().map_or(0, |m| m.active_mgr_features);
        features & feature::SERVER_OCTOPUS == feature::SERVER_OCTOPUS
    }

    /// False: there is no manager.
    pub fn enter(&mut self, tid: Tid) -> bool {
        let Some(addr) = self.addr() else { return false };
        let session = self.session.get_or_insert_with(|| Session::new(addr));
        session.commands.insert(tid);
        true
    }

    pub fn leave(&mut self, tid: Tid) {
        if let Some(s) = &mut self.session {
            s.commands.remove(&tid);
        }
    }

    pub fn conn(&self) -> Option<ConnId> {
        self.session.as_ref().and_then(Session::conn)
    }

    pub fn open_conn(&self) -> Option<ConnId> {
        self.session.as_ref().and_then(Session::open)
    }
}
