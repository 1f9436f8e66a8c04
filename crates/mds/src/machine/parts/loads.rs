//! Reads of rows that are under way, and who waits for them.

use crate::row::Key;
use crate::table::Position;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};

/// A row to be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Read {
    pub object: String,
    pub key: Bytes,
}

/// A page of a directory's names, behind a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageRead {
    pub dir: u64,
    pub after: Position,
    pub object: String,
    pub key: Bytes,
    pub max: u64,
    /// What begins behind the object's last name; None: nothing.
    pub next_hash: Option<u32>,
}

/// Rows of one page.
pub const PAGE: u64 = 1000;
/// Rows of one read, which go to the objects in which they lie.
pub const READ_MAX: usize = 2048;

#[derive(Debug, Default)]
pub struct Loads {
    pub last: u64,
    pub rows: BTreeMap<u64, Vec<Key>>,
    pub pages: BTreeMap<u64, PageRead>,
    pub reading: BTreeSet<Key>,
    pub waiting: BTreeMap<Key, Vec<u64>>,
    pub waiting_pages: BTreeMap<u64, Vec<u64>>,
}

impl Loads {
    /// The number of the last read that was begun.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// All reads up to this one have ended.
    pub fn have_ended(&self, upto: u64) -> bool {
        let begun = |first: Option<&u64>| first.is_none_or(|id| *id > upto);
        begun(self.rows.keys().next()) && begun(self.pages.keys().next())
    }

    /// Nothing is being read.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.pages.is_empty()
    }

    pub fn is_reading(&self, key: &Key) -> bool {
        self.reading.contains(key)
    }
}
