//! Units that are made in pieces: too large for one transaction, or readable on no single copy; crashes in the middle; and
//! damage that a member meets. Pieces are small here ([`crate::scrub`]).

use super::replication::{Cluster, in_turn};
use super::scrub::{cluster, done, oid, scrub, store};
use super::*;
use proptest::prelude::*;

/// More than one transaction of a repair takes.
const LARGE: usize = 150_000;
const BLOCK: u64 = 4096;

/// No two blocks are the same.
fn data(n: u64, len: usize) -> Vec<u8> {
    let mut x = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x as u8
    };
    (0..len).map(|_| next()).collect()
}

fn write_large(c: &mut Cluster, name: &str, n: u64) {
    let ops = vec![
        write_full(&data(n, LARGE)),
        set_xattr(b"x", b"y"),
        omap_set(&[("k", "v")]),
    ];
    assert_eq!(done(c, name, ops).result, 0);
}

/// Objects of repairs that are not over.
fn scratch(c: &mut Cluster, osd: OsdId) -> usize {
    let from = ObjectId {
        shard: i8::MIN,
        object: HObject::min(),
    };
    let all = store(c, osd).list(&from, 1000).unwrap();
    all.iter().filter(|o| o.shard != -1).count()
}

fn nothing_is_left(c: &mut Cluster) {
    for osd in c.alive() {
        assert_eq!(scratch(c, osd), 0, "osd.{osd}");
    }
    assert!(c.pg().front.is_at_rest());
}

/// Goes on until there is something in the making on this OSD.
fn until_made(c: &mut Cluster, osd: OsdId) {
    let mut pick = in_turn();
    for _ in 0..2000 {
        if scratch(c, osd) > 0 {
            return;
        }
        c.run(&mut pick, 1);
    }
    panic!("nothing is made on osd.{osd}");
}

fn begin_repair(c: &mut Cluster) {
    let order = ScrubOrder {
        deep: true,
        repair: true,
    };
    c.input(c.group.primary, Input::Scrub(order));
}

fn read_all(c: &mut Cluster, name: &str) -> (i32, Vec<u8>) {
    let tid = c.send(name, vec![read(0, 0)]);
    c.run(in_turn(), 2000);
    let r = c.answered(tid).expect("an answer");
    (r.result, r.ops[0].outdata.to_vec())
}

#[test]
fn a_large_object_that_rotted_on_the_primary_is_read_all_the_same() {
    let mut c = cluster();
    write_large(&mut c, "a", 1);
    store(&mut c, 0).spoil(&oid("a"), 9 * BLOCK);
    assert_eq!(read_all(&mut c, "a"), (0, data(1, LARGE)));
    c.check_equal();
    assert_eq!(c.pg().scrub_view().repaired, 1);
    nothing_is_left(&mut c);
}

#[test]
fn a_large_object_is_repaired_wherever_and_however_it_is_bad() {
    let hurt: [fn(&mut crate::memory::MemoryStore); 5] = [
        |s| s.spoil(&oid("a"), 9 * BLOCK),
        |s| s.alter(&oid("a"), 100_000),
        |s| s.lose(&oid("a")),
        |s| s.lose_attr(&oid("a"), b"i"),
        |s| s.put_row(&oid("a"), b"stray"),
    ];
    for osd in 0..3 {
        for (how, hurt) in hurt.iter().enumerate() {
            let mut c = cluster();
            write_large(&mut c, "a", 1);
            write_large(&mut c, "b", 2);
            hurt(store(&mut c, osd));
            let r = scrub(&mut c, true, true);
            assert_eq!((r.errors, r.fixed), (1, 1), "damage {how} on osd.{osd}");
            c.check_equal();
            assert_eq!(read_all(&mut c, "a"), (0, data(1, LARGE)));
            nothing_is_left(&mut c);
        }
    }
}

