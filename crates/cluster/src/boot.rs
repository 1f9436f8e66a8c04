//! An OSD comes up or goes down: the changes of the OSD map, decided from the state alone.

use crate::broken::{self, Rule};
use crate::changes::{Change, Changes};
use crate::facts::serves_shards;
use crate::state::ClusterState;
use std::collections::BTreeMap;
use types::clusterlog::LogLevel;
use types::osdmap::{
    Incremental, MAX_OSD_LIMIT, OsdBoot as MapBoot, OsdMap, WEIGHT_OUT, map_flag, osd_state,
};
use types::pool::PgPool;
use types::{EntityAddrVec, OsdId, Utime, Uuid};

/// What an OSD says when it begins to serve.
#[derive(Debug, Clone)]
pub struct OsdBoot {
    pub id: OsdId,
    /// Identity of its data directory.
    pub uuid: Uuid,
    pub client_addrs: EntityAddrVec,
    pub cluster_addrs: EntityAddrVec,
    pub hb_back_addrs: EntityAddrVec,
    pub hb_front_addrs: EntityAddrVec,
    /// Size of its disk: gives the CRUSH weight of a new OSD (1.0 per TiB).
    pub size_bytes: u64,
    pub host: String,
    /// "hdd", "ssd", "nvme" or empty.
    pub device_class: String,
    pub features: u64,
    pub metadata: BTreeMap<String, String>,
}

/// CRUSH weight of 1.0 stands for so many bytes.
const BYTES_PER_WEIGHT: f64 = (1u64 << 40) as f64;

/// CRUSH weight of a disk: its size in TiB, and never nothing. In whole thousandths, as CRUSH's text form
/// prints it: a map that went through a text editor is then the same map.
pub fn weight_for(size_bytes: u64) -> u32 {
    let thousandths = (size_bytes as f64 / BYTES_PER_WEIGHT * 1000.0).round().max(1.0);
    crush::weight_from_f64(thousandths / 1000.0)
}

/// True if the map says already what the OSD wants it to say.
fn is_up_as(map: &OsdMap, boot: &OsdBoot) -> bool {
    map.is_up(boot.id)
        && map.osd(boot.id).is_some_and(|o| {
            o.client_addrs == boot.client_addrs
                && o.cluster_addrs == boot.cluster_addrs
                && o.hb_back_addrs == boot.hb_back_addrs
                && o.hb_front_addrs == boot.hb_front_addrs
        })
}

/// Marks the OSD down if the map has it up as something else: another address, an earlier run.
pub fn down_if_moved(state: &ClusterState, boot: &OsdBoot, now: Utime) -> Changes {
    let moved = state.osdmap.is_up(boot.id) && !is_up_as(&state.osdmap, boot);
    match moved && !broken::is(Rule::DownBeforeUp) {
        true => down(state, &[boot.id], now),
        false => Changes::none(),
    }
}

/// Marks an OSD up; creates it and its place in the CRUSH tree when its id is new. The inner error is why the
/// cluster does not want it.
pub fn decide(state: &ClusterState, boot: &OsdBoot, now: Utime) -> (Changes, Result<(), String>) {
    match changes(state, boot, now) {
        Ok(changes) => (changes, Ok(())),
        Err(why) => (Changes::none(), Err(why)),
    }
}

/// Why the cluster does not want the OSD, whatever its id is.
fn is_not_wanted(state: &ClusterState, boot: &OsdBoot) -> Option<String> {
    if let Some(said) = state.config_keys.get(&crate::keys::retired(boot.uuid)) {
        return Some(format!(
            "it was removed from the cluster ({})",
            String::from_utf8_lossy(said)
        ));
    }
    let coded = state.osdmap.pools.values().any(PgPool::is_erasure);
    // Whatever it would lead nobody would serve.
    (coded && !serves_shards(&boot.metadata)).then(|| {
        "it does not serve erasure-coded pools, of which the cluster has some: start a newer Skep".to_string()
    })
}

