//! Capabilities at the OSD (docs/protocol/ceph/01-messenger.md, 7.2).
//!
//! Reading and writing must both be given by a single grant; class calls may be covered by several.

use super::cursor::Cursor;
use super::network::{Network, admits};
use super::{Access, CapsError};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Where a grant applies. Empty fields match everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Match {
    pool: Option<String>,
    namespace: Option<String>,
    /// Application, key, value of the pool's metadata; `*` for any key or value.
    tag: Option<(String, String, String)>,
    object_prefix: Option<String>,
}

impl Match {
    fn is_everywhere_in_its_pool(&self) -> bool {
        self.object_prefix.is_none() && self.namespace.as_deref().is_none_or(|n| n == "*")
    }
}

/// What a grant gives.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Spec {
    read: bool,
    write: bool,
    class_read: bool,
    class_write: bool,
    /// `*`: all of it, and class methods that are not marked at all.
    all: bool,
    /// Calls of one class, or of one of its methods.
    class: Option<(String, Option<String>)>,
}

#[derive(Debug, Clone)]
struct Grant {
    spec: Spec,
    place: Match,
    network: Option<Network>,
}

/// One class call of an operation; `read` and `write` are the method's flags.
#[derive(Debug, Clone, Copy)]
pub struct ClassCall<'a> {
    pub class: &'a str,
    pub method: &'a str,
    pub read: bool,
    pub write: bool,
}

/// What one operation (all its steps together) needs.
#[derive(Debug, Clone, Copy)]
pub struct OsdNeed<'a> {
    pub pool: &'a str,
    /// The pool's application metadata: application -> key -> value.
    pub applications: &'a BTreeMap<String, BTreeMap<String, String>>,
    pub namespace: &'a [u8],
    /// The object's name; empty for operations on a PG, such as listing.
    pub object: &'a [u8],
    pub read: bool,
    pub write: bool,
    pub calls: &'a [ClassCall<'a>],
    pub peer: Option<IpAddr>,
}

#[derive(Debug, Clone, Default)]
pub struct OsdCaps {
    grants: Vec<Grant>,
}

fn spec(c: &mut Cursor) -> Option<Spec> {
    if c.lit("*").or_else(|| c.lit("all")).is_some() {
        return Some(Spec {
            all: true,
            ..Spec::rwx()
        });
    }
    rights(c).or_else(|| {
        c.attempt(|c| {
            c.lit("class")?;
            c.gap()?;
            let class = c.string()?;
            let method = c.attempt(|c| {
                c.gap()?;
                c.string()
            });
            Some(Spec {
                class: Some((class, method)),
                ..Spec::default()
            })
        })
    })
}

fn rights(c: &mut Cursor) -> Option<Spec> {
    let mut s = Spec {
        read: c.lit("r").is_some(),
        ..Spec::default()
    };
    s.write = c.lit("w").is_some();
    if c.lit("x").is_some() {
        s.class_read = true;
        s.class_write = true;
    }
    let mut found = s != Spec::default();
    for (text, write) in [("class-read", false), ("class-write", true)] {
        let hit = if found { c.keyword(text) } else { c.lit(text) };
        if hit.is_some() {
            found = true;
            if write {
                s.class_write = true;
            } else {
                s.class_read = true;
            }
        }
    }
    found.then_some(s)
}

/// A namespace, or with `*` behind it a prefix of namespaces.
fn namespace(c: &mut Cursor) -> Option<String> {
    c.attempt(|c| {
        c.keyword("namespace")?;
        c.equals()?;
        let mut s = c.string_or_empty()?;
        if c.lit("*").is_some() {
            s.push('*');
        }
        Some(s)
    })
}

fn tag(c: &mut Cursor) -> Option<(String, String, String)> {
    let star_or = |c: &mut Cursor| c.lit("*").map(|()| "*".to_string()).or_else(|| c.string());
    c.attempt(|c| {
        c.keyword("tag")?;
        c.gap()?;
        let app = c.string()?;
        c.gap()?;
        let key = star_or(c)?;
        c.blanks();
        c.lit("=")?;
        c.blanks();
        Some((app, key, star_or(c)?))
    })
}

fn object_prefix(c: &mut Cursor) -> Option<String> {
    c.attempt(|c| {
        c.keyword("object_prefix")?;
        c.gap()?;
        c.string()
    })
}

