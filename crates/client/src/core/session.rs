//! Sessions with OSDs: one connection each, dialled when there is something to say and again when it broke, after growing pauses.
//!
//! Invariant: at most one session per OSD; a session's operations and commands are those whose target is its OSD, sent or waiting.

use super::backoff::Backoffs;
use super::ids::{ConnId, Tid};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use types::{EntityAddr, OsdId};

const RETRY_MIN: Duration = Duration::from_millis(50);
const RETRY_MAX: Duration = Duration::from_secs(3);

/// Whose a session is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Daemon {
    Osd(OsdId),
    Mgr,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Link {
    /// Nobody dials.
    Idle,
    /// To be dialled then.
    Wait(Duration),
    Dialling(ConnId),
    Open(ConnId),
}

#[derive(Debug)]
pub struct Session {
    pub addr: EntityAddr,
    pub link: Link,
    pub ops: BTreeSet<Tid>,
    pub commands: BTreeSet<Tid>,
    pub backoffs: Backoffs,
    /// The next pause, should it break again before it opens.
    pause: Duration,
}

impl Session {
    pub fn new(addr: EntityAddr) -> Self {
        Self {
            addr,
            link: Link::Idle,
            ops: BTreeSet::new(),
            commands: BTreeSet::new(),
            backoffs: Backoffs::default(),
            pause: RETRY_MIN,
        }
    }

    pub fn conn(&self) -> Option<ConnId> {
        match self.link {
            Link::Dialling(c) | Link::Open(c) => Some(c),
            Link::Idle | Link::Wait(_) => None,
        }
    }

    /// To be dialled now, if there is something to say.
    pub fn is_due(&self, now: Duration) -> bool {
        match self.link {
            Link::Idle => true,
            Link::Wait(at) => at <= now && !(self.ops.is_empty() && self.commands.is_empty()),
            Link::Dialling(_) | Link::Open(_) => false,
        }
    }

    pub fn open(&self) -> Option<ConnId> {
        match self.link {
            Link::Open(c) => Some(c),
            _ => None,
        }
    }

    pub fn opened(&mut self, conn: ConnId) {
        self.link = Link::Open(conn);
        self.pause = RETRY_MIN;
        self.backoffs = Backoffs::default();
    }

    /// The connection is gone: when to dial again.
    pub fn broke(&mut self, now: Duration) -> Duration {
        self.backoffs = Backoffs::default();
        let at = now + self.pause;
        self.pause = (self.pause * 2).min(RETRY_MAX);
        self.link = Link::Wait(at);
        at
    }
}

#[derive(Debug, Default)]
pub struct Sessions {
    by_osd: BTreeMap<OsdId, Session>,
    by_conn: BTreeMap<ConnId, OsdId>,
}

impl Sessions {
    pub fn of(&self, osd: OsdId) -> Option<&Session> {
        self.by_osd.get(&osd)
    }

    pub fn of_mut(&mut self, osd: OsdId) -> Option<&mut Session> {
        self.by_osd.get_mut(&osd)
    }

    pub fn osd(&self, conn: ConnId) -> Option<OsdId> {
        self.by_conn.get(&conn).copied()
    }

    pub fn ids(&self) -> Vec<OsdId> {
        self.by_osd.keys().copied().collect()
    }

    /// The session with `osd`; a connection to another address of it is given back, to be hung up.
    pub fn get(&mut self, osd: OsdId, addr: EntityAddr) -> (&mut Session, Option<ConnId>) {
        let session = self.by_osd.entry(osd).or_insert_with(|| Session::new(addr));
        let mut old = None;
        if session.addr != addr {
            old = session.conn();
            if let Some(conn) = old {
                self.by_conn.remove(&conn);
            }
            *session = Session {
                ops: std::mem::take(&mut session.ops),
                commands: std::mem::take(&mut session.commands),
                ..Session::new(addr)
            };
        }
        (session, old)
    }

    pub fn dialling(&mut self, osd: OsdId, conn: ConnId) {
        if let Some(s) = self.by_osd.get_mut(&osd) {
            s.link = Link::Dialling(conn);
            self.by_conn.insert(conn, osd);
        }
    }

    pub fn forget_conn(&mut self, conn: ConnId) -> Option<OsdId> {
        self.by_conn.remove(&conn)
    }

    /// Ends the session; its connection is given back, to be hung up. Its operations must have been moved.
    pub fn remove(&mut self, osd: OsdId) -> Option<ConnId> {
        let conn = self.by_osd.remove(&osd)?.conn();
        if let Some(conn) = conn {
            self.by_conn.remove(&conn);
        }
        conn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_until_a_session_opens() {
        let mut s = Session::new(EntityAddr::BLANK);
        let now = Duration::from_secs(100);
        assert_eq!(s.broke(now), now + RETRY_MIN);
        assert_eq!(s.broke(now), now + RETRY_MIN * 2);
        for _ in 0..20 {
            s.broke(now);
        }
        assert_eq!(s.broke(now), now + RETRY_MAX);
        s.opened(ConnId(1));
        assert_eq!(s.broke(now), now + RETRY_MIN);
    }
}
