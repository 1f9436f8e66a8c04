//! What `ceph tell mds.N ...` asks (docs/protocol/files.md, section 19): one table, from which help and descriptions come.
//!
//! Who asks needs `allow *` for metadata servers, and no session. An answer leaves as all does: when what it depends on is durable.
//! What is not in the table is refused, and so is, with a reason, what the real one has and this one has not.

mod settings;
mod show;

use super::{ClientId, Conn, Effect, Machine};
use auth::MdsCaps;
use bytes::Bytes;
use forms::Form;
use forms::names::Names;
use messages::osd::{MCommand, MCommandReply};
use msgr::{Message, Peer};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use types::Errno;

/// Answers that wait for sessions to be gone.
const WAITING_MAX: usize = 64;

/// Who is to be answered.
#[derive(Debug, Clone, Copy)]
struct Asker {
    conn: Conn,
    tid: u64,
    form: Form,
}

/// An answer that comes when these are gone.
#[derive(Debug)]
pub(crate) struct Waiting {
    asker: Asker,
    clients: BTreeSet<ClientId>,
}

enum Told {
    Now(Value),
    /// When these sessions are gone.
    Gone(BTreeSet<ClientId>),
}

type Answer = std::result::Result<Told, (Errno, String)>;
type Args = Map<String, Value>;

struct Spec {
    prefix: &'static str,
    help: &'static str,
    /// Name, and kind as the `ceph` program calls it; a `?` behind it: may be absent; a `*`: may be repeated, too.
    args: &'static [(&'static str, &'static str)],
    run: fn(&mut Machine, &Args) -> Answer,
}

const fn spec(
    prefix: &'static str,
    args: &'static [(&'static str, &'static str)],
    help: &'static str,
    run: fn(&mut Machine, &Args) -> Answer,
) -> Spec {
    Spec {
        prefix,
        help,
        args,
        run,
    }
}

/// What the real one has: refused with a reason.
const fn unbuilt(prefix: &'static str, args: &'static [(&'static str, &'static str)]) -> Spec {
    spec(prefix, args, "refused: not built", |_, _| {
        Err((
            Errno::EOPNOTSUPP,
            "Skep's metadata server has no such command yet".into(),
        ))
    })
}

const FILTERS: &[(&str, &str)] = &[("filters", "CephString*")];
const ANY: &[(&str, &str)] = &[("arg", "CephString*")];

const TABLE: &[Spec] = &[
    spec("cache status", &[], "what the cache holds", |m, _| {
        Ok(Told::Now(m.cache_status()))
    }),
    spec(
        "client evict",
        FILTERS,
        "end sessions and fence their clients: id=NUMBER",
        evict,
    ),
    spec("client ls", FILTERS, "sessions of clients", sessions),
    spec(
        "config get",
        &[("var", "CephString")],
        "value of an option",
        settings::get,
    ),
    spec(
        "config set",
        &[("var", "CephString"), ("val", "CephString*")],
        "go by another value of an option until the daemon ends",
        settings::set,
    ),
    spec("config show", &[], "the options that it goes by", settings::show),
    spec(
        "dump_blocked_ops",
        &[],
        "requests that wait for 30 s or more",
        |m, _| Ok(Told::Now(m.ops(30))),
    ),
    spec("dump_ops_in_flight", &[], "requests not answered yet", |m, _| {
        Ok(Told::Now(m.ops(0)))
    }),
    spec(
        "flush journal",
        &[],
        "answer when all that was done before is durable",
        |_, _| Ok(Told::Now(json!({"message": "", "return_code": 0}))),
    ),
    spec("get_command_descriptions", &[], "list the commands", |_, _| {
        Ok(Told::Now(descriptions()))
    }),
    spec("help", &[], "list the commands", |_, _| {
        let all = TABLE.iter().map(|s| (s.prefix.to_string(), s.help.into()));
        Ok(Told::Now(Value::Object(all.collect())))
    }),
    spec("ops", &[], "requests not answered yet", |m, _| {
        Ok(Told::Now(m.ops(0)))
    }),
    spec(
        "perf dump",
        &[("logger", "CephString?"), ("counter", "CephString?")],
        "counters",
        |m, args| {
            Ok(Told::Now(
                m.counters_shown(text(args, "logger"), text(args, "counter")),
            ))
        },
    ),
    spec("session evict", FILTERS, "the same as client evict", evict),
    spec("session kill", FILTERS, "the same as client evict", evict),
    spec("session ls", FILTERS, "sessions of clients", sessions),
    spec("status", &[], "where it stands", |m, _| Ok(Told::Now(m.status()))),
    spec("version", &[], "version of the program", |_, _| {
        Ok(Told::Now(
            json!({"version": concat!("skep ", env!("CARGO_PKG_VERSION"))}),
        ))
    }),
    unbuilt("cache drop", ANY),
    unbuilt("damage ls", ANY),
    unbuilt("damage rm", ANY),
    unbuilt("dirfrag ls", ANY),
    unbuilt("dirfrag split", ANY),
    unbuilt("dump cache", ANY),
    unbuilt("dump inode", ANY),
    unbuilt("dump tree", ANY),
    unbuilt("export dir", ANY),
    unbuilt("flush_path", ANY),
    unbuilt("get subtrees", ANY),
    unbuilt("openfiles ls", ANY),
    unbuilt("scrub abort", ANY),
    unbuilt("scrub pause", ANY),
    unbuilt("scrub resume", ANY),
    unbuilt("scrub start", ANY),
    unbuilt("scrub status", ANY),
    unbuilt("session config", ANY),
];

