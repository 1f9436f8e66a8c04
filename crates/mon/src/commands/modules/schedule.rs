//! `rbd trash purge schedule`: when the trash is emptied; and `rbd mirror snapshot schedule`: when images that are mirrored by
//! snapshots get one. The second holds for single images, too, which are looked up before the command is decided ([`wanted`]).

use crate::commands::command::{Command, Outcome};
use crate::commands::context::Context;
use crate::commands::modules::{Place, RBD_SUPPORT, image_place, pool_name, pretty};
use crate::commands::spec::{Spec, spec};
use cluster::rbd_support::{
    About, LEVELS_MAX, Level, MIRROR_SNAPSHOT_KEY, ROWS_MAX, Row, Schedules, TRASH_PURGE_KEY, Wanted,
    rows_json,
};
use cluster::{Change, Changes, ClusterState};
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
        "snapshots for mirroring so often (1d, 2h, 30m): of everything, a pool, a namespace or an image",
        add,
    )
    .by_manager(RBD_SUPPORT),
    spec(
        W,
        "rbd mirror snapshot schedule remove level_spec:str interval?:str start_time?:str",
        "snapshots for mirroring by schedule no more",
        remove,
    )
    .by_manager(RBD_SUPPORT),
    spec(
        R,
        "rbd mirror snapshot schedule list level_spec?:str",
        "schedules of snapshots for mirroring",
        list,
    )
    .by_manager(RBD_SUPPORT),
    spec(
        R,
        "rbd mirror snapshot schedule status level_spec?:str",
        "which image gets its next snapshot for mirroring when",
        mirror_status,
    )
    .by_manager(RBD_SUPPORT),
];

/// Under which key the schedules are that a command is about.
fn key_of(cmd: &Command) -> &'static str {
    match cmd.prefix.starts_with("rbd mirror") {
        true => MIRROR_SNAPSHOT_KEY,
        false => TRASH_PURGE_KEY,
    }
}

/// An image in a level: `POOL/IMAGE`, `POOL/NAMESPACE/IMAGE`.
fn image_in(cmd: &Command) -> Option<(Place<'_>, &str)> {
    let is_mirror = cmd.prefix.starts_with("rbd mirror snapshot schedule");
    image_place(cmd.text("level_spec")).filter(|_| is_mirror)
}

/// What has to be looked up before the command can be decided.
pub fn wanted(cmd: &Command, state: &ClusterState) -> Option<Wanted> {
    let (place, image) = image_in(cmd).filter(|_| cmd.found.is_none())?;
    Some(Wanted {
        about: About::Mirroring,
        pool: state.osdmap.pool_by_name(place.pool)?,
        namespace: place.namespace.into(),
        image: image.into(),
    })
}

/// Nothing for everywhere, `POOL/`, `POOL/NAMESPACE/`; an image, for some.
fn level(cmd: &Command, ctx: &Context<'_>) -> Result<Level, Outcome> {
    let spec = cmd.text("level_spec");
    let invalid = |why: String| Outcome::invalid(format!("Invalid level spec {spec}: {why}"));
    let parts: Vec<&str> = spec.split('/').collect();
    let (pool, namespace) = match parts[..] {
        [""] => return Ok(Level::everywhere()),
        [pool, ""] => (pool, ""),
        [pool, namespace, ""] => (pool, namespace),
        _ if image_in(cmd).is_some() => return image_level(cmd, ctx),
        _ => return Err(invalid(format!("failed to parse {spec}"))),
    };
    let Some(id) = ctx.map().pool_by_name(pool) else {
        return Err(invalid(format!("pool {pool} does not exist")));
    };
    Ok(Level::of_namespace(id, namespace))
}

fn image_level(cmd: &Command, ctx: &Context<'_>) -> Result<Level, Outcome> {
    let spec = cmd.text("level_spec");
    let invalid = |why: String| Outcome::invalid(format!("Invalid level spec {spec}: {why}"));
    let Some((place, image)) = image_in(cmd) else {
        return Err(invalid(format!("failed to parse {spec}")));
    };
    let Some(pool) = ctx.map().pool_by_name(place.pool) else {
        return Err(invalid(format!("pool {} does not exist", place.pool)));
    };
    let within = Level::of_namespace(pool, place.namespace);
    // One that is gone, or mirrored no more, has its schedule still.
    let all = Schedules::of(ctx.state, key_of(cmd));
    let kept = all
        .names
        .iter()
        .find(|(l, name)| l.pool == within.pool && l.namespace == within.namespace && name.as_str() == image);
    match (&cmd.found, kept) {
        (Some(Ok(found)), _) => Ok(Level {
            image: found.id.clone(),
            ..within
        }),
        (_, Some((level, _))) if !cmd.prefix.ends_with("add") => Ok(level.clone()),
        (Some(Err((Errno::EINVAL, why))), _) => Err(invalid(why.clone())),
        (Some(Err((errno, why))), _) => Err(Outcome::error(*errno, why.clone())),
        (None, _) => Err(Outcome::not_built("work on images by this server")),
    }
}

