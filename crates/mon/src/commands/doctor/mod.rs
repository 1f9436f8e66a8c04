//! `doctor`: what is blocked or slow now, what it waits for, and the next step to take.
//!
//! Everything is computed from the state and the OSDs' reports; a finding is there exactly while its cause is. The
//! worst come first. Placement groups that wait for the same are one finding.
//!
//! Bounds: [`NAMED_MAX`] names in a sentence, [`OPS_MAX`] operations; the rest is counted.

mod finding;
mod locks;
mod space;
#[cfg(test)]
mod transcript;
mod unclean;

use crate::commands::checks::slow_disk;
use crate::commands::command::{Command, Outcome};
use crate::commands::context::Context;
use crate::commands::doctor::finding::Finding;
use crate::commands::doctor::finding::Level;
use crate::commands::doctor::finding::osd_text;
use crate::commands::doctor::finding::some;
use crate::commands::spec::{Spec, spec};
use crate::commands::views::pg_stats::{Figures, Share};
use crate::commands::views::{monmap, pg_stats};
use crate::format::units;
use crate::policies::lag::Stance;
use crate::policies::spread::Spread;
use crate::policies::{auto_out, spare};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use types::osdmap::{map_flag, osd_state};
use types::pgstats::{SlowOp, Wait, pg_state, wait};
use types::pool::pool_flag;
use types::{OsdId, PgId, Utime};

pub const TABLE: &[Spec] = &[spec(
    ("mon", "r"),
    "doctor",
    "what is blocked or slow, what it waits for, and what to do next (skep's own)",
    doctor,
)];

const OPS_MAX: usize = 20;

fn doctor(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let found = examine(ctx);
    cmd.either(
        || json!({"findings": found.iter().map(|f| f.json(ctx.now)).collect::<Vec<_>>()}),
        || match found.is_empty() {
            true => "Nothing is blocked, slow or at risk.\n".to_string(),
            false => found.iter().map(|f| f.text(ctx.now)).collect(),
        },
    )
}

/// All findings, the worst first.
pub fn examine(ctx: &Context<'_>) -> Vec<Finding> {
    let figures = Figures::of(ctx);
    let mut out = Vec::new();
    cluster_state(ctx, &mut out);
    map_flags(ctx, &mut out);
    inactive_pgs(ctx, &figures, &mut out);
    slow_ops(ctx, &mut out);
    space::no_room(ctx, &mut out);
    locks::held(ctx, &mut out);
    unfound(&figures, &mut out);
    osds_down(ctx, &figures, &mut out);
    osds_silent(ctx, &mut out);
    fullness(ctx, &mut out);
    spare_space(ctx, &mut out);
    slow_disks(ctx, &mut out);
    few_copies(ctx, &figures, &mut out);
    unclean::unclean(ctx, &figures, &mut out);
    healing(ctx, &figures, &mut out);
    monitors(ctx, &mut out);
    out.sort_by_key(|f| f.level);
    out
}

fn start_osds(ctx: &Context<'_>, down: &[OsdId]) -> String {
    let hosts: BTreeSet<String> = down.iter().map(|id| ctx.osd_host(*id)).collect();
    let hosts: Vec<String> = hosts.into_iter().collect();
    let names: Vec<String> = down.iter().map(|id| format!("osd.{id}")).collect();
    let first = down.first().copied().unwrap_or(0);
    format!(
        "start {} again (skep up on {}); only if the data there is lost for ever: ceph osd lost {first} --yes-i-really-mean-it",
        some(&names),
        some(&hosts)
    )
}

/// The cluster state does not answer this monitor.
fn cluster_state(ctx: &Context<'_>, out: &mut Vec<Finding>) {
    let Some(since) = ctx.mon.stalled else { return };
    let host = &ctx.mon.hostname;
    let (waits, next) = match &ctx.mon.stance {
        Stance::Away(to) => (
            format!(
                "on host {host} is cut off from the cluster state, and mon.{} is not: its clients are sent there",
                to.join(", mon.")
            ),
            format!("look at the network between host {host} and etcd; this monitor serves again by itself"),
        ),
        Stance::Hesitating | Stance::Serving if let Some(why) = &ctx.mon.trouble => (
            format!("cannot write the cluster state ({why}): nothing can be changed, and what is shown is what was known last"),
            format!("make room on host {host}, or look at the disk there that holds Skep's directory; it goes on by itself"),
        ),
        Stance::Hesitating | Stance::Serving => (
            "cannot reach the cluster state: nothing can be changed, and what is shown is what was known last".to_string(),
            "look whether most members of etcd are up and reach each other: etcdctl endpoint status".to_string(),
        ),
    };
    out.push(Finding::new(Level::Blocked, format!("mon.{}", ctx.mon.name), waits, next).since(since));
}

