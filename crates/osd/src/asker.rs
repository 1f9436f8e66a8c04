//! Where the answer to a command goes.

use net::ConnId;

#[derive(Debug, Clone, Copy)]
pub struct Asker {
    pub conn: ConnId,
    pub tid: u64,
    /// JSON on one line.
    pub compact: bool,
}
