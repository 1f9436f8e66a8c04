//! The central configuration: options by section, their history, and ceph.conf files made from it.

use crate::commands::command::{Command, OPTIONS_MAX, Outcome, lines};
use crate::commands::context::Context;
use crate::commands::spec::{Spec, spec};
use crate::commands::views::show;
use crate::format::Table;
use cluster::{
    Change, Changes, ConfigDb,
    options::{self, ConfigOption, Fate},
};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use types::{AuthName, EntityKind};

const R: (&str, &str) = ("config", "r");
const RW: (&str, &str) = ("config", "rw");

pub const TABLE: &[Spec] = &[
    spec(
        RW,
        "config set who:str name:str value:str force?:bool",
        "set an option for a section or daemon",
        set,
    ),
    spec(RW, "config rm who:str name:str", "take an option back", rm),
    spec(
        R,
        "config get who:str key?:str",
        "options that hold for an entity",
        get,
    ),
    spec(("mon", "r"), "config dump", "all options that are set", dump),
    spec(
        R,
        "config help key:str",
        "type, default and limits of an option",
        help,
    ),
    spec(R, "config ls", "names of the options", ls),
    spec(
        RW,
        "config assimilate-conf",
        "take over the options of a ceph.conf in the input",
        assimilate,
    ),
    spec(R, "config log num?:int", "history of the configuration", log),
    spec(
        RW,
        "config reset num:int(0..)",
        "go back to an earlier version",
        reset,
    ),
    spec(
        R,
        "config generate-minimal-conf",
        "a ceph.conf with what a client needs",
        minimal,
    ),
    spec(
        ("mgr", "r"),
        "config show who:str key?:str",
        "options in force at a daemon",
        show_daemon,
    )
    .by_manager(""),
    spec(
        ("mgr", "r"),
        "config show-with-defaults who:str",
        "options in force at a daemon, defaults too",
        show_defaults,
    )
    .by_manager(""),
];

/// Bounds on what users can store.
const NAME_BYTES_MAX: usize = 256;
const VALUE_BYTES_MAX: usize = 64 << 10;
const LOG_DEFAULT: usize = 10;

/// Names may be written with blanks or dashes.
fn option_name(text: &str) -> String {
    text.trim().replace([' ', '-'], "_")
}

/// `global`, `client`, `osd.1`, `osd/class:hdd`, `client/host:vm`: section and masks, if it is one.
fn section(who: &str) -> Option<String> {
    let mut parts = who.split('/');
    let base = parts.next()?;
    let known = base == "global"
        || EntityKind::ALL.iter().any(|k| k.as_str() == base)
        || base.parse::<AuthName>().is_ok_and(|n| !n.id.is_empty());
    let masks_fine = parts.all(|m| {
        let parts = m.split_once(':');
        parts.is_some_and(|(kind, v)| !kind.is_empty() && !v.is_empty())
    });
    (known && masks_fine).then(|| who.to_string())
}

/// Only names of manager modules' options have parts: `mgr/MODULE/OPTION`.
fn parts_fine(name: &str) -> bool {
    let parts: Vec<&str> = name.split('/').collect();
    parts.len() == 1 || parts.len() > 2 && parts[0] == "mgr" && parts.iter().all(|p| !p.is_empty())
}

/// Section and name of a line in the log (`osd/class:ssd/osd_max_scrubs`, `mgr/mgr/balancer/mode`).
fn split_logged(path: &str) -> Option<(&str, &str)> {
    match path.find("/mgr/") {
        Some(at) => Some((&path[..at], &path[at + 1..])),
        None => path.rsplit_once('/'),
    }
}

