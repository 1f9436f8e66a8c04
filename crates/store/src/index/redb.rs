//! The index in a redb file, through our own door to the disk.
//!
//! Every commit uses quick-repair (the allocator's state is saved with it, and it is two-phase): opening
//! after a crash does not walk the file, and the primary slot is valid without a look at checksums. See
//! docs/decisions on the choice and on what was repaired in redb in 2026.
//!
//! The library writes to a file even to read it (a mark that it is open, repairs). Over a file that must not be
//! changed these writes stay in memory.
//!
//! redb keeps freed pages for itself, and gives back only what lies free at the file's end. So the bytes of
//! all rows are counted (a table of one number), and [`RedbIndex::shrink`] compacts a file that holds much
//! more than its rows need: at open, because redb wants the file for itself.

use super::layer::Layer;
use super::{Change, Index, Row, Rows, Snapshot, Table};
use crate::{Error, Result};
use bytes::Bytes;
use io::disk::DiskFile;
use redb::{
    Builder, Database, ReadOnlyTable, ReadableDatabase, ReadableTable, StorageBackend, TableDefinition,
    TableError, WriteTransaction,
};
use std::fmt::Display;
use std::ops::Bound;
use std::sync::Arc;

type Raw = &'static [u8];

fn definition(t: Table) -> TableDefinition<'static, Raw, Raw> {
    TableDefinition::new(t.name())
}

/// The bytes of all keys and values.
const ROW_BYTES: TableDefinition<'static, (), u64> = TableDefinition::new("row-bytes");
/// Smaller files are left alone.
const SHRINK_FROM_BYTES: u64 = 64 << 20;
/// A file is compacted when it has more than this times its rows' bytes. Pages are half full at the worst,
/// a commit needs its pages twice, and the file doubles when it grows: none of this is worth a compaction.
const SHRINK_RATIO: u64 = 6;
/// Beyond this the file keeps its size: what is moved is held in memory as a list, and opening waits (34 MB of
/// rows took 0.9 s, once 3.4 s, on the two busy cores that docs/decisions/0005 was measured on).
const SHRINK_ROW_BYTES_MAX: u64 = 128 << 20;

#[derive(Debug)]
pub struct RedbIndex {
    path: String,
    file: Arc<dyn DiskFile>,
    db: Database,
    /// The file was empty: the count of bytes begins at 0.
    fresh: bool,
}

fn damaged(path: &str, e: impl Display) -> Error {
    Error::Index {
        path: path.to_owned(),
        why: e.to_string(),
    }
}

impl RedbIndex {
    /// Opens the file, or formats it if it is empty. A format that another process cannot have open: the
    /// data file's lock guards both.
    pub fn open(path: &str, file: Arc<dyn DiskFile>, cache_bytes: u64) -> Result<Self> {
        let mut builder = Database::builder();
        builder.set_cache_size(cache_bytes as usize);
        Self::build(path, &builder, file)
    }

    /// Verifies the checksum of every page, and changes nothing. `file` must be one that cannot be changed.
    pub fn verify(path: &str, file: Arc<dyn DiskFile>, cache_bytes: u64) -> Result<()> {
        debug_assert!(file.is_read_only());
        let mut builder = Database::builder();
        builder
            .set_cache_size(cache_bytes as usize)
            .set_check_integrity_on_open(true);
        Self::build(path, &builder, file).map(drop)
    }

    fn build(path: &str, builder: &Builder, file: Arc<dyn DiskFile>) -> Result<Self> {
        let fresh = file.is_empty().map_err(|e| damaged(path, e))?;
        let db = if file.is_read_only() {
            let layer =
                Layer::over(file.clone()).map_err(|e| Error::io(path, "find the index's length", e))?;
            if layer.is_empty() {
                return Err(damaged(path, "the file is empty"));
            }
            builder.create_with_backend(layer)
        } else {
            builder.create_with_backend(Backend(file.clone()))
        };
        let db = db.map_err(|e| damaged(path, e))?;
        Ok(Self {
            path: path.to_owned(),
            file,
            db,
            fresh,
        })
    }

    fn ok<T, E: Display>(&self, r: std::result::Result<T, E>) -> Result<T> {
        r.map_err(|e| damaged(&self.path, e))
    }

