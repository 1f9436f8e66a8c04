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
use crate::{Error, Result};
use bytes::Bytes;
use messages::mon::{Body, MMgrCommand};
use messages::osd::MCommand;
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
pub enum State {
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
pub struct Issued {
    pub id: OpId,
    pub command: Command,
    pub state: State,
    pub sends: u32,
    pub since: Duration,
    pub deadline: Option<Duration>,
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

    pub fn get(&self, tid: Tid) -> Option<&Issued> {
        self.issued.get(&tid)
    }

    pub fn get_mut(&mut self, tid: Tid) -> Option<&mut Issued> {
        self.issued.get_mut(&tid)
    }

    pub fn insert(&mut self, tid: Tid, issued: Issued) {
        self.bytes += issued.command.cost();
        self.issued.insert(tid, issued);
    }

    pub fn remove(&mut self, tid: Tid) -> Option<Issued> {
        let issued = self.issued.remove(&tid)?;
        self.bytes -= issued.command.cost();
        Some(issued)
    }

    pub fn which(&self, f: impl Fn(&Issued) -> bool) -> Vec<Tid> {
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

/// `modules`: in the manager's own message, which old managers do not know.
pub fn encode(tid: Tid, command: &Command, fsid: Uuid, modules: bool) -> Message {
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
