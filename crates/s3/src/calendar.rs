//! Dates of milliseconds since 1970, in UTC, as texts have them.

/// Of a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Civil {
    pub year: u64,
    /// From 1.
    pub month: u64,
    pub day: u64,
    pub hour: u64,
    pub minute: u64,
    pub second: u64,
    pub ms: u64,
}

pub fn civil(ms: u64) -> Civil {
    let (days, within) = (ms / 86_400_000, ms % 86_400_000);
    // Counted from the first of March of year 0: leap days are last.
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, later) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    let (seconds, ms) = (within / 1000, within % 1000);
    Civil {
        year: era * 400 + year + later,
        month,
        day,
        hour: seconds / 3600,
        minute: seconds / 60 % 60,
        second: seconds % 60,
        ms,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_those_of_the_calendar() {
        for (ms, want) in [
            (0, (1970, 1, 1, 0, 0, 0, 0)),
            (951_868_799_999, (2000, 2, 29, 23, 59, 59, 999)),
            (951_868_800_000, (2000, 3, 1, 0, 0, 0, 0)),
            (1_709_164_800_007, (2024, 2, 29, 0, 0, 0, 7)),
            (4_107_542_400_000, (2100, 3, 1, 0, 0, 0, 0)),
        ] {
            let c = civil(ms);
            assert_eq!((c.year, c.month, c.day, c.hour, c.minute, c.second, c.ms), want);
        }
    }
}
