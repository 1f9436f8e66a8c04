//! Times between S3's type and ours.

use s3s::dto::{Timestamp, TimestampFormat};
use std::time::{Duration, UNIX_EPOCH};

/// The year 10000: no date of HTTP, and none of the library's.
pub const DATES_END: u64 = 253_402_300_800_000;

/// The last moment of 9999 for what is later.
pub fn timestamp(ms: u64) -> Timestamp {
    (UNIX_EPOCH + Duration::from_millis(ms.min(DATES_END - 1))).into()
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
