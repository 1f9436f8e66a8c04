//! `osd pool get` and quotas: settings of a pool one by one.

use crate::commands::command::{Command, Outcome, lines};
use crate::commands::context::Context;
use crate::commands::language::ids::unknown_pool;
use crate::commands::spec::{Spec, spec};
use crate::commands::views::osd_map::{option_json, option_text};
use crate::commands::views::pg_stats::{Figures, count};
use crate::format::units;
use serde_json::{Map, Value, json};
use types::Errno;
use types::pool::{PgPool, PoolOption, PoolOptions, autoscale_mode_name, pool_flag};

pub const GET: Spec = spec(
    ("osd", "r"),
    "osd pool get pool:pool var:choice(size|min_size|pg_num|pgp_num|crush_rule|hashpspool|nodelete|nopgchange|nosizechange|write_fadvise_dontneed|noscrub|nodeep-scrub|hit_set_type|hit_set_period|hit_set_count|hit_set_fpp|use_gmt_hitset|target_max_objects|target_max_bytes|cache_target_dirty_ratio|cache_target_dirty_high_ratio|cache_target_full_ratio|cache_min_flush_age|cache_min_evict_age|erasure_code_profile|min_read_recency_for_promote|all|min_write_recency_for_promote|fast_read|hit_set_grade_decay_rate|hit_set_search_last_n|scrub_min_interval|scrub_max_interval|deep_scrub_interval|recovery_priority|recovery_op_priority|scrub_priority|compression_mode|compression_algorithm|compression_required_ratio|compression_max_blob_size|compression_min_blob_size|csum_type|csum_min_block|csum_max_block|allow_ec_overwrites|fingerprint_algorithm|pg_autoscale_mode|pg_autoscale_bias|pg_num_min|pg_num_max|target_size_bytes|target_size_ratio|dedup_tier|dedup_chunk_algorithm|dedup_cdc_chunk_size|eio|bulk)",
    "one setting of a pool, or all",
    get,
);

/// What `all` shows in front of the options.
const FIRST: [&str; 16] = [
    "size",
    "min_size",
    "pg_num",
    "pgp_num",
    "crush_rule",
    "hashpspool",
    "allow_ec_overwrites",
    "nodelete",
    "nopgchange",
    "nosizechange",
    "write_fadvise_dontneed",
    "noscrub",
    "nodeep-scrub",
    "use_gmt_hitset",
    "erasure_code_profile",
    "fast_read",
];
/// The options in the order of `all`; the mode stands among them although it is none.
const OPTIONS: [&str; 24] = [
    "scrub_min_interval",
    "scrub_max_interval",
    "deep_scrub_interval",
    "recovery_priority",
    "recovery_op_priority",
    "scrub_priority",
    "compression_mode",
    "compression_algorithm",
    "compression_required_ratio",
    "compression_max_blob_size",
    "compression_min_blob_size",
    "csum_type",
    "csum_max_block",
    "csum_min_block",
    "fingerprint_algorithm",
    "pg_autoscale_mode",
    "pg_num_min",
    "target_size_bytes",
    "target_size_ratio",
    "pg_autoscale_bias",
    "dedup_tier",
    "dedup_chunk_algorithm",
    "dedup_cdc_chunk_size",
    "pg_num_max",
];
const TIERING: [&str; 15] = [
    "hit_set_type",
    "hit_set_period",
    "hit_set_count",
    "hit_set_fpp",
    "target_max_objects",
    "target_max_bytes",
    "cache_target_dirty_ratio",
    "cache_target_dirty_high_ratio",
    "cache_target_full_ratio",
    "cache_min_flush_age",
    "cache_min_evict_age",
    "min_read_recency_for_promote",
    "min_write_recency_for_promote",
    "hit_set_grade_decay_rate",
    "hit_set_search_last_n",
];

/// JSON and plain form of a variable's value.
type Shown = (Value, String);

fn flag(p: &PgPool, bit: u64) -> Shown {
    let on = p.has(bit);
    (on.into(), on.to_string())
}

fn number(n: impl Into<u64>) -> Shown {
    let n: u64 = n.into();
    (n.into(), n.to_string())
}

/// The value of a variable that every pool has.
fn plain_var(ctx: &Context<'_>, p: &PgPool, var: &str) -> Option<Shown> {
    Some(match var {
        "size" => number(p.size),
        "min_size" => number(p.min_size),
        "pg_num" => number(p.pg_num),
        "pgp_num" => number(p.pgp_num),
        "crush_rule" => {
            let name = ctx.map().crush.rule_names.get(&i32::from(p.crush_rule)).cloned();
            let name = name.unwrap_or_else(|| p.crush_rule.to_string());
            (name.clone().into(), name)
        }
        "hashpspool" => flag(p, pool_flag::HASHPSPOOL),
        "nodelete" => flag(p, pool_flag::NODELETE),
        "nopgchange" => flag(p, pool_flag::NOPGCHANGE),
        "nosizechange" => flag(p, pool_flag::NOSIZECHANGE),
        "write_fadvise_dontneed" => flag(p, pool_flag::WRITE_FADVISE_DONTNEED),
        "noscrub" => flag(p, pool_flag::NOSCRUB),
        "nodeep-scrub" => flag(p, pool_flag::NODEEP_SCRUB),
        "bulk" => flag(p, pool_flag::BULK),
        "eio" => flag(p, pool_flag::EIO),
        "allow_ec_overwrites" => flag(p, pool_flag::EC_OVERWRITES),
        "use_gmt_hitset" => (p.use_gmt_hitset.into(), u8::from(p.use_gmt_hitset).to_string()),
        "fast_read" => number(u8::from(p.fast_read)),
        "erasure_code_profile" => (
            p.erasure_code_profile.clone().into(),
            p.erasure_code_profile.clone(),
        ),
        "pg_autoscale_mode" => {
            let mode = autoscale_mode_name(p.pg_autoscale_mode);
            (mode.into(), mode.to_string())
        }
        _ => return None,
    })
}

