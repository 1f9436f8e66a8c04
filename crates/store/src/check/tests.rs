//! Each thing that a check looks at, made wrong in an index that is whole: it must say so.

use super::*;
use crate::block_row::BlockRow;
use crate::index::{Change, Checked, Index};
use crate::onode::Value;
use io::disk::sim::SimDisk;
use types::{EVersion, NOSNAP, Op, PgId, SPgId, Transaction};

fn options() -> Options {
    Options {
        osd_id: 3,
        log_bytes: 256 << 10,
        max_bytes: Some(4 << 20),
        host_reserve_bytes: 0,
        grow_bytes: 512 << 10,
        threads: false,
        ..Options::default()
    }
}

fn oid(name: &str) -> ObjectId {
    let name = Bytes::copy_from_slice(name.as_bytes());
    ObjectId::replicated(HObject::new(1, 7, Bytes::new(), Bytes::new(), name, NOSNAP))
}

/// `a` of two blocks, its clone `b`, `c` of one block with omap; all of it in the index.
fn store() -> SimDisk {
    let disk = SimDisk::new();
    Store::mkfs_on(Arc::new(disk.clone()), &options()).unwrap();
    let mut s = Store::open_on(Arc::new(disk.clone()), &options(), Arc::new(|| {})).unwrap();
    let write = |name, len| Op::Write {
        oid: oid(name),
        offset: 0,
        data: vec![5; len].into(),
    };
    let mut t = Transaction::new(SPgId::replicated(PgId::new(1, 0)));
    t.ops = vec![
        Op::CreateCollection,
        write("a", 8192),
        Op::Clone {
            src: oid("a"),
            dst: oid("b"),
        },
        write("c", 100),
        Op::OmapSet {
            oid: oid("c"),
            entries: vec![("key".into(), "value".into())],
        },
        Op::LogAppend {
            version: EVersion::new(1, 1),
            entry: "entry".into(),
        },
    ];
    s.queue(t).unwrap();
    s.close().unwrap();
    disk
}

/// What a check says after `change` was made to the index.
fn said(change: impl Fn(&mut dyn Change) -> Result<()>) -> Vec<String> {
    said_of(store(), change)
}

fn said_of(disk: SimDisk, change: impl Fn(&mut dyn Change) -> Result<()>) -> Vec<String> {
    assert!(
        Store::check_on(Arc::new(disk.copy()), &options())
            .unwrap()
            .is_clean()
    );
    let file = Arc::new(Checked::over(disk.open(open::INDEX_FILE).unwrap()).unwrap());
    let index = RedbIndex::open("index", file, 1 << 20).unwrap();
    index.commit(&mut |w| change(w)).unwrap();
    drop(index);
    let report = Store::check_on(Arc::new(disk), &options()).unwrap();
    assert_eq!(report.problem_count, report.problems.len() as u64);
    report.problems
}

fn check(what: &str, wanted: &[&str], change: impl Fn(&mut dyn Change) -> Result<()>) {
    let found = said(change);
    for w in wanted {
        assert!(
            found.iter().any(|p| p.contains(w)),
            "{what}: {w:?} not in {found:#?}"
        );
    }
}

fn record(w: &mut dyn Change, name: &str) -> Onode {
    let raw = w.get(Table::Objects, &key::object(&oid(name))).unwrap().unwrap();
    Onode::decode(raw).unwrap()
}

fn put_record(w: &mut dyn Change, name: &str, o: &Onode) -> Result<()> {
    w.put(Table::Objects, &key::object(&oid(name)), &o.encode())
}

/// The record's first block.
fn block_of(o: &Onode) -> u64 {
    o.extents.iter().next().unwrap().phys
}

