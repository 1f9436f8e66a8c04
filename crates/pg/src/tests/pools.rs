//! States and kinds of pools: full, quota, blocklist, erasure-coded, splitting, pool snapshots.

use super::*;
use std::sync::Arc;

#[test]
fn a_full_pool_refuses_growth_to_those_who_ask() {
    let mut rig = Rig::new();
    rig.run("o", vec![write_full(b"0123")]);
    rig.set_pool(PoolView {
        full: true,
        full_quota: true,
        ..pool()
    });
    let mut check = |flags, o: OsdOp, want| {
        rig.flags = flags;
        assert_eq!(rig.one("o", o.clone()), want, "{} with flags {flags:x}", o.code);
    };
    check(flag::FULL_TRY, append(b"x"), -122);
    check(flag::FULL_TRY, write(0, b"x"), 0);
    check(flag::FULL_TRY, set_xattr(b"a", b"b"), 0);
    check(flag::FULL_TRY | flag::FULL_FORCE, append(b"x"), 0);
    check(0, append(b"x"), 0);
    check(flag::FULL_TRY, op(code::DELETE), 0);
    rig.set_pool(PoolView { full: true, ..pool() });
    assert_eq!(rig.one("o", append(b"x")), -28);
}

#[test]
fn a_pool_with_the_flag_eio_fails_everything_until_it_goes() {
    let mut rig = Rig::new();
    rig.run("o", vec![write_full(b"0123")]);
    rig.set_pool(PoolView { eio: true, ..pool() });
    for o in [read(0, 0), append(b"x"), op(code::STAT), op(code::DELETE)] {
        assert_eq!(rig.one("o", o.clone()), -5, "{}", o.code);
    }
    rig.set_pool(pool());
    assert_eq!(rig.run("o", vec![read(0, 0)]).ops[0].outdata[..], *b"0123");
}

