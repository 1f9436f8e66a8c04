//! Capabilities at the monitor (docs/protocol/ceph/01-messenger.md, 7.1).
//!
//! Rights of all grants that apply to a service or command add up until the need is met.

use super::args::{self, Constraint, Constraints};
use super::cursor::Cursor;
use super::network::{Network, admits};
use super::{Access, CapsError};
use std::collections::BTreeMap;
use std::net::IpAddr;

#[derive(Debug, Clone)]
enum Grant {
    /// `*`: everything, `config-key` included.
    All,
    Rights(Access),
    Service(String, Access),
    Command(String, Constraints),
    Profile(Vec<Grant>),
}

#[derive(Debug, Clone)]
struct Entry {
    grant: Grant,
    /// Of all file systems it shows this one only.
    fs: Option<String>,
    network: Option<Network>,
}

/// What a command or message needs.
#[derive(Debug, Clone, Copy)]
pub struct MonNeed<'a> {
    /// The command's module: `mon`, `osd`, `pg`, `mds`, `fs`, `auth`, `config`, `config-key`, `log`, `mgr`.
    pub service: &'a str,
    /// The command's prefix, empty for a message that is no command.
    pub command: &'a str,
    pub args: &'a BTreeMap<String, String>,
    pub access: Access,
    pub peer: Option<IpAddr>,
}

#[derive(Debug, Clone, Default)]
pub struct MonCaps {
    entries: Vec<Entry>,
}

/// Plain rights do not open this service.
const PRIVATE_SERVICE: &str = "config-key";

/// Rights, and whether they were given as `*`.
pub(super) fn rights(c: &mut Cursor) -> Option<(Access, bool)> {
    if c.lit("*").or_else(|| c.lit("all")).is_some() {
        return Some((Access::ALL, true));
    }
    let mut out = Access::NONE;
    for (text, bit) in [("r", Access::R), ("w", Access::W), ("x", Access::X)] {
        if c.lit(text).is_some() {
            out = out | bit;
        }
    }
    (!out.is_empty()).then_some((out, false))
}

fn grant(c: &mut Cursor) -> Option<Entry> {
    c.attempt(|c| {
        let grant = c
            .attempt(|c| {
                c.lit("allow")?;
                c.gap()?;
                profile(c)
                    .or_else(|| service(c))
                    .or_else(|| command(c))
                    .or_else(|| plain(c))
            })
            .or_else(|| profile(c))?;
        let network = c.network();
        let fs = match grant {
            Grant::Rights(_) | Grant::All => file_system(c),
            _ => None,
        };
        Some(Entry { grant, fs, network })
    })
}

fn plain(c: &mut Cursor) -> Option<Grant> {
    let (access, all) = rights(c)?;
    Some(if all { Grant::All } else { Grant::Rights(access) })
}

fn file_system(c: &mut Cursor) -> Option<String> {
    c.attempt(|c| {
        c.keyword("fsname")?;
        c.equals()?;
        c.word()
    })
}

fn profile(c: &mut Cursor) -> Option<Grant> {
    c.attempt(|c| {
        c.lit("profile")?;
        c.equals()?;
        Some(Grant::Profile(expand(&c.string()?)))
    })
}

fn service(c: &mut Cursor) -> Option<Grant> {
    c.attempt(|c| {
        c.lit("service")?;
        c.equals()?;
        let name = c.string()?;
        c.gap()?;
        Some(Grant::Service(name, rights(c)?.0))
    })
}

fn command(c: &mut Cursor) -> Option<Grant> {
    c.attempt(|c| {
        c.lit("command")?;
        c.equals()?;
        Some(Grant::Command(c.string()?, args::with_pairs(c)))
    })
}

fn services(names: &[&str], access: Access) -> Vec<Grant> {
    names
        .iter()
        .map(|n| Grant::Service(n.to_string(), access))
        .collect()
}

/// Only a single running client may be put on the blocklist: no network, no whole host, no daemon. (Ceph's profile lets
/// `range 0.0.0.0/0` through, which fences everybody.)
fn blocklist(prefix: &str, op: &str) -> Grant {
    let constraints = Constraints::from([
        (op.to_string(), Constraint::Equal("add".into())),
        ("addr".to_string(), Constraint::Client),
        ("range".to_string(), Constraint::Absent),
    ]);
    Grant::Command(prefix.into(), constraints)
}

fn daemon() -> Vec<Grant> {
    services(&["mon", "osd", "pg", "mds", "mgr", "log", "config"], Access::R)
}

