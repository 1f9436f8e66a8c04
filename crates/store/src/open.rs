//! Making a store, and loading one: superblock, index, then the log's replay.
//!
//! Files of a store: `block` (superblock, log ring, data) and `index`. `mkfs` writes the superblock last.
//!
//! Replay applies every batch that has a successor (it was durable, whatever the rest of the disk says), and
//! the last one if the direct extents that its flush was to cover are whole; else that batch never was.

use crate::alloc::Allocator;
use crate::block_row::block_crc;
use crate::broken::{self, Rule};
use crate::checkpoint::{Meta, decode_collection};
use crate::codec::Input;
use crate::index::{Checked, Index, RedbIndex, Slack, Snapshot, Table};
use crate::key;
use crate::onode::BLOCK;
use crate::record::{self, Step};
use crate::ring::{Cursor, Found, Ring, Scanner};
use crate::state::State;
use crate::superblock::{self, Superblock};
use crate::{Error, Identity, Options, Result};
use bytes::Bytes;
use io::disk::{Disk, DiskFile, sealed};
use std::io::ErrorKind;
use std::ops::Bound;
use std::sync::Arc;
use types::SPgId;

pub const DATA_FILE: &str = "block";
pub const INDEX_FILE: &str = "index";
/// Zeroed by `mkfs`; the rest of the ring is zeroed ahead of its first use.
const LOG_ZERO_BYTES: u64 = 256 << 10;
/// Direct data of the last batch, read at a time while it is verified.
const VERIFY_BYTES: u64 = 1 << 20;

pub fn mkfs(disk: &dyn Disk, options: &Options) -> Result<()> {
    let path = disk.name();
    let io = |action| {
        let path = path.clone();
        move |e| Error::io(&path, action, e)
    };
    // An unfinished mkfs leaves files that no store ever lived in: those may go. A device stays.
    let mut file = None;
    if disk.exists(DATA_FILE).map_err(io("look into the directory"))? {
        let old = disk.open(DATA_FILE).map_err(io("open the data file"))?;
        if !old.try_lock().map_err(io("lock the data file"))? {
            return Err(Error::Locked { path: path.clone() });
        }
        match Superblock::read(&path, &*old, &Options::default()) {
            Err(Error::NotAStore { .. }) if superblock::never_opened(&*old) => {}
            Err(e @ Error::NotAStore { .. }) => return Err(e),
            _ => return Err(Error::AlreadyAStore { path: path.clone() }),
        }
        if old.is_device() {
            file = Some(old);
        } else {
            disk.remove(DATA_FILE).map_err(io("remove an unfinished store"))?;
        }
    }
    if disk.exists(INDEX_FILE).map_err(io("look into the directory"))? {
        disk.remove(INDEX_FILE)
            .map_err(io("remove an unfinished store"))?;
    }
    if let (Some(device), None) = (&options.device, &file) {
        disk.create_on(DATA_FILE, device)
            .map_err(io("name the device in the directory"))?;
        let made = mkfs_on_device(disk, options);
        if made.is_err() {
            // The device was not ours to use: nothing of it was changed.
            disk.remove(DATA_FILE).map_err(io("remove the device's name"))?;
        }
        return made;
    }
    let s = Superblock::new(options);
    let file = match file {
        Some(file) => file,
        None => {
            let file = disk.create(DATA_FILE).map_err(io("create the data file"))?;
            if !file.try_lock().map_err(io("lock the data file"))? {
                return Err(Error::Locked { path: path.clone() });
            }
            file
        }
    };
    file.allocate(0, s.data_offset)
        .map_err(io("reserve space for the log"))?;
    let zeros = vec![0; LOG_ZERO_BYTES.min(s.log_bytes) as usize];
    file.write_at(&zeros, s.log_offset).map_err(io("zero the log"))?;
    file.flush().map_err(io("flush the data file"))?;

    let index = disk.create(INDEX_FILE).map_err(io("create the index"))?;
    let index = index_file(index, &s).map_err(io("create the index"))?;
    let index = RedbIndex::open(&path, index, options.index_cache_bytes)?;
    let meta = Meta {
        position: 0,
        batch: 1,
        incarnation: 0,
        seq: 1,
        next_nid: 1,
        next_cid: 1,
        ..Meta::default()
    };
    index.commit(&mut |w| meta.put(w))?;
    drop(index);
    disk.sync().map_err(io("flush the directory"))?;

    for copy in 0..2 {
        file.write_at(&s.encode(), copy * superblock::SIZE as u64)
            .map_err(io("write the superblock"))?;
    }
    file.flush().map_err(io("flush the superblock"))
}

