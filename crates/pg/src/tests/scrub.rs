//! Damaged copies: read repair, scrub, repair; on the small cluster of `replication`.

use super::replication::{Cluster, Role, in_turn};
use super::*;
use crate::backend::findings::{object_error, shard_error};
use crate::backend::pull_turns::TURNS_MAX;
use crate::broken::{self, Rule};
use messages::osd::peer::PeerBody;
use messages::osd::peer_scrub::ScrubBody;

pub(super) fn oid(name: &str) -> ObjectId {
    ObjectId::replicated(HObject::new(
        POOL,
        hash(name.as_bytes()),
        Bytes::new(),
        Bytes::new(),
        Bytes::copy_from_slice(name.as_bytes()),
        NOSNAP,
    ))
}

pub(super) fn cluster() -> Cluster {
    let mut c = Cluster::new(3, 3, 2);
    c.run(in_turn(), 300);
    assert!(c.pg().is_active());
    c
}

pub(super) fn done(c: &mut Cluster, name: &str, ops: Vec<OsdOp>) -> MOSDOpReply {
    let tid = c.send(name, ops);
    c.run(in_turn(), 300);
    c.answered(tid).expect("an answer").clone()
}

pub(super) fn store(c: &mut Cluster, osd: i32) -> &mut crate::memory::MemoryStore {
    &mut c.nodes[osd as usize].store
}

pub(super) fn scrub(c: &mut Cluster, deep: bool, repair: bool) -> ScrubResult {
    let before = c.scrubs.len();
    c.input(c.group.primary, Input::Scrub(ScrubOrder { deep, repair }));
    c.run(in_turn(), 1500);
    assert_eq!(c.scrubs.len(), before + 1, "it ended");
    c.scrubs[before]
}

fn data(n: u8, len: usize) -> Vec<u8> {
    (0..len)
        .map(|i| (i as u8).wrapping_mul(n).wrapping_add(n))
        .collect()
}

#[test]
fn a_damaged_object_is_read_all_the_same_and_is_whole_after() {
    let mut c = cluster();
    done(
        &mut c,
        "a",
        vec![write_full(&data(3, 20_000)), omap_set(&[("k", "v")])],
    );
    store(&mut c, 0).spoil(&oid("a"), 9000);
    assert!(store(&mut c, 0).read(&oid("a"), 0, 20_000).is_err());
    let r = done(&mut c, "a", vec![read(0, 0)]);
    assert_eq!((r.result, &r.ops[0].outdata[..]), (0, &data(3, 20_000)[..]));
    c.check_equal();
    assert_eq!(c.pg().scrub_view().repaired, 1);
    assert!(c.pg().front.is_at_rest());
}

/// The rule that the simulation can break is the one that this stands on.
#[test]
fn without_read_repair_a_client_sees_the_damage() {
    let mut c = cluster();
    done(&mut c, "a", vec![write_full(&data(3, 20_000))]);
    store(&mut c, 0).spoil(&oid("a"), 0);
    broken::set(Some(Rule::ReadRepair));
    let r = done(&mut c, "a", vec![read(0, 0)]);
    broken::set(None);
    assert_eq!(r.result, -5);
}

#[test]
fn a_write_into_a_damaged_block_repairs_it_first() {
    let mut c = cluster();
    done(&mut c, "a", vec![write_full(&data(3, 20_000))]);
    store(&mut c, 0).spoil(&oid("a"), 4096);
    assert_eq!(done(&mut c, "a", vec![write(5000, b"new")]).result, 0);
    let mut want = data(3, 20_000);
    want[5000..5003].copy_from_slice(b"new");
    assert_eq!(&done(&mut c, "a", vec![read(0, 0)]).ops[0].outdata[..], &want[..]);
    c.check_equal();
}