fn place(c: &mut Cursor) -> Option<Match> {
    let with_tag = |c: &mut Cursor| {
        let namespace = namespace(c);
        let tag = Some(tag(c)?);
        Some(Match {
            namespace,
            tag,
            ..Match::default()
        })
    };
    c.attempt(with_tag).or_else(|| {
        let m = Match {
            pool: c.named("pool"),
            namespace: namespace(c),
            object_prefix: object_prefix(c),
            tag: None,
        };
        (m != Match::default()).then_some(m)
    })
}

fn grant(c: &mut Cursor) -> Option<Vec<Grant>> {
    let one = |spec, place, network| vec![Grant { spec, place, network }];
    c.attempt(profile)
        .or_else(|| {
            c.attempt(|c| {
                c.lit("allow")?;
                c.gap()?;
                let s = spec(c)?;
                let p = place(c).unwrap_or_default();
                Some(one(s, p, c.network()))
            })
        })
        .or_else(|| {
            c.attempt(|c| {
                c.lit("allow")?;
                let p = place(c)?;
                c.gap()?;
                let s = spec(c)?;
                Some(one(s, p, c.network()))
            })
        })
}

fn profile(c: &mut Cursor) -> Option<Vec<Grant>> {
    c.lit("profile")?;
    c.equals()?;
    let name = c.string()?;
    let place = Match {
        pool: c.named("pool"),
        namespace: namespace(c),
        ..Match::default()
    };
    let network = c.network();
    let mut grants = expand(&name, place);
    for g in &mut grants {
        g.network = network.clone();
    }
    Some(grants)
}

impl Spec {
    fn rwx() -> Self {
        Self {
            read: true,
            write: true,
            class_read: true,
            class_write: true,
            ..Self::default()
        }
    }
    fn read() -> Self {
        Self {
            read: true,
            ..Self::default()
        }
    }
    fn class_read() -> Self {
        Self {
            class_read: true,
            ..Self::default()
        }
    }
    fn method(class: &str, method: &str) -> Self {
        Self {
            class: Some((class.into(), Some(method.into()))),
            ..Self::default()
        }
    }

    fn covers(&self, call: &ClassCall) -> bool {
        if let Some((class, method)) = &self.class
            && class == call.class
            && method.as_ref().is_none_or(|m| m == call.method)
        {
            return true;
        }
        // A method without flags needs nothing but a grant that knows of classes.
        let knows = self.class_read || self.class_write;
        self.all || (knows && (!call.read || self.class_read) && (!call.write || self.class_write))
    }
}

impl Match {
    fn prefix(p: &str) -> Self {
        Self {
            object_prefix: Some(p.into()),
            ..Self::default()
        }
    }

    fn accepts(&self, need: &OsdNeed) -> bool {
        let namespace = match self.namespace.as_deref() {
            None => true,
            Some(ns) => match ns.strip_suffix('*') {
                Some(prefix) => need.namespace.starts_with(prefix.as_bytes()),
                None => ns.as_bytes() == need.namespace,
            },
        };
        namespace
            && self.pool.as_ref().is_none_or(|p| p == need.pool)
            && self.tag.as_ref().is_none_or(|t| has_tag(need.applications, t))
            && self
                .object_prefix
                .as_ref()
                .is_none_or(|p| need.object.starts_with(p.as_bytes()))
    }
}

fn has_tag(
    apps: &BTreeMap<String, BTreeMap<String, String>>,
    (app, key, value): &(String, String, String),
) -> bool {
    let Some(meta) = apps.get(app) else {
        return false;
    };
    if key == "*" && value == "*" {
        return true;
    }
    meta.iter()
        .any(|(k, v)| (key == "*" || key == k) && (value == "*" || value == v))
}