/// An option that is set. Checksum types are stored as numbers and shown by name.
fn option_var(p: &PgPool, var: &str) -> Option<Shown> {
    const CSUM: [&str; 7] = [
        "",
        "none",
        "xxhash32",
        "xxhash64",
        "crc32c",
        "crc32c_16",
        "crc32c_8",
    ];
    match p.opts.get(var)? {
        PoolOption::Int(n) if var == "csum_type" => {
            let name = usize::try_from(*n).ok().and_then(|i| CSUM.get(i)).unwrap_or(&"?");
            Some(((*name).into(), name.to_string()))
        }
        v => Some((option_json(v), option_text(v))),
    }
}

fn all(ctx: &Context<'_>, p: &PgPool) -> Vec<(&'static str, Shown)> {
    let only_erasure =
        |v: &&str| p.is_erasure() || !matches!(*v, "allow_ec_overwrites" | "erasure_code_profile");
    let mut out = Vec::new();
    for var in FIRST.into_iter().filter(|v| only_erasure(v)) {
        out.extend(plain_var(ctx, p, var).map(|s| (var, s)));
    }
    for var in OPTIONS {
        out.extend(
            plain_var(ctx, p, var)
                .or_else(|| option_var(p, var))
                .map(|s| (var, s)),
        );
    }
    out.extend(plain_var(ctx, p, "bulk").map(|s| ("bulk", s)));
    out
}

fn get(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let (name, var) = (cmd.text("pool"), cmd.text("var"));
    let found = ctx
        .map()
        .pool_by_name(name)
        .and_then(|id| Some((id, ctx.map().pool(id)?)));
    let Some((id, p)) = found else {
        return unknown_pool(name);
    };
    let erasure_only = matches!(var, "allow_ec_overwrites" | "erasure_code_profile");
    if erasure_only && !p.is_erasure() {
        let why = format!("pool '{name}' is not a erasure pool: variable not applicable");
        return Outcome::error(Errno::EACCES, why);
    }
    if TIERING.contains(&var) {
        let why = format!("pool '{name}' is not a tier pool: variable not applicable");
        return Outcome::error(Errno::EACCES, why);
    }
    let shown: Vec<(&str, Shown)> = if var == "all" {
        all(ctx, p)
    } else if let Some(s) = plain_var(ctx, p, var) {
        vec![(var, s)]
    } else if PoolOptions::lookup(var).is_some() {
        match option_var(p, var) {
            Some(s) => vec![(var, s)],
            None => return Outcome::absent(format!("option '{var}' is not set on pool '{name}'")),
        }
    } else {
        return Outcome::invalid(format!("pool '{name}': invalid variable: '{var}'"));
    };
    let json = || {
        let mut m = Map::new();
        m.insert("pool".into(), name.into());
        m.insert("pool_id".into(), id.into());
        m.extend(shown.iter().map(|(k, (v, _))| (k.to_string(), v.clone())));
        Value::Object(m)
    };
    cmd.either(json, || {
        lines(shown.iter().map(|(k, (_, text))| format!("{k}: {text}")))
    })
}

pub fn quota(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let name = cmd.text("pool");
    let found = ctx
        .map()
        .pool_by_name(name)
        .and_then(|id| Some((id, ctx.map().pool(id)?)));
    let Some((id, p)) = found else {
        return unknown_pool(name);
    };
    let sum = Figures::of(ctx).pool_sum(id);
    let (objects, bytes) = (count(sum.num_objects), count(sum.num_bytes));
    let json = || {
        json!({
            "pool_name": name,
            "pool_id": id,
            "quota_max_objects": p.quota_max_objects,
            "current_num_objects": objects,
            "quota_max_bytes": p.quota_max_bytes,
            "current_num_bytes": bytes,
        })
    };
    let limit = |max: u64, text: String| if max == 0 { "N/A".to_string() } else { text };
    let max_objects = limit(
        p.quota_max_objects,
        format!(
            "{} objects  (current num objects: {objects} objects)",
            units::si(p.quota_max_objects)
        ),
    );
    let max_bytes = limit(
        p.quota_max_bytes,
        format!(
            "{}  (current num bytes: {bytes} bytes)",
            units::bytes(p.quota_max_bytes)
        ),
    );
    cmd.either(json, || {
        format!("quotas for pool '{name}':\n  max objects: {max_objects}\n  max bytes  : {max_bytes}\n")
    })
}
