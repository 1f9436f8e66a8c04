//! The session with the active manager: subscribed to and dialled once there is a command for it.

use super::Core;
use super::ids::{ConnId, Tid};
use super::session::{Link, Session};
use types::release::feature;
use types::{AddrKind, EntityAddr, EntityKind, MgrMap};

#[derive(Debug, Default)]
pub struct Manager {
    map: Option<MgrMap>,
    session: Option<Session>,
}

impl Manager {
    fn addr(&self) -> Option<EntityAddr> {
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

impl Core {
    pub(super) fn take_mgr_map(&mut self, map: MgrMap) {
        if self.manager.map.as_ref().is_some_and(|m| m.epoch >= map.epoch) {
            return;
        }
        self.manager.map = Some(map);
        let addr = self.manager.addr();
        if self.manager.session.as_ref().map(|s| s.addr) != addr {
            let old = self.manager.conn();
            self.manager.session = None;
            self.commands.without_mgr();
            if let Some(conn) = old {
                self.hang_up(conn);
            }
        }
        self.direct_commands();
    }

    /// Dials the manager, unless that is under way, or nobody asks it anything.
    pub(super) fn dial_mgr(&mut self) {
        let now = self.now.mono;
        let Some(session) = &self.manager.session else {
            return;
        };
        if !session.is_due(now) {
            return;
        }
        let conn = self.dial(EntityKind::Mgr, session.addr);
        if let Some(session) = &mut self.manager.session {
            session.link = Link::Dialling(conn);
        }
    }

    pub(super) fn mgr_opened(&mut self, conn: ConnId) {
        let Some(session) = &mut self.manager.session else {
            return;
        };
        session.opened(conn);
        for tid in session.commands.iter().copied().collect::<Vec<_>>() {
            self.send_command(tid);
        }
    }

    pub(super) fn mgr_broke(&mut self, why: &str) {
        tracing::debug!("mgr: {why}");
        let now = self.now.mono;
        let Some(session) = &mut self.manager.session else {
            return;
        };
        let at = session.broke(now);
        self.commands.unsent_mgr();
        self.wake_at(at);
    }
}
