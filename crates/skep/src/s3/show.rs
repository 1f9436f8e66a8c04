//! What commands say: JSON, or a line for each thing.

use super::args::How;
use crate::options::Format;
use serde_json::Value;

pub fn show(how: &How, told: &Value) {
    if how.format == Format::Json {
        return println!("{told:#}");
    }
    match told {
        Value::Null => {}
        Value::Array(names) => names
            .iter()
            .for_each(|n| println!("{}", n.as_str().unwrap_or_default())),
        told => plain(told),
    }
}

/// A line for each thing that is said.
fn plain(told: &Value) {
    let Some(fields) = told.as_object() else { return };
    for (name, value) in fields {
        match value {
            Value::Array(items) if ["keys", "subusers", "swift_keys"].contains(&name.as_str()) => {
                items.iter().for_each(plain)
            }
            Value::Array(items) if name == "problems" => {
                let texts = items.iter().filter_map(Value::as_str);
                texts.for_each(|t| println!("problem       {t}"));
            }
            Value::Object(_) if name.ends_with("_quota") => println!("{name:<13} {value}"),
            Value::Object(_) => plain(value),
            Value::Number(n) => println!("{name:<18} {n}"),
            Value::Array(items) => {
                let names: Vec<&str> = items.iter().filter_map(Value::as_str).collect();
                println!("{name:<13} {}", names.join(" "));
            }
            value => println!("{name:<13} {}", value.as_str().unwrap_or_default()),
        }
    }
}
