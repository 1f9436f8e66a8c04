//! `rbd perf image`: what clients do to images, as OSDs count it; and `iostat`, the same of the whole cluster.

use crate::commands::command::{Command, Outcome};
use crate::commands::context::Context;
use crate::commands::modules::{RBD_SUPPORT, pool_name, refused, spaced};
use crate::commands::spec::{Spec, spec};
use cluster::{ImageKey, ImageRate, ImageSum};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use types::Errno;

const R: (&str, &str) = ("mgr", "r");

pub const TABLE: &[Spec] = &[
    spec(
        R,
        "rbd perf image stats pool_spec?:str sort_by?:choice(write_ops|write_bytes|write_latency|read_ops|read_bytes|read_latency)",
        "what clients do to images, per second",
        stats,
    )
    .by_manager(RBD_SUPPORT),
    spec(
        R,
        "rbd perf image counters pool_spec?:str sort_by?:choice(write_ops|write_bytes|write_latency|read_ops|read_bytes|read_latency)",
        "what clients did to images since OSDs began to count it",
        counters,
    )
    .by_manager(RBD_SUPPORT),
];

/// In the order of the figures.
const FIGURES: [&str; 6] = [
    "write_ops",
    "read_ops",
    "write_bytes",
    "read_bytes",
    "write_latency",
    "read_latency",
];

fn of_rate(r: &ImageRate) -> [f64; 6] {
    [
        r.write_ops,
        r.read_ops,
        r.write_bytes,
        r.read_bytes,
        r.write_latency_ns(),
        r.read_latency_ns(),
    ]
}

fn of_sum(s: &ImageSum) -> [u64; 6] {
    [
        s.write_ops,
        s.read_ops,
        s.write_bytes,
        s.read_bytes,
        s.write_latency_ns,
        s.read_latency_ns,
    ]
}

/// Which images are asked for.
enum Scope {
    All,
    Pool(i64),
    Namespace(i64, String),
}

impl Scope {
    fn of(cmd: &Command, ctx: &Context<'_>) -> Result<Self, Outcome> {
        let Some(spec) = cmd.opt_text("pool_spec") else {
            return Ok(Self::All);
        };
        let (pool, namespace) = match spec.split_once('/') {
            None => (spec, None),
            Some((pool, namespace)) => (pool, Some(namespace)),
        };
        let Some(id) = ctx.map().pool_by_name(pool) else {
            let why = format!("Pool '{pool}' not found");
            return Err(refused(Errno::ENOENT, "RADOS object not found", &why));
        };
        Ok(match namespace {
            None => Self::Pool(id),
            Some(ns) => Self::Namespace(id, ns.into()),
        })
    }

    fn holds(&self, key: &ImageKey) -> bool {
        match self {
            Self::All => true,
            Self::Pool(pool) => key.pool == *pool,
            Self::Namespace(pool, ns) => key.pool == *pool && key.namespace == *ns,
        }
    }
}

/// One image's figures, under the name by which the answer calls it.
struct Row<T> {
    pool: String,
    /// Namespace, if any, and name.
    rest: String,
    figures: [T; 6],
}

/// Of images whose names are known; the busiest first.
fn rows<T: Copy + PartialOrd>(
    cmd: &Command,
    ctx: &Context<'_>,
    all: impl Iterator<Item = (ImageKey, [T; 6])>,
) -> Result<Vec<Row<T>>, Outcome> {
    let scope = Scope::of(cmd, ctx)?;
    let wanted = cmd.opt_text("sort_by").unwrap_or(FIGURES[0]);
    let by = FIGURES.iter().position(|f| *f == wanted).unwrap_or(0);
    let named = all
        .filter(|(key, _)| scope.holds(key))
        .filter_map(|(key, figures)| {
            let name = ctx.mon.images.names.get(&key)?;
            let rest = match key.namespace.as_str() {
                "" => name.clone(),
                ns => format!("{ns}/{name}"),
            };
            let pool = pool_name(ctx, key.pool);
            (!pool.is_empty()).then_some(Row { pool, rest, figures })
        });
    let mut rows: Vec<Row<T>> = named.collect();
    rows.sort_by(|a, b| {
        let order = b.figures[by].partial_cmp(&a.figures[by]);
        order.unwrap_or(std::cmp::Ordering::Equal)
    });
    Ok(rows)
}

/// Images are named by their pool's place in a list.
fn answer<T>(rows: Vec<Row<T>>, ctx: &Context<'_>, what: &str, figure: impl Fn(&T) -> Value) -> Outcome {
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    let mut pools = Map::new();
    let mut list = Vec::new();
    for row in rows {
        let next = places.len();
        let place = *places.entry(row.pool.clone()).or_insert(next);
        pools.insert(place.to_string(), row.pool.into());
        let figures: Vec<Value> = row.figures.iter().map(&figure).collect();
        let name = format!("{place}/{}", row.rest);
        list.push(Value::Object(Map::from_iter([(name, figures.into())])));
    }
    let (descriptors, key) = match what {
        "stats" => ("stat_descriptors", "stats"),
        _ => ("counter_descriptors", "counters"),
    };
    spaced(&json!({
        "timestamp": f64::from(ctx.now.sec),
        descriptors: FIGURES,
        "pool_descriptors": pools,
        key: list,
    }))
}

fn stats(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let rates = ctx.stats.image_rates();
    let busy = rates.into_iter().filter(|(_, r)| !r.is_idle());
    match rows(cmd, ctx, busy.map(|(k, r)| (k, of_rate(&r)))) {
        Ok(rows) => answer(rows, ctx, "stats", |f: &f64| json!(f)),
        Err(refusal) => refusal,
    }
}

fn counters(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let sums = ctx.stats.image_sums();
    match rows(cmd, ctx, sums.into_iter().map(|(k, s)| (k, of_sum(&s)))) {
        Ok(rows) => answer(rows, ctx, "counters", |f: &u64| json!(f)),
        Err(refusal) => refusal,
    }
}
