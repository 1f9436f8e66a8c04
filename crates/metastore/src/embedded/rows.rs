//! The durable keys: one redb file, opened anew after an I/O error.
//!
//! Every write is one redb commit with two phases and a saved allocator state ("quick repair"), so it is on stable
//! storage when acknowledged and opening after a crash repairs nothing. redb takes no more work after an I/O error, and of a
//! commit that failed only the file can say whether it happened: it is closed then, and opened by the next that needs it.
//!
//! Invariant: the revision is written in the same transaction as the keys. Not here: leased keys, who may write what.

use crate::kv::*;
use bytes::Bytes;
use io::disk::{Disk, HostDisk};
use redb::{
    Builder, Database, DatabaseError, ReadableDatabase, ReadableTable, StorageBackend, TableDefinition,
};
use std::collections::BTreeMap;
use std::path::Path;

/// key -> u64 revision (little-endian), then the value.
const KEYS: TableDefinition<&str, &[u8]> = TableDefinition::new("keys");
/// Single numbers: `revision`, `format`.
const META: TableDefinition<&str, u64> = TableDefinition::new("meta");
/// What is written, and the newest that is read.
pub const FORMAT: u64 = 1;
/// redb's own page cache; the state is a few MiB at most.
const CACHE_BYTES: usize = 4 << 20;
/// Held in the file and behind its end at every start: maps can be changed, and OSDs started, on a disk that others have
/// filled.
const SLACK_BYTES: u64 = 4 << 20;

#[derive(Debug)]
pub enum Failed {
    /// The file or its disk: another attempt may succeed, when there is room again.
    Disk(String),
    /// No attempt will help.
    Final(Error),
}

pub type Result<T> = std::result::Result<T, Failed>;

impl From<Failed> for Error {
    fn from(e: Failed) -> Self {
        match e {
            Failed::Disk(why) => Error::Storage(why),
            Failed::Final(e) => e,
        }
    }
}

impl From<Error> for Failed {
    fn from(e: Error) -> Self {
        Self::Final(e)
    }
}

fn failed(e: impl Into<redb::Error>) -> Failed {
    match e.into() {
        e @ (redb::Error::Io(_) | redb::Error::PreviousIo) => Failed::Disk(e.to_string()),
        e => Failed::Final(Error::Storage(e.to_string())),
    }
}

/// Opens a file that is there.
pub type Open = Box<dyn Fn() -> std::result::Result<Database, DatabaseError> + Send>;

pub struct Rows {
    again: Open,
    /// None after an I/O error.
    db: Option<Database>,
}

pub fn builder() -> Builder {
    let mut builder = Builder::new();
    builder.set_cache_size(CACHE_BYTES);
    builder
}

fn pack(revision: Revision, value: &[u8]) -> Vec<u8> {
    let mut b = Vec::with_capacity(8 + value.len());
    b.extend_from_slice(&revision.to_le_bytes());
    b.extend_from_slice(value);
    b
}

fn unpack(key: &str, raw: &[u8]) -> crate::kv::Result<Kv> {
    let Some((rev, value)) = raw.split_first_chunk::<8>() else {
        return Err(Error::BadValue {
            key: key.to_string(),
            why: "shorter than its revision".into(),
        });
    };
    Ok(Kv {
        key: key.to_string(),
        value: Bytes::copy_from_slice(value),
        revision: Revision::from_le_bytes(*rev),
        lease: None,
    })
}

impl Rows {
    /// Opens or creates the file `path`; gives the revision reached before, too.
    ///
    /// Two processes must not create it at once: callers hold a lock on its directory.
    pub fn open(path: &Path) -> crate::kv::Result<(Self, Revision)> {
        let name = path.display().to_string();
        let bad = |e: std::io::Error| Error::Open(format!("{name}: {e}"));
        if io::files::length(path).map_err(bad)?.is_none_or(|len| len == 0) {
            create(path, &name)?;
        }
        let db = builder().open(path).map_err(|e| not_opened(&name, e))?;
        hold_space(path);
        let path = path.to_path_buf();
        // Never made anew: a file that is gone is not a cluster without keys.
        Self::over(db, &name, Box::new(move || builder().open(&path)))
    }

