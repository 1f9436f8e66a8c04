//! `status` (`ceph -s`): the cluster on one page.

use crate::commands::checks::Report;
use crate::commands::command::{Command, Outcome};
use crate::commands::context::Context;
use crate::commands::views::osd_counts::{osd_counts, osd_numbers, shown_flags};
use crate::commands::views::pg_stats::{Figures, count};
use crate::commands::views::pg_stats::{add_shares, share_texts, usage};
use crate::commands::views::services as registered;
use crate::commands::views::{file_systems, io_rates, monmap, progress, show};
use crate::format::units;
use serde_json::{Map, Value, json};

pub fn status(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let figures = Figures::of(ctx);
    let report = Report::with(ctx, &figures);
    cmd.either(
        || json_form(ctx, &figures, &report),
        || plain(ctx, &figures, &report),
    )
}

fn json_form(ctx: &Context<'_>, figures: &Figures, report: &Report) -> Value {
    let s = ctx.state;
    let quorum = monmap::quorum(ctx);
    json!({
        "fsid": s.fsid.to_string(),
        "health": report.json(false),
        "election_epoch": show::ELECTION_EPOCH,
        "quorum": quorum.iter().map(|(rank, _)| *rank).collect::<Vec<_>>(),
        "quorum_names": quorum.iter().map(|(_, name)| name.as_str()).collect::<Vec<_>>(),
        "quorum_age": units::seconds_between(ctx.mon.started, ctx.now) as u64,
        "monmap": {
            "epoch": s.monmap.epoch,
            "min_mon_release_name": types::release::name(s.monmap.min_mon_release),
            "num_mons": s.monmap.ranks.len(),
        },
        "osdmap": osd_numbers(ctx, figures),
        "pgmap": pg_numbers(ctx, figures),
        "fsmap": file_systems::status_json(&s.fsmap),
        "mgrmap": {
            "available": s.mgrmap.available,
            "num_standbys": s.mgrmap.standbys.len(),
            "modules": s.mgrmap.modules,
            "services": s.mgrmap.services,
        },
        "servicemap": registered::dump(ctx),
        "progress_events": progress::status_json(ctx),
    })
}

fn pg_numbers(ctx: &Context<'_>, figures: &Figures) -> Value {
    let sum = figures.sum();
    let by_state: Vec<Value> = figures
        .by_state()
        .into_iter()
        .map(|(name, n)| json!({"state_name": name, "count": n}))
        .collect();
    let mut m = Map::new();
    m.insert("pgs_by_state".into(), by_state.into());
    m.insert("num_pgs".into(), figures.pgs.len().into());
    m.insert("num_pools".into(), ctx.map().pools.len().into());
    m.insert("num_objects".into(), count(sum.num_objects).into());
    m.insert("data_bytes".into(), count(sum.num_bytes).into());
    m.insert("bytes_used".into(), count(figures.total.used()).into());
    m.insert("bytes_avail".into(), count(figures.total.available).into());
    m.insert("bytes_total".into(), count(figures.total.total).into());
    let pgs = figures.pgs.len() as f64;
    let unknown = figures.unknown();
    let inactive = figures.inactive() - unknown;
    for (key, n) in [("unknown_pgs_ratio", unknown), ("inactive_pgs_ratio", inactive)] {
        if n > 0 {
            m.insert(key.into(), (n as f64 / pgs).into());
        }
    }
    add_shares(&sum, &mut m);
    io_rates::add_recovery_json(io_rates::recovery(ctx, None), &mut m);
    io_rates::add_json(io_rates::of(ctx, None), &mut m);
    Value::Object(m)
}

fn plain(ctx: &Context<'_>, figures: &Figures, report: &Report) -> String {
    let mut out = String::from("  cluster:\n");
    out.push_str(&format!("    id:     {}\n", ctx.state.fsid));
    let health = report.status_lines().join("\n            ");
    out.push_str(&format!("    health: {health}\n \n"));
    services(&mut out, ctx, figures);
    data(&mut out, ctx, figures);
    out
}

