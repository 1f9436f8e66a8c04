//! The JSON documents of a repository, as restic's design document has them.

use crate::{Error, Result};
use aws_lc_rs::digest::{SHA256, digest};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The SHA-256 of what it names.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id(pub [u8; 32]);

impl Id {
    pub fn of(bytes: &[u8]) -> Self {
        let mut id = [0; 32];
        id.copy_from_slice(digest(&SHA256, bytes).as_ref());
        Self(id)
    }

    /// Of its 64 lower-case hexadecimal digits.
    pub fn parse(text: &str) -> Option<Self> {
        let mut id = [0; 32];
        let lower = text.len() == 64 && !text.contains(|c: char| c.is_ascii_uppercase());
        (lower && hex::decode_to_slice(text, &mut id).is_ok()).then_some(Self(id))
    }

    /// The first digits, for people.
    pub fn short(&self) -> String {
        hex::encode(&self.0[..4])
    }
}

impl std::fmt::Display for Id {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl std::fmt::Debug for Id {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.short())
    }
}

impl Serialize for Id {
    fn serialize<S: Serializer>(&self, to: S) -> std::result::Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(from)?;
        Self::parse(&text).ok_or_else(|| D::Error::custom("not an id"))
    }
}

pub fn json(value: &impl Serialize) -> Result<Vec<u8>> {
    serde_json::to_vec(value).map_err(|e| Error::refused(format!("JSON: {e}")))
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Config {
    pub version: u32,
    pub id: String,
    pub chunker_polynomial: String,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct KeyFile {
    pub created: String,
    #[serde(default)]
    pub username: String,
    #[serde(default)]
    pub hostname: String,
    pub kdf: String,
    #[serde(rename = "N")]
    pub n: u64,
    pub r: u32,
    pub p: u32,
    pub salt: String,
    pub data: String,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct MasterKey {
    pub mac: Mac,
    pub encrypt: String,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Mac {
    pub k: String,
    pub r: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    Data,
    Tree,
}

#[derive(Debug, Default, Serialize, Deserialize)]
pub struct IndexFile {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub supersedes: Vec<Id>,
    #[serde(default)]
    pub packs: Vec<IndexPack>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct IndexPack {
    pub id: Id,
    pub blobs: Vec<IndexBlob>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexBlob {
    pub id: Id,
    #[serde(rename = "type")]
    pub kind: Kind,
    pub offset: u32,
    /// Sealed, in the pack.
    pub length: u32,
    /// Of a compressed one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uncompressed_length: Option<u32>,
}

/// restic's snapshot.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Manifest {
    pub time: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Id>,
    pub tree: Id,
    #[serde(default)]
    pub paths: Vec<String>,
    #[serde(default)]
    pub hostname: String,
    #[serde(default)]
    pub username: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Tree {
    pub nodes: Vec<Node>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Node {
    pub name: String,
    #[serde(rename = "type")]
    pub kind: String,
    /// As Go has it.
    #[serde(default)]
    pub mode: u32,
    #[serde(default)]
    pub mtime: String,
    #[serde(default)]
    pub atime: String,
    #[serde(default)]
    pub ctime: String,
    #[serde(default)]
    pub uid: u32,
    #[serde(default)]
    pub gid: u32,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub size: u64,
    #[serde(default)]
    pub content: Option<Vec<Id>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subtree: Option<Id>,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

const FILE: u32 = 0o600;
/// Go's bit of directories.
const FOLDER: u32 = 1 << 31 | 0o700;

impl Node {
    fn new(name: &str, kind: &str, mode: u32, time: &str) -> Self {
        Self {
            name: quoted(name),
            kind: kind.into(),
            mode,
            mtime: time.into(),
            atime: time.into(),
            ctime: time.into(),
            uid: 0,
            gid: 0,
            size: 0,
            content: None,
            subtree: None,
        }
    }

    pub fn file(name: &str, time: &str, size: u64, content: Vec<Id>) -> Self {
        Self {
            size,
            content: Some(content),
            ..Self::new(name, "file", FILE, time)
        }
    }

    pub fn folder(name: &str, time: &str, subtree: Id) -> Self {
        Self {
            subtree: Some(subtree),
            ..Self::new(name, "dir", FOLDER, time)
        }
    }
}

/// restic has names as Go's `strconv.Quote` writes them, without the quotes around.
fn quoted(name: &str) -> String {
    let mut out = String::new();
    for c in name.chars() {
        match c {
            '\\' | '"' => out.extend(['\\', c]),
            c if c.is_control() => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out
}

#[derive(Debug, Serialize, Deserialize)]
pub struct LockFile {
    pub time: String,
    pub exclusive: bool,
    #[serde(default)]
    pub hostname: String,
    #[serde(default)]
    pub username: String,
    #[serde(default)]
    pub pid: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_have_one_form() {
        let id = Id::of(b"abc");
        let text = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!((id.to_string(), Id::parse(text)), (text.into(), Some(id)));
        assert_eq!(Id::parse(&text.to_uppercase()), None);
        assert_eq!(Id::parse(&text[1..]), None);
    }

    #[test]
    fn names_as_go_quotes_them() {
        assert_eq!(quoted("vm-1.raw"), "vm-1.raw");
        assert_eq!(quoted("a\\b\"c\n\u{e9}"), "a\\\\b\\\"c\\u000a\u{e9}");
    }
}
