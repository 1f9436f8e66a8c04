//! Erasure code profiles, and the rules made of them. A profile is a map of words that a pool is to be made by; pools of that
//! type are refused still (`policies::pools`), so a profile is only kept, and what it says of placement makes a rule.
//!
//! What a profile does not say is filled in when it is set, as 16.2 does: from the profile `default` where the plugin is the
//! same, then from the plugin's own defaults.

use crate::commands::command::{Command, Outcome, lines};
use crate::commands::context::Context;
use crate::commands::spec::{Spec, spec};
use cluster::Changes;
use crush::RuleKind;
use serde_json::{Value, json};
use types::Errno;
use types::osdmap::ErasureProfile;

const R: (&str, &str) = ("osd", "r");
const RW: (&str, &str) = ("osd", "rw");

pub const TABLE: &[Spec] = &[
    spec(
        R,
        "osd erasure-code-profile ls",
        "names of the erasure code profiles",
        ls,
    ),
    spec(
        R,
        "osd erasure-code-profile get name:str([A-Za-z0-9-_.])",
        "an erasure code profile",
        get,
    ),
    spec(
        RW,
        "osd erasure-code-profile set name:str([A-Za-z0-9-_.]) profile?*:str force?:bool",
        "keep an erasure code profile",
        set,
    ),
    spec(
        RW,
        "osd erasure-code-profile rm name:str([A-Za-z0-9-_.])",
        "remove an erasure code profile",
        rm,
    ),
    spec(
        RW,
        "osd crush rule create-erasure name:str([A-Za-z0-9-_.]) profile?:str([A-Za-z0-9-_.=])",
        "make a rule for erasure-coded pools",
        create_rule,
    ),
];

const DEFAULT: &str = "default";
/// What `jerasure` takes where a profile does not say it, and what says where the pieces lie.
const DEFAULTS: &[(&str, &str)] = &[
    ("crush-device-class", ""),
    ("crush-failure-domain", "host"),
    ("crush-root", "default"),
    ("jerasure-per-chunk-alignment", "false"),
    ("k", "7"),
    ("m", "3"),
    ("technique", "reed_sol_van"),
    ("w", "8"),
];
const PLUGIN: &str = "jerasure";
/// Profiles of a map, and bytes of one: each client is sent them all.
const PROFILES_MAX: usize = 1000;
const PROFILE_BYTES_MAX: usize = 4096;
/// Pieces of an object, as the widest code of words of 8 bits has them.
const PIECES_MAX: u64 = 256;

fn ls(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let names: Vec<&String> = ctx.map().erasure_code_profiles.keys().collect();
    cmd.either(
        || Value::from_iter(names.iter().map(|n| n.as_str())),
        || lines(names.iter()),
    )
}

fn get(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let name = cmd.text("name");
    match ctx.map().erasure_code_profiles.get(name) {
        None => Outcome::error(Errno::ENOENT, format!("unknown erasure code profile '{name}'")),
        Some(p) => cmd.either(|| json!(p), || lines(p.iter().map(|(k, v)| format!("{k}={v}")))),
    }
}

/// `{k=v,k=v}`, as errors show it.
fn shown(profile: &ErasureProfile) -> String {
    let words: Vec<String> = profile.iter().map(|(k, v)| format!("{k}={v}")).collect();
    format!("{{{}}}", words.join(","))
}

/// A count of the profile. Err: why it is none.
fn number(profile: &ErasureProfile, key: &str, least: u64) -> Result<u64, Outcome> {
    let text = profile.get(key).map_or("", String::as_str);
    let Ok(n) = text.parse::<u64>() else {
        return Err(Outcome::invalid(format!(
            "could not convert {key}={text} to int because Expected option value to be integer, got '{text}'"
        )));
    };
    match n >= least {
        true => Ok(n),
        false => Err(Outcome::invalid(format!("{key}={n} must be >= {least}"))),
    }
}

/// Pieces of an object: data and parity.
fn pieces(profile: &ErasureProfile) -> Result<u64, Outcome> {
    let (k, m) = (number(profile, "k", 2)?, number(profile, "m", 1)?);
    match k.saturating_add(m) {
        n if n > PIECES_MAX => Err(Outcome::invalid(format!("k+m={n} must be <= {PIECES_MAX}"))),
        n => Ok(n),
    }
}

