//! Scrubs on demand: wishes that the primaries see in the cluster state.

use crate::commands::command::{Command, Outcome};
use crate::commands::context::Context;
use crate::commands::language::ids;
use crate::commands::language::ids::parse_osd_id;
use crate::commands::spec::{Spec, spec};
use types::{Errno, OsdId, PgId};

const PG: (&str, &str) = ("pg", "rw");
const OSD: (&str, &str) = ("osd", "rw");

pub const TABLE: &[Spec] = &[
    spec(PG, "pg scrub pgid:pgid", "compare the copies' metadata", pg_scrub).by_manager(""),
    spec(PG, "pg deep-scrub pgid:pgid", "compare the copies' data", pg_deep).by_manager(""),
    spec(
        PG,
        "pg repair pgid:pgid",
        "compare the copies' data, and repair bad ones",
        pg_repair,
    )
    .by_manager(""),
    spec(OSD, "osd scrub who:str", "scrub what an OSD leads", osd_scrub).by_manager(""),
    spec(
        OSD,
        "osd deep-scrub who:str",
        "deep-scrub what an OSD leads",
        osd_deep,
    )
    .by_manager(""),
    spec(OSD, "osd repair who:str", "repair what an OSD leads", osd_repair).by_manager(""),
    spec(OSD, "osd pool scrub who*:pool", "scrub pools", pool_scrub).by_manager(""),
    spec(
        OSD,
        "osd pool deep-scrub who*:pool",
        "deep-scrub pools",
        pool_deep,
    )
    .by_manager(""),
    spec(OSD, "osd pool repair who*:pool", "repair pools", pool_repair).by_manager(""),
];

/// What is asked of the primaries.
#[derive(Clone, Copy)]
enum Kind {
    Light,
    Deep,
    Repair,
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Self::Light => "scrub",
            Self::Deep => "deep-scrub",
            Self::Repair => "repair",
        }
    }
}

fn wish(ctx: &Context<'_>, pgs: &[PgId], kind: Kind, said: String) -> Outcome {
    let (deep, repair) = (!matches!(kind, Kind::Light), matches!(kind, Kind::Repair));
    match ctx.state.wish_scrubs(pgs, deep, repair) {
        Some(changes) => Outcome::status(said).with(changes),
        None => Outcome::error(
            Errno::EAGAIN,
            format!(
                "{} placement groups wait to be scrubbed: too many",
                ctx.state.scrubs.len()
            ),
        ),
    }
}

fn one_pg(cmd: &Command, ctx: &Context<'_>, kind: Kind) -> Outcome {
    let text = cmd.text("pgid");
    let Ok(pg) = text.parse::<PgId>() else {
        return Outcome::invalid(format!("invalid pgid '{text}'"));
    };
    if ctx.map().pool(pg.pool).is_none_or(|p| pg.seed >= p.pg_num) {
        return Outcome::absent(format!("pg {pg} does not exist"));
    }
    let primary = ctx.map().pg_to_up_acting(pg).acting_primary;
    if primary < 0 {
        return Outcome::error(Errno::EAGAIN, format!("pg {pg} has no primary osd"));
    }
    let said = format!("instructing pg {pg} on osd.{primary} to {}", kind.word());
    wish(ctx, &[pg], kind, said)
}

fn pg_scrub(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    one_pg(cmd, ctx, Kind::Light)
}
fn pg_deep(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    one_pg(cmd, ctx, Kind::Deep)
}
fn pg_repair(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    one_pg(cmd, ctx, Kind::Repair)
}

fn the_osds(ctx: &Context<'_>, who: &str) -> Result<Vec<OsdId>, Outcome> {
    let map = ctx.map();
    if matches!(who, "*" | "all" | "any") {
        return Ok(map.osd_ids().filter(|o| map.is_up(*o)).collect());
    }
    let id = parse_osd_id(who).map_err(|_| {
        Outcome::invalid(format!(
            "Expected option value to be integer, got '{who}'invalid osd '{who}'"
        ))
    })?;
    if !map.is_up(id) {
        return Err(Outcome::error(Errno::EAGAIN, format!("osd.{id} is not up")));
    }
    Ok(vec![id])
}

fn of_osds(cmd: &Command, ctx: &Context<'_>, kind: Kind) -> Outcome {
    let osds = match the_osds(ctx, cmd.text("who")) {
        Ok(osds) => osds,
        Err(refusal) => return refusal,
    };
    let pgs = ctx.state.pgs.iter().filter(|(_, c)| osds.contains(&c.primary));
    let pgs: Vec<PgId> = pgs.map(|(pg, _)| pg).collect();
    let names: Vec<String> = osds.iter().map(OsdId::to_string).collect();
    let said = format!("instructed osd(s) {} to {}", names.join(","), kind.word());
    wish(ctx, &pgs, kind, said)
}

fn osd_scrub(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    of_osds(cmd, ctx, Kind::Light)
}
fn osd_deep(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    of_osds(cmd, ctx, Kind::Deep)
}
fn osd_repair(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    of_osds(cmd, ctx, Kind::Repair)
}

fn of_pools(cmd: &Command, ctx: &Context<'_>, kind: Kind) -> Outcome {
    let mut pgs: Vec<PgId> = Vec::new();
    for name in cmd.list("who") {
        let Some(id) = ctx.map().pool_by_name(name) else {
            return ids::unknown_pool(name);
        };
        let pg_num = ctx.map().pool(id).map_or(0, |p| p.pg_num);
        pgs.extend((0..pg_num).map(|seed| PgId::new(id, seed)));
    }
    wish(ctx, &pgs, kind, String::new())
}

fn pool_scrub(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    of_pools(cmd, ctx, Kind::Light)
}
fn pool_deep(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    of_pools(cmd, ctx, Kind::Deep)
}
fn pool_repair(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    of_pools(cmd, ctx, Kind::Repair)
}
