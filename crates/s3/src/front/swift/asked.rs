//! A request to Swift: what it names, who asks, and the same as a request of S3's, so that what is judged there is judged alike.

use super::answer::{Done, Refusal, bad, denied, refuse, unbuilt};
use super::path::Place;
use super::query::Query;
use crate::front::caller::{Identity, Noted, Peer};
use crate::subusers::Access;
use bytes::{Bytes, BytesMut};
use futures_core::Stream;
use hyper::header::{HeaderMap, HeaderName};
use hyper::{Method, StatusCode, Uri};
use s3s::S3Request;
use s3s::dto::ETagCondition;
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::Pin;

/// Of one header of metadata, as Swift bounds them.
const META_NAME_MAX: usize = 128;
const META_VALUE_MAX: usize = 256;
pub const META_COUNT_MAX: usize = 90;
pub const META_BYTES_MAX: usize = 2048;

/// Who asks.
#[derive(Debug, Clone, Default)]
pub struct Caller {
    pub user: String,
    /// None: a temporary URL, or a user as such.
    pub subuser: Option<String>,
    /// None: all.
    pub access: Option<Access>,
    /// A temporary URL: for the object that it names alone; and where its key is a container's, that container.
    pub by_url: bool,
    pub scope: Option<String>,
}

#[derive(Debug, Clone)]
pub struct Asked {
    pub method: Method,
    pub uri: Uri,
    pub place: Place,
    pub query: Query,
    pub headers: HeaderMap,
    /// None: anybody.
    pub caller: Option<Caller>,
    pub peer: Peer,
    pub noted: Noted,
}

