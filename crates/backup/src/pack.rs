//! Packs: sealed blobs one behind the other, then a sealed header that lists them, then the header's length (u32, little endian).
//!
//! An entry of the header: type (u8: 0 data, 1 tree, 2 compressed data, 3 compressed tree), length of the sealed blob (u32),
//! of a compressed one its uncompressed length (u32), SHA-256 of the blob (32 bytes). Data and trees are in packs of
//! their own.

use crate::forms::{Id, IndexBlob, Kind};
use crate::seal::Key;
use crate::{Error, Result};
use io::Random;

/// A pack that has so much is written.
pub const TARGET: usize = 16 << 20;
const COMPRESSED: u8 = 2;
const LENGTH: usize = 4;
const ENTRY: usize = 1 + 4 + 32;
const ENTRY_COMPRESSED: usize = ENTRY + 4;

/// A pack that is being filled.
#[derive(Debug, Default)]
pub struct Pack {
    bytes: Vec<u8>,
    blobs: Vec<IndexBlob>,
}

impl Pack {
    pub fn is_full(&self) -> bool {
        self.bytes.len() >= TARGET
    }

    pub fn is_empty(&self) -> bool {
        self.blobs.is_empty()
    }

    pub fn push(&mut self, id: Id, kind: Kind, sealed: &[u8], uncompressed_length: Option<u32>) {
        self.blobs.push(IndexBlob {
            id,
            kind,
            offset: self.bytes.len() as u32,
            length: sealed.len() as u32,
            uncompressed_length,
        });
        self.bytes.extend_from_slice(sealed);
    }

    /// The file, and what the index says of it.
    pub fn finish(mut self, key: &Key, random: &dyn Random) -> Result<(Vec<u8>, Vec<IndexBlob>)> {
        let header = key.seal(&header(&self.blobs), random)?;
        self.bytes.extend_from_slice(&header);
        self.bytes.extend_from_slice(&(header.len() as u32).to_le_bytes());
        Ok((self.bytes, self.blobs))
    }
}

fn header(blobs: &[IndexBlob]) -> Vec<u8> {
    let mut out = Vec::with_capacity(blobs.len() * ENTRY_COMPRESSED);
    for blob in blobs {
        let kind = match blob.kind {
            Kind::Data => 0,
            Kind::Tree => 1,
        };
        match blob.uncompressed_length {
            None => {
                out.push(kind);
                out.extend_from_slice(&blob.length.to_le_bytes());
            }
            Some(length) => {
                out.push(kind | COMPRESSED);
                out.extend_from_slice(&blob.length.to_le_bytes());
                out.extend_from_slice(&length.to_le_bytes());
            }
        }
        out.extend_from_slice(&blob.id.0);
    }
    out
}

/// How long the file is that has these blobs.
pub fn length(blobs: &[IndexBlob]) -> u64 {
    let entry = |b: &IndexBlob| match b.uncompressed_length {
        None => ENTRY,
        Some(_) => ENTRY_COMPRESSED,
    };
    let sum: u64 = blobs.iter().map(|b| u64::from(b.length) + entry(b) as u64).sum();
    sum + (crate::seal::OVERHEAD + LENGTH) as u64
}

/// What the file says that it has.
pub fn read(bytes: &[u8], key: &Key) -> Result<Vec<IndexBlob>> {
    let bad = || Error::damaged("a pack whose header cannot be read");
    let (rest, length) = bytes.split_last_chunk::<LENGTH>().ok_or_else(bad)?;
    let length = u32::from_le_bytes(*length) as usize;
    let at = rest.len().checked_sub(length).ok_or_else(bad)?;
    let plain = key.open(&rest[at..])?.ok_or_else(bad)?;
    let blobs = entries(&plain).ok_or_else(bad)?;
    let sum: u64 = blobs.iter().map(|b| u64::from(b.length)).sum();
    match sum == at as u64 {
        true => Ok(blobs),
        false => Err(bad()),
    }
}

fn entries(mut plain: &[u8]) -> Option<Vec<IndexBlob>> {
    let mut blobs = Vec::new();
    let mut offset = 0u32;
    while let Some((kind, rest)) = plain.split_first() {
        let number = |at: usize| Some(u32::from_le_bytes(rest.get(at..at + 4)?.try_into().ok()?));
        let length = number(0)?;
        let (uncompressed_length, at) = match kind & COMPRESSED {
            0 => (None, 4),
            _ => (Some(number(4)?), 8),
        };
        let kind = match kind {
            0 | 2 => Kind::Data,
            1 | 3 => Kind::Tree,
            _ => return None,
        };
        blobs.push(IndexBlob {
            id: Id(rest.get(at..at + 32)?.try_into().ok()?),
            kind,
            offset,
            length,
            uncompressed_length,
        });
        offset = offset.checked_add(length)?;
        plain = &rest[at + 32..];
    }
    Some(blobs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pack_says_what_it_has() {
        let random = io::SystemRandom;
        let key = Key::random(&random);
        let mut pack = Pack::default();
        for (n, long) in [(0u8, None), (1, Some(1000)), (2, None)] {
            let sealed = key.seal(&[n; 50], &random).unwrap();
            pack.push(Id::of(&[n]), Kind::Data, &sealed, long);
        }
        let (bytes, blobs) = pack.finish(&key, &random).unwrap();
        assert_eq!(bytes.len() as u64, length(&blobs));
        assert_eq!(read(&bytes, &key).unwrap(), blobs);
        assert!(read(&bytes[1..], &key).is_err());
        assert!(read(&bytes[..bytes.len() - 1], &key).is_err());
        assert!(read(&[], &key).is_err());
        assert_eq!(entries(&[9; 50]), None);
        assert_eq!(entries(&[0; 10]), None);
    }
}
