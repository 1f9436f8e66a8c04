//! What a row of the table of commands says, and how the `ceph` program is told of it.

use crate::osd::Osd;
use serde_json::{Map, Value, json};
use types::Errno;

/// A text is answered as it is, all else as JSON. The error is the status line.
pub type Answer = Result<Value, (Errno, String)>;

/// The arguments of one command as they came; what is absent counts as empty text.
pub struct Args<'a>(pub &'a Map<String, Value>);

impl Args<'_> {
    pub fn text(&self, name: &str) -> &str {
        self.0.get(name).and_then(Value::as_str).unwrap_or_default()
    }
}

/// A word of the command, or an argument.
pub enum Part {
    Word(&'static str),
    Arg {
        name: &'static str,
        /// As the `ceph` program calls it: `CephString`.
        kind: &'static str,
        /// The alternatives of `CephChoices`, parted by `|`; else empty.
        choices: &'static str,
        required: bool,
    },
}

pub const fn arg(name: &'static str, kind: &'static str) -> Part {
    Part::Arg {
        name,
        kind,
        choices: "",
        required: true,
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
    /// False for another name of a command that is listed.
    pub listed: bool,
    pub run: fn(&mut Osd, &Args<'_>) -> Answer,
}

pub const fn spec(prefix: &'static str, help: &'static str, run: fn(&mut Osd, &Args<'_>) -> Answer) -> Spec {
    Spec {
        prefix,
        parts: &[],
        right: Right::All,
        help,
        listed: true,
        run,
    }
}

impl Spec {
    pub const fn with(mut self, parts: &'static [Part]) -> Self {
        self.parts = parts;
        self
    }

    pub const fn unlisted(mut self) -> Self {
        self.listed = false;
        self
    }

    fn signature(&self) -> Value {
        if self.parts.is_empty() {
            return self.prefix.split(' ').collect();
        }
        self.parts.iter().map(Part::describe).collect()
    }
}

impl Part {
    pub const fn optional(self) -> Self {
        match self {
            Self::Arg {
                name, kind, choices, ..
            } => Self::Arg {
                name,
                kind,
                choices,
                required: false,
            },
            word => word,
        }
    }

    fn describe(&self) -> Value {
        match self {
            Self::Word(word) => json!(word),
            Self::Arg {
                name,
                kind,
                choices,
                required,
            } => {
                let mut out = Map::new();
                out.insert("name".into(), json!(name));
                if !required {
                    out.insert("req".into(), json!("false"));
                }
                out.insert("type".into(), json!(kind));
                if !choices.is_empty() {
                    out.insert("strings".into(), json!(choices));
                }
                Value::Object(out)
            }
        }
    }
}

/// The table in the form that the `ceph` program reads. It takes every command for one that reads.
pub fn descriptions(table: &[Spec]) -> Value {
    let listed = table.iter().filter(|s| s.listed).enumerate();
    let one = |(i, s): (usize, &Spec)| {
        let what = json!({"sig": s.signature(), "help": s.help, "module": "osd", "perm": "r", "flags": 0});
        (format!("cmd{i:03}"), what)
    };
    Value::Object(listed.map(one).collect())
}

/// What `help` answers.
pub fn help(table: &[Spec]) -> Value {
    let listed = table.iter().filter(|s| s.listed);
    Value::Object(listed.map(|s| (s.prefix.to_string(), json!(s.help))).collect())
}
