//! Long running work: healing, as this monitor sees it, and work on images. `status` and `progress` show it.

use crate::commands::context::Context;
use crate::policies::progress as healing;
use cluster::rbd_support::{Ended, Running, Task};
use serde_json::{Map, Value, json};
use types::Utime;

/// There: nothing is shown.
pub const OFF_KEY: &str = "mgr/progress/off";
/// What ended before that (seconds since 1970) is not shown any more.
pub const CLEARED_KEY: &str = "mgr/progress/cleared";

pub fn is_on(ctx: &Context<'_>) -> bool {
    !ctx.state.config_keys.contains_key(OFF_KEY)
}

fn cleared(ctx: &Context<'_>) -> f64 {
    let raw = ctx.state.config_keys.get(CLEARED_KEY);
    let text = raw.and_then(|raw| std::str::from_utf8(raw).ok());
    text.and_then(|t| t.parse().ok()).unwrap_or(0.0)
}

fn seconds(t: Utime) -> f64 {
    t.to_duration().as_secs_f64()
}

fn refs(task: &Task) -> Value {
    let mut refs = task.refs();
    refs["origin"] = "rbd_support".into();
    refs
}

/// Newest last.
fn ended<'a>(ctx: &'a Context<'_>) -> impl Iterator<Item = &'a Ended> {
    let from = cleared(ctx);
    let all = ctx.mon.images.ended.iter();
    all.filter(move |e| seconds(e.finished) > from)
}

fn message(ended: &Ended) -> String {
    match ended.failure {
        None => ended.task.message(),
        Some(_) => format!("{} failed", ended.task.message()),
    }
}

/// What `progress` prints. None: nothing to tell.
pub fn plain(ctx: &Context<'_>) -> Option<String> {
    if !is_on(ctx) {
        return None;
    }
    let mut out: Vec<String> = ctx.progress.now.iter().map(|e| e.text(ctx.now, 4)).collect();
    let scaling = ctx.progress.scaling.values();
    out.extend(scaling.map(|s| healing::bar(&s.message(), s.started, ctx.now, s.fraction(), 4)));
    let running = ctx.mon.images.running.iter();
    out.extend(running.map(|r| healing::bar(&r.task.message(), r.started, ctx.now, r.progress, 4)));
    let from = cleared(ctx);
    let past = ctx.progress.done.iter().filter(|f| seconds(f.finished) > from);
    let past = past.map(|f| (f.started, f.finished, f.message.clone()));
    let mut past: Vec<_> = past
        .chain(ended(ctx).map(|e| (e.started, e.finished, message(e))))
        .collect();
    past.sort_by_key(|(_, finished, _)| std::cmp::Reverse(*finished));
    out.extend(past.into_iter().map(|(started, finished, message)| {
        let message = format!("[Complete]: {message}");
        healing::bar(&message, started, finished, 1.0, 4)
    }));
    (!out.is_empty()).then(|| out.join("\n") + "\n")
}

fn running_json(r: &Running, ctx: &Context<'_>) -> Value {
    json!({
        "duration": format!("({})", crate::format::units::age(r.started, ctx.now)),
        "id": r.task.id,
        "message": r.task.message(),
        "progress": r.progress,
        "refs": refs(&r.task),
        "started_at": seconds(r.started),
        "time_remaining": null,
    })
}

/// What `progress json` prints.
pub fn json(ctx: &Context<'_>) -> Value {
    if !is_on(ctx) {
        return json!({"completed": [], "events": []});
    }
    let mut all = ctx.progress.json(ctx.now);
    let from = cleared(ctx);
    if let Some(completed) = all["completed"].as_array_mut() {
        completed.retain(|f| f["finished_at"].as_f64().is_none_or(|at| at > from));
        completed.extend(ended(ctx).map(|e| {
            json!({
                "add_to_ceph_s:": false,
                "finished_at": seconds(e.finished),
                "id": e.task.id,
                "message": message(e),
                "refs": refs(&e.task),
                "started_at": seconds(e.started),
            })
        }));
    }
    if let Some(events) = all["events"].as_array_mut() {
        events.extend(ctx.mon.images.running.iter().map(|r| running_json(r, ctx)));
    }
    all
}

/// The same in words: healing, and pools on their way to other numbers of groups.
pub fn status_texts(ctx: &Context<'_>) -> Vec<String> {
    if !is_on(ctx) {
        return Vec::new();
    }
    let recovery = ctx.progress.now.iter().map(|e| e.text(ctx.now, 6));
    let scaling = ctx.progress.scaling.values();
    let scaling = scaling.map(|s| healing::bar(&s.message(), s.started, ctx.now, s.fraction(), 6));
    recovery.chain(scaling).collect()
}

/// `progress_events` of `status`.
pub fn status_json(ctx: &Context<'_>) -> Value {
    if !is_on(ctx) {
        return Value::Object(Map::new());
    }
    let mut all = ctx.progress.status_json(ctx.now);
    if let Some(r) = &ctx.mon.images.running {
        let message = healing::bar(&r.task.message(), r.started, ctx.now, r.progress, 6);
        all[r.task.id.clone()] = json!({"message": message, "progress": r.progress, "add_to_ceph_s": false});
    }
    all
}
