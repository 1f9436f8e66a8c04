//! How a file system is mounted.

use std::time::Duration;

const PAUSE: Duration = Duration::from_secs(90);

#[derive(Debug, Clone)]
pub struct Options {
    /// The file system; empty: the first.
    pub fs: String,
    /// The directory that the client says it mounts; what its key allows is checked against it.
    pub root: String,
    pub uid: u32,
    pub gid: u32,
    /// That a request waits for its answer.
    pub timeout: Duration,
    /// Without a word for so long the server may end the session, and need not wait for us longer after it was started again.
    pub session_timeout: Option<Duration>,
    /// Who writes to what is full hears it, in place of waiting for room.
    pub full_fails: bool,
    /// A change is answered when the server has it, before it is durable: [`crate::Mount::sync`] and [`crate::File::sync`] wait for that.
    pub early: bool,
}

impl Options {
    pub fn new(fs: impl Into<String>) -> Self {
        Self {
            fs: fs.into(),
            root: "/".into(),
            uid: 0,
            gid: 0,
            timeout: PAUSE,
            session_timeout: None,
            full_fails: false,
            early: false,
        }
    }
}
