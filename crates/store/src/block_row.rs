//! What the index keeps of blocks: their checksums and further references, a row for each region of the file.

use crate::codec::Bad;
use bytes::Bytes;
use types::checksum::crc32c;

/// Blocks a row of the index' table `Blocks` speaks of.
pub const REGION: u64 = 64;
pub const CRC_BYTES: usize = 4 * REGION as usize;
// The format of rows that are on disks.
const _: () = assert!(REGION == 64 && CRC_BYTES == 256);

/// CRC-32C of a block's content.
pub fn block_crc(block: &[u8]) -> u32 {
    crc32c(!0, block)
}

/// One row of `Blocks`: 64 checksums, then, if any block is shared, 64 counts of further references.
#[derive(Debug, Clone, Default)]
pub struct BlockRow(Bytes);

impl BlockRow {
    pub fn new(raw: Bytes) -> std::result::Result<Self, Bad> {
        if raw.len() != CRC_BYTES && raw.len() != 2 * CRC_BYTES {
            return Err(Bad("block row of wrong size"));
        }
        Ok(Self(raw))
    }
    fn at(&self, i: usize) -> Option<u32> {
        let raw = self.0.get(4 * i..4 * i + 4)?;
        Some(u32::from_le_bytes([raw[0], raw[1], raw[2], raw[3]]))
    }
    pub fn crc(&self, block: u64) -> u32 {
        self.at((block % REGION) as usize).unwrap_or(0)
    }
    pub fn refs(&self, block: u64) -> u32 {
        self.at((REGION + block % REGION) as usize).unwrap_or(0)
    }
    pub fn values(&self) -> BlockValues {
        let n = REGION as usize;
        BlockValues {
            crcs: std::array::from_fn(|i| self.at(i).unwrap_or(0)),
            refs: std::array::from_fn(|i| self.at(n + i).unwrap_or(0)),
        }
    }
}

/// A row taken apart, to be changed.
#[derive(Debug)]
pub struct BlockValues {
    pub crcs: [u32; REGION as usize],
    pub refs: [u32; REGION as usize],
}

impl BlockValues {
    pub fn encode(&self) -> Vec<u8> {
        let shared = self.refs.iter().any(|n| *n > 0);
        let mut out = vec![0; if shared { 2 * CRC_BYTES } else { CRC_BYTES }];
        let values = self.crcs.iter().chain(&self.refs);
        for (place, v) in out.chunks_exact_mut(4).zip(values) {
            place.copy_from_slice(&v.to_le_bytes());
        }
        out
    }
}
