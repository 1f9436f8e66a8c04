//! A simulated disk that loses power, for tests.
//!
//! Vocabulary: a file has a *durable* image (what its last flush left) and *pending* operations (all
//! since). A *cut* is the power going away: from then on every call fails, and [`SimDisk::survivor`]
//! makes the disk that the next start finds: any subset of the pending operations, writes torn at
//! 512 bytes, creations that were not synced kept or lost. A *lie* is a flush that reports success and does
//! nothing.
//!
//! Invariants: nothing here is random but by the seeds given; a cut never loses what a completed flush
//! covered, on that file.
//!
//! Not here: reordering of completed reads, latencies.

mod image;

use super::{AlignedVec, Disk, DiskFile, Space, WriteDone, WriteQueue};
use image::Image;
use rustix::fd::BorrowedFd;
use std::collections::BTreeMap;
use std::io::{Error, ErrorKind, IoSlice, Result};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What a real disk writes whole or not at all.
pub const SECTOR: usize = 512;

/// SplitMix64: small, seeded, good enough to choose subsets.
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }
    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    /// Below `n`; 0 for 0.
    pub fn below(&mut self, n: u64) -> u64 {
        if n == 0 { 0 } else { self.roll() % n }
    }
}

/// Which call a fault hits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    Read,
    Write,
    Flush,
    Allocate,
}

#[derive(Debug, Clone)]
struct Fault {
    call: Call,
    file: String,
    /// Calls that still succeed.
    after: u64,
    /// Calls that then fail.
    times: u64,
    kind: ErrorKind,
}

/// What of the unflushed operations a cut leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Survival {
    Nothing,
    Everything,
    /// For each file nothing, everything or torn parts, as the seed says.
    Some(u64),
}

/// One call of flush, as a liar sees it.
#[derive(Debug, Clone, Copy)]
pub struct Flush<'a> {
    pub file: &'a str,
    /// Flushes of this file before it, since the disk was made or copied.
    pub number: u64,
    /// Lowest byte of what it should make durable.
    pub lowest: u64,
}

