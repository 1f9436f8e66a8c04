//! Capabilities at the manager: the monitor's shape with modules, and profiles that take arguments
//! (docs/protocol/ceph/01-messenger.md, 7.4).

use super::args::{self, Constraints};
use super::cursor::Cursor;
use super::mon::rights;
use super::network::{Network, admits};
use super::{Access, CapsError};
use std::collections::BTreeMap;
use std::net::IpAddr;

#[derive(Debug, Clone)]
enum Grant {
    All,
    Rights(Access),
    Service(String, Access),
    Module(String, Constraints, Access),
    Command(String, Constraints),
    Profile(Vec<Grant>),
}

#[derive(Debug, Clone)]
struct Entry {
    grant: Grant,
    network: Option<Network>,
}

/// What a command to the manager needs: `module` is empty for the manager's own commands, `service` for those of modules.
#[derive(Debug, Clone, Copy)]
pub struct MgrNeed<'a> {
    pub service: &'a str,
    pub module: &'a str,
    pub command: &'a str,
    pub args: &'a BTreeMap<String, String>,
    pub access: Access,
    pub peer: Option<IpAddr>,
}

#[derive(Debug, Clone, Default)]
pub struct MgrCaps {
    entries: Vec<Entry>,
}

/// A grant before profiles are looked up.
enum Parsed {
    Grant(Grant),
    Profile(String, Constraints),
}

fn grant(c: &mut Cursor) -> Option<(Parsed, Option<Network>)> {
    c.attempt(|c| {
        let parsed = c
            .attempt(|c| {
                c.lit("allow")?;
                c.gap()?;
                profile(c).or_else(|| {
                    let g = service(c)
                        .or_else(|| module(c))
                        .or_else(|| command(c))
                        .or_else(|| plain(c))?;
                    Some(Parsed::Grant(g))
                })
            })
            .or_else(|| profile(c))?;
        let network = c.network();
        Some((parsed, network))
    })
}

fn plain(c: &mut Cursor) -> Option<Grant> {
    let (access, all) = rights(c)?;
    Some(if all { Grant::All } else { Grant::Rights(access) })
}

fn profile(c: &mut Cursor) -> Option<Parsed> {
    c.attempt(|c| {
        c.lit("profile")?;
        c.equals()?;
        let name = c.string()?;
        Some(Parsed::Profile(name, args::pairs(c).unwrap_or_default()))
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

fn module(c: &mut Cursor) -> Option<Grant> {
    c.attempt(|c| {
        c.lit("module")?;
        c.equals()?;
        let name = c.string()?;
        let constraints = args::with_pairs(c);
        c.gap()?;
        Some(Grant::Module(name, constraints, rights(c)?.0))
    })
}

fn command(c: &mut Cursor) -> Option<Grant> {
    c.attempt(|c| {
        c.lit("command")?;
        c.equals()?;
        Some(Grant::Command(c.string()?, args::with_pairs(c)))
    })
}

fn expand(name: &str, args: Constraints) -> Result<Vec<Grant>, String> {
    let rbd = |access| {
        if let Some(key) = args.keys().find(|k| !matches!(k.as_str(), "pool" | "namespace")) {
            return Err(format!("profile '{name}' does not recognize key '{key}'"));
        }
        Ok(vec![Grant::Module("rbd_support".into(), args.clone(), access)])
    };
    match name {
        "rbd" => rbd(Access::RW),
        "rbd-read-only" => rbd(Access::R),
        "read-only" => Ok(vec![Grant::Rights(Access::R)]),
        "read-write" => Ok(vec![Grant::Rights(Access::RW)]),
        "crash" => Ok(vec![Grant::Command("crash post".into(), Constraints::new())]),
        // Daemons send reports, not commands.
        "osd" | "mds" => Ok(Vec::new()),
        _ => Err(format!("unrecognized profile '{name}'")),
    }
}

/// Constraints of a module grant, on what the command is about. One that is about nothing in particular (a listing) may be
/// read: the module leaves out what the caller may not see.
fn about(constraints: &Constraints, need: &MgrNeed) -> bool {
    let names_none = !constraints.keys().any(|k| need.args.contains_key(k));
    args::accept(constraints, need.args) || (names_none && need.access == Access::R)
}

impl Grant {
    fn gives(&self, need: &MgrNeed) -> Access {
        let when = |fits: bool, a: Access| if fits { a } else { Access::NONE };
        match self {
            Grant::All => Access::ALL,
            Grant::Rights(a) => *a,
            Grant::Service(s, a) => when(s == need.service, *a),
            Grant::Module(m, c, a) => when(m == need.module && about(c, need), *a),
            Grant::Command(p, c) => when(p == need.command && args::accept(c, need.args), Access::ALL),
            Grant::Profile(grants) => grants.iter().fold(Access::NONE, |a, g| a | g.gives(need)),
        }
    }
}

impl MgrCaps {
    pub fn parse(text: &str) -> Result<Self, CapsError> {
        let mut c = Cursor::new(text);
        let parsed = match c.list(grant) {
            Some(p) if c.rest().is_empty() => p,
            _ => return Err(CapsError::stopped("mgr", c.rest(), text)),
        };
        let mut entries = Vec::with_capacity(parsed.len());
        for (p, network) in parsed {
            let grant = match p {
                Parsed::Grant(g) => g,
                Parsed::Profile(name, args) => Grant::Profile(expand(&name, args).map_err(|what| {
                    CapsError(format!(
                        "mgr capability parse failed during profile evaluation: {what}"
                    ))
                })?),
            };
            entries.push(Entry { grant, network });
        }
        Ok(Self { entries })
    }

    pub fn allow_all() -> Self {
        let all = Entry {
            grant: Grant::All,
            network: None,
        };
        Self { entries: vec![all] }
    }

    pub fn none() -> Self {
        Self::default()
    }

    /// Whether all grants that hold in a network alone hold for `peer`.
    pub fn hold_for(&self, peer: IpAddr) -> bool {
        self.entries.iter().all(|e| admits(&e.network, Some(peer)))
    }

    pub fn allows(&self, need: &MgrNeed) -> bool {
        let have = self
            .entries
            .iter()
            .filter(|e| admits(&e.network, need.peer))
            .fold(Access::NONE, |a, e| a | e.grant.gives(need));
        have.contains(need.access)
    }
}
