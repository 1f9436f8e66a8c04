//! `osd pool set`, quotas and application tags: one setting of one pool.
//!
//! Values arrive as text. Texts of success and refusal are Ceph's (docs/protocol/ceph/02-monitor.md, 13.8).

use crate::policies::pool_change::pool_mut;
use crate::policies::pool_change::refuse;
use crate::policies::pools;
use crate::policies::pools::{Done, PoolDefaults, Result, SIZE_MAX};
use cluster::ClusterState;
use crush::RuleKind;
use types::osdmap::{Incremental, OsdMap};
use types::pool::{
    AUTOSCALE_OFF, AUTOSCALE_ON, AUTOSCALE_WARN, OptionKind, PgPool, PoolOption, PoolOptions, pool_flag,
};
use types::{Errno, PoolId};

/// Flags that `osd pool set` turns on and off, under their names.
const FLAGS: [(&str, u64); 8] = [
    ("nodelete", pool_flag::NODELETE),
    ("nopgchange", pool_flag::NOPGCHANGE),
    ("nosizechange", pool_flag::NOSIZECHANGE),
    ("write_fadvise_dontneed", pool_flag::WRITE_FADVISE_DONTNEED),
    ("noscrub", pool_flag::NOSCRUB),
    ("nodeep-scrub", pool_flag::NODEEP_SCRUB),
    ("bulk", pool_flag::BULK),
    // As of Ceph 17: 16.2 knows the flag, and has no command for it.
    ("eio", pool_flag::EIO),
];
const COMPRESSION_MODES: [&str; 4] = ["none", "passive", "aggressive", "force"];
const FINGERPRINTS: [&str; 3] = ["sha1", "sha256", "sha512"];
const CHUNKERS: [&str; 2] = ["fastcdc", "fixed"];
const COMPRESSION_ALGORITHMS: [&str; 5] = ["none", "snappy", "zlib", "zstd", "lz4"];
/// Applications that one pool may be tagged with, and keys of one of them.
pub const APPLICATIONS_MAX: usize = 128;
const APPLICATION_NAME_MAX: usize = 128;
const APPLICATION_KEYS_MAX: usize = 1024;
const APPLICATION_VALUE_MAX: usize = 4096;

fn unrecognized<T>(name: &str) -> Result<T> {
    refuse(Errno::ENOENT, format!("unrecognized pool '{name}'"))
}

fn find(map: &OsdMap, name: &str) -> Result<PoolId> {
    map.pool_by_name(name).map_or_else(|| unrecognized(name), Ok)
}

fn integer(text: &str) -> Result<i64> {
    whole(text).or_else(|why| {
        refuse(
            Errno::EINVAL,
            format!("error parsing integer value '{text}': {why}"),
        )
    })
}

fn boolean(text: &str) -> Result<bool> {
    match text {
        "true" | "1" => Ok(true),
        "false" | "0" => Ok(false),
        _ => refuse(Errno::EINVAL, "expecting value 'true', 'false', '0', or '1'"),
    }
}

/// Steps of the units of sizes and counts.
const PREFIXES: &str = "KMGTPE";

fn whole(text: &str) -> std::result::Result<i64, String> {
    use std::num::IntErrorKind::{NegOverflow, PosOverflow};
    text.parse::<i64>().map_err(|e| match e.kind() {
        PosOverflow | NegOverflow => format!("The option value '{text}' seems to be invalid"),
        _ => format!("Expected option value to be integer, got '{text}'"),
    })
}

/// `10`, `10K`, `3G`: a count of things, in steps of 1000. The error is the reason.
fn count(text: &str) -> std::result::Result<u64, String> {
    let Some(last) = text.chars().last() else {
        return Err("strict_sistrtoll: value not specified".into());
    };
    // A `B` is no unit of a count, and no digit either.
    let power = match PREFIXES.find(last) {
        Some(i) => i as u32 + 1,
        None if last.is_ascii_digit() || last == 'B' => 0,
        None => return Err("strict_si_cast: unit prefix not recognized".into()),
    };
    let number = if power > 0 { &text[..text.len() - 1] } else { text };
    let Ok(n) = u64::try_from(whole(number)?) else {
        return Err("strict_sistrtoll: value should not be negative".into());
    };
    n.checked_mul(1000u64.pow(power))
        .filter(|n| *n <= i64::MAX as u64)
        .ok_or_else(|| "strict_sistrtoll: value out of range".into())
}

