//! The store as its owner holds it: transactions in, reads out, and the turning of log and checkpoints.
//!
//! Bounds (all in [`Options`]): what waits for write-back starts a checkpoint when it reaches half of
//! `overlay_bytes`, the log when it is half full; when either is full while a checkpoint runs, or when
//! `waiting_bytes` wait for a flush, [`Store::queue`] waits and counts a stall.

use crate::background::{self, Background};
use crate::broken::{self, Rule};
use crate::cache::BlockCache;
use crate::checkpoint::{Checkpoint, Meta, PUNCH_BLOCKS};
use crate::committer::{Committer, OwnerWrites, Start};
use crate::helper::{Grow, Helper, Job, Outcome};
use crate::index::{Index, Slack};
use crate::onode::BLOCK;
use crate::open::{self, Loaded};
use crate::prefetch::Prefetches;
use crate::state::State;
use crate::superblock::{FEATURES_AT_OPEN, Superblock};
use crate::{Counters, Error, Identity, OmapPage, Options, Result, Seq, Stat, Ticket, Waker};
use bytes::Bytes;
use io::disk::{Disk, DiskFile, HostDisk, Space};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use types::{EVersion, ObjectId, Op, SPgId, Transaction};

/// Of the file's blocks, one in so many is kept for what must work on a full disk.
const RESERVE_SHARE: u64 = 64;
const RESERVE_BLOCKS_MIN: u64 = 8;
const RESERVE_BLOCKS_MAX: u64 = 16384;
/// Blocks that were freed and wait for a checkpoint: one in so many of the file's starts one.
const FREED_SHARE: u64 = 8;
/// Freed space that stays in the file for what is written next, which then costs the host no allocation and a flush
/// no journal: one in so many of the file's blocks, and at most so many bytes. More goes back to the host.
const STOCK_SHARE: u64 = 4;
const STOCK_BYTES_MAX: u64 = 512 << 20;
/// Free blocks that go back to a host that is short of space with one checkpoint: until it has ended nothing can be
/// written there.
const GIVE_BLOCKS_MAX: u64 = (256 << 20) / BLOCK;
/// Space for large writes is cheap to get (nothing is written) and is used up fast: so many steps at once.
const RAW_GROWTH: u64 = 4;

mod accounts;
mod blobs;
mod log;
mod rows;

#[derive(Debug)]
pub struct Store {
    path: String,
    disk: Arc<dyn Disk>,
    file: Arc<dyn DiskFile>,
    index: Arc<dyn Index>,
    superblock: Superblock,
    options: Options,
    state: State,
    slack: Slack,
    committer: Arc<Committer>,
    /// The log's writes that need no other thread.
    own: Option<OwnerWrites>,
    helper: Arc<Helper>,
    threads: Vec<JoinHandle<()>>,
    checkpointing: bool,
    growing: bool,
    space: Space,
    incarnation: u64,
    /// When the oldest change that waits for a checkpoint was first seen.
    dirty_since: Option<Duration>,
    stalls: u64,
    checkpoints: u64,
    /// Blocks of large writes since the file last grew.
    large_blocks: u64,
    /// When free space last went back to the host.
    gave_at: Duration,
    /// As [`Store::unbooked_blocks`] was at the start: 0, unless an earlier version of the program lost some.
    unbooked: u64,
}

impl Store {
    /// Makes a store in `dir` (made if missing).
    pub fn mkfs(dir: &Path, options: &Options) -> Result<()> {
        let disk = HostDisk::new(dir);
        disk.create_dir()
            .map_err(|e| Error::io(&disk.name(), "create the directory", e))?;
        Self::mkfs_on(Arc::new(disk), options)
    }

    pub fn mkfs_on(disk: Arc<dyn Disk>, options: &Options) -> Result<()> {
        let disk = open::sealed_for_mkfs(disk, options)?;
        open::mkfs(&*disk, options)
    }

