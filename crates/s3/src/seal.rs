//! Encryption at rest: what is stored, and what is kept of keys. No I/O.
//!
//! ```text
//! key of the client (SSE-C)        32 bytes; we keep its MD5, which answers tell, and nothing else
//! or a master key (SSE-S3)         32 bytes from a file of the gateway; we keep its name
//!   wrapping key                   HKDF-SHA256(key, salt of 32 random bytes): used once
//!     key of the object            32 random bytes, wrapped (AES-256-GCM) with bucket and key of the object as what belongs to it
//!       key of the data            HKDF-SHA256(key of the object, the data's tag): tags are never used again
//!         chunks                   64 KiB each, AES-256-GCM, 16 bytes more; the nonce is the chunk's number
//! ```
//!
//! So no nonce is used twice with a key, whatever is put again, and parts of an upload have keys of their own. A chunk that was changed, cut off, or put
//! elsewhere does not open. Which pieces an object is made of, and their order, is told by a digest in its entry.
//!
//! A stripe of 4 MiB is 64 chunks: what lies in the data pool has as many objects as without, each some longer.

use crate::record::Tag;
use crate::{Clock, Error, Result};
use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Salt};
use aws_lc_rs::{digest, hmac};
use bytes::Bytes;

/// Bytes that are sealed together.
pub const CHUNK: u64 = 64 << 10;
/// What each chunk is longer by.
pub const TAG: u64 = 16;
const KEY: usize = 32;
const SALT: usize = 32;
const WRAP: &[u8] = b"skep s3 wrap";
const DATA: &[u8] = b"skep s3 data";
const SESSION: &[u8] = b"skep s3 session";
const SECRET: &[u8] = b"skep s3 session secret";

/// 256 bits. It is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Key([u8; KEY]);

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key")
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        self.0.fill(0);
        // So that it is not left out: nobody reads it any more.
        std::hint::black_box(&self.0);
    }
}

struct Bits;

impl KeyType for Bits {
    fn len(&self) -> usize {
        KEY
    }
}

fn broken() -> Error {
    Error::Damaged("a key could not be derived".into())
}

fn derived(key: &Key, salt: &[u8], what: &[u8]) -> Result<LessSafeKey> {
    let mut out = Key([0; KEY]);
    let prk = Salt::new(HKDF_SHA256, salt).extract(&key.0);
    let what = [what];
    let okm = prk.expand(&what, Bits).map_err(|_| broken())?;
    okm.fill(&mut out.0).map_err(|_| broken())?;
    let key = UnboundKey::new(&AES_256_GCM, &out.0).map_err(|_| broken())?;
    Ok(LessSafeKey::new(key))
}

fn nonce(number: u64) -> Nonce {
    let mut nonce = [0; NONCE_LEN];
    nonce[NONCE_LEN - 8..].copy_from_slice(&number.to_be_bytes());
    Nonce::assume_unique_for_key(nonce)
}

/// How an object is sealed: what an entry, or an upload, has of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sealed {
    pub how: How,
    salt: Bytes,
    wrapped: Bytes,
    /// SHA-256 of the manifest, of an object that has one; else empty.
    pub manifest: Bytes,
}

denc::envelope_denc!(Sealed, 1, 1, { how, salt, wrapped, manifest });

impl Sealed {
    /// The same of an object with this manifest.
    pub fn with_manifest(self, digest: Bytes) -> Self {
        Self {
            manifest: digest,
            ..self
        }
    }
}

/// Whose key wraps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum How {
    /// The client's, with this MD5 (base64).
    Customer(String),
    /// The gateway's of this name.
    Master(String),
}

impl denc::Encode for How {
    fn encode(&self, w: &mut denc::Writer) {
        match self {
            Self::Customer(md5) => {
                w.u8(1);
                w.put(md5);
            }
            Self::Master(id) => {
                w.u8(2);
                w.put(id);
            }
        }
    }
}

impl denc::Decode for How {
    fn decode(r: &mut denc::Reader) -> denc::Result<Self> {
        match r.u8()? {
            1 => Ok(Self::Customer(r.get()?)),
            2 => Ok(Self::Master(r.get()?)),
            _ => Err(r.invalid("kind of encryption")),
        }
    }
}

