//! The client as a state machine: [`Event`]s in, [`Effect`]s out. It does no I/O, reads no clock and draws no randomness but
//! from what it is given, so a run of it can be replayed.
//!
//! The owner calls [`Core::apply`] with each event and the present times, then takes the effects with [`Core::effect`] until
//! there are none, and comes back with [`Event::Timer`] at [`Core::deadline`] at the latest.
//!
//! | file | what it holds |
//! |---|---|
//! | `mon` | the session with a monitor, questions, tickets |
//! | `maps`, `target` | the OSD map; where an operation goes |
//! | `session`, `backoff` | connections to OSDs and what they do not want to hear |
//! | `op`, `outcome`, `snap`, `list` | what is asked and what comes back |
//! | `command`, `commanding`, `manager` | commands to daemons; the session with the manager |
//! | `inflight`, `resend` | operations under way: submitted, sent, sent again, answered |
//! | `watch`, `lingering` | watches and notifies |
//! | `links`, `time` | connections that open and break; timers |

mod backoff;
pub mod command;
mod commanding;
mod ids;
mod inflight;
mod lingering;
mod links;
pub mod list;
mod manager;
mod maps;
pub mod mon;
pub mod op;
mod outcome;
mod resend;
mod session;
pub mod snap;
mod target;
mod time;
pub mod watch;

#[cfg(test)]
mod tests;

pub use inflight::Request;
pub use outcome::{CloneInfo, Page, SnapSet, Watcher};
pub use target::Place;

use crate::{Error, Result};
use bytes::Bytes;
use command::{Command, Commands};
pub use ids::{ConnId, OpId, Tid, WatchId};
use inflight::Inflight;
use manager::Manager;
use maps::Maps;
use messages::mon::MGetPoolStatsReply;
use mon::{Asker, Credentials, Mon, Question};
use msgr::Message;
use op::Outcome;
use session::Sessions;
use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use target::Placements;
use types::osdmap::OsdMap;
use types::{EntityAddr, EntityKind, Epoch, Utime};
use watch::{Kind, Lingers, Notified, WatchEvent};

/// The times of a step.
#[derive(Debug, Clone, Copy, Default)]
pub struct Now {
    /// Since an arbitrary point; never goes back.
    pub mono: Duration,
    pub wall: Utime,
}

/// At which load operations are refused with [`Error::Busy`]. The owner keeps its users waiting before that.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    pub ops: usize,
    /// Of what operations bring and of what their reads may bring.
    pub bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            ops: 1024,
            bytes: 100 << 20,
        }
    }
}

#[derive(Debug)]
pub enum Event {
    /// A connection has its session. `credentials`: those that it was dialled with, and what the handshake added.
    Opened {
        conn: ConnId,
        credentials: Credentials,
    },
    Message {
        conn: ConnId,
        message: Message,
    },
    /// A connection is gone, or never was. `refused`: for who we are.
    Ended {
        conn: ConnId,
        refused: bool,
        why: String,
    },
    /// Time has passed.
    Timer,
    Submit {
        id: OpId,
        request: Request,
    },
    /// A command to a daemon.
    Command {
        id: OpId,
        command: Command,
    },
    Ask {
        id: OpId,
        question: Question,
        timeout: Option<Duration>,
    },
    /// The newest map that there is, with what was answered before in it.
    Latest {
        id: OpId,
        timeout: Option<Duration>,
    },
    Watch {
        id: OpId,
        place: Place,
        kind: Kind,
    },
    Ack {
        id: OpId,
        watch: WatchId,
        notify_id: u64,
        reply: Bytes,
    },
    /// `id`: who waits for it to be ended.
    Unwatch {
        id: Option<OpId>,
        watch: WatchId,
    },
    /// Nobody waits any more. What was sent may still take effect.
    Cancel {
        id: OpId,
    },
    /// A daemon that the machine knows nothing of has refused our ticket.
    TicketsRefused,
    /// Ends watches, then everything.
    Stop,
}

#[derive(Debug)]
pub enum Effect {
    Dial {
        conn: ConnId,
        peer: EntityKind,
        addr: EntityAddr,
        credentials: Credentials,
    },
    /// Only after the connection's [`Event::Opened`].
    Send {
        conn: ConnId,
        message: Message,
    },
    /// Without a word back.
    HangUp {
        conn: ConnId,
    },
    Done {
        id: OpId,
        told: Result<Answer>,
    },
    Watch {
        watch: WatchId,
        event: WatchEvent,
    },
    Map(Arc<OsdMap>),
    /// Every monitor that was tried refuses us.
    Denied(String),
    /// After [`Event::Stop`]: nothing more comes.
    Stopped,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    Outcome(Outcome),
    Watching(WatchId),
    Notified(Notified),
    /// Of a command: its code (0 or negative), its line, and what it printed.
    Command {
        code: i32,
        status: String,
        output: Bytes,
    },
    Version {
        newest: u64,
        oldest: u64,
    },
    /// The new snapshot's id, where one was made.
    PoolOp {
        snap: Option<u64>,
    },
    Statfs(messages::mon::MStatfsReply),
    PoolStats(MGetPoolStatsReply),
    Latest(Epoch),
}

