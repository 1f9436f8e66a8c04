//! What comes of a change of pools: done, not needed, or refused.

use types::osdmap::{Incremental, OsdMap};
use types::pool::PgPool;
use types::{Errno, PoolId};

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct PoolError {
    pub errno: Errno,
    pub text: String,
}

pub type Result<T> = std::result::Result<T, PoolError>;

pub(crate) fn refuse<T>(errno: Errno, text: impl Into<String>) -> Result<T> {
    Err(PoolError {
        errno,
        text: text.into(),
    })
}

/// What came of a request that succeeded; the text is Ceph's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Done {
    Changed(String),
    Already(String),
}

impl Done {
    pub fn text(&self) -> &str {
        match self {
            Self::Changed(t) | Self::Already(t) => t,
        }
    }
}

/// The pool as it will be, for a change.
pub(crate) fn pool_mut<'a>(map: &OsdMap, inc: &'a mut Incremental, id: PoolId) -> Result<&'a mut PgPool> {
    match inc.pool_mut(map, id) {
        Some(pool) => Ok(pool),
        None => refuse(Errno::ENOENT, format!("unrecognized pool '{id}'")),
    }
}
