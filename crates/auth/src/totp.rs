//! One-time codes by the time, of six digits, with SHA-1 (RFC 6238), and their seeds as people type them. Class `otp` of
//! OSDs asks.

use aws_lc_rs::{constant_time, hmac};
use std::ops::RangeInclusive;

/// Steps to either side that are looked at, whatever was asked for: each costs a microsecond.
const WINDOW_MAX: u32 = 1000;

/// Hexadecimal digits in either case.
pub fn hex(text: &[u8]) -> Option<Vec<u8>> {
    let digit = |c: u8| char::from(c).to_digit(16);
    let (pairs, rest) = text.as_chunks::<2>();
    let bytes = pairs
        .iter()
        .map(|[a, b]| Some((digit(*a)? * 16 + digit(*b)?) as u8));
    rest.is_empty().then(|| bytes.collect())?
}

/// In either case, with spaces, with or without `=` at the end. Bits behind the last whole byte count for nothing.
pub fn base32(text: &[u8]) -> Option<Vec<u8>> {
    let text: Vec<u8> = text.iter().copied().filter(|c| *c != b' ').collect();
    let end = text.iter().rposition(|c| *c != b'=').map_or(0, |at| at + 1);
    // So many digits are no number of bytes.
    if matches!(end % 8, 1 | 3 | 6) {
        return None;
    }
    let (mut out, mut held, mut bits) = (Vec::new(), 0u32, 0);
    for c in &text[..end] {
        let value = match c.to_ascii_uppercase() {
            c @ b'A'..=b'Z' => c - b'A',
            c @ b'2'..=b'7' => c - b'2' + 26,
            _ => return None,
        };
        held = (held << 5 | u32::from(value)) & 0xfff;
        bits += 5;
        if bits >= 8 {
            bits -= 8;
            out.push((held >> bits) as u8);
        }
    }
    Some(out)
}

/// Steps around the present one, those behind `last` alone.
pub fn around(present: i64, window: u32, last: u64) -> RangeInclusive<u64> {
    let window = i64::from(window.min(WINDOW_MAX));
    let from = u64::try_from(present - window).unwrap_or(0);
    let to = u64::try_from(present + window).unwrap_or(0);
    from.max(last.saturating_add(1))..=to
}

/// The step whose code this is.
pub fn step_of(secret: &[u8], code: &[u8], mut steps: RangeInclusive<u64>) -> Option<u64> {
    let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, secret);
    steps.find(|step| constant_time::verify_slices_are_equal(&digits(&key, *step), code).is_ok())
}

fn digits(key: &hmac::Key, step: u64) -> [u8; 6] {
    let tag = hmac::sign(key, &step.to_be_bytes());
    let tag = tag.as_ref();
    let at = usize::from(tag[tag.len() - 1] & 15);
    let four = [tag[at] & 0x7f, tag[at + 1], tag[at + 2], tag[at + 3]];
    let mut number = u32::from_be_bytes(four);
    let mut out = [0; 6];
    for digit in out.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Appendix B of RFC 6238, the last six of its eight digits.
    #[test]
    fn codes_of_the_rfc() {
        let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, b"12345678901234567890");
        for (time, code) in [
            (59, b"287082"),
            (1_111_111_109, b"081804"),
            (1_111_111_111, b"050471"),
            (20_000_000_000, b"353130"),
        ] {
            assert_eq!(&digits(&key, time / 30), code, "{time}");
        }
    }

    #[test]
    fn no_step_of_before_the_last_and_none_before_time() {
        assert_eq!(around(10, 2, 0), 8..=12);
        assert_eq!(around(10, 2, 10), 11..=12);
        assert!(around(10, 2, 12).is_empty());
        assert!(around(10, 2, u64::MAX).is_empty());
        assert!(around(-10, 2, 0).is_empty());
        assert_eq!(around(5000, u32::MAX, 0), 4000..=6000);
    }
}
