//! Requests that clients had an answer for and that may not have been kept.

use super::held::Held;
use super::request::RequestId;
use super::tx::ClientId;
use messages::fs::CapRecord;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::time::Duration;

#[derive(Debug, Default)]
pub struct Replays {
    /// Of each client in the order in which it asked: one after the other.
    pub queue: BTreeMap<ClientId, VecDeque<RequestId>>,
    /// Numbers of inodes that may have been given out before and are not there.
    pub numbers: Range<u64>,
    /// Capabilities on inodes that are not there yet.
    pub late: BTreeMap<(ClientId, u64), CapRecord>,
    /// What clients said of capabilities before all clients were back, or before their own requests were carried out.
    pub held: Held,
    /// Of these, capabilities that were asked back since.
    pub asked_back: VecDeque<(ClientId, u64)>,
    /// Since when none ended, and nothing was read or written.
    pub idle_since: Option<Duration>,
    /// One is being carried out: it gives no capabilities, its client has said what it has.
    pub running: bool,
}

impl Replays {
    pub fn is_next(&self, client: ClientId, id: RequestId) -> bool {
        self.queue.get(&client).and_then(VecDeque::front) == Some(&id)
    }

    /// The next one of each client.
    pub fn heads(&self) -> Vec<RequestId> {
        self.queue.values().filter_map(|q| q.front().copied()).collect()
    }

    /// It has ended. The next one of this client.
    pub fn ended(&mut self, client: ClientId, id: RequestId) -> Option<RequestId> {
        let queue = self.queue.get_mut(&client)?;
        match queue.front() == Some(&id) {
            true => drop(queue.pop_front()),
            false => queue.retain(|r| *r != id),
        }
        let next = queue.front().copied();
        if next.is_none() {
            self.queue.remove(&client);
        }
        next
    }
}
