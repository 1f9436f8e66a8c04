//! Roles under supervision, from outside their threads: one that fails is started again, later and later.
//!
//! A run fails by an error (an OSD stops itself when a flush fails or its store is damaged) or by a panic in any of its
//! threads. It is started again when all of its threads have ended, so its locks, ports and files are free: an OSD goes on
//! from its log, as after a power cut; what it had not acknowledged is sent again by the clients.
//!
//! Vocabulary: a role is *gone* when it failed to start [`GIVE_UP`] times in a row. It is tried again all the same, but what
//! serves without it may decide that nothing is left to serve ([`Board::verdict`]).

use crate::Error;
use crate::kinds::Kind;
use crate::role::Role;
use cluster::{Change, Changes, ClusterState, crashes};
use io::group::{Group, Panic};
use io::{Clock, Random, log, task};
use metastore::ClusterHandle;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use types::clusterlog::LogLevel;

/// First wait before a restart, doubled for each failure in a row up to the longest: what made it fail may be over, and the
/// cluster waits for its copies.
const RESTART_AFTER: Duration = Duration::from_secs(1);
const RESTART_AFTER_MAX: Duration = Duration::from_secs(10);
/// A role that ran this long has recovered: its next failure counts as the first.
const STEADY: Duration = Duration::from_secs(60);
/// Starts that fail in a row until a role counts as gone: after some 25 s.
pub(crate) const GIVE_UP: u32 = 6;
/// Threads that go on so long after a panic are spoken of, again and again.
const ENDS_WITHIN: Duration = Duration::from_secs(10);
/// Telling the cluster of a failure may take so long; leases end by themselves.
const TELL_MAX: Duration = Duration::from_secs(5);
/// A backtrace may take so long until it is written.
const TRACE_MAX: Duration = Duration::from_secs(5);
/// Of what went wrong, in the cluster's log.
const WHY_CHARS_MAX: usize = 300;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Starting,
    Serving,
    /// It failed, and will be started again.
    Waiting,
    /// It stopped as it was told.
    Stopped,
    /// Its very first start failed: it is not tried again.
    Refused,
}

impl Phase {
    pub fn name(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Serving => "serving",
            Self::Waiting => "waiting for its restart",
            Self::Stopped => "stopped",
            Self::Refused => "not started",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Health {
    pub kind: &'static str,
    pub phase: Phase,
    /// Starts after the first.
    pub restarts: u64,
    /// Starts in a row that failed.
    pub failed_starts: u32,
    /// Why the last run failed.
    pub last: Option<String>,
}

impl Health {
    fn is_gone(&self) -> bool {
        self.phase != Phase::Serving && self.failed_starts >= GIVE_UP
    }
}

/// How all roles of the node are, by name.
#[derive(Debug, Clone, Default)]
pub(crate) struct Board(Arc<watch::Sender<BTreeMap<String, Health>>>);

impl Board {
    fn enter(&self, name: &str, kind: &'static str) {
        let health = Health {
            kind,
            phase: Phase::Starting,
            restarts: 0,
            failed_starts: 0,
            last: None,
        };
        self.0
            .send_modify(|all| drop(all.insert(name.to_owned(), health)));
    }

    fn note(&self, name: &str, change: impl FnOnce(&mut Health)) {
        self.0.send_modify(|all| {
            if let Some(health) = all.get_mut(name) {
                change(health);
            }
        });
    }

    pub fn all(&self) -> BTreeMap<String, Health> {
        self.0.borrow().clone()
    }

    /// Completes when the role serves, or its first start has failed.
    pub async fn started(&self, name: &str) -> Result<(), String> {
        let mut news = self.0.subscribe();
        let over = |all: &BTreeMap<String, Health>| all.get(name).is_none_or(|h| h.phase != Phase::Starting);
        // The sender is ours.
        let all = news.wait_for(over).await;
        match all.as_ref().ok().and_then(|all| all.get(name)) {
            Some(h) if h.phase == Phase::Refused => Err(h.last.clone().unwrap_or_default()),
            _ => Ok(()),
        }
    }

    /// Completes when nothing is left to serve: with a sentence where that was wanted, else with an error.
    pub async fn verdict(&self, kinds: &[Kind]) -> Result<&'static str, Error> {
        let mut news = self.0.subscribe();
        loop {
            let found = kinds
                .iter()
                .find_map(|kind| verdict_of(kind, &news.borrow_and_update()));
            match found {
                Some(verdict) => return verdict,
                // The sender is ours.
                None => drop(news.changed().await),
            }
        }
    }
}

/// What it means that the roles of this kind are as they are, if it is the end of the node.
fn verdict_of(kind: &Kind, all: &BTreeMap<String, Health>) -> Option<Result<&'static str, Error>> {
    let of_kind = || all.iter().filter(|(_, h)| h.kind == kind.name);
    let is_over = |h: &Health| h.phase == Phase::Stopped || h.is_gone();
    if of_kind().count() == 0 || !of_kind().all(|(_, h)| is_over(h)) {
        return None;
    }
    let Some((name, gone)) = of_kind().find(|(_, h)| h.is_gone()) else {
        return Some(Ok(kind.stopped));
    };
    Some(Err(Error::NothingLeft {
        what: kind.all,
        name: name.clone(),
        starts: gone.failed_starts,
        why: gone.last.clone().unwrap_or_default(),
    }))
}

