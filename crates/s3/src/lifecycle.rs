//! Lifecycle: which of a bucket's rules an object or an upload is under, and when it ends by them.
//!
//! Whole days are counted from when an object was made, and rounded up to the next midnight (UTC), as S3 does it. What a day is
//! comes with each question: tests have shorter ones.

use crate::record::{Entry, Older};
use denc::{Decode, Encode, Reader, Writer};
use std::collections::BTreeMap;

/// Milliseconds.
pub const DAY: u64 = 24 * 60 * 60 * 1000;

/// Sizes are exclusive; times are milliseconds since 1970.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rule {
    pub id: String,
    pub enabled: bool,
    /// The prefix was put outside of a filter, as before there were filters.
    pub bare: bool,
    pub prefix: Option<String>,
    pub tags: BTreeMap<String, String>,
    pub larger: Option<u64>,
    pub smaller: Option<u64>,
    pub days: Option<u32>,
    pub date: Option<u64>,
    /// Days after which uploads under way are aborted.
    pub abort: Option<u32>,
    /// Days after which a version that is not the current one goes.
    pub older: Option<u32>,
    /// So many of those stay, the newest.
    pub keep: u32,
    /// A delete marker goes that is all there is of its key.
    pub marker: bool,
    /// To which storage classes objects go, and when.
    pub moves: Vec<Move>,
    /// And versions that are not the current one.
    pub older_moves: Vec<OlderMove>,
    /// What has fewer than [`MOVED_MIN`] bytes does not move.
    pub large_alone: bool,
}

/// What AWS moves at least by default, which clients may ask for.
pub const MOVED_MIN: u64 = 128 << 10;

/// One of the two times is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Move {
    pub days: Option<u32>,
    pub date: Option<u64>,
    pub class: String,
}

denc::envelope_denc!(Move, 1, 1, { days, date, class });

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OlderMove {
    /// Days after others have followed.
    pub days: u32,
    /// So many stay, the newest.
    pub keep: u32,
    pub class: String,
}

denc::envelope_denc!(OlderMove, 1, 1, { days, keep, class });

/// The version that knows of versions of objects; a rule without them is as it was before.
const WITH_VERSIONS: u8 = 2;
/// And the one that knows of storage classes.
pub const WITH_MOVES: u8 = 3;

impl Encode for Rule {
    fn encode(&self, w: &mut Writer) {
        let plain = self.older.is_none() && self.keep == 0 && !self.marker;
        let version = match (plain, self.moves.is_empty() && self.older_moves.is_empty()) {
            (_, false) => WITH_MOVES,
            (false, true) => WITH_VERSIONS,
            (true, true) => 1,
        };
        w.envelope(version, version, |w| {
            w.put(&self.id);
            w.put(&self.enabled);
            w.put(&self.bare);
            w.put(&self.prefix);
            w.put(&self.tags);
            w.put(&self.larger);
            w.put(&self.smaller);
            w.put(&self.days);
            w.put(&self.date);
            w.put(&self.abort);
            if version >= WITH_VERSIONS {
                w.put(&self.older);
                w.put(&self.keep);
                w.put(&self.marker);
            }
            if version >= WITH_MOVES {
                w.put(&self.moves);
                w.put(&self.older_moves);
                w.bool(self.large_alone);
            }
        });
    }
}

impl Decode for Rule {
    fn decode(r: &mut Reader) -> denc::Result<Self> {
        r.envelope(WITH_MOVES, |version, r| {
            let mut rule = Self {
                id: r.get()?,
                enabled: r.get()?,
                bare: r.get()?,
                prefix: r.get()?,
                tags: r.get()?,
                larger: r.get()?,
                smaller: r.get()?,
                days: r.get()?,
                date: r.get()?,
                abort: r.get()?,
                ..Self::default()
            };
            if version >= WITH_VERSIONS {
                (rule.older, rule.keep, rule.marker) = (r.get()?, r.get()?, r.get()?);
            }
            if version >= WITH_MOVES {
                (rule.moves, rule.older_moves) = (r.get()?, r.get()?);
                rule.large_alone = r.bool()?;
            }
            Ok(rule)
        })
    }
}

/// The midnight after so many days.
fn after(since: u64, days: u32, day: u64) -> u64 {
    let end = since.saturating_add(u64::from(days).saturating_mul(day));
    end.div_ceil(day).saturating_mul(day)
}

impl Rule {
    fn begins(&self, key: &str) -> bool {
        self.enabled && key.starts_with(self.prefix.as_deref().unwrap_or_default())
    }