fn map_flags(ctx: &Context<'_>, out: &mut Vec<Finding>) {
    let map = ctx.map();
    if map.flags & (map_flag::PAUSERD | map_flag::PAUSEWR) != 0 {
        out.push(Finding::new(
            Level::Blocked,
            "all clients",
            "reads or writes are paused by an operator",
            "ceph osd unpause",
        ));
    }
    for (bit, name) in [(map_flag::NOUP, "noup"), (map_flag::NODOWN, "nodown")] {
        if map.has_flag(bit) {
            let next = format!("ceph osd unset {name}, when the work is done");
            out.push(Finding::new(
                Level::Risk,
                "the cluster",
                format!("{name} is set: OSDs' states are not followed"),
                next,
            ));
        }
    }
}

/// PGs that cannot serve, by what they wait for.
fn inactive_pgs(ctx: &Context<'_>, figures: &Figures, out: &mut Vec<Finding>) {
    let mut groups: BTreeMap<(String, Vec<OsdId>), Vec<PgId>> = BTreeMap::new();
    let mut oldest: BTreeMap<(String, Vec<OsdId>), Utime> = BTreeMap::new();
    for (pg, s) in &figures.pgs {
        if s.state & pg_state::ACTIVE != 0 {
            continue;
        }
        let key = (pg_state::names(s.state), s.blocked_by.clone());
        let at = match s.last_active.is_zero() {
            true => ctx.progress.inactive_since(*pg, ctx.now),
            false => s.last_active,
        };
        let since = oldest.entry(key.clone()).or_insert(at);
        *since = at.min(*since);
        groups.entry(key).or_default().push(*pg);
    }
    for (key, pgs) in groups {
        let (state, blockers) = &key;
        let subject = format!("pg {}", some(&pgs));
        let first = figures.pgs.get(&pgs[0]);
        let primary = first.map_or(-1, |s| s.acting_primary);
        let (waits, next) = if !blockers.is_empty() {
            let who: Vec<String> = blockers.iter().map(|id| osd_text(ctx, *id)).collect();
            let down: Vec<OsdId> = blockers
                .iter()
                .copied()
                .filter(|o| !ctx.map().is_up(*o))
                .collect();
            let next = match down.is_empty() {
                true => "look at those OSDs' logs: they are up and do not answer".to_string(),
                false => start_osds(ctx, &down),
            };
            (
                format!("cannot serve ({state}); waits for {}", who.join("; ")),
                next,
            )
        } else if primary < 0 {
            (
                format!("cannot serve ({state}); no OSD is there for it"),
                "bring OSDs up and in: ceph osd tree".to_string(),
            )
        } else {
            (
                format!(
                    "cannot serve ({state}); {} works on it or has not reported",
                    osd_text(ctx, primary)
                ),
                format!("ceph tell osd.{primary} status; ceph pg {} query", pgs[0]),
            )
        };
        let since = oldest.get(&key).copied().unwrap_or(Utime::ZERO);
        out.push(Finding::new(Level::Blocked, subject, waits, next).since(since));
    }
}

fn slow_ops(ctx: &Context<'_>, out: &mut Vec<Finding>) {
    let mut ops: Vec<(OsdId, &SlowOp)> = ctx
        .stats
        .osds
        .iter()
        .flat_map(|(id, r)| r.stat.slow_ops.iter().map(move |op| (*id, op)))
        .collect();
    ops.sort_by_key(|(_, op)| op.since);
    let all: usize = ctx
        .stats
        .osds
        .values()
        .map(|r| (r.stat.slow_ops_count as usize).max(r.stat.slow_ops.len()))
        .sum();
    for (osd, op) in ops.iter().take(OPS_MAX) {
        let waits: Vec<String> = op.waits.iter().map(|w| wait_text(ctx, *osd, w)).collect();
        let waits = match waits.is_empty() {
            true => format!("osd.{osd} has not begun it"),
            false => waits.join("; "),
        };
        let next = op.waits.first().map_or_else(
            || format!("ceph tell osd.{osd} dump_ops_in_flight"),
            |w| wait_next(ctx, *osd, w),
        );
        let subject = format!("{} ({} on pg {})", op.client, op.what, op.pg);
        out.push(Finding::new(Level::Slow, subject, waits, next).since(op.since));
    }
    if all > OPS_MAX.min(ops.len()) {
        let n = all - OPS_MAX.min(ops.len());
        out.push(Finding::new(
            Level::Slow,
            format!("{n} more operations"),
            "wait too; the oldest are listed",
            "ceph tell osd.N dump_ops_in_flight",
        ));
    }
}

