//! `.meta` of a subvolume, version 2: sections of `key = value`, as Python's configparser writes them. A value of several lines goes on in
//! lines that begin with blanks.

use std::collections::BTreeMap;

pub const GLOBAL: &str = "GLOBAL";
pub const USER: &str = "USER_METADATA";
pub const COMPLETE: &str = "complete";
/// Its data were removed, its snapshots are there.
pub const RETAINED: &str = "snapshot-retained";
/// Of a clone that is not whole.
pub const PENDING: &str = "pending";
pub const IN_PROGRESS: &str = "in-progress";
pub const FAILED: &str = "failed";
pub const CANCELED: &str = "canceled";
/// The type of one that was copied, and the section that says from where.
pub const CLONE: &str = "clone";
pub const SOURCE: &str = "source";

/// Sections and keys in the order of the file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Meta(Vec<(String, Vec<(String, String)>)>);

impl Meta {
    /// Of a new subvolume.
    pub fn of_path(path: &str) -> Self {
        let mut meta = Self::default();
        for (key, value) in [
            ("version", "2"),
            ("type", "subvolume"),
            ("path", path),
            ("state", COMPLETE),
        ] {
            meta.set(GLOBAL, key, value);
        }
        meta
    }

    /// None: it is none.
    pub fn parse(text: &str) -> Option<Self> {
        let mut meta = Self::default();
        for line in text.lines() {
            if line.trim().is_empty() || line.starts_with(['#', ';']) {
                continue;
            }
            if line.starts_with([' ', '\t']) {
                let (_, value) = meta.0.last_mut()?.1.last_mut()?;
                value.push('\n');
                value.push_str(line.trim());
            } else if let Some(name) = line.strip_prefix('[') {
                let name = name.trim_end().strip_suffix(']')?;
                meta.0.push((name.to_string(), Vec::new()));
            } else {
                let (key, value) = line.split_once('=')?;
                let entry = (key.trim().to_string(), value.trim().to_string());
                meta.0.last_mut()?.1.push(entry);
            }
        }
        meta.get(GLOBAL, "version").is_some().then_some(meta)
    }

    pub fn text(&self) -> String {
        let mut out = String::new();
        for (name, entries) in &self.0 {
            out += &format!("[{name}]\n");
            for (key, value) in entries {
                out += &format!("{key} = {}\n", value.replace('\n', "\n\t"));
            }
            out.push('\n');
        }
        out
    }

    fn section(&self, name: &str) -> &[(String, String)] {
        let found = self.0.iter().find(|(n, _)| n == name);
        found.map_or(&[], |(_, entries)| entries)
    }

    pub fn get(&self, section: &str, key: &str) -> Option<&str> {
        let entry = self.section(section).iter().find(|(k, _)| k == key);
        entry.map(|(_, v)| v.as_str())
    }

    pub fn set(&mut self, section: &str, key: &str, value: &str) {
        let at = self.0.iter().position(|(n, _)| n == section);
        let at = at.unwrap_or_else(|| {
            self.0.push((section.to_string(), Vec::new()));
            self.0.len() - 1
        });
        let entries = &mut self.0[at].1;
        match entries.iter_mut().find(|(k, _)| k == key) {
            Some((_, v)) => *v = value.to_string(),
            None => entries.push((key.to_string(), value.to_string())),
        }
    }

    /// False: it was not there.
    pub fn remove(&mut self, section: &str, key: &str) -> bool {
        let Some((_, entries)) = self.0.iter_mut().find(|(n, _)| n == section) else {
            return false;
        };
        let before = entries.len();
        entries.retain(|(k, _)| k != key);
        let removed = entries.len() != before;
        self.0.retain(|(n, e)| n == GLOBAL || !e.is_empty());
        removed
    }

    pub fn all(&self, section: &str) -> BTreeMap<String, String> {
        self.section(section).iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Ceph 16.2.15 left it.
    const RECORDED: &str = "[GLOBAL]\nversion = 2\ntype = subvolume\n\
        path = /volumes/_nogroup/s1/179a1a5f-97b7-4e25-96f0-16effcb57be1\nstate = complete\n\n\
        [USER_METADATA]\nk1 = v1\n\n";

    #[test]
    fn it_is_written_as_it_was_recorded() {
        let mut meta = Meta::of_path("/volumes/_nogroup/s1/179a1a5f-97b7-4e25-96f0-16effcb57be1");
        meta.set(USER, "k1", "v1");
        assert_eq!(meta.text(), RECORDED);
        assert_eq!(Meta::parse(RECORDED), Some(meta.clone()));
        assert!(meta.remove(USER, "k1") && !meta.remove(USER, "k1"));
        assert!(!meta.text().contains("USER_METADATA"));
    }

    #[test]
    fn values_of_several_lines_come_back() {
        let mut meta = Meta::of_path("/p");
        meta.set(USER, "k", "one\ntwo = 2\n[three]");
        assert_eq!(Meta::parse(&meta.text()), Some(meta));
        for bad in ["", "x = 1", "[GLOBAL]\nno value", " x", "[GLOBAL\nversion = 2"] {
            assert_eq!(Meta::parse(bad), None, "{bad}");
        }
    }
}
