//! Settings of a file system.

use super::change::fail_all;
use super::{boolean, edit};
use crate::commands::command::{Command, Outcome};
use crate::commands::context::Context;
use crate::commands::views::file_systems::CLIENT_FEATURES;
use bytes::Bytes;
use cluster::files::{Draft, RANKS_MAX};
use types::Errno;
use types::fsmap::{FeatureSet, MdsMap, mds_flag};

/// Seconds that a session may be given at the least.
const SESSION_SECONDS_MIN: i64 = 30;
/// Bytes of the largest file that a file system can be made to allow at the least.
const FILE_BYTES_MIN: u64 = 65_536;

pub fn set(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    edit(cmd, ctx, |draft, fscid| {
        let (name, val) = (cmd.text("fs_name"), cmd.text("val"));
        match cmd.text("var") {
            "down" => return down(draft, fscid, (name, val), ctx),
            "joinable" => return joinable(draft, fscid, name, boolean(val)?, ""),
            "cluster_down" => {
                let note = " WARNING: cluster_down flag is deprecated and will be removed in a future version. Please \
                            use \"joinable\".";
                return joinable(draft, fscid, name, !boolean(val)?, note);
            }
            _ => {}
        }
        match draft.map.by_id_mut(fscid) {
            Some(fs) => one(cmd, &mut fs.mds_map),
            None => Ok(String::new()),
        }
    })
}

fn one(cmd: &Command, map: &mut MdsMap) -> Result<String, Outcome> {
    let (var, val) = (cmd.text("var"), cmd.text("val"));
    let whole = || {
        val.parse::<i64>()
            .map_err(|_| Outcome::invalid(format!("{var} requires an integer value")))
    };
    let range = |text: String| Err(Outcome::error(Errno::ERANGE, text));
    match var {
        "max_mds" => max_mds(map, val),
        "max_file_size" => {
            let n = u64::try_from(whole()?).unwrap_or(0);
            if n < FILE_BYTES_MIN {
                return range(format!("max_file_size must at least {FILE_BYTES_MIN}"));
            }
            map.max_file_size = n;
            Ok(String::new())
        }
        "session_timeout" | "session_autoclose" => {
            let n = whole()?;
            let Some(n) = u32::try_from(n).ok().filter(|_| n >= SESSION_SECONDS_MIN) else {
                return range(format!("{var} must be at least {SESSION_SECONDS_MIN}s"));
            };
            match var {
                "session_timeout" => map.session_timeout = n,
                _ => map.session_autoclose = n,
            }
            Ok(String::new())
        }
        "standby_count_wanted" => {
            let n = i32::try_from(whole()?).unwrap_or(i32::MAX);
            if n < 0 {
                return range("standby_count_wanted must be non-negative".into());
            }
            map.standby_count_wanted = n;
            Ok(String::new())
        }
        _ => switch(map, var, val),
    }
}

/// Settings that are on or off, and those of which one value is built.
fn switch(map: &mut MdsMap, var: &str, val: &str) -> Result<String, Outcome> {
    match var {
        "allow_new_snaps" => {
            let on = boolean(val)?;
            flag(map, mds_flag::ALLOW_SNAPS, on);
            Ok(if on {
                "enabled new snapshots"
            } else {
                "disabled new snapshots"
            }
            .into())
        }
        "allow_dirfrags" => {
            boolean(val)?;
            Ok("Directory fragmentation is now permanently enabled. This command is DEPRECATED and will be REMOVED \
                from future releases."
                .into())
        }
        "allow_standby_replay" => {
            flag(map, mds_flag::ALLOW_STANDBY_REPLAY, boolean(val)?);
            Ok(String::new())
        }
        "inline_data" => match boolean(val)? {
            false => Ok("inline data disabled".into()),
            true => Err(Outcome::not_built("file data within inodes (inline_data)")),
        },
        "balancer" => balancer(val),
        "min_compat_client" => Err(Outcome::not_built(
            "min_compat_client (use `ceph fs required_client_features`)",
        )),
        _ => Err(Outcome::invalid(format!("unknown setting '{var}'"))),
    }
}

fn balancer(val: &str) -> Result<String, Outcome> {
    match val {
        "" => Ok("unsetting the metadata load balancer".into()),
        _ => Err(Outcome::not_built("a balancer of ranks (there is one rank)")),
    }
}

fn flag(map: &mut MdsMap, bit: u32, on: bool) {
    map.flags = match on {
        true => map.flags | bit,
        false => map.flags & !bit,
    };
}

fn max_mds(map: &mut MdsMap, val: &str) -> Result<String, Outcome> {
    let Ok(n) = val.parse::<i32>() else {
        return Err(Outcome::invalid(format!(
            "Expected option value to be integer, got '{val}'"
        )));
    };
    match n {
        n if n < 1 => Err(Outcome::invalid("You must specify at least one MDS")),
        n if n > RANKS_MAX => Err(Outcome::not_built(&format!(
            "more than {RANKS_MAX} active metadata server of one file system (max_mds {n})"
        ))),
        n => {
            map.max_mds = n;
            Ok(String::new())
        }
    }
}

