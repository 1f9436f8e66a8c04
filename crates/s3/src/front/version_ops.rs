//! Versioning of buckets, and listings of versions.

use super::Front;
use super::attributes::{class_of, which};
use super::errors::{coded, invalid, not_built};
use super::listing::{ask, common, listing};
use super::permit::Ask;
use super::texts::{Names, etag, owner, timestamp};
use crate::history::Versioning;
use crate::policy::{Action, Key};
use crate::rados::Pool;
use crate::version_list::{Item, VersionItem};
use s3s::dto::*;
use s3s::{S3Error, S3ErrorCode, S3Request, S3Result};

impl<P: Pool> Front<P> {
    pub async fn versioning(
        &self,
        req: S3Request<GetBucketVersioningInput>,
    ) -> S3Result<GetBucketVersioningOutput> {
        let ask = Ask::bucket(Action::GetBucketVersioning, &req.input.bucket);
        let known = self.permitted(&req, &ask).await?;
        let status = match known.settings.of.versioning {
            Versioning::Off => None,
            Versioning::Enabled => Some(BucketVersioningStatus::ENABLED),
            Versioning::Suspended => Some(BucketVersioningStatus::SUSPENDED),
        };
        Ok(GetBucketVersioningOutput {
            mfa_delete: None,
            status: status.map(BucketVersioningStatus::from_static),
        })
    }

    pub async fn set_versioning(&self, req: S3Request<PutBucketVersioningInput>) -> S3Result<()> {
        let given = &req.input.versioning_configuration;
        let deletes = given.mfa_delete.as_ref().map(|m| m.as_str());
        if deletes.is_some_and(|m| m != MFADelete::DISABLED) {
            return Err(not_built("MFA delete"));
        }
        let versioning = match given.status.as_ref().map(|s| s.as_str()) {
            Some(BucketVersioningStatus::ENABLED) => Versioning::Enabled,
            Some(BucketVersioningStatus::SUSPENDED) => Versioning::Suspended,
            _ => {
                return Err(S3Error::with_message(
                    S3ErrorCode::IllegalVersioningConfigurationException,
                    "Status is Enabled or Suspended",
                ));
            }
        };
        let ask = Ask::bucket(Action::PutBucketVersioning, &req.input.bucket);
        self.try_change_settings(&req, ask, |s| {
            if s.lock.is_some() && versioning != Versioning::Enabled {
                return Err(coded(
                    S3ErrorCode::InvalidBucketState,
                    "An Object Lock configuration is present on this bucket, so the versioning state cannot be changed.",
                ));
            }
            s.versioning = versioning;
            Ok(())
        })
        .await
    }

    pub async fn list_versions(
        &self,
        req: S3Request<ListObjectVersionsInput>,
    ) -> S3Result<ListObjectVersionsOutput> {
        let ask = ask!(ListBucketVersions, req.input);
        let bucket = self.listable(&req, &ask).await?.bucket;
        let input = req.input;
        let names = Names::new(input.encoding_type.as_ref())?;
        let marker = input.version_id_marker.clone().filter(|m| !m.is_empty());
        if marker.is_some() && input.key_marker.as_ref().is_none_or(String::is_empty) {
            return Err(invalid(
                "A version-id marker cannot be specified without a key marker.",
            ));
        }
        let after = marker.as_deref().map(|m| which(Some(m))).transpose()?;
        let asked = listing(
            input.prefix.as_ref(),
            input.delimiter.as_ref(),
            input.key_marker.clone(),
            input.max_keys,
        )?;
        let listed = self.objects.list_versions(&bucket.id, &asked, after).await?;
        let (mut versions, mut markers, mut prefixes) = (Vec::new(), Vec::new(), Vec::new());
        for item in listed.items {
            match item {
                Item::Prefix(prefix) => prefixes.push(prefix),
                Item::Version(item) if item.marker => markers.push(marker_of(*item, names, &bucket.owner)),
                Item::Version(item) => versions.push(version_of(*item, names, &bucket.owner)),
            }
        }
        let written = |n: Option<String>| n.map(|n| names.write(&n));
        let (next_key, next_id) = listed.next.map_or((None, None), |(k, id)| (Some(k), id));
        Ok(ListObjectVersionsOutput {
            name: Some(input.bucket),
            prefix: written(Some(asked.prefix)),
            key_marker: written(Some(input.key_marker.unwrap_or_default())),
            version_id_marker: Some(input.version_id_marker.unwrap_or_default()),
            max_keys: Some(asked.max as i32),
            is_truncated: Some(next_key.is_some()),
            versions: Some(versions),
            delete_markers: Some(markers).filter(|m| !m.is_empty()),
            common_prefixes: common(prefixes, names),
            delimiter: written(input.delimiter),
            next_version_id_marker: next_id,
            next_key_marker: written(next_key),
            encoding_type: input.encoding_type,
            ..ListObjectVersionsOutput::default()
        })
    }
}

fn version_of(item: VersionItem, names: Names, of: &str) -> ObjectVersion {
    let entry = item.entry;
    ObjectVersion {
        version_id: Some(entry.version().to_string()),
        storage_class: Some(ObjectVersionStorageClass::from(
            class_of(&entry.attributes).to_string(),
        )),
        checksum_algorithm: entry.checksum.map(|c| vec![c.algorithm.into()]),
        e_tag: etag(&entry.etag),
        is_latest: Some(item.latest),
        key: Some(names.write(&item.key)),
        last_modified: Some(timestamp(entry.modified)),
        owner: owner(of),
        size: Some(entry.size as i64),
        ..ObjectVersion::default()
    }
}

fn marker_of(item: VersionItem, names: Names, of: &str) -> DeleteMarkerEntry {
    DeleteMarkerEntry {
        is_latest: Some(item.latest),
        key: Some(names.write(&item.key)),
        last_modified: Some(timestamp(item.entry.modified)),
        owner: owner(of),
        version_id: Some(item.entry.version().to_string()),
    }
}
