//! The OSDs of a node: their ids, their stores, the recipes for their runs.

use crate::node::Platform;
use crate::settle::StartOptions;
use crate::{DataDir, Error, OsdSlot, Settings, supervise};
use auth::Authenticator;
use metastore::{Change, Changes, ClusterHandle, ClusterState};
use std::net::SocketAddr;
use std::sync::Arc;
use types::clusterlog::LogLevel;
use types::{OsdId, Utime, Uuid};

/// Gives every OSD of this machine an id of the cluster, where those are not its own choice. Written down before
/// a store is made with it.
pub(crate) async fn take_ids(
    dir: &DataDir,
    settings: &mut Settings,
    cluster: &ClusterHandle,
    platform: &Platform,
) -> Result<(), Error> {
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

/// Makes the OSD's store if there is none, and the recipe for its runs.
pub(crate) fn osd_config(
    dir: &DataDir,
    index: usize,
    settings: &Settings,
    cluster: &ClusterHandle,
    auth: &Arc<dyn Authenticator>,
    peers: &osd::Peers,
    platform: &Platform,
    start: &StartOptions,
) -> Result<supervise::MakeConfig, Error> {
    let slot = settings.slots.get(index);
    let id = slot.and_then(|s| s.id).unwrap_or(index as i32);
    let path = dir.osd_path(id);
    let bad = |e: store::Error| Error::Osd {
        id,
        what: e.to_string(),
    };
    let memory = osd::Memory::of(settings.osd_memory.unwrap_or(osd::MEMORY_DEFAULT));
    let mut options = store::Options {
        osd_id: id,
        fsid: settings.fsid()?,
        max_bytes: settings.osd_size,
        disk_io: start.disk_io,
        device: start.devices.get(index).cloned(),
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
        auth: auth.clone(),
        cluster: cluster.clone(),
        peers: peers.clone(),
        clock: platform.clock.clone(),
        random: platform.random.clone(),
        entropy: platform.entropy(),
        hostname: platform.hostname.clone(),
        nonce: platform.random.u32(),
        disk_share,
        memory,
        lease: osd::Config::LEASE,
        hung_disk: osd::Config::HUNG_DISK,
    }))
}