    /// Opens and replays; `waker` is called from helper threads.
    pub fn open(dir: &Path, options: &Options, waker: Waker) -> Result<Store> {
        let disk = options
            .disk
            .clone()
            .unwrap_or_else(|| Arc::new(HostDisk::with_mode(dir, options.disk_io)));
        Self::open_on(disk, options, waker)
    }

    pub fn open_on(disk: Arc<dyn Disk>, options: &Options, waker: Waker) -> Result<Store> {
        let bare = disk.clone();
        let disk = open::unsealed(disk, options)?;
        let Loaded {
            path,
            file,
            mut superblock,
            index,
            slack,
            mut state,
            ring,
            tag,
            end,
            tail,
            replayed,
        } = open::load(&*disk, options)?;
        open::renew_seal(&*bare, options);
        // Before anything is written that earlier programs would misread.
        superblock
            .add_features(&*file, FEATURES_AT_OPEN)
            .map_err(|e| Error::io(&path, "write the superblock", e))?;
        state.direct_blocks = options.direct_bytes.div_ceil(BLOCK).max(1);
        state.object_bytes_max = options.object_bytes_max;
        state.blocks = RefCell::new(BlockCache::new(options.block_cache_bytes));
        let queue = match (&options.driver, options.threads) {
            (_, true) => file
                .read_queue()
                .map_err(|e| Error::io(&path, "set up reads", e))?,
            (Some(driver), false) => driver.reads(&file, &waker),
            (None, false) => None,
        };
        if queue.is_some() {
            state.reads = Prefetches::new(queue, options.read_bytes);
        }
        let start = Start {
            head: end.position,
            tail,
            batch: end.batch,
            incarnation: end.incarnation + u64::from(!broken::is(Rule::LifeIsNew)),
            seq: end.seq + u64::from(broken::is(Rule::SeqGoesOn)),
        };
        let caller = background::caller(options.driver.as_ref());
        let committer = Arc::new(Committer::new(
            &path,
            file.clone(),
            ring,
            tag,
            waker.clone(),
            caller.clone(),
            start,
        ));
        let helper = Arc::new(Helper::new(committer.clone(), waker.clone(), caller));
        let space = disk
            .space()
            .map_err(|e| Error::io(&path, "ask for the host's free space", e))?;
        let mut store = Self {
            path,
            disk,
            file,
            index,
            slack,
            superblock,
            options: options.clone(),
            state,
            committer,
            own: None,
            helper,
            threads: Vec::new(),
            checkpointing: false,
            growing: false,
            space,
            incarnation: start.incarnation,
            dirty_since: None,
            stalls: 0,
            checkpoints: 0,
            large_blocks: 0,
            gave_at: Duration::ZERO,
            unbooked: 0,
        };
        store.unbooked = store.unbooked_blocks();
        store.refresh_space()?;
        store.begin_life(&waker)?;
        tracing::info!(
            store = %store.path, replayed, blocks = store.state.alloc.blocks(),
            free = store.state.alloc.free(), "store open"
        );
        Ok(store)
    }

    /// The first batch of this incarnation; see `ring` for why it must be durable before any other.
    fn begin_life(&mut self, waker: &Waker) -> Result<()> {
        if !broken::is(Rule::MarkerAtOpen) {
            let marker = self.committer.mark();
            self.committer.pump();
            self.committer.marker_end(marker)?;
        }
        if self.options.threads {
            let io = |e| Error::io(&self.path, "start a thread", e);
            let (committer, data) = (self.committer.clone(), self.committer.clone());
            let helper = self.helper.clone();
            let threads = [
                io::thread::spawn("store-commit", move || committer.run()),
                io::thread::spawn("store-data", move || data.run_data()),
                io::thread::spawn("store-helper", move || helper.run()),
            ];
            for t in threads {
                self.threads.push(t.map_err(io)?);
            }
        } else if let Some(driver) = &self.options.driver {
            driver.start(Background::new(self.committer.clone(), self.helper.clone()));
        }
        self.own = self.own_writes(waker)?;
        self.grow_ahead();
        self.start_due_checkpoint()
    }

