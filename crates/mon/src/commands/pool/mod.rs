//! Commands about pools as a whole: list, create, delete, rename, set, snapshots, statistics.
//!
//! What changes a pool is in [`crate::policies::pools`] and [`crate::policies::pool_set`], shared with the POOLOP message.

pub mod applications;
mod get;
#[cfg(test)]
mod transcript;

use crate::commands::command::{Command, Outcome, lines};
use crate::commands::context::Context;
use crate::commands::language::ids::unknown_pool;
use crate::commands::spec::{DEPRECATED, Spec, spec};
use crate::commands::views::pg_stats::{Figures, count};
use crate::commands::views::{io_rates, osd_map, pg_stats};
use crate::format::json::significant;
use crate::format::{Align, Table};
use crate::policies::pools::{Done, NewPool, PoolError, RuleChoice};
use crate::policies::{pool_set, pools};
use cluster::Changes;
use serde_json::{Value, json};
use types::osdmap::Incremental;
use types::pool::{AUTOSCALE_OFF, AUTOSCALE_ON, AUTOSCALE_WARN, PoolOption, autoscale_mode_name, pool_flag};
use types::{Errno, PoolId};

const R: (&str, &str) = ("osd", "r");
const RW: (&str, &str) = ("osd", "rw");

pub const TABLE: &[Spec] = &[
    spec(R, "osd lspools", "ids and names of the pools", lspools).flagged(DEPRECATED),
    spec(R, "osd pool ls detail?:choice(detail)", "names of the pools, or all about them", ls),
    spec(R, "osd pool stats pool_name?:pool", "what goes on in the pools", stats).by_manager(""),
    spec(
        RW,
        "osd pool create pool:pool pg_num?:int(0..) pgp_num?:int(0..) pool_type?:choice(replicated|erasure) erasure_code_profile?:str([A-Za-z0-9-_.]) rule?:str expected_num_objects?:int(0..) size?:int(0..) pg_num_min?:int(0..) pg_num_max?:int(0..) autoscale_mode?:choice(on|off|warn) bulk?:bool target_size_bytes?:int(0..) target_size_ratio?:float(0.0..)",
        "create a pool",
        create,
    ),
    spec(
        RW,
        "osd pool delete pool:pool pool2?:pool yes_i_really_really_mean_it?:bool yes_i_really_really_mean_it_not_faking?:bool",
        "delete a pool with all its data",
        delete,
    )
    .flagged(DEPRECATED),
    spec(
        RW,
        "osd pool rm pool:pool pool2?:pool yes_i_really_really_mean_it?:bool yes_i_really_really_mean_it_not_faking?:bool",
        "delete a pool with all its data",
        delete,
    ),
    spec(RW, "osd pool rename srcpool:pool destpool:pool", "rename a pool", rename),
    get::GET,
    spec(
        RW,
        "osd pool set pool:pool var:choice(size|min_size|pg_num|pgp_num|pgp_num_actual|crush_rule|hashpspool|nodelete|nopgchange|nosizechange|write_fadvise_dontneed|noscrub|nodeep-scrub|hit_set_type|hit_set_period|hit_set_count|hit_set_fpp|use_gmt_hitset|target_max_bytes|target_max_objects|cache_target_dirty_ratio|cache_target_dirty_high_ratio|cache_target_full_ratio|cache_min_flush_age|cache_min_evict_age|min_read_recency_for_promote|min_write_recency_for_promote|fast_read|hit_set_grade_decay_rate|hit_set_search_last_n|scrub_min_interval|scrub_max_interval|deep_scrub_interval|recovery_priority|recovery_op_priority|scrub_priority|compression_mode|compression_algorithm|compression_required_ratio|compression_max_blob_size|compression_min_blob_size|csum_type|csum_min_block|csum_max_block|allow_ec_overwrites|fingerprint_algorithm|pg_autoscale_mode|pg_autoscale_bias|pg_num_min|pg_num_max|target_size_bytes|target_size_ratio|dedup_tier|dedup_chunk_algorithm|dedup_cdc_chunk_size|eio|bulk) val:str yes_i_really_mean_it?:bool",
        "change a setting of a pool",
        set,
    ),
    spec(
        RW,
        "osd pool set-quota pool:pool field:choice(max_objects|max_bytes) val:str",
        "limit a pool in bytes or objects; 0 lifts the limit",
        set_quota,
    ),
    spec(R, "osd pool get-quota pool:pool", "limits of a pool", get::quota),
    spec(RW, "osd pool mksnap pool:pool snap:str", "take a snapshot of a pool", mksnap),
    spec(RW, "osd pool rmsnap pool:pool snap:str", "remove a snapshot of a pool", rmsnap),
    spec(("mgr", "r"), "osd pool autoscale-status format?:str", "sizes of the pools and their placement groups", autoscale).by_manager("pg_autoscaler"),
];