fn changes(state: &ClusterState, boot: &OsdBoot, now: Utime) -> Result<Changes, String> {
    let map = &*state.osdmap;
    let id = boot.id;
    if id < 0 || id as usize >= MAX_OSD_LIMIT {
        return Err(format!("osd.{id} is not a possible id"));
    }
    if let Some(why) = is_not_wanted(state, boot) {
        return Err(why);
    }
    let mut out = Changes::none();
    if state.osd_metadata.get(&id) != Some(&boot.metadata) {
        out.push(Change::OsdMetadata {
            id,
            metadata: boot.metadata.clone(),
        });
    }
    let known = map.exists(id).then(|| map.osd(id)).flatten();
    match known {
        Some(slot) if !slot.uuid.is_nil() && slot.uuid != boot.uuid => {
            return Err(format!(
                "osd.{id} of this cluster is {}, this data directory is {}",
                slot.uuid, boot.uuid
            ));
        }
        Some(slot) if slot.state & osd_state::DESTROYED != 0 => {
            return Err(format!("osd.{id} was destroyed"));
        }
        Some(_) if is_up_as(map, boot) => return Ok(out),
        _ => {}
    }
    let mut inc = Incremental::next_after(map, now);
    let is_new = known.is_none();
    if known.is_none_or(|slot| slot.uuid.is_nil()) {
        inc.create_osd_with_id(map, id, boot.uuid);
        // It comes up in the same epoch: the XOR mask of a creation must not touch the state then.
        inc.new_state.remove(&id);
    }
    let addrs = MapBoot {
        client_addrs: boot.client_addrs.clone(),
        cluster_addrs: boot.cluster_addrs.clone(),
        hb_back_addrs: boot.hb_back_addrs.clone(),
        hb_front_addrs: boot.hb_front_addrs.clone(),
        features: boot.features,
    };
    inc.boot_osd(map, id, &addrs);
    if is_new && map.has_flag(map_flag::NOIN) {
        // It waits for the operator's `osd in`.
        inc.new_weight.insert(id, WEIGHT_OUT);
    }
    if is_new || map.crush.item_name(id).is_none() {
        place(&mut inc, map, boot)?;
    }
    out.osdmap = Some(Box::new(inc));
    if state.asked_down.contains_key(&id) {
        // That was about an earlier life.
        out.push(Change::AskDown { id, up_from: None });
    }
    out.push(Change::Log(state.log_entry(
        now,
        LogLevel::Info,
        format!("osd.{id} {} boot", boot.client_addrs),
    )));
    Ok(out)
}

/// Puts a new OSD into the CRUSH tree under its host.
fn place(inc: &mut Incremental, map: &OsdMap, boot: &OsdBoot) -> Result<(), String> {
    let host = bucket_name(&boot.host);
    let crush = inc.crush_mut(map);
    let weight = weight_for(boot.size_bytes);
    crush
        .add_osd(boot.id, weight, &[("host", host.as_str()), ("root", "default")])
        .map_err(|e| format!("osd.{} cannot be placed below host {host}: {e}", boot.id))?;
    if !boot.device_class.is_empty() {
        crush
            .set_device_class(boot.id, &boot.device_class)
            .map_err(|e| e.to_string())?;
    }
    Ok(())
}

/// A host name as CRUSH allows it; never the name of a device or the root.
pub fn bucket_name(host: &str) -> String {
    let short = host.split('.').next().unwrap_or_default();
    let mut name: String = short
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || c == '-' || c == '_' {
                c
            } else {
                '_'
            }
        })
        .collect();
    if name.is_empty() {
        name = "localhost".into();
    }
    if name == "default" || name.starts_with("osd") {
        name.insert_str(0, "host-");
    }
    name
}

/// Marks OSDs down that are up.
pub fn down(state: &ClusterState, ids: &[OsdId], now: Utime) -> Changes {
    down_for(state, ids, now, "")
}

/// The same, less those that an operator keeps up (`ceph osd set nodown`).
pub fn down_unless_kept(state: &ClusterState, ids: &[OsdId], now: Utime, why: &str) -> Changes {
    let map = &*state.osdmap;
    if map.has_flag(map_flag::NODOWN) {
        return Changes::none();
    }
    let kept = |id: &OsdId| map.osd(*id).is_some_and(|o| o.state & osd_state::NODOWN != 0);
    let ids: Vec<_> = ids.iter().copied().filter(|id| !kept(id)).collect();
    down_for(state, &ids, now, why)
}

/// Marks OSDs down that are up, and says why in the cluster log.
pub fn down_for(state: &ClusterState, ids: &[OsdId], now: Utime, why: &str) -> Changes {
    let map = &*state.osdmap;
    let up: Vec<_> = ids.iter().copied().filter(|id| map.is_up(*id)).collect();
    if up.is_empty() {
        return Changes::none();
    }
    let mut inc = Incremental::next_after(map, now);
    let mut log = Vec::new();
    let why = match why {
        "" => String::new(),
        why => format!(" ({why})"),
    };
    for id in up {
        inc.mark_down(map, id);
        if state.asked_down.contains_key(&id) {
            log.push(Change::AskDown { id, up_from: None });
        }
        log.push(Change::Log(state.log_entry(
            now,
            LogLevel::Info,
            format!("osd.{id} is marked down{why}"),
        )));
    }
    Changes {
        osdmap: Some(Box::new(inc)),
        list: log,
        ..Changes::default()
    }
}
