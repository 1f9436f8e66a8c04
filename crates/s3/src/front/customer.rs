//! Encryption with keys that clients bring (SSE-C), or with the gateway's (SSE-S3): what a request says of it, and what opens what.
//!
//! A key is taken by TLS alone, unless the gateway is told otherwise. Of objects that were put with a key nothing is told without it, not even by HEAD.

use super::Front;
use super::caller::Peer;
use super::errors::{coded, invalid, not_built};
use crate::buckets::Known;
use crate::rados::Pool;
use crate::record::{Entry, Upload};
use crate::seal::{How, Key, Sealed};
use crate::{Clock, Error};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::HeaderMap;
use s3s::crypto::{Checksum as _, Md5};
use s3s::{S3Error, S3ErrorCode, S3Request, S3Result};

/// Asks for one of the gateway's keys.
pub const ENCRYPTION: &str = "x-amz-server-side-encryption";
/// What the three headers begin with: of what is put or read, and of what is copied.
pub const CUSTOMER: &str = "x-amz-server-side-encryption-customer-";
pub const OBJECT: &str = CUSTOMER;
pub const SOURCE: &str = "x-amz-copy-source-server-side-encryption-customer-";
pub const ALGORITHM: &str = "AES256";

/// The key of an object, and what its entry has of it.
pub type Seal = (Key, Sealed);

pub struct Customer {
    key: Key,
    /// In base64.
    md5: String,
}

/// Keys that a request brings are not shown where it is.
pub fn hide_keys(headers: &mut HeaderMap) {
    for (name, value) in headers.iter_mut() {
        if name.as_str().ends_with("-customer-key") {
            value.set_sensitive(true);
        }
    }
}

/// The headers of a key that was brought; None: there are none.
fn brought(headers: &HeaderMap, prefix: &str) -> S3Result<Option<Customer>> {
    let text = |name: &str| {
        let mut all = headers.get_all(format!("{prefix}{name}")).iter();
        match (all.next(), all.next()) {
            (None, _) => Ok(None),
            (Some(value), None) => {
                let text = value.to_str();
                text.map(Some)
                    .map_err(|_| invalid(format!("{prefix}{name} is no text")))
            }
            _ => Err(invalid(format!("{prefix}{name} is there twice"))),
        }
    };
    let (algorithm, key, md5) = (text("algorithm")?, text("key")?, text("key-md5")?);
    if algorithm.is_none() && key.is_none() && md5.is_none() {
        return Ok(None);
    }
    let must = |what: &str| {
        let begins = "Requests specifying Server Side Encryption with Customer provided keys must provide";
        invalid(format!("{begins} {what}."))
    };
    match algorithm {
        None => return Err(must("a valid encryption algorithm")),
        Some(ALGORITHM) => {}
        Some(_) => {
            let why = "The encryption request that was specified is not valid. Supported value: AES256.";
            return Err(coded(S3ErrorCode::InvalidEncryptionAlgorithmError, why));
        }
    }
    let key = key.ok_or_else(|| must("an appropriate secret key"))?;
    let md5 = md5.ok_or_else(|| must("the client calculated MD5 of the secret key"))?;
    let bytes = STANDARD.decode(key).unwrap_or_default();
    let made =
        Key::new(&bytes).ok_or_else(|| invalid("The secret key was invalid for the specified algorithm."))?;
    let mut hasher = Md5::new();
    hasher.update(&bytes);
    match STANDARD.encode(hasher.finalize()) == md5 {
        true => Ok(Some(Customer {
            key: made,
            md5: md5.into(),
        })),
        false => Err(invalid(
            "The calculated MD5 hash of the key did not match the hash that was provided.",
        )),
    }
}

impl Customer {
    /// A new key for an object at this place (id of its bucket, and its key), wrapped with this one.
    pub fn seal(&self, clock: &Clock, place: (&str, &str)) -> S3Result<Seal> {
        let object = Key::random(clock);
        let sealed = self
            .key
            .wrap(&object, How::Customer(self.md5.clone()), place, clock)?;
        Ok((object, sealed))
    }
}

impl<P: Pool> Front<P> {
    pub(super) fn customer<T>(&self, req: &S3Request<T>, prefix: &str) -> S3Result<Option<Customer>> {
        let customer = brought(&req.headers, prefix)?;
        let safe = self.keys.plain || req.extensions.get::<Peer>().is_some_and(|p| p.tls);
        match customer.is_some() && !safe {
            true => Err(invalid(
                "Requests specifying Server Side Encryption with Customer provided keys must be made over a secure connection.",
            )),
            false => Ok(customer),
        }
    }
}

