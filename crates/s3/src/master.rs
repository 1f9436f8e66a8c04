//! The gateway's own keys (SSE-S3), from a file: a line for each, with its name and 256 bits in base64. The first seals what is put; all of them open.
//!
//! Every gateway of a cluster needs the same file. A name is never given to another key: what was sealed under it would not open.

use crate::seal::Key;
use io::key_file::KeyFile;
use io::task;
use std::path::Path;
use std::sync::Arc;

/// Clones are the same.
#[derive(Debug, Clone, Default)]
pub struct Masters(Arc<Vec<(String, Key)>>);

impl Masters {
    /// An error in a sentence, which has nothing of a key.
    pub async fn open(path: &Path) -> Result<Self, String> {
        let of = path.to_path_buf();
        let read = task::aside("master-keys", move || KeyFile::read(&of));
        let read = read.await.map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(Self::of(&read?))
    }

    fn of(file: &KeyFile) -> Self {
        let key = |name: &str| Some((name.to_string(), Key::new(file.get(name)?)?));
        Self(Arc::new(file.names().filter_map(key).collect()))
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

    #[test]
    fn all_keys_of_a_file_are_there_and_are_not_shown() {
        const A: &str = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";
        let file = KeyFile::parse(&format!(
            "new {A}\nold AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n"
        ))
        .unwrap();
        let keys = Masters::of(&file);
        assert_eq!(keys.first().map(|k| k.0), Some("new"));
        assert!(
            keys.get("old").is_some() && keys.get("new") != keys.get("old") && keys.get("other").is_none()
        );
        assert!(!format!("{keys:?}").contains(A));
    }
}
