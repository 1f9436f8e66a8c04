//! Which form the keys have: what a program must know to read this cluster's state.
//!
//! Two things are written under [`keys::FORMAT`]: a *version*, which grows when an older program would misread keys that it
//! knows, and *features*, one bit for each addition that a program must know of once it is in use. The key itself keeps its
//! form for ever; fields may be added behind.
//!
//! Invariants: a state of a newer version, or with a feature that is not in [`FEATURES`], is not read at all, neither at
//! start nor when it becomes so while a program runs. An older one is read. A state without the key is of version 1: the
//! first commit adds it.
//!
//! Not here: changing a state to a newer version. The change that needs one brings its own step.

use crate::keys;
use crate::{Error, Result};
use bytes::Bytes;
use denc::Decode;

/// What this program writes, and the newest that it reads.
pub const VERSION: u32 = 1;
/// Features that this program knows: the bit's place, and what it stands for.
pub const FEATURES: &[(u32, &str)] = &[
    (Feature::Merges as u32, "placement groups were merged"),
    (Feature::Shards as u32, "there are pools of shards"),
    (Feature::Followers as u32, "standbys may follow metadata servers"),
];

/// What a program must know of once it is in use, by the bit's place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Feature {
    Merges = 0,
    /// Erasure-coded pools: who leads one of their groups, and which OSD has which shard, is kept by rules that older programs
    /// do not know.
    Shards = 1,
    /// `allow_standby_replay` of a file system: older programs take a follower for who holds its rank. Gone when no file system has it.
    Followers = 2,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Format {
    pub version: u32,
    pub features: u64,
}
denc::envelope_denc!(Format, 1, 1, { version, features });

impl Format {
    pub const CURRENT: Self = Self {
        version: VERSION,
        features: 0,
    };

    /// The features that this program knows, one bit each.
    pub fn known_features() -> u64 {
        FEATURES.iter().fold(0, |all, (bit, _)| all | 1u64 << bit)
    }

    /// The same with a feature in use.
    pub fn with(self, feature: Feature) -> Self {
        Self {
            features: self.features | 1 << feature as u32,
            ..self
        }
    }

    /// The same without it: nothing of it is left.
    pub fn without(self, feature: Feature) -> Self {
        Self {
            features: self.features & !(1 << feature as u32),
            ..self
        }
    }

    /// From the key's value.
    pub fn read(raw: &Bytes) -> Result<Self> {
        let read = Self::from_bytes(raw).map_err(|e| Error::BadValue {
            key: keys::FORMAT.into(),
            why: e.to_string(),
        })?;
        read.check()?;
        Ok(read)
    }

    /// Whether this program may read such a state.
    fn check(self) -> Result<()> {
        if self.version > VERSION {
            return Err(Error::Newer(format!(
                "the cluster state has format {}, and this program reads formats up to {VERSION}: a newer Skep has \
                 written it; start that one",
                self.version
            )));
        }
        match self.features & !Self::known_features() {
            0 => Ok(()),
            unknown => Err(Error::Newer(format!(
                "the cluster state uses features that this program does not know (bits {unknown:#x}): a newer Skep has \
                 written it; start that one"
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use denc::Encode;

    fn read(version: u32, features: u64) -> Result<Format> {
        Format::read(&Format { version, features }.to_bytes())
    }

    #[test]
    fn what_is_newer_is_refused_with_a_clear_text() {
        assert_eq!(read(VERSION, 0).unwrap(), Format::CURRENT);
        assert!(read(0, 0).is_ok(), "older is read");
        let text = read(VERSION + 1, 0).unwrap_err().to_string();
        assert!(text.contains(&format!("format {}", VERSION + 1)), "{text}");
        assert!(text.contains("newer Skep"), "{text}");
        let text = read(VERSION, 1 << 40).unwrap_err().to_string();
        assert!(text.contains("0x10000000000"), "{text}");
        assert!(matches!(
            Format::read(&Bytes::from_static(b"?")),
            Err(Error::BadValue { .. })
        ));
    }
}
