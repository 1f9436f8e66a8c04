//! The contract between the monitor's core and its commands.
//!
//! The core takes a command off the wire, asks [`parse`] what it is, checks [`need`] against the caller's
//! capabilities, and calls [`run`]: a pure function from the state of the cluster to an [`Outcome`]. The core
//! commits the outcome's changes and answers only when they are durable; when another writer was faster,
//! `run` is called again with the newer state, so it must not keep anything. Nothing here does I/O.
//!
//! Rooms, from the bottom up: [`command`], [`context`], [`spec`] (what a command is, sees, and how it is listed) and
//! [`language`] (how it is spoken); `views` (what several families show) and `checks` (what is wrong with the cluster);
//! a folder for each family, which imports no other; [`table`], the only file that names them all.

pub mod command;
pub mod context;
mod language;
pub mod spec;
pub(crate) mod table;

mod checks;
mod views;

mod auth;
mod cluster;
mod config;
mod crush;
mod doctor;
mod fs;
mod health;
mod modules;
mod osd;
mod pg;
mod pool;
mod qos;

#[cfg(test)]
mod checks_transcript;
#[cfg(test)]
mod copies_transcript;
#[cfg(test)]
mod replay;
#[cfg(test)]
pub(crate) mod sample;
#[cfg(test)]
mod surface_transcript;
#[cfg(test)]
mod transcript;

use crate::policies::lag;
use ::auth::Access;
use bytes::Bytes;
use command::{Command, Outcome};
use context::Context;
use language::request;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use types::Errno;

/// The command that lists the others, for the `ceph` program.
pub const DESCRIPTIONS: &str = "get_command_descriptions";

/// The permission a command needs: checked by the core with [`auth::MonCaps`] and [`auth::MgrCaps`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Need {
    /// "mon", "osd", "pg", "mds", "fs", "auth", "config", "config-key", "log", "mgr".
    pub module: &'static str,
    pub access: Access,
    /// See [`spec::Spec::manager`].
    pub manager: Option<&'static str>,
}

/// Reads the strings of a command message (docs/protocol/ceph/02-monitor.md, 8.2). The error is the answer.
pub fn parse(cmd: &[String], inbuf: Bytes) -> Result<Command, Outcome> {
    request::parse(cmd, inbuf, table::all_named)
}

/// The same where one monitor is told it.
pub fn parse_told(cmd: &[String], inbuf: Bytes) -> Result<Command, Outcome> {
    let told = true;
    request::parse(cmd, inbuf, table::told_named).map(|c| Command { told, ..c })
}

fn row(cmd: &Command) -> Option<&'static spec::Spec> {
    match cmd.told {
        true => table::told_named(&cmd.prefix).first().copied(),
        false => table::find(&cmd.prefix),
    }
}

/// As the table has it; None when there is no such command.
pub(crate) fn signature_of(cmd: &Command) -> Option<&'static str> {
    table::find(&cmd.prefix).map(|spec| spec.sig)
}

/// The words of a signature before its arguments.
pub(crate) fn words_of(signature: &str) -> String {
    language::signature::prefix(signature)
}

/// The permission that `cmd` needs, or None when there is no such command.
pub fn need(cmd: &Command) -> Option<Need> {
    let spec = row(cmd)?;
    Some(Need {
        module: spec.module,
        access: spec.access(),
        manager: spec.manager,
    })
}

#[cfg(test)]
pub(crate) fn prefix_of(spec: &spec::Spec) -> String {
    language::signature::prefix(spec.sig)
}

/// Arguments as text for the `with` clauses of capabilities (`addr` = `1.2.3.4:0/55`). The commands of `rbd_support`
/// name their pool and namespace within one argument: profiles are about those two.
pub fn cap_args(cmd: &Command) -> BTreeMap<String, String> {
    let text = |v: &Value| match v {
        Value::String(s) => s.clone(),
        other => other.to_string(),
    };
    let mut out: BTreeMap<_, _> = cmd.args.iter().map(|(k, v)| (k.clone(), text(v))).collect();
    if table::find(&cmd.prefix).and_then(|s| s.manager) == Some(modules::RBD_SUPPORT) {
        out.extend(modules::place_of(cmd));
    }
    out
}

