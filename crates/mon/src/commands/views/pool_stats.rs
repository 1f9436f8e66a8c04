//! Figures of pools as JSON.

use crate::commands::context::Context;
use crate::commands::views::pg_stats::Figures;
use serde_json::{Map, Value};
use types::PoolId;
use types::pgstats::{ObjectStatSum, PoolStat, StoreStatfs};

pub fn sum_json(s: &ObjectStatSum) -> Value {
    Value::Object(
        s.json_fields()
            .into_iter()
            .map(|(k, v)| (k.to_string(), v.into()))
            .collect(),
    )
}

pub fn statfs_json(s: &StoreStatfs) -> Map<String, Value> {
    s.fields()
        .iter()
        .map(|(k, v)| (k.to_string(), Value::from(*v)))
        .collect()
}

pub fn pool_stat_json(p: &PoolStat) -> Map<String, Value> {
    let mut m = Map::new();
    m.insert("stat_sum".into(), sum_json(&p.stats.sum));
    m.insert("store_stats".into(), Value::Object(statfs_json(&p.store_stats)));
    m.insert("log_size".into(), p.log_size.into());
    m.insert("ondisk_log_size".into(), p.ondisk_log_size.into());
    m.insert("up".into(), p.up.into());
    m.insert("acting".into(), p.acting.into());
    m.insert("num_store_stats".into(), p.num_store_stats.into());
    m
}

/// One pool's figures from the PGs as they are now.
fn pool_stat(ctx: &Context<'_>, figures: &Figures, id: PoolId) -> PoolStat {
    let mut out = PoolStat::default();
    figures.pool_pgs(id).for_each(|s| out.add_pg(s));
    let known = ctx.stats.pool_stat(id);
    out.store_stats = known.store_stats;
    out.num_store_stats = known.num_store_stats;
    out
}

pub fn all_pools(ctx: &Context<'_>, figures: &Figures) -> Vec<(PoolId, u32, PoolStat)> {
    let pools = ctx.map().pools.iter();
    pools
        .map(|(id, p)| (*id, p.pg_num, pool_stat(ctx, figures, *id)))
        .collect()
}

pub fn pool_stats(ctx: &Context<'_>, figures: &Figures) -> Value {
    all_pools(ctx, figures)
        .iter()
        .map(|(id, pgs, p)| {
            let mut m = Map::new();
            m.insert("poolid".into(), (*id).into());
            m.insert("num_pg".into(), (*pgs).into());
            m.extend(pool_stat_json(p));
            Value::Object(m)
        })
        .collect()
}
