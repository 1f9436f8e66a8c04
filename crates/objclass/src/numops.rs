//! Class `numops`: arithmetic on numbers kept as decimal text in omap values (docs/protocol/ceph/05-rbd.md, section 8).

use crate::context::Result;
use crate::input::Input;
use crate::method::Method;
use crate::object::{Object, done};
use bytes::Bytes;
use types::Errno;

pub const METHODS: &[Method] = &[Method::rw("add", add), Method::rw("mul", mul)];

/// Largest power of two that is read: beyond it lies what no text of a size that fits a message balances.
const POWER_MAX: i64 = 1 << 40;

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
/// `nan`. No text at all is 0. A zero byte ends the text.
fn parse(text: &[u8]) -> Option<f64> {
    let end = text.iter().position(|b| *b == 0).unwrap_or(text.len());
    let text = std::str::from_utf8(&text[..end]).ok()?;
    if text.is_empty() {
        return Some(0.0);
    }
    let text = text.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == '\x0b');
    let (sign, digits) = match text.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, text.strip_prefix('+').unwrap_or(text)),
    };
    match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(hex) => Some(sign * parse_hex(hex)?),
        None if is_nan(digits) => Some(f64::NAN),
        // Of two signs `parse` would take the second.
        None if digits.starts_with(['+', '-']) => None,
        None => text.parse().ok(),
    }
}

/// `nan`, and `nan(` with letters, digits and `_` in front of `)`.
fn is_nan(text: &str) -> bool {
    let Some((nan, rest)) = text.split_at_checked(3) else {
        return false;
    };
    let tag = rest.strip_prefix('(').and_then(|r| r.strip_suffix(')'));
    let plain = |tag: &str| tag.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    nan.eq_ignore_ascii_case("nan") && (rest.is_empty() || tag.is_some_and(plain))
}

/// Behind `0x`: digits with a point or without, and a power of two.
fn parse_hex(text: &str) -> Option<f64> {
    let (digits, power) = match text.split_once(['p', 'P']) {
        Some((digits, power)) => (digits, parse_power(power)?),
        None => (text, 0),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.len() + fraction.len() == 0 {
        return None;
    }
    // 60 bits and whether anything behind them was not 0: enough to round as if all were there.
    let (mut bits, mut exponent, mut lost) = (0u64, power, false);
    for (i, c) in whole.chars().chain(fraction.chars()).enumerate() {
        let digit = u64::from(c.to_digit(16)?);
        let behind_point = i >= whole.len();
        if bits >> 56 == 0 {
            bits = bits << 4 | digit;
            exponent -= if behind_point { 4 } else { 0 };
        } else {
            lost |= digit != 0;
            exponent += if behind_point { 0 } else { 4 };
        }
    }
    Some(scaled((bits << 1 | u64::from(lost)) as f64, exponent - 1))
}

/// A decimal exponent; one that no number needs is cut, so that sums stay in range.
fn parse_power(text: &str) -> Option<i64> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let value = digits.parse::<i64>().unwrap_or(POWER_MAX).min(POWER_MAX);
    Some(if text.starts_with('-') { -value } else { value })
}

/// Times two to the power, in steps that a factor can say.
fn scaled(mut v: f64, mut power: i64) -> f64 {
    const STEP: i64 = 1000;
    while power != 0 && v != 0.0 && v.is_finite() {
        let step = power.clamp(-STEP, STEP);
        v *= 2f64.powi(step as i32);
        power -= step;
    }
    v
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
    fn numbers_are_read_as_c_reads_them() {
        for (text, v) in [
            ("", 0.0),
            ("0x1.8p1", 3.0),
            ("-0X1.8P+1", -3.0),
            ("0x.8", 0.5),
            ("0x1.", 1.0),
            ("0x1p-2", 0.25),
            ("0x123456789abcdef123456789", 5.63400266768102e27),
            ("0x1.fffffffffffff8p0", 2.0),
            ("0x1.00000000000008p0", 1.0),
            ("0x1.000000000000080001p0", 1.0 + f64::EPSILON),
            ("0x1p99999", f64::INFINITY),
            ("0x1p-99999999999999999999999", 0.0),
            ("0x1p-1074", 5e-324),
            ("1e400", f64::INFINITY),
            ("InFinity", f64::INFINITY),
            (" \t\n\x0b\x0c\r+5", 5.0),
            ("5\0x", 5.0),
            (".5", 0.5),
            ("1.", 1.0),
        ] {
            assert_eq!(parse(text.as_bytes()), Some(v), "{text:?}");
        }
        for text in ["nan", "-NaN", "nan(1_a)"] {
            assert!(parse(text.as_bytes()).is_some_and(f64::is_nan), "{text}");
        }
        for text in [
            "0x", "0x.", "0x1p", "0x1p+", "0x1.8p1 ", "0x1g", "0x1.2.3", "nan(", "nan(-)", "nanx", "1e", ".",
            "-", "+-5", " ", "1_0", "1d5",
        ] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
    }

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
