//! Options of one running metadata server.

use super::{Answer, Args, Told, list, text};
use crate::machine::{Caching, Machine};
use serde_json::{Value, json};
use std::time::Duration;
use types::Errno;

/// Below this the tables that are always in memory do not fit.
const CACHE_BYTES_MIN: usize = 16 << 20;
const RECONNECT_MAX: u64 = 3600;

const CACHE: &str = "mds_cache_memory_limit";
const RECONNECT: &str = "mds_reconnect_timeout";
const EARLY: &str = "mds_early_reply";
const SHARED: &str = "mds_shared_caps";
const LEASES: &str = "mds_name_leases";
const ASYNC: &str = "mds_async_names";

fn all(m: &Machine) -> [(&'static str, String); 6] {
    [
        (CACHE, m.options.cache_bytes.to_string()),
        (RECONNECT, m.options.reconnect.as_secs().to_string()),
        (EARLY, m.options.early.to_string()),
        (SHARED, (m.options.caching != Caching::Nothing).to_string()),
        (LEASES, m.options.leases.to_string()),
        (ASYNC, m.options.async_names.to_string()),
    ]
}

pub fn show(m: &mut Machine, _: &Args) -> Answer {
    let shown = all(m).map(|(name, value)| (name.to_string(), Value::from(value)));
    Ok(Told::Now(Value::Object(shown.into_iter().collect())))
}

fn unknown(what: &str, name: &str) -> (Errno, String) {
    let why = format!("error {what} '{name}': (2) No such file or directory");
    (Errno::ENOENT, why)
}

pub fn get(m: &mut Machine, args: &Args) -> Answer {
    let wanted = text(args, "var");
    let found = all(m).into_iter().find(|(name, _)| *name == wanted);
    let (name, value) = found.ok_or_else(|| unknown("getting", wanted))?;
    Ok(Told::Now(json!({name: value})))
}

pub fn set(m: &mut Machine, args: &Args) -> Answer {
    let (name, value) = (text(args, "var"), list(args, "val").join(" "));
    let wrong = |why: String| {
        (
            Errno::EINVAL,
            format!("error setting '{name}' to '{value}': {why}"),
        )
    };
    let number = |least: u64, most: u64| match value.parse::<u64>() {
        Ok(n) if (least..=most).contains(&n) => Ok(n),
        _ => Err(wrong(format!("a number from {least} to {most}"))),
    };
    match name {
        CACHE => m.options.cache_bytes = number(CACHE_BYTES_MIN as u64, 1 << 40)? as usize,
        RECONNECT => m.options.reconnect = Duration::from_secs(number(1, RECONNECT_MAX)?),
        SHARED => {
            let on: bool = value.parse().map_err(|_| wrong("true or false".into()))?;
            m.cache(if on { Caching::Shared } else { Caching::Nothing });
        }
        EARLY => m.options.early = value.parse().map_err(|_| wrong("true or false".into()))?,
        LEASES => m.options.leases = value.parse().map_err(|_| wrong("true or false".into()))?,
        // For sessions that begin from now on.
        ASYNC => m.options.async_names = value.parse().map_err(|_| wrong("true or false".into()))?,
        _ => return Err(unknown("setting", name)),
    }
    Ok(Told::Now(json!({"success": format!("{name} = '{value}' ")})))
}
