//! Commands in motion: directed, sent, sent again, answered; the session with the manager.

use super::command::{Command, Issued, OUTPUT_MAX, SENDS_MAX, State, Target, encode};
use super::ids::{ConnId, OpId, Tid};
use super::mon::{Asker, Question};
use super::op::DATA_MAX;
use super::session::{Daemon, Link};
use super::target::addr;
use super::{Answer, Core};
use crate::{Error, Result};
use messages::osd::MCommandReply;
use msgr::Message;
use types::{EntityAddr, EntityKind, Epoch, Errno, MgrMap, OsdId, Uuid};

/// What a map says about a target.
enum Found {
    Osd(OsdId, EntityAddr),
    /// It may be in the next map.
    Nobody,
    Missing(Error),
}

impl Core {
    pub(super) fn command(&mut self, id: OpId, command: Command) {
        if command.cmd.len() + command.input.len() > DATA_MAX {
            let e = Error::invalid(Errno::EMSGSIZE, "too much data for one message");
            return self.tell(id, Err(e));
        }
        if !self.has_room(command.cost()) {
            return self.tell(id, Err(Error::Busy));
        }
        let now = self.now.mono;
        let deadline = command.timeout.map(|t| now + t);
        if let Some(at) = deadline {
            self.wake_at(at);
        }
        self.watch_lag();
        let tid = self.inflight.next_tid();
        let issued = Issued {
            id,
            command,
            state: State::Homeless,
            sends: 0,
            since: now,
            deadline,
        };
        self.commands.insert(tid, issued);
        self.direct_command(tid);
    }

    /// Brings a command to where it has to be now, and sends it if it can be.
    fn direct_command(&mut self, tid: Tid) {
        let Some(issued) = self.commands.get(tid) else {
            return;
        };
        let (to, was) = (issued.command.to, issued.state);
        if matches!(to, Target::Mgr | Target::MgrModules) {
            return match was {
                State::Mgr { .. } => {}
                _ => self.direct_to_mgr(tid),
            };
        }
        match self.find(to) {
            Found::Osd(osd, addr) => {
                let stays = matches!(was, State::Osd { osd: o, addr: a, .. } if (o, a) == (osd, addr));
                if !stays {
                    self.leave_command_session(tid);
                    let sent = false;
                    self.set_command(tid, State::Osd { osd, addr, sent });
                    self.enter_command_session(tid, osd, addr);
                }
            }
            Found::Nobody => {
                self.leave_command_session(tid);
                self.set_command(tid, State::Homeless);
                self.want_map();
            }
            Found::Missing(e) => self.command_missing(tid, e),
        }
    }

    fn find(&mut self, to: Target) -> Found {
        let Some(map) = self.maps.now().cloned() else {
            return Found::Nobody;
        };
        let missing = |errno: Errno, what: String| Found::Missing(Error::refused(errno.code(), what));
        match to {
            Target::Osd(osd) if !map.exists(osd) => {
                missing(Errno::ENOENT, format!("osd.{osd} does not exist"))
            }
            Target::Osd(osd) => match addr(&map, osd) {
                Some(addr) => Found::Osd(osd, addr),
                None => missing(Errno::ENXIO, format!("osd.{osd} is down")),
            },
            Target::Pg(pg) if map.pool(pg.pool).is_none() => {
                missing(Errno::ENOENT, "the pool does not exist".into())
            }
            Target::Pg(pg) => match self.placements.primary(&map, pg) {
                Some((osd, addr)) => Found::Osd(osd, addr),
                None => Found::Nobody,
            },
            Target::Mgr | Target::MgrModules => Found::Nobody,
        }
    }

    fn set_command(&mut self, tid: Tid, state: State) {
        if let Some(c) = self.commands.get_mut(tid) {
            c.state = state;
        }
    }

    fn leave_command_session(&mut self, tid: Tid) {
        match self.commands.get(tid).map(|c| c.state) {
            Some(State::Osd { osd, .. }) => {
                if let Some(session) = self.sessions.of_mut(osd) {
                    session.commands.remove(&tid);
                }
            }
            Some(State::Mgr { .. }) => self.manager.leave(tid),
            _ => {}
        }
    }

    fn enter_command_session(&mut self, tid: Tid, osd: OsdId, addr: EntityAddr) {
        self.session_at(osd, addr).commands.insert(tid);
        self.dial_osd(osd);
        self.send_command(tid);
    }

