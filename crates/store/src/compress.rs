//! Compression of data: which runs of blocks become *blobs*, and the way there and back.
//!
//! Vocabulary: a *blob* is a run of an object's blocks, compressed together and kept in fewer blocks of the file.
//! It is never changed: what is written over a part of it goes elsewhere, and the rest of it is still read from it
//! until nothing is.
//!
//! Invariants: a blob takes fewer blocks than what it stands for, and stands for at most [`BLOB_BLOCKS_MAX`]; so a read
//! unpacks a bounded number of bytes, into memory that was sized before any of the compressed bytes was looked at. What a
//! disk may give is any bytes: they give an error and no more.
//!
//! Not here: whose data is to be compressed, and by what (the owner says so with each transaction).

use crate::codec::{Bad, Decoded, Input, put_u};
use crate::onode::BLOCK;

/// The most blocks that one blob stands for. A block of it that is read costs unpacking all of it.
pub const BLOB_BLOCKS_MAX: u64 = 128;
// They are counted in a byte.
const _: () = assert!(BLOB_BLOCKS_MAX <= u8::MAX as u64);
/// Ceph's default, fast rather than small.
const ZSTD_LEVEL: i32 = 1;
const ZLIB_LEVEL: u8 = 5;

/// How a blob is compressed; the numbers are on disks, and Ceph's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Algorithm {
    Snappy = 1,
    Zlib = 2,
    Zstd = 3,
    Lz4 = 4,
}

/// By the names that options have for them.
const ALGORITHMS: [(Algorithm, &str); 4] = [
    (Algorithm::Snappy, "snappy"),
    (Algorithm::Zlib, "zlib"),
    (Algorithm::Zstd, "zstd"),
    (Algorithm::Lz4, "lz4"),
];

impl Algorithm {
    pub const ALL: [Self; 4] = [Self::Snappy, Self::Zlib, Self::Zstd, Self::Lz4];

    pub fn named(name: &str) -> Option<Self> {
        ALGORITHMS.iter().find(|(_, n)| *n == name).map(|(a, _)| *a)
    }

    fn numbered(n: u8) -> Decoded<Self> {
        let found = Self::ALL.into_iter().find(|a| *a as u8 == n);
        found.ok_or(Bad("blob of unknown compression"))
    }
}

/// What a transaction's data is to be compressed by.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Compression {
    pub algorithm: Algorithm,
    /// Shorter runs stay as they are. Bytes.
    pub min_blob: u64,
    /// Bytes of an object that are compressed together.
    pub max_blob: u64,
    /// What a blob takes of the disk is at most this part of what it stands for.
    pub required_ratio: f64,
}

impl Compression {
    /// Blocks of a blob; one that would be shorter than two could save nothing.
    pub fn blob_blocks(&self) -> u64 {
        (self.max_blob / BLOCK).clamp(2, BLOB_BLOCKS_MAX)
    }

    /// Whether a run of whole blocks is long enough.
    pub fn takes(&self, bytes: u64) -> bool {
        bytes >= self.min_blob.max(2 * BLOCK)
    }

    /// The most blocks that a blob may take in the place of `blocks`.
    fn blocks_max(&self, blocks: u64) -> u64 {
        let part = (blocks as f64 * self.required_ratio) as u64;
        part.min(blocks - 1)
    }
}

/// What an extent says of the blob that it is a part of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Blob {
    pub algorithm: Algorithm,
    /// Blocks of the blob before the extent's first.
    pub skip: u8,
    /// Blocks that it stands for.
    pub blocks: u8,
    /// Its compressed bytes, in parts so that an extent stays small.
    bytes: [u8; 4],
}

impl Blob {
    pub fn new(algorithm: Algorithm, blocks: u8, bytes: u32) -> Self {
        Self {
            algorithm,
            skip: 0,
            blocks,
            bytes: bytes.to_le_bytes(),
        }
    }

    /// The part of it that begins `skip` blocks later.
    pub fn behind(self, skip: u8) -> Self {
        Self {
            skip: self.skip + skip,
            ..self
        }
    }

    /// What its parts have in common.
    pub fn whole(self) -> Self {
        Self { skip: 0, ..self }
    }

    pub fn bytes(&self) -> u64 {
        u64::from(u32::from_le_bytes(self.bytes))
    }

    /// Blocks of the file that it takes.
    pub fn disk_blocks(&self) -> u64 {
        self.bytes().div_ceil(BLOCK)
    }

    pub fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[self.algorithm as u8, self.skip, self.blocks]);
        put_u(out, self.bytes());
    }

    /// Refuses what no blob of `len` blocks' use can be.
    pub fn get(r: &mut Input, len: u64) -> Decoded<Self> {
        let algorithm = Algorithm::numbered(r.u8()?)?;
        let (skip, blocks) = (r.u8()?, r.u8()?);
        let bytes = u32::try_from(r.u()?).map_err(|_| Bad("blob"))?;
        let blob = Self {
            skip,
            ..Self::new(algorithm, blocks, bytes)
        };
        let within = len > 0 && len <= u64::from(blocks) && u64::from(skip) <= u64::from(blocks) - len;
        let smaller = bytes > 0 && blob.disk_blocks() < u64::from(blocks);
        match within && smaller && u64::from(blocks) <= BLOB_BLOCKS_MAX {
            true => Ok(blob),
            false => Err(Bad("blob")),
        }
    }
}

