//! Whose request it is: a key that was removed is good for nothing from then on, so none is remembered.
//!
//! What changes the meaning of a signed request has to be signed, too: the library checks those headers that the client lists as
//! signed, and does not look for others. A presigned URL goes through other hands, who could add a source to be copied, or an ACL.

use super::Front;
use super::texts::url_decoded;
use crate::rados::Pool;
use hyper::{HeaderMap, Method};
use s3s::access::{S3Access, S3AccessContext};
use s3s::auth::{S3Auth, SecretKey};
use s3s::{S3Error, S3ErrorCode, S3Result};

/// The user of a request whose signature was good.
#[derive(Debug, Clone)]
pub struct Identity {
    pub user: String,
}

impl<P: Pool> Front<P> {
    async fn key_of(&self, access: &str) -> S3Result<crate::accounts::Key> {
        let key = self.accounts.key(access).await?;
        key.ok_or_else(|| {
            S3Error::with_message(S3ErrorCode::InvalidAccessKeyId, "there is no such access key")
        })
    }
}

/// The headers that a request by signature V4 lists as signed, where the library took that list from: the query goes first. None:
/// it was signed otherwise (V2 signs all headers of S3).
fn signed_headers(query: &str, headers: &HeaderMap) -> Option<Vec<String>> {
    let pairs = query
        .split('&')
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .map(|(name, value)| (url_decoded(name), url_decoded(value)));
    let (mut presigned, mut listed) = (false, None);
    for (name, value) in pairs {
        match name.as_deref() {
            Some("X-Amz-Signature") => presigned = true,
            Some("X-Amz-SignedHeaders") => listed = Some(value.unwrap_or_default()),
            _ => {}
        }
    }
    if !presigned {
        let authorization = headers.get(hyper::header::AUTHORIZATION)?;
        let field = |f: &str| Some(f.trim().strip_prefix("SignedHeaders=")?.to_string());
        // The library takes any word for the algorithm's name.
        listed = Some(
            String::from_utf8_lossy(authorization.as_bytes())
                .split(',')
                .find_map(field)?,
        );
    }
    Some(
        listed
            .unwrap_or_default()
            .split(';')
            .map(str::to_string)
            .collect(),
    )
}

/// A header of S3 that was not signed. What is said of the body is no matter of that: the body is held against it.
fn unsigned_header(query: &str, headers: &HeaderMap) -> Option<String> {
    let signed = signed_headers(query, headers)?;
    let names = headers.keys().map(|name| name.as_str());
    let mut unsigned = names
        .filter(|name| name.starts_with("x-amz-") && *name != "x-amz-content-sha256")
        .filter(|name| !signed.iter().any(|s| s == name));
    unsigned.next().map(str::to_string)
}

#[async_trait::async_trait]
impl<P: Pool> S3Auth for Front<P> {
    async fn get_secret_key(&self, access_key: &str) -> S3Result<SecretKey> {
        Ok(self.key_of(access_key).await?.secret.into())
    }
}

#[async_trait::async_trait]
impl<P: Pool> S3Access for Front<P> {
    /// Anybody may ask to read; what is asked for decides. Nobody but users changes anything: refused before a body is read.
    async fn check(&self, cx: &mut S3AccessContext<'_>) -> S3Result<()> {
        let Some(access) = cx.credentials().map(|c| c.access_key.clone()) else {
            return match *cx.method() {
                Method::GET | Method::HEAD => Ok(()),
                _ => Err(crate::Error::AccessDenied.into()),
            };
        };
        if let Some(name) = unsigned_header(cx.uri().query().unwrap_or_default(), cx.headers()) {
            return Err(S3Error::with_message(
                S3ErrorCode::AccessDenied,
                format!("the header {name} was not signed"),
            ));
        }
        let user = self.key_of(&access).await?.user;
        cx.extensions_mut().insert(Identity { user });
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
        let found = |query: &str, of: &[_]| unsigned_header(query, &headers(of));
        let name = Some("x-amz-acl".to_string());
        for query in [
            "X-Amz-SignedHeaders=host&X-Amz-Signature=1",
            "X-Amz-Signature=1&X-Amz-SignedHeaders=host%3Bx-amz-ac",
            "X%2DAmz%2DSignature=1&X%2dAmz-SignedHeaders=host;X-Amz-Acl",
            "X-Amz-Signature=1",
        ] {
            assert_eq!(found(query, &acl), name, "{query}");
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
        let renamed = with("X Credential=a/b,SignedHeaders=host,Signature=1");
        assert_eq!(found("", &renamed), name);
        assert_eq!(found("", &with("AWS a:b")), None);
    }
}
