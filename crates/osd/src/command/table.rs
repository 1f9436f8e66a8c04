//! What a row of the table of commands says, how arguments are checked by it, and how the `ceph` program is told of it.

use crate::asker::Asker;
use crate::osd::Osd;
use serde_json::{Map, Value, json};
use types::{Errno, PgId};

/// What a command that succeeds answers.
pub enum Told {
    /// A text is answered as it is, all else as JSON.
    Now(Value),
    /// With a line for people.
    Said(Value, String),
    /// The command goes on, and answers when it is over.
    Later,
}

impl From<Value> for Told {
    fn from(value: Value) -> Self {
        Self::Now(value)
    }
}

/// The error is the status line.
pub type Answer = Result<Told, (Errno, String)>;

/// The arguments of one command as they came; what is absent counts as empty text.
pub struct Args<'a> {
    pub of: &'a Map<String, Value>,
    pub asker: Asker,
}

impl Args<'_> {
    pub fn text(&self, name: &str) -> &str {
        self.of.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    pub fn int(&self, name: &str) -> Option<i64> {
        self.of.get(name).and_then(Value::as_i64)
    }

    /// Of one that may be repeated.
    pub fn list(&self, name: &str) -> Vec<&str> {
        match self.of.get(name) {
            Some(Value::Array(all)) => all.iter().filter_map(Value::as_str).collect(),
            Some(Value::String(one)) => vec![one.as_str()],
            _ => Vec::new(),
        }
    }

    pub fn pgid(&self) -> Result<PgId, (Errno, String)> {
        match self.text("pgid") {
            "" => Err((Errno::EINVAL, "no pgid specified".into())),
            text => text
                .parse()
                .map_err(|_| (Errno::EINVAL, format!("couldn't parse pgid '{text}'"))),
        }
    }
}

/// A word of the command, or an argument.
#[derive(Debug, Clone, Copy)]
pub enum Part {
    Word(&'static str),
    Arg {
        name: &'static str,
        /// As the `ceph` program calls it: `CephString`.
        kind: &'static str,
        /// The alternatives of `CephChoices`, parted by `|`; else empty.
        choices: &'static str,
        required: bool,
        repeated: bool,
    },
}

pub const fn word(word: &'static str) -> Part {
    Part::Word(word)
}

pub const fn arg(name: &'static str, kind: &'static str) -> Part {
    Part::Arg {
        name,
        kind,
        choices: "",
        required: true,
        repeated: false,
    }
}

pub const fn choice(name: &'static str, choices: &'static str) -> Part {
    Part::Arg {
        name,
        kind: "CephChoices",
        choices,
        required: true,
        repeated: false,
    }
}

/// What a session must be allowed for a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Right {
    /// `allow *`: as Ceph asks of everybody who tells an OSD something.
    All,
}

pub struct Spec {
    pub prefix: &'static str,
    /// Words and arguments in their order; none: the words of the prefix.
    pub parts: &'static [Part],
    pub right: Right,
    pub help: &'static str,
    pub run: fn(&mut Osd, &Args<'_>) -> Answer,
}

pub const fn spec(prefix: &'static str, help: &'static str, run: fn(&mut Osd, &Args<'_>) -> Answer) -> Spec {
    Spec {
        prefix,
        parts: &[],
        right: Right::All,
        help,
        run,
    }
}

impl Spec {
    pub const fn with(mut self, parts: &'static [Part]) -> Self {
        self.parts = parts;
        self
    }

    fn signature(&self) -> Value {
        if self.parts.is_empty() {
            return self.prefix.split(' ').collect();
        }
        self.parts.iter().map(Part::describe).collect()
    }

    /// As people type it, for the reference.
    #[cfg(test)]
    pub fn form(&self) -> String {
        if self.parts.is_empty() {
            return self.prefix.to_string();
        }
        let part = |p: &Part| match p {
            Part::Word(word) => word.to_string(),
            Part::Arg {
                name,
                choices,
                required,
                repeated,
                ..
            } => {
                let what = match choices.is_empty() {
                    true => name.to_uppercase(),
                    false => choices.replace('|', "\\|"),
                };
                let more = if *repeated { "*" } else { "" };
                let less = if *required { "" } else { "?" };
                format!("{what}{less}{more}")
            }
        };
        self.parts.iter().map(part).collect::<Vec<_>>().join(" ")
    }

    /// Whether the arguments are of this row's kinds, and all there that must be.
    pub fn fits(&self, args: &Map<String, Value>) -> bool {
        self.parts.iter().all(|p| p.fits(args))
    }
}

impl Part {
    pub const fn optional(self) -> Self {
        self.but(false, false)
    }

    pub const fn many(self) -> Self {
        self.but(true, true)
    }

    pub const fn any(self) -> Self {
        self.but(false, true)
    }

    const fn but(self, required: bool, repeated: bool) -> Self {
        match self {
            Self::Arg {
                name, kind, choices, ..
            } => Self::Arg {
                name,
                kind,
                choices,
                required,
                repeated,
            },
            word => word,
        }
    }

    fn fits(&self, args: &Map<String, Value>) -> bool {
        let Self::Arg {
            name,
            kind,
            choices,
            required,
            repeated,
        } = self
        else {
            return true;
        };
        let text = |v: &Value| v.is_string();
        match (args.get(*name), *kind) {
            (None, _) => !required,
            (Some(v), "CephInt") => v.is_i64(),
            (Some(v), "CephChoices") => v.as_str().is_some_and(|v| choices.split('|').any(|c| c == v)),
            (Some(Value::Array(all)), _) if *repeated => all.iter().all(text),
            (Some(v), _) => text(v),
        }
    }

    fn describe(&self) -> Value {
        let (name, kind, choices, required, repeated) = match self {
            Self::Word(word) => return json!(word),
            Self::Arg {
                name,
                kind,
                choices,
                required,
                repeated,
            } => (name, kind, choices, required, repeated),
        };
        let mut out = Map::new();
        let mut say = |key: &str, what: &str| drop(out.insert(key.into(), json!(what)));
        if *repeated {
            say("n", "N");
        }
        say("name", name);
        if !required {
            say("req", "false");
        }
        say("type", kind);
        if !choices.is_empty() {
            say("strings", choices);
        }
        Value::Object(out)
    }
}

/// The table in the form that the `ceph` program reads. It takes every command for one that reads.
pub fn descriptions<'a>(table: impl Iterator<Item = &'a Spec>) -> Value {
    let one = |(i, s): (usize, &Spec)| {
        let what = json!({"sig": s.signature(), "help": s.help, "module": "osd", "perm": "r", "flags": 0});
        (format!("cmd{i:03}"), what)
    };
    Value::Object(table.enumerate().map(one).collect())
}

/// What `help` answers; of rows with the same prefix the first is told.
pub fn help<'a>(table: impl Iterator<Item = &'a Spec>) -> Value {
    let mut out = Map::new();
    for s in table {
        out.entry(s.prefix).or_insert_with(|| json!(s.help));
    }
    Value::Object(out)
}
