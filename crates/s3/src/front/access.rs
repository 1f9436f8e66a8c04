//! Whose request it is: a key that was removed is good for nothing from then on, so none is remembered.
//!
//! What changes the meaning of a signed request has to be signed, too: the library checks those headers that the client lists as
//! signed, and does not look for others. A presigned URL goes through other hands, who could add a source to be copied, or an ACL.
//! V2 signs some names of a query only, each if it is there once: others would make it another operation.

use super::Front;
use super::caller::Noted;
use super::notification_filters::{OPERATION, Passed};
use super::sessions::token;
use super::texts::url_decoded;
use super::v2::uncovered_name;
use crate::rados::Pool;
use hyper::{HeaderMap, Method};
use s3s::access::{S3Access, S3AccessContext};
use s3s::auth::{S3Auth, SecretKey};
use s3s::dto::{Timestamp, TimestampFormat};
use s3s::{S3Error, S3ErrorCode, S3Result};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// As far as clocks may differ.
const SKEW: Duration = Duration::from_secs(15 * 60);

/// Operations on objects that a policy may let anybody do; what is set of a bucket is for users.
const OPEN: [&str; 12] = [
    "AbortMultipartUpload",
    "CompleteMultipartUpload",
    "CopyObject",
    "CreateMultipartUpload",
    "DeleteObject",
    "DeleteObjectTagging",
    "DeleteObjects",
    "PutObject",
    "PutObjectAcl",
    "PutObjectTagging",
    "UploadPart",
    "UploadPartCopy",
];

/// How many bytes a request says that it brings.
pub(super) fn announced(headers: &HeaderMap) -> u64 {
    let said = headers.get(hyper::header::CONTENT_LENGTH);
    said.and_then(|v| v.to_str().ok()?.parse().ok()).unwrap_or(0)
}

impl<P: Pool> Front<P> {
    /// Whether there is a policy that may let anybody do it.
    async fn may_let_in(&self, cx: &S3AccessContext<'_>) -> bool {
        let Some(bucket) = cx
            .s3_path()
            .get_bucket_name()
            .filter(|_| OPEN.contains(&cx.s3_op().name()))
        else {
            return false;
        };
        let known = self.buckets.known(bucket).await;
        known.is_ok_and(|k| k.settings.policy.as_ref().is_some_and(|p| p.opens()))
    }

    /// Refused if more is asked than rate limits allow; only of what may go on.
    async fn hold_rate(&self, cx: &mut S3AccessContext<'_>, user: Option<&str>) -> S3Result<()> {
        let writes = !matches!(*cx.method(), Method::GET | Method::HEAD);
        let bucket = cx.s3_path().get_bucket_name();
        let payers = self.rates.admit(user, bucket, writes).await?;
        if writes {
            self.rates.charge(&payers, true, announced(cx.headers()));
        }
        if let Some(noted) = cx.extensions_mut().get::<Noted>() {
            noted.lock().payers = payers;
        }
        Ok(())
    }
}

/// How a request was signed, as the library decides it.
#[derive(Debug, PartialEq, Eq)]
enum Signed {
    /// V4, with the headers that it lists as signed.
    V4(Vec<String>),
    /// V2, which signs all headers of S3, by a header: with its time, that is not a time when it ends.
    V2,
    /// V2 by a URL, which says when it ends.
    Url,
}

const V4_ALGORITHM: &str = "AWS4-HMAC-SHA256 ";

/// The library's order: V2 goes before V4, and each looks at the query first. None: by a header that is neither's.
fn signed(query: &str, headers: &HeaderMap) -> Option<Signed> {
    let pairs = query
        .split('&')
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .map(|(name, value)| (url_decoded(name), url_decoded(value)));
    let (mut presigned, mut listed) = (false, None);
    for (name, value) in pairs {
        match name.as_deref() {
            Some("Signature") => return Some(Signed::Url),
            Some("X-Amz-Signature") => presigned = true,
            Some("X-Amz-SignedHeaders") => listed = Some(value.unwrap_or_default()),
            _ => {}
        }
    }
    let mut all = headers.get_all(hyper::header::AUTHORIZATION).iter();
    let only = all.next().filter(|_| all.next().is_none());
    let authorization = only.and_then(|v| v.to_str().ok()).unwrap_or_default();
    if authorization
        .strip_prefix("AWS ")
        .is_some_and(|key| key.contains(':'))
    {
        return Some(Signed::V2);
    }
    if !presigned {
        // The library takes any word for the name of the algorithm, and what comes before the last two fields may have commas.
        let fields = authorization.strip_prefix(V4_ALGORITHM)?;
        let field = fields.rsplit(',').nth(1)?;
        listed = Some(field.trim().strip_prefix("SignedHeaders=")?.to_string());
    }
    let listed = listed.unwrap_or_default();
    Some(Signed::V4(listed.split(';').map(str::to_string).collect()))
}

