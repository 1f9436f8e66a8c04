//! The contract of an index, for every implementation: redb, which the store uses; fjall, so that the trait is
//! not redb's shape; and a map in memory, which says what is right.

use self::fjall::FjallIndex;
use super::{Change, Checked, Index, RedbIndex, Row, Rows, Snapshot, Table};
use crate::{Error, Result};
use bytes::Bytes;
use io::disk::Disk;
use io::disk::sim::SimDisk;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex};

#[path = "../../examples/index/fjall.rs"]
mod fjall;

type Tables = Vec<BTreeMap<Bytes, Bytes>>;

#[derive(Debug, Clone, Default)]
struct MapIndex(Arc<Mutex<Tables>>);

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
        let rows = within(&self.0[table as usize], from, to);
        Ok(Box::new(rows.map(Ok)))
    }
}

/// By asking each row: no range of a map, which may panic.
fn within<'a>(
    rows: &'a BTreeMap<Bytes, Bytes>,
    from: Bound<&[u8]>,
    to: Bound<&[u8]>,
) -> impl DoubleEndedIterator<Item = Row> + 'a {
    let (from, to) = (from.map(<[u8]>::to_vec), to.map(<[u8]>::to_vec));
    let inside = move |k: &[u8]| {
        let above = match &from {
            Bound::Included(f) => k >= f.as_slice(),
            Bound::Excluded(f) => k > f.as_slice(),
            Bound::Unbounded => true,
        };
        let below = match &to {
            Bound::Included(t) => k <= t.as_slice(),
            Bound::Excluded(t) => k < t.as_slice(),
            Bound::Unbounded => true,
        };
        above && below
    };
    let rows = rows.iter().filter(move |(k, _)| inside(k));
    rows.map(|(k, v)| (k.clone(), v.clone()))
}

struct MapChange(Tables);

impl MapChange {
    fn within(&self, t: Table, from: &[u8], to: &[u8]) -> impl DoubleEndedIterator<Item = Row> {
        within(&self.0[t as usize], Bound::Included(from), Bound::Excluded(to))
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

/// As the store opens it: over pages that are verified.
fn redb(disk: &SimDisk) -> RedbIndex {
    let file = if disk.exists("index").unwrap() {
        disk.open("index")
    } else {
        disk.create("index")
    };
    let file = Arc::new(Checked::over(file.unwrap()).unwrap());
    RedbIndex::open("test", file, 1 << 20).unwrap()
}

/// One index that can be opened again and again, as after a restart.
struct Site<'a>(&'a dyn Fn() -> Box<dyn Index>);

impl Site<'_> {
    fn open(&self) -> Box<dyn Index> {
        (self.0)()
    }
}

fn each(f: impl Fn(&Site<'_>)) {
    let map = MapIndex::default();
    map.0.lock().unwrap().resize(Table::ALL.len(), BTreeMap::new());
    f(&Site(&|| Box::new(map.clone())));
    let disk = SimDisk::new();
    f(&Site(&|| Box::new(redb(&disk))));
    let dir = tempfile::tempdir().unwrap();
    f(&Site(&|| {
        Box::new(FjallIndex::open(dir.path(), 4 << 20).unwrap())
    }));
}

fn keys(s: &dyn Snapshot, from: Bound<&[u8]>, to: Bound<&[u8]>) -> String {
    let rows: Vec<Row> = s
        .range(Table::Omap, from, to)
        .unwrap()
        .map(|r| r.unwrap())
        .collect();
    for most in [1, 2, usize::MAX] {
        let want = &rows[..rows.len().min(most)];
        assert_eq!(each_row(s, (from, to), most), want, "where they lie");
    }
    rows.iter()
        .map(|(k, _)| String::from_utf8(k.to_vec()).unwrap())
        .collect()
}

/// At most so many (1 at least), by the other way to read them.
fn each_row(s: &dyn Snapshot, (from, to): (Bound<&[u8]>, Bound<&[u8]>), most: usize) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut take = |k: &[u8], v: &[u8]| {
        rows.push((Bytes::copy_from_slice(k), Bytes::copy_from_slice(v)));
        rows.len() < most
    };
    s.each(Table::Omap, from, to, &mut take).unwrap();
    rows
}

