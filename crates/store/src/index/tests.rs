//! The contract of an index, for every implementation: redb, and a map in memory that keeps the tests honest.

use super::{Change, Index, RedbIndex, Row, Rows, Snapshot, Table};
use crate::{Error, Result};
use bytes::Bytes;
use io::disk::Disk;
use io::disk::sim::SimDisk;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Mutex;

type Tables = Vec<BTreeMap<Bytes, Bytes>>;

#[derive(Debug)]
struct MapIndex(Mutex<Tables>);

impl Index for MapIndex {
    fn snapshot(&self) -> Result<Box<dyn Snapshot>> {
        Ok(Box::new(MapSnapshot(self.0.lock().unwrap().clone())))
    }
    fn commit(&self, work: &mut dyn FnMut(&mut dyn Change) -> Result<()>) -> Result<()> {
        let mut tables = self.0.lock().unwrap();
        let mut change = MapChange(tables.clone());
        work(&mut change)?;
        *tables = change.0;
        Ok(())
    }
    fn bytes(&self) -> u64 {
        0
    }
}

#[derive(Debug)]
struct MapSnapshot(Tables);

impl Snapshot for MapSnapshot {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Bytes>> {
        Ok(self.0[table as usize].get(key).cloned())
    }
    fn range<'a>(&'a self, table: Table, from: Bound<&[u8]>, to: Bound<&[u8]>) -> Result<Rows<'a>> {
        let rows = self.0[table as usize].range::<[u8], _>((from, to));
        Ok(Box::new(rows.map(|(k, v)| Ok((k.clone(), v.clone())))))
    }
}

struct MapChange(Tables);

impl MapChange {
    fn within(&self, t: Table, from: &[u8], to: &[u8]) -> impl DoubleEndedIterator<Item = Row> {
        let bounds = (Bound::Included(from), Bound::Excluded(to));
        let rows = self.0[t as usize].range::<[u8], _>(bounds);
        rows.map(|(k, v)| (k.clone(), v.clone()))
    }
}

impl Change for MapChange {
    fn put(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<()> {
        let (k, v) = (Bytes::copy_from_slice(key), Bytes::copy_from_slice(value));
        self.0[table as usize].insert(k, v);
        Ok(())
    }
    fn delete(&mut self, table: Table, key: &[u8]) -> Result<()> {
        self.0[table as usize].remove(key);
        Ok(())
    }
    fn delete_range(&mut self, table: Table, from: &[u8], to: &[u8]) -> Result<()> {
        self.0[table as usize].retain(|k, _| k.as_ref() < from || k.as_ref() >= to);
        Ok(())
    }
    fn get(&mut self, table: Table, key: &[u8]) -> Result<Option<Bytes>> {
        Ok(self.0[table as usize].get(key).cloned())
    }
    fn first(&mut self, table: Table, from: &[u8], to: &[u8]) -> Result<Option<Row>> {
        Ok(self.within(table, from, to).next())
    }
    fn last(&mut self, table: Table, from: &[u8], to: &[u8]) -> Result<Option<Row>> {
        Ok(self.within(table, from, to).next_back())
    }
}

fn redb(disk: &SimDisk) -> RedbIndex {
    let file = if disk.exists("index").unwrap() {
        disk.open("index")
    } else {
        disk.create("index")
    };
    RedbIndex::open("test", file.unwrap(), 1 << 20).unwrap()
}

fn each(f: impl Fn(&dyn Index)) {
    f(&MapIndex(Mutex::new(vec![BTreeMap::new(); Table::ALL.len()])));
    f(&redb(&SimDisk::new()));
}

fn keys(s: &dyn Snapshot, from: Bound<&[u8]>, to: Bound<&[u8]>) -> String {
    let rows = s.range(Table::Omap, from, to).unwrap();
    rows.map(|r| String::from_utf8(r.unwrap().0.to_vec()).unwrap())
        .collect()
}

fn put_all(w: &mut dyn Change, keys: &str) -> Result<()> {
    keys.bytes().try_for_each(|k| w.put(Table::Omap, &[k], b"v"))
}

#[test]
fn rows_are_ordered_and_tables_are_apart() {
    each(|i| {
        i.commit(&mut |w| put_all(w, "dbac")).unwrap();
        let s = i.snapshot().unwrap();
        assert_eq!(keys(&*s, Bound::Unbounded, Bound::Unbounded), "abcd");
        assert_eq!(keys(&*s, Bound::Included(b"b"), Bound::Excluded(b"d")), "bc");
        assert_eq!(keys(&*s, Bound::Excluded(b"b"), Bound::Unbounded), "cd");
        assert_eq!(s.get(Table::Omap, b"a").unwrap(), Some(Bytes::from("v")));
        assert_eq!(s.get(Table::Objects, b"a").unwrap(), None);
    });
}

#[test]
fn a_commit_sees_itself_and_a_snapshot_never_changes() {
    each(|i| {
        i.commit(&mut |w| put_all(w, "abc")).unwrap();
        let before = i.snapshot().unwrap();
        i.commit(&mut |w| {
            put_all(w, "xyz")?;
            w.delete(Table::Omap, b"a")?;
            w.delete(Table::Omap, b"absent")?;
            w.delete_range(Table::Omap, b"b", b"y")?;
            assert_eq!(w.get(Table::Omap, b"z")?, Some(Bytes::from("v")));
            assert_eq!(w.get(Table::Omap, b"c")?, None);
            assert_eq!(w.first(Table::Omap, b"", b"zz")?.unwrap().0, "y");
            assert_eq!(w.last(Table::Omap, b"", b"zz")?.unwrap().0, "z");
            assert_eq!(w.last(Table::Omap, b"", b"y")?, None);
            Ok(())
        })
        .unwrap();
        assert_eq!(keys(&*before, Bound::Unbounded, Bound::Unbounded), "abc");
        let after = i.snapshot().unwrap();
        assert_eq!(keys(&*after, Bound::Unbounded, Bound::Unbounded), "yz");
    });
}

#[test]
fn a_failed_commit_leaves_nothing() {
    each(|i| {
        i.commit(&mut |w| put_all(w, "a")).unwrap();
        let no = Error::NoObject("x".into());
        let r = i.commit(&mut |w| put_all(w, "b").and(Err(no.clone())));
        assert!(r.is_err());
        assert_eq!(
            keys(&*i.snapshot().unwrap(), Bound::Unbounded, Bound::Unbounded),
            "a"
        );
    });
}

/// Only for what is on a disk: a cut at any call leaves the commit before or the commit itself.
#[test]
fn commits_are_durable_and_whole() {
    for seed in 0..30 {
        let disk = SimDisk::new();
        let i = redb(&disk);
        disk.sync().unwrap();
        i.commit(&mut |w| put_all(w, "a")).unwrap();
        disk.sample(seed, 500);
        i.commit(&mut |w| put_all(w, "bcdefgh")).unwrap();
        drop(disk.survivor(seed));
        for s in disk.survivors() {
            let found = keys(&*redb(&s).snapshot().unwrap(), Bound::Unbounded, Bound::Unbounded);
            assert!(found == "a" || found == "abcdefgh", "{found}");
        }
        let s = disk.survivor(seed);
        assert_eq!(
            keys(&*redb(&s).snapshot().unwrap(), Bound::Unbounded, Bound::Unbounded),
            "abcdefgh"
        );
    }
}
