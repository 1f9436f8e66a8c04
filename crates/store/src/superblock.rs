//! The superblock: who the store belongs to and how it is laid out. Written by `mkfs`, as the last step, so that a
//! directory whose `mkfs` was cut short is not a store; and by the first open of a program that may use a feature from
//! then on which the store has not had so far.
//!
//! 4096 bytes at offset 0, a copy at offset 4096; little-endian:
//!
//! | at | size | what |
//! |---|---|---|
//! | 0 | 8 | magic `SKEPSTOR` |
//! | 8 | 4 | format version: 1 |
//! | 12 | 4 | osd id |
//! | 16 | 8 | incompatible features: an unknown bit means "do not open" |
//! | 24 | 8 | compatible features: unknown bits are ignored |
//! | 32 | 16 | fsid |
//! | 48 | 16 | osd uuid |
//! | 64 | 8 | offset of the log ring |
//! | 72 | 8 | length of the log ring |
//! | 80 | 8 | offset of the first data block (all multiples of 4096) |
//! | 88 | 4004 | zeros |
//! | 4092 | 4 | CRC-32C of the bytes before |

use crate::onode::BLOCK;
use crate::{Error, Identity, Options, Result};
use io::disk::DiskFile;
use types::Uuid;
use types::checksum::crc32c;

pub const SIZE: usize = 4096;
pub const FORMAT: u32 = 1;
/// The index file has a sum page before every 1024 pages (see `index::checked`).
pub const FEATURE_INDEX_SUMS: u64 = 1;
/// Objects' records may be of the second version, with values in rows of their own (see `onode`).
pub const FEATURE_VALUE_ROWS: u64 = 2;
/// Objects' data may be compressed: records of the third version, and steps of the log that make blobs (see `compress`). A
/// store gets it with its first blob.
pub const FEATURE_BLOBS: u64 = 4;
/// Those this program knows.
const FEATURES: u64 = FEATURES_NEW | FEATURE_BLOBS;
/// Those that a new store has.
const FEATURES_NEW: u64 = FEATURE_INDEX_SUMS | FEATURE_VALUE_ROWS;
/// Those that an older store gets when it is opened. The others say how it was made.
pub const FEATURES_AT_OPEN: u64 = FEATURE_VALUE_ROWS;
/// What each stands for.
pub const FEATURE_NAMES: [(u64, &str); 3] = [
    (FEATURE_INDEX_SUMS, "the index has sum pages"),
    (FEATURE_VALUE_ROWS, "values may lie beside their object's record"),
    (FEATURE_BLOBS, "data may be compressed"),
];
const _: () = assert!(FEATURE_NAMES[0].0 | FEATURE_NAMES[1].0 | FEATURE_NAMES[2].0 == FEATURES);
const MAGIC: &[u8; 8] = b"SKEPSTOR";
const LOG_OFFSET: u64 = 64 << 10;
/// The smallest log that holds a record of useful size.
pub const LOG_BYTES_MIN: u64 = 256 << 10;
const CRC_AT: usize = SIZE - 4;

/// Where each field lies, and that they follow one another.
mod at {
    pub const FORMAT: usize = 8;
    pub const OSD_ID: usize = 12;
    pub const FEATURES: usize = 16;
    pub const COMPATIBLE: usize = 24;
    pub const FSID: usize = 32;
    pub const OSD_UUID: usize = 48;
    pub const LOG_OFFSET: usize = 64;
    pub const LOG_BYTES: usize = 72;
    pub const DATA_OFFSET: usize = 80;
    pub const END: usize = 88;
}

