//! A plain store of keys and values for tools.

use crate::commands::command::{Command, Outcome};
use crate::commands::context::Context;
use crate::commands::spec::{DEPRECATED, Spec, spec};
use bytes::Bytes;
use cluster::{Change, Changes};
use serde_json::{Map, Value, json};
use types::Errno;

const R: (&str, &str) = ("config-key", "r");
const RW: (&str, &str) = ("config-key", "rw");

pub const TABLE: &[Spec] = &[
    spec(R, "config-key get key:str", "the value of a key", get).showing_secrets(),
    spec(
        RW,
        "config-key set key:str val?:str",
        "set a key, from the argument or the input",
        set,
    )
    .hiding("val"),
    spec(
        RW,
        "config-key put key:str val?:str",
        "set a key, from the argument or the input",
        set,
    )
    .hiding("val")
    .flagged(DEPRECATED),
    spec(RW, "config-key rm key:str", "remove a key", rm),
    spec(RW, "config-key del key:str", "remove a key", rm).flagged(DEPRECATED),
    spec(R, "config-key exists key:str", "whether a key is there", exists),
    spec(R, "config-key ls", "all keys", ls),
    spec(R, "config-key list", "all keys", ls).flagged(DEPRECATED),
    spec(
        R,
        "config-key dump key?:str",
        "all keys with values, or those with a prefix",
        dump,
    )
    .showing_secrets(),
];

/// The longest value, as in the real one; and keys.
const VALUE_BYTES_MAX: usize = 64 << 10;
const KEY_BYTES_MAX: usize = 1024;
const KEYS_MAX: usize = 10_000;

fn get(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    match ctx.state.config_keys.get(cmd.text("key")) {
        Some(v) => Outcome::ok(v.clone()),
        None => Outcome::absent(""),
    }
}

fn set(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let key = cmd.text("key").to_string();
    if key.is_empty() || key.len() > KEY_BYTES_MAX {
        return Outcome::invalid(format!("key must have 1 to {KEY_BYTES_MAX} bytes"));
    }
    let value = match cmd.args.get("val").and_then(Value::as_str) {
        Some(v) => Bytes::from(v.to_string()),
        None if !cmd.inbuf.is_empty() => cmd.inbuf.clone(),
        None => Bytes::new(),
    };
    if value.len() > VALUE_BYTES_MAX {
        let why = format!(
            "error: entry size limited to {VALUE_BYTES_MAX} bytes. Use 'mon config key max entry size' to manually adjust"
        );
        return Outcome::error(Errno::EFBIG, why);
    }
    if ctx.state.config_keys.len() >= KEYS_MAX && !ctx.state.config_keys.contains_key(&key) {
        return Outcome::error(Errno::ENOSPC, format!("there are {KEYS_MAX} keys already"));
    }
    let said = format!("set {key}");
    Outcome::status(said).with(Changes::one(Change::ConfigKeySet { key, value }))
}

fn rm(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let out = Outcome::status("key deleted");
    let key = cmd.text("key").to_string();
    if !ctx.state.config_keys.contains_key(&key) {
        return out;
    }
    out.with(Changes::one(Change::ConfigKeyRm { key }))
}

fn exists(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let key = cmd.text("key");
    match ctx.state.config_keys.contains_key(key) {
        true => Outcome::status(format!("key '{key}' exists")),
        false => Outcome::absent(format!("key '{key}' doesn't exist")),
    }
}

fn ls(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let keys: Vec<&String> = ctx.state.config_keys.keys().collect();
    cmd.json(&json!(keys))
}

fn dump(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let prefix = cmd.text("key");
    let text = |v: &Bytes| match std::str::from_utf8(v) {
        Ok(s) => s.to_string(),
        Err(_) => format!("<<< binary blob of length {} >>>", v.len()),
    };
    let wanted = ctx
        .state
        .config_keys
        .iter()
        .filter(|(k, _)| k.starts_with(prefix));
    let all: Map<String, Value> = wanted.map(|(k, v)| (k.clone(), text(v).into())).collect();
    cmd.json(&Value::Object(all))
}
