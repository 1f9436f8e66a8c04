//! From the keys in the store to a [`ClusterState`]: at start, and after another writer's commit.

use super::config::ConfigLogEntry;
use super::history::MapHistory;
use super::keys;
use super::state::{ClusterId, ClusterState, HealthMute};
use crate::kv::{Error, Kv, Result};
use bytes::Bytes;
use denc::Decode;
use std::collections::BTreeMap;
use std::sync::Arc;
use types::Epoch;
use types::osdmap::{Incremental, OsdMap};

fn value<T: Decode>(kv: &Kv) -> Result<T> {
    T::from_bytes(&kv.value).map_err(|e| bad(&kv.key, e))
}

fn bad(key: &str, why: impl std::fmt::Display) -> Error {
    Error::BadValue {
        key: key.to_string(),
        why: why.to_string(),
    }
}

fn text(kv: &Kv) -> Result<String> {
    String::from_utf8(kv.value.to_vec()).map_err(|e| bad(&kv.key, e))
}

fn number(key: &str, digits: &str) -> Result<u64> {
    u64::from_str_radix(digits, 16).map_err(|e| bad(key, e))
}

/// All keys, sorted into what they are.
#[derive(Default)]
struct Parts {
    incs: BTreeMap<Epoch, Bytes>,
    fulls: BTreeMap<Epoch, Bytes>,
    singles: BTreeMap<String, Kv>,
}

/// Builds the state of a cluster, or None when no cluster was created in this store.
pub fn load(rows: &[Kv]) -> Result<Option<ClusterState>> {
    let mut parts = Parts::default();
    for kv in rows {
        if let Some(e) = kv.key.strip_prefix(keys::OSDMAP_INC) {
            parts.incs.insert(number(&kv.key, e)? as Epoch, kv.value.clone());
        } else if let Some(e) = kv.key.strip_prefix(keys::OSDMAP_FULL) {
            parts.fulls.insert(number(&kv.key, e)? as Epoch, kv.value.clone());
        } else if !kv.key.contains('/') {
            parts.singles.insert(kv.key.clone(), kv.clone());
        }
    }
    let Some(cluster) = parts.singles.get(keys::CLUSTER) else {
        return Ok(None);
    };
    let id: ClusterId = value(cluster)?;
    let single = |key: &str| parts.singles.get(key).ok_or_else(|| bad(key, "is missing"));
    let version = single(keys::VERSION)?;
    let (osdmap, history) = load_maps(parts.incs, parts.fulls)?;
    let mut state = ClusterState {
        revision: version.revision,
        version: value(version)?,
        fsid: id.fsid,
        created: id.created,
        monmap: Arc::new(value(single(keys::MONMAP)?)?),
        mgrmap: Arc::new(value(single(keys::MGRMAP)?)?),
        fsmap: Arc::new(
            parts
                .singles
                .get(keys::FSMAP)
                .map(value)
                .transpose()?
                .unwrap_or_default(),
        ),
        osdmap: Arc::new(osdmap),
        history: Arc::new(history),
        config: Arc::default(),
        config_keys: Arc::default(),
        auth: Arc::default(),
        rotating: Arc::new(value(single(keys::ROTATING)?)?),
        mutes: Arc::default(),
        pgs: Arc::default(),
        osd_metadata: Arc::default(),
        log: Arc::default(),
        global_id_limit: value(single(keys::GLOBAL_ID_LIMIT)?)?,
    };
    for kv in rows {
        load_row(&mut state, kv)?;
    }
    Ok(Some(state))
}

fn load_row(state: &mut ClusterState, kv: &Kv) -> Result<()> {
    let key = kv.key.as_str();
    if let Some(rest) = key.strip_prefix(keys::CONFIG) {
        let (who, name) = rest.split_once("//").ok_or_else(|| bad(key, "no section"))?;
        Arc::make_mut(&mut state.config).put(who, name, Some(&text(kv)?));
    } else if key.starts_with(keys::CONFIG_LOG) {
        let entry: ConfigLogEntry = value(kv)?;
        let config = Arc::make_mut(&mut state.config);
        config.version = entry.version;
        config.log.push_back(entry);
    } else if let Some(name) = key.strip_prefix(keys::CONFIG_KEY) {
        Arc::make_mut(&mut state.config_keys).insert(name.to_string(), kv.value.clone());
    } else if let Some(name) = key.strip_prefix(keys::AUTH) {
        let name = name
            .parse()
            .map_err(|()| bad(key, "is not the name of an entity"))?;
        Arc::make_mut(&mut state.auth).entities.insert(name, value(kv)?);
    } else if key.starts_with(keys::MUTE) {
        let mute: HealthMute = value(kv)?;
        Arc::make_mut(&mut state.mutes).insert(mute.code.clone(), mute);
    } else if let Some(id) = key.strip_prefix(keys::OSD_METADATA) {
        let id = id.parse().map_err(|e| bad(key, e))?;
        Arc::make_mut(&mut state.osd_metadata).insert(id, value(kv)?);
    } else if key.starts_with(keys::PG_CONFIG) {
        Arc::make_mut(&mut state.pgs).load(kv)?;
    } else if let Some(n) = key.strip_prefix(keys::LOG) {
        let log = Arc::make_mut(&mut state.log);
        log.version = number(key, n)?;
        log.entries.push_back(value(kv)?);
    }
    Ok(())
}

/// The newest map from the newest full one and the increments behind it, checksums compared.
fn load_maps(incs: BTreeMap<Epoch, Bytes>, fulls: BTreeMap<Epoch, Bytes>) -> Result<(OsdMap, MapHistory)> {
    let (base, raw) = fulls
        .last_key_value()
        .ok_or_else(|| bad(keys::OSDMAP_FULL, "is missing"))?;
    let mut map = OsdMap::from_bytes(raw).map_err(|e| bad(&keys::full(*base), e))?;
    let mut full = raw.clone();
    for (epoch, raw) in incs.range(base + 1..) {
        let key = keys::inc(*epoch);
        let inc = Incremental::from_bytes(raw).map_err(|e| bad(&key, e))?;
        map.apply(&inc).map_err(|e| bad(&key, e))?;
        let (bytes, crc) = map.encode_for(u64::MAX);
        full = bytes;
        if crc != inc.full_crc {
            return Err(bad(&key, "leads to a map with another checksum"));
        }
    }
    let history = MapHistory {
        latest: map.epoch,
        latest_full: full,
        incs,
        fulls,
    };
    Ok((map, history))
}