/// Other PGs of the OSD have all the turns: it waits for one, and gives its own back.
#[test]
fn a_repair_waits_for_its_turn_among_the_pgs_of_an_osd() {
    let mut c = cluster();
    let turns = crate::PullTurns::default();
    if let Role::Primary(pg) = &mut c.nodes[0].role {
        pg.share_pull_turns(turns.clone());
    }
    for len in [20_000, 200_000] {
        // The second is made in pieces.
        done(&mut c, "a", vec![write_full(&data(3, len))]);
        store(&mut c, 0).spoil(&oid("a"), 9000);
        let held: Vec<_> = std::iter::from_fn(|| turns.take()).collect();
        assert!(held.len() > 1, "and not more than there are");
        let tid = c.send("a", vec![read(0, 0)]);
        c.run(in_turn(), 300);
        assert!(c.answered(tid).is_none(), "it waits");
        drop(held);
        c.run(in_turn(), 3000);
        let r = c
            .answered(tid)
            .unwrap_or_else(|| panic!("no answer, {len} bytes"));
        assert_eq!((r.result, &r.ops[0].outdata[..]), (0, &data(3, len)[..]));
        c.check_equal();
        let free: Vec<_> = std::iter::from_fn(|| turns.take()).collect();
        assert_eq!(free.len(), TURNS_MAX, "all are back");
    }
}

/// Another OSD copies the object, from a disk that is read at once.
#[test]
fn an_export_that_meets_damage_has_it_repaired() {
    let mut c = cluster();
    done(&mut c, "a", vec![write_full(&data(3, 20_000))]);
    store(&mut c, 0).spoil(&oid("a"), 0);
    let object = oid("a").object;
    c.input(0, Input::Export { token: 1, object });
    c.run(in_turn(), 300);
    assert_eq!(c.pg().scrub_view().repaired, 1);
    let r = done(&mut c, "a", vec![read(0, 0)]);
    assert_eq!((r.result, &r.ops[0].outdata[..]), (0, &data(3, 20_000)[..]));
    c.check_equal();
    assert!(c.pg().front.is_at_rest());
}

/// One copy has an object that the log says was removed: it does not come back, and that copy is told of.
#[test]
fn what_was_removed_is_not_fetched_from_a_copy_that_has_it_still() {
    for len in [5_000, 150_000] {
        let mut c = cluster();
        done(&mut c, "a", vec![write_full(&data(3, len))]);
        let attrs = store(&mut c, 1).attrs(&oid("a")).unwrap();
        done(&mut c, "a", vec![op(code::DELETE)]);
        let mut txn = Transaction::new(c.pg().id());
        txn.ops.push(types::Op::Touch { oid: oid("a") });
        txn.ops.push(types::Op::Write {
            oid: oid("a"),
            offset: 0,
            data: data(3, len).into(),
        });
        txn.ops.push(types::Op::SetAttrs { oid: oid("a"), attrs });
        store(&mut c, 1).submit(&txn).unwrap();
        let r = scrub(&mut c, true, true);
        assert_eq!((r.errors, r.fixed), (2, 0));
        for osd in [0, 2] {
            assert!(store(&mut c, osd).stat(&oid("a")).unwrap().is_none(), "osd.{osd}");
        }
        assert_eq!(done(&mut c, "a", vec![read(0, 0)]).result, -2);
        assert!(c.pg().front.is_at_rest());
    }
}

/// A head that was removed and has clones is there, and comes back as such.
#[test]
fn a_whiteout_is_fetched() {
    let mut c = cluster();
    done(&mut c, "a", vec![write_full(&data(3, 5_000))]);
    c.snapc = (1, vec![1]);
    done(&mut c, "a", vec![op(code::DELETE)]);
    assert!(store(&mut c, 0).stat(&oid("a")).unwrap().is_some());
    store(&mut c, 0).lose(&oid("a"));
    let r = scrub(&mut c, true, true);
    assert_eq!((r.errors, r.fixed), (1, 1));
    c.check_equal();
}

