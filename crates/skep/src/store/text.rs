//! How figures, names and tables look.

use serde_json::{Map, Value};
use std::io::Write;

/// `512 B`, `3.2 GiB`.
pub fn bytes(n: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if n < 1024 {
        return format!("{n} B");
    }
    let mut value = n as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// `1 object`, `2 objects`.
pub fn count(n: u64, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

pub fn hex(data: &[u8]) -> String {
    data.iter().map(|b| format!("{b:02x}")).collect()
}

/// For one line of a terminal: text as it is, anything else in hex.
pub fn value(data: &[u8]) -> String {
    match std::str::from_utf8(data) {
        Ok(s) if !s.chars().any(char::is_control) => s.to_owned(),
        _ => format!("0x{}", hex(data)),
    }
}

/// Adds `key` with the text of `data`; where it is not UTF-8, `key_hex` instead.
pub fn put(map: &mut Map<String, Value>, key: &str, data: &[u8]) {
    match std::str::from_utf8(data) {
        Ok(s) => map.insert(key.to_owned(), s.into()),
        Err(_) => map.insert(format!("{key}_hex"), hex(data).into()),
    };
}

/// Columns as wide as their widest cell; those named by `left` to the left, figures to the right.
pub fn table(out: &mut impl Write, left: &[usize], rows: &[Vec<String>]) -> std::io::Result<()> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |c: usize| {
        rows.iter()
            .filter_map(|r| r.get(c))
            .map(|s| s.chars().count())
            .max()
    };
    let widths: Vec<usize> = (0..columns).map(|c| width(c).unwrap_or(0)).collect();
    for row in rows {
        let mut line = String::new();
        for (c, cell) in row.iter().enumerate() {
            let gap = if c == 0 { "" } else { "  " };
            let pad = widths[c] - cell.chars().count();
            match left.contains(&c) {
                true => line += &format!("{gap}{cell}{:pad$}", ""),
                false => line += &format!("{gap}{:pad$}{cell}", ""),
            }
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_for_people() {
        for (n, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1 << 20, "1.0 MiB"),
            ((1 << 20) - 1, "1.0 MiB"),
            (3435973837, "3.2 GiB"),
            (u64::MAX, "16.0 EiB"),
        ] {
            assert_eq!(bytes(n), text);
        }
    }

    #[test]
    fn tables_are_aligned() {
        let row = |a: &str, b: &str, c: &str| vec![a.to_string(), b.to_string(), c.to_string()];
        let mut out = Vec::new();
        table(&mut out, &[0], &[row("pool", "n", "x"), row("1", "1000", "2")]).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "pool     n  x\n1     1000  2\n");
    }

    #[test]
    fn values_for_people() {
        assert_eq!(value("grün".as_bytes()), "grün");
        assert_eq!(value(b"a\0"), "0x6100");
        let mut map = Map::new();
        put(&mut map, "name", b"\xff");
        put(&mut map, "key", b"k");
        assert_eq!(Value::Object(map).to_string(), r#"{"name_hex":"ff","key":"k"}"#);
    }
}
