//! What the connections of one role are charged to, and what they count.
//!
//! Invariant: a connection weighs [`CONNECTION_BYTES`] from its first packet to its end, and those bytes come off what requests
//! and replies may take, half of each ([`Accounts::opened`]): many connections leave less for each, and the sum stays. At least a
//! quarter of either is left, which bounds the number of connections ([`Accounts::connections_max`]).

use account::Account;
use metrics::{Counter, spec};
use std::sync::Arc;

/// Memory of an open connection: its task, its state, its receive buffer. Measured: 20 to 29 KiB.
pub const CONNECTION_BYTES: usize = 28 << 10;

metrics::table! {
    /// The messages of one role, over all its connections; Ceph has the same for each worker of its messenger.
    pub struct Perf {
        msgr_recv_messages: Counter = spec("Network received messages");
        msgr_send_messages: Counter = spec("Network sent messages");
        msgr_recv_bytes: Counter = spec("Network received bytes").bytes();
        msgr_send_bytes: Counter = spec("Network sent bytes").bytes();
        msgr_created_connections: Counter = spec("Created connection number");
        msgr_active_connections: Counter = spec("Active connection number");
    }
}

#[derive(Debug, Clone)]
pub struct Accounts {
    /// Messages that are being received or worked on.
    pub requests: Arc<Account>,
    /// What clients were answered and have not taken, and answers that are still to be made.
    pub replies: Arc<Account>,
    /// What waits to be written to other OSDs, whoever dialled.
    pub peers: Arc<Account>,
    pub connections: Arc<Account>,
    pub perf: Arc<Perf>,
    /// The bounds without any connection.
    whole: (u64, u64),
    /// What a connection weighs.
    weight: u64,
}

impl Accounts {
    pub fn new(
        requests: Arc<Account>,
        replies: Arc<Account>,
        peers: Arc<Account>,
        connections: Arc<Account>,
        perf: Arc<Perf>,
    ) -> Self {
        Self {
            whole: (requests.bytes_max(), replies.bytes_max()),
            weight: CONNECTION_BYTES as u64,
            requests,
            replies,
            peers,
            connections,
            perf,
        }
    }

    /// Without an accountant, with so many bytes for requests and as many for replies; connections weigh nothing.
    pub fn alone(bytes_max: usize) -> Self {
        let account = || Account::alone(bytes_max as u64);
        Self {
            weight: 0,
            ..Self::new(account(), account(), account(), account(), Arc::default())
        }
    }

    /// Connections for which there is memory.
    pub fn connections_max(&self) -> usize {
        let least = self.whole.0.min(self.whole.1);
        let most = (least / 4 * 3 * 2).checked_div(self.weight);
        most.map_or(usize::MAX, |n| n as usize)
    }

    pub(crate) fn opened(&self) {
        self.perf.msgr_created_connections.inc();
        self.connections.take(self.weight);
        self.reckon(self.perf.msgr_active_connections.get() + 1);
    }

    pub(crate) fn closed(&self) {
        self.connections.give(self.weight);
        self.reckon(self.perf.msgr_active_connections.get().saturating_sub(1));
    }

    fn reckon(&self, connections: u64) {
        self.perf.msgr_active_connections.set(connections);
        self.connections.items.set(connections);
        let half = self.connections.bytes() / 2;
        let left = |whole: u64| whole.saturating_sub(half).max(whole / 4);
        self.requests.max.set(left(self.whole.0));
        self.replies.max.set(left(self.whole.1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_take_from_requests_and_replies() {
        let account = || Account::alone(10 << 20);
        let a = Accounts::new(account(), account(), account(), account(), Arc::default());
        let most = a.connections_max();
        assert_eq!(most, (15 << 20) / CONNECTION_BYTES);
        (0..most).for_each(|_| a.opened());
        let sum = a.requests.bytes_max() + a.replies.bytes_max() + a.connections.bytes();
        assert!(sum <= 20 << 20, "{sum}");
        assert!(a.requests.bytes_max() >= 5 << 19);
        (0..most).for_each(|_| a.closed());
        assert_eq!((a.requests.bytes_max(), a.connections.bytes()), (10 << 20, 0));
    }
}