/// What a unit shares within itself it shares when it was made anew: only the parts in which its clones differ go over.
#[test]
fn a_large_unit_keeps_what_its_clones_share() {
    for osd in [0, 1] {
        let mut c = cluster();
        write_large(&mut c, "a", 1);
        for snap in [1, 2, 3] {
            c.snapc = (snap, (1..=snap).rev().collect());
            done(&mut c, "a", vec![write(snap * 20_000, b"new")]);
        }
        let clone = ObjectId::replicated(oid("a").object.with_snap(2));
        store(&mut c, osd).spoil(&clone, 5 * BLOCK);
        let before = c.content(2);
        let r = scrub(&mut c, true, true);
        assert_eq!((r.errors, r.fixed), (1, 1));
        assert_eq!(c.content(osd), before);
        nothing_is_left(&mut c);
    }
}

#[test]
fn blocks_of_copies_that_are_all_bad_make_a_good_one() {
    for len in [30_000, LARGE] {
        let mut c = cluster();
        done(
            &mut c,
            "a",
            vec![write_full(&data(1, len)), omap_set(&[("k", "v")])],
        );
        let spoil = |c: &mut Cluster| {
            store(c, 0).spoil(&oid("a"), BLOCK);
            store(c, 0).spoil(&oid("a"), 3 * BLOCK);
            store(c, 1).spoil(&oid("a"), 2 * BLOCK);
            store(c, 2).spoil(&oid("a"), 4 * BLOCK);
            store(c, 2).spoil_rows(&oid("a"));
        };
        // A client meets it.
        spoil(&mut c);
        assert_eq!(read_all(&mut c, "a"), (0, data(1, len)));
        let r = scrub(&mut c, true, true);
        assert_eq!(
            (r.errors, r.fixed),
            (3, 3),
            "the members', one of which has two faults"
        );
        c.check_equal();
        // A scrub meets it.
        spoil(&mut c);
        assert_eq!(scrub(&mut c, true, false).errors, 4);
        let r = scrub(&mut c, true, true);
        assert_eq!(r.fixed, r.errors);
        assert_eq!(c.pg().scrub_view().stamps.errors(), 0);
        c.check_equal();
        nothing_is_left(&mut c);
    }
}

#[test]
fn what_no_copy_holds_is_not_made_up() {
    for len in [30_000, LARGE] {
        let mut c = cluster();
        done(&mut c, "a", vec![write_full(&data(1, len))]);
        for osd in 0..3 {
            store(&mut c, osd).spoil(&oid("a"), 5 * BLOCK);
            store(&mut c, osd).spoil(&oid("a"), osd as u64 * BLOCK);
        }
        assert_eq!(read_all(&mut c, "a").0, -5);
        let r = scrub(&mut c, true, true);
        assert_eq!((r.errors, r.fixed), (3, 0));
        assert!(c.pg().inconsistent().unwrap().all(|w| w.good.is_none()));
        // Nothing was touched: what could be read can be read.
        for osd in 0..3 {
            let at = (osd as u64 + 1) % 3 * BLOCK;
            let want = &data(1, len)[at as usize..][..4096];
            assert_eq!(&store(&mut c, osd).read(&oid("a"), at, BLOCK).unwrap()[..], want);
        }
        nothing_is_left(&mut c);
    }
}

#[test]
fn a_primary_that_dies_in_the_middle_leaves_nothing_behind() {
    // Its own copy, and a member's.
    for bad in [0, 2] {
        let mut c = cluster();
        write_large(&mut c, "a", 1);
        store(&mut c, bad).spoil(&oid("a"), 30 * BLOCK);
        begin_repair(&mut c);
        until_made(&mut c, bad);
        c.flush(bad);
        c.kill(0);
        assert!(scratch(&mut c, bad) > 0, "it lies on the disk");
        c.run(in_turn(), 600);
        assert!(c.pg().is_active());
        c.set_up(&[0, 1, 2]);
        c.start(0);
        c.run(in_turn(), 1500);
        assert_eq!(c.group.in_sync, [0, 1, 2]);
        nothing_is_left(&mut c);
        let r = scrub(&mut c, true, true);
        assert_eq!((r.errors, r.fixed), (1, 1));
        assert_eq!(read_all(&mut c, "a"), (0, data(1, LARGE)));
        c.check_equal();
    }
}

