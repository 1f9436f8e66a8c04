//! `qos`: limits and reservations of what clients do per second, which OSDs enforce (`cluster::qos`; docs/operating/qos.md).
//!
//! An image is named as people name it, and looked up before the command is decided ([`wanted`]).

use crate::commands::command::{Command, Outcome};
use crate::commands::context::Context;
use crate::commands::language::ids;
use crate::commands::spec::{Spec, spec};
use crate::format::units;
use cluster::qos::{Limits, SUBJECTS_MAX, Subject};
use cluster::rbd_support::{About, Wanted};
use cluster::{Changes, ClusterState, ImageKey};
use serde_json::{Value, json};
use types::{AuthName, EntityKind, Errno, PoolId};

const R: (&str, &str) = ("osd", "r");
const RW: (&str, &str) = ("osd", "rw");

pub const TABLE: &[Spec] = &[
    spec(
        RW,
        "qos set what:choice(pool|namespace|image|user) who:str amounts*:str",
        "limit or reserve what clients do per second (iops_limit=500 iops_reserve=90; skep's own)",
        set,
    ),
    spec(
        RW,
        "qos rm what:choice(pool|namespace|image|user) who:str kinds?*:str",
        "take limits away: all, or some (iops, write_bps, iops_reserve; skep's own)",
        rm,
    ),
    spec(
        R,
        "qos ls",
        "limits and reservations of what clients do per second (skep's own)",
        ls,
    ),
];

/// `POOL/REST`, `POOL/NAMESPACE/REST`.
fn place(who: &str) -> Option<(&str, &str, &str)> {
    let parts: Vec<&str> = who.split('/').collect();
    match parts[..] {
        [pool, last] if !last.is_empty() => Some((pool, "", last)),
        [pool, namespace, last] if !namespace.is_empty() && !last.is_empty() => Some((pool, namespace, last)),
        _ => None,
    }
}

/// An image has to be looked up.
pub fn wanted(cmd: &Command, state: &ClusterState) -> Option<Wanted> {
    let about_limits = matches!(cmd.prefix.as_str(), "qos set" | "qos rm") && cmd.text("what") == "image";
    let (pool, namespace, image) = place(cmd.text("who")).filter(|_| about_limits && cmd.found.is_none())?;
    Some(Wanted {
        about: About::Limits,
        pool: state.osdmap.pool_by_name(pool)?,
        namespace: namespace.into(),
        image: image.into(),
    })
}

fn pool_of(name: &str, ctx: &Context<'_>) -> Result<PoolId, Outcome> {
    ctx.map()
        .pool_by_name(name)
        .ok_or_else(|| ids::unknown_pool(name))
}

/// Whose limits, and the pool of its data where that is an image that was found.
fn subject(cmd: &Command, ctx: &Context<'_>) -> Result<(Subject, Option<PoolId>), Outcome> {
    let who = cmd.text("who");
    match cmd.text("what") {
        "pool" => Ok((Subject::Pool(pool_of(who, ctx)?), None)),
        "namespace" => match who.split_once('/') {
            Some((pool, namespace)) if !namespace.contains('/') => {
                Ok((Subject::Namespace(pool_of(pool, ctx)?, namespace.into()), None))
            }
            _ => Err(Outcome::invalid(format!("'{who}' is not POOL/NAMESPACE"))),
        },
        "user" => {
            let name: Option<AuthName> = who.parse().ok();
            match name.filter(|n| n.kind == EntityKind::Client) {
                Some(name) => Ok((Subject::User(name.to_string()), None)),
                None => Err(Outcome::invalid(format!("'{who}' is not client.NAME"))),
            }
        }
        _ => image(cmd, ctx),
    }
}

fn image(cmd: &Command, ctx: &Context<'_>) -> Result<(Subject, Option<PoolId>), Outcome> {
    let who = cmd.text("who");
    let Some((pool, namespace, image)) = place(who) else {
        return Err(Outcome::invalid(format!(
            "'{who}' is not POOL/IMAGE or POOL/NAMESPACE/IMAGE"
        )));
    };
    let pool = pool_of(pool, ctx)?;
    // One that is gone has its limits still: by the name that it had, or by its id.
    let kept = || {
        let all = ctx.state.qos();
        let same = |(subject, limits): (&Subject, &Limits)| match subject {
            Subject::Image(i) => {
                let here = i.pool == pool && i.namespace == namespace;
                (here && (limits.name == image || i.id == image)).then(|| subject.clone())
            }
            _ => None,
        };
        all.iter().find_map(same)
    };
    match &cmd.found {
        // Its name is the number of the data's pool here.
        Some(Ok(found)) => {
            let key = ImageKey {
                pool,
                namespace: namespace.into(),
                id: found.id.clone(),
            };
            Ok((Subject::Image(key), found.name.parse().ok()))
        }
        Some(Err((errno, why))) => match kept().filter(|_| cmd.prefix == "qos rm") {
            Some(subject) => Ok((subject, None)),
            None => Err(Outcome::error(*errno, why.clone())),
        },
        None => Err(Outcome::not_built("work on images by this server")),
    }
}

