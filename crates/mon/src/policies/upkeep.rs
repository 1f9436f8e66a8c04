//! What the monitor does by itself, about once a second: pure functions from state and reports to changes.
//!
//! - blocklist entries whose time has come go;
//! - placement groups that are to be merged stay in one place (docs/internals/merging.md);
//! - snapshots that every placement group has purged leave the queue;
//! - pools over their quota, and OSDs near their end of space, get their flags; and lose them again;
//! - mutes that have ended go;
//! - what is open under keys whose time is over ends;
//! - limits and reservations of what clients do in pools that are gone go;
//! - wishes for placement groups to be copied before others go when these are whole, or gone;
//! - OSDs that stay down are marked out (`auto_out` says which);
//! - hosts are put where the rules of pools that are near a host look for them (`near`);
//! - the weights of OSDs in spare space follow it (`spare`);
//! - OSDs that are up in the map but report no more are marked down.

use crate::format::units;
use crate::policies::{near, spare};
use auth::EntityAuth;
use cluster::qos::Limits;
use cluster::{Change, Changes, ClusterState, ClusterStats};
use std::collections::BTreeMap;
use types::clusterlog::LogLevel;
use types::osdmap::{Incremental, OsdMap, osd_state};
use types::pgstats::pg_state;
use types::pool::{PgPool, pool_flag};
use types::{AuthName, OsdId, PgId, PoolId, Utime};

/// Entries of one kind that one step takes away; the rest follows a second later.
const PER_STEP_MAX: usize = 1000;

/// Keys that one step ends: each is three rows.
const KEYS_PER_STEP_MAX: usize = 20;

/// How far back an OSD must fall below a ratio before its flag goes, so that flags do not flap.
const RATIO_HYSTERESIS: f64 = 0.005;

/// Everything that is due, in one increment.
pub fn due(state: &ClusterState, stats: &ClusterStats, out: &[(OsdId, u64)], now: Utime) -> Changes {
    let map = &*state.osdmap;
    let mut inc = Incremental::next_after(map, now);
    let untouched = inc.clone();
    expire_blocklist(map, now, &mut inc);
    purge_snaps(map, stats, &mut inc);
    flag_osds(map, stats, &mut inc);
    // Somebody may have moved one of them.
    for (id, pool) in map.pools.iter().filter(|(_, p)| p.pg_num_target < p.pg_num) {
        cluster::share_places(map, *id, pool.pgp_num.max(pool.pg_num_target), &mut inc);
    }
    let mut changes = Changes::none();
    flag_pools(state, stats, now, &mut inc, &mut changes);
    mark_out(state, out, now, &mut inc, &mut changes);
    if let Some(crush) = near::mend(&map.crush) {
        *inc.crush_mut(map) = crush;
    }
    weigh_spare(state, stats, now, &mut inc, &mut changes);
    if inc != untouched {
        changes.osdmap = Some(Box::new(inc));
    }
    end_forced(state, stats, &mut changes);
    end_limits(state, &mut changes);
    end_keys(state, now, &mut changes);
    for mute in state.mutes.values() {
        if mute.until.is_some_and(|t| t <= now) {
            changes.push(Change::Unmute {
                code: mute.code.clone(),
            });
        }
    }
    changes
}

fn end_forced(state: &ClusterState, stats: &ClusterStats, to: &mut Changes) {
    for (id, forced) in state.all_forced() {
        let pg_num = state.osdmap.pool(id).map_or(0, |p| p.pg_num);
        let whole = |seed| {
            let stat = stats.pg(PgId::new(id, seed));
            stat.is_some_and(|s| s.state & pg_state::CLEAN != 0)
        };
        let mut left = forced.clone();
        left.retain(|seed| seed < pg_num && !whole(seed));
        if left != forced {
            to.push(left.change(id));
        }
    }
}

/// Another epoch ends sessions and tickets, wherever they are. Once for each user; the state remembers it.
fn end_keys(state: &ClusterState, now: Utime, to: &mut Changes) {
    let settled = |(name, e): (&AuthName, &EntityAuth)| Some((name.clone(), e.settled(now)?));
    let due = state.auth.entities.iter().filter_map(settled);
    for (name, entity) in due.take(KEYS_PER_STEP_MAX) {
        let text = match entity.expired(now) {
            Some(_) => format!("The time of {name} is over: its sessions and tickets end"),
            None => format!("The time of {name} is not over: a monitor's clock was ahead"),
        };
        let entry = state.log_entry(now, LogLevel::Security, text);
        to.push(Change::Log(entry.clone()));
        to.push(Change::Audit(entry));
        to.push(Change::AuthPut { name, entity });
    }
}

