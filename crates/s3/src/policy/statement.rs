//! Statements, and how a request is judged by them.

use super::actions::Action;
use super::condition::Condition;
use super::keys::Key;
use super::pattern::Pattern;
use std::collections::{BTreeMap, BTreeSet};

pub const TEXT_MAX: usize = 20 << 10;
pub const ARN: &str = "arn:aws:s3:::";
pub const USER_ARN: &str = "arn:aws:iam:::user/";
const IAM: &str = "arn:aws:iam:::";
const STS: &str = "arn:aws:sts:::";
/// What roles and their sessions are called among principals: no user's name has a slash.
const ROLE: &str = "role/";
const SESSION: &str = "assumed-role/";

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Principals {
    Everybody,
    Users(BTreeSet<String>),
}

/// A list, or all that is not in it.
#[derive(Debug, Clone, PartialEq)]
pub struct Listed<T> {
    pub of: T,
    pub not: bool,
}

impl<T> Listed<T> {
    fn has(&self, found: impl FnOnce(&T) -> bool) -> bool {
        found(&self.of) != self.not
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Statement {
    pub allows: bool,
    pub principals: Listed<Principals>,
    pub actions: Listed<BTreeSet<Action>>,
    pub resources: Listed<Vec<Pattern>>,
    pub conditions: Vec<Condition>,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Policy {
    pub statements: Vec<Statement>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Allow,
    Deny,
    /// No statement says anything of it.
    Silent,
}

/// What is asked, and all that conditions may look at.
#[derive(Debug, Clone)]
pub struct Request<'a> {
    pub action: Action,
    pub bucket: &'a str,
    /// Of an action on an object.
    pub key: Option<&'a str>,
    /// A user, or a session as [`session_principal`] names it; None: anybody.
    pub user: Option<&'a str>,
    pub values: BTreeMap<Key, String>,
    /// What was judged when an upload was begun is not judged again at its parts.
    pub settled: &'static [Key],
}

impl Request<'_> {
    fn resource(&self) -> String {
        match self.key {
            Some(key) => format!("{ARN}{}/{key}", self.bucket),
            None => format!("{ARN}{}", self.bucket),
        }
    }
}

pub fn user_arn(user: &str) -> String {
    format!("{USER_ARN}{user}")
}

pub fn role_arn(role: &str) -> String {
    format!("{IAM}{ROLE}{role}")
}

/// The name of a role.
pub fn role_of(arn: &str) -> Option<&str> {
    let name = arn.strip_prefix(IAM)?.strip_prefix(ROLE)?;
    Some(name).filter(|n| is_plain(n))
}

/// A session as [`Request::user`] has it.
pub fn session_principal(role: &str, session: &str) -> String {
    format!("{SESSION}{role}/{session}")
}

pub fn session_arn(role: &str, session: &str) -> String {
    format!("{STS}{}", session_principal(role, session))
}

/// A name without what has a meaning in an ARN, or in a pattern.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && !name.contains(['*', '?', '/', '$', ':'])
}

/// A role or a session by its ARN, as principals are kept.
pub fn of_role(arn: &str) -> Option<String> {
    if let Some(role) = role_of(arn) {
        return Some(format!("{ROLE}{role}"));
    }
    let (role, session) = arn.strip_prefix(STS)?.strip_prefix(SESSION)?.split_once('/')?;
    (is_plain(role) && is_plain(session)).then(|| session_principal(role, session))
}

impl Principals {
    fn has(&self, user: Option<&str>) -> bool {
        match self {
            Self::Everybody => true,
            Self::Users(users) => user.is_some_and(|u| users.contains(u) || names_role(users, u)),
        }
    }
}

/// Whether it is a session of a role that is named as a whole.
fn names_role(users: &BTreeSet<String>, user: &str) -> bool {
    let of = user.strip_prefix(SESSION).and_then(|rest| rest.split_once('/'));
    of.is_some_and(|(role, _)| users.contains(&format!("{ROLE}{role}")))
}

/// The role of a principal that is one, or a session of one.
fn role_in(principal: &str) -> Option<&str> {
    let session = principal
        .strip_prefix(SESSION)
        .and_then(|rest| rest.split_once('/'));
    principal.strip_prefix(ROLE).or(session.map(|(role, _)| role))
}

impl Statement {
    fn fits(&self, asked: &Request<'_>, resource: &str) -> bool {
        self.principals.has(|p| p.has(asked.user))
            && self.actions.has(|a| a.contains(&asked.action))
            && self
                .resources
                .has(|r| r.iter().any(|p| p.fits(resource, &asked.values)))
            && self
                .conditions
                .iter()
                .all(|c| c.holds(&asked.values, asked.settled, self.allows))
    }

    /// Lets in who is not named: as AWS sees it, by any condition but those that name users or networks.
    fn is_public(&self) -> bool {
        let everybody = self.principals.of == Principals::Everybody;
        self.allows && everybody && !self.conditions.iter().any(Condition::narrows)
    }
}

impl Policy {
    /// Of a text that cannot be read any more: nobody is let in by it, and everybody is kept out.
    pub fn closed() -> Self {
        let statement = Statement {
            allows: false,
            principals: Listed {
                of: Principals::Everybody,
                not: false,
            },
            actions: Listed {
                of: BTreeSet::new(),
                not: true,
            },
            resources: Listed {
                of: Vec::new(),
                not: true,
            },
            conditions: Vec::new(),
        };
        Self {
            statements: vec![statement],
        }
    }

    pub fn judge(&self, asked: &Request<'_>) -> Verdict {
        let resource = asked.resource();
        let mut verdict = Verdict::Silent;
        for statement in self.statements.iter().filter(|s| s.fits(asked, &resource)) {
            match statement.allows {
                true => verdict = Verdict::Allow,
                false => return Verdict::Deny,
            }
        }
        verdict
    }

    /// Something of it is for anybody, whatever its conditions.
    pub fn opens(&self) -> bool {
        let everybody = |s: &&Statement| s.principals.has(|p| *p == Principals::Everybody);
        self.statements.iter().filter(|s| s.allows).any(|s| everybody(&s))
    }

    pub fn is_public(&self) -> bool {
        self.statements.iter().any(Statement::is_public)
    }

    /// Whether it is denied to a user who is named, in whose place a session asks. A NotPrincipal that lets the role in leaves him out,
    /// and denies the session nothing.
    pub fn denies_named(&self, asked: &Request<'_>, user: &str) -> bool {
        let asked = Request {
            user: Some(user),
            ..asked.clone()
        };
        let resource = asked.resource();
        let mut named = self.statements.iter().filter(|s| !s.allows && !s.principals.not);
        named.any(|s| s.fits(&asked, &resource))
    }

    /// As they are kept: users, roles and sessions.
    fn named(&self) -> impl Iterator<Item = &str> {
        let lists = self.statements.iter().filter_map(|s| match &s.principals.of {
            Principals::Users(users) => Some(users),
            Principals::Everybody => None,
        });
        lists.flatten().map(String::as_str)
    }

    /// All users that are named as principals: no roles, and no sessions.
    pub fn users(&self) -> BTreeSet<&str> {
        self.named().filter(|name| !name.contains('/')).collect()
    }

    /// All roles that are named as principals, or whose sessions are.
    pub fn roles(&self) -> BTreeSet<&str> {
        self.named().filter_map(role_in).collect()
    }
}
