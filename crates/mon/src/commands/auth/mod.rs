//! Commands about entities, their keys and capabilities.

mod files;
mod rotation;

use crate::commands::command::{Command, Outcome};
use crate::commands::context::Context;
use crate::commands::spec::{DEPRECATED, Spec, spec};
use auth::{CryptoKey, EntityAuth, SECRET_LEN, caps};
use cluster::{Change, Changes};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use types::{AuthName, EntityKind, Errno, Utime};

const RX: (&str, &str) = ("auth", "rx");
const RWX: (&str, &str) = ("auth", "rwx");

pub const TABLE: &[Spec] = &[
    spec(RX, "auth ls", "all entities with keys and capabilities", ls),
    spec(RX, "auth list", "all entities with keys and capabilities", ls).flagged(DEPRECATED),
    spec(RX, "auth get entity:str", "keyring of an entity", get),
    spec(
        RX,
        "auth export entity?:str",
        "keyring of an entity, or of all",
        export,
    ),
    spec(RX, "auth get-key entity:str", "key of an entity", get_key),
    spec(RX, "auth print-key entity:str", "key of an entity", get_key),
    spec(RX, "auth print_key entity:str", "key of an entity", get_key),
    spec(
        RWX,
        "auth get-or-create entity:str caps?*:str",
        "keyring of an entity, made if it is new",
        get_or_create,
    ),
    spec(
        RWX,
        "auth get-or-create-key entity:str caps?*:str",
        "key of an entity, made if it is new",
        get_or_create_key,
    ),
    spec(
        RWX,
        "auth add entity:str caps?*:str",
        "add an entity, with the key of the input or a new one",
        add,
    ),
    spec(
        RWX,
        "auth caps entity:str caps*:str",
        "replace the capabilities of an entity",
        set_caps,
    ),
    spec(RWX, "auth rm entity:str", "remove an entity", rm),
    spec(RWX, "auth del entity:str", "remove an entity", rm).flagged(DEPRECATED),
    spec(
        RWX,
        "auth import",
        "add the entities of a keyring in the input",
        import,
    ),
    spec(
        RWX,
        "auth get-or-create-pending entity:str",
        "a second key of an entity, valid beside the one that it has; made if there is none",
        rotation::get_or_create_pending,
    ),
    spec(
        RWX,
        "auth commit-pending entity:str",
        "put the pending key of an entity in the place of the one that it has",
        rotation::commit_pending,
    ),
    spec(
        RWX,
        "auth clear-pending entity:str",
        "drop the pending key of an entity",
        rotation::clear_pending,
    ),
    spec(
        RWX,
        "auth rotate entity:str yes_i_really_mean_it?:bool",
        "another key for an entity, at once: sessions of the one that it had end",
        rotation::rotate,
    ),
    spec(
        RWX,
        "auth expire entity:str when:str yes_i_really_mean_it?:bool",
        "let an entity's keys end: after seconds or 90d, at a date (UTC), or never (skep's own)",
        rotation::expire,
    ),
    spec(
        RWX,
        "fs authorize filesystem:str entity:str caps*:str",
        "key that opens paths of a file system: PATH RIGHTS [root_squash] ...",
        files::authorize,
    ),
];

type Caps = BTreeMap<String, String>;

/// Services in the order of listings.
const KINDS: [EntityKind; 5] = [
    EntityKind::Osd,
    EntityKind::Mds,
    EntityKind::Client,
    EntityKind::Mgr,
    EntityKind::Mon,
];

fn listed<'a>(ctx: &'a Context<'_>) -> Vec<(&'a AuthName, &'a EntityAuth)> {
    let mut all: Vec<_> = ctx.state.auth.entities.iter().collect();
    let rank = |n: &AuthName| KINDS.iter().position(|k| *k == n.kind).unwrap_or(KINDS.len());
    all.sort_by(|a, b| (rank(a.0), a.0).cmp(&(rank(b.0), b.0)));
    // The monitors' own key is nobody's business.
    all.retain(|(n, _)| n.kind != EntityKind::Mon);
    all
}

fn entity_json(name: &AuthName, e: &EntityAuth) -> Value {
    let mut out = json!({"entity": name.to_string(), "key": e.key.to_text(), "caps": e.caps});
    if let Some(key) = &e.pending {
        out["pending_key"] = key.to_text().into();
    }
    if let Some(expiry) = &e.expiry {
        out["expires"] = expiry.at.to_string().into();
    }
    out
}

/// What a keyring does not say, behind the words of `auth get`.
fn beside_keyring(e: &EntityAuth, now: Utime) -> String {
    let mut out = String::new();
    if e.pending.is_some() {
        out.push_str("; it has a pending key, too (auth commit-pending)");
    }
    if let Some(expiry) = &e.expiry {
        let how = if e.expired(now).is_some() {
            "expired"
        } else {
            "expires"
        };
        out.push_str(&format!("; it {how} at {}", expiry.at));
    }
    out
}

