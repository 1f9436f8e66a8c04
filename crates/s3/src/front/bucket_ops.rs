//! Buckets: create, head, list, delete, location, ACL, and what is asked of features that are not built.

use super::attributes::{public_read, refuse_unbuilt};
use super::errors::invalid;
use super::permit::{Ask, check_public};
use super::rights::{canned, grants};
use super::texts::{owner, page_size, timestamp};
use super::{Front, TRIES_MAX};
use crate::Error;
use crate::history::Versioning;
use crate::policy::{Action, Key};
use crate::rados::Pool;
use crate::settings::{ObjectLock, Settings};
use s3s::dto::*;
use s3s::{S3Request, S3Result};

/// The region that clients are told; requests signed for any other are as good.
pub const REGION: &str = "us-east-1";
const LOCATION_MAX: usize = 64;

impl<P: Pool> Front<P> {
    pub async fn create_bucket(&self, req: S3Request<CreateBucketInput>) -> S3Result<CreateBucketOutput> {
        let user = self.may_create(&req)?;
        refuse_unbuilt(&req.headers)?;
        let input = &req.input;
        let settings = match input.object_lock_enabled_for_bucket {
            Some(true) => Settings {
                versioning: Versioning::Enabled,
                lock: Some(ObjectLock::default()),
                ..Settings::default()
            },
            _ => Settings::default(),
        };
        let public = public_read(input.acl.as_ref().map(|a| a.as_str()))?;
        let location = input.create_bucket_configuration.as_ref();
        let location = location
            .and_then(|c| c.location_constraint.as_ref())
            .map_or("", |l| l.as_str());
        if location.len() > LOCATION_MAX {
            return Err(invalid("a location has at most 64 bytes"));
        }
        let how = (public, location, &settings);
        // Whoever is made under the name of one that was removed shall not find his bucket.
        self.accounts.user_now(user).await?;
        self.buckets.create(&input.bucket, user, how).await?;
        Ok(CreateBucketOutput {
            location: Some(format!("/{}", input.bucket)),
        })
    }

    /// In whose place a bucket is made.
    fn may_create<'a>(&self, req: &'a S3Request<CreateBucketInput>) -> S3Result<&'a str> {
        let acl = req.input.acl.as_ref().map(|a| a.as_str());
        let placed = |action| self.placed(req, &Ask::bucket(action, &req.input.bucket).with(Key::Acl, acl));
        let user = placed(Action::CreateBucket)?;
        for action in asked_with(&req.input) {
            placed(action)?;
        }
        Ok(user)
    }

    pub async fn head_bucket(&self, req: S3Request<HeadBucketInput>) -> S3Result<HeadBucketOutput> {
        let ask = Ask::bucket(Action::ListBucket, &req.input.bucket);
        let bucket = self.listable(&req, &ask).await?.bucket;
        Ok(HeadBucketOutput {
            bucket_region: Some(region(&bucket.location).to_string()),
            ..HeadBucketOutput::default()
        })
    }

    pub async fn delete_bucket(&self, req: S3Request<DeleteBucketInput>) -> S3Result<()> {
        let ask = Ask::bucket(Action::DeleteBucket, &req.input.bucket);
        self.permitted(&req, &ask).await?;
        Ok(self.buckets.delete(&req.input.bucket).await?)
    }

    pub async fn list_buckets(&self, req: S3Request<ListBucketsInput>) -> S3Result<ListBucketsOutput> {
        let user = self.placed(&req, &Ask::bucket(Action::ListAllMyBuckets, ""))?;
        let input = &req.input;
        let max = page_size(input.max_buckets, crate::buckets::BUCKETS_MAX)?.max(1);
        let prefix = input.prefix.as_deref().unwrap_or_default();
        let after = input.continuation_token.as_deref().unwrap_or_default();
        let mut of_user = self.buckets.of(user).await?;
        of_user.retain(|(name, _)| name.starts_with(prefix) && name.as_str() > after);
        let more = of_user.len() > max;
        of_user.truncate(max);
        let token = of_user.last().filter(|_| more).map(|(name, _)| name.clone());
        let bucket = |(name, created)| Bucket {
            bucket_region: None,
            creation_date: Some(timestamp(created)),
            name: Some(name),
        };
        Ok(ListBucketsOutput {
            buckets: Some(of_user.into_iter().map(bucket).collect()),
            continuation_token: token,
            owner: owner(user),
            prefix: input.prefix.clone(),
        })
    }

    pub async fn location(
        &self,
        req: S3Request<GetBucketLocationInput>,
    ) -> S3Result<GetBucketLocationOutput> {
        let ask = Ask::bucket(Action::GetBucketLocation, &req.input.bucket);
        let bucket = self.permitted(&req, &ask).await?.bucket;
        let location = Some(bucket.location).filter(|l| !l.is_empty());
        Ok(GetBucketLocationOutput {
            location_constraint: location.map(BucketLocationConstraint::from),
        })
    }

    pub async fn set_bucket_acl(&self, req: S3Request<PutBucketAclInput>) -> S3Result<()> {
        refuse_unbuilt(&req.headers)?;
        let acl = req.input.acl.as_ref().map(|a| a.as_str());
        let ask = Ask::bucket(Action::PutBucketAcl, &req.input.bucket).with(Key::Acl, acl);
        for _ in 0..TRIES_MAX {
            let known = self.permitted(&req, &ask).await?;
            let public = canned(acl, req.input.access_control_policy.as_ref(), &known.bucket.owner)?;
            check_public(&known, public)?;
            let set = self.buckets.set_public_read(ask.bucket, &known.bucket, public);
            match set.await {
                Err(Error::Conflict(_)) => {}
                other => return Ok(other?),
            }
        }
        Err(Error::Conflict("others change the same bucket").into())
    }

    pub async fn bucket_acl(&self, req: S3Request<GetBucketAclInput>) -> S3Result<GetBucketAclOutput> {
        let ask = Ask::bucket(Action::GetBucketAcl, &req.input.bucket);
        let bucket = self.permitted(&req, &ask).await?.bucket;
        Ok(GetBucketAclOutput {
            grants: Some(grants(&bucket.owner, bucket.public_read)),
            owner: owner(&bucket.owner),
        })
    }
}

/// What a bucket is made with is asked for as if it were set later.
fn asked_with(input: &CreateBucketInput) -> Vec<Action> {
    let mut actions = Vec::new();
    // Whatever but a private one.
    if input.acl.as_ref().is_some_and(|a| a.as_str() != "private") {
        actions.push(Action::PutBucketAcl);
    }
    if input.object_lock_enabled_for_bucket == Some(true) {
        actions.extend([
            Action::PutBucketObjectLockConfiguration,
            Action::PutBucketVersioning,
        ]);
    }
    actions
}

fn region(location: &str) -> &str {
    if location.is_empty() { REGION } else { location }
}
