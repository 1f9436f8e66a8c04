//! Random writes, snapshots, removals and restarts against a reference model: data of every head and of every
//! snapshot, overlaps that tell the truth, statistics that equal a recount.

use super::*;
use crate::state::snapset::SnapSet;
use proptest::prelude::*;
use std::collections::BTreeMap;

#[derive(Debug, Clone)]
pub(super) enum Step {
    Write(usize, u64, u8, u8),
    WriteFull(usize, u8),
    Truncate(usize, u64),
    Zero(usize, u64, u64),
    Delete(usize),
    Recreate(usize),
    Rollback(usize, usize),
    Copy(usize, usize),
    Snap,
    RemoveSnap(usize),
    Restart,
}

pub(super) fn step() -> impl Strategy<Value = Step> {
    let o = 0..3usize;
    prop_oneof![
        4 => (o.clone(), 0..40u64, 1..20u8, any::<u8>()).prop_map(|(o, at, n, v)| Step::Write(o, at, n, v)),
        1 => (o.clone(), 0..30u8).prop_map(|(o, n)| Step::WriteFull(o, n)),
        1 => (o.clone(), 0..50u64).prop_map(|(o, n)| Step::Truncate(o, n)),
        1 => (o.clone(), 0..50u64, 0..50u64).prop_map(|(o, at, n)| Step::Zero(o, at, n)),
        1 => o.clone().prop_map(Step::Delete),
        1 => o.clone().prop_map(Step::Recreate),
        1 => (o.clone(), 0..6usize).prop_map(|(o, s)| Step::Rollback(o, s)),
        1 => (o.clone(), o).prop_map(|(a, b)| Step::Copy(a, b)),
        2 => Just(Step::Snap),
        1 => (0..6usize).prop_map(Step::RemoveSnap),
        1 => Just(Step::Restart),
    ]
}

type Content = Option<Vec<u8>>;

#[derive(Default)]
pub(super) struct Model {
    heads: [Content; 3],
    /// Live snapshots and what every object was then.
    snaps: BTreeMap<u64, [Content; 3]>,
    seq: u64,
    removed: SnapIntervals,
}

fn name(o: usize) -> String {
    format!("object-{o}")
}

pub(super) fn apply(m: &mut Model, rig: &mut Rig, s: &Step) {
    rig.snapc = (m.seq, m.snaps.keys().rev().copied().collect());
    let nth = |m: &Model, n: usize| m.snaps.keys().nth(n).copied();
    match s {
        Step::Write(o, at, n, v) => {
            let data = vec![*v; *n as usize];
            let h = m.heads[*o].get_or_insert_default();
            let (at, end) = (*at as usize, *at as usize + data.len());
            h.resize(h.len().max(end), 0);
            h[at..end].copy_from_slice(&data);
            assert_eq!(rig.one(&name(*o), write(at as u64, &data)), 0);
        }
        Step::WriteFull(o, n) => {
            m.heads[*o] = Some(vec![7; *n as usize]);
            assert_eq!(rig.one(&name(*o), write_full(&vec![7; *n as usize])), 0);
        }
        Step::Truncate(o, n) => {
            if let Some(h) = &mut m.heads[*o] {
                h.resize(*n as usize, 0);
            }
            assert_eq!(rig.one(&name(*o), OsdOp::ranged(code::TRUNCATE, *n, 0)), 0);
        }
        Step::Zero(o, at, n) => {
            if let Some(h) = &mut m.heads[*o] {
                let (at, end) = (*at as usize, (at + n) as usize);
                if *n > 0 && at < h.len() {
                    if end >= h.len() {
                        h.truncate(at);
                    } else {
                        h[at..end].fill(0);
                    }
                }
            }
            assert_eq!(rig.one(&name(*o), OsdOp::ranged(code::ZERO, *at, *n)), 0);
        }
        Step::Delete(o) => {
            let want = if m.heads[*o].take().is_some() { 0 } else { -2 };
            assert_eq!(rig.one(&name(*o), op(code::DELETE)), want);
        }
        Step::Recreate(o) => {
            m.heads[*o] = Some(b"new".to_vec());
            let r = rig.run(
                &name(*o),
                vec![op(code::DELETE).with_flags(2), excl(), append(b"new")],
            );
            assert_eq!(r.result, 0);
        }
        Step::Rollback(o, n) => {
            let Some(s) = nth(m, *n) else { return };
            m.heads[*o] = m.snaps[&s][*o].clone();
            assert_eq!(rig.one(&name(*o), op(code::ROLLBACK).with_first_u64(s)), 0);
        }
        Step::Copy(a, b) => copy(m, rig, *a, *b),
        Step::Snap => {
            m.seq += 1;
            m.snaps.insert(m.seq, m.heads.clone());
        }
        Step::RemoveSnap(n) => {
            let Some(s) = nth(m, *n) else { return };
            m.snaps.remove(&s);
            m.removed.insert(s, s + 1);
            rig.set_pool(PoolView {
                removed_snaps: m.removed.clone(),
                ..pool()
            });
            assert_eq!(rig.data(&name(0), s), None, "gone before it is trimmed");
        }
        Step::Restart => rig.restart(),
    }
}

