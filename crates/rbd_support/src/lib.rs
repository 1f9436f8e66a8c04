//! Work on images that the cluster does by itself, as Ceph's manager module `rbd_support` does: tasks, schedules, and the
//! names of images for those who show figures of them. What is to be done stands in the cluster state
//! (`cluster::rbd_support`), so it survives whoever does it.
//!
//! One worker runs beside each monitor; that of the active manager works. It is a client of the cluster like others (two:
//! one for tasks, one for the rest), by the name of the manager, and connects when there is something to do.
//!
//! Invariants: a task leaves the cluster state when it is done, given up, or cancelled, and not before; each can be begun
//! again at any point. One task runs at a time, one purge, and one round
//! of snapshots.
//!
//! Bounds: [`LOOKUPS_MAX`] lookups wait; tasks, schedules and images are bounded where they are kept.

mod config;
mod connect;
mod migration;
mod mirror;
mod names;
mod part;
mod purge;
mod task;

use client::Client;
use cluster::rbd_support::{
    About, Action, Found, Live, MIRROR_SNAPSHOT_KEY, Schedules, Subject, TRASH_PURGE_KEY, Wanted,
};
pub use config::Config;
pub use connect::{Connection, is_broken};
use io::task::{interval, spawn_local};
use rbd::{Image, ImageOptions, directory, trash};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use types::{Errno, Utime};

/// Questions about images that wait.
pub const LOOKUPS_MAX: usize = 16;
const TICK: Duration = Duration::from_secs(1);
/// The same where this process stops: its OSDs may have gone before.
const TO_STOP: Duration = Duration::from_secs(1);
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(20);

/// An image to look up, and where the answer goes.
pub type Lookup = (Wanted, oneshot::Sender<Found>);

struct Worker {
    config: Config,
    /// For schedules, names and questions.
    connection: Connection,
    /// Ends with a task that is cancelled: its locks and watches go.
    for_tasks: Connection,
    live: watch::Sender<Arc<Live>>,
    task: Option<task::Job>,
    names: names::Names,
    purge: purge::Purges,
    mirror: mirror::Snapshots,
}

/// Works until nobody is left who could ask.
pub async fn run(config: Config, live: watch::Sender<Arc<Live>>, mut lookups: mpsc::Receiver<Lookup>) {
    let now = config.clock.wall().as_secs();
    let mut worker = Worker {
        connection: Connection::new(config.clone()),
        for_tasks: Connection::new(config.clone()),
        config,
        live,
        task: None,
        names: names::Names::default(),
        purge: purge::Purges::from(now),
        mirror: mirror::Snapshots::from(now),
    };
    let mut tick = interval(TICK);
    tick.set_missed_tick_behavior(io::task::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            lookup = lookups.recv() => match lookup {
                Some(lookup) => worker.look_up(lookup).await,
                None => break,
            },
            _ = tick.tick() => worker.tick().await,
        }
    }
    // The OSDs of this process may be ending as well.
    worker.rest(TO_STOP).await;
}

impl Worker {
    fn now(&self) -> Utime {
        Utime::from_unix(self.config.clock.wall())
    }

    fn is_active(&self) -> bool {
        let map = &self.config.cluster.state().mgrmap;
        map.available && map.active_name == self.config.mgr_name
    }

    fn tell(&self, change: impl FnOnce(&mut Live)) {
        self.live.send_if_modified(|live| {
            let mut next = (**live).clone();
            change(&mut next);
            let changed = next != **live;
            if changed {
                *live = Arc::new(next);
            }
            changed
        });
    }

    async fn tick(&mut self) {
        if !self.is_active() {
            return self.rest(task::TO_END).await;
        }
        self.follow_task().await;
        self.leave_broken().await;
        let trouble = self.work().await.err();
        self.tell(|live| live.trouble = trouble);
    }

    /// The error says why nothing is done.
    async fn work(&mut self) -> Result<(), String> {
        if let Some(task) = self.next_task() {
            let client = self.for_tasks.get().await?;
            self.begin_task(&client, task);
        }
        if !self.has_work() {
            self.idle();
            return Ok(());
        }
        let client = self.connection.get().await?;
        self.follow_names(&client).await;
        self.follow_purges(&client).await;
        self.follow_mirror(&client).await;
        Ok(())
    }

    /// Beside tasks.
    fn has_work(&self) -> bool {
        let state = self.config.cluster.state();
        state.config_keys.contains_key(TRASH_PURGE_KEY)
            || state.config_keys.contains_key(MIRROR_SNAPSHOT_KEY)
            || self.names.wants(&self.config)
    }

    /// Schedules hold from when they are added.
    fn idle(&mut self) {
        let now = u64::from(self.now().sec);
        self.purge.idle(now);
        self.mirror.idle(now);
    }

    /// What is under way on a connection that is of no use any more is begun again on a new one.
    async fn leave_broken(&mut self) {
        if self.for_tasks.is_broken() {
            self.abort_task(task::TO_END).await;
            self.for_tasks.end().await;
        }
        if self.connection.is_broken() {
            tracing::warn!("the manager's connection is of no use any more: it makes another one");
            self.names.abort();
            self.purge.abort();
            self.mirror.abort();
            self.connection.end().await;
        }
    }