/// Nobody's log knows a clone: one that was trimmed while it was on its way is not taken.
#[test]
fn a_clone_that_is_trimmed_meanwhile_does_not_come_back() {
    let mut c = cluster();
    done(&mut c, "a", vec![write_full(&data(3, 9_000))]);
    c.snapc = (1, vec![1]);
    done(&mut c, "a", vec![write(0, b"new")]);
    let clone = ObjectId::replicated(oid("a").object.with_snap(1));
    // No copy is whole: version by version.
    store(&mut c, 0).spoil(&clone, 4096);
    store(&mut c, 1).spoil(&oid("a"), 4096);
    store(&mut c, 2).spoil(&oid("a"), 8192);
    let order = ScrubOrder {
        deep: true,
        repair: true,
    };
    c.input(0, Input::Scrub(order));
    let mut pick = in_turn();
    let asked = |c: &Cluster| {
        let pull = |b: &PeerBody| matches!(b, PeerBody::Scrub(ScrubBody::Pull { .. }));
        c.links.values().flatten().any(|(_, b)| pull(b))
    };
    for _ in 0..2000 {
        if asked(&c) {
            break;
        }
        c.run(&mut pick, 1);
    }
    assert!(asked(&c));
    let mut pool = (*c.pool()).clone();
    pool.removed_snaps.insert(1, 2);
    c.input(0, Input::MapChanged(Arc::new(pool)));
    c.now += Duration::from_millis(50);
    c.input(0, Input::Tick);
    c.run(pick, 3000);
    for osd in 0..3 {
        assert!(store(&mut c, osd).stat(&clone).unwrap().is_none(), "osd.{osd}");
    }
    let r = scrub(&mut c, true, true);
    assert_eq!(r.errors, r.fixed);
    c.check_equal();
    assert!(c.pg().front.is_at_rest());
}

/// Order: what came behind the read on the same object is executed behind it.
#[test]
fn what_waits_for_a_repair_keeps_its_place() {
    let mut c = cluster();
    done(&mut c, "a", vec![write_full(b"old")]);
    store(&mut c, 0).spoil(&oid("a"), 0);
    let first = c.send("a", vec![read(0, 0)]);
    let second = c.send("a", vec![write_full(b"new")]);
    let third = c.send("a", vec![read(0, 0)]);
    c.run(in_turn(), 400);
    let out = |c: &Cluster, tid| c.answered(tid).unwrap().ops[0].outdata.clone();
    assert_eq!(&out(&c, first)[..], b"old");
    assert_eq!(c.answered(second).unwrap().result, 0);
    assert_eq!(&out(&c, third)[..], b"new");
    c.check_equal();
}

#[test]
fn the_next_member_is_asked_where_one_is_damaged_too_and_else_it_is_said() {
    let mut c = cluster();
    done(&mut c, "a", vec![write_full(&data(5, 9000))]);
    store(&mut c, 0).spoil(&oid("a"), 0);
    store(&mut c, 1).spoil(&oid("a"), 8192);
    let r = done(&mut c, "a", vec![read(0, 0)]);
    assert_eq!((r.result, &r.ops[0].outdata[..]), (0, &data(5, 9000)[..]));
    (0..3).for_each(|osd| store(&mut c, osd).spoil(&oid("a"), 4096));
    assert_eq!(done(&mut c, "a", vec![read(0, 0)]).result, -5, "none is good");
    assert_eq!(c.pg().scrub_view().stamps.errors(), 1);
    assert_eq!(
        done(&mut c, "b", vec![write_full(b"x")]).result,
        0,
        "others go on"
    );
}