    /// Nothing on a disk: it ends with its last handle.
    pub fn in_memory() -> crate::kv::Result<(Self, Revision)> {
        let memory = redb::backends::InMemoryBackend::new();
        let db = builder()
            .create_with_backend(memory)
            .map_err(|e| Error::Open(e.to_string()))?;
        let gone = || Err(redb::StorageError::Corrupted("memory cannot be read again".into()).into());
        Self::over(db, "memory", Box::new(gone))
    }

    /// The format and the keys in the bytes of a whole file, by a copy in memory: opened where it lies it would be written to.
    pub fn copied(raw: &[u8], name: &str) -> crate::kv::Result<(u64, Vec<Kv>)> {
        let memory = redb::backends::InMemoryBackend::new();
        let bad = |e: std::io::Error| Error::Open(format!("{name}: {e}"));
        memory.set_len(raw.len() as u64).map_err(bad)?;
        memory.write(0, raw).map_err(bad)?;
        let db = builder()
            .create_with_backend(memory)
            .map_err(|e| not_opened(name, e))?;
        let gone = || Err(redb::StorageError::Corrupted("a copy is read once".into()).into());
        let (mut rows, _) = Self::over(db, name, Box::new(gone))?;
        let format = rows.with(|db| {
            let txn = db.begin_read().map_err(failed)?;
            let meta = txn.open_table(META).map_err(failed)?;
            Ok(meta.get("format").map_err(failed)?.map_or(FORMAT, |v| v.value()))
        })?;
        let keys = rows.range(&Range::prefix(""))?;
        Ok((format, keys.into_values().collect()))
    }

    pub fn over(db: Database, name: &str, again: Open) -> crate::kv::Result<(Self, Revision)> {
        let revision = prepare(&db, name).map_err(|e| match e {
            Failed::Disk(why) => Error::Open(format!("{name}: {why}")),
            Failed::Final(e) => e,
        })?;
        Ok((Self { again, db: Some(db) }, revision))
    }

    /// Runs `work`, and closes the file if its disk failed.
    fn with<T>(&mut self, work: impl FnOnce(&Database) -> Result<T>) -> Result<T> {
        let db = match self.db.take() {
            Some(db) => db,
            None => (self.again)().map_err(failed)?,
        };
        let done = work(&db);
        if !matches!(done, Err(Failed::Disk(_))) {
            self.db = Some(db);
        }
        done
    }

    pub fn get(&mut self, key: &str) -> Result<Option<Kv>> {
        self.with(|db| {
            let txn = db.begin_read().map_err(failed)?;
            let table = txn.open_table(KEYS).map_err(failed)?;
            match table.get(key).map_err(failed)? {
                None => Ok(None),
                Some(raw) => Ok(Some(unpack(key, raw.value())?)),
            }
        })
    }

    pub fn range(&mut self, range: &Range) -> Result<BTreeMap<String, Kv>> {
        self.with(|db| {
            let txn = db.begin_read().map_err(failed)?;
            let table = txn.open_table(KEYS).map_err(failed)?;
            let mut out = BTreeMap::new();
            for row in table.range(range.start.as_str()..).map_err(failed)? {
                let (key, raw) = row.map_err(failed)?;
                if !range.contains(key.value()) {
                    break;
                }
                out.insert(key.value().to_string(), unpack(key.value(), raw.value())?);
            }
            Ok(out)
        })
    }

