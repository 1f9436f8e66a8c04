//! Pools and their snapshots: what POOLOP and the pool commands both do, as pure functions from a state to an
//! increment of the OSD map (docs/protocol/ceph/02-monitor.md, 6.4 and 13.8;
//! docs/protocol/ceph/03-placement.md, 2.3 and 8).
//!
//! Each function checks first and writes into the increment only when it succeeds. What is asked for and is
//! so already is a success without a change ([`Done::Already`]), since clients repeat their requests.
//!
//! Pools of shards take their shape from a profile (`policies::coded`).

use crate::policies::autoscale;
use crate::policies::coded;
pub use crate::policies::pool_change::{Done, PoolError, Result};
use crate::policies::pool_change::{pool_mut, refuse};
use crate::policies::spread::Spread;
use cluster::ClusterState;
use crush::RuleKind;
use types::osdmap::{Incremental, OsdMap};
use types::pool::{PgPool, PoolOption, pool_flag};
use types::{AuthName, Errno, PoolId, Utime};

/// Copies where nothing else was said, as in Ceph.
pub const SIZE_DEFAULT: u64 = 3;
/// Flags that new pools get where the option says so.
const DEFAULT_FLAGS: [(&str, u64); 4] = [
    ("osd_pool_default_flag_nodelete", pool_flag::NODELETE),
    ("osd_pool_default_flag_nopgchange", pool_flag::NOPGCHANGE),
    ("osd_pool_default_flag_nosizechange", pool_flag::NOSIZECHANGE),
    ("osd_pool_default_flag_bulk", pool_flag::BULK),
];
pub(crate) const SIZE_ONE_OFF: &str = "configuring pool size as 1 is disabled by default.";
/// Ceph's own limit.
pub const SIZE_MAX: i64 = 10;
/// Pools that a cluster may have.
pub const POOLS_MAX: usize = 4096;
pub const POOL_NAME_BYTES_MAX: usize = 1024;
pub const SNAP_NAME_BYTES_MAX: usize = 1024;

/// Options of the monitors that pool creation obeys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolDefaults {
    /// `osd_pool_default_size`, if somebody set it.
    pub size: Option<u64>,
    pub min_size: u64,
    pub pg_num: u64,
    pub pg_num_max: u64,
    pub pg_per_osd_max: u64,
    /// Ceph's default is false; here a single disk is a store like any other.
    pub allow_size_one: bool,
    pub allow_delete: bool,
}

impl PoolDefaults {
    pub fn of(state: &ClusterState) -> Self {
        Self {
            size: state
                .mon_option("osd_pool_default_size")
                .and_then(|v| v.parse().ok()),
            min_size: state.mon_option_u64("osd_pool_default_min_size", 0),
            pg_num: state.mon_option_u64("osd_pool_default_pg_num", 32),
            pg_num_max: state.mon_option_u64("mon_max_pool_pg_num", 65_536),
            pg_per_osd_max: state.mon_option_u64("mon_max_pg_per_osd", 250),
            allow_size_one: state.mon_option_bool("mon_allow_pool_size_one", true),
            allow_delete: state.mon_option_bool("mon_allow_pool_delete", false),
        }
    }
}

impl PoolDefaults {
    pub(crate) fn min_size_for(&self, size: u8) -> u8 {
        u8::try_from(self.min_size)
            .ok()
            .filter(|m| (1..=size).contains(m))
            .unwrap_or(PgPool::default_min_size(size))
    }

