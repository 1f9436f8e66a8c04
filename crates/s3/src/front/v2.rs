//! Signatures of version 2, as AWS describes them: what they cover, and a path that clients sign otherwise than they send it.
//!
//! boto3 signs the path of a bucket with a slash at its end, and sends it without one. The library checks what was sent; so a request whose signature is
//! good with the slash gets it before the library sees it. Whether the signature is good is the library's to say in any case.

use super::Front;
use super::texts::url_decoded;
use crate::rados::Pool;
use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::header::{AUTHORIZATION, HeaderMap};
use hyper::{Method, Uri};
use std::collections::{BTreeMap, BTreeSet};

/// What of a query is signed.
const SIGNED: [&str; 35] = [
    "accelerate",
    "acl",
    "analytics",
    "cors",
    "defaultObjectAcl",
    "delete",
    "inventory",
    "lifecycle",
    "location",
    "logging",
    "metrics",
    "notification",
    "object-lock",
    "partNumber",
    "policy",
    "replication",
    "requestPayment",
    "response-cache-control",
    "response-content-disposition",
    "response-content-encoding",
    "response-content-language",
    "response-content-type",
    "response-expires",
    "restore",
    "select",
    "select-type",
    "storageClass",
    "tagging",
    "torrent",
    "uploadId",
    "uploads",
    "versionId",
    "versioning",
    "versions",
    "website",
];

/// What else may be in the query of a request by V2: what makes no other operation of it.
const OTHERS: [&str; 18] = [
    "AWSAccessKeyId",
    "Expires",
    "Signature",
    // Which part of a listing.
    "continuation-token",
    "delimiter",
    "encoding-type",
    "fetch-owner",
    "key-marker",
    "list-type",
    "marker",
    "max-keys",
    "prefix",
    "start-after",
    "max-parts",
    "max-uploads",
    "part-number-marker",
    "upload-id-marker",
    "version-id-marker",
];

/// Names and values of a query, in its order.
fn pairs(query: &str) -> impl Iterator<Item = (String, String)> {
    query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let decoded = |text: &str| url_decoded(text).unwrap_or_else(|| text.to_string());
        (decoded(name), decoded(value))
    })
}

/// A name in the query of a request by V2 that is not covered by its signature and should be.
pub fn uncovered_name(query: &str) -> Option<String> {
    let mut seen = BTreeSet::new();
    pairs(query).map(|(name, _)| name).find(|name| {
        // Clients' own, which nobody looks at.
        let own = name.starts_with("x-") && !name.starts_with("x-amz-");
        let known = own || SIGNED.iter().chain(&OTHERS).any(|n| n == name);
        !known || !seen.insert(name.clone())
    })
}

/// Whose signature a request has, what it is, and the date that it is of; None: none of V2.
struct Claimed {
    access: String,
    signature: Vec<u8>,
    date: String,
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|v| v.to_str().ok())
}

fn claimed(query: &str, headers: &HeaderMap) -> Option<Claimed> {
    let named: BTreeMap<String, String> = pairs(query).collect();
    let (access, signature, date) = match named.get("Signature") {
        Some(signature) => (
            named.get("AWSAccessKeyId")?.as_str(),
            signature.as_str(),
            named.get("Expires")?.as_str(),
        ),
        None => {
            let said = text(headers, AUTHORIZATION.as_str())?.strip_prefix("AWS ")?;
            let (access, signature) = said.rsplit_once(':')?;
            let date = match headers.contains_key("x-amz-date") {
                true => "",
                false => text(headers, "date")?,
            };
            (access, signature, date)
        }
    };
    Some(Claimed {
        access: access.to_string(),
        signature: STANDARD.decode(signature).ok()?,
        date: date.to_string(),
    })
}

/// What is signed of a request for this path.
fn string_to_sign(method: &Method, (path, query): (&str, &str), headers: &HeaderMap, date: &str) -> String {
    let said = |name| text(headers, name).unwrap_or_default();
    let mut out = format!(
        "{method}\n{}\n{}\n{date}\n",
        said("content-md5"),
        said("content-type")
    );
    let names: BTreeSet<&str> = headers.keys().map(|name| name.as_str()).collect();
    for name in names.into_iter().filter(|name| name.starts_with("x-amz-")) {
        let all = headers.get_all(name).iter();
        let all: Vec<&str> = all.filter_map(|v| v.to_str().ok()).map(str::trim).collect();
        out += &format!("{name}:{}\n", all.join(","));
    }
    out += path;
    let named: BTreeMap<String, String> = pairs(query).collect();
    let signed = named.iter().filter(|(name, _)| SIGNED.contains(&name.as_str()));
    for (n, (name, value)) in signed.enumerate() {
        out.push(if n == 0 { '?' } else { '&' });
        out += name;
        if !value.is_empty() {
            out += &format!("={value}");
        }
    }
    out
}

