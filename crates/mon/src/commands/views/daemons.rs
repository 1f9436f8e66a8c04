//! What daemons say of themselves: versions, hosts, facts.

use crate::commands::context::{Context, MonInfo};
use crate::commands::views::monmap::quorum;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use types::fsmap::MdsInfo;
use types::{OsdId, release};

/// What a daemon did not say.
const UNKNOWN: &str = "unknown";

/// Facts about the program and machine that monitor and manager share, in alphabetical order.
pub fn own_metadata(mon: &MonInfo) -> Map<String, Value> {
    let mut m: BTreeMap<&str, String> = BTreeMap::new();
    m.extend(release::VERSION_FACTS.map(|(k, v)| (k, v.to_string())));
    m.insert("hostname", mon.hostname.clone());
    for (k, v) in &mon.metadata {
        m.insert(k, v.clone());
    }
    m.into_iter()
        .map(|(k, v)| (k.to_string(), Value::String(v)))
        .collect()
}

pub fn osd_facts(ctx: &Context<'_>, id: OsdId) -> Map<String, Value> {
    let mut m = Map::new();
    m.insert("id".into(), id.into());
    let mut known = ctx.osd_metadata(id).cloned().unwrap_or_default();
    // The id is a number.
    known.remove("id");
    m.extend(known.into_iter().map(|(k, v)| (k, v.into())));
    m
}

pub fn all_osd_facts(ctx: &Context<'_>) -> Value {
    ctx.map()
        .osd_ids()
        .map(|id| Value::Object(osd_facts(ctx, id)))
        .collect()
}

/// Versions of the OSDs that are up.
pub fn osd_versions(ctx: &Context<'_>) -> Vec<String> {
    let up = ctx.map().osd_ids().filter(|id| ctx.map().is_up(*id));
    up.map(|id| {
        let said = ctx.osd_metadata(id).and_then(|m| m.get("ceph_version"));
        said.map_or(UNKNOWN.to_string(), String::clone)
    })
    .collect()
}

/// Versions of the monitors that live.
pub fn mon_versions(ctx: &Context<'_>) -> Vec<String> {
    let living = quorum(ctx).into_iter();
    living
        .map(|(_, name)| value_of(&mon_facts(ctx, &name), "ceph_version"))
        .collect()
}

/// Versions of the managers, the active one first: each is in the process of a monitor, and so of its version.
pub fn mgr_versions(ctx: &Context<'_>) -> Vec<String> {
    let map = &ctx.state.mgrmap;
    let active = map.available.then_some(&map.active_name).into_iter();
    let all = active.chain(map.standbys.values().map(|s| &s.name));
    let monitor_of = |mgr: &String| match *mgr == ctx.mon.mgr_name {
        true => Some(ctx.mon.name.clone()),
        false => ctx
            .stats
            .mons
            .values()
            .find(|m| m.mgr_name == *mgr)
            .map(|m| m.name.clone()),
    };
    let version = |mon: Option<String>| mon.map(|m| value_of(&mon_facts(ctx, &m), "ceph_version"));
    all.map(|mgr| version(monitor_of(mgr)).unwrap_or_else(|| UNKNOWN.into()))
        .collect()
}

/// Facts about a living monitor; of one that does not live only its addresses are known.
pub fn mon_facts(ctx: &Context<'_>, name: &str) -> Map<String, Value> {
    let mut m = Map::new();
    let addrs = ctx.state.monmap.mon_info.get(name).map(|i| i.addrs.to_string());
    m.insert("addrs".into(), addrs.unwrap_or_default().into());
    match ctx.stats.mons.get(name) {
        Some(other) if name != ctx.mon.name => {
            let known = other.metadata.iter().filter(|(k, _)| k.as_str() != "addrs");
            m.extend(known.map(|(k, v)| (k.clone(), Value::from(v.clone()))));
        }
        _ if name == ctx.mon.name => m.extend(own_metadata(ctx.mon)),
        _ => {}
    }
    m
}

/// Facts about a metadata server that is in the map.
pub fn mds_facts(ctx: &Context<'_>, info: &MdsInfo) -> Map<String, Value> {
    let mut m = Map::new();
    m.insert("addr".into(), info.addrs.to_string().into());
    let said = ctx.state.mds.get(&info.gid);
    let facts = said.into_iter().flat_map(|d| &d.metadata);
    m.extend(facts.map(|(k, v)| (k.clone(), Value::from(v.clone()))));
    m
}

/// Versions of the metadata servers that are in the map.
pub fn mds_versions(ctx: &Context<'_>) -> Vec<String> {
    let all = ctx.state.fsmap.daemons();
    all.map(|i| value_of(&mds_facts(ctx, i), "ceph_version"))
        .collect()
}

pub fn value_of(facts: &Map<String, Value>, property: &str) -> String {
    facts
        .get(property)
        .and_then(Value::as_str)
        .unwrap_or(UNKNOWN)
        .to_string()
}
