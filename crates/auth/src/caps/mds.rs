//! Capabilities at the MDS (docs/protocol/ceph/01-messenger.md, 7.3).

use super::CapsError;
use super::cursor::Cursor;
use super::network::{Network, admits};
use std::net::IpAddr;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Spec {
    read: bool,
    write: bool,
    full: bool,
    policy: bool,
    snapshot: bool,
    /// Said as `*` or `all`: commands, too.
    commands: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Match {
    fs: Option<String>,
    path: Option<String>,
    root_squash: bool,
    uid: Option<u32>,
    gids: Vec<u32>,
}

#[derive(Debug, Clone)]
struct Grant {
    spec: Spec,
    place: Match,
    network: Option<Network>,
}

/// What a request needs. `path` is relative to the file system's root, without a slash in front.
#[derive(Debug, Clone, Copy, Default)]
pub struct MdsNeed<'a> {
    pub fs: &'a str,
    pub path: &'a str,
    pub uid: u32,
    pub read: bool,
    pub write: bool,
    /// May exceed a full quota.
    pub full: bool,
    /// May set layouts and quotas.
    pub policy: bool,
    pub snapshot: bool,
    pub peer: Option<IpAddr>,
}

#[derive(Debug, Clone, Default)]
pub struct MdsCaps {
    grants: Vec<Grant>,
}

const EVERYTHING: Spec = Spec {
    read: true,
    write: true,
    full: true,
    policy: true,
    snapshot: true,
    commands: true,
};

fn spec(c: &mut Cursor) -> Option<Spec> {
    if c.lit("*").or_else(|| c.lit("all")).is_some() {
        return Some(EVERYTHING);
    }
    c.lit("r")?;
    let mut s = Spec {
        read: true,
        ..Spec::default()
    };
    if c.lit("w").is_some() {
        s.write = true;
        s.full = c.lit("f").is_some();
        s.policy = c.lit("p").is_some();
        s.snapshot = c.lit("s").is_some();
    }
    Some(s)
}

/// `name` and a value directly behind it.
fn value<T>(c: &mut Cursor, name: &str, read: impl FnOnce(&mut Cursor) -> Option<T>) -> Option<T> {
    c.attempt(|c| {
        c.keyword(name)?;
        read(c)
    })
}

/// `[fsname] [path] [root_squash]`, or `[path] [uid [gids]]`: a user is never tied to a file system's name.
fn place(c: &mut Cursor) -> Match {
    let mut m = Match {
        fs: value(c, "fsname=", |c| c.word()),
        ..Match::default()
    };
    m.path = value(c, "path=", |c| c.string()).map(|p| p.trim_matches('/').to_string());
    m.root_squash = c.keyword("root_squash").is_some();
    if m.fs.is_none() && !m.root_squash {
        m.uid = value(c, "uid=", |c| c.number());
        if m.uid.is_some() {
            m.gids = value(c, "gids=", numbers).unwrap_or_default();
        }
    }
    m
}

fn numbers(c: &mut Cursor) -> Option<Vec<u32>> {
    let mut out = vec![c.number()?];
    while let Some(n) = c.attempt(|c| {
        c.lit(",")?;
        c.number()
    }) {
        out.push(n);
    }
    Some(out)
}

fn grant(c: &mut Cursor) -> Option<Grant> {
    c.attempt(|c| {
        c.lit("allow")?;
        c.gap()?;
        Some(Grant {
            spec: spec(c)?,
            place: place(c),
            network: c.network(),
        })
    })
}

impl Match {
    fn accepts(&self, need: &MdsNeed) -> bool {
        let path = self.path.as_deref().unwrap_or("");
        let inside = match need.path.strip_prefix(path) {
            _ if path.is_empty() => true,
            Some(rest) => rest.is_empty() || rest.starts_with('/'),
            None => false,
        };
        inside
            && self.fs.as_ref().is_none_or(|f| f == need.fs)
            && self.uid.is_none_or(|u| u == need.uid)
            && !(self.root_squash && need.uid == 0 && need.write)
    }
}

impl MdsCaps {
    pub fn parse(text: &str) -> Result<Self, CapsError> {
        // The oldest form, before there were rights: everything but exceeding a full quota, and commands.
        if text == "allow" {
            let spec = Spec {
                full: false,
                commands: false,
                ..EVERYTHING
            };
            return Ok(Self::one(spec));
        }
        let mut c = Cursor::new(text);
        c.blanks();
        match c.list(grant) {
            Some(grants) if c.rest().is_empty() => Ok(Self { grants }),
            _ => Err(CapsError::stopped("mds", c.rest(), text)),
        }
    }

    fn one(spec: Spec) -> Self {
        Self {
            grants: vec![Grant {
                spec,
                place: Match::default(),
                network: None,
            }],
        }
    }

    pub fn allow_all() -> Self {
        Self::one(EVERYTHING)
    }

    pub fn none() -> Self {
        Self::default()
    }

    /// May give commands to the daemon itself: one grant is `allow *`, wherever and whoever (a 16.2 as tried).
    pub fn allows_commands(&self, peer: Option<IpAddr>) -> bool {
        let anywhere = |g: &Grant| g.place == Match::default() && admits(&g.network, peer);
        self.grants.iter().any(|g| g.spec.commands && anywhere(g))
    }

    /// One grant must give all that is needed.
    pub fn allows(&self, need: &MdsNeed) -> bool {
        self.grants.iter().any(|g| {
            let s = g.spec;
            admits(&g.network, need.peer)
                && g.place.accepts(need)
                && (!need.read || s.read)
                && (!need.write || s.write)
                && (!need.full || s.full)
                && (!need.policy || s.policy)
                && (!need.snapshot || s.snapshot)
        })
    }
}
