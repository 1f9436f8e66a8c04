//! One budget for what an OSD keeps in memory, and its parts: the store's caches and queues, messages, answers, what goes to
//! other OSDs, notifications, PG logs, object caches. `meters` opens an account for each; docs/internals/memory.md says who
//! waits at which bound.
//!
//! Not in it: code and stacks, the map, the allocator's bits (32 MiB for each TiB of disk), what the memory
//! allocator itself wastes, one message and one answer that may be larger than their parts, one message of each other OSD.

/// The least budget, in bytes.
pub const MEMORY_MIN: u64 = 64 << 20;
pub const MEMORY_DEFAULT: u64 = 256 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// The whole.
    pub budget: u64,
    pub store: u64,
    /// Messages that are being received or worked on; with `replies` what connections weigh.
    pub messages: u64,
    /// Answers that clients have not taken, and those still to be made.
    pub replies: u64,
    /// Notifications that watchers have not acknowledged, and what those say who have.
    pub notifies: u64,
    /// What waits to be written to other OSDs.
    pub peers: u64,
    pub pg_logs: u64,
    /// Objects that PGs have in mind.
    pub objects: u64,
}

impl Memory {
    pub fn of(budget: u64) -> Self {
        let budget = budget.max(MEMORY_MIN);
        let store = (budget / 8 * 5).max(store::Options::MEMORY_MIN);
        let rest = (budget - store) / 48;
        Self {
            budget,
            store,
            messages: rest * 14,
            replies: rest * 11,
            notifies: rest * 2,
            peers: rest * 8,
            pg_logs: rest * 10,
            objects: rest * 3,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_are_the_whole() {
        for budget in [MEMORY_MIN, MEMORY_DEFAULT, 4 << 30] {
            let m = Memory::of(budget);
            assert!(
                m.store + m.messages + m.replies + m.notifies + m.peers + m.pg_logs + m.objects <= budget
            );
            assert!(m.store >= store::Options::MEMORY_MIN);
        }
        assert_eq!(Memory::of(0), Memory::of(MEMORY_MIN));
        let of_40 = Memory::of(MEMORY_DEFAULT).pg_logs / pg::LOG_ENTRY_BYTES / 40;
        assert!(of_40 >= 1024, "what one client may have in flight");
    }
}
