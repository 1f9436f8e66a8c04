//! The health checks: each looks at one side of the state and adds what it finds.
//!
//! Codes, severities and wording are those of 16.2.15; the order of the checks is of no matter.

use crate::commands::checks::check::check;
use crate::commands::checks::check::warn;
use crate::commands::checks::check::{Check, Severity};
use crate::commands::context::Context;
use crate::commands::views::map_flags;
use crate::commands::views::pg_stats::{Figures, count};
use crate::format::units;
use crate::policies::lag::Stance;
use crate::policies::spread::Spread;
use crate::policies::{INSECURE_RECLAIM, spare};
use cluster::SpareSpace;
use types::OsdId;
use types::osdmap::{map_flag, osd_state};
use types::pool::{PgPool, pool_flag};

/// The advice behind the warning about pools without an application.
const HINT: &str = "use 'ceph osd pool application enable <pool-name> <app-name>', where <app-name> is 'cephfs', 'rbd', 'rgw', or freeform for custom applications.";
/// The real one's default of `mon_max_pg_per_osd`.
const MAX_PG_PER_OSD: u64 = 250;
/// Beyond this an OSD stops by itself, whatever the map says.
const FAILSAFE_FULL_RATIO: f32 = 0.97;

/// `root=default,host=vm`
fn location(ctx: &Context<'_>, item: i32) -> String {
    let parts = ctx.map().crush.location_of(item);
    let parts: Vec<String> = parts.iter().map(|(t, n)| format!("{t}={n}")).collect();
    parts.join(",")
}

/// Skep's own: where the real one has no quorum it answers nobody.
pub fn cluster_state(ctx: &Context<'_>, found: &mut Vec<Check>) {
    let Some(since) = ctx.mon.stalled else { return };
    let sec = u64::from(ctx.now.sec.saturating_sub(since.sec));
    let clients = match &ctx.mon.stance {
        Stance::Away(to) => format!(
            "clients are sent to those who follow it: mon.{}",
            to.join(", mon.")
        ),
        _ => "no other monitor is known to follow it".to_string(),
    };
    let detail = [
        "what is shown is what was known last; changes wait, and so does whoever needs one".to_string(),
        clients,
        match &ctx.mon.trouble {
            Some(why) => format!("host {} cannot write it: {why}", ctx.mon.hostname),
            None => "with etcd: look whether most of its members are up and reach each other (etcdctl endpoint status)"
                .to_string(),
        },
    ];
    found.push(check(
        "CLUSTER_STATE_STALLED",
        Severity::Err,
        format!("the cluster state cannot be changed since {since} ({sec} seconds)"),
        1,
        detail.into(),
    ));
}

pub fn osds_down(ctx: &Context<'_>, found: &mut Vec<Check>) {
    let map = ctx.map();
    let down: Vec<OsdId> = map
        .osd_ids()
        .filter(|id| map.is_in(*id) && map.is_down(*id))
        .collect();
    if down.is_empty() {
        return;
    }
    let detail = down
        .iter()
        .map(|id| format!("osd.{id} ({}) is down", location(ctx, *id)));
    found.push(warn(
        "OSD_DOWN",
        format!("{} osds down", down.len()),
        down.len() as u64,
        detail.collect(),
    ));
    // Buckets all of whose OSDs are down, by type.
    let levels = [
        ("host", "OSD_HOST_DOWN"),
        ("rack", "OSD_RACK_DOWN"),
        ("root", "OSD_ROOT_DOWN"),
    ];
    for (kind, code) in levels {
        let mut detail = Vec::new();
        let mut osds = 0;
        for b in map.crush.iter_buckets().filter(|b| !map.crush.is_shadow(b.id)) {
            let below = map.crush.devices_under(b.id);
            let is_kind = map.crush.type_name(i32::from(b.kind)) == Some(kind);
            if is_kind && !below.is_empty() && below.iter().all(|id| down.contains(id)) {
                let name = map.crush.item_name(b.id).unwrap_or("?");
                let at = location(ctx, b.id);
                let at = if at.is_empty() {
                    String::new()
                } else {
                    format!(" ({at})")
                };
                detail.push(format!("{kind} {name}{at} ({} osds) is down", below.len()));
                osds += below.len();
            }
        }
        if !detail.is_empty() {
            let n = detail.len();
            found.push(warn(
                code,
                format!("{n} {kind} ({osds} osds) down"),
                n as u64,
                detail,
            ));
        }
    }
}