/// `10`, `10B`, `10K`, `10Ki`, `10KB`: bytes, in steps of 1024. The error is the reason.
pub fn size(text: &str) -> std::result::Result<u64, String> {
    let bad = |why: &str| Err(format!("strict_iecstrtoll: {why}"));
    if text.is_empty() {
        return bad("value not specified");
    }
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '-' && c != '+');
    let (number, unit) = text.split_at(digits.unwrap_or(text.len()));
    if unit.chars().count() > 2 {
        return bad("illegal prefix (length > 2)");
    }
    let power = match unit.chars().next() {
        None => 0,
        Some('B') if unit.len() == 1 => 0,
        Some('B') => return bad(&format!("illegal prefix \"{unit}\"")),
        Some(c) => match PREFIXES.find(c) {
            Some(i) => i as u32 + 1,
            None => return bad("unit prefix not recognized"),
        },
    };
    let Ok(n) = u64::try_from(whole(number)?) else {
        return bad("value should not be negative");
    };
    match n
        .checked_mul(1024u64.pow(power))
        .filter(|n| *n <= i64::MAX as u64)
    {
        Some(n) => Ok(n),
        None => bad("value seems to be too large"),
    }
}

const NO_EC_OVERWRITES: &str = "ec overwrites can only be enabled for an erasure coded pool";

/// `osd pool set POOL VAR VAL`; `sure` is --yes-i-really-mean-it.
pub fn set(
    state: &ClusterState,
    pool_name: &str,
    var: &str,
    val: &str,
    sure: bool,
    inc: &mut Incremental,
) -> Result<Done> {
    let map = &*state.osdmap;
    let id = find(map, pool_name)?;
    let done = Done::Changed(match val {
        "unset" => format!("unset pool {id} {var}"),
        _ => format!("set pool {id} {var} to {val}"),
    });
    if let Some((_, flag)) = FLAGS.iter().find(|(n, _)| *n == var) {
        let on = boolean(val)?;
        let pool = pool_mut(map, inc, id)?;
        if on {
            pool.flags |= flag;
        } else {
            pool.flags &= !flag;
        }
        return Ok(done);
    }
    match var {
        "size" => set_size(state, id, integer(val)?, sure, inc)?,
        "min_size" => set_min_size(map, id, integer(val)?, inc)?,
        "pg_num" | "pgp_num" | "pgp_num_actual" => set_pg_num(state, id, var, integer(val)?, inc)?,
        "crush_rule" => set_rule(map, id, val, inc)?,
        "pg_autoscale_mode" => {
            let mode = match val {
                "off" => AUTOSCALE_OFF,
                "warn" => AUTOSCALE_WARN,
                "on" => AUTOSCALE_ON,
                _ => return refuse(Errno::EINVAL, format!("specified invalid mode {val}")),
            };
            pool_mut(map, inc, id)?.pg_autoscale_mode = mode;
        }
        "hashpspool" => check_hashpspool(val, sure)?,
        "allow_ec_overwrites" => allow_ec_overwrites(pool_mut(map, inc, id)?, val)?,
        "fast_read" => return fast_read(pool_mut(map, inc, id)?),
        "dedup_tier" => {
            if val.parse::<i64>().is_ok() {
                return refuse(Errno::EINVAL, "expecting value 'pool name'");
            }
            let tier = find(map, val)?;
            set_or_unset(pool_mut(map, inc, id)?, var, PoolOption::Int(tier));
        }
        _ if is_option(var) => set_option(pool_mut(map, inc, id)?, var, val)?,
        // As the real one answers for a pool that is no tier, which all pools here are.
        v if is_tiering(v) => return refuse(Errno::EACCES, "(13) Permission denied"),
        _ => return refuse(Errno::EINVAL, format!("unrecognized variable '{var}'")),
    }
    Ok(done)
}

/// Those of later releases are known to the map's encoding only.
fn is_option(var: &str) -> bool {
    PoolOptions::lookup(var).is_some() && !matches!(var, "read_ratio" | "pct_update_delay")
}

fn is_tiering(var: &str) -> bool {
    let prefixes = [
        "use_gmt_hitset",
        "hit_set_",
        "cache_",
        "target_max_",
        "min_read_recency",
        "min_write_recency",
    ];
    prefixes.iter().any(|p| var.starts_with(p))
}