/// What supervision needs of the node.
#[derive(Clone)]
pub(crate) struct Care {
    pub cluster: ClusterHandle,
    pub clock: Arc<dyn Clock>,
    /// Turns true when the node stops.
    pub stopped: watch::Receiver<bool>,
    pub board: Board,
    /// For reports of crashes.
    pub hostname: String,
    pub random: Arc<dyn Random>,
}

/// How a run failed.
struct Failure {
    why: String,
    /// Of the panic that ended it.
    panic: Option<(Panic, Vec<String>)>,
}

impl From<String> for Failure {
    fn from(why: String) -> Self {
        Self { why, panic: None }
    }
}

/// A role that is looked after until it has stopped.
pub(crate) struct Supervised {
    pub name: String,
    task: task::TaskHandle<()>,
}

impl Supervised {
    /// Completes when it has stopped: it was told to, or its first start failed.
    pub async fn ended(self) {
        // A panic of supervision itself ends the node anyway.
        let _ = self.task.await;
    }
}

/// Starts the role, and starts it again whenever it fails.
pub(crate) fn run(role: Box<dyn Role>, kind: &'static str, care: Care) -> Supervised {
    let name = role.name().to_owned();
    care.board.enter(&name, kind);
    let task = task::spawn_local(keep_running(role, care));
    Supervised { name, task }
}

async fn keep_running(role: Box<dyn Role>, care: Care) {
    let name = role.name();
    let mut stop = role.stop(&care.stopped);
    let mut pause = RESTART_AFTER;
    loop {
        let began = care.clock.monotonic();
        let Err(Failure { why, panic }) = run_once(&*role, stop.clone(), &care.board).await else {
            return care.board.note(name, |h| h.phase = Phase::Stopped);
        };
        let Some(health) = care.board.all().remove(name) else {
            return;
        };
        if health.phase == Phase::Starting && health.restarts == 0 {
            // Whoever starts the node decides.
            return care.board.note(name, |h| {
                (h.phase, h.last) = (Phase::Refused, Some(why));
            });
        }
        if care.clock.monotonic().saturating_sub(began) > STEADY {
            pause = RESTART_AFTER;
        }
        tracing::error!("{name}: {why}; starting it again in {} s", pause.as_secs());
        care.board.note(name, |h| {
            h.failed_starts += u32::from(h.phase == Phase::Starting);
            (h.phase, h.last) = (Phase::Waiting, Some(why.clone()));
        });
        let told = async {
            role.failed().await;
            write_down(name, &why, panic.as_ref(), &care).await;
        };
        tokio::select! {
            _ = stop.wait_for(|s| *s) => {}
            () = async {
                let _ = task::timeout(TELL_MAX, told).await;
                task::sleep(pause).await;
            } => {}
        }
        if *stop.borrow() {
            return care.board.note(name, |h| h.phase = Phase::Stopped);
        }
        pause = (pause * 2).min(RESTART_AFTER_MAX);
        care.board.note(name, |h| {
            h.restarts += 1;
            h.phase = Phase::Starting;
        });
    }
}

/// One run, until none of its threads is left.
async fn run_once(role: &dyn Role, stop: watch::Receiver<bool>, board: &Board) -> Result<(), Failure> {
    let group = Group::new(role.name());
    let (ready, serves) = oneshot::channel();
    let main = role
        .start(&group, ready, stop)
        .map_err(|e| format!("its thread cannot be started: {e}"))?;
    let serve = async {
        if serves.await.is_ok() {
            board.note(role.name(), |h| (h.phase, h.failed_starts) = (Phase::Serving, 0));
        }
        speak_of_stuck(&group).await;
    };
    tokio::select! {
        // In this order: one that fell as soon as it served has served.
        biased;
        () = serve => {}
        () = group.ended() => {}
    }
    // Its last act was to leave the group.
    let done = main.join();
    match (group.panic(), done) {
        (Some(panic), _) => {
            let _ = task::timeout(TRACE_MAX, group.has_spoken()).await;
            Err(Failure {
                why: panic.to_string(),
                panic: Some((panic, group.trace())),
            })
        }
        (None, Some(done)) => done.map_err(Failure::from),
        (None, None) => Err("it ended without a word".to_string().into()),
    }
}

/// Never completes: says of a group whose threads go on after a panic that it does not end.
async fn speak_of_stuck(group: &Group) {
    let panic = group.panicked().await;
    loop {
        task::sleep(ENDS_WITHIN).await;
        tracing::error!(
            "{}: waits for its other threads to end since {panic}",
            group.name()
        );
    }
}

/// In the cluster's log, where operators look; and as a crash, if it was a panic.
async fn write_down(name: &str, why: &str, panic: Option<&(Panic, Vec<String>)>, care: &Care) {
    let cluster = &care.cluster;
    let why: String = log::one_line(why).chars().take(WHY_CHARS_MAX).collect();
    let text = format!("{name} failed and is started again: {why}");
    let now = cluster.now();
    let mut id = [0; 16];
    care.random.fill(&mut id);
    let line = |state: &ClusterState| {
        let entry = state.log_entry(now, LogLevel::Error, text.clone());
        let mut changes = Changes::one(Change::Log(entry));
        if let Some((panic, trace)) = panic {
            let crash = crashes::Crash {
                entity: name,
                thread: &panic.thread,
                what: &panic.what,
                place: &panic.place,
                backtrace: trace,
                hostname: &care.hostname,
            };
            changes.list.extend(crashes::report(state, &crash, now, id));
        }
        (changes, ())
    };
    if let Err(e) = cluster.commit(line).await {
        tracing::warn!("the cluster log did not take that {name} failed: {e}");
    }
}

#[cfg(test)]
mod tests;
