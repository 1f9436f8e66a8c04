//! What a change is made of, why one is not made now, and what a start finds.

use super::loads::PageRead;
use crate::journal::Change;
use crate::row::{Inode, Key, Row};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A connection, by the shell's number.
pub type Conn = u64;
/// A client's number in the cluster.
pub type ClientId = u64;

/// Why a request is not carried out now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    Error(types::Errno),
    /// Rows have to be read.
    Load(Vec<Key>),
    Page(PageRead),
    /// It was registered where it waits.
    Wait,
}

impl From<types::Errno> for Stop {
    fn from(e: types::Errno) -> Self {
        Self::Error(e)
    }
}

pub type Result<T> = std::result::Result<T, Stop>;

/// Of things that are asked back of several, all before any is waited for: goes on when all are there.
pub fn all<const N: usize>(asked: [Result<()>; N]) -> Result<()> {
    asked.into_iter().collect()
}

/// What is to become true, all at once.
#[derive(Debug, Default)]
pub struct Tx {
    pub changes: Vec<Change>,
    /// Inodes whose new state belongs to snapshots behind this one, too: who changed them had not heard of these.
    pub follows: BTreeMap<u64, u64>,
    /// Versions of inodes as they are listed from now on, and the first snapshot that sees what is there now.
    pub versions: BTreeMap<u64, (Vec<(u64, u64)>, u64)>,
}

impl Tx {
    pub fn put(&mut self, key: Key, row: Row) {
        self.changes.push((key, Some(row)));
    }

    pub fn remove(&mut self, key: Key) {
        self.changes.push((key, None));
    }

    pub fn inode(&mut self, inode: Inode) {
        self.put(Key::inode(inode.ino), Row::Inode(Arc::new(inode)));
    }
}

/// What was found in the pool.
#[derive(Debug, Default)]
pub struct Start {
    pub tables: Vec<(Key, Row)>,
    pub journal: crate::journal::Replayed,
    /// Segments that are there: number, bytes, and its first transaction.
    pub segments: Vec<(u64, u64, u64)>,
    pub next_segment: u64,
    pub next_tx: u64,
    /// Nothing was ever written.
    pub is_new: bool,
}