fn all(i: &dyn Index) -> String {
    keys(&*i.snapshot().unwrap(), Bound::Unbounded, Bound::Unbounded)
}

fn put_all(w: &mut dyn Change, keys: &str) -> Result<()> {
    keys.bytes().try_for_each(|k| w.put(Table::Omap, &[k], b"v"))
}

#[test]
fn rows_are_ordered_and_tables_are_apart() {
    each(|site| {
        let i = site.open();
        i.commit(&mut |w| put_all(w, "dbac")).unwrap();
        i.commit(&mut |w| {
            Table::ALL
                .iter()
                .try_for_each(|t| w.put(*t, b"same", t.name().as_bytes()))
        })
        .unwrap();
        let s = i.snapshot().unwrap();
        assert_eq!(s.get(Table::Omap, b"a").unwrap(), Some(Bytes::from("v")));
        assert_eq!(s.get(Table::Objects, b"a").unwrap(), None);
        for t in Table::ALL {
            assert_eq!(s.get(*t, b"same").unwrap(), Some(Bytes::from(t.name())));
            let n = s.range(*t, Bound::Unbounded, Bound::Unbounded).unwrap().count();
            assert_eq!(n, if *t == Table::Omap { 5 } else { 1 });
        }
    });
}

#[test]
fn ranges_take_every_sort_of_bound() {
    use Bound::{Excluded, Included, Unbounded};
    each(|site| {
        let i = site.open();
        i.commit(&mut |w| put_all(w, "bdfh")).unwrap();
        let s = i.snapshot().unwrap();
        let check = |from: Bound<&[u8]>, to: Bound<&[u8]>, want: &str| {
            assert_eq!(keys(&*s, from, to), want, "{i:?} {from:?} {to:?}");
        };
        check(Unbounded, Unbounded, "bdfh");
        check(Included(b"d"), Unbounded, "dfh");
        check(Included(b"c"), Unbounded, "dfh");
        check(Excluded(b"d"), Unbounded, "fh");
        check(Unbounded, Included(b"f"), "bdf");
        check(Unbounded, Excluded(b"f"), "bd");
        check(Unbounded, Excluded(b"g"), "bdf");
        check(Included(b"d"), Included(b"f"), "df");
        check(Included(b"d"), Excluded(b"f"), "d");
        check(Excluded(b"d"), Included(b"f"), "f");
        check(Excluded(b"b"), Excluded(b"h"), "df");
        check(Included(b"d"), Included(b"d"), "d");
        check(Included(b"i"), Unbounded, "");
        check(Unbounded, Excluded(b"b"), "");
        check(Unbounded, Excluded(b""), "");
        check(Included(b"d"), Excluded(b"d"), "");
        check(Excluded(b"d"), Excluded(b"d"), "");
        check(Included(b"f"), Included(b"b"), "");
        check(Excluded(b"f"), Excluded(b"b"), "");
    });
}

#[test]
fn a_commit_sees_itself_and_a_snapshot_never_changes() {
    each(|site| {
        let i = site.open();
        i.commit(&mut |w| put_all(w, "abc")).unwrap();
        let before = i.snapshot().unwrap();
        let mut reading = before
            .range(Table::Omap, Bound::Unbounded, Bound::Unbounded)
            .unwrap();
        assert_eq!(reading.next().unwrap().unwrap().0, "a");
        i.commit(&mut |w| {
            put_all(w, "xyz")?;
            w.put(Table::Omap, b"c", b"new")?;
            assert_eq!(w.get(Table::Omap, b"c")?, Some(Bytes::from("new")));
            w.delete(Table::Omap, b"a")?;
            assert_eq!(w.get(Table::Omap, b"a")?, None);
            w.delete(Table::Omap, b"absent")?;
            assert_eq!(w.first(Table::Omap, b"", b"zz")?.unwrap().0, "b");
            assert_eq!(
                w.last(Table::Omap, b"", b"x")?.unwrap(),
                ("c".into(), "new".into())
            );
            w.delete_range(Table::Omap, b"b", b"y")?;
            assert_eq!(w.get(Table::Omap, b"z")?, Some(Bytes::from("v")));
            assert_eq!(w.get(Table::Omap, b"c")?, None);
            assert_eq!(w.first(Table::Omap, b"", b"zz")?.unwrap().0, "y");
            assert_eq!(w.last(Table::Omap, b"", b"zz")?.unwrap().0, "z");
            assert_eq!(w.last(Table::Omap, b"", b"y")?, None);
            assert_eq!(w.first(Table::Omap, b"z", b"a")?, None);
            // Gone and back in one commit.
            w.put(Table::Omap, b"b", b"again")?;
            assert_eq!(
                w.first(Table::Omap, b"", b"zz")?.unwrap(),
                ("b".into(), "again".into())
            );
            w.delete(Table::Omap, b"b")
        })
        .unwrap();
        let rest: Vec<_> = reading.map(|r| r.unwrap()).collect();
        assert_eq!(rest, [("b".into(), "v".into()), ("c".into(), "v".into())]);
        let after = i.snapshot().unwrap();
        i.commit(&mut |w| w.delete_range(Table::Omap, b"", b"zz"))
            .unwrap();
        assert_eq!(keys(&*before, Bound::Unbounded, Bound::Unbounded), "abc");
        assert_eq!(before.get(Table::Omap, b"c").unwrap(), Some("v".into()));
        assert_eq!(keys(&*after, Bound::Unbounded, Bound::Unbounded), "yz");
        assert_eq!(all(&*i), "");
    });
}

