//! Sizes, counts, percentages and ages as Ceph prints them in plain output.

use types::Utime;

const BYTE_UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
const SI_UNITS: [&str; 7] = ["", "k", "M", "G", "T", "P", "E"];

/// `0 B`, `6.6 KiB`, `36 KiB`, `11 GiB`: one decimal below 10, none above, none when it is exact.
pub fn bytes(n: u64) -> String {
    let mut unit = 0;
    let mut whole = n;
    while whole >= 1024 && unit + 1 < BYTE_UNITS.len() {
        whole >>= 10;
        unit += 1;
    }
    let exact = n & ((1u64 << (10 * unit)) - 1) == 0;
    if exact {
        return format!("{whole} {}", BYTE_UNITS[unit]);
    }
    let value = n as f64 / (1u64 << (10 * unit)) as f64;
    let decimals = if format!("{value:.1}").len() <= 3 { 1 } else { 0 };
    format!("{value:.decimals$} {}", BYTE_UNITS[unit])
}

/// `30`, `1k`, `1.10k`: powers of 1000, two decimals unless exact.
pub fn si(n: u64) -> String {
    let mut unit = 0;
    let mut divisor = 1u64;
    while n / divisor >= 1000 && unit + 1 < SI_UNITS.len() {
        divisor *= 1000;
        unit += 1;
    }
    if n.is_multiple_of(divisor) {
        return format!("{}{}", n / divisor, SI_UNITS[unit]);
    }
    format!("{:.2}{}", n as f64 / divisor as f64, SI_UNITS[unit])
}

/// A ratio as percent for tables: `0`, `0.02`, `7.12`.
pub fn percent(ratio: f64) -> String {
    let p = ratio * 100.0;
    if p < 0.01 { "0".into() } else { format!("{p:.2}") }
}

/// `74s`, `16m`, `3h`, `2d`, `5w`, `4M`, `2y`: how long ago; `-` when it never was.
pub fn age(since: Utime, now: Utime) -> String {
    if since.is_zero() {
        return "-".into();
    }
    const MINUTE: u64 = 60;
    const HOUR: u64 = 60 * MINUTE;
    const DAY: u64 = 24 * HOUR;
    let s = seconds_between(since, now) as u64;
    match s {
        _ if s < 2 * MINUTE => format!("{s}s"),
        _ if s < 2 * HOUR => format!("{}m", s / MINUTE),
        _ if s < 2 * DAY => format!("{}h", s / HOUR),
        _ if s < 14 * DAY => format!("{}d", s / DAY),
        _ if s < 12 * 7 * DAY => format!("{}w", s / (7 * DAY)),
        _ if s < 2 * 365 * DAY => format!("{}M", s / (30 * DAY)),
        _ => format!("{}y", s / (365 * DAY)),
    }
}

/// `Wed Nov 25 19:52:42 2026`: as C's asctime has it, in UTC.
pub fn c_time(t: Utime) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let (year, month, day, h, m, s) = t.civil();
    // 1970 began on a Thursday.
    let weekday = DAYS[(t.sec / 86_400 % 7) as usize];
    let month = MONTHS[(month as usize).saturating_sub(1) % 12];
    format!("{weekday} {month} {day:2} {h:02}:{m:02}:{s:02} {year}")
}

/// Seconds from one time to a later one, 0 if it is not later.
pub fn seconds_between(since: Utime, now: Utime) -> f64 {
    now.to_duration()
        .saturating_sub(since.to_duration())
        .as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_as_in_the_recorded_runs() {
        let check = |n: u64, want: &str| assert_eq!(bytes(n), want);
        check(0, "0 B");
        check(3, "3 B");
        check(6716, "6.6 KiB");
        check(36_864, "36 KiB");
        check(900_019, "879 KiB");
        check(906_738, "885 KiB");
        check(2_740_224, "2.6 MiB");
        check(917_061_632, "875 MiB");
        check(11_967_840_256, "11 GiB");
        check(12_884_901_888, "12 GiB");
        check(3_774_526_208, "3.5 GiB");
        check(1_073_741_824, "1 GiB");
    }

    #[test]
    fn times_as_a_real_balancer_prints_them() {
        let at = |sec| c_time(Utime { sec, nsec: 0 });
        // 2026-11-25, which was a Wednesday.
        assert_eq!(at(1_795_636_362), "Wed Nov 25 19:52:42 2026");
        assert_eq!(at(0), "Thu Jan  1 00:00:00 1970");
    }

    #[test]
    fn counts_percentages_ages() {
        assert_eq!(si(30), "30");
        assert_eq!(si(1000), "1k");
        assert_eq!(si(1099), "1.10k");
        assert_eq!(percent(0.0711), "7.11");
        assert_eq!(percent(0.00024), "0.02");
        assert_eq!(percent(0.0), "0");
        let at = |s: u32| Utime { sec: s, nsec: 0 };
        assert_eq!(age(at(100), at(174)), "74s");
        assert_eq!(age(at(1), at(16 * 60 + 5)), "16m");
        assert_eq!(age(at(0), at(9)), "-");
        assert_eq!(age(at(500), at(100)), "0s");
    }
}
