//! Weight sets: what all pools (the compat set), or one, take in place of the CRUSH weights.

use crate::commands::command::{Command, Outcome, lines};
use crate::commands::context::Context;
use crate::commands::crush::change::{edit, refused};
use crate::commands::spec::{Spec, spec};
use crate::commands::views::crush_map::choose_args_json;
use cluster::Changes;
use crush::{DEFAULT_CHOOSE_ARGS, EditError};
use serde_json::{Value, json};
use types::{Errno, release};

const R: (&str, &str) = ("osd", "r");
const RW: (&str, &str) = ("osd", "rw");

pub const TABLE: &[Spec] = &[
    spec(R, "osd crush weight-set ls", "sets of alternative weights", ls),
    spec(R, "osd crush weight-set dump", "alternative weights", dump),
    spec(
        RW,
        "osd crush weight-set create-compat",
        "make the set that all pools take which have none of their own",
        create_compat,
    ),
    spec(
        RW,
        "osd crush weight-set create pool:pool mode:choice(flat|positional)",
        "make a set for one pool, with one row or one for each copy",
        create,
    ),
    spec(RW, "osd crush weight-set rm pool:pool", "remove a pool's set", rm),
    spec(
        RW,
        "osd crush weight-set rm-compat",
        "remove the set of all pools",
        rm_compat,
    ),
    spec(
        RW,
        "osd crush weight-set reweight pool:pool item:str weight*:float(0.0..)",
        "set the weights of an item in a pool's set",
        reweight,
    ),
    spec(
        RW,
        "osd crush weight-set reweight-compat item:str weight*:float(0.0..)",
        "set the weight of an item in the set of all pools",
        reweight_compat,
    ),
];

fn ls(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let map = ctx.map();
    let name = |key: &i64| match *key {
        DEFAULT_CHOOSE_ARGS => "(compat)".to_string(),
        pool => map
            .pool_name(pool)
            .map_or_else(|| pool.to_string(), str::to_string),
    };
    let names: Vec<String> = map.crush.choose_args.keys().map(name).collect();
    cmd.either(|| json!(names), || lines(&names))
}

fn dump(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    cmd.json(&choose_args_json(&ctx.map().crush))
}

fn create_compat(_: &Command, ctx: &Context<'_>) -> Outcome {
    match ctx.map().crush.weight_set_positions(DEFAULT_CHOOSE_ARGS) {
        Some(_) => Outcome::status("compat weight-set already created"),
        None => edit(ctx, String::new(), |c| {
            c.create_weight_set(DEFAULT_CHOOSE_ARGS, 1);
            Ok(())
        }),
    }
}

fn the_pool(cmd: &Command, ctx: &Context<'_>) -> Result<i64, Outcome> {
    let name = cmd.text("pool");
    let id = ctx.map().pool_by_name(name);
    id.ok_or_else(|| Outcome::absent(format!("pool '{name}' not found")))
}

fn create(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let map = ctx.map();
    let floor = map.require_min_compat_client;
    if floor < release::LUMINOUS {
        let why = format!(
            "require_min_compat_client {} < luminous, which is required for per-pool weight-sets. Try 'ceph osd \
             set-require-min-compat-client luminous' before using the new interface",
            release::name(floor)
        );
        return Outcome::error(Errno::EPERM, why);
    }
    let pool = match the_pool(cmd, ctx) {
        Ok(pool) => pool,
        Err(refusal) => return refusal,
    };
    let positions = match cmd.text("mode") {
        "flat" => 1,
        "positional" => map.pool(pool).map_or(1, |p| usize::from(p.size)),
        other => return Outcome::invalid(format!("unrecognized weight-set mode '{other}'")),
    };
    let name = cmd.text("pool");
    match map.crush.weight_set_positions(pool) {
        // Of either mode, as with the real one: the set stays as it is.
        Some(_) => Outcome::status(format!("weight-set for pool '{name}' already created")),
        None => edit(ctx, String::new(), |c| {
            c.create_weight_set(pool, positions);
            Ok(())
        }),
    }
}

fn remove(ctx: &Context<'_>, index: i64) -> Outcome {
    if ctx.map().crush.weight_set_positions(index).is_none() {
        return Outcome::default();
    }
    let mut inc = ctx.inc();
    inc.crush_mut(ctx.map()).choose_args.remove(&index);
    Outcome::default().with(Changes::map(inc))
}

fn rm(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    match the_pool(cmd, ctx) {
        Ok(pool) => remove(ctx, pool),
        Err(refusal) => refusal,
    }
}

fn rm_compat(_: &Command, ctx: &Context<'_>) -> Outcome {
    remove(ctx, DEFAULT_CHOOSE_ARGS)
}

fn set(cmd: &Command, ctx: &Context<'_>, index: i64) -> Outcome {
    let item = cmd.text("item");
    let crush = &ctx.map().crush;
    let Some(id) = crush.item_id(item) else {
        return Outcome::absent(format!("item '{item}' does not exist"));
    };
    let given = cmd.args.get("weight").and_then(Value::as_array);
    let weights: Vec<f64> = given.into_iter().flatten().filter_map(Value::as_f64).collect();
    if let Some(wrong) = weights.iter().find(|w| !(0.0..=65_535.0).contains(*w)) {
        return Outcome::invalid(format!("weight {wrong} is out of range"));
    }
    let weights: Vec<u32> = weights.into_iter().map(crush::weight_from_f64).collect();
    let mut inc = ctx.inc();
    match inc.crush_mut(ctx.map()).reweight_in_set(index, item, &weights) {
        Ok(()) => Outcome::default().with(Changes::map(inc)),
        Err(EditError::NoSuchItem(_)) => Outcome::absent(format!("item {id} not found in crush map")),
        Err(e) => refused(&e),
    }
}

fn reweight(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let name = cmd.text("pool");
    match the_pool(cmd, ctx) {
        Err(refusal) => refusal,
        Ok(pool) if ctx.map().crush.weight_set_positions(pool).is_none() => {
            Outcome::absent(format!("no weight-set for pool '{name}'"))
        }
        Ok(pool) => set(cmd, ctx, pool),
    }
}

fn reweight_compat(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    match ctx.map().crush.weight_set_positions(DEFAULT_CHOOSE_ARGS) {
        None => Outcome::absent("no backward-compat weight-set"),
        Some(_) => set(cmd, ctx, DEFAULT_CHOOSE_ARGS),
    }
}
