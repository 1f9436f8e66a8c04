//! Turns of the PGs of one OSD at fetching good copies in the place of their own bad ones: a disk that dies under many PGs
//! does not fetch for all of them at once.
//!
//! Bounds: [`TURNS_MAX`] turns at a time; what waits asks again after [`AGAIN`].

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Each may have one transaction of a repair on its way, in memory.
pub(crate) const TURNS_MAX: usize = 16;
/// What a turn has on its way: a piece of a repair.
const TURN_BYTES: u64 = 4 << 20;
/// Turns end in another PG, which does not know who waits.
pub(crate) const AGAIN: Duration = Duration::from_millis(50);

/// The turns of one OSD; its PGs share them.
#[derive(Debug, Clone)]
pub struct PullTurns {
    taken: Arc<AtomicUsize>,
    turns: usize,
}

impl Default for PullTurns {
    fn default() -> Self {
        Self::within(u64::MAX)
    }
}

impl PullTurns {
    /// As many as have room in so many bytes, each with a piece on its way; one in any case.
    pub fn within(bytes: u64) -> Self {
        let turns = (bytes / TURN_BYTES) as usize;
        Self {
            taken: Arc::default(),
            turns: turns.clamp(1, TURNS_MAX),
        }
    }

    /// None: all are taken.
    pub(crate) fn take(&self) -> Option<PullTurn> {
        let more = |n: usize| (n < self.turns).then_some(n + 1);
        let taken = self
            .taken
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.is_ok().then(|| PullTurn(self.clone()))
    }
}

/// One turn; it ends with this.
#[derive(Debug)]
pub(crate) struct PullTurn(PullTurns);

impl Drop for PullTurn {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::Relaxed);
    }
}