    /// The bytes of all rows; None: written by a version that did not count.
    pub fn row_bytes(&self) -> Result<Option<u64>> {
        let txn = self.ok(self.db.begin_read())?;
        match txn.open_table(ROW_BYTES) {
            Ok(t) => Ok(self.ok(t.get(()))?.map(|v| v.value())),
            Err(TableError::TableDoesNotExist(_)) => Ok(None),
            Err(e) => Err(damaged(&self.path, e)),
        }
    }

    /// Gives the host back what a file that is mostly free holds. Not while a snapshot is in use. The time
    /// it takes is that of moving the rows, of which there are at most [`SHRINK_ROW_BYTES_MAX`]. A cut leaves
    /// the same rows, and the next open then walks the file.
    pub fn shrink(&mut self) -> Result<()> {
        self.shrink_from(SHRINK_FROM_BYTES)
    }

    pub(super) fn shrink_from(&mut self, from_bytes: u64) -> Result<()> {
        if self.file.is_read_only() {
            return Ok(());
        }
        let (before, Some(rows)) = (self.bytes(), self.row_bytes()?) else {
            return Ok(());
        };
        if before < from_bytes || before / SHRINK_RATIO < rows {
            return Ok(());
        }
        let store = &self.path;
        if rows > SHRINK_ROW_BYTES_MAX {
            tracing::info!(%store, bytes = before, rows, "the index is mostly free, but too large to shrink now");
            return Ok(());
        }
        tracing::info!(%store, bytes = before, rows, "the index is mostly free: shrinking it");
        self.db.compact().map_err(|e| damaged(&self.path, e))?;
        // The state of the allocator, without which the next open would walk the file.
        let mut txn = self.ok(self.db.begin_write())?;
        txn.set_quick_repair(true);
        self.ok(txn.commit())?;
        tracing::info!(store = %self.path, bytes = self.bytes(), "the index is shrunk");
        Ok(())
    }

    fn count(&self, txn: &WriteTransaction, added: i64) -> Result<()> {
        let mut t = self.ok(txn.open_table(ROW_BYTES))?;
        let old = self.ok(t.get(()))?.map(|v| v.value());
        if let Some(old) = old.or(self.fresh.then_some(0)) {
            self.ok(t.insert((), old.saturating_add_signed(added)))?;
        }
        Ok(())
    }
}

impl Index for RedbIndex {
    fn snapshot(&self) -> Result<Box<dyn Snapshot>> {
        let txn = self.db.begin_read().map_err(|e| damaged(&self.path, e))?;
        let tables = Table::ALL
            .iter()
            .map(|t| match txn.open_table(definition(*t)) {
                Ok(t) => Ok(Some(t)),
                Err(TableError::TableDoesNotExist(_)) => Ok(None),
                Err(e) => Err(damaged(&self.path, e)),
            })
            .collect::<Result<Vec<_>>>()?;
        Ok(Box::new(RedbSnapshot {
            path: self.path.clone(),
            tables,
        }))
    }

    fn commit(&self, work: &mut dyn FnMut(&mut dyn Change) -> Result<()>) -> Result<()> {
        let mut txn = self.db.begin_write().map_err(|e| damaged(&self.path, e))?;
        txn.set_quick_repair(true);
        let added = {
            let tables = Table::ALL
                .iter()
                .map(|t| txn.open_table(definition(*t)).map_err(|e| damaged(&self.path, e)))
                .collect::<Result<Vec<_>>>()?;
            let mut change = RedbChange {
                path: &self.path,
                tables,
                added: 0,
            };
            work(&mut change)?;
            change.added
        };
        self.count(&txn, added)?;
        txn.commit().map_err(|e| damaged(&self.path, e))
    }

    fn bytes(&self) -> u64 {
        self.file.len().unwrap_or(0)
    }
}

struct RedbSnapshot {
    path: String,
    /// None: nothing was ever committed.
    tables: Vec<Option<ReadOnlyTable<Raw, Raw>>>,
}

impl std::fmt::Debug for RedbSnapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RedbSnapshot")
    }
}

impl Snapshot for RedbSnapshot {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Bytes>> {
        let Some(rows) = &self.tables[table as usize] else {
            return Ok(None);
        };
        let row = rows.get(key).map_err(|e| damaged(&self.path, e))?;
        Ok(row.map(|v| Bytes::copy_from_slice(v.value())))
    }

