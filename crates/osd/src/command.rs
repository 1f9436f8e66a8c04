//! MCommand: what `ceph tell osd.N ...` asks (docs/protocol/ceph/04-osd.md, section 15).
//!
//! One table: prefix, arguments, the right that is needed, help, function. What is not in it is refused, and so is, with a
//! reason, what the real one has and this one has not ([`refused`]).

mod config;
mod facts;
mod groups;
mod refused;
pub mod table;

use crate::asker::Asker;
use crate::bench::Asked;
use crate::ops::shown::Past;
use crate::osd::Osd;
use bytes::Bytes;
use forms::Form;
use forms::names::Names;
use messages::osd::{MCommand, MCommandReply};
use metrics::json;
use net::ConnId;
use serde_json::{Map, Value, json};
use std::net::IpAddr;
use std::time::Duration;
use table::{Answer, Args, Part, Right, Spec, Told, arg, choice, spec, word};
use types::Errno;

const COUNTERS: [Part; 2] = [
    arg("logger", "CephString").optional(),
    arg("counter", "CephString").optional(),
];
const FILTER: Part = arg("filterstr", "CephString").any();
const PGID: Part = arg("pgid", "CephPgid");
const TIME: Part = arg("time", "CephInt").optional();
const OFFSET: Part = arg("offset", "CephString").optional();