#[test]
fn a_member_that_goes_in_the_middle_is_no_loss() {
    // osd.1 has the bad copy, or the only good one.
    for bad_here in [false, true] {
        let mut c = cluster();
        write_large(&mut c, "a", 1);
        if bad_here {
            store(&mut c, 0).spoil(&oid("a"), 9 * BLOCK);
        } else {
            store(&mut c, 1).spoil(&oid("a"), 9 * BLOCK);
        }
        begin_repair(&mut c);
        until_made(&mut c, i32::from(!bad_here));
        c.kill(1);
        c.run(in_turn(), 600);
        assert_eq!(scratch(&mut c, 0), 0);
        c.set_up(&[0, 1, 2]);
        c.start(1);
        c.run(in_turn(), 1500);
        assert_eq!(c.group.in_sync.len(), 3);
        assert_eq!(scrub(&mut c, true, true).errors, 1);
        c.check_equal();
        assert_eq!(read_all(&mut c, "a"), (0, data(1, LARGE)));
        nothing_is_left(&mut c);
    }
}

/// A read repair goes on with another source.
#[test]
fn a_source_that_goes_in_the_middle_is_followed_by_another() {
    let mut c = cluster();
    write_large(&mut c, "a", 1);
    (0..36).for_each(|b| store(&mut c, 0).spoil(&oid("a"), b * BLOCK));
    let tid = c.send("a", vec![read(0, 0)]);
    until_made(&mut c, 0);
    c.kill(1);
    c.run(in_turn(), 1500);
    let r = c.answered(tid).expect("an answer");
    assert_eq!((r.result, &r.ops[0].outdata[..]), (0, &data(1, LARGE)[..]));
    nothing_is_left(&mut c);
}

/// A member that is away for a moment may still have a good copy: what it was asked for before does not count.
#[test]
fn a_source_that_comes_back_is_asked_again() {
    let mut c = cluster();
    write_large(&mut c, "a", 1);
    (0..36).for_each(|b| store(&mut c, 0).spoil(&oid("a"), b * BLOCK));
    let tid = c.send("a", vec![read(0, 0)]);
    until_made(&mut c, 0);
    c.cut(0, 1);
    c.cut(0, 2);
    c.run(in_turn(), 20);
    assert!(c.answered(tid).is_none(), "it waits");
    c.mend();
    c.run(in_turn(), 2500);
    let r = c.answered(tid).expect("an answer");
    assert_eq!((r.result, &r.ops[0].outdata[..]), (0, &data(1, LARGE)[..]));
    assert_eq!(c.pg().scrub_view().stamps.errors(), 0);
    nothing_is_left(&mut c);
}

/// The PG's own changes do not wait for a check: a repair that one passed by begins anew.
#[test]
fn a_change_that_passes_by_is_not_undone() {
    for bad in [0, 1] {
        let mut c = cluster();
        write_large(&mut c, "a", 1);
        c.snapc = (1, vec![1]);
        done(&mut c, "a", vec![write_full(&data(2, LARGE))]);
        store(&mut c, bad).spoil(&oid("a"), 9 * BLOCK);
        begin_repair(&mut c);
        until_made(&mut c, bad);
        // The snapshot is removed: its clone goes.
        let mut pool = (*c.pool()).clone();
        pool.removed_snaps.insert(1, 2);
        c.input(0, Input::MapChanged(Arc::new(pool)));
        let clone = ObjectId::replicated(oid("a").object.with_snap(1));
        c.run(in_turn(), 3000);
        for osd in 0..3 {
            assert!(store(&mut c, osd).stat(&clone).unwrap().is_none(), "osd.{osd}");
        }
        c.check_equal();
        assert_eq!(read_all(&mut c, "a"), (0, data(2, LARGE)));
        assert_eq!(scrub(&mut c, true, true).errors, 0);
        nothing_is_left(&mut c);
    }
}

