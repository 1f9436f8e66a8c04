//! Class `numops`: arithmetic on numbers kept as decimal text in omap values (docs/protocol/ceph/05-rbd.md, section 8).

use crate::context::Result;
use crate::input::Input;
use crate::method::Method;
use crate::object::{Object, done};
use bytes::Bytes;
use types::Errno;

pub const METHODS: &[Method] = &[Method::rw("add", add), Method::rw("mul", mul)];

/// Digits that a stored number keeps.
const SIGNIFICANT: usize = 10;

fn add(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    apply(object, input, |a, b| a + b)
}

fn mul(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    apply(object, input, |a, b| a * b)
}

fn apply(object: &mut Object<'_>, input: &mut Input, op: fn(f64, f64) -> f64) -> Result<Bytes> {
    let (key, operand): (Bytes, Bytes) = input.get()?;
    let operand = parse(&operand).ok_or(Errno::EINVAL)?;
    let value = match object.raw(&key)? {
        Some(text) => parse(&text).ok_or(Errno::EBADMSG)?,
        None => 0.0,
    };
    object.set_raw(&key, format_number(op(value, operand)).into())?;
    done()
}

/// As C's `strtod` reads it, with nothing behind: white space in front, a sign, decimal or hexadecimal, `inf`,
/// `nan`. No text at all is 0.
fn parse(text: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(text).ok()?;
    if text.is_empty() {
        return Some(0.0);
    }
    let text = text.trim_ascii_start();
    let (sign, digits) = match text.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, text.strip_prefix('+').unwrap_or(text)),
    };
    match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(hex) if hex.starts_with(|c: char| c.is_ascii_hexdigit()) => {
            Some(sign * u64::from_str_radix(hex, 16).ok()? as f64)
        }
        Some(_) => None,
        None => text.parse().ok(),
    }
}

/// As C prints it with `%.10g`: plain from 1e-4 up to ten digits, else with an exponent; no trailing zeros.
fn format_number(v: f64) -> String {
    if !v.is_finite() {
        return if v.is_nan() {
            "nan".into()
        } else if v > 0.0 {
            "inf".into()
        } else {
            "-inf".into()
        };
    }
    let scientific = format!("{:.*e}", SIGNIFICANT - 1, v);
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..SIGNIFICANT as i32).contains(&exponent) {
        let decimals = (SIGNIFICANT as i32 - 1 - exponent).max(0) as usize;
        trimmed(&format!("{v:.decimals$}")).to_string()
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        format!("{}e{sign}{:02}", trimmed(mantissa), exponent.abs())
    }
}

/// Without the zeros that end a fraction.
fn trimmed(text: &str) -> &str {
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.')
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_print_as_c_prints_them() {
        for (v, text) in [
            (0.0, "0"),
            (15.0, "15"),
            (7.5, "7.5"),
            (-2.25, "-2.25"),
            (0.1 + 0.2, "0.3"),
            (1e9, "1000000000"),
            (1e10, "1e+10"),
            (12_345_678_912.0, "1.234567891e+10"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (1e-120, "1e-120"),
            (f64::INFINITY, "inf"),
        ] {
            assert_eq!(format_number(v), text);
        }
    }
}
