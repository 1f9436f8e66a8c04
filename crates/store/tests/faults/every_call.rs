//! One call of the disk fails, and this for every call of a workload in turn: each read, write and flush of
//! each file, once or from then on.
//!
//! What must hold: a failed write or flush stops the store for good, a failed read is an error and no wrong
//! data; what was acknowledged before is there after the next start, and the store then works.

use crate::common::*;
use io::disk::sim::{Call, SimDisk, Survival};
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;
use store::{Error, Store};
use types::Transaction;

/// What a workload left behind.
struct Left {
    /// By transaction number.
    history: Vec<Model>,
    acked: u64,
    stopped: bool,
    /// The fault met the store, not only the end of its index behind that.
    hit: bool,
}

/// Errors that a failing disk may lead to; all others are the store's own mistake.
fn is_fault(e: &Error) -> bool {
    matches!(e, Error::Io { .. } | Error::Index { .. } | Error::Stopped(_))
}

/// Opens, writes, reads, makes checkpoints and closes, on a store with a life behind it.
fn workload(disk: &SimDisk, seed: u64, before: &Model, what: &str) -> Left {
    let mut left = Left {
        history: vec![before.clone()],
        acked: 0,
        stopped: false,
        hit: false,
    };
    let mut store = match Store::open_on(Arc::new(disk.clone()), &options(), nobody()) {
        Ok(s) => s,
        Err(e) => {
            assert!(is_fault(&e), "{e}");
            (left.stopped, left.hit) = (true, true);
            return left;
        }
    };
    left.history = vec![before.clone(); store.queued() as usize + 1];
    let mut g = Generator::after(seed, 100);
    for i in 0..30u64 {
        let t = g.transaction();
        queue(&mut store, &mut left, &t, what);
        match i % 5 {
            0 => store.tick(Duration::from_secs(i * 1000)),
            1 => {
                store.pump_log();
                store.pump_helper();
            }
            2 => store.kick(),
            3 => while store.pump() {},
            _ => read_some(&store, left.history.last().unwrap(), what),
        }
        left.acked = store.durable();
    }
    left.stopped = store.failed().is_some();
    let end = store.checkpoint();
    left.stopped |= end.is_err();
    left.hit = disk.failures() > 0;
    left.acked = store
        .failed()
        .map_or(store.queued(), |_| left.acked.max(store.durable()));
    if let Err(e) = end {
        assert!(is_fault(&e), "{e}");
        refuses_for_good(&mut store);
    }
    left
}

fn queue(store: &mut Store, left: &mut Left, t: &Transaction, what: &str) {
    let wanted = left.history.last().unwrap().after(t);
    match (store.queue(t.clone()), wanted) {
        (Ok(seq), Some(m)) => {
            left.history.push(m);
            assert_eq!(seq as usize, left.history.len() - 1);
        }
        (Err(e), _) if is_fault(&e) => {}
        (Err(e), None) => assert!(e.is_refusal(), "{e}"),
        (Err(Error::NoSpace { .. }), Some(_)) => {}
        (r, m) => panic!("{what}: {r:?}, the model says {}: {t:?}", m.is_some()),
    }
}

/// Every read gives what the model says or the fault.
fn read_some(store: &Store, model: &Model, what: &str) {
    for (oid, o) in &model.objects {
        match store.read(oid, 0, u64::MAX) {
            Ok(data) => assert_eq!(data, o.data, "{what}"),
            Err(e) => assert!(is_fault(&e), "{what}: {e}"),
        }
        match store.omap_get(oid, &o.omap.keys().cloned().collect::<Vec<_>>()) {
            Ok(rows) => assert_eq!(rows.len(), o.omap.len(), "{what}"),
            Err(e) => assert!(is_fault(&e), "{what}: {e}"),
        }
    }
}

/// What any state here allows.
fn valid() -> Transaction {
    let mut t = Transaction::new(coll(0));
    t.ops.push(types::Op::SetMeta {
        meta: bytes::Bytes::from("still works"),
    });
    t
}

fn refuses_for_good(store: &mut Store) {
    if store.failed().is_none() {
        return;
    }
    let r = store.queue(valid());
    assert!(matches!(r, Err(Error::Stopped(_))), "{r:?}");
    assert!(!store.pump_log(), "nothing is written any more");
}

/// The next start finds all that was acknowledged, and works.
fn recovers(disk: &SimDisk, left: &Left, what: &str) {
    for how in [Survival::Nothing, Survival::Everything, Survival::Some(7)] {
        let s = disk.survivor_of(how);
        check(&s.copy(), what);
        let mut store = open(&s);
        let k = store.queued();
        assert!(
            k >= left.acked && (k as usize) < left.history.len().max(1) || left.history.len() == 1,
            "{what}: {} acknowledged, {k} came back",
            left.acked
        );
        if left.history.len() > 1 {
            compare(&store, &left.history[k as usize], what);
        }
        let seq = store.queue(valid()).unwrap();
        store.wait(seq).unwrap();
        store.close().unwrap();
    }
}

/// A store that has a checkpoint and a log behind it.
fn lived(seed: u64) -> (SimDisk, Model) {
    let disk = fresh();
    let mut store = open(&disk);
    let mut left = Left {
        history: vec![Model::default()],
        acked: 0,
        stopped: false,
        hit: false,
    };
    queue(&mut store, &mut left, &Generator::first(), "before");
    let mut g = Generator::new(seed + 1000);
    for i in 0..25 {
        let t = g.transaction();
        queue(&mut store, &mut left, &t, "before");
        if i == 15 {
            store.checkpoint().unwrap();
        }
    }
    store.wait(store.queued()).unwrap();
    let disk = disk.survivor_of(Survival::Nothing);
    let model = left.history.pop().unwrap();
    compare(&open(&disk.copy()), &model, "before anything fails");
    (disk, model)
}

/// Returns how many calls were made to fail.
fn at_every_call(call: Call, file: &str, times: u64, seed: u64) -> u64 {
    let (disk, model) = lived(seed);
    for n in 0.. {
        let disk = disk.copy();
        disk.fail_times(call, file, n, times, ErrorKind::Other);
        let what = format!("{call:?} {n} of {file} fails {times} times, seed {seed}");
        let left = workload(&disk, seed, &model, &what);
        disk.heal();
        if !left.hit {
            assert!(!left.stopped, "{what}: it stopped without a fault");
            return n;
        }
        if matches!(call, Call::Write | Call::Flush) {
            assert!(left.stopped, "{what}: and nobody noticed");
        }
        recovers(&disk, &left, &what);
    }
    0
}

#[test]
fn every_call_fails_once_or_from_then_on() {
    let mut sum = 0;
    for call in [Call::Read, Call::Write, Call::Flush] {
        for file in ["block", "index"] {
            for times in [1, u64::MAX] {
                let n = at_every_call(call, file, times, 3);
                assert!(n >= 5, "{call:?} of {file}: only {n} calls");
                println!("{call:?} of {file}, {times} times: {n} places");
                sum += n;
            }
        }
    }
    println!("{sum} calls failed, one run each");
}
