//! JSON text as Ceph's formatter writes it.
//!
//! Compact: no spaces at all. Pretty: four spaces per level, `"key": value`, empty containers closed on the
//! same line (`{}`, `[]`), one newline at the end. Real numbers have up to 17 significant digits and no
//! trailing zeros, so a real that happens to be whole prints as an integer.

use serde_json::Value;

/// Deepest nesting that is written; deeper values become null (our own output never nests so deep).
const DEPTH_MAX: usize = 64;
const INDENT: &str = "    ";

pub fn compact(v: &Value) -> String {
    let mut out = String::new();
    write_value(&mut out, v, None, 0);
    out
}

/// On one line, with a blank behind each comma and colon, as modules of Ceph's manager print it. Real numbers that are whole
/// keep their `.0`.
pub fn spaced(v: &Value) -> String {
    match v {
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(spaced).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(map) => {
            let items = map
                .iter()
                .map(|(k, v)| format!("{}: {}", Value::from(k.as_str()), spaced(v)));
            format!("{{{}}}", items.collect::<Vec<_>>().join(", "))
        }
        other => other.to_string(),
    }
}

/// With the newline at the end.
pub fn pretty(v: &Value) -> String {
    let mut out = String::new();
    write_value(&mut out, v, Some(0), 0);
    out.push('\n');
    out
}

/// `indent` is the level of the container that `v` stands in, or None for compact text.
fn write_value(out: &mut String, v: &Value, indent: Option<usize>, depth: usize) {
    if depth > DEPTH_MAX {
        out.push_str("null");
        return;
    }
    match v {
        Value::Null => out.push_str("null"),
        Value::Bool(b) => out.push_str(if *b { "true" } else { "false" }),
        Value::Number(n) => match (n.as_u64(), n.as_i64(), n.as_f64()) {
            (Some(u), _, _) => out.push_str(&u.to_string()),
            (None, Some(i), _) => out.push_str(&i.to_string()),
            (None, None, f) => out.push_str(&real(f.unwrap_or(0.0))),
        },
        Value::String(s) => write_string(out, s),
        Value::Array(items) => {
            let each = |out: &mut String, v: &Value, inner| write_value(out, v, inner, depth + 1);
            write_items(out, ('[', ']'), items.iter(), indent, each);
        }
        Value::Object(map) => {
            let each = |out: &mut String, (k, v): (&String, &Value), inner: Option<usize>| {
                write_string(out, k);
                out.push_str(if inner.is_some() { ": " } else { ":" });
                write_value(out, v, inner, depth + 1);
            };
            write_items(out, ('{', '}'), map.iter(), indent, each);
        }
    }
}

fn write_items<T>(
    out: &mut String,
    (open, close): (char, char),
    items: impl ExactSizeIterator<Item = T>,
    indent: Option<usize>,
    mut each: impl FnMut(&mut String, T, Option<usize>),
) {
    out.push(open);
    let empty = items.len() == 0;
    let inner = indent.map(|i| i + 1);
    let line = |out: &mut String, level: Option<usize>| {
        if let Some(level) = level {
            out.push('\n');
            (0..level).for_each(|_| out.push_str(INDENT));
        }
    };
    for (i, item) in items.enumerate() {
        if i > 0 {
            out.push(',');
        }
        line(out, inner);
        each(out, item, inner);
    }
    if !empty {
        line(out, indent);
    }
    out.push(close);
}

fn write_string(out: &mut String, s: &str) {
    out.push('"');
    for c in s.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            c if (c as u32) < 0x20 || c as u32 == 0x7f => out.push_str(&format!("\\u{:04x}", c as u32)),
            c => out.push(c),
        }
    }
    out.push('"');
}

/// 17 significant digits, trailing zeros dropped; plain notation while the exponent is in -5..17.
pub fn real(v: f64) -> String {
    if !v.is_finite() {
        return "0".into();
    }
    significant(v, 17)
}

/// `v` with `digits` significant digits, as C's `%g`.
pub fn significant(v: f64, digits: usize) -> String {
    if v == 0.0 || !v.is_finite() {
        return "0".into();
    }
    let sci = format!("{:.*e}", digits - 1, v.abs());
    let (mantissa, exp) = sci.split_once('e').unwrap_or((&sci, "0"));
    let exp: i32 = exp.parse().unwrap_or(0);
    let all: String = mantissa.chars().filter(|c| *c != '.').collect();
    let kept = all.trim_end_matches('0');
    let sign = if v < 0.0 { "-" } else { "" };
    if exp < -4 || exp >= digits as i32 {
        let (head, tail) = kept.split_at(1);
        let dot = if tail.is_empty() { "" } else { "." };
        let esign = if exp < 0 { '-' } else { '+' };
        return format!("{sign}{head}{dot}{tail}e{esign}{:02}", exp.abs());
    }
    if exp < 0 {
        return format!("{sign}0.{}{kept}", "0".repeat((-exp - 1) as usize));
    }
    let whole = exp as usize + 1;
    if kept.len() <= whole {
        return format!("{sign}{kept}{}", "0".repeat(whole - kept.len()));
    }
    format!("{sign}{}.{}", &kept[..whole], &kept[whole..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn pretty_as_ceph_writes_it() {
        let check = |v: Value, want: &str| assert_eq!(pretty(&v), want);
        check(json!({"fsid": "d5dbf8c8"}), "{\n    \"fsid\": \"d5dbf8c8\"\n}\n");
        check(json!([]), "[]\n");
        check(
            json!({"a": {}, "b": [1, []]}),
            "{\n    \"a\": {},\n    \"b\": [\n        1,\n        []\n    ]\n}\n",
        );
    }

    #[test]
    fn reals() {
        let check = |v: f64, want: &str| assert_eq!(real(v), want);
        check(1.0, "1");
        check(0.0, "0");
        check(f64::from(0.95f32), "0.94999998807907104");
        check(0.0038909912109375, "0.0038909912109375");
        check(-2.5, "-2.5");
        check(1e-7, "9.9999999999999995e-08");
        check(1e20, "1e+20");
        check(12884901888.0, "12884901888");
        assert_eq!(significant(56.333333333, 6), "56.3333");
        assert_eq!(significant(0.923077, 6), "0.923077");
    }
}
