//! Crashes of daemons that nobody has looked at.

use crate::commands::checks::check::{Check, warn};
use crate::commands::context::Context;
use cluster::crashes;
use serde_json::{Map, Value};
use types::Utime;

/// The real one's default of `mgr/crash/warn_recent_interval`: two weeks.
const RECENT_SEC: u32 = 14 * 24 * 3600;

pub fn recent(ctx: &Context<'_>, found: &mut Vec<Check>) {
    let from = crashes::stamp(Utime {
        sec: ctx.now.sec.saturating_sub(RECENT_SEC),
        nsec: 0,
    });
    let text =
        |r: &Map<String, Value>, key: &str| r.get(key).and_then(Value::as_str).unwrap_or("?").to_string();
    let all = crashes::all(ctx.state);
    let new = all
        .iter()
        .map(|(_, r)| r)
        .filter(|r| !r.contains_key("archived") && text(r, "timestamp") >= from);
    let detail: Vec<String> = new
        .map(|r| {
            let words = ["entity_name", "utsname_hostname", "timestamp"].map(|key| text(r, key));
            format!("{} crashed on host {} at {}", words[0], words[1], words[2])
        })
        .collect();
    if !detail.is_empty() {
        let n = detail.len();
        found.push(warn(
            "RECENT_CRASH",
            format!("{n} daemons have recently crashed"),
            n as u64,
            detail,
        ));
    }
}
