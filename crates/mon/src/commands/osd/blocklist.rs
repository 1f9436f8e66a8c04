//! Fencing of clients by address or network.

use crate::commands::command::{Command, Outcome, lines};
use crate::commands::context::{Context, SessionInfo};
use crate::commands::spec::{DEPRECATED, Spec, spec};
use crate::commands::views::show;
use crate::format::json::significant;
use cluster::Changes;
use forms::names::Names;
use serde_json::{Value, json};
use std::time::Duration;
use types::EntityAddr;
use types::addr::AddrKind;

const R: (&str, &str) = ("osd", "r");
const RW: (&str, &str) = ("osd", "rw");

pub const TABLE: &[Spec] = &[
    spec(
        RW,
        "osd blocklist range?:str([range]) blocklistop:choice(add|rm) addr:addr expire?:float(0.0..)",
        "fence a client or a network for some seconds, or let it back in",
        change,
    ),
    spec(R, "osd blocklist ls", "who is fenced", list),
    spec(RW, "osd blocklist clear", "let everybody back in", clear),
    spec(
        RW,
        "osd blacklist blacklistop:choice(add|rm) addr:addr expire?:float(0.0..)",
        "fence a client for some seconds, or let it back in",
        change,
    )
    .flagged(DEPRECATED),
    spec(R, "osd blacklist ls", "who is fenced", list).flagged(DEPRECATED),
    spec(RW, "osd blacklist clear", "let everybody back in", clear).flagged(DEPRECATED),
];

/// Entries that are kept; what is beyond is refused.
const ENTRIES_MAX: usize = 65_536;
const EXPIRE_DEFAULT: f64 = 3600.0;
/// As long as times can be written down.
const EXPIRE_MAX: f64 = 10.0 * 365.0 * 86_400.0;

/// A network: the "nonce" is the prefix length.
fn parse_range(text: &str) -> Option<EntityAddr> {
    let mut addr = EntityAddr::from_text(text).filter(|_| text.contains('/'))?;
    let sock = addr.sock.as_mut()?;
    sock.set_port(0);
    let bits = if sock.is_ipv4() { 32 } else { 128 };
    addr.kind = AddrKind::Cidr;
    (addr.nonce <= bits).then_some(addr)
}

fn change(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let text = cmd.text("addr");
    let Some(mut addr) = EntityAddr::from_text(text) else {
        return Outcome::invalid(format!("unable to parse address {text}"));
    };
    let range = cmd.text("range") == "range";
    if range {
        match parse_range(text) {
            Some(network) => addr = network,
            None => {
                addr.kind = AddrKind::Msgr2;
                let why = format!("You specified a range command, but {addr} does not parse as a CIDR range");
                return Outcome::invalid(why);
            }
        }
    }
    let op = match cmd.prefix.as_str() {
        "osd blacklist" => cmd.text("blacklistop"),
        _ => cmd.text("blocklistop"),
    };
    match op {
        "add" => add(cmd, ctx, addr, range),
        "rm" => remove(ctx, addr, range),
        _ => Outcome::default(),
    }
}

fn add(cmd: &Command, ctx: &Context<'_>, addr: EntityAddr, range: bool) -> Outcome {
    let expire = cmd
        .real("expire")
        .filter(|e| *e > 0.0)
        .unwrap_or(EXPIRE_DEFAULT)
        .min(EXPIRE_MAX);
    let map = ctx.map();
    let known = map.blocklist.contains_key(&addr) || map.range_blocklist.contains_key(&addr);
    if !known && map.blocklist.len() + map.range_blocklist.len() >= ENTRIES_MAX {
        let why = format!("the blocklist has {ENTRIES_MAX} entries already");
        return Outcome::error(types::Errno::ENOSPC, why);
    }
    let until = show::later_by(ctx.now, Duration::from_secs_f64(expire));
    let mut inc = ctx.inc();
    if range {
        inc.new_range_blocklist.insert(addr, until);
    } else {
        inc.new_blocklist.insert(addr, until);
    }
    let text = format!(
        "blocklisting {} until {until} ({} sec)",
        addr,
        significant(expire, 6)
    );
    let mut changes = Changes::map(inc);
    let seen: Vec<_> = ctx.sessions.iter().filter_map(SessionInfo::instance).collect();
    changes.list.extend(ctx.state.fence_by(addr, &seen));
    Outcome::status(text).with(changes)
}

fn remove(ctx: &Context<'_>, addr: EntityAddr, range: bool) -> Outcome {
    let map = ctx.map();
    let list = if range {
        &map.range_blocklist
    } else {
        &map.blocklist
    };
    if !list.contains_key(&addr) {
        return Outcome::status(format!("{} isn't blocklisted", addr));
    }
    let mut inc = ctx.inc();
    if range {
        inc.old_range_blocklist.push(addr);
    } else {
        inc.old_blocklist.push(addr);
    }
    Outcome::status(format!("un-blocklisting {}", addr)).with(Changes::map(inc))
}

fn list(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let map = ctx.map();
    let n = map.blocklist.len() + map.range_blocklist.len();
    let text = format!("listed {n} entries");
    if !cmd.wants_json() {
        let all = map.blocklist.iter().chain(&map.range_blocklist);
        return Outcome::ok(lines(all.map(|(a, until)| format!("{} {until}", a)))).saying(text);
    }
    // Two arrays one behind the other: wrong, but what programs that read it expect.
    let entries: Vec<Value> = map
        .blocklist
        .iter()
        .map(|(a, until)| json!({"addr": a.to_string(), "until": until.to_string()}))
        .collect();
    let ranges: Vec<Value> = map
        .range_blocklist
        .iter()
        .map(|(a, until)| json!({"range": a.to_string().trim_start_matches("cidr:"), "until": until.to_string()}))
        .collect();
    let names = cmd.names();
    let of_ranges = Names {
        prefix: "range_blocklist",
        ..names
    };
    let (entries, ranges) = (
        cmd.format.write(&entries.into(), &names),
        cmd.format.write(&ranges.into(), &of_ranges),
    );
    Outcome::ok(entries + &ranges).saying(text)
}

fn clear(_: &Command, ctx: &Context<'_>) -> Outcome {
    let map = ctx.map();
    let out = Outcome::status(" removed all blocklist entries");
    if map.blocklist.is_empty() && map.range_blocklist.is_empty() {
        return out;
    }
    let mut inc = ctx.inc();
    inc.old_blocklist.extend(map.blocklist.keys());
    inc.old_range_blocklist.extend(map.range_blocklist.keys());
    out.with(Changes::map(inc))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        let check = |text: &str, want: Option<&str>| {
            assert_eq!(
                EntityAddr::from_text(text).map(|a| a.to_string()).as_deref(),
                want,
                "{text}"
            );
        };
        check("10.0.0.1:0/1234", Some("10.0.0.1:0/1234"));
        check("10.0.0.2", Some("10.0.0.2:0/0"));
        check("v2:10.0.0.3:0/5", Some("10.0.0.3:0/5"));
        check("[::1]:6789/7", Some("[::1]:6789/7"));
        check("garbage", None);
        check("", None);
        let range = |text: &str| parse_range(text).map(|a| a.to_string());
        assert_eq!(range("10.1.0.0/16").as_deref(), Some("cidr:10.1.0.0:0/16"));
        assert_eq!(range("10.1.0.0/33"), None);
        assert_eq!(range("10.1.0.0"), None);
    }
}
