//! Objects that browsers post as forms: who signed the policy, what it lets be put, and the answer, which a browser follows.
//!
//! The file is put as any other object while it comes: nothing of it is held beside what an upload holds.

use super::Front;
use super::caller::{Identity, Noted};
use super::errors::{coded, invalid, not_built};
use super::form::{Fields, Form, boundary};
use super::object_ops::{PUT_MAX, Within};
use super::post_policy::PostPolicy;
use super::texts::{Names, path_decoded};
use crate::Error;
use crate::rados::Pool;
use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_core::Stream;
use hyper::body::Body;
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE, ETAG, HeaderMap, HeaderName, HeaderValue, LOCATION};
use hyper::http::request::Parts;
use hyper::{Method, StatusCode};
use s3s::dto::*;
use s3s::{HttpResponse, S3Error, S3ErrorCode, S3Request, S3Result};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

/// What a form has beside its file, at most.
const AROUND_MAX: u64 = 1 << 20;
const URL_MAX: usize = 2048;
/// Fields that are used as headers of the same name are. What is not known is refused: an object would be less than its owner thinks.
const FIELDS: [&str; 10] = [
    "x-amz-checksum-algorithm",
    "x-amz-checksum-crc32",
    "x-amz-checksum-crc32c",
    "x-amz-checksum-crc64nvme",
    "x-amz-checksum-sha1",
    "x-amz-checksum-sha256",
    "x-amz-expected-bucket-owner",
    "x-amz-server-side-encryption",
    "x-amz-storage-class",
    "x-amz-website-redirect-location",
];
/// Keys of clients; and what a PUT refuses, with a better reason.
const PASSED_ON: [&str; 3] = [
    "x-amz-server-side-encryption-",
    "x-amz-grant-",
    "x-amz-write-offset-bytes",
];
const SIGNING: [&str; 4] = [
    "x-amz-algorithm",
    "x-amz-credential",
    "x-amz-date",
    "x-amz-signature",
];
const FILE_NAME: &str = "${filename}";

/// Which lengths of a file are wrong. Clones are the same.
#[derive(Debug, Clone, Default)]
struct Wrong {
    large: Arc<AtomicBool>,
    small: Arc<AtomicBool>,
    /// More follows the file than is allowed.
    after: Arc<AtomicBool>,
}

impl Wrong {
    /// What is told of a put that failed.
    fn in_place_of(&self, e: S3Error) -> S3Error {
        let is = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
        match () {
            () if is(&self.large) => too_large(),
            () if is(&self.small) => too_small(),
            () if is(&self.after) => coded(
                S3ErrorCode::MalformedPOSTRequest,
                "the form: more than 64 KiB follow its file",
            ),
            () => e,
        }
    }
}

fn too_large() -> S3Error {
    let size = "Your proposed upload exceeds the maximum allowed size";
    coded(S3ErrorCode::EntityTooLarge, size)
}

fn too_small() -> S3Error {
    let size = "Your proposed upload is smaller than the minimum allowed size";
    coded(S3ErrorCode::EntityTooSmall, size)
}

/// What is known of a file's length before it comes: from the request's, and from the policy's range. Refused where they leave none.
fn within((least, most): (u64, u64), range: (u64, u64)) -> S3Result<Within> {
    if least > range.1 {
        return Err(too_large());
    }
    if most < range.0 {
        return Err(too_small());
    }
    Ok(Within {
        least,
        most: most.min(range.1),
    })
}

/// A file that has to have so many bytes.
struct Ranged<S> {
    file: S,
    /// What it has by the request's length, at least.
    least: u64,
    range: (u64, u64),
    seen: u64,
    wrong: Wrong,
}

impl<S: Stream<Item = std::io::Result<Bytes>> + Unpin> Stream for Ranged<S> {
    type Item = std::io::Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let next = ready!(Pin::new(&mut self.file).poll_next(cx));
        let refused = |flag: &AtomicBool| {
            flag.store(true, Ordering::Relaxed);
            Poll::Ready(Some(Err(std::io::Error::other(
                "a length that the policy does not allow",
            ))))
        };
        match next {
            Some(Ok(chunk)) => {
                self.seen += chunk.len() as u64;
                match self.seen > self.range.1 {
                    true => refused(&self.wrong.large),
                    false => Poll::Ready(Some(Ok(chunk))),
                }
            }
            None if self.seen < self.range.0 => {
                // Said once.
                self.range.0 = 0;
                refused(&self.wrong.small)
            }
            None if self.seen < self.least => {
                self.least = 0;
                refused(&self.wrong.after)
            }
            other => Poll::Ready(other),
        }
    }
}

