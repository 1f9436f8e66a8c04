//! What is done with a request before the library sees it, and with its answer after: forms taken aside, bodies at a pace, CORS, and what is counted.

use super::access::announced;
use super::caller::{Noted, Notes, Peer};
use super::chunks::Chunks;
use super::cors_ops::Asked;
use super::counted::{Counted, Told};
use super::customer::hide_keys;
use super::hosts::Hosts;
use super::kinds::{kind, place};
use super::logging_ops::Seen;
use super::notification_filters::Aside;
use super::object_ops::length;
use super::pace::Paced;
use super::raw::{Kept, Raw};
use super::service::Library;
use super::signed_form::service_of;
use super::swift::path::{self as swift_path, Target};
use super::texts::{path_decoded, url_decoded};
use super::website_ops::Asked as Browser;
use super::{Front, logging_ops, raw, service};
use crate::meters::{Answered, End};
use crate::rados::Pool;
use crate::usage::Sums;
use hyper::body::Incoming;
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderValue};
use hyper::{Method, StatusCode};
use s3s::{HttpError, HttpResponse, S3Error, S3ErrorCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub type Answer = hyper::Response<Counted<s3s::Body>>;

/// Cheap to clone: each connection has one.
pub struct Entrance<P> {
    service: Library,
    front: Front<P>,
    hosts: Hosts,
    /// Those of websites.
    sites: Hosts,
    /// Otherwise websites and Swift alone are answered.
    s3: bool,
}

impl<P: Clone> Clone for Entrance<P> {
    fn clone(&self) -> Self {
        Self {
            service: self.service.clone(),
            front: self.front.clone(),
            hosts: self.hosts.clone(),
            sites: self.sites.clone(),
            s3: self.s3,
        }
    }
}

type Request = hyper::Request<Incoming>;

/// A POST of a browser's form.
fn is_form<B>(request: &hyper::Request<B>) -> bool {
    const FORM: &[u8] = b"multipart/form-data";
    let types = request.headers().get_all(CONTENT_TYPE);
    let starts = |v: &HeaderValue| {
        let kind = v.as_bytes().trim_ascii_start().get(..FORM.len());
        kind.is_some_and(|k| k.eq_ignore_ascii_case(FORM))
    };
    request.method() == Method::POST && types.iter().any(starts)
}

/// What is read a second time: what removes objects, what keeps them, where browsers are sent, and what is told.
const KEPT: [&str; 9] = [
    "delete",
    "encryption",
    "lifecycle",
    "object-lock",
    "retention",
    "legal-hold",
    "logging",
    "notification",
    "website",
];

/// Of an object, what XML is put for.
const OF_OBJECTS: [&str; 4] = ["acl", "legal-hold", "retention", "tagging"];

/// Whether one of these may be asked for.
fn names_one(query: &str, of: &[&str]) -> bool {
    let names = query
        .split('&')
        .map(|pair| pair.split('=').next().unwrap_or_default());
    names
        .into_iter()
        .filter_map(url_decoded)
        .any(|n| of.contains(&n.as_str()))
}

/// Whether the body is an object's or a part's, which is stored as it comes; the library takes every other whole, as XML.
fn stores(method: &Method, (path, by_host): (&str, bool), query: &str) -> bool {
    let path = path_decoded(path).unwrap_or_default();
    let path = path.strip_prefix('/').unwrap_or(&path);
    let key = match by_host {
        true => path,
        false => path.split_once('/').map_or("", |(_, key)| key),
    };
    method == Method::PUT && !key.is_empty() && !names_one(query, &OF_OBJECTS)
}

fn refused(e: S3Error) -> Result<HttpResponse, HttpError> {
    e.to_http_response().map_err(|e| HttpError::new(Box::new(e)))
}

impl<P: Pool> Entrance<P> {
    /// The names of buckets, and of websites.
    pub fn new(front: Front<P>, [hosts, sites]: [Hosts; 2], s3: bool) -> Self {
        Self {
            service: service::built(front.clone(), hosts.clone()),
            front,
            hosts,
            sites,
            s3,
        }
    }

    /// As the library shall see it.
    fn taken(&self, mut request: Request, came: &Arc<AtomicU64>) -> hyper::Request<s3s::Body> {
        let raw = request.extensions().get::<Raw>().cloned().unwrap_or_default();
        let is_kept = names_one(request.uri().query().unwrap_or_default(), &KEPT);
        if is_kept {
            request.extensions_mut().insert(raw.clone());
        }
        let kind = request.headers().get("x-amz-content-sha256");
        let chunked = kind.is_some_and(|k| k.as_bytes().starts_with(b"STREAMING-"));
        let length = length(None, request.headers());
        request.map(
            |body| match Paced::new(body, self.front.clock.clone()).counted(came) {
                body if is_kept => s3s::Body::http_body(Kept::new(body, raw)),
                body if chunked => s3s::Body::http_body(Chunks::new(body, length)),
                body => s3s::Body::http_body(body),
            },
        )
    }

    /// What of Swift a request is about; None: it is S3's.
    fn swift<B>(&self, request: &hyper::Request<B>) -> Option<Target> {
        self.front.swift.as_ref()?;
        match self.bucket_of_host(request) {
            Some(_) => None,
            None => swift_path::target(request.uri().path()),
        }
    }

    fn bucket_of_host<B>(&self, request: &hyper::Request<B>) -> Option<String> {
        let host = request.headers().get(HOST).and_then(|h| h.to_str().ok())?;
        self.site(request).or_else(|| self.hosts.bucket(host))
    }

    /// The bucket whose website is asked for. Where names are below each other the one that says more counts.
    fn site<B>(&self, request: &hyper::Request<B>) -> Option<String> {
        let host = request.headers().get(HOST).and_then(|h| h.to_str().ok())?;
        let site = self.sites.bucket(host)?;
        let other = self.hosts.bucket(host);
        other.is_none_or(|other| other.len() > site.len()).then_some(site)
    }

    /// The bucket that host or path names.
    fn bucket<B>(&self, request: &hyper::Request<B>) -> Option<String> {
        match self.swift(request) {
            Some(Target::Below(place)) => return place.container,
            Some(_) => return None,
            None => {}
        }
        if let Some(bucket) = self.bucket_of_host(request) {
            return Some(bucket);
        }
        let path = request.uri().path().strip_prefix('/')?;
        let first = path.split('/').next().filter(|b| !b.is_empty());
        path_decoded(first?)
    }

    /// Answers, and counts.
    pub async fn answer(&self, request: Request, peer: Peer) -> Result<Answer, HttpError> {
        let (meters, clock) = (&self.front.meters, &self.front.clock);
        let (active, began) = (meters.begin(), clock.monotonic());
        let (noted, came) = (Noted::default(), Arc::default());
        let preflight = request.method() == Method::OPTIONS;
        // What is around the chunks of a body is not what was brought.
        let most = length(None, request.headers()).unwrap_or(u64::MAX);
        noted.lock().bucket = self.bucket(&request);
        let by_host = self.bucket_of_host(&request).is_some();
        let seen = Seen::of(&request, (peer, by_host), clock);
        let answer = self.answer_to(request, peer, (&noted, &came)).await?;
        let notes = noted.take();
        let how = Answered {
            operation: match preflight {
                true => Some("Preflight".into()),
                false => notes.operation.clone(),
            },
            bucket: notes.bucket.clone(),
            status: answer.status().as_u16(),
            took: clock.monotonic().saturating_sub(began),
            brought: came.load(Ordering::Relaxed).min(most),
        };
        let of = (&self.front.logs, clock);
        let line = logging_ops::told(of, &seen, (&notes, &how), &answer);
        let told = logging_ops::both(self.told(&notes, &how), line);
        let sent = meters.answered(&how, clock.now_ms());
        Ok(answer.map(|body| Counted::new(body, sent, active, told)))
    }

    /// Writes a request down where its answer has ended; None: nobody that is known asked, or nothing is written down.
    fn told(&self, notes: &Notes, how: &Answered) -> Option<Told> {
        let usage = self.front.usage.clone()?;
        let (user, bucket) = place(notes, how.status)?;
        let kind = kind(how.operation.as_deref()?);
        let (brought, good) = (how.brought, how.status < 400);
        Some(Box::new(move |end, sent| {
            let sums = Sums {
                ops: 1,
                successful_ops: u64::from(good && end != End::Broken),
                bytes_sent: sent,
                bytes_received: brought,
            };
            usage.add(&user, &bucket, &kind, sums);
        }))
    }

    /// The answer of a website, of Swift, or of S3.
    async fn ask(
        &self,
        request: Request,
        peer: Peer,
        (noted, came): (&Noted, &Arc<AtomicU64>),
    ) -> Result<HttpResponse, HttpError> {
        if let Some(bucket) = self.site(&request) {
            let asked = Browser::new(request.into_parts().0, bucket, peer.tls);
            return self.front.browse(&asked, &self.service).await;
        }
        if let Some(target) = self.swift(&request) {
            let (parts, body) = request.into_parts();
            let body = Paced::new(body, self.front.clock.clone()).counted(came);
            let of = (parts, s3s::Body::http_body(body));
            return Ok(self.front.swift_answer(target, of, noted, peer).await);
        }
        self.ask_s3(request, (noted, came)).await
    }

    /// Whether it is S3's, and that is closed.
    fn is_closed<B>(&self, request: &hyper::Request<B>) -> bool {
        !self.s3 && self.site(request).is_none() && self.swift(request).is_none()
    }

    /// The answer of a form, or of the library.
    async fn ask_s3(
        &self,
        mut request: Request,
        (noted, came): (&Noted, &Arc<AtomicU64>),
    ) -> Result<HttpResponse, HttpError> {
        let of = service_of(&request).filter(|_| self.bucket_of_host(&request).is_none());
        if let Some(of) = of {
            let (parts, body) = request.into_parts();
            let body = Paced::new(body, self.front.clock.clone()).counted(came);
            let body = s3s::Body::http_body(body);
            return Ok(self.front.of_form(of, (parts, body), noted).await);
        }
        if is_form(&request) {
            let bucket = self.bucket(&request);
            let (parts, body) = request.into_parts();
            let body = Paced::new(body, self.front.clock.clone()).counted(came);
            let posted = self.front.post(parts, body, bucket, noted).await;
            return posted.or_else(refused);
        }
        let by_host = self.bucket_of_host(&request).is_some();
        let (path, query) = (request.uri().path(), request.uri().query().unwrap_or_default());
        // Said before it comes: the library would read up to its limit, and call it an error of ours.
        if announced(request.headers()) > raw::XML_BYTES as u64
            && !stores(request.method(), (path, by_host), query)
        {
            return refused(S3ErrorCode::MaxMessageLengthExceeded.into());
        }
        // A bucket in the host is signed as the path that it is the first of, with its slash.
        if !by_host {
            let (method, uri) = (request.method(), request.uri());
            let slashed = self.front.slashed(method, uri, request.headers()).await;
            *request.uri_mut() = slashed.unwrap_or_else(|| request.uri().clone());
        }
        self.called(request, came).await
    }

    /// The library's answer, or what is to be said in its place.
    async fn called(&self, mut request: Request, came: &Arc<AtomicU64>) -> Result<HttpResponse, HttpError> {
        let aside = Aside::of(&mut request);
        let answer = self.service.call(self.taken(request, came)).await?;
        match aside {
            Some(aside) => self.front.set_aside(aside, answer).await,
            None => Ok(answer),
        }
    }

    async fn answer_to(
        &self,
        mut request: Request,
        peer: Peer,
        (noted, came): (&Noted, &Arc<AtomicU64>),
    ) -> Result<HttpResponse, HttpError> {
        if self.is_closed(&request) {
            return refused(S3ErrorCode::MethodNotAllowed.into());
        }
        if request.method() == Method::OPTIONS {
            let preflight = self.front.preflight(self.bucket(&request), request.headers());
            return preflight.await.or_else(refused);
        }
        hide_keys(request.headers_mut());
        request.extensions_mut().insert(peer);
        request.extensions_mut().insert(noted.clone());
        let reads = request.method() == Method::GET;
        let writes = !reads && request.method() != Method::HEAD;
        let brings = if writes { announced(request.headers()) } else { 0 };
        let asked = Asked::new(self.bucket(&request), request.method(), request.headers());
        let mut answer = self.ask(request, peer, (noted, came)).await?;
        let sent = answer
            .headers()
            .get(CONTENT_LENGTH)
            .and_then(|v| v.to_str().ok()?.parse().ok());
        let payers = std::mem::take(&mut noted.lock().payers);
        if matches!(answer.status(), StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED) {
            self.front.rates.give_back(&payers, writes, brings);
        } else if let Some(sent) = sent.filter(|_| reads) {
            self.front.rates.charge(&payers, false, sent);
        }
        if let Some(asked) = asked {
            self.front.mark(&asked, &mut answer).await;
        }
        Ok(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn which_bodies_are_stored_as_they_come() {
        let put = |path, by_host, query| stores(&Method::PUT, (path, by_host), query);
        assert!(put("/b/k", false, ""));
        assert!(put("/b/k/", false, "partNumber=1&uploadId=acl"));
        assert!(put("/k", true, "X-Amz-Signature=1") && put("/b%2Fk", false, ""));
        assert!(!put("/b", false, "") && !put("/b/", false, "policy") && !put("/", true, ""));
        assert!(!put("/b/k", false, "versionId=1&acl") && !put("/k", true, "legal%2Dhold="));
        assert!(
            !stores(&Method::POST, ("/b/k", false), "uploadId=1")
                && !stores(&Method::POST, ("/b", false), "delete")
        );
    }
}
