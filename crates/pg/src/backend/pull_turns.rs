//! Turns of the PGs of one OSD at fetching good copies in the place of their own bad ones: a disk that dies under many PGs
//! does not fetch for all of them at once.
//!
//! Bounds: [`TURNS_MAX`] turns at a time; what waits asks again after [`AGAIN`].

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Each may have one transaction of a repair on its way, in memory.
pub(crate) const TURNS_MAX: usize = 16;
/// Turns end in another PG, which does not know who waits.
pub(crate) const AGAIN: Duration = Duration::from_millis(50);

/// The turns of one OSD; its PGs share them.
#[derive(Debug, Clone, Default)]
pub struct PullTurns(Arc<AtomicUsize>);

impl PullTurns {
    /// None: all are taken.
    pub(crate) fn take(&self) -> Option<PullTurn> {
        let more = |n: usize| (n < TURNS_MAX).then_some(n + 1);
        let taken = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.is_ok().then(|| PullTurn(self.clone()))
    }
}

/// One turn; it ends with this.
#[derive(Debug)]
pub(crate) struct PullTurn(PullTurns);

impl Drop for PullTurn {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}
