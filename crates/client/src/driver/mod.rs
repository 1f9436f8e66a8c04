//! Runs the machine over sockets: a thread with connections and timers, and handles by which any number of tasks, on any
//! threads, ask it.
//!
//! A future that is dropped cancels what it asked for: nothing is sent any more, but what was sent may still take effect.
//!
//! Invariants: what users submit waits before the thread's queue until there is room ([`crate::core::Limits`]), first come, first
//! served; so the queue is bounded by the limits, too. Watches' acknowledgements have room of their own, since others may
//! wait for them.

mod daemon;
mod ioctx;
mod link;
mod lister;
mod run;
mod watching;

pub use daemon::{DaemonEvent, DaemonLink};
pub use ioctx::IoCtx;
pub use lister::Lister;
pub use watching::Watch;

use crate::conf::Conf;
use crate::core::command::{Command as DaemonCommand, Target};
use crate::core::mon::{Credentials, Question};
use crate::core::{Answer, Event, OpId, WatchId};
use crate::core::{mon, op::Operation, watch::WatchEvent};
use crate::{Error, Result};
use auth::{CephxClient, NoneClient};
use bytes::Bytes;
use io::task::Beside;
use io::{Clock, Random, SystemClock, SystemRandom};
use messages::mon::{MGetPoolStatsReply, MStatfsReply, PoolOpKind};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use types::osdmap::OsdMap;
use types::{Errno, PoolId, Uuid};

/// Acknowledgements, watches made and ended, under way at once.
const CONTROLS_MAX: usize = 256;
/// Questions to monitors under way at once.
const QUESTIONS_MAX: usize = mon::QUESTIONS_MAX / 2;

/// Where clock and randomness come from.
#[derive(Clone)]
pub struct Platform {
    pub clock: Arc<dyn Clock>,
    pub random: Arc<dyn Random>,
}

impl Platform {
    pub fn system() -> Self {
        Self {
            clock: SystemClock::shared(),
            random: SystemRandom::shared(),
        }
    }
}

impl fmt::Debug for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Platform")
    }
}

/// What the thread is told.
enum Command {
    Ask {
        id: OpId,
        event: Box<Event>,
        reply: oneshot::Sender<Result<Answer>>,
        /// Held until it is over.
        room: Room,
        /// Of a watch: where its events go.
        events: Option<mpsc::Sender<WatchEvent>>,
    },
    Cancel(OpId),
    Unwatch(WatchId),
    /// How long ago a watch was known to be good.
    Confirmed(WatchId, oneshot::Sender<Option<Duration>>),
    /// A connection whose messages are another's matter.
    Daemon(daemon::Order),
    Stop(oneshot::Sender<()>),
}

/// Room that is given back when this is dropped.
#[derive(Debug, Default)]
struct Room(#[allow(dead_code)] Vec<OwnedSemaphorePermit>);

/// What is known to all.
#[derive(Debug, Clone, Default)]
struct View {
    map: Option<Arc<OsdMap>>,
    denied: Option<String>,
    global_id: u64,
}

struct Inner {
    commands: mpsc::UnboundedSender<Command>,
    view: watch::Receiver<View>,
    ops: Arc<Semaphore>,
    bytes: Arc<Semaphore>,
    bytes_max: usize,
    controls: Arc<Semaphore>,
    questions: Arc<Semaphore>,
    last_id: AtomicU64,
    /// Operations that read, and that write.
    submitted: [AtomicU64; 2],
    op_timeout: Option<Duration>,
    mon_timeout: Option<Duration>,
    nonce: u32,
    platform: Platform,
    thread: Mutex<Option<Beside>>,
}

/// A connection to a cluster. Clones are the same client; it ends with the last of them.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "client.{}", self.global_id())
    }
}

/// What a monitor or a daemon said to a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandOutput {
    pub status: String,
    pub output: Bytes,
}

impl Client {
    /// Finds a monitor, proves who it is, and has the maps.
    pub async fn connect(conf: Conf) -> Result<Self> {
        Self::connect_with(conf, Platform::system()).await
    }

