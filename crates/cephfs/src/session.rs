//! The session with the metadata server: a task that has the connection, what is under way, and what is held.
//!
//! Where the connection ends it looks for the server at the monitor: the same one is dialled again and told all that is under way; one
//! that took its place is told while it waits for those who had a session (state `reconnect`); after that the session is lost.
//!
//! Invariants: a request that was answered as unsafe is kept up to its safe answer; where the server is another by then, it is repeated
//! with the number of the inode that it made, in the order of the answers and before it is said what is held. Whether its caller waits
//! as long is [`Options::early`]'s to say ([`safe`]). An inode's capability is given back as it comes, but for files that are open
//! ([`held`]).

mod back;
mod held;
mod locks;
mod losses;
pub mod ranges;
mod requests;
mod safe;

pub use held::{Open, Shared, Use};
pub use losses::Safety;

use crate::options::Options;
use crate::place::{Stage, Standing, standing};
use back::Back;
use bytes::Bytes;
use client::{Client, DaemonEvent, DaemonLink, Error};
use held::Holding;
use io::task::TaskHandle;
use losses::{Early, Losses, Syncing};
use messages::fs::{
    Args, CapItem, CapStat, Features, FilePath, InodeStat, MClientCaps, MClientLease, MClientQuota,
    MClientReconnect, MClientReply, MClientRequest, MClientSession, MClientSnap, cap, lease_action, op,
    session_op,
};
use messages::mon::Body;
use messages::osd::{MCommand, MCommandReply, kind};
use msgr::Message;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use types::{EntityKind, Errno, Utime};

/// Requests under way; more wait.
pub const REQUESTS_MAX: usize = 128;
/// Features 0 to 12: what the protocol of this crate is made of.
const FEATURES: u64 = 0x1fff;
const SEEK_EVERY: Duration = Duration::from_millis(250);
const RENEW_EVERY: Duration = Duration::from_secs(15);
/// Without a word in so long the connection is given up.
const SILENT_MAX: Duration = Duration::from_secs(50);
/// From dialling to the open session.
const OPEN_MAX: Duration = Duration::from_secs(20);
const CLOSE_MAX: Duration = Duration::from_secs(5);
/// A request of a server that a newer one is to be asked.
const FORWARD: u16 = 25;
/// Commands under way.
const COMMANDS_MAX: usize = 16;
/// Changes something.
const WRITES: u32 = 0x1000;

/// An answer, and what is open by it.
pub type Answer = (MClientReply, Option<Shared>);

pub enum Ask {
    Request {
        request: Box<MClientRequest>,
        /// The answer opens its target for this.
        hold: Option<Use>,
        reply: oneshot::Sender<crate::Result<Answer>>,
    },
    /// About locks of a file that is open: who lost it with its session gets none by the next one.
    Lock {
        request: Box<MClientRequest>,
        open: Shared,
        reply: oneshot::Sender<crate::Result<Answer>>,
    },
    /// A larger bound for sizes.
    Grow {
        ino: u64,
        size: u64,
    },
    /// A call that used what was asked back has ended.
    Settle {
        ino: u64,
    },
    /// What was written shall be durable at the server.
    Flush {
        ino: u64,
        open: Shared,
        reply: oneshot::Sender<crate::Result<()>>,
    },
    /// What was answered before shall be durable. `since`: the last lost change that the asking handle knows of.
    Sync {
        ino: Option<u64>,
        since: u64,
        reply: oneshot::Sender<Safety>,
    },
    /// Handles were closed.
    LetGo {
        ino: u64,
    },
    /// A command to the server itself, sent once.
    Command {
        cmd: String,
        reply: oneshot::Sender<crate::Result<Bytes>>,
    },
    Close(oneshot::Sender<()>),
}

struct Pending {
    request: Box<MClientRequest>,
    hold: Option<Use>,
    /// What its answer has opened.
    open: Option<(u64, Use, Shared)>,
    /// None: its caller has the unsafe answer.
    reply: Option<oneshot::Sender<crate::Result<Answer>>>,
    sent: bool,
    early: Option<Early>,
    /// It was said again to another server than the one that had answered it.
    replayed: bool,
    /// Its caller waits as long as that.
    until: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Seeking,
    /// A connection, then an answer to our opening or coming back.
    Opening,
    Reconnecting,
    Rejoining,
    Open,
    Closing,
    /// For ever: why is in `refused`.
    Refused,
}

