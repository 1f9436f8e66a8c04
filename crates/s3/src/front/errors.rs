//! S3's codes of our errors: one table.

use super::times::{http_date, seconds};
use crate::Error;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use s3s::{S3Error, S3ErrorCode};

impl From<Error> for S3Error {
    fn from(e: Error) -> Self {
        use S3ErrorCode as Code;
        let code = match &e {
            Error::NoSuchBucket => Code::NoSuchBucket,
            Error::NoSuchKey | Error::Deleted(_) => Code::NoSuchKey,
            Error::NoSuchVersion => Code::NoSuchVersion,
            Error::IsMarker(..) => Code::MethodNotAllowed,
            Error::NoSuchUpload => Code::NoSuchUpload,
            Error::BucketTaken => Code::BucketAlreadyExists,
            Error::BucketYours => Code::BucketAlreadyOwnedByYou,
            Error::BucketNotEmpty => Code::BucketNotEmpty,
            Error::NoSuchUser | Error::NoSuchAccessKey => Code::InvalidAccessKeyId,
            Error::AccessDenied | Error::Locked => Code::AccessDenied,
            Error::Quota(_) => Code::Custom("QuotaExceeded".into()),
            Error::Precondition => Code::PreconditionFailed,
            Error::Conflict(_) => Code::OperationAborted,
            Error::GivenUp => Code::RequestTimeout,
            // STS and IAM, which alone ask about roles, have codes of their own for it.
            Error::NoSuchRole
            | Error::RoleExists
            | Error::RoleNameHeld
            | Error::RoleInUse
            | Error::NoSuchRolePolicy => Code::InvalidRequest,
            Error::UserExists | Error::UserHasBuckets(_) | Error::Invalid(_) => Code::InvalidArgument,
            Error::Digest(_) => Code::BadDigest,
            Error::TooLarge(_) => Code::EntityTooLarge,
            Error::Body(what) if what.contains("SignatureMismatch") => Code::SignatureDoesNotMatch,
            Error::Body(what) if what.contains("Sha256Mismatch") => Code::BadDigest,
            Error::Body(_) => Code::IncompleteBody,
            Error::InvalidPart => Code::InvalidPart,
            Error::PartOrder => Code::InvalidPartOrder,
            Error::PartTooSmall => Code::EntityTooSmall,
            Error::Busy(_) => Code::SlowDown,
            Error::Rados(client::Error::TimedOut | client::Error::Busy | client::Error::Closed) => {
                Code::SlowDown
            }
            Error::Damaged(_) | Error::Rados(_) => Code::InternalError,
        };
        match code {
            Code::InternalError => {
                tracing::error!("s3: {e}");
                S3Error::with_message(code, "the store cannot do this now; its log says why")
            }
            Code::SlowDown if !matches!(e, Error::Busy(_)) => {
                S3Error::with_message(code, "the store does not answer in time")
            }
            _ => {
                let mut error = S3Error::with_message(code, e.to_string());
                if let Error::Quota(_) = &e {
                    // A code that AWS has not, as radosgw answers it.
                    error.set_status_code(hyper::StatusCode::FORBIDDEN);
                }
                if let Error::Deleted(id) | Error::IsMarker(id, _) = &e {
                    error.set_headers(of_marker(id, &e));
                }
                error
            }
        }
    }
}

/// What is said of a delete marker in place of an object.
fn of_marker(id: &str, e: &Error) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert("x-amz-delete-marker", HeaderValue::from_static("true"));
    headers.extend(
        id.parse()
            .ok()
            .map(|id| (HeaderName::from_static("x-amz-version-id"), id)),
    );
    if let Error::IsMarker(_, at) = e {
        headers.insert(hyper::header::ALLOW, HeaderValue::from_static("DELETE"));
        let at = http_date(&seconds(*at)).and_then(|d| d.parse().ok());
        headers.extend(at.map(|at| (hyper::header::LAST_MODIFIED, at)));
    }
    headers
}

/// What is not built, in a sentence.
pub fn not_built(what: &str) -> S3Error {
    S3Error::with_message(S3ErrorCode::NotImplemented, format!("{what}: not built yet"))
}

pub fn coded(code: S3ErrorCode, what: impl Into<String>) -> S3Error {
    S3Error::with_message(code, what.into())
}

pub fn invalid(what: impl Into<String>) -> S3Error {
    Error::Invalid(what.into()).into()
}
