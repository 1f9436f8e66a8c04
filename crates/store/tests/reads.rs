//! Reads beside the owner: prefetches under way while transactions and checkpoints change what they read.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod common;

use bytes::Bytes;
use common::*;
use io::disk::HostDisk;
use io::disk::{Mode, sim::Dice};
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::{Algorithm, Compression, Options, Store, Ticket};
use types::{Op, Transaction};

const OBJECTS: u64 = 4;
const SIZE: u64 = 256 << 10;
const NOISE: u64 = 128 << 10;

fn small() -> Options {
    Options {
        log_bytes: 2 << 20,
        max_bytes: Some(64 << 20),
        overlay_bytes: 128 << 10,
        grow_bytes: 4 << 20,
        block_cache_bytes: 64 << 10,
        read_bytes: 256 << 10,
        threads: true,
        ..options()
    }
}

fn write(n: u64, offset: u64, data: Bytes) -> Transaction {
    let mut t = Transaction::new(coll(0));
    t.ops.push(Op::Write {
        oid: oid(n),
        offset,
        data,
    });
    t
}

/// What is read, with or without a ticket, early or late, in one piece or several, is always what was written last.
/// How many prefetches were started, and how many reads came in several pieces.
fn churn(mode: Mode, seed: u64, compression: Option<Compression>) -> (usize, usize) {
    let dir = tempfile::tempdir().unwrap();
    Store::mkfs(dir.path(), &small()).unwrap();
    let disk = Arc::new(HostDisk::with_mode(dir.path(), mode));
    let mut store = Store::open_on(disk, &small(), nobody()).unwrap();
    let mut dice = Dice::new(seed);
    let noise: Vec<u8> = (0..NOISE).map(|_| dice.roll() as u8).collect();
    let mut content = vec![vec![0u8; SIZE as usize]; OBJECTS as usize];
    store.queue(Generator::first()).unwrap();
    for n in 0..OBJECTS {
        store.queue(write(n, 0, vec![0; SIZE as usize].into())).unwrap();
    }
    let mut open: Vec<(Ticket, u64, u64, u64)> = Vec::new();
    let (mut started, mut in_pieces) = (0, 0);
    for _ in 0..6000 {
        let (n, at) = (dice.below(OBJECTS), dice.below(SIZE));
        let len = [4096, 10_000, 100_000][dice.below(3) as usize].min(SIZE - at);
        match dice.below(8) {
            0..=2 => {
                let (at, len) = match dice.below(2) {
                    0 => (at, len.min(9000)),
                    // Direct: fresh extents, and the old ones are freed.
                    _ => (at / 65536 * 65536, 65536),
                };
                let shift = dice.below(NOISE);
                let data: Vec<u8> = match compression {
                    None => vec![shift as u8; len as usize],
                    // Half of each block can be saved: what is left of a blob is many blocks.
                    Some(_) => (at..at + len)
                        .map(|i| noise[((i + shift) % NOISE) as usize] * (i / 2048 % 2) as u8)
                        .collect(),
                };
                content[n as usize][at as usize..(at + len) as usize].copy_from_slice(&data);
                store
                    .queue_compressed(write(n, at, data.into()), compression)
                    .unwrap();
            }
            3..=5 => {
                if let Some(ticket) = store.prefetch(&oid(n), at, len).unwrap() {
                    open.push((ticket, n, at, len));
                    started += 1;
                }
            }
            6 => {
                store.kick();
                if dice.below(4) == 0 {
                    store.wait(store.queued()).unwrap();
                }
                store.prefetched();
            }
            _ => {
                let whole = &content[n as usize][at as usize..(at + len) as usize];
                assert!(store.read(&oid(n), at, len).unwrap() == whole, "seed {seed}");
            }
        }
        if open.len() > 6 {
            let (ticket, n, at, len) = open.swap_remove(dice.below(open.len() as u64) as usize);
            let whole = &content[n as usize][at as usize..(at + len) as usize];
            match dice.below(2) {
                0 => assert!(
                    store.read(&oid(n), at, len).unwrap() == whole,
                    "seed {seed}, ticket"
                ),
                _ => {
                    let pieces = store.read_pieces(&oid(n), at, len).unwrap();
                    in_pieces += usize::from(pieces.len() > 1);
                    assert!(pieces.concat() == whole, "seed {seed}, ticket, pieces");
                }
            }
            store.release(ticket);
        }
        if dice.below(500) == 0 {
            store.checkpoint().unwrap();
        }
    }
    assert!(store.counters().checkpoints > 5);
    assert_eq!(compression.is_some(), store.statfs().compressed > 0);
    // All that the tickets brought goes with them: there is room for as much as at first.
    open.into_iter().for_each(|(ticket, ..)| store.release(ticket));
    store.checkpoint().unwrap();
    for n in 0..OBJECTS {
        store.uncache(&oid(n), 0, SIZE).unwrap();
    }
    // Reads that nobody waits for end, too.
    let deadline = Instant::now() + Duration::from_secs(60);
    let ticket = loop {
        store.prefetched();
        match store.prefetch(&oid(0), 0, SIZE).unwrap() {
            Some(ticket) => break ticket,
            None => assert!(Instant::now() < deadline, "no room for reads is left"),
        }
        store.wait_reads().unwrap();
    };
    store.release(ticket);
    store.close().unwrap();
    assert!(Store::check(dir.path(), &small()).unwrap().is_clean());
    (started, in_pieces)
}

