//! Commands about the manager, which here is a second listener of the monitor process.

use crate::commands::command::{Command, Outcome};
use crate::commands::context::Context;
use crate::commands::spec::{Spec, spec};
use crate::commands::views::daemons;
use crate::commands::views::daemons::value_of;
use crate::commands::views::show;
use cluster::{Change, Changes};
use serde_json::{Map, Value, json};
use types::mgrmap::MgrMap;
use types::release;

const R: (&str, &str) = ("mgr", "r");
const RW: (&str, &str) = ("mgr", "rw");

pub const TABLE: &[Spec] = &[
    spec(R, "mgr stat", "the active manager in short", stat),
    spec(R, "mgr dump epoch?:int(0..)", "the manager map", dump),
    spec(
        R,
        "mgr services",
        "addresses of services in the manager",
        services,
    ),
    spec(R, "mgr module ls", "modules of the manager", module_ls),
    spec(
        RW,
        "mgr module enable module:str force?:choice(--force)",
        "enable a module of the manager",
        enable,
    ),
    spec(
        RW,
        "mgr module disable module:str",
        "disable a module of the manager",
        disable,
    ),
    spec(
        R,
        "mgr metadata who?:str",
        "facts about the manager and its host",
        metadata,
    ),
    spec(
        R,
        "mgr count-metadata property:str",
        "how many managers have which value of a fact",
        count_metadata,
    ),
    spec(R, "mgr versions", "how many managers run which version", versions),
    spec(
        RW,
        "mgr fail who?:str",
        "let another manager take over, or this one begin anew",
        fail,
    ),
];

fn stat(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let m = &ctx.state.mgrmap;
    cmd.json(&json!({
        "epoch": m.epoch,
        "available": m.available,
        "active_name": m.active_name,
        "num_standby": m.standbys.len(),
    }))
}

fn always_on<'a>(ctx: &'a Context<'_>) -> Vec<&'a String> {
    let by_release = ctx
        .state
        .mgrmap
        .always_on_modules
        .get(&u32::from(release::PACIFIC));
    by_release.map_or_else(Vec::new, |m| m.iter().collect())
}

fn modules(ctx: &Context<'_>) -> Vec<Value> {
    let all = &ctx.state.mgrmap.available_modules;
    all.iter()
        .map(|m| {
            json!({"name": m.name, "can_run": m.can_run, "error_string": m.error_string, "module_options": {}})
        })
        .collect()
}

fn standbys(m: &types::mgrmap::MgrMap) -> Vec<Value> {
    m.standbys
        .values()
        .map(|s| {
            json!({"gid": s.gid, "name": s.name, "mgr_features": s.mgr_features, "available_modules": []})
        })
        .collect()
}

fn dump(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let m = &ctx.state.mgrmap;
    if let Some(e) = cmd.int("epoch").filter(|e| *e != 0 && *e != i64::from(m.epoch)) {
        return Outcome::absent(format!("there is no map for epoch {e}"));
    }
    cmd.json(&json!({
        "epoch": m.epoch,
        "active_gid": m.active_gid,
        "active_name": m.active_name,
        "active_addrs": show::addrs(&m.active_addrs),
        "active_addr": show::legacy_addr(&m.active_addrs),
        "active_change": m.active_change.to_string(),
        "active_mgr_features": m.active_mgr_features,
        "available": m.available,
        "standbys": standbys(m),
        "modules": m.modules,
        "available_modules": modules(ctx),
        "services": m.services,
        "always_on_modules": {release::name(release::PACIFIC): always_on(ctx)},
        "last_failure_osd_epoch": m.last_failure_osd_epoch,
        "active_clients": [],
    }))
}

fn services(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    cmd.json(&json!(ctx.state.mgrmap.services))
}

fn module_ls(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let m = &ctx.state.mgrmap;
    let enabled = |v: &Value| v["name"].as_str().is_some_and(|n| m.modules.contains(n));
    let disabled: Vec<Value> = modules(ctx).into_iter().filter(|v| !enabled(v)).collect();
    cmd.json(&json!({
        "always_on_modules": always_on(ctx),
        "enabled_modules": m.modules,
        "disabled_modules": disabled,
    }))
}

/// There are no modules to enable: everything that the manager answers is built in.
fn enable(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let module = cmd.text("module");
    if ctx.state.mgrmap.modules.contains(module) {
        return Outcome::default();
    }
    Outcome::absent(format!(
        "all mgr daemons do not support module '{module}', pass --force to force enablement"
    ))
}

fn disable(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let module = cmd.text("module");
    if !ctx.state.mgrmap.modules.contains(module) {
        return Outcome::status(format!("module '{module}' is already disabled"));
    }
    Outcome::not_built("disabling a manager module")
}

/// The part goes to one that stands by; alone nobody has it until the next look of the leader (`policies::chores`), which also
/// puts those that live among the others again.
fn fail(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let map = &*ctx.state.mgrmap;
    let Some(who) = cmd.opt_text("who").or(map.available.then_some(&map.active_name)) else {
        return Outcome::status("Currently no active mgr");
    };
    let is = |name: &str, gid: u64| who == name || who == gid.to_string();
    let standby = map.standbys.values().find(|s| is(&s.name, s.gid)).map(|s| s.gid);
    let mut next = match standby {
        Some(_) => map.clone(),
        None if map.available && is(&map.active_name, map.active_gid) => without_active(ctx),
        None => return Outcome::status(format!("Daemon not found '{who}', already failed?")),
    };
    let failed = standby.unwrap_or(map.active_gid);
    next.standbys
        .retain(|gid, _| *gid != failed && *gid != next.active_gid);
    next.epoch = map.epoch;
    Outcome::default().with(Changes::one(Change::MgrMap(Box::new(next))))
}

/// The map in which the active manager has lost its part.
fn without_active(ctx: &Context<'_>) -> MgrMap {
    let map = &*ctx.state.mgrmap;
    let mut live = ctx.stats.mons.values();
    let mut next = match live.find(|m| map.standbys.contains_key(&m.mgr_gid)) {
        Some(m) => MgrMap::active(0, &m.mgr_name, m.mgr_gid, m.mgr_addrs.clone(), ctx.now),
        None => MgrMap {
            available: false,
            active_gid: 0,
            active_name: String::new(),
            active_addrs: Default::default(),
            active_change: ctx.now,
            ..map.clone()
        },
    };
    next.standbys = map.standbys.clone();
    next
}

fn facts(ctx: &Context<'_>) -> Map<String, Value> {
    let mut m = Map::new();
    m.insert("name".into(), ctx.mon.mgr_name.clone().into());
    let first = ctx.state.mgrmap.active_addrs.first();
    m.insert(
        "addr".into(),
        first.sock.map_or(String::new(), |s| s.ip().to_string()).into(),
    );
    m.insert("addrs".into(), ctx.state.mgrmap.active_addrs.to_string().into());
    m.extend(daemons::own_metadata(ctx.mon));
    m
}

fn metadata(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    match cmd.opt_text("who") {
        None => cmd.json(&json!([facts(ctx)])),
        Some(who) if who == ctx.mon.mgr_name => cmd.json(&Value::Object(facts(ctx))),
        Some(who) => Outcome::absent(format!("mgr.{who} does not exist")),
    }
}

fn count_metadata(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    cmd.json(&show::count_values([value_of(&facts(ctx), cmd.text("property"))]))
}

fn versions(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    cmd.json(&show::count_values(daemons::mgr_versions(ctx)))
}