#[test]
fn a_clone_is_repaired_with_its_head() {
    let mut c = cluster();
    done(&mut c, "a", vec![write_full(&data(3, 12_000))]);
    c.snapc = (1, vec![1]);
    done(&mut c, "a", vec![write(0, b"new")]);
    let clone = ObjectId::replicated(oid("a").object.with_snap(1));
    assert!(store(&mut c, 0).stat(&clone).unwrap().is_some());
    store(&mut c, 0).spoil(&clone, 8192);
    let r = scrub(&mut c, true, true);
    assert_eq!((r.errors, r.fixed), (1, 1));
    c.check_equal();
    assert_eq!(store(&mut c, 0).read(&clone, 0, 20_000).unwrap(), data(3, 12_000));
}

#[test]
fn a_light_scrub_sees_what_is_missing_and_a_deep_one_everything() {
    let mut c = cluster();
    for n in 0..80u8 {
        done(
            &mut c,
            &format!("o{n}"),
            vec![write_full(&data(n, 5000)), set_xattr(b"x", b"y")],
        );
    }
    let r = scrub(&mut c, true, false);
    assert_eq!((r.errors, r.objects), (0, 80));
    store(&mut c, 1).lose(&oid("o3"));
    store(&mut c, 2).lose_attr(&oid("o5"), b"_x");
    store(&mut c, 1).alter(&oid("o7"), 4000);
    store(&mut c, 2).spoil(&oid("o8"), 0);
    store(&mut c, 0).put_row(&oid("o9"), b"stray");
    let r = scrub(&mut c, false, false);
    assert_eq!(r.errors, 2);
    let r = scrub(&mut c, true, false);
    assert_eq!((r.errors, r.fixed), (5, 0));
    let found: Vec<(Bytes, u64, u64, Vec<OsdId>)> = c
        .pg()
        .inconsistent()
        .unwrap()
        .map(|w| {
            (
                w.object.oid.clone(),
                w.errors,
                w.union_errors(),
                w.bad().collect(),
            )
        })
        .collect();
    let has = |name: &'static str, errors, union, osd| {
        let want = (Bytes::from_static(name.as_bytes()), errors, union, vec![osd]);
        assert!(found.contains(&want), "{want:?} in {found:?}");
    };
    has("o3", 0, shard_error::MISSING, 1);
    has("o5", object_error::ATTR_NAME, 0, 2);
    has("o7", object_error::DATA_DIGEST, 0, 1);
    has("o8", 0, shard_error::READ, 2);
    has("o9", object_error::OMAP_DIGEST, 0, 0);
    assert_eq!(c.pg().scrub_view().stamps.errors(), 5);
    let r = scrub(&mut c, true, true);
    assert_eq!((r.errors, r.fixed), (5, 5));
    c.check_equal();
    assert_eq!(c.pg().scrub_view().stamps.errors(), 0);
    assert_eq!(scrub(&mut c, true, false).errors, 0);
    assert!(c.pg().front.is_at_rest());
}

#[test]
fn writes_that_go_on_are_no_inconsistency() {
    let mut c = cluster();
    for n in 0..40u8 {
        done(&mut c, &format!("o{n}"), vec![write_full(&data(n, 5000))]);
    }
    c.input(
        c.group.primary,
        Input::Scrub(ScrubOrder {
            deep: true,
            repair: false,
        }),
    );
    let mut pick = in_turn();
    let mut last = 0;
    for n in 0..400 {
        last = c.send(&format!("o{}", n % 40), vec![write(n, b"more")]);
        c.run(&mut pick, 7);
    }
    c.run(&mut pick, 3000);
    assert_eq!(c.answered(last).unwrap().result, 0);
    assert_eq!(c.scrubs.len(), 1);
    assert_eq!(c.scrubs[0].errors, 0);
    c.check_equal();
    assert!(c.pg().front.is_at_rest());
}

#[test]
fn a_restart_remembers_when_it_was_scrubbed_and_what_was_wrong() {
    let mut c = cluster();
    done(&mut c, "a", vec![write_full(b"data")]);
    store(&mut c, 2).alter(&oid("a"), 1);
    assert_eq!(scrub(&mut c, true, false).errors, 1);
    let stamps = c.pg().scrub_view().stamps;
    assert_eq!((stamps.deep_errors, stamps.at.sec), (1, 1000));
    c.kill(0);
    c.run(in_turn(), 500);
    assert_ne!(c.group.primary, 0);
    assert_eq!(c.pg().scrub_view().stamps, stamps);
}