#[test]
fn a_blocked_client_is_told_and_its_watches_end() {
    let mut rig = Rig::new();
    rig.run("o", vec![write_full(b"x")]);
    let watch = messages::osd::WatchArg {
        cookie: 1,
        op: 3,
        ..Default::default()
    };
    rig.one("o", op(code::WATCH).with_watch(watch));
    let me = EntityAddr::msgr2("1.2.3.4:5000".parse().unwrap(), rig.gid as u32);
    rig.set_pool(PoolView {
        blocklist: Arc::new(Blocklist::new(&[me])),
        ..pool()
    });
    assert_eq!(rig.one("o", read(0, 0)), -108);
    rig.gid += 1;
    let r = rig.run("o", vec![op(code::LIST_WATCHERS)]);
    assert_eq!(r.ops[0].outdata[..], [1, 1, 4, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn an_erasure_coded_pool_takes_whole_stripes_and_no_omap() {
    let mut rig = Rig::with_pool(PoolView {
        erasure: true,
        stripe_width: 4,
        ..pool()
    });
    assert_eq!(rig.one("o", append(b"0123")), 0);
    assert_eq!(rig.one("o", append(b"45")), 0);
    assert_eq!(rig.one("o", append(b"6")), -95);
    assert_eq!(rig.one("o", write(0, b"x")), -95);
    assert_eq!(rig.one("o", OsdOp::ranged(code::TRUNCATE, 1, 0)), -95);
    assert_eq!(rig.one("o", omap_set(&[("k", "v")])), -95);
    assert_eq!(rig.one("o", write_full(b"x")), 0);
    assert_eq!(rig.one("o", op(code::MAPEXT)), -95);
    let keys = op(code::OMAPGETKEYS).with_data(vec![0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(rig.run("o", vec![keys]).ops[0].outdata[..], [0; 5]);
}

#[test]
fn a_split_leaves_each_pg_its_own_objects() {
    let mut rig = Rig::new();
    for n in 0..50 {
        rig.run(&format!("o{n}"), vec![write_full(b"12")]);
    }
    let sent = rig.request("o7", vec![excl()]);
    assert_eq!(rig.answer(sent.clone()).result, -17);
    rig.run("o7", vec![op(code::DELETE)]);
    rig.run("o50", vec![write_full(b"12")]);
    let grown = PoolView { pg_num: 2, ..pool() };
    rig.set_pool(grown.clone());
    let id = SPgId::replicated(PgId::new(POOL, 1));
    let child = Pg::load(id, Arc::new(grown), &mut rig.store, rig.now).unwrap();
    let (a, b) = (rig.pg.stats(), child.stats());
    assert_eq!(a.objects + b.objects, 50);
    for pg in [0, 1] {
        let id = SPgId::replicated(PgId::new(POOL, pg));
        let again = Pg::load(id, rig.pg.pool().clone(), &mut rig.store, rig.now).unwrap();
        assert_eq!(
            again.stats().objects,
            [a, b][pg as usize].objects,
            "after a restart"
        );
    }
    assert!(a.objects > 5 && b.objects > 5);
    assert_eq!(a.bytes + b.bytes, 100);
    assert!(b.user_version > 0, "versions go on from what the objects have");
    // A write sent again after the split is known to the PG that has its object now.
    let mut m = sent;
    m.pgid = id;
    let (theirs, ours) = if seed_of(hash(b"o7"), 2) == 1 {
        (child, rig.pg)
    } else {
        (rig.pg, child)
    };
    rig.pg = theirs;
    assert_eq!(rig.answer(m).result, -17);
    drop(ours);
}

#[test]
fn pool_snapshots_replace_the_context_of_the_message() {
    let mut rig = Rig::with_pool(PoolView {
        pool_snaps_mode: true,
        ..pool()
    });
    rig.run("o", vec![write_full(b"a")]);
    rig.set_pool(PoolView {
        pool_snaps_mode: true,
        snap_seq: 3,
        snaps: vec![3],
        ..pool()
    });
    rig.snapc = (9, vec![9]);
    rig.run("o", vec![write_full(b"b")]);
    assert_eq!(rig.data("o", 3).unwrap(), "a");
    assert_eq!(rig.data("o", NOSNAP).unwrap(), "b");
    assert_eq!(
        rig.data("o", 9).unwrap(),
        "b",
        "9 is newer than the object's context"
    );
}

#[test]
fn a_pg_that_missed_its_split_counts_again() {
    let mut rig = Rig::new();
    for n in 0..50 {
        rig.run(&format!("o{n}"), vec![write_full(b"12")]);
    }
    let grown = Arc::new(PoolView { pg_num: 2, ..pool() });
    let id = |seed| SPgId::replicated(PgId::new(POOL, seed));
    let mut sum = 0;
    for seed in [1, 0, 1, 0] {
        let pg = Pg::load(id(seed), grown.clone(), &mut rig.store, rig.now).unwrap();
        sum += pg.stats().objects;
    }
    assert_eq!(sum, 100);
}

#[test]
fn a_split_of_a_pg_with_a_full_log_and_a_crash_in_the_middle_of_it() {
    // The whole log in one transaction was more than the store takes: the new PG could not be made.
    let mut rig = Rig::new();
    for n in 0..3200 {
        rig.run(&format!("o{}", n % 8), vec![append(b"x")]);
    }
    let moving = (0..8)
        .map(|n| format!("o{n}"))
        .find(|o| seed_of(hash(o.as_bytes()), 2) == 1);
    let mut sent = rig.request(&moving.unwrap(), vec![excl()]);
    assert_eq!(rig.answer(sent.clone()).result, -17);
    let grown = Arc::new(PoolView { pg_num: 2, ..pool() });
    let id = SPgId::replicated(PgId::new(POOL, 1));
    let whole = rig.store.clone();
    for stop in [0, 1, 3] {
        // Only the first `stop` transactions of the birth survive.
        rig.store = whole.clone();
        rig.store.refuse_from = Some(rig.store.seq + stop);
        assert!(Pg::load(id, grown.clone(), &mut rig.store, rig.now).is_err());
        rig.store.refuse_from = None;
        let born = Pg::load(id, grown.clone(), &mut rig.store, rig.now).unwrap();
        let again = Pg::load(id, grown.clone(), &mut rig.store, rig.now).unwrap();
        assert_eq!(born.log_len(), again.log_len(), "stopped after {stop}");
        assert_eq!(born.stats(), again.stats(), "stopped after {stop}");
        rig.pg = again;
        sent.pgid = id;
        assert_eq!(rig.answer(sent.clone()).result, -17);
        assert_eq!(rig.pg.log_len(), born.log_len(), "the memory of it came along");
    }
}

#[test]
fn a_split_answers_what_was_under_way_and_leaves_the_others_watches_alone() {
    let mut rig = Rig::new();
    let named = |want| {
        let mut names = (0..).map(|n| format!("o{n}"));
        names.find(|o| seed_of(hash(o.as_bytes()), 2) == want).unwrap()
    };
    let (stays, goes) = (named(0), named(1));
    let watch = messages::osd::WatchArg {
        cookie: 1,
        op: 3,
        timeout: 5,
        ..Default::default()
    };
    for o in [&stays, &goes] {
        rig.run(o, vec![write_full(b"x"), op(code::WATCH).with_watch(watch)]);
    }
    rig.auto_commit = false;
    let m = rig.request(&stays, vec![append(b"y")]);
    rig.send(m);
    rig.set_pool(PoolView { pg_num: 2, ..pool() });
    assert!(rig.replies().is_empty());
    rig.apply(Input::Committed(rig.store.seq));
    assert_eq!(rig.replies().len(), 1, "no client sends this again");
    rig.auto_commit = true;
    rig.tick_after(Duration::from_secs(6));
    assert_eq!(rig.events().len(), 1, "only its own watch ends");
    let m = rig.request(&goes, vec![append(b"y")]);
    rig.send(m);
    assert!(matches!(rig.out[..], [Output::Dropped { .. }]));
}

#[test]
fn a_large_pg_counts_in_steps_while_it_is_written() {
    let mut rig = Rig::new();
    let n = 400;
    for i in 0..n {
        rig.run(&format!("o{i}"), vec![write_full(b"12")]);
    }
    rig.snapc = (1, vec![1]);
    for i in 0..50 {
        rig.run(&format!("o{i}"), vec![append(b"3")]);
    }
    let removed = SnapIntervals::range(1, 2);
    let grown = PoolView {
        pg_num: 2,
        removed_snaps: removed,
        ..pool()
    };
    rig.set_pool(grown.clone());
    let id = SPgId::replicated(PgId::new(POOL, 1));
    let shared = Arc::new(grown);
    let child = Pg::load(id, shared.clone(), &mut rig.store, rig.now).unwrap();
    assert!(
        child.stats().user_version >= rig.pg.stats().user_version,
        "before it has seen every object"
    );
    let counted = |rig: &mut Rig| {
        let (s, c) = (rig.pg.stats(), rig.count_objects());
        let of = |s: PgStats| (s.objects, s.bytes, s.clones, s.whiteouts, s.omap_objects);
        (of(s), of(c))
    };
    let parent = std::mem::replace(&mut rig.pg, child);
    let mut halves = vec![parent];
    let mut objects = 0;
    for seed in [1, 0] {
        let (partial, whole) = counted(&mut rig);
        assert!(partial.0 > 0 && partial.0 < whole.0, "{partial:?} of {whole:?}");
        // Between the steps objects come, go and change, before and behind the walk.
        let mut steps = 0;
        while rig.pg.count.is_some() {
            for i in (steps..n + 60).step_by(9) {
                let oid = format!("o{i}");
                if seed_of(hash(oid.as_bytes()), 2) == seed {
                    let change = match i % 3 {
                        0 => op(code::DELETE).with_flags(2),
                        1 => append(b"45"),
                        _ => omap_set(&[("k", "v")]),
                    };
                    let mut m = rig.request(&oid, vec![change]);
                    m.pgid = rig.pg.id();
                    assert_eq!(rig.answer(m).result, 0);
                }
            }
            if steps == 2 {
                // A PG that is stopped before the end counts again.
                rig.restart();
                assert!(rig.pg.count.is_some());
            }
            assert!(rig.pg.stats().objects >= 0);
            rig.settle(1);
            steps += 1;
        }
        assert!(steps > 3, "{steps} steps");
        assert!(rig.pg.stats().clones > 0, "snapshots are trimmed when it is done");
        let (stats, whole) = counted(&mut rig);
        assert_eq!(stats, whole);
        rig.restart();
        assert!(rig.pg.count.is_none());
        assert_eq!(counted(&mut rig).0, whole);
        rig.settle(20);
        assert!(rig.pg.next_timer().is_none());
        let (stats, whole) = counted(&mut rig);
        assert_eq!((stats, stats.2), (whole, 0));
        objects += stats.0;
        if let Some(other) = halves.pop() {
            rig.pg = other;
        }
    }
    assert_eq!(objects, rig.store.object_count() as i64);
}

/// The pool with these entries on the blocklist, in the next epoch.
fn with_fences(rig: &Rig, entries: &[EntityAddr], ids: &[u64]) -> PoolView {
    PoolView {
        epoch: rig.pg.pool().epoch + 1,
        blocklist: Arc::new(Blocklist::new(entries).with_ids(ids.iter().copied())),
        ..pool()
    }
}

#[test]
fn a_fenced_instance_does_not_come_back_under_another_address() {
    let mut rig = Rig::new();
    assert_eq!(rig.one("o", write_full(b"mine")), 0);
    let first = EntityAddr::msgr2("1.2.3.4:5000".parse().unwrap(), rig.gid as u32);
    rig.set_pool(with_fences(&rig, &[first], &[rig.gid]));
    assert_eq!(rig.one("o", write_full(b"late")), -108);
    // With another nonce, with another address.
    for (at, nonce) in [
        ("1.2.3.4:5000", 1),
        ("9.9.9.9:0", rig.gid as u32),
        ("9.9.9.9:0", 8),
    ] {
        rig.addr = Some(EntityAddr::msgr2(at.parse().unwrap(), nonce));
        assert_eq!(rig.one("o", write_full(b"late")), -108, "{at}/{nonce}");
        assert_eq!(rig.one("o", read(0, 1)), -108, "{at}/{nonce}");
    }
    // Listings are operations like others.
    let listing = rig.request("", vec![op(code::PGNLS)]);
    assert_eq!(rig.answer(listing).result, -108);
    // Another instance is served.
    rig.gid += 1;
    rig.addr = None;
    assert_eq!(rig.data("o", NOSNAP).unwrap(), "mine");
    // And the first one, when the entry has gone.
    rig.gid -= 1;
    rig.set_pool(PoolView {
        epoch: rig.pg.pool().epoch + 1,
        ..pool()
    });
    assert_eq!(rig.one("o", write_full(b"again")), 0);
}

#[test]
fn a_client_that_calls_itself_another_host_is_fenced_by_where_it_sends_from() {
    let mut rig = Rig::new();
    let nonce = rig.gid as u32;
    let a = |at: &str, nonce| EntityAddr::msgr2(at.parse().unwrap(), nonce);
    let range = EntityAddr {
        kind: AddrKind::Cidr,
        nonce: 24,
        sock: Some("1.2.3.0:0".parse().unwrap()),
    };
    // The rig's clients send from 1.2.3.4.
    rig.addr = Some(a("9.9.9.9:0", nonce));
    for (entry, want) in [
        (a("1.2.3.4:0", nonce), -108),
        (a("1.2.3.4:0", nonce + 1), 0),
        (a("1.2.3.4:0", 0), -108),
        (a("1.2.3.5:0", 0), 0),
        (range, -108),
    ] {
        rig.set_pool(with_fences(&rig, &[entry], &[]));
        assert_eq!(rig.one("o", write_full(b"x")), want, "{entry}");
    }
}

#[test]
fn nobody_else_uses_up_a_clients_request_id() {
    let mut rig = Rig::new();
    // Another entity under the victim's global id, with the number that its next write will have.
    rig.instance = Some(666);
    let stolen = rig.request("o", vec![write_full(b"stolen")]);
    assert_eq!(rig.answer(stolen.clone()).result, 0);
    rig.instance = None;
    let mut own = rig.request("o", vec![write_full(b"own")]);
    own.tid = stolen.tid;
    let first = rig.answer(own.clone());
    assert_eq!(
        rig.data("o", NOSNAP).unwrap(),
        "own",
        "done, and not taken for a repetition"
    );
    // Nor can it make the victim's writes be done twice.
    rig.run("o", vec![write_full(b"later")]);
    rig.instance = Some(666);
    assert_eq!(rig.answer(stolen.clone()).result, 0);
    rig.instance = None;
    for _ in 0..2 {
        let again = rig.answer(own.clone());
        assert_eq!((again.result, again.user_version), (0, first.user_version));
        assert_eq!(rig.data("o", NOSNAP).unwrap(), "later");
        // What the next primary, or this one after a restart, knows of it.
        rig.restart();
    }
}
