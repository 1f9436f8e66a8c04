//! `pg dump`, `pg getmap` and `pg ls`: all figures of placement groups, pools and OSDs.

use crate::commands::command::{Command, Outcome};
use crate::commands::context::Context;
use crate::commands::views::pg_stats::{Figures, count};
use crate::commands::views::pool_stats::{all_pools, pool_stat_json, pool_stats, statfs_json, sum_json};
use crate::commands::views::show;
use crate::format::{Align, Table, units};
use denc::Encode;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use types::OsdId;
use types::pgmap::PgMap;
use types::pgstats::{ObjectStatSum, OsdStat, PgStat, PoolStat, StoreStatfs, pg_state};

const NOTE: &str = "\n* NOTE: Omap statistics are gathered during deep scrub and may be inaccurate soon afterwards depending on utilization. See http://docs.ceph.com/en/latest/dev/placement-group/#omap-statistics for further details.\n";

pub fn pg_json(s: &PgStat) -> Value {
    let mut m = Map::new();
    let mut put = |k: &str, v: Value| {
        m.insert(k.to_string(), v);
    };
    put("pgid", s.pgid.to_string().into());
    put("version", s.version.to_string().into());
    put("reported_seq", s.reported_seq.into());
    put("reported_epoch", s.reported_epoch.into());
    put("state", pg_state::names(s.state).into());
    for (k, t) in [
        ("last_fresh", s.last_fresh),
        ("last_change", s.last_change),
        ("last_active", s.last_active),
        ("last_peered", s.last_peered),
        ("last_clean", s.last_clean),
        ("last_became_active", s.last_became_active),
        ("last_became_peered", s.last_became_active),
        ("last_unstale", s.last_unstale),
        ("last_undegraded", s.last_undegraded),
        ("last_fullsized", s.last_fullsized),
    ] {
        put(k, show::time(t).into());
    }
    put("mapping_epoch", s.mapping_epoch.into());
    put("log_start", s.log_start.to_string().into());
    put("ondisk_log_start", s.log_start.to_string().into());
    put("created", s.created.into());
    put("last_epoch_clean", s.last_epoch_clean.into());
    put("parent", "0.0".into());
    put("parent_split_bits", 0.into());
    put("last_scrub", s.last_scrub.to_string().into());
    put("last_scrub_stamp", show::time(s.last_scrub_stamp).into());
    put("last_deep_scrub", s.last_deep_scrub.to_string().into());
    put(
        "last_deep_scrub_stamp",
        show::time(s.last_deep_scrub_stamp).into(),
    );
    put("last_clean_scrub_stamp", show::time(s.last_scrub_stamp).into());
    put("log_size", s.log_size.into());
    put("ondisk_log_size", s.ondisk_log_size.into());
    for k in [
        "stats_invalid",
        "dirty_stats_invalid",
        "omap_stats_invalid",
        "hitset_stats_invalid",
        "hitset_bytes_stats_invalid",
        "pin_stats_invalid",
        "manifest_stats_invalid",
    ] {
        put(k, false.into());
    }
    put("snaptrimq_len", s.snaptrimq_len.into());
    put("stat_sum", sum_json(&s.stats.sum));
    put("up", json!(s.up));
    put("acting", json!(s.acting));
    for k in ["avail_no_missing", "object_location_counts"] {
        put(k, json!([]));
    }
    put("blocked_by", json!(s.blocked_by));
    put("up_primary", s.up_primary.into());
    put("acting_primary", s.acting_primary.into());
    put("purged_snaps", json!([]));
    Value::Object(m)
}

fn brief_json(s: &PgStat) -> Value {
    json!({
        "pgid": s.pgid.to_string(), "state": pg_state::names(s.state), "up": s.up, "acting": s.acting,
        "up_primary": s.up_primary, "acting_primary": s.acting_primary,
    })
}