fn copy(m: &mut Model, rig: &mut Rig, from: usize, to: usize) {
    let mut w = denc::Writer::new();
    w.string(&name(from));
    w.put(&ObjectLocator {
        pool: POOL,
        key: Bytes::new(),
        nspace: Bytes::new(),
        hash: -1,
    });
    let arg = messages::osd::CopyFromArg {
        snap: NOSNAP,
        ..Default::default()
    };
    let o = op(code::COPY_FROM).with_copy_from(arg).with_data(w.finish());
    let want = match (&m.heads[from], from == to) {
        (_, true) => -22,
        (None, _) => -2,
        (Some(h), _) => {
            m.heads[to] = Some(h.clone());
            0
        }
    };
    assert_eq!(rig.one(&name(to), o), want);
}

pub(super) fn verify(m: &Model, rig: &mut Rig) {
    for o in 0..3 {
        let got = rig.data(&name(o), NOSNAP).map(|d| d.to_vec());
        assert_eq!(got, m.heads[o], "head {o}");
        for (s, then) in &m.snaps {
            let got = rig.data(&name(o), *s).map(|d| d.to_vec());
            assert_eq!(got, then[o], "object {o} at snapshot {s}");
        }
        // Of shards no one store holds the data.
        if rig.far.is_none() {
            overlaps_are_true(rig, o);
        }
    }
    let s = rig.pg.stats();
    let counted = rig.count_objects();
    assert_eq!(
        (s.objects, s.bytes, s.clones, s.whiteouts),
        (counted.objects, counted.bytes, counted.clones, counted.whiteouts)
    );
    assert_eq!(rig.store.object_count() as i64, s.objects);
}

/// What a clone claims to share with the next newer version is equal there.
fn overlaps_are_true(rig: &mut Rig, o: usize) {
    let head = HObject::new(
        POOL,
        hash(name(o).as_bytes()),
        Bytes::new(),
        Bytes::new(),
        name(o).into(),
        NOSNAP,
    );
    let oid = ObjectId::replicated(head.clone());
    let Some(bytes) = ObjectReads::attr(&mut rig.store, &oid, b"s").unwrap() else {
        return;
    };
    let set: SnapSet = denc::Decode::from_bytes(&bytes).unwrap();
    let mut whole = |snap| {
        let id = ObjectId::replicated(head.with_snap(snap));
        ObjectReads::read(&mut rig.store, &id, 0, 1 << 20).unwrap()
    };
    for (i, c) in set.clones.iter().enumerate() {
        let newer = whole(set.clones.get(i + 1).map_or(NOSNAP, |n| n.id));
        let data = whole(c.id);
        assert_eq!(data.len() as u64, c.size);
        for (first, end) in c.overlap.intervals() {
            let r = *first as usize..*end as usize;
            assert_eq!(data[r.clone()], newer[r], "overlap of clone {}", c.id);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn heads_snapshots_and_statistics_are_the_models(
        steps in proptest::collection::vec(step(), 1..40),
        cold in proptest::option::of(0..4u64),
    ) {
        let (mut m, mut rig) = (Model::default(), Rig::new());
        if let Some(lucky) = cold {
            rig.cool_down(lucky);
        }
        for s in &steps {
            let before = rig.store.cold.as_ref().map_or(0, |c| c.blocked);
            apply(&mut m, &mut rig, s);
            if cold == Some(0) {
                prop_assert_eq!(rig.cold().blocked, before, "{:?} read what it had not asked for", s);
            }
            prop_assert!(rig.store.cold.as_ref().is_none_or(|c| c.held() == 0));
            verify(&m, &mut rig);
        }
        rig.settle(20);
        assert!(rig.pg.next_timer().is_none(), "trimming ends");
        verify(&m, &mut rig);
        rig.restart();
        assert!(rig.pg.next_timer().is_none(), "and stays done");
        verify(&m, &mut rig);
        // With all snapshots removed no clone and no whiteout is left.
        rig.set_pool(PoolView { removed_snaps: SnapIntervals::range(1, m.seq + 1), ..pool() });
        rig.settle(20);
        let s = rig.pg.stats();
        prop_assert_eq!((s.clones, s.whiteouts), (0, 0));
    }
}
