//! Damaged shards: reads that go on without them, scrub, repair; on the cluster of `shards`.

use super::replication::in_turn;
use super::shards::Cluster;
use super::*;
use crate::backend::erasure::cut::on_shard;
use crate::backend::findings::{object_error, shard_error};
use crate::state::object_info::INFO_ATTR;

fn oid(name: &str, shard: usize) -> ObjectId {
    on_shard(&super::scrub::oid(name), shard)
}

fn data(n: u8, len: usize) -> Vec<u8> {
    (0..len)
        .map(|i| (i as u8).wrapping_mul(n).wrapping_add(n))
        .collect()
}

/// With objects of which some end in the midst of a stripe, one that is empty, and a snapshot.
fn cluster(k: usize, m: usize) -> Cluster {
    let mut c = Cluster::new(k + m, k, m);
    c.run(in_turn(), 300);
    assert!(c.pg().unwrap().is_active());
    for (name, len) in [("a", 200), ("b", 10_000), ("c", 9)] {
        assert_eq!(c.do_now(name, vec![write_full(&data(3, len))]).result, 0);
    }
    assert_eq!(c.do_now("d", vec![excl()]).result, 0);
    c
}

fn store(c: &mut Cluster, osd: usize) -> &mut MemoryStore {
    &mut c.nodes[osd].store
}

/// What it finds: object, shards that are bad, what is wrong with these, and with the object.
fn scrub(c: &mut Cluster, deep: bool, repair: bool) -> Vec<(Bytes, Vec<i8>, u64, u64)> {
    c.input(c.primary, Input::Scrub(ScrubOrder { deep, repair }));
    for _ in 0..60 {
        if c.pg().unwrap().scrub_view().wants_grant {
            c.input(c.primary, Input::ScrubGrant);
        }
        c.run(in_turn(), 60);
    }
    let pg = c.pg().unwrap();
    assert_eq!(pg.scrub_view().running, None, "it has ended");
    assert!(pg.front.is_at_rest());
    let found = pg.inconsistent().unwrap();
    let of = |w: &Inconsistent| {
        let bad = w.sides.iter().filter(|s| s.bad).map(|s| s.shard).collect();
        (w.object.oid.clone(), bad, w.union_errors(), w.errors)
    };
    found.map(of).collect()
}

fn all_fit(c: &Cluster) {
    for (name, len) in [("a", 200), ("b", 10_000), ("c", 9), ("d", 0)] {
        assert_eq!(c.check(name), Some(data(3, len)), "{name}");
    }
}

#[test]
fn shards_that_fit_are_clean() {
    for (k, m) in [(2, 1), (2, 2), (3, 2)] {
        let mut c = cluster(k, m);
        assert_eq!(scrub(&mut c, false, false), []);
        assert_eq!(scrub(&mut c, true, false), []);
        all_fit(&c);
    }
}

#[test]
fn a_read_goes_on_without_a_shard_that_it_cannot_read_and_has_it_made_good() {
    for shard in 0..4 {
        let mut c = cluster(2, 2);
        store(&mut c, shard).spoil(&oid("b", shard), 0);
        assert!(store(&mut c, shard).read(&oid("b", shard), 0, 10).is_err());
        assert_eq!(c.data("b").unwrap(), data(3, 10_000), "without {shard}");
        assert_eq!(c.do_now("b", vec![write(3, &data(3, 10_000)[3..9])]).result, 0);
        c.run(in_turn(), 300);
        if shard < 2 {
            // Nobody has asked for parity.
            assert_eq!(c.pg().unwrap().scrub_view().repaired, 1, "shard {shard}");
            all_fit(&c);
        }
        assert!(c.pg().unwrap().front.is_at_rest());
    }
}

#[test]
fn a_deep_scrub_finds_what_cannot_be_read_and_has_it_made_good() {
    for shard in 0..3 {
        let mut c = cluster(2, 1);
        store(&mut c, shard).spoil(&oid("b", shard), 4096);
        assert_eq!(scrub(&mut c, false, false), [], "a light one does not see it");
        let found = scrub(&mut c, true, false);
        assert_eq!(found, [("b".into(), vec![shard as i8], shard_error::READ, 0)]);
        assert_eq!(scrub(&mut c, true, true), [], "shard {shard}");
        all_fit(&c);
        assert_eq!(scrub(&mut c, true, false), []);
    }
}

