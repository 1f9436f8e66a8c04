//! Commands about the cluster as a whole: identity, versions, log, who runs where.

use crate::commands::checks;
use crate::commands::cluster::features::feature_map;
use crate::commands::cluster::{df, status};
use crate::commands::command::{Command, Outcome, lines};
use crate::commands::context::{Context, Target};
use crate::commands::spec::{Spec, spec};
use crate::commands::views::{crush_map, daemons, monmap, osd_map, pg_stats, pool_stats, services, show};
use cluster::{Change, Changes};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use types::clusterlog::{LogEntry, LogLevel};
use types::release;
use types::{EntityAddrVec, EntityName};

const R: (&str, &str) = ("mon", "r");
const RW: (&str, &str) = ("mon", "rw");
const SERVICE: (&str, &str) = ("service", "r");

pub const TABLE: &[Spec] = &[
    spec(R, "status", "the cluster on one page", status::status),
    spec(
        R,
        "df detail?:choice(detail)",
        "space: raw by device class, and by pool",
        df::df,
    ),
    spec(R, "fsid", "id of the cluster", fsid),
    spec(R, "version", "version of the monitor", version),
    spec(R, "versions", "how many daemons run which version", versions),
    spec(
        R,
        "features",
        "features of daemons and connected clients",
        features,
    ),
    spec(
        R,
        "node ls type?:choice(all|osd|mon|mds|mgr)",
        "hosts and the daemons on them",
        node_ls,
    ),
    spec(
        R,
        "time-sync-status",
        "state of the clocks of the monitors",
        time_sync,
    ),
    spec(
        R,
        "report tags?*:str",
        "everything known about the cluster, as JSON",
        report,
    ),
    spec(
        RW,
        "log logtext*:str level?:choice(debug|info|sec|warn|error)",
        "write a line to the cluster log",
        log,
    ),
    spec(
        R,
        "log last num?:int(1..) level?:choice(debug|info|sec|warn|error) channel?:choice(*|cluster|audit|cephadm)",
        "the newest lines of the cluster log",
        log_last,
    ),
    spec(
        SERVICE,
        "service dump",
        "services registered with the manager",
        service_dump,
    )
    .by_manager(""),
    spec(
        SERVICE,
        "service status",
        "state of the registered services",
        service_status,
    )
    .by_manager(""),
];

/// Lines that `log last` shows unless told otherwise.
const LOG_LAST_DEFAULT: usize = 20;

fn fsid(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let id = ctx.state.fsid.to_string();
    cmd.either(|| json!({"fsid": id}), || format!("{id}\n"))
}

/// By `tell` it is taken apart already.
fn version(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    if ctx.target != Target::Mon {
        let v = json!({"version": release::SPOKEN_VERSION, "release": release::SPOKEN_NAME, "release_type": "stable"});
        return cmd.json(&v);
    }
    cmd.either(
        || json!({"version": release::VERSION_TEXT}),
        || format!("{}\n", release::VERSION_TEXT),
    )
}

fn versions(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let mons = daemons::mon_versions(ctx);
    let mgrs = daemons::mgr_versions(ctx);
    let osds = daemons::osd_versions(ctx);
    let mdss = daemons::mds_versions(ctx);
    let mut all: Vec<String> = [&mons, &mgrs, &osds, &mdss]
        .into_iter()
        .flatten()
        .cloned()
        .collect();
    let mut out = Map::from_iter([
        ("mon".to_string(), show::count_values(mons)),
        ("mgr".to_string(), show::count_values(mgrs)),
        ("osd".to_string(), show::count_values(osds)),
        ("mds".to_string(), show::count_values(mdss)),
    ]);
    for (service, versions) in services::versions(ctx) {
        all.extend(versions.iter().cloned());
        out.insert(service, show::count_values(versions));
    }
    out.insert("overall".into(), show::count_values(all));
    cmd.json(&Value::Object(out))
}

fn features(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    cmd.json(&feature_map(ctx))
}

/// Names of daemons by host.
type Hosts = BTreeMap<String, Vec<String>>;

fn node_ls(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let mut osds: BTreeMap<String, Vec<i32>> = BTreeMap::new();
    for id in ctx.map().osd_ids() {
        osds.entry(ctx.osd_host(id)).or_default().push(id);
    }
    let (mut mons, mut mgrs): (Hosts, Hosts) = Default::default();
    for (_, name) in monmap::quorum(ctx) {
        let other = ctx.stats.mons.get(&name).filter(|_| name != ctx.mon.name);
        let host = other
            .and_then(|m| m.metadata.get("hostname"))
            .unwrap_or(&ctx.mon.hostname)
            .clone();
        let mgr = other.map_or(&ctx.mon.mgr_name, |m| &m.mgr_name).clone();
        mons.entry(host.clone()).or_default().push(name);
        mgrs.entry(host).or_default().push(mgr);
    }
    let mut all = Map::new();
    all.insert("mon".into(), json!(mons));
    all.insert("osd".into(), json!(osds));
    let mut mdss = Hosts::new();
    for info in ctx.state.fsmap.daemons() {
        let host = daemons::value_of(&daemons::mds_facts(ctx, info), "hostname");
        mdss.entry(host).or_default().push(info.name.clone());
    }
    if !mdss.is_empty() {
        all.insert("mds".into(), json!(mdss));
    }
    if ctx.state.mgrmap.available {
        all.insert("mgr".into(), json!(mgrs));
    }
    match cmd.opt_text("type") {
        None | Some("all") => cmd.json(&Value::Object(all)),
        Some(kind) => cmd.json(all.get(kind).unwrap_or(&json!({}))),
    }
}