#[test]
fn a_scrub_ends_when_a_member_goes_and_leaves_nothing_behind() {
    let mut c = cluster();
    for n in 0..100u8 {
        done(&mut c, &format!("o{n}"), vec![write_full(&data(n, 5000))]);
    }
    store(&mut c, 1).lose(&oid("o1"));
    c.input(
        c.group.primary,
        Input::Scrub(ScrubOrder {
            deep: true,
            repair: true,
        }),
    );
    c.run(in_turn(), 30);
    c.kill(2);
    c.run(in_turn(), 600);
    assert!(c.scrubs.is_empty() && c.pg().scrub_view().running.is_none());
    assert!(c.pg().front.is_at_rest());
    assert_eq!(done(&mut c, "o1", vec![write(0, b"x")]).result, 0);
}

/// A member whose disk cannot complete a block gets its objects whole, and comes back.
#[test]
fn a_member_that_cannot_complete_a_block_is_given_the_object_whole() {
    let mut c = cluster();
    done(&mut c, "a", vec![write_full(&data(3, 20_000))]);
    store(&mut c, 2).spoil(&oid("a"), 4096);
    let tid = c.send("a", vec![write(5000, b"new")]);
    c.run(in_turn(), 3000);
    assert_eq!(c.answered(tid).unwrap().result, 0);
    assert_eq!(c.group.in_sync, [0, 1, 2]);
    c.check_equal();
}

/// Random damage of one copy of each object, here or there, under reads that wait for the disk: a repair leaves all
/// copies the same and right.
#[test]
fn repair_leaves_all_copies_equal_and_right() {
    use proptest::prelude::*;
    proptest!(ProptestConfig::with_cases(60), |(damage in prop::collection::vec((0u8..12, 0i32..3, 0u8..5, 0u64..20_000), 1..12), cold in any::<bool>())| {
        let mut c = cluster();
        for n in 0..12u8 {
            done(&mut c, &format!("o{n}"), vec![write_full(&data(n, 20_000)), set_xattr(b"x", b"y"), omap_set(&[("k", "v")])]);
            if n % 3 == 0 {
                c.snapc = (u64::from(n) + 1, vec![u64::from(n) + 1]);
            }
            done(&mut c, &format!("o{n}"), vec![write(100, b"later")]);
        }
        c.check_equal();
        let want = c.content(0);
        if cold {
            (0..3).for_each(|o| store(&mut c, o).cold = Some(crate::memory::Cold::new(0)));
        }
        let mut hurt = std::collections::BTreeMap::new();
        for (object, osd, how, at) in damage {
            // One copy of each object: the others are right.
            if hurt.insert(object, osd).is_some() {
                continue;
            }
            let (name, s) = (oid(&format!("o{object}")), store(&mut c, osd));
            match how {
                0 => s.spoil(&name, at),
                1 => s.alter(&name, at as usize),
                2 => s.lose(&name),
                3 => s.lose_attr(&name, if at % 2 == 0 { b"_x" } else { b"i" }),
                _ => s.put_row(&name, b"stray"),
            }
        }
        let r = scrub(&mut c, true, true);
        prop_assert_eq!((r.errors as usize, r.fixed as usize), (hurt.len(), hurt.len()));
        prop_assert_eq!(c.pg().scrub_view().stamps.errors(), 0);
        (0..3).for_each(|o| store(&mut c, o).cold = None);
        for osd in 0..3 {
            prop_assert_eq!(c.content(osd), want.clone(), "osd.{}", osd);
        }
        prop_assert!(c.pg().front.is_at_rest());
    });
}
