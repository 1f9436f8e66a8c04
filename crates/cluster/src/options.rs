//! The options that the central configuration knows: types, defaults, limits; and the check of values.
//!
//! The tables are data: every option of Ceph 16.2.15 (`options.tsv`), and of its manager modules (`module_options.tsv`). A name
//! that is in neither can be set by force only. Values are stored in canonical form: sizes as bytes, booleans as true and false.

pub mod acting;
pub mod gateway;

use acting::Acting;
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
    /// Read before there is a cluster to ask: belongs in files, and cannot be kept here.
    pub special: bool,
}

const TABLES: [&str; 2] = [include_str!("options.tsv"), include_str!("module_options.tsv")];

static OPTIONS: LazyLock<BTreeMap<&'static str, ConfigOption>> = LazyLock::new(|| {
    let rows = TABLES
        .into_iter()
        .flat_map(str::lines)
        .filter(|l| !l.starts_with('#'));
    rows.filter_map(row).map(|o| (o.name, o)).collect()
});

/// Beginnings of the names of options that stock clients act upon: monitors hand them out.
pub const OF_CLIENTS: &[&str] = &[
    "auth_client_required",
    "client_",
    "clog_",
    "compressor_",
    "debug_",
    "err_to_",
    "fatal_signal_handlers",
    "journaler_",
    "key",
    "librados_",
    "log_",
    "mon_client_",
    "mon_host",
    "ms_",
    "objecter_",
    "rados_",
    "rbd_",
    "throttler_",
];

/// What becomes of an option that somebody sets.
#[derive(Debug, Clone, Copy)]
pub enum Fate {
    /// Daemons here act upon it.
    Acts(&'static Acting),
    /// Stock clients act upon it: it is handed out to them.
    OfClients,
    /// It is kept, and does nothing.
    Kept,
    /// It belongs in files.
    Refused,
}

pub fn fate(name: &str) -> Fate {
    match acting::acting(name) {
        _ if find(name).is_some_and(|o| o.special) => Fate::Refused,
        Some(a) => Fate::Acts(a),
        None if is_of_clients(name) => Fate::OfClients,
        None => Fate::Kept,
    }
}

/// Why an option does nothing that is set for `section` (`global`, `osd.1`, `client/host:vm`). None: it acts.
pub fn notice(name: &str, section: &str) -> Option<String> {
    let kind = section.split(['.', '/']).next().unwrap_or(section);
    let of_clients = is_of_clients(name);
    let acting = acting::acting(name);
    if acting.is_some_and(|a| a.readers.heed(section)) || of_clients && ["global", "client"].contains(&kind) {
        return None;
    }
    Some(match (acting, kind) {
        (Some(a), k) if k != "client" => {
            format!(
                "note: {name} is kept, and does nothing for {section}: it is read from {}",
                a.readers.text()
            )
        }
        (_, "client") => format!("note: {name} is kept, and does nothing for clients"),
        (_, k) if of_clients && k != "global" && !name.starts_with("debug_") => {
            format!("note: {name} is kept, and does nothing for {section}: clients alone read it")
        }
        _ => format!("note: {name} is kept, but Skep's daemons do not use it: it does nothing"),
    })
}

fn is_of_clients(name: &str) -> bool {
    let towards_servers = [
        "ms_cluster_mode",
        "ms_service_mode",
        "ms_mon_cluster_mode",
        "ms_mon_service_mode",
    ];
    OF_CLIENTS.iter().any(|p| name.starts_with(p)) && !towards_servers.contains(&name)
}

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
        special: f.next()? == "1",
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
        special: false,
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
            "float" => self.limited_real(real(text)?),
            "addr" | "addrvec" => match is_address(text) {
                true => Ok(text.to_string()),
                false => Err(String::new()),
            },
            "uuid" => match text.parse::<types::Uuid>() {
                Ok(id) => Ok(id.to_string()),
                Err(()) => Err(String::new()),
            },
            _ if self.name.starts_with("debug_") => levels(text),
            _ if self.name == gateway::ENABLE_APIS => gateway::check_apis(text),
            _ if self.is_modes() => match auth::ConMode::list(text) {
                Some(_) => Ok(text.to_string()),
                None => Err(format!("'{text}' is no list of crc and secure")),
            },
            _ => self.permitted(text),
        }
    }

    /// A list of the messenger's modes.
    pub fn is_modes(&self) -> bool {
        self.name.starts_with("ms_") && self.name.ends_with("_mode")
    }

    /// A value that nobody could connect with where nobody has a key.
    pub fn demands_keys(&self, value: &str) -> bool {
        let modes = self.is_modes().then(|| auth::ConMode::list(value)).flatten();
        modes.is_some_and(|m| !m.contains(&auth::ConMode::Crc))
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
            (true, _) => Err(format!("Value '{n}' is below minimum {}", self.min)),
            _ => Err(format!("Value '{n}' exceeds maximum {}", self.max)),
        }
    }

    fn limited_real(&self, n: f64) -> Result<String, String> {
        let limit = |text: &str| text.parse::<f64>().ok();
        let text = format!("{n:.6}");
        match (limit(self.min), limit(self.max)) {
            (Some(min), _) if n < min => Err(format!("Value '{text}' is below minimum {min:.6}")),
            (_, Some(max)) if n > max => Err(format!("Value '{text}' exceeds maximum {max:.6}")),
            _ => Ok(text),
        }
    }
}

