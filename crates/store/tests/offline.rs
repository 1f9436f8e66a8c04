//! Looking at a store that nobody serves, check and view: what is there is found, and nothing is changed.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::disallowed_macros)]

use bytes::Bytes;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use store::{Error, Options, Progress, Store, View};
use types::{EVersion, HObject, NOSNAP, ObjectId, Op, PgId, SPgId, Transaction};

const MIB: u64 = 1 << 20;

fn options() -> Options {
    Options {
        osd_id: 3,
        log_bytes: MIB,
        grow_bytes: 4 * MIB,
        host_reserve_bytes: 0,
        ..Options::default()
    }
}

fn any() -> Options {
    Options {
        osd_id: Options::ANY_OSD,
        ..options()
    }
}

fn oid(name: &str) -> ObjectId {
    let name = Bytes::copy_from_slice(name.as_bytes());
    ObjectId::replicated(HObject::new(1, 77, Bytes::new(), Bytes::new(), name, NOSNAP))
}

fn coll() -> SPgId {
    SPgId::replicated(PgId::new(1, 0))
}

fn write(name: &str, offset: u64, data: Vec<u8>) -> Op {
    Op::Write {
        oid: oid(name),
        offset,
        data: data.into(),
    }
}

/// `a`: two blocks and a bit, with attribute and omap; `b`: a clone of it; `big`: 1 MiB. The last transactions
/// are only in the log.
fn filled(dir: &Path) {
    Store::mkfs(dir, &options()).unwrap();
    let mut store = Store::open(dir, &options(), Arc::new(|| {})).unwrap();
    let mut queue = |ops: Vec<Op>| {
        let collection = coll();
        store.queue(Transaction { collection, ops }).unwrap();
    };
    queue(vec![
        Op::CreateCollection,
        write("a", 0, vec![1; 4096]),
        write("a", 4096, vec![7; 4096]),
        write("a", 8192, vec![3; 100]),
        Op::SetAttrs {
            oid: oid("a"),
            attrs: vec![("_x".into(), "y".into())],
        },
        Op::OmapSet {
            oid: oid("a"),
            entries: (0..100).map(|n| (format!("k{n}").into(), "v".into())).collect(),
        },
        write("big", 0, vec![5; MIB as usize]),
    ]);
    queue(vec![Op::Clone {
        src: oid("a"),
        dst: oid("b"),
    }]);
    store.checkpoint().unwrap();
    let collection = coll();
    let ops = vec![
        write("late", 0, vec![9; 5000]),
        Op::LogAppend {
            version: EVersion::new(1, 1),
            entry: "entry".into(),
        },
    ];
    let seq = store.queue(Transaction { collection, ops }).unwrap();
    store.wait(seq).unwrap();
}

fn contents(dir: &Path) -> Vec<Vec<u8>> {
    ["block", "index"].map(|f| fs::read(dir.join(f)).unwrap()).into()
}

/// Where in `file` a block of nothing but `v` lies, behind the log.
fn find(dir: &Path, v: u8) -> usize {
    let from = (64 << 10) + MIB as usize;
    let content = fs::read(dir.join("block")).unwrap();
    let at = content[from..]
        .chunks(4096)
        .position(|b| b.iter().all(|x| *x == v));
    from + at.unwrap() * 4096
}

fn change(dir: &Path, file: &str, at: usize) {
    let mut content = fs::read(dir.join(file)).unwrap();
    content[at] ^= 0x40;
    fs::write(dir.join(file), content).unwrap();
}

#[test]
fn a_check_finds_everything_and_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path());
    let before = contents(dir.path());
    let mut seen: Vec<Progress> = Vec::new();
    let report = Store::check_with(dir.path(), &any(), &mut |p| seen.push(p)).unwrap();
    assert!(report.is_clean() && !report.incomplete, "{:#?}", report.problems);
    assert_eq!(report.identity.unwrap().osd_id, 3);
    assert_eq!(
        (report.objects, report.omap_keys, report.collections),
        (4, 200, 1)
    );
    assert_eq!((report.replayed, report.log_entries), (1, 1));
    assert_eq!(report.blocks, 3 + 256 + 2);
    assert_eq!(report.bytes, 2 * 8292 + MIB + 5000);
    let last = seen.last().unwrap();
    assert_eq!((last.objects, last.bytes), (last.objects_total, last.bytes_total));
    assert!(seen.is_sorted_by_key(|p| p.bytes));
    assert!(contents(dir.path()) == before, "a check has changed a file");
}

#[test]
fn a_view_reads_everything_and_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path());
    let before = contents(dir.path());
    {
        let v = View::open(dir.path(), &any()).unwrap();
        let again = View::open(dir.path(), &any()).unwrap();
        assert_eq!((v.replayed(), again.replayed()), (1, 1));
        let all = v
            .list(
                &ObjectId {
                    shard: i8::MIN,
                    object: HObject::min(),
                },
                10,
            )
            .unwrap();
        assert_eq!(all, ["a", "b", "big", "late"].map(oid));
        assert_eq!(v.read(&oid("late"), 0, 9999).unwrap(), vec![9; 5000]);
        assert_eq!(v.read(&oid("b"), 8190, 4).unwrap(), [7, 7, 3, 3][..]);
        assert_eq!(v.attr(&oid("b"), b"_x").unwrap().unwrap(), "y");
        assert_eq!(v.stat(&oid("b")).unwrap().omap_keys, 100);
        assert_eq!(v.log_bounds(&coll()).unwrap().head, EVersion::new(1, 1));
        assert_eq!(v.usage()[&1].objects, 4);
    }
    assert!(contents(dir.path()) == before, "a view has changed a file");
}