pub fn flags(ctx: &Context<'_>, found: &mut Vec<Check>) {
    const QUIET: u32 = map_flag::ALWAYS | map_flag::NEARFULL;
    let map = ctx.map();
    let names = map_flags::names(map.flags & !QUIET);
    if !names.is_empty() {
        let n = names.len() as u64;
        found.push(warn("OSDMAP_FLAGS", format!("{names} flag(s) set"), n, vec![]));
    }
    const MASK: u32 = osd_state::NOUP | osd_state::NODOWN | osd_state::NOIN | osd_state::NOOUT;
    let text = |bits: u32| osd_state::names(bits & MASK).join(",");
    let mut detail = Vec::new();
    for id in map.osd_ids() {
        let bits = map.osd(id).map_or(0, |o| o.state) & MASK;
        if bits != 0 {
            detail.push(format!("osd.{id} has flags {}", text(bits)));
        }
    }
    for (node, bits) in &map.crush_node_flags {
        let kind = map
            .crush
            .item_type(*node)
            .and_then(|t| map.crush.type_name(t))
            .unwrap_or("?");
        let name = map.crush.item_name(*node).unwrap_or("?");
        detail.push(format!("{kind} {name} has flags {}", text(*bits)));
    }
    for (class, bits) in &map.device_class_flags {
        let name = map.crush.class_names.get(class).map_or("?", String::as_str);
        detail.push(format!("device class '{name}' has flags {}", text(*bits)));
    }
    if !detail.is_empty() {
        let n = detail.len();
        let summary =
            format!("{n} OSDs or CRUSH {{nodes, device-classes}} have {{NOUP,NODOWN,NOIN,NOOUT}} flags set");
        found.push(warn("OSD_FLAGS", summary, n as u64, detail));
    }
}

pub fn fullness(ctx: &Context<'_>, found: &mut Vec<Check>) {
    let map = ctx.map();
    let levels = [
        (osd_state::FULL, "OSD_FULL", "full", "full", Severity::Err),
        (
            osd_state::BACKFILLFULL,
            "OSD_BACKFILLFULL",
            "backfillfull",
            "backfill full",
            Severity::Warn,
        ),
        (
            osd_state::NEARFULL,
            "OSD_NEARFULL",
            "nearfull",
            "near full",
            Severity::Warn,
        ),
    ];
    // An OSD counts by its own flag, or by what its report says about its disk; at its highest level only.
    let level = |id: OsdId| {
        let used = ctx
            .stats
            .osds
            .get(&id)
            .map_or(0.0, |r| used_ratio(&r.stat.statfs));
        let state = map.osd(id).map_or(0, |o| o.state);
        let ratios = [map.full_ratio, map.backfillfull_ratio, map.nearfull_ratio];
        levels
            .iter()
            .zip(ratios)
            .position(|((bit, ..), ratio)| state & bit != 0 || (ratio > 0.0 && used >= ratio))
    };
    for (i, (_, code, word, said, severity)) in levels.into_iter().enumerate() {
        let osds: Vec<OsdId> = map
            .osd_ids()
            .filter(|id| map.is_in(*id) && level(*id) == Some(i))
            .collect();
        if !osds.is_empty() {
            let detail = osds.iter().map(|id| format!("osd.{id} is {said}")).collect();
            let n = osds.len();
            found.push(check(
                code,
                severity,
                format!("{n} {word} osd(s)"),
                n as u64,
                detail,
            ));
        }
    }
    let mut detail = Vec::new();
    let mut floor = map.nearfull_ratio;
    for (name, below, ratio) in [
        ("backfillfull_ratio", "nearfull_ratio", map.backfillfull_ratio),
        ("full_ratio", "backfillfull_ratio", map.full_ratio),
        ("osd_failsafe_full_ratio", "full_ratio", FAILSAFE_FULL_RATIO),
    ] {
        if ratio < floor {
            detail.push(format!("{name} ({ratio}) < {below} ({floor}), increased"));
        }
        floor = floor.max(ratio);
    }
    if !detail.is_empty() {
        let summary = "full ratio(s) out of order".to_string();
        found.push(check("OSD_OUT_OF_ORDER_FULL", Severity::Err, summary, 0, detail));
    }
}

