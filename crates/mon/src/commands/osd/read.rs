//! Commands that show OSDs and the OSD map.

use crate::commands::command::{Command, Outcome, lines};
use crate::commands::context::Context;
use crate::commands::osd::df;
use crate::commands::osd::tree;
use crate::commands::spec::{Spec, spec};
use crate::commands::views::old_map::map_of;
use crate::commands::views::pg_stats::Figures;
use crate::commands::views::{daemons, osd_counts, osd_map, show};
use crate::format::json::significant;
use crate::format::{Align, Table, units};
use serde_json::{Map, Value, json};
use types::OsdId;

const R: (&str, &str) = ("osd", "r");

pub const TABLE: &[Spec] = &[
    spec(R, "osd stat", "OSDs in one line", stat),
    spec(R, "osd dump epoch?:int(0..)", "the OSD map", dump),
    tree::TREE,
    tree::TREE_FROM,
    spec(
        R,
        "osd df output_method?:choice(plain|tree) filter_by?:choice(class|name) filter?:str",
        "how full the OSDs are",
        df::df,
    )
    .by_manager(""),
    spec(R, "osd ls epoch?:int(0..)", "ids of the OSDs", ls),
    spec(
        R,
        "osd ls-tree epoch?:int(0..) name:str",
        "ids of the OSDs below a bucket",
        ls_tree,
    ),
    spec(R, "osd getmap epoch?:int(0..)", "the OSD map, binary", getmap),
    spec(R, "osd getmaxosd", "number of slots in the OSD map", getmaxosd),
    spec(
        R,
        "osd find id:osd",
        "where an OSD is: host, place in the hierarchy, addresses",
        find,
    ),
    spec(
        R,
        "osd info id?:osd",
        "what the map says about one OSD or all",
        info,
    ),
    spec(
        R,
        "osd metadata id?:osd",
        "facts about OSDs and their hosts",
        metadata,
    ),
    spec(
        R,
        "osd count-metadata property:str",
        "how many OSDs have which value of a fact",
        count_metadata,
    ),
    spec(R, "osd versions", "how many OSDs run which version", versions),
    spec(
        R,
        "osd numa-status",
        "binding of the OSDs to processor nodes",
        numa_status,
    ),
    spec(
        ("mgr", "r"),
        "osd status bucket?:str",
        "space and state of the OSDs",
        osd_status,
    )
    .by_manager("status"),
    spec(R, "osd perf", "commit and apply latencies of the OSDs", perf).by_manager(""),
    spec(
        R,
        "osd utilization",
        "how evenly placement groups are spread",
        utilization,
    ),
    spec(R, "osd blocked-by", "OSDs that others wait for", blocked_by).by_manager(""),
    spec(
        R,
        "osd map pool:pool object:object nspace?:str",
        "where an object lies",
        map_object,
    ),
    spec(
        R,
        "osd get-require-min-compat-client",
        "oldest client release that is let in",
        get_min_compat,
    ),
    spec(
        R,
        "osd last-stat-seq id:osd",
        "number of an OSD's last report",
        last_stat_seq,
    ),
];

fn missing(id: i64) -> Outcome {
    Outcome::absent(format!("osd.{id} does not exist"))
}

/// The argument as the id of an OSD that exists.
fn existing(cmd: &Command, ctx: &Context<'_>) -> Result<Option<OsdId>, i64> {
    let Some(id) = cmd.int("id") else { return Ok(None) };
    let osd = OsdId::try_from(id).map_err(|_| id)?;
    if ctx.map().exists(osd) {
        Ok(Some(osd))
    } else {
        Err(id)
    }
}

fn stat(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let json = || osd_counts::osd_numbers(ctx, &Figures::of(ctx));
    let plain = || {
        let mut out = format!("{}; epoch: e{}\n", osd_counts::osd_counts(ctx), ctx.map().epoch);
        let flags = osd_counts::shown_flags(ctx);
        if !flags.is_empty() {
            out.push_str(&format!("flags {flags}\n"));
        }
        out
    };
    cmd.either(json, plain)
}

