//! Requests and answers, as far as they are text: fields of forms, cookies, addresses, heads of answers. Pure.
//!
//! Bounds: [`FIELDS_MAX`] fields of a form or query.

use bytes::Bytes;
use form_urlencoded::{Serializer, parse};
use http_body_util::Full;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Response, StatusCode};
use std::net::{IpAddr, SocketAddr};

pub type Answer = Response<Full<Bytes>>;

pub const TEXT: &str = "text/plain; charset=utf-8";
const FIELDS_MAX: usize = 64;

/// Of every answer. Pages have no script and no style in themselves, load nothing from elsewhere and are in no frame.
const HEAD: [(HeaderName, &str); 8] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
         form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    ),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    // None at all would hide from us, too, where a form comes from.
    (header::REFERRER_POLICY, "same-origin"),
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        "same-origin",
    ),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    ),
    (
        HeaderName::from_static("permissions-policy"),
        "camera=(), geolocation=(), microphone=(), usb=()",
    ),
    (header::SERVER, "skep"),
];

/// The fields of a form's body or of a query, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fields(Vec<(String, String)>);

impl Fields {
    pub fn parse(text: &[u8]) -> Self {
        let pairs = parse(text).take(FIELDS_MAX);
        Self(pairs.map(|(k, v)| (k.into_owned(), v.into_owned())).collect())
    }

    #[cfg(test)]
    pub fn of(pairs: &[(&str, &str)]) -> Self {
        Self(
            pairs
                .iter()
                .map(|(k, v)| (k.to_string(), v.to_string()))
                .collect(),
        )
    }

    /// Empty where there is none.
    pub fn get(&self, name: &str) -> &str {
        self.0.iter().find(|(k, _)| k == name).map_or("", |(_, v)| v)
    }

    pub fn all(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(k, v)| (k.as_str(), v.as_str()))
    }
}

/// A path of ours with a query.
pub fn link(path: &str, query: &[(&str, &str)]) -> String {
    match query {
        [] => path.to_string(),
        _ => format!(
            "{path}?{}",
            Serializer::new(String::new()).extend_pairs(query).finish()
        ),
    }
}

/// The value of a cookie.
pub fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let all = headers
        .get_all(header::COOKIE)
        .into_iter()
        .filter_map(|v| v.to_str().ok());
    let mut pairs = all
        .flat_map(|v| v.split(';'))
        .filter_map(|p| p.trim().split_once('='));
    pairs.find(|(n, _)| *n == name).map(|(_, v)| v)
}

/// `host:port` or `host`, without the port and in lower case.
fn host_name(host: &str) -> String {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) && !name.is_empty() => name,
        _ => host,
    };
    name.trim_start_matches('[')
        .trim_end_matches(']')
        .to_ascii_lowercase()
}

/// Whether a browser that names `host` means us. On loopback a page from elsewhere could have its own name point here and read
/// what we answer; elsewhere the certificate says who we are.
pub fn is_ours(host: Option<&str>, listen: SocketAddr, names: &[String]) -> bool {
    let Some(host) = host.filter(|h| !h.is_empty()) else {
        return false;
    };
    if !listen.ip().is_loopback() {
        return true;
    }
    let name = host_name(host);
    let loopback = name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
    loopback || name == "localhost" || names.iter().any(|n| n.eq_ignore_ascii_case(&name))
}

/// Whether a change comes from a page of ours, by what browsers say of that; programs say nothing.
pub fn is_from_us(headers: &HeaderMap, host: &str) -> bool {
    let text = |name: HeaderName| headers.get(name).map(|v| v.to_str().unwrap_or("?"));
    let site = text(HeaderName::from_static("sec-fetch-site"));
    if site.is_some_and(|s| s != "same-origin" && s != "none") {
        return false;
    }
    let origin = text(header::ORIGIN);
    origin.is_none_or(|o| {
        let at = o.strip_prefix("http://").or_else(|| o.strip_prefix("https://"));
        at.is_some_and(|at| at.eq_ignore_ascii_case(host))
    })
}

fn value(text: &str) -> HeaderValue {
    // What is no text of a head is not worth a panic.
    HeaderValue::from_str(text).unwrap_or(HeaderValue::from_static(""))
}

