//! Weights that even out how full OSDs are: `osd reweight-by-utilization`, `osd reweight-by-pg`, both as a test, and
//! `osd reweightn`.
//!
//! *Load* is what an OSD bears for what it should: its part of used space, or of placement groups for its CRUSH weight.
//! One above the threshold (a percentage of the average) takes less; one that was lowered before and bears less than the
//! average takes more. The heaviest are seen first, each changes by at most so much, and at most so many do: an
//! operator repeats the command until nothing moves any more.
//!
//! Invariant: no weight becomes 0, which would be out. Not here: OSDs in spare space, whose weights follow their
//! hosts' room (`crate::policies::spare`): they are left as they are.

use crate::commands::command::{Command, Outcome};
use crate::commands::context::Context;
use crate::commands::language::ids;
use crate::commands::spec::{Spec, spec};
use crate::commands::views::pg_stats::Figures;
use crate::format::json::significant;
use crate::policies::{places, spare};
use cluster::Changes;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use types::osdmap::{Incremental, OsdMap};
use types::{Errno, OsdId, PoolId};

const RW: (&str, &str) = ("osd", "rw");
const R: (&str, &str) = ("osd", "r");

pub const TABLE: &[Spec] = &[
    spec(
        RW,
        "osd reweightn weights:str",
        "set the shares of data of several OSDs: {\"ID\": SHARE in 65536ths, ...}",
        reweightn,
    ),
    spec(
        RW,
        "osd reweight-by-utilization oload?:int max_change?:float max_osds?:int no_increasing?:bool",
        "move data off the fullest OSDs",
        by_utilization,
    ),
    spec(
        R,
        "osd test-reweight-by-utilization oload?:int max_change?:float max_osds?:int no_increasing?:bool",
        "what reweight-by-utilization would do",
        test_by_utilization,
    )
    .by_manager(""),
    spec(
        RW,
        "osd reweight-by-pg oload?:int max_change?:float max_osds?:int pools?*:pool",
        "move data off the OSDs with the most placement groups",
        by_pg,
    ),
    spec(
        R,
        "osd test-reweight-by-pg oload?:int max_change?:float max_osds?:int pools?*:pool",
        "what reweight-by-pg would do",
        test_by_pg,
    )
    .by_manager(""),
];

const OLOAD_DEFAULT: i64 = 120;
const MAX_CHANGE_DEFAULT: f64 = 0.05;
const MAX_OSDS_DEFAULT: i64 = 4;
/// With less on each OSD on average, what is uneven says nothing.
const BYTES_PER_OSD_MIN: u64 = 100 << 20;
const PGS_PER_OSD_MIN: f64 = 10.0;
/// Share 1.0.
const WHOLE: f64 = 65_536.0;

/// What the caller allows.
#[derive(Debug, Clone, Copy)]
struct Limits {
    oload: i64,
    max_change: f64,
    max_osds: i64,
    increase: bool,
}

impl Limits {
    fn of(cmd: &Command) -> Result<Self, Outcome> {
        let l = Self {
            oload: cmd.int("oload").unwrap_or(OLOAD_DEFAULT),
            max_change: cmd.real("max_change").unwrap_or(MAX_CHANGE_DEFAULT),
            max_osds: cmd.int("max_osds").unwrap_or(MAX_OSDS_DEFAULT),
            increase: !cmd.flag("no_increasing"),
        };
        if l.oload <= 100 {
            return Err(Outcome::invalid(
                "You must give a percentage higher than 100. The reweighting threshold will be calculated as \
                 <average-utilization> times <input-percentage>. For example, an argument of 200 would reweight OSDs \
                 which are twice as utilized as the average OSD.\nFAILED reweight-by-pg",
            ));
        }
        if l.max_change <= 0.0 {
            return Err(Outcome::invalid(format!(
                "max_change {} must be positive",
                significant(l.max_change, 6)
            )));
        }
        if l.max_osds <= 0 {
            return Err(Outcome::invalid(format!(
                "max_osds {} must be positive",
                l.max_osds
            )));
        }
        Ok(l)
    }
}

/// One OSD's load, and its share of data in 16.16.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Loaded {
    osd: OsdId,
    load: f64,
    weight: u32,
}

/// An OSD whose share changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Step {
    osd: OsdId,
    from: u32,
    to: u32,
}