fn set(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let name = option_name(cmd.text("name"));
    let found = options::find(&name);
    let force = cmd.flag("force");
    if found.is_none() && !force {
        return Outcome::invalid(format!("unrecognized config option '{name}'"));
    }
    if found.is_some_and(|o| o.special) {
        return Outcome::invalid(format!("{name} is special and cannot be stored by the mon"));
    }
    let Some(who) = section(cmd.text("who")) else {
        return Outcome::invalid(format!("unrecognized config target '{}'", cmd.text("who")));
    };
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !parts_fine(&name) || who.len() > NAME_BYTES_MAX {
        return Outcome::invalid("the name of the option or section is empty or too long");
    }
    let value = match (found, cmd.text("value")) {
        (_, v) if v.len() > VALUE_BYTES_MAX => return Outcome::invalid("the value is too long"),
        (None, v) => v.to_string(),
        (Some(o), v) => match o.check(v) {
            Ok(v) => v,
            Err(_) if force => v.to_string(),
            Err(why) => return Outcome::invalid(format!("error parsing value: {why}")),
        },
    };
    if !ctx.mon.cephx && found.is_some_and(|o| o.demands_keys(&value)) {
        return Outcome::invalid(format!(
            "{name} = {value}: this cluster is without authentication (--auth none), so there are no keys to encrypt with"
        ));
    }
    let said = found
        .and_then(|_| options::notice(&name, &who).or_else(|| odd_mask(&who)))
        .unwrap_or_default();
    let db = &ctx.state.config;
    if db.get(&who, &name) == Some(value.as_str()) {
        return Outcome::status(said);
    }
    if db.sections.values().map(BTreeMap::len).sum::<usize>() >= OPTIONS_MAX {
        return Outcome::error(
            types::Errno::ENOSPC,
            format!("{OPTIONS_MAX} options are set already"),
        );
    }
    Outcome::status(said).with(Changes::one(Change::ConfigSet { who, name, value }))
}

/// Masks by other buckets than hosts are kept, and compared with nothing.
fn odd_mask(who: &str) -> Option<String> {
    let odd = |m: &&str| !m.starts_with("class:") && !m.starts_with("host:");
    let mask = who.split('/').skip(1).find(odd)?;
    Some(format!(
        "note: the mask {mask} is kept, but matches no daemon here: use class: or host:"
    ))
}

fn rm(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let name = option_name(cmd.text("name"));
    let Some(who) = section(cmd.text("who")) else {
        return Outcome::invalid(format!("unrecognized config target '{}'", cmd.text("who")));
    };
    match ctx.state.config.get(&who, &name) {
        Some(_) => Outcome::default().with(Changes::one(Change::ConfigRm { who, name })),
        None => Outcome::default(),
    }
}

/// One option as it is set: where, masks, name, value.
struct Set<'a> {
    section: &'a str,
    mask: &'a str,
    name: &'a str,
    value: &'a str,
}

impl<'a> Set<'a> {
    /// `section` with its masks.
    fn new(section: &'a str, name: &'a str, value: &'a str) -> Self {
        let (section, mask) = section.split_once('/').unwrap_or((section, ""));
        Self {
            section,
            mask,
            name,
            value,
        }
    }

    fn option(&self) -> Option<ConfigOption> {
        options::find(self.name)
    }
    fn level(&self) -> &'static str {
        self.option().map_or("unknown", |o| o.level)
    }
    fn runtime(&self) -> bool {
        self.option().is_some_and(|o| o.runtime)
    }
}

/// Depth and order of a section in the dump: global, then types, then single entities.
fn section_rank(base: &str) -> (usize, &str, &str) {
    const ORDER: [&str; 5] = ["global", "mon", "mgr", "osd", "mds"];
    let kind = base.split('.').next().unwrap_or(base);
    let rank = ORDER.iter().position(|k| *k == kind).unwrap_or(ORDER.len());
    (rank, kind, base)
}

fn all_set<'a>(db: &'a ConfigDb) -> Vec<Set<'a>> {
    let mut out = Vec::new();
    for (section, options) in &db.sections {
        out.extend(options.iter().map(|(name, value)| Set::new(section, name, value)));
    }
    out.sort_by(|a, b| {
        (section_rank(a.section), a.name, a.mask).cmp(&(section_rank(b.section), b.name, b.mask))
    });
    out
}

fn table<'a>(rows: impl Iterator<Item = (String, &'a Set<'a>)>) -> String {
    let mut t = Table::new().left(&["WHO", "MASK", "LEVEL", "OPTION", "VALUE", "RO"]);
    for (who, s) in rows {
        let ro = if s.runtime() { "  " } else { "* " };
        t.row([
            who,
            s.mask.into(),
            s.level().into(),
            s.name.into(),
            s.value.into(),
            ro.into(),
        ]);
    }
    t.print()
}

fn dump(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let all = all_set(&ctx.state.config);
    let one = |s: &Set<'_>| {
        json!({
            "section": s.section, "name": s.name, "value": s.value, "level": s.level(),
            "can_update_at_runtime": s.runtime(), "mask": s.mask,
        })
    };
    let indent = |s: &Set<'_>| match (s.section, s.section.contains('.')) {
        ("global", _) => s.section.to_string(),
        (_, false) => format!("  {}", s.section),
        (_, true) => format!("    {}", s.section),
    };
    cmd.either(
        || all.iter().map(one).collect(),
        || table(all.iter().map(|s| (indent(s), s))),
    )
}