/// All commands but those that are refused.
const TABLE: &[Spec] = &[
    spec(
        "bench",
        "how fast the store takes writes: so many bytes in blocks of this size",
        bench,
    )
    .with(&[
        word("bench"),
        arg("count", "CephInt").optional(),
        arg("size", "CephInt").optional(),
        arg("object_size", "CephInt").optional(),
        arg("object_num", "CephInt").optional(),
    ]),
    spec("cache status", "what caches hold", facts::cache_status),
    spec(
        "cluster_log",
        "log a message to the cluster log",
        facts::cluster_log,
    )
    .with(&[
        word("cluster_log"),
        choice("level", "error"),
        arg("message", "CephString").many(),
    ]),
    spec(
        "config diff",
        "options that somebody set, and their defaults",
        config::diff,
    ),
    spec("config diff get", "the same of one option", config::diff).with(&[
        word("config"),
        word("diff"),
        word("get"),
        arg("var", "CephString"),
    ]),
    spec("config get", "value of an option", config::get).with(&[
        word("config"),
        word("get"),
        arg("var", "CephString"),
    ]),
    spec(
        "config set",
        "go by another value of an option until the OSD ends",
        config::set,
    )
    .with(&[
        word("config"),
        word("set"),
        arg("var", "CephString"),
        arg("val", "CephString").many(),
    ]),
    spec(
        "config show",
        "the options that this OSD goes by, and their values",
        config::show,
    ),
    spec(
        "config unset",
        "go by the central configuration again",
        config::unset,
    )
    .with(&[word("config"), word("unset"), arg("var", "CephString")]),
    spec("cpu_profiler", "whether processors are profiled", |_, _| {
        Ok(Value::String("cpu_profiler support not linked in".into()).into())
    })
    .with(&[word("cpu_profiler"), choice("arg", "status|flush")]),
    spec(
        "deep_scrub",
        "read and compare a placement group whole",
        |osd, args| groups::scrub(osd, args, true),
    )
    .with(&[word("deep_scrub"), PGID.optional(), TIME]),
    spec(
        "dump_blocked_ops",
        "operations that wait too long",
        |osd, args| Ok(osd.dump_blocked_ops(&from(args)).into()),
    )
    .with(&[word("dump_blocked_ops"), FILTER]),
    spec("dump_blocklist", "clients that are fenced", |osd, _| {
        Ok(facts::blocklist(osd).into())
    }),
    spec(
        "dump_historic_ops",
        "the slowest operations of the last minutes",
        |osd, args| Ok(osd.dump_past(Past::Recent, &from(args)).into()),
    )
    .with(&[word("dump_historic_ops"), FILTER]),
    spec(
        "dump_historic_ops_by_duration",
        "the same, the slowest first",
        |osd, args| Ok(osd.dump_past(Past::ByDuration, &from(args)).into()),
    )
    .with(&[word("dump_historic_ops_by_duration"), FILTER]),
    spec(
        "dump_historic_slow_ops",
        "the last operations that were slow",
        |osd, args| Ok(osd.dump_past(Past::Slow, &from(args)).into()),
    )
    .with(&[word("dump_historic_slow_ops"), FILTER]),
    spec(
        "dump_mempools",
        "memory that is charged, and its bounds",
        |osd, _| {
            osd.measure();
            Ok(osd.meters.accountant.mempools().into())
        },
    ),
    spec(
        "dump_op_stages",
        "where operations spend their time, counted since somebody asked",
        facts::stages,
    )
    .with(&[word("dump_op_stages"), arg("seconds", "CephInt").optional()]),
    spec(
        "dump_ops_in_flight",
        "operations not answered yet",
        |osd, args| Ok(osd.dump_ops(Duration::ZERO, &from(args)).into()),
    )
    .with(&[word("dump_ops_in_flight"), FILTER]),
    spec(
        "dump_osd_network",
        "round trips of heartbeats, from so many milliseconds on",
        facts::network,
    )
    .with(&[word("dump_osd_network"), arg("value", "CephInt").optional()]),
    spec(
        "dump_qos",
        "limits, this OSD's share of them, and whom they hold",
        |osd, _| Ok(osd.dump_qos().into()),
    ),
    spec("dump_scrub_reservations", "how many scrubs run", facts::scrubs),
    spec(
        "dump_watchers",
        "who watches which objects of the groups led here",
        facts::watchers,
    ),
    spec("flush_pg_stats", "report statistics now", |osd, _| {
        Ok(Value::String(format!("{}\n", osd.flush_report())).into())
    }),
    spec("get_command_descriptions", "list the commands", |_, _| {
        Ok(Value::String(table::descriptions(all()).to_string()).into())
    }),
    spec(
        "get_heap_property",
        "a property of tcmalloc, which is not used",
        |_, _| Ok(json!({"error": "invalid property", "success": false, "value": 0}).into()),
    )
    .with(&[word("get_heap_property"), arg("property", "CephString")]),
    spec("get_latest_osdmap", "take in the newest map now", |osd, _| {
        osd.on_cluster();
        Ok(Value::String(String::new()).into())
    }),
    spec(
        "get_mapped_pools",
        "pools of which this OSD has placement groups",
        facts::mapped_pools,
    ),
    spec("git_version", "what it was built from", |_, _| {
        Ok(json!({"git_version": concat!("skep-", env!("CARGO_PKG_VERSION"))}).into())
    }),
    spec("heap", "heap use, of a program with tcmalloc", |_, _| {
        let why = "could not issue heap profiler command -- not using tcmalloc!";
        Err((Errno::EOPNOTSUPP, why.into()))
    })
    .with(&[
        word("heap"),
        choice(
            "heapcmd",
            "dump|start_profiler|stop_profiler|release|get_release_rate|set_release_rate|stats",
        ),
        arg("value", "CephString").optional(),
    ]),
    spec("help", "list the commands", |_, _| Ok(table::help(all()).into())),
    spec(
        "injectargs",
        "go by other values of options until the OSD ends",
        config::inject,
    )
    .with(&[word("injectargs"), arg("injected_args", "CephString").many()]),
    spec(
        "list_unfound",
        "objects of a placement group of which no copy is found",
        groups::unfound,
    )
    .with(&[word("list_unfound"), PGID.optional(), OFFSET]),
    spec(
        "log flush",
        "flush log entries: none is ever held back",
        |_, _| Ok(json!({}).into()),
    ),
    spec(
        "mark_unfound_lost",
        "give up objects that are not found",
        groups::lost,
    )
    .with(&[
        word("mark_unfound_lost"),
        PGID.optional(),
        choice("mulcmd", "revert|delete").optional(),
    ]),
    spec(
        "objecter_requests",
        "requests of this OSD as a client, of which there are none",
        facts::objecter,
    ),
    spec("ops", "operations not answered yet", |osd, args| {
        Ok(osd.dump_ops(Duration::ZERO, &from(args)).into())
    })
    .with(&[word("ops"), FILTER]),
    spec("perf dump", "dump perfcounters value", perf_dump).with(&[
        word("perf"),
        word("dump"),
        COUNTERS[0],
        COUNTERS[1],
    ]),
    spec(
        "perf histogram dump",
        "dump perf histogram values",
        |osd, args| Ok(json::histogram_dump(&osd.meters.registry, wanted(args)).into()),
    )
    .with(&[
        word("perf"),
        word("histogram"),
        word("dump"),
        COUNTERS[0],
        COUNTERS[1],
    ]),
    spec("perf histogram schema", "dump perf histogram schema", |osd, _| {
        Ok(json::histogram_schema(&osd.meters.registry).into())
    }),
    spec("perf reset", "count anew: one logger, or all", |osd, args| {
        let logger = args.text("var");
        osd.measure();
        Ok(match osd.meters.registry.reset(logger) {
            true => json!({"success": format!("perf reset {logger}")}).into(),
            false => json!({"error": format!("Not find: {logger}")}).into(),
        })
    })
    .with(&[word("perf"), word("reset"), arg("var", "CephString")]),
    spec("perf schema", "dump perfcounters schema", |osd, _| {
        Ok(json::perf_schema(&osd.meters.registry).into())
    }),
    spec("perfcounters_dump", "dump perfcounters value", perf_dump),
    spec("perfcounters_schema", "dump perfcounters schema", |osd, _| {
        Ok(json::perf_schema(&osd.meters.registry).into())
    }),
    spec("pg", "state of a placement group", groups::query).with(&[word("pg"), PGID, choice("cmd", "query")]),
    spec("pg", "compare the metadata of a placement group", |osd, args| {
        groups::scrub(osd, args, false)
    })
    .with(&[word("pg"), PGID, choice("cmd", "scrub"), TIME]),
    spec("pg", "read and compare a placement group whole", |osd, args| {
        groups::scrub(osd, args, true)
    })
    .with(&[word("pg"), PGID, choice("cmd", "deep_scrub"), TIME]),
    spec("pg", "objects of which no copy is found", groups::unfound).with(&[
        word("pg"),
        PGID,
        choice("cmd", "list_unfound"),
        OFFSET,
    ]),
    spec("pg", "give up objects that are not found", groups::lost).with(&[
        word("pg"),
        PGID,
        choice("cmd", "mark_unfound_lost"),
        choice("mulcmd", "revert|delete"),
    ]),
    // `ceph tell PG query`: the program adds the PG.
    spec("query", "state of a placement group", groups::query),
    spec(
        "scrub",
        "compare the metadata of a placement group's copies",
        |osd, args| groups::scrub(osd, args, false),
    )
    .with(&[word("scrub"), PGID.optional(), TIME]),
    spec("send_beacon", "report to the cluster now", |osd, _| {
        osd.flush_report();
        Ok(Value::String(String::new()).into())
    }),
    spec(
        "set_heap_property",
        "a property of tcmalloc, which is not used",
        |_, _| Ok(json!({"error": "invalid property", "success": false}).into()),
    )
    .with(&[
        word("set_heap_property"),
        arg("property", "CephString"),
        arg("value", "CephInt"),
    ]),
    spec("status", "state of this OSD", facts::status),
    spec("version", "version of the program", facts::version),
];

