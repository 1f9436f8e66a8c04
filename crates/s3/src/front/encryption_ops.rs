//! Whether a bucket's objects are encrypted with a key of the gateway by themselves (SSE-S3).

use super::Front;
use super::customer::no_master;
use super::errors::{coded, not_built};
use super::permit::Ask;
use super::raw::{self, Leaf};
use crate::policy::Action;
use crate::rados::Pool;
use s3s::dto::*;
use s3s::{S3ErrorCode, S3Request, S3Result};

pub(super) const LEAVES: [(&str, Leaf); 3] = [
    ("SSEAlgorithm", Leaf::Text),
    ("KMSMasterKeyID", Leaf::Text),
    ("BucketKeyEnabled", Leaf::Text),
];

/// One rule, of AES256 alone.
fn check(given: &ServerSideEncryptionConfiguration) -> S3Result<()> {
    let malformed = |why: &str| Err(coded(S3ErrorCode::MalformedXML, why));
    let [rule] = given.rules.as_slice() else {
        return malformed("one Rule is wanted");
    };
    let Some(default) = &rule.apply_server_side_encryption_by_default else {
        return malformed("ApplyServerSideEncryptionByDefault is wanted");
    };
    if rule.bucket_key_enabled == Some(true) {
        return Err(not_built(
            "BucketKeyEnabled, which is of keys of a service (SSE-KMS)",
        ));
    }
    match (default.sse_algorithm.as_str(), &default.kms_master_key_id) {
        ("AES256", None) => Ok(()),
        ("AES256", Some(_)) => Err(coded(
            S3ErrorCode::InvalidArgument,
            "a KMSMasterKeyID is of aws:kms alone",
        )),
        (other, _) if other.starts_with("aws:") => {
            Err(not_built("encryption with keys of a service (SSE-KMS)"))
        }
        _ => malformed("the SSEAlgorithm is AES256"),
    }
}

impl<P: Pool> Front<P> {
    pub async fn set_encryption(&self, req: S3Request<PutBucketEncryptionInput>) -> S3Result<()> {
        let ask = Ask::bucket(Action::PutEncryptionConfiguration, &req.input.bucket);
        self.permitted(&req, &ask).await?;
        raw::check_request(&req, &LEAVES)?;
        check(&req.input.server_side_encryption_configuration)?;
        // What is put would be refused from then on.
        if self.keys.masters.first().is_none() {
            return Err(no_master());
        }
        self.change_settings(&req, ask, |s| s.encrypt = true).await
    }

    pub async fn remove_encryption(&self, req: S3Request<DeleteBucketEncryptionInput>) -> S3Result<()> {
        let ask = Ask::bucket(Action::PutEncryptionConfiguration, &req.input.bucket);
        self.change_settings(&req, ask, |s| s.encrypt = false).await
    }

    pub async fn encryption(
        &self,
        req: S3Request<GetBucketEncryptionInput>,
    ) -> S3Result<GetBucketEncryptionOutput> {
        let ask = Ask::bucket(Action::GetEncryptionConfiguration, &req.input.bucket);
        let known = self.permitted(&req, &ask).await?;
        if !known.settings.of.encrypt {
            return Err(coded(
                S3ErrorCode::ServerSideEncryptionConfigurationNotFoundError,
                "The server side encryption configuration was not found",
            ));
        }
        let rule = ServerSideEncryptionRule {
            apply_server_side_encryption_by_default: Some(ServerSideEncryptionByDefault {
                sse_algorithm: ServerSideEncryption::from_static(ServerSideEncryption::AES256),
                kms_master_key_id: None,
            }),
            bucket_key_enabled: Some(false),
        };
        Ok(GetBucketEncryptionOutput {
            server_side_encryption_configuration: Some(ServerSideEncryptionConfiguration {
                rules: vec![rule],
            }),
        })
    }
}