#[test]
fn counts_and_checksums_of_blocks() {
    check("a count too many", &["has 1 owners, its count says 2"], |w| {
        let b = block_of(&record(w, "c"));
        let k = ((b / 64) as u32).to_be_bytes();
        let mut row = BlockRow::new(w.get(Table::Blocks, &k)?.unwrap())
            .unwrap()
            .values();
        row.refs[(b % 64) as usize] += 1;
        w.put(Table::Blocks, &k, &row.encode())
    });
    check("another checksum", &["1//c: bad block at byte 0"], |w| {
        let b = block_of(&record(w, "c"));
        let k = ((b / 64) as u32).to_be_bytes();
        let mut row = BlockRow::new(w.get(Table::Blocks, &k)?.unwrap())
            .unwrap()
            .values();
        row.crcs[(b % 64) as usize] ^= 1;
        w.put(Table::Blocks, &k, &row.encode())
    });
    check(
        "a shared block without its mark",
        &["is shared, but an extent says it is not"],
        |w| {
            let mut o = record(w, "b");
            let mut out = crate::onode::Removed::default();
            o.extents.remove(0, 2, &mut out);
            let alone = crate::onode::Extent {
                shared: false,
                ..out.gone[0]
            };
            o.extents.insert(alone);
            put_record(w, "b", &o)
        },
    );
}

#[test]
fn allocation_bits() {
    let set = |taken: bool| {
        move |w: &mut dyn Change| {
            let b = block_of(&record(w, "c"));
            // The block itself, or a free one far behind it.
            let b = if taken { b + 50 } else { b };
            let k = ((b / 8192) as u32).to_be_bytes();
            let mut row = w.get(Table::Taken, &k)?.unwrap().to_vec();
            row[(b % 8192 / 8) as usize] ^= 1 << (b % 8);
            w.put(Table::Taken, &k, &row)
        }
    };
    check(
        "a bit too few",
        &["belongs to an object, but counts as free"],
        set(false),
    );
    check("a bit too many", &["is taken, but no object has it"], set(true));
}

#[test]
fn objects_that_are_gone() {
    let wanted = [
        "is taken, but no object has it",
        "pool 1: counters say",
        "omap rows of object number",
        "their objects have",
    ];
    check("no record", &wanted, |w| {
        w.delete(Table::Objects, &key::object(&oid("c")))
    });
}

#[test]
fn records_that_say_something_else() {
    check(
        "an omap row less",
        &["1//c: 0 omap keys of 0 bytes, its record says 1 of 8"],
        |w| {
            let nid = record(w, "c").nid;
            w.delete(Table::Omap, &key::omap(nid, b"key"))
        },
    );
    check("shorter than its data", &["1//c: data behind its end"], |w| {
        let mut o = record(w, "c");
        o.size = 50;
        put_record(w, "c", &o)
    });
    check(
        "an extent behind the end",
        &["1//c: extent at block 0 out of order or behind the end"],
        |w| {
            let mut o = record(w, "c");
            o.size = 0;
            put_record(w, "c", &o)
        },
    );
    check(
        "an extent outside",
        &["1//c: extent at block 0 lies outside the data"],
        |w| {
            let mut o = record(w, "c");
            let mut out = crate::onode::Removed::default();
            o.extents.remove(0, 1, &mut out);
            o.extents.insert(crate::onode::Extent {
                phys: 1 << 40,
                ..out.gone[0]
            });
            put_record(w, "c", &o)
        },
    );
    check("the same number twice", &["another object has its number"], |w| {
        let (mut a, c) = (record(w, "a"), record(w, "c"));
        (a.nid, a.omap_keys, a.omap_bytes) = (c.nid, c.omap_keys, c.omap_bytes);
        put_record(w, "a", &a)
    });
}

#[test]
fn rows_that_make_no_sense() {
    check("a record", &["the index is damaged"], |w| {
        w.put(Table::Objects, &key::object(&oid("c")), b"\xff")
    });
    check("a key", &["the index is damaged"], |w| {
        w.put(Table::Objects, b"?", b"?")
    });
    check("a block row", &["the index is damaged"], |w| {
        let k = ((block_of(&record(w, "c")) / 64) as u32).to_be_bytes();
        w.put(Table::Blocks, &k, b"short")
    });
}

#[test]
fn many_owners_of_a_block_are_counted() {
    let mut owners = Owners::new(70);
    (0..300).for_each(|_| owners.add(69, true));
    owners.add(3, false);
    assert_eq!((owners.of(69), owners.of(3), owners.of(4)), (300, 1, 0));
    assert!(owners.says_alone(3) && !owners.says_alone(69));
}

