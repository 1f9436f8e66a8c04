//! Buckets: rows of the object `buckets` of the system pool.
//!
//! ```text
//! b NAME             Bucket
//! o USER 00 NAME     (created): the buckets of a user
//! s ID               Settings, where there are any
//! n ID               Count: what it holds (`counts`)
//! q ID               Quota, where there is one (`quota`)
//! r ID               Rate, where there is one (`rate`)
//! x ID               the index of a bucket that was deleted; its data are collected, then its objects removed
//! ```
//!
//! Deleting: the bucket is marked, its index is closed shard by shard (each only if it has no object then), then one operation
//! removes the bucket and names the index as what is to be removed. A deletion that was left half-way is taken back by whoever
//! collects (`gc`).

use crate::accounts::all_rows;
use crate::amount::Count;
use crate::index::{Index, Located};
use crate::rados::{Change, Look, Pool};
use crate::record::Phase;
use crate::settings::{Cache, Ready, Settings};
use crate::{Clock, Error, Result};
use bytes::Bytes;
use denc::{Decode, Encode, Reader, Writer};
use std::sync::Arc;

pub const BUCKETS: &str = "buckets";
/// What buckets hold: apart, since every request reads the other, and reads wait for writes.
pub const COUNTS: &str = "counts";
/// Buckets of one user.
pub const BUCKETS_MAX: usize = 1000;
/// A deletion that has not ended after so long (milliseconds) was left.
const DELETED_WITHIN: u64 = 60_000;
const TRIES_MAX: usize = 16;
/// Set in the time of an index that is being removed.
pub(crate) const BURYING: u64 = 1 << 63;
/// And of one whose bucket is being made.
pub(crate) const MAKING: u64 = 1 << 62;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bucket {
    /// Names its index: a bucket that is made again under the same name has another.
    pub id: String,
    pub owner: String,
    pub created: u64,
    pub public_read: bool,
    /// Since when it is being deleted; else 0.
    pub deleting: u64,
    /// The number of that deletion.
    pub deletion: u64,
    /// As the client that made it said it; empty: the default.
    pub location: String,
    /// Grows with each change.
    pub version: u64,
    /// The number of its settings: another with each change of them; 0: there are none.
    pub settings: u64,
}

/// The version that knows of settings; without them a record is as it was before.
pub const WITH_SETTINGS: u8 = 2;

impl Encode for Bucket {
    /// Who does not know of settings refuses a bucket that has some.
    fn encode(&self, w: &mut Writer) {
        let version = if self.settings == 0 { 1 } else { WITH_SETTINGS };
        w.envelope(version, version, |w| {
            w.put(&self.id);
            w.put(&self.owner);
            w.put(&self.created);
            w.put(&self.public_read);
            w.put(&self.deleting);
            w.put(&self.deletion);
            w.put(&self.location);
            w.put(&self.version);
            if self.settings != 0 {
                w.put(&self.settings);
            }
        });
    }
}

impl Decode for Bucket {
    fn decode(r: &mut Reader) -> denc::Result<Self> {
        r.envelope(WITH_SETTINGS, |version, r| {
            Ok(Self {
                id: r.get()?,
                owner: r.get()?,
                created: r.get()?,
                public_read: r.get()?,
                deleting: r.get()?,
                deletion: r.get()?,
                location: r.get()?,
                version: r.get()?,
                settings: if version < WITH_SETTINGS { 0 } else { r.get()? },
            })
        })
    }
}

/// A bucket with its settings.
#[derive(Debug, Clone)]
pub struct Known {
    pub bucket: Bucket,
    pub settings: Arc<Ready>,
}

pub struct Buckets<P> {
    pool: P,
    index: Index<P>,
    clock: Clock,
    cache: Cache,
}

impl<P: Clone> Clone for Buckets<P> {
    fn clone(&self) -> Self {
        Self {
            pool: self.pool.clone(),
            index: self.index.clone(),
            clock: self.clock.clone(),
            cache: self.cache.clone(),
        }
    }
}

fn row(name: &str) -> Bytes {
    [b"b", name.as_bytes()].concat().into()
}

pub(crate) fn owned_prefix(user: &str) -> Bytes {
    [b"o", user.as_bytes(), &[0]].concat().into()
}

