//! The store's face. (Signatures first; the engine behind them lands next.)

use crate::{Counters, Error, Identity, OmapPage, Options, PoolUsage, Result, Seq, Stat, StatFs, Waker};
use bytes::Bytes;
use io::disk::Disk;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use types::{EVersion, ObjectId, PoolId, SPgId, Transaction};

#[derive(Debug)]
pub struct Store {
    never: std::convert::Infallible,
}

fn not_yet<T>() -> Result<T> {
    Err(Error::NotAStore {
        path: String::new(),
        why: "the engine is not built yet",
    })
}

#[allow(unused_variables)]
impl Store {
    /// Makes a store in `dir` (made if missing).
    pub fn mkfs(dir: &Path, options: &Options) -> Result<()> {
        not_yet()
    }
    pub fn mkfs_on(disk: Arc<dyn Disk>, options: &Options) -> Result<()> {
        not_yet()
    }
    /// Opens and replays; `waker` is called from a helper thread.
    pub fn open(dir: &Path, options: &Options, waker: Waker) -> Result<Store> {
        not_yet()
    }
    pub fn open_on(disk: Arc<dyn Disk>, options: &Options, waker: Waker) -> Result<Store> {
        not_yet()
    }
    pub fn identity(&self) -> Identity {
        match self.never {}
    }

    /// Applies the transaction to what reads see, all or nothing, and appends it to the present batch.
    /// The batch goes to the disk at the next [`Store::kick`], or when the flush before it ends.
    pub fn queue(&mut self, transaction: Transaction) -> Result<Seq> {
        match self.never {}
    }
    /// Starts the flush of what was queued, unless one is under way (which then goes on with it).
    /// The owner calls it at the end of each loop turn.
    pub fn kick(&mut self) {
        match self.never {}
    }
    /// Housekeeping by time: the owner calls it about once a second.
    pub fn tick(&mut self, now: Duration) {
        match self.never {}
    }
    /// All transactions up to this one are durable.
    pub fn durable(&self) -> Seq {
        match self.never {}
    }
    /// The last number given out.
    pub fn queued(&self) -> Seq {
        match self.never {}
    }
    pub fn failed(&self) -> Option<Error> {
        match self.never {}
    }
    /// Blocks until `seq` is durable (start, stop and tests; never the data path).
    pub fn wait(&mut self, seq: Seq) -> Result<()> {
        match self.never {}
    }
    /// Without threads: does one piece of the waiting work, false when there is none.
    pub fn pump(&mut self) -> bool {
        match self.never {}
    }
    /// Clean end: all durable and checkpointed.
    pub fn close(self) -> Result<()> {
        match self.never {}
    }

    pub fn exists(&self, oid: &ObjectId) -> Result<bool> {
        match self.never {}
    }
    pub fn stat(&self, oid: &ObjectId) -> Result<Stat> {
        match self.never {}
    }
    /// Clipped at the object's end; holes read as zeros.
    pub fn read(&self, oid: &ObjectId, offset: u64, len: u64) -> Result<Bytes> {
        match self.never {}
    }
    /// The parts of the range that are not holes: (offset, length), ascending, merged, clipped.
    pub fn allocated(&self, oid: &ObjectId, offset: u64, len: u64) -> Result<Vec<(u64, u64)>> {
        match self.never {}
    }
    pub fn attr(&self, oid: &ObjectId, name: &[u8]) -> Result<Option<Bytes>> {
        match self.never {}
    }
    /// All attributes, by name.
    pub fn attrs(&self, oid: &ObjectId) -> Result<Vec<(Bytes, Bytes)>> {
        match self.never {}
    }
    pub fn omap_header(&self, oid: &ObjectId) -> Result<Bytes> {
        match self.never {}
    }
    /// Those of `keys` that exist.
    pub fn omap_get(&self, oid: &ObjectId, keys: &[Bytes]) -> Result<Vec<(Bytes, Bytes)>> {
        match self.never {}
    }
    /// At least one entry if there is one, then while both bounds hold.
    pub fn omap_range(
        &self,
        oid: &ObjectId,
        from: Bound<&[u8]>,
        max_entries: usize,
        max_bytes: usize,
    ) -> Result<OmapPage> {
        match self.never {}
    }
    /// Objects from `from` on (it included), in order.
    pub fn list(&self, from: &ObjectId, max: usize) -> Result<Vec<ObjectId>> {
        match self.never {}
    }
    pub fn collections(&self) -> Vec<SPgId> {
        match self.never {}
    }
    pub fn meta(&self, collection: &SPgId) -> Result<Bytes> {
        match self.never {}
    }
    /// All log entries that were not trimmed, ascending.
    pub fn log_entries(&self, collection: &SPgId) -> Result<Vec<(EVersion, Bytes)>> {
        match self.never {}
    }
    pub fn statfs(&self) -> StatFs {
        match self.never {}
    }
    pub fn usage(&self) -> BTreeMap<PoolId, PoolUsage> {
        match self.never {}
    }
    pub fn counters(&self) -> Counters {
        match self.never {}
    }
}