    /// Whether a write that failed did happen; if so, it is durable afterwards: a flush that failed may have left it in the
    /// host's memory alone.
    pub fn happened(&mut self, revision: Revision) -> Result<bool> {
        let there = self.with(|db| {
            let txn = db.begin_read().map_err(failed)?;
            let meta = txn.open_table(META).map_err(failed)?;
            Ok(meta.get("revision").map_err(failed)?.map_or(0, |v| v.value()))
        })?;
        if there != revision {
            return Ok(false);
        }
        self.write(&[], revision).map(|()| true)
    }

    /// Puts what has no lease, and removes all other keys that `ops` name. After `Disk`, [`Rows::happened`] knows more.
    pub fn write(&mut self, ops: &[TxnOp], revision: Revision) -> Result<()> {
        self.with(|db| {
            let mut write = db.begin_write().map_err(failed)?;
            write.set_quick_repair(true);
            {
                let mut keys = write.open_table(KEYS).map_err(failed)?;
                for op in ops {
                    match op {
                        TxnOp::Put {
                            key,
                            value,
                            lease: None,
                        } => {
                            keys.insert(key.as_str(), pack(revision, value).as_slice())
                                .map_err(failed)?;
                        }
                        TxnOp::Put { key, .. } | TxnOp::Delete { key } => {
                            keys.remove(key.as_str()).map_err(failed)?;
                        }
                    }
                }
                let mut meta = write.open_table(META).map_err(failed)?;
                meta.insert("revision", revision).map_err(failed)?;
            }
            write.commit().map_err(failed)
        })
    }
}

fn not_opened(name: &str, e: DatabaseError) -> Error {
    match e {
        DatabaseError::DatabaseAlreadyOpen => Error::Open(format!("{name} is in use by another process")),
        e => Error::Open(format!("{name}: {e}")),
    }
}

/// Makes the file under another name and gives it its own when it is whole: of a creation that a kill cuts short, redb
/// would find a file without its header, and refuse it at each later start.
fn create(path: &Path, name: &str) -> crate::kv::Result<()> {
    let bad = |e: std::io::Error| Error::Open(format!("{name}: {e}"));
    let mut half = path.as_os_str().to_owned();
    half.push(".new");
    let half = Path::new(&half);
    io::files::remove(half).map_err(bad)?;
    // All keys will be in it; redb would make it as the umask says.
    io::files::create_private(half).map_err(bad)?;
    let db = builder().create(half).map_err(|e| not_opened(name, e))?;
    Rows::over(
        db,
        name,
        Box::new(|| Err(redb::StorageError::Corrupted("not whole yet".into()).into())),
    )?;
    io::files::rename(half, path).map_err(bad)
}

/// That the host cannot is no reason not to serve.
fn hold_space(path: &Path) {
    let (Some(dir), Some(name)) = (path.parent(), path.file_name().and_then(|n| n.to_str())) else {
        return;
    };
    let held = HostDisk::new(dir)
        .open(name)
        .and_then(|file| file.reserve(0, file.len()? + SLACK_BYTES));
    if let Err(e) = held {
        tracing::debug!(error = %e, "no space is held for the cluster state");
    }
}

/// Creates the tables on first use; returns the revision reached before.
fn prepare(db: &Database, name: &str) -> Result<Revision> {
    let mut txn = db.begin_write().map_err(failed)?;
    txn.set_quick_repair(true);
    let (format, revision, fresh) = {
        let mut meta = txn.open_table(META).map_err(failed)?;
        let format = meta.get("format").map_err(failed)?.map(|v| v.value());
        let revision = meta.get("revision").map_err(failed)?.map_or(0, |v| v.value());
        if format.is_none() {
            meta.insert("format", FORMAT).map_err(failed)?;
        }
        txn.open_table(KEYS).map_err(failed)?;
        (format.unwrap_or(FORMAT), revision, format.is_none())
    };
    if format > FORMAT {
        let why = format!("{name} has format {format}, this program knows up to {FORMAT}");
        return Err(Error::Open(why).into());
    }
    if fresh {
        txn.commit().map_err(failed)?;
    } else {
        txn.abort().map_err(failed)?;
    }
    Ok(revision)
}