fn sign(key: &[u8], data: &str) -> Vec<u8> {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    hmac::sign(&key, data.as_bytes()).as_ref().to_vec()
}

/// Whose key signed a policy, and how.
enum Signed<'a> {
    V4 {
        access: &'a str,
        /// Date, region, service.
        scope: [&'a str; 3],
        signature: &'a str,
    },
    V2 {
        access: &'a str,
        signature: &'a str,
    },
}

impl<'a> Signed<'a> {
    /// None: it is not signed.
    fn of(fields: &'a Fields) -> S3Result<Option<Self>> {
        let field = |name: &str| fields.of.get(name).map(String::as_str);
        match (field("x-amz-signature"), field("signature")) {
            (None, None) => Ok(None),
            (Some(_), Some(_)) => Err(invalid("a form is signed once")),
            (None, Some(signature)) => Ok(Some(Self::V2 {
                access: field("awsaccesskeyid").ok_or_else(|| invalid("AWSAccessKeyId is missing"))?,
                signature,
            })),
            (Some(signature), None) => {
                if field("x-amz-algorithm") != Some("AWS4-HMAC-SHA256") {
                    return Err(invalid("X-Amz-Algorithm is AWS4-HMAC-SHA256"));
                }
                let credential = field("x-amz-credential").unwrap_or_default();
                let mut parts = credential.rsplitn(5, '/');
                let end = parts.next();
                let (service, region, date, access) =
                    (parts.next(), parts.next(), parts.next(), parts.next());
                let (Some("aws4_request"), Some("s3"), Some(region), Some(date), Some(access)) =
                    (end, service, region, date, access)
                else {
                    return Err(invalid("X-Amz-Credential is KEY/DATE/REGION/s3/aws4_request"));
                };
                if !field("x-amz-date").is_some_and(|d| d.starts_with(date) && !date.is_empty()) {
                    return Err(invalid("X-Amz-Date is not of the credential's day"));
                }
                Ok(Some(Self::V4 {
                    access,
                    scope: [date, region, "s3"],
                    signature,
                }))
            }
        }
    }

    fn access(&self) -> &str {
        match self {
            Self::V4 { access, .. } | Self::V2 { access, .. } => access,
        }
    }

    /// In time that does not tell how much of it is right.
    fn is_right(&self, secret: &str, policy: &str) -> bool {
        let verified = |algorithm, key: &[u8], said: Option<Vec<u8>>| {
            let key = hmac::Key::new(algorithm, key);
            said.is_some_and(|said| hmac::verify(&key, policy.as_bytes(), &said).is_ok())
        };
        match self {
            Self::V4 { scope, signature, .. } => {
                let mut key = format!("AWS4{secret}").into_bytes();
                for part in scope.iter().chain(&["aws4_request"]) {
                    key = sign(&key, part);
                }
                verified(hmac::HMAC_SHA256, &key, hex::decode(signature).ok())
            }
            Self::V2 { signature, .. } => {
                let said = STANDARD.decode(signature).ok();
                verified(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, secret.as_bytes(), said)
            }
        }
    }
}

