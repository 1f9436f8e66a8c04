//! The task under way: begun, watched, settled.
//!
//! A task that failed is tried again, later and later, [`FAILURES_MAX`] times; one that cannot succeed is given up at once.
//! Both are in the cluster log. One that has to wait for others, as an image in the trash that clones still need, is tried for as
//! long as it takes. What is gone already counts as done.

use crate::Worker;
use crate::connect::is_broken;
use crate::migration;
use crate::part::{Part, STUCK_AFTER};
use client::Client;
use cluster::rbd_support::{self as kept, Action, ENDED_MAX, Ended, Running, Task};
use cluster::{Change, Changes, ClusterState};
use rbd::{Image, ImageOptions, directory, image, trash};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use types::clusterlog::LogLevel;
use types::{Errno, Utime};

const FAILURES_MAX: u64 = 10;
const RETRY_AFTER_SEC: u64 = 30;
const RETRY_AFTER_MAX_SEC: u64 = 300;
/// `progress` counts in these.
const WHOLE: u64 = 1000;

#[derive(Default)]
struct Progress {
    /// In thousandths.
    share: AtomicU64,
    steps: AtomicU64,
}

pub struct Job {
    task: Task,
    started: Utime,
    progress: Arc<Progress>,
    /// Steps that were seen, and since when they have been as many; None: that was said.
    seen: (u64, Option<Duration>),
    part: Part<rbd::Result<()>>,
}

impl Job {
    pub fn abort(&self) {
        self.part.abort();
    }

    /// Says once that nothing goes on.
    fn look_whether_stuck(&mut self, now: Duration) {
        let steps = self.progress.steps.load(Ordering::Relaxed);
        match self.seen {
            (seen, _) if seen != steps => self.seen = (steps, Some(now)),
            (_, Some(since)) if now.saturating_sub(since) >= STUCK_AFTER => {
                let (what, sec) = (self.task.message(), STUCK_AFTER.as_secs());
                tracing::warn!("task {} ({what}) has had no progress for {sec} s", self.task.id);
                self.seen.1 = None;
            }
            _ => {}
        }
    }
}

impl Worker {
    /// Settles the task under way if it has ended, and stops it if it was cancelled.
    pub(crate) async fn follow_task(&mut self) {
        let now = self.config.clock.monotonic();
        let Some(job) = &mut self.task else { return };
        let is_kept = kept::task(&self.config.cluster.state(), &job.task.id).is_some();
        if !is_kept && !job.part.is_over() {
            self.abort_task();
            // With the connection its locks and watches go.
            return self.for_tasks.end().await;
        }
        if !job.part.is_over() {
            job.look_whether_stuck(now);
            let progress = job.progress.share.load(Ordering::Relaxed) as f64 / WHOLE as f64;
            return self.tell(|live| {
                if let Some(running) = &mut live.running {
                    running.progress = progress;
                }
            });
        }
        let Some(job) = self.task.take() else { return };
        self.tell(|live| live.running = None);
        if let Some(done) = job.part.ended().await {
            self.settle(job.task, job.started, done).await;
        }
    }

    /// The one to begin now.
    pub(crate) fn next_task(&self) -> Option<Task> {
        if self.task.is_some() {
            return None;
        }
        let now = u64::from(self.now().sec);
        let all = kept::tasks(&self.config.cluster.state());
        all.into_iter().find(|t| t.retry_at <= now)
    }

    pub(crate) fn begin_task(&mut self, client: &Client, task: Task) {
        let now = self.now();
        let progress = Arc::new(Progress::default());
        let work = perform(client.clone(), task.clone(), now, progress.clone());
        let running = Running {
            task: task.clone(),
            started: now,
            progress: 0.0,
        };
        self.tell(|live| live.running = Some(running));
        self.task = Some(Job {
            task,
            started: now,
            progress,
            seen: (0, Some(self.config.clock.monotonic())),
            part: Part(io::task::spawn_local(work)),
        });
    }

    async fn settle(&self, task: Task, started: Utime, done: rbd::Result<()>) {
        let now = self.now();
        let failure = done.err().map(|e| (e.errno(), e.to_string()));
        if let Some((errno, _)) = &failure {
            self.for_tasks.broken().heard(*errno);
        }
        let next = failure
            .as_ref()
            .filter(|(errno, _)| is_tried_again(*errno, task.failures));
        let change = next.map(|(_, why)| {
            let pause = (RETRY_AFTER_SEC << task.failures.min(8)).min(RETRY_AFTER_MAX_SEC);
            Task {
                failures: task.failures + 1,
                why: Some(why.clone()),
                retry_at: u64::from(now.sec) + pause,
                ..task.clone()
            }
        });
        let given_up = failure.filter(|_| change.is_none()).map(|(_, why)| why);
        let decide = |state: &ClusterState| {
            (
                changes(state, &task, change.as_ref(), given_up.as_deref(), now),
                (),
            )
        };
        if let Err(e) = self.config.cluster.commit(decide).await {
            // It stands there still, and is done again.
            return tracing::warn!("{}: its end is not kept: {e}", task.message());
        }
        if change.is_none() {
            self.tell(|live| {
                live.ended.push(Ended {
                    task,
                    started,
                    finished: now,
                    failure: given_up,
                });
                let surplus = live.ended.len().saturating_sub(ENDED_MAX);
                live.ended.drain(..surplus);
            });
        }
    }
}

