//! `progress`: healing as this monitor sees it, and work on images.

use crate::commands::command::{Command, Outcome};
use crate::commands::context::Context;
use crate::commands::modules::pretty;
use crate::commands::spec::{Spec, spec};
use crate::commands::views::progress;
use cluster::{Change, Changes};
use serde_json::json;

const R: (&str, &str) = ("mgr", "r");
const W: (&str, &str) = ("mgr", "rw");
const MODULE: &str = "progress";

pub const TABLE: &[Spec] = &[
    spec(R, "progress", "long running work", plain).by_manager(MODULE),
    spec(R, "progress json", "long running work, as JSON", as_json).by_manager(MODULE),
    spec(W, "progress clear", "forget work that ended", clear).by_manager(MODULE),
    spec(W, "progress on", "show long running work", on).by_manager(MODULE),
    spec(W, "progress off", "show no long running work", off).by_manager(MODULE),
];

fn plain(_: &Command, ctx: &Context<'_>) -> Outcome {
    match progress::plain(ctx) {
        Some(text) => Outcome::ok(text),
        None => Outcome::status("Nothing in progress"),
    }
}

fn as_json(_: &Command, ctx: &Context<'_>) -> Outcome {
    pretty(&progress::json(ctx))
}

fn set(key: &str, value: String) -> Changes {
    Changes::one(Change::ConfigKeySet {
        key: key.into(),
        value: value.into(),
    })
}

fn clear(_: &Command, ctx: &Context<'_>) -> Outcome {
    let now = json!(ctx.now.to_duration().as_secs_f64()).to_string();
    Outcome::default().with(set(progress::CLEARED_KEY, now))
}

fn on(_: &Command, ctx: &Context<'_>) -> Outcome {
    if progress::is_on(ctx) {
        return Outcome::status("progress already enabled!");
    }
    let key = progress::OFF_KEY.to_string();
    Outcome::status("progress enabled").with(Changes::one(Change::ConfigKeyRm { key }))
}

fn off(_: &Command, ctx: &Context<'_>) -> Outcome {
    if !progress::is_on(ctx) {
        return Outcome::status("progress already disabled!");
    }
    Outcome::status("progress disabled").with(set(progress::OFF_KEY, "1".into()))
}
