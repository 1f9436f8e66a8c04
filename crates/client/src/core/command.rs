//! Commands to daemons, as `ceph tell` sends them (docs/protocol/ceph/04-osd.md, section 15; docs/protocol/ceph/02-monitor.md,
//! section 9).
//!
//! A command goes to an OSD, to a PG's primary or to the manager, by the present maps. It is sent once over each connection: again under
//! the same tid when the connection breaks or the target moves, at most [`SENDS_MAX`] times. So it may be carried out more than
//! once, as with librados. What the newest map lacks too (an OSD that is gone or down, a pool) ends it with an error. Flags of the
//! map and backoffs do not concern it.
//!
//! Invariants: commands count against [`super::Limits`] as operations do, each with what its answer may bring; a command is in
//! the session of its target and in no other.

use super::ids::{OpId, Tid};
use super::links::Daemon;
use super::mon::{Asker, Question};
use super::op::DATA_MAX;
use super::{Answer, Core};
use crate::{Error, Result};
use bytes::Bytes;
use messages::mon::{Body, MMgrCommand};
use messages::osd::{MCommand, MCommandReply};
use msgr::Message;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;
use types::{EntityAddr, Epoch, Errno, OsdId, PgId, Uuid};

/// The most that an answer may bring.
pub const OUTPUT_MAX: usize = 16 << 20;
/// Connections that may break before an answer comes: a command that ends its daemon each time is not sent for ever.
pub const SENDS_MAX: u32 = 8;

/// Who is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    Osd(OsdId),
    /// The PG's primary.
    Pg(PgId),
    /// The active manager itself.
    Mgr,
    /// The modules of the active manager: what concerns the cluster.
    MgrModules,
}

impl FromStr for Target {
    type Err = Error;

    /// As `ceph tell` takes them: `osd.3`, `2.1f`, `mgr`.
    fn from_str(text: &str) -> Result<Self> {
        if text == "mgr" {
            return Ok(Self::Mgr);
        }
        let osd = text.strip_prefix("osd.").and_then(|n| n.parse().ok());
        let osd = osd.filter(|osd| *osd >= 0);
        let to = osd.map(Self::Osd).or_else(|| text.parse().ok().map(Self::Pg));
        to.ok_or(Error::invalid(
            Errno::EINVAL,
            "a command goes to osd.N, to a PG or to mgr",
        ))
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Osd(osd) => write!(f, "osd.{osd}"),
            Self::Pg(pg) => write!(f, "{pg}"),
            Self::Mgr | Self::MgrModules => f.write_str("mgr"),
        }
    }
}

/// What is asked of a daemon.
#[derive(Debug, Clone)]
pub struct Command {
    pub to: Target,
    /// Normally one JSON object; sent as it is.
    pub cmd: String,
    pub input: Bytes,
    /// Given up after so long.
    pub timeout: Option<Duration>,
}

impl Command {
    /// Bytes that it may hold here: what it brings, and what its answer may bring.
    pub(crate) fn cost(&self) -> usize {
        self.cmd.len() + self.input.len() + OUTPUT_MAX
    }
}

/// Where a command is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Until a map, a primary or a manager comes.
    Homeless,
    /// Until it is known whether the target is missing in this epoch, too.
    Missing(Option<Epoch>),
    /// In this session; `sent` on its present connection.
    Osd {
        osd: OsdId,
        addr: EntityAddr,
        sent: bool,
    },
    Mgr {
        sent: bool,
    },
}

#[derive(Debug)]
struct Issued {
    id: OpId,
    command: Command,
    state: State,
    sends: u32,
    since: Duration,
    deadline: Option<Duration>,
}

/// Commands under way, in the order in which they were submitted.
#[derive(Debug, Default)]
pub struct Commands {
    issued: BTreeMap<Tid, Issued>,
    bytes: usize,
}

impl Commands {
    /// Commands, and their bytes.
    pub fn load(&self) -> (usize, usize) {
        (self.issued.len(), self.bytes)
    }

    pub fn is_empty(&self) -> bool {
        self.issued.is_empty()
    }

    /// Whether one has had no answer since `then`.
    pub fn any_since(&self, then: Duration) -> bool {
        self.issued.values().any(|c| c.since <= then)
    }

    fn insert(&mut self, tid: Tid, issued: Issued) {
        self.bytes += issued.command.cost();
        self.issued.insert(tid, issued);
    }

    fn remove(&mut self, tid: Tid) -> Option<Issued> {
        let issued = self.issued.remove(&tid)?;
        self.bytes -= issued.command.cost();
        Some(issued)
    }

    fn which(&self, f: impl Fn(&Issued) -> bool) -> Vec<Tid> {
        let found = self.issued.iter().filter(|(_, c)| f(c));
        found.map(|(tid, _)| *tid).collect()
    }

    pub fn overdue(&self, now: Duration) -> Vec<Tid> {
        self.which(|c| c.deadline.is_some_and(|d| d <= now))
    }

    pub fn all(&self) -> Vec<Tid> {
        self.which(|_| true)
    }

    /// Nothing of this OSD's commands is on its present connection.
    pub fn unsent(&mut self, osd: OsdId) {
        for c in self.issued.values_mut() {
            if let State::Osd { osd: of, sent, .. } = &mut c.state
                && *of == osd
            {
                *sent = false;
            }
        }
    }

    pub fn unsent_mgr(&mut self) {
        for c in self.issued.values_mut() {
            if let State::Mgr { sent } = &mut c.state {
                *sent = false;
            }
        }
    }

    /// The session with the manager is no more.
    pub fn without_mgr(&mut self) {
        for c in self.issued.values_mut() {
            if matches!(c.state, State::Mgr { .. }) {
                c.state = State::Homeless;
            }
        }
    }
}

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
        let Some(issued) = self.commands.issued.get(&tid) else {
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
            Target::Osd(osd) => match super::target::addr(&map, osd) {
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
        if let Some(c) = self.commands.issued.get_mut(&tid) {
            c.state = state;
        }
    }

    fn leave_command_session(&mut self, tid: Tid) {
        match self.commands.issued.get(&tid).map(|c| c.state) {
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
        let Some(issued) = self.commands.issued.get_mut(&tid) else {
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
        match self.commands.issued.get(&tid).map(|c| c.state) {
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
        let Some(issued) = self.commands.issued.get(&m.tid) else {
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

/// `modules`: in the manager's own message, which old managers do not know.
fn encode(tid: Tid, command: &Command, fsid: Uuid, modules: bool) -> Message {
    let input = command.input.clone();
    if modules {
        let cmd = vec![command.cmd.clone()];
        return MMgrCommand { fsid, cmd, input }.message(tid);
    }
    let cmd = vec![Bytes::copy_from_slice(command.cmd.as_bytes())];
    MCommand {
        tid,
        fsid,
        cmd,
        input,
    }
    .to_message()
}
