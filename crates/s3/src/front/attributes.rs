//! What a client says of an object besides its bytes, and what of it is refused.

use super::Front;
use super::customer::{CUSTOMER, ENCRYPTION};
use super::errors::{invalid, not_built};
use super::texts::url_decoded;
use crate::classes::STANDARD;
use crate::history::Which;
use crate::rados::Pool;
use crate::record::{Attributes, Place, REDIRECT};
use s3s::dto::{Metadata, StorageClass};
use s3s::{S3Error, S3ErrorCode, S3Result};
use std::collections::BTreeMap;

const KEY_MAX: usize = 1024;
/// Names and values of user metadata together.
const META_MAX: usize = 2048;
/// Names and values of Content-Type and the like together.
const HEADERS_MAX: usize = 8 << 10;
const TAGS_MAX: usize = 10;
const REDIRECT_MAX: usize = 2048;

pub fn check_key(key: &str) -> S3Result<()> {
    match key.len() {
        0 => Err(invalid("a key has at least one byte")),
        1..=KEY_MAX => Ok(()),
        _ => Err(S3Error::with_message(
            S3ErrorCode::KeyTooLongError,
            "a key has at most 1024 bytes",
        )),
    }
}

pub fn public_read(acl: Option<&str>) -> S3Result<bool> {
    match acl {
        None | Some("private" | "bucket-owner-full-control" | "bucket-owner-read") => Ok(false),
        Some("public-read") => Ok(true),
        Some(other) => Err(not_built(&format!(
            "the canned ACL {other} (private and public-read are)"
        ))),
    }
}

/// Headers whose meaning is not built: taken silently, an object would be less than its owner thinks.
pub fn refuse_unbuilt(headers: &hyper::HeaderMap) -> S3Result<()> {
    const UNBUILT: [(&str, &str); 2] = [
        ("x-amz-grant-", "grants"),
        ("x-amz-write-offset-bytes", "appending"),
    ];
    for name in headers.keys() {
        let name_of = name.as_str();
        let known = name_of.starts_with(CUSTOMER) || name_of == ENCRYPTION;
        if name_of.starts_with(ENCRYPTION) && !known {
            return Err(not_built("encryption with keys of a service (SSE-KMS)"));
        }
        if let Some((_, what)) = UNBUILT
            .iter()
            .find(|(header, _)| name.as_str().starts_with(header))
        {
            return Err(not_built(what));
        }
    }
    Ok(())
}

/// The storage class that a request names.
pub fn class_named(headers: &hyper::HeaderMap) -> Option<&str> {
    let named = headers.get("x-amz-storage-class");
    named.map(|class| class.to_str().unwrap_or("?"))
}

pub fn no_class(name: &str) -> S3Error {
    S3Error::with_message(
        S3ErrorCode::InvalidStorageClass,
        format!("there is no storage class {name:?} here that takes what is put"),
    )
}

/// As answers say it.
pub fn class_of(attributes: &Attributes) -> &str {
    match attributes.class.as_str() {
        "" => STANDARD,
        class => class,
    }
}

/// The same of one object, where STANDARD is not said.
pub fn said_class(attributes: &Attributes) -> Option<StorageClass> {
    let class = Some(&attributes.class).filter(|c| !c.is_empty());
    class.map(|class| StorageClass::from(class.clone()))
}

/// The class of what is put, as it is kept, and where its data go.
pub type Placed = (String, Place);

impl<P: Pool> Front<P> {
    pub(super) async fn class(&self, headers: &hyper::HeaderMap) -> S3Result<Placed> {
        let name = match class_named(headers) {
            None | Some(STANDARD) => return Ok(Placed::default()),
            Some(name) => name,
        };
        match self.objects.data.classes().open_to(name).await? {
            Some(place) if !name.is_empty() => Ok((name.to_string(), place)),
            _ => Err(no_class(name)),
        }
    }
}

