//! Temporary URLs: what their signature is of, and whether a key made it.
//!
//! ```text
//! HMAC( METHOD \n EXPIRES \n PATH )            PATH: /v1/AUTH_account/container/object
//! HMAC( METHOD \n EXPIRES \n prefix:PATH )     up to temp_url_prefix of the object's name
//! ```
//!
//! Signatures are of SHA-1, SHA-256 or SHA-512, in hex by their length, or as `sha256:BASE64`.

use super::query::Query;
use crate::front::texts::epoch_seconds;
use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use hyper::Method;
use s3s::dto::{Timestamp, TimestampFormat};

const ALGORITHMS: [(&str, usize, hmac::Algorithm); 3] = [
    ("sha1", 20, hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY),
    ("sha256", 32, hmac::HMAC_SHA256),
    ("sha512", 64, hmac::HMAC_SHA512),
];

/// What a URL says.
#[derive(Debug)]
pub struct TempUrl {
    algorithm: hmac::Algorithm,
    signature: Vec<u8>,
    expires: u64,
    prefix: Option<String>,
}

/// Names in the query that make a URL one of these.
pub fn is_one(query: &Query) -> bool {
    query.has("temp_url_sig") || query.has("temp_url_expires")
}

fn signature(text: &str) -> Option<(hmac::Algorithm, Vec<u8>)> {
    let sized = |bytes: Vec<u8>, name: Option<&str>| {
        let fits = |(of, n, _): &&(&str, usize, _)| *n == bytes.len() && name.is_none_or(|name| name == *of);
        let algorithm = ALGORITHMS.iter().find(fits)?.2;
        Some((algorithm, bytes))
    };
    match text.split_once(':') {
        None => sized(hex::decode(text).ok()?, None),
        Some((name, coded)) => {
            let coded = coded.trim_end_matches('=').replace('+', "-").replace('/', "_");
            let bytes = URL_SAFE_NO_PAD
                .decode(&coded)
                .or_else(|_| STANDARD_NO_PAD.decode(&coded));
            sized(bytes.ok()?, Some(name))
        }
    }
}

/// Seconds since 1970, or a time of ISO 8601 in UTC.
fn expires(text: &str) -> Option<u64> {
    if let Ok(seconds) = text.parse() {
        return Some(seconds);
    }
    let padded = match text.len() {
        10 => format!("{text}T00:00:00Z"),
        19 => format!("{text}Z"),
        _ => text.to_string(),
    };
    epoch_seconds(&Timestamp::parse(TimestampFormat::DateTime, &padded).ok()?)
}

