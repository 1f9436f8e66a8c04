//! Subvolumes: directories of a file system that are handed out like volumes, with a quota, a layout and keys of their own, as the
//! module `volumes` of Ceph's manager makes them. Manila and ceph-csi use nothing else.
//!
//! Vocabulary: a *volume* is a file system; a *group* is a directory `/volumes/GROUP` (`_nogroup` where none is named); a subvolume is
//! `/volumes/GROUP/NAME`, whose `.meta` says where its data lie: `/volumes/GROUP/NAME/UUID`. The *trash* is `/volumes/_deleting`.
//!
//! One worker runs beside each monitor, and carries out what that one is asked. It is a client of the cluster by the name of the manager, and
//! mounts a file system when there is something to do. The worker of the active manager purges the trash.
//!
//! Invariants: of one volume a worker carries out one command at a time. A subvolume is removed by one rename into the trash; that the trash is to be
//! purged is durable in the cluster state before (`cluster::volumes`), so a purge goes on after a restart. What was cut short can be asked
//! for again.
//!
//! Bounds: [`cluster::volumes::ASKS_MAX`] commands wait; a command waits [`MOUNT_TIMEOUT`] for the metadata server, and is given up
//! after twice as long; one purge and one copy of a clone for each
//! volume; [`place::NAMES_MAX`] names in a listing.
//!
//! Not here: who may ask (`mon`).

mod args;
mod authorize;
mod clone;
mod copy;
mod group;
mod meta;
mod metadata;
mod place;
mod show;
mod snapshot;
mod subvolume;
mod trash;

use args::{Args, Refusal, refusal};
use cephfs::{Mount, Options};
use client::Client;
use cluster::volumes::{Asked, CloneRow, Done, clone_key, clones, to_clone, to_purge};
use io::task::{TaskHandle, interval, spawn_local, timeout};
use place::Place;
use rbd_support::{Config, Connection, is_broken};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::{Mutex, mpsc, oneshot};
use types::Errno;

/// That a command waits for the metadata server.
pub const MOUNT_TIMEOUT: Duration = Duration::from_secs(60);
/// That a command takes: one of its own, and a request that waits for a server that begins again.
const COMMAND_MAX: Duration = MOUNT_TIMEOUT.saturating_mul(2);
/// What a server that starts again waits for a worker that has died with it.
const SESSION_TIMEOUT: Duration = Duration::from_secs(6);
const TICK: Duration = Duration::from_secs(1);
/// Between two purges that failed, at most: each time it is twice as long.
const PAUSE_MAX: Duration = Duration::from_secs(300);
/// A mount that nobody has used for so long ends.
const IDLE: Duration = Duration::from_secs(10);

/// A command, and where the answer goes.
pub type Ask = (Asked, oneshot::Sender<Done>);

/// A file system, and what is under way in it.
struct Volume {
    name: String,
    fscid: i32,
    /// Held while a command is carried out.
    mount: Mutex<Option<Mount>>,
    used: Cell<Duration>,
    /// Lost its client: the next command makes a new one.
    broken: Cell<bool>,
    purge: RefCell<Option<TaskHandle<()>>>,
    /// A clone is being copied.
    copy: RefCell<Option<TaskHandle<()>>>,
    /// The row of the one that was tried last: the others have their turn before it.
    copied: RefCell<String>,
    /// After a purge that failed.
    pause: Cell<Duration>,
}

struct Worker {
    config: Config,
    connection: Connection,
    volumes: BTreeMap<i32, Rc<Volume>>,
}

/// Works until nobody is left who could ask.
pub async fn run(config: Config, mut asks: mpsc::Receiver<Ask>) {
    let mut worker = Worker {
        connection: Connection::new(config.clone()),
        config,
        volumes: BTreeMap::new(),
    };
    let mut tick = interval(TICK);
    tick.set_missed_tick_behavior(io::task::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            ask = asks.recv() => match ask {
                Some((asked, reply)) => worker.begin(asked, reply).await,
                None => break,
            },
            _ = tick.tick() => worker.tick().await,
        }
    }
    worker.end().await;
}

impl Worker {
    fn is_active(&self) -> bool {
        let map = &self.config.cluster.state().mgrmap;
        map.available && map.active_name == self.config.mgr_name
    }