/// The version that a request is about.
pub fn which(id: Option<&str>) -> S3Result<Which> {
    Which::parse(id).ok_or_else(|| match id {
        Some("") => invalid("Version id cannot be the empty string"),
        _ => invalid("Invalid version id specified"),
    })
}

/// `a=b&c=d`, URL encoded.
fn parse_tags(text: &str) -> S3Result<BTreeMap<String, String>> {
    let mut tags = BTreeMap::new();
    for pair in text.split('&').filter(|p| !p.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (Some(name), Some(value)) = (url_decoded(name), url_decoded(value)) else {
            return Err(invalid("x-amz-tagging: not URL encoded"));
        };
        tags.insert(name, value);
    }
    check_tags(tags)
}

pub fn check_tags(tags: BTreeMap<String, String>) -> S3Result<BTreeMap<String, String>> {
    let long = tags
        .iter()
        .any(|(k, v)| k.is_empty() || k.len() > 512 || v.len() > 1024);
    match tags.len() > TAGS_MAX || long {
        true => Err(S3Error::with_message(
            S3ErrorCode::InvalidTag,
            "an object has at most 10 tags, of 128 characters and 256 for their values",
        )),
        false => Ok(tags),
    }
}

/// Refuses what is too large: a listing reads all of it.
fn bounded(
    pairs: BTreeMap<String, String>,
    max: usize,
    why: &'static str,
) -> S3Result<BTreeMap<String, String>> {
    match pairs.iter().map(|(k, v)| k.len() + v.len()).sum::<usize>() > max {
        true => Err(S3Error::with_message(S3ErrorCode::MetadataTooLarge, why)),
        false => Ok(pairs),
    }
}

/// What is kept with an object that only the gateway says of it, among its headers.
#[derive(Debug, Clone)]
pub struct Kept(pub BTreeMap<String, String>);

/// The same, if they are within bounds.
pub fn check(attributes: Attributes) -> S3Result<Attributes> {
    let headers = "Content-Type and the like have at most 8 KiB together";
    Ok(Attributes {
        headers: bounded(attributes.headers, HEADERS_MAX, headers)?,
        meta: bounded(attributes.meta, META_MAX, "user metadata have at most 2 KiB")?,
        ..attributes
    })
}

/// The attributes that a request names.
macro_rules! attributes {
    ($input:expr) => {{
        let named = [
            (
                "cache-control",
                $input.cache_control.take().map(|v| v.to_string()),
            ),
            (
                "content-disposition",
                $input.content_disposition.take().map(|v| v.to_string()),
            ),
            (
                "content-encoding",
                $input.content_encoding.take().map(|v| v.to_string()),
            ),
            (
                "content-language",
                $input.content_language.take().map(|v| v.to_string()),
            ),
            ("content-type", $input.content_type.take().map(|v| v.to_string())),
            (
                "expires",
                $input
                    .expires
                    .take()
                    .and_then(|v| $crate::front::texts::http_date(&v)),
            ),
            ($crate::record::REDIRECT, $input.website_redirect_location.take()),
        ];
        $crate::front::attributes::attributes_of(
            named,
            $input.metadata.take(),
            $input.tagging.as_deref(),
            $input.acl.as_ref().map(|a| a.as_str()),
        )
    }};
}
pub(crate) use attributes;

/// Where browsers may be sent, as AWS has it.
fn check_redirect(to: &str) -> S3Result<()> {
    let begins = ["/", "http://", "https://"].iter().any(|b| to.starts_with(b));
    if begins && to.len() <= REDIRECT_MAX && to.bytes().all(|b| b.is_ascii_graphic()) {
        return Ok(());
    }
    let why = "The website redirect location must have a prefix of 'http://' or 'https://' or '/', and at most 2048 characters of ASCII";
    let mut e = S3Error::with_message(S3ErrorCode::Custom("InvalidRedirectLocation".into()), why);
    e.set_status_code(hyper::StatusCode::BAD_REQUEST);
    Err(e)
}

