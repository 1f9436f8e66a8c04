//! Features of daemons and of connected clients, counted.

use crate::commands::context::Context;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use types::EntityKind;

/// `[{"features":"0x…","release":"luminous","num":1}]`
fn feature_list(features: impl IntoIterator<Item = u64>) -> Value {
    let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
    for f in features {
        *counts.entry(f).or_default() += 1;
    }
    let one = |(f, n): (&u64, &u64)| json!({"features": format!("{f:#x}"), "release": "luminous", "num": n});
    counts.iter().map(one).collect::<Vec<_>>().into()
}

pub fn feature_map(ctx: &Context<'_>) -> Value {
    let own = types::release::feature::ALL_PACIFIC;
    let mut out = Map::new();
    out.insert("mon".into(), feature_list([own]));
    let osds = ctx.map().osd_ids().filter(|id| ctx.map().is_up(*id));
    let osds: Vec<u64> = osds
        .filter_map(|id| Some(ctx.map().osd(id)?.xinfo.features))
        .collect();
    if !osds.is_empty() {
        out.insert("osd".into(), feature_list(osds));
    }
    let clients = ctx.sessions.iter().filter(|s| s.name.kind == EntityKind::Client);
    let clients: Vec<u64> = clients.map(|s| s.features).collect();
    if !clients.is_empty() {
        out.insert("client".into(), feature_list(clients));
    }
    out.insert("mgr".into(), feature_list([own]));
    Value::Object(out)
}