/// The device has its name in the directory: what remains is like the second try of an unfinished mkfs.
fn mkfs_on_device(disk: &dyn Disk, options: &Options) -> Result<()> {
    let named = Options {
        device: None,
        ..options.clone()
    };
    mkfs(disk, &named)
}

/// A store as it was left, replayed but not yet serving.
#[derive(Debug)]
pub struct Loaded {
    pub path: String,
    pub file: Arc<dyn DiskFile>,
    pub superblock: Superblock,
    pub index: Arc<dyn Index>,
    pub slack: Slack,
    pub state: State,
    pub ring: Ring,
    pub tag: u64,
    /// Where the log ends.
    pub end: Cursor,
    /// Where the log begins: the checkpoint.
    pub tail: u64,
    /// Transactions replayed.
    pub replayed: u64,
}

/// Whose store it is, and its data file, locked.
pub fn identify(disk: &dyn Disk, options: &Options) -> Result<(Arc<dyn DiskFile>, Superblock)> {
    let path = disk.name();
    let file = disk.open_data(DATA_FILE).map_err(|e| open_error(&path, e))?;
    match file.try_lock() {
        Ok(true) => {}
        Ok(false) => return Err(Error::Locked { path }),
        Err(e) => return Err(Error::io(&path, "lock the data file", e)),
    }
    let s = Superblock::read(&path, &*file, options)?;
    Ok((file, s))
}

/// What the superblock says, of a store that may be served meanwhile: nothing is locked. It is written when a store is opened and with its first
/// blob, one copy after the other, so one of them is whole.
pub fn look(disk: Arc<dyn Disk>, options: &Options) -> Result<Identity> {
    let disk = unsealed(disk, options)?;
    let path = disk.name();
    let file = disk.open_data(DATA_FILE).map_err(|e| open_error(&path, e))?;
    Ok(Superblock::read(&path, &*file, options)?.identity)
}

pub fn open_index_file(disk: &dyn Disk, s: &Superblock) -> Result<Arc<dyn DiskFile>> {
    let file = disk.open(INDEX_FILE).and_then(|f| index_file(f, s));
    file.map_err(|e| open_error(&disk.name(), e))
}

/// The index as its library sees it.
fn index_file(file: Arc<dyn DiskFile>, s: &Superblock) -> std::io::Result<Arc<dyn DiskFile>> {
    match s.identity.features & superblock::FEATURE_INDEX_SUMS {
        0 => Ok(file),
        _ => Ok(Arc::new(Checked::over(file)?)),
    }
}

/// The disk as a store that may be encrypted is read from it and written to it.
pub fn unsealed(disk: Arc<dyn Disk>, options: &Options) -> Result<Arc<dyn Disk>> {
    let name = disk.name();
    sealed::over(disk, options.keys.as_ref()).map_err(|e| seal_error(&name, e))
}

/// The disk for mkfs: encrypted where there are keys and no store is there yet, not even one that was never opened.
pub fn sealed_for_mkfs(disk: Arc<dyn Disk>, options: &Options) -> Result<Arc<dyn Disk>> {
    let name = disk.name();
    match &options.keys {
        Some(keys) if !holds_a_store(&*disk, options)? => {
            sealed::make(disk, keys).map_err(|e| seal_error(&name, e))
        }
        _ => unsealed(disk, options),
    }
}

/// As the disk is without a seal: of an encrypted store only whether it was ever opened can be told.
fn holds_a_store(disk: &dyn Disk, options: &Options) -> Result<bool> {
    let path = disk.name();
    if !disk
        .exists(DATA_FILE)
        .map_err(|e| Error::io(&path, "look into the directory", e))?
    {
        return Ok(false);
    }
    let file = disk
        .open_data(DATA_FILE)
        .map_err(|e| Error::io(&path, "open the data file", e))?;
    Ok(match Superblock::read(&path, &*file, options) {
        Err(Error::NotAStore { .. }) => !superblock::never_opened(&*file),
        _ => true,
    })
}

