//! Erasure code profiles, and the rules made of them. A profile is a map of words that a pool is to be made by; what it
//! makes of one is in `policies::coded`, what it says of placement makes a rule.
//!
//! What a profile does not say is filled in when it is set, as 16.2 does: from the profile `default` where the plugin is the
//! same, then from the plugin's own defaults.

use crate::commands::command::{Command, Outcome, lines};
use crate::commands::context::Context;
use crate::commands::spec::{Spec, spec};
use crate::policies::coded::{self, DEFAULT_PROFILE};
use crate::policies::pool_change::PoolError;
use cluster::Changes;
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

/// What a profile says of where the shards lie, where it says nothing.
const DEFAULTS: &[(&str, &str)] = &[
    ("crush-device-class", ""),
    ("crush-failure-domain", "host"),
    ("crush-root", "default"),
];

/// A plugin of which there are codes here: with each of these techniques any k of the shards have every object.
struct Plugin {
    name: &'static str,
    techniques: &'static [&'static str],
    /// What it takes where a profile does not say it.
    defaults: &'static [(&'static str, &'static str)],
}

const PLUGINS: [Plugin; 2] = [
    Plugin {
        name: "jerasure",
        techniques: &["reed_sol_van", "cauchy_orig", "cauchy_good"],
        defaults: &[
            ("jerasure-per-chunk-alignment", "false"),
            ("k", "7"),
            ("m", "3"),
            ("technique", "reed_sol_van"),
            ("w", "8"),
        ],
    },
    Plugin {
        name: "isa",
        techniques: &["reed_sol_van", "cauchy"],
        defaults: &[("k", "7"), ("m", "3"), ("technique", "reed_sol_van")],
    },
];
/// Profiles of a map, and bytes of one: each client is sent them all.
const PROFILES_MAX: usize = 1000;
const PROFILE_BYTES_MAX: usize = 4096;

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

/// What a policy refuses, as an answer.
fn refused(e: PoolError) -> Outcome {
    Outcome::error(e.errno, e.text)
}

/// The plugin of a profile, if pools can be made by it.
fn plugin_of(profile: &ErasureProfile) -> Result<&'static Plugin, Outcome> {
    let name = profile.get("plugin").map_or(PLUGINS[0].name, String::as_str);
    let why = match (PLUGINS.iter().find(|p| p.name == name), name) {
        (Some(plugin), _) => return Ok(plugin),
        (None, "lrc" | "shec" | "clay") => {
            "its codes need not have every object in any k of the shards, or read parts of them"
        }
        (None, _) => "nobody knows it",
    };
    let text = format!("erasure code plugin '{name}' is not here ({why}): 'jerasure' and 'isa' are");
    Err(Outcome::error(Errno::EOPNOTSUPP, text))
}

/// What a profile may not say: placement that no map has, and an order of the shards, which here are data first, then parity.
fn check_words(profile: &ErasureProfile, given: &ErasureProfile, ctx: &Context<'_>) -> Result<(), Outcome> {
    if let Some(old) = given.keys().find(|k| k.starts_with("ruleset-")) {
        let now = old.replacen("ruleset-", "crush-", 1);
        let why = format!("property '{old}' is no longer supported; try '{now}' instead");
        return Err(Outcome::invalid(why));
    }
    let domain = &profile["crush-failure-domain"];
    if ctx.map().crush.type_id(domain).is_none() {
        let why = format!(
            "erasure-code-profile {} contains an invalid failure-domain \"{domain}\"",
            shown(given)
        );
        return Err(Outcome::invalid(why));
    }
    if given.contains_key("mapping") {
        let why = "'mapping' is not here: the shards of data come first, then those of parity";
        return Err(Outcome::error(Errno::EOPNOTSUPP, why));
    }
    match profile.get("w").map(String::as_str) {
        None | Some("8" | "16" | "32") => Ok(()),
        Some(w) => Err(Outcome::invalid(format!(
            "ReedSolomonVandermonde: w={w} must be one of {{8, 16, 32}} : revert to 8"
        ))),
    }
}

