//! The central configuration: options by section, and the log of who changed what.
//!
//! Sections are named as users write them: `global`, `mon`, `osd.1`, `client.admin`, each optionally with
//! masks (`osd/class:ssd`, `client/host:vm1`). Values are canonical text.

use denc::{Decode, Encode, Reader, Result, Writer};
use std::collections::{BTreeMap, VecDeque};
use types::{AuthName, Utime};

/// Entries of the configuration log that are kept.
pub const CONFIG_LOG_MAX: usize = 200;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConfigDb {
    /// Section (with masks) -> option -> value.
    pub sections: BTreeMap<String, BTreeMap<String, String>>,
    /// Oldest first.
    pub log: VecDeque<ConfigLogEntry>,
    /// Number of the last change; grows with each.
    pub version: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigLogEntry {
    pub version: u64,
    pub stamp: Utime,
    /// e.g. `osd.1/debug_osd`-style name of the changed option.
    pub diff: Vec<ConfigDiff>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigDiff {
    /// `section/option`.
    pub name: String,
    pub before: Option<String>,
    pub after: Option<String>,
}
denc::plain_denc!(ConfigDiff { name, before, after });

impl Encode for ConfigLogEntry {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.u64(self.version);
            w.put(&self.stamp);
            w.put(&self.diff);
        });
    }
}
impl Decode for ConfigLogEntry {
    fn decode(r: &mut Reader) -> Result<Self> {
        r.envelope(1, |_, r| {
            Ok(Self {
                version: r.u64()?,
                stamp: r.get()?,
                diff: r.get()?,
            })
        })
    }
}

impl ConfigDb {
    pub fn get(&self, section: &str, name: &str) -> Option<&str> {
        self.sections.get(section)?.get(name).map(String::as_str)
    }

    pub(crate) fn put(&mut self, section: &str, name: &str, value: Option<&str>) -> ConfigDiff {
        let options = self.sections.entry(section.to_string()).or_default();
        let before = match value {
            Some(v) => options.insert(name.to_string(), v.to_string()),
            None => options.remove(name),
        };
        if options.is_empty() {
            self.sections.remove(section);
        }
        ConfigDiff {
            name: format!("{section}/{name}"),
            before,
            after: value.map(str::to_string),
        }
    }

    /// Sections without their masks, from the most general to the most special, that concern `who`.
    /// For `client.a.b`: global, client, client.a, client.a.b.
    pub fn chain(who: &AuthName) -> Vec<String> {
        let mut chain = vec!["global".to_string(), who.kind.as_str().to_string()];
        let full = who.to_string();
        for (at, _) in full.match_indices('.').skip(1) {
            chain.push(full[..at].to_string());
        }
        chain.push(full);
        chain
    }

    /// All options that hold for `who` on `host` with device class `class`: the more special section wins;
    /// within a section a masked entry beats the plain one.
    pub fn effective(&self, who: &AuthName, host: &str, class: &str) -> BTreeMap<String, String> {
        let mut out = BTreeMap::new();
        for base in Self::chain(who) {
            let mut matching: Vec<_> = self
                .sections
                .iter()
                .filter_map(|(s, options)| Some((mask_rank(s, &base, host, class)?, options)))
                .collect();
            matching.sort_by_key(|(rank, _)| *rank);
            for (_, options) in matching {
                out.extend(options.iter().map(|(k, v)| (k.clone(), v.clone())));
            }
        }
        out
    }
}

/// How special a section is (number of its masks), if it is `base` and its masks match.
fn mask_rank(section: &str, base: &str, host: &str, class: &str) -> Option<usize> {
    let mut parts = section.split('/');
    if parts.next() != Some(base) {
        return None;
    }
    let mut rank = 0;
    for mask in parts {
        let matches = match mask.split_once(':') {
            Some(("host", v)) => v == host,
            Some(("class", v)) => v == class,
            _ => false,
        };
        if !matches {
            return None;
        }
        rank += 1;
    }
    Some(rank)
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::EntityKind;

    #[test]
    fn special_sections_and_masks_win() {
        let mut db = ConfigDb::default();
        for (s, v) in [
            ("global", "g"),
            ("client", "c"),
            ("client/host:vm1", "ch"),
            ("client.admin", "ca"),
            ("osd", "o"),
            ("osd/class:ssd", "os"),
        ] {
            db.put(s, "opt", Some(v));
        }
        let check = |kind, id: &str, host: &str, class: &str, want: &str| {
            let got = db.effective(&AuthName::new(kind, id), host, class);
            assert_eq!(
                got.get("opt").map(String::as_str),
                Some(want),
                "{kind}.{id} on {host} {class}"
            );
        };
        check(EntityKind::Client, "admin", "vm1", "", "ca");
        check(EntityKind::Client, "x", "vm1", "", "ch");
        check(EntityKind::Client, "x", "vm2", "", "c");
        check(EntityKind::Mon, "a", "vm2", "", "g");
        check(EntityKind::Osd, "1", "vm2", "ssd", "os");
        check(EntityKind::Osd, "1", "vm2", "hdd", "o");
    }
}