fn wait_text(ctx: &Context<'_>, by: OsdId, w: &Wait) -> String {
    let since = match w.since.is_zero() {
        true => String::new(),
        false => format!(" (since {})", w.since),
    };
    match w.kind {
        wait::LEASE => format!("osd.{by} may not serve: its lease is not renewed{since}"),
        wait::MEMBER => format!("{} must answer or come back{since}", osd_text(ctx, w.osd)),
        wait::DURABLE if w.osd == by => format!("the disk of osd.{by} has not made it durable{since}"),
        wait::DURABLE => format!("{} has not made it durable{since}", osd_text(ctx, w.osd)),
        wait::COPY => format!("the object is being copied to osd.{}{since}", w.osd),
        wait::WATCHER => format!(
            "watcher {} has not answered{since}; for an RBD image it holds the lock",
            w.who
        ),
        wait::ORDER => format!("an earlier operation on the same object{since}"),
        wait::SPACE => format!(
            "{} has no room for it, and too few copies would be left without that one{since}",
            osd_text(ctx, w.osd)
        ),
        wait::MAP => format!("the OSD map lets no client in (pause or full){since}"),
        other => format!("something this version does not know ({other}){since}"),
    }
}

fn wait_next(ctx: &Context<'_>, by: OsdId, w: &Wait) -> String {
    match w.kind {
        wait::LEASE => format!(
            "look at the cluster state (etcd) and at the clock and load of host {}",
            ctx.osd_host(by)
        ),
        wait::MEMBER if !ctx.map().is_up(w.osd) => start_osds(ctx, &[w.osd]),
        wait::MEMBER | wait::COPY => format!("ceph tell osd.{} status", w.osd),
        wait::DURABLE => format!(
            "look at the disk of osd.{} on host {}: ceph osd perf",
            w.osd,
            ctx.osd_host(w.osd)
        ),
        wait::WATCHER => {
            let addr = w.who.split_whitespace().nth(1).unwrap_or("ADDRESS");
            format!("if that client is dead: ceph osd blocklist add {addr}")
        }
        wait::ORDER => format!("ceph tell osd.{by} dump_ops_in_flight"),
        wait::SPACE => "delete data, or make room there: see the finding of that pg; ceph osd df".to_string(),
        wait::MAP => "ceph osd unpause, or free space: ceph health detail".to_string(),
        _ => format!("ceph tell osd.{by} dump_ops_in_flight"),
    }
}

fn unfound(figures: &Figures, out: &mut Vec<Finding>) {
    let pgs: Vec<PgId> = figures
        .pgs
        .iter()
        .filter(|(_, s)| s.stats.sum.num_objects_unfound > 0)
        .map(|(pg, _)| *pg)
        .collect();
    if let Some(share) = Share::unfound(&figures.sum()) {
        out.push(Finding::new(
            Level::Blocked,
            format!("pg {}", some(&pgs)),
            format!("{} objects are on no OSD that is up", share.bad),
            "start the OSDs that had them: ceph osd tree down",
        ));
    }
}

