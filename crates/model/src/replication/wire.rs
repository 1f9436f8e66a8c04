//! What travels between a primary and a member; what each does with it is `messages`.

use super::log::{Entry, Log};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ask {
    Query,
    Begin { to: u8, content: Entry },
    Finish { log: Log },
    Replace { log: Log },
    Apply { entry: Entry },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Request {
    pub interval: u8,
    /// Of a connection that the primary gave up: nobody hears the answer.
    pub old: bool,
    pub ask: Ask,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Tell {
    Info { log: Log, dirty: bool },
    Applied { len: u8 },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Answer {
    pub interval: u8,
    pub tell: Tell,
}
