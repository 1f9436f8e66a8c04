//! Websites of buckets: how they are set, and how browsers get them.
//!
//! A request to a host below a website's domain is asked of the library as an anonymous GET or HEAD of an object by its path: so rights, ranges and
//! conditions are those of any other. What it brings along of a signature is not looked at.

use super::Front;
use super::errors::{coded, invalid};
use super::permit::Ask;
use super::raw::{self, Leaf};
use super::service::Library;
use super::texts::{Names, path_decoded};
use crate::policy::Action;
use crate::rados::Pool;
use crate::record::REDIRECT;
use crate::website::{Redirect, Route, Website};
use hyper::header::{CONTENT_TYPE, HOST, HeaderMap, HeaderValue, LOCATION};
use hyper::http::Extensions;
use hyper::http::request::Parts;
use hyper::{Method, StatusCode, Uri};
use s3s::dto::{
    Condition, DeleteBucketWebsiteInput, ErrorDocument, GetBucketWebsiteInput, GetBucketWebsiteOutput,
    IndexDocument, Protocol, PutBucketWebsiteInput, Redirect as GivenRedirect, RedirectAllRequestsTo,
    RoutingRule, WebsiteConfiguration,
};
use s3s::{HttpError, HttpResponse, S3Error, S3ErrorCode, S3Request, S3Result};

/// As AWS has it.
const ROUTES_MAX: usize = 50;
const TEXT_MAX: usize = 1024;
/// What of a browser's request is asked of the library.
const HEADERS: [&str; 8] = [
    "range",
    "if-match",
    "if-none-match",
    "if-modified-since",
    "if-unmodified-since",
    "origin",
    "referer",
    "user-agent",
];
const LEAVES: [(&str, Leaf); 9] = [
    ("Suffix", Leaf::Text),
    ("Key", Leaf::Text),
    ("HostName", Leaf::Text),
    ("Protocol", Leaf::Text),
    ("KeyPrefixEquals", Leaf::Text),
    ("HttpErrorCodeReturnedEquals", Leaf::Number),
    ("HttpRedirectCode", Leaf::Number),
    ("ReplaceKeyPrefixWith", Leaf::Text),
    ("ReplaceKeyWith", Leaf::Text),
];

fn malformed(why: &str) -> S3Error {
    coded(S3ErrorCode::MalformedXML, why)
}

/// A text that can be part of a header of an answer.
fn text(given: Option<String>) -> S3Result<Option<String>> {
    match given {
        Some(t) if t.len() > TEXT_MAX || t.chars().any(char::is_control) => Err(invalid(
            "a text of a website has at most 1024 bytes, and no control characters",
        )),
        other => Ok(other),
    }
}

fn host(given: Option<String>) -> S3Result<Option<String>> {
    let good = |b: u8| b.is_ascii_alphanumeric() || b"-._:[]".contains(&b);
    match text(given)? {
        Some(h) if h.is_empty() || !h.bytes().all(good) => {
            Err(invalid("a HostName is the name of a host, and a port"))
        }
        other => Ok(other),
    }
}

fn protocol(given: Option<&Protocol>) -> S3Result<Option<String>> {
    match given.map(Protocol::as_str) {
        None => Ok(None),
        Some(p @ ("http" | "https")) => Ok(Some(p.to_string())),
        Some(_) => Err(malformed("a Protocol is http or https")),
    }
}

fn code(given: Option<&String>, within: std::ops::RangeInclusive<u32>) -> S3Result<Option<u32>> {
    let Some(given) = given else { return Ok(None) };
    let code = given.parse().ok().filter(|c| within.contains(c));
    code.map(Some).ok_or_else(|| {
        invalid(format!(
            "a code from {} to {} is wanted",
            within.start(),
            within.end()
        ))
    })
}

const MOVED: u32 = 301;

fn redirect(given: GivenRedirect) -> S3Result<Redirect> {
    if given.replace_key_with.is_some() && given.replace_key_prefix_with.is_some() {
        return Err(malformed("ReplaceKeyWith and ReplaceKeyPrefixWith at once"));
    }
    if given == GivenRedirect::default() {
        return Err(malformed("a Redirect that says nothing"));
    }
    Ok(Redirect {
        host: host(given.host_name)?,
        protocol: protocol(given.protocol.as_ref())?,
        key: text(given.replace_key_with)?,
        prefix: text(given.replace_key_prefix_with)?,
        code: code(given.http_redirect_code.as_ref(), 301..=308)?.unwrap_or(MOVED),
    })
}

