//! Health of placement groups, objects and operations.
//!
//! As in the real one, what may pass by itself within a moment (inactive, peering, stale, undersized) is raised only
//! when it has lasted for `mon_pg_stuck_threshold`; what is plainly broken (down, incomplete, degraded) at once.

use crate::commands::checks::check::{Check, Severity, check, warn};
use crate::commands::context::Context;
use crate::commands::views::pg_stats::{Figures, Share};
use crate::commands::views::{monmap, show};
use crate::format::units;
use std::collections::BTreeMap;
use types::pgstats::{PgStat, pg_state};
use types::pool::{PgPool, PoolOption, PoolOptions};
use types::{OsdId, Utime};

/// The real one's default of `mon_pg_stuck_threshold`, in seconds.
pub const STUCK_AFTER_SEC: u64 = 60;
/// Seconds: the default of both scrub periods.
const WEEK: f64 = 604_800.0;

/// `1 pg`, `2 pgs`
fn pgs_text(n: usize) -> String {
    format!("{n} pg{}", if n == 1 { "" } else { "s" })
}

/// Words and how many PGs are so, in the order in which they are said; and a line for each PG.
#[derive(Default)]
struct Group {
    words: BTreeMap<&'static str, usize>,
    lines: BTreeMap<types::PgId, String>,
}

impl Group {
    fn add(&mut self, word: &'static str, s: &PgStat, line: String) {
        *self.words.entry(word).or_default() += 1;
        self.lines.entry(s.pgid).or_insert(line);
    }

    fn parts(&self) -> Vec<String> {
        self.words
            .iter()
            .map(|(w, n)| format!("{} {w}", pgs_text(*n)))
            .collect()
    }

    fn check(
        self,
        code: &'static str,
        severity: Severity,
        head: &str,
        before: Option<String>,
    ) -> Option<Check> {
        if self.lines.is_empty() {
            return None;
        }
        let parts: Vec<String> = before.into_iter().chain(self.parts()).collect();
        let n = self.lines.len() as u64;
        let summary = format!("{head}: {}", parts.join(", "));
        Some(check(
            code,
            severity,
            summary,
            n,
            self.lines.into_values().collect(),
        ))
    }
}

fn is_line(s: &PgStat) -> String {
    let state = pg_state::names(s.state);
    format!("pg {} is {state}, acting {}", s.pgid, show::ids(&s.acting))
}

/// Since when, as far as anybody knows: what the primary says, else what this monitor has seen. A PG that nobody
/// reported counts from its pool's beginning, or from that of the monitor that answers.
fn since(ctx: &Context<'_>, s: &PgStat, last_good: Utime, seen: Utime) -> Utime {
    if !last_good.is_zero() {
        return last_good;
    }
    if s.reported_epoch > 0 {
        return seen;
    }
    let made = ctx.map().pool(s.pgid.pool).map_or(Utime::ZERO, |p| p.create_time);
    made.max(ctx.mon.started)
}

/// The line of a PG that has been so for too long; None before that.
fn stuck(ctx: &Context<'_>, s: &PgStat, word: &str, last_good: Utime, seen: Utime) -> Option<String> {
    let since = since(ctx, s, last_good, seen);
    let limit = ctx
        .state
        .mon_option_u64("mon_pg_stuck_threshold", STUCK_AFTER_SEC);
    if units::seconds_between(since, ctx.now) < limit as f64 {
        return None;
    }
    Some(format!(
        "pg {} is stuck {word} for {}, current state {}, last acting {}",
        s.pgid,
        units::age(since, ctx.now),
        pg_state::names(s.state),
        show::ids(&s.acting)
    ))
}

fn has(s: &PgStat, bits: u64) -> bool {
    s.state & bits != 0
}