fn dump(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    match map_of(cmd, ctx) {
        Ok(map) => cmd.either(|| osd_map::map_json(&map), || osd_map::map_text(&map)),
        Err(refusal) => refusal,
    }
}

fn ids_out(cmd: &Command, ids: &[OsdId]) -> Outcome {
    cmd.either(|| json!(ids), || lines(ids))
}

fn ls(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    match map_of(cmd, ctx) {
        Ok(map) => ids_out(cmd, &map.osd_ids().collect::<Vec<_>>()),
        Err(refusal) => refusal,
    }
}

fn ls_tree(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let map = match map_of(cmd, ctx) {
        Ok(map) => map,
        Err(refusal) => return refusal,
    };
    let name = cmd.text("name");
    match map.crush.item_id(name) {
        None => Outcome::absent(format!("\"{name}\" does not exist")),
        Some(item) => ids_out(cmd, &map.crush.devices_under(item)),
    }
}

fn getmap(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let epoch = cmd
        .int("epoch")
        .filter(|e| *e != 0)
        .unwrap_or(i64::from(ctx.map().epoch));
    match u32::try_from(epoch).ok().and_then(|e| ctx.state.history.full(e)) {
        Some(raw) => Outcome::ok(raw).saying(format!("got osdmap epoch {epoch}")),
        None => Outcome::absent(format!("there is no map for epoch {epoch}")),
    }
}

fn getmaxosd(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let (epoch, max) = (ctx.map().epoch, ctx.map().max_osd());
    cmd.either(
        || json!({"epoch": epoch, "max_osd": max}),
        || format!("max_osd = {max} in epoch {epoch}\n"),
    )
}

fn find(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let id = match existing(cmd, ctx) {
        Ok(Some(id)) => id,
        Ok(None) => return Outcome::invalid("bad or missing field 'id'"),
        Err(id) => return missing(id),
    };
    let Some(slot) = ctx.map().osd(id) else {
        return missing(i64::from(id));
    };
    let mut place: Vec<(String, String)> = ctx.map().crush.location_of(id);
    place.sort();
    let place: Map<String, Value> = place.into_iter().map(|(t, n)| (t, n.into())).collect();
    cmd.json(&json!({
        "osd": id,
        "addrs": show::addrs(&slot.client_addrs),
        "osd_fsid": slot.uuid.to_string(),
        "host": ctx.osd_host(id),
        "crush_location": place,
    }))
}

fn info(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let map = ctx.map();
    match existing(cmd, ctx) {
        Err(id) => Outcome::invalid(format!("osd.{id} does not exist")),
        Ok(Some(id)) => cmd.either(|| osd_map::osd_json(map, id), || osd_map::osd_text(map, id)),
        Ok(None) => cmd.either(
            || map.osd_ids().map(|id| osd_map::osd_json(map, id)).collect(),
            || map.osd_ids().map(|id| osd_map::osd_text(map, id)).collect(),
        ),
    }
}

fn metadata(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    match existing(cmd, ctx) {
        Err(id) => missing(id),
        Ok(Some(id)) => cmd.json(&Value::Object(daemons::osd_facts(ctx, id))),
        Ok(None) => cmd.json(&daemons::all_osd_facts(ctx)),
    }
}

fn count_metadata(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let property = cmd.text("property");
    let of = |id| daemons::value_of(&daemons::osd_facts(ctx, id), property);
    cmd.json(&show::count_values(ctx.map().osd_ids().map(of)))
}

fn versions(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    cmd.json(&show::count_values(daemons::osd_versions(ctx)))
}

fn numa_status(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let json = || {
        ctx.map()
            .osd_ids()
            .map(|id| json!({"osd": id, "host": ctx.osd_host(id)}))
            .collect()
    };
    let plain = || {
        let mut t = Table::new()
            .column("OSD", Align::Left, Align::Right)
            .left(&["HOST"])
            .column("NETWORK", Align::Left, Align::Right)
            .column("STORAGE", Align::Left, Align::Right)
            .column("AFFINITY", Align::Left, Align::Right)
            .left(&["CPUS"]);
        for id in ctx.map().osd_ids() {
            t.row([
                id.to_string(),
                ctx.osd_host(id),
                "-".into(),
                "-".into(),
                "-".into(),
                "-".into(),
            ]);
        }
        t.print()
    };
    cmd.either(json, plain)
}

