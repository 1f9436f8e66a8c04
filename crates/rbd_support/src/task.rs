//! The task under way: begun, watched, settled.
//!
//! A task that failed is tried again, later and later, [`FAILURES_MAX`] times; one that cannot succeed is given up at once.
//! Both are in the cluster log. One that has to wait for others, as an image in the trash that clones still need, is tried for as
//! long as it takes; so is one that gets no answer ([`STUCK_AFTER`]), while others have their turn. What is gone already counts as done.

use crate::Worker;
use crate::connect::is_broken;
use crate::migration;
use crate::part::{Part, STUCK_AFTER};
use client::Client;
use cluster::rbd_support::{self as kept, Action, ENDED_MAX, Ended, Running, Task};
use cluster::{Change, Changes, ClusterState};
use rbd::image::migration::Unfinished;
use rbd::{Image, ImageOptions, directory, image, trash};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use types::clusterlog::LogLevel;
use types::{Errno, Utime};

const FAILURES_MAX: u64 = 10;
const RETRY_AFTER_SEC: u64 = 30;
const RETRY_AFTER_MAX_SEC: u64 = 300;
/// So long a task that is stopped may end what it would leave half done.
pub const TO_END: Duration = Duration::from_secs(10);
/// `progress` counts in these.
const WHOLE: u64 = 1000;

#[derive(Default)]
struct Progress {
    /// In thousandths.
    share: AtomicU64,
    steps: AtomicU64,
    /// Of a migration: objects that have some of their states.
    unfinished: Unfinished,
}

pub struct Job {
    task: Task,
    started: Utime,
    progress: Arc<Progress>,
    /// Steps that were seen, and since when they have been as many.
    seen: (u64, Duration),
    part: Part<rbd::Result<()>>,
}

impl Job {
    /// Nothing new is begun, and what is half done is ended, if that is within so long.
    pub async fn abort(&self, within: Duration) {
        self.part.abort();
        if !self.progress.unfinished.end(within).await {
            tracing::warn!(
                "task {}: it is stopped between the states of an object",
                self.task.id
            );
        }
    }

    /// Nothing has gone on for long.
    fn is_stuck(&mut self, now: Duration) -> bool {
        let steps = self.progress.steps.load(Ordering::Relaxed);
        if self.seen.0 != steps {
            self.seen = (steps, now);
        }
        now.saturating_sub(self.seen.1) >= STUCK_AFTER
    }
}

