//! Times between S3's type and ours.

use crate::calendar::civil;
use s3s::dto::{Timestamp, TimestampFormat};
use std::time::{Duration, UNIX_EPOCH};

/// The year 10000: no date of HTTP, and none of the library's.
pub const DATES_END: u64 = 253_402_300_800_000;

/// The last moment of 9999 for what is later.
pub fn timestamp(ms: u64) -> Timestamp {
    (UNIX_EPOCH + Duration::from_millis(ms.min(DATES_END - 1))).into()
}

/// `2026-11-27T06:33:36.007Z`: as the library writes [`timestamp`] into XML.
pub fn iso_text(ms: u64) -> [u8; 24] {
    let mut text = *b"0000-00-00T00:00:00.000Z";
    let at = civil(ms.min(DATES_END - 1));
    digits(&mut text[..4], at.year);
    digits(&mut text[5..7], at.month);
    digits(&mut text[8..10], at.day);
    digits(&mut text[11..13], at.hour);
    digits(&mut text[14..16], at.minute);
    digits(&mut text[17..19], at.second);
    digits(&mut text[20..23], at.ms);
    text
}

/// The last digits of a number.
fn digits(out: &mut [u8], mut n: u64) {
    for digit in out.iter_mut().rev() {
        *digit = b'0' + (n % 10) as u8;
        n /= 10;
    }
}

/// As HTTP compares times: by seconds.
pub fn seconds(ms: u64) -> Timestamp {
    timestamp(ms / 1000 * 1000)
}

pub fn http_date(at: &Timestamp) -> Option<String> {
    let mut text = Vec::new();
    at.format(TimestampFormat::HttpDate, &mut text).ok()?;
    String::from_utf8(text).ok()
}

/// None: before 1970, or within a second.
pub fn epoch_seconds(at: &Timestamp) -> Option<u64> {
    let mut text = Vec::new();
    at.format(TimestampFormat::EpochSeconds, &mut text).ok()?;
    std::str::from_utf8(&text).ok()?.parse().ok()
}

/// To the millisecond; None: before 1970.
pub fn epoch_ms(at: &Timestamp) -> Option<u64> {
    let mut text = Vec::new();
    at.format(TimestampFormat::EpochSeconds, &mut text).ok()?;
    let seconds: f64 = std::str::from_utf8(&text).ok()?.parse().ok()?;
    (seconds >= 0.0).then(|| (seconds * 1000.0).round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn by_the_library(ms: u64) -> Vec<u8> {
        let mut text = Vec::new();
        timestamp(ms)
            .format(TimestampFormat::DateTime, &mut text)
            .unwrap();
        text
    }

    proptest! {
        #[test]
        fn times_are_written_as_the_library_writes_them(ms in 0..DATES_END + 5) {
            prop_assert_eq!(iso_text(ms).to_vec(), by_the_library(ms));
        }
    }

    #[test]
    fn so_are_those_at_the_ends_of_years() {
        for year in 0..200 {
            // Around the first of each year, its last of February, and the end of all.
            let first = civil_start(1970 + year);
            for ms in [first, first + 59 * 86_400_000, first + 60 * 86_400_000] {
                for ms in [ms.saturating_sub(1), ms, ms + 1] {
                    assert_eq!(iso_text(ms).to_vec(), by_the_library(ms), "{ms}");
                }
            }
        }
        for ms in [0, DATES_END - 1, DATES_END, u64::MAX] {
            assert_eq!(iso_text(ms).to_vec(), by_the_library(ms), "{ms}");
        }
    }

    /// The first moment of a year.
    fn civil_start(year: u64) -> u64 {
        let before = year - 1;
        let leaps = |y: u64| y / 4 - y / 100 + y / 400;
        ((year - 1970) * 365 + leaps(before) - leaps(1969)) * 86_400_000
    }

    #[test]
    fn milliseconds_come_back() {
        for ms in [0, 1, 999, 1_700_000_000_123, 253_402_300_799_999] {
            assert_eq!(epoch_ms(&timestamp(ms)), Some(ms));
        }
    }

    #[test]
    fn there_is_a_last_date() {
        for ms in [DATES_END, u64::MAX] {
            assert_eq!(epoch_ms(&timestamp(ms)), Some(DATES_END - 1));
        }
    }
}
