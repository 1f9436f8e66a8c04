//! Keystone's requests and answers, version 3, as its published API has them; what is not looked at is passed by.

use super::settings::Login;
use aws_lc_rs::{digest, hmac};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE;
use serde::Deserialize;
use serde_json::{Value, json};

/// Without what all there is at the site.
pub const TOKENS: &str = "/v3/auth/tokens?nocatalog";
pub const S3_TOKENS: &str = "/v3/s3tokens";

#[derive(Debug, Deserialize)]
pub struct TokenBody {
    pub token: Token,
}

#[derive(Debug, Deserialize)]
pub struct Token {
    pub expires_at: String,
    pub user: User,
    /// None: it is for a domain, for the system, or for nothing yet.
    #[serde(default)]
    pub project: Option<Project>,
    #[serde(default)]
    pub roles: Vec<Role>,
    /// What it was got with, if that was made for one application.
    #[serde(default)]
    pub application_credential: Option<Application>,
}

impl Token {
    /// Whether it is for some requests alone, which nobody here tells apart.
    pub fn is_limited(&self) -> bool {
        let rules = self.application_credential.as_ref();
        rules.is_some_and(|a| a.access_rules.as_ref().is_some_and(|r| !r.is_empty()))
    }
}

#[derive(Debug, Deserialize)]
pub struct Application {
    #[serde(default)]
    pub access_rules: Option<Vec<Value>>,
}

#[derive(Debug, Deserialize)]
pub struct User {
    pub id: String,
}

#[derive(Debug, Deserialize)]
pub struct Project {
    pub id: String,
    #[serde(default)]
    pub name: String,
}

#[derive(Debug, Deserialize)]
pub struct Role {
    pub name: String,
}

#[derive(Debug, Deserialize)]
pub struct CredentialBody {
    pub credential: Credential,
}

#[derive(Deserialize)]
pub struct Credential {
    #[serde(rename = "type")]
    pub kind: String,
    /// JSON, as a text.
    pub blob: String,
    #[serde(default)]
    pub project_id: Option<String>,
}

impl std::fmt::Debug for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "credential of {:?}", self.project_id)
    }
}

/// What the blob of one of kind `ec2` has.
#[derive(Deserialize)]
pub struct Ec2 {
    pub access: String,
    pub secret: String,
}

/// Of one part of a key.
const SECRET_MAX: usize = 256;

impl Ec2 {
    /// Whether it is this key, and one that can be used.
    pub fn is_of(&self, access: &str) -> bool {
        let secret = self.secret.as_bytes();
        let good = (1..=SECRET_MAX).contains(&secret.len()) && secret.iter().all(u8::is_ascii_graphic);
        self.access == access && good
    }
}

/// A token for the gateway itself.
pub fn login(as_: &Login) -> Value {
    json!({"auth": {
        "identity": {"methods": ["password"], "password": {"user": {
            "name": as_.user, "domain": {"name": as_.user_domain}, "password": as_.password,
        }}},
        "scope": {"project": {"name": as_.project, "domain": {"name": as_.project_domain}}},
    }})
}

fn sha256(bytes: &[u8]) -> digest::Digest {
    digest::digest(&digest::SHA256, bytes)
}

/// Where a key of EC2 is found: under the hash of its public part.
pub fn credential(access: &str) -> String {
    format!("/v3/credentials/{}", hex::encode(sha256(access.as_bytes())))
}

fn signed(key: &[u8], text: &str) -> hmac::Tag {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes())
}

/// A text that was signed with a key, as S3's requests are, which has Keystone say whose it is. `nonce`: so that it is no request of anybody's.
pub fn s3_token(of: &Ec2, now_ms: u64, nonce: &[u8; 16]) -> Value {
    let time = stamp(now_ms);
    let date = &time[..8];
    let text = format!(
        "AWS4-HMAC-SHA256\n{time}\n{date}/skep/s3/aws4_request\n{}",
        hex::encode(sha256(nonce))
    );
    let first = format!("AWS4{}", of.secret);
    let mut key = signed(first.as_bytes(), date);
    for part in ["skep", "s3", "aws4_request"] {
        key = signed(key.as_ref(), part);
    }
    json!({"credentials": {
        "access": of.access,
        "token": URL_SAFE.encode(&text),
        "signature": hex::encode(signed(key.as_ref(), &text)),
    }})
}

/// From 1970 to 1 March of the year 0, in days.
const BEFORE_1970: u64 = 719_468;

/// `20261127T010203Z`.
fn stamp(ms: u64) -> String {
    let seconds = ms / 1000;
    let days = seconds / 86_400 + BEFORE_1970;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z")
}

/// Milliseconds since 1970 of `2026-11-27T01:02:03.000000Z`.
pub fn time(text: &str) -> Option<u64> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let numbers = |text: &str, by: char| -> Option<Vec<u64>> {
        let parts = text.split(by);
        let parts = parts.map(|p| p.bytes().all(|b| b.is_ascii_digit()).then(|| p.parse().ok())?);
        parts.collect()
    };
    let whole = time.split_once('.').map_or(time, |(whole, _)| whole);
    let (date, time) = (numbers(date, '-')?, numbers(whole, ':')?);
    let (&[year, month, day], &[hour, minute, second]) = (&date[..], &time[..]) else {
        return None;
    };
    let good = (1970..=9999).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
    if !good || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    // Years that begin in March, so that a leap day is a year's last.
    let (y, m) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let days = 365 * y + y / 4 - y / 100 + y / 400 + (153 * m + 2) / 5 + day - 1;
    let days = days.checked_sub(BEFORE_1970)?;
    Some((((days * 24 + hour) * 60 + minute) * 60 + second) * 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_or_refused() {
        for (text, at) in [
            ("1970-01-01T00:00:00.000000Z", 0),
            ("1972-02-29T00:00:00Z", 68_169_600_000),
            ("2000-03-01T00:00:01Z", 951_868_801_000),
            ("2026-11-26T16:00:00.999999Z", 1_795_708_800_000),
        ] {
            assert_eq!(time(text), Some(at), "{text}");
            let plain: String = text.chars().filter(|c| !"-:".contains(*c)).take(15).collect();
            assert_eq!(stamp(at), format!("{plain}Z"));
        }
        for bad in [
            "",
            "2026-11-26T16:00:00",
            "2026-11-26 16:00:00Z",
            "2026-13-26T16:00:00Z",
            "2026-11-26T24:00:00Z",
            "1969-12-31T23:59:59Z",
            "2026-11-+6T16:00:00Z",
            "2026-11-26T16:00Z",
            "99999999999999999999-01-01T00:00:00Z",
        ] {
            assert_eq!(time(bad), None, "{bad}");
        }
    }

    #[test]
    fn keys_are_found_by_their_hash() {
        // printf a | sha256sum
        assert_eq!(
            credential("a"),
            "/v3/credentials/ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"
        );
    }

    /// AWS's own example of a signing key, with its date and region.
    #[test]
    fn keys_are_derived_as_aws_does_it() {
        let mut key = signed(b"AWS4wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "20120215");
        for part in ["us-east-1", "iam", "aws4_request"] {
            key = signed(key.as_ref(), part);
        }
        assert_eq!(
            hex::encode(key),
            "f4780e2d9f65fa895f9c67b32ce1baf0b0d8a43505a000a1a9e090d414db404d"
        );
    }
}