fn osd_stat_json(s: &OsdStat, osds: usize, pgs: u32) -> Map<String, Value> {
    let mut m = Map::new();
    let mut put = |k: &str, v: Value| {
        m.insert(k.to_string(), v);
    };
    put("up_from", s.up_from.into());
    put("seq", s.seq.into());
    put("num_pgs", pgs.into());
    put("num_osds", osds.into());
    put("num_per_pool_osds", osds.into());
    put("num_per_pool_omap_osds", osds.into());
    put("kb", s.kb().into());
    put("kb_used", s.kb_used().into());
    put("kb_used_data", s.kb_used_data().into());
    put("kb_used_omap", s.kb_used_omap().into());
    put("kb_used_meta", s.kb_used_meta().into());
    put("kb_avail", s.kb_avail().into());
    put("statfs", Value::Object(statfs_json(&s.statfs)));
    put("hb_peers", json!(s.hb_peers));
    put("snap_trim_queue_len", 0.into());
    put("num_snap_trimming", 0.into());
    put("num_shards_repaired", 0.into());
    put("op_queue_age_hist", json!({"histogram": [], "upper_bound": 1}));
    put(
        "perf_stat",
        json!({
            "commit_latency_ms": s.commit_latency_ns / 1_000_000,
            "apply_latency_ms": s.apply_latency_ns / 1_000_000,
            "commit_latency_ns": s.commit_latency_ns,
            "apply_latency_ns": s.apply_latency_ns,
        }),
    );
    put("alerts", json!([]));
    put("network_ping_times", json!([]));
    m
}

fn osd_stats(ctx: &Context<'_>, figures: &Figures) -> Vec<Value> {
    let per_osd = figures.per_osd();
    let one = |(id, r): (&OsdId, &std::sync::Arc<cluster::OsdReport>)| {
        let mut m = Map::new();
        m.insert("osd".into(), (*id).into());
        m.extend(osd_stat_json(&r.stat, 1, per_osd.get(id).map_or(0, |(n, _)| *n)));
        Value::Object(m)
    };
    ctx.stats.osds.iter().rev().map(one).collect()
}

fn osd_sum(ctx: &Context<'_>, figures: &Figures) -> Map<String, Value> {
    let sum = OsdStat {
        statfs: figures.total,
        ..OsdStat::default()
    };
    let pgs: u32 = figures.per_osd().values().map(|(n, _)| *n).sum();
    osd_stat_json(&sum, ctx.stats.osds.len(), pgs)
}

fn pool_statfs(ctx: &Context<'_>) -> Value {
    let mut out = Vec::new();
    for (osd, r) in &ctx.stats.osds {
        for (pool, s) in &r.stat.pool_statfs {
            let mut m = Map::new();
            m.insert("poolid".into(), (*pool).into());
            m.insert("osd".into(), (*osd).into());
            m.extend(statfs_json(s));
            out.push(Value::Object(m));
        }
    }
    out.into()
}

fn total_stat(ctx: &Context<'_>, figures: &Figures) -> PoolStat {
    let mut all = PoolStat::default();
    for (_, _, p) in all_pools(ctx, figures) {
        all.stats.sum += p.stats.sum;
        all.log_size += p.log_size;
        all.ondisk_log_size += p.ondisk_log_size;
        all.up += p.up;
        all.acting += p.acting;
        all.store_stats += p.store_stats;
        all.num_store_stats += p.num_store_stats;
    }
    all
}

fn delta_json() -> Value {
    let mut m = pool_stat_json(&PoolStat::default());
    m.insert("stamp_delta".into(), "0.000000".into());
    Value::Object(m)
}

fn head(ctx: &Context<'_>) -> [(&'static str, Value); 4] {
    [
        ("version", ctx.stats.version.into()),
        ("stamp", ctx.now.to_string().into()),
        ("last_osdmap_epoch", 0.into()),
        ("last_pg_scan", 0.into()),
    ]
}

/// What `dumpcontents` may ask for.
struct Parts<'a> {
    words: Vec<&'a str>,
}