const _: () = assert!(at::FORMAT == MAGIC.len());
const _: () = assert!(at::OSD_ID == at::FORMAT + size_of::<u32>());
const _: () = assert!(at::FEATURES == at::OSD_ID + size_of::<types::OsdId>());
const _: () = assert!(at::COMPATIBLE == at::FEATURES + size_of::<u64>());
const _: () = assert!(at::FSID == at::COMPATIBLE + size_of::<u64>());
const _: () = assert!(at::OSD_UUID == at::FSID + size_of::<Uuid>());
const _: () = assert!(at::LOG_OFFSET == at::OSD_UUID + size_of::<Uuid>());
const _: () = assert!(at::LOG_BYTES == at::LOG_OFFSET + size_of::<u64>());
const _: () = assert!(at::DATA_OFFSET == at::LOG_BYTES + size_of::<u64>());
const _: () = assert!(at::END == at::DATA_OFFSET + size_of::<u64>() && at::END <= CRC_AT);
// Both copies are blocks of their own, before the log; the log begins with a block.
const _: () = assert!(SIZE as u64 == BLOCK && 2 * BLOCK <= LOG_OFFSET);
const _: () = assert!(LOG_OFFSET.is_multiple_of(BLOCK) && LOG_BYTES_MIN.is_multiple_of(BLOCK));

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Superblock {
    pub identity: Identity,
    pub log_offset: u64,
    pub log_bytes: u64,
    pub data_offset: u64,
}

/// True if no store ever ran here: the first batch of the first life lies at the log's start, and from then
/// on some batch always does. A damaged superblock alone must not make a store look empty. A device must be
/// empty up to there: whatever else it holds is somebody's.
pub fn never_opened(file: &dyn DiskFile) -> bool {
    let from = if file.is_device() { 0 } else { LOG_OFFSET };
    let to = LOG_OFFSET + SIZE as u64;
    let mut first = vec![0; (to - from) as usize];
    match file.len() {
        Ok(n) if n >= to => file.read_at(&mut first, from).is_ok() && first.iter().all(|b| *b == 0),
        other => other.is_ok(),
    }
}

fn read_copy(file: &dyn DiskFile, copy: u64) -> std::io::Result<[u8; SIZE]> {
    let mut b = [0; SIZE];
    file.read_at(&mut b, copy * SIZE as u64)?;
    Ok(b)
}