fn osd_status(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let map = ctx.map();
    let below = cmd
        .opt_text("bucket")
        .map(|name| map.crush.item_id(name).map(|i| map.crush.devices_under(i)));
    if below == Some(None) {
        return Outcome::absent(format!("Bucket '{}' not found", cmd.text("bucket")));
    }
    let below = below.flatten();
    let mut t = Table::new()
        .right(&["ID"])
        .left(&["HOST"])
        .right(&["USED", "AVAIL", "WR OPS", "WR DATA", "RD OPS", "RD DATA"])
        .left(&["STATE"]);
    let short = |v: i64| units::bytes(v.max(0) as u64).replace([' ', 'i', 'B'], "");
    for id in map
        .osd_ids()
        .filter(|id| below.as_ref().is_none_or(|b| b.contains(id)))
    {
        let (used, avail) = ctx
            .stats
            .osds
            .get(&id)
            .map_or((0, 0), |r| (r.stat.statfs.used(), r.stat.statfs.available));
        let state = types::osdmap::osd_state::names(map.osd(id).map_or(0, |o| o.state)).join(",");
        let none = || "0".to_string();
        t.row([
            id.to_string(),
            ctx.osd_host(id),
            short(used),
            short(avail),
            none(),
            none(),
            none(),
            none(),
            state,
        ]);
    }
    Outcome::ok(t.print())
}

const NS_PER_MS: u64 = 1_000_000;

fn perf(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let mut ids: Vec<OsdId> = ctx.stats.osds.keys().copied().collect();
    ids.reverse();
    let of = |id: &OsdId| {
        ctx.stats
            .osds
            .get(id)
            .map_or((0, 0), |r| (r.stat.commit_latency_ns, r.stat.apply_latency_ns))
    };
    let json = || {
        let one = |id: &OsdId| {
            let (commit, apply) = of(id);
            json!({"id": id, "perf_stats": {
                "commit_latency_ms": commit / NS_PER_MS, "apply_latency_ms": apply / NS_PER_MS,
                "commit_latency_ns": commit, "apply_latency_ns": apply}})
        };
        let infos: Vec<Value> = ids.iter().map(one).collect();
        json!({"pg_ready": true, "osdstats": {"osd_perf_infos": infos}})
    };
    let plain = || {
        let mut t = Table::new().right(&["osd", "commit_latency(ms)", "apply_latency(ms)"]);
        for id in &ids {
            let (commit, apply) = of(id);
            t.row([
                id.to_string(),
                (commit / NS_PER_MS).to_string(),
                (apply / NS_PER_MS).to_string(),
            ]);
        }
        t.print()
    };
    cmd.either(json, plain)
}