/// The entity that `who` means: a full name, or a bare type for what all of its kind share.
fn entity(who: &str) -> Option<AuthName> {
    let kind = |k: &str| EntityKind::ALL.into_iter().find(|e| e.as_str() == k);
    match who.split_once('.') {
        None => Some(AuthName::new(kind(who)?, "")),
        Some((k, id)) if !id.is_empty() => Some(AuthName::new(kind(k)?, id)),
        Some(_) => None,
    }
}

/// What holds for the entity: the strongest setting of each option.
fn in_force<'a>(ctx: &'a Context<'_>, who: &AuthName) -> BTreeMap<&'a str, Set<'a>> {
    let held = match who.kind {
        EntityKind::Osd => ctx.state.options_of(who),
        _ => ctx.state.config.in_force(who, &ctx.mon.hostname, ""),
    };
    let held = held.into_iter();
    held.map(|(name, s)| (name, Set::new(s.section, name, s.value)))
        .collect()
}

fn get(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let text = cmd.text("who");
    let Some(who) = entity(text) else {
        return Outcome::invalid(format!("unrecognized entity '{text}'"));
    };
    let held = in_force(ctx, &who);
    if let Some(key) = cmd.opt_text("key") {
        let key = option_name(key);
        let daemon = who.kind != EntityKind::Client;
        // The cluster's own facts are not settings.
        let fixed = (key == "fsid").then(|| ctx.state.fsid.to_string());
        let default = || options::find(&key).map(|o| o.default(daemon).to_string());
        let set = held.get(key.as_str()).map(|s| s.value.to_string());
        return match fixed.or(set).or_else(default) {
            Some(v) => Outcome::ok(format!("{v}\n")),
            None => Outcome::absent(format!("unrecognized key '{key}'")),
        };
    }
    let mask = |s: &Set<'_>| {
        let mut m = Map::new();
        for part in s.mask.split('/') {
            match part.split_once(':') {
                Some(("class", v)) => m.insert("device_class".into(), v.into()),
                Some(("host", v)) => m.insert("host".into(), v.into()),
                _ => None,
            };
        }
        Value::Object(m)
    };
    let one = |s: &Set<'_>| json!({"value": s.value, "section": s.section, "mask": mask(s), "can_update_at_runtime": s.runtime()});
    cmd.either(
        || Value::Object(held.iter().map(|(name, s)| (name.to_string(), one(s))).collect()),
        || table(held.values().map(|s| (s.section.to_string(), s))),
    )
}

fn help(cmd: &Command, _: &Context<'_>) -> Outcome {
    let key = option_name(cmd.text("key"));
    let Some(o) = options::find(&key) else {
        return Outcome::absent("");
    };
    let default = o.default(false);
    let typed = || match o.kind {
        "bool" => json!(default == "true"),
        "int" | "uint" | "size" => default.parse::<i64>().map_or(json!(default), Value::from),
        "float" => default.parse::<f64>().map_or(json!(default), Value::from),
        _ => json!(default),
    };
    let enums: Vec<&str> = o.permitted.split(',').filter(|p| !p.is_empty()).collect();
    let limit = |text: &str| text.parse::<i64>().map_or(json!(text), Value::from);
    let json = || {
        let mut all = json!({
            "name": key, "type": o.kind, "level": o.level, "desc": does(&key), "long_desc": told(&key), "default": typed(),
            "daemon_default": if o.default(true) == default { "" } else { o.default(true) },
            "tags": [], "services": [], "see_also": [],
            "min": limit(o.min), "max": limit(o.max), "can_update_at_runtime": o.runtime, "flags": [],
        });
        if let (Some(m), false) = (all.as_object_mut(), enums.is_empty()) {
            m.insert("enum_values".into(), json!(enums));
        }
        all
    };
    let plain = || {
        let mut out = format!("{key}\n  ({}, {})\n  Default: {default}\n", o.kind, o.level);
        if o.default(true) != default {
            out.push_str(&format!("  Default (daemon): {}\n", o.default(true)));
        }
        for (word, limit) in [("Minimum", o.min), ("Maximum", o.max)] {
            if !limit.is_empty() {
                out.push_str(&format!("  {word}: {limit}\n"));
            }
        }
        if !enums.is_empty() {
            out.push_str(&format!("  Possible values: {}\n", enums.join(", ")));
        }
        out.push_str(&format!("  Can update at runtime: {}\n", o.runtime));
        for line in [does(&key).to_string(), told(&key)]
            .iter()
            .filter(|l| !l.is_empty())
        {
            out.push_str(&format!("  {line}\n"));
        }
        out
    };
    cmd.either(json, plain)
}

