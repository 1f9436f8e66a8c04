//! Commands about placement groups.

mod dump;
pub mod force;
pub mod scrub;

use crate::commands::command::{Command, Outcome};
use crate::commands::context::Context;
use crate::commands::spec::{Spec, spec};
use crate::commands::views::pg_stats::{Figures, count};
use crate::commands::views::{io_rates, pg_stats, show};
use crate::format::{Align, Table, units};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use types::pgstats::{PgStat, pg_state};
use types::{Errno, OsdId, PgId, PoolId};

const R: (&str, &str) = ("pg", "r");

pub const TABLE: &[Spec] = &[
    spec(R, "pg stat", "placement groups in one line", stat).by_manager(""),
    spec(
        R,
        "pg dump dumpcontents?*:choice(all|summary|sum|delta|pools|osds|pgs|pgs_brief)",
        "figures of placement groups, pools and OSDs",
        dump::dump,
    )
    .by_manager(""),
    spec(
        R,
        "pg dump_json dumpcontents?*:choice(all|summary|sum|pools|osds|pgs)",
        "figures of placement groups, pools and OSDs, as JSON",
        dump::dump,
    )
    .by_manager(""),
    spec(R, "pg getmap", "the PG map, binary", dump::getmap).by_manager(""),
    spec(R, "pg dump_pools_json", "figures of pools, as JSON", dump::dump).by_manager(""),
    spec(
        R,
        "pg ls pool?:int states?*:str",
        "placement groups of a pool, in some states",
        ls,
    )
    .by_manager(""),
    spec(
        R,
        "pg ls-by-pool poolstr:str states?*:str",
        "placement groups of a pool by name",
        ls_by_pool,
    )
    .by_manager(""),
    spec(
        R,
        "pg ls-by-osd osd:osd pool?:int states?*:str",
        "placement groups on an OSD",
        ls_by_osd,
    )
    .by_manager(""),
    spec(
        R,
        "pg ls-by-primary osd:osd pool?:int states?*:str",
        "placement groups that an OSD leads",
        ls_by_primary,
    )
    .by_manager(""),
    spec(
        R,
        "pg dump_stuck stuckops?*:choice(inactive|unclean|stale|undersized|degraded) threshold?:int",
        "placement groups that are not well for some time",
        dump_stuck,
    )
    .by_manager(""),
    spec(
        R,
        "pg map pgid:pgid",
        "which OSDs a placement group lies on",
        map_pg,
    ),
    spec(
        R,
        "pg debug debugop:choice(unfound_objects_exist|degraded_pgs_exist)",
        "TRUE or FALSE",
        debug,
    )
    .by_manager(""),
];

/// The real one's default of `mon_pg_stuck_threshold`, in seconds.
const STUCK_AFTER: i64 = 60;

fn stat(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let figures = Figures::of(ctx);
    let sum = figures.sum();
    let states = figures.by_state();
    let json = || {
        let by_state: Vec<Value> = states.iter().map(|(s, n)| json!({"name": s, "num": n})).collect();
        let mut m = Map::new();
        m.insert("num_pg_by_state".into(), by_state.into());
        m.insert("num_pgs".into(), figures.pgs.len().into());
        m.insert("num_bytes".into(), count(sum.num_bytes).into());
        m.insert("total_bytes".into(), count(figures.total.total).into());
        m.insert("total_avail_bytes".into(), count(figures.total.available).into());
        m.insert("total_used_bytes".into(), count(figures.total.used()).into());
        m.insert("total_used_raw_bytes".into(), count(figures.total.used()).into());
        pg_stats::add_shares(&sum, &mut m);
        io_rates::add_recovery_json(io_rates::recovery(ctx, None), &mut m);
        if let Some(r) = io_rates::of(ctx, None) {
            m.insert("read_bytes_sec".into(), r.read_bytes.into());
            m.insert("write_bytes_sec".into(), r.write_bytes.into());
            m.insert("io_sec".into(), (r.read_ops + r.write_ops).into());
        }
        json!({"pg_ready": true, "pg_summary": m})
    };
    let plain = || {
        let parts: Vec<String> = states.iter().map(|(s, n)| format!("{n} {s}")).collect();
        let mut out = format!(
            "{} pgs: {}; {} data, {}",
            figures.pgs.len(),
            parts.join(", "),
            units::bytes(count(sum.num_bytes)),
            pg_stats::usage(&figures)
        );
        if let Some(rates) = io_rates::of(ctx, None) {
            out.push_str(&format!("; {}", io_rates::short_text(&rates)));
        }
        for text in pg_stats::share_texts(&sum) {
            out.push_str(&format!("; {text}"));
        }
        if let Some(rates) = io_rates::recovery(ctx, None) {
            out.push_str(&format!("; {} recovering", io_rates::recovery_text(&rates)));
        }
        out + "\n"
    };
    cmd.either(json, plain)
}

/// The wanted state bits; all of a word's bits must be set.
fn states(cmd: &Command) -> Result<Vec<u64>, Outcome> {
    let mut out = Vec::new();
    for word in cmd.list("states") {
        let mut bits = 0;
        for name in word.split('+') {
            if name == "all" {
                return Ok(vec![]);
            }
            let Some((bit, _)) = pg_state::NAMES.iter().find(|(_, n)| *n == name) else {
                return Err(Outcome::invalid(format!(
                    "'{name}' is not a valid pg state, available choices: all,{}",
                    known_states()
                )));
            };
            bits |= bit;
        }
        out.push(bits);
    }
    Ok(out)
}