fn route(given: RoutingRule) -> S3Result<Route> {
    let condition = given.condition.unwrap_or_default();
    Ok(Route {
        prefix: text(condition.key_prefix_equals)?,
        status: code(condition.http_error_code_returned_equals.as_ref(), 400..=599)?,
        to: redirect(given.redirect)?,
    })
}

fn website(given: WebsiteConfiguration) -> S3Result<Website> {
    let routes = given.routing_rules.unwrap_or_default();
    if let Some(all) = given.redirect_all_requests_to {
        if given.index_document.is_some() || given.error_document.is_some() || !routes.is_empty() {
            return Err(malformed("RedirectAllRequestsTo is there alone"));
        }
        let host = host(Some(all.host_name))?;
        return Ok(Website {
            all_to: Some(Redirect {
                host,
                protocol: protocol(all.protocol.as_ref())?,
                code: MOVED,
                ..Redirect::default()
            }),
            ..Website::default()
        });
    }
    let index = given.index_document.map(|d| d.suffix);
    let index = text(index)?.filter(|i| !i.is_empty() && !i.contains('/'));
    let index = index.ok_or_else(|| invalid("The IndexDocument Suffix is not well formed"))?;
    let error = text(given.error_document.map(|d| d.key))?;
    if error.as_ref().is_some_and(String::is_empty) {
        return Err(invalid("The ErrorDocument Key is not well formed"));
    }
    if routes.len() > ROUTES_MAX {
        return Err(invalid("a website has at most 50 routing rules"));
    }
    Ok(Website {
        index,
        error: error.unwrap_or_default(),
        all_to: None,
        routes: routes.into_iter().map(route).collect::<S3Result<_>>()?,
    })
}

fn said(site: &Website) -> GetBucketWebsiteOutput {
    let protocol = |p: &Option<String>| p.clone().map(Protocol::from);
    let rule = |route: &Route| RoutingRule {
        condition: (route.prefix.is_some() || route.status.is_some()).then(|| Condition {
            http_error_code_returned_equals: route.status.map(|s| s.to_string()),
            key_prefix_equals: route.prefix.clone(),
        }),
        redirect: GivenRedirect {
            host_name: route.to.host.clone(),
            http_redirect_code: Some(route.to.code.to_string()).filter(|_| route.to.code != MOVED),
            protocol: protocol(&route.to.protocol),
            replace_key_prefix_with: route.to.prefix.clone(),
            replace_key_with: route.to.key.clone(),
        },
    };
    GetBucketWebsiteOutput {
        error_document: Some(site.error.clone())
            .filter(|k| !k.is_empty())
            .map(|key| ErrorDocument { key }),
        index_document: Some(site.index.clone())
            .filter(|s| !s.is_empty())
            .map(|suffix| IndexDocument { suffix }),
        redirect_all_requests_to: site.all_to.as_ref().map(|all| RedirectAllRequestsTo {
            host_name: all.host.clone().unwrap_or_default(),
            protocol: protocol(&all.protocol),
        }),
        routing_rules: Some(site.routes.iter().map(rule).collect()).filter(|r: &Vec<_>| !r.is_empty()),
    }
}

/// What a browser is shown where a bucket has no page for it.
fn page(status: StatusCode, code: &str, what: &str) -> HttpResponse {
    let text = format!(
        "<html>\n<head><title>{status}</title></head>\n<body>\n<h1>{status}</h1>\n<ul>\n<li>Code: {code}</li>\n<li>Message: {what}</li>\n</ul>\n</body>\n</html>\n"
    );
    let mut answer = HttpResponse::new(s3s::Body::from(text));
    *answer.status_mut() = status;
    answer
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    answer
}

fn gone_to(to: &str, status: u32) -> HttpResponse {
    let status = u16::try_from(status)
        .ok()
        .and_then(|s| StatusCode::from_u16(s).ok());
    let mut answer = HttpResponse::new(s3s::Body::empty());
    *answer.status_mut() = status.unwrap_or(StatusCode::MOVED_PERMANENTLY);
    match HeaderValue::try_from(to) {
        Ok(to) => drop(answer.headers_mut().insert(LOCATION, to)),
        Err(_) => {
            return page(
                StatusCode::BAD_REQUEST,
                "InvalidRequest",
                "the path cannot be sent elsewhere",
            );
        }
    }
    answer
}

/// Elsewhere, if the object that was found says so.
fn redirected(answer: &HttpResponse) -> Option<HttpResponse> {
    let to = answer
        .headers()
        .get(REDIRECT)
        .filter(|_| answer.status().is_success())?;
    Some(gone_to(to.to_str().ok()?, MOVED))
}