pub struct Session {
    client: Client,
    fs: String,
    options: Options,
    asks: mpsc::Receiver<Ask>,
    state: State,
    link: Option<DaemonLink>,
    seek: Option<TaskHandle<crate::Result<Standing>>>,
    seek_at: Duration,
    /// The server with which we have a session.
    server: Option<u64>,
    /// The one that is spoken to.
    standing: Option<Standing>,
    back: Back,
    since: Duration,
    heard: Duration,
    renew_at: Duration,
    renewals: u64,
    /// Messages that are counted when a session is closed.
    pushed: u64,
    pending: BTreeMap<u64, Pending>,
    last_tid: u64,
    /// Unsafe answers so far.
    earlies: u64,
    /// Requests whose callers have one, under way.
    unsafes: usize,
    losses: Losses,
    syncs: Vec<Syncing>,
    hurry_at: Duration,
    commands: BTreeMap<u64, oneshot::Sender<crate::Result<Bytes>>>,
    held: HashMap<u64, Holding>,
    /// What is asked back of them, and still used.
    owing: HashSet<u64>,
    tell_at: Duration,
    releases: Vec<CapItem>,
    refused: Option<Error>,
    /// For those who hold the mount.
    told: Told,
    closers: Vec<oneshot::Sender<()>>,
}

/// What all who hold a mount see of its session.
#[derive(Debug, Clone, Default)]
pub struct Told {
    /// The server refuses us for ever.
    pub refused: Arc<AtomicBool>,
    /// No file is larger.
    pub max_file_size: Arc<AtomicU64>,
    /// Changes that were lost after they had been answered.
    pub losses: Arc<AtomicU64>,
}

async fn event_of(link: &mut Option<DaemonLink>) -> DaemonEvent {
    match link {
        Some(link) => link.event().await,
        None => std::future::pending().await,
    }
}

async fn found(seek: &mut Option<TaskHandle<crate::Result<Standing>>>) -> crate::Result<Standing> {
    let Some(task) = seek else {
        return std::future::pending().await;
    };
    let done = task.await.unwrap_or(Err(Error::Closed));
    *seek = None;
    done
}

impl Session {
    pub fn new(client: Client, options: Options, asks: mpsc::Receiver<Ask>, told: Told) -> Self {
        Self {
            client,
            fs: options.fs.clone(),
            options,
            asks,
            state: State::Seeking,
            link: None,
            seek: None,
            seek_at: Duration::ZERO,
            server: None,
            standing: None,
            back: Back::default(),
            since: Duration::ZERO,
            heard: Duration::ZERO,
            renew_at: Duration::ZERO,
            renewals: 0,
            pushed: 0,
            pending: BTreeMap::new(),
            last_tid: 0,
            earlies: 0,
            unsafes: 0,
            losses: Losses::default(),
            syncs: Vec::new(),
            hurry_at: Duration::ZERO,
            commands: BTreeMap::new(),
            held: HashMap::new(),
            owing: HashSet::new(),
            tell_at: Duration::ZERO,
            releases: Vec::new(),
            refused: None,
            told,
            closers: Vec::new(),
        }
    }

    /// Until it was closed, or nobody is left who could ask.
    pub async fn run(mut self) {
        loop {
            let tick = io::task::sleep(SEEK_EVERY);
            tokio::select! {
                biased;
                event = event_of(&mut self.link) => self.heard(event),
                standing = found(&mut self.seek) => self.stands(standing),
                ask = self.asks.recv() => match ask {
                    Some(ask) => self.ask(ask),
                    None if self.state == State::Closing => {}
                    None => self.close(),
                },
                () = tick => {}
            }
            self.timers();
            self.give_back();
            if self.state == State::Closing && self.link.is_none() {
                break;
            }
        }
        self.fail_all(&Error::Closed);
        for closer in self.closers.drain(..) {
            let _ = closer.send(());
        }
    }

    fn now(&self) -> Duration {
        self.client.platform().clock.monotonic()
    }