impl TempUrl {
    /// An error: it is none that is good for anything.
    pub fn parse(query: &Query) -> Result<Self, &'static str> {
        if query.has("temp_url_ip_range") {
            return Err("temp_url_ip_range is not built");
        }
        let said = |name: &str| query.said(name);
        let (algorithm, signature) = said("temp_url_sig")
            .and_then(signature)
            .ok_or("Temp URL invalid")?;
        Ok(Self {
            algorithm,
            signature,
            expires: said("temp_url_expires")
                .and_then(expires)
                .ok_or("Temp URL invalid")?,
            prefix: query.get("temp_url_prefix").map(str::to_string),
        })
    }

    /// Whether one of these keys signed it for this method and path, and it is in time. `path` is decoded, up to the object, whose name is apart.
    pub fn is_good<'a>(
        &self,
        keys: impl Iterator<Item = &'a str>,
        method: &Method,
        (path, object): (&str, &str),
        now: u64,
    ) -> bool {
        if now >= self.expires
            || self
                .prefix
                .as_ref()
                .is_some_and(|p| !object.starts_with(p.as_str()))
        {
            return false;
        }
        let methods: &[&str] = match *method {
            Method::GET => &["GET"],
            Method::HEAD => &["HEAD", "GET", "PUT", "POST"],
            Method::PUT => &["PUT"],
            Method::POST => &["POST"],
            Method::DELETE => &["DELETE"],
            _ => &[],
        };
        let short = path.strip_prefix("/swift").unwrap_or(path);
        let mut good = false;
        for key in keys.filter(|k| !k.is_empty()) {
            let key = hmac::Key::new(self.algorithm, key.as_bytes());
            for method in methods {
                for path in [path, short] {
                    let text = match &self.prefix {
                        None => format!("{method}\n{}\n{path}{object}", self.expires),
                        Some(prefix) => format!("{method}\n{}\nprefix:{path}{prefix}", self.expires),
                    };
                    good |= hmac::verify(&key, text.as_bytes(), &self.signature).is_ok();
                }
            }
        }
        good
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: (&str, &str) = ("/swift/v1/AUTH_a/c/", "o/p");

    fn signed(algorithm: hmac::Algorithm, key: &str, text: &str) -> String {
        let key = hmac::Key::new(algorithm, key.as_bytes());
        hex::encode(hmac::sign(&key, text.as_bytes()))
    }

    fn good(query: &str, method: &Method, now: u64) -> bool {
        let query = Query::parse(query).unwrap();
        let url = TempUrl::parse(&query);
        url.is_ok_and(|u| u.is_good(["", "key", "old"].into_iter(), method, PATH, now))
    }

    #[test]
    fn signatures_hold_for_method_path_and_time() {
        for (_, _, algorithm) in ALGORITHMS {
            for path in ["/swift/v1/AUTH_a/c/o/p", "/v1/AUTH_a/c/o/p"] {
                let sig = signed(algorithm, "old", &format!("GET\n1000\n{path}"));
                let url = format!("temp_url_sig={sig}&temp_url_expires=1000");
                assert!(good(&url, &Method::GET, 999) && good(&url, &Method::HEAD, 999));
                assert!(!good(&url, &Method::GET, 1000) && !good(&url, &Method::PUT, 999));
                let later = format!("temp_url_sig={sig}&temp_url_expires=2000");
                assert!(!good(&later, &Method::GET, 999));
            }
        }
        for (key, text) in [
            ("other", "GET\n1000\n/v1/AUTH_a/c/o/p"),
            ("", "GET\n1000\n/v1/AUTH_a/c/o/p"),
            ("key", "GET\n1000\n/v1/AUTH_b/c/o/p"),
            ("key", "GET\n1000\n/v1/AUTH_a/c/o"),
        ] {
            let sig = signed(hmac::HMAC_SHA256, key, text);
            assert!(!good(
                &format!("temp_url_sig={sig}&temp_url_expires=1000"),
                &Method::GET,
                9
            ));
        }
    }

    #[test]
    fn prefixes_times_and_forms() {
        let sig = signed(hmac::HMAC_SHA256, "key", "PUT\n1000\nprefix:/v1/AUTH_a/c/o/");
        let url = format!("temp_url_sig={sig}&temp_url_expires=1000&temp_url_prefix=o/");
        assert!(good(&url, &Method::PUT, 9) && good(&url, &Method::HEAD, 9));
        assert!(!good(&url.replace("prefix=o/", "prefix=o"), &Method::PUT, 9));
        assert!(!good(&url.replace("&temp_url_prefix=o/", ""), &Method::PUT, 9));
        let text = "GET\n1795651200\n/v1/AUTH_a/c/o/p";
        let key = hmac::Key::new(hmac::HMAC_SHA512, b"key");
        let coded = URL_SAFE_NO_PAD.encode(hmac::sign(&key, text.as_bytes()));
        for expires in [
            "1795651200",
            "2026-11-26T00:00:00Z",
            "2026-11-26",
            "2026-11-26T00:00:00",
        ] {
            let url = format!("temp_url_sig=sha512:{coded}&temp_url_expires={expires}");
            assert!(good(&url, &Method::GET, 1_795_651_199), "{expires}");
        }
        let wrong = format!("temp_url_sig=sha256:{coded}&temp_url_expires=1795651200");
        assert!(!good(&wrong, &Method::GET, 9));
        for bad in [
            "temp_url_sig=",
            "temp_url_sig=00&temp_url_expires=1",
            "temp_url_expires=9",
        ] {
            assert!(!good(bad, &Method::GET, 0), "{bad}");
        }
        assert!(!good(
            &format!("{url}&temp_url_ip_range=1.2.3.4"),
            &Method::PUT,
            9
        ));
    }
}
