//! The OSDs of a node: their ids, their stores, the recipes for their runs, and their role.

use crate::monitor;
use crate::platform::Platform;
use crate::role::{Done, Plan, Role, Running};
use crate::{AuthMode, DataDir, Error, OsdSlot, Settings};
use auth::{AllowNone, Authenticator, ConMode, TicketVerifier};
use bytes::Bytes;
use cluster::{Change, Changes, ClusterState};
use io::group::Group;
use io::shared_thread::SharedThread;
use io::task;
use metastore::ClusterHandle;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::sync::{oneshot, watch};
use types::clusterlog::LogLevel;
use types::{EntityKind, OsdId, Utime, Uuid};

/// Gives every OSD of this machine an id of the cluster, where those are not its own choice. Written down before
/// a store is made with it.
pub(crate) async fn take_ids(
    dir: &DataDir,
    settings: &mut Settings,
    cluster: &ClusterHandle,
    platform: &Platform,
) -> Result<(), Error> {
    drop_retired(dir, settings, &cluster.state())?;
    if settings.etcd.is_none() {
        return Ok(());
    }
    if settings.slots.len() < settings.osds as usize {
        let fresh = || OsdSlot {
            uuid: Uuid::from_random(platform.random.bytes()).to_string(),
            id: None,
        };
        settings.slots.resize_with(settings.osds as usize, fresh);
        dir.write_settings(settings)?;
    }
    if settings.slots.iter().all(|s| s.id.is_some()) {
        return Ok(());
    }
    let uuids = settings
        .slots
        .iter()
        .map(slot_uuid)
        .collect::<Result<Vec<_>, _>>()?;
    let host = settings.host.clone().unwrap_or_default();
    let done = cluster
        .commit(|state| assign(state, &uuids, &host, cluster.now()))
        .await
        .map_err(|e| Error::Cluster(e.to_string()))?;
    for (slot, id) in settings.slots.iter_mut().zip(done.reply) {
        slot.id = Some(id);
    }
    dir.write_settings(settings)
}

/// Forgets the OSDs of this machine that were removed from the cluster: their data is elsewhere.
fn drop_retired(dir: &DataDir, settings: &mut Settings, state: &ClusterState) -> Result<(), Error> {
    let before = settings.osd_ids();
    if settings.etcd.is_some() {
        let gone = |slot: &OsdSlot| slot_uuid(slot).is_ok_and(|uuid| state.is_retired(uuid));
        let known = settings.slots.len();
        settings.slots.retain(|slot| !gone(slot));
        settings.osds -= ((known - settings.slots.len()) as u32).min(settings.osds);
    } else {
        let id = |said: &Bytes| {
            let text = String::from_utf8_lossy(said);
            text.split_whitespace()
                .next()?
                .strip_prefix("osd.")?
                .parse::<i32>()
                .ok()
        };
        settings.removed = state
            .retired()
            .filter_map(id)
            .filter(|id| *id < settings.osds as i32)
            .collect();
    }
    let left = settings.osd_ids();
    let gone: Vec<String> = before
        .iter()
        .filter(|id| !left.contains(id))
        .map(|id| format!("osd.{id}"))
        .collect();
    if !gone.is_empty() && left.is_empty() {
        return Err(Error::Usage(format!(
            "{} of this directory were removed from the cluster, and their data is elsewhere: to use this machine again, \
             start with an empty directory (--join)",
            gone.join(", ")
        )));
    }
    if !gone.is_empty() {
        tracing::warn!(
            "{} were removed from the cluster: their directories can be deleted",
            gone.join(", ")
        );
        dir.write_settings(settings)?;
    }
    Ok(())
}

fn slot_uuid(slot: &OsdSlot) -> Result<Uuid, Error> {
    slot.uuid
        .parse()
        .map_err(|()| Error::Settings(format!("uuid of an OSD: {:?}", slot.uuid)))
}

