//! Collects data that nobody refers to, and mends what was left half-way. Every gateway does, round by round: all that it finds is
//! durable, and all that it does can be done twice.
//!
//! Data that an entry stopped referring to stays for a while, for readers that have begun. Data whose intent has ended was left by
//! a gateway that is gone: its row is taken first, so that nobody can commit it any more.
//!
//! A row that cannot be read, or whose data cannot be removed, is logged and passed by; after [`FAILED_MAX`] of those a walk ends.
//!
//! Bounds: [`AT_ONCE`] rows at a time, a page of them in memory.

use crate::buckets::{BURYING, Bucket, Buckets, MAKING};
use crate::courier::KEPT_FOR;
use crate::data::DataStore;
use crate::expiry::{Done, Expiry};
use crate::index::{Index, Located};
use crate::rados::{Change, Pool};
use crate::record::{Data, Garbage, Intent, Part, garbage_row, tag_of};
use crate::{Clock, Error, Result};
use bytes::Bytes;
use denc::{Decode, Encode};
use io::task;

/// An intent that has ended is left for so much longer (milliseconds): clocks of gateways differ, and writes may still be under way.
const INTENT_GRACE: u64 = 5 * 60 * 1000;

/// A bucket that has not been made within so long (milliseconds) is not made any more.
const MADE_WITHIN: u64 = 60_000;

/// Rows that are worked on at the same time.
const AT_ONCE: usize = 16;
/// Rows of one shard that fail; then it is left for the next round.
const FAILED_MAX: u64 = 64;

pub struct Collector<P> {
    pub index: Index<P>,
    pub data: DataStore<P>,
    pub buckets: Buckets<P>,
    pub expiry: Expiry<P>,
    pub clock: Clock,
    /// How long garbage stays, in milliseconds.
    pub wait: u64,
}

/// What a round has done.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Round {
    /// Rows of garbage whose data were removed.
    pub removed: u64,
    /// Intents that had ended.
    pub given_up: u64,
    /// Indexes of deleted buckets that were removed.
    pub buried: u64,
}

impl<P: Pool> Collector<P> {
    /// By the lifecycles of all buckets. It may take long: what is large is moved between pools.
    pub async fn lifecycles(&self) -> Result<Done> {
        let mut done = Done::default();
        for (name, bucket) in self.buckets.all().await? {
            if bucket.settings != 0
                && let Err(e) = self.expiry.run(&name, &mut done).await
                && !passes(&e)
            {
                tracing::warn!("s3: lifecycle of bucket {name}: {e}");
            }
        }
        Ok(done)
    }

    /// Over all buckets, and what is left of deleted ones. What fails is logged, and tried again in the next round.
    pub async fn round(&self) -> Result<Round> {
        let mut round = Round::default();
        for (name, bucket) in self.buckets.all().await? {
            if let Err(e) = self.bucket(&name, &bucket, &mut round).await
                && !passes(&e)
            {
                tracing::warn!("s3: collecting in bucket {name}: {e}");
            }
        }
        for (id, since) in self.buckets.dead().await? {
            if let Err(e) = self.dead(&id, since, &mut round).await {
                tracing::warn!("s3: removing the index of a deleted bucket: {e}");
            }
        }
        Ok(round)
    }

    async fn bucket(&self, name: &str, bucket: &Bucket, round: &mut Round) -> Result<()> {
        self.buckets.mend(name, bucket).await?;
        let mut shard: Option<String> = None;
        loop {
            let next = match self.shard(name, bucket, shard.as_deref(), round).await {
                Err(e) => {
                    let first = Bytes::new();
                    let seen = self.index.shard_page(&bucket.id, shard.as_deref(), &first, b'i');
                    let seen = seen.await?;
                    if !passes(&e) {
                        tracing::warn!("s3: collecting in {}, which is passed by: {e}", seen.shard);
                    }
                    seen.state.next
                }
                Ok(next) => next,
            };
            match next {
                Some(next) => shard = Some(next),
                None => return Ok(()),
            }
        }
    }

