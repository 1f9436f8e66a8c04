//! Whether OSDs can be stopped, destroyed, forgotten: asked of the PGs' configurations, not only of the map.
//!
//! An OSD is needed as long as a PG lies on it, shall lie on it, or counts it among those that hold every
//! acknowledged write.

use crate::commands::command::{Command, Outcome};
use crate::commands::context::Context;
use crate::commands::language::ids;
use crate::commands::spec::{Spec, spec};
use crate::commands::views::pg_stats::{Figures, needed_by};
use serde_json::{Map, Value, json};
use types::pgstats::{PgStat, pg_state};
use types::{Errno, OsdId, PgId};

const R: (&str, &str) = ("osd", "r");

pub const TABLE: &[Spec] = &[
    spec(
        R,
        "osd safe-to-destroy ids*:str",
        "whether OSDs hold nothing any more",
        safe_to_destroy,
    )
    .by_manager(""),
    spec(
        R,
        "osd ok-to-stop ids*:str max?:int",
        "whether OSDs can be stopped without making data unavailable",
        ok_to_stop,
    )
    .by_manager(""),
];

fn wanted_osds(cmd: &Command, ctx: &Context<'_>) -> Result<Vec<OsdId>, Outcome> {
    let mut out = Vec::new();
    for text in cmd.list("ids") {
        if matches!(text, "all" | "any" | "*") {
            out.extend(ctx.map().osd_ids());
            continue;
        }
        out.push(ids::parse_osd_id(text).map_err(Outcome::invalid)?);
    }
    out.sort_unstable();
    out.dedup();
    Ok(out)
}

/// `0,2`
pub fn list(ids: &[OsdId]) -> String {
    ids.iter().map(i32::to_string).collect::<Vec<_>>().join(",")
}

fn safe_to_destroy(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let osds = match wanted_osds(cmd, ctx) {
        Ok(osds) => osds,
        Err(refusal) => return refusal,
    };
    let figures = Figures::of(ctx);
    let needed: Vec<(OsdId, usize)> = osds
        .iter()
        .map(|id| (*id, needed_by(ctx, &figures, *id).len()))
        .collect();
    let (active, safe): (Vec<_>, Vec<_>) = needed.iter().copied().partition(|(_, n)| *n > 0);
    let ids = |v: &[(OsdId, usize)]| v.iter().map(|(id, _)| *id).collect::<Vec<OsdId>>();
    let (active_ids, safe_ids) = (ids(&active), ids(&safe));
    let body = json!({
        "safe_to_destroy": safe_ids, "active": active_ids, "missing_stats": [], "stored_pgs": []
    });
    let mut out = match cmd.wants_json() {
        true => cmd.json(&body),
        false => Outcome::default(),
    };
    if active.is_empty() {
        return out.saying(format!(
            "OSD(s) {} are safe to destroy without reducing data durability.",
            list(&safe_ids)
        ));
    }
    let n: usize = active.iter().map(|(_, n)| n).sum();
    out.code = Errno::EBUSY.code();
    out.saying(format!(
        "OSD(s) {} have {n} pgs currently mapped to them. ",
        list(&active_ids)
    ))
}

/// What becomes of one PG when some OSDs stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fate {
    AlreadyInactive,
    Inactive,
    MoreDegraded,
    Degraded,
}

impl Fate {
    const KEYS: [(Fate, &'static str); 4] = [
        (Fate::AlreadyInactive, "bad_already_inactive"),
        (Fate::Inactive, "bad_become_inactive"),
        (Fate::Degraded, "ok_become_degraded"),
        (Fate::MoreDegraded, "ok_become_more_degraded"),
    ];

    fn is_bad(self) -> bool {
        matches!(self, Self::AlreadyInactive | Self::Inactive)
    }
}

/// None: the PG does not need these OSDs.
fn fate(ctx: &Context<'_>, pg: PgId, s: &PgStat, stopped: &[OsdId]) -> Option<Fate> {
    // Who can serve: the members that hold all writes and are up.
    let holders = match ctx.state.pgs.get(pg) {
        Some(c) => c.in_sync.clone(),
        None => s.acting.clone(),
    };
    let concerned = |set: &[OsdId]| set.iter().any(|o| stopped.contains(o));
    if !concerned(&holders) && !concerned(&s.acting) {
        return None;
    }
    if s.state & pg_state::ACTIVE == 0 {
        return Some(Fate::AlreadyInactive);
    }
    let left = holders
        .iter()
        .filter(|o| ctx.map().is_up(**o) && !stopped.contains(o))
        .count();
    let min = ctx
        .map()
        .pool(pg.pool)
        .map_or(1, |p| usize::from(p.min_size.max(1)));
    if left < min {
        return Some(Fate::Inactive);
    }
    match s.state & (pg_state::DEGRADED | pg_state::UNDERSIZED) {
        0 => Some(Fate::Degraded),
        _ => Some(Fate::MoreDegraded),
    }
}

fn ok_to_stop(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let osds = match wanted_osds(cmd, ctx) {
        Ok(osds) => osds,
        Err(refusal) => return refusal,
    };
    let figures = Figures::of(ctx);
    let fates: Vec<(PgId, Fate)> = figures
        .pgs
        .iter()
        .filter_map(|(pg, s)| Some((*pg, fate(ctx, *pg, s, &osds)?)))
        .collect();
    let bad = fates.iter().filter(|(_, f)| f.is_bad()).count();
    let mut v = Map::new();
    v.insert("ok_to_stop".into(), (bad == 0).into());
    v.insert("osds".into(), json!(osds));
    v.insert("num_ok_pgs".into(), (fates.len() - bad).into());
    v.insert("num_not_ok_pgs".into(), bad.into());
    for (fate, key) in Fate::KEYS {
        let pgs: Vec<String> = fates
            .iter()
            .filter(|(_, f)| *f == fate)
            .map(|(pg, _)| pg.to_string())
            .collect();
        if !pgs.is_empty() {
            v.insert(key.into(), json!(pgs));
        }
    }
    let mut out = cmd.json_compact(&Value::Object(v));
    if bad > 0 {
        out.code = Errno::EBUSY.code();
        out.status = format!("unsafe to stop osd(s) at this time ({bad} PGs are or would become offline)");
    }
    out
}
