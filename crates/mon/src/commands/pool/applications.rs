//! `osd pool application`: what a pool is used for.

use crate::commands::command::{Command, Outcome};
use crate::commands::context::Context;
use crate::commands::language::ids::unknown_pool;
use crate::commands::pool::change;
use crate::commands::spec::{Spec, spec};
use crate::policies::{near, pool_set};
use serde_json::{Map, Value, json};

const R: (&str, &str) = ("osd", "r");
const RW: (&str, &str) = ("osd", "rw");

pub const TABLE: &[Spec] = &[
    spec(
        RW,
        "osd pool application enable pool:pool app:str([A-Za-z0-9-_.]) yes_i_really_mean_it?:bool",
        "say what a pool is used for (rbd, rgw, cephfs or a name of your own)",
        enable,
    ),
    spec(
        RW,
        "osd pool application disable pool:pool app:str yes_i_really_mean_it?:bool",
        "take back what a pool is used for",
        disable,
    ),
    spec(
        RW,
        "osd pool application set pool:pool app:str key:str([A-Za-z0-9-_.]) value:str([A-Za-z0-9-_.=])",
        "note something for an application of a pool",
        set,
    ),
    spec(
        RW,
        "osd pool application rm pool:pool app:str key:str",
        "remove a note of an application",
        rm,
    ),
    spec(
        R,
        "osd pool application get pool?:pool app?:str key?:str",
        "what pools are used for, with notes",
        get,
    ),
    spec(
        RW,
        "osd pool near pool:pool host:str([A-Za-z0-9-_.])",
        "keep the first copy of everything on one host, the others on other hosts (skep's own)",
        near,
    ),
];

fn near(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    change(ctx, |inc| {
        near::set(ctx.map(), cmd.text("pool"), cmd.text("host"), inc)
    })
}

fn enable(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let app = cmd.text("app");
    if app.is_empty() {
        return Outcome::invalid("application name must be provided");
    }
    let sure = cmd.flag("yes_i_really_mean_it");
    change(ctx, |inc| {
        pool_set::application_enable(ctx.map(), cmd.text("pool"), app, sure, inc)
    })
}

fn disable(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let sure = cmd.flag("yes_i_really_mean_it");
    change(ctx, |inc| {
        pool_set::application_disable(ctx.map(), cmd.text("pool"), cmd.text("app"), sure, inc)
    })
}

fn key(cmd: &Command, ctx: &Context<'_>, value: Option<&str>) -> Outcome {
    let (pool, app) = (cmd.text("pool"), cmd.text("app"));
    change(ctx, |inc| {
        pool_set::application_key(ctx.map(), pool, app, cmd.text("key"), value, inc)
    })
}

fn set(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    key(cmd, ctx, Some(cmd.text("value")))
}

fn rm(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let (pool, app, name) = (cmd.text("pool"), cmd.text("app"), cmd.text("key"));
    let map = ctx.map();
    let data = map
        .pool_by_name(pool)
        .and_then(|id| map.pool(id)?.application_metadata.get(app));
    match data {
        None if map.pool_by_name(pool).is_some() => {
            Outcome::absent(format!("application '{app}' is not enabled on pool '{pool}'"))
        }
        Some(d) if !d.contains_key(name) => Outcome::status(format!(
            "application '{app}' on pool '{pool}' does not have key '{name}'"
        )),
        _ => key(cmd, ctx, None),
    }
}

fn get(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let map = ctx.map();
    let Some(name) = cmd.opt_text("pool") else {
        let all: Map<String, Value> = map
            .pools
            .iter()
            .map(|(id, p)| {
                (
                    map.pool_name(*id).unwrap_or("").to_string(),
                    json!(p.application_metadata),
                )
            })
            .collect();
        return cmd.json(&Value::Object(all));
    };
    let Some(p) = map.pool_by_name(name).and_then(|id| map.pool(id)) else {
        return unknown_pool(name);
    };
    let Some(app) = cmd.opt_text("app") else {
        return cmd.json(&json!(p.application_metadata));
    };
    let Some(data) = p.application_metadata.get(app) else {
        return Outcome::absent(format!("pool '{name}' has no application '{app}'"));
    };
    match cmd.opt_text("key") {
        None => cmd.json(&json!(data)),
        // The bare value, in every format.
        Some(key) => match data.get(key) {
            Some(v) => Outcome::ok(format!("{v}\n")),
            None => Outcome::absent(format!(
                "application '{app}' on pool '{name}' does not have key '{key}'"
            )),
        },
    }
}
