//! How restic seals bytes: `IV (16) || AES-256-CTR of the bytes || Poly1305-AES tag (16)`.
//!
//! The tag is Poly1305 over the sealed bytes under the one-time key `r || AES-128(k, IV)`. Every IV is random.

use crate::{Error, Result};
use aws_lc_rs::cipher::{AES_128, AES_256, EncryptingKey, EncryptionContext, UnboundCipherKey};
use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::iv::FixedLength;
use io::Random;
use poly1305::Poly1305;
use poly1305::universal_hash::KeyInit;

pub const IV: usize = 16;
pub const TAG: usize = 16;
/// What sealing adds.
pub const OVERHEAD: usize = IV + TAG;

/// The keys of a repository, or those that a password gives.
#[derive(Clone, PartialEq, Eq)]
pub struct Key {
    pub encrypt: [u8; 32],
    pub mac_k: [u8; 16],
    pub mac_r: [u8; 16],
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key")
    }
}

fn broken<E>(_: E) -> Error {
    Error::refused("the library of ciphers refused keys or lengths that are right")
}

impl Key {
    pub fn random(random: &dyn Random) -> Self {
        Self {
            encrypt: random.bytes(),
            mac_k: random.bytes(),
            mac_r: random.bytes(),
        }
    }

    /// Of the 64 bytes that scrypt gives.
    pub fn of_bytes(bytes: &[u8; 64]) -> Self {
        let mut key = Self {
            encrypt: [0; 32],
            mac_k: [0; 16],
            mac_r: [0; 16],
        };
        key.encrypt.copy_from_slice(&bytes[..32]);
        key.mac_k.copy_from_slice(&bytes[32..48]);
        key.mac_r.copy_from_slice(&bytes[48..]);
        key
    }

    pub fn seal(&self, plain: &[u8], random: &dyn Random) -> Result<Vec<u8>> {
        self.seal_with(plain, random.bytes())
    }

    fn seal_with(&self, plain: &[u8], iv: [u8; IV]) -> Result<Vec<u8>> {
        let mut out = Vec::with_capacity(plain.len() + OVERHEAD);
        out.extend_from_slice(&iv);
        out.extend_from_slice(plain);
        self.ctr(&mut out[IV..], iv)?;
        let tag = self.tag(&out[IV..], iv)?;
        out.extend_from_slice(&tag);
        Ok(out)
    }

    /// None: they are not what was sealed with this key.
    pub fn open(&self, sealed: &[u8]) -> Result<Option<Vec<u8>>> {
        let Some((iv, rest)) = sealed.split_first_chunk::<IV>() else {
            return Ok(None);
        };
        let Some((body, tag)) = rest.split_last_chunk::<TAG>() else {
            return Ok(None);
        };
        if verify_slices_are_equal(&self.tag(body, *iv)?, tag).is_err() {
            return Ok(None);
        }
        let mut plain = body.to_vec();
        self.ctr(&mut plain, *iv)?;
        Ok(Some(plain))
    }

    /// In counter mode both directions are the same.
    fn ctr(&self, bytes: &mut [u8], iv: [u8; IV]) -> Result<()> {
        let key = UnboundCipherKey::new(&AES_256, &self.encrypt).map_err(broken)?;
        let key = EncryptingKey::ctr(key).map_err(broken)?;
        let context = EncryptionContext::Iv128(FixedLength::from(iv));
        key.less_safe_encrypt(bytes, context).map_err(broken)?;
        Ok(())
    }

    fn tag(&self, body: &[u8], iv: [u8; IV]) -> Result<[u8; TAG]> {
        let mut block = iv;
        let key = UnboundCipherKey::new(&AES_128, &self.mac_k).map_err(broken)?;
        let key = EncryptingKey::ecb(key).map_err(broken)?;
        key.encrypt(&mut block).map_err(broken)?;
        let mut once = [0; 32];
        once[..16].copy_from_slice(&self.mac_r);
        once[16..].copy_from_slice(&block);
        let mac = Poly1305::new_from_slice(&once).map_err(broken)?;
        Ok(mac.compute_unpadded(body).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes<const N: usize>(hex: &str) -> [u8; N] {
        hex::decode(hex).unwrap().try_into().unwrap()
    }

    /// The second example of "The Poly1305-AES message-authentication code" (D. J. Bernstein), appendix B.
    #[test]
    fn tags_of_the_paper() {
        let key = Key {
            encrypt: [0; 32],
            mac_k: bytes("75deaa25c09f208e1dc4ce6b5cad3fbf"),
            mac_r: bytes("a0f3080000f46400d0c7e9076c834403"),
        };
        let iv = bytes("61ee09218d29b0aaed7e154a2c5509cc");
        assert_eq!(
            key.tag(&[], iv).unwrap(),
            bytes("dd3fab2251f11ac759f0887129cc2ee7")
        );
    }

    #[test]
    fn only_what_was_sealed_opens() {
        let random = io::SystemRandom;
        let key = Key::random(&random);
        for length in [0, 1, 15, 16, 17, 1000] {
            let plain = vec![7; length];
            let sealed = key.seal(&plain, &random).unwrap();
            assert_eq!(sealed.len(), length + OVERHEAD);
            assert_eq!(key.open(&sealed).unwrap(), Some(plain));
            for at in [0, IV, sealed.len() - 1] {
                let mut bad = sealed.clone();
                bad[at] ^= 1;
                assert_eq!(key.open(&bad).unwrap(), None, "{length}, {at}");
            }
            assert_eq!(Key::random(&random).open(&sealed).unwrap(), None);
            assert_eq!(key.open(&sealed[..sealed.len() - 1]).unwrap(), None);
        }
        assert_eq!(key.open(&[0; 5]).unwrap(), None);
    }
}