/// The index row of an object, and the rows beside it.
fn rows(disk: &SimDisk, name: &str) -> (usize, usize) {
    let file = Arc::new(Checked::over(disk.copy().open(open::INDEX_FILE).unwrap()).unwrap());
    let index = RedbIndex::open("index", file, 1 << 20).unwrap();
    let snapshot = index.snapshot().unwrap();
    let record = snapshot
        .get(Table::Objects, &key::object(&oid(name)))
        .unwrap()
        .unwrap();
    let all = snapshot
        .range(Table::Omap, Bound::Unbounded, Bound::Unbounded)
        .unwrap();
    (record.len(), all.count())
}

fn serve(disk: &SimDisk, f: impl Fn(&mut Store)) {
    let mut s = Store::open_on(Arc::new(disk.clone()), &options(), Arc::new(|| {})).unwrap();
    f(&mut s);
    s.close().unwrap();
    let report = Store::check_on(Arc::new(disk.copy()), &options()).unwrap();
    assert!(report.is_clean(), "{report:?}");
}

fn queue(s: &mut Store, ops: Vec<Op>) {
    let mut t = Transaction::new(SPgId::replicated(PgId::new(1, 0)));
    t.ops = ops;
    s.queue(t).unwrap();
}

fn set_attr(name: &str, attr: &str, len: usize) -> Op {
    Op::SetAttrs {
        oid: oid(name),
        attrs: vec![(Bytes::copy_from_slice(attr.as_bytes()), vec![7; len].into())],
    }
}

#[test]
fn large_values_are_not_in_the_record() {
    let disk = store();
    let before = rows(&disk, "a").1;
    serve(&disk, |s| {
        for n in 0..20 {
            queue(s, vec![set_attr("a", &format!("small{n}"), 3000)]);
        }
        queue(s, vec![set_attr("a", "large", 30_000)]);
        let header = vec![8; 20_000].into();
        queue(
            s,
            vec![Op::OmapSetHeader {
                oid: oid("a"),
                header,
            }],
        );
    });
    let (record, beside) = rows(&disk, "a");
    assert!(record < 20_000, "{record} bytes");
    assert!(beside > before + 15, "{beside} rows");
    serve(&disk, |s| {
        assert_eq!(s.attr(&oid("a"), b"large").unwrap().unwrap().len(), 30_000);
        assert_eq!(s.omap_header(&oid("a")).unwrap().len(), 20_000);
        assert_eq!(s.attrs(&oid("a")).unwrap().len(), 21);
        assert!(
            s.attr_sizes(&oid("a"))
                .unwrap()
                .contains(&("large".into(), 30_000))
        );
        // A clone has its own; the original's go.
        queue(
            s,
            vec![Op::Clone {
                src: oid("a"),
                dst: oid("d"),
            }],
        );
        queue(s, vec![Op::Remove { oid: oid("a") }]);
        assert_eq!(s.attr(&oid("d"), b"large").unwrap().unwrap().len(), 30_000);
        queue(s, vec![set_attr("d", "large", 10)]);
        queue(
            s,
            vec![Op::RemoveAttr {
                oid: oid("d"),
                name: "small19".into(),
            }],
        );
        assert_eq!(s.attr(&oid("d"), b"large").unwrap().unwrap().len(), 10);
    });
    serve(&disk, |s| {
        assert_eq!(s.attr(&oid("d"), b"large").unwrap().unwrap().len(), 10);
        assert_eq!(s.attrs(&oid("d")).unwrap().len(), 20);
        queue(s, vec![Op::Remove { oid: oid("d") }]);
    });
    assert_eq!(rows(&disk, "c").1, before, "nothing is left");
}

