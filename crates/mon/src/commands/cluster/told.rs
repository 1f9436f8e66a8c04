//! What one monitor is told (`ceph tell mon.X`), where that differs from what the cluster is asked: the same words mean
//! options of the daemon there, and of the cluster here.
//!
//! A monitor has no options of its own: it is a front of the cluster's state. What acts is set for all monitors, and the
//! answer says so.

use crate::commands::command::{Command, OPTIONS_MAX, Outcome};
use crate::commands::context::{Context, SessionInfo};
use crate::commands::language::signature;
use crate::commands::spec::{Spec, spec};
use crate::commands::views::show;
use cluster::told::{self, Wish};
use cluster::{Change, Changes, options};
use metrics::json as perf;
use serde_json::{Map, Value, json};
use types::{AuthName, EntityAddrVec, EntityKind, Errno};

const R: (&str, &str) = ("mon", "r");
const RW: (&str, &str) = ("mon", "rw");

pub const TABLE: &[Spec] = &[
    spec(
        R,
        "config diff",
        "options that somebody set, and their defaults",
        diff,
    ),
    spec(R, "config diff get var:str", "the same of one option", diff),
    spec(R, "config get var:str", "value of an option", get),
    spec(
        RW,
        "config set var:str val*:str",
        "set an option, for all monitors",
        set,
    ),
    spec(
        R,
        "config show",
        "options that monitors go by, and their values",
        shown,
    ),
    spec(
        RW,
        "config unset var:str",
        "take an option back, for all monitors",
        unset,
    ),
    spec(R, "git_version", "what it was built from", git_version),
    spec(
        R,
        "heap heapcmd:choice(dump|start_profiler|stop_profiler|release|stats) value?:str",
        "heap use, of a program with tcmalloc",
        heap,
    ),
    spec(
        RW,
        "injectargs injected_args*:str",
        "set options, for all monitors",
        inject,
    ),
    spec(
        R,
        "log flush",
        "flush log entries: none is ever held back",
        nothing,
    ),
    spec(
        R,
        "perf histogram dump logger?:str counter?:str",
        "dump perf histogram values",
        histograms,
    ),
    spec(
        R,
        "perf histogram schema",
        "dump perf histogram schema",
        histogram_schema,
    ),
    spec(
        RW,
        "perf reset var:str",
        "count anew: one logger, or all",
        perf_reset,
    ),
    spec(R, "sessions", "who is connected to this monitor", sessions),
    spec(
        R,
        "add_bootstrap_peer_hint addr:str",
        "not here: monitors find each other by the cluster's state",
        refused,
    ),
    spec(
        R,
        "add_bootstrap_peer_hintv addrv:str",
        "not here: monitors find each other by the cluster's state",
        refused,
    ),
    spec(
        R,
        "compact",
        "not here: a monitor has no store of its own",
        refused,
    ),
    spec(
        R,
        "connection scores dump",
        "not here: monitors hold no elections",
        refused,
    ),
    spec(
        R,
        "connection scores reset",
        "not here: monitors hold no elections",
        refused,
    ),
    spec(
        R,
        "dump_historic_ops",
        "not here: a monitor keeps no operations",
        refused,
    ),
    spec(
        R,
        "dump_historic_slow_ops",
        "not here: a monitor keeps no operations",
        refused,
    ),
    spec(
        R,
        "dump_mempools",
        "not here: a monitor has no pools of memory",
        refused,
    ),
    spec(R, "log dump", "not here: every line is written at once", refused),
    spec(
        R,
        "log reopen",
        "not here: the log goes to the standard error",
        refused,
    ),
    spec(R, "ops", "not here: a monitor keeps no operations", refused),
    spec(R, "quorum enter", "not here: monitors hold no elections", refused),
    spec(R, "quorum exit", "not here: monitors hold no elections", refused),
    spec(R, "smart devid?:str", "not here: ask the host", refused),
    spec(
        R,
        "sync_force",
        "not here: a monitor has no store of its own",
        refused,
    ),
];

fn refused(cmd: &Command, _: &Context<'_>) -> Outcome {
    let is_it = |s: &&Spec| signature::prefix(s.sig) == cmd.prefix;
    let why = TABLE.iter().find(is_it).map_or("", |s| s.help);
    Outcome::error(Errno::EOPNOTSUPP, format!("'{}' is {why}", cmd.prefix))
}

fn nothing(cmd: &Command, _: &Context<'_>) -> Outcome {
    cmd.json(&json!({}))
}

fn me(ctx: &Context<'_>) -> AuthName {
    AuthName::new(EntityKind::Mon, ctx.mon.name.clone())
}

/// The value that holds for this monitor.
fn value(ctx: &Context<'_>, name: &str) -> Option<String> {
    let default = options::find(name)?.default(true);
    let set = ctx.state.config.in_force(&me(ctx), &ctx.mon.hostname, "");
    Some(set.get(name).map_or(default, |s| s.value).to_string())
}

fn get(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let var = cmd.text("var");
    match value(ctx, var) {
        Some(value) => cmd.json(&json!({var: value})),
        None => Outcome::absent(format!("error getting '{var}': (2) No such file or directory")),
    }
}

