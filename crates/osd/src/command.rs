//! MCommand: what `ceph tell osd.N ...` asks (docs/protocol/ceph/04-osd.md, section 15).
//!
//! One table: prefix, arguments, the right that is needed, help, function. What is not in it is refused.

mod table;

use crate::health::PgHealth;
use crate::osd::Osd;
use bytes::Bytes;
use messages::osd::{MCommand, MCommandReply};
use metrics::json;
use net::ConnId;
use serde_json::{Map, Value, json};
use std::time::Duration;
use table::{Answer, Args, Part, Right, Spec, arg, spec};
use types::pgstats::pg_state;
use types::{Errno, PgId, release};

/// All commands; what is not here is refused.
const TABLE: &[Spec] = &[
    spec("config get", "value of an option", config_get).with(&[
        Part::Word("config"),
        Part::Word("get"),
        arg("key", "CephString"),
    ]),
    spec(
        "config show",
        "the options that this OSD goes by, and their values",
        |osd, _| Ok(json!(osd.options())),
    ),
    spec("dump_blocklist", "clients that are fenced", |osd, _| {
        Ok(osd.blocklist_command())
    }),
    spec("dump_blocked_ops", "operations that wait too long", |osd, _| {
        Ok(osd.dump_blocked_ops())
    }),
    spec("dump_ops_in_flight", "operations not answered yet", |osd, _| {
        Ok(osd.dump_ops(Duration::ZERO))
    }),
    spec("flush_pg_stats", "report statistics now", |osd, _| {
        Ok(Value::String(format!("{}\n", osd.flush_report())))
    }),
    spec("get_command_descriptions", "list the commands", |_, _| {
        Ok(Value::String(table::descriptions(TABLE).to_string()))
    }),
    spec("help", "list the commands", |_, _| Ok(table::help(TABLE))),
    spec(
        "dump_mempools",
        "memory that is charged, and its bounds",
        |osd, _| {
            osd.measure();
            Ok(osd.meters.accountant.mempools())
        },
    ),
    spec("perf dump", "dump perfcounters value", |osd, args| {
        osd.measure();
        Ok(json::perf_dump(&osd.meters.registry, wanted(args)))
    })
    .with(&[
        Part::Word("perf"),
        Part::Word("dump"),
        arg("logger", "CephString").optional(),
        arg("counter", "CephString").optional(),
    ]),
    spec(
        "perf histogram dump",
        "dump perf histogram values",
        |osd, args| Ok(json::histogram_dump(&osd.meters.registry, wanted(args))),
    )
    .with(&[
        Part::Word("perf"),
        Part::Word("histogram"),
        Part::Word("dump"),
        arg("logger", "CephString").optional(),
        arg("counter", "CephString").optional(),
    ]),
    spec("perf histogram schema", "dump perf histogram schema", |osd, _| {
        Ok(json::histogram_schema(&osd.meters.registry))
    }),
    spec("perf schema", "dump perfcounters schema", |osd, _| {
        Ok(json::perf_schema(&osd.meters.registry))
    }),
    spec("pg", "state of a placement group", |osd, args| {
        osd.pg_command(args.text("pgid"), args.text("cmd"))
    })
    .with(&[
        Part::Word("pg"),
        arg("pgid", "CephPgid"),
        Part::Arg {
            name: "cmd",
            kind: "CephChoices",
            choices: "query",
            required: true,
        },
    ]),
    // As programs ask by `ceph tell PG query`.
    spec("query", "state of a placement group", |osd, args| {
        osd.pg_command(args.text("pgid"), "query")
    })
    .unlisted(),
    spec("status", "state of this OSD", |osd, _| Ok(osd.status_command())),
    spec("version", "version of the program", |_, _| {
        Ok(
            json!({"version": release::SPOKEN_VERSION, "release": release::SPOKEN_NAME, "release_type": "stable"}),
        )
    }),
];

fn wanted<'a>(args: &'a Args<'_>) -> json::Wanted<'a> {
    json::Wanted {
        logger: args.text("logger"),
        counter: args.text("counter"),
    }
}

fn config_get(osd: &mut Osd, args: &Args<'_>) -> Answer {
    let key = args.text("key");
    let value = osd.options().remove(key);
    value.map(|v| json!({key: v})).ok_or_else(|| {
        let why = format!("error getting '{key}': (2) No such file or directory");
        (Errno::ENOENT, why)
    })
}

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
        match self.run_command(conn, &args) {
            Ok(Value::String(text)) => reply(0, String::new(), text.into()),
            Ok(value) => {
                let mut out = serde_json::to_string_pretty(&value).unwrap_or_default();
                out.push('\n');
                reply(0, String::new(), out.into())
            }
            Err((errno, status)) => reply(errno.code(), status, Bytes::new()),
        }
    }

    fn run_command(&mut self, conn: ConnId, args: &Map<String, Value>) -> Answer {
        let args = Args(args);
        let prefix = args.text("prefix");
        match TABLE.iter().find(|s| s.prefix == prefix) {
            Some(spec) if self.has_right(conn, spec.right) => (spec.run)(self, &args),
            Some(_) => Err((Errno::EACCES, "access denied".into())),
            None => Err((Errno::EINVAL, format!("unknown command prefix {prefix}"))),
        }
    }

    fn has_right(&self, conn: ConnId, right: Right) -> bool {
        match right {
            Right::All => self.sessions.may_command(conn),
        }
    }

    fn blocklist_command(&self) -> Value {
        let entries = self.placement.state.osdmap.blocklist.iter();
        entries
            .map(|(addr, until)| json!({"addr": addr.to_string(), "expire": until.to_string()}))
            .collect()
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
            "positions": history.map(|c| &c.acting),
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
            "state": if self.membership.is_hung() { "disk hangs" } else if self.serving() { "active" } else { "no lease" },
            "oldest_map": self.placement.state.history.first(),
            "newest_map": self.placement.epoch(),
            "num_pgs": self.pgs().count(),
        })
    }
}

fn member(m: &pg::MemberState) -> Value {
    json!({"peer": m.osd.to_string(), "in_sync": m.in_sync, "state": m.state, "objects_missing": m.dirty,
           "backfill": m.backfill})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_names_each_command_once() {
        for s in TABLE {
            assert_eq!(
                TABLE.iter().filter(|o| o.prefix == s.prefix).count(),
                1,
                "{}",
                s.prefix
            );
            assert!(!s.help.is_empty() && s.help.len() < 100, "{}: help", s.prefix);
            let words = s.parts.iter().filter_map(|p| match p {
                Part::Word(w) => Some(*w),
                Part::Arg { .. } => None,
            });
            let words: Vec<&str> = words.collect();
            assert!(
                s.parts.is_empty() || words.join(" ") == s.prefix,
                "{}: words",
                s.prefix
            );
        }
    }

    #[test]
    fn what_the_ceph_program_is_told() {
        let all = table::descriptions(TABLE);
        assert_eq!(
            all["cmd000"],
            json!({"sig": ["config", "get", {"name": "key", "type": "CephString"}], "help": "value of an option",
                   "module": "osd", "perm": "r", "flags": 0})
        );
        assert_eq!(
            all["cmd013"]["sig"],
            json!(["pg", {"name": "pgid", "type": "CephPgid"},
                   {"name": "cmd", "type": "CephChoices", "strings": "query"}])
        );
        assert_eq!(all["cmd015"]["sig"], json!(["version"]));
        assert_eq!(all.as_object().unwrap().len(), 16, "a second name is not listed");
        assert!(table::help(TABLE).get("query").is_none());
    }
}