/// The changes that bring loads nearer to the average.
fn plan(mut osds: Vec<Loaded>, average: f64, limits: Limits) -> Vec<Step> {
    let over = average * limits.oload as f64 / 100.0;
    osds.sort_by(|a, b| b.load.total_cmp(&a.load).then(a.osd.cmp(&b.osd)));
    let mut out = Vec::new();
    for o in osds {
        if out.len() as i64 >= limits.max_osds {
            break;
        }
        let now = f64::from(o.weight) / WHOLE;
        let wanted = if o.load > over {
            (now * average / o.load).max(now - limits.max_change)
        } else if o.load < average && now < 1.0 && limits.increase {
            let even = if o.load > 0.0 { now * average / o.load } else { 1.0 };
            even.min(now + limits.max_change).min(1.0)
        } else {
            continue;
        };
        let to = ((wanted * WHOLE) as u32).max(1);
        if to != o.weight {
            out.push(Step {
                osd: o.osd,
                from: o.weight,
                to,
            });
        }
    }
    out
}

/// OSDs that take data and whose weights are the operator's.
fn candidates(ctx: &Context<'_>) -> Vec<OsdId> {
    let map = ctx.map();
    let spared: BTreeSet<OsdId> = spare::spared(map, ctx.stats).map(|(id, ..)| id).collect();
    let takes = |id: &OsdId| map.is_in(*id) && !spared.contains(id);
    map.osd_ids().filter(takes).collect()
}

fn refuse(why: String) -> Outcome {
    Outcome::error(Errno::EDOM, why)
}

/// Loads by used space, and their average.
fn loads_by_space(ctx: &Context<'_>) -> Result<(Vec<Loaded>, f64), Outcome> {
    let figures = Figures::of(ctx);
    let used = |s: &types::pgstats::StoreStatfs| s.used().max(0) as u64;
    let (mut all, mut total) = (0u64, 0u64);
    let mut out = Vec::new();
    for id in candidates(ctx) {
        let Some(s) = figures.disks.get(&id).filter(|s| s.total > 0) else {
            continue;
        };
        all += used(s);
        total += s.total.max(0) as u64;
        out.push(Loaded {
            osd: id,
            load: used(s) as f64 / s.total as f64,
            weight: ctx.map().weight(id),
        });
    }
    if out.is_empty() || all / (out.len() as u64) < BYTES_PER_OSD_MIN {
        let kb = all / 1024;
        return Err(refuse(format!(
            "Refusing to reweight: we only have {kb} kb used across all osds!\n"
        )));
    }
    Ok((out, all as f64 / total as f64))
}

/// Loads by placement groups (of some pools, or of all), and their average.
fn loads_by_pgs(ctx: &Context<'_>, pools: &BTreeSet<PoolId>) -> Result<(Vec<Loaded>, f64), Outcome> {
    let map = ctx.map();
    let mut pgs: BTreeMap<OsdId, u32> = BTreeMap::new();
    for pg in map
        .pgs()
        .filter(|pg| pools.is_empty() || pools.contains(&pg.pool))
    {
        for osd in places::present(&map.pg_to_up_acting(pg).up) {
            *pgs.entry(osd).or_default() += 1;
        }
    }
    let (mut all, mut weights) = (0.0, 0.0);
    let mut out = Vec::new();
    for id in candidates(ctx) {
        let crush = f64::from(map.crush.weight_of(id).unwrap_or(0)) / WHOLE;
        if crush <= 0.0 {
            continue;
        }
        let mine = f64::from(pgs.get(&id).copied().unwrap_or(0));
        all += mine;
        weights += crush;
        out.push(Loaded {
            osd: id,
            load: mine / crush,
            weight: map.weight(id),
        });
    }
    if out.is_empty() || all / (out.len() as f64) < PGS_PER_OSD_MIN {
        return Err(refuse(format!(
            "Refusing to reweight: we only have {all} PGs across {} osds!\n",
            out.len()
        )));
    }
    Ok((out, all / weights))
}

/// Copies of placement groups on each OSD, by the map's own placement.
fn spread(map: &OsdMap) -> BTreeMap<OsdId, u32> {
    let mut out: BTreeMap<OsdId, u32> = map.osd_ids().filter(|o| map.is_in(*o)).map(|o| (o, 0)).collect();
    for pg in map.pgs() {
        for osd in places::present(&map.pg_to_up_acting(pg).up) {
            *out.entry(osd).or_default() += 1;
        }
    }
    out
}

/// Copies that would move, of how many.
fn moved(before: &OsdMap, after: &OsdMap) -> (usize, usize) {
    let (mut moved, mut all) = (0, 0);
    for pg in before.pgs() {
        let (old, new) = (before.pg_to_up_acting(pg).up, after.pg_to_up_acting(pg).up);
        all += old.len();
        moved += new.iter().filter(|o| !old.contains(o)).count();
    }
    (moved, all)
}

/// How placement groups spread: average, deviation, the OSDs with the fewest and the most.
struct Evenness {
    average: f64,
    deviation: f64,
    min: (OsdId, u32),
    max: (OsdId, u32),
}