/// The ids of the OSDs with these identities; those that are new get the lowest free ones.
fn assign(state: &ClusterState, uuids: &[Uuid], host: &str, now: Utime) -> (Changes, Vec<OsdId>) {
    let map = &*state.osdmap;
    let mut out = Changes::none();
    let mut ids: Vec<OsdId> = Vec::with_capacity(uuids.len());
    let mut free = (0..).filter(|id| !map.exists(*id));
    for uuid in uuids {
        let known = map
            .osd_ids()
            .find(|id| map.osd(*id).is_some_and(|o| o.uuid == *uuid));
        let Some(id) = known.or_else(|| free.next()) else {
            continue;
        };
        if known.is_none() {
            out.inc(state, now).create_osd_with_id(map, id, *uuid);
            let text = format!("osd.{id} is new on {host}");
            out.push(Change::Log(state.log_entry(now, LogLevel::Info, text)));
        }
        ids.push(id);
    }
    (out, ids)
}

/// Place among the OSDs of this machine (as their devices are listed), and id.
fn places(settings: &Settings) -> impl Iterator<Item = (usize, OsdId)> + '_ {
    let id = |index: usize| {
        settings
            .slots
            .get(index)
            .and_then(|s| s.id)
            .unwrap_or(index as i32)
    };
    let all = (0..settings.osds as usize).map(move |index| (index, id(index)));
    all.filter(|(_, id)| !settings.removed.contains(id))
}

/// Turns true when the node stops, or when this OSD was removed from the cluster for good.
fn stop_of(id: OsdId, cluster: &ClusterHandle, stop: &watch::Receiver<bool>) -> watch::Receiver<bool> {
    let (end, ended) = watch::channel(*stop.borrow());
    let (mut states, mut stop) = (cluster.subscribe_state(), stop.clone());
    task::spawn_local(async move {
        let retired = |s: &Arc<ClusterState>| s.osdmap.osd(id).is_some_and(|o| s.is_retired(o.uuid));
        tokio::select! {
            _ = stop.wait_for(|s| *s) => {}
            _ = states.wait_for(retired) => tracing::info!("osd.{id}: was removed from the cluster: stopping"),
        }
        let _ = end.send(true);
    });
    ended
}

/// Makes the configuration of one run; asked again for each restart.
type Recipe = Arc<dyn Fn() -> osd::Config + Send + Sync>;

struct OsdRole {
    id: OsdId,
    name: String,
    recipe: Recipe,
    cluster: ClusterHandle,
    /// None: one of its own for each run.
    thread: Option<SharedThread>,
}

/// Processors for each thread that OSDs share: clients, the kernel and the stores' helpers want some, too.
const PROCESSORS_A_THREAD: usize = 4;
/// OSDs that share one, unless somebody wants it otherwise: each waits for a turn of all the others, and its lease does not wait.
const SHARED_BY: usize = 8;

/// The threads that OSDs share, by their places: those whose stores are on one file system, so that no disk holds up another
/// (docs/decisions/0016-shared-threads.md). An OSD with a device has a thread of its own, and so has each where there are
/// threads enough.
fn threads(plan: &Plan<'_>) -> Result<BTreeMap<usize, SharedThread>, Error> {
    let wanted = |osds: usize| match plan.options.osd_threads {
        Some(said) => said.get(),
        None => (io::thread::processors() / PROCESSORS_A_THREAD).max(osds.div_ceil(SHARED_BY)),
    };
    let mut disks: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for (index, id) in places(plan.settings).filter(|(index, _)| *index >= plan.options.devices.len()) {
        let path = plan.dir.osd_path(id);
        let disk = io::files::file_system(&path).map_err(|source| Error::DataDir { path, source })?;
        disks.entry(disk).or_default().push(index);
    }
    let mut shared = BTreeMap::new();
    for places in disks.values() {
        let wanted = wanted(places.len());
        if wanted >= places.len() {
            continue;
        }
        let name = |n: usize| format!("osds.{}", n + shared.len());
        let start = |n| SharedThread::start(&name(n)).map_err(Error::Thread);
        let threads = (0..wanted).map(start).collect::<Result<Vec<_>, _>>()?;
        shared.extend(places.iter().copied().zip(threads.iter().cycle().cloned()));
    }
    Ok(shared)
}

