//! `balancer`: evens out bytes by upmaps, by itself or by plans that an operator makes, looks at and carries out.
//!
//! Settings stand in the central configuration under the names of Ceph's module; plans in the store of keys, so that any
//! monitor shows and carries out any plan. What moves: [`crate::policies::balance`]; when: [`crate::policies::evening`].

use crate::commands::command::{Command, Outcome};
use crate::commands::context::Context;
use crate::commands::modules::pretty;
use crate::commands::spec::{Spec, spec};
use crate::policies::balance;
use crate::policies::evening::{self, ACTIVE, Items, LAST, MODE, NOTHING, POOLS};
use crate::policies::score::Score;
use crate::policies::survey::Survey;
use cluster::{Change, Changes};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::time::Duration;
use types::{Errno, OsdId, PgId, PoolId};

const R: (&str, &str) = ("mgr", "r");
const W: (&str, &str) = ("mgr", "rw");
const MODULE: &str = "balancer";
const PLAN: &str = "mgr/balancer/plan/";
const PLANS_MAX: usize = 32;
const NAME_MAX: usize = 64;

pub const TABLE: &[Spec] = &[
    spec(
        R,
        "balancer status",
        "what the balancer does, and did last",
        status,
    )
    .by_manager(MODULE),
    spec(
        W,
        "balancer mode mode:choice(none|crush-compat|upmap)",
        "how to balance: by upmaps, or not at all",
        set_mode,
    )
    .by_manager(MODULE),
    spec(W, "balancer on", "balance by itself", on).by_manager(MODULE),
    spec(W, "balancer off", "balance by plans only", off).by_manager(MODULE),
    spec(
        R,
        "balancer pool ls",
        "pools that are balanced by themselves; none: all are",
        pool_ls,
    )
    .by_manager(MODULE),
    spec(
        W,
        "balancer pool add pools*:str",
        "balance these pools only",
        pool_add,
    )
    .by_manager(MODULE),
    spec(
        W,
        "balancer pool rm pools*:str",
        "balance these pools no more",
        pool_rm,
    )
    .by_manager(MODULE),
    spec(
        R,
        "balancer eval option?:str",
        "how uneven the cluster, a pool, or what a plan makes of it is: 0 is even",
        eval,
    )
    .by_manager(MODULE),
    spec(
        R,
        "balancer eval-verbose option?:str",
        "the same with the figures of each OSD",
        eval_verbose,
    )
    .by_manager(MODULE),
    spec(
        W,
        "balancer optimize plan:str pools?*:str",
        "make a plan, for all pools or some",
        optimize,
    )
    .by_manager(MODULE),
    spec(R, "balancer show plan:str", "a plan, as commands", show).by_manager(MODULE),
    spec(W, "balancer rm plan:str", "forget a plan", rm).by_manager(MODULE),
    spec(W, "balancer reset", "forget all plans", reset).by_manager(MODULE),
    spec(
        R,
        "balancer dump plan:str",
        "what a plan changes of the OSD map",
        dump,
    )
    .by_manager(MODULE),
    spec(R, "balancer ls", "names of the plans", ls).by_manager(MODULE),
    spec(W, "balancer execute plan:str", "carry out a plan", execute).by_manager(MODULE),
];

fn status(_: &Command, ctx: &Context<'_>) -> Outcome {
    let last = evening::last(ctx.state);
    let text = |key: &str| last[key].as_str().unwrap_or("").to_string();
    pretty(&json!({
        "active": evening::is_active(ctx.state),
        "last_optimize_duration": text("last_optimize_duration"),
        "last_optimize_started": text("last_optimize_started"),
        "mode": evening::mode(ctx.state),
        "no_optimization_needed": last["no_optimization_needed"].as_bool().unwrap_or(false),
        "optimize_result": text("optimize_result"),
        "plans": plan_names(ctx),
    }))
}

fn set(name: &str, value: impl Into<String>) -> Changes {
    Changes::one(Change::ConfigSet {
        who: "mgr".into(),
        name: name.into(),
        value: value.into(),
    })
}

