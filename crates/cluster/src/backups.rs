//! Policies of `skep backup`, and how their images stand: JSON under keys of the store of keys and values, so that they are written by
//! whoever makes backups, with the commands `config-key`, and judged by the monitor.
//!
//! `skep/backup/policy/NAME` is a [`Policy`], `skep/backup/row/NAME/POOL[/NAMESPACE]/IMAGE` the [`Row`] of an image; that of a policy
//! as a whole has no image. What cannot be read is left out.
//!
//! Bound: an alarm's details; rows are as many as images are backed up.

use crate::state::ClusterState;
use bytes::Bytes;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

pub const POLICY: &str = "skep/backup/policy/";
pub const ROW: &str = "skep/backup/row/";
/// A name of a policy is no longer.
pub const NAME_MAX: usize = 64;
/// A backup may be late by as much again as its turn is long, and by this.
const GRACE_SEC: u64 = 600;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    pub name: String,
    /// `POOL`, `POOL/GLOB`, `POOL/NAMESPACE/GLOB`.
    pub of: String,
    pub to: String,
    /// Seconds.
    pub every: u64,
    pub keep: String,
    pub key_file: String,
    pub compress: bool,
    /// Seconds between trials of an image; None: there are none.
    pub trial: Option<u64>,
    pub host: String,
    /// Seconds since 1970.
    pub since: u64,
}

/// How an image stands, or a policy as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Row {
    /// When it was last tried, and why it failed if it did; seconds since 1970.
    pub last: u64,
    pub error: Option<String>,
    /// The newest backup, and when its snapshot was taken.
    pub good: Option<u64>,
    pub backup: Option<String>,
    pub read: u64,
    pub stored: u64,
    pub trial: Option<u64>,
    pub trial_good: Option<u64>,
    pub trial_error: Option<String>,
    /// Of a policy: when backups were last taken away.
    pub pruned: Option<u64>,
}

pub fn is_name(name: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    (1..=NAME_MAX).contains(&name.len()) && name.chars().all(word)
}

fn object(value: &[u8]) -> Option<Map<String, Value>> {
    serde_json::from_slice(value).ok()
}

impl Policy {
    pub fn json(&self) -> Value {
        json!({
            "of": self.of,
            "to": self.to,
            "every": self.every,
            "keep": self.keep,
            "key_file": self.key_file,
            "compress": self.compress,
            "trial": self.trial,
            "host": self.host,
            "since": self.since,
        })
    }

    pub fn parse(name: &str, value: &[u8]) -> Option<Self> {
        let o = object(value)?;
        let text = |key: &str| o.get(key)?.as_str().map(str::to_string);
        let number = |key: &str| o.get(key)?.as_u64();
        Some(Self {
            name: name.to_string(),
            of: text("of")?,
            to: text("to")?,
            every: number("every").filter(|n| *n > 0)?,
            keep: text("keep")?,
            key_file: text("key_file")?,
            compress: o.get("compress").and_then(Value::as_bool).unwrap_or(true),
            trial: number("trial"),
            host: text("host")?,
            since: number("since").unwrap_or(0),
        })
    }
}

impl Row {
    pub fn json(&self) -> Value {
        json!({
            "last": self.last,
            "error": self.error,
            "good": self.good,
            "backup": self.backup,
            "read": self.read,
            "stored": self.stored,
            "trial": self.trial,
            "trial_good": self.trial_good,
            "trial_error": self.trial_error,
            "pruned": self.pruned,
        })
    }

    pub fn parse(value: &[u8]) -> Option<Self> {
        let o = object(value)?;
        let text = |key: &str| o.get(key).and_then(Value::as_str).map(str::to_string);
        let number = |key: &str| o.get(key).and_then(Value::as_u64);
        Some(Self {
            last: number("last")?,
            error: text("error"),
            good: number("good"),
            backup: text("backup"),
            read: number("read").unwrap_or(0),
            stored: number("stored").unwrap_or(0),
            trial: number("trial"),
            trial_good: number("trial_good"),
            trial_error: text("trial_error"),
            pruned: number("pruned"),
        })
    }

    /// Whether the next backup of its policy is due. One that failed is tried again sooner.
    pub fn is_due(&self, every: u64, now: u64) -> bool {
        let pause = match self.error {
            Some(_) => every.min(GRACE_SEC),
            None => every,
        };
        now >= self.last.saturating_add(pause)
    }

    pub fn is_trial_due(&self, every: u64, now: u64) -> bool {
        let pause = match self.trial_error {
            Some(_) => every.min(3600),
            None => every,
        };
        self.good.is_some() && self.trial.is_none_or(|at| now >= at.saturating_add(pause))
    }
}

pub fn policy_key(name: &str) -> String {
    format!("{POLICY}{name}")
}

/// `image` is empty for a policy as a whole.
pub fn row_key(policy: &str, image: &str) -> String {
    match image {
        "" => format!("{ROW}{policy}"),
        image => format!("{ROW}{policy}/{image}"),
    }
}

type Keys = BTreeMap<String, Bytes>;

fn below<'a>(keys: &'a Keys, prefix: &'static str) -> impl Iterator<Item = (&'a str, &'a Bytes)> {
    let from = keys.range(prefix.to_string()..);
    from.map_while(move |(k, v)| Some((k.strip_prefix(prefix)?, v)))
}

pub fn policies(keys: &Keys) -> Vec<Policy> {
    below(keys, POLICY)
        .filter_map(|(name, v)| Policy::parse(name, v))
        .collect()
}

/// By policy and image.
pub fn rows(keys: &Keys) -> BTreeMap<(String, String), Row> {
    let row = |(name, v): (&str, &Bytes)| {
        let (policy, image) = name.split_once('/').unwrap_or((name, ""));
        Some(((policy.to_string(), image.to_string()), Row::parse(v)?))
    };
    below(keys, ROW).filter_map(row).collect()
}

