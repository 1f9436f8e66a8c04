//! Pools of shards: whether one may be made, and what its profile makes of it: its code, its rule, the width of its stripes.
//!
//! A profile is checked when it is set (`commands::crush::erasure`) and stays as it is while a pool uses it.
//! Not here: what the shards are (`pg`), and where they lie (`cluster::pgs`).

use crate::policies::pool_change::{Result, refuse};
use crate::policies::pool_set;
use crate::policies::pools::{RuleChoice, check_rule_takes, find_rule};
use cluster::format::Feature;
use cluster::{ClusterState, ClusterStats, facts};
use crush::{CrushMap, RuleKind};
use types::osdmap::{Code, DATA_SHARDS_MAX, ErasureProfile, Incremental, OsdMap, PARITY_SHARDS_MAX};
use types::pool::{POOL_TYPE_ERASURE, PgPool};
use types::{Errno, OsdId};

pub const DEFAULT_PROFILE: &str = "default";
/// Bytes of a stripe on one shard, where neither the option nor the profile says otherwise; and what they are a multiple of.
const STRIPE_UNIT: u64 = 4096;
const STRIPE_UNIT_MAX: u64 = 2 << 20;
const NO_PLUGIN: &str = "cannot determine the erasure code plugin because there is no 'plugin' entry in the erasure_code_profile {}";

/// Every OSD has to serve such pools: data goes wherever CRUSH wants it.
pub fn may_be(state: &ClusterState) -> Result<()> {
    let without: Vec<OsdId> = state.without_shards().collect();
    let all = state.osdmap.num_osds();
    if without.len() == all {
        // Nobody does, or nobody is there to say so.
        return refuse(
            Errno::EOPNOTSUPP,
            "no OSD of this cluster serves erasure-coded pools: start OSDs of this release first",
        );
    }
    match without.first() {
        None => Ok(()),
        Some(osd) => refuse(
            Errno::EOPNOTSUPP,
            format!(
                "{} of {all} OSDs do not serve erasure-coded pools, osd.{osd} among them: give them a newer program first",
                without.len()
            ),
        ),
    }
}

/// Every monitor that lives has to know of such pools: one that does not ends when there is one.
pub fn may_be_read(me: &str, stats: &ClusterStats) -> Result<()> {
    let knows = |facts| facts::reads(facts, Feature::Shards);
    let mut others = stats.mons.iter().filter(|(name, _)| *name != me);
    match others.find(|(_, said)| !knows(&said.metadata)) {
        None => Ok(()),
        Some((name, _)) => refuse(
            Errno::EOPNOTSUPP,
            format!("mon.{name} does not know of erasure-coded pools: give it a newer program first"),
        ),
    }
}

/// The profile of this name.
pub fn profile<'a>(map: &'a OsdMap, name: &str) -> Result<&'a ErasureProfile> {
    map.erasure_code_profiles
        .get(name)
        .map_or_else(|| refuse(Errno::EINVAL, NO_PLUGIN), Ok)
}

/// A count of the profile. Err: why it is none.
fn number(profile: &ErasureProfile, key: &str, (least, default): (u8, u8), most: u8) -> Result<u8> {
    let text = profile.get(key).map_or("", String::as_str);
    let why = match text.parse::<i64>() {
        Err(_) => format!(
            "could not convert {key}={text} to int because Expected option value to be integer, got '{text}', set to default {default}"
        ),
        Ok(n) if n < i64::from(least) => format!("{key}={n} must be >= {least}"),
        Ok(n) => match u8::try_from(n).ok().filter(|n| *n <= most) {
            Some(n) => return Ok(n),
            None => format!("{key}={n} must be <= {most}"),
        },
    };
    refuse(Errno::EINVAL, why)
}

/// Data and parity shards of a profile.
pub fn code(profile: &ErasureProfile) -> Result<Code> {
    Ok(Code {
        k: number(profile, "k", (2, 7), DATA_SHARDS_MAX)?,
        m: number(profile, "m", (1, 3), PARITY_SHARDS_MAX)?,
    })
}

