//! A simulated disk that loses power, for tests.
//!
//! Vocabulary: a file has a *durable* image (what its last flush left) and *pending* operations (all
//! since). A *cut* is the power going away: from then on every call fails, and [`SimDisk::survivor`]
//! makes the disk that the next start finds: any subset of the pending operations, writes torn at
//! 512 bytes, creations that were not synced kept or lost.
//!
//! Invariants: nothing here is random but by the seeds given; a cut never loses what a completed flush
//! covered, on that file.
//!
//! Not here: reordering of completed reads, latencies.

use super::{Disk, DiskFile, Space};
use std::collections::{BTreeMap, HashMap};
use std::io::{Error, ErrorKind, IoSlice, Result};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What a real disk writes whole or not at all.
pub const SECTOR: usize = 512;
const PAGE: usize = 4096;

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
    kind: ErrorKind,
}

/// Sparse content: pages that were never written read as zeros.
#[derive(Debug, Clone, Default)]
struct Image {
    pages: HashMap<u64, Arc<[u8; PAGE]>>,
    len: u64,
}

impl Image {
    fn write(&mut self, mut at: u64, mut data: &[u8]) {
        self.len = self.len.max(at + data.len() as u64);
        while !data.is_empty() {
            let (page, skip) = (at / PAGE as u64, (at % PAGE as u64) as usize);
            let n = data.len().min(PAGE - skip);
            let p = self.pages.entry(page).or_insert_with(|| Arc::new([0; PAGE]));
            Arc::make_mut(p)[skip..skip + n].copy_from_slice(&data[..n]);
            (at, data) = (at + n as u64, &data[n..]);
        }
    }

    fn read(&self, mut at: u64, mut out: &mut [u8]) {
        while !out.is_empty() {
            let (page, skip) = (at / PAGE as u64, (at % PAGE as u64) as usize);
            let n = out.len().min(PAGE - skip);
            match self.pages.get(&page) {
                Some(p) => out[..n].copy_from_slice(&p[skip..skip + n]),
                None => out[..n].fill(0),
            }
            at += n as u64;
            out = &mut out[n..];
        }
    }

    fn zero(&mut self, at: u64, len: u64) {
        let end = (at + len).min(self.len);
        let mut at = at;
        while at < end {
            let skip = at % PAGE as u64;
            let n = (PAGE as u64 - skip).min(end - at);
            if n == PAGE as u64 {
                self.pages.remove(&(at / PAGE as u64));
            } else if self.pages.contains_key(&(at / PAGE as u64)) {
                self.write(at, &[0u8; PAGE][..n as usize]);
            }
            at += n;
        }
    }

    fn set_len(&mut self, len: u64) {
        if len < self.len {
            let old = self.len;
            self.zero(len, old - len);
        }
        self.len = len;
    }

    fn apply(&mut self, op: &Pending) {
        match op {
            Pending::Write(at, data) => self.write(*at, data),
            Pending::SetLen(len) => self.set_len(*len),
            Pending::Punch(at, len) => self.zero(*at, *len),
        }
    }
}

#[derive(Debug, Clone)]
enum Pending {
    Write(u64, Vec<u8>),
    SetLen(u64),
    Punch(u64, u64),
}

#[derive(Debug, Clone, Default)]
struct FileState {
    durable: Image,
    pending: Vec<Pending>,
    now: Image,
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
    space: Option<Space>,
    bytes_written: u64,
    /// Chooses calls before which a survivor is kept: the dice, and how many of 1000.
    sample: Option<(Dice, u64)>,
    survivors: Vec<SimDisk>,
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
        self.state().sample = Some((Dice::new(seed), per_mille));
    }

    pub fn survivors(&self) -> Vec<SimDisk> {
        std::mem::take(&mut self.state().survivors)
    }

    /// Lets calls of one sort on one file fail once `after` more have succeeded, until [`Self::heal`].
    pub fn fail(&self, call: Call, file: &str, after: u64, kind: ErrorKind) {
        self.state().faults.push(Fault {
            call,
            file: file.to_owned(),
            after,
            kind,
        });
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
        self.state().survivor(seed)
    }
}

