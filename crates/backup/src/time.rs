//! Points in time as restic writes them (RFC 3339), and durations as people do.

use std::time::Duration;
use types::Utime;

/// Units of durations, with their seconds.
const UNITS: [(char, u64); 5] = [('s', 1), ('m', 60), ('h', 3600), ('d', 86_400), ('w', 604_800)];

/// `2026-11-26T11:24:05Z`.
pub fn seconds(at: u64) -> String {
    let at = Utime::from_unix(Duration::from_secs(at));
    let (y, mo, d, h, mi, s) = at.civil();
    format!("{y:04}-{mo:02}-{d:02}T{h:02}:{mi:02}:{s:02}Z")
}

/// `2026-11-26T11:24:05.123456Z`.
pub fn stamp(at: Duration) -> String {
    let text = seconds(at.as_secs());
    format!("{}.{:06}Z", text.trim_end_matches('Z'), at.subsec_micros())
}

/// `20261126T112405Z`, for names.
pub fn compact(at: u64) -> String {
    seconds(at).replace(['-', ':'], "")
}

/// Seconds since 1970 of an RFC 3339 time, its fraction cut off.
pub fn parse(text: &str) -> Option<u64> {
    parse_exact(text).map(|at| at.as_secs())
}

/// Time since 1970 of an RFC 3339 time.
pub fn parse_exact(text: &str) -> Option<Duration> {
    let number = |range: std::ops::Range<usize>| text.get(range)?.parse::<i64>().ok();
    let at = |i: usize| text.as_bytes().get(i).copied();
    let marks = [(4, b'-'), (7, b'-'), (13, b':'), (16, b':')];
    if marks.iter().any(|(i, c)| at(*i) != Some(*c)) || !matches!(at(10), Some(b'T' | b't' | b' ')) {
        return None;
    }
    let (y, mo, d) = (number(0..4)?, number(5..7)?, number(8..10)?);
    let (h, mi, s) = (number(11..13)?, number(14..16)?, number(17..19)?);
    if !(1..=12).contains(&mo) || !(1..=31).contains(&d) || h > 23 || mi > 59 || s > 60 {
        return None;
    }
    let rest = text.get(19..)?;
    let zone = rest.trim_start_matches(|c: char| c == '.' || c.is_ascii_digit());
    let digits = rest[..rest.len() - zone.len()].trim_start_matches('.');
    let nanos: u32 = format!("{:0<9}", digits.get(..digits.len().min(9))?)
        .parse()
        .ok()?;
    let offset = match zone {
        "Z" | "z" => 0,
        _ => {
            let sign = match zone.get(..1)? {
                "+" => 1,
                "-" => -1,
                _ => return None,
            };
            let part = |range: std::ops::Range<usize>| zone.get(range)?.parse::<i64>().ok();
            if zone.get(3..4) != Some(":") || zone.len() != 6 {
                return None;
            }
            sign * (part(1..3)? * 3600 + part(4..6)? * 60)
        }
    };
    // Days of the civil calendar (Howard Hinnant's algorithm).
    let y = y - i64::from(mo <= 2);
    let (era, yoe) = (y.div_euclid(400), y.rem_euclid(400));
    let doy = (153 * (if mo > 2 { mo - 3 } else { mo + 9 }) + 2) / 5 + d - 1;
    let days = era * 146_097 + yoe * 365 + yoe / 4 - yoe / 100 + doy - 719_468;
    let seconds = u64::try_from(days * 86_400 + h * 3600 + mi * 60 + s - offset).ok()?;
    Some(Duration::new(seconds, nanos))
}

/// Seconds of `90s`, `15m`, `1h`, `7d`, `8w`.
pub fn parse_duration(text: &str) -> Result<u64, String> {
    let bad = || format!("'{text}' is no duration: a number and one of s, m, h, d, w, as in 15m");
    let unit = text.chars().last().ok_or_else(bad)?;
    let (_, seconds) = UNITS.iter().find(|(c, _)| *c == unit).ok_or_else(bad)?;
    let number: u64 = text[..text.len() - unit.len_utf8()].parse().map_err(|_| bad())?;
    let all = number
        .checked_mul(*seconds)
        .filter(|s| (1..=u64::from(u32::MAX)).contains(s));
    all.ok_or_else(bad)
}

/// The shortest form that [`parse_duration`] takes.
pub fn duration(seconds: u64) -> String {
    let fits = UNITS.iter().rev().find(|(_, unit)| seconds % unit == 0);
    fits.map_or_else(
        || format!("{seconds}s"),
        |(c, unit)| format!("{}{c}", seconds / unit),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_as_restic_writes_them() {
        for (text, want) in [
            ("1970-01-01T00:00:00Z", Some(0)),
            ("2015-01-02T18:10:50.895208559+01:00", Some(1_420_218_650)),
            ("2026-11-26T11:24:05Z", Some(1_795_692_245)),
            ("2024-02-29T23:59:59-02:30", Some(1_709_260_199)),
            ("2026-11-26", None),
            ("2026-13-26T11:24:05Z", None),
            ("2026-11-26T11:24:05", None),
            ("2026-11-26T11:24:05+1:0", None),
        ] {
            assert_eq!(parse(text), want, "{text}");
        }
        let exact = Duration::new(1_420_218_650, 895_208_559);
        assert_eq!(parse_exact("2015-01-02T18:10:50.895208559+01:00"), Some(exact));
        assert_eq!(stamp(exact), "2015-01-02T17:10:50.895208Z");
        assert_eq!(parse("2026-11-26T11:24:05.1.2Z"), None);
        assert_eq!(seconds(1_795_692_245), "2026-11-26T11:24:05Z");
        assert_eq!(compact(1_795_692_245), "20261126T112405Z");
        for day in 0..40_000 {
            assert_eq!(parse(&seconds(day * 86_400 + 7)), Some(day * 86_400 + 7));
        }
    }

    #[test]
    fn durations_go_both_ways() {
        for (text, want) in [
            ("90s", 90),
            ("15m", 900),
            ("1h", 3600),
            ("7d", 604_800),
            ("2w", 1_209_600),
        ] {
            assert_eq!(parse_duration(text), Ok(want));
            assert_eq!(parse_duration(&duration(want)), Ok(want));
        }
        assert_eq!((duration(604_800), duration(90)), ("1w".into(), "90s".into()));
        for bad in ["", "h", "1", "0h", "-1h", "1y", "1.5h", "99999999999w", "1é"] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }
}