/// Once clients have written so there is no way back.
fn allow_ec_overwrites(pool: &mut PgPool, val: &str) -> Result<()> {
    if !pool.is_erasure() {
        return refuse(Errno::EINVAL, NO_EC_OVERWRITES);
    }
    if !boolean(val)? {
        return refuse(Errno::EINVAL, "ec overwrites cannot be disabled once enabled");
    }
    pool.flags |= pool_flag::EC_OVERWRITES;
    Ok(())
}

fn fast_read<T>(pool: &PgPool) -> Result<T> {
    match pool.is_erasure() {
        false => refuse(Errno::EINVAL, "fast read is not supported in replication pool"),
        true => refuse(
            Errno::EOPNOTSUPP,
            "fast_read of erasure-coded pools is not built in skep yet",
        ),
    }
}

/// Copies of placement groups of all other pools.
fn copies_of_others(map: &OsdMap, id: PoolId) -> u64 {
    let others = map.pools.iter().filter(|(p, _)| **p != id);
    others.map(|(_, p)| u64::from(p.pg_num) * u64::from(p.size)).sum()
}

fn set_size(state: &ClusterState, id: PoolId, n: i64, sure: bool, inc: &mut Incremental) -> Result<()> {
    if !(1..=SIZE_MAX).contains(&n) {
        return refuse(
            Errno::EINVAL,
            format!("pool size must be between 1 and {SIZE_MAX}"),
        );
    }
    let map = &*state.osdmap;
    let defaults = PoolDefaults::of(state);
    let others = copies_of_others(map, id);
    let pool = pool_mut(map, inc, id)?;
    if pool.has(pool_flag::NOSIZECHANGE) {
        return refuse(
            Errno::EPERM,
            "pool size change is disabled; you must unset nosizechange flag for the pool first",
        );
    }
    if pool.is_erasure() {
        return refuse(
            Errno::EOPNOTSUPP,
            "can not change the size of an erasure-coded pool",
        );
    }
    if n == 1 && !defaults.allow_size_one {
        return refuse(Errno::EPERM, pools::SIZE_ONE_OFF);
    }
    if n == 1 && !sure {
        return refuse(
            Errno::EPERM,
            "WARNING: setting pool size 1 could lead to data loss without recovery. If you are *ABSOLUTELY \
             CERTAIN* that is what you want, pass the flag --yes-i-really-mean-it.",
        );
    }
    let size = pools::checked_size(map, pool.crush_rule, n as u64)?;
    if size > pool.size {
        pools::check_pgs_per_osd(map, &defaults, others, u64::from(pool.pg_num), size)?;
    }
    pool.size = size;
    // As Ceph does: what an operator set for the old number of copies means nothing for the new one.
    pool.min_size = defaults.min_size_for(size);
    Ok(())
}

/// All pools have it.
fn check_hashpspool(val: &str, sure: bool) -> Result<()> {
    if !sure {
        return refuse(
            Errno::EPERM,
            "are you SURE?  this will remap all placement groups in this pool, this triggers large data movement, \
             pass --yes-i-really-mean-it if you really do.",
        );
    }
    match boolean(val)? {
        true => Ok(()),
        false => refuse(
            Errno::EOPNOTSUPP,
            "pools without hashpspool are not supported by skep",
        ),
    }
}

fn set_rule(map: &OsdMap, id: PoolId, name: &str, inc: &mut Incremental) -> Result<()> {
    let Some(rule) = map.crush.rule_id(name) else {
        return refuse(Errno::ENOENT, format!("crush rule {name} does not exist"));
    };
    let pool = pool_mut(map, inc, id)?;
    let kind = match pool.is_erasure() {
        true => RuleKind::Erasure,
        false => RuleKind::Replicated,
    };
    let Ok(rule) = pools::find_rule(map, pools::RuleChoice::Id(i64::from(rule)), kind) else {
        return refuse(Errno::EINVAL, "(22) Invalid argument");
    };
    pools::check_rule_takes(map, rule, pool.size)?;
    pool.crush_rule = rule;
    Ok(())
}

