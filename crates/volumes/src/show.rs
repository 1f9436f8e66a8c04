//! How directories are described.

use crate::place::Place;
use cluster::volumes::Said;
use messages::fs::InodeStat;
use serde_json::{Map, Value, json};
use types::{AddrKind, Utime};

fn time(t: Utime) -> String {
    let (y, mo, d, h, mi, s) = t.civil();
    format!("{y:04}-{mo:02}-{d:02} {h:02}:{mi:02}:{s:02}")
}

/// With parts of a second.
pub fn time_exact(t: Utime) -> String {
    format!("{}.{:06}", time(t), t.nsec / 1000)
}

pub fn percent(used: u64, quota: Option<u64>) -> String {
    match quota {
        Some(q) => format!("{:.2}", used as f64 / q as f64 * 100.0),
        None => "undefined".into(),
    }
}

pub fn quota_of(stat: &InodeStat) -> Option<u64> {
    u64::try_from(stat.quota.max_bytes).ok().filter(|q| *q > 0)
}

/// Where clients of old find the monitors, or where all do.
pub fn mon_addrs(place: &Place<'_>) -> Vec<String> {
    let state = place.config.cluster.state();
    let mons = state.monmap.by_rank();
    let addr = |m: &types::MonInfo| {
        let legacy = m.addrs.0.iter().find(|a| a.kind == AddrKind::Legacy);
        let addr = legacy.copied().unwrap_or_else(|| m.addrs.msgr2_or_first());
        addr.sock.map(|s| s.to_string())
    };
    mons.filter_map(addr).collect()
}

/// What a group and a subvolume have in common, by the order of the keys.
pub fn directory(place: &Place<'_>, stat: &InodeStat) -> Map<String, Value> {
    let quota = quota_of(stat);
    let pool = i64::from(stat.layout.pool);
    let named = place.pools.iter().find(|(id, _)| *id == pool);
    let v = json!({
        "atime": time(stat.atime),
        "bytes_pcent": percent(stat.rbytes, quota),
        "bytes_quota": quota.map_or_else(|| "infinite".into(), Value::from),
        "bytes_used": stat.rbytes,
        "created_at": time(stat.btime),
        "ctime": time(stat.ctime),
        "data_pool": named.map_or("", |(_, n)| n.as_str()),
        "gid": stat.gid,
        "mode": stat.mode,
        "mon_addrs": mon_addrs(place),
        "mtime": time(stat.mtime),
        "uid": stat.uid,
    });
    v.as_object().cloned().unwrap_or_default()
}

/// After a resize.
pub fn resized(used: u64, quota: Option<u64>) -> Said {
    Said::Json(json!([
        {"bytes_used": used},
        {"bytes_quota": quota.unwrap_or_default()},
        {"bytes_pcent": percent(used, quota)},
    ]))
}

pub fn names(all: impl Iterator<Item = String>) -> Said {
    Said::Json(all.map(|n| json!({"name": n})).collect())
}

/// Keys in their order.
pub fn sorted(map: Map<String, Value>) -> Said {
    let mut all: Vec<(String, Value)> = map.into_iter().collect();
    all.sort_by(|a, b| a.0.cmp(&b.0));
    Said::Json(Value::Object(all.into_iter().collect()))
}
