//! Tags and ACLs of objects.

use super::Front;
use super::attributes::{check_tags, public_read, refuse_unbuilt, which};
use super::errors::not_built;
use super::object_ops::version_of;
use super::permit::{Ask, check_public};
use super::texts::owner;
use crate::notify::How;
use crate::policy::{Action, Key};
use crate::rados::Pool;
use s3s::dto::*;
use s3s::{S3Error, S3ErrorCode, S3Request, S3Result};
use std::collections::BTreeMap;

impl<P: Pool> Front<P> {
    pub async fn tags_of(&self, req: S3Request<GetObjectTaggingInput>) -> S3Result<GetObjectTaggingOutput> {
        let which = which(req.input.version_id.as_deref())?;
        let ask = Ask::object(Action::GetObjectTagging, &req.input.bucket, &req.input.key)
            .version(which, Action::GetObjectVersionTagging);
        let known = self.permitted(&req, &ask).await?;
        let entry = self.version(&known, &req.input.key, which).await?;
        let version_id = version_of(&known, &entry);
        let tag = |(k, v)| Tag {
            key: Some(k),
            value: Some(v),
        };
        Ok(GetObjectTaggingOutput {
            tag_set: entry.attributes.tags.into_iter().map(tag).collect(),
            version_id,
        })
    }

    /// The version whose tags were set, where there is versioning.
    pub async fn set_tags<T>(
        &self,
        req: &S3Request<T>,
        ([action, of_version], bucket, key): ([Action; 2], &str, &str),
        id: Option<&str>,
        set: TagSet,
    ) -> S3Result<Option<String>> {
        let which = which(id)?;
        let ask = Ask::object(action, bucket, key).version(which, of_version);
        let known = self.permitted(req, &ask).await?;
        let n = set.len();
        let tags: BTreeMap<String, String> = set
            .into_iter()
            .map(|t| (t.key.unwrap_or_default(), t.value.unwrap_or_default()))
            .collect();
        if tags.len() != n {
            return Err(S3Error::with_message(
                S3ErrorCode::InvalidTag,
                "a tag is named twice",
            ));
        }
        let tags = check_tags(tags)?;
        let how = match action {
            Action::PutObjectTagging => How::Tag,
            _ => How::Untag,
        };
        let objects = self.telling(&known, (bucket, key), how, &self.asker(req));
        let amended = objects.amend(&known.bucket.id, key, which, |e| {
            e.attributes.tags.clone_from(&tags);
            Ok(())
        });
        let entry = amended.await?;
        Ok(version_of(&known, &entry))
    }

    pub async fn set_object_acl(&self, req: S3Request<PutObjectAclInput>) -> S3Result<()> {
        refuse_unbuilt(&req.headers)?;
        let which = which(req.input.version_id.as_deref())?;
        let acl = req.input.acl.as_ref().map(|a| a.as_str());
        let ask = Ask::object(Action::PutObjectAcl, &req.input.bucket, &req.input.key)
            .version(which, Action::PutObjectVersionAcl)
            .with(Key::Acl, acl);
        let known = self.permitted(&req, &ask).await?;
        let bucket = &known.bucket;
        let public = canned(acl, req.input.access_control_policy.as_ref(), &bucket.owner)?;
        check_public(&known, public)?;
        let amended = self.objects.amend(&bucket.id, &req.input.key, which, |e| {
            e.attributes.public_read = public;
            Ok(())
        });
        amended.await?;
        Ok(())
    }

    pub async fn object_acl(&self, req: S3Request<GetObjectAclInput>) -> S3Result<GetObjectAclOutput> {
        let which = which(req.input.version_id.as_deref())?;
        let ask = Ask::object(Action::GetObjectAcl, &req.input.bucket, &req.input.key)
            .version(which, Action::GetObjectVersionAcl);
        let known = self.permitted(&req, &ask).await?;
        let entry = self.version(&known, &req.input.key, which).await?;
        let bucket = known.bucket;
        Ok(GetObjectAclOutput {
            grants: Some(grants(&bucket.owner, entry.attributes.public_read)),
            owner: owner(&bucket.owner),
            ..GetObjectAclOutput::default()
        })
    }
}

const EVERYBODY: &str = "http://acs.amazonaws.com/groups/global/AllUsers";

/// What a canned ACL means, written out.
pub fn grants(owner: &str, public_read: bool) -> Vec<Grant> {
    let grant = |id: Option<&str>, uri: Option<&str>, kind: &'static str, permission: &'static str| Grant {
        grantee: Some(Grantee {
            display_name: id.map(str::to_string),
            email_address: None,
            id: id.map(str::to_string),
            type_: Type::from_static(kind),
            uri: uri.map(str::to_string),
        }),
        permission: Some(Permission::from_static(permission)),
    };
    let mut all = vec![grant(
        Some(owner),
        None,
        Type::CANONICAL_USER,
        Permission::FULL_CONTROL,
    )];
    if public_read {
        all.push(grant(None, Some(EVERYBODY), Type::GROUP, Permission::READ));
    }
    all
}

/// Whether an ACL is private or public-read; every other is refused.
pub fn canned(acl: Option<&str>, policy: Option<&AccessControlPolicy>, owner: &str) -> S3Result<bool> {
    let Some(policy) = policy else {
        return public_read(acl);
    };
    let mut public = false;
    for grant in policy.grants.iter().flatten() {
        let grantee = grant.grantee.as_ref();
        let permission = grant.permission.as_ref().map(|p| p.as_str());
        let (id, uri) = (
            grantee.and_then(|g| g.id.as_deref()),
            grantee.and_then(|g| g.uri.as_deref()),
        );
        match (id, uri, permission) {
            (Some(id), _, Some(Permission::FULL_CONTROL)) if id == owner => {}
            (_, Some(EVERYBODY), Some(Permission::READ)) => public = true,
            _ => return Err(not_built("grants other than those of private and public-read")),
        }
    }
    Ok(public)
}
