//! The gateway's own keys (SSE-S3), from a file: a line for each, with its name and 256 bits in base64. The first seals what is put; all of them open.
//!
//! Every gateway of a cluster needs the same file. A name is never given to another key: what was sealed under it would not open.

use crate::seal::Key;
use io::{files, task};
use std::path::Path;
use std::sync::Arc;

const FILE_BYTES_MAX: u64 = 64 << 10;
const KEYS_MAX: usize = 256;
const NAME_MAX: usize = 64;

/// Clones are the same.
#[derive(Debug, Clone, Default)]
pub struct Masters(Arc<Vec<(String, Key)>>);

impl Masters {
    /// An error in a sentence, which has nothing of a key.
    pub async fn open(path: &Path) -> Result<Self, String> {
        let of = path.to_path_buf();
        let read = task::aside("master-keys", move || files::read_bytes(&of, FILE_BYTES_MAX));
        let read = read.await.and_then(|r| r);
        let bytes = read.map_err(|e| format!("{}: {e}", path.display()))?;
        let bytes = bytes.ok_or_else(|| format!("{} is not there", path.display()))?;
        let text = String::from_utf8(bytes).map_err(|_| format!("{} is no text", path.display()))?;
        Self::parse(&text).map_err(|e| format!("{}: {e}", path.display()))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let mut keys: Vec<(String, Key)> = Vec::new();
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
            let key = Key::from_text(key.trim()).ok_or_else(|| wrong("a key is 32 bytes in base64"))?;
            keys.push((name.to_string(), key));
        }
        match keys.len() {
            0 => Err("it has no key".into()),
            1..=KEYS_MAX => Ok(Self(Arc::new(keys))),
            _ => Err(format!("it has more than {KEYS_MAX} keys")),
        }
    }

    /// What seals what is put.
    pub fn first(&self) -> Option<(&str, &Key)> {
        self.0.first().map(|(name, key)| (name.as_str(), key))
    }

    pub fn get(&self, name: &str) -> Option<&Key> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, key)| key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";
    const B: &str = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";

    #[test]
    fn files_of_keys() {
        let keys = Masters::parse(&format!("# of 2026\nnew {A}\n\n  old\t{B}  \n")).unwrap();
        assert_eq!(keys.first().map(|k| k.0), Some("new"));
        assert!(
            keys.get("old").is_some() && keys.get("new") != keys.get("old") && keys.get("other").is_none()
        );
        assert!(!format!("{keys:?}").contains(A));
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
            let said = Masters::parse(bad).unwrap_err();
            assert!(said.contains(why) && !said.contains(A), "{said}");
        }
        let many: String = (0..=KEYS_MAX).map(|n| format!("k{n} {A}\n")).collect();
        assert!(Masters::parse(&many).unwrap_err().contains("256"));
    }
}