    /// The one that follows.
    async fn shard(
        &self,
        name: &str,
        bucket: &Bucket,
        shard: Option<&str>,
        round: &mut Round,
    ) -> Result<Option<String>> {
        self.intents(&bucket.id, shard, round).await?;
        let seen = self.garbage(&bucket.id, shard, round).await?.seen;
        if !seen.beside.0.is_empty() {
            self.index.told().left.mark(&seen.shard);
        }
        self.index.sweep(&seen.shard).await?;
        self.buckets.mend_shard(name, &bucket.id, &seen).await?;
        if self.index.was_left(&seen.state) {
            self.index.tend(&seen.shard).await?;
        }
        Ok(seen.state.next)
    }

    /// Turns intents that have ended into garbage; how many are left.
    async fn intents(&self, bucket: &str, shard: Option<&str>, round: &mut Round) -> Result<u64> {
        let (mut after, mut left, mut failed) = (Bytes::new(), 0, 0);
        loop {
            let seen = self.index.shard_page(bucket, shard, &after, b'i').await?;
            for (row, value) in &seen.rows {
                match self.intent(&seen, row, value).await {
                    Ok(true) => round.given_up += 1,
                    Ok(false) => left += 1,
                    Err(e) => {
                        left += 1;
                        passed_by(&seen, row, e, &mut failed)?;
                    }
                }
            }
            match seen.rows.last() {
                Some((last, _)) if seen.more => after = last.clone(),
                _ => return Ok(left),
            }
        }
    }

    /// False: it has not ended.
    async fn intent(&self, seen: &Located, row: &Bytes, value: &Bytes) -> Result<bool> {
        let intent = Intent::from_bytes(value)?;
        let ended = intent.until.saturating_add(INTENT_GRACE) < self.clock.now_ms();
        let Some(tag) = tag_of(row).filter(|_| ended) else {
            return Ok(false);
        };
        let garbage = Garbage {
            since: 0,
            data: Data::Stripes(tag, intent.place),
            size: None,
        };
        let change = Change::default()
            .expecting(row, Some(value))
            .unsetting(row)
            .setting(&garbage_row(tag), garbage.to_bytes());
        taken(self.index.pool(), &seen.shard, change).await.map(|()| true)
    }

    /// Removes garbage that was there long enough.
    async fn garbage(&self, bucket: &str, shard: Option<&str>, round: &mut Round) -> Result<Walked> {
        let (mut after, mut left, mut failed) = (Bytes::new(), 0, 0);
        loop {
            let seen = self.index.shard_page(bucket, shard, &after, b'g').await?;
            for some in seen.rows.chunks(AT_ONCE) {
                let mut begun = Vec::with_capacity(some.len());
                for (row, value) in some {
                    let garbage = Garbage::from_bytes(value).map_err(Error::from);
                    let due = |g: &Garbage| g.since.saturating_add(self.wait) <= self.clock.now_ms();
                    match garbage {
                        Ok(garbage) if due(&garbage) => {
                            begun.push((row, self.removal(&seen, row, value, garbage)))
                        }
                        Ok(_) => left += 1,
                        Err(e) => {
                            left += 1;
                            passed_by(&seen, row, e, &mut failed)?;
                        }
                    }
                }
                for (row, task) in begun {
                    match task.await.unwrap_or(Err(Error::Busy("the gateway is stopping"))) {
                        Ok(()) => round.removed += 1,
                        Err(e) => {
                            left += 1;
                            passed_by(&seen, row, e, &mut failed)?;
                        }
                    }
                }
            }
            match seen.rows.last() {
                Some((last, _)) if seen.more => after = last.clone(),
                _ => return Ok(Walked { seen, left }),
            }
        }
    }