/// What a client that knows AWS is told.
fn not_applicable() -> S3Error {
    let why = "The encryption parameters are not applicable to this object.";
    coded(S3ErrorCode::InvalidRequest, why)
}

impl<P: Pool> Front<P> {
    /// How a new object at this place (id of its bucket, and its key) is sealed; None: not at all.
    pub(super) fn new_seal<T>(&self, req: &S3Request<T>, known: &Known, key: &str) -> S3Result<Option<Seal>> {
        let place = (known.bucket.id.as_str(), key);
        let asked = asked(&req.headers)?;
        match self.customer(req, OBJECT)? {
            Some(_) if asked => Err(invalid(
                "Server Side Encryption with Customer provided key is incompatible with the encryption method specified.",
            )),
            Some(customer) => customer.seal(&self.clock, place).map(Some),
            None if asked || known.settings.of.encrypt => self.own_seal(place).map(Some),
            None => Ok(None),
        }
    }

    fn own_seal(&self, place: (&str, &str)) -> S3Result<Seal> {
        let (name, master) = self.keys.masters.first().ok_or_else(no_master)?;
        let object = Key::random(&self.clock);
        let sealed = master.wrap(&object, How::Master(name.into()), place, &self.clock)?;
        Ok((object, sealed))
    }

    /// The key of what a gateway's key has sealed.
    fn own_key(&self, name: &str, sealed: &Sealed, place: (&str, &str)) -> S3Result<Key> {
        let master =
            self.keys.masters.get(name).ok_or_else(|| {
                Error::Damaged(format!("the master key {name} is not in this gateway's file"))
            })?;
        let opened = master.unwrap(sealed, place)?;
        Ok(opened.ok_or_else(|| Error::Damaged(format!("the master key {name} is another one")))?)
    }

    /// The key of an object, for who may have it; None: it is not encrypted.
    pub(super) fn opened(
        &self,
        customer: Option<Customer>,
        entry: &Entry,
        place: (&str, &str),
    ) -> S3Result<Option<Key>> {
        let Some(sealed) = &entry.sealed else {
            return customer.map_or(Ok(None), |_| Err(not_applicable()));
        };
        match (&sealed.how, customer) {
            (How::Master(name), None) => self.own_key(name, sealed, place).map(Some),
            (How::Master(_), Some(_)) => Err(not_applicable()),
            (How::Customer(_), None) => Err(coded(
                S3ErrorCode::InvalidRequest,
                "The object was stored using a form of Server Side Encryption. The correct parameters must be provided to retrieve the object.",
            )),
            (How::Customer(_), Some(customer)) => match customer.key.unwrap(sealed, place)? {
                Some(key) => Ok(Some(key)),
                None => Err(Error::AccessDenied.into()),
            },
        }
    }

    /// The same of an upload, for one of its parts.
    pub(super) fn opened_part(
        &self,
        (customer, headers): (Option<Customer>, &HeaderMap),
        upload: &Upload,
        place: (&str, &str),
    ) -> S3Result<Option<Key>> {
        let refused = |why: &str| Err(coded(S3ErrorCode::InvalidRequest, why));
        if asked(headers)?
            && !upload
                .sealed
                .as_ref()
                .is_some_and(|s| matches!(s.how, How::Master(_)))
        {
            return refused("x-amz-server-side-encryption: the upload was begun without it");
        }
        let of_customer = |sealed: &&Sealed| matches!(sealed.how, How::Customer(_));
        let sealed = upload.sealed.as_ref();
        match (sealed.filter(of_customer), customer) {
            (None, None) => sealed.map(|s| self.own_part(s, place)).transpose(),
            (None, Some(_)) => refused(
                "The multipart upload initiate did not request encryption. Please resend the request without sending encryption parameters.",
            ),
            (Some(_), None) => refused(
                "The multipart upload initiate requested encryption. Subsequent part requests must include the appropriate encryption parameters.",
            ),
            (Some(sealed), Some(customer)) => match customer.key.unwrap(sealed, place)? {
                Some(key) => Ok(Some(key)),
                None => refused("The provided encryption parameters did not match the ones used originally."),
            },
        }
    }