fn owned_row(user: &str, name: &str) -> Bytes {
    [&owned_prefix(user)[..], name.as_bytes()].concat().into()
}

pub(crate) fn settings_row(id: &str) -> Bytes {
    [b"s", id.as_bytes()].concat().into()
}

fn walk_row(id: &str) -> Bytes {
    [b"l", id.as_bytes()].concat().into()
}

pub(crate) fn count_row(id: &str) -> Bytes {
    [b"n", id.as_bytes()].concat().into()
}

pub(crate) fn quota_row(id: &str) -> Bytes {
    [b"q", id.as_bytes()].concat().into()
}

pub(crate) fn rate_row(id: &str) -> Bytes {
    [b"r", id.as_bytes()].concat().into()
}

pub(crate) fn dead_row(id: &str) -> Bytes {
    [b"x", id.as_bytes()].concat().into()
}

impl<P: Pool> Buckets<P> {
    pub fn new(pool: P, index: Index<P>, clock: Clock) -> Self {
        Self {
            pool,
            index,
            clock,
            cache: Cache::default(),
        }
    }

    async fn find(&self, name: &str) -> Result<Option<Bucket>> {
        self.found(&row(name), Look::keys([&row(name)])).await
    }

    /// As it is now, whatever is remembered.
    async fn find_now(&self, name: &str) -> Result<Option<Bucket>> {
        self.found(&row(name), Look::keys([&row(name)]).fresh()).await
    }

    async fn found(&self, row: &Bytes, look: Look) -> Result<Option<Bucket>> {
        let seen = self.pool.look(BUCKETS, look).await?;
        Ok(seen.values.get(row).map(Bucket::from_bytes).transpose()?)
    }

    /// As it is now, whatever is remembered.
    pub async fn now(&self, name: &str) -> Result<Bucket> {
        self.find_now(name).await?.ok_or(Error::NoSuchBucket)
    }

    pub async fn get(&self, name: &str) -> Result<Bucket> {
        self.find(name).await?.ok_or(Error::NoSuchBucket)
    }

    /// The bucket with its settings, both of one moment.
    pub async fn known(&self, name: &str) -> Result<Known> {
        let bucket = self.get(name).await?;
        self.with_settings(name, bucket).await
    }

    /// The same, as it is now.
    pub async fn known_now(&self, name: &str) -> Result<Known> {
        let bucket = self.now(name).await?;
        self.with_settings(name, bucket).await
    }

    async fn with_settings(&self, name: &str, mut bucket: Bucket) -> Result<Known> {
        for _ in 0..TRIES_MAX {
            if bucket.settings == 0 {
                let settings = Arc::default();
                return Ok(Known { bucket, settings });
            }
            if let Some(settings) = self.cache.get(&bucket.id, bucket.settings) {
                return Ok(Known { bucket, settings });
            }
            let rows = [&row(name), &settings_row(&bucket.id)];
            let seen = self.pool.look(BUCKETS, Look::keys(rows).fresh()).await?;
            let now = seen.values.get(rows[0]).ok_or(Error::NoSuchBucket)?;
            let now = Bucket::from_bytes(now)?;
            let of = std::mem::replace(&mut bucket, now);
            if bucket.id == of.id && bucket.settings != 0 {
                let settings = seen.values.get(rows[1]);
                let settings = settings.ok_or_else(|| Error::Damaged(format!("settings of {name}: lost")))?;
                let settings = Ready::new(Settings::from_bytes(settings)?, name);
                let settings = Arc::new(settings);
                self.cache.put(&bucket.id, bucket.settings, settings);
            }
        }
        Err(Error::Conflict("others change the same bucket"))
    }

    /// Changes settings, if they are still as they were seen.
    pub async fn set_settings(&self, name: &str, seen: &Known, settings: &Settings) -> Result<()> {
        let mut next = seen.bucket.clone();
        next.version += 1;
        let (row, of) = (row(name), settings_row(&next.id));
        let change = Change::default().expecting(&row, Some(&seen.bucket.to_bytes()));
        let change = match *settings == Settings::default() {
            true => {
                next.settings = 0;
                change.unsetting(&of)
            }
            false => {
                next.settings = next.version;
                change.setting(&of, settings.to_bytes())
            }
        };
        match self
            .pool
            .change(BUCKETS, change.setting(&row, next.to_bytes()))
            .await
        {
            Err(e) if e.is_conflict() => Err(Error::Conflict("others change the same bucket")),
            other => other,
        }
    }

