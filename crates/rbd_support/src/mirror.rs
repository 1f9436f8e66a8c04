//! Snapshots for mirroring, by schedule: of images that take part by snapshots and are primary here.
//!
//! A time that passed while nobody worked is not made up for: the next one will do. An image that somebody demoted is left alone.
//!
//! Bound: [`IMAGES_MAX`] images; that there are more stands in the log.

use crate::connect::Broken;
use crate::part::{LOOK_TIMEOUT, Part, STUCK_AFTER, unless_stuck};
use client::{Client, IoCtx};
use cluster::rbd_support::{Found, Level, Schedules, Subject};
use cluster::{ClusterState, ImageKey};
use io::Random;
use rbd::mirror::{self, Mirrored};
use rbd::{Image, ImageOptions, directory};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use types::{Errno, PoolId, Uuid};

/// Between two looks at which images there are.
const LOOK_AFTER_SEC: u64 = 30;
const IMAGES_MAX: usize = 20_000;

type Named = BTreeMap<ImageKey, String>;

pub struct Context<'a> {
    pub client: &'a Client,
    pub broken: Broken,
    pub state: &'a ClusterState,
    pub random: Arc<dyn Random>,
    /// Seconds since 1970.
    pub now: u64,
}

pub struct Snapshots {
    /// All that was due up to then has been begun.
    seen: u64,
    schedules: Schedules,
    images: Named,
    looked: u64,
    looking: Option<Part<Named>>,
    running: Option<Part<()>>,
}

impl Snapshots {
    pub fn from(now: u64) -> Self {
        Self {
            seen: now,
            schedules: Schedules::default(),
            images: Named::new(),
            looked: 0,
            looking: None,
            running: None,
        }
    }

    pub fn abort(&mut self) {
        if let Some(part) = self.looking.take() {
            part.abort();
        }
        if let Some(part) = self.running.take() {
            part.abort();
        }
        // Who works again looks again.
        self.schedules = Schedules::default();
        self.images.clear();
    }

    /// There is nothing to do up to `now`, or nobody who should.
    pub fn idle(&mut self, now: u64) {
        self.seen = now;
    }

    /// Begins what is due; gives the images when it has looked at them.
    pub async fn follow(&mut self, cx: &Context<'_>, schedules: Schedules) -> Option<Named> {
        let changed = schedules != self.schedules;
        self.schedules = schedules;
        if self.schedules.levels.is_empty() {
            self.idle(cx.now);
            self.images.clear();
            return changed.then(Named::new);
        }
        let looked = self.look(cx, changed).await;
        if self.running.as_ref().is_some_and(|r| !r.is_over()) {
            return looked;
        }
        let is_due = |key: &ImageKey| {
            let next = self.schedules.next_after(&Level::from(key), self.seen);
            next.is_some_and(|at| at <= cx.now)
        };
        let due: Vec<ImageKey> = self.images.keys().filter(|k| is_due(k)).cloned().collect();
        self.seen = cx.now;
        if !due.is_empty() {
            let work = snapshot_all(cx.client.clone(), cx.broken.clone(), due, cx.random.clone());
            self.running = Some(Part(io::task::spawn_local(work)));
        }
        looked
    }

    async fn look(&mut self, cx: &Context<'_>, changed: bool) -> Option<Named> {
        if changed && let Some(looking) = self.looking.take() {
            looking.abort();
        }
        if let Some(looking) = self.looking.take() {
            if !looking.is_over() {
                self.looking = Some(looking);
                return None;
            }
            self.images = looking.ended().await?;
            return Some(self.images.clone());
        }
        if changed || cx.now.saturating_sub(self.looked) >= LOOK_AFTER_SEC {
            self.looked = cx.now;
            let pools = pools(cx.state, &self.schedules);
            let work = images(
                cx.client.clone(),
                cx.broken.clone(),
                pools,
                self.schedules.clone(),
            );
            self.looking = Some(Part(io::task::spawn_local(work)));
        }
        None
    }
}

/// Of images, with a schedule that says something about them.
pub fn pools(state: &ClusterState, schedules: &Schedules) -> Vec<PoolId> {
    let everywhere = schedules.levels.contains_key(&Level::everywhere());
    let named = |id: &PoolId| schedules.levels.keys().any(|l| l.pool == Some(*id));
    let pools = state.osdmap.pools.iter();
    let of_images = pools.filter(|(_, pool)| pool.application_metadata.contains_key("rbd"));
    let ids = of_images.map(|(id, _)| *id);
    ids.filter(|id| everywhere || named(id)).collect()
}

