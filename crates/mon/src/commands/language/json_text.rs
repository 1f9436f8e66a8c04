//! The lenient JSON of commands (docs/protocol/ceph/02-monitor.md, 8.2).
//!
//! One flat object of strings, numbers, booleans and arrays of strings or numbers. Accepted beyond JSON: a
//! comma before the closing brace, and anything after it (`rbd perf image iostat` really sends a stray quote).
//! Refused with the words of the real monitor: null and objects as values, mixed arrays, other JSON.
//!
//! Bounds: [`TEXT_BYTES_MAX`] of text; nesting is refused, so the depth is at most [`DEPTH_MAX`].

use serde_json::{Map, Number, Value};

/// The longest command text.
pub const TEXT_BYTES_MAX: usize = 1 << 20;
/// Nested containers are only skipped over to report them; deeper ones are "unparseable".
const DEPTH_MAX: usize = 64;

/// Parses the object; the error is the status line of the answer.
pub fn parse_object(text: &str) -> Result<Map<String, Value>, String> {
    let unparseable = || format!("unparseable JSON {text}");
    if text.len() > TEXT_BYTES_MAX {
        return Err("command text is too long".into());
    }
    let mut p = Parser {
        rest: text.as_bytes(),
    };
    p.skip_space();
    if p.rest.first() != Some(&b'{') {
        return match p.value(0) {
            Some(_) => Err(format!("not JSON object {text}")),
            None => Err(unparseable()),
        };
    }
    let Some(Value::Object(map)) = p.value(0) else {
        return Err(unparseable());
    };
    for v in map.values() {
        check_value(v, text)?;
    }
    Ok(map)
}

fn check_value(v: &Value, text: &str) -> Result<(), String> {
    match v {
        Value::Null | Value::Object(_) => Err(format!("JSON array/object not allowed {text}")),
        Value::Array(items) => {
            let kind = |v: &Value| match v {
                Value::String(_) => Some(2),
                Value::Number(n) if n.is_f64() => Some(5),
                Value::Number(_) => Some(4),
                _ => None,
            };
            let Some(first) = items.first() else { return Ok(()) };
            let Some(want) = kind(first) else {
                return Err("Can't handle arrays of types other than int, string, or double".into());
            };
            match items.iter().map(|v| kind(v).unwrap_or(0)).find(|k| *k != want) {
                Some(other) => Err(format!("value type is {other} not {want}")),
                None => Ok(()),
            }
        }
        _ => Ok(()),
    }
}

struct Parser<'a> {
    rest: &'a [u8],
}