    fn direct_to_mgr(&mut self, tid: Tid) {
        let message = self.mon.want_mgr_map();
        self.send_mon(message);
        match self.manager.enter(tid) {
            true => {
                let sent = false;
                self.set_command(tid, State::Mgr { sent });
                self.dial_mgr();
                self.send_command(tid);
            }
            false => self.set_command(tid, State::Homeless),
        }
    }

    /// Sends it over its session, if that is open, once.
    pub(super) fn send_command(&mut self, tid: Tid) {
        let Some(issued) = self.commands.get_mut(tid) else {
            return;
        };
        let conn = match issued.state {
            State::Osd { osd, sent: false, .. } => self.sessions.of(osd).and_then(|s| s.open()),
            State::Mgr { sent: false } => self.manager.open_conn(),
            _ => None,
        };
        let Some(conn) = conn else { return };
        if issued.sends >= SENDS_MAX {
            let what = format!("{}: each connection ended before an answer", issued.command.to);
            let e = Error::refused(Errno::ENOTCONN.code(), what);
            return self.finish_command(tid, Err(e));
        }
        issued.sends += 1;
        if let State::Osd { sent, .. } | State::Mgr { sent } = &mut issued.state {
            *sent = true;
        }
        tracing::debug!("#{tid} try {}: a command to {}", issued.sends, issued.command.to);
        let fsid = self.mon.fsid().or(self.maps.now().map(|m| m.fsid));
        let fsid = fsid.unwrap_or(Uuid::from_random([0; 16]));
        let modules = issued.command.to == Target::MgrModules && self.manager.is_octopus();
        let message = encode(tid, &issued.command, fsid, modules);
        self.send(conn, message);
    }

    fn command_missing(&mut self, tid: Tid, e: Error) {
        let epoch = self.maps.epoch();
        self.leave_command_session(tid);
        match self.commands.get(tid).map(|c| c.state) {
            Some(State::Missing(Some(newest))) if epoch >= newest => self.finish_command(tid, Err(e)),
            Some(State::Missing(Some(_))) => self.want_map(),
            Some(_) => {
                self.set_command(tid, State::Missing(None));
                if !self.mon.is_asking(Asker::Missing) {
                    let what = "osdmap".to_string();
                    self.ask(Asker::Missing, Question::Version { what }, None);
                }
            }
            None => {}
        }
    }

    /// The newest map there is: what it lacks is gone.
    pub(super) fn commands_as_of(&mut self, newest: Epoch) {
        for tid in self.commands.which(|c| c.state == State::Missing(None)) {
            self.set_command(tid, State::Missing(Some(newest)));
            self.direct_command(tid);
        }
    }

    /// After a new map.
    pub(super) fn direct_commands(&mut self) {
        for tid in self.commands.all() {
            self.direct_command(tid);
        }
    }

    pub(super) fn command_reply(&mut self, from: Daemon, m: &Message) {
        let Some(issued) = self.commands.get(m.tid) else {
            return;
        };
        let fits = match (issued.state, from) {
            (State::Osd { osd, sent, .. }, Daemon::Osd(by)) => sent && osd == by,
            (State::Mgr { sent }, Daemon::Mgr) => sent,
            _ => false,
        };
        if fits {
            self.finish_command(m.tid, answer(m));
        }
    }

    pub(super) fn finish_command(&mut self, tid: Tid, told: Result<Answer>) {
        self.leave_command_session(tid);
        if let Some(issued) = self.commands.remove(tid) {
            self.tell(issued.id, told);
        }
    }

    pub(super) fn cancel_command(&mut self, id: OpId) {
        for tid in self.commands.which(|c| c.id == id) {
            self.leave_command_session(tid);
            self.commands.remove(tid);
        }
    }
}

/// Of either kind: their fields are the same.
fn answer(m: &Message) -> Result<Answer> {
    if m.data.len() > OUTPUT_MAX {
        let what = format!(
            "an answer of {} bytes, {OUTPUT_MAX} at most are taken",
            m.data.len()
        );
        return Err(Error::refused(Errno::EMSGSIZE.code(), what));
    }
    let reply = MCommandReply::from_message(m)?;
    Ok(Answer::Command {
        code: reply.result,
        status: String::from_utf8_lossy(&reply.status).into_owned(),
        output: reply.output,
    })
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