fn osds_down(ctx: &Context<'_>, figures: &Figures, out: &mut Vec<Finding>) {
    let map = ctx.map();
    for id in map.osd_ids().filter(|id| map.is_down(*id)) {
        let Some(slot) = map.osd(id).filter(|o| o.state & osd_state::DESTROYED == 0) else {
            continue;
        };
        let pgs = pg_stats::needed_by(ctx, figures, id).len();
        let since = slot.xinfo.down_stamp;
        let host = ctx.osd_host(id);
        if !map.is_in(id) {
            let next = match pgs {
                0 => format!("ceph osd purge {id} --yes-i-really-mean-it, or start it again on host {host}"),
                n => format!(
                    "wait until its {n} placement groups have left it, or start it again on host {host}"
                ),
            };
            out.push(
                Finding::new(
                    Level::Note,
                    format!("osd.{id}"),
                    format!("is down and out, on host {host}"),
                    next,
                )
                .since(since),
            );
            continue;
        }
        let plan = match auto_out::judge(ctx.state, ctx.stats, id) {
            Err(why) => format!("stays in: {why}"),
            Ok(()) => {
                let delay = auto_out::delay_sec(ctx.state, id);
                format!("will be marked out {delay} s after it went down, and its copies made elsewhere")
            }
        };
        let waits = format!("is down, on host {host}; {pgs} placement groups have it; {plan}");
        let otherwise = match auto_out::room_for(ctx.state, ctx.stats, id) {
            Ok(()) => format!("or: ceph osd out {id}"),
            Err(_) => "or add an OSD where its copies find a place".into(),
        };
        let next = format!("start it again on host {host} (its log says why it ended), {otherwise}");
        out.push(Finding::new(Level::Risk, format!("osd.{id}"), waits, next).since(since));
    }
}

fn osds_silent(ctx: &Context<'_>, out: &mut Vec<Finding>) {
    let map = ctx.map();
    let silent = |id: &OsdId| map.is_up(*id) && !ctx.stats.osds.contains_key(id);
    for id in map.osd_ids().filter(silent) {
        out.push(Finding::new(
            Level::Slow,
            format!("osd.{id}"),
            format!(
                "is up and has not reported for a while, on host {}",
                ctx.osd_host(id)
            ),
            format!("ceph tell osd.{id} status; if it hangs it is marked down by itself"),
        ));
    }
}

fn fullness(ctx: &Context<'_>, out: &mut Vec<Finding>) {
    let map = ctx.map();
    for (bit, level, word) in [
        (
            osd_state::FULL,
            Level::Blocked,
            "is full: writes to it are refused",
        ),
        (
            osd_state::BACKFILLFULL,
            Level::Risk,
            "is too full to take more copies",
        ),
        (osd_state::NEARFULL, Level::Risk, "is nearly full"),
    ] {
        let has = |id: &OsdId| map.osd(*id).is_some_and(|o| o.state & bit != 0);
        let ids: Vec<String> = map.osd_ids().filter(has).map(|id| format!("osd.{id}")).collect();
        if !ids.is_empty() {
            out.push(Finding::new(
                level,
                some(&ids),
                word,
                "delete data, add OSDs, or move data away: ceph osd df; ceph osd reweight",
            ));
        }
    }
    for (id, p) in map.pools.iter().filter(|(_, p)| p.has(pool_flag::FULL_QUOTA)) {
        let name = map.pool_name(*id).unwrap_or("?");
        out.push(Finding::new(
            Level::Blocked,
            format!("pool '{name}'"),
            format!(
                "has reached its quota of {} bytes, {} objects",
                p.quota_max_bytes, p.quota_max_objects
            ),
            format!("delete data, or: ceph osd pool set-quota {name} max_bytes N"),
        ));
    }
}

/// OSDs whose hosts need room: why they weigh what they weigh.
fn spare_space(ctx: &Context<'_>, out: &mut Vec<Finding>) {
    for (id, space, share) in spare::spared(ctx.map(), ctx.stats) {
        let weight = f64::from(ctx.map().weight(id)) / 65_536.0;
        if share >= 1.0 || weight >= 1.0 {
            continue;
        }
        let host = ctx.osd_host(id);
        out.push(Finding::new(
            Level::Note,
            format!("osd.{id}"),
            format!(
                "lives in spare space of host {host}, which needs room: {} are free there, and {} shall be; it may use {} \
                 and weighs {weight:.2}",
                units::bytes(space.host_free),
                units::bytes(space.reserve),
                units::bytes(space.usable)
            ),
            format!("free space on host {host}, and the weight rises by itself; or leave it so"),
        ));
    }
}

