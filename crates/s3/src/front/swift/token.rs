//! Tokens of TempAuth: who asks, until when, and the version of the key that they were got with, under a signature that all gateways can check.
//!
//! ```text
//! AUTH_tk BASE64URL( expires (8 bytes, seconds since 1970)  version (8)  USER : SUBUSER  HMAC-SHA256 of all before (32) )
//! ```

use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

const BEGINS: &str = "AUTH_tk";
const MAC: usize = 32;
const NUMBERS: usize = 16;
/// Of the text; names of users and subusers have 128 bytes each.
const TEXT_MAX: usize = 512;
/// What is signed begins with it: the secret is for nothing else.
const LABEL: &[u8] = b"skep s3 swift token 1\0";

/// Not believed yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    pub user: String,
    pub subuser: String,
    /// Seconds since 1970.
    pub expires: u64,
    pub version: u64,
    signed: Vec<u8>,
    mac: Vec<u8>,
}

/// Whether it is one of these, or would be.
pub fn is_ours(text: &str) -> bool {
    text.starts_with(BEGINS)
}

fn key(secret: &[u8]) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, secret)
}

pub fn made(secret: &[u8], (user, subuser): (&str, &str), expires: u64, version: u64) -> String {
    let mut signed = LABEL.to_vec();
    signed.extend(expires.to_be_bytes());
    signed.extend(version.to_be_bytes());
    signed.extend(format!("{user}:{subuser}").as_bytes());
    let mac = hmac::sign(&key(secret), &signed);
    signed.extend(mac.as_ref());
    format!("{BEGINS}{}", URL_SAFE_NO_PAD.encode(&signed[LABEL.len()..]))
}

impl Token {
    /// None: it is none.
    pub fn parse(text: &str) -> Option<Self> {
        let coded = text.strip_prefix(BEGINS).filter(|t| t.len() <= TEXT_MAX)?;
        let bytes = URL_SAFE_NO_PAD.decode(coded).ok()?;
        let end = bytes.len().checked_sub(MAC)?;
        let (said, mac) = bytes.split_at(end);
        let number = |at: usize| Some(u64::from_be_bytes(said.get(at..at + 8)?.try_into().ok()?));
        let names = std::str::from_utf8(said.get(NUMBERS..)?).ok()?;
        let (user, subuser) = names.split_once(':')?;
        Some(Self {
            user: user.to_string(),
            subuser: subuser.to_string(),
            expires: number(0)?,
            version: number(8)?,
            signed: [LABEL, said].concat(),
            mac: mac.to_vec(),
        })
    }

    /// In time that does not tell how much of the signature is right.
    pub fn is_good(&self, secret: &[u8], version: u64, now: u64) -> bool {
        let signed = hmac::verify(&key(secret), &self.signed, &self.mac).is_ok();
        signed && self.version == version && now < self.expires
    }
}

/// Whether two secrets are the same, in time that does not tell how much of them is.
pub fn same(a: &str, b: &str) -> bool {
    let key = key(LABEL);
    let mac = hmac::sign(&key, a.as_bytes());
    hmac::verify(&key, b.as_bytes(), mac.as_ref()).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &[u8] = &[7; 32];

    #[test]
    fn tokens_hold_for_their_time_key_and_subuser() {
        let text = made(SECRET, ("alice", "app"), 1000, 42);
        let token = Token::parse(&text).unwrap();
        assert_eq!((token.user.as_str(), token.subuser.as_str()), ("alice", "app"));
        assert!(token.is_good(SECRET, 42, 999));
        assert!(!token.is_good(SECRET, 42, 1000));
        assert!(!token.is_good(SECRET, 43, 999));
        assert!(!token.is_good(&[8; 32], 42, 999));
    }

    #[test]
    fn tokens_that_were_changed_are_none() {
        let text = made(SECRET, ("alice", "app"), 1000, 42);
        let coded = &text[BEGINS.len()..];
        let bytes = URL_SAFE_NO_PAD.decode(coded).unwrap();
        for at in 0..bytes.len() {
            let mut other = bytes.clone();
            other[at] ^= 1;
            let other = format!("{BEGINS}{}", URL_SAFE_NO_PAD.encode(other));
            let good = Token::parse(&other).is_some_and(|t| t.is_good(SECRET, t.version, 999));
            assert!(!good, "byte {at}");
        }
        for n in 0..bytes.len() {
            let short = format!("{BEGINS}{}", URL_SAFE_NO_PAD.encode(&bytes[..n]));
            assert!(!Token::parse(&short).is_some_and(|t| t.is_good(SECRET, t.version, 0)));
        }
        assert!(is_ours(&text) && is_ours("AUTH_tk!") && !is_ours("gAAAAABpJ") && !is_ours(""));
        for bad in ["", "AUTH_tk", "AUTH_tk!", "x", &"AUTH_tkAAAA".repeat(200)] {
            assert_eq!(Token::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn secrets_are_compared_whole() {
        assert!(same("abc", "abc"));
        assert!(!same("abc", "abd") && !same("abc", "ab") && !same("", "a"));
    }
}
