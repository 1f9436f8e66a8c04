//! Bad bits, failing calls, full disks, and directories that are not what they should be: one case each here;
//! in the modules, each of them at every place.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::disallowed_macros)]

#[path = "../common/mod.rs"]
mod common;
mod every_call;
mod flips;
mod full;

use bytes::Bytes;
use common::*;
use io::disk::sim::{Call, SimDisk};
use io::disk::{Disk, Space};
use std::io::ErrorKind;
use std::sync::Arc;
use store::{Algorithm, Compression, Error, Options, Store};
use types::{EVersion, ObjectId, Op, Transaction, Uuid};

fn with(ops: Vec<Op>) -> Transaction {
    Transaction {
        collection: coll(0),
        ops,
    }
}

fn write(oid: &ObjectId, offset: u64, len: usize, v: u8) -> Op {
    Op::Write {
        oid: oid.clone(),
        offset,
        data: Bytes::from(vec![v; len]),
    }
}

/// A store with one collection, durable.
fn started() -> (SimDisk, Store) {
    let disk = fresh();
    let mut store = open(&disk);
    store.queue(Generator::first()).unwrap();
    store.wait(1).unwrap();
    (disk, store)
}

/// Where in the data file the bytes `v` lie (behind the log).
fn find(disk: &SimDisk, v: u8) -> u64 {
    let content = disk.content("block");
    let from = (64 << 10) + (256 << 10);
    let at = content[from..]
        .chunks(4096)
        .position(|b| b.iter().all(|x| *x == v));
    (from + at.expect("the block is on the disk") * 4096) as u64
}