/// For who has the store's lock. It serves without that, too.
pub fn renew_seal(bare: &dyn Disk, options: &Options) {
    let path = bare.name();
    match sealed::renew(bare, options.keys.as_ref()) {
        Ok(None) => {}
        Ok(Some(name)) => tracing::info!("{path}: its key is under the key '{name}' now"),
        Err(e) => tracing::warn!("{path}: its key stays under the one that it was under: {e}"),
    }
}

fn seal_error(path: &str, e: std::io::Error) -> Error {
    Error::io(path, "open its seal", e)
}

fn open_error(path: &str, e: std::io::Error) -> Error {
    match e.kind() {
        ErrorKind::NotFound => Error::NotAStore {
            path: path.to_owned(),
            why: "it has no data file or no index",
        },
        _ => Error::io(path, "open its files", e),
    }
}

pub fn load(disk: &dyn Disk, options: &Options) -> Result<Loaded> {
    load_from(disk, options, true)
}

/// Without its log the store is that of the last checkpoint: only to look at.
pub fn load_from(disk: &dyn Disk, options: &Options, with_log: bool) -> Result<Loaded> {
    let path = disk.name();
    let (file, s) = identify(disk, options)?;
    let index = RedbIndex::open(&path, open_index_file(disk, &s)?, options.index_cache_bytes)?;
    let slack = match options.index_slack_bytes {
        0 => Slack::default(),
        _ if file.is_read_only() => Slack::default(),
        bytes => Slack::behind(disk.open(INDEX_FILE).map_err(|e| open_error(&path, e))?, bytes),
    };
    let snapshot = index.snapshot()?;
    let damaged = |why: &str| Error::Index {
        path: path.clone(),
        why: why.to_owned(),
    };
    let raw = snapshot.get(Table::Meta, Meta::key())?;
    let meta = Meta::decode(raw.ok_or_else(|| damaged("no checkpoint row"))?).map_err(|e| damaged(e.0))?;

    let bytes = file
        .len()
        .map_err(|e| Error::io(&path, "find the data file's length", e))?;
    let alloc = load_taken(&*snapshot, bytes / BLOCK, s.data_offset / BLOCK, &damaged)?;
    let collections = load_collections(&*snapshot, &damaged)?;
    let mut state = State::new(&path, file.clone(), snapshot, alloc);
    state.collections = collections;
    state.usage = meta.usage.clone();
    (state.next_nid, state.next_cid) = (meta.next_nid, meta.next_cid);
    state.set_cache_bytes(options.record_cache_bytes);

    let uuid = s.identity.osd_uuid.0;
    let tag = u64::from_le_bytes(uuid[..8].try_into().unwrap_or_default());
    let ring = Ring {
        offset: s.log_offset,
        len: s.log_bytes,
    };
    let start = Cursor {
        position: meta.position,
        batch: meta.batch,
        incarnation: meta.incarnation,
        seq: meta.seq,
    };
    let mut scanner = Scanner::new(&path, file.clone(), ring, tag, start);
    let end = match with_log {
        true => replay(&mut scanner, &mut state)?,
        false => start,
    };
    Ok(Loaded {
        path,
        file,
        superblock: s,
        index: Arc::new(index),
        slack,
        state,
        ring,
        tag,
        end,
        tail: meta.position,
        replayed: end.seq - meta.seq,
    })
}

/// The bits of all blocks behind the log, which alone are in rows.
fn load_taken(
    snapshot: &dyn Snapshot,
    blocks: u64,
    first: u64,
    damaged: &dyn Fn(&str) -> Error,
) -> Result<Allocator> {
    let mut alloc = Allocator::new(first, blocks);
    for row in snapshot.range(Table::Taken, Bound::Unbounded, Bound::Unbounded)? {
        let (k, v) = row?;
        if broken::is(Rule::TakenWhole) {
            continue;
        }
        let group = k.as_ref().try_into().map(u32::from_be_bytes);
        if !group.is_ok_and(|g| alloc.load(g, &v)) {
            return Err(damaged("an allocation row makes no sense"));
        }
    }
    Ok(alloc)
}

