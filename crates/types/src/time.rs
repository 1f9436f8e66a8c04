//! Points in time and durations as Ceph writes them: seconds and nanoseconds, 32 bits each.

use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Utime {
    pub sec: u32,
    pub nsec: u32,
}
denc::plain_denc!(Utime { sec, nsec });

impl Utime {
    pub const ZERO: Self = Self { sec: 0, nsec: 0 };

    pub fn is_zero(self) -> bool {
        self == Self::ZERO
    }

    /// Time since the Unix epoch.
    pub fn from_unix(d: Duration) -> Self {
        Self {
            sec: d.as_secs() as u32,
            nsec: d.subsec_nanos(),
        }
    }

    pub fn to_duration(self) -> Duration {
        Duration::new(self.sec as u64, self.nsec)
    }

    /// Year, month, day, hour, minute, second of the UTC calendar.
    pub fn civil(self) -> (i64, u32, u32, u32, u32, u32) {
        let days = (self.sec / 86_400) as i64;
        let rest = self.sec % 86_400;
        // Days to civil date (Howard Hinnant's algorithm), era-based, for days since 1970-01-01.
        let z = days + 719_468;
        let era = z.div_euclid(146_097);
        let doe = z.rem_euclid(146_097);
        let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
        let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
        let mp = (5 * doy + 2) / 153;
        let day = (doy - (153 * mp + 2) / 5 + 1) as u32;
        let month = if mp < 10 { mp + 3 } else { mp - 9 } as u32;
        let year = yoe + era * 400 + i64::from(month <= 2);
        (year, month, day, rest / 3600, rest / 60 % 60, rest % 60)
    }
}

/// Times below this are durations (or never set): Ceph prints them as seconds.
const DURATION_BELOW_SEC: u32 = 10 * 365 * 86_400;

/// `2026-11-21T21:54:55.123456+0000`, the form that Ceph's JSON output has; `0.000000` for a time never set.
impl std::fmt::Display for Utime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.sec < DURATION_BELOW_SEC {
            return write!(f, "{}.{:06}", self.sec, self.nsec / 1000);
        }
        let (y, mo, d, h, mi, s) = self.civil();
        write!(
            f,
            "{y:04}-{mo:02}-{d:02}T{h:02}:{mi:02}:{s:02}.{:06}+0000",
            self.nsec / 1000
        )
    }
}
