//! From the text of a command to a typed [`Command`], and its arguments by name.
//!
//! Arguments are typed by the signatures of the table before a command runs; what a command then finds is
//! present and of the right type, or absent. Absent text counts as empty, as in the real monitor.

use super::{Command, Format, Outcome, signature, table};
use crate::format;
use bytes::Bytes;
use serde_json::{Map, Value};
use types::Errno;

/// Keys that are not arguments of the command.
const TAKEN_OUT: [&str; 3] = ["prefix", "format", "target"];

pub fn parse(cmd: &[String], inbuf: Bytes) -> Result<Command, Outcome> {
    let refuse = |why: &str| Err(Outcome::error(Errno::EINVAL, why));
    if cmd.is_empty() {
        return refuse("no command specified");
    }
    let text = cmd.concat();
    let mut args = match super::json_text::parse_object(&text) {
        Ok(args) => args,
        Err(why) => return refuse(&why),
    };
    let prefix = match args.get("prefix") {
        Some(Value::String(p)) if p.is_empty() => return refuse("command prefix must not be empty"),
        Some(Value::String(p)) => p.clone(),
        Some(_) => return refuse("bad or missing field 'prefix'"),
        None => return refuse("command prefix not found"),
    };
    if table::find(&prefix).is_none() {
        return refuse("command not known");
    }
    let format = format_of(args.get("format"));
    args.retain(|k, _| !TAKEN_OUT.contains(&k.as_str()));
    type_arguments(&prefix, &mut args)?;
    Ok(Command {
        prefix,
        args,
        format,
        inbuf,
    })
}

fn format_of(v: Option<&Value>) -> Format {
    match v.and_then(Value::as_str) {
        Some("json") => Format::Json,
        Some("json-pretty" | "") => Format::JsonPretty,
        Some("xml") => Format::Xml,
        Some("xml-pretty") => Format::XmlPretty,
        _ => Format::Plain,
    }
}

/// What the signature does not name is left out: neither a command nor a capability's constraint shall see an argument
/// that the other does not know.
fn type_arguments(prefix: &str, args: &mut Map<String, Value>) -> Result<(), Outcome> {
    let specs = table::all_named(prefix);
    let named = |name: &str| {
        specs
            .iter()
            .flat_map(|s| signature::args(s.sig))
            .any(|a| a.name == name)
    };
    args.retain(|name, _| named(name));
    for spec in specs {
        for arg in signature::args(spec.sig) {
            let Some(v) = args.get(arg.name) else { continue };
            let Some(typed) = signature::convert(&arg, v) else {
                let why = format!("bad or missing field '{}'", arg.name);
                return Err(Outcome::error(Errno::EINVAL, why));
            };
            args.insert(arg.name.to_string(), typed);
        }
    }
    Ok(())
}

impl Command {
    /// Text argument; "" when it is absent.
    pub(super) fn text(&self, name: &str) -> &str {
        self.args.get(name).and_then(Value::as_str).unwrap_or("")
    }

    pub(super) fn opt_text(&self, name: &str) -> Option<&str> {
        self.args
            .get(name)
            .and_then(Value::as_str)
            .filter(|s| !s.is_empty())
    }

    pub(super) fn int(&self, name: &str) -> Option<i64> {
        self.args.get(name).and_then(Value::as_i64)
    }

    pub(super) fn real(&self, name: &str) -> Option<f64> {
        self.args.get(name).and_then(Value::as_f64)
    }

    pub(super) fn flag(&self, name: &str) -> bool {
        self.args.get(name).and_then(Value::as_bool).unwrap_or(false)
    }

    pub(super) fn list(&self, name: &str) -> Vec<&str> {
        let items = self.args.get(name).and_then(Value::as_array);
        items.map_or_else(Vec::new, |l| l.iter().filter_map(Value::as_str).collect())
    }

    pub(super) fn wants_json(&self) -> bool {
        self.format != Format::Plain
    }

    /// JSON in the wanted form; pretty when plain was wanted (for commands without a plain form).
    pub(super) fn json(&self, v: &Value) -> Outcome {
        Outcome::ok(match self.format {
            Format::Json => format::compact(v),
            _ => format::pretty(v),
        })
    }

    /// JSON if it is wanted, else the plain text.
    pub(super) fn either(&self, v: impl FnOnce() -> Value, plain: impl FnOnce() -> String) -> Outcome {
        if self.wants_json() {
            self.json(&v())
        } else {
            Outcome::ok(plain())
        }
    }
}

impl Outcome {
    pub(super) fn saying(mut self, status: impl Into<String>) -> Self {
        self.status = status.into();
        self
    }

    pub(super) fn invalid(status: impl Into<String>) -> Self {
        Self::error(Errno::EINVAL, status)
    }

    pub(super) fn absent(status: impl Into<String>) -> Self {
        Self::error(Errno::ENOENT, status)
    }

    /// For what the real one does and this one does not, yet.
    pub(super) fn not_built(what: &str) -> Self {
        Self::error(Errno::EOPNOTSUPP, format!("{what} is not built in skep yet"))
    }
}

/// `items`, each followed by a newline.
pub fn lines(items: impl IntoIterator<Item = impl std::fmt::Display>) -> String {
    items.into_iter().map(|i| format!("{i}\n")).collect()
}