pub fn pgs(ctx: &Context<'_>, figures: &Figures, found: &mut Vec<Check>) {
    let (mut away, mut thin, mut damaged) = (Group::default(), Group::default(), Group::default());
    for s in figures.pgs.values() {
        availability(ctx, s, &mut away);
        if has(s, pg_state::DEGRADED) {
            thin.add("degraded", s, is_line(s));
        }
        if has(s, pg_state::UNDERSIZED)
            && let Some(line) = stuck(
                ctx,
                s,
                "undersized",
                s.last_fullsized,
                ctx.progress.undersized_since(s.pgid, ctx.now),
            )
        {
            thin.add("undersized", s, line);
        }
        for (bit, word) in [
            (pg_state::INCONSISTENT, "inconsistent"),
            (pg_state::RECOVERY_UNFOUND, "recovery_unfound"),
        ] {
            if has(s, bit) {
                damaged.add(word, s, is_line(s));
            }
        }
    }
    let share = Share::degraded(&figures.sum()).map(|s| s.text("degraded"));
    found.extend(away.check(
        "PG_AVAILABILITY",
        Severity::Warn,
        "Reduced data availability",
        None,
    ));
    found.extend(thin.check("PG_DEGRADED", Severity::Warn, "Degraded data redundancy", share));
    found.extend(damaged.check("PG_DAMAGED", Severity::Err, "Possible data damage", None));
}

fn availability(ctx: &Context<'_>, s: &PgStat, away: &mut Group) {
    for (bit, word) in [(pg_state::DOWN, "down"), (pg_state::INCOMPLETE, "incomplete")] {
        if has(s, bit) {
            away.add(word, s, is_line(s));
        }
    }
    let seen = ctx.progress.inactive_since(s.pgid, ctx.now);
    if !has(s, pg_state::ACTIVE)
        && let Some(line) = stuck(ctx, s, "inactive", s.last_active, seen)
    {
        away.add("inactive", s, line.clone());
        if has(s, pg_state::PEERING) {
            away.add("peering", s, line);
        }
    }
    if has(s, pg_state::STALE)
        && let Some(line) = stuck(ctx, s, "stale", s.last_unstale, seen)
    {
        away.add("stale", s, line);
    }
}

/// A period within which every PG is promised to be scrubbed.
struct Promise {
    code: &'static str,
    what: &'static str,
    option: &'static str,
    pool_option: &'static str,
    /// By how much of itself the period may be exceeded before anybody is told.
    ratio_option: &'static str,
    ratio: f64,
    stamp: fn(&PgStat) -> Utime,
}

const PROMISES: [Promise; 2] = [
    Promise {
        code: "PG_NOT_SCRUBBED",
        what: "scrubbed",
        option: "osd_scrub_max_interval",
        pool_option: "scrub_max_interval",
        ratio_option: "mon_warn_pg_not_scrubbed_ratio",
        ratio: 0.5,
        stamp: |s| s.last_scrub_stamp,
    },
    Promise {
        code: "PG_NOT_DEEP_SCRUBBED",
        what: "deep-scrubbed",
        option: "osd_deep_scrub_interval",
        pool_option: "deep_scrub_interval",
        ratio_option: "mon_warn_pg_not_deep_scrubbed_ratio",
        ratio: 0.75,
        stamp: |s| s.last_deep_scrub_stamp,
    },
];

/// PGs whose promised time is over.
pub fn scrubs(ctx: &Context<'_>, figures: &Figures, found: &mut Vec<Check>) {
    let number = |text: Option<&str>| text.and_then(|v| v.parse::<f64>().ok());
    let config = &ctx.state.config;
    for p in &PROMISES {
        let ratio = number(ctx.state.mon_option(p.ratio_option)).unwrap_or(p.ratio);
        let set = number(
            config
                .get("osd", p.option)
                .or_else(|| config.get("global", p.option)),
        );
        let broken = |s: &&PgStat| {
            let own = ctx
                .map()
                .pool(s.pgid.pool)
                .and_then(|x| pool_interval(x, p.pool_option));
            let limit = own.or(set).unwrap_or(WEEK) * (1.0 + ratio);
            let at = (p.stamp)(s);
            ratio > 0.0 && limit > 0.0 && !at.is_zero() && units::seconds_between(at, ctx.now) > limit
        };
        let line = |s: &PgStat| format!("pg {} not {} since {}", s.pgid, p.what, show::time((p.stamp)(s)));
        let lines: Vec<String> = figures.pgs.values().filter(broken).map(line).collect();
        if !lines.is_empty() {
            let text = format!("{} not {} in time", pgs_text(lines.len()), p.what);
            found.push(warn(p.code, text, lines.len() as u64, lines));
        }
    }
}