fn acts(name: &str) -> bool {
    options::notice(name, "mon").is_none()
}

fn shown(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let acting = options::names().filter(|name| acts(name));
    let all: Map<String, Value> = acting
        .filter_map(|name| Some((name.to_string(), json!(value(ctx, name)?))))
        .collect();
    cmd.json(&Value::Object(all))
}

fn diff(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let wanted = cmd.text("var");
    let set = ctx.state.config.in_force(&me(ctx), &ctx.mon.hostname, "");
    let one = |name: &str, value: &str| {
        let default = options::find(name).map_or("", |o| o.default(true));
        (
            name.to_string(),
            json!({"default": default, "mon": value, "final": value}),
        )
    };
    let all: Map<String, Value> = set
        .iter()
        .filter(|(name, _)| wanted.is_empty() || **name == wanted)
        .map(|(name, s)| one(name, s.value))
        .collect();
    cmd.json(&json!({"diff": all}))
}

const FOR_ALL: &str = "(kept in the central configuration, for all monitors) ";
const UNUSED: &str = "(not observed, change may require restart) ";

/// The change that makes a wish hold, and what is said of it.
fn grant(wish: Wish) -> (Option<Change>, String) {
    let Wish { name, value } = wish;
    let said = format!("{name} = '{value}' ");
    if !acts(&name) {
        return (None, said + UNUSED);
    }
    let who = "mon".to_string();
    (Some(Change::ConfigSet { who, name, value }), said + FOR_ALL)
}

/// As many options as `ceph config set` lets there be.
fn room(ctx: &Context<'_>) -> Result<(), (Errno, String)> {
    let set: usize = ctx.state.config.sections.values().map(|s| s.len()).sum();
    match set < OPTIONS_MAX {
        true => Ok(()),
        false => Err((Errno::ENOSPC, format!("{} options are set already", OPTIONS_MAX))),
    }
}

fn changes(list: Vec<Change>) -> Changes {
    Changes {
        list,
        ..Changes::default()
    }
}

fn set(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let wish = room(ctx).and_then(|()| told::set(cmd.text("var"), &cmd.list("val").join(" ")));
    match wish {
        Ok(wish) => {
            let (change, said) = grant(wish);
            cmd.json(&json!({"success": said}))
                .with(changes(change.into_iter().collect()))
        }
        Err((errno, why)) => Outcome::error(errno, why),
    }
}

fn inject(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    match room(ctx).and_then(|()| told::inject(&cmd.list("injected_args"))) {
        Ok(wishes) => {
            let (list, said): (Vec<_>, Vec<_>) = wishes.into_iter().map(grant).unzip();
            cmd.json(&json!({}))
                .saying(said.concat())
                .with(changes(list.into_iter().flatten().collect()))
        }
        Err((errno, why)) => Outcome::error(errno, why),
    }
}

fn unset(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let name = match told::unset(cmd.text("var")) {
        Ok(name) => name,
        Err((errno, why)) => return Outcome::error(errno, why),
    };
    match ctx.state.config.get("mon", &name) {
        None => cmd.json(&json!({})),
        Some(_) => {
            let said = format!(
                "{name} = '{}' ",
                options::find(&name).map_or("", |o| o.default(true))
            );
            let who = "mon".to_string();
            cmd.json(&json!({}))
                .saying(said + FOR_ALL)
                .with(Changes::one(Change::ConfigRm { who, name }))
        }
    }
}

fn git_version(cmd: &Command, _: &Context<'_>) -> Outcome {
    cmd.json(&json!({"git_version": concat!("skep-", env!("CARGO_PKG_VERSION"))}))
}

fn heap(_: &Command, _: &Context<'_>) -> Outcome {
    let why = "could not issue heap profiler command -- not using tcmalloc!";
    Outcome::error(Errno::EOPNOTSUPP, why)
}

fn histograms(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let wanted = perf::Wanted {
        logger: cmd.text("logger"),
        counter: cmd.text("counter"),
    };
    cmd.json(&perf::histogram_dump(&ctx.mon.registry, wanted))
}

fn histogram_schema(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    cmd.json(&perf::histogram_schema(&ctx.mon.registry))
}

fn perf_reset(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let logger = cmd.text("var");
    cmd.json(&match ctx.mon.registry.reset(logger) {
        true => json!({"success": format!("perf reset {logger}")}),
        false => json!({"error": format!("Not find: {logger}")}),
    })
}

fn sessions(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let one = |s: &SessionInfo| {
        json!({
            "name": format!("{}.{}", s.name.kind.as_str(), s.global_id),
            "entity_name": s.name.to_string(),
            "addrs": show::addrs(&EntityAddrVec::one(s.addr)),
            "socket_addr": show::addr(&s.addr),
            "con_type": s.name.kind.as_str(),
            "con_features": s.features,
            "con_features_hex": format!("{:x}", s.features),
            "con_features_release": "luminous",
            "open": true,
            "authenticated": true,
            "global_id": s.global_id,
        })
    };
    cmd.json(&ctx.sessions.iter().map(one).collect())
}