fn time_sync(cmd: &Command, _: &Context<'_>) -> Outcome {
    let checks = json!({"epoch": show::ELECTION_EPOCH, "round": 0, "round_status": "finished"});
    cmd.json(&json!({"timechecks": checks}))
}

fn report(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let figures = pg_stats::Figures::of(ctx);
    let mut v = json!({
        "cluster_fingerprint": ctx.state.fsid.to_string(),
        "version": release::SPOKEN_VERSION,
        "commit": "",
        "timestamp": ctx.now.to_string(),
        "tag": cmd.list("tags").join(" "),
        "health": checks::Report::with(ctx, &figures).json(true),
        "monmap": monmap::monmap_json(ctx),
        "quorum": monmap::quorum(ctx).iter().map(|(rank, _)| *rank).collect::<Vec<_>>(),
        "osdmap": osd_map::map_json(ctx.map()),
        "osd_metadata": daemons::all_osd_facts(ctx),
        "crushmap": crush_map::dump(&ctx.map().crush),
        "num_pg": figures.pgs.len(),
        "num_osd": ctx.map().num_osds(),
    });
    if let Some(map) = v.as_object_mut() {
        map.insert("pool_stats".into(), pool_stats::pool_stats(ctx, &figures));
    }
    let mut out = cmd.json(&v);
    // The real one prints a checksum of the text here.
    out.status = format!("report {}", types::checksum::crc32c(u32::MAX, &out.data));
    out
}

/// The real one takes the level, too, and does not list it.
fn log(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let level = cmd.opt_text("level").unwrap_or("info");
    let Some(level) = LogLevel::ALL.into_iter().find(|l| l.word() == level) else {
        return Outcome::invalid(format!("unknown log level '{level}'"));
    };
    let entry = LogEntry {
        name: ctx.who.clone(),
        rank: EntityName::new(ctx.who.kind, -1),
        addrs: EntityAddrVec::one(ctx.addr),
        stamp: ctx.now,
        seq: 0,
        level,
        message: cmd.list("logtext").join(" "),
        channel: "cluster".into(),
    };
    Outcome::default().with(Changes::one(Change::Log(entry)))
}

fn log_last(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let num = cmd.int("num").map_or(LOG_LAST_DEFAULT, |n| n.max(0) as usize);
    let level = cmd.opt_text("level").unwrap_or("info");
    let Some(level) = LogLevel::ALL.into_iter().find(|l| l.word() == level) else {
        return Outcome::invalid(format!("unknown log level '{level}'"));
    };
    // As in Ceph: the channel of records only for who asks for it.
    let channel = cmd.opt_text("channel").unwrap_or("cluster");
    let (log, audit) = (&ctx.state.log.entries, &ctx.state.audit.entries);
    let wanted = |e: &&LogEntry| e.level >= level && (channel == "*" || e.channel == channel);
    let mut entries: Vec<&LogEntry> = log.iter().chain(audit.iter()).filter(wanted).collect();
    if channel == "*" {
        entries.sort_by_key(|e| e.stamp);
    }
    entries.drain(..entries.len().saturating_sub(num));
    cmd.either(
        || entries.iter().map(|e| log_json(e)).collect::<Vec<_>>().into(),
        || lines(entries.iter().map(|e| log_line(e))),
    )
}

fn log_json(e: &LogEntry) -> Value {
    json!({
        "name": e.name.to_string(),
        "rank": e.rank.to_string(),
        "addrs": show::addrs(&e.addrs),
        "stamp": e.stamp.to_string(),
        "seq": e.seq,
        "channel": e.channel,
        "priority": format!("[{}]", e.level.tag()),
        "message": e.message,
    })
}

fn log_line(e: &LogEntry) -> String {
    format!(
        "{} {} ({}) {} : {} [{}] {}",
        e.stamp,
        e.name,
        e.rank,
        e.seq,
        e.channel,
        e.level.tag(),
        e.message
    )
}

fn service_dump(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    cmd.json(&services::dump(ctx))
}

fn service_status(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    cmd.json(&services::status(ctx))
}
