//! The contract between the monitor's core and its commands.
//!
//! The core takes a command off the wire, asks [`parse`] what it is, checks [`need`] against the caller's
//! capabilities, and calls [`run`]: a pure function from the state of the cluster to an [`Outcome`]. The core
//! commits the outcome's changes and answers only when they are durable; when another writer was faster,
//! `run` is called again with the newer state, so it must not keep anything. Nothing here does I/O.

mod auth;
mod blocklist;
mod cluster;
mod config;
mod config_key;
mod crush_change;
mod crush_class;
mod crush_read;
mod df;
mod doctor;
mod doctor_locks;
mod doctor_space;
mod doctor_unclean;
mod fs;
mod health;
mod health_checks;
mod health_pgs;
mod io_rates;
mod json_text;
mod manager;
mod modules;
mod monitor;
mod osd_change;
mod osd_df;
mod osd_dump;
mod osd_flags;
mod osd_read;
mod osd_safety;
mod osd_tree;
mod osd_weights;
mod pg;
mod pg_dump;
mod pg_stats;
mod pool;
mod pool_get;
mod pool_use;
mod request;
mod scrub;
mod show;
mod signature;
mod slow_disk;
mod status;
pub(crate) mod table;
mod upmap;

#[cfg(test)]
mod copies_transcript;
#[cfg(test)]
mod doctor_transcript;
#[cfg(test)]
mod replay;
#[cfg(test)]
pub(crate) mod sample;
#[cfg(test)]
mod transcript;

pub use pg_stats::newest_reports;

use crate::others;
use crate::progress::Progress;
use crate::standing::Stance;
use ::auth::Access;
use bytes::Bytes;
use io::Random;
use metastore::{Changes, ClusterState, ClusterStats};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use types::{AuthName, EntityAddr, Errno, Utime};

/// The largest input (`ceph -i FILE`) that a command takes.
pub const INPUT_BYTES_MAX: usize = 16 << 20;

/// How the caller wants the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    #[default]
    Plain,
    Json,
    JsonPretty,
    Xml,
    XmlPretty,
}

/// One command, parsed: what was asked.
#[derive(Debug, Clone, Default)]
pub struct Command {
    pub prefix: String,
    /// All arguments, leniently typed (section 8.2); `prefix`, `format`, `target` are taken out.
    pub args: Map<String, Value>,
    pub format: Format,
    /// The data segment.
    pub inbuf: Bytes,
}

/// Through which door the command came; the same table serves all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// MON_COMMAND on a monitor session.
    Mon,
    /// COMMAND (`ceph tell mon.X`) on a monitor session.
    TellMon,
    /// MGR_COMMAND or COMMAND on the manager's port.
    Mgr,
}

/// One live session of the monitor, for `features` and the like.
#[derive(Debug, Clone)]
pub struct SessionInfo {
    pub name: AuthName,
    pub global_id: u64,
    pub addr: EntityAddr,
    /// Where its packets come from.
    pub from: std::net::IpAddr,
    pub features: u64,
}

impl SessionInfo {
    /// As the blocklist sees it; None: no entry keeps it from anything.
    pub fn instance(&self) -> Option<metastore::Instance> {
        use types::EntityKind::{Mon, Osd};
        let instance = metastore::Instance {
            global_id: self.global_id,
            addr: self.addr,
            from: Some(self.from),
        };
        (!matches!(self.name.kind, Mon | Osd)).then_some(instance)
    }
}

/// What the monitor is by itself, outside the shared state.
#[derive(Debug, Clone)]
pub struct MonInfo {
    /// Monitor's name ("a") and rank in the monmap.
    pub name: String,
    pub rank: i32,
    pub mgr_name: String,
    pub hostname: String,
    /// Clients prove who they are; without that nothing can be encrypted.
    pub cephx: bool,
    /// When this process began to serve (wall clock).
    pub started: Utime,
    /// Since when the cluster state lets nothing be changed, if it does not (wall clock).
    pub stalled: Option<Utime>,
    /// Why, where the cluster state knows: its file on this host.
    pub trouble: Option<String>,
    /// For how long the cluster state has not answered.
    pub behind: std::time::Duration,
    /// What this monitor does with clients because of that.
    pub stance: Stance,
    /// Facts for `mon metadata`/`mgr metadata`: hostname, kernel, cpu, mem...
    pub metadata: BTreeMap<String, String>,
}

