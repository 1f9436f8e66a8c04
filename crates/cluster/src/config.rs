//! The central configuration: options by section, and the log of who changed what.
//!
//! Sections are named as users write them: `global`, `mon`, `osd.1`, `client.admin`, each optionally with
//! masks (`osd/class:ssd`, `client/host:vm1`). Values are canonical text.

use denc::{Decode, Encode, Reader, Result, Writer};
use std::collections::{BTreeMap, VecDeque};
use types::{AuthName, Utime};

/// Entries of the configuration log that are kept.
pub const CONFIG_LOG_MAX: usize = 200;
/// Where options of gateways of objects are set, whoever they are.
const RGW: &str = "client.rgw";

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

/// An option as it is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting<'a> {
    /// With its masks.
    pub section: &'a str,
    pub value: &'a str,
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

    /// All options that hold for `who` on `host` with device class `class`, with the place of each that won.
    pub fn in_force(&self, who: &AuthName, host: &str, class: &str) -> BTreeMap<&str, Setting<'_>> {
        let mut out = BTreeMap::new();
        for (section, options) in self.matching(&Self::chain(who), host, class) {
            out.extend(
                options
                    .iter()
                    .map(|(name, value)| (name.as_str(), Setting { section, value })),
            );
        }
        out
    }

    /// [`Self::in_force`] without the places.
    pub fn effective(&self, who: &AuthName, host: &str, class: &str) -> BTreeMap<String, String> {
        let all = self.in_force(who, host, class).into_iter();
        all.map(|(name, s)| (name.to_string(), s.value.to_string()))
            .collect()
    }

    /// One of them.
    pub fn value(&self, who: &AuthName, host: &str, class: &str, name: &str) -> Option<&str> {
        let sections = self.matching(&Self::chain(who), host, class);
        let set = sections
            .into_iter()
            .rev()
            .find_map(|(_, options)| options.get(name));
        set.map(String::as_str)
    }

    /// What holds for a gateway of objects on `host` that is `who`: of `client.rgw`, too, below what is set for itself.
    pub fn for_gateway(&self, who: &AuthName, host: &str) -> BTreeMap<&str, &str> {
        let mut chain = Self::chain(who);
        if !chain.iter().any(|section| section == RGW) {
            // Behind `global` and `client`.
            chain.insert(2, RGW.to_string());
        }
        let all = self.matching(&chain, host, "").into_iter();
        all.flat_map(|(_, options)| options)
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect()
    }

    /// The sections that are in `chain` and concern this host and class, the weakest first: more masks win over fewer; among as many, the
    /// more special section over the more general one.
    fn matching(&self, chain: &[String], host: &str, class: &str) -> Vec<(&str, &BTreeMap<String, String>)> {
        let mut found: Vec<_> = self
            .sections
            .iter()
            .filter_map(|(section, options)| {
                let (base, masks) = section.split_once('/').unwrap_or((section, ""));
                let depth = chain.iter().position(|c| c == base)?;
                Some((
                    (matching_masks(masks, host, class)?, depth),
                    section.as_str(),
                    options,
                ))
            })
            .collect();
        found.sort_by_key(|(rank, _, _)| *rank);
        found
            .into_iter()
            .map(|(_, section, options)| (section, options))
            .collect()
    }
}

/// How many masks there are, if all of them match.
fn matching_masks(masks: &str, host: &str, class: &str) -> Option<usize> {
    let mut masks = masks.split('/').filter(|m| !m.is_empty());
    masks.try_fold(0, |count, mask| {
        let matches = match mask.split_once(':') {
            Some(("host", v)) => v == host,
            Some(("class", v)) => v == class,
            _ => false,
        };
        matches.then_some(count + 1)
    })
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
        check(EntityKind::Client, "admin", "vm1", "", "ch");
        check(EntityKind::Client, "admin", "vm2", "", "ca");
        check(EntityKind::Client, "x", "vm1", "", "ch");
        check(EntityKind::Client, "x", "vm2", "", "c");
        check(EntityKind::Mon, "a", "vm2", "", "g");
        check(EntityKind::Osd, "1", "vm2", "ssd", "os");
        check(EntityKind::Osd, "1", "vm2", "hdd", "o");
    }

    /// A masked entry of a general section lost against a plain one of a special section, while `config get` said that it won.
    #[test]
    fn more_masks_win_over_a_more_special_section() {
        let mut db = ConfigDb::default();
        for (s, v) in [
            ("global/host:a", "gh"),
            ("osd/class:ssd/host:a", "och"),
            ("osd/class:ssd", "oc"),
            ("osd.1", "one"),
            ("osd.2/host:a", "two"),
        ] {
            db.put(s, "opt", Some(v));
        }
        for (id, host, class, want) in [
            ("1", "a", "ssd", "osd/class:ssd/host:a=och"),
            ("1", "b", "ssd", "osd/class:ssd=oc"),
            ("1", "a", "hdd", "global/host:a=gh"),
            ("1", "b", "hdd", "osd.1=one"),
            ("2", "a", "hdd", "osd.2/host:a=two"),
        ] {
            let who = AuthName::new(EntityKind::Osd, id);
            let got = db.in_force(&who, host, class)["opt"];
            assert_eq!(
                format!("{}={}", got.section, got.value),
                want,
                "osd.{id} on {host} {class}"
            );
            assert_eq!(db.value(&who, host, class, "opt"), Some(got.value));
            assert_eq!(db.effective(&who, host, class)["opt"], got.value);
        }
        assert_eq!(
            db.value(&AuthName::new(EntityKind::Osd, "3"), "b", "", "opt"),
            None
        );
    }
}
