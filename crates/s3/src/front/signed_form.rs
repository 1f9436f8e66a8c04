//! Forms that are posted to `/` and signed by V4 for a service that is not S3: SNS (`topic_ops`), STS (`sts_ops`), IAM (`iam_ops`).
//!
//! Bounds: a form of [`BODY_MAX`]; rate limits are the user's.

use super::Front;
use super::caller::{Identity, Noted};
use super::sessions::token;
use super::texts::{epoch_seconds, url_decoded};
use crate::rados::Pool;
use aws_lc_rs::{digest, hmac};
use bytes::{Bytes, BytesMut};
use futures_core::Stream;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, StatusCode};
use s3s::dto::{Timestamp, TimestampFormat};
use s3s::{HttpResponse, S3Error, S3ErrorCode};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::Pin;

const FORM: &str = "application/x-www-form-urlencoded";
const ALGORITHM: &str = "AWS4-HMAC-SHA256";
const BODY_MAX: usize = 64 << 10;
pub(super) const NO_SESSIONS: &str =
    "a session of a role asks for objects and buckets alone: it makes no topics and no roles, and takes none";
/// Seconds that clocks may differ.
const SKEW: u64 = 15 * 60;

/// Why it is not done, as these services say it.
#[derive(Debug)]
pub(super) struct Refusal {
    status: StatusCode,
    pub code: String,
    why: String,
}

pub(super) type Done<T> = Result<T, Refusal>;

/// Who has signed a form.
pub(super) struct By {
    pub identity: Identity,
    /// The public part of the key.
    pub access: String,
    /// The key was made here for the user.
    pub own: bool,
    /// It goes with a token.
    pub temporary: bool,
}

pub(super) fn refuse(code: &str, why: impl Into<String>) -> Refusal {
    let status = match code {
        "NotFound" | "NoSuchEntity" => StatusCode::NOT_FOUND,
        "EntityAlreadyExists" | "DeleteConflict" => StatusCode::CONFLICT,
        "InvalidParameter"
        | "InvalidAction"
        | "MissingAction"
        | "ValidationError"
        | "MalformedPolicyDocument"
        | "PackedPolicyTooLarge" => StatusCode::BAD_REQUEST,
        "NotImplemented" => StatusCode::NOT_IMPLEMENTED,
        _ => StatusCode::FORBIDDEN,
    };
    Refusal {
        status,
        code: code.to_string(),
        why: why.into(),
    }
}

pub(super) fn wrong(why: impl Into<String>) -> Refusal {
    refuse("InvalidParameter", why)
}

impl From<S3Error> for Refusal {
    fn from(e: S3Error) -> Self {
        Self {
            status: e.status_code().unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
            code: e.code().as_str().to_string(),
            why: e.message().unwrap_or_default().to_string(),
        }
    }
}

impl From<crate::Error> for Refusal {
    fn from(e: crate::Error) -> Self {
        match e {
            crate::Error::Invalid(why) => wrong(why),
            crate::Error::NoSuchRole | crate::Error::NoSuchRolePolicy => {
                refuse("NoSuchEntity", e.to_string())
            }
            crate::Error::RoleExists | crate::Error::RoleNameHeld => {
                refuse("EntityAlreadyExists", e.to_string())
            }
            crate::Error::RoleInUse => refuse("DeleteConflict", e.to_string()),
            e => S3Error::from(e).into(),
        }
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|v| v.to_str().ok())
}

/// Whom a form is signed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Service {
    Sns,
    Sts,
    Iam,
}

const SERVICES: [Service; 3] = [Service::Sns, Service::Sts, Service::Iam];

impl Service {
    /// In the scope of signatures.
    fn name(self) -> &'static str {
        match self {
            Self::Sns => "sns",
            Self::Sts => "sts",
            Self::Iam => "iam",
        }
    }

    fn xmlns(self) -> &'static str {
        match self {
            Self::Sns => "http://sns.amazonaws.com/doc/2010-03-31/",
            Self::Sts => "https://sts.amazonaws.com/doc/2011-06-15/",
            Self::Iam => "https://iam.amazonaws.com/doc/2010-05-08/",
        }
    }
}