pub(crate) fn roles(plan: &Plan<'_>) -> Result<Vec<Box<dyn Role>>, Error> {
    let modes = vec![ConMode::Secure, ConMode::Crc];
    let auth = authenticator(plan.settings, plan.cluster, modes, plan.stopped.clone());
    let peers = osd::Peers::default();
    let mut recipes = Vec::new();
    for (index, id) in places(plan.settings) {
        recipes.push((index, id, recipe(plan, index, &auth, &peers)?));
    }
    // All stores are there now.
    let threads = threads(plan)?;
    let role = |(index, id, recipe)| -> Box<dyn Role> {
        Box::new(OsdRole {
            id,
            name: format!("osd.{id}"),
            recipe,
            cluster: plan.cluster.clone(),
            thread: threads.get(&index).cloned(),
        })
    };
    Ok(recipes.into_iter().map(role).collect())
}

impl Role for OsdRole {
    fn name(&self) -> &str {
        &self.name
    }

    fn start(
        &self,
        group: &Group,
        ready: oneshot::Sender<()>,
        stop: watch::Receiver<bool>,
    ) -> std::io::Result<Running> {
        let recipe = self.recipe.clone();
        let run = move || async move {
            let (up, told) = oneshot::channel();
            task::spawn_local(async move {
                if told.await.is_ok() {
                    let _ = ready.send(());
                }
            });
            let done = osd::serve(recipe(), up, stop).await;
            done.map_err(|e| e.to_string())
        };
        match &self.thread {
            Some(thread) => thread.spawn_group(group, run),
            None => task::spawn_group(group, &self.name, run),
        }
    }

    fn stop(&self, node: &watch::Receiver<bool>) -> watch::Receiver<bool> {
        stop_of(self.id, &self.cluster, node)
    }

    fn failed(&self) -> Done<'_> {
        Box::pin(async {
            if let Err(e) = self.cluster.osd_down(self.id).await {
                tracing::warn!("{}: not marked down: {e}", self.name);
            }
        })
    }
}

