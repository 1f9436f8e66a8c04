//! Times between S3's type and ours.

use s3s::dto::{Timestamp, TimestampFormat};
use std::time::{Duration, UNIX_EPOCH};

pub fn timestamp(ms: u64) -> Timestamp {
    (UNIX_EPOCH + Duration::from_millis(ms)).into()
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
