//! What one session wants to be told (docs/protocol/ceph/02-monitor.md, section 4): names, from which version, once or
//! for ever.
//!
//! A session follows the log at one level: to name another is to leave the one before. Nothing tells a server that a client
//! has had enough of it: clients drop what still comes.
//!
//! A subscription that is due is answered and then dropped (one time) or moved behind what was sent. Unknown
//! names are ignored, as the real monitor does.

use messages::mon::SubscribeItem;
use std::collections::BTreeMap;

/// Names one session may subscribe to; more are ignored.
pub const SUBSCRIPTIONS_MAX: usize = 64;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Topic {
    MonMap,
    Config,
    OsdMap,
    MgrMap,
    /// None: the default file system.
    MdsMap(Option<i32>),
    FsMap,
    FsMapUser,
    /// Lowest level wanted.
    Log(types::clusterlog::LogLevel),
}

impl Topic {
    pub fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "monmap" => Self::MonMap,
            "config" => Self::Config,
            "osdmap" => Self::OsdMap,
            "mgrmap" => Self::MgrMap,
            "mdsmap" => Self::MdsMap(None),
            "fsmap" => Self::FsMap,
            "fsmap.user" => Self::FsMapUser,
            _ => {
                if let Some(id) = name.strip_prefix("mdsmap.") {
                    return Some(Self::MdsMap(Some(id.parse().ok()?)));
                }
                let level = name.strip_prefix("log-")?;
                Self::Log(
                    types::clusterlog::LogLevel::ALL
                        .into_iter()
                        .find(|l| l.word() == level)?,
                )
            }
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// Lowest version that is still wanted.
    pub next: u64,
    pub onetime: bool,
}

#[derive(Debug, Clone, Default)]
pub struct Subscriptions {
    topics: BTreeMap<Topic, Wanted>,
}

impl Subscriptions {
    /// Takes over a client's list; gives the topics that it named.
    pub fn set(&mut self, items: &BTreeMap<String, SubscribeItem>) -> Vec<Topic> {
        let mut named = Vec::new();
        for (name, item) in items {
            let Some(topic) = Topic::parse(name) else {
                continue;
            };
            if matches!(topic, Topic::Log(_)) {
                self.topics
                    .retain(|t, _| !matches!(t, Topic::Log(_)) || *t == topic);
            }
            if self.topics.len() >= SUBSCRIPTIONS_MAX && !self.topics.contains_key(&topic) {
                continue;
            }
            self.topics.insert(
                topic.clone(),
                Wanted {
                    next: item.start,
                    onetime: item.onetime(),
                },
            );
            named.push(topic);
        }
        named
    }

    pub fn get(&self, topic: &Topic) -> Option<Wanted> {
        self.topics.get(topic).copied()
    }

    pub fn topics(&self) -> Vec<Topic> {
        self.topics.keys().cloned().collect()
    }

    /// `version` (the newest that was sent) answers the subscription.
    pub fn sent(&mut self, topic: &Topic, version: u64) {
        match self.topics.get_mut(topic) {
            Some(w) if w.onetime => {
                self.topics.remove(topic);
            }
            Some(w) => w.next = version + 1,
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::clusterlog::LogLevel;

    fn items(list: &[(&str, u64, u8)]) -> BTreeMap<String, SubscribeItem> {
        list.iter()
            .map(|(n, start, flags)| {
                (
                    n.to_string(),
                    SubscribeItem {
                        start: *start,
                        flags: *flags,
                    },
                )
            })
            .collect()
    }

    #[test]
    fn names_are_topics() {
        let check = |name: &str, want: Option<Topic>| assert_eq!(Topic::parse(name), want, "{name}");
        check("osdmap", Some(Topic::OsdMap));
        check("mdsmap.3", Some(Topic::MdsMap(Some(3))));
        check("mdsmap.x", None);
        check("log-warn", Some(Topic::Log(LogLevel::Warning)));
        check("log-loud", None);
        check("kv:x", None);
    }

    /// Somebody who went from `log-info` to `log-error` still got every line.
    #[test]
    fn the_log_is_followed_at_one_level() {
        let mut subs = Subscriptions::default();
        subs.set(&items(&[("log-info", 0, 0), ("osdmap", 1, 0)]));
        subs.sent(&Topic::Log(LogLevel::Info), 7);
        subs.set(&items(&[("log-info", 8, 0)]));
        let wanted = subs.get(&Topic::Log(LogLevel::Info));
        assert_eq!(wanted.map(|w| w.next), Some(8), "the same one goes on");
        for level in LogLevel::ALL {
            let name = format!("log-{}", level.word());
            subs.set(&items(&[(name.as_str(), 0, 0)]));
            assert_eq!(subs.topics(), [Topic::OsdMap, Topic::Log(level)]);
        }
    }

    #[test]
    fn one_time_ends_and_standing_moves_on() {
        let mut subs = Subscriptions::default();
        subs.set(&items(&[
            ("osdmap", 3, 1),
            ("monmap", 0, 0),
            ("servicemap", 0, 0),
        ]));
        assert_eq!(subs.topics(), [Topic::MonMap, Topic::OsdMap]);
        subs.sent(&Topic::OsdMap, 7);
        assert_eq!(subs.get(&Topic::OsdMap), None);
        subs.sent(&Topic::MonMap, 4);
        assert_eq!(
            subs.get(&Topic::MonMap),
            Some(Wanted {
                next: 5,
                onetime: false
            })
        );
        subs.set(&items(&[("monmap", 2, 1)]));
        assert_eq!(
            subs.get(&Topic::MonMap),
            Some(Wanted {
                next: 2,
                onetime: true
            })
        );
    }
}
