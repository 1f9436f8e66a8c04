//! `rbd trash purge schedule`: when the trash is emptied; and `rbd mirror snapshot schedule`, which waits for mirror snapshots.

use crate::commands::command::{Command, Outcome};
use crate::commands::context::Context;
use crate::commands::modules::{RBD_SUPPORT, pool_name, pretty};
use crate::commands::spec::{Spec, spec};
use cluster::rbd_support::{LEVELS_MAX, Level, ROWS_MAX, Row, Schedules, TRASH_PURGE_KEY, rows_json};
use cluster::{Change, Changes};
use serde_json::{Map, Value, json};
use types::{Errno, Utime};

const R: (&str, &str) = ("mgr", "r");
const W: (&str, &str) = ("mgr", "w");

pub const TABLE: &[Spec] = &[
    spec(
        W,
        "rbd trash purge schedule add level_spec:str interval:str start_time?:str",
        "empty the trash of everything, a pool or a namespace so often (1d, 2h, 30m)",
        add,
    )
    .by_manager(RBD_SUPPORT),
    spec(
        W,
        "rbd trash purge schedule remove level_spec:str interval?:str start_time?:str",
        "empty the trash by schedule no more",
        remove,
    )
    .by_manager(RBD_SUPPORT),
    spec(
        R,
        "rbd trash purge schedule list level_spec?:str",
        "schedules of emptying the trash",
        list,
    )
    .by_manager(RBD_SUPPORT),
    spec(
        R,
        "rbd trash purge schedule status level_spec?:str",
        "when which trash is emptied next",
        status,
    )
    .by_manager(RBD_SUPPORT),
    spec(
        W,
        "rbd mirror snapshot schedule add level_spec:str interval:str start_time?:str",
        "not built in skep yet",
        no_mirroring,
    )
    .by_manager(RBD_SUPPORT),
    spec(
        W,
        "rbd mirror snapshot schedule remove level_spec:str interval?:str start_time?:str",
        "schedules of mirror snapshots: there is none to remove",
        nothing,
    )
    .by_manager(RBD_SUPPORT),
    spec(
        R,
        "rbd mirror snapshot schedule list level_spec?:str",
        "schedules of mirror snapshots: none",
        no_schedules,
    )
    .by_manager(RBD_SUPPORT),
    spec(
        R,
        "rbd mirror snapshot schedule status level_spec?:str",
        "what is scheduled next: nothing",
        no_scheduled,
    )
    .by_manager(RBD_SUPPORT),
];

fn no_mirroring(_: &Command, _: &Context<'_>) -> Outcome {
    Outcome::error(
        Errno::EOPNOTSUPP,
        "mirror snapshots by schedule are not built in skep yet: 'rbd mirror image snapshot' makes one",
    )
}

fn nothing(_: &Command, _: &Context<'_>) -> Outcome {
    Outcome::default()
}

fn no_schedules(_: &Command, _: &Context<'_>) -> Outcome {
    Outcome::ok("{}\n")
}

fn no_scheduled(_: &Command, _: &Context<'_>) -> Outcome {
    pretty(&json!({"scheduled_images": []}))
}

/// Nothing for everywhere, `POOL/`, `POOL/NAMESPACE/`.
fn level(spec: &str, ctx: &Context<'_>) -> Result<Level, Outcome> {
    let invalid = |why: String| Outcome::invalid(format!("Invalid level spec {spec}: {why}"));
    let parts: Vec<&str> = spec.split('/').collect();
    let (pool, namespace) = match parts[..] {
        [""] => return Ok(Level::everywhere()),
        [pool, ""] => (pool, ""),
        [pool, namespace, ""] => (pool, namespace),
        _ => return Err(invalid(format!("failed to parse {spec}"))),
    };
    let Some(id) = ctx.map().pool_by_name(pool) else {
        return Err(invalid(format!("pool {pool} does not exist")));
    };
    Ok(Level {
        pool: Some(id),
        namespace: namespace.into(),
    })
}

/// `rbd/`, `rbd/ns/`; nothing for everywhere.
fn name(level: &Level, ctx: &Context<'_>) -> String {
    match (level.pool, level.namespace.as_str()) {
        (None, _) => String::new(),
        (Some(pool), "") => format!("{}/", pool_name(ctx, pool)),
        (Some(pool), ns) => format!("{}/{ns}/", pool_name(ctx, pool)),
    }
}

fn row(interval: &str, start: Option<&str>) -> Result<Row, Outcome> {
    let Some(minutes) = Row::interval(interval) else {
        return Err(Outcome::invalid(format!("Invalid interval ({interval})")));
    };
    let start = match start {
        None => None,
        Some(text) => match Row::start(text) {
            Some(start) => Some(start),
            None => {
                let why = format!("Invalid start time {text}: it is HH:MM, in UTC");
                return Err(Outcome::invalid(why));
            }
        },
    };
    Ok(Row { minutes, start })
}