impl Evenness {
    fn of(pgs: &BTreeMap<OsdId, u32>) -> Self {
        let n = pgs.len().max(1) as f64;
        let average = pgs.values().map(|c| f64::from(*c)).sum::<f64>() / n;
        let square: f64 = pgs.values().map(|c| (f64::from(*c) - average).powi(2)).sum();
        let pair = |(o, c): (&OsdId, &u32)| (*o, *c);
        Self {
            average,
            deviation: (square / n).sqrt(),
            min: pgs.iter().min_by_key(|(_, c)| **c).map_or((-1, 0), pair),
            max: pgs.iter().max_by_key(|(_, c)| **c).map_or((-1, 0), pair),
        }
    }
}

/// What the command says: what would move, how even it gets, and the changes.
struct Said {
    lines: String,
    json: Value,
}

fn describe(map: &OsdMap, inc: &Incremental, average: f64, limits: Limits, steps: &[Step]) -> Option<Said> {
    let mut after = map.clone();
    after.apply(inc).ok()?;
    let (count, all) = moved(map, &after);
    let (old, new) = (spread(map), spread(&after));
    let (was, is) = (Evenness::of(&old), Evenness::of(&new));
    let g = |v: f64| significant(v, 6);
    let share = |n: u32| {
        if was.average > 0.0 {
            f64::from(n) / was.average
        } else {
            0.0
        }
    };
    let n = old.len().max(1) as f64;
    // What chance alone would give: each copy on any OSD alike.
    let chance = (all as f64 / n * (1.0 - 1.0 / n)).sqrt();
    let percent = if all > 0 {
        count as f64 * 100.0 / all as f64
    } else {
        0.0
    };
    let edge = |word: &str, (osd, before): (OsdId, u32)| {
        let later = new.get(&osd).copied().unwrap_or(0);
        format!(
            "{word} osd.{osd} with {before} -> {later} pgs ({} -> {} * mean)\n",
            g(share(before)),
            g(share(later))
        )
    };
    let over = average * limits.oload as f64 / 100.0;
    let mut lines = format!("moved {count} / {all} ({}%)\n", g(percent));
    lines.push_str(&format!("avg {}\n", g(was.average)));
    lines.push_str(&format!(
        "stddev {} -> {} (expected baseline {})\n",
        g(was.deviation),
        g(is.deviation),
        g(chance)
    ));
    lines.push_str(&edge("min", was.min));
    lines.push_str(&edge("max", was.max));
    lines.push_str(&format!(
        "\noload {}\nmax_change {}\nmax_change_osds {}\naverage_utilization {average:.4}\noverload_utilization {over:.4}\n",
        limits.oload,
        g(limits.max_change),
        limits.max_osds
    ));
    let weight = |w: u32| f64::from(w) / WHOLE;
    for s in steps {
        lines.push_str(&format!(
            "osd.{} weight {:.4} -> {:.4}\n",
            s.osd,
            weight(s.from),
            weight(s.to)
        ));
    }
    let one = |s: &Step| json!({"osd": s.osd, "weight": weight(s.from), "new_weight": weight(s.to)});
    let edge_json =
        |(osd, before): (OsdId, u32)| json!({"osd": osd, "pgs": before, "new_pgs": new.get(&osd)});
    let json = json!({
        "utilization": {
            "moved_pgs": count, "total_pgs": all, "avg_pgs": was.average,
            "std_dev": was.deviation, "expected_baseline_std_dev": chance,
            "min_osd": was.min.0, "min_osd_pgs": was.min.1,
            "max_osd": was.max.0, "max_osd_pgs": was.max.1,
            "min": edge_json(was.min), "max": edge_json(was.max), "new_std_dev": is.deviation,
        },
        "reweight": {
            "oload": limits.oload, "max_change": limits.max_change, "max_change_osds": limits.max_osds,
            "average_utilization": average, "overload_utilization": over,
            "reweights": steps.iter().map(one).collect::<Vec<_>>(),
        },
    });
    Some(Said { lines, json })
}

fn answer(
    cmd: &Command,
    ctx: &Context<'_>,
    limits: Limits,
    loads: Result<(Vec<Loaded>, f64), Outcome>,
    doing: bool,
) -> Outcome {
    let (loads, average) = match loads {
        Ok(l) => l,
        Err(refusal) => return refusal,
    };
    let steps = plan(loads, average, limits);
    let mut inc = ctx.inc();
    steps.iter().for_each(|s| inc.set_weight(s.osd, s.to));
    let Some(said) = describe(ctx.map(), &inc, average, limits, &steps) else {
        return Outcome::error(Errno::EAGAIN, "the OSD map changed meanwhile; ask again");
    };
    let out = cmd.either(|| said.json, || said.lines);
    match doing && !steps.is_empty() {
        true => out.with(Changes::map(inc)),
        false => out.saying("no change"),
    }
}

