//! A helper thread that panics stops the store: whoever waits for it hears so, nothing hangs, and the next open finds every
//! transaction that was durable.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod common;

use bytes::Bytes;
use common::*;
use io::disk::{HostDisk, Mode};
use io::group::Group;
use io::panics;
use std::collections::BTreeMap;
use std::sync::{Arc, mpsc};
use std::time::Duration;
use store::{Options, Seq, Store};
use types::{Op, Transaction};

const OBJECTS: u64 = 4;
const SIZE: u64 = 512 << 10;
/// Far more than any of the threads needs to come by its point.
const WRITES_MAX: u64 = 5000;
const HANGS_AFTER: Duration = Duration::from_secs(60);

fn small() -> Options {
    Options {
        log_bytes: 4 << 20,
        max_bytes: Some(64 << 20),
        overlay_bytes: 128 << 10,
        grow_bytes: 4 << 20,
        block_cache_bytes: 64 << 10,
        read_bytes: 1 << 20,
        threads: true,
        ..options()
    }
}

fn open(dir: &std::path::Path) -> Store {
    let disk = Arc::new(HostDisk::with_mode(dir, Mode::Plain));
    Store::open_on(disk, &small(), nobody()).unwrap()
}

/// The whole object, in one value that says which write it was; every other one is large and has data of its own on the disk.
fn write(n: u64, version: u64) -> Transaction {
    let mut t = Transaction::new(coll(0));
    let len = if version.is_multiple_of(2) { 8192 } else { SIZE };
    t.ops.push(Op::Write {
        oid: oid(n),
        offset: 0,
        data: Bytes::from(version.to_le_bytes().repeat(len as usize / 8)),
    });
    t
}

fn version_of(store: &mut Store, n: u64) -> u64 {
    let data = store.read(&oid(n), 0, 8192).unwrap();
    let version = u64::from_le_bytes(data[..8].try_into().unwrap());
    assert_eq!(
        &data[..],
        version.to_le_bytes().repeat(1024),
        "half of one write and half of another"
    );
    version
}

/// Writes until the store has failed; what was written, and what of it is durable.
fn write_until_it_fails(store: &mut Store) -> (BTreeMap<Seq, (u64, u64)>, Seq) {
    let mut written = BTreeMap::new();
    for version in 1..WRITES_MAX {
        let n = version % OBJECTS;
        let Ok(seq) = store.queue(write(n, version)) else {
            break;
        };
        written.insert(seq, (n, version));
        store.kick();
        if version % 8 == 0 && store.wait(store.queued()).is_err() {
            break;
        }
    }
    let why = store.failed().expect("it has failed").to_string();
    assert!(why.contains("has panicked"), "{why}");
    assert!(
        store.queue(write(0, WRITES_MAX)).is_err(),
        "nothing more is taken"
    );
    (written, store.durable())
}

fn fall_and_rise(point: &str) {
    let group = Group::new("store");
    group.adopt();
    let dir = tempfile::tempdir().unwrap();
    Store::mkfs(dir.path(), &small()).unwrap();
    let mut store = open(dir.path());
    let first = store.queue(Generator::first()).unwrap();
    store.wait(first).unwrap();
    assert!(panics::ask("store", point));
    let (written, durable) = write_until_it_fails(&mut store);
    drop(store);
    let mut store = open(dir.path());
    for n in 0..OBJECTS {
        let of_n = || written.iter().filter(|(_, (m, _))| *m == n);
        let Some(kept) = of_n()
            .filter(|(seq, _)| **seq <= durable)
            .map(|(_, (_, v))| *v)
            .max()
        else {
            continue;
        };
        let last = of_n().map(|(_, (_, v))| *v).max().unwrap();
        let found = version_of(&mut store, n);
        assert!(
            (kept..=last).contains(&found),
            "{point}: {kept} was durable, found {found}"
        );
    }
    store.close().unwrap();
}

/// The reader is told that the read has ended, and gets the data all the same.
fn a_read_ends() {
    Group::new("store").adopt();
    let dir = tempfile::tempdir().unwrap();
    Store::mkfs(dir.path(), &small()).unwrap();
    let mut store = open(dir.path());
    store.queue(Generator::first()).unwrap();
    store.queue(write(1, 7)).unwrap();
    store.close().unwrap();
    let mut store = open(dir.path());
    assert!(panics::ask("store", "read"));
    let ticket = store
        .prefetch(&oid(1), 0, SIZE)
        .unwrap()
        .expect("it is not in memory");
    let mut ended = Vec::new();
    while !ended.contains(&ticket) {
        store.kick();
        store.wait_reads().unwrap();
        ended.extend(store.prefetched());
    }
    assert_eq!(version_of(&mut store, 1), 7);
    store.release(ticket);
}

/// One test, because a process can be asked for one panic at a time.
#[test]
fn a_panic_of_each_thread_is_the_end_of_the_store() {
    panics::allow();
    for point in ["commit", "data", "helper", "read"] {
        let (done, ended) = mpsc::channel();
        let body = move || {
            match point {
                "read" => a_read_ends(),
                point => fall_and_rise(point),
            }
            done.send(()).unwrap();
        };
        let thread = std::thread::spawn(body);
        match ended.recv_timeout(HANGS_AFTER) {
            Err(mpsc::RecvTimeoutError::Timeout) => panic!("{point}: somebody waits for ever"),
            _ => thread.join().unwrap(),
        }
    }
}
