//! Why there is no answer.

use types::Errno;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The cluster's own answer.
    #[error("{what}: {errno}")]
    Refused { errno: Errno, what: String },
    /// Refused here, before anything was sent.
    #[error("{what}: {errno}")]
    Invalid { errno: Errno, what: &'static str },
    #[error("no answer within the time allowed")]
    TimedOut,
    /// As many operations or bytes are under way as the limits allow.
    #[error("too much is under way")]
    Busy,
    #[error("the client was shut down")]
    Closed,
    #[error("refused: {0}")]
    Auth(String),
    #[error("configuration: {0}")]
    Conf(String),
    #[error("malformed answer: {0}")]
    Malformed(String),
    #[error("not supported: {0}")]
    Unsupported(&'static str),
}

impl Error {
    /// As the cluster answered to `what`; `code` as it travels, negative.
    pub fn refused(code: i32, what: impl Into<String>) -> Self {
        Self::Refused {
            errno: Errno(code.saturating_neg()),
            what: what.into(),
        }
    }

    pub fn invalid(errno: Errno, what: &'static str) -> Self {
        Self::Invalid { errno, what }
    }

    /// As an error number, for callers that have to give one.
    pub fn errno(&self) -> Errno {
        match self {
            Self::Refused { errno, .. } | Self::Invalid { errno, .. } => *errno,
            Self::TimedOut => Errno::ETIMEDOUT,
            Self::Busy => Errno::EBUSY,
            Self::Closed => Errno::ENOTCONN,
            Self::Auth(_) => Errno::EACCES,
            Self::Conf(_) => Errno::EINVAL,
            Self::Malformed(_) => Errno::EIO,
            Self::Unsupported(_) => Errno::EOPNOTSUPP,
        }
    }

    pub fn is_not_found(&self) -> bool {
        self.errno() == Errno::ENOENT
    }
}

impl From<denc::Error> for Error {
    fn from(e: denc::Error) -> Self {
        Self::Malformed(e.to_string())
    }
}
