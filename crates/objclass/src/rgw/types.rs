//! What the rows of a bucket's index hold (docs/protocol/classes.md, "rgw").

use crate::opaque::Packed;
use bytes::Bytes;
use denc::{Decode, Encode, Reader, Writer, envelope_denc, plain_denc};
use std::collections::BTreeMap;
use types::Utime;

/// Bits of [`DirEntry::flags`].
pub const VERSIONED: u16 = 1;
pub const CURRENT: u16 = 2;
pub const DELETE_MARKER: u16 = 4;
/// A row without content that stands at a name whose versions are elsewhere.
pub const PLACEHOLDER: u16 = 8;
pub const COMMON_PREFIX: u16 = 0x8000;

#[derive(Debug, Clone, PartialEq, Eq, Default, PartialOrd, Ord)]
pub struct ObjKey {
    pub name: Bytes,
    pub instance: Bytes,
}
envelope_denc!(ObjKey, 1, 1, { name, instance });

/// The pool of an object's head, and the version at which it was written there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryVersion {
    pub pool: i64,
    pub epoch: u64,
}

impl EntryVersion {
    pub const NONE: Self = Self { pool: -1, epoch: 0 };
}

impl Encode for EntryVersion {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.put(&Packed(self.pool as u64));
            w.put(&Packed(self.epoch));
        });
    }
}