fn used_ratio(s: &types::pgstats::StoreStatfs) -> f32 {
    if s.total <= 0 {
        return 0.0;
    }
    s.used() as f32 / s.total as f32
}

pub fn pools(ctx: &Context<'_>, figures: &Figures, found: &mut Vec<Check>) {
    let map = ctx.map();
    let mut full = Vec::new();
    let mut nearfull = Vec::new();
    let mut no_copies = Vec::new();
    let mut odd = Vec::new();
    let mut no_app = Vec::new();
    let mut fewer_pgp = Vec::new();
    let mut both_targets = Vec::new();
    for (id, p) in &map.pools {
        let name = map.pool_name(*id).unwrap_or("?");
        if p.has(pool_flag::FULL_QUOTA) {
            full.push(format!("pool '{name}' is full (running out of quota)"));
        } else if p.has(pool_flag::FULL) {
            full.push(format!("pool '{name}' is full (no space)"));
        } else if p.has(pool_flag::NEARFULL) {
            nearfull.push(format!("pool '{name}' is nearfull"));
        }
        if p.pgp_num < p.pg_num && p.pgp_num_target < p.pg_num_target {
            let (pg, pgp) = (p.pg_num, p.pgp_num);
            fewer_pgp.push(format!("pool {name} pg_num {pg} > pgp_num {pgp}"));
        }
        if p.opts.get("target_size_bytes").is_some() && p.opts.get("target_size_ratio").is_some() {
            both_targets.push(format!(
                "Pool {name} has target_size_bytes and target_size_ratio set"
            ));
        }
        // Where its rule finds a single place nobody could do anything about it.
        if p.size == 1 && Spread::of(map, u32::from(p.crush_rule)).domains.len() > 1 {
            no_copies.push(format!("pool '{name}' has no replicas configured"));
        }
        if !p.pg_num_target.is_power_of_two() {
            odd.push(format!(
                "pool '{name}' pg_num {} is not a power of two",
                p.pg_num_target
            ));
        }
        if p.application_metadata.is_empty() && figures.pool_sum(*id).num_objects > 0 {
            no_app.push(format!("application not enabled on pool '{name}'"));
        }
    }
    for (code, text, detail) in [
        ("SMALLER_PGP_NUM", "have pg_num > pgp_num", fewer_pgp),
        (
            "POOL_HAS_TARGET_SIZE_BYTES_AND_RATIO",
            "have both target_size_bytes and target_size_ratio set",
            both_targets,
        ),
    ] {
        if !detail.is_empty() {
            let n = detail.len();
            found.push(warn(code, format!("{n} pools {text}"), n as u64, detail));
        }
    }
    if !no_app.is_empty() {
        let n = no_app.len();
        no_app.push(HINT.to_string());
        let text = format!("{n} pool(s) do not have an application enabled");
        found.push(warn("POOL_APP_NOT_ENABLED", text, n as u64, no_app));
    }
    let mut add = |code, severity, text: &str, detail: Vec<String>| {
        if !detail.is_empty() {
            let n = detail.len();
            found.push(check(
                code,
                severity,
                format!("{n} pool(s) {text}"),
                n as u64,
                detail,
            ));
        }
    };
    add("POOL_FULL", Severity::Warn, "full", full);
    add("POOL_NEARFULL", Severity::Warn, "nearfull", nearfull);
    add(
        "POOL_PG_NUM_NOT_POWER_OF_TWO",
        Severity::Warn,
        "have non-power-of-two pg_num",
        odd,
    );
    if ctx.state.mon_option_bool("mon_warn_on_pool_no_redundancy", true) {
        add(
            "POOL_NO_REDUNDANCY",
            Severity::Warn,
            "have no replicas configured",
            no_copies,
        );
    }
}