fn ls(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let all = listed(ctx);
    let text = |(name, e): &(&AuthName, &EntityAuth)| {
        let mut out = format!("{name}\n\tkey: {}\n", e.key.to_text());
        if let Some(key) = &e.pending {
            out.push_str(&format!("\tpending key: {}\n", key.to_text()));
        }
        if let Some(expiry) = &e.expiry {
            out.push_str(&format!("\texpires: {}\n", expiry.at));
        }
        for (service, cap) in &e.caps {
            out.push_str(&format!("\tcaps: [{service}] {cap}\n"));
        }
        out
    };
    if all.is_empty() {
        return cmd
            .either(|| json!({}), String::new)
            .saying("no installed auth entries!");
    }
    let entries = || all.iter().map(|(n, e)| entity_json(n, e)).collect::<Vec<_>>();
    let out = cmd.either(
        || json!({"auth_dump": entries()}),
        || all.iter().map(text).collect(),
    );
    let status = if cmd.wants_json() {
        ""
    } else {
        "installed auth entries:\n"
    };
    out.saying(status)
}

fn the_name(cmd: &Command) -> Result<AuthName, Outcome> {
    let text = cmd.text("entity");
    let wrong = || Outcome::invalid(format!("invalid entity_auth {text}"));
    text.parse::<AuthName>()
        .ok()
        .filter(|n| !n.id.is_empty() || n.kind == EntityKind::Mon)
        .ok_or_else(wrong)
}

fn keyring_out(cmd: &Command, name: &AuthName, e: &EntityAuth) -> Outcome {
    cmd.either(|| json!([entity_json(name, e)]), || auth::print_section(name, e))
}

fn find<'a>(cmd: &Command, ctx: &'a Context<'_>) -> Result<(AuthName, &'a EntityAuth), Outcome> {
    let name = the_name(cmd)?;
    match ctx.state.auth.get(&name) {
        Some(e) => Ok((name, e)),
        None => Err(Outcome::absent(format!("failed to find {name} in keyring"))),
    }
}

fn get(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    match find(cmd, ctx) {
        Ok((name, e)) => {
            let more = beside_keyring(e, ctx.now);
            keyring_out(cmd, &name, e).saying(format!("exported keyring for {name}{more}"))
        }
        Err(refusal) => refusal,
    }
}

fn export(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    if cmd.opt_text("entity").is_none() {
        let all = listed(ctx);
        let entries = || all.iter().map(|(n, e)| entity_json(n, e)).collect::<Vec<_>>();
        let out = cmd.either(
            || json!({"auth_dump": entries()}),
            || all.iter().map(|(n, e)| auth::print_section(n, e)).collect(),
        );
        return out.saying("exported master keyring");
    }
    match find(cmd, ctx) {
        Ok((name, e)) => keyring_out(cmd, &name, e).saying(format!("export auth(key={})", e.key.to_text())),
        Err(refusal) => refusal,
    }
}

/// `end` follows the key in the text form.
fn key_out(cmd: &Command, e: &EntityAuth, end: &str) -> Outcome {
    let key = e.key.to_text();
    cmd.either(|| json!({"key": key}), || format!("{key}{end}"))
}

fn get_key(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let name = match the_name(cmd) {
        Ok(name) => name,
        Err(refusal) => return refusal,
    };
    match ctx.state.auth.get(&name) {
        Some(e) => key_out(cmd, e, ""),
        None => Outcome::absent(format!("don't have {name}")),
    }
}

/// The flat list of arguments as capabilities. Of a service named twice the last counts.
fn wanted_caps(cmd: &Command) -> Result<Caps, Outcome> {
    let list = cmd.list("caps");
    if !list.len().is_multiple_of(2) {
        return Err(Outcome::invalid(
            "bad capabilities request; odd number of arguments",
        ));
    }
    let mut out = Caps::new();
    for pair in list.chunks_exact(2) {
        let (service, text) = (pair[0], pair[1]);
        if !matches!(service, "mon" | "osd" | "mds" | "mgr") {
            return Err(Outcome::invalid(format!("unknown cap type '{service}'")));
        }
        caps::validate(service, text).map_err(|e| Outcome::invalid(e.to_string()))?;
        out.insert(service.to_string(), text.to_string());
    }
    Ok(out)
}

/// The service whose capability differs, if one does.
fn differing<'a>(have: &'a Caps, want: &'a Caps) -> Option<&'a str> {
    let services = have.keys().chain(want.keys());
    services
        .map(String::as_str)
        .find(|s| have.get(*s) != want.get(*s))
}

fn new_key(ctx: &Context<'_>) -> CryptoKey {
    CryptoKey::new(ctx.random.bytes::<SECRET_LEN>(), ctx.now)
}

fn put(name: AuthName, entity: EntityAuth) -> Changes {
    Changes::one(Change::AuthPut { name, entity })
}