fn pool_interval(pool: &PgPool, option: &str) -> Option<f64> {
    let (number, _) = PoolOptions::lookup(option)?;
    match pool.opts.0.get(&number) {
        Some(PoolOption::Double(v)) if *v > 0.0 => Some(*v),
        _ => None,
    }
}

pub fn objects(ctx: &Context<'_>, figures: &Figures, found: &mut Vec<Check>) {
    let sum = figures.sum();
    if let Some(share) = Share::unfound(&sum) {
        let lines = figures
            .pgs
            .values()
            .filter(|s| s.stats.sum.num_objects_unfound > 0)
            .map(|s| {
                format!(
                    "pg {} has {} unfound objects",
                    s.pgid, s.stats.sum.num_objects_unfound
                )
            });
        found.push(warn(
            "OBJECT_UNFOUND",
            share.text("unfound"),
            share.bad,
            lines.collect(),
        ));
    }
    if let Some(share) = Share::misplaced(&sum)
        && ctx.state.mon_option_bool("mon_warn_on_misplaced", false)
    {
        found.push(warn(
            "OBJECT_MISPLACED",
            share.text("misplaced"),
            share.bad,
            vec![],
        ));
    }
    if sum.num_scrub_errors > 0 {
        let n = sum.num_scrub_errors as u64;
        let text = format!("{n} scrub errors");
        found.push(check("OSD_SCRUB_ERRORS", Severity::Err, text, n, vec![]));
    }
}

/// `12 slow ops, oldest one blocked for 36 sec, daemons [osd.0,osd.1] have slow ops.`
pub fn slow_ops(ctx: &Context<'_>, found: &mut Vec<Check>) {
    let mut total = 0;
    let mut oldest = ctx.now;
    let mut osds: Vec<OsdId> = Vec::new();
    for (id, r) in &ctx.stats.osds {
        let n = u64::from(r.stat.slow_ops_count);
        if n == 0 {
            continue;
        }
        total += n;
        osds.push(*id);
        oldest = r.stat.slow_ops.iter().map(|op| op.since).fold(oldest, Ord::min);
    }
    if total == 0 {
        return;
    }
    let names: Vec<String> = osds.iter().map(|id| format!("osd.{id}")).collect();
    let who = match &names[..] {
        [one] => format!("{one} has slow ops"),
        all => format!("daemons [{}] have slow ops.", all.join(",")),
    };
    let sec = units::seconds_between(oldest, ctx.now) as u64;
    let text = format!("{total} slow ops, oldest one blocked for {sec} sec, {who}");
    found.push(warn("SLOW_OPS", text, total, vec![]));
}

pub fn monitors(ctx: &Context<'_>, found: &mut Vec<Check>) {
    let map = &ctx.state.monmap;
    let live = monmap::quorum(ctx);
    let down: Vec<String> = map
        .by_rank()
        .enumerate()
        .filter(|(_, i)| live.iter().all(|(_, name)| *name != i.name))
        .map(|(rank, i)| {
            format!(
                "mon.{} (rank {rank}) addr {} is down (out of quorum)",
                i.name,
                i.addrs.bracketed()
            )
        })
        .collect();
    if down.is_empty() {
        return;
    }
    let text = format!(
        "{}/{} mons down, quorum {}",
        down.len(),
        map.ranks.len(),
        monmap::quorum_names(ctx)
    );
    found.push(warn("MON_DOWN", text, down.len() as u64, down));
}