    /// How far the walk of its lifecycle over a bucket has come.
    pub async fn walk(&self, id: &str) -> Result<Option<Bytes>> {
        let row = walk_row(id);
        let mut seen = self.pool.look(BUCKETS, Look::keys([&row])).await?;
        Ok(seen.values.remove(&row))
    }

    /// False: somebody else walks, or the bucket is no longer as it was seen.
    pub async fn set_walk(&self, of: (&str, &Bucket), seen: Option<&Bytes>, to: Bytes) -> Result<bool> {
        let walk = walk_row(&of.1.id);
        let change = Change::default()
            .expecting(&row(of.0), Some(&of.1.to_bytes()))
            .expecting(&walk, seen)
            .setting(&walk, to);
        match self.pool.change(BUCKETS, change).await {
            Err(e) if e.is_conflict() => Ok(false),
            other => other.map(|()| true),
        }
    }

    /// Names and times of creation, in order.
    pub async fn of(&self, user: &str) -> Result<Vec<(String, u64)>> {
        let prefix = owned_prefix(user);
        let rows = all_rows(&self.pool, BUCKETS, &prefix).await?;
        let bucket = |(row, created): (Bytes, Bytes)| {
            let name = String::from_utf8_lossy(&row[prefix.len()..]).into_owned();
            Ok((name, u64::from_bytes(&created)?))
        };
        rows.into_iter().map(bucket).collect()
    }

    /// A user's buckets with their records, in order.
    pub async fn records_of(&self, user: &str) -> Result<Vec<(String, Bucket)>> {
        let names = self.of(user).await?;
        let look = Look {
            keys: names.iter().map(|(name, _)| row(name)).collect(),
            ..Look::default()
        };
        let seen = self.pool.look(BUCKETS, look).await?;
        let record = |(name, _): (String, u64)| {
            let raw = seen.values.get(&row(&name))?;
            Some(Bucket::from_bytes(raw).map(|b| (name, b)).map_err(Error::from))
        };
        names.into_iter().filter_map(record).collect()
    }

    /// Ids of a user's buckets.
    pub async fn ids_of(&self, user: &str) -> Result<Vec<String>> {
        let names = self.of(user).await?;
        let look = Look {
            keys: names.iter().map(|(name, _)| row(name)).collect(),
            ..Look::default()
        };
        let seen = self.pool.look(BUCKETS, look).await?;
        let ids = seen.values.values().map(|b| Ok(Bucket::from_bytes(b)?.id));
        ids.collect()
    }

    /// Sets its quota, if it is still as it was seen.
    pub(crate) async fn set_quota(&self, name: &str, seen: &Bucket, quota: Bytes) -> Result<()> {
        let change = Change::default()
            .expecting(&row(name), Some(&seen.to_bytes()))
            .setting(&quota_row(&seen.id), quota);
        match self.pool.change(BUCKETS, change).await {
            Err(e) if e.is_conflict() => Err(Error::Conflict("others change the same bucket")),
            other => other,
        }
    }