/// The entity as it is or was just made, and whether it is new.
fn existing_or_new(cmd: &Command, ctx: &Context<'_>) -> Result<(AuthName, EntityAuth, bool), Outcome> {
    let name = the_name(cmd).map_err(|_| Outcome::invalid("bad entity name"))?;
    let caps = wanted_caps(cmd)?;
    if let Some(e) = ctx.state.auth.get(&name) {
        if !caps.is_empty()
            && let Some(service) = differing(&e.caps, &caps)
        {
            let why = format!("key for {name} exists but cap {service} does not match");
            return Err(Outcome::invalid(why));
        }
        return Ok((name, e.clone(), false));
    }
    let mut entity = EntityAuth::new(new_key(ctx));
    entity.caps = caps;
    Ok((name, entity, true))
}

/// The keyring without capabilities in the text form, on purpose: it is pasted into keyring files.
fn keyring_like_new(cmd: &Command, name: &AuthName, e: &EntityAuth) -> Outcome {
    let text = || format!("[{name}]\n\tkey = {}\n", e.key.to_text());
    cmd.either(|| json!([entity_json(name, e)]), text)
}

fn get_or_create(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let (name, e, new) = match existing_or_new(cmd, ctx) {
        Ok(found) => found,
        Err(refusal) => return refusal,
    };
    let out = keyring_like_new(cmd, &name, &e);
    if new { out.with(put(name, e)) } else { out }
}

fn get_or_create_key(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    match existing_or_new(cmd, ctx) {
        Ok((name, e, true)) => key_out(cmd, &e, "\n").with(put(name, e)),
        Ok((_, e, false)) => key_out(cmd, &e, "\n"),
        Err(refusal) => refusal,
    }
}

/// The keyring in the input.
fn input_keyring(cmd: &Command) -> Result<auth::KeyDb, Outcome> {
    let text = std::str::from_utf8(&cmd.inbuf).map_err(|_| Outcome::invalid("keyring is not text"))?;
    auth::parse_keyring(text).map_err(|e| Outcome::invalid(format!("error decoding keyring {e}")))
}

fn add(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let name = match the_name(cmd) {
        Ok(name) => name,
        Err(_) => return Outcome::invalid("bad entity name"),
    };
    let mut wanted = match wanted_caps(cmd) {
        Ok(caps) => caps,
        Err(refusal) => return refusal,
    };
    let mut key = None;
    if !cmd.inbuf.is_empty() {
        let db = match input_keyring(cmd) {
            Ok(db) => db,
            Err(refusal) => return refusal,
        };
        let Some(given) = db.get(&name) else {
            return Outcome::invalid(format!("key for {name} not found in provided keyring"));
        };
        if !given.caps.is_empty() && !wanted.is_empty() {
            return Outcome::invalid("caps cannot be specified both in keyring and in command");
        }
        for (service, text) in &given.caps {
            wanted.entry(service.clone()).or_insert_with(|| text.clone());
        }
        key = Some(given.key.clone());
    }
    let said = format!("added key for {name}");
    if let Some(e) = ctx.state.auth.get(&name) {
        if let Some(service) = differing(&e.caps, &wanted) {
            return Outcome::invalid(format!("entity {name} exists but cap {service} does not match"));
        }
        if key.as_ref().is_some_and(|k| k.secret() != e.key.secret()) {
            return Outcome::invalid(format!("entity {name} exists but key does not match"));
        }
        return Outcome::default();
    }
    let mut entity = EntityAuth::new(key.unwrap_or_else(|| new_key(ctx)));
    entity.caps = wanted;
    Outcome::status(said).with(put(name, entity))
}

fn set_caps(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let name = match the_name(cmd) {
        Ok(name) => name,
        Err(_) => return Outcome::invalid("bad entity name"),
    };
    let Some(e) = ctx.state.auth.get(&name) else {
        return Outcome::absent(format!("couldn't find entry {name}"));
    };
    let caps = match wanted_caps(cmd) {
        Ok(caps) => caps,
        Err(refusal) => return refusal,
    };
    let mut entity = e.clone();
    entity.caps = caps;
    Outcome::status(format!("updated caps for {name}")).with(put(name, entity))
}

fn rm(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let name = match the_name(cmd) {
        Ok(name) => name,
        Err(_) => return Outcome::invalid("bad entity name"),
    };
    if ctx.state.auth.get(&name).is_none() {
        return Outcome::status(format!("entity {name} does not exist"));
    }
    Outcome::status("updated").with(Changes::one(Change::AuthRm { name }))
}

fn import(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    if cmd.inbuf.is_empty() {
        return Outcome::invalid("auth import: no data supplied");
    }
    let db = match input_keyring(cmd) {
        Ok(db) => db,
        Err(refusal) => return refusal,
    };
    let mut changes = Changes::none();
    for (name, entity) in db.entities {
        for (service, text) in &entity.caps {
            if let Err(e) = caps::validate(service, text) {
                return Outcome::error(Errno::EINVAL, format!("{name}: {e}"));
            }
        }
        if name.kind == EntityKind::Mon && entity.pending.is_some() {
            return Outcome::invalid(rotation::NOT_OF_MONITORS);
        }
        let entity = match ctx.state.auth.get(&name) {
            Some(have) => have.replaced_by(entity),
            None => entity,
        };
        changes.push(Change::AuthPut { name, entity });
    }
    Outcome::status("imported keyring").with(changes)
}