fn set_min_size(map: &OsdMap, id: PoolId, n: i64, inc: &mut Incremental) -> Result<()> {
    let pool = pool_mut(map, inc, id)?;
    // Fewer than the data shards have no object.
    let least = map.enough(pool);
    if n < i64::from(least) || n > i64::from(pool.size) {
        return refuse(
            Errno::EINVAL,
            format!(
                "pool min_size must be between {least} and size, which is set to {}",
                pool.size
            ),
        );
    }
    pool.min_size = n as u8;
    Ok(())
}

/// More groups at once: those that a split makes begin where their ancestor is. Fewer one by one: the OSDs merge them
/// (docs/internals/merging.md).
fn set_pg_num(state: &ClusterState, id: PoolId, var: &str, n: i64, inc: &mut Incremental) -> Result<()> {
    let map = &*state.osdmap;
    let defaults = PoolDefaults::of(state);
    let others = copies_of_others(map, id);
    let pool = pool_mut(map, inc, id)?;
    if var != "pg_num" && n <= 0 {
        return refuse(
            Errno::EINVAL,
            format!("specified {var} must > 0, but you set to {n}"),
        );
    }
    let Some(n) = u32::try_from(n)
        .ok()
        .filter(|n| (1..=defaults.pg_num_max).contains(&u64::from(*n)))
    else {
        return refuse(Errno::ERANGE, pools::pg_num_text(defaults.pg_num_max));
    };
    if pool.has(pool_flag::NOPGCHANGE) {
        return refuse(
            Errno::EPERM,
            format!("pool {var} change is disabled; you must unset nopgchange flag for the pool first"),
        );
    }
    if var != "pg_num" {
        // Each PG that is to go has the place of the one that it becomes part of.
        let most = pool.pg_num.min(pool.pg_num_target);
        if n > most {
            return refuse(Errno::EINVAL, format!("specified {var} {n} > pg_num {most}"));
        }
        pool.set_pgp_num(n);
        return Ok(());
    }
    within_limits(pool, n)?;
    if n != pool.pg_num && pool.is_erasure() {
        let what = if n < pool.pg_num { "merging" } else { "splitting" };
        return refuse(
            Errno::EOPNOTSUPP,
            format!("{what} placement groups of an erasure-coded pool is not built in skep yet"),
        );
    }
    if n > pool.pg_num_target {
        pools::check_pgs_per_osd(map, &defaults, others, u64::from(n), pool.size)?;
    }
    if n < pool.pg_num {
        pool.shrink_to(n);
        cluster::share_places(map, id, n, inc);
    } else if n != pool.pg_num_target || n > pool.pg_num {
        pool.set_pg_num(n, map.epoch + 1);
    }
    Ok(())
}

/// By the pool's own `pg_num_min` and `pg_num_max`.
fn within_limits(pool: &PgPool, n: u32) -> Result<()> {
    // The sign is the real one's, of both.
    for limit in ["pg_num_min", "pg_num_max"] {
        let Some(PoolOption::Int(at)) = pool.opts.get(limit) else {
            continue;
        };
        let beyond = match limit {
            "pg_num_min" => i64::from(n) < *at,
            _ => i64::from(n) > *at,
        };
        if beyond && *at > 0 {
            let why = format!("specified pg_num {n} < {limit} {at}");
            return refuse(Errno::EINVAL, why);
        }
    }
    Ok(())
}

fn set_option(pool: &mut PgPool, var: &str, val: &str) -> Result<()> {
    // Options that are words can be taken back by one.
    let words: Option<&[&str]> = match var {
        "compression_mode" => Some(&COMPRESSION_MODES),
        "compression_algorithm" => Some(&COMPRESSION_ALGORITHMS),
        "fingerprint_algorithm" => Some(&FINGERPRINTS),
        "dedup_chunk_algorithm" => Some(&CHUNKERS),
        _ => None,
    };
    if val == "unset" && (words.is_some() || var == "csum_type") {
        pool.opts.unset(var);
        return Ok(());
    }
    let value = match (words, var) {
        (Some(words), _) => one_of(words, var, val)?,
        (None, "csum_type") => PoolOption::Int(csum_type(val)?),
        (None, _) => number(pool, var, val)?,
    };
    set_or_unset(pool, var, value);
    Ok(())
}

