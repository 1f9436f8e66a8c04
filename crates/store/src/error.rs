//! What can go wrong, in one clear sentence each.

use std::sync::Arc;
use types::{Errno, ObjectId, SPgId, Uuid};

#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    #[error("{path}: not a store ({why})")]
    NotAStore { path: String, why: &'static str },
    #[error("{path}: already holds a store")]
    AlreadyAStore { path: String },
    #[error("{path}: belongs to cluster {found}, not to {wanted}")]
    OtherCluster { path: String, found: Uuid, wanted: Uuid },
    #[error("{path}: is the store of osd.{found} ({found_uuid}), not of osd.{wanted} ({wanted_uuid})")]
    OtherOsd {
        path: String,
        found: i32,
        found_uuid: Uuid,
        wanted: i32,
        wanted_uuid: Uuid,
    },
    #[error("{path}: format {found} is newer than this program, which knows {known}")]
    NewerFormat { path: String, found: u32, known: u32 },
    /// Bits count from 0.
    #[error(
        "{path}: a newer program has used this store: it has feature bit {bits}, and this program knows bit {known} only"
    )]
    UnknownFeatures {
        path: String,
        bits: String,
        known: String,
    },
    #[error("{path}: another process has this store open")]
    Locked { path: String },
    #[error("{path}: cannot {action}: {source}")]
    Io {
        path: String,
        action: &'static str,
        #[source]
        source: Arc<std::io::Error>,
    },
    #[error("{path}: the index is damaged or unreadable: {why}")]
    Index { path: String, why: String },
    /// Data that was durable is gone: nothing is dropped in silence.
    #[error("{path}: the log is damaged at byte {offset}: {why}")]
    LogDamaged {
        path: String,
        offset: u64,
        why: &'static str,
    },
    #[error("object {object} has a bad block at byte {offset}")]
    Corrupt { object: String, offset: u64 },
    #[error("object {0} does not exist")]
    NoObject(String),
    #[error("object {0} exists already")]
    ObjectExists(String),
    #[error("collection {0} does not exist")]
    NoCollection(SPgId),
    #[error("collection {0} exists already")]
    CollectionExists(SPgId),
    #[error("{what} is refused: {size} bytes, at most {limit}")]
    TooBig {
        what: &'static str,
        size: u64,
        limit: u64,
    },
    #[error("log version {version} does not ascend in collection {collection}")]
    LogOrder { collection: SPgId, version: String },
    #[error("no space left in the store ({free} bytes free, {reserve} of them reserved)")]
    NoSpace { free: u64, reserve: u64 },
    /// What it had in hand may be half done: nothing goes on from there.
    #[error("{path}: its thread {thread} has panicked")]
    Panicked { path: String, thread: &'static str },
    /// A write or flush failed before: the store has stopped for good.
    #[error("the store has stopped: {0}")]
    Stopped(Arc<Error>),
}

pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn io(path: &str, action: &'static str, source: std::io::Error) -> Self {
        Self::Io {
            path: path.to_owned(),
            action,
            source: Arc::new(source),
        }
    }

    pub(crate) fn no_object(oid: &ObjectId) -> Self {
        Self::NoObject(oid.object.to_string())
    }

    /// The number that answers a client.
    pub fn errno(&self) -> Errno {
        match self {
            Self::NoObject(_) | Self::NoCollection(_) => Errno::ENOENT,
            Self::ObjectExists(_) | Self::CollectionExists(_) => Errno::EEXIST,
            Self::TooBig { .. } => Errno::EFBIG,
            Self::LogOrder { .. } => Errno::EINVAL,
            Self::NoSpace { .. } => Errno::ENOSPC,
            _ => Errno::EIO,
        }
    }

    /// True where the store can go on: the transaction was refused, or one block is bad.
    pub fn is_refusal(&self) -> bool {
        matches!(
            self,
            Self::NoObject(_)
                | Self::NoCollection(_)
                | Self::ObjectExists(_)
                | Self::CollectionExists(_)
                | Self::TooBig { .. }
                | Self::LogOrder { .. }
                | Self::NoSpace { .. }
                | Self::Corrupt { .. }
        )
    }
}
