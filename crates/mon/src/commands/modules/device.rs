//! `device`: disks by their serial numbers. OSDs report none, as Ceph's do not where they lie in files or on virtual disks, so
//! there are none to list; and no health metrics are read from disks, which is said where somebody wants them.

use crate::commands::command::{Command, Outcome};
use crate::commands::context::Context;
use crate::commands::modules::pretty;
use crate::commands::spec::{Spec, spec};
use crate::format::Table;
use serde_json::json;
use types::Errno;

const R: (&str, &str) = ("mgr", "r");
const W: (&str, &str) = ("mgr", "rw");
/// Of what the manager itself answers, and of its module.
const OWN: &str = "";
const HEALTH: &str = "devicehealth";

pub const TABLE: &[Spec] = &[
    spec(R, "device ls", "physical devices", ls).by_manager(OWN),
    spec(
        R,
        "device ls-by-host host:str",
        "physical devices of a host",
        by_host,
    )
    .by_manager(OWN),
    spec(
        R,
        "device ls-by-daemon who:str",
        "physical devices of a daemon",
        by_daemon,
    )
    .by_manager(OWN),
    spec(R, "device info devid:str", "all about one device", unknown).by_manager(OWN),
    spec(
        W,
        "device set-life-expectancy devid:str from:str to?:str",
        "say until when a device will live",
        unknown,
    )
    .by_manager(OWN),
    spec(
        W,
        "device rm-life-expectancy devid:str",
        "say so no more",
        unknown,
    )
    .by_manager(OWN),
    spec(
        W,
        "device light enable:choice(on|off) devid:str light_type?:choice(ident|fault) force?:bool",
        "switch a light of a device: there is no orchestrator to do it",
        light,
    )
    .by_manager("orchestrator"),
    spec(R, "device ls-lights", "lights of devices that are on", lights).by_manager("orchestrator"),
    spec(
        W,
        "device monitoring on",
        "not built in skep: nothing is read from disks",
        unread,
    )
    .by_manager(HEALTH),
    spec(
        W,
        "device monitoring off",
        "read no health metrics from disks, as ever",
        nothing,
    )
    .by_manager(HEALTH),
    spec(
        R,
        "device query-daemon-health-metrics who:str",
        "not built in skep: nothing is read from disks",
        unread,
    )
    .by_manager(HEALTH),
    spec(
        R,
        "device scrape-daemon-health-metrics who:str",
        "not built in skep: nothing is read from disks",
        unread,
    )
    .by_manager(HEALTH),
    spec(
        R,
        "device scrape-health-metrics devid?:str",
        "not built in skep: nothing is read from disks",
        unread,
    )
    .by_manager(HEALTH),
    spec(
        R,
        "device get-health-metrics devid:str sample?:str",
        "health metrics of a device",
        unknown,
    )
    .by_manager(HEALTH),
    spec(
        W,
        "device check-health",
        "look whether devices will live: none is known",
        nothing,
    )
    .by_manager(HEALTH),
    spec(
        R,
        "device predict-life-expectancy devid:str",
        "how long a device will live: nobody predicts it",
        no_prediction,
    )
    .by_manager(HEALTH),
];

/// No devices are known; the headings differ.
fn none(cmd: &Command, columns: &[&str]) -> Outcome {
    cmd.either(|| json!([]), || Table::new().left(columns).print())
}

fn ls(cmd: &Command, _: &Context<'_>) -> Outcome {
    none(cmd, &["DEVICE", "HOST:DEV", "DAEMONS", "WEAR", "LIFE EXPECTANCY"])
}

fn by_host(cmd: &Command, _: &Context<'_>) -> Outcome {
    none(cmd, &["DEVICE", "DEV", "DAEMONS", "EXPECTED FAILURE"])
}

fn by_daemon(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let who = cmd.text("who");
    let is_there = match who.split_once('.') {
        Some(("osd", id)) => id.parse().is_ok_and(|id| ctx.map().exists(id)),
        Some(("mon", id)) => ctx.state.monmap.ranks.iter().any(|m| m == id),
        Some(("mgr", id)) => ctx.state.mgrmap.active_name == id,
        Some(_) => false,
        None => {
            return Outcome::invalid(format!("{who} is not a valid daemon name"));
        }
    };
    match is_there {
        true => none(cmd, &["DEVICE", "HOST:DEV", "EXPECTED FAILURE"]),
        false => Outcome::absent(format!("daemon {who} not found")),
    }
}

fn unknown(cmd: &Command, _: &Context<'_>) -> Outcome {
    Outcome::absent(format!("device {} not found", cmd.text("devid")))
}

fn light(_: &Command, _: &Context<'_>) -> Outcome {
    Outcome::absent("No orchestrator configured (try `ceph orch set backend`)")
}

fn lights(_: &Command, _: &Context<'_>) -> Outcome {
    pretty(&json!({"fault": [], "ident": []}))
}

fn unread(_: &Command, _: &Context<'_>) -> Outcome {
    Outcome::error(
        Errno::EOPNOTSUPP,
        "no health metrics are read from disks by skep: smartctl on the host does that",
    )
}

fn no_prediction(_: &Command, _: &Context<'_>) -> Outcome {
    Outcome::error(
        Errno::EPERM,
        "unable to enable any disk prediction model[local/cloud]",
    )
}

fn nothing(_: &Command, _: &Context<'_>) -> Outcome {
    Outcome::default()
}