    pub async fn create(
        &self,
        name: &str,
        owner: &str,
        (public_read, location, settings): (bool, &str, &Settings),
    ) -> Result<()> {
        match self.find_now(name).await? {
            Some(bucket) if bucket.owner == owner => return Err(Error::BucketYours),
            Some(_) => return Err(Error::BucketTaken),
            None => {}
        }
        if self.of(owner).await?.len() >= BUCKETS_MAX {
            return Err(Error::Invalid(format!(
                "a user has at most {BUCKETS_MAX} buckets"
            )));
        }
        let bucket = Bucket {
            id: self.clock.tag().to_string(),
            owner: owner.to_string(),
            created: self.clock.now_ms(),
            public_read,
            deleting: 0,
            deletion: 0,
            location: location.to_string(),
            version: 1,
            settings: u64::from(*settings != Settings::default()),
        };
        // If this is cut off an index is left that is named as dead already.
        let made = (bucket.created | MAKING).to_bytes();
        let dead = Change::default().setting(&dead_row(&bucket.id), made.clone());
        self.pool.change(BUCKETS, dead).await?;
        self.index.create(&bucket.id).await?;
        let empty = Count {
            counted: bucket.created,
            ..Count::default()
        };
        let count = Change::default().setting(&count_row(&bucket.id), empty.to_bytes());
        self.pool.change(COUNTS, count).await?;
        let mut make = Change::default();
        if bucket.settings != 0 {
            make = make.setting(&settings_row(&bucket.id), settings.to_bytes());
        }
        let make = make
            .expecting(&row(name), None)
            .expecting(&dead_row(&bucket.id), Some(&made))
            .unsetting(&dead_row(&bucket.id))
            .setting(&row(name), bucket.to_bytes())
            .setting(&owned_row(owner, name), bucket.created.to_bytes());
        match self.pool.change(BUCKETS, make).await {
            Err(e) if e.is_conflict() => Err(Error::Conflict("another made the same bucket")),
            other => other,
        }
    }

    /// Its next record, if it is still as it was seen.
    async fn replace(&self, name: &str, seen: &Bucket, change: impl FnOnce(&mut Bucket)) -> Result<Bucket> {
        let mut next = seen.clone();
        change(&mut next);
        next.version += 1;
        let row = row(name);
        let set = Change::default()
            .expecting(&row, Some(&seen.to_bytes()))
            .setting(&row, next.to_bytes());
        match self.pool.change(BUCKETS, set).await {
            Err(e) if e.is_conflict() => Err(Error::Conflict("others change the same bucket")),
            other => other.map(|()| next),
        }
    }

    pub async fn set_public_read(&self, name: &str, seen: &Bucket, public_read: bool) -> Result<()> {
        let set = self.replace(name, seen, |b| b.public_read = public_read);
        set.await.map(drop)
    }

    pub async fn delete(&self, name: &str) -> Result<()> {
        let bucket = self.get(name).await?;
        if bucket.deleting != 0 {
            return Err(Error::Conflict("the bucket is being deleted"));
        }
        let (now, deletion) = (self.clock.now_ms(), self.clock.random_u64());
        let marked = self
            .replace(name, &bucket, |b| (b.deleting, b.deletion) = (now, deletion))
            .await?;
        if let Err(e) = self.index.close(&marked.id, deletion).await {
            self.take_back(name, &marked).await?;
            return Err(e);
        }
        let change = Change::default()
            .expecting(&row(name), Some(&marked.to_bytes()))
            .unsetting(&row(name))
            .unsetting(&owned_row(&marked.owner, name))
            .unsetting(&settings_row(&marked.id))
            .unsetting(&walk_row(&marked.id))
            .unsetting(&quota_row(&marked.id))
            .unsetting(&rate_row(&marked.id))
            .setting(&dead_row(&marked.id), now.to_bytes());
        match self.pool.change(BUCKETS, change).await {
            Err(e) if e.is_conflict() => {
                self.take_back(name, &marked).await?;
                Err(Error::Conflict("the deletion took too long"))
            }
            other => other,
        }
    }

    /// From now on this deletion cannot end, and what it has closed is opened.
    async fn take_back(&self, name: &str, marked: &Bucket) -> Result<()> {
        for _ in 0..TRIES_MAX {
            let now = self.find_now(name).await?;
            let mine = |b: &Bucket| b.id == marked.id && b.deleting != 0 && b.deletion == marked.deletion;
            let Some(now) = now.filter(mine) else { break };
            match self.replace(name, &now, |b| b.deleting = 0).await {
                Err(Error::Conflict(_)) => {}
                other => drop(other?),
            }
        }
        match self.reopen(name, &marked.id).await {
            Err(e) if e.is_not_found() => Ok(()),
            other => other,
        }
    }

    /// Opens what deletions that are over have closed.
    async fn reopen(&self, name: &str, id: &str) -> Result<()> {
        let mut shard = None;
        loop {
            let seen = self
                .index
                .shard_page(id, shard.as_deref(), &Bytes::new(), b'i')
                .await?;
            self.mend_shard(name, id, &seen).await?;
            match seen.state.next {
                Some(next) => shard = Some(next),
                None => return Ok(()),
            }
        }
    }