fn slow_disks(ctx: &Context<'_>, out: &mut Vec<Finding>) {
    for d in slow_disk::slow(ctx) {
        let (id, host) = (d.osd, ctx.osd_host(d.osd));
        out.push(Finding::new(
            Level::Slow,
            format!("osd.{id}"),
            format!("its disk {}; writes wait for it", d.text(ctx)),
            match auto_out::room_for(ctx.state, ctx.stats, id) {
                Ok(()) => format!("look at the disk on host {host}; to go on without it: ceph osd out {id}"),
                Err(why) => {
                    format!("look at the disk on host {host}; to go on without it, first add an OSD: {why}")
                }
            },
        ));
    }
}

/// Pools whose rule cannot place as many copies as they want: nothing will ever heal that.
fn few_copies(ctx: &Context<'_>, figures: &Figures, out: &mut Vec<Finding>) {
    let map = ctx.map();
    for (id, p) in &map.pools {
        let name = map.pool_name(*id).unwrap_or("?");
        let domains = Spread::of(map, u32::from(p.crush_rule)).domains.len();
        if domains < usize::from(p.size) {
            out.push(Finding::new(
                Level::Risk,
                format!("pool '{name}'"),
                format!(
                    "wants {} {} apart, and there are {domains} failure domains for them",
                    p.size,
                    if p.is_erasure() { "shards" } else { "copies" }
                ),
                match p.is_erasure() {
                    true => "add OSDs or hosts".to_string(),
                    false => format!(
                        "add OSDs or hosts, or: ceph osd pool set {name} size {}",
                        domains.max(1)
                    ),
                },
            ));
        }
        let enough = usize::from(map.enough(p));
        let last_copy: Vec<PgId> = figures
            .pool_pgs(*id)
            .filter(|s| p.size > 1 && s.state & pg_state::ACTIVE != 0)
            .filter(|s| {
                let holders = ctx.state.pgs.get(s.pgid).map(|c| &c.in_sync);
                holders.is_some_and(|h| h.iter().filter(|o| map.is_up(**o)).count() == enough)
            })
            .map(|s| s.pgid)
            .collect();
        if !last_copy.is_empty() {
            out.push(Finding::new(
                Level::Risk,
                format!("pg {}", some(&last_copy)),
                match p.is_erasure() {
                    true => format!(
                        "of pool '{name}' has {enough} living shards of {}, and needs them all",
                        p.size
                    ),
                    false => format!("of pool '{name}' has one living copy of {}", p.size),
                },
                "start the OSDs that are down, or let it heal: ceph osd tree; ceph progress",
            ));
        }
    }
}

fn healing(ctx: &Context<'_>, figures: &Figures, out: &mut Vec<Finding>) {
    let sum = figures.sum();
    let shares = pg_stats::share_texts(&sum);
    if shares.is_empty() {
        return;
    }
    let map = ctx.map();
    let stopped: Vec<&str> = [
        (map_flag::NORECOVER, "norecover"),
        (map_flag::NOBACKFILL, "nobackfill"),
        (map_flag::NOREBALANCE, "norebalance"),
    ]
    .into_iter()
    .filter(|(bit, _)| map.has_flag(*bit))
    .map(|(_, name)| name)
    .collect();
    let text = shares.join(", ");
    if !stopped.is_empty() {
        let next = format!("ceph osd unset {}", stopped.join("; ceph osd unset "));
        let waits = format!("{text}; healing is held up by {}", stopped.join(", "));
        out.push(Finding::new(Level::Risk, "healing", waits, next));
        return;
    }
    let event = ctx.progress.now.as_ref();
    let end = event.and_then(|e| e.remaining_sec());
    let next = match end {
        Some(sec) => format!("nothing: done in about {sec} s at the present pace"),
        None => "ceph -s shows whether copies are being made".to_string(),
    };
    let finding = Finding::new(Level::Note, "healing", text, next);
    out.push(match event {
        Some(e) => finding.since(e.started),
        None => finding,
    });
}

fn monitors(ctx: &Context<'_>, out: &mut Vec<Finding>) {
    let live: BTreeSet<String> = monmap::quorum(ctx).into_iter().map(|(_, n)| n).collect();
    for i in ctx.state.monmap.by_rank().filter(|i| !live.contains(&i.name)) {
        out.push(Finding::new(
            Level::Risk,
            format!("mon.{}", i.name),
            format!(
                "at {} is down, or cut off from the cluster state; clients go to the others",
                i.addrs
            ),
            format!(
                "start it again, or look at its way to etcd; if it is gone for good: ceph mon rm {}",
                i.name
            ),
        ));
    }
}
