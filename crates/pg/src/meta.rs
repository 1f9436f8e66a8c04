//! The PG's metadata blob: what the log does not say.

use crate::PgStats;
use crate::pool::SnapIntervals;

/// Statistics as of the log version that they name, and the snapshots that are gone.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct PgMeta {
    pub stats: PgStats,
    /// Every snapshot id that was ever seen as removed: the map forgets them, clients with old contexts may not.
    pub removed: SnapIntervals,
    /// Those of them whose clones are gone from every object.
    pub trimmed: SnapIntervals,
}
denc::envelope_denc!(PgMeta, 1, 1, { stats, removed, trimmed });
