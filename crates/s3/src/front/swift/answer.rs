//! Answers as Swift gives them, and its statuses of our errors.

use crate::Error;
use crate::front::times::{DATES_END, http_date, seconds, timestamp};
use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderName, HeaderValue};
use s3s::dto::TimestampFormat;
use s3s::{Body, HttpResponse, S3Error, S3ErrorCode};

/// Why a request is not done.
#[derive(Debug)]
pub struct Refusal {
    pub status: StatusCode,
    pub why: String,
    /// There is no such container: who may not know that is told otherwise.
    pub no_container: bool,
}

pub type Done<T = HttpResponse> = Result<T, Refusal>;

pub fn refuse(status: StatusCode, why: impl Into<String>) -> Refusal {
    Refusal {
        status,
        why: why.into(),
        no_container: false,
    }
}

pub fn bad(why: impl Into<String>) -> Refusal {
    refuse(StatusCode::BAD_REQUEST, why)
}

pub fn denied() -> Refusal {
    refuse(StatusCode::FORBIDDEN, "Access was denied to this resource.")
}

pub fn missing() -> Refusal {
    refuse(StatusCode::NOT_FOUND, "The resource could not be found.")
}

pub fn unbuilt(what: &str) -> Refusal {
    refuse(StatusCode::NOT_IMPLEMENTED, format!("{what}: not built yet"))
}

impl From<S3Error> for Refusal {
    fn from(e: S3Error) -> Self {
        use S3ErrorCode as Code;
        let status = match e.code() {
            Code::NoSuchBucket | Code::NoSuchKey | Code::NoSuchVersion | Code::MethodNotAllowed => {
                StatusCode::NOT_FOUND
            }
            Code::BadDigest | Code::InvalidDigest => StatusCode::UNPROCESSABLE_ENTITY,
            Code::EntityTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            code if code.as_str() == "QuotaExceeded" => StatusCode::PAYLOAD_TOO_LARGE,
            _ => e.status_code().unwrap_or(StatusCode::BAD_REQUEST),
        };
        Self {
            status,
            why: e.message().unwrap_or(e.code().as_str()).to_string(),
            no_container: matches!(e.code(), Code::NoSuchBucket),
        }
    }
}

impl From<Error> for Refusal {
    fn from(e: Error) -> Self {
        S3Error::from(e).into()
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

impl Refusal {
    pub fn answer(&self) -> HttpResponse {
        let reason = self.status.canonical_reason().unwrap_or("Error");
        let text = format!(
            "<html><h1>{}</h1><p>{}</p></html>",
            escaped(reason),
            escaped(&self.why)
        );
        text_answer(self.status, "text/html; charset=UTF-8", text)
    }
}

/// Without a body.
pub fn empty(status: StatusCode) -> HttpResponse {
    let mut answer = HttpResponse::new(Body::empty());
    *answer.status_mut() = status;
    answer
}

pub fn text_answer(status: StatusCode, kind: &'static str, text: String) -> HttpResponse {
    let mut answer = empty(status);
    let text = Bytes::from(text);
    let length = HeaderValue::from(text.len());
    *answer.body_mut() = Body::from(text);
    answer
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    answer.headers_mut().insert(CONTENT_LENGTH, length);
    answer
}

/// A value that cannot be a header's is left out: S3 may have put it.
pub fn set(answer: &mut HttpResponse, name: &str, value: impl AsRef<[u8]>) {
    let name = HeaderName::try_from(name);
    if let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(value.as_ref())) {
        answer.headers_mut().insert(name, value);
    }
}

/// Seconds since 1970, as `X-Timestamp` has them.
pub fn stamp(ms: u64) -> String {
    format!("{}.{:03}00", ms / 1000, ms % 1000)
}

pub fn date(ms: u64) -> String {
    http_date(&seconds(ms)).unwrap_or_default()
}

/// As listings say times.
pub fn iso(ms: u64) -> String {
    let mut text = Vec::new();
    let at = timestamp(ms.min(DATES_END - 1));
    // Writing to memory does not fail.
    let _ = at.format(TimestampFormat::DateTime, &mut text);
    let text = String::from_utf8_lossy(&text).into_owned();
    let whole = text.trim_end_matches('Z');
    match whole.split_once('.') {
        Some((seconds, fraction)) => format!("{seconds}.{fraction:0<6}"),
        None => format!("{whole}.000000"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_swifts() {
        assert_eq!(stamp(1_795_651_200_007), "1795651200.00700");
        assert_eq!(iso(1_795_651_200_120), "2026-11-26T00:00:00.120000");
        assert_eq!(iso(1_795_651_200_000), "2026-11-26T00:00:00.000000");
        assert_eq!(date(1_795_651_200_999), "Thu, 26 Nov 2026 00:00:00 GMT");
    }

    #[test]
    fn errors_have_swifts_statuses() {
        for (e, status) in [
            (Error::NoSuchBucket, 404),
            (Error::Deleted("v".into()), 404),
            (Error::AccessDenied, 403),
            (Error::Locked, 403),
            (Error::BucketNotEmpty, 409),
            (Error::BucketTaken, 409),
            (Error::Precondition, 412),
            (Error::Digest("x"), 422),
            (Error::Quota("user"), 413),
            (Error::TooLarge("x"), 413),
            (Error::Busy("x"), 503),
            (Error::Damaged("x".into()), 500),
        ] {
            assert_eq!(Refusal::from(e.clone()).status.as_u16(), status, "{e}");
        }
        let answer = bad("<b>").answer();
        assert_eq!(answer.status(), 400);
        assert_eq!(answer.headers()[CONTENT_LENGTH], "49");
    }
}
