//! Why rows or changes give no state.

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("cluster state holds a bad value under {key}: {why}")]
    BadValue { key: String, why: String },
    /// A newer program has written it, in a form that this one cannot read.
    #[error("{0}")]
    Newer(String),
}

pub type Result<T> = std::result::Result<T, Error>;
