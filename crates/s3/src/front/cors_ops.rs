//! CORS: rules of buckets, preflights, and what answers to browsers say; also answers that are errors, or a browser would hide
//! them from who asked.

use super::Front;
use super::errors::invalid;
use super::permit::Ask;
use crate::cors::{Allowed, METHODS, allowed, check};
use crate::policy::Action;
use crate::rados::Pool;
use crate::settings::CorsRule;
use hyper::HeaderMap;
use hyper::header::{self, HeaderName, HeaderValue};
use s3s::dto::*;
use s3s::{Body, HttpResponse, S3Error, S3ErrorCode, S3Request, S3Result};

const ORIGIN_MAX: usize = 4096;
/// Names of headers in a preflight, and all of them together.
const NAMES_MAX: usize = 100;
const NAMES_BYTES: usize = 8 << 10;
const VARY: &str = "Origin, Access-Control-Request-Headers, Access-Control-Request-Method";

/// What of a request CORS looks at, before the request goes where it is answered.
#[derive(Debug, Clone)]
pub struct Asked {
    pub bucket: String,
    origin: String,
    method: String,
    /// In lower case; of a preflight.
    headers: Vec<String>,
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

impl Asked {
    /// None: it does not come from a browser's page of another origin.
    pub fn new(bucket: Option<String>, method: &hyper::Method, headers: &HeaderMap) -> Option<Self> {
        let origin = text(headers, &header::ORIGIN).filter(|o| !o.is_empty() && o.len() <= ORIGIN_MAX)?;
        Some(Self {
            bucket: bucket?,
            origin: origin.to_string(),
            method: method.to_string(),
            headers: Vec::new(),
        })
    }

    /// Of an OPTIONS: what will be asked.
    pub fn preflight(bucket: Option<String>, headers: &HeaderMap) -> S3Result<Self> {
        let bad = |what: String| S3Error::with_message(S3ErrorCode::InvalidRequest, what);
        let method = text(headers, &header::ACCESS_CONTROL_REQUEST_METHOD).unwrap_or_default();
        let mut asked = Self::new(bucket, &hyper::Method::OPTIONS, headers)
            .ok_or_else(|| bad("Insufficient information. Origin request header needed.".into()))?;
        if !METHODS.contains(&method) {
            return Err(bad(format!("Invalid Access-Control-Request-Method: {method}")));
        }
        asked.method = method.to_string();
        let named = headers.get_all(header::ACCESS_CONTROL_REQUEST_HEADERS);
        let many = |what| Err(bad(format!("Access-Control-Request-Headers has at most {what}")));
        if named.iter().map(HeaderValue::len).sum::<usize>() > NAMES_BYTES {
            return many(format!("{NAMES_BYTES} bytes"));
        }
        for list in named.iter().map(|v| v.to_str().unwrap_or("?")) {
            let names = list.split(',').map(|n| n.trim().to_ascii_lowercase());
            asked.headers.extend(names.filter(|n| !n.is_empty()));
        }
        if asked.headers.len() > NAMES_MAX {
            return many(format!("{NAMES_MAX} names"));
        }
        Ok(asked)
    }

    fn allowed<'a>(&self, rules: &'a [CorsRule]) -> Option<Allowed<'a>> {
        allowed(rules, &self.origin, &self.method, &self.headers)
    }

    /// What the answer says.
    fn said(&self, allowed: &Allowed<'_>, into: &mut HeaderMap) {
        let mut set = |name: HeaderName, value: String| {
            // All of it was in headers, or was checked when the rules were put.
            if let (false, Ok(value)) = (value.is_empty(), HeaderValue::from_str(&value)) {
                into.insert(name, value);
            }
        };
        let origin = if allowed.any { "*" } else { self.origin.as_str() };
        set(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin.into());
        if !allowed.any {
            set(header::ACCESS_CONTROL_ALLOW_CREDENTIALS, "true".into());
        }
        set(
            header::ACCESS_CONTROL_ALLOW_METHODS,
            allowed.rule.methods.join(", "),
        );
        set(header::ACCESS_CONTROL_ALLOW_HEADERS, self.headers.join(", "));
        set(
            header::ACCESS_CONTROL_EXPOSE_HEADERS,
            allowed.rule.expose.join(", "),
        );
        let age = allowed.rule.max_age.map_or(String::new(), |s| s.to_string());
        set(header::ACCESS_CONTROL_MAX_AGE, age);
    }
}

impl<P: Pool> Front<P> {
    async fn cors_of(&self, asked: &Asked) -> S3Result<Vec<CorsRule>> {
        Ok(self.buckets.known(&asked.bucket).await?.settings.of.cors.clone())
    }

