//! No space: at every allocation in turn, on a store filled to its last block, and with the host's free space
//! shrinking and growing under it.
//!
//! What must hold: a write is done whole or refused whole with `NoSpace`; the store goes on; deletes, trims
//! and overwrites in place always work; what was deleted can be written again.

use crate::common::*;
use bytes::Bytes;
use io::disk::Space;
use io::disk::sim::{Call, Dice, SimDisk};
use std::io::ErrorKind;
use store::{Error, Store};
use types::{EVersion, ObjectId, Op, Transaction};

fn named(n: u64) -> ObjectId {
    let mut o = oid(0);
    o.object.oid = format!("full{n}").into();
    o.object.hash = (n as u32).wrapping_mul(0x85eb_ca6b);
    o
}

fn with(op: Op) -> Transaction {
    Transaction {
        collection: coll(0),
        ops: vec![op],
    }
}

fn write(n: u64, offset: u64, len: usize) -> Transaction {
    with(Op::Write {
        oid: named(n),
        offset,
        data: Bytes::from(vec![n as u8 | 1; len]),
    })
}

/// Queues; the store and the model must agree, but that `NoSpace` is allowed. True: done.
fn queue(store: &mut Store, model: &mut Model, t: Transaction) -> bool {
    match (store.queue(t.clone()), model.after(&t)) {
        (Ok(_), Some(m)) => {
            *model = m;
            true
        }
        (Err(Error::NoSpace { .. }), Some(_)) => false,
        (Err(e), None) if e.is_refusal() => false,
        (r, m) => panic!("{r:?}, the model says {}", m.is_some()),
    }
}

/// As `queue`, for what must always work.
fn must(store: &mut Store, model: &mut Model, t: Transaction) {
    let next = model.after(&t).unwrap();
    if let Err(e) = store.queue(t.clone()) {
        panic!("{e}: {:?}", t.ops[0]);
    }
    *model = next;
}

fn begun(disk: &SimDisk) -> (Store, Model) {
    let mut store = open(disk);
    let mut model = Model::default();
    must(&mut store, &mut model, Generator::first());
    (store, model)
}

#[test]
fn every_allocation_in_turn_finds_no_space() {
    for times in [1, u64::MAX] {
        for n in 0.. {
            let disk = fresh();
            disk.fail_times(Call::Allocate, "block", n, times, ErrorKind::StorageFull);
            let (mut store, mut model) = begun(&disk);
            for i in 0..60 {
                queue(
                    &mut store,
                    &mut model,
                    write(i, 0, 20_000 + (i as usize % 3) * 20_000),
                );
                store.pump();
            }
            let what = format!("allocation {n} fails {times} times");
            assert!(store.failed().is_none(), "{what}: {:?}", store.failed());
            compare(&store, &model, &what);
            let hit = disk.failures() > 0;
            disk.heal();
            must(&mut store, &mut model, write(1000, 0, 4096));
            store.close().unwrap();
            check(&disk, &what);
            compare(&open(&disk), &model, &what);
            if !hit {
                assert!(n >= 3, "only {n} allocations");
                break;
            }
        }
    }
}

/// Fills with pieces that get smaller, until not one block fits.
fn fill(store: &mut Store, model: &mut Model, next: &mut u64) {
    for len in [200_000, 40_960, 8192, 4096] {
        loop {
            *next += 1;
            if !queue(store, model, write(*next, 0, len)) {
                break;
            }
            if *next % 3 == 0 {
                store.pump();
            }
        }
    }
}