/// Pools near their quotas, by thresholds in percent; zero, the default, is none. What has reached its quota has its
/// flag, and is told by [`pools`], which comes before.
pub fn quotas(ctx: &Context<'_>, figures: &Figures, found: &mut Vec<Check>) {
    // The manager's options in the real one.
    let config = &ctx.state.config;
    let percent = |name| {
        let set = config.get("mgr", name).or_else(|| ctx.state.mon_option(name));
        set.and_then(|v| v.parse::<u64>().ok()).unwrap_or(0)
    };
    let warn_at = percent("mon_pool_quota_warn_threshold");
    let crit_at = percent("mon_pool_quota_crit_threshold");
    let (mut full, mut nearfull) = (Near::default(), Near::default());
    for (id, p) in &ctx.map().pools {
        let name = ctx.map().pool_name(*id).unwrap_or("?");
        let sum = figures.pool_sum(*id);
        let (mut at_crit, mut at_warn) = (Vec::new(), Vec::new());
        for quota in quotas_of(p, count(sum.num_objects), count(sum.num_bytes)) {
            if quota.is_near(crit_at) {
                at_crit.push(quota.text(name));
            } else if quota.is_near(warn_at) {
                at_warn.push(quota.text(name));
            }
        }
        full.add(at_crit);
        nearfull.add(at_warn);
    }
    match found.iter_mut().find(|c| c.code == "POOL_FULL") {
        // Severity and summary are those of the check that was there first, as in the real one.
        Some(c) => {
            c.count += full.pools;
            c.detail.extend(full.detail);
        }
        None if full.pools > 0 => {
            let summary = format!("{} pools full", full.pools);
            found.push(check(
                "POOL_FULL",
                Severity::Err,
                summary,
                full.pools,
                full.detail,
            ));
        }
        None => {}
    }
    if nearfull.pools > 0 {
        let summary = format!("{} pools nearfull", nearfull.pools);
        found.push(warn("POOL_NEAR_FULL", summary, nearfull.pools, nearfull.detail));
    }
}

/// One quota of a pool, and what the pool has.
struct Quota {
    of_bytes: bool,
    have: u64,
    max: u64,
}

fn quotas_of(p: &PgPool, objects: u64, bytes: u64) -> [Quota; 2] {
    let quota = |of_bytes, have, max| Quota { of_bytes, have, max };
    [
        quota(false, objects, p.quota_max_objects),
        quota(true, bytes, p.quota_max_bytes),
    ]
}

impl Quota {
    /// Not reached, but so many percent of it; 0: never.
    fn is_near(&self, percent: u64) -> bool {
        let reached = u128::from(self.have) * 100 >= u128::from(self.max) * u128::from(percent);
        percent > 0 && self.have < self.max && reached
    }

    fn text(&self, pool: &str) -> String {
        let (have, max) = (self.have, self.max);
        match self.of_bytes {
            false => format!("pool '{pool}' has {have} objects (max {max})"),
            true => format!(
                "pool '{pool}' has {} (max {})",
                units::bytes(have),
                units::bytes(max)
            ),
        }
    }
}

