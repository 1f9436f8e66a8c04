//! Two keys at a time, so that one is replaced while clients go on; and keys that end by themselves.
//!
//! What is valid when: `auth::KeyServer`. That nothing stays open under a key whose time is over: `policies::upkeep`.

use super::{entity_json, find, keyring_out, new_key, put};
use crate::commands::command::{Command, Outcome};
use crate::commands::context::Context;
use crate::commands::views::show;
use crate::format::units;
use auth::{CryptoKey, EntityAuth, Expiry};
use serde_json::json;
use std::ops::RangeInclusive;
use types::{AuthName, EntityKind, Errno, Utime};

const DATE_BYTES_MAX: usize = 40;
/// That times of the protocol can name.
const YEARS: RangeInclusive<u64> = 1970..=2106;

pub const NOT_OF_MONITORS: &str = "the key of monitors has neither a pending one nor an end";

/// An entity whose keys people rotate, or let end: the monitors' own key is nobody's business.
fn rotated<'a>(cmd: &Command, ctx: &'a Context<'_>) -> Result<(AuthName, &'a EntityAuth), Outcome> {
    let (name, e) = find(cmd, ctx)?;
    match name.kind {
        EntityKind::Mon => Err(Outcome::invalid(NOT_OF_MONITORS)),
        _ => Ok((name, e)),
    }
}

/// The pending key in the form of a keyring: it is pasted into keyring files.
fn pending_out(cmd: &Command, name: &AuthName, e: &EntityAuth, pending: &CryptoKey) -> Outcome {
    let text = || format!("[{name}]\n\tkey = {}\n", pending.to_text());
    cmd.either(|| json!([entity_json(name, e)]), text)
}

pub fn get_or_create_pending(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let (name, e) = match rotated(cmd, ctx) {
        Ok(found) => found,
        Err(refusal) => return refusal,
    };
    if let Some(pending) = &e.pending {
        return pending_out(cmd, &name, e, pending);
    }
    let pending = new_key(ctx);
    let entity = EntityAuth {
        pending: Some(pending.clone()),
        ..e.clone()
    };
    pending_out(cmd, &name, &entity, &pending).with(put(name, entity))
}

pub fn commit_pending(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let (name, e) = match rotated(cmd, ctx) {
        Ok(found) => found,
        Err(refusal) => return refusal,
    };
    // No error: who sends it again because no answer came has what he wanted.
    let Some(pending) = &e.pending else {
        return Outcome::status(format!("{name} has no pending key"));
    };
    let entity = EntityAuth {
        key: pending.clone(),
        pending: None,
        ..e.clone()
    };
    Outcome::status(format!("the pending key of {name} is its key now")).with(put(name, entity))
}

pub fn clear_pending(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let (name, e) = match rotated(cmd, ctx) {
        Ok(found) => found,
        Err(refusal) => return refusal,
    };
    if e.pending.is_none() {
        return Outcome::status(format!("{name} has no pending key"));
    }
    let entity = EntityAuth {
        pending: None,
        ..e.clone()
    };
    Outcome::status(format!("dropped the pending key of {name}")).with(put(name, entity))
}

pub fn rotate(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let (name, e) = match rotated(cmd, ctx) {
        Ok(found) => found,
        Err(refusal) => return refusal,
    };
    // The session that asks would end before the new key has come by it.
    if name == *ctx.who {
        let why = format!("{name} asks this itself: auth get-or-create-pending, then auth commit-pending");
        return Outcome::error(Errno::EPERM, why);
    }
    if let Some(refusal) = unmeant(cmd, &name, ctx) {
        return refusal;
    }
    let entity = EntityAuth {
        key: new_key(ctx),
        pending: None,
        ..e.clone()
    };
    keyring_out(cmd, &name, &entity)
        .saying(format!("{name} has another key"))
        .with(put(name, entity))
}