/// The contexts of the libraries that are worth keeping between two blobs; each is made when it is first needed.
#[derive(Default)]
pub struct Codecs {
    zstd: Option<zstd::bulk::Compressor<'static>>,
    unzstd: Option<zstd::bulk::Decompressor<'static>>,
    snappy: Option<snap::raw::Encoder>,
    /// What is compressed comes here first: a sixth longer than the largest blob, and some bytes.
    room: Vec<u8>,
}

impl std::fmt::Debug for Codecs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Codecs")
    }
}

impl Codecs {
    /// Compresses whole blocks, if that saves as much as it shall: the blob, and its bytes filled up with zeros to whole
    /// blocks.
    pub fn pack(&mut self, c: &Compression, data: &[u8]) -> Option<(Blob, Vec<u8>)> {
        let blocks = data.len() as u64 / BLOCK;
        let max = (c.blocks_max(blocks) * BLOCK) as usize;
        if max == 0 {
            return None;
        }
        let n = self.compress(c.algorithm, data)?;
        let bytes = u32::try_from(n).ok().filter(|n| *n > 0)?;
        let packed = self.room.get(..n.min(max)).filter(|p| p.len() == n)?;
        let blob = Blob::new(c.algorithm, u8::try_from(blocks).ok()?, bytes);
        let len = (blob.disk_blocks() * BLOCK) as usize;
        let mut out = Vec::with_capacity(len);
        out.extend_from_slice(packed);
        out.resize(len, 0);
        Some((blob, out))
    }

    /// Compresses into `room`; how many bytes that are.
    fn compress(&mut self, algorithm: Algorithm, data: &[u8]) -> Option<usize> {
        let most = lz4_flex::block::get_maximum_output_size(data.len());
        let most = most.max(snap::raw::max_compress_len(data.len()));
        if self.room.len() < most {
            self.room.resize(most, 0);
        }
        let room = &mut self.room;
        match algorithm {
            Algorithm::Lz4 => lz4_flex::block::compress_into(data, room).ok(),
            Algorithm::Zstd => {
                if self.zstd.is_none() {
                    self.zstd = zstd::bulk::Compressor::new(ZSTD_LEVEL).ok();
                }
                self.zstd.as_mut()?.compress_to_buffer(data, &mut room[..]).ok()
            }
            Algorithm::Snappy => {
                let codec = self.snappy.get_or_insert_with(snap::raw::Encoder::new);
                codec.compress(data, room).ok()
            }
            Algorithm::Zlib => {
                self.room = miniz_oxide::deflate::compress_to_vec_zlib(data, ZLIB_LEVEL);
                Some(self.room.len())
            }
        }
    }

    /// Unpacks a blob, of whose blocks on the disk `packed` are the bytes.
    pub fn unpack(&mut self, blob: &Blob, packed: &[u8]) -> Decoded<Vec<u8>> {
        const NOT: Bad = Bad("a blob that does not unpack");
        let packed = packed.get(..blob.bytes() as usize).ok_or(NOT)?;
        let mut out = vec![0; (u64::from(blob.blocks) * BLOCK) as usize];
        let n = match blob.algorithm {
            Algorithm::Lz4 => lz4_flex::block::decompress_into(packed, &mut out).map_err(|_| NOT)?,
            Algorithm::Zstd => {
                if self.unzstd.is_none() {
                    self.unzstd = zstd::bulk::Decompressor::new().ok();
                }
                let codec = self.unzstd.as_mut().ok_or(NOT)?;
                codec
                    .decompress_to_buffer(packed, &mut out[..])
                    .map_err(|_| NOT)?
            }
            Algorithm::Snappy => {
                if snap::raw::decompress_len(packed).map_err(|_| NOT)? != out.len() {
                    return Err(NOT);
                }
                snap::raw::Decoder::new()
                    .decompress(packed, &mut out)
                    .map_err(|_| NOT)?
            }
            Algorithm::Zlib => unzlib(packed, &mut out).ok_or(NOT)?,
        };
        match n == out.len() {
            true => Ok(out),
            false => Err(NOT),
        }
    }
}

fn unzlib(packed: &[u8], out: &mut [u8]) -> Option<usize> {
    use miniz_oxide::inflate::TINFLStatus;
    use miniz_oxide::inflate::core::{DecompressorOxide, decompress, inflate_flags};
    let flags =
        inflate_flags::TINFL_FLAG_PARSE_ZLIB_HEADER | inflate_flags::TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF;
    let (status, _, n) = decompress(&mut DecompressorOxide::new(), packed, out, 0, flags);
    (status == TINFLStatus::Done).then_some(n)
}