/// The image that has to be looked up before this can be decided.
pub(crate) fn wanted_image(
    cmd: &Command,
    state: &::cluster::ClusterState,
) -> Option<::cluster::rbd_support::Wanted> {
    modules::tasks::wanted(cmd, state)
        .or_else(|| modules::schedule::wanted(cmd, state))
        .or_else(|| qos::wanted(cmd, state))
}

/// What somebody beside the monitor is asked to do before this can be answered.
pub(crate) fn asked_of_volumes(cmd: &Command) -> Option<::cluster::volumes::Asked> {
    let beside = row(cmd).is_some_and(|s| s.beside) && cmd.done.is_none() && !cmd.told;
    beside.then(|| ::cluster::volumes::Asked {
        prefix: cmd.prefix.clone(),
        args: cmd.args.clone(),
    })
}

/// Whether a record is kept of it: it may change something, or shows a secret.
pub fn is_audited(cmd: &Command) -> bool {
    row(cmd).is_some_and(|s| s.access() != Access::R || s.shows_secrets)
}

/// Characters of one argument that a record shows, and members of a list.
pub const SHOWN_CHARS_MAX: usize = 256;
const SHOWN_ITEMS_MAX: usize = 32;
const HIDDEN: &str = "***";

/// What was asked, for a record: without the input, and without what the table or its name calls a secret.
pub fn without_secrets(cmd: &Command) -> Value {
    let hidden = table::find(&cmd.prefix).map_or("", |s| s.secret_arg);
    let (name, value) = match cmd.told {
        true => ("var", "val"),
        false => ("name", "value"),
    };
    let option = cmd.args.get(name).and_then(Value::as_str).unwrap_or_default();
    let injected = cmd.prefix == "injectargs" && cmd.list("injected_args").iter().any(|a| is_secret_name(a));
    let secret = |arg: &str| {
        injected && arg == "injected_args"
            || !hidden.is_empty() && arg == hidden
            || cmd.prefix == "config set" && arg == value && is_secret_name(option)
    };
    let mut out = Map::from_iter([("prefix".to_string(), cmd.prefix.clone().into())]);
    for (arg, v) in &cmd.args {
        let v = if secret(arg) { HIDDEN.into() } else { shortened(v) };
        out.insert(arg.clone(), v);
    }
    if !cmd.inbuf.is_empty() {
        out.insert("input_bytes".into(), cmd.inbuf.len().into());
    }
    Value::Object(out)
}

/// Options of modules and gateways that hold passwords are told from others by their names only.
fn is_secret_name(option: &str) -> bool {
    let option = option.to_ascii_lowercase();
    let words = [
        "password",
        "passwd",
        "passphrase",
        "secret",
        "token",
        "key",
        "credential",
    ];
    words.iter().any(|w| option.contains(w))
}

fn shortened(v: &Value) -> Value {
    match v {
        Value::String(s) if s.chars().nth(SHOWN_CHARS_MAX).is_some() => {
            let start: String = s.chars().take(SHOWN_CHARS_MAX).collect();
            format!("{start}...").into()
        }
        Value::Array(items) => {
            let mut out: Vec<Value> = items.iter().take(SHOWN_ITEMS_MAX).map(shortened).collect();
            if items.len() > SHOWN_ITEMS_MAX {
                out.push("...".into());
            }
            out.into()
        }
        other => other.clone(),
    }
}

/// Runs one command.
pub fn run(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let Some(spec) = row(cmd) else {
        return Outcome::error(Errno::EINVAL, "command not known");
    };
    match spec.absent {
        true => Outcome::error(Errno::EOPNOTSUPP, format!("'{}' is {}", cmd.prefix, spec.help)),
        false => (spec.run)(cmd, ctx),
    }
}

/// The JSON text that `ceph ping mon.X` prints: keys `health` and `mon_status`.
pub fn ping_text(ctx: &Context<'_>) -> String {
    let (behind, since) = lag::said(ctx.mon.behind);
    let text = serde_json::json!({
        "health": checks::Report::of(ctx).json(true),
        "mon_status": cluster::monitor::mon_status(ctx),
        behind: since,
    });
    crate::format::pretty(&text)
}
