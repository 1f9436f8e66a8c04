//! Daemons that have registered with the active manager, as `service dump|status` and `status` show them.

use crate::commands::context::Context;
use cluster::ServiceMap;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// None: no manager is active, or nobody has registered with it.
pub fn map<'a>(ctx: &Context<'a>) -> Option<&'a ServiceMap> {
    let active = ctx.state.mgrmap.active_gid;
    let of_active = ctx.stats.mons.values().find(|m| m.mgr_gid == active);
    of_active.map(|m| &m.services).filter(|m| m.epoch > 0)
}

/// `service dump`, and `servicemap` in the status.
pub fn dump(ctx: &Context<'_>) -> Value {
    let Some(map) = map(ctx) else {
        return json!({"epoch": 1, "modified": ctx.state.created.to_string(), "services": {}});
    };
    let mut services = Map::new();
    for (service, daemons) in &map.services {
        let mut shown = Map::from_iter([("summary".to_string(), "".into())]);
        for (name, d) in daemons {
            let mut addr = d.addrs.first();
            addr.kind = types::AddrKind::Any;
            shown.insert(
                name.clone(),
                json!({
                    "start_epoch": d.start_epoch,
                    "start_stamp": d.start_stamp.to_string(),
                    "gid": d.gid,
                    "addr": addr.to_string(),
                    "metadata": d.metadata,
                    "task_status": d.task_status,
                }),
            );
        }
        services.insert(service.clone(), json!({"daemons": shown}));
    }
    json!({"epoch": map.epoch, "modified": map.modified.to_string(), "services": services})
}

/// `service status`.
pub fn status(ctx: &Context<'_>) -> Value {
    let mut out = Map::new();
    for (service, daemons) in map(ctx).into_iter().flat_map(|m| &m.services) {
        let shown = daemons.iter().map(|(name, d)| {
            let value = json!({
                "status_stamp": d.status_stamp.to_string(),
                "last_beacon": d.last_beacon.to_string(),
                "status": d.status,
            });
            (name.clone(), value)
        });
        out.insert(service.clone(), Value::Object(shown.collect()));
    }
    Value::Object(out)
}

/// Names of services, and how many daemons on how many hosts in how many zones: for people. What a service calls its
/// daemons is `daemon_type` of the last that has one.
pub fn lines(ctx: &Context<'_>) -> Vec<(String, String)> {
    let services = map(ctx).into_iter().flat_map(|m| &m.services);
    services
        .map(|(service, daemons)| {
            let facts = |key: &'static str| daemons.values().filter_map(move |d| d.metadata.get(key));
            let hosts: BTreeSet<_> = daemons.values().map(|d| d.metadata.get("hostname")).collect();
            let zones: BTreeSet<_> = facts("zone_id").collect();
            let zones = match zones.len() {
                0 => String::new(),
                n => format!(", {n} zones"),
            };
            let noun = facts("daemon_type").last().map_or("daemon", String::as_str);
            let (n, hosts) = (daemons.len(), hosts.len());
            let plural = if n == 1 { "" } else { "s" };
            (
                service.clone(),
                format!("{n} {noun}{plural} active ({hosts} hosts{zones})"),
            )
        })
        .collect()
}

/// What each service's daemons run.
pub fn versions(ctx: &Context<'_>) -> Vec<(String, Vec<String>)> {
    let services = map(ctx).into_iter().flat_map(|m| &m.services);
    services
        .map(|(service, daemons)| {
            let version = |d: &cluster::ServiceDaemon| d.metadata.get("ceph_version").cloned();
            let all = daemons
                .values()
                .map(|d| version(d).unwrap_or_else(|| "unknown".into()));
            (service.clone(), all.collect())
        })
        .collect()
}
