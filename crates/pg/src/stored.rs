//! What a store tells, beside data: numbers of transactions, sizes, rows, and that it cannot read.

use bytes::Bytes;

/// Number of a submitted transaction in its store. 0: before all.
pub type Seq = u64;

/// The store could not give what it holds (a medium error, a checksum that does not fit): EIO to the client.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub struct IoError(pub String);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObjectStat {
    pub size: u64,
    /// Rows of omap.
    pub omap_keys: u64,
    /// Their keys and values together.
    pub omap_bytes: u64,
    /// Memory that its record takes, roughly: what a look at it costs.
    pub weight: u64,
}

/// Some rows of an object's omap.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OmapPage {
    pub rows: Vec<(Bytes, Bytes)>,
    /// Others follow.
    pub more: bool,
}