/// The words given, with what they leave open.
fn complete(cmd: &Command, ctx: &Context<'_>) -> Result<ErasureProfile, Outcome> {
    let word = |text: &String| match text.split_once('=') {
        Some((key, value)) => (key.to_string(), value.to_string()),
        None => (text.clone(), String::new()),
    };
    let mut profile: ErasureProfile = cmd.list("profile").iter().map(|t| word(&t.to_string())).collect();
    let standard = ctx.map().erasure_code_profiles.get(DEFAULT);
    let plugin = profile.get("plugin").map_or(PLUGIN, String::as_str);
    if plugin != PLUGIN {
        let why = format!("erasure code plugin '{plugin}' is not here: '{PLUGIN}' is");
        return Err(Outcome::error(Errno::EOPNOTSUPP, why));
    }
    let mut words: ErasureProfile = DEFAULTS
        .iter()
        .map(|(k, v)| (k.to_string(), v.to_string()))
        .collect();
    words.insert("plugin".into(), PLUGIN.into());
    words.extend(
        standard
            .into_iter()
            .flatten()
            .map(|(k, v)| (k.clone(), v.clone())),
    );
    words.append(&mut profile);
    let technique = &words["technique"];
    if technique != "reed_sol_van" {
        let why = format!("erasure code technique '{technique}' is not here: 'reed_sol_van' is");
        return Err(Outcome::error(Errno::EOPNOTSUPP, why));
    }
    pieces(&words)?;
    let bytes: usize = words.iter().map(|(k, v)| k.len() + v.len()).sum();
    match bytes > PROFILE_BYTES_MAX {
        true => Err(Outcome::invalid(format!(
            "a profile has {PROFILE_BYTES_MAX} bytes at most"
        ))),
        false => Ok(words),
    }
}

fn set(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let name = cmd.text("name");
    let profile = match complete(cmd, ctx) {
        Ok(profile) => profile,
        Err(refusal) => return refusal,
    };
    let there = &ctx.map().erasure_code_profiles;
    match there.get(name) {
        Some(p) if *p == profile => return Outcome::default(),
        Some(p) if !cmd.flag("force") => {
            let why = format!(
                "will not override erasure code profile {name} because the existing profile {} is different from the \
                 proposed profile {}",
                shown(p),
                shown(&profile)
            );
            return Outcome::error(Errno::EPERM, why);
        }
        None if there.len() >= PROFILES_MAX => {
            return Outcome::error(
                Errno::ENOSPC,
                format!("there are {PROFILES_MAX} profiles: no more"),
            );
        }
        _ => {}
    }
    let mut inc = ctx.inc();
    inc.new_erasure_code_profiles.insert(name.to_string(), profile);
    Outcome::default().with(Changes::map(inc))
}

fn rm(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let name = cmd.text("name");
    if !ctx.map().erasure_code_profiles.contains_key(name) {
        return Outcome::status(format!("erasure-code-profile {name} does not exist"));
    }
    let mut inc = ctx.inc();
    inc.old_erasure_code_profiles.push(name.to_string());
    Outcome::default().with(Changes::map(inc))
}

/// A rule is CRUSH alone: it can be made, dumped and tested though no pool may use it yet.
fn create_rule(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let name = cmd.text("name");
    let profile = cmd.opt_text("profile").unwrap_or(DEFAULT);
    let crush = &ctx.map().crush;
    if crush.rule_id(name).is_some() {
        return Outcome::status(format!("rule {name} already exists"));
    }
    let Some(profile) = ctx.map().erasure_code_profiles.get(profile) else {
        return Outcome::invalid(
            "cannot determine the erasure code plugin because there is no 'plugin' entry in the erasure_code_profile {}",
        );
    };
    let pieces = match pieces(profile) {
        Ok(n) => u8::try_from(n).unwrap_or(u8::MAX),
        Err(refusal) => return refusal,
    };
    let word = |key: &str, default: &'static str| profile.get(key).map_or(default, String::as_str);
    let (root, domain) = (
        word("crush-root", "default"),
        word("crush-failure-domain", "host"),
    );
    let class = Some(word("crush-device-class", "")).filter(|c| !c.is_empty());
    if crush.item_id(root).is_none() {
        return Outcome::absent(format!("root item {root} does not exist"));
    }
    if crush.type_id(domain).is_none() {
        return Outcome::invalid(format!("unknown type {domain}"));
    }
    if let Some(class) = class.filter(|c| crush.class_id(c).is_none()) {
        return Outcome::invalid(format!("device class {class} does not exist"));
    }
    let mut inc = ctx.inc();
    let map = inc.crush_mut(ctx.map());
    match map.add_simple_rule(name, root, domain, class, RuleKind::Erasure) {
        Ok(id) => {
            if let Some(Some(rule)) = map.rules.get_mut(id as usize) {
                rule.max_size = pieces;
            }
            Outcome::status(format!("created rule {name} at {id}")).with(Changes::map(inc))
        }
        Err(e) => super::change::refused(&e),
    }
}