fn set_mode(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let mode = cmd.text("mode");
    if mode == "crush-compat" {
        return Outcome::error(
            Errno::EOPNOTSUPP,
            "crush-compat, which keeps a second set of weights for clients before luminous, is not built in skep: use upmap",
        );
    }
    if mode == evening::mode(ctx.state) {
        return Outcome::default();
    }
    Outcome::default().with(set(MODE, mode))
}

fn on(_: &Command, ctx: &Context<'_>) -> Outcome {
    match evening::is_active(ctx.state) {
        true => Outcome::default(),
        false => Outcome::default().with(set(ACTIVE, "true")),
    }
}

fn off(_: &Command, ctx: &Context<'_>) -> Outcome {
    match evening::is_active(ctx.state) {
        true => Outcome::default().with(set(ACTIVE, "false")),
        false => Outcome::default(),
    }
}

/// Pools by their names, or those that there are not.
fn by_name(ctx: &Context<'_>, names: &[&str]) -> Result<BTreeSet<PoolId>, String> {
    let missing: Vec<String> = names
        .iter()
        .filter(|n| ctx.map().pool_by_name(n).is_none())
        .map(|n| format!("'{n}'"))
        .collect();
    match missing.is_empty() {
        true => Ok(names.iter().filter_map(|n| ctx.map().pool_by_name(n)).collect()),
        false => Err(format!("[{}]", missing.join(", "))),
    }
}

fn pool_ls(_: &Command, ctx: &Context<'_>) -> Outcome {
    let Some(pools) = evening::pools(ctx.state) else {
        return Outcome::default();
    };
    let names: Vec<&str> = pools.iter().filter_map(|id| ctx.map().pool_name(*id)).collect();
    pretty(&json!(names))
}

fn pools_text(pools: &BTreeSet<PoolId>) -> String {
    let ids: Vec<String> = pools.iter().map(PoolId::to_string).collect();
    ids.join(",")
}

fn pool_add(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    match by_name(ctx, &cmd.list("pools")) {
        Err(missing) => Outcome::invalid(format!("pool(s) {missing} not found")),
        Ok(more) => {
            let mut pools = evening::pools(ctx.state).unwrap_or_default();
            pools.extend(more);
            Outcome::default().with(set(POOLS, pools_text(&pools)))
        }
    }
}

fn pool_rm(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let Some(mut pools) = evening::pools(ctx.state) else {
        return Outcome::default();
    };
    for id in cmd.list("pools").iter().filter_map(|n| ctx.map().pool_by_name(n)) {
        pools.remove(&id);
    }
    Outcome::default().with(set(POOLS, pools_text(&pools)))
}

/// A plan as it is kept.
struct Plan {
    epoch: u64,
    items: Items,
}

fn plan_names(ctx: &Context<'_>) -> Vec<String> {
    let keys = ctx.state.config_keys.range(PLAN.to_string()..);
    let ours = keys.map(|(k, _)| k).take_while(|k| k.starts_with(PLAN));
    ours.map(|k| k[PLAN.len()..].to_string()).collect()
}

fn plan_json(epoch: u32, items: &Items) -> Value {
    let items: Map<String, Value> = items
        .iter()
        .map(|(pg, list)| (pg.to_string(), json!(list)))
        .collect();
    json!({"epoch": epoch, "mode": "upmap", "items": items})
}

fn find(ctx: &Context<'_>, name: &str) -> Option<Plan> {
    let raw = ctx.state.config_keys.get(&format!("{PLAN}{name}"))?;
    let v: Value = serde_json::from_slice(raw).ok()?;
    let mut items = Items::new();
    for (pg, list) in v["items"].as_object()? {
        let pair = |p: &Value| Some((p.get(0)?.as_i64()? as OsdId, p.get(1)?.as_i64()? as OsdId));
        let pairs: Option<Vec<_>> = list.as_array()?.iter().map(pair).collect();
        items.insert(pg.parse::<PgId>().ok()?, pairs?);
    }
    Some(Plan {
        epoch: v["epoch"].as_u64()?,
        items,
    })
}

