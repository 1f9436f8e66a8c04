//! An object in memory, for tests and fuzzing: one [`ObjectContext`] with a deterministic clock and generator.
//! It is a double of what the PG provides, never a store.
//!
//! It can show a message's own changes at once, or only after [`MemoryObject::commit`], as a PG does; methods
//! must work with both.

use crate::context::{Caller, ObjectContext, ObjectStat, OmapPage, Result, Watcher};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::Bound;
use types::{EntityAddr, EntityName, Errno, Utime};

/// Largest object, as a PG's default limit (docs/protocol/ceph/04-osd.md, 10.1).
pub const OBJECT_SIZE_MAX: u64 = 128 << 20;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct State {
    pub data: Vec<u8>,
    pub xattrs: BTreeMap<Bytes, Bytes>,
    pub omap_header: Bytes,
    pub omap: BTreeMap<Bytes, Bytes>,
}

#[derive(Debug, Clone)]
pub struct MemoryObject {
    /// As it is on disk.
    pub committed: Option<State>,
    /// As it will be when the message succeeds.
    pub pending: Option<State>,
    /// Reads see `committed` until the message is done.
    pub reads_committed: bool,
    pub caller: Caller,
    pub now: Utime,
    pub watchers: Vec<Watcher>,
    pub snapset_seq: u64,
    /// Messages that have changed it.
    pub version: u64,
    /// Serials that this message has given.
    pub serials: u32,
    /// Omap rows that ranges have given since it was made.
    pub rows_given: usize,
    seed: u64,
}

impl MemoryObject {
    pub fn new(reads_committed: bool) -> Self {
        let sock = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
        Self {
            committed: None,
            pending: None,
            reads_committed,
            caller: Caller {
                name: EntityName::client(4242),
                addr: EntityAddr::msgr2(sock, 77),
            },
            now: Utime {
                sec: 1_795_290_000,
                nsec: 123_456_789,
            },
            watchers: Vec::new(),
            snapset_seq: 0,
            version: 0,
            serials: 0,
            rows_given: 0,
            seed: 1,
        }
    }

    pub fn commit(&mut self) {
        self.version += 1;
        self.serials = 0;
        self.committed = self.pending.clone();
    }

    pub fn roll_back(&mut self) {
        self.serials = 0;
        self.pending = self.committed.clone();
    }

    fn seen(&self) -> Option<&State> {
        if self.reads_committed {
            self.committed.as_ref()
        } else {
            self.pending.as_ref()
        }
    }

    fn made(&mut self) -> &mut State {
        self.pending.get_or_insert_default()
    }

    fn grown(&mut self, size: u64) -> Result<&mut Vec<u8>> {
        if size > OBJECT_SIZE_MAX {
            return Err(Errno::EFBIG);
        }
        let data = &mut self.made().data;
        if data.len() < size as usize {
            data.resize(size as usize, 0);
        }
        Ok(data)
    }
}

impl ObjectContext for MemoryObject {
    fn stat(&mut self) -> Result<Option<ObjectStat>> {
        let stat = |s: &State| ObjectStat {
            size: s.data.len() as u64,
            mtime: self.now,
        };
        Ok(self.pending.as_ref().map(stat))
    }

    fn read(&mut self, offset: u64, len: u64) -> Result<Bytes> {
        let data = &self.seen().ok_or(Errno::ENOENT)?.data;
        let from = offset.min(data.len() as u64) as usize;
        let to = offset.saturating_add(len).min(data.len() as u64) as usize;
        Ok(Bytes::copy_from_slice(&data[from..to]))
    }

    fn xattr(&mut self, name: &[u8]) -> Result<Option<Bytes>> {
        Ok(self.seen().and_then(|s| s.xattrs.get(name).cloned()))
    }

    fn xattrs(&mut self) -> Result<Vec<(Bytes, Bytes)>> {
        Ok(self
            .seen()
            .map(|s| s.xattrs.clone().into_iter().collect())
            .unwrap_or_default())
    }

