//! One budget for what an OSD keeps in memory: the store's caches and queues, clients' messages, answers and notifications,
//! PG logs.
//!
//! Not in it: code and stacks, the map, the allocator's bits (32 MiB for each TiB of disk), what the memory
//! allocator itself wastes, one message and one answer that may be larger than their parts, and what goes to other OSDs.

/// The least budget, in bytes.
pub const MEMORY_MIN: u64 = 64 << 20;
pub const MEMORY_DEFAULT: u64 = 256 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// The whole.
    pub budget: u64,
    pub store: u64,
    /// Messages of clients that are being received or worked on.
    pub messages: u64,
    /// Answers that clients have not taken, and those still to be made.
    pub replies: u64,
    /// Notifications that watchers have not acknowledged, and what those say who have.
    pub notifies: u64,
    pub pg_logs: u64,
}

impl Memory {
    pub fn of(budget: u64) -> Self {
        let budget = budget.max(MEMORY_MIN);
        let store = (budget / 8 * 5).max(store::Options::MEMORY_MIN);
        let rest = (budget - store) / 16;
        Self {
            budget,
            store,
            messages: rest * 5,
            replies: rest * 4,
            notifies: rest,
            pg_logs: rest * 6,
        }
    }

    /// Log entries for each of `pgs`.
    pub fn log_entries(&self, pgs: usize) -> usize {
        (self.pg_logs / pg::LOG_ENTRY_BYTES) as usize / pgs.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_are_the_whole() {
        for budget in [MEMORY_MIN, MEMORY_DEFAULT, 4 << 30] {
            let m = Memory::of(budget);
            assert!(m.store + m.messages + m.replies + m.notifies + m.pg_logs <= budget);
            assert!(m.store >= store::Options::MEMORY_MIN);
        }
        assert_eq!(Memory::of(0), Memory::of(MEMORY_MIN));
        assert!(Memory::of(MEMORY_DEFAULT).log_entries(40) >= pg::LOG_KEPT);
    }
}