fn joinable(draft: &mut Draft<'_>, fscid: i32, name: &str, on: bool, note: &str) -> Result<String, Outcome> {
    if let Some(fs) = draft.map.by_id_mut(fscid) {
        flag(&mut fs.mds_map, mds_flag::NOT_JOINABLE, !on);
    }
    Ok(match on {
        true => format!("{name} marked joinable; MDS may join as newly active.{note}"),
        false => format!("{name} marked not joinable; MDS cannot join as newly active.{note}"),
    })
}

/// Down: the rank is taken away, and stays free. All that was acknowledged is durable, so there is nothing to flush first.
fn down(
    draft: &mut Draft<'_>,
    fscid: i32,
    (name, val): (&str, &str),
    ctx: &Context<'_>,
) -> Result<String, Outcome> {
    let wanted = boolean(val)?;
    let Some(fs) = draft.map.by_id_mut(fscid) else {
        return Ok(String::new());
    };
    let map = &mut fs.mds_map;
    if wanted {
        if map.max_mds > 0 {
            map.old_max_mds = map.max_mds;
            map.max_mds = 0;
        }
        fail_all(draft, fscid, &format!("was taken down by {}", ctx.who));
        return Ok(format!("{name} marked down. "));
    }
    if map.max_mds == 0 {
        map.max_mds = map.old_max_mds.max(1);
        map.old_max_mds = 0;
    }
    flag(map, mds_flag::NOT_JOINABLE, false);
    Ok(format!("{name} marked up, max_mds = {}", map.max_mds))
}

pub fn required_client_features(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    edit(cmd, ctx, |draft, fscid| {
        let val = cmd.text("val");
        let by_name = CLIENT_FEATURES.iter().position(|n| *n == val && *n != "reserved");
        let by_number = || val.parse::<usize>().ok().filter(|n| *n < CLIENT_FEATURES.len());
        let Some(bit) = by_name.or_else(by_number) else {
            return Err(Outcome::invalid(format!("Invalid feature name: {val}")));
        };
        let Some(fs) = draft.map.by_id_mut(fscid) else {
            return Ok(String::new());
        };
        let name = CLIENT_FEATURES[bit];
        let bits = &mut fs.mds_map.required_client_features;
        let is_set = bits.get(bit / 8).is_some_and(|b| b & 1 << (bit % 8) != 0);
        let (add, said) = match (cmd.text("subop"), is_set) {
            ("add", true) => return Ok(format!("feature '{name}' is already set")),
            ("add", false) => (
                true,
                format!("added feature '{name}' to required_client_features"),
            ),
            (_, false) => return Ok(format!("feature '{name}' is already unset")),
            (_, true) => (
                false,
                format!("removed feature '{name}' from required_client_features"),
            ),
        };
        *bits = with_bit(bits, bit, add);
        Ok(said)
    })
}

/// A bit set of whole words of 8 bytes, empty if no bit is set.
fn with_bit(bits: &Bytes, bit: usize, on: bool) -> Bytes {
    let mut out = bits.to_vec();
    let len = out.len().max(bit / 8 + 1).next_multiple_of(8);
    out.resize(len, 0);
    match on {
        true => out[bit / 8] |= 1 << (bit % 8),
        false => out[bit / 8] &= !(1 << (bit % 8)),
    }
    match out.iter().all(|b| *b == 0) {
        true => Bytes::new(),
        false => out.into(),
    }
}

/// Bits of a compatibility set.
const COMPAT_BITS: i64 = 64;

pub fn compat(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    edit(cmd, ctx, |draft, fscid| {
        let n = cmd.int("feature").unwrap_or_default();
        if !(1..COMPAT_BITS).contains(&n) {
            return Err(Outcome::invalid(format!("feature {n} is not between 1 and 63")));
        }
        let bit = n as u64;
        let Some(fs) = draft.map.by_id_mut(fscid) else {
            return Ok(String::new());
        };
        let all = &mut fs.mds_map.compat;
        let (add, kind) = cmd.text("subop").split_once('_').unwrap_or_default();
        let set = match kind {
            "compat" => &mut all.compat,
            _ => &mut all.incompat,
        };
        match (add, set.names.contains_key(&bit)) {
            ("add", true) => Ok("feature already exists".into()),
            ("add", false) => {
                let name = cmd.text("feature_str");
                if name.is_empty() {
                    return Err(Outcome::invalid("adding a feature requires a feature string"));
                }
                change_set(set, |names| drop(names.insert(bit, name.into())));
                Ok(format!("added {kind} feature F({n}, \"{name}\")"))
            }
            (_, true) => {
                change_set(set, |names| drop(names.remove(&bit)));
                Ok(format!("removed {kind} feature {n}"))
            }
            (_, false) => Ok(format!("already removed {kind} feature {n}")),
        }
    })
}

fn change_set(set: &mut FeatureSet, f: impl FnOnce(&mut std::collections::BTreeMap<u64, String>)) {
    f(&mut set.names);
    set.mask = set.names.keys().fold(0, |m, bit| m | 1 << bit);
}