/// `rbd/`, `rbd/ns/`, `rbd/image`; nothing for everywhere.
fn name(level: &Level, all: &Schedules, ctx: &Context<'_>) -> String {
    let place = match (level.pool, level.namespace.as_str()) {
        (None, _) => return String::new(),
        (Some(pool), "") => format!("{}/", pool_name(ctx, pool)),
        (Some(pool), ns) => format!("{}/{ns}/", pool_name(ctx, pool)),
    };
    let mut now = ctx.mon.images.mirrored.iter();
    let now = now.find(|(k, _)| Level::from(*k) == *level);
    let image = now.map(|(_, name)| name).or_else(|| all.names.get(level));
    place + image.map_or(level.image.as_str(), String::as_str)
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

fn kept(key: &str, schedules: &Schedules) -> Changes {
    Changes::one(match schedules.levels.is_empty() {
        true => Change::ConfigKeyRm { key: key.into() },
        false => Change::ConfigKeySet {
            key: key.into(),
            value: schedules.value(),
        },
    })
}

fn asked(cmd: &Command, ctx: &Context<'_>) -> Result<(Level, Option<Row>), Outcome> {
    let level = level(cmd, ctx)?;
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
    let mut all = Schedules::of(ctx.state, key_of(cmd));
    if all.levels.len() >= LEVELS_MAX && !all.levels.contains_key(&level) {
        return Outcome::error(Errno::ENOSPC, format!("there are {LEVELS_MAX} schedules already"));
    }
    if let Some(Ok(found)) = &cmd.found {
        all.names.insert(level.clone(), found.name.clone());
    }
    let rows = all.levels.entry(level).or_default();
    if rows.contains(&row) {
        return Outcome::default();
    }
    if rows.len() >= ROWS_MAX {
        return Outcome::error(Errno::ENOSPC, format!("it has {ROWS_MAX} times already"));
    }
    rows.push(row);
    // The shortest last, as the real one shows them.
    rows.sort();
    Outcome::default().with(kept(key_of(cmd), &all))
}

fn remove(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let (level, row) = match asked(cmd, ctx) {
        Ok(asked) => asked,
        Err(refusal) => return refusal,
    };
    let mut all = Schedules::of(ctx.state, key_of(cmd));
    let before = all.clone();
    match (row, all.levels.get_mut(&level)) {
        (_, None) => {}
        (None, Some(_)) => drop(all.levels.remove(&level)),
        (Some(row), Some(rows)) => rows.retain(|r| *r != row),
    }
    all.levels.retain(|_, rows| !rows.is_empty());
    let left = &all.levels;
    all.names.retain(|level, _| left.contains_key(level));
    match all == before {
        true => Outcome::default(),
        false => Outcome::default().with(kept(key_of(cmd), &all)),
    }
}

/// Whether `one` is `wanted` or below it.
fn is_within(one: &Level, wanted: &Level) -> bool {
    match wanted.pool {
        None => true,
        Some(_) if !wanted.image.is_empty() => one == wanted,
        Some(_) if wanted.namespace.is_empty() => one.pool == wanted.pool,
        Some(_) => one.pool == wanted.pool && one.namespace == wanted.namespace,
    }
}

fn wanted_level(cmd: &Command, ctx: &Context<'_>) -> Result<Level, Outcome> {
    level(cmd, ctx)
}

fn list(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let wanted = match wanted_level(cmd, ctx) {
        Ok(level) => level,
        Err(refusal) => return refusal,
    };
    let all = Schedules::of(ctx.state, key_of(cmd));
    let mut out = Map::new();
    for (level, rows) in all.levels.iter().filter(|(l, _)| is_within(l, &wanted)) {
        let one = json!({"name": name(level, &all, ctx), "schedule": rows_json(rows)});
        out.insert(level.to_string(), one);
    }
    pretty(&Value::Object(out))
}

fn status(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let wanted = match wanted_level(cmd, ctx) {
        Ok(level) => level,
        Err(refusal) => return refusal,
    };
    let all = Schedules::of(ctx.state, key_of(cmd));
    let known = &ctx.mon.images.namespaces;
    let mut out: Vec<(u64, Value)> = Vec::new();
    for (pool, namespaces) in known {
        for ns in std::iter::once("").chain(namespaces.iter().map(String::as_str)) {
            let level = Level::of_namespace(*pool, ns);
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

fn mirror_status(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let wanted = match wanted_level(cmd, ctx) {
        Ok(level) => level,
        Err(refusal) => return refusal,
    };
    let all = Schedules::of(ctx.state, key_of(cmd));
    let mut out: Vec<(u64, String)> = Vec::new();
    for (key, image) in &ctx.mon.images.mirrored {
        let level = Level::from(key);
        let next = all.next_after(&level, u64::from(ctx.now.sec));
        if let Some(at) = next.filter(|_| is_within(&level, &wanted)) {
            let place = name(&Level::of_namespace(key.pool, &key.namespace), &all, ctx);
            out.push((at, place + image));
        }
    }
    out.sort();
    let one = |(at, image): &(u64, String)| json!({"image": image, "schedule_time": time_text(*at)});
    pretty(&json!({"scheduled_images": out.iter().map(one).collect::<Vec<_>>()}))
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