impl Worker {
    /// Settles the task under way if it has ended, and stops it if it was cancelled.
    pub(crate) async fn follow_task(&mut self) {
        let now = self.config.clock.monotonic();
        let Some(job) = &mut self.task else { return };
        let is_kept = kept::task(&self.config.cluster.state(), &job.task.id).is_some();
        if !is_kept && !job.part.is_over() {
            self.abort_task(TO_END).await;
            // With the connection its locks and watches go.
            return self.for_tasks.end().await;
        }
        if !job.part.is_over() {
            if job.is_stuck(now) {
                return self.leave_stuck().await;
            }
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

    /// What the task under way waits for may never come: others go on, and it is tried again later.
    async fn leave_stuck(&mut self) {
        let Some(job) = self.task.take() else { return };
        // It has not ended for very long: nobody waits any more.
        job.abort(Duration::ZERO).await;
        self.tell(|live| live.running = None);
        self.for_tasks.end().await;
        let why = format!("no progress for {} s", STUCK_AFTER.as_secs());
        tracing::warn!("task {} ({}): {why}", job.task.id, job.task.message());
        let stuck = Err(rbd::Error::refused(Errno::EBUSY, why));
        self.settle(job.task, job.started, stuck).await;
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
        let progress = Arc::new(Progress::default());
        let work = perform(client.clone(), task.clone(), self.now(), progress.clone());
        self.begin(task, progress, work);
    }

    fn begin(
        &mut self,
        task: Task,
        progress: Arc<Progress>,
        work: impl Future<Output = rbd::Result<()>> + 'static,
    ) {
        let now = self.now();
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
            seen: (0, self.config.clock.monotonic()),
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
    let unfinished = progress.unfinished.clone();
    let tell = move |done: u64, of: u64| {
        let share = done.saturating_mul(WHOLE) / of.max(1);
        progress.share.store(share, Ordering::Relaxed);
        progress.steps.fetch_add(1, Ordering::Relaxed);
    };
    let done = match task.action {
        Action::Flatten => flatten(&io, &task.image_id, tell).await,
        Action::Remove => remove(&io, &task, &tell).await,
        Action::TrashRemove => remove_trashed(&io, &task.image_id, now, &tell).await,
        Action::MigrationExecute | Action::MigrationCommit | Action::MigrationAbort => {
            let none = || rbd::Error::refused(Errno::EINVAL, "a migration without its images");
            let sides = task.sides.as_ref().ok_or_else(none)?;
            return migration::perform(&client, task.action, sides, &unfinished, &tell).await;
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
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::{Config, Connection, mirror, names, purge};
    use cluster::CreateOptions;
    use metastore::{ClusterHandle, Embedded, create_cluster};
    use std::sync::Mutex;
    use types::{EntityAddr, Uuid};

    /// Goes on by hand.
    struct Hand(Mutex<Duration>);

    impl io::Clock for Hand {
        fn monotonic(&self) -> Duration {
            *self.0.lock().unwrap()
        }

        fn wall(&self) -> Duration {
            Duration::from_secs(1_700_000_000) + *self.0.lock().unwrap()
        }
    }

    fn flatten_task(sequence: u64) -> Task {
        Task {
            sequence,
            id: format!("id-{sequence}"),
            action: Action::Flatten,
            pool: 1,
            pool_name: "p".into(),
            namespace: String::new(),
            image_name: "i".into(),
            image_id: "1".into(),
            sides: None,
            failures: 0,
            why: None,
            retry_at: 0,
        }
    }

    async fn worker_with(tasks: &[Task], clock: Arc<Hand>) -> Worker {
        let store = Arc::new(Embedded::in_memory(clock.clone()).unwrap());
        let addr = EntityAddr::msgr2(([127, 0, 0, 1], 3300).into(), 0);
        let options = CreateOptions::new(Uuid([1; 16]), "a", addr);
        let random = io::SystemRandom::shared();
        create_cluster(&*store, &options, &*clock, &*random)
            .await
            .unwrap();
        let cluster = ClusterHandle::open(store, clock.clone()).await.unwrap().unwrap();
        for task in tasks {
            let (key, value) = (task.key(), task.value());
            let set = |_: &ClusterState| {
                (
                    Changes::one(Change::ConfigKeySet {
                        key: key.clone(),
                        value: value.clone(),
                    }),
                    (),
                )
            };
            cluster.commit(set).await.unwrap();
        }
        let config = Config {
            cluster,
            clock,
            random,
            entropy: Arc::new(|out: &mut [u8]| out.fill(7)),
            mgr_name: "a".into(),
            cephx: true,
        };
        Worker {
            connection: Connection::new(config.clone()),
            for_tasks: Connection::new(config.clone()),
            config,
            live: tokio::sync::watch::channel(Arc::default()).0,
            task: None,
            names: names::Names::default(),
            purge: purge::Purges::from(0),
            mirror: mirror::Snapshots::from(0),
        }
    }

    #[test]
    fn a_task_without_an_answer_lets_others_go_on() {
        let main = async {
            let clock = Arc::new(Hand(Mutex::new(Duration::from_secs(1))));
            let mut worker = worker_with(&[flatten_task(1), flatten_task(2)], clock.clone()).await;
            let first = worker.next_task().unwrap();
            assert_eq!(first.sequence, 1);
            worker.begin(first, Arc::default(), std::future::pending());
            worker.follow_task().await;
            let pass = |by: Duration| *clock.0.lock().unwrap() += by;
            // A step, just in time.
            pass(STUCK_AFTER - Duration::from_secs(1));
            let progress = worker.task.as_ref().unwrap().progress.clone();
            progress.steps.fetch_add(1, Ordering::Relaxed);
            worker.follow_task().await;
            pass(STUCK_AFTER - Duration::from_secs(1));
            worker.follow_task().await;
            assert!(worker.task.is_some() && worker.next_task().is_none());
            pass(Duration::from_secs(1));
            worker.follow_task().await;
            assert!(worker.task.is_none() && worker.live.borrow().running.is_none());
            let all = kept::tasks(&worker.config.cluster.state());
            assert_eq!(all[0].failures, 1);
            assert!(all[0].why.as_ref().unwrap().contains("no progress for 600 s"));
            assert_eq!(worker.next_task().unwrap().sequence, 2);
            // Its turn comes again.
            pass(Duration::from_secs(RETRY_AFTER_SEC));
            assert_eq!(worker.next_task().unwrap().sequence, 1);
        };
        io::task::block_on(main).unwrap();
    }

    #[test]
    fn a_fenced_client_does_not_use_up_tries() {
        for errno in [Errno::EBLOCKLISTED, Errno::ENOTCONN, Errno::EBUSY] {
            assert!(is_tried_again(errno, 1000 * FAILURES_MAX), "{errno:?}");
        }
        assert!(!is_tried_again(Errno::EIO, FAILURES_MAX));
        assert!(!is_tried_again(Errno::EPERM, 0));
    }
}