fn known_states() -> String {
    let names: Vec<&str> = pg_state::NAMES.iter().map(|(_, n)| *n).collect();
    names.join(",")
}

fn choose(cmd: &Command, ctx: &Context<'_>, pool: Option<PoolId>, fits: impl Fn(&PgStat) -> bool) -> Outcome {
    let wanted = match states(cmd) {
        Ok(wanted) => wanted,
        Err(refusal) => return refusal,
    };
    if let Some(id) = pool
        && ctx.map().pool(id).is_none()
    {
        return Outcome::absent(format!("pool {id} does not exist"));
    }
    let figures = Figures::of(ctx);
    let in_state = |s: &PgStat| wanted.is_empty() || wanted.iter().any(|bits| s.state & bits == *bits);
    let chosen: BTreeMap<PgId, &PgStat> = figures
        .pgs
        .iter()
        .filter(|(pg, s)| pool.is_none_or(|id| pg.pool == id) && in_state(s) && fits(s))
        .map(|(pg, s)| (*pg, s))
        .collect();
    dump::list(cmd, ctx, &chosen)
}

fn ls(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    choose(cmd, ctx, cmd.int("pool"), |_| true)
}

fn ls_by_pool(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let name = cmd.text("poolstr");
    match ctx.map().pool_by_name(name) {
        Some(id) => choose(cmd, ctx, Some(id), |_| true),
        None => Outcome::absent(format!("pool {name} does not exist")),
    }
}

fn the_osd(cmd: &Command, ctx: &Context<'_>) -> Result<OsdId, Outcome> {
    let id = cmd.int("osd").unwrap_or(-1);
    let osd = OsdId::try_from(id).ok().filter(|o| ctx.map().exists(*o));
    osd.ok_or_else(|| Outcome::error(Errno::EAGAIN, format!("osd {id} is not up")))
}

fn ls_by_osd(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    match the_osd(cmd, ctx) {
        Ok(osd) => choose(cmd, ctx, cmd.int("pool"), |s| {
            s.acting.contains(&osd) || s.up.contains(&osd)
        }),
        Err(refusal) => refusal,
    }
}

fn ls_by_primary(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    match the_osd(cmd, ctx) {
        Ok(osd) => choose(cmd, ctx, cmd.int("pool"), |s| s.acting_primary == osd),
        Err(refusal) => refusal,
    }
}

fn dump_stuck(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let threshold = cmd.int("threshold").unwrap_or(STUCK_AFTER) as f64;
    let mut kinds = cmd.list("stuckops");
    if kinds.is_empty() {
        kinds.push("unclean");
    }
    let long = |since| units::seconds_between(since, ctx.now) > threshold;
    let stuck = |s: &PgStat| {
        kinds.iter().any(|kind| match *kind {
            "inactive" => s.state & (pg_state::ACTIVE | pg_state::PEERED) == 0 && long(s.last_active),
            "unclean" => s.state & pg_state::CLEAN == 0 && long(s.last_clean),
            "stale" => s.state & pg_state::STALE != 0 && long(s.last_unstale),
            "undersized" => s.state & pg_state::UNDERSIZED != 0 && long(s.last_fullsized),
            "degraded" => s.state & pg_state::DEGRADED != 0 && long(s.last_undegraded),
            _ => false,
        })
    };
    let figures = Figures::of(ctx);
    let found: Vec<&PgStat> = figures.pgs.values().filter(|s| stuck(s)).collect();
    let json = || json!({"pg_ready": true, "stuck_pg_stats": found.iter().map(|s| dump::pg_json(s)).collect::<Vec<_>>()});
    let plain = || {
        if found.is_empty() {
            return String::new();
        }
        let mut t = Table::new().left(&["PG_STAT", "STATE"]);
        for name in ["UP", "UP_PRIMARY", "ACTING", "ACTING_PRIMARY"] {
            t = t.column(name, Align::Left, Align::Right);
        }
        for s in &found {
            t.row([
                s.pgid.to_string(),
                pg_state::names(s.state),
                show::ids(&s.up),
                s.up_primary.to_string(),
                show::ids(&s.acting),
                s.acting_primary.to_string(),
            ]);
        }
        t.print()
    };
    cmd.either(json, plain).saying("ok")
}

fn map_pg(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let text = cmd.text("pgid");
    let Ok(raw) = text.parse::<PgId>() else {
        return Outcome::invalid(format!("invalid pgid '{text}'"));
    };
    let Some(pg) = ctx.map().raw_pg_to_pg(raw) else {
        return Outcome::error(Errno::ENOENT, format!("pg '{text}' does not exist"));
    };
    let epoch = ctx.map().epoch;
    let sets = ctx.map().pg_to_up_acting(pg);
    cmd.either(
        || {
            json!({"epoch": epoch, "raw_pgid": raw.to_string(), "pgid": pg.to_string(),
                "up": sets.up, "acting": sets.acting})
        },
        || {
            let (up, acting) = (show::ids(&sets.up), show::ids(&sets.acting));
            format!("osdmap e{epoch} pg {raw} ({pg}) -> up {up} acting {acting}\n")
        },
    )
}

fn debug(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let sum = Figures::of(ctx).sum();
    let found = match cmd.text("debugop") {
        "unfound_objects_exist" => sum.num_objects_unfound > 0,
        "degraded_pgs_exist" => sum.num_objects_degraded > 0,
        _ => return Outcome::invalid("No handler found for 'pg debug'"),
    };
    Outcome::ok(if found { "TRUE" } else { "FALSE" })
}
