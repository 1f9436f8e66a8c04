//! Counting what a PG holds: one that a split has made does not know, one that it made smaller knows too much.
//!
//! A walk over all objects of the PG in small steps, so that a million of them hold nobody up. A write behind
//! the cursor changes what was counted by its delta; one before it is found by the walk. Until the end the
//! statistics are what was counted so far, and snapshots are not trimmed (that a PG has no clones is only known
//! then). The place of the walk is kept in memory only: the metadata names the pool's pg_num for which the
//! statistics count, and a PG that was stopped before they did counts again.

use crate::Pg;
use crate::api::PgStats;
use crate::state::object::ObjectState;
use crate::state::range::behind;
use crate::state::stats::StatsDelta;
use crate::store::{IoError, ObjectStore};
use crate::trim::{RETRY_REST, STEP_REST};
use std::time::Duration;
use types::{HObject, Transaction};

/// Objects looked at in one step: below a millisecond from the index's cache.
const STEP_OBJECTS: usize = 64;

#[derive(Debug)]
pub(crate) struct Count {
    /// Objects before it are counted.
    cursor: HObject,
    sums: PgStats,
    pub next_at: Duration,
}

impl Count {
    /// What was counted, beside the counters that go on.
    fn sums_in(&self, stats: &PgStats) -> PgStats {
        PgStats {
            objects: self.sums.objects,
            bytes: self.sums.bytes,
            clones: self.sums.clones,
            whiteouts: self.sums.whiteouts,
            omap_objects: self.sums.omap_objects,
            ..*stats
        }
    }
}

impl Pg {
    pub fn stats(&self) -> PgStats {
        let stats = &self.state.meta.stats;
        self.count.as_ref().map_or(*stats, |count| count.sums_in(stats))
    }

    /// Begins to count with a first step, after which a small PG is done.
    pub(crate) fn begin_count(&mut self, store: &mut dyn ObjectStore, now: Duration) {
        self.count = Some(Count {
            cursor: self.state.range.start_cursor(self.state.pool.id).with_snap(0),
            sums: PgStats::default(),
            next_at: now,
        });
        self.count_some(store, now);
    }

    /// One step, if it is time; the result is written down when it is the last.
    pub(crate) fn count_step(&mut self, store: &mut dyn ObjectStore, now: Duration) {
        if self.count.as_ref().is_none_or(|count| count.next_at > now) {
            return;
        }
        self.count_some(store, now);
        if self.count.is_none() {
            self.write_counted(store);
        }
    }

    /// If this fails, the next load counts again.
    pub(crate) fn write_counted(&mut self, store: &mut dyn ObjectStore) {
        let mut txn = Transaction::new(self.state.id);
        txn.ops.push(self.state.meta_op());
        if let Err(e) = store.submit(txn) {
            tracing::warn!(
                "pg {}: the count of its objects is not written: {e}",
                self.state.id
            );
        }
    }

    /// One step. Behind the last object the count is over and in the metadata.
    fn count_some(&mut self, store: &mut dyn ObjectStore, now: Duration) {
        let Some(mut count) = self.count.take() else {
            return;
        };
        match self.walk(&mut count, store) {
            Ok(true) => count.next_at = now + STEP_REST,
            Ok(false) => {
                self.state.meta.stats = count.sums_in(&self.state.meta.stats);
                self.state.meta.pg_num = self.state.pool.pg_num;
                return;
            }
            Err(e) => {
                tracing::error!("pg {}: counting objects: {e}", self.state.id);
                count.next_at = now + RETRY_REST;
            }
        }
        self.count = Some(count);
    }

    /// Whether there may be more. After an error nothing of the step counts.
    fn walk(&self, count: &mut Count, store: &mut dyn ObjectStore) -> Result<bool, IoError> {
        let found = self.list_objects(&count.cursor, STEP_OBJECTS, store)?;
        let mut sums = count.sums;
        for oid in found.iter().filter(|o| o.object.is_head()) {
            sums.add(&StatsDelta::of(&ObjectState::load(oid, store)?));
        }
        let Some(last) = found.last() else {
            return Ok(false);
        };
        (count.cursor, count.sums) = (behind(&last.object), sums);
        Ok(found.len() == STEP_OBJECTS)
    }

    /// An object has changed: so has what was counted, if it was among it.
    pub(crate) fn count_change(&mut self, head: &HObject, delta: &StatsDelta) {
        if let Some(count) = self.count.as_mut().filter(|count| *head < count.cursor) {
            count.sums.add(delta);
        }
    }

    /// What a walk in one go finds.
    #[cfg(test)]
    pub fn count_objects(&self, store: &mut dyn ObjectStore) -> Result<PgStats, IoError> {
        let mut count = Count {
            cursor: self.state.range.start_cursor(self.state.pool.id).with_snap(0),
            sums: PgStats::default(),
            next_at: Duration::ZERO,
        };
        while self.walk(&mut count, store)? {}
        Ok(count.sums_in(&PgStats::default()))
    }
}
