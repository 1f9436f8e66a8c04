//! From the store's rows to a [`ClusterState`]: from all of them at start, from the changed ones after another
//! writer's commit. Both give the same.

use crate::config::ConfigLogEntry;
use crate::format::Format;
use crate::history::MapHistory;
use crate::keys;
use crate::rows::{Row, RowEvent};
use crate::state::{ClusterId, ClusterLog, ClusterState, HealthMute};
use crate::{Error, Result};
use bytes::Bytes;
use denc::Decode;
use std::collections::BTreeMap;
use std::sync::Arc;
use types::Epoch;
use types::osdmap::{Incremental, OsdMap};

fn value<T: Decode>(row: &Row) -> Result<T> {
    T::from_bytes(row.value).map_err(|e| bad(row.key, e))
}

fn bad(key: &str, why: impl std::fmt::Display) -> Error {
    Error::BadValue {
        key: key.to_string(),
        why: why.to_string(),
    }
}

fn number(key: &str, digits: &str) -> Result<u64> {
    u64::from_str_radix(digits, 16).map_err(|e| bad(key, e))
}

/// All keys, sorted into what they are.
#[derive(Default)]
struct Parts<'a> {
    incs: BTreeMap<Epoch, Bytes>,
    fulls: BTreeMap<Epoch, Bytes>,
    singles: BTreeMap<&'a str, Row<'a>>,
}

/// Builds the state of a cluster, or None when no cluster was created in this store.
pub fn load(rows: &[Row]) -> Result<Option<ClusterState>> {
    let mut parts = Parts::default();
    for r in rows {
        if let Some(e) = r.key.strip_prefix(keys::OSDMAP_INC) {
            parts.incs.insert(number(r.key, e)? as Epoch, r.value.clone());
        } else if let Some(e) = r.key.strip_prefix(keys::OSDMAP_FULL) {
            parts.fulls.insert(number(r.key, e)? as Epoch, r.value.clone());
        } else if !r.key.contains('/') {
            parts.singles.insert(r.key, *r);
        }
    }
    let Some(cluster) = parts.singles.get(keys::CLUSTER) else {
        return Ok(None);
    };
    // Before anything else is read: it may mean something else.
    let format = parts.singles.get(keys::FORMAT);
    let format = format.map(|r| Format::read(r.value)).transpose()?;
    let id: ClusterId = value(cluster)?;
    let single = |key: &str| parts.singles.get(key).ok_or_else(|| bad(key, "is missing"));
    let version = single(keys::VERSION)?;
    let (osdmap, history) = load_maps(parts.incs, parts.fulls)?;
    let mut state = ClusterState {
        revision: version.revision,
        version: value(version)?,
        format,
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
        mds: Arc::default(),
        osdmap: Arc::new(osdmap),
        history: Arc::new(history),
        config: Arc::default(),
        config_keys: Arc::default(),
        auth: Arc::default(),
        rotating: Arc::new(value(single(keys::ROTATING)?)?),
        mutes: Arc::default(),
        pgs: Arc::default(),
        asked_down: Arc::default(),
        osd_metadata: Arc::default(),
        scrubs: Arc::default(),
        fences: Arc::default(),
        log: Arc::default(),
        audit: Arc::default(),
        snap_owners: Arc::default(),
        global_id_limit: value(single(keys::GLOBAL_ID_LIMIT)?)?,
    };
    for r in rows {
        row(&mut state, r.key, Some(r.value))?;
    }
    Ok(Some(state))
}

/// The snapshot that `state` becomes by `events`: all changes of whole commits, in order. Those that it holds
/// already are passed over. An error means that something is missing between.
pub fn advance(state: &ClusterState, events: &[RowEvent]) -> Result<ClusterState> {
    let mut next = state.clone();
    for e in events.iter().filter(|e| e.revision > state.revision) {
        let (key, new) = (e.key, e.value);
        if key == keys::VERSION {
            next.version = need(key, new)?;
            next.revision = e.revision;
        } else if let Some(epoch) = key.strip_prefix(keys::OSDMAP_INC) {
            map_changed(&mut next, key, number(key, epoch)? as Epoch, new)?;
        } else if let Some(epoch) = key.strip_prefix(keys::OSDMAP_FULL) {
            let fulls = &mut Arc::make_mut(&mut next.history).fulls;
            let epoch = number(key, epoch)? as Epoch;
            match new {
                Some(raw) => drop(fulls.insert(epoch, raw.clone())),
                None => drop(fulls.remove(&epoch)),
            }
        } else if key.contains('/') {
            row(&mut next, key, new)?;
        } else {
            single_changed(&mut next, key, new)?;
        }
    }
    Ok(next)
}

fn need<T: Decode>(key: &str, new: Option<&Bytes>) -> Result<T> {
    let raw = new.ok_or_else(|| bad(key, "was deleted"))?;
    T::from_bytes(raw).map_err(|e| bad(key, e))
}

fn single_changed(state: &mut ClusterState, key: &str, new: Option<&Bytes>) -> Result<()> {
    match key {
        keys::CLUSTER => {
            let id: ClusterId = need(key, new)?;
            if id.fsid != state.fsid {
                return Err(bad(key, "is another cluster's"));
            }
        }
        keys::FORMAT => state.format = new.map(Format::read).transpose()?,
        keys::MONMAP => state.monmap = Arc::new(need(key, new)?),
        keys::MGRMAP => state.mgrmap = Arc::new(need(key, new)?),
        keys::FSMAP => state.fsmap = Arc::new(need(key, new)?),
        keys::ROTATING => state.rotating = Arc::new(need(key, new)?),
        keys::GLOBAL_ID_LIMIT => state.global_id_limit = need(key, new)?,
        _ => {}
    }
    Ok(())
}