    pub fn identity(&self) -> Identity {
        self.superblock.identity
    }

    // --- transactions ---

    /// Applies the transaction to what reads see, all or nothing, and appends it to the present batch.
    /// The batch goes to the disk at the next [`Store::kick`], or when the flush before it ends.
    pub fn queue(&mut self, transaction: impl std::borrow::Borrow<Transaction>) -> Result<Seq> {
        self.queue_compressed(transaction, None)
    }

    fn queue_now(&mut self, transaction: &Transaction) -> Result<Seq> {
        self.settle()?;
        let bound = self.state.record_bound(transaction);
        let limit = self.committer.record_bytes_max();
        if bound > limit {
            return Err(Error::TooBig {
                what: "a transaction",
                size: bound,
                limit,
            });
        }
        self.make_room(bound)?;
        let mut out = self.attempt(transaction);
        // Each gain ends a growth, grows once or ends a checkpoint: a few suffice or nothing helps.
        for _ in 0..4 {
            if !matches!(out, Err(Error::NoSpace { .. })) || !self.gain_space()? {
                break;
            }
            out = self.attempt(transaction);
        }
        let seq = out?;
        self.grow_ahead();
        self.start_due_checkpoint()?;
        Ok(seq)
    }

    fn attempt(&mut self, t: &Transaction) -> Result<Seq> {
        if self.state.host_low && t.ops.iter().any(grows) {
            // Nothing else would look again while all that grows is refused.
            self.refresh_space()?;
            if self.state.host_low {
                return Err(self.no_space());
            }
        }
        self.state.begin(&t.collection);
        for op in &t.ops {
            if let Err(e) = self.state.exec(&t.collection, op) {
                self.state.rollback();
                return Err(name_corrupt(e, op));
            }
        }
        // A record may come out larger than its bound when a direct write found no fresh extents.
        let len = self.state.tx.record.len() as u64;
        if !self.committer.fits(len) {
            self.state.rollback();
            if len > self.committer.record_bytes_max() {
                return Err(self.no_space());
            }
            self.make_room(len)?;
            return self.attempt(t);
        }
        self.may_have_blobs()?;
        let mut directs = std::mem::take(&mut self.state.tx.directs);
        let waiting = directs.clone();
        self.large_blocks += directs.iter().map(|d| d.data.len() as u64 / BLOCK).sum::<u64>();
        match self.committer.append(&self.state.tx.record, &mut directs) {
            Ok(seq) => {
                self.state.commit(seq, &waiting);
                Ok(seq)
            }
            Err(e) => {
                self.state.rollback();
                Err(e)
            }
        }
    }

    fn no_space(&self) -> Error {
        Error::NoSpace {
            free: self.state.alloc.free() * BLOCK,
            reserve: self.state.reserve * BLOCK,
        }
    }

    /// Housekeeping by time: the owner calls it about once a second.
    pub fn tick(&mut self, now: Duration) {
        // Others use the host's file system too.
        if self.settle().and_then(|()| self.refresh_space()).is_err() {
            return;
        }
        self.state.lay_out_oversized();
        let may_give = now >= self.gave_at + self.options.checkpoint_after && !self.checkpointing;
        if may_give && self.is_short() && self.state.alloc.can_give(PUNCH_BLOCKS) {
            self.gave_at = now;
            return self.start_checkpoint();
        }
        if self.state.active.is_empty() {
            return io::disk::cool_pages();
        }
        let since = *self.dirty_since.get_or_insert(now);
        if now.saturating_sub(since) >= self.options.checkpoint_after && !self.checkpointing {
            self.start_checkpoint();
        }
    }

    /// Clean end: all durable and checkpointed.
    pub fn close(mut self) -> Result<()> {
        self.wait(self.queued())?;
        self.checkpoint()
    }

    // --- checkpoints and space ---