/// True: the flush reports success and does nothing.
pub type Lie = fn(&Flush<'_>) -> bool;

#[derive(Debug, Clone)]
enum Pending {
    Write(u64, Vec<u8>),
    SetLen(u64),
    Punch(u64, u64),
}

impl Pending {
    fn at(&self) -> u64 {
        match self {
            Self::Write(at, _) | Self::SetLen(at) | Self::Punch(at, _) => *at,
        }
    }

    fn apply(&self, image: &mut Image) {
        match self {
            Self::Write(at, data) => image.write(*at, data),
            Self::SetLen(len) => image.set_len(*len),
            Self::Punch(at, len) => image.zero(*at, *len),
        }
    }
}

#[derive(Debug, Clone, Default)]
struct FileState {
    durable: Image,
    pending: Vec<Pending>,
    now: Image,
    /// A pending operation was reported as failed and is not in `now`.
    failed: bool,
    flushes: u64,
    /// The name survives a cut.
    named: bool,
    locked: Arc<AtomicBool>,
}

#[derive(Debug, Default)]
struct State {
    files: BTreeMap<String, FileState>,
    removed: Vec<(String, FileState)>,
    calls: u64,
    cut_at: Option<u64>,
    faults: Vec<Fault>,
    failures: u64,
    space: Option<Space>,
    bytes_written: u64,
    /// Its files have a queue for durable writes.
    queues: bool,
    lie: Option<Lie>,
    /// Chooses the survivors that are kept before each call.
    sample: Option<Sample>,
    survivors: Vec<SimDisk>,
}

/// How many of 1000 calls keep a survivor of each sort.
#[derive(Debug, Clone)]
struct Sample {
    dice: Dice,
    nothing: u64,
    everything: u64,
    torn: u64,
}

/// The simulated disk; clones are the same disk.
#[derive(Debug, Clone, Default)]
pub struct SimDisk(Arc<Mutex<State>>);

impl SimDisk {
    pub fn new() -> Self {
        Self::default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls so far that change the disk or flush it: the places where a cut can fall.
    pub fn calls(&self) -> u64 {
        self.state().calls
    }

    pub fn bytes_written(&self) -> u64 {
        self.state().bytes_written
    }

    /// Lets the power fail at the `n`-th changing call from the disk's beginning: that call and all
    /// after it fail.
    pub fn cut_at(&self, n: u64) {
        self.state().cut_at = Some(n);
    }

    /// From now on, before that share (of 1000) of the changing calls, keeps the disk that would be left
    /// if the power failed there; the run goes on. [`Self::survivors`] hands them out.
    pub fn sample(&self, seed: u64, per_mille: u64) {
        self.sample_each(seed, [per_mille / 5, per_mille / 5, per_mille * 3 / 5]);
    }

    /// Like [`Self::sample`], with shares of their own for cuts of which nothing, everything, and torn parts
    /// survive; each 1000 is one survivor at each call. Calls with nothing unflushed keep at most one.
    pub fn sample_each(&self, seed: u64, [nothing, everything, torn]: [u64; 3]) {
        self.state().sample = Some(Sample {
            dice: Dice::new(seed),
            nothing,
            everything,
            torn,
        });
    }

    /// From now on its files, and those of what is left of it, have a queue for durable writes: written when they begin, durable
    /// when their owner hears of the end.
    pub fn offer_queues(&self) {
        self.state().queues = true;
    }

    /// Lets flushes lie from now on.
    pub fn lie(&self, lie: Lie) {
        self.state().lie = Some(lie);
    }

    pub fn survivors(&self) -> Vec<SimDisk> {
        std::mem::take(&mut self.state().survivors)
    }

    /// Lets calls of one sort on one file fail once `after` more have succeeded, until [`Self::heal`].
    pub fn fail(&self, call: Call, file: &str, after: u64, kind: ErrorKind) {
        self.fail_times(call, file, after, u64::MAX, kind);
    }

    /// Like [`Self::fail`], but only `times` calls fail.
    pub fn fail_times(&self, call: Call, file: &str, after: u64, times: u64, kind: ErrorKind) {
        self.state().faults.push(Fault {
            call,
            file: file.to_owned(),
            after,
            times,
            kind,
        });
    }

    /// Calls that were made to fail.
    pub fn failures(&self) -> u64 {
        self.state().failures
    }

    pub fn heal(&self) {
        self.state().faults.clear();
    }

    pub fn set_space(&self, space: Space) {
        self.state().space = Some(space);
    }

    /// Flips one bit, as a failing medium does.
    pub fn flip(&self, file: &str, offset: u64, bit: u8) {
        let mut s = self.state();
        if let Some(f) = s.files.get_mut(file) {
            for image in [&mut f.now, &mut f.durable] {
                let mut b = [0];
                image.read(offset, &mut b);
                image.write(offset, &[b[0] ^ (1 << (bit & 7))]);
            }
        }
    }

    /// The content of a file as it is now.
    pub fn content(&self, file: &str) -> Vec<u8> {
        let s = self.state();
        let Some(f) = s.files.get(file) else {
            return Vec::new();
        };
        let mut out = vec![0; f.now.len as usize];
        f.now.read(0, &mut out);
        out
    }

    /// An independent copy, as it is now, with all of it durable.
    pub fn copy(&self) -> Self {
        self.state().rebuild(|f| f.now.clone(), |_| true)
    }

    /// The disk that the next start finds when the power fails now.
    pub fn survivor(&self, seed: u64) -> Self {
        // Whole runs where all or nothing survives are likely in life, and rare by chance.
        self.survivor_of(match Dice::new(seed).below(5) {
            0 => Survival::Nothing,
            1 => Survival::Everything,
            _ => Survival::Some(seed),
        })
    }

    pub fn survivor_of(&self, how: Survival) -> Self {
        self.state().survivor(how)
    }
}

impl State {
    fn survivor(&self, how: Survival) -> SimDisk {
        let seed = if let Survival::Some(seed) = how { seed } else { 0 };
        let dice = std::cell::RefCell::new(Dice::new(seed));
        self.rebuild(
            |f| {
                let dice = &mut *dice.borrow_mut();
                match (how, dice.below(4)) {
                    (Survival::Everything, _) | (Survival::Some(_), 0) => f.everything(),
                    (Survival::Nothing, _) | (Survival::Some(_), 1) => f.durable.clone(),
                    (Survival::Some(_), _) => f.torn(dice),
                }
            },
            |f| match how {
                Survival::Nothing => f.named,
                Survival::Everything => true,
                Survival::Some(_) => f.named || dice.borrow_mut().below(2) == 0,
            },
        )
    }

    fn rebuild(&self, image: impl Fn(&FileState) -> Image, keep: impl Fn(&FileState) -> bool) -> SimDisk {
        let mut files = BTreeMap::new();
        for (name, f) in self.files.iter().filter(|(_, f)| keep(f)) {
            let now = image(f);
            let file = FileState {
                durable: now.clone(),
                now,
                named: true,
                ..FileState::default()
            };
            files.insert(name.clone(), file);
        }
        SimDisk(Arc::new(Mutex::new(State {
            files,
            space: self.space,
            queues: self.queues,
            ..State::default()
        })))
    }
}

impl FileState {
    fn everything(&self) -> Image {
        let mut image = self.durable.clone();
        self.pending.iter().for_each(|op| op.apply(&mut image));
        image
    }

    fn torn(&self, dice: &mut Dice) -> Image {
        let mut image = self.durable.clone();
        for op in &self.pending {
            match op {
                Pending::Write(at, data) => tear(&mut image, *at, data, dice),
                op if dice.below(2) == 0 => op.apply(&mut image),
                _ => {}
            }
        }
        image
    }

    /// Makes what is there now durable in this range alone.
    fn persist(&mut self, start: u64, len: usize) {
        let end = start + len as u64;
        let mut data = vec![0; len];
        self.now.read(start, &mut data);
        self.durable.write(start, &data);
        // What waits there has been overtaken.
        let pending = std::mem::take(&mut self.pending);
        for op in pending {
            let Pending::Write(at, data) = op else {
                self.pending.push(op);
                continue;
            };
            let before = start.saturating_sub(at).min(data.len() as u64) as usize;
            let behind = end.saturating_sub(at).min(data.len() as u64) as usize;
            let parts = [
                (at, &data[..before]),
                (at + behind as u64, &data[behind.max(before)..]),
            ];
            let parts = parts.into_iter().filter(|(_, part)| !part.is_empty());
            self.pending
                .extend(parts.map(|(at, part)| Pending::Write(at, part.to_vec())));
        }
    }

    fn flush(&mut self) {
        if std::mem::take(&mut self.failed) {
            self.durable = self.now.clone();
            self.pending.clear();
        }
        for op in self.pending.drain(..) {
            op.apply(&mut self.durable);
        }
    }
}

/// One write: whole, lost, or sector by sector.
fn tear(image: &mut Image, at: u64, data: &[u8], dice: &mut Dice) {
    match dice.below(4) {
        0 => {}
        1 => image.write(at, data),
        _ => {
            let mut start = 0;
            while start < data.len() {
                let n = (SECTOR - (at as usize + start) % SECTOR).min(data.len() - start);
                if dice.below(2) == 0 {
                    image.write(at + start as u64, &data[start..start + n]);
                }
                start += n;
            }
        }
    }
}

impl State {
    /// Passes or refuses one call; changing calls are counted.
    fn admit(&mut self, call: Call, file: &str) -> Result<()> {
        if call != Call::Read {
            self.calls += 1;
            self.keep_survivors();
        }
        if self.cut_at.is_some_and(|n| self.calls >= n) {
            return Err(Error::other("the power is off"));
        }
        for f in &mut self.faults {
            if f.call == call && f.file == file {
                if f.after > 0 {
                    f.after -= 1;
                } else if f.times > 0 {
                    f.times -= 1;
                    self.failures += 1;
                    return Err(Error::new(f.kind, "injected fault"));
                }
            }
        }
        Ok(())
    }

    fn keep_survivors(&mut self) {
        let Some(sample) = &mut self.sample else { return };
        let dice = &mut sample.dice;
        let mut chosen = Vec::new();
        for (share, how) in [
            (sample.nothing, Some(Survival::Nothing)),
            (sample.everything, Some(Survival::Everything)),
            (sample.torn, None),
        ] {
            let n = share / 1000 + u64::from(dice.below(1000) < share % 1000);
            chosen.extend((0..n).map(|_| how.unwrap_or_else(|| Survival::Some(dice.roll()))));
        }
        if self.files.values().all(|f| f.pending.is_empty() && f.named) {
            // They would all be the same.
            chosen.truncate(1);
        }
        for how in chosen {
            let kept = self.survivor(how);
            self.survivors.push(kept);
        }
    }

    fn change(&mut self, call: Call, name: &str, op: Pending) -> Result<()> {
        let admitted = self.admit(call, name);
        let powered = self.cut_at.is_none_or(|n| self.calls <= n);
        // The call at which the power fails (or that reports EIO) may still have reached the disk.
        if admitted.is_err() && !(powered && call == Call::Write) {
            return admitted;
        }
        if let Pending::Write(_, data) = &op {
            self.bytes_written += data.len() as u64;
        }
        let f = match self.files.get_mut(name) {
            Some(f) => f,
            None => match self.removed.iter_mut().find(|(n, _)| n == name) {
                Some((_, f)) => f,
                None => return Err(ErrorKind::NotFound.into()),
            },
        };
        match admitted {
            Ok(()) => op.apply(&mut f.now),
            Err(_) => f.failed = true,
        }
        f.pending.push(op);
        admitted
    }
}

impl Disk for SimDisk {
    fn name(&self) -> String {
        "simulated disk".to_owned()
    }

    fn exists(&self, file: &str) -> Result<bool> {
        Ok(self.state().files.contains_key(file))
    }

    fn open(&self, file: &str) -> Result<Arc<dyn DiskFile>> {
        let s = self.state();
        let f = s.files.get(file).ok_or(ErrorKind::NotFound)?;
        Ok(Arc::new(SimFile {
            disk: self.clone(),
            name: file.to_owned(),
            lock: f.locked.clone(),
            owner: AtomicBool::new(false),
        }))
    }

    fn create(&self, file: &str) -> Result<Arc<dyn DiskFile>> {
        {
            let mut s = self.state();
            s.admit(Call::Write, file)?;
            if s.files.contains_key(file) {
                return Err(ErrorKind::AlreadyExists.into());
            }
            s.files.insert(file.to_owned(), FileState::default());
        }
        self.open(file)
    }

    fn remove(&self, file: &str) -> Result<()> {
        let mut s = self.state();
        s.admit(Call::Write, file)?;
        let f = s.files.remove(file).ok_or(ErrorKind::NotFound)?;
        s.removed.push((file.to_owned(), f));
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        let mut s = self.state();
        s.admit(Call::Flush, "")?;
        s.files.values_mut().for_each(|f| f.named = true);
        Ok(())
    }

    fn space(&self) -> Result<Space> {
        let plenty = Space {
            total: 1 << 40,
            available: 1 << 40,
        };
        Ok(self.state().space.unwrap_or(plenty))
    }
}

#[derive(Debug)]
struct SimFile {
    disk: SimDisk,
    name: String,
    lock: Arc<AtomicBool>,
    owner: AtomicBool,
}

impl Drop for SimFile {
    fn drop(&mut self) {
        if self.owner.load(Ordering::SeqCst) {
            self.lock.store(false, Ordering::SeqCst);
        }
    }
}

impl SimFile {
    fn persist(&self, offset: u64, len: usize) -> Result<()> {
        let mut s = self.disk.state();
        s.admit(Call::Flush, &self.name)?;
        let lie = s.lie;
        let f = s.files.get_mut(&self.name).ok_or(ErrorKind::NotFound)?;
        let flush = Flush {
            file: &self.name,
            number: f.flushes,
            lowest: offset,
        };
        f.flushes += 1;
        if !lie.is_some_and(|lies| lies(&flush)) {
            f.persist(offset, len);
        }
        Ok(())
    }
}

/// Durable writes: two calls each, so that a cut can fall between.
#[derive(Debug)]
struct SimWrites {
    file: SimFile,
    begun: Option<(AlignedVec, u64, Result<()>)>,
}

impl WriteQueue for SimWrites {
    fn begin(&mut self, data: AlignedVec, offset: u64) {
        assert!(self.begun.is_none(), "one write at a time");
        let written = self.file.write_at(&data, offset);
        self.begun = Some((data, offset, written));
    }

    fn ended(&mut self) -> Option<WriteDone> {
        let (data, offset, written) = self.begun.take()?;
        let result = written.and_then(|()| self.file.persist(offset, data.len()));
        Some(WriteDone { data, result })
    }

    fn wait(&mut self) -> Result<()> {
        Ok(())
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

impl DiskFile for SimFile {
    fn write_queue(&self) -> Result<Option<Box<dyn WriteQueue>>> {
        let file = SimFile {
            disk: self.disk.clone(),
            name: self.name.clone(),
            lock: self.lock.clone(),
            owner: AtomicBool::new(false),
        };
        let offered = self.disk.state().queues;
        Ok(offered.then(|| Box::new(SimWrites { file, begun: None }) as Box<dyn WriteQueue>))
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let mut s = self.disk.state();
        s.admit(Call::Read, &self.name)?;
        let f = s.files.get(&self.name).ok_or(ErrorKind::NotFound)?;
        if offset + buf.len() as u64 > f.now.len {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        f.now.read(offset, buf);
        Ok(())
    }

    fn next_data(&self, offset: u64) -> Result<u64> {
        let s = self.disk.state();
        let f = s.files.get(&self.name).ok_or(ErrorKind::NotFound)?;
        Ok(f.now.next_data(offset))
    }

    fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        let op = Pending::Write(offset, data.to_vec());
        self.disk.state().change(Call::Write, &self.name, op)
    }

    fn write_vectored_at(&self, data: &[IoSlice<'_>], offset: u64) -> Result<()> {
        let mut whole = Vec::with_capacity(data.iter().map(|s| s.len()).sum());
        data.iter().for_each(|s| whole.extend_from_slice(s));
        self.disk
            .state()
            .change(Call::Write, &self.name, Pending::Write(offset, whole))
    }

    fn flush(&self) -> Result<()> {
        let mut s = self.disk.state();
        s.admit(Call::Flush, &self.name)?;
        let lie = s.lie;
        let f = s.files.get_mut(&self.name).ok_or(ErrorKind::NotFound)?;
        let flush = Flush {
            file: &self.name,
            number: f.flushes,
            lowest: f.pending.iter().map(Pending::at).min().unwrap_or(0),
        };
        f.flushes += 1;
        if !lie.is_some_and(|lies| lies(&flush)) {
            f.flush();
        }
        Ok(())
    }

    fn punch_hole(&self, offset: u64, len: u64) -> Result<()> {
        let op = Pending::Punch(offset, len);
        self.disk.state().change(Call::Write, &self.name, op)
    }

    fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        let mut s = self.disk.state();
        let have = s.files.get(&self.name).ok_or(ErrorKind::NotFound)?.now.len;
        let op = Pending::SetLen(have.max(offset + len));
        s.change(Call::Allocate, &self.name, op)
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.disk
            .state()
            .change(Call::Write, &self.name, Pending::SetLen(len))
    }

    fn len(&self) -> Result<u64> {
        let s = self.disk.state();
        Ok(s.files.get(&self.name).ok_or(ErrorKind::NotFound)?.now.len)
    }

    fn try_lock(&self) -> Result<bool> {
        if self.lock.swap(true, Ordering::SeqCst) {
            return Ok(false);
        }
        self.owner.store(true, Ordering::SeqCst);
        Ok(true)
    }
}

#[cfg(test)]
mod tests;