/// What an option does here that acts.
fn does(key: &str) -> &'static str {
    match options::fate(key) {
        Fate::Acts(a) => a.what,
        _ => "",
    }
}

/// Who reads it, or that nobody does.
fn told(key: &str) -> String {
    match options::fate(key) {
        Fate::Acts(a) => format!("Read from: {}", a.readers.text()),
        Fate::OfClients => "Read by clients".into(),
        Fate::Refused => {
            format!("note: {key} belongs in the ceph.conf of who needs it: `config set` refuses it")
        }
        Fate::Kept => options::notice(key, "global").unwrap_or_default(),
    }
}

fn ls(cmd: &Command, _: &Context<'_>) -> Outcome {
    let names: Vec<&str> = options::names().collect();
    cmd.either(|| json!(names), || lines(&names))
}

/// Takes what it knows; gives back the rest, which belongs in the file (such as addresses of monitors).
fn assimilate(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let Ok(text) = std::str::from_utf8(&cmd.inbuf) else {
        return Outcome::invalid("parse error: the input is not text");
    };
    let mut changes = Changes::none();
    let mut rest: BTreeMap<String, Vec<(String, String)>> = BTreeMap::new();
    let mut notes = Vec::new();
    let mut at = "global".to_string();
    for (i, raw) in text.lines().enumerate() {
        let line = raw.split(['#', ';']).next().unwrap_or("").trim();
        if line.is_empty() {
            continue;
        }
        let wrong = || {
            Outcome::invalid(format!(
                "parse error: line {} is neither a section nor an option\n",
                i + 1
            ))
        };
        if let Some(name) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            at = name.trim().to_string();
            continue;
        }
        let Some((name, value)) = line.split_once('=') else {
            return wrong();
        };
        let (name, value) = (option_name(name), value.trim().trim_matches('"').to_string());
        let known = options::find(&name).filter(|o| !o.special);
        let checked = known.and_then(|o| o.check(&value).ok());
        match (section(&at), checked) {
            (Some(_), Some(value))
                if !ctx.mon.cephx && options::find(&name).is_some_and(|o| o.demands_keys(&value)) =>
            {
                return Outcome::invalid(format!(
                    "{name} = {value}: this cluster is without authentication"
                ));
            }
            (Some(who), Some(value)) => {
                notes.extend(options::notice(&name, &who));
                if ctx.state.config.get(&who, &name) != Some(value.as_str()) {
                    changes.push(Change::ConfigSet { who, name, value });
                }
            }
            _ => rest.entry(at.clone()).or_default().push((name, value)),
        }
        if changes.list.len() > 100 {
            return Outcome::invalid("more than 100 options at once; split the file");
        }
    }
    let mut out = String::new();
    for (section, options) in rest {
        out.push_str(&format!("\n[{section}]\n"));
        for (name, value) in options {
            out.push_str(&format!("\t{name} = {value}\n"));
        }
    }
    Outcome::ok(out).saying(notes.join("\n")).with(changes)
}

fn log(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let num = cmd
        .int("num")
        .map_or(LOG_DEFAULT, |n| n.clamp(0, 1 << 20) as usize);
    let entries: Vec<_> = ctx.state.config.log.iter().rev().take(num).collect();
    let one = |e: &&cluster::ConfigLogEntry| {
        let changes = e.diff.iter().map(|d| {
            let mut m = Map::new();
            m.insert("name".into(), d.name.clone().into());
            if let Some(v) = &d.before {
                m.insert("previous_value".into(), v.clone().into());
            }
            if let Some(v) = &d.after {
                m.insert("new_value".into(), v.clone().into());
            }
            Value::Object(m)
        });
        json!({
            "version": e.version, "timestamp": show::time(e.stamp), "name": "",
            "changes": changes.collect::<Vec<_>>(),
        })
    };
    let text = |e: &&cluster::ConfigLogEntry| {
        let mut out = format!("--- {} --- {} ---\n", e.version, show::time(e.stamp));
        for d in &e.diff {
            for (sign, v) in [("-", &d.before), ("+", &d.after)] {
                if let Some(v) = v {
                    out.push_str(&format!("{sign} {} = {v}\n", d.name));
                }
            }
        }
        out
    };
    cmd.either(
        || entries.iter().map(one).collect(),
        || entries.iter().map(text).collect(),
    )
}