#[test]
fn a_flipped_bit_is_found_and_named() {
    let (disk, mut store) = started();
    let (a, b) = (oid(0), oid(2));
    store
        .queue(with(vec![
            write(&a, 0, 4096, 1),
            write(&a, 4096, 4096, 7),
            write(&b, 0, 4096, 9),
        ]))
        .unwrap();
    store.checkpoint().unwrap();
    disk.flip("block", find(&disk, 7) + 1000, 3);
    match store.read(&a, 0, 8192) {
        Err(Error::Corrupt { object, offset }) => {
            assert_eq!((object, offset), (a.object.to_string(), 4096));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(store.read(&a, 0, 4096).unwrap(), vec![1; 4096]);
    assert_eq!(store.read(&b, 0, 4096).unwrap(), vec![9; 4096]);
    // Part of a bad block cannot be written (the rest is lost), and the refusal leaves no trace.
    let r = store.queue(with(vec![write(&b, 0, 10, 5), write(&a, 4100, 10, 5)]));
    assert!(matches!(r, Err(Error::Corrupt { .. })), "{r:?}");
    assert_eq!(store.read(&b, 0, 4096).unwrap(), vec![9; 4096]);
    // The whole can: this is how a PG repairs it.
    store.queue(with(vec![write(&a, 4096, 4096, 8)])).unwrap();
    assert_eq!(store.read(&a, 4096, 4096).unwrap(), vec![8; 4096]);
    store.close().unwrap();
    check(&disk, "repaired");
    disk.flip("block", find(&disk, 9), 0);
    let report = Store::check_on(Arc::new(disk), &options()).unwrap();
    assert_eq!((report.problem_count, report.objects), (1, 2), "{report:?}");
}

/// A blob is as good as its worst block: all of what it stands for cannot be read, nothing else, and what is written over it is
/// good again.
#[test]
fn a_flipped_bit_in_a_blob_is_found_and_named() {
    for algorithm in Algorithm::ALL {
        let (disk, mut store) = started();
        let (a, b) = (oid(0), oid(2));
        let packed = Compression {
            algorithm,
            min_blob: 8192,
            max_blob: 16_384,
            required_ratio: 0.875,
        };
        let data: Vec<u8> = (0..32_768u32).map(|i| (i / 600) as u8).collect();
        let all = Op::Write {
            oid: a.clone(),
            offset: 0,
            data: data.clone().into(),
        };
        let clone = Op::Clone {
            src: a.clone(),
            dst: b.clone(),
        };
        let before = disk.content("block");
        store
            .queue_compressed(with(vec![all, clone]), Some(packed))
            .unwrap();
        store.checkpoint().unwrap();
        let usage = store.usage()[&1];
        assert_eq!(
            (usage.compressed_allocated, usage.compressed_original),
            (8192, 65_536)
        );
        assert!(usage.allocated == 8192 && usage.compressed < 8192, "{usage:?}");
        // Where the first blob lies: the first data block that changed.
        let from = (64 << 10) + (256 << 10);
        let after = disk.content("block");
        let changed = (from..after.len()).find(|i| before.get(*i) != Some(&after[*i]));
        disk.flip("block", changed.unwrap() as u64 / 4096 * 4096 + 20, 3);
        store.uncache(&a, 0, u64::MAX).unwrap();
        for at in [0, 4096, 12_288] {
            match store.read(&a, at, 100) {
                Err(Error::Corrupt { object, offset }) => {
                    assert_eq!((object, offset), (a.object.to_string(), at));
                }
                other => panic!("{algorithm:?} at {at}: {other:?}"),
            }
        }
        assert_eq!(store.read(&a, 16_384, 16_384).unwrap(), data[16_384..]);
        let report = Store::check_on(Arc::new(disk.copy()), &options()).unwrap();
        assert_eq!((report.problem_count, report.objects), (8, 2), "{report:?}");
        // Written over as a whole it is good again, also by parts; the clone has what it had.
        for at in [0, 4096, 8192] {
            store.queue(with(vec![write(&a, at, 4096, 7)])).unwrap();
        }
        let r = store.queue(with(vec![write(&a, 12_288, 10, 5)]));
        assert!(matches!(r, Err(Error::Corrupt { .. })), "{r:?}");
        store.queue(with(vec![write(&a, 12_288, 4096, 7)])).unwrap();
        assert_eq!(store.read(&a, 0, 16_384).unwrap(), vec![7; 16_384]);
        assert!(store.read(&b, 0, 1).is_err());
        store.queue(with(vec![Op::Remove { oid: b.clone() }])).unwrap();
        store.close().unwrap();
        check(&disk, "repaired");
    }
}

#[test]
fn a_bad_batch_before_good_ones_is_not_cut_off_in_silence() {
    let (disk, mut store) = started();
    for v in 1..6 {
        let seq = store.queue(with(vec![write(&oid(0), 0, 4096, v)])).unwrap();
        store.wait(seq).unwrap();
    }
    drop(store);
    let content = disk.content("block");
    let third = content
        .chunks(4096)
        .position(|b| b[100..].iter().filter(|x| **x == 3).count() > 3000)
        .unwrap();
    disk.flip("block", third as u64 * 4096 + 2000, 1);
    match Store::open_on(Arc::new(disk), &options(), nobody()) {
        Err(Error::LogDamaged { .. }) => {}
        other => panic!("{other:?}"),
    }
}

#[test]
fn either_copy_of_the_superblock_serves() {
    for broken in [0u64, 4096] {
        let disk = fresh();
        disk.flip("block", broken + 40, 0);
        drop(open(&disk));
        // The other one has mended it.
        disk.flip("block", (broken ^ 4096) + 40, 0);
        drop(open(&disk));
        disk.flip("block", 40, 0);
        disk.flip("block", 4096 + 40, 0);
        let r = Store::open_on(Arc::new(disk.clone()), &options(), nobody());
        assert!(matches!(r, Err(Error::NotAStore { .. })), "{r:?}");
        // What a store has lived in is not made anew over a damaged superblock.
        let r = Store::mkfs_on(Arc::new(disk), &options());
        assert!(matches!(r, Err(Error::NotAStore { .. })), "{r:?}");
    }
}

#[test]
fn only_its_own_store_is_opened() {
    let disk = fresh();
    let try_open = |o: Options| Store::open_on(Arc::new(disk.clone()), &o, nobody()).map(drop);
    let other = |f: fn(&mut Options)| {
        let mut o = options();
        f(&mut o);
        o
    };
    let r = try_open(other(|o| o.fsid = Uuid([9; 16])));
    assert!(matches!(r, Err(Error::OtherCluster { .. })), "{r:?}");
    let r = try_open(other(|o| o.osd_id = 4));
    assert!(matches!(r, Err(Error::OtherOsd { .. })), "{r:?}");
    let r = try_open(other(|o| o.osd_uuid = Uuid([9; 16])));
    assert!(matches!(r, Err(Error::OtherOsd { .. })), "{r:?}");
    try_open(other(|o| {
        (o.fsid, o.osd_uuid) = (Uuid::default(), Uuid::default())
    }))
    .unwrap();

    let held = open(&disk);
    let r = try_open(options());
    assert!(matches!(r, Err(Error::Locked { .. })), "{r:?}");
    let r = Store::mkfs_on(Arc::new(disk.clone()), &options());
    assert!(matches!(r, Err(Error::Locked { .. })), "{r:?}");
    drop(held);
    let r = Store::mkfs_on(Arc::new(disk.clone()), &options());
    assert!(matches!(r, Err(Error::AlreadyAStore { .. })), "{r:?}");
    let r = Store::open_on(Arc::new(SimDisk::new()), &options(), nobody());
    assert!(matches!(r, Err(Error::NotAStore { .. })), "{r:?}");
}

#[test]
fn a_newer_format_is_refused() {
    for (at, bit) in [(8, 4), (16, 6)] {
        let disk = fresh();
        let mut sb = disk.content("block")[..4096].to_vec();
        sb[at] ^= 1 << bit;
        let crc = types::checksum::crc32c(!0, &sb[..4092]);
        sb[4092..].copy_from_slice(&crc.to_le_bytes());
        let f = disk.open("block").unwrap();
        f.write_at(&sb, 0).unwrap();
        let r = Store::open_on(Arc::new(disk.clone()), &options(), nobody());
        match at {
            8 => assert!(matches!(r, Err(Error::NewerFormat { .. })), "{r:?}"),
            _ => assert!(matches!(r, Err(Error::UnknownFeatures { .. })), "{r:?}"),
        }
    }
}

#[test]
fn mkfs_cut_short_leaves_no_store_and_can_be_repeated() {
    // Plain, and encrypted; repeated with keys in both cases.
    for options in [options(), with_keys()] {
        mkfs_cut_short(&options);
    }
}

fn mkfs_cut_short(options: &Options) {
    let whole = {
        let disk = SimDisk::new();
        Store::mkfs_on(Arc::new(disk.clone()), options).unwrap();
        disk.calls()
    };
    for cut in 1..=whole {
        let disk = SimDisk::new();
        disk.cut_at(cut);
        assert!(Store::mkfs_on(Arc::new(disk.clone()), options).is_err());
        for seed in 0..4 {
            let s = disk.survivor(seed);
            match Store::open_on(Arc::new(s.clone()), &with_keys(), nobody()) {
                Ok(_) => assert!(cut + 2 >= whole, "a store at call {cut} of {whole}"),
                Err(e) => {
                    assert!(matches!(e, Error::NotAStore { .. }), "{e}");
                    Store::mkfs_on(Arc::new(s.clone()), &with_keys()).unwrap();
                    assert!(s.exists("seal").unwrap(), "call {cut}, seed {seed}");
                    drop(open(&s));
                }
            }
        }
    }
}

#[test]
fn a_full_store_refuses_writes_whole_and_still_deletes() {
    let (disk, mut store) = started();
    let mut model = Model::default().after(&Generator::first()).unwrap();
    let big = |n: u64| {
        let mut o = oid(0);
        o.object.oid = format!("big{n}").into();
        o
    };
    let mut n = 0;
    let mut refused = 0;
    // Small and large by turns, until neither fits.
    while refused < 2 {
        let len = if n % 2 == 0 { 40_960 } else { 4096 * (1 + refused) };
        let t = with(vec![
            Op::SetAttrs {
                oid: big(0),
                attrs: vec![],
            },
            write(&big(n), 0, len, n as u8),
        ]);
        let t = if n == 0 {
            with(vec![write(&big(0), 0, len, 0)])
        } else {
            t
        };
        match store.queue(t.clone()) {
            Ok(_) => model = model.after(&t).unwrap(),
            Err(Error::NoSpace { .. }) => refused += 1,
            Err(e) => panic!("{e}"),
        }
        n += 1;
        store.pump();
    }
    assert!(n > 50, "{n}");
    compare(&store, &model, "full");
    assert!(store.statfs().available < 64 << 10, "{:?}", store.statfs());
    // In place, attributes, log: all still work. Many blocks too, when they have a place already.
    let t = with(vec![
        write(&big(0), 0, 40_960, 99),
        Op::LogAppend {
            version: EVersion::new(1, 1),
            entry: Bytes::from("e"),
        },
        Op::OmapSet {
            oid: big(0),
            entries: vec![(Bytes::from("k"), Bytes::from("v"))],
        },
    ]);
    store.queue(t.clone()).unwrap();
    model = model.after(&t).unwrap();
    for i in (0..n).filter(|i| i % 3 == 1) {
        let t = with(vec![Op::Remove { oid: big(i) }]);
        if store.exists(&big(i)).unwrap() {
            store.queue(t.clone()).unwrap();
            model = model.after(&t).unwrap();
        }
    }
    compare(&store, &model, "after deletes");
    // What was deleted can be written again, though its blocks wait for a checkpoint.
    let t = with(vec![write(&big(1000), 0, 300_000, 5)]);
    for _ in 0..2 {
        store.queue(t.clone()).unwrap();
    }
    model = model.after(&t).unwrap();
    compare(&store, &model, "written again");
    store.close().unwrap();
    check(&disk, "full and emptied");
    compare(&open(&disk), &model, "reopened");
}

#[test]
fn a_host_without_space_stops_growth_but_not_deletes() {
    let disk = fresh();
    let tight = Options {
        host_reserve_bytes: 1 << 20,
        ..options()
    };
    let mut store = Store::open_on(Arc::new(disk.clone()), &tight, nobody()).unwrap();
    store.queue(Generator::first()).unwrap();
    store.queue(with(vec![write(&oid(0), 0, 4096, 1)])).unwrap();
    disk.set_space(Space {
        total: 1 << 30,
        available: 100 << 10,
    });
    store.checkpoint().unwrap();
    let r = store.queue(with(vec![write(&oid(2), 0, 4096, 1)]));
    assert!(matches!(r, Err(Error::NoSpace { .. })), "{r:?}");
    assert_eq!(store.statfs().available, 0, "reports say that it is full");
    store.queue(with(vec![Op::Remove { oid: oid(0) }])).unwrap();
    // Room again, and no checkpoint between that would notice.
    disk.set_space(Space {
        total: 1 << 30,
        available: 100 << 20,
    });
    store.queue(with(vec![write(&oid(2), 0, 4096, 1)])).unwrap();
}

#[test]
fn a_file_that_cannot_grow_is_no_space() {
    let disk = fresh();
    disk.fail(Call::Allocate, "block", 0, ErrorKind::StorageFull);
    let mut store = open(&disk);
    store.queue(Generator::first()).unwrap();
    let r = store.queue(with(vec![write(&oid(0), 0, 4096, 1)]));
    assert!(matches!(r, Err(Error::NoSpace { .. })), "{r:?}");
    disk.heal();
    store.queue(with(vec![write(&oid(0), 0, 4096, 1)])).unwrap();
    assert!(store.failed().is_none());
}

#[test]
fn a_read_error_is_an_error_and_no_more() {
    let (disk, mut store) = started();
    store.queue(with(vec![write(&oid(0), 0, 4096, 1)])).unwrap();
    store.checkpoint().unwrap();
    disk.fail(Call::Read, "block", 0, ErrorKind::Other);
    assert!(matches!(store.read(&oid(0), 0, 10), Err(Error::Io { .. })));
    disk.heal();
    assert_eq!(store.read(&oid(0), 0, 10).unwrap(), vec![1; 10]);
    assert!(store.failed().is_none());
}

#[test]
fn bounds_are_refused() {
    let (_, mut store) = started();
    let o = oid(0);
    let long = Bytes::from(vec![b'x'; 5000]);
    let mut named = o.clone();
    named.object.oid = long.clone();
    let cases = vec![
        Op::Touch { oid: named },
        Op::Truncate {
            oid: o.clone(),
            size: u64::MAX,
        },
        Op::Write {
            oid: o.clone(),
            offset: u64::MAX - 10,
            data: long.clone(),
        },
        Op::Zero {
            oid: o.clone(),
            offset: 5,
            len: u64::MAX,
        },
        Op::SetAttrs {
            oid: o.clone(),
            attrs: vec![(long.clone(), long.clone())],
        },
        Op::CloneRange {
            src: o.clone(),
            dst: o.clone(),
            src_offset: 1,
            len: u64::MAX,
            dst_offset: 0,
        },
        Op::SetMeta {
            meta: Bytes::from(vec![0; 70_000]),
        },
        Op::Touch {
            oid: ObjectId::replicated(types::HObject::max()),
        },
    ];
    store.queue(with(vec![write(&o, 0, 10, 1)])).unwrap();
    for op in cases {
        let text = format!("{op:?}").chars().take(60).collect::<String>();
        let r = store.queue(with(vec![op]));
        assert!(matches!(r, Err(Error::TooBig { .. })), "{text}: {r:?}");
    }
    let absent = oid(2);
    let r = store.queue(with(vec![Op::Remove { oid: absent.clone() }]));
    assert!(matches!(r, Err(Error::NoObject(_))), "{r:?}");
    assert!(matches!(store.read(&absent, 0, 1), Err(Error::NoObject(_))));
    let mut t = with(vec![Op::Touch { oid: absent }]);
    t.collection = coll(77);
    assert!(matches!(store.queue(t), Err(Error::NoCollection(_))));
    assert_eq!(store.read(&o, 0, 100).unwrap(), vec![1; 10]);
}

#[test]
fn a_failed_flush_stops_the_store_for_good() {
    for (call, after) in [
        (Call::Flush, 0),
        (Call::Flush, 3),
        (Call::Write, 0),
        (Call::Write, 5),
    ] {
        let disk = fresh();
        let mut store = open(&disk);
        let mut g = Generator::new(9);
        let mut history = vec![Model::default()];
        store.queue(Generator::first()).unwrap();
        history.push(Model::default().after(&Generator::first()).unwrap());
        store.wait(1).unwrap();
        disk.fail(call, "block", after, ErrorKind::Other);
        let mut failed = false;
        for _ in 0..200 {
            let t = g.transaction();
            let next = history.last().unwrap().after(&t);
            match store.queue(t) {
                Ok(_) => history.push(next.unwrap()),
                Err(store::Error::Stopped(_)) => failed = true,
                Err(e) => assert!(e.is_refusal(), "{e}"),
            }
            store.pump();
        }
        assert!(failed && store.failed().is_some(), "{call:?} after {after}");
        let acked = store.durable();
        disk.heal();
        let mut refused = Transaction::new(coll(0));
        refused.ops.push(Op::Touch { oid: oid(0) });
        assert!(
            matches!(store.queue(refused), Err(store::Error::Stopped(_))),
            "never retried"
        );
        assert_eq!(store.durable(), acked);
        drop(store);
        for seed in 0..10 {
            let s = disk.survivor(seed);
            let store = open(&s);
            let k = store.queued();
            assert!(k >= acked);
            compare(&store, &history[k as usize], "after EIO");
        }
    }
}

/// Faults in the index stop the store as well.
#[test]
fn a_failed_index_commit_stops_the_store() {
    for call in [Call::Write, Call::Flush] {
        let disk = fresh();
        let mut store = open(&disk);
        store.queue(Generator::first()).unwrap();
        store.wait(1).unwrap();
        disk.fail(call, "index", 0, ErrorKind::Other);
        assert!(store.checkpoint().is_err());
        assert!(store.failed().is_some());
        drop(store);
        for seed in 0..10 {
            let s = disk.survivor(seed);
            let store = open(&s);
            assert_eq!((store.queued(), store.collections()), (1, vec![coll(0)]));
        }
    }
}
