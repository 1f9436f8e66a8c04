//! A store that nobody serves, for looking at: as `open` would find it, and nothing of it is changed.
//!
//! The log is replayed in memory, above the index. Another process may look at the same time, none may serve it.
//! Reads give what is whole; what is damaged is named. Not here: verifying all of it (`check`).

use crate::index::Index;
use crate::onode::BLOCK;
use crate::open::{self, Loaded};
use crate::state::State;
use crate::{Error, Identity, OmapPage, Options, PoolUsage, Result, Stat};
use bytes::{Bytes, BytesMut};
use io::disk::{Disk, ReadOnlyDisk};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use types::{EVersion, ObjectId, PoolId, SPgId};

#[derive(Debug)]
pub struct View {
    state: State,
    /// Its snapshots, one of which `state` holds, end with it.
    _index: Arc<dyn Index>,
    identity: Identity,
    replayed: u64,
}

/// The newest version in a collection's log, and the newest that was trimmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogBounds {
    pub head: EVersion,
    pub trimmed: EVersion,
}

/// Some bytes of an object, and where they are zeros because the block cannot be read.
#[derive(Debug, Clone)]
pub struct Salvage {
    pub data: Bytes,
    /// Offsets of bad blocks in the object, ascending, and what each one's reading said.
    pub bad: Vec<(u64, Error)>,
}

impl View {
    /// The store in `dir`; any OSD's with [`Options::ANY_OSD`].
    pub fn open(dir: &Path, options: &Options) -> Result<Self> {
        Self::load(Arc::new(ReadOnlyDisk::new(dir)), options, true)
    }

    /// As of the last checkpoint: for a store whose log is damaged. What is newer is not seen; a block that a
    /// checkpoint under way had overwritten in place reads as damaged.
    pub fn open_without_log(dir: &Path, options: &Options) -> Result<Self> {
        Self::load(Arc::new(ReadOnlyDisk::new(dir)), options, false)
    }

    fn load(disk: Arc<dyn Disk>, options: &Options, with_log: bool) -> Result<Self> {
        let disk = open::unsealed(disk, options)?;
        let Loaded {
            superblock,
            state,
            index,
            replayed,
            ..
        } = open::load_from(&*disk, options, with_log)?;
        Ok(Self {
            state,
            _index: index,
            identity: superblock.identity,
            replayed,
        })
    }

    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// Transactions that were only in the log.
    pub fn replayed(&self) -> u64 {
        self.replayed
    }

    pub fn exists(&self, oid: &ObjectId) -> Result<bool> {
        Ok(self.state.object(oid)?.is_some())
    }
    pub fn stat(&self, oid: &ObjectId) -> Result<Stat> {
        self.state.stat(oid)
    }
    /// Clipped at the object's end; fails at the first bad block.
    pub fn read(&self, oid: &ObjectId, offset: u64, len: u64) -> Result<Bytes> {
        self.state.read(oid, offset, len)
    }

    /// Like [`View::read`], with zeros for blocks that cannot be read.
    pub fn salvage(&self, oid: &ObjectId, offset: u64, len: u64) -> Result<Salvage> {
        match self.read(oid, offset, len) {
            Ok(data) => {
                return Ok(Salvage {
                    data,
                    bad: Vec::new(),
                });
            }
            Err(Error::Corrupt { .. } | Error::Io { .. }) => {}
            Err(e) => return Err(e),
        }
        let end = self.stat(oid)?.size.min(offset.saturating_add(len));
        let mut data = BytesMut::zeroed(end.saturating_sub(offset) as usize);
        let mut bad = Vec::new();
        let mut at = offset;
        while at < end {
            let stop = end.min((at / BLOCK + 1) * BLOCK);
            match self.read(oid, at, stop - at) {
                Ok(part) => data[(at - offset) as usize..(stop - offset) as usize].copy_from_slice(&part),
                Err(e @ (Error::Corrupt { .. } | Error::Io { .. })) => bad.push((at / BLOCK * BLOCK, e)),
                Err(e) => return Err(e),
            }
            at = stop;
        }
        Ok(Salvage {
            data: data.freeze(),
            bad,
        })
    }

    /// The parts of the range that are not holes: (offset, length), ascending, merged, clipped.
    pub fn allocated(&self, oid: &ObjectId, offset: u64, len: u64) -> Result<Vec<(u64, u64)>> {
        self.state.allocated(oid, offset, len)
    }
    pub fn attr(&self, oid: &ObjectId, name: &[u8]) -> Result<Option<Bytes>> {
        self.state.attr(oid, name)
    }
    /// All attributes, by name.
    pub fn attrs(&self, oid: &ObjectId) -> Result<Vec<(Bytes, Bytes)>> {
        self.state.attrs(oid)
    }
    pub fn omap_header(&self, oid: &ObjectId) -> Result<Bytes> {
        self.state.omap_header(oid)
    }
    /// At least one entry if there is one, then while both bounds hold.
    pub fn omap_range(
        &self,
        oid: &ObjectId,
        from: Bound<&[u8]>,
        max_entries: usize,
        max_bytes: usize,
    ) -> Result<OmapPage> {
        self.state.omap_range(oid, from, max_entries, max_bytes)
    }
    /// Objects from `from` on (it included), in order.
    pub fn list(&self, from: &ObjectId, max: usize) -> Result<Vec<ObjectId>> {
        self.state.list(from, max)
    }
    pub fn usage(&self) -> BTreeMap<PoolId, PoolUsage> {
        let all = self.state.usage.iter();
        all.filter(|(_, u)| **u != PoolUsage::default())
            .map(|(p, u)| (*p, *u))
            .collect()
    }
    pub fn collections(&self) -> Vec<SPgId> {
        self.state.collections.keys().copied().collect()
    }
    pub fn meta(&self, collection: &SPgId) -> Result<Bytes> {
        self.state.meta(collection)
    }
    pub fn log_bounds(&self, collection: &SPgId) -> Result<LogBounds> {
        let c = self.state.collections.get(collection);
        let c = c.ok_or(Error::NoCollection(*collection))?;
        Ok(LogBounds {
            head: c.head,
            trimmed: c.trimmed,
        })
    }
    /// All log entries that were not trimmed, ascending.
    pub fn log_entries(&self, collection: &SPgId) -> Result<Vec<(EVersion, Bytes)>> {
        self.state.log_entries(collection)
    }
}