#[test]
fn a_split_takes_what_was_being_made_with_it() {
    for bad in [0, 1] {
        let mut c = cluster();
        for name in ["a", "b", "c", "d"] {
            write_large(&mut c, name, 1);
            store(&mut c, bad).spoil(&oid(name), 9 * BLOCK);
        }
        begin_repair(&mut c);
        until_made(&mut c, bad);
        let pool = PoolView {
            pg_num: 8,
            ..(*c.pool()).clone()
        };
        c.input(0, Input::MapChanged(Arc::new(pool)));
        c.run(in_turn(), 500);
        for osd in 0..3 {
            assert_eq!(scratch(&mut c, osd), 0, "osd.{osd}");
        }
    }
}

/// Writes wait for a repair and come right behind it.
#[test]
fn a_write_in_the_middle_comes_behind_it() {
    for bad in [0, 1] {
        let mut c = cluster();
        write_large(&mut c, "a", 1);
        store(&mut c, bad).spoil(&oid("a"), 9 * BLOCK);
        begin_repair(&mut c);
        until_made(&mut c, bad);
        let tid = c.send("a", vec![write(9 * BLOCK + 5, b"new")]);
        c.run(in_turn(), 2500);
        assert_eq!(c.answered(tid).unwrap().result, 0);
        let mut want = data(1, LARGE);
        want[9 * 4096 + 5..][..3].copy_from_slice(b"new");
        assert_eq!(read_all(&mut c, "a"), (0, want));
        assert_eq!(c.group.in_sync, [0, 1, 2]);
        c.check_equal();
        nothing_is_left(&mut c);
    }
}

// --- members that read ------------------------------------------------------------------------------------

/// A read at a member; EAGAIN, or what it shows.
fn read_at(c: &mut Cluster, osd: OsdId, name: &str) -> (i32, Vec<u8>) {
    c.tid += 1;
    let tid = c.tid;
    c.send_to(osd, tid, name, vec![read(0, 0)]);
    let mut pick = in_turn();
    for _ in 0..200 {
        if let Some(r) = c.answered(tid) {
            return (r.result, r.ops.first().map_or(Vec::new(), |o| o.outdata.to_vec()));
        }
        c.run(&mut pick, 1);
    }
    panic!("no answer");
}

#[test]
fn a_member_that_meets_damage_is_repaired_without_a_scrub() {
    for len in [9_000, LARGE] {
        let mut c = cluster();
        done(&mut c, "a", vec![write_full(&data(1, len))]);
        assert_eq!(read_at(&mut c, 1, "a"), (0, data(1, len)));
        store(&mut c, 1).spoil(&oid("a"), BLOCK);
        assert_eq!(read_at(&mut c, 1, "a").0, -11);
        c.run(in_turn(), 1500);
        c.check_equal();
        assert_eq!(read_at(&mut c, 1, "a"), (0, data(1, len)));
        assert!(c.scrubs.is_empty() && c.pg().inconsistent().is_none());
        assert_eq!(c.pg().scrub_view().repaired, 1);
        nothing_is_left(&mut c);
    }
}

#[test]
fn a_member_meets_damage_that_is_everywhere() {
    let mut c = cluster();
    done(&mut c, "a", vec![write_full(&data(1, 9_000))]);
    assert_eq!(read_at(&mut c, 1, "a").0, 0);
    (0..3).for_each(|osd| store(&mut c, osd).spoil(&oid("a"), BLOCK));
    assert_eq!(read_at(&mut c, 1, "a").0, -11);
    c.run(in_turn(), 600);
    assert_eq!(c.pg().scrub_view().stamps.errors(), 3, "and it is said");
    assert_eq!(c.pg().inconsistent().unwrap().count(), 1);
    // What was found by itself is forgotten when it is good again by itself.
    done(&mut c, "a", vec![write_full(b"new")]);
    assert_eq!(scrub(&mut c, true, false).errors, 0);
    assert_eq!(c.pg().scrub_view().stamps.errors(), 0);
}