fn kept(schedules: &Schedules) -> Changes {
    Changes::one(match schedules.0.is_empty() {
        true => Change::ConfigKeyRm {
            key: TRASH_PURGE_KEY.into(),
        },
        false => Change::ConfigKeySet {
            key: TRASH_PURGE_KEY.into(),
            value: schedules.value(),
        },
    })
}

fn asked(cmd: &Command, ctx: &Context<'_>) -> Result<(Level, Option<Row>), Outcome> {
    let level = level(cmd.text("level_spec"), ctx)?;
    let row = match cmd.opt_text("interval") {
        None => None,
        Some(interval) => Some(row(interval, cmd.opt_text("start_time"))?),
    };
    Ok((level, row))
}

fn add(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let (level, row) = match asked(cmd, ctx) {
        Ok((level, Some(row))) => (level, row),
        Ok((_, None)) => return Outcome::invalid("Invalid interval ()"),
        Err(refusal) => return refusal,
    };
    let mut all = Schedules::of(ctx.state, TRASH_PURGE_KEY);
    if all.0.len() >= LEVELS_MAX && !all.0.contains_key(&level) {
        return Outcome::error(Errno::ENOSPC, format!("there are {LEVELS_MAX} schedules already"));
    }
    let rows = all.0.entry(level).or_default();
    if rows.contains(&row) {
        return Outcome::default();
    }
    if rows.len() >= ROWS_MAX {
        return Outcome::error(Errno::ENOSPC, format!("it has {ROWS_MAX} times already"));
    }
    rows.push(row);
    // The shortest last, as the real one shows them.
    rows.sort();
    Outcome::default().with(kept(&all))
}

fn remove(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let (level, row) = match asked(cmd, ctx) {
        Ok(asked) => asked,
        Err(refusal) => return refusal,
    };
    let mut all = Schedules::of(ctx.state, TRASH_PURGE_KEY);
    let before = all.clone();
    match (row, all.0.get_mut(&level)) {
        (_, None) => {}
        (None, Some(_)) => drop(all.0.remove(&level)),
        (Some(row), Some(rows)) => rows.retain(|r| *r != row),
    }
    all.0.retain(|_, rows| !rows.is_empty());
    match all == before {
        true => Outcome::default(),
        false => Outcome::default().with(kept(&all)),
    }
}

/// Whether `one` is `wanted` or below it.
fn is_within(one: &Level, wanted: &Level) -> bool {
    match wanted.pool {
        None => true,
        Some(_) if wanted.namespace.is_empty() => one.pool == wanted.pool,
        Some(_) => one == wanted,
    }
}

fn wanted(cmd: &Command, ctx: &Context<'_>) -> Result<Level, Outcome> {
    level(cmd.text("level_spec"), ctx)
}

fn list(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let wanted = match wanted(cmd, ctx) {
        Ok(level) => level,
        Err(refusal) => return refusal,
    };
    let all = Schedules::of(ctx.state, TRASH_PURGE_KEY);
    let mut out = Map::new();
    for (level, rows) in all.0.iter().filter(|(l, _)| is_within(l, &wanted)) {
        let one = json!({"name": name(level, ctx), "schedule": rows_json(rows)});
        out.insert(level.to_string(), one);
    }
    pretty(&Value::Object(out))
}

fn status(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let wanted = match wanted(cmd, ctx) {
        Ok(level) => level,
        Err(refusal) => return refusal,
    };
    let all = Schedules::of(ctx.state, TRASH_PURGE_KEY);
    let known = &ctx.mon.images.namespaces;
    let mut out: Vec<(u64, Value)> = Vec::new();
    for (pool, namespaces) in known {
        for ns in std::iter::once("").chain(namespaces.iter().map(String::as_str)) {
            let level = Level {
                pool: Some(*pool),
                namespace: ns.into(),
            };
            let next = all.next_after(&level, u64::from(ctx.now.sec));
            if let Some(at) = next.filter(|_| is_within(&level, &wanted)) {
                let one = json!({
                    "namespace": ns,
                    "pool_id": pool.to_string(),
                    "pool_name": pool_name(ctx, *pool),
                    "schedule_time": time_text(at),
                });
                out.push((at, one));
            }
        }
    }
    out.sort_by_key(|(at, _)| *at);
    let list: Vec<Value> = out.into_iter().map(|(_, one)| one).collect();
    pretty(&json!({"scheduled": list}))
}

/// `2026-11-25 18:00:00`
fn time_text(sec: u64) -> String {
    let at = Utime {
        sec: u32::try_from(sec).unwrap_or(u32::MAX),
        nsec: 0,
    };
    let text = at.to_string();
    text.chars().take(19).collect::<String>().replace('T', " ")
}
