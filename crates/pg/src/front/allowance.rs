//! What a PG's log and its object cache may take of memory.

use crate::Pg;
use crate::store::ObjectStore;
use types::{Op, Transaction};

impl Pg {
    /// A longer log shrinks with the next writes, or by [`Pg::trim_log`]; the cache at once, but for what is not durable.
    pub fn allow(&mut self, log_bytes: u64, cache_bytes: u64) {
        self.state.log.allow(log_bytes);
        self.front
            .cache
            .allow(cache_bytes, self.front.commits.committed());
    }

    /// Memory of its log and of its object cache, roughly.
    pub fn memory(&self) -> (u64, u64) {
        (self.state.log.bytes(), self.front.cache.bytes())
    }

    pub fn cached_objects(&self) -> usize {
        self.front.cache.len()
    }

    /// Trims the log to what it may take, where no write comes along to do it. Members trim with the next write.
    pub fn trim_log(&mut self, store: &mut dyn ObjectStore) {
        let excess = self.state.log.excess(self.front.commits.committed());
        let Some(to) = excess.filter(|_| self.is_active()) else {
            return;
        };
        let mut txn = Transaction::new(self.state.id);
        // The sums first: the deltas of the trimmed entries go.
        txn.ops.push(self.state.meta_op());
        txn.ops.push(Op::LogTrim { to });
        match store.submit(&txn) {
            Ok(_) => self.state.log.trimmed(to),
            Err(e) => tracing::warn!("pg {}: its log is not trimmed: {e}", self.state.id),
        }
    }
}
