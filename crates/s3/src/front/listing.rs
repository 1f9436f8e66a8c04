//! Listings of objects: v1 and v2.

use super::Front;
use super::attributes::class_of;
use super::errors::invalid;
use super::permit::Ask;
use super::texts::{Names, etag, owner, page_size, timestamp};
use crate::objects::{Item, LIST_MAX, Listed, Listing};
use crate::policy::{Action, Key};
use crate::rados::Pool;
use crate::record::Entry;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use s3s::dto::*;
use s3s::{S3Request, S3Result};

macro_rules! ask {
    ($action:ident, $input:expr) => {
        Ask::bucket(Action::$action, &$input.bucket)
            .with(Key::Prefix, $input.prefix.as_ref())
            .with(Key::Delimiter, $input.delimiter.as_ref())
            .with(Key::MaxKeys, $input.max_keys)
    };
}
pub(super) use ask;

pub(super) fn listing(
    prefix: Option<&String>,
    delimiter: Option<&String>,
    after: Option<String>,
    max: Option<i32>,
) -> S3Result<Listing> {
    Ok(Listing {
        prefix: prefix.cloned().unwrap_or_default(),
        delimiter: delimiter.cloned().filter(|d| !d.is_empty()),
        after: after.filter(|a| !a.is_empty()),
        max: page_size(max, LIST_MAX)?,
    })
}

/// Keys and prefixes of a listing.
fn parted(listed: Listed) -> (Vec<(String, Entry)>, Vec<String>, Option<String>) {
    let last = listed
        .items
        .last()
        .map(|i| i.name().to_string())
        .filter(|_| listed.more);
    let (mut keys, mut prefixes) = (Vec::new(), Vec::new());
    for item in listed.items {
        match item {
            Item::Object(key, entry) => keys.push((key, *entry)),
            Item::Prefix(prefix) => prefixes.push(prefix),
        }
    }
    (keys, prefixes, last)
}

pub(super) fn common(prefixes: Vec<String>, names: Names) -> Option<Vec<CommonPrefix>> {
    let prefix = |p: String| CommonPrefix {
        prefix: Some(names.write(&p)),
    };
    Some(prefixes.into_iter().map(prefix).collect()).filter(|p: &Vec<_>| !p.is_empty())
}

fn object((key, entry): (String, Entry), names: Names, of: Option<&str>) -> Object {
    Object {
        storage_class: Some(ObjectStorageClass::from(class_of(&entry.attributes).to_string())),
        checksum_algorithm: entry.checksum.map(|c| vec![c.algorithm.into()]),
        e_tag: etag(&entry.etag),
        key: Some(names.write(&key)),
        last_modified: Some(timestamp(entry.modified)),
        owner: of.and_then(owner),
        size: Some(entry.size as i64),
        ..Object::default()
    }
}

impl<P: Pool> Front<P> {
    pub async fn list_v1(&self, req: S3Request<ListObjectsInput>) -> S3Result<ListObjectsOutput> {
        let ask = ask!(ListBucket, req.input);
        let bucket = self.listable(&req, &ask).await?.bucket;
        let input = req.input;
        let names = Names::new(input.encoding_type.as_ref())?;
        let after = input.marker.clone();
        let asked = listing(
            input.prefix.as_ref(),
            input.delimiter.as_ref(),
            after,
            input.max_keys,
        )?;
        let (keys, prefixes, last) = parted(self.objects.list(&bucket.id, &asked).await?);
        let written = |n: Option<String>| n.map(|n| names.write(&n));
        Ok(ListObjectsOutput {
            name: Some(input.bucket),
            prefix: written(Some(asked.prefix)),
            marker: written(Some(input.marker.unwrap_or_default())),
            max_keys: Some(asked.max as i32),
            is_truncated: Some(last.is_some()),
            contents: Some(
                keys.into_iter()
                    .map(|k| object(k, names, Some(&bucket.owner)))
                    .collect(),
            ),
            common_prefixes: common(prefixes, names),
            delimiter: written(input.delimiter),
            next_marker: written(last),
            encoding_type: input.encoding_type,
            request_charged: None,
        })
    }

    pub async fn list_v2(&self, req: S3Request<ListObjectsV2Input>) -> S3Result<ListObjectsV2Output> {
        let ask = ask!(ListBucket, req.input);
        let bucket = self.listable(&req, &ask).await?.bucket;
        let input = req.input;
        let names = Names::new(input.encoding_type.as_ref())?;
        let after = match &input.continuation_token {
            None => input.start_after.clone(),
            Some(token) => {
                let decoded = URL_SAFE_NO_PAD
                    .decode(token)
                    .ok()
                    .and_then(|t| String::from_utf8(t).ok());
                Some(decoded.ok_or_else(|| invalid("a continuation token that was not given out here"))?)
            }
        };
        let asked = listing(
            input.prefix.as_ref(),
            input.delimiter.as_ref(),
            after,
            input.max_keys,
        )?;
        let (keys, prefixes, last) = parted(self.objects.list(&bucket.id, &asked).await?);
        let of = input
            .fetch_owner
            .unwrap_or(false)
            .then_some(bucket.owner.as_str());
        let written = |n: Option<String>| n.map(|n| names.write(&n));
        Ok(ListObjectsV2Output {
            name: Some(input.bucket),
            prefix: written(Some(asked.prefix)),
            max_keys: Some(asked.max as i32),
            key_count: Some((keys.len() + prefixes.len()) as i32),
            continuation_token: input.continuation_token,
            is_truncated: Some(last.is_some()),
            next_continuation_token: last.map(|l| URL_SAFE_NO_PAD.encode(l)),
            contents: Some(keys.into_iter().map(|k| object(k, names, of)).collect()),
            common_prefixes: common(prefixes, names),
            delimiter: written(input.delimiter),
            encoding_type: input.encoding_type,
            start_after: written(input.start_after),
            request_charged: None,
        })
    }
}