impl Parts<'_> {
    fn has(&self, word: &str) -> bool {
        self.words.contains(&word)
    }
    fn all(&self) -> bool {
        self.has("all")
    }
    fn summary(&self) -> bool {
        self.all() || self.has("summary") || self.has("sum")
    }
}

pub fn dump(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let mut words = cmd.list("dumpcontents");
    if words.is_empty() {
        words.push(if cmd.prefix == "pg dump_pools_json" {
            "pools"
        } else {
            "all"
        });
    }
    let said = format!("dumped {}", words.join(","));
    let parts = Parts { words };
    let figures = Figures::of(ctx);
    let out = if cmd.wants_json() || cmd.prefix != "pg dump" {
        cmd.json_compact(&dump_json(ctx, &figures, &parts))
    } else {
        Outcome::ok(dump_text(ctx, &figures, &parts))
    };
    out.saying(said)
}

/// The same figures as `ceph-dencoder` reads them.
pub fn getmap(_: &Command, ctx: &Context<'_>) -> Outcome {
    let figures = Figures::of(ctx);
    let per_osd = figures.per_osd();
    let of = |id: &OsdId, stat: &OsdStat| OsdStat {
        num_pgs: per_osd.get(id).map_or(0, |(n, _)| *n),
        ..stat.clone()
    };
    let map = PgMap {
        version: ctx.stats.version,
        stamp: ctx.now,
        osds: ctx
            .stats
            .osds
            .iter()
            .map(|(id, r)| (*id, of(id, &r.stat)))
            .collect(),
        pgs: figures.pgs,
    };
    Outcome::ok(map.to_bytes()).saying(format!("got pgmap version {}", map.version))
}

fn dump_json(ctx: &Context<'_>, figures: &Figures, parts: &Parts<'_>) -> Value {
    let mut out = Map::new();
    out.insert("pg_ready".into(), true.into());
    let pgs = || figures.pgs.values().map(pg_json).collect::<Vec<_>>();
    if parts.summary() {
        let mut m: Map<String, Value> = head(ctx).into_iter().map(|(k, v)| (k.to_string(), v)).collect();
        m.insert(
            "pg_stats_sum".into(),
            Value::Object(pool_stat_json(&total_stat(ctx, figures))),
        );
        m.insert("osd_stats_sum".into(), Value::Object(osd_sum(ctx, figures)));
        m.insert("pg_stats_delta".into(), delta_json());
        if parts.all() {
            m.insert("pg_stats".into(), pgs().into());
            m.insert("pool_stats".into(), pool_stats(ctx, figures));
            m.insert("osd_stats".into(), osd_stats(ctx, figures).into());
            m.insert("pool_statfs".into(), pool_statfs(ctx));
        }
        out.insert("pg_map".into(), Value::Object(m));
    }
    if parts.all() {
        return Value::Object(out);
    }
    if parts.has("delta") {
        out.insert("delta".into(), json!({"pg_stats_delta": delta_json()}));
    }
    if parts.has("pgs") {
        out.insert("pg_stats".into(), pgs().into());
    } else if parts.has("pgs_brief") {
        out.insert("pg_stats".into(), figures.pgs.values().map(brief_json).collect());
    }
    if parts.has("pools") {
        out.insert("pool_stats".into(), pool_stats(ctx, figures));
    }
    if parts.has("osds") {
        out.insert("osd_stats".into(), osd_stats(ctx, figures).into());
        out.insert("pool_statfs".into(), pool_statfs(ctx));
    }
    Value::Object(out)
}

/// The counters that every table of PGs and pools has.
fn counters(s: &ObjectStatSum) -> Vec<String> {
    let all = [
        s.num_objects,
        s.num_objects_missing_on_primary,
        s.num_objects_degraded,
        s.num_objects_misplaced,
        s.num_objects_unfound,
        s.num_bytes,
        s.num_omap_bytes,
        s.num_omap_keys,
    ];
    all.iter().map(i64::to_string).collect()
}