/// A form of one of them, by what it says that it is signed for.
pub(super) fn service_of<B>(request: &hyper::Request<B>) -> Option<Service> {
    let is_form =
        text(request.headers(), CONTENT_TYPE.as_str()).is_some_and(|t| t.trim_start().starts_with(FORM));
    let signed = text(request.headers(), AUTHORIZATION.as_str()).unwrap_or_default();
    if request.method() != Method::POST || request.uri().path() != "/" || !is_form {
        return None;
    }
    let of = |s: &Service| signed.contains(&format!("/{}/aws4_request", s.name()));
    SERVICES.into_iter().find(of)
}

/// Names and values of a form; of what is there twice none is taken.
pub(super) fn fields(body: &[u8]) -> Result<BTreeMap<String, String>, String> {
    let body = std::str::from_utf8(body).map_err(|_| "the form is no text")?;
    let mut of = BTreeMap::new();
    for pair in body.split('&').filter(|p| !p.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (Some(name), Some(value)) = (url_decoded(name), url_decoded(value)) else {
            return Err("the form is not URL encoded".into());
        };
        if of.contains_key(&name) {
            return Err(format!("{name} is there twice"));
        }
        of.insert(name, value);
    }
    Ok(of)
}

fn sign(key: &[u8], data: &str) -> Vec<u8> {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    hmac::sign(&key, data.as_bytes()).as_ref().to_vec()
}

fn sha256(data: &[u8]) -> String {
    hex::encode(digest::digest(&digest::SHA256, data))
}

/// A signature by V4, as a request claims it.
struct Signed<'a> {
    access: &'a str,
    /// Date, region, service.
    scope: [&'a str; 3],
    headers: Vec<&'a str>,
    signature: Vec<u8>,
    at: &'a str,
}

impl<'a> Signed<'a> {
    /// None: it is none of a header's.
    fn of(headers: &'a HeaderMap, of: Service) -> Option<Self> {
        let mut all = headers.get_all(AUTHORIZATION).iter();
        let only = all.next().filter(|_| all.next().is_none())?;
        let mut named = BTreeMap::new();
        for field in only.to_str().ok()?.strip_prefix(ALGORITHM)?.split(',') {
            let (name, value) = field.trim().split_once('=')?;
            if named.insert(name, value).is_some() {
                return None;
            }
        }
        let mut parts = named.get("Credential")?.split('/');
        let (access, date, region) = (parts.next()?, parts.next()?, parts.next()?);
        let (service, end) = (parts.next()?, parts.next()?);
        if end != "aws4_request" || service != of.name() || parts.next().is_some() || named.len() != 3 {
            return None;
        }
        let at = text(headers, "x-amz-date")?;
        let signed: Vec<&str> = named.get("SignedHeaders")?.split(';').collect();
        let all = headers.keys().map(|name| name.as_str());
        let needed = all.filter(|n| n.starts_with("x-amz-") && *n != "x-amz-content-sha256");
        let mut needed = needed.chain(["host"]);
        if !at.starts_with(date) || date.is_empty() || !needed.all(|name| signed.contains(&name)) {
            return None;
        }
        Some(Self {
            access,
            scope: [date, region, service],
            headers: signed,
            signature: hex::decode(named.get("Signature")?).ok()?,
            at,
        })
    }

    /// Seconds since 1970.
    fn seconds(&self) -> Option<u64> {
        let at = self.at;
        let part = |from: usize, to: usize| at.get(from..to);
        if at.len() != 16 || part(8, 9)? != "T" || part(15, 16)? != "Z" {
            return None;
        }
        let (year, month, day) = (part(0, 4)?, part(4, 6)?, part(6, 8)?);
        let (hour, minute, second) = (part(9, 11)?, part(11, 13)?, part(13, 15)?);
        let padded = format!("{year}-{month}-{day}T{hour}:{minute}:{second}Z");
        epoch_seconds(&Timestamp::parse(TimestampFormat::DateTime, &padded).ok()?)
    }