impl Asked {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .get(name)
            .and_then(|v| std::str::from_utf8(v.as_bytes()).ok())
    }

    pub fn has(&self, name: &str) -> bool {
        self.headers.contains_key(name)
    }

    pub fn container(&self) -> &str {
        self.place.container.as_deref().unwrap_or_default()
    }

    pub fn object(&self) -> &str {
        self.place.object.as_deref().unwrap_or_default()
    }

    /// The request as S3's operations take it: with what policies look at, and nothing of S3's own.
    pub fn request<T>(&self, input: T) -> S3Request<T> {
        let mut headers = HeaderMap::new();
        for name in ["referer", "user-agent"] {
            let name = HeaderName::from_static(name);
            headers.extend(self.headers.get(&name).map(|v| (name, v.clone())));
        }
        let mut extensions = hyper::http::Extensions::new();
        extensions.insert(self.peer);
        extensions.insert(self.noted.clone());
        if let Some(caller) = &self.caller {
            extensions.insert(Identity {
                user: caller.user.clone(),
                subuser: caller.subuser.clone(),
                session: None,
            });
        }
        S3Request {
            input,
            method: self.method.clone(),
            uri: self.uri.clone(),
            headers,
            extensions,
            credentials: None,
            region: None,
            service: None,
            trailing_headers: None,
        }
    }

    /// What it is, for whoever counts.
    pub fn is(&self, operation: &str) {
        self.noted.lock().operation = Some(operation.to_string());
    }

    fn access(&self) -> Access {
        self.caller
            .as_ref()
            .and_then(|c| c.access)
            .unwrap_or(Access::Full)
    }

    pub fn demand_read(&self) -> Done<()> {
        self.access().reads().then_some(()).ok_or_else(denied)
    }

    pub fn demand_write(&self) -> Done<()> {
        self.access().writes().then_some(()).ok_or_else(denied)
    }

    /// Who else may what.
    pub fn demand_full(&self) -> Done<()> {
        (self.access() == Access::Full).then_some(()).ok_or_else(denied)
    }

    /// The user whose account it is; refused if it is another's.
    pub fn own_account(&self) -> Done<&str> {
        let caller = self.caller.as_ref().ok_or_else(denied)?;
        let named = self.place.account.as_deref();
        match named.is_none_or(|a| a == caller.user) && !caller.by_url {
            true => Ok(&caller.user),
            false => Err(denied()),
        }
    }

    /// What headers set of metadata with this prefix, and what they remove: names in lower case.
    pub fn meta(&self, of: &str) -> Done<Vec<(String, Option<String>)>> {
        let (sets, removes) = (format!("x-{of}-meta-"), format!("x-remove-{of}-meta-"));
        let mut found = BTreeMap::new();
        for (name, value) in &self.headers {
            if let Some(name) = name.as_str().strip_prefix(&sets) {
                let value =
                    std::str::from_utf8(value.as_bytes()).map_err(|_| bad("Metadata must be valid UTF-8"))?;
                check_meta(name, value)?;
                let value = Some(value.to_string()).filter(|v| !v.is_empty());
                found.insert(name.to_string(), value);
            } else if let Some(name) = name.as_str().strip_prefix(&removes) {
                found.entry(name.to_string()).or_insert(None);
            }
        }
        Ok(found.into_iter().collect())
    }

    /// The bytes that its body has; None: they come in chunks. Refused if it says neither.
    pub fn length(&self) -> Done<Option<i64>> {
        let chunked = self
            .header("transfer-encoding")
            .is_some_and(|t| t.contains("chunked"));
        match self.header("content-length") {
            Some(text) => text
                .parse()
                .map(Some)
                .map_err(|_| bad("Invalid Content-Length header value")),
            None if chunked => Ok(None),
            None => Err(refuse(
                StatusCode::LENGTH_REQUIRED,
                "Missing Content-Length header.",
            )),
        }
    }

    pub fn etags(&self, name: &str) -> Done<Option<ETagCondition>> {
        let Some(text) = self.header(name) else {
            return Ok(None);
        };
        condition(text)
            .map(Some)
            .ok_or_else(|| bad(format!("{name} is one ETag, or *")))
    }

    /// Whether a header says yes.
    pub fn says(&self, name: &str) -> bool {
        let text = self.header(name).unwrap_or_default().trim().to_ascii_lowercase();
        ["true", "1", "yes", "on", "t", "y"].contains(&text.as_str())
    }

    /// Refused if it has a header whose meaning is not built: done without it, something would be less than its owner thinks.
    pub fn refuse_headers(&self, names: &[(&str, &str)]) -> Done<()> {
        for name in self.headers.keys() {
            let found = names.iter().find(|(begins, _)| name.as_str().starts_with(begins));
            if let Some((_, what)) = found {
                return Err(unbuilt(what));
            }
        }
        Ok(())
    }

    pub fn refuse_queries(&self, names: &[&str]) -> Done<()> {
        match names.iter().find(|n| self.query.has(n)) {
            Some(name) => Err(unbuilt(name)),
            None => Ok(()),
        }
    }
}

/// An ETag with quotes or without, as Swift's clients send it, or any.
fn condition(text: &str) -> Option<ETagCondition> {
    let text = text.trim();
    if text == "*" {
        return Some(ETagCondition::Any);
    }
    let plain = text.trim_matches('"');
    let good = !plain.is_empty() && !plain.contains(['"', ',']);
    good.then(|| ETagCondition::ETag(s3s::dto::ETag::Strong(plain.to_string())))
}

fn check_meta(name: &str, value: &str) -> Done<()> {
    match () {
        () if name.is_empty() => Err(bad("Metadata name cannot be empty")),
        () if name.len() > META_NAME_MAX => Err(bad("Metadata name too long: 128 bytes at most")),
        () if value.len() > META_VALUE_MAX => Err(bad("Metadata value longer than 256 bytes")),
        () => Ok(()),
    }
}

/// Changes metadata as a request said, within bounds.
pub fn changed(
    meta: &mut BTreeMap<String, String>,
    changes: &[(String, Option<String>)],
) -> Result<(), crate::Error> {
    for (name, value) in changes {
        match value {
            Some(value) => drop(meta.insert(name.clone(), value.clone())),
            None => drop(meta.remove(name)),
        }
    }
    let bytes: usize = meta.iter().map(|(k, v)| k.len() + v.len()).sum();
    match meta.len() > META_COUNT_MAX || bytes > META_BYTES_MAX {
        true => Err(crate::Error::Invalid(format!(
            "metadata have at most {META_COUNT_MAX} names, and {META_BYTES_MAX} bytes together"
        ))),
        false => Ok(()),
    }
}