    /// Takes in what the helpers have done.
    fn settle(&mut self) -> Result<()> {
        self.state.inflight.landed(self.committer.durable());
        for outcome in self.helper.outcomes() {
            match outcome {
                Outcome::Checkpointed { position, punched } => {
                    self.committer.set_tail(position);
                    self.state.thaw(self.index.snapshot()?, punched);
                    self.checkpointing = false;
                    self.checkpoints += 1;
                    self.refresh_space()?;
                }
                Outcome::Grown { bytes, raw } => self.grown(bytes, raw)?,
                Outcome::NotGrown => {
                    self.growing = false;
                    self.refresh_space()?;
                }
            }
        }
        Ok(())
    }

    fn grown(&mut self, bytes: u64, raw: bool) -> Result<()> {
        self.growing = false;
        self.state.alloc.extend(bytes / BLOCK, raw);
        self.refresh_space()
    }

    fn host_space(&self) -> Result<Space> {
        let failed = |e| Error::io(&self.path, "ask for the host's free space", e);
        self.disk.space().map_err(failed)
    }

    fn refresh_space(&mut self) -> Result<()> {
        self.space = self.host_space()?;
        if let Some(bytes) = self.slack.missing()
            && self.space.available >= self.options.host_reserve_bytes + bytes
        {
            self.slack.hold();
            self.space = self.host_space()?;
        }
        let reserve = self.reserve_blocks();
        // What the file can still grow by serves as well.
        let growable = self.file_bytes_max() / BLOCK - self.state.alloc.blocks();
        self.state.reserve = reserve.saturating_sub(growable);
        self.state.host_low = self.space.available < self.options.host_reserve_bytes / 2;
        Ok(())
    }

    /// How long the data file may become.
    fn file_bytes_max(&self) -> u64 {
        let now = self.state.alloc.blocks() * BLOCK;
        if self.file.is_device() {
            return now;
        }
        let room = self
            .space
            .available
            .saturating_sub(self.options.host_reserve_bytes);
        let host = now.saturating_add(room);
        let bound = self.options.max_bytes.unwrap_or(u64::MAX);
        bound.max(now).min(host) / BLOCK * BLOCK
    }

    fn reserve_blocks(&self) -> u64 {
        let share = self.total_blocks() / RESERVE_SHARE;
        share.clamp(RESERVE_BLOCKS_MIN, RESERVE_BLOCKS_MAX)
    }

    fn total_blocks(&self) -> u64 {
        (self.file_bytes_max() - self.superblock.data_offset.min(self.file_bytes_max())) / BLOCK
    }

    /// A step of growth: where the file ends, and where it would end. At the end of an allocation group
    /// where the step is as large as one.
    fn next_growth(&self, step: u64) -> Option<(u64, u64)> {
        const GROUP_BYTES: u64 = crate::alloc::GROUP * BLOCK;
        let now = self.state.alloc.blocks() * BLOCK;
        let mut to = now + step.max(BLOCK);
        if step >= GROUP_BYTES {
            to = to / GROUP_BYTES * GROUP_BYTES;
        }
        let to = to.min(self.file_bytes_max()) / BLOCK * BLOCK;
        (to > now).then_some((now, to))
    }

    /// Lets the helper extend the file before it is full: zeroed for small writes, raw for large ones, which
    /// fill it at once.
    fn grow_ahead(&mut self) {
        if self.growing {
            return;
        }
        let (step, alloc) = (self.options.grow_bytes, &self.state.alloc);
        let low = step / BLOCK / 2 + self.state.reserve;
        let raw_step = step * RAW_GROWTH;
        let (step, zero) = if alloc.written_free() < low {
            (step, true)
        } else if self.large_blocks * BLOCK >= step / 4 && alloc.large_free() < raw_step / BLOCK / 2 {
            (raw_step, false)
        } else {
            return;
        };
        if let Some((from, to)) = self.next_growth(step) {
            self.growing = true;
            self.large_blocks = 0;
            let grow = Grow::new(&self.path, self.file.clone(), from, to, zero);
            self.helper.submit(Job::Grow(grow));
        }
    }