    fn wall(&self) -> Utime {
        Utime::from_unix(self.client.platform().clock.wall())
    }

    // What is asked

    fn ask(&mut self, ask: Ask) {
        match ask {
            Ask::Request { request, hold, reply } => self.begin(request, hold, reply),
            Ask::Lock { request, open, reply } => self.begin_lock(request, &open, reply),
            Ask::Grow { ino, size } => self.grow(ino, size),
            Ask::Settle { ino } => self.settle(ino),
            Ask::Flush { ino, open, reply } => self.flush(ino, &open, reply),
            Ask::Sync { ino, since, reply } => self.sync(ino, since, reply),
            Ask::LetGo { ino } => self.let_go(ino),
            Ask::Command { cmd, reply } => self.command(cmd, reply),
            Ask::Close(done) => {
                self.closers.push(done);
                self.close();
            }
        }
    }

    fn command(&mut self, cmd: String, reply: oneshot::Sender<crate::Result<Bytes>>) {
        self.commands.retain(|_, c| !c.is_closed());
        if self.state != State::Open || self.commands.len() >= COMMANDS_MAX {
            let _ = reply.send(Err(Error::Busy));
            return;
        }
        self.last_tid += 1;
        self.commands.insert(self.last_tid, reply);
        let fsid = self.client.fsid().unwrap_or(types::Uuid::from_random([0; 16]));
        let body = MCommand {
            tid: self.last_tid,
            fsid,
            cmd: vec![cmd.into()],
            input: Bytes::new(),
        };
        self.send(body.to_message());
    }

    fn send(&self, message: Message) {
        if let Some(link) = &self.link {
            link.send(message);
        }
    }

    // Finding the server

    fn timers(&mut self) {
        let now = self.now();
        match self.state {
            // An idle mount looks when it is needed, or when its session is to be kept.
            State::Seeking
                if self.seek.is_none()
                    && now >= self.seek_at
                    && (self.server.is_some() || !self.pending.is_empty()) =>
            {
                self.look();
            }
            State::Reconnecting
                if self.looks_whether_it_waits() && self.seek.is_none() && now >= self.seek_at =>
            {
                self.look();
            }
            State::Reconnecting if self.back.said => {}
            State::Opening | State::Reconnecting | State::Rejoining if now > self.since + OPEN_MAX => {
                self.broke("the server does not answer");
            }
            State::Closing if now > self.since + CLOSE_MAX => self.link = None,
            State::Open if now > self.heard + SILENT_MAX => self.broke("the server is silent"),
            State::Open if now >= self.renew_at => self.renew(),
            _ => {}
        }
        self.end_late();
        self.hurry_old();
        self.tell_old();
        self.settle_all();
    }

    /// Asks the monitor for the server.
    fn look(&mut self) {
        let (client, fs) = (self.client.clone(), self.fs.clone());
        self.seek = Some(io::task::spawn_local(async move {
            let asked = standing(&client, &fs);
            let found = io::task::timeout(OPEN_MAX, asked).await;
            found.unwrap_or(Err(Error::TimedOut))
        }));
    }

    fn renew(&mut self) {
        self.renewals += 1;
        let own = self.options.session_timeout.map(|t| t / 3);
        self.renew_at = self.now() + own.unwrap_or(RENEW_EVERY).min(RENEW_EVERY);
        self.send(MClientSession::short(session_op::REQUEST_RENEWCAPS, self.renewals).message(0));
    }

    fn broke(&mut self, why: &str) {
        self.link = None;
        for reply in std::mem::take(&mut self.commands).into_values() {
            let _ = reply.send(Err(Error::refused(Errno::EIO.code(), why)));
        }
        if self.state == State::Closing || self.state == State::Refused {
            return;
        }
        tracing::debug!("file system {}: {why}", self.fs);
        if self.is_forgotten() {
            self.lost();
        }
        self.state = State::Seeking;
        // What is being asked may be told of the time before.
        self.seek = None;
        self.seek_at = self.now() + SEEK_EVERY;
    }