fn seal(b: &mut [u8; SIZE]) {
    let crc = crc32c(!0, &b[..CRC_AT]);
    b[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
}

/// The numbers of the bits that are set, from 0 on.
fn bits(features: u64) -> String {
    let set = (0..u64::BITS).filter(|n| features >> n & 1 == 1);
    set.map(|n| n.to_string()).collect::<Vec<_>>().join(", ")
}

impl Superblock {
    pub fn new(options: &Options) -> Self {
        let log_bytes = options.log_bytes.max(LOG_BYTES_MIN).next_multiple_of(BLOCK);
        Self {
            identity: Identity {
                osd_id: options.osd_id,
                fsid: options.fsid,
                osd_uuid: options.osd_uuid,
                format: FORMAT,
                features: FEATURES_NEW,
            },
            log_offset: LOG_OFFSET,
            log_bytes,
            data_offset: LOG_OFFSET + log_bytes,
        }
    }

    pub fn encode(&self) -> [u8; SIZE] {
        let mut b = [0; SIZE];
        let mut put = |at: usize, v: &[u8]| b[at..at + v.len()].copy_from_slice(v);
        put(0, MAGIC);
        put(at::FORMAT, &self.identity.format.to_le_bytes());
        put(at::OSD_ID, &self.identity.osd_id.to_le_bytes());
        put(at::FEATURES, &self.identity.features.to_le_bytes());
        put(at::FSID, &self.identity.fsid.0);
        put(at::OSD_UUID, &self.identity.osd_uuid.0);
        put(at::LOG_OFFSET, &self.log_offset.to_le_bytes());
        put(at::LOG_BYTES, &self.log_bytes.to_le_bytes());
        put(at::DATA_OFFSET, &self.data_offset.to_le_bytes());
        seal(&mut b);
        b
    }

    /// Gives a store features that this program may use from now on, and earlier ones do not know; writes nothing where both
    /// copies have them. What this program does not know of the block stays as it is.
    pub fn add_features(&mut self, file: &dyn DiskFile, features: u64) -> std::io::Result<()> {
        let copies = [read_copy(file, 0)?, read_copy(file, 1)?];
        let whole = copies.iter().find(|b| Self::decode(b).is_some());
        let mut b = *whole.ok_or(std::io::ErrorKind::InvalidData)?;
        self.identity.features |= features;
        b[at::FEATURES..at::FEATURES + 8].copy_from_slice(&self.identity.features.to_le_bytes());
        seal(&mut b);
        // The first one last, since it is the one that is read: where it has the features the other has them, too. And one
        // by one, so that a torn write leaves a whole copy.
        for copy in [1, 0] {
            if copies[copy] != b {
                file.write_at(&b, (copy * SIZE) as u64)?;
                file.flush()?;
            }
        }
        Ok(())
    }

    /// None: not one (magic or checksum).
    fn decode(b: &[u8; SIZE]) -> Option<Self> {
        let u32_at = |at: usize| u32::from_le_bytes(b[at..at + 4].try_into().unwrap_or_default());
        let u64_at = |at: usize| u64::from_le_bytes(b[at..at + 8].try_into().unwrap_or_default());
        let uuid_at = |at: usize| Uuid(b[at..at + 16].try_into().unwrap_or_default());
        if &b[..8] != MAGIC || u32_at(CRC_AT) != crc32c(!0, &b[..CRC_AT]) {
            return None;
        }
        Some(Self {
            identity: Identity {
                osd_id: u32_at(at::OSD_ID) as i32,
                fsid: uuid_at(at::FSID),
                osd_uuid: uuid_at(at::OSD_UUID),
                format: u32_at(at::FORMAT),
                features: u64_at(at::FEATURES),
            },
            log_offset: u64_at(at::LOG_OFFSET),
            log_bytes: u64_at(at::LOG_BYTES),
            data_offset: u64_at(at::DATA_OFFSET),
        })
    }

    /// Reads and judges: format first, then owner.
    pub fn read(path: &str, file: &dyn DiskFile, options: &Options) -> Result<Self> {
        let not = |why| Error::NotAStore {
            path: path.to_owned(),
            why,
        };
        let len = file
            .len()
            .map_err(|e| Error::io(path, "find the data file's length", e))?;
        if len < 2 * SIZE as u64 {
            return Err(not("its data file is too short"));
        }
        let mut found = None;
        for copy in 0..2 {
            let b = read_copy(file, copy).map_err(|e| Error::io(path, "read the superblock", e))?;
            found = found.or(Self::decode(&b));
        }
        let why = if file.is_device() {
            "no valid superblock, and the device is not empty (its first 68 KiB must be zeros for a new store)"
        } else {
            "no valid superblock"
        };
        let s = found.ok_or_else(|| not(why))?;
        let id = &s.identity;
        if id.format > FORMAT {
            return Err(Error::NewerFormat {
                path: path.to_owned(),
                found: id.format,
                known: FORMAT,
            });
        }
        if id.features & !FEATURES != 0 {
            return Err(Error::UnknownFeatures {
                path: path.to_owned(),
                bits: bits(id.features & !FEATURES),
                known: bits(FEATURES),
            });
        }
        let aligned = [s.log_offset, s.log_bytes, s.data_offset]
            .iter()
            .all(|v| v % BLOCK == 0);
        if !aligned || s.log_bytes < LOG_BYTES_MIN || s.log_offset + s.log_bytes > s.data_offset {
            return Err(not("its superblock makes no sense"));
        }
        s.check_owner(path, options)?;
        Ok(s)
    }

    fn check_owner(&self, path: &str, options: &Options) -> Result<()> {
        let id = &self.identity;
        if !options.fsid.is_nil() && options.fsid != id.fsid {
            return Err(Error::OtherCluster {
                path: path.to_owned(),
                found: id.fsid,
                wanted: options.fsid,
            });
        }
        let other_uuid = !options.osd_uuid.is_nil() && options.osd_uuid != id.osd_uuid;
        let other_id = options.osd_id != Options::ANY_OSD && options.osd_id != id.osd_id;
        if other_id || other_uuid {
            return Err(Error::OtherOsd {
                path: path.to_owned(),
                found: id.osd_id,
                found_uuid: id.osd_uuid,
                wanted: options.osd_id,
                wanted_uuid: options.osd_uuid,
            });
        }
        Ok(())
    }
}
