//! Policies of buckets, and the block of public access.

use super::permit::Ask;
use super::{Front, TRIES_MAX};
use crate::Error;
use crate::policy::{Action, Policy};
use crate::rados::Pool;
use crate::settings::Block;
use s3s::dto::{
    DeleteBucketPolicyInput, DeletePublicAccessBlockInput, GetBucketPolicyInput, GetBucketPolicyOutput,
    GetBucketPolicyStatusInput, GetBucketPolicyStatusOutput, GetPublicAccessBlockInput,
    GetPublicAccessBlockOutput, PolicyStatus, PublicAccessBlockConfiguration, PutBucketPolicyInput,
    PutPublicAccessBlockInput,
};
use s3s::{S3Error, S3ErrorCode, S3Request, S3Result};

fn no_policy() -> S3Error {
    S3Error::with_message(S3ErrorCode::NoSuchBucketPolicy, "the bucket has no policy")
}

fn malformed(what: String) -> S3Error {
    S3Error::with_message(S3ErrorCode::MalformedPolicy, what)
}

impl<P: Pool> Front<P> {
    pub async fn set_policy(&self, req: S3Request<PutBucketPolicyInput>) -> S3Result<()> {
        let (bucket, text) = (&req.input.bucket, &req.input.policy);
        self.own(&req, bucket).await?;
        let policy = Policy::parse(text, bucket).map_err(malformed)?;
        if let Some(user) = self.accounts.missing(policy.users()).await? {
            return Err(malformed(format!("there is no user {user}, who is a principal")));
        }
        if let Some(role) = self.accounts.missing_role(policy.roles()).await? {
            return Err(malformed(format!(
                "there is no role {role}, which is a principal"
            )));
        }
        for _ in 0..TRIES_MAX {
            let known = self.own(&req, bucket).await?;
            if known.settings.block().policy && policy.is_public() {
                return Err(S3Error::with_message(
                    S3ErrorCode::AccessDenied,
                    "public policies are prevented by the BlockPublicPolicy setting of the bucket",
                ));
            }
            let mut settings = known.settings.of.clone();
            settings.policy.clone_from(text);
            match self.buckets.set_settings(bucket, &known, &settings).await {
                Err(Error::Conflict(_)) => {}
                other => return Ok(other?),
            }
        }
        Err(Error::Conflict("others change the same bucket").into())
    }

    pub async fn remove_policy(&self, req: S3Request<DeleteBucketPolicyInput>) -> S3Result<()> {
        for _ in 0..TRIES_MAX {
            let known = self.own(&req, &req.input.bucket).await?;
            let mut settings = known.settings.of.clone();
            settings.policy.clear();
            let set = self.buckets.set_settings(&req.input.bucket, &known, &settings);
            match set.await {
                Err(Error::Conflict(_)) => {}
                other => return Ok(other?),
            }
        }
        Err(Error::Conflict("others change the same bucket").into())
    }

    pub async fn policy(&self, req: S3Request<GetBucketPolicyInput>) -> S3Result<GetBucketPolicyOutput> {
        let known = self.own(&req, &req.input.bucket).await?;
        match known.settings.of.policy.clone() {
            none if none.is_empty() => Err(no_policy()),
            text => Ok(GetBucketPolicyOutput { policy: Some(text) }),
        }
    }

    pub async fn policy_status(
        &self,
        req: S3Request<GetBucketPolicyStatusInput>,
    ) -> S3Result<GetBucketPolicyStatusOutput> {
        let ask = Ask::bucket(Action::GetBucketPolicyStatus, &req.input.bucket);
        let known = self.permitted(&req, &ask).await?;
        let policy = known.settings.policy.as_ref().ok_or_else(no_policy)?;
        Ok(GetBucketPolicyStatusOutput {
            policy_status: Some(PolicyStatus {
                is_public: Some(policy.is_public()),
            }),
        })
    }

    pub async fn set_block(&self, req: S3Request<PutPublicAccessBlockInput>) -> S3Result<()> {
        let given = &req.input.public_access_block_configuration;
        let on = |flag: Option<bool>| flag.unwrap_or(false);
        let block = Block {
            acls: on(given.block_public_acls),
            ignore_acls: on(given.ignore_public_acls),
            policy: on(given.block_public_policy),
            restrict: on(given.restrict_public_buckets),
        };
        let ask = Ask::bucket(Action::PutBucketPublicAccessBlock, &req.input.bucket);
        self.change_settings(&req, ask, |s| s.block = Some(block)).await
    }

    pub async fn remove_block(&self, req: S3Request<DeletePublicAccessBlockInput>) -> S3Result<()> {
        let ask = Ask::bucket(Action::PutBucketPublicAccessBlock, &req.input.bucket);
        self.change_settings(&req, ask, |s| s.block = None).await
    }

    pub async fn block(
        &self,
        req: S3Request<GetPublicAccessBlockInput>,
    ) -> S3Result<GetPublicAccessBlockOutput> {
        let ask = Ask::bucket(Action::GetBucketPublicAccessBlock, &req.input.bucket);
        let known = self.permitted(&req, &ask).await?;
        let Some(block) = known.settings.of.block else {
            let code = S3ErrorCode::from_bytes(b"NoSuchPublicAccessBlockConfiguration");
            let mut e = S3Error::with_message(
                code.unwrap_or(S3ErrorCode::InvalidRequest),
                "the bucket has no block of public access",
            );
            e.set_status_code(hyper::StatusCode::NOT_FOUND);
            return Err(e);
        };
        Ok(GetPublicAccessBlockOutput {
            public_access_block_configuration: Some(PublicAccessBlockConfiguration {
                block_public_acls: Some(block.acls),
                block_public_policy: Some(block.policy),
                ignore_public_acls: Some(block.ignore_acls),
                restrict_public_buckets: Some(block.restrict),
            }),
        })
    }
}
