//! Commands that place single PGs by hand: upmaps (which stay), and temporary sets (which the replication manages).
//!
//! A temporary set is no way to tell where data is: the next commit settles it again from the PG's configuration.

use crate::commands::command::{Command, Outcome};
use crate::commands::context::Context;
use crate::commands::osd::change;
use crate::commands::spec::{Spec, spec};
use crate::commands::views::show;
use cluster::Changes;
use serde_json::Value;
use types::{Errno, OsdId, PgId, release};

const RW: (&str, &str) = ("osd", "rw");

const RECREATES: &str = "This command will recreate a lost (as in data lost) PG with data in it, such that the cluster will give up ever trying to recover the lost data.  Do this only if you are certain that all copies of the PG are in fact lost and you are willing to accept that the data is permanently destroyed.  Pass --yes-i-really-mean-it to proceed.";

pub const TABLE: &[Spec] = &[
    spec(
        RW,
        "osd pg-upmap pgid:pgid id*:osd",
        "set on which OSDs a placement group shall lie",
        upmap,
    ),
    spec(
        RW,
        "osd rm-pg-upmap pgid:pgid",
        "let CRUSH place a placement group again",
        rm_upmap,
    ),
    spec(
        RW,
        "osd pg-upmap-items pgid:pgid id*:osd",
        "replace OSDs in the set of a placement group: FROM TO, and so on",
        upmap_items,
    ),
    spec(
        RW,
        "osd rm-pg-upmap-items pgid:pgid",
        "replace no OSDs in the set of a placement group any more",
        rm_upmap_items,
    ),
    spec(
        RW,
        "osd pg-temp pgid:pgid id?*:osd",
        "set who serves a placement group until its configuration is settled",
        pg_temp,
    ),
    spec(
        RW,
        "osd primary-temp pgid:pgid id:osd",
        "set the primary of a placement group for now",
        primary_temp,
    ),
    spec(
        RW,
        "osd force-create-pg pgid:pgid yes_i_really_mean_it?:bool",
        "not here: give up an OSD that is gone by 'osd lost'",
        force_create,
    ),
];

/// An empty group in place of one whose copies are all lost: there is no way back from a mistake, and none to it yet.
fn force_create(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let text = cmd.text("pgid");
    let Ok(pg) = text.parse::<PgId>() else {
        return Outcome::invalid(format!("invalid pgid '{text}'"));
    };
    if ctx.map().pool(pg.pool).is_none_or(|p| pg.seed >= p.pg_num) {
        return Outcome::absent(format!("pg {pg} should not exist"));
    }
    if !cmd.flag("yes_i_really_mean_it") {
        return Outcome::error(Errno::EPERM, RECREATES);
    }
    let why = format!(
        "'osd force-create-pg' is not here: 'ceph doctor' tells what pg {pg} waits for, and 'ceph osd lost' gives up an OSD"
    );
    Outcome::error(Errno::EOPNOTSUPP, why)
}

/// The PG of the arguments, if it exists.
pub fn the_pg(cmd: &Command, ctx: &Context<'_>) -> Result<PgId, Outcome> {
    let text = cmd.text("pgid");
    let pg: PgId = text
        .parse()
        .map_err(|()| Outcome::invalid(format!("invalid pgid '{text}'")))?;
    match ctx.map().pool(pg.pool) {
        Some(p) if pg.seed < p.pg_num => Ok(pg),
        _ => Err(Outcome::absent(format!("pg {pg} does not exist"))),
    }
}

/// The OSDs of the arguments; all must exist.
fn osds(cmd: &Command, ctx: &Context<'_>) -> Result<Vec<OsdId>, Outcome> {
    let ids = cmd.args.get("id").and_then(Value::as_array);
    let mut out = Vec::new();
    for id in ids.into_iter().flatten().filter_map(Value::as_i64) {
        match OsdId::try_from(id) {
            Ok(osd) if ctx.map().exists(osd) => out.push(osd),
            _ => return Err(Outcome::absent(format!("osd.{id} does not exist"))),
        }
    }
    Ok(out)
}

/// Clients older than luminous do not know upmaps and would look in the wrong places.
fn clients_know(ctx: &Context<'_>) -> Result<(), Outcome> {
    let floor = ctx.map().require_min_compat_client;
    if floor >= release::LUMINOUS {
        return Ok(());
    }
    let why = format!(
        "min_compat_client {} < luminous, which is required for pg-upmap. Try 'ceph osd \
         set-require-min-compat-client luminous' before using the new interface",
        release::name(floor)
    );
    Err(Outcome::error(Errno::EPERM, why))
}

