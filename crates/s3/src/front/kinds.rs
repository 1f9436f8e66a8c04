//! What the usage log calls operations: as radosgw does (16.2.15), where it has them.

use super::caller::Notes;

const KINDS: &[(&str, &str)] = &[
    ("AbortMultipartUpload", "abort_multipart"),
    ("CompleteMultipartUpload", "complete_multipart"),
    ("CopyObject", "copy_obj"),
    ("CreateBucket", "create_bucket"),
    ("CreateMultipartUpload", "init_multipart"),
    ("DeleteBucket", "delete_bucket"),
    ("DeleteBucketCors", "delete_cors"),
    ("DeleteBucketLifecycle", "delete_lifecycle"),
    ("DeleteObject", "delete_obj"),
    ("DeleteObjectTagging", "delete_obj_tags"),
    ("DeleteObjects", "multi_object_delete"),
    ("DeletePublicAccessBlock", "delete_bucket_public_access_block"),
    ("GetBucketAcl", "get_acls"),
    ("GetBucketCors", "get_cors"),
    ("GetBucketLifecycleConfiguration", "get_lifecycle"),
    ("GetObject", "get_obj"),
    ("GetObjectAcl", "get_acls"),
    ("GetObjectAttributes", "get_obj"),
    ("GetObjectLegalHold", "get_obj_legal_hold"),
    ("GetObjectLockConfiguration", "get_bucket_object_lock"),
    ("GetObjectRetention", "get_obj_retention"),
    ("GetObjectTagging", "get_obj_tags"),
    ("GetPublicAccessBlock", "get_bucket_public_access_block"),
    ("HeadBucket", "stat_bucket"),
    ("HeadObject", "get_obj"),
    ("ListBuckets", "list_buckets"),
    ("ListMultipartUploads", "list_bucket_multiparts"),
    ("ListObjectVersions", "list_bucket"),
    ("ListObjects", "list_bucket"),
    ("ListObjectsV2", "list_bucket"),
    ("ListParts", "list_multipart"),
    ("PostObject", "post_obj"),
    ("Preflight", "options_cors"),
    ("PutBucketAcl", "put_acls"),
    ("PutBucketCors", "put_cors"),
    ("PutBucketLifecycleConfiguration", "put_lifecycle"),
    ("PutBucketVersioning", "set_bucket_versioning"),
    ("PutObject", "put_obj"),
    ("PutObjectAcl", "put_acls"),
    ("PutObjectLegalHold", "put_obj_legal_hold"),
    ("PutObjectLockConfiguration", "put_bucket_object_lock"),
    ("PutObjectRetention", "put_obj_retention"),
    ("PutObjectTagging", "put_obj_tags"),
    ("PutPublicAccessBlock", "put_bucket_public_access_block"),
    ("UploadPart", "put_obj"),
    ("UploadPartCopy", "put_obj"),
];

/// The library's name of an operation as the log has it.
pub fn kind(operation: &str) -> String {
    let known = KINDS.iter().find(|(name, _)| *name == operation);
    known.map_or_else(|| snake(operation), |(_, kind)| (*kind).to_string())
}

/// `GetBucketWebsite` as `get_bucket_website`.
fn snake(name: &str) -> String {
    let mut out = String::new();
    for c in name.chars() {
        if c.is_ascii_uppercase() && !out.is_empty() {
            out.push('_');
        }
        out.push(c.to_ascii_lowercase());
    }
    out
}

/// Who has a request in the log, and in which bucket: the owner of the bucket; where there is none, who asks. None: nobody that is known.
pub fn place(notes: &Notes, status: u16) -> Option<(String, String)> {
    let named = notes.bucket.clone().unwrap_or_default();
    match (&notes.owner, &notes.user) {
        (Some(owner), _) => Some((owner.clone(), named)),
        // It has just been made.
        (None, Some(user)) if status < 400 => Some((user.clone(), named)),
        // Names that are not there would be rows without end.
        (None, Some(user)) => Some((user.clone(), if named.is_empty() { named } else { "-".into() })),
        (None, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_radosgws() {
        for (name, want) in [
            ("ListObjectsV2", "list_bucket"),
            ("GetBucketLocation", "get_bucket_location"),
            ("PutBucketPolicy", "put_bucket_policy"),
        ] {
            assert_eq!(kind(name), want);
        }
        assert!(KINDS.is_sorted());
    }

    #[test]
    fn owners_have_what_is_asked_of_their_buckets() {
        let notes = |owner: Option<&str>, user: Option<&str>, bucket: Option<&str>| Notes {
            owner: owner.map(Into::into),
            user: user.map(Into::into),
            bucket: bucket.map(Into::into),
            ..Notes::default()
        };
        for (notes, status, want) in [
            (notes(Some("a"), Some("b"), Some("k")), 200, Some(("a", "k"))),
            (notes(Some("a"), None, Some("k")), 403, Some(("a", "k"))),
            (notes(None, Some("b"), Some("k")), 200, Some(("b", "k"))),
            (notes(None, Some("b"), Some("k")), 404, Some(("b", "-"))),
            (notes(None, Some("b"), None), 200, Some(("b", ""))),
            (notes(None, None, Some("k")), 403, None),
        ] {
            let want = want.map(|(u, b): (&str, &str)| (u.to_string(), b.to_string()));
            assert_eq!(place(&notes, status), want, "{notes:?}");
        }
    }
}