    fn stands(&mut self, found: crate::Result<Standing>) {
        if self.state == State::Reconnecting {
            return self.still_waits(found);
        }
        if self.state != State::Seeking {
            return;
        }
        self.seek_at = self.now() + SEEK_EVERY;
        let found = match found {
            Ok(found) => found,
            Err(e) if e.is_not_found() => {
                self.lost();
                return self.fail_all(&e);
            }
            Err(Error::Closed) => return self.refuse(Error::Closed),
            Err(e) => return tracing::debug!("file system {}: {e}", self.fs),
        };
        if found.ranks > 1 {
            return self.refuse(Error::Unsupported("file systems with several active ranks"));
        }
        let next = match (self.server, found.stage) {
            (Some(gid), _) if gid == found.gid => State::Rejoining,
            (Some(_), Stage::Reconnect) => State::Reconnecting,
            (Some(_), Stage::Away) | (None, Stage::Away | Stage::Reconnect | Stage::Rejoin) => return,
            (Some(_), Stage::Rejoin | Stage::Active) => {
                self.lost();
                return;
            }
            (None, Stage::Active) => State::Opening,
        };
        let Some(addr) = found.addr else { return };
        match self.client.dial_daemon(EntityKind::Mds, addr) {
            Ok(link) => self.link = Some(link),
            Err(e) => return self.refuse(e),
        }
        self.state = next;
        self.back = Back::default();
        self.since = self.now();
        let bound = &self.told.max_file_size;
        bound.store(found.max_file_size, Ordering::Relaxed);
        self.standing = Some(found);
    }

    fn refuse(&mut self, why: Error) {
        self.link = None;
        self.state = State::Refused;
        self.lost();
        self.fail_all(&why);
        self.refused = Some(why);
        self.told.refused.store(true, Ordering::Release);
    }

    /// What had been sent and changes something may have taken effect, or not. Locks are of the session, and so is who waits for one.
    fn lost(&mut self) {
        if self.server.take().is_none() {
            return;
        }
        let locked = self.held.values().filter(|h| !h.locks.is_empty()).count();
        tracing::warn!(
            "file system {}: the session with the metadata server was lost, with {} open files, {locked} of them with locks",
            self.fs,
            self.held.len()
        );
        self.pushed = 0;
        self.releases.clear();
        let why = || Error::invalid(Errno::ESTALE, "the session with the metadata server was lost");
        self.owing.clear();
        self.held.drain().for_each(|(_, h)| h.lose(&why()));
        let writes = |p: &Pending| p.request.op & WRITES != 0 || p.early.is_some();
        let sent = |p: &Pending| p.sent && writes(p) || p.request.op == op::SETFILELOCK;
        let tids: Vec<u64> = self
            .pending
            .iter()
            .filter(|(_, p)| sent(p))
            .map(|(t, _)| *t)
            .collect();
        for tid in tids {
            self.finish(tid, Err(why()));
        }
    }

    fn fail_all(&mut self, why: &Error) {
        let tids: Vec<u64> = self.pending.keys().copied().collect();
        for tid in tids {
            self.finish(tid, Err(why.clone()));
        }
        self.owing.clear();
        self.held.drain().for_each(|(_, h)| h.lose(why));
    }

    fn close(&mut self) {
        let open = self.state == State::Open;
        if open {
            self.tell_all();
        }
        self.state = State::Closing;
        self.since = self.now();
        if open {
            self.give_back();
            self.send(MClientSession::short(session_op::REQUEST_CLOSE, self.pushed).message(0));
        } else {
            self.link = None;
        }
    }

    // What is heard

    fn heard(&mut self, event: DaemonEvent) {
        self.heard = self.now();
        match event {
            DaemonEvent::Ready => self.ready(),
            DaemonEvent::Ended(why) => self.broke(&why),
            DaemonEvent::Message(m) => {
                if let Err(e) = self.message(&m) {
                    tracing::warn!("file system {}: message {:#x}: {e}", self.fs, m.kind);
                    self.broke("a message that cannot be read");
                }
            }
        }
    }