    /// The answer to a preflight, which nobody signs.
    pub async fn preflight(&self, bucket: Option<String>, headers: &HeaderMap) -> S3Result<HttpResponse> {
        let refused = |what: &'static str| {
            let mut e = S3Error::with_message(S3ErrorCode::AccessDenied, format!("CORSResponse: {what}"));
            e.set_status_code(hyper::StatusCode::FORBIDDEN);
            e
        };
        let asked = Asked::preflight(bucket, headers)?;
        let rules = self.cors_of(&asked).await?;
        if rules.is_empty() {
            return Err(refused("CORS is not enabled for this bucket."));
        }
        let allowed = asked.allowed(&rules).ok_or_else(|| {
            refused(
                "This CORS request is not allowed: no rule of the bucket has this origin with this method and these headers.",
            )
        })?;
        let mut answer = HttpResponse::new(Body::empty());
        asked.said(&allowed, answer.headers_mut());
        answer
            .headers_mut()
            .append(header::VARY, HeaderValue::from_static(VARY));
        Ok(answer)
    }

    /// Says in an answer that a page may see it, if it may. Where the rules cannot be read the answer stays hidden.
    pub async fn mark(&self, asked: &Asked, answer: &mut HttpResponse) {
        let rules = self.cors_of(asked).await.unwrap_or_default();
        if !rules.is_empty() {
            // Also for an origin that has no rule: a cache would give its answer to one that has.
            answer
                .headers_mut()
                .append(header::VARY, HeaderValue::from_static(VARY));
        }
        if let Some(allowed) = asked.allowed(&rules) {
            asked.said(&allowed, answer.headers_mut());
        }
    }

    pub async fn set_cors(&self, mut req: S3Request<PutBucketCorsInput>) -> S3Result<()> {
        let given = std::mem::take(&mut req.input.cors_configuration.cors_rules);
        let rules = given.into_iter().map(|r| {
            let age = r.max_age_seconds.map(u32::try_from).transpose();
            Ok(CorsRule {
                id: r.id.unwrap_or_default(),
                origins: r.allowed_origins,
                methods: r.allowed_methods,
                headers: r.allowed_headers.unwrap_or_default(),
                expose: r.expose_headers.unwrap_or_default(),
                max_age: age.map_err(|_| invalid("MaxAgeSeconds is not negative"))?,
            })
        });
        let rules: Vec<CorsRule> = rules.collect::<S3Result<_>>()?;
        let bucket = req.input.bucket.clone();
        let ask = Ask::bucket(Action::PutBucketCORS, &bucket);
        self.permitted(&req, &ask).await?;
        check(&rules)?;
        self.change_settings(&req, ask, |s| s.cors = rules.clone()).await
    }

    pub async fn remove_cors(&self, req: S3Request<DeleteBucketCorsInput>) -> S3Result<()> {
        let ask = Ask::bucket(Action::PutBucketCORS, &req.input.bucket);
        self.change_settings(&req, ask, |s| s.cors.clear()).await
    }

    pub async fn cors(&self, req: S3Request<GetBucketCorsInput>) -> S3Result<GetBucketCorsOutput> {
        let ask = Ask::bucket(Action::GetBucketCORS, &req.input.bucket);
        let known = self.permitted(&req, &ask).await?;
        if known.settings.of.cors.is_empty() {
            return Err(S3Error::with_message(
                S3ErrorCode::NoSuchCORSConfiguration,
                "The CORS configuration does not exist",
            ));
        }
        let list = |of: &[String]| Some(of.to_vec()).filter(|l| !l.is_empty());
        let rule = |r: &CorsRule| CORSRule {
            allowed_headers: list(&r.headers),
            allowed_methods: r.methods.clone(),
            allowed_origins: r.origins.clone(),
            expose_headers: list(&r.expose),
            id: Some(r.id.clone()).filter(|i| !i.is_empty()),
            max_age_seconds: r.max_age.map(|s| s.min(i32::MAX as u32) as i32),
        };
        Ok(GetBucketCorsOutput {
            cors_rules: Some(known.settings.of.cors.iter().map(rule).collect()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preflights_have_a_bound() {
        let asked = |names: String| {
            let mut headers = HeaderMap::new();
            headers.insert(header::ORIGIN, HeaderValue::from_static("https://a.example"));
            headers.insert(
                header::ACCESS_CONTROL_REQUEST_METHOD,
                HeaderValue::from_static("PUT"),
            );
            headers.insert(
                header::ACCESS_CONTROL_REQUEST_HEADERS,
                HeaderValue::from_str(&names).unwrap(),
            );
            Asked::preflight(Some("b".into()), &headers).map(|a| a.headers.len())
        };
        assert_eq!(asked("A,".repeat(NAMES_MAX)).unwrap(), NAMES_MAX);
        assert!(asked("a,".repeat(NAMES_MAX + 1)).is_err());
        assert_eq!(asked("a".repeat(NAMES_BYTES)).unwrap(), 1);
        assert!(asked("a".repeat(NAMES_BYTES + 1)).is_err());
    }
}