fn upmap(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let parts = clients_know(ctx)
        .and_then(|()| the_pg(cmd, ctx))
        .and_then(|pg| Ok((pg, osds(cmd, ctx)?)));
    let (pg, named) = match parts {
        Ok(p) => p,
        Err(refusal) => return refusal,
    };
    let mut set: Vec<OsdId> = Vec::new();
    let mut said = String::new();
    for osd in &named {
        match set.contains(osd) {
            true => said.push_str(&format!("osd.{osd} already exists, ")),
            false => set.push(*osd),
        }
    }
    let size = ctx.map().pool(pg.pool).map_or(0, |p| usize::from(p.size));
    if set.is_empty() {
        return Outcome::invalid("no valid upmap items(pairs) is specified");
    }
    if set.len() > size {
        return Outcome::invalid(format!("num of osds ({}) > pool size ({size})", set.len()));
    }
    said.push_str(&format!("set {pg} pg_upmap mapping to {}", show::ids(&set)));
    let mut inc = ctx.inc();
    inc.new_pg_upmap.insert(pg, set);
    Outcome::status(said).with(Changes::map(inc))
}

fn rm_upmap(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let pg = match the_pg(cmd, ctx) {
        Ok(pg) => pg,
        Err(refusal) => return refusal,
    };
    let said = Outcome::status(format!("clear {pg} pg_upmap mapping"));
    if !ctx.map().pg_upmap.contains_key(&pg) {
        return said;
    }
    let mut inc = ctx.inc();
    inc.old_pg_upmap.insert(pg);
    said.with(Changes::map(inc))
}

fn upmap_items(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let parts = clients_know(ctx)
        .and_then(|()| the_pg(cmd, ctx))
        .and_then(|pg| Ok((pg, osds(cmd, ctx)?)));
    let (pg, named) = match parts {
        Ok(p) => p,
        Err(refusal) => return refusal,
    };
    if named.is_empty() || !named.len().is_multiple_of(2) {
        return Outcome::invalid("you must specify pairs of osd ids to be remapped");
    }
    let size = ctx.map().pool(pg.pool).map_or(0, |p| usize::from(p.size));
    if named.len() / 2 > size {
        return Outcome::invalid(format!(
            "num of osd pairs ({}) > pool size ({size})",
            named.len() / 2
        ));
    }
    let mut said = String::new();
    let mut pairs: Vec<(OsdId, OsdId)> = Vec::new();
    for pair in named.chunks_exact(2) {
        let (from, to) = (pair[0], pair[1]);
        match from == to {
            true => said.push_str(&format!("from osd.{from} == to osd.{to}, ")),
            false => pairs.push((from, to)),
        }
    }
    if pairs.is_empty() {
        said.push_str("no valid upmap items(pairs) is specified");
        return Outcome::invalid(said);
    }
    let text: Vec<String> = pairs.iter().map(|(f, t)| format!("{f}->{t}")).collect();
    said.push_str(&format!(
        "set {pg} pg_upmap_items mapping to [{}]",
        text.join(",")
    ));
    let mut inc = ctx.inc();
    inc.new_pg_upmap_items.insert(pg, pairs);
    Outcome::status(said).with(Changes::map(inc))
}

fn rm_upmap_items(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let pg = match the_pg(cmd, ctx) {
        Ok(pg) => pg,
        Err(refusal) => return refusal,
    };
    let said = Outcome::status(format!("clear {pg} pg_upmap_items mapping"));
    if !ctx.map().pg_upmap_items.contains_key(&pg) {
        return said;
    }
    let mut inc = ctx.inc();
    inc.old_pg_upmap_items.insert(pg);
    said.with(Changes::map(inc))
}

fn pg_temp(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let (pg, osds) = match the_pg(cmd, ctx).and_then(|pg| Ok((pg, osds(cmd, ctx)?))) {
        Ok(p) => p,
        Err(refusal) => return refusal,
    };
    let text = match osds.is_empty() {
        true => format!("done cleaning up pg_temp of {pg}"),
        false => format!("set {pg} pg_temp mapping to {}", show::ids(&osds)),
    };
    let mut inc = ctx.inc();
    inc.new_pg_temp.insert(pg, osds);
    Outcome::status(text).with(Changes::map(inc))
}

fn primary_temp(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let pg = match the_pg(cmd, ctx) {
        Ok(pg) => pg,
        Err(refusal) => return refusal,
    };
    let osd = match cmd.int("id") {
        Some(-1) => -1,
        _ => match change::the_osd(cmd, ctx) {
            Ok(id) => id,
            Err(refusal) => return refusal,
        },
    };
    let mut inc = ctx.inc();
    inc.new_primary_temp.insert(pg, osd);
    Outcome::status(format!("set {pg} primary_temp mapping to {osd}")).with(Changes::map(inc))
}