    fn omap_get(&mut self, key: &[u8]) -> Result<Option<Bytes>> {
        Ok(self.seen().and_then(|s| s.omap.get(key).cloned()))
    }

    fn omap_latest(&mut self, key: &[u8]) -> Result<Option<Bytes>> {
        Ok(self.pending.as_ref().and_then(|s| s.omap.get(key).cloned()))
    }

    fn omap_range(&mut self, start_after: &[u8], prefix: &[u8], max: usize) -> Result<OmapPage> {
        let Some(state) = self.seen() else {
            return Ok(OmapPage::default());
        };
        let from = if start_after < prefix {
            Bound::Included(prefix)
        } else {
            Bound::Excluded(start_after)
        };
        let mut range = state
            .omap
            .range::<[u8], _>((from, Bound::Unbounded))
            .filter(|(k, _)| k.as_ref() > start_after)
            .take_while(|(k, _)| k.starts_with(prefix));
        let rows: Vec<_> = range
            .by_ref()
            .take(max)
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect();
        let more = range.next().is_some();
        self.rows_given += rows.len();
        Ok(OmapPage { rows, more })
    }

    fn omap_header(&mut self) -> Result<Bytes> {
        Ok(self.seen().map(|s| s.omap_header.clone()).unwrap_or_default())
    }

    fn snapset_seq(&mut self) -> Result<u64> {
        Ok(self.snapset_seq)
    }

    fn watchers(&mut self) -> Result<Vec<Watcher>> {
        Ok(self.watchers.clone())
    }

    fn create(&mut self, exclusive: bool) -> Result<()> {
        if exclusive && self.pending.is_some() {
            return Err(Errno::EEXIST);
        }
        self.made();
        Ok(())
    }

    fn write(&mut self, offset: u64, data: Bytes) -> Result<()> {
        let end = offset.checked_add(data.len() as u64).ok_or(Errno::EFBIG)?;
        self.grown(end)?[offset as usize..end as usize].copy_from_slice(&data);
        Ok(())
    }

    fn write_full(&mut self, data: Bytes) -> Result<()> {
        self.made().data = data.to_vec();
        Ok(())
    }

    fn truncate(&mut self, size: u64) -> Result<()> {
        self.grown(size)?.truncate(size as usize);
        Ok(())
    }

    fn remove(&mut self) -> Result<()> {
        self.pending = None;
        Ok(())
    }

    fn set_xattr(&mut self, name: &[u8], value: Bytes) -> Result<()> {
        self.made().xattrs.insert(Bytes::copy_from_slice(name), value);
        Ok(())
    }

    fn remove_xattr(&mut self, name: &[u8]) -> Result<()> {
        self.made().xattrs.remove(name);
        Ok(())
    }

    fn omap_set(&mut self, rows: Vec<(Bytes, Bytes)>) -> Result<()> {
        self.made().omap.extend(rows);
        Ok(())
    }

    fn omap_remove(&mut self, keys: Vec<Bytes>) -> Result<()> {
        if let Some(state) = &mut self.pending {
            for k in keys {
                state.omap.remove(&k);
            }
        }
        Ok(())
    }

    fn set_omap_header(&mut self, header: Bytes) -> Result<()> {
        self.made().omap_header = header;
        Ok(())
    }

    fn omap_clear(&mut self) -> Result<()> {
        if let Some(state) = &mut self.pending {
            state.omap.clear();
            state.omap_header.clear();
        }
        Ok(())
    }

    fn caller(&self) -> Caller {
        self.caller
    }

    fn now(&self) -> Utime {
        self.now
    }

    fn serial(&mut self) -> (u64, u32) {
        self.serials += 1;
        (self.version, self.serials)
    }

    /// splitmix64: enough to tell values apart, the same in every run.
    fn random(&mut self, out: &mut [u8]) {
        for b in out {
            self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let z = (self.seed ^ self.seed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            *b = (z >> 40) as u8;
        }
    }
}