#[test]
fn a_failed_commit_leaves_nothing() {
    each(|site| {
        let i = site.open();
        i.commit(&mut |w| put_all(w, "a")).unwrap();
        let no = Error::NoObject("x".into());
        let r = i.commit(&mut |w| {
            put_all(w, "b")?;
            w.delete_range(Table::Omap, b"", b"z")?;
            w.put(Table::Meta, b"m", b"m")?;
            Err(no.clone())
        });
        assert!(r.is_err());
        assert_eq!(all(&*i), "a");
        i.commit(&mut |w| put_all(w, "c")).unwrap();
        assert_eq!(all(&*i), "ac");
        assert_eq!(i.snapshot().unwrap().get(Table::Meta, b"m").unwrap(), None);
    });
}

#[test]
fn ranges_of_many_rows_are_deleted_and_only_they() {
    const N: u32 = 5000;
    each(|site| {
        let i = site.open();
        i.commit(&mut |w| {
            (0..N).try_for_each(|n| {
                w.put(Table::Omap, &n.to_be_bytes(), &[7; 100])?;
                w.put(Table::Blocks, &n.to_be_bytes(), b"x")
            })
        })
        .unwrap();
        let cut = |from: u32, to: u32| {
            i.commit(&mut |w| w.delete_range(Table::Omap, &from.to_be_bytes(), &to.to_be_bytes()))
                .unwrap();
        };
        cut(10, 10);
        cut(20, 10);
        cut(100, 4900);
        cut(200, 300);
        cut(4999, N + 100);
        let s = i.snapshot().unwrap();
        let left = |t| s.range(t, Bound::Unbounded, Bound::Unbounded).unwrap();
        let want: Vec<u32> = (0..100).chain(4900..4999).collect();
        let found: Vec<u32> = left(Table::Omap)
            .map(|r| u32::from_be_bytes(r.unwrap().0.as_ref().try_into().unwrap()))
            .collect();
        assert_eq!(found, want);
        assert_eq!(left(Table::Blocks).count(), N as usize);
    });
}