/// The words given, with what they leave open.
fn complete(cmd: &Command, ctx: &Context<'_>) -> Result<ErasureProfile, Outcome> {
    let word = |text: &String| match text.split_once('=') {
        Some((key, value)) => (key.to_string(), value.to_string()),
        None => (text.clone(), String::new()),
    };
    let profile: ErasureProfile = cmd.list("profile").iter().map(|t| word(&t.to_string())).collect();
    let plugin = plugin_of(&profile)?;
    let own = [DEFAULTS, plugin.defaults].into_iter().flatten();
    let mut words: ErasureProfile = own.map(|(k, v)| (k.to_string(), v.to_string())).collect();
    words.insert("plugin".into(), plugin.name.into());
    let standard = ctx.map().erasure_code_profiles.get(DEFAULT_PROFILE);
    let same = standard.filter(|p| p.get("plugin").is_some_and(|name| name == plugin.name));
    let standard: Vec<(String, String)> = same
        .into_iter()
        .flatten()
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect();
    words.extend(standard.iter().cloned());
    words.extend(profile.clone());
    // With what stands in the standard profile, as Ceph shows it.
    let given: ErasureProfile = standard.into_iter().chain(profile).collect();
    check_words(&words, &given, ctx)?;
    let technique = &words["technique"];
    if !plugin.techniques.contains(&technique.as_str()) {
        let why = format!(
            "erasure code technique '{technique}' is not here: of '{}' there are {}",
            plugin.name,
            plugin.techniques.join(", ")
        );
        return Err(Outcome::error(Errno::EOPNOTSUPP, why));
    }
    if technique.starts_with("cauchy") && plugin.name == "jerasure" {
        words.entry("packetsize".into()).or_insert_with(|| "2048".into());
    }
    coded::code(&words).map_err(refused)?;
    coded::stripe_unit(ctx.state, &words).map_err(refused)?;
    let bytes: usize = words.iter().map(|(k, v)| k.len() + v.len()).sum();
    match bytes > PROFILE_BYTES_MAX {
        true => Err(Outcome::invalid(format!(
            "a profile has {PROFILE_BYTES_MAX} bytes at most"
        ))),
        false => Ok(words),
    }
}

/// What says how the pools of a profile keep their objects must not change under them, whoever forces it.
fn in_use(ctx: &Context<'_>, name: &str) -> Option<Outcome> {
    let users = coded::users_of(ctx.map(), name);
    (!users.is_empty()).then(|| {
        let why = format!(
            "{} pool(s) are using the erasure code profile '{name}'",
            users.join(" ")
        );
        Outcome::error(Errno::EBUSY, why)
    })
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
        Some(_) => {
            if let Some(refusal) = in_use(ctx, name) {
                return refusal;
            }
        }
        None if there.len() >= PROFILES_MAX => {
            return Outcome::error(
                Errno::ENOSPC,
                format!("there are {PROFILES_MAX} profiles: no more"),
            );
        }
        None => {}
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
    if let Some(refusal) = in_use(ctx, name) {
        return refusal;
    }
    let mut inc = ctx.inc();
    inc.old_erasure_code_profiles.push(name.to_string());
    Outcome::default().with(Changes::map(inc))
}

/// A rule is CRUSH alone: it can be made, dumped and tested where no pool may use it yet.
fn create_rule(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let name = cmd.text("name");
    if ctx.map().crush.rule_id(name).is_some() {
        return Outcome::status(format!("rule {name} already exists"));
    }
    let mut inc = ctx.inc();
    let made = coded::profile(ctx.map(), cmd.opt_text("profile").unwrap_or(DEFAULT_PROFILE))
        .and_then(|profile| coded::add_rule(ctx.map(), profile, name, &mut inc));
    match made {
        Ok(id) => Outcome::status(format!("created rule {name} at {id}")).with(Changes::map(inc)),
        Err(e) => refused(e),
    }
}