#[test]
fn a_prefetch_never_brings_old_data() {
    for (seed, mode) in [Mode::Auto, Mode::Direct, Mode::Plain].into_iter().enumerate() {
        let (started, in_pieces) = churn(mode, seed as u64, None);
        assert!(started > 100, "{mode:?}: only {started} prefetches");
        assert!(in_pieces > 10, "{mode:?}: only {in_pieces} reads in pieces");
        let packed = Compression {
            algorithm: Algorithm::Lz4,
            min_blob: 8192,
            max_blob: 64 << 10,
            required_ratio: 0.875,
        };
        let (started, _) = churn(mode, seed as u64, Some(packed));
        assert!(
            started > 100,
            "{mode:?}: only {started} prefetches of what is compressed"
        );
    }
}

/// Each ticket ends once, and its data is then in memory: also with a file that fails every read from then on.
#[test]
fn tickets_end_and_hold_their_data() {
    let dir = tempfile::tempdir().unwrap();
    Store::mkfs(dir.path(), &small()).unwrap();
    let mut store = Store::open(dir.path(), &small(), nobody()).unwrap();
    store.queue(Generator::first()).unwrap();
    let data: Vec<u8> = (0..SIZE).map(|i| (i / 100) as u8).collect();
    store.queue(write(0, 0, data.clone().into())).unwrap();
    store.close().unwrap();
    let mut store = Store::open(dir.path(), &small(), nobody()).unwrap();
    assert_eq!(store.prefetch(&oid(1), 0, 4096).unwrap(), None, "no such object");
    let wanted: Vec<u64> = (0..SIZE / 4096).step_by(2).map(|b| b * 4096).collect();
    let mut tickets: Vec<Ticket> = Vec::new();
    for at in &wanted {
        tickets.push(store.prefetch(&oid(0), *at, 4096).unwrap().unwrap());
    }
    store.kick();
    let mut ended = Vec::new();
    while ended.len() < tickets.len() {
        store.wait_reads().unwrap();
        ended.extend(store.prefetched());
    }
    ended.sort_unstable();
    assert_eq!(ended, tickets);
    assert_eq!(
        store.prefetch(&oid(0), 0, 4096).unwrap(),
        None,
        "it is here already"
    );
    // Whatever the disk holds now: this is in memory.
    let path = dir.path().join("block");
    let len = std::fs::metadata(&path).unwrap().len();
    std::fs::File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(len / 1000 * 4)
        .unwrap();
    for at in &wanted {
        let got = store.read(&oid(0), *at, 4096).unwrap();
        assert!(got == data[*at as usize..*at as usize + 4096]);
    }
    assert!(store.read(&oid(0), 4096, 4096).is_err(), "that one is not");
    tickets.into_iter().for_each(|t| store.release(t));
}

/// What rots on the disk is not seen by who reads from memory; after `uncache` it is.
#[test]
fn uncache_lets_the_next_read_ask_the_disk() {
    use std::os::unix::fs::FileExt;
    let dir = tempfile::tempdir().unwrap();
    let options = Options {
        block_cache_bytes: 1 << 20,
        ..small()
    };
    Store::mkfs(dir.path(), &options).unwrap();
    let mut store = Store::open(dir.path(), &options, nobody()).unwrap();
    store.queue(Generator::first()).unwrap();
    let data: Vec<u8> = (0..8192u64).map(|i| (i * 31 / 7) as u8).collect();
    store.queue(write(0, 0, data.clone().into())).unwrap();
    store.close().unwrap();
    let mut store = Store::open(dir.path(), &options, nobody()).unwrap();
    assert_eq!(store.read(&oid(0), 0, 8192).unwrap(), data);
    let mut flipped = 0;
    for entry in std::fs::read_dir(dir.path()).unwrap() {
        let path = entry.unwrap().path();
        let Ok(bytes) = std::fs::read(&path) else { continue };
        let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        // The second block: the log may hold a copy of it, too, which nobody reads any more.
        for at in (0..bytes.len().saturating_sub(4096)).step_by(4096) {
            if bytes[at..at + 4096] == data[4096..] {
                file.write_all_at(&[!data[4096 + 9]], at as u64 + 9).unwrap();
                flipped += 1;
            }
        }
        file.sync_all().unwrap();
    }
    assert!(flipped > 0);
    assert_eq!(store.read(&oid(0), 0, 8192).unwrap(), data, "from memory");
    store.uncache(&oid(0), 0, 8192).unwrap();
    let e = store.read(&oid(0), 0, 8192).unwrap_err();
    assert!(matches!(e, store::Error::Corrupt { offset: 4096, .. }), "{e}");
    store.uncache(&oid(7), 0, 8192).unwrap();
}
