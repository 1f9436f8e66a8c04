//! The doctor on disks without room: which OSD, for which placement groups, how much it would need, and what helps.
//!
//! A member of a placement group whose disk refused what was written is left out, as long as enough copies stay
//! (`min_size`). Where they would not, writes wait for room: that protects what was acknowledged, and is named here.
//!
//! Not here: OSDs that are nearly full (`doctor`, health), and what OSDs themselves do without room (`pg::replication`).

use crate::commands::context::Context;
use crate::commands::doctor::finding::{Finding, Level, osd_text, some};
use crate::format::shell::word;
use crate::format::units;
use crate::policies::auto_out;
use std::collections::{BTreeMap, BTreeSet};
use types::{OsdId, PgId};

/// What one OSD has no room for.
#[derive(Default)]
struct Lacking {
    /// Groups that cannot go on without it, and those that do.
    waiting: Vec<PgId>,
    without: Vec<PgId>,
    changes: u64,
}

pub fn no_room(ctx: &Context<'_>, out: &mut Vec<Finding>) {
    let mut by_osd: BTreeMap<OsdId, Lacking> = BTreeMap::new();
    let reports = ctx.stats.osds.values().flat_map(|r| &r.no_room);
    for (pg, n) in reports.flat_map(|(pg, list)| list.iter().map(move |n| (*pg, n))) {
        let l = by_osd.entry(n.osd).or_default();
        l.changes += n.lacks;
        match n.needed {
            true => l.waiting.push(pg),
            false => l.without.push(pg),
        }
    }
    for (osd, l) in by_osd {
        if !l.waiting.is_empty() {
            out.push(waiting(ctx, osd, &l));
        }
        if !l.without.is_empty() {
            out.push(without(ctx, osd, &l));
        }
    }
}

/// `has 0 B free of 1 GiB; the placement groups that belong there hold 1200 MiB, 176 MiB more than it has in all`
fn room(ctx: &Context<'_>, osd: OsdId) -> String {
    let Some(r) = ctx.stats.osds.get(&osd) else {
        return "has not reported how full it is".to_string();
    };
    let s = &r.stat.statfs;
    let bytes = |n: i64| units::bytes(n.max(0) as u64);
    let mut text = format!("has {} free of {}", bytes(s.available), bytes(s.total));
    let placed = placed(ctx, osd);
    text += &format!(
        "; the placement groups that belong there hold {}",
        units::bytes(placed)
    );
    let have = s.total.max(0) as u64;
    if placed > have {
        text += &format!(", {} more than it has in all", units::bytes(placed - have));
    }
    text
}

/// Bytes of the groups of which CRUSH wants a copy on the OSD, or that have one there.
fn placed(ctx: &Context<'_>, osd: OsdId) -> u64 {
    let here = |s: &types::pgstats::PgStat| s.up.contains(&osd) || s.acting.contains(&osd);
    let of = |(_, _, s): (OsdId, PgId, &types::pgstats::PgStat)| {
        here(s).then(|| s.stats.sum.num_bytes.max(0) as u64)
    };
    ctx.stats.pgs().filter_map(of).sum()
}

fn pools_of(ctx: &Context<'_>, pgs: &[PgId]) -> Vec<String> {
    let pools: BTreeSet<_> = pgs.iter().map(|pg| pg.pool).collect();
    let name = |id| ctx.map().pool_name(id).unwrap_or("?").to_string();
    pools.into_iter().map(name).collect()
}

/// How to do with one copy or shard less; nothing where no fewer have all objects.
fn fewer_copies(ctx: &Context<'_>, pgs: &[PgId]) -> String {
    let pools: BTreeSet<_> = pgs.iter().map(|pg| pg.pool).collect();
    let less = |id| {
        let (name, p) = (ctx.map().pool_name(id)?, ctx.map().pool(id)?);
        let set = |n: u8| format!("ceph osd pool set {} min_size {n}", word(name));
        (p.min_size > ctx.map().enough(p)).then(|| set(p.min_size - 1))
    };
    let all: Vec<String> = pools.into_iter().filter_map(less).collect();
    match all.is_empty() {
        true => String::new(),
        false => format!("; to go on with one copy less until then: {}", all.join("; ")),
    }
}

fn waiting(ctx: &Context<'_>, osd: OsdId, l: &Lacking) -> Finding {
    let pools = pools_of(ctx, &l.waiting);
    let host = ctx.osd_host(osd);
    let waits = format!(
        "writes wait: {} has no room for the copy ({}), and without it there would be fewer copies than min_size; {} changes wait",
        osd_text(ctx, osd),
        room(ctx, osd),
        l.changes
    );
    let fewer = fewer_copies(ctx, &l.waiting);
    let next = format!(
        "delete data (ceph df), or make room on host {host} (another program's files, a larger --osd-size or disk), or add an \
         OSD, to which copies move by themselves{fewer}"
    );
    Finding::new(
        Level::Blocked,
        format!("pg {} of pool {}", some(&l.waiting), some(&pools)),
        waits,
        next,
    )
}

fn without(ctx: &Context<'_>, osd: OsdId, l: &Lacking) -> Finding {
    let waits = format!(
        "{} has no room for its copy ({}): one copy fewer until it has",
        osd_text(ctx, osd),
        room(ctx, osd)
    );
    let otherwise = match auto_out::room_for(ctx.state, ctx.stats, osd) {
        Ok(()) => format!(", or: ceph osd out {osd}, and its copies are made elsewhere"),
        Err(_) => String::new(),
    };
    let next = format!("make room on host {}, or add OSDs{otherwise}", ctx.osd_host(osd));
    Finding::new(Level::Risk, format!("pg {}", some(&l.without)), waits, next)
}