    fn own_part(&self, sealed: &Sealed, place: (&str, &str)) -> S3Result<Key> {
        match &sealed.how {
            How::Master(name) => self.own_key(name, sealed, place),
            How::Customer(_) => Err(not_applicable()),
        }
    }
}

/// Refused where there is no key to do it with: never stored in the clear instead.
pub fn no_master() -> S3Error {
    coded(
        S3ErrorCode::NotImplemented,
        "encryption with keys of the gateway: this gateway was given none",
    )
}

/// Whether a request asks for one of the gateway's keys.
fn asked(headers: &HeaderMap) -> S3Result<bool> {
    let mut all = headers.get_all(ENCRYPTION).iter();
    match (all.next().map(|v| v.as_bytes()), all.next()) {
        (None, _) => Ok(false),
        (Some(b"AES256"), None) => Ok(true),
        (Some(other), _) if other.starts_with(b"aws:") => {
            Err(not_built("encryption with keys of a service (SSE-KMS)"))
        }
        _ => Err(coded(
            S3ErrorCode::InvalidEncryptionAlgorithmError,
            "The encryption request that was specified is not valid. Supported value: AES256.",
        )),
    }
}

/// The ETag of what has this MD5, and was sealed with this key, or not. Where the gateway opens it for everybody it is the MD5.
pub fn etag_of(seal: Option<(&Key, &Sealed)>, md5: String) -> String {
    match seal {
        Some((
            key,
            Sealed {
                how: How::Customer(_),
                ..
            },
        )) => key.etag(&md5),
        _ => md5,
    }
}

/// What answers say of how an object is sealed.
macro_rules! describe_seal {
    ($out:expr, $sealed:expr) => {
        match $sealed.map(|s: &$crate::seal::Sealed| &s.how) {
            None => {}
            Some($crate::seal::How::Customer(md5)) => {
                $out.sse_customer_algorithm = Some($crate::front::customer::ALGORITHM.into());
                $out.sse_customer_key_md5 = Some(md5.clone());
            }
            Some($crate::seal::How::Master(_)) => {
                $out.server_side_encryption =
                    Some(ServerSideEncryption::from_static(ServerSideEncryption::AES256));
            }
        }
    };
}
pub(crate) use describe_seal;

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(of: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in of {
            let name: hyper::header::HeaderName = format!("{OBJECT}{name}").parse().unwrap();
            headers.append(name, value.parse().unwrap());
        }
        headers
    }

    const KEY: &str = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";

    /// md5sum of the key, in base64.
    fn md5() -> String {
        let mut hasher = Md5::new();
        hasher.update(&STANDARD.decode(KEY).unwrap());
        STANDARD.encode(hasher.finalize())
    }

    #[test]
    fn keys_are_read_and_what_is_not_whole_is_refused() {
        let (a, k, md5) = (("algorithm", "AES256"), ("key", KEY), md5());
        let m = ("key-md5", md5.as_str());
        assert!(brought(&headers(&[]), OBJECT).unwrap().is_none());
        let found = brought(&headers(&[a, k, m]), OBJECT).unwrap().unwrap();
        assert_eq!(found.md5, m.1);
        for bad in [
            vec![a],
            vec![k],
            vec![m],
            vec![a, k],
            vec![a, m],
            vec![k, m],
            vec![("algorithm", "aws:kms"), k, m],
            vec![a, k, k, m],
            vec![a, ("key", "c2hvcnQ="), m],
            vec![a, ("key", "not base64"), m],
            vec![a, k, ("key-md5", "AAAAAAAAAAAAAAAAAAAAAA==")],
        ] {
            assert!(brought(&headers(&bad), OBJECT).is_err(), "{bad:?}");
        }
        assert!(brought(&headers(&[a, k, m]), SOURCE).unwrap().is_none());
        // One that is no text is not one that is missing.
        for name in ["algorithm", "key", "key-md5"] {
            let mut all = HeaderMap::new();
            let name: hyper::header::HeaderName = format!("{OBJECT}{name}").parse().unwrap();
            all.insert(name, hyper::header::HeaderValue::from_bytes(b"\xff").unwrap());
            assert!(brought(&all, OBJECT).is_err(), "{all:?}");
        }
    }

    #[test]
    fn keys_are_not_shown() {
        let mut all = headers(&[("algorithm", "AES256"), ("key", KEY)]);
        hide_keys(&mut all);
        assert!(!format!("{all:?}").contains(KEY));
    }
}
