//! Rows of the store as the state sees them: what is read, what has changed, what shall be written.
//!
//! Not here: the store, its transactions and leases (`metastore`); the names of the rows ([`crate::keys`]).

use bytes::Bytes;

/// A row as it was read.
#[derive(Debug, Clone, Copy)]
pub struct Row<'a> {
    pub key: &'a str,
    pub value: &'a Bytes,
    /// Of the commit that last changed it.
    pub revision: u64,
}

/// A row that a commit has changed.
#[derive(Debug, Clone, Copy)]
pub struct RowEvent<'a> {
    pub key: &'a str,
    /// None: it is gone.
    pub value: Option<&'a Bytes>,
    pub revision: u64,
}

/// What a change wants the store to say of one row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write {
    Put { key: String, value: Bytes },
    Delete { key: String },
}

impl Write {
    pub fn put(key: impl Into<String>, value: impl Into<Bytes>) -> Self {
        Self::Put {
            key: key.into(),
            value: value.into(),
        }
    }
    pub fn delete(key: impl Into<String>) -> Self {
        Self::Delete { key: key.into() }
    }
    pub fn key(&self) -> &str {
        match self {
            Self::Put { key, .. } | Self::Delete { key } => key,
        }
    }
}