    /// Opens a shard that was closed by a deletion which is over: one that is under way has its number in the bucket's record, and
    /// cannot end any more once it is not there.
    pub(crate) async fn mend_shard(&self, name: &str, id: &str, seen: &Located) -> Result<()> {
        let Phase::Closed { deletion } = seen.state.phase else {
            return Ok(());
        };
        match self.find_now(name).await? {
            Some(now) if now.id == id && (now.deleting == 0 || now.deletion != deletion) => {
                self.index.reopen(seen).await
            }
            _ => Ok(()),
        }
    }

    /// Takes back a deletion that was left.
    pub(crate) async fn mend(&self, name: &str, bucket: &Bucket) -> Result<()> {
        match bucket.deleting {
            since if since != 0 && since + DELETED_WITHIN < self.clock.now_ms() => {
                self.take_back(name, bucket).await
            }
            _ => Ok(()),
        }
    }

    /// All buckets, but for those whose records are damaged.
    pub(crate) async fn all(&self) -> Result<Vec<(String, Bucket)>> {
        let rows = all_rows(&self.pool, BUCKETS, &Bytes::from_static(b"b")).await?;
        let bucket = |(row, value): (Bytes, Bytes)| {
            let name = String::from_utf8_lossy(&row[1..]).into_owned();
            match Bucket::from_bytes(&value) {
                Ok(bucket) => Some((name, bucket)),
                Err(e) => {
                    tracing::error!("s3: bucket {name}: a record that cannot be read: {e}");
                    None
                }
            }
        };
        Ok(rows.into_iter().filter_map(bucket).collect())
    }

    /// Ids of indexes to be removed, with the time (milliseconds since 1970) of that.
    pub(crate) async fn dead(&self) -> Result<Vec<(String, u64)>> {
        let rows = all_rows(&self.pool, BUCKETS, &Bytes::from_static(b"x")).await?;
        let dead = |(row, since): (Bytes, Bytes)| {
            let id = String::from_utf8_lossy(&row[1..]).into_owned();
            match u64::from_bytes(&since) {
                Ok(since) => Some((id, since)),
                Err(e) => {
                    tracing::error!("s3: dead index {id}: a record that cannot be read: {e}");
                    None
                }
            }
        };
        Ok(rows.into_iter().filter_map(dead).collect())
    }

    /// From now on whoever makes this bucket finds that it cannot any more. False: another was faster.
    pub(crate) async fn bury(&self, id: &str, since: u64) -> Result<bool> {
        let row = dead_row(id);
        let change = Change::default()
            .expecting(&row, Some(&since.to_bytes()))
            .setting(&row, (since | BURYING).to_bytes());
        match self.pool.change(BUCKETS, change).await {
            Err(e) if e.is_conflict() => Ok(false),
            other => other.map(|()| true),
        }
    }

    /// Its index is gone.
    pub(crate) async fn buried(&self, id: &str) -> Result<()> {
        let count = Change::default().unsetting(&count_row(id));
        self.pool.change(COUNTS, count).await?;
        self.pool
            .change(BUCKETS, Change::default().unsetting(&dead_row(id)))
            .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_without_settings_is_written_as_before() {
        let mut bucket = Bucket {
            id: "i".into(),
            owner: "o".into(),
            created: 1,
            public_read: true,
            deleting: 0,
            deletion: 2,
            location: String::new(),
            version: 3,
            settings: 0,
        };
        let old = bucket.to_bytes();
        assert_eq!(
            hex::encode(&old),
            "01012f000000\
             0100000069\
             010000006f\
             0100000000000000\
             01\
             0000000000000000\
             0200000000000000\
             00000000\
             0300000000000000"
        );
        assert_eq!(Bucket::from_bytes(&old).unwrap(), bucket);
        bucket.settings = 3;
        let new = bucket.to_bytes();
        // Who knows the first version alone refuses it.
        assert_eq!(new[..2], [2, 2]);
        assert_eq!(Bucket::from_bytes(&new).unwrap(), bucket);
    }
}