#[test]
fn a_record_of_an_older_build_is_read_and_laid_out_anew() {
    let disk = store();
    let file = Arc::new(Checked::over(disk.open(open::INDEX_FILE).unwrap()).unwrap());
    let index = RedbIndex::open("index", file, 1 << 20).unwrap();
    let big = |n: u8| Value::Inline(vec![n; 1 << 20].into());
    let put = |w: &mut dyn Change| {
        for name in ["a", "c"] {
            let mut o = record(w, name);
            for n in 0..8 {
                o.set_attr(&vec![b'x', n].into(), big(n));
            }
            o.omap_header = big(9);
            put_record(w, name, &o)?;
        }
        Ok(())
    };
    index.commit(&mut |w| put(w)).unwrap();
    drop(index);
    assert!(rows(&disk, "a").0 > 9 << 20);
    // One is only looked at, the other changed.
    serve(&disk, |s| {
        assert_eq!(s.attr(&oid("a"), b"x\x03").unwrap().unwrap(), vec![3; 1 << 20]);
        s.tick(std::time::Duration::from_secs(1));
        queue(s, vec![set_attr("c", "one more", 10)]);
    });
    for name in ["a", "c"] {
        assert!(rows(&disk, name).0 < 1000, "{name}");
    }
    serve(&disk, |s| {
        for name in ["a", "c"] {
            assert_eq!(s.attr(&oid(name), b"x\x03").unwrap().unwrap(), vec![3; 1 << 20]);
            assert_eq!(s.omap_header(&oid(name)).unwrap().len(), 1 << 20);
            queue(s, vec![Op::Remove { oid: oid(name) }]);
        }
    });
    assert_eq!(rows(&disk, "b").1, 0);
}

#[test]
fn rows_of_values() {
    check("a value without its row", &["a value has no row"], |w| {
        let mut o = record(w, "a");
        o.values = 77;
        o.set_attr(&"large".into(), Value::Row(9000));
        put_record(w, "a", &o)
    });
    check(
        "a row without its value",
        &["a row that none of its values has"],
        |w| {
            let mut o = record(w, "a");
            o.values = 77;
            w.put(Table::Omap, &key::omap(77, b"alost"), b"value")?;
            put_record(w, "a", &o)
        },
    );
    check(
        "two objects with one number",
        &["another object has its number"],
        |w| {
            let mut o = record(w, "a");
            o.values = record(w, "c").nid;
            put_record(w, "a", &o)
        },
    );
}

#[test]
fn a_listing_ends_where_it_is_told_to() {
    let disk = store();
    serve(&disk, |s| {
        let names = |s: &Store, to: &str, max| {
            let found = s.list_within(&oid("a"), &oid(to), max).unwrap();
            found
                .into_iter()
                .map(|o| String::from_utf8(o.object.oid.to_vec()).unwrap())
                .collect::<Vec<_>>()
        };
        assert_eq!(names(s, "b", 10), ["a", "b"]);
        assert_eq!(names(s, "c", 2), ["a", "b"]);
        queue(
            s,
            vec![Op::Remove { oid: oid("b") }, Op::Touch { oid: oid("bb") }],
        );
        assert_eq!(names(s, "b", 10), ["a"]);
        assert_eq!(names(s, "bb", 10), ["a", "bb"]);
        assert_eq!(s.list_within(&oid("b"), &oid("a"), 10).unwrap(), []);
    });
}

/// Two parts of a blob of which one says more of it than there is: an error, whatever was unpacked before.
#[test]
fn parts_that_do_not_agree_about_their_blob() {
    let disk = store();
    let mut s = Store::open_on(Arc::new(disk.clone()), &options(), Arc::new(|| {})).unwrap();
    let packed = crate::Compression {
        algorithm: crate::Algorithm::Zstd,
        min_blob: 8192,
        max_blob: 32768,
        required_ratio: 0.875,
    };
    for offset in [0, 32768] {
        let mut t = Transaction::new(SPgId::replicated(PgId::new(1, 0)));
        t.ops.push(Op::Write {
            oid: oid("d"),
            offset,
            data: vec![5; 32768].into(),
        });
        s.queue_compressed(t, Some(packed)).unwrap();
    }
    s.close().unwrap();
    let found = said_of(disk, |w| {
        let mut o = record(w, "d");
        let first = *o.extents.iter().next().unwrap();
        let blob = first.blob.unwrap();
        o.extents.remove(8, 16, &mut crate::onode::Removed::default());
        let more = crate::compress::Blob::new(blob.algorithm, 16, blob.bytes() as u32);
        o.extents.insert(crate::onode::Extent {
            at: 8,
            blob: Some(more.behind(8)),
            ..first
        });
        put_record(w, "d", &o)
    });
    let bad = |byte: u64| {
        found
            .iter()
            .any(|p| p.ends_with(&format!("d: bad block at byte {byte}")))
    };
    assert!(bad(32768) && !bad(0), "{found:#?}");
}