/// A header of S3, or the host, that was not signed. What is said of the body is no matter of that: the body is held against it.
fn unsigned_header(signed: &[String], headers: &HeaderMap) -> Option<String> {
    let names = headers.keys().map(|name| name.as_str());
    let names = names.filter(|name| name.starts_with("x-amz-") && *name != "x-amz-content-sha256");
    let mut unsigned = std::iter::once("host")
        .chain(names)
        .filter(|name| !signed.iter().any(|s| s == name));
    unsigned.next().map(str::to_string)
}

/// Whether a request by V2 was made about now: else who has seen one may send it again for all time.
fn is_of_now(headers: &HeaderMap, now: SystemTime) -> bool {
    let said = headers.get("x-amz-date").or_else(|| headers.get("date"));
    let said = said.and_then(|v| v.to_str().ok()).unwrap_or_default();
    let said = said.trim().replace("+0000", "GMT");
    let Ok(at) = Timestamp::parse(TimestampFormat::HttpDate, &said) else {
        return false;
    };
    at >= Timestamp::from(now - SKEW) && at <= Timestamp::from(now + SKEW)
}

/// Refused if a signature does not cover what it has to, or is of another time.
fn check_signed(signed: &Signed, query: &str, headers: &HeaderMap, now: SystemTime) -> S3Result<()> {
    let denied = |why: String| Err(S3Error::with_message(S3ErrorCode::AccessDenied, why));
    if matches!(signed, Signed::V2 | Signed::Url)
        && let Some(name) = uncovered_name(query)
    {
        return denied(format!(
            "signatures of version 2 do not cover {name:?} in a query, or not twice"
        ));
    }
    match signed {
        Signed::V4(signed) => match unsigned_header(signed, headers) {
            Some(name) => denied(format!("the header {name} was not signed")),
            None => Ok(()),
        },
        Signed::V2 if !is_of_now(headers, now) => {
            let why = "the request's date is not within 15 minutes of the gateway's";
            Err(S3Error::with_message(S3ErrorCode::RequestTimeTooSkewed, why))
        }
        Signed::V2 | Signed::Url => Ok(()),
    }
}

#[async_trait::async_trait]
impl<P: Pool> S3Auth for Front<P> {
    async fn get_secret_key(&self, access_key: &str) -> S3Result<SecretKey> {
        Ok(self.key_of(access_key).await?.secret.into())
    }
}

