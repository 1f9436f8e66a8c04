//! What a client has to know before it can connect: ceph.conf and keyring, as every Ceph client reads them.
//!
//! Sections are looked through in this order: `[client.NAME]`, `[client]`, `[global]`. Words of an option's name may stand
//! apart by blanks, dashes or underscores.
//!
//! Not here: names that DNS has to resolve, and messenger v1: both are refused with a clear error.

use crate::core::Limits;
use crate::{Error, Result};
use auth::{ConMode, CryptoKey, parse_keyring};
use io::files;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;
use types::{AuthName, EntityAddr, EntityKind};

const MON_PORT: u16 = 3300;
const MON_PORT_V1: u16 = 6789;
const MOUNT_TIMEOUT: Duration = Duration::from_secs(300);

#[derive(Debug, Clone)]
pub struct Conf {
    pub name: AuthName,
    pub mons: Vec<EntityAddr>,
    /// None: the cluster asks nobody who he is.
    pub key: Option<CryptoKey>,
    /// Modes towards monitors and towards OSDs, in order of preference.
    pub mon_modes: Vec<ConMode>,
    pub osd_modes: Vec<ConMode>,
    pub limits: Limits,
    /// Of an operation, and of a question to a monitor; None: for ever.
    pub op_timeout: Option<Duration>,
    pub mon_timeout: Option<Duration>,
    pub connect_timeout: Duration,
}

impl Conf {
    /// A client of a cluster without authentication, or with `key`.
    pub fn new(name: AuthName, mons: Vec<EntityAddr>, key: Option<CryptoKey>) -> Self {
        let plain = vec![ConMode::Crc];
        let (mon_modes, osd_modes) = match key {
            None => (plain.clone(), plain),
            Some(_) => (
                vec![ConMode::Secure, ConMode::Crc],
                vec![ConMode::Crc, ConMode::Secure],
            ),
        };
        Self {
            name,
            mons,
            key,
            mon_modes,
            osd_modes,
            limits: Limits::default(),
            op_timeout: None,
            mon_timeout: None,
            connect_timeout: MOUNT_TIMEOUT,
        }
    }

    /// As `path` says for `name` (`client.admin`); `keyring` in place of the one that it names.
    pub fn read(path: &Path, name: &str, keyring: Option<&Path>) -> Result<Self> {
        let bad = |what: String| Error::Conf(what);
        let text = files::read(path)
            .map_err(|e| bad(format!("{}: {e}", path.display())))?
            .ok_or_else(|| bad(format!("{} does not exist", path.display())))?;
        let name: AuthName = name
            .parse()
            .map_err(|_| bad(format!("'{name}' is no name of an entity")))?;
        let options = Options::parse(&text, &name)?;
        let key = match options.wants_cephx()? {
            false => None,
            true => Some(key(&options, &name, keyring)?),
        };
        Self::of(&options, name, key)
    }

    fn of(options: &Options, name: AuthName, key: Option<CryptoKey>) -> Result<Self> {
        let hosts = options.get("mon_host").unwrap_or_default();
        let mut conf = Self::new(name, mon_addrs(hosts)?, key);
        for (option, modes) in [
            ("ms_mon_client_mode", &mut conf.mon_modes),
            ("ms_client_mode", &mut conf.osd_modes),
        ] {
            let Some(text) = options.get(option) else { continue };
            let wanted = ConMode::list(text).ok_or_else(|| Error::Conf(format!("{option}: '{text}'")))?;
            if conf.key.is_some() {
                *modes = wanted;
            } else if !wanted.contains(&ConMode::Crc) {
                return Err(Error::Conf(format!(
                    "{option} asks for secure connections, which there are not without keys"
                )));
            }
        }
        if let Some(n) = options.number("objecter_inflight_ops")? {
            conf.limits.ops = n as usize;
        }
        if let Some(n) = options.number("objecter_inflight_op_bytes")? {
            conf.limits.bytes = n as usize;
        }
        conf.op_timeout = options.seconds("rados_osd_op_timeout")?;
        conf.mon_timeout = options.seconds("rados_mon_op_timeout")?;
        if let Some(t) = options.seconds("client_mount_timeout")? {
            conf.connect_timeout = t;
        }
        Ok(conf)
    }
}

/// The options of one entity.
#[derive(Debug, Default)]
struct Options(BTreeMap<String, String>);