async fn images(client: Client, broken: Broken, pools: Vec<PoolId>, schedules: Schedules) -> Named {
    let mut out = Named::new();
    for pool in pools {
        let mut io = client.pool_by_id(pool);
        io.set_timeout(Some(LOOK_TIMEOUT));
        let mut namespaces = vec![String::new()];
        match directory::namespaces(&io).await {
            Ok(more) => namespaces.extend(more),
            Err(e) => {
                broken.heard(e.errno());
                tracing::warn!("pool {pool}: its namespaces are not known, so no snapshots there: {e}");
            }
        }
        for namespace in namespaces {
            if let Err(e) = images_of(&io, &namespace, &schedules, &mut out).await {
                broken.heard(e.errno());
                tracing::warn!("pool {pool}, namespace '{namespace}': no snapshots for mirroring: {e}");
            }
        }
    }
    out
}

async fn images_of(io: &IoCtx, namespace: &str, schedules: &Schedules, out: &mut Named) -> rbd::Result<()> {
    let mut io = io.clone();
    io.set_namespace(namespace.as_bytes().to_vec());
    for one in mirror::images(&io).await? {
        let key = ImageKey {
            pool: io.pool_id(),
            namespace: namespace.into(),
            id: one.id,
        };
        if schedules.nearest(&Level::from(&key)).is_none() {
            continue;
        }
        if out.len() >= IMAGES_MAX {
            tracing::warn!("more than {IMAGES_MAX} images have a schedule: the others get no snapshots");
            return Ok(());
        }
        match directory::name_of(&io, &key.id).await {
            Ok(name) => drop(out.insert(key, name)),
            // In the trash.
            Err(e) if e.is_not_found() => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

async fn snapshot_all(client: Client, broken: Broken, keys: Vec<ImageKey>, random: Arc<dyn Random>) {
    let mut stuck: BTreeSet<PoolId> = BTreeSet::new();
    for key in keys {
        if stuck.contains(&key.pool) {
            continue;
        }
        let mut io = client.pool_by_id(key.pool);
        io.set_namespace(key.namespace.clone().into_bytes());
        match unless_stuck(STUCK_AFTER, &AtomicU64::new(0), snapshot(&io, &key.id, &*random)).await {
            Some(Ok(Some(id))) => tracing::debug!("snapshot {id} of image {} for mirroring", key.id),
            Some(Ok(None)) => {}
            Some(Err(e)) => {
                broken.heard(e.errno());
                tracing::warn!("image {} gets no snapshot for mirroring this time: {e}", key.id);
            }
            None => {
                let (id, pool) = (&key.id, key.pool);
                tracing::warn!(
                    "image {id} and others of pool {pool} get no snapshots this time: the OSDs do not answer"
                );
                stuck.insert(pool);
            }
        }
    }
    if !stuck.is_empty() {
        // With the connection what it holds goes.
        broken.set();
    }
}

/// None: it is for nobody, or the image is not ours to take one of.
async fn snapshot(io: &IoCtx, id: &str, random: &dyn Random) -> rbd::Result<Option<u64>> {
    let Some(mirrored) = mirror::of_image(io, id).await? else {
        return Ok(None);
    };
    let peers = mirror::peers(io).await?;
    if peers.is_empty() {
        return Ok(None);
    }
    let options = ImageOptions {
        encrypted: true,
        ..ImageOptions::default()
    };
    let image = match Image::open_id(io, id, &options).await {
        // A copy: what is written elsewhere.
        Err(e) if e.errno() == Errno::EOPNOTSUPP => return Ok(None),
        other => other?,
    };
    let done = take(&image, &mirrored, peers, random).await;
    let closed = image.close().await;
    done.and_then(|done| closed.map(|()| done))
}

async fn take(
    image: &Image,
    mirrored: &Mirrored,
    peers: Vec<String>,
    random: &dyn Random,
) -> rbd::Result<Option<u64>> {
    let unique = Uuid::from_random(random.bytes());
    match image.create_mirror_snap(mirrored, peers, unique).await {
        // It was demoted meanwhile.
        Err(e) if e.errno() == Errno::EINVAL => Ok(None),
        done => done.map(Some),
    }
}

/// An image that somebody names in a schedule. The words are the real one's, without what it puts before them.
pub async fn find(io: &IoCtx, image: String, id: rbd::Result<String>) -> Found {
    let refused = |why: &str| Err((Errno::EINVAL, format!("image {image} {why}")));
    let id = match id {
        Ok(id) => id,
        Err(e) if e.is_not_found() => return refused("does not exist"),
        Err(e) => return Err((e.errno(), e.to_string())),
    };
    match mirror::of_image(io, &id).await {
        Ok(Some(_)) => Ok(Subject::new(image, id)),
        Ok(None) => refused("is not in snapshot mirror mode"),
        Err(e) => Err((e.errno(), e.to_string())),
    }
}
