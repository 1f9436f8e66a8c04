//! Listings of objects: v1 and v2. What they answer with is written by `page`, not by the library.

use super::Front;
use super::errors::invalid;
use super::page::{Document, Page};
use super::permit::Ask;
use super::texts::{Names, page_size};
use crate::objects::{Ended, LIST_MAX, Listing};
use crate::policy::{Action, Key};
use crate::rados::Pool;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use s3s::dto::*;
use s3s::{S3Request, S3Response, S3Result};

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

pub(super) fn common(prefixes: Vec<String>, names: Names) -> Option<Vec<CommonPrefix>> {
    let prefix = |p: String| CommonPrefix {
        prefix: Some(names.write(&p)),
    };
    Some(prefixes.into_iter().map(prefix).collect()).filter(|p: &Vec<_>| !p.is_empty())
}

type Listed<T> = S3Result<S3Response<T>>;

fn said(encoding: Option<&EncodingType>) -> Option<String> {
    encoding.map(|e| e.as_str().to_string())
}

/// The answer of v1: elements as the library has them, in its order.
fn v1(input: ListObjectsInput, names: Names, asked: &Listing, (page, ended): (Page, Ended)) -> Document {
    let written = |n: Option<String>| n.map(|n| names.write(&n));
    let before = [
        ("Name", Some(input.bucket)),
        ("Prefix", Some(names.write(&asked.prefix))),
        ("Marker", written(Some(input.marker.unwrap_or_default()))),
        ("MaxKeys", Some(asked.max.to_string())),
        ("IsTruncated", Some(ended.more.is_some().to_string())),
    ];
    let after = [
        ("Delimiter", written(input.delimiter)),
        ("NextMarker", written(ended.more)),
        ("EncodingType", said(input.encoding_type.as_ref())),
    ];
    page.finish(&before, &after)
}

/// That of v2.
fn v2(input: ListObjectsV2Input, names: Names, asked: &Listing, (page, ended): (Page, Ended)) -> Document {
    let written = |n: Option<String>| n.map(|n| names.write(&n));
    let before = [
        ("Name", Some(input.bucket)),
        ("Prefix", Some(names.write(&asked.prefix))),
        ("MaxKeys", Some(asked.max.to_string())),
        ("KeyCount", Some(ended.items.to_string())),
        ("ContinuationToken", input.continuation_token),
        ("IsTruncated", Some(ended.more.is_some().to_string())),
        (
            "NextContinuationToken",
            ended.more.map(|l| URL_SAFE_NO_PAD.encode(l)),
        ),
    ];
    let after = [
        ("Delimiter", written(input.delimiter)),
        ("EncodingType", said(input.encoding_type.as_ref())),
        ("StartAfter", written(input.start_after)),
    ];
    page.finish(&before, &after)
}

impl<P: Pool> Front<P> {
    pub async fn list_v1(&self, req: S3Request<ListObjectsInput>) -> Listed<ListObjectsOutput> {
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
        let mut page = Page::new(names, Some(&bucket.owner));
        let ended = self.objects.list_into(&bucket.id, &asked, &mut page).await?;
        Ok(v1(input, names, &asked, (page, ended)).answer())
    }

    pub async fn list_v2(&self, req: S3Request<ListObjectsV2Input>) -> Listed<ListObjectsV2Output> {
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
        let owned = input.fetch_owner.unwrap_or(false);
        let mut page = Page::new(names, owned.then_some(bucket.owner.as_str()));
        let ended = self.objects.list_into(&bucket.id, &asked, &mut page).await?;
        Ok(v2(input, names, &asked, (page, ended)).answer())
    }
}

#[cfg(test)]
mod tests {
    use super::super::attributes::class_of;
    use super::super::texts::{etag, owner, timestamp};
    use super::*;
    use crate::objects::{Item, Sink};
    use crate::record::Entry;
    use crate::summary::tests::entries;
    use denc::Encode;
    use proptest::option;
    use proptest::prelude::*;

    /// Control characters, and all that anything escapes.
    const NAME: &str = "[\\x00-\\x1f<>&'\"a-z/ é%+~]{0,12}";

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

    fn items() -> impl Strategy<Value = Vec<Item>> {
        let item = (NAME, option::of(entries())).prop_map(|(name, entry)| match entry {
            Some(entry) => Item::Object(name, Box::new(entry)),
            None => Item::Prefix(name),
        });
        prop::collection::vec(item, 0..9)
    }

