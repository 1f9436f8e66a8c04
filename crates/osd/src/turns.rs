//! What the log says of the loop's turns that took long (`io::turns`).
//!
//! The cost for each turn: two readings of the clock, beside those that the loop needs anyway; for each event some additions.

use std::fmt;
use types::PgId;

/// What a turn consists of: events, then the work at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Part {
    Net,
    Link,
    Store,
    Cluster,
    StateReply,
    Fetch,
    Fetched,
    Timer,
    Beat,
    Tick,
    Stop,
    End,
    Submit,
}

const PARTS: [&str; 13] = [
    "messages of clients and peers",
    "answers of peers",
    "completions of the disk",
    "changes of the cluster state",
    "replies of the cluster state",
    "reads for other OSDs",
    "objects read from other OSDs",
    "timers",
    "heartbeats",
    "ticks",
    "stops",
    "ends of turns",
    "submissions to the store",
];

/// What an event was about.
#[derive(Debug, Default)]
pub struct About {
    /// The number of its kind of message.
    pub message: Option<u16>,
    /// The first PG that it concerned.
    pg: Option<PgId>,
    /// Steps of PGs that it led to.
    steps: u32,
}

impl About {
    pub fn step(&mut self, pg: PgId) {
        self.pg.get_or_insert(pg);
        self.steps += 1;
    }
}

impl fmt::Display for About {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(kind) = self.message {
            write!(f, ", message {kind}")?;
        }
        match (self.pg, self.steps) {
            (None, _) => Ok(()),
            (Some(pg), 0 | 1) => write!(f, ", for {pg}"),
            (Some(pg), n) => write!(f, ", for {pg} and others in {n} steps"),
        }
    }
}

pub type Turns = io::turns::Turns<About, { PARTS.len() }>;

pub fn watch() -> Turns {
    Turns::new(&PARTS)
}