#[test]
fn many_damaged_objects_of_a_member_are_repaired_a_few_at_a_time() {
    let mut c = cluster();
    for n in 0..80 {
        done(&mut c, &format!("o{n}"), vec![write_full(&data(n, 5_000))]);
        store(&mut c, 2).spoil(&oid(&format!("o{n}")), 0);
    }
    for n in 0..80 {
        assert_eq!(read_at(&mut c, 2, &format!("o{n}")).0, -11);
    }
    c.run(in_turn(), 4000);
    // Whom there was no room for says so again.
    c.now += Duration::from_secs(11);
    for n in 0..80 {
        read_at(&mut c, 2, &format!("o{n}"));
    }
    c.run(in_turn(), 4000);
    c.check_equal();
    nothing_is_left(&mut c);
}

#[test]
fn a_scrub_that_begins_meanwhile_is_a_whole_one() {
    let mut c = cluster();
    for n in 0..5 {
        done(&mut c, &format!("o{n}"), vec![write_full(&data(n, LARGE))]);
    }
    read_at(&mut c, 1, "o1");
    store(&mut c, 1).spoil(&oid("o1"), BLOCK);
    store(&mut c, 2).spoil(&oid("o3"), BLOCK);
    assert_eq!(read_at(&mut c, 1, "o1").0, -11);
    until_made(&mut c, 1);
    let r = scrub(&mut c, true, false);
    assert_eq!((r.objects, r.errors, r.fixed), (5, 2, 1), "o1 was on its way");
    assert_eq!(c.pg().scrub_view().stamps.errors(), 1);
}

/// Blocks rot at random on all copies, but each can be read somewhere: whoever reads, reads what was written, and a
/// repair leaves all copies the same.
#[test]
fn whatever_rots_is_made_good_as_long_as_each_block_is_somewhere() {
    proptest!(ProptestConfig::with_cases(24), |(
        damage in prop::collection::vec((0u64..6, 0u64..37, 0i32..3, any::<bool>()), 1..60),
        cold in any::<bool>(),
        first in 0u64..6,
    )| {
        let mut c = cluster();
        let name = |n: u64| format!("o{n}");
        let len = |n: u64| if n.is_multiple_of(2) { LARGE } else { 40_000 };
        for n in 0..6 {
            done(&mut c, &name(n), vec![write_full(&data(n, len(n))), set_xattr(b"x", b"y")]);
            if n >= 4 {
                c.snapc = (n, vec![n]);
                done(&mut c, &name(n), vec![write(30_000, b"later")]);
            }
        }
        let want = c.content(0);
        if cold {
            (0..3).for_each(|o| store(&mut c, o).cold = Some(crate::memory::Cold::new(3)));
        }
        for (n, block, spared, both) in damage {
            if block * BLOCK >= len(n) as u64 {
                continue;
            }
            for osd in (0..3).filter(|o| *o != spared && (both || (o + 1) % 3 != spared)) {
                // A block keeps the copy that was spared first.
                let mut others = (0..3).filter(|o| *o != osd);
                if others.any(|o| store(&mut c, o).read(&oid(&name(n)), block * BLOCK, 1).is_ok()) {
                    store(&mut c, osd).spoil(&oid(&name(n)), block * BLOCK);
                }
            }
        }
        let tid = c.send(&name(first), vec![read(0, 0)]);
        c.run(in_turn(), 2500);
        prop_assert_eq!(c.answered(tid).map(|r| r.result), Some(0));
        begin_repair(&mut c);
        c.run(in_turn(), 6000);
        prop_assert_eq!(c.scrubs.len(), 1);
        prop_assert_eq!(c.scrubs[0].errors, c.scrubs[0].fixed);
        prop_assert_eq!(c.group.in_sync.clone(), vec![0, 1, 2]);
        (0..3).for_each(|o| store(&mut c, o).cold = None);
        for osd in 0..3 {
            prop_assert_eq!(c.content(osd), want.clone(), "osd.{}", osd);
        }
        nothing_is_left(&mut c);
    });
}