    fn range<'a>(&'a self, table: Table, from: Bound<&[u8]>, to: Bound<&[u8]>) -> Result<Rows<'a>> {
        let Some(rows) = &self.tables[table as usize] else {
            return Ok(Box::new(std::iter::empty()));
        };
        let rows = rows
            .range::<&[u8]>((from, to))
            .map_err(|e| damaged(&self.path, e))?;
        Ok(Box::new(rows.map(|r| {
            let (k, v) = r.map_err(|e| damaged(&self.path, e))?;
            Ok((
                Bytes::copy_from_slice(k.value()),
                Bytes::copy_from_slice(v.value()),
            ))
        })))
    }
}

struct RedbChange<'t> {
    path: &'t str,
    tables: Vec<redb::Table<'t, Raw, Raw>>,
    /// Bytes of rows put less those of rows gone.
    added: i64,
}

impl RedbChange<'_> {
    fn ok<T, E: Display>(&self, r: std::result::Result<T, E>) -> Result<T> {
        r.map_err(|e| damaged(self.path, e))
    }
}

impl Change for RedbChange<'_> {
    fn put(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<()> {
        let old = self.tables[table as usize]
            .insert(key, value)
            .map(|old| old.map(|v| v.value().len()));
        let old = self.ok(old)?.map_or(0, |v| key.len() + v);
        self.added += (key.len() + value.len()) as i64 - old as i64;
        Ok(())
    }

    fn delete(&mut self, table: Table, key: &[u8]) -> Result<()> {
        let old = self.tables[table as usize]
            .remove(key)
            .map(|old| old.map(|v| v.value().len()));
        self.added -= self.ok(old)?.map_or(0, |v| key.len() + v) as i64;
        Ok(())
    }

    fn delete_range(&mut self, table: Table, from: &[u8], to: &[u8]) -> Result<()> {
        if from >= to {
            return Ok(());
        }
        let mut gone = 0;
        let r = self.tables[table as usize].retain_in::<&[u8], _>(from..to, |k, v| {
            gone += k.len() + v.len();
            false
        });
        self.added -= gone as i64;
        self.ok(r)
    }

    fn get(&mut self, table: Table, key: &[u8]) -> Result<Option<Bytes>> {
        let r = self.tables[table as usize]
            .get(key)
            .map(|row| row.map(|v| Bytes::copy_from_slice(v.value())));
        self.ok(r)
    }

    fn first(&mut self, table: Table, from: &[u8], to: &[u8]) -> Result<Option<Row>> {
        let r = self.tables[table as usize]
            .range::<&[u8]>(from..to)
            .map(|mut rows| rows.next());
        let row = self.ok(r)?;
        self.row(row)
    }

    fn last(&mut self, table: Table, from: &[u8], to: &[u8]) -> Result<Option<Row>> {
        let r = self.tables[table as usize]
            .range::<&[u8]>(from..to)
            .map(|mut rows| rows.next_back());
        let row = self.ok(r)?;
        self.row(row)
    }
}

type Found<'a> =
    Option<redb::Result<(redb::AccessGuard<'a, Raw>, redb::AccessGuard<'a, Raw>), redb::StorageError>>;

impl RedbChange<'_> {
    fn row(&self, found: Found<'_>) -> Result<Option<Row>> {
        let Some(found) = found else { return Ok(None) };
        let (k, v) = self.ok(found)?;
        Ok(Some((
            Bytes::copy_from_slice(k.value()),
            Bytes::copy_from_slice(v.value()),
        )))
    }
}

#[derive(Debug)]
struct Backend(Arc<dyn DiskFile>);

impl StorageBackend for Backend {
    fn len(&self) -> std::io::Result<u64> {
        self.0.len()
    }
    fn read(&self, offset: u64, out: &mut [u8]) -> std::io::Result<()> {
        self.0.read_at(out, offset)
    }
    fn set_len(&self, len: u64) -> std::io::Result<()> {
        self.0.set_len(len)
    }
    fn sync_data(&self) -> std::io::Result<()> {
        self.0.flush()
    }
    fn write(&self, offset: u64, data: &[u8]) -> std::io::Result<()> {
        self.0.write_at(data, offset)
    }
}
