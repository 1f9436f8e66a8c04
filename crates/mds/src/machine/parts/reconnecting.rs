//! What clients said after a restart, until all have.

use super::tx::{ClientId, Conn};
use messages::fs::CapRecord;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

#[derive(Debug)]
pub struct Reconnecting {
    pub began: Duration,
    /// Sent messages with more to follow.
    pub unfinished: BTreeSet<ClientId>,
    pub records: Vec<(ClientId, CapRecord)>,
    /// By which connection each has begun to say it.
    pub said_by: BTreeMap<ClientId, Conn>,
}

impl Reconnecting {
    /// Whether a client may say what it holds by this connection. Over another one it begins anew: it cannot know what of it was heard
    /// before, and was told nothing since that it would miss.
    pub fn hears(&mut self, client: ClientId, conn: Conn, is_away: bool) -> bool {
        match self.said_by.insert(client, conn) {
            // Its first, or the next part.
            None => is_away,
            Some(before) if before == conn => is_away,
            Some(_) => {
                self.records.retain(|(c, _)| *c != client);
                self.unfinished.remove(&client);
                true
            }
        }
    }
}
