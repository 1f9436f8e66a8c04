//! Each thing that a check looks at, made wrong in an index that is whole: it must say so.

use super::*;
use crate::index::{Change, Checked, Index};
use crate::state::BlockRow;
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
    let disk = store();
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
            let mut out = Vec::new();
            o.extents.remove(0, 2, &mut out);
            let alone = crate::onode::Extent {
                shared: false,
                ..out[0]
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
            let mut out = Vec::new();
            o.extents.remove(0, 1, &mut out);
            o.extents.insert(crate::onode::Extent {
                phys: 1 << 40,
                ..out[0]
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
