//! Commands that manager modules answer in the real one: those with an honest answer here, and those that
//! programs ask for and must get a clear refusal to.

use crate::commands::command::{Command, Outcome};
use crate::commands::context::Context;
use crate::commands::spec::{Spec, later, spec};
use crate::format;
use crate::format::Table;
use serde_json::{Value, json};
use types::Errno;

const R: (&str, &str) = ("mgr", "r");
const W: (&str, &str) = ("mgr", "w");
const RW: (&str, &str) = ("mgr", "rw");

/// The module of Ceph's manager behind all commands that begin with `rbd`.
pub const RBD_SUPPORT: &str = "rbd_support";

pub const TABLE: &[Spec] = &[
    spec(
        R,
        "balancer status",
        "state of the balancer: off, since there is none yet",
        balancer_status,
    ).by_manager("balancer"),
    later(RW, "balancer on").by_manager("balancer"),
    spec(RW, "balancer off", "turn the balancer off", nothing).by_manager("balancer"),
    later(RW, "balancer mode mode:choice(none|crush-compat|upmap)").by_manager("balancer"),
    later(R, "balancer eval option?:str").by_manager("balancer"),
    spec(R, "crash ls", "crashes of daemons", crash_ls).by_manager("crash"),
    spec(R, "crash ls-new", "crashes that nobody has looked at", crash_ls).by_manager("crash"),
    spec(R, "crash stat", "number of crashes", crash_stat).by_manager("crash"),
    spec(R, "crash info id:str", "all about one crash", crash_info).by_manager("crash"),
    spec(W, "crash archive-all", "mark all crashes as looked at", nothing).by_manager("crash"),
    spec(R, "device ls", "physical devices", device_ls).by_manager(""),
    spec(
        R,
        "device ls-by-host host:str",
        "physical devices of a host",
        device_ls_host,
    ).by_manager(""),
    spec(
        R,
        "device ls-by-daemon who:str",
        "physical devices of a daemon",
        device_ls_daemon,
    ).by_manager(""),
    spec(R, "device info devid:str", "all about one device", device_info).by_manager(""),
    spec(R, "progress", "long running work", progress).by_manager("progress"),
    spec(R, "progress json", "long running work, as JSON", progress_json).by_manager("progress"),
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
    later(R, "iostat width?:int print_header?:bool").by_manager("iostat"),
    later(R, "insights").by_manager("insights"),
    later(R, "rbd perf image stats pool_spec?:str sort_by?:str").by_manager(RBD_SUPPORT),
    later(R, "rbd perf image counters pool_spec?:str sort_by?:str").by_manager(RBD_SUPPORT),
    spec(
        R,
        "rbd task list task_id?:str",
        "work in the background: none is ever taken on",
        task_list,
    ).by_manager(RBD_SUPPORT),
    spec(
        W,
        "rbd task add flatten image_spec:str",
        "not built in skep yet; clients then do the work themselves",
        no_handler,
    ).by_manager(RBD_SUPPORT),
    spec(
        W,
        "rbd task add remove image_spec:str",
        "not built in skep yet; clients then do the work themselves",
        no_handler,
    ).by_manager(RBD_SUPPORT),
    spec(
        W,
        "rbd task add trash remove image_id_spec:str",
        "not built in skep yet; clients then do the work themselves",
        no_handler,
    ).by_manager(RBD_SUPPORT),
    spec(
        W,
        "rbd task add migration execute image_spec:str",
        "not built in skep yet; clients then do the work themselves",
        no_handler,
    ).by_manager(RBD_SUPPORT),
    spec(
        W,
        "rbd task add migration commit image_spec:str",
        "not built in skep yet; clients then do the work themselves",
        no_handler,
    ).by_manager(RBD_SUPPORT),
    spec(
        W,
        "rbd task add migration abort image_spec:str",
        "not built in skep yet; clients then do the work themselves",
        no_handler,
    ).by_manager(RBD_SUPPORT),
    spec(
        R,
        "rbd task cancel task_id:str",
        "not built in skep yet",
        no_handler,
    ).by_manager(RBD_SUPPORT),
    later(
        W,
        "rbd trash purge schedule add level_spec:str interval:str start_time?:str",
    ).by_manager(RBD_SUPPORT),
    later(
        W,
        "rbd trash purge schedule remove level_spec:str interval?:str start_time?:str",
    ).by_manager(RBD_SUPPORT),
    spec(
        R,
        "rbd trash purge schedule list level_spec?:str",
        "schedules of emptying the trash: none",
        no_schedules,
    ).by_manager(RBD_SUPPORT),
    spec(
        R,
        "rbd trash purge schedule status level_spec?:str",
        "what is scheduled next: nothing",
        no_scheduled,
    ).by_manager(RBD_SUPPORT),
    later(
        W,
        "rbd mirror snapshot schedule add level_spec:str interval:str start_time?:str",
    ).by_manager(RBD_SUPPORT),
    later(
        W,
        "rbd mirror snapshot schedule remove level_spec:str interval?:str start_time?:str",
    ).by_manager(RBD_SUPPORT),
    spec(
        R,
        "rbd mirror snapshot schedule list level_spec?:str",
        "schedules of mirror snapshots: none",
        no_schedules,
    ).by_manager(RBD_SUPPORT),
    spec(
        R,
        "rbd mirror snapshot schedule status level_spec?:str",
        "what is scheduled next: nothing",
        no_scheduled,
    ).by_manager(RBD_SUPPORT),
];