    /// In time that does not tell how much of it is right.
    fn is_right(&self, secret: &str, headers: &HeaderMap, body: &[u8]) -> bool {
        let mut canonical = "POST\n/\n\n".to_string();
        for name in &self.headers {
            let values = headers.get_all(*name).iter().filter_map(|v| v.to_str().ok());
            let one = |v: &str| v.split_whitespace().collect::<Vec<_>>().join(" ");
            let values: Vec<String> = values.map(one).collect();
            canonical += &format!("{name}:{}\n", values.join(","));
        }
        canonical += &format!("\n{}\n{}", self.headers.join(";"), sha256(body));
        let scope = format!("{}/aws4_request", self.scope.join("/"));
        let signed = format!(
            "{ALGORITHM}\n{}\n{scope}\n{}",
            self.at,
            sha256(canonical.as_bytes())
        );
        let mut key = format!("AWS4{secret}").into_bytes();
        for part in self.scope.iter().chain(&["aws4_request"]) {
            key = sign(&key, part);
        }
        let key = hmac::Key::new(hmac::HMAC_SHA256, &key);
        hmac::verify(&key, signed.as_bytes(), &self.signature).is_ok()
    }
}

async fn collected(mut body: s3s::Body) -> Done<Bytes> {
    let mut all = BytesMut::new();
    while let Some(chunk) = poll_fn(|cx| Pin::new(&mut body).poll_next(cx)).await {
        let chunk = chunk.map_err(|e| Refusal::from(crate::Error::Body(e.to_string())))?;
        if all.len() + chunk.len() > BODY_MAX {
            return Err(wrong("the form has at most 64 KiB"));
        }
        all.extend_from_slice(&chunk);
    }
    Ok(all.freeze())
}

pub(super) fn xml(text: &str) -> String {
    // Of what XML has no way to write nothing comes here but in opaque data.
    let text: String = text
        .chars()
        .filter(|c| !c.is_control() || "\t\n".contains(*c))
        .collect();
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

/// The result of an action, as these services write it.
pub(super) fn result(of: Service, operation: &str, inner: &str, request: &str) -> String {
    // boto3 wants this one where it is empty, too.
    let result = match inner.is_empty() && operation != "UpdateRole" {
        true => String::new(),
        false => format!("<{operation}Result>{inner}</{operation}Result>"),
    };
    format!(
        "<{operation}Response xmlns=\"{}\">{result}<ResponseMetadata><RequestId>{request}</RequestId></ResponseMetadata></{operation}Response>",
        of.xmlns()
    )
}

fn answer(status: StatusCode, text: String) -> HttpResponse {
    let mut answer = HttpResponse::new(s3s::Body::from(text));
    *answer.status_mut() = status;
    answer
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("text/xml"));
    answer
}

impl<P: Pool> Front<P> {
    /// Answers a form.
    pub(super) async fn of_form(
        &self,
        of: Service,
        (parts, body): (Parts, s3s::Body),
        noted: &Noted,
    ) -> HttpResponse {
        let request = format!("{:016x}", self.clock.random_u64());
        match self.form_asked(of, &parts, body, noted).await {
            Ok((operation, inner)) => answer(StatusCode::OK, result(of, operation, &inner, &request)),
            Err(e) => {
                let kind = if e.status.is_server_error() {
                    "Receiver"
                } else {
                    "Sender"
                };
                let (code, why) = (xml(&e.code), xml(&e.why));
                let error =
                    format!("<Error><Type>{kind}</Type><Code>{code}</Code><Message>{why}</Message></Error>");
                let text = format!(
                    "<ErrorResponse xmlns=\"{}\">{error}<RequestId>{request}</RequestId></ErrorResponse>",
                    of.xmlns()
                );
                answer(e.status, text)
            }
        }
    }

