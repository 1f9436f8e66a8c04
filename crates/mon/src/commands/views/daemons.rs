//! What daemons say of themselves: versions, hosts, facts.

use crate::commands::context::{Context, MonInfo};
use crate::commands::views::show;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use types::OsdId;

/// Facts about the program and machine that monitor and manager share, in alphabetical order.
pub fn own_metadata(mon: &MonInfo) -> Map<String, Value> {
    let mut m: BTreeMap<&str, String> = BTreeMap::from([
        ("ceph_release", show::RELEASE.into()),
        ("ceph_version", show::VERSION.into()),
        ("ceph_version_short", show::VERSION_SHORT.into()),
        ("hostname", mon.hostname.clone()),
    ]);
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
    // The id is a number, and programs compare the versions of all daemons.
    known.remove("id");
    known
        .entry("ceph_version".into())
        .or_insert_with(|| show::VERSION.into());
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
        said.map_or(show::VERSION.to_string(), String::clone)
    })
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
            m.insert("ceph_version".into(), show::VERSION.into());
        }
        _ if name == ctx.mon.name => m.extend(own_metadata(ctx.mon)),
        _ => {}
    }
    m
}

pub fn value_of(facts: &Map<String, Value>, property: &str) -> String {
    facts
        .get(property)
        .and_then(Value::as_str)
        .unwrap_or("unknown")
        .to_string()
}