const COUNTERS: [&str; 8] = [
    "OBJECTS",
    "MISSING_ON_PRIMARY",
    "DEGRADED",
    "MISPLACED",
    "UNFOUND",
    "BYTES",
    "OMAP_BYTES*",
    "OMAP_KEYS*",
];

fn leaning(t: Table, names: &[&str]) -> Table {
    names
        .iter()
        .fold(t, |t, n| t.column(n, Align::Left, Align::Right))
}

fn dump_text(ctx: &Context<'_>, figures: &Figures, parts: &Parts<'_>) -> String {
    let mut out = String::new();
    if parts.summary() {
        for (k, v) in head(ctx) {
            out.push_str(&format!(
                "{k} {}\n",
                v.as_str().map_or_else(|| v.to_string(), str::to_string)
            ));
        }
    }
    let mut noted = false;
    if parts.all() || parts.has("pgs") {
        out.push_str(&pg_table(figures));
        noted = true;
    } else if parts.has("pgs_brief") {
        out.push_str(&brief_table(figures));
    }
    if parts.all() || parts.has("pools") {
        out.push_str(&pool_table(ctx, figures));
        noted = true;
    }
    if parts.summary() {
        out.push_str(&sum_table(ctx, figures));
        noted = true;
    }
    if parts.all() || parts.has("osds") {
        out.push_str(&osd_table(ctx, figures));
    } else if parts.summary() {
        out.push_str(&osd_sum_table(figures));
    }
    if noted {
        out.push_str(NOTE);
    }
    out
}

fn pg_table(figures: &Figures) -> String {
    let mut t = leaning(Table::new().left(&["PG_STAT"]), &COUNTERS);
    t = leaning(
        t,
        &[
            "LOG",
            "DISK_LOG",
            "STATE",
            "STATE_STAMP",
            "VERSION",
            "REPORTED",
            "UP",
            "UP_PRIMARY",
            "ACTING",
        ],
    );
    t = leaning(
        t,
        &[
            "ACTING_PRIMARY",
            "LAST_SCRUB",
            "SCRUB_STAMP",
            "LAST_DEEP_SCRUB",
            "DEEP_SCRUB_STAMP",
            "SNAPTRIMQ_LEN",
        ],
    );
    for s in figures.pgs.values() {
        let mut row = vec![s.pgid.to_string()];
        row.extend(counters(&s.stats.sum));
        row.extend([
            s.log_size.to_string(),
            s.ondisk_log_size.to_string(),
            pg_state::names(s.state),
            show::time(s.last_change),
            s.version.to_string(),
            format!("{}:{}", s.reported_epoch, s.reported_seq),
            show::ids(&s.up),
            s.up_primary.to_string(),
            show::ids(&s.acting),
            s.acting_primary.to_string(),
            s.last_scrub.to_string(),
            show::time(s.last_scrub_stamp),
            s.last_deep_scrub.to_string(),
            show::time(s.last_deep_scrub_stamp),
            s.snaptrimq_len.to_string(),
        ]);
        t.row(row);
    }
    t.print()
}

fn brief_table(figures: &Figures) -> String {
    let mut t = Table::new().left(&["PG_STAT", "STATE"]);
    t = leaning(t, &["UP", "UP_PRIMARY", "ACTING", "ACTING_PRIMARY"]);
    for s in figures.pgs.values() {
        t.row([
            s.pgid.to_string(),
            pg_state::names(s.state),
            show::ids(&s.up),
            s.up_primary.to_string(),
            show::ids(&s.acting),
            s.acting_primary.to_string(),
        ]);
    }
    t.print()
}

fn pool_row(first: String, p: &PoolStat) -> Vec<String> {
    let mut row = vec![first];
    row.extend(counters(&p.stats.sum));
    row.extend([p.log_size.to_string(), p.ondisk_log_size.to_string()]);
    row
}