/// Makes the OSD's store if there is none, and the recipe for its runs.
fn recipe(
    plan: &Plan<'_>,
    index: usize,
    auth: &Arc<dyn Authenticator>,
    peers: &osd::Peers,
) -> Result<Recipe, Error> {
    let Plan {
        dir,
        settings,
        options: start,
        cluster,
        platform,
        ..
    } = *plan;
    let slot = settings.slots.get(index);
    let id = slot.and_then(|s| s.id).unwrap_or(index as i32);
    let path = dir.osd_path(id);
    let bad = |e: store::Error| Error::Osd {
        id,
        what: e.to_string(),
    };
    let memory = osd::Memory::of(settings.osd_memory.unwrap_or(osd::MEMORY_DEFAULT));
    let keys = start.osd_keys.as_deref().map(io::key_file::KeyFile::read);
    let keys = keys.transpose().map_err(|what| Error::Osd { id, what })?;
    let mut options = store::Options {
        osd_id: id,
        fsid: settings.fsid()?,
        max_bytes: settings.osd_size,
        disk_io: start.disk_io,
        device: start.devices.get(index).cloned(),
        keys,
        ..store::Options::for_memory(memory.store)
    };
    if let Some(keep) = settings.keep_free {
        let total = store::host_bytes(dir.root()).map_err(bad)?;
        options.host_reserve_bytes = keep.of(total);
    }
    // One that has never been up has no place in the tree yet.
    let map = cluster.osdmap();
    let known = map.osd(id).is_some_and(|o| !o.uuid.is_nil()) && map.crush.item_name(id).is_some();
    if known && io::files::list_dir(&path).is_ok_and(|names| names.is_empty()) {
        // A new store in its place would hide the old one's data, and block putting it back.
        let what = format!(
            "{} is missing or empty, but the cluster knows this OSD: put it back",
            path.display()
        );
        return Err(Error::Osd { id, what });
    }
    let uuid = match slot {
        Some(slot) => slot_uuid(slot)?,
        None => Uuid::from_random(platform.random.bytes()),
    };
    match store::Store::mkfs(
        &path,
        &store::Options {
            osd_uuid: uuid,
            ..options.clone()
        },
    ) {
        Ok(()) => tracing::info!("osd.{id}: new store in {}", path.display()),
        Err(store::Error::AlreadyAStore { .. }) => {
            if let Some(device) = &options.device
                && store::device_of(&path) != io::files::canonical(device).ok()
            {
                let what = format!("its store is there already, and not on {}", device.display());
                return Err(Error::Osd { id, what });
            }
        }
        Err(e) => return Err(bad(e)),
    }
    options.osd_uuid = Uuid::default();
    // Without a size of its own an OSD may grow into all free space of the file system, as may its neighbours.
    let disk_share = if settings.osd_size.is_some() || store::device_of(&path).is_some() {
        1
    } else {
        settings.osds.max(1)
    };
    // As Ceph names them; an operator may change it.
    let device = store::device_of(&path).unwrap_or_else(|| path.clone());
    let disk = io::machine::device(&device);
    let device_class = match disk.as_ref().and_then(|d| d.spins) {
        Some(true) => "hdd",
        Some(false) => "ssd",
        None => "",
    };
    let disk = disk.map_or_else(String::new, |d| d.name);
    let registry = plan.registries.of(&format!("osd.{id}"));
    let connections_max = platform.connections_max(settings);
    let spare = settings.spare && store::device_of(&path).is_none();
    let msgr1 = monitor::msgr1(plan).map(net::Msgr1::anywhere);
    let traces = plan.traces.clone();
    let (bind, cluster, auth, peers, platform) = (
        SocketAddr::new(settings.bind, 0),
        cluster.clone(),
        auth.clone(),
        peers.clone(),
        platform.clone(),
    );
    Ok(Arc::new(move || osd::Config {
        id,
        dir: path.clone(),
        store: options.clone(),
        bind,
        msgr1,
        auth: auth.clone(),
        cluster: cluster.clone(),
        peers: peers.clone(),
        traces: traces.clone(),
        clock: platform.clock.clone(),
        random: platform.random.clone(),
        entropy: platform.entropy(),
        hostname: platform.hostname.clone(),
        connections_max,
        device_class: device_class.to_string(),
        disk: disk.clone(),
        nonce: platform.random.u32(),
        disk_share,
        spare,
        memory,
        registry: registry.clone(),
        lease: osd::Config::LEASE,
        hung_disk: osd::Config::HUNG_DISK,
    }))
}

/// Checks clients' tickets with the secrets that the cluster state holds now and later.
fn authenticator(
    settings: &Settings,
    cluster: &ClusterHandle,
    modes: Vec<ConMode>,
    stop: watch::Receiver<bool>,
) -> Arc<dyn Authenticator> {
    if settings.auth == AuthMode::None {
        return Arc::new(AllowNone);
    }
    let secrets = |c: &ClusterHandle| {
        c.state()
            .rotating
            .get(EntityKind::Osd)
            .cloned()
            .unwrap_or_default()
    };
    let verifier = Arc::new(TicketVerifier::new(EntityKind::Osd, modes, secrets(cluster)));
    let state = cluster.state();
    verifier.set_entities(state.auth.clone(), state.version);
    let (handle, updated) = (cluster.clone(), verifier.clone());
    let (mut changes, mut stop) = (cluster.subscribe_state(), stop);
    task::spawn_local(async move {
        let mut known = secrets(&handle);
        let mut entities = state.auth.clone();
        loop {
            tokio::select! {
                _ = stop.wait_for(|s| *s) => return,
                changed = changes.changed() => if changed.is_err() { return },
            }
            let now = secrets(&handle);
            if now != known {
                updated.update(now.clone());
                known = now;
            }
            let state = handle.state();
            if !Arc::ptr_eq(&entities, &state.auth) {
                entities = state.auth.clone();
                updated.set_entities(entities.clone(), state.version);
            }
        }
    });
    verifier
}