fn services(out: &mut String, ctx: &Context<'_>, figures: &Figures) {
    let s = ctx.state;
    out.push_str("  services:\n");
    let registered = registered::lines(ctx);
    let longest = registered.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let width = longest.max(3);
    let pad = " ".repeat(width - 3);
    out.push_str(&format!(
        "    mon: {pad}{} daemons, quorum {} (age {})\n",
        s.monmap.ranks.len(),
        monmap::quorum_names(ctx),
        units::age(ctx.mon.started, ctx.now)
    ));
    let m = &s.mgrmap;
    let mgr = if m.available {
        format!(
            "{}(active, since {})",
            m.active_name,
            units::age(m.active_change, ctx.now)
        )
    } else {
        "no daemons active".to_string()
    };
    let standbys: Vec<&str> = m.standbys.values().map(|s| s.name.as_str()).collect();
    let mgr = match standbys.is_empty() {
        true => mgr,
        false => format!("{mgr}, standbys: {}", standbys.join(", ")),
    };
    out.push_str(&format!("    mgr: {pad}{mgr}\n"));
    if let Some(mds) = file_systems::status_line(&s.fsmap) {
        out.push_str(&format!("    mds: {pad}{mds}\n"));
    }
    out.push_str(&format!("    osd: {pad}{}", osd_counts(ctx)));
    let remapped = figures.remapped();
    if remapped > 0 {
        out.push_str(&format!("; {remapped} remapped pgs"));
    }
    out.push('\n');
    let flags = shown_flags(ctx);
    if !flags.is_empty() {
        out.push_str(&format!("         {pad}flags {flags}\n"));
    }
    for (name, text) in registered {
        out.push_str(&format!("    {name}: {}{text}\n", " ".repeat(width - name.len())));
    }
    out.push_str(" \n");
}

fn data(out: &mut String, ctx: &Context<'_>, figures: &Figures) {
    let sum = figures.sum();
    out.push_str("  data:\n");
    if let Some(volumes) = file_systems::volumes_line(&ctx.state.fsmap) {
        out.push_str(&format!("    volumes: {volumes}\n"));
    }
    let (pools, pgs) = (ctx.map().pools.len(), figures.pgs.len());
    out.push_str(&format!("    pools:   {pools} pools, {pgs} pgs\n"));
    let objects = units::si(count(sum.num_objects));
    let stored = units::bytes(count(sum.num_bytes));
    out.push_str(&format!("    objects: {objects} objects, {stored}\n"));
    out.push_str(&format!("    usage:   {}\n", usage(figures)));
    let mut lines = Vec::new();
    let unknown = figures.unknown();
    let inactive = figures.inactive() - unknown;
    for (n, text) in [(unknown, "pgs unknown"), (inactive, "pgs not active")] {
        if n > 0 {
            lines.push(format!("{:.3}% {text}", n as f64 * 100.0 / pgs as f64));
        }
    }
    lines.extend(share_texts(&sum));
    let states = figures.by_state();
    let width = states.iter().map(|(_, n)| n.to_string().len()).max().unwrap_or(0);
    lines.extend(states.iter().map(|(name, n)| format!("{n:<width$} {name}")));
    out.push_str(&format!("    pgs:     {}\n \n", lines.join("\n             ")));
    let client = io_rates::of(ctx, None).map(|r| format!("    client:   {}\n", io_rates::text(&r)));
    let healing = io_rates::recovery(ctx, None);
    let healing = healing.map(|r| format!("    recovery: {}\n", io_rates::recovery_text(&r)));
    if client.is_some() || healing.is_some() {
        let lines = [client, healing].into_iter().flatten().collect::<String>();
        out.push_str(&format!("  io:\n{lines} \n"));
    }
    let events = progress::status_texts(ctx);
    if !events.is_empty() {
        out.push_str(&format!("  progress:\n    {}\n \n", events.join("\n    ")));
    }
}
