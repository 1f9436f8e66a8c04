//! `crash`: what is kept of crashes of daemons (`cluster::crashes`), looked at and put away.

use crate::commands::command::{Command, Outcome};
use crate::commands::context::Context;
use crate::commands::modules::pretty;
use crate::commands::spec::{Spec, spec};
use crate::format::Table;
use cluster::{Change, Changes, crashes};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use types::Utime;

const R: (&str, &str) = ("mgr", "r");
const W: (&str, &str) = ("mgr", "w");
const RW: (&str, &str) = ("mgr", "rw");
const MODULE: &str = "crash";
const DAY_SEC: u64 = 24 * 3600;

pub const TABLE: &[Spec] = &[
    spec(R, "crash ls", "crashes of daemons", ls).by_manager(MODULE),
    spec(R, "crash ls-new", "crashes that nobody has looked at", ls_new).by_manager(MODULE),
    spec(R, "crash stat", "number of crashes", stat).by_manager(MODULE),
    spec(R, "crash info id:str", "all about one crash", info).by_manager(MODULE),
    spec(
        RW,
        "crash post",
        "keep the report of a crash, from the input",
        post,
    )
    .by_manager(MODULE),
    spec(W, "crash archive id:str", "mark a crash as looked at", archive).by_manager(MODULE),
    spec(
        W,
        "crash archive-all",
        "mark all crashes as looked at",
        archive_all,
    )
    .by_manager(MODULE),
    spec(RW, "crash rm id:str", "forget a crash", rm).by_manager(MODULE),
    spec(
        RW,
        "crash prune keep:int(0..)",
        "forget crashes older than so many days",
        prune,
    )
    .by_manager(MODULE),
    spec(
        R,
        "crash json_report hours:int(0..)",
        "crashes of the last hours, by process",
        json_report,
    )
    .by_manager(MODULE),
];

fn is_new(report: &Map<String, Value>) -> bool {
    !report.contains_key("archived")
}

fn text<'a>(report: &'a Map<String, Value>, key: &str) -> &'a str {
    report.get(key).and_then(Value::as_str).unwrap_or("")
}

/// Those that happened at `from` or later. Stamps are compared as text: all are in UTC, in one form.
fn is_since(report: &Map<String, Value>, from: &str) -> bool {
    text(report, "timestamp") >= from
}

fn back(ctx: &Context<'_>, sec: u64) -> String {
    let sec = u64::from(ctx.now.sec).saturating_sub(sec);
    crashes::stamp(Utime {
        sec: u32::try_from(sec).unwrap_or(u32::MAX),
        nsec: 0,
    })
}

fn listed(cmd: &Command, all: Vec<(String, Map<String, Value>)>) -> Outcome {
    if cmd.wants_json() {
        return pretty(&all.into_iter().map(|(_, r)| Value::Object(r)).collect());
    }
    if all.is_empty() {
        return Outcome::default();
    }
    let mut table = Table::new().left(&["ID", "ENTITY", "NEW"]);
    for (id, report) in &all {
        let new = if is_new(report) { "*" } else { "" };
        table.row([id.as_str(), text(report, "entity_name"), new]);
    }
    // The real one's lines end in two blanks.
    Outcome::ok(
        table
            .print()
            .lines()
            .map(|l| format!("{l}  \n"))
            .collect::<String>(),
    )
}

fn ls(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    listed(cmd, crashes::all(ctx.state))
}

fn ls_new(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let all = crashes::all(ctx.state);
    listed(cmd, all.into_iter().filter(|(_, r)| is_new(r)).collect())
}

fn stat(_: &Command, ctx: &Context<'_>) -> Outcome {
    Outcome::ok(format!("{} crashes recorded\n", crashes::all(ctx.state).len()))
}

/// The real one answers so, and with success.
fn not_found(id: &str) -> Outcome {
    Outcome::status(format!("crash info: {id} not found"))
}

fn info(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let id = cmd.text("id");
    match crashes::get(ctx.state, id) {
        Some(report) => pretty(&Value::Object(report)),
        None => not_found(id),
    }
}

fn post(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    const REPORT_BYTES_MAX: usize = 60 << 10;
    const ID_CHARS_MAX: usize = 200;
    let bad = |why: String| Outcome::invalid(format!("malformed crash metadata: {why}"));
    if cmd.inbuf.len() > REPORT_BYTES_MAX {
        return bad(format!("it has more than {REPORT_BYTES_MAX} bytes"));
    }
    let report: Map<String, Value> = match serde_json::from_slice(&cmd.inbuf) {
        Ok(report) => report,
        Err(e) => return bad(e.to_string()),
    };
    let id = text(&report, "crash_id").to_string();
    let fit = !id.is_empty() && id.len() <= ID_CHARS_MAX && id.chars().all(|c| c.is_ascii_graphic());
    if !fit || text(&report, "timestamp").is_empty() {
        return bad("crash_id or timestamp is missing".into());
    }
    if crashes::get(ctx.state, &id).is_some() {
        return Outcome::default();
    }
    let list = crashes::put(ctx.state, &id, &Value::Object(report));
    Outcome::default().with(Changes {
        list,
        ..Changes::default()
    })
}

fn archived(ctx: &Context<'_>, id: &str, mut report: Map<String, Value>) -> Vec<Change> {
    report.insert("archived".into(), crashes::stamp(ctx.now).into());
    crashes::put(ctx.state, id, &Value::Object(report))
}

fn archive(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let id = cmd.text("id");
    match crashes::get(ctx.state, id) {
        None => not_found(id),
        Some(report) if !is_new(&report) => Outcome::default(),
        Some(report) => Outcome::default().with(Changes {
            list: archived(ctx, id, report),
            ..Changes::default()
        }),
    }
}

fn archive_all(_: &Command, ctx: &Context<'_>) -> Outcome {
    let new = crashes::all(ctx.state).into_iter().filter(|(_, r)| is_new(r));
    let list = new.flat_map(|(id, r)| archived(ctx, &id, r)).collect();
    Outcome::default().with(Changes {
        list,
        ..Changes::default()
    })
}

fn rm(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let id = cmd.text("id");
    match crashes::get(ctx.state, id) {
        None => Outcome::default(),
        Some(_) => Outcome::default().with(Changes::one(crashes::rm(id))),
    }
}

fn prune(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let days = cmd.int("keep").unwrap_or(0).max(0) as u64;
    let from = back(ctx, days.saturating_mul(DAY_SEC));
    let old = crashes::all(ctx.state)
        .into_iter()
        .filter(|(_, r)| !is_since(r, &from));
    let list = old.map(|(id, _)| crashes::rm(&id)).collect();
    Outcome::default().with(Changes {
        list,
        ..Changes::default()
    })
}

fn json_report(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let hours = cmd.int("hours").unwrap_or(0).max(0) as u64;
    let from = back(ctx, hours.saturating_mul(3600));
    let mut out: BTreeMap<String, u64> = BTreeMap::new();
    for (_, report) in crashes::all(ctx.state).iter().filter(|(_, r)| is_since(r, &from)) {
        *out.entry(text(report, "process_name").to_string()).or_default() += 1;
    }
    // Not the output: the real one says it there, too.
    Outcome::status(crate::format::spaced(&json!(out)))
}
