//! Two PGs of one disk become one.

use super::*;
use crate::pool::{PgJoined, PgLife};
use crate::state::meta::PgMeta;
use denc::Decode;
use std::collections::BTreeMap;
use std::sync::Arc;
use types::{EVersion, Epoch};

const MERGED: Epoch = 1000;
const OBJECTS: u64 = 60;

fn id(seed: u32) -> SPgId {
    SPgId::replicated(PgId::new(POOL, seed))
}

/// A pool of two PGs, with what was written to both, and a request to each that failed.
struct Two {
    rig: Rig,
    sent: Vec<messages::osd::MOSDOp>,
    joined: PgJoined,
}

fn two() -> Two {
    let mut rig = Rig::new();
    for n in 0..OBJECTS {
        rig.run(&format!("o{n}"), vec![write_full(b"12")]);
    }
    let grown = PoolView { pg_num: 2, ..pool() };
    rig.set_pool(grown.clone());
    let child = Pg::load(id(1), Arc::new(grown), &mut rig.store, rig.now).unwrap();
    let of = |seed| {
        let names = (0..OBJECTS).map(|n| format!("o{n}"));
        let mut its = names.filter(move |o| seed_of(hash(o.as_bytes()), 2) == seed);
        its.next_back().unwrap()
    };
    let mut sent = Vec::new();
    let mut heads = Vec::new();
    let mut pgs = [Some(child), None];
    for seed in [0, 1] {
        if seed == 1 {
            pgs[1] = Some(std::mem::replace(&mut rig.pg, pgs[0].take().unwrap()));
        }
        // One more to the second, so that the two logs do not end alike.
        for _ in 0..seed {
            let mut m = rig.request(&of(seed), vec![excl()]);
            m.pgid = id(seed);
            assert_eq!(rig.answer(m).result, -17);
        }
        let mut m = rig.request(&of(seed), vec![excl()]);
        m.pgid = id(seed);
        assert_eq!(rig.answer(m.clone()).result, -17);
        sent.push(m);
        heads.push(rig.pg.state.log.head());
    }
    assert_ne!(heads[0], heads[1]);
    let joined = PgJoined {
        source: 1,
        source_head: heads[1],
        target_head: heads[0],
        source_life: 0,
        target_life: 0,
        members: vec![0],
    };
    Two { rig, sent, joined }
}

fn merged_pool(joined: &PgJoined) -> Arc<PoolView> {
    let life = PgLife {
        epoch: MERGED,
        joined: Some(joined.clone()),
    };
    Arc::new(PoolView {
        epoch: MERGED,
        pg_num: 1,
        lives: Arc::new(BTreeMap::from([(0, life)])),
        ..pool()
    })
}

fn meta_of(store: &mut MemoryStore, seed: u32) -> Option<PgMeta> {
    let raw = store.meta(id(seed)).unwrap()?;
    Some(PgMeta::from_bytes(&raw).unwrap())
}

#[test]
fn what_is_sent_again_is_known_and_versions_go_on() {
    let Two {
        mut rig,
        sent,
        joined,
    } = two();
    let view = merged_pool(&joined);
    crate::bring_to_life(id(0), &view, 0, &mut rig.store).unwrap();
    rig.pg = Pg::load(id(0), view.clone(), &mut rig.store, rig.now).unwrap();
    assert_eq!(rig.pg.stats().objects, OBJECTS as i64);
    assert_eq!(rig.pg.stats().bytes, 2 * OBJECTS as i64);
    assert!(rig.pg.count.is_none(), "both were counted");
    let len = rig.pg.log_len();
    for mut m in sent {
        m.pgid = id(0);
        assert_eq!(rig.answer(m).result, -17);
    }
    assert_eq!(rig.pg.log_len(), len, "nothing was executed again");
    let head = rig.pg.state.log.head();
    assert_eq!(head.epoch, MERGED);
    rig.run("o1", vec![append(b"3")]);
    assert!(rig.pg.state.log.head() > head);
    // Once more nothing happens.
    let before = rig.store.seq;
    crate::bring_to_life(id(0), &view, 0, &mut rig.store).unwrap();
    assert_eq!(rig.store.seq, before);
}

#[test]
fn one_who_remembers_less_comes_to_the_same_entries_and_a_crash_to_the_same_log() {
    let Two { rig, joined, .. } = two();
    let view = merged_pool(&joined);
    let log = |store: &mut MemoryStore| store.log_entries(id(0)).unwrap();
    let mut whole = rig.store.clone();
    crate::bring_to_life(id(0), &view, 0, &mut whole).unwrap();
    let all = log(&mut whole);
    assert!(all.iter().all(|(v, _)| v.epoch == MERGED) && all.len() as u64 > OBJECTS);

    let mut cut = rig.store.clone();
    cut.refuse_from = Some(cut.seq);
    assert!(crate::bring_to_life(id(0), &view, 0, &mut cut).is_err());
    cut.refuse_from = None;
    // As if a first step had been durable.
    let mut txn = Transaction::new(id(0));
    let first = all[..3].iter().cloned();
    txn.ops
        .extend(first.map(|(version, entry)| Op::LogAppend { version, entry }));
    cut.submit(&txn).unwrap();
    crate::bring_to_life(id(0), &view, 0, &mut cut).unwrap();
    assert_eq!(log(&mut cut), all);

    let mut short = rig.store.clone();
    let first = short.log_entries(id(1)).unwrap()[4].0;
    let mut txn = Transaction::new(id(1));
    txn.ops.push(Op::LogTrim { to: first });
    short.submit(&txn).unwrap();
    crate::bring_to_life(id(0), &view, 0, &mut short).unwrap();
    let found = log(&mut short);
    assert!(found.len() < all.len());
    assert!(found.iter().all(|e| all.contains(e)));
}

#[test]
fn a_copy_that_is_not_what_was_merged_counts_as_incomplete() {
    let Two { rig, joined, .. } = two();
    let behind = |e: EVersion| EVersion::new(e.epoch, e.version + 1);
    let cases = [
        PgJoined {
            source_head: behind(joined.source_head),
            ..joined.clone()
        },
        PgJoined {
            target_head: behind(joined.target_head),
            ..joined.clone()
        },
        PgJoined {
            source_life: 7,
            ..joined.clone()
        },
        PgJoined {
            target_life: 7,
            ..joined.clone()
        },
        PgJoined {
            members: vec![1, 2],
            ..joined.clone()
        },
    ];
    for case in cases {
        let mut store = rig.store.clone();
        crate::bring_to_life(id(0), &merged_pool(&case), 0, &mut store).unwrap();
        let meta = meta_of(&mut store, 0).unwrap();
        assert!(!meta.complete && meta.life == MERGED, "{case:?}");
        assert!(store.log_entries(id(0)).unwrap().is_empty());
    }
}

#[test]
fn what_an_earlier_group_of_this_id_left_is_given_up() {
    let Two { mut rig, .. } = two();
    let life = PgLife {
        epoch: MERGED,
        joined: None,
    };
    let view = PoolView {
        pg_num: 2,
        lives: Arc::new(BTreeMap::from([(1, life)])),
        ..pool()
    };
    crate::bring_to_life(id(1), &view, 0, &mut rig.store).unwrap();
    assert!(meta_of(&mut rig.store, 1).is_none() && meta_of(&mut rig.store, 0).is_some());
    let born = Pg::load(id(1), Arc::new(view), &mut rig.store, rig.now).unwrap();
    assert_eq!(born.state.meta.life, MERGED);
}