/// Bytes of a stripe on one shard.
pub fn stripe_unit(state: &ClusterState, profile: &ErasureProfile) -> Result<u32> {
    let unit = match profile.get("stripe_unit") {
        None => state.mon_option_u64("osd_pool_erasure_code_stripe_unit", STRIPE_UNIT),
        Some(text) => match pool_set::size(text) {
            Ok(n) => n,
            Err(why) => {
                return refuse(
                    Errno::EINVAL,
                    format!("could not parse stripe_unit '{text}': {why}"),
                );
            }
        },
    };
    match u32::try_from(unit) {
        Ok(n) if n > 0 && unit.is_multiple_of(STRIPE_UNIT) && unit <= STRIPE_UNIT_MAX => Ok(n),
        _ => refuse(
            Errno::EINVAL,
            format!("stripe_unit {unit} must be a multiple of {STRIPE_UNIT}, up to {STRIPE_UNIT_MAX}"),
        ),
    }
}

/// Why a map has no place for the rule of a profile.
fn check_place(crush: &CrushMap, root: &str, domain: &str, class: Option<&str>) -> Result<()> {
    if crush.item_id(root).is_none() {
        return refuse(Errno::ENOENT, format!("root item {root} does not exist"));
    }
    if crush.type_id(domain).is_none() {
        return refuse(Errno::EINVAL, format!("unknown type {domain}"));
    }
    match class.filter(|c| crush.class_id(c).is_none()) {
        Some(class) => refuse(Errno::EINVAL, format!("device class {class} does not exist")),
        None => Ok(()),
    }
}

/// Makes the rule that a profile asks for; gives its id.
pub fn add_rule(map: &OsdMap, profile: &ErasureProfile, name: &str, inc: &mut Incremental) -> Result<u32> {
    let size = code(profile)?.size();
    let word = |key: &str, default: &'static str| profile.get(key).map_or(default, String::as_str);
    let (root, domain) = (
        word("crush-root", "default"),
        word("crush-failure-domain", "host"),
    );
    let class = Some(word("crush-device-class", "")).filter(|c| !c.is_empty());
    check_place(&map.crush, root, domain, class)?;
    let crush = inc.crush_mut(map);
    let id = match crush.add_simple_rule(name, root, domain, class, RuleKind::Erasure) {
        Ok(id) => id,
        Err(e) => return refuse(Errno::EINVAL, e.to_string()),
    };
    if let Some(Some(rule)) = crush.rules.get_mut(id as usize) {
        rule.max_size = size;
    }
    Ok(id)
}

/// The rule of a pool to be made: the one that is named, else the one of the default profile, or of the pool's own name, made where
/// there is none.
fn rule_of(
    map: &OsdMap,
    pool: &str,
    profile_name: &str,
    choice: RuleChoice<'_>,
    inc: &mut Incremental,
) -> Result<u8> {
    if !matches!(
        choice,
        RuleChoice::Default | RuleChoice::Id(-1) | RuleChoice::Name("")
    ) {
        return find_rule(map, choice, RuleKind::Erasure);
    }
    let name = match profile_name {
        DEFAULT_PROFILE => "erasure-code",
        _ => pool,
    };
    if map.crush.rule_id(name).is_some() {
        return find_rule(map, RuleChoice::Name(name), RuleKind::Erasure);
    }
    let id = add_rule(map, profile(map, profile_name)?, name, inc)?;
    match u8::try_from(id) {
        Ok(id) => Ok(id),
        Err(_) => refuse(
            Errno::EINVAL,
            format!("rule {id} has too high a number for a pool"),
        ),
    }
}

/// What a pool of this profile is, its numbers of groups apart; makes its rule in `inc` where that is missing.
pub fn pool_of(
    state: &ClusterState,
    pool: &str,
    profile_name: &str,
    choice: RuleChoice<'_>,
    inc: &mut Incremental,
) -> Result<PgPool> {
    may_be(state)?;
    let map = &*state.osdmap;
    let words = profile(map, profile_name)?;
    let code = code(words)?;
    let unit = stripe_unit(state, words)?;
    let crush_rule = rule_of(map, pool, profile_name, choice, inc)?;
    // One that is made with the pool is made for its size.
    if map.crush.rule(u32::from(crush_rule)).is_some() {
        check_rule_takes(map, crush_rule, code.size())?;
    }
    Ok(PgPool {
        kind: POOL_TYPE_ERASURE,
        size: code.size(),
        min_size: code.min_size(),
        crush_rule,
        stripe_width: u32::from(code.k) * unit,
        erasure_code_profile: profile_name.to_string(),
        ..PgPool::default()
    })
}

/// The pools that were made by a profile.
pub fn users_of<'a>(map: &'a OsdMap, profile: &str) -> Vec<&'a str> {
    let users = map
        .pools
        .iter()
        .filter(|(_, p)| p.is_erasure() && p.erasure_code_profile == profile);
    users.filter_map(|(id, _)| map.pool_name(*id)).collect()
}
