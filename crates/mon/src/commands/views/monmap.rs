//! The monitor map, and which monitors of it live.

use crate::commands::context::Context;
use crate::commands::views::show;
use serde_json::{Value, json};
use types::monmap::mon_feature_names;
use types::release;

/// Monitors of the map that live, by rank: the one that answers, and those whose sign of life is in the cluster state.
pub fn quorum(ctx: &Context<'_>) -> Vec<(i32, String)> {
    let lives = |name: &str| name == ctx.mon.name || ctx.stats.mons.contains_key(name);
    let ranked = ctx.state.monmap.by_rank().enumerate();
    ranked
        .filter(|(_, i)| lives(&i.name))
        .map(|(rank, i)| (rank as i32, i.name.clone()))
        .collect()
}

/// `a,b,c`
pub fn quorum_names(ctx: &Context<'_>) -> String {
    let names: Vec<String> = quorum(ctx).into_iter().map(|(_, name)| name).collect();
    names.join(",")
}

pub fn monmap_json(ctx: &Context<'_>) -> Value {
    let m = &ctx.state.monmap;
    let mons: Vec<Value> = m
        .by_rank()
        .enumerate()
        .map(|(rank, i)| {
            let legacy = show::legacy_addr(&i.addrs);
            json!({
                "rank": rank,
                "name": i.name,
                "public_addrs": show::addrs(&i.addrs),
                "addr": legacy,
                "public_addr": legacy,
                "priority": i.priority,
                "weight": i.weight,
                "crush_location": "{}",
            })
        })
        .collect();
    json!({
        "epoch": m.epoch,
        "fsid": m.fsid.to_string(),
        "modified": show::time_z(m.last_changed),
        "created": show::time_z(m.created),
        "min_mon_release": m.min_mon_release,
        "min_mon_release_name": release::name(m.min_mon_release),
        "election_strategy": m.strategy,
        // The real one's keys do end in colon and space.
        "disallowed_leaders: ": "",
        "stretch_mode": false,
        "tiebreaker_mon": "",
        "removed_ranks: ": "",
        "features": {
            "persistent": mon_feature_names(m.persistent_features),
            "optional": mon_feature_names(m.optional_features),
        },
        "mons": mons,
    })
}
