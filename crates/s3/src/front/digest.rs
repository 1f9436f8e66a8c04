//! Checksums of bodies: MD5 for the ETag, and the one that the client chose, in a header or after the body.

use super::errors::invalid;
use crate::data::Digests;
use crate::record::Checksum;
use crate::{Error, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use s3s::checksum::ChecksumHasher;
use s3s::crypto::{Checksum as _, Crc32, Crc32c, Crc64Nvme, Md5, Sha1, Sha256};
use s3s::{S3Result, TrailingHeaders};

/// As S3 names them, with their header.
pub const ALGORITHMS: [(&str, &str); 5] = [
    ("CRC32", "x-amz-checksum-crc32"),
    ("CRC32C", "x-amz-checksum-crc32c"),
    ("CRC64NVME", "x-amz-checksum-crc64nvme"),
    ("SHA1", "x-amz-checksum-sha1"),
    ("SHA256", "x-amz-checksum-sha256"),
];

/// As headers have digests.
pub fn base64(digest: &[u8]) -> String {
    STANDARD.encode(digest)
}

pub fn hasher(algorithm: &str) -> Option<ChecksumHasher> {
    let mut hasher = ChecksumHasher::default();
    match algorithm {
        "CRC32" => hasher.crc32 = Some(Crc32::new()),
        "CRC32C" => hasher.crc32c = Some(Crc32c::new()),
        "CRC64NVME" => hasher.crc64nvme = Some(Crc64Nvme::new()),
        "SHA1" => hasher.sha1 = Some(Sha1::new()),
        "SHA256" => hasher.sha256 = Some(Sha256::new()),
        _ => return None,
    }
    Some(hasher)
}

/// The one value that a hasher made.
pub fn value(hasher: ChecksumHasher) -> Option<String> {
    let sums = hasher.finalize();
    sums.checksum_crc32
        .or(sums.checksum_crc32c)
        .or(sums.checksum_crc64nvme)
        .or(sums.checksum_sha1)
        .or(sums.checksum_sha256)
}

/// What was said of a body before it came.
#[derive(Debug, Default)]
pub struct Announced {
    pub md5: Option<String>,
    /// Algorithm, and its value if that came in a header.
    pub checksum: Option<(String, Option<String>)>,
    /// The value comes after the body.
    pub trails: bool,
}

impl Announced {
    /// `values`: those of the headers, in the order of [`ALGORITHMS`].
    pub fn new(
        md5: Option<String>,
        values: [Option<String>; 5],
        algorithm: Option<&str>,
        headers: &hyper::HeaderMap,
    ) -> S3Result<Self> {
        let mut given = ALGORITHMS
            .iter()
            .zip(values)
            .filter_map(|((name, _), v)| Some((*name, v?)));
        let first = given.next();
        if given.next().is_some() {
            return Err(invalid("one checksum of a body is taken, not several"));
        }
        let trailer = headers
            .get("x-amz-trailer")
            .and_then(|v| v.to_str().ok())
            .unwrap_or_default();
        let trails = |header: &str| trailer.split(',').any(|t| t.trim().eq_ignore_ascii_case(header));
        let trailing = ALGORITHMS.iter().find(|(_, header)| trails(header));
        let checksum = match (first.clone(), trailing, algorithm) {
            (Some((name, value)), _, _) => Some((name.to_string(), Some(value))),
            (None, Some((name, _)), _) => Some((name.to_string(), None)),
            (None, None, Some(name)) => Some((name.to_ascii_uppercase(), None)),
            (None, None, None) => None,
        };
        if let Some((name, _)) = &checksum
            && hasher(name).is_none()
        {
            return Err(invalid(format!(
                "{name} is no algorithm of checksums that is known here"
            )));
        }
        Ok(Self {
            md5,
            trails: first.is_none() && trailing.is_some(),
            checksum,
        })
    }
}

pub struct Digest {
    md5: Md5,
    hasher: Option<ChecksumHasher>,
    announced: Announced,
}

impl Digest {
    pub fn new(announced: Announced) -> Self {
        let chosen = announced.checksum.as_ref();
        Self {
            md5: Md5::new(),
            hasher: chosen.and_then(|(name, _)| hasher(name)),
            announced,
        }
    }

    /// ETag and checksum, where all is as was announced.
    pub fn finish(self, trailers: Option<&TrailingHeaders>) -> Result<(String, Option<Checksum>)> {
        let md5 = self.md5.finalize();
        if let Some(wanted) = &self.announced.md5
            && STANDARD.encode(md5) != *wanted
        {
            return Err(Error::Digest("the MD5 of the body is not the one of Content-MD5"));
        }
        let etag = hex::encode(md5);
        let (Some((name, wanted)), Some(hasher)) = (self.announced.checksum, self.hasher) else {
            return Ok((etag, None));
        };
        let header = ALGORITHMS.iter().find(|(n, _)| *n == name).map_or("", |(_, h)| h);
        let trailing = trailers
            .and_then(|t| t.read(|h| h.get(header).and_then(|v| v.to_str().ok()).map(str::to_string)));
        let value = value(hasher).unwrap_or_default();
        match wanted.or(trailing.flatten()) {
            Some(wanted) if wanted != value => Err(Error::Digest(
                "the checksum of the body is not the one that came with it",
            )),
            None if self.announced.trails => Err(Error::Body(
                "the checksum that was to follow it did not come".into(),
            )),
            _ => Ok((
                etag,
                Some(Checksum {
                    algorithm: name,
                    value,
                }),
            )),
        }
    }
}

impl Digests for Digest {
    fn update(&mut self, data: &[u8]) {
        self.md5.update(data);
        if let Some(hasher) = &mut self.hasher {
            hasher.update(data);
        }
    }
}

/// Fills the checksum's fields of an answer.
macro_rules! set_checksum {
    ($out:expr, $checksum:expr) => {
        if let Some(c) = $checksum {
            let value = Some(c.value.clone());
            match c.algorithm.as_str() {
                "CRC32" => $out.checksum_crc32 = value,
                "CRC32C" => $out.checksum_crc32c = value,
                "CRC64NVME" => $out.checksum_crc64nvme = value,
                "SHA1" => $out.checksum_sha1 = value,
                _ => $out.checksum_sha256 = value,
            }
        }
    };
}

/// The checksums' values of a request, in the order of [`ALGORITHMS`].
macro_rules! checksum_values {
    ($input:expr) => {
        [
            $input.checksum_crc32.take(),
            $input.checksum_crc32c.take(),
            $input.checksum_crc64nvme.take(),
            $input.checksum_sha1.take(),
            $input.checksum_sha256.take(),
        ]
    };
}

pub(crate) use {checksum_values, set_checksum};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_refused() {
        let headers = hyper::HeaderMap::new();
        let check = |md5: Option<&str>, crc32: Option<&str>| {
            let values = [crc32.map(str::to_string), None, None, None, None];
            let mut digest =
                Digest::new(Announced::new(md5.map(str::to_string), values, None, &headers).unwrap());
            digest.update(b"hel");
            digest.update(b"lo");
            digest.finish(None)
        };
        // md5sum and crc32 of "hello".
        assert_eq!(check(None, None).unwrap().0, "5d41402abc4b2a76b9719d911017c592");
        let sum = check(Some("XUFAKrxLKna5cZ2REBfFkg=="), Some("NhCmhg=="))
            .unwrap()
            .1
            .unwrap();
        assert_eq!(
            (sum.algorithm.as_str(), sum.value.as_str()),
            ("CRC32", "NhCmhg==")
        );
        assert!(matches!(
            check(Some("XUFAKrxLKna5cZ2REBfFkQ=="), None),
            Err(Error::Digest(_))
        ));
        assert!(matches!(check(None, Some("NhCmhw==")), Err(Error::Digest(_))));
    }

    #[test]
    fn a_checksum_that_was_to_follow_has_to_come() {
        let mut headers = hyper::HeaderMap::new();
        headers.insert("x-amz-trailer", "x-amz-checksum-crc32".parse().unwrap());
        let none = || [None, None, None, None, None];
        let announced = Announced::new(None, none(), Some("CRC32"), &headers).unwrap();
        assert!(matches!(Digest::new(announced).finish(None), Err(Error::Body(_))));
        let computed = Announced::new(None, none(), Some("CRC32"), &hyper::HeaderMap::new()).unwrap();
        assert!(Digest::new(computed).finish(None).is_ok());
    }
}