fn the_plan(cmd: &Command, ctx: &Context<'_>) -> Result<Plan, Outcome> {
    let name = cmd.text("plan");
    find(ctx, name).ok_or_else(|| Outcome::absent(format!("plan {name} not found")))
}

fn is_name(name: &str) -> bool {
    let fine = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    (1..=NAME_MAX).contains(&name.len()) && name.bytes().all(fine)
}

fn optimize(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    if evening::is_active(ctx.state) {
        return Outcome::invalid("Balancer enabled, disable to optimize manually");
    }
    if evening::mode(ctx.state) != "upmap" {
        return Outcome::invalid("Please do \"ceph balancer mode\" to choose a valid mode first");
    }
    let name = cmd.text("plan");
    if !is_name(name) {
        return Outcome::invalid("the name of a plan has 1 to 64 letters, digits, '-', '_' and '.'");
    }
    let named = cmd.list("pools");
    let pools = match by_name(ctx, &named) {
        Err(missing) => return Outcome::invalid(format!("pools {missing} not found")),
        Ok(pools) if named.is_empty() => evening::pools(ctx.state).filter(|_| pools.is_empty()),
        Ok(pools) => Some(pools),
    };
    let (key, known) = (format!("{PLAN}{name}"), plan_names(ctx));
    if known.len() >= PLANS_MAX && !known.iter().any(|n| n == name) {
        return Outcome::error(Errno::ENOSPC, format!("there are {PLANS_MAX} plans already"));
    }
    let survey = Survey::of(ctx.map(), ctx.stats);
    let found = evening::moves(ctx.state, ctx.stats, &survey, pools.as_ref());
    let items = found.map(|moves| balance::items(ctx.map(), &moves));
    let (result, items) = match items {
        Ok(items) if !items.is_empty() => (evening::PLANNED.to_string(), Some(items)),
        Ok(_) => (NOTHING.to_string(), None),
        Err(why) => (why, None),
    };
    let Some(items) = items else {
        let errno = if result == NOTHING {
            Errno::EALREADY
        } else {
            Errno::EBUSY
        };
        return Outcome::error(errno, result);
    };
    let mut changes = Changes::one(Change::ConfigKeySet {
        key,
        value: plan_json(ctx.map().epoch, &items).to_string().into(),
    });
    changes.push(Change::ConfigKeySet {
        key: LAST.into(),
        value: evening::record(&result, Duration::ZERO, ctx.now)
            .to_string()
            .into(),
    });
    Outcome::default().with(changes)
}

fn ls(_: &Command, ctx: &Context<'_>) -> Outcome {
    pretty(&json!(plan_names(ctx)))
}

fn show(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let plan = match the_plan(cmd, ctx) {
        Ok(plan) => plan,
        Err(refusal) => return refusal,
    };
    let mut out = format!("# starting osdmap epoch {}\n# mode upmap\n", plan.epoch);
    for (pg, list) in &plan.items {
        let pairs: String = list.iter().map(|(f, t)| format!(" {f} {t}")).collect();
        out.push_str(&match list.is_empty() {
            true => format!("ceph osd rm-pg-upmap-items {pg}\n"),
            false => format!("ceph osd pg-upmap-items {pg}{pairs}\n"),
        });
    }
    Outcome::ok(out)
}

fn dump(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let plan = match the_plan(cmd, ctx) {
        Ok(plan) => plan,
        Err(refusal) => return refusal,
    };
    let new = plan.items.iter().filter(|(_, l)| !l.is_empty());
    let new: Vec<Value> = new
        .map(|(pg, list)| {
            let pairs = list.iter().map(|(f, t)| json!({"from": f, "to": t}));
            json!({"pgid": pg.to_string(), "mappings": pairs.collect::<Vec<_>>()})
        })
        .collect();
    let old = plan.items.iter().filter(|(_, l)| l.is_empty());
    let old: Vec<String> = old.map(|(pg, _)| pg.to_string()).collect();
    pretty(&json!({
        "epoch": plan.epoch + 1,
        "fsid": ctx.state.fsid.to_string(),
        "new_pg_upmap_items": new,
        "old_pg_upmap_items": old,
    }))
}