fn all() -> impl Iterator<Item = &'static Spec> {
    TABLE.iter().chain(refused::TABLE)
}

fn wanted<'a>(args: &'a Args<'_>) -> json::Wanted<'a> {
    json::Wanted {
        logger: args.text("logger"),
        counter: args.text("counter"),
    }
}

fn perf_dump(osd: &mut Osd, args: &Args<'_>) -> Answer {
    osd.measure();
    Ok(json::perf_dump(&osd.meters.registry, wanted(args)).into())
}

/// Clients' addresses; what is none does not filter anything, as with the real one.
fn from(args: &Args<'_>) -> Vec<IpAddr> {
    let list = args.list("filterstr").into_iter();
    list.filter_map(|f| f.parse().ok()).collect()
}

fn bench(osd: &mut Osd, args: &Args<'_>) -> Answer {
    let number = |name: &str, default: u64| match args.int(name) {
        None => Ok(default),
        Some(n) => u64::try_from(n).map_err(|_| (Errno::EINVAL, format!("'{name}' is negative"))),
    };
    let asked = Asked {
        bytes: number("count", 1 << 30)?,
        block: number("size", 4 << 20)?,
        object: number("object_size", 0)?,
        objects: number("object_num", 0)?,
    };
    osd.bench(asked, args.asker)
}

