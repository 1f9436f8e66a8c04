//! Commands that manager modules answer in the real one: those with an honest answer here, and those that
//! programs ask for and must get a clear refusal to.

use crate::commands::command::{Command, Outcome};
use crate::commands::context::Context;
use crate::commands::spec::{Spec, later, spec};
use crate::format;
use serde_json::{Value, json};
use types::Errno;

const R: (&str, &str) = ("mgr", "r");
const RW: (&str, &str) = ("mgr", "rw");

pub const TABLE: &[Spec] = &[
    spec(
        R,
        "telemetry status",
        "state of telemetry: off, nothing is ever sent",
        telemetry_status,
    ).by_manager("telemetry"),
    spec(RW, "telemetry off", "turn telemetry off", nothing).by_manager("telemetry"),
    later(RW, "telemetry on license?:str").by_manager("telemetry"),
    later(R, "telemetry show channels?*:str").by_manager("telemetry"),
    spec(
        R,
        "orch status detail?:bool format?:choice(plain|json|json-pretty|yaml|xml-pretty|xml)",
        "state of the orchestrator: there is none",
        no_orchestrator,
    ).by_manager("orchestrator"),
    spec(
        R,
        "orch ls service_type?:str service_name?:str export?:bool format?:choice(plain|json|json-pretty|yaml|xml-pretty|xml) refresh?:bool",
        "services of the orchestrator: there is none",
        no_orchestrator,
    ).by_manager("orchestrator"),
];

/// Python modules print pretty JSON whatever was asked for.
fn pretty(v: &Value) -> Outcome {
    Outcome::ok(format::pretty(v).trim_end().to_string())
}

/// What is so already.
fn nothing(_: &Command, _: &Context<'_>) -> Outcome {
    Outcome::default()
}

fn telemetry_status(_: &Command, _: &Context<'_>) -> Outcome {
    pretty(&json!({"enabled": false, "last_upload": null}))
}

fn no_orchestrator(_: &Command, _: &Context<'_>) -> Outcome {
    Outcome::error(
        Errno::ENOENT,
        "No orchestrator configured (try `ceph orch set backend`)",
    )
}