pub fn answer(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut out = Response::new(Full::new(body.into()));
    *out.status_mut() = status;
    for (name, text) in HEAD {
        out.headers_mut().insert(name, HeaderValue::from_static(text));
    }
    put(&mut out, header::CONTENT_TYPE, kind);
    put(&mut out, header::CACHE_CONTROL, "no-store");
    out
}

pub fn put(answer: &mut Answer, name: HeaderName, text: &str) {
    answer.headers_mut().insert(name, value(text));
}

/// Of a panic in a page's task; the role ends with it.
pub fn broken() -> Answer {
    answer(
        StatusCode::INTERNAL_SERVER_ERROR,
        TEXT,
        "The console has failed.\n",
    )
}

/// Where the browser goes next, with GET.
pub fn see_other(to: &str) -> Answer {
    let mut out = answer(StatusCode::SEE_OTHER, TEXT, "");
    put(&mut out, header::LOCATION, to);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_bounded_and_decoded() {
        let fields = Fields::parse(b"name=a%20b%2Fc%3Cx%3E&size=1+G&name=second&bare");
        assert_eq!((fields.get("name"), fields.get("size")), ("a b/c<x>", "1 G"));
        assert_eq!((fields.get("bare"), fields.get("none")), ("", ""));
        assert_eq!(
            Fields::parse("a=1&".repeat(1000).as_bytes()).all().count(),
            FIELDS_MAX
        );
        assert_eq!(
            link("/image", &[("name", "a&b=<c> ü")]),
            "/image?name=a%26b%3D%3Cc%3E+%C3%BC"
        );
    }

    #[test]
    fn hosts_on_loopback() {
        let loopback: SocketAddr = "127.0.0.1:8443".parse().unwrap();
        let names = ["console.test".to_string()];
        let check = |host: Option<&str>, want| assert_eq!(is_ours(host, loopback, &names), want, "{host:?}");
        check(Some("localhost:8443"), true);
        check(Some("127.0.0.1"), true);
        check(Some("127.0.0.1:9"), true);
        check(Some("[::1]:8443"), true);
        check(Some("Console.Test:443"), true);
        check(Some("evil.example:8443"), false);
        check(Some("localhost.evil.example"), false);
        check(Some("10.0.0.1:8443"), false);
        check(Some(""), false);
        check(None, false);
        let out: SocketAddr = "10.0.0.1:8443".parse().unwrap();
        assert!(is_ours(Some("store.example:8443"), out, &[]));
        assert!(!is_ours(None, out, &[]));
    }

    #[test]
    fn changes_come_from_our_pages() {
        let check = |pairs: &[(&'static str, &'static str)], want| {
            let mut headers = HeaderMap::new();
            for (k, v) in pairs {
                headers.insert(*k, HeaderValue::from_static(v));
            }
            assert_eq!(is_from_us(&headers, "localhost:8443"), want, "{pairs:?}");
        };
        check(&[], true);
        check(&[("origin", "http://localhost:8443")], true);
        check(
            &[
                ("origin", "https://localhost:8443"),
                ("sec-fetch-site", "same-origin"),
            ],
            true,
        );
        check(&[("origin", "http://localhost:9999")], false);
        check(&[("origin", "http://evil.example")], false);
        check(&[("origin", "null")], false);
        check(&[("sec-fetch-site", "cross-site")], false);
        check(&[("sec-fetch-site", "same-site")], false);
    }

    #[test]
    fn cookies() {
        let mut headers = HeaderMap::new();
        headers.append(header::COOKIE, HeaderValue::from_static("a=1; skep=abc"));
        headers.append(header::COOKIE, HeaderValue::from_static("b=2"));
        assert_eq!(cookie(&headers, "skep"), Some("abc"));
        assert_eq!(cookie(&headers, "b"), Some("2"));
        assert_eq!(cookie(&headers, "c"), None);
    }

    #[test]
    fn nothing_in_line_may_run() {
        let out = answer(StatusCode::OK, "text/html", "");
        let policy = out.headers()[header::CONTENT_SECURITY_POLICY].to_str().unwrap();
        assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"));
        assert_eq!(out.headers()[header::X_FRAME_OPTIONS], "DENY");
        let bad = see_other("/a\r\nset-cookie: x=y");
        assert_eq!(bad.headers()[header::LOCATION], "");
    }
}
