//! Why something was not done.

use types::Errno;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The cluster, or the way to it.
    #[error("{0}")]
    Rados(#[from] client::Error),
    /// Refused here; `what` says why to a person.
    #[error("{what}")]
    Refused { errno: Errno, what: String },
}

pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub fn refused(errno: Errno, what: impl Into<String>) -> Self {
        Self::Refused {
            errno,
            what: what.into(),
        }
    }

    pub fn unsupported(what: impl Into<String>) -> Self {
        Self::refused(Errno::EOPNOTSUPP, what)
    }

    pub fn errno(&self) -> Errno {
        match self {
            Self::Rados(e) => e.errno(),
            Self::Refused { errno, .. } => *errno,
        }
    }

    pub fn is_not_found(&self) -> bool {
        self.errno() == Errno::ENOENT
    }

    /// The same error with what it was about in front.
    pub fn about(self, what: &str) -> Self {
        Self::Refused {
            errno: self.errno(),
            what: format!("{what}: {self}"),
        }
    }
}

impl From<denc::Error> for Error {
    fn from(e: denc::Error) -> Self {
        Self::Rados(e.into())
    }
}

/// ENOENT is as good as done.
pub(crate) fn or_missing(done: Result<()>) -> Result<()> {
    match done {
        Err(e) if e.is_not_found() => Ok(()),
        other => other,
    }
}