    async fn form_asked(
        &self,
        of: Service,
        parts: &Parts,
        body: s3s::Body,
        noted: &Noted,
    ) -> Done<(&'static str, String)> {
        let (by, form) = self.signed_form(of, parts, body, noted).await?;
        let user = by.identity.user.as_str();
        match of {
            Service::Sts => self.sts_asked(&by, form, noted, parts).await,
            _ if by.identity.session.is_some() => Err(refuse("AccessDenied", NO_SESSIONS)),
            // As AWS has it: who has got hold of a token makes no keys that outlive it.
            Service::Iam if by.temporary => {
                let why = "IAM is asked with a key of the user's own, not with a temporary one";
                Err(refuse("AccessDenied", why))
            }
            Service::Iam => self.iam_asked(&by, form, noted).await,
            Service::Sns => self.topics_asked(user, form, noted).await,
        }
    }

    /// Who has signed a form, and its fields.
    async fn signed_form(
        &self,
        of: Service,
        parts: &Parts,
        body: s3s::Body,
        noted: &Noted,
    ) -> Done<(By, BTreeMap<String, String>)> {
        let headers = &parts.headers;
        if parts.uri.query().is_some_and(|q| !q.is_empty()) {
            return Err(wrong("what is asked for is in the form, not in the query"));
        }
        let signed = Signed::of(headers, of).ok_or_else(|| {
            refuse(
                "IncompleteSignature",
                "a signature of version 4 in the Authorization header is wanted, of host and all x-amz- headers",
            )
        })?;
        let now = self.clock.now_ms() / 1000;
        if signed.seconds().is_none_or(|at| at.abs_diff(now) > SKEW) {
            return Err(refuse(
                "RequestExpired",
                "the request's date is not within 15 minutes of the gateway's",
            ));
        }
        let key = match self.key_of(signed.access).await {
            Err(e) if *e.code() == S3ErrorCode::InvalidAccessKeyId => {
                return Err(refuse("InvalidClientTokenId", "there is no such access key"));
            }
            other => other?,
        };
        let body = collected(body).await?;
        if !signed.is_right(&key.secret, headers, &body) {
            return Err(refuse(
                "SignatureDoesNotMatch",
                "the signature is not the one of this key",
            ));
        }
        let identity = self.identity(&key, token("", headers)?.as_deref()).await?;
        let payers = self.rates.admit(Some(&identity.user), None, true).await?;
        self.rates.charge(&payers, true, body.len() as u64);
        {
            let mut notes = noted.lock();
            notes.payers = payers;
            notes.user = Some(identity.user.clone());
            notes.session = identity.session.as_ref().map(|s| s.principal.clone());
        }
        let by = By {
            identity,
            access: key.access().to_string(),
            own: key.is_own(),
            temporary: key.is_temporary(),
        };
        Ok((by, fields(&body).map_err(wrong)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_are_of_this_service_and_of_all_that_matters() {
        let of = |authorization: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("host", HeaderValue::from_static("h"));
            headers.insert("x-amz-date", HeaderValue::from_static("20150830T123600Z"));
            headers.insert(AUTHORIZATION, authorization.parse().unwrap());
            Signed::of(&headers, Service::Sns).map(|s| (s.access.to_string(), s.seconds()))
        };
        let claim = |credential: &str, signed: &str| {
            of(&format!(
                "{ALGORITHM} Credential={credential}, SignedHeaders={signed}, Signature=00ff"
            ))
        };
        let good = claim("AK/20150830/us-east-1/sns/aws4_request", "host;x-amz-date");
        assert_eq!(good, Some(("AK".into(), Some(1_440_938_160))));
        for (credential, signed) in [
            ("AK/20150830/us-east-1/s3/aws4_request", "host;x-amz-date"),
            ("AK/20150831/us-east-1/sns/aws4_request", "host;x-amz-date"),
            ("AK/20150830/us-east-1/sns/aws4_request", "x-amz-date"),
            ("AK/20150830/us-east-1/sns/aws4_request", "host"),
            ("AK/20150830/us-east-1/sns", "host;x-amz-date"),
        ] {
            assert_eq!(claim(credential, signed), None, "{credential} {signed}");
        }
        assert_eq!(
            claim("AK/20150830/us-east-1/sts/aws4_request", "host;x-amz-date"),
            None
        );
        assert_eq!(of("AWS a:b"), None);
    }
}