impl State {
    fn survivor(&self, seed: u64) -> SimDisk {
        let dice = std::cell::RefCell::new(Dice::new(seed));
        // Whole runs where all or nothing survives are likely in life, and rare by chance.
        let mode = dice.borrow_mut().below(5);
        self.rebuild(
            |f| {
                let mut image = f.durable.clone();
                for op in &f.pending {
                    match (mode, op) {
                        (0, _) => {}
                        (1, op) => image.apply(op),
                        (_, Pending::Write(at, data)) => tear(&mut image, *at, data, &mut dice.borrow_mut()),
                        (_, op) if dice.borrow_mut().below(2) == 0 => image.apply(op),
                        _ => {}
                    }
                }
                image
            },
            |f| f.named || mode == 1 || (mode > 1 && dice.borrow_mut().below(2) == 0),
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
            ..State::default()
        })))
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
            if let Some((dice, share)) = &mut self.sample
                && dice.below(1000) < *share
            {
                let seed = dice.roll();
                let kept = self.survivor(seed);
                self.survivors.push(kept);
            }
        }
        if self.cut_at.is_some_and(|n| self.calls >= n) {
            return Err(Error::other("the power is off"));
        }
        for f in &mut self.faults {
            if f.call == call && f.file == file {
                if f.after == 0 {
                    return Err(Error::new(f.kind, "injected fault"));
                }
                f.after -= 1;
            }
        }
        Ok(())
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
        if admitted.is_ok() {
            f.now.apply(&op);
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

impl DiskFile for SimFile {
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

    fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        let op = Pending::Write(offset, data.to_vec());
        self.disk.state().change(Call::Write, &self.name, op)
    }

    fn write_vectored_at(&self, data: &[IoSlice<'_>], offset: u64) -> Result<()> {
        let whole: Vec<u8> = data.iter().flat_map(|s| s.iter().copied()).collect();
        self.write_at(&whole, offset)
    }

    fn flush(&self) -> Result<()> {
        let mut s = self.disk.state();
        s.admit(Call::Flush, &self.name)?;
        let f = s.files.get_mut(&self.name).ok_or(ErrorKind::NotFound)?;
        f.pending.clear();
        f.durable = f.now.clone();
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
mod tests {
    use super::*;

    fn disk_with(data: &[u8]) -> (SimDisk, Arc<dyn DiskFile>) {
        let disk = SimDisk::new();
        let f = disk.create("f").unwrap();
        disk.sync().unwrap();
        f.write_at(data, 0).unwrap();
        f.flush().unwrap();
        (disk, f)
    }

    #[test]
    fn flushed_data_survives_every_cut() {
        let (disk, _f) = disk_with(&[7; 2000]);
        for seed in 0..50 {
            assert_eq!(disk.survivor(seed).content("f"), vec![7; 2000]);
        }
    }

    #[test]
    fn unflushed_data_survives_in_sectors() {
        let (disk, f) = disk_with(&[1; 2048]);
        f.write_at(&[2; 2048], 0).unwrap();
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..300 {
            let c = disk.survivor(seed).content("f");
            for s in c.chunks(SECTOR) {
                assert!(s.iter().all(|b| *b == s[0]), "a sector is never torn");
            }
            seen.insert(c.chunks(SECTOR).map(|s| s[0]).collect::<Vec<_>>());
        }
        assert!(seen.len() > 10 && seen.contains(&vec![1; 4]) && seen.contains(&vec![2; 4]));
    }

    #[test]
    fn after_a_cut_nothing_works() {
        let (disk, f) = disk_with(&[1; 10]);
        disk.cut_at(disk.calls() + 2);
        f.write_at(&[2; 10], 0).unwrap();
        assert!(f.flush().is_err());
        assert!(f.read_at(&mut [0; 1], 0).is_err());
    }

    #[test]
    fn an_unsynced_name_may_be_lost() {
        let disk = SimDisk::new();
        disk.create("f").unwrap().write_at(b"x", 0).unwrap();
        let kept = (0..50).filter(|s| disk.survivor(*s).exists("f").unwrap()).count();
        assert!(kept > 0 && kept < 50);
    }

    #[test]
    fn faults_hit_the_named_call() {
        let (disk, f) = disk_with(&[1; 10]);
        disk.fail(Call::Flush, "f", 1, ErrorKind::Other);
        f.flush().unwrap();
        assert!(f.flush().is_err());
        disk.heal();
        f.flush().unwrap();
        disk.flip("f", 3, 0);
        assert_eq!(disk.content("f")[3], 0);
    }
}
