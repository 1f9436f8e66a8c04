//! The doctor on placement groups that serve and are not clean: for each, what keeps it from being clean, and what comes next.
//!
//! Those of one reason are one finding. Every group that is active and not clean is in one, also where nothing better is known than
//! who works on it. Not here: groups that do not serve (`doctor`).

use crate::commands::context::Context;
use crate::commands::doctor::finding::{Finding, Level, osd_text, some};
use crate::commands::views::pg_stats::Figures;
use crate::policies::places;
use std::collections::BTreeMap;
use types::osdmap::map_flag;
use types::pgstats::{PgStat, pg_state};
use types::{OsdId, PgId};

pub fn unclean(ctx: &Context<'_>, figures: &Figures, out: &mut Vec<Finding>) {
    let mut found: BTreeMap<(Level, String, String), Vec<PgId>> = BTreeMap::new();
    for (pg, s) in &figures.pgs {
        if s.state & pg_state::ACTIVE != 0 && s.state & pg_state::CLEAN == 0 {
            found.entry(reason(ctx, *pg, s)).or_default().push(*pg);
        }
    }
    for ((level, waits, next), pgs) in found {
        let subject = format!("pg {}", some(&pgs));
        out.push(Finding::new(level, subject, format!("not clean: {waits}"), next));
    }
}

/// What is in the way first.
fn reason(ctx: &Context<'_>, pg: PgId, s: &PgStat) -> (Level, String, String) {
    let map = ctx.map();
    let leads = ctx.state.pgs.get(pg).map_or(s.acting_primary, |c| c.primary);
    let holders = ctx
        .state
        .pgs
        .get(pg)
        .map_or(s.acting.clone(), |c| c.in_sync.clone());
    let names = |all: &[OsdId]| -> String {
        let texts: Vec<String> = all.iter().map(|o| osd_text(ctx, *o)).collect();
        texts.join("; ")
    };
    if s.acting_primary != leads || !map.is_up(leads) {
        return (
            Level::Note,
            format!("{} leads now and has not reported yet", osd_text(ctx, leads)),
            "nothing: it reports within seconds".into(),
        );
    }
    let roomless = roomless(ctx, pg);
    if !roomless.is_empty() {
        return (
            Level::Risk,
            format!("there is no room for the copy on {}", names(&roomless)),
            "see the finding of that OSD; ceph osd df".into(),
        );
    }
    let down: Vec<OsdId> = holders.iter().copied().filter(|o| !map.is_up(*o)).collect();
    if !down.is_empty() {
        return (
            Level::Risk,
            format!("waits for {}, which holds a copy that counts", names(&down)),
            "start it again; see the finding of that OSD".into(),
        );
    }
    let size = map.pool(pg.pool).map_or(0, |p| usize::from(p.size));
    let up: Vec<OsdId> = places::present(&s.up).collect();
    let lacking: Vec<OsdId> = up.iter().copied().filter(|o| !holders.contains(o)).collect();
    if up.len() < size && lacking.is_empty() {
        return (
            Level::Risk,
            format!("{size} copies are wanted, and there are OSDs for {}", up.len()),
            "start the OSDs that are down (ceph osd tree down), or add some, or fewer copies: ceph osd pool set POOL size N".into(),
        );
    }
    if !lacking.is_empty() {
        let backfill = s.state & (pg_state::BACKFILLING | pg_state::BACKFILL_WAIT) != 0;
        if let Some(flag) = held_by(map.flags, backfill, holders.len() >= size) {
            return (
                Level::Risk,
                format!("copies to {} are held up by the flag {flag}", names(&lacking)),
                format!("ceph osd unset {flag}"),
            );
        }
        let how = if backfill {
            "all objects are compared"
        } else {
            "what changed is copied"
        };
        return (
            Level::Note,
            format!("{how} to {}", names(&lacking)),
            "nothing: it goes on by itself; faster: ceph config set osd osd_recovery_profile urgent".into(),
        );
    }
    let extra: Vec<OsdId> = holders.iter().copied().filter(|o| !s.up.contains(o)).collect();
    if !extra.is_empty() {
        return (
            Level::Note,
            format!(
                "all copies are made; {} is about to let its own go",
                names(&extra)
            ),
            format!("nothing: it goes on by itself; if not: ceph pg {pg} query"),
        );
    }
    if let (Some(first), true) = (s.up.first(), s.up.first() != holders.first()) {
        return (
            Level::Note,
            format!(
                "{} is to lead, and takes over when all is durable everywhere",
                osd_text(ctx, *first)
            ),
            format!("nothing: it is tried every few seconds; ceph pg {pg} query"),
        );
    }
    if !s.blocked_by.is_empty() {
        return (
            Level::Slow,
            format!("waits for an answer of {}", names(&s.blocked_by)),
            "look at those OSDs' logs and hosts: they are up and do not answer".into(),
        );
    }
    (
        Level::Note,
        format!(
            "its copies are brought to the same state by {}",
            osd_text(ctx, leads)
        ),
        format!("nothing: it goes on by itself; ceph pg {pg} query"),
    )
}

fn roomless(ctx: &Context<'_>, pg: PgId) -> Vec<OsdId> {
    let lists = ctx.stats.osds.values().filter_map(|r| r.no_room.get(&pg));
    lists.flatten().map(|n| n.osd).collect()
}

/// The flag by which an operator holds such copies up.
fn held_by(flags: u32, backfill: bool, whole: bool) -> Option<&'static str> {
    let set = |bit: u32| flags & bit != 0;
    match backfill {
        true if set(map_flag::NOBACKFILL) => Some("nobackfill"),
        true if set(map_flag::NOREBALANCE) && whole => Some("norebalance"),
        false if set(map_flag::NORECOVER) => Some("norecover"),
        _ => None,
    }
}