#[test]
fn keys_and_values_of_every_size() {
    each(|site| {
        let sizes = [0, 1, 4095, 4096, 64 << 10, (64 << 10) + 1, 1 << 20, 3 << 20];
        let value = |n: usize, seed: u8| vec![seed; n];
        let i = site.open();
        i.commit(&mut |w| {
            for (k, n) in sizes.iter().enumerate() {
                w.put(Table::Omap, &value(k, b'k'), &value(*n, 1))?;
            }
            w.put(Table::Omap, &value(30_000, b'z'), b"long key")?;
            w.put(Table::Omap, &[0xff; 40], b"high key")
        })
        .unwrap();
        drop(i);
        let i = site.open();
        let s = i.snapshot().unwrap();
        for (k, n) in sizes.iter().enumerate() {
            let found = s.get(Table::Omap, &value(k, b'k')).unwrap();
            assert!(found.is_some_and(|v| *v == value(*n, 1)), "{i:?} {n}");
        }
        let rows = s.range(Table::Omap, Bound::Unbounded, Bound::Unbounded).unwrap();
        let found: Vec<usize> = rows.map(|r| r.unwrap().0.len()).collect();
        assert_eq!(found, [0, 1, 2, 3, 4, 5, 6, 7, 30_000, 40]);
        drop(s);
        // Large becomes small and small becomes large.
        i.commit(&mut |w| {
            for (k, n) in sizes.iter().rev().enumerate() {
                w.put(Table::Omap, &value(k, b'k'), &value(*n, 2))?;
                assert_eq!(w.get(Table::Omap, &value(k, b'k'))?.unwrap().len(), *n);
            }
            w.delete_range(Table::Omap, b"", b"k")
        })
        .unwrap();
        let s = i.snapshot().unwrap();
        assert_eq!(s.get(Table::Omap, b"").unwrap(), None);
        for (k, n) in sizes.iter().rev().enumerate().skip(1) {
            let found = s.get(Table::Omap, &value(k, b'k')).unwrap();
            assert!(found.is_some_and(|v| *v == value(*n, 2)), "{i:?} {n}");
        }
    });
}

type Work = Vec<(usize, u8, u8, u16)>;

/// Puts, deletes and range deletes over few keys in all tables, with reads of what the commit has so far.
fn work(w: &mut dyn Change, model: &mut Tables, ops: &Work) -> Result<()> {
    for (table, what, key, n) in ops {
        let t = Table::ALL[table % Table::ALL.len()];
        let (k, end) = ([*key], [key.saturating_add((*n % 50) as u8)]);
        let rows = &mut model[t as usize];
        match what % 8 {
            0..4 => {
                let value = vec![*what; *n as usize];
                w.put(t, &k, &value)?;
                rows.insert(Bytes::copy_from_slice(&k), value.into());
            }
            4 => {
                w.delete(t, &k)?;
                rows.remove(&k[..]);
            }
            5 => {
                w.delete_range(t, &k, &end)?;
                rows.retain(|r, _| r.as_ref() < &k[..] || r.as_ref() >= &end[..]);
            }
            6 => assert_eq!(w.get(t, &k)?, rows.get(&k[..]).cloned()),
            _ => {
                let bounds = (Bound::Included(&k[..]), Bound::Excluded(&end[..]));
                let mut want = within(rows, bounds.0, bounds.1);
                assert_eq!(w.first(t, &k, &end)?, want.next());
                let want = within(rows, bounds.0, bounds.1).next_back();
                assert_eq!(w.last(t, &k, &end)?, want);
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    /// Any commits, some failing, some with a restart behind them, are what they are on a map.
    #[test]
    fn every_engine_does_what_a_map_does(
        commits in prop::collection::vec((0..4u8, prop::collection::vec(any::<(usize, u8, u8, u16)>(), 0..60)), 1..8),
    ) {
        each(|site| {
            let mut model = vec![BTreeMap::new(); Table::ALL.len()];
            let mut i = site.open();
            for (how, ops) in &commits {
                let mut next = model.clone();
                let done = i.commit(&mut |w| {
                    work(w, &mut next, ops)?;
                    if *how == 0 { Err(Error::NoObject("on purpose".into())) } else { Ok(()) }
                });
                assert_eq!(done.is_ok(), *how != 0);
                if done.is_ok() {
                    model = next;
                }
                if *how == 1 {
                    drop(i);
                    i = site.open();
                }
                let s = i.snapshot().unwrap();
                for t in Table::ALL {
                    let rows = s.range(*t, Bound::Unbounded, Bound::Unbounded).unwrap();
                    let found: Vec<Row> = rows.map(|r| r.unwrap()).collect();
                    let want: Vec<Row> = model[*t as usize].clone().into_iter().collect();
                    assert!(found == want, "{i:?} {}", t.name());
                }
            }
        });
    }
}

/// Only for what is on our disk: a cut at any call leaves the commit before or the commit itself.
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
            let found = all(&redb(&s));
            assert!(found == "a" || found == "abcdefgh", "{found}");
        }
        let s = disk.survivor(seed);
        assert_eq!(all(&redb(&s)), "abcdefgh");
    }
}