/// What belongs to a wrapped key: of another object it does not open.
fn place(bucket: &str, key: &str) -> Vec<u8> {
    [bucket.as_bytes(), b"\0", key.as_bytes()].concat()
}

impl Key {
    /// None: it has not 256 bits.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    pub fn random(clock: &Clock) -> Self {
        let mut key = Self([0; KEY]);
        clock.fill(&mut key.0);
        key
    }

    /// Wraps the key of an object with this one.
    pub fn wrap(
        &self,
        object: &Self,
        how: How,
        (bucket, name): (&str, &str),
        clock: &Clock,
    ) -> Result<Sealed> {
        let mut salt = vec![0; SALT];
        clock.fill(&mut salt);
        let mut wrapped = object.0.to_vec();
        let aad = Aad::from(place(bucket, name));
        derived(self, &salt, WRAP)?
            .seal_in_place_append_tag(nonce(0), aad, &mut wrapped)
            .map_err(|_| broken())?;
        Ok(Sealed {
            how,
            salt: salt.into(),
            wrapped: wrapped.into(),
            manifest: Bytes::new(),
        })
    }

    /// The key of an object; None: this is not what wrapped it.
    pub fn unwrap(&self, sealed: &Sealed, (bucket, name): (&str, &str)) -> Result<Option<Self>> {
        let mut wrapped = sealed.wrapped.to_vec();
        let aad = Aad::from(place(bucket, name));
        let key = derived(self, &sealed.salt, WRAP)?;
        let opened = key.open_in_place(nonce(0), aad, &mut wrapped);
        let key = opened.ok().and_then(|bytes| Self::new(bytes));
        wrapped.fill(0);
        Ok(key)
    }

    /// What seals the data under this tag, with the key of its object.
    pub fn data(&self, tag: Tag) -> Result<DataKey> {
        derived(self, &tag.0, DATA).map(DataKey)
    }

    /// A text that this key alone opens, with what belongs to it: salt, and sealed. Each has a key of its own, which is used once.
    pub fn seal(&self, mut text: Vec<u8>, belongs: &[u8], clock: &Clock) -> Result<Vec<u8>> {
        let mut out = vec![0; SALT];
        clock.fill(&mut out);
        derived(self, &out, SESSION)?
            .seal_in_place_append_tag(nonce(0), Aad::from(belongs), &mut text)
            .map_err(|_| broken())?;
        out.extend_from_slice(&text);
        Ok(out)
    }

    /// None: it was not sealed by this key, or not with what belongs to it.
    pub fn open(&self, sealed: &[u8], belongs: &[u8]) -> Result<Option<Bytes>> {
        let Some((salt, sealed)) = sealed.split_at_checked(SALT) else {
            return Ok(None);
        };
        let mut sealed = sealed.to_vec();
        let key = derived(self, salt, SESSION)?;
        let opened = key.open_in_place(nonce(0), Aad::from(belongs), &mut sealed);
        Ok(opened.ok().map(|text| Bytes::copy_from_slice(text)))
    }

    /// What nobody can tell of a name who has not the key.
    pub fn secret_of(&self, name: &str) -> [u8; KEY] {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.0);
        let mut out = [0; KEY];
        let signed = hmac::sign(&key, &[SECRET, b"\0", name.as_bytes()].concat());
        out.copy_from_slice(signed.as_ref());
        out
    }

    /// An ETag that tells nothing of what is sealed to who has not its key.
    pub fn etag(&self, md5: &str) -> String {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.0);
        hex::encode(&hmac::sign(&key, md5.as_bytes()).as_ref()[..16])
    }
}

pub fn digest_of(manifest: &[u8]) -> Bytes {
    Bytes::copy_from_slice(digest::digest(&digest::SHA256, manifest).as_ref())
}

/// Seals the data under one tag.
#[derive(Debug)]
pub struct DataKey(LessSafeKey);

