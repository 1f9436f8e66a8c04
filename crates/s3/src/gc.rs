//! Collects data that nobody refers to, and mends what was left half-way. Every gateway does, round by round: all that it finds is
//! durable, and all that it does can be done twice.
//!
//! Data that an entry stopped referring to stays for a while, for readers that have begun. Data whose intent has ended was left by
//! a gateway that is gone: its row is taken first, so that nobody can commit it any more.
//!
//! Bounds: one row at a time, a page of them in memory.

use crate::buckets::{BURYING, Bucket, Buckets, MAKING};
use crate::data::DataStore;
use crate::index::{Index, Located};
use crate::rados::{Change, Pool};
use crate::record::{Data, Garbage, Intent, Part, garbage_row, tag_of};
use crate::{Clock, Error, Result};
use bytes::Bytes;
use denc::{Decode, Encode};

/// An intent that has ended is left for so much longer (milliseconds): clocks of gateways differ, and writes may still be under way.
const INTENT_GRACE: u64 = 5 * 60 * 1000;

/// A bucket that has not been made within so long (milliseconds) is not made any more.
const MADE_WITHIN: u64 = 60_000;

pub struct Collector<P> {
    pub index: Index<P>,
    pub data: DataStore<P>,
    pub buckets: Buckets<P>,
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
    /// Over all buckets, and what is left of deleted ones. What fails is logged, and tried again in the next round.
    pub async fn round(&self) -> Result<Round> {
        let mut round = Round::default();
        for (name, bucket) in self.buckets.all().await? {
            if let Err(e) = self.bucket(&name, &bucket, &mut round).await
                && !matches!(e, Error::NoSuchBucket | Error::Conflict(_) | Error::Busy(_))
                && !e.is_not_found()
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
            self.intents(&bucket.id, shard.as_deref(), round).await?;
            let seen = self.garbage(&bucket.id, shard.as_deref(), round).await?;
            self.buckets.mend_shard(name, &bucket.id, &seen).await?;
            match seen.state.next {
                Some(next) => shard = Some(next),
                None => return Ok(()),
            }
        }
    }

    /// Turns intents that have ended into garbage; how many there are that have not.
    async fn intents(&self, bucket: &str, shard: Option<&str>, round: &mut Round) -> Result<u64> {
        let (mut after, mut alive) = (Bytes::new(), 0);
        loop {
            let seen = self.index.shard_page(bucket, shard, &after, b'i').await?;
            for (row, value) in &seen.rows {
                let ended = Intent::from_bytes(value)?.until + INTENT_GRACE < self.clock.now_ms();
                match (ended, tag_of(row)) {
                    (true, Some(tag)) => {
                        let garbage = Garbage {
                            since: 0,
                            data: Data::Stripes(tag),
                            size: None,
                        };
                        let change = Change::default()
                            .expecting(row, Some(value))
                            .unsetting(row)
                            .setting(&garbage_row(tag), garbage.to_bytes());
                        self.taken(&seen, change).await?;
                        round.given_up += 1;
                    }
                    _ => alive += 1,
                }
            }
            match seen.rows.last() {
                Some((last, _)) if seen.more => after = last.clone(),
                _ => return Ok(alive),
            }
        }
    }

    /// Removes garbage that was there long enough. The last page that was seen, for the shard's state.
    async fn garbage(&self, bucket: &str, shard: Option<&str>, round: &mut Round) -> Result<Located> {
        let mut after = Bytes::new();
        loop {
            let seen = self.index.shard_page(bucket, shard, &after, b'g').await?;
            for (row, value) in &seen.rows {
                let garbage = Garbage::from_bytes(value)?;
                if garbage.since + self.wait > self.clock.now_ms() {
                    continue;
                }
                self.data.remove(&garbage).await?;
                let change = Change::default().expecting(row, Some(value)).unsetting(row);
                self.taken(&seen, change).await?;
                round.removed += 1;
            }
            match seen.rows.last() {
                Some((last, _)) if seen.more => after = last.clone(),
                _ => return Ok(seen),
            }
        }
    }

    /// Somebody else may have been faster.
    async fn taken(&self, seen: &Located, change: Change) -> Result<()> {
        match self.index.pool().change(&seen.shard, change).await {
            Err(e) if e.is_conflict() || e.is_not_found() => Ok(()),
            other => other,
        }
    }

    /// What is left of a bucket that was deleted, or was never made to its end.
    async fn dead(&self, id: &str, since: u64, round: &mut Round) -> Result<()> {
        let wait = match since & MAKING {
            0 => self.wait,
            _ => self.wait.max(MADE_WITHIN),
        };
        if (since & !(BURYING | MAKING)) + wait > self.clock.now_ms() {
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
            alive += passed;
            self.parts(id, shard.as_deref()).await?;
            match self.garbage(id, shard.as_deref(), round).await?.state.next {
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

    /// Parts of uploads that nobody will complete any more.
    async fn parts(&self, bucket: &str, shard: Option<&str>) -> Result<()> {
        let mut after = Bytes::new();
        loop {
            let seen = self.index.shard_page(bucket, shard, &after, b'p').await?;
            for (_, value) in &seen.rows {
                let part = Part::from_bytes(value)?;
                let garbage = Garbage {
                    since: 0,
                    data: part.data,
                    size: Some(part.size),
                };
                self.data.remove(&garbage).await?;
            }
            match seen.rows.last() {
                Some((last, _)) if seen.more => after = last.clone(),
                _ => return Ok(()),
            }
        }
    }
}