/// Undoes, newest first, all that came after version `num`.
fn reset(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let db = &ctx.state.config;
    let num = u64::try_from(cmd.int("num").unwrap_or(-1)).ok();
    let oldest = db.log.front().map_or(db.version, |e| e.version - 1);
    let Some(num) = num.filter(|n| (oldest..=db.version).contains(n)) else {
        return Outcome::invalid(
            "must specify a valid historical version to revert to; see 'ceph config log' for a list of avialable configuration historical versions",
        );
    };
    let mut wanted: BTreeMap<&str, Option<&String>> = BTreeMap::new();
    for e in db.log.iter().rev().take_while(|e| e.version > num) {
        for d in &e.diff {
            wanted.insert(&d.name, d.before.as_ref());
        }
    }
    let mut changes = Changes::none();
    for (path, value) in wanted {
        let Some((who, name)) = split_logged(path) else {
            continue;
        };
        let (who, name) = (who.to_string(), name.to_string());
        changes.push(match value {
            Some(v) => Change::ConfigSet {
                who,
                name,
                value: v.clone(),
            },
            None => Change::ConfigRm { who, name },
        });
    }
    Outcome::default().with(changes)
}

fn minimal(_: &Command, ctx: &Context<'_>) -> Outcome {
    let hosts: Vec<String> = ctx.state.monmap.by_rank().map(|i| i.addrs.bracketed()).collect();
    let fsid = ctx.state.fsid;
    Outcome::ok(format!(
        "# minimal ceph.conf for {fsid}\n[global]\n\tfsid = {fsid}\n\tmon_host = {}\n",
        hosts.join(" ")
    ))
}

/// The daemon of the arguments, if it is one of this cluster's.
fn daemon(cmd: &Command, ctx: &Context<'_>) -> Result<AuthName, Outcome> {
    let text = cmd.text("who");
    let unknown = || Outcome::absent(format!("no config state for daemon {text}"));
    let wrong = || Outcome::invalid("invalid daemon name: use <type>.<id>");
    let who = entity(text).filter(|n| !n.id.is_empty()).ok_or_else(wrong)?;
    let known = match who.kind {
        EntityKind::Osd => who.id.parse().is_ok_and(|id| ctx.map().exists(id)),
        EntityKind::Mon => ctx.state.monmap.mon_info.contains_key(&who.id),
        EntityKind::Mgr => who.id == ctx.mon.mgr_name,
        _ => false,
    };
    if known { Ok(who) } else { Err(unknown()) }
}

fn show_daemon(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    show_options(cmd, ctx, false)
}

fn show_defaults(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    show_options(cmd, ctx, true)
}

fn show_options(cmd: &Command, ctx: &Context<'_>, defaults: bool) -> Outcome {
    let who = match daemon(cmd, ctx) {
        Ok(who) => who,
        Err(refusal) => return refusal,
    };
    let held = in_force(ctx, &who);
    let mut all: BTreeMap<&str, (String, &str)> = BTreeMap::new();
    if defaults {
        let every = options::names().filter_map(options::find);
        all.extend(every.map(|o| (o.name, (o.default(true).to_string(), "default"))));
    }
    all.extend(held.iter().map(|(name, s)| (*name, (s.value.to_string(), "mon"))));
    if let Some(key) = cmd.opt_text("key") {
        let key = option_name(key);
        let hosts = || {
            ctx.state
                .monmap
                .by_rank()
                .map(|i| i.addrs.bracketed().replace("/0", ""))
                .collect::<Vec<_>>()
                .join(",")
        };
        let value = match (all.get(key.as_str()), key.as_str()) {
            (_, "mon_host") => Some(hosts()),
            (_, "fsid") => Some(ctx.state.fsid.to_string()),
            (Some((v, _)), _) => Some(v.clone()),
            (None, _) => options::find(&key).map(|o| o.default(true).to_string()),
        };
        return match value {
            Some(v) => Outcome::ok(format!("{v}\n")),
            None => Outcome::absent(format!("unrecognized key '{key}'")),
        };
    }
    let one = |(name, (value, source)): (&&str, &(String, &str))| json!({"name": name, "value": value, "source": source});
    let plain = || {
        let mut t = Table::new().left(&["NAME", "VALUE", "SOURCE", "OVERRIDES", "IGNORES"]);
        for (name, (value, source)) in &all {
            t.row([*name, value, source]);
        }
        t.print()
    };
    cmd.either(|| all.iter().map(one).collect(), plain)
}
