//! AES-128-GCM of one direction: the key, the running nonce, and when it must not run on.
//!
//! Nonce, 12 bytes, used and then incremented: in revision 2.1 bytes 4..11 are a little-endian counter, in
//! revision 2.0 bytes 0..3. When it would come back to its first value the connection must end.

use crate::{Error, Revision};
use auth::ConnectionSecret;
use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::cipher::{AES_128, DecryptingKey, DecryptionContext, UnboundCipherKey};

pub(crate) const TAG_LEN: usize = 16;

pub(crate) struct Gcm {
    key: LessSafeKey,
    raw_key: [u8; 16],
    nonce: [u8; 12],
    first: [u8; 12],
    revision: Revision,
    used_up: bool,
}

fn part<const N: usize>(secret: &ConnectionSecret, at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&secret.0[at..at + N]);
    out
}

impl Gcm {
    pub fn server_to_client(secret: &ConnectionSecret, revision: Revision) -> Self {
        Self::new(part(secret, 0), part(secret, 16), revision)
    }

    pub fn client_to_server(secret: &ConnectionSecret, revision: Revision) -> Self {
        Self::new(part(secret, 0), part(secret, 28), revision)
    }

    fn new(raw_key: [u8; 16], first: [u8; 12], revision: Revision) -> Self {
        // The key has the algorithm's length.
        let key = UnboundKey::new(&AES_128_GCM, &raw_key).expect("16 byte key");
        Self {
            key: LessSafeKey::new(key),
            raw_key,
            nonce: first,
            first,
            revision,
            used_up: false,
        }
    }

    fn next_nonce(&mut self) -> Result<Nonce, Error> {
        if self.used_up {
            return Err(Error::NoncesUsedUp);
        }
        let nonce = Nonce::assume_unique_for_key(self.nonce);
        let counter = match self.revision {
            Revision::V21 => &mut self.nonce[4..12],
            Revision::V20 => &mut self.nonce[0..4],
        };
        for b in counter {
            *b = b.wrapping_add(1);
            if *b != 0 {
                break;
            }
        }
        self.used_up = self.nonce == self.first;
        Ok(nonce)
    }

    /// Encrypts in place and gives the tag that must follow.
    pub fn seal(&mut self, buf: &mut [u8]) -> Result<[u8; TAG_LEN], Error> {
        let nonce = self.next_nonce()?;
        let tag = self
            .key
            .seal_in_place_separate_tag(nonce, Aad::empty(), buf)
            .map_err(|_| Error::Decrypt)?;
        let mut out = [0; TAG_LEN];
        out.copy_from_slice(tag.as_ref());
        Ok(out)
    }

    /// Decrypts in place; the tag is the last 16 bytes and is left as it is.
    pub fn open(&mut self, buf: &mut [u8]) -> Result<(), Error> {
        let nonce = self.next_nonce()?;
        self.key
            .open_in_place(nonce, Aad::empty(), buf)
            .map(drop)
            .map_err(|_| Error::Decrypt)
    }

    /// The first 32 bytes of the operation to come, not yet authenticated: revision 2.0 needs the lengths
    /// in them to find the end of the frame.
    pub fn peek(&self, head: &mut [u8]) -> Result<(), Error> {
        let mut counter = [0; 16];
        counter[..12].copy_from_slice(&self.nonce);
        counter[15] = 2;
        let key = UnboundCipherKey::new(&AES_128, &self.raw_key).map_err(|_| Error::Decrypt)?;
        let key = DecryptingKey::ctr(key).map_err(|_| Error::Decrypt)?;
        key.decrypt(head, DecryptionContext::Iv128((&counter).into()))
            .map(drop)
            .map_err(|_| Error::Decrypt)
    }
}