#[cfg(test)]
mod tests {
    use super::*;
    use io::disk::sim::Dice;

    fn policy(algorithm: Algorithm) -> Compression {
        Compression {
            algorithm,
            min_blob: 8192,
            max_blob: 65536,
            required_ratio: 0.875,
        }
    }

    fn text(len: usize) -> Vec<u8> {
        let words = ["alpha ", "beta ", "gamma ", "delta\n"];
        let mut dice = Dice::new(len as u64);
        let mut out = Vec::new();
        while out.len() < len {
            out.extend_from_slice(words[dice.below(4) as usize].as_bytes());
        }
        out.truncate(len);
        out
    }

    fn noise(len: usize) -> Vec<u8> {
        let mut dice = Dice::new(7);
        (0..len).map(|_| dice.below(256) as u8).collect()
    }

    #[test]
    fn what_is_packed_comes_back() {
        let mut codecs = Codecs::default();
        for a in Algorithm::ALL {
            for data in [text(65536), text(8192), vec![0; 65536], vec![3; 12288]] {
                let (blob, packed) = codecs.pack(&policy(a), &data).unwrap();
                assert_eq!(packed.len() as u64, blob.disk_blocks() * BLOCK);
                assert!(packed.len() * 8 <= data.len() * 7, "{a:?}: {}", packed.len());
                assert_eq!(codecs.unpack(&blob, &packed), Ok(data), "{a:?}");
            }
        }
    }

    #[test]
    fn what_saves_too_little_is_not_packed() {
        let mut codecs = Codecs::default();
        for a in Algorithm::ALL {
            assert!(codecs.pack(&policy(a), &noise(65536)).is_none(), "{a:?}");
            // Half of it noise: a half is not enough where a quarter is asked for.
            let half = [noise(32768), vec![0; 32768]].concat();
            let strict = Compression {
                required_ratio: 0.25,
                ..policy(a)
            };
            assert!(codecs.pack(&strict, &half).is_none(), "{a:?}");
            assert!(codecs.pack(&policy(a), &half).is_some(), "{a:?}");
            let never = Compression {
                required_ratio: 0.0,
                ..policy(a)
            };
            assert!(codecs.pack(&never, &text(65536)).is_none());
        }
    }

    /// Whatever a disk gives in the place of a blob: an error, or as many bytes as the blob stands for.
    #[test]
    fn any_bytes_unpack_to_an_error_or_to_the_right_length() {
        let mut codecs = Codecs::default();
        let mut dice = Dice::new(1);
        for a in Algorithm::ALL {
            let (blob, packed) = codecs.pack(&policy(a), &text(65536)).unwrap();
            for _ in 0..400 {
                let mut bad = packed.clone();
                for _ in 0..1 + dice.below(4) {
                    let at = dice.below(blob.bytes()) as usize;
                    bad[at] = dice.below(256) as u8;
                }
                let blocks = [blob.blocks, 1 + dice.below(128) as u8][dice.below(2) as usize];
                let bytes = 1 + dice.below(packed.len() as u64) as u32;
                let claimed = [blob, Blob::new(a, blocks, bytes)][dice.below(2) as usize];
                if let Ok(out) = codecs.unpack(&claimed, &bad) {
                    assert_eq!(out.len() as u64, u64::from(claimed.blocks) * BLOCK);
                }
            }
            assert!(codecs.unpack(&blob, &[]).is_err());
            // Claims to be more, and less, than it is: what does not fit is not written.
            for blocks in [1, blob.blocks - 1, blob.blocks + 1, 128] {
                let other = Blob::new(a, blocks, blob.bytes() as u32);
                assert!(codecs.unpack(&other, &packed).is_err(), "{a:?} as {blocks}");
            }
            assert!(codecs.unpack(&blob, &noise(packed.len())).is_err());
        }
    }

    #[test]
    fn a_blob_that_cannot_be_is_refused() {
        let read = |raw: &[u8], len| Blob::get(&mut Input::new(raw.to_vec().into()), len);
        let mut raw = Vec::new();
        let blob = Blob {
            skip: 3,
            ..Blob::new(Algorithm::Zstd, 16, 5000)
        };
        blob.put(&mut raw);
        assert_eq!(read(&raw, 13), Ok(blob));
        assert!(read(&raw, 14).is_err() && read(&raw, 0).is_err() && read(&raw, u64::MAX).is_err());
        // No such algorithm, more blocks than there may be, none saved, no bytes.
        for bad in [
            [9, 0, 16, 1],
            [3, 0, 129, 1],
            [3, 0, 1, 1],
            [3, 0, 16, 0],
            [0, 0, 16, 1],
        ] {
            assert!(read(&bad, 1).is_err(), "{bad:?}");
        }
        for cut in 0..raw.len() {
            assert!(read(&raw[..cut], 13).is_err());
        }
    }
}