fn load_collections(
    snapshot: &dyn Snapshot,
    damaged: &dyn Fn(&str) -> Error,
) -> Result<std::collections::BTreeMap<SPgId, crate::generation::Collection>> {
    let mut out = std::collections::BTreeMap::new();
    for row in snapshot.range(Table::Collections, Bound::Unbounded, Bound::Unbounded)? {
        let (k, v) = row?;
        let c = key::parse_collection(&k).map_err(|e| damaged(e.0))?;
        out.insert(c, decode_collection(v).map_err(|e| damaged(e.0))?);
    }
    Ok(out)
}

/// Returns where the log ends.
fn replay(scanner: &mut Scanner, state: &mut State) -> Result<Cursor> {
    let mut end = scanner.cursor;
    let mut last: Option<(Cursor, Found)> = None;
    while let Some(found) = {
        let before = scanner.cursor;
        scanner.next()?.map(|f| (before, f))
    } {
        end = found.1.next;
        if let Some((at, durable)) = last.replace(found) {
            apply(scanner, state, at, durable)?;
        }
    }
    if let Some((at, found)) = last {
        let counts = broken::is(Rule::LastDirectsWhole) || directs_are_whole(state, &found.records)?;
        if counts && !broken::is(Rule::LastCounts) {
            apply(scanner, state, at, found)?;
        } else {
            end = at;
            scanner.cursor = at;
        }
    }
    scanner.check_end()?;
    Ok(end)
}

fn steps_of(raw: Bytes, mut f: impl FnMut(&SPgId, Step) -> Result<()>) -> Result<bool> {
    let mut r = Input::new(raw);
    let Ok(c) = r.collection() else { return Ok(false) };
    while !r.is_empty() {
        let Ok(step) = Step::get(&mut r) else {
            return Ok(false);
        };
        f(&c, step)?;
    }
    Ok(true)
}

fn apply(scanner: &Scanner, state: &mut State, at: Cursor, found: Found) -> Result<()> {
    let damaged = |why| scanner.damaged(&at, why);
    let mut count = 0;
    for raw in record::split(found.records) {
        let raw = raw.map_err(|e| damaged(e.0))?;
        let mut r = Input::new(raw.clone());
        let c = r.collection().map_err(|e| damaged(e.0))?;
        state.begin(&c);
        let whole = steps_of(raw, |c, step| state.replay(c, step))?;
        if !whole {
            return Err(damaged(
                "a record that its checksum calls whole cannot be decoded",
            ));
        }
        state.commit(0, &[]);
        count += 1;
    }
    if count != found.header.count {
        return Err(damaged(
            "a batch does not hold as many records as its header says",
        ));
    }
    Ok(())
}

/// Whether the blocks of the batch's direct steps are what their checksums say. A disk that cannot read them
/// says nothing of the kind: they may be there, and what was acknowledged is not dropped for it.
fn directs_are_whole(state: &State, records: &Bytes) -> Result<bool> {
    let mut whole = true;
    for raw in record::split(records.clone()).flatten() {
        steps_of(raw, |_, step| {
            let (Step::Direct(run, crcs) | Step::Blob(run, _, crcs)) = step else {
                return Ok(());
            };
            for (i, crcs) in crcs.chunks((VERIFY_BYTES / BLOCK) as usize).enumerate() {
                let mut bytes = vec![0; crcs.len() * BLOCK as usize];
                let offset = run.phys * BLOCK + i as u64 * VERIFY_BYTES;
                match state.file.read_at(&mut bytes, offset) {
                    Ok(()) => {}
                    Err(e) if e.kind() == ErrorKind::UnexpectedEof => whole = false,
                    Err(e) => return Err(Error::io(&state.path, "read data", e)),
                }
                let mut blocks = bytes.chunks_exact(BLOCK as usize).zip(crcs);
                whole &= blocks.all(|(b, crc)| block_crc(b) == *crc);
            }
            Ok(())
        })?;
    }
    Ok(whole)
}