fn utilization(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let per_osd = Figures::of(ctx).per_osd();
    let map = ctx.map();
    let counts: Vec<(OsdId, u32)> = map
        .osd_ids()
        .filter(|id| map.is_in(*id))
        .map(|id| (id, per_osd.get(&id).map_or(0, |(n, _)| *n)))
        .collect();
    let n = counts.len() as f64;
    let total: f64 = counts.iter().map(|(_, c)| f64::from(*c)).sum();
    let avg = if n > 0.0 { total / n } else { 0.0 };
    let dev = if n > 0.0 {
        (counts
            .iter()
            .map(|(_, c)| (f64::from(*c) - avg).powi(2))
            .sum::<f64>()
            / n)
            .sqrt()
    } else {
        0.0
    };
    // What equal chances for each placement would give.
    let expected = if n > 0.0 {
        (avg * (1.0 - 1.0 / n)).sqrt()
    } else {
        0.0
    };
    let min = counts
        .iter()
        .min_by_key(|(id, c)| (*c, *id))
        .copied()
        .unwrap_or((-1, 0));
    let max = counts
        .iter()
        .max_by_key(|(id, c)| (*c, -id))
        .copied()
        .unwrap_or((-1, 0));
    let json = || {
        json!({
            "avg_pgs": avg, "std_dev": dev, "expected_baseline_std_dev": expected,
            "min_osd": min.0, "min_osd_pgs": min.1, "max_osd": max.0, "max_osd_pgs": max.1,
        })
    };
    let six = |v: f64| significant(v, 6);
    let times = |c: u32| six(if avg > 0.0 { f64::from(c) / avg } else { 0.0 });
    let plain = || {
        format!(
            "avg {}\nstddev {} (expected baseline {})\nmin osd.{} with {} pgs ({} * mean)\nmax osd.{} with {} pgs ({} * mean)\n",
            six(avg),
            six(dev),
            six(expected),
            min.0,
            min.1,
            times(min.1),
            max.0,
            max.1,
            times(max.1)
        )
    };
    cmd.either(json, plain)
}

/// How many PGs wait for each OSD.
fn blocked_by(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let mut counts: std::collections::BTreeMap<OsdId, u32> = std::collections::BTreeMap::new();
    for s in Figures::of(ctx).pgs.values() {
        for osd in &s.blocked_by {
            *counts.entry(*osd).or_default() += 1;
        }
    }
    let json = || {
        let infos: Vec<Value> = counts
            .iter()
            .map(|(osd, n)| json!({"osd": osd, "num_blocked": n}))
            .collect();
        json!({"pg_ready": true, "osd_blocked_by": {"osd_blocked_by_infos": infos}})
    };
    let plain = || {
        let mut t = Table::new().right(&["osd", "num_blocked"]);
        for (osd, n) in &counts {
            t.row([osd.to_string(), n.to_string()]);
        }
        t.print()
    };
    cmd.either(json, plain)
}

fn map_object(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let map = ctx.map();
    let (name, object, ns) = (cmd.text("pool"), cmd.text("object"), cmd.text("nspace"));
    let found = map.pool_by_name(name).and_then(|id| {
        let (raw, pg) = map.object_to_pg(id, ns.as_bytes(), b"", object.as_bytes())?;
        Some((id, raw, pg))
    });
    let Some((id, raw, pg)) = found else {
        return Outcome::absent(format!("pool {name} does not exist"));
    };
    let sets = map.pg_to_up_acting(pg);
    let shown = if ns.is_empty() {
        object.to_string()
    } else {
        format!("{ns}/{object}")
    };
    let raw_pg = format!("{id}.{raw:x}");
    let epoch = map.epoch;
    cmd.either(
        || {
            json!({
                "epoch": epoch, "pool": name, "pool_id": id, "objname": shown, "raw_pgid": raw_pg,
                "pgid": pg.to_string(), "up": sets.up, "up_primary": sets.up_primary,
                "acting": sets.acting, "acting_primary": sets.acting_primary,
            })
        },
        || {
            format!(
                "osdmap e{epoch} pool '{name}' ({id}) object '{shown}' -> pg {raw_pg} ({pg}) -> up ({}, p{}) acting ({}, p{})\n",
                show::ids(&sets.up), sets.up_primary, show::ids(&sets.acting), sets.acting_primary
            )
        },
    )
}

fn get_min_compat(_: &Command, ctx: &Context<'_>) -> Outcome {
    Outcome::ok(format!(
        "{}\n",
        types::release::name(ctx.map().require_min_compat_client)
    ))
}

fn last_stat_seq(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    match existing(cmd, ctx) {
        Ok(Some(id)) => {
            let stamp = ctx.stats.osds.get(&id).map_or(0, |r| u64::from(r.stamp.sec));
            Outcome::ok(format!("{stamp}\n"))
        }
        Ok(None) => Outcome::invalid("bad or missing field 'id'"),
        // It has not reported yet, as one that is there and has not.
        Err(_) => Outcome::ok("0\n"),
    }
}