fn forget(names: &[String]) -> Changes {
    let mut out = Changes::none();
    for name in names {
        out.push(Change::ConfigKeyRm {
            key: format!("{PLAN}{name}"),
        });
    }
    out
}

fn rm(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let name = cmd.text("plan").to_string();
    match plan_names(ctx).contains(&name) {
        true => Outcome::default().with(forget(&[name])),
        false => Outcome::default(),
    }
}

fn reset(_: &Command, ctx: &Context<'_>) -> Outcome {
    let names = plan_names(ctx);
    match names.is_empty() {
        true => Outcome::default(),
        false => Outcome::default().with(forget(&names)),
    }
}

/// Only while the map still has the groups where the plan found them: else it would do another thing than it shows.
fn execute(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let plan = match the_plan(cmd, ctx) {
        Ok(plan) => plan,
        Err(refusal) => return refusal,
    };
    let map = ctx.map();
    let good = |o: &OsdId| map.exists(*o) && map.is_up(*o) && map.is_in(*o);
    for (pg, list) in &plan.items {
        let there = map.pool(pg.pool).is_some_and(|p| pg.seed < p.pg_num);
        if !there || !list.iter().all(|(_, to)| good(to)) {
            let why = format!("the cluster is not as the plan found it (pg {pg}): make another one");
            return Outcome::error(Errno::EBUSY, why);
        }
    }
    let mut trial = map.clone();
    for (pg, list) in &plan.items {
        balance::set(&mut trial, *pg, list);
    }
    let stale = balance::stale(&trial, usize::MAX);
    if let Some(pg) = plan.items.keys().find(|pg| stale.contains_key(pg)) {
        let why = format!("the cluster is not as the plan found it (pg {pg}): make another one");
        return Outcome::error(Errno::EBUSY, why);
    }
    let mut changes = forget(&[cmd.text("plan").to_string()]);
    let mut inc = ctx.inc();
    balance::write(map, &plan.items, &mut inc);
    changes.osdmap = Some(Box::new(inc));
    Outcome::default().with(changes)
}

/// What is to be judged, and what it is called.
fn judged(cmd: &Command, ctx: &Context<'_>) -> Result<(String, Score), Outcome> {
    let Some(option) = cmd.opt_text("option") else {
        let score = Score::of(ctx.map(), &Survey::of(ctx.map(), ctx.stats), None);
        return Ok(("current cluster".into(), score));
    };
    if let Some(plan) = find(ctx, option) {
        let mut map = ctx.map().clone();
        for (pg, list) in plan.items {
            balance::set(&mut map, pg, &list);
        }
        let score = Score::of(&map, &Survey::of(&map, ctx.stats), None);
        return Ok((format!("plan {option} final"), score));
    }
    let Some(id) = ctx.map().pool_by_name(option) else {
        return Err(Outcome::invalid(format!(
            "option \"{option}\" not a plan or a pool"
        )));
    };
    let only = BTreeSet::from([id]);
    let score = Score::of(ctx.map(), &Survey::of(ctx.map(), ctx.stats), Some(&only));
    Ok((format!("pool \"{option}\""), score))
}

fn eval(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    match judged(cmd, ctx) {
        Ok((what, score)) => Outcome::ok(format!("{what} score {:.6} (lower is better)\n", score.total())),
        Err(refusal) => refusal,
    }
}

fn eval_verbose(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let (what, score) = match judged(cmd, ctx) {
        Ok(found) => found,
        Err(refusal) => return refusal,
    };
    let mut t = crate::format::Table::new().right(&["OSD", "SHARE", "PGS", "OBJECTS", "BYTES"]);
    for (osd, (held, share)) in &score.osds {
        let [pgs, objects, bytes] = held.map(|n| n.to_string());
        t.row([osd.to_string(), format!("{share:.4}"), pgs, objects, bytes]);
    }
    let on_full = "on OSDs that hold more than their share";
    Outcome::ok(format!(
        "{what}\n{}{on_full}: pgs {:.6}, objects {:.6}, bytes {:.6}\nscore {:.6} (lower is better)\n",
        t.print(),
        score.pgs,
        score.objects,
        score.bytes,
        score.total()
    ))
}