fn text<'a>(args: &'a Args, name: &str) -> &'a str {
    args.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// Of an argument that may be repeated.
fn list(args: &Args, name: &str) -> Vec<String> {
    match args.get(name) {
        Some(Value::Array(all)) => all.iter().filter_map(Value::as_str).map(String::from).collect(),
        Some(Value::String(one)) => vec![one.clone()],
        _ => Vec::new(),
    }
}

fn descriptions() -> Value {
    let one = |(n, s): (usize, &Spec)| {
        let mut sig: Vec<Value> = s.prefix.split(' ').map(Value::from).collect();
        for (name, kind) in s.args {
            let mut arg = json!({"name": name, "type": kind.trim_end_matches(['?', '*'])});
            if kind.ends_with(['?', '*']) {
                arg["req"] = "false".into();
            }
            if kind.ends_with('*') {
                arg["n"] = "N".into();
            }
            sig.push(arg);
        }
        let described = json!({"sig": sig, "help": s.help, "module": "mds", "perm": "rw", "flags": 0});
        (format!("cmd{n:03}"), described)
    };
    Value::Object(TABLE.iter().enumerate().map(one).collect())
}

fn sessions(m: &mut Machine, args: &Args) -> Answer {
    let clients = m.filtered(&list(args, "filters"))?;
    let shown = clients.into_iter().map(|c| m.session_shown(c));
    Ok(Told::Now(shown.collect()))
}

fn evict(m: &mut Machine, args: &Args) -> Answer {
    let filters = list(args, "filters");
    if filters.is_empty() {
        let why = "say whose session is to end: id=NUMBER, or another filter";
        return Err((Errno::EINVAL, why.into()));
    }
    let clients = m.filtered(&filters)?;
    if m.told.len() >= WAITING_MAX {
        return Err((Errno::EBUSY, format!("{WAITING_MAX} such commands wait already")));
    }
    for client in &clients {
        tracing::warn!("client.{client}: it is evicted, by command");
        m.evict_client(*client);
    }
    Ok(Told::Gone(clients))
}

impl Machine {
    pub(crate) fn command(&mut self, conn: Conn, peer: &Peer, m: &Message) -> denc::Result<()> {
        let c = MCommand::from_message(m)?;
        let args = c.cmd.first().and_then(|b| serde_json::from_slice(b).ok());
        let Some(Value::Object(args)) = args else {
            let asker = Asker {
                conn,
                tid: c.tid,
                form: Form::Plain,
            };
            let said = c
                .cmd
                .first()
                .map(|b| String::from_utf8_lossy(b).into_owned())
                .unwrap_or_default();
            self.answer_told(asker, Err((Errno::EINVAL, format!("unparseable JSON {said}"))));
            return Ok(());
        };
        let asker = Asker {
            conn,
            tid: c.tid,
            form: Form::of(args.get("format").and_then(Value::as_str)),
        };
        let prefix = text(&args, "prefix");
        let caps = MdsCaps::parse(peer.caps.text("mds").unwrap_or_default());
        // `allow` alone, as daemons of metadata have it, does not do.
        let may = caps.is_ok_and(|c| c.allows_commands(Some(peer.sock.ip())));
        let answer = match TABLE.iter().find(|s| s.prefix == prefix) {
            _ if !may => Err((Errno::EACCES, "access denied: it takes 'allow *' for mds".into())),
            None => Err((Errno::EINVAL, format!("unknown command prefix {prefix}"))),
            Some(spec) => match missing(spec, &args) {
                Some(name) => Err((Errno::EINVAL, format!("'{name}' is missing"))),
                None => (spec.run)(self, &args),
            },
        };
        match answer {
            Ok(Told::Gone(clients)) => self.told.push(Waiting { asker, clients }),
            Ok(Told::Now(value)) => self.answer_told(asker, Ok(value)),
            Err(e) => self.answer_told(asker, Err(e)),
        }
        self.answer_gone();
        Ok(())
    }

    /// Answers those who waited for sessions that are gone by now.
    pub(crate) fn answer_gone(&mut self) {
        let all = &self.sessions.all;
        let (gone, still) = std::mem::take(&mut self.told)
            .into_iter()
            .partition(|w: &Waiting| !w.clients.iter().any(|c| all.contains_key(c)));
        self.told = still;
        for waiting in gone {
            self.answer_told(waiting.asker, Ok(Value::String(String::new())));
        }
    }

    fn answer_told(&mut self, asker: Asker, answer: std::result::Result<Value, (Errno, String)>) {
        let names = Names {
            prefix: "",
            args: &Map::new(),
            told: true,
        };
        let (result, status, output) = match answer {
            Ok(Value::String(text)) => (0, String::new(), text),
            Ok(value) => (0, String::new(), asker.form.write(&value, &names)),
            Err((errno, why)) => (errno.code(), why, String::new()),
        };
        let reply = MCommandReply {
            tid: asker.tid,
            result,
            status: status.into_bytes().into(),
            output: Bytes::from(output),
        };
        self.push(Effect::Send {
            conn: asker.conn,
            message: reply.to_message(),
        });
    }
}

fn missing(spec: &Spec, args: &Args) -> Option<&'static str> {
    let wanted = spec.args.iter().filter(|(_, kind)| !kind.ends_with(['?', '*']));
    wanted
        .map(|(name, _)| *name)
        .find(|name| text(args, name).is_empty())
}
