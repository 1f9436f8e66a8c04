//! Quotas: how much users and buckets may hold.
//!
//! ```text
//! in `users`:    q USER    Quotas of a user
//!                d         Quotas of users who have none of their own
//! in `buckets`:  q ID      Quota of the bucket with this id
//! ```
//!
//! A gateway remembers quotas and counts for [`KNOWN_FOR`], with what it has admitted itself since then; before it refuses it looks at what is there. So of several gateways each may
//! admit what was left when it last looked, and a bucket may go beyond its quota by what others admitted in that time.
//!
//! Bounds: [`CACHED_MAX`] buckets and as many users are remembered.

use crate::accounts::USERS;
use crate::amount::{Amount, Tally};
use crate::buckets::{BUCKETS, Bucket, Buckets, quota_row};
use crate::counts::Counter;
use crate::rados::{Change, Look, Pool};
use crate::{Clock, Error, Result};
use bytes::Bytes;
use denc::{Decode, Encode};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How long what was read is good (milliseconds).
const KNOWN_FOR: u64 = 5000;
const CACHED_MAX: usize = 256;
const TRIES_MAX: usize = 16;

/// Negative: as much as there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    pub enabled: bool,
    pub max_bytes: i64,
    pub max_objects: i64,
}

denc::envelope_denc!(Quota, 1, 1, { enabled, max_bytes, max_objects });

impl Default for Quota {
    fn default() -> Self {
        Self {
            enabled: false,
            max_bytes: -1,
            max_objects: -1,
        }
    }
}