/// Zero means: as if never set.
fn set_or_unset(pool: &mut PgPool, var: &str, value: PoolOption) {
    match value {
        PoolOption::Int(0) => pool.opts.unset(var),
        PoolOption::Double(0.0) => pool.opts.unset(var),
        value => {
            pool.opts.set(var, value);
        }
    }
}

/// The real one takes any word for an algorithm of deduplication; what nothing could ever understand is refused here.
fn one_of(words: &[&str], var: &str, val: &str) -> Result<PoolOption> {
    match words.contains(&val) {
        true => Ok(PoolOption::Str(val.to_string())),
        false => refuse(
            Errno::EINVAL,
            format!("unrecognized {} '{val}'", var.replace("_mode", " mode")),
        ),
    }
}

/// Options that are numbers, with the limits that each has.
fn number(pool: &PgPool, var: &str, val: &str) -> Result<PoolOption> {
    let bad = |kind: &str, why: String| {
        let text = format!("error parsing {kind} value '{val}': {why}");
        refuse(Errno::EINVAL, text)
    };
    let value = match (var, PoolOptions::lookup(var).map(|(_, kind)| kind)) {
        (_, Some(OptionKind::Double)) => match val.parse::<f64>() {
            Ok(d) if d.is_finite() => PoolOption::Double(d),
            _ => {
                let kind = match var {
                    "compression_required_ratio" => "float",
                    _ => "floating point",
                };
                return bad(kind, format!("strict_strtod: expected double, got: '{val}'"));
            }
        },
        (
            "compression_max_blob_size"
            | "compression_min_blob_size"
            | "csum_max_block"
            | "csum_min_block"
            | "target_size_bytes",
            _,
        ) => match size(val) {
            Ok(n) => PoolOption::Int(n as i64),
            Err(why) if var == "target_size_bytes" => return bad("unit", why),
            Err(why) => return bad("int", why),
        },
        ("recovery_op_priority" | "scrub_priority", _) => PoolOption::Int(integer(val)?),
        _ => match whole(val) {
            Ok(n) => PoolOption::Int(n),
            Err(why) => return bad("int", why),
        },
    };
    check_option(pool, var, val, &value)?;
    Ok(value)
}

/// Limits of single options.
fn check_option(pool: &PgPool, var: &str, val: &str, value: &PoolOption) -> Result<()> {
    let pg_num = i64::from(pool.pg_num_target);
    let why = match (var, value) {
        ("compression_required_ratio", PoolOption::Double(d)) if !(0.0..=1.0).contains(d) => {
            format!("compression_required_ratio is out of range (0-1): '{val}'")
        }
        ("target_size_ratio", PoolOption::Double(d)) if *d < 0.0 => {
            "target_size_ratio cannot be negative".to_string()
        }
        ("pg_autoscale_bias", PoolOption::Double(d)) if !(0.0..=1000.0).contains(d) => {
            "pg_autoscale_bias must be between 0 and 1000".to_string()
        }
        ("recovery_priority", PoolOption::Int(n)) if !(-10..=10).contains(n) => {
            "pool recovery_priority must be between -10 and 10".to_string()
        }
        ("pg_num_min", PoolOption::Int(n)) if *n > pg_num => {
            format!("specified pg_num_min {n} > pg_num {pg_num}")
        }
        ("pg_num_max", PoolOption::Int(n)) if *n != 0 && *n < pg_num => {
            format!("specified pg_num_max {n} < pg_num {pg_num}")
        }
        _ => return Ok(()),
    };
    refuse(Errno::EINVAL, why)
}

fn csum_type(val: &str) -> Result<i64> {
    const NAMES: [(&str, i64); 6] = [
        ("none", 1),
        ("xxhash32", 2),
        ("xxhash64", 3),
        ("crc32c", 4),
        ("crc32c_16", 5),
        ("crc32c_8", 6),
    ];
    match NAMES.iter().find(|(n, _)| *n == val) {
        Some((_, v)) => Ok(*v),
        None => refuse(Errno::EINVAL, format!("unrecognized csum_type '{val}'")),
    }
}

