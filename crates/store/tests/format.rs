//! Stores that earlier versions left: every later one must open them, replay their log and find all in order.
//!
//! `formats/*.tgz` are such directories, each made by the version that its name says:
//! `SKEP_MAKE_FORMAT=DIR cargo test -p store --test format` in a checkout of it makes another one, and with `SKEP_MAKE_BLOBS=1`
//! one that compresses, with every algorithm.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod common;

use bytes::Bytes;
use common::*;
use io::disk::Disk;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use store::{Algorithm, Compression, Options, Store};
use types::{EVersion, Op, Transaction};

/// How many of the transactions a checkpoint covers; the others are in the log alone.
const CHECKPOINTED: usize = 12;

/// Every kind of operation; never to be changed, since the stores hold what it gives.
fn transactions() -> Vec<Transaction> {
    let fill = |n: u8, len: usize| Bytes::from(vec![n; len]);
    let pair = |k: &str, v: &str| (Bytes::from(k.to_owned()), Bytes::from(v.to_owned()));
    let mut out = vec![Vec::new()];
    out[0].push(Op::CreateCollection);
    for round in 0..2u64 {
        let (a, b, c) = (oid(4 * round), oid(4 * round + 1), oid(4 * round + 2));
        let n = 16 * round as u8;
        let write = |oid: &types::ObjectId, offset, data| Op::Write {
            oid: oid.clone(),
            offset,
            data,
        };
        out.push(vec![
            Op::Touch { oid: a.clone() },
            write(&a, 100, fill(n + 1, 10_000)),
        ]);
        out.push(vec![write(&a, 65_536, fill(n + 2, 150_000))]);
        out.push(vec![Op::SetAttrs {
            oid: a.clone(),
            attrs: vec![pair("_", "info"), pair("x", "y")],
        }]);
        out.push(vec![
            Op::OmapSet {
                oid: a.clone(),
                entries: (0..40)
                    .map(|i| pair(&format!("key{i:02}"), &"v".repeat(i)))
                    .collect(),
            },
            Op::OmapSetHeader {
                oid: a.clone(),
                header: fill(n + 3, 20),
            },
        ]);
        out.push(vec![Op::Clone {
            src: a.clone(),
            dst: b.clone(),
        }]);
        out.push(vec![
            write(&a, 70_000, fill(n + 4, 5000)),
            Op::Zero {
                oid: a.clone(),
                offset: 100_000,
                len: 30_000,
            },
            Op::Truncate {
                oid: a.clone(),
                size: 190_001,
            },
        ]);
        out.push(vec![
            Op::Touch { oid: c.clone() },
            Op::CloneRange {
                src: a.clone(),
                dst: c.clone(),
                src_offset: 65_536,
                len: 16_384,
                dst_offset: 8192,
            },
            Op::RemoveAttr {
                oid: a.clone(),
                name: Bytes::from("x"),
            },
        ]);
        out.push(vec![
            Op::OmapRemove {
                oid: a.clone(),
                keys: vec![Bytes::from("key01"), Bytes::from("key39")],
            },
            Op::OmapRemoveRange {
                oid: a.clone(),
                first: Bytes::from("key10"),
                last: Bytes::from("key20"),
            },
        ]);
        out.push(vec![
            Op::SetMeta {
                meta: fill(n + 5, 99),
            },
            Op::LogAppend {
                version: EVersion::new(1, 10 * round + 1),
                entry: fill(n + 6, 180),
            },
            Op::LogAppend {
                version: EVersion::new(1, 10 * round + 2),
                entry: fill(n + 7, 180),
            },
        ]);
    }
    out.push(vec![
        Op::LogTrim {
            to: EVersion::new(1, 1),
        },
        Op::Remove { oid: oid(1) },
    ]);
    out.into_iter()
        .map(|ops| {
            let mut t = Transaction::new(coll(0));
            t.ops = ops;
            t
        })
        .collect()
}

fn golden() -> Options {
    Options {
        threads: true,
        ..options()
    }
}

fn unpack(name: &str, into: &Path) {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/formats");
    let tar = Command::new("tar")
        .arg("-xzf")
        .arg(Path::new(file).join(name))
        .arg("-C")
        .arg(into)
        .status();
    assert!(tar.unwrap().success(), "{name}");
}