/// Of pools that are no more.
fn end_limits(state: &ClusterState, to: &mut Changes) {
    let all = state.qos();
    let gone = all
        .keys()
        .filter(|s| s.pool().is_some_and(|id| state.osdmap.pool(id).is_none()));
    let rows = gone.flat_map(|subject| subject.changes(&Limits::default()));
    // Most subjects have one row of the two.
    let there = |change: &Change| matches!(change, Change::ConfigKeyRm { key } if state.config_keys.contains_key(key));
    for change in rows.filter(there).take(PER_STEP_MAX) {
        to.push(change);
    }
}

/// Those of `out` (with the seconds they were down) that still are down and in.
fn mark_out(state: &ClusterState, out: &[(OsdId, u64)], now: Utime, inc: &mut Incremental, to: &mut Changes) {
    let map = &*state.osdmap;
    for (id, sec) in out.iter().filter(|(id, _)| map.is_down(*id) && map.is_in(*id)) {
        inc.auto_out(map, *id);
        let text = format!("Marking osd.{id} out (has been down for {sec} seconds)");
        to.push(Change::Log(state.log_entry(now, LogLevel::Info, text)));
    }
}

fn weigh_spare(
    state: &ClusterState,
    stats: &ClusterStats,
    now: Utime,
    inc: &mut Incremental,
    to: &mut Changes,
) {
    for change in spare::due(&state.osdmap, stats) {
        inc.set_weight(change.osd, change.weight);
        to.push(Change::Log(state.log_entry(now, LogLevel::Info, change.text)));
    }
}

fn expire_blocklist(map: &OsdMap, now: Utime, inc: &mut Incremental) {
    let ended = |list: &types::osdmap::Blocklist| {
        list.iter()
            .filter(|(_, until)| **until <= now)
            .map(|(a, _)| *a)
            .take(PER_STEP_MAX)
            .collect()
    };
    inc.old_blocklist = ended(&map.blocklist);
    inc.old_range_blocklist = ended(&map.range_blocklist);
}

fn purge_snaps(map: &OsdMap, stats: &ClusterStats, inc: &mut Incremental) {
    for (id, queue) in &map.removed_snaps_queue {
        let Some(pool) = map.pool(*id) else {
            continue;
        };
        let purged = stats.purged_everywhere(*id, pool.pg_num, queue);
        if !purged.is_empty() {
            inc.new_purged_snaps.insert(*id, purged);
        }
    }
}

/// FULL and NEARFULL of OSDs by their reports, as XOR masks.
fn flag_osds(map: &OsdMap, stats: &ClusterStats, inc: &mut Incremental) {
    let levels = [
        (osd_state::FULL, f64::from(map.full_ratio)),
        (osd_state::BACKFILLFULL, f64::from(map.backfillfull_ratio)),
        (osd_state::NEARFULL, f64::from(map.nearfull_ratio)),
    ];
    for (id, report) in &stats.osds {
        let Some(slot) = map.osd(*id).filter(|_| map.is_up(*id)) else {
            continue;
        };
        let total = report.stat.statfs.total as f64;
        if total <= 0.0 {
            continue;
        }
        let used = report.stat.statfs.used() as f64 / total;
        // Only the highest level that is reached is shown.
        let mut want = 0;
        for (bit, ratio) in levels {
            let limit = if slot.state & bit != 0 {
                ratio - RATIO_HYSTERESIS
            } else {
                ratio
            };
            if used >= limit {
                want = bit;
                break;
            }
        }
        let all = osd_state::FULL | osd_state::BACKFILLFULL | osd_state::NEARFULL;
        let mask = (slot.state & all) ^ want;
        if mask != 0 {
            inc.new_state.insert(*id, mask);
        }
    }
}

/// True if any OSD that takes writes will be full after `inc`.
fn some_osd_has(map: &OsdMap, inc: &Incremental, bit: u32) -> bool {
    map.osd_ids().any(|id| {
        let state = map.osd(id).map_or(0, |o| o.state) ^ inc.new_state.get(&id).copied().unwrap_or(0);
        map.is_in(id) && state & bit != 0
    })
}