/// Why the sessions of this entity are ended, now or then, by who means it only.
fn needed(name: &AuthName, ctx: &Context<'_>) -> Option<&'static str> {
    match name.kind {
        EntityKind::Client if name == ctx.who => Some("you are who it is"),
        EntityKind::Client if name.id == "admin" => Some("the cluster is administered with it"),
        EntityKind::Client if name.id == "s3" => Some("the cluster's gateway works with it"),
        EntityKind::Client => None,
        _ => Some("daemons work with it"),
    }
}

fn unmeant(cmd: &Command, name: &AuthName, ctx: &Context<'_>) -> Option<Outcome> {
    let why = needed(name, ctx).filter(|_| !cmd.flag("yes_i_really_mean_it"))?;
    let why = format!("{name}: {why}; pass --yes-i-really-mean-it to do it all the same");
    Some(Outcome::error(Errno::EPERM, why))
}

pub fn expire(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let (name, e) = match rotated(cmd, ctx) {
        Ok(found) => found,
        Err(refusal) => return refusal,
    };
    let text = cmd.text("when");
    let at = match (text, when(text, ctx.now)) {
        ("never", _) => None,
        (_, Some(at)) if at > ctx.now => Some(at),
        (_, Some(at)) => {
            let why = format!("{at} has passed: to end a key now, auth rm {name} or auth rotate {name}");
            return Outcome::invalid(why);
        }
        (_, None) => {
            let why = format!("'{text}' is neither 3600s, 90d, 2027-01-31, 2027-01-31T12:00:00 nor never");
            return Outcome::invalid(why);
        }
    };
    if let Some(refusal) = at.and_then(|_| unmeant(cmd, &name, ctx)) {
        return refusal;
    }
    let said = match at {
        Some(at) => format!("{name} expires at {at}, in {}", units::age(ctx.now, at)),
        None => format!("{name} does not expire"),
    };
    let entity = EntityAuth {
        expiry: at.map(|at| Expiry { at, ended: false }),
        ..e.clone()
    };
    Outcome::status(said).with(put(name, entity))
}

/// A span from now, or a date.
fn when(text: &str, now: Utime) -> Option<Utime> {
    match show::parse_span(text) {
        Some(_) if is_like_a_date(text) => None,
        Some(span) => Some(show::later_by(now, span)),
        None => date(text),
    }
}

/// `2027`, `20270131`: who writes that hardly means seconds.
fn is_like_a_date(text: &str) -> bool {
    if !matches!(text.len(), 4 | 8) || !text.bytes().all(|b| b.is_ascii_digit()) {
        return false;
    }
    let (year, day) = text.split_at(4);
    let is_day = |n: u64| (1..=12).contains(&(n / 100)) && (1..=31).contains(&(n % 100));
    let is_year = |n: u64| YEARS.contains(&n);
    year.parse::<u64>().is_ok_and(is_year) && (day.is_empty() || day.parse::<u64>().is_ok_and(is_day))
}

/// `2027-01-31`, `2027-01-31T12:00:00`, and as times are printed: in UTC.
fn date(text: &str) -> Option<Utime> {
    if text.len() > DATE_BYTES_MAX {
        return None;
    }
    let text = text
        .strip_suffix('Z')
        .or(text.strip_suffix("+0000"))
        .unwrap_or(text);
    let (day, time) = text.split_once(['T', ' ']).unwrap_or((text, "0:0:0"));
    let ([y, month, d], [h, min, s]) = (three(day, '-')?, three(time.split('.').next()?, ':')?);
    if !YEARS.contains(&y) || d > 31 || h > 23 || min > 59 || s > 59 {
        return None;
    }
    // Years begin in March: a leap day is the last of its year.
    let (year, since_march) = match month {
        3..=12 => (y, month - 3),
        1..=2 => (y - 1, month + 9),
        _ => return None,
    };
    let leap_days = year / 4 - year / 100 + year / 400;
    let days = 365 * year + leap_days + (153 * since_march + 2) / 5 + d.checked_sub(1)?;
    let sec = days.checked_sub(719_468)? * 86_400 + h * 3600 + min * 60 + s;
    let at = Utime {
        sec: u32::try_from(sec).ok()?,
        nsec: 0,
    };
    // No 31st of a month that has 30 days.
    let (_, _, same, ..) = at.civil();
    (u64::from(same) == d).then_some(at)
}

fn three(text: &str, between: char) -> Option<[u64; 3]> {
    let number = |p: &str| -> Option<u64> {
        let digits = p.bytes().all(|b| b.is_ascii_digit());
        p.parse().ok().filter(|_| digits)
    };
    let parts: Option<Vec<u64>> = text.split(between).map(number).collect();
    parts?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Utime = Utime {
        sec: 1_795_651_200,
        nsec: 500,
    };

    #[test]
    fn spans_and_dates() {
        for (text, sec) in [
            ("60", NOW.sec + 60),
            ("90d", NOW.sec + 90 * 86_400),
            ("2w", NOW.sec + 14 * 86_400),
            ("1970-01-02", 86_400),
            ("2000-03-01", 951_868_800),
            ("2024-02-29", 1_709_164_800),
            ("2026-11-26", 1_795_651_200),
            ("2026-11-26 16:00:00", 1_795_708_800),
            ("2026-11-26T16:00:00Z", 1_795_708_800),
            ("2026-11-26T16:00:00.123456+0000", 1_795_708_800),
            ("99999999999", u32::MAX),
            ("2027s", NOW.sec + 2027),
            ("3600", NOW.sec + 3600),
            ("20271301", NOW.sec + 20_271_301),
        ] {
            assert_eq!(when(text, NOW).map(|t| t.sec), Some(sec), "{text}");
        }
        for text in [
            "",
            "x",
            "-5",
            "5y",
            "2026-13-01",
            "2026-00-01",
            "2026-02-30",
            "2025-02-29",
            "2026-11-00",
            "2026-11-26 25:00:00",
            "26.11.2026",
            "2107-01-01",
            "18446744073709551615w",
            "2027",
            "20270131",
            "+2026-11-26",
            "2026-+11-26",
        ] {
            assert_eq!(when(text, NOW), None, "{text}");
        }
    }
}
