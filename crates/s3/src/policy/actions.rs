//! Actions by AWS's names: those that are asked for here, and those that a policy may name though nothing here asks for them yet.

use super::pattern::wild;

macro_rules! actions {
    ($($of_object:literal { $($name:ident),* $(,)? })*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Action { $($($name,)*)* }

        const ALL: &[(Action, &str, bool)] = &[$($((Action::$name, stringify!($name), $of_object),)*)*];
    };
}

// Whether they are of objects.
actions! {
    false {
        CreateBucket, ListAllMyBuckets, DeleteBucket, DeleteBucketPolicy, DeleteBucketWebsite, GetBucketWebsite, PutBucketWebsite, GetBucketObjectLockConfiguration, PutBucketObjectLockConfiguration, GetBucketAcl, GetBucketCORS, GetBucketLocation, GetBucketPolicy,
        GetBucketPolicyStatus, GetBucketPublicAccessBlock, GetBucketVersioning, GetEncryptionConfiguration, GetLifecycleConfiguration, ListBucket,
        GetBucketLogging, GetBucketNotification, PutBucketLogging, PutBucketNotification,
        ListBucketMultipartUploads, ListBucketVersions, PutBucketAcl, PutBucketCORS, PutBucketPolicy,
        PutBucketPublicAccessBlock, PutBucketVersioning, PutEncryptionConfiguration, PutLifecycleConfiguration,
    }
    true {
        AbortMultipartUpload, BypassGovernanceRetention, GetObjectLegalHold, GetObjectRetention, PutObjectLegalHold,
        PutObjectRetention, DeleteObject, DeleteObjectTagging, DeleteObjectVersion, DeleteObjectVersionTagging, GetObject,
        GetObjectAcl, GetObjectTagging, GetObjectVersion, GetObjectVersionAcl, GetObjectVersionTagging,
        ListMultipartUploadParts, PutObject, PutObjectAcl, PutObjectTagging, PutObjectVersionAcl, PutObjectVersionTagging,
    }
}

/// Known, and never asked for; those on objects have `Object` in their names.
const OTHERS: &[&str] = &[
    "GetAccelerateConfiguration",
    "GetAnalyticsConfiguration",
    "GetBucketOwnershipControls",
    "GetBucketRequestPayment",
    "GetBucketTagging",
    "GetIntelligentTieringConfiguration",
    "GetInventoryConfiguration",
    "GetMetricsConfiguration",
    "GetObjectAttributes",
    "GetObjectTorrent",
    "GetObjectVersionAttributes",
    "GetObjectVersionForReplication",
    "GetReplicationConfiguration",
    "ObjectOwnerOverrideToBucketOwner",
    "PutAccelerateConfiguration",
    "PutAnalyticsConfiguration",
    "PutBucketOwnershipControls",
    "PutBucketRequestPayment",
    "PutBucketTagging",
    "PutIntelligentTieringConfiguration",
    "PutInventoryConfiguration",
    "PutMetricsConfiguration",
    "PutReplicationConfiguration",
    "ReplicateDelete",
    "ReplicateObject",
    "ReplicateTags",
    "RestoreObject",
];

impl Action {
    /// Of objects; else of buckets.
    pub fn is_of_object(self) -> bool {
        ALL.iter().any(|(a, _, object)| *a == self && *object)
    }

    /// All that a text with wildcards means; None: it means nothing that there is.
    pub fn named(text: &str) -> Option<Vec<Self>> {
        let text = text.to_ascii_lowercase();
        if text == "*" {
            return Some(ALL.iter().map(|(a, ..)| *a).collect());
        }
        let name = text.strip_prefix("s3:")?;
        let fits = |full: &str| wild(name, &full.to_ascii_lowercase());
        let asked: Vec<Self> = ALL.iter().filter(|(_, n, _)| fits(n)).map(|(a, ..)| *a).collect();
        let known = !asked.is_empty() || OTHERS.iter().any(|n| fits(n));
        known.then_some(asked)
    }
}