    pub async fn connect_with(conf: Conf, platform: Platform) -> Result<Self> {
        if conf.mons.is_empty() {
            return Err(Error::Conf("no monitors".into()));
        }
        let credentials = match &conf.key {
            Some(key) => Credentials::Cephx(CephxClient::new(conf.name.clone(), key.clone())),
            None => Credentials::None(NoneClient {
                name: conf.name.clone(),
                global_id: 0,
            }),
        };
        let (commands, received) = mpsc::unbounded_channel();
        let (seen, view) = watch::channel(View::default());
        let bytes_max = conf.limits.bytes.min(u32::MAX as usize);
        let nonce = platform.random.u32().max(1);
        let boot = run::Boot {
            nonce,
            conf: conf.clone(),
            credentials,
            platform: platform.clone(),
        };
        let thread = io::task::spawn_beside("client", move || run::run(boot, received, seen))
            .map_err(|e| Error::Conf(format!("no thread for the client: {e}")))?;
        let client = Self {
            inner: Arc::new(Inner {
                commands,
                view,
                ops: Arc::new(Semaphore::new(conf.limits.ops)),
                bytes: Arc::new(Semaphore::new(bytes_max)),
                bytes_max,
                controls: Arc::new(Semaphore::new(CONTROLS_MAX)),
                questions: Arc::new(Semaphore::new(QUESTIONS_MAX)),
                last_id: AtomicU64::new(0),
                submitted: Default::default(),
                op_timeout: conf.op_timeout,
                mon_timeout: conf.mon_timeout,
                nonce,
                platform,
                thread: Mutex::new(Some(thread)),
            }),
        };
        let mut view = client.inner.view.clone();
        let ready = view.wait_for(|v| v.map.is_some() || v.denied.is_some());
        let seen = io::task::timeout(conf.connect_timeout, ready).await;
        let denied = match seen {
            Err(_) => return Err(Error::TimedOut),
            Ok(Err(_)) => return Err(Error::Closed),
            Ok(Ok(v)) => v.map.is_none().then(|| v.denied.clone()).flatten(),
        };
        match denied {
            Some(why) => Err(Error::Auth(why)),
            None => Ok(client),
        }
    }

    /// Where clock and randomness come from, for those who build on this client.
    pub fn platform(&self) -> &Platform {
        &self.inner.platform
    }

    /// Our number among the clients of the cluster.
    pub fn global_id(&self) -> u64 {
        self.inner.view.borrow().global_id
    }

    /// With which all our addresses are told apart from those of other instances: what a blocklist names.
    pub fn nonce(&self) -> u32 {
        self.inner.nonce
    }

    /// Operations on objects that were submitted: those that only read, and those that write.
    pub fn submitted(&self) -> (u64, u64) {
        let [reads, writes] = &self.inner.submitted;
        (reads.load(Ordering::Relaxed), writes.load(Ordering::Relaxed))
    }

    pub(super) fn count(&self, operation: &Operation) {
        let which = usize::from(operation.writes());
        self.inner.submitted[which].fetch_add(1, Ordering::Relaxed);
    }

    /// The present OSD map.
    pub fn map(&self) -> Result<Arc<OsdMap>> {
        self.inner.view.borrow().map.clone().ok_or(Error::Closed)
    }

    pub fn fsid(&self) -> Result<Uuid> {
        Ok(self.map()?.fsid)
    }

    /// A pool by its name. One that was made a moment ago is found, too.
    pub async fn pool(&self, name: &str) -> Result<IoCtx> {
        if let Some(id) = self.map()?.pool_by_name(name) {
            return Ok(IoCtx::new(self.clone(), id));
        }
        self.latest_map().await?;
        let id = self.map()?.pool_by_name(name);
        id.map(|id| IoCtx::new(self.clone(), id))
            .ok_or_else(|| Error::refused(Errno::ENOENT.code(), format!("pool '{name}'")))
    }

    pub fn pool_by_id(&self, id: PoolId) -> IoCtx {
        IoCtx::new(self.clone(), id)
    }

    /// Waits for the newest map: all that was answered before is in it.
    pub async fn latest_map(&self) -> Result<Arc<OsdMap>> {
        let timeout = self.inner.mon_timeout;
        self.question(|id| Event::Latest { id, timeout }).await?;
        self.map()
    }

    async fn question(&self, event: impl FnOnce(OpId) -> Event) -> Result<Answer> {
        let room = self.inner.questions.clone().acquire_owned().await;
        let room = room.map_err(|_| Error::Closed)?;
        self.ask(Room(vec![room]), None, event).await
    }

    async fn ask_mon(&self, question: Question) -> Result<Answer> {
        let timeout = self.inner.mon_timeout;
        self.question(|id| Event::Ask {
            id,
            question,
            timeout,
        })
        .await
    }

    /// A monitor's command, as JSON. What it changed is in the map after [`Self::latest_map`].
    pub async fn mon_command(&self, cmd: &str, input: impl Into<Bytes>) -> Result<CommandOutput> {
        let question = Question::Command {
            cmd: cmd.to_string(),
            input: input.into(),
        };
        command_output(self.ask_mon(question).await?)
    }

    /// Newest and oldest version of a map that the monitors keep. An unknown name is never answered.
    pub async fn version(&self, what: &str) -> Result<(u64, u64)> {
        let what = what.to_string();
        match self.ask_mon(Question::Version { what }).await? {
            Answer::Version { newest, oldest } => Ok((newest, oldest)),
            other => Err(unexpected(&other)),
        }
    }

    /// Usage of the cluster, or as far as it concerns a pool.
    pub async fn statfs(&self, pool: Option<PoolId>) -> Result<MStatfsReply> {
        match self.ask_mon(Question::Statfs { pool }).await? {
            Answer::Statfs(r) => Ok(r),
            other => Err(unexpected(&other)),
        }
    }

