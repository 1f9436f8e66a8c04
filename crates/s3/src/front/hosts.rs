//! Names that the gateway is called by: below each, a bucket may be the first part of the host, `BUCKET.DOMAIN`. A host that is
//! none of those, and any address, has its bucket in the path.

use s3s::S3Result;
use s3s::host::{S3Host, VirtualHost};
use std::net::IpAddr;

const DOMAIN_MAX: usize = 253;

/// A name below which buckets are hosts, in lower case; refused if no host could be below it.
pub fn domain(name: &str) -> Result<String, String> {
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    let label = |l: &str| {
        let good = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
        (1..=63).contains(&l.len()) && l.bytes().all(good)
    };
    if name.parse::<IpAddr>().is_ok() {
        return Err("an address has no hosts below it: a name is wanted".into());
    }
    let is_number = name
        .rsplit('.')
        .next()
        .is_some_and(|l| l.bytes().all(|b| b.is_ascii_digit()));
    match name.len() <= DOMAIN_MAX && name.split('.').all(label) && !is_number {
        true => Ok(name),
        false => Err("the name of a host is wanted, as s3.example.com, without port".into()),
    }
}

/// The names of one gateway. Cheap to ask, for there are few.
#[derive(Debug, Clone, Default)]
pub struct Hosts(Vec<String>);

impl Hosts {
    pub fn new(domains: &[String]) -> Self {
        Self(domains.to_vec())
    }

    /// The bucket that a Host header names, if it does. The port says nothing.
    pub fn bucket(&self, host: &str) -> Option<String> {
        let name = match host.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
            _ => host,
        };
        let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        if self.0.contains(&name) {
            return None;
        }
        let below = |domain: &String| name.strip_suffix(domain.as_str())?.strip_suffix('.');
        // The shortest: of two domains the one that says more.
        let bucket = self.0.iter().filter_map(below).min_by_key(|b| b.len())?;
        Some(bucket.to_string()).filter(|b| !b.is_empty())
    }
}

impl S3Host for Hosts {
    fn parse_host_header<'a>(&'a self, host: &'a str) -> S3Result<VirtualHost<'a>> {
        let parsed = VirtualHost::new(host);
        Ok(match self.bucket(host) {
            Some(bucket) => parsed.with_bucket(bucket),
            None => parsed,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_hosts_below_the_names_of_the_gateway() {
        let domains = ["s3.example", "eu.s3.example"].map(String::from);
        let hosts = Hosts::new(&domains);
        for (host, bucket) in [
            ("b.s3.example", Some("b")),
            ("b.s3.example:7480", Some("b")),
            ("B.S3.Example.", Some("b")),
            ("a.b.s3.example", Some("a.b")),
            ("b.eu.s3.example", Some("b")),
            ("s3.example", None),
            ("eu.s3.example", None),
            (".s3.example", None),
            ("bs3.example", None),
            ("other.example", None),
            ("127.0.0.1:7480", None),
            ("[::1]:7480", None),
            ("", None),
        ] {
            assert_eq!(hosts.bucket(host).as_deref(), bucket, "{host}");
        }
        assert_eq!(Hosts::default().bucket("b.s3.example"), None);
    }

    #[test]
    fn names_are_names() {
        assert_eq!(domain("S3.Example.").as_deref(), Ok("s3.example"));
        let long = "a.".repeat(127) + "b";
        for bad in [
            "",
            "a..b",
            "127.0.0.1",
            "::1",
            "a:80",
            "*.a",
            "a.1",
            "http://a",
            &long,
        ] {
            assert!(domain(bad).is_err(), "{bad}");
        }
    }
}
