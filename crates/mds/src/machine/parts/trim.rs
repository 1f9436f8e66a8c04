//! How far what only a removed snapshot showed has gone.

use crate::row::Key;
use bytes::Bytes;

#[derive(Debug)]
pub struct Trim {
    pub job: u64,
    pub snap: u64,
    /// The object that is read next, and behind which key.
    pub shard: u64,
    pub after: Bytes,
    /// The last row in memory that was looked at.
    pub at: Option<Key>,
    pub reading: bool,
    pub ending: bool,
}