impl Options {
    fn parse(text: &str, name: &AuthName) -> Result<Self> {
        let sections = [
            "global".to_string(),
            name.kind.as_str().to_string(),
            name.to_string(),
        ];
        let mut found: [BTreeMap<String, String>; 3] = Default::default();
        let mut at = None;
        for (i, raw) in text.lines().enumerate() {
            let line = raw.split(['#', ';']).next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            if let Some(section) = line.strip_prefix('[') {
                let section = section.trim_end_matches(']').trim();
                at = sections.iter().position(|s| s == section);
                continue;
            }
            let Some((option, value)) = line.split_once('=') else {
                return Err(Error::Conf(format!(
                    "line {}: '{line}' is not name = value",
                    i + 1
                )));
            };
            if let Some(at) = at {
                let value = value.trim().trim_matches(['"', '\'']);
                found[at].insert(plain(option), expand(value, name));
            }
        }
        // The nearer section wins.
        let mut all = BTreeMap::new();
        found.into_iter().for_each(|s| all.extend(s));
        Ok(Self(all))
    }

    fn get(&self, option: &str) -> Option<&str> {
        self.0.get(option).map(String::as_str)
    }

    fn number(&self, option: &str) -> Result<Option<u64>> {
        let Some(text) = self.get(option) else {
            return Ok(None);
        };
        let n: Option<u64> = text.parse().ok().filter(|n| *n > 0);
        n.map(Some)
            .ok_or_else(|| Error::Conf(format!("{option}: '{text}' is no number above 0")))
    }

    /// 0: none.
    fn seconds(&self, option: &str) -> Result<Option<Duration>> {
        let Some(text) = self.get(option) else {
            return Ok(None);
        };
        let t = text
            .parse()
            .ok()
            .and_then(|s| Duration::try_from_secs_f64(s).ok());
        let t = t.ok_or_else(|| Error::Conf(format!("{option}: '{text}' is no number of seconds")))?;
        Ok(Some(t).filter(|t| !t.is_zero()))
    }

    fn wants_cephx(&self) -> Result<bool> {
        let text = self
            .get("auth_client_required")
            .or_else(|| self.get("auth_supported"))
            .unwrap_or("cephx");
        let mut words = text.split([',', ' ', ';']).map(str::trim);
        let known = words.find(|w| matches!(*w, "cephx" | "none"));
        known.map(|w| w == "cephx").ok_or_else(|| {
            Error::Conf(format!(
                "auth_client_required: '{text}' is neither cephx nor none"
            ))
        })
    }
}

fn plain(option: &str) -> String {
    let words: Vec<&str> = option
        .trim()
        .split([' ', '-', '_', '\t'])
        .filter(|w| !w.is_empty())
        .collect();
    words.join("_")
}

fn expand(value: &str, name: &AuthName) -> String {
    value
        .replace("$cluster", "ceph")
        .replace("$name", &name.to_string())
        .replace("$type", name.kind.as_str())
        .replace("$id", &name.id)
}

fn key(options: &Options, name: &AuthName, keyring: Option<&Path>) -> Result<CryptoKey> {
    let bad = |e: String| Error::Conf(e);
    let parse = |text: &str| CryptoKey::from_text(text.trim()).map_err(|e| bad(format!("key: {e}")));
    if keyring.is_none() {
        if let Some(text) = options.get("key") {
            return parse(text);
        }
        if let Some(path) = options.get("keyfile") {
            let text = files::read(Path::new(path)).map_err(|e| bad(format!("{path}: {e}")))?;
            return parse(&text.ok_or_else(|| bad(format!("{path} does not exist")))?);
        }
    }
    let paths: Vec<PathBuf> = match (keyring, options.get("keyring")) {
        (Some(path), _) => vec![path.to_path_buf()],
        (None, Some(list)) => list
            .split([',', ';', ' '])
            .filter(|p| !p.is_empty())
            .map(PathBuf::from)
            .collect(),
        (None, None) => [
            format!("/etc/ceph/ceph.{name}.keyring"),
            "/etc/ceph/ceph.keyring".to_string(),
            "/etc/ceph/keyring".to_string(),
        ]
        .map(PathBuf::from)
        .to_vec(),
    };
    for path in &paths {
        let text = files::read(path).map_err(|e| bad(format!("{}: {e}", path.display())))?;
        let Some(text) = text else { continue };
        let keys = parse_keyring(&text).map_err(|e| bad(format!("{}: {e}", path.display())))?;
        if let Some(entity) = keys.entities.get(name) {
            return Ok(entity.key.clone());
        }
    }
    let named: Vec<String> = paths.iter().map(|p| p.display().to_string()).collect();
    Err(bad(format!("no key of {name} in {}", named.join(", "))))
}