    fn ready(&mut self) {
        self.back.said = true;
        match self.state {
            State::Opening => {
                let mut m = MClientSession::long(session_op::REQUEST_OPEN, Features::of(FEATURES));
                m.metrics = Features::of(0);
                m.metadata.insert("root".into(), self.options.root.clone());
                if let Some(t) = self.options.session_timeout {
                    m.metadata.insert("timeout".into(), t.as_secs().to_string());
                }
                m.metadata
                    .insert("entity_id".into(), self.client.global_id().to_string());
                self.send(m.message(0));
            }
            State::Reconnecting => {
                self.replay();
                let m = MClientReconnect {
                    caps: self.records(),
                    ..MClientReconnect::default()
                };
                self.send(m.message(0));
            }
            // The same server: it answers, or ends the connection of whom it does not know.
            State::Rejoining => self.renew(),
            _ => {}
        }
    }

    /// What an earlier server has carried out, and may not have kept.
    fn replay(&mut self) {
        let early = |(tid, p): (&u64, &Pending)| Some((p.early.as_ref()?.order, *tid));
        let mut tids: Vec<(u64, u64)> = self.pending.iter().filter_map(early).collect();
        tids.sort_unstable();
        for (_, tid) in tids {
            self.send_request(tid, true);
        }
    }

    /// All that is under way, in order, and was not said before.
    fn opened(&mut self, another: bool) {
        let said = self.state == State::Reconnecting;
        if another {
            self.pushed = 0;
        }
        self.server = self.standing.as_ref().map(|s| s.gid);
        self.state = State::Open;
        self.renew();
        let rest = self.pending.iter().filter(|(_, p)| !(said && p.early.is_some()));
        let tids: Vec<u64> = rest.map(|(tid, _)| *tid).collect();
        for tid in tids {
            self.send_request(tid, another);
        }
        self.send_flushes();
        if !another {
            self.look_again();
        }
    }

    /// What the same server has said on a connection that broke is lost: asked once more, it says what is held now.
    fn look_again(&mut self) {
        let inos: Vec<u64> = self.held.keys().copied().collect();
        for ino in inos {
            let request = Box::new(MClientRequest {
                op: op::GETATTR,
                path: FilePath::new(ino, Bytes::new()),
                args: Args::words(&[cap::PIN]),
                ..MClientRequest::default()
            });
            self.begin(request, None, oneshot::channel().0);
        }
    }

    fn message(&mut self, m: &Message) -> denc::Result<()> {
        if matches!(
            m.kind,
            MClientCaps::KIND | MClientLease::KIND | MClientSnap::KIND | MClientQuota::KIND
        ) {
            self.pushed += 1;
        }
        match m.kind {
            MClientSession::KIND => self.session(&MClientSession::from_message(m)?),
            MClientReply::KIND => self.reply(m.tid, MClientReply::from_message(m)?)?,
            MClientLease::KIND => self.lease(&MClientLease::from_message(m)?),
            MClientCaps::KIND => self.caps(m.tid, &MClientCaps::from_message(m)?),
            MClientSnap::KIND => self.snaps_changed(),
            kind::COMMAND_REPLY => self.command_reply(m)?,
            FORWARD => {
                self.finish(m.tid, Err(Error::Unsupported("several active ranks")));
            }
            _ => {}
        }
        if self.state == State::Closing && m.kind != MClientSession::KIND {
            self.send(MClientSession::short(session_op::REQUEST_CLOSE, self.pushed).message(0));
        }
        Ok(())
    }

    /// Names are not trusted for longer than an answer; whoever wants to change one waits for our word all the same.
    fn lease(&mut self, m: &MClientLease) {
        if m.action == lease_action::REVOKE {
            let release = MClientLease {
                action: lease_action::RELEASE,
                ..m.clone()
            };
            self.send(release.message(0));
        }
    }

    fn command_reply(&mut self, m: &Message) -> denc::Result<()> {
        let Some(reply) = self.commands.remove(&m.tid) else {
            return Ok(());
        };
        let said = MCommandReply::from_message(m)?;
        let _ = reply.send(match said.result {
            code if code < 0 => Err(Error::refused(code, String::from_utf8_lossy(&said.status))),
            _ => Ok(said.output),
        });
        Ok(())
    }

