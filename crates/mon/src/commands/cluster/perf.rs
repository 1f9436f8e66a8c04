//! What this monitor counts and measures: `ceph tell mon.X perf dump` and its like.

use crate::commands::command::{Command, Outcome};
use crate::commands::context::Context;
use crate::commands::spec::{HIDDEN, Spec, spec};
use metrics::json;

const R: (&str, &str) = ("mon", "r");

pub const TABLE: &[Spec] = &[
    spec(
        R,
        "perf dump logger?:str counter?:str",
        "what this monitor counts",
        dump,
    )
    .flagged(HIDDEN),
    spec(R, "perf schema", "what its counters mean", schema).flagged(HIDDEN),
];

fn dump(c: &Command, cx: &Context<'_>) -> Outcome {
    let wanted = json::Wanted {
        logger: c.text("logger"),
        counter: c.text("counter"),
    };
    c.json(&json::perf_dump(&cx.mon.registry, wanted))
}

fn schema(c: &Command, cx: &Context<'_>) -> Outcome {
    c.json(&json::perf_schema(&cx.mon.registry))
}