impl Osd {
    pub fn command(&mut self, conn: ConnId, c: &MCommand) {
        let asker = Asker {
            conn,
            tid: c.tid,
            form: Form::Plain,
            prefix: "",
        };
        let denied = |why: &str| Err((Errno::EACCES, why.to_string()));
        if c.fsid != self.placement.state.fsid {
            return self.answer_command(asker, denied("wrong fsid"));
        }
        let fenced = self.sessions.client(conn).is_none_or(|c| self.is_fenced(&c));
        if fenced || !self.sessions.may_command(conn) {
            return self.answer_command(asker, denied("access denied"));
        }
        let text = c.cmd.first().map(|b| b.as_ref()).unwrap_or_default();
        let Ok(Value::Object(args)) = serde_json::from_slice(text) else {
            return self.answer_command(asker, Err((Errno::EINVAL, "invalid json".into())));
        };
        let form = Form::of(args.get("format").and_then(Value::as_str));
        let asker = Asker { form, ..asker };
        let (asker, answer) = self.run_command(asker, &args);
        self.answer_command(asker, answer);
    }

    fn run_command(&mut self, asker: Asker, args: &Map<String, Value>) -> (Asker, Answer) {
        let prefix = args.get("prefix").and_then(Value::as_str).unwrap_or_default();
        let mut rows = all().filter(|s| s.prefix == prefix).peekable();
        let Some(first) = rows.peek() else {
            let why = format!("unknown command prefix {prefix}");
            return (asker, Err((Errno::EINVAL, why)));
        };
        let asker = Asker {
            prefix: first.prefix,
            ..asker
        };
        let answer = match rows.find(|s| s.fits(args)) {
            Some(spec) if self.has_right(asker.conn, spec.right) => {
                (spec.run)(self, &Args { of: args, asker })
            }
            Some(_) => Err((Errno::EACCES, "access denied".into())),
            None => Err((Errno::EINVAL, "invalid command json".into())),
        };
        (asker, answer)
    }

    /// Sends an answer, unless it comes later.
    pub fn answer_command(&self, asker: Asker, answer: Answer) {
        let names = Names {
            prefix: asker.prefix,
            args: &Map::new(),
            told: true,
        };
        let text = |value: &Value| match (value, asker.form) {
            (Value::String(text), Form::Plain | Form::Json | Form::JsonPretty) => {
                Bytes::from(text.clone().into_bytes())
            }
            (value, form) => form.write(value, &names).into(),
        };
        let (result, status, output) = match answer {
            Ok(Told::Later) => return,
            Ok(Told::Now(value)) => (0, String::new(), text(&value)),
            Ok(Told::Said(value, status)) => (0, status, text(&value)),
            Err((errno, status)) => (errno.code(), status, Bytes::new()),
        };
        let reply = MCommandReply {
            tid: asker.tid,
            result,
            status: status.into_bytes().into(),
            output,
        };
        self.conns.send(asker.conn, reply.to_message());
    }

    fn has_right(&self, conn: ConnId, right: Right) -> bool {
        match right {
            Right::All => self.sessions.may_command(conn),
        }
    }
}

