//! Changes that sessions ask for: carried out beside the monitor's loop, one after the other, so that everybody else is
//! answered while the cluster state makes them wait.
//!
//! Invariants: changes are carried out in the order in which they came. A session's request behind one of its own that
//! waits here waits here, too, even if it only reads: what a session asks is done and answered in its order. One that was
//! begun goes to its end, whatever its session hears meanwhile.
//!
//! Bounds: [`WAITING_MAX`] requests wait, and each is answered within [`ANSWER_MAX`]: what was not begun by then is not
//! done; of what was, nobody can say more than that it may still happen.
//!
//! Not here: what is decided (`requests`), what a commit is (`metastore`).

use crate::commands::context::{MonInfo, SessionInfo};
use crate::policies::progress::Progress;
use crate::shell::requests::{Env, Reply, Request};
use crate::shell::session::SessionId;
use cluster::ClusterStats;
use io::Random;
use metastore::{ClusterHandle, Committed};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use types::{Errno, Utime};

/// Each holds one request of a client.
pub const WAITING_MAX: usize = 64;
/// Longer than what an election of etcd's leader takes, shorter than what people wait in silence.
pub const ANSWER_MAX: Duration = Duration::from_secs(30);

/// What a decision is lent, kept for as long as it may be made again.
pub struct OwnEnv {
    pub now: Utime,
    pub random: Arc<dyn Random>,
    pub info: MonInfo,
    pub progress: Progress,
    pub stats: Arc<ClusterStats>,
    pub sessions: Vec<SessionInfo>,
}

impl OwnEnv {
    pub fn lend(&self) -> Env<'_> {
        Env {
            now: self.now,
            random: &*self.random,
            info: &self.info,
            progress: &self.progress,
            stats: &self.stats,
            sessions: &self.sessions,
        }
    }
}

pub type Outcome = Result<Committed<Reply>, metastore::Error>;

/// A request, and who asked by which route.
#[derive(Debug)]
pub struct Asked<P> {
    pub port: P,
    pub session: SessionId,
    pub request: Request,
    since: Duration,
}

#[derive(Debug)]
struct Running<P> {
    asked: Asked<P>,
    task: io::task::TaskHandle<Outcome>,
    /// It heard already that nobody knows, or is gone.
    silent: bool,
}

#[derive(Debug)]
pub struct Commits<P> {
    waiting: VecDeque<Asked<P>>,
    running: Option<Running<P>>,
}

impl<P> Default for Commits<P> {
    fn default() -> Self {
        Self {
            waiting: VecDeque::new(),
            running: None,
        }
    }
}

impl<P: Copy + PartialEq> Commits<P> {
    /// Whether something of this session is under way.
    pub fn holds(&self, port: P, session: SessionId) -> bool {
        let running = self.running.iter().map(|r| &r.asked);
        let mut all = running.chain(&self.waiting);
        all.any(|a| a.port == port && a.session == session)
    }

    /// The request back, if there are too many.
    pub fn push(
        &mut self,
        port: P,
        session: SessionId,
        request: Request,
        now: Duration,
    ) -> Result<(), Box<Request>> {
        if self.waiting.len() >= WAITING_MAX {
            return Err(Box::new(request));
        }
        self.waiting.push_back(Asked {
            port,
            session,
            request,
            since: now,
        });
        Ok(())
    }

    /// Begins the next, if none is under way. `env`: what it is lent.
    pub fn go_on(&mut self, cluster: &ClusterHandle, env: impl FnOnce() -> OwnEnv) {
        if self.running.is_some() {
            return;
        }
        let Some(asked) = self.waiting.pop_front() else {
            return;
        };
        let (cluster, request, env) = (cluster.clone(), asked.request.clone(), env());
        let task =
            io::task::spawn_local(
                async move { cluster.commit(|state| request.decide(state, &env.lend())).await },
            );
        self.running = Some(Running {
            asked,
            task,
            silent: false,
        });
    }

    /// The one under way, when it has ended; None instead of it if nobody waits for its answer any more.
    pub async fn ended(&mut self) -> (Option<Asked<P>>, Outcome) {
        let Some(running) = &mut self.running else {
            return std::future::pending().await;
        };
        let done = (&mut running.task).await;
        let done = done.unwrap_or(Err(metastore::Error::Closed));
        let asked = self.running.take().filter(|r| !r.silent).map(|r| r.asked);
        (asked, done)
    }

    /// The session is gone, and what it asked and was not begun with it: it asks again on its next connection.
    pub fn forget(&mut self, port: P, session: SessionId) {
        let its = |a: &Asked<P>| a.port == port && a.session == session;
        self.waiting.retain(|a| !its(a));
        if let Some(r) = self.running.as_mut().filter(|r| its(&r.asked)) {
            r.silent = true;
        }
    }

    /// When the one under way was asked for.
    pub fn oldest(&self) -> Option<Duration> {
        self.running.as_ref().map(|r| r.asked.since)
    }

    /// Those that have waited for too long, with their answers.
    pub fn expired(&mut self, now: Duration) -> Vec<(P, SessionId, Request, Reply)> {
        let late = |a: &Asked<P>| now >= a.since + ANSWER_MAX;
        let text = |a: &Asked<P>, end: &str| {
            let secs = (now - a.since).as_secs();
            let why = format!("the cluster state has not answered for {secs} s: {end}");
            Reply::error(Errno::ETIMEDOUT, why)
        };
        let mut out = Vec::new();
        if let Some(r) = self.running.as_mut().filter(|r| !r.silent && late(&r.asked)) {
            r.silent = true;
            let a = &r.asked;
            let reply = text(a, "what was asked may still be done when it is back");
            out.push((a.port, a.session, a.request.clone(), reply));
        }
        while let Some(a) = self.waiting.front()
            && late(a)
        {
            let reply = text(a, "nothing was changed");
            if let Some(a) = self.waiting.pop_front() {
                out.push((a.port, a.session, a.request, reply));
            }
        }
        out
    }
}
