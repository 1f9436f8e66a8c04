//! What a pool asks of the configurations of its PGs.

use types::PgId;
use types::osdmap::OsdMap;

/// Of one pool. Of copies each one has all objects; of shards any k of them do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Needs {
    /// Copies or shards that there should be.
    pub size: usize,
    /// Neither settling nor a proposal leaves fewer in sync.
    pub least: usize,
    /// So many have all objects together.
    pub enough: usize,
    /// Each position is a shard.
    pub coded: bool,
}

impl Needs {
    pub fn of(map: &OsdMap, pg: PgId) -> Self {
        let Some(pool) = map.pool(pg.pool) else {
            return Self::COPY;
        };
        let at_least_one = |n: u8| usize::from(n).max(1);
        let enough = at_least_one(map.enough(pool));
        Self {
            size: at_least_one(pool.size),
            least: at_least_one(pool.min_size).max(enough),
            enough,
            coded: pool.is_erasure(),
        }
    }

    /// Of a pool that is not there.
    const COPY: Self = Self {
        size: 1,
        least: 1,
        enough: 1,
        coded: false,
    };
}