fn pool_table(ctx: &Context<'_>, figures: &Figures) -> String {
    let mut t = leaning(Table::new().left(&["POOLID"]), &COUNTERS);
    t = leaning(t, &["LOG", "DISK_LOG"]);
    for (id, _, p) in all_pools(ctx, figures).iter().rev() {
        t.row(pool_row(id.to_string(), p));
    }
    t.print()
}

fn sum_table(ctx: &Context<'_>, figures: &Figures) -> String {
    let mut t = leaning(Table::new().left(&["PG_STAT"]), &COUNTERS);
    t = leaning(t, &["LOG", "DISK_LOG"]);
    t.row(pool_row("sum".into(), &total_stat(ctx, figures)));
    t.print()
}

fn space(s: &StoreStatfs) -> [String; 4] {
    let used = units::bytes(count(s.used()));
    [
        used.clone(),
        units::bytes(count(s.available)),
        used,
        units::bytes(count(s.total)),
    ]
}

fn osd_table(ctx: &Context<'_>, figures: &Figures) -> String {
    let mut t = Table::new().left(&["OSD_STAT"]);
    t = leaning(
        t,
        &[
            "USED",
            "AVAIL",
            "USED_RAW",
            "TOTAL",
            "HB_PEERS",
            "PG_SUM",
            "PRIMARY_PG_SUM",
        ],
    );
    let per_osd = figures.per_osd();
    for (id, r) in ctx.stats.osds.iter().rev() {
        let (pgs, primary) = per_osd.get(id).copied().unwrap_or_default();
        let mut row = vec![id.to_string()];
        row.extend(space(&r.stat.statfs));
        row.extend([show::ids(&r.stat.hb_peers), pgs.to_string(), primary.to_string()]);
        t.row(row);
    }
    let mut row = vec!["sum".to_string()];
    row.extend(space(&figures.total));
    t.row(row);
    t.print()
}

fn osd_sum_table(figures: &Figures) -> String {
    let mut t = leaning(
        Table::new().left(&["OSD_STAT"]),
        &["USED", "AVAIL", "USED_RAW", "TOTAL"],
    );
    let mut row = vec!["sum".to_string()];
    row.extend(space(&figures.total));
    t.row(row);
    t.print()
}

/// The chosen PGs as `pg ls` shows them.
pub fn list(cmd: &Command, ctx: &Context<'_>, chosen: &BTreeMap<types::PgId, &PgStat>) -> Outcome {
    let json =
        || json!({"pg_ready": true, "pg_stats": chosen.values().map(|s| pg_json(s)).collect::<Vec<_>>()});
    if chosen.is_empty() {
        return cmd.either(|| json!({"pg_ready": true}), String::new);
    }
    let plain = || {
        let mut t = leaning(
            Table::new().left(&["PG"]),
            &[
                "OBJECTS",
                "DEGRADED",
                "MISPLACED",
                "UNFOUND",
                "BYTES",
                "OMAP_BYTES*",
                "OMAP_KEYS*",
                "LOG",
            ],
        );
        t = leaning(
            t,
            &[
                "STATE",
                "SINCE",
                "VERSION",
                "REPORTED",
                "UP",
                "ACTING",
                "SCRUB_STAMP",
                "DEEP_SCRUB_STAMP",
            ],
        );
        for s in chosen.values() {
            let mut cells = counters(&s.stats.sum);
            // This table has no column for objects missing on the primary.
            cells.remove(1);
            let mut row = vec![s.pgid.to_string()];
            row.extend(cells);
            row.extend([
                s.log_size.to_string(),
                pg_state::names(s.state),
                units::age(s.last_change, ctx.now),
                s.version.to_string(),
                format!("{}:{}", s.reported_epoch, s.reported_seq),
                format!("{}p{}", show::ids(&s.up), s.up_primary),
                format!("{}p{}", show::ids(&s.acting), s.acting_primary),
                show::time(s.last_scrub_stamp),
                show::time(s.last_deep_scrub_stamp),
            ]);
            t.row(row);
        }
        format!("{}{NOTE}", t.print())
    };
    cmd.either(json, plain)
}
