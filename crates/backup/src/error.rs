//! Why something was not done.

use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: std::io::Error },
    /// A sentence for a person.
    #[error("{0}")]
    Refused(String),
    /// Others work on the repository: it can be tried again.
    #[error("{0}")]
    Busy(String),
    /// What was read is not what was written.
    #[error("the repository is damaged: {0}")]
    Damaged(String),
    #[error("{0}")]
    Rbd(#[from] rbd::Error),
    #[error("{0}")]
    Cluster(#[from] client::Error),
}

pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub fn refused(what: impl Into<String>) -> Self {
        Self::Refused(what.into())
    }

    pub(crate) fn damaged(what: impl Into<String>) -> Self {
        Self::Damaged(what.into())
    }

    pub(crate) fn io(path: &Path, source: std::io::Error) -> Self {
        Self::Io {
            path: path.to_path_buf(),
            source,
        }
    }
}