#[test]
fn earlier_formats_are_read() {
    if let Some(dir) = std::env::var_os("SKEP_MAKE_FORMAT") {
        return make(Path::new(&dir));
    }
    for name in ["1-2026-11-22.tgz", "1-2026-11-25-blobs.tgz"] {
        let dir = tempfile::tempdir().unwrap();
        unpack(name, dir.path());
        let mut model = Model::default();
        for t in transactions() {
            model = model.after(&t).unwrap();
        }
        assert!(Store::check(dir.path(), &golden()).unwrap().is_clean(), "{name}");
        let mut store = Store::open(dir.path(), &golden(), nobody()).unwrap();
        assert_eq!(store.queued(), transactions().len() as u64, "{name}");
        compare(&store, &model, name);
        // And they can be written on.
        let mut t = Transaction::new(coll(0));
        t.ops.push(Op::Write {
            oid: oid(0),
            offset: 0,
            data: Bytes::from(vec![9; 100_000]),
        });
        model = model.after(&t).unwrap();
        store.queue(t).unwrap();
        store.close().unwrap();
        assert!(Store::check(dir.path(), &golden()).unwrap().is_clean(), "{name}");
        let store = Store::open(dir.path(), &golden(), nobody()).unwrap();
        compare(&store, &model, name);
    }
}

fn make(dir: &Path) {
    Store::mkfs(dir, &golden()).unwrap();
    let mut store = Store::open(dir, &golden(), Arc::new(|| {})).unwrap();
    let blobs = std::env::var_os("SKEP_MAKE_BLOBS").is_some();
    for (i, t) in transactions().into_iter().enumerate() {
        store
            .queue_compressed(t, blobs.then(|| by(Algorithm::ALL[i % 4])))
            .unwrap();
        if i + 1 == CHECKPOINTED {
            store.checkpoint().unwrap();
        }
    }
    store.wait(store.queued()).unwrap();
}

fn by(algorithm: Algorithm) -> Compression {
    Compression {
        algorithm,
        min_blob: 8192,
        max_blob: 32_768,
        required_ratio: 0.875,
    }
}

/// A store that compresses nothing is one that earlier programs can read; the first blob ends that, before it is written.
#[test]
fn the_first_blob_is_told_of_in_the_superblock() {
    const BLOBS: u8 = 4;
    let disk = fresh();
    let has = |d: &io::disk::sim::SimDisk| {
        let b = d.content("block");
        [b[FEATURES_AT] & BLOBS != 0, b[4096 + FEATURES_AT] & BLOBS != 0]
    };
    let mut store = open(&disk);
    let write = |n: u64, data: Vec<u8>| Transaction {
        collection: coll(0),
        ops: vec![Op::Write {
            oid: oid(n),
            offset: 0,
            data: data.into(),
        }],
    };
    store.queue(Generator::first()).unwrap();
    let packed = Some(by(Algorithm::Zstd));
    let mut dice = io::disk::sim::Dice::new(5);
    let noise: Vec<u8> = (0..65_536).map(|_| dice.below(256) as u8).collect();
    store.queue_compressed(write(0, noise.clone()), packed).unwrap();
    store.queue_compressed(write(2, vec![1; 4096]), packed).unwrap();
    store.checkpoint().unwrap();
    assert_eq!(
        has(&disk),
        [false; 2],
        "nothing of this can be compressed, or is long enough"
    );
    disk.sample_each(1, [1000; 3]);
    store.queue_compressed(write(4, vec![1; 65_536]), packed).unwrap();
    store.wait(store.queued()).unwrap();
    for s in disk.survivors() {
        let store = open(&s);
        if store.exists(&oid(4)).unwrap() {
            assert_eq!(has(&s), [true; 2]);
            assert_eq!(store.read(&oid(4), 0, u64::MAX).unwrap(), vec![1; 65_536]);
        }
        assert_eq!(store.read(&oid(0), 0, u64::MAX).unwrap(), noise);
        drop(store);
        check(&s, "a cut at the first blob");
    }
    assert_eq!(has(&disk), [true; 2]);
    store.close().unwrap();
    check(&disk, "the first blob");
}

/// Where the superblock has its features, and what the bit says that values may lie beside their object's record.
const FEATURES_AT: usize = 16;
const VALUE_ROWS: u8 = 2;

/// Changes a byte of both copies of the superblock, whose checksums are right afterwards.
fn set_byte(block: &mut [u8], at: usize, value: u8) {
    for copy in [0, 4096] {
        block[copy + at] = value;
        let crc = types::checksum::crc32c(!0, &block[copy..copy + 4092]);
        block[copy + 4092..copy + 4096].copy_from_slice(&crc.to_le_bytes());
    }
}