    /// After a refusal for lack of space: waits for what may bring some. False: nothing can.
    fn gain_space(&mut self) -> Result<bool> {
        if self.state.host_low {
            return Ok(false);
        }
        if self.growing {
            self.stall(|s| s.growing)?;
            return Ok(true);
        }
        if let Some((from, to)) = self.next_growth(self.options.grow_bytes) {
            self.stalls += 1;
            let grown = self.file.allocate(from, to - from);
            if grown.is_ok() {
                if let Err(e) = self.file.flush() {
                    let e = Error::io(&self.path, "flush the data file", e);
                    self.committer.fail(e.clone());
                    return Err(Error::Stopped(Arc::new(e)));
                }
                self.grown(to, true)?;
                return Ok(true);
            }
            self.refresh_space()?;
        }
        if self.state.freed_blocks() == 0 {
            return Ok(false);
        }
        if !self.checkpointing {
            self.start_checkpoint();
        }
        self.stall(|s| s.checkpointing)?;
        Ok(true)
    }

    /// Makes sure that a record of `bytes` fits into the log and that no bound is passed.
    fn make_room(&mut self, bytes: u64) -> Result<()> {
        loop {
            let full = self.state.active.bytes() >= self.options.overlay_bytes || !self.committer.fits(bytes);
            if !full && self.committer.waiting_bytes() <= self.options.waiting_bytes {
                return Ok(());
            }
            if !full {
                self.stalls += 1;
                self.wait(self.queued())?;
                continue;
            }
            if self.checkpointing {
                self.stall(|s| s.checkpointing)?;
            } else {
                // That empties the overlay; the log's room comes only with the end.
                self.start_checkpoint();
            }
        }
    }

    /// Waits while `busy` holds.
    fn stall(&mut self, busy: impl Fn(&Self) -> bool) -> Result<()> {
        self.stalls += 1;
        while busy(self) {
            if let Some(e) = self.failed() {
                return Err(Error::Stopped(Arc::new(e)));
            }
            if self.options.threads {
                self.aside(|s| s.helper.wait());
            } else {
                self.pump();
            }
            self.settle()?;
        }
        Ok(())
    }

    fn start_due_checkpoint(&mut self) -> Result<()> {
        let g = &self.state.active;
        let due = g.bytes() >= self.options.overlay_bytes / 2
            || g.freed_blocks >= self.freed_blocks_max()
            || self.committer.used() >= self.superblock.log_bytes / 2;
        if due && !self.checkpointing {
            self.start_checkpoint();
        }
        Ok(())
    }

    /// So many freed blocks start a checkpoint: half of the stock, so that what one frees serves while the next gathers.
    fn freed_blocks_max(&self) -> u64 {
        let share = self.state.alloc.blocks() / FREED_SHARE;
        share.clamp(1, STOCK_BYTES_MAX / BLOCK / 2)
    }

    /// Of the blocks freed next, so many stay in the file.
    fn stock_wanted(&self) -> u64 {
        if self.is_short() {
            return 0;
        }
        let stock = (self.state.alloc.blocks() / STOCK_SHARE).min(STOCK_BYTES_MAX / BLOCK);
        stock.saturating_sub(self.state.alloc.written_free())
    }

    /// True if the host has less left than shall be left to it: what is not needed goes back.
    fn is_short(&self) -> bool {
        !self.file.is_device() && self.space.available < self.options.host_reserve_bytes
    }

    /// Where the host is short of space, free runs go with what this checkpoint frees.
    fn give_back(&mut self) {
        if !self.is_short() {
            return;
        }
        for (start, len) in self.state.alloc.give(PUNCH_BLOCKS, GIVE_BLOCKS_MAX) {
            self.state.active.freed.push((start, len));
            self.state.active.freed_blocks += len;
        }
    }

