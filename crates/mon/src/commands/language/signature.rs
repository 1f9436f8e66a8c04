//! Signatures of commands: what the table says, what the `ceph` program is told, how arguments are typed.
//!
//! A signature is one line of words. A word with a colon is an argument `NAME[?][*]:TYPE[(LIMIT)]`: `?` marks
//! it optional, `*` as a list; the limit is the range `min..max` or `min..` of numbers, the alternatives of
//! `choice`, or the characters allowed in a `str`. All other words are the command's prefix.
//!
//! Typing is more lenient than the real monitor's on purpose: numbers may come as text and integers for reals,
//! and booleans as "true" (or as the flag itself, `--yes-i-really-mean-it`), because orchestrators send them so.

use serde_json::{Map, Value, json};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArgType {
    Int,
    Float,
    Str,
    Bool,
    Choice,
    Pool,
    Object,
    OsdName,
    Name,
    PgId,
    IpAddr,
    EntityAddr,
    Uuid,
}

impl ArgType {
    /// Word in signatures, name that the `ceph` program knows.
    const NAMES: [(ArgType, &'static str, &'static str); 13] = [
        (Self::Int, "int", "CephInt"),
        (Self::Float, "float", "CephFloat"),
        (Self::Str, "str", "CephString"),
        (Self::Bool, "bool", "CephBool"),
        (Self::Choice, "choice", "CephChoices"),
        (Self::Pool, "pool", "CephPoolname"),
        (Self::Object, "object", "CephObjectname"),
        (Self::OsdName, "osd", "CephOsdName"),
        (Self::Name, "name", "CephName"),
        (Self::PgId, "pgid", "CephPgid"),
        (Self::IpAddr, "ip", "CephIPAddr"),
        (Self::EntityAddr, "addr", "CephEntityAddr"),
        (Self::Uuid, "uuid", "CephUUID"),
    ];

    fn from_word(word: &str) -> Option<Self> {
        Self::NAMES
            .iter()
            .find(|(_, w, _)| *w == word)
            .map(|(t, _, _)| *t)
    }

    pub fn ceph_name(self) -> &'static str {
        Self::NAMES
            .iter()
            .find(|(t, _, _)| *t == self)
            .map_or("CephString", |(_, _, n)| *n)
    }
}

/// One argument of a signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arg {
    pub name: &'static str,
    pub kind: ArgType,
    pub optional: bool,
    pub list: bool,
    /// Empty: none.
    pub limit: &'static str,
}

/// The words of a prefix, in front of (and, for a few, among) the arguments.
pub fn prefix(sig: &str) -> String {
    let words: Vec<&str> = sig.split_whitespace().filter(|w| !w.contains(':')).collect();
    words.join(" ")
}

pub fn args(sig: &'static str) -> Vec<Arg> {
    sig.split_whitespace().filter_map(arg).collect()
}

fn arg(word: &'static str) -> Option<Arg> {
    let (name, kind) = word.split_once(':')?;
    let (kind, limit) = match kind.split_once('(') {
        Some((k, l)) => (k, l.strip_suffix(')').unwrap_or(l)),
        None => (kind, ""),
    };
    let (name, list) = match name.strip_suffix('*') {
        Some(n) => (n, true),
        None => (name, false),
    };
    let (name, optional) = match name.strip_suffix('?') {
        Some(n) => (n, true),
        None => (name, false),
    };
    Some(Arg {
        name,
        kind: ArgType::from_word(kind)?,
        optional,
        list,
        limit,
    })
}

/// The `sig` of a command description.
pub fn describe(sig: &'static str) -> Value {
    let one = |word: &'static str| match arg(word) {
        None => json!(word),
        Some(a) => describe_arg(&a),
    };
    Value::Array(sig.split_whitespace().map(one).collect())
}