/// A change of the map that `f` makes in an increment, as an answer.
pub fn change(ctx: &Context<'_>, f: impl FnOnce(&mut Incremental) -> Result<Done, PoolError>) -> Outcome {
    let mut inc = ctx.inc();
    match f(&mut inc) {
        Ok(Done::Changed(text)) => Outcome::status(text).with(Changes::map(inc)),
        Ok(Done::Already(text)) => Outcome::status(text),
        Err(e) => Outcome::error(e.errno, e.text),
    }
}

/// Pools as (id, name).
fn named(ctx: &Context<'_>) -> Vec<(PoolId, String)> {
    let names = ctx.map().pool_names.iter();
    names.map(|(id, n)| (*id, n.clone())).collect()
}

fn lspools(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let pools = named(ctx);
    cmd.either(
        || {
            pools
                .iter()
                .map(|(id, n)| json!({"poolnum": id, "poolname": n}))
                .collect()
        },
        || lines(pools.iter().map(|(id, n)| format!("{id} {n}"))),
    )
}

fn ls(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let map = ctx.map();
    if cmd.text("detail") == "detail" {
        let one = |(id, p)| osd_map::pool_json(map, id, p, "pool_id");
        return cmd.either(
            || map.pools.iter().map(|(id, p)| one((*id, p))).collect(),
            || format!("{}\n", osd_map::pools_text(map)),
        );
    }
    let names: Vec<&String> = map.pool_names.values().collect();
    cmd.either(|| json!(names), || lines(&names))
}

fn stats(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let mut pools = named(ctx);
    if let Some(name) = cmd.opt_text("pool_name") {
        pools.retain(|(_, n)| n == name);
        if pools.is_empty() {
            return unknown_pool(name);
        }
    }
    let figures = Figures::of(ctx);
    let one = |(id, n): &(PoolId, String)| {
        let mut rate = serde_json::Map::new();
        io_rates::add_json(io_rates::of(ctx, Some(*id)), &mut rate);
        let (mut lacking, mut healing) = (serde_json::Map::new(), serde_json::Map::new());
        pg_stats::add_shares(&figures.pool_sum(*id), &mut lacking);
        io_rates::add_recovery_json(io_rates::recovery(ctx, Some(*id)), &mut healing);
        json!({
            "pool_name": n, "pool_id": id, "recovery": lacking, "recovery_rate": healing, "client_io_rate": rate
        })
    };
    let text = |(id, n): &(PoolId, String)| {
        let mut what = pg_stats::share_texts(&figures.pool_sum(*id));
        if let Some(r) = io_rates::recovery(ctx, Some(*id)) {
            what.push(format!("recovery io {}", io_rates::recovery_text(&r)));
        }
        if let Some(r) = io_rates::of(ctx, Some(*id)) {
            what.push(format!("client io {}", io_rates::text(&r)));
        }
        if what.is_empty() {
            what.push("nothing is going on".to_string());
        }
        format!("pool {n} id {id}\n  {}\n\n", what.join("\n  "))
    };
    cmd.either(
        || pools.iter().map(one).collect(),
        || {
            pools.iter().map(text).collect::<String>()
                + if pools.is_empty() {
                    "there are no pools!"
                } else {
                    ""
                }
                + "\n"
        },
    )
}