    fn covers(&self, key: &str, entry: &Entry) -> bool {
        let tagged = |(k, v): (&String, &String)| entry.attributes.tags.get(k) == Some(v);
        self.begins(key)
            && self.tags.iter().all(tagged)
            && self.larger.is_none_or(|n| entry.size > n)
            && self.smaller.is_none_or(|n| entry.size < n)
    }

    fn ends(&self, entry: &Entry, day: u64) -> Option<u64> {
        self.date
            .or(self.days.map(|days| after(entry.modified, days, day)))
    }
}

impl Rule {
    fn moves(&self, key: &str, entry: &Entry) -> bool {
        self.covers(key, entry) && (!self.large_alone || entry.size >= MOVED_MIN)
    }
}

/// The last of several terms that are over, and of those that end together the first: so rules that do not agree move nothing to and fro.
fn last<'a>(over: impl Iterator<Item = (u64, u32, &'a str)>) -> Option<(&'a str, u32)> {
    let later = |a: (u64, u32, &'a str), b: (u64, u32, &'a str)| if b.0 > a.0 { b } else { a };
    over.reduce(later).map(|(_, keep, class)| (class, keep))
}

/// The storage class that an object has to be in by now, if a rule says so and it is in another.
pub fn moves_to<'a>(rules: &'a [Rule], key: &str, entry: &Entry, (day, now): (u64, u64)) -> Option<&'a str> {
    let covers = rules.iter().filter(|r| r.moves(key, entry));
    let all = covers.flat_map(|r| &r.moves);
    let ended = all.filter_map(|m| {
        let days = m.days.map(|days| after(entry.modified, days, day));
        Some((m.date.or(days)?, 0, m.class.as_str()))
    });
    let (class, _) = last(ended.filter(|(at, ..)| *at <= now))?;
    (class != entry.attributes.class).then_some(class)
}

/// The same of a version that is not the current one, of which `newer` others are newer, with how many of those have to be so.
pub fn older_moves_to<'a>(
    rules: &'a [Rule],
    key: &str,
    older: &Older,
    newer: u32,
    (day, now): (u64, u64),
) -> Option<(&'a str, u32)> {
    let covers = rules
        .iter()
        .filter(|r| !older.marker && r.moves(key, &older.entry));
    let all = covers.flat_map(|r| &r.older_moves).filter(|m| newer >= m.keep);
    let ended = all.map(|m| (after(older.since, m.days, day), m.keep, m.class.as_str()));
    let (class, keep) = last(ended.filter(|(at, ..)| *at <= now))?;
    (class != older.entry.attributes.class).then_some((class, keep))
}

/// When an object expires, and by which rule: the first that has it expire.
pub fn expires<'a>(rules: &'a [Rule], key: &str, entry: &Entry, day: u64) -> Option<(u64, &'a Rule)> {
    let covers = rules.iter().filter(|r| r.covers(key, entry));
    covers
        .filter_map(|r| Some((r.ends(entry, day)?, r)))
        .min_by_key(|(at, _)| *at)
}

/// Whether a version that is not the current one goes, of which `newer` others are newer: those that have to be so, which are the
/// fewest that a rule keeps.
pub fn older_over(
    rules: &[Rule],
    key: &str,
    older: &Older,
    newer: u32,
    (day, now): (u64, u64),
) -> Option<u32> {
    let is_over = |r: &&Rule| r.older.is_some_and(|days| after(older.since, days, day) <= now);
    let covers = rules.iter().filter(|r| r.covers(key, &older.entry));
    covers
        .filter(|r| newer >= r.keep)
        .filter(is_over)
        .map(|r| r.keep)
        .min()
}

/// When a delete marker goes, if it is all there is of its key.
pub fn marker_expires(rules: &[Rule], key: &str, marker: &Entry, day: u64) -> Option<u64> {
    let covers = rules.iter().filter(|r| r.covers(key, marker));
    covers
        .filter_map(|r| if r.marker { Some(0) } else { r.ends(marker, day) })
        .min()
}

/// When an upload that began then is aborted.
pub fn aborts(rules: &[Rule], key: &str, begun: u64, day: u64) -> Option<u64> {
    let begins = rules.iter().filter(|r| r.begins(key));
    begins.filter_map(|r| Some(after(begun, r.abort?, day))).min()
}

/// What a walk looks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Objects,
    /// All but the current objects.
    Versions,
    Uploads,
}