/// Pool and namespace that an argument `POOL[/NAMESPACE]/IMAGE`, or a level `POOL[/NAMESPACE]/[IMAGE]`, is about; nothing
/// where the command has no such argument, and a place that no constraint means where it is not understood.
pub fn place_of(cmd: &Command) -> Vec<(String, String)> {
    let given = |names: [&str; 2]| names.iter().find_map(|name| cmd.opt_text(name));
    let image = given(["image_spec", "image_id_spec"]).map(|spec| spec.split('/').collect::<Vec<_>>());
    let level = given(["level_spec", "pool_spec"]).map(|spec| spec.split('/').collect::<Vec<_>>());
    let (pool, namespace) = match (image.as_deref(), level.as_deref()) {
        (None, None) => return Vec::new(),
        (Some([pool, _]), None) | (None, Some([pool] | [pool, ""])) => (*pool, ""),
        (Some([pool, namespace, _]), None) | (None, Some([pool, namespace, _])) => (*pool, *namespace),
        // `POOL/X`: a namespace, or an image of the default one. Who may only one of them says it in full.
        (None, Some([pool, _])) => (*pool, "/"),
        _ => ("/", "/"),
    };
    [("pool", pool), ("namespace", namespace)]
        .map(|(k, v)| (k.to_string(), v.to_string()))
        .into()
}

/// Python modules print pretty JSON whatever was asked for.
fn pretty(v: &Value) -> Outcome {
    Outcome::ok(format::pretty(v).trim_end().to_string())
}

/// What is so already.
fn nothing(_: &Command, _: &Context<'_>) -> Outcome {
    Outcome::default()
}

fn balancer_status(_: &Command, _: &Context<'_>) -> Outcome {
    pretty(&json!({
        "active": false,
        "last_optimize_duration": "",
        "last_optimize_started": "",
        "mode": "none",
        "no_optimization_needed": false,
        "optimize_result": "",
        "plans": [],
    }))
}

fn crash_ls(cmd: &Command, _: &Context<'_>) -> Outcome {
    cmd.either(|| json!([]), String::new)
}

fn crash_stat(_: &Command, _: &Context<'_>) -> Outcome {
    Outcome::ok("0 crashes recorded\n")
}

fn crash_info(cmd: &Command, _: &Context<'_>) -> Outcome {
    Outcome::status(format!("crash info: {} not found", cmd.text("id")))
}

/// No devices are known; the headings differ.
fn no_devices(cmd: &Command, columns: &[&str]) -> Outcome {
    cmd.either(|| json!([]), || Table::new().left(columns).print())
}

fn device_ls(cmd: &Command, _: &Context<'_>) -> Outcome {
    no_devices(cmd, &["DEVICE", "HOST:DEV", "DAEMONS", "WEAR", "LIFE EXPECTANCY"])
}

fn device_ls_host(cmd: &Command, _: &Context<'_>) -> Outcome {
    no_devices(cmd, &["DEVICE", "DEV", "DAEMONS", "EXPECTED FAILURE"])
}

fn device_ls_daemon(cmd: &Command, _: &Context<'_>) -> Outcome {
    no_devices(cmd, &["DEVICE", "HOST:DEV", "EXPECTED FAILURE"])
}

fn device_info(cmd: &Command, _: &Context<'_>) -> Outcome {
    Outcome::absent(format!("device {} not found", cmd.text("devid")))
}

fn progress(_: &Command, ctx: &Context<'_>) -> Outcome {
    match ctx.progress.plain(ctx.now) {
        Some(text) => Outcome::ok(text),
        None => Outcome::status("Nothing in progress"),
    }
}

fn progress_json(_: &Command, ctx: &Context<'_>) -> Outcome {
    pretty(&ctx.progress.json(ctx.now))
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

/// The words by which clients (ceph-csi) know that there is nobody to hand their work to.
fn no_handler(cmd: &Command, _: &Context<'_>) -> Outcome {
    Outcome::invalid(format!("No handler found for '{}'", cmd.prefix))
}

fn task_list(_: &Command, _: &Context<'_>) -> Outcome {
    Outcome::ok("[]")
}

fn no_schedules(_: &Command, _: &Context<'_>) -> Outcome {
    Outcome::ok("{}")
}

fn no_scheduled(_: &Command, _: &Context<'_>) -> Outcome {
    Outcome::ok("{\"scheduled\": []}")
}