impl Quota {
    fn allows(&self, held: Amount) -> bool {
        let within = |max: i64, n: i64| max < 0 || n <= max;
        !self.enabled || (within(self.max_bytes, held.bytes) && within(self.max_objects, held.objects))
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Quotas {
    /// Of all buckets of the user together.
    pub user: Quota,
    /// Of each that has none of its own.
    pub bucket: Quota,
}

denc::envelope_denc!(Quotas, 1, 1, { user, bucket });

/// Whose quota it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope<'a> {
    /// All buckets of a user together.
    User(&'a str),
    /// Each bucket of a user.
    BucketsOf(&'a str),
    /// Users who have none of their own.
    Users,
    /// Each bucket of those.
    BucketsOfUsers,
    Bucket(&'a str),
}

fn user_row(user: Option<&str>) -> Bytes {
    match user {
        Some(user) => [b"q", user.as_bytes()].concat().into(),
        None => Bytes::from_static(b"d"),
    }
}

/// What a bucket is held against, as it was at one time.
#[derive(Debug, Clone, Copy)]
struct OfBucket {
    at: u64,
    own: Option<Quota>,
    /// None: it was not counted yet, and nothing is refused for it.
    held: Option<Amount>,
}

#[derive(Debug, Clone, Copy)]
struct OfUser {
    at: u64,
    quotas: Quotas,
    /// In all buckets, if that is asked for.
    held: Option<Amount>,
}

/// By a name; what is admitted is added.
#[derive(Debug)]
struct Cache<T>(Arc<Mutex<HashMap<String, T>>>);

impl<T> Clone for Cache<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Default for Cache<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T: Copy> Cache<T> {
    fn all(&self) -> MutexGuard<'_, HashMap<String, T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, name: &str, good: impl Fn(&T) -> bool) -> Option<T> {
        self.all().get(name).copied().filter(good)
    }

    fn put(&self, name: &str, known: T) {
        let mut all = self.all();
        if all.len() >= CACHED_MAX && !all.contains_key(name) {
            all.clear();
        }
        all.insert(name.to_string(), known);
    }
}

/// Judges what is to be put. Clones are the same.
#[derive(Clone)]
pub struct Limits<P> {
    pool: P,
    buckets: Buckets<P>,
    counter: Counter<P>,
    clock: Clock,
    of_buckets: Cache<OfBucket>,
    of_users: Cache<OfUser>,
    /// What was admitted and is not in the index yet, by [`names`].
    on_the_way: Tally,
}

/// Counts as put until it is dropped: by then the index has it, or it was not put.
#[must_use]
pub struct Admitted {
    on_the_way: Tally,
    names: [String; 2],
    more: Amount,
}

impl Drop for Admitted {
    fn drop(&mut self) {
        for name in &self.names {
            self.on_the_way.take_away(name, self.more);
        }
    }
}

/// A bucket and its owner, told apart.
fn names(bucket: &str, user: &str) -> [String; 2] {
    [format!("b{bucket}"), format!("u{user}")]
}

impl<P: Pool> Limits<P> {
    pub fn new(pool: P, buckets: Buckets<P>, counter: Counter<P>, clock: Clock) -> Self {
        Self {
            pool,
            buckets,
            counter,
            clock,
            of_buckets: Cache::default(),
            of_users: Cache::default(),
            on_the_way: Tally::default(),
        }
    }

    /// What is set of a user; else of all who have nothing set.
    pub async fn quotas(&self, user: &str) -> Result<Quotas> {
        let rows = [&user_row(Some(user)), &user_row(None)];
        let seen = self.pool.look(USERS, Look::keys(rows)).await?;
        let set = rows.iter().find_map(|row| seen.values.get(*row));
        Ok(set.map(Quotas::from_bytes).transpose()?.unwrap_or_default())
    }

    /// Of users who have nothing set.
    async fn defaults(&self) -> Result<Quotas> {
        let row = user_row(None);
        let seen = self.pool.look(USERS, Look::keys([&row])).await?;
        let set = seen.values.get(&row).map(Quotas::from_bytes);
        Ok(set.transpose()?.unwrap_or_default())
    }

    /// A bucket's own.
    pub(crate) async fn of_bucket(&self, id: &str) -> Result<Option<Quota>> {
        let row = quota_row(id);
        let seen = self.pool.look(BUCKETS, Look::keys([&row])).await?;
        Ok(seen.values.get(&row).map(Quota::from_bytes).transpose()?)
    }

    async fn set_quotas(&self, user: Option<&str>, change: impl Fn(&mut Quotas)) -> Result<Quotas> {
        let row = user_row(user);
        for _ in 0..TRIES_MAX {
            let seen = self.pool.look(USERS, Look::keys([&row])).await?;
            let seen = seen.values.get(&row);
            // Who gets one of their own has the other as it was.
            let mut quotas = match (seen, user) {
                (Some(set), _) => Quotas::from_bytes(set)?,
                (None, Some(user)) => self.quotas(user).await?,
                (None, None) => Quotas::default(),
            };
            change(&mut quotas);
            let set = Change::default()
                .expecting(&row, seen)
                .setting(&row, quotas.to_bytes());
            match self.pool.change(USERS, set).await {
                Err(e) if e.is_conflict() => {}
                other => return other.map(|()| quotas),
            }
        }
        Err(Error::Conflict("others change the same quota"))
    }

    async fn set_of_bucket(&self, name: &str, change: impl Fn(&mut Quota)) -> Result<Quota> {
        for _ in 0..TRIES_MAX {
            let bucket = self.buckets.get(name).await?;
            let mut quota = self.of_bucket(&bucket.id).await?.unwrap_or_default();
            change(&mut quota);
            match self.buckets.set_quota(name, &bucket, quota.to_bytes()).await {
                Err(Error::Conflict(_)) => {}
                other => return other.map(|()| quota),
            }
        }
        Err(Error::Conflict("others change the same bucket"))
    }

    /// Changes one; as it is then.
    pub async fn set(&self, scope: Scope<'_>, change: impl Fn(&mut Quota)) -> Result<Quota> {
        match scope {
            Scope::User(user) => Ok(self.set_quotas(Some(user), |q| change(&mut q.user)).await?.user),
            Scope::BucketsOf(user) => Ok(self
                .set_quotas(Some(user), |q| change(&mut q.bucket))
                .await?
                .bucket),
            Scope::Users => Ok(self.set_quotas(None, |q| change(&mut q.user)).await?.user),
            Scope::BucketsOfUsers => Ok(self.set_quotas(None, |q| change(&mut q.bucket)).await?.bucket),
            Scope::Bucket(name) => self.set_of_bucket(name, change).await,
        }
    }

    pub async fn get(&self, scope: Scope<'_>) -> Result<Quota> {
        Ok(match scope {
            Scope::User(user) => self.quotas(user).await?.user,
            Scope::BucketsOf(user) => self.quotas(user).await?.bucket,
            Scope::Users => self.defaults().await?.user,
            Scope::BucketsOfUsers => self.defaults().await?.bucket,
            Scope::Bucket(name) => {
                let bucket = self.buckets.get(name).await?;
                self.of_bucket(&bucket.id).await?.unwrap_or_default()
            }
        })
    }

    /// What a user's buckets hold together.
    async fn held_by(&self, user: &str) -> Result<Amount> {
        let ids = self.buckets.ids_of(user).await?;
        let mut held = Amount::default();
        for count in self.counter.counts(&ids).await?.into_values() {
            held += count.held;
        }
        let [_, user] = names("", user);
        held += self.on_the_way.of(&user);
        Ok(held)
    }

    async fn known_user(&self, user: &str, now: u64) -> Result<OfUser> {
        if let Some(known) = self.of_users.get(user, |k| now.abs_diff(k.at) < KNOWN_FOR) {
            return Ok(known);
        }
        let quotas = self.quotas(user).await?;
        let held = match quotas.user.enabled {
            true => Some(self.held_by(user).await?),
            false => None,
        };
        let known = OfUser {
            at: now,
            quotas,
            held,
        };
        self.of_users.put(user, known);
        Ok(known)
    }

    async fn known_bucket(&self, id: &str, now: u64) -> Result<OfBucket> {
        if let Some(known) = self.of_buckets.get(id, |k| now.abs_diff(k.at) < KNOWN_FOR) {
            return Ok(known);
        }
        let own = self.of_bucket(id).await?;
        let counts = self.counter.counts(&[id.to_string()]).await?;
        let [bucket, _] = names(id, "");
        let known = OfBucket {
            at: now,
            own,
            held: counts.get(id).map(|c| {
                let mut held = c.held;
                held += self.on_the_way.of(&bucket);
                held
            }),
        };
        self.of_buckets.put(id, known);
        Ok(known)
    }

    /// Refused if so much more is beyond a quota. What is known adds up what was admitted, and not what went: before anything is refused
    /// it is read anew.
    pub async fn check(&self, bucket: &Bucket, more: Amount) -> Result<()> {
        match self.check_known(bucket, more).await {
            Err(Error::Quota(_)) => {
                self.of_users.all().remove(&bucket.owner);
                self.of_buckets.all().remove(&bucket.id);
                self.check_known(bucket, more).await
            }
            other => other,
        }
    }

    async fn check_known(&self, bucket: &Bucket, more: Amount) -> Result<()> {
        let now = self.clock.now_ms();
        let user = self.known_user(&bucket.owner, now).await?;
        let known = self.known_bucket(&bucket.id, now).await?;
        // Others may have been admitted while this was read.
        let user = self.of_users.get(&bucket.owner, |_| true).unwrap_or(user);
        let known = self.of_buckets.get(&bucket.id, |_| true).unwrap_or(known);
        let after = |held: Amount| {
            let mut held = held;
            held += more;
            held
        };
        let quota = known.own.filter(|q| q.enabled).unwrap_or(user.quotas.bucket);
        if known.held.is_some_and(|held| !quota.allows(after(held))) {
            return Err(Error::Quota("bucket"));
        }
        if user
            .held
            .is_some_and(|held| !user.quotas.user.allows(after(held)))
        {
            return Err(Error::Quota("user"));
        }
        Ok(())
    }

    /// The same, and counts it as put while the answer is held.
    pub async fn admit(&self, bucket: &Bucket, more: Amount) -> Result<Admitted> {
        self.check(bucket, more).await?;
        let admitted = Admitted {
            on_the_way: self.on_the_way.clone(),
            names: names(&bucket.id, &bucket.owner),
            more,
        };
        for name in &admitted.names {
            self.on_the_way.add(name, more);
        }
        if let Some(held) = self
            .of_buckets
            .all()
            .get_mut(&bucket.id)
            .and_then(|k| k.held.as_mut())
        {
            *held += more;
        }
        if let Some(held) = self
            .of_users
            .all()
            .get_mut(&bucket.owner)
            .and_then(|k| k.held.as_mut())
        {
            *held += more;
        }
        Ok(admitted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_is_what_may_be_there() {
        let quota = Quota {
            enabled: true,
            max_bytes: 10,
            max_objects: -1,
        };
        assert!(quota.allows(Amount {
            bytes: 10,
            objects: 1 << 40
        }));
        assert!(!quota.allows(Amount {
            bytes: 11,
            objects: 1
        }));
        assert!(
            Quota {
                enabled: false,
                ..quota
            }
            .allows(Amount {
                bytes: 11,
                objects: 1
            })
        );
        let none = Quota {
            max_objects: 0,
            ..quota
        };
        assert!(none.allows(Amount::default()) && !none.allows(Amount::object(0)));
    }
}
