//! Files of keys: a line for each, with its name and 256 bits in base64. The first one is for what is new; all of them are for what is there.
//!
//! A name is never given to another key: what was sealed under it would not open.

use crate::files;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

pub const KEY_BYTES: usize = 32;
const FILE_BYTES_MAX: u64 = 64 << 10;
const KEYS_MAX: usize = 256;
pub const NAME_MAX: usize = 64;

/// Clones are the same.
#[derive(Clone, Default)]
pub struct KeyFile(Arc<Vec<(String, [u8; KEY_BYTES])>>);

impl fmt::Debug for KeyFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.0.iter().map(|(name, _)| name))
            .finish()
    }
}

impl KeyFile {
    /// An error in a sentence, which has nothing of a key.
    pub fn read(path: &Path) -> Result<Self, String> {
        let told = |e: &dyn fmt::Display| format!("{}: {e}", path.display());
        let bytes = files::read_bytes(path, FILE_BYTES_MAX).map_err(|e| told(&e))?;
        let bytes = bytes.ok_or_else(|| format!("{} is not there", path.display()))?;
        let text = String::from_utf8(bytes).map_err(|_| format!("{} is no text", path.display()))?;
        Self::parse(&text).map_err(|e| told(&e))
    }

    pub fn parse(text: &str) -> Result<Self, String> {
        let mut keys: Vec<(String, [u8; KEY_BYTES])> = Vec::new();
        for (n, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = |what: &str| format!("line {}: {what}", n + 1);
            let (name, key) = line
                .split_once(char::is_whitespace)
                .ok_or_else(|| wrong("a name, a blank, and a key are wanted"))?;
            let good = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
            if name.len() > NAME_MAX || !name.chars().all(good) {
                return Err(wrong("a name is at most 64 letters, digits, '-', '_', '.'"));
            }
            if keys.iter().any(|(known, _)| known == name) {
                return Err(wrong("this name is there twice"));
            }
            let key = BASE64_STANDARD.decode(key.trim()).ok();
            let key = key.and_then(|k| <[u8; KEY_BYTES]>::try_from(k).ok());
            keys.push((
                name.to_string(),
                key.ok_or_else(|| wrong("a key is 32 bytes in base64"))?,
            ));
        }
        match keys.len() {
            0 => Err("it has no key".into()),
            1..=KEYS_MAX => Ok(Self(Arc::new(keys))),
            _ => Err(format!("it has more than {KEYS_MAX} keys")),
        }
    }

    /// For what is new.
    pub fn first(&self) -> Option<(&str, &[u8; KEY_BYTES])> {
        self.0.first().map(|(name, key)| (name.as_str(), key))
    }

    pub fn get(&self, name: &str) -> Option<&[u8; KEY_BYTES]> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, key)| key)
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";
    const B: &str = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";

    #[test]
    fn files_of_keys() {
        let keys = KeyFile::parse(&format!("# of 2026\nnew {A}\n\n  old\t{B}  \n")).unwrap();
        assert_eq!(keys.first().map(|k| k.0), Some("new"));
        assert!(
            keys.get("old").is_some() && keys.get("new") != keys.get("old") && keys.get("other").is_none()
        );
        assert_eq!(format!("{keys:?}"), r#"["new", "old"]"#);
        for (bad, why) in [
            ("", "no key"),
            ("# nothing", "no key"),
            (A, "line 1: a name"),
            ("a b", "line 1: a key"),
            ("a c2hvcnQ=", "32 bytes"),
            (&format!("a {A}\na {B}"), "line 2: this name is there twice"),
            (&format!("a/b {A}"), "letters"),
            (&format!("{} {A}", "n".repeat(65)), "64"),
        ] {
            let said = KeyFile::parse(bad).unwrap_err();
            assert!(said.contains(why) && !said.contains(A), "{said}");
        }
        let many: String = (0..=KEYS_MAX).map(|n| format!("k{n} {A}\n")).collect();
        assert!(KeyFile::parse(&many).unwrap_err().contains("256"));
    }
}