#[test]
fn newer_formats_are_refused() {
    // (offset in the superblock, byte, what the refusal names)
    let cases = [
        (8, 2, Some("format 2 is newer")),
        (16, 8, Some("feature bit 3,")),
        (16, 0xff, Some("feature bit 3, 4, 5, 6, 7,")),
        (23, 0x80, Some("feature bit 63,")),
        (24, 1, None),
    ];
    for (at, value, refusal) in cases {
        let dir = tempfile::tempdir().unwrap();
        unpack("1-2026-11-22.tgz", dir.path());
        let path = dir.path().join("block");
        let mut bytes = std::fs::read(&path).unwrap();
        set_byte(&mut bytes, at, value);
        std::fs::write(&path, &bytes).unwrap();
        match (Store::open(dir.path(), &golden(), nobody()), refusal) {
            (Err(e), Some(named)) => {
                assert!(e.to_string().contains(named), "byte {at}: {e}");
                assert!(std::fs::read(&path).unwrap() == bytes, "nothing was changed");
            }
            (Err(e), None) => panic!("byte {at}: {e}"),
            (Ok(_), named) => {
                assert_eq!(named, None, "byte {at}");
                let now = std::fs::read(&path).unwrap();
                assert_eq!(
                    [now[at], now[4096 + at]],
                    [value; 2],
                    "what it does not know stays"
                );
            }
        }
    }
}

/// Earlier programs are kept from a store by a bit of its superblock, from before the first write of one that knows it.
#[test]
fn a_store_gets_the_features_of_who_opens_it() {
    let dir = tempfile::tempdir().unwrap();
    unpack("1-2026-11-22.tgz", dir.path());
    let path = dir.path().join("block");
    let features = || {
        let b = std::fs::read(&path).unwrap();
        [b[FEATURES_AT], b[4096 + FEATURES_AT]]
    };
    let before = features()[0];
    assert_eq!(before & VALUE_ROWS, 0);
    assert!(Store::check(dir.path(), &golden()).unwrap().is_clean());
    assert_eq!(features(), [before; 2], "a check changes nothing");
    for _ in 0..2 {
        drop(Store::open(dir.path(), &golden(), nobody()).unwrap());
        assert_eq!(features(), [before | VALUE_ROWS; 2]);
    }
    // What damages one copy is mended by the next open, whichever it is.
    for copy in [0, 4096] {
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[copy + FEATURES_AT] = 0;
        std::fs::write(&path, &bytes).unwrap();
        drop(Store::open(dir.path(), &golden(), nobody()).unwrap());
        assert_eq!(features(), [before | VALUE_ROWS; 2]);
    }
}

/// Wherever the power fails while a store gets its bit: it can be opened, and nothing was written that the bit has to
/// stand for before both copies had it.
#[test]
fn a_cut_while_a_store_gets_a_feature() {
    let old = fresh();
    let file = old.open("block").unwrap();
    let mut block = old.content("block");
    let without = block[FEATURES_AT] & !VALUE_ROWS;
    set_byte(&mut block, FEATURES_AT, without);
    file.write_at(&block[..8192], 0).unwrap();
    file.flush().unwrap();
    drop(file);
    let old = old.copy();
    old.sample_each(1, [1000; 3]);
    drop(open(&old));
    let survivors = old.survivors();
    let has = |b: &[u8], copy: usize| {
        let b = &b[copy * 4096..][..4096];
        let whole = types::checksum::crc32c(!0, &b[..4092]).to_le_bytes() == b[4092..];
        whole.then(|| b[FEATURES_AT] & VALUE_ROWS != 0)
    };
    let (mut halfway, mut lived) = (0, 0);
    for s in survivors {
        let b = s.content("block");
        let copies = [has(&b, 0), has(&b, 1)];
        let log_begun = b[65_536..69_632].iter().any(|b| *b != 0);
        if log_begun {
            assert_eq!(copies, [Some(true); 2]);
        }
        lived += u64::from(log_begun);
        halfway += u64::from(copies[0] != copies[1]);
        drop(open(&s));
        let b = s.content("block");
        assert_eq!([has(&b, 0), has(&b, 1)], [Some(true); 2]);
        check(&s, "a cut at the first open");
    }
    assert!(
        halfway > 0 && lived > 0,
        "{halfway} of them halfway, {lived} lived"
    );
}