fn set(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let (subject, data_pool) = match subject(cmd, ctx) {
        Ok(found) => found,
        Err(refusal) => return refusal,
    };
    if let Subject::User(name) = &subject
        && name.parse().is_ok_and(|n| ctx.state.auth.get(&n).is_none())
    {
        return Outcome::absent(format!("there is no user {name}"));
    }
    let mut limits = ctx.state.qos_of(&subject);
    if limits.is_empty() && ctx.state.qos().len() >= SUBJECTS_MAX {
        return Outcome::error(Errno::ENOSPC, format!("{SUBJECTS_MAX} have limits already"));
    }
    for word in cmd.list("amounts") {
        let Some((name, amount)) = word.split_once('=') else {
            return Outcome::invalid(format!("'{word}' is not NAME=AMOUNT"));
        };
        let Some(amount) = number(amount) else {
            return Outcome::invalid(format!("'{amount}' is not a number (20000, 64K, 20M, 1G)"));
        };
        if let Err(why) = limits.set(name, amount) {
            return Outcome::invalid(why);
        }
    }
    if let Err(why) = limits.check() {
        return Outcome::invalid(why);
    }
    if let Some((_, _, name)) = place(cmd.text("who")).filter(|_| matches!(subject, Subject::Image(_))) {
        (limits.name, limits.data_pool) = (name.into(), data_pool);
    }
    put(&subject, &limits)
}

fn put(subject: &Subject, limits: &Limits) -> Outcome {
    let mut changes = Changes::none();
    for change in subject.changes(limits) {
        changes.push(change);
    }
    Outcome::default().with(changes)
}

/// Powers of 1024.
fn number(text: &str) -> Option<u64> {
    let (digits, shift) = match text.char_indices().last()? {
        (at, 'K') => (&text[..at], 10),
        (at, 'M') => (&text[..at], 20),
        (at, 'G') => (&text[..at], 30),
        (at, 'T') => (&text[..at], 40),
        _ => (text, 0),
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

fn rm(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let subject = match subject(cmd, ctx) {
        Ok((subject, _)) => subject,
        Err(refusal) => return refusal,
    };
    let mut limits = ctx.state.qos_of(&subject);
    if limits.is_empty() {
        return Outcome::absent(format!("{} {} has no limits", cmd.text("what"), cmd.text("who")));
    }
    let kinds = cmd.list("kinds");
    for kind in &kinds {
        if let Err(why) = limits.unset(kind) {
            return Outcome::invalid(why);
        }
    }
    if kinds.is_empty() {
        limits = Limits::default();
    }
    put(&subject, &limits)
}

/// As the command takes it.
fn who(subject: &Subject, limits: &Limits, ctx: &Context<'_>) -> String {
    let pool = |id: &PoolId| ctx.map().pool_name(*id).unwrap_or("?").to_string();
    match subject {
        Subject::Pool(id) => pool(id),
        Subject::Namespace(id, namespace) => format!("{}/{namespace}", pool(id)),
        Subject::Image(i) => {
            let name = if limits.name.is_empty() {
                &i.id
            } else {
                &limits.name
            };
            match i.namespace.as_str() {
                "" => format!("{}/{name}", pool(&i.pool)),
                namespace => format!("{}/{namespace}/{name}", pool(&i.pool)),
            }
        }
        Subject::User(name) => name.clone(),
    }
}

fn ls(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let all = ctx.state.qos();
    let shown = |(subject, limits): (&Subject, &Limits)| {
        let mut row = json!({"what": subject.word(), "who": who(subject, limits, ctx)});
        if let Subject::Image(image) = subject {
            row["id"] = json!(image.id);
        }
        if let Some(name) = limits.data_pool.and_then(|id| ctx.map().pool_name(id)) {
            row["data_pool"] = json!(name);
        }
        for (name, amount) in limits.amounts() {
            row[name] = json!(amount);
        }
        row
    };
    let line = |(subject, limits): (&Subject, &Limits)| {
        let amounts = limits.amounts().into_iter().map(|(name, n)| {
            let bytes = name.contains("bps") && !name.ends_with("seconds");
            match bytes {
                true => format!(" {name}={}", units::bytes(n)),
                false => format!(" {name}={n}"),
            }
        });
        let amounts: String = amounts.collect();
        format!("{} {}:{amounts}\n", subject.word(), who(subject, limits, ctx))
    };
    cmd.either(
        || all.iter().map(shown).collect::<Vec<Value>>().into(),
        || all.iter().map(line).collect(),
    )
}

#[cfg(test)]
mod transcript;