    async fn begin(&mut self, asked: Asked, reply: oneshot::Sender<Done>) {
        let args = Args(asked.args);
        let volume = match self.volume_named(args.text("vol_name")) {
            Ok(volume) => volume,
            Err(refusal) => return drop(reply.send(Err(refusal))),
        };
        let client = match self.client().await {
            Ok(client) => client,
            Err(why) => return drop(reply.send(Err((Errno::EIO, why)))),
        };
        let config = self.config.clone();
        drop(spawn_local(async move {
            let done = volume.carry_out(&config, &client, &asked.prefix, &args).await;
            let _ = reply.send(done);
        }));
    }

    async fn client(&mut self) -> Result<Client, String> {
        if self.volumes.values().any(|v| v.broken.get()) {
            self.unmount_all().await;
            self.connection.end().await;
        }
        self.connection.get().await
    }

    fn volume_named(&mut self, name: &str) -> Result<Rc<Volume>, Refusal> {
        let state = self.config.cluster.state();
        let all = &state.fsmap.filesystems;
        let fs = all.iter().find(|fs| fs.mds_map.fs_name == name);
        match fs {
            Some(fs) => Ok(self.volume(fs.fscid, name)),
            None => Err(refusal(Errno::ENOENT, format!("FS '{name}' not found"))),
        }
    }

    fn volume(&mut self, fscid: i32, name: &str) -> Rc<Volume> {
        let fresh = || {
            Rc::new(Volume {
                name: name.to_string(),
                fscid,
                mount: Mutex::new(None),
                used: Cell::default(),
                broken: Cell::new(false),
                purge: RefCell::new(None),
                copy: RefCell::new(None),
                copied: RefCell::default(),
                pause: Cell::new(TICK),
            })
        };
        self.volumes.entry(fscid).or_insert_with(fresh).clone()
    }

    /// Lets go of what is idle or gone, and purges what is to be purged.
    async fn tick(&mut self) {
        let state = self.config.cluster.state();
        let name_of = |id: i32| {
            let all = &state.fsmap.filesystems;
            let fs = all.iter().find(|fs| fs.fscid == id);
            fs.map(|fs| fs.mds_map.fs_name.clone())
        };
        let now = self.config.clock.monotonic();
        let gone: Vec<i32> = self
            .volumes
            .keys()
            .copied()
            .filter(|id| name_of(*id).as_ref() != Some(&self.volumes[id].name))
            .collect();
        for id in gone {
            if let Some(volume) = self.volumes.remove(&id) {
                volume.end().await;
            }
        }
        for volume in self.volumes.values() {
            volume.rest(now).await;
        }
        if !self.is_active() {
            return;
        }
        for fscid in to_purge(&state) {
            let Some(name) = name_of(fscid) else {
                // With the file system its trash has gone.
                trash::settled(&self.config, fscid).await;
                continue;
            };
            let volume = self.volume(fscid, &name);
            if volume.is_purging() {
                continue;
            }
            match self.client().await {
                Ok(client) => volume.begin_purge(&self.config, &client),
                Err(why) => tracing::debug!("the trash of {name} waits: {why}"),
            }
        }
        self.look_after_clones().await;
    }

    /// Begins to copy what is to be copied.
    async fn look_after_clones(&mut self) {
        let state = self.config.cluster.state();
        for fscid in to_clone(&state) {
            let all = &state.fsmap.filesystems;
            let fs = all.iter().find(|fs| fs.fscid == fscid);
            let Some(name) = fs.map(|fs| fs.mds_map.fs_name.clone()) else {
                for row in clones(&state, fscid) {
                    if let Err((_, why)) = clone::settled(&self.config, fscid, &row).await {
                        tracing::warn!("the end of a clone is not kept: {why}");
                    }
                }
                continue;
            };
            let volume = self.volume(fscid, &name);
            if volume.is_copying() {
                continue;
            }
            match (self.client().await, volume.next_copy(clones(&state, fscid))) {
                (Ok(client), Some(row)) => volume.begin_copy(&self.config, &client, row),
                (Err(why), _) => tracing::debug!("clones of {name} wait: {why}"),
                (_, None) => {}
            }
        }
    }

    async fn unmount_all(&mut self) {
        for volume in std::mem::take(&mut self.volumes).into_values() {
            volume.end().await;
        }
    }

    async fn end(&mut self) {
        self.unmount_all().await;
        self.connection.end().await;
    }
}

impl Volume {
    fn is_purging(&self) -> bool {
        self.purge.borrow().as_ref().is_some_and(|p| !p.is_finished())
    }