/// A path of the same host, also of a key that begins with a slash: two would begin the name of another host.
fn own_path(key: &str) -> String {
    match key.strip_prefix('/') {
        Some(rest) => format!("/%2F{}", Names::url().write(rest)),
        None => format!("/{}", Names::url().write(key)),
    }
}

/// What a browser asks for.
pub(super) struct Asked {
    method: Method,
    headers: HeaderMap,
    extensions: Extensions,
    path: String,
    bucket: String,
    tls: bool,
}

impl Asked {
    pub fn new(parts: Parts, bucket: String, tls: bool) -> Self {
        Self {
            path: parts.uri.path().to_string(),
            method: parts.method,
            headers: parts.headers,
            extensions: parts.extensions,
            bucket,
            tls,
        }
    }

    /// None: its path is not URL encoded.
    fn key(&self) -> Option<String> {
        path_decoded(self.path.strip_prefix('/').unwrap_or(&self.path))
    }

    fn elsewhere(&self, to: &Redirect, path: &str, prefix: Option<&str>) -> HttpResponse {
        let own = self.headers.get(HOST).and_then(|h| h.to_str().ok());
        let own = own.unwrap_or_default();
        let host = to.host.as_deref().unwrap_or(own);
        let protocol = to.protocol.as_deref();
        let protocol = protocol.unwrap_or(if self.tls { "https" } else { "http" });
        let key = Names::url().write(&to.key(path, prefix));
        gone_to(&format!("{protocol}://{host}/{key}"), to.code)
    }

    /// The answer of the library for an object, as whoever has no key gets it.
    async fn get(&self, service: &Library, key: &str, conditions: bool) -> Result<HttpResponse, HttpError> {
        self.ask(service, (&self.method, key), conditions).await
    }

    async fn ask(
        &self,
        service: &Library,
        (method, key): (&Method, &str),
        conditions: bool,
    ) -> Result<HttpResponse, HttpError> {
        let mut request = hyper::Request::new(s3s::Body::empty());
        *request.method_mut() = method.clone();
        let path = format!("/{}/{}", self.bucket, Names::url().write(key));
        *request.uri_mut() = path.parse::<Uri>().unwrap_or_else(|_| Uri::from_static("/"));
        *request.extensions_mut() = self.extensions.clone();
        // An address: no bucket is below it.
        request
            .headers_mut()
            .insert(HOST, HeaderValue::from_static("127.0.0.1"));
        for name in HEADERS {
            let conditional = name == "range" || name.starts_with("if-");
            if let Some(value) = self.headers.get(name).filter(|_| conditions || !conditional) {
                request.headers_mut().insert(name, value.clone());
            }
        }
        service.call(request).await
    }
}

impl<P: Pool> Front<P> {
    pub async fn set_website(&self, mut req: S3Request<PutBucketWebsiteInput>) -> S3Result<()> {
        let given = std::mem::take(&mut req.input.website_configuration);
        let bucket = req.input.bucket.clone();
        let ask = Ask::bucket(Action::PutBucketWebsite, &bucket);
        self.permitted(&req, &ask).await?;
        raw::check_request(&req, &LEAVES)?;
        let site = website(given)?;
        self.change_settings(&req, ask, |s| s.website = Some(site.clone()))
            .await
    }

    pub async fn remove_website(&self, req: S3Request<DeleteBucketWebsiteInput>) -> S3Result<()> {
        let ask = Ask::bucket(Action::DeleteBucketWebsite, &req.input.bucket);
        self.change_settings(&req, ask, |s| s.website = None).await
    }

    pub async fn website(&self, req: S3Request<GetBucketWebsiteInput>) -> S3Result<GetBucketWebsiteOutput> {
        let ask = Ask::bucket(Action::GetBucketWebsite, &req.input.bucket);
        let known = self.permitted(&req, &ask).await?;
        let site = known.settings.of.website.as_ref();
        site.map(said).ok_or_else(|| {
            coded(
                S3ErrorCode::NoSuchWebsiteConfiguration,
                "The specified bucket does not have a website configuration",
            )
        })
    }

    /// What a browser gets of a bucket's website.
    pub(super) async fn browse(&self, asked: &Asked, service: &Library) -> Result<HttpResponse, HttpError> {
        let answer = self.page_for(asked, service).await?;
        Ok(
            match asked.method == Method::HEAD && answer.status().is_client_error() {
                // Its length goes, too: there is no body.
                true => answer.map(|_| s3s::Body::empty()),
                false => answer,
            },
        )
    }

