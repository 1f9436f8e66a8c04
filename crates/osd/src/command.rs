//! MCommand: what `ceph tell osd.N ...` asks (chapter 04, section 15).
//!
//! One table: prefix, arguments in the monitor's signature form, help. What is not in it is refused.

use crate::health::PgHealth;
use crate::osd::Osd;
use bytes::Bytes;
use messages::osd::{MCommand, MCommandReply};
use net::ConnId;
use serde_json::{Map, Value, json};
use std::time::Duration;
use types::pgstats::pg_state;
use types::{Errno, PgId};

/// Version that clients see: the release whose protocol is spoken.
pub const VERSION: &str = "16.2.15";

/// Prefix, signature, help.
const COMMANDS: &[(&str, &str, &str)] = &[
    (
        "config get",
        "config get name=key,type=CephString",
        "value of an option",
    ),
    (
        "config show",
        "config show",
        "the options that this OSD goes by, and their values",
    ),
    ("dump_blocklist", "dump_blocklist", "clients that are fenced"),
    (
        "dump_blocked_ops",
        "dump_blocked_ops",
        "operations that wait too long",
    ),
    (
        "dump_ops_in_flight",
        "dump_ops_in_flight",
        "operations not answered yet",
    ),
    ("flush_pg_stats", "flush_pg_stats", "report statistics now"),
    (
        "get_command_descriptions",
        "get_command_descriptions",
        "list the commands",
    ),
    ("help", "help", "list the commands"),
    ("perf dump", "perf dump", "counters"),
    (
        "pg",
        "pg name=pgid,type=CephPgid name=cmd,type=CephChoices,strings=query",
        "state of a placement group",
    ),
    ("status", "status", "state of this OSD"),
    ("version", "version", "version of the program"),
];

type Answer = Result<Value, (Errno, String)>;

impl Osd {
    pub fn command(&mut self, conn: ConnId, c: &MCommand) -> MCommandReply {
        let reply = |result: i32, status: String, out: Bytes| MCommandReply {
            tid: c.tid,
            result,
            status: status.into_bytes().into(),
            output: out,
        };
        if c.fsid != self.placement.state.fsid {
            return reply(Errno::EACCES.code(), "wrong fsid".into(), Bytes::new());
        }
        let fenced = self.sessions.client(conn).is_none_or(|c| self.is_fenced(&c));
        if fenced || !self.sessions.may_command(conn) {
            return reply(Errno::EACCES.code(), "access denied".into(), Bytes::new());
        }
        let text = c.cmd.first().map(|b| b.as_ref()).unwrap_or_default();
        let Ok(Value::Object(args)) = serde_json::from_slice(text) else {
            return reply(Errno::EINVAL.code(), "invalid json".into(), Bytes::new());
        };
        match self.run_command(&args) {
            Ok(Value::String(text)) => reply(0, String::new(), text.into()),
            Ok(value) => {
                let mut out = serde_json::to_string_pretty(&value).unwrap_or_default();
                out.push('\n');
                reply(0, String::new(), out.into())
            }
            Err((errno, status)) => reply(errno.code(), status, Bytes::new()),
        }
    }

    fn run_command(&mut self, args: &Map<String, Value>) -> Answer {
        let text = |key: &str| args.get(key).and_then(Value::as_str).unwrap_or_default();
        let prefix = text("prefix");
        match prefix {
            "get_command_descriptions" => Ok(Value::String(descriptions().to_string())),
            "help" => Ok(Value::Object(
                COMMANDS
                    .iter()
                    .map(|(p, _, help)| (p.to_string(), json!(help)))
                    .collect(),
            )),
            "version" => Ok(json!({"version": VERSION, "release": "pacific", "release_type": "stable"})),
            "status" => Ok(self.status_command()),
            "flush_pg_stats" => Ok(Value::String(format!("{}\n", self.flush_report()))),
            "perf dump" => Ok(self.perf_command()),
            "dump_ops_in_flight" => Ok(self.dump_ops(Duration::ZERO)),
            "dump_blocked_ops" => Ok(self.dump_blocked_ops()),
            "dump_blocklist" => Ok(Value::Array(
                self.placement
                    .state
                    .osdmap
                    .blocklist
                    .iter()
                    .map(|(addr, until)| json!({"addr": addr.to_string(), "expire": until.to_string()}))
                    .collect(),
            )),
            "config show" => Ok(json!(self.options())),
            "config get" => {
                let key = text("key");
                let value = self.options().remove(key);
                value.map(|v| json!({key: v})).ok_or_else(|| {
                    let why = format!("error getting '{key}': (2) No such file or directory");
                    (Errno::ENOENT, why)
                })
            }
            "pg" | "query" => self.pg_command(
                text("pgid"),
                if prefix == "query" { "query" } else { text("cmd") },
            ),
            other => Err((Errno::EINVAL, format!("unknown command prefix {other}"))),
        }
    }