/// What a form says of an object, as a request would.
fn input(bucket: &str, fields: &Fields) -> S3Result<(PutObjectInput, HeaderMap)> {
    let field = |name: &str| fields.of.get(name).filter(|v| !v.is_empty()).cloned();
    let key = field("key").ok_or_else(|| invalid("the form has no key"))?;
    let mut input = PutObjectInput {
        bucket: bucket.to_string(),
        key: key.replace(FILE_NAME, &fields.file_name),
        acl: field("acl").map(ObjectCannedACL::from),
        cache_control: field("cache-control"),
        content_disposition: field("content-disposition"),
        content_encoding: field("content-encoding"),
        content_language: field("content-language"),
        checksum_algorithm: field("x-amz-checksum-algorithm").map(ChecksumAlgorithm::from),
        checksum_crc32: field("x-amz-checksum-crc32"),
        checksum_crc32c: field("x-amz-checksum-crc32c"),
        checksum_crc64nvme: field("x-amz-checksum-crc64nvme"),
        checksum_sha1: field("x-amz-checksum-sha1"),
        checksum_sha256: field("x-amz-checksum-sha256"),
        website_redirect_location: field("x-amz-website-redirect-location"),
        ..PutObjectInput::default()
    };
    if let Some(kind) = field("content-type") {
        input.content_type = Some(kind.parse().map_err(|_| invalid("a Content-Type that is none"))?);
    }
    if let Some(at) = field("expires") {
        let at = Timestamp::parse(TimestampFormat::HttpDate, &at);
        input.expires = Some(at.map_err(|_| invalid("Expires is a date of HTTP"))?);
    }
    let mut headers = HeaderMap::new();
    let mut metadata = Metadata::default();
    for (name, value) in &fields.of {
        if name == "tagging" || name.starts_with("x-amz-object-lock-") || name == "x-amz-security-token" {
            return Err(not_built(&format!("{name} in a form")));
        }
        if let Some(name) = name.strip_prefix("x-amz-meta-") {
            metadata.insert(name.to_string(), value.clone());
        } else if name.starts_with("x-amz-") {
            let used = FIELDS.contains(&name.as_str()) || PASSED_ON.iter().any(|n| name.starts_with(n));
            if !used && !SIGNING.contains(&name.as_str()) {
                return Err(invalid(format!("the field {name} is not known in a form")));
            }
            let pair = (HeaderName::try_from(name), HeaderValue::try_from(value));
            let (Ok(name), Ok(value)) = pair else {
                return Err(invalid(format!("the field {name} cannot be a header")));
            };
            headers.insert(name, value);
        }
    }
    input.metadata = Some(metadata).filter(|m| !m.is_empty());
    Ok((input, headers))
}

/// Where the browser goes afterwards, if the form says so well.
fn redirect(fields: &Fields) -> Option<String> {
    let said = fields
        .of
        .get("success_action_redirect")
        .or_else(|| fields.of.get("redirect"))?;
    let web = said.starts_with("http://") || said.starts_with("https://");
    (web && said.len() <= URL_MAX && HeaderValue::from_str(said).is_ok()).then(|| said.clone())
}

