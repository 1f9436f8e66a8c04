//! `osd perf query`: figures by image, which OSDs count always; a query is a number under which to ask for them.

use crate::commands::command::{Command, Outcome};
use crate::commands::context::Context;
use crate::commands::spec::{Spec, spec};
use crate::format::{Table, compact};
use cluster::{Change, Changes};
use serde_json::{Value, json};
use types::Errno;

const R: (&str, &str) = ("mgr", "r");
const W: (&str, &str) = ("mgr", "w");
const MODULE: &str = "osd_perf_query";
const PREFIX: &str = "mgr/osd_perf_query/";
const QUERIES_MAX: u64 = 100;

pub const TABLE: &[Spec] = &[
    spec(
        W,
        "osd perf query add query:choice(client_id|rbd_image_id|all_subkeys)",
        "begin to count operations by image",
        add,
    )
    .by_manager(MODULE),
    spec(W, "osd perf query remove query_id:int(0..)", "end it", remove).by_manager(MODULE),
    spec(
        R,
        "osd perf counters get query_id:int(0..)",
        "what was counted, by image",
        get,
    )
    .by_manager(MODULE),
];

fn key(id: u64) -> String {
    format!("{PREFIX}{id:05}")
}

fn add(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let query = cmd.text("query");
    if query != "rbd_image_id" {
        let why =
            format!("OSDs of skep count by image alone, so query '{query}' is not built: rbd_image_id is");
        return Outcome::error(Errno::EOPNOTSUPP, why);
    }
    let free = (0..QUERIES_MAX).find(|id| !ctx.state.config_keys.contains_key(&key(*id)));
    let Some(id) = free else {
        return Outcome::error(Errno::ENOSPC, format!("there are {QUERIES_MAX} queries already"));
    };
    let set = Change::ConfigKeySet {
        key: key(id),
        value: query.to_string().into(),
    };
    Outcome::ok(format!("added query {query} with id {id}\n")).with(Changes::one(set))
}

fn asked(cmd: &Command, ctx: &Context<'_>) -> Result<u64, Outcome> {
    let id = cmd.int("query_id").unwrap_or(-1);
    let known = u64::try_from(id)
        .ok()
        .filter(|id| ctx.state.config_keys.contains_key(&key(*id)));
    known.ok_or_else(|| Outcome::absent(format!("unknown query id {id}")))
}

fn remove(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    match asked(cmd, ctx) {
        Ok(id) => {
            let out = Outcome::ok(format!("removed query with id {id}\n"));
            out.with(Changes::one(Change::ConfigKeyRm { key: key(id) }))
        }
        Err(refusal) => refusal,
    }
}

const COLUMNS: [&str; 9] = [
    "POOL_ID",
    "NAMESPACE",
    "RBD IMAGE ID",
    "WRITE OPS",
    "READ OPS",
    "WRITE BYTES",
    "READ BYTES",
    "WRITE LATENCY",
    "READ LATENCY",
];

fn get(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    if let Err(refusal) = asked(cmd, ctx) {
        return refusal;
    }
    let sums = ctx.stats.image_sums();
    let rows = sums.iter().map(|(k, s)| {
        let figures = [
            s.write_ops,
            s.read_ops,
            s.write_bytes,
            s.read_bytes,
            s.write_latency_ns,
            s.read_latency_ns,
        ];
        let place = [k.pool.to_string(), k.namespace.clone(), k.id.clone()];
        (place, figures)
    });
    if cmd.wants_json() {
        let rows: Vec<Value> = rows.map(|(k, c)| json!({"k": k, "c": c})).collect();
        return Outcome::ok(compact(&json!(rows)) + "\n");
    }
    let mut table = Table::new().left(&COLUMNS);
    for (place, figures) in rows {
        table.row(place.into_iter().chain(figures.map(|n| n.to_string())));
    }
    Outcome::ok(table.print())
}