impl Parser<'_> {
    fn skip_space(&mut self) {
        self.rest = self.rest.trim_ascii_start();
    }

    fn take(&mut self) -> Option<u8> {
        let (b, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*b)
    }

    fn eat(&mut self, b: u8) -> bool {
        self.skip_space();
        let found = self.rest.first() == Some(&b);
        if found {
            self.rest = &self.rest[1..];
        }
        found
    }

    fn word(&mut self, word: &str, v: Value) -> Option<Value> {
        self.rest = self.rest.strip_prefix(word.as_bytes())?;
        Some(v)
    }

    fn value(&mut self, depth: usize) -> Option<Value> {
        if depth > DEPTH_MAX {
            return None;
        }
        self.skip_space();
        match self.rest.first()? {
            b'{' => self.object(depth),
            b'[' => self.array(depth),
            b'"' => self.string().map(Value::String),
            b't' => self.word("true", Value::Bool(true)),
            b'f' => self.word("false", Value::Bool(false)),
            b'n' => self.word("null", Value::Null),
            _ => self.number(),
        }
    }

    fn object(&mut self, depth: usize) -> Option<Value> {
        let mut map = Map::new();
        self.take();
        loop {
            if self.eat(b'}') {
                return Some(Value::Object(map));
            }
            self.skip_space();
            let key = self.string()?;
            if !self.eat(b':') {
                return None;
            }
            let v = self.value(depth + 1)?;
            map.insert(key, v);
            if !self.eat(b',') {
                return self.eat(b'}').then_some(Value::Object(map));
            }
        }
    }

    fn array(&mut self, depth: usize) -> Option<Value> {
        let mut items = Vec::new();
        self.take();
        loop {
            if self.eat(b']') {
                return Some(Value::Array(items));
            }
            items.push(self.value(depth + 1)?);
            if !self.eat(b',') {
                return self.eat(b']').then_some(Value::Array(items));
            }
        }
    }

    fn string(&mut self) -> Option<String> {
        if self.take()? != b'"' {
            return None;
        }
        let mut out = Vec::new();
        loop {
            match self.take()? {
                b'"' => return String::from_utf8(out).ok(),
                b'\\' => {
                    let c = self.escape()?;
                    out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                }
                b => out.push(b),
            }
        }
    }

    fn escape(&mut self) -> Option<char> {
        Some(match self.take()? {
            b'n' => '\n',
            b't' => '\t',
            b'r' => '\r',
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'u' => {
                let high = self.hex4()?;
                if !(0xd800..0xdc00).contains(&high) {
                    return char::from_u32(high);
                }
                self.rest = self.rest.strip_prefix(b"\\u")?;
                let low = self.hex4()?;
                let low = low.checked_sub(0xdc00).filter(|l| *l < 0x400)?;
                return char::from_u32(0x10000 + ((high - 0xd800) << 10) + low);
            }
            b @ (b'"' | b'\\' | b'/') => b as char,
            _ => return None,
        })
    }

    fn hex4(&mut self) -> Option<u32> {
        let (digits, rest) = self.rest.split_at_checked(4)?;
        self.rest = rest;
        u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
    }

    fn number(&mut self) -> Option<Value> {
        let n = self
            .rest
            .iter()
            .take_while(|b| b.is_ascii_digit() || matches!(b, b'-' | b'+' | b'.' | b'e' | b'E'))
            .count();
        let (text, rest) = self.rest.split_at(n);
        let text = std::str::from_utf8(text).ok()?;
        self.rest = rest;
        if let Ok(i) = text.parse::<i64>() {
            return Some(i.into());
        }
        if let Ok(u) = text.parse::<u64>() {
            return Some(u.into());
        }
        let f: f64 = text.parse().ok()?;
        Some(Value::Number(Number::from_f64(f)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lenient_where_the_real_one_is() {
        for text in [
            r#"{"prefix":"fsid"}"#,
            r#"{"prefix":"fsid"} trailing garbage"#,
            r#"{"prefix":"fsid"}""#,
            "  {\n\"prefix\" : \"fsid\" , }",
        ] {
            let map = parse_object(text).unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!(map["prefix"], "fsid");
        }
        let map = parse_object(r#"{"a":"\u00e4\"\\\ud83d\ude00","w":1.0,"i":-5}"#).unwrap();
        assert_eq!(map["a"], "ä\"\\😀");
        assert!(map["w"].is_f64());
        assert_eq!(map["i"], -5);
    }

    #[test]
    fn refusals() {
        let check = |text: &str, want: &str| assert_eq!(parse_object(text).unwrap_err(), want);
        check("", "unparseable JSON ");
        check("foo", "unparseable JSON foo");
        check("{", "unparseable JSON {");
        check("5", "not JSON object 5");
        check("[]", "not JSON object []");
        check(r#"{"a":null}"#, r#"JSON array/object not allowed {"a":null}"#);
        check(
            r#"{"a":{"b":1}}"#,
            r#"JSON array/object not allowed {"a":{"b":1}}"#,
        );
        check(
            r#"{"a":[[1]]}"#,
            "Can't handle arrays of types other than int, string, or double",
        );
        check(r#"{"a":[1,"a"]}"#, "value type is 2 not 4");
        check(
            &"[".repeat(1000),
            &format!("unparseable JSON {}", "[".repeat(1000)),
        );
    }
}
