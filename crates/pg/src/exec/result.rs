//! What an operation, and a message of them, comes to.

use crate::stored::IoError;
use bytes::Bytes;
use types::Errno;

/// What the operations gave.
#[derive(Debug, Default)]
pub(crate) struct Ran {
    /// Of the operations that ran.
    pub results: Vec<(i32, Bytes)>,
    /// Below 0: a failure without FAILOK. Else the last operation's value.
    pub result: i32,
}

/// A failed operation; class methods may give data with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fail {
    pub rval: i32,
    pub out: Bytes,
}

impl From<Errno> for Fail {
    fn from(e: Errno) -> Self {
        Self {
            rval: e.code(),
            out: Bytes::new(),
        }
    }
}
impl From<IoError> for Fail {
    fn from(e: IoError) -> Self {
        tracing::error!("reading for a client: {e}");
        Errno::EIO.into()
    }
}
impl From<denc::Error> for Fail {
    fn from(_: denc::Error) -> Self {
        Errno::EINVAL.into()
    }
}

/// A successful operation; the value may be positive.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Done {
    pub rval: i32,
    pub out: Bytes,
}

impl From<Bytes> for Done {
    fn from(out: Bytes) -> Self {
        Self { rval: 0, out }
    }
}

pub(crate) type OpResult = Result<Done, Fail>;

/// Success without output.
pub(crate) fn done() -> OpResult {
    Ok(Done::default())
}