/// Everything a command may look at.
pub struct Context<'a> {
    pub state: &'a ClusterState,
    pub stats: &'a ClusterStats,
    pub now: Utime,
    pub random: &'a dyn Random,
    pub target: Target,
    pub mon: &'a MonInfo,
    /// Healing as this monitor has seen it.
    pub progress: &'a Progress,
    pub sessions: &'a [SessionInfo],
    /// Who asks.
    pub who: &'a AuthName,
    pub addr: EntityAddr,
}

/// The permission a command needs: checked by the core with [`auth::MonCaps`] and [`auth::MgrCaps`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Need {
    /// "mon", "osd", "pg", "mds", "fs", "auth", "config", "config-key", "log", "mgr".
    pub module: &'static str,
    pub access: Access,
    /// See [`table::Spec::manager`].
    pub manager: Option<&'static str>,
}

/// The answer, and what shall be changed before it is given.
#[derive(Debug, Default)]
pub struct Outcome {
    /// 0 or a negative errno. With a negative code `changes` are not committed.
    pub code: i32,
    /// The human line (standard error of the `ceph` program).
    pub status: String,
    pub data: Bytes,
    pub changes: Box<Changes>,
}

impl Outcome {
    pub fn ok(data: impl Into<Bytes>) -> Self {
        Self {
            data: data.into(),
            ..Self::default()
        }
    }
    pub fn status(status: impl Into<String>) -> Self {
        Self {
            status: status.into(),
            ..Self::default()
        }
    }
    pub fn error(errno: Errno, status: impl Into<String>) -> Self {
        Self {
            code: errno.code(),
            status: status.into(),
            ..Self::default()
        }
    }
    pub fn with(mut self, changes: Changes) -> Self {
        self.changes = Box::new(changes);
        self
    }
}

/// Reads the strings of a command message (section 8.2). The error is the answer.
pub fn parse(cmd: &[String], inbuf: Bytes) -> Result<Command, Outcome> {
    request::parse(cmd, inbuf)
}

/// The permission that `cmd` needs, or None when there is no such command.
pub fn need(cmd: &Command) -> Option<Need> {
    let spec = table::find(&cmd.prefix)?;
    Some(Need {
        module: spec.module,
        access: spec.access(),
        manager: spec.manager,
    })
}

#[cfg(test)]
pub(crate) fn prefix_of(spec: &table::Spec) -> String {
    signature::prefix(spec.sig)
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

/// Whether a record is kept of it: it may change something, or shows a secret.
pub fn is_audited(cmd: &Command) -> bool {
    table::find(&cmd.prefix).is_some_and(|s| s.access() != Access::R || s.shows_secrets)
}

/// Characters of one argument that a record shows, and members of a list.
pub const SHOWN_CHARS_MAX: usize = 256;
const SHOWN_ITEMS_MAX: usize = 32;
const HIDDEN: &str = "***";

/// What was asked, for a record: without the input, and without what the table or its name calls a secret.
pub fn without_secrets(cmd: &Command) -> Value {
    let hidden = table::find(&cmd.prefix).map_or("", |s| s.secret_arg);
    let option = cmd.args.get("name").and_then(Value::as_str).unwrap_or_default();
    let secret = |arg: &str| {
        !hidden.is_empty() && arg == hidden
            || cmd.prefix == "config set" && arg == "value" && is_secret_name(option)
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
    let Some(spec) = table::find(&cmd.prefix) else {
        return Outcome::error(Errno::EINVAL, "command not known");
    };
    if matches!(cmd.format, Format::Xml | Format::XmlPretty) {
        return Outcome::error(Errno::EOPNOTSUPP, "XML output is not built in skep yet");
    }
    (spec.run)(cmd, ctx)
}

/// The JSON text that `ceph ping mon.X` prints: keys `health` and `mon_status`.
pub fn ping_text(ctx: &Context<'_>) -> String {
    let (behind, since) = others::said(ctx.mon.behind);
    let text = serde_json::json!({
        "health": health::Report::of(ctx).json(true),
        "mon_status": monitor::mon_status(ctx),
        behind: since,
    });
    crate::format::pretty(&text)
}