/// An increment was written, or left the window.
fn map_changed(state: &mut ClusterState, key: &str, epoch: Epoch, new: Option<&Bytes>) -> Result<()> {
    let history = Arc::make_mut(&mut state.history);
    let Some(raw) = new else {
        history.incs.remove(&epoch);
        return Ok(());
    };
    if epoch != state.osdmap.epoch + 1 {
        return Err(bad(key, format!("follows epoch {}", state.osdmap.epoch)));
    }
    let inc = Incremental::from_bytes(raw).map_err(|e| bad(key, e))?;
    let mut map = (*state.osdmap).clone();
    map.apply(&inc).map_err(|e| bad(key, e))?;
    let (full, crc) = map.encode_for(u64::MAX);
    if crc != inc.full_crc {
        return Err(bad(key, "leads to a map with another checksum"));
    }
    history.incs.insert(epoch, raw.clone());
    history.latest = epoch;
    history.latest_full = full;
    state.osdmap = Arc::new(map);
    Ok(())
}

/// One of the many keys with parts: its new value, or that it is gone.
fn row(state: &mut ClusterState, key: &str, new: Option<&Bytes>) -> Result<()> {
    if let Some(rest) = key.strip_prefix(keys::CONFIG) {
        let (who, name) = rest.split_once("//").ok_or_else(|| bad(key, "no section"))?;
        let text = new.map(|raw| std::str::from_utf8(raw).map_err(|e| bad(key, e)));
        Arc::make_mut(&mut state.config).put(who, name, text.transpose()?);
    } else if let Some(n) = key.strip_prefix(keys::CONFIG_LOG) {
        let config = Arc::make_mut(&mut state.config);
        if new.is_none() {
            let gone = number(key, n)?;
            config.log.retain(|e| e.version != gone);
            return Ok(());
        }
        let entry: ConfigLogEntry = need(key, new)?;
        config.version = entry.version;
        config.log.push_back(entry);
    } else if let Some(name) = key.strip_prefix(keys::CONFIG_KEY) {
        put_or_remove(&mut state.config_keys, name.to_string(), new.cloned());
    } else if let Some(name) = key.strip_prefix(keys::AUTH) {
        let name = name
            .parse()
            .map_err(|()| bad(key, "is not the name of an entity"))?;
        let entities = &mut Arc::make_mut(&mut state.auth).entities;
        match new {
            Some(_) => drop(entities.insert(name, need(key, new)?)),
            None => drop(entities.remove(&name)),
        }
    } else if let Some(code) = key.strip_prefix(keys::MUTE) {
        let mute: Option<HealthMute> = new.map(|_| need(key, new)).transpose()?;
        put_or_remove(&mut state.mutes, code.to_string(), mute);
    } else if let Some(id) = key.strip_prefix(keys::ASKED_DOWN) {
        let id = id.parse().map_err(|e| bad(key, e))?;
        let up_from = new.map(|_| need(key, new)).transpose()?;
        put_or_remove(&mut state.asked_down, id, up_from);
    } else if let Some(id) = key.strip_prefix(keys::OSD_METADATA) {
        let id = id.parse().map_err(|e| bad(key, e))?;
        let metadata = new.map(|_| need(key, new)).transpose()?;
        put_or_remove(&mut state.osd_metadata, id, metadata);
    } else if let Some(gid) = key.strip_prefix(keys::MDS) {
        let gid = gid.parse().map_err(|e| bad(key, e))?;
        let daemon = new.map(|_| need(key, new)).transpose()?;
        put_or_remove(&mut state.mds, gid, daemon);
    } else if key.starts_with(keys::PG_CONFIG) {
        Arc::make_mut(&mut state.pgs).take_row(key, new)?;
    } else if let Some(pool) = key.strip_prefix(keys::SCRUB) {
        let pool = pool.parse().map_err(|e| bad(key, e))?;
        let rows = new.map(|_| need(key, new)).transpose()?.unwrap_or_default();
        crate::scrubs::take_row(Arc::make_mut(&mut state.scrubs), pool, rows);
    } else if let Some(entry) = key.strip_prefix(keys::FENCE) {
        let fenced = new.map(|_| need(key, new)).transpose()?;
        put_or_remove(&mut state.fences, entry.to_string(), fenced);
    } else if let Some(n) = key.strip_prefix(keys::LOG) {
        log_row(Arc::make_mut(&mut state.log), key, n, new)?;
    } else if let Some(n) = key.strip_prefix(keys::AUDIT) {
        log_row(Arc::make_mut(&mut state.audit), key, n, new)?;
    } else if key.starts_with(keys::SNAP_OWNER) {
        Arc::make_mut(&mut state.snap_owners).take_row(key, new)?;
    }
    Ok(())
}

fn log_row(log: &mut ClusterLog, key: &str, n: &str, new: Option<&Bytes>) -> Result<()> {
    match new {
        Some(_) => {
            log.version = number(key, n)?;
            log.entries.push_back(need(key, new)?);
        }
        // The oldest goes; a batch of changes names them in order.
        None => drop(log.entries.pop_front()),
    }
    Ok(())
}

fn put_or_remove<K: Ord + Clone, V: Clone>(map: &mut Arc<BTreeMap<K, V>>, key: K, value: Option<V>) {
    let map = Arc::make_mut(map);
    match value {
        Some(value) => drop(map.insert(key, value)),
        None => drop(map.remove(&key)),
    }
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
