//! Commands about one placement group, to the OSD that leads it.

use super::table::{Answer, Args, Told};
use crate::health::PgHealth;
use crate::osd::Osd;
use pg::Pg;
use serde_json::{Value, json};
use types::pgstats::pg_state;
use types::{Errno, PgId};

fn led(osd: &Osd, id: PgId) -> Result<&Pg, (Errno, String)> {
    osd.primary(id)
        .ok_or_else(|| (Errno::ENOENT, format!("i don't have pgid {id}")))
}

/// Has the group scrubbed as soon as it may be; it does not wait for the time of a scheduled one.
pub fn scrub(osd: &mut Osd, args: &Args<'_>, deep: bool) -> Answer {
    let id = args.pgid()?;
    let slot = led(osd, id)?.id();
    osd.scrubs.ask(slot, deep);
    let stamp = osd.wall().to_string();
    Ok(json!({"deep": deep, "stamp": stamp}).into())
}

/// An object that a member lacks comes from another that has it: one is unfound only while none of them can be read.
pub fn unfound(osd: &mut Osd, args: &Args<'_>) -> Answer {
    let pg = led(osd, args.pgid()?)?;
    let missing: u64 = pg.members().iter().map(|m| m.dirty as u64).sum();
    let health = PgHealth::of(pg, &osd.placement.state.osdmap);
    Ok(json!({
        "num_missing": missing,
        "num_unfound": 0,
        "objects": [],
        "state": pg_state::names(health.state),
        "available_might_have_unfound": true,
        "might_have_unfound": [],
        "more": false,
    })
    .into())
}

pub fn lost(osd: &mut Osd, args: &Args<'_>) -> Answer {
    led(osd, args.pgid()?)?;
    Ok(Told::Said(
        Value::String(String::new()),
        "pg has no unfound objects".into(),
    ))
}

pub fn query(osd: &mut Osd, args: &Args<'_>) -> Answer {
    let id = args.pgid()?;
    let pg = led(osd, id)?;
    let stats = pg.stats();
    let health = PgHealth::of(pg, &osd.placement.state.osdmap);
    let peers: Vec<Value> = pg.members().iter().map(member).collect();
    let sets = osd.placement.state.osdmap.pg_to_up_acting(id);
    let history = osd.placement.state.pgs.get(id);
    let scrub = pg.scrub_view();
    let stamps = scrub.stamps;
    Ok(json!({
        "snap_trimq": "[]",
        "snap_trimq_len": 0,
        "state": pg_state::names(health.state),
        "epoch": osd.placement.epoch(),
        "up": sets.up,
        "acting": sets.acting,
        "in_sync": pg.group().in_sync,
        "positions": history.map(|c| &c.acting),
        "blocked_by": health.blocked_by,
        "peer_info": peers,
        "waiting_for_peered": pg.held(),
        "info": {
            "pgid": id.to_string(),
            "last_update": format!("{}'{}", osd.placement.epoch(), stats.version),
            "last_user_version": stats.user_version,
            "history": {
                "same_interval_since": history.map_or(0, |c| c.interval),
                "last_scrub": stamps.version.to_string(),
                "last_scrub_stamp": stamps.at.to_string(),
                "last_deep_scrub": stamps.deep_version.to_string(),
                "last_deep_scrub_stamp": stamps.deep_at.to_string(),
                "last_clean_scrub_stamp": stamps.clean_at.to_string(),
            },
            "stats": {"stat_sum": {
                "num_bytes": stats.bytes,
                "num_objects": stats.objects,
                "num_object_clones": stats.clones,
                "num_whiteouts": stats.whiteouts,
                "num_read": stats.reads,
                "num_write": stats.writes,
                "num_scrub_errors": stamps.errors(),
                "num_shallow_scrub_errors": stamps.shallow_errors,
                "num_deep_scrub_errors": stamps.deep_errors,
                "num_objects_repaired": scrub.repaired,
            }},
        },
    })
    .into())
}

fn member(m: &pg::MemberState) -> Value {
    json!({"peer": m.osd.to_string(), "in_sync": m.in_sync, "state": m.state, "objects_missing": m.dirty,
           "backfill": m.backfill})
}