/// What is kept of a task that ended; nothing, if somebody has cancelled it.
fn changes(
    state: &ClusterState,
    task: &Task,
    again: Option<&Task>,
    given_up: Option<&str>,
    now: Utime,
) -> Changes {
    if kept::task(state, &task.id).is_none() {
        return Changes::none();
    }
    let mut out = match again {
        Some(again) => Changes::one(Change::ConfigKeySet {
            key: again.key(),
            value: again.value(),
        }),
        None => Changes::one(Change::ConfigKeyRm { key: task.key() }),
    };
    if let Some(why) = given_up {
        let text = format!("task {} ({}) is given up: {why}", task.id, task.message());
        out.push(Change::Log(state.log_entry(now, LogLevel::Warning, text)));
    }
    out
}

fn is_tried_again(errno: Errno, failures: u64) -> bool {
    match errno {
        // Trying again would not help.
        Errno::EINVAL | Errno::EPERM | Errno::EACCES | Errno::EOPNOTSUPP => false,
        // Its clones or users go some day.
        Errno::ENOTEMPTY | Errno::EBUSY => true,
        // Not the task's fault: another connection is made.
        _ if is_broken(errno) => true,
        _ => failures < FAILURES_MAX,
    }
}

async fn perform(client: Client, task: Task, now: Utime, progress: Arc<Progress>) -> rbd::Result<()> {
    // The newest map, so that a pool that was removed is known to be.
    if client.latest_map().await?.pool(task.pool).is_none() {
        return Ok(());
    }
    let mut io = client.pool_by_id(task.pool);
    io.set_namespace(task.namespace.clone().into_bytes());
    let tell = move |done: u64, of: u64| {
        let share = done.saturating_mul(WHOLE) / of.max(1);
        progress.share.store(share, Ordering::Relaxed);
        progress.steps.fetch_add(1, Ordering::Relaxed);
    };
    let done = match task.action {
        Action::Flatten => flatten(&io, &task.image_id, tell).await,
        Action::Remove => remove(&io, &task, &tell).await,
        Action::TrashRemove => remove_trashed(&io, &task.image_id, now, &tell).await,
        Action::MigrateExecute | Action::MigrateCommit | Action::MigrateAbort => {
            migration::perform(&client, &task, &tell).await
        }
    };
    match done {
        Err(e) if e.is_not_found() => Ok(()),
        done => done,
    }
}

async fn remove(
    io: &client::IoCtx,
    task: &Task,
    tell: &(impl Fn(u64, u64) + Send + Sync),
) -> rbd::Result<()> {
    match directory::id_of(io, &task.image_name).await {
        Ok(id) if id == task.image_id => image::remove(io, &task.image_name, tell).await,
        // Another image has the name by now, or an earlier run was cut short.
        Ok(_) => remove_rest(io, &task.image_id, tell).await,
        Err(e) if e.is_not_found() => remove_rest(io, &task.image_id, tell).await,
        Err(e) => Err(e),
    }
}

/// Of an image whose name has gone: what our earlier run left in the trash. What people moved there is theirs.
async fn remove_rest(
    io: &client::IoCtx,
    id: &str,
    tell: &(impl Fn(u64, u64) + Send + Sync),
) -> rbd::Result<()> {
    if trash::get(io, id).await?.source != trash::SOURCE_REMOVING {
        let what = format!("image '{id}': somebody moved it to the trash meanwhile");
        return Err(rbd::Error::refused(Errno::EPERM, what));
    }
    image::remove_trashed(io, id, tell).await
}

async fn flatten(io: &client::IoCtx, id: &str, tell: impl Fn(u64, u64) + Send + 'static) -> rbd::Result<()> {
    let options = ImageOptions {
        encrypted: true,
        ..ImageOptions::default()
    };
    let image = Image::open_id(io, id, &options).await?;
    let done = match image.header().await?.parent {
        Some(_) => image.flatten_telling(tell).await,
        None => Ok(()),
    };
    let closed = image.close().await;
    done.and(closed)
}

async fn remove_trashed(
    io: &client::IoCtx,
    id: &str,
    now: Utime,
    tell: &(impl Fn(u64, u64) + Send + Sync),
) -> rbd::Result<()> {
    let entry = trash::get(io, id).await?;
    if entry.deferment_end_time > now {
        let what = format!(
            "image '{id}' stays in the trash until {}",
            entry.deferment_end_time
        );
        return Err(rbd::Error::refused(Errno::EPERM, what));
    }
    image::remove_trashed(io, id, tell).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fenced_client_does_not_use_up_tries() {
        for errno in [Errno::EBLOCKLISTED, Errno::ENOTCONN, Errno::EBUSY] {
            assert!(is_tried_again(errno, 1000 * FAILURES_MAX), "{errno:?}");
        }
        assert!(!is_tried_again(Errno::EIO, FAILURES_MAX));
        assert!(!is_tried_again(Errno::EPERM, 0));
    }
}