/// Pools that are near a quota.
#[derive(Default)]
struct Near {
    pools: u64,
    detail: Vec<String>,
}

impl Near {
    /// Which quotas of one pool.
    fn add(&mut self, quotas: Vec<String>) {
        self.pools += u64::from(!quotas.is_empty());
        self.detail.extend(quotas);
    }
}

/// OSDs whose hosts need the room that they were made for.
pub fn spare_space(ctx: &Context<'_>, found: &mut Vec<Check>) {
    let shrunk = |(osd, space, share): (OsdId, SpareSpace, f64)| {
        (share < 1.0 && ctx.map().weight(osd) < 0x1_0000).then(|| {
            format!(
                "osd.{osd} on host {} may use {}: its host has {} free, of which {} are kept for it",
                ctx.osd_host(osd),
                units::bytes(space.usable),
                units::bytes(space.host_free),
                units::bytes(space.reserve.min(space.host_free))
            )
        })
    };
    let detail: Vec<String> = spare::spared(ctx.map(), ctx.stats).filter_map(shrunk).collect();
    if !detail.is_empty() {
        let n = detail.len();
        let text = format!("{n} osd(s) in spare space take less, since their hosts need room");
        found.push(warn("OSD_SPARE_SHRUNK", text, n as u64, detail));
    }
}

/// Clients may have global ids that they cannot prove to be theirs.
pub fn global_ids(ctx: &Context<'_>, found: &mut Vec<Check>) {
    let allowed = ctx.state.mon_option_bool(INSECURE_RECLAIM, false);
    if !allowed
        || !ctx
            .state
            .mon_option_bool("mon_warn_on_insecure_global_id_reclaim_allowed", true)
    {
        return;
    }
    let mons: Vec<&str> = ctx.state.monmap.by_rank().map(|m| m.name.as_str()).collect();
    let summary = match mons.len() {
        1 => "mon is allowing insecure global_id reclaim".to_string(),
        _ => "mons are allowing insecure global_id reclaim".to_string(),
    };
    let said = |name: &&str| format!("mon.{name} has {INSECURE_RECLAIM} set to true");
    let detail: Vec<String> = mons.iter().map(said).collect();
    let count = detail.len() as u64;
    found.push(warn(
        "AUTH_INSECURE_GLOBAL_ID_RECLAIM_ALLOWED",
        summary,
        count,
        detail,
    ));
}

pub fn sizing(ctx: &Context<'_>, figures: &Figures, found: &mut Vec<Check>) {
    let map = ctx.map();
    let osds = map.num_osds() as u64;
    // Without an explicit wish a pool takes as many copies as there is room for: nothing to warn of but having none.
    let want = ctx.state.mon_option_u64("osd_pool_default_size", 1);
    if osds < want && ctx.state.mon_option_bool("mon_warn_on_too_few_osds", true) {
        let text = format!("OSD count {osds} < osd_pool_default_size {want}");
        found.push(warn("TOO_FEW_OSDS", text, want - osds, vec![]));
    }
    let max = ctx.state.mon_option_u64("mon_max_pg_per_osd", MAX_PG_PER_OSD);
    let copies: u64 = figures.per_osd().values().map(|(n, _)| u64::from(*n)).sum();
    let inside = map.num_in_osds() as u64;
    if inside > 0 && max > 0 && copies / inside > max {
        let text = format!("too many PGs per OSD ({} > max {max})", copies / inside);
        found.push(warn("TOO_MANY_PGS", text, copies / inside, vec![]));
    }
    let t = &map.crush.tunables;
    let see = "see http://docs.ceph.com/en/latest/rados/operations/crush-map/#tunables".to_string();
    if t.straw_calc_version == 0 {
        let text = "crush map has straw_calc_version=0".to_string();
        found.push(warn("OLD_CRUSH_STRAW_CALC_VERSION", text, 0, vec![see]));
    }
}