    /// Removes data, then the row that names them.
    fn removal(
        &self,
        seen: &Located,
        row: &Bytes,
        value: &Bytes,
        garbage: Garbage,
    ) -> task::TaskHandle<Result<()>> {
        let (data, pool, shard) = (self.data.clone(), self.index.pool().clone(), seen.shard.clone());
        let change = Change::default().expecting(row, Some(value)).unsetting(row);
        task::spawn_local(async move {
            data.remove(&garbage).await?;
            taken(&pool, &shard, change).await
        })
    }

    /// What is left of a bucket that was deleted, or was never made to its end.
    async fn dead(&self, id: &str, since: u64, round: &mut Round) -> Result<()> {
        let wait = match since & MAKING {
            0 => self.wait,
            _ => self.wait.max(MADE_WITHIN),
        };
        let at = since & !(BURYING | MAKING);
        if at + wait > self.clock.now_ms() {
            return Ok(());
        }
        if since & BURYING == 0 && !self.buckets.bury(id, since).await? {
            return Ok(());
        }
        let (mut shard, mut alive): (Option<String>, u64) = (None, 0);
        loop {
            let passed = match self.intents(id, shard.as_deref(), round).await {
                // Never made, or removed so far by an earlier round.
                Err(e) if e.is_not_found() => break,
                other => other?,
            };
            let walked = self.garbage(id, shard.as_deref(), round).await?;
            let swept = self.index.sweep(&walked.seen.shard).await?;
            alive += passed + walked.left + u64::from(!swept);
            if !walked.seen.beside.0.is_empty() && at.saturating_add(KEPT_FOR) > self.clock.now_ms() {
                // What was acknowledged is told, though the bucket is gone: the next round sees whether all of it is in queues.
                self.index.told().left.mark(&walked.seen.shard);
                alive += 1;
            }
            alive += self.parts(id, shard.as_deref()).await?;
            match walked.seen.state.next {
                Some(next) => shard = Some(next),
                None => break,
            }
        }
        if alive == 0 {
            self.index.remove(id).await?;
            self.buckets.buried(id).await?;
            round.buried += 1;
        }
        Ok(())
    }

    /// Parts of uploads that nobody will complete any more; how many are left.
    async fn parts(&self, bucket: &str, shard: Option<&str>) -> Result<u64> {
        let (mut after, mut failed) = (Bytes::new(), 0);
        loop {
            let seen = self.index.shard_page(bucket, shard, &after, b'p').await?;
            for (row, value) in &seen.rows {
                if let Err(e) = self.part(value).await {
                    passed_by(&seen, row, e, &mut failed)?;
                }
            }
            match seen.rows.last() {
                Some((last, _)) if seen.more => after = last.clone(),
                _ => return Ok(failed),
            }
        }
    }

    async fn part(&self, value: &Bytes) -> Result<()> {
        let part = Part::from_bytes(value)?;
        let garbage = Garbage {
            since: 0,
            data: part.data,
            size: Some(part.size),
        };
        self.data.remove(&garbage).await
    }
}

/// What comes and goes with buckets that are deleted and indexes that are split.
fn passes(e: &Error) -> bool {
    matches!(e, Error::NoSuchBucket | Error::Conflict(_) | Error::Busy(_)) || e.is_not_found()
}

/// What a walk over garbage has seen.
struct Walked {
    /// The last page, for the shard's state.
    seen: Located,
    /// Rows that are still there.
    left: u64,
}

/// Somebody else may have been faster.
async fn taken<P: Pool>(pool: &P, shard: &str, change: Change) -> Result<()> {
    match pool.change(shard, change).await {
        Err(e) if e.is_conflict() || e.is_not_found() => Ok(()),
        other => other,
    }
}

fn passed_by(seen: &Located, row: &Bytes, e: Error, failed: &mut u64) -> Result<()> {
    tracing::warn!("s3: {} in {}: {e}", row.escape_ascii(), seen.shard);
    *failed += 1;
    match *failed > FAILED_MAX {
        true => Err(e),
        false => Ok(()),
    }
}
