//! What clients said after a restart, until all have.

use super::tx::ClientId;
use messages::fs::CapRecord;
use std::collections::BTreeSet;
use std::time::Duration;

#[derive(Debug)]
pub struct Reconnecting {
    pub began: Duration,
    /// Sent messages with more to follow.
    pub unfinished: BTreeSet<ClientId>,
    pub records: Vec<(ClientId, CapRecord)>,
}
