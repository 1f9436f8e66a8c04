//! From the text of a command to a typed [`Command`], and its arguments by name.
//!
//! Arguments are typed by the signatures of the table before a command runs; what a command then finds is
//! present and of the right type, or absent. Absent text counts as empty, as in the real monitor.

use crate::commands::command::{Command, Format, Outcome};
use crate::commands::language::{json_text, signature};
use crate::commands::spec::Spec;
use bytes::Bytes;
use serde_json::{Map, Value};
use types::Errno;

/// Keys that are not arguments of the command.
const TAKEN_OUT: [&str; 3] = ["prefix", "format", "target"];

/// The rows of a prefix; none: there is no such command.
pub type Rows = fn(&str) -> &'static [&'static Spec];

pub fn parse(cmd: &[String], inbuf: Bytes, rows: Rows) -> Result<Command, Outcome> {
    let refuse = |why: &str| Err(Outcome::error(Errno::EINVAL, why));
    if cmd.is_empty() {
        return refuse("no command specified");
    }
    let text = cmd.concat();
    let mut args = match json_text::parse_object(&text) {
        Ok(args) => args,
        Err(why) => return refuse(&why),
    };
    let prefix = match args.get("prefix") {
        Some(Value::String(p)) if p.is_empty() => return refuse("command prefix must not be empty"),
        Some(Value::String(p)) => p.clone(),
        Some(_) => return refuse("bad or missing field 'prefix'"),
        None => return refuse("command prefix not found"),
    };
    let specs = rows(&prefix);
    if specs.is_empty() {
        return refuse("command not known");
    }
    let format = Format::of(args.get("format").and_then(Value::as_str));
    args.retain(|k, _| !TAKEN_OUT.contains(&k.as_str()));
    type_arguments(specs, &mut args)?;
    Ok(Command {
        prefix,
        args,
        format,
        inbuf,
        told: false,
        found: None,
        done: None,
    })
}

/// What the signature does not name is left out: neither a command nor a capability's constraint shall see an argument
/// that the other does not know.
fn type_arguments(specs: &[&Spec], args: &mut Map<String, Value>) -> Result<(), Outcome> {
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
