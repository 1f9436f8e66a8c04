//! The options that the central configuration knows: types, defaults, limits; and the check of values.
//!
//! The table is data (`options.tsv`): what clients and operators of Ceph 16 set. A name that is not in it can
//! be set by force only. Values are stored in canonical form: sizes as bytes, booleans as true and false.

use std::collections::BTreeMap;
use std::sync::LazyLock;

#[derive(Debug, Clone, Copy)]
pub struct ConfigOption {
    pub name: &'static str,
    pub kind: &'static str,
    pub level: &'static str,
    default: &'static str,
    daemon_default: &'static str,
    /// Can change while a program runs.
    pub runtime: bool,
    pub min: &'static str,
    pub max: &'static str,
    /// Comma between them.
    pub permitted: &'static str,
}

const TABLE: &str = include_str!("options.tsv");

static OPTIONS: LazyLock<BTreeMap<&'static str, ConfigOption>> = LazyLock::new(|| {
    let rows = TABLE.lines().filter(|l| !l.starts_with('#'));
    rows.filter_map(row).map(|o| (o.name, o)).collect()
});

fn row(line: &'static str) -> Option<ConfigOption> {
    let mut f = line.split('\t');
    Some(ConfigOption {
        name: f.next()?,
        kind: f.next()?,
        level: f.next()?,
        default: f.next()?,
        daemon_default: f.next()?,
        runtime: f.next()? == "1",
        min: f.next()?,
        max: f.next()?,
        permitted: f.next()?,
    })
}

/// Log levels of subsystems are too many to list.
fn debug_option(name: &str) -> Option<ConfigOption> {
    let subsystem = name.strip_prefix("debug_")?;
    let sane = !subsystem.is_empty() && subsystem.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
    sane.then_some(ConfigOption {
        name: "debug_*",
        kind: "str",
        level: "advanced",
        default: "0/5",
        daemon_default: "",
        runtime: true,
        min: "",
        max: "",
        permitted: "",
    })
}

pub fn find(name: &str) -> Option<ConfigOption> {
    OPTIONS.get(name).copied().or_else(|| debug_option(name))
}

pub fn names() -> impl Iterator<Item = &'static str> {
    OPTIONS.keys().copied()
}

impl ConfigOption {
    pub fn default(&self, daemon: bool) -> &'static str {
        if daemon && !self.daemon_default.is_empty() {
            return self.daemon_default;
        }
        self.default
    }

    /// The value in canonical form; the error is what follows "error parsing value: ".
    pub fn check(&self, text: &str) -> Result<String, String> {
        match self.kind {
            "bool" => boolean(text),
            "uint" | "secs" | "millisecs" => self.limited(natural(text)?),
            "size" => self.limited(size(text)?),
            "int" => self.limited(integer(text)?),
            "float" => real(text),
            "uuid" => match text.parse::<types::Uuid>() {
                Ok(id) => Ok(id.to_string()),
                Err(()) => Err(String::new()),
            },
            _ => self.permitted(text),
        }
    }

    fn permitted(&self, text: &str) -> Result<String, String> {
        let mut allowed = self.permitted.split(',').filter(|p| !p.is_empty()).peekable();
        if allowed.peek().is_some() && !allowed.any(|p| p == text) {
            let list = self.permitted.replace(',', ", ");
            return Err(format!("'{text}' is not one of the permitted values: {list}"));
        }
        Ok(text.to_string())
    }

    fn limited(&self, n: i128) -> Result<String, String> {
        let limit = |text: &str| text.parse::<i128>().ok();
        let below = limit(self.min).is_some_and(|m| n < m);
        let above = limit(self.max).is_some_and(|m| n > m);
        match (below, above) {
            (false, false) => Ok(n.to_string()),
            _ if self.max.is_empty() => Err(format!("Value '{n}' is below minimum {}", self.min)),
            _ => Err(format!(
                "Value '{n}' exceeds maximum or is below minimum {}..{}",
                self.min, self.max
            )),
        }
    }
}

fn boolean(text: &str) -> Result<String, String> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" => Ok("true".into()),
        "false" | "no" | "off" => Ok("false".into()),
        t => match t.parse::<i64>() {
            Ok(n) => Ok((n != 0).to_string()),
            Err(_) => Err(format!("Expected option value to be integer, got '{text}'")),
        },
    }
}

fn natural(text: &str) -> Result<i128, String> {
    let n = suffixed(text, 1000, "strict_si_cast")?;
    if n < 0 {
        return Err("strict_sistrtoll: value should not be negative".into());
    }
    Ok(n)
}

fn integer(text: &str) -> Result<i128, String> {
    suffixed(text, 1000, "strict_si_cast")
}

fn size(text: &str) -> Result<i128, String> {
    let n = suffixed(text, 1024, "strict_iecstrtoll")?;
    if n < 0 {
        return Err("strict_iecstrtoll: value should not be negative".into());
    }
    Ok(n)
}

/// A number with a unit prefix (`k` … `E`, `Ki` … and a `B` behind with 1024).
fn suffixed(text: &str, base: i128, who: &str) -> Result<i128, String> {
    let text = text.trim();
    if text.is_empty() {
        return Err(format!("{who}: value not specified"));
    }
    let sign = usize::from(text.starts_with('-'));
    let digits = text[sign..]
        .find(|c: char| !c.is_ascii_digit())
        .map_or(text.len(), |i| i + sign);
    let (number, unit) = text.split_at(digits);
    let power = match unit.trim_end_matches('B').trim_end_matches('i') {
        "" => 0,
        "K" | "k" => 1,
        "M" => 2,
        "G" => 3,
        "T" => 4,
        "P" => 5,
        "E" => 6,
        _ => return Err(format!("{who}: unit prefix not recognized")),
    };
    let too_big = || format!("The option value '{text}' seems to be invalid");
    let n: i128 = number.parse().map_err(|_| too_big())?;
    let n = n.checked_mul(base.pow(power)).ok_or_else(too_big)?;
    if n > i128::from(u64::MAX) || n < i128::from(i64::MIN) {
        return Err(too_big());
    }
    Ok(n)
}

fn real(text: &str) -> Result<String, String> {
    match text.trim().parse::<f64>() {
        Ok(v) if v.is_finite() => Ok(format!("{v:.6}")),
        _ => Err(format!("strict_strtod: expected double, got: '{text}'")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values() {
        let check = |name: &str, text: &str, want: Result<&str, &str>| {
            let got = find(name).unwrap().check(text);
            assert_eq!(got.as_deref().map_err(String::as_str), want, "{name} {text}");
        };
        check("rbd_cache", "1", Ok("true"));
        check(
            "rbd_cache",
            "banana",
            Err("Expected option value to be integer, got 'banana'"),
        );
        check("rbd_cache_size", "32M", Ok("33554432"));
        check(
            "osd_max_backfills",
            "abc",
            Err("strict_si_cast: unit prefix not recognized"),
        );
        check(
            "osd_pool_default_size",
            "-4",
            Err("strict_sistrtoll: value should not be negative"),
        );
        check(
            "rbd_cache_policy",
            "banana",
            Err("'banana' is not one of the permitted values: writethrough, writeback, writearound"),
        );
        check(
            "mon_osd_full_ratio",
            "abc",
            Err("strict_strtod: expected double, got: 'abc'"),
        );
        check("fsid", "5", Err(""));
        check(
            "rbd_op_threads",
            "99999999999999999999",
            Err("The option value '99999999999999999999' seems to be invalid"),
        );
        assert!(find("nosuch_option").is_none());
        assert!(find("debug_rbd").is_some());
        assert!(names().count() > 500);
    }
}