/// The disk says that all is well, and so does its checksum.
#[test]
fn a_shard_that_does_not_fit_is_named_and_made_good() {
    for shard in 0..4 {
        for name in ["a", "b"] {
            let mut c = cluster(2, 2);
            store(&mut c, shard).alter(&oid(name, shard), 5);
            let found = scrub(&mut c, true, false);
            let name = Bytes::from(name);
            assert_eq!(found, [(name, vec![shard as i8], shard_error::EC_HASH, 0)]);
            assert_eq!(scrub(&mut c, true, true), [], "shard {shard}");
            all_fit(&c);
        }
    }
}

/// Behind a shard's end there is nothing but zeros: another thing that others prove.
#[test]
fn what_lies_behind_a_shards_end_does_not_fit() {
    let mut c = cluster(2, 2);
    store(&mut c, 1).alter(&oid("a", 1), 150);
    let found = scrub(&mut c, true, false);
    assert_eq!(found, [("a".into(), vec![1], shard_error::EC_HASH, 0)]);
}

#[test]
fn with_one_parity_shard_it_shows_that_one_is_wrong_and_not_which() {
    let mut c = cluster(2, 1);
    store(&mut c, 1).alter(&oid("a", 1), 5);
    for repair in [false, true] {
        let found = scrub(&mut c, true, repair);
        assert_eq!(found, [("a".into(), vec![0, 1, 2], 0, object_error::DATA_DIGEST)]);
    }
    // Written anew it fits again.
    assert_eq!(c.do_now("a", vec![write_full(&data(3, 200))]).result, 0);
    assert_eq!(scrub(&mut c, true, false), []);
    all_fit(&c);
}

#[test]
fn objects_that_are_missing_or_have_no_info_are_made_anew() {
    for shard in 0..3 {
        for name in ["a", "b", "c", "d"] {
            let mut c = cluster(2, 1);
            store(&mut c, shard).lose(&oid(name, shard));
            let found = scrub(&mut c, false, false);
            let want = (Bytes::from(name), vec![shard as i8], shard_error::MISSING, 0);
            assert_eq!(found, [want]);
            assert_eq!(scrub(&mut c, false, true), [], "{name} on shard {shard}");
            all_fit(&c);

            store(&mut c, shard).lose_attr(&oid(name, shard), INFO_ATTR);
            let found = scrub(&mut c, false, false);
            assert_eq!((found.len(), found[0].2), (1, shard_error::INFO_MISSING));
            assert_eq!(scrub(&mut c, false, true), [], "{name} on shard {shard}");
            all_fit(&c);
            assert_eq!(c.data(name), Some(c.check(name).unwrap()));
        }
    }
}

/// More are bad than the code makes up for: nothing is made up.
#[test]
fn too_few_good_shards_are_left_as_they_are() {
    let mut c = cluster(2, 1);
    for shard in [1, 2] {
        store(&mut c, shard).spoil(&oid("b", shard), 0);
    }
    for repair in [false, true] {
        let found = scrub(&mut c, true, repair);
        assert_eq!(found, [("b".into(), vec![1, 2], shard_error::READ, 0)]);
    }
    assert_eq!(c.do_now("b", vec![read(0, 0)]).result, -5);
    assert_eq!(c.do_now("a", vec![read(0, 0)]).result, 0);
    assert_eq!(c.do_now("b", vec![write_full(&data(3, 10_000))]).result, 0);
    assert_eq!(scrub(&mut c, true, false), []);
    all_fit(&c);
}

/// Clones are made good with their heads.
#[test]
fn a_clone_is_made_good() {
    for shard in 0..3 {
        let mut c = cluster(2, 1);
        c.requests.snapc = (4, vec![4]);
        assert_eq!(c.do_now("a", vec![write(0, b"new")]).result, 0);
        c.requests.snapc = (0, Vec::new());
        let mut clone = oid("a", shard);
        clone.object.snap = 4;
        store(&mut c, shard).lose(&clone);
        assert_eq!(scrub(&mut c, false, false).len(), 1);
        assert_eq!(scrub(&mut c, true, true), []);
        assert!(store(&mut c, shard).stat(&clone).unwrap().is_some());
    }
}

/// A member dies while a shard is made good: nothing waits for it.
#[test]
fn a_repair_ends_when_its_member_is_lost() {
    let mut c = cluster(2, 2);
    store(&mut c, 1).spoil(&oid("b", 1), 0);
    let reads = c.send("b", vec![read(0, 0)]);
    c.run(in_turn(), 12);
    c.kill(1);
    c.run(in_turn(), 600);
    assert_eq!(c.answered(reads).unwrap().ops[0].outdata, data(3, 10_000));
    assert_eq!(c.do_now("b", vec![write(0, &data(3, 9))]).result, 0);
    c.run(in_turn(), 300);
    assert!(c.pg().unwrap().front.is_at_rest());
    c.start(1);
    c.settle();
    all_fit(&c);
}