fn describe_arg(a: &Arg) -> Value {
    let mut m = Map::new();
    m.insert("name".into(), a.name.into());
    m.insert("type".into(), a.kind.ceph_name().into());
    if !a.limit.is_empty() {
        let (key, text) = match a.kind {
            ArgType::Choice => ("strings", a.limit.to_string()),
            ArgType::Int | ArgType::Float => {
                let (min, max) = a.limit.split_once("..").unwrap_or((a.limit, ""));
                let max = if max.is_empty() {
                    String::new()
                } else {
                    format!("|{max}")
                };
                ("range", format!("{min}{max}"))
            }
            _ => ("goodchars", a.limit.to_string()),
        };
        m.insert(key.into(), text.into());
    }
    if a.list {
        m.insert("n".into(), "N".into());
    }
    if a.optional {
        m.insert("req".into(), "false".into());
    }
    Value::Object(m)
}

/// The value as the argument's type wants it, or None when it does not fit.
pub fn convert(a: &Arg, v: &Value) -> Option<Value> {
    if a.list {
        let items = v.as_array()?;
        let typed: Option<Vec<Value>> = items.iter().map(|v| scalar(a.kind, v)).collect();
        return typed.map(Value::Array);
    }
    scalar(a.kind, v)
}

fn scalar(kind: ArgType, v: &Value) -> Option<Value> {
    match kind {
        ArgType::Int => integer(v).map(Value::from),
        // `*` stands for all OSDs where the `ceph` program allows it.
        ArgType::OsdName => match v {
            Value::String(s) if s == "*" => Some(v.clone()),
            Value::String(s) => s
                .strip_prefix("osd.")
                .unwrap_or(s)
                .parse::<i64>()
                .ok()
                .map(Value::from),
            _ => integer(v).map(Value::from),
        },
        ArgType::Float => match v {
            Value::Number(n) => n.as_f64().map(Value::from),
            Value::String(s) => s
                .trim()
                .parse::<f64>()
                .ok()
                .filter(|f| f.is_finite())
                .map(Value::from),
            _ => None,
        },
        ArgType::Bool => match v {
            Value::Bool(_) => Some(v.clone()),
            Value::Number(n) => n.as_i64().map(|n| Value::Bool(n != 0)),
            Value::String(s) => boolean(s).map(Value::Bool),
            _ => None,
        },
        _ => v.is_string().then(|| v.clone()),
    }
}

fn integer(v: &Value) -> Option<i64> {
    match v {
        Value::Number(n) => n.as_i64(),
        Value::String(s) => s.trim().parse().ok(),
        _ => None,
    }
}

fn boolean(s: &str) -> Option<bool> {
    match s {
        "true" | "1" | "yes" => Some(true),
        "false" | "0" | "no" => Some(false),
        // Old clients send the flag itself.
        flag if flag.starts_with("--") => Some(true),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures() {
        let sig = "osd pool set pool:pool n?:int(0..5) what?*:choice(a|b) val:str([A-Za-z0-9-_.])";
        assert_eq!(prefix(sig), "osd pool set");
        assert_eq!(
            describe(sig),
            json!(["osd", "pool", "set",
                {"name": "pool", "type": "CephPoolname"},
                {"name": "n", "type": "CephInt", "range": "0|5", "req": "false"},
                {"name": "what", "type": "CephChoices", "strings": "a|b", "n": "N", "req": "false"},
                {"name": "val", "type": "CephString", "goodchars": "[A-Za-z0-9-_.]"}])
        );
    }

    #[test]
    fn typing() {
        let arg = |word| arg(word).unwrap();
        let check =
            |word, v: Value, want: Option<Value>| assert_eq!(convert(&arg(word), &v), want, "{word} {v}");
        check("n:int", json!("8"), Some(json!(8)));
        check("n:int", json!("abc"), None);
        check("n:int", json!(8.5), None);
        check("n:int", json!(true), None);
        check("s:str", json!(7), None);
        check("f:float", json!(1), Some(json!(1.0)));
        check("f:float", json!("0.5"), Some(json!(0.5)));
        check("b:bool", json!("--yes-i-really-mean-it"), Some(json!(true)));
        check("b:bool", json!("maybe"), None);
        check("ids*:str", json!("1"), None);
        check("ids*:str", json!([1]), None);
        check("ids*:str", json!(["1"]), Some(json!(["1"])));
        check("id:osd", json!("osd.3"), Some(json!(3)));
    }
}