/// What all keys begin with that rules for this kind are about; None: there is no such rule.
pub fn scope(rules: &[Rule], kind: Kind) -> Option<String> {
    let acts = |r: &&Rule| match kind {
        Kind::Objects => r.days.is_some() || r.date.is_some() || !r.moves.is_empty(),
        Kind::Versions => {
            let older = r.older.is_some() || !r.older_moves.is_empty();
            r.days.is_some() || r.date.is_some() || older || r.marker
        }
        Kind::Uploads => r.abort.is_some(),
    };
    let prefixes = rules.iter().filter(|r| r.enabled).filter(acts);
    let prefixes = prefixes.map(|r| r.prefix.clone().unwrap_or_default());
    prefixes.reduce(|a, b| {
        let same = a.chars().zip(b.chars()).take_while(|(a, b)| a == b);
        same.map(|(c, _)| c).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Attributes, Data};

    fn entry(modified: u64, size: u64, tags: &[(&str, &str)]) -> Entry {
        let tags = tags.iter().map(|(k, v)| (k.to_string(), v.to_string()));
        Entry {
            size,
            etag: String::new(),
            modified,
            data: Data::None,
            attributes: Attributes {
                tags: tags.collect(),
                ..Attributes::default()
            },
            checksum: None,
            parts: 0,
            upload: String::new(),
            version: None,
            lock: Default::default(),
            sealed: None,
        }
    }

    fn rule(prefix: &str, days: u32) -> Rule {
        Rule {
            id: format!("{prefix}{days}"),
            enabled: true,
            prefix: Some(prefix.into()),
            days: Some(days),
            ..Rule::default()
        }
    }

    #[test]
    fn days_end_at_midnight() {
        let at = |modified: u64, days| {
            let rules = [rule("", days)];
            expires(&rules, "k", &entry(modified, 1, &[]), DAY).map(|(at, _)| at)
        };
        assert_eq!(at(10 * DAY, 1), Some(11 * DAY));
        assert_eq!(at(10 * DAY + 1, 1), Some(12 * DAY));
        assert_eq!(at(11 * DAY - 1, 3), Some(14 * DAY));
        assert!(at(u64::MAX, u32::MAX).is_some());
    }

    #[test]
    fn the_rule_that_has_it_expire_first_counts() {
        let mut rules = vec![rule("a/", 9), rule("", 20), rule("a/b", 3)];
        rules[1].date = Some(5 * DAY);
        rules[1].days = None;
        let by = |rules: &[Rule], key| {
            expires(rules, key, &entry(0, 1, &[]), DAY).map(|(t, r)| (t / DAY, r.id.clone()))
        };
        assert_eq!(by(&rules, "a/b"), Some((3, "a/b3".into())));
        assert_eq!(by(&rules, "a/c"), Some((5, "20".into())));
        rules[1].enabled = false;
        assert_eq!(by(&rules, "a/c"), Some((9, "a/9".into())));
        assert_eq!(by(&rules, "b"), None);
    }

    #[test]
    fn all_of_a_filter_has_to_fit() {
        let rules = [Rule {
            tags: BTreeMap::from([("t".into(), "1".into()), ("u".into(), "2".into())]),
            larger: Some(10),
            smaller: Some(20),
            abort: Some(2),
            ..rule("p", 1)
        }];
        let fits = |key, size, tags: &[_]| expires(&rules, key, &entry(0, size, tags), DAY).is_some();
        let tags = [("t", "1"), ("u", "2"), ("v", "3")];
        assert!(fits("p", 11, &tags) && fits("px", 19, &tags));
        assert!(!fits("p", 10, &tags) && !fits("p", 20, &tags) && !fits("q", 11, &tags));
        assert!(!fits("p", 11, &tags[..1]) && !fits("p", 11, &[("t", "1"), ("u", "3")]));
        assert_eq!(aborts(&rules, "px", 1, DAY), Some(3 * DAY));
        assert_eq!(aborts(&rules, "q", 1, DAY), None);
    }

    #[test]
    fn versions_go_by_rules_of_their_own() {
        let older = |since: u64| Older {
            since,
            marker: false,
            entry: entry(0, 1, &[]),
        };
        let rules = [
            Rule {
                days: None,
                older: Some(2),
                keep: 3,
                ..rule("a", 1)
            },
            rule("b", 1),
        ];
        let over = |key, newer, now| older_over(&rules, key, &older(10 * DAY), newer, (DAY, now));
        let end = 12 * DAY;
        assert_eq!((over("a", 2, end), over("a", 3, end)), (None, Some(3)));
        assert_eq!((over("a", 9, end - 1), over("b", 9, u64::MAX)), (None, None));
        let marker = entry(10 * DAY, 0, &[]);
        // The fewest of those whose time has come.
        let more = [(2, 9), (1, 5), (9, 1)].map(|(days, keep)| Rule {
            days: None,
            older: Some(days),
            keep,
            ..rule("a", 1)
        });
        let over = |newer, now| older_over(&more, "a", &older(10 * DAY), newer, (DAY, now));
        assert_eq!(
            (over(9, end), over(4, end), over(9, 19 * DAY)),
            (Some(5), None, Some(1))
        );
        assert_eq!(marker_expires(&rules, "a", &marker, DAY), None);
        assert_eq!(marker_expires(&rules, "b", &marker, DAY), Some(11 * DAY));
        let rules = [Rule {
            days: None,
            marker: true,
            ..rule("", 1)
        }];
        assert_eq!(marker_expires(&rules, "a", &marker, DAY), Some(0));
        assert_eq!(expires(&rules, "a", &marker, DAY), None);
        assert_eq!(scope(&rules, Kind::Versions).as_deref(), Some(""));
        assert_eq!(scope(&rules, Kind::Objects), None);
        for rule in rules {
            assert_eq!(rule.to_bytes()[..2], [2, 2]);
            assert_eq!(Rule::from_bytes(&rule.to_bytes()), Ok(rule));
        }
        assert_eq!(rule("b", 1).to_bytes()[..2], [1, 1]);
    }

    #[test]
    fn the_last_term_that_is_over_says_the_class() {
        let to = |days, class: &str| Move {
            days: Some(days),
            date: None,
            class: class.into(),
        };
        let mut rules = [
            Rule {
                days: None,
                moves: vec![to(2, "ICE"), to(1, "COLD")],
                ..rule("a", 1)
            },
            Rule {
                days: None,
                moves: vec![to(2, "LATER")],
                ..rule("", 1)
            },
        ];
        let mut entry = entry(0, 5, &[]);
        let class =
            |rules: &[Rule], entry: &Entry, now| moves_to(rules, "a", entry, (DAY, now)).map(str::to_string);
        assert_eq!(class(&rules, &entry, DAY - 1), None);
        assert_eq!(class(&rules, &entry, DAY).as_deref(), Some("COLD"));
        // Of two that end together always the first.
        assert_eq!(class(&rules, &entry, 2 * DAY).as_deref(), Some("ICE"));
        assert_eq!(class(&rules, &entry, 9 * DAY).as_deref(), Some("ICE"));
        entry.attributes.class = "ICE".into();
        assert_eq!(class(&rules, &entry, 9 * DAY), None);
        assert_eq!(moves_to(&rules, "b", &entry, (DAY, 9 * DAY)), Some("LATER"));
        rules[0].moves.push(Move {
            days: None,
            date: Some(7 * DAY),
            class: "DATED".into(),
        });
        assert_eq!(class(&rules, &entry, 7 * DAY).as_deref(), Some("DATED"));
        rules[0].large_alone = true;
        assert_eq!(class(&rules, &entry, 7 * DAY).as_deref(), Some("LATER"));
        entry.size = MOVED_MIN;
        assert_eq!(class(&rules, &entry, 7 * DAY).as_deref(), Some("DATED"));
        assert_eq!(scope(&rules[..1], Kind::Objects).as_deref(), Some("a"));
        assert_eq!(scope(&rules[..1], Kind::Versions), None);
        for rule in rules {
            assert_eq!(rule.to_bytes()[..2], [3, 3]);
            assert_eq!(Rule::from_bytes(&rule.to_bytes()), Ok(rule));
        }
    }

    #[test]
    fn versions_move_when_enough_are_newer() {
        let rules = [Rule {
            days: None,
            older_moves: vec![OlderMove {
                days: 1,
                keep: 2,
                class: "COLD".into(),
            }],
            ..rule("a", 1)
        }];
        let mut older = Older {
            since: 10 * DAY,
            marker: false,
            entry: entry(0, 1, &[]),
        };
        let to = |older: &Older, newer, now| older_moves_to(&rules, "a", older, newer, (DAY, now));
        assert_eq!(to(&older, 1, 11 * DAY), None);
        assert_eq!(to(&older, 2, 11 * DAY - 1), None);
        assert_eq!(to(&older, 2, 11 * DAY), Some(("COLD", 2)));
        older.marker = true;
        assert_eq!(to(&older, 2, 11 * DAY), None);
        assert_eq!(scope(&rules, Kind::Versions).as_deref(), Some("a"));
        assert_eq!(scope(&rules, Kind::Objects), None);
    }

    #[test]
    fn a_walk_is_as_wide_as_the_rules() {
        let both = [rule("ab/é1", 1), rule("ab/é2", 1)];
        assert_eq!(scope(&both, Kind::Objects).as_deref(), Some("ab/é"));
        assert_eq!(scope(&both, Kind::Uploads), None);
        assert_eq!(
            scope(&[rule("a", 1), rule("b", 1)], Kind::Objects).as_deref(),
            Some("")
        );
        let off = Rule {
            enabled: false,
            ..rule("b", 1)
        };
        assert_eq!(scope(&[rule("a", 1), off], Kind::Objects).as_deref(), Some("a"));
    }
}