    fn pg_command(&self, pgid: &str, cmd: &str) -> Answer {
        let Ok(id) = pgid.parse::<PgId>() else {
            return Err((Errno::EINVAL, format!("invalid pgid '{pgid}'")));
        };
        if cmd != "query" {
            return Err((
                Errno::EOPNOTSUPP,
                format!("'pg {pgid} {cmd}' is not built in skep yet"),
            ));
        }
        let Some(pg) = self.primary(id) else {
            return Err((Errno::ENOENT, format!("i don't have pgid {pgid}")));
        };
        let stats = pg.stats();
        let health = PgHealth::of(pg, &self.placement.state.osdmap);
        let peers: Vec<Value> = pg.members().iter().map(member).collect();
        let sets = self.placement.state.osdmap.pg_to_up_acting(id);
        let history = self.placement.state.pgs.get(id);
        let scrub = pg.scrub_view();
        let stamps = scrub.stamps;
        Ok(json!({
            "snap_trimq": "[]",
            "snap_trimq_len": 0,
            "state": pg_state::names(health.state),
            "epoch": self.placement.epoch(),
            "up": sets.up,
            "acting": sets.acting,
            "in_sync": pg.group().in_sync,
            "blocked_by": health.blocked_by,
            "peer_info": peers,
            "waiting_for_peered": pg.held(),
            "info": {
                "pgid": id.to_string(),
                "last_update": format!("{}'{}", self.placement.epoch(), stats.version),
                "last_user_version": stats.user_version,
                "history": {
                    "same_interval_since": history.map_or(0, |c| c.interval),
                    "last_scrub": stamps.version.to_string(),
                    "last_scrub_stamp": stamps.at.to_string(),
                    "last_deep_scrub": stamps.deep_version.to_string(),
                    "last_deep_scrub_stamp": stamps.deep_at.to_string(),
                    "last_clean_scrub_stamp": stamps.clean_at.to_string(),
                },
                "stats": {"stat_sum": {
                    "num_bytes": stats.bytes,
                    "num_objects": stats.objects,
                    "num_object_clones": stats.clones,
                    "num_whiteouts": stats.whiteouts,
                    "num_read": stats.reads,
                    "num_write": stats.writes,
                    "num_scrub_errors": stamps.errors(),
                    "num_shallow_scrub_errors": stamps.shallow_errors,
                    "num_deep_scrub_errors": stamps.deep_errors,
                    "num_objects_repaired": scrub.repaired,
                }},
            },
        }))
    }

    fn status_command(&self) -> Value {
        json!({
            "cluster_fsid": self.placement.state.fsid.to_string(),
            "osd_fsid": self.store.engine.identity().osd_uuid.to_string(),
            "whoami": self.id,
            "state": if self.standing.is_hung() { "disk hangs" } else if self.serving() { "active" } else { "no lease" },
            "oldest_map": self.placement.state.history.first(),
            "newest_map": self.placement.epoch(),
            "num_pgs": self.pgs().count(),
        })
    }

    fn perf_command(&self) -> Value {
        let c = self.store.engine.counters();
        let (mut reads, mut writes, mut read_bytes, mut write_bytes) = (0, 0, 0, 0);
        for (_, pg) in self.pgs() {
            let s = pg.stats();
            (reads, writes) = (reads + s.reads, writes + s.writes);
            (read_bytes, write_bytes) = (read_bytes + s.read_bytes, write_bytes + s.write_bytes);
        }
        let slowest = self.links.slowest();
        json!({
            "heartbeats": {"peers": self.links.open().count(), "slowest_peer": slowest.map(|s| s.0),
                           "slowest_us": slowest.map(|s| s.1.as_micros() as u64)},
            "osd": {"op_r": reads, "op_w": writes, "op_r_out_bytes": read_bytes, "op_w_in_bytes": write_bytes,
                    "op_latency": {"avgtime": self.clients.mean().as_secs_f64()},
                    "numpg": self.slots.len(), "numpg_primary": self.pgs().count(),
                    "replica_read": self.copy_reads.asked, "replica_read_served": self.copy_reads.served,
                    "replica_read_out_bytes": self.copy_reads.served_bytes,
                    "replica_read_redirected": self.copy_reads.redirected,
                    "scrub_bytes": self.scrubs.bytes, "scrubs": self.scrubs.ended,
                    "recovery_bytes": self.recovery.bytes, "recovery_ops": self.recovery.objects, "sessions": self.sessions.len()},
            "store": {"transactions": c.transactions, "flushes": c.flushes, "log_bytes": c.log_bytes,
                      "direct_bytes": c.direct_bytes, "checkpoints": c.checkpoints, "stalls": c.stalls},
        })
    }
}

fn member(m: &pg::MemberState) -> Value {
    json!({"peer": m.osd.to_string(), "in_sync": m.in_sync, "state": m.state, "objects_missing": m.dirty,
           "backfill": m.backfill})
}

/// The table in the form that the `ceph` program reads.
fn descriptions() -> Value {
    let all = COMMANDS.iter().enumerate().map(|(i, (_, sig, help))| {
        let sig: Vec<Value> = sig.split(' ').map(argument).collect();
        (
            format!("cmd{i:03}"),
            json!({"sig": sig, "help": help, "module": "osd", "perm": "r", "flags": 0}),
        )
    });
    Value::Object(all.collect())
}

/// A word, or `name=...,type=...,...` as an object.
fn argument(word: &str) -> Value {
    if !word.starts_with("name=") {
        return json!(word);
    }
    let pairs = word.split(',').filter_map(|kv| kv.split_once('='));
    Value::Object(pairs.map(|(k, v)| (k.to_string(), json!(v))).collect())
}