/// The path of a bucket without a slash at its end.
fn is_bare(path: &str) -> bool {
    path.strip_prefix('/')
        .is_some_and(|name| !name.is_empty() && !name.contains('/'))
}

impl<P: Pool> Front<P> {
    /// Where a request goes to, if that was signed with a slash at its end that it has not.
    pub(super) async fn slashed(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> Option<Uri> {
        let (path, query) = (uri.path(), uri.query().unwrap_or_default());
        let claimed = claimed(query, headers).filter(|_| is_bare(path))?;
        let path = format!("{path}/");
        let key = self.key_of(&claimed.access).await.ok()?;
        let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, key.secret.as_bytes());
        let signed = string_to_sign(method, (&path, query), headers, &claimed.date);
        hmac::verify(&key, signed.as_bytes(), &claimed.signature).ok()?;
        let mut parts = uri.clone().into_parts();
        let whole = uri
            .query()
            .map_or(path.clone(), |query| format!("{path}?{query}"));
        parts.path_and_query = Some(whole.parse().ok()?);
        Uri::from_parts(parts).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_v2_does_not_sign_are_found() {
        let key = "AWSAccessKeyId=k&Expires=1&Signature=s";
        for good in [
            "",
            "acl",
            "x-id=GetObject",
            "&versionId=1&response-expires=a&",
            "prefix=a&max-keys=2&list-type=2",
        ] {
            assert_eq!(uncovered_name(&format!("{key}&{good}")), None, "{good}");
        }
        for (bad, name) in [
            ("acl&acl", "acl"),
            ("acl&tagging=&a%63l=x", "acl"),
            ("policy=1&policy", "policy"),
            ("publicAccessBlock", "publicAccessBlock"),
            ("policyStatus=", "policyStatus"),
            ("publicAccess%42lock", "publicAccessBlock"),
            ("encryption", "encryption"),
            ("x-amz-acl=public-read", "x-amz-acl"),
            ("Expires=2", "Expires"),
            ("%ff", "%ff"),
        ] {
            assert_eq!(uncovered_name(&format!("{key}&{bad}")).as_deref(), Some(name));
        }
    }

    fn headers(of: &[(&'static str, &'static str)]) -> HeaderMap {
        let pair = |(k, v): &(&'static str, &'static str)| (k.parse().unwrap(), v.parse().unwrap());
        of.iter().map(pair).collect::<HeaderMap>()
    }

    fn is_signed(secret: &str, signed: &str, claimed: &Claimed) -> bool {
        let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, secret.as_bytes());
        hmac::verify(&key, signed.as_bytes(), &claimed.signature).is_ok()
    }

    /// AWS's own examples.
    #[test]
    fn what_is_signed_is_what_aws_says() {
        let secret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
        let given = headers(&[
            ("date", "Tue, 27 Mar 2007 19:42:41 +0000"),
            (
                "authorization",
                "AWS AKIAIOSFODNN7EXAMPLE:m0WP8eCtspQl5Ahe6L1SozdX9YA=",
            ),
        ]);
        let query = "prefix=photos&max-keys=50&marker=puppy";
        let found = claimed(query, &given).unwrap();
        let of = |path| string_to_sign(&Method::GET, (path, query), &given, &found.date);
        assert!(is_signed(secret, &of("/awsexamplebucket1/"), &found));
        assert!(!is_signed(secret, &of("/awsexamplebucket1"), &found));
        let given = headers(&[
            ("x-amz-date", "Tue, 27 Mar 2007 21:20:26 +0000"),
            ("x-amz-meta-b", " 1"),
            ("x-amz-meta-a", "2"),
            ("content-type", "t"),
            ("authorization", "AWS k:AAAA"),
        ]);
        let found = claimed("", &given).unwrap();
        assert_eq!(
            string_to_sign(&Method::PUT, ("/b/", "acl&x=y&versionId=3"), &given, &found.date),
            "PUT\n\nt\n\nx-amz-date:Tue, 27 Mar 2007 21:20:26 +0000\nx-amz-meta-a:2\nx-amz-meta-b:1\n/b/?acl&versionId=3"
        );
        let found = claimed("AWSAccessKeyId=k&Expires=17&Signature=AA%2BA", &HeaderMap::new()).unwrap();
        assert_eq!(
            (found.access.as_str(), found.date.as_str(), found.signature),
            ("k", "17", vec![0, 15, 128])
        );
        assert!(claimed("", &headers(&[("authorization", "AWS4-HMAC-SHA256 a:b")])).is_none());
    }

    #[test]
    fn buckets_alone_get_a_slash() {
        for (path, bare) in [
            ("/b", true),
            ("/b/", false),
            ("/b/k", false),
            ("/", false),
            ("", false),
        ] {
            assert_eq!(is_bare(path), bare, "{path}");
        }
    }
}
