//! How long backups are kept: rules `SPAN:EVERY`. Of the backups that are no older than SPAN, the newest of each stretch of EVERY
//! stays; the newest of all stays always. Pure.
//!
//! Stretches are counted from 1970 (those of days begin at midnight UTC), so which backup stands for one does not depend on when it
//! is asked, once the stretch is over.

use crate::time;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// Seconds.
    pub span: u64,
    pub every: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Keep(pub Vec<Rule>);

/// More rules than that are a mistake.
const RULES_MAX: usize = 16;

impl Keep {
    /// Which of the backups of one image stay, by their places in `times` (seconds since 1970).
    pub fn keeps(&self, times: &[u64], now: u64) -> Vec<bool> {
        let mut stays = vec![false; times.len()];
        if let Some((newest, _)) = times.iter().enumerate().max_by_key(|(i, t)| (**t, *i)) {
            stays[newest] = true;
        }
        for rule in &self.0 {
            let mut stands: std::collections::BTreeMap<u64, usize> = Default::default();
            for (i, at) in times.iter().enumerate() {
                // One from the future is young.
                if now.saturating_sub(*at) > rule.span {
                    continue;
                }
                let slot = stands.entry(at / rule.every).or_insert(i);
                if (times[*slot], *slot) < (*at, i) {
                    *slot = i;
                }
            }
            stands.into_values().for_each(|i| stays[i] = true);
        }
        stays
    }
}

impl std::str::FromStr for Keep {
    type Err = String;

    /// `24h:1h,7d:1d,8w:1w`
    fn from_str(text: &str) -> Result<Self, String> {
        let rule = |part: &str| {
            let (span, every) = part
                .split_once(':')
                .ok_or_else(|| format!("'{part}' is no SPAN:EVERY, as in 7d:1d"))?;
            let (span, every) = (time::parse_duration(span)?, time::parse_duration(every)?);
            match every > span {
                true => Err(format!(
                    "'{part}': one every {} is not within {}",
                    time::duration(every),
                    time::duration(span)
                )),
                false => Ok(Rule { span, every }),
            }
        };
        let rules: Vec<Rule> = text
            .split(',')
            .map(str::trim)
            .map(rule)
            .collect::<Result<_, _>>()?;
        match rules.len() > RULES_MAX {
            true => Err(format!("more than {RULES_MAX} rules")),
            false => Ok(Self(rules)),
        }
    }
}

impl std::fmt::Display for Keep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let rule = |r: &Rule| format!("{}:{}", time::duration(r.span), time::duration(r.every));
        f.write_str(&self.0.iter().map(rule).collect::<Vec<_>>().join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HOUR: u64 = 3600;
    const DAY: u64 = 24 * HOUR;
    const NOW: u64 = 1_795_692_245;

    fn keep(text: &str) -> Keep {
        text.parse().unwrap()
    }

    #[test]
    fn rules_are_read_and_written() {
        assert_eq!(keep("24h:1h, 7d:1d,8w:1w").to_string(), "1d:1h,1w:1d,8w:1w");
        for bad in ["", "1h", "1h:2h", "1d:x", ":", "1h:1h,", &["1h:1h"; 17].join(",")] {
            assert!(bad.parse::<Keep>().is_err(), "{bad}");
        }
    }

    #[test]
    fn the_newest_of_each_day() {
        let midnight = NOW / DAY * DAY;
        let times = [
            midnight - 26 * HOUR,
            midnight - 25 * HOUR,
            midnight - 2 * HOUR,
            midnight + HOUR,
        ];
        assert_eq!(keep("7d:1d").keeps(&times, NOW), [false, true, true, true]);
        assert_eq!(
            keep("1h:1h").keeps(&times, NOW),
            [false, false, false, true],
            "the newest stays"
        );
    }

    /// Sixty days of hourly backups, pruned after each: what coarser rules need later is not lost to the finer ones.
    #[test]
    fn pruned_every_hour_no_day_or_week_is_lost() {
        let rules = keep("24h:1h,7d:1d,8w:1w");
        let mut times: Vec<u64> = Vec::new();
        for hour in 0..60 * 24 {
            let now = NOW + hour * HOUR;
            times.push(now);
            let stays = rules.keeps(&times, now);
            let mut stays = stays.iter();
            times.retain(|_| *stays.next().unwrap());
            let began = NOW;
            for (span, every) in [(DAY, HOUR), (7 * DAY, DAY), (56 * DAY, 7 * DAY)] {
                let first = now.saturating_sub(span).max(began) / every + 1;
                for stretch in first..=now / every {
                    assert!(times.iter().any(|t| t / every == stretch), "hour {hour}, {every}");
                }
            }
            assert!(times.len() <= 26 + 9 + 10, "{}", times.len());
        }
    }

    fn rules() -> impl Strategy<Value = Keep> {
        let rule = (1u64..200, 1u64..50).prop_map(|(span, every)| Rule { span, every });
        proptest::collection::vec(rule, 0..4).prop_map(Keep)
    }

    proptest! {
        #[test]
        fn what_stays_stays(rules in rules(), times in proptest::collection::vec(0u64..300, 0..60), now in 0u64..400) {
            let stays = rules.keeps(&times, now);
            let left: Vec<u64> = times.iter().zip(&stays).filter(|(_, s)| **s).map(|(t, _)| *t).collect();
            // The newest is among them, once more nothing goes, and each stretch has one.
            prop_assert_eq!(left.iter().max(), times.iter().max());
            prop_assert!(rules.keeps(&left, now).iter().all(|s| *s));
            for rule in &rules.0 {
                for t in times.iter().filter(|t| now.saturating_sub(**t) <= rule.span) {
                    prop_assert!(left.iter().any(|l| l / rule.every == t / rule.every));
                }
            }
            // More rules keep more.
            let mut more = rules.clone();
            more.0.push(Rule { span: 50, every: 7 });
            let also = more.keeps(&times, now);
            prop_assert!(stays.iter().zip(&also).all(|(a, b)| !a || *b));
        }
    }
}