pub fn attributes_of(
    named: [(&str, Option<String>); 7],
    meta: Option<Metadata>,
    tagging: Option<&str>,
    acl: Option<&str>,
) -> S3Result<Attributes> {
    let mut headers: BTreeMap<String, String> = named
        .into_iter()
        .filter_map(|(k, v)| Some((k.to_string(), v?)))
        .collect();
    // How the body travelled is not what it is.
    if let Some(encoding) = headers.remove("content-encoding") {
        let rest: Vec<&str> = encoding
            .split(',')
            .map(str::trim)
            .filter(|e| *e != "aws-chunked" && !e.is_empty())
            .collect();
        if !rest.is_empty() {
            headers.insert("content-encoding".into(), rest.join(","));
        }
    }
    if let Some(to) = headers.get(REDIRECT) {
        check_redirect(to)?;
    }
    let meta = meta.unwrap_or_default().into_iter().collect();
    Ok(Attributes {
        headers: bounded(
            headers,
            HEADERS_MAX,
            "Content-Type and the like have at most 8 KiB together",
        )?,
        meta: bounded(meta, META_MAX, "user metadata have at most 2 KiB")?,
        tags: parse_tags(tagging.unwrap_or_default())?,
        public_read: public_read(acl)?,
        class: String::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_read_or_refused() {
        let of = |text: &str| parse_tags(text).ok().map(|t| t.into_iter().collect::<Vec<_>>());
        let pair = |k: &str, v: &str| (k.to_string(), v.to_string());
        assert_eq!(
            of("a=b+c&d=%C3%A9&e"),
            Some(vec![pair("a", "b c"), pair("d", "é"), pair("e", "")])
        );
        assert_eq!(of(""), Some(vec![]));
        for bad in ["=x", "a=%", "a=%4", "a=%zz", "a=%ff"] {
            assert_eq!(of(bad), None, "{bad}");
        }
        let many: Vec<String> = (0..11).map(|n| format!("k{n}=v")).collect();
        assert_eq!(of(&many.join("&")), None);
    }

    /// With two headers.
    fn with(encoding: &str, disposition: Option<String>) -> S3Result<Attributes> {
        let none = |name| (name, None);
        let named = [
            ("content-encoding", Some(encoding.to_string())),
            ("content-disposition", disposition),
            none("b"),
            none("c"),
            none("d"),
            none("e"),
            none("f"),
        ];
        attributes_of(named, None, None, None)
    }

    #[test]
    fn headers_that_are_kept_have_a_bound() {
        assert!(with("gzip", Some("x".repeat(8000))).is_ok());
        let e = with("gzip", Some("x".repeat(8192))).unwrap_err();
        assert_eq!(*e.code(), S3ErrorCode::MetadataTooLarge);
    }

    #[test]
    fn redirects_lead_somewhere() {
        for good in ["/a", "http://a.test/b?c", "https://a.test/%20"] {
            assert!(check_redirect(good).is_ok(), "{good}");
        }
        let long = format!("/{}", "x".repeat(REDIRECT_MAX));
        for bad in ["", "a", "javascript:x", "/a\r\nX: y", "/a b", "HTTP//", &long] {
            let e = check_redirect(bad).unwrap_err();
            assert_eq!(e.code().as_str(), "InvalidRedirectLocation", "{bad}");
        }
    }

    #[test]
    fn how_a_body_travelled_is_not_kept() {
        let of = |encoding: &str| {
            let attributes = with(encoding, None).unwrap();
            attributes.headers.get("content-encoding").cloned()
        };
        assert_eq!(of("aws-chunked"), None);
        assert_eq!(of("aws-chunked,gzip").as_deref(), Some("gzip"));
        assert_eq!(of("gzip").as_deref(), Some("gzip"));
    }
}