impl DataKey {
    /// A stripe, or what there is of it, whose first chunk has this number.
    pub fn seal(&self, data: &[u8], first: u64) -> Result<Bytes> {
        let mut out = Vec::with_capacity(sealed_len(data.len() as u64) as usize);
        for (chunk, number) in data.chunks(CHUNK as usize).zip(first..) {
            let from = out.len();
            out.extend_from_slice(chunk);
            let (nonce, aad) = (nonce(number), Aad::empty());
            let tag = self.0.seal_in_place_separate_tag(nonce, aad, &mut out[from..]);
            out.extend_from_slice(tag.map_err(|_| broken())?.as_ref());
        }
        Ok(out.into())
    }

    /// Whole chunks, of which the first has this number; the last may be shorter.
    pub fn open(&self, sealed: &[u8], first: u64) -> Result<Bytes> {
        let mut out = Vec::with_capacity(sealed.len());
        for (chunk, number) in sealed.chunks((CHUNK + TAG) as usize).zip(first..) {
            let from = out.len();
            out.extend_from_slice(chunk);
            let opened = self
                .0
                .open_in_place(nonce(number), Aad::empty(), &mut out[from..]);
            let n = opened
                .map_err(|_| Error::Damaged("encrypted data were changed".into()))?
                .len();
            out.truncate(from + n);
        }
        Ok(out.into())
    }
}

/// As many bytes as so many are when they are sealed.
pub fn sealed_len(bytes: u64) -> u64 {
    bytes + bytes.div_ceil(CHUNK) * TAG
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;

    fn key(n: u8) -> Key {
        Key::new(&[n; 32]).unwrap()
    }

    #[test]
    fn keys_open_what_they_wrapped_and_nothing_else() {
        let clock = Fake::new(1).clock();
        let object = Key::random(&clock);
        let how = How::Customer("md5".into());
        let sealed = key(1).wrap(&object, how.clone(), ("b", "k"), &clock).unwrap();
        assert_eq!(key(1).unwrap(&sealed, ("b", "k")).unwrap(), Some(object.clone()));
        assert_eq!(key(2).unwrap(&sealed, ("b", "k")).unwrap(), None);
        for place in [("b", "l"), ("c", "k"), ("bk", "")] {
            assert_eq!(key(1).unwrap(&sealed, place).unwrap(), None, "{place:?}");
        }
        let again = key(1).wrap(&object, how, ("b", "k"), &clock).unwrap();
        assert!(again.wrapped != sealed.wrapped && again.salt != sealed.salt);
        let mut cut = sealed;
        cut.wrapped = cut.wrapped.slice(..20);
        assert_eq!(key(1).unwrap(&cut, ("b", "k")).unwrap(), None);
        assert_eq!(format!("{object:?}"), "Key");
        assert!(Key::new(&[0; 31]).is_none() && Key::new(&[0; 33]).is_none());
        assert_ne!(key(1).etag("x"), key(2).etag("x"));
    }

    #[test]
    fn chunks_open_where_they_were_sealed() {
        let (data, tag) = (key(3).data(Tag([1; 16])).unwrap(), TAG as usize);
        let plain: Vec<u8> = (0..3 * CHUNK + 5).map(|n| n as u8).collect();
        let sealed = data.seal(&plain, 64).unwrap();
        assert_eq!(sealed.len() as u64, sealed_len(plain.len() as u64));
        assert_eq!(data.open(&sealed, 64).unwrap(), plain);
        let width = CHUNK as usize + tag;
        assert_eq!(
            data.open(&sealed[width..2 * width], 65).unwrap(),
            plain[CHUNK as usize..2 * CHUNK as usize]
        );
        assert!(data.open(&sealed[width..2 * width], 64).is_err(), "elsewhere");
        assert!(data.open(&sealed[..width - 1], 64).is_err(), "cut off");
        assert!(data.open(&sealed[..5], 64).is_err(), "shorter than a tag");
        let mut flipped = sealed.to_vec();
        flipped[width + 9] ^= 1;
        assert!(data.open(&flipped, 64).is_err());
        let other = key(3).data(Tag([2; 16])).unwrap();
        assert!(other.open(&sealed, 64).is_err(), "of other data");
        assert_ne!(other.seal(&plain, 64).unwrap(), sealed);
        assert_eq!(data.seal(&[], 0).unwrap().len(), 0);
    }
}
