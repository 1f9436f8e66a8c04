//! The index in a redb file, through our own interface to the disk.
//!
//! Every commit uses quick-repair (the allocator's state is saved with it, and it is two-phase): opening
//! after a crash does not walk the file, and the primary slot is valid without a look at checksums. See
//! docs/decisions on the choice and on what was repaired in redb in 2026.
//!
//! The library writes to a file even to read it (a mark that it is open, repairs). Over a file that must not be
//! changed these writes stay in memory.
//!
//! redb keeps freed pages for itself and gives back only what lies free at the file's end. Its compaction is
//! not used: a cut in it leaves a file whose next open reads torn pages, to judge them by the library's own
//! checksums, and the layer below refuses torn pages. (docs/decisions/0005)

use super::layer::Layer;
use super::{Change, Each, Index, Keys, Row, Rows, Snapshot, Table};
use crate::{Error, Result};
use bytes::Bytes;
use io::disk::DiskFile;
use redb::{
    Builder, Database, ReadOnlyTable, ReadableDatabase, ReadableTable, StorageBackend, TableDefinition,
    TableError,
};
use std::fmt::Display;
use std::ops::Bound;
use std::sync::Arc;

type Raw = &'static [u8];

fn definition(t: Table) -> TableDefinition<'static, Raw, Raw> {
    TableDefinition::new(t.name())
}

#[derive(Debug)]
pub struct RedbIndex {
    path: String,
    file: Arc<dyn DiskFile>,
    db: Database,
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
        })
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
        {
            let tables = Table::ALL
                .iter()
                .map(|t| txn.open_table(definition(*t)).map_err(|e| damaged(&self.path, e)))
                .collect::<Result<Vec<_>>>()?;
            work(&mut RedbChange {
                path: &self.path,
                tables,
            })?;
        }
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

    fn each(&self, table: Table, from: Bound<&[u8]>, to: Bound<&[u8]>, each: &mut Each<'_>) -> Result<()> {
        let Some(rows) = &self.tables[table as usize] else {
            return Ok(());
        };
        let rows = rows
            .range::<&[u8]>((from, to))
            .map_err(|e| damaged(&self.path, e))?;
        for row in rows {
            let (k, v) = row.map_err(|e| damaged(&self.path, e))?;
            if !each(k.value(), v.value()) {
                break;
            }
        }
        Ok(())
    }

    fn keys<'a>(&'a self, table: Table, from: Bound<&[u8]>, to: Bound<&[u8]>) -> Result<Keys<'a>> {
        let Some(rows) = &self.tables[table as usize] else {
            return Ok(Box::new(std::iter::empty()));
        };
        let rows = rows
            .range::<&[u8]>((from, to))
            .map_err(|e| damaged(&self.path, e))?;
        Ok(Box::new(rows.map(|r| {
            let (k, _) = r.map_err(|e| damaged(&self.path, e))?;
            Ok(Bytes::copy_from_slice(k.value()))
        })))
    }
}

struct RedbChange<'t> {
    path: &'t str,
    tables: Vec<redb::Table<'t, Raw, Raw>>,
}

impl RedbChange<'_> {
    fn ok<T, E: Display>(&self, r: std::result::Result<T, E>) -> Result<T> {
        r.map_err(|e| damaged(self.path, e))
    }
}

impl Change for RedbChange<'_> {
    fn put(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<()> {
        let r = self.tables[table as usize].insert(key, value).map(drop);
        self.ok(r)
    }

    fn delete(&mut self, table: Table, key: &[u8]) -> Result<()> {
        let r = self.tables[table as usize].remove(key).map(drop);
        self.ok(r)
    }

    fn delete_range(&mut self, table: Table, from: &[u8], to: &[u8]) -> Result<()> {
        if from >= to {
            return Ok(());
        }
        let r = self.tables[table as usize].retain_in::<&[u8], _>(from..to, |_, _| false);
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