    /// As a listing hands them on.
    fn page(items: &[Item], names: Names, of: Option<&str>, more: bool) -> (Page, Ended) {
        let mut page = Page::new(names, of);
        page.coming(items.len());
        for item in items {
            match item {
                Item::Object(key, entry) => page.object(key, &entry.to_bytes()).unwrap(),
                Item::Prefix(prefix) => page.prefix(prefix),
            }
        }
        let last = items.last().filter(|_| more);
        let ended = Ended {
            items: items.len(),
            more: last.map(|i| i.name().to_string()),
        };
        (page, ended)
    }

    type Typed = (Option<Vec<Object>>, Option<Vec<CommonPrefix>>);

    /// As the library's types have them.
    fn typed(items: Vec<Item>, names: Names, of: Option<&str>) -> Typed {
        let (mut objects, mut prefixes) = (Vec::new(), Vec::new());
        for item in items {
            match item {
                Item::Object(key, entry) => objects.push(object((key, *entry), names, of)),
                Item::Prefix(prefix) => prefixes.push(prefix),
            }
        }
        (Some(objects), common(prefixes, names))
    }

    fn by_the_library(of: &impl s3s::xml::Serialize) -> String {
        let mut out = Vec::new();
        {
            let mut to = s3s::xml::Serializer::new(&mut out);
            to.decl().unwrap();
            of.serialize(&mut to).unwrap();
        }
        String::from_utf8(out).unwrap()
    }

    fn text(document: &Document) -> String {
        String::from_utf8(document.0.to_vec()).unwrap()
    }

    fn encoding(url: bool) -> Option<EncodingType> {
        url.then(|| EncodingType::from_static(EncodingType::URL))
    }

    proptest! {
        #[test]
        fn a_page_of_v1_is_as_the_library_writes_it(
            items in items(),
            (more, url, of) in (any::<bool>(), any::<bool>(), NAME),
            (prefix, delimiter, marker) in (NAME, option::of(NAME), option::of(NAME)),
        ) {
            let input = ListObjectsInput {
                bucket: "b&c".into(),
                delimiter,
                encoding_type: encoding(url),
                marker,
                ..ListObjectsInput::default()
            };
            let names = Names::new(input.encoding_type.as_ref()).unwrap();
            let asked = Listing { prefix, max: 7, ..Listing::default() };
            let (page, ended) = page(&items, names, Some(&of), more);
            let (contents, common_prefixes) = typed(items, names, Some(&of));
            let written = |n: Option<&str>| n.map(|n| names.write(n));
            let output = ListObjectsOutput {
                name: Some(input.bucket.clone()),
                prefix: written(Some(asked.prefix.as_str())),
                marker: written(Some(input.marker.as_deref().unwrap_or_default())),
                max_keys: Some(7),
                is_truncated: Some(ended.more.is_some()),
                contents,
                common_prefixes,
                delimiter: written(input.delimiter.as_deref()),
                next_marker: written(ended.more.as_deref()),
                encoding_type: input.encoding_type.clone(),
                request_charged: None,
            };
            let document = v1(input, names, &asked, (page, ended));
            prop_assert_eq!(text(&document), by_the_library(&output));
        }

        #[test]
        fn a_page_of_v2_is_as_the_library_writes_it(
            items in items(),
            (more, url, of) in (any::<bool>(), any::<bool>(), option::of(NAME)),
            (prefix, delimiter, token, start_after) in (NAME, option::of(NAME), option::of(NAME), option::of(NAME)),
        ) {
            let input = ListObjectsV2Input {
                bucket: "b".into(),
                continuation_token: token,
                delimiter,
                encoding_type: encoding(url),
                start_after,
                ..ListObjectsV2Input::default()
            };
            let names = Names::new(input.encoding_type.as_ref()).unwrap();
            let asked = Listing { prefix, max: 1000, ..Listing::default() };
            let (page, ended) = page(&items, names, of.as_deref(), more);
            let count = items.len() as i32;
            let (contents, common_prefixes) = typed(items, names, of.as_deref());
            let written = |n: Option<&str>| n.map(|n| names.write(n));
            let output = ListObjectsV2Output {
                name: Some(input.bucket.clone()),
                prefix: written(Some(asked.prefix.as_str())),
                max_keys: Some(1000),
                key_count: Some(count),
                continuation_token: input.continuation_token.clone(),
                is_truncated: Some(ended.more.is_some()),
                next_continuation_token: ended.more.as_ref().map(|l| URL_SAFE_NO_PAD.encode(l)),
                contents,
                common_prefixes,
                delimiter: written(input.delimiter.as_deref()),
                encoding_type: input.encoding_type.clone(),
                start_after: written(input.start_after.as_deref()),
                request_charged: None,
            };
            let document = v2(input, names, &asked, (page, ended));
            prop_assert_eq!(text(&document), by_the_library(&output));
        }
    }
}