    fn session(&mut self, m: &MClientSession) {
        match (m.op, self.state) {
            (session_op::OPEN, State::Opening) => self.opened(true),
            (session_op::OPEN, State::Reconnecting) => self.opened(true),
            (session_op::RENEWCAPS, State::Rejoining) => self.opened(false),
            (session_op::FLUSHMSG, _) => {
                self.send(MClientSession::short(session_op::FLUSHMSG_ACK, m.seq).message(0));
            }
            (session_op::STALE, State::Open) => self.renew(),
            (session_op::CLOSE, State::Closing) => self.link = None,
            (session_op::CLOSE, _) => {
                self.lost();
                self.broke("the server has closed the session");
            }
            (session_op::REJECT, _) => {
                let why = m.metadata.get("error_string").cloned().unwrap_or_default();
                self.refuse(Error::refused(Errno::EPERM.code(), why));
            }
            _ => {}
        }
    }

    fn reply(&mut self, tid: u64, mut reply: MClientReply) -> denc::Result<()> {
        if let (Some(p), Some(t), 0) = (
            self.pending.get_mut(&tid),
            reply.trace.target.as_deref(),
            reply.result,
        ) && let Some(by) = p.hold.take()
        {
            let open = self.hold(t, by, crate::mount::snaps_of(&reply).ok());
            if let Some(p) = self.pending.get_mut(&tid) {
                p.open = Some((t.ino, by, open));
            }
        }
        for (ino, c, size) in seen(&reply)? {
            self.shown(ino, c, size);
        }
        if let Some(t) = reply.trace.target.as_deref_mut()
            && let Some(h) = self.held.get(&t.ino)
            && t.snapid == types::NOSNAP
        {
            h.open.borrow().complete(t);
        }
        let Some(p) = self.pending.get_mut(&tid) else {
            return Ok(());
        };
        if !reply.safe {
            self.hear_early(tid, reply);
            return Ok(());
        }
        let early = p.early.as_mut().and_then(|e| e.reply.take());
        self.hear_lock(tid, reply.result);
        if let (Some(early), true) = (early, reply.trace.target.is_none()) {
            (reply.trace, reply.extra, reply.snap) = (early.trace, early.extra, early.snap);
        }
        self.finish(tid, Ok(reply));
        Ok(())
    }
}

impl Session {
    /// It was told, and waits for others: the monitor knows whether it still does.
    fn looks_whether_it_waits(&self) -> bool {
        self.state == State::Reconnecting && self.back.said && self.now() > self.since + OPEN_MAX
    }

    fn still_waits(&mut self, found: crate::Result<Standing>) {
        let gid = self.standing.as_ref().map(|s| s.gid);
        match found {
            Ok(found) if self.back.waits_on(gid, &found) => self.since = self.now(),
            Ok(_) => self.broke("the server does not answer"),
            Err(Error::Closed) => self.refuse(Error::Closed),
            Err(e) if e.is_not_found() => {
                self.lost();
                self.broke("the file system is gone");
            }
            // The monitor is away: nobody knows more.
            Err(e) => {
                self.seek_at = self.now() + SEEK_EVERY;
                tracing::debug!("file system {}: {e}", self.fs);
            }
        }
    }

    /// A connection to the server with which there is a session came to nothing. One that was told that we are there, and neither answers
    /// nor stays, knows nothing of us any more; one that was never reached may know us, and so may the one that takes its place.
    fn is_forgotten(&self) -> bool {
        self.state == State::Rejoining && self.back.said
    }
}

/// An inode, its capability, and its size with its truncations.
type Seen = (u64, CapStat, (u64, u32, u64));

/// The inodes that an answer shows with a capability, and their sizes.
fn seen(reply: &MClientReply) -> denc::Result<Vec<Seen>> {
    let mut all = Vec::new();
    let mut note = |s: &InodeStat| {
        // What is in a snapshot is held by nobody.
        if s.cap.caps != 0 && s.snapid == types::NOSNAP {
            all.push((s.ino, s.cap, (s.size, s.truncate_seq, s.truncate_size)));
        }
    };
    if let Some(d) = &reply.trace.dentry {
        note(&d.dir);
    }
    if let Some(t) = &reply.trace.target {
        note(t);
    }
    if reply.op == op::READDIR && reply.result == 0 && !reply.extra.is_empty() {
        let page = crate::page::Page::parse(&reply.extra)?;
        page.entries.iter().for_each(|e| note(&e.stat));
    }
    Ok(all)
}