    async fn page_for(&self, asked: &Asked, service: &Library) -> Result<HttpResponse, HttpError> {
        if asked.method != Method::GET && asked.method != Method::HEAD {
            return Ok(page(
                StatusCode::METHOD_NOT_ALLOWED,
                "MethodNotAllowed",
                "The specified method is not allowed against this resource.",
            ));
        }
        let site = match self.buckets.known(&asked.bucket).await {
            Ok(known) => known.settings.of.website.clone(),
            Err(crate::Error::NoSuchBucket) => {
                return Ok(page(
                    StatusCode::NOT_FOUND,
                    "NoSuchBucket",
                    "The specified bucket does not exist",
                ));
            }
            Err(e) => {
                tracing::warn!("s3: a website's bucket: {e}");
                return Ok(page(
                    StatusCode::SERVICE_UNAVAILABLE,
                    "SlowDown",
                    "Please try again.",
                ));
            }
        };
        let Some(site) = site else {
            return Ok(page(
                StatusCode::NOT_FOUND,
                "NoSuchWebsiteConfiguration",
                "The specified bucket does not have a website configuration",
            ));
        };
        let Some(path) = asked.key() else {
            return Ok(page(
                StatusCode::BAD_REQUEST,
                "InvalidURI",
                "The path cannot be read.",
            ));
        };
        if let Some(all) = &site.all_to {
            return Ok(asked.elsewhere(all, &path, None));
        }
        if let Some(route) = site.route(&path, None) {
            return Ok(asked.elsewhere(&route.to, &path, route.prefix.as_deref()));
        }
        let document = site.document(&path);
        let answer = asked.get(service, &document, true).await?;
        if let Some(to) = redirected(&answer) {
            return Ok(to);
        }
        let status = answer.status();
        if !status.is_client_error() && !status.is_server_error() || status == StatusCode::PRECONDITION_FAILED
        {
            return Ok(answer);
        }
        self.failed(asked, service, (&site, &path), status).await
    }

    async fn failed(
        &self,
        asked: &Asked,
        service: &Library,
        (site, path): (&Website, &str),
        status: StatusCode,
    ) -> Result<HttpResponse, HttpError> {
        if status == StatusCode::NOT_FOUND && !path.is_empty() && !path.ends_with('/') {
            // A folder that was asked for without its slash.
            let folder = format!("{path}/");
            let index = site.document(&folder);
            let found = asked.ask(service, (&Method::HEAD, &index), false).await?;
            if found.status().is_success() {
                return Ok(gone_to(&own_path(&folder), 302));
            }
        }
        if let Some(route) = site.route(path, Some(u32::from(status.as_u16()))) {
            return Ok(asked.elsewhere(&route.to, path, route.prefix.as_deref()));
        }
        if !site.error.is_empty() && status.is_client_error() {
            let mut answer = asked.get(service, &site.error, false).await?;
            if answer.status().is_success() {
                *answer.status_mut() = status;
                return Ok(answer);
            }
        }
        let (code, what) = match status {
            StatusCode::NOT_FOUND => ("NoSuchKey", "The specified key does not exist."),
            StatusCode::FORBIDDEN => ("AccessDenied", "Access Denied"),
            StatusCode::RANGE_NOT_SATISFIABLE => ("InvalidRange", "The requested range is not satisfiable"),
            s if s.is_server_error() => ("SlowDown", "Please try again."),
            _ => ("InvalidRequest", "The request cannot be answered."),
        };
        Ok(page(status, code, what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_on_the_same_host() {
        for (key, path) in [("a b/", "/a%20b/"), ("/evil.test/", "/%2Fevil.test/")] {
            assert_eq!(own_path(key), path);
            assert_eq!(path_decoded(&path[1..]).as_deref(), Some(key));
        }
    }

    #[test]
    fn texts_that_would_end_a_header_are_refused() {
        let to = |host: &str, key: &str| {
            let given = GivenRedirect {
                host_name: Some(host.into()),
                replace_key_with: Some(key.into()),
                ..GivenRedirect::default()
            };
            redirect(given).is_ok()
        };
        assert!(to("a.test:80", "k"));
        for (host, key) in [("a/b", "k"), ("", "k"), ("a", "k\r\nX: y"), ("a b", "k")] {
            assert!(!to(host, key), "{host} {key}");
        }
        let long = GivenRedirect {
            replace_key_with: Some("x".repeat(TEXT_MAX + 1)),
            ..GivenRedirect::default()
        };
        assert!(redirect(long).is_err());
    }
}