/// A body that has at most so many bytes.
pub async fn collected(mut body: s3s::Body, max: usize) -> Done<Bytes> {
    let mut all = BytesMut::new();
    while let Some(chunk) = poll_fn(|cx| Pin::new(&mut body).poll_next(cx)).await {
        let chunk = chunk.map_err(|e| Refusal::from(crate::Error::Body(e.to_string())))?;
        if all.len() + chunk.len() > max {
            return Err(refuse(
                StatusCode::PAYLOAD_TOO_LARGE,
                format!("at most {max} bytes"),
            ));
        }
        all.extend_from_slice(&chunk);
    }
    Ok(all.freeze())
}

/// Headers of one name, for tests of others.
#[cfg(test)]
pub fn headers(of: &[(&'static str, &str)]) -> HeaderMap {
    let pair = |(k, v): &(&'static str, &str)| (HeaderName::from_static(k), v.parse().unwrap());
    of.iter().map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(of: &[(&'static str, &str)]) -> Asked {
        Asked {
            method: Method::PUT,
            uri: Uri::from_static("/"),
            place: Place::default(),
            query: Query::default(),
            headers: headers(of),
            caller: None,
            peer: Peer {
                ip: [127, 0, 0, 1].into(),
                tls: false,
            },
            noted: Noted::default(),
        }
    }

    #[test]
    fn metadata_are_set_and_removed() {
        let asked = asked(&[
            ("x-container-meta-a", "1"),
            ("x-container-meta-b", ""),
            ("x-remove-container-meta-c", "x"),
            ("x-remove-container-meta-a", "x"),
            ("x-object-meta-d", "1"),
        ]);
        let changes = asked.meta("container").unwrap();
        let mut meta = BTreeMap::from([("b".into(), "2".into()), ("c".into(), "3".into())]);
        changed(&mut meta, &changes).unwrap();
        assert_eq!(meta, BTreeMap::from([("a".into(), "1".into())]));
        let large: Vec<_> = (0..9).map(|n| (n.to_string(), Some("x".repeat(256)))).collect();
        assert!(changed(&mut meta, &large).is_err());
        let many: Vec<_> = (0..91).map(|n| (n.to_string(), Some("x".into()))).collect();
        assert!(changed(&mut meta, &many).is_err());
    }

    #[test]
    fn metadata_have_bounds() {
        let long = "x".repeat(257);
        assert!(asked(&[("x-object-meta-a", &long)]).meta("object").is_err());
        assert!(asked(&[("x-object-meta-", "a")]).meta("object").is_err());
    }

    #[test]
    fn a_body_says_its_length_or_comes_in_chunks() {
        assert_eq!(asked(&[("content-length", "5")]).length().unwrap(), Some(5));
        assert_eq!(asked(&[("transfer-encoding", "chunked")]).length().unwrap(), None);
        assert_eq!(asked(&[]).length().unwrap_err().status, 411);
        assert_eq!(
            asked(&[("content-length", "x")]).length().unwrap_err().status,
            400
        );
    }

    #[test]
    fn who_is_nobody_has_no_account() {
        let mut asked = asked(&[]);
        assert!(asked.own_account().is_err());
        let caller = Caller {
            user: "a".into(),
            access: Some(Access::Read),
            ..Caller::default()
        };
        asked.caller = Some(caller.clone());
        assert_eq!(asked.own_account().unwrap(), "a");
        assert!(asked.demand_read().is_ok() && asked.demand_write().is_err() && asked.demand_full().is_err());
        asked.place.account = Some("b".into());
        assert!(asked.own_account().is_err());
        asked.place.account = Some("a".into());
        asked.caller = Some(Caller {
            by_url: true,
            ..caller
        });
        assert!(asked.own_account().is_err());
    }
}