    /// Freezes what has gathered and lets the helper write it to its places.
    fn start_checkpoint(&mut self) {
        let seq = self.committer.queued() + 1;
        let marker = self.committer.mark();
        self.give_back();
        self.check_accounts();
        let taken = self.taken_rows();
        let g = self.state.freeze();
        let collections = g
            .collections
            .iter()
            .map(|c| (*c, self.state.collections.get(c).cloned()));
        let meta = Meta {
            position: 0,
            batch: marker + 1,
            incarnation: self.incarnation,
            seq,
            next_nid: self.state.next_nid,
            next_cid: self.state.next_cid,
            usage: self.state.usage.clone(),
        };
        let job = Checkpoint::new(
            &self.path,
            self.file.clone(),
            self.index.clone(),
            self.committer.clone(),
            g.clone(),
            marker,
            taken,
            collections.collect(),
            meta,
            self.stock_wanted(),
        );
        self.checkpointing = true;
        self.dirty_since = None;
        self.helper.submit(Job::Checkpoint(Box::new(job)));
        // It waits for its marker.
        if let Some(own) = &mut self.own {
            own.kick(&self.committer);
        }
    }

    /// Rows of the allocation groups that changed, without the blocks that this generation frees.
    fn taken_rows(&self) -> Vec<(u32, Vec<u8>)> {
        use crate::alloc::GROUP;
        let g = &self.state.active;
        let mut rows: BTreeMap<u32, Vec<u8>> =
            g.groups.iter().map(|n| (*n, self.state.alloc.row(*n))).collect();
        for (start, len) in &g.freed {
            let (mut at, end) = (*start, start + len);
            while at < end {
                let stop = end.min((at / GROUP + 1) * GROUP);
                if let Some(row) = rows.get_mut(&((at / GROUP) as u32)) {
                    (at % GROUP..at % GROUP + (stop - at))
                        .for_each(|i| row[(i / 8) as usize] &= !(1 << (i % 8)));
                }
                at = stop;
            }
        }
        rows.into_iter().collect()
    }

    /// Checkpoints everything and waits for it.
    pub fn checkpoint(&mut self) -> Result<()> {
        self.stall(|s| s.checkpointing)?;
        if self.state.active.is_empty() {
            return Ok(());
        }
        self.start_checkpoint();
        self.stall(|s| s.checkpointing)
    }

    // --- reads ---

