//! The admin socket's commands, and the client side for `skep status` and `skep doctor`.
//!
//! `skep status` shows this process and the cluster; any other word is run as a monitor command (`ceph daemon
//! DIR/skep.asok osd_tree`), read-only ones only. What changes the cluster are `skep pool near`, and `skep host rm` and
//! `skep osd rm`, one step at a time. Only the user who runs the process can open the socket.

use crate::role::{MonitorAccess, Registries};
use crate::supervise::{Board, Health};
use crate::{DataDir, Error};
use cluster::{Change, Changes, ClusterState};
use forms::Form;
use forms::names::Names;
use io::files::Holder;
use metastore::{ClusterHandle, Committed};
use metrics::{Registry, json};
use mon::audit::{AuditFile, Record};
use mon::removal::{self, Target};
use serde_json::{Map, Value, json};
use types::{Errno, OsdId};

/// Asks the process that serves `dir`.
pub fn ask(dir: &DataDir, request: &str) -> Result<String, Error> {
    let path = dir.admin_path();
    if dir.holder()? == Holder::Nobody {
        return Err(Error::NotRunning(dir.root().to_path_buf()));
    }
    let answer = io::task::block_on(io::admin::ask(&path, request)).and_then(|r| r);
    let bytes = answer.map_err(|source| Error::Io {
        what: format!("asking {}", path.display()),
        source,
    })?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// What the answers are made from.
#[derive(Clone)]
pub(crate) struct AdminContext {
    pub dir: DataDir,
    pub cluster: ClusterHandle,
    /// Puts questions to this process' monitor.
    pub(crate) access: MonitorAccess,
    /// Where records of what it changes go.
    pub audit: AuditFile,
    /// What the roles of this process count.
    pub(crate) registries: Registries,
    pub(crate) board: Board,
    /// The OSDs of this machine.
    pub osds: Vec<OsdId>,
    pub mon_addr: Option<String>,
    pub version: &'static str,
}

/// The commands of the socket itself: prefix, arguments, what it is.
const COMMANDS: [(&str, &[&str], &str); 8] = [
    ("status", &[], "state of this process and of its cluster"),
    ("version", &[], "version"),
    ("help", &[], "this list"),
    (
        "perf dump",
        &["logger", "counter", "daemon"],
        "what the daemons of this process count",
    ),
    ("perf schema", &["daemon"], "what their counters mean"),
    (
        "skep host rm",
        &["host", "begin"],
        "a step towards a host being out of the cluster",
    ),
    (
        "skep osd rm",
        &["id", "begin"],
        "a step towards an OSD being out of the cluster",
    ),
    (
        "skep pool near",
        &["pool", "host"],
        "keep the first copies of a pool on a host",
    ),
];

fn help() -> Value {
    let mut all: Map<String, Value> = Map::new();
    for (prefix, names, help) in COMMANDS {
        let of = match names.is_empty() {
            true => help.to_string(),
            false => format!("{help}: {}", names.join(", ")),
        };
        all.insert(prefix.to_string(), of.into());
    }
    all.insert("(any)".into(), "a monitor command that only reads".into());
    Value::Object(all)
}

impl AdminContext {
    pub async fn answer(&self, request: String) -> Vec<u8> {
        io::panics::point("admin");
        let parsed: Value =
            serde_json::from_str(&request).unwrap_or_else(|_| json!({ "prefix": request.trim() }));
        let text = |key: &str| parsed.get(key).and_then(Value::as_str).unwrap_or_default();
        let wanted = json::Wanted {
            logger: text("logger"),
            counter: text("counter"),
        };
        let out = match text("prefix") {
            "skep status" | "status" => self.status(text("format") != "plain").await,
            "skep host rm" => {
                let host = Target::Host(text("host").to_string());
                self.remove(host, &parsed).await
            }
            "skep osd rm" => match parsed.get("id").and_then(Value::as_i64).map(OsdId::try_from) {
                Some(Ok(id)) => self.remove(Target::Osd(id), &parsed).await,
                _ => json!({"error": "the id of an OSD is missing"}).to_string(),
            },
            "perf dump" => self.perf(text("daemon"), |r| json::perf_dump(r, wanted)),
            "perf schema" => self.perf(text("daemon"), json::perf_schema),
            "skep test panic" => panic_at(text("role"), text("point")),
            "skep pool near" => self.near(text("pool"), text("host")).await,
            "version" | "0" => json!({"version": self.version}).to_string(),
            "help" => help().to_string(),
            "get_command_descriptions" => self.descriptions().await.to_string(),
            prefix => return self.monitor_command(prefix, parsed.clone()).await,
        };
        shown(out, &parsed).into_bytes()
    }

    /// What `ceph daemon` reads before it sends anything, as Ceph's daemons give it: the commands here, and the monitor's where there is one.
    async fn descriptions(&self) -> Value {
        let mut all = match self
            .access
            .ask(json!({"prefix": "get_command_descriptions"}).to_string())
            .await
        {
            Some(answer) if answer.code == 0 => serde_json::from_slice(&answer.data).unwrap_or_default(),
            _ => Map::new(),
        };
        let arguments = |names: &[&str]| {
            let kind = |name: &str| match name {
                "id" => "CephInt",
                "begin" => "CephBool",
                _ => "CephString",
            };
            let of = |name: &&str| json!({"name": name, "type": kind(name), "req": false});
            names.iter().map(of).collect::<Vec<Value>>()
        };
        for (text, names, help) in COMMANDS {
            let mut sig: Vec<Value> = text.split(' ').map(Value::from).collect();
            let words = sig.len();
            sig.extend(arguments(names));
            all.retain(|_, c| {
                c["sig"]
                    .as_array()
                    .is_none_or(|s| s.len() < words || s[..words] != sig[..words])
            });
            let one = json!({"sig": sig, "help": help, "module": "node", "perm": "r", "flags": 0});
            all.insert(format!("node {text}"), one);
        }
        Value::Object(all)
    }

    /// By the names of the daemons: one process runs several.
    fn perf(&self, daemon: &str, show: impl Fn(&Registry) -> Value) -> String {
        let all = self.registries.all();
        let wanted = all
            .iter()
            .filter(|(name, _)| daemon.is_empty() || *name == daemon);
        let shown: Map<String, Value> = wanted.map(|(name, r)| (name.clone(), show(r))).collect();
        Value::Object(shown).to_string()
    }

    /// One step towards an OSD or a host being out of the cluster for good. Who may open the socket may do that.
    async fn remove(&self, target: Target, request: &Value) -> String {
        let begin = request.get("begin").and_then(Value::as_bool).unwrap_or(false);
        let error = |why: String| json!({ "error": why }).to_string();
        if let Target::Host(host) = &target
            && self.is_own(host)
        {
            return error(format!("{host} is this machine: ask on one that stays"));
        }
        let stats = self.cluster.stats();
        let decide = |state: &ClusterState| removal::step(state, &stats, &target, begin, self.cluster.now());
        let done = self.cluster.commit(decide).await;
        let what = json!({"prefix": "skep rm", "target": format!("{target:?}"), "begin": begin});
        self.record(what, &done).await;
        match done.map(|done| done.reply) {
            Ok(Ok(p)) => json!({
                "phase": p.phase.name(), "text": p.text, "osds": p.osds, "pgs": p.pgs, "bytes": p.bytes,
            })
            .to_string(),
            Ok(Err(why)) => error(why),
            Err(e) => error(e.to_string()),
        }
    }

    /// Keeps a record of what was changed, or failed.
    async fn record<T>(&self, what: Value, done: &Result<Committed<T>, metastore::Error>) {
        let code = match done {
            Ok(done) if !done.changed => return,
            Ok(_) => 0,
            Err(_) => Errno::EIO.code(),
        };
        let now = self.cluster.now();
        let record = Record::of_admin_socket(what, code, now);
        self.audit.write(&record);
        let line = |state: &ClusterState| {
            let entry = state.log_entry(now, record.level(), record.text());
            (Changes::one(Change::Audit(entry)), ())
        };
        if let Err(e) = self.cluster.commit(line).await {
            tracing::warn!("the cluster log did not take a record: {e}");
        }
    }

    async fn near(&self, pool: &str, host: &str) -> String {
        let decide = |state: &ClusterState| {
            let mut changes = Changes::none();
            let set = mon::near::set(&state.osdmap, pool, host, changes.inc(state, self.cluster.now()));
            match set {
                Ok(done @ mon::pools::Done::Changed(_)) => (changes, Ok(done)),
                other => (Changes::none(), other),
            }
        };
        let done = self.cluster.commit(decide).await;
        self.record(
            json!({"prefix": "skep pool near", "pool": pool, "host": host}),
            &done,
        )
        .await;
        match done.map(|done| done.reply) {
            Ok(Ok(done)) => json!({"phase": "done", "text": done.text()}).to_string(),
            Ok(Err(e)) => json!({"error": e.text}).to_string(),
            Err(e) => json!({"error": e.to_string()}).to_string(),
        }
    }

    /// True if all OSDs of this machine are on that host: it would end the process that is asked.
    fn is_own(&self, host: &str) -> bool {
        let map = self.cluster.osdmap();
        let below = map
            .crush
            .item_id(host)
            .map(|id| map.crush.devices_under(id))
            .unwrap_or_default();
        !self.osds.is_empty() && self.osds.iter().all(|o| below.contains(o))
    }

    /// The answer of the monitor, or why there is none.
    async fn monitor_command(&self, prefix: &str, mut command: Value) -> Vec<u8> {
        // `ceph daemon` cannot send blanks within one word.
        command["prefix"] = json!(prefix.replace('_', " "));
        if let Some(answer) = self.access.ask(command.to_string()).await {
            // Some commands do have an underscore.
            let answer = match answer.code < 0 && prefix.contains('_') {
                true => {
                    command["prefix"] = json!(prefix);
                    self.access.ask(command.to_string()).await.unwrap_or(answer)
                }
                false => answer,
            };
            return match (answer.code, answer.data.is_empty()) {
                (0, false) => answer.data.to_vec(),
                (0, true) => answer.status.into_bytes(),
                (code, _) => json!({"error": answer.status, "code": code})
                    .to_string()
                    .into_bytes(),
            };
        }
        json!({"error": "the monitor of this process does not run"})
            .to_string()
            .into_bytes()
    }

    /// What the monitor says about the whole cluster, as JSON or for people.
    async fn cluster_status(&self, as_json: bool) -> Option<String> {
        let format = if as_json { "json" } else { "plain" };
        let command = json!({"prefix": "status", "format": format}).to_string();
        let answer = self.access.ask(command).await.filter(|a| a.code == 0)?;
        Some(String::from_utf8_lossy(&answer.data).into_owned())
    }

    async fn status(&self, as_json: bool) -> String {
        let state = self.cluster.state();
        let stats = self.cluster.stats();
        let map = &state.osdmap;
        let memory = io::files::resident_bytes().unwrap_or(0);
        let (mut total, mut available) = (0i64, 0i64);
        for report in stats.osds.values() {
            total += report.stat.statfs.total;
            available += report.stat.statfs.available;
        }
        let osds: Vec<Value> = map
            .osd_ids()
            .map(|id| {
                let report = stats.osds.get(&id);
                json!({
                    "id": id,
                    "up": map.is_up(id),
                    "in": map.is_in(id),
                    "pgs": report.map_or(0, |r| r.pgs.len()),
                    "used_bytes": report.map_or(0, |r| r.stat.statfs.used()),
                    "total_bytes": report.map_or(0, |r| r.stat.statfs.total),
                })
            })
            .collect();
        let value = json!({
            "running": true,
            "version": self.version,
            "pid": std::process::id(),
            "fsid": state.fsid.to_string(),
            "data": self.dir.root(),
            "mon": self.mon_addr,
            "osdmap_epoch": map.epoch,
            "osds": osds,
            "roles": self.board.all().iter().map(|(name, h)| (name.clone(), role(h))).collect::<Map<_, _>>(),
            "pools": map.pools.len(),
            "total_bytes": total,
            "available_bytes": available,
            "resident_bytes": memory,
            "memory_budget_bytes": self.registries.sum("memory", "budget"),
            "memory_charged_bytes": self.registries.sum("memory", "charged"),
        });
        let cluster = self.cluster_status(as_json).await;
        if as_json {
            let mut value = value;
            value["cluster"] = cluster
                .and_then(|text| serde_json::from_str(&text).ok())
                .unwrap_or(Value::Null);
            serde_json::to_string_pretty(&value).unwrap_or_default()
        } else {
            let cluster = cluster.unwrap_or_else(|| "the monitor of this process does not run\n".into());
            format!("{}\n{}", plain(&value), cluster.trim_end_matches([' ', '\n']))
        }
    }
}

fn plain(v: &Value) -> String {
    let n = |key: &str| v[key].as_i64().unwrap_or(0);
    let osds = v["osds"].as_array().cloned().unwrap_or_default();
    let up = osds.iter().filter(|o| o["up"] == json!(true)).count();
    let mut out = format!(
        "running   pid {}, skep {}\ncluster   {}\nmonitor   {}\ndata      {}\nosds      {up} of {} up, map epoch {}\npools     {}\nspace     {} of {} used\nmemory    {} resident, budget {}\n",
        v["pid"],
        v["version"].as_str().unwrap_or_default(),
        v["fsid"].as_str().unwrap_or_default(),
        v["mon"].as_str().unwrap_or("none in this process"),
        v["data"].as_str().unwrap_or_default(),
        osds.len(),
        v["osdmap_epoch"],
        v["pools"],
        size(n("total_bytes") - n("available_bytes")),
        size(n("total_bytes")),
        size(n("resident_bytes")),
        size(n("memory_budget_bytes")),
    );
    for o in osds {
        let state = if o["up"] == json!(true) { "up" } else { "down" };
        out.push_str(&format!(
            "  osd.{:<4} {state:<5} {:>4} pgs  {:>10} of {} used\n",
            o["id"],
            o["pgs"],
            size(o["used_bytes"].as_i64().unwrap_or(0)),
            size(o["total_bytes"].as_i64().unwrap_or(0)),
        ));
    }
    for (name, role) in v["roles"].as_object().into_iter().flatten() {
        if role["last_failure"].is_null() {
            continue;
        }
        out.push_str(&format!(
            "  {name:<8} {}, {} restarts; last failure: {}\n",
            role["state"].as_str().unwrap_or_default(),
            role["restarts"],
            role["last_failure"].as_str().unwrap_or_default(),
        ));
    }
    out
}

/// In the form that was asked for; `skep status` for people is no JSON, and stays.
fn shown(out: String, request: &Value) -> String {
    let word = |key: &str| request.get(key).and_then(Value::as_str);
    let form = Form::of(word("format"));
    match serde_json::from_str::<Value>(&out) {
        Ok(v) if !matches!(form, Form::Plain | Form::Json) => {
            let names = Names {
                prefix: word("prefix").unwrap_or_default(),
                args: &Map::new(),
                told: true,
            };
            form.write(&v, &names)
        }
        _ => out,
    }
}

/// How a role is, as `skep status` tells it.
fn role(h: &Health) -> Value {
    json!({
        "kind": h.kind,
        "state": h.phase.name(),
        "restarts": h.restarts,
        "last_failure": h.last,
    })
}

/// For tests: the next thread of the role that comes by this point panics.
fn panic_at(role: &str, point: &str) -> String {
    match io::panics::ask(role, point) {
        true => json!({"asked": {"role": role, "point": point}}).to_string(),
        false => json!({"error": "this process was not started to be tested so"}).to_string(),
    }
}

/// `1.5 GiB`.
fn size(bytes: i64) -> String {
    let mut value = bytes as f64;
    for unit in ["B", "KiB", "MiB", "GiB", "TiB"] {
        if value < 1024.0 {
            return if unit == "B" {
                format!("{value:.0} B")
            } else {
                format!("{value:.1} {unit}")
            };
        }
        value /= 1024.0;
    }
    format!("{value:.1} PiB")
}