fn space(cmd: &Command, ctx: &Context<'_>, doing: bool) -> Outcome {
    match Limits::of(cmd) {
        Ok(limits) => answer(cmd, ctx, limits, loads_by_space(ctx), doing),
        Err(refusal) => refusal,
    }
}

fn by_utilization(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    space(cmd, ctx, true)
}

fn test_by_utilization(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    space(cmd, ctx, false)
}

fn pgs(cmd: &Command, ctx: &Context<'_>, doing: bool) -> Outcome {
    let limits = match Limits::of(cmd) {
        Ok(limits) => limits,
        Err(refusal) => return refusal,
    };
    let mut pools = BTreeSet::new();
    for name in cmd.list("pools") {
        match ctx.map().pool_by_name(name) {
            Some(id) => pools.insert(id),
            None => return Outcome::absent(format!("pool '{name}' does not exist")),
        };
    }
    answer(cmd, ctx, limits, loads_by_pgs(ctx, &pools), doing)
}

fn by_pg(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    pgs(cmd, ctx, true)
}

fn test_by_pg(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    pgs(cmd, ctx, false)
}

fn reweightn(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let text = cmd.text("weights");
    let wrong = || Outcome::invalid(format!("unable to parse 'weights' value '{text}'"));
    let Ok(Value::Object(given)) = serde_json::from_str::<Value>(text) else {
        return wrong();
    };
    let weights: Option<BTreeMap<OsdId, u32>> = given.iter().map(weight_of).collect();
    let Some(weights) = weights else {
        return wrong();
    };
    if let Some(id) = weights.keys().find(|id| !ctx.map().exists(**id)) {
        return Outcome::absent(format!("osd.{id} does not exist"));
    }
    let mut inc = ctx.inc();
    weights.iter().for_each(|(id, w)| inc.set_weight(*id, *w));
    let changes = match weights.is_empty() {
        true => Changes::none(),
        false => Changes::map(inc),
    };
    Outcome::default().with(changes)
}

/// `"3": "32768"`, as Ceph takes it; a number will do.
fn weight_of((id, w): (&String, &Value)) -> Option<(OsdId, u32)> {
    let id = ids::parse_osd_id(id).ok()?;
    let w = match w {
        Value::String(s) => s.parse().ok()?,
        other => u32::try_from(other.as_u64()?).ok()?,
    };
    (w <= WHOLE as u32).then_some((id, w))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn osds(loads: &[(f64, f64)]) -> Vec<Loaded> {
        let one = |(i, (load, weight)): (usize, &(f64, f64))| Loaded {
            osd: i as OsdId,
            load: *load,
            weight: (weight * WHOLE) as u32,
        };
        loads.iter().enumerate().map(one).collect()
    }

    fn check(loads: &[(f64, f64)], limits: (i64, f64, i64, bool), want: &[(OsdId, f64)]) {
        let limits = Limits {
            oload: limits.0,
            max_change: limits.1,
            max_osds: limits.2,
            increase: limits.3,
        };
        let average = loads.iter().map(|l| l.0).sum::<f64>() / loads.len() as f64;
        let have: Vec<(OsdId, u32)> = plan(osds(loads), average, limits)
            .iter()
            .map(|s| (s.osd, s.to))
            .collect();
        let want: Vec<(OsdId, u32)> = want.iter().map(|(o, w)| (*o, (w * WHOLE) as u32)).collect();
        assert_eq!(have, want, "{loads:?}");
    }

    #[test]
    fn the_fullest_take_less_and_lowered_ones_more() {
        // Within the threshold nothing changes.
        check(&[(0.5, 1.0), (0.55, 1.0), (0.45, 1.0)], (120, 0.05, 4, true), &[]);
        // Above it: by so much at most.
        check(
            &[(0.8, 1.0), (0.5, 1.0), (0.2, 1.0)],
            (120, 0.05, 4, true),
            &[(0, 0.95)],
        );
        // What was lowered and is empty comes back, unless that is not wanted.
        check(
            &[(0.5, 1.0), (0.5, 1.0), (0.2, 0.5)],
            (130, 0.1, 4, true),
            &[(2, 0.6)],
        );
        check(&[(0.5, 1.0), (0.5, 1.0), (0.2, 0.5)], (130, 0.1, 4, false), &[]);
        // At most so many, the heaviest first.
        check(
            &[(0.7, 1.0), (0.9, 1.0), (0.0, 1.0), (0.0, 1.0)],
            (120, 0.05, 1, true),
            &[(1, 0.95)],
        );
        // Never to nothing.
        check(
            &[(0.9, 0.01), (0.0, 1.0), (0.0, 1.0)],
            (120, 0.5, 1, true),
            &[(0, 0.01 * 0.3 / 0.9)],
        );
    }
}
