//! S3 as clients speak it, by the library s3s: which has parsed the request and checked its signature when it comes here.
//!
//! Who may do what (`permit`): a bucket is its owner's, with all that is in it. With the canned ACL public-read anybody lists a bucket,
//! and anybody reads an object that has it. A policy grants more, or denies.

mod access;
mod attributes;
mod bucket_ops;
mod caller;
mod chunks;
mod cors_ops;
mod counted;
mod customer;
mod delete_ops;
mod digest;
mod encryption_ops;
mod ending;
mod entrance;
mod errors;
mod external;
mod form;
mod hosts;
mod iam_ops;
mod iam_users;
mod kinds;
mod lifecycle_ops;
mod listing;
mod lock_ops;
mod logging_ops;
mod multipart_ops;
mod notification_filters;
mod notification_ops;
mod object_ops;
mod pace;
mod page;
mod permit;
mod policy_ops;
mod post_ops;
mod post_policy;
mod raw;
mod rights;
mod serve;
mod service;
mod sessions;
mod signed_form;
mod sts_ops;
mod swift;
#[cfg(feature = "testing")]
pub mod testing;
mod texts;
mod times;
mod topic_ops;
mod v2;
mod version_ops;
mod website_ops;

pub use hosts::{Hosts, domain};
pub use serve::{Door, Settings, serve};

use crate::accounts::Accounts;
use crate::buckets::{Bucket, Buckets};
use crate::counts::Counter;
use crate::endpoints::Endpoints;
use crate::keystone::Keystone;
use crate::logs::Logs;
use crate::master::Masters;
use crate::meters::Meters;
use crate::objects::Objects;
use crate::quota::Limits;
use crate::rados::Pool;
use crate::rate::Rates;
use crate::session::Session;
use crate::settings::Settings as BucketSettings;
use crate::topics::Topics;
use crate::usage::Usage;
use crate::{Clock, Error};
use caller::Identity;
use permit::Ask;
use s3s::{S3Request, S3Result};

/// Others may change the same bucket.
const TRIES_MAX: usize = 16;

/// All that requests need. Cheap to clone.
pub struct Front<P> {
    accounts: Accounts<P>,
    buckets: Buckets<P>,
    objects: Objects<P>,
    limits: Limits<P>,
    rates: Rates<P>,
    counter: Counter<P>,
    meters: Meters,
    /// None: no log of it is kept.
    usage: Option<Usage<P>>,
    clock: Clock,
    /// Milliseconds of a day, as lifecycles count.
    day: u64,
    keys: Keys,
    /// None: S3 alone is served.
    swift: Option<Swift>,
    topics: Topics<P>,
    /// Where events may be sent to.
    endpoints: Endpoints,
    logs: Logs,
    /// None: users are those that were made here.
    keystone: Option<Keystone>,
}

/// What is done with keys.
#[derive(Clone, Default)]
pub struct Keys {
    /// Clients' are taken without TLS, too.
    pub plain: bool,
    /// The gateway's own.
    pub masters: Masters,
}

/// How Swift is served.
#[derive(Debug, Clone, Default)]
pub struct Swift {
    /// Where clients are told that it is, `https://HOST`; None: where they came in.
    pub url: Option<String>,
}

impl<P: Clone> Clone for Front<P> {
    fn clone(&self) -> Self {
        Self {
            accounts: self.accounts.clone(),
            buckets: self.buckets.clone(),
            objects: self.objects.clone(),
            limits: self.limits.clone(),
            rates: self.rates.clone(),
            counter: self.counter.clone(),
            meters: self.meters.clone(),
            usage: self.usage.clone(),
            clock: self.clock.clone(),
            day: self.day,
            keys: self.keys.clone(),
            swift: self.swift.clone(),
            topics: self.topics.clone(),
            endpoints: self.endpoints.clone(),
            logs: self.logs.clone(),
            keystone: self.keystone.clone(),
        }
    }
}

/// The user who asks; None: anybody, or a session of a role, which has none of its owner's rights.
fn who<T>(req: &S3Request<T>) -> Option<&str> {
    let user = req.extensions.get::<Identity>().filter(|i| i.session.is_none());
    user.map(|i| i.user.as_str())
}

/// The role that was taken by who asks.
fn session<T>(req: &S3Request<T>) -> Option<&Session> {
    req.extensions.get::<Identity>()?.session.as_deref()
}

/// In whose place it is asked: what is made is his. None: anybody's. It is no right.
fn acting<T>(req: &S3Request<T>) -> Option<&str> {
    req.extensions.get::<Identity>().map(|i| i.user.as_str())
}

/// Refused if the request says that the bucket is somebody else's.
fn expect_owner<T>(req: &S3Request<T>, header: &str, bucket: &Bucket) -> S3Result<()> {
    let expected = req.headers.get(header);
    match expected.is_some_and(|e| e.as_bytes() != bucket.owner.as_bytes()) {
        true => Err(Error::AccessDenied.into()),
        false => Ok(()),
    }
}

impl<P: Pool> Front<P> {
    pub fn new(
        accounts: Accounts<P>,
        (buckets, objects): (Buckets<P>, Objects<P>),
        (limits, rates, counter): (Limits<P>, Rates<P>, Counter<P>),
        (meters, usage): (Meters, Option<Usage<P>>),
        clock: Clock,
        (day, keys): (u64, Keys),
        (swift, keystone): (Option<Swift>, Option<Keystone>),
        (topics, endpoints): (Topics<P>, Endpoints),
    ) -> Self {
        Self {
            accounts,
            buckets,
            objects,
            limits,
            rates,
            counter,
            meters,
            usage,
            clock,
            day,
            keys,
            swift,
            topics,
            endpoints,
            logs: Logs::default(),
            keystone,
        }
    }

    /// Changes what is set of a bucket, for who may.
    async fn change_settings<T>(
        &self,
        req: &S3Request<T>,
        ask: Ask<'_>,
        change: impl Fn(&mut BucketSettings),
    ) -> S3Result<()> {
        let change = |settings: &mut BucketSettings| {
            change(settings);
            Ok(())
        };
        self.try_change_settings(req, ask, change).await
    }

    /// The same, if what is set allows it.
    async fn try_change_settings<T>(
        &self,
        req: &S3Request<T>,
        ask: Ask<'_>,
        change: impl Fn(&mut BucketSettings) -> S3Result<()>,
    ) -> S3Result<()> {
        for _ in 0..TRIES_MAX {
            let known = self.permitted(req, &ask).await?;
            let mut settings = known.settings.of.clone();
            change(&mut settings)?;
            match self.buckets.set_settings(ask.bucket, &known, &settings).await {
                Err(Error::Conflict(_)) => {}
                other => return Ok(other?),
            }
        }
        Err(Error::Conflict("others change the same bucket").into())
    }
}
