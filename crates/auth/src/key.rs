//! Keys of type 1 (AES-128) and what they do: the text form, sealing in cephx's envelope, the proof of
//! knowledge from two challenges, signatures, and sealing what only Skep itself reads again.
//!
//! Envelope: `E(key, T) = AES-128-CBC(u8 1, u64 magic, T)`, fixed IV, PKCS#7 padding. The magic is how a
//! reader knows that its key was the right one (docs/protocol/auth.md). It is no proof that nobody changed `T`: whoever
//! holds the bytes can flip any bit behind the first block. So nothing that others hand back to us is sealed like that,
//! but with [`CryptoKey::guard`], which shows every change.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::cipher::{
    AES_128, DecryptionContext, EncryptionContext, PaddedBlockDecryptingKey, PaddedBlockEncryptingKey,
    UnboundCipherKey,
};
use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::hmac;
use base64::Engine;
use denc::{Bytes, Decode, Encode, Reader, Writer};
use std::fmt;
use types::Utime;

/// Bytes of a type 1 secret.
pub const SECRET_LEN: usize = 16;
const TYPE_AES128: u16 = 1;
const IV: &[u8; 16] = b"cephsageyudagreg";
const MAGIC: u64 = 0xff00_9cad_8826_aa55;
/// From a secret comes the key of [`CryptoKey::guard`]: the same secret sealed with CBC in earlier versions.
const GUARD_LABEL: &[u8] = b"skep guarded blob, AES-256-GCM";
/// Bytes of the nonce of a guarded blob. It must never come twice with one key; drawn by chance it does not within the
/// life of a rotating secret.
pub const GUARD_NONCE_LEN: usize = NONCE_LEN;

