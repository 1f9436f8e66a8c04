//! Times, ETags, names and numbers between S3's types and ours.

pub use super::times::{DATES_END, epoch_seconds, http_date, seconds, timestamp};

use super::errors::invalid;
use crate::objects::Etags;
use s3s::S3Result;
use s3s::dto::{ETag, ETagCondition, EncodingType, Owner};

pub fn etag(etag: &str) -> Option<ETag> {
    Some(ETag::Strong(etag.to_string()))
}

pub fn etags(condition: Option<&ETagCondition>) -> Option<Etags> {
    condition.map(|c| match c {
        ETagCondition::Any => Etags::Any,
        ETagCondition::ETag(etag) => Etags::One(etag.value().to_string()),
    })
}

pub fn owner(id: &str) -> Option<Owner> {
    Some(Owner {
        display_name: Some(id.to_string()),
        id: Some(id.to_string()),
    })
}

/// How many a page shall have.
pub fn page_size(asked: Option<i32>, most: usize) -> S3Result<usize> {
    match asked {
        None => Ok(most),
        Some(n) => usize::try_from(n)
            .map(|n| n.min(most))
            .map_err(|_| invalid("a page of fewer than no items")),
    }
}

/// Text of a query, or of tags; None: not URL encoded.
pub fn url_decoded(text: &str) -> Option<String> {
    path_decoded(&text.replace('+', " "))
}

/// Text of a path; None: not URL encoded.
pub fn path_decoded(text: &str) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(b) = bytes.next() {
        let hex = |b: Option<u8>| b.and_then(|b| (b as char).to_digit(16));
        match b {
            b'%' => out.push((hex(bytes.next())? * 16 + hex(bytes.next())?) as u8),
            other => out.push(other),
        }
    }
    String::from_utf8(out).ok()
}

/// Names in a listing, which the client may have asked for in URL encoding: XML has no way to write some characters.
#[derive(Debug, Clone, Copy)]
pub struct Names(bool);

impl Names {
    pub fn new(encoding: Option<&EncodingType>) -> S3Result<Self> {
        match encoding.map(EncodingType::as_str) {
            None => Ok(Self(false)),
            Some("url") => Ok(Self(true)),
            Some(_) => Err(invalid("encoding-type is url or nothing")),
        }
    }

    pub fn url() -> Self {
        Self(true)
    }

    pub fn is_url(self) -> bool {
        self.0
    }

    pub fn write(self, name: &str) -> String {
        if !self.0 {
            return name.to_string();
        }
        let mut out = Vec::with_capacity(name.len());
        url_encoded(name, &mut out);
        // All of it is ASCII.
        String::from_utf8(out).unwrap_or_default()
    }
}

/// What is not plain is written as %XX.
pub fn url_encoded(name: &str, out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    let plain = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b'~' | b'/');
    let mut rest = name.as_bytes();
    while let Some(at) = rest.iter().position(|b| !plain(b)) {
        let (high, low) = (rest[at] >> 4, rest[at] & 15);
        out.extend_from_slice(&rest[..at]);
        out.extend_from_slice(&[b'%', HEX[usize::from(high)], HEX[usize::from(low)]]);
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_written_as_they_were_asked_for() {
        let url = Names::new(Some(&EncodingType::from_static(EncodingType::URL))).unwrap();
        assert_eq!(url.write("a b/é\u{1}+"), "a%20b/%C3%A9%01%2B");
        assert_eq!(Names::new(None).unwrap().write("a b"), "a b");
        // Each byte alone, and at each place.
        for byte in 0..=127_u8 {
            let c = char::from(byte);
            let plain = c.is_ascii_alphanumeric() || "-_.~/".contains(c);
            let want = if plain {
                c.to_string()
            } else {
                format!("%{byte:02X}")
            };
            assert_eq!(url.write(&format!("{c}x{c}{c}")), format!("{want}x{want}{want}"));
        }
        assert!(page_size(Some(-1), 9).is_err());
        assert_eq!(page_size(Some(5000), 9).ok(), Some(9));
    }
}
