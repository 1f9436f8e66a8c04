//! The index in a fjall database: the second engine, which keeps the trait honest and gives redb something to be
//! measured against. For tests and the example only; the store uses redb (docs/decisions, "index engine").
//!
//! A table is a keyspace. fjall refuses empty keys, so each key is stored behind one byte. Its files are its own
//! affair: it does not go through our interface to the disk, so no simulated power cut ever reaches it. Durable here
//! means that the commit ended with `fdatasync` on its journal (not its default).

use super::{Change, Error, Index, Result, Row, Rows, Snapshot, Table};
use bytes::Bytes;
use fjall::{
    KeyspaceCreateOptions, PersistMode, Readable, SingleWriterTxDatabase, SingleWriterTxKeyspace,
    SingleWriterWriteTx,
};
use std::fmt::Display;
use std::ops::Bound;
use std::path::Path;

const LEAD: u8 = b'k';

fn damaged(e: impl Display) -> Error {
    Error::Index {
        path: "fjall".into(),
        why: e.to_string(),
    }
}

fn stored(key: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(key.len() + 1);
    out.push(LEAD);
    out.extend_from_slice(key);
    out
}

fn bounds(from: Bound<&[u8]>, to: Bound<&[u8]>) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    let to = match to {
        Bound::Unbounded => Bound::Excluded(vec![LEAD + 1]),
        other => other.map(stored),
    };
    let from = match from {
        Bound::Unbounded => Bound::Included(vec![LEAD]),
        other => other.map(stored),
    };
    (from, to)
}

/// lsm-tree asserts that a range is not turned around; the contract says that such a one has no rows.
fn is_empty(from: &Bound<Vec<u8>>, to: &Bound<Vec<u8>>) -> bool {
    match (from, to) {
        (Bound::Included(a), Bound::Included(b)) => a > b,
        (Bound::Included(a) | Bound::Excluded(a), Bound::Included(b) | Bound::Excluded(b)) => a >= b,
        _ => false,
    }
}

fn row(guard: fjall::Guard) -> Result<Row> {
    let (k, v) = guard.into_inner().map_err(damaged)?;
    Ok((Bytes::copy_from_slice(&k[1..]), Bytes::copy_from_slice(&v)))
}

pub struct FjallIndex {
    db: SingleWriterTxDatabase,
    tables: Vec<SingleWriterTxKeyspace>,
}

impl std::fmt::Debug for FjallIndex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FjallIndex")
    }
}

impl FjallIndex {
    /// The block cache takes half of `memory`, the memtables of all tables together the other half.
    pub fn open(dir: &Path, memory: u64) -> Result<Self> {
        let db = SingleWriterTxDatabase::builder(dir)
            .cache_size(memory / 2)
            .worker_threads(1)
            .max_journaling_size(64 << 20)
            .open()
            .map_err(damaged)?;
        // Objects and Blocks take nearly all of the writes.
        let options = || KeyspaceCreateOptions::default().max_memtable_size(memory / 4);
        let tables = Table::ALL
            .iter()
            .map(|t| db.keyspace(t.name(), options).map_err(damaged))
            .collect::<Result<_>>()?;
        Ok(Self { db, tables })
    }
}

impl Index for FjallIndex {
    fn snapshot(&self) -> Result<Box<dyn Snapshot>> {
        Ok(Box::new(FjallSnapshot {
            view: self.db.read_tx(),
            tables: self.tables.clone(),
        }))
    }

    fn commit(&self, work: &mut dyn FnMut(&mut dyn Change) -> Result<()>) -> Result<()> {
        let mut change = FjallChange {
            tx: self.db.write_tx().durability(Some(PersistMode::SyncData)),
            tables: &self.tables,
        };
        if let Err(e) = work(&mut change) {
            change.tx.rollback();
            return Err(e);
        }
        change.tx.commit().map_err(damaged)
    }

    fn bytes(&self) -> u64 {
        self.db.disk_space().unwrap_or(0)
    }
}

struct FjallSnapshot {
    view: fjall::Snapshot,
    tables: Vec<SingleWriterTxKeyspace>,
}

impl std::fmt::Debug for FjallSnapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FjallSnapshot")
    }
}

impl Snapshot for FjallSnapshot {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Bytes>> {
        let found = self.view.get(&self.tables[table as usize], stored(key));
        Ok(found.map_err(damaged)?.map(|v| Bytes::copy_from_slice(&v)))
    }

    fn range<'a>(&'a self, table: Table, from: Bound<&[u8]>, to: Bound<&[u8]>) -> Result<Rows<'a>> {
        let (from, to) = bounds(from, to);
        if is_empty(&from, &to) {
            return Ok(Box::new(std::iter::empty()));
        }
        let rows = self.view.range(&self.tables[table as usize], (from, to));
        Ok(Box::new(rows.map(row)))
    }
}

struct FjallChange<'t> {
    tx: SingleWriterWriteTx<'t>,
    tables: &'t [SingleWriterTxKeyspace],
}

impl FjallChange<'_> {
    fn within(&self, table: Table, from: &[u8], to: &[u8]) -> Option<fjall::Iter> {
        let (from, to) = bounds(Bound::Included(from), Bound::Excluded(to));
        (!is_empty(&from, &to)).then(|| self.tx.range(&self.tables[table as usize], (from, to)))
    }
}

impl Change for FjallChange<'_> {
    fn put(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<()> {
        self.tx.insert(&self.tables[table as usize], stored(key), value);
        Ok(())
    }

    fn delete(&mut self, table: Table, key: &[u8]) -> Result<()> {
        self.tx.remove(&self.tables[table as usize], stored(key));
        Ok(())
    }

    fn delete_range(&mut self, table: Table, from: &[u8], to: &[u8]) -> Result<()> {
        let rows = self.within(table, from, to).into_iter().flatten();
        let keys = rows
            .map(|r| r.key().map_err(damaged))
            .collect::<Result<Vec<_>>>()?;
        for key in keys {
            self.tx.remove(&self.tables[table as usize], key);
        }
        Ok(())
    }

    fn get(&mut self, table: Table, key: &[u8]) -> Result<Option<Bytes>> {
        let found = self.tx.get(&self.tables[table as usize], stored(key));
        Ok(found.map_err(damaged)?.map(|v| Bytes::copy_from_slice(&v)))
    }

    fn first(&mut self, table: Table, from: &[u8], to: &[u8]) -> Result<Option<Row>> {
        let rows = self.within(table, from, to);
        rows.and_then(|mut r| r.next()).map(row).transpose()
    }

    fn last(&mut self, table: Table, from: &[u8], to: &[u8]) -> Result<Option<Row>> {
        let rows = self.within(table, from, to);
        rows.and_then(|mut r| r.next_back()).map(row).transpose()
    }
}
