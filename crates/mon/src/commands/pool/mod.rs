//! Commands about pools as a whole: list, create, delete, rename, set, snapshots, statistics.
//!
//! What changes a pool is in [`crate::policies::pools`] and [`crate::policies::pool_set`], shared with the POOLOP message.

pub mod applications;
pub mod autoscale;
#[cfg(test)]
mod coded_transcript;
mod get;
#[cfg(test)]
mod transcript;

use crate::commands::command::{Command, Outcome, lines};
use crate::commands::context::Context;
use crate::commands::language::ids::unknown_pool;
use crate::commands::spec::{DEPRECATED, Spec, spec};
use crate::commands::views::pg_stats::Figures;
use crate::commands::views::{io_rates, osd_map, pg_stats};
use crate::policies::autoscale::mode_of_new;
use crate::policies::coded::{self, DEFAULT_PROFILE};
use crate::policies::pools::{Done, NewPool, PoolError, RuleChoice};
use crate::policies::{pool_set, pools};
use cluster::Changes;
use serde_json::json;
use types::osdmap::Incremental;
use types::pool::{AUTOSCALE_OFF, AUTOSCALE_ON, AUTOSCALE_WARN, PoolOption};
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

/// Settings of the new pool that the command names.
fn options_of(cmd: &Command) -> Vec<(&'static str, PoolOption)> {
    let mut options = Vec::new();
    for arg in ["pg_num_min", "pg_num_max", "target_size_bytes"] {
        if let Some(n) = cmd.int(arg).filter(|n| *n > 0) {
            options.push((arg, PoolOption::Int(n)));
        }
    }
    if let Some(r) = cmd.real("target_size_ratio").filter(|r| *r > 0.0) {
        options.push(("target_size_ratio", PoolOption::Double(r)));
    }
    options
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
    if kind == "erasure"
        && let Err(e) = coded::may_be_read(&ctx.mon.name, ctx.stats)
    {
        return Outcome::error(e.errno, e.text);
    }
    let new = NewPool {
        name,
        pg_num: number("pg_num").unwrap_or(0),
        pgp_num: number("pgp_num").unwrap_or(0),
        erasure: (kind == "erasure").then(|| cmd.opt_text("erasure_code_profile").unwrap_or(DEFAULT_PROFILE)),
        rule: rule.map_or(RuleChoice::Default, RuleChoice::Name),
        size: number("size").unwrap_or(0),
        autoscale_mode: mode,
        expected_num_objects: number("expected_num_objects").unwrap_or(0),
        bulk: cmd.flag("bulk"),
        options: options_of(cmd),
    };
    let mut made = None;
    let out = change(ctx, |inc| {
        let (done, id) = pools::create(ctx.state, &new, ctx.now, inc)?;
        made = id;
        Ok(done)
    });
    let (by_default, asked) = mode_of_new(ctx.state, new.pg_num > 0);
    let on = new.autoscale_mode.unwrap_or(by_default) == AUTOSCALE_ON;
    match made {
        Some(id) if on && (asked || new.autoscale_mode.is_some()) => autoscale::asked(out, id, true),
        _ => out,
    }
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
    let out = change(ctx, |inc| pool_set::set(ctx.state, pool, var, val, sure, inc));
    match ctx.map().pool_by_name(pool) {
        Some(id) if var == "pg_autoscale_mode" && out.code == 0 => autoscale::asked(out, id, val == "on"),
        _ => out,
    }
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