/// Compares two challenges or proofs in constant time.
pub(crate) fn same_u64(a: u64, b: u64) -> bool {
    verify_slices_are_equal(&a.to_le_bytes(), &b.to_le_bytes()).is_ok()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CryptError {
    #[error("cannot be decrypted with this key")]
    WrongKey,
    #[error("decrypted but malformed")]
    Malformed,
    #[error("not a ticket of the form that is made now")]
    NotATicket,
    #[error("not a key in base64 form")]
    NotAKey,
}

/// A key of type 1. `created` is informational.
#[derive(Clone, PartialEq, Eq)]
pub struct CryptoKey {
    pub created: Utime,
    secret: [u8; SECRET_LEN],
}

impl CryptoKey {
    /// A key of 16 bytes that nobody can predict.
    pub fn new(secret: [u8; SECRET_LEN], created: Utime) -> Self {
        Self { created, secret }
    }

    pub fn secret(&self) -> &[u8; SECRET_LEN] {
        &self.secret
    }

    /// From the text of a keyring (base64 of the encoded key).
    pub fn from_text(text: &str) -> Result<Self, CryptError> {
        let raw = base64::engine::general_purpose::STANDARD
            .decode(text.trim())
            .map_err(|_| CryptError::NotAKey)?;
        let mut r = Reader::from_slice(&raw);
        let key = Self::decode(&mut r).map_err(|_| CryptError::NotAKey)?;
        if !r.is_empty() {
            return Err(CryptError::NotAKey);
        }
        Ok(key)
    }

    /// The text of a keyring: 40 characters.
    pub fn to_text(&self) -> String {
        base64::engine::general_purpose::STANDARD.encode(self.to_bytes())
    }

    pub fn encrypt(&self, plain: &[u8]) -> Vec<u8> {
        let mut out = plain.to_vec();
        // Key and IV have the sizes that the cipher asks for, so neither call can fail.
        let key = UnboundCipherKey::new(&AES_128, &self.secret).expect("16 byte key");
        let key = PaddedBlockEncryptingKey::cbc_pkcs7(key).expect("AES-128-CBC");
        key.less_safe_encrypt(&mut out, EncryptionContext::Iv128(IV.into()))
            .expect("encryption in memory");
        out
    }

    pub fn decrypt(&self, cipher: &[u8]) -> Result<Bytes, CryptError> {
        let mut buf = cipher.to_vec();
        let key = UnboundCipherKey::new(&AES_128, &self.secret).map_err(|_| CryptError::WrongKey)?;
        let key = PaddedBlockDecryptingKey::cbc_pkcs7(key).map_err(|_| CryptError::WrongKey)?;
        let n = key
            .decrypt(&mut buf, DecryptionContext::Iv128(IV.into()))
            .map_err(|_| CryptError::WrongKey)?
            .len();
        buf.truncate(n);
        Ok(buf.into())
    }

    /// `E(self, body)`, without a length in front.
    pub fn seal(&self, body: impl FnOnce(&mut Writer)) -> Vec<u8> {
        let mut w = Writer::new();
        w.u8(1);
        w.u64(MAGIC);
        body(&mut w);
        self.encrypt(w.as_slice())
    }

    /// Reads the body of `E(self, body)`.
    pub fn open<T>(
        &self,
        cipher: &[u8],
        body: impl FnOnce(&mut Reader) -> denc::Result<T>,
    ) -> Result<T, CryptError> {
        let mut r = Reader::new(self.decrypt(cipher)?);
        let version = r.u8().map_err(|_| CryptError::WrongKey)?;
        if version != 1 || r.u64() != Ok(MAGIC) {
            return Err(CryptError::WrongKey);
        }
        body(&mut r).map_err(|_| CryptError::Malformed)
    }

    fn guard_key(&self) -> LessSafeKey {
        let key = self.sign(GUARD_LABEL);
        // The key has the algorithm's length.
        LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &key).expect("32 byte key"))
    }

    /// AES-256-GCM under a key made from this one: ciphertext and tag. `clear` is authenticated with it.
    pub fn guard(&self, nonce: [u8; GUARD_NONCE_LEN], clear: &[u8], plain: &[u8]) -> Vec<u8> {
        let mut out = plain.to_vec();
        // Fails only for texts of many GiB.
        self.guard_key()
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(clear), &mut out)
            .expect("encryption in memory");
        out
    }

    /// The text of [`Self::guard`], if neither it nor `clear` was changed.
    pub fn unguard(
        &self,
        nonce: [u8; GUARD_NONCE_LEN],
        clear: &[u8],
        sealed: &[u8],
    ) -> Result<Bytes, CryptError> {
        let mut buf = sealed.to_vec();
        let n = self
            .guard_key()
            .open_in_place(Nonce::assume_unique_for_key(nonce), Aad::from(clear), &mut buf)
            .map_err(|_| CryptError::WrongKey)?
            .len();
        buf.truncate(n);
        Ok(buf.into())
    }

    /// The client's answer to the monitor's challenge: the XOR of the whole words of the sealed
    /// challenges, the length prefix included (so the last four bytes are left over).
    pub fn proof(&self, server_challenge: u64, client_challenge: u64) -> u64 {
        let sealed = self.seal(|w| {
            w.u64(server_challenge);
            w.u64(client_challenge);
        });
        let mut w = Writer::new();
        w.blob(&sealed);
        w.as_slice().chunks_exact(8).fold(0, |acc, word| {
            acc ^ word.iter().rev().fold(0, |v, b| v << 8 | *b as u64)
        })
    }

    /// What a message of messenger v1 is signed with: the XOR of the four words of the encrypted 32 bytes.
    pub fn sign_v1(&self, words: [u32; 8]) -> u64 {
        let mut plain = [0; 32];
        for (at, word) in plain.chunks_exact_mut(4).zip(words) {
            at.copy_from_slice(&word.to_le_bytes());
        }
        let sealed = self.encrypt(&plain);
        let words = sealed.chunks_exact(8).take(4);
        words.fold(0, |acc, word| {
            acc ^ word.iter().rev().fold(0, |v, b| v << 8 | *b as u64)
        })
    }

    /// HMAC-SHA256, as AUTH_SIGNATURE carries it.
    pub fn sign(&self, data: &[u8]) -> [u8; 32] {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.secret);
        let mut out = [0; 32];
        out.copy_from_slice(hmac::sign(&key, data).as_ref());
        out
    }

    /// Compares in constant time.
    pub fn verify(&self, data: &[u8], signature: &[u8]) -> bool {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.secret);
        hmac::verify(&key, data, signature).is_ok()
    }
}

impl Encode for CryptoKey {
    fn encode(&self, w: &mut Writer) {
        w.u16(TYPE_AES128);
        w.put(&self.created);
        w.u16(SECRET_LEN as u16);
        w.raw(&self.secret);
    }
}

impl Decode for CryptoKey {
    const MIN_SIZE: usize = 28;
    fn decode(r: &mut Reader) -> denc::Result<Self> {
        if r.u16()? != TYPE_AES128 {
            return Err(r.invalid("key is not of type 1 (AES-128)"));
        }
        let created = r.get()?;
        if r.u16()? as usize != SECRET_LEN {
            return Err(r.invalid("key of type 1 without 16 bytes"));
        }
        Ok(Self {
            created,
            secret: r.array()?,
        })
    }
}

impl fmt::Debug for CryptoKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CryptoKey(created {})", self.created)
    }
}
