//! What the console shows of buckets: what the object gateway's library says, in the console's words. Neither knows of the other.

use ::s3::{BucketFacts, META_POOL, Page, Survey, UserFacts};
use client::{Client, IoCtx};
use std::sync::Arc;
use webconsole::{Bucket, Buckets, Listed, Looking, Quota, User};

pub(crate) fn known() -> Option<Arc<dyn Buckets>> {
    Some(Arc::new(Known))
}

struct Known;

impl Buckets for Known {
    fn pool(&self) -> &'static str {
        META_POOL
    }

    fn buckets<'a>(&'a self, client: &'a Client, after: &'a str, max: u64) -> Looking<'a, Bucket> {
        Box::pin(async move {
            match open(client).await? {
                Some(survey) => listed(survey.buckets(after, max).await, bucket),
                None => listed(Ok(empty()), bucket),
            }
        })
    }

    fn users<'a>(&'a self, client: &'a Client, after: &'a str, max: u64) -> Looking<'a, User> {
        Box::pin(async move {
            match open(client).await? {
                Some(survey) => listed(survey.users(after, max).await, user),
                None => listed(Ok(empty()), user),
            }
        })
    }
}

async fn open(client: &Client) -> Result<Option<Survey<IoCtx>>, String> {
    Survey::open(client).await.map_err(|e| e.to_string())
}

/// The gateway's pool went meanwhile.
fn empty<T>() -> Page<T> {
    Page {
        shown: Vec::new(),
        more: false,
    }
}

fn listed<T, U>(page: ::s3::Result<Page<T>>, to: impl Fn(T) -> U) -> Result<Listed<U>, String> {
    let page = page.map_err(|e| e.to_string())?;
    let one = |(name, facts): (String, ::s3::Result<T>)| (name, facts.map(&to).map_err(|e| e.to_string()));
    Ok(Listed {
        shown: page.shown.into_iter().map(one).collect(),
        more: page.more,
    })
}

fn quota(quota: ::s3::Quota) -> Quota {
    // Below zero there is no limit.
    let limit = |n: i64| u64::try_from(n).ok().filter(|_| quota.enabled);
    Quota {
        bytes: limit(quota.max_bytes),
        objects: limit(quota.max_objects),
    }
}

fn bucket(facts: BucketFacts) -> Bucket {
    // Gateways that are killed miscount, also to less than nothing, until the next count.
    let amount = |n: i64| u64::try_from(n).unwrap_or(0);
    Bucket {
        held: facts
            .count
            .map(|c| (amount(c.held.objects), amount(c.held.bytes))),
        quota: quota(facts.quota),
        versioning: facts.versioning.into(),
        locked: facts.locked,
        encrypted: facts.encrypted,
        policy: facts.policy,
        public: facts.public.into_iter().map(str::to_string).collect(),
        parts: facts.parts,
        more_parts: facts.more_parts,
        owner: facts.owner,
        created: facts.created,
        deleting: facts.deleting,
    }
}

fn user(facts: UserFacts) -> User {
    User {
        display: facts.display,
        created: facts.created,
        keys: facts.keys,
        buckets: facts.buckets,
        quotas: facts.quotas.map(quota),
    }
}