/// An answer that waits until the map has its effect in it.
#[derive(Debug)]
struct Waiting {
    id: OpId,
    epoch: Epoch,
    told: Result<Answer>,
    deadline: Option<Duration>,
}

/// How long the end waits for OSDs to have heard of ended watches.
const STOP_MAX: Duration = Duration::from_secs(2);

pub struct Core {
    limits: Limits,
    entropy: Arc<dyn auth::Entropy>,
    now: Now,
    mon: Mon,
    maps: Maps,
    placements: Placements,
    sessions: Sessions,
    inflight: Inflight,
    commands: Commands,
    manager: Manager,
    lingers: Lingers,
    waiting: Vec<Waiting>,
    last_conn: u64,
    effects: VecDeque<Effect>,
    wakes: BTreeSet<Duration>,
    /// When to ask for a newer map, since an operation has had no answer for long.
    lag_at: Option<Duration>,
    stop_by: Option<Duration>,
    stopped: bool,
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core")
            .field("epoch", &self.maps.epoch())
            .field("inflight", &self.inflight.load())
            .finish_non_exhaustive()
    }
}

impl Core {
    /// `mons`: where monitors may be; at least one.
    pub fn new(
        mons: Vec<EntityAddr>,
        credentials: Credentials,
        limits: Limits,
        entropy: Arc<dyn auth::Entropy>,
    ) -> Self {
        let mut first = [0; 4];
        entropy.fill(&mut first);
        Self {
            limits,
            entropy,
            now: Now::default(),
            mon: Mon::new(mons, credentials, u32::from_le_bytes(first)),
            maps: Maps::default(),
            placements: Placements::default(),
            sessions: Sessions::default(),
            inflight: Inflight::default(),
            commands: Commands::default(),
            manager: Manager::default(),
            lingers: Lingers::default(),
            waiting: Vec::new(),
            last_conn: 0,
            effects: VecDeque::new(),
            wakes: BTreeSet::new(),
            lag_at: None,
            stop_by: None,
            stopped: false,
        }
    }

    pub fn apply(&mut self, event: Event, now: Now) {
        self.now = now;
        if self.stopped {
            return self.refuse(event);
        }
        match event {
            Event::Opened { conn, credentials } => self.opened(conn, credentials),
            Event::Message { conn, message } => self.message(conn, message),
            Event::Ended { conn, refused, why } => self.ended(conn, refused, &why),
            Event::Timer => {}
            Event::Submit { .. }
            | Event::Command { .. }
            | Event::Ask { .. }
            | Event::Latest { .. }
            | Event::Watch { .. }
                if self.stop_by.is_some() =>
            {
                self.refuse(event);
            }
            Event::Submit { id, request } => self.submit(id, request),
            Event::Command { id, command } => self.command(id, command),
            Event::Ask {
                id,
                question,
                timeout,
            } => self.ask(Asker::User(id), question, timeout),
            Event::Latest { id, timeout } => {
                let what = "osdmap".to_string();
                self.ask(Asker::Latest(id), Question::Version { what }, timeout);
            }
            Event::Watch { id, place, kind } => self.watch(id, place, kind),
            Event::Ack {
                id,
                watch,
                notify_id,
                reply,
            } => self.ack(id, watch, notify_id, &reply),
            Event::Unwatch { id, watch } => self.unwatch(id, watch),
            Event::Cancel { id } => self.cancel(id),
            Event::TicketsRefused => self.mon.tickets_refused(self.now.mono),
            Event::Stop => self.stop(),
        }
        self.tick();
    }

    pub fn effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// When [`Event::Timer`] is due, on the monotonic clock.
    pub fn deadline(&self) -> Option<Duration> {
        self.wakes.first().copied()
    }

    pub fn map(&self) -> Option<&Arc<OsdMap>> {
        self.maps.now()
    }

    /// Operations and commands of users that are under way, and their bytes.
    pub fn load(&self) -> (usize, usize) {
        let ((ops, bytes), (commands, more)) = (self.inflight.load(), self.commands.load());
        (ops + commands, bytes + more)
    }

