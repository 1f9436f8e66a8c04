//! What buckets hold: bytes and objects, in a row of the object `counts` for each. It is made before the bucket, and goes with its index.
//!
//! ```text
//! n ID               Count of the bucket with this id
//! ```
//!
//! Whoever changes an index adds up what that changed ([`crate::amount::Tally`]); what was added up is written every [`FLUSH_EVERY`]. A gateway that is
//! killed, or does not hear of the end of an operation, miscounts by that; so each bucket is counted anew once a day, by walking
//! its index. Counts decide about quotas and nothing else.

use crate::amount::{Amount, Count};
use crate::buckets::{Buckets, COUNTS, count_row};
use crate::index::{Index, Position};
use crate::rados::{Change, Look, PAGE, Pool};
use crate::record::{Entry, Older, Part};
use crate::{Clock, Result};
use bytes::Bytes;
use denc::{Decode, Encode};
use std::collections::HashMap;
use std::time::Duration;

/// How often what was added up is written.
pub const FLUSH_EVERY: Duration = Duration::from_secs(2);
/// What gateways had not written is on its way for so long.
const QUIET: Duration = if cfg!(test) {
    Duration::ZERO
} else {
    Duration::from_secs(2 * FLUSH_EVERY.as_secs())
};
/// A bucket is counted anew when its count is as old as that (milliseconds).
const COUNTED_FOR: u64 = 24 * 60 * 60 * 1000;
/// Counts that others' writes crossed, before one of them is taken.
const CROSSED_MAX: usize = 3;
const TRIES_MAX: usize = 16;

/// Writes counts, and counts anew.
#[derive(Clone)]
pub struct Counter<P> {
    pool: P,
    index: Index<P>,
    clock: Clock,
}

impl<P: Pool> Counter<P> {
    pub fn new(pool: P, index: Index<P>, clock: Clock) -> Self {
        Self { pool, index, clock }
    }

    /// Of these buckets, as far as they were counted, with what this gateway has not written yet.
    pub async fn counts(&self, ids: &[String]) -> Result<HashMap<String, Count>> {
        let mut counts = HashMap::new();
        for ids in ids.chunks(PAGE as usize) {
            let look = Look {
                keys: ids.iter().map(|id| count_row(id)).collect(),
                ..Look::default()
            };
            let seen = self.pool.look(COUNTS, look).await?;
            for id in ids {
                if let Some(value) = seen.values.get(&count_row(id)) {
                    let mut count = Count::from_bytes(value)?;
                    count.held += self.index.tally().of(id);
                    counts.insert(id.clone(), count);
                }
            }
        }
        Ok(counts)
    }

    async fn row(&self, id: &str) -> Result<Option<(Bytes, Count)>> {
        let row = count_row(id);
        let mut seen = self.pool.look(COUNTS, Look::keys([&row])).await?;
        let value = seen.values.remove(&row);
        Ok(value.map(|v| Count::from_bytes(&v).map(|c| (v, c))).transpose()?)
    }

    /// False: it is another by now.
    async fn replace(&self, id: &str, seen: Option<&Bytes>, count: Count) -> Result<bool> {
        let row = count_row(id);
        let change = Change::default()
            .expecting(&row, seen)
            .setting(&row, count.to_bytes());
        match self.pool.change(COUNTS, change).await {
            Err(e) if e.is_conflict() => Ok(false),
            other => other.map(|()| true),
        }
    }

    /// Writes what was added up. A bucket without a count is gone, or will be counted.
    pub async fn flush(&self) -> Result<()> {
        let tally = self.index.tally();
        for (id, held) in tally.snapshot() {
            for _ in 0..TRIES_MAX {
                let Some((seen, mut count)) = self.row(&id).await? else {
                    tally.take_away(&id, held);
                    break;
                };
                count.held += held;
                // Whoever is cut off here, or does not hear of the end, miscounts: by less, since too much refuses what there is room for.
                tally.take_away(&id, held);
                if self.replace(&id, Some(&seen), count).await? {
                    break;
                }
                tally.add(&id, held);
            }
        }
        Ok(())
    }

    pub(crate) async fn walk(&self, id: &str) -> Result<Amount> {
        let mut held = Amount::default();
        for class in *b"evp" {
            let mut at = Some(Position::start());
            while let Some(from) = at.take() {
                let page = self.index.rows(id, class, &Bytes::new(), &from, PAGE).await?;
                at = page.next;
                for (_, value) in page.rows {
                    held += match class {
                        b'e' => Amount::object(Entry::from_bytes(&value)?.size),
                        b'v' => Amount::object(Older::from_bytes(&value)?.entry.size),
                        _ => Amount::part(Part::from_bytes(&value)?.size),
                    };
                }
            }
        }
        Ok(held)
    }

    /// Counts a bucket anew. What others write meanwhile may be missed, or counted twice: then it is done again, some times.
    async fn recount(&self, id: &str) -> Result<()> {
        for crossed in 0.. {
            io::task::sleep(QUIET).await;
            let seen = self.row(id).await?.map(|(value, _)| value);
            let held = self.walk(id).await?;
            io::task::sleep(QUIET).await;
            let now = self.row(id).await?.map(|(value, _)| value);
            if now != seen && crossed < CROSSED_MAX {
                continue;
            }
            let counted = self.clock.now_ms();
            if self.replace(id, now.as_ref(), Count { held, counted }).await? || crossed >= CROSSED_MAX {
                break;
            }
        }
        Ok(())
    }

    /// Counts what was never counted, or long ago.
    pub async fn round(&self, buckets: &Buckets<P>) -> Result<()> {
        let all: Vec<String> = buckets.all().await?.into_iter().map(|(_, b)| b.id).collect();
        let counts = self.counts(&all).await?;
        let now = self.clock.now_ms();
        let old = |id: &&String| counts.get(*id).is_none_or(|c| c.counted + COUNTED_FOR < now);
        for id in all.iter().filter(old) {
            // Another gateway may have counted it meanwhile.
            let known = self.row(id).await?.map(|(_, count)| count.counted);
            if known.is_some_and(|at| at + COUNTED_FOR >= self.clock.now_ms()) {
                continue;
            }
            match self.recount(id).await {
                Ok(()) | Err(crate::Error::NoSuchBucket) => {}
                Err(e) => tracing::warn!("bucket {id} cannot be counted: {e}"),
            }
        }
        Ok(())
    }
}