/// What is wrong, a sentence for each image.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Trouble {
    pub stale: Vec<String>,
    pub failed: Vec<String>,
    pub trial: Vec<String>,
}

pub fn trouble(state: &ClusterState, now: u64) -> Trouble {
    judge(&state.config_keys, now)
}

fn judge(keys: &Keys, now: u64) -> Trouble {
    let (mut found, rows) = (Trouble::default(), rows(keys));
    for policy in policies(keys) {
        let name = &policy.name;
        let late = policy.every.saturating_mul(2) + GRACE_SEC;
        let ours = rows.iter().filter(|((p, _), _)| p == name);
        let images: Vec<_> = ours.clone().filter(|((_, image), _)| !image.is_empty()).collect();
        for ((_, image), row) in ours {
            let what = if image.is_empty() { &policy.of } else { image };
            if let Some(why) = &row.error {
                found.failed.push(format!("policy {name}: {what}: {why}"));
            }
        }
        if images.is_empty() && now.saturating_sub(policy.since) > late {
            found.stale.push(format!(
                "policy {name}: no backup of {} yet; does host {} run it?",
                policy.of, policy.host
            ));
        }
        for ((_, image), row) in images {
            let newest = row.good.unwrap_or(policy.since);
            if now.saturating_sub(newest) > late {
                let age = now.saturating_sub(newest);
                found.stale.push(format!(
                    "policy {name}: the newest backup of {image} is {age} s old, in place of {} s",
                    policy.every
                ));
            }
            let Some(trial) = policy.trial else { continue };
            let tried = row.trial_good.unwrap_or(policy.since);
            match &row.trial_error {
                Some(why) => found.trial.push(format!("policy {name}: {image}: {why}")),
                None if now.saturating_sub(tried) > trial.saturating_mul(2) + late => {
                    found.trial.push(format!(
                        "policy {name}: {image} was not tried for {} s",
                        now - tried
                    ));
                }
                None => {}
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(trial: Option<u64>) -> Policy {
        Policy {
            name: "nightly".into(),
            of: "rbd/vm*".into(),
            to: "/backup".into(),
            every: 3600,
            keep: "1d:1h".into(),
            key_file: "/k".into(),
            compress: true,
            trial,
            host: "a".into(),
            since: 1000,
        }
    }

    fn keys(policy: &Policy, rows: &[(&str, Row)]) -> Keys {
        let bytes = |v: Value| Bytes::from(v.to_string());
        let mut keys = Keys::new();
        keys.insert(policy_key(&policy.name), bytes(policy.json()));
        for (image, row) in rows {
            keys.insert(row_key(&policy.name, image), bytes(row.json()));
        }
        // Of others, and broken ones.
        keys.insert("skep/backup/row0".into(), Bytes::from_static(b"{}"));
        keys.insert("skep/backup/policy/x".into(), Bytes::from_static(b"[1]"));
        keys
    }

    fn good(at: u64) -> Row {
        Row {
            last: at,
            good: Some(at),
            ..Row::default()
        }
    }

    #[test]
    fn they_are_read_as_they_were_written() {
        let row = Row {
            trial: Some(4),
            trial_error: Some("why".into()),
            read: 7,
            ..good(5)
        };
        let keys = keys(
            &policy(Some(9)),
            &[("rbd/vm1", row.clone()), ("", Row::default())],
        );
        assert_eq!(policies(&keys), [policy(Some(9))]);
        let rows = rows(&keys);
        assert_eq!(rows[&("nightly".into(), "rbd/vm1".into())], row);
        assert_eq!(rows.len(), 2);
        assert!(is_name("a-1.b_c") && !is_name("a/b") && !is_name("") && !is_name(&"x".repeat(65)));
    }

    #[test]
    fn alarms() {
        let late = 2 * 3600 + GRACE_SEC;
        let fresh = keys(&policy(None), &[("rbd/vm1", good(10_000))]);
        assert_eq!(judge(&fresh, 10_000 + late), Trouble::default());
        assert_eq!(judge(&fresh, 10_001 + late).stale.len(), 1);
        let none = keys(&policy(None), &[]);
        assert_eq!(judge(&none, 1000 + late), Trouble::default());
        assert_eq!(judge(&none, 1001 + late).stale.len(), 1, "nobody runs it");
        let error = Some("no room".to_string());
        let bad = Row {
            error: error.clone(),
            ..good(10_000)
        };
        let found = judge(&keys(&policy(None), &[("rbd/vm1", bad)]), 10_000);
        assert_eq!(found.failed, ["policy nightly: rbd/vm1: no room"]);
        let untried = keys(&policy(Some(100)), &[("rbd/vm1", good(20_000))]);
        assert_eq!(judge(&untried, 20_000).trial.len(), 1, "never");
        let tried = Row {
            trial_good: Some(20_000),
            trial_error: error,
            ..good(20_000)
        };
        assert_eq!(
            judge(&keys(&policy(Some(100)), &[("rbd/vm1", tried)]), 20_000)
                .trial
                .len(),
            1
        );
    }

    #[test]
    fn what_failed_is_tried_again_sooner() {
        let bad = Row {
            error: Some("x".into()),
            ..good(1000)
        };
        assert!(!good(1000).is_due(3600, 4599) && good(1000).is_due(3600, 4600));
        assert!(!bad.is_due(3600, 1599) && bad.is_due(3600, 1600));
        assert!(Row::default().is_due(3600, 1_000_000));
        assert!(good(1000).is_trial_due(60, 1000) && !Row::default().is_trial_due(60, 1000));
    }
}