impl Decode for EntryVersion {
    fn decode(r: &mut Reader) -> denc::Result<Self> {
        r.envelope(1, |_, r| {
            Ok(Self {
                pool: r.get::<Packed>()?.0 as i64,
                epoch: r.get::<Packed>()?.0,
            })
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Meta {
    pub category: u8,
    pub size: u64,
    pub mtime: Utime,
    etag: Bytes,
    pub owner: Bytes,
    pub owner_name: Bytes,
    content_type: Bytes,
    pub accounted_size: u64,
    user_data: Bytes,
    storage_class: Bytes,
    appendable: bool,
}

impl Encode for Meta {
    fn encode(&self, w: &mut Writer) {
        w.envelope(7, 3, |w| {
            w.u8(self.category);
            w.u64(self.size);
            w.put(&self.mtime);
            w.put(&self.etag);
            w.put(&self.owner);
            w.put(&self.owner_name);
            w.put(&self.content_type);
            w.u64(self.accounted_size);
            w.put(&self.user_data);
            w.put(&self.storage_class);
            w.bool(self.appendable);
        });
    }
}

impl Decode for Meta {
    fn decode(r: &mut Reader) -> denc::Result<Self> {
        r.envelope(7, |version, r| {
            let mut meta = Self {
                category: r.u8()?,
                size: r.u64()?,
                mtime: r.get()?,
                etag: r.get()?,
                owner: r.get()?,
                owner_name: r.get()?,
                ..Self::default()
            };
            if version >= 2 {
                meta.content_type = r.get()?;
            }
            meta.accounted_size = if version >= 4 { r.u64()? } else { meta.size };
            if version >= 5 {
                meta.user_data = r.get()?;
            }
            if version >= 6 {
                meta.storage_class = r.get()?;
            }
            if version >= 7 {
                meta.appendable = r.bool()?;
            }
            Ok(meta)
        })
    }
}

/// A change that was announced and is not complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pending {
    pub state: u8,
    pub since: Utime,
    pub op: u8,
}
envelope_denc!(Pending, 2, 2, { state, since, op });

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirEntry {
    pub key: ObjKey,
    pub ver: EntryVersion,
    pub exists: bool,
    pub meta: Meta,
    /// By tag; a tag may be there more than once.
    pub pending: Vec<(Bytes, Pending)>,
    pub locator: Bytes,
    /// The index's version when this was written.
    pub index_ver: u64,
    pub tag: Bytes,
    pub flags: u16,
    /// Of a version: which one, from 1 on.
    pub epoch: u64,
}

impl DirEntry {
    pub fn new(key: ObjKey) -> Self {
        Self {
            key,
            ver: EntryVersion::NONE,
            exists: false,
            meta: Meta::default(),
            pending: Vec::new(),
            locator: Bytes::new(),
            index_ver: 0,
            tag: Bytes::new(),
            flags: 0,
            epoch: 0,
        }
    }

    pub fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    /// What a listing without versions shows.
    pub fn is_visible(&self) -> bool {
        let current = self.flags & (VERSIONED | CURRENT) != VERSIONED;
        current && !self.has(DELETE_MARKER)
    }
}

impl Encode for DirEntry {
    fn encode(&self, w: &mut Writer) {
        w.envelope(8, 3, |w| {
            w.put(&self.key.name);
            w.u64(self.ver.epoch);
            w.bool(self.exists);
            w.put(&self.meta);
            w.put(&self.pending);
            w.put(&self.locator);
            w.put(&self.ver);
            w.put(&Packed(self.index_ver));
            w.put(&self.tag);
            w.put(&self.key.instance);
            w.u16(self.flags);
            w.u64(self.epoch);
        });
    }
}

impl Decode for DirEntry {
    const MIN_SIZE: usize = 20;
    fn decode(r: &mut Reader) -> denc::Result<Self> {
        r.envelope(8, |version, r| {
            let mut entry = Self::new(ObjKey {
                name: r.get()?,
                instance: Bytes::new(),
            });
            entry.ver.epoch = r.u64()?;
            entry.exists = r.bool()?;
            entry.meta = r.get()?;
            entry.pending = r.get()?;
            if version >= 2 {
                entry.locator = r.get()?;
            }
            if version >= 4 {
                entry.ver = r.get()?;
            }
            if version >= 5 {
                entry.index_ver = r.get::<Packed>()?.0;
                entry.tag = r.get()?;
            }
            if version >= 6 {
                entry.key.instance = r.get()?;
            }
            if version >= 7 {
                entry.flags = r.u16()?;
            }
            if version >= 8 {
                entry.epoch = r.u64()?;
            }
            Ok(entry)
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    pub size: u64,
    pub size_rounded: u64,
    pub count: u64,
    pub actual_size: u64,
}

impl Encode for Stats {
    fn encode(&self, w: &mut Writer) {
        w.envelope(3, 2, |w| {
            w.u64(self.size);
            w.u64(self.size_rounded);
            w.u64(self.count);
            w.u64(self.actual_size);
        });
    }
}

impl Decode for Stats {
    const MIN_SIZE: usize = 30;
    fn decode(r: &mut Reader) -> denc::Result<Self> {
        r.envelope(3, |version, r| {
            let (size, size_rounded, count) = (r.u64()?, r.u64()?, r.u64()?);
            Ok(Self {
                size,
                size_rounded,
                count,
                actual_size: if version >= 3 { r.u64()? } else { size },
            })
        })
    }
}

/// What objects take is counted in blocks of this size.
const BLOCK: u64 = 4096;

impl Stats {
    fn of(meta: &Meta) -> Self {
        Self {
            size: meta.accounted_size,
            size_rounded: meta.accounted_size.div_ceil(BLOCK).wrapping_mul(BLOCK),
            count: 1,
            actual_size: meta.size,
        }
    }

    pub fn add(&mut self, other: Self) {
        self.size = self.size.wrapping_add(other.size);
        self.size_rounded = self.size_rounded.wrapping_add(other.size_rounded);
        self.count = self.count.wrapping_add(other.count);
        self.actual_size = self.actual_size.wrapping_add(other.actual_size);
    }

    fn subtract(&mut self, other: Self) {
        self.size = self.size.wrapping_sub(other.size);
        self.size_rounded = self.size_rounded.wrapping_sub(other.size_rounded);
        self.count = self.count.wrapping_sub(other.count);
        self.actual_size = self.actual_size.wrapping_sub(other.actual_size);
    }
}

/// Where a bucket's index is being moved to another number of shards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resharding {
    pub state: u8,
    pub instance: Bytes,
    pub shards: i32,
}
envelope_denc!(Resharding, 1, 1, { state, instance, shards });

impl Default for Resharding {
    fn default() -> Self {
        Self {
            state: 0,
            instance: Bytes::new(),
            shards: -1,
        }
    }
}

/// The header of a bucket's index, in the omap's.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Header {
    pub stats: BTreeMap<u8, Stats>,
    /// Seconds after which an announced change is given up; 0 for the default.
    pub tag_timeout: u64,
    pub ver: u64,
    pub master_ver: u64,
    /// The last entry of the log.
    pub max_marker: Bytes,
    pub resharding: Resharding,
    pub log_stopped: bool,
}

impl Header {
    pub fn count(&mut self, meta: &Meta) {
        self.stats.entry(meta.category).or_default().add(Stats::of(meta));
    }

    pub fn uncount(&mut self, meta: &Meta) {
        self.stats
            .entry(meta.category)
            .or_default()
            .subtract(Stats::of(meta));
    }
}

impl Encode for Header {
    fn encode(&self, w: &mut Writer) {
        w.envelope(7, 2, |w| {
            w.put(&self.stats);
            w.u64(self.tag_timeout);
            w.u64(self.ver);
            w.u64(self.master_ver);
            w.put(&self.max_marker);
            w.put(&self.resharding);
            w.bool(self.log_stopped);
        });
    }
}

impl Decode for Header {
    fn decode(r: &mut Reader) -> denc::Result<Self> {
        r.envelope(7, |version, r| {
            let mut header = Self {
                stats: r.get()?,
                ..Self::default()
            };
            if version >= 3 {
                header.tag_timeout = r.u64()?;
            }
            if version >= 4 {
                header.ver = r.u64()?;
                header.master_ver = r.u64()?;
            }
            if version >= 5 {
                header.max_marker = r.get()?;
            }
            if version >= 6 {
                header.resharding = r.get()?;
            }
            if version >= 7 {
                header.log_stopped = r.bool()?;
            }
            Ok(header)
        })
    }
}

/// What has to be done at the head of an object with versions.
pub const LINK: u8 = 1;
pub const UNLINK: u8 = 2;
pub const REMOVE_INSTANCE: u8 = 3;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeadChange {
    pub epoch: u64,
    pub op: u8,
    pub op_tag: Bytes,
    pub key: ObjKey,
    pub delete_marker: bool,
}
envelope_denc!(HeadChange, 1, 1, { epoch, op, op_tag, key, delete_marker });

pub type HeadLog = BTreeMap<u64, Vec<HeadChange>>;

/// The logical head of an object with versions: which one it stands for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LogicalHead {
    pub key: ObjKey,
    pub delete_marker: bool,
    pub epoch: u64,
    pub log: HeadLog,
    pub tag: Bytes,
    pub exists: bool,
    pub pending_removal: bool,
}
envelope_denc!(LogicalHead, 1, 1, { key, delete_marker, epoch, log, tag, exists, pending_removal });

/// Zones that a change has passed through.
pub type Trace = Vec<Bytes>;

/// An entry of the index's log.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LogEntry {
    pub id: Bytes,
    pub name: Bytes,
    pub mtime: Utime,
    pub ver: EntryVersion,
    pub tag: Bytes,
    pub op: u8,
    pub state: u8,
    pub index_ver: u64,
    pub instance: Bytes,
    pub flags: u16,
    pub owner: Bytes,
    pub owner_name: Bytes,
    pub trace: Trace,
}

impl Default for EntryVersion {
    fn default() -> Self {
        Self::NONE
    }
}

impl Encode for LogEntry {
    fn encode(&self, w: &mut Writer) {
        w.envelope(4, 1, |w| {
            w.put(&self.id);
            w.put(&self.name);
            w.put(&self.mtime);
            w.put(&self.ver);
            w.put(&self.tag);
            w.u8(self.op);
            w.u8(self.state);
            w.put(&Packed(self.index_ver));
            w.put(&self.instance);
            w.u16(self.flags);
            w.put(&self.owner);
            w.put(&self.owner_name);
            w.put(&self.trace);
        });
    }
}

/// A row as it is copied to another index. Kinds: 1 plain, 2 instance, 3 logical head.
#[derive(Debug, Clone)]
pub struct Row {
    pub kind: u8,
    pub key: Bytes,
    pub value: Bytes,
}
envelope_denc!(Row, 1, 1, { kind, key, value });

/// A reference to a type's fields in order, for inputs.
pub struct KeyAndTag {
    pub key: ObjKey,
    pub tag: Bytes,
}
plain_denc!(KeyAndTag { key, tag });