/// `5` or `1/5`: what is logged, and what is kept in memory.
fn levels(text: &str) -> Result<String, String> {
    let number = |t: &str| t.trim().parse::<i32>().ok();
    let parsed = match text.split_once('/') {
        Some((log, memory)) => number(log).zip(number(memory)),
        None => number(text).map(|n| (n, n)),
    };
    let (log, memory) = parsed.ok_or("value must take the form N or N/M, where N and M are integers")?;
    Ok(format!("{log}/{memory}"))
}

/// An address with or without a port, or a list of them.
fn is_address(text: &str) -> bool {
    let list = text.trim_matches(['[', ']']);
    let one = |t: &str| t == "-" || types::EntityAddr::from_text(t.trim()).is_some();
    text.is_empty() || one(text) || list.split(',').all(one)
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

fn real(text: &str) -> Result<f64, String> {
    match text.trim().parse::<f64>() {
        Ok(v) if v.is_finite() => Ok(v),
        _ => Err(format!("strict_strtod: expected double, got: '{text}'")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use acting::ACTING;

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
        check("public_addr", "foo", Err(""));
        check("public_addr", "1.2.3.4", Ok("1.2.3.4"));
        check("osd_scrub_begin_hour", "25", Err("Value '25' exceeds maximum 23"));
        check(
            "osd_memory_target",
            "1",
            Err("Value '1' is below minimum 939524096"),
        );
        check("debug_ms", "3", Ok("3/3"));
        check(
            "debug_ms",
            "1/x",
            Err("value must take the form N or N/M, where N and M are integers"),
        );
        check("mds_cache_memory_limit", "4G", Ok("4294967296"));
        check(
            "rbd_op_threads",
            "99999999999999999999",
            Err("The option value '99999999999999999999' seems to be invalid"),
        );
        check("ms_service_mode", "secure", Ok("secure"));
        check("ms_cluster_mode", "crc secure", Ok("crc secure"));
        check(
            "ms_cluster_mode",
            "plain",
            Err("'plain' is no list of crc and secure"),
        );
        check("rgw_enable_apis", "s3, swift", Ok("s3, swift"));
        check("rgw_enable_apis", "", Ok(""));
        check(
            "rgw_enable_apis",
            "s3,swfit",
            Err(
                "'swfit' is not one of the APIs: s3, s3website, swift, swift_auth, admin, sts, iam, notifications",
            ),
        );
        assert!(find("nosuch_option").is_none());
        assert!(find("debug_rbd").is_some());
        assert_eq!(
            names().count(),
            TABLES
                .into_iter()
                .flat_map(str::lines)
                .filter(|l| !l.starts_with('#'))
                .count()
        );
        assert!(names().count() > 1900);
        assert!(find("mon_host").unwrap().special && !find("rbd_cache").unwrap().special);
    }

    /// Options were accepted, kept, and did nothing, without a word.
    #[test]
    fn what_does_nothing_is_said() {
        assert!(ACTING.iter().all(|a| find(a.name).is_some()));
        assert!(ACTING.is_sorted_by_key(|a| a.name));
        for (name, section, acts) in [
            ("ms_cluster_mode", "global", true),
            ("osd_max_scrubs", "osd.3", true),
            ("osd_max_scrubs", "client", false),
            ("osd_op_queue", "osd", false),
            ("rbd_cache", "global", true),
            ("rbd_cache", "client.vm/host:a", true),
            ("rbd_cache", "osd", false),
            ("debug_osd", "osd", false),
            ("debug_rbd", "client", true),
            ("ms_service_mode", "client", false),
            // One value for all monitors: a section of one of them, or with a mask, is not read.
            ("mon_allow_pool_delete", "mon", true),
            ("mon_allow_pool_delete", "mon.a", false),
            ("mon_allow_pool_delete", "global/host:a", false),
            ("mon_allow_pool_delete", "osd", false),
            ("mon_max_pool_pg_num", "mon", true),
            ("mon_warn_on_insecure_global_id_reclaim_allowed", "global", true),
            ("mgr/balancer/mode", "mgr", true),
            ("mgr/balancer/mode", "mgr.x", false),
            ("osd_max_scrubs", "mon", false),
            ("osd_max_scrubs", "osd/class:ssd", true),
            ("rgw_dns_name", "client.rgw", true),
            ("rgw_dns_name", "client.s3/host:a", true),
            ("rgw_dns_name", "osd", false),
        ] {
            assert_eq!(notice(name, section).is_none(), acts, "{name} for {section}");
        }
        let said = notice("osd_max_scrubs", "mon").unwrap();
        assert!(
            said.ends_with("does nothing for mon: it is read from global, osd"),
            "{said}"
        );
    }

    #[test]
    fn what_becomes_of_options() {
        let is = |name: &str| match fate(name) {
            Fate::Acts(a) => a.name,
            Fate::OfClients => "clients",
            Fate::Kept => "kept",
            Fate::Refused => "refused",
        };
        for (name, want) in [
            ("osd_max_scrubs", "osd_max_scrubs"),
            ("ms_service_mode", "ms_service_mode"),
            ("rbd_cache", "clients"),
            ("osd_op_queue", "kept"),
            ("mon_host", "refused"),
        ] {
            assert_eq!(is(name), want, "{name}");
        }
    }

    #[test]
    fn encryption_needs_keys() {
        let demands = |name: &str, v: &str| find(name).unwrap().demands_keys(v);
        assert!(demands("ms_service_mode", "secure"));
        assert!(!demands("ms_service_mode", "crc secure") && !demands("osd_op_queue", "secure"));
    }
}