fn xml(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

fn answer(fields: &Fields, (bucket, key): (&str, &str), out: &PutObjectOutput) -> S3Result<HttpResponse> {
    let etag = out
        .e_tag
        .as_ref()
        .map_or(String::new(), |e| format!("\"{}\"", e.value()));
    let (url, name) = (Names::url(), format!("/{bucket}/{}", Names::url().write(key)));
    let status = fields.of.get("success_action_status").map(String::as_str);
    let mut answer = HttpResponse::new(s3s::Body::empty());
    let mut set = |name: HeaderName, value: String| {
        if let Ok(value) = HeaderValue::try_from(value) {
            answer.headers_mut().insert(name, value);
        }
    };
    set(ETAG, etag.clone());
    if let Some(id) = &out.version_id {
        set(HeaderName::from_static("x-amz-version-id"), id.clone());
    }
    if let Some(how) = &out.server_side_encryption {
        let name = HeaderName::from_static(super::customer::ENCRYPTION);
        set(name, how.as_str().to_string());
    }
    if let Some(to) = redirect(fields) {
        let joint = if to.contains('?') { '&' } else { '?' };
        let said = format!(
            "bucket={}&key={}&etag={}",
            url.write(bucket),
            url.write(key),
            url.write(&etag)
        );
        set(LOCATION, format!("{to}{joint}{said}"));
        *answer.status_mut() = StatusCode::SEE_OTHER;
        return Ok(answer);
    }
    set(LOCATION, name.clone());
    *answer.status_mut() = match status {
        Some("200") => StatusCode::OK,
        Some("201") => {
            set(CONTENT_TYPE, "application/xml".into());
            let (name, bucket, key, etag) = (xml(&name), xml(bucket), xml(key), xml(&etag));
            let text = format!(
                "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<PostResponse><Location>{name}</Location><Bucket>{bucket}</Bucket><Key>{key}</Key><ETag>{etag}</ETag></PostResponse>"
            );
            *answer.body_mut() = s3s::Body::from(text);
            StatusCode::CREATED
        }
        _ => StatusCode::NO_CONTENT,
    };
    Ok(answer)
}

/// The same as a PUT of this user.
fn request(
    mut parts: Parts,
    identity: Option<Identity>,
    input: PutObjectInput,
    headers: HeaderMap,
) -> S3Request<PutObjectInput> {
    if let Some(identity) = identity {
        parts.extensions.insert(identity);
    }
    S3Request {
        input,
        method: Method::POST,
        uri: parts.uri,
        headers,
        extensions: parts.extensions,
        credentials: None,
        region: None,
        service: None,
        trailing_headers: None,
    }
}

/// The length of a form's request, and its boundary, if it is one that may be posted to this bucket.
fn announced(parts: &Parts, bucket: &str) -> S3Result<(u64, String)> {
    let path = path_decoded(parts.uri.path()).unwrap_or_default();
    if path != "/" && path.trim_matches('/') != bucket {
        return Err(coded(
            S3ErrorCode::MethodNotAllowed,
            "a form is posted to a bucket, and not to a key",
        ));
    }
    let text = |name: HeaderName| parts.headers.get(name).and_then(|v| v.to_str().ok());
    let length: u64 = text(CONTENT_LENGTH)
        .and_then(|l| l.parse().ok())
        .ok_or_else(|| coded(S3ErrorCode::MissingContentLength, "a form says how long it is"))?;
    let boundary = boundary(text(CONTENT_TYPE).unwrap_or_default())?;
    if length > PUT_MAX + AROUND_MAX {
        return Err(Error::TooLarge("the object is larger than is allowed").into());
    }
    Ok((length, boundary))
}

impl<P: Pool> Front<P> {
    /// Whose form it is; None: nobody's. Refused if it is signed wrongly, or does what its policy does not let it.
    async fn poster(&self, bucket: &str, fields: &Fields) -> S3Result<(Option<Identity>, (u64, u64))> {
        let denied = |why: String| coded(S3ErrorCode::AccessDenied, why);
        let text = fields.of.get("policy");
        let Some(signed) = Signed::of(fields)? else {
            let known = self.buckets.known(bucket).await?;
            let opens = known.settings.policy.as_ref().is_some_and(|p| p.opens());
            return match opens && text.is_none() {
                true => Ok((None, (0, u64::MAX))),
                false => Err(Error::AccessDenied.into()),
            };
        };
        let text =
            text.ok_or_else(|| denied("the form has a signature, and no policy that it is of".into()))?;
        let key = self.key_of(signed.access()).await?;
        if key.is_temporary() {
            return Err(not_built("forms that are signed with temporary keys"));
        }
        if !signed.is_right(&key.secret, text) {
            return Err(coded(
                S3ErrorCode::SignatureDoesNotMatch,
                "the signature of the form's policy is not the one of this key",
            ));
        }
        let malformed = |why| {
            coded(
                S3ErrorCode::InvalidPolicyDocument,
                format!("Invalid Policy: {why}"),
            )
        };
        let policy = PostPolicy::parse(text).map_err(malformed)?;
        policy
            .check(&fields.of, bucket, self.clock.now_ms())
            .map_err(denied)?;
        Ok((Some(self.identity(&key, None).await?), policy.length))
    }

    /// Puts the file of a form that was posted to a bucket.
    pub(super) async fn post<B>(
        &self,
        mut parts: Parts,
        body: B,
        bucket: Option<String>,
        noted: &Noted,
    ) -> S3Result<HttpResponse>
    where
        B: Body<Data = Bytes> + Send + Sync + Unpin + 'static,
        B::Error: std::fmt::Display,
    {
        noted.lock().operation = Some("PostObject".into());
        let bucket = bucket.ok_or_else(|| invalid("a form is posted to a bucket"))?;
        let (length, boundary) = announced(&parts, &bucket)?;
        let mut form = Form::new(body, &boundary);
        let fields = form.fields().await?;
        let (identity, range) = self.poster(&bucket, &fields).await?;
        let user = identity.as_ref().map(|i| i.user.clone());
        let payers = self.rates.admit(user.as_deref(), Some(&bucket), true).await?;
        self.rates.charge(&payers, true, length);
        {
            let mut notes = noted.lock();
            notes.payers = payers;
            notes.user.clone_from(&user);
        }
        let within = within(form.bounds(length), range)?;
        parts.extensions.insert(within);
        let (mut input, mut headers) = input(&bucket, &fields)?;
        for name in ["referer", "user-agent"] {
            headers.extend(
                parts
                    .headers
                    .remove(name)
                    .map(|v| (HeaderName::from_static(name), v)),
            );
        }
        super::customer::hide_keys(&mut headers);
        let wrong = Wrong::default();
        input.body = Some(StreamingBlob::wrap(Ranged {
            file: form,
            least: within.least,
            range,
            seen: 0,
            wrong: wrong.clone(),
        }));
        let key = input.key.clone();
        let req = request(parts, identity, input, headers);
        match self.put_object(req).await {
            Ok(out) => answer(&fields, (&bucket, &key), &out),
            Err(e) => Err(wrong.in_place_of(e)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_of_a_file_before_it_comes() {
        let of = |bounds, range| {
            let found = within(bounds, range).map(|w| (w.least, w.most));
            found.map_err(|e| e.code().as_str().to_string())
        };
        assert_eq!(of((0, 100), (0, u64::MAX)), Ok((0, 100)));
        assert_eq!(of((40, 100), (50, 60)), Ok((40, 60)));
        assert_eq!(of((61, 100), (50, 60)), Err("EntityTooLarge".into()));
        assert_eq!(of((0, 49), (50, 60)), Err("EntityTooSmall".into()));
    }

    #[test]
    fn fields_that_are_not_known_are_refused() {
        let of = |name: &str| {
            let of = [("key", "k"), (name, "5")].map(|(k, v)| (k.to_string(), v.to_string()));
            let fields = Fields {
                of: of.into(),
                file_name: String::new(),
            };
            input("b", &fields).map_err(|e| e.code().as_str().to_string())
        };
        for bad in [
            "x-amz-decoded-content-length",
            "x-amz-trailer",
            "x-amz-acl",
            "x-amz-tagging",
            "x-amz-checksum-md5",
        ] {
            assert_eq!(of(bad).unwrap_err(), "InvalidArgument", "{bad}");
        }
        for good in FIELDS.iter().chain(&SIGNING) {
            assert!(of(good).unwrap().1.contains_key(*good), "{good}");
        }
        for good in [
            "x-ignore-a",
            "submit",
            "x-amz-server-side-encryption-customer-key",
        ] {
            assert!(of(good).is_ok(), "{good}");
        }
        let metadata = of("x-amz-meta-a").unwrap().0.metadata.unwrap();
        assert_eq!(metadata["a"], "5");
    }

    struct Chunks(Vec<Bytes>);

    impl Stream for Chunks {
        type Item = std::io::Result<Bytes>;

        fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
            Poll::Ready(self.0.pop().map(Ok))
        }
    }

    #[test]
    fn a_file_of_a_wrong_length_is_said_once() {
        let told = |range, least| {
            let wrong = Wrong::default();
            let mut file = Ranged {
                file: Chunks(vec![Bytes::from_static(b"four"); 3]),
                least,
                range,
                seen: 0,
                wrong: wrong.clone(),
            };
            let mut cx = Context::from_waker(std::task::Waker::noop());
            let mut failed = 0;
            while let Poll::Ready(Some(chunk)) = Pin::new(&mut file).poll_next(&mut cx) {
                failed += usize::from(chunk.is_err());
            }
            let said = wrong.in_place_of(invalid("another"));
            (failed, said.code().as_str().to_string())
        };
        assert_eq!(told((12, 12), 12), (0, "InvalidArgument".into()));
        assert_eq!(told((0, 11), 0), (1, "EntityTooLarge".into()));
        assert_eq!(told((13, 20), 0), (1, "EntityTooSmall".into()));
        assert_eq!(told((0, 20), 13), (1, "MalformedPOSTRequest".into()));
    }
}