/// `osd pool set-quota POOL max_objects|max_bytes VAL`; 0 removes the quota.
pub fn set_quota(
    map: &OsdMap,
    pool_name: &str,
    field: &str,
    val: &str,
    inc: &mut Incremental,
) -> Result<Done> {
    let id = match map.pool_by_name(pool_name) {
        Some(id) => id,
        None => return unrecognized(pool_name),
    };
    let value = match field {
        "max_bytes" => size(val),
        "max_objects" => count(val),
        _ => {
            let why = format!("unrecognized field '{field}'; should be 'max_bytes' or 'max_objects'");
            return refuse(Errno::EINVAL, why);
        }
    };
    let value = match value {
        Ok(n) => n,
        Err(why) => return refuse(Errno::EINVAL, format!("error parsing value '{val}': {why}")),
    };
    let pool = pool_mut(map, inc, id)?;
    match field {
        "max_bytes" => pool.quota_max_bytes = value,
        _ => pool.quota_max_objects = value,
    }
    Ok(Done::Changed(format!(
        "set-quota {field} = {value} for pool {pool_name}"
    )))
}

/// `osd pool application enable`
pub fn application_enable(
    map: &OsdMap,
    pool: &str,
    app: &str,
    sure: bool,
    inc: &mut Incremental,
) -> Result<Done> {
    let id = find(map, pool)?;
    let p = pool_mut(map, inc, id)?;
    if app.is_empty() || app.len() > APPLICATION_NAME_MAX {
        return refuse(
            Errno::EINVAL,
            format!("application name must have 1 to {APPLICATION_NAME_MAX} bytes"),
        );
    }
    let text = format!("enabled application '{app}' on pool '{pool}'");
    if p.application_metadata.contains_key(app) {
        return Ok(Done::Already(text));
    }
    if !p.application_metadata.is_empty() && !sure {
        return refuse(
            Errno::EPERM,
            format!(
                "Are you SURE? Pool '{pool}' already has an enabled application; pass --yes-i-really-mean-it to \
                 proceed anyway"
            ),
        );
    }
    if p.application_metadata.len() >= APPLICATIONS_MAX {
        return refuse(
            Errno::EINVAL,
            format!("too many enabled applications on pool '{pool}'"),
        );
    }
    p.application_metadata.insert(app.to_string(), Default::default());
    Ok(Done::Changed(text))
}

/// `osd pool application disable`
pub fn application_disable(
    map: &OsdMap,
    pool: &str,
    app: &str,
    sure: bool,
    inc: &mut Incremental,
) -> Result<Done> {
    let id = find(map, pool)?;
    let p = pool_mut(map, inc, id)?;
    if !sure {
        return refuse(
            Errno::EPERM,
            "Are you SURE? Disabling an application within a pool might result in loss of application \
             functionality; pass --yes-i-really-mean-it to proceed anyway",
        );
    }
    match p.application_metadata.remove(app) {
        Some(_) => Ok(Done::Changed(format!(
            "disable application '{app}' on pool '{pool}'"
        ))),
        None => Ok(Done::Already(format!(
            "application '{app}' is not enabled on pool '{pool}'"
        ))),
    }
}

/// `osd pool application set` (a value) and `rm` (None)
pub fn application_key(
    map: &OsdMap,
    pool: &str,
    app: &str,
    key: &str,
    value: Option<&str>,
    inc: &mut Incremental,
) -> Result<Done> {
    let id = find(map, pool)?;
    let p = pool_mut(map, inc, id)?;
    let Some(data) = p.application_metadata.get_mut(app) else {
        return match value {
            Some(_) => refuse(
                Errno::ENOENT,
                format!("application '{app}' is not enabled on pool '{pool}'"),
            ),
            None => Ok(Done::Already(format!(
                "application '{app}' is not enabled on pool '{pool}'"
            ))),
        };
    };
    let Some(value) = value else {
        data.remove(key);
        return Ok(Done::Changed(format!(
            "removed application '{app}' key '{key}' on pool '{pool}'"
        )));
    };
    if key.is_empty() || key.len() > APPLICATION_NAME_MAX || value.len() > APPLICATION_VALUE_MAX {
        return refuse(
            Errno::EINVAL,
            "key or value of the application metadata is empty or too long",
        );
    }
    if data.len() >= APPLICATION_KEYS_MAX && !data.contains_key(key) {
        return refuse(
            Errno::EINVAL,
            format!("too many keys set for application '{app}' on pool '{pool}'"),
        );
    }
    data.insert(key.to_string(), value.to_string());
    Ok(Done::Changed(format!(
        "set application '{app}' key '{key}' to '{value}' on pool '{pool}'"
    )))
}