    pub fn exists(&self, oid: &ObjectId) -> Result<bool> {
        Ok(self.state.object(oid)?.is_some())
    }
    pub fn stat(&self, oid: &ObjectId) -> Result<Stat> {
        self.state.stat(oid)
    }
    /// Clipped at the object's end; holes read as zeros.
    pub fn read(&self, oid: &ObjectId, offset: u64, len: u64) -> Result<Bytes> {
        self.state.read(oid, offset, len)
    }
    /// Like `read`, in as many pieces as it lies in memory.
    pub fn read_pieces(&self, oid: &ObjectId, offset: u64, len: u64) -> Result<Vec<Bytes>> {
        self.state.read_pieces(oid, offset, len)
    }
    /// Starts reading from the disk what a `read` of this range would have to wait for; it begins at the next
    /// [`Store::kick`]. None: all of it is in memory (or a hole, or there is no such object), or no room is left
    /// for reads under way, or the disk cannot do this beside the owner; then `read` does.
    pub fn prefetch(&mut self, oid: &ObjectId, offset: u64, len: u64) -> Result<Option<Ticket>> {
        self.settle()?;
        self.state.prefetch(oid, offset, len)
    }
    /// Lets go of what is kept in memory of the range only to be read faster, so that the next read asks the disk
    /// itself. What is not written back yet is in memory alone, and stays.
    pub fn uncache(&mut self, oid: &ObjectId, offset: u64, len: u64) -> Result<()> {
        self.state.uncache(oid, offset, len)
    }
    /// Prefetches that ended since the last call, well or not: `read` gives the data or the error.
    pub fn prefetched(&mut self) -> Vec<Ticket> {
        self.state.reads.completed()
    }
    /// Lets go of what a prefetch brought; to be called once for each ticket, when it is used or not wanted
    /// any more.
    pub fn release(&mut self, ticket: Ticket) {
        self.state.reads.release(ticket);
    }
    /// Turns readable when [`Store::prefetched`] has something to give.
    pub fn reads_fd(&self) -> Option<BorrowedFd<'_>> {
        self.state.reads.fd()
    }
    /// Blocks until a prefetch made progress, or none is under way (never the data path).
    pub fn wait_reads(&mut self) -> Result<()> {
        let waited = self.state.reads.wait();
        waited.map_err(|e| Error::io(&self.path, "wait for reads", e))
    }
    /// The parts of the range that are not holes: (offset, length), ascending, merged, clipped.
    pub fn allocated(&self, oid: &ObjectId, offset: u64, len: u64) -> Result<Vec<(u64, u64)>> {
        self.state.allocated(oid, offset, len)
    }
    pub fn attr(&self, oid: &ObjectId, name: &[u8]) -> Result<Option<Bytes>> {
        self.state.attr(oid, name)
    }
    /// Names of all attributes, and how long their values are.
    pub fn attr_sizes(&self, oid: &ObjectId) -> Result<Vec<(Bytes, u64)>> {
        self.state.attr_sizes(oid)
    }
    /// All attributes, by name.
    pub fn attrs(&self, oid: &ObjectId) -> Result<Vec<(Bytes, Bytes)>> {
        self.state.attrs(oid)
    }
    pub fn omap_header(&self, oid: &ObjectId) -> Result<Bytes> {
        self.state.omap_header(oid)
    }
    /// Those of `keys` that exist.
    pub fn omap_get(&self, oid: &ObjectId, keys: &[Bytes]) -> Result<Vec<(Bytes, Bytes)>> {
        self.state.omap_get(oid, keys)
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
    /// The same up to and with `to`.
    pub fn list_within(&self, from: &ObjectId, to: &ObjectId, max: usize) -> Result<Vec<ObjectId>> {
        self.state.list_within(from, Some(to), max)
    }
    pub fn collections(&self) -> Vec<SPgId> {
        self.state.collections.keys().copied().collect()
    }
    pub fn meta(&self, collection: &SPgId) -> Result<Bytes> {
        self.state.meta(collection)
    }
    /// All log entries that were not trimmed, ascending.
    pub fn log_entries(&self, collection: &SPgId) -> Result<Vec<(EVersion, Bytes)>> {
        self.state.log_entries(collection)
    }

    /// Memory that it takes now, roughly; what the index library caches by itself is not in it.
    pub fn memory_bytes(&self) -> u64 {
        self.state.memory_bytes() + self.committer.waiting_bytes()
    }

    pub fn counters(&self) -> Counters {
        Counters {
            checkpoints: self.checkpoints,
            stalls: self.stalls,
            ..self.committer.counters()
        }
    }
}

impl Drop for Store {
    /// Leaves the disk as a crash would: the next open replays.
    fn drop(&mut self) {
        self.committer.stop();
        self.helper.stop();
        for t in self.threads.drain(..) {
            let _ = t.join();
        }
    }
}

/// Operations that need more of the host than they give back.
fn grows(op: &Op) -> bool {
    matches!(
        op,
        Op::Touch { .. }
            | Op::Write { .. }
            | Op::SetAttrs { .. }
            | Op::OmapSet { .. }
            | Op::OmapSetHeader { .. }
            | Op::Clone { .. }
            | Op::CloneRange { .. }
    )
}

/// A bad block found while completing a write: says of which object.
fn name_corrupt(e: Error, op: &Op) -> Error {
    match (e, op) {
        (
            Error::Corrupt { offset, .. },
            Op::Write { oid, .. }
            | Op::Zero { oid, .. }
            | Op::Truncate { oid, .. }
            | Op::CloneRange { src: oid, .. },
        ) => Error::Corrupt {
            object: oid.object.to_string(),
            offset,
        },
        (e, _) => e,
    }
}