    /// Whether the limits allow one more that costs `bytes`. One that is larger than all may go alone.
    fn has_room(&self, cost: usize) -> bool {
        let (ops, bytes) = self.load();
        ops < self.limits.ops && (bytes == 0 || bytes + cost <= self.limits.bytes)
    }

    /// Our number among the clients; 0 until a monitor gave one.
    pub fn global_id(&self) -> u64 {
        self.mon.credentials.global_id()
    }

    /// With the newest tickets.
    pub fn credentials(&self) -> &Credentials {
        &self.mon.credentials
    }

    fn refuse(&mut self, event: Event) {
        let id = match event {
            Event::Submit { id, .. }
            | Event::Command { id, .. }
            | Event::Ask { id, .. }
            | Event::Latest { id, .. }
            | Event::Watch { id, .. }
            | Event::Ack { id, .. } => id,
            Event::Unwatch { id: Some(id), .. } => id,
            _ => return,
        };
        self.tell(id, Err(Error::Closed));
    }

    fn tell(&mut self, id: OpId, told: Result<Answer>) {
        self.effects.push_back(Effect::Done { id, told });
    }

    fn send(&mut self, conn: ConnId, message: Message) {
        self.effects.push_back(Effect::Send { conn, message });
    }

    fn hang_up(&mut self, conn: ConnId) {
        self.effects.push_back(Effect::HangUp { conn });
    }

    fn dial(&mut self, peer: EntityKind, addr: EntityAddr) -> ConnId {
        self.last_conn += 1;
        let conn = ConnId(self.last_conn);
        let credentials = self.mon.credentials.clone();
        self.effects.push_back(Effect::Dial {
            conn,
            peer,
            addr,
            credentials,
        });
        conn
    }

    fn send_mon(&mut self, message: Option<Message>) {
        if let (Some(conn), Some(m)) = (self.mon.open_conn(), message) {
            self.send(conn, m);
        }
    }

    fn ask(&mut self, asker: Asker, question: Question, timeout: Option<Duration>) {
        let deadline = timeout.map(|t| self.now.mono + t);
        if let Some(at) = deadline {
            self.wake_at(at);
        }
        match (self.mon.ask(asker, question, deadline), asker) {
            (Ok(message), _) => self.send_mon(message),
            (Err(e), Asker::User(id) | Asker::Latest(id)) => self.tell(id, Err(e)),
            (Err(_), _) => {}
        }
    }

    fn want_map(&mut self) {
        let message = self.mon.want_map(self.maps.epoch());
        self.send_mon(message);
    }

    fn cancel(&mut self, id: OpId) {
        if let Some(tid) = self.inflight.of(id) {
            self.take(tid);
        }
        self.cancel_command(id);
        self.mon.forget(id);
        self.waiting.retain(|w| w.id != id);
        if let Some(watch) = self.lingers.waits(id) {
            self.unwatch(None, watch);
        }
    }

    fn stop(&mut self) {
        let users = |o: &inflight::Op| matches!(o.owner, inflight::Owner::User(_));
        for tid in self.inflight.which(users) {
            self.finish(tid, Err(Error::Closed));
        }
        for tid in self.commands.all() {
            self.finish_command(tid, Err(Error::Closed));
        }
        for asked in self.mon.drain() {
            if let Asker::User(id) | Asker::Latest(id) = asked.asker {
                self.tell(id, Err(Error::Closed));
            }
        }
        for w in std::mem::take(&mut self.waiting) {
            self.tell(w.id, Err(Error::Closed));
        }
        for watch in self.lingers.which(|_| true) {
            if let Some(id) = self.lingers.get(watch).and_then(|l| l.waiter) {
                self.tell(id, Err(Error::Closed));
            }
            self.unwatch(None, watch);
        }
        let by = self.now.mono + STOP_MAX;
        self.stop_by = Some(by);
        self.wake_at(by);
    }

    /// Ends everything once the OSDs have heard what they should, or it has taken too long.
    fn stop_if_due(&mut self) {
        let due = self
            .stop_by
            .is_some_and(|by| self.inflight.is_empty() || by <= self.now.mono);
        if !due || self.stopped {
            return;
        }
        self.stopped = true;
        self.wakes.clear();
        for conn in self.mon.conns().into_iter().chain(self.manager.conn()) {
            self.hang_up(conn);
        }
        for osd in self.sessions.ids() {
            if let Some(conn) = self.sessions.remove(osd) {
                self.hang_up(conn);
            }
        }
        self.effects.push_back(Effect::Stopped);
    }
}