    /// What is in `held`, made anew where there is none that serves.
    async fn mounted(
        &self,
        held: &mut Option<Mount>,
        client: &Client,
        config: &Config,
    ) -> client::Result<Mount> {
        self.used.set(config.clock.monotonic());
        if let Some(over) = held.take_if(|m| m.is_over()) {
            over.close().await;
        }
        if let Some(mount) = held {
            return Ok(mount.clone());
        }
        let options = Options {
            timeout: MOUNT_TIMEOUT,
            session_timeout: Some(SESSION_TIMEOUT),
            ..Options::new(&self.name)
        };
        let made = Mount::connect(client, options).await;
        if made.as_ref().is_err_and(|e| is_broken(e.errno())) {
            self.broken.set(true);
        }
        Ok(held.insert(made?).clone())
    }

    async fn carry_out(&self, config: &Config, client: &Client, prefix: &str, args: &Args) -> Done {
        // One command after the other.
        let mut held = self.mount.lock().await;
        let mount = match self.mounted(&mut held, client, config).await {
            Ok(mount) => mount,
            Err(e) => {
                let why = format!("the metadata server of '{}' does not serve: {e}", self.name);
                return Err(refusal(e.errno(), why));
            }
        };
        let place = Place {
            config,
            mount: &mount,
            fscid: self.fscid,
            pools: place::pools(config, self.fscid),
        };
        let Ok(done) = timeout(COMMAND_MAX, answer(&place, prefix, args)).await else {
            // What it waits for may hold files: that ends with the session.
            self.abort_purge();
            held.take();
            mount.close().await;
            let why = format!("'{}' does not answer: its OSDs or its server are away", self.name);
            return Err(refusal(Errno::ETIMEDOUT, why));
        };
        if done.as_ref().is_err_and(|(errno, _)| is_broken(*errno)) {
            self.broken.set(true);
        }
        self.used.set(config.clock.monotonic());
        done
    }

    /// Nobody has asked for a while.
    async fn rest(&self, now: Duration) {
        if now.saturating_sub(self.used.get()) < IDLE || self.is_purging() || self.is_copying() {
            return;
        }
        let Ok(mut mount) = self.mount.try_lock() else {
            return;
        };
        if let Some(mount) = mount.take() {
            mount.close().await;
        }
    }

    async fn end(&self) {
        self.abort_purge();
        // A command that is being carried out keeps its own.
        if let Ok(mut mount) = self.mount.try_lock()
            && let Some(mount) = mount.take()
        {
            mount.close().await;
        }
    }

    fn abort_purge(&self) {
        for work in [&self.purge, &self.copy] {
            if let Some(work) = work.borrow_mut().take() {
                work.abort();
            }
        }
    }

    fn begin_purge(self: &Rc<Self>, config: &Config, client: &Client) {
        let (volume, config, client) = (self.clone(), config.clone(), client.clone());
        let work = async move {
            let Err(e) = volume.purge(&config, &client).await else {
                return volume.pause.set(TICK);
            };
            tracing::warn!("the trash of {} is purged later: {e}", volume.name);
            if is_broken(e.errno()) {
                volume.broken.set(true);
            }
            let pause = volume.pause.get();
            volume.pause.set((pause * 2).min(PAUSE_MAX));
            io::task::sleep(pause).await;
        };
        *self.purge.borrow_mut() = Some(spawn_local(work));
    }

    fn is_copying(&self) -> bool {
        self.copy.borrow().as_ref().is_some_and(|c| !c.is_finished())
    }

    /// One that cannot be copied now does not keep others from it.
    fn next_copy(&self, all: Vec<CloneRow>) -> Option<CloneRow> {
        let last = self.copied.borrow();
        let behind = all.iter().find(|row| clone_key(self.fscid, row) > *last);
        behind.or(all.first()).cloned()
    }

    fn begin_copy(self: &Rc<Self>, config: &Config, client: &Client, row: CloneRow) {
        let (volume, config, client) = (self.clone(), config.clone(), client.clone());
        *self.copied.borrow_mut() = clone_key(self.fscid, &row);
        let work = async move {
            let Err((errno, why)) = volume.copy(&config, &client, &row).await else {
                return volume.pause.set(TICK);
            };
            tracing::warn!("'{}' of {} is copied later: {why}", row.name, volume.name);
            if is_broken(errno) {
                volume.broken.set(true);
            }
            let pause = volume.pause.get();
            volume.pause.set((pause * 2).min(PAUSE_MAX));
            io::task::sleep(pause).await;
        };
        *self.copy.borrow_mut() = Some(spawn_local(work));
    }