#[async_trait::async_trait]
impl<P: Pool> S3Access for Front<P> {
    /// Anybody may ask to read; what is asked for decides. Where no policy may say otherwise nobody but users changes anything: refused
    /// before a body is read.
    async fn check(&self, cx: &mut S3AccessContext<'_>) -> S3Result<()> {
        let operation = cx.s3_op().name().to_string();
        if let Some(noted) = cx.extensions_mut().get::<Noted>() {
            noted.lock().operation = Some(operation);
        }
        let Some(access) = cx.credentials().map(|c| c.access_key.clone()) else {
            return match *cx.method() {
                Method::GET | Method::HEAD => self.hold_rate(cx, None).await,
                _ if self.may_let_in(cx).await => self.hold_rate(cx, None).await,
                _ => Err(crate::Error::AccessDenied.into()),
            };
        };
        let now = UNIX_EPOCH + Duration::from_millis(self.clock.now_ms());
        let query = cx.uri().query().unwrap_or_default();
        let signed = signed(query, cx.headers()).ok_or_else(|| {
            let why = "an Authorization of AWS4-HMAC-SHA256, or of AWS, is wanted";
            S3Error::with_message(S3ErrorCode::InvalidArgument, why)
        })?;
        check_signed(&signed, query, cx.headers(), now)?;
        let token = token(query, cx.headers())?;
        let key = self.key_of(&access).await?;
        if key.is_temporary() && !matches!(signed, Signed::V4(_)) {
            let why = "temporary keys sign by version 4";
            return Err(S3Error::with_message(S3ErrorCode::AccessDenied, why));
        }
        let identity = self.identity(&key, token.as_deref()).await?;
        if let Some(noted) = cx.extensions_mut().get::<Noted>() {
            let mut notes = noted.lock();
            notes.user = Some(identity.user.clone());
            notes.session = identity.session.as_ref().map(|s| s.principal.clone());
        }
        self.hold_rate(cx, Some(&identity.user)).await?;
        let bucket = cx.s3_path().as_bucket().map(str::to_string);
        let sets = cx.s3_op().name() == OPERATION;
        if let (Some(bucket), true, Some(passed)) = (bucket, sets, cx.extensions_mut().get::<Passed>()) {
            passed.set((identity.clone(), bucket));
        }
        cx.extensions_mut().insert(identity);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(of: &[(&'static str, &'static str)]) -> HeaderMap {
        let pair = |(k, v): &(&'static str, &'static str)| (k.parse().unwrap(), v.parse().unwrap());
        of.iter().map(pair).collect::<HeaderMap>()
    }

    #[test]
    fn headers_that_were_added_are_found() {
        let acl = [
            ("host", "h"),
            ("x-amz-acl", "public-read"),
            ("x-amz-content-sha256", "UNSIGNED-PAYLOAD"),
        ];
        let found = |query: &str, of: &[_]| match signed(query, &headers(of)) {
            Some(Signed::V4(signed)) => unsigned_header(&signed, &headers(of)),
            _ => None,
        };
        let name = Some("x-amz-acl".to_string());
        for query in [
            "X-Amz-SignedHeaders=host&X-Amz-Signature=1",
            "X-Amz-Signature=1&X-Amz-SignedHeaders=host%3Bx-amz-ac",
            "X%2DAmz%2DSignature=1&X%2dAmz-SignedHeaders=host;X-Amz-Acl",
        ] {
            assert_eq!(found(query, &acl), name, "{query}");
        }
        let host = Some("host".to_string());
        for query in [
            "X-Amz-Signature=1",
            "X-Amz-Signature=1&X-Amz-SignedHeaders=x-amz-acl",
        ] {
            assert_eq!(found(query, &acl), host, "{query}");
        }
        assert_eq!(
            found("X-Amz-SignedHeaders=host%3bx-amz-acl&X-Amz-Signature=1", &acl),
            None
        );
        assert_eq!(
            found("X-Amz-SignedHeaders=host&X-Amz-Signature=1", &acl[..1]),
            None
        );
        let with = |value: &'static str| [acl[0], acl[1], ("authorization", value)];
        let listed = with("AWS4-HMAC-SHA256 Credential=a/b, SignedHeaders=host;x-amz-acl, Signature=1");
        assert_eq!(found("", &listed), None);
        assert_eq!(found("X-Amz-Signature=1&X-Amz-SignedHeaders=host", &listed), name);
        let other = with("AWS4-HMAC-SHA256 Credential=a/b,SignedHeaders=host;x-amz-date,Signature=1");
        assert_eq!(found("", &other), name);
        for doubled in [
            "AWS4-HMAC-SHA256 Credential=a,SignedHeaders=host;x-amz-acl;z/b,SignedHeaders=host,Signature=1",
            "AWS4-HMAC-SHA256 X,SignedHeaders=host;x-amz-acl;z Credential=a/b,SignedHeaders=host,Signature=1",
        ] {
            assert_eq!(found("", &with(doubled)), name, "{doubled}");
        }
        for other in [
            "X Credential=a/b,SignedHeaders=host,Signature=1",
            "X,SignedHeaders=host;x-amz-acl;z Credential=a/b,SignedHeaders=host,Signature=1",
            "AWS4-HMAC-SHA256 Credential=a/b,SignedHeaders=host;x-amz-acl,Signature=1,z",
            "AWS4-HMAC-SHA256",
            "Bearer a",
            "",
        ] {
            assert_eq!(signed("", &headers(&with(other))), None, "{other}");
        }
        let of = |query: &str| signed(query, &headers(&with("AWS a:b"))).unwrap();
        assert_eq!((of(""), of("a=b&Signature=1")), (Signed::V2, Signed::Url));
        // The library looks for V2 first, whatever else the query says.
        assert_eq!(of("X-Amz-Signature=1&X-Amz-SignedHeaders=host"), Signed::V2);
        let twice = headers(&[acl[0], ("authorization", "AWS a:b"), ("authorization", "AWS a:c")]);
        assert_eq!(
            signed("X-Amz-Signature=1&X-Amz-SignedHeaders=host", &twice),
            Some(Signed::V4(vec!["host".into()]))
        );
    }

    #[test]
    fn a_request_by_v2_is_of_now() {
        // Thu, 01 Jan 1970 00:00:00 GMT and a day.
        let now = UNIX_EPOCH + Duration::from_secs(86_400);
        let of_now = |of: &[_]| is_of_now(&headers(of), now);
        for good in ["Fri, 02 Jan 1970 00:00:00 GMT", "Thu, 01 Jan 1970 23:46:00 +0000"] {
            assert!(of_now(&[("date", good)]), "{good}");
        }
        for bad in [
            "Thu, 01 Jan 1970 23:44:59 GMT",
            "Fri, 02 Jan 1970 00:15:01 GMT",
            "now",
            "",
        ] {
            assert!(!of_now(&[("date", bad)]), "{bad}");
            assert!(of_now(&[
                ("date", bad),
                ("x-amz-date", "Fri, 02 Jan 1970 00:00:00 GMT")
            ]));
        }
        assert!(!of_now(&[]));
    }
}
