//! A host that is short of space gets back what the store does not need: also what was freed long before and stayed in
//! the file, and what the file was grown by ahead of need.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::disallowed_macros)]

use bytes::Bytes;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use store::{Options, Store};
use types::{HObject, NOSNAP, ObjectId, Op, PgId, SPgId, Transaction, Uuid};

const MIB: u64 = 1 << 20;

fn options() -> Options {
    Options {
        osd_id: 3,
        fsid: Uuid([1; 16]),
        osd_uuid: Uuid([2; 16]),
        log_bytes: 4 * MIB,
        grow_bytes: 8 * MIB,
        host_reserve_bytes: 0,
        ..Options::default()
    }
}

fn oid(n: u64) -> ObjectId {
    let name = Bytes::from(format!("o{n}"));
    ObjectId::replicated(HObject::new(1, 77, Bytes::new(), Bytes::new(), name, NOSNAP))
}

fn run(store: &mut Store, ops: Vec<Op>) {
    let collection = SPgId::replicated(PgId::new(1, 0));
    let seq = store.queue(Transaction { collection, ops }).unwrap();
    store.wait(seq).unwrap();
}

fn open(dir: &Path, reserve: u64) -> Store {
    let options = Options {
        host_reserve_bytes: reserve,
        ..options()
    };
    Store::open(dir, &options, Arc::new(|| ())).unwrap()
}

fn content(n: u64) -> Bytes {
    (0..MIB).map(|i| (i / 512 + n) as u8).collect()
}

#[test]
fn what_was_freed_goes_back_when_the_host_is_short() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("osd");
    Store::mkfs(&dir, &options()).unwrap();
    let mut store = open(&dir, 0);
    run(&mut store, vec![Op::CreateCollection]);
    for n in 0..96 {
        let data = content(n);
        run(
            &mut store,
            vec![Op::Write {
                oid: oid(n),
                offset: 0,
                data,
            }],
        );
    }
    // A few stay, all over the file.
    for n in (0..96).filter(|n| n % 12 != 0) {
        run(&mut store, vec![Op::Remove { oid: oid(n) }]);
    }
    store.checkpoint().unwrap();
    let taken = || store::host_use(&dir).unwrap().1 / MIB;
    let before = taken();
    assert!(before > 8 + 4 + 16, "a stock stays in the file: {before} MiB");
    store.close().unwrap();
    assert_eq!(store::host_use(&dir).unwrap().1 / MIB, before);

    // The host wants more left to it than it has.
    let mut store = open(&dir, store::host_bytes(&dir).unwrap());
    for n in 0..3000 {
        store.tick(Duration::from_secs(10 * n));
        if taken() < 24 {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(taken() < 24, "{} of {before} MiB are still taken", taken());
    store.close().unwrap();
    // Nothing that is needed went with it.
    let store = open(&dir, 0);
    for n in (0..96).step_by(12) {
        let data = store.read(&oid(n), 0, MIB).unwrap();
        assert!(data == content(n), "object {n}");
    }
}