/// The v2 addresses of a `mon_host`: single ones, and groups in brackets.
fn mon_addrs(text: &str) -> Result<Vec<EntityAddr>> {
    let mut addrs = Vec::new();
    for word in words(text) {
        if word.starts_with("v1:") {
            continue;
        }
        let place = word.strip_prefix("v2:").unwrap_or(&word);
        let place = place.split('/').next().unwrap_or_default();
        let sock = match place.parse::<SocketAddr>() {
            // Nobody speaks v2 there.
            Ok(sock) if sock.port() == MON_PORT_V1 && !word.starts_with("v2:") => continue,
            Ok(sock) => sock,
            Err(_) => {
                let ip: std::result::Result<IpAddr, _> = place.trim_matches(['[', ']']).parse();
                let ip = ip.map_err(|_| Error::Conf(format!("mon_host: '{word}' is no address")))?;
                SocketAddr::new(ip, MON_PORT)
            }
        };
        addrs.push(EntityAddr::msgr2(sock, 0));
    }
    match addrs.is_empty() {
        true => Err(Error::Conf(
            "mon_host names no monitor that speaks messenger v2".into(),
        )),
        false => Ok(addrs),
    }
}

/// Splits at commas, semicolons and blanks, and takes the brackets of groups off; those of IPv6 addresses stay.
fn words(text: &str) -> Vec<String> {
    text.split([',', ';', ' ', '\t'])
        .filter(|w| !w.is_empty())
        .map(|w| {
            let opened = w
                .strip_prefix('[')
                .filter(|rest| rest.starts_with("v1:") || rest.starts_with("v2:"));
            let w = opened.unwrap_or(w);
            // A group's end is one bracket more than the address has.
            match w.matches(']').count() > w.matches('[').count() {
                true => w.strip_suffix(']').unwrap_or(w).to_string(),
                false => w.to_string(),
            }
        })
        .collect()
}

/// Who asks when nobody is named.
pub fn admin() -> AuthName {
    AuthName::new(EntityKind::Client, "admin")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_monitors_in_all_forms() {
        for (text, want) in [
            ("10.0.0.1", vec!["10.0.0.1:3300"]),
            ("10.0.0.1:3333 10.0.0.2", vec!["10.0.0.1:3333", "10.0.0.2:3300"]),
            ("[v2:10.0.0.1:3300,v1:10.0.0.1:6789]", vec!["10.0.0.1:3300"]),
            (
                "[v2:10.0.0.1:3300/0,v1:10.0.0.1:6789/0],[v2:10.0.0.2:1/0]",
                vec!["10.0.0.1:3300", "10.0.0.2:1"],
            ),
            ("[v2:[::1]:3300/0,v1:[::1]:6789/0]", vec!["[::1]:3300"]),
            ("[::1]:3301,::1", vec!["[::1]:3301", "[::1]:3300"]),
            ("v1:10.0.0.1:6789,10.0.0.1:6789,v2:10.0.0.1:5", vec!["10.0.0.1:5"]),
        ] {
            let got: Vec<String> = mon_addrs(text).unwrap().iter().map(|a| a.place()).collect();
            assert_eq!(got, want, "{text}");
        }
        for text in ["", "v1:10.0.0.1:6789", "mon.example.com"] {
            assert!(mon_addrs(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_nearer_section_wins() {
        let text = "[global]\nmon host = 1.2.3.4\nauth-client_required = none ; why\n\
                    [client]\nrados osd op timeout = 2.5\n[client.x]\nmon_host = 5.6.7.8\nkeyring=$cluster.$name.$id\n\
                    [osd]\nmon_host = 9.9.9.9\n";
        let name: AuthName = "client.x".parse().unwrap();
        let options = Options::parse(text, &name).unwrap();
        assert_eq!(options.get("keyring"), Some("ceph.client.x.x"));
        assert!(!options.wants_cephx().unwrap());
        let conf = Conf::of(&options, name, None).unwrap();
        assert_eq!(conf.mons[0].place(), "5.6.7.8:3300");
        assert_eq!(conf.op_timeout, Some(Duration::from_millis(2500)));
        assert_eq!(conf.mon_modes, [ConMode::Crc]);
    }

    #[test]
    fn secure_without_a_key_is_refused() {
        let text = "[global]\nmon_host=1.2.3.4\nms_client_mode = secure\n";
        let options = Options::parse(text, &admin()).unwrap();
        assert!(matches!(Conf::of(&options, admin(), None), Err(Error::Conf(_))));
    }
}