#[test]
fn filled_to_the_last_block_and_emptied_again_and_again() {
    let disk = fresh();
    let (mut store, mut model) = begun(&disk);
    let (mut next, mut version, mut dice) = (0, 0, Dice::new(4));
    let mut stored = Vec::new();
    for round in 0..6 {
        fill(&mut store, &mut model, &mut next);
        let what = format!("full, round {round}");
        compare(&store, &model, &what);
        assert_eq!(store.statfs().available, 0, "{what}: {:?}", store.statfs());
        stored.push(store.statfs().stored);
        let names: Vec<ObjectId> = model.objects.keys().cloned().collect();
        // Overwriting in place, log and trim, attributes and omap on a full store.
        for _ in 0..100 {
            let oid = names[dice.below(names.len() as u64) as usize].clone();
            let data = Bytes::from(vec![round as u8; 3000]);
            must(
                &mut store,
                &mut model,
                with(Op::Write {
                    oid: oid.clone(),
                    offset: 0,
                    data,
                }),
            );
            version += 1;
            let entry = Bytes::from(vec![1; 50]);
            let version = EVersion::new(1, version);
            must(&mut store, &mut model, with(Op::LogAppend { version, entry }));
            must(&mut store, &mut model, with(Op::LogTrim { to: version }));
            let entries = vec![(Bytes::from("k"), Bytes::from("v"))];
            must(&mut store, &mut model, with(Op::OmapSet { oid, entries }));
        }
        // Copies that share blocks, then zeros and truncations that must copy some of them.
        let (src, dst) = (names[0].clone(), named(1_000_000 + round));
        must(
            &mut store,
            &mut model,
            with(Op::Clone {
                src: src.clone(),
                dst,
            }),
        );
        must(
            &mut store,
            &mut model,
            with(Op::Zero {
                oid: src.clone(),
                offset: 100,
                len: 50,
            }),
        );
        must(&mut store, &mut model, with(Op::Truncate { oid: src, size: 50 }));
        for oid in names {
            if dice.below(4) > 0 {
                must(&mut store, &mut model, with(Op::Remove { oid }));
            }
        }
        compare(&store, &model, &what);
        if round % 2 == 1 {
            store.wait(store.queued()).unwrap();
            drop(store);
            check(&disk, &what);
            store = open(&disk);
        }
    }
    let (least, most) = (stored.iter().min().unwrap(), stored.iter().max().unwrap());
    println!("full with {stored:?} bytes");
    assert!(most - least < 64 << 10, "what is deleted comes back: {stored:?}");
    store.close().unwrap();
    check(&disk, "at the end");
}

#[test]
fn the_hosts_free_space_shrinks_and_grows() {
    let disk = fresh();
    let limits = store::Options {
        host_reserve_bytes: 512 << 10,
        max_bytes: None,
        ..options()
    };
    let set = |available: u64| {
        disk.set_space(Space {
            total: 1 << 30,
            available,
        });
    };
    set(8 << 20);
    let mut store = Store::open_on(std::sync::Arc::new(disk.clone()), &limits, nobody()).unwrap();
    let mut model = Model::default();
    must(&mut store, &mut model, Generator::first());
    let mut dice = Dice::new(9);
    let (mut done, mut refused) = (0, 0);
    for n in 0..600u64 {
        if n % 10 == 0 {
            set(dice.below(3) * dice.below(2 << 20));
        }
        match dice.below(4) {
            0 => {
                if let Some(oid) = model.objects.keys().nth(dice.below(20) as usize).cloned() {
                    must(&mut store, &mut model, with(Op::Remove { oid }));
                }
            }
            _ => match queue(
                &mut store,
                &mut model,
                write(n, 0, 1 + dice.below(60_000) as usize),
            ) {
                true => done += 1,
                false => refused += 1,
            },
        }
        if dice.below(3) == 0 {
            store.pump();
        }
        if n % 50 == 0 {
            compare(&store, &model, &format!("step {n}"));
            store.tick(std::time::Duration::from_secs(n));
        }
    }
    assert!(
        store.failed().is_none() && done > 50 && refused > 50,
        "{done} done, {refused} refused"
    );
    set(1 << 30);
    must(&mut store, &mut model, write(10_000, 0, 100_000));
    store.close().unwrap();
    check(&disk, "at the end");
    compare(&open(&disk), &model, "reopened");
}
