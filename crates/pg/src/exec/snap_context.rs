//! The snapshots that a write has to keep.

use crate::pool::{PoolView, SnapIntervals};
use crate::state::snapset::context_is_valid;
use messages::osd::{MOSDOp, flag};
use types::Errno;

/// The snapshot context that counts for a write.
#[derive(Debug, Default)]
pub(crate) struct SnapContext {
    pub seq: u64,
    /// Descending, without removed ones.
    pub snaps: Vec<u64>,
}

impl SnapContext {
    /// Of a message: its own, or the pool's.
    pub fn of(m: &MOSDOp, pool: &PoolView, removed: &SnapIntervals) -> Result<Self, Errno> {
        let (seq, snaps) = match pool.pool_snaps_mode && !m.has(flag::ENFORCE_SNAPC) {
            true => (pool.snap_seq, &pool.snaps),
            false => (m.snap_seq, &m.snaps),
        };
        if !context_is_valid(seq, snaps) {
            return Err(Errno::EINVAL);
        }
        let kept = snaps.iter().filter(|s| !removed.contains(**s));
        Ok(Self {
            seq,
            snaps: kept.copied().collect(),
        })
    }
}