    /// An error: it is tried again.
    async fn copy(&self, config: &Config, client: &Client, row: &CloneRow) -> Result<(), Refusal> {
        let mut held = self.mount.lock().await;
        let mount = self
            .mounted(&mut held, client, config)
            .await
            .map_err(args::failed)?;
        let step = clone::next(&mount, row).await?;
        drop(held);
        let (from, to) = match step {
            clone::Step::Copy(from, to) => (from, to),
            clone::Step::Over => return clone::settled(config, self.fscid, row).await,
        };
        let goes_on = || {
            self.used.set(config.clock.monotonic());
            clones(&config.cluster.state(), self.fscid).contains(row)
        };
        let failure = match clone::copy_all(&mount, &from, &to, goes_on).await {
            Ok(true) => None,
            Ok(false) => return Ok(()),
            Err(e) if is_broken(e.errno()) || e.errno() == Errno::ETIMEDOUT => return Err(args::failed(e)),
            Err(e) => Some(e),
        };
        // Nobody cancels it meanwhile.
        let _held = self.mount.lock().await;
        if goes_on() {
            clone::ended(&mount, row, failure.as_ref()).await?;
            clone::settled(config, self.fscid, row).await?;
        }
        Ok(())
    }

    async fn purge(&self, config: &Config, client: &Client) -> client::Result<()> {
        let mount = self
            .mounted(&mut *self.mount.lock().await, client, config)
            .await?;
        let used = || self.used.set(config.clock.monotonic());
        let (purged, done) = trash::purge(&mount, used).await;
        if purged > 0 {
            tracing::info!("{purged} names were purged from the trash of {}", self.name);
        }
        done?;
        // Nobody moves something there meanwhile.
        let _held = self.mount.lock().await;
        if trash::is_empty(&mount).await? {
            trash::settled(config, self.fscid).await;
        }
        Ok(())
    }
}

async fn answer(place: &Place<'_>, prefix: &str, args: &Args) -> Done {
    let words = prefix.strip_prefix("fs ").unwrap_or(prefix);
    match words {
        "subvolumegroup create" => group::create(place, args).await,
        "subvolumegroup ls" => group::ls(place).await,
        "subvolumegroup rm" => group::rm(place, args).await,
        "subvolumegroup getpath" => group::getpath(place, args).await,
        "subvolumegroup info" => group::info(place, args).await,
        "subvolumegroup resize" => group::resize(place, args).await,
        "subvolumegroup exist" => group::exist(place).await,
        "subvolume create" => subvolume::create(place, args).await,
        "subvolume ls" => subvolume::ls(place, args).await,
        "subvolume rm" => trash::rm(place, args).await,
        "subvolume getpath" => subvolume::getpath(place, args).await,
        "subvolume info" => subvolume::info(place, args).await,
        "subvolume resize" => subvolume::resize(place, args).await,
        "subvolume exist" => subvolume::exist(place, args).await,
        "subvolume metadata set" => metadata::set(place, args).await,
        "subvolume metadata get" => metadata::get(place, args).await,
        "subvolume metadata ls" => metadata::ls(place, args).await,
        "subvolume metadata rm" => metadata::rm(place, args).await,
        "subvolume authorize" => authorize::authorize(place, args).await,
        "subvolume deauthorize" => authorize::deauthorize(place, args).await,
        "subvolume authorized_list" => authorize::authorized_list(place, args).await,
        "subvolume evict" => authorize::evict(place, args).await,
        "subvolume snapshot create" => snapshot::create(place, args).await,
        "subvolume snapshot rm" => snapshot::rm(place, args).await,
        "subvolume snapshot ls" => snapshot::ls(place, args).await,
        "subvolume snapshot info" => snapshot::info(place, args).await,
        "subvolume snapshot protect" | "subvolume snapshot unprotect" => snapshot::protect(place, args).await,
        "subvolume snapshot metadata set" => metadata::set(place, args).await,
        "subvolume snapshot metadata get" => metadata::get(place, args).await,
        "subvolume snapshot metadata ls" => metadata::ls(place, args).await,
        "subvolume snapshot metadata rm" => metadata::rm(place, args).await,
        "subvolume snapshot clone" => clone::begin(place, args).await,
        "clone status" => clone::status(place, args).await,
        "clone cancel" => clone::cancel(place, args).await,
        "subvolumegroup snapshot create" => snapshot::group_create(place, args).await,
        "subvolumegroup snapshot rm" => snapshot::group_rm(place, args).await,
        "subvolumegroup snapshot ls" => snapshot::group_ls(place, args).await,
        _ => Err(refusal(Errno::EOPNOTSUPP, format!("'{prefix}' is not built"))),
    }
}