fn create(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let name = cmd.text("pool");
    if name.is_empty() {
        return Outcome::invalid("(22) Invalid argument");
    }
    let kind = cmd.opt_text("pool_type").unwrap_or("replicated");
    if !matches!(kind, "replicated" | "erasure") {
        return Outcome::invalid(format!("unknown pool type '{kind}'"));
    }
    if let Some(p) = ctx.map().pool_by_name(name).and_then(|id| ctx.map().pool(id))
        && p.type_name() != kind
    {
        return Outcome::invalid(format!("pool '{name}' cannot change to type {kind}"));
    }
    // The word behind the type is a profile for erasure pools; others mean the rule by it.
    let profile = cmd
        .opt_text("erasure_code_profile")
        .filter(|_| kind == "replicated");
    let rule = cmd.opt_text("rule").or(profile);
    let number = |arg: &str| cmd.int(arg).map(|n| u64::try_from(n).unwrap_or(u64::MAX));
    let mode = match cmd.opt_text("autoscale_mode") {
        None => None,
        Some("off") => Some(AUTOSCALE_OFF),
        Some("warn") => Some(AUTOSCALE_WARN),
        Some("on") => Some(AUTOSCALE_ON),
        Some(other) => return Outcome::invalid(format!("specified invalid mode {other}")),
    };
    let mut options = Vec::new();
    for arg in ["pg_num_min", "pg_num_max", "target_size_bytes"] {
        if let Some(n) = cmd.int(arg).filter(|n| *n > 0) {
            options.push((arg, PoolOption::Int(n)));
        }
    }
    if let Some(r) = cmd.real("target_size_ratio").filter(|r| *r > 0.0) {
        options.push(("target_size_ratio", PoolOption::Double(r)));
    }
    let new = NewPool {
        name,
        pg_num: number("pg_num").unwrap_or(0),
        pgp_num: number("pgp_num").unwrap_or(0),
        erasure: kind == "erasure",
        rule: rule.map_or(RuleChoice::Default, RuleChoice::Name),
        size: number("size").unwrap_or(0),
        autoscale_mode: mode,
        expected_num_objects: number("expected_num_objects").unwrap_or(0),
        bulk: cmd.flag("bulk"),
        options,
    };
    change(ctx, |inc| {
        pools::create(ctx.state, &new, ctx.now, inc).map(|(done, _)| done)
    })
}

fn delete(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let name = cmd.text("pool");
    let Some(id) = ctx.map().pool_by_name(name) else {
        return Outcome::status(format!("pool '{name}' does not exist"));
    };
    let faking_not = cmd.flag("yes_i_really_really_mean_it_not_faking");
    let sure = cmd.text("pool2") == name && cmd.flag("yes_i_really_really_mean_it");
    if !faking_not && !sure {
        let why = format!(
            "WARNING: this will *PERMANENTLY DESTROY* all data stored in pool {name}.  If you are *ABSOLUTELY CERTAIN* that is what you want, pass the pool name *twice*, followed by --yes-i-really-really-mean-it."
        );
        return Outcome::error(Errno::EPERM, why);
    }
    change(ctx, |inc| pools::delete(ctx.state, id, inc))
}

fn rename(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    change(ctx, |inc| {
        pools::rename(ctx.map(), cmd.text("srcpool"), cmd.text("destpool"), inc)
    })
}

fn set(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let (pool, var, val) = (cmd.text("pool"), cmd.text("var"), cmd.text("val"));
    let sure = cmd.flag("yes_i_really_mean_it");
    change(ctx, |inc| pool_set::set(ctx.state, pool, var, val, sure, inc))
}

fn set_quota(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    change(ctx, |inc| {
        pool_set::set_quota(
            ctx.map(),
            cmd.text("pool"),
            cmd.text("field"),
            cmd.text("val"),
            inc,
        )
    })
}

fn mksnap(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let name = cmd.text("pool");
    let Some(id) = ctx.map().pool_by_name(name) else {
        return unknown_pool(name);
    };
    change(ctx, |inc| {
        pools::create_snap(ctx.map(), id, cmd.text("snap"), ctx.now, inc)
    })
}

fn rmsnap(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let name = cmd.text("pool");
    let Some(id) = ctx.map().pool_by_name(name) else {
        return unknown_pool(name);
    };
    change(ctx, |inc| {
        pools::remove_snap(ctx.map(), id, cmd.text("snap"), inc)
    })
}