    async fn abort_task(&mut self, within: Duration) {
        if let Some(job) = self.task.take() {
            job.abort(within).await;
            self.tell(|live| live.running = None);
        }
    }

    /// Another manager is active, or the monitor ends.
    async fn rest(&mut self, within: Duration) {
        self.abort_task(within).await;
        self.names.abort();
        self.purge.abort();
        self.mirror.abort();
        self.idle();
        self.for_tasks.end().await;
        self.connection.end().await;
        self.tell(|live| *live = Live::default());
    }

    async fn look_up(&mut self, (wanted, reply): Lookup) {
        self.leave_broken().await;
        let client = match self.connection.get().await {
            Ok(client) => client,
            Err(why) => return drop(reply.send(Err((Errno::EIO, why)))),
        };
        let broken = self.connection.broken();
        drop(spawn_local(async move {
            let found = io::task::timeout(LOOKUP_TIMEOUT, find(&client, &wanted)).await;
            let late = |_| Err((Errno::ETIMEDOUT, "the OSDs do not answer".to_string()));
            let found = found.unwrap_or_else(late);
            if let Err((errno, _)) = &found {
                broken.heard(*errno);
            }
            let _ = reply.send(found);
        }));
    }

    async fn follow_purges(&mut self, client: &Client) {
        let state = self.config.cluster.state();
        let schedules = Schedules::of(&state, TRASH_PURGE_KEY);
        let cx = purge::Context {
            client,
            broken: self.connection.broken(),
            state: &state,
            now: self.now(),
        };
        if let Some(namespaces) = self.purge.follow(&cx, schedules).await {
            self.tell(|live| live.namespaces = namespaces);
        }
    }

    async fn follow_mirror(&mut self, client: &Client) {
        let state = self.config.cluster.state();
        let schedules = Schedules::of(&state, MIRROR_SNAPSHOT_KEY);
        let cx = mirror::Context {
            client,
            broken: self.connection.broken(),
            state: &state,
            random: self.config.random.clone(),
            now: u64::from(self.now().sec),
        };
        if let Some(mirrored) = self.mirror.follow(&cx, schedules).await {
            self.tell(|live| live.mirrored = mirrored);
        }
    }

    async fn follow_names(&mut self, client: &Client) {
        if let Some(names) = self.names.follow(client, &self.config).await {
            self.tell(|live| live.names = names);
        }
    }
}

/// Words as the real one's.
async fn find(client: &Client, wanted: &Wanted) -> Found {
    let mut io = client.pool_by_id(wanted.pool);
    io.set_namespace(wanted.namespace.clone().into_bytes());
    let image = wanted.image.clone();
    let place = || {
        let pool = client.map().ok();
        let pool = pool.and_then(|m| m.pool_name(wanted.pool).map(str::to_string));
        match wanted.namespace.as_str() {
            "" => pool.unwrap_or_default(),
            ns => format!("{}/{ns}", pool.unwrap_or_default()),
        }
    };
    let failed = |e: rbd::Error, missing: String| match e.is_not_found() {
        true => (
            Errno::ENOENT,
            format!("[errno 2] RBD image not found ({missing})"),
        ),
        false => (e.errno(), e.to_string()),
    };
    if wanted.about == About::Task(Action::TrashRemove) {
        let found = trash::get(&io, &image).await;
        let found = found.map_err(|e| failed(e, "error retrieving image from trash".into()))?;
        return Ok(Subject::new(String::from_utf8_lossy(&found.name), image));
    }
    if let About::Task(action) = wanted.about
        && action.is_migration()
    {
        return migration::find(&io, &image, action, &format!("{}/{image}", place())).await;
    }
    let id = directory::id_of(&io, &image).await;
    if wanted.about == About::Mirroring {
        return mirror::find(&io, image, id).await;
    }
    let id = id.map_err(|e| failed(e, format!("Image {}/{image} does not exist", place())))?;
    let options = ImageOptions {
        read_only: true,
        encrypted: true,
        ..ImageOptions::default()
    };
    let open = Image::open_id(&io, &id, &options).await;
    let header = match open {
        Ok(open) => open.header().await.map(|header| (header, open.data_pool())),
        Err(e) => Err(e),
    };
    let (header, data_pool) =
        header.map_err(|e| failed(e, format!("Image {}/{image} does not exist", place())))?;
    if wanted.about == About::Task(Action::Flatten) && header.parent.is_none() {
        let why = format!("Image {}/{image} does not have a parent", place());
        return Err((Errno::ENOENT, format!("[errno 2] RBD image not found ({why})")));
    }
    if wanted.about == About::Task(Action::Remove) && !header.snaps.is_empty() {
        let why = format!("Image {}/{image} has snapshots", place());
        return Err((Errno::EBUSY, format!("[errno 16] RBD image is busy ({why})")));
    }
    if wanted.about == About::Limits {
        let pool = data_pool.unwrap_or(wanted.pool).to_string();
        return Ok(Subject::new(pool, id));
    }
    Ok(Subject::new(image, id))
}