    pub async fn pool_stats(&self, pools: Vec<String>) -> Result<MGetPoolStatsReply> {
        match self.ask_mon(Question::PoolStats { pools }).await? {
            Answer::PoolStats(r) => Ok(r),
            other => Err(unexpected(&other)),
        }
    }

    /// Makes a pool with the cluster's defaults; one that exists is as good.
    pub async fn create_pool(&self, name: &str) -> Result<()> {
        self.pool_op(PoolOpKind::Create, 0, name, 0).await.map(drop)
    }

    pub async fn delete_pool(&self, pool: PoolId) -> Result<()> {
        // The name is a word of the protocol.
        self.pool_op(PoolOpKind::Delete, pool, "delete", 0)
            .await
            .map(drop)
    }

    /// `name`, `snap`: as far as the operation takes them. Returns once the map has its effect.
    async fn pool_op(&self, op: PoolOpKind, pool: PoolId, name: &str, snap: u64) -> Result<Option<u64>> {
        let name = name.to_string();
        match self.ask_mon(Question::PoolOp { op, pool, name, snap }).await? {
            Answer::PoolOp { snap } => Ok(snap),
            other => Err(unexpected(&other)),
        }
    }

    /// A command to a daemon, as JSON; it may be carried out more than once if connections break. The time that it may take is an
    /// operation's, or that of a question to a monitor for those to the manager.
    pub async fn command(&self, to: Target, cmd: &str, input: impl Into<Bytes>) -> Result<CommandOutput> {
        let timeout = match to {
            Target::Osd(_) | Target::Pg(_) => self.inner.op_timeout,
            Target::Mgr | Target::MgrModules => self.inner.mon_timeout,
        };
        let command = DaemonCommand {
            to,
            cmd: cmd.to_string(),
            input: input.into(),
            timeout,
        };
        let room = self.room(command.cost()).await?;
        let told = self.ask(room, None, |id| Event::Command { id, command });
        command_output(told.await?)
    }

    /// Ends watches, then all connections. Whoever waits for something is told [`Error::Closed`].
    pub async fn shutdown(&self) {
        let (done, ended) = oneshot::channel();
        if self.inner.commands.send(Command::Stop(done)).is_ok() {
            let _ = ended.await;
        }
        let thread = self
            .inner
            .thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        // It has said its last word: it ends at once.
        if let Some(thread) = thread {
            thread.join();
        }
    }

    /// Waits for room for an operation of `cost` bytes.
    async fn room(&self, cost: usize) -> Result<Room> {
        let n = cost.min(self.inner.bytes_max) as u32;
        let closed = |_| Error::Closed;
        let op = self.inner.ops.clone().acquire_owned().await.map_err(closed)?;
        let bytes = self
            .inner
            .bytes
            .clone()
            .acquire_many_owned(n)
            .await
            .map_err(closed)?;
        Ok(Room(vec![op, bytes]))
    }

    async fn control_room(&self) -> Result<Room> {
        let room = self.inner.controls.clone().acquire_owned().await;
        Ok(Room(vec![room.map_err(|_| Error::Closed)?]))
    }

    /// Hands it to the thread and waits. Dropped: cancelled.
    async fn ask(
        &self,
        room: Room,
        events: Option<mpsc::Sender<WatchEvent>>,
        event: impl FnOnce(OpId) -> Event,
    ) -> Result<Answer> {
        let id = OpId(self.inner.last_id.fetch_add(1, Ordering::Relaxed) + 1);
        let (reply, told) = oneshot::channel();
        let command = Command::Ask {
            id,
            event: Box::new(event(id)),
            reply,
            room,
            events,
        };
        self.inner.commands.send(command).map_err(|_| Error::Closed)?;
        let mut guard = CancelOnDrop {
            inner: &self.inner,
            id: Some(id),
        };
        let told = told.await;
        guard.id = None;
        told.unwrap_or(Err(Error::Closed))
    }
}

fn command_output(answer: Answer) -> Result<CommandOutput> {
    match answer {
        Answer::Command { code, status, .. } if code < 0 => Err(Error::refused(code, status)),
        Answer::Command { status, output, .. } => Ok(CommandOutput { status, output }),
        other => Err(unexpected(&other)),
    }
}

fn unexpected(answer: &Answer) -> Error {
    Error::Malformed(format!("an answer to something else: {answer:?}"))
}

struct CancelOnDrop<'a> {
    inner: &'a Inner,
    id: Option<OpId>,
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            // Without the thread there is nothing to cancel.
            let _ = self.inner.commands.send(Command::Cancel(id));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn send<T: Send>(_: T) {}

    /// Gateways run their tasks on several threads.
    #[allow(dead_code)]
    fn what_is_asked_can_be_awaited_on_any_thread(client: &Client, io: &IoCtx, conf: Conf) {
        send(Client::connect(conf));
        send(client.mon_command("", ""));
        send(client.command(Target::Mgr, "", ""));
        send(client.pool("p"));
        send(io.read("a", 0, 0));
        send(io.watch("a", None));
        send(io.list().collect());
    }
}