/// The reference for docs/operating/commands-osd.md.
#[cfg(test)]
fn markdown() -> String {
    let mut out = String::from(
        "# What an OSD is told\n\n<!-- Generated from the table in crates/osd/src/command.rs (test `reference_is_current`). -->\n\n\
         What `ceph tell osd.N` can ask. `NAME?` is optional, `NAME*` takes several values. All need `allow *` for OSDs, as\n\
         with Ceph. Options that an OSD is told hold until it ends; those of `ceph config set` count for less. Benchmarks write to\n\
         the OSD's own store in steps, beside clients' work, and remove what they wrote.\n\n| command | does |\n|---|---|\n",
    );
    for s in TABLE {
        out.push_str(&format!("| `{}` | {} |\n", s.form(), s.help));
    }
    out.push_str("\nRefused, each with its reason:\n\n| command | reason |\n|---|---|\n");
    for s in refused::TABLE {
        out.push_str(&format!("| `{}` | {} |\n", s.form(), s.help));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(clippy::disallowed_methods)]
    fn reference_is_current() {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../docs/operating/commands-osd.md"
        );
        let want = markdown();
        if std::env::var_os("SKEP_WRITE_DOCS").is_some() {
            std::fs::write(path, &want).unwrap();
        }
        let have = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            have == want,
            "run the tests once with SKEP_WRITE_DOCS=1 to write {path}"
        );
    }

    #[test]
    fn the_table_names_each_command_once() {
        let signature = |s: &Spec| table::descriptions([s].into_iter())["cmd000"]["sig"].clone();
        for s in all() {
            let same = all().filter(|o| signature(o) == signature(s)).count();
            assert_eq!(same, 1, "{}", s.prefix);
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

    /// What `ceph tell osd.0` of 16.2.15 has; of the names of numbers it is the same under names.
    #[test]
    fn nothing_of_the_real_one_is_unknown() {
        const REAL: &str = "abort|assert|bench|bluefs debug_inject_read_zeros|bluefs files list|bluefs stats|\
            bluestore allocator dump block|bluestore allocator fragmentation block|bluestore allocator score block|\
            bluestore bluefs device info|cache drop|cache status|calc_objectstore_db_histogram|cluster_log|compact|\
            config diff|config diff get|config get|config help|config set|config show|config unset|cpu_profiler|\
            debug dump_missing|debug kick_recovery_wq|deep_scrub|dump_blocked_ops|dump_blocklist|dump_historic_ops|\
            dump_historic_ops_by_duration|dump_historic_slow_ops|dump_mempools|dump_objectstore_kv_stats|\
            dump_op_pq_state|dump_ops_in_flight|dump_osd_network|dump_pg_recovery_stats|dump_pgstate_history|\
            dump_recovery_reservations|dump_scrub_reservations|dump_scrubs|dump_watchers|flush_journal|\
            flush_pg_stats|flush_store_cache|get_command_descriptions|get_heap_property|get_latest_osdmap|\
            get_mapped_pools|getomap|git_version|heap|help|injectargs|injectdataerr|injectfull|injectmdataerr|\
            leak_some_memory|list_devices|list_unfound|log dump|log flush|log reopen|mark_unfound_lost|\
            objecter_requests|ops|perf dump|perf histogram dump|perf histogram schema|perf reset|perf schema|\
            perfcounters_dump|perfcounters_schema|pg|query|reset_pg_recovery_stats|reset_purged_snaps_last|rmomapkey|\
            scrub|scrub_purged_snaps|send_beacon|set_heap_property|set_recovery_delay|setomapheader|setomapval|smart|\
            status|truncobj|version";
        for name in REAL.split('|') {
            assert!(all().any(|s| s.prefix == name), "{name}");
        }
    }

    #[test]
    fn arguments_are_checked_by_the_table() {
        let fits = |text: &str| {
            let args: Map<String, Value> = serde_json::from_str(text).unwrap();
            let prefix = args["prefix"].as_str().unwrap();
            all().filter(|s| s.prefix == prefix).any(|s| s.fits(&args))
        };
        for good in [
            r#"{"prefix": "bench", "count": 4096}"#,
            r#"{"prefix": "injectargs", "injected_args": ["--a", "b"]}"#,
            r#"{"prefix": "injectargs", "injected_args": "--a=b"}"#,
            r#"{"prefix": "pg", "pgid": "1.0", "cmd": "scrub"}"#,
            r#"{"prefix": "pg", "pgid": "1.0", "cmd": "mark_unfound_lost", "mulcmd": "delete"}"#,
            r#"{"prefix": "ops"}"#,
        ] {
            assert!(fits(good), "{good}");
        }
        for bad in [
            r#"{"prefix": "bench", "count": "4096"}"#,
            r#"{"prefix": "injectargs"}"#,
            r#"{"prefix": "injectargs", "injected_args": [1]}"#,
            r#"{"prefix": "pg", "pgid": "1.0", "cmd": "delete"}"#,
            r#"{"prefix": "heap", "heapcmd": "bla"}"#,
            r#"{"prefix": "config get"}"#,
        ] {
            assert!(!fits(bad), "{bad}");
        }
    }

    #[test]
    fn what_the_ceph_program_is_told() {
        let told = table::descriptions(all());
        let of = |help: &str| {
            let one = told.as_object().unwrap().values().find(|v| v["help"] == help);
            one.unwrap().clone()
        };
        assert_eq!(
            of("value of an option"),
            json!({"sig": ["config", "get", {"name": "var", "type": "CephString"}], "help": "value of an option",
                   "module": "osd", "perm": "r", "flags": 0})
        );
        assert_eq!(
            of("compare the metadata of a placement group")["sig"],
            json!(["pg", {"name": "pgid", "type": "CephPgid"},
                   {"name": "cmd", "type": "CephChoices", "strings": "scrub"},
                   {"name": "time", "req": "false", "type": "CephInt"}])
        );
        assert_eq!(
            of("go by other values of options until the OSD ends")["sig"],
            json!(["injectargs", {"n": "N", "name": "injected_args", "type": "CephString"}])
        );
        assert_eq!(of("version of the program")["sig"], json!(["version"]));
        assert_eq!(table::help(all())["pg"], "state of a placement group");
    }
}
