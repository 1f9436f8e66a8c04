//! Shared pieces of output: addresses, versions, times, host and metadata facts.

use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use types::addr::AddrKind;
use types::{EntityAddr, EntityAddrVec, OsdId, Utime};

/// Monitors hold no elections here; the real one counts odd numbers while it has a leader.
pub const ELECTION_EPOCH: u32 = 3;

fn kind_name(kind: AddrKind) -> &'static str {
    match kind {
        AddrKind::None => "none",
        AddrKind::Legacy => "v1",
        AddrKind::Msgr2 => "v2",
        AddrKind::Any => "any",
        AddrKind::Cidr => "cidr",
    }
}

/// `127.0.0.1:3300`
fn place(a: &EntityAddr) -> String {
    a.sock.map_or_else(
        || "(unrecognized address family 0)".to_string(),
        |s| s.to_string(),
    )
}

/// `{"type":"v2","addr":"127.0.0.1:3300","nonce":0}`
pub fn addr(a: &EntityAddr) -> Value {
    json!({"type": kind_name(a.kind), "addr": place(a), "nonce": a.nonce})
}

pub fn addrs(v: &EntityAddrVec) -> Value {
    json!({"addrvec": v.0.iter().map(addr).collect::<Vec<_>>()})
}

/// The address that old programs dial: the v1 one if there is one, else the first; `IP:PORT/NONCE`.
pub fn legacy_addr(v: &EntityAddrVec) -> String {
    v.legacy_or_first().place_and_nonce()
}

/// `2026-11-21T19:39:31.220067Z`, the form of times in the monitor map.
pub fn time_z(t: Utime) -> String {
    t.to_string().replace("+0000", "Z")
}

/// An unset time is `0.000000`.
pub fn time(t: Utime) -> String {
    if t.is_zero() {
        return "0.000000".into();
    }
    t.to_string()
}

/// `now` plus a span, at most the last second that times can say.
pub fn later_by(now: Utime, span: Duration) -> Utime {
    let end = now.to_duration().saturating_add(span);
    Utime::from_unix(end.min(Duration::from_secs(u64::from(u32::MAX))))
}

/// `90s`, `10m`, `1h`, `2d`, `1w`, or plain seconds.
pub fn parse_span(text: &str) -> Option<Duration> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let n: u64 = text[..digits].parse().ok()?;
    let unit: u64 = match text[digits..].trim() {
        "" | "s" | "sec" | "secs" | "second" | "seconds" => 1,
        "m" | "min" | "mins" | "minute" | "minutes" => 60,
        "h" | "hr" | "hrs" | "hour" | "hours" => 3600,
        "d" | "day" | "days" => 86_400,
        "w" | "wk" | "week" | "weeks" => 7 * 86_400,
        _ => return None,
    };
    Some(Duration::from_secs(n.checked_mul(unit)?))
}

/// A 16.16 weight as a number.
pub fn weight(w: u32) -> f64 {
    f64::from(w) / 65_536.0
}

/// `[1,0,2]`; a shard that nobody has is `NONE`.
pub fn ids(v: &[OsdId]) -> String {
    let one = |o: &OsdId| match *o {
        crush::ITEM_NONE => "NONE".to_string(),
        id => id.to_string(),
    };
    let all: Vec<String> = v.iter().map(one).collect();
    format!("[{}]", all.join(","))
}

/// `{"VALUE": how many}` over some daemons' property.
pub fn count_values(values: impl IntoIterator<Item = String>) -> Value {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for v in values {
        *counts.entry(v).or_default() += 1;
    }
    json!(counts)
}