    /// Copies of a pool that names no number: what was configured, else [`SIZE_DEFAULT`], but not more than its rule
    /// can place now.
    fn size_for(&self, map: &OsdMap, rule: u8) -> u64 {
        self.size.unwrap_or_else(|| {
            let domains = Spread::of(map, u32::from(rule)).domains.len() as u64;
            SIZE_DEFAULT.min(domains).max(1)
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RuleChoice<'a> {
    #[default]
    Default,
    Id(i64),
    Name(&'a str),
}

/// A pool to be made; what is 0 or None takes its default.
#[derive(Debug, Clone, Default)]
pub struct NewPool<'a> {
    pub name: &'a str,
    pub pg_num: u64,
    pub pgp_num: u64,
    /// The profile of a pool of shards; None: copies.
    pub erasure: Option<&'a str>,
    pub rule: RuleChoice<'a>,
    pub size: u64,
    /// 0 off, 1 warn, 2 on.
    pub autoscale_mode: Option<u8>,
    pub expected_num_objects: u64,
    pub bulk: bool,
    /// Settings by name: pg_num_min, pg_num_max, target_size_bytes, target_size_ratio.
    pub options: Vec<(&'static str, PoolOption)>,
}

/// `name` among the pools as they are after `inc`.
fn taken(map: &OsdMap, inc: &Incremental, name: &str) -> bool {
    map.pool_by_name(name)
        .is_some_and(|id| !inc.old_pools.contains(&id))
        || inc.new_pool_names.values().any(|n| n == name)
}

/// Creates a pool; gives its id when it is new.
pub fn create(
    state: &ClusterState,
    new: &NewPool<'_>,
    now: Utime,
    inc: &mut Incremental,
) -> Result<(Done, Option<PoolId>)> {
    let map = &*state.osdmap;
    if new.name.is_empty() || new.name.len() > POOL_NAME_BYTES_MAX {
        return refuse(Errno::EINVAL, "pool name must have 1 to 1024 bytes");
    }
    if taken(map, inc, new.name) {
        return Ok((Done::Already(format!("pool '{}' already exists", new.name)), None));
    }
    if map.pools.len() + inc.new_pool_names.len() >= POOLS_MAX {
        return refuse(
            Errno::ENOSPC,
            format!("the cluster has {POOLS_MAX} pools already"),
        );
    }
    let defaults = PoolDefaults::of(state);
    let shape = match new.erasure {
        Some(profile) => coded::pool_of(state, new.name, profile, new.rule, inc)?,
        None => copies(map, new, &defaults)?,
    };
    let (pg_num, pgp_num) = checked_pg_nums(map, new, &defaults, shape.size)?;
    let id = PoolId::from(inc.new_pool_max.unwrap_or(map.pool_max)) + 1;
    let Ok(pool_max) = i32::try_from(id) else {
        return refuse(Errno::ENOSPC, "pool ids are used up");
    };
    let mut pool = PgPool {
        pg_num,
        pgp_num,
        pg_num_target: pg_num,
        pgp_num_target: pgp_num,
        pg_num_pending: pg_num,
        expected_num_objects: new.expected_num_objects,
        pg_autoscale_mode: new
            .autoscale_mode
            .unwrap_or_else(|| autoscale::mode_of_new(state, new.pg_num > 0).0),
        last_change: map.epoch + 1,
        create_time: now,
        ..shape
    };
    if new.bulk {
        pool.flags |= pool_flag::BULK;
    }
    for (option, flag) in DEFAULT_FLAGS {
        if state.mon_option_bool(option, false) {
            pool.flags |= flag;
        }
    }
    for (name, value) in &new.options {
        pool.opts.set(name, value.clone());
    }
    inc.new_pool_max = Some(pool_max);
    inc.new_pools.insert(id, pool);
    inc.new_pool_names.insert(id, new.name.to_string());
    Ok((Done::Changed(format!("pool '{}' created", new.name)), Some(id)))
}

/// What a pool of copies is, its numbers of groups apart.
fn copies(map: &OsdMap, new: &NewPool<'_>, defaults: &PoolDefaults) -> Result<PgPool> {
    let crush_rule = find_rule(map, new.rule, RuleKind::Replicated)?;
    let size = match new.size {
        0 => defaults.size_for(map, crush_rule),
        n => n,
    };
    let size = checked_size(map, crush_rule, size)?;
    if size == 1 && !defaults.allow_size_one {
        return refuse(Errno::EPERM, SIZE_ONE_OFF);
    }
    Ok(PgPool {
        size,
        min_size: defaults.min_size_for(size),
        crush_rule,
        ..PgPool::default()
    })
}

fn pools_of(kind: RuleKind) -> &'static str {
    match kind {
        RuleKind::Erasure => "erasure-coded",
        _ => "replicated",
    }
}

/// A rule id that pools of this kind can use.
pub(crate) fn find_rule(map: &OsdMap, choice: RuleChoice<'_>, kind: RuleKind) -> Result<u8> {
    let crush = &map.crush;
    let id = match choice {
        RuleChoice::Default | RuleChoice::Id(-1) | RuleChoice::Name("") => {
            let first = crush.rule_ids().find(|id| is_rule_of(map, *id, kind));
            match first {
                Some(id) => id,
                None => {
                    let why = format!("no CRUSH rule for {} pools exists", pools_of(kind));
                    return refuse(Errno::ENOENT, why);
                }
            }
        }
        RuleChoice::Id(id) => match u32::try_from(id).ok().filter(|id| crush.rule(*id).is_some()) {
            Some(id) => id,
            None => return refuse(Errno::ENOENT, format!("specified rule {id} doesn't exist")),
        },
        RuleChoice::Name(name) => match crush.rule_id(name).and_then(|id| u32::try_from(id).ok()) {
            Some(id) => id,
            None => return refuse(Errno::ENOENT, format!("specified rule {name} doesn't exist")),
        },
    };
    if !is_rule_of(map, id, kind) {
        let why = format!("rule {id} is not for {} pools", pools_of(kind));
        return refuse(Errno::EINVAL, why);
    }
    u8::try_from(id).or_else(|_| {
        refuse(
            Errno::EINVAL,
            format!("rule {id} has too high a number for a pool"),
        )
    })
}

fn is_rule_of(map: &OsdMap, id: u32, kind: RuleKind) -> bool {
    map.crush.rule(id).is_some_and(|r| r.kind == kind as u8)
}

/// A rule says for which numbers of copies it is: with others clients would find no place at all.
pub(crate) fn check_rule_takes(map: &OsdMap, rule: u8, size: u8) -> Result<()> {
    let (min, max) = match map.crush.rule(u32::from(rule)) {
        Some(r) => (r.min_size, r.max_size),
        None => return refuse(Errno::ENOENT, format!("crush rule {rule} does not exist")),
    };
    if size < min {
        return refuse(Errno::EINVAL, "pool size is smaller than the crush rule min size");
    }
    if size > max {
        return refuse(Errno::EINVAL, "pool size is bigger than the crush rule max size");
    }
    Ok(())
}

pub(crate) fn checked_size(map: &OsdMap, rule: u8, size: u64) -> Result<u8> {
    match u8::try_from(size) {
        Ok(n) if (1..=SIZE_MAX as u8).contains(&n) => check_rule_takes(map, rule, n).map(|()| n),
        _ => refuse(
            Errno::EINVAL,
            format!("pool size must be between 1 and {SIZE_MAX}"),
        ),
    }
}

fn checked_pg_nums(map: &OsdMap, new: &NewPool<'_>, d: &PoolDefaults, size: u8) -> Result<(u32, u32)> {
    let pg_num = if new.pg_num == 0 { d.pg_num } else { new.pg_num };
    if pg_num == 0 || pg_num > d.pg_num_max {
        return refuse(Errno::ERANGE, pg_num_text(d.pg_num_max));
    }
    let pgp_num = if new.pgp_num == 0 { pg_num } else { new.pgp_num };
    if pgp_num > pg_num {
        return refuse(
            Errno::ERANGE,
            format!(
                "'pgp_num' must be greater than 0 and lower or equal than 'pg_num', which in this case is {pg_num}"
            ),
        );
    }
    let existing: u64 = map
        .pools
        .values()
        .map(|p| u64::from(p.pg_num) * u64::from(p.size))
        .sum();
    check_pgs_per_osd(map, d, existing, pg_num, size)?;
    let fit = |n: u64| u32::try_from(n).or_else(|_| refuse(Errno::ERANGE, pg_num_text(d.pg_num_max)));
    Ok((fit(pg_num)?, fit(pgp_num)?))
}

/// `existing`: group copies of all other pools.
pub(crate) fn check_pgs_per_osd(
    map: &OsdMap,
    d: &PoolDefaults,
    existing: u64,
    pg_num: u64,
    size: u8,
) -> Result<()> {
    let num_in = map.num_in_osds() as u64;
    let limit = d.pg_per_osd_max.saturating_mul(num_in.max(1));
    let total = existing.saturating_add(pg_num.saturating_mul(u64::from(size)));
    if total <= limit {
        return Ok(());
    }
    refuse(
        Errno::ERANGE,
        format!(
            " pg_num {pg_num} size {size} would mean {total} total pgs, which exceeds max {limit} \
             (mon_max_pg_per_osd {} * num_in_osds {num_in})",
            d.pg_per_osd_max
        ),
    )
}

pub(crate) fn pg_num_text(max: u64) -> String {
    format!(
        "'pg_num' must be greater than 0 and less than or equal to {max} (you may adjust 'mon max pool pg num' \
         for higher values)"
    )
}

/// Removes a pool with all that is in it, unless a file system uses it. The caller has seen the user's consent.
pub fn delete(state: &ClusterState, id: PoolId, inc: &mut Incremental) -> Result<Done> {
    if state.fsmap.users_of(id).next().is_some() {
        let name = state.osdmap.pool_name(id).unwrap_or_default();
        return refuse(Errno::EBUSY, format!("pool '{name}' is in use by CephFS"));
    }
    delete_unused(state, id, inc)
}

/// The same where the file systems that use it go with it.
pub fn delete_unused(state: &ClusterState, id: PoolId, inc: &mut Incremental) -> Result<Done> {
    let map = &*state.osdmap;
    let Some(pool) = map.pool(id) else {
        return Ok(Done::Already(format!("pool '{id}' does not exist")));
    };
    if !PoolDefaults::of(state).allow_delete {
        return refuse(
            Errno::EPERM,
            "pool deletion is disabled; you must first set the mon_allow_pool_delete config option to true \
             before you can destroy a pool",
        );
    }
    if pool.has(pool_flag::NODELETE) {
        return refuse(
            Errno::EPERM,
            "pool deletion is disabled; you must unset nodelete flag for the pool first",
        );
    }
    let name = map.pool_name(id).unwrap_or_default().to_string();
    inc.delete_pool(map, id);
    Ok(Done::Changed(format!("pool '{name}' removed")))
}

pub fn rename(map: &OsdMap, from: &str, to: &str, inc: &mut Incremental) -> Result<Done> {
    let Some(id) = map.pool_by_name(from) else {
        // The first try got through and its answer was lost.
        if map.pool_by_name(to).is_some() {
            return Ok(Done::Already(format!(
                "pool '{from}' does not exist; pool '{to}' does -- assuming successful rename"
            )));
        }
        return refuse(Errno::ENOENT, format!("unrecognized pool '{from}'"));
    };
    if to.is_empty() || to.len() > POOL_NAME_BYTES_MAX {
        return refuse(Errno::EINVAL, "pool name must have 1 to 1024 bytes");
    }
    if taken(map, inc, to) {
        return refuse(Errno::EEXIST, format!("pool '{to}' already exists"));
    }
    inc.new_pool_names.insert(id, to.to_string());
    Ok(Done::Changed(format!("pool '{from}' renamed to '{to}'")))
}

pub fn create_snap(map: &OsdMap, id: PoolId, name: &str, now: Utime, inc: &mut Incremental) -> Result<Done> {
    let pool_name = map.pool_name(id).unwrap_or_default().to_string();
    if name.len() > SNAP_NAME_BYTES_MAX {
        return refuse(Errno::EINVAL, "snapshot name must have at most 1024 bytes");
    }
    let Some(pool) = map.pool(id) else {
        return refuse(Errno::ENOENT, format!("unrecognized pool '{id}'"));
    };
    if pool.is_selfmanaged_snaps_mode() {
        return refuse(
            Errno::EINVAL,
            format!("pool {pool_name} is in selfmanaged snaps mode"),
        );
    }
    if pool.tier_of >= 0 {
        return refuse(Errno::EINVAL, format!("pool {pool_name} is a cache tier"));
    }
    if pool.pool_snap_by_name(name).is_some() {
        return Ok(Done::Already(format!(
            "pool {pool_name} snap {name} already exists"
        )));
    }
    pool_mut(map, inc, id)?.new_pool_snap(name, now, map.epoch + 1);
    Ok(Done::Changed(format!("created pool {pool_name} snap {name}")))
}

pub fn remove_snap(map: &OsdMap, id: PoolId, name: &str, inc: &mut Incremental) -> Result<Done> {
    let pool_name = map.pool_name(id).unwrap_or_default().to_string();
    let Some(pool) = map.pool(id) else {
        return refuse(Errno::ENOENT, format!("unrecognized pool '{id}'"));
    };
    if pool.is_selfmanaged_snaps_mode() {
        return refuse(
            Errno::EINVAL,
            format!("pool {pool_name} is in selfmanaged snaps mode"),
        );
    }
    let Some(snap) = pool.pool_snap_by_name(name) else {
        return Ok(Done::Already(format!(
            "pool {pool_name} snap {name} does not exist"
        )));
    };
    pool_mut(map, inc, id)?.remove_pool_snap(snap, map.epoch + 1);
    inc.new_removed_snaps.entry(id).or_default().insert(snap);
    Ok(Done::Changed(format!("removed pool {pool_name} snap {name}")))
}

/// Whose self-managed snapshots somebody may remove.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SnapRights {
    /// All of the pool: who may write everywhere in it, or change the OSD map.
    Pool,
    /// Those that it made: who may write in a part of the pool, a namespace.
    Own,
}

/// A new id for a snapshot that the client manages by itself (RBD).
pub fn create_selfmanaged_snap(map: &OsdMap, id: PoolId, inc: &mut Incremental) -> Result<u64> {
    let Some(pool) = map.pool(id) else {
        return refuse(Errno::ENOENT, format!("unrecognized pool '{id}'"));
    };
    if pool.is_pool_snaps_mode() {
        return refuse(Errno::EINVAL, "pool is in pool snaps mode");
    }
    Ok(pool_mut(map, inc, id)?.new_selfmanaged_snap(map.epoch + 1))
}

/// Ids belong to the pool, so a tenant of one namespace could name another's: what it did not make itself, and what is
/// nobody's (made before owners were kept), it may not remove.
pub fn remove_selfmanaged_snap(
    state: &ClusterState,
    id: PoolId,
    snap: u64,
    who: (&AuthName, SnapRights),
    inc: &mut Incremental,
) -> Result<Done> {
    let map = &*state.osdmap;
    let Some(pool) = map.pool(id) else {
        return refuse(Errno::ENOENT, format!("unrecognized pool '{id}'"));
    };
    if pool.is_pool_snaps_mode() {
        return refuse(Errno::EINVAL, "pool is in pool snaps mode");
    }
    if !pool.is_selfmanaged_snaps_mode() {
        return refuse(Errno::EOPNOTSUPP, "pool has no selfmanaged snaps");
    }
    if snap > pool.snap_seq {
        return refuse(Errno::ENOENT, format!("snap {snap} was never created"));
    }
    let (name, rights) = who;
    if rights == SnapRights::Own && state.snap_owners.owner(id, snap) != Some(name) {
        return refuse(Errno::EPERM, format!("snap {snap} is not {name}'s"));
    }
    if was_removed(state, id, snap) {
        return Ok(Done::Already(format!("snap {snap} is removed already")));
    }
    pool_mut(map, inc, id)?.remove_selfmanaged_snap(snap, map.epoch + 1);
    inc.new_removed_snaps.entry(id).or_default().insert(snap);
    Ok(Done::Changed(String::new()))
}

/// Removed, as far as is known. One that is nobody's and was purged long ago is removed once more when asked to: harmless,
/// since its clones are gone.
fn was_removed(state: &ClusterState, id: PoolId, snap: u64) -> bool {
    let map = &state.osdmap;
    state.snap_owners.is_removed(id, snap)
        || map.removed_snaps_queue.get(&id).is_some_and(|s| s.contains(snap))
        || map.new_removed_snaps.get(&id).is_some_and(|s| s.contains(snap))
}
