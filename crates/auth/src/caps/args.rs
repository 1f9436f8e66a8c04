//! Constraints on a command's arguments, as monitor and manager grants have them:
//! `key=value`, `key prefix value`, `key regex value`.

use super::cursor::Cursor;
use regex::Regex;
use std::collections::BTreeMap;
use types::EntityAddr;

#[derive(Debug, Clone)]
pub(super) enum Constraint {
    Equal(String),
    Prefix(String),
    /// `None`: the expression does not compile, so nothing matches.
    Regex(Option<Box<Regex>>),
    /// Not given, or empty.
    Absent,
    /// One running client: see [`EntityAddr::is_client`].
    Client,
}

/// Compiled size of one expression, in bytes.
const REGEX_SIZE_MAX: usize = 256 << 10;

impl Constraint {
    /// An expression must match the whole value.
    pub fn regex(text: &str) -> Self {
        let built = regex::RegexBuilder::new(&format!("^(?:{text})$"))
            .size_limit(REGEX_SIZE_MAX)
            .build();
        Self::Regex(built.ok().map(Box::new))
    }

    pub fn accepts(&self, value: &str) -> bool {
        match self {
            Self::Equal(v) => v == value,
            Self::Prefix(p) => value.starts_with(p.as_str()),
            Self::Regex(r) => r.as_ref().is_some_and(|r| r.is_match(value)),
            Self::Absent => value.is_empty(),
            Self::Client => EntityAddr::from_text(value).is_some_and(|a| a.is_client()),
        }
    }
}

pub(super) type Constraints = BTreeMap<String, Constraint>;

/// One `key op value`.
fn pair(c: &mut Cursor) -> Option<(String, Constraint)> {
    c.attempt(|c| {
        let key = c.string()?;
        if c.lit("=").is_some() {
            return Some((key, Constraint::Equal(c.string()?)));
        }
        if c.keyword("prefix").is_some() {
            c.gap()?;
            return Some((key, Constraint::Prefix(c.string()?)));
        }
        c.keyword("regex")?;
        c.gap()?;
        Some((key, Constraint::regex(&c.string()?)))
    })
}

/// One or more pairs, each after a blank.
pub(super) fn pairs(c: &mut Cursor) -> Option<Constraints> {
    c.attempt(|c| {
        let mut out = Constraints::new();
        while let Some((k, v)) = c.attempt(|c| {
            c.gap()?;
            pair(c)
        }) {
            out.insert(k, v);
        }
        (!out.is_empty()).then_some(out)
    })
}

/// `with` and pairs; without the word, no constraints.
pub(super) fn with_pairs(c: &mut Cursor) -> Constraints {
    c.attempt(|c| {
        c.keyword("with")?;
        pairs(c)
    })
    .unwrap_or_default()
}

/// Every constrained argument is given and accepted.
pub(super) fn accept(constraints: &Constraints, args: &BTreeMap<String, String>) -> bool {
    constraints.iter().all(|(k, c)| match args.get(k) {
        Some(v) => c.accepts(v),
        None => matches!(c, Constraint::Absent),
    })
}