/// The grants behind a profile's name; an unknown one grants nothing (16.2 accepts it too). Daemons of
/// Skep talk to the cluster state directly, so their profiles read the maps and no more.
fn expand(name: &str) -> Vec<Grant> {
    match name {
        "rbd" | "rbd-mirror" | "rbd-mirror-peer" | "simple-rados-client-with-blocklist" => {
            let mut out = services(&["mon", "osd", "pg"], Access::R);
            out.push(blocklist("osd blocklist", "blocklistop"));
            out.push(blocklist("osd blacklist", "blacklistop"));
            let on_keys = |command: &str, keys| {
                Grant::Command(command.into(), Constraints::from([("key".to_string(), keys)]))
            };
            match name {
                // The daemon, at its own site: the peers' keys, too.
                "rbd-mirror" => out.push(on_keys(
                    "config-key get",
                    Constraint::Prefix("rbd/mirror/".into()),
                )),
                // Whom another site has let in: that site's name, and leaving its own key.
                "rbd-mirror-peer" => out.extend([
                    on_keys("config-key get", Constraint::regex("rbd/mirror/[^/]+")),
                    on_keys("config-key set", Constraint::Prefix("rbd/mirror/peer/".into())),
                ]),
                _ => {}
            }
            out
        }
        "simple-rados-client" | "rbd-read-only" => services(&["mon", "osd", "pg"], Access::R),
        "fs-client" => services(&["mon", "mds", "osd", "pg"], Access::R),
        "read-only" => vec![Grant::Rights(Access::R)],
        "read-write" => vec![Grant::Rights(Access::RW)],
        "role-definer" => {
            let mut out = services(&["mon"], Access::R);
            out.push(Grant::Service("auth".into(), Access::ALL));
            out
        }
        "mon" | "osd" | "mds" => daemon(),
        "mgr" => {
            // Its work on images fences whoever died with an image's lock, as it does itself when it is killed.
            let mut out = daemon();
            out.push(blocklist("osd blocklist", "blocklistop"));
            out
        }
        _ if name.starts_with("bootstrap-") => services(&["mon"], Access::R),
        _ => Vec::new(),
    }
}

impl Grant {
    fn gives(&self, need: &MonNeed) -> Access {
        match self {
            Grant::All => Access::ALL,
            Grant::Rights(a) if need.service != PRIVATE_SERVICE => *a,
            Grant::Rights(_) => Access::NONE,
            Grant::Service(name, a) if name == need.service => *a,
            Grant::Service(..) => Access::NONE,
            Grant::Command(prefix, constraints) => {
                let fits = prefix == need.command && args::accept(constraints, need.args);
                if fits { Access::ALL } else { Access::NONE }
            }
            Grant::Profile(grants) => grants.iter().fold(Access::NONE, |a, g| a | g.gives(need)),
        }
    }
}

impl MonCaps {
    pub fn parse(text: &str) -> Result<Self, CapsError> {
        let mut c = Cursor::new(text);
        let entries = c.list(grant);
        match entries {
            Some(entries) if c.rest().is_empty() => Ok(Self { entries }),
            _ => Err(CapsError::stopped("mon", c.rest(), text)),
        }
    }

    /// Everything, as method none gives.
    pub fn allow_all() -> Self {
        let all = Entry {
            grant: Grant::All,
            fs: None,
            network: None,
        };
        Self { entries: vec![all] }
    }

    /// Nothing: the caps of a peer without a text, or with one that does not parse.
    pub fn none() -> Self {
        Self::default()
    }

    /// Whether all grants that hold in a network alone hold for `peer`.
    pub fn hold_for(&self, peer: IpAddr) -> bool {
        self.entries.iter().all(|e| admits(&e.network, Some(peer)))
    }

    /// Everything, from where the peer is.
    pub fn allows_all(&self, peer: Option<IpAddr>) -> bool {
        let mut here = self.entries.iter().filter(|e| admits(&e.network, peer));
        here.any(|e| matches!(e.grant, Grant::All))
    }

    /// Whether a file system's map is shown: to all but those whose grants name others only.
    pub fn shows_file_system(&self, name: &str) -> bool {
        let names = |e: &Entry| e.fs.as_ref().is_none_or(|fs| fs == name);
        self.entries.iter().any(names)
    }

    pub fn allows(&self, need: &MonNeed) -> bool {
        let mut have = Access::NONE;
        for e in self.entries.iter().filter(|e| admits(&e.network, need.peer)) {
            have = have | e.grant.gives(need);
            if have.contains(need.access) {
                return true;
            }
        }
        false
    }
}
