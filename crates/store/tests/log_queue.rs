//! A disk with a queue for durable writes: who writes what, and who hears of it.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod common;

use bytes::Bytes;
use common::*;
use io::disk::sim::{SimDisk, Survival};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use store::Store;
use types::{Op, Transaction};

fn opened(disk: &SimDisk) -> (Store, Arc<AtomicU32>) {
    let calls = Arc::new(AtomicU32::new(0));
    let count = calls.clone();
    let waker: store::Waker = Arc::new(move || _ = count.fetch_add(1, Ordering::Relaxed));
    let store = Store::open_on(Arc::new(disk.clone()), &options(), waker).unwrap();
    (store, calls)
}

fn write(n: u64, len: usize) -> Transaction {
    let mut t = Transaction::new(coll(0));
    t.ops.push(Op::Write {
        oid: oid(n),
        offset: 0,
        data: Bytes::from(vec![n as u8; len]),
    });
    t
}

fn with_objects() -> SimDisk {
    let disk = fresh();
    disk.offer_queues();
    let (mut store, _) = opened(&disk);
    store.queue(Generator::first()).unwrap();
    store.close().unwrap();
    disk
}

/// The owner of a small batch hears of its end when it asks, without being called.
#[test]
fn a_small_batch_is_the_owners() {
    let disk = with_objects();
    let (mut store, calls) = opened(&disk);
    while store.pump() {}
    calls.store(0, Ordering::Relaxed);
    let seq = store.queue(write(1, 4096)).unwrap();
    store.kick();
    assert!(store.durable() < seq);
    let cut = disk.survivor_of(Survival::Nothing);
    assert!(opened(&cut).0.queued() < seq, "written, and not durable yet");
    store.turned();
    assert_eq!(store.durable(), seq);
    assert_eq!(calls.load(Ordering::Relaxed), 0);
    let cut = disk.survivor_of(Survival::Nothing);
    assert_eq!(opened(&cut).0.queued(), seq);
}

/// An owner that had to block has not looked at what became durable meanwhile: it is called.
#[test]
fn what_ends_while_the_owner_blocks_is_told() {
    let disk = with_objects();
    let (mut store, calls) = opened(&disk);
    while store.pump() {}
    let seq = store.queue(write(1, 4096)).unwrap();
    store.kick();
    calls.store(0, Ordering::Relaxed);
    store.wait(seq).unwrap();
    assert!(calls.load(Ordering::Relaxed) > 0);
}

/// A batch with data of its own on the disk goes to who flushes.
#[test]
fn a_large_batch_is_not_the_owners() {
    let disk = with_objects();
    let (mut store, _) = opened(&disk);
    while store.pump() {}
    let seq = store.queue(write(1, 256 << 10)).unwrap();
    store.kick();
    store.turned();
    assert!(store.durable() < seq, "nobody has written it");
    store.wait(seq).unwrap();
    let cut = disk.survivor_of(Survival::Nothing);
    let (store, _) = opened(&cut);
    assert_eq!(store.queued(), seq);
    assert!(store.read(&oid(1), 0, 256 << 10).unwrap().iter().all(|b| *b == 1));
}