/// As the real one's pg_autoscaler reports it; ours scales nothing, so nothing would be adjusted.
fn autoscale(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let figures = Figures::of(ctx);
    let capacity = count(figures.total.total);
    let map = ctx.map();
    let option = |p: &types::pool::PgPool, name: &str| match p.opts.get(name) {
        Some(PoolOption::Int(n)) => *n as f64,
        Some(PoolOption::Double(d)) => *d,
        _ => 0.0,
    };
    let rows: Vec<(String, &types::pool::PgPool, Value)> = map
        .pools
        .iter()
        .map(|(id, p)| {
            let name = map.pool_name(*id).unwrap_or("").to_string();
            let used = count(figures.pool_sum(*id).num_bytes);
            let raw = used as f64 * f64::from(p.size);
            let ratio = if capacity > 0 { raw / capacity as f64 } else { 0.0 };
            let bias = option(p, "pg_autoscale_bias");
            let v = json!({
                "actual_capacity_ratio": ratio,
                "actual_raw_used": raw,
                "bias": if bias > 0.0 { bias } else { 1.0 },
                "bulk": p.has(pool_flag::BULK),
                "capacity_ratio": ratio,
                "crush_root_id": map.crush.rule_root(u32::from(p.crush_rule)).unwrap_or(0),
                "effective_target_ratio": 0.0,
                "logical_used": used,
                "pg_autoscale_mode": autoscale_mode_name(p.pg_autoscale_mode),
                "pg_num_final": p.pg_num,
                "pg_num_ideal": p.pg_num,
                "pg_num_target": p.pg_num_target,
                "pool_id": id,
                "pool_name": name,
                "raw_used": raw,
                "raw_used_rate": f64::from(p.size),
                "subtree_capacity": capacity,
                "target_bytes": option(p, "target_size_bytes") as u64,
                "target_ratio": option(p, "target_size_ratio"),
                "would_adjust": false,
            });
            (name, p, v)
        })
        .collect();
    if cmd.wants_json() {
        let all: Vec<&Value> = rows.iter().map(|(_, _, v)| v).collect();
        // Pretty in any case, as from a Python module.
        return Outcome::ok(crate::format::pretty(&json!(all)));
    }
    let mut t = Table::new()
        .left(&["POOL"])
        .right(&[
            "SIZE",
            "TARGET SIZE",
            "RATE",
            "RAW CAPACITY",
            "RATIO",
            "TARGET RATIO",
            "EFFECTIVE RATIO",
            "BIAS",
            "PG_NUM",
            "NEW PG_NUM",
        ])
        .left(&["AUTOSCALE"])
        .column("BULK  ", Align::Left, Align::Left);
    for (name, p, v) in &rows {
        let none = String::new;
        t.row([
            name.clone(),
            python_size(v["logical_used"].as_u64().unwrap_or(0)),
            none(),
            format!("{:.1}", f64::from(p.size)),
            python_size(capacity),
            format!("{:.4}", v["capacity_ratio"].as_f64().unwrap_or(0.0)),
            none(),
            none(),
            format!("{:.1}", v["bias"].as_f64().unwrap_or(1.0)),
            p.pg_num.to_string(),
            none(),
            autoscale_mode_name(p.pg_autoscale_mode).to_string(),
            if p.has(pool_flag::BULK) { "True" } else { "False" }.to_string(),
        ]);
    }
    Outcome::ok(t.print())
}

/// `0`, `6716`, `878.9k`, `12288M`: up to five characters and a unit of 1024.
fn python_size(n: u64) -> String {
    const UNITS: [&str; 7] = ["", "k", "M", "G", "T", "P", "E"];
    let mut unit = 0;
    let mut scaled = n as f64;
    while scaled >= 99_999.0 && unit + 1 < UNITS.len() {
        scaled /= 1024.0;
        unit += 1;
    }
    let text = if scaled.fract() == 0.0 || unit == 0 {
        significant(scaled.trunc(), 6)
    } else {
        format!("{scaled:.1}")
            .chars()
            .take(6)
            .collect::<String>()
            .trim_end_matches('.')
            .to_string()
    };
    format!("{text}{}", UNITS[unit])
}
