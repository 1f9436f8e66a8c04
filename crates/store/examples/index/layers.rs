//! What a read of an object's record costs in the store: from the layers above the index (not yet applied), from the
//! cache of records behind a checkpoint, from the index, and when there is no such object.

use bytes::Bytes;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use store::{Options, Store};
use types::{HObject, NOSNAP, ObjectId, Op, PgId, SPgId, Transaction};

pub fn oid(n: u64) -> ObjectId {
    let name = Bytes::from(format!("rbd_data.10226b8b4567.{n:016x}"));
    let hash = (n as u32).wrapping_mul(0x9e37_79b9);
    ObjectId::replicated(HObject::new(1, hash, Bytes::new(), Bytes::new(), name, NOSNAP))
}

fn create(store: &mut Store, from: u64, to: u64) {
    for n in from..to {
        let mut t = Transaction::new(SPgId::replicated(PgId::new(1, 0)));
        t.ops.push(Op::Touch { oid: oid(n) });
        t.ops.push(Op::SetAttrs {
            oid: oid(n),
            attrs: vec![(Bytes::from_static(b"_"), Bytes::from(vec![n as u8; 300]))],
        });
        store.queue(t).unwrap();
    }
    store.wait(store.queued()).unwrap();
}

fn time(what: &str, count: u64, f: impl Fn(u64)) {
    let start = Instant::now();
    (0..count).for_each(f);
    println!(
        "{what}: {:.2} us",
        start.elapsed().as_secs_f64() * 1e6 / count as f64
    );
}

/// Objects that one checkpoint still holds back.
const UNAPPLIED: u64 = 2000;

/// A new store with one collection.
pub fn fresh(dir: &Path, options: &Options) -> Store {
    std::fs::create_dir_all(dir).unwrap();
    for f in ["block", "index"] {
        let _ = std::fs::remove_file(dir.join(f));
    }
    Store::mkfs(dir, options).unwrap();
    let mut store = Store::open(dir, options, Arc::new(|| {})).unwrap();
    let mut t = Transaction::new(SPgId::replicated(PgId::new(1, 0)));
    t.ops.push(Op::CreateCollection);
    store.queue(t).unwrap();
    store
}

pub fn measure(dir: &Path, objects: u64) {
    let options = Options {
        host_reserve_bytes: 0,
        checkpoint_after: std::time::Duration::from_secs(3600),
        ..Options::default()
    };
    let mut store = fresh(dir, &options);
    create(&mut store, 0, objects);
    store.checkpoint().unwrap();
    let checkpoints = store.counters().checkpoints;
    create(&mut store, objects, objects + UNAPPLIED);
    assert_eq!(
        store.counters().checkpoints,
        checkpoints,
        "nothing of it is applied"
    );
    let last = |n: u64| assert!(store.stat(&oid(objects + n)).is_ok());
    time("not yet applied", UNAPPLIED, last);
    store.checkpoint().unwrap();
    let last = |n: u64| assert!(store.stat(&oid(objects + n)).is_ok());
    time("applied, in the cache of records", UNAPPLIED, last);
    drop(store);
    let store = Store::open(dir, &options, Arc::new(|| {})).unwrap();
    let spread = |n: u64| oid(n * (objects / UNAPPLIED));
    time("from the index", UNAPPLIED, |n| {
        assert!(store.stat(&spread(n)).is_ok())
    });
    let absent = |n: u64| oid((1 << 40) + n);
    time("absent", UNAPPLIED, |n| assert!(store.stat(&absent(n)).is_err()));
    drop(store);
    std::fs::remove_dir_all(dir).unwrap();
}
