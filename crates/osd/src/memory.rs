//! One budget for what an OSD keeps in memory: the store's caches and queues, clients' messages, PG logs.
//!
//! Not in it: code and stacks, the map, the allocator's bits (32 MiB for each TiB of disk), what the memory
//! allocator itself wastes, and answers that clients do not take (each connection's output is bounded).

/// The least budget, in bytes.
pub const MEMORY_MIN: u64 = 64 << 20;
pub const MEMORY_DEFAULT: u64 = 256 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    pub store: u64,
    /// Messages of clients that are being worked on; a connection always has one.
    pub messages: u64,
    pub pg_logs: u64,
}

impl Memory {
    pub fn of(budget: u64) -> Self {
        let budget = budget.max(MEMORY_MIN);
        Self {
            store: budget / 4 * 3,
            messages: budget / 8,
            pg_logs: budget / 8,
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
            assert!(m.store + m.messages + m.pg_logs <= budget);
            assert!(m.store >= store::Options::MEMORY_MIN);
        }
        assert_eq!(Memory::of(0), Memory::of(MEMORY_MIN));
        assert!(Memory::of(MEMORY_DEFAULT).log_entries(40) >= pg::LOG_KEPT);
    }
}
