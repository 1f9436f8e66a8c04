//! Counting what a PG holds: one that a split has made does not know, one that it made smaller knows too much.
//!
//! A walk over all objects of the PG in small steps, so that a million of them hold nobody up. A write behind
//! the cursor changes what was counted by its delta; one before it is found by the walk. Until the end the
//! statistics are what was counted so far, and snapshots are not trimmed (that a PG has no clones is only known
//! then). The place of the walk is kept in memory only: the metadata names the pool's pg_num for which the
//! statistics count, and a PG that was stopped before they did counts again.

use crate::api::PgStats;
use crate::state::object::ObjectState;
use crate::state::pg::PgState;
use crate::state::range::behind;
use crate::state::stats::StatsDelta;
use crate::store::{IoError, ObjectStore};
use std::time::Duration;
use types::HObject;

/// Objects looked at in one step: below a millisecond from the index's cache.
const STEP_OBJECTS: usize = 64;
/// How long a PG rests between the steps of a walk over its objects.
pub(crate) const STEP_REST: Duration = Duration::from_millis(5);
/// After a store error.
pub(crate) const RETRY_REST: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct Count {
    /// Objects before it are counted.
    cursor: HObject,
    sums: PgStats,
    pub next_at: Duration,
}

impl Count {
    /// Nothing is counted, and the first step is due.
    pub fn new(pg: &PgState, now: Duration) -> Self {
        Self {
            cursor: pg.range.start_cursor(pg.pool.id).with_snap(0),
            sums: PgStats::default(),
            next_at: now,
        }
    }

    /// What was counted, beside the counters that go on.
    pub fn sums_in(&self, stats: &PgStats) -> PgStats {
        PgStats {
            objects: self.sums.objects,
            bytes: self.sums.bytes,
            clones: self.sums.clones,
            whiteouts: self.sums.whiteouts,
            omap_objects: self.sums.omap_objects,
            ..*stats
        }
    }
    /// One step. False: it has found nothing behind the last object, the count is over and in the metadata.
    pub fn step(&mut self, pg: &mut PgState, store: &mut dyn ObjectStore, now: Duration) -> bool {
        match self.walk(pg, store) {
            Ok(true) => self.next_at = now + STEP_REST,
            Ok(false) => {
                pg.meta.stats = self.sums_in(&pg.meta.stats);
                pg.meta.pg_num = pg.pool.pg_num;
                return false;
            }
            Err(e) => {
                tracing::error!("pg {}: counting objects: {e}", pg.id);
                self.next_at = now + RETRY_REST;
            }
        }
        true
    }

    /// Whether there may be more. After an error nothing of the step counts.
    fn walk(&mut self, pg: &PgState, store: &mut dyn ObjectStore) -> Result<bool, IoError> {
        let found = pg.list_objects(&self.cursor, STEP_OBJECTS, store)?;
        let mut sums = self.sums;
        for oid in found.iter().filter(|o| o.object.is_head()) {
            sums.add(&StatsDelta::of(&ObjectState::load(oid, store)?));
        }
        let Some(last) = found.last() else {
            return Ok(false);
        };
        (self.cursor, self.sums) = (behind(&last.object), sums);
        Ok(found.len() == STEP_OBJECTS)
    }

    /// An object has changed: so has what was counted, if it was among it.
    pub fn change(&mut self, head: &HObject, delta: &StatsDelta) {
        if *head < self.cursor {
            self.sums.add(delta);
        }
    }

    /// What a walk in one go finds.
    #[cfg(test)]
    pub fn at_once(pg: &PgState, store: &mut dyn ObjectStore) -> Result<PgStats, IoError> {
        let mut count = Self::new(pg, Duration::ZERO);
        while count.walk(pg, store)? {}
        Ok(count.sums_in(&PgStats::default()))
    }
}