/// FULL of pools by quota, and how near their OSDs are to being full.
///
/// A full OSD does not make its pools FULL: stock clients then hold back every write *and every delete* until
/// the flag goes, without a word to their caller. Skep's OSDs refuse what does not fit with ENOSPC, and take
/// deletes; the OSD's own state says "full" to people (health OSD_FULL).
fn flag_pools(
    state: &ClusterState,
    stats: &ClusterStats,
    now: Utime,
    inc: &mut Incremental,
    to: &mut Changes,
) {
    let map = &*state.osdmap;
    let device_full = some_osd_has(map, inc, osd_state::FULL);
    let device_backfillfull = some_osd_has(map, inc, osd_state::BACKFILLFULL);
    let device_nearfull = some_osd_has(map, inc, osd_state::NEARFULL);
    let managed = pool_flag::FULL | pool_flag::FULL_QUOTA | pool_flag::NEARFULL | pool_flag::BACKFILLFULL;
    for (id, pool) in &map.pools {
        let reached = quotas_reached(pool, stats, *id);
        let mut want = if reached.is_empty() {
            0
        } else {
            pool_flag::FULL | pool_flag::FULL_QUOTA
        };
        let name = map.pool_name(*id).unwrap_or("?");
        let mut log = |level, text| to.push(Change::Log(state.log_entry(now, level, text)));
        match (pool.has(pool_flag::FULL_QUOTA), reached.is_empty()) {
            (false, false) => {
                for quota in reached {
                    log(
                        LogLevel::Warning,
                        format!("pool '{name}' is full (reached quota's {quota})"),
                    );
                }
            }
            (true, true) => log(
                LogLevel::Info,
                format!("pool '{name}' no longer out of quota; removing NO_QUOTA flag"),
            ),
            _ => {}
        }
        if device_full || device_backfillfull {
            want |= pool_flag::BACKFILLFULL;
        } else if device_nearfull {
            want |= pool_flag::NEARFULL;
        }
        if pool.flags & managed != want
            && let Some(p) = inc.pool_mut(map, *id)
        {
            p.flags = p.flags & !managed | want;
        }
    }
}

/// The quotas that a pool has come to, as the log says it.
fn quotas_reached(pool: &PgPool, stats: &ClusterStats, id: PoolId) -> Vec<String> {
    let (max_bytes, max_objects) = (pool.quota_max_bytes, pool.quota_max_objects);
    if max_bytes == 0 && max_objects == 0 {
        return Vec::new();
    }
    let sum = stats.pool_sum(id);
    let over = |limit: u64, have: i64| limit > 0 && have.max(0) as u64 >= limit;
    let mut out = Vec::new();
    if over(max_bytes, sum.num_bytes) {
        out.push(format!("max_bytes: {}", units::bytes(max_bytes)));
    }
    if over(max_objects, sum.num_objects) {
        out.push(format!("max_objects: {max_objects}"));
    }
    out
}

/// Notices OSDs that stopped reporting. One that has not reported yet since it came up gets the same grace.
#[derive(Debug, Default)]
pub struct Silence {
    /// Up in the map without a report: since when (monotonic seconds).
    since: BTreeMap<OsdId, u64>,
}

/// Seconds without a report (its lease has ended by then) until an OSD is marked down.
pub const SILENCE_GRACE_SEC: u64 = 30;

impl Silence {
    /// The OSDs to be marked down at `now_sec` (monotonic).
    pub fn due(&mut self, map: &OsdMap, stats: &ClusterStats, now_sec: u64) -> Vec<OsdId> {
        if map.has_flag(types::osdmap::map_flag::NODOWN) {
            self.since.clear();
            return Vec::new();
        }
        let silent: Vec<_> = map
            .osd_ids()
            .filter(|id| map.is_up(*id) && !stats.osds.contains_key(id))
            .collect();
        self.since.retain(|id, _| silent.contains(id));
        silent
            .into_iter()
            .filter(|id| {
                now_sec.saturating_sub(*self.since.entry(*id).or_insert(now_sec)) >= SILENCE_GRACE_SEC
            })
            .collect()
    }
}