#[test]
fn nobody_looks_at_a_store_that_is_served() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path());
    let store = Store::open(dir.path(), &options(), Arc::new(|| {})).unwrap();
    for r in [
        Store::check(dir.path(), &any()).map(drop),
        View::open(dir.path(), &any()).map(drop),
    ] {
        assert!(matches!(r, Err(Error::Locked { .. })), "{r:?}");
    }
    store.close().unwrap();
    let view = View::open(dir.path(), &any()).unwrap();
    let served = Store::open(dir.path(), &options(), Arc::new(|| {}));
    assert!(matches!(served, Err(Error::Locked { .. })));
    drop(view);
    Store::open(dir.path(), &options(), Arc::new(|| {})).unwrap();
}

#[test]
fn a_bad_block_is_named_for_each_owner_and_the_rest_is_given() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path());
    change(dir.path(), "block", find(dir.path(), 7) + 1000);
    let report = Store::check(dir.path(), &any()).unwrap();
    assert_eq!(
        report.problems,
        ["1//a: bad block at byte 4096", "1//b: bad block at byte 4096"]
    );
    let v = View::open(dir.path(), &any()).unwrap();
    let r = v.read(&oid("a"), 0, 8292);
    assert!(matches!(r, Err(Error::Corrupt { offset: 4096, .. })), "{r:?}");
    let s = v.salvage(&oid("a"), 10, 9000).unwrap();
    assert_eq!(s.bad.iter().map(|b| b.0).collect::<Vec<_>>(), [4096]);
    assert_eq!(s.data, [&[1; 4086][..], &[0; 4096], &[3; 100]].concat());
    assert!(v.salvage(&oid("big"), 0, MIB).unwrap().bad.is_empty());
}

/// Every byte of the index that a check does not find must be one of which nothing depends.
#[test]
fn a_damaged_index_is_found_and_never_a_panic() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path());
    let clean = fs::read(dir.path().join("index")).unwrap();
    // Where the object's omap values lie: nothing but the index's own checksum covers them.
    let at = clean.windows(4).position(|w| w == b"k99v").unwrap();
    let mut found = 0;
    for place in (0..clean.len()).step_by(4099).chain([at + 3]) {
        let mut bad = clean.clone();
        bad[place] ^= 0x40;
        fs::write(dir.path().join("index"), &bad).unwrap();
        match Store::check(dir.path(), &any()) {
            Ok(r) if r.is_clean() => assert_ne!(place, at + 3),
            Ok(r) => {
                assert!(
                    r.incomplete && r.problems[0].contains("index"),
                    "{:#?}",
                    r.problems
                );
                found += 1;
            }
            Err(e) => panic!("{e}"),
        }
    }
    assert!(found > 0);
}

#[test]
fn a_damaged_log_is_a_problem_of_the_check() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path());
    let content = fs::read(dir.path().join("block")).unwrap();
    // A batch that has a successor: the one with the clone of `a`, behind the life's marker.
    let mut store = Store::open(dir.path(), &options(), Arc::new(|| {})).unwrap();
    let ops = vec![write("later", 0, vec![8; 10])];
    let seq = store
        .queue(Transaction {
            collection: coll(),
            ops,
        })
        .unwrap();
    store.wait(seq).unwrap();
    drop(store);
    // The only transaction in the old log, "entry", is now followed by others.
    let at = content[..(64 << 10) + MIB as usize]
        .windows(5)
        .rposition(|w| w == b"entry")
        .unwrap();
    change(dir.path(), "block", at);
    let report = Store::check(dir.path(), &any()).unwrap();
    assert!(
        report.incomplete && report.problems[0].contains("the log is damaged"),
        "{:#?}",
        report.problems
    );
    let r = View::open(dir.path(), &any()).map(drop);
    assert!(matches!(r, Err(Error::LogDamaged { .. })), "{r:?}");
    // What the last checkpoint has can still be read; what is newer is not there.
    let v = View::open_without_log(dir.path(), &any()).unwrap();
    assert_eq!(v.read(&oid("a"), 8190, 4).unwrap(), [7, 7, 3, 3][..]);
    assert!(!v.exists(&oid("late")).unwrap() && v.replayed() == 0);
}

#[test]
fn what_is_no_store_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let r = Store::check(dir.path(), &any());
    assert!(matches!(r, Err(Error::NotAStore { .. })), "{r:?}");
    let r = Store::check(&dir.path().join("missing"), &any());
    assert!(matches!(r, Err(Error::NotAStore { .. })), "{r:?}");
    filled(dir.path());
    let r = Store::check(dir.path(), &Options { osd_id: 4, ..any() });
    assert!(matches!(r, Err(Error::OtherOsd { .. })), "{r:?}");
    // The format's number, in both copies, with checksums to match.
    let mut content = fs::read(dir.path().join("block")).unwrap();
    for copy in [0, 4096] {
        content[copy + 8] = 99;
        let crc = types::checksum::crc32c(!0, &content[copy..copy + 4092]);
        content[copy + 4092..copy + 4096].copy_from_slice(&crc.to_le_bytes());
    }
    fs::write(dir.path().join("block"), content).unwrap();
    let r = View::open(dir.path(), &any()).map(drop);
    assert!(matches!(r, Err(Error::NewerFormat { found: 99, .. })), "{r:?}");
}