/// The grants behind a profile's name for the given pool and namespace.
fn expand(name: &str, place: Match) -> Vec<Grant> {
    let grant = |spec, place| Grant {
        spec,
        place,
        network: None,
    };
    // Directory of images, in the default namespace of the pool.
    let info = Match {
        pool: place.pool.clone(),
        namespace: Some(String::new()),
        object_prefix: Some("rbd_info".into()),
        tag: None,
    };
    match name {
        "rbd" => vec![
            grant(Spec::read(), Match::prefix("rbd_info")),
            grant(Spec::class_read(), Match::prefix("rbd_children")),
            grant(Spec::class_read(), Match::prefix("rbd_mirroring")),
            grant(Spec::method("rbd", "metadata_list"), info),
            grant(Spec::rwx(), place),
        ],
        "rbd-read-only" => {
            let mut header = place.clone();
            header.object_prefix = Some("rbd_header.".into());
            let read = Spec {
                read: true,
                class_read: true,
                ..Spec::default()
            };
            vec![
                grant(Spec::method("rbd", "metadata_list"), info),
                grant(read, place),
                grant(Spec::method("rbd", "child_attach"), header.clone()),
                grant(Spec::method("rbd", "child_detach"), header),
            ]
        }
        "read-only" => vec![grant(Spec::read(), place)],
        "read-write" => vec![grant(
            Spec {
                read: true,
                write: true,
                ..Spec::default()
            },
            place,
        )],
        _ => Vec::new(),
    }
}

impl OsdCaps {
    pub fn parse(text: &str) -> Result<Self, CapsError> {
        // This service's parser drops leading blanks before it reports where it stopped.
        let mut c = Cursor::new(text);
        c.blanks();
        match c.list(grant) {
            Some(grants) if c.rest().is_empty() => Ok(Self {
                grants: grants.into_iter().flatten().collect(),
            }),
            _ => Err(CapsError::stopped("osd", c.rest(), text)),
        }
    }

    /// Everything, as method none gives.
    pub fn allow_all() -> Self {
        let all = Grant {
            spec: Spec {
                all: true,
                ..Spec::rwx()
            },
            place: Match::default(),
            network: None,
        };
        Self { grants: vec![all] }
    }

    /// Nothing: the caps of a peer without a text, or with one that does not parse.
    pub fn none() -> Self {
        Self::default()
    }

    /// True if some grant allows everything everywhere; lets a caller skip the check per operation.
    pub fn is_allow_all(&self) -> bool {
        self.grants
            .iter()
            .any(|g| g.spec.all && g.place == Match::default() && g.network.is_none())
    }

    /// Whether all grants that hold in a network alone hold for `peer`.
    pub fn hold_for(&self, peer: IpAddr) -> bool {
        self.grants.iter().all(|g| admits(&g.network, Some(peer)))
    }

    pub fn allows(&self, need: &OsdNeed) -> bool {
        let mut data = false;
        let mut covered = vec![false; need.calls.len()];
        for g in &self.grants {
            if !admits(&g.network, need.peer) || !g.place.accepts(need) {
                continue;
            }
            data |= (!need.read || g.spec.read) && (!need.write || g.spec.write);
            for (done, call) in covered.iter_mut().zip(need.calls) {
                *done |= g.spec.covers(call);
            }
            if data && covered.iter().all(|c| *c) {
                return true;
            }
        }
        false
    }

    /// Whether some grant allows writing in the pool, be it in one namespace or to some objects only; and whether one does
    /// everywhere in it. What the monitor asks for before it gives out snapshot ids, which belong to the pool as a whole.
    pub fn writes_in_pool(
        &self,
        pool: &str,
        applications: &BTreeMap<String, BTreeMap<String, String>>,
        peer: Option<IpAddr>,
    ) -> (bool, bool) {
        let writes = |g: &&Grant| {
            g.spec.write
                && admits(&g.network, peer)
                && g.place.pool.as_deref().is_none_or(|p| p == pool)
                && g.place.tag.as_ref().is_none_or(|t| has_tag(applications, t))
        };
        let mut all = self.grants.iter().filter(writes).peekable();
        (
            all.peek().is_some(),
            all.any(|g| g.place.is_everywhere_in_its_pool()),
        )
    }

    /// Rights on `need`'s place that come in one grant, for callers that only ask about plain access.
    pub fn access(&self, need: &OsdNeed) -> Access {
        let mut out = Access::NONE;
        for g in &self.grants {
            if admits(&g.network, need.peer) && g.place.accepts(need) {
                let r = if g.spec.read { Access::R } else { Access::NONE };
                let w = if g.spec.write { Access::W } else { Access::NONE };
                out = out | r | w;
            }
        }
        out
    }
}
