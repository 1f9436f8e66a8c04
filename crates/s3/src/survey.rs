//! What buckets and users there are, page by page, for who looks at them: the console.
//!
//! Everything is read as the client's entity, and nothing is made or changed: rights to read the system pool are all that it takes. Secrets
//! are not read. A record that cannot be read hides no other.

use crate::accounts::{USERS, User, all_rows, keys_prefix, row};
use crate::amount::Count;
use crate::buckets::{BUCKETS, Bucket, Buckets, owned_prefix, settings_row};
use crate::container::Acl;
use crate::counts::Counter;
use crate::gateway::META_POOL;
use crate::history::Versioning;
use crate::index::{Index, SPLIT_AT};
use crate::policy::Policy;
use crate::quota::{Limits, Quota};
use crate::rados::{Look, Pool};
use crate::settings::Settings;
use crate::{Clock, Result};
use bytes::Bytes;
use client::{Client, IoCtx};
use denc::Decode;

/// Some of a list, in the order of names.
#[derive(Debug)]
pub struct Page<T> {
    pub shown: Vec<(String, Result<T>)>,
    pub more: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BucketFacts {
    pub owner: String,
    /// Milliseconds since 1970.
    pub created: u64,
    pub deleting: bool,
    /// None: nobody has counted yet.
    pub count: Option<Count>,
    /// Its own.
    pub quota: Quota,
    pub versioning: &'static str,
    /// Versions may be locked.
    pub locked: bool,
    /// What is put is sealed with a key of the gateway.
    pub encrypted: bool,
    pub policy: bool,
    /// By what everybody is let in, as far as that is not blocked.
    pub public: Vec<&'static str>,
    /// Parts of its index, of the first page of them.
    pub parts: u64,
    pub more_parts: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserFacts {
    pub display: String,
    pub created: u64,
    pub keys: u64,
    pub buckets: u64,
    /// Of all buckets together, and of each.
    pub quotas: [Quota; 2],
}

/// The system pool, to be read.
pub struct Survey<P> {
    pool: P,
    index: Index<P>,
    counter: Counter<P>,
    limits: Limits<P>,
}

impl Survey<IoCtx> {
    /// None: no gateway has ever begun here.
    pub async fn open(client: &Client) -> Result<Option<Self>> {
        let meta = match client.pool(META_POOL).await {
            Err(e) if e.is_not_found() => return Ok(None),
            other => other?,
        };
        Ok(Some(Self::new(meta, crate::gateway::clock(client))))
    }
}

impl<P: Pool> Survey<P> {
    pub(crate) fn new(pool: P, clock: Clock) -> Self {
        let index = Index::new(pool.clone(), clock.clone(), SPLIT_AT);
        let counter = Counter::new(pool.clone(), index.clone(), clock.clone());
        let buckets = Buckets::new(pool.clone(), index.clone(), clock.clone());
        Self {
            limits: Limits::new(pool.clone(), buckets, counter.clone(), clock),
            pool,
            index,
            counter,
        }
    }

    /// Buckets behind this name.
    pub async fn buckets(&self, after: &str, max: u64) -> Result<Page<BucketFacts>> {
        let (rows, more) = self.rows(BUCKETS, "b", after, max).await?;
        let mut shown = Vec::with_capacity(rows.len());
        for (name, value) in rows {
            let facts = self.bucket(&name, &value).await;
            shown.push((name, facts));
        }
        Ok(Page { shown, more })
    }

    /// Users behind this name.
    pub async fn users(&self, after: &str, max: u64) -> Result<Page<UserFacts>> {
        let (rows, more) = self.rows(USERS, "u", after, max).await?;
        let mut shown = Vec::with_capacity(rows.len());
        for (name, value) in rows {
            let facts = self.user(&name, &value).await;
            shown.push((name, facts));
        }
        Ok(Page { shown, more })
    }

    /// Rows of a class behind a name. An object that is not there yet has none.
    async fn rows(
        &self,
        oid: &str,
        class: &str,
        after: &str,
        max: u64,
    ) -> Result<(Vec<(String, Bytes)>, bool)> {
        let look = Look::rows(&row(class, after), &row(class, ""), max);
        let seen = match self.pool.look(oid, look).await {
            Err(e) if e.is_not_found() => return Ok((Vec::new(), false)),
            other => other?,
        };
        let name = |key: &Bytes| String::from_utf8_lossy(&key[class.len()..]).into_owned();
        let rows = seen.rows.into_iter().map(|(key, value)| (name(&key), value));
        Ok((rows.collect(), seen.more))
    }

    async fn bucket(&self, name: &str, value: &Bytes) -> Result<BucketFacts> {
        let bucket = Bucket::from_bytes(value)?;
        let settings = self.settings(&bucket).await?;
        let counts = self.counter.counts(std::slice::from_ref(&bucket.id)).await?;
        let (parts, more_parts) = self.index.parts(&bucket.id).await?;
        Ok(BucketFacts {
            count: counts.get(&bucket.id).copied(),
            quota: self.limits.of_bucket(&bucket.id).await?.unwrap_or_default(),
            versioning: match settings.versioning {
                Versioning::Off => "off",
                Versioning::Enabled => "on",
                Versioning::Suspended => "suspended",
            },
            locked: settings.lock.is_some(),
            encrypted: settings.encrypt,
            policy: !settings.policy.is_empty(),
            public: public(&bucket, &settings, name),
            created: bucket.created,
            deleting: bucket.deleting != 0,
            owner: bucket.owner,
            parts,
            more_parts,
        })
    }

    async fn settings(&self, bucket: &Bucket) -> Result<Settings> {
        if bucket.settings == 0 {
            return Ok(Settings::default());
        }
        let row = settings_row(&bucket.id);
        let seen = self.pool.look(BUCKETS, Look::keys([&row])).await?;
        let settings = seen.values.get(&row).map(Settings::from_bytes);
        // They went since the bucket was read.
        Ok(settings.transpose()?.unwrap_or_default())
    }

    async fn user(&self, id: &str, value: &Bytes) -> Result<UserFacts> {
        let user = User::from_bytes(value)?;
        let quotas = self.limits.quotas(id).await?;
        Ok(UserFacts {
            display: user.display,
            created: user.created,
            keys: self.count(USERS, keys_prefix(id)).await?,
            buckets: self.count(BUCKETS, owned_prefix(id)).await?,
            quotas: [quotas.user, quotas.bucket],
        })
    }

    /// Rows that begin so: of one user, who has a bounded number of them.
    async fn count(&self, oid: &str, prefix: Bytes) -> Result<u64> {
        match all_rows(&self.pool, oid, &prefix).await {
            Err(e) if e.is_not_found() => Ok(0),
            other => Ok(other?.len() as u64),
        }
    }
}

/// As `front::permit` decides it.
fn public(bucket: &Bucket, settings: &Settings, name: &str) -> Vec<&'static str> {
    let block = settings.block.unwrap_or_default();
    let policy = || Policy::parse(&settings.policy, name).is_ok_and(|p| p.is_public());
    let anybody = |acl: &str| Acl::parse(acl).is_ok_and(|a| a.public);
    let swift = settings.container.as_ref().is_some_and(|c| anybody(&c.read));
    let all = [
        ("ACL", bucket.public_read && !block.ignore_acls),
        (
            "policy",
            !settings.policy.is_empty() && !block.restrict && policy(),
        ),
        ("Swift's ACL", swift && !block.ignore_acls),
    ];
    all.into_iter().filter(|(_, is)| *is).map(|(by, _)| by).collect()
}
